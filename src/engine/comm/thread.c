/*
 * thread: ranks are threads of one process. A transfer is a descriptor in a table. Whichever end is
 * posted second copies from the sender's memory to the receiver's and marks both ends done. So there is
 * no queue and no intermediate copy, and a rank that computes need not drive its transfers.
 *
 * One lock guards the table; copies run outside it. A wait sleeps on its rank's condition variable.
 */
#include "engine/comm/host.h"

#include "engine/base/clock.h"
#include "engine/host/worker.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS_MAX = 1024, STACK_BYTES = 16 << 20 };

typedef enum SlotState { SLOT_FREE, SLOT_POSTED, SLOT_COPIED, SLOT_DONE } SlotState;

typedef struct Slot {
    SlotState state; /* SLOT_COPIED: a thread is copying it now */
    uint64_t order;  /* of posting: equal keys match in this order */
    Message message;
} Slot;

typedef struct RankState {
    pthread_cond_t changed;
    int waits_for;
    int parted; /* how often it called Transport.part; INT_MAX: its world is closed */
    Slot slot[COMM_REQUESTS];
} RankState;

/* State that all ranks share; `lock` guards it. */
typedef struct Threads {
    pthread_mutex_t lock;
    int ranks, aborted_by;
    uint64_t posted;
    RankState *rank;
    char why[COMM_WHY_BYTES];
} Threads;

/* One rank: the transport's `self`, and its thread. */
typedef struct Seat {
    Threads *shared;
    int rank;
    Comm *world;
    CommBody *body;
    void *state;
    Worker worker;
} Seat;

/* The peer's end of a message: the earliest that matches, NULL if none was posted. */
static Slot *find_mate(Threads *t, int rank, const Message *m)
{
    RankState *peer = &t->rank[m->peer];
    Slot *mate = NULL;
    for (int i = 0; i < COMM_REQUESTS; i++) {
        Slot *s = &peer->slot[i];
        bool fits = s->state == SLOT_POSTED && s->message.sends != m->sends &&
                    s->message.peer == rank && s->message.key == m->key;
        if (fits && (mate == NULL || s->order < mate->order)) mate = s;
    }
    return mate;
}

/* Called without the lock, by the rank that posted second. Both memories stay valid until their
 * transfers are done. */
static void copy_message(const Message *a, const Message *b)
{
    memcpy(a->sends ? b->data : a->data, a->sends ? a->data : b->data, a->bytes);
}

/* A length that differs is found here, before anything is copied, so the error names both ranks. */
static Status thread_post(void *self, int slot, const Message *m)
{
    const Seat *seat = self;
    Threads *t = seat->shared;
    Slot *own = &t->rank[seat->rank].slot[slot], *mate;
    pthread_mutex_lock(&t->lock);
    mate = find_mate(t, seat->rank, m);
    if (mate != NULL && mate->message.bytes != m->bytes) {
        size_t theirs = mate->message.bytes;
        pthread_mutex_unlock(&t->lock);
        return FAIL(ERR_SHAPE, "rank %d %s %zu bytes, rank %d %s %zu", seat->rank,
                    m->sends ? "sends" : "receives", m->bytes, m->peer,
                    m->sends ? "receives" : "sends", theirs);
    }
    *own = (Slot){ mate == NULL ? SLOT_POSTED : SLOT_COPIED, t->posted++, *m };
    if (mate != NULL) {
        mate->state = SLOT_COPIED;
        pthread_mutex_unlock(&t->lock);
        copy_message(m, &mate->message);
        pthread_mutex_lock(&t->lock);
        own->state = mate->state = SLOT_DONE;
        pthread_cond_signal(&t->rank[m->peer].changed);
    }
    pthread_mutex_unlock(&t->lock);
    return OK;
}

/* waits_for tells other ranks whom this one waits for: culprit() in host.c follows these
 * numbers. */
