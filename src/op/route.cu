/*
 * route: one warp a token: its scores stand in shared memory, a lane has every 32nd expert.
 * Choosing is top_k times "the largest, and of equals the lowest", two instructions across a warp
 * each.
 *
 * Choices must be those of the CPU to the bit. So scores are worked out with the CPU's own e^x and
 * without contraction, and where an order of comparisons shows, with NaNs among the scores, one
 * lane does what the CPU does. A softmax's sum has another order here: it scales all scores of a
 * token alike, which leaves their order alone.
 *
 * A block is a chunk of one sequence's tokens. What it counts and adds up goes to the workspace;
 * the second launch adds the chunks of a sequence, the third the auxiliary loss, each in one order.
 */
#include "op/kernel.cuh"

#include "op/route.h"

enum {
    WARP = 32,
    MOST_WARPS = 8,      /* of a block */
    CHUNK = 64,          /* tokens of a block */
    SHARED = 160 * 1024, /* bytes of shared memory that a block may ask for from sm_80 on */
    SHARED_UNASKED = 48 * 1024,
    LOSS_THREADS = 1024,
};

static constexpr float TINY = 1e-20f; /* as on the CPU: keeps a sum of sigmoids away from 0 */

typedef struct RouteShape {
    int64_t B, T, N, E, K;
    int64_t chunks; /* of a sequence */
} RouteShape;

static RouteShape route_shape(const Tensor *logits, const RouteRule *r, int64_t sequences)
{
    RouteShape s = {};
    s.B = sequences;
    s.E = tensor_cols(logits);
    s.K = r->top_k;
    s.N = tensor_elems(logits) / s.E;
    s.T = s.N / s.B;
    s.chunks = (s.T + CHUNK - 1) / CHUNK;
    return s;
}

