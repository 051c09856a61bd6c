/*
 * attention_gqa: q, k and v of grouped-query attention (arXiv:2305.13245).
 *
 *     a = [q | k | v] = W_A y                  rope: q, k; then attention, H / G heads a key head
 *
 * With spec->qk_norm each head of q and of k is normalised before it is rotated: RMSNorm with
 * weights that the heads of q share, and others for k (Qwen3, arXiv:2505.09388; Henry et al.,
 * arXiv:2010.04245), or without weights (Llama 4, which scales rotated heads: the same, since a
 * rotation keeps the length); or all heads of q together, and all of k (OLMoE, arXiv:2409.02060).
 * Kept for backward: y, q, k, v; with such a norm a, too. Layers without positions (nope_every)
 * rotate nothing; their queries may grow with the position (kernels/attention/rope.h).
 *
 * Over ranks keys and values go round a ring (arXiv:2310.01889): each rank receives them from the
 * next rank. In backward a block's gradients travel with it: they start at the rank before the
 * block's owner and end at the owner.
 */
#include "engine/model/attention.h"
#include "kernels/attention/gate.h"
#include "kernels/attention/rope.h"

static Status gqa_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const AttentionSpec *a = &l->as.attention;
    int64_t tp = s->ranks.tp, q = tp * attention_query_cols(a);
    int64_t parts = s->ranks.key_parts, k = parts * a->kv_heads * a->head;
    TRY(attention_param(out, l, ROLE_A, q, s->hidden, tp, "q_proj"));
    TRY(attention_param(out, l, ROLE_A, k, s->hidden, parts, "k_proj"));
    TRY(attention_param(out, l, ROLE_A, k, s->hidden, parts, "v_proj"));
    if (a->bias) {
        TRY(attention_param(out, l, ROLE_A_BIAS, q, 0, tp, "q_proj"));
        TRY(attention_param(out, l, ROLE_A_BIAS, k, 0, parts, "k_proj"));
        TRY(attention_param(out, l, ROLE_A_BIAS, k, 0, parts, "v_proj"));
    }
    if (a->qk_norm == QK_NORM_NONE || a->qk_norm == QK_NORM_L2) return OK;
    bool width = a->qk_norm == QK_NORM_WIDTH;
    TRY(attention_param(out, l, ROLE_Q_NORM, 0, width ? tp * a->heads * a->head : a->head, 0,
                        "q_norm"));
    return attention_param(out, l, ROLE_KV_NORM, 0, width ? k : a->head, 0, "k_norm");
}

static RopeGqaDims rope_dims(const AttentionSpec *a)
{
    return (RopeGqaDims){ .heads = a->heads,
                          .kv_heads = a->kv_heads,
                          .head = a->head,
                          .rotary = a->rotary,
                          .interleaved = a->interleaved,
                          .gated = a->gated,
                          .temper_floor = a->temper_floor,
                          .temper_scale = a->temper_scale };
}

/* Over ranks keys and values are one tensor (2N, G*d), and so are their gradients. */

static Status pair_new(LayerRun *r, Arena *arena, Tensor *pair)
{
    const AttentionSpec *a = attention_spec(r);
    return tensor_new2(arena, r->spec->act, 2 * r->tokens, a->kv_heads * a->head, pair);
}

static void pair_split(const LayerRun *r, const Tensor *pair, Tensor *k, Tensor *v)
{
    int64_t n = r->tokens;
    *k = tensor_rows(pair, 0, n);
    *v = tensor_rows(pair, n, n);
}

/* Forward. */

static Status alloc_qkv(LayerRun *r, Arena *arena)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, a->heads * a->head, &s->q));
    if (!attention_over_ranks(r)) return attention_new_kv(r, arena, &s->k, &s->v);
    TRY(pair_new(r, arena, &s->gqa.kv));
    pair_split(r, &s->gqa.kv, &s->k, &s->v);
    return OK;
}

/* Normalises the heads of s->a that begin at column col, into scratch. rstd must live as long as
 * backward needs it (arena); the normalised rows only until rope reads them. */
static Status norm_heads(LayerRun *r, ParamRole role, int64_t col, int64_t heads, Arena *arena,
                         NormState *norm)
{
    const AttentionSpec *a = attention_spec(r);
    int64_t n = r->tokens, rows = a->qk_norm == QK_NORM_WIDTH ? 1 : heads;
    TRY(tensor_new2(arena, DTYPE_F32, n, rows, &norm->rstd));
    TRY(tensor_new2(r->scratch, r->spec->act, n, heads * a->head, &norm->y.x));
    return attention_norm(r, role, col, norm);
}

/* Backward of a norm of heads reads a, and so does that of a gate, which only layers with such a norm have. */
static bool norms_heads(const LayerRun *r) { return attention_spec(r)->qk_norm != QK_NORM_NONE; }

static Arena *gqa_arena_of_a(const LayerRun *r)
{
    return norms_heads(r) ? layer_arena(r, RECOMPUTE_ATTN_UP) : r->ring;
}

/* Makes q, k and v of a in `arena`, from normalised heads if the spec has a norm. */
static Status make_qkv(LayerRun *r, Arena *arena)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    TRY(alloc_qkv(r, arena));
    if (norms_heads(r)) {
        int64_t k_col = attention_query_cols(a);
        TRY(norm_heads(r, ROLE_Q_NORM, 0, a->heads, arena, &s->q_norm));
        TRY(norm_heads(r, ROLE_KV_NORM, k_col, a->kv_heads, arena, &s->kv_norm));
    }
    return rope_gqa_fwd(r->ex, (RopeGqaFwd){ .qkv = s->a,
                                             .q = s->q_norm.y.x,
                                             .k = s->kv_norm.y.x,
                                             .pos = r->batch->pos,
                                             .cos = r->rope.cos,
                                             .sin = r->rope.sin,
                                             .q_out = s->q,
                                             .k_out = s->k,
                                             .v_out = s->v,
                                             .dims = rope_dims(a) });
}

