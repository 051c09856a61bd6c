/*
 * attention: h_out = h + W_o attention(q, k, v), q, k, v from y = norm(h).
 *
 * MLA (DeepSeek-V2, arXiv:2405.04434 §2.1): keys and values are projected up from a latent of
 * kv_rank columns that all heads share, plus one rotated key of rope columns; queries directly, or
 * from a latent of q_rank columns. Both latents are normalised. The down-projections of one input
 * are one product (ROLE_A).
 *     a = W_A y = [q_a |] kv_a | k_rope        q  = W_Q y  or  W_QB norm(q_a)
 *     kv = W_KVB norm(kv_a)                    rope: q, k_rope; then attention per head
 * GQA (arXiv:2305.13245): a = [q | k | v] straight from y, the heads of q and k normalised or not.
 *
 * Kept for backward: y, a (mla; gqa with such a norm), the normalised latents, q, k, v, o and the
 * softmax's lse.
 *
 * With a sequence cut over ranks (spec->cp; each has two of 2 cp pieces, so that all see as many
 * pairs) the queries here meet the keys block by block, a block being one rank's. MLA gathers and
 * keeps the latents of all ranks and projects keys and values up from them when their block's turn
 * comes, forward and backward; the gradients are folded back through that projection before they
 * are scattered. GQA passes keys and values round a ring (arXiv:2310.01889), in backward with their
 * gradients. Each block costs what one rank's own causal half does.
 */
#include "model/layer.h"

#include <math.h>

typedef struct AttentionState {
    NormState norm, q_norm, kv_norm;
    Tensor a;         /* mla: (N, [q_rank +] kv_rank + rope); gqa: (N, (H+2G)*d) */
    Tensor head_rstd; /* gqa with qk_norm: (N, H+G) */
    Tensor q, k, v;   /* rows (N, heads * width) */
    Tensor o, lse;
    Tensor dq, dk, dv;          /* ring, from core to qkv */
    Tensor dq_raw, dkv_raw, da; /* ring, from backward_input to backward_weight */
    Tensor latents;             /* mla over ranks: (cp N, kv_rank + rope) */
    Tensor dlatents;            /* ring: the same, then (N, ...) scattered */
    Tensor block[2];            /* gqa over ranks, ring: keys and values under way */
} AttentionState;

static bool shared_context(const LayerRun *r) { return r->training && r->spec->cp > 1; }

static int64_t kv_col(const AttentionSpec *a) { return a->q_rank; }
static int64_t rope_col(const AttentionSpec *a) { return a->q_rank + a->kv_rank; }

static Status params_mla(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const AttentionSpec *a = &l->as.attention;
    int64_t d = s->hidden, qk = a->heads * (a->nope + a->rope);
    int i = l->block;
    ParamAdd matrix = { ROLE_Q, -1, qk, d, INIT_NORMAL, .decay = true };
    if (a->q_rank == 0) {
        TRY(params_add(out, matrix, "model.layers.%d.self_attn.q_proj.weight", i));
    } else {
        matrix.role = ROLE_A, matrix.rows = a->q_rank;
        TRY(params_add(out, matrix, "model.layers.%d.self_attn.q_a_proj.weight", i));
    }
    matrix.role = ROLE_A, matrix.rows = a->kv_rank + a->rope;
    TRY(params_add(out, matrix, "model.layers.%d.self_attn.kv_a_proj_with_mqa.weight", i));
    if (a->q_rank > 0) {
        TRY(params_add(out, (ParamAdd){ ROLE_Q_NORM, -1, 0, a->q_rank, INIT_ONE, .keep_f32 = true },
                       "model.layers.%d.self_attn.q_a_layernorm.weight", i));
        TRY(params_add(out, (ParamAdd){ ROLE_Q_B, -1, qk, a->q_rank, INIT_NORMAL, .decay = true },
                       "model.layers.%d.self_attn.q_b_proj.weight", i));
    }
    TRY(params_add(out, (ParamAdd){ ROLE_KV_NORM, -1, 0, a->kv_rank, INIT_ONE, .keep_f32 = true },
                   "model.layers.%d.self_attn.kv_a_layernorm.weight", i));
    return params_add(out,
                      (ParamAdd){ ROLE_KV_B, -1, a->heads * (a->nope + a->v), a->kv_rank,
                                  INIT_NORMAL, .decay = true },
                      "model.layers.%d.self_attn.kv_b_proj.weight", i);
}