/* exp_f32 of op/cpu_math.h, step by step, with the multiply-adds that a CPU fuses. */
static __device__ __forceinline__ float exp_like_cpu(float x)
{
    x = -104.0f > x ? -104.0f : x;
    x = 89.0f < x ? 89.0f : x;
    const float shift = 12582912.0f;
    float shifted = __fmaf_rn(x, 1.44269504088896341f, shift);
    float n = __fsub_rn(shifted, shift);
    float r = __fmaf_rn(-n, 0.693359375f, x);
    r = __fmaf_rn(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = __fmaf_rn(p, r, 1.3981999507e-3f);
    p = __fmaf_rn(p, r, 8.3334519073e-3f);
    p = __fmaf_rn(p, r, 4.1665795894e-2f);
    p = __fmaf_rn(p, r, 1.6666665459e-1f);
    p = __fmaf_rn(p, r, 5.0000001201e-1f);
    p = __fadd_rn(__fmaf_rn(__fmul_rn(p, r), r, r), 1.0f);
    int32_t e = (int32_t)(__float_as_uint(shifted) - 0x4B400000u), half = e >> 1;
    float first = __uint_as_float((uint32_t)(half + 127) << 23);
    float second = __uint_as_float((uint32_t)(e - half + 127) << 23);
    return __fmul_rn(__fmul_rn(p, first), second);
}

/* By one warp, into shared memory; complete for all lanes on return. */
static __device__ void warp_scores(RouteScore kind, const float *logits, int64_t E, float *p)
{
    int64_t lane = threadIdx.x % WARP;
    if (kind == ROUTE_SIGMOID) {
        for (int64_t e = lane; e < E; e += WARP) {
            p[e] = __fdiv_rn(1.0f, __fadd_rn(1.0f, exp_like_cpu(-logits[e])));
        }
        __syncwarp();
        return;
    }
    float max = -INFINITY, sum = 0;
    for (int64_t e = lane; e < E; e += WARP) max = logits[e] > max ? logits[e] : max;
    max = warp_max(max);
    for (int64_t e = lane; e < E; e += WARP) {
        p[e] = exp_like_cpu(__fsub_rn(logits[e], max));
        sum += p[e];
    }
    float inverse = __fdiv_rn(1.0f, warp_sum(sum));
    for (int64_t e = lane; e < E; e += WARP) p[e] = __fmul_rn(p[e], inverse);
    __syncwarp();
}

/* The best `most` of the entries offered so far, falling, by the CPU's rule: of equals the first
 * one offered stays ahead, and a NaN is listed only while there is room. */
typedef struct Top {
    float *key;
    int32_t *id; /* or NULL: only keys are wanted */
    int64_t n, most;
} Top;

static __device__ void offer(Top *top, float key, int64_t id)
{
    if (top->n == top->most && !(key > top->key[top->n - 1])) return;
    int64_t at = top->n < top->most ? top->n++ : top->n - 1;
    for (; at > 0 && key > top->key[at - 1]; at--) {
        top->key[at] = top->key[at - 1];
        if (top->id != NULL) top->id[at] = top->id[at - 1];
    }
    top->key[at] = key;
    if (top->id != NULL) top->id[at] = (int32_t)id;
}

/* Shared memory of a warp. */
typedef struct RouteSpace {
    float *p, *choice, *q; /* (E) scores, what is chosen by, sum of q over the warp's tokens */
    float *list;           /* (E) lists of keys, or keys that compare as integers */
    int32_t *id;           /* (E) who is in the list */
    float *group_score;    /* (groups) */
    int32_t *open;         /* (groups) 1: experts of this group may be chosen */
} RouteSpace;

static int64_t fwd_words(int64_t E, const RouteRule *r)
{
    return (r->aux_scale != 0 ? 5 : 4) * E + 2 * r->groups;
}

static __device__ RouteSpace space_of(float *at, int64_t E, const RouteRule *r)
{
    RouteSpace s = {};
    s.p = at;
    s.choice = s.p + E;
    s.list = s.choice + E;
    s.id = (int32_t *)(void *)(s.list + E);
    s.group_score = s.list + 2 * E;
    s.open = (int32_t *)(void *)(s.group_score + r->groups);
    s.q = s.group_score + 2 * r->groups;
    return s;
}

/* open[g] = 1 for the top_groups groups with the largest sum of their best choices. A lane finds
 * the best of a group with a list of its own; the groups' own list is the work of one lane. */
static __device__ void open_groups(const RouteRule &r, int64_t E, const RouteSpace &s)
{
    int64_t per = E / r.groups, lane = threadIdx.x % WARP;
    for (int64_t g = lane; g < r.groups; g += WARP) {
        Top top = { s.list + g * per, NULL, 0, r.group_score_top };
        float sum = 0;
        for (int64_t e = g * per; e < (g + 1) * per; e++) offer(&top, s.choice[e], e);
        for (int64_t i = 0; i < top.n; i++) sum += top.key[i];
        s.group_score[g] = sum;
        s.open[g] = 0;
    }
    __syncwarp();
    if (lane == 0) {
        Top top = { s.list, s.id, 0, r.top_groups };
        for (int64_t g = 0; g < r.groups; g++) offer(&top, s.group_score[g], g);
        for (int64_t i = 0; i < top.n; i++) s.open[s.id[i]] = 1;
    }
    __syncwarp();
}

/* A float as an integer with the same order, above 0 for all but NaN; -0 counts as 0. */
static __device__ __forceinline__ uint32_t ordered(float v)
{
    uint32_t u = __float_as_uint(v == 0 ? 0.0f : v);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* id[0 .. K) = the K best by (key, lower number); a key of 0 is not there. */
static __device__ void take_best(uint32_t *key, int64_t E, int64_t K, int32_t *id)
{
    int32_t lane = threadIdx.x % WARP;
    for (int64_t k = 0; k < K; k++) {
        uint32_t best = 0;
        int32_t at = INT32_MAX;
        for (int64_t e = lane; e < E; e += WARP) {
            if (key[e] > best) {
                best = key[e];
                at = (int32_t)e;
            }
        }
        uint32_t highest = __reduce_max_sync(0xFFFFFFFFu, best);
        int32_t taken = __reduce_min_sync(0xFFFFFFFFu, best == highest ? at : INT32_MAX);
        if (taken == at) {
            key[taken] = 0;
            id[k] = taken;
        }
    }
    __syncwarp();
}

/* The K experts of a token in id. */
static __device__ void choose(const RouteRule &r, int64_t E, const float *bias, const RouteSpace &s)
{
    int64_t per = E / r.groups, lane = threadIdx.x % WARP;
    bool limited = r.groups > 1, odd = false;
    for (int64_t e = lane; e < E; e += WARP) {
        s.choice[e] = bias == NULL ? s.p[e] : __fadd_rn(s.p[e], bias[e]);
        odd = odd || isnan(s.choice[e]);
    }
    __syncwarp();
    if (limited) open_groups(r, E, s);
    if (__any_sync(0xFFFFFFFFu, odd)) {
        Top top = { s.list, s.id, 0, r.top_k };
        for (int64_t e = 0; lane == 0 && e < E; e++) {
            if (!limited || s.open[e / per]) offer(&top, s.choice[e], e);
        }
        __syncwarp();
        return;
    }
    uint32_t *key = (uint32_t *)(void *)s.list;
    for (int64_t e = lane; e < E; e += WARP) {
        key[e] = !limited || s.open[e / per] ? ordered(s.choice[e]) : 0;
    }
    __syncwarp();
    take_best(key, E, r.top_k, s.id);
}

/* The same in all lanes, added in the CPU's order. */
static __device__ float chosen_sum(int64_t K, const float *p, const int32_t *index)
{
    float sum = TINY;
    for (int64_t k = 0; k < K; k++) sum += p[index[k]];
    return sum;
}

/* 1 / sum(p), what makes q of p. */
static __device__ float inverse_sum(RouteScore kind, const float *p, int64_t E)
{
    if (kind == ROUTE_SOFTMAX) return 1;
    float sum = 0;
    for (int64_t e = threadIdx.x % WARP; e < E; e += WARP) sum += p[e];
    return 1 / (warp_sum(sum) + TINY);
}

/* Forward */

typedef struct RouteForward {
    const float *logits, *bias;
    const int32_t *domain, *target; /* the second may be NULL */
    int32_t *index, *seq_count, *load;
    float *weight, *aux_loss, *score_sum; /* the last may be NULL */
    int32_t *chunk_count;                 /* (B, chunks, E): of the workspace, like what follows */
    float *chunk_q; /* sum of q over the tokens of a chunk; NULL without an auxiliary loss */
    double *q;      /* (B, E) the same over a sequence */
    double aux_factor;
    RouteShape s;
    RouteRule rule;
} RouteForward;

static __device__ void fwd_token(const RouteForward &a, int64_t n, const RouteSpace &s,
                                 int32_t *count)
{
    const RouteRule &r = a.rule;
    int64_t E = a.s.E, K = a.s.K, lane = threadIdx.x % WARP;
    warp_scores(r.score, a.logits + n * E, E, s.p);
    choose(r, E, a.bias, s);
    bool counts = a.target == NULL || a.target[n] >= 0;
    float factor = r.normalise ? __fdiv_rn(r.scaling, chosen_sum(K, s.p, s.id)) : r.scaling;
    for (int64_t k = lane; k < K; k += WARP) {
        int32_t e = s.id[k];
        a.index[n * K + k] = e;
        a.weight[n * K + k] = s.p[e] * factor;
        if (counts) atomicAdd(&count[e], 1);
    }
    if (a.chunk_q != NULL) {
        float inverse = inverse_sum(r.score, s.p, E);
        for (int64_t e = lane; e < E; e += WARP) s.q[e] += s.p[e] * inverse;
    }
    __syncwarp(); /* the next token takes the place of this one */
}

/* A block for a chunk; warp w takes the tokens w, w + warps, and so on. */
static __global__ void route_fwd_kernel(RouteForward a)
{
    extern __shared__ float room[]; /* count (E), then each warp's space */
    int64_t E = a.s.E, warps = blockDim.x / WARP, warp = threadIdx.x / WARP;
    int64_t words = (a.chunk_q != NULL ? 5 : 4) * E + 2 * a.rule.groups;
    int64_t b = blockIdx.x / a.s.chunks, t0 = blockIdx.x % a.s.chunks * CHUNK;
    int64_t first = b * a.s.T + t0, end = b * a.s.T + min(t0 + CHUNK, a.s.T);
    int32_t *count = (int32_t *)(void *)room;
    RouteSpace s = space_of(room + E + warp * words, E, &a.rule);
    for (int64_t e = threadIdx.x; e < E; e += blockDim.x) count[e] = 0;
    for (int64_t e = threadIdx.x % WARP; a.chunk_q != NULL && e < E; e += WARP) s.q[e] = 0;
    __syncthreads();
    for (int64_t n = first + warp; n < end; n += warps) fwd_token(a, n, s, count);
    __syncthreads();
    for (int64_t e = threadIdx.x; e < E; e += blockDim.x) {
        a.chunk_count[blockIdx.x * E + e] = count[e];
        if (a.chunk_q == NULL) continue;
        float sum = 0;
        for (int64_t w = 0; w < warps; w++) {
            sum += space_of(room + E + w * words, E, &a.rule).q[e];
        }
        a.chunk_q[blockIdx.x * E + e] = sum;
    }
}

/* A block has 32 experts of a sequence: 32 rows of threads take its chunks in turn, and the first
 * row adds up what they found. */
static __global__ void route_count_kernel(RouteForward a)
{
    __shared__ int32_t counts[WARP][WARP];
    __shared__ double sums[WARP][WARP];
    int64_t E = a.s.E, b = blockIdx.x, e = (int64_t)blockIdx.y * WARP + threadIdx.x;
    int32_t count = 0;
    double q = 0;
    for (int64_t c = threadIdx.y; e < E && c < a.s.chunks; c += WARP) {
        int64_t at = (b * a.s.chunks + c) * E + e;
        count += a.chunk_count[at];
        if (a.chunk_q != NULL) q += (double)a.chunk_q[at];
    }
    counts[threadIdx.y][threadIdx.x] = count;
    sums[threadIdx.y][threadIdx.x] = q;
    __syncthreads();
    if (threadIdx.y > 0 || e >= E) return;
    for (int y = 1; y < WARP; y++) {
        count += counts[y][threadIdx.x];
        q += sums[y][threadIdx.x];
    }
    a.seq_count[b * E + e] = count;
    atomicAdd(&a.load[a.domain[b] * E + e], count);
    if (a.chunk_q != NULL) a.q[b * E + e] = q;
    if (a.score_sum != NULL) a.score_sum[b * E + e] = (float)q;
}

static __device__ double block_sum_double(double v)
{
    __shared__ double room[LOSS_THREADS / WARP];
    for (int lane = WARP / 2; lane > 0; lane /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, lane);
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = v;
    __syncthreads();
    v = 0;
    for (int w = 0; w < LOSS_THREADS / WARP; w++) v += room[w];
    return v;
}

/* A group's entries stand `step` apart: all sequences of the batch, or the one alone. */
template <typename Q> struct RouteLoss {
    const int32_t *seq_count;
    const Q *q; /* (B, E) sums over a sequence */
    float *aux_loss;
    double aux_factor;
    int64_t all, step;
};

/* One block. sum over groups of tokens and over e of n_ge * (sum over g of q_e). */
template <typename Q>
static __global__ __launch_bounds__(LOSS_THREADS) void route_loss_kernel(RouteLoss<Q> a)
{
    int64_t all = a.all, step = a.step;
    double loss = 0;
    for (int64_t i = threadIdx.x; i < step; i += LOSS_THREADS) {
        double n = 0, q = 0;
        for (int64_t at = i; at < all; at += step) {
            n += (double)a.seq_count[at];
            q += (double)a.q[at];
        }
        loss += n * q;
    }
    loss = block_sum_double(loss);
    if (threadIdx.x == 0) *a.aux_loss += (float)(a.aux_factor * loss);
}

/* E / (K T_g) / T_g, times aux_scale; T_g = tokens of a group, which lies on `parts` ranks. */
static double aux_factor(const RouteShape *s, const RouteRule *r, int64_t parts)
{
    double tokens = (double)((r->aux_per_batch ? s->N : s->T) * (parts > 1 ? parts : 1));
    return (double)r->aux_scale * (double)s->E / ((double)s->K * tokens) / tokens;
}

/* What a (B, chunks, E) array takes. */
static size_t chunk_bytes(const RouteShape *s)
{
    return arena_rounded((size_t)(s->B * s->chunks * s->E) * sizeof(float));
}

extern "C" size_t route_fwd_cuda_workspace(const struct Exec *, const void *args)
{
    const RouteFwd *a = (const RouteFwd *)args;
    RouteShape s = route_shape(&a->logits, &a->rule, tensor_elems(&a->domain));
    if (a->rule.aux_scale == 0) return chunk_bytes(&s);
    return 2 * chunk_bytes(&s) + (size_t)(s.B * s.E) * sizeof(double);
}

/* How many warps of `words` each a block has with `common` words beside them; 0: not even one. */
static unsigned warps_that_fit(int64_t words, int64_t common)
{
    unsigned warps = MOST_WARPS;
    while (warps > 0 && (common + warps * words) * (int64_t)sizeof(float) > SHARED) warps /= 2;
    return warps;
}

static Status shared_allow(const char *op, const void *kernel, size_t bytes)
{
    if (bytes <= SHARED_UNASKED) return OK;
    return cuda_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), op);
}

