/*
 * grouped_tiles: the shapes of tiles, how persistent blocks find their tiles, and the ring of stages,
 * for grouped_hopper.cuh. A ticket describes one tile; the thread that takes it hands it to all
 * warps that work on the tile.
 */
#ifndef KERNELS_MOE_NV_GROUPED_TILES_CUH
#define KERNELS_MOE_NV_GROUPED_TILES_CUH

#include "kernels/moe/grouped.cuh"
#include "kernels/moe/nv/hopper.cuh"

namespace grouped
{

enum {
    ROOM_BYTES = 192 * 1024, /* bytes of the ring */
    ADD_BYTES = 1024,        /* a buffer of 8 rows x 32 sums for the copy engine */
    ADD_ROWS = 8,
    ADD_COLS = 32,
    ADDS = 2,                     /* such buffers of a warp */
    WARP_ROOM = ADDS * ADD_BYTES, /* for each of 8 warps; also holds 16 rows x 64 results in bf16 */
    STAGES_MAX = 8,
    TICKETS = 16, /* more than stages: a ticket is read before the ring comes around to it */
    RASTER = 16,  /* tiles of rows that run at the same time, so that they share weights in L2 */
};

/* Terms of a stage: a row of an operand in shared memory. */
template <typename T> constexpr int TERMS = hopper::ROW_BYTES / (int)sizeof(T);

/* BLOCKS: blocks of 64 rows for each warpgroup that multiplies. */
template <bool IN_TURN, int BLOCKS_A, int COLUMNS> struct HopperShape {
    static constexpr bool TURNS = IN_TURN;
    static constexpr int BLOCKS = BLOCKS_A, COLS = COLUMNS;
    static constexpr int ROWS = hopper::BLOCK * BLOCKS * (TURNS ? 1 : 2);
    static constexpr int A_BYTES = ROWS * hopper::ROW_BYTES, B_BYTES = COLS * hopper::ROW_BYTES;
    static constexpr int STAGE = A_BYTES + B_BYTES;
    static constexpr int READERS = TURNS ? 4 : 8; /* warps that read a stage */
    static constexpr int STAGES = ROOM_BYTES / STAGE;
    static_assert(STAGES <= STAGES_MAX, "barriers for all stages");
};

template <TileShape> struct HopperShapeOf;
template <> struct HopperShapeOf<TILE_SHARED> {
    typedef HopperShape<false, 1, 256> Type;
};
template <> struct HopperShapeOf<TILE_TALL> {
    typedef HopperShape<false, 2, 128> Type;
};
template <> struct HopperShapeOf<TILE_IN_TURN> {
    typedef HopperShape<true, 2, 128> Type;
};

typedef struct Ticket {
    GroupTile tile;
    int steps; /* 0: there are no more tiles */
} Ticket;

struct HopperShared {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX], ready[TICKETS], filled[2];
    Ticket ticket[TICKETS];
    int32_t before[]; /* (E+1) tiles of the experts before this one; twice for 8-bit sums */
};

/* A stage of the ring, and the parity of the number of times that the ring was used. */
typedef struct RingPlace {
    int stage, turn;

    template <int STAGES> __device__ __forceinline__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            turn ^= 1;
        }
    }
} RingPlace;

/* Barriers of the shared part, as addresses. */
struct Barriers {
    uint32_t full, empty, ready;
    uint32_t filled; /* one for each warpgroup: it has seen all stages of its tile */
    __device__ __forceinline__ explicit Barriers(const HopperShared *s)
        : full(shared_address(s->full)), empty(shared_address(s->empty)),
          ready(shared_address(s->ready)), filled(shared_address(s->filled))
    {
    }
    static __device__ __forceinline__ uint32_t at(uint32_t first, int i) { return first + i * 8; }
};

