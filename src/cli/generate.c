/* generate: `switchyard generate`: parses, calls train/generate, prints. */
#include "train/generate.h"
#include "base/interrupt.h"
#include "base/out.h"
#include "cli/cli.h"
#include "cli/options.h"

static Status print_bytes(const char *bytes, int n)
{
    TRY(out_write(bytes, (size_t)n));
    if (interrupt_signal() != 0) TRY(out_write("\n", 1));
    return interrupt_check("the text ends early");
}

typedef struct Generate {
    GenerateOptions options;
    int64_t seed;
} Generate;

static Status run(void *state, int n, char **arguments, Arena *a, Text *out)
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
        { "--prompt", OPTION_TEXT, &o->prompt, "TEXT", "text to go on from", .required = true },
        { "--tokens", OPTION_INT, &o->tokens, "N", "tokens to write at most", .min = 1,
          .max = 1e6 },
        { "--temperature", OPTION_REAL, &o->temperature, "X", "0: always the likeliest", .min = 0,
          .max = 100 },
        { "--top-k", OPTION_INT, &o->top_k, "N", "draw from the N likeliest; 0: all", .min = 0,
          .max = 1e9 },
        { "--top-p", OPTION_REAL, &o->top_p, "X",
          "draw from the likeliest that hold this share of what --top-k leaves", .min = 0,
          .max = 1 },
        { "--seed", OPTION_INT, &g.seed, "N", "of the draws", .min = 0, .max = 9e15 },
    };
    const Command command = {
        .name = "switchyard generate",
        .arguments = "CKPT",
        .what = "Go on from a prompt. CKPT is a run's folder or a checkpoint's.",
        .example = "switchyard generate runs/quickstart --prompt 'In the beginning' --tokens 50",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, run, &g);
}
