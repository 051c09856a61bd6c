/* worker: a thread that does one job over and over, each time when its owner says so, while the
 * owner does something else. Between worker_begin and the end of the job all that the job touches
 * is the thread's, at all other times it is the owner's: so no job needs a lock. */
#ifndef BASE_WORKER_H
#define BASE_WORKER_H

#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>

typedef struct Worker {
    Status (*job)(void *state); /* set by the owner, like its state */
    void *state;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool started, busy, stop;
    Status result; /* of the last job, and its status_message */
    char message[2048];
} Worker;

/* ERR_MEMORY: "NAME could not be started: ". */
Status worker_start(Worker *w, const char *name);
/* Waits for the job that runs, then ends the thread. Safe on a worker that was not started. */
void worker_stop(Worker *w);

/* Begin the job; the one before has ended. Without a thread it is done here and now. */
void worker_begin(Worker *w);
/* Has the job ended, before or within so many seconds? INFINITY waits for its end. */
bool worker_wait(Worker *w, double patience_s);
/* How the last job ended, as this thread's failure; OK before the first. Not while one runs. */
Status worker_result(const Worker *w);

#endif
