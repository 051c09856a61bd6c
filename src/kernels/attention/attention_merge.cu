/*
 * attention_merge: the kernels of attention_merge.cuh. They are bound by memory. A block of threads
 * handles one token's row of all heads; a thread moves 16 bytes of bf16 at a time. Widths are
 * multiples of 8 and rows begin at multiples of 16 bytes, which the fused kernel requires, too.
 */
#include "kernels/attention/attention_merge.cuh"

#include "kernels/core/pack.cuh"

#include <assert.h>

enum { THREADS = 256, PART = 8, LANES_MAX = 32 };
static_assert((int)LANES_MAX <= WARP, "threads that share a row are of one warp");

/* forward */

/* o and lse are those of the call; part is the rectangle that the kernel wrote. */
template <typename T> struct Join {
    AttentionRect rect;
    const Bf16 *part;
    const float *part_lse, *o_before, *lse_before;
    T *o;
    float *lse;
    int64_t Tq;
    int H, width, lanes; /* width of a head in packs; threads that share one, a power of 2 */
};

/* The weights of a head's row in the result over earlier keys and in the part. row: the row's index
 * in the part; -1: the part does not have it. */
template <typename T>
static __device__ __forceinline__ AttentionMerge join_row(const Join<T> &x, int64_t b, int64_t at,
                                                          int h, int64_t row)
{
    float before = -INFINITY, part = -INFINITY;
    if (row >= 0) part = x.part_lse[(b * x.H + h) * x.rect.Tq + row];
    if (x.lse_before != NULL) before = x.lse_before[(b * x.H + h) * x.Tq + at];
    return attention_merge(before, part);
}

/* o of a row without keys may be NaN, so a term with weight 0 is not read. */
template <typename T>
static __device__ __forceinline__ void join_pack(const Join<T> &x, const AttentionMerge &m,
                                                 const Bf16 *part, int64_t at)
{
    float sum[PART] = {}, v[PART];
    if (x.o_before != NULL && m.before != 0) {
        load<true>(x.o_before + at, v);
#pragma unroll
        for (int k = 0; k < PART; k++) sum[k] = m.before * v[k];
    }
    if (part != NULL && m.part != 0) {
        load_const<true>(part, v);
#pragma unroll
        for (int k = 0; k < PART; k++) sum[k] += m.part * v[k];
    }
    store<true>(x.o + at, sum);
}

/* All threads that share a row read its lse; then, after lanes_sync, the first of them writes it. */
template <typename T>
static __global__
__launch_bounds__(THREADS) void attention_join_kernel(const __grid_constant__ Join<T> x)
{
    int64_t token = blockIdx.x, b = token / x.Tq, at = token - b * x.Tq, row = at - x.rect.q;
    int lane = (int)threadIdx.x & (x.lanes - 1), rows = THREADS / x.lanes;
    int first = (int)threadIdx.x / x.lanes;
    if (row < 0 || row >= x.rect.Tq) row = -1;
    /* a sum in place does not change rows that the part does not have */
    if (row < 0 && (const void *)x.o_before == (const void *)x.o && x.lse_before == x.lse) return;
    for (int h0 = 0; h0 < x.H; h0 += rows) {
        int h = h0 + first;
        AttentionMerge m = {};
        if (h < x.H) m = join_row(x, b, at, h, row);
        lanes_sync();
        if (h >= x.H) continue;
        if (lane == 0) x.lse[(b * x.H + h) * x.Tq + at] = m.lse;
        if (lane >= x.width) continue;
        int64_t part = ((b * x.rect.Tq + row) * x.H + h) * x.width + lane;
        join_pack(x, m, row < 0 ? NULL : x.part + part * PART,
                  ((token * x.H + h) * x.width + lane) * PART);
    }
}

