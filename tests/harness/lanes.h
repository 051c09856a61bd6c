/* lanes: what transfers_gpu.c launches, without a GPU.
 *
 * A backend writes down the calls of each rank in the order of its list, by stream, and a group of
 * the stages takes a send or a receive for a launch, as NCCL does. lanes_end() then lets the streams
 * of all ranks run. A stream runs its calls in order. A wait ends when the record before it has been
 * reached. A send or a receive is done when the other rank has come to its end, too: the calls of
 * one communicator between two ranks meet in the order in which they were launched. */
#ifndef TESTS_HARNESS_LANES_H
#define TESTS_HARNESS_LANES_H

#include "harness/test.h"

#include "engine/comm/comm_private.h"
#include "engine/step/transfers.h"

#include <string.h>

enum { LANES_RANKS = 16, LANES_GROUPS = 64 };

typedef enum LaneCallKind { CALL_RUN, CALL_RECORD, CALL_WAIT, CALL_SEND, CALL_RECV } LaneCallKind;

typedef struct LaneCall {
    LaneCallKind kind;
    int stream, record; /* record: the call that a wait waits for */
    int group, peer;    /* of a transfer */
    int64_t message;    /* what is sent, or is to be received */
    int after;          /* the next call of its stream, -1: none */
    bool done;
} LaneCall;

/* One rank. exec comes first: the backend's entries are given it alone. */
typedef struct LaneRank {
    Exec exec;
    LaneCall *call;
    int n, room, streams, groups, head[STREAMS_MAX], tail[STREAMS_MAX];
    int next_run; /* the first run of a lane that is not done */
    int64_t message;
    Arena *arena;
    Comm comm;
    CommTable table;
} LaneRank;

/* What a step needs, and what there is of it. */
typedef struct LaneNeeds {
    int streams, groups, events, calls;
} LaneNeeds;

/* A group: its number, and the stream that its calls go to. */
typedef struct LaneGroup {
    Comm comm;
    LaneRank *rank;
    int number, stream;
} LaneGroup;

static inline int lane_stream_number(LaneRank *r, const void *stream)
{
    return stream != NULL ? (int)((const char *)stream - (const char *)r) - 1 : (int)r->exec.lane;
}

/* A stream is a place in its rank: never NULL, and its number can be read from it. */
static inline void *lane_stream_at(LaneRank *r, int number) { return (char *)r + 1 + number; }

static inline int lane_call(LaneRank *r, LaneCall c)
{
    if (r->n == r->room) fail_msg("more than %d calls", r->room);
    c.after = -1;
    r->call[r->n] = c;
    int *at = r->head[c.stream] < 0 ? &r->head[c.stream] : &r->call[r->tail[c.stream]].after;
    *at = r->tail[c.stream] = r->n;
    return r->n++;
}

static inline void *lane_of(Exec *ex, Lane lane)
{
    return lane_stream_at((LaneRank *)ex, (int)lane);
}

static inline Status lane_add(Exec *ex, void **out)
{
    LaneRank *r = (LaneRank *)ex;
    if (r->streams == STREAMS_MAX) return FAIL(ERR_ARG, "more than %d streams", STREAMS_MAX);
    *out = lane_stream_at(r, r->streams++);
    return OK;
}

static inline Status lane_event(Exec *ex, bool timed, Event *out)
{
    (void)ex, (void)timed;
    *out = (Event){ 0 };
    return OK;
}

static inline Status lane_record(Exec *ex, Event *event, void *stream)
{
    LaneRank *r = (LaneRank *)ex;
    LaneCall c = { .kind = CALL_RECORD, .stream = lane_stream_number(r, stream) };
    event->ns = (uint64_t)lane_call(r, c) + 1;
    return OK;
}

