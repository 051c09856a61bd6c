/*
 * quant_tile: what a block of quantize does. A scale covers at most 128 rows x 128 columns of x, and a block of threads
 * takes several of these. So it finds the largest magnitudes alone, and writes both operands from one read of x.
 *
 * A thread keeps 16 rows x 8 columns of bf16 in registers. It then holds 16 bytes of each of its columns, and 8 bytes
 * of each of its rows: no transpose through shared memory is needed. x in f32 that counts as rounded to bf16 is rounded
 * as it is loaded (Rounded). Shapes differ in how threads lie (Shape):
 *
 *     Square   128 x 128   a scale for each 128 x 128
 *     Large    256 x 128   both operands
 *     Flat      32 x 512   rows: long reads and writes, and four scales of a row lie together
 *     Tall     256 x 64    columns: long writes, and two scales of a column lie together
 *     Folded   128 x 256   128 columns of each half of a row: halves that are made together
 *
 * Bound by memory. Measured with x of 32,768 x 7168 (128 x 128: 64 x 2816 x 2048), TB/s of all bytes:
 *
 *                                     H200    H100
 *     copy                            4.19    2.97
 *     rows 1 x 128                    3.85    2.79
 *     columns 1 x 128                 3.53    2.57
 *     both 1 x 128                    3.18    2.34
 *     128 x 128                       4.03    2.89
 *     128 x 128 transposed            3.97    2.87
 *     128 x 128 both                  3.83    2.83
 *
 * x of 16 x 2816 x 2048, 128 x 128 both, H200: 3.39 from Rounded, 3.61 from bf16. A lane reads the two halves
 * of 32 bytes one after the other.
 *
 * Stores of scales are what columns lose: one by one, those of 1 x 128 are as many memory accesses as half of the
 * data's stores. Squares throughout made 2.61 of rows and 2.33 of columns (H100). For columns 512 x 64 made 2.67 there
 * but 3.24 on an H200, where large blocks hide less latency. Several tiles for each block, one after another, were
 * slower as well: loads of one do not overlap stores of the one before. The H200's figures came from shorter ways to
 * the first load (block_open); the H100's are from before that.
 *
 * A quotient is x / scale rounded once, as on the CPU, from the reciprocal and one correction:
 *
 *     q = x r,  r = 1 / scale            q' = q - (q scale - x) r
 *
 * For each of the 2^7 significands of bf16 and each of the 2^23 of a scale, q' was compared with the quotient: all are
 * equal. This holds while q scale - x does not underflow, so the scale must be at least 2^-60. Numbers that it then
 * loses are 0 in 8 bits anyway. The order of the terms keeps the sign of a zero. If the scale is a power of two, q is
 * the quotient: both operands then take 3 % less time.
 *
 * A tile with a NaN, an infinity or a tiny scale is done again number by number (plain_*), as is x
 * in f32 that is not rounded, and all whose rows are not aligned.
 */
#ifndef KERNELS_QUANT_QUANT_TILE_CUH
#define KERNELS_QUANT_QUANT_TILE_CUH

#include "engine/gpu/eight_bit.cuh"
#include "kernels/core/dtype.cuh"

extern "C" {
#include "kernels/core/operand.h"
}

#include <cfloat>

/* An element of f32 that counts as rounded to bf16. */
struct Rounded {
    float v;
};
template <> __device__ __forceinline__ float to_f32<Rounded>(Rounded r)
{
    return BF16::widen(BF16::narrow(r.v));
}

