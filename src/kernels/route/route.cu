/*
 * route: kernels of the router: scores, the choice of experts, the auxiliary losses, and the
 * gradient. Expert products and sorting are not here.
 *
 * One warp handles a token and keeps its scores in registers. A lane has neighbouring experts of
 * one group, so values of a group are exchanged only among its lanes. Of equal experts, the lower
 * one is in the lower lane, or comes first in its lane. Experts are chosen by finding the largest
 * key top_k times: a maximum across the warp, which the first lane that has it then removes.
 *
 * Choices must be those of the CPU to the bit, so scores are computed with the CPU's own e^x and without contraction. A
 * softmax's sum has another order here. It scales all scores of a token alike, so their order does not change. A NaN is
 * chosen after all numbers, so chosen experts always exist. On the CPU the choice also depends on the NaN's position.
 * That shows only where some sigmoids of a token are NaN and some are not, and then the step is skipped either way.
 *
 * A block is a chunk of one sequence's tokens. Its counts and sums go to the workspace. The block
 * that ends last adds the chunks up, in the same order whichever block it is. A lane works on 8
 * experts of 256, some 100 instructions each: instructions bound it, not memory. Two tokens a warp
 * (8192 over 128 blocks of 32 warps) hide the latency of one token.
 */
#include "kernels/core/cpu_math.cuh"
#include "kernels/core/pack.cuh"

#include "kernels/route/route.h"

#include <type_traits>

enum {
    MOST_OF_A_LANE = 32,    /* experts */
    MOST_CHOSEN = 64,       /* experts of a token */
    CHOSEN_ROOM = 2 * WARP, /* of a warp: chosen experts, or choose_few's pairs, one a lane */
    ROOM = 8192,            /* floats: the rows of a block's warps, 32 warps of 256 experts */
    MOST_THREADS = BLOCK_THREADS_MAX,
    CHUNKS = 128, /* of all sequences, where no sequence must have more: a block each */
};

static_assert((int)CHOSEN_ROOM >= MOST_CHOSEN, "chosen experts have room");

static constexpr float TINY = 1e-20f; /* as on the CPU: keeps a sum of sigmoids away from 0 */

/* Threads of a block whose lanes have PER experts: the most whose rows fit into ROOM, and whose
 * scores fit into registers. */
template <int PER> constexpr int THREADS = PER <= 8 ? MOST_THREADS : ROOM / PER;

/* How tokens are cut into chunks, and experts over the lanes of a warp. */
typedef struct RouteShape {
    int64_t B, T, N, E, K;
    int64_t chunks, tokens; /* of a sequence; of a chunk */
    int groups;             /* 1 if all are open */
    int lanes, each;        /* lanes of a group; experts of a lane */
    bool wide;              /* every lane has whole packs of 4 experts */
} RouteShape;

static RouteShape route_shape(const Tensor *logits, const RouteRule *r, int64_t sequences)
{
    RouteShape s = {};
    s.B = sequences;
    s.E = tensor_cols(logits);
    s.K = r->top_k;
    s.N = tensor_elems(logits) / s.E;
    s.T = s.N / s.B;
    int64_t least = (s.T + WARP - 1) / WARP, chunks = s.B < CHUNKS ? CHUNKS / s.B : 1;
    if (chunks > least) chunks = least;
    s.tokens = (s.T + chunks - 1) / chunks;
    s.chunks = (s.T + s.tokens - 1) / s.tokens;
    s.groups = r->top_groups < r->groups ? (int)r->groups : 1;
    s.lanes = WARP;
    while (s.lanes > 1 && s.lanes * s.groups > WARP) s.lanes /= 2;
    int64_t per = s.E / s.groups;
    s.each = (int)((per + s.lanes - 1) / s.lanes);
    s.wide = s.each % 4 == 0 && per == s.lanes * s.each && s.lanes * s.groups == WARP &&
             packs_fit<float>({ logits->data }, { s.E });
    return s;
}

static Status shape_check(const char *op, const RouteShape *s)
{
    if (s->lanes * s->groups > WARP || s->each > MOST_OF_A_LANE) {
        return FAIL(ERR_UNSUPPORTED,
                    "%s: %lld experts in %d groups: a GPU routes to at most %d, in at most %d "
                    "groups of %d / groups",
                    op, (long long)s->E, s->groups, WARP * MOST_OF_A_LANE, WARP,
                    WARP * MOST_OF_A_LANE);
    }
    if (s->K <= MOST_CHOSEN) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: top_k is %lld, on a GPU at most %d", op, (long long)s->K,
                (int)MOST_CHOSEN);
}

