/* train: `switchyard train`: parses, then prints the plan (dry_run.h) or trains on every rank and
 * writes the report. Training itself is engine/train/run.c's; this file connects it with signals,
 * conversion, hardware's data sheets and the report, which train/ must not include. */
#include "engine/train/train.h"
#include "app/dry_run.h"
#include "app/options/cli.h"
#include "app/options/options.h"
#include "convert/convert.h"
#include "corpus/corpus.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/checkpoint/init.h"
#include "engine/config/config.h"
#include "hardware/hardware.h"
#include "pages/live_page.h"
#include "pages/report.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* When a process has died, mpirun sends the others a signal, and soon after that kills them. A rank
 * has this long to report what it waited for. Over TCP a rank sees by its connection that another one has
 * died, so a signal is only a request to save. */
static const double STOP_GRACE_S = 0.2;

/* Number of SIGUSR1 so far: each asks for a recording of the last steps. A signal handler may only
 * write such a variable, so it is global. */
static volatile sig_atomic_t dumps;

/* The signal handler of SIGUSR1. */
static void on_dump(int number)
{
    (void)number;
    dumps = dumps + 1;
}

/* SIGINT, SIGTERM, SIGHUP and SIGUSR2 end the run after the current step (engine/base/interrupt.h). */
static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_dump, .sa_flags = SA_RESTART };
    interrupt_catch();
    sigaction(SIGUSR1, &action, NULL);
}

/* Writes RUN/report.html and prints the figures that a user looks for first. */
static Status print_run_report(const Config *c, Arena *a, Text *out)
{
    RunSummary sum;
    TRY(report_write(c->run_dir, a, &sum));
    char held_out[RUN_HELD_OUT_BYTES];
    if (isfinite(sum.last_bits_per_byte))
        TRY(text_printf(out, "held-out bits a byte  %s\n", run_held_out_text(held_out, &sum)));
    if (sum.least_expert >= 0)
        TRY(text_printf(out, "least loaded expert   %.2f of the mean load\n", sum.least_share));
    if (sum.twice > 0)
        TRY(text_printf(out,
                        "steps that ran twice  %lld of %lld, rows had no room: %.3g s of second "
                        "runs, %.3g s of new captures and larger room\n",
                        (long long)sum.twice, (long long)sum.steps, sum.again_s, sum.capture_s));
    return text_printf(out, "report                %s/report.html\n", c->run_dir);
}

enum { EXIT_BAD_INPUT = 2 };

enum { RESUME_NOT, RESUME_ALWAYS, RESUME_AUTO }; /* of OPTION_SWITCH: none, --resume, =auto */

/* A call: the targets of its options, then what ranks share. */
typedef struct Call {
    bool dry, all, small, rows, commands;
    int resume;
    const char *init, *supervised;
    OptionTexts change;
    int64_t ranks;
    const Config *config;
    int64_t last_step; /* out, by rank 0: the last step that ran; 0: none */
    bool settled;      /* out: all processes have agreed on a failure */
} Call;

/* The body of each rank. If all processes have agreed on a failure, only rank 0 returns it: mpirun
 * kills processes that still print when one has failed, and rank 0's sentence could be lost. */
static Status train_on_rank(void *state, Comm *world)
{
    Call *call = state;
    bool first = world == NULL || world->rank == 0, launched = comm_launched() > 1;
    TrainOptions options = { .resume = call->resume != RESUME_NOT,
                             .or_begin = call->resume == RESUME_AUTO,
                             .change = call->change.at,
                             .n_change = call->change.n,
                             .init = call->init,
                             .supervised = call->supervised,
                             .stop = interrupt_flag(),
                             .dumps = &dumps,
                             .world = world,
                             .last_step = first ? &call->last_step : NULL,
                             .failure_agreed = launched ? &call->settled : NULL,
                             .sheet_flops = hardware_sheet_flops,
                             .live_page = live_page };
    if (call->supervised != NULL) log_kinds();
    if (comm_launched_by_mpi()) comm_set_stop(world, interrupt_flag(), STOP_GRACE_S);
    Status s = train_run(call->config, &options);
    return call->settled && !first && comm_launched_by_mpi() ? OK : s;
}

