/*
 * attention_mla: q, k and v of multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 §2.1).
 *
 * Keys and values are projected up from a latent of kv_rank columns that all heads share, plus one
 * rotated key of rope columns. Queries come from y directly, or from a latent of q_rank columns.
 * Both latents are normalised. The down-projections share their input, so they are one product
 * (ROLE_A).
 *     a = W_A y = [q_a |] kv_a | k_rope        q  = W_Q y  or  W_QB norm(q_a)
 *     kv = W_KVB norm(kv_a)                    rope: q, k_rope; then attention per head
 * With spec->bias the projection to a has a bias (DeepSeek's attention_bias).
 *
 * Kept for backward: y, a, the normalised latents, q, k, v.
 *
 * Over ranks each rank normalises its latents and rotates its shared keys, so that other ranks need
 * no positions; both are gathered and kept: kv_rank + rope columns a token are far fewer than the
 * keys and values of all heads. Keys and values of a block are projected up from its latents when
 * its turn comes, forward and backward. Their gradients go back through that projection before they
 * are scattered.
 */
#include "engine/model/attention.h"
#include "kernels/attention/rope.h"

static Status mla_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const AttentionSpec *a = &l->as.attention;
    int64_t tp = s->ranks.tp, heads = tp * a->heads, q = heads * (a->nope + a->rope);
    if (a->q_rank == 0) TRY(attention_param(out, l, ROLE_Q, q, s->hidden, tp, "q_proj"));
    if (a->q_rank > 0) TRY(attention_param(out, l, ROLE_A, a->q_rank, s->hidden, 0, "q_a_proj"));
    TRY(attention_param(out, l, ROLE_A, a->kv_rank + a->rope, s->hidden, 0, "kv_a_proj_with_mqa"));
    if (a->bias && a->q_rank > 0)
        TRY(attention_param(out, l, ROLE_A_BIAS, a->q_rank, 0, 0, "q_a_proj"));
    if (a->bias)
        TRY(attention_param(out, l, ROLE_A_BIAS, a->kv_rank + a->rope, 0, 0, "kv_a_proj_with_mqa"));
    if (a->q_rank > 0) {
        TRY(attention_param(out, l, ROLE_Q_NORM, 0, a->q_rank, 0, "q_a_layernorm"));
        TRY(attention_param(out, l, ROLE_Q_B, q, a->q_rank, tp, "q_b_proj"));
    }
    TRY(attention_param(out, l, ROLE_KV_NORM, 0, a->kv_rank, 0, "kv_a_layernorm"));
    return attention_param(out, l, ROLE_KV_B, heads * (a->nope + a->v), a->kv_rank, tp,
                           "kv_b_proj");
}

static ParamRole query_of(const AttentionSpec *a) { return a->q_rank > 0 ? ROLE_Q_B : ROLE_Q; }
static ParamRole query_role(const LayerRun *r) { return query_of(attention_spec(r)); }

/* Columns of a = [q_a |] kv_a | k_rope. */
static int64_t kv_col(const AttentionSpec *a) { return a->q_rank; }
static int64_t rope_col(const AttentionSpec *a) { return a->q_rank + a->kv_rank; }

/* k_col: the first column of the shared key in the tensor that holds it. */
static RopeMlaDims rope_dims(const AttentionSpec *a, int64_t k_col)
{
    return (RopeMlaDims){ .heads = a->heads,
                          .nope = a->nope,
                          .rope = a->rope,
                          .v = a->v,
                          .k_col = k_col,
                          .interleaved = a->interleaved };
}

/* Rotates the shared key alone, as if it were one head of a query. */
static RopeMlaDims key_dims(const AttentionSpec *a)
{
    return (RopeMlaDims){
        .heads = 1, .rope = a->rope, .q_col = rope_col(a), .interleaved = a->interleaved
    };
}

/* One rank's part of the gathered latents, or of their gradients. */
typedef struct Part {
    Tensor whole, latent, key;
} Part;

static Part part_of(const LayerRun *r, const Tensor *all, int64_t block)
{
    const AttentionSpec *a = attention_spec(r);
    int64_t n = r->tokens;
    Tensor whole = tensor_rows(all, layer_rank(r, block) * n, n);
    Part part = { whole, whole, whole };
    part.latent.dim[1] = a->kv_rank;
    part.key.dim[1] = a->rope;
    part.key.data = tensor_at(&whole, n * a->kv_rank);
    return part;
}

/* Forward. */

/* One latent of `cols` columns, which the product with `role` reads. Over ranks the latent of keys
 * and values is not made here. */
static Status norm_latent(LayerRun *r, ParamRole norm, ParamRole role, int64_t col, int64_t cols,
                          ActivationArenas at, NormState *n)
{
    TRY(recipe_new(r, role, SIDE_FORWARD, r->tokens, cols, at, &n->y));
    return attention_norm(r, norm, col, n);
}

