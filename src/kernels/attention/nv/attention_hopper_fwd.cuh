/*
 * attention_hopper_fwd: the kernel for the forward pass in bf16 on Hopper. A block has 128 queries of a head and
 * walks the tiles of 128 keys that they see, as in FlashAttention-3 (arXiv:2407.08608). Scores of the next tile are
 * multiplied before the values of the last one, so that the softmax runs beside products. P stays in registers.
 */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_HOPPER_FWD_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_HOPPER_FWD_CUH

#include "kernels/attention/nv/attention_hopper.cuh"

namespace flash
{

typedef struct FwdArgs {
    CUtensorMap q, k, v;
    AttentionTiles tiles;
    Results o;
    float *lse; /* (B, H, lse_rows) */
    int q_at, k_at, H, share,
        lse_rows; /* q_at, k_at: where the rectangle begins; share: heads that share keys */
    float factor; /* of scores: scale log2 e */
    unsigned jobs, *ticket;
} FwdArgs;

template <int DK, int DV> struct FwdRoom {
    static constexpr int BLOCK_BYTES = TILE * hopper::ROW_BYTES;
    static constexpr int K_BYTES = DK / 64 * BLOCK_BYTES, V_BYTES = DV / 64 * BLOCK_BYTES;
    static constexpr int K = K_BYTES /* q's */, V = K + KV_STAGES * K_BYTES;
    static constexpr int OUT = V + KV_STAGES * V_BYTES;
    static constexpr int BYTES = OUT + READERS * WARP_ROOM + SHARED_EXTRA;
};

template <int DK, int DV>
static __device__ __forceinline__ void fwd_load(const FwdArgs &a, KvShared *s, uint32_t room)
{
    typedef FwdRoom<DK, DV> R;
    KvPlace at;
    for (uint32_t turn = 1;; turn ^= 1) {
        Job j = queries_job(a.tiles, a.H, a.jobs, next_number(a.ticket, a.jobs));
        if (threadIdx.x == 0) {
            uint32_t q = s->desk.put(j, turn, R::K_BYTES);
            if (j.b >= 0)
                load_head<DK / 64, TILE>(room, &a.q, j.head, a.q_at + j.tile * TILE, j.b, q);
            for (int key = j.span.begin / TILE * TILE; key < j.span.end; key += TILE, at.next()) {
                load_head<DK / 64, TILE>(room + R::K + at.stage * R::K_BYTES, &a.k,
                                         j.head / a.share, a.k_at + key, j.b,
                                         s->k.claim(at, R::K_BYTES));
                load_head<DV / 64, TILE>(room + R::V + at.stage * R::V_BYTES, &a.v,
                                         j.head / a.share, a.k_at + key, j.b,
                                         s->v.claim(at, R::V_BYTES));
            }
        }
        if (j.b < 0) return;
    }
}

typedef struct Softmax {
    float max[2], sum[2], kept[2]; /* kept: what the results so far are multiplied by */
} Softmax;

/* Turns scores into probabilities times e^max. */
static __device__ __forceinline__ void exponentials(Softmax &r, float factor, float (&s)[64])
{
    float down[2], sum[4] = {};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float most = fmaxf(r.max[i], row_most(s, i) * factor);
        down[i] = most == -INFINITY ? 0 : -most; /* a row that has seen no key */
        r.kept[i] = fast_exp2(r.max[i] + down[i]);
        r.sum[i] *= r.kept[i];
        r.max[i] = most;
    }
#pragma unroll
    for (int k = 0; k < 64; k++) {
        s[k] = fast_exp2(fmaf(s[k], factor, down[k / 2 % 2]));
        sum[k % 4] += s[k];
    }
    r.sum[0] += sum[0] + sum[1];
    r.sum[1] += sum[2] + sum[3];
}

template <int S>
static __device__ __forceinline__ void fwd_store(const FwdArgs &a, const Job &j, const Softmax &r,
                                                 uint32_t room, float (&o)[S])
{
    int query = j.tile * TILE + own_row(), lane = (int)threadIdx.x % WARP;
    float inverse[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = r.sum[i];
        sum += lane_get_xor(sum, 1);
        sum += lane_get_xor(sum, 2);
        inverse[i] = sum == 0 ? 0 : 1 / sum;
        if (lane % 4 == 0 && query + 8 * i < a.tiles.Tq)
            a.lse[(int64_t)(j.b * a.H + j.head) * a.lse_rows + query + 8 * i] =
                r.max[i] * ln_2 + logf(sum);
    }
    scale_rows(inverse, o);
    store_rows(a.o, j, query - lane / 4, a.tiles.Tq, room, o);
}

