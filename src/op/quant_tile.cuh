/*
 * quant_tile: what a block of quantize does. It takes a tile of 128 rows x 128 columns of x: as
 * many as a block of scales covers. So it finds the largest magnitudes of rows, of columns and of
 * the tile alone, and writes both operands from one read of x.
 *
 * A thread keeps 16 rows x 8 columns of bf16 in registers. It then holds 16 bytes of each of its
 * columns, and 8 bytes of each of its rows: no transpose through shared memory is needed.
 * ACROSS lanes of a warp lie along a row, the others lie along columns. More lanes along a row
 * make reads and rows of 8-bit numbers longer, fewer make columns longer.
 *
 * A quotient is x / scale rounded once, as on the CPU, from the reciprocal and one correction:
 *
 *     q = x r,  r = 1 / scale            q' = q - (q scale - x) r
 *
 * For each of the 2^7 significands of bf16 and each of the 2^23 of a scale, q' was compared with
 * the quotient: all are equal. This holds while q scale - x does not underflow, so the scale must
 * be at least 2^-60. Numbers that it then loses are 0 in 8 bits anyway. The order of the terms
 * keeps the sign of a zero.
 *
 * A tile with a NaN, an infinity or a tiny scale is done again number by number (plain_*), as is x
 * in f32 and all whose rows are not aligned.
 */
#ifndef OP_QUANT_TILE_CUH
#define OP_QUANT_TILE_CUH

#include "gpu/eight_bit.cuh"
#include "op/dtype.cuh"

extern "C" {
#include "op/quant.h"
}

#include <cfloat>

