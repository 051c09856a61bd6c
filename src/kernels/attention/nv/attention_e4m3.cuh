/*
 * attention_e4m3: the kernel for the 8-bit forward of attention on Hopper (kernels/attention/attention.h has the
 * definition). attention_e4m3_cast.cuh first writes k and v as e4m3 into the workspace; queries are
 * read once and quantised here.
 *
 * A block of threads has 128 queries of one head and walks their keys, 128 at a time. One warpgroup
 * loads them (TMA). Two others have 64 queries each and take turns, as in FlashAttention-3
 * (arXiv:2407.08608): while one computes p, the matrix units work for the other. Scores and p stay in
 * registers: the order of keys in CastTile makes a thread's scores its operands of p v.
 *
 *     s = q k^T,  f = scale_q scale_k scale log2 e,  m' = max(m, f max s),  p = 2^(f s - m' + 8)
 *     o' = o 2^(m - m') scale_v / scale_v' + p v',   where values are o scale_v' / sum
 *
 * o is thus kept in units of the current block's scale of v, which saves a product. wgmma adds 8-bit
 * products with about 14 bits, so p v of a block has sums of its own, which are added to o in f32.
 *
 * Keys that a query does not see are hidden one by one in blocks that some query of a warp does not
 * see whole: at the diagonal, and where documents, windows or chunks begin. Blocks that no query
 * sees are not loaded. Blocks of threads take jobs from a counter, head by head, so that keys stay in
 * L2; a head's last queries, which see most keys, come first. The operands of the next job are loaded
 * while the last one ends.
 *
 * Measured on an H200, 4 sequences of 4,096 tokens, causal, casts included: 679 TFLOP/s with 16 heads
 * of 192 and 128, 642 with 32 heads of 128. The exponentials bound it, not the products. Starting
 * q k^T before p v of the block before it: 657 and 594. Without turns: 686 and 631. An eighth of the
 * exponentials as polynomials: no gain. Results written 4 bytes a thread: 505.
 */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_E4M3_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_E4M3_CUH

#include "kernels/attention/nv/attention_e4m3_cast.cuh"
#include "kernels/attention/nv/attention_hopper.cuh"

extern "C" {
#include "kernels/attention/attention.h"
#include "kernels/core/operand.h"
}

