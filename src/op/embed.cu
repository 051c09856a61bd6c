/*
 * embed: the look-up and its gradient. forward: a block takes rows, its threads lie along them.
 *
 * backward adds rows that meet in the same row of dtable, and must add them in one order without
 * atomics on floats. So tokens are sorted by id first (stable, so those of an id stay in the order
 * of n), which costs 4 integers a token, and then
 *   runs   a block takes RUN_TILE sorted tokens, its threads columns, and adds up runs of one id. A
 *          run inside the tile goes to dtable; a part of one that crosses an edge to the workspace
 *   join   the tile in which such a run begins adds its parts, tile after tile, to dtable
 * The cuts are fixed by the sorted order: no bit depends on timing, and a frequent id is spread
 * over as many blocks as it has tiles. The sort is CUB's radix sort, which is stable.
 *
 * The device cannot report an id outside the table: its row of h is NaN, its gradient goes nowhere.
 */
#include "op/pack.cuh"

#include "op/embed.h"

#include <cub/device/device_radix_sort.cuh>

enum {
    SORT_THREADS = 256,
    RUN_TILE = 32,    /* sorted tokens */
    RUN_THREADS = 128 /* columns, or packs of them */
};

/* forward */

template <typename T> static __device__ __forceinline__ void fill_nan(T *row, int64_t d)
{
    for (int64_t i = threadIdx.x; i < d; i += blockDim.x)
        row[i] = from_f32<T>(__uint_as_float(0x7FC00000u));
}

template <typename T, bool WIDE>
static __global__ void embed_fwd_kernel(const int32_t *id, const T *table, T *h, int64_t n,
                                        int64_t vocabulary, int64_t d)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= n) return;
    int64_t from = id[row];
    if (from < 0 || from >= vocabulary) {
        fill_nan(h + row * d, d);
        return;
    }
    move<WIDE>(table + from * d, h + row * d, d, (int)threadIdx.x, (int)blockDim.x);
}

extern "C" Status embed_fwd_cuda(struct Exec *ex, const void *args)
{
    const EmbedFwd *a = (const EmbedFwd *)args;
    const void *id = a->id.data, *table = a->table.data;
    void *h = a->h.data;
    int64_t n = tensor_elems(&a->id), d = tensor_cols(&a->table),
            rows = tensor_elems(&a->table) / d;
    return launch_packed("embed_fwd", a->table.dtype, { table, h }, { d }, [&](auto t, auto wide) {
        typedef decltype(t) T;
        dim3 block = row_block(d / (wide ? PACK<T> : 1));
        embed_fwd_kernel<T, wide><<<grid_of(n, block.y), block, 0, exec_stream(ex)>>>(
            (const int32_t *)id, (const T *)table, (T *)h, n, rows, d);
    });
}

/* The workspace of backward. */
typedef struct Space {
    uint32_t *key[2]; /* ids, before and after; `vocabulary` for one outside the table */
    int32_t *token[2];
    char *sort;  /* what the sort takes */
    float *part; /* (run tiles, 2, d): of the run that enters a tile, that leaves it */
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
    cub::DeviceRadixSort::SortPairs(NULL, s.sort_bytes, s.key[0], s.key[1], s.token[0], s.token[1],
                                    n);
    for (uint32_t *&key : s.key) key = (uint32_t *)(void *)carve(at, &s.bytes, (size_t)n * 4);
    for (int32_t *&token : s.token) token = (int32_t *)(void *)carve(at, &s.bytes, (size_t)n * 4);
    s.sort = carve(at, &s.bytes, s.sort_bytes);
    s.part = (float *)(void *)carve(at, &s.bytes, (size_t)(2 * d) * grid_of(n, RUN_TILE) * 4);
    return s;
}

static __global__ void embed_keys_kernel(const int32_t *id, int64_t n, uint32_t vocabulary,
                                         uint32_t *key, int32_t *token)
{
    int64_t i = (int64_t)blockIdx.x * SORT_THREADS + threadIdx.x;
    if (i >= n) return;
    bool known = id[i] >= 0 && (uint32_t)id[i] < vocabulary;
    key[i] = known ? (uint32_t)id[i] : vocabulary;
    token[i] = (int32_t)i;
}