namespace quant
{

enum {
    TILE = OPERAND_BLOCK,
    THREADS = TILE, /* plain code gives a column to each */
    WARPS = THREADS / WARP,
    PACK_COLS = 8,  /* of a thread: 16 bytes of bf16 */
    ROWS_EACH = 16, /* of a thread: 16 bytes of a column in 8 bits */
    PACKS = TILE / PACK_COLS,
    RUN = WARPS, /* tiles that a block takes one after another, at most */
    PAD = TILE / WARP * 2
};

static_assert(TILE / ROWS_EACH * PACKS == THREADS, "the threads of a block cover a tile");

static const uint32_t INFINITE = 0x7F800000u, NOT_A_NUMBER = 0x7FC00000u;
static const float LEAST_SCALE = 0x1p-60f;

/* One of the two operands. */
typedef struct Side {
    uint8_t *data; /* NULL: it is not asked for */
    float *scale;
    uint32_t *amax; /* not NULL: a scale covers several tiles. Largest magnitudes as bits of f32 */
    OperandKind kind;
    int64_t rows, cols; /* scales of one matrix */
    bool lines, whole;  /* a pass needs the largest of each row (or column), and of the tile */
} Side;

/* A call as blocks see it. rows: data lies as x does; columns: data is transposed. */
typedef struct Job {
    const void *x;
    Side rows, columns;
    const int32_t *row_token, *offsets, *device, *first; /* as in Quantize; NULL: none */
    int64_t n, d, groups;                                /* n: rows of a matrix, R */
    int64_t width;                                       /* columns of the transposed data */
    int64_t matrices;
    int64_t strips; /* of a matrix: tiles of rows */
    int64_t tiles;  /* of a strip */
    int run;        /* tiles that a block takes, 1 .. RUN */
    bool pow2;
} Job;

/* Up to 128 rows of x. They become columns [column, column + 128) of the transposed data. */
typedef struct Strip {
    int64_t matrix, group;
    int64_t first, column;
    int n, live;  /* rows that exist, and that are in use */
    bool columns; /* false: rows alone are made of it */
} Strip;

/* What the threads of a block tell each other. */
typedef struct Shared {
    Strip strip[RUN];
    int64_t source[RUN][TILE];                  /* the row of x */
    uint32_t row_most[TILE], column_most[TILE]; /* largest magnitudes, as bits of f32 */
    uint32_t most;
    float2 row_scale[TILE], column_scale[TILE]; /* and its reciprocal */
    float kept[RUN][TILE + PAD];                /* scales of a run */
} Shared;

static __device__ __forceinline__ int64_t live_rows(const Job &job)
{
    return job.device == NULL ? job.n : min(job.n, (int64_t)*job.device);
}

static __device__ __forceinline__ int clamp_rows(int64_t n)
{
    return (int)max((int64_t)0, min((int64_t)TILE, n));
}

static __device__ __forceinline__ Strip matrix_strip(const Job &job, int64_t number)
{
    Strip s = {};
    s.matrix = number / job.strips;
    s.column = s.first = number % job.strips * TILE;
    s.n = clamp_rows(job.n - s.first);
    s.live = min(s.n, clamp_rows(live_rows(job) - s.first));
    s.columns = true;
    return s;
}

/* Rows after the last group are a group of their own, of which only rows are made. All lanes of a
 * warp call it; they look at WARP groups at a time. */
static __device__ __forceinline__ Strip group_strip(const Job &job, int64_t number)
{
    int64_t before = 0, live = live_rows(job);
    int lane = (int)threadIdx.x % WARP;
    Strip s = {};
    s.column = number * TILE;
    for (int64_t from = 0; from <= job.groups; from += WARP) {
        int64_t e = from + lane, begin = 0, end = 0;
        if (e <= job.groups) begin = min((int64_t)job.offsets[e], live);
        if (e < job.groups) end = min((int64_t)job.offsets[e + 1], live);
        if (e == job.groups) end = job.n;
        int blocks = (int)max((int64_t)0, (end - begin + TILE - 1) / TILE), up_to = blocks;
        for (int step = 1; step < WARP; step *= 2) {
            int lower = lane_get_lower(up_to, step);
            up_to += lane >= step ? lower : 0;
        }
        int64_t place = number - before - (up_to - blocks);
        int hit = lanes_first(lanes_where(place >= 0 && place < blocks));
        before += lane_get(up_to, WARP - 1);
        if (hit < 0) continue;
        s.group = from + hit;
        s.first = lane_get(begin + place * TILE, hit);
        s.n = clamp_rows(lane_get(end, hit) - s.first);
        s.live = min(s.n, clamp_rows(live - s.first));
        s.columns = s.group < job.groups;
        return s;
    }
    return s;
}

/* ---- scales ---- */

static __device__ __forceinline__ float scale_of(uint32_t amax, float largest, bool pow2)
{
    float quotient = fmaxf(__uint_as_float(amax) / largest, FLT_MIN);
    uint32_t bits = __float_as_uint(quotient);
    if (pow2 && (bits & 0x007FFFFFu) != 0) bits = (bits & INFINITE) + 0x00800000u;
    bits = amax == INFINITE ? NOT_A_NUMBER : bits;
    return amax == 0 ? 1.0f : __uint_as_float(bits);
}

/* Where the scale of row or column i of the tile is. The scales of rows lie by rows of x, those of
 * columns by columns of x. */
static __device__ __forceinline__ int64_t row_scale_at(const Job &job, const Strip &s, int64_t tile,
                                                       int64_t i)
{
    const Side &q = job.rows;
    int64_t row = s.first + i;
    if (q.kind == OPERAND_TENSOR) return s.matrix;
    if (q.kind == OPERAND_ROW) return s.matrix * job.n + row;
    if (q.kind == OPERAND_1X128) return (s.matrix * job.n + row) * q.cols + tile;
    return (s.matrix * q.rows + row / TILE) * q.cols + tile;
}

static __device__ __forceinline__ int64_t column_scale_at(const Job &job, const Strip &s,
                                                          int64_t tile, int64_t i)
{
    const Side &q = job.columns;
    int64_t column = tile * TILE + i, block = s.column / TILE;
    if (q.kind == OPERAND_TENSOR) return s.matrix;
    if (q.kind == OPERAND_ROW) return (s.matrix * job.d + column) * q.cols + s.group;
    if (q.kind == OPERAND_1X128) return (s.matrix * job.d + column) * q.cols + block;
    return (s.matrix * q.rows + tile) * q.cols + block;
}

/* The scale of this thread's row or column: `most` makes it if the tile decides it alone. Then it
 * is also stored at `to`, unless that is NULL. */
static __device__ __forceinline__ float2 scale_make(const Side &q, int64_t at, uint32_t most,
                                                    float largest, bool pow2, float *to)
{
    float scale = q.amax != NULL ? q.scale[at] : scale_of(most, largest, pow2);
    if (q.amax == NULL && to != NULL) *to = scale;
    return make_float2(scale, 1.0f / scale);
}

/* Thread i makes the scale of row i. Returns: is it too small for quotient()? */
template <typename F>
static __device__ __forceinline__ bool row_scale_make(const Job &job, const Strip &s, int64_t tile,
                                                      Shared &sh, float *kept)
{
    int i = (int)threadIdx.x;
    if (i >= s.n) return false;
    bool block = job.rows.kind == OPERAND_128X128;
    int64_t at = row_scale_at(job, s, tile, i);
    float *to = !block ? kept + i : i == 0 ? job.rows.scale + at : NULL;
    uint32_t most = block ? sh.most : sh.row_most[i];
    sh.row_scale[i] = scale_make(job.rows, at, most, F::largest(), job.pow2, to);
    return !(sh.row_scale[i].x >= LEAST_SCALE);
}

/* The same for column i. A strip that makes no columns may lie where columns without rows do: their
 * scale is 1. kept NULL: scales are stored at once. */
template <typename F>
static __device__ __forceinline__ bool column_scale_make(const Job &job, const Strip &s,
                                                         int64_t tile, Shared &sh, float *kept)
{
    int i = (int)threadIdx.x;
    if (tile * TILE + i >= job.d || s.column >= job.width) return false;
    if (!s.columns && job.columns.amax != NULL) return false;
    bool block = job.columns.kind == OPERAND_128X128;
    int64_t at = column_scale_at(job, s, tile, i);
    float *to = block || kept == NULL ? job.columns.scale + at : kept + i;
    if (block && i > 0) to = NULL;
    uint32_t most = !s.columns ? 0 : block ? sh.most : sh.column_most[i];
    sh.column_scale[i] = scale_make(job.columns, at, most, F::largest(), job.pow2, to);
    return !(sh.column_scale[i].x >= LEAST_SCALE);
}

/* Writes the scales of a run. Those of a row (or column) of the run lie together, so they are
 * written by neighbouring threads: one by one they would be as many memory accesses as an eighth of
 * the data. */
template <bool ROWS>
static __device__ __forceinline__ void kept_write(const Job &job, int64_t tile, const Shared &sh)
{
    const Side &q = ROWS ? job.rows : job.columns;
    if (q.kind != OPERAND_1X128) return;
    for (int k = (int)threadIdx.x; k < TILE * RUN; k += THREADS) {
        int i = k / RUN, t = k % RUN;
        const Strip &s = sh.strip[ROWS ? 0 : t];
        if (t >= job.run) continue;
        if (ROWS && i < s.n && tile + t < job.tiles)
            q.scale[row_scale_at(job, s, tile + t, i)] = sh.kept[t][i];
        if (!ROWS && s.column < job.width && tile * TILE + i < job.d)
            q.scale[column_scale_at(job, s, tile, i)] = sh.kept[t][i];
    }
}

/* ---- number by number: a thread has a column ---- */

template <typename T>
static __device__ __forceinline__ float number_at(const Job &job, const int64_t *source, int i,
                                                  int64_t col)
{
    return to_f32(((const T *)job.x)[source[i] * job.d + col]);
}

static __device__ __forceinline__ void most_clear(Shared &sh)
{
    sh.row_most[threadIdx.x] = sh.column_most[threadIdx.x] = 0;
    if (threadIdx.x == 0) sh.most = 0;
}

/* The largest magnitudes. A NaN does not enter. */
template <typename T>
static __device__ void plain_most(const Job &job, const Strip &s, int64_t tile,
                                  const int64_t *source, Shared &sh)
{
    int64_t col = tile * TILE + threadIdx.x;
    uint32_t column = 0;
    most_clear(sh);
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < s.live; i++) {
        float v = col < job.d ? number_at<T>(job, source, i, col) : 0.0f;
        uint32_t bits = __float_as_uint(v) & 0x7FFFFFFFu;
        bits = bits > INFINITE ? 0 : bits;
        column = max(column, bits);
        uint32_t row = lanes_max(bits);
        if (threadIdx.x % WARP == 0) atomicMax(&sh.row_most[i], row);
    }
    sh.column_most[threadIdx.x] = column;
    column = lanes_max(column);
    if (threadIdx.x % WARP == 0) atomicMax(&sh.most, column);
    __syncthreads();
}

