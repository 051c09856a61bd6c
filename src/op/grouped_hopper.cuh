/*
 * grouped_hopper: the products of grouped.cuh in bf16 for sm_90a: TMA, cp.async, wgmma with f32
 * sums in registers.
 *
 * One block a multiprocessor stays for the whole launch and takes tiles from a counter until none is
 * left. Of its three warpgroups the first fills a ring of stages, each 64 terms of a tile's operands;
 * the other two multiply. What lies in order comes by TMA, one thread's work; rows that an index
 * names come by cp.async, to which the copy engine has no answer on this chip. Three ways to share:
 *
 *   Cooperative   both warpgroups work on one tile of 128 x 256, 64 rows each. Fewest bytes from L2:
 *                 85 FLOP a byte.
 *   Tall          the same with 256 x 128, 128 rows each: for sums whose B is gathered, of which a
 *                 tile then has fewer columns.
 *   InTurn        each has a tile of 128 x 128 of its own, and while one multiplies the other stores
 *                 its results, reads pre, adds to gradients. 64 FLOP a byte.
 *
 * P::Shapes has those that a policy may take, first the one for where none was timed (choices.h), none
 * that lost everywhere. On an H200, TFLOP/s: rows without an index InTurn 606, Cooperative 521 at D
 * 2048, 556 and 644 at D 7168; weights with an index in B Tall 462, Cooperative 422.
 *
 * A barrier tells two phases apart, not three, so of two that take turns the one waits for its first
 * stage only when the other has seen its last.
 *
 * Results do not pass through shared memory. In a piece of 64 x 8 lane l of a warp has columns
 * 2 (l % 4) and the next; four lanes exchange what they have of four pieces, and each then has 8
 * columns of one, which the policy stores as 16 bytes; a row gets 64 bytes at a time.
 *
 * The last rows of a group: rows of the result beyond it are not stored, whatever was read there.
 * Terms beyond it would count, so the last stage of a sum comes by cp.async, which fills in zeros.
 */
#ifndef OP_GROUPED_HOPPER_CUH
#define OP_GROUPED_HOPPER_CUH

#include "op/blas.cuh"
#include "op/grouped_mma.cuh"
#include "op/hopper.cuh"

namespace grouped
{

enum {
    HOPPER_THREADS = 3 * hopper::WARPGROUP,
    ROOM_BYTES = 192 * 1024, /* of the ring, and of what `store` reads */
    ADD_BYTES = 1024,        /* 8 rows x 32 sums on their way to memory */
    ADD_COLS = 32,
    ADD_ROOM = 8 * 2 * ADD_BYTES, /* two a warp */
    STAGES_MAX = 8,
    TICKETS = 16, /* more than stages: a ticket is read before the ring comes around to it */
    RASTER = 16,  /* tiles of rows that run side by side, so that they share weights in L2 */
    GIVEN = 88,   /* registers of a thread that loads, */
    TAKEN = 208,  /* and of one that multiplies */
    HOPPER_EXPERTS_MAX = 4096
};

/* SHAPE: the number that stands for it in files (choices.h). BLOCKS: of 64 rows, for each warpgroup
 * that multiplies. */
template <int SHAPE, bool IN_TURN, int BLOCKS_A, int COLUMNS> struct HopperShape {
    static constexpr bool TURNS = IN_TURN;
    static constexpr int NUMBER = SHAPE, BLOCKS = BLOCKS_A, COLS = COLUMNS;
    static constexpr int ROWS = hopper::BLOCK * BLOCKS * (TURNS ? 1 : 2);
    static constexpr int A_BYTES = ROWS * hopper::ROW_BYTES, B_BYTES = COLS * hopper::ROW_BYTES;
    static constexpr int STAGE = A_BYTES + B_BYTES;
    static constexpr int READERS = TURNS ? 4 : 8;   /* warps that read a stage */
    static constexpr int PRE = 2 * ROWS * COLS * 2; /* two halves of what `store` reads */
    static_assert(ROOM_BYTES / STAGE <= STAGES_MAX, "barriers for all stages");
};

typedef HopperShape<1, false, 1, 256> Cooperative;
typedef HopperShape<2, false, 2, 128> Tall;
typedef HopperShape<3, true, 2, 128> InTurn;

/* What a product may take; the first where nothing was timed. */
template <typename... S> struct HopperShapes {
};

/* A kernel's argument: a policy, and how TMA finds its operands. */
template <typename P> struct HopperArgs {
    P p;
    CUtensorMap a, b, c; /* c: what sums are added to, or what `store` reads */
    unsigned *counter;   /* exec_ticket: 0 at the start and at the end */
};

/* A tile on its way from who takes it to all that work on it; rows 0: there are no more. */
typedef struct Ticket {
    GroupTile tile;
    int steps;
} Ticket;

struct HopperShared {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX], ready[TICKETS], filled[2];
    uint64_t pre_full[2], pre_empty; /* pre_full: one for each warpgroup */
    Ticket ticket[TICKETS];
    int32_t before[]; /* (E+1) tiles of the experts before this one */
};

