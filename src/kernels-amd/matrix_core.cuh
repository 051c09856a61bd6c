/*
 * matrix_core: one block's tile of a matrix product on the matrix cores of CDNA3 and CDNA4: 128 x 128
 * sums in f32 over bf16 operands. grouped_matrix.cuh has the kernel around it.
 *
 * A block has four waves, 2 x 2, each with 64 x 64 of the tile as 2 x 2 squares of 32 x 32. A step
 * is 64 bytes of each row of both operands: 32 terms. Two steps share LDS, 32 KB, so two blocks share
 * a processor. While one step is multiplied, the next one goes from registers to LDS, and the two
 * after it are being loaded. All loads of the loop are unconditional. Else the compiler cannot count
 * those that are under way, and waits for all of them.
 *
 * The order of the terms of a sum does not matter, as long as both operands have the same. So a lane
 * reads 16 bytes of a row, eight terms side by side, and gives them to two instructions of gfx942 or
 * to one of gfx950. For 16 terms a wave reads 4 KB and multiplies for 256 cycles. Four waves then
 * need LDS for 128 cycles, and for 64 more to write their share of the next step.
 * docs/notes/amd-kernels.md has the numbers of instructions, counted by tools/gfx_loops.
 *
 * In LDS a pair of rows takes 128 bytes, all 32 banks, as eight chunks of 16 bytes. They are permuted
 * in a different way in each of 8 pairs (chunk_at), so no access waits for a bank:
 *
 *   reads of 16 bytes    the 8 lanes that go together have 8 rows and one chunk of each
 *   writes of 16 bytes   they have two rows with all chunks
 *   writes of 8 bytes    16 lanes have both halves of one chunk, of 8 rows that are 4 apart
 *
 * The squares are those of the transposed product: the instruction's left operand is B. So register r
 * of lane l belongs to row l % 32 and column r % 4 + 4 (l / 32) + 8 (r / 4) of a square, and a lane
 * has groups of four columns side by side.
 */
#ifndef KERNELS_AMD_MATRIX_CORE_CUH
#define KERNELS_AMD_MATRIX_CORE_CUH

#include "engine/gpu/eight_bit.cuh"
#include "kernels/moe/grouped.cuh"

namespace matrix
{

using grouped::View;

enum {
    THREADS = 256,
    TILE = grouped::TILE,
    SQUARE = 32,                  /* rows and columns of an instruction's result */
    WAVE_TILE = TILE / 2,         /* rows and columns of a wave's part */
    SQUARES = WAVE_TILE / SQUARE, /* of a wave, in either direction */
    STEP_BYTES = 64,              /* of a row of an operand */
    CHUNK_BYTES = 16,             /* what a lane reads from LDS at a time */
    CHUNKS = STEP_BYTES / CHUNK_BYTES,
    STEP = STEP_BYTES / 2, /* terms */
    CHUNK = CHUNK_BYTES / 2,
    OPERAND_BYTES = TILE * STEP_BYTES,
    STAGE_BYTES = 2 * OPERAND_BYTES, /* A, then B */
    ROOM_BYTES = 2 * STAGE_BYTES,
    SQUARE_BYTES = SQUARE * STEP_BYTES,
};

typedef Words<16>::type Chunk;
typedef float SquareSums __attribute__((ext_vector_type(16)));

/* Sums of a wave, by squares: [rows][columns]. */
typedef SquareSums Sums[SQUARES][SQUARES];

/* Adds the products of 16 terms to a square: lanes 0 to 31 have the first eight of a row or column, the
 * others the rest. */
#ifdef __gfx950__
static __device__ __forceinline__ SquareSums bf16_product(Chunk left, Chunk right, SquareSums sum)
{
    typedef __bf16 Terms __attribute__((ext_vector_type(8)));
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(Terms, left),
                                                   __builtin_bit_cast(Terms, right), sum, 0, 0, 0);
}
#else
static __device__ __forceinline__ SquareSums bf16_product(Chunk left, Chunk right, SquareSums sum)
{
    typedef short Terms __attribute__((ext_vector_type(4)));
    Words<8>::type a[2] = { left.xy, left.zw }, b[2] = { right.xy, right.zw };
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sum = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(
            __builtin_bit_cast(Terms, a[i]), __builtin_bit_cast(Terms, b[i]), sum, 0, 0, 0);
    }
    return sum;
}
#endif