template <typename F> static __device__ __forceinline__ uint8_t plain_code(float v, float scale)
{
    const float largest = F::largest();
    float q = fminf(fmaxf(v / scale, -largest), largest);
    q = isnan(scale) ? scale : q;
    return F::narrow(isnan(v) ? v : q); /* a NaN keeps its bits, as on the CPU */
}

template <typename T, typename F, bool ROWS, bool COLUMNS>
static __device__ void plain_write(const Job &job, const Strip &s, int64_t tile,
                                   const int64_t *source, const Shared &sh)
{
    int64_t col = tile * TILE + threadIdx.x;
    if (col >= job.d) return;
    uint8_t *row = ROWS ? job.rows.data + (s.matrix * job.n + s.first) * job.d + col : NULL;
    uint8_t *column = NULL;
    if (COLUMNS && s.columns)
        column = job.columns.data + (s.matrix * job.d + col) * job.width + s.column;
    float scale = COLUMNS ? sh.column_scale[threadIdx.x].x : 0;
#pragma unroll 1
    for (int i = 0; i < s.live; i++) {
        float v = number_at<T>(job, source, i, col);
        if (ROWS) row[i * job.d] = plain_code<F>(v, sh.row_scale[i].x);
        if (COLUMNS && column != NULL) column[i] = plain_code<F>(v, scale);
    }
    if constexpr (COLUMNS) {
        int64_t end = column == NULL || s.live == 0 ? 0 : min((int64_t)TILE, job.width - s.column);
#pragma unroll 1
        for (int64_t i = s.live; i < end; i++) column[i] = 0;
    }
}

