/*
 * grouped_narrow: epilogues of grouped_hopper.cuh whose results have 8 bits, with scales that are
 * powers of two. A tile has 128 rows of a group, and gates and ups or gradients of whole blocks of
 * 128 columns. So it decides every scale alone. The bits are those of kernels/quant/quant.h.
 *
 * Four lanes have a row of a block, two columns of each piece of 8. Values are rounded to bf16 and kept
 * as pairs. A row's scale needs two exchanges between these lanes. Then each lane collects the codes of
 * four pieces and writes 32 bytes.
 *
 * Columns (down_narrow) go through shared memory, in the stage of the ring that pre came with. wact
 * takes the place of pre as soon as a warp has read its rows of pre: registers are short.
 *
 *   1  Each warp writes the largest magnitudes of its 16 rows, for each column.
 *   2  Threads make scales of columns.
 *   3  Codes of rows r and r + 8 of a column are 16 bits. The transposing matrix store puts those of a
 *      warp's rows side by side. Then whole lines of 128 rows are read and written.
 *
 * What counted on an H200, V2-Lite's moe_down_bwd_input in us; 1,311 with kernels that quantise:
 *
 *     700 bytes of registers spilled for each thread                1,784
 *     wact in shared memory instead of registers                    1,201
 *     no arrays that the compiler keeps in local memory             1,140
 *     the same with both blocks of a tile unrolled: 156 KB of code  1,292
 *
 * Division by a power of two is exact, so it is a product with the reciprocal. largest(format) is
 * 1.75 * 2^n, so the next power of two of amax / largest follows from the bits of amax.
 */
#ifndef KERNELS_MOE_NV_GROUPED_NARROW_CUH
#define KERNELS_MOE_NV_GROUPED_NARROW_CUH

#include "engine/gpu/eight_bit.cuh"
#include "kernels/moe/nv/grouped_scaled.cuh"

namespace grouped
{

enum {
    NARROW_PIECES = OPERAND_BLOCK / 8, /* of a block's columns */
    NARROW_PAIRS = OPERAND_BLOCK / 2,
    NARROW_WARPS = 8,
    NARROW_ARRAYS = 3, /* gradients of gates and ups, and weighted activations */
    NARROW_MOST = NARROW_ARRAYS * NARROW_WARPS * NARROW_PAIRS * 4, /* bytes of the maxima */
    NARROW_ARRAY_BYTES = OPERAND_BLOCK * hopper::ROW_BYTES,        /* codes of a block's columns */
    NARROW_MEET = 1, /* the barrier of the warps that multiply */
};
static_assert(NARROW_MOST + NARROW_ARRAYS * NARROW_PAIRS * 4 <= NARROW_WARPS * WARP_ROOM,
              "maxima and reciprocals fit into the buffers of warps");

/* Two columns of a row. */
typedef uint32_t NarrowPairs[NARROW_PIECES];

static __device__ __forceinline__ float low_of(uint32_t pair)
{
    return __uint_as_float(pair << 16);
}
static __device__ __forceinline__ float high_of(uint32_t pair)
{
    return __uint_as_float(pair & 0xFFFF0000u);
}
static __device__ __forceinline__ uint32_t pair_of(float low, float high)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    uint32_t pair;
    memcpy(&pair, &two, sizeof pair);
    return pair;
}

/* The compiler would keep what it computes from pairs for all their uses, in twice the registers. */
static __device__ __forceinline__ void pairs_forget(NarrowPairs &v)
{
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++) value_forget(v[k]);
}

static __device__ __forceinline__ uint32_t magnitudes(uint32_t pair) { return pair & 0x7FFF7FFFu; }

/* The scale of a block whose largest magnitude has these bits of f32, which are those of a bf16:
 * quant::scale_of for powers of two. */
template <typename F> static __device__ __forceinline__ float narrow_scale(uint32_t most)
{
    constexpr uint32_t INFINITE = 0x7F800000u, SHIFT = std::is_same<F, E4M3>::value ? 8u : 15u;
    uint32_t above = (most + 0x001FFFFFu & INFINITE) - (SHIFT << 23); /* 1.75 is 0x600000 */
    above = most < (SHIFT + 1) << 23 ? 0x00800000u : max(above, 0x00800000u);
    if (most == 0) above = 0x3F800000u;
    return __uint_as_float(most == INFINITE ? 0x7FC00000u : above);
}