static inline size_t hopper_shared_bytes(int64_t experts)
{
    return 1024 + ROOM_BYTES + ADD_ROOM + sizeof(HopperShared) +
           (size_t)(experts + 1) * sizeof(int32_t);
}

template <typename P, typename S>
constexpr int STAGES_OF = (ROOM_BYTES - (P::READS ? S::PRE : 0)) / S::STAGE;

/* Does the whole warpgroup that loads bring something, by cp.async? Else one thread asks TMA for all. */
template <typename P> constexpr bool COPIES = P::SUMS || P::SideA::GATHERS || P::SideB::GATHERS;

/* A place in the ring, and how often it came around. */
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

static __host__ __device__ __forceinline__ int64_t tiles_of(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

template <typename P, typename S>
static __device__ __forceinline__ int32_t tiles_of_expert(const P &p, int64_t e)
{
    int64_t rows = p.groups.first(e + 1) - p.groups.first(e), across = tiles_of(p.n, S::COLS);
    if (P::SUMS) return rows > 0 ? (int32_t)(tiles_of(p.m, S::ROWS) * across) : 0;
    return (int32_t)(tiles_of(max(rows, (int64_t)0), S::ROWS) * across);
}

/* before[e]: by one warp, 32 experts at a time. */
template <typename P, typename S>
static __device__ __forceinline__ void tiles_count(const P &p, int32_t *before)
{
    int lane = (int)threadIdx.x % 32;
    int32_t sum = 0;
    for (int64_t first = 0; first < p.groups.experts; first += 32) {
        int64_t e = first + lane;
        int32_t tiles = e < p.groups.experts ? tiles_of_expert<P, S>(p, e) : 0, up_to = tiles;
        for (int d = 1; d < 32; d *= 2) {
            int32_t left = __shfl_up_sync(0xFFFFFFFFu, up_to, d);
            if (lane >= d) up_to += left;
        }
        if (e < p.groups.experts) before[e] = sum + up_to - tiles;
        sum += __shfl_sync(0xFFFFFFFFu, up_to, 31);
    }
    if (lane == 0) before[p.groups.experts] = sum;
}

/* Tile `number`, whose expert is *e or a later one. */
template <typename P, typename S>
static __device__ Ticket ticket_of(const P &p, const int32_t *before, int64_t number, int64_t *e)
{
    Ticket t = {};
    while (*e < p.groups.experts && before[*e + 1] <= number) ++*e;
    if (*e == p.groups.experts) return t;
    int64_t begin = p.groups.first(*e), rows = p.groups.first(*e + 1) - begin;
    int64_t across = tiles_of(p.n, S::COLS), down = tiles_of(P::SUMS ? p.m : rows, S::ROWS);
    number -= before[*e];
    int64_t run = number / (RASTER * across) * RASTER, in_run = min((int64_t)RASTER, down - run);
    number -= run * across;
    int64_t row = (run + number % in_run) * S::ROWS;
    t.tile.expert = *e;
    t.tile.col = number / in_run * S::COLS;
    t.tile.row = P::SUMS ? row : 0;
    t.tile.first = P::SUMS ? begin : begin + row;
    t.tile.rows = P::SUMS ? rows : min((int64_t)S::ROWS, rows - row);
    t.steps = (int)tiles_of(p.depth(t.tile), hopper::BLOCK);
    return t;
}

/* The part of a gathered operand that a thread of the loading warpgroup brings: WIDTH rows of the
 * tile x 64 terms. */
template <typename T, bool ALONG, int WIDTH> struct Gather;

template <typename T, int WIDTH> struct Gather<T, true, WIDTH> {
    static constexpr int ACROSS = hopper::BLOCK / CHUNK, DOWN = hopper::WARPGROUP / ACROSS;
    static constexpr int MINE = WIDTH / DOWN;
    const T *at[MINE];
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
        have = 0;
#pragma unroll
        for (int q = 0; q < MINE; q++) {
            have |= next[q] >= 0 ? 1u << q : 0;
            at[q] = v.data + (int64_t)max(next[q], 0) * v.ld + chunk * CHUNK;
        }
    }

    __device__ __forceinline__ void step(uint32_t room)
    {
        int chunk = (int)threadIdx.x % ACROSS, row = (int)threadIdx.x / ACROSS;
        uint32_t to = room + row * hopper::ROW_BYTES + ((chunk ^ (row & 7)) << 4);
#pragma unroll
        for (int q = 0; q < MINE; q++) {
            bool inside = (have >> q & 1) != 0 && left > 0;
            copy_chunk(to + q * DOWN * hopper::ROW_BYTES, inside ? at[q] : at[0], inside);
            at[q] += hopper::BLOCK;
        }
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

/* One operand of a tile on its way to the ring; SIDE is what the policy says of it. All threads of
 * the warpgroup that loads call these. */
template <typename SIDE, bool SUMS, int WIDTH> struct Loader {
    typedef typename SIDE::Type T;
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

    __device__ __forceinline__ void step(uint32_t room, uint32_t barrier)
    {
        if (!boxes()) {
            if constexpr (SUMS || SIDE::GATHERS) gather.step(room);
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
        (SIDE::ALONG ? x : y) += hopper::BLOCK;
        left -= hopper::BLOCK;
    }
};

/* Barriers of the shared part, as addresses. */
struct Barriers {
    uint32_t full, empty, ready, pre_full, pre_empty;
    uint32_t filled; /* of each warpgroup: all stages of its tile came */
    __device__ __forceinline__ explicit Barriers(const HopperShared *s)
        : full(shared_address(s->full)), empty(shared_address(s->empty)),
          ready(shared_address(s->ready)), pre_full(shared_address(s->pre_full)),
          pre_empty(shared_address(&s->pre_empty)), filled(shared_address(s->filled))
    {
    }
    static __device__ __forceinline__ uint32_t at(uint32_t first, int i) { return first + i * 8; }
};

/* The ticket of the tile that this block takes as number `turn`; all threads that need it call. */
static __device__ __forceinline__ const Ticket *ticket_wait(const HopperShared *s,
                                                            const Barriers &b, int turn)
{
    hopper::wait(Barriers::at(b.ready, turn % TICKETS), turn / TICKETS & 1);
    return &s->ticket[turn % TICKETS];
}

/* What `store` reads of tile number `turn`, behind the ring: ROWS x COLS elements of the first half of
 * c's columns, and of the second. Columns and rows beyond the tile come along unread. */
template <typename P, typename S>
static __device__ __forceinline__ void pre_load(const HopperArgs<P> &args, const GroupTile &t,
                                                const Barriers &bar, uint32_t room, int turn)
{
    static_assert(S::TURNS, "one place for what `store` reads, which warpgroups take in turn");
    uint32_t full = Barriers::at(bar.pre_full, turn % 2);
    hopper::wait(bar.pre_empty, turn & 1 ^ 1);
    hopper::arrive_expect(full, S::PRE);
    for (int b = 0; b < 2 * S::COLS / hopper::BLOCK; b++) {
        int half = b / (S::COLS / hopper::BLOCK),
            col = b % (S::COLS / hopper::BLOCK) * hopper::BLOCK;
        hopper::box_load(room + b * S::ROWS * hopper::ROW_BYTES, &args.c,
                         (int)(half * args.p.n + t.col) + col, (int)t.first, 0, full);
    }
}

/* The next number that no block has. Every block takes one for each of its tiles and two that lie
 * beyond the last, so the last of all knows itself and leaves the counter at 0. */
static __device__ __forceinline__ unsigned number_take(unsigned *counter, int32_t tiles)
{
    unsigned number = atomicAdd(counter, 1u);
    if (number == (unsigned)tiles + 2 * gridDim.x - 1) *counter = 0;
    return number;
}

template <typename P, typename S>
static __device__ __forceinline__ void hopper_load(const HopperArgs<P> &args, HopperShared *s,
                                                   uint32_t ring)
{
    if (!COPIES<P> && threadIdx.x > 0)
        return; /* whoever brings nothing must not wait out of step */
    const P &p = args.p;
    Barriers bar(s);
    Loader<typename P::SideA, P::SUMS, S::ROWS> a;
    Loader<typename P::SideB, P::SUMS, S::COLS> b;
    RingPlace at = { 0, 1 }; /* the first time around every stage counts as empty */
    int64_t number = blockIdx.x, expert = 0;
    for (int turn = -1;; turn++) {
        if (threadIdx.x == 0) {
            s->ticket[(turn + 1) % TICKETS] = ticket_of<P, S>(p, s->before, number, &expert);
            hopper::arrive(Barriers::at(bar.ready, (turn + 1) % TICKETS));
            number = (int64_t)gridDim.x + number_take(args.counter, s->before[p.groups.experts]);
        }
        const Ticket *t = turn < 0 ? NULL : ticket_wait(s, bar, turn);
        int steps = 0;
        if (turn >= 0) {
            if (t->tile.rows == 0) return;
            int terms = (int)p.depth(t->tile);
            a.open(&args.a, p.a(t->tile), p.a_at(t->tile), terms);
            b.open(&args.b, p.b(t->tile), p.b_at(t->tile), terms);
            steps = t->steps;
        }
        const Ticket *next = ticket_wait(s, bar, turn + 1);
        a.look_ahead(p.a(next->tile), (int)p.depth(next->tile));
        b.look_ahead(p.b(next->tile), (int)p.depth(next->tile));
        for (; steps > 0; steps--) {
            uint32_t full = Barriers::at(bar.full, at.stage), room = ring + at.stage * S::STAGE;
            hopper::wait(Barriers::at(bar.empty, at.stage), at.turn);
            if (threadIdx.x == 0) {
                hopper::arrive_expect(full,
                                      (a.boxes() ? S::A_BYTES : 0) + (b.boxes() ? S::B_BYTES : 0));
            }
            a.step(room, full);
            b.step(room + S::A_BYTES, full);
            if (COPIES<P>) hopper::arrive_after_copies(full);
            at.next<STAGES_OF<P, S>>();
        }
        if constexpr (P::READS) {
            if (turn >= 0 && threadIdx.x == 0)
                pre_load<P, S>(args, t->tile, bar, ring + STAGES_OF<P, S> * S::STAGE, turn);
        }
    }
}

/* One stage: 64 terms for this warpgroup's rows. */
template <typename P, typename S>
static __device__ __forceinline__ void hopper_step(float (&sum)[S::BLOCKS][S::COLS / 2],
                                                   uint32_t a_room, uint32_t b_room, int add)
{
    constexpr int A_STEP = P::SideA::ALONG ? 32 : 16 * hopper::ROW_BYTES;
    constexpr int B_STEP = P::SideB::ALONG ? 32 : 16 * hopper::ROW_BYTES;
    uint64_t a = hopper::operand_at(a_room), b = hopper::operand_at(b_room);
#pragma unroll
    for (int k = 0; k < hopper::BLOCK / 16; k++) {
#pragma unroll
        for (int i = 0; i < S::BLOCKS; i++) {
            hopper::multiply_add<!P::SideA::ALONG, !P::SideB::ALONG>(
                sum[i], a + (k * A_STEP + i * hopper::BLOCK_BYTES >> 4), b + (k * B_STEP >> 4),
                add | k);
        }
    }
}

/* All terms of a tile. A stage is given back once the products after it are on their way. Returns
 * the stage that is still being read. */
template <typename P, typename S>
static __device__ __forceinline__ int hopper_sum(float (&sum)[S::BLOCKS][S::COLS / 2],
                                                 const Barriers &bar, uint32_t ring, int steps,
                                                 int blocks_before, RingPlace *at)
{
    int last = -1;
    for (int step = 0; step < steps; step++) {
        uint32_t room = ring + at->stage * S::STAGE;
        hopper::wait(Barriers::at(bar.full, at->stage), at->turn);
        if (COPIES<P>) hopper::writes_to_products();
        hopper::products_begin();
        hopper_step<P, S>(sum, room + blocks_before * hopper::BLOCK_BYTES, room + S::A_BYTES, step);
        hopper::products_close();
        hopper::products_wait<1>();
        if (last >= 0 && threadIdx.x % 32 == 0) hopper::arrive(Barriers::at(bar.empty, last));
        last = at->stage;
        at->template next<STAGES_OF<P, S>>();
    }
    return last;
}

/* Four lanes have columns 2 (l % 4) and the next of four pieces, v[2 * piece]; afterwards lane l has
 * all 8 columns of piece l % 4. */
static __device__ __forceinline__ void lanes_turn(float (&v)[8])
{
#pragma unroll
    for (int d = 1; d <= 2; d *= 2) {
        bool upper = (threadIdx.x & d) != 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            /* d 1: pieces 0 and 1, 2 and 3 change places; d 2: their joined halves */
            int low = d == 1 ? i / 2 * 4 + i % 2 : i, high = low + 2 * d;
            float got = __shfl_xor_sync(0xFFFFFFFFu, upper ? v[low] : v[high], d);
            (upper ? v[low] : v[high]) = got;
        }
    }
}

/* N columns of the policy's `store` out of row half h: unit u of this lane. */
template <int N, int REGISTERS>
static __device__ __forceinline__ void unit_take(const float (&c)[REGISTERS], int h, int u,
                                                 float (&v)[N])
{
    constexpr int APART = N / 8; /* 16: every second piece, first the even ones */
#pragma unroll
    for (int part = 0; part < APART; part++) {
        float eight[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int piece = (u * 4 + i / 2) * APART + part;
            eight[i] = c[piece * 4 + h * 2 + i % 2];
        }
        lanes_turn(eight);
#pragma unroll
        for (int i = 0; i < 8; i++) v[part * 8 + i] = eight[i];
    }
}

template <typename P, typename S, int N>
static __device__ __forceinline__ typename P::template Extra<N>
extra_of(const P &p, const GroupTile &t, int64_t i, int j, uint32_t room)
{
    if constexpr (P::READS) {
        typename P::template Extra<N> e;
        uint32_t at = (uint32_t)(j / hopper::BLOCK * S::ROWS + i) * hopper::ROW_BYTES +
                      ((j % hopper::BLOCK / CHUNK ^ (i & 7)) << 4);
        uint4 first = hopper::shared_get(room + at);
        uint4 second = hopper::shared_get(room + S::PRE / 2 + at);
        static_assert(sizeof e == sizeof first + sizeof second, "8 columns of both halves");
        memcpy(&e, &first, sizeof first);
        memcpy((char *)&e + sizeof first, &second, sizeof second);
        return e;
    } else {
        return p.template extra<N>(t, i, j);
    }
}

/* Row i of the tile, of which this lane has a quarter. */
template <typename P, typename S>
static __device__ __forceinline__ void hopper_row(const P &p, const GroupTile &t, int64_t i, int h,
                                                  const float (&c)[S::COLS / 2],
                                                  const typename P::Row &row, uint32_t room)
{
    constexpr int N = P::UNIT, UNITS = S::COLS / 4 / N;
    int lane = (int)threadIdx.x % 4;
    bool have = i < t.rows;
    float dot = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        int j = (u * 4 + lane) * N;
        float v[N];
        unit_take<N>(c, h, u, v);
        if (have) dot += p.store(t, i, j, v, extra_of<P, S, N>(p, t, i, j, room), row);
    }
    if constexpr (P::DOTS) {
        dot += __shfl_xor_sync(0xFFFFFFFFu, dot, 1);
        dot += __shfl_xor_sync(0xFFFFFFFFu, dot, 2);
        if (have && lane == 0) p.dot(t, i, t.col / S::COLS, dot);
    }
}

/* Adds a warp's 16 rows of sums to memory, 8 rows x ADD_COLS columns at a time, by way of two
 * buffers of its own: the copy engine adds one while the next is filled. */
template <typename P, typename S>
static __device__ __forceinline__ void rows_add(const HopperArgs<P> &args, const GroupTile &t,
                                                int first_row, const float (&c)[S::COLS / 2],
                                                uint32_t buffers)
{
    int lane = (int)threadIdx.x % 32, row = lane / 4, q = lane % 4;
#pragma unroll
    for (int part = 0; part < S::COLS / ADD_COLS * 2; part++) {
        int h = part % 2;
        uint32_t room = buffers + h * ADD_BYTES;
        if (lane == 0) hopper::boxes_wait<1>();
        __syncwarp();
#pragma unroll
        for (int piece = 0; piece < 4; piece++) {
            int chunk = piece * 2 + q / 2;
            const float *v = &c[(part / 2 * 4 + piece) * 4 + h * 2];
            hopper::shared_put(room + row * hopper::ROW_BYTES + ((chunk ^ row) << 4) + q % 2 * 8,
                               v[0], v[1]);
        }
        hopper::writes_to_products();
        __syncwarp();
        if (lane == 0)
            hopper::box_add(&args.c, room, (int)t.col + part / 2 * ADD_COLS,
                            (int)t.row + first_row + h * 8, (int)t.expert);
    }
}

template <typename P, typename S>
static __device__ __forceinline__ void hopper_multiply(const HopperArgs<P> &args,
                                                       const HopperShared *s, uint32_t ring)
{
    const P &p = args.p;
    Barriers bar(s);
    RingPlace at = { 0, 0 };
    uint32_t pre = ring + STAGES_OF<P, S> * S::STAGE;
    int group = (int)threadIdx.x / hopper::WARPGROUP - 1, blocks = S::TURNS ? 0 : group * S::BLOCKS;
    int warp = (int)threadIdx.x / 32 - 4, lane = (int)threadIdx.x % 32;
    int first_row = blocks * hopper::BLOCK + warp % 4 * 16;
    for (int turn = 0;; turn++) {
        const Ticket *ticket = ticket_wait(s, bar, turn);
        GroupTile t = ticket->tile;
        int steps = ticket->steps;
        if (t.rows == 0) break;
        if (S::TURNS && turn % 2 != group) {
            int stage = at.stage + steps;
            at.turn ^= stage / STAGES_OF<P, S> & 1;
            at.stage = stage % STAGES_OF<P, S>;
            continue;
        }
        typename P::Row row[S::BLOCKS * 2] = {};
#pragma unroll
        for (int i = 0; i < S::BLOCKS * 2; i++) {
            int r = first_row + i / 2 * hopper::BLOCK + i % 2 * 8 + lane / 4;
            if (!P::SUMS && r < t.rows) row[i] = p.row(t, r);
        }
        if (S::TURNS && turn > 0)
            hopper::wait(Barriers::at(bar.filled, (turn - 1) % 2), (turn - 1) / 2 & 1);
        float sum[S::BLOCKS][S::COLS / 2];
        int last = hopper_sum<P, S>(sum, bar, ring, steps, blocks, &at);
        if (S::TURNS && lane == 0) hopper::arrive(Barriers::at(bar.filled, turn % 2));
        hopper::products_wait<0>();
        if (lane == 0) hopper::arrive(Barriers::at(bar.empty, last));
        if constexpr (P::SUMS) {
#pragma unroll
            for (int i = 0; i < S::BLOCKS; i++)
                rows_add<P, S>(args, t, first_row + i * hopper::BLOCK, sum[i],
                               ring + ROOM_BYTES + warp * 2 * ADD_BYTES);
            continue;
        }
        if (P::READS) hopper::wait(Barriers::at(bar.pre_full, group), turn / 2 & 1);
#pragma unroll
        for (int i = 0; i < S::BLOCKS * 2; i++) {
            int r = first_row + i / 2 * hopper::BLOCK + i % 2 * 8 + lane / 4;
            hopper_row<P, S>(p, t, r, i % 2, sum[i / 2], row[i], pre);
        }
        if (P::READS) {
            __syncwarp();
            if (lane == 0) hopper::arrive(bar.pre_empty);
        }
    }
    if (P::SUMS && lane == 0) hopper::boxes_wait<0>();
}

template <typename P, typename S>
static __device__ __forceinline__ void hopper_run(const HopperArgs<P> &args, unsigned char *room)
{
    uint32_t ring = (shared_address(room) + 1023) & ~1023u;
    HopperShared *s = reinterpret_cast<HopperShared *>(room + (ring - shared_address(room)) +
                                                       ROOM_BYTES + ADD_ROOM);
    Barriers bar(s);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES_OF<P, S>; i++) {
            hopper::barrier_init(Barriers::at(bar.full, i),
                                 1 + (COPIES<P> ? hopper::WARPGROUP : 0));
            hopper::barrier_init(Barriers::at(bar.empty, i), S::READERS);
        }
        for (int i = 0; i < TICKETS; i++) hopper::barrier_init(Barriers::at(bar.ready, i), 1);
        for (int i = 0; i < 2; i++) hopper::barrier_init(Barriers::at(bar.filled, i), 4);
        for (int i = 0; i < 2; i++) hopper::barrier_init(Barriers::at(bar.pre_full, i), 1);
        hopper::barrier_init(bar.pre_empty, S::READERS);
        hopper::barriers_publish();
    }
    if (threadIdx.x < 32) tiles_count<P, S>(args.p, s->before);
    __syncthreads();
    if (threadIdx.x < hopper::WARPGROUP) {
        hopper::registers_give<GIVEN>();
        hopper_load<P, S>(args, s, ring);
    } else {
        hopper::registers_take<TAKEN>();
        hopper_multiply<P, S>(args, s, ring);
    }
}

