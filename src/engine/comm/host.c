/*
 * host: collectives for host memory, built from messages between two ranks.
 *
 * Every collective is a series of pairwise exchanges. In round i a rank sends to member rank + i and
 * receives from member rank - i (mod n), so a wait always knows which rank it waits for. There is no
 * tree and no ring of partial sums. A rank receives the parts of all members side by side, then adds
 * each element in the order of ranks, in f32, and rounds once. So the bits depend neither on the
 * transport nor on timing. The traffic is that of a ring: (n - 1) / n of the tensor for a
 * reduce-scatter or an all-gather.
 *
 * Parts that will be summed arrive in the world's staging buffer, one slice of each at a time.
 *
 * A message's key combines its group's number and its tag. The tags of collectives follow those of
 * comm_send. They encode which collective it is and how many came before (modulo a small number). If
 * members call different collectives, their keys differ: they time out and name the call instead of
 * mixing data.
 */
#include "engine/comm/host.h"

#include "engine/base/clock.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    KEYS = 2 * COMM_TAGS, /* keys of one group: tags of comm_send, then those of collectives */
    KINDS = 8,
    GROUPS_MAX = INT32_MAX / KEYS,
    SUM_BLOCK = 512,
    STAGING_ALIGN = 64,
};
#ifdef HOSTILE
/* The n-th message of the process fails, so that tests reach every error path. */
extern atomic_long comm_fail_countdown;
atomic_long comm_fail_countdown = -1;

static Status refuse_on_purpose(const Comm *c)
{
    if (comm_fail_countdown < 0 || atomic_fetch_sub(&comm_fail_countdown, 1) != 0) return OK;
    return FAIL(ERR_COMM, "a message of group %s refused on purpose", c->name);
}
#else
static Status refuse_on_purpose(const Comm *c) { return (void)c, OK; }
#endif

static const double SLICE_S = 0.1; /* a wait checks for signals this often */

typedef enum Kind { SUM_KIND, GATHER_KIND, EXCHANGE_KIND, ROOT_KIND, MEET_KIND } Kind;

/* One collective while it runs. */
typedef struct Call {
    Comm *c;
    const char *name;
    int key;
} Call;

typedef struct Span {
    char *at;
    size_t bytes;
} Span;

/* What each member contributes to a split. */
typedef struct Ballot {
    int32_t color, key, groups;
} Ballot;

/* What each member contributes to a window. */
typedef struct Range {
    void *base;
    size_t bytes;
} Range;

const char *host_place(const CommWorld *w, char out[HOST_PLACE_BYTES])
{
    out[0] = '\0';
    if (w->place.say == NULL) return out;
    memcpy(out, ", at ", 6);
    w->place.say(w->place.self, out + 5, HOST_PLACE_BYTES - 5);
    return out;
}

/* Records the first failure. From then on no call begins, and no other rank accesses this rank's
 * memory. */
static Status note_failure(CommWorld *w, Status s)
{
    if (s == OK || w->failed != OK) return s;
    w->failed = s;
    status_sentence(w->why, sizeof w->why);
    w->transport->withdraw(w->self);
    return s;
}

/* Finds the rank that causes the wait: follows the chain of waits from `peer` to a rank that does not
 * wait itself. */
static int culprit(const CommWorld *w, int peer)
{
    for (int i = 0; i < w->root->size; i++) {
        int next = w->transport->waits_for(w->self, peer);
        if (next < 0 || next == w->root->rank) break;
        peer = next;
    }
    return peer;
}

bool host_wait_news(const CommWorld *w, WaitNews *n, int slot, int peer, bool done, int *tell)
{
    bool told = n->told, same = n->slot == slot + 1;
    *tell = done ? -1 : peer;
    if (done) {
        if (same) *n = (WaitNews){ 0 };
        return same && told;
    }
    if (!same) *n = (WaitNews){ slot + 1, clock_s(), told };
    if (n->told || (clock_s() - n->since_s < w->timeout_s / 2 && !comm_world_stops(w)))
        return false;
    return n->told = true;
}

