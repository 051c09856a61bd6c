/*
 * attention_hopper_fwd: the kernel for the forward pass in bf16 on Hopper. A block has 128 queries of a head and
 * walks the tiles of keys that they see, as in FlashAttention-3 (arXiv:2407.08608). Scores of the next tile are
 * multiplied before the values of the last one, so that the softmax runs beside products. P stays in registers.
 *
 * A tile has 128 keys, or 64 where a window is narrow: then each consumer leaves out the tiles that its 64 queries
 * do not see. Short jobs wait for memory more than they compute, so the next job's queries are loaded before this
 * one ends where there is room.
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

template <int DK, int DV, int KEYS_> struct FwdRoom {
    static constexpr int KEYS = KEYS_, JOBS = DK == 64 ? 2 : 1, STAGES = DK == 64 ? 4 : 2;
    static constexpr int Q_BYTES = DK / 64 * TILE * hopper::ROW_BYTES;
    static constexpr int K_BYTES = DK / 64 * KEYS * hopper::ROW_BYTES;
    static constexpr int V_BYTES = DV / 64 * KEYS * hopper::ROW_BYTES;
    static constexpr int K = JOBS * Q_BYTES, V = K + STAGES * K_BYTES;
    static constexpr int OUT = V + STAGES * V_BYTES;
    static constexpr int BYTES = OUT + READERS * WARP_ROOM + SHARED_EXTRA;
    typedef KvShared<JOBS, STAGES> Shared;
    typedef Place<STAGES> At;
};

template <int DK, int DV, typename R>
static __device__ __forceinline__ void fwd_load(const FwdArgs &a, typename R::Shared *s,
                                                uint32_t room)
{
    typename R::At at;
    auto find = [&](unsigned number) { return queries_job(a.tiles, a.H, a.jobs, number); };
    load_jobs<R::JOBS>(a.ticket, a.jobs, find, [&](const Job &j, const Place<R::JOBS> &desk) {
        uint32_t q = s->desk.put(desk, j, R::Q_BYTES);
        if (j.b >= 0)
            load_head<DK / 64, TILE>(room + desk.stage * R::Q_BYTES, &a.q, j.head,
                                     a.q_at + j.tile * TILE, j.b, q);
        for (int key = j.span.begin / R::KEYS * R::KEYS; key < j.span.end;
             key += R::KEYS, at.next()) {
            load_head<DK / 64, R::KEYS>(room + R::K + at.stage * R::K_BYTES, &a.k, j.head / a.share,
                                        a.k_at + key, j.b, s->k.claim(at, R::K_BYTES));
            load_head<DV / 64, R::KEYS>(room + R::V + at.stage * R::V_BYTES, &a.v, j.head / a.share,
                                        a.k_at + key, j.b, s->v.claim(at, R::V_BYTES));
        }
    });
}

typedef struct Softmax {
    float max[2], sum[2], kept[2]; /* kept: what the results so far are multiplied by */
} Softmax;

