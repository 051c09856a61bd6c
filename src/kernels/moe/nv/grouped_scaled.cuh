/*
 * grouped_scaled: what grouped_hopper.cuh does otherwise if operands have 8 bits.
 *
 * A stage of the ring has 128 terms, so a block of scales is one stage. wgmma adds 8-bit products with about 14 bits,
 * so the sum of a stage is multiplied by its scales and added to an f32 sum in other registers (DeepSeek-V3,
 * arXiv:2412.19437, section 3.3.2). A warpgroup makes 64 x 128 of its tile at a time, so that 64 registers suffice for
 * the sum of a stage. While it adds them, the other warpgroup multiplies.
 *
 * Scales come with the stage: one for each row of the tile, and for each column. In
 * products of rows, B's blocks are 128 x 128. Then 128 columns share one scale, or two if the columns
 * are gates and ups by turns. If B's scales do not change along k, they are applied after all terms.
 *
 * TILE_IN_TURN is not used: one warpgroup alone would leave the matrix units idle while it adds.
 * Measured on an H100, in TFLOP/s: x W1^T with SwiGLU, D 2048, 990 with TILE_SHARED, 674 in turn.
 */
#ifndef KERNELS_MOE_NV_GROUPED_SCALED_CUH
#define KERNELS_MOE_NV_GROUPED_SCALED_CUH

#include "kernels/moe/nv/grouped_load.cuh"

namespace grouped
{

enum {
    WAVE = 128, /* columns that a warpgroup makes at a time */
    WAVE_SUMS = WAVE / 2,
    SCALES_BYTES = 6 * 1024 /* of all stages: each has those of a tile's rows and columns */
};

/* The scales of a stage: those of the tile's rows, then those of its columns. */
template <typename S>
static __device__ __forceinline__ uint32_t scales_room(uint32_t ring, int stage)
{
    constexpr int BYTES = (S::ROWS + S::COLS) * (int)sizeof(float);
    static_assert(S::STAGES * BYTES <= SCALES_BYTES, "scales of all stages fit");
    return ring + ROOM_BYTES + 8 * WARP_ROOM + stage * BYTES;
}

/* The column of B whose scale is number i of a stage; -1: there is none. blocks: B's scales are of
 * 128 x 128, and there is one for each half of a pair in each WAVE. */
template <typename S> static __device__ __forceinline__ int scaled_column(int i, bool blocks)
{
    if (!blocks) return i;
    return i < S::COLS / WAVE * 2 ? i / 2 * WAVE + i % 2 * 8 : -1;
}

/* The scales of a row of the tile, stage by stage. Those of four stages are loaded at a time, because
 * a load of 4 bytes costs as much as one of 16. They are loaded when the last of the four before is
 * taken, long before the ring has room for the next stage. */
struct RowScales {
    const float4 *next; /* NULL: there is no such row */
    float4 four;
    int place; /* in `four`, of the next stage; below 0: all stages have four.x */

    __device__ __forceinline__ void open(const float *first, bool along)
    {
        next = NULL;
        if (first == NULL) return;
        uintptr_t at = (uintptr_t)first;
        place = along ? (int)(at / sizeof(float) % 4) : -1;
        if (along) at -= at % sizeof(float4);
        next = (const float4 *)at;
        if (along)
            four = __ldg(next++);
        else
            four.x = __ldg(first);
    }

    __device__ __forceinline__ void step(uint32_t to, const Scales &s)
    {
        if (next == NULL) return;
        float low = place <= 0 ? four.x : four.y, high = place == 2 ? four.z : four.w;
        hopper::float_put(to, place < 2 ? low : high);
        if (place < 0 || ++place < 4) return;
        place = 0;
        if ((const float *)next < s.end) four = __ldg(next++);
    }
};

/* The scale of a column of B in products of rows, loaded one stage ahead. It belongs to a block, so
 * few threads have one, or it is the same in all stages. */
struct ColumnScale {
    const float *next; /* NULL: there is no such column */
    float one;

