/*
 * grouped_hopper: the products of grouped.cuh in bf16 and in 8 bits (grouped_scaled.cuh) for sm_90a,
 * with TMA, cp.async, and wgmma with f32 sums in registers. Also the launchers of all kernels of NVIDIA (grouped_vendor.cuh).
 *
 * The kernel is persistent: one block on each multiprocessor takes tiles from a counter until none is left
 * (grouped_tiles.cuh). Of its three warpgroups the first fills a ring of stages, each with 64 terms of a tile's
 * operands (grouped_load.cuh). The other two multiply. They divide the work in one of three ways:
 *
 *   TILE_SHARED   Both work on one tile of 128 x 256, 64 rows each. It reads the fewest bytes from L2:
 *                 85 FLOP a byte.
 *   TILE_TALL     The same with 256 x 128, 128 rows each. It is for sums whose B is gathered: a tile then has
 *                 fewer columns of B.
 *   TILE_IN_TURN  Each has its own tile of 128 x 128. While one multiplies, the other stores its results and
 *                 reads what `store` needs. 64 FLOP a byte.
 *
 * P::Shapes lists the shapes that a policy may use, without those that were slower everywhere. The first one is used if
 * none was timed (choices.h).
 *
 * What a policy reads when it stores (READS) is prefetched into L2, and loaded into registers ahead
 * of use. With 8-bit operands it comes through the ring, after the tile's terms: 640 TFLOP/s instead
 * of 460 for Qwen3's gradient of SwiGLU on an H100.
 *
 * A barrier distinguishes two phases, not three. So with TILE_IN_TURN, a warpgroup waits for its
 * first stage only after the other one has seen its last stage.
 *
 * Results: in a piece of 64 x 8, lane l of a warp has columns 2 (l % 4) and the next. Results that are stored unchanged
 * (AS_IS) go through shared memory, each warp on its own, and are written as whole lines. Otherwise four lanes exchange
 * their columns of four pieces, and each then has all 8 columns of one piece for `store`.
 *
 * At the end of a group, rows of the result beyond it are not stored, so it does not matter what was read there. Terms
 * beyond it would be summed. So the last stage of a sum is loaded by cp.async, which fills in zeros.
 */
#ifndef KERNELS_MOE_NV_GROUPED_HOPPER_CUH
#define KERNELS_MOE_NV_GROUPED_HOPPER_CUH

#include "kernels/core/kernel.cuh"
#include "kernels/moe/nv/grouped_narrow.cuh"

#include "kernels/core/tuner.h"
#include "kernels/moe/moe_product.h"

namespace grouped
{

enum {
    HOPPER_THREADS = 3 * hopper::WARPGROUP,
    LAUNCHED = 168, /* registers of a thread at the start, as __launch_bounds__ makes it */
    READS_AHEAD =
        12, /* stages between reads_prefetch and the tile's end: longer than memory latency */
    HOPPER_EXPERTS_MAX = GROUPED_HOPPER_EXPERTS
};

static constexpr Kernel KERNEL_MMA = KERNEL_VENDOR_1, KERNEL_HOPPER = KERNEL_VENDOR_2;

/* A kernel's argument: a policy, and the tensor maps with which TMA finds its operands. */
template <typename P> struct HopperArgs {
    P p;
    CUtensorMap a, b, c; /* c: what sums are added to, or what `store` reads */
    unsigned *counter;   /* exec_ticket: 0 at the start and at the end */
};

/* Registers of a thread that loads, and of one that multiplies. Three warpgroups may not ask for more
 * than LAUNCHED each, or one would wait for registers for ever. */
template <typename P> constexpr int GIVEN = !P::EIGHT ? 88 : P::SideA::GATHERS ? 72 : 56;
template <typename P> constexpr int TAKEN = !P::EIGHT ? 208 : P::SideA::GATHERS ? 216 : 224;

/* Where HopperShared stands, after the ring. */
template <typename P>
constexpr int SHARED_AT = ROOM_BYTES + 8 * WARP_ROOM + (P::EIGHT ? SCALES_BYTES : 0);

template <typename P> static inline size_t hopper_shared_bytes(int64_t experts)
{
    constexpr int COUNTS = P::SUMS && P::EIGHT ? 2 : 1;
    return 1024 + SHARED_AT<P> + sizeof(HopperShared) +
           (size_t)(COUNTS * (experts + 1)) * sizeof(int32_t);
}

/* The last terms of a sum over rows are followed by another expert's rows. In 8-bit operands zeros follow them. */
template <typename P> constexpr bool TAILS = P::SUMS && !P::EIGHT;

/* Does the whole loading warpgroup copy data by cp.async? If not, one of its threads starts all TMA
 * copies, and the others only store scales. */
template <typename P> constexpr bool COPIES = TAILS<P> || P::SideA::GATHERS || P::SideB::GATHERS;

/* Arrivals that complete a stage: of the thread that starts TMA copies, of each thread's own copies,
 * and of each warp that has stored scales. */
template <typename P>
constexpr int ARRIVALS = 1 + (COPIES<P> ? hopper::WARPGROUP : 0) +
                         (P::EIGHT ? hopper::WARPGROUP / 32 : 0);

template <typename P> static __device__ __forceinline__ void stage_close(uint32_t full)
{
    if (COPIES<P>) hopper::arrive_after_copies(full);
    if (P::EIGHT) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) hopper::arrive(full);
    }
}