/* --init with a Hugging Face folder: converts it into a checkpoint at RUN-init, which a later
 * --resume=auto uses again. Not under mpirun, where every process would convert: train_run then
 * refuses the folder with a sentence. */
static Status convert_init(Call *call, const Config *c, Arena *a, Text *out)
{
    char *path = NULL;
    if (call->init == NULL || call->resume == RESUME_ALWAYS || comm_launched() > 1 ||
        !init_is_hf(call->init))
        return OK;
    size_t bytes = strlen(c->run_dir) + sizeof "-init";
    TRY(ARENA_NEW(a, bytes, &path));
    (void)snprintf(path, bytes, "%s-init", c->run_dir);
    TRY(file_make_parent(path));
    bool made = call->resume == RESUME_AUTO && file_exists(path);
    if (!made) TRY(convert_from_hf(call->init, path, a, out));
    call->init = path;
    return OK;
}

/* The data of the preset quickstart does not come with the program: says how to get it. */
static Status check_quickstart(const char *config, const Config *c)
{
    char index[FILE_PATH_MAX];
    if (strcmp(config, "quickstart") != 0 || c->data_sources.n == 0 ||
        shell_command(c->data_sources.at[0].path) != NULL)
        return OK;
    (void)snprintf(index, sizeof index, "%s.idx", c->data_sources.at[0].path);
    if (file_exists(index)) return OK;
    return FAIL(ERR_IO,
                "quickstart reads %s, which is not in this folder: run `switchyard-quickstart "
                "--data` here first (not installed: tools/quickstart --data)",
                index);
}

static bool typed(const char *setting, int n, char **arguments)
{
    bool found = false;
    for (int i = 1; i < n; i++) found = found || text_starts(arguments[i], setting);
    return found;
}

/* A command that stands in a file runs only if the user allows it. On the command line the user has typed it. */
static Status check_commands(const Call *call, const Config *c, int n, char **arguments)
{
    const char *of = "checkpoint.after", *command = "";
    if (call->commands) return OK;
    for (int i = 0; i < c->data_sources.n && !typed("data.sources=", n, arguments); i++) {
        if (shell_command(c->data_sources.at[i].path) == NULL) continue;
        of = "data.sources";
        command = c->data_sources.at[i].path;
    }
    if (!typed("checkpoint.after=", n, arguments) && *command == '\0')
        command = c->checkpoint_after;
    if (*command == '\0') return OK;
    return FAIL(
        ERR_ARG,
        "%s of %s is the command \"%s\": look at it, and give --allow-commands if it may run", of,
        arguments[0], command);
}

/* The prefix of the only shard in a folder. */
static Status find_shard(const char *folder, const char *path, Arena *a, const char **out)
{
    const char *only = NULL, *const *names = NULL;
    char prefix[FILE_PATH_MAX];
    int n = 0, found = 0;
    TRY(file_list(folder, a, &names, &n));
    for (int i = 0; i < n; i++)
        if (text_ends(names[i], ".idx")) only = names[i], found++;
    if (found != 1)
        return FAIL(ERR_FORMAT, "\"%s\" gave %d files .idx in %s, must be 1", path, found, folder);
    TRY(file_join(prefix, folder, only));
    return arena_text(a, prefix, strlen(prefix) - 4, out);
}

/* Sources and --init that are commands become the folders that these fill. */
static Status fetch_all(Call *call, Config *c, Arena *a)
{
    const char *folder = NULL;
    for (int i = 0; i < c->data_sources.n; i++) {
        ConfigSource *source = &c->data_sources.at[i];
        if (shell_command(source->path) == NULL) continue;
        TRY(fetch_folder(source->path, c->cache_dir, a, &folder));
        TRY(find_shard(folder, source->path, a, &source->path));
    }
    const bool wanted = call->init != NULL && call->resume != RESUME_ALWAYS;
    if (!wanted || shell_command(call->init) == NULL) return OK;
    return fetch_folder(call->init, c->cache_dir, a, &call->init);
}