static Status thread_test(void *self, int slot, double patience_s, bool *done)
{
    const Seat *seat = self;
    Threads *t = seat->shared;
    RankState *own = &t->rank[seat->rank];
    Slot *s = &own->slot[slot];
    struct timespec until = clock_after(patience_s);
    int rc = 0;
    pthread_mutex_lock(&t->lock);
    own->waits_for = patience_s > 0 && s->state != SLOT_DONE ? s->message.peer : -1;
    while (patience_s > 0 && rc == 0 && s->state != SLOT_DONE && t->aborted_by < 0) {
        rc = pthread_cond_timedwait(&own->changed, &t->lock, &until);
    }
    *done = s->state == SLOT_DONE;
    if (*done) {
        s->state = SLOT_FREE;
        own->waits_for = -1;
    }
    pthread_mutex_unlock(&t->lock);
    return OK;
}

static int thread_waits_for(void *self, int rank)
{
    Threads *t = ((const Seat *)self)->shared;
    pthread_mutex_lock(&t->lock);
    int peer = t->rank[rank].waits_for;
    pthread_mutex_unlock(&t->lock);
    return peer;
}

static int thread_aborted(void *self, char why[COMM_WHY_BYTES])
{
    Threads *t = ((const Seat *)self)->shared;
    pthread_mutex_lock(&t->lock);
    int by = t->aborted_by;
    if (by >= 0) memcpy(why, t->why, COMM_WHY_BYTES);
    pthread_mutex_unlock(&t->lock);
    return by;
}

/* Only the first reason is kept, because the failures that follow are its consequences. */
static void thread_abort(void *self, const char *why)
{
    const Seat *seat = self;
    Threads *t = seat->shared;
    pthread_mutex_lock(&t->lock);
    if (t->aborted_by < 0) {
        t->aborted_by = seat->rank;
        (void)snprintf(t->why, sizeof t->why, "%s", why);
        for (int r = 0; r < t->ranks; r++) pthread_cond_signal(&t->rank[r].changed);
    }
    pthread_mutex_unlock(&t->lock);
}

/* Drops this rank's transfers. Waits for a copy that another thread is making. */
static void thread_withdraw(void *self)
{
    const Seat *seat = self;
    Threads *t = seat->shared;
    RankState *own = &t->rank[seat->rank];
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < COMM_REQUESTS; i++) {
        while (own->slot[i].state == SLOT_COPIED) pthread_cond_wait(&own->changed, &t->lock);
        own->slot[i].state = SLOT_FREE;
    }
    pthread_mutex_unlock(&t->lock);
}

/* Sets how often this rank has called `part`, and wakes all ranks, which may wait for that. */
static void note_parted(Threads *t, int rank, int times)
{
    t->rank[rank].parted = times;
    for (int r = 0; r < t->ranks; r++) pthread_cond_signal(&t->rank[r].changed);
}

/* The deadline covers all members together: after the first timeout the loop waits for nobody. */
static void thread_part(void *self, const int *rank, int n, double patience_s)
{
    const Seat *seat = self;
    Threads *t = seat->shared;
    RankState *own = &t->rank[seat->rank];
    struct timespec until = clock_after(patience_s);
    int rc = 0;
    pthread_mutex_lock(&t->lock);
    note_parted(t, seat->rank, own->parted + 1);
    for (int i = 0; i < n; i++) {
        while (rc == 0 && t->rank[rank[i]].parted < own->parted)
            rc = pthread_cond_timedwait(&own->changed, &t->lock, &until);
    }
    pthread_mutex_unlock(&t->lock);
}

/* A closed world counts as having parted any number of times, so nobody waits for it. */
static void thread_close(void *self, bool failed)
{
    const Seat *seat = self;
    (void)failed;
    thread_withdraw(self);
    pthread_mutex_lock(&seat->shared->lock);
    note_parted(seat->shared, seat->rank, INT_MAX);
    pthread_mutex_unlock(&seat->shared->lock);
}

