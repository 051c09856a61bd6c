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
 * With a sequence cut over ranks (spec->cp; rank c has pieces c and 2 cp - 1 - c of 2 cp, so that
 * all see as many pairs) the queries here meet the keys block by block, a block being one rank's:
 * first the own one, then the next rank's and so on; backward the own one comes last. o and dq grow
 * in f32. MLA gathers and keeps the latents of all ranks, normalised, with the shared keys turned
 * (whoever reads them needs no positions), and projects keys and values up from them when their
 * block's turn comes, forward and backward; the gradients are folded back through that projection
 * before they are scattered. GQA passes keys and values round a ring (arXiv:2310.01889), in
 * backward with their gradients: a block's begin at the rank before its own and end there. Each
 * block costs what one rank's own causal half does.
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
    /* Over ranks. mla: of each rank (N, kv_rank) latents, then (N, rope) keys; gradients (ring)
     * alike, this rank's part being whole after kv_gather. */
    Tensor latents, dlatents;
    Tensor kv;       /* mla: a block before it is assembled; gqa: k, then v, (2N, G*d) */
    Tensor dkv;      /* gqa, ring: dk, then dv */
    Tensor block[2]; /* gqa, ring: keys and values under way */
} AttentionState;

/* With a cache one rank generates. */
static bool shared_context(const LayerRun *r) { return r->cache == NULL && r->spec->cp > 1; }
static bool shared_latents(const LayerRun *r)
{
    return shared_context(r) && r->layer->as.attention.kind == ATTENTION_MLA;
}

/* The block whose turn it is: 0 is this rank's own, 1 the next rank's. */
static int64_t rank_of_block(const LayerRun *r, int64_t block)
{
    int64_t own = r->ex->mesh == NULL ? 0 : r->ex->mesh->at.cp;
    return (own + block) % r->spec->cp;
}

static AttentionPieces pieces(const LayerRun *r, int64_t block)
{
    if (!shared_context(r)) return (AttentionPieces){ 0 };
    int64_t q = rank_of_block(r, 0), k = rank_of_block(r, block), n = r->batch->t / 2;
    int64_t last = 2 * r->spec->cp - 1;
    return (AttentionPieces){ n, { n * q, n * (last - q) }, { n * k, n * (last - k) } };
}

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

/* y = norm of the window of `a` at col, as wide as y. */
static Status latent_norm(LayerRun *r, const AttentionState *s, ParamRole role, int64_t col,
                          const NormState *n)
{
    return rmsnorm_fwd(r->ex, (RmsnormFwd){ .x = s->a,
                                            .w = r->weights->w[role],
                                            .y = n->y,
                                            .rstd = n->rstd,
                                            .x_col = col,
                                            .eps = r->spec->eps });
}

static Status latents(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    if (a->q_rank > 0) {
        TRY(tensor_new2(arena, r->spec->act, n, a->q_rank, &s->q_norm.y));
        TRY(latent_norm(r, s, ROLE_Q_NORM, 0, &s->q_norm));
    }
    if (shared_latents(r)) return OK;
    TRY(tensor_new2(arena, r->spec->act, n, a->kv_rank, &s->kv_norm.y));
    return latent_norm(r, s, ROLE_KV_NORM, kv_col(a), &s->kv_norm);
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

/* The shared key alone, as one head of a query. */
static RopeMlaDims key_dims(const AttentionSpec *a)
{
    return (RopeMlaDims){
        .heads = 1, .rope = a->rope, .q_col = rope_col(a), .interleaved = a->interleaved
    };
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
    RopeMlaFwd rope = { .q = q,
                        .pos = r->batch->pos,
                        .cos = r->rope_cos,
                        .sin = r->rope_sin,
                        .q_out = s->q,
                        .dims = mla_dims(a) };
    if (shared_context(r)) return rope_mla_fwd(r->ex, rope);
    TRY(project(r, s->kv_norm.y, ROLE_KV_B, r->scratch, &kv));
    rope.kv = kv, rope.k_rope = s->a, rope.k_out = s->k, rope.v_out = s->v;
    return rope_mla_fwd(r->ex, rope);
}

static Status place_kv(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    if (shared_context(r) && a->kind == ATTENTION_GQA) {
        TRY(tensor_new2(arena, r->spec->act, 2 * n, a->kv_heads * a->head, &s->kv));
        s->k = tensor_rows(&s->kv, 0, n), s->v = tensor_rows(&s->kv, n, n);
        return OK;
    }
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
    return shared_latents(r) ? OK : place_kv(r, s, arena); /* made block by block: none is kept */
}

/* What rank `rank` has in latents or dlatents. */
static Tensor latent_of(const LayerRun *r, const Tensor *all, int64_t rank)
{
    int64_t n = layer_tokens(r);
    Tensor part = tensor_rows(all, rank * n, n);
    part.dim[1] = r->layer->as.attention.kv_rank;
    return part;
}

static Tensor key_of(const LayerRun *r, const Tensor *all, int64_t rank)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    Tensor part = tensor_rows(all, rank * n, n);
    part.data = tensor_at(&part, n * a->kv_rank), part.dim[1] = a->rope;
    return part;
}