/* Conversion comes before the ranks start, since it must happen once; the report after they
 * ended. */
static Status run_train(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Call *call = state;
    Config c;
    if (call->rows) return config_help(false, out);
    if (n < 1)
        return FAIL(ERR_ARG, "switchyard train: CONFIG is missing; see switchyard train --help");
    log_rank(comm_launched_rank(), -1);
    if (call->change.n > 0 && !call->resume)
        return FAIL(ERR_ARG, "--change %s is for --resume: without it all settings are free",
                    call->change.at[0]);
    TRY(config_load_as(&c, a, CONFIG_RUN | (call->small ? CONFIG_SMALL : 0), arguments[0],
                       (const char *const *)(arguments + 1), n - 1));
    TRY(check_quickstart(arguments[0], &c));
    TRY(check_commands(call, &c, n, arguments));
    if (call->all && !call->dry) return FAIL(ERR_ARG, "--all is for --dry-run");
    if (call->dry) return dry_run(&c, (int)call->ranks, call->all, a, out);
    catch_signals();
    TRY(fetch_all(call, &c, a));
    TRY(convert_init(call, &c, a, out));
    call->config = &c;
    TRY(cli_ranks(call->ranks, c.comm_timeout_s, a, train_on_rank, call));
    if (call->last_step == 0) return OK; /* without a step there is no report */
    Status s = print_run_report(&c, a, out);
    if (s == ERR_UNSUPPORTED) { /* a build without pages */
        status_clear();
        return OK;
    }
    if (status_exit_code(s) != EXIT_BAD_INPUT) return s;
    /* no input was bad: the run has just written what it cannot read now */
    char why[512];
    status_sentence(why, sizeof why);
    return FAIL(ERR_DISK, "all steps are trained and saved, but there is no report: %s", why);
}

Status cli_train(int argc, char **argv)
{
    Call c = { 0 };
    const Option table[] = {
        { "--dry-run", OPTION_FLAG, &c.dry,
          .help =
              "print the settings that differ from their defaults, the parameters, the memory and "
              "whether it is there, and do not train" },
        { "--all", OPTION_FLAG, &c.all, .help = "with --dry-run: print all settings" },
        { "--shrink", OPTION_FLAG, &c.small,
          .help = "shrink CONFIG's model but keep its structure; settings are applied after that" },
        { "--resume", OPTION_SWITCH, &c.resume, "auto",
          .help = "continue from the newest whole checkpoint in run.dir; =auto: start from the "
                  "beginning if there is none" },
        { "--change", OPTION_TEXTS, &c.change, "KEY",
          .help = "with --resume: allow section.key to differ from the checkpoint" },
        { "--init", OPTION_TEXT, &c.init, "CKPT",
          .help = "take initial weights from a checkpoint, a Hugging Face folder, or 'cmd: COMMAND "
                  "{folder}', which fills one" },
        { "--ranks", OPTION_INT, &c.ranks, "N",
          .help = "run N ranks on this host, one per GPU or share of the cores; not with mpirun",
          .min = 1, .max = 4096 },
        { "--supervised", OPTION_TEXT, &c.supervised, "TOKEN",
          .help = "what supervise passes: refuse a run.dir in which this is not the heartbeat's "
                  "token" },
        { "--allow-commands", OPTION_FLAG, &c.commands,
          .help = "run commands that CONFIG has: checkpoint.after, and sources that are 'cmd: "
                  "COMMAND {folder}'" },
        { "--settings", OPTION_FLAG, &c.rows,
          .help = "list the presets, and every section.key with its default" },
    };
    const Command command = {
        .name = "switchyard train",
        .arguments = "CONFIG [section.key=value ...]",
        .what =
            "Train the model that CONFIG describes. CONFIG is a YAML file or the name of a preset. "
            "Progress lines show the FLOP/s as a share of the measured peak: that of a large "
            "matrix "
            "product at the start, or of a faster step. On known GPUs it is the data sheet's.",
        .example = "switchyard train quickstart train.steps=100 run.dir=runs/mine",
        OPTIONS(table, 0, -1),
    };
    return options_run(&command, argc, argv, run_train, &c);
}
