/*
 * attention_hopper: launches the kernels for attention in bf16 on Hopper. attention.def says which calls they take.
 */
#include "kernels/attention/nv/attention_call.cuh"
#include "kernels/attention/nv/attention_hopper_bwd.cuh"
#include "kernels/attention/nv/attention_hopper_fwd.cuh"

using namespace flash;

extern "C" size_t attention_hopper_fwd_workspace(const void *args)
{
    return fwd_call((const AttentionFwd *)args, NULL).bytes;
}

extern "C" size_t attention_hopper_bwd_workspace(const void *args)
{
    return bwd_call((const AttentionBwd *)args, NULL).bytes;
}

/* Runs a kernel on as many blocks as there are jobs, or multiprocessors. */
template <typename K, typename A>
static Status run_jobs(struct Exec *ex, const char *op, K *kernel, size_t bytes, A *a, int64_t jobs)
{
    a->jobs = (unsigned)jobs;
    a->ticket = exec_ticket(ex);
    if (jobs == 0) return OK;
    TRY(kernel_shared(op, kernel, bytes));
    kernel<<<hopper_blocks(ex, jobs), BLOCK_THREADS, bytes, exec_stream(ex)>>>(*a);
    return kernel_status(op);
}

template <int DK, int DV, int KEYS = TILE>
static Status forward(struct Exec *ex, const AttentionFwd *f, const Call *c)
{
    const char *op = "attention_fwd";
    bool part = in_blocks(f);
    FwdArgs a = {};
    TRY(head_map(op, &f->q, TILE, &a.q));
    TRY(head_map(op, &f->k, KEYS, &a.k));
    TRY(head_map(op, &f->v, KEYS, &a.v));
    a.tiles = c->tiles;
    a.o = results_of(part, c->o, c->rect.Tq, &f->o, c->rect.q);
    a.lse = part ? c->part_lse : (float *)f->lse.data;
    a.lse_rows = (int)c->rect.Tq;
    a.q_at = (int)c->rect.q, a.k_at = (int)c->rect.k;
    a.H = (int)f->q.dim[2], a.share = (int)(f->q.dim[2] / f->k.dim[2]);
    a.factor = f->scale * log2_e;
    return run_jobs(ex, op, attention_fwd_kernel<DK, DV, KEYS>, FwdRoom<DK, DV, KEYS>::BYTES, &a,
                    f->q.dim[0] * a.H * a.tiles.q_tiles);
}

static Status launch_fwd(struct Exec *ex, const AttentionFwd *f, const Call *c)
{
    int64_t dk = f->q.dim[3], dv = f->v.dim[3];
    bool narrow = f->window > 0 && f->window <= TILE;
    if (dk <= 64 && dv <= 64 && narrow) return forward<64, 64, HALF>(ex, f, c);
    if (dk <= 64 && dv <= 64) return forward<64, 64>(ex, f, c);
    return dk <= 128 ? forward<128, 128>(ex, f, c) : forward<192, 128>(ex, f, c);
}

extern "C" Status attention_hopper_fwd(struct Exec *ex, const void *args)
{
    return fwd_whole(ex, args, launch_fwd);
}

/* Maps of a kernel whose tiles have these rows. */
static Status set_maps(const AttentionBwd *b, int queries, int keys, BwdArgs *a)
{
    const char *op = "attention_bwd";
    TRY(head_map(op, &b->q, queries, &a->q));
    TRY(head_map(op, &b->d_o, queries, &a->d_o));
    TRY(head_map(op, &b->k, keys, &a->k));
    return head_map(op, &b->v, keys, &a->v);
}

template <int DK, int DV>
static Status backward(struct Exec *ex, const AttentionBwd *b, const Call *c)
{
    typedef DqRoom<DK, DV> Dq;
    typedef DkvRoom<DK, DV> Dkv;
    const char *op = "attention_bwd";
    const AttentionRect *r = &c->rect;
    BwdArgs a = {};
    a.tiles = c->tiles;
    a.lse = c->lse, a.delta = c->delta;
    a.dq = results_of(is_part(&b->dq, &b->dq_before), c->dq, r->Tq, &b->dq, r->q);
    a.dk = results_of(is_part(&b->dk, &b->dk_before), c->dk, r->Tk, &b->dk, r->k);
    a.dv = results_of(is_part(&b->dv, &b->dv_before), c->dv, r->Tk, &b->dv, r->k);
    a.q_at = (int)r->q, a.k_at = (int)r->k;
    a.H = (int)b->q.dim[2], a.share = (int)(b->q.dim[2] / b->k.dim[2]);
    a.scale = b->scale, a.factor = b->scale * log2_e;
    TRY(set_maps(b, TILE, Dq::KEYS, &a));
    TRY(run_jobs(ex, op, attention_dq_kernel<DK, DV>, Dq::BYTES, &a,
                 b->q.dim[0] * a.H * a.tiles.q_tiles));
    TRY(set_maps(b, Dkv::QUERIES, TILE, &a));
    return run_jobs(ex, op, attention_dkv_kernel<DK, DV>, Dkv::BYTES, &a,
                    b->q.dim[0] * (a.H / a.share) * a.tiles.k_tiles);
}

static Status launch_bwd(struct Exec *ex, const AttentionBwd *b, const Call *c)
{
    int64_t dk = b->q.dim[3], dv = b->v.dim[3];
    if (dk <= 64 && dv <= 64) return backward<64, 64>(ex, b, c);
    return dk <= 128 ? backward<128, 128>(ex, b, c) : backward<192, 128>(ex, b, c);
}

extern "C" Status attention_hopper_bwd(struct Exec *ex, const void *args)
{
    return bwd_whole(ex, args, launch_bwd);
}