/* Room for all ranks' latents, and this rank's own. */
static Status own_latents(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t own = rank_of_block(r, 0), rows = r->spec->cp * layer_tokens(r);
    TRY(tensor_new2(arena, r->spec->act, rows, a->kv_rank + a->rope, &s->latents));
    s->kv_norm.y = latent_of(r, &s->latents, own);
    TRY(latent_norm(r, s, ROLE_KV_NORM, kv_col(a), &s->kv_norm));
    return rope_mla_fwd(r->ex, (RopeMlaFwd){ .q = s->a,
                                             .pos = r->batch->pos,
                                             .cos = r->rope_cos,
                                             .sin = r->rope_sin,
                                             .q_out = key_of(r, &s->latents, own),
                                             .dims = key_dims(a) });
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
        if (shared_context(r)) TRY(own_latents(r, s, layer_arena(r, RECOMPUTE_EXCHANGE)));
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

static Status gather(LayerRun *r, const AttentionState *s)
{
    int64_t n = layer_tokens(r);
    Tensor own = tensor_rows(&s->latents, rank_of_block(r, 0) * n, n);
    return collect(r, COMM_ALL_GATHER, own, s->latents);
}

static Status gather_forward(LayerRun *r) { return shared_latents(r) ? gather(r, r->state) : OK; }

/* Up from the latents of a block's rank, into s->k and s->v. */
static Status project_block(LayerRun *r, const AttentionState *s, int64_t block)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t rank = rank_of_block(r, block);
    RopeMlaDims dims = mla_dims(a);
    dims.k_col = 0;
    TRY(linear_fwd(r->ex, (LinearFwd){ .x = latent_of(r, &s->latents, rank),
                                       .w = r->weights->w[ROLE_KV_B],
                                       .y = s->kv }));
    return rope_mla_fwd(r->ex, (RopeMlaFwd){ .kv = s->kv,
                                             .k_rope = key_of(r, &s->latents, rank),
                                             .cos = r->rope_cos,
                                             .sin = r->rope_sin,
                                             .k_out = s->k,
                                             .v_out = s->v,
                                             .dims = dims });
}

/* Keys and values of a block: made (mla), or had from the next rank (gqa), which has them from its
 * own next one. */
static Status next_block(LayerRun *r, AttentionState *s, int64_t block, Tensor *k, Tensor *v)
{
    int64_t n = layer_tokens(r);
    *k = s->k, *v = s->v;
    if (!shared_context(r)) return OK;
    if (shared_latents(r)) return project_block(r, s, block);
    if (block == 0) return OK;
    Tensor *to = &s->block[block % 2];
    if (block <= 2) TRY(tensor_new2(r->ring, r->spec->act, 2 * n, tensor_cols(&s->kv), to));
    TRY(collect(r, COMM_SHIFT, block == 1 ? s->kv : s->block[(block - 1) % 2], *to));
    *k = tensor_rows(to, 0, n), *v = tensor_rows(to, n, n);
    return OK;
}

static int64_t blocks_of(const LayerRun *r) { return shared_context(r) ? r->spec->cp : 1; }