/* Calls run(PER) for the smallest power of two that holds a lane's experts; run launches the kernel. */
template <int PER = 1, typename F> static Status launch_per(const char *op, int each, F run)
{
    if constexpr (PER < MOST_OF_A_LANE) {
        if (each > PER) return launch_per<PER * 2>(op, each, run);
    }
    run(std::integral_constant<int, PER>());
    return kernel_status(op);
}

/* The experts of a lane: `n` from `first` on, of a group. */
typedef struct Share {
    int first, n, group;
} Share;

static __device__ __forceinline__ Share share_of(const RouteShape &s)
{
    int lane = (int)threadIdx.x % WARP, per = (int)s.E / s.groups;
    int group = lane / s.lanes, at = lane % s.lanes * s.each;
    int n = group < s.groups ? max(0, min(s.each, per - at)) : 0;
    return { group * per + at, n, group };
}

/* A lane's part of a row of E; `fill` where it has no expert. */
template <int PER>
static __device__ __forceinline__ void row_get(const float *row, const RouteShape &s,
                                               const Share &me, float fill, float (&v)[PER])
{
    if constexpr (PER >= 4) {
        if (s.wide) {
#pragma unroll
            for (int i = 0; i < PER; i += 4) {
                float pack[4] = { fill, fill, fill, fill };
                if (i < s.each) load<true>(row + me.first + i, pack);
#pragma unroll
                for (int k = 0; k < 4; k++) v[i + k] = pack[k];
            }
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < PER; i++) v[i] = i < me.n ? row[me.first + i] : fill;
}

/* The row may lie in shared memory, where pack.cuh's `store` does not reach. */
template <int PER>
static __device__ __forceinline__ void row_put(float *row, const RouteShape &s, const Share &me,
                                               const float (&v)[PER])
{
    if constexpr (PER >= 4) {
        if (s.wide) {
#pragma unroll
            for (int i = 0; i < PER; i += 4) {
                float4 *to = reinterpret_cast<float4 *>(row + me.first + i);
                if (i < s.each) *to = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
            }
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < PER; i++) {
        if (i < me.n) row[me.first + i] = v[i];
    }
}

/* v = 1 / (1 + e^-v). If any result of the warp is tiny or 0, all use the slow, exact reciprocal. */
template <int PER> static __device__ __forceinline__ void sigmoids(float (&v)[PER])
{
    bool far = false;
#pragma unroll
    for (int i = 0; i < PER; i++) {
        v[i] = __fadd_rn(1.0f, exp_like_cpu(-v[i]));
        far = far || v[i] >= 0x1p126f;
    }
    if (lanes_any(far)) {
#pragma unroll
        for (int i = 0; i < PER; i++) v[i] = __frcp_rn(v[i]);
        return;
    }
#pragma unroll
    for (int i = 0; i < PER; i++) v[i] = reciprocal(v[i]);
}

/* Replaces logits by scores; 0 where a lane has no expert. */
template <int PER>
static __device__ __forceinline__ void scores(RouteScore kind, const Share &me, float (&v)[PER])
{
    if (kind == ROUTE_SIGMOID) {
        sigmoids(v);
#pragma unroll
        for (int i = 0; i < PER; i++) v[i] = i < me.n ? v[i] : 0;
        return;
    }
    float max = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) max = v[i] > max ? v[i] : max;
    max = warp_max(max);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        v[i] = i < me.n ? exp_like_cpu(__fsub_rn(v[i], max)) : 0;
        sum += v[i];
    }
    float inverse = __frcp_rn(warp_sum(sum));
#pragma unroll
    for (int i = 0; i < PER; i++) v[i] = __fmul_rn(v[i], inverse);
}

/* A float as an integer with the same order. NaN is 1, below all numbers; 0 means no expert. -0
 * does not occur: scores are 0 or more, and 0 + -0 is 0. */
static __device__ __forceinline__ uint32_t ordered(float v)
{
    uint32_t u = __float_as_uint(v);
    if (isnan(v)) return 1;
    return u >> 31 ? ~u : u | 0x80000000u;
}

static __device__ __forceinline__ float float_of(uint32_t key)
{
    return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}

