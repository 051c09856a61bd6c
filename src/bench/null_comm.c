/*
 * null_comm: a group whose calls send nothing, to measure what communication costs a step. Everything else
 * stays: the calls and their order, events, memory. Its results are wrong, so it is never used to train.
 *
 * What a call receives must be finite and look like data; otherwise routing and kernels would do
 * different work. So every member counts as a copy of this rank:
 *
 *   all_gather    every part is this rank's own
 *   all_to_all    returns its input: a local copy, about a tenth of the time over NVLink
 *   reductions    the sum is this rank's own term
 *   transfers     leave the receiver's memory as it is. It holds only tensors of transfers, and the
 *                 caller who opens the group fills it once.
 */
#include "bench/null.h"

static const CommTable table;

Comm *null_real(Comm *c) { return c != NULL && c->mirror ? c->own : c; }

/* A copy of the group with another table. `own` points to the real group, which is freed with
 * it. */
Status null_comm(Comm *real, Arena *a, Comm **out)
{
    Comm *c = NULL;
    *out = NULL;
    if (real == NULL) return OK;
    TRY(ARENA_NEW(a, 1, &c));
    *c = *real;
    c->table = &table;
    c->own = real;
    c->mirror = true;
    *out = c;
    return OK;
}

/* Uses the real group's copy, so that on a GPU the copy is in order with the other launches. */
static Status copy_part(Comm *c, const Tensor *to, int64_t part, const void *from, size_t bytes)
{
    Comm *real = c->own;
    char *at = (char *)to->data + (size_t)part * bytes;
    return at == from || bytes == 0 ? OK : real->table->copy(real, at, from, bytes);
}

static Status null_all_reduce(Comm *c, const Tensor *t, ReduceOp op)
{
    return (void)c, (void)t, (void)op, OK;
}

static Status null_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out)
{
    size_t bytes = tensor_bytes(out);
    return copy_part(c, out, 0, (const char *)in->data + (size_t)c->rank * bytes, bytes);
}

static Status null_all_gather(Comm *c, const Tensor *in, const Tensor *out)
{
    for (int r = 0; r < c->size; r++) TRY(copy_part(c, out, r, in->data, tensor_bytes(in)));
    return OK;
}

static Status null_all_to_all(Comm *c, const Tensor *in, const Tensor *out)
{
    return copy_part(c, out, 0, in->data, tensor_bytes(in));
}

static Status null_broadcast(Comm *c, const Tensor *t, int root)
{
    return (void)c, (void)t, (void)root, OK;
}

static Status null_transfer(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    (void)c, (void)t, (void)peer, (void)tag;
    *out = (CommRequest){ 0 };
    return OK;
}

static Status null_nothing(Comm *c) { return (void)c, OK; }

static Status null_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *w)
{
    (void)base, (void)bytes, (void)a, (void)w;
    return FAIL(ERR_UNSUPPORTED,
                "window of group %s: its calls send nothing (bench step --exposed), but stores "
                "into other ranks' "
                "memory cannot be left out; moe.exchange=alltoall sends by calls",
                c->name);
}

static void null_window_close(Comm *c, CommWindow *w) { (void)c, (void)w; }

static Status null_watch(Comm *c, double waited_s) { return comm_watch(c->own, waited_s); }

static void null_set_stream(Comm *c, void *stream) { comm_set_stream(c->own, stream); }

/* Splitting is not measured, so it really communicates; its result sends nothing again. */
static Status null_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out)
{
    Comm *real = NULL;
    TRY(comm_split(c->own, color, key, name, a, &real));
    return null_comm(real, a, out);
}

static Status null_duplicate(Comm *c, void *stream, const char *name, Arena *a, Comm **out)
{
    Comm *real = NULL;
    TRY(comm_duplicate(c->own, stream, name, a, &real));
    return null_comm(real, a, out);
}

static Status null_copy(Comm *c, void *dst, const void *src, size_t bytes)
{
    Comm *real = c->own;
    return real->table->copy(real, dst, src, bytes);
}

static void null_free(Comm *c) { comm_free(c->own); }

static void null_abort(Comm *c, const char *why) { comm_abort(c->own, why); }

static const CommTable table = { .all_reduce = null_all_reduce,
                                 .reduce_scatter = null_reduce_scatter,
                                 .all_gather = null_all_gather,
                                 .all_to_all = null_all_to_all,
                                 .broadcast = null_broadcast,
                                 .barrier = null_nothing,
                                 .send = null_transfer,
                                 .recv = null_transfer,
                                 .test = comm_done_at_once,
                                 .wait = comm_done,
                                 .batch_begin = null_nothing,
                                 .batch_end = null_nothing,
                                 .copy = null_copy,
                                 .window = null_window,
                                 .window_close = null_window_close,
                                 .connect = null_nothing,
                                 .watch = null_watch,
                                 .set_stream = null_set_stream,
                                 .split = null_split,
                                 .duplicate = null_duplicate,
                                 .free = null_free,
                                 .abort = null_abort };