static const Transport thread_transport = { .one_memory = true,
                                            .post = thread_post,
                                            .test = thread_test,
                                            .waits_for = thread_waits_for,
                                            .aborted = thread_aborted,
                                            .abort = thread_abort,
                                            .part = thread_part,
                                            .withdraw = thread_withdraw,
                                            .close = thread_close };

/* Locks need no destroy call: on Linux they own no memory, so they end with the arena. */
static Status open_shared(int ranks, Arena *a, Threads **out)
{
    Threads *t = NULL;
    TRY(ARENA_ZEROED(a, 1, &t));
    TRY(ARENA_ZEROED(a, ranks, &t->rank));
    t->ranks = ranks;
    t->aborted_by = -1;
    pthread_mutex_init(&t->lock, NULL);
    for (int r = 0; r < ranks; r++) {
        clock_cond_init(&t->rank[r].changed);
        t->rank[r].waits_for = -1;
    }
    *out = t;
    return OK;
}

static Status open_seat(Threads *t, int rank, double timeout_s, Arena *a, Seat *seat)
{
    seat->shared = t;
    seat->rank = rank;
    return host_open(&thread_transport, seat, rank, t->ranks, timeout_s, a, &seat->world);
}

/* The body of a rank's thread. A failure is announced before the world is closed, so that other
 * ranks' waits end with the reason. */
static Status run_seat(void *arg)
{
    Seat *seat = arg;
    char why[COMM_WHY_BYTES];
    Status s = seat->body(seat->state, seat->world);
    if (s != OK) {
        status_sentence(why, sizeof why);
        comm_abort(seat->world, why);
    }
    comm_free(seat->world);
    return s;
}

/* All threads exist before the first rank begins, so no rank waits for one that could not start. The
 * rank that failed first aborted the world; failures of others are consequences. */
static Status run_seats(int ranks, double timeout_s, Arena *a, Seat *seat, int *failed)
{
    Threads *t = NULL;
    char name[64];
    TRY(open_shared(ranks, a, &t));
    for (int r = 0; r < ranks; r++) {
        TRY(open_seat(t, r, timeout_s, a, &seat[r]));
        (void)snprintf(name, sizeof name, "of %d ranks, the thread of rank %d", ranks, r);
        TRY(worker_start(&seat[r].worker, name));
    }
    for (int r = 0; r < ranks; r++) worker_begin(&seat[r].worker);
    for (int r = 0; r < ranks; r++) worker_wait(&seat[r].worker, INFINITY);
    *failed = t->aborted_by;
    return *failed < 0 ? OK : worker_result(&seat[*failed].worker);
}

Status comm_threads(int ranks, double timeout_s, CommBody *body, void *state, int *failed)
{
    Arena a = { 0 };
    Seat *seat = NULL;
    *failed = -1;
    if (ranks < 1 || ranks > RANKS_MAX) {
        return FAIL(ERR_ARG, "%d ranks as threads: 1 to %d are possible", ranks, RANKS_MAX);
    }
    /* What a rank takes from the arena. The last term is for rounding and the world's first
     * group. */
    size_t each = sizeof(Seat) + sizeof(RankState) + sizeof(CommWorld) + host_staging_bytes(ranks) +
                  (size_t)ranks * sizeof(int) + (16 << 10);
    TRY(arena_init(&a, "ranks", MEM_HOST, (size_t)ranks * each));
    Status s = ARENA_ZEROED(&a, ranks, &seat);
    for (int r = 0; s == OK && r < ranks; r++) {
        seat[r].body = body;
        seat[r].state = state;
        seat[r].worker = (Worker){ .job = run_seat, .state = &seat[r], .stack_bytes = STACK_BYTES };
    }
    if (s == OK) s = run_seats(ranks, timeout_s, &a, seat, failed);
    for (int r = 0; seat != NULL && r < ranks; r++) worker_stop(&seat[r].worker);
    arena_free(&a);
    return s;
}