template <typename P, typename S>
static __global__
__launch_bounds__(HOPPER_THREADS, 1) void hopper_kernel(const __grid_constant__ HopperArgs<P> args)
{
    extern __shared__ __align__(1024) unsigned char hopper_room[];
    if constexpr (hopper::COMPILED) hopper_run<P, S>(args, hopper_room);
}

/* Launch */

/* The most tiles that there can be. */
template <typename P, typename S> static inline int64_t hopper_tiles(const P &p)
{
    int64_t across = tiles_of(p.n, S::COLS), down = tiles_of(p.m, S::ROWS);
    if (P::SUMS) return p.groups.experts * down * across;
    return (p.groups.bound / S::ROWS + p.groups.experts) * across;
}

template <typename P, typename S>
static Status hopper_launch(struct Exec *ex, const char *op, const void *policy)
{
    const P &p = *(const P *)policy;
    HopperArgs<P> args = { p, {}, {}, {}, exec_ticket(ex) };
    unsigned blocks = hopper_blocks(ex, hopper_tiles<P, S>(p));
    const void *kernel = (const void *)hopper_kernel<P, S>;
    size_t bytes = hopper_shared_bytes(p.groups.experts);
    constexpr int A_BOX = P::SideA::ALONG ? S::ROWS : hopper::BLOCK;
    constexpr int B_BOX = P::SideB::ALONG ? S::COLS : hopper::BLOCK;
    if (!P::SideA::GATHERS) TRY(tensor_map(op, p.a_shape(), A_BOX, false, &args.a));
    if (!P::SideB::GATHERS) TRY(tensor_map(op, p.b_shape(), B_BOX, P::SideB::PAIRS, &args.b));
    if (P::SUMS || P::READS)
        TRY(tensor_map(op, p.c_shape(), P::SUMS ? 8 : S::ROWS, false, &args.c));
    TRY(cuda_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), op));
    hopper_kernel<P, S><<<blocks, HOPPER_THREADS, bytes, exec_stream(ex)>>>(args);
    return kernel_status(op);
}