/* Waits for the ticket of this block's tile number `turn`. All threads that need the ticket call it. */
static __device__ __forceinline__ const Ticket *ticket_wait(const HopperShared *s,
                                                            const Barriers &b, int turn)
{
    hopper::wait(Barriers::at(b.ready, turn % TICKETS), turn / TICKETS & 1);
    return &s->ticket[turn % TICKETS];
}

/* Prefetches into L2 what `store` reads for a tile, before the tile's sums are complete: ROWS x
 * COLS elements of the first half of c's columns (gates), and of the second half (ups). */
template <typename P, typename S>
static __device__ __forceinline__ void reads_prefetch(const HopperArgs<P> &args, const GroupTile &t)
{
    for (int half = 0; half < 2; half++)
        for (int col = 0; col < S::COLS; col += hopper::BLOCK)
            hopper::box_prefetch(&args.c, (int)(half * args.p.n + t.col) + col, (int)t.pooled, 0);
}

/* Loads what `store` reads for a tile into the ring, after the tile's terms: 128 bytes of gates and ups
 * a stage, and with 8 bits their scales. */
template <typename P, typename S>
static __device__ __forceinline__ void reads_load(const HopperArgs<P> &args, const GroupTile &t,
                                                  const Barriers &bar, uint32_t ring, RingPlace *at)
{
    constexpr int STEP = P::NARROW ? OPERAND_BLOCK : hopper::BLOCK;
    static_assert(2 * S::A_BYTES <= S::STAGE, "rows of gates and ups fit into a stage");
    for (int col = 0; col < S::COLS && (!P::NARROW || t.col + col < args.p.n); col += STEP) {
        uint32_t full = Barriers::at(bar.full, at->stage), room = ring + at->stage * S::STAGE;
        float2 scales;
        if constexpr (P::NARROW) scales = pre_scales(args.p, t, col);
        hopper::wait(Barriers::at(bar.empty, at->stage), at->turn);
        if (threadIdx.x == 0) {
            hopper::arrive_expect(full, 2 * S::A_BYTES);
            for (int half = 0; half < 2; half++)
                hopper::box_load(room + half * S::A_BYTES, &args.c,
                                 (int)(half * args.p.n + t.col) + col, (int)t.pooled, 0, full);
        }
        if constexpr (P::NARROW) pre_scales_put<S>(scales_room<S>(ring, at->stage), scales);
        stage_close<P>(full);
        at->template next<S::STAGES>();
    }
}

