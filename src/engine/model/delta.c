/*
 * delta: h_out = h + W_O y, y the gated delta net of norm(h) (Gated DeltaNet, arXiv:2412.06464), as Qwen3-Next has it
 * in three of four layers.
 *
 *     x = W_A norm(h)      [q | k | v] = silu(conv(x))      o = delta rule(q, k, v, b and a of x)
 *     y = norm(o) silu(z of x), head by head
 *
 * The ops are kernels/delta/delta.h's. Kept for backward: norm(h), x, q, k and v, o, y. Ranks of tp have key heads, with
 * the value heads that share them. All of them hold the whole convolution, which is small: its channels are q, k and v
 * of all heads, so that a rank's are three runs of rows.
 *
 * Ranks of cp have two runs of each sequence (attention.c). Two gathers bring what a run needs of those before it:
 *
 *   edge   the last rows of x, which the convolution joins; backward brings their gradients back
 *   pass   what each run does to a state (delta_span), of which each rank makes the states that its runs begin with;
 *          backward the same for gradients of states
 *
 * So ranks work at the same time, and what travels does not depend on the tokens. Kept, too: these rows, the own runs'
 * spans, and the states.
 *
 * Its ops have no GPU versions: config_check and engine_device.c refuse these. A cache has of each sequence the last
 * rows of x, which the convolution joins, and the states.
 */
#include "engine/model/stream.h"

#include "kernels/delta/delta.h"
#include "kernels/norm/elementwise.h"

typedef struct DeltaState {
    StreamState stream;
    Tensor x, qkv, o, y; /* forward */
    Tensor d_o, dx;      /* ring, backward */
    Operand dx_columns, dout;
    /* over ranks of cp: rows before each run, what runs of this rank and of all do to a state, states */
    Tensor before, span, spans, begin;
    Tensor dbefore; /* ring, backward: gradient of `before` */
} DeltaState;

static const DeltaSpec *spec_of(const LayerRun *r) { return &r->layer->as.delta; }

static Tensor weight(const LayerRun *r, ParamRole role) { return r->weights->w[role].data; }

/* Do ranks share each sequence? Then this one has two runs of it, else a whole one is a run. */
static bool over_ranks(const LayerRun *r) { return r->cache == NULL && r->spec->ranks.cp > 1; }

static int64_t runs_of(const LayerRun *r) { return r->batch->b * (over_ranks(r) ? 2 : 1); }

static int64_t run_tokens(const LayerRun *r) { return r->tokens / runs_of(r); }

/* The place of this rank's even or odd runs among the 2 cp runs of a sequence. */
static int64_t place_of(const LayerRun *r, int64_t run)
{
    const int64_t rank = layer_rank(r, 0);
    return run % 2 == 0 ? rank : 2 * r->spec->ranks.cp - 1 - rank;
}

/* The row that the run at `place` of the same sequence has in a gather of one row for each run. */
static int64_t gathered_row(const LayerRun *r, int64_t run, int64_t place)
{
    const int64_t cp = r->spec->ranks.cp, second = place >= cp;
    return (second ? 2 * cp - 1 - place : place) * runs_of(r) + run / 2 * 2 + second;
}

static Tensor documents(const LayerRun *r)
{
    Tensor doc = r->batch->doc;
    doc.dim[0] = runs_of(r), doc.dim[1] = run_tokens(r);
    return spec_of(r)->document_mask ? doc : (Tensor){ 0 };
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
    *out = (DeltaConvFwd){ .x = s->x,
                           .doc = documents(r),
                           .y = y,
                           .dims = spec_of(r)->dims,
                           .sequence = run_tokens(r),
                           .before = s->before };
    for (int i = 0; i < 2 && over_ranks(r); i++) out->first[i] = place_of(r, i) * out->sequence;
    return conv_rows(r, weight(r, ROLE_CONV), false, &out->w);
}

