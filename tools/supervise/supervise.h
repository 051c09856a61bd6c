/* supervise: starts a training run, watches its heartbeat, and restarts it from the newest whole checkpoint.
 *
 * The run is `switchyard train CONFIG ... --resume=auto`, under a launcher or as threads, in a process group of its own.
 * It is watched by RUN/heartbeat (engine/train/heartbeat.h). What to do after it ended is rules.h's; a host that
 * failed twice is left out (hosts.h, mesh.h). RUN/journal.jsonl has a line for each start and end.
 *
 * A signal to stop reaches the run as one that its launcher passes on: SIGUSR2 through mpirun and srun, which end ranks
 * at SIGTERM, else SIGTERM. The kernel sends the same signal to the run if the supervisor is killed: it then saves and
 * ends. Processes that a launcher leaves behind are killed before the next start.
 *
 * Not here: options and what is printed at the end (main.c). */
#ifndef SUPERVISE_SUPERVISE_H
#define SUPERVISE_SUPERVISE_H

#include "engine/config/config.h"
#include "supervise/hosts.h"

#include <signal.h>

typedef struct SuperviseOptions {
    const Config *config;
    const char *const *words; /* CONFIG and its settings */
    int n_words;
    const char *const *launcher; /* what stands behind -- */
    int n_launcher;
    const char *init;                   /* as train has it, or NULL */
    bool commands;                      /* --allow-commands, as train has it */
    const char *spare;                  /* hosts, "c,d", or NULL */
    const char *cluster;                /* hardware for the choice of another mesh */
    double hang_s;                      /* without a heartbeat; 0: supervise_hang_s */
    const volatile sig_atomic_t *stops; /* how many signals to stop came */
    const volatile sig_atomic_t *shows; /* how many times goodput was asked for */
} SuperviseOptions;

/* What a supervision came to. */
typedef struct SuperviseSum {
    int starts, left_out;
    int64_t step;           /* the last one that is saved */
    int64_t lost;           /* steps that ran and had to run again */
    double useful_s, all_s; /* their quotient is goodput */
} SuperviseSum;

/* How long a heartbeat may stand still before a run counts as hung, where `longest_s` is the longest time that it stood
 * still so far: the ranks' own deadline comes first, so that they can name who hangs. `steps`: all ranks are in steps, and
 * one has run; starts, loads and saves may take longer. */
double supervise_hang_s(const Config *c, bool steps, double longest_s);

/* Refuses what cannot be supervised: ERR_ARG without checkpoints. */
Status supervise_check(const SuperviseOptions *o);

/* Runs to the end of the training or to what a restart does not mend. Returns the status with the run's exit code, and
 * its sentence. *sum is set in any case. ERR_ARG also: another supervisor or run has the folder. */
Status supervise_run(const SuperviseOptions *o, Arena *a, SuperviseSum *sum);

#endif
