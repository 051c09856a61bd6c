/*
 * delta: h_out = h + W_O y, y the gated delta net of norm(h) (Gated DeltaNet, arXiv:2412.06464), as Qwen3-Next has it
 * in three of four layers.
 *
 *     x = W_A norm(h)      [q | k | v] = silu(conv(x))      o = delta rule(q, k, v, b and a of x)
 *     y = norm(o) silu(z of x), head by head
 *
 * The ops are kernels/delta/delta.h's. Kept for backward: norm(h), x, q, k and v, o, y. Ranks of tp have key heads, with
 * the value heads that share them. All of them hold the whole convolution, which is small: its channels are q, k and v
 * of all heads, so that a rank's are three runs of rows. Its ops have no GPU versions: config_check and engine_device.c
 * refuse these. A cache has of each sequence the last rows of x, which the convolution joins, and the states.
 */
#include "engine/model/stream.h"

#include "kernels/delta/delta.h"
#include "kernels/norm/elementwise.h"

typedef struct DeltaState {
    StreamState stream;
    Tensor x, qkv, o, y; /* forward */
    Tensor d_o, dx;      /* ring, backward */
    Operand dx_columns, dout;
} DeltaState;

static const DeltaSpec *spec_of(const LayerRun *r) { return &r->layer->as.delta; }

static Tensor weight(const LayerRun *r, ParamRole role) { return r->weights->w[role].data; }

static Tensor documents(const LayerRun *r)
{
    return spec_of(r)->document_mask ? r->batch->doc : (Tensor){ 0 };
}

static Status delta_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const DeltaSpec *a = &l->as.delta;
    DeltaDims all = a->dims;
    all.key_heads *= s->ranks.tp, all.heads *= s->ranks.tp;
    const int64_t heads = all.heads, d = s->hidden;
    const struct {
        ParamAdd add;
        const char *name;
    } params[] = {
        { { ROLE_NORM, -1, 0, d, INIT_ONE, .keep_f32 = true }, "input_layernorm.weight" },
        { { ROLE_A, -1, delta_x_cols(&all) - 2 * heads, d, INIT_NORMAL, .decay = true,
            .split = SPLIT_ROWS },
          "linear_attn.in_proj_qkvz.weight" },
        { { ROLE_A, -1, 2 * heads, d, INIT_NORMAL, .decay = true, .split = SPLIT_ROWS },
          "linear_attn.in_proj_ba.weight" },
        { { ROLE_CONV, -1, delta_qkv_cols(&all), a->taps, INIT_NORMAL, .keep_f32 = true },
          "linear_attn.conv1d.weight" },
        { { ROLE_DECAY, -1, 0, heads, INIT_DECAY, .keep_f32 = true, .split = SPLIT_ROWS },
          "linear_attn.A_log" },
        { { ROLE_DECAY, -1, 0, heads, INIT_STEP, .keep_f32 = true, .split = SPLIT_ROWS },
          "linear_attn.dt_bias" },
        { { ROLE_DELTA_NORM, -1, 0, all.value, INIT_ONE, .keep_f32 = true },
          "linear_attn.norm.weight" },
        { { ROLE_O, -1, d, heads * all.value, INIT_NORMAL, .decay = true, .split = SPLIT_COLS },
          "linear_attn.out_proj.weight" },
    };
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        TRY(params_add(out, params[i].add, "model.layers.%d.%s", l->block, params[i].name));
    return OK;
}

/* The convolution of this rank's channels: the whole matrix, or over ranks of tp three runs of its rows, which lie in
 * `own` one behind the other. back: adds the gradient in `own` to these rows of `whole`. */
static Status conv_rows(LayerRun *r, Tensor whole, bool back, Tensor *own)
{
    const DeltaDims *d = &spec_of(r)->dims;
    const int64_t tp = r->spec->ranks.tp, rank = r->spec->ranks.tp_rank,
                  keys = d->key_heads * d->key;
    const int64_t runs[] = { keys, keys, d->heads * d->value };
    if (!back) *own = whole;
    if (tp == 1 || whole.data == NULL) return OK;
    if (!back) TRY(tensor_new2(r->scratch, DTYPE_F32, delta_qkv_cols(d), spec_of(r)->taps, own));
    for (int64_t i = 0, at = 0; i < 3; at += runs[i++]) {
        const Tensor all = tensor_rows(&whole, tp * at + rank * runs[i], runs[i]),
                     part = tensor_rows(own, at, runs[i]);
        TRY(back ? add(r->ex, (Add){ part, all })
                 : r->ex->backend->copy(r->ex, part.data, all.data, tensor_bytes(&part)));
    }
    return OK;
}

/* The arguments of the ops, forward. */
static Status conv_args(LayerRun *r, Tensor y, DeltaConvFwd *out)
{
    const DeltaState *s = r->state;
    *out = (DeltaConvFwd){ s->x, { 0 }, documents(r), y, spec_of(r)->dims, r->batch->t };
    return conv_rows(r, weight(r, ROLE_CONV), false, &out->w);
}

