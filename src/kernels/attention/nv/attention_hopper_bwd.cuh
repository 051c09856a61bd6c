/*
 * attention_hopper_bwd: the kernels for the backward pass in bf16 on Hopper. Two kernels with seven products
 * compute the scores twice, so that each sum has one owner and one order: no atomics, no waiting for an
 * order, and nothing of the size of the scores in memory.
 *
 *     attention_dq_kernel     keeps 128 queries and walks the keys that they see:   s, dp, dq += ds k
 *     attention_dkv_kernel    keeps 128 keys and walks the queries that see them:   s^T, dp^T, dv += p^T do, dk += ds^T q
 *
 * Scores come out such that p and ds are operands in registers for the product that follows. That product of the last
 * tile and the scores of the next are one turn of the consumers. Heads that share keys are walked one after the other.
 */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_HOPPER_BWD_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_HOPPER_BWD_CUH

#include "kernels/attention/nv/attention_hopper.cuh"

namespace flash
{

typedef struct BwdArgs {
    CUtensorMap q, d_o, k, v;
    AttentionTiles tiles;
    float *lse, *delta; /* (B, H, tiles.rows): lse log2 e, infinite where p is 0 */
    Results dq, dk, dv;
    int q_at, k_at, H, share; /* as in forward */
    float factor, scale;      /* factor: scale log2 e */
    unsigned jobs, *ticket;
} BwdArgs;

/* ---- dq ---- */

enum { DQ_STAGES = 2 };
typedef Place<DQ_STAGES> DqPlace;
typedef KvShared<1, DQ_STAGES> DqShared;

/* KEYS: of a tile. More read shared memory less often; 96 are what registers bear beside sums of 192 columns. */
template <int DK, int DV> struct DqRoom {
    static constexpr int KEYS = DK == 192 ? 96 : 128;
    static constexpr int Q_BYTES = DK / 64 * TILE * hopper::ROW_BYTES;
    static constexpr int DO_BYTES = DV / 64 * TILE * hopper::ROW_BYTES;
    static constexpr int K_BYTES = DK / 64 * KEYS * hopper::ROW_BYTES;
    static constexpr int V_BYTES = DV / 64 * KEYS * hopper::ROW_BYTES;
    static constexpr int D_O = Q_BYTES, K = D_O + DO_BYTES, V = K + DQ_STAGES * K_BYTES;
    static constexpr int OUT = V + DQ_STAGES * V_BYTES;
    static constexpr int BYTES = OUT + READERS * WARP_ROOM + SHARED_EXTRA;
};

template <int DK, int DV>
static __device__ __forceinline__ void dq_load(const BwdArgs &a, DqShared *s, uint32_t room)
{
    typedef DqRoom<DK, DV> R;
    DqPlace at;
    auto find = [&](unsigned number) { return queries_job(a.tiles, a.H, a.jobs, number); };
    load_jobs<1>(a.ticket, a.jobs, find, [&](const Job &j, const Place<1> &desk) {
        int row = a.q_at + j.tile * TILE, group = j.head / a.share;
        uint32_t q = s->desk.put(desk, j, R::Q_BYTES + R::DO_BYTES);
        if (j.b >= 0) load_head<DK / 64, TILE>(room, &a.q, j.head, row, j.b, q);
        if (j.b >= 0) load_head<DV / 64, TILE>(room + R::D_O, &a.d_o, j.head, row, j.b, q);
        for (int key = j.span.begin / R::KEYS * R::KEYS; key < j.span.end;
             key += R::KEYS, at.next()) {
            load_head<DK / 64, R::KEYS>(room + R::K + at.stage * R::K_BYTES, &a.k, group,
                                        a.k_at + key, j.b, s->k.claim(at, R::K_BYTES));
            load_head<DV / 64, R::KEYS>(room + R::V + at.stage * R::V_BYTES, &a.v, group,
                                        a.k_at + key, j.b, s->v.claim(at, R::V_BYTES));
        }
    });
}

/* A thread's two queries. */
typedef struct Rows {
    Seen seen;
    float lse[2], delta[2];
} Rows;

static __device__ __forceinline__ Rows rows_of(const BwdArgs &a, const Job &j)
{
    Rows r;
    int query = j.tile * TILE + own_row();
    int64_t at = (int64_t)(j.b * a.H + j.head) * a.tiles.rows + query;
    r.seen = seen_by(a.tiles, j.b, query);
#pragma unroll
    for (int i = 0; i < 2; i++) r.lse[i] = a.lse[at + 8 * i], r.delta[i] = a.delta[at + 8 * i];
    return r;
}

/* A tile of keys: adds ds k of the tile before, unless this is the first, and makes ds of this one. */
template <int DK, int DV>
static __device__ __forceinline__ void
dq_step(const BwdArgs &a, DqShared *sh, uint32_t room, int consumer, const Rows &r,
        const DqPlace &at, const DqPlace &before, int key, bool is_first,
        uint32_t (&ds)[DqRoom<DK, DV>::KEYS / 4], float (&dq)[DK / 2])
{
    typedef DqRoom<DK, DV> R;
    enum { S = R::KEYS / 2 };
    uint32_t q = room + consumer * hopper::BLOCK_BYTES;
    float s[S], dp[S];
    sh->k.wait(at);
    turn_take(consumer);
    hopper::products_begin();
    if (!is_first) multiply_packed<R::KEYS>(dq, ds, room + R::K + before.stage * R::K_BYTES);
    multiply_rows<DK, TILE, R::KEYS>(s, q, room + R::K + at.stage * R::K_BYTES);
    sh->v.wait(at);
    hopper::products_wait<1>(); /* then registers of ds are free for dp */
    hopper::product_ready(dq);
    hopper::products_begin();
    multiply_rows<DV, TILE, R::KEYS>(dp, q + R::D_O, room + R::V + at.stage * R::V_BYTES);
    turn_give(consumer);
    if (!is_first) sh->k.release(before);
    hopper::products_wait<1>();
    hopper::product_ready(s);
    hide(r.seen, key, s);
#pragma unroll
    for (int k = 0; k < S; k++) s[k] = fast_exp2(fmaf(s[k], a.factor, -r.lse[k / 2 % 2]));
    hopper::products_wait<0>();
    hopper::product_ready(dp);
    sh->v.release(at);
#pragma unroll
    for (int k = 0; k < S; k++) s[k] *= dp[k] - r.delta[k / 2 % 2];
    pack(s, ds);
}

template <int DK, int DV>
static __device__ __forceinline__ void dq_attend(const BwdArgs &a, const Job &j, DqShared *sh,
                                                 uint32_t room, int consumer, DqPlace &at)
{
    typedef DqRoom<DK, DV> R;
    uint32_t ds[R::KEYS / 4];
    float dq[DK / 2];
    Rows r = rows_of(a, j);
    DqPlace before = at;
    int begin = j.span.begin / R::KEYS * R::KEYS;
    clear(dq);
    for (int key = begin; key < j.span.end; key += R::KEYS) {
        dq_step<DK, DV>(a, sh, room, consumer, r, at, before, key, key == begin, ds, dq);
        before = at;
        at.next();
    }
    sh->desk.release(j);
    if (begin < j.span.end) {
        hopper::products_begin();
        multiply_packed<R::KEYS>(dq, ds, room + R::K + before.stage * R::K_BYTES);
        hopper::products_wait<0>();
        hopper::product_ready(dq);
        sh->k.release(before);
    }
#pragma unroll
    for (int k = 0; k < DK / 2; k++) dq[k] *= a.scale;
    store_rows(a.dq, j, j.tile * TILE + own_row() - (int)threadIdx.x % WARP / 4, a.tiles.Tq,
               warp_room(room + R::OUT), dq);
}

template <int DK, int DV>
static __global__ __launch_bounds__(BLOCK_THREADS,
                                    1) void attention_dq_kernel(const __grid_constant__ BwdArgs a)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    auto load = [&](auto *s, uint32_t room) { dq_load<DK, DV>(a, s, room); };
    auto work = [&](auto *s, uint32_t room, const Job &j, int consumer, auto &at) {
        dq_attend<DK, DV>(a, j, s, room, consumer, at);
    };
    if constexpr (hopper::COMPILED) block_run<DqShared, 40, 232>(memory, load, work);
}

