#include "train/generate.h"
#include "cli/cli.h"
#include "cli/options.h"

#include <stdio.h>

static void print_bytes(const char *bytes, int n)
{
    (void)fwrite(bytes, 1, (size_t)n, stdout);
    (void)fflush(stdout);
}

Status cli_generate(int argc, char **argv)
{
    int64_t seed = 1;
    GenerateOptions o = { .tokens = 100, .temperature = 0.8, .top_p = 1 };
    const Option table[] = {
        { "--prompt", OPTION_TEXT, &o.prompt, "TEXT", "text to go on from", .required = true },
        { "--tokens", OPTION_INT, &o.tokens, "N", "tokens to write at most", .min = 1, .max = 1e6 },
        { "--temperature", OPTION_REAL, &o.temperature, "X", "0: always the likeliest", .min = 0,
          .max = 100 },
        { "--top-k", OPTION_INT, &o.top_k, "N", "draw from the N likeliest; 0: all", .min = 0,
          .max = 1e9 },
        { "--top-p", OPTION_REAL, &o.top_p, "X", "draw from the likeliest that hold this share",
          .min = 0, .max = 1 },
        { "--seed", OPTION_INT, &seed, "N", "of the draws", .min = 0, .max = 9e15 },
    };
    const Command command = {
        .name = "switchyard generate",
        .arguments = "CKPT",
        .what = "Go on from a prompt. CKPT is a run's folder or a checkpoint's.",
        .example = "switchyard generate runs/quickstart --prompt 'In the beginning' --tokens 50",
        .options = table,
        .n_options = sizeof table / sizeof *table,
        .min_positional = 1,
        .max_positional = 1,
    };
    bool help = false;
    int n = 0;
    TRY(options_parse(&command, argc, argv, &n, &help));
    if (help) return OK;
    o.seed = (uint64_t)seed;
    TRY(generate_text(argv[1], &o, print_bytes));
    printf("\n");
    return OK;
}