/* Scores of a tile become P. The tile's turn of products has begun, and scores are its first group; LEFT groups
 * follow. */
template <int LEFT>
static __device__ __forceinline__ void fwd_softmax(const FwdArgs &a, KvShared *sh, const Seen &seen,
                                                   const KvPlace &at, int key, Softmax &r,
                                                   float (&s)[64])
{
    hopper::products_wait<LEFT>();
    hopper::product_ready(s);
    sh->k.release(at);
    hide(seen, key, s);
    exponentials(r, a.factor, s);
}

/* All tiles of a job but the values of the last one, whose P is in p. */
template <int DK, int DV>
static __device__ __forceinline__ void fwd_walk(const FwdArgs &a, const Job &j, KvShared *sh,
                                                uint32_t room, int consumer, KvPlace &at,
                                                Softmax &r, uint32_t (&p)[32], float (&o)[DV / 2])
{
    typedef FwdRoom<DK, DV> R;
    uint32_t q = room + consumer * hopper::BLOCK_BYTES;
    Seen seen = seen_by(a.tiles, j.b, j.tile * TILE + own_row());
    int key = j.span.begin / TILE * TILE;
    float s[64];
    sh->k.wait(at);
    turn_take(consumer);
    hopper::products_begin();
    multiply_rows<DK, TILE, TILE>(s, q, room + R::K + at.stage * R::K_BYTES);
    turn_give(consumer);
    fwd_softmax<0>(a, sh, seen, at, key, r, s);
    pack(s, p);
    for (key += TILE; key < j.span.end; key += TILE) {
        KvPlace before = at;
        at.next();
        sh->k.wait(at);
        turn_take(consumer);
        hopper::products_begin();
        multiply_rows<DK, TILE, TILE>(s, q, room + R::K + at.stage * R::K_BYTES);
        sh->v.wait(before);
        multiply_packed<TILE>(o, p, room + R::V + before.stage * R::V_BYTES);
        turn_give(consumer);
        fwd_softmax<1>(a, sh, seen, at, key, r, s);
        hopper::products_wait<0>();
        hopper::product_ready(o);
        sh->v.release(before);
        scale_rows(r.kept, o);
        pack(s, p);
    }
}

template <int DK, int DV>
static __device__ __forceinline__ void fwd_attend(const FwdArgs &a, const Job &j, KvShared *sh,
                                                  uint32_t room, int consumer, KvPlace &at)
{
    typedef FwdRoom<DK, DV> R;
    bool some = j.span.begin < j.span.end;
    Softmax r = { { -INFINITY, -INFINITY } };
    uint32_t p[32];
    float o[DV / 2];
    clear(o);
    if (some) fwd_walk<DK, DV>(a, j, sh, room, consumer, at, r, p, o);
    warp_arrives(&sh->desk.empty);
    if (some) {
        sh->v.wait(at);
        hopper::products_begin();
        multiply_packed<TILE>(o, p, room + R::V + at.stage * R::V_BYTES);
        hopper::products_wait<0>();
        hopper::product_ready(o);
        sh->v.release(at);
        at.next();
    }
    fwd_store(a, j, r, warp_room(room + R::OUT), o);
}

template <int DK, int DV>
static __device__ __forceinline__ void fwd_run(const FwdArgs &a, unsigned char *memory)
{
    KvShared *s = (KvShared *)memory;
    uint32_t room = block_begin(s);
    if (threadIdx.x < hopper::WARPGROUP) {
        hopper::registers_give<40>();
        if (threadIdx.x < WARP) fwd_load<DK, DV>(a, s, room);
        return;
    }
    hopper::registers_take<232>();
    consume<KvPlace>(s, [&](const Job &j, int consumer, KvPlace &at) {
        fwd_attend<DK, DV>(a, j, s, room, consumer, at);
    });
}

template <int DK, int DV>
static __global__ __launch_bounds__(BLOCK_THREADS,
                                    1) void attention_fwd_kernel(const __grid_constant__ FwdArgs a)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    if constexpr (hopper::COMPILED) fwd_run<DK, DV>(a, memory);
}

} // namespace flash

#endif
