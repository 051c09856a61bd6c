/* bench ladder: parses the call, and times the rungs. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/comm/comm.h"
#include "ladder/ladder.h"

/* The targets of the options. */
typedef struct Call {
    int64_t steps, ranks;
    bool small; /* --shrink of the model */
} Call;

/* With --ranks the ladder starts its own threads, rung by rung, so it cannot run under a
 * launcher. */
static Status run_ladder(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Call *call = state;
    Config c = { 0 };
    bool model = n > 0;
    TRY(config_load_as(&c, a, call->small ? CONFIG_SMALL : 0, model ? arguments[0] : "quickstart",
                       (const char *const *)(arguments + model), n - model));
    if (call->ranks > 1 && comm_launched() > 1)
        return FAIL(
            ERR_ARG,
            "bench ladder: --ranks starts ranks of this host: start it without mpirun or srun");
    if (call->ranks > 1) return bench_scale(&c, (int)call->ranks, call->steps, out);
    return bench_ladder(&c, call->steps, a, out);
}

Status beside_run(int argc, char **argv)
{
    Call call = { .steps = 20 };
    const Option table[] = {
        { "--steps", OPTION_INT, &call.steps, "N", "number of timed steps", .min = 1, .max = 1e6 },
        { "--shrink", OPTION_FLAG, &call.small,
          .help = "shrink the model but keep its structure; settings are applied after that" },
        { "--ranks", OPTION_INT, &call.ranks, "N", "run N ranks on this host, each on its own GPU",
          .min = 1, .max = 1024 },
    };
    const Command command = {
        .name = "switchyard bench ladder",
        .arguments = "MODEL [section.key=value ...]",
        .what = "Print one table: larger batches first, then one more feature in each row, with "
                "tokens/s, memory, launches and waits of the host. With --ranks N it compares 1, "
                "2, 4 ... N ranks with the same work per rank: tokens/s, tokens/s per rank, "
                "efficiency.",
        .example = "switchyard bench ladder deepseek-v2-lite model.layers=6 run.compute=bf16",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, run_ladder, &call);
}
