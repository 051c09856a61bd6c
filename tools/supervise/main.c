/* supervise: `switchyard supervise`: parses, hears signals, and prints what the supervision came to. What is done is
 * supervise.h's. The command becomes this program (beside/beside.h), which starts `switchyard train`. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/comm/comm.h"
#include "supervise/supervise.h"

#include <inttypes.h>
#include <string.h>

/* Signal handlers may only write such variables, so they are global. */
static volatile sig_atomic_t stops, shows;

static void on_stop(int number)
{
    (void)number;
    stops = stops + 1;
}

static void on_show(int number)
{
    (void)number;
    shows = shows + 1;
}

static void catch_signals(void)
{
    static const int stop[] = { SIGINT, SIGTERM, SIGHUP, SIGUSR2 };
    struct sigaction action = { .sa_handler = on_stop };
    for (size_t i = 0; i < sizeof stop / sizeof *stop; i++) sigaction(stop[i], &action, NULL);
    action.sa_handler = on_show;
    sigaction(SIGUSR1, &action, NULL);
}

static Status print_sum(const SuperviseSum *sum, Text *out)
{
    TRY(text_printf(out,
                    "starts                %d, %" PRId64 " steps ran again, %d hosts left out\n",
                    sum->starts, sum->lost, sum->left_out));
    return text_printf(out, "goodput               %.3f: %.1f s of steps in %.1f s\n",
                       sum->all_s > 0 ? sum->useful_s / sum->all_s : 0, sum->useful_s, sum->all_s);
}

static Status run_supervise(void *state, int n, char **arguments, Arena *a, Text *out)
{
    SuperviseOptions *o = state;
    SuperviseSum sum;
    Config c;
    if (comm_launched() > 1)
        return FAIL(
            ERR_ARG,
            "supervise: it starts ranks itself, and %d are started already%s: write mpirun or "
            "srun after --, not before supervise, or let torchrun or Kubernetes start and "
            "restart switchyard train --resume=auto",
            comm_launched(), comm_launched_how());
    TRY(config_load_as(&c, a, CONFIG_RUN, arguments[0], (const char *const *)(arguments + 1),
                       n - 1));
    o->config = &c;
    o->words = (const char *const *)arguments;
    o->n_words = n;
    TRY(supervise_check(o));
    catch_signals();
    TRY(supervise_run(o, a, &sum));
    return print_sum(&sum, out);
}

/* What stands behind -- is the launcher's, with options that are none of ours. */
static int words_before(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0) return i;
    return argc;
}

Status beside_run(int argc, char **argv)
{
    const int own = words_before(argc, argv);
    SuperviseOptions o = { .cluster = "h100",
                           .stops = &stops,
                           .shows = &shows,
                           .launcher = (const char *const *)argv + own + 1,
                           .n_launcher = own < argc ? argc - own - 1 : 0 };
    const Option table[] = {
        { "--hang-after", OPTION_REAL, &o.hang_s, "SECONDS",
          .help = "restart a run whose heartbeat is this old, also while it starts; "
                  "without it: comm.timeout_s and four times the longest step, 10 minutes for a "
                  "start",
          .min = 0.5, .max = 1e6 },
        { "--spare", OPTION_TEXT, &o.spare, "HOST,...",
          .help = "hosts that wait to take the ranks of a host that failed twice, as in c,d" },
        { "--cluster", OPTION_TEXT, &o.cluster, "NAME",
          .help = "hardware by which the planner chooses a mesh for the hosts that are left "
                  "(h100)" },
        { "--init", OPTION_TEXT, &o.init, "CKPT", .help = "passed to train" },
        { "--allow-commands", OPTION_FLAG, &o.commands, NULL,
          .help = "passed to train: commands that CONFIG has may run" },
    };
    const Command command = {
        .name = "switchyard supervise",
        .arguments = "CONFIG [section.key=value ...] -- LAUNCHER",
        .what = "Start a run, watch its heartbeat, and restart it from its newest checkpoint "
                "after a crash, a hang or a lost rank. LAUNCHER is --ranks N, or mpirun or srun "
                "with its options. A host that failed twice is left out. RUN/journal.jsonl says "
                "what happened. SIGUSR1 prints goodput: the time of steps that were kept over all "
                "time.",
        .example = "switchyard supervise run.yaml checkpoint.every=100 -- mpirun --host a:8,b:8",
        OPTIONS(table, 1, -1),
    };
    return options_run(&command, own, argv, run_supervise, &o);
}
