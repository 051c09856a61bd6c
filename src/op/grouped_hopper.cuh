/*
 * grouped_hopper: the products of grouped.cuh in bf16 for sm_90a: TMA, cp.async, wgmma with f32
 * sums in registers.
 *
 * One block a multiprocessor stays for the whole launch and takes tiles from a counter until none is
 * left (grouped_tiles.cuh). Of its three warpgroups the first fills a ring of stages, each 64 terms of
 * a tile's operands (grouped_load.cuh); the other two multiply. Four ways to share:
 *
 *   Cooperative      both warpgroups work on one tile of 128 x 256, 64 rows each. Fewest bytes from
 *                    L2: 85 FLOP a byte.
 *   CooperativePair  the same in two neighbouring blocks at a time, which share the weights: 128 FLOP
 *                    a byte, but each waits for the other.
 *   Tall             256 x 128, 128 rows each: for sums whose B is gathered, of which a tile then has
 *                    fewer columns.
 *   InTurn           each has a tile of 128 x 128 of its own, and while one multiplies the other
 *                    stores its results. 64 FLOP a byte.
 *
 * P::Shapes has those that a policy may take, first the one for where none was timed (choices.h), none
 * that lost everywhere. On an H200, TFLOP/s: rows without an index InTurn 606, Cooperative 521 at D
 * 2048, 556 and 644 at D 7168; weights with an index in B Tall 462, Cooperative 422; moe_up_fwd at D
 * 7168 Cooperative 634, CooperativePair 653, at D 4096 with 128 small experts 675 and 613.
 *
 * What a policy reads where it stores (READS) is in L2 by then, and on its way to registers one unit
 * ahead.
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
#include "op/grouped_load.cuh"
#include "op/grouped_tiles.cuh"

namespace grouped
{

enum {
    HOPPER_THREADS = 3 * hopper::WARPGROUP,
    GIVEN = 88,  /* registers of a thread that loads, */
    TAKEN = 208, /* and of one that multiplies */
    HOPPER_EXPERTS_MAX = 4096
};

/* A kernel's argument: a policy, and how TMA finds its operands. */
template <typename P> struct HopperArgs {
    P p;
    CUtensorMap a, b, c; /* c: what sums are added to, or what `store` reads */
    unsigned *counter;   /* exec_ticket: 0 at the start and at the end */
};

struct HopperShared {
    uint64_t full[STAGES_MAX], empty[STAGES_MAX], ready[TICKETS], filled[2];
    uint64_t told[TICKETS]; /* number[i] has come from the pair's other block */
    Ticket ticket[TICKETS];
    uint32_t number[TICKETS];
    int32_t before[]; /* (E+1) tickets of the experts before this one */
};

