/*
 * attention: h_out = h + W_O attention(q, k, v), q, k, v from y = norm(h).
 *
 * The kind of layer makes q, k and v (attention_mla.c, attention_gqa.c). This file has what both
 * share: the norm, attention itself, W_O, the cache. Kept for backward: what the kind keeps, q, k,
 * v, o and the softmax's lse. The kernels are in kernels/attention/attention.h.
 *
 * A sequence may be cut over spec->cp ranks. Rank c then has pieces c and 2 cp - 1 - c of 2 cp, so
 * that all ranks score equally many pairs. This rank's queries meet the keys block by block; a
 * block is the keys of one rank. Forward takes this rank's own block first, then the next rank's,
 * and so on. Backward takes its own block last, since GQA's travelling gradients end there. Each
 * block costs what a rank's own causal half does. The sums o and dq over blocks are f32.
 */
#include "engine/model/attention.h"

#include "kernels/attention/attention.h"
#include "kernels/attention/gate.h"
#include "kernels/norm/bias.h"
#include "kernels/norm/rmsnorm.h"

static const AttentionKindDesc *kind_of(const AttentionSpec *a)
{
    return a->kind == ATTENTION_MLA ? &attention_mla : &attention_gqa;
}

/* Functions for both kinds. */

const AttentionSpec *attention_spec(const LayerRun *r) { return &r->layer->as.attention; }

Status attention_nothing(LayerRun *r)
{
    (void)r;
    return OK;
}

bool attention_over_ranks(const LayerRun *r) { return r->cache == NULL && r->spec->ranks.cp > 1; }

/* The role of a matrix's bias; ROLE_COUNT: none. A model without such a bias has no data there. */
static ParamRole bias_of(ParamRole role)
{
    return role == ROLE_A ? ROLE_A_BIAS : role == ROLE_O ? ROLE_O_BIAS : ROLE_COUNT;
}

/* y = W x + b + residual (optional) */
static Status project_plus_bias(LayerRun *r, Operand x, ParamRole role, Tensor residual, Tensor y)
{
    ParamRole bias = bias_of(role);
    Tensor b = bias == ROLE_COUNT ? (Tensor){ 0 } : r->weights->w[bias].data;
    TRY(recipe_forward(r, role, x, residual, y));
    return b.data == NULL ? OK : bias_fwd(r->ex, (BiasFwd){ .x = y, .b = b, .y = y });
}

Status attention_project(LayerRun *r, Operand x, ParamRole role, Arena *arena, Tensor *out)
{
    TRY(tensor_new2(arena, r->spec->act, x.data.dim[0], r->weights->w[role].data.dim[0], out));
    return project_plus_bias(r, x, role, (Tensor){ 0 }, *out);
}

/* a of this rank's rows, or of the others'. */
static Status project_runs(LayerRun *r, bool own)
{
    const AttentionState *s = r->state;
    Operand x;
    Tensor a;
    for (int64_t i = 0; stream_next_run(r, own, &i, s->a, &x, &a);)
        TRY(project_plus_bias(r, x, ROLE_A, (Tensor){ 0 }, a));
    return OK;
}

Status attention_make_a(LayerRun *r, Arena *arena)
{
    AttentionState *s = r->state;
    if (stream_begins(r, ROLE_A)) return project_runs(r, false);
    return attention_project(r, s->stream.norm.y.rows, ROLE_A, arena, &s->a);
}

static Status attention_project_weight(LayerRun *r, Tensor dy, Operand dy_columns, Operand x,
                                       ParamRole role)
{
    ParamRole bias = bias_of(role);
    Tensor db = bias == ROLE_COUNT ? (Tensor){ 0 } : r->weights->dw[bias];
    if (dy.data != NULL) TRY(bias_bwd(r->ex, (BiasBwd){ .dy = dy, .db = db }));
    return recipe_backward_weight(r, role, dy_columns, x);
}

/* From a head of a to the next: gates lie between those of queries. 0: no more than a head. */
static int64_t norm_step(const AttentionSpec *a, ParamRole role)
{
    return a->gated && role == ROLE_Q_NORM ? 2 * a->head : 0;
}