/* Where a sum over blocks grows in f32: in `whole` itself if that is f32 or there is one block. */
static Status place_sum(LayerRun *r, Tensor whole, Tensor *out)
{
    *out = whole;
    if (whole.dtype == DTYPE_F32 || blocks_of(r) == 1) return OK;
    return tensor_new2(r->scratch, DTYPE_F32, whole.dim[0], whole.dim[1], out);
}

static Status attend(LayerRun *r, AttentionState *s, Tensor sum, int64_t block)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t b = r->batch->b, t = r->batch->t, tk = t;
    int64_t qk = attention_qk_dim(a), v = attention_v_dim(a);
    Tensor k, value;
    TRY(next_block(r, s, block, &k, &value));
    if (r->cache != NULL) {
        tk = r->cache->used + b * t;
        k = tensor_rows(&r->cache->k[r->layer->block], 0, tk);
        value = tensor_rows(&r->cache->v[r->layer->block], 0, tk);
    }
    Tensor o = block == blocks_of(r) - 1 ? s->o : sum;
    AttentionFwd args = { .chunk = a->chunk,
                          .q = tensor_as4(&s->q, b, t, a->heads, qk),
                          .k = tensor_as4(&k, b, tk, a->kv_heads, qk),
                          .v = tensor_as4(&value, b, tk, a->kv_heads, v),
                          .doc = a->document_mask ? r->batch->doc : (Tensor){ 0 },
                          .o = tensor_as4(&o, b, t, a->heads, v),
                          .lse = tensor_as4(&s->lse, b, a->heads, t, 1),
                          .scale = (float)(1 / sqrt((double)qk)),
                          .pieces = pieces(r, block),
                          .kernel = a->kernel };
    if (block > 0) args.o_before = tensor_as4(&sum, b, t, a->heads, v), args.lse_before = args.lse;
    return attention_fwd(r->ex, args);
}

/* Room for a block of keys and values that are made from latents. */
static Status open_block(LayerRun *r, AttentionState *s, Arena *arena)
{
    const AttentionSpec *a = &r->layer->as.attention;
    if (!shared_latents(r)) return OK;
    TRY(place_kv(r, s, arena));
    return tensor_new2(arena, r->spec->act, layer_tokens(r), a->heads * (a->nope + a->v), &s->kv);
}

static Status core_forward(LayerRun *r)
{
    const AttentionSpec *a = &r->layer->as.attention;
    AttentionState *s = r->state;
    int64_t b = r->batch->b, t = r->batch->t;
    Tensor sum;
    TRY(tensor_new2(r->keep, r->spec->act, b * t, a->heads * attention_v_dim(a), &s->o));
    TRY(tensor_new2(r->keep, DTYPE_F32, b * a->heads, t, &s->lse));
    TRY(open_block(r, s, r->scratch));
    TRY(place_sum(r, s->o, &sum));
    for (int64_t block = 0; block < blocks_of(r); block++) TRY(attend(r, s, sum, block));
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
    if (shared_latents(r) && layer_arena(r, RECOMPUTE_EXCHANGE) == r->ring) {
        TRY(own_latents(r, s, r->ring));
        TRY(gather(r, s));
    }
    if (layer_arena(r, RECOMPUTE_ATTN_UP) != r->ring) return OK;
    TRY(place_qkv(r, s, r->ring));
    return assemble(r, s);
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

/* Gradients of q, k and v, and what blocks of other ranks need. */
static Status place_gradients(LayerRun *r, AttentionState *s)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r), cols = a->kv_heads * attention_qk_dim(a);
    Dtype act = r->spec->act;
    TRY(tensor_new2(r->ring, act, n, tensor_cols(&s->q), &s->dq));
    if (shared_context(r) && a->kind == ATTENTION_GQA) {
        TRY(tensor_new2(r->ring, act, 2 * n, cols, &s->dkv_raw));
        TRY(tensor_new2(r->ring, act, 2 * n, cols, &s->dkv));
        s->dk = tensor_rows(&s->dkv, 0, n), s->dv = tensor_rows(&s->dkv, n, n);
        return OK;
    }
    TRY(tensor_new2(r->ring, act, n, cols, &s->dk));
    TRY(tensor_new2(r->ring, act, n, a->kv_heads * attention_v_dim(a), &s->dv));
    if (!shared_context(r)) return OK;
    TRY(open_block(r, s, r->ring));
    s->dkv_raw = s->kv; /* read before its gradient is there */
    return tensor_new2(r->ring, act, r->spec->cp * n, a->kv_rank + a->rope, &s->dlatents);
}