template <typename P, typename... S>
static Status hopper_product(struct Exec *ex, const char *op, const P &p, HopperShapes<S...>)
{
    static const int shapes[] = { S::NUMBER... };
    static GroupedLaunch *const launches[] = { hopper_launch<P, S>... };
    ChoiceKey key = choices_grouped_key(op, P::INDEXED, p.groups.bound, p.groups.experts,
                                        p.a_shape().cols, p.n);
    return grouped_run(ex, op, &key, shapes, launches, sizeof...(S), &p);
}

template <typename P> static Status launch(struct Exec *ex, const char *op, const P &p)
{
    if (p.groups.bound == 0) return OK;
    if constexpr (P::KERNEL == KERNEL_HOPPER) {
        return hopper_product(ex, op, p, typename P::Shapes());
    } else {
        int64_t blocks = blocks_of(p);
        if (blocks > INT32_MAX) {
            return FAIL(ERR_UNSUPPORTED, "%s: %lld tiles, a GPU takes %d at a time", op,
                        (long long)blocks, INT32_MAX);
        }
        if constexpr (P::KERNEL == KERNEL_MMA) {
            const void *kernel = (const void *)mma_kernel<P>;
            TRY(cuda_status(cudaFuncSetAttribute(
                                kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, MMA_SHARED),
                            op));
            mma_kernel<P><<<(unsigned)blocks, MMA_THREADS, MMA_SHARED, exec_stream(ex)>>>(p);
        } else {
            plain_kernel<P><<<(unsigned)blocks, PLAIN_THREADS, 0, exec_stream(ex)>>>(p);
        }
        return kernel_status(op);
    }
}