static Status timed_out(const CommWorld *w, const Pending *p, double waited_s)
{
    char place[HOST_PLACE_BYTES], by_way[64] = "";
    int lost = culprit(w, p->peer);
    if (lost != p->peer) {
        (void)snprintf(by_way, sizeof by_way, ", for whom rank %d waits,", p->peer);
    }
    return FAIL(ERR_COMM,
                "rank %d waited %.1f s for rank %d%s in %s of group %s (comm.timeout_s %g)%s",
                w->root->rank, waited_s, lost, by_way, p->call, p->group->name, w->timeout_s,
                host_place(w, place));
}

/* ERR_COMM if waiting longer is pointless: a rank has failed, the deadline has passed, or the run is
 * stopping. stopped_s: seconds since the stop flag was seen; -1: not seen. */
static Status check_wait(const CommWorld *w, const Pending *p, double waited_s, double stopped_s)
{
    char why[COMM_WHY_BYTES], place[HOST_PLACE_BYTES];
    int by = w->transport->aborted(w->self, why);
    if (by >= 0) return FAIL(ERR_COMM, "rank %d failed: %s", by, why);
    if (waited_s > w->timeout_s) return timed_out(w, p, waited_s);
    if (stopped_s > w->stop_patience_s) {
        return FAIL(
            ERR_COMM, "rank %d was terminated while it waited for rank %d in %s of group %s%s",
            w->root->rank, culprit(w, p->peer), p->call, p->group->name, host_place(w, place));
    }
    return OK;
}

/* Waits in slices, because a signal sets only a flag: the loop must come back to look at it. */
static Status wait_until_done(CommWorld *w, int slot)
{
    double since = clock_s(), stop_seen = 0;
    bool done = false;
    while (!done) {
        double now = clock_s(), left = w->timeout_s - (now - since);
        double patience = left < 0 ? 0 : left < SLICE_S ? left : SLICE_S;
        TRY(w->transport->test(w->self, slot, patience, &done));
        if (done) break;
        if (stop_seen == 0 && comm_world_stops(w)) stop_seen = now;
        TRY(check_wait(w, &w->pending[slot], clock_s() - since,
                       stop_seen == 0 ? -1 : clock_s() - stop_seen));
    }
    w->pending[slot].call = NULL;
    return OK;
}

/* After a failure every call returns it again, so a caller that drops one cannot go on with half a
 * result. */
static Status check_alive(const CommWorld *w)
{
    return w->failed == OK ? OK : FAIL(w->failed, "%s", w->why);
}

/* Also counts the time, for the share of a step that a rank spends waiting for others. */
static Status wait_slot(CommWorld *w, int slot)
{
    TRY(check_alive(w));
    double since = clock_s();
    Status s = wait_until_done(w, slot);
    w->waited_s += clock_s() - since;
    return note_failure(w, s);
}

/* Begins one message of a call, in a free slot of the world's table. */
static Status post_message(const Call *k, int member, bool sends, Span span, int *slot)
{
    CommWorld *w = k->c->world;
    const Message m = { span.at, span.bytes, k->c->member[member], k->key, sends };
    int free_slot = 0;
    TRY(check_alive(w));
    while (free_slot < COMM_REQUESTS && w->pending[free_slot].call != NULL) free_slot++;
    if (free_slot == COMM_REQUESTS) {
        return FAIL(ERR_COMM,
                    "rank %d has %d transfers under way, the most there may be; %s of "
                    "group %s is one too many",
                    w->root->rank, COMM_REQUESTS, k->name, k->c->name);
    }
    TRY(note_failure(w, refuse_on_purpose(k->c)));
    TRY(note_failure(w, w->transport->post(w->self, free_slot, &m)));
    w->pending[free_slot] = (Pending){ k->name, k->c, m.peer };
    *slot = free_slot;
    return OK;
}

/* key = group's number * KEYS + COMM_TAGS + (n-th collective mod 32) * KINDS + kind, with 256 tags
 * and 8 kinds. */
static Call begin_call(Comm *c, const char *name, Kind kind)
{
    unsigned *calls = c->own; /* collectives of this group so far */
    int nth = (int)((*calls)++ % (COMM_TAGS / KINDS));
    return (Call){ c, name, c->number * KEYS + COMM_TAGS + nth * KINDS + (int)kind };
}

