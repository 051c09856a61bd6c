/* bench trace: parses the call, and times the reader and the report of traces. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "trace/bench.h"

static Status run_bench_trace(void *state, int n, char **path, Arena *a, Text *out)
{
    (void)n;
    return bench_trace(path[0], state, a, out);
}

Status beside_run(int argc, char **argv)
{
    BenchTrace o = { .steps = 5 };
    const Option table[] = {
        { "--steps", OPTION_INT, &o.steps, "N", "run each part N times and print medians", .min = 1,
          .max = 1e6 },
        { "--json", OPTION_FLAG, &o.json, .help = "print one JSON object per line" },
    };
    const Command command = {
        .name = "switchyard bench trace",
        .arguments = "FILE",
        .what = "Time how fast a trace is read: its text alone, the reader on one thread and on "
                "two, and the whole of `trace report`. Rows have time, MB of text per second, and "
                "peak memory so far.",
        .example = "switchyard bench trace rank0.json.gz",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, run_bench_trace, &o);
}