/* What decides which kernel multiplies: operands, other addresses, and the widths of rows. */
struct KernelNeeds {
    const char *op;
    const Quant &a, &b;
    int64_t experts;
    std::initializer_list<const void *> at;
    std::initializer_list<int64_t> spans;
};

/* For bf16. Tensor cores multiply if operands, results and the other addresses are aligned as they
 * need it. That a Hopper GPU runs another kernel than its own is said once an op. */
static inline Kernel kernel_for(struct Exec *ex, const KernelNeeds &k)
{
    int64_t chunks = max(tensor_elems(&k.a.data), tensor_elems(&k.b.data)) / CHUNK;
    bool hopper = hopper_device(), small = k.experts <= HOPPER_EXPERTS_MAX && chunks < UINT32_MAX;
    bool packs =
        packs_fit<Bf16>({ k.a.data.data, k.b.data.data }, k.spans) && packs_fit<Bf16>(k.at, {});
    const char *slower =
        packs ? "a slower kernel runs: over 4096 experts or 2^35 elements" : UNPACKED;
    if (hopper && packs && small) return KERNEL_HOPPER;
    if (hopper) exec_note_once(ex, k.op, slower);
    return packs ? KERNEL_MMA : KERNEL_PLAIN;
}

/* Calls run(KernelTypes()) for the types of these operands, which the op's check allows. INDEXES: may
 * an index name rows? Does one now: indexed. */
template <bool INDEXES, typename F>
static inline Status by_kernel(struct Exec *ex, const KernelNeeds &k, bool indexed, F run)
{
    if (k.a.data.dtype == DTYPE_F32)
        return run(KernelTypes<float, float, float, KERNEL_PLAIN, true>());
    Kernel kernel = kernel_for(ex, k);
    if (kernel == KERNEL_PLAIN) return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL_PLAIN, true>());
    if (kernel == KERNEL_MMA) return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL_MMA, true>());
    if constexpr (INDEXES) {
        if (indexed) return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL_HOPPER, true>());
    }
    return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL_HOPPER, false>());
}

} // namespace grouped

#endif