/* Where chunk c of row i of an operand begins, in bytes. */
static __device__ __forceinline__ int chunk_at(int i, int c)
{
    int pair = i >> 1, permuted = (pair & 7) ^ (pair >> 3 & 1);
    return pair * 2 * STEP_BYTES + (((i & 1) * CHUNKS + c) ^ permuted) * CHUNK_BYTES;
}

/* The terms of a tile. The first step has `first` of them, all others are whole. So only the first one
 * needs checks, and the loop has the same loads in each turn. */
struct Steps {
    int n, first;

    explicit __device__ __forceinline__ Steps(int64_t depth)
        : n((int)((depth + STEP - 1) / STEP)), first((int)(depth - (int64_t)(n - 1) * STEP))
    {
    }
    /* The number of a whole step, from 0 on. Past the last one it is repeated. */
    __device__ __forceinline__ int whole(int step) const { return max(min(step, n - 1) - 1, 0); }
};

/* What a Multiplier needs to know of the operands' type. */
struct Bf16Core {
    typedef matrix::Steps Steps;
    typedef Chunk Operand;

    static __device__ __forceinline__ SquareSums multiply(Chunk b, Chunk a, SquareSums sum)
    {
        return bf16_product(b, a, sum);
    }
};

/* The part of an operand that a thread brings: `open` loads the first step into registers, `fetch` a whole
 * one, and `put` writes it to LDS. Rows outside of the tile repeat one that is inside, as their sums
 * are not stored. Terms outside are zeros. If the first step is the only one, `fetch` loads
 * something that is inside, and nobody uses it. */
template <typename T, bool ALONG, bool GATHERS> struct Feed;

/* ALONG: a thread has one chunk of two rows. */
template <typename T, bool GATHERS> struct Feed<T, true, GATHERS> {
    static constexpr int ROWS = TILE * CHUNKS / THREADS, APART = TILE / ROWS;
    const T *at[ROWS]; /* in the first whole step */
    Chunk chunk[2][ROWS];

    static __device__ __forceinline__ int column() { return (int)threadIdx.x % CHUNKS * CHUNK; }

    __device__ __forceinline__ void open(const View<T> &v, const Steps &steps)
    {
        bool inside = column() < steps.first;
#pragma unroll
        for (int q = 0; q < ROWS; q++) {
            int64_t row = v.row((int)threadIdx.x / CHUNKS + q * APART);
            if (row < 0) row = v.row(0);
            at[q] = v.data + row * v.ld;
            chunk[0][q] = 0;
            if (inside) chunk[0][q] = *reinterpret_cast<const Chunk *>(at[q] + column());
            if (steps.n > 1) at[q] += steps.first + column();
        }
    }

    __device__ __forceinline__ void fetch(const Steps &steps, int step, int set)
    {
        int64_t term = (int64_t)steps.whole(step) * STEP;
#pragma unroll
        for (int q = 0; q < ROWS; q++)
            chunk[set][q] = *reinterpret_cast<const Chunk *>(at[q] + term);
    }

    __device__ __forceinline__ void put(unsigned char *room, int set) const
    {
        unsigned char *to = room + chunk_at((int)threadIdx.x / CHUNKS, column() / CHUNK);
#pragma unroll
        for (int q = 0; q < ROWS; q++)
            *reinterpret_cast<Chunk *>(to + q * APART * STEP_BYTES) = chunk[set][q];
    }
};

/* Not ALONG: a row of memory is a term. A thread has 4 terms of 4 rows of the tile, which it transposes
 * on the way to LDS. */
struct Turned {
    typedef Words<8>::type Four;
    static constexpr int FOUR = 4;
    Four four[2][FOUR];