/* 1 / scale in bf16, as bits; NaN stays NaN. */
static __device__ __forceinline__ uint32_t narrow_reciprocal(float scale)
{
    uint32_t bits = __float_as_uint(scale);
    return (scale == scale ? 0x7F000000u - bits : bits) >> 16;
}

/* The products of two pairs. */
static __device__ __forceinline__ uint32_t pair_times(uint32_t a, uint32_t b)
{
    __nv_bfloat162 x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    x = __hmul2(x, y);
    memcpy(&a, &x, sizeof a);
    return a;
}

/* Two codes, `low` first. */
template <typename F> static __device__ __forceinline__ uint32_t narrow_codes(float low, float high)
{
    if constexpr (std::is_same<F, E4M3>::value)
        return pair_to_e4m3(low, high);
    else
        return pair_to_e5m2(low, high);
}

/* Before, each of four lanes l has columns 2 l and 2 l + 1 of all pieces, two bytes of code[piece].
 * After, lane l has all 32 bytes of pieces 4 l to 4 l + 3. Pieces i, 4 + i, 8 + i and 12 + i change
 * places together. Exchanges that do not wait for each other are neighbours. */
static __device__ __forceinline__ void codes_turn(const NarrowPairs &code, uint32_t (&out)[8])
{
    bool upper = (threadIdx.x & 2) != 0, odd = (threadIdx.x & 1) != 0;
    uint32_t keep[4], got[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t first = code[i] | code[4 + i] << 16, second = code[8 + i] | code[12 + i] << 16;
        keep[i] = upper ? second : first;
        got[i] = __shfl_xor_sync(0xFFFFFFFFu, upper ? first : second, 2);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a = upper ? got[i] : keep[i], b = upper ? keep[i] : got[i];
        uint32_t even_piece = __byte_perm(a, b, 0x5410), odd_piece = __byte_perm(a, b, 0x7632);
        keep[i] = odd ? odd_piece : even_piece;
        got[i] = __shfl_xor_sync(0xFFFFFFFFu, odd ? even_piece : odd_piece, 1);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a = odd ? got[i] : keep[i], b = odd ? keep[i] : got[i];
        out[i * 2] = __byte_perm(a, b, 0x5410);
        out[i * 2 + 1] = __byte_perm(a, b, 0x7632);
    }
}

/* Writes a block of a row, of which four lanes have v. have: the row exists. */
template <typename F>
static __device__ __forceinline__ void row_narrow(const NarrowRows &to, int64_t row, int64_t block,
                                                  NarrowPairs &v, bool have)
{
    int q = (int)threadIdx.x % 4;
    uint32_t part[4] = {};
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++)
        part[k % 4] = pair_number_most(part[k % 4], magnitudes(v[k]));
    uint32_t most =
        pair_number_most(pair_number_most(part[0], part[1]), pair_number_most(part[2], part[3]));
    most = max(most << 16, most & 0xFFFF0000u);
    most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
    most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
    float scale = narrow_scale<F>(most);
    uint32_t by = narrow_reciprocal(scale) * 0x10001u, out[8];
    NarrowPairs code;
    pairs_forget(v);
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++) {
        uint32_t pair = pair_times(v[k], by);
        code[k] = narrow_codes<F>(low_of(pair), high_of(pair));
    }
    codes_turn(code, out);
    if (!have) return;
    if (q == 0) to.scale[row * to.blocks + block] = scale;
    uint4 *at =
        reinterpret_cast<uint4 *>(to.data + row * to.width + block * OPERAND_BLOCK + q * 32);
    at[0] = make_uint4(out[0], out[1], out[2], out[3]);
    at[1] = make_uint4(out[4], out[5], out[6], out[7]);
}

