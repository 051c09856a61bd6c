#include "data/loader_private.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { REASON_BYTES = 128 };

/* One batch ahead, and after a failure nothing until a seek. */
static bool may_work(const Loader *l) { return l->failure == OK && l->made == l->given; }

static void *work(void *arg)
{
    Loader *l = arg;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->stop && !may_work(l)) pthread_cond_wait(&l->changed, &l->lock);
        if (l->stop) break;
        LoaderSlot *slot = &l->slot[l->made % LOADER_SLOTS];
        l->busy = true;
        pthread_mutex_unlock(&l->lock);
        Status s = loader_fill(l, slot);
        pthread_mutex_lock(&l->lock);
        l->busy = false;
        l->failure = s;
        if (s == OK) l->made++;
        if (s != OK) (void)snprintf(l->message, sizeof l->message, "%s", status_message());
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

Status loader_thread_start(Loader *l)
{
    sigset_t all, before;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    /* Signals are for the thread that drives the run. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&l->thread, NULL, work, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0) return OK;
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    char why[REASON_BYTES];
    return FAIL(ERR_MEMORY, "the loader's thread could not be started: %s",
                strerror_r(rc, why, sizeof why));
}

void loader_thread_stop(Loader *l)
{
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
}

/* While the thread is not busy it cannot begin without the lock, so everything it owns may be
 * changed here. */
Status loader_seek(Loader *l, uint64_t position)
{
    if (position > INT64_MAX)
        return FAIL(ERR_ARG, "data position %llu, at most %lld is possible",
                    (unsigned long long)position, (long long)INT64_MAX);
    pthread_mutex_lock(&l->lock);
    while (l->busy) pthread_cond_wait(&l->changed, &l->lock);
    mix_seek(&l->mix, position);
    for (int i = 0; i < l->n; i++) l->taken[i] = mix_taken(&l->mix, i);
    l->position = position;
    l->made = l->given;
    l->failure = OK;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    return OK;
}

Status loader_next(Loader *l, const Batch **out)
{
    pthread_mutex_lock(&l->lock);
    while (l->made == l->given && l->failure == OK) pthread_cond_wait(&l->changed, &l->lock);
    bool there = l->made != l->given;
    const LoaderSlot *slot = &l->slot[l->given % LOADER_SLOTS];
    if (there) l->given++;
    Status s = there ? OK : status_adopt(l->failure, l->message);
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    TRY(s);
    memcpy(l->taken, slot->taken, sizeof l->taken);
    l->position += (uint64_t)l->config.batch;
    *out = &slot->batch;
    return OK;
}