template <typename T> static Status join(struct Exec *ex, const AttentionJoin *a)
{
    const Tensor *o = a->o;
    Join<T> x = {};
    x.rect = a->rect;
    x.part = a->part;
    x.part_lse = a->part_lse;
    x.o_before = (const float *)a->o_before->data;
    x.lse_before = x.o_before == NULL ? NULL : (const float *)a->lse_before->data;
    x.o = (T *)o->data;
    x.lse = (float *)a->lse->data;
    x.Tq = o->dim[1];
    x.H = (int)o->dim[2];
    x.width = (int)o->dim[3] / PART;
    for (x.lanes = 1; x.lanes < x.width;) x.lanes *= 2;
    assert(x.lanes <= LANES_MAX);
    unsigned blocks = (unsigned)(o->dim[0] * x.Tq);
    attention_join_kernel<T><<<blocks, THREADS, 0, exec_stream(ex)>>>(x);
    return kernel_status("attention_fwd");
}

Status attention_join(struct Exec *ex, const AttentionJoin *x)
{
    return x->o->dtype == DTYPE_F32 ? join<float>(ex, x) : join<Bf16>(ex, x);
}

/* backward */

/* One of up to three outputs of a backward call: dq, dk or dv. Widths are in packs of PART elements. */
struct Sum {
    const Bf16 *part;
    int64_t first, rows, T, width; /* width of a token in packs */
    const void *before;
    void *out;
    bool out_f32, before_f32;
};

struct Sums {
    Sum of[ATTENTION_SUMS];
    int64_t B;
};

static __device__ __forceinline__ void sum_pack(const Sum &x, const Bf16 *part, int64_t at)
{
    float sum[PART] = {}, v[PART];
    if (x.before != NULL && x.before_f32) load<true>((const float *)x.before + at, sum);
    if (x.before != NULL && !x.before_f32) load<true>((const Bf16 *)x.before + at, sum);
    if (part != NULL) {
        load_const<true>(part, v);
#pragma unroll
        for (int k = 0; k < PART; k++) sum[k] += v[k];
    }
    if (x.out_f32)
        store<true>((float *)x.out + at, sum);
    else
        store<true>((Bf16 *)x.out + at, sum);
}

static __global__
__launch_bounds__(THREADS) void attention_sums_kernel(const __grid_constant__ Sums all)
{
    const Sum &x = all.of[blockIdx.y];
    int64_t token = blockIdx.x, b = token / max(x.T, (int64_t)1), row = token - b * x.T - x.first;
    bool inside = row >= 0 && row < x.rows;
    if (b >= all.B || x.out == NULL) return;
    if (inside ? x.part == NULL : x.before == x.out) return;
    const Bf16 *part = inside ? x.part + (b * x.rows + row) * x.width * PART : NULL;
    for (int64_t i = threadIdx.x; i < x.width; i += THREADS)
        sum_pack(x, part == NULL ? NULL : part + i * PART, (token * x.width + i) * PART);
}

/* One launch for all three: blockIdx.y says which, so that small sums do not wait for each other. */
Status attention_sums(struct Exec *ex, const AttentionSum x[ATTENTION_SUMS])
{
    Sums all = {};
    int64_t tokens = 0;
    for (int i = 0; i < ATTENTION_SUMS; i++) {
        const Tensor *out = x[i].out, *before = x[i].before;
        bool whole = x[i].part == NULL && x[i].rows == out->dim[1];
        if (whole) continue; /* the fused kernel has written all of it */
        Sum *s = &all.of[i];
        s->part = x[i].part;
        s->first = x[i].first;
        s->rows = x[i].rows;
        s->T = out->dim[1];
        s->width = out->dim[2] * out->dim[3] / PART;
        s->before = before->data;
        s->out = out->data;
        s->out_f32 = out->dtype == DTYPE_F32;
        s->before_f32 = before->dtype == DTYPE_F32;
        all.B = out->dim[0];
        tokens = max(tokens, all.B * s->T);
    }
    if (tokens == 0) return OK;
    dim3 blocks((unsigned)tokens, ATTENTION_SUMS);
    attention_sums_kernel<<<blocks, THREADS, 0, exec_stream(ex)>>>(all);
    return kernel_status("attention_bwd");
}