namespace e4m3
{

enum {
    BOX = TILE * hopper::ROW_BYTES,
    STAGES = 3,
    BLOCK_THREADS = 3 * hopper::WARPGROUP,
    WARP_ROOM = 2048 /* bytes, for results of a warp */
};
static const float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

typedef struct Args {
    CUtensorMap q, k, v;
    const float2 *scales; /* of each tile of keys: of k, of v */
    Bf16 *o;
    float *lse;
    const int32_t *doc;
    int64_t Tq, Tk, q_tiles, k_tiles, H, G, window, chunk;
    float scale;
    unsigned jobs, *ticket; /* ticket: gpu_exec.h */
} Args;

/* Shared memory: barriers, then operands from a multiple of 1024 bytes on. CB: pieces of 128 bytes
 * of a row of q and k; the last one may be half empty. GIVEN: q in bf16. A warp's results take the
 * place of its own q. */
template <int DK> struct Room {
    static constexpr int CB = (DK + hopper::ROW_BYTES - 1) / hopper::ROW_BYTES;
    static constexpr int PACKS = DK / 64; /* boxes of q in bf16; packs of a row for each lane */
    static constexpr int STEPS = DK / 32; /* instructions of q k^T */
    static constexpr int GIVEN = CB * BOX, K = GIVEN + PACKS * BOX, V = K + STAGES * CB * BOX;
    static constexpr int BYTES = V + STAGES * BOX;
};

/* 128 queries of a head, and the tiles [begin, end) of keys that they see. */
typedef struct Job {
    int b, h, g, query; /* g: the matrix of keys; query: the first one, below 0: there is no job */
    int begin, end;
} Job;

typedef struct Shared {
    uint64_t q_full, q_empty, k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
    Job job; /* the one whose q is loaded */
    float q_scale[TILE];
    int first[TILE]; /* the first key that a query sees */
} Shared;

/* A place in the ring of operands. */
typedef struct Place {
    int stage;
    uint32_t turn;

    __device__ __forceinline__ void next()
    {
        if (++stage < STAGES) return;
        stage = 0, turn ^= 1;
    }
} Place;

static __device__ __forceinline__ uint32_t barrier_of(uint64_t *at, int i)
{
    return shared_address(at + i);
}

/* The first key that a query sees. */
static __device__ __forceinline__ int first_key(const Args &a, int b, int64_t query)
{
    int64_t doc = a.doc == NULL ? 0 : a.doc[b * a.Tq + query];
    return (int)attention_first_seen(a.window, a.chunk, doc, query + a.Tk - a.Tq);
}

/* Job `number`, computed by a warp. */
static __device__ __forceinline__ Job job_of(const Args &a, unsigned number)
{
    Job j = {};
    unsigned tiles = (unsigned)a.q_tiles, head = number / tiles;
    j.query = -1;
    if (number >= a.jobs) return j;
    j.b = (int)(head / a.H), j.h = (int)(head % a.H);
    j.g = (int)(j.b * a.G + j.h * a.G / a.H);
    j.query = (int)(tiles - 1 - number % tiles) * TILE;
    int64_t end = min((int64_t)j.query + TILE, a.Tq);
    j.end = (int)((end + a.Tk - a.Tq + TILE - 1) / TILE);
    if (a.doc == NULL && a.window == 0 && a.chunk == 0) return j;
    int first = INT32_MAX;
    for (int64_t i = j.query + threadIdx.x; i < end; i += 32)
        first = min(first, first_key(a, j.b, i));
    j.begin = __reduce_min_sync(ALL_LANES, first) / TILE;
    return j;
}

/* Loads the operands of a job. */
template <int DK>
static __device__ __forceinline__ void load_job(const Args &a, const Job &j, Shared *s,
                                                uint32_t room, Place &at)
{
    typedef Room<DK> R;
    uint32_t q = shared_address(&s->q_full);
    hopper::arrive_expect(q, R::PACKS * BOX);
    for (int c = 0; c < R::PACKS; c++)
        hopper::box_load(room + R::GIVEN + c * BOX, &a.q, j.h * DK + c * hopper::BLOCK, j.query,
                         j.b, q);
    for (int tile = j.begin; tile < j.end; tile++, at.next()) {
        uint32_t full = barrier_of(s->k_full, at.stage);
        hopper::wait(barrier_of(s->k_empty, at.stage), at.turn ^ 1);
        hopper::arrive_expect(full, R::CB * BOX);
        for (int c = 0; c < R::CB; c++)
            hopper::box_load(room + R::K + (at.stage * R::CB + c) * BOX, &a.k,
                             c * hopper::ROW_BYTES, tile * TILE, j.g, full);
        full = barrier_of(s->v_full, at.stage);
        hopper::wait(barrier_of(s->v_empty, at.stage), at.turn ^ 1);
        hopper::arrive_expect(full, BOX);
        hopper::box_load(room + R::V + at.stage * BOX, &a.v, tile * TILE, 0, j.g, full);
    }
}

/* One warp takes jobs until there are none. The counter is 0 again behind the last block. */
template <int DK>
static __device__ __forceinline__ void load(const Args &a, Shared *s, uint32_t room)
{
    Place at = {};
    for (uint32_t turn = 1;; turn ^= 1) {
        unsigned number = 0;
        if (threadIdx.x == 0) number = atomicInc(a.ticket, a.jobs + gridDim.x - 1);
        Job j = job_of(a, lane_get(number, 0));
        if (threadIdx.x == 0) {
            hopper::wait(shared_address(&s->q_empty), turn);
            s->job = j;
            if (j.query < 0)
                hopper::arrive(shared_address(&s->q_full));
            else
                load_job<DK>(a, j, s, room, at);
        }
        if (j.query < 0) return;
    }
}

/* A thread's two rows, and its part of a warpgroup's results. */
typedef struct Rows {
    int query;                      /* of the sequence: the first row; the other is 8 below */
    int row;                        /* of the job */
    int hidden_before, hidden_from; /* keys between them are seen by all rows of the warp */
    float factor[2];                /* of scores, without the scale of k */
    float max[2], sum[2], kept[2];  /* kept: what o is multiplied by before the next p v */
} Rows;

/* The last key that a query sees; queries past the end see none. */
static __device__ __forceinline__ int last_key(const Args &a, int query)
{
    return query < a.Tq ? query + (int)(a.Tk - a.Tq) : -1;
}

static __device__ __forceinline__ Rows rows_of(const Args &a, const Job &j, Shared *sh)
{
    Rows r = {};
    int first[2];
    r.row = (int)(threadIdx.x - hopper::WARPGROUP) / 32 * 16 + (int)threadIdx.x % 32 / 4;
    r.query = j.query + r.row;
    for (int i = 0; i < 2; i++) {
        int query = r.query + 8 * i;
        first[i] = query < a.Tq ? first_key(a, j.b, query) : 0;
        sh->first[r.row + 8 * i] = first[i]; /* the lanes of a row write the same */
        r.factor[i] = sh->q_scale[r.row + 8 * i] * a.scale * log2_e;
        r.max[i] = -INFINITY;
    }
    __syncwarp();
    int last = min(last_key(a, r.query), last_key(a, r.query + 8));
    r.hidden_before = __reduce_max_sync(ALL_LANES, max(first[0], first[1]));
    r.hidden_from = __reduce_min_sync(ALL_LANES, last) + 1;
    return r;
}

template <int DK>
static __device__ __forceinline__ void multiply_scores(float (&s)[64], uint32_t q, uint32_t k)
{
    hopper::products_begin();
#pragma unroll
    for (int i = 0; i < Room<DK>::STEPS; i++) {
        uint32_t at = i / 4 * BOX + i % 4 * 32;
        hopper::multiply_add_8<false>(s, hopper::operand_at(q + at), hopper::operand_at(k + at), i);
    }
    hopper::products_close();
}

static __device__ __forceinline__ void multiply_values(float (&part)[64], const uint32_t (&p)[16],
                                                       uint32_t v)
{
    hopper::products_begin();
#pragma unroll
    for (int i = 0; i < 4; i++)
        hopper::multiply_add_8(part, p + 4 * i, hopper::operand_at(v + i * 32), i);
    hopper::products_close();
}

/* Hides the scores of keys that are not seen. Row i of a thread has elements 4 c + 2 i and the next
 * one, of columns 8 c + 2 (lane % 4). */
static __device__ __forceinline__ void hide(const Args &a, const Shared *sh, const Rows &r,
                                            int tile, float (&s)[64])
{
    if (tile * TILE >= r.hidden_before && (tile + 1) * TILE <= r.hidden_from) return;
    int key = tile * TILE + (int)threadIdx.x % 4 * 2;
    int first[2] = { sh->first[r.row], sh->first[r.row + 8] };
    int last[2] = { last_key(a, r.query), last_key(a, r.query + 8) };
#pragma unroll
    for (int k = 0; k < 64; k++) {
        int at = key + k / 4 * 8 + k % 2, i = k / 2 % 2;
        if (at < first[i] || at > last[i]) s[k] = -INFINITY;
    }
}

/* Turns scores into 2^8 p. v_change: the last block's scale of v over this one's. */
static __device__ __forceinline__ void exponentials(Rows &r, float k_scale, float v_change,
                                                    float (&s)[64])
{
    float factor[2], shift[2], sum[4] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        factor[i] = r.factor[i] * k_scale;
        float most = fmaxf(r.max[i], flash::row_most(s, i) * factor[i]);
        float down = most == -INFINITY ? 0 : -most; /* a row that has seen no key */
        float kept = fast_exp2(r.max[i] + down);
        shift[i] = 8 + down;
        r.sum[i] *= kept;
        r.kept[i] = kept * v_change;
        r.max[i] = most;
    }
#pragma unroll
    for (int k = 0; k < 64; k++) {
        int i = k / 2 % 2;
        s[k] = fast_exp2(fmaf(s[k], factor[i], shift[i]));
        sum[k % 4] += s[k];
    }
    r.sum[0] += sum[0] + sum[1];
    r.sum[1] += sum[2] + sum[3];
}