namespace quant
{

enum {
    TILE = OPERAND_BLOCK,
    PACK_COLS = 8,    /* of a thread: 16 bytes of bf16 */
    ROWS_EACH = 16,   /* of a thread: 16 bytes of a column in 8 bits */
    WIDE_PATCH = 512, /* threads of a multiprocessor, if each has 128 registers */
    THREADS_MAX = 256
};

/* How a block's threads lie over x. ACROSS lanes of a warp lie along a row. */
template <int ROWS_A, int COLS_A, int ACROSS_A, bool FOLDED_A = false> struct Shape {
    static constexpr bool FOLDED =
        FOLDED_A; /* the second half of its columns is job.fold further */
    static constexpr int ROWS = ROWS_A, COLS = COLS_A, ACROSS = ACROSS_A, PACKS = COLS / PACK_COLS;
    static constexpr int THREADS = ROWS / ROWS_EACH * PACKS;
    static constexpr int STRIPS = ROWS > TILE ? ROWS / TILE : 1; /* scales of a column */
    static constexpr int BLOCKS = COLS > TILE ? COLS / TILE : 1; /* scales of a row */
    static constexpr int HIGH = ROWS / STRIPS;                   /* rows of a strip */
    static_assert(WARP / ACROSS * ROWS_EACH <= HIGH, "a warp has rows of one strip");
    static_assert(THREADS <= THREADS_MAX && STRIPS <= THREADS / WARP, "a warp finds a strip");
    static_assert(THREADS / STRIPS * ROWS_EACH == HIGH * PACKS,
                  "threads of a strip are neighbours");
};

typedef Shape<TILE, TILE, 8> Square;
typedef Shape<2 * TILE, TILE, 8> Large;
typedef Shape<WARP, 4 * TILE, 16> Flat;
typedef Shape<2 * TILE, TILE / 2, 8> Tall;
typedef Shape<TILE, 2 * TILE, 8, true> Folded;

enum { STRIPS_MAX = 2 };

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

/* A call as blocks see it. rows: data lies as x does; columns: data is transposed. The numbers
 * themselves come from a source, such as Values below. */
typedef struct Job {
    Side rows, columns;
    const int32_t *row_token, *offsets, *device, *first, *to; /* as in Quantize; NULL: none */
    int64_t n, d, groups;                                     /* n: rows of a matrix, R */
    int64_t width;                                            /* columns of the transposed data */
    int64_t matrices, strips;                                 /* strips of a matrix */
    int64_t fold;                                             /* columns of half a row */
    uint32_t across, down; /* blocks along a row of x, and along a column of a matrix */
    bool pow2;
} Job;

/* Up to 128 rows of x. They become columns [column, column + 128) of the transposed data. */
typedef struct Strip {
    int64_t matrix, group;
    int64_t first, column;
    int n, live;  /* rows that exist, and that are in use */
    bool columns; /* false: rows alone are made of it */
} Strip;

/* What the threads of a block tell each other. Scale k of rows is block k % BLOCKS of row k /
 * BLOCKS; scale k of columns is strip k % STRIPS of column k / STRIPS. */
typedef struct Shared {
    Strip strip[STRIPS_MAX];
    uint32_t row_most[THREADS_MAX],
        column_most[THREADS_MAX]; /* largest magnitudes, as bits of f32 */
    uint32_t most;
    float2 row_scale[THREADS_MAX], column_scale[THREADS_MAX]; /* and its reciprocal */
} Shared;

static __device__ __forceinline__ int64_t live_rows(const Job &job)
{
    return job.device == NULL ? job.n : min(job.n, (int64_t)*job.device);
}

/* Column c of the block that begins at column `col`. */
template <typename S>
static __device__ __forceinline__ int64_t column_of(const Job &job, int64_t col, int c)
{
    return col + c + (S::FOLDED && c >= S::COLS / 2 ? job.fold - S::COLS / 2 : 0);
}

static __device__ __forceinline__ int clamp_rows(int64_t n, int most)
{
    return (int)max((int64_t)0, min((int64_t)most, n));
}

static __device__ __forceinline__ Strip matrix_strip(const Job &job, int64_t matrix, int64_t number,
                                                     int high)
{
    Strip s = {};
    s.matrix = matrix;
    s.column = s.first = number * high;
    s.n = clamp_rows(job.n - s.first, high);
    s.live = clamp_rows(live_rows(job) - s.first, s.n);
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
        s.n = clamp_rows(lane_get(end, hit) - s.first, TILE);
        s.columns = s.group < job.groups;
        if (s.columns || job.rows.data != NULL) s.live = clamp_rows(live - s.first, s.n);
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

/* Where the scale of a strip's row, in block `block` of columns, is; and that of a column. */
static __device__ __forceinline__ int64_t row_scale_at(const Job &job, const Strip &s, int i,
                                                       int64_t block)
{
    const Side &q = job.rows;
    int64_t row = s.first + i + (job.to == NULL ? 0 : *job.to);
    if (q.kind == OPERAND_TENSOR) return s.matrix;
    if (q.kind == OPERAND_ROW) return s.matrix * job.n + row;
    if (q.kind == OPERAND_1X128) return (s.matrix * job.n + row) * q.cols + block;
    return (s.matrix * q.rows + row / TILE) * q.cols + block;
}

static __device__ __forceinline__ int64_t column_scale_at(const Job &job, const Strip &s,
                                                          int64_t column)
{
    const Side &q = job.columns;
    int64_t block = s.column / TILE;
    if (q.kind == OPERAND_TENSOR) return s.matrix;
    if (q.kind == OPERAND_ROW) return (s.matrix * job.d + column) * q.cols + s.group;
    if (q.kind == OPERAND_1X128) return (s.matrix * job.d + column) * q.cols + block;
    return (s.matrix * q.rows + column / TILE) * q.cols + block;
}

/* The scale at index `at`: the largest magnitude makes it if the block decides it alone. Then it is
 * also stored, by one of the threads that have it. */
static __device__ __forceinline__ float2 scale_make(const Side &q, int64_t at, uint32_t most,
                                                    float largest, bool pow2)
{
    bool stores = q.kind != OPERAND_128X128 || threadIdx.x == 0;
    float scale = q.amax != NULL ? q.scale[at] : scale_of(most, largest, pow2);
    if (q.amax == NULL && stores) q.scale[at] = scale;
    return make_float2(scale, 1.0f / scale);
}

/* Thread k makes scale k of rows. Returns: is it too small for quotient()? */
template <typename F, typename S>
static __device__ __forceinline__ bool row_scale_make(const Job &job, int64_t col, Shared &sh)
{
    int k = (int)threadIdx.x, i = k / S::BLOCKS % S::HIGH;
    const Strip &s = sh.strip[k / S::BLOCKS / S::HIGH];
    int64_t block = column_of<S>(job, col, k % S::BLOCKS * TILE) / TILE;
    if (i >= (job.to == NULL ? s.n : s.live) || block * TILE >= job.d) return false;
    uint32_t most = job.rows.kind == OPERAND_128X128 ? sh.most : sh.row_most[k];
    sh.row_scale[k] =
        scale_make(job.rows, row_scale_at(job, s, i, block), most, F::largest(), job.pow2);
    return !(sh.row_scale[k].x >= LEAST_SCALE);
}

/* The same for columns. A strip that makes no columns may lie where columns without rows are: their scale is 1. */
template <typename F, typename S>
static __device__ __forceinline__ bool column_scale_make(const Job &job, int64_t col, Shared &sh)
{
    int k = (int)threadIdx.x;
    const Strip &s = sh.strip[k % S::STRIPS];
    int64_t column = column_of<S>(job, col, k / S::STRIPS);
    if (column >= job.d || s.column >= job.width) return false;
    if (!s.columns && job.columns.amax != NULL) return false;
    bool block = job.columns.kind == OPERAND_128X128;
    uint32_t most = !s.columns ? 0 : block ? sh.most : sh.column_most[k];
    sh.column_scale[k] =
        scale_make(job.columns, column_scale_at(job, s, column), most, F::largest(), job.pow2);
    return !(sh.column_scale[k].x >= LEAST_SCALE);
}

/* ---- number by number: a thread has columns ---- */

/* The row of x that a strip's row r, which is in use, is. */
static __device__ __forceinline__ int64_t source_row(const Job &job, const Strip &s, int r)
{
    if (job.row_token != NULL) return job.row_token[s.first + r];
    return s.matrix * job.n + (job.first == NULL ? 0 : *job.first) + s.first + r;
}

static __device__ __forceinline__ void most_clear(Shared &sh)
{
    sh.row_most[threadIdx.x] = sh.column_most[threadIdx.x] = 0;
    if (threadIdx.x == 0) sh.most = 0;
}

/* The largest magnitudes. A NaN does not enter. */
template <typename X, typename S, bool ROWS, bool COLUMNS>
static __device__ void plain_most(const Job &job, const X &x, int64_t col, Shared &sh)
{
    most_clear(sh);
    __syncthreads();
#pragma unroll 1
    for (int c = (int)threadIdx.x; c < S::COLS; c += S::THREADS) {
#pragma unroll 1
        for (int i = 0; i < S::ROWS; i++) {
            const Strip &s = sh.strip[i / S::HIGH];
            if (i % S::HIGH >= s.live) continue;
            int64_t column = column_of<S>(job, col, c);
            float v = column < job.d ? x.number(job, s, i % S::HIGH, column) : 0.0f;
            uint32_t bits = __float_as_uint(v) & 0x7FFFFFFFu;
            bits = bits > INFINITE ? 0 : bits;
            if (COLUMNS) atomicMax(&sh.column_most[c * S::STRIPS + i / S::HIGH], bits);
            bits = lanes_max(bits);
            if (threadIdx.x % WARP > 0) continue;
            if (ROWS) atomicMax(&sh.row_most[i * S::BLOCKS + c / TILE], bits);
            atomicMax(&sh.most, bits);
        }
    }
    __syncthreads();
}

template <typename F> static __device__ __forceinline__ uint8_t plain_code(float v, float scale)
{
    const float largest = F::largest();
    float q = fminf(fmaxf(v / scale, -largest), largest);
    q = isnan(scale) ? scale : q;
    return F::narrow(isnan(v) ? v : q); /* a NaN keeps its bits, as on the CPU */
}

/* Columns of rows that are not in use are 0, up to the end of a strip. */
template <typename X, typename F, typename S, bool ROWS, bool COLUMNS>
static __device__ void plain_write(const Job &job, const X &x, int64_t col, const Shared &sh)
{
#pragma unroll 1
    for (int k = (int)threadIdx.x; k < S::ROWS * S::COLS; k += S::THREADS) {
        int i = k / S::COLS, c = k % S::COLS;
        const Strip &s = sh.strip[i / S::HIGH];
        int row = i % S::HIGH;
        int64_t column = column_of<S>(job, col, c);
        if (column >= job.d) continue;
        bool live = row < s.live;
        float v = live ? x.number(job, s, row, column) : 0.0f;
        if (ROWS && live)
            job.rows
                .data[(s.matrix * job.n + s.first + row + (job.to == NULL ? 0 : *job.to)) * job.d +
                      column] = plain_code<F>(v, sh.row_scale[i * S::BLOCKS + c / TILE].x);
        if (COLUMNS && s.columns && s.live > 0 && s.column + row < job.width)
            job.columns.data[(s.matrix * job.d + column) * job.width + s.column + row] =
                live ? plain_code<F>(v, sh.column_scale[c * S::STRIPS + i / S::HIGH].x) : 0;
    }
}

/* ---- bf16 in packs ---- */

/* The thread's place: its first row, the strip of it, and its pack of columns. */
template <typename S> struct Place {
    static constexpr int WIDE = S::PACKS / S::ACROSS; /* warps that lie along a row */
    int lane, pack, row, strip;

    __device__ __forceinline__ Place()
    {
        int warp = (int)threadIdx.x / WARP;
        lane = (int)threadIdx.x % WARP;
        pack = warp % WIDE * S::ACROSS + lane % S::ACROSS;
        row = (warp / WIDE * (WARP / S::ACROSS) + lane / S::ACROSS) * ROWS_EACH;
        strip = row / S::HIGH;
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

/* Keeps the compiler from holding what it computed from the patch: that would take twice the registers. */
static __device__ __forceinline__ void patch_forget(Patch &p)
{
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        value_forget(p.word[i].x), value_forget(p.word[i].y);
        value_forget(p.word[i].z), value_forget(p.word[i].w);
    }
}

/* A pack of x in bf16. */
static __device__ __forceinline__ uint4 pack_read(const Bf16 *x)
{
    return read_once((const uint4 *)x);
}
static __device__ __forceinline__ uint4 pack_read(const Rounded *x)
{
    const float4 half[2] = { read_once((const float4 *)x), read_once((const float4 *)x + 1) };
    float v[PACK_COLS];
    memcpy(v, half, sizeof v);
    return bf16_word<uint4>(v);
}

/* Lanes along a row have the same rows. Each reads the tokens of some of them, and the others get them from it. */
template <typename T, typename S>
static __device__ __forceinline__ void
patch_gather(const Job &job, const Strip &s, const Place<S> &at, const T *x, int live, Patch &p)
{
    constexpr int ACROSS = S::ACROSS, EACH = ROWS_EACH / ACROSS;
    static_assert(EACH * ACROSS == ROWS_EACH, "a lane reads whole tokens");
    int begin = at.lane / ACROSS * ACROSS, mine = at.lane % ACROSS;
    int32_t token[EACH];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int i = k * ACROSS + mine;
        token[k] = i < live ? job.row_token[s.first + at.row % S::HIGH + i] : 0;
    }
    int32_t row[ROWS_EACH];
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) row[i] = lane_get(token[i / ACROSS], begin + i % ACROSS);
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++)
        if (i < live) p.word[i] = pack_read(x + row[i] * job.d);
}

