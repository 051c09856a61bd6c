/*
 * matrix_eight: what matrix_core.cuh does otherwise if operands have 8 bits and scales.
 *
 * A step is 64 terms, so two steps are a block of scales. Their sums are multiplied by the scales and
 * added to f32 sums in other registers, as on the CPU (kernels/dense/scaled.h). The last block is multiplied
 * first: it alone may be incomplete.
 *
 * Tensors hold OCP's formats. gfx950 reads these. gfx942 reads FNUZ, whose exponents are one lower: the
 * same bits are half the number. So products are a quarter, and FACTOR is 4. Two kinds of codes mean
 * something else there:
 *
 *   0x80            minus zero, but NaN in FNUZ: 0 takes its place
 *   NaN, infinity   finite numbers in FNUZ: the row or column of the result becomes NaN after all
 *                   terms. So an infinity of e5m2 gives NaN, also where the sum is infinite
 *
 * Codes are translated on their way to LDS, for four instructions a word of four.
 */
#ifndef KERNELS_AMD_MATRIX_EIGHT_CUH
#define KERNELS_AMD_MATRIX_EIGHT_CUH

#include "kernels-amd/matrix_core.cuh"

namespace matrix
{

using grouped::E4M3Bits;
using grouped::E5M2Bits;

enum {
    EIGHT_STEP = STEP_BYTES,
    EIGHT_CHUNK = CHUNK_BYTES,
    BLOCK_STEPS = OPERAND_BLOCK / EIGHT_STEP
};

/* 16 numbers as tensors hold them, and as the matrix cores read them. */
struct OcpCodes {
    Chunk bits;
};
struct CoreCodes {
    Chunk bits;
};

#ifdef __gfx950__
static constexpr float FACTOR = 1;

template <typename T>
static __device__ __forceinline__ CoreCodes core_codes(OcpCodes from, uint32_t &)
{
    return { from.bits };
}
#else
static constexpr float FACTOR = 4;

/* What added to a magnitude sets the upper bit if it is no finite number. */
template <typename T>
constexpr uint32_t NOT_FINITE = std::is_same<T, E5M2Bits>::value ? 0x04040404u : 0x01010101u;

/* Sets an upper bit in `special` if a number is not finite. */
template <typename T>
static __device__ __forceinline__ CoreCodes core_codes(OcpCodes from, uint32_t &special)
{
    constexpr uint32_t MAGNITUDE = 0x7F7F7F7Fu;
    Chunk out;
#pragma unroll
    for (int w = 0; w < 4; w++) {
        uint32_t magnitude = from.bits[w] & MAGNITUDE;
        value_forget(
            magnitude); /* else the compiler makes two instructions of the last line's one */
        special |= magnitude + NOT_FINITE<T>;
        uint32_t nonzero = magnitude + MAGNITUDE;
        out[w] = (from.bits[w] & nonzero) | magnitude;
    }
    return { out };
}
#endif

/* The instructions' names of the formats: A's rows may be e5m2, B's are e4m3. */
template <typename A>
static __device__ __forceinline__ SquareSums eight_product(long b, long a, SquareSums sum)
{
    if constexpr (std::is_same<A, E5M2Bits>::value)
        return __builtin_amdgcn_mfma_f32_32x32x16_fp8_bf8(b, a, sum, 0, 0, 0);
    else
        return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(b, a, sum, 0, 0, 0);
}

/* The terms of a tile: the last block's steps come first, and may have fewer. */
struct BlockSteps {
    int n, left; /* terms of the last block */
    int64_t last;