static Status experts_check(const char *op, unsigned warps, int64_t E)
{
    if (warps > 0) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s: %lld experts do not fit the %d bytes of a GPU's block", op,
                (long long)E, (int)SHARED);
}

static RouteForward forward_of(const RouteFwd *a, char *workspace)
{
    RouteForward f = {};
    f.s = route_shape(&a->logits, &a->rule, tensor_elems(&a->domain));
    f.rule = a->rule;
    f.logits = (const float *)a->logits.data;
    f.bias = (const float *)a->bias.data;
    f.domain = (const int32_t *)a->domain.data;
    f.index = (int32_t *)a->index.data;
    f.target = (const int32_t *)a->target.data;
    f.seq_count = (int32_t *)a->seq_count.data;
    f.load = (int32_t *)a->load.data;
    f.weight = (float *)a->weight.data;
    f.aux_loss = (float *)a->aux_loss.data;
    f.aux_factor = aux_factor(&f.s, &f.rule, 1);
    f.score_sum = (float *)a->score_sum.data;
    f.chunk_count = (int32_t *)(void *)workspace;
    if (a->rule.aux_scale == 0) return f;
    f.chunk_q = (float *)(void *)(workspace + chunk_bytes(&f.s));
    f.q = (double *)(void *)(workspace + 2 * chunk_bytes(&f.s));
    return f;
}