/* p as operands: of 32 keys at a time, four registers in the order of multiply_add_8. */
static __device__ __forceinline__ void pack(const float (&s)[64], uint32_t (&p)[16])
{
#pragma unroll
    for (int k = 0; k < 16; k++) {
        const float *from = s + k / 4 * 16 + k % 4 / 2 * 8 + k % 2 * 2;
        p[k] = pair_to_e4m3(from[0], from[1]) | pair_to_e4m3(from[4], from[5]) << 16;
    }
}

static __device__ __forceinline__ void add_part(const float (&kept)[2], const float (&part)[64],
                                                float (&o)[64])
{
#pragma unroll
    for (int k = 0; k < 64; k++) o[k] = fmaf(o[k], kept[k / 2 % 2], part[k]);
}

/* Through 16 rows x 128 bytes of shared memory of each warp, so that whole lines are written. room:
 * of the warpgroup. */
static __device__ __forceinline__ void store(const Args &a, const Job &j, Rows &r, float v_scale,
                                             uint32_t room, float (&o)[64])
{
    int lane = (int)threadIdx.x % 32;
    int64_t first = r.query - lane / 4;
    uint4 *to = (uint4 *)(a.o + ((j.b * a.Tq + first) * a.H + j.h) * TILE);
    room += threadIdx.x % hopper::WARPGROUP / 32 * WARP_ROOM;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = r.sum[i];
        sum += lane_get_xor(sum, 1);
        sum += lane_get_xor(sum, 2);
        factor[i] = sum == 0 ? 0 : v_scale / sum;
        if (lane % 4 == 0 && r.query + 8 * i < a.Tq)
            a.lse[(j.b * a.H + j.h) * a.Tq + r.query + 8 * i] = (r.max[i] - 8) * ln_2 + logf(sum);
    }
