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

static Status bench(int argc, char **argv, const Command *named, BenchFn *fn)
{
    Bench b = { 20, fn };
    const Option table[] = {
        { "--steps", OPTION_INT, &b.steps, "N", "timed steps", .min = 1, .max = 1e6 },
    };
    Command command = *named;
    command.options = table;
    command.n_options = 1;
    command.max_positional = -1;
    return options_run(&command, argc, argv, run, &b);
}

static Status run_ops(int argc, char **argv)
{
    const Command command = {
        .name = "switchyard bench ops",
        .arguments = "[MODEL [section.key=value ...]]",
        .what =
            "Each op inside training steps of MODEL (default quickstart): time, GFLOP/s, GB/s and\n"
            "its share of the machine's own measured roof.",
        .example = "switchyard bench ops quickstart run.compute=bf16",
    };
    return bench(argc, argv, &command, bench_ops);
}

static Status run_step(int argc, char **argv)
{
    const Command command = {
        .name = "switchyard bench step",
        .arguments = "MODEL [section.key=value ...]",
        .what = "Whole training steps on random tokens: tokens/s, spread of step times, memory.",
        .example = "switchyard bench step quickstart --steps 50",
    };
    return bench(argc, argv, &command, bench_step);
}

static Status run_ladder(int argc, char **argv)
{
    const Command command = {
        .name = "switchyard bench ladder",
        .arguments = "MODEL [section.key=value ...]",
        .what = "One table: growing batches, then one feature more a row: tokens/s, memory,\n"
                "launches and waits of the host.",
        .example = "switchyard bench ladder deepseek-v2-lite model.layers=6 run.compute=bf16",
    };
    return bench(argc, argv, &command, bench_ladder);
}

Status cli_bench(int argc, char **argv)
{
    static const Subcommand rows[] = {
        { "ops", "each op of a training step", run_ops },
        { "step", "whole training steps", run_step },
        { "ladder", "what each feature is worth", run_ladder },
    };
    return options_dispatch("switchyard bench", rows, sizeof rows / sizeof *rows, argc, argv);
}
