/*
 * embed: kernels of the look-up and of its gradient.
 *
 * forward: a thread has a pack of FORWARD_ROWS rows. It reads their ids and fetches all packs before it stores any.
 *
 * backward adds rows of several tokens to one row of dtable, in one order and without atomics on
 * floats. So tokens are sorted by id first. The sort is stable: tokens of one id stay in the order
 * of n. It costs 4 integers a token. Two kernels follow:
 *   runs   A block handles RUN_TILE sorted tokens, a thread some columns of them. It sums runs of equal
 *          ids. A run inside the tile is added to dtable. If a run crosses the tile's edge, this tile's
 *          part of the sum goes to the workspace.
 *   join   The tile in which such a run begins adds the parts to dtable, tile after tile.
 * Only the sorted order decides where runs are cut. So bits do not depend on timing, and a frequent
 * id keeps as many blocks busy as it has tiles.
 *
 * The device cannot report an id outside the vocabulary: its row of h is NaN, and its gradient is
 * dropped, like that of an id whose row another rank has.
 */
#include "kernels/norm/rows.cuh"

#include "kernels/head/embed.h"

enum {
    SORT_THREADS = 256,
    RUN_TILE = 16,     /* sorted tokens */
    RUN_THREADS = 128, /* columns, or packs of them */
    RUN_BATCH = 4,     /* tokens that are loaded at a time, with the rows to which they are added */
    FORWARD_ROWS = 4
};

/* forward */

/* The table's rows are those of ids [first, first + rows) of the vocabulary. */
struct Ids {
    int64_t first, rows, vocabulary;
};

template <typename T, bool WIDE>
static __global__
__launch_bounds__(ROWS_THREADS) void embed_fwd_kernel(const int32_t *id, const T *table, T *h,
                                                      int64_t n, Ids ids, int64_t d)
{
    constexpr int EACH = FORWARD_ROWS, P = Packed<T, WIDE>::P;
    row_groups<EACH, P>(n, d, [&](int64_t col, int64_t row, int64_t step) {
        Packed<T, WIDE> v[EACH];
        int64_t from[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++)
            from[j] = row + j * step < n ? read_const(id + row + j * step) : -1;
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            memset(&v[j], 0xFF, sizeof v[j]); /* NaN */
            int64_t at = from[j] - ids.first;
            if (at >= 0 && at < ids.rows)
                fetch(v[j], table + at * d + col);
            else if (from[j] >= 0 && from[j] < ids.vocabulary)
                clear(v[j]);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            if (row + j * step < n) put(v[j], h + (row + j * step) * d + col);
        }
    });
}

extern "C" Status embed_fwd_gpu(struct Exec *ex, const void *args)
{
    const EmbedFwd *a = (const EmbedFwd *)args;
    const void *id = a->id.data, *table = a->table.data;
    void *h = a->h.data;
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->table),
            rows = tensor_elems(&a->table) / d;
    Ids ids = { a->first, rows, a->vocab > 0 ? a->vocab : rows };
    return launch_packed(ex, "embed_fwd", a->table.dtype, { table, h }, { d },
                         [&](auto t, auto wide) {
                             typedef decltype(t) T;
                             RowGrid g = row_grid(n, d / (wide ? PACK<T> : 1), FORWARD_ROWS);
                             embed_fwd_kernel<T, wide><<<g.grid, g.block, 0, exec_stream(ex)>>>(
                                 (const int32_t *)id, (const T *)table, (T *)h, n, ids, d);
                         });
}

/* The workspace of backward. */
typedef struct Space {
    uint32_t *key[2]; /* rows, before and after; `vocabulary` for an id outside the table */
    int32_t *token[2];
    char *sort;  /* scratch of the sort */
    float *part; /* (run tiles, 2, d): sums of the run that enters a tile, and that leaves it */
    size_t sort_bytes, bytes;
} Space;

static char *carve(char *base, size_t *used, size_t bytes)
{
    char *at = base + *used;
    *used += arena_rounded(bytes);
    return at;
}

/* Bits of the largest key, the vocabulary's size. */
static int key_bits(int64_t vocabulary)
{
    int bits = 0;
    while (vocabulary >> bits > 0) bits++;
    return bits;
}