template <int PER> static __device__ __forceinline__ uint32_t largest(const uint32_t (&key)[PER])
{
    uint32_t best = key[0];
#pragma unroll
    for (int i = 1; i < PER; i++) best = max(best, key[i]);
    return best;
}

/* Removes the first key that equals `best`, sets `best` to the largest remaining key, and returns
 * the index of the removed one. */
template <int PER> static __device__ __forceinline__ int take(uint32_t (&key)[PER], uint32_t &best)
{
    int at = 0;
#pragma unroll
    for (int i = PER - 1; i > 0; i--) at = key[i] == best ? i : at;
    if (key[0] == best) at = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) key[i] = i == at ? 0 : key[i];
    best = largest(key);
    return at;
}

/* The first lane with the largest key of the warp. */
static __device__ __forceinline__ int first_largest(uint32_t key)
{
    uint32_t highest = lanes_max(key);
    return lanes_first(lanes_where(key == highest));
}

/* Is the lane's group one of the top_groups groups with the largest sums of their best keys? */
template <int PER>
static __device__ __forceinline__ bool group_open(const RouteRule &r, const RouteShape &s,
                                                  const Share &me, const uint32_t (&key)[PER])
{
    int lane = (int)threadIdx.x % WARP, start = lane & ~(s.lanes - 1);
    uint32_t rest[PER], best = largest(key);
    float sum = 0;
    bool open = false;
#pragma unroll
    for (int i = 0; i < PER; i++) rest[i] = key[i];
    for (int64_t t = 0; t < r.group_score_top; t++) {
        uint32_t top = best;
        for (int step = s.lanes / 2; step > 0; step /= 2) top = max(top, lane_get_xor(top, step));
        sum = __fadd_rn(sum, float_of(top));
        LaneMask having = lanes_where(best == top) >> start;
        if (t + 1 < r.group_score_top && start + lanes_first(having) == lane) take(rest, best);
    }
    uint32_t score = me.group < s.groups ? ordered(sum) : 0;
    for (int64_t t = 0; t < r.top_groups; t++) {
        if (first_largest(score) / s.lanes != me.group) continue;
        open = true;
        score = 0;
    }
    return open;
}

/*
 * The same choice with fewer instructions if a lane has many experts. The K-th largest of the
 * lanes' best keys is a bound that at least K keys reach, and usually few more. These keys are
 * distributed to the lanes, one each, through `id`. Each lane counts the keys that come before its
 * own, independently of the other lanes. False: more keys than lanes reach the bound.
 */
template <int PER>
static __device__ __forceinline__ bool
choose_few(int K, const Share &me, const uint32_t (&key)[PER], uint32_t best, int32_t *id)
{
    int lane = (int)threadIdx.x % WARP, n = 0;
    uint2 *dealt = (uint2 *)(void *)id;
    uint32_t bound = 0, left = best;
    for (int k = 0; k < K; k++) {
        bound = lanes_max(left);
        if (lanes_first(lanes_where(left == bound)) == lane) left = 0;
    }
    bound = best == 0 ? UINT32_MAX : max(bound, 1u); /* 0: the lane's group is closed */
#pragma unroll
    for (int i = 0; i < PER; i++) {
        LaneMask in = lanes_where(key[i] >= bound);
        int at = n + lanes_count(in & lanes_below(lane));
        if (key[i] >= bound && at < WARP) dealt[at] = make_uint2(key[i], (unsigned)(me.first + i));
        n += lanes_count(in);
    }
    lanes_sync();
    if (n > WARP) return false;
    uint2 mine = lane < n ? dealt[lane] : make_uint2(0, UINT32_MAX);
    int before = 0; /* that are chosen before this lane's */
#pragma unroll 4
    for (int i = 0; i < n; i++) {
        uint2 other = dealt[i];
        before += other.x > mine.x || (other.x == mine.x && other.y < mine.y);
    }
    lanes_sync();
    if (lane < n && before < K) id[before] = (int32_t)mine.y;
    lanes_sync();
    return true;
}