/* The members to which this rank sends, and from which it receives, in round i. */
static int behind(const Comm *c, int i) { return (c->rank + i) % c->size; }
static int before(const Comm *c, int i) { return (c->rank - i + c->size) % c->size; }

/* Round i of a collective: sends `to`, receives `from`. Both ends compute the same sizes, so if a span
 * is empty here, the peer posts no message either. The receive is posted first, so that data can be
 * copied straight into it. */
static Status exchange(const Call *k, int i, Span to, Span from)
{
    CommWorld *w = k->c->world;
    int coming = -1, going = -1;
    if (from.bytes > 0) TRY(post_message(k, before(k->c, i), false, from, &coming));
    if (to.bytes > 0) TRY(post_message(k, behind(k->c, i), true, to, &going));
    if (coming >= 0) TRY(wait_slot(w, coming));
    return going >= 0 ? wait_slot(w, going) : OK;
}

/* Part r of t, which is cut into one part per member. Sizes differ by at most one element. */
static Span part(const Comm *c, const Tensor *t, int r)
{
    int64_t n = tensor_elems(t), first = n * r / c->size, end = n * (r + 1) / c->size;
    size_t element = dtype_bytes(t->dtype);
    return (Span){ (char *)t->data + (size_t)first * element, (size_t)(end - first) * element };
}

/* Up to `bytes` bytes of s from byte `first` on; empty if s ends before. */
static Span slice(Span s, size_t first, size_t bytes)
{
    if (first >= s.bytes) return (Span){ s.at, 0 };
    return (Span){ s.at + first, s.bytes - first < bytes ? s.bytes - first : bytes };
}

/* acc = acc + v or max(acc, v), element by element. Narrow types are widened before and rounded
 * once at the end. */
static void combine_f32(float *acc, const float *v, int64_t n, ReduceOp op)
{
    if (op == REDUCE_SUM) {
        for (int64_t i = 0; i < n; i++) acc[i] += v[i];
    } else { /* NaN counts as larger than every number */
        for (int64_t i = 0; i < n; i++) acc[i] = v[i] > acc[i] || isnan(v[i]) ? v[i] : acc[i];
    }
}

/* An overflowing sum wraps, like NCCL's. Unsigned, because signed overflow is undefined in C. */
static void combine_i32(int32_t *acc, const int32_t *v, int64_t n, ReduceOp op)
{
    if (op == REDUCE_SUM) {
        for (int64_t i = 0; i < n; i++) acc[i] = (int32_t)((uint32_t)acc[i] + (uint32_t)v[i]);
    } else {
        for (int64_t i = 0; i < n; i++) acc[i] = v[i] > acc[i] ? v[i] : acc[i];
    }
}

/* The same slice of a part from all members: the summands. */
typedef struct Terms {
    const Comm *c;
    const char *own, *others; /* others: in staging, one every `stride` bytes, without own */
    size_t stride;
    Dtype dtype;
    ReduceOp op;
} Terms;

/* The index of member r's slice among `others`. */
static size_t seat_of(const Comm *c, int r) { return (size_t)(r < c->rank ? r : r - 1); }

static const char *term(const Terms *t, int r)
{
    if (r == t->c->rank) return t->own;
    return t->others + seat_of(t->c, r) * t->stride;
}

/* out = the terms, added in the order of ranks. out may be the own slice. Blocks of SUM_BLOCK elements
 * keep the f32 accumulators in the first-level cache. */
static void add_terms(const Terms *t, char *out, size_t bytes)
{
    size_t element = dtype_bytes(t->dtype);
    for (size_t at = 0; at < bytes; at += SUM_BLOCK * element) {
        int64_t n = (int64_t)((bytes - at) / element);
        if (n > SUM_BLOCK) n = SUM_BLOCK;
        if (t->dtype == DTYPE_I32) {
            int32_t acc[SUM_BLOCK];
            memcpy(acc, term(t, 0) + at, (size_t)n * element);
            for (int r = 1; r < t->c->size; r++) {
                combine_i32(acc, (const int32_t *)(const void *)(term(t, r) + at), n, t->op);
            }
            memcpy(out + at, acc, (size_t)n * element);
            continue;
        }
        float acc[SUM_BLOCK], v[SUM_BLOCK];
        dtype_to_f32(acc, term(t, 0) + at, t->dtype, n);
        for (int r = 1; r < t->c->size; r++) {
            dtype_to_f32(v, term(t, r) + at, t->dtype, n);
            combine_f32(acc, v, n, t->op);
        }
        dtype_from_f32(out + at, t->dtype, acc, n);
    }
}

