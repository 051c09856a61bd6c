/*
 * delta: h_out = h + W_O y, y the gated delta net of norm(h) (Gated DeltaNet, arXiv:2412.06464), as Qwen3-Next has it
 * in three of four layers.
 *
 *     x = W_A norm(h)      [q | k | v] = silu(conv(x))      o = delta rule(q, k, v, b and a of x)
 *     y = norm(o) silu(z of x), head by head
 *
 * The ops are kernels/delta/delta.h's. Kept for backward: norm(h), x, q, k and v, o, y. Its state needs whole
 * sequences, and its ops have no GPU versions: config_check and engine_device.c refuse the rest. A cache has of each
 * sequence the last rows of x, which the convolution joins, and the states.
 */
#include "engine/model/norm.h"

#include "kernels/delta/delta.h"

typedef struct DeltaState {
    NormState norm;
    Tensor x, qkv, o, y; /* forward */
    Tensor dx;           /* ring, backward: the gradient of x */
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
    const int64_t heads = a->dims.heads, values = heads * a->dims.value, d = s->hidden;
    const struct {
        ParamAdd add;
        const char *name;
    } params[] = {
        { { ROLE_NORM, -1, 0, d, INIT_ONE, .keep_f32 = true }, "input_layernorm.weight" },
        { { ROLE_A, -1, delta_x_cols(&a->dims) - 2 * heads, d, INIT_NORMAL, .decay = true },
          "linear_attn.in_proj_qkvz.weight" },
        { { ROLE_A, -1, 2 * heads, d, INIT_NORMAL, .decay = true },
          "linear_attn.in_proj_ba.weight" },
        { { ROLE_CONV, -1, delta_qkv_cols(&a->dims), a->taps, INIT_NORMAL, .keep_f32 = true },
          "linear_attn.conv1d.weight" },
        { { ROLE_DECAY, -1, 0, heads, INIT_DECAY, .keep_f32 = true }, "linear_attn.A_log" },
        { { ROLE_DECAY, -1, 0, heads, INIT_STEP, .keep_f32 = true }, "linear_attn.dt_bias" },
        { { ROLE_DELTA_NORM, -1, 0, a->dims.value, INIT_ONE, .keep_f32 = true },
          "linear_attn.norm.weight" },
        { { ROLE_O, -1, d, values, INIT_NORMAL, .decay = true }, "linear_attn.out_proj.weight" },
    };
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        TRY(params_add(out, params[i].add, "model.layers.%d.%s", l->block, params[i].name));
    return OK;
}

/* The arguments of the ops, forward. */
static DeltaConvFwd conv_args(const LayerRun *r, Tensor y)
{
    const DeltaState *s = r->state;
    return (DeltaConvFwd){ s->x, weight(r, ROLE_CONV), documents(r),
                           y,    spec_of(r)->dims,     r->batch->t };
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

static const NormUse norm_use = { .role = ROLE_A, .plain = true };

/* x, q, k and v of norm(h). */
static Status make_qkv(LayerRun *r, Arena *arena)
{
    const DeltaSpec *a = spec_of(r);
    DeltaState *s = r->state;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, delta_x_cols(&a->dims), &s->x));
    TRY(recipe_forward(r, ROLE_A, operand_plain(s->norm.y.x), (Tensor){ 0 }, s->x));
    if (r->cache != NULL) return OK;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, delta_qkv_cols(&a->dims), &s->qkv));
    return delta_conv_fwd(r->ex, conv_args(r, s->qkv));
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

/* A second forward (recomputing) stops at y, because backward does not read h_out. */
static Status delta_forward(LayerRun *r)
{
    const DeltaDims *d = &spec_of(r)->dims;
    DeltaState *s = r->state;
    TRY(layer_norm_forward(r, &s->norm, norm_use));
    TRY(make_qkv(r, layer_arena(r, RECOMPUTE_ATTN_UP)));
    TRY(tensor_new2(r->keep, r->spec->act, r->tokens, d->heads * d->value, &s->o));
    TRY(r->cache != NULL ? cached_forward(r) : delta_rule_fwd(r->ex, rule_args(r, s->o)));
    TRY(make_y(r, layer_arena(r, RECOMPUTE_ACT)));
    if (r->recomputing) return OK;
    return recipe_forward(r, ROLE_O, operand_plain(s->y), r->h, r->h_out);
}

/* From dy, which becomes the gradient of o, to s->dx. */
static Status ops_backward(LayerRun *r, Tensor dy)
{
    const DeltaState *s = r->state;
    const Tensor *dw = r->weights->dw;
    Tensor dqkv;
    TRY(tensor_new2(r->scratch, r->spec->act, r->tokens, tensor_cols(&s->qkv), &dqkv));
    TRY(delta_norm_bwd(r->ex, (DeltaNormBwd){ norm_args(r, dy), dy, s->dx, dw[ROLE_DELTA_NORM] }));
    TRY(delta_rule_bwd(r->ex, (DeltaRuleBwd){ rule_args(r, dy), dqkv, s->dx, dw[ROLE_DECAY] }));
    return delta_conv_bwd(r->ex, (DeltaConvBwd){ conv_args(r, dqkv), s->dx, dw[ROLE_CONV] });
}

static Status delta_backward_input(LayerRun *r)
{
    DeltaState *s = r->state;
    Tensor dy, dnorm;
    TRY(layer_norm_recompute(r, &s->norm, norm_use));
    if (layer_arena(r, RECOMPUTE_ATTN_UP) == r->ring) TRY(make_qkv(r, r->ring));
    if (layer_arena(r, RECOMPUTE_ACT) == r->ring) TRY(make_y(r, r->ring));
    TRY(tensor_new2(r->ring, r->spec->act, r->tokens, tensor_cols(&s->x), &s->dx));
    TRY(tensor_new2(r->scratch, r->spec->act, r->tokens, tensor_cols(&s->o), &dy));
    TRY(recipe_backward_input(r, ROLE_O, operand_plain(r->dh_out), (Tensor){ 0 }, dy));
    TRY(ops_backward(r, dy));
    TRY(layer_norm_new_gradient(r, &dnorm));
    TRY(recipe_backward_input(r, ROLE_A, operand_plain(s->dx), (Tensor){ 0 }, dnorm));
    return layer_norm_backward(r, &s->norm, dnorm);
}

static Status delta_backward_weight(LayerRun *r)
{
    const DeltaState *s = r->state;
    TRY(recipe_backward_weight(r, ROLE_A, operand_plain(s->dx), operand_plain(s->norm.y.x)));
    return recipe_backward_weight(r, ROLE_O, operand_plain(r->dh_out), operand_plain(s->y));
}

static void cache_widths(const LayerSpec *l, int64_t *k, int64_t *v)
{
    const DeltaSpec *a = &l->as.delta;
    *k = a->taps * delta_x_cols(&a->dims);
    *v = a->dims.heads * a->dims.key * a->dims.value;
}

static const Phase phases[] = {
    { "delta", LANE_COMPUTE, delta_forward, delta_backward_input, delta_backward_weight,
      .part = PHASE_ATTENTION },
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