static __host__ __device__ __forceinline__ int64_t tiles_of(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

template <typename P, typename S>
static __device__ __forceinline__ int32_t tiles_of_expert(const P &p, int64_t e)
{
    int64_t rows = p.groups.first(e + 1) - p.groups.first(e), across = tiles_of(p.n, S::COLS);
    if (P::MIRRORED) return (int32_t)(across * (across + 1) / 2);
    if (P::SUMS) return rows > 0 ? (int32_t)(tiles_of(p.m, S::ROWS) * across) : 0;
    return (int32_t)(tiles_of(max(rows, (int64_t)0), S::ROWS) * across);
}

/* before[e] = the sum of count(i) over all experts i before e. One warp computes it, 32 experts at a time. */
template <typename F>
static __device__ __forceinline__ void counts_add(int64_t experts, int32_t *before, F count)
{
    int lane = (int)threadIdx.x % 32;
    int32_t sum = 0;
    for (int64_t first = 0; first < experts; first += 32) {
        int64_t e = first + lane;
        int32_t one = e < experts ? count(e) : 0, up_to = one;
        for (int d = 1; d < 32; d *= 2) {
            int32_t left = __shfl_up_sync(0xFFFFFFFFu, up_to, d);
            if (lane >= d) up_to += left;
        }
        if (e < experts) before[e] = sum + up_to - one;
        sum += __shfl_sync(0xFFFFFFFFu, up_to, 31);
    }
    if (lane == 0) before[experts] = sum;
}

/* before[e]: tiles of the experts before e. For 8-bit sums, the first column of each expert's terms
 * follows (Groups::column). */
template <typename P, typename S>
static __device__ __forceinline__ void tiles_count(const P &p, int32_t *before)
{
    counts_add(p.groups.experts, before, [&](int64_t e) { return tiles_of_expert<P, S>(p, e); });
    if constexpr (P::SUMS && P::EIGHT)
        counts_add(p.groups.experts, before + p.groups.experts + 1, [&](int64_t e) {
            return (int32_t)whole_blocks(p.groups.first(e + 1) - p.groups.first(e));
        });
}

/* Row and column of a matrix's tile `number`, counted in tiles. */
template <bool MIRRORED>
static __device__ __forceinline__ longlong2 tile_place(int64_t number, int64_t across, int64_t down)
{
    if constexpr (MIRRORED) { /* row r has r + 1 tiles */
        int64_t row = 0;
        while (number > row) number -= ++row;
        return make_longlong2(row, number);
    } else {
        int64_t run = number / (RASTER * across) * RASTER;
        int64_t in_run = min((int64_t)RASTER, down - run);
        number -= run * across;
        return make_longlong2(run + number % in_run, number / in_run);
    }
}

/* Tile `number`. Its expert is *e or a later one, because a block's numbers only grow; *e is updated. */
template <typename P, typename S>
static __device__ Ticket ticket_of(const P &p, const int32_t *before, int64_t number, int64_t *e)
{
    Ticket t = {};
    while (*e < p.groups.experts && before[*e + 1] <= number) ++*e;
    if (*e == p.groups.experts) return t;
    int64_t begin = p.groups.first(*e), rows = p.groups.first(*e + 1) - begin;
    int64_t across = tiles_of(p.n, S::COLS), down = tiles_of(P::SUMS ? p.m : rows, S::ROWS);
    static_assert(!P::MIRRORED || S::ROWS == S::COLS, "tiles lie on the diagonal");
    longlong2 place = tile_place<P::MIRRORED>(number - before[*e], across, down);
    int64_t row = place.x * S::ROWS;
    t.tile.expert = *e;
    t.tile.col = place.y * S::COLS;
    t.tile.row = P::SUMS ? row : 0;
    t.tile.first = P::SUMS ? begin : begin + row;
    t.tile.pooled = p.groups.pooled(t.tile.first);
    t.tile.rows = P::SUMS ? rows : min((int64_t)S::ROWS, rows - row);
    if constexpr (P::SUMS && P::EIGHT) t.tile.column = before[p.groups.experts + 1 + *e];
    if constexpr (P::NARROW) t.tile.column = before[*e] / across * S::ROWS + row;
    t.steps = (int)tiles_of(p.depth(t.tile), TERMS<typename P::A>);
    return t;
}

} // namespace grouped

#endif
