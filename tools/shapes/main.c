/* bench shapes: parses the call, and times single ops. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "shapes/bench.h"

static Status run_shapes(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const BenchShapes *o = state;
    Config c = { 0 };
    TRY(config_load_as(&c, a, 0, "quickstart", (const char *const *)arguments, n));
    if (o->list != NULL && o->seed != NULL)
        return FAIL(ERR_ARG, "bench shapes: --list and --seed both say what runs: leave one out");
    return bench_shapes(&c, o, out);
}

Status beside_run(int argc, char **argv)
{
    BenchShapes o = { .shrink = 1 };
    const Option table[] = {
        { "--only", OPTION_CHOICE, &o.group, bench_groups, .help = "run only one group of ops" },
        { "--seed", OPTION_TEXT, &o.seed, "TEXT",
          .help = "run five MoE shapes drawn from TEXT instead, each routed in three ways" },
        { "--list", OPTION_TEXT, &o.list, "FILE",
          .help = "run the rows of FILE, from trace replay --bench, instead" },
        { "--shrink", OPTION_INT, &o.shrink, "N", "divide all sizes by N", .min = 1, .max = 1e6 },
        { "--json", OPTION_FLAG, &o.json, .help = "print one JSON object per line" },
        { "--no-check", OPTION_FLAG, &o.no_check, .help = "do not compare results with the CPU" },
    };
    const Command command = {
        .name = "switchyard bench shapes",
        .arguments = "[section.key=value ...]",
        .what = "Time single ops on the shapes of well-known models: time, TFLOP/s, TB/s, share of "
                "the measured peak, and the largest error of a sample against the CPU.",
        .example = "switchyard bench shapes run.compute=bf16 --only products",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, run_shapes, &o);
}