#pragma unroll
    for (int k = 0; k < 64; k++) o[k] *= factor[k / 2 % 2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            hopper::results_put(room, k, o + half * 32 + 8 * k, o + half * 32 + 8 * k + 4);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = i * 4 + lane / 8, chunk = lane % 8;
            uint4 v =
                hopper::shared_get(room + row * hopper::ROW_BYTES + ((chunk ^ (row & 7)) << 4));
            if (first + row < a.Tq) to[row * a.H * 16 + half * 8 + chunk] = v;
        }
        __syncwarp();
    }
}

/* A warp has read an operand. */
static __device__ __forceinline__ void release(uint64_t *barriers, int stage)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) hopper::arrive(barrier_of(barriers, stage));
}

/* Quantises a warp's 16 rows of q; eight lanes share a row, as in CastTile. No other warp reads or
 * writes these rows, and flash::turn_take makes them known to the products. */
template <int DK> static __device__ __forceinline__ void quantise_queries(Shared *sh, uint32_t room)
{
    typedef Room<DK> R;
    int lane = (int)threadIdx.x % 32, chunk = lane % LANES;
#pragma unroll
    for (int pass = 0; pass < 4; pass++) {
        int row = (int)(threadIdx.x - hopper::WARPGROUP) / 32 * 16 + pass * 4 + lane / LANES;
        uint32_t line = room + row * hopper::ROW_BYTES, most = 0;
        uint4 pack[R::PACKS];
#pragma unroll
        for (int k = 0; k < R::PACKS; k++) {
            pack[k] = hopper::shared_get(line + R::GIVEN + k * BOX + ((chunk ^ (row & 7)) << 4));
            most = max(most, pack_most(pack[k]));
        }
        float scale = scale_of(row_lanes_most(most));
        if (chunk == 0) sh->q_scale[row] = scale;
#pragma unroll
        for (int k = 0; k < R::PACKS; k++) {
            int at = k % 2 * 64 + chunk * 8; /* in a piece of 128 columns */
            hopper::shared_put(line + k / 2 * BOX + ((at / 16 ^ (row & 7)) << 4) + at % 16,
                               pack_codes(pack[k], fast_reciprocal(scale)));
        }
    }
    hopper::writes_to_products();
}

template <int DK>
static __device__ __forceinline__ void last_values(Shared *sh, uint32_t room, int group,
                                                   const Place &at, const uint32_t (&p)[16],
                                                   float (&part)[64])
{
    hopper::wait(barrier_of(sh->v_full, at.stage), at.turn);
    flash::turn_take(group);
    multiply_values(part, p, room + Room<DK>::V + at.stage * BOX);
    flash::turn_give(group);
    hopper::products_wait<0>();
    hopper::sums_ready(part);
    release(sh->v_empty, at.stage);
}