/* moe_up_fwd: pre and act of a tile's rows. */
template <typename P, typename S>
static __device__ __forceinline__ void up_narrow(const P &p, const GroupTile &t, int first_row,
                                                 const float (&c)[S::COLS / 2])
{
    static_assert(S::COLS == 2 * OPERAND_BLOCK, "a block of gates and its ups");
    int lane = (int)threadIdx.x % 32;
    int64_t f = t.col / 2, block = f / OPERAND_BLOCK;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = first_row + h * 8 + lane / 4;
        NarrowPairs gate, up, act;
#pragma unroll
        for (int k = 0; k < NARROW_PIECES; k++) {
            float g[2], u[2], y[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int64_t column = f + k * 8 + lane % 4 * 2 + e;
                g[e] = c[k * 8 + h * 2 + e], u[e] = c[k * 8 + 4 + h * 2 + e];
                p.bias_add(t, column, &g[e], &u[e]);
                y[e] = p.act_of(g[e], u[e]);
            }
            gate[k] = pair_of(g[0], g[1]), up[k] = pair_of(u[0], u[1]),
            act[k] = pair_of(y[0], y[1]);
        }
        bool have = i < t.rows;
        row_narrow<E4M3>(p.kept, t.pooled + i, block, gate, have);
        row_narrow<E4M3>(p.kept, t.pooled + i, p.F / OPERAND_BLOCK + block, up, have);
        row_narrow<E4M3>(p.inner, t.first + i, block, act, have);
    }
}

/* ---- moe_down_bwd_input ---- */

/* The scales of this thread's row of a block of pre: the gates' and the ups'. Rows that do not exist
 * have the scale 0, so what comes of them is 0 or NaN, which no scale sees. */
template <typename P>
static __device__ __forceinline__ float2 pre_scales(const P &p, const GroupTile &t, int64_t col)
{
    int i = (int)threadIdx.x;
    if (i >= t.rows) return make_float2(0, 0);
    const float *at = p.kept.scale_at(t.pooled + i, t.col + col);
    return make_float2(at[0], at[p.kept.blocks / 2]);
}

template <typename S>
static __device__ __forceinline__ void pre_scales_put(uint32_t room, float2 scales)
{
    static_assert(S::ROWS == hopper::WARPGROUP && S::COLS >= S::ROWS, "a thread has a row");
    hopper::float_put(room + threadIdx.x * 4, scales.x);
    hopper::float_put(room + (S::ROWS + threadIdx.x) * 4, scales.y);
}

/* The codes of this lane's columns of row i: those of gates, then those of ups. */
template <typename S>
static __device__ __forceinline__ void pre_load(uint32_t stage, int i, NarrowPairs &codes)
{
    uint32_t row = stage + i * hopper::ROW_BYTES + threadIdx.x % 4 * 2;
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++) {
        uint32_t at = row + ((k / 2 ^ i & 7) << 4) + k % 2 * 8;
        codes[k] = hopper::shared_short(at) | hopper::shared_short(at + S::A_BYTES) << 16;
    }
}

/* Where a lane keeps its pair k of wact, for rows of half h: in place of the warp's rows of pre. */
template <typename S>
static __device__ __forceinline__ uint32_t inner_at(uint32_t stage, int first_row, int h, int k)
{
    return stage + (k < 8 ? 0 : S::A_BYTES) + (first_row + h * 8 + k % 8) * hopper::ROW_BYTES +
           threadIdx.x % 32 * 4;
}

/* Two values of pre. With a power of two as scale they are bf16's. */
static __device__ __forceinline__ float2 pre_pair(uint32_t codes, float scale)
{
    float2 two = pair_from_e4m3(codes & 0xFFFFu);
    return make_float2(two.x * scale, two.y * scale);
}

/* The gradients of gates and ups of this lane's columns of one row and block, as pairs; wact goes to
 * shared memory. Returns the columns' part of <da, act>. stage: where pre is. */
