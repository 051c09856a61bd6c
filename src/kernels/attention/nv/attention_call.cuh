/*
 * attention_call: what surrounds the kernels for attention in bf16, of Hopper and of all others. Their workspace has
 * tiles (attention_tiles.cuh), in backward lse and delta, and parts: a call over a block of keys (mesh.cp) runs the
 * rectangle of scores that is seen. It writes o and dq, and dk and dv if they are added to something, as parts in
 * bf16, which attention_merge.cu adds in f32. Each block's backward pass uses lse and delta over all keys, so its
 * gradients are those of the whole softmax.
 */
#ifndef KERNELS_ATTENTION_NV_ATTENTION_CALL_CUH
#define KERNELS_ATTENTION_NV_ATTENTION_CALL_CUH

#include "kernels/attention/attention_merge.cuh"
#include "kernels/attention/nv/attention_parts.cuh"

#include <initializer_list>

namespace flash
{

/* Is this call one of several, each over a block of keys? */
static inline bool in_blocks(const AttentionFwd *a)
{
    return a->pieces.length > 0 || a->o_before.data != NULL || a->o.dtype != a->q.dtype;
}

/* Is this output a part in the workspace, that is added to something or converted? */
static inline bool is_part(const Tensor *out, const Tensor *before)
{
    return before->data != NULL || out->dtype != DTYPE_BF16;
}

/* A call and the places of what it keeps in the workspace. */
typedef struct Call {
    AttentionRect rect;
    AttentionTiles tiles;
    float *part_lse, *lse, *delta;
    Bf16 *o, *dq, *dk, *dv;
    size_t bytes;
} Call;

static inline char *take(Call *c, char *base, bool wanted, int64_t elems, size_t each)
{
    char *at = base + c->bytes;
    if (wanted) c->bytes += arena_rounded((size_t)elems * each);
    return at;
}

/* Sizes follow the whole call, so that all ranks of mesh.cp plan the same. attention.def ensures that there is a
 * rectangle. */
static inline Call call_of(const AttentionFwd *a, char *base, bool backward)
{
    Call c = {};
    int64_t B = a->q.dim[0];
    (void)attention_rect(&a->pieces, a->q.dim[1], a->k.dim[1], &c.rect);
    c.tiles = attention_tiles_of(&c.rect, a->q.dim[1], a->k.dim[1]);
    if (!attention_tiles_listed(a)) return c;
    if (!backward && a->doc.data == NULL && a->pieces.length == 0 && a->chunk == 0) {
        c.tiles.window = (int)a->window;
        return c;
    }
    attention_tiles_place(&c.tiles, B, base);
    c.bytes = attention_tiles_bytes(&c.tiles, B);
    return c;
}

static inline Call fwd_call(const AttentionFwd *a, char *base)
{
    Call c = call_of(a, base, false);
    bool parts = in_blocks(a);
    c.part_lse = (float *)take(&c, base, parts, tensor_elems(&a->lse), sizeof *c.part_lse);
    c.o = (Bf16 *)take(&c, base, parts, tensor_elems(&a->o), sizeof *c.o);
    return c;
}

static inline Call bwd_call(const AttentionBwd *a, char *base)
{
    AttentionFwd f = attention_seen_in(a);
    Call c = call_of(&f, base, true);
    int64_t numbers = a->q.dim[0] * a->q.dim[2] * c.tiles.rows;
    bool dq = is_part(&a->dq, &a->dq_before), dk = is_part(&a->dk, &a->dk_before);
    bool dv = is_part(&a->dv, &a->dv_before);
    c.lse = (float *)take(&c, base, true, numbers, sizeof *c.lse);
    c.delta = (float *)take(&c, base, true, numbers, sizeof *c.delta);
    c.dq = (Bf16 *)take(&c, base, dq, tensor_elems(&a->dq), sizeof *c.dq);
    c.dk = (Bf16 *)take(&c, base, dk, tensor_elems(&a->dk), sizeof *c.dk);
    c.dv = (Bf16 *)take(&c, base, dv, tensor_elems(&a->dv), sizeof *c.dv);
    return c;
}

/* A part of `rows` rows in the workspace, or the rectangle's rows of the tensor, from `first` on. */
static inline Results results_of(bool part, Bf16 *room, int64_t rows, const Tensor *t,
                                 int64_t first)
{
    int heads = (int)t->dim[2], width = (int)t->dim[3];
    if (part) return { room, (int)rows, heads, width };
    return { (Bf16 *)t->data + first * heads * width, (int)t->dim[1], heads, width };
}

/* ERR_UNSUPPORTED, before anything is launched: the next candidate runs. */
static inline Status check_aligned(std::initializer_list<const Tensor *> tensors)
{
    for (const Tensor *t : tensors) {
        if ((uintptr_t)t->data % 16 == 0) continue;
        return FAIL(ERR_UNSUPPORTED,
                    "a tensor begins at %p, copies of boxes want multiples of 16 bytes", t->data);
    }
    return OK;
}

static inline Status join(struct Exec *ex, const AttentionFwd *f, const Call *c)
{
    AttentionJoin x = {};
    x.rect = c->rect;
    x.part = c->o;
    x.part_lse = c->part_lse;
    x.o_before = &f->o_before;
    x.lse_before = &f->lse_before;
    x.o = &f->o;
    x.lse = &f->lse;
    return in_blocks(f) ? attention_join(ex, &x) : OK;
}

static inline Status delta(struct Exec *ex, const AttentionBwd *b, const Call *c)
{
    DeltaArgs a = {};
    a.d_o = (const Bf16 *)b->d_o.data, a.o = (const Bf16 *)b->o.data;
    a.lse = (const float *)b->lse.data;
    a.lse_out = c->lse, a.delta = c->delta;
    a.q_at = (int)c->rect.q, a.Tq = (int)c->rect.Tq, a.rows = c->tiles.rows;
    a.o_rows = (int)b->o.dim[1], a.H = (int)b->o.dim[2], a.width = (int)b->o.dim[3];
    dim3 blocks((unsigned)(a.rows / DELTA_ROWS), (unsigned)(b->o.dim[0] * a.H));
    attention_delta_kernel<<<blocks, DELTA_THREADS, 0, exec_stream(ex)>>>(a);
    return kernel_status("attention_bwd");
}

static inline AttentionSum sum_of(const Bf16 *part, const Tensor *out, const Tensor *before,
                                  int64_t first, int64_t rows)
{
    return { is_part(out, before) ? part : NULL, first, rows, before, out };
}

typedef Status FwdLaunch(struct Exec *ex, const AttentionFwd *f, const Call *c);
typedef Status BwdLaunch(struct Exec *ex, const AttentionBwd *b, const Call *c);

static inline Status fwd_whole(struct Exec *ex, const void *args, FwdLaunch *launch)
{
    const AttentionFwd *f = (const AttentionFwd *)args;
    Call c = fwd_call(f, (char *)exec_workspace(ex));
    if (f->q.dim[0] == 0) return OK;
    TRY(check_aligned({ &f->q, &f->k, &f->v, &f->o, &f->o_before }));
    if (c.tiles.first != NULL) TRY(attention_tiles_make(ex, f, &c.rect, &c.tiles, false));
    TRY(launch(ex, f, &c));
    return join(ex, f, &c);
}

static inline Status bwd_whole(struct Exec *ex, const void *args, BwdLaunch *launch)
{
    const AttentionBwd *b = (const AttentionBwd *)args;
    Call c = bwd_call(b, (char *)exec_workspace(ex));
    AttentionFwd f = attention_seen_in(b);
    if (b->q.dim[0] == 0) return OK;
    TRY(check_aligned({ &b->d_o, &b->q, &b->k, &b->v, &b->o, &b->dq, &b->dk, &b->dv, &b->dq_before,
                        &b->dk_before, &b->dv_before }));
    if (c.tiles.first != NULL) TRY(attention_tiles_make(ex, &f, &c.rect, &c.tiles, true));
    TRY(delta(ex, b, &c));
    TRY(launch(ex, b, &c));
    const AttentionSum sums[ATTENTION_SUMS] = {
        sum_of(c.dq, &b->dq, &b->dq_before, c.rect.q, c.rect.Tq),
        sum_of(c.dk, &b->dk, &b->dk_before, c.rect.k, c.rect.Tk),
        sum_of(c.dv, &b->dv, &b->dv_before, c.rect.k, c.rect.Tk),
    };
    return attention_sums(ex, sums);
}

} // namespace flash

#endif
