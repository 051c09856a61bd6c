/* comm: the entry points of comm.h. Each checks its arguments, once for all implementations, then calls
 * the group's table. Also here: what ranks say about their hosts. */
#include "engine/comm/comm_private.h"

#include <string.h>
#include <unistd.h>

enum { SHAPE_BYTES = 64 };

/* Types that all implementations can add. Other types can be moved, but not reduced. */
static Status check_reducible(const Comm *c, const char *call, const Tensor *t)
{
    if (t->dtype <= DTYPE_F16 || t->dtype == DTYPE_I32) return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s of group %s: %s cannot be added up; f32, bf16, f16 and i32 can", call, c->name,
                dtype_name(t->dtype));
}

/* Checks that `whole` has `parts` times the elements of `part`, and the same type. */
static Status check_parts(const Comm *c, const char *call, const Tensor *whole, const Tensor *part,
                          int parts)
{
    char a[SHAPE_BYTES], b[SHAPE_BYTES];
    if (whole->dtype == part->dtype && tensor_elems(whole) == tensor_elems(part) * parts) return OK;
    return FAIL(ERR_SHAPE, "%s of group %s: %s is not %d times %s", call, c->name,
                tensor_shape_text(whole, a, sizeof a), parts, tensor_shape_text(part, b, sizeof b));
}

static Status check_member(const Comm *c, const char *call, int member)
{
    if (member >= 0 && member < c->size) return OK;
    return FAIL(ERR_ARG, "%s of group %s: there is no rank %d among its %d", call, c->name, member,
                c->size);
}

static Status check_peer(const Comm *c, const char *call, int peer, int tag)
{
    TRY(check_member(c, call, peer));
    if (tag >= 0 && tag < COMM_TAGS) return OK;
    return FAIL(ERR_ARG, "%s of group %s: tag %d, they go from 0 to %d", call, c->name, tag,
                COMM_TAGS - 1);
}

Status comm_all_reduce(Comm *c, const Tensor *t, ReduceOp op)
{
    TRY(check_reducible(c, "all_reduce", t));
    return c->table->all_reduce(c, t, op);
}

Status comm_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out)
{
    TRY(check_reducible(c, "reduce_scatter", in));
    TRY(check_parts(c, "reduce_scatter", in, out, c->size));
    return c->table->reduce_scatter(c, in, out);
}

Status comm_all_gather(Comm *c, const Tensor *in, const Tensor *out)
{
    TRY(check_parts(c, "all_gather", out, in, c->size));
    return c->table->all_gather(c, in, out);
}

Status comm_all_to_all(Comm *c, const Tensor *in, const Tensor *out)
{
    char a[SHAPE_BYTES];
    TRY(check_parts(c, "all_to_all", in, out, 1));
    if (tensor_elems(in) % c->size != 0) {
        return FAIL(ERR_SHAPE, "all_to_all of group %s: %s has no %d equal parts", c->name,
                    tensor_shape_text(in, a, sizeof a), c->size);
    }
    return c->table->all_to_all(c, in, out);
}

Status comm_broadcast(Comm *c, const Tensor *t, int root)
{
    TRY(check_member(c, "broadcast", root));
    return c->table->broadcast(c, t, root);
}

Status comm_barrier(Comm *c) { return c->table->barrier(c); }

Status comm_send(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    TRY(check_peer(c, "send", peer, tag));
    return c->table->send(c, t, peer, tag, out);
}

Status comm_recv(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    TRY(check_peer(c, "recv", peer, tag));
    return c->table->recv(c, t, peer, tag, out);
}

Status comm_test(Comm *c, CommRequest *r, bool *done) { return c->table->test(c, r, done); }

Status comm_wait(Comm *c, CommRequest *r) { return c->table->wait(c, r); }

/* For groups whose transfers are ordered by a stream: the host has nothing to wait for. */
Status comm_done_at_once(Comm *c, CommRequest *r, bool *done)
{
    *r = (CommRequest){ 0 };
    return (void)c, *done = true, OK;
}