template <typename T, typename S>
static __device__ __forceinline__ void patch_load(const Job &job, const T *x, const Strip &s,
                                                  const Place<S> &at, int64_t col, Patch &p)
{
    int first = at.row % S::HIGH, live = s.live - first;
    bool inside = col + at.pack * PACK_COLS < job.d;
    x += inside ? col + at.pack * PACK_COLS : 0;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) p.word[i] = make_uint4(0, 0, 0, 0);
    if (job.row_token != NULL) {
        patch_gather(job, s, at, x, live, p);
    } else {
        x += source_row(job, s, first) * job.d;
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++)
            if (inside && i < live) p.word[i] = pack_read(x + i * job.d);
    }
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++)
        if (!inside) p.word[i] = make_uint4(0, 0, 0, 0);
}

/* A source of numbers: a tensor. number() is that of a strip's row r; with PACKED a thread can load its patch. */
template <typename T, bool PACKED_A> struct Values {
    typedef quant::Patch Patch;
    static constexpr bool PACKED = PACKED_A;
    static constexpr int RESIDENT = WIDE_PATCH;
    const T *x;

    __device__ __forceinline__ float number(const Job &job, const Strip &s, int r,
                                            int64_t col) const
    {
        return to_f32(x[source_row(job, s, r) * job.d + col]);
    }

    template <typename S>
    __device__ __forceinline__ void load(const Job &job, const Strip &s, const Place<S> &at,
                                         int64_t col, Patch &p) const
    {
        patch_load(job, x, s, at, col, p);
    }
};

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