/* ---- dk and dv ---- */

/* QUERIES: of a tile; as many as registers bear. A stage has q and do of them, and lse, delta and the first key
 * of each. */
template <int DK, int DV> struct DkvRoom {
    static constexpr int QUERIES = DK == 192 ? 48 : DK == 128 ? 80 : 128;
    static constexpr int STAGES = DK == 192 ? 4 : 3;
    static constexpr int K_BYTES = DK / 64 * TILE * hopper::ROW_BYTES;
    static constexpr int V_BYTES = DV / 64 * TILE * hopper::ROW_BYTES;
    static constexpr int Q_BYTES = DK / 64 * QUERIES * hopper::ROW_BYTES;
    static constexpr int DO_BYTES = DV / 64 * QUERIES * hopper::ROW_BYTES;
    static constexpr int NUMBERS = QUERIES * 4; /* bytes */
    static constexpr int V = K_BYTES, STAGE = V + V_BYTES;
    static constexpr int D_O = Q_BYTES, LSE = D_O + DO_BYTES, DELTA = LSE + NUMBERS;
    static constexpr int FIRST = DELTA + NUMBERS;
    static constexpr int STAGE_BYTES = (FIRST + NUMBERS + 1023) / 1024 * 1024;
    static constexpr int OUT = STAGE + STAGES * STAGE_BYTES;
    static constexpr int BYTES = OUT + READERS * WARP_ROOM + SHARED_EXTRA;
};

