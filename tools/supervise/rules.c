/* rules: no processes, no files, no clock. */
#include "supervise/rules.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const incident_names[INCIDENT_ENDS] = { "done",   "stopped",   "refused",
                                                    "failed", "lost rank", "crashed",
                                                    "killed", "hung",      "not started" };

enum { SIGNAL_MOST = 64 }; /* mpirun has exit codes above */
static const double PAUSE_MOST_S = 300;

static bool is_last(const RankBeat *r)
{
    return r->phase == HEARTBEAT_ENDED || r->phase == HEARTBEAT_FAILED || r->signalled;
}

static bool is_comm(const RankBeat *r) { return strcmp(r->kind, status_name(ERR_COMM)) == 0; }

/* The cause is a failure that is not of communication: that one tells of another rank's. */
static const RankBeat *cause_of(const RankBeat *rank, int n)
{
    const RankBeat *found = NULL;
    for (int i = 0; i < n; i++) {
        if (rank[i].kind[0] == '\0') continue;
        if (found == NULL || (is_comm(found) && !is_comm(&rank[i]))) found = &rank[i];
    }
    return found;
}

/* The sentence and the kind of the line that begins with "error: ", on its own or after "rank N: ". */
static void read_said(Incident *i, const char *said)
{
    const char *at = strstr(said, "error: ");
    if (at == NULL) return;
    at += strlen("error: ");
    int n = (int)strcspn(at, "\n"), kind = n;
    while (kind > 0 && at[kind - 1] != '[') kind--;
    if (kind > 1 && at[n - 1] == ']') {
        (void)snprintf(i->kind, sizeof i->kind, "%.*s", n - 1 - kind, at + kind);
        n = kind - 2;
    }
    (void)snprintf(i->sentence, sizeof i->sentence, "%.*s", n, at);
}

int incident_signal(int code) { return code > 128 && code <= 128 + SIGNAL_MOST ? code - 128 : 0; }

static IncidentEnd end_of_signal(int signal)
{
    static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS };
    for (size_t k = 0; k < sizeof own / sizeof *own; k++)
        if (signal == own[k]) return INCIDENT_CRASHED;
    return INCIDENT_KILLED;
}

static IncidentEnd end_of_code(const Incident *i, int ranks)
{
    if (i->code == 0 && (i->reached >= i->last || i->saved >= i->last)) return INCIDENT_DONE;
    if (i->code == 0) return ranks == 0 ? INCIDENT_UNBORN : INCIDENT_STOPPED;
    if (i->code == 2 && i->reached == i->first) return INCIDENT_REFUSED;
    if (strcmp(i->kind, status_name(ERR_COMM)) == 0) return INCIDENT_LOST;
    if (i->code == 2 || i->code == 3) return INCIDENT_FAILED;
    if (incident_signal(i->code) > 0) return end_of_signal(incident_signal(i->code));
    return ranks == 0 ? INCIDENT_UNBORN : INCIDENT_KILLED;
}

void incident_read(Incident *i, bool hung, const RankBeat *rank, int n, const char *said)
{
    const RankBeat *cause = cause_of(rank, n);
    i->kind[0] = i->sentence[0] = '\0';
    if (cause != NULL) {
        (void)snprintf(i->kind, sizeof i->kind, "%s", cause->kind);
        (void)snprintf(i->sentence, sizeof i->sentence, "%s", cause->why);
    } else if (i->code != 0) {
        read_said(i, said);
    }
    i->end = hung ? INCIDENT_HUNG : end_of_code(i, n);
    if (i->sentence[0] != '\0' || i->end == INCIDENT_DONE) return;
    if (i->code == 0)
        (void)snprintf(i->sentence, sizeof i->sentence,
                       "it ended with exit code 0 before train.steps=%" PRId64, i->last);
    else if (incident_signal(i->code) > 0)
        (void)snprintf(i->sentence, sizeof i->sentence, "signal %d ended it",
                       incident_signal(i->code));
    else
        (void)snprintf(i->sentence, sizeof i->sentence, "exit code %d", i->code);
}

