/*
 * attention_tiles: which tiles of scores exist. From the first key that each query sees it makes, for each tile of
 * queries, the keys between which something is seen, and for each tile of keys the queries. The tiles of a sequence are
 * listed by falling work, so that blocks of threads that take one after the other end together. Documents, windows,
 * chunks and the rectangles of mesh.cp differ in these bounds alone. Nothing waits for the host.
 *
 * A call makes its own tiles: 10 to 20 us on an H200, less in a graph. Where a window alone hides keys, forward
 * computes the bounds where it needs them.
 */
#ifndef KERNELS_ATTENTION_ATTENTION_TILES_CUH
#define KERNELS_ATTENTION_ATTENTION_TILES_CUH

#include "kernels/core/kernel.cuh"

extern "C" {
#include "kernels/attention/attention.h"
}

enum { ATTENTION_TILE = 128, ATTENTION_HALF = ATTENTION_TILE / 2, ATTENTION_NO_WINDOW = 1 << 30 };

/* Keys or queries of a rectangle, from begin to before end; none: both 0. */
typedef struct AttentionSpan {
    int begin, end;
} AttentionSpan;

/*
 * What the queries of a rectangle see. Query i sees keys first[i] to i + shift, or to the last one if the rectangle is
 * not causal. Without `first` it sees the last `window` keys, and there are no arrays: bounds follow from the numbers.
 */
typedef struct AttentionTiles {
    int Tq, Tk, shift, q_tiles, k_tiles;
    int window; /* ATTENTION_NO_WINDOW: all keys before */
    int rows; /* what arrays have for a sequence: Tq in tiles of 128, and one more for tiles of other widths */
    bool causal;
    int32_t *first;         /* (B, rows): INT32_MAX past the end */
    AttentionSpan *firsts;  /* (B, rows / 64): least and largest `first` of 64 queries */
    AttentionSpan *q_spans; /* (B, q_tiles): the keys that 128 queries see */
    AttentionSpan
        *k_spans; /* (B, k_tiles): the queries that see 128 keys; begin is a multiple of 64 */
    int32_t *q_order, *k_order; /* (B, tiles): numbers of tiles, the one with most work first */
} AttentionTiles;

/* The fields of a backward call that decide which scores exist. */
static inline AttentionFwd attention_seen_in(const AttentionBwd *b)
{
    AttentionFwd f = {};
    f.q = b->q, f.k = b->k, f.v = b->v, f.doc = b->doc;
    f.pieces = b->pieces, f.window = b->window, f.chunk = b->chunk;
    return f;
}

/* The tiles of a rectangle of a call: bounds alone. */
AttentionTiles attention_tiles_of(const AttentionRect *rect, int64_t Tq, int64_t Tk);

/* Does anything but causality hide a key of the call? */
bool attention_tiles_listed(const AttentionFwd *a);

/* Bytes of all arrays for a call of B sequences; attention_tiles_place puts them at `at`. */
size_t attention_tiles_bytes(const AttentionTiles *t, int64_t B);
void attention_tiles_place(AttentionTiles *t, int64_t B, char *at);

/* Fills the arrays for a call, of which pieces, masks, doc, q and k are read. backward: those of keys, too. */
Status attention_tiles_make(struct Exec *ex, const AttentionFwd *a, const AttentionRect *rect,
                            const AttentionTiles *t, bool backward);

/* The last key that a query sees, if it sees any; -1: there is no such query. */
static __device__ __forceinline__ int attention_last_key(const AttentionTiles &t, int query)
{
    if (query >= t.Tq) return -1;
    return t.causal ? min(query + t.shift, t.Tk - 1) : t.Tk - 1;
}

static __device__ __forceinline__ int attention_tile_first(const AttentionTiles &t, int b,
                                                           int query)
{
    if (t.first != NULL) return t.first[(int64_t)b * t.rows + query];
    return max(query + t.shift + 1 - t.window, 0);
}

/* The first key that any of the 64 queries around `query` sees, or of those from it on. */
static __device__ __forceinline__ int attention_half_first(const AttentionTiles &t, int b,
                                                           int query)
{
    if (t.first == NULL) return attention_tile_first(t, b, query);
    return t.firsts[((int64_t)b * t.rows + query) / ATTENTION_HALF].begin;
}

/* The keys that a tile of queries sees. */
static __device__ __forceinline__ AttentionSpan attention_keys_of(const AttentionTiles &t, int b,
                                                                  int tile)
{
    if (t.first != NULL) return t.q_spans[(int64_t)b * t.q_tiles + tile];
    return { attention_tile_first(t, b, tile * ATTENTION_TILE),
             attention_last_key(t, min((tile + 1) * ATTENTION_TILE, t.Tq) - 1) + 1 };
}

/* The queries that see a tile of keys. */
static __device__ __forceinline__ AttentionSpan attention_queries_of(const AttentionTiles &t, int b,
                                                                     int tile)
{
    if (t.first != NULL) return t.k_spans[(int64_t)b * t.k_tiles + tile];
    int begin = t.causal ? max(tile * ATTENTION_TILE - t.shift, 0) : 0;
    return { begin / ATTENTION_HALF * ATTENTION_HALF, t.Tq };
}

/* Tile number `number` of a sequence by falling work. */
static __device__ __forceinline__ int attention_q_tile(const AttentionTiles &t, int b, int number)
{
    return t.first == NULL ? t.q_tiles - 1 - number : t.q_order[(int64_t)b * t.q_tiles + number];
}
static __device__ __forceinline__ int attention_k_tile(const AttentionTiles &t, int b, int number)
{
    return t.first == NULL ? number : t.k_order[(int64_t)b * t.k_tiles + number];
}

#endif
