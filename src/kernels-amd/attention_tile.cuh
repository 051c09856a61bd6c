/*
 * attention_tile: products of 32 x 32 scores on CDNA's matrix cores, and the tiles of LDS that they
 * read. attention_matrix.cuh says what is computed with them.
 *
 * v_mfma_f32_32x32x8_bf16 adds A (32 x 8) B (8 x 32) to C (32 x 32). With h = lane / 32 a lane gives
 *
 *   A, B   row or column lane % 32, terms 4 h to 4 h + 3
 *   C      column lane % 32, rows 8 j + 4 h to + 3 in registers 4 j to 4 j + 3
 *
 * A sum may run over its terms in any order, if A and B have the same. So a lane always reads 16
 * bytes, which serve two instructions (one on gfx950, which multiplies 16 terms at a time). And C,
 * rounded to bf16, is B of the next product as it lies: its rows are then the terms. Rows 16 m + 4 h
 * to + 3 and those 8 after them are the eight terms of step m. This is the order of Across.
 *
 * Along    rows as in memory, for products over their columns
 * Across   a row for each column, for products over the rows
 *
 * LDS has 32 banks of 4 bytes, and 16-byte pieces of a row stand at places that are turned by the
 * row's number: by exclusive or, linear in its bits. Lanes that are served together differ in bits 0,
 * 1 and either 2 or both 2 and 4 of the row they read (tools/gfxrun/banks.c), and in other bits where
 * they write. Each turn maps both sets to all eight places, so no access waits for another.
 */
#ifndef KERNELS_AMD_ATTENTION_TILE_CUH
#define KERNELS_AMD_ATTENTION_TILE_CUH

#include "kernels/core/kernel.cuh"

namespace attention_matrix
{

static constexpr int SIDE = 32; /* rows and columns of a product */
static constexpr int THREADS = 256, WAVES = THREADS / WARP;
static constexpr int ROWS = WAVES * SIDE; /* that a block owns */
static constexpr int PIECE = 16;          /* bytes */
static constexpr int LINE = 128;          /* bytes: once around the banks */

typedef float Sums __attribute__((ext_vector_type(16)));    /* a lane's part of C */
typedef uint32_t Terms __attribute__((ext_vector_type(4))); /* eight in bf16 */
typedef uint32_t HalfTerms __attribute__((ext_vector_type(2)));
typedef float Pair __attribute__((ext_vector_type(2)));

#ifdef __gfx950__

typedef __bf16 EightTerms __attribute__((ext_vector_type(8)));
typedef __bf16 TwoTerms __attribute__((ext_vector_type(2)));

static __device__ __forceinline__ Sums multiply_add(Terms a, Terms b, Sums c)
{
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(EightTerms, a),
                                                   __builtin_bit_cast(EightTerms, b), c, 0, 0, 0);
}

static __device__ __forceinline__ uint32_t terms_pair(float low, float high)
{
    Pair v = { low, high };
    return __builtin_bit_cast(uint32_t, __builtin_convertvector(v, TwoTerms));
}

#else

typedef short FourShorts __attribute__((ext_vector_type(4)));

static __device__ __forceinline__ Sums multiply_add(Terms a, Terms b, Sums c)
{
    FourShorts a0 = __builtin_bit_cast(FourShorts, (HalfTerms){ a[0], a[1] });
    FourShorts a1 = __builtin_bit_cast(FourShorts, (HalfTerms){ a[2], a[3] });
    FourShorts b0 = __builtin_bit_cast(FourShorts, (HalfTerms){ b[0], b[1] });
    FourShorts b1 = __builtin_bit_cast(FourShorts, (HalfTerms){ b[2], b[3] });
    c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a0, b0, c, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a1, b1, c, 0, 0, 0);
}

/* To nearest, ties away from zero: three instructions for two numbers. Ties to even take five, as the chip
 * has no instruction for it, and one number in 65,536 is a tie. NaNs that come from bf16 have no lower bits,
 * so they stay NaNs. */
static __device__ __forceinline__ uint32_t terms_pair(float low, float high)
{
    const uint32_t half = 0x8000u, upper = 0x07060302u;
    return __builtin_amdgcn_perm(__float_as_uint(high) + half, __float_as_uint(low) + half, upper);
}

#endif

/* The place of a lane in a product: its row or column, and which terms it holds. */
static __device__ __forceinline__ int lane_line() { return lane_number() % SIDE; }
static __device__ __forceinline__ int lane_half() { return lane_number() / SIDE; }

/* The row of C in register r, less 4 h. */
static constexpr __host__ __device__ __forceinline__ int sums_row(int r)
{
    return r % 4 + r / 4 * 8;
}

