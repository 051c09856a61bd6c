/* worker: a thread that does one job over and over, each time when its owner says so, while the
 * owner does something else. Between worker_begin and the end of the job the thread alone touches
 * the job's data, at all other times the owner alone: so no job needs a lock. */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct Worker {
    Status (*job)(void *state); /* set by the owner, like its state */
    void *state;
    size_t stack_bytes; /* of the thread; 0: 1 MiB */
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t changed;
    bool started, busy, stop;
    Status result; /* of the last job, and its status_message */
    char message[2048];
} Worker;

/* ERR_MEMORY: "NAME could not be started: ". */
Status worker_start(Worker *w, const char *name);
/* Waits for the job that runs, then ends the thread. Safe on a worker that was not started. */
void worker_stop(Worker *w);

/* Begins the job; the one before has ended. Without a thread the job runs inside this call. */
void worker_begin(Worker *w);
/* Has the job ended, before or within so many seconds? INFINITY waits for its end. */
bool worker_wait(Worker *w, double patience_s);
/* How the last job ended; a failure becomes this thread's. OK before the first job. Not to be
 * called while a job runs. */
Status worker_result(const Worker *w);

#endif
