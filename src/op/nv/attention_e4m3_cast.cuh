/*
 * attention_e4m3_cast: what attention_e4m3.cu reads: q, k and v as e4m3 with scales, a matrix for
 * each head. The rows of q and k are tokens. Those of v are columns: 8-bit products sum along rows
 * of both operands, and p v sums over keys. Rows, or keys, are filled up with zeros to a multiple of
 * 128. A block of threads has 128 tokens of one head. It reads them once, coalesced, into registers.
 */
#ifndef OP_NV_ATTENTION_E4M3_CAST_CUH
#define OP_NV_ATTENTION_E4M3_CAST_CUH

#include "op/quant_tile.cuh"

namespace e4m3
{

enum {
    TILE = 128, /* tokens */
    THREADS = 256,
    LANES = 8, /* that share a row: 16 bytes each, every 128 bytes */
    ROWS = THREADS / LANES,
    PASSES = TILE / ROWS,
    PITCH = TILE / 4 + 1 /* words from row to row of the transposed tile */
};

/* One of q, k and v. tokens: of a sequence; padded: the same in whole tiles. */
typedef struct Cast {
    const Bf16 *x;
    uint8_t *data;
    float *scale; /* (B * heads, padded), or of each tile */
    int64_t tokens, padded, heads;
} Cast;

/* A head's tokens [first, first + 128). PACKS: of 8 numbers, for each thread and row. TURNED: as v's
 * rows need them. The results of q k^T that a thread has are to be its operands of p v. They are of
 * keys 8 j + 2 t and the next one, t = 0 .. 3, which are operands t of 16 keys in runs of four. */
template <int PACKS, bool TURNED> struct CastTile {
    static constexpr int D = PACKS * LANES * 8;
    int64_t matrix, first; /* b * heads + head */
    uint4 pack[PASSES][PACKS];

    __device__ __forceinline__ explicit CastTile(const Cast &c)
    {
        int64_t tiles = c.padded / TILE;
        matrix = blockIdx.x / tiles, first = blockIdx.x % tiles * TILE;
        int64_t b = matrix / c.heads, head = matrix % c.heads;
#pragma unroll
        for (int i = 0; i < PASSES * PACKS; i++) {
            int64_t t = first + row(i / PACKS);
            const Bf16 *from = c.x + ((b * c.tokens + t) * c.heads + head) * D + column(i % PACKS);
            pack[i / PACKS][i % PACKS] =
                t < c.tokens ? read_once((const uint4 *)from) : make_uint4(0, 0, 0, 0);
        }
    }

    static __device__ __forceinline__ int row(int pass)
    {
        int i = (int)threadIdx.x / LANES;
        return TURNED ? i / 4 * 16 + pass / 2 * 8 + i % 4 * 2 + pass % 2 : pass * ROWS + i;
    }
    static __device__ __forceinline__ int column(int k)
    {
        return (k * LANES + (int)threadIdx.x % LANES) * 8;
    }

    /* The largest magnitude of a row, as bits, in all lanes that share it. NaNs are left out. */
    __device__ __forceinline__ uint32_t row_most(int pass) const
    {
        uint32_t most = 0;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            uint32_t word[4] = { pack[pass][k].x, pack[pass][k].y, pack[pass][k].z,
                                 pack[pass][k].w };
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint32_t bits = (i % 2 ? word[i / 2] : word[i / 2] << 16) & 0x7FFF0000u;
                most = max(most, bits > quant::INFINITE ? 0 : bits);
            }
        }
#pragma unroll
        for (int bit = 1; bit < LANES; bit *= 2) most = max(most, lane_get_xor(most, bit));
        return most;
    }

    __device__ __forceinline__ uint2 codes(int pass, int k, float inverse) const
    {
        uint32_t word[4] = { pack[pass][k].x, pack[pass][k].y, pack[pass][k].z, pack[pass][k].w };
        uint32_t two[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            two[i] = pair_to_e4m3(__uint_as_float(word[i] << 16) * inverse,
                                  __uint_as_float(word[i] & 0xFFFF0000u) * inverse);
        return make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
    }
};

/* The tile's scale, the same in all threads; one of them stores it. */
template <int PACKS, bool TURNED>
static __device__ __forceinline__ float tile_scale(const Cast &c, const CastTile<PACKS, TURNED> &t)
{
    __shared__ uint32_t most;
    uint32_t own = 0;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) own = max(own, t.row_most(pass));
    own = lanes_max(own);
    if (threadIdx.x % WARP == 0) atomicMax(&most, own);
    __syncthreads();
    float scale = quant::scale_of(most, 448, true);
    if (threadIdx.x == 0) c.scale[blockIdx.x] = scale;
    return scale;
}

/* EACH: a scale for each row, as q has; otherwise for the tile. */
template <int PACKS, bool EACH> static __global__ __launch_bounds__(THREADS) void cast_rows(Cast c)
{
    CastTile<PACKS, false> t(c);
    float scale = EACH ? 0 : tile_scale(c, t);
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        int64_t row = t.matrix * c.padded + t.first + t.row(pass);
        if (EACH) scale = quant::scale_of(t.row_most(pass), 448, true);
        if (EACH && threadIdx.x % LANES == 0) c.scale[row] = scale;
#pragma unroll
        for (int k = 0; k < PACKS; k++)
            *(uint2 *)(c.data + row * t.D + t.column(k)) = t.codes(pass, k, 1 / scale);
    }
}

/* Byte i of four words. */
static __device__ __forceinline__ uint32_t bytes_of(const uint32_t (&w)[4], int i)
{
    uint32_t pair = i | (i + 4) << 4;
    return __byte_perm(__byte_perm(w[0], w[1], pair), __byte_perm(w[2], w[3], pair), 0x5410);
}

/* A thread's four keys lie side by side in a row of v, so it writes words. */
template <int PACKS> static __global__ __launch_bounds__(THREADS) void cast_columns(Cast c)
{
    __shared__ uint32_t turned[CastTile<PACKS, true>::D * PITCH];
    CastTile<PACKS, true> t(c);
    float inverse = 1 / tile_scale(c, t);
    uint32_t *word = turned + threadIdx.x / LANES;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            uint2 eight = t.codes(pass, k, inverse);
            low[pass] = eight.x, high[pass] = eight.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            word[(t.column(k) + i) * PITCH] = bytes_of(low, i);
            word[(t.column(k) + i + 4) * PITCH] = bytes_of(high, i);
        }
    }
    __syncthreads();
    uint8_t *to = c.data + t.matrix * t.D * c.padded + t.first;
    for (int i = (int)threadIdx.x; i < t.D * TILE / 4; i += THREADS)
        *(uint32_t *)(to + i / 32 * c.padded + i % 32 * 4) = turned[i / 32 * PITCH + i % 32];
}

} // namespace e4m3

#endif
