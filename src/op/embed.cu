/*
 * forward: a block takes rows, its threads lie along them.
 *
 * backward adds rows that meet in the same row of dtable, and must add them in one order without
 * atomics on floats. So tokens are sorted by id first (stable, so those of an id stay in the order
 * of n), which costs 4 integers a token, and then
 *   runs   a block takes RUN_TILE sorted tokens, its threads columns, and adds up runs of one id. A
 *          run inside the tile goes to dtable; a part of one that crosses an edge to the workspace
 *   join   the tile in which such a run begins adds its parts, tile after tile, to dtable
 * The cuts are fixed by the sorted order: no bit depends on timing, and a frequent id is spread
 * over as many blocks as it has tiles. The sort is by digits of 8 bits from the lowest on: count
 * the digits of each tile, turn counts into places, move; atomics only count.
 *
 * The device cannot report an id outside the table: its row of h is NaN, its gradient goes nowhere.
 */
#include "op/pack.cuh"

#include "op/embed.h"

enum {
    WARP = 32,
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    SORT_TILE = 1024, /* tokens, one a thread */
    SORT_WARPS = SORT_TILE / WARP,
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
    uint32_t *key[2]; /* ids; `vocabulary` for one outside the table */
    int32_t *token[2];
    uint32_t *count, *place; /* (DIGITS, tiles) */
    float *part;             /* (run tiles, 2, d): of the run that enters a tile, that leaves it */
    size_t bytes;
} Space;

static char *carve(char *base, size_t *used, int64_t elems)
{
    char *at = base + *used;
    *used += arena_rounded((size_t)elems * 4);
    return at;
}

static Space space_of(void *base, int64_t n, int64_t d)
{
    Space s = {};
    char *at = (char *)base;
    int64_t counts = DIGITS * (int64_t)grid_of(n, SORT_TILE);
    for (int i = 0; i < 2; i++) s.key[i] = (uint32_t *)(void *)carve(at, &s.bytes, n);
    for (int i = 0; i < 2; i++) s.token[i] = (int32_t *)(void *)carve(at, &s.bytes, n);
    s.count = (uint32_t *)(void *)carve(at, &s.bytes, counts);
    s.place = (uint32_t *)(void *)carve(at, &s.bytes, counts);
    s.part = (float *)(void *)carve(at, &s.bytes, 2 * d * grid_of(n, RUN_TILE));
    return s;
}

/* sort */

static __global__ void embed_keys_kernel(const int32_t *id, int64_t n, uint32_t vocabulary,
                                         uint32_t *key, int32_t *token)
{
    int64_t i = (int64_t)blockIdx.x * SORT_TILE + threadIdx.x;
    if (i >= n) return;
    bool known = id[i] >= 0 && (uint32_t)id[i] < vocabulary;
    key[i] = known ? (uint32_t)id[i] : vocabulary;
    token[i] = (int32_t)i;
}

static __device__ __forceinline__ uint32_t digit_of(uint32_t key, int shift)
{
    return key >> shift & (DIGITS - 1);
}

/* How often each digit occurs in each tile. */
static __global__ void embed_count_kernel(const uint32_t *key, int64_t n, int shift,
                                          uint32_t *count)
{
    __shared__ uint32_t seen[DIGITS];
    int64_t i = (int64_t)blockIdx.x * SORT_TILE + threadIdx.x;
    if (threadIdx.x < DIGITS) seen[threadIdx.x] = 0;
    __syncthreads();
    if (i < n) atomicAdd(&seen[digit_of(key[i], shift)], 1u);
    __syncthreads();
    if (threadIdx.x < DIGITS)
        count[(int64_t)threadIdx.x * gridDim.x + blockIdx.x] = seen[threadIdx.x];
}

/* v of this thread and of all before it; `room` holds DIGITS numbers. */
static __device__ __forceinline__ uint32_t block_prefix(uint32_t v, uint32_t *room)
{
    int thread = (int)threadIdx.x;
    room[thread] = v;
    __syncthreads();
    for (int back = 1; back < DIGITS; back *= 2) {
        uint32_t before = thread >= back ? room[thread - back] : 0;
        __syncthreads();
        room[thread] += before;
        __syncthreads();
    }
    return room[thread];
}

/* place[digit][tile] = counts of all smaller digits, and of this one in earlier tiles. A block a
 * digit, DIGITS threads: each adds up what lies before its digit by itself, which is little beside
 * the rows that are moved later. */