static Status params_gqa(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const AttentionSpec *a = &l->as.attention;
    ParamAdd matrix = { ROLE_A, -1, a->heads * a->head, s->hidden, INIT_NORMAL, .decay = true };
    TRY(params_add(out, matrix, "model.layers.%d.self_attn.q_proj.weight", l->block));
    matrix.rows = a->kv_heads * a->head;
    TRY(params_add(out, matrix, "model.layers.%d.self_attn.k_proj.weight", l->block));
    TRY(params_add(out, matrix, "model.layers.%d.self_attn.v_proj.weight", l->block));
    if (a->qk_norm != QK_NORM_RMS) return OK;
    ParamAdd norm = { ROLE_Q_NORM, -1, 0, a->head, INIT_ONE, .keep_f32 = true };
    TRY(params_add(out, norm, "model.layers.%d.self_attn.q_norm.weight", l->block));
    norm.role = ROLE_KV_NORM;
    return params_add(out, norm, "model.layers.%d.self_attn.k_norm.weight", l->block);
}

static Status params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const AttentionSpec *a = &l->as.attention;
    TRY(params_add(out, (ParamAdd){ ROLE_NORM, -1, 0, s->hidden, INIT_ONE, .keep_f32 = true },
                   "model.layers.%d.input_layernorm.weight", l->block));
    TRY(a->kind == ATTENTION_MLA ? params_mla(s, l, out) : params_gqa(s, l, out));
    return params_add(out,
                      (ParamAdd){ ROLE_O, -1, s->hidden, a->heads * attention_v_dim(a), INIT_NORMAL,
                                  .decay = true },
                      "model.layers.%d.self_attn.o_proj.weight", l->block);
}

/* Forward. */

/* y = norm of the window of `a` at col, as wide as the weight of `role`. */
static Status latent_norm(LayerRun *r, const AttentionState *s, ParamRole role, int64_t col,
                          Arena *arena, NormState *n)
{
    Tensor w = r->weights->w[role];
    TRY(tensor_new2(arena, r->spec->act, s->a.dim[0], tensor_elems(&w), &n->y));
    return rmsnorm_fwd(
        r->ex,
        (RmsnormFwd){
            .x = s->a, .w = w, .y = n->y, .rstd = n->rstd, .x_col = col, .eps = r->spec->eps });
}

static Status latents(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    if (a->q_rank > 0) TRY(latent_norm(r, s, ROLE_Q_NORM, 0, arena, &s->q_norm));
    return latent_norm(r, s, ROLE_KV_NORM, kv_col(a), arena, &s->kv_norm);
}

static Status project(LayerRun *r, Tensor x, ParamRole role, Arena *arena, Tensor *out)
{
    Tensor w = r->weights->w[role];
    TRY(tensor_new2(arena, r->spec->act, x.dim[0], w.dim[0], out));
    return linear_fwd(r->ex, (LinearFwd){ .x = x, .w = w, .y = *out });
}

static RopeMlaDims mla_dims(const AttentionSpec *a)
{
    return (RopeMlaDims){ .heads = a->heads,
                          .nope = a->nope,
                          .rope = a->rope,
                          .v = a->v,
                          .k_col = rope_col(a),
                          .interleaved = a->interleaved };
}

static RopeGqaDims gqa_dims(const AttentionSpec *a)
{
    return (RopeGqaDims){ a->heads, a->kv_heads, a->head, a->interleaved };
}

static QkNormDims qk_norm_dims(const AttentionSpec *a)
{
    return (QkNormDims){ a->heads, a->kv_heads, a->head };
}