static Status gqa_forward(LayerRun *r)
{
    Arena *arena = layer_arena(r, RECOMPUTE_ATTN_UP);
    TRY(attention_make_a(r, norms_heads(r) ? arena : r->scratch));
    return make_qkv(r, arena);
}

static Status gqa_recompute(LayerRun *r)
{
    AttentionState *s = r->state;
    Activation y;
    if (layer_arena(r, RECOMPUTE_ATTN_UP) != r->ring) return OK;
    TRY(recipe_operands(r, ROLE_A, SIDE_FORWARD, s->stream.norm.y.x, r->scratch, NULL, &y));
    TRY(attention_project(r, y.rows, ROLE_A, norms_heads(r) ? r->ring : r->scratch, &s->a));
    return make_qkv(r, r->ring);
}

/* Blocks alternate between two buffers: one receives while the other's block is sent on. */
static Status gqa_block(LayerRun *r, int64_t block, Tensor *k, Tensor *v)
{
    AttentionState *s = r->state;
    Tensor *to = &s->gqa.guest[block % 2];
    *k = s->k;
    *v = s->v;
    if (block == 0) return OK;
    if (block <= 2) TRY(pair_new(r, r->ring, to));
    Tensor from = block == 1 ? s->gqa.kv : s->gqa.guest[(block - 1) % 2];
    TRY(layer_collect(r, COMM_SHIFT, from, *to));
    pair_split(r, to, k, v);
    return OK;
}

/* Backward. */

/* Backward begins with block 1, whose gradients go to dkv[1]: the buffer's index is the block's parity. */
static Status gqa_open_backward(LayerRun *r)
{
    AttentionState *s = r->state;
    for (int i = 0; i < 2; i++) TRY(pair_new(r, r->ring, &s->gqa.dkv[i]));
    pair_split(r, &s->gqa.dkv[1], &s->dk, &s->dv);
    return OK;
}

/* Sends a block's gradients to the rank before, where the block goes next. The gradients that
 * arrive are the next block's; after the last other block they are the own block's. */
static Status gqa_block_backward(LayerRun *r, int64_t block)
{
    AttentionState *s = r->state;
    Tensor *from = &s->gqa.dkv[block % 2], *to = &s->gqa.dkv[(block + 1) % 2];
    if (block == 0) return OK;
    TRY(layer_collect(r, COMM_SHIFT, *from, *to));
    pair_split(r, to, &s->dk, &s->dv);
    return OK;
}

static Status gqa_backward(LayerRun *r, Tensor dy)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    int64_t n = r->tokens, q = attention_query_cols(a), k = a->kv_heads * a->head;
    bool norm = a->qk_norm != QK_NORM_NONE;
    RopeGqaBwd rope = { .dq_out = s->dq,
                        .dk_out = s->dk,
                        .dv_out = s->dv,
                        .pos = r->batch->pos,
                        .cos = r->rope.cos,
                        .sin = r->rope.sin,
                        .dims = rope_dims(a) };
    const bool bias = r->weights->w[ROLE_A_BIAS].data.data != NULL;
    TRY(recipe_new(
        r, ROLE_A, SIDE_GRADIENT, n, q + 2 * k,
        (ActivationArenas){
            .x = r->ring, .rows = r->scratch, .columns = r->ring, .plain = norm || bias },
        &s->da));
    rope.dqkv = s->da.x;
    if (!norm) rope.quant = recipe_output(r, ROLE_A, SIDE_GRADIENT, &s->da);
    if (norm) TRY(tensor_new2(r->scratch, r->spec->act, n, a->heads * a->head, &rope.dq));
    if (norm) TRY(tensor_new2(r->scratch, r->spec->act, n, k, &rope.dk));
    TRY(rope_gqa_bwd(r->ex, rope));
    if (norm) TRY(attention_norm_backward(r, ROLE_Q_NORM, 0, &s->q_norm, rope.dq));
    if (norm) TRY(attention_norm_backward(r, ROLE_KV_NORM, q, &s->kv_norm, rope.dk));
    if (a->gated) TRY(gate_bwd(r->ex, (GateBwd){ s->a, s->o, s->d_o, s->da.x, a->heads }));
    if (norm) TRY(recipe_quantise(r, ROLE_A, SIDE_GRADIENT, &s->da));
    return recipe_backward_input(r, ROLE_A, s->da.rows, (Tensor){ 0 }, dy);
}

static QkRows gqa_clips(const AttentionSpec *a, ParamRole role)
{
    const bool all = role == ROLE_A || role == ROLE_A_BIAS;
    return (QkRows){ .heads = a->heads,
                     .kv_heads = a->kv_heads,
                     .queries = all ? a->heads * a->head : 0,
                     .keys = all ? a->kv_heads * a->head : 0,
                     .width = a->head,
                     .both = a->head };
}

const AttentionKindDesc attention_gqa = {
    .keys = ROLE_A,
    .clips = gqa_clips,
    .arena_of_a = gqa_arena_of_a,
    .params = gqa_params,
    .forward = gqa_forward,
    .recompute = gqa_recompute,
    .backward = gqa_backward,
    .backward_weight = attention_nothing,
    .gather = attention_nothing,
    .gather_backward = attention_nothing,
    .open_forward = attention_nothing,
    .open_backward = gqa_open_backward,
    .block = gqa_block,
    .block_backward = gqa_block_backward,
    .gradients_travel = true,
};