/* id[0 .. K) = the experts of a token, for all lanes on return. */
template <int PER>
static __device__ __forceinline__ void choose(const RouteRule &r, const RouteShape &s,
                                              const Share &me, const float *biases,
                                              const float (&p)[PER], int32_t *id)
{
    float bias[PER] = {};
    uint32_t key[PER];
    if (biases != NULL) row_get(biases, s, me, 0, bias);
#pragma unroll
    for (int i = 0; i < PER; i++) key[i] = i < me.n ? ordered(__fadd_rn(p[i], bias[i])) : 0;
    uint32_t best = largest(key);
    if (s.groups > 1 && !group_open(r, s, me, key)) best = 0;
    if (PER >= 8 && s.K <= WARP && choose_few((int)s.K, me, key, best, id)) return;
    for (int k = 0; k < (int)s.K; k++) {
        if (first_largest(best) == (int)threadIdx.x % WARP) id[k] = me.first + take(key, best);
    }
    lanes_sync();
}

/* The same in all lanes, added in the CPU's order. */
static __device__ float chosen_sum(int64_t K, const float *p, const int32_t *index)
{
    float sum = TINY;
    for (int k = 0; k < (int)K; k++) sum += p[index[k]];
    return sum;
}

/* log(sum of e^v) over the warp's row of logits; -inf where a lane has no expert. */
template <int PER>
static __device__ __forceinline__ float log_sum(const Share &me, const float (&v)[PER])
{
    float max = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) max = v[i] > max ? v[i] : max;
    max = warp_max(max);
#pragma unroll
    for (int i = 0; i < PER; i++) sum += i < me.n ? exp_like_cpu(__fsub_rn(v[i], max)) : 0;
    return max + logf(warp_sum(sum));
}

/* 1 / sum(p), what makes q of p. */
template <int PER>
static __device__ __forceinline__ float inverse_sum(RouteScore kind, const float (&p)[PER])
{
    if (kind == ROUTE_SOFTMAX) return 1;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < PER; i++) sum += p[i];
    return 1 / (warp_sum(sum) + TINY);
}

/* Shared memory of a block whose lanes have PER experts. */
template <int PER> struct RouteRoom {
    float4 row[ROOM / 4]; /* a row of E a warp */
    alignas(8) int32_t chosen[THREADS<PER> / WARP][CHOSEN_ROOM];
    int32_t count[WARP * PER];          /* (E) */
    float squares[THREADS<PER> / WARP]; /* sum of z^2 over a warp's tokens */

    __device__ __forceinline__ float *row_of(int warp) { return (float *)row + warp * WARP * PER; }
};

/* Forward */

/* A chunk's sums for one expert: q over its tokens, and the number of tokens that chose it. */
typedef struct ChunkSum {
    float q;
    int32_t count;
} ChunkSum;

typedef struct RouteForward {
    const float *logits, *bias;
    const int32_t *domain, *target, *pos; /* the last two may be NULL */
    int32_t *index, *seq_count, *load;
    float *weight, *aux_loss, *score, *score_sum, *router_z; /* the last three may be NULL */
    ChunkSum *chunk;                                         /* (B, chunks, E): of the workspace */
    double *q;        /* (B, E), too: sum of q over a sequence */
    float *squares;   /* (B, chunks), too: sum of z^2 */
    unsigned *ticket; /* 0 between launches: blocks that are done */
    double aux_factor;
    RouteShape s;
    RouteRule rule;
} RouteForward;

static __device__ __forceinline__ bool wants_z(const RouteForward &a)
{
    return a.rule.z_scale != 0 || a.router_z != NULL;
}

/* Token n, whose logits are in p. q: the sums of the warp's tokens so far. */
template <int PER>
static __device__ __forceinline__ void fwd_token(const RouteForward &a, int64_t n, const Share &me,
                                                 RouteRoom<PER> &room, float (&p)[PER],
                                                 float (&q)[PER])
{
    const RouteRule &r = a.rule;
    int K = (int)a.s.K, lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    int32_t *id = room.chosen[warp];
    float *row = room.row_of(warp);
    if (wants_z(a)) {
        float z = log_sum(me, p);
        if (lane == 0) room.squares[warp] += z * z;
    }
    scores(r.score, me, p);
    row_put(row, a.s, me, p);
    if (a.pos != NULL) {
        int pos = a.pos[n], E = (int)a.s.E, stride = 1 + pos / E % (E / K);
        for (int k = lane; k < K; k += WARP) id[k] = (int)((pos + (int64_t)k * stride) % E);
        lanes_sync();
    } else {
        choose(r, a.s, me, a.bias, p, id);
    }
    bool counts = a.target == NULL || a.target[n] >= 0;
    float factor = r.normalise ? __fdiv_rn(r.scaling, chosen_sum(K, row, id)) : r.scaling;
    for (int k = lane; k < K; k += WARP) {
        a.index[n * K + k] = id[k];
        float weight = row[id[k]] * factor;
        if (a.score != NULL) a.score[n * K + k] = weight;
        a.weight[n * K + k] = a.score != NULL ? 1 : weight;
        if (counts) atomicAdd(&room.count[id[k]], 1);
    }
    lanes_sync(); /* the next token takes the place of this one */
    if (r.aux_scale == 0) return;
    float inverse = inverse_sum(r.score, p);
#pragma unroll
    for (int i = 0; i < PER; i++) q[i] += p[i] * inverse;
}