/* The fused projection; with its heads of q and k normalised, what that came from is kept. */
static Status project_heads(LayerRun *r, AttentionState *s, Tensor *qkv)
{
    const AttentionSpec *a = &r->layer->as.attention;
    if (a->qk_norm == QK_NORM_NONE) {
        TRY(project(r, s->norm.y, ROLE_A, r->scratch, &s->a));
        *qkv = s->a;
        return OK;
    }
    Arena *arena = layer_arena(r, RECOMPUTE_ATTN_UP);
    int64_t n = layer_tokens(r);
    TRY(project(r, s->norm.y, ROLE_A, arena, &s->a));
    TRY(tensor_new2(arena, DTYPE_F32, n, a->heads + a->kv_heads, &s->head_rstd));
    TRY(tensor_new2(r->scratch, r->spec->act, n, tensor_cols(&s->a), qkv));
    return qk_norm_fwd(r->ex, (QkNormFwd){ .qkv = s->a,
                                           .wq = r->weights->w[ROLE_Q_NORM],
                                           .wk = r->weights->w[ROLE_KV_NORM],
                                           .y = *qkv,
                                           .rstd = s->head_rstd,
                                           .dims = qk_norm_dims(a),
                                           .eps = r->spec->eps });
}

/* q, k, v out of what qkv_forward (or restore) has; temporaries in scratch. */
static Status assemble(LayerRun *r, AttentionState *s)
{
    const AttentionSpec *a = &r->layer->as.attention;
    if (a->kind == ATTENTION_GQA) {
        Tensor qkv;
        TRY(project_heads(r, s, &qkv));
        return rope_gqa_fwd(r->ex, (RopeGqaFwd){ .qkv = qkv,
                                                 .pos = r->batch->pos,
                                                 .cos = r->rope_cos,
                                                 .sin = r->rope_sin,
                                                 .q_out = s->q,
                                                 .k_out = s->k,
                                                 .v_out = s->v,
                                                 .dims = gqa_dims(a) });
    }
    Tensor q, kv;
    if (a->q_rank > 0)
        TRY(project(r, s->q_norm.y, ROLE_Q_B, r->scratch, &q));
    else
        TRY(project(r, s->norm.y, ROLE_Q, r->scratch, &q));
    TRY(project(r, s->kv_norm.y, ROLE_KV_B, r->scratch, &kv));
    return rope_mla_fwd(r->ex, (RopeMlaFwd){ .q = q,
                                             .kv = kv,
                                             .k_rope = s->a,
                                             .pos = r->batch->pos,
                                             .cos = r->rope_cos,
                                             .sin = r->rope_sin,
                                             .q_out = s->q,
                                             .k_out = s->k,
                                             .v_out = s->v,
                                             .dims = mla_dims(a) });
}

static Status place_kv(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    TRY(tensor_new2(arena, r->spec->act, n, a->kv_heads * attention_qk_dim(a), &s->k));
    return tensor_new2(arena, r->spec->act, n, a->kv_heads * attention_v_dim(a), &s->v);
}

/* Where q, k, v go: the cache has a place for new keys and values of its own. */
static Status place_qkv(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    TRY(tensor_new2(arena, r->spec->act, n, a->heads * attention_qk_dim(a), &s->q));
    if (r->cache != NULL) {
        s->k = tensor_rows(&r->cache->k[r->layer->block], r->cache->used, n);
        s->v = tensor_rows(&r->cache->v[r->layer->block], r->cache->used, n);
        return OK;
    }
    /* Where keys and values are made block by block, no block is kept. */
    return place_kv(r, s, shared_context(r) && a->kind == ATTENTION_MLA ? r->ring : arena);
}

