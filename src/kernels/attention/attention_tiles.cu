/* attention_tiles: the kernels of attention_tiles.cuh. They read four bytes a token and work for a few us. */
#include "kernels/attention/attention_tiles.cuh"

#include "kernels/core/operand.h"

enum { THREADS = ATTENTION_TILE, WARPS = THREADS / WARP };

typedef struct Args {
    AttentionTiles t;
    AttentionPieces pieces;
    AttentionRect rect;
    const int32_t *doc; /* (B, Tq) or NULL */
    int64_t Tq, Tk, window, chunk;
} Args;

static __device__ __forceinline__ AttentionSpan joined(const AttentionSpan &a,
                                                       const AttentionSpan &b)
{
    return { min(a.begin, b.begin), max(a.end, b.end) };
}

/* Over the lanes of a warp: the least begin and the largest end. */
static __device__ __forceinline__ AttentionSpan warp_joined(AttentionSpan s)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2) {
        AttentionSpan other = { lane_get_xor(s.begin, bits), lane_get_xor(s.end, bits) };
        s = joined(s, other);
    }
    return s;
}

static __device__ __forceinline__ AttentionSpan none_if_empty(const AttentionSpan &s)
{
    return s.begin < s.end ? s : AttentionSpan{ 0, 0 };
}

static __device__ __forceinline__ int first_of(const Args &a, int b, int row)
{
    int64_t at = a.rect.q + row, stands = attention_position(&a.pieces, a.Tq, a.Tk, at);
    int64_t doc = a.doc == NULL ? 0 : a.doc[b * a.Tq + at];
    int64_t seen = attention_first_seen(a.window, a.chunk, doc, stands);
    return (int)attention_first_key(&a.pieces, &a.rect, seen);
}

/* A block has 128 queries of a sequence. The last one has none: its rows are past the end. */
static __global__ void attention_rows_kernel(const __grid_constant__ Args a)
{
    __shared__ AttentionSpan firsts[WARPS], keys[WARPS];
    const AttentionTiles &t = a.t;
    int b = (int)blockIdx.y, tile = (int)blockIdx.x, warp = (int)threadIdx.x / WARP;
    int row = tile * ATTENTION_TILE + (int)threadIdx.x;
    AttentionSpan first = { INT32_MAX, 0 }, seen = { INT32_MAX, 0 };
    if (row < t.Tq) {
        first.begin = first.end = first_of(a, b, row);
        int last = attention_last_key(t, row);
        if (first.begin <= last) seen = { first.begin, last + 1 };
    }
    t.first[(int64_t)b * t.rows + row] = first.begin;
    firsts[warp] = warp_joined(first);
    keys[warp] = warp_joined(seen);
    __syncthreads();
    enum { HALF = WARPS / 2 };
    if (threadIdx.x < 2) {
        AttentionSpan half = firsts[threadIdx.x * HALF];
        for (int i = 1; i < HALF; i++) half = joined(half, firsts[threadIdx.x * HALF + i]);
        t.firsts[(int64_t)b * (t.rows / ATTENTION_HALF) + 2 * tile + threadIdx.x] = half;
    }
    if (threadIdx.x > 0 || tile >= t.q_tiles) return;
    for (int i = 1; i < WARPS; i++) keys[0] = joined(keys[0], keys[i]);
    t.q_spans[(int64_t)b * t.q_tiles + tile] = none_if_empty(keys[0]);
}

/* A warp has a tile of keys and looks at all queries, 64 at a time. */
static __global__ void attention_keys_kernel(const __grid_constant__ Args a)
{
    const AttentionTiles &t = a.t;
    int b = (int)blockIdx.y, tile = (int)(blockIdx.x * WARPS + threadIdx.x / WARP);
    int lane = (int)threadIdx.x % WARP, key = tile * ATTENTION_TILE;
    if (tile >= t.k_tiles) return;
    const AttentionSpan *firsts = t.firsts + (int64_t)b * (t.rows / ATTENTION_HALF);
    AttentionSpan seen = { INT32_MAX, 0 };
    for (int query = lane * ATTENTION_HALF; query < t.Tq; query += WARP * ATTENTION_HALF) {
        int last = attention_last_key(t, min(query + ATTENTION_HALF, t.Tq) - 1);
        if (firsts[query / ATTENTION_HALF].begin < key + ATTENTION_TILE && last >= key)
            seen = joined(seen, { query, min(query + ATTENTION_HALF, t.Tq) });
    }
    seen = warp_joined(seen);
    if (lane == 0) t.k_spans[(int64_t)b * t.k_tiles + tile] = none_if_empty(seen);
}

static __device__ __forceinline__ int work_of(const AttentionSpan &s)
{
    return (s.end + ATTENTION_HALF - 1) / ATTENTION_HALF - s.begin / ATTENTION_HALF;
}