/* Sums of backward: what goes on from block to block, and where gqa's gradients are now. */
typedef struct Backward {
    Tensor d_o, dq;
    Tensor dkv; /* zeroed: none yet */
} Backward;

static Status attend_backward(LayerRun *r, AttentionState *s, const Backward *x, int64_t block)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t b = r->batch->b, t = r->batch->t, n = b * t;
    int64_t qk = attention_qk_dim(a), v = attention_v_dim(a);
    bool first = block == 1 || blocks_of(r) == 1, last = block == 0;
    Tensor k, value, dq = last ? s->dq : x->dq, dk = s->dk, dv = s->dv;
    TRY(next_block(r, s, block, &k, &value));
    AttentionBwd args = { .chunk = a->chunk,
                          .d_o = tensor_as4(&x->d_o, b, t, a->heads, v),
                          .q = tensor_as4(&s->q, b, t, a->heads, qk),
                          .k = tensor_as4(&k, b, t, a->kv_heads, qk),
                          .v = tensor_as4(&value, b, t, a->kv_heads, v),
                          .doc = a->document_mask ? r->batch->doc : (Tensor){ 0 },
                          .o = tensor_as4(&s->o, b, t, a->heads, v),
                          .lse = tensor_as4(&s->lse, b, a->heads, t, 1),
                          .dq = tensor_as4(&dq, b, t, a->heads, qk),
                          .scale = (float)(1 / sqrt((double)qk)),
                          .pieces = pieces(r, block),
                          .kernel = a->kernel,
                          .any_order = a->any_order };
    if (!first) args.dq_before = tensor_as4(&x->dq, b, t, a->heads, qk);
    if (x->dkv.data != NULL) {
        Tensor k_sum = tensor_rows(&x->dkv, 0, n), v_sum = tensor_rows(&x->dkv, n, n);
        if (!last) dk = k_sum, dv = v_sum;
        if (!first) args.dk_before = tensor_as4(&k_sum, b, t, a->kv_heads, qk);
        if (!first) args.dv_before = tensor_as4(&v_sum, b, t, a->kv_heads, v);
    }
    args.dk = tensor_as4(&dk, b, t, a->kv_heads, qk);
    args.dv = tensor_as4(&dv, b, t, a->kv_heads, v);
    return attention_bwd(r->ex, args);
}

/* mla: a block's gradients go back through the projection; those of the weights as well if it is
 * another rank's, because later it is not there any more. */
static Status fold_block(LayerRun *r, AttentionState *s, int64_t block)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t rank = rank_of_block(r, block);
    RopeMlaDims dims = mla_dims(a);
    dims.k_col = 0;
    TRY(rope_mla_bwd(r->ex, (RopeMlaBwd){ .dk_out = s->dk,
                                          .dv_out = s->dv,
                                          .cos = r->rope_cos,
                                          .sin = r->rope_sin,
                                          .dkv = s->dkv_raw,
                                          .dk_rope = key_of(r, &s->dlatents, rank),
                                          .dims = dims }));
    TRY(project_backward(r, s->dkv_raw, ROLE_KV_B, (Tensor){ 0 },
                         latent_of(r, &s->dlatents, rank)));
    if (block == 0) return OK;
    return project_weight(r, s->dkv_raw, latent_of(r, &s->latents, rank), ROLE_KV_B);
}

/* gqa: a block's gradients go where its keys and values go next; s->dkv and s->dkv_raw take turns.
 */
static Status pass_on(LayerRun *r, const AttentionState *s, int64_t block, Backward *x)
{
    if (block == 0) return OK;
    Tensor to = block % 2 == 0 ? s->dkv_raw : s->dkv;
    TRY(collect(r, COMM_SHIFT, x->dkv, to));
    x->dkv = to;
    return OK;
}