/* Takes the next number from the counter. Every block takes one number for each of its tiles and two beyond the last
 * tile. So the block that takes the very last number knows it, and resets the counter to 0. */
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
    if (!COPIES<P> && !P::EIGHT && threadIdx.x > 0)
        return; /* a thread that copies nothing must not wait at barriers */
    const P &p = args.p;
    Barriers bar(s);
    Loader<typename P::SideA, TAILS<P>, S::ROWS> a;
    Loader<typename P::SideB, TAILS<P>, S::COLS> b;
    ScalesLoader<P, S> scales;
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
            scales.open(p.a(t->tile), p.b(t->tile));
            steps = t->steps;
        }
        const Ticket *next = ticket_wait(s, bar, turn + 1);
        a.look_ahead(p.a(next->tile), (int)p.depth(next->tile));
        b.look_ahead(p.b(next->tile), (int)p.depth(next->tile));
        scales.look_ahead(p.a(next->tile));
        for (int ask = min(steps, (int)READS_AHEAD); steps > 0; steps--) {
            if constexpr (P::READS && !P::EIGHT) {
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
            scales.step(p, scales_room<S>(ring, at.stage));
            stage_close<P>(full);
            at.next<S::STAGES>();
        }
        if constexpr (P::READS && P::EIGHT) {
            if (turn >= 0) reads_load<P, S>(args, t->tile, bar, ring, &at);
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

/* Sums all terms of a tile. A stage is released when the products of the next stage have been
 * started. Returns the stage that is still being read. */
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

/* Before, each of four lanes l has columns 2 (l % 4) and the next of four pieces, at v[2 * piece].
 * After, lane l has all 8 columns of piece l % 4. */
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

/* Collects the N columns of unit u for the policy's `store`, from row half h of this lane's sums. */
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

/* Passes row i of the tile, of which this lane has a quarter, to the policy's `store`. What `store` reads is loaded
 * two units ahead; two units are one line of memory. If `store` overwrites what it reads, a store would otherwise wait
 * for a load of the same line (the kernel then takes 2.4 times as long). */
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

/* The same for all rows of a lane, where `store` reads what reads_load has loaded. */
template <typename P, typename S>
static __device__ __forceinline__ void
rows_finish(const P &p, const GroupTile &t, int first_row,
            const float (&sum)[S::BLOCKS][S::COLS / 2], const typename P::Row (&row)[S::BLOCKS * 2],
            const Barriers &bar, uint32_t ring, RingPlace *at)
{
    constexpr int N = P::UNIT, LINE = hopper::BLOCK / 4 / N;
    int lane = (int)threadIdx.x % 32, q = lane % 4;
    float dot[S::BLOCKS * 2] = {};
#pragma unroll
    for (int part = 0; part < S::COLS / hopper::BLOCK; part++) {
        uint32_t room = ring + at->stage * S::STAGE;
        hopper::wait(Barriers::at(bar.full, at->stage), at->turn);
#pragma unroll
        for (int r = 0; r < S::BLOCKS * 2; r++) {
            int i = first_row + r / 2 * hopper::BLOCK + r % 2 * 8 + lane / 4;
            uint32_t from = room + i * hopper::ROW_BYTES;
#pragma unroll
            for (int k = 0; k < LINE; k++) {
                float v[N];
                int u = part * LINE + k, chunk = k * 4 + q ^ i & 7;
                auto extra = P::extra_of(hopper::shared_get(from + (chunk << 4)),
                                         hopper::shared_get(from + S::A_BYTES + (chunk << 4)));
                unit_take<N>(sum[r / 2], r % 2, u, v);
                /* past the last column there are other numbers, or none */
                bool have = i < t.rows && t.col + (u * 4 + q) * N < p.n;
                if (have) dot[r] += p.store(t, i, (u * 4 + q) * N, v, extra, row[r]);
            }
        }
        __syncwarp(); /* all lanes have read the stage */
        if (lane == 0) hopper::arrive(Barriers::at(bar.empty, at->stage));
        at->template next<S::STAGES>();
    }
#pragma unroll
    for (int r = 0; r < S::BLOCKS * 2; r++) {
        int i = first_row + r / 2 * hopper::BLOCK + r % 2 * 8 + lane / 4;
        dot[r] += __shfl_xor_sync(0xFFFFFFFFu, dot[r], 1);
        dot[r] += __shfl_xor_sync(0xFFFFFFFFu, dot[r], 2);
        if (i < t.rows && q == 0) p.dot(t, i, t.col / S::COLS, dot[r]);
    }
}

/* Stores a warp's 16 rows unchanged, 64 columns at a time, through 2 KB of shared memory. */
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

/* Adds a warp's 16 rows of sums to memory, or overwrites memory with them, 8 rows x ADD_COLS columns at a time. The
 * warp has two buffers: the copy engine works on one while the other is filled. */
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

/* Stores this warp's sums of a tile, or what the policy makes of them. */
template <typename P, typename S>
static __device__ __forceinline__ void
tile_finish(const HopperArgs<P> &args, const GroupTile &t, int first_row,
            const float (&sum)[S::BLOCKS][S::COLS / 2], const typename P::Row (&row)[S::BLOCKS * 2],
            uint32_t mine, const Barriers &bar, uint32_t ring, RingPlace *at)
{
    if constexpr (P::NARROW && P::READS) {
        down_narrow<P, S>(args.p, t, first_row, sum[0], row, bar, ring, at);
    } else if constexpr (P::NARROW) {
        up_narrow<P, S>(args.p, t, first_row, sum[0]);
    } else if constexpr (P::READS && P::EIGHT) {
        rows_finish<P, S>(args.p, t, first_row, sum, row, bar, ring, at);
    } else {
#pragma unroll
        for (int i = 0; i < S::BLOCKS; i++) {
            int first = first_row + i * hopper::BLOCK;
            if constexpr (P::SUMS) {
                rows_add<P, S>(args, t, first, sum[i], mine);
            } else if constexpr (P::AS_IS) {
                rows_store<P, S>(args.p, t, first, sum[i], mine);
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++)
                    row_finish<P, S>(args.p, t, first + h * 8 + (int)threadIdx.x % 32 / 4, h,
                                     sum[i], row[i * 2 + h]);
            }
        }
    }
}

template <typename P, typename S>
static __device__ __forceinline__ void hopper_multiply(const HopperArgs<P> &args,
                                                       const HopperShared *s, uint32_t ring)
{
    static_assert(GIVEN<P> + 2 * TAKEN<P> <= 3 * LAUNCHED, "registers for all warpgroups");
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
        if constexpr (P::EIGHT) {
            scaled_sum<P, S>(p, sum, bar, ring, steps, first_row, &at);
            if (S::TURNS && lane == 0) hopper::arrive(Barriers::at(bar.filled, turn % 2));
        } else {
            int last = hopper_sum<P, S>(sum, bar, ring, steps, blocks, &at);
            if (S::TURNS && lane == 0) hopper::arrive(Barriers::at(bar.filled, turn % 2));
            hopper::products_wait<0>();
            if (lane == 0) hopper::arrive(Barriers::at(bar.empty, last));
        }
        tile_finish<P, S>(args, t, first_row, sum, row, mine, bar, ring, &at);
    }
    if (P::SUMS && lane == 0) hopper::boxes_wait<0>();
}

