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
 * Keys that a query does not see are hidden one by one in blocks that some query of a warp does not see whole: at the
 * diagonal, and where documents, windows or chunks begin. Blocks that no query sees are not loaded. Blocks of threads
 * take jobs from a counter, head by head, so that keys stay in L2; a head's queries that see most keys come first. The
 * operands of the next job are loaded while the last one ends. The exponentials bound it, not the products.
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

enum { BOX = TILE * hopper::ROW_BYTES, STAGES = 3 };
using flash::Job, flash::ln_2, flash::log2_e;
typedef flash::Place<STAGES> Place;

typedef struct Args {
    CUtensorMap q, k, v;
    AttentionTiles tiles;
    const float2 *scales; /* of each tile of keys: of k, of v */
    flash::Results o;
    float *lse;
    int H, share, k_tiles; /* share: heads that share keys */
    float scale;
    unsigned jobs, *ticket; /* ticket: gpu_exec.h */
} Args;

/* Shared memory: barriers, then operands from a multiple of 1024 bytes on. CB: pieces of 128 bytes of a row of q and
 * k; the last one may be half empty. GIVEN: q in bf16. A warp's results take the place of its own q. */
template <int DK> struct Room {
    static constexpr int CB = (DK + hopper::ROW_BYTES - 1) / hopper::ROW_BYTES;
    static constexpr int PACKS = DK / 64; /* boxes of q in bf16; packs of a row for each lane */
    static constexpr int STEPS = DK / 32; /* instructions of q k^T */
    static constexpr int GIVEN = CB * BOX, K = GIVEN + PACKS * BOX, V = K + STAGES * CB * BOX;
    static constexpr int BYTES = V + STAGES * BOX;
};

typedef struct Shared {
    static constexpr int JOBS = 1, STAGES = e4m3::STAGES;
    flash::Desk<JOBS> desk;
    flash::Ring<STAGES> k, v;
    float q_scale[TILE];
    int first[TILE]; /* the first key that a query sees */

    __device__ __forceinline__ void init()
    {
        desk.init();
        k.init();
        v.init();
    }
} Shared;

/* The matrix of a head's keys, and of its values. */
static __device__ __forceinline__ int keys_of(const Args &a, const Job &j)
{
    return (j.b * a.H + j.head) / a.share;
}

/* Loads the operands of jobs until there are none. By one warp. */
template <int DK>
static __device__ __forceinline__ void load(const Args &a, Shared *s, uint32_t room)
{
    typedef Room<DK> R;
    Place at;
    auto find = [&](unsigned number) { return flash::queries_job(a.tiles, a.H, a.jobs, number); };
    flash::load_jobs<1>(a.ticket, a.jobs, find, [&](const Job &j, const flash::Place<1> &desk) {
        uint32_t q = s->desk.put(desk, j, R::PACKS * BOX);
        for (int c = 0; c < R::PACKS && j.b >= 0; c++)
            hopper::box_load(room + R::GIVEN + c * BOX, &a.q, j.head * DK + c * hopper::BLOCK,
                             j.tile * TILE, j.b, q);
        for (int key = j.span.begin / TILE * TILE; key < j.span.end; key += TILE, at.next()) {
            uint32_t full = s->k.claim(at, R::CB * BOX);
            for (int c = 0; c < R::CB; c++)
                hopper::box_load(room + R::K + (at.stage * R::CB + c) * BOX, &a.k,
                                 c * hopper::ROW_BYTES, key, keys_of(a, j), full);
            full = s->v.claim(at, BOX);
            hopper::box_load(room + R::V + at.stage * BOX, &a.v, key, 0, keys_of(a, j), full);
        }
    });
}

/* A thread's two rows, and its part of a warpgroup's results. */
typedef struct Rows {
    int query;                      /* of the sequence: the first row; the other is 8 below */
    int row;                        /* of the job */
    int hidden_before, hidden_from; /* keys between them are seen by all rows of the warp */
    float factor[2];                /* of scores, without the scale of k */
    float max[2], sum[2], kept[2];  /* kept: what o is multiplied by before the next p v */
} Rows;