/* ---- bf16 in packs ---- */

/* The thread's place in a tile: its first row, and its pack of columns. */
template <int ACROSS> struct Place {
    static constexpr int WIDE = PACKS / ACROSS; /* warps that lie along a row */
    int lane, pack, row;

    __device__ __forceinline__ Place()
    {
        int warp = (int)threadIdx.x / WARP;
        lane = (int)threadIdx.x % WARP;
        pack = warp % WIDE * ACROSS + lane % ACROSS;
        row = (warp / WIDE * (WARP / ACROSS) + lane / ACROSS) * ROWS_EACH;
    }
};

/* 16 rows of a pack of columns: word[i] has columns 0 and 1, 2 and 3, ... of row i. */
typedef struct Patch {
    uint4 word[ROWS_EACH];
} Patch;

static __device__ __forceinline__ uint32_t word_of(const uint4 &w, int k)
{
    return k == 0 ? w.x : k == 1 ? w.y : k == 2 ? w.z : w.w;
}

/* Column k of row i. */
static __device__ __forceinline__ float patch_at(const Patch &p, int i, int k)
{
    uint32_t word = word_of(p.word[i], k / 2);
    return __uint_as_float(k % 2 == 0 ? word << 16 : word & 0xFFFF0000u);
}

/* Keeps the compiler from holding what it computed from the patch: that would take twice the
 * registers. */
static __device__ __forceinline__ void patch_forget(Patch &p)
{
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        value_forget(p.word[i].x), value_forget(p.word[i].y);
        value_forget(p.word[i].z), value_forget(p.word[i].w);
    }
}

template <int ACROSS>
static __device__ __forceinline__ void patch_load(const Job &job, const Strip &s, int64_t tile,
                                                  const int64_t *source, Patch &p)
{
    Place<ACROSS> at;
    int64_t col = tile * TILE + at.pack * PACK_COLS;
    const Bf16 *x = (const Bf16 *)job.x + col;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        p.word[i] = make_uint4(0, 0, 0, 0);
        if (at.row + i < s.live && col < job.d)
            p.word[i] = read_once((const uint4 *)(x + source[at.row + i] * job.d));
    }
}