static inline size_t hopper_shared_bytes(int64_t experts)
{
    return 1024 + ROOM_BYTES + ADD_ROOM + sizeof(HopperShared) +
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
    uint32_t full, empty, ready, told;
    uint32_t filled; /* of each warpgroup: all stages of its tile came */
    __device__ __forceinline__ explicit Barriers(const HopperShared *s)
        : full(shared_address(s->full)), empty(shared_address(s->empty)),
          ready(shared_address(s->ready)), told(shared_address(s->told)),
          filled(shared_address(s->filled))
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

/* Has what `store` reads of a tile brought to L2 while the tile is summed up: ROWS x COLS elements of
 * the first half of c's columns, and of the second. */
template <typename P, typename S>
static __device__ __forceinline__ void reads_prefetch(const HopperArgs<P> &args, const GroupTile &t)
{
    for (int half = 0; half < 2; half++)
        for (int col = 0; col < S::COLS; col += hopper::BLOCK)
            hopper::box_prefetch(&args.c, (int)(half * args.p.n + t.col) + col, (int)t.first, 0);
}

/* The next number that no block or pair has. Each takes one for each of its tickets and two that lie
 * beyond the last, so the last of all knows itself and leaves the counter at 0. */
static __device__ __forceinline__ unsigned number_take(unsigned *counter, int32_t tickets,
                                                       unsigned takers)
{
    unsigned number = atomicAdd(counter, 1u);
    if (number == (unsigned)tickets + 2 * takers - 1) *counter = 0;
    return takers + number;
}

/* Numbers of tickets as one thread of a block gets them: from the counter, or from the first block
 * of its pair. */
template <typename S> struct Numbers {
    unsigned mine; /* the next one */
    int64_t expert;

    template <typename P>
    __device__ __forceinline__ void next(const HopperArgs<P> &args, HopperShared *s,
                                         const Barriers &bar, int turn)
    {
        int at = turn % TICKETS, rank = S::PAIR ? (int)hopper::cluster_rank() : 0;
        if (rank > 0) {
            hopper::arrive_expect(Barriers::at(bar.told, at), sizeof mine);
            hopper::wait(Barriers::at(bar.told, at), turn / TICKETS & 1);
            mine = s->number[at];
        } else if (S::PAIR) {
            hopper::pair_put(shared_address(&s->number[at]), mine, Barriers::at(bar.told, at), 1);
        }
        s->ticket[at] = ticket_of<P, S>(args.p, s->before, mine, rank, &expert);
        hopper::arrive(Barriers::at(bar.ready, at));
        if (rank == 0)
            mine =
                number_take(args.counter, s->before[args.p.groups.experts], gridDim.x / S::CLUSTER);
    }
};

template <typename P, typename S>
static __device__ __forceinline__ void hopper_load(const HopperArgs<P> &args, HopperShared *s,
                                                   uint32_t ring)
{
    if (!COPIES<P> && threadIdx.x > 0)
        return; /* whoever brings nothing must not wait out of step */
    const P &p = args.p;
    Barriers bar(s);
    Loader<typename P::SideA, P::SUMS, S::ROWS, false> a;
    Loader<typename P::SideB, P::SUMS, S::COLS, S::PAIR> b;
    RingPlace at = { 0, 1 }; /* the first time around every stage counts as empty */
    Numbers<S> numbers = { blockIdx.x / S::CLUSTER, 0 };
    for (int turn = -1;; turn++) {
        if (threadIdx.x == 0) numbers.next(args, s, bar, turn + 1);
        const Ticket *t = turn < 0 ? NULL : ticket_wait(s, bar, turn);
        int steps = 0;
        bool common = false;
        if (turn >= 0) {
            if (t->steps == 0) return;
            int terms = (int)p.depth(t->tile);
            a.open(&args.a, p.a(t->tile), p.a_at(t->tile), terms);
            b.open(&args.b, p.b(t->tile), p.b_at(t->tile), terms);
            steps = t->steps;
            common = t->common;
        }
        const Ticket *next = ticket_wait(s, bar, turn + 1);
        if constexpr (P::READS) {
            if (threadIdx.x == 0 && next->steps > 0) reads_prefetch<P, S>(args, next->tile);
        }
        a.look_ahead(p.a(next->tile), (int)p.depth(next->tile));
        b.look_ahead(p.b(next->tile), (int)p.depth(next->tile));
        for (; steps > 0; steps--) {
            uint32_t full = Barriers::at(bar.full, at.stage), room = ring + at.stage * S::STAGE;
            hopper::wait(Barriers::at(bar.empty, at.stage), at.turn);
            if (threadIdx.x == 0) {
                hopper::arrive_expect(full,
                                      (a.boxes() ? S::A_BYTES : 0) + (b.boxes() ? S::B_BYTES : 0));
            }
            a.step(room, full, false);
            b.step(room + S::A_BYTES, full, common);
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

/* This warp has read a stage: says so to every block that fills it. */
template <typename S>
static __device__ __forceinline__ void stage_free(const Barriers &bar, int stage)
{
    int lane = (int)threadIdx.x % 32;
    if constexpr (S::PAIR) {
        if (lane < S::CLUSTER) hopper::arrive_at(Barriers::at(bar.empty, stage), lane);
    } else {
        if (lane == 0) hopper::arrive(Barriers::at(bar.empty, stage));
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
        if (last >= 0) stage_free<S>(bar, last);
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

/* Row i of the tile, of which this lane has a quarter. What `store` reads is asked for a unit
 * ahead. */
template <typename P, typename S>
static __device__ __forceinline__ void hopper_row(const P &p, const GroupTile &t, int64_t i, int h,
                                                  const float (&c)[S::COLS / 2],
                                                  const typename P::Row &row)
{
    constexpr int N = P::UNIT, UNITS = S::COLS / 4 / N;
    int lane = (int)threadIdx.x % 4;
    bool have = i < t.rows;
    float dot = 0;
    typename P::template Extra<N> next = {};
    if (have) next = p.template extra<N>(t, i, lane * N);
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        float v[N];
        typename P::template Extra<N> now = next;
        if (have && u + 1 < UNITS) next = p.template extra<N>(t, i, ((u + 1) * 4 + lane) * N);
        unit_take<N>(c, h, u, v);
        if (have) dot += p.store(t, i, (u * 4 + lane) * N, v, now, row);
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
    int group = (int)threadIdx.x / hopper::WARPGROUP - 1, blocks = S::TURNS ? 0 : group * S::BLOCKS;
    int warp = (int)threadIdx.x / 32 - 4, lane = (int)threadIdx.x % 32;
    int first_row = blocks * hopper::BLOCK + warp % 4 * 16;
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
        stage_free<S>(bar, last);
        if constexpr (P::SUMS) {
#pragma unroll
            for (int i = 0; i < S::BLOCKS; i++)
                rows_add<P, S>(args, t, first_row + i * hopper::BLOCK, sum[i],
                               ring + ROOM_BYTES + warp * ADDS * ADD_BYTES);
        } else {
#pragma unroll
            for (int i = 0; i < S::BLOCKS * 2; i++) {
                int r = first_row + i / 2 * hopper::BLOCK + i % 2 * 8 + lane / 4;
                hopper_row<P, S>(p, t, r, i % 2, sum[i / 2], row[i]);
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
                                                       ROOM_BYTES + ADD_ROOM);
    Barriers bar(s);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            hopper::barrier_init(Barriers::at(bar.full, i),
                                 1 + (COPIES<P> ? hopper::WARPGROUP : 0));
            hopper::barrier_init(Barriers::at(bar.empty, i), S::READERS * S::CLUSTER);
        }
        for (int i = 0; i < TICKETS; i++) {
            hopper::barrier_init(Barriers::at(bar.ready, i), 1);
            hopper::barrier_init(Barriers::at(bar.told, i), 1);
        }
        for (int i = 0; i < 2; i++) hopper::barrier_init(Barriers::at(bar.filled, i), 4);
        hopper::barriers_publish();
    }
    if (threadIdx.x < 32) tickets_count<P, S>(args.p, s->before);
    __syncthreads();
    if (S::PAIR) hopper::cluster_sync();
    if (threadIdx.x < hopper::WARPGROUP) {
        hopper::registers_give<GIVEN>();
        hopper_load<P, S>(args, s, ring);
    } else {
        hopper::registers_take<TAKEN>();
        hopper_multiply<P, S>(args, s, ring);
    }
    if (S::PAIR)
        hopper::cluster_sync(); /* while the other block may still write here, this one stays */
}

template <typename P, typename S>
static __global__
__launch_bounds__(HOPPER_THREADS, 1) void hopper_kernel(const __grid_constant__ HopperArgs<P> args)
{
    extern __shared__ __align__(1024) unsigned char hopper_room[];
    if constexpr (hopper::COMPILED) hopper_run<P, S>(args, hopper_room);
}

/* Launch */

/* The most tickets that there can be. */
template <typename P, typename S> static inline int64_t hopper_tickets(const P &p)
{
    int64_t across = tiles_of(p.n, S::COLS), down = tiles_of(p.m, S::ROWS);
    if (P::SUMS) return p.groups.experts * down * across;
    return (p.groups.bound / S::ROWS + p.groups.experts) * across;
}

/* Blocks of a cluster run on neighbouring multiprocessors at the same time. */
template <typename P, typename S>
static Status hopper_start(struct Exec *ex, const char *op, const HopperArgs<P> &args)
{
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = { S::CLUSTER, 1, 1 };
    unsigned most = hopper_blocks(ex, hopper_tickets<P, S>(args.p) * S::CLUSTER);
    cudaLaunchConfig_t how = {};
    how.gridDim = dim3(max(most / S::CLUSTER, 1u) * S::CLUSTER);
    how.blockDim = dim3(HOPPER_THREADS);
    how.dynamicSmemBytes = hopper_shared_bytes(args.p.groups.experts);
    how.stream = exec_stream(ex);
    how.attrs = &cluster;
    how.numAttrs = S::PAIR ? 1 : 0;
    TRY(cuda_status(cudaFuncSetAttribute((const void *)hopper_kernel<P, S>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         (int)how.dynamicSmemBytes),
                    op));
    TRY(cuda_status(cudaLaunchKernelEx(&how, hopper_kernel<P, S>, args), op));
    return kernel_status(op);
}

template <typename P, typename S>
static Status hopper_launch(struct Exec *ex, const char *op, const void *policy)
{
    const P &p = *(const P *)policy;
    HopperArgs<P> args = { p, {}, {}, {}, exec_ticket(ex) };
    constexpr int A_BOX = P::SideA::ALONG ? S::ROWS : hopper::BLOCK;
    constexpr int B_BOX = P::SideB::ALONG ? S::COLS / S::CLUSTER : hopper::BLOCK;
    if (!P::SideA::GATHERS) TRY(tensor_map(op, p.a_shape(), A_BOX, false, &args.a));
    if (!P::SideB::GATHERS) TRY(tensor_map(op, p.b_shape(), B_BOX, P::SideB::PAIRS, &args.b));
    if (P::SUMS || P::READS)
        TRY(tensor_map(op, p.c_shape(), P::SUMS ? 8 : S::ROWS, false, &args.c));
    return hopper_start<P, S>(ex, op, args);
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
    const char *slower = packs ? "a slower kernel runs: over 4096 experts or 2^35 elements"
                               : "a slower kernel runs: rows do not lie at multiples of 16 bytes";
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