static __device__ __forceinline__ Rows rows_of(const Args &a, const Job &j, Shared *sh)
{
    Rows r = {};
    r.row = flash::own_row();
    r.query = j.tile * TILE + r.row;
    flash::Seen seen = flash::seen_by(a.tiles, j.b, r.query);
    for (int i = 0; i < 2; i++) {
        sh->first[r.row + 8 * i] = seen.first[i]; /* the lanes of a row write the same */
        r.factor[i] = sh->q_scale[r.row + 8 * i] * a.scale * log2_e;
        r.max[i] = -INFINITY;
    }
    __syncwarp();
    r.hidden_before = seen.hidden_before;
    r.hidden_from = seen.hidden_from;
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

/* Hides the scores of keys that are not seen. Bounds are fetched again, as registers are few. */
static __device__ __forceinline__ void hide(const Args &a, const Shared *sh, const Rows &r, int key,
                                            float (&s)[64])
{
    flash::Seen seen = { { sh->first[r.row], sh->first[r.row + 8] },
                         { attention_last_key(a.tiles, r.query),
                           attention_last_key(a.tiles, r.query + 8) },
                         r.hidden_before,
                         r.hidden_from };
    flash::hide(seen, key, s);
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

static __device__ __forceinline__ void store(const Args &a, const Job &j, Rows &r, float v_scale,
                                             uint32_t room, float (&o)[64])
{
    int lane = (int)threadIdx.x % WARP;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = r.sum[i];
        sum += lane_get_xor(sum, 1);
        sum += lane_get_xor(sum, 2);
        factor[i] = sum == 0 ? 0 : v_scale / sum;
        if (lane % 4 == 0 && r.query + 8 * i < a.tiles.Tq)
            a.lse[(int64_t)(j.b * a.H + j.head) * a.tiles.Tq + r.query + 8 * i] =
                (r.max[i] - 8) * ln_2 + logf(sum);
    }
    flash::scale_rows(factor, o);
    flash::store_rows(a.o, j, r.query - lane / 4, a.tiles.Tq, flash::warp_room(room), o);
}

/* Quantises a warp's 16 rows of q; eight lanes share a row, as in CastTile. No other warp reads or
 * writes these rows, and flash::turn_take makes them known to the products. */
template <int DK> static __device__ __forceinline__ void quantise_queries(Shared *sh, uint32_t room)
{
    typedef Room<DK> R;
    int lane = (int)threadIdx.x % 32, chunk = lane % LANES;
#pragma unroll
    for (int pass = 0; pass < 4; pass++) {
        int row = (int)(threadIdx.x - hopper::WARPGROUP) / WARP * 16 + pass * 4 + lane / LANES;
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
    sh->v.wait(at);
    flash::turn_take(group);
    multiply_values(part, p, room + Room<DK>::V + at.stage * BOX);
    flash::turn_give(group);
    hopper::products_wait<0>();
    hopper::sums_ready(part);
    sh->v.release(at);
}

template <int DK>
static __device__ __forceinline__ void attend(const Args &a, const Job &j, Shared *sh,
                                              uint32_t room, int group, Place &at)
{
    typedef Room<DK> R;
    uint32_t p[16], q = room + group * hopper::BLOCK_BYTES;
    float s[64], part[64], o[64];
    const float2 *scales = a.scales + (int64_t)keys_of(a, j) * a.k_tiles;
    int key = j.span.begin / TILE * TILE;
    float2 scale = scales[key / TILE];
    flash::clear(o);
    quantise_queries<DK>(sh, room);
    sh->desk.release(j);
    sh->k.wait(at);
    flash::turn_take(group);
    multiply_scores<DK>(s, q, room + R::K + at.stage * R::CB * BOX);
    flash::turn_give(group);
    Rows r = rows_of(a, j, sh);
    hopper::products_wait<0>();
    hopper::sums_ready(s);
    sh->k.release(at);
    hide(a, sh, r, key, s);
    exponentials(r, scale.x, 1, s);
    pack(s, p);
    for (key += TILE; key < j.span.end; key += TILE) {
        Place before = at;
        at.next();
        float2 next = scales[key / TILE];
        sh->k.wait(at);
        sh->v.wait(before);
        flash::turn_take(group);
        multiply_values(part, p, room + R::V + before.stage * BOX);
        multiply_scores<DK>(s, q, room + R::K + at.stage * R::CB * BOX);
        flash::turn_give(group);
        hopper::products_wait<1>();
        hopper::sums_ready(part);
        sh->v.release(before);
        add_part(r.kept, part, o);
        hopper::products_wait<0>();
        hopper::sums_ready(s);
        sh->k.release(at);
        hide(a, sh, r, key, s);
        exponentials(r, next.x, scale.y * fast_reciprocal(next.y), s);
        pack(s, p);
        scale = next;
    }
    last_values<DK>(sh, room, group, at, p, part);
    at.next();
    add_part(r.kept, part, o);
    store(a, j, r, scale.y, room, o);
}

template <int DK>
static __global__ __launch_bounds__(flash::BLOCK_THREADS,
                                    1) void kernel(const __grid_constant__ Args a)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    auto fill = [&](auto *s, uint32_t room) { load<DK>(a, s, room); };
    auto work = [&](auto *s, uint32_t room, const Job &j, int consumer, auto &at) {
        attend<DK>(a, j, s, room, consumer, at);
    };
    if constexpr (hopper::COMPILED) flash::block_run<Shared, 24, 240>(memory, fill, work);
}

} // namespace e4m3

#endif