static Status qkv_forward(LayerRun *r)
{
    const AttentionSpec *a = &r->layer->as.attention;
    AttentionState *s = r->state;
    TRY(layer_norm_forward(r, &s->norm));
    if (a->kind == ATTENTION_MLA) {
        int64_t n = layer_tokens(r);
        TRY(project(r, s->norm.y, ROLE_A, r->keep, &s->a));
        TRY(tensor_new2(r->keep, DTYPE_F32, n, 1, &s->kv_norm.rstd));
        TRY(tensor_new2(r->keep, DTYPE_F32, n, 1, &s->q_norm.rstd));
        TRY(latents(r, s, layer_arena(r, RECOMPUTE_NORM)));
    }
    TRY(place_qkv(r, s, layer_arena(r, RECOMPUTE_ATTN_UP)));
    return assemble(r, s);
}

static Status collect(LayerRun *r, OpComm kind, Tensor in, Tensor out)
{
    return exchange_collective(
        r->ex,
        (Collective){ .in = in, .out = out, .kind = kind, .axis = AXIS_CP, .ranks = r->spec->cp });
}

/* mla: the latents of all ranks' tokens. */
static Status gather(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    TRY(tensor_new2(arena, r->spec->act, r->spec->cp * n, a->kv_rank + a->rope, &s->latents));
    return collect(r, COMM_ALL_GATHER, tensor_rows(&s->latents, 0, n), s->latents);
}

static Status gather_forward(LayerRun *r)
{
    bool mla = r->layer->as.attention.kind == ATTENTION_MLA;
    if (!shared_context(r) || !mla) return OK;
    return gather(r, r->state, layer_arena(r, RECOMPUTE_EXCHANGE));
}

/* Keys and values of another rank into s->k, s->v (mla) or the ring's next block (gqa). */
static Status next_block(LayerRun *r, AttentionState *s, int64_t i, Tensor *k, Tensor *v)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    if (a->kind == ATTENTION_MLA) {
        Tensor x = { s->latents.data, s->latents.dtype, 2, { n, a->kv_rank } }, kv;
        return project(r, x, ROLE_KV_B, r->scratch, &kv);
    }
    if (i <= 2) {
        TRY(tensor_new2(r->ring, r->spec->act, n, 2 * a->kv_heads * a->head, &s->block[i % 2]));
    }
    *k = (Tensor){ s->block[i % 2].data, r->spec->act, 2, { n, a->kv_heads * a->head } };
    *v = *k;
    return collect(r, COMM_SHIFT, s->block[i % 2], s->block[i % 2]);
}

static Status attend(LayerRun *r, AttentionState *s, Tensor k, Tensor value, int64_t tk)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t b = r->batch->b, t = r->batch->t;
    int64_t qk = attention_qk_dim(a), v = attention_v_dim(a);
    return attention_fwd(r->ex,
                         (AttentionFwd){ .chunk = a->chunk,
                                         .q = tensor_as4(&s->q, b, t, a->heads, qk),
                                         .k = tensor_as4(&k, b, tk, a->kv_heads, qk),
                                         .v = tensor_as4(&value, b, tk, a->kv_heads, v),
                                         .doc = a->document_mask ? r->batch->doc : (Tensor){ 0 },
                                         .o = tensor_as4(&s->o, b, t, a->heads, v),
                                         .lse = tensor_as4(&s->lse, b, a->heads, t, 1),
                                         .scale = (float)(1 / sqrt((double)qk)),
                                         .kernel = a->kernel });
}

static Status core_forward(LayerRun *r)
{
    const AttentionSpec *a = &r->layer->as.attention;
    AttentionState *s = r->state;
    int64_t b = r->batch->b, t = r->batch->t, n = b * t, tk = t, v = attention_v_dim(a);
    Tensor k = s->k, value = s->v;
    if (r->cache != NULL) {
        tk = r->cache->used + n;
        k = tensor_rows(&r->cache->k[r->layer->block], 0, tk);
        value = tensor_rows(&r->cache->v[r->layer->block], 0, tk);
    }
    TRY(tensor_new2(r->keep, r->spec->act, n, a->heads * v, &s->o));
    TRY(tensor_new2(r->keep, DTYPE_F32, b * a->heads, t, &s->lse));
    TRY(attend(r, s, k, value, tk));
    for (int64_t i = 1; shared_context(r) && i < r->spec->cp; i++) {
        TRY(next_block(r, s, i, &k, &value));
        TRY(attend(r, s, k, value, tk));
    }
    if (r->again) return OK;
    return linear_fwd(
        r->ex, (LinearFwd){ .x = s->o, .w = r->weights->w[ROLE_O], .r = r->h, .y = r->h_out });
}