/* Tokens by id, those of an id in their order, to the second copies. */
static Status tokens_sort(struct Exec *ex, const EmbedBwd *a, const Space *s)
{
    int64_t n = tensor_elems(&a->id);
    int64_t vocabulary = tensor_elems(&a->dtable) / tensor_cols(&a->dtable);
    size_t bytes = s->sort_bytes;
    embed_keys_kernel<<<grid_of(n, SORT_THREADS), SORT_THREADS, 0, exec_stream(ex)>>>(
        (const int32_t *)a->id.data, n, (uint32_t)vocabulary, s->key[0], s->token[0]);
    return cuda_status(cub::DeviceRadixSort::SortPairs(s->sort, bytes, s->key[0], s->key[1],
                                                       s->token[0], s->token[1], n, 0,
                                                       key_bits(vocabulary), exec_stream(ex)),
                       "embed_bwd");
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

/* The keys of a tile, with the one before it and the one behind it. */
typedef struct TileKeys {
    uint32_t key[RUN_TILE + 2];
    int32_t token[RUN_TILE];
} TileKeys;

template <typename T>
static __device__ __forceinline__ void tile_load(const Runs<T> &a, TileKeys *tile)
{
    const uint32_t none = 0xFFFFFFFFu; /* no id, and not `vocabulary` */
    int64_t first = (int64_t)blockIdx.x * RUN_TILE;
    int k = (int)threadIdx.x;
    if (k < RUN_TILE + 2) {
        int64_t i = first + k - 1;
        tile->key[k] = i >= 0 && i < a.n ? a.key[i] : none;
    }
    if (k < RUN_TILE) tile->token[k] = first + k < a.n ? a.token[first + k] : 0;
    __syncthreads();
}

/* A run, or the part of one, that ends with number k of the tile. */
template <bool WIDE, typename T, int P>
static __device__ __forceinline__ void run_finish(const Runs<T> &a, const TileKeys &tile, int k,
                                                  bool enters, int64_t col, const float (&sum)[P])
{
    uint32_t key = tile.key[k + 1];
    bool leaves = key == tile.key[k + 2];
    float *part = a.part + (int64_t)blockIdx.x * 2 * a.d + col;
    if (enters)
        store<WIDE>(part, sum);
    else if (leaves)
        store<WIDE>(part + a.d, sum);
    else if (key < a.vocabulary)
        row_add<WIDE>(a.dtable + key * a.d + col, sum);
}

template <typename T, bool WIDE> static __global__ void embed_runs_kernel(Runs<T> a)
{
    constexpr int P = WIDE ? PACK<T> : 1, BATCH = 4; /* rows that are on their way at a time */
    __shared__ TileKeys tile;
    tile_load(a, &tile);
    int64_t first = (int64_t)blockIdx.x * RUN_TILE;
    int64_t col = ((int64_t)blockIdx.y * RUN_THREADS + threadIdx.x) * P;
    int count = (int)min((int64_t)RUN_TILE, a.n - first);
    if (col >= a.d) return;
    bool enters = tile.key[0] == tile.key[1];
    float sum[P] = {};
    for (int k = 0; k < count; k += BATCH) {
        float dh[BATCH][P] = {};
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            if (k + j < count) load_const<WIDE>(a.dh + tile.token[k + j] * a.d + col, dh[j]);
        }
#pragma unroll
        for (int j = 0; j < BATCH; j++) {
            int at = k + j;
            if (at >= count) break;
#pragma unroll
            for (int p = 0; p < P; p++) sum[p] += dh[j][p];
            if (at + 1 < count && tile.key[at + 1] == tile.key[at + 2]) continue;
            run_finish<WIDE>(a, tile, at, enters, col, sum);
            enters = false;
#pragma unroll
            for (int p = 0; p < P; p++) sum[p] = 0;
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
    if (key != a.key[next] || key >= a.vocabulary) return; /* nothing leaves */
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

extern "C" size_t embed_bwd_cuda_workspace(const struct Exec *, const void *args)
{
    const EmbedBwd *a = (const EmbedBwd *)args;
    return space_of(NULL, a).bytes;
}

extern "C" Status embed_bwd_cuda(struct Exec *ex, const void *args)
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
        "embed_bwd", a->dh.dtype, { dh, dtable, s.part }, { d }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            Runs<T> r = { s.key[1], s.token[1], (const T *)dh, dtable, s.part, n, d, 0 };
            r.vocabulary = (uint32_t)rows;
            dim3 grid(grid_of(n, RUN_TILE), grid_of(d, RUN_THREADS * (wide ? PACK<T> : 1)));
            embed_runs_kernel<T, wide><<<grid, RUN_THREADS, 0, exec_stream(ex)>>>(r);
            embed_join_kernel<T, wide><<<grid, RUN_THREADS, 0, exec_stream(ex)>>>(r);
        });
}