template <typename P, typename S>
static __device__ __forceinline__ float
row_gradients(const P &p, int first_row, int h, const float (&da)[WAVE_SUMS], float weight,
              uint32_t stage, uint32_t scales, NarrowPairs (&out)[2])
{
    NarrowPairs codes;
    int i = first_row + h * 8 + (int)threadIdx.x % 32 / 4;
    float of_gate = hopper::shared_float(scales + i * 4), dot = 0;
    float of_up = hopper::shared_float(scales + (S::ROWS + i) * 4);
    pre_load<S>(stage, i, codes);
    __syncwarp(); /* wact takes the place of pre */
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++) {
        float2 gate = pre_pair(codes[k], of_gate), up = pre_pair(codes[k] >> 16, of_up);
        float left[3], right[3], one = da[k * 4 + h * 2], two = da[k * 4 + h * 2 + 1];
        dot += one * p.gradients(gate.x, up.x, one, weight, left);
        dot += two * p.gradients(gate.y, up.y, two, weight, right);
        out[0][k] = pair_of(left[0], right[0]), out[1][k] = pair_of(left[1], right[1]);
        hopper::word_put(inner_at<S>(stage, first_row, h, k), pair_of(left[2], right[2]));
    }
    return dot;
}

template <typename S>
static __device__ __forceinline__ void inner_load(uint32_t stage, int first_row, int h,
                                                  NarrowPairs &out)
{
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++)
        out[k] = hopper::shared_word(inner_at<S>(stage, first_row, h, k));
}

/* Where this warp's largest magnitudes of a pair of columns are. */
static __device__ __forceinline__ uint32_t most_at(uint32_t room, int array, int warp, int pair)
{
    return room + ((array * NARROW_WARPS + warp) * NARROW_PAIRS + pair) * 4;
}

/* Lanes that differ in BIT alone keep N of 2 N pieces each, with the larger of both. Returns the first
 * piece that this lane keeps. */
template <int N, int BIT> static __device__ __forceinline__ int pieces_halve(NarrowPairs &most)
{
    bool upper = (threadIdx.x & BIT) != 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? most[k] : most[k + N], BIT);
        most[k] = pair_number_most(upper ? most[k + N] : most[k], got);
    }
    return upper ? N : 0;
}

/* Writes the largest magnitudes of the columns of a warp's 16 rows. Eight lanes have the same columns;
 * at the end each has two of their pieces. */
static __device__ __forceinline__ void columns_most(const NarrowPairs &low, const NarrowPairs &high,
                                                    uint32_t room, int array, int warp)
{
    NarrowPairs most;
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++)
        most[k] = pair_number_most(pair_number_most(0, magnitudes(low[k])), magnitudes(high[k]));
    int piece = pieces_halve<8, 16>(most);
    piece += pieces_halve<4, 8>(most);
    piece += pieces_halve<2, 4>(most);
#pragma unroll
    for (int k = 0; k < 2; k++)
        hopper::word_put(most_at(room, array, warp, (piece + k) * 4 + (int)threadIdx.x % 4),
                         most[k]);
}

/* Makes the scales of columns of one array, from the largest magnitudes of all warps, for two columns:
 * stores them at `scale` and `apart` floats further on, and leaves their reciprocals. */
template <typename F>
static __device__ __forceinline__ void column_scales(uint32_t room, int array, int pair,
                                                     float *scale, int64_t apart)
{
    uint32_t most = 0;
#pragma unroll
    for (int warp = 0; warp < NARROW_WARPS; warp++)
        most = pair_number_most(most, hopper::shared_word(most_at(room, array, warp, pair)));
    float low = narrow_scale<F>(most << 16), high = narrow_scale<F>(most & 0xFFFF0000u);
    scale[0] = low, scale[apart] = high;
    hopper::word_put(room + NARROW_MOST + (array * NARROW_PAIRS + pair) * 4,
                     narrow_reciprocal(low) | narrow_reciprocal(high) << 16);
}

/* The codes of the columns of a warp's 16 rows, to shared memory: 128 columns of 128 rows, and chunk
 * `warp` of each column is this warp's. mask: which of the lane's two rows exist. */