/* On a GPU a wait for an event that nobody has recorded is no wait. */
static inline Status lane_wait(Exec *ex, const Event *event, void *stream)
{
    LaneRank *r = (LaneRank *)ex;
    LaneCall c = { .kind = CALL_WAIT, .stream = lane_stream_number(r, stream) };
    if (event->ns == 0) return FAIL(ERR_ARG, "a wait for an event that nobody has recorded");
    c.record = (int)event->ns - 1;
    (void)lane_call(r, c);
    return OK;
}

static inline Status lane_group(Comm *c, void *stream, const char *name, Arena *a, Comm **out)
{
    LaneRank *r = c->own;
    LaneGroup *g = NULL;
    TRY(ARENA_ZEROED(a, 1, &g));
    *g = (LaneGroup){
        .comm = r->comm, .rank = r, .number = r->groups++, .stream = lane_stream_number(r, stream)
    };
    if (r->groups > LANES_GROUPS) return FAIL(ERR_ARG, "more than %d groups", LANES_GROUPS);
    g->comm.own = g;
    g->comm.name = name;
    *out = &g->comm;
    return OK;
}

static inline Status lane_transfer(Comm *c, LaneCallKind kind, int peer)
{
    LaneGroup *g = c->own;
    (void)lane_call(g->rank, (LaneCall){ .kind = kind,
                                         .stream = g->stream,
                                         .group = g->number,
                                         .peer = peer,
                                         .message = g->rank->message });
    return OK;
}

static inline Status lane_send(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    (void)t, (void)tag, (void)out;
    return lane_transfer(c, CALL_SEND, peer);
}

static inline Status lane_recv(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    (void)t, (void)tag, (void)out;
    return lane_transfer(c, CALL_RECV, peer);
}

static inline Status lane_connect(Comm *c)
{
    (void)c;
    return OK;
}

static inline void lane_free(Comm *c) { (void)c; }

static const Streams lane_streams = { .of_lane = lane_of,
                                      .add = lane_add,
                                      .event_new = lane_event,
                                      .record = lane_record,
                                      .wait = lane_wait };
static const Backend lane_backend = { .apart = true, .async = true, .streams = &lane_streams };

/* The same number at both ends: payload, micro-batch, and the hop that it leaves forward. */
static inline int64_t lane_message(const Program *p, const Action *a)
{
    bool forward = action_is_forward(a->kind), sends = action_is_send(a->kind);
    int64_t hop = hop_of(p, a->chunk, a->micro) - (sends != forward);
    return (hop * p->micros + a->micro) * 2 + forward;
}

static inline void lanes_make(LaneRank *r, const Program *p, Arena *a)
{
    *r = (LaneRank){ .streams = LANE_COUNT, .arena = a, .room = 8 * p->n + 64 };
    r->exec = (Exec){ .backend = &lane_backend };
    r->table = (CommTable){ .send = lane_send,
                            .recv = lane_recv,
                            .duplicate = lane_group,
                            .connect = lane_connect,
                            .free = lane_free };
    r->comm = (Comm){ .table = &r->table, .rank = p->rank, .size = p->stages, .own = r };
    for (int i = 0; i < STREAMS_MAX; i++) r->head[i] = -1;
    CHECK_OK(ARENA_NEW(a, r->room, &r->call));
}

/* Launches a rank's list, as run_program.c does. */
static inline Status lanes_launch(LaneRank *r, Transfers *t)
{
    const Program *p = t->program;
    TRY(transfers_begin(t));
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (action_is_transfer(a->kind)) {
            r->message = lane_message(p, a);
            TRY(transfers_reach(t, a));
            continue;
        }
        r->exec.lane = a->lane;
        TRY(transfers_wait(t, a));
        (void)lane_call(r, (LaneCall){ .kind = CALL_RUN, .stream = (int)a->lane });
        TRY(transfers_signal(t, a));
    }
    r->exec.lane = LANE_COMPUTE;
    return transfers_end(t);
}

