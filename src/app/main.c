/* main: chooses the subcommand and turns its Status into an error line and an exit code. No function
 * below it ends the process, but for MPI's start and end (engine/comm/mpi.c). */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "engine/base/file_changed.h"
#include "engine/base/log.h"
#include "engine/base/out.h"
#include "engine/host/cpu.h"
#include "kernels/core/cpu_set.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static Status cli_help(int argc, char **argv);

static const Subcommand COMMANDS[] = {
    { "train", "train a model, or show what a run would need (--dry-run)", cli_train },
    { "supervise", "start a run, watch it and restart it", NULL },
    { "generate", "continue a prompt with a trained model", cli_generate },
    { "serve", "answer HTTP requests for completions with a trained model", NULL },
    { "eval", "measure a checkpoint's loss on held-out text", cli_eval },
    { "logits", "compute a checkpoint's logits for a file of token ids", cli_logits },
    { "convert", "convert models from and to Hugging Face folders", cli_convert },
    { "data", "train a tokenizer, prepare and inspect data", cli_data },
    { "bench", "measure ops, training steps and communication", cli_bench },
    { "plan", "estimate time and memory of a run on a cluster, or find the best layout", cli_plan },
    { "trace", "analyse traces of profilers", cli_trace },
    { "viz", "draw pipelines that were recorded or simulated", NULL },
    { "report", "compare the curves of several runs", NULL },
    { "why-spike", "say what one step of a run read and did", NULL },
    { "doctor", "check the machine before a run", NULL },
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
enum { STACK_LEAST_KIB = 1024 };

/* OMP_STACKSIZE, such as 64k, sets the stacks of OpenMP's threads. Without a unit it is KiB. */
static Status check_stacks(void)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is only one thread yet */
    const char *said = getenv("OMP_STACKSIZE"), *text = said == NULL ? "" : said;
    char *unit = NULL;
    double kib = strtod(text, &unit);
    unit += strspn(unit, " ");
    if (kib > 0 && (*unit == 'B' || *unit == 'b')) kib /= 1024;
    const bool larger = kib > 0 && strchr("MmGg", *unit) != NULL && *unit != '\0';
    struct rlimit most = { 0 };
    if (getrlimit(RLIMIT_STACK, &most) == 0 && most.rlim_cur >> 10 < STACK_LEAST_KIB)
        return FAIL(ERR_ARG,
                    "the stack is limited to %llu KiB, at least %d are needed: set ulimit -s 8192",
                    (unsigned long long)most.rlim_cur >> 10, STACK_LEAST_KIB);
    if (kib <= 0 || larger || kib >= STACK_LEAST_KIB) return OK;
    return FAIL(ERR_ARG, "OMP_STACKSIZE is %.40s, at least %d KiB are needed: unset it", text,
                STACK_LEAST_KIB);
}

/* Do other processes compute? The kernel counts them with this one, as 3 in "0.31 0.20 0.11 3/402 7177". Who is
 * counted once may be gone a little later. */
static bool others_compute(void)
{
    for (int look = 0; look < 2; look++) {
        char line[128] = "";
        FILE *f = fopen("/proc/loadavg", "r");
        if (f == NULL) return false;
        const char *at = fgets(line, sizeof line, f) == NULL ? NULL : strchr(line, '/');
        (void)fclose(f);
        while (at != NULL && at > line && at[-1] != ' ') at--;
        if (at == NULL || strtol(at, NULL, 10) < 2) return false;
        if (look == 0) (void)usleep(5000);
    }
    return true;
}

/* OpenMP's threads spin at a barrier before they sleep. By default they spin for milliseconds: on a machine
 * with other work they take the cores that the threads need for which they wait. On two cores beside six
 * busy loops a step has 0.49 of its fair share so, 0.77 with a bound of 20,000 and 0.95 with 2,000. On idle
 * cores it is as fast with 20,000, and 4 % slower with 2,000. libgomp reads the variables before main, so
 * the program starts itself again; what the user set stays. If that fails, the program is only slower. */
static void bound_spinning(char **argv)
{
    char program[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    /* NOLINTBEGIN(concurrency-mt-unsafe): there is only one thread yet */
    if (n <= 0 || getenv("GOMP_SPINCOUNT") != NULL || getenv("OMP_WAIT_POLICY") != NULL) return;
    program[n] = '\0';
    if (setenv("GOMP_SPINCOUNT", others_compute() ? "2000" : "20000", 1) == 0)
        (void)execv(program, argv);
    /* NOLINTEND(concurrency-mt-unsafe) */
}

int main(int argc, char **argv)
{
    CpuIsa have = cpu_here().isa, need = op_set_base.isa; /* the rest of the code needs `need` */
    if (have < need) { /* dprintf, because engine/base/log.c may contain missing instructions */
        (void)dprintf(2,
                      "switchyard: this build needs a processor with %s, this one has %s: build it "
                      "here with make CPU_ARCH=-march=native\n",
                      cpu_isa_names[need], cpu_isa_names[have]);
        return 2;
    }
    bound_spinning(argv);
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