template <typename F>
static __device__ __forceinline__ void columns_put(const NarrowPairs &low, const NarrowPairs &high,
                                                   uint32_t reciprocals, uint32_t to, int warp,
                                                   uint32_t mask)
{
    int lane = (int)threadIdx.x % 32;
    uint32_t chunk = to + lane * hopper::ROW_BYTES + ((warp ^ lane % 8) << 4);
    NarrowPairs by;
#pragma unroll
    for (int k = 0; k < NARROW_PIECES; k++)
        by[k] = hopper::shared_word(reciprocals + (k * 4 + lane % 4) * 4);
#pragma unroll
    for (int four = 0; four < NARROW_PIECES; four += 4) {
        uint32_t code[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int k = four + j;
            uint32_t a = pair_times(low[k], by[k]), b = pair_times(high[k], by[k]);
            code[j] = narrow_codes<F>(low_of(a), low_of(b)) |
                      narrow_codes<F>(high_of(a), high_of(b)) << 16;
            code[j] &= mask;
        }
        hopper::matrices_turn(chunk + four * 8 * hopper::ROW_BYTES, code);
    }
}

/* 16 rows of a column; `v` has them as rows 0, 8, 1, 9, ... */
static __device__ __forceinline__ uint4 chunk_of(const uint4 &v)
{
    return make_uint4(__byte_perm(v.x, v.y, 0x6420), __byte_perm(v.z, v.w, 0x6420),
                      __byte_perm(v.x, v.y, 0x7531), __byte_perm(v.z, v.w, 0x7531));
}

/* All warps' maxima are there: the threads make the scales of a block's columns. */
template <typename P>
static __device__ __forceinline__ void scales_make(const P &p, const GroupTile &t, int64_t f,
                                                   uint32_t room)
{
    typedef typename P::Gradient F;
    int thread = (int)threadIdx.x - hopper::WARPGROUP;
    int array = thread / NARROW_PAIRS, pair = thread % NARROW_PAIRS;
    if (array < 2)
        column_scales<F>(room, array, pair,
                         p.columns.scale_at(array * p.n + f + pair * 2, t.column),
                         p.columns.blocks);
    else if (array == 2)
        column_scales<E4M3>(room, 2, pair, p.inner.scale_at(f + pair * 2, t.column),
                            p.inner.blocks);
}

/* Writes the codes of a block's columns from shared memory. */
template <typename P>
static __device__ __forceinline__ void columns_write(const P &p, const GroupTile &t, int64_t f,
                                                     uint32_t stage)
{
    int thread = (int)threadIdx.x - hopper::WARPGROUP, c = thread / 8, chunk = thread % 8;
    uint32_t from = stage + c * hopper::ROW_BYTES + ((chunk ^ c & 7) << 4);
#pragma unroll
    for (int a = 0; a < NARROW_ARRAYS; a++) {
        const NarrowRows &to = a < 2 ? p.columns : p.inner;
        uint8_t *at = to.data + ((a == 1 ? p.n : 0) + f + c) * to.width + t.column + chunk * 16;
        uint4 v[OPERAND_BLOCK / 32];
#pragma unroll
        for (int j = 0; j < OPERAND_BLOCK / 32; j++)
            v[j] = hopper::shared_get(from + a * NARROW_ARRAY_BYTES + j * 32 * hopper::ROW_BYTES);
#pragma unroll
        for (int j = 0; j < OPERAND_BLOCK / 32; j++)
            *reinterpret_cast<uint4 *>(at + j * 32 * to.width) = chunk_of(v[j]);
    }
}

static __device__ __forceinline__ void warps_meet()
{
    hopper::threads_meet<NARROW_MEET, 2 * hopper::WARPGROUP>();
}