/* The largest magnitudes of the block's rows, columns or of all. Returns: does the thread have a NaN or an infinity? */
template <typename S, bool ROWS, bool COLUMNS>
static __device__ __forceinline__ bool patch_most(const Job &job, const Patch &p, Shared &sh)
{
    constexpr int ACROSS = S::ACROSS, DOWN = WARP / ACROSS;
    Place<S> at;
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
            uint32_t *to = sh.column_most + (at.pack * PACK_COLS + 2 * k) * S::STRIPS + at.strip;
            if (at.lane / ACROSS == k % DOWN) most_raise(to, to + S::STRIPS, pair);
        }
    }
    if constexpr (ROWS) {
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i += 2) {
            if (!job.rows.lines) break;
            uint32_t pair = lanes_most<1, ACROSS>(most.row[i / 2]);
            uint32_t *to = sh.row_most + (at.row + i) * S::BLOCKS + at.pack * PACK_COLS / TILE;
            if (at.lane % ACROSS == i / 2 % ACROSS) most_raise(to, to + S::BLOCKS, pair);
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

/* v / scale.x, rounded once: the file's comment explains it. POW2: the product is exact. */
template <bool POW2> static __device__ __forceinline__ float quotient(float v, float2 scale)
{
    float q = v * scale.y;
    return POW2 ? q : fmaf(-fmaf(q, scale.x, -v), scale.y, q);
}

template <typename F, typename S, bool POW2>
static __device__ __forceinline__ void rows_write(const Job &job, int64_t col, const Patch &p,
                                                  const Shared &sh)
{
    Place<S> at;
    const Strip &s = sh.strip[at.strip];
    const float2 *scales = sh.row_scale + at.row * S::BLOCKS + at.pack * PACK_COLS / TILE;
    int64_t column = column_of<S>(job, col, at.pack * PACK_COLS);
    int64_t row = s.matrix * job.n + s.first + at.row % S::HIGH + (job.to == NULL ? 0 : *job.to);
    uint8_t *to = job.rows.data + row * job.d + column;
    int live = column < job.d ? s.live - at.row % S::HIGH : 0;
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) {
        float2 scale = scales[i * S::BLOCKS];
        uint32_t word[2] = {};
#pragma unroll
        for (int k = 0; k < PACK_COLS; k += 2) {
            float low = quotient<POW2>(patch_at(p, i, k), scale);
            float high = quotient<POW2>(patch_at(p, i, k + 1), scale);
            word[k / 4] |= pair_to_code<F>(low, high) << (k % 4 * 8);
        }
        if (i < live) write_whole((uint2 *)(to + i * job.d), make_uint2(word[0], word[1]));
    }
}

