/* route_margin: the kernel that counts margins. A warp handles a token and keeps its c in shared memory. Counters are
 * added to in L2: lanes of a warp have different experts, so only tokens of different warps meet, and 8192 tokens are
 * spread over some ten bins of an expert. Scores have the CPU's bits for a sigmoid. A softmax's sum has another order,
 * so a margin at an edge of two bins may be counted in the other. */
#include "kernels/core/cpu_math.cuh"
#include "kernels/core/kernel.cuh"

#include "kernels/route/route_margin.h"

enum { MARGIN_WARPS = 8, MOST_EXPERTS = 1024, MARGIN_BLOCKS = 1024 };

/* c = p + bias of token n, for all lanes on return. */
static __device__ void margin_choices(const RouteMargins &a, int64_t n, int E, float *c)
{
    const float *logits = (const float *)a.logits.data + n * E, *bias = (const float *)a.bias.data;
    int lane = (int)threadIdx.x % WARP;
    float max = -INFINITY, sum = 0, inverse = 1;
    if (a.score == ROUTE_SOFTMAX) {
        for (int e = lane; e < E; e += WARP) max = fmaxf(max, logits[e]);
        max = warp_max(max);
        for (int e = lane; e < E; e += WARP) sum += c[e] = exp_like_cpu(__fsub_rn(logits[e], max));
        inverse = __frcp_rn(warp_sum(sum));
    }
    for (int e = lane; e < E; e += WARP) {
        float p = a.score == ROUTE_SOFTMAX ? __fmul_rn(c[e], inverse)
                                           : __frcp_rn(__fadd_rn(1.0f, exp_like_cpu(-logits[e])));
        c[e] = __fadd_rn(p, bias[e]);
    }
    lanes_sync();
}

static __device__ __forceinline__ void margin_count(const RouteMargins &a, int e, float margin,
                                                    bool chosen)
{
    atomicAdd((int32_t *)a.margins.data + e * MARGIN_BINS + margin_bin(margin, chosen), 1);
}

/* -infinity marks chosen experts, whose c lies in `own` from then on. */
static __global__ __launch_bounds__(MARGIN_WARPS *WARP) void route_margins_kernel(RouteMargins a,
                                                                                  int64_t N, int E,
                                                                                  int K)
{
    __shared__ float rows[MARGIN_WARPS][MOST_EXPERTS];
    int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    const int32_t *target = (const int32_t *)a.target.data;
    float *c = rows[warp];
    for (int64_t n = (int64_t)blockIdx.x * MARGIN_WARPS + warp; n < N;
         n += (int64_t)gridDim.x * MARGIN_WARPS) {
        if (target != NULL && target[n] < 0) continue;
        const int32_t *index = (const int32_t *)a.index.data + n * K;
        margin_choices(a, n, E, c);
        float last = c[index[K - 1]], next = -INFINITY, own[2] = {};
        for (int i = 0; i < 2; i++) own[i] = lane + i * WARP < K ? c[index[lane + i * WARP]] : 0;
        lanes_sync();
        for (int k = lane; k < K; k += WARP) c[index[k]] = -INFINITY;
        lanes_sync();
        for (int e = lane; e < E; e += WARP) {
            next = fmaxf(next, c[e]);
            if (c[e] != -INFINITY) margin_count(a, e, last - c[e], false);
        }
        next = warp_max(next);
        for (int i = 0; i < 2; i++) {
            int k = lane + i * WARP;
            if (k < K) margin_count(a, index[k], next - own[i], true);
        }
        lanes_sync(); /* the next token takes the place of this one */
    }
}

extern "C" Status route_margins_gpu(struct Exec *ex, const void *args)
{
    const RouteMargins *a = (const RouteMargins *)args;
    int64_t E = a->logits.dim[1], N = a->logits.dim[0], K = a->index.dim[1];
    if (E > MOST_EXPERTS || K > 2 * WARP) {
        return FAIL(ERR_UNSUPPORTED,
                    "route_margins: top_k %lld of %lld experts, on a GPU at most %d of %d",
                    (long long)K, (long long)E, 2 * WARP, (int)MOST_EXPERTS);
    }
    int64_t blocks = (N + MARGIN_WARPS - 1) / MARGIN_WARPS;
    if (N == 0) return OK;
    route_margins_kernel<<<(unsigned)(blocks < MARGIN_BLOCKS ? blocks : (int64_t)MARGIN_BLOCKS),
                           MARGIN_WARPS * WARP, 0, exec_stream(ex)>>>(*a, N, (int)E, (int)K);
    return kernel_status("route_margins");
}
