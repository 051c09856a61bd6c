/* chunk_count: see the header. Sums follow forward_pass and backward_pass of run_layers.c line by line. */
#include "engine/count/chunk_count.h"

static size_t larger_of(size_t a, size_t b) { return a > b ? a : b; }

/* A backward that is phased (run_layers.c: PHASED). A block is released as a whole: what its layers kept,
 * what their second forwards made, and their part of the ring. */
static void phased_bytes(const LayerCount *const *layer, int n, size_t at, ChunkBytes *b)
{
    size_t stream = layer[0]->stream, due = 0, above = 0, streams = layer[0]->streams;
    size_t ring = streams;
    for (int i = n - 1; i >= 0; i--) {
        const LayerCount *l = layer[i];
        b->slot[SLOT_KEEP] =
            larger_of(b->slot[SLOT_KEEP], at + above + l->recompute_peak - l->keep);
        b->ring[RING_BACKWARD] = larger_of(b->ring[RING_BACKWARD], ring + l->ring_backward);
        due += l->keep + (i + 1 < n ? stream : 0);
        above += l->recompute_bytes;
        ring += l->ring_gradients;
        if (!l->opens || (i == 1 && layer[0]->begins)) continue; /* the embedding is in block 0 */
        at -= due;
        due = 0;
        above = 0;
        ring = streams;
    }
}

/* A backward that is split (run_layers.c: SPLIT). Nothing is released before the weight gradients. The
 * first layer's gradient of h lies in an entry. Layers without backward have none. */
static size_t split_bytes(const LayerCount *const *layer, int n)
{
    int streams = n - layer[n - 1]->ends;
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += layer[i]->recompute_bytes + layer[i]->ring_gradients;
        streams -= i > 0 && layer[i]->pass[PASS_INPUT].ops == 0;
    }
    return sum + (size_t)streams * layer[0]->stream;
}

/* The pool of rows, and the counter of rows in it. */
static size_t pool_bytes(const LayerCount *const *layer, int n, double factor)
{
    PoolNeed need = { 0 };
    for (int i = 0; i < n; i++) pool_need_add(&need, &layer[i]->pool);
    return pool_need_bytes(&need, factor);
}

/* Forward keeps adding (`at`). A whole backward needs the same slot at each layer, with that
 * layer's recompute peak. */
ChunkBytes chunk_count(const LayerCount *const *layer, int n, unsigned passes, double pool)
{
    ChunkBytes b = { .pool = pool_bytes(layer, n, pool) };
    size_t stream = layer[0]->stream, at = b.pool + (layer[0]->begins ? 0 : stream), eval = 0;
    size_t forward = 0, backward[RINGS] = { 0 };
    for (int i = 0; i < n; i++) {
        const LayerCount *l = layer[i];
        if (i + 1 < n) at += stream;
        size_t recompute = (passes & CHUNK_WHOLE) != 0 ? l->recompute_peak : 0;
        b.split_keep = larger_of(b.split_keep, at + l->keep_peak);
        b.slot[SLOT_KEEP] = larger_of(b.slot[SLOT_KEEP], at + larger_of(l->keep_peak, recompute));
        at += l->keep;
        forward = larger_of(forward, l->ring_forward);
        size_t *ring = &backward[backward_ring(l->tensor, i)];
        *ring = larger_of(*ring, l->ring_backward);
        b.scratch = larger_of(b.scratch, l->scratch);
        eval = larger_of(eval, l->keep_eval);
    }
    b.ring[RING_FORWARD] = forward;
    b.eval = layer[0]->streams + eval;
    if ((passes & (CHUNK_WHOLE | CHUNK_PHASED)) == CHUNK_WHOLE) {
        b.ring[RING_FORWARD] = larger_of(forward, layer[0]->streams + backward[RING_FORWARD]);
        b.ring[RING_BACKWARD] = backward[RING_BACKWARD];
    }
    if ((passes & CHUNK_SPLIT) != 0) b.slot[SLOT_GRADS] = split_bytes(layer, n);
    if ((passes & CHUNK_PHASED) == 0) return b;
    b.ring[RING_FORWARD] = forward;
    phased_bytes(layer, n, at, &b);
    return b;
}