/* The numbers of a patch in columns, the first of which begins at `to`. */
template <typename F, typename S, bool POW2>
static __device__ __forceinline__ void columns_put(const Job &job, const Patch &p,
                                                   const float2 *scales, uint8_t *to)
{
#pragma unroll
    for (int k = 0; k < PACK_COLS; k++) {
        float2 scale = scales[k * S::STRIPS];
        uint32_t word[4] = {};
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i += 2) {
            float low = quotient<POW2>(patch_at(p, i, k), scale);
            float high = quotient<POW2>(patch_at(p, i + 1, k), scale);
            word[i / 4] |= pair_to_code<F>(low, high) << (i % 4 * 8);
        }
        write_whole((uint4 *)(to + k * job.width), make_uint4(word[0], word[1], word[2], word[3]));
    }
}

/* Rows that are not in use are 0 in the patch, and so in the columns. */
template <typename F, typename S, bool POW2, typename P>
static __device__ __forceinline__ void columns_write(const Job &job, int64_t col, P &p,
                                                     const Shared &sh)
{
    Place<S> at;
    const Strip &s = sh.strip[at.strip];
    const float2 *scales = sh.column_scale + at.pack * PACK_COLS * S::STRIPS + at.strip;
    int64_t column = column_of<S>(job, col, at.pack * PACK_COLS),
            to_column = s.column + at.row % S::HIGH;
    if (!s.columns || s.live == 0 || column >= job.d || to_column >= job.width) return;
    uint8_t *to = job.columns.data + (s.matrix * job.d + column) * job.width + to_column;
    columns_put<F, S, POW2>(job, p, scales, to);
}

