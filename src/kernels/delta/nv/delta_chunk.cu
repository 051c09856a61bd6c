/* delta_chunk: launches the kernels of the gated delta rule by chunks. delta_kernels.c says which calls they take. */
#include "kernels/delta/nv/delta_chunk_bwd.cuh"

#include "kernels/delta/delta.h"
#include "kernels/delta/delta_call.cuh"

using namespace delta;

#define KERNEL(name, threads, ...)                                                                 \
    template <int D>                                                                               \
    static __global__ __launch_bounds__(threads) void delta_##name##_kernel(const Args a)          \
    {                                                                                              \
        extern __shared__ __align__(128) unsigned char memory[];                                   \
        __VA_ARGS__(a, memory);                                                                    \
    }
KERNEL(prepare, TILE_THREADS, prepare_run<D>)
KERNEL(pass, PASS_THREADS, pass_run<D, false>)
KERNEL(span, PASS_THREADS, pass_run<D, true>)
KERNEL(out, TILE_THREADS, out_run<D>)
KERNEL(pull, TILE_THREADS, pull_run<D>)
KERNEL(back, PASS_THREADS, back_run<D>)
KERNEL(slope, SLOPE_THREADS, slope_run<D>)
#undef KERNEL

/* A slab has at least this many heads, or all, so that `pass` fills the GPU; and more while it fits the bytes. */
enum { SLAB_LEAST = 32, SLAB_BYTES = 1 << 30 };

typedef struct Plan {
    int64_t units, slab; /* heads of all sequences, and of a slab */
    int chunks, width;
    size_t tile, state, square, marks, bytes; /* of a slab: a tile of each chunk, ...; all of it */
} Plan;

static Plan plan_of(const DeltaRuleFwd *f, bool back)
{
    const DeltaDims *d = &f->dims;
    Plan p = {};
    p.units = f->x.dim[0] / f->sequence * d->heads;
    p.chunks = (int)((f->sequence + CHUNK - 1) / CHUNK);
    p.width = d->key <= 64 && d->value <= 64 ? 64 : 128;
    size_t tile = CHUNK * (size_t)p.width * 2, state = (size_t)(p.width * p.width) * 2;
    size_t square = CHUNK * CHUNK * 2, marks = MARKS * CHUNK * 4, each = back ? 2 : 1;
    size_t unit = (size_t)p.chunks * ((1 + each) * tile + each * state + square + marks);
    int64_t shared = d->heads / d->key_heads, fit = (int64_t)(SLAB_BYTES / unit);
    p.slab = fit > SLAB_LEAST ? fit : (int64_t)SLAB_LEAST;
    p.slab = (p.slab + shared - 1) / shared * shared;
    if (p.slab > p.units) p.slab = p.units;
    size_t slots = (size_t)(p.slab * p.chunks);
    p.tile = slots * tile, p.state = slots * state, p.square = slots * square;
    p.marks = slots * marks, p.bytes = (size_t)p.slab * unit;
    return p;
}

/* The workspace from `at` on. */
static Args args_of(const DeltaRuleFwd *f, const Plan *p, bool back, char *at)
{
    Args a = {};
    a.s = delta_rule_shape(f);
    a.qkv = (const Bf16 *)f->qkv.data, a.x = (const Bf16 *)f->x.data;
    a.decay = (const float *)f->decay.data, a.state = (float *)f->state.data;
    a.chunks = p->chunks, a.q_scale = 1 / sqrtf((float)f->dims.key);
    a.W = (Bf16 *)at, at += p->tile;
    a.U = (Bf16 *)at, at += p->tile;
    a.S = (Bf16 *)at, at += p->state;
    a.X = (Bf16 *)at, at += p->square;
    a.marks = (float *)at, at += p->marks;
    if (!back) return a;
    a.dU = (Bf16 *)at, at += p->tile;
    a.dS = (Bf16 *)at;
    return a;
}

template <typename K>
static Status run(struct Exec *ex, K *kernel, int64_t blocks, unsigned threads, size_t bytes,
                  const Args *a)
{
    TRY(kernel_shared("delta_rule", kernel, bytes));
    kernel<<<(unsigned)blocks, threads, bytes, exec_stream(ex)>>>(*a);
    return kernel_status("delta_rule");
}

/* What is run for n heads from a->unit on. */
typedef Status Part(struct Exec *ex, const Args *a, int64_t n);

template <int D> static Status run_prepare(struct Exec *ex, const Args *a, int64_t n)
{
    return run(ex, delta_prepare_kernel<D>, n * a->chunks, TILE_THREADS, Prepare<D>::BYTES, a);
}

template <int D> static Status run_pass(struct Exec *ex, const Args *a, int64_t n)
{
    TRY(run_prepare<D>(ex, a, n));
    return run(ex, delta_pass_kernel<D>, n * D / PASS_ROWS, PASS_THREADS, Pass<D, false>::BYTES, a);
}