extern "C" Status route_fwd_cuda(struct Exec *ex, const void *args)
{
    const RouteFwd *a = (const RouteFwd *)args;
    RouteForward f = forward_of(a, (char *)exec_workspace(ex));
    const RouteShape &s = f.s;
    int64_t words = fwd_words(s.E, &f.rule);
    unsigned warps = warps_that_fit(words, s.E);
    size_t bytes = (size_t)(s.E + warps * words) * sizeof(float);
    TRY(experts_check("route_fwd", warps, s.E));
    TRY(shared_allow("route_fwd", (const void *)route_fwd_kernel, bytes));
    route_fwd_kernel<<<(unsigned)(s.B * s.chunks), warps * WARP, bytes, exec_stream(ex)>>>(f);
    TRY(kernel_status("route_fwd"));
    dim3 grid((unsigned)s.B, grid_of(s.E, WARP));
    route_count_kernel<<<grid, dim3(WARP, WARP), 0, exec_stream(ex)>>>(f);
    TRY(kernel_status("route_fwd"));
    if (f.chunk_q == NULL || f.score_sum != NULL) return OK;
    int64_t all = s.B * s.E;
    RouteLoss<double> loss = { f.seq_count,  f.q, f.aux_loss,
                               f.aux_factor, all, f.rule.aux_per_batch ? s.E : all };
    route_loss_kernel<<<1, LOSS_THREADS, 0, exec_stream(ex)>>>(loss);
    return kernel_status("route_fwd");
}