    /* Lanes 0 to 7 and 8 to 15 have the same rows: together they write all banks. */
    static __device__ __forceinline__ int first_row()
    {
        int t = (int)threadIdx.x;
        return (t % 8 + t / 16 % 4 * 8) * FOUR;
    }
    static __device__ __forceinline__ int first_term()
    {
        int t = (int)threadIdx.x;
        return (t / 8 % 2 + t / WARP * 2) * FOUR;
    }

    /* Row r of the thread's four gets the terms' elements r: those of lower and upper halves of
     * words. */
    __device__ __forceinline__ void put(unsigned char *room, int set) const
    {
        const Four(&v)[FOUR] = four[set];
        int half = first_term() / FOUR % 2 * (CHUNK_BYTES / 2);
#pragma unroll
        for (int r = 0; r < FOUR; r++) {
            unsigned halves = r % 2 == 0 ? 0x5410 : 0x7632;
            Four out = { __byte_perm(v[0][r / 2], v[1][r / 2], halves),
                         __byte_perm(v[2][r / 2], v[3][r / 2], halves) };
            int to = chunk_at(first_row() + r, first_term() / CHUNK) + half;
            *reinterpret_cast<Four *>(room + to) = out;
        }
    }
};

/* Global memory, as bytes. */
typedef const __attribute__((address_space(1))) unsigned char *Bytes;

template <typename U> static __device__ __forceinline__ U read_at(Bytes at)
{
    return *(const __attribute__((address_space(1))) U *)at;
}

/* Reads at a base that all threads share and an offset of the thread's own. The instruction adds
 * them, if the compiler sees in the loop that the offset has 32 bits. */
template <typename U> static __device__ __forceinline__ U read_at(Bytes base, uint32_t &offset)
{
    value_forget(offset);
    return read_at<U>(base + offset);
}

/* Terms lie one behind the other: only the base moves. */
template <typename T> struct Feed<T, false, false> : Turned {
    Bytes base; /* of the first whole step */
    int64_t pitch;
    uint32_t offset[FOUR];

    __device__ __forceinline__ void open(const View<T> &v, const Steps &steps)
    {
        uint32_t col = first_row() < v.cols ? (uint32_t)first_row() * (uint32_t)sizeof(T) : 0;
        base = (Bytes)v.data;
        pitch = v.ld * (int64_t)sizeof(T);
#pragma unroll
        for (int k = 0; k < FOUR; k++) {
            int term = first_term() + k;
            bool inside = term < steps.first;
            offset[k] = (uint32_t)term * (uint32_t)pitch + col;
            four[0][k] = 0;
            if (inside) four[0][k] = read_at<Four>(base, offset[k]);
            if (steps.n == 1) offset[k] = col;
        }
        if (steps.n > 1) base += steps.first * pitch;
    }

    __device__ __forceinline__ void fetch(const Steps &steps, int step, int set)
    {
        Bytes from = base + steps.whole(step) * STEP * pitch;
#pragma unroll
        for (int k = 0; k < FOUR; k++) four[set][k] = read_at<Four>(from, offset[k]);
    }
};

/* An index names the terms' rows. They are looked up one step ahead. */
template <typename T> struct Feed<T, false, true> : Turned {
    Bytes data, index; /* index: of the first whole step */
    uint32_t pitch, entry[FOUR], row[FOUR];

    __device__ __forceinline__ void open(const View<T> &v, const Steps &steps)
    {
        constexpr uint32_t ENTRY = sizeof(int32_t);
        data = (Bytes)(v.data + (first_row() < v.cols ? first_row() : 0));
        index = (Bytes)v.index;
        pitch = (uint32_t)v.ld * (uint32_t)sizeof(T);
#pragma unroll
        for (int k = 0; k < FOUR; k++) {
            int term = first_term() + k;
            bool inside = term < steps.first;
            entry[k] = inside ? (uint32_t)term * ENTRY : 0;
            row[k] = read_at<uint32_t>(index, entry[k]);
            four[0][k] = 0;
            if (inside) load(0, k);
            if (steps.n > 1) entry[k] = (uint32_t)term * ENTRY;
        }
        if (steps.n > 1) index += steps.first * (int)ENTRY;
        look_up(steps, 1, row);
    }

    __device__ __forceinline__ void load(int set, int k)
    {
        value_forget(pitch);
        four[set][k] = read_at<Four>(data + (uint64_t)row[k] * pitch);
    }

    __device__ __forceinline__ void look_up(const Steps &steps, int step, uint32_t (&out)[FOUR])
    {
        Bytes from = index + (int64_t)steps.whole(step) * STEP * (int)sizeof(int32_t);
#pragma unroll
        for (int k = 0; k < FOUR; k++) out[k] = read_at<uint32_t>(from, entry[k]);
    }

    /* Loads return in order. So the next rows are asked for first: nobody waits for the data. */
    __device__ __forceinline__ void fetch(const Steps &steps, int step, int set)
    {
        uint32_t next[FOUR];
        look_up(steps, step + 1, next);
#pragma unroll
        for (int k = 0; k < FOUR; k++) load(set, k);
        memcpy(row, next, sizeof row);
    }
};