Status attention_norm(LayerRun *r, ParamRole role, int64_t col, const NormState *n)
{
    const AttentionState *s = r->state;
    const ParamRole reader = role == ROLE_Q_NORM ? ROLE_Q_B : ROLE_KV_B;
    return rmsnorm_fwd(r->ex,
                       (RmsnormFwd){ .x = s->a,
                                     .w = r->weights->w[role].data,
                                     .y = n->y.x,
                                     .rstd = n->rstd,
                                     .x_col = col,
                                     .x_step = norm_step(attention_spec(r), role),
                                     .eps = attention_spec(r)->norm_eps,
                                     .quant = recipe_output(r, reader, SIDE_FORWARD, &n->y) });
}

Status attention_norm_backward(LayerRun *r, ParamRole role, int64_t col, const NormState *n,
                               Tensor dy)
{
    const AttentionState *s = r->state;
    return rmsnorm_bwd(r->ex, (RmsnormBwd){ .dy = dy,
                                            .x = s->a,
                                            .w = r->weights->w[role].data,
                                            .rstd = n->rstd,
                                            .dx = s->da.x,
                                            .dw = r->weights->dw[role],
                                            .x_col = col,
                                            .x_step = norm_step(attention_spec(r), role) });
}

Status attention_new_kv(LayerRun *r, Arena *arena, Tensor *k, Tensor *v)
{
    const AttentionSpec *a = attention_spec(r);
    int64_t n = r->tokens;
    TRY(tensor_new2(arena, r->spec->act, n, a->kv_heads * attention_qk_dim(a), k));
    return tensor_new2(arena, r->spec->act, n, a->kv_heads * attention_v_dim(a), v);
}

Status attention_param(ParamList *out, const LayerSpec *l, ParamRole role, int64_t rows,
                       int64_t cols, int64_t parts, const char *name)
{
    const bool bias = cols == 0, norm = rows == 0, matrix = !bias && !norm;
    const ParamInit init = bias ? INIT_ZERO : norm ? INIT_ONE : INIT_NORMAL;
    const ParamAdd add = { .role = role,
                           .expert = -1,
                           .rows = bias ? 0 : rows,
                           .cols = bias ? rows : cols,
                           .init = init,
                           .decay = matrix,
                           .keep_f32 = !matrix,
                           .split = parts > 0 ? SPLIT_ROWS : SPLIT_NONE,
                           .parts = parts };
    return params_add(out, add, "model.layers.%d.self_attn.%s.%s", l->block, name,
                      bias ? "bias" : "weight");
}

/* Both kinds have the norm before attention and the projection after it. */
static Status attention_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const AttentionSpec *a = &l->as.attention;
    TRY(params_add(out, (ParamAdd){ ROLE_NORM, -1, 0, s->hidden, INIT_ONE, .keep_f32 = true },
                   "model.layers.%d.input_layernorm.weight", l->block));
    TRY(kind_of(a)->params(s, l, out));
    const int64_t heads = a->heads * s->ranks.tp;
    TRY(params_add(out,
                   (ParamAdd){ ROLE_O, -1, s->hidden, heads * attention_v_dim(a), INIT_NORMAL,
                               .decay = true, .split = SPLIT_COLS },
                   "model.layers.%d.self_attn.o_proj.weight", l->block));
    if (a->out_bias) TRY(attention_param(out, l, ROLE_O_BIAS, s->hidden, 0, 0, "o_proj"));
    if (!a->sinks) return OK;
    return params_add(
        out,
        (ParamAdd){ ROLE_SINKS, -1, 0, heads, INIT_NORMAL, .keep_f32 = true, .split = SPLIT_ROWS },
        "model.layers.%d.self_attn.sinks", l->block);
}

/* Queries, keys and values. */

/* Projections that backward makes a second time read rows of y again. */
static NormUse norm_use(const LayerRun *r)
{
    return (NormUse){ .role = ROLE_A,
                      .plain = layer_arena(r, RECOMPUTE_ATTN_UP) == r->ring,
                      .all_tokens = true };
}

static Status own_forward(LayerRun *r)
{
    AttentionState *s = r->state;
    const int64_t columns = r->weights->w[ROLE_A].data.dim[0];
    if (!stream_begins(r, ROLE_A)) return OK;
    TRY(tensor_new2(kind_of(attention_spec(r))->arena_of_a(r), r->spec->act, r->tokens, columns,
                    &s->a));
    return project_runs(r, true);
}