static DeltaRuleFwd rule_args(const LayerRun *r, Tensor o)
{
    const DeltaState *s = r->state;
    return (DeltaRuleFwd){ s->qkv,       s->x, weight(r, ROLE_DECAY),
                           documents(r), o,    spec_of(r)->dims,
                           r->batch->t,  { 0 } };
}

static DeltaNormFwd norm_args(const LayerRun *r, Tensor y)
{
    const DeltaState *s = r->state;
    return (
        DeltaNormFwd){ s->o, s->x, weight(r, ROLE_DELTA_NORM), y, spec_of(r)->dims, r->spec->eps };
}

/* Projections that backward makes a second time read rows of norm(h) again. */
static NormUse norm_use(const LayerRun *r)
{
    return (NormUse){ .role = ROLE_A,
                      .plain = layer_arena(r, RECOMPUTE_ATTN_UP) == r->ring,
                      .all_tokens = true };
}

/* x, q, k and v from rows of norm(h). */
static Status make_qkv(LayerRun *r, Operand rows, Arena *arena)
{
    const DeltaSpec *a = spec_of(r);
    DeltaState *s = r->state;
    DeltaConvFwd conv;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, delta_x_cols(&a->dims), &s->x));
    TRY(recipe_forward(r, ROLE_A, rows, (Tensor){ 0 }, s->x));
    if (r->cache != NULL) return OK;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, delta_qkv_cols(&a->dims), &s->qkv));
    TRY(conv_args(r, s->qkv, &conv));
    return delta_conv_fwd(r->ex, conv);
}

static Status make_y(LayerRun *r, Arena *arena)
{
    DeltaState *s = r->state;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, tensor_cols(&s->o), &s->y));
    return delta_norm_fwd(r->ex, norm_args(r, s->y));
}

/* One part of a call with a cache: rows [first, first + n) go on from what their sequence left. */
static Status cached_part(LayerRun *r, const CachePart *p, int64_t first)
{
    const DeltaState *s = r->state;
    const DeltaSpec *a = spec_of(r);
    const int64_t layer = r->layer - r->spec->layers, past = a->taps - 1, n = p->n;
    const Backend *on = r->ex->backend;
    const Tensor before = tensor_rows(&r->cache->k[layer], p->sequence, 1),
                 state = tensor_rows(&r->cache->v[layer], p->sequence, 1),
                 own = tensor_rows(&s->x, first, n), o = tensor_rows(&s->o, first, n);
    const size_t row = tensor_bytes(&own) / (size_t)n;
    Tensor x, qkv;
    if (p->used == 0) TRY(on->fill(r->ex, before.data, 0, tensor_bytes(&before)));
    if (p->used == 0) TRY(on->fill(r->ex, state.data, 0, tensor_bytes(&state)));
    TRY(tensor_new2(r->scratch, r->spec->act, past + n, delta_x_cols(&a->dims), &x));
    TRY(on->copy(r->ex, x.data, before.data, (size_t)past * row));
    TRY(on->copy(r->ex, (char *)x.data + (size_t)past * row, own.data, (size_t)n * row));
    TRY(on->copy(r->ex, before.data, (char *)x.data + (size_t)n * row, (size_t)past * row));
    TRY(tensor_new2(r->scratch, r->spec->act, past + n, delta_qkv_cols(&a->dims), &qkv));
    TRY(delta_conv_fwd(r->ex,
                       (DeltaConvFwd){ x, weight(r, ROLE_CONV), { 0 }, qkv, a->dims, past + n }));
    qkv = tensor_rows(&qkv, past, n);
    return delta_rule_fwd(
        r->ex, (DeltaRuleFwd){ qkv, own, weight(r, ROLE_DECAY), { 0 }, o, a->dims, n, state });
}

static Status cached_forward(LayerRun *r)
{
    int64_t first = 0;
    for (int i = 0; i < r->cache->parts; first += r->cache->part[i++].n) {
        ArenaMark mark = arena_mark(r->scratch);
        TRY(cached_part(r, &r->cache->part[i], first));
        arena_release(r->scratch, mark);
    }
    return OK;
}

static Status in_forward(LayerRun *r)
{
    DeltaState *s = r->state;
    TRY(layer_norm_forward(r, &s->stream.norm, norm_use(r)));
    return make_qkv(r, s->stream.norm.y.rows, layer_arena(r, RECOMPUTE_ATTN_UP));
}

/* A second forward (recomputing) stops at y, because backward does not read h_out. */
static Status core_forward(LayerRun *r)
{
    const DeltaDims *d = &spec_of(r)->dims;
    DeltaState *s = r->state;
    Activation y;
    Tensor residual, out;
    TRY(tensor_new2(r->keep, r->spec->act, r->tokens, d->heads * d->value, &s->o));
    TRY(r->cache != NULL ? cached_forward(r) : delta_rule_fwd(r->ex, rule_args(r, s->o)));
    TRY(make_y(r, layer_arena(r, RECOMPUTE_ACT)));
    if (r->recomputing) return OK;
    TRY(recipe_operands(r, ROLE_O, SIDE_FORWARD, s->y, r->scratch, NULL, &y));
    TRY(stream_out(r, &residual, &out));
    return recipe_forward(r, ROLE_O, y.rows, residual, out);
}

