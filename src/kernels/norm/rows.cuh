/*
 * rows: how kernels that are bound by memory walk over rows and keep memory busy: fetches, stores,
 * grids, sums over a row. Not for kernels that reuse what they load (grouped.cuh, attention.cu).
 *
 * An H200 moves 4.26 TB/s (copy, reads and writes counted). A load takes about 0.8 us under such
 * traffic, so each of its 132 multiprocessors must have 32 - 64 KB in flight at any time. A thread
 * that loads one pack, waits, and stores it has 16 bytes in flight. Even 2048 such threads are too
 * few, because they also spend time elsewhere. Three rules follow:
 *
 *   1. A thread fetches all it needs before it uses any of it: EACH rows, or a row's packs. Packed keeps
 *      data in its own type, in 4 registers a pack, and converts it to f32 when it is used.
 *   2. Data that is read once is fetched with fetch_once, so that it does not displace other data in
 *      caches.
 *   3. No thread idles: threads are laid out along a row if rows are wide, and over rows if they are
 *      short.
 */
#ifndef KERNELS_NORM_ROWS_CUH
#define KERNELS_NORM_ROWS_CUH

#include "kernels/core/pack.cuh"

enum { ROWS_THREADS = 256, ROWS_GRID_Y = 65535 };

/* The data of one access: 16 bytes, or one element. */
template <typename T, bool WIDE> struct Packed {
    static constexpr int P = WIDE ? PACK<T> : 1;
    typedef typename std::conditional<WIDE, uint4, T>::type Bits;
    Bits bits;
};

template <typename T, bool WIDE>
static __device__ __forceinline__ void fetch(Packed<T, WIDE> &to, const T *at)
{
    to.bits = read_const(reinterpret_cast<const typename Packed<T, WIDE>::Bits *>(at));
}

/* For data that is not read again while it would be in caches, and for data that this thread will overwrite. */
template <typename T, bool WIDE>
static __device__ __forceinline__ void fetch_once(Packed<T, WIDE> &to, const T *at)
{
    to.bits = read_once(reinterpret_cast<const typename Packed<T, WIDE>::Bits *>(at));
}

template <typename T, bool WIDE>
static __device__ __forceinline__ void put(const Packed<T, WIDE> &from, T *at)
{
    write_whole(reinterpret_cast<typename Packed<T, WIDE>::Bits *>(at), from.bits);
}

template <typename T, bool WIDE> static __device__ __forceinline__ void clear(Packed<T, WIDE> &v)
{
    memset(&v, 0, sizeof v);
}

template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void widen(const Packed<T, WIDE> &from, float (&to)[P])
{
    static_assert(P == (Packed<T, WIDE>::P), "a number for each element");
    if constexpr (!WIDE) {
        to[0] = to_f32(from.bits);
    } else {
        const uint32_t word[4] = { from.bits.x, from.bits.y, from.bits.z, from.bits.w };
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if constexpr (std::is_same<T, float>::value) {
                to[k] = __uint_as_float(word[k]);
            } else { /* little-endian: the first element is the lower half */
                to[2 * k] = __uint_as_float(word[k] << 16);
                to[2 * k + 1] = __uint_as_float(word[k] & 0xFFFF0000u);
            }
        }
    }
}

template <typename T, bool WIDE, int P>
static __device__ __forceinline__ void add_pack(const Packed<T, WIDE> &from, float (&sum)[P])
{
    float v[P];
    widen(from, v);
#pragma unroll
    for (int k = 0; k < P; k++) sum[k] += v[k];
}

/* A grid for n rows of `packs` packs: x lies along a row, y over rows. A thread takes one pack of EACH rows. */
struct RowGrid {
    dim3 grid, block;
};

/* The largest number of threads along a row with which at most a sixteenth of them idle. At least
 * 8: eight packs are a line of memory. */
static inline unsigned row_lanes(int64_t packs)
{
    unsigned lanes = ROWS_THREADS;
    while (lanes > 8 && (int64_t)grid_of(packs, lanes) * lanes * 15 > packs * 16) lanes /= 2;
    return lanes;
}

static inline RowGrid row_grid(int64_t n, int64_t packs, int each)
{
    unsigned x = row_lanes(packs), y = ROWS_THREADS / x;
    int64_t groups = grid_of(n, (int64_t)y * each);
    if (groups > ROWS_GRID_Y) groups = ROWS_GRID_Y;
    return RowGrid{ dim3(grid_of(packs, x), (unsigned)groups), dim3(x, y) };
}

/* Calls run(column of a pack, first row, distance of a thread's rows) until all n rows of d columns
 * are done. run handles EACH rows and must check that they exist. */
template <int EACH, int P, typename F>
static __device__ __forceinline__ void row_groups(int64_t n, int64_t d, F run)
{
    int64_t col = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * P;
    int64_t group = (int64_t)blockDim.y * EACH;
    if (col >= d) return;
    for (int64_t row = blockIdx.y * group + threadIdx.y; row < n; row += gridDim.y * group) {
        run(col, row, (int64_t)blockDim.y);
    }
}

/* Sum over the blockDim.x threads of a row: a power of two below a warp, or whole warps. All of them get the same
 * result, in an order that depends on blockDim.x alone. All threads of the block must call it. `room`: shared memory
 * for BLOCK_WARPS numbers; two consecutive calls need different rooms. APART: rows of a block do not wait for each
 * other, because each has its own barrier. A block has 15 of these barriers, so it may have at most 15 rows. */
template <bool APART = false> static __device__ __forceinline__ float row_sum(float v, float *room)
{
    int lanes = (int)blockDim.x, warps = lanes / WARP;
    for (int step = min(lanes, WARP) / 2; step > 0; step /= 2) {
        v += lane_get_xor(v, step);
    }
    if (lanes <= WARP) return v;
    float *mine = room + (int)threadIdx.y * warps;
    if (threadIdx.x % WARP == 0) mine[threadIdx.x / WARP] = v;
    if constexpr (APART)
        row_barrier(threadIdx.y + 1, lanes);
    else
        __syncthreads();
    v = 0;
    for (int w = 0; w < warps; w++) v += mine[w];
    return v;
}

#endif
