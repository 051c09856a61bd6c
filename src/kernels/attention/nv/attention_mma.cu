/* attention_mma: launches the kernels for attention in bf16 by mma.sync. attention.def says which calls they take. */
#include "kernels/attention/nv/attention_call.cuh"
#include "kernels/attention/nv/attention_mma.cuh"

using namespace flash;
using namespace flash_mma;

extern "C" size_t attention_mma_fwd_workspace(const void *args)
{
    return fwd_call((const AttentionFwd *)args, NULL).bytes;
}

extern "C" size_t attention_mma_bwd_workspace(const void *args)
{
    return bwd_call((const AttentionBwd *)args, NULL).bytes;
}

/* The rectangle's rows of a tensor. */
static Side side_of(const Tensor *t, int64_t first, int64_t rows)
{
    int heads = (int)t->dim[2], width = (int)t->dim[3];
    return { (const Bf16 *)t->data + first * heads * width, (int)rows, heads, width, t->dim[1] };
}

/* A block for each part of each tile of each head. */
template <typename K>
static Status run_parts(struct Exec *ex, const char *op, K *kernel, unsigned threads, size_t bytes,
                        const Args *a, int64_t parts)
{
    if (parts == 0) return OK;
    TRY(kernel_shared(op, kernel, bytes));
    kernel<<<(unsigned)parts, threads, bytes, exec_stream(ex)>>>(*a);
    return kernel_status(op);
}

template <int DK, int DV>
static Status forward(struct Exec *ex, const AttentionFwd *f, const Call *c)
{
    typedef Fwd<DK, DV> R;
    const AttentionRect *r = &c->rect;
    bool part = in_blocks(f);
    Args a = {};
    a.q = side_of(&f->q, r->q, r->Tq);
    a.k = side_of(&f->k, r->k, r->Tk), a.v = side_of(&f->v, r->k, r->Tk);
    a.o = results_of(part, c->o, r->Tq, &f->o, r->q);
    a.tiles = c->tiles;
    a.lse = part ? c->part_lse : (float *)f->lse.data;
    a.H = a.q.heads, a.share = a.q.heads / a.k.heads, a.sequences = (unsigned)f->q.dim[0];
    a.factor = f->scale * log2_e;
    return run_parts(ex, "attention_fwd", attention_mma_fwd_kernel<DK, DV>, TEAM, R::BYTES, &a,
                     f->q.dim[0] * a.H * a.tiles.q_tiles * (ATTENTION_TILE / R::ROWS));
}

template <int DK, int DV>
static Status backward(struct Exec *ex, const AttentionBwd *b, const Call *c)
{
    typedef Bwd<DK, DV> R;
    const char *op = "attention_bwd";
    const AttentionRect *r = &c->rect;
    Args a = {};
    a.q = side_of(&b->q, r->q, r->Tq), a.d_o = side_of(&b->d_o, r->q, r->Tq);
    a.k = side_of(&b->k, r->k, r->Tk), a.v = side_of(&b->v, r->k, r->Tk);
    a.dq = results_of(is_part(&b->dq, &b->dq_before), c->dq, r->Tq, &b->dq, r->q);
    a.dk = results_of(is_part(&b->dk, &b->dk_before), c->dk, r->Tk, &b->dk, r->k);
    a.dv = results_of(is_part(&b->dv, &b->dv_before), c->dv, r->Tk, &b->dv, r->k);
    a.tiles = c->tiles;
    a.lse = c->lse, a.delta = c->delta;
    a.H = a.q.heads, a.share = a.q.heads / a.k.heads, a.sequences = (unsigned)b->q.dim[0];
    a.scale = b->scale, a.factor = b->scale * log2_e;
    int64_t heads = 2 * b->q.dim[0];
    TRY(run_parts(ex, op, attention_mma_dq_kernel<DK, DV>, TEAM, R::BYTES, &a,
                  heads * a.H * a.tiles.q_tiles));
    return run_parts(ex, op, attention_mma_dkv_kernel<DK, DV>, TEAM * R::SPLIT, R::BYTES, &a,
                     heads * a.k.heads * a.tiles.k_tiles);
}

static Status launch_fwd(struct Exec *ex, const AttentionFwd *f, const Call *c)
{
    int64_t dk = f->q.dim[3], dv = f->v.dim[3];
    if (dk <= 64 && dv <= 64) return forward<64, 64>(ex, f, c);
    if (dk <= 128 && dv <= 128) return forward<128, 128>(ex, f, c);
    return dk <= 192 && dv <= 128 ? forward<192, 128>(ex, f, c) : forward<256, 256>(ex, f, c);
}

static Status launch_bwd(struct Exec *ex, const AttentionBwd *b, const Call *c)
{
    int64_t dk = b->q.dim[3], dv = b->v.dim[3];
    if (dk <= 64 && dv <= 64) return backward<64, 64>(ex, b, c);
    if (dk <= 128 && dv <= 128) return backward<128, 128>(ex, b, c);
    return dk <= 192 && dv <= 128 ? backward<192, 128>(ex, b, c) : backward<256, 256>(ex, b, c);
}

extern "C" Status attention_mma_fwd(struct Exec *ex, const void *args)
{
    return fwd_whole(ex, args, launch_fwd);
}

extern "C" Status attention_mma_bwd(struct Exec *ex, const void *args)
{
    return bwd_whole(ex, args, launch_bwd);
}