    explicit __device__ __forceinline__ BlockSteps(int64_t depth)
    {
        int64_t blocks = (depth + OPERAND_BLOCK - 1) / OPERAND_BLOCK;
        n = (int)blocks * BLOCK_STEPS;
        last = (blocks - 1) * OPERAND_BLOCK;
        left = (int)(depth - last);
    }
    __device__ __forceinline__ int whole(int step) const
    {
        return max(min(step, n - 1) - BLOCK_STEPS, 0);
    }
    /* The block of scales of a pair of steps. */
    __device__ __forceinline__ int block(int pair) const
    {
        int blocks = n / BLOCK_STEPS;
        return pair == 0 ? blocks - 1 : min(pair, blocks) - 1;
    }
};

/* Adds the products of 32 terms to a square. */
template <typename A> struct EightCore {
    typedef BlockSteps Steps;
    typedef CoreCodes Operand;

    static __device__ __forceinline__ SquareSums multiply(CoreCodes b, CoreCodes a, SquareSums sum)
    {
        typedef long Halves __attribute__((ext_vector_type(2)));
        Halves left = __builtin_bit_cast(Halves, b.bits),
               right = __builtin_bit_cast(Halves, a.bits);
        sum = eight_product<A>(left.x, right.x, sum);
        return eight_product<A>(left.y, right.y, sum);
    }
};

/* As Feed, of rows along k. */
template <typename T> struct EightFeed {
    static constexpr int ROWS = TILE * CHUNKS / THREADS, APART = TILE / ROWS;
    const T *at[ROWS];
    OcpCodes chunk[2][ROWS];
    uint32_t special[ROWS]; /* an upper bit: the row has a number that is not finite */

    static __device__ __forceinline__ int column()
    {
        return (int)threadIdx.x % CHUNKS * EIGHT_CHUNK;
    }
    static __device__ __forceinline__ int row() { return (int)threadIdx.x / CHUNKS; }

    /* The first n of 16 codes, the others 0. */
    static __device__ __forceinline__ OcpCodes first_codes(const T *at, int n)
    {
        Chunk v = 0;
        if (n > 0) v = *reinterpret_cast<const Chunk *>(at);
#pragma unroll
        for (int w = 0; w < 4; w++) {
            int keep = n - w * 4;
            if (keep < 4) v[w] &= keep <= 0 ? 0u : (1u << keep * 8) - 1;
        }
        return { v };
    }

    __device__ __forceinline__ void open(const View<T> &v, const BlockSteps &steps)
    {
#pragma unroll
        for (int q = 0; q < ROWS; q++) {
            int64_t r = v.row(row() + q * APART);
            if (r < 0) r = v.row(0);
            at[q] = v.data + r * v.ld;
            special[q] = 0;
#pragma unroll
            for (int s = 0; s < BLOCK_STEPS; s++) {
                int col = s * EIGHT_STEP + column();
                chunk[s][q] = first_codes(at[q] + steps.last + col, steps.left - col);
            }
            if (steps.n > BLOCK_STEPS) at[q] += column();
        }
    }

    __device__ __forceinline__ void fetch(const BlockSteps &steps, int step, int set)
    {
        int64_t term = (int64_t)steps.whole(step) * EIGHT_STEP;
#pragma unroll
        for (int q = 0; q < ROWS; q++)
            chunk[set][q] = { *reinterpret_cast<const Chunk *>(at[q] + term) };
    }

    __device__ __forceinline__ void put(unsigned char *room, int set)
    {
        unsigned char *to = room + chunk_at(row(), column() / EIGHT_CHUNK);
#pragma unroll
        for (int q = 0; q < ROWS; q++) {
            *reinterpret_cast<CoreCodes *>(to + q * APART * STEP_BYTES) =
                core_codes<T>(chunk[set][q], special[q]);
        }
    }

    /* Writes a factor of each row to LDS: NaN if not all of it was finite. factor(row): else. */
    template <typename F> __device__ __forceinline__ void factors(float *to, F factor) const
    {
#pragma unroll
        for (int q = 0; q < ROWS; q++) {
            uint32_t any = special[q];
            for (int bits = 1; bits < CHUNKS; bits *= 2) any |= lane_get_xor(any, bits);
            int r = row() + q * APART;
            if (column() == 0) to[r] = (any & 0x80808080u) != 0 ? NAN : factor(r);
        }
    }
};

/* The scales of a wave's rows and columns, for one block. COLUMNS: each column has its own, which the
 * lane of that number holds. Else there is one for gates and one for ups, or twice the same. */
template <bool COLUMNS> struct BlockScales {
    const float *row_at[SQUARES], *col_at[2];
    bool rows_along, cols_along;
    float row[SQUARES], col[2];

    template <typename V> static __device__ __forceinline__ const float *at(const V &v, int i)
    {
        int64_t r = v.row(i);
        return v.scales(r < 0 ? v.row(0) : r);
    }

    template <typename VA, typename VB>
    __device__ __forceinline__ void open(const VA &a, const VB &b)
    {
        int lane = (int)threadIdx.x % WARP, wave = (int)threadIdx.x / WARP;
        rows_along = a.of.scales.along;
        cols_along = b.of.scales.along;
#pragma unroll
        for (int i = 0; i < SQUARES; i++)
            row_at[i] = at(a, wave / 2 * WAVE_TILE + i * SQUARE + lane % SQUARE);
        col_at[0] = at(b, COLUMNS ? wave % 2 * WAVE_TILE + lane : 0);
        col_at[1] = at(b, COLUMNS ? 0 : 8);
    }

    __device__ __forceinline__ void load(int block)
    {
#pragma unroll
        for (int i = 0; i < SQUARES; i++) row[i] = row_at[i][rows_along ? block : 0] * FACTOR;
#pragma unroll
        for (int i = 0; i < (COLUMNS ? 1 : 2); i++)
            col[i] = COLUMNS || cols_along ? col_at[i][cols_along ? block : 0] : 1.0f;
    }

    /* total += sum * scales */
    __device__ __forceinline__ void add(const Sums &sum, Sums &total) const
    {
        int four = (int)threadIdx.x % WARP / SQUARE * 4;
#pragma unroll
        for (int j = 0; j < SQUARES; j++) {
            SquareSums c;
#pragma unroll
            for (int r = 0; r < 16; r++) {
                int column = j * SQUARE + r / 4 * 8 + four + r % 4;
                c[r] = COLUMNS ? lane_get(col[0], column) : col[r / 4 % 2];
            }
#pragma unroll
            for (int i = 0; i < SQUARES; i++) total[i][j] += sum[i][j] * (row[i] * c);
        }
    }
};

/* The sums of a tile of 8-bit operands. Scales of B that do not change along k are applied after all
 * terms, unless columns have their own in each block. */
template <typename A, typename B, bool COLUMNS>
struct EightMultiplier : Multiplier<EightFeed<A>, EightFeed<B>, EightCore<A>> {
    typedef Multiplier<EightFeed<A>, EightFeed<B>, EightCore<A>> Base;
    View<B> columns;
    BlockScales<COLUMNS> scales;