    __device__ __forceinline__ void open(const float *first, bool)
    {
        next = first;
        if (first != NULL) one = __ldg(first);
    }
    __device__ __forceinline__ void step(uint32_t to, const Scales &s)
    {
        if (next == NULL) return;
        hopper::float_put(to, one);
        if (s.along && ++next < s.end) one = __ldg(next);
    }
};

/* Stores a stage's scales. Thread i has row i of the tile, the row WARPGROUP further, and columns in
 * the same way. EIGHT false: there is nothing to store. */
template <typename P, typename S, bool EIGHT = P::EIGHT> struct ScalesLoader {
    template <typename VA, typename VB> __device__ __forceinline__ void open(const VA &, const VB &)
    {
    }
    template <typename VA> __device__ __forceinline__ void look_ahead(const VA &) {}
    __device__ __forceinline__ void step(const P &, uint32_t) {}
};

template <typename P, typename S> struct ScalesLoader<P, S, true> {
    static constexpr int DOWN = S::ROWS / hopper::WARPGROUP, ACROSS = S::COLS / hopper::WARPGROUP;
    RowScales row[DOWN];
    typename std::conditional<P::SUMS, RowScales, ColumnScale>::type col[ACROSS];
    int32_t next[DOWN]; /* rows of memory of the next tile */

    template <typename VA> __device__ __forceinline__ void look_ahead(const VA &a)
    {
#pragma unroll
        for (int q = 0; q < DOWN; q++)
            next[q] = (int32_t)a.row((int)threadIdx.x + q * hopper::WARPGROUP);
    }

    template <typename VA, typename VB>
    __device__ __forceinline__ void open(const VA &a, const VB &b)
    {
        bool blocks = !P::SUMS && b.of.scales.along;
#pragma unroll
        for (int q = 0; q < DOWN; q++)
            row[q].open(next[q] >= 0 ? a.scales(next[q]) : NULL, a.of.scales.along);
#pragma unroll
        for (int q = 0; q < ACROSS; q++) {
            int i = scaled_column<S>((int)threadIdx.x + q * hopper::WARPGROUP, blocks);
            int64_t r = i >= 0 ? b.row(i) : -1;
            col[q].open(r >= 0 ? b.scales(r) : NULL, b.of.scales.along);
        }
    }

    __device__ __forceinline__ void step(const P &p, uint32_t room)
    {
        constexpr int APART = hopper::WARPGROUP * (int)sizeof(float);
        uint32_t to = room + threadIdx.x * (uint32_t)sizeof(float);
#pragma unroll
        for (int q = 0; q < DOWN; q++) row[q].step(to + q * APART, p.a_scales());
        to += S::ROWS * (uint32_t)sizeof(float);
#pragma unroll
        for (int q = 0; q < ACROSS; q++) col[q].step(to + q * APART, p.b_scales());
    }
};

/* Adds a stage's sums of 64 x WAVE to those of all stages before it. left: the scales of this lane's
 * two rows; cols: the address of those of the columns, 0: they are applied later. */
template <bool SUMS>
static __device__ __forceinline__ void promote(const float (&part)[WAVE_SUMS], float *sum,
                                               const float (&left)[2], uint32_t cols)
{
    if constexpr (SUMS) {
#pragma unroll
        for (int piece = 0; piece < WAVE / 8; piece++) {
            float2 two = hopper::shared_floats(cols + (piece * 8 + threadIdx.x % 4 * 2) * 4);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int i = piece * 4 + h * 2;
                sum[i] += part[i] * (left[h] * two.x);
                sum[i + 1] += part[i + 1] * (left[h] * two.y);
            }
        }
    } else {
        float2 two = cols == 0 ? make_float2(1, 1) : hopper::shared_floats(cols);
        float scale[2][2] = { { left[0] * two.x, left[0] * two.y },
                              { left[1] * two.x, left[1] * two.y } };
#pragma unroll
        for (int i = 0; i < WAVE_SUMS; i++) sum[i] += part[i] * scale[i / 2 % 2][i / 4 % 2];
    }
}

