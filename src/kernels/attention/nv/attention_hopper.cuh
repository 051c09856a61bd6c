/*
 * attention_hopper: what the kernels for attention in bf16 on Hopper share (kernels/attention/attention.h has
 * the definitions): how a block of threads gets work and operands, and how it hides scores and writes results.
 *
 * A block has three warpgroups. One loads operands (TMA) into rings; the other two, consumers, have 64 rows of a
 * tile each. They start products in turns: while one makes probabilities of its scores, the other multiplies.
 * Blocks take tiles from a counter until there are none. A kernel is compiled for widths of heads in blocks of 64
 * columns; columns that a head lacks are zeros.
 */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_HOPPER_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_HOPPER_CUH

#include "kernels/attention/nv/attention_parts.cuh"
#include "kernels/attention/nv/products.cuh"

namespace flash
{

enum {
    TILE = ATTENTION_TILE,
    HALF = ATTENTION_HALF,
    READERS = 8, /* warps of the consumers */
    BLOCK_THREADS = 3 * hopper::WARPGROUP,
    WARP_ROOM = 16 * hopper::ROW_BYTES, /* for a warp's results: 16 rows of 64 columns */
    SHARED_EXTRA = 2048                 /* barriers, and what aligns the operands */
};

/* A place in a ring of STAGES operands. */
template <int STAGES> struct Place {
    int stage = 0;
    uint32_t turn = 0;

    __device__ __forceinline__ void next()
    {
        if (++stage < STAGES) return;
        stage = 0, turn ^= 1;
    }
};

static __device__ __forceinline__ void warp_arrives(uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % WARP == 0) hopper::arrive(shared_address(barrier));
}

/* A stage is full when its bytes are there, and empty when all warps have read it. */
template <int STAGES> struct Ring {
    uint64_t full[STAGES], empty[STAGES];

    __device__ __forceinline__ void init()
    {
        for (int i = 0; i < STAGES; i++) {
            hopper::barrier_init(shared_address(full + i), 1);
            hopper::barrier_init(shared_address(empty + i), READERS);
        }
    }
    __device__ __forceinline__ void wait_empty(const Place<STAGES> &at)
    {
        hopper::wait(shared_address(empty + at.stage), at.turn ^ 1);
    }
    /* The loader announces bytes; gives the barrier at which they arrive. */
    __device__ __forceinline__ uint32_t claim(const Place<STAGES> &at, int bytes)
    {
        uint32_t barrier = shared_address(full + at.stage);
        wait_empty(at);
        hopper::arrive_expect(barrier, bytes);
        return barrier;
    }
    __device__ __forceinline__ void wait(const Place<STAGES> &at)
    {
        hopper::wait(shared_address(full + at.stage), at.turn);
    }
    __device__ __forceinline__ void release(const Place<STAGES> &at)
    {
        warp_arrives(empty + at.stage);
    }
};

/* A tile of 128 rows of a head, and what it sees or is seen by. b below 0: there is no job. place: on the desk. */
typedef struct Job {
    int b, head, tile, place;
    AttentionSpan span;
} Job;

/* What the loader hands to the consumers: jobs, and of each the operands that stay for all of it. With room for two
 * the next job's are loaded while this one runs. */