/* ---- the kernels ---- */

/* Where a block is, and the strip of this thread's rows: a warp has rows of one strip. Blocks are short, so what
 * stands before their first load counts: 64-bit divisions and a barrier cost 15 % on an H200. */
typedef struct Begin {
    int64_t col;
    Strip strip;
} Begin;

template <typename S> static __device__ __forceinline__ Begin block_open(const Job &job, Shared &sh)
{
    Place<S> at;
    uint32_t unit = blockIdx.x / job.across, matrix = job.matrices == 1 ? 0 : unit / job.down;
    int64_t number = (int64_t)(unit - matrix * job.down) * S::STRIPS + at.strip;
    Begin b = {};
    b.col = (int64_t)(blockIdx.x - unit * job.across) * (S::FOLDED ? S::COLS / 2 : S::COLS);
    b.strip.column = job.width;
    if (number < job.strips) {
        b.strip = job.offsets != NULL ? group_strip(job, number)
                                      : matrix_strip(job, matrix, number, S::HIGH);
    }
    if (threadIdx.x % (S::THREADS / S::STRIPS) == 0) sh.strip[at.strip] = b.strip;
    most_clear(sh);
    return b;
}

/* The block's largest magnitudes. Returns: must it be written number by number? Without X::PACKED it must always. */
template <typename X, typename S, bool ROWS, bool COLUMNS>
static __device__ __forceinline__ bool block_most(const Job &job, const X &x, const Begin &b,
                                                  Shared &sh, typename X::Patch &p)
{
    static_assert(!ROWS || S::ROWS * S::BLOCKS == S::THREADS, "a thread has a scale of rows");
    static_assert(!COLUMNS || S::COLS * S::STRIPS == S::THREADS, "a thread has a scale of columns");
    bool strange = true;
    if constexpr (X::PACKED) x.load(job, b.strip, Place<S>(), b.col, p);
    __syncthreads();
    if constexpr (X::PACKED) strange = __syncthreads_or(patch_most<S, ROWS, COLUMNS>(job, p, sh));
    if (strange) plain_most<X, S, ROWS, COLUMNS>(job, x, b.col, sh);
    return strange;
}