/* Scales and codes of the columns of a block from f on. low, high: the gradients of this lane's two rows. */
template <typename P, typename S>
static __device__ __forceinline__ void
columns_narrow(const P &p, const GroupTile &t, int64_t f, int first_row, NarrowPairs (&low)[2],
               NarrowPairs (&high)[2], uint32_t stage, uint32_t room)
{
    typedef typename P::Gradient F;
    static_assert(NARROW_ARRAYS * NARROW_ARRAY_BYTES <= S::STAGE, "codes fit into a stage");
    static_assert(2 * S::A_BYTES <= 2 * NARROW_ARRAY_BYTES, "the third array is free");
    int warp = first_row / 16, lane = (int)threadIdx.x % 32;
    uint32_t mask = (first_row + lane / 4 < t.rows ? 0x00FF00FFu : 0) |
                    (first_row + 8 + lane / 4 < t.rows ? 0xFF00FF00u : 0);
    uint32_t reciprocals = room + NARROW_MOST;
    NarrowPairs one, two;
#pragma unroll
    for (int a = 0; a < 2; a++) {
        columns_most(low[a], high[a], room, a, warp);
        pairs_forget(low[a]), pairs_forget(high[a]);
    }
    inner_load<S>(stage, first_row, 0, one);
    inner_load<S>(stage, first_row, 1, two);
    columns_most(one, two, room, 2, warp);
    warps_meet();
    scales_make(p, t, f, room);
    warps_meet();
    inner_load<S>(stage, first_row, 0, one);
    inner_load<S>(stage, first_row, 1, two);
    columns_put<E4M3>(one, two, reciprocals + 2 * NARROW_PAIRS * 4, stage + 2 * NARROW_ARRAY_BYTES,
                      warp, mask);
    warps_meet(); /* nothing of pre or wact is needed any more */
#pragma unroll
    for (int a = 0; a < 2; a++)
        columns_put<F>(low[a], high[a], reciprocals + a * NARROW_PAIRS * 4,
                       stage + a * NARROW_ARRAY_BYTES, warp, mask);
    warps_meet();
    columns_write(p, t, f, stage);
}

/* dpre in rows and columns, and wact in columns, of a tile. pre comes with the ring (reads_load). */
template <typename P, typename S>
static __device__ __forceinline__ void
down_narrow(const P &p, const GroupTile &t, int first_row, const float (&sum)[S::COLS / 2],
            const typename P::Row (&weight)[2], const Barriers &bar, uint32_t ring, RingPlace *at)
{
    typedef typename P::Gradient F;
    int lane = (int)threadIdx.x % 32;
    float dot[2] = {}, da[WAVE_SUMS];
    static_assert(S::COLS == 2 * OPERAND_BLOCK, "two blocks of columns");
#pragma unroll
    for (int i = 0; i < WAVE_SUMS; i++) da[i] = sum[i];
#pragma unroll 1 /* twice the code would not fit into the cache of instructions */
    for (int part = 0; part < 2; part++) {
        int64_t f = t.col + part * OPERAND_BLOCK;
        if (f >= p.n) break;
        uint32_t stage = ring + at->stage * S::STAGE, scales = scales_room<S>(ring, at->stage);
        hopper::wait(Barriers::at(bar.full, at->stage), at->turn);
        NarrowPairs value[2][2];
        int64_t block = f / OPERAND_BLOCK;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t row = t.pooled + first_row + h * 8 + lane / 4;
            bool have = first_row + h * 8 + lane / 4 < t.rows;
            dot[h] += row_gradients<P, S>(p, first_row, h, da, weight[h], stage, scales, value[h]);
#pragma unroll
            for (int a = 0; a < 2; a++) {
                row_narrow<F>(p.rows, row, a * (p.n / OPERAND_BLOCK) + block, value[h][a], have);
                pairs_forget(value[h][a]);
            }
        }
        columns_narrow<P, S>(p, t, f, first_row, value[0], value[1], stage, ring + ROOM_BYTES);
        hopper::writes_to_products(); /* the stage is the copy engine's again */
        __syncwarp();
        if (lane == 0) hopper::arrive(Barriers::at(bar.empty, at->stage));
        at->template next<S::STAGES>();
#pragma unroll
        for (int i = 0; i < WAVE_SUMS; i++) da[i] = sum[WAVE_SUMS + i];
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = first_row + h * 8 + lane / 4;
        dot[h] += __shfl_xor_sync(0xFFFFFFFFu, dot[h], 1);
        dot[h] += __shfl_xor_sync(0xFFFFFFFFu, dot[h], 2);
        if (i < t.rows && lane % 4 == 0) p.dot(t, i, t.col / S::COLS, dot[h]);
    }
}

} // namespace grouped

#endif