template <int JOBS> struct Desk {
    uint64_t full[JOBS], empty[JOBS];
    Job job[JOBS];

    __device__ __forceinline__ void init()
    {
        for (int i = 0; i < JOBS; i++) {
            hopper::barrier_init(shared_address(full + i), 1);
            hopper::barrier_init(shared_address(empty + i), READERS);
        }
    }
    /* Waits until the operands of the job before it at this place were read, puts a job there and announces bytes. */
    __device__ __forceinline__ uint32_t put(const Place<JOBS> &at, const Job &j, int bytes)
    {
        uint32_t barrier = shared_address(full + at.stage);
        hopper::wait(shared_address(empty + at.stage), at.turn ^ 1);
        job[at.stage] = j;
        job[at.stage].place = at.stage;
        if (j.b < 0)
            hopper::arrive(barrier);
        else
            hopper::arrive_expect(barrier, bytes);
        return barrier;
    }
    __device__ __forceinline__ Job get(const Place<JOBS> &at)
    {
        hopper::wait(shared_address(full + at.stage), at.turn);
        return job[at.stage];
    }
    __device__ __forceinline__ void release(const Job &j) { warp_arrives(empty + place_of(j)); }
    /* Where there is one place, its number takes no register. */
    static __device__ __forceinline__ int place_of(const Job &j) { return JOBS == 1 ? 0 : j.place; }
};

/* What a block that walks keys shares. */
template <int JOBS_, int STAGES_> struct KvShared {
    static constexpr int JOBS = JOBS_, STAGES = STAGES_;
    Desk<JOBS> desk;
    Ring<STAGES> k, v;

    __device__ __forceinline__ void init()
    {
        desk.init();
        k.init();
        v.init();
    }
};

/* Makes the barriers ready; gives the place of operands, a multiple of 1,024 bytes. */
template <typename S> static __device__ __forceinline__ uint32_t block_begin(S *s)
{
    if (threadIdx.x == 0) {
        s->init();
        hopper::barriers_publish();
    }
    __syncthreads();
    return (shared_address(s + 1) + 1023) & ~1023u;
}

/* The number of another job, in lane 0 of the loader. The counter is 0 again once each block has drawn a number
 * that is past the jobs. */
static __device__ __forceinline__ unsigned draw_number(unsigned *ticket, unsigned jobs)
{
    return threadIdx.x == 0 ? atomicInc(ticket, jobs + gridDim.x - 1) : 0;
}

/* Loads operands of jobs until there are none. By one warp: find(number) is of all lanes, load(job, place on the desk)
 * of one, and gets a last job that is none. A job that is drawn earlier waits for this block while others end:
 * 2 to 7 % slower. */
template <int JOBS, typename Find, typename Load>
static __device__ __forceinline__ void load_jobs(unsigned *ticket, unsigned jobs, Find find,
                                                 Load load)
{
    for (Place<JOBS> desk;; desk.next()) {
        Job j = find(lane_get(draw_number(ticket, jobs), 0));
        if (threadIdx.x == 0) load(j, desk);
        if (j.b < 0) return;
    }
}

/* A head's queries, those that see most keys first; heads that share keys are neighbours. */
static __device__ __forceinline__ Job queries_job(const AttentionTiles &t, int heads, unsigned jobs,
                                                  unsigned number)
{
    Job j = {};
    unsigned head = number / (unsigned)t.q_tiles;
    j.b = -1;
    if (number >= jobs) return j;
    j.b = (int)head / heads, j.head = (int)head % heads;
    j.tile = attention_q_tile(t, j.b, (int)(number % (unsigned)t.q_tiles));
    j.span = attention_keys_of(t, j.b, j.tile);
    return j;
}

/* Loads BLOCKS times 64 columns of ROWS rows of a head. */
template <int BLOCKS, int ROWS>
static __device__ __forceinline__ void load_head(uint32_t to, const CUtensorMap *map, int head,
                                                 int row, int b, uint32_t barrier)
{
#pragma unroll
    for (int c = 0; c < BLOCKS; c++)
        hopper::head_load(to + c * ROWS * hopper::ROW_BYTES, map, c * hopper::BLOCK, head, row, b,
                          barrier);
}

/* c = A B^T over D columns, of which blocks have A_ROWS and B_ROWS rows. */
template <int D, int A_ROWS, int B_ROWS, int S>
static __device__ __forceinline__ void multiply_rows(float (&c)[S], uint32_t a, uint32_t b)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        hopper::product<false>(
            c, hopper::operand_at(a + i / 4 * A_ROWS * hopper::ROW_BYTES + i % 4 * 32),
            hopper::operand_at(b + i / 4 * B_ROWS * hopper::ROW_BYTES + i % 4 * 32), i);
    hopper::products_close();
}

