/*
 * attention_e4m3_cast: makes what attention_e4m3.cuh reads: k and v as e4m3 with a scale for 128 keys,
 * a matrix for each head. k has keys as rows, v has columns: 8-bit products sum along rows of both
 * operands, and p v sums over keys. Keys are filled up with zeros to a multiple of 128. A block of
 * threads has 128 keys of one head. It reads them once, coalesced, into registers.
 */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_E4M3_CAST_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_E4M3_CAST_CUH

#include "kernels/quant/quant_tile.cuh"

namespace e4m3
{

enum {
    TILE = 128, /* tokens */
    CAST_THREADS = 256,
    LANES = 8, /* that share a row: 16 bytes each, every 128 bytes */
    ROWS = CAST_THREADS / LANES,
    PASSES = TILE / ROWS
};

/* k or v. tokens: of a sequence; padded: the same in whole tiles. */
typedef struct Cast {
    const Bf16 *x;
    uint8_t *data;
    float *scale; /* of each tile; those of k and v alternate */
    int64_t tokens, padded, heads;
} Cast;

/* The largest magnitude of eight numbers, as bits. NaNs are left out. */
static __device__ __forceinline__ uint32_t pack_most(const uint4 &pack)
{
    uint32_t word[4] = { pack.x, pack.y, pack.z, pack.w }, most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t bits = (i % 2 ? word[i / 2] : word[i / 2] << 16) & 0x7FFF0000u;
        most = max(most, bits > quant::INFINITE ? 0 : bits);
    }
    return most;
}

/* That of the lanes that share a row. */
static __device__ __forceinline__ uint32_t row_lanes_most(uint32_t most)
{
#pragma unroll
    for (int bit = 1; bit < LANES; bit *= 2) most = max(most, lane_get_xor(most, bit));
    return most;
}

/* quant::scale_of for the largest of bf16 numbers, as bits, without divisions: 448 is 1.75 x 2^8, and
 * a magnitude above 1.75 x 2^n needs the next power of two. */
static __device__ __forceinline__ float scale_of(uint32_t most)
{
    int bits = (int)((most + 0x1FFFFFu) & quant::INFINITE) - (8 << 23);
    bits = most >= quant::INFINITE ? (int)quant::NOT_A_NUMBER : max(bits, 1 << 23);
    return most == 0 ? 1.0f : __int_as_float(bits);
}

static __device__ __forceinline__ uint2 pack_codes(const uint4 &pack, float inverse)
{
    uint32_t word[4] = { pack.x, pack.y, pack.z, pack.w }, two[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        two[i] = pair_to_e4m3(__uint_as_float(word[i] << 16) * inverse,
                              __uint_as_float(word[i] & 0xFFFF0000u) * inverse);
    return make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
}

/* A head's keys [first, first + 128). PACKS: of 8 numbers, for each thread and row. TURNED: as v's
 * rows need them. The results of q k^T that a thread has are to be its operands of p v. They are of
 * keys 8 j + 2 t and the next one, t = 0 .. 3, which are operands t of 16 keys in runs of four. */
template <int PACKS, bool TURNED> struct CastTile {
    static constexpr int D = PACKS * LANES * 8;
    int64_t matrix, first; /* b * heads + head */
    float scale;           /* a power of two */
    uint4 pack[PASSES][PACKS];

    __device__ __forceinline__ CastTile(const Cast &c, unsigned number)
    {
        unsigned tiles = (unsigned)(c.padded / TILE);
        matrix = number / tiles, first = (int64_t)(number % tiles) * TILE;
        int64_t b = matrix / c.heads, head = matrix % c.heads;
#pragma unroll
        for (int i = 0; i < PASSES * PACKS; i++) {
            int64_t t = first + row(i / PACKS);
            const Bf16 *from = c.x + ((b * c.tokens + t) * c.heads + head) * D + column(i % PACKS);
            pack[i / PACKS][i % PACKS] =
                t < c.tokens ? read_once((const uint4 *)from) : make_uint4(0, 0, 0, 0);
        }
        find_scale(c, number);
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

    /* Sets the tile's scale, the same in all threads; one of them stores it. */
    __device__ __forceinline__ void find_scale(const Cast &c, unsigned number)
    {
        __shared__ uint32_t most;
        uint32_t own = 0;
        if (threadIdx.x == 0) most = 0;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < PASSES * PACKS; i++)
            own = max(own, pack_most(pack[i / PACKS][i % PACKS]));
        own = lanes_max(own);
        if (threadIdx.x % WARP == 0) atomicMax(&most, own);
        __syncthreads();
        scale = scale_of(most);
        if (threadIdx.x == 0) c.scale[2 * number] = scale;
    }
};

template <int PACKS>
static __device__ __forceinline__ void cast_rows(const Cast &c, unsigned number)
{
    CastTile<PACKS, false> t(c, number);
#pragma unroll
    for (int i = 0; i < PASSES * PACKS; i++) {
        int64_t row = t.matrix * c.padded + t.first + t.row(i / PACKS);
        *(uint2 *)(c.data + row * t.D + t.column(i % PACKS)) =
            pack_codes(t.pack[i / PACKS][i % PACKS], fast_reciprocal(t.scale));
    }
}

/* Byte i of four words. */
static __device__ __forceinline__ uint32_t bytes_of(const uint32_t (&w)[4], int i)
{
    uint32_t pair = i | (i + 4) << 4;
    return __byte_perm(__byte_perm(w[0], w[1], pair), __byte_perm(w[2], w[3], pair), 0x5410);
}

/* A thread's four keys lie side by side in a row of v, so it writes words. Chunk k of 16 bytes of row i
 * of `turned` is stored at k ^ (i / 8 % 8), so that the lanes of a warp use all banks. */
template <int PACKS>
static __device__ __forceinline__ void cast_columns(const Cast &c, unsigned number)
{
    __shared__ uint4 turned[CastTile<PACKS, true>::D * 8];
    CastTile<PACKS, true> t(c, number);
    int lane = (int)threadIdx.x % LANES, word = (int)threadIdx.x / LANES;
    uint32_t *to = (uint32_t *)turned + ((word / 4 ^ lane) * 4 + word % 4);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        uint32_t low[4], high[4];
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            uint2 eight = pack_codes(t.pack[pass][k], fast_reciprocal(t.scale));
            low[pass] = eight.x, high[pass] = eight.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            to[(t.column(k) + i) * 32] = bytes_of(low, i);
            to[(t.column(k) + i + 4) * 32] = bytes_of(high, i);
        }
    }
    __syncthreads();
    uint8_t *out = c.data + t.matrix * t.D * c.padded + t.first;
#pragma unroll
    for (int i = (int)threadIdx.x; i < t.D * 8; i += CAST_THREADS)
        *(uint4 *)(out + i / 8 * c.padded + i % 8 * 16) = turned[i / 8 * 8 + (i % 8 ^ i / 64 % 8)];
}

/* Two blocks for each tile. PACKS: of k; v is 128 wide. */
template <int PACKS>
static __global__ __launch_bounds__(CAST_THREADS) void cast_kernel(const Cast k, const Cast v)
{
    if (blockIdx.x % 2 == 0)
        cast_rows<PACKS>(k, blockIdx.x / 2);
    else
        cast_columns<2>(v, blockIdx.x / 2);
}

} // namespace e4m3

#endif
