/* main: chooses the subcommand and turns its Status into an error line and an exit code. No function
 * below it ends the process, but for MPI's start and end (comm/mpi.c). */
#include "base/cpu.h"
#include "base/file_changed.h"
#include "base/log.h"
#include "base/out.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "op/cpu_set.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static Status cli_help(int argc, char **argv);

static const Subcommand COMMANDS[] = {
    { "train", "train a model, or show what a run would take (--dry-run)", cli_train },
    { "supervise", "start a training, watch it and restart it", cli_supervise },
    { "generate", "continue a prompt with a trained model", cli_generate },
    { "eval", "measure a checkpoint's loss on held-out text", cli_eval },
    { "logits", "compute a checkpoint's logits for a file of token ids", cli_logits },
    { "convert", "convert models from and to Hugging Face folders", cli_convert },
    { "data", "train a tokenizer, prepare and inspect data", cli_data },
    { "bench", "measure ops, training steps and communication", cli_bench },
    { "plan", "estimate time and memory of a run on a cluster, or find the best layout", cli_plan },
    { "trace", "analyse traces of profilers", cli_trace },
    { "viz", "draw pipelines that were recorded or simulated", cli_viz },
    { "report", "compare the curves of several runs", cli_report },
    { "doctor", "check the machine before a training", cli_doctor },
    { "help", "print the help of a command, as in: help data prepare", cli_help },
    { "--version", "print the version, the back ends and the libraries", cli_version },
};

enum { N_COMMANDS = sizeof COMMANDS / sizeof *COMMANDS };

/* "help data prepare" becomes "data prepare --help". argv[-1] is the program's name: argv[0] is "help"
 * here, so the dispatcher gets argv - 1. */
static Status cli_help(int argc, char **argv)
{
    char help[] = "--help";
    for (int i = 1; i < argc; i++) argv[i - 1] = argv[i];
    argv[argc - 1] = help;
    return options_dispatch("switchyard", COMMANDS, N_COMMANDS, argc + 1, argv - 1);
}

/* Whoever needs more than this dies of SIGSEGV, which says nothing. Half of it was enough for the commands tried. */
enum { STACK_LEAST = 1 << 20 };

/* Bytes in a variable such as 64k, or NULL, that sets the stacks of OpenMP's threads. Without a unit KiB. */
static double stack_of(const char *text)
{
    char *unit = NULL;
    const double n = text == NULL ? STACK_LEAST : strtod(text, &unit);
    if (n <= 0 || unit == NULL) return STACK_LEAST; /* OpenMP refuses or ignores it */
    unit += strspn(unit, " ");
    return ldexp(n, *unit == 'B' || *unit == 'b'   ? 0
                    : *unit == 'M' || *unit == 'm' ? 20
                    : *unit == 'G' || *unit == 'g' ? 30
                                                   : 10);
}

static Status check_stacks(void)
{
    static const char *const names[] = { "OMP_STACKSIZE", "GOMP_STACKSIZE" };
    struct rlimit most = { 0 };
    if (getrlimit(RLIMIT_STACK, &most) == 0 && most.rlim_cur < STACK_LEAST)
        return FAIL(ERR_ARG,
                    "the stack is limited to %llu KiB, at least %d are needed: set ulimit -s 8192",
                    (unsigned long long)most.rlim_cur >> 10, STACK_LEAST >> 10);
    for (int i = 0; i < 2; i++) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is only one thread yet */
        const char *text = getenv(names[i]);
        if (stack_of(text) < STACK_LEAST)
            return FAIL(ERR_ARG, "%s is %.40s, at least %d KiB are needed: unset it", names[i],
                        text, STACK_LEAST >> 10);
    }
    return OK;
}

int main(int argc, char **argv)
{
    CpuIsa have = cpu_here().isa, need = op_set_base.isa; /* the rest of the code needs `need` */
    if (have < need) { /* dprintf, because base/log.c may contain missing instructions */
        (void)dprintf(2,
                      "switchyard: this build needs a processor with %s, this one has %s: build it "
                      "here with make CPU_ARCH=-march=native\n",
                      cpu_isa_names[need], cpu_isa_names[have]);
        return 2;
    }
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is only one thread yet */
    const char *level = getenv("SWITCHYARD_LOG");
    out_begin();
    file_changed_catch();
    Status s = level == NULL ? OK : log_set_level_named(level);
    if (s == OK) s = check_stacks();
    if (s == OK) s = options_dispatch("switchyard", COMMANDS, N_COMMANDS, argc, argv);
    if (s == OK) s = out_end();
    /* what reads as damaged may have been cut while it was read */
    if ((s == OK || s == ERR_FORMAT || s == ERR_IO) && file_changed_check() != OK) s = ERR_CHANGED;
    if (s != OK && s != ERR_CLOSED) log_failure(LOG_ERROR, "%s", "");
    return status_exit_code(s);
}