/* c += P B, where P is in registers: its columns are the ROWS rows of B. */
template <int ROWS, int S>
static __device__ __forceinline__ void multiply_packed(float (&c)[S], const uint32_t (&p)[ROWS / 4],
                                                       uint32_t b)
{
#pragma unroll
    for (int i = 0; i < ROWS / 16; i++)
        hopper::product<true>(
            c, p + 4 * i,
            hopper::operand_at(b + i * 16 * hopper::ROW_BYTES, ROWS * hopper::ROW_BYTES), 1);
    hopper::products_close();
}

/* Sums as an operand in registers. */
template <int S>
static __device__ __forceinline__ void pack(const float (&s)[S], uint32_t (&p)[S / 2])
{
#pragma unroll
    for (int k = 0; k < S / 2; k++) {
        __nv_bfloat162 two = __floats2bfloat162_rn(s[2 * k], s[2 * k + 1]);
        memcpy(&p[k], &two, sizeof two);
    }
}

template <int S> static __device__ __forceinline__ void clear(float (&c)[S])
{
#pragma unroll
    for (int k = 0; k < S; k++) c[k] = 0;
}

/* A thread has two rows of each result. */
template <int S>
static __device__ __forceinline__ void scale_rows(const float (&by)[2], float (&o)[S])
{
#pragma unroll
    for (int k = 0; k < S; k++) o[k] *= by[k / 2 % 2];
}

/* Which consumer this is: 0 or 1. The same in a warp, which the compiler cannot see from threadIdx. */
static __device__ __forceinline__ int consumer_of()
{
    return lane_get((int)threadIdx.x / hopper::WARPGROUP, 0) - 1;
}

/* A consumer starts products in its turn. The first turn is consumer 0's, which also takes the last one, so that
 * both have taken all that were given. */
static __device__ __forceinline__ void turn_take(int consumer)
{
    asm volatile("bar.sync %0, 256;" ::"r"(1 + consumer) : "memory");
}
static __device__ __forceinline__ void turn_give(int consumer)
{
    asm volatile("bar.arrive %0, 256;" ::"r"(2 - consumer) : "memory");
}
static __device__ __forceinline__ void turns_begin(int consumer)
{
    if (consumer == 1) turn_give(1);
}
static __device__ __forceinline__ void turns_end(int consumer)
{
    if (consumer == 0) turn_take(0);
}

/* A consumer's jobs, one after the other. work(job, consumer, place in the ring) */
template <typename S, typename F> static __device__ __forceinline__ void consume(S *s, F work)
{
    int consumer = consumer_of();
    Place<S::JOBS> desk;
    Place<S::STAGES> at;
    turns_begin(consumer);
    for (;; desk.next()) {
        Job j = s->desk.get(desk);
        if (j.b < 0) break;
        work(j, consumer, at);
    }
    turns_end(consumer);
}

/* One warp of the first warpgroup loads, the other two warpgroups work. LOADS, WORKS: registers of their threads.
 * load(shared part, operands); work(shared part, operands, job, consumer, place in the ring) */
template <typename S, int LOADS, int WORKS, typename Load, typename Work>
static __device__ __forceinline__ void block_run(unsigned char *memory, Load load, Work work)
{
    S *s = (S *)memory;
    uint32_t room = block_begin(s);
    if (threadIdx.x < hopper::WARPGROUP) {
        hopper::registers_give<LOADS>();
        if (threadIdx.x < WARP) load(s, room);
        return;
    }
    hopper::registers_take<WORKS>();
    consume(s, [&](const Job &j, int consumer, Place<S::STAGES> &at) {
        work(s, room, j, consumer, at);
    });
}