/* What was not kept. */
static Status make_again(LayerRun *r)
{
    DeltaState *s = r->state;
    Activation rows;
    TRY(layer_norm_recompute(r, &s->stream.norm, norm_use(r)));
    if (layer_arena(r, RECOMPUTE_ATTN_UP) == r->ring) {
        TRY(recipe_operands(r, ROLE_A, SIDE_FORWARD, s->stream.norm.y.x, r->scratch, NULL, &rows));
        TRY(make_qkv(r, rows.rows, r->ring));
    }
    return layer_arena(r, RECOMPUTE_ACT) == r->ring ? make_y(r, r->ring) : OK;
}

/* To s->d_o, which is the gradient of y first, and that of z in s->dx. */
static Status core_backward_input(LayerRun *r)
{
    DeltaState *s = r->state;
    Activation dout;
    TRY(make_again(r));
    TRY(tensor_new2(r->ring, r->spec->act, r->tokens, tensor_cols(&s->x), &s->dx));
    TRY(tensor_new2(r->ring, r->spec->act, r->tokens, tensor_cols(&s->o), &s->d_o));
    TRY(recipe_operands(r, ROLE_O, SIDE_GRADIENT, stream_gradient(r), r->scratch, r->ring, &dout));
    s->dout = dout.columns;
    TRY(recipe_backward_input(r, ROLE_O, dout.rows, (Tensor){ 0 }, s->d_o));
    return delta_norm_bwd(r->ex, (DeltaNormBwd){ norm_args(r, s->d_o), s->d_o, s->dx,
                                                 r->weights->dw[ROLE_DELTA_NORM] });
}

static Status core_backward_weight(LayerRun *r)
{
    const DeltaState *s = r->state;
    Activation y;
    TRY(recipe_operands(r, ROLE_O, SIDE_FORWARD, s->y, NULL, r->scratch, &y));
    return recipe_backward_weight(r, ROLE_O, s->dout, y.columns);
}

static Status conv_backward(LayerRun *r, Tensor dqkv)
{
    const DeltaState *s = r->state;
    const Tensor dw = r->weights->dw[ROLE_CONV];
    DeltaConvBwd conv = { .dx = s->dx };
    TRY(conv_args(r, dqkv, &conv.of));
    TRY(conv_rows(r, dw, false, &conv.dw));
    if (conv.dw.data != dw.data)
        TRY(r->ex->backend->fill(r->ex, conv.dw.data, 0, tensor_bytes(&conv.dw)));
    TRY(delta_conv_bwd(r->ex, conv));
    return conv_rows(r, dw, true, &conv.dw);
}

static Status in_backward_input(LayerRun *r)
{
    DeltaState *s = r->state;
    Tensor dqkv, dnorm;
    Activation dx;
    TRY(tensor_new2(r->scratch, r->spec->act, r->tokens, tensor_cols(&s->qkv), &dqkv));
    TRY(delta_rule_bwd(
        r->ex, (DeltaRuleBwd){ rule_args(r, s->d_o), dqkv, s->dx, r->weights->dw[ROLE_DECAY] }));
    TRY(conv_backward(r, dqkv));
    TRY(recipe_operands(r, ROLE_A, SIDE_GRADIENT, s->dx, r->scratch, r->ring, &dx));
    s->dx_columns = dx.columns;
    TRY(layer_norm_new_gradient(r, &dnorm));
    TRY(recipe_backward_input(r, ROLE_A, dx.rows, (Tensor){ 0 }, dnorm));
    return layer_norm_backward(r, &s->stream.norm, dnorm);
}

static Status in_backward_weight(LayerRun *r)
{
    const DeltaState *s = r->state;
    return recipe_backward_weight(r, ROLE_A, s->dx_columns, s->stream.norm.y.columns);
}

static void cache_widths(const LayerSpec *l, int64_t *k, int64_t *v)
{
    const DeltaSpec *a = &l->as.delta;
    *k = a->taps * delta_x_cols(&a->dims);
    *v = a->dims.heads * a->dims.key * a->dims.value;
}

static const Phase phases[] = {
    STREAM_NORM(PHASE_ATTENTION),
    STREAM_GATHER(PHASE_ATTENTION),
    { "in", LANE_COMPUTE, in_forward, in_backward_input, in_backward_weight,
      .part = PHASE_ATTENTION },
    { "core", LANE_COMPUTE, core_forward, core_backward_input, core_backward_weight,
      .part = PHASE_ATTENTION },
    STREAM_SCATTER(PHASE_ATTENTION),
};

const LayerDesc layer_delta = {
    .name = "delta",
    .title = "gated delta net",
    .state_bytes = sizeof(DeltaState),
    .params = delta_params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
    .cache = cache_widths,
    .stateful = true,
};