static Status core_backward_input(LayerRun *r)
{
    const AttentionSpec *a = &r->layer->as.attention;
    AttentionState *s = r->state;
    int64_t n = layer_tokens(r), blocks = blocks_of(r);
    bool mla = a->kind == ATTENTION_MLA;
    Backward x = { 0 };
    TRY(restore(r, s));
    TRY(tensor_new2(r->scratch, r->spec->act, n, a->heads * attention_v_dim(a), &x.d_o));
    TRY(project_backward(r, r->dh_out, ROLE_O, (Tensor){ 0 }, x.d_o));
    TRY(place_gradients(r, s));
    TRY(place_sum(r, s->dq, &x.dq));
    if (blocks > 1 && !mla) x.dkv = s->dkv_raw;
    for (int64_t i = 1; i <= blocks; i++) {
        TRY(attend_backward(r, s, &x, i % blocks));
        if (blocks > 1) TRY(mla ? fold_block(r, s, i % blocks) : pass_on(r, s, i % blocks, &x));
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
    int64_t n = layer_tokens(r);
    if (!shared_latents(r)) return OK;
    Tensor own = tensor_rows(&s->dlatents, rank_of_block(r, 0) * n, n);
    return collect(r, COMM_REDUCE_SCATTER, s->dlatents, own);
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

/* Back through the assembly: the gradients of q and kv before it, da's window of the shared key,
 * and the latent's. Over ranks only q is left to do here, and the shared key, which turned alone.
 */
static Status assemble_backward(LayerRun *r, AttentionState *s, Tensor *dlatent)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    RopeMlaBwd rope = { .dq_out = s->dq,
                        .pos = r->batch->pos,
                        .cos = r->rope_cos,
                        .sin = r->rope_sin,
                        .dq = s->dq_raw,
                        .dims = mla_dims(a) };
    if (shared_context(r)) {
        int64_t own = rank_of_block(r, 0);
        *dlatent = latent_of(r, &s->dlatents, own);
        TRY(rope_mla_bwd(r->ex, rope));
        rope.dq_out = key_of(r, &s->dlatents, own), rope.dq = s->da, rope.dims = key_dims(a);
        return rope_mla_bwd(r->ex, rope);
    }
    TRY(tensor_new2(r->ring, r->spec->act, n, a->heads * (a->nope + a->v), &s->dkv_raw));
    rope.dk_out = s->dk, rope.dv_out = s->dv, rope.dkv = s->dkv_raw, rope.dk_rope = s->da;
    TRY(rope_mla_bwd(r->ex, rope));
    TRY(tensor_new2(r->scratch, r->spec->act, n, a->kv_rank, dlatent));
    return project_backward(r, s->dkv_raw, ROLE_KV_B, (Tensor){ 0 }, *dlatent);
}

/* da (all its windows) and the gradient of q before its projection. */
static Status mla_backward_input(LayerRun *r, AttentionState *s, Tensor dy)
{
    const AttentionSpec *a = &r->layer->as.attention;
    int64_t n = layer_tokens(r);
    Dtype act = r->spec->act;
    Tensor dlatent;
    TRY(tensor_new2(r->ring, act, n, tensor_cols(&s->q), &s->dq_raw));
    TRY(tensor_new2(r->ring, act, n, tensor_cols(&s->a), &s->da));
    TRY(assemble_backward(r, s, &dlatent));
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
    { "qkv", LANE_COMPUTE, qkv_forward, qkv_backward_input, qkv_backward_weight, .part = PHASE_ATTENTION },
    { "kv_gather", LANE_COMM, gather_forward, gather_backward_input, NULL, .part = PHASE_ATTENTION },
    { "core", LANE_COMPUTE, core_forward, core_backward_input, core_backward_weight, .part = PHASE_ATTENTION },
};

/* MLA gathers latents and folds their gradients back; GQA's ring runs inside the core. */
static bool meets(const ModelSpec *s, const LayerSpec *l, int phase, bool forward)
{
    (void)forward;
    return s->cp > 1 && phase == (l->as.attention.kind == ATTENTION_MLA ? 1 : 2);
}

const LayerDesc layer_attention = {
    .name = "attention",
    .state_bytes = sizeof(AttentionState),
    .params = params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
    .meets = meets,
};