template <int DK>
static __device__ __forceinline__ void attend(const Args &a, const Job &j, Shared *sh,
                                              uint32_t room, int group, Place &at)
{
    typedef Room<DK> R;
    uint32_t p[16], q = room + group * hopper::BLOCK_BYTES;
    float s[64], part[64], o[64];
    const float2 *scales = a.scales + j.g * a.k_tiles;
    float2 scale = scales[j.begin];
#pragma unroll
    for (int k = 0; k < 64; k++) o[k] = 0;
    quantise_queries<DK>(sh, room);
    release(&sh->q_empty, 0);
    hopper::wait(barrier_of(sh->k_full, at.stage), at.turn);
    flash::turn_take(group);
    multiply_scores<DK>(s, q, room + R::K + at.stage * R::CB * BOX);
    flash::turn_give(group);
    Rows r = rows_of(a, j, sh);
    hopper::products_wait<0>();
    hopper::sums_ready(s);
    release(sh->k_empty, at.stage);
    hide(a, sh, r, j.begin, s);
    exponentials(r, scale.x, 1, s);
    pack(s, p);
    for (int tile = j.begin + 1; tile < j.end; tile++) {
        Place before = at;
        at.next();
        float2 next = scales[tile];
        hopper::wait(barrier_of(sh->k_full, at.stage), at.turn);
        hopper::wait(barrier_of(sh->v_full, before.stage), before.turn);
        flash::turn_take(group);
        multiply_values(part, p, room + R::V + before.stage * BOX);
        multiply_scores<DK>(s, q, room + R::K + at.stage * R::CB * BOX);
        flash::turn_give(group);
        hopper::products_wait<1>();
        hopper::sums_ready(part);
        release(sh->v_empty, before.stage);
        add_part(r.kept, part, o);
        hopper::products_wait<0>();
        hopper::sums_ready(s);
        release(sh->k_empty, at.stage);
        hide(a, sh, r, tile, s);
        exponentials(r, next.x, scale.y * fast_reciprocal(next.y), s);
        pack(s, p);
        scale = next;
    }
    last_values<DK>(sh, room, group, at, p, part);
    at.next();
    add_part(r.kept, part, o);
    store(a, j, r, scale.y, q, o);
}

template <int DK>
static __device__ __forceinline__ void multiply(const Args &a, Shared *s, uint32_t room)
{
    int group = (int)threadIdx.x / hopper::WARPGROUP - 1;
    Place at = {};
    if (group == 1) flash::turn_give(1);
    for (uint32_t turn = 0;; turn ^= 1) {
        hopper::wait(shared_address(&s->q_full), turn);
        Job j = s->job;
        if (j.query < 0) return;
        attend<DK>(a, j, s, room, group, at);
    }
}

template <int DK> static __device__ __forceinline__ void run(const Args &a, unsigned char *memory)
{
    enum { WARPS = 8 }; /* that read operands */
    Shared *s = (Shared *)memory;
    uint32_t room = (shared_address(memory + sizeof(Shared)) + 1023) & ~1023u;
    if (threadIdx.x == 0) {
        hopper::barrier_init(shared_address(&s->q_full), 1);
        hopper::barrier_init(shared_address(&s->q_empty), WARPS);
        for (int i = 0; i < STAGES; i++) {
            hopper::barrier_init(barrier_of(s->k_full, i), 1);
            hopper::barrier_init(barrier_of(s->v_full, i), 1);
            hopper::barrier_init(barrier_of(s->k_empty, i), WARPS);
            hopper::barrier_init(barrier_of(s->v_empty, i), WARPS);
        }
        hopper::barriers_publish();
    }
    __syncthreads();
    if (threadIdx.x < hopper::WARPGROUP) {
        hopper::registers_give<24>();
        if (threadIdx.x < 32) load<DK>(a, s, room);
    } else {
        hopper::registers_take<240>();
        multiply<DK>(a, s, room);
    }
}

template <int DK>
static __global__ __launch_bounds__(BLOCK_THREADS, 1) void kernel(const __grid_constant__ Args a)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    if constexpr (hopper::COMPILED) run<DK>(a, memory);
}

} // namespace e4m3

#endif