Status comm_done(Comm *c, CommRequest *r)
{
    bool done = false;
    return comm_done_at_once(c, r, &done);
}

Status comm_batch_begin(Comm *c) { return c->table->batch_begin(c); }

Status comm_batch_end(Comm *c) { return c->table->batch_end(c); }

Status comm_connect(Comm *c) { return c->table->connect(c); }

Status comm_watch(Comm *c, double waited_s) { return c->table->watch(c, waited_s); }

void comm_set_stream(Comm *c, void *stream) { c->table->set_stream(c, stream); }

/* *out is set only on success, so that closing a window that was not opened does nothing. */
Status comm_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *out)
{
    CommWindow w = { .bytes = bytes, .timeout_s = c->world->timeout_s };
    if (base == NULL || bytes == 0) {
        return FAIL(ERR_ARG, "window of group %s: rank %d gives %zu bytes%s; it must give memory",
                    c->name, c->rank, bytes, base == NULL ? " at NULL" : "");
    }
    TRY(ARENA_NEW(a, c->size, &w.peer));
    TRY(c->table->window(c, base, bytes, a, &w));
    *out = w;
    return OK;
}

/* A group of one has mapped nothing and has nobody to wait for. */
void comm_window_close(Comm *c, CommWindow *w)
{
    if (w->peer != NULL && c->size > 1) c->table->window_close(c, w);
    *w = (CommWindow){ 0 };
}

Status comm_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out)
{
    return c->table->split(c, color, key, name, a, out);
}

Status comm_duplicate(Comm *c, void *stream, const char *name, Arena *a, Comm **out)
{
    return c->table->duplicate(c, stream, name, a, out);
}

void comm_free(Comm *c)
{
    if (c != NULL) c->table->free(c);
}

void comm_abort(Comm *c, const char *why) { c->table->abort(c, why); }

void comm_set_place(Comm *c, CommPlace place) { c->world->place = place; }

double comm_waited_s(const Comm *c) { return c->world->waited_s; }

void comm_set_stop(Comm *c, const volatile sig_atomic_t *stop, double patience_s)
{
    c->world->stop = stop;
    c->world->stop_patience_s = patience_s;
}

/* How many consecutive ranks, from `first` on, are on the same host as `first`. */
static int host_run(const CommHostName *name, int first, int ranks)
{
    int end = first + 1;
    while (end < ranks && strcmp(name[first].text, name[end].text) == 0) end++;
    return end - first;
}

/* Each run of ranks on one host must be as long as the first run, and a host may have only one run:
 * `before` walks over the runs' first ranks and finds whether the host appeared earlier. */
Status comm_hosts_of(const CommHostName *name, int ranks, int *out)
{
    int each = host_run(name, 0, ranks);
    for (int first = each; first < ranks; first += each) {
        int here = host_run(name, first, ranks), before = 0;
        while (strcmp(name[before].text, name[first].text) != 0) before += each;
        if (here == each && before == first) continue;
        return FAIL(ERR_ARG,
                    "ranks 0 to %d are on host %s, and ranks %d to %d on host %s: every host must "
                    "have as many ranks, which follow each other",
                    each - 1, name[0].text, first, first + here - 1, name[first].text);
    }
    *out = each;
    return OK;
}

Status comm_hosts(Comm *world, Arena *a, int *out)
{
    const int64_t words = sizeof(CommHostName) / 4;
    CommHostName mine = { 0 }, *name = NULL;
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, world->size, &name));
    if (gethostname(mine.text, sizeof mine.text - 1) != 0)
        return FAIL(ERR_IO, "rank %d cannot read its host's name", world->rank);
    TRY(comm_all_gather(world, &(Tensor){ &mine, DTYPE_I32, 1, { words } },
                        &(Tensor){ name, DTYPE_I32, 1, { words * world->size } }));
    TRY(comm_hosts_of(name, world->size, out));
    arena_release(a, mark);
    return OK;
}