static Space space_of(void *base, const EmbedBwd *a)
{
    Space s = {};
    char *at = (char *)base;
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->dtable);
    s.sort_bytes = gpu_sort_bytes(n);
    for (uint32_t *&key : s.key) key = (uint32_t *)(void *)carve(at, &s.bytes, (size_t)n * 4);
    for (int32_t *&token : s.token) token = (int32_t *)(void *)carve(at, &s.bytes, (size_t)n * 4);
    s.sort = carve(at, &s.bytes, s.sort_bytes);
    s.part = (float *)(void *)carve(at, &s.bytes, (size_t)(2 * d) * grid_of(n, RUN_TILE) * 4);
    return s;
}

static __global__ void embed_keys_kernel(const int32_t *id, int64_t n, int64_t first_id,
                                         uint32_t vocabulary, uint32_t *key, int32_t *token)
{
    int64_t i = (int64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    if (i >= n) return;
    int64_t row = id[i] - first_id;
    key[i] = row >= 0 && row < vocabulary ? (uint32_t)row : vocabulary;
    token[i] = (int32_t)i;
}

/* Sorts tokens by id, stably, into key[1] and token[1]. */
static Status tokens_sort(struct Exec *ex, const EmbedBwd *a, const Space *s)
{
    int64_t n = tensor_elems(&a->id);
    int64_t vocabulary = tensor_elems(&a->dtable) / tensor_cols(&a->dtable);
    GpuSort sort = {
        { s->key[0], s->key[1] }, { s->token[0], s->token[1] }, n, key_bits(vocabulary)
    };
    embed_keys_kernel<<<grid_of(n, SORT_THREADS), SORT_THREADS, 0, exec_stream(ex)>>>(
        (const int32_t *)a->id.data, n, a->first, (uint32_t)vocabulary, s->key[0], s->token[0]);
    TRY(kernel_status("embed_bwd"));
    return gpu_sort(&sort, s->sort, s->sort_bytes, exec_stream(ex));
}

/* sums */

template <typename T> struct Runs {
    const uint32_t *key;
    const int32_t *token;
    const T *dh;
    float *dtable, *part;
    int64_t n, d;
    uint32_t vocabulary;
};

template <bool WIDE, int P>
static __device__ __forceinline__ void row_add(float *row, const float (&sum)[P])
{
    float v[P];
    load<WIDE>(row, v);
#pragma unroll
    for (int k = 0; k < P; k++) v[k] += sum[k];
    store<WIDE>(row, v);
}

/* What to do after each token of a tile. If a run, or this tile's part of it, ends there, it is stored in `to` or
 * added to it. If the run continues, `to` is NULL. Sums of ids outside the table are dropped. */
struct TileToken {
    int32_t token;
    bool ends, adds;
    float *to;
};

/* The i-th sorted key. Outside the list: a number that is neither an id nor `vocabulary`. */
template <typename T> static __device__ __forceinline__ uint32_t key_at(const Runs<T> &a, int64_t i)
{
    return i >= 0 && i < a.n ? a.key[i] : UINT32_MAX;
}

template <typename T>
static __device__ __forceinline__ TileToken tile_token(const Runs<T> &a, int64_t first, int64_t i)
{
    TileToken t = { i < a.n ? a.token[i] : 0, false, false, NULL };
    uint32_t key = key_at(a, i);
    bool last = i == first + RUN_TILE - 1 || i == a.n - 1;
    if (i >= a.n || (!last && key_at(a, i + 1) == key)) return t;
    bool entered = key_at(a, first - 1) == key, leaves = last && key_at(a, i + 1) == key;
    float *part = a.part + first / RUN_TILE * 2 * a.d;
    t.ends = true;
    t.adds = !entered && !leaves && key < a.vocabulary;
    if (t.adds) t.to = a.dtable + key * a.d;
    if (entered || leaves) t.to = entered ? part : part + a.d;
    return t;
}

template <typename T, bool WIDE>
static __global__ __launch_bounds__(RUN_THREADS) void embed_runs_kernel(Runs<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    __shared__ TileToken tile[RUN_TILE];
    int64_t first = (int64_t)blockIdx.x * RUN_TILE;
    int64_t col = ((int64_t)blockIdx.y * RUN_THREADS + threadIdx.x) * P;
    int count = (int)min((int64_t)RUN_TILE, a.n - first);
    if (threadIdx.x < RUN_TILE) tile[threadIdx.x] = tile_token(a, first, first + threadIdx.x);
    __syncthreads();
    if (col >= a.d) return;
    float sum[P] = {};
    for (int k = 0; k < count; k += RUN_BATCH) {
        Packed<T, WIDE> dh[RUN_BATCH];
        float old[RUN_BATCH][P] = {};
#pragma unroll
        for (int j = 0; j < RUN_BATCH; j++) {
            if (k + j >= count) break;
            const TileToken &t = tile[k + j];
            fetch_once(dh[j], a.dh + t.token * a.d + col);
            if (t.adds) load<WIDE>(t.to + col, old[j]);
        }
#pragma unroll
        for (int j = 0; j < RUN_BATCH; j++) {
            if (k + j >= count) break;
            const TileToken &t = tile[k + j];
            add_pack(dh[j], sum);
            if (!t.ends) continue;
#pragma unroll
            for (int p = 0; p < P; p++) {
                old[j][p] += sum[p];
                sum[p] = 0;
            }
            if (t.to != NULL) store<WIDE>(t.to + col, old[j]);
        }
    }
}

/* The first of the sorted tokens from `low` on whose key is above `key`. */
static __device__ __forceinline__ int64_t run_end(const uint32_t *keys, int64_t low, int64_t n,
                                                  uint32_t key)
{
    int64_t high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (keys[middle] > key)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

template <typename T, bool WIDE> static __global__ void embed_join_kernel(Runs<T> a)
{
    constexpr int P = WIDE ? PACK<T> : 1;
    int64_t first = (int64_t)blockIdx.x * RUN_TILE, next = first + RUN_TILE;
    int64_t col = ((int64_t)blockIdx.y * RUN_THREADS + threadIdx.x) * P;
    if (col >= a.d || next >= a.n) return;
    uint32_t key = a.key[next - 1];
    if (key != a.key[next] || key >= a.vocabulary) return; /* no run crosses the edge */
    if (first > 0 && a.key[first - 1] == key) return;      /* it began earlier */
    int64_t last = (run_end(a.key, next, a.n, key) - 1) / RUN_TILE;
    float sum[P];
    load<WIDE>(a.part + (blockIdx.x * 2 + 1) * a.d + col, sum);
#pragma unroll 4
    for (int64_t tile = (int64_t)blockIdx.x + 1; tile <= last; tile++) {
        float v[P];
        load_const<WIDE>(a.part + tile * 2 * a.d + col, v);
#pragma unroll
        for (int p = 0; p < P; p++) sum[p] += v[p];
    }
    row_add<WIDE>(a.dtable + key * a.d + col, sum);
}

extern "C" size_t embed_bwd_gpu_workspace(const struct Exec *, const void *args)
{
    const EmbedBwd *a = (const EmbedBwd *)args;
    return space_of(NULL, a).bytes;
}

extern "C" Status embed_bwd_gpu(struct Exec *ex, const void *args)
{
    const EmbedBwd *a = (const EmbedBwd *)args;
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->dtable);
    int64_t rows = tensor_elems(&a->dtable) / d;
    const void *dh = a->dh.data;
    float *dtable = (float *)a->dtable.data;
    if (n > INT32_MAX || rows > INT32_MAX) {
        return FAIL(ERR_SHAPE, "embed_bwd: %lld tokens, %lld rows of dtable: at most %d of either",
                    (long long)n, (long long)rows, INT32_MAX);
    }
    if (n == 0) return OK;
    Space s = space_of(exec_workspace(ex), a);
    TRY(tokens_sort(ex, a, &s));
    return launch_packed(
        ex, "embed_bwd", a->dh.dtype, { dh, dtable, s.part }, { d }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            Runs<T> r = { s.key[1], s.token[1], (const T *)dh, dtable, s.part, n, d, 0 };
            r.vocabulary = (uint32_t)rows;
            dim3 grid(grid_of(n, RUN_TILE), grid_of(d, RUN_THREADS * (wide ? PACK<T> : 1)));
            embed_runs_kernel<T, wide><<<grid, RUN_THREADS, 0, exec_stream(ex)>>>(r);
            embed_join_kernel<T, wide><<<grid, RUN_THREADS, 0, exec_stream(ex)>>>(r);
        });
}