static __device__ __forceinline__ Sums no_sums()
{
    Sums s = {};
    return s;
}

/* The value is there from here on. The compiler would wait for a load, or compute, where the value is
 * used: in each turn of a loop, or after the products beside which there is time. */
template <typename T> static __device__ __forceinline__ void arrived(T &v)
{
    asm volatile("" : "+v"(v));
}

/* Two registers, for instructions that compute two numbers at a time. */
template <typename V> static __device__ __forceinline__ Pair pair_of(const V &v, int r)
{
    return { v[r], v[r + 1] };
}

static __device__ __forceinline__ Pair pair_exp2(Pair v)
{
    return { fast_exp2(v[0]), fast_exp2(v[1]) };
}

/* Steps of 16 terms: C as an operand B. */
static constexpr int STEPS = SIDE / 16;

static __device__ __forceinline__ void terms_of(const Sums &c, Terms (&out)[STEPS])
{
#pragma unroll
    for (int m = 0; m < STEPS; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) out[m][i] = terms_pair(c[8 * m + 2 * i], c[8 * m + 2 * i + 1]);
    }
}

/* The operands B of a row of D columns in memory, which stays in registers. */
template <int D> struct Fixed {
    Terms step[D / 16];

    __device__ __forceinline__ void load(const Bf16 *row)
    {
        const Terms *from = reinterpret_cast<const Terms *>(row) + lane_half();
#pragma unroll
        for (int m = 0; m < D / 16; m++) step[m] = from[2 * m];
#pragma unroll
        for (int m = 0; m < D / 16; m++) arrived(step[m]);
    }
};

/* The rows of a head, from which tiles are loaded. Rows after the last one repeat it: nothing that is
 * computed of them counts, and a load without conditions can be waited for alone. */
struct Rows {
    const Bf16 *head;
    int stride; /* bytes, below 2^24 */
    int last;

    __device__ __forceinline__ const char *from(int first) const
    {
        return reinterpret_cast<const char *>(head) + (int64_t)min(first, last) * stride;
    }
    __device__ __forceinline__ uint32_t offset(int first, int row) const
    {
        uint32_t there = (uint32_t)min(row, last - min(first, last));
        return (there & 0xFFu) * ((uint32_t)stride & 0xFFFFFFu);
    }
};

static __device__ __forceinline__ int bit(int v, int i) { return v >> i & 1; }

/* N rows of D columns on their way from memory to LDS, 16 bytes a piece: eight neighbouring threads
 * take a line. */
template <int N, int D> struct Along {
    static constexpr int BYTES = N * D * 2;
    Terms held[N / SIDE][D / 64];

    static __device__ __forceinline__ int turn(int row) { return (row & 7) ^ bit(row, 3) << 2; }

    static __device__ __forceinline__ int place(int row, int piece)
    {
        return row * D * 2 + (piece ^ turn(row)) * PIECE;
    }

    __device__ __forceinline__ void load(const Rows &rows, int first)
    {
        int row = (int)threadIdx.x / 8;
        uint32_t piece = threadIdx.x % 8 * PIECE;
        const char *from = rows.from(first);
#pragma unroll
        for (int r = 0; r < N / SIDE; r++) {
            uint32_t at = rows.offset(first, row + r * SIDE) + piece;
#pragma unroll
            for (int c = 0; c < D / 64; c++)
                held[r][c] = *reinterpret_cast<const Terms *>(from + at + c * LINE);
        }
    }

    __device__ __forceinline__ void store(char *tile) const
    {
        int at = place((int)threadIdx.x / 8, (int)threadIdx.x % 8);
#pragma unroll
        for (int r = 0; r < N / SIDE; r++) {
#pragma unroll
            for (int c = 0; c < D / 64; c++)
                *reinterpret_cast<Terms *>(tile + at + r * SIDE * D * 2 + c * LINE) = held[r][c];
        }
    }

    /* A of step m: eight columns of the lane's row in the t-th group of 32. */
    static __device__ __forceinline__ Terms get(const char *tile, int t, int m)
    {
        int at = place(lane_line(), lane_half()) ^ (2 * m & 6) * PIECE;
        return *reinterpret_cast<const Terms *>(tile + at + t * SIDE * D * 2 + m / 4 * LINE);
    }
};

/* The same rows, of which LDS gets the transpose. A unit is four rows of four columns. Its threads are
 * numbered so that 16 of them read a line of memory, and write to all banks. */
