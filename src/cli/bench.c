#include "bench/bench.h"

#include "cli/cli.h"
#include "cli/options.h"

#include <stdio.h>

typedef Status BenchFn(const Config *c, int64_t steps, Arena *a, Text *out);

static Status run(int argc, char **argv, const Command *named, BenchFn *fn, Arena *a)
{
    int64_t steps = 20;
    const Option table[] = {
        { "--steps", OPTION_INT, &steps, "N", "timed steps", .min = 1, .max = 1e6 },
    };
    Command command = *named;
    command.options = table;
    command.n_options = 1;
    command.max_positional = -1;
    bool help = false;
    int n = 0;
    TRY(options_parse(&command, argc, argv, &n, &help));
    if (help) return OK;
    Config c;
    Text out = { 0 };
    TRY(config_load(&c, a, n > 0 ? argv[1] : "quickstart", (const char *const *)(argv + 2),
                    n > 0 ? n - 1 : 0));
    TRY(config_check(&c));
    TRY(text_init(&out, a));
    TRY(fn(&c, steps, a, &out));
    printf("%s", out.data);
    return OK;
}

static Status with_arena(int argc, char **argv, const Command *command, BenchFn *fn)
{
    Arena a = { 0 };
    TRY(arena_init(&a, "command", MEM_HOST, (size_t)1 << 30));
    Status s = run(argc, argv, command, fn, &a);
    arena_free(&a);
    return s;
}

static Status ops(const Config *c, int64_t steps, Arena *a, Text *out)
{
    (void)a;
    return bench_ops(c, steps, out);
}

static Status step(const Config *c, int64_t steps, Arena *a, Text *out)
{
    (void)a;
    return bench_step(c, steps, out);
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
    return with_arena(argc, argv, &command, ops);
}

static Status run_step(int argc, char **argv)
{
    const Command command = {
        .name = "switchyard bench step",
        .arguments = "MODEL [section.key=value ...]",
        .what = "Whole training steps on random tokens: tokens/s, spread of step times, memory.",
        .example = "switchyard bench step quickstart --steps 50",
    };
    return with_arena(argc, argv, &command, step);
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
    return with_arena(argc, argv, &command, bench_ladder);
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