/* Turns scores into probabilities times e^max. */
template <int S>
static __device__ __forceinline__ void exponentials(Softmax &r, float factor, float (&s)[S])
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
    for (int k = 0; k < S; k++) {
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
template <int LEFT, typename Shared, typename At, int S>
static __device__ __forceinline__ void fwd_softmax(const FwdArgs &a, Shared *sh, const Seen &seen,
                                                   const At &at, int key, Softmax &r, float (&s)[S])
{
    hopper::products_wait<LEFT>();
    hopper::product_ready(s);
    sh->k.release(at);
    hide(seen, key, s);
    exponentials(r, a.factor, s);
}

/* The keys that a consumer's 64 queries see, from the begin of a tile on. None: both are past the job's, so that all
 * tiles are left out. */
template <typename R>
static __device__ __forceinline__ AttentionSpan fwd_own(const FwdArgs &a, const Job &j,
                                                        int consumer)
{
    const AttentionTiles &t = a.tiles;
    int begin = j.span.begin, end = j.span.end, query = j.tile * TILE + consumer * HALF;
    if (R::KEYS < TILE) {
        begin = max(begin, attention_half_first(t, j.b, query));
        end = min(end, attention_last_key(t, min(query + HALF, t.Tq) - 1) + 1);
    }
    if (begin >= end) begin = end = (j.span.end + R::KEYS - 1) / R::KEYS * R::KEYS;
    return { begin / R::KEYS * R::KEYS, end };
}

/* Leaves out tiles from `key` to before `end`, in turn with the other consumer. */
template <typename R>
static __device__ __forceinline__ void fwd_leave_out(typename R::Shared *sh, int consumer, int key,
                                                     int end, typename R::At &at)
{
    for (; key < end; key += R::KEYS, at.next()) {
        sh->k.wait(at);
        turn_take(consumer);
        turn_give(consumer);
        sh->k.release(at);
        sh->v.wait(at);
        sh->v.release(at);
    }
}

/* All tiles from `key` to before `end` but the values of the last one, whose P is in p. */
template <int DK, int DV, typename R>
static __device__ __forceinline__ void fwd_walk(const FwdArgs &a, const Job &j,
                                                typename R::Shared *sh, uint32_t room, int consumer,
                                                int key, int end, typename R::At &at, Softmax &r,
                                                uint32_t (&p)[R::KEYS / 4], float (&o)[DV / 2])
{
    uint32_t q = room + sh->desk.place_of(j) * R::Q_BYTES + consumer * hopper::BLOCK_BYTES;
    Seen seen = seen_by(a.tiles, j.b, j.tile * TILE + own_row());
    float s[R::KEYS / 2];
    sh->k.wait(at);
    turn_take(consumer);
    hopper::products_begin();
    multiply_rows<DK, TILE, R::KEYS>(s, q, room + R::K + at.stage * R::K_BYTES);
    turn_give(consumer);
    fwd_softmax<0>(a, sh, seen, at, key, r, s);
    pack(s, p);
    for (key += R::KEYS; key < end; key += R::KEYS) {
        typename R::At before = at;
        at.next();
        sh->k.wait(at);
        turn_take(consumer);
        hopper::products_begin();
        multiply_rows<DK, TILE, R::KEYS>(s, q, room + R::K + at.stage * R::K_BYTES);
        sh->v.wait(before);
        multiply_packed<R::KEYS>(o, p, room + R::V + before.stage * R::V_BYTES);
        turn_give(consumer);
        fwd_softmax<1>(a, sh, seen, at, key, r, s);
        hopper::products_wait<0>();
        hopper::product_ready(o);
        sh->v.release(before);
        scale_rows(r.kept, o);
        pack(s, p);
    }
}

template <int DK, int DV, typename R>
static __device__ __forceinline__ void fwd_attend(const FwdArgs &a, const Job &j,
                                                  typename R::Shared *sh, uint32_t room,
                                                  int consumer, typename R::At &at)
{
    AttentionSpan own = fwd_own<R>(a, j, consumer);
    bool some = own.begin < own.end;
    Softmax r = { { -INFINITY, -INFINITY } };
    uint32_t p[R::KEYS / 4];
    float o[DV / 2];
    clear(o);
    if (R::KEYS < TILE)
        fwd_leave_out<R>(sh, consumer, j.span.begin / R::KEYS * R::KEYS, min(own.begin, j.span.end),
                         at);
    if (some) fwd_walk<DK, DV, R>(a, j, sh, room, consumer, own.begin, own.end, at, r, p, o);
    sh->desk.release(j);
    if (some) {
        sh->v.wait(at);
        hopper::products_begin();
        multiply_packed<R::KEYS>(o, p, room + R::V + at.stage * R::V_BYTES);
        hopper::products_wait<0>();
        hopper::product_ready(o);
        sh->v.release(at);
        at.next();
    }
    if (R::KEYS < TILE)
        fwd_leave_out<R>(sh, consumer, (own.end + R::KEYS - 1) / R::KEYS * R::KEYS, j.span.end, at);
    fwd_store(a, j, r, warp_room(room + R::OUT), o);
}

template <int DK, int DV, int KEYS>
static __global__ __launch_bounds__(BLOCK_THREADS,
                                    1) void attention_fwd_kernel(const __grid_constant__ FwdArgs a)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    typedef FwdRoom<DK, DV, KEYS> R;
    auto load = [&](auto *s, uint32_t room) { fwd_load<DK, DV, R>(a, s, room); };
    auto work = [&](auto *s, uint32_t room, const Job &j, int consumer, auto &at) {
        fwd_attend<DK, DV, R>(a, j, s, room, consumer, at);
    };
    if constexpr (hopper::COMPILED) block_run<typename R::Shared, 40, 232>(memory, load, work);
}

} // namespace flash

#endif