template <int N, int D> struct Across {
    static_assert(N == 32 || N == 64, "turns are made for these");
    static constexpr int BYTES = N * D * 2;
    static constexpr int STRIPS = D / 64;                      /* of 64 columns */
    static constexpr int TEAMS = THREADS / (N * 4);            /* each takes a strip at a time */
    static constexpr int UNITS = (STRIPS + TEAMS - 1) / TEAMS; /* of a thread */
    HalfTerms held[UNITS][4];

    /* A column's pieces: eight with 64 rows, so it fills a line; or four. */
    static __device__ __forceinline__ int place(int column, int piece)
    {
        int c = column, turn64 = (c & 7) ^ bit(c, 4) ^ bit(c, 3) << 1;
        if (N == 64) return c * LINE + (piece ^ turn64) * PIECE;
        int turn32 = (bit(c, 1) ^ bit(c, 3)) | bit(c, 2) << 1 | bit(c, 4) << 2;
        return c / 2 * LINE + ((bit(c, 0) << 2 | piece) ^ turn32) * PIECE;
    }

    /* The place of the column i after one that is a multiple of four. */
    static __device__ __forceinline__ int place_after(int at, int i)
    {
        if (N == 64) return (at ^ i * PIECE) + i * LINE;
        return (at ^ ((i & 1) << 2 ^ i >> 1) * PIECE) + i / 2 * LINE;
    }

    static __device__ __forceinline__ int column() /* a quarter of it, within a strip */
    {
        return ((int)threadIdx.x & 7) | bit((int)threadIdx.x, 4) << 3;
    }
    static __device__ __forceinline__ int row() /* a quarter of it */
    {
        int t = (int)threadIdx.x;
        return (bit(t, 5) | bit(t, 3) << 1 | t >> 6 << 2) % (N / 4);
    }
    static __device__ __forceinline__ int team() { return (int)threadIdx.x / (N * 4); }

    /* A team without a strip repeats the last one, so that all threads have loaded as much. */
    __device__ __forceinline__ void load(const Rows &rows, int first)
    {
        const char *from = rows.from(first);
        uint32_t at[4], own = (uint32_t)team() * LINE;
#pragma unroll
        for (int i = 0; i < 4; i++)
            at[i] = rows.offset(first, row() * 4 + i) + (uint32_t)column() * 8;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            bool all = (u + 1) * TEAMS <= STRIPS;
            const char *strip = from + (all ? u * TEAMS : STRIPS - 1) * LINE;
#pragma unroll
            for (int i = 0; i < 4; i++)
                held[u][i] =
                    *reinterpret_cast<const HalfTerms *>(strip + (at[i] + (all ? own : 0)));
        }
    }

    /* Column i of a unit. */
    static __device__ __forceinline__ HalfTerms column_of(const HalfTerms (&unit)[4], int i)
    {
        uint32_t which = i % 2 == 0 ? 0x05040100u : 0x07060302u; /* lower or upper halves */
        return { __builtin_amdgcn_perm(unit[1][i / 2], unit[0][i / 2], which),
                 __builtin_amdgcn_perm(unit[3][i / 2], unit[2][i / 2], which) };
    }

    /* Is there a strip for unit u of this thread? */
    static __device__ __forceinline__ bool has(int u)
    {
        return (u + 1) * TEAMS <= STRIPS || u * TEAMS + team() < STRIPS;
    }

    /* Rows 16 n + 8 x + 4 y to + 3 are half x of piece 2 n + y. */
    __device__ __forceinline__ void store(char *tile) const
    {
        int r = row(), at = place(column() * 4, r / 4 * 2 + bit(r, 0)) + bit(r, 1) * 8;
        at += team() * 64 * N * 2;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            if (!has(u)) continue;
#pragma unroll
            for (int i = 0; i < 4; i++)
                *reinterpret_cast<HalfTerms *>(tile + place_after(at, i) + u * TEAMS * 64 * N * 2) =
                    column_of(held[u], i);
        }
    }

    /* The rows as they are, for Along<N, D>::get. Lanes that are served together have half a line of two
     * rows that are eight apart, which turn differently. */
    __device__ __forceinline__ void store_along(char *tile) const
    {
        int at = Along<N, D>::place(row() * 4, column() / 2) + bit(column(), 0) * 8 + team() * LINE;
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            if (!has(u)) continue;
#pragma unroll
            for (int i = 0; i < 4; i++)
                *reinterpret_cast<HalfTerms *>(tile + (at ^ i * PIECE) + i * D * 2 +
                                               u * TEAMS * LINE) = held[u][i];
        }
    }

    /* A of step m: eight rows of the lane's column in the t-th group of 32. */
    static __device__ __forceinline__ Terms get(const char *tile, int t, int m)
    {
        int at = place(lane_line(), lane_half()) ^ 2 * m * PIECE;
        return *reinterpret_cast<const Terms *>(tile + at + t * SIDE * N * 2);
    }
};

} // namespace attention_matrix

#endif
