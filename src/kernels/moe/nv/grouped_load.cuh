/*
 * grouped_load: how the operands of a tile are loaded into shared memory, for grouped_hopper.cuh.
 * Contiguous rows are copied by TMA, which one thread starts. Rows that an index names are copied
 * by cp.async, in which all threads of the warpgroup take part.
 */
#ifndef KERNELS_MOE_NV_GROUPED_LOAD_CUH
#define KERNELS_MOE_NV_GROUPED_LOAD_CUH

#include "kernels/moe/nv/grouped_mma.cuh"
#include "kernels/moe/nv/grouped_tiles.cuh"

namespace grouped
{

/* The part of a gathered operand that one thread of the loading warpgroup copies, of WIDTH rows of
 * the tile x a stage's terms. */
template <typename T, bool ALONG, int WIDTH> struct Gather;

/* Where a thread copies one row of the tile from. 8-bit kernels have few registers for it, so there a
 * row is the number of its first chunk, and all rows have one moving column. */
template <typename T, bool SHORT = sizeof(T) == 1> struct GatherRow {
    const T *at;

    __device__ __forceinline__ void open(const View<T> &v, int64_t row, const T *column)
    {
        at = column + row * v.ld;
    }
    __device__ __forceinline__ const T *from(const T *) const { return at; }
    __device__ __forceinline__ void next() { at += TERMS<T>; }
};

template <typename T> struct GatherRow<T, true> {
    uint32_t begin;

    __device__ __forceinline__ void open(const View<T> &v, int64_t row, const T *)
    {
        begin = (uint32_t)(row * v.ld / PACK<T>);
    }
    __device__ __forceinline__ const T *from(const T *column) const
    {
        return column + (uint64_t)begin * PACK<T>;
    }
    __device__ __forceinline__ void next() {}
};

/* Rows of memory are rows of the tile. A thread copies the same chunk of MINE rows, DOWN rows
 * apart. Bit q of `have` says that its q-th row exists; a row that does not exist becomes zeros.
 * left: terms from this thread's chunk to the end of a row. */
template <typename T, int WIDTH> struct Gather<T, true, WIDTH> {
    static constexpr int CHUNK = PACK<T>, ACROSS = TERMS<T> / CHUNK;
    static constexpr int DOWN = hopper::WARPGROUP / ACROSS;
    static constexpr int MINE = WIDTH / DOWN;
    GatherRow<T> at[MINE];
    const T *column; /* of this thread's next chunk, in the first row of memory */
    uint32_t have;
    int64_t left;
    int32_t next[MINE]; /* rows of memory of the next tile */

    __device__ __forceinline__ void look_ahead(const View<T> &v, int64_t)
    {
#pragma unroll
        for (int q = 0; q < MINE; q++)
            next[q] = (int32_t)v.row((int)threadIdx.x / ACROSS + q * DOWN);
    }
    __device__ __forceinline__ void open(const View<T> &v, int64_t)
    {
        int chunk = (int)threadIdx.x % ACROSS;
        left = v.cols - chunk * CHUNK;
        column = v.data + chunk * CHUNK;
        have = 0;
#pragma unroll
        for (int q = 0; q < MINE; q++) {
            have |= next[q] >= 0 ? 1u << q : 0;
            at[q].open(v, max(next[q], 0), column);
        }
    }

    __device__ __forceinline__ void step(uint32_t room)
    {
        int chunk = (int)threadIdx.x % ACROSS, row = (int)threadIdx.x / ACROSS;
        /* Chunks are swizzled as TMA does it, so products read both kinds of stages in one way. A
         * copy that is not inside reads nothing and writes zeros. */
        uint32_t to = room + row * hopper::ROW_BYTES + ((chunk ^ (row & 7)) << 4);
#pragma unroll
        for (int q = 0; q < MINE; q++) {
            bool inside = (have >> q & 1) != 0 && left > 0;
            const T *from = at[q].from(column), *somewhere = at[0].from(column);
            copy_chunk(to + q * DOWN * hopper::ROW_BYTES, inside ? from : somewhere, inside);
            at[q].next();
        }
        column += TERMS<T>;
        left -= TERMS<T>;
    }
};

/* Rows of memory are terms of the sum. A warp reads 16 rows a stage. Lane l < 16 looks up where the l-th of them
 * begins, AHEAD stages ahead, so that the look-up's latency is hidden. The copies of a stage start only when the ring
 * has room, so each should cost few instructions: a begin is one number, in chunks. */
template <typename T, int WIDTH> struct Gather<T, false, WIDTH> {
    static constexpr int ACROSS = WIDTH / CHUNK, DOWN = hopper::WARPGROUP / ACROSS;
    static constexpr int MINE = hopper::BLOCK / DOWN, AT_ONCE = 32 / ACROSS, AHEAD = 4;
    static constexpr uint32_t NONE = ~0u;
    View<T> v;
    const T *column; /* of this thread, in the first row of memory */
    /* The first term of the next stage. */
    int64_t k;
    uint32_t begin[AHEAD]; /* of the next stages */
    uint32_t next[AHEAD];  /* of the first stages of the next tile */

    static __device__ __forceinline__ uint32_t look_up(const View<T> &v, int64_t first)
    {
        int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 16;
        int64_t row = v.row(first + warp * AT_ONCE + lane % AT_ONCE + lane / AT_ONCE * DOWN);
        return row < 0 ? NONE : (uint32_t)(row * v.ld / CHUNK);
    }
    __device__ __forceinline__ void look_ahead(const View<T> &view, int64_t first)
    {
#pragma unroll
        for (int q = 0; q < AHEAD; q++) next[q] = look_up(view, first + q * hopper::BLOCK);
    }
    __device__ __forceinline__ void open(const View<T> &view, int64_t first)
    {
        int chunk = (int)threadIdx.x % ACROSS;
        v = view;
        k = first;
        column = chunk * CHUNK < v.cols ? v.data + chunk * CHUNK : NULL;
#pragma unroll
        for (int q = 0; q < AHEAD; q++) begin[q] = next[q];
    }

    __device__ __forceinline__ void step(uint32_t room)
    {
        int chunk = (int)threadIdx.x % ACROSS, term = (int)threadIdx.x / ACROSS;
        uint32_t block = room + chunk / 8 * hopper::BLOCK_BYTES + term * hopper::ROW_BYTES;
        /* A thread's terms are DOWN apart, and 2 DOWN is a multiple of 8, so only two swizzles occur. */
        uint32_t even = block + ((chunk % 8 ^ (term & 7)) << 4);
        uint32_t odd = block + ((chunk % 8 ^ (term + DOWN & 7)) << 4);
#pragma unroll
        for (int q = 0; q < MINE; q++) {
            uint32_t from =
                __shfl_sync(0xFFFFFFFFu, begin[0], (int)threadIdx.x % 32 / ACROSS + q * AT_ONCE);
            bool inside = from != NONE && column != NULL;
            copy_chunk((q % 2 == 0 ? even : odd) + q * DOWN * hopper::ROW_BYTES,
                       inside ? column + (uint64_t)from * CHUNK : v.data, inside);
        }
        k += hopper::BLOCK;
#pragma unroll
        for (int q = 1; q < AHEAD; q++) begin[q - 1] = begin[q];
        begin[AHEAD - 1] = look_up(v, k + (AHEAD - 1) * hopper::BLOCK);
    }
};

/* Loads one operand of a tile into the ring; SIDE describes the operand. TAILS: the last terms of a
 * sum are copied by cp.async. All threads of the loading warpgroup call these functions. */
template <typename SIDE, bool TAILS, int WIDTH> struct Loader {
    typedef typename SIDE::Type T;
    const CUtensorMap *map;
    Gather<T, SIDE::ALONG, WIDTH> gather;
    int x, y, z, left; /* TMA's coordinates; terms that are left */

    /* The first term that does not come by TMA. */
    static __device__ __forceinline__ int64_t first_gathered(int terms)
    {
        return SIDE::GATHERS ? 0 : terms / hopper::BLOCK * hopper::BLOCK;
    }
    /* Loads the row numbers of the next tile, one tile before they are needed. */
    __device__ __forceinline__ void look_ahead(const View<T> &v, int terms)
    {
        if constexpr (TAILS || SIDE::GATHERS) gather.look_ahead(v, first_gathered(terms));
    }
    __device__ __forceinline__ void open(const CUtensorMap *m, const View<T> &v, int4 at, int terms)
    {
        map = m;
        x = at.x;
        y = at.y;
        z = at.z;
        left = terms;
        if constexpr (TAILS || SIDE::GATHERS) gather.open(v, first_gathered(terms));
    }

    /* Does the next stage come by TMA? The last terms of a sum over rows do not: a whole box would
     * also read the next expert's rows. */
    __device__ __forceinline__ bool boxes() const
    {
        return !SIDE::GATHERS && (!TAILS || left >= hopper::BLOCK);
    }

    __device__ __forceinline__ void step(uint32_t room, uint32_t barrier)
    {
        if (!boxes()) {
            if constexpr (TAILS || SIDE::GATHERS) gather.step(room);
        } else {
            if (threadIdx.x == 0) {
                if constexpr (SIDE::PAIRS)
                    hopper::pairs_load(room, map, x, y, z, barrier);
                else if constexpr (SIDE::ALONG)
                    hopper::box_load(room, map, x, y, z, barrier);
                else
                    for (int b = 0; b < WIDTH / hopper::BLOCK; b++)
                        hopper::box_load(room + b * hopper::BLOCK_BYTES, map, x + b * hopper::BLOCK,
                                         y, z, barrier);
            }
        }
        (SIDE::ALONG ? x : y) += TERMS<T>;
        left -= TERMS<T>;
    }
};

} // namespace grouped

#endif
