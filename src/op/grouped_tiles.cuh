/*
 * grouped_tiles: for grouped_hopper.cuh: the shapes of tiles, and how blocks that stay share them out.
 * A ticket is the number of a tile, or of two neighbouring tiles for a pair of blocks.
 */
#ifndef OP_GROUPED_TILES_CUH
#define OP_GROUPED_TILES_CUH

#include "op/grouped.cuh"
#include "op/hopper.cuh"

namespace grouped
{

enum {
    ROOM_BYTES = 192 * 1024, /* of the ring */
    ADD_BYTES = 1024,        /* 8 rows x 32 sums on their way to memory */
    ADD_COLS = 32,
    ADDS = 2, /* on their way at a time, of a warp */
    ADD_ROOM = 8 * ADDS * ADD_BYTES,
    STAGES_MAX = 8,
    TICKETS = 16, /* more than stages: a ticket is read before the ring comes around to it */
    RASTER = 16,  /* tiles of rows that run side by side, so that they share weights in L2 */
};

/* SHAPE: the number that stands for it in files (choices.h). BLOCKS: of 64 rows, for each warpgroup
 * that multiplies. TWO: neighbouring blocks of the grid work on two tiles that lie one below the other
 * and so have B in common, of which each brings half to both. */
template <int SHAPE, bool IN_TURN, int BLOCKS_A, int COLUMNS, bool TWO = false> struct HopperShape {
    static constexpr bool TURNS = IN_TURN, PAIR = TWO;
    static constexpr int CLUSTER = PAIR ? 2 : 1; /* blocks that work on a ticket */
    static constexpr int NUMBER = SHAPE, BLOCKS = BLOCKS_A, COLS = COLUMNS;
    static constexpr int ROWS = hopper::BLOCK * BLOCKS * (TURNS ? 1 : 2);
    static constexpr int A_BYTES = ROWS * hopper::ROW_BYTES, B_BYTES = COLS * hopper::ROW_BYTES;
    static constexpr int STAGE = A_BYTES + B_BYTES;
    static constexpr int READERS = TURNS ? 4 : 8; /* warps of a block that read a stage */
    static constexpr int STAGES = ROOM_BYTES / STAGE;
    static_assert(STAGES <= STAGES_MAX, "barriers for all stages");
};

typedef HopperShape<1, false, 1, 256> Cooperative;
typedef HopperShape<2, false, 2, 128> Tall;
typedef HopperShape<3, true, 2, 128> InTurn;
typedef HopperShape<4, false, 1, 256, true> CooperativePair;

/* What a product may take; the first where nothing was timed. */
template <typename... S> struct HopperShapes {
};

/* A tile on its way from who takes it to all that work on it. */
typedef struct Ticket {
    GroupTile tile;
    int steps;   /* 0: there are no more tiles */
    bool common; /* B is that of the other block, too */
} Ticket;

static __host__ __device__ __forceinline__ int64_t tiles_of(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

/* Tickets of an expert: `down` times `across`, and behind them those of a last tile of rows that has
 * no neighbour, so that pairs of blocks take two of its columns (`apart`). */
typedef struct TicketGrid {
    int64_t down, across, apart;
} TicketGrid;

template <typename P, typename S>
static __device__ __forceinline__ TicketGrid ticket_grid(const P &p, int64_t rows)
{
    static_assert(!(P::SUMS && S::PAIR), "pairs share the weights of rows");
    int64_t across = tiles_of(p.n, S::COLS), down = tiles_of(P::SUMS ? p.m : rows, S::ROWS);
    if (!S::PAIR) return { down, across, 0 };
    return { down / 2, across, down % 2 * tiles_of(across, 2) };
}

template <typename P, typename S>
static __device__ __forceinline__ int32_t tickets_of_expert(const P &p, int64_t e)
{
    int64_t rows = max(p.groups.first(e + 1) - p.groups.first(e), (int64_t)0);
    TicketGrid grid = ticket_grid<P, S>(p, rows);
    return rows > 0 ? (int32_t)(grid.down * grid.across + grid.apart) : 0;
}

/* before[e]: by one warp, 32 experts at a time. */
template <typename P, typename S>
static __device__ __forceinline__ void tickets_count(const P &p, int32_t *before)
{
    int lane = (int)threadIdx.x % 32;
    int32_t sum = 0;
    for (int64_t first = 0; first < p.groups.experts; first += 32) {
        int64_t e = first + lane;
        int32_t mine = e < p.groups.experts ? tickets_of_expert<P, S>(p, e) : 0, up_to = mine;
        for (int d = 1; d < 32; d *= 2) {
            int32_t left = __shfl_up_sync(0xFFFFFFFFu, up_to, d);
            if (lane >= d) up_to += left;
        }
        if (e < p.groups.experts) before[e] = sum + up_to - mine;
        sum += __shfl_sync(0xFFFFFFFFu, up_to, 31);
    }
    if (lane == 0) before[p.groups.experts] = sum;
}

/* The tile of ticket `number`, whose expert is *e or a later one, for a pair's block `rank`. RASTER
 * tiles of rows run side by side. */
template <typename P, typename S>
static __device__ Ticket ticket_of(const P &p, const int32_t *before, int64_t number, int rank,
                                   int64_t *e)
{
    constexpr int TALL = S::CLUSTER, RUN = RASTER / TALL;
    Ticket t = {};
    while (*e < p.groups.experts && before[*e + 1] <= number) ++*e;
    if (*e == p.groups.experts) return t;
    int64_t begin = p.groups.first(*e), rows = p.groups.first(*e + 1) - begin, row, col;
    TicketGrid grid = ticket_grid<P, S>(p, rows);
    number -= before[*e];
    t.common = S::PAIR && number < grid.down * grid.across;
    if (t.common || !S::PAIR) {
        int64_t run = number / (RUN * grid.across) * RUN;
        int64_t in_run = min((int64_t)RUN, grid.down - run);
        number -= run * grid.across;
        row = ((run + number % in_run) * TALL + rank) * S::ROWS;
        col = number / in_run * S::COLS;
    } else {
        row = grid.down * TALL * S::ROWS;
        col = ((number - grid.down * grid.across) * 2 + rank) * S::COLS;
    }
    t.tile.expert = *e;
    t.tile.col = col;
    t.tile.row = P::SUMS ? row : 0;
    t.tile.first = P::SUMS ? begin : begin + row;
    t.tile.rows = P::SUMS ? rows : col < p.n ? min((int64_t)S::ROWS, rows - row) : 0;
    t.steps = (int)tiles_of(p.depth(t.tile), hopper::BLOCK);
    return t;
}

} // namespace grouped

#endif