template <typename F, typename S, bool POW2, bool ROWS, bool COLUMNS, typename P>
static __device__ __forceinline__ void packs_write(const Job &job, int64_t col, P &p,
                                                   const Shared &sh)
{
    if constexpr (ROWS) {
        rows_write<F, S, POW2>(job, col, p, sh);
        if (COLUMNS) patch_forget(p);
    }
    if (COLUMNS) columns_write<F, S, POW2>(job, col, p, sh);
}

template <typename X, typename F, typename S, bool ROWS, bool COLUMNS>
static __device__ __forceinline__ void quantize_block(const Job &job, const X &x)
{
    __shared__ Shared sh;
    typename X::Patch p;
    Begin b = block_open<S>(job, sh);
    bool strange = block_most<X, S, ROWS, COLUMNS>(job, x, b, sh, p);
    if (ROWS) strange |= row_scale_make<F, S>(job, b.col, sh);
    if (COLUMNS) strange |= column_scale_make<F, S>(job, b.col, sh);
    strange = __syncthreads_or(strange);
    if (strange) plain_write<X, F, S, ROWS, COLUMNS>(job, x, b.col, sh);
    if constexpr (X::PACKED) {
        if (strange) return;
        if (job.pow2)
            packs_write<F, S, true, ROWS, COLUMNS>(job, b.col, p, sh);
        else
            packs_write<F, S, false, ROWS, COLUMNS>(job, b.col, p, sh);
    }
}

template <typename X, typename F, typename S, bool ROWS, bool COLUMNS>
static __global__ __launch_bounds__(S::THREADS,
                                    X::RESIDENT / S::THREADS) void quantize_kernel(const Job job,
                                                                                   const X x)
{
    quantize_block<X, F, S, ROWS, COLUMNS>(job, x);
}

/* Raises the largest magnitudes of scales that cover several blocks. */
template <typename X, typename S, bool ROWS, bool COLUMNS>
static __global__ __launch_bounds__(S::THREADS) void amax_kernel(const Job job, const X x)
{
    __shared__ Shared sh;
    typename X::Patch p;
    int k = (int)threadIdx.x, i = k / S::BLOCKS % S::HIGH;
    const Side &r = job.rows, &c = job.columns;
    Begin b = block_open<S>(job, sh);
    block_most<X, S, ROWS, COLUMNS>(job, x, b, sh, p);
    __syncthreads();
    const Strip &row = sh.strip[k / S::BLOCKS / S::HIGH % S::STRIPS];
    const Strip &column = sh.strip[k % S::STRIPS];
    int64_t at = b.col + k / S::STRIPS;
    bool rows = ROWS && r.amax != NULL && i < row.live;
    bool columns = COLUMNS && c.amax != NULL && column.columns && at < job.d;
    if (rows && r.kind == OPERAND_ROW)
        atomicMax(&r.amax[row_scale_at(job, row, i, 0)], sh.row_most[k]);
    if (rows && r.kind == OPERAND_TENSOR && k == 0) atomicMax(&r.amax[row.matrix], sh.most);
    if (columns && c.kind == OPERAND_ROW)
        atomicMax(&c.amax[column_scale_at(job, column, at)], sh.column_most[k]);
    if (columns && c.kind == OPERAND_TENSOR && k == 0) atomicMax(&c.amax[column.matrix], sh.most);
}

} // namespace quant

#endif