/* Is this the last block? Then it may read what all others wrote. */
static __device__ bool is_last(unsigned *ticket)
{
    __shared__ bool last;
    device_fence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    device_fence();
    return last;
}

/* Computes seq_count, q, load and score_sum from the chunks. The threads are split into `parts`. Part p takes every
 * parts-th chunk of an expert, and the first part adds up what the others found. */
static __device__ void add_chunks(const RouteForward &a, double *sums, int32_t *counts)
{
    int E = (int)a.s.E, chunks = (int)a.s.chunks, all = (int)a.s.B * E;
    int parts = max(1, (int)blockDim.x / all), span = (int)blockDim.x / parts;
    int part = (int)threadIdx.x / span;
    for (int first = 0; first < all; first += span) {
        int i = first + (int)threadIdx.x % span;
        bool mine = i < all && part < parts;
        const ChunkSum *from = a.chunk + (int64_t)(i / E) * chunks * E + i % E;
        double q = 0;
        int32_t count = 0;
#pragma unroll 8
        for (int c = mine ? part : chunks; c < chunks; c += parts) {
            int2 sum = read_shared_cache((const int2 *)(from + (int64_t)c * E));
            q += (double)__int_as_float(sum.x);
            count += sum.y;
        }
        sums[threadIdx.x] = q;
        counts[threadIdx.x] = count;
        __syncthreads();
        for (int p = 1; mine && part == 0 && p < parts; p++) {
            q += sums[p * span + (int)threadIdx.x];
            count += counts[p * span + (int)threadIdx.x];
        }
        if (mine && part == 0) {
            a.seq_count[i] = count;
            a.q[i] = q;
            atomicAdd(&a.load[(int64_t)a.domain[i / E] * E + i % E], count);
            if (a.score_sum != NULL) a.score_sum[i] = (float)q;
        }
        __syncthreads();
    }
}

/* The sums of an auxiliary loss. Entries of one group and expert are `step` apart: those of all
 * sequences of the batch, or only one. */
template <typename Q> struct RouteLoss {
    const int32_t *seq_count;
    const Q *q; /* (B, E) sums over a sequence */
    float *aux_loss;
    double aux_factor;
    int64_t all, step;
};

/* One block adds the loss: sum over groups of tokens and over e of n_ge * (sum over g of q_e). */
template <typename Q> static __device__ void add_loss(const RouteLoss<Q> &a, double *room)
{
    double loss = 0;
    for (int64_t i = threadIdx.x; i < a.step; i += blockDim.x) {
        double n = 0, q = 0;
        for (int64_t at = i; at < a.all; at += a.step) {
            n += (double)a.seq_count[at];
            q += (double)a.q[at];
        }
        loss += n * q;
    }
    loss = block_sum(loss, room);
    if (threadIdx.x == 0) *a.aux_loss += (float)(a.aux_factor * loss);
}

/* By the last block. */
static __device__ void add_z(const RouteForward &a, double *room)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < a.s.B * a.s.chunks; i += blockDim.x)
        sum += (double)read_shared_cache(a.squares + i);
    sum = block_sum(sum, room);
    if (threadIdx.x == 0 && a.rule.z_scale != 0)
        *a.aux_loss += (float)((double)a.rule.z_scale * sum);
    if (threadIdx.x == 0 && a.router_z != NULL) *a.router_z += (float)sum;
    __syncthreads();
}