static __global__ void embed_place_kernel(const uint32_t *count, int64_t tiles, uint32_t *place)
{
    __shared__ uint32_t room[DIGITS];
    int64_t first = blockIdx.x * tiles;
    uint32_t sum = 0;
    for (int64_t i = threadIdx.x; i < first; i += DIGITS) sum += count[i];
    block_prefix(sum, room);
    uint32_t before = room[DIGITS - 1];
    for (int64_t tile = 0; tile < tiles; tile += DIGITS) {
        int64_t i = tile + threadIdx.x;
        uint32_t own = i < tiles ? count[first + i] : 0;
        __syncthreads();
        uint32_t through = block_prefix(own, room);
        if (i < tiles) place[first + i] = before + through - own;
        before += room[DIGITS - 1];
    }
}

typedef struct Move {
    const uint32_t *key, *place;
    const int32_t *token;
    uint32_t *key_to;
    int32_t *token_to;
    int64_t n;
    int shift;
} Move;

/* Each token to its digit's place, those of a digit in their order: by warp, and in a warp by lane.
 */
static __global__ __launch_bounds__(SORT_TILE) void embed_move_kernel(Move a)
{
    __shared__ uint32_t next[SORT_WARPS][DIGITS]; /* counts of a warp's digits, then their places */
    int thread = (int)threadIdx.x, warp = thread / WARP;
    int64_t i = (int64_t)blockIdx.x * SORT_TILE + thread;
    for (int k = thread; k < SORT_WARPS * DIGITS; k += SORT_TILE) next[k / DIGITS][k % DIGITS] = 0;
    __syncthreads();
    uint32_t key = i < a.n ? a.key[i] : 0, digit = i < a.n ? digit_of(key, a.shift) : DIGITS;
    uint32_t same = __match_any_sync(0xFFFFFFFFu, digit);
    int rank = __popc(same & ((1u << (thread % WARP)) - 1));
    if (i < a.n && rank == 0) next[warp][digit] = (uint32_t)__popc(same);
    __syncthreads();
    if (thread < DIGITS) {
        uint32_t at = a.place[(int64_t)thread * gridDim.x + blockIdx.x];
        for (int w = 0; w < SORT_WARPS; w++) {
            uint32_t count = next[w][thread];
            next[w][thread] = at;
            at += count;
        }
    }
    __syncthreads();
    if (i >= a.n) return;
    a.key_to[next[warp][digit] + rank] = key;
    a.token_to[next[warp][digit] + rank] = a.token[i];
}

/* Sorts the tokens; *side: in which of the two copies they are then. */
static Status tokens_sort(struct Exec *ex, const EmbedBwd *a, const Space *s, int *side)
{
    int64_t n = tensor_elems(&a->id), tiles = grid_of(n, SORT_TILE);
    uint32_t vocabulary = (uint32_t)(tensor_elems(&a->dtable) / tensor_cols(&a->dtable));
    cudaStream_t stream = exec_stream(ex);
    *side = 0;
    embed_keys_kernel<<<(unsigned)tiles, SORT_TILE, 0, stream>>>(
        (const int32_t *)a->id.data, n, vocabulary, s->key[0], s->token[0]);
    for (int shift = 0; shift < 32 && vocabulary >> shift > 0; shift += DIGIT_BITS) {
        int from = *side, to = 1 - from;
        Move m = { s->key[from], s->place, s->token[from], s->key[to], s->token[to], n, shift };
        embed_count_kernel<<<(unsigned)tiles, SORT_TILE, 0, stream>>>(m.key, n, shift, s->count);
        embed_place_kernel<<<DIGITS, DIGITS, 0, stream>>>(s->count, tiles, s->place);
        embed_move_kernel<<<(unsigned)tiles, SORT_TILE, 0, stream>>>(m);
        *side = to;
    }
    return kernel_status("embed_bwd");
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

extern "C" size_t embed_bwd_cuda_workspace(const struct Exec *ex, const void *args)
{
    const EmbedBwd *a = (const EmbedBwd *)args;
    (void)ex;
    return space_of(NULL, tensor_elems(&a->id), tensor_cols(&a->dtable)).bytes;
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
    Space s = space_of(exec_workspace(ex), n, d);
    int side = 0;
    TRY(tokens_sort(ex, a, &s, &side));
    return launch_packed(
        "embed_bwd", a->dh.dtype, { dh, dtable, s.part }, { d }, [&](auto t, auto wide) {
            typedef decltype(t) T;
            Runs<T> r = { s.key[side], s.token[side], (const T *)dh, dtable, s.part, n, d, 0 };
            r.vocabulary = (uint32_t)rows;
            dim3 grid(grid_of(n, RUN_TILE), grid_of(d, RUN_THREADS * (wide ? PACK<T> : 1)));
            embed_runs_kernel<T, wide><<<grid, RUN_THREADS, 0, exec_stream(ex)>>>(r);
            embed_join_kernel<T, wide><<<grid, RUN_THREADS, 0, exec_stream(ex)>>>(r);
        });
}
