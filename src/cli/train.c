/* train: parse, plan or run, report. */
#include "train/train.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "config/config.h"
#include "viz/report.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

/* The signal that asked to stop; the engine looks at it between steps. A second one kills. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
    (void)signal(number, SIG_DFL);
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static Status dry_run(const Config *c, Text *out)
{
    TrainPlan plan;
    TRY(train_plan(c, &plan));
    TRY(config_print(c, out));
    TRY(text_append(out, "\n", 1));
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
    return text_printf(out, "report                %s/report.html\n", c->run_dir);
}

typedef struct Call {
    bool dry, resume, rows, markdown;
    const char *init;
} Call;

static Status run(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const Call *call = state;
    Config c;
    int64_t last_step = 0;
    if (call->rows || call->markdown) return (call->markdown ? config_markdown : config_help)(out);
    if (n < 1)
        return FAIL(ERR_ARG, "switchyard train: CONFIG is missing; see switchyard train --help");
    TRY(config_load(&c, a, arguments[0], (const char *const *)(arguments + 1), n - 1));
    if (call->dry) return dry_run(&c, out);
    catch_signals();
    TRY(train_run(&c, &(TrainOptions){ call->resume, call->init, &stop_signal, &last_step }));
    return last_step > 0 ? report(&c, a, out) : OK; /* of no step there is nothing to tell */
}

Status cli_train(int argc, char **argv)
{
    Call c = { 0 };
    const Option table[] = {
        { "--dry-run", OPTION_FLAG, &c.dry,
          .help = "print configuration, parameters and memory; train nothing" },
        { "--resume", OPTION_FLAG, &c.resume,
          .help = "go on from the newest whole checkpoint in run.dir" },
        { "--init", OPTION_TEXT, &c.init, "CKPT",
          .help = "take the initial weights from a checkpoint" },
        { "--settings", OPTION_FLAG, &c.rows,
          .help = "list presets, and every section.key with its default" },
        { "--settings-markdown", OPTION_FLAG, &c.markdown,
          .help = "the same as a page: docs/config.md" },
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