/* The next transfer of a communicator between two ranks, NULL: its stream has not come to it. */
static inline LaneCall *lanes_other_end(LaneRank *r, int group, int peer)
{
    for (int s = 0; s < r->streams; s++) {
        LaneCall *c = r->head[s] < 0 ? NULL : &r->call[r->head[s]];
        bool transfer = c != NULL && (c->kind == CALL_SEND || c->kind == CALL_RECV);
        if (transfer && c->group == group && c->peer == peer) return c;
    }
    return NULL;
}

static inline void lanes_done(LaneRank *r, LaneCall *c)
{
    c->done = true;
    r->head[c->stream] = c->after;
    while (r->next_run < r->n &&
           (r->call[r->next_run].kind != CALL_RUN || r->call[r->next_run].done))
        r->next_run++;
}

/* One call further on a stream, if it can. ahead: the host launches a call only when fewer runs than
 * that are before it and not done. */
static inline Status lanes_advance(LaneRank *all, int rank, int stream, int ahead, bool *moved)
{
    LaneRank *r = &all[rank];
    if (r->head[stream] < 0 || r->head[stream] > r->next_run + ahead) return OK;
    LaneCall *c = &r->call[r->head[stream]];
    if (c->kind == CALL_WAIT && !r->call[c->record].done) return OK;
    if (c->kind == CALL_SEND || c->kind == CALL_RECV) {
        LaneRank *peer = &all[c->peer];
        LaneCall *end = lanes_other_end(peer, c->group, rank);
        if (end == NULL || (int)(end - peer->call) > peer->next_run + ahead) return OK;
        if (end->message != c->message || (end->kind == CALL_SEND) == (c->kind == CALL_SEND))
            return FAIL(ERR_ARG, "rank %d and rank %d mean different transfers", rank, c->peer);
        lanes_done(peer, end);
    }
    lanes_done(r, c);
    *moved = true;
    return OK;
}

/* All streams of all ranks to their end. ERR_ARG: they wait for each other for ever. */
static inline Status lanes_run(LaneRank *all, int ranks, int ahead)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < ranks; r++) {
            for (int s = 0; s < all[r].streams; s++) {
                for (bool one = true; one; moved |= one) {
                    one = false;
                    TRY(lanes_advance(all, r, s, ahead, &one));
                }
            }
        }
    }
    for (int r = 0; r < ranks; r++) {
        for (int s = 0; s < all[r].streams; s++) {
            if (all[r].head[s] >= 0)
                return FAIL(ERR_ARG, "rank %d of %d, stream %d waits for ever", r, ranks, s);
        }
    }
    return OK;
}

/* The streams of a pipeline's ranks, opened, launched and run. needs: of the rank that needs most.
 * ERR_ARG: too many streams, or no end. */
static inline Status lanes_of(const Pipeline *p, bool lanes, int ahead, Arena *a, LaneNeeds *needs)
{
    LaneRank *all = NULL;
    Transfers *t = NULL;
    Tensor *entries = NULL;
    *needs = (LaneNeeds){ 0 };
    CHECK_OK(ARENA_ZEROED(a, p->stages, &all));
    CHECK_OK(ARENA_ZEROED(a, p->stages, &t));
    for (int i = 0; i < p->stages; i++) {
        const Program *x = &p->rank[i];
        lanes_make(&all[i], x, a);
        CHECK_OK(ARENA_ZEROED(a, x->entries, &entries));
        TRY(transfers_make(&all[i].exec, x, entries, &all[i].comm, a, &t[i]));
        TRY(transfers_open_gpu(&t[i], lanes, NULL, a));
        TRY(lanes_launch(&all[i], &t[i]));
        if (all[i].groups != all[0].groups)
            return FAIL(ERR_ARG, "rank %d opens %d groups, rank 0 %d", i, all[i].groups,
                        all[0].groups);
        needs->streams = all[i].streams > needs->streams ? all[i].streams : needs->streams;
        needs->events = x->events + 1 > needs->events ? x->events + 1 : needs->events;
        needs->calls = all[i].n > needs->calls ? all[i].n : needs->calls;
    }
    needs->groups = all[0].groups;
    return lanes_run(all, p->stages, ahead);
}

#endif