static Status qkv_forward(LayerRun *r)
{
    AttentionState *s = r->state;
    TRY(layer_norm_forward(r, &s->stream.norm, norm_use(r)));
    return kind_of(attention_spec(r))->forward(r);
}

static Status qkv_backward_input(LayerRun *r)
{
    AttentionState *s = r->state;
    Tensor dy;
    TRY(layer_norm_new_gradient(r, &dy));
    TRY(kind_of(attention_spec(r))->backward(r, dy));
    return layer_norm_backward(r, &s->stream.norm, dy);
}

/* The kind's backward has made da and dy; what is left are products with kept inputs. */
static Status qkv_backward_weight(LayerRun *r)
{
    const AttentionState *s = r->state;
    TRY(attention_project_weight(r, s->da.x, s->da.columns, s->stream.norm.y.columns, ROLE_A));
    return kind_of(attention_spec(r))->backward_weight(r);
}

static Status gather_forward(LayerRun *r)
{
    return attention_over_ranks(r) ? kind_of(attention_spec(r))->gather(r) : OK;
}

static Status gather_backward(LayerRun *r)
{
    return attention_over_ranks(r) ? kind_of(attention_spec(r))->gather_backward(r) : OK;
}

/* Attention. */

static int64_t blocks_of(const LayerRun *r)
{
    return attention_over_ranks(r) ? r->spec->ranks.cp : 1;
}

/* The positions of this rank's queries and of a block's keys in the sequence. */
static AttentionPieces sequence_pieces(const LayerRun *r, int64_t block)
{
    if (!attention_over_ranks(r)) return (AttentionPieces){ 0 };
    int64_t q = layer_rank(r, 0), k = layer_rank(r, block), n = r->batch->t / 2;
    int64_t last = 2 * r->spec->ranks.cp - 1;
    return (AttentionPieces){ n, { n * q, n * (last - q) }, { n * k, n * (last - k) } };
}

/* Rows (N, heads * width) as the op takes them: (B, T, heads, width). */
static Tensor heads_view(const LayerRun *r, Tensor rows, int64_t heads)
{
    int64_t b = r->batch->b, t = rows.dim[0] / b;
    return tensor_as4(&rows, b, t, heads, tensor_row_elems(&rows) / heads);
}

/* Sets *out to the f32 tensor for a sum over blocks: `whole` itself if it is f32 or there is one
 * block, because bf16 would round after every block. */
static Status sum_buffer(LayerRun *r, Tensor whole, Tensor *out)
{
    *out = whole;
    if (whole.dtype == DTYPE_F32 || blocks_of(r) == 1) return OK;
    return tensor_new2(r->scratch, DTYPE_F32, whole.dim[0], whole.dim[1], out);
}

/* The keys and values of a block, (B, Tk, heads, width). */
static Status keys_of(LayerRun *r, int64_t block, Tensor *k, Tensor *v)
{
    const AttentionState *s = r->state;
    if (attention_over_ranks(r)) return kind_of(attention_spec(r))->block(r, block, k, v);
    *k = s->k;
    *v = s->v;
    return OK;
}

/* Notes the largest logits of a block for QK-clip. lse is over this block and those before it, so it
 * is at least each of them. A layer whose projections are frozen is not clipped. */
static Status note_logits(LayerRun *r, const AttentionFwd *a)
{
    const float above = r->spec->optimizer.qk_clip;
    const bool frozen = role_frozen(r->layer, kind_of(attention_spec(r))->keys);
    if (above <= 0 || !r->training || r->recomputing || frozen) return OK;
    const int64_t heads = attention_spec(r)->heads, first = r->spec->ranks.tp_rank * heads;
    Tensor max = tensor_rows(&r->record->logits, r->layer->block, 1);
    max = (Tensor){ tensor_at(&max, first), DTYPE_F32, 1, { heads } };
    return attention_max(r->ex, (AttentionMax){ *a, max, above });
}

/* The call of attention without masks: rows of q, k, v and o (tokens, heads * width). */
static AttentionFwd attention_call(const LayerRun *r, Tensor q, Tensor k, Tensor v, Tensor o)
{
    const AttentionSpec *a = attention_spec(r);
    return (AttentionFwd){ .q = heads_view(r, q, a->heads),
                           .k = heads_view(r, k, a->kv_heads),
                           .v = heads_view(r, v, a->kv_heads),
                           .o = heads_view(r, o, a->heads),
                           .scale = a->scale,
                           .kernel = a->kernel,
                           .e4m3 = r->spec->recipe.attention,
                           .window = a->window,
                           .chunk = a->chunk };
}