/* P^T dO and what follows from chunk to chunk. */
template <int D> static Status run_back(struct Exec *ex, const Args *a, int64_t n)
{
    TRY(run(ex, delta_pull_kernel<D>, n * a->chunks, TILE_THREADS, Pull<D>::BYTES, a));
    return run(ex, delta_back_kernel<D>, n * D / PASS_ROWS, PASS_THREADS, Pass<D, true>::BYTES, a);
}

template <int D> static Status forward(struct Exec *ex, const Args *a, int64_t n)
{
    TRY(run_pass<D>(ex, a, n));
    return run(ex, delta_out_kernel<D>, n * a->chunks, TILE_THREADS, Out<D>::BYTES, a);
}

template <int D> static Status backward(struct Exec *ex, const Args *a, int64_t n)
{
    TRY(run_pass<D>(ex, a, n));
    TRY(run_back<D>(ex, a, n));
    return run(ex, delta_slope_kernel<D>, n / a->s.shared * a->chunks, SLOPE_THREADS,
               Slope<D>::BYTES, a);
}

template <int D> static Status span_forward(struct Exec *ex, const Args *a, int64_t n)
{
    TRY(run_prepare<D>(ex, a, n));
    return run(ex, delta_span_kernel<D>, 2 * n * D / PASS_ROWS, PASS_THREADS, Pass<D, false>::BYTES,
               a);
}

template <int D> static Status span_backward(struct Exec *ex, const Args *a, int64_t n)
{
    TRY(run_prepare<D>(ex, a, n));
    return run_back<D>(ex, a, n);
}

static Status run_slabs(struct Exec *ex, const Plan *p, Args a, Part *narrow, Part *wide)
{
    for (; a.unit < p->units; a.unit += p->slab) {
        int64_t n = p->units - a.unit < p->slab ? p->units - a.unit : p->slab;
        TRY((p->width == 64 ? narrow : wide)(ex, &a, n));
    }
    return OK;
}

extern "C" size_t delta_chunk_fwd_workspace(const void *args)
{
    return plan_of((const DeltaRuleFwd *)args, false).bytes;
}

extern "C" size_t delta_chunk_bwd_workspace(const void *args)
{
    const DeltaRuleFwd *f = &((const DeltaRuleBwd *)args)->of;
    return plan_of(f, true).bytes + delta_finish_bytes(f);
}

extern "C" Status delta_chunk_fwd(struct Exec *ex, const void *args)
{
    const DeltaRuleFwd *f = (const DeltaRuleFwd *)args;
    Plan p = plan_of(f, false);
    Args a = args_of(f, &p, false, (char *)exec_workspace(ex));
    a.o = (Bf16 *)f->o.data;
    return run_slabs(ex, &p, a, forward<64>, forward<128>);
}

extern "C" Status delta_chunk_bwd(struct Exec *ex, const void *args)
{
    const DeltaRuleBwd *b = (const DeltaRuleBwd *)args;
    Plan p = plan_of(&b->of, true);
    float *slopes = (float *)exec_workspace(ex);
    Args a = args_of(&b->of, &p, true, (char *)slopes + delta_finish_bytes(&b->of));
    a.d_o = (const Bf16 *)b->of.o.data, a.dqkv = (Bf16 *)b->dqkv.data, a.slopes = slopes;
    a.dstate = (float *)b->dstate.data;
    TRY(run_slabs(ex, &p, a, backward<64>, backward<128>));
    return delta_finish(ex, b, slopes);
}

extern "C" size_t delta_chunk_span_fwd_workspace(const void *args)
{
    return plan_of(&((const DeltaSpanFwd *)args)->of, false).bytes;
}

extern "C" size_t delta_chunk_span_bwd_workspace(const void *args)
{
    return plan_of(&((const DeltaSpanBwd *)args)->of, true).bytes;
}

extern "C" Status delta_chunk_span_fwd(struct Exec *ex, const void *args)
{
    const DeltaSpanFwd *f = (const DeltaSpanFwd *)args;
    Plan p = plan_of(&f->of, false);
    Args a = args_of(&f->of, &p, false, (char *)exec_workspace(ex));
    a.span = (float *)f->span.data;
    return run_slabs(ex, &p, a, span_forward<64>, span_forward<128>);
}

extern "C" Status delta_chunk_span_bwd(struct Exec *ex, const void *args)
{
    const DeltaSpanBwd *b = (const DeltaSpanBwd *)args;
    Plan p = plan_of(&b->of, true);
    Args a = args_of(&b->of, &p, true, (char *)exec_workspace(ex));
    a.d_o = (const Bf16 *)b->of.o.data, a.span = (float *)b->span.data;
    return run_slabs(ex, &p, a, span_backward<64>, span_backward<128>);
}