template <typename P, typename S>
static __device__ __forceinline__ void hopper_run(const HopperArgs<P> &args, unsigned char *room)
{
    uint32_t ring = (shared_address(room) + 1023) & ~1023u;
    HopperShared *s =
        reinterpret_cast<HopperShared *>(room + (ring - shared_address(room)) + SHARED_AT<P>);
    Barriers bar(s);
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            hopper::barrier_init(Barriers::at(bar.full, i), ARRIVALS<P>);
            hopper::barrier_init(Barriers::at(bar.empty, i), S::READERS);
        }
        for (int i = 0; i < TICKETS; i++) hopper::barrier_init(Barriers::at(bar.ready, i), 1);
        for (int i = 0; i < 2; i++) hopper::barrier_init(Barriers::at(bar.filled, i), 4);
        hopper::barriers_publish();
    }
    if (threadIdx.x < 32) tiles_count<P, S>(args.p, s->before);
    __syncthreads();
    if (threadIdx.x < hopper::WARPGROUP) {
        hopper::registers_give<GIVEN<P>>();
        hopper_load<P, S>(args, s, ring);
    } else {
        hopper::registers_take<TAKEN<P>>();
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

/* An upper bound of the number of tiles, for any groups. */
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
    size_t bytes = hopper_shared_bytes<P>(p.groups.experts);
    constexpr int A_BOX = P::SideA::ALONG ? S::ROWS : hopper::BLOCK;
    constexpr int B_BOX = P::SideB::ALONG ? S::COLS : hopper::BLOCK;
    if (!P::SideA::GATHERS) TRY(tensor_map(op, p.a_shape(), A_BOX, false, &args.a));
    if (!P::SideB::GATHERS) TRY(tensor_map(op, p.b_shape(), B_BOX, P::SideB::PAIRS, &args.b));
    if (P::SUMS || P::READS)
        TRY(tensor_map(op, p.c_shape(), P::SUMS ? ADD_ROWS : S::ROWS, false, &args.c));
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
    if (P::EIGHT) key.ldc = 8; /* choices.h: the bits of an element */
    return tuner_run_grouped(ex, op, &key, shapes, launches, sizeof...(S), &p);
}