/* Adds a block to the sum over the blocks so far; the last block's result goes to s->o. The kernel
 * rescales the earlier sum by its lse, as in flash attention (arXiv:2205.14135). */
static Status attend_block(LayerRun *r, int64_t block, Tensor sum)
{
    const AttentionSpec *a = attention_spec(r);
    const AttentionState *s = r->state;
    Tensor k, v;
    TRY(keys_of(r, block, &k, &v));
    AttentionFwd args = attention_call(r, s->q, k, v, block == blocks_of(r) - 1 ? s->o : sum);
    args.doc = a->document_mask ? r->batch->doc : (Tensor){ 0 };
    args.lse = s->lse;
    args.pieces = sequence_pieces(r, block);
    if (block > 0) {
        args.o_before = heads_view(r, sum, a->heads);
        args.lse_before = args.lse;
    }
    TRY(attention_fwd(r->ex, args));
    return note_logits(r, &args);
}

/* Sinks join the softmax after its sums over all keys are complete; o and lse then include them. */
static Status sinks_forward(LayerRun *r, Tensor o, Tensor lse)
{
    if (!attention_spec(r)->sinks) return OK;
    return attention_sink_fwd(r->ex,
                              (AttentionSinkFwd){ .sinks = r->weights->w[ROLE_SINKS].data,
                                                  .o = heads_view(r, o, attention_spec(r)->heads),
                                                  .lse = lse });
}

/* Row `token` of a part's sequence and those after it, in the cache of this layer. */
static Tensor cached_rows(const LayerRun *r, const Tensor *of_layer, const CachePart *p,
                          int64_t token, int64_t n)
{
    return tensor_rows(&of_layer[r->layer - r->spec->layers],
                       p->sequence * r->cache->capacity + token, n);
}

/* Copies the rows that a part begins at `first` behind those of earlier tokens; *all is those with them. */
static Status extend(LayerRun *r, const Tensor *cache, const CachePart *p, Tensor rows,
                     int64_t first, Tensor *all)
{
    const Tensor from = tensor_rows(&rows, first, p->n);
    void *to = cached_rows(r, cache, p, p->used, p->n).data;
    *all = cached_rows(r, cache, p, 0, p->used + p->n);
    return r->ex->backend->copy(r->ex, to, from.data, tensor_bytes(&from));
}

/* The queries of one part, which begin at row `first`, see all tokens of their sequence so far. */
static Status attend_part(LayerRun *r, const CachePart *p, int64_t first)
{
    const AttentionState *s = r->state;
    const int64_t heads = attention_spec(r)->heads, n = p->n;
    const Tensor q = tensor_rows(&s->q, first, n), o = tensor_rows(&s->o, first, n);
    Tensor k, v;
    TRY(extend(r, r->cache->k, p, s->k, first, &k));
    TRY(extend(r, r->cache->v, p, s->v, first, &v));
    AttentionFwd args = attention_call(r, q, k, v, o);
    args.lse = (Tensor){ tensor_at(&s->lse, first * heads), DTYPE_F32, 4, { 1, heads, n, 1 } };
    TRY(attention_fwd(r->ex, args));
    return sinks_forward(r, o, args.lse);
}

static Status attend(LayerRun *r)
{
    const AttentionState *s = r->state;
    const KvCache *cache = r->cache;
    Tensor sum;
    int64_t first = 0;
    for (int i = 0; cache != NULL && i < cache->parts; first += cache->part[i].n, i++)
        TRY(attend_part(r, &cache->part[i], first));
    if (cache != NULL) return OK;
    TRY(sum_buffer(r, s->o, &sum));
    for (int64_t block = 0; block < blocks_of(r); block++) TRY(attend_block(r, block, sum));
    return sinks_forward(r, s->o, s->lse);
}