/* Backward. */

/* What forward did not keep is made again, into the ring. */
static Status restore(LayerRun *r, AttentionState *s)
{
    bool mla = r->layer->as.attention.kind == ATTENTION_MLA;
    TRY(layer_norm_again(r, &s->norm));
    if (mla && layer_arena(r, RECOMPUTE_NORM) == r->ring) TRY(latents(r, s, r->ring));
    if (layer_arena(r, RECOMPUTE_ATTN_UP) == r->ring) {
        TRY(place_qkv(r, s, r->ring));
        return assemble(r, s);
    }
    if (!mla || !shared_context(r)) return OK;
    TRY(place_kv(r, s, r->ring));
    return next_block(r, s, 0, &s->k, &s->v);
}

static Status project_backward(LayerRun *r, Tensor dy, ParamRole role, Tensor residual, Tensor dx)
{
    return linear_bwd_input(
        r->ex, (LinearBwdInput){ .dy = dy, .w = r->weights->w[role], .r = residual, .dx = dx });
}

static Status project_weight(LayerRun *r, Tensor dy, Tensor x, ParamRole role)
{
    return linear_bwd_weight(r->ex,
                             (LinearBwdWeight){ .dy = dy, .x = x, .dw = r->weights->dw[role] });
}

/* Room for what the blocks of other ranks need in backward. */
static Status open_blocks(LayerRun *r, AttentionState *s)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    Dtype act = r->spec->act;
    if (a->kind == ATTENTION_GQA)
        return tensor_new2(r->ring, act, n, 2 * a->kv_heads * a->head, &s->dkv_raw);
    if (layer_arena(r, RECOMPUTE_EXCHANGE) == r->ring) TRY(gather(r, s, r->ring));
    TRY(tensor_new2(r->ring, act, n, a->heads * (a->nope + a->v), &s->dkv_raw));
    return tensor_new2(r->ring, act, r->spec->cp * n, a->kv_rank + a->rope, &s->dlatents);
}

static Status attend_backward(LayerRun *r, AttentionState *s, Tensor d_o, Tensor k, Tensor value)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t b = r->batch->b, t = r->batch->t;
    int64_t qk = attention_qk_dim(a), v = attention_v_dim(a);
    return attention_bwd(r->ex,
                         (AttentionBwd){ .chunk = a->chunk,
                                         .d_o = tensor_as4(&d_o, b, t, a->heads, v),
                                         .q = tensor_as4(&s->q, b, t, a->heads, qk),
                                         .k = tensor_as4(&k, b, t, a->kv_heads, qk),
                                         .v = tensor_as4(&value, b, t, a->kv_heads, v),
                                         .doc = a->document_mask ? r->batch->doc : (Tensor){ 0 },
                                         .o = tensor_as4(&s->o, b, t, a->heads, v),
                                         .lse = tensor_as4(&s->lse, b, a->heads, t, 1),
                                         .dq = tensor_as4(&s->dq, b, t, a->heads, qk),
                                         .dk = tensor_as4(&s->dk, b, t, a->kv_heads, qk),
                                         .dv = tensor_as4(&s->dv, b, t, a->kv_heads, v),
                                         .scale = (float)(1 / sqrt((double)qk)),
                                         .kernel = a->kernel,
                                         .any_order = a->any_order });
}

/* Gradients of another rank's block: mla folds them back through the projection, weights' included,
 * because no block is there any more later; gqa sends them on with the keys and values. */
