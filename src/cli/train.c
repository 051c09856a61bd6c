/* train: parse, plan or run, report. */
#include "train/train.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "config/config.h"
#include "convert/convert.h"
#include "plan/hardware.h"
#include "train/init.h"
#include "viz/report.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* mpirun asks all to end when one has died, and soon ends them itself. */
static const double TERMINATED_S = 0.2;

/* The signal that asked to stop; the engine looks at it between steps. A second one kills. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
    (void)signal(number, SIG_DFL);
}

/* How often a recording of the last steps was asked for. */
static volatile sig_atomic_t dumps;

static void on_dump(int number)
{
    (void)number;
    dumps = dumps + 1;
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = on_dump;
    sigaction(SIGUSR1, &action, NULL);
}

/* Prints the plan of rank 0. */
static Status dry_run(const Config *c, int ranks, Text *out)
{
    TrainPlan plan;
    MeshShape shape;
    TRY(train_mesh(c, ranks > 0 ? ranks : 1, &shape));
    Mesh mesh = mesh_alone(&shape, 0);
    TRY(train_plan(c, ranks > 1 ? &mesh : NULL, ranks > 0 ? ranks : 1, &plan));
    TRY(config_print(c, out));
    TRY(text_append(out, "\n", 1));
    if (ranks > 1) TRY(mesh_print(&shape, out));
    return train_plan_print(c, &plan, out);
}

static Status report(const Config *c, Arena *a, Text *out)
{
    RunSummary sum;
    TRY(report_write(c->run_dir, a, &sum));
    if (isfinite(sum.last_bits_per_byte))
        TRY(text_printf(out, "held-out bits a byte  %.3f before, %.3f after\n",
                        sum.first_bits_per_byte, sum.last_bits_per_byte));
    if (sum.least_expert >= 0)
        TRY(text_printf(out, "least loaded expert   %.2f of the mean load\n", sum.least_share));
    if (sum.twice > 0)
        TRY(text_printf(out,
                        "steps that ran twice  %lld of %lld, rows had no room: %.3g s of second "
                        "runs, %.3g s of new captures and larger room\n",
                        (long long)sum.twice, (long long)sum.steps, sum.again_s, sum.capture_s));
    return text_printf(out, "report                %s/report.html\n", c->run_dir);
}

typedef struct Call {
    bool dry, resume, small, rows, markdown;
    const char *init;
    OptionTexts change;
    int64_t ranks;
    const Config *config;
    int64_t last_step;
    bool settled;
} Call;

/* If all processes have agreed on a failure, only rank 0 fails: mpirun ends processes that still
 * print when the first one has failed. */
static Status train(void *state, Comm *world)
{
    Call *call = state;
    bool first = world == NULL || world->rank == 0, launched = comm_launched() > 1;
    TrainOptions options = { .resume = call->resume,
                             .change = call->change.at,
                             .n_change = call->change.n,
                             .init = call->init,
                             .stop = &stop_signal,
                             .dumps = &dumps,
                             .world = world,
                             .last_step = first ? &call->last_step : NULL,
                             .settled = launched ? &call->settled : NULL,
                             .sheet_flops = hardware_sheet_flops };
    if (launched) comm_set_stop(world, &stop_signal, TERMINATED_S);
    Status s = train_run(call->config, &options);
    return call->settled && !first ? OK : s;
}

/* A folder of Hugging Face's becomes a checkpoint beside the run's folder. Processes of mpirun would
 * all do it: they get train's sentence. */
static Status convert_init(Call *call, const Config *c, Arena *a, Text *out)
{
    char *path = NULL;
    if (call->init == NULL || call->resume || comm_launched() > 1 || !init_is_hf(call->init))
        return OK;
    size_t bytes = strlen(c->run_dir) + sizeof "-init";
    TRY(ARENA_NEW(a, bytes, &path));
    (void)snprintf(path, bytes, "%s-init", c->run_dir);
    TRY(file_make_parent(path));
    TRY(convert_from_hf(call->init, path, a, out));
    call->init = path;
    return OK;
}

static Status run(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Call *call = state;
    Config c;
    if (call->rows || call->markdown) return (call->markdown ? config_markdown : config_help)(out);
    if (n < 1)
        return FAIL(ERR_ARG, "switchyard train: CONFIG is missing; see switchyard train --help");
    log_rank(comm_launched_rank(), -1);
    if (call->change.n > 0 && !call->resume)
        return FAIL(ERR_ARG, "--change %s is for --resume: without it all settings are free",
                    call->change.at[0]);
    TRY((call->small ? config_load_small : config_load)(
        &c, a, arguments[0], (const char *const *)(arguments + 1), n - 1));
    if (call->dry) return dry_run(&c, (int)call->ranks, out);
    TRY(convert_init(call, &c, a, out));
    catch_signals();
    call->config = &c;
    TRY(cli_ranks(call->ranks, c.comm_timeout_s, a, train, call));
    return call->last_step > 0 ? report(&c, a, out) : OK; /* without a step there is no report */
}

Status cli_train(int argc, char **argv)
{
    Call c = { 0 };
    const Option table[] = {
        { "--dry-run", OPTION_FLAG, &c.dry,
          .help = "print configuration, parameters and memory; train nothing" },
        { "--shrink", OPTION_FLAG, &c.small,
          .help = "a small model of the same structure as CONFIG's; settings come after that" },
        { "--resume", OPTION_FLAG, &c.resume,
          .help = "go on from the newest whole checkpoint in run.dir" },
        { "--change", OPTION_TEXTS, &c.change, "KEY",
          .help = "with --resume: section.key may have another value than in the checkpoint" },
        { "--init", OPTION_TEXT, &c.init, "CKPT",
          .help =
              "take the initial weights from a checkpoint or a Hugging Face folder; the optimizer "
              "begins anew" },
        { "--ranks", OPTION_INT, &c.ranks, "N",
          .help =
              "train on N ranks of this host, one a GPU or a share of the cores; with mpirun or "
              "srun leave it away",
          .min = 1, .max = 4096 },
        { "--settings", OPTION_FLAG, &c.rows,
          .help = "list presets, and every section.key with its default" },
        { "--settings-markdown", OPTION_FLAG, &c.markdown,
          .help = "the same as a page: docs/reference/config.md" },
    };
    const Command command = {
        .name = "switchyard train",
        .arguments = "CONFIG [section.key=value ...]",
        .what = "Train the model that CONFIG describes: a YAML file or the name of a preset.",
        .example = "switchyard train quickstart train.steps=100 run.dir=runs/mine",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, run, &c);
}