/* Multiplies all sums with the scales of their columns. cols: the address of the first one. */
template <typename S>
static __device__ __forceinline__ void scales_finish(float (&sum)[S::BLOCKS][S::COLS / 2],
                                                     uint32_t cols)
{
#pragma unroll
    for (int piece = 0; piece < S::COLS / 8; piece++) {
        float2 two = hopper::shared_floats(cols + (piece * 8 + threadIdx.x % 4 * 2) * 4);
#pragma unroll
        for (int k = 0; k < S::BLOCKS * 2; k++) {
            sum[k / 2][piece * 4 + k % 2 * 2] *= two.x;
            sum[k / 2][piece * 4 + k % 2 * 2 + 1] *= two.y;
        }
    }
}

/* The four instructions for 64 x WAVE sums of a stage. */
template <bool A_E5M2>
static __device__ __forceinline__ void wave_multiply(float (&part)[WAVE_SUMS], uint64_t a,
                                                     uint64_t b)
{
    hopper::products_begin();
#pragma unroll
    for (int k = 0; k < hopper::ROW_BYTES / 32; k++)
        hopper::multiply_add_8<A_E5M2>(part, a + (k * 32 >> 4), b + (k * 32 >> 4), k);
    hopper::products_close();
}

/* Sums all terms of a tile, of which this warp has rows from first_row on, with their scales. */
template <typename P, typename S>
static __device__ __forceinline__ void scaled_sum(const P &p, float (&sum)[S::BLOCKS][S::COLS / 2],
                                                  const Barriers &bar, uint32_t ring, int steps,
                                                  int first_row, RingPlace *at)
{
    constexpr bool A_E5M2 = std::is_same<typename P::A, E5M2Bits>::value;
    constexpr int ACROSS = S::COLS / WAVE, FLOAT = (int)sizeof(float);
    constexpr int EACH = P::SUMS ? WAVE : 2; /* scales of a WAVE's columns */
    int lane = (int)threadIdx.x % 32, block = first_row / hopper::BLOCK, last = 0;
    bool at_end = !P::SUMS && !p.b_scales().along;
#pragma unroll
    for (int i = 0; i < S::BLOCKS * S::COLS / 2; i++) sum[i / (S::COLS / 2)][i % (S::COLS / 2)] = 0;
    for (int step = 0; step < steps; step++) {
        uint32_t room = ring + at->stage * S::STAGE, scales = scales_room<S>(ring, at->stage);
        hopper::wait(Barriers::at(bar.full, at->stage), at->turn);
        if (P::SideA::GATHERS) hopper::writes_to_products();
#pragma unroll
        for (int wave = 0; wave < S::BLOCKS * ACROSS; wave++) {
            int i = wave / ACROSS, across = wave % ACROSS;
            uint32_t b_room = room + S::A_BYTES + across * WAVE * hopper::ROW_BYTES;
            uint32_t rows = scales + (first_row + i * hopper::BLOCK + lane / 4) * FLOAT;
            uint32_t cols = scales + (S::ROWS + across * EACH) * FLOAT;
            float part[WAVE_SUMS];
            wave_multiply<A_E5M2>(part,
                                  hopper::operand_at(room + (block + i) * hopper::BLOCK_BYTES),
                                  hopper::operand_at(b_room));
            float left[2] = { hopper::shared_float(rows), hopper::shared_float(rows + 8 * FLOAT) };
            hopper::products_wait<0>();
            promote<P::SUMS>(part, &sum[i][across * WAVE_SUMS], left, at_end ? 0 : cols);
        }
        last = at->stage;
        __syncwarp(); /* all lanes have read the scales */
        if (lane == 0 && step + 1 < steps) hopper::arrive(Barriers::at(bar.empty, last));
        at->template next<S::STAGES>();
    }
    if (at_end) scales_finish<S>(sum, scales_room<S>(ring, last) + S::ROWS * FLOAT);
    __syncwarp();
    if (lane == 0) hopper::arrive(Barriers::at(bar.empty, last));
}

} // namespace grouped

#endif