static Status fold_block(LayerRun *r, AttentionState *s)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    if (a->kind == ATTENTION_GQA) return collect(r, COMM_SHIFT, s->dkv_raw, s->dkv_raw);
    Tensor dx = { s->dlatents.data, s->dlatents.dtype, 2, { n, a->kv_rank } };
    TRY(project_backward(r, s->dkv_raw, ROLE_KV_B, (Tensor){ 0 }, dx));
    return project_weight(r, s->dkv_raw, dx, ROLE_KV_B);
}

static Status core_backward_input(LayerRun *r)
{
    const AttentionSpec *a = &r->layer->as.attention;
    AttentionState *s = r->state;
    int64_t b = r->batch->b, t = r->batch->t;
    int64_t qk = attention_qk_dim(a), v = attention_v_dim(a);
    TRY(restore(r, s));
    Tensor d_o;
    TRY(tensor_new2(r->scratch, r->spec->act, b * t, a->heads * v, &d_o));
    TRY(linear_bwd_input(
        r->ex, (LinearBwdInput){ .dy = r->dh_out, .w = r->weights->w[ROLE_O], .dx = d_o }));
    TRY(tensor_new2(r->ring, r->spec->act, b * t, a->heads * qk, &s->dq));
    TRY(tensor_new2(r->ring, r->spec->act, b * t, a->kv_heads * qk, &s->dk));
    TRY(tensor_new2(r->ring, r->spec->act, b * t, a->kv_heads * v, &s->dv));
    if (shared_context(r)) TRY(open_blocks(r, s));
    for (int64_t i = 0; i < (shared_context(r) ? r->spec->cp : 1); i++) {
        Tensor k = s->k, v_block = s->v;
        if (i > 0) TRY(next_block(r, s, i, &k, &v_block));
        TRY(attend_backward(r, s, d_o, k, v_block));
        if (i > 0) TRY(fold_block(r, s));
    }
    return OK;
}

static Status core_backward_weight(LayerRun *r)
{
    AttentionState *s = r->state;
    return linear_bwd_weight(
        r->ex, (LinearBwdWeight){ .dy = r->dh_out, .x = s->o, .dw = r->weights->dw[ROLE_O] });
}

static Status gather_backward_input(LayerRun *r)
{
    AttentionState *s = r->state;
    bool mla = r->layer->as.attention.kind == ATTENTION_MLA;
    if (!shared_context(r) || !mla) return OK;
    return collect(r, COMM_REDUCE_SCATTER, s->dlatents,
                   tensor_rows(&s->dlatents, 0, layer_tokens(r)));
}

static Status latent_norm_backward(LayerRun *r, AttentionState *s, ParamRole role, int64_t col,
                                   const NormState *n, Tensor dy)
{
    return rmsnorm_bwd(r->ex, (RmsnormBwd){ .dy = dy,
                                            .x = s->a,
                                            .w = r->weights->w[role],
                                            .rstd = n->rstd,
                                            .dx = s->da,
                                            .dw = r->weights->dw[role],
                                            .x_col = col });
}

/* da (all its windows) and the gradient of q before its projection. */
static Status mla_backward_input(LayerRun *r, AttentionState *s, Tensor dy)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    Dtype act = r->spec->act;
    TRY(tensor_new2(r->ring, act, n, tensor_cols(&s->q), &s->dq_raw));
    TRY(tensor_new2(r->ring, act, n, a->heads * (a->nope + a->v), &s->dkv_raw));
    TRY(tensor_new2(r->ring, act, n, tensor_cols(&s->a), &s->da));
    TRY(rope_mla_bwd(r->ex, (RopeMlaBwd){ .dq_out = s->dq,
                                          .dk_out = s->dk,
                                          .dv_out = s->dv,
                                          .pos = r->batch->pos,
                                          .cos = r->rope_cos,
                                          .sin = r->rope_sin,
                                          .dq = s->dq_raw,
                                          .dkv = s->dkv_raw,
                                          .dk_rope = s->da,
                                          .dims = mla_dims(a) }));
    Tensor dlatent;
    TRY(tensor_new2(r->scratch, act, n, a->kv_rank, &dlatent));
    TRY(project_backward(r, s->dkv_raw, ROLE_KV_B, (Tensor){ 0 }, dlatent));
    TRY(latent_norm_backward(r, s, ROLE_KV_NORM, kv_col(a), &s->kv_norm, dlatent));
    if (a->q_rank > 0) {
        TRY(tensor_new2(r->scratch, act, n, a->q_rank, &dlatent));
        TRY(project_backward(r, s->dq_raw, ROLE_Q_B, (Tensor){ 0 }, dlatent));
        TRY(latent_norm_backward(r, s, ROLE_Q_NORM, 0, &s->q_norm, dlatent));
        return project_backward(r, s->da, ROLE_A, (Tensor){ 0 }, dy);
    }
    TRY(project_backward(r, s->dq_raw, ROLE_Q, (Tensor){ 0 }, dy));
    return project_backward(r, s->da, ROLE_A, dy, dy);
}