/* Lanes whose numbers differ in bits [FROM, TO) have the same rows, or the same columns. */
template <int FROM, int TO> static __device__ __forceinline__ uint32_t lanes_most(uint32_t v)
{
#pragma unroll
    for (int bit = FROM; bit < TO; bit *= 2) v = pair_most(v, lane_get_xor(v, bit));
    return v;
}

static __device__ __forceinline__ void most_raise(uint32_t *low, uint32_t *high, uint32_t pair)
{
    atomicMax(low, pair << 16);
    atomicMax(high, pair & 0xFFFF0000u);
}

/* The largest of two neighbouring rows of a pack. */
static __device__ __forceinline__ uint32_t rows_most(const uint4 &one, const uint4 &two)
{
    uint32_t a = pair_most(pair_most(one.x, one.y), pair_most(one.z, one.w));
    uint32_t b = pair_most(pair_most(two.x, two.y), pair_most(two.z, two.w));
    return pair_most(__byte_perm(a, b, 0x5410), __byte_perm(a, b, 0x7632));
}

/* The largest magnitudes of the thread's rows and columns, two to a word, and of all. */
template <bool ROWS, bool COLUMNS> struct PatchMost {
    uint32_t row[ROWS ? ROWS_EACH / 2 : 1], column[COLUMNS ? PACK_COLS / 2 : 1], all;

    __device__ __forceinline__ explicit PatchMost(const Patch &p) : row(), column(), all(0)
    {
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i += 2) {
            const uint4 &a = p.word[i], &b = p.word[i + 1];
            if constexpr (ROWS) {
                row[i / 2] = rows_most(a, b);
                all = pair_most(all, row[i / 2]);
            }
            if constexpr (COLUMNS) {
#pragma unroll
                for (int k = 0; k < PACK_COLS / 2; k++)
                    column[k] = pair_most(column[k], pair_most(word_of(a, k), word_of(b, k)));
            }
        }
        if constexpr (!ROWS)
            all = pair_most(pair_most(column[0], column[1]), pair_most(column[2], column[3]));
        all = max(all << 16, all & 0xFFFF0000u);
    }
};

/* The largest magnitudes of the block's rows, columns or of all. Returns: does the thread have a
 * NaN or an infinity? */
template <int ACROSS, bool ROWS, bool COLUMNS>
static __device__ __forceinline__ bool patch_most(const Job &job, const Patch &p, Shared &sh)
{
    Place<ACROSS> at;
    PatchMost<ROWS, COLUMNS> most(p);
    if ((ROWS && job.rows.whole) || (COLUMNS && job.columns.whole)) {
        uint32_t all = lanes_max(most.all);
        if (at.lane == 0) atomicMax(&sh.most, all);
    }
    if constexpr (COLUMNS) {
#pragma unroll
        for (int k = 0; k < PACK_COLS / 2; k++) {
            if (!job.columns.lines) break;
            uint32_t pair = lanes_most<ACROSS, WARP>(most.column[k]);
            uint32_t *to = sh.column_most + at.pack * PACK_COLS + 2 * k;
            if (at.lane / ACROSS == k % (WARP / ACROSS)) most_raise(to, to + 1, pair);
        }
    }
    if constexpr (ROWS) {
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i += 2) {
            if (!job.rows.lines) break;
            uint32_t pair = lanes_most<1, ACROSS>(most.row[i / 2]);
            uint32_t *to = sh.row_most + at.row + i;
            if (at.lane % ACROSS == i / 2 % ACROSS) most_raise(to, to + 1, pair);
        }
    }
    return most.all >= INFINITE;
}

template <typename F> static __device__ __forceinline__ uint32_t pair_to_code(float low, float high)
{
    if constexpr (std::is_same<F, E4M3>::value)
        return pair_to_e4m3(low, high);
    else
        return pair_to_e5m2(low, high);
}