/* A block for a chunk; warp w takes the tokens w, w + warps, and so on. */
template <int PER>
static __global__ __launch_bounds__(THREADS<PER>, 1) void route_fwd_kernel(RouteForward a)
{
    __shared__ RouteRoom<PER> room;
    constexpr int WARPS = THREADS<PER> / WARP;
    constexpr bool AHEAD =
        PER <= 4; /* fetch the next token's logits: there are registers for them */
    int E = (int)a.s.E, warp = (int)threadIdx.x / WARP;
    int64_t b = blockIdx.x / a.s.chunks, t0 = blockIdx.x % a.s.chunks * a.s.tokens;
    int64_t first = b * a.s.T + t0, end = b * a.s.T + min(t0 + a.s.tokens, a.s.T);
    Share me = share_of(a.s);
    float q[PER] = {};
    for (int e = (int)threadIdx.x; e < E; e += THREADS<PER>) room.count[e] = 0;
    if (threadIdx.x < WARPS) room.squares[threadIdx.x] = 0;
    __syncthreads();
    float next[PER];
    int64_t n = first + warp;
    if (AHEAD && n < end) row_get(a.logits + n * E, a.s, me, -INFINITY, next);
    for (; n < end; n += WARPS) {
        float p[PER];
        int64_t from = AHEAD ? n + WARPS : n;
#pragma unroll
        for (int i = 0; i < PER; i++) p[i] = next[i];
        if (from < end) row_get(a.logits + from * E, a.s, me, -INFINITY, AHEAD ? next : p);
        fwd_token(a, n, me, room, p, q);
    }
    row_put(room.row_of(warp), a.s, me, q);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < E; e += THREADS<PER>) {
        float sum = 0;
#pragma unroll 8
        for (int w = 0; w < WARPS; w++) sum += room.row_of(w)[e];
        a.chunk[(int64_t)blockIdx.x * E + e] = { sum, room.count[e] };
    }
    if (threadIdx.x == 0) a.squares[blockIdx.x] = 0;
    for (int w = 0; threadIdx.x == 0 && w < WARPS; w++) a.squares[blockIdx.x] += room.squares[w];
    if (!is_last(a.ticket)) return;
    double *sums = (double *)room.row;
    add_chunks(a, sums, (int32_t *)(sums + MOST_THREADS));
    if (wants_z(a)) add_z(a, sums);
    if (a.rule.aux_scale == 0 || a.score_sum != NULL) return;
    int64_t all = a.s.B * E;
    add_loss(RouteLoss<double>{ a.seq_count, a.q, a.aux_loss, a.aux_factor, all,
                                a.rule.aux_per_batch ? E : all },
             sums);
}

/* E / (K T_g) / T_g, times aux_scale; T_g = tokens of a group, which lies on `parts` ranks. */
static double aux_factor(const RouteShape *s, const RouteRule *r, int64_t parts)
{
    double tokens = (double)((r->aux_per_batch ? s->N : s->T) * (parts > 1 ? parts : 1));
    return (double)r->aux_scale * (double)s->E / ((double)s->K * tokens) / tokens;
}

static size_t chunks_bytes(const RouteShape *s)
{
    return arena_rounded((size_t)(s->B * s->chunks * s->E) * sizeof(ChunkSum));
}

extern "C" size_t route_fwd_gpu_workspace(const struct Exec *, const void *args)
{
    const RouteFwd *a = (const RouteFwd *)args;
    RouteShape s = route_shape(&a->logits, &a->rule, tensor_elems(&a->domain));
    return chunks_bytes(&s) + (size_t)(s.B * s.E) * sizeof(double) +
           (size_t)(s.B * s.chunks) * sizeof(float);
}

extern "C" Status route_fwd_gpu(struct Exec *ex, const void *args)
{
    const RouteFwd *a = (const RouteFwd *)args;
    char *workspace = (char *)exec_workspace(ex);
    RouteForward f = {};
    f.s = route_shape(&a->logits, &a->rule, tensor_elems(&a->domain));
    f.s.wide = f.s.wide && packs_fit<float>({ a->bias.data }, {});
    f.rule = a->rule;
    f.logits = (const float *)a->logits.data;
    f.bias = (const float *)a->bias.data;
    f.domain = (const int32_t *)a->domain.data;
    f.index = (int32_t *)a->index.data;
    f.target = (const int32_t *)a->target.data;
    f.pos = (const int32_t *)a->pos.data;
    f.seq_count = (int32_t *)a->seq_count.data;
    f.load = (int32_t *)a->load.data;
    f.weight = (float *)a->weight.data;
    f.aux_loss = (float *)a->aux_loss.data;
    f.aux_factor = aux_factor(&f.s, &f.rule, 1);
    f.score = (float *)a->score.data;
    f.score_sum = (float *)a->score_sum.data;
    f.router_z = (float *)a->router_z.data;
    f.chunk = (ChunkSum *)(void *)workspace;
    f.q = (double *)(void *)(workspace + chunks_bytes(&f.s));
    f.squares = (float *)(void *)(f.q + f.s.B * f.s.E);
    f.ticket = exec_ticket(ex);
    TRY(shape_check("route_fwd", &f.s));
    return launch_per("route_fwd", f.s.each, [&](auto per) {
        route_fwd_kernel<per>
            <<<(unsigned)(f.s.B * f.s.chunks), THREADS<per>, 0, exec_stream(ex)>>>(f);
    });
}