extern "C" Status route_aux_cuda(struct Exec *ex, const void *args)
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
    route_loss_kernel<<<1, LOSS_THREADS, 0, exec_stream(ex)>>>(loss);
    return kernel_status("route_aux");
}

/* Backward */

typedef struct RouteBackward {
    const float *logits; /* may be dlogits: a warp has read its token before it writes it */
    const int32_t *index, *seq_count;
    const float *dweight;
    float *dlogits;
    int32_t *batch_count; /* (E): of the workspace */
    float aux_factor;
    RouteShape s;
    RouteRule rule;
} RouteBackward;

/* The counts of the whole batch, where that is the group of the auxiliary loss. */
static __global__ void route_batch_count_kernel(RouteBackward a)
{
    int64_t E = a.s.E, e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= E) return;
    int32_t count = 0;
    for (int64_t b = 0; b < a.s.B; b++) count += a.seq_count[b * E + e];
    a.batch_count[e] = count;
}

/*
 * loss = sum over e of c_e * sum over t of q_te,  c_e = factor * n_e   so   dq_e = c_e
 * q = p (softmax):       dp_e = c_e
 * q = p / S (sigmoid):   dp_e = (c_e - sum_j c_j q_j) / S
 */
static __device__ void set_aux_gradient(const RouteBackward &a, int64_t n, const float *p,
                                        float *dp)
{
    int64_t E = a.s.E, lane = threadIdx.x % WARP;
    const int32_t *count = a.rule.aux_per_batch ? a.batch_count : a.seq_count + n / a.s.T * E;
    float c = a.aux_factor, mean = 0, inverse = inverse_sum(a.rule.score, p, E);
    if (a.rule.score == ROUTE_SIGMOID) {
        for (int64_t e = lane; e < E; e += WARP) mean += c * (float)count[e] * (p[e] * inverse);
        mean = warp_sum(mean);
    }
    for (int64_t e = lane; e < E; e += WARP) dp[e] = (c * (float)count[e] - mean) * inverse;
}