static void copy_own(char *out, Span own)
{
    if (own.bytes > 0 && out != own.at) memcpy(out, own.at, own.bytes);
}

static Status host_copy(Comm *c, void *dst, const void *src, size_t bytes)
{
    return (void)c, memcpy(dst, src, bytes), OK;
}

/* out = this member's part of op over all members' t. */
static Status reduce_parts(Comm *c, const char *name, const Tensor *t, char *out, ReduceOp op)
{
    Call k = begin_call(c, name, SUM_KIND);
    const Span own = part(c, t, c->rank);
    if (c->size == 1) return copy_own(out, own), OK;
    size_t longest = (size_t)(tensor_elems(t) / c->size + 1) * dtype_bytes(t->dtype);
    size_t room = c->world->staging_bytes / (size_t)(c->size - 1);
    room = room / STAGING_ALIGN * STAGING_ALIGN;
    for (size_t at = 0; at < longest; at += room) {
        const Span mine = slice(own, at, room);
        const Terms terms = { c, mine.at, c->world->staging, room, t->dtype, op };
        for (int i = 1; i < c->size; i++) {
            char *seat = c->world->staging + seat_of(c, before(c, i)) * room;
            TRY(exchange(&k, i, slice(part(c, t, behind(c, i)), at, room),
                         (Span){ seat, mine.bytes }));
        }
        add_terms(&terms, out + at, mine.bytes);
    }
    return OK;
}

/* Before: each member has its own part of t. After: all have the whole t. */
static Status gather_parts(Comm *c, const char *name, const Tensor *t)
{
    Call k = begin_call(c, name, GATHER_KIND);
    for (int i = 1; i < c->size; i++) {
        TRY(exchange(&k, i, part(c, t, c->rank), part(c, t, before(c, i))));
    }
    return OK;
}

/* A reduce-scatter into this member's part of t itself, then an all-gather of the parts. */
static Status host_all_reduce(Comm *c, const Tensor *t, ReduceOp op)
{
    TRY(reduce_parts(c, "all_reduce", t, part(c, t, c->rank).at, op));
    return gather_parts(c, "all_reduce", t);
}

static Status host_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out)
{
    return reduce_parts(c, "reduce_scatter", in, out->data, REDUCE_SUM);
}

static Status host_all_gather(Comm *c, const Tensor *in, const Tensor *out)
{
    copy_own(part(c, out, c->rank).at, (Span){ in->data, tensor_bytes(in) });
    return gather_parts(c, "all_gather", out);
}

static Status host_all_to_all(Comm *c, const Tensor *in, const Tensor *out)
{
    Call k = begin_call(c, "all_to_all", EXCHANGE_KIND);
    copy_own(part(c, out, c->rank).at, part(c, in, c->rank));
    for (int i = 1; i < c->size; i++) {
        TRY(exchange(&k, i, part(c, in, behind(c, i)), part(c, out, before(c, i))));
    }
    return OK;
}

static Status host_broadcast(Comm *c, const Tensor *t, int root)
{
    Call k = begin_call(c, "broadcast", ROOT_KIND);
    const Span all = { t->data, tensor_bytes(t) }, none = { 0 };
    for (int i = 1; i < c->size && all.bytes > 0; i++) {
        TRY(exchange(&k, i, c->rank == root ? all : none, before(c, i) == root ? all : none));
    }
    return OK;
}

/* Dissemination barrier: after the round with i = 1, 2, 4 .. a rank knows that 2i members have
 * arrived. */
static Status host_barrier(Comm *c)
{
    Call k = begin_call(c, "barrier", MEET_KIND);
    char here = 0, there;
    for (int i = 1; i < c->size; i *= 2) {
        TRY(exchange(&k, i, (Span){ &here, 1 }, (Span){ &there, 1 }));
    }
    return OK;
}