template <typename Q>
static __global__ __launch_bounds__(MOST_THREADS) void route_loss_kernel(RouteLoss<Q> a)
{
    __shared__ double room[BLOCK_WARPS];
    add_loss(a, room);
}

extern "C" Status route_aux_gpu(struct Exec *ex, const void *args)
{
    const RouteAux *a = (const RouteAux *)args;
    RouteShape s = {};
    s.E = tensor_cols(&a->seq_count);
    s.B = tensor_elems(&a->seq_count) / s.E;
    s.N = a->tokens;
    s.T = s.N / s.B;
    s.K = a->rule.top_k;
    int64_t all = s.B * s.E;
    RouteLoss<float> loss = { (const int32_t *)a->seq_count.data,
                              (const float *)a->score_sum.data,
                              (float *)a->aux_loss.data,
                              aux_factor(&s, &a->rule, a->parts),
                              all,
                              a->rule.aux_per_batch ? s.E : all };
    route_loss_kernel<<<1, MOST_THREADS, 0, exec_stream(ex)>>>(loss);
    return kernel_status("route_aux");
}

/* Backward */

typedef struct RouteBackward {
    const float *logits; /* may be dlogits: a warp has read its token before it writes it */
    const int32_t *index, *seq_count;
    const float *dweight, *weight; /* weight may be NULL */
    float *dlogits;
    float aux_factor; /* 0 without an auxiliary loss */
    RouteShape s;
    RouteRule rule;
} RouteBackward;

/*
 * loss = sum over e of c_e * sum over t of q_te,  c_e = factor * n_e   so   dq_e = c_e
 * q = p (softmax):       dp_e = c_e
 * q = p / S (sigmoid):   dp_e = (c_e - sum_j c_j q_j) / S
 */
template <int PER>
static __device__ __forceinline__ void add_aux_gradient(const RouteBackward &a, const Share &me,
                                                        const int32_t *count, const float (&p)[PER],
                                                        float (&dp)[PER])
{
    float c[PER], mean = 0, inverse = inverse_sum(a.rule.score, p);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        c[i] = i < me.n ? a.aux_factor * (float)count[me.first + i] : 0;
        mean += c[i] * (p[i] * inverse);
    }
    mean = a.rule.score == ROUTE_SIGMOID ? warp_sum(mean) : 0;
#pragma unroll
    for (int i = 0; i < PER; i++) dp[i] += (c[i] - mean) * inverse;
}

/*
 * w_k = c p_k / S, S = sum of the chosen p    so  dp_k = c / S (dw_k - sum_j dw_j p_j / S)
 * w_k = c p_k                                     dp_k = c dw_k
 * By way of the warp's row: it gives the chosen p and takes the dp_k to the lanes that have them.
 */
template <int PER>
static __device__ __forceinline__ void set_weight_gradient(const RouteBackward &a, int64_t n,
                                                           const Share &me, float *row,
                                                           const float (&p)[PER], float (&dp)[PER])
{
    int K = (int)a.s.K, lane = (int)threadIdx.x % WARP;
    const int32_t *index = a.index + n * K;
    auto dweight = [&](int k) {
        return a.weight != NULL && a.weight[n * K + k] == 0 ? 0 : a.dweight[n * K + k];
    };
    float factor = a.rule.scaling, mean = 0;
    if (a.rule.normalise) {
        row_put(row, a.s, me, p);
        lanes_sync();
        float inverse = 1 / chosen_sum(K, row, index);
        for (int k = lane; k < K; k += WARP) mean += dweight(k) * (row[index[k]] * inverse);
        mean = warp_sum(mean);
        factor *= inverse;
        lanes_sync();
    }
    const float zero[PER] = {};
    row_put(row, a.s, me, zero);
    lanes_sync();
    for (int k = lane; k < K; k += WARP) row[index[k]] = factor * (dweight(k) - mean);
    lanes_sync();
    row_get(row, a.s, me, 0, dp);
    lanes_sync(); /* the next token takes the place of this one */
}