/* The only host of the ranks that `is` holds for: NULL if there are several, or none. *others: some rank is not. */
static const char *only_host(const RankBeat *rank, int n, bool (*is)(const RankBeat *r),
                             bool *others)
{
    const char *host = NULL;
    bool several = false;
    for (int i = 0; i < n; i++) {
        if (!is(&rank[i])) {
            *others = true;
            continue;
        }
        several = several || (host != NULL && strcmp(host, rank[i].host) != 0);
        host = rank[i].host;
    }
    return several ? NULL : host;
}

static bool is_silent(const RankBeat *r) { return !is_last(r); }
static bool lost_device(const RankBeat *r) { return strcmp(r->kind, status_name(ERR_DEVICE)) == 0; }

/* Words in front of the rank that a sentence accuses: of engine/comm/host.c, "rank 0 waited 10 s for rank 3 in ...", and
 * of engine/step/verify.c, "step 8 was computed twice, with other bits on rank 3 (host ...". */
static const struct {
    Status kind;
    const char *words;
} accusations[] = { { ERR_COMM, " for rank " }, { ERR_NUMERIC, " other bits on rank " } };

/* The host of the accused rank; NULL: the sentence accuses none. */
static const char *accused(const RankBeat *rank, int n, const RankBeat *by)
{
    for (size_t k = 0; k < sizeof accusations / sizeof *accusations; k++) {
        const char *at = strstr(by->why, accusations[k].words);
        if (at == NULL || strcmp(by->kind, status_name(accusations[k].kind)) != 0) continue;
        const long lost = strtol(at + strlen(accusations[k].words), NULL, 10);
        for (int i = 0; i < n; i++)
            if (rank[i].rank == lost) return rank[i].host;
    }
    return NULL;
}

/* The host that all accuse; NULL: nobody, or several hosts. */
static const char *accused_by_all(const RankBeat *rank, int n)
{
    const char *host = NULL;
    for (int i = 0; i < n; i++) {
        const char *one = accused(rank, n, &rank[i]);
        if (one != NULL && host != NULL && strcmp(one, host) != 0) return NULL;
        if (one != NULL) host = one;
    }
    return host;
}

const char *incident_blame(const RankBeat *rank, int n, const char *before)
{
    bool spoke = false, rest = false;
    if (n == 0) return before;
    const char *host = only_host(rank, n, is_silent, &spoke);
    if (host != NULL && spoke) return host;
    host = only_host(rank, n, lost_device, &rest);
    if (host == NULL) host = accused_by_all(rank, n);
    return host == NULL ? "" : host;
}

static bool is_own(const Incident *i)
{
    return i->end == INCIDENT_FAILED || i->end == INCIDENT_CRASHED || i->end == INCIDENT_UNBORN;
}

static bool is_again(const IncidentPast *past, const Incident *i)
{
    const Incident *last = &past->last;
    return past->in_a_row > 0 && is_own(i) && last->end == i->end && last->reached == i->reached &&
           strcmp(last->sentence, i->sentence) == 0;
}

Verdict incident_decide(IncidentPast *past, const Incident *i)
{
    Verdict v = { 0 };
    if (i->saved > past->saved) past->in_a_row = 0;
    const bool again = is_again(past, i);
    if (i->end == INCIDENT_DONE)
        v.why = "the run is done";
    else if (i->asked)
        v.why = "it was asked to";
    else if (i->end == INCIDENT_REFUSED)
        v.why = "a restart would be refused as well";
    else if (again)
        v.why = "the same failure came twice at the same step";
    else
        v.restart = true;
    if (v.restart) v.pause_s = fmin(ldexp(1, past->in_a_row), PAUSE_MOST_S);
    past->useful_s += incident_useful_s(i->first, i->reached, i->saved, i->busy_s);
    past->in_a_row++;
    past->last = *i;
    if (i->saved > past->saved) past->saved = i->saved;
    return v;
}

double incident_useful_s(int64_t first, int64_t reached, int64_t kept, double busy_s)
{
    const int64_t end = kept < reached ? kept : reached;
    return end <= first ? 0 : busy_s * (double)(end - first) / (double)(reached - first);
}