/* A warp counts the tiles of its sequence that come before its own: those with more work, and of equal
 * ones those with a lower number. */
static __global__ void attention_order_kernel(int tiles, const AttentionSpan *spans, int32_t *order)
{
    int b = (int)blockIdx.y, tile = (int)(blockIdx.x * WARPS + threadIdx.x / WARP);
    int lane = (int)threadIdx.x % WARP, before = 0;
    if (tile >= tiles) return;
    spans += (int64_t)b * tiles;
    int own = work_of(spans[tile]);
    for (int i = lane; i < tiles; i += WARP) {
        int other = work_of(spans[i]);
        before += other > own || (other == own && i < tile);
    }
    for (int bits = WARP / 2; bits > 0; bits /= 2) before += lane_get_xor(before, bits);
    if (lane == 0) order[(int64_t)b * tiles + before] = tile;
}

static int tiles_of(int64_t n) { return (int)((n + ATTENTION_TILE - 1) / ATTENTION_TILE); }

AttentionTiles attention_tiles_of(const AttentionRect *rect, int64_t Tq, int64_t Tk)
{
    AttentionTiles t = {};
    t.Tq = (int)rect->Tq, t.Tk = (int)rect->Tk;
    t.q_tiles = tiles_of(rect->Tq), t.k_tiles = tiles_of(rect->Tk);
    t.rows = (tiles_of(Tq) + 1) * ATTENTION_TILE;
    t.causal = rect->causal;
    t.window = ATTENTION_NO_WINDOW;
    t.shift = rect->Tq == Tq && rect->Tk == Tk ? (int)(Tk - Tq) : 0;
    return t;
}

/* Does a window or a chunk of `tokens` hide any key of a whole sequence? */
static bool hides(const AttentionFwd *a, int64_t tokens)
{
    int64_t end = a->pieces.length > 0 ? a->pieces.q[1] + a->pieces.length : a->k.dim[1];
    return tokens > 0 && tokens < end;
}

bool attention_tiles_listed(const AttentionFwd *a)
{
    return a->doc.data != NULL || hides(a, a->window) || hides(a, a->chunk);
}

/* One array behind the other; sizes follow the call, so that all ranks of mesh.cp plan the same. */
static char *take(size_t *used, char *at, int64_t elems, size_t each)
{
    char *place = at + *used;
    *used += arena_rounded((size_t)elems * each);
    return place;
}

static size_t place(AttentionTiles *t, int64_t B, char *at)
{
    size_t used = 0;
    int64_t tiles = B * (t->rows / ATTENTION_TILE);
    t->first = (int32_t *)take(&used, at, B * t->rows, sizeof *t->first);
    t->firsts = (AttentionSpan *)take(&used, at, 2 * tiles, sizeof *t->firsts);
    t->q_spans = (AttentionSpan *)take(&used, at, tiles, sizeof *t->q_spans);
    t->k_spans = (AttentionSpan *)take(&used, at, tiles, sizeof *t->k_spans);
    t->q_order = (int32_t *)take(&used, at, tiles, sizeof *t->q_order);
    t->k_order = (int32_t *)take(&used, at, tiles, sizeof *t->k_order);
    return used;
}

size_t attention_tiles_bytes(const AttentionTiles *t, int64_t B)
{
    AttentionTiles copy = *t;
    return place(&copy, B, NULL);
}

void attention_tiles_place(AttentionTiles *t, int64_t B, char *at) { (void)place(t, B, at); }

Status attention_tiles_make(struct Exec *ex, const AttentionFwd *a, const AttentionRect *rect,
                            const AttentionTiles *t, bool backward)
{
    unsigned B = (unsigned)a->q.dim[0];
    LaunchStream stream = exec_stream(ex);
    dim3 by_rows((unsigned)(t->rows / ATTENTION_TILE), B);
    dim3 by_queries(grid_of(t->q_tiles, WARPS), B), by_keys(grid_of(t->k_tiles, WARPS), B);
    Args x = { *t,          a->pieces,   *rect,     (const int32_t *)a->doc.data,
               a->q.dim[1], a->k.dim[1], a->window, a->chunk };
    attention_rows_kernel<<<by_rows, THREADS, 0, stream>>>(x);
    attention_order_kernel<<<by_queries, THREADS, 0, stream>>>(t->q_tiles, t->q_spans, t->q_order);
    if (backward) {
        attention_keys_kernel<<<by_keys, THREADS, 0, stream>>>(x);
        attention_order_kernel<<<by_keys, THREADS, 0, stream>>>(t->k_tiles, t->k_spans, t->k_order);
    }
    return kernel_status("attention");
}
