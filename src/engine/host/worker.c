/* worker: the thread's loop, and the lock with which the owner and the thread hand the job over. */
#include "engine/host/worker.h"

#include "engine/base/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { REASON_BYTES = 128, STACK_BYTES = 1 << 20 };

/* The status record is local to the thread, so a failure's text is copied out for worker_result. */
static void run_job(Worker *w)
{
    w->result = w->job(w->state);
    if (w->result == OK) return;
    (void)snprintf(w->message, sizeof w->message, "%s", status_message());
}

/* On a stop the thread first finishes a job that was begun: `busy` is tested after `stop`. */
static void *worker_main(void *arg)
{
    Worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->stop && !w->busy) pthread_cond_wait(&w->changed, &w->lock);
        if (!w->busy) break;
        pthread_mutex_unlock(&w->lock);
        run_job(w);
        pthread_mutex_lock(&w->lock);
        w->busy = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* The new thread blocks signals: they are for the thread that drives the run. */
static int start_thread(Worker *w)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, w->stack_bytes > 0 ? w->stack_bytes : STACK_BYTES);
    /* A thread inherits the mask, so signals are blocked only around its creation. */
    sigfillset(&all);
    sigdelset(&all, SIGBUS); /* belongs to the thread that reads (engine/base/file_changed.h) */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

/* strerror_r and not errno: pthread_create returns its error code. */
Status worker_start(Worker *w, const char *name)
{
    char why[REASON_BYTES];
    pthread_mutex_init(&w->lock, NULL);
    clock_cond_init(&w->changed);
    int rc = start_thread(w);
    w->started = rc == 0;
    if (w->started) return OK;
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    return FAIL(ERR_MEMORY, "%s could not be started: %s", name, strerror_r(rc, why, sizeof why));
}

/* The flag changes under the lock, so the other side cannot miss it between its test and its
 * wait. */
static void set_flag(Worker *w, bool *flag)
{
    pthread_mutex_lock(&w->lock);
    *flag = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void worker_stop(Worker *w)
{
    if (!w->started) return;
    set_flag(w, &w->stop);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    w->started = false;
}

void worker_begin(Worker *w)
{
    if (w->started)
        set_flag(w, &w->busy);
    else
        run_job(w);
}

/* With patience 0 it only looks: the loop is not entered, and the deadline is not used. */
bool worker_wait(Worker *w, double patience_s)
{
    if (!w->started) return true;
    struct timespec until = clock_after(patience_s);
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    while (w->busy && rc == 0 && patience_s > 0) {
        rc = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    }
    bool done = !w->busy;
    pthread_mutex_unlock(&w->lock);
    return done;
}

Status worker_result(const Worker *w)
{
    return w->result == OK ? OK : status_adopt(w->result, w->message);
}