template <typename P> static Status launch(struct Exec *ex, const char *op, const P &p)
{
    if (p.groups.bound == 0) return OK;
    if constexpr (P::KERNEL == KERNEL_HOPPER) {
        return hopper_product(ex, op, p, typename P::Shapes());
    } else if constexpr (P::KERNEL == KERNEL_MMA) {
        unsigned blocks = 0;
        TRY(tiles_grid(op, p, &blocks));
        TRY(kernel_shared(op, mma_kernel<P>, MMA_SHARED));
        mma_kernel<P><<<blocks, MMA_THREADS, MMA_SHARED, exec_stream(ex)>>>(p);
        return kernel_status(op);
    } else {
        return plain_launch(ex, op, p);
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

/* Calls run(KernelTypes()) for the types of a product that this kernel supports
 * (product_kernels.c). INDEXES: the policy can use an index of rows; indexed: this call has one. */
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

/* The same for 8-bit operands. A is e5m2 only if it is a gradient, not with FORWARD; B is e4m3. */
template <Kernel KERNEL, bool INDEXES, bool FORWARD, typename F>
static inline Status scaled_types(bool e5m2, bool f32, bool indexed, F run)
{
    if constexpr (KERNEL == KERNEL_PLAIN) {
        if (f32) return run(KernelTypes<EightBit, EightBit, float, KERNEL, true>());
        return run(KernelTypes<EightBit, EightBit, Bf16, KERNEL, true>());
    } else {
        auto formats = [&](auto index) {
            if constexpr (!FORWARD) {
                if (e5m2) return run(KernelTypes<E5M2Bits, E4M3Bits, Bf16, KERNEL, index>());
            }
            return run(KernelTypes<E4M3Bits, E4M3Bits, Bf16, KERNEL, index>());
        };
        if constexpr (INDEXES) {
            if (indexed) return formats(std::true_type());
        }
        return formats(std::false_type());
    }
}

/* Those of them that take 8-bit operands. */
#define GROUPED_VENDOR_SCALED_KERNELS(ENTRY) ENTRY(hopper, KERNEL_HOPPER)

/* Those that make 8-bit results, too. */
#define GROUPED_VENDOR_NARROW_KERNELS(ENTRY) ENTRY(hopper, KERNEL_HOPPER)

/* The kernels of this file, with their names in product_kernels.c. */
#define GROUPED_VENDOR_KERNELS(ENTRY)                                                              \
    ENTRY(mma, KERNEL_MMA)                                                                         \
    ENTRY(hopper, KERNEL_HOPPER)

} // namespace grouped

#endif
