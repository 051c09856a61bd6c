/*
 * null: a group whose calls send nothing, for measuring what communication costs a step. All else
 * stays: who calls what in which order, events, memory.
 *
 * What a call receives must be finite and look like data, or routing and kernels would do other
 * work. So each member is taken for a mirror of this rank: a gather's parts are all this rank's own,
 * an all-to-all gives back what it was given. That is a copy in local memory, about a tenth of the
 * time over NVLink. Sums stay this rank's terms. A transfer leaves what lies there: its memory
 * holds nothing but transfers' tensors, and whoever opens the group fills it once.
 */
#include "comm/comm_private.h"

#include <string.h>

static const CommTable table;

Comm *comm_real(Comm *c) { return c != NULL && c->table == &table ? c->own : c; }

Status comm_null(Comm *real, Arena *a, Comm **out)
{
    Comm *c = NULL;
    *out = NULL;
    if (real == NULL) return OK;
    TRY(ARENA_NEW(a, 1, &c));
    *c = *real;
    c->table = &table;
    c->own = real;
    *out = c;
    return OK;
}

static Status copy(Comm *c, const Tensor *to, int64_t part, const void *from, size_t bytes)
{
    Comm *real = c->own;
    char *at = (char *)to->data + (size_t)part * bytes;
    return at == from || bytes == 0 ? OK : real->table->copy(real, at, from, bytes);
}

static Status all_reduce(Comm *c, const Tensor *t, ReduceOp op)
{
    return (void)c, (void)t, (void)op, OK;
}

static Status reduce_scatter(Comm *c, const Tensor *in, const Tensor *out)
{
    size_t bytes = tensor_bytes(out);
    return copy(c, out, 0, (const char *)in->data + (size_t)c->rank * bytes, bytes);
}

static Status all_gather(Comm *c, const Tensor *in, const Tensor *out)
{
    for (int r = 0; r < c->size; r++) TRY(copy(c, out, r, in->data, tensor_bytes(in)));
    return OK;
}

static Status all_to_all(Comm *c, const Tensor *in, const Tensor *out)
{
    return copy(c, out, 0, in->data, tensor_bytes(in));
}

static Status broadcast(Comm *c, const Tensor *t, int root)
{
    return (void)c, (void)t, (void)root, OK;
}

static Status transfer(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    (void)c, (void)t, (void)peer, (void)tag;
    *out = (CommRequest){ 0 };
    return OK;
}

static Status nothing(Comm *c) { return (void)c, OK; }

static Status window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *w)
{
    (void)base, (void)bytes, (void)a, (void)w;
    return FAIL(
        ERR_UNSUPPORTED,
        "window of group %s: its calls send nothing (bench step --exposed), but stores into other ranks' "
        "memory cannot be left out; moe.exchange=alltoall sends by calls",
        c->name);
}

static void window_close(Comm *c, CommWindow *w) { (void)c, (void)w; }

static Status watch(Comm *c, double waited_s) { return comm_watch(c->own, waited_s); }

static void set_stream(Comm *c, void *stream) { comm_set_stream(c->own, stream); }

static Status null_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out)
{
    Comm *real = NULL;
    TRY(comm_split(c->own, color, key, name, a, &real));
    return comm_null(real, a, out);
}

static Status again(Comm *c, void *stream, const char *name, Arena *a, Comm **out)
{
    Comm *real = NULL;
    TRY(comm_again(c->own, stream, name, a, &real));
    return comm_null(real, a, out);
}

static Status copy_bytes(Comm *c, void *dst, const void *src, size_t bytes)
{
    Comm *real = c->own;
    return real->table->copy(real, dst, src, bytes);
}

static void null_free(Comm *c) { comm_free(c->own); }

static void null_abort(Comm *c, const char *why) { comm_abort(c->own, why); }

static const CommTable table = { .all_reduce = all_reduce,
                                 .reduce_scatter = reduce_scatter,
                                 .all_gather = all_gather,
                                 .all_to_all = all_to_all,
                                 .broadcast = broadcast,
                                 .barrier = nothing,
                                 .send = transfer,
                                 .recv = transfer,
                                 .test = comm_done_at_once,
                                 .wait = comm_done,
                                 .batch_begin = nothing,
                                 .batch_end = nothing,
                                 .copy = copy_bytes,
                                 .window = window,
                                 .window_close = window_close,
                                 .connect = nothing,
                                 .watch = watch,
                                 .set_stream = set_stream,
                                 .split = null_split,
                                 .again = again,
                                 .free = null_free,
                                 .abort = null_abort };