static Status gqa_backward_input(LayerRun *r, AttentionState *s, Tensor dy)
{
    const AttentionSpec *a = &r->layer->as.attention;
    TRY(tensor_new2(r->ring, r->spec->act, layer_tokens(r), (a->heads + 2 * a->kv_heads) * a->head,
                    &s->da));
    TRY(rope_gqa_bwd(r->ex, (RopeGqaBwd){ .dq_out = s->dq,
                                          .dk_out = s->dk,
                                          .dv_out = s->dv,
                                          .pos = r->batch->pos,
                                          .cos = r->rope_cos,
                                          .sin = r->rope_sin,
                                          .dqkv = s->da,
                                          .dims = gqa_dims(a) }));
    if (a->qk_norm != QK_NORM_NONE) {
        TRY(qk_norm_bwd(r->ex, (QkNormBwd){ .dy = s->da,
                                            .qkv = s->a,
                                            .wq = r->weights->w[ROLE_Q_NORM],
                                            .wk = r->weights->w[ROLE_KV_NORM],
                                            .rstd = s->head_rstd,
                                            .dqkv = s->da,
                                            .dwq = r->weights->dw[ROLE_Q_NORM],
                                            .dwk = r->weights->dw[ROLE_KV_NORM],
                                            .dims = qk_norm_dims(a) }));
    }
    return project_backward(r, s->da, ROLE_A, (Tensor){ 0 }, dy);
}

static Status qkv_backward_input(LayerRun *r)
{
    AttentionState *s = r->state;
    Tensor dy;
    TRY(tensor_new2(r->scratch, r->spec->act, layer_tokens(r), r->spec->hidden, &dy));
    TRY(r->layer->as.attention.kind == ATTENTION_MLA ? mla_backward_input(r, s, dy)
                                                     : gqa_backward_input(r, s, dy));
    return layer_norm_backward(r, &s->norm, dy);
}

static Status qkv_backward_weight(LayerRun *r)
{
    const AttentionSpec *a = &r->layer->as.attention;
    AttentionState *s = r->state;
    TRY(project_weight(r, s->da, s->norm.y, ROLE_A));
    if (a->kind == ATTENTION_GQA) return OK;
    TRY(project_weight(r, s->dkv_raw, s->kv_norm.y, ROLE_KV_B));
    if (a->q_rank > 0) return project_weight(r, s->dq_raw, s->q_norm.y, ROLE_Q_B);
    return project_weight(r, s->dq_raw, s->norm.y, ROLE_Q);
}

static const Phase phases[] = {
    { "qkv", LANE_COMPUTE, qkv_forward, qkv_backward_input, qkv_backward_weight },
    { "kv_gather", LANE_COMM, gather_forward, gather_backward_input, NULL },
    { "core", LANE_COMPUTE, core_forward, core_backward_input, core_backward_weight },
};

const LayerDesc layer_attention = {
    .name = "attention",
    .state_bytes = sizeof(AttentionState),
    .params = params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
};
