/* files: what a supervisor reads and writes in a run's folder: the heartbeat of its ranks, its checkpoints,
 * the journal of incidents. */
#ifndef SUPERVISE_FILES_H
#define SUPERVISE_FILES_H

#include "supervise/hosts.h"

/* The last lines of all ranks, by rising rank. */
typedef struct Beats {
    RankBeat *rank;
    int n;
    uint64_t sum; /* differs from the sum before if any line does */
} Beats;

/* The step of the furthest rank, and the smallest first step; 0: no rank has come. */
int64_t beats_step(const Beats *b);
int64_t beats_first(const Beats *b);
/* Time that the steps of the furthest rank took. */
double beats_busy_s(const Beats *b);

/* Makes RUN/heartbeat anew, with the token in it. */
Status beats_begin(const char *run_dir, const char *token);
/* Reads the heartbeat. Lines that are being written are left out. */
Status beats_read(const char *run_dir, Arena *a, Beats *out);

/* The step of the newest checkpoint; 0: there is none. */
Status newest_checkpoint(const char *run_dir, Arena *a, int64_t *out);

/* Append a line to RUN/journal.jsonl: a start, an end and what followed from it. */
typedef struct JournalStart {
    int64_t number, step; /* of the start, from 1; of the newest checkpoint */
    int ranks;
    const char *command, *mesh; /* mesh: "" or the settings of another one */
} JournalStart;
Status journal_start(const char *run_dir, const JournalStart *j, Arena *a);
Status journal_end(const char *run_dir, const Incident *i, const Verdict *v, const char *left_out,
                   double goodput, Arena *a);

#endif