    __device__ __forceinline__ EightMultiplier(const View<A> &left, const View<B> &right,
                                               int64_t depth, unsigned char *lds)
        : Base(left, right, depth, lds), columns(right)
    {
        scales.open(left, right);
    }

    __device__ __forceinline__ void run(Sums &total)
    {
        scales.load(this->steps.block(0));
        this->put(0);
        this->fetch(2, 0);
        for (int s = 0; s < this->steps.n; s += BLOCK_STEPS) {
            BlockScales<COLUMNS> now = scales;
            scales.load(this->steps.block(s / BLOCK_STEPS + 1));
            Sums sum = {};
            this->step(s, 0, sum);
            this->step(s + 1, 1, sum);
            now.add(sum, total);
        }
        finish(total);
    }

    __device__ __forceinline__ void finish(Sums &total)
    {
        float *rows = reinterpret_cast<float *>(this->room), *cols = rows + TILE;
        int lane = (int)threadIdx.x % WARP, wave = (int)threadIdx.x / WARP;
        bool apart = !COLUMNS && !scales.cols_along;
        __syncthreads();
        this->a.factors(rows, [](int) { return 1.0f; });
        this->b.factors(cols, [&](int i) { return apart ? columns.scale(i, 0) : 1.0f; });
        __syncthreads();
        rows += wave / 2 * WAVE_TILE + lane % SQUARE;
        cols += wave % 2 * WAVE_TILE + lane / SQUARE * 4;
#pragma unroll
        for (int j = 0; j < SQUARES; j++) {
#pragma unroll
            for (int r = 0; r < 16; r++) {
                float c = cols[j * SQUARE + r / 4 * 8 + r % 4];
#pragma unroll
                for (int i = 0; i < SQUARES; i++) total[i][j][r] *= rows[i * SQUARE] * c;
            }
        }
    }
};

} // namespace matrix

#endif
