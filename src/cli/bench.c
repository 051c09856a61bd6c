#include "bench/bench.h"

#include "cli/cli.h"
#include "cli/options.h"

#include <stdio.h>

typedef Status BenchFn(const Config *c, int64_t steps, Arena *a, Text *out);

typedef struct Bench {
    int64_t steps;
    BenchFn *fn;
} Bench;

static Status run(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Bench *b = state;
    Config c;
    TRY(config_load(&c, a, n > 0 ? arguments[0] : "quickstart",
                    (const char *const *)(arguments + 1), n > 0 ? n - 1 : 0));
    return b->fn(&c, b->steps, a, out);
}

/* In the order of cli_bench's rows. */
static const struct {
    Command command;
    BenchFn *fn;
} benches[] = {
    { { .name = "switchyard bench ops",
        .arguments = "[MODEL [section.key=value ...]]",
        .what = "Each op inside training steps of MODEL (default quickstart): time, GFLOP/s, GB/s "
                "and\nits share of the machine's own measured roof.",
        .example = "switchyard bench ops quickstart run.compute=bf16" },
      bench_ops },
    { { .name = "switchyard bench step",
        .arguments = "MODEL [section.key=value ...]",
        .what = "Whole training steps on random tokens: tokens/s, spread of step times, memory.",
        .example = "switchyard bench step quickstart --steps 50" },
      bench_step },
    { { .name = "switchyard bench ladder",
        .arguments = "MODEL [section.key=value ...]",
        .what = "One table: growing batches, then one feature more a row: tokens/s, memory,\n"
                "launches and waits of the host.",
        .example = "switchyard bench ladder deepseek-v2-lite model.layers=6 run.compute=bf16" },
      bench_ladder },
};

/* argv[0] is the word that chose it. */
static Status bench(int argc, char **argv)
{
    int i = 0;
    while (!text_ends(benches[i].command.name, argv[0])) i++;
    Bench b = { 20, benches[i].fn };
    const Option table[] = {
        { "--steps", OPTION_INT, &b.steps, "N", "timed steps", .min = 1, .max = 1e6 },
    };
    Command command = benches[i].command;
    command.options = table;
    command.n_options = 1;
    command.max_positional = -1;
    return options_run(&command, argc, argv, run, &b);
}

Status cli_bench(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "ops", "each op of a training step", bench },
        { "step", "whole training steps", bench },
        { "ladder", "what each feature is worth", bench },
    };
    return options_dispatch("switchyard bench", rows, sizeof rows / sizeof *rows, argc, argv);
}
