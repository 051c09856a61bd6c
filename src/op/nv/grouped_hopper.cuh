/*
 * grouped_hopper: the products of grouped.cuh in bf16 for sm_90a: TMA, cp.async, wgmma with f32
 * sums in registers.
 *
 * One block a multiprocessor stays for the whole launch and takes tiles from a counter until none is
 * left (grouped_tiles.cuh). Of its three warpgroups the first fills a ring of stages, each 64 terms of
 * a tile's operands (grouped_load.cuh); the other two multiply. Three ways to share:
 *
 *   TILE_SHARED   both warpgroups work on one tile of 128 x 256, 64 rows each. Fewest bytes from L2:
 *                 85 FLOP a byte.
 *   TILE_TALL     the same with 256 x 128, 128 rows each: for sums whose B is gathered, of which a
 *                 tile then has fewer columns.
 *   TILE_IN_TURN  each has a tile of 128 x 128 of its own, and while one multiplies the other stores
 *                 its results, reads pre. 64 FLOP a byte.
 *
 * P::Shapes has those that a policy may take, first the one for where none was timed (choices.h), none
 * that lost everywhere. On an H200, TFLOP/s: rows without an index TILE_IN_TURN 606, TILE_SHARED 521 at D
 * 2048, 556 and 644 at D 7168; weights with an index in B TILE_TALL 462, TILE_SHARED 422.
 *
 * What a policy reads where it stores (READS) is in L2 by then, and on its way to registers one unit
 * ahead.
 *
 * A barrier tells two phases apart, not three, so of two that take turns the one waits for its first
 * stage only when the other has seen its last.
 *
 * Results: in a piece of 64 x 8 lane l of a warp has columns 2 (l % 4) and the next. What is stored
 * as it is (AS_IS) goes through shared memory, a warp on its own, and leaves it as whole lines. Else
 * four lanes exchange what they have of four pieces, and each then has 8 columns of one for `store`.
 *
 * The last rows of a group: rows of the result beyond it are not stored, whatever was read there.
 * Terms beyond it would count, so the last stage of a sum comes by cp.async, which fills in zeros.
 */
#ifndef OP_NV_GROUPED_HOPPER_CUH
#define OP_NV_GROUPED_HOPPER_CUH

#include "op/blas.cuh"
#include "op/nv/grouped_load.cuh"
#include "op/nv/grouped_tiles.cuh"

#include "op/moe_product.h"

namespace grouped
{

enum {
    HOPPER_THREADS = 3 * hopper::WARPGROUP,
    GIVEN = 88,       /* registers of a thread that loads, */
    TAKEN = 208,      /* and of one that multiplies */
    READS_AHEAD = 12, /* stages from reads_prefetch to the tile's last: longer than memory takes */
    HOPPER_EXPERTS_MAX = GROUPED_HOPPER_EXPERTS
};

static constexpr Kernel KERNEL_MMA = KERNEL_VENDOR_1, KERNEL_HOPPER = KERNEL_VENDOR_2;

/* A kernel's argument: a policy, and how TMA finds its operands. */
template <typename P> struct HopperArgs {
    P p;
    CUtensorMap a, b, c; /* c: what sums are added to, or what `store` reads */
    unsigned *counter;   /* exec_ticket: 0 at the start and at the end */
};

struct HopperShared {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX], ready[TICKETS], filled[2];
    Ticket ticket[TICKETS];
    int32_t before[]; /* (E+1) tiles of the experts before this one */
};

static inline size_t hopper_shared_bytes(int64_t experts)
{
    return 1024 + ROOM_BYTES + 8 * WARP_ROOM + sizeof(HopperShared) +
           (size_t)(experts + 1) * sizeof(int32_t);
}

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

