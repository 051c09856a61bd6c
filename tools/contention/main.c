/* bench contention: parses the call, and times ops on every rank. */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "bench/bench.h"
#include "beside/beside.h"
#include "contention/contention.h"

/* The targets of the options. */
typedef struct Call {
    int64_t ranks;
    BenchContention bench;
} Call;

static Status run_rank(const void *state, const Config *c, Comm *world, Arena *a, Text *out)
{
    return (void)a, bench_contention(c, world, state, out);
}

static Status run_contention(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Call *call = state;
    Config c = { 0 };
    TRY(config_load_as(&c, a, 0, "quickstart", (const char *const *)arguments, n));
    BenchOn on = { .config = &c, .run = run_rank, .state = &call->bench, .out = out };
    return cli_ranks(call->ranks, c.comm_timeout_s, a, bench_on_rank, &on);
}

Status beside_run(int argc, char **argv)
{
    Call call = { .bench.shrink = 1 };
    const Option table[] = {
        { "--ranks", OPTION_INT, &call.ranks, "N", "run N ranks on this host, each on its own GPU",
          .min = 1, .max = 1024 },
        { "--shrink", OPTION_INT, &call.bench.shrink, "N", "divide bytes and sizes by N", .min = 1,
          .max = 1000 },
        { "--json", OPTION_FLAG, &call.bench.json, .help = "print one JSON object per line" },
    };
    const Command command = {
        .name = "switchyard bench contention",
        .arguments = "[section.key=value ...]",
        .what = "Time products, attention and an op that memory bounds, alone and during "
                "communication. An all-gather runs, or waits for a late rank, or a receive waits. "
                "`plan calibrate` reads how many times as long they take.",
        .example = "switchyard bench contention run.compute=bf16 --ranks 2",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, run_contention, &call);
}
