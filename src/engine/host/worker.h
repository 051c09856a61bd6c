/* worker: a thread that runs one job each time its owner asks, while the owner does something else.
 * Between worker_begin and the end of the job only the thread touches the job's data; at all other
 * times only the owner does. So no job needs a lock. Not a thread pool: one thread, one job. */
#ifndef ENGINE_HOST_WORKER_H
#define ENGINE_HOST_WORKER_H

#include "engine/base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Zeroed, with job and state set, before worker_start. `busy`: a job was handed over and has not
 * ended. `stop`: the thread is to end. */
typedef struct Worker {
    Status (*job)(void *state); /* set by the owner, like its state */
    void *state;
    size_t stack_bytes; /* of the thread; 0: 1 MiB */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    bool started, busy, stop;
    Status result; /* of the last job, and its status_message */
    /* As large as a status record, so no failure is cut on its way to the owner. */
    char message[2048];
} Worker;

/* ERR_MEMORY: "NAME could not be started: ". */
Status worker_start(Worker *w, const char *name);
/* Waits for the job that runs, then ends the thread. Safe on a worker that was not started. */
void worker_stop(Worker *w);

/* Begins the job; the previous one must have ended. Without a thread the job runs inside this call. */
void worker_begin(Worker *w);
/* Waits up to patience_s seconds and returns whether the job has ended. INFINITY waits for its end. */
bool worker_wait(Worker *w, double patience_s);
/* How the last job ended. A failure is copied into the caller's status record. OK before the first
 * job. Must not be called while a job runs. */
Status worker_result(const Worker *w);

#endif