/* Barriers of the shared part, as addresses. */
struct Barriers {
    uint32_t full, empty, ready;
    uint32_t filled; /* of each warpgroup: all stages of its tile came */
    __device__ __forceinline__ explicit Barriers(const HopperShared *s)
        : full(shared_address(s->full)), empty(shared_address(s->empty)),
          ready(shared_address(s->ready)), filled(shared_address(s->filled))
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

/* Has what `store` reads of a tile brought to L2 before the tile is summed up: ROWS x COLS elements of
 * the first half of c's columns, and of the second. */
template <typename P, typename S>
static __device__ __forceinline__ void reads_prefetch(const HopperArgs<P> &args, const GroupTile &t)
{
    for (int half = 0; half < 2; half++)
        for (int col = 0; col < S::COLS; col += hopper::BLOCK)
            hopper::box_prefetch(&args.c, (int)(half * args.p.n + t.col) + col, (int)t.pooled, 0);
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
            if (t->steps == 0) return;
            int terms = (int)p.depth(t->tile);
            a.open(&args.a, p.a(t->tile), p.a_at(t->tile), terms);
            b.open(&args.b, p.b(t->tile), p.b_at(t->tile), terms);
            steps = t->steps;
        }
        const Ticket *next = ticket_wait(s, bar, turn + 1);
        a.look_ahead(p.a(next->tile), (int)p.depth(next->tile));
        b.look_ahead(p.b(next->tile), (int)p.depth(next->tile));
        for (int ask = min(steps, (int)READS_AHEAD); steps > 0; steps--) {
            if constexpr (P::READS) {
                if (steps == ask && threadIdx.x == 0) reads_prefetch<P, S>(args, t->tile);
            }
            uint32_t full = Barriers::at(bar.full, at.stage), room = ring + at.stage * S::STAGE;
            hopper::wait(Barriers::at(bar.empty, at.stage), at.turn);
            if (threadIdx.x == 0) {
                hopper::arrive_expect(full,
                                      (a.boxes() ? S::A_BYTES : 0) + (b.boxes() ? S::B_BYTES : 0));
            }
            a.step(room, full);
            b.step(room + S::A_BYTES, full);
            if (COPIES<P>) hopper::arrive_after_copies(full);
            at.next<S::STAGES>();
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
        at->template next<S::STAGES>();
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

/* Row i of the tile, of which this lane has a quarter, to the policy's `store`. What that reads is asked
 * for two units ahead, which are a line of memory together: where `store` writes what it
 * reads, a store would wait for a read of the same line that is on its way (2.4 times the time of the
 * whole kernel). */
template <typename P, typename S>
static __device__ __forceinline__ void row_finish(const P &p, const GroupTile &t, int64_t i, int h,
                                                  const float (&c)[S::COLS / 2],
                                                  const typename P::Row &row)
{
    constexpr int N = P::UNIT, UNITS = S::COLS / 4 / N, LINE = 2;
    static_assert(UNITS % LINE == 0, "whole lines");
    int lane = (int)threadIdx.x % 4;
    bool have = i < t.rows;
    float dot = 0;
    typename P::template Extra<N> next[LINE] = {}, now[LINE];
#pragma unroll
    for (int k = 0; have && k < LINE; k++) next[k] = p.template extra<N>(t, i, (k * 4 + lane) * N);
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        float v[N];
        if (u % LINE == 0) {
#pragma unroll
            for (int k = 0; k < LINE; k++) now[k] = next[k];
#pragma unroll
            for (int k = LINE; have && u + k < UNITS && k < 2 * LINE; k++)
                next[k - LINE] = p.template extra<N>(t, i, ((u + k) * 4 + lane) * N);
        }
        unit_take<N>(c, h, u, v);
        if (have) dot += p.store(t, i, (u * 4 + lane) * N, v, now[u % LINE], row);
    }
    if constexpr (P::DOTS) {
        dot += __shfl_xor_sync(0xFFFFFFFFu, dot, 1);
        dot += __shfl_xor_sync(0xFFFFFFFFu, dot, 2);
        if (have && lane == 0) p.dot(t, i, t.col / S::COLS, dot);
    }
}

/* A warp's 16 rows as they are, 64 columns at a time, by way of 2 KB of shared memory. */
template <typename P, typename S>
static __device__ __forceinline__ void rows_store(const P &p, const GroupTile &t, int first_row,
                                                  const float (&c)[S::COLS / 2], uint32_t room)
{
    constexpr int ACROSS = hopper::BLOCK / CHUNK, DOWN = 32 / ACROSS;
    int lane = (int)threadIdx.x % 32, chunk = lane % ACROSS;
#pragma unroll
    for (int part = 0; part < S::COLS / hopper::BLOCK; part++) {
        const float *v = &c[part * 32];
        __syncwarp();
#pragma unroll
        for (int k = 0; k < 4; k++) hopper::results_put(room, k, &v[k * 8], &v[k * 8 + 4]);
        __syncwarp();
#pragma unroll
        for (int row = lane / ACROSS; row < 16; row += DOWN) {
            uint4 pack =
                hopper::shared_get(room + row * hopper::ROW_BYTES + ((chunk ^ (row & 7)) << 4));
            auto *to = p.place(t, first_row + row, part * hopper::BLOCK + chunk * CHUNK);
            if (to != NULL) __stwb(reinterpret_cast<uint4 *>(to), pack);
        }
    }
}

/* Adds a warp's 16 rows of sums to memory, or writes them there, 8 rows x ADD_COLS columns at a time, by way of two
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
        uint32_t room = buffers + part % ADDS * ADD_BYTES;
        if (lane == 0) hopper::boxes_wait<ADDS - 1>();
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
        if (lane != 0) continue;
        int x = (int)t.col + part / 2 * ADD_COLS, y = (int)t.row + first_row + h * 8;
        if (args.p.overwrite)
            hopper::box_put(&args.c, room, x, y, (int)t.expert);
        else
            hopper::box_add(&args.c, room, x, y, (int)t.expert);
    }
}

template <typename P, typename S>
static __device__ __forceinline__ void hopper_multiply(const HopperArgs<P> &args,
                                                       const HopperShared *s, uint32_t ring)
{
    const P &p = args.p;
    Barriers bar(s);
    RingPlace at = { 0, 0 };
    int group = (int)threadIdx.x / hopper::WARPGROUP - 1, blocks = S::TURNS ? 0 : group * S::BLOCKS;
    int warp = (int)threadIdx.x / 32 - 4, lane = (int)threadIdx.x % 32;
    int first_row = blocks * hopper::BLOCK + warp % 4 * 16;
    uint32_t mine = ring + ROOM_BYTES + warp * WARP_ROOM;
    for (int turn = 0;; turn++) {
        const Ticket *ticket = ticket_wait(s, bar, turn);
        GroupTile t = ticket->tile;
        int steps = ticket->steps;
        if (steps == 0) break;
        if (S::TURNS && turn % 2 != group) {
            int stage = at.stage + steps;
            at.turn ^= stage / S::STAGES & 1;
            at.stage = stage % S::STAGES;
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
#pragma unroll
        for (int i = 0; i < S::BLOCKS; i++) {
            int first = first_row + i * hopper::BLOCK;
            if constexpr (P::SUMS) {
                rows_add<P, S>(args, t, first, sum[i], mine);
            } else if constexpr (P::AS_IS) {
                rows_store<P, S>(p, t, first, sum[i], mine);
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++)
                    row_finish<P, S>(p, t, first + h * 8 + lane / 4, h, sum[i], row[i * 2 + h]);
            }
        }
    }
    if (P::SUMS && lane == 0) hopper::boxes_wait<0>();
}

template <typename P, typename S>
static __device__ __forceinline__ void hopper_run(const HopperArgs<P> &args, unsigned char *room)
{
    uint32_t ring = (shared_address(room) + 1023) & ~1023u;
    HopperShared *s = reinterpret_cast<HopperShared *>(room + (ring - shared_address(room)) +
                                                       ROOM_BYTES + 8 * WARP_ROOM);
    Barriers bar(s);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            hopper::barrier_init(Barriers::at(bar.full, i),
                                 1 + (COPIES<P> ? hopper::WARPGROUP : 0));
            hopper::barrier_init(Barriers::at(bar.empty, i), S::READERS);
        }
        for (int i = 0; i < TICKETS; i++) hopper::barrier_init(Barriers::at(bar.ready, i), 1);
        for (int i = 0; i < 2; i++) hopper::barrier_init(Barriers::at(bar.filled, i), 4);
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
    size_t bytes = hopper_shared_bytes(p.groups.experts);
    constexpr int A_BOX = P::SideA::ALONG ? S::ROWS : hopper::BLOCK;
    constexpr int B_BOX = P::SideB::ALONG ? S::COLS : hopper::BLOCK;
    if (!P::SideA::GATHERS) TRY(tensor_map(op, p.a_shape(), A_BOX, false, &args.a));
    if (!P::SideB::GATHERS) TRY(tensor_map(op, p.b_shape(), B_BOX, P::SideB::PAIRS, &args.b));
    if (P::SUMS || P::READS)
        TRY(tensor_map(op, p.c_shape(), P::SUMS ? 8 : S::ROWS, false, &args.c));
    TRY(kernel_shared(op, hopper_kernel<P, S>, bytes));
    hopper_kernel<P, S><<<blocks, HOPPER_THREADS, bytes, exec_stream(ex)>>>(args);
    return kernel_status(op);
}

template <typename P, TileShape... S>
static Status hopper_product(struct Exec *ex, const char *op, const P &p, TileShapes<S...>)
{
    static const int shapes[] = { S... };
    static GroupedLaunch *const launches[] = {
        hopper_launch<P, typename HopperShapeOf<S>::Type>...
    };
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
            TRY(kernel_shared(op, mma_kernel<P>, MMA_SHARED));
            mma_kernel<P><<<(unsigned)blocks, MMA_THREADS, MMA_SHARED, exec_stream(ex)>>>(p);
        } else {
            plain_kernel<P><<<(unsigned)blocks, PLAIN_THREADS, 0, exec_stream(ex)>>>(p);
        }
        return kernel_status(op);
    }
}

template <typename P, TileShape S> static inline int64_t hopper_across(const P &p, TileShapes<S>)
{
    return tiles_of(p.n, HopperShapeOf<S>::Type::COLS);
}

/* How many partial sums of a row's `dot` a product leaves. */
template <typename P> static int64_t dot_parts(const P &p)
{
    if constexpr (P::KERNEL == KERNEL_HOPPER) return hopper_across(p, typename P::Shapes());
    constexpr int threads = P::KERNEL == KERNEL_MMA ? (int)MMA_THREADS : (int)PLAIN_THREADS;
    return tiles_of(p.n, TILE) * PARTS<threads>;
}

/* Calls run(KernelTypes()) for the types of a product that this kernel takes (product_kernels.c).
 * INDEXES: may an index name rows? Does one now: indexed. */
template <Kernel KERNEL, bool INDEXES, typename F>
static inline Status by_types(bool f32, bool indexed, F run)
{
    if constexpr (KERNEL == KERNEL_HOPPER) {
        if constexpr (INDEXES) {
            if (indexed) return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL, true>());
        }
        return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL, false>());
    } else {
        if constexpr (KERNEL == KERNEL_PLAIN) {
            if (f32) return run(KernelTypes<float, float, float, KERNEL, true>());
        }
        return run(KernelTypes<Bf16, Bf16, Bf16, KERNEL, true>());
    }
}

/* The kernels of this file, with their names in product_kernels.c. */
#define GROUPED_VENDOR_KERNELS(ENTRY)                                                              \
    ENTRY(mma, KERNEL_MMA)                                                                         \
    ENTRY(hopper, KERNEL_HOPPER)

} // namespace grouped

#endif
