/*
 * quant_codes: a source for blocks of quant_tile.cuh: 8-bit rows with scales of 1 x 128, of which columns are made. A
 * thread keeps the codes of its patch and the scale of each row. It converts them twice, for the largest magnitudes and
 * for the quotients, because 128 numbers in f32 do not fit in its registers.
 *
 * Bound by conversions, not by memory: 98,304 gathered rows of 2048 columns take 193 us on an H200,
 * from bf16 187 us. Codes made bf16 once, by a shift and a product, took 244: 128 registers a thread
 * leave fewer of them. Other shapes took 182 to 204.
 *
 * code * scale is rounded to f32, as on the CPU. By a power of two the quotient is exact. By other
 * scales it is a division: quotient() is only proven for numbers of bf16.
 */
#ifndef KERNELS_QUANT_QUANT_CODES_CUH
#define KERNELS_QUANT_QUANT_CODES_CUH

#include "kernels/quant/quant_tile.cuh"

namespace quant
{

/* 16 rows of a pack of columns in format C: byte k of word[i] is column k of row i. */
template <typename C> struct CodePatch {
    uint2 word[ROWS_EACH];
    float scale[ROWS_EACH];

    /* Columns k and k + 1 of row i; k is even. */
    __device__ __forceinline__ float2 pair(int i, int k) const
    {
        uint32_t codes = (k < PACK_COLS / 2 ? word[i].x : word[i].y) >> (k % 4 * 8);
        float2 v = std::is_same<C, E4M3>::value ? pair_from_e4m3(codes) : pair_from_e5m2(codes);
        return make_float2(v.x * scale[i], v.y * scale[i]);
    }
};

template <typename C, bool PACKED_A> struct Codes {
    typedef CodePatch<C> Patch;
    static constexpr bool PACKED = PACKED_A;
    static constexpr int RESIDENT = 768;
    const uint8_t *x;
    const float *scale;
    int64_t cols; /* scales of a row */

    __device__ __forceinline__ float number(const Job &job, const Strip &s, int r,
                                            int64_t col) const
    {
        int64_t row = source_row(job, s, r);
        float v = C::widen(x[row * job.d + col]);
        return isnan(v) ? v : v * scale[row * cols + col / TILE];
    }

    /* Lanes along a row have the same rows. Each finds some of them, and the others get them from it. */
    template <typename S>
    __device__ __forceinline__ void load(const Job &job, const Strip &s, const Place<S> &at,
                                         int64_t col, Patch &p) const
    {
        constexpr int ACROSS = S::ACROSS, EACH = ROWS_EACH / ACROSS;
        static_assert(EACH * ACROSS == ROWS_EACH, "a lane finds whole rows");
        static_assert(TILE % (ACROSS * PACK_COLS) == 0, "a warp's columns have one scale a row");
        int first = at.row % S::HIGH, live = s.live - first, mine = at.lane % ACROSS;
        int begin = at.lane - mine;
        int64_t column = col + at.pack * PACK_COLS, row[EACH];
        int64_t block = (column - mine * PACK_COLS) / TILE; /* of all lanes along a row */
        bool inside = column < job.d;
        float by[EACH];
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            int i = k * ACROSS + mine;
            row[k] = i < live ? source_row(job, s, first + i) : 0;
        }
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            bool known = k * ACROSS + mine < live && block * TILE < job.d;
            by[k] = known ? scale[row[k] * cols + block] : 0;
        }
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++) {
            const uint8_t *from =
                x + lane_get(row[i / ACROSS], begin + i % ACROSS) * job.d + column;
            p.word[i] = make_uint2(0, 0);
            if (i < live && inside) p.word[i] = read_once((const uint2 *)from);
        }
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++)
            p.scale[i] = lane_get(by[i / ACROSS], begin + i % ACROSS);
    }
};

/* As patch_most of quant_tile.cuh. */
template <typename S, bool ROWS, bool COLUMNS, typename C>
static __device__ __forceinline__ bool patch_most(const Job &job, const CodePatch<C> &p, Shared &sh)
{
    constexpr int ACROSS = S::ACROSS, DOWN = WARP / ACROSS;
    static_assert(!ROWS && COLUMNS, "only columns are made of 8-bit rows");
    Place<S> at;
    uint32_t all = 0;
#pragma unroll
    for (int k = 0; k < PACK_COLS; k += 2) {
        uint32_t low = 0, high = 0;
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i++) {
            float2 v = p.pair(i, k);
            low = max(low, __float_as_uint(fabsf(v.x)));
            high = max(high, __float_as_uint(fabsf(v.y)));
        }
        all = max(all, max(low, high));
#pragma unroll
        for (int bit = ACROSS; job.columns.lines && bit < WARP; bit *= 2) {
            low = max(low, lane_get_xor(low, bit));
            high = max(high, lane_get_xor(high, bit));
        }
        uint32_t *to = sh.column_most + (at.pack * PACK_COLS + k) * S::STRIPS + at.strip;
        if (job.columns.lines && at.lane / ACROSS == k / 2 % DOWN) {
            atomicMax(to, low);
            atomicMax(to + S::STRIPS, high);
        }
    }
    if (job.columns.whole) {
        uint32_t most = lanes_max(all);
        if (at.lane == 0) atomicMax(&sh.most, most);
    }
    return all >= INFINITE;
}

template <typename F, bool POW2>
static __device__ __forceinline__ uint32_t codes_pair(float low, float high, float2 scale)
{
    if (POW2) return pair_to_code<F>(low * scale.y, high * scale.y);
    return pair_to_code<F>(low / scale.x, high / scale.x);
}

/* As columns_put of quant_tile.cuh; two columns at a time, because codes are converted in pairs. */
template <typename F, typename S, bool POW2, typename C>
static __device__ __forceinline__ void columns_put(const Job &job, CodePatch<C> &p,
                                                   const float2 *scales, uint8_t *to)
{
#pragma unroll
    for (int i = 0; i < ROWS_EACH; i++) value_forget(p.word[i].x), value_forget(p.word[i].y);
#pragma unroll
    for (int k = 0; k < PACK_COLS; k += 2) {
        float2 scale = scales[k * S::STRIPS], next = scales[(k + 1) * S::STRIPS];
        uint32_t low[4] = {}, high[4] = {};
#pragma unroll
        for (int i = 0; i < ROWS_EACH; i += 2) {
            float2 one = p.pair(i, k), two = p.pair(i + 1, k);
            low[i / 4] |= codes_pair<F, POW2>(one.x, two.x, scale) << (i % 4 * 8);
            high[i / 4] |= codes_pair<F, POW2>(one.y, two.y, next) << (i % 4 * 8);
        }
        write_whole((uint4 *)(to + k * job.width), make_uint4(low[0], low[1], low[2], low[3]));
        write_whole((uint4 *)(to + (k + 1) * job.width),
                    make_uint4(high[0], high[1], high[2], high[3]));
    }
}

} // namespace quant

#endif