static Status sinks_backward(LayerRun *r, Tensor d_o)
{
    const AttentionState *s = r->state;
    int64_t heads = attention_spec(r)->heads;
    return attention_sink_bwd(r->ex, (AttentionSinkBwd){ .d_o = heads_view(r, d_o, heads),
                                                         .o = heads_view(r, s->o, heads),
                                                         .lse = s->lse,
                                                         .sinks = r->weights->w[ROLE_SINKS].data,
                                                         .dsinks = r->weights->dw[ROLE_SINKS] });
}

/* *to = `from` times the sigmoid of the gate, in an arena; without a gate `from` itself. */
static Status gated(LayerRun *r, Tensor from, Arena *arena, Tensor *to)
{
    const AttentionState *s = r->state;
    *to = from;
    if (!attention_spec(r)->gated) return OK;
    TRY(tensor_new2(arena, r->spec->act, from.dim[0], tensor_cols(&from), to));
    return gate_fwd(r->ex, (GateFwd){ s->a, from, *to, attention_spec(r)->heads });
}

/* o and lse are kept: backward makes the probabilities again from q, k and lse. */
static Status core_forward(LayerRun *r)
{
    const AttentionSpec *a = attention_spec(r);
    AttentionState *s = r->state;
    int64_t b = r->batch->b, t = r->batch->t;
    TRY(tensor_new2(r->keep, r->spec->act, r->tokens, a->heads * attention_v_dim(a), &s->o));
    TRY(tensor_new(r->keep, DTYPE_F32, 4, (int64_t[]){ b, a->heads, t, 1 }, &s->lse));
    if (attention_over_ranks(r)) TRY(kind_of(a)->open_forward(r));
    TRY(attend(r));
    if (r->recomputing) return OK;
    Activation o;
    Tensor residual, out, y;
    TRY(gated(r, s->o, r->scratch, &y));
    TRY(recipe_operands(r, ROLE_O, SIDE_FORWARD, y, r->scratch, NULL, &o));
    TRY(stream_out(r, &residual, &out));
    if (layer_splits(r)) return recipe_forward(r, ROLE_O, o.rows, residual, out);
    return project_plus_bias(r, o.rows, ROLE_O, residual, out);
}

/* Adds W_O's bias, which is no part of the sum over ranks. */
static Status scatter_forward(LayerRun *r)
{
    const Tensor b = r->weights->w[ROLE_O_BIAS].data;
    TRY(stream_scatter(r));
    if (b.data == NULL || r->recomputing) return OK;
    return bias_fwd(r->ex, (BiasFwd){ .x = r->h_out, .b = b, .y = r->h_out });
}

/* Makes a block's dk and dv from this rank's queries, and adds the block's part to dq_sum. With the
 * last block the sum of dq goes to s->dq. */
static Status attend_block_backward(LayerRun *r, int64_t block, Tensor d_o, Tensor dq_sum)
{
    const AttentionSpec *a = attention_spec(r);
    const AttentionState *s = r->state;
    bool first = block == 1 % blocks_of(r), last = block == 0;
    Tensor k, v;
    TRY(keys_of(r, block, &k, &v));
    AttentionBwd args = { .d_o = heads_view(r, d_o, a->heads),
                          .q = heads_view(r, s->q, a->heads),
                          .k = heads_view(r, k, a->kv_heads),
                          .v = heads_view(r, v, a->kv_heads),
                          .doc = a->document_mask ? r->batch->doc : (Tensor){ 0 },
                          .o = heads_view(r, s->o, a->heads),
                          .lse = s->lse,
                          .dq = heads_view(r, last ? s->dq : dq_sum, a->heads),
                          .dk = heads_view(r, s->dk, a->kv_heads),
                          .dv = heads_view(r, s->dv, a->kv_heads),
                          .scale = a->scale,
                          .pieces = sequence_pieces(r, block),
                          .window = a->window,
                          .chunk = a->chunk,
                          .kernel = a->kernel };
    if (!first) args.dq_before = heads_view(r, dq_sum, a->heads);
    if (!first && kind_of(a)->gradients_travel) {
        args.dk_before = args.dk;
        args.dv_before = args.dv;
    }
    return attention_bwd(r->ex, args);
}

