/* bench comm: parses the call, and times communication on every rank. */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "beside/beside.h"
#include "comm/comm.h"

/* The targets of the options. */
typedef struct Call {
    int64_t ranks;
    BenchComm bench;
} Call;

static Status run_rank(const void *state, const Config *c, Comm *world, Arena *a, Text *out)
{
    return (void)a, bench_comm(c, world, state, out);
}

static Status run_comm(void *state, int n, char **arguments, Arena *a, Text *out)
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
        { "--only", OPTION_CHOICE, &call.bench.only, "all|collectives|exchange",
          .help = "run only one part" },
        { "--shrink", OPTION_INT, &call.bench.shrink, "N", "divide all bytes and tokens by N",
          .min = 1, .max = 1e6 },
        { "--json", OPTION_FLAG, &call.bench.json, .help = "print one JSON object per line" },
    };
    const Command command = {
        .name = "switchyard bench comm",
        .arguments = "[section.key=value ...]",
        .what = "Time communication between ranks of this host or of mpirun: every collective by "
                "size, and every token exchange with balanced and skewed routing. Rows have time, "
                "algorithm bandwidth and bus bandwidth, and on a known GPU the share of its links.",
        .example = "switchyard bench comm run.compute=bf16 --ranks 4",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, run_comm, &call);
}