/* Normalises the query's latent, and that of keys and values. Where ranks share the latter,
 * own_latents normalises it. */
static Status norm_latents(LayerRun *r, ActivationArenas at)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    if (a->q_rank > 0) TRY(norm_latent(r, ROLE_Q_NORM, ROLE_Q_B, 0, a->q_rank, at, &s->q_norm));
    if (attention_over_ranks(r)) return OK;
    return norm_latent(r, ROLE_KV_NORM, ROLE_KV_B, kv_col(a), a->kv_rank, at, &s->kv_norm);
}

/* Takes memory for all ranks' latents and writes this rank's. */
static Status own_latents(LayerRun *r, Arena *arena)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    int64_t rows = r->spec->ranks.cp * r->tokens;
    TRY(tensor_new2(arena, r->spec->act, rows, a->kv_rank + a->rope, &s->mla.latents));
    Part own = part_of(r, &s->mla.latents, 0);
    s->kv_norm.y.x = own.latent;
    TRY(attention_norm(r, ROLE_KV_NORM, kv_col(a), &s->kv_norm));
    return rope_mla_fwd(r->ex, (RopeMlaFwd){ .q = s->a,
                                             .pos = r->batch->pos,
                                             .cos = r->rope.cos,
                                             .sin = r->rope.sin,
                                             .q_out = own.key,
                                             .dims = key_dims(a) });
}

/* In place: this rank's part already lies at its own rows of the whole tensor. */
static Status mla_gather(LayerRun *r)
{
    const AttentionState *s = r->state;
    Part own = part_of(r, &s->mla.latents, 0);
    return layer_collect(r, COMM_ALL_GATHER, own.whole, s->mla.latents);
}

/* Makes q, k and v of the latents; over ranks q alone. q_in, kv_in: rows of what they are projected from. */
static Status project_up(LayerRun *r, Operand q_in, Operand kv_in, Arena *arena)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, a->heads * (a->nope + a->rope), &s->q));
    RopeMlaFwd rope = { .pos = r->batch->pos,
                        .cos = r->rope.cos,
                        .sin = r->rope.sin,
                        .q_out = s->q,
                        .dims = rope_dims(a, rope_col(a)) };
    TRY(attention_project(r, q_in, query_role(r), r->scratch, &rope.q));
    if (attention_over_ranks(r)) return rope_mla_fwd(r->ex, rope);
    TRY(attention_new_kv(r, arena, &s->k, &s->v));
    TRY(attention_project(r, kv_in, ROLE_KV_B, r->scratch, &rope.kv));
    rope.k_rope = s->a;
    rope.k_out = s->k;
    rope.v_out = s->v;
    return rope_mla_fwd(r->ex, rope);
}

/* What queries are projected from: their latent, or y. */
static const NormState *query_input(const LayerRun *r)
{
    const AttentionState *s = r->state;
    return attention_spec(r)->q_rank > 0 ? &s->q_norm : &s->stream.norm;
}

/* The rows were in scratch in forward. */
static Status project_up_again(LayerRun *r)
{
    const AttentionState *s = r->state;
    ParamRole role = query_role(r);
    Activation q, kv = { 0 };
    TRY(recipe_operands(r, role, SIDE_FORWARD, query_input(r)->y.x, r->scratch, NULL, &q));
    if (!attention_over_ranks(r))
        TRY(recipe_operands(r, ROLE_KV_B, SIDE_FORWARD, s->kv_norm.y.x, r->scratch, NULL, &kv));
    return project_up(r, q.rows, kv.rows, r->ring);
}

static Arena *mla_arena_of_a(const LayerRun *r) { return r->keep; }

static Status mla_forward(LayerRun *r)
{
    AttentionState *s = r->state;
    int64_t n = r->tokens;
    Arena *up = layer_arena(r, RECOMPUTE_ATTN_UP);
    TRY(attention_make_a(r, mla_arena_of_a(r)));
    TRY(tensor_new2(r->keep, DTYPE_F32, n, 1, &s->kv_norm.rstd));
    TRY(tensor_new2(r->keep, DTYPE_F32, n, 1, &s->q_norm.rstd));
    TRY(norm_latents(r, (ActivationArenas){ .x = layer_arena(r, RECOMPUTE_NORM),
                                            .rows = r->scratch,
                                            .columns = recipe_keeps(r, RECOMPUTE_NORM),
                                            .plain = up == r->ring }));
    if (attention_over_ranks(r)) TRY(own_latents(r, layer_arena(r, RECOMPUTE_EXCHANGE)));
    return project_up(r, query_input(r)->y.rows, s->kv_norm.y.rows, up);
}