/* v / scale.x, rounded once: the file's comment explains it. */
static __device__ __forceinline__ float quotient(float v, float2 scale)
{
    float q = v * scale.y;
    return fmaf(-fmaf(q, scale.x, -v), scale.y, q);
}

template <typename F, int ACROSS>
static __device__ __forceinline__ void rows_write(const Job &job, const Strip &s, int64_t tile,
                                                  const Patch &p, const Shared &sh)
{
    Place<ACROSS> at;
    int64_t col = tile * TILE + at.pack * PACK_COLS;
    uint8_t *to = job.rows.data + (s.matrix * job.n + s.first + at.row) * job.d + col;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        float2 scale = sh.row_scale[at.row + i];
        uint32_t word[2] = {};
#pragma unroll
        for (int k = 0; k < PACK_COLS; k += 2) {
            float low = quotient(patch_at(p, i, k), scale);
            float high = quotient(patch_at(p, i, k + 1), scale);
            word[k / 4] |= pair_to_code<F>(low, high) << (k % 4 * 8);
        }
        if (at.row + i < s.live && col < job.d)
            write_whole((uint2 *)(to + i * job.d), make_uint2(word[0], word[1]));
    }
}

/* Rows that are not in use are 0 in the patch, and so in the columns. */
template <typename F, int ACROSS>
static __device__ __forceinline__ void columns_write(const Job &job, const Strip &s, int64_t tile,
                                                     const Patch &p, const Shared &sh)
{
    Place<ACROSS> at;
    int64_t col = tile * TILE + at.pack * PACK_COLS;
    if (!s.columns || s.live == 0 || col >= job.d || s.column + at.row >= job.width) return;
    uint8_t *to = job.columns.data + (s.matrix * job.d + col) * job.width + s.column + at.row;
#pragma unroll
    for (int k = 0; k < PACK_COLS; k++) {
        float2 scale = sh.column_scale[at.pack * PACK_COLS + k];
        uint32_t word[4] = {};
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i += 2) {
            float low = quotient(patch_at(p, i, k), scale);
            float high = quotient(patch_at(p, i + 1, k), scale);
            word[i / 4] |= pair_to_code<F>(low, high) << (i % 4 * 8);
        }
        write_whole((uint4 *)(to + k * job.width), make_uint4(word[0], word[1], word[2], word[3]));
    }
}

/* ---- the kernels ---- */

/* A block takes a run of tiles of one strip or, if columns alone are made, of strips: those whose
 * scales lie together. */
template <bool ROWS> static __host__ __device__ __forceinline__ int64_t runs_of(const Job &job)
{
    return ((ROWS ? job.tiles : job.strips) + job.run - 1) / job.run;
}

/* Finds the block's strips, one a warp, and the rows of x that they read. Returns the block's first
 * tile. */
template <bool ROWS> static __device__ __forceinline__ int64_t run_open(const Job &job, Shared &sh)
{
    int warp = (int)threadIdx.x / WARP, i = (int)threadIdx.x;
    int64_t runs = runs_of<ROWS>(job), number = blockIdx.x / runs,
            tile = blockIdx.x % runs * job.run;
    int64_t first = job.first == NULL ? 0 : *job.first;
    bool exists = warp == 0;
    if (!ROWS) {
        int64_t unit = blockIdx.x / job.tiles, begin = unit % runs * job.run + warp;
        exists = warp < job.run && begin < job.strips;
        number = unit / runs * job.strips + begin;
        tile = blockIdx.x % job.tiles;
    }
    Strip s = {};
    if (exists) s = job.offsets == NULL ? matrix_strip(job, number) : group_strip(job, number);
    if (!exists) s.column = job.width;
    if (i % WARP == 0) sh.strip[warp] = s;
    __syncthreads();
    for (int t = 0; t < job.run; t++) {
        const Strip &at = sh.strip[t];
        int64_t row = at.first + i;
        if (i >= at.live)
            sh.source[t][i] = 0;
        else
            sh.source[t][i] =
                job.row_token != NULL ? job.row_token[row] : at.matrix * job.n + first + row;
    }
    return tile;
}

