/* tcp_job: processes of the program that meet over TCP, started as torchrun would, without any launcher. */
#ifndef TESTS_HARNESS_TCP_JOB_H
#define TESTS_HARNESS_TCP_JOB_H

#include "harness/run_folder.h"
#include "harness/tcp_ranks.h"

typedef struct TcpJob {
    int ranks, port;
    bool is_pod;         /* as in a pod of PyTorchJob: without LOCAL_RANK and LOCAL_WORLD_SIZE */
    bool in_one_place;   /* all have LOCAL_RANK 0 */
    const char *address; /* MASTER_ADDR; NULL: localhost */
    Child rank[TCP_RANKS];
    Outcome end[TCP_RANKS];
} TcpJob;

static inline void job_set(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    CHECK(setenv(name, text, 1) == 0);
}

/* One rank of the job. */
static inline void job_start_rank(Lab *lab, TcpJob *job, int rank, const Launch *l)
{
    static const char *const names[] = { "RANK",        "WORLD_SIZE",
                                         "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                         "MASTER_ADDR", "MASTER_PORT" };
    if (job->port == 0) job->port = tcp_free_port();
    job_set("RANK", rank);
    job_set("WORLD_SIZE", job->ranks);
    if (!job->is_pod) job_set("LOCAL_RANK", job->in_one_place ? 0 : rank);
    if (!job->is_pod) job_set("LOCAL_WORLD_SIZE", job->ranks);
    job_set("MASTER_PORT", job->port);
    CHECK(setenv("MASTER_ADDR", job->address != NULL ? job->address : "localhost", 1) == 0);
    job->rank[rank] = lab_start(lab, l);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static inline void job_start(Lab *lab, TcpJob *job, const char *cell, const char *const *args)
{
    for (int r = 0; r < job->ranks; r++)
        job_start_rank(lab, job, r, &(Launch){ .cell = cell, .args = args });
}

static inline void job_wait(Lab *lab, TcpJob *job)
{
    for (int r = 0; r < job->ranks; r++) job->end[r] = lab_wait(lab, &job->rank[r]);
}

/* All but `but` (-1: all) end with this code, and say this. */
static inline void job_check(const TcpJob *job, int but, int code, const char *part)
{
    for (int r = 0; r < job->ranks; r++) {
        const Outcome *o = &job->end[r];
        if (r == but) continue;
        if (o->code != code)
            fail_msg("rank %d: exit code %d, want %d: %s", r, o->code, code, o->err);
        if (code != 0 && strstr(o->err, part) == NULL)
            fail_msg("rank %d says \"%s\", want \"%s\"", r, o->err, part);
    }
}

#endif
