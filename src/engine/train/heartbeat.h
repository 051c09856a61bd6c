/* heartbeat: tells whoever watches a run that it goes on, and how far it is.
 *
 *   RUN/heartbeat/HOST.jsonl   a line of HEARTBEAT_BYTES for each rank of the host, rewritten in place:
 *   {"signalled":0,"rank":3,"phase":"steps","step":120,"first":100,"busy_s":14.2,"time":1764208521.5,"kind":"","why":""}
 *
 * `first` is the step at which this process began, busy_s what its steps took since then, `time` seconds since 1970.
 * A rank that fails leaves its failure as its last line, in the phase "failed". A process of a launcher that gets
 * SIGTERM sets `signalled` to 1 in its handler, because MPI may never return to the program. A rank that is killed does
 * neither, which tells its host from others. `switchyard supervise` reads the lines.
 *
 * A line may take a thousandth of the time: after one that took t seconds, steps write none for 1000 t, at most for
 * HEARTBEAT_PAUSE_S. A local write takes 5 to 20 microseconds. A new phase is always written. A line that cannot be
 * written is no failure of the run. */
#ifndef ENGINE_TRAIN_HEARTBEAT_H
#define ENGINE_TRAIN_HEARTBEAT_H

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/comm/comm.h"

enum { HEARTBEAT_BYTES = 512, HEARTBEAT_WHY_BYTES = 220, HEARTBEAT_PAUSE_S = 10 };

/* The folder in a run's folder. The file in it by which ranks see that it is the one that `supervise` made. */
#define HEARTBEAT_FOLDER "heartbeat"
#define HEARTBEAT_TOKEN  "token"
#define HEARTBEAT_SUFFIX ".jsonl"

typedef enum HeartbeatPhase {
    HEARTBEAT_STARTING,
    HEARTBEAT_LOADING,
    HEARTBEAT_STEPS,
    HEARTBEAT_EVALUATING,
    HEARTBEAT_SAVING,
    HEARTBEAT_ENDED,
    HEARTBEAT_FAILED,
    HEARTBEAT_PHASES
} HeartbeatPhase;

extern const char *const heartbeat_phase_names[HEARTBEAT_PHASES];

typedef struct Heartbeat {
    char path[FILE_PATH_MAX];
    int rank, line; /* in the world; of the file */
    HeartbeatPhase phase;
    bool begun; /* there is a line */
    int64_t step, first;
    double busy_s, next_s; /* next_s: by clock_s, before which no step writes */
    Arena arena;
    Text text;
} Heartbeat;

/* Opens nothing but memory. world NULL: alone. */
Status heartbeat_init(Heartbeat *h, const char *run_dir, const Comm *world);
void heartbeat_free(Heartbeat *h); /* safe on { 0 } */

/* Does this rank see the token that `supervise` wrote? ERR_ARG: run.dir is not the folder that it sees. */
Status heartbeat_check_token(const Heartbeat *h, const char *run_dir, const char *token);

/* This process is one rank: the handler of signals (engine/base/interrupt.h) writes `signalled`. Ends with heartbeat_free. */
void heartbeat_hear(const Heartbeat *h);

void heartbeat_phase(Heartbeat *h, HeartbeatPhase phase);
/* The same phase goes on; NULL: nothing. */
void heartbeat_again(Heartbeat *h);
/* The first step of this process comes after `step`. */
void heartbeat_first(Heartbeat *h, int64_t step);
void heartbeat_step(Heartbeat *h, int64_t step, double step_s);
/* The last line: the end, or the failure in the status record, which it keeps. Nothing if there was none before. */
Status heartbeat_last(Heartbeat *h, Status s);

#endif