template <int STAGES_> struct DkvShared {
    static constexpr int JOBS = 1, STAGES = STAGES_;
    Desk<JOBS> desk; /* with k and v */
    Ring<STAGES> q;
    bool hides[STAGES]; /* does any query of the stage not see some key? */

    __device__ __forceinline__ void init()
    {
        desk.init();
        q.init();
    }
};

static __device__ __forceinline__ Job keys_job(const BwdArgs &a, unsigned number)
{
    Job j = {};
    unsigned tiles = (unsigned)a.tiles.k_tiles;
    int group = (int)(number / tiles), groups = a.H / a.share;
    j.b = -1;
    if (number >= a.jobs) return j;
    j.b = group / groups, j.head = group % groups;
    j.tile = attention_k_tile(a.tiles, j.b, (int)(number % tiles));
    j.span = attention_queries_of(a.tiles, j.b, j.tile);
    return j;
}

/* Does any of the queries from `query` on not see some key of the job? */
template <int QUERIES>
static __device__ __forceinline__ bool some_hidden(const AttentionTiles &t, const Job &j, int query)
{
    int key = j.tile * TILE;
    if (t.causal && key + TILE - 1 > query + t.shift) return true;
    if (t.first == NULL) return false;
    const AttentionSpan *firsts = t.firsts + (int64_t)j.b * (t.rows / HALF);
    return max(firsts[query / HALF].end, firsts[(query + QUERIES - 1) / HALF].end) > key;
}

template <int DK, int DV>
static __device__ __forceinline__ void
dkv_load_queries(const BwdArgs &a, const Job &j, int head, DkvShared<DkvRoom<DK, DV>::STAGES> *s,
                 uint32_t room, Place<DkvRoom<DK, DV>::STAGES> &at)
{
    typedef DkvRoom<DK, DV> R;
    const AttentionTiles &t = a.tiles;
    int64_t row = (int64_t)(j.b * a.H + head) * t.rows, own = (int64_t)j.b * t.rows;
    int bytes = R::LSE + (t.first == NULL ? 2 : 3) * R::NUMBERS;
    for (int query = j.span.begin / R::QUERIES * R::QUERIES; query < j.span.end;
         query += R::QUERIES, at.next()) {
        uint32_t stage = room + R::STAGE + at.stage * R::STAGE_BYTES;
        bool hides = some_hidden<R::QUERIES>(t, j, query);
        s->q.wait_empty(at);
        s->hides[at.stage] = hides;
        uint32_t full = s->q.claim(at, bytes);
        load_head<DK / 64, R::QUERIES>(stage, &a.q, head, a.q_at + query, j.b, full);
        load_head<DV / 64, R::QUERIES>(stage + R::D_O, &a.d_o, head, a.q_at + query, j.b, full);
        hopper::bytes_load(stage + R::LSE, a.lse + row + query, R::NUMBERS, full);
        hopper::bytes_load(stage + R::DELTA, a.delta + row + query, R::NUMBERS, full);
        if (t.first != NULL)
            hopper::bytes_load(stage + R::FIRST, t.first + own + query, R::NUMBERS, full);
    }
}