/* An empty tensor needs no message: both ends see that it is empty. Its request is done at once. */
static Status begin_transfer(Call k, const Tensor *t, int peer, bool sends, CommRequest *out)
{
    int slot = -1;
    const Span all = { t->data, tensor_bytes(t) };
    if (all.bytes > 0) TRY(post_message(&k, peer, sends, all, &slot));
    out->slot = slot + 1;
    return OK;
}

static Status host_send(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    return begin_transfer((Call){ c, "send", c->number * KEYS + tag }, t, peer, true, out);
}

static Status host_recv(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    return begin_transfer((Call){ c, "recv", c->number * KEYS + tag }, t, peer, false, out);
}

/* Unlike a wait it has no deadline of its own, but it notices that another rank has failed. */
static Status host_test(Comm *c, CommRequest *r, bool *done)
{
    CommWorld *w = c->world;
    *done = true;
    if (r->slot == 0) return OK;
    TRY(check_alive(w));
    Pending *p = &w->pending[r->slot - 1];
    TRY(note_failure(w, w->transport->test(w->self, r->slot - 1, 0, done)));
    if (!*done) return note_failure(w, check_wait(w, p, 0, -1));
    p->call = NULL;
    r->slot = 0;
    return OK;
}

static Status host_wait(Comm *c, CommRequest *r)
{
    if (r->slot == 0) return OK;
    TRY(wait_slot(c->world, r->slot - 1));
    r->slot = 0;
    return OK;
}

/* The members and this rank's number are set by the caller. `own` counts the group's
 * collectives. */
static Status new_group(Comm *like, const char *name, int number, Arena *a, Comm **out)
{
    unsigned *calls = NULL;
    TRY(ARENA_ZEROED(a, 1, out));
    TRY(ARENA_ZEROED(a, 1, &calls));
    **out = (Comm){
        .table = like->table, .world = like->world, .name = name, .number = number, .own = calls
    };
    return OK;
}

/* Fills g with the members of c that have this rank's color, ordered by key, and sets this rank's
 * number among them. Insertion sort, so equal keys stay in the order of ranks. */
static Status choose_members(const Comm *c, const Ballot *ballot, Arena *a, Comm *g)
{
    int *member = NULL, *place = NULL;
    TRY(ARENA_NEW(a, c->size, &member));
    TRY(ARENA_NEW(a, c->size, &place));
    for (int r = 0; r < c->size; r++) {
        if (ballot[r].color != ballot[c->rank].color) continue;
        int at = g->size++;
        for (; at > 0 && ballot[place[at - 1]].key > ballot[r].key; at--) place[at] = place[at - 1];
        place[at] = r;
    }
    for (int i = 0; i < g->size; i++) {
        member[i] = c->member[place[i]];
        if (place[i] == c->rank) g->rank = i;
    }
    g->member = member;
    return OK;
}

/* All-gathers `each` bytes per member into the world's staging buffer, ordered by rank. They are valid
 * until the next collective. */
static Status gather_to_staging(Comm *c, const void *mine, size_t each)
{
    char *said = c->world->staging;
    const Tensor all = { said, DTYPE_I32, 2, { c->size, (int64_t)(each / sizeof(int32_t)) } };
    const Tensor own = tensor_rows(&all, c->rank, 1);
    memcpy(own.data, mine, each);
    return host_all_gather(c, &own, &all);
}

static Status host_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *w)
{
    const Range *range = (const Range *)(void *)c->world->staging;
    (void)a;
    if (c->size > 1 && !c->world->transport->one_memory) {
        return FAIL(
            ERR_UNSUPPORTED,
            "window of group %s: its ranks are processes, which do not reach each other's "
            "memory; ranks that are threads do (--ranks), and moe.exchange=alltoall needs no "
            "window",
            c->name);
    }
    TRY(gather_to_staging(c, &(Range){ base, bytes }, sizeof *range));
    for (int r = 0; r < c->size; r++) {
        w->peer[r] = range[r].base;
        if (range[r].bytes == range[0].bytes) continue;
        return FAIL(ERR_SHAPE, "window of group %s: rank %d gives %zu bytes, rank 0 %zu", c->name,
                    r, range[r].bytes, range[0].bytes);
    }
    return OK;
}