/* Each piece only if forward put it into the ring. The order is forward's, because each reads what
 * the one before made. */
static Status mla_recompute(LayerRun *r)
{
    bool up = layer_arena(r, RECOMPUTE_ATTN_UP) == r->ring;
    if (layer_arena(r, RECOMPUTE_NORM) == r->ring)
        TRY(norm_latents(r, (ActivationArenas){ .x = r->ring, .columns = r->ring, .plain = up }));
    if (attention_over_ranks(r) && layer_arena(r, RECOMPUTE_EXCHANGE) == r->ring) {
        TRY(own_latents(r, r->ring));
        TRY(mla_gather(r));
    }
    return up ? project_up_again(r) : OK;
}

/* Takes memory for one block's keys and values. All blocks use it, one after the other. */
static Status alloc_block(LayerRun *r, Arena *arena)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    int64_t n = r->tokens;
    TRY(attention_new_kv(r, arena, &s->k, &s->v));
    return tensor_new2(arena, r->spec->act, n, a->heads * (a->nope + a->v), &s->mla.kv);
}

static Status mla_open_forward(LayerRun *r) { return alloc_block(r, r->scratch); }

static Status mla_block(LayerRun *r, int64_t block, Tensor *k, Tensor *v)
{
    const AttentionState *s = r->state;
    Part part = part_of(r, &s->mla.latents, block);
    Activation latent;
    *k = s->k;
    *v = s->v;
    TRY(recipe_operands(r, ROLE_KV_B, SIDE_FORWARD, part.latent, r->scratch, NULL, &latent));
    TRY(recipe_forward(r, ROLE_KV_B, latent.rows, (Tensor){ 0 }, s->mla.kv));
    return rope_mla_fwd(r->ex, (RopeMlaFwd){ .kv = s->mla.kv,
                                             .k_rope = part.key,
                                             .cos = r->rope.cos,
                                             .sin = r->rope.sin,
                                             .k_out = s->k,
                                             .v_out = s->v,
                                             .dims = rope_dims(attention_spec(r), 0) });
}

/* Backward. */

static Status mla_open_backward(LayerRun *r)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    int64_t rows = r->spec->ranks.cp * r->tokens;
    TRY(attention_new_kv(r, r->ring, &s->dk, &s->dv));
    TRY(alloc_block(r, r->ring));
    s->mla.dkv_raw.x = s->mla.kv; /* kv is read before its gradient overwrites it */
    return tensor_new2(r->ring, r->spec->act, rows, a->kv_rank + a->rope, &s->mla.dlatents);
}

/* Takes a block's gradients back through the projection. For another rank's block the gradient of
 * the weights is made now, too, because the block is gone later. */
static Status mla_block_backward(LayerRun *r, int64_t block)
{
    AttentionState *s = r->state;
    Part part = part_of(r, &s->mla.latents, block), gradient = part_of(r, &s->mla.dlatents, block);
    Activation *dkv = &s->mla.dkv_raw, latent;
    TRY(rope_mla_bwd(r->ex, (RopeMlaBwd){ .dk_out = s->dk,
                                          .dv_out = s->dv,
                                          .cos = r->rope.cos,
                                          .sin = r->rope.sin,
                                          .dkv = dkv->x,
                                          .dk_rope = gradient.key,
                                          .dims = rope_dims(attention_spec(r), 0) }));
    TRY(recipe_operands(r, ROLE_KV_B, SIDE_GRADIENT, dkv->x, r->scratch,
                        block == 0 ? r->ring : r->scratch, dkv));
    TRY(recipe_backward_input(r, ROLE_KV_B, dkv->rows, (Tensor){ 0 }, gradient.latent));
    if (block == 0) return OK;
    TRY(recipe_operands(r, ROLE_KV_B, SIDE_FORWARD, part.latent, NULL, r->scratch, &latent));
    return recipe_backward_weight(r, ROLE_KV_B, dkv->columns, latent.columns);
}

/* Sums the gradients that all ranks made of this rank's latents. The result overwrites this rank's own part. */
static Status mla_gather_backward(LayerRun *r)
{
    const AttentionState *s = r->state;
    Part own = part_of(r, &s->mla.dlatents, 0);
    return layer_collect(r, COMM_REDUCE_SCATTER, s->mla.dlatents, own.whole);
}

/* The backward of project_up: gradients of q and kv before rope, of the shared key (into da) and of the latent. Over
 * ranks mla_block_backward did kv; q and the shared key, which was rotated by itself, remain. */