template <int DK, int DV>
static __device__ __forceinline__ void
dkv_load(const BwdArgs &a, DkvShared<DkvRoom<DK, DV>::STAGES> *s, uint32_t room)
{
    typedef DkvRoom<DK, DV> R;
    Place<R::STAGES> at;
    auto find = [&](unsigned number) { return keys_job(a, number); };
    load_jobs<1>(a.ticket, a.jobs, find, [&](const Job &j, const Place<1> &desk) {
        int row = a.k_at + j.tile * TILE;
        uint32_t kv = s->desk.put(desk, j, R::K_BYTES + R::V_BYTES);
        if (j.b >= 0) load_head<DK / 64, TILE>(room, &a.k, j.head, row, j.b, kv);
        if (j.b >= 0) load_head<DV / 64, TILE>(room + R::V, &a.v, j.head, row, j.b, kv);
        for (int i = 0; i < a.share && j.b >= 0; i++)
            dkv_load_queries<DK, DV>(a, j, j.head * a.share + i, s, room, at);
    });
}

/* Hides the scores of keys that queries from `query` on do not see; columns are queries. first: in shared memory. */
template <int S>
static __device__ __forceinline__ void hide_columns(const AttentionTiles &t, uint32_t first,
                                                    int query, int key, float (&s)[S])
{
#pragma unroll
    for (int k = 0; k < S; k += 4) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int column = k / 4 * 8 + own_column() + i;
            int from = t.first == NULL ? 0 : (int)hopper::shared_word(first + column * 4);
            int to = t.causal ? query + column + t.shift : t.Tk;
            if (key < from || key > to) s[k + i] = -INFINITY;
            if (key + 8 < from || key + 8 > to) s[k + i + 2] = -INFINITY;
        }
    }
}

/* lse of the columns is in shared memory. */
template <int S>
static __device__ __forceinline__ void column_probabilities(uint32_t lse, float factor,
                                                            float (&s)[S])
{
#pragma unroll
    for (int k = 0; k < S; k += 4) {
        float2 two = hopper::shared_floats(lse + (k * 2 + own_column()) * 4);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[k + i] = fast_exp2(fmaf(s[k + i], factor, i % 2 ? -two.y : -two.x));
    }
}

/* dp becomes ds; delta is in shared memory. */
template <int S>
static __device__ __forceinline__ void column_gradients(uint32_t delta, const float (&p)[S],
                                                        float (&dp)[S])
{
#pragma unroll
    for (int k = 0; k < S; k += 4) {
        float2 two = hopper::shared_floats(delta + (k * 2 + own_column()) * 4);
#pragma unroll
        for (int i = 0; i < 4; i++) dp[k + i] = p[k + i] * (dp[k + i] - (i % 2 ? two.y : two.x));
    }
}

/* A consumer's gradients, and p and ds of the tile that was last. Sums fill the registers: nearly all else is read
 * from shared memory again. */
template <int DK, int DV> struct Dkv {
    typedef DkvRoom<DK, DV> R;
    float dk[DK / 2], dv[DV / 2];
    uint32_t p[R::QUERIES / 4], ds[R::QUERIES / 4];

    __device__ __forceinline__ void add_last(uint32_t stage)
    {
        multiply_packed<R::QUERIES>(dv, p, stage + R::D_O);
        multiply_packed<R::QUERIES>(dk, ds, stage);
        hopper::products_wait<0>();
        hopper::product_ready(dv);
        hopper::product_ready(dk);
    }
};

