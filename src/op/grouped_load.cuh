/*
 * grouped_load: for grouped_hopper.cuh: how the operands of a tile come into shared memory. What lies
 * in order comes by TMA, one thread's work; rows that an index names by cp.async, all threads'.
 */
#ifndef OP_GROUPED_LOAD_CUH
#define OP_GROUPED_LOAD_CUH

#include "op/grouped_mma.cuh"
#include "op/hopper.cuh"

namespace grouped
{

/* The part of a gathered operand that a thread of the loading warpgroup brings: WIDTH rows of the
 * tile x 64 terms. */
template <typename T, bool ALONG, int WIDTH> struct Gather;

/* Rows of memory are rows of the tile. Those beyond its last are read from row 0: no one stores what
 * they give. */
template <typename T, int WIDTH> struct Gather<T, true, WIDTH> {
    static constexpr int ACROSS = hopper::BLOCK / CHUNK, DOWN = hopper::WARPGROUP / ACROSS;
    static constexpr int MINE = WIDTH / DOWN;
    const T *term;        /* the next one, in row 0 of memory */
    uint32_t begin[MINE]; /* of this thread's part of a row, in chunks */
    int64_t left;         /* terms */
    int32_t next[MINE];   /* rows of memory of the next tile */

    __device__ __forceinline__ void look_ahead(const View<T> &v, int64_t)
    {
#pragma unroll
        for (int q = 0; q < MINE; q++)
            next[q] = (int32_t)v.row((int)threadIdx.x / ACROSS + q * DOWN);
    }
    __device__ __forceinline__ void open(const View<T> &v, int64_t)
    {
        uint32_t chunk = threadIdx.x % ACROSS, ld = (uint32_t)(v.ld / CHUNK);
        term = v.data;
        left = v.cols;
#pragma unroll
        for (int q = 0; q < MINE; q++) begin[q] = (uint32_t)max(next[q], 0) * ld + chunk;
    }

    __device__ __forceinline__ void step(uint32_t room)
    {
        int chunk = (int)threadIdx.x % ACROSS, row = (int)threadIdx.x / ACROSS;
        uint32_t to = room + row * hopper::ROW_BYTES + ((chunk ^ (row & 7)) << 4);
        bool whole = left >= hopper::BLOCK, inside = chunk * CHUNK < left;
        if (whole) {
#pragma unroll
            for (int q = 0; q < MINE; q++)
                copy_chunk(to + q * DOWN * hopper::ROW_BYTES, term + (uint64_t)begin[q] * CHUNK);
        } else {
#pragma unroll
            for (int q = 0; q < MINE; q++)
                copy_chunk(to + q * DOWN * hopper::ROW_BYTES,
                           inside ? term + (uint64_t)begin[q] * CHUNK : term, inside);
        }
        term += hopper::BLOCK;
        left -= hopper::BLOCK;
    }
};

/* Rows of memory are terms. A warp reads 16 rows a stage; lane l < 16 looks up where the l-th of them
 * begins, as many stages ahead as memory takes to answer. The copies of a stage begin only when the
 * ring has room, so each is to cost few instructions: a begin is one number, in chunks. */
template <typename T, int WIDTH> struct Gather<T, false, WIDTH> {
    static constexpr int ACROSS = WIDTH / CHUNK, DOWN = hopper::WARPGROUP / ACROSS;
    static constexpr int MINE = hopper::BLOCK / DOWN, AT_ONCE = 32 / ACROSS, AHEAD = 4;
    static constexpr uint32_t NONE = ~0u;
    View<T> v;
    const T *column; /* of this thread, in the first row of memory */
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

/* One operand of a tile on its way to the ring; SIDE is what the policy says of it. BOTH: it may be
 * that of the pair's other block, too; each then asks for half of it on behalf of both. All threads
 * of the warpgroup that loads call these. */
template <typename SIDE, bool SUMS, int WIDTH, bool BOTH> struct Loader {
    typedef typename SIDE::Type T;
    static constexpr int PARTS = BOTH ? 2 : 1, PART = WIDTH / PARTS; /* boxes have PART rows */
    const CUtensorMap *map;
    Gather<T, SIDE::ALONG, WIDTH> gather;
    int x, y, z, left; /* TMA's coordinates; terms that are left */

    /* The first term that does not come by TMA. */
    static __device__ __forceinline__ int64_t first_gathered(int terms)
    {
        return SIDE::GATHERS ? 0 : terms / hopper::BLOCK * hopper::BLOCK;
    }
    /* Asks for the rows of the tile after the one at work, a tile's time before they are needed. */
    __device__ __forceinline__ void look_ahead(const View<T> &v, int terms)
    {
        if constexpr (SUMS || SIDE::GATHERS) gather.look_ahead(v, first_gathered(terms));
    }
    __device__ __forceinline__ void open(const CUtensorMap *m, const View<T> &v, int4 at, int terms)
    {
        map = m;
        x = at.x;
        y = at.y;
        z = at.z;
        left = terms;
        if constexpr (SUMS || SIDE::GATHERS) gather.open(v, first_gathered(terms));
    }

    /* Does the next stage come by TMA? */
    __device__ __forceinline__ bool boxes() const
    {
        return !SIDE::GATHERS && (!SUMS || left >= hopper::BLOCK);
    }

    /* Part `part` of the next 64 terms: to this block, or to the same place in both of a pair. */
    template <bool CAST>
    __device__ __forceinline__ void part_load(uint32_t room, uint32_t barrier, int part)
    {
        if constexpr (SIDE::PAIRS) {
            hopper::pairs_load<CAST>(room + part * PART * hopper::ROW_BYTES, map, x,
                                     y + part * PART / 16, z, barrier);
        } else if constexpr (SIDE::ALONG) {
            hopper::box_load<CAST>(room + part * PART * hopper::ROW_BYTES, map, x, y + part * PART,
                                   z, barrier);
        } else {
#pragma unroll
            for (int b = 0; b < PART; b += hopper::BLOCK)
                hopper::box_load<CAST>(room + (part * PART + b) * hopper::ROW_BYTES, map,
                                       x + part * PART + b, y, z, barrier);
        }
    }

    /* `cast`: the pair's blocks have this operand in common. */
    __device__ __forceinline__ void step(uint32_t room, uint32_t barrier, bool cast)
    {
        if (!boxes()) {
            if constexpr (SUMS || SIDE::GATHERS) gather.step(room);
        } else if (threadIdx.x == 0) {
            if constexpr (BOTH) {
                if (cast) {
                    part_load<true>(room, barrier, (int)hopper::cluster_rank());
                } else {
                    part_load<false>(room, barrier, 0);
                    part_load<false>(room, barrier, 1);
                }
            } else {
                part_load<false>(room, barrier, 0);
            }
        }
        (SIDE::ALONG ? x : y) += hopper::BLOCK;
        left -= hopper::BLOCK;
    }
};

} // namespace grouped

#endif