/* Other ranks' blocks come first, the own block last. */
static Status core_backward_input(LayerRun *r)
{
    const AttentionKindDesc *kind = kind_of(attention_spec(r));
    AttentionState *s = r->state;
    bool over_ranks = attention_over_ranks(r);
    int64_t n = r->tokens, blocks = blocks_of(r);
    Tensor d_y, dq_sum;
    Activation dout;
    TRY(layer_norm_recompute(r, &s->stream.norm, norm_use(r)));
    TRY(kind->recompute(r));
    TRY(tensor_new2(r->scratch, r->spec->act, n, tensor_cols(&s->o), &d_y));
    TRY(recipe_operands(r, ROLE_O, SIDE_GRADIENT, stream_gradient(r), r->scratch, r->ring, &dout));
    s->dout = dout.columns;
    TRY(recipe_backward_input(r, ROLE_O, dout.rows, (Tensor){ 0 }, d_y));
    TRY(gated(r, d_y, r->ring, &s->d_o));
    if (attention_spec(r)->sinks) TRY(sinks_backward(r, s->d_o));
    TRY(tensor_new2(r->ring, r->spec->act, n, tensor_cols(&s->q), &s->dq));
    TRY(over_ranks ? kind->open_backward(r) : attention_new_kv(r, r->ring, &s->dk, &s->dv));
    TRY(sum_buffer(r, s->dq, &dq_sum));
    for (int64_t i = 1; i <= blocks; i++) {
        TRY(attend_block_backward(r, i % blocks, s->d_o, dq_sum));
        if (over_ranks) TRY(kind->block_backward(r, i % blocks));
    }
    return OK;
}

static Status core_backward_weight(LayerRun *r)
{
    const AttentionState *s = r->state;
    Activation o;
    Tensor y;
    TRY(gated(r, s->o, r->scratch, &y));
    TRY(recipe_operands(r, ROLE_O, SIDE_FORWARD, y, NULL, r->scratch, &o));
    return attention_project_weight(r, r->dh_out, s->dout, o.columns, ROLE_O);
}

enum { NORM, GATHER, OWN, QKV, KV_GATHER, CORE, SCATTER };

static const Phase phases[] = {
    [NORM] = STREAM_NORM(PHASE_ATTENTION),
    [GATHER] = STREAM_GATHER(PHASE_ATTENTION),
    [OWN] = STREAM_OWN(own_forward, PHASE_ATTENTION),
    [QKV] = { "qkv", LANE_COMPUTE, qkv_forward, qkv_backward_input, qkv_backward_weight,
              .part = PHASE_ATTENTION },
    [KV_GATHER] = { "kv_gather", LANE_COMM, gather_forward, gather_backward, NULL,
                    .part = PHASE_ATTENTION },
    [CORE] = { "core", LANE_COMPUTE, core_forward, core_backward_input, core_backward_weight,
               .part = PHASE_ATTENTION,
               .input_gradients = true }, /* mla: of W_KVB, block by block */
    [SCATTER] = { "scatter", LANE_COMM, scatter_forward, stream_scatter_backward, NULL,
                  .part = PHASE_ATTENTION, .split = true },
};

/* MLA gathers latents and folds their gradients back; GQA's ring runs inside the core. */
static bool attention_communicates(const ModelSpec *s, const LayerSpec *l, int phase, bool forward)
{
    (void)forward;
    return s->ranks.cp > 1 && phase == (l->as.attention.kind == ATTENTION_MLA ? KV_GATHER : CORE);
}

/* Layers of one model differ only in what attention.full_every and nope_every set. */
static bool attention_alike(const LayerSpec *a, const LayerSpec *b)
{
    const AttentionSpec *x = &a->as.attention, *y = &b->as.attention;
    return x->window == y->window && x->chunk == y->chunk && x->qk_norm == y->qk_norm &&
           x->rotary == y->rotary;
}

static void cache_widths(const LayerSpec *l, int64_t *k, int64_t *v)
{
    const AttentionSpec *a = &l->as.attention;
    *k = a->kv_heads * attention_qk_dim(a);
    *v = a->kv_heads * attention_v_dim(a);
}

static QkRows attention_clips(const LayerSpec *l, ParamRole role)
{
    return kind_of(&l->as.attention)->clips(&l->as.attention, role);
}

const LayerDesc layer_attention = {
    .name = "attention",
    .title = "attention",
    .state_bytes = sizeof(AttentionState),
    .params = attention_params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
    .communicates = attention_communicates,
    .alike = attention_alike,
    .cache = cache_widths,
    .clips = attention_clips,
};