/* A thread has rows own_row() and own_row() + 8 of a tile, and of each 8 columns own_column() and the next. */
static __device__ __forceinline__ int own_row()
{
    return (int)(threadIdx.x - hopper::WARPGROUP) / WARP * 16 + (int)threadIdx.x % WARP / 4;
}
static __device__ __forceinline__ int own_column() { return (int)threadIdx.x % 4 * 2; }

/* What a thread's two queries see. All rows of the warp see keys from hidden_before to hidden_from. */
typedef struct Seen {
    int first[2], last[2], hidden_before, hidden_from;
} Seen;

static __device__ __forceinline__ Seen seen_by(const AttentionTiles &t, int b, int query)
{
    Seen s;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        s.last[i] = attention_last_key(t, query + 8 * i);
        s.first[i] = s.last[i] < 0 ? 0 : attention_tile_first(t, b, query + 8 * i);
    }
    s.hidden_before = __reduce_max_sync(ALL_LANES, max(s.first[0], s.first[1]));
    s.hidden_from = __reduce_min_sync(ALL_LANES, min(s.last[0], s.last[1])) + 1;
    return s;
}

/* The largest of a row's scores, in all of its four lanes. Chains are short, as a warp has nothing
 * else to do while it waits for a result. */
template <int S> static __device__ __forceinline__ float row_most(const float (&s)[S], int i)
{
    float most[4];
#pragma unroll
    for (int k = 0; k < 4; k++) most[k] = fmaxf(s[4 * k + 2 * i], s[4 * k + 2 * i + 1]);
#pragma unroll
    for (int k = 4; k < S / 4; k++)
        most[k % 4] = fmaxf(most[k % 4], fmaxf(s[4 * k + 2 * i], s[4 * k + 2 * i + 1]));
    float all = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3]));
    all = fmaxf(all, lane_get_xor(all, 1));
    return fmaxf(all, lane_get_xor(all, 2));
}

/* Hides the scores of keys that a query does not see, of 2 S keys from `key` on. */
template <int S> static __device__ __forceinline__ void hide(const Seen &r, int key, float (&s)[S])
{
    if (key >= r.hidden_before && key + 2 * S <= r.hidden_from) return;
    key += own_column();
#pragma unroll
    for (int k = 0; k < S; k++) {
        int at = key + k / 4 * 8 + k % 2, i = k / 2 % 2;
        if (at < r.first[i] || at > r.last[i]) s[k] = -INFINITY;
    }
}

/* Writes a warp's 16 rows from `row` on through its room, so that whole lines go out. end: rows that exist. */
template <int S>
static __device__ __forceinline__ void store_rows(const Results &r, const Job &j, int row, int end,
                                                  uint32_t room, const float (&c)[S])
{
    int lane = (int)threadIdx.x % WARP, chunk = lane % 8;
    int64_t stride = (int64_t)r.heads * r.width;
    Bf16 *to = r.at + (((int64_t)j.b * r.rows + row) * r.heads + j.head) * r.width;
#pragma unroll
    for (int block = 0; block < S / 32; block++) {
        int column = block * hopper::BLOCK + chunk * 8;
#pragma unroll
        for (int k = 0; k < 4; k++)
            hopper::results_put(room, k, c + block * 32 + 8 * k, c + block * 32 + 8 * k + 4);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int at = i * 4 + lane / 8;
            uint4 v = hopper::shared_get(room + at * hopper::ROW_BYTES + ((chunk ^ (at & 7)) << 4));
            if (row + at < end && column < r.width) *(uint4 *)(to + at * stride + column) = v;
        }
        __syncwarp();
    }
}

/* A warp's room in what follows the operands. */
static __device__ __forceinline__ uint32_t warp_room(uint32_t rooms)
{
    return rooms + ((int)threadIdx.x - hopper::WARPGROUP) / WARP * WARP_ROOM;
}

} // namespace flash

#endif
