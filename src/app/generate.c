/* generate: `switchyard generate`: parses, calls engine/train/generate.h, and prints the text while it
 * grows. How tokens are drawn is engine/train/generate.c's. */
#include "engine/train/generate.h"
#include "app/options/cli.h"
#include "app/options/options.h"
#include "engine/base/interrupt.h"
#include "engine/base/out.h"

/* Prints a token's bytes at once, not through the command's `out`, so that the user sees text grow.
 * After an interrupt the line is ended first, for the shell's prompt. */
static Status print_bytes(const char *bytes, int n)
{
    TRY(out_write(bytes, (size_t)n));
    if (interrupt_signal() != 0) TRY(out_write("\n", 1));
    return interrupt_check("the text ends early");
}

typedef struct Generate {
    GenerateOptions options;
    int64_t seed; /* OPTION_INT is signed; options.seed is not */
} Generate;

static Status run_generate(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Generate *g = state;
    (void)n, (void)a;
    g->options.seed = (uint64_t)g->seed;
    interrupt_catch();
    TRY(generate_text(arguments[0], &g->options, print_bytes));
    return text_append(out, "\n", 1);
}

Status cli_generate(int argc, char **argv)
{
    Generate g = { { .tokens = 100, .temperature = 0.8, .top_p = 1 }, .seed = 1 };
    GenerateOptions *o = &g.options;
    const Option table[] = {
        { "--prompt", OPTION_TEXT, &o->prompt, "TEXT", "the text to continue", .required = true },
        { "--tokens", OPTION_INT, &o->tokens, "N", "write at most N tokens", .min = 1, .max = 1e6 },
        { "--temperature", OPTION_REAL, &o->temperature, "X",
          "divide logits by X before drawing; 0 always takes the likeliest token", .min = 0,
          .max = 100 },
        { "--top-k", OPTION_INT, &o->top_k, "N",
          "draw among the N likeliest tokens; 0 draws among all", .min = 0, .max = 1e9 },
        { "--top-p", OPTION_REAL, &o->top_p, "X",
          "draw among the likeliest tokens whose probabilities add up to X (after --top-k)",
          .min = 0, .max = 1 },
        { "--seed", OPTION_INT, &g.seed, "N", "seed of the random draws", .min = 0, .max = 9e15 },
    };
    const Command command = {
        .name = "switchyard generate",
        .arguments = "CKPT",
        .what = "Continue a prompt with a trained model. CKPT is the folder of a run or of a "
                "checkpoint.",
        .example = "switchyard generate runs/quickstart --prompt 'In the beginning' --tokens 50",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, run_generate, &g);
}