/* softmax:  dlogit = p (dp - sum_j p_j dp_j)          sigmoid:  dlogit = dp p (1 - p)
 * z-loss:   dlogit += 2 z_scale z e^(logit - z), of logits that are read once more */
template <int PER>
static __device__ __forceinline__ void bwd_token(const RouteBackward &a, int64_t n, const Share &me,
                                                 const int32_t *count, float *row)
{
    float p[PER], dp[PER], mean = 0;
    row_get(a.logits + n * a.s.E, a.s, me, -INFINITY, p);
    scores(a.rule.score, me, p);
    set_weight_gradient(a, n, me, row, p, dp);
    if (a.aux_factor != 0) add_aux_gradient(a, me, count, p, dp);
#pragma unroll
    for (int i = 0; i < PER; i++) mean += p[i] * dp[i];
    if (a.rule.score == ROUTE_SOFTMAX) mean = warp_sum(mean);
#pragma unroll
    for (int i = 0; i < PER; i++) {
        dp[i] = a.rule.score == ROUTE_SOFTMAX ? p[i] * (dp[i] - mean) : dp[i] * p[i] * (1 - p[i]);
    }
    if (a.rule.z_scale != 0) {
        row_get(a.logits + n * a.s.E, a.s, me, -INFINITY, p);
        float z = log_sum(me, p), dz = 2 * a.rule.z_scale * z;
#pragma unroll
        for (int i = 0; i < PER; i++) dp[i] += dz * exp_like_cpu(__fsub_rn(p[i], z));
    }
    row_put(a.dlogits + n * a.s.E, a.s, me, dp);
}

/* Blocks have the same chunks as in forward. Each first sums n_ge, of its sequence or of the batch. */
template <int PER>
static __global__ __launch_bounds__(THREADS<PER>, 1) void route_bwd_kernel(RouteBackward a)
{
    __shared__ RouteRoom<PER> room;
    int E = (int)a.s.E, warp = (int)threadIdx.x / WARP;
    int64_t b = blockIdx.x / a.s.chunks, t0 = blockIdx.x % a.s.chunks * a.s.tokens;
    int64_t first = b * a.s.T + t0, end = b * a.s.T + min(t0 + a.s.tokens, a.s.T);
    int64_t from = a.rule.aux_per_batch ? 0 : b, to = a.rule.aux_per_batch ? a.s.B : b + 1;
    Share me = share_of(a.s);
    for (int e = (int)threadIdx.x; e < E; e += THREADS<PER>) {
        int32_t count = 0;
        for (int64_t at = from; at < to; at++) count += a.seq_count[at * E + e];
        room.count[e] = count;
    }
    __syncthreads();
    for (int64_t n = first + warp; n < end; n += THREADS<PER> / WARP)
        bwd_token<PER>(a, n, me, room.count, room.row_of(warp));
}

extern "C" Status route_bwd_gpu(struct Exec *ex, const void *args)
{
    const RouteBwd *a = (const RouteBwd *)args;
    if (a->scale.data != NULL) return FAIL(ERR_UNSUPPORTED, "route_bwd: no kernel takes a scale");
    RouteBackward f = {};
    f.s = route_shape(&a->logits, &a->rule, tensor_elems(&a->seq_count) / tensor_cols(&a->logits));
    f.s.wide = f.s.wide && packs_fit<float>({ a->dlogits.data }, {});
    f.logits = (const float *)a->logits.data;
    f.index = (const int32_t *)a->index.data;
    f.seq_count = (const int32_t *)a->seq_count.data;
    f.dweight = (const float *)a->dweight.data;
    f.weight = (const float *)a->weight.data;
    f.dlogits = (float *)a->dlogits.data;
    f.rule = a->rule;
    f.aux_factor = (float)aux_factor(&f.s, &f.rule, a->parts);
    TRY(shape_check("route_bwd", &f.s));
    return launch_per("route_bwd", f.s.each, [&](auto per) {
        route_bwd_kernel<per>
            <<<(unsigned)(f.s.B * f.s.chunks), THREADS<per>, 0, exec_stream(ex)>>>(f);
    });
}