static void host_window_close(Comm *c, CommWindow *w)
{
    c->world->transport->part(c->world->self, c->member, c->size, w->timeout_s);
}

/* A new group's number is larger than the number of every group that any member of its parent belongs
 * to. So two groups that share a rank never have the same number, and their messages never match. */
static Status host_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out)
{
    CommWorld *w = c->world;
    const Ballot *ballot = (const Ballot *)(void *)w->staging;
    int number = 0;
    TRY(gather_to_staging(c, &(Ballot){ color, key, w->groups }, sizeof *ballot));
    for (int r = 0; r < c->size; r++) {
        if (ballot[r].groups > number) number = ballot[r].groups;
    }
    if (number >= GROUPS_MAX) {
        return FAIL(ERR_COMM, "group %s would be number %d, there may be %d", name, number,
                    GROUPS_MAX);
    }
    w->groups = number + 1;
    *out = NULL;
    if (color < 0) return OK;
    TRY(new_group(c, name, number, a, out));
    return choose_members(c, ballot, a, *out);
}

static Status host_duplicate(Comm *c, void *stream, const char *name, Arena *a, Comm **out)
{
    (void)stream;
    return host_split(c, 0, c->rank, name, a, out);
}

static void host_free(Comm *c)
{
    CommWorld *w = c->world;
    if (c == w->root) w->transport->close(w->self, w->failed != OK);
}

/* The transport tells the others first. Then this rank's own transfers are dropped, so its memory
 * may be freed. */
static void host_abort(Comm *c, const char *why)
{
    CommWorld *w = c->world;
    w->transport->abort(w->self, why);
    if (w->failed != OK) return;
    w->failed = ERR_COMM;
    (void)snprintf(w->why, sizeof w->why, "%s", why);
    w->transport->withdraw(w->self);
}

/* Entries that only GPUs need. On the host, calls are complete when they return, and there is no
 * stream. */
static Status host_nothing(Comm *c) { return (void)c, OK; }

static Status host_watch(Comm *c, double waited_s)
{
    (void)waited_s;
    return host_nothing(c);
}

static void host_set_stream(Comm *c, void *stream)
{
    (void)c;
    (void)stream;
}

static const CommTable host_table = { .all_reduce = host_all_reduce,
                                      .reduce_scatter = host_reduce_scatter,
                                      .all_gather = host_all_gather,
                                      .all_to_all = host_all_to_all,
                                      .broadcast = host_broadcast,
                                      .barrier = host_barrier,
                                      .send = host_send,
                                      .recv = host_recv,
                                      .test = host_test,
                                      .wait = host_wait,
                                      .batch_begin = host_nothing,
                                      .batch_end = host_nothing,
                                      .copy = host_copy,
                                      .window = host_window,
                                      .window_close = host_window_close,
                                      .connect = host_nothing,
                                      .watch = host_watch,
                                      .set_stream = host_set_stream,
                                      .split = host_split,
                                      .duplicate = host_duplicate,
                                      .free = host_free,
                                      .abort = host_abort };

/* At least one aligned slice for each rank, so that reduce_parts always makes progress. */
size_t host_staging_bytes(int size)
{
    size_t least = (size_t)size * STAGING_ALIGN;
    return size == 1 || least > COMM_STAGING_BYTES ? least : COMM_STAGING_BYTES;
}

Status host_open(const Transport *transport, void *self, int rank, int size, double timeout_s,
                 Arena *a, Comm **out)
{
    CommWorld *w = NULL;
    int *member = NULL;
    TRY(ARENA_ZEROED(a, 1, &w));
    TRY(ARENA_NEW(a, size, &member));
    w->staging_bytes = host_staging_bytes(size);
    TRY(ARENA_NEW(a, w->staging_bytes, &w->staging));
    for (int r = 0; r < size; r++) member[r] = r;
    w->transport = transport;
    w->self = self;
    w->timeout_s = timeout_s;
    w->groups = 1;
    TRY(new_group(&(Comm){ .table = &host_table, .world = w }, "world", 0, a, &w->root));
    w->root->rank = rank;
    w->root->size = size;
    w->root->member = member;
    *out = w->root;
    return OK;
}