/* The stage's queries; adds the products of the stage before, unless this is the first. */
template <int DK, int DV>
static __device__ __forceinline__ void
dkv_step(const BwdArgs &a, DkvShared<DkvRoom<DK, DV>::STAGES> *sh, uint32_t room, int consumer,
         const Place<DkvRoom<DK, DV>::STAGES> &at, const Place<DkvRoom<DK, DV>::STAGES> &before,
         int query, bool is_first, Dkv<DK, DV> &sums)
{
    typedef DkvRoom<DK, DV> R;
    enum { S = R::QUERIES / 2 };
    uint32_t stages = room + R::STAGE, stage = stages + at.stage * R::STAGE_BYTES;
    uint32_t k = room + consumer * hopper::BLOCK_BYTES;
    float s[S], dp[S];
    sh->q.wait(at);
    turn_take(consumer);
    hopper::products_begin();
    if (!is_first) sums.add_last(stages + before.stage * R::STAGE_BYTES);
    hopper::products_begin();
    multiply_rows<DK, TILE, R::QUERIES>(s, k, stage);
    multiply_rows<DV, TILE, R::QUERIES>(dp, k + R::V, stage + R::D_O);
    turn_give(consumer);
    if (!is_first) sh->q.release(before);
    hopper::products_wait<1>();
    hopper::product_ready(s);
    if (sh->hides[at.stage])
        hide_columns(a.tiles, stage + R::FIRST, query, sh->desk.job[0].tile * TILE + own_row(), s);
    column_probabilities(stage + R::LSE, a.factor, s);
    hopper::products_wait<0>();
    hopper::product_ready(dp);
    column_gradients(stage + R::DELTA, s, dp);
    pack(s, sums.p);
    pack(dp, sums.ds);
}

template <int DK, int DV>
static __device__ __forceinline__ void
dkv_attend(const BwdArgs &a, const Job &j, DkvShared<DkvRoom<DK, DV>::STAGES> *sh, uint32_t room,
           int consumer, Place<DkvRoom<DK, DV>::STAGES> &at)
{
    typedef DkvRoom<DK, DV> R;
    Dkv<DK, DV> sums;
    Place<R::STAGES> before = at;
    bool is_first = true;
    clear(sums.dk);
    clear(sums.dv);
    for (int head = 0; head < a.share; head++) {
        for (int query = j.span.begin / R::QUERIES * R::QUERIES; query < j.span.end;
             query += R::QUERIES) {
            dkv_step<DK, DV>(a, sh, room, consumer, at, before, query, is_first, sums);
            before = at;
            at.next();
            is_first = false;
        }
    }
    if (!is_first) {
        hopper::products_begin();
        sums.add_last(room + R::STAGE + before.stage * R::STAGE_BYTES);
        sh->q.release(before);
    }
    sh->desk.release(j);
#pragma unroll
    for (int k = 0; k < DK / 2; k++) sums.dk[k] *= a.scale;
    int row = j.tile * TILE + own_row() - (int)threadIdx.x % WARP / 4;
    store_rows(a.dk, j, row, a.tiles.Tk, warp_room(room + R::OUT), sums.dk);
    store_rows(a.dv, j, row, a.tiles.Tk, warp_room(room + R::OUT), sums.dv);
}

template <int DK, int DV>
static __global__ __launch_bounds__(BLOCK_THREADS,
                                    1) void attention_dkv_kernel(const __grid_constant__ BwdArgs a)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    typedef DkvShared<DkvRoom<DK, DV>::STAGES> Shared;
    auto load = [&](auto *s, uint32_t room) { dkv_load<DK, DV>(a, s, room); };
    auto work = [&](auto *s, uint32_t room, const Job &j, int consumer, auto &at) {
        dkv_attend<DK, DV>(a, j, s, room, consumer, at);
    };
    if constexpr (hopper::COMPILED) block_run<Shared, 24, 240>(memory, load, work);
}

} // namespace flash

#endif