/* Calls run(strip, tile, step of the run) for the block's tiles. All threads do. */
template <bool ROWS, typename F>
static __device__ __forceinline__ void run_tiles(const Job &job, int64_t tile, const Shared &sh,
                                                 F run)
{
    for (int step = 0; step < job.run; step++) {
        const Strip s = sh.strip[ROWS ? 0 : step];
        if ((s.n == 0 && s.column >= job.width) || tile + (ROWS ? step : 0) >= job.tiles) return;
        run(s, tile + (ROWS ? step : 0), step);
    }
}

/* The largest magnitudes of a tile. Returns: must it be written number by number? ACROSS 0: it
 * must always. */
template <typename T, int ACROSS, bool ROWS, bool COLUMNS>
static __device__ __forceinline__ bool tile_most(const Job &job, const Strip &s, int64_t tile,
                                                 const int64_t *source, Shared &sh, Patch &p)
{
    __syncthreads(); /* the tile before is done */
    most_clear(sh);
    __syncthreads();
    bool strange = true;
    if constexpr (ACROSS > 0) {
        patch_load<ACROSS>(job, s, tile, source, p);
        strange = __syncthreads_or(patch_most<ACROSS, ROWS, COLUMNS>(job, p, sh));
    }
    if (strange) plain_most<T>(job, s, tile, source, sh);
    return strange;
}

template <typename T, typename F, int ACROSS, bool ROWS, bool COLUMNS>
static __global__ __launch_bounds__(THREADS, 4) void quantize_kernel(const Job job)
{
    __shared__ Shared sh;
    int64_t first = run_open<ROWS>(job, sh);
    run_tiles<ROWS>(job, first, sh, [&](const Strip &s, int64_t tile, int step) {
        const int64_t *source = sh.source[ROWS ? 0 : step];
        Patch p;
        bool strange = tile_most<T, ACROSS, ROWS, COLUMNS>(job, s, tile, source, sh, p);
        if (ROWS) strange |= row_scale_make<F>(job, s, tile, sh, sh.kept[step]);
        if (COLUMNS) strange |= column_scale_make<F>(job, s, tile, sh, ROWS ? NULL : sh.kept[step]);
        strange = __syncthreads_or(strange);
        if (strange) plain_write<T, F, ROWS, COLUMNS>(job, s, tile, source, sh);
        if constexpr (ACROSS > 0) {
            if (ROWS && !strange) rows_write<F, ACROSS>(job, s, tile, p, sh);
            if (ROWS && COLUMNS) patch_forget(p);
            if (COLUMNS && !strange) columns_write<F, ACROSS>(job, s, tile, p, sh);
        }
    });
    kept_write<ROWS>(job, first, sh); /* all tiles had a barrier after their scales */
}

static __device__ __forceinline__ void amax_raise(const Side &q, int64_t at, bool inside,
                                                  uint32_t line, uint32_t whole)
{
    bool tensor = q.kind == OPERAND_TENSOR;
    if (q.amax == NULL || !inside || (tensor && threadIdx.x > 0)) return;
    atomicMax(&q.amax[at], tensor ? whole : line);
}

/* Raises the largest magnitudes of scales that cover several tiles. */
template <typename T, int ACROSS, bool ROWS, bool COLUMNS>
static __global__ __launch_bounds__(THREADS) void amax_kernel(const Job job)
{
    __shared__ Shared sh;
    int64_t first = run_open<ROWS>(job, sh);
    run_tiles<ROWS>(job, first, sh, [&](const Strip &s, int64_t tile, int step) {
        int i = (int)threadIdx.x;
        Patch p;
        tile_most<T, ACROSS, ROWS, COLUMNS>(job, s, tile, sh.source[ROWS ? 0 : step], sh, p);
        __syncthreads();
        if (ROWS)
            amax_raise(job.rows, row_scale_at(job, s, tile, i), i < s.live, sh.row_most[i],
                       sh.most);
        if (COLUMNS)
            amax_raise(job.columns, column_scale_at(job, s, tile, i),
                       s.columns && tile * TILE + i < job.d, sh.column_most[i], sh.most);
    });
}

} // namespace quant

#endif