static Status project_up_backward(LayerRun *r, ActivationArenas at, Tensor *dlatent)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    int64_t n = r->tokens;
    RopeMlaBwd rope = { .dq_out = s->dq,
                        .pos = r->batch->pos,
                        .cos = r->rope.cos,
                        .sin = r->rope.sin,
                        .dq = s->mla.dq_raw.x,
                        .dq_quant = recipe_output(r, query_role(r), SIDE_GRADIENT, &s->mla.dq_raw),
                        .dims = rope_dims(a, rope_col(a)) };
    if (attention_over_ranks(r)) {
        Part own = part_of(r, &s->mla.dlatents, 0);
        *dlatent = own.latent;
        TRY(rope_mla_bwd(r->ex, rope));
        rope.dq_out = own.key;
        rope.dq = s->da.x;
        rope.dq_quant = (QuantOut){ 0 };
        rope.dims = key_dims(a);
        return rope_mla_bwd(r->ex, rope);
    }
    Activation *dkv = &s->mla.dkv_raw;
    TRY(recipe_new(r, ROLE_KV_B, SIDE_GRADIENT, n, a->heads * (a->nope + a->v), at, dkv));
    rope.dk_out = s->dk;
    rope.dv_out = s->dv;
    rope.dkv = dkv->x;
    rope.dkv_quant = recipe_output(r, ROLE_KV_B, SIDE_GRADIENT, dkv);
    rope.dk_rope = s->da.x;
    TRY(rope_mla_bwd(r->ex, rope));
    TRY(tensor_new2(r->scratch, r->spec->act, n, a->kv_rank, dlatent));
    return recipe_backward_input(r, ROLE_KV_B, dkv->rows, (Tensor){ 0 }, *dlatent);
}

/* da collects the gradients of all parts of a: q_a and kv_a from their norms, k_rope from rope. One
 * product then takes it to dy, which has q's part already if queries have no latent. */
static Status mla_backward(LayerRun *r, Tensor dy)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    const ActivationArenas at = { .x = r->ring, .rows = r->scratch, .columns = r->ring };
    const Tensor none = { 0 };
    int64_t n = r->tokens;
    bool latent = a->q_rank > 0;
    ParamRole role = query_role(r);
    Activation *dq = &s->mla.dq_raw;
    Tensor dlatent;
    TRY(recipe_new(r, role, SIDE_GRADIENT, n, tensor_cols(&s->q), at, dq));
    TRY(tensor_new2(r->ring, r->spec->act, n, tensor_cols(&s->a), &s->da.x));
    TRY(project_up_backward(r, at, &dlatent));
    TRY(attention_norm_backward(r, ROLE_KV_NORM, kv_col(a), &s->kv_norm, dlatent));
    if (latent) TRY(tensor_new2(r->scratch, r->spec->act, n, a->q_rank, &dlatent));
    TRY(recipe_backward_input(r, role, dq->rows, none, latent ? dlatent : dy));
    if (latent) TRY(attention_norm_backward(r, ROLE_Q_NORM, 0, &s->q_norm, dlatent));
    TRY(recipe_operands(r, ROLE_A, SIDE_GRADIENT, s->da.x, r->scratch, r->ring, &s->da));
    return recipe_backward_input(r, ROLE_A, s->da.rows, latent ? none : dy, dy);
}

static Status mla_backward_weight(LayerRun *r)
{
    const AttentionState *s = r->state;
    ParamRole role = query_role(r);
    Activation kv = s->kv_norm.y;
    if (attention_over_ranks(r))
        TRY(recipe_operands(r, ROLE_KV_B, SIDE_FORWARD, kv.x, NULL, r->scratch, &kv));
    TRY(recipe_backward_weight(r, ROLE_KV_B, s->mla.dkv_raw.columns, kv.columns));
    return recipe_backward_weight(r, role, s->mla.dq_raw.columns, query_input(r)->y.columns);
}

/* The shared key is made by ROLE_A, so its rows are not among these. */
static QkRows mla_clips(const AttentionSpec *a, ParamRole role)
{
    const int64_t query = a->nope + a->rope, key = a->nope + a->v;
    return (QkRows){ .heads = a->heads,
                     .kv_heads = a->heads,
                     .queries = role == query_of(a) ? a->heads * query : 0,
                     .keys = role == ROLE_KV_B ? a->heads * key : 0,
                     .width = role == ROLE_KV_B ? key : query,
                     .both = a->nope };
}

const AttentionKindDesc attention_mla = {
    .keys = ROLE_KV_B,
    .clips = mla_clips,
    .arena_of_a = mla_arena_of_a,
    .params = mla_params,
    .forward = mla_forward,
    .recompute = mla_recompute,
    .backward = mla_backward,
    .backward_weight = mla_backward_weight,
    .gather = mla_gather,
    .gather_backward = mla_gather_backward,
    .open_forward = mla_open_forward,
    .open_backward = mla_open_backward,
    .block = mla_block,
    .block_backward = mla_block_backward,
};
