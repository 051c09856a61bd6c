/* rules: what a supervisor concludes from data alone: which host is to blame, what to do after an incident,
 * how long to pause, and goodput.
 *
 * | what happened                                                   | what to do                          |
 * |-----------------------------------------------------------------|-------------------------------------|
 * | exit code 0 at the last step                                    | end with 0                          |
 * | the run was asked to stop                                       | end with its code                   |
 * | exit code 2 before the first step: bad input                    | end with 2                          |
 * | a failure of its own, twice at the same step with the same      | end with its code                   |
 * |   sentence and nothing saved in between                         |                                     |
 * | anything else                                                   | restart after 1, 2, 4 ... 300 s     |
 *
 * Failures of its own are errors of a rank but those of communication, signals of a program's own fault (SIGSEGV), and
 * launchers that end before any rank came. A rank that was killed, a hang, and an error of communication come from
 * elsewhere: they restart without end. */
#ifndef SUPERVISE_RULES_H
#define SUPERVISE_RULES_H

#include "engine/base/status.h"
#include "engine/train/heartbeat.h"

enum { SUPERVISE_SENTENCE_BYTES = 400, SUPERVISE_KIND_BYTES = 16, SUPERVISE_HOST_BYTES = 64 };

/* A rank's last line in the heartbeat. */
typedef struct RankBeat {
    int rank;
    bool signalled; /* SIGTERM reached it */
    HeartbeatPhase phase;
    int64_t step, first;
    double busy_s;
    char host[SUPERVISE_HOST_BYTES];
    char kind[SUPERVISE_KIND_BYTES]; /* status_name of its failure, "" if it left none */
    char why[HEARTBEAT_WHY_BYTES];
} RankBeat;

typedef enum IncidentEnd {
    INCIDENT_DONE,    /* the last step was reached */
    INCIDENT_STOPPED, /* exit code 0 before the last step */
    INCIDENT_REFUSED, /* exit code 2 */
    INCIDENT_FAILED,  /* an error of a rank */
    INCIDENT_LOST,    /* an error of communication: another rank is lost or hangs */
    INCIDENT_CRASHED, /* a signal of the program's own fault */
    INCIDENT_KILLED,  /* another signal */
    INCIDENT_HUNG,    /* the heartbeat stood still */
    INCIDENT_UNBORN,  /* the launcher ended before any rank came */
    INCIDENT_ENDS
} IncidentEnd;

extern const char *const incident_names[INCIDENT_ENDS];

/* How a run ended. */
typedef struct Incident {
    IncidentEnd end;
    int code;   /* exit code, or 128 + signal */
    bool asked; /* a signal to stop was passed on */
    int64_t first, reached,
        saved,     /* steps: where it began, how far it came, the newest checkpoint, */
        last;      /* and train.steps */
    double busy_s; /* that its steps took */
    char kind[SUPERVISE_KIND_BYTES], sentence[SUPERVISE_SENTENCE_BYTES];
    char host[SUPERVISE_HOST_BYTES]; /* to blame, or "" */
} Incident;

/* What is remembered between incidents. Zeroed: nothing happened. */
typedef struct IncidentPast {
    Incident last;
    int in_a_row; /* incidents without a newer checkpoint */
    int64_t saved;
    double useful_s; /* time of steps that a checkpoint kept */
} IncidentPast;

typedef struct Verdict {
    bool restart;
    double pause_s;
    const char *why; /* of the end: "done", "it was asked to", ... */
} Verdict;

/* The signal in a code; 0: it is an exit code. */
int incident_signal(int code);

/* Sets end, kind and sentence of *i from its code, `hung`, and what the ranks left. `said`: what the run printed. */
void incident_read(Incident *i, bool hung, const RankBeat *rank, int n, const char *said);

/* The host of the only ranks that left neither a last line nor heard SIGTERM, while others did; or of the only ranks whose
 * device failed; or of the ranks for which all others waited, or whose bits differed (run.verify_every), by their sentences. If no rank came at all, `before`: the
 * host that the incident before was blamed on. "": nobody, or ranks of several hosts. */
const char *incident_blame(const RankBeat *rank, int n, const char *before);

/* What to do; and remembers the incident. */
Verdict incident_decide(IncidentPast *past, const Incident *i);

/* Time of the steps first + 1 .. kept of a run that took busy_s to `reached`. */
double incident_useful_s(int64_t first, int64_t reached, int64_t kept, double busy_s);

#endif