/* The sums of a tile. */
template <typename FeedA, typename FeedB, typename Core> struct Multiplier {
    FeedA a;
    FeedB b;
    unsigned char *room; /* ROOM_BYTES of LDS */
    typename Core::Steps steps;

    template <typename A, typename B>
    __device__ __forceinline__ Multiplier(const View<A> &left, const View<B> &right, int64_t depth,
                                          unsigned char *lds)
        : room(lds), steps(depth)
    {
        a.open(left, steps);
        b.open(right, steps);
    }

    __device__ __forceinline__ void fetch(int step, int set)
    {
        a.fetch(steps, step, set);
        b.fetch(steps, step, set);
    }

    __device__ __forceinline__ void put(int set)
    {
        a.put(room + set * STAGE_BYTES, set);
        b.put(room + set * STAGE_BYTES + OPERAND_BYTES, set);
    }

    /* Half of a step's terms: two chunks of each row. */
    __device__ __forceinline__ void multiply_half(int turn, int half, Sums &sum) const
    {
        int lane = (int)threadIdx.x % WARP, wave = (int)threadIdx.x / WARP;
        int row = wave / 2 * WAVE_TILE + lane % SQUARE, col = wave % 2 * WAVE_TILE + lane % SQUARE;
        int chunk = half * 2 + lane / SQUARE;
        const unsigned char *left = room + turn * STAGE_BYTES + chunk_at(row, chunk);
        const unsigned char *right =
            room + turn * STAGE_BYTES + OPERAND_BYTES + chunk_at(col, chunk);
        typedef typename Core::Operand Operand;
        Operand x[SQUARES], y[SQUARES];
#pragma unroll
        for (int i = 0; i < SQUARES; i++) {
            x[i] = *reinterpret_cast<const Operand *>(left + i * SQUARE_BYTES);
            y[i] = *reinterpret_cast<const Operand *>(right + i * SQUARE_BYTES);
        }
#pragma unroll
        for (int i = 0; i < SQUARES; i++) {
#pragma unroll
            for (int j = 0; j < SQUARES; j++) sum[i][j] = Core::multiply(y[j], x[i], sum[i][j]);
        }
    }

    /* Multiplies step s, which has this turn in LDS and in registers. */
    __device__ __forceinline__ void step(int s, int turn, Sums &sum)
    {
        __syncthreads(); /* this step is in LDS, and no wave reads the one before any more */
        multiply_half(turn, 0, sum);
        put(turn ^ 1);
        fetch(s + 3, turn ^ 1);
        multiply_half(turn, 1, sum);
    }

    /* The loop does two steps a turn, so an odd one is done before it. */
    __device__ __forceinline__ void run(Sums &sum)
    {
        int s = 0;
        if (steps.n % 2 != 0) {
            put(0);
            fetch(1, 0);
            __syncthreads();
            multiply_half(0, 0, sum);
            multiply_half(0, 1, sum);
            __syncthreads();
            s = 1;
        }
        fetch(s + 1, 1);
        put(0);
        fetch(s + 2, 0);
        for (; s < steps.n; s += 2) {
            step(s, 0, sum);
            step(s + 1, 1, sum);
        }
    }
};

} // namespace matrix

#endif