static DeltaRuleFwd rule_args(const LayerRun *r, Tensor o, Tensor state)
{
    const DeltaState *s = r->state;
    DeltaRuleFwd a = { .qkv = s->qkv,
                       .x = s->x,
                       .decay = weight(r, ROLE_DECAY),
                       .doc = documents(r),
                       .o = o,
                       .dims = spec_of(r)->dims,
                       .sequence = run_tokens(r),
                       .state = state };
    for (int i = 0; i < 2 && over_ranks(r); i++) a.first[i] = place_of(r, i) * a.sequence;
    return a;
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

static Status new_x(LayerRun *r, Arena *arena)
{
    DeltaState *s = r->state;
    return tensor_new2(arena, r->spec->act, r->tokens, delta_x_cols(&spec_of(r)->dims), &s->x);
}

static Status make_x(LayerRun *r, Operand rows, Arena *arena)
{
    const DeltaState *s = r->state;
    TRY(new_x(r, arena));
    return recipe_forward(r, ROLE_A, rows, (Tensor){ 0 }, s->x);
}

static Status make_qkv(LayerRun *r, Arena *arena)
{
    DeltaState *s = r->state;
    DeltaConvFwd conv;
    if (r->cache != NULL) return OK;
    TRY(tensor_new2(arena, r->spec->act, r->tokens, delta_qkv_cols(&spec_of(r)->dims), &s->qkv));
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
    TRY(delta_conv_fwd(
        r->ex,
        (DeltaConvFwd){
            .x = x, .w = weight(r, ROLE_CONV), .y = qkv, .dims = a->dims, .sequence = past + n }));
    return delta_rule_fwd(r->ex, (DeltaRuleFwd){ .qkv = tensor_rows(&qkv, past, n),
                                                 .x = own,
                                                 .decay = weight(r, ROLE_DECAY),
                                                 .o = o,
                                                 .dims = a->dims,
                                                 .sequence = n,
                                                 .state = state });
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

static Status own_forward(LayerRun *r)
{
    const DeltaState *s = r->state;
    if (!stream_begins(r, ROLE_A)) return OK;
    TRY(new_x(r, layer_arena(r, RECOMPUTE_ATTN_UP)));
    return stream_product(r, ROLE_A, true, s->x);
}

static Status in_forward(LayerRun *r)
{
    DeltaState *s = r->state;
    TRY(layer_norm_forward(r, &s->stream.norm, norm_use(r)));
    if (stream_begins(r, ROLE_A)) return stream_product(r, ROLE_A, false, s->x);
    return make_x(r, s->stream.norm.y.rows, layer_arena(r, RECOMPUTE_ATTN_UP));
}

/* Gathers a tensor that has as many rows for each run over the ranks of cp. */
static Status gather_runs(LayerRun *r, Arena *arena, Tensor own, Tensor *all)
{
    TRY(tensor_new2(arena, own.dtype, own.dim[0] * r->spec->ranks.cp, tensor_cols(&own), all));
    return layer_collect(r, COMM_ALL_GATHER, own, *all);
}

/* The last rows of each run go to the run behind it. The first run has zeros before it, which no token joins. */
static Status edge_forward(LayerRun *r)
{
    DeltaState *s = r->state;
    const int64_t past = spec_of(r)->taps - 1, n = run_tokens(r), runs = runs_of(r);
    const Backend *on = r->ex->backend;
    Tensor edge, all;
    if (!over_ranks(r) || past == 0) return OK;
    TRY(tensor_new2(r->keep, r->spec->act, runs * past, tensor_cols(&s->x), &s->before));
    TRY(tensor_new2(r->scratch, r->spec->act, runs * past, tensor_cols(&s->x), &edge));
    for (int64_t run = 0; run < runs; run++) {
        const Tensor from = tensor_rows(&s->x, (run + 1) * n - past, past),
                     to = tensor_rows(&edge, run * past, past);
        TRY(on->copy(r->ex, to.data, from.data, tensor_bytes(&to)));
    }
    TRY(gather_runs(r, r->scratch, edge, &all));
    for (int64_t run = 0; run < runs; run++) {
        const int64_t place = place_of(r, run);
        const Tensor to = tensor_rows(&s->before, run * past, past);
        if (place == 0) TRY(on->fill(r->ex, to.data, 0, tensor_bytes(&to)));
        if (place == 0) continue;
        const Tensor from = tensor_rows(&all, gathered_row(r, run, place - 1) * past, past);
        TRY(on->copy(r->ex, to.data, from.data, tensor_bytes(&to)));
    }
    return OK;
}

/* The gradients of these rows come back, and are added to what their own run has. */
static Status edge_backward(LayerRun *r)
{
    const DeltaState *s = r->state;
    const int64_t past = spec_of(r)->taps - 1, n = run_tokens(r);
    Tensor all;
    if (!over_ranks(r) || past == 0) return OK;
    TRY(gather_runs(r, r->scratch, s->dbefore, &all));
    for (int64_t run = 0; run < runs_of(r); run++) {
        const int64_t behind = place_of(r, run) + 1;
        if (behind == 2 * r->spec->ranks.cp) continue;
        TRY(add(r->ex, (Add){ tensor_rows(&all, gathered_row(r, run, behind) * past, past),
                              tensor_rows(&s->dx, (run + 1) * n - past, past) }));
    }
    return OK;
}

static Status span_forward(LayerRun *r)
{
    DeltaState *s = r->state;
    const DeltaDims *d = &spec_of(r)->dims;
    TRY(make_qkv(r, layer_arena(r, RECOMPUTE_ATTN_UP)));
    if (!over_ranks(r)) return OK;
    TRY(tensor_new2(r->keep, DTYPE_F32, runs_of(r), d->heads * d->key * (d->value + d->key),
                    &s->span));
    return delta_span_fwd(r->ex,
                          (DeltaSpanFwd){ rule_args(r, (Tensor){ 0 }, (Tensor){ 0 }), s->span });
}

/* Forward and backward: backward has gradients in place of states. */
static Status pass_spans(LayerRun *r)
{
    DeltaState *s = r->state;
    return over_ranks(r) ? gather_runs(r, r->ring, s->span, &s->spans) : OK;
}

/* The states before this rank's runs, or the gradients of those behind them. */
static Status join_spans(LayerRun *r, Arena *arena, bool back, Tensor *out)
{
    const DeltaState *s = r->state;
    const DeltaDims *d = &spec_of(r)->dims;
    TRY(tensor_new2(arena, DTYPE_F32, runs_of(r), d->heads * d->key * d->value, out));
    return delta_join(r->ex, (DeltaJoin){ .span = s->spans,
                                          .state = *out,
                                          .dims = *d,
                                          .ranks = r->spec->ranks.cp,
                                          .rank = layer_rank(r, 0),
                                          .back = back });
}

/* The op leaves the state behind a run where it found the one before it, which backward needs. */
static Status rule_forward(LayerRun *r)
{
    DeltaState *s = r->state;
    Tensor state = { 0 };
    if (over_ranks(r)) {
        TRY(join_spans(r, r->keep, false, &s->begin));
        TRY(tensor_new2(r->scratch, DTYPE_F32, runs_of(r), tensor_cols(&s->begin), &state));
        TRY(r->ex->backend->copy(r->ex, state.data, s->begin.data, tensor_bytes(&state)));
    }
    return delta_rule_fwd(r->ex, rule_args(r, s->o, state));
}

/* A second forward (recomputing) stops at y, because backward does not read h_out. */
static Status core_forward(LayerRun *r)
{
    const DeltaDims *d = &spec_of(r)->dims;
    DeltaState *s = r->state;
    Activation y;
    Tensor residual, out;
    TRY(tensor_new2(r->keep, r->spec->act, r->tokens, d->heads * d->value, &s->o));
    TRY(r->cache != NULL ? cached_forward(r) : rule_forward(r));
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
        TRY(make_x(r, rows.rows, r->ring));
        TRY(make_qkv(r, r->ring));
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
    TRY(delta_norm_bwd(r->ex, (DeltaNormBwd){ norm_args(r, s->d_o), s->d_o, s->dx,
                                              r->weights->dw[ROLE_DELTA_NORM] }));
    if (!over_ranks(r)) return OK;
    return delta_span_bwd(r->ex, (DeltaSpanBwd){ rule_args(r, s->d_o, (Tensor){ 0 }), s->span });
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
    DeltaState *s = r->state;
    const Backend *on = r->ex->backend;
    const Tensor dw = r->weights->dw[ROLE_CONV];
    DeltaConvBwd conv = { .dx = s->dx };
    TRY(conv_args(r, dqkv, &conv.of));
    TRY(conv_rows(r, dw, false, &conv.dw));
    if (conv.dw.data != dw.data) TRY(on->fill(r->ex, conv.dw.data, 0, tensor_bytes(&conv.dw)));
    if (s->before.data != NULL) {
        TRY(tensor_new2(r->ring, r->spec->act, s->before.dim[0], tensor_cols(&s->x), &s->dbefore));
        TRY(on->fill(r->ex, s->dbefore.data, 0, tensor_bytes(&s->dbefore)));
        conv.dbefore = s->dbefore;
    }
    TRY(delta_conv_bwd(r->ex, conv));
    return conv_rows(r, dw, true, &conv.dw);
}

static Status span_backward(LayerRun *r)
{
    const DeltaState *s = r->state;
    DeltaRuleBwd rule = { .of = rule_args(r, s->d_o, s->begin),
                          .dx = s->dx,
                          .ddecay = r->weights->dw[ROLE_DECAY] };
    TRY(tensor_new2(r->scratch, r->spec->act, r->tokens, tensor_cols(&s->qkv), &rule.dqkv));
    if (over_ranks(r)) TRY(join_spans(r, r->scratch, true, &rule.dstate));
    TRY(delta_rule_bwd(r->ex, rule));
    return conv_backward(r, rule.dqkv);
}

static Status in_backward_input(LayerRun *r)
{
    DeltaState *s = r->state;
    Tensor dnorm;
    Activation dx;
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

enum { NORM, GATHER, OWN, IN, EDGE, SPAN, PASS, CORE, SCATTER };

static const Phase phases[] = {
    [NORM] = STREAM_NORM(PHASE_ATTENTION),
    [GATHER] = STREAM_GATHER(PHASE_ATTENTION),
    [OWN] = STREAM_OWN(own_forward, PHASE_ATTENTION),
    [IN] = { "in", LANE_COMPUTE, in_forward, in_backward_input, in_backward_weight,
             .part = PHASE_ATTENTION },
    [EDGE] = { "edge", LANE_COMM, edge_forward, edge_backward, NULL, .part = PHASE_ATTENTION },
    [SPAN] = { "span", LANE_COMPUTE, span_forward, span_backward, NULL, .part = PHASE_ATTENTION },
    [PASS] = { "pass", LANE_COMM, pass_spans, pass_spans, NULL, .part = PHASE_ATTENTION },
    [CORE] = { "core", LANE_COMPUTE, core_forward, core_backward_input, core_backward_weight,
               .part = PHASE_ATTENTION },
    [SCATTER] = STREAM_SCATTER(PHASE_ATTENTION),
};

static bool delta_communicates(const ModelSpec *s, const LayerSpec *l, int phase, bool forward)
{
    (void)forward;
    return s->ranks.cp > 1 && (phase == PASS || (phase == EDGE && l->as.delta.taps > 1));
}

const LayerDesc layer_delta = {
    .name = "delta",
    .title = "gated delta net",
    .state_bytes = sizeof(DeltaState),
    .params = delta_params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
    .communicates = delta_communicates,
    .cache = cache_widths,
    .stateful = true,
};