/*
 * w_k = c p_k / S, S = sum of the chosen p    so  dp_k = c / S (dw_k - sum_j dw_j p_j / S)
 * w_k = c p_k                                     dp_k = c dw_k
 * An entry of dp belongs to one lane, here as in all loops over experts.
 */
static __device__ void add_weight_gradient(const RouteBackward &a, int64_t n, const float *p,
                                           float *dp)
{
    int64_t K = a.s.K;
    const int32_t *index = a.index + n * K;
    const float *dweight = a.dweight + n * K;
    float factor = a.rule.scaling, mean = 0;
    if (a.rule.normalise) {
        float inverse = 1 / chosen_sum(K, p, index);
        for (int64_t k = 0; k < K; k++) mean += dweight[k] * (p[index[k]] * inverse);
        factor *= inverse;
    }
    for (int64_t k = 0; k < K; k++) {
        if (index[k] % WARP == (int32_t)threadIdx.x % WARP) {
            dp[index[k]] += factor * (dweight[k] - mean);
        }
    }
}

/* softmax:  dlogit = p (dp - sum_j p_j dp_j)          sigmoid:  dlogit = dp p (1 - p) */
static __global__ void route_bwd_kernel(RouteBackward a)
{
    extern __shared__ float room[]; /* p and dp of each warp */
    int64_t E = a.s.E, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int64_t n = (int64_t)blockIdx.x * (blockDim.x / WARP) + warp;
    float *p = room + warp * 2 * E, *dp = p + E, mean = 0;
    if (n >= a.s.N) return;
    warp_scores(a.rule.score, a.logits + n * E, E, p);
    if (a.rule.aux_scale != 0) {
        set_aux_gradient(a, n, p, dp);
    } else {
        for (int64_t e = lane; e < E; e += WARP) dp[e] = 0;
    }
    add_weight_gradient(a, n, p, dp);
    float *dlogits = a.dlogits + n * E;
    if (a.rule.score == ROUTE_SIGMOID) {
        for (int64_t e = lane; e < E; e += WARP) dlogits[e] = dp[e] * p[e] * (1 - p[e]);
        return;
    }
    for (int64_t e = lane; e < E; e += WARP) mean += p[e] * dp[e];
    mean = warp_sum(mean);
    for (int64_t e = lane; e < E; e += WARP) dlogits[e] = p[e] * (dp[e] - mean);
}

extern "C" size_t route_bwd_cuda_workspace(const struct Exec *, const void *args)
{
    const RouteBwd *a = (const RouteBwd *)args;
    return (size_t)tensor_cols(&a->logits) * sizeof(int32_t);
}

extern "C" Status route_bwd_cuda(struct Exec *ex, const void *args)
{
    const RouteBwd *a = (const RouteBwd *)args;
    RouteBackward f = {};
    f.s = route_shape(&a->logits, &a->rule, tensor_elems(&a->seq_count) / tensor_cols(&a->logits));
    f.logits = (const float *)a->logits.data;
    f.index = (const int32_t *)a->index.data;
    f.seq_count = (const int32_t *)a->seq_count.data;
    f.dweight = (const float *)a->dweight.data;
    f.dlogits = (float *)a->dlogits.data;
    f.batch_count = (int32_t *)exec_workspace(ex);
    f.rule = a->rule;
    f.aux_factor = (float)aux_factor(&f.s, &f.rule, a->parts);
    unsigned warps = warps_that_fit(2 * f.s.E, 0);
    size_t bytes = (size_t)(warps * 2 * f.s.E) * sizeof(float);
    TRY(experts_check("route_bwd", warps, f.s.E));
    TRY(shared_allow("route_bwd", (const void *)route_bwd_kernel, bytes));
    if (f.rule.aux_scale != 0 && f.rule.aux_per_batch) {
        route_batch_count_kernel<<<grid_of(f.s.E, 256), 256, 0, exec_stream(ex)>>>(f);
        TRY(kernel_status("route_bwd"));
    }
    route_bwd_kernel<<<grid_of(f.s.N, warps), warps * WARP, bytes, exec_stream(ex)>>>(f);
    return kernel_status("route_bwd");
}
