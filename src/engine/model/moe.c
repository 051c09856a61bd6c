/*
 * moe: h_out = h + shared(y) + sum over the chosen experts of weight * expert(y),  y = norm(h).
 *
 * Kept for backward: y, the router's logits and choice, and each routed row's pre-activation; never
 * an expert's output (kernels/moe/moe.h). In bf16 on one rank these are 2 D + 4 K F bytes a token, plus 4 E
 * + 20 K + 4 for logits, routing and the norm's statistic. The logits and the choice are kept even
 * under RECOMPUTE_LAYER: they are small, and a second decision could differ.
 *
 * With experts spread over ranks (spec->ranks.ep) tokens are dispatched before the experts and
 * their summed rows combined after them. Where ranks share each expert (spec->ranks.etp), its parts
 * are experts to all that comes between (kernels/moe/expert_parts.h). In backward combine sends the gradient of the output to
 * the experts, and dispatch brings the gradient of y back. The received rows are kept like y, or
 * fetched a second time (RECOMPUTE_EXCHANGE).
 *
 * The routing weight multiplies an expert's output, or with score_input its input: then tokens are
 * scaled before they are sent, and experts see weights of 1. A shared expert may have a gate
 * (kernels/quant/scale.h); the MLP's output is then kept, too.
 *
 * Where the tokens of a group of the auxiliary loss lie on several ranks, its counts are summed
 * over them before the loss is made of them; each rank adds its own tokens' part of the loss.
 */
#include "engine/model/moe.h"
#include "kernels/dense/linear.h"
#include "kernels/exchange/exchange.h"
#include "kernels/moe/expert_parts.h"
#include "kernels/norm/bias.h"
#include "kernels/quant/scale.h"
#include "kernels/route/route_drop.h"
#include "kernels/route/route_margin.h"

#include <math.h>

bool moe_spread(const LayerRun *r) { return r->spec->ranks.ep > 1; }

static const ExchangeDesc *exchange_of(const LayerRun *r)
{
    return exchange_kinds[r->spec->ranks.exchange];
}

/* Parts of experts over all ranks, and those that a token takes. */
static int64_t all_parts(const LayerRun *r)
{
    return r->layer->as.moe.experts * r->spec->ranks.etp;
}
int64_t moe_parts_taken(const LayerRun *r)
{
    return r->layer->as.moe.rule.top_k * r->spec->ranks.etp;
}

/* Does what experts read of y come from their tokens' ranks in 8 bits? */
static bool sends_rows(const LayerRun *r)
{
    return r->spec->recipe.dispatch && !r->layer->as.moe.score_input &&
           recipe_quantises(r->spec, r->layer, ROLE_EXPERT_GATE_UP);
}

/* Router and shared gate read y itself, shared and routed experts the same rows. */
static NormUse norm_use(const LayerRun *r)
{
    ParamRole role = sends_rows(r)                     ? ROLE_EXPERT_GATE_UP
                     : r->layer->as.moe.shared_ffn > 0 ? ROLE_GATE_UP
                                                       : ROLE_NORM;
    return (NormUse){ .role = role, .plain = true, .rows_later = true, .columns_later = true };
}

/* Does the layer keep its pre-activations in the pool of its slot? */
bool moe_pooled(const LayerRun *r)
{
    return r->pool != NULL && r->pool->rows.data.data != NULL &&
           (r->layer->recompute & RECOMPUTE_LAYER) == 0;
}

/* Rows that a rank receives: bounded by `factor` times the `mean`, at most `most`; factor 0:
 * `most`. The bound is a multiple of `blocks`, because each block has an equal part of it. */
static Rows bounded_rows(const LayerRun *r, double factor, double mean, double most, double blocks)
{
    double bound = factor > 0 ? ceil(mean * factor / blocks) * blocks : most;
    return (Rows){ .bound = (int64_t)fmin(bound, most),
                   .expected = fmin(mean * r->spec->ranks.imbalance, most) };
}

/* The tokens that this rank's experts see. A token counts once, however many experts it takes here. */
static Rows received_tokens(const LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    int64_t n = r->rows, ranks = r->spec->ranks.ep, etp = r->spec->ranks.etp;
    if (!moe_spread(r)) return (Rows){ .bound = n, .expected = (double)n };
    double mean = (double)(n * etp) * exchange_of(r)->rows(m->experts, m->rule.top_k, ranks / etp);
    const MoeState *s = r->state;
    Rows rows = bounded_rows(r, r->spec->capacity.blocks, mean, (double)(n * ranks),
                             exchange_of(r)->compact ? 1 : (double)ranks);
    if (s->travel.first.data != NULL) rows.device = tensor_at(&s->travel.first, ranks);
    return rows;
}

/* The rows that this rank passes on inside its host (hier). The rank with the same number on each
 * other host sends one row for each token that has experts on this host. */
static Rows relayed_rows(const LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    const SpecRanks *ranks = &r->spec->ranks;
    int64_t n = r->rows, hosts = ranks->ep / ranks->ep_inside;
    int64_t spans = (ranks->etp + ranks->ep_inside - 1) / ranks->ep_inside; /* hosts of an expert */
    double mean = (double)(n * spans) * exchange_distinct(m->experts, m->rule.top_k, hosts / spans);
    return bounded_rows(r, r->spec->capacity.blocks, mean, (double)(n * hosts), (double)hosts);
}

/* The routed rows of this rank's experts. The last offset is their number, which only the device
 * knows. With one EP rank it is tokens x top-k, exactly. */
Rows moe_routed_rows(const LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    int64_t k = m->rule.top_k, here = spec_experts_here(&r->spec->ranks, m->experts);
    int64_t n = r->rows, most = k < here ? k : here, balanced = n * moe_parts_taken(r);
    if (!moe_spread(r)) return (Rows){ .bound = n * k, .expected = (double)(n * k) };
    const MoeState *s = r->state;
    double all = (double)(n * r->spec->ranks.ep * most);
    Rows rows = bounded_rows(r, r->spec->capacity.rows, (double)balanced, all, 1);
    if (s->order.offsets.data != NULL) rows.device = tensor_at(&s->order.offsets, here);
    rows.first = s->order.begin.data;
    return rows;
}

/* A layer that is recomputed as a whole keeps no pre-activation, and with one EP rank the number of
 * rows is known: neither needs a pool. */
static PoolNeed pool_need(const ModelSpec *s, const LayerSpec *l, int64_t tokens)
{
    const MoeSpec *m = &l->as.moe;
    int64_t k = m->rule.top_k, here = spec_experts_here(&s->ranks, m->experts);
    int64_t most = k < here ? k : here;
    if (s->ranks.ep == 1 || (l->recompute & RECOMPUTE_LAYER) != 0) return (PoolNeed){ 0 };
    return (PoolNeed){ .balanced = (double)(tokens * k * s->ranks.etp),
                       .most = (double)(tokens * s->ranks.ep * most),
                       .cols = 2 * m->ffn,
                       .kind = recipe_narrow(s, l) ? OPERAND_1X128 : OPERAND_PLAIN,
                       .type = recipe_narrow(s, l) ? s->recipe.forward : s->act };
}

/* Number of ranks that hold tokens of one group of the auxiliary loss. */
static int64_t loss_ranks(const ModelSpec *s, const MoeSpec *m)
{
    if (m->rule.aux_scale == 0) return 1;
    return m->aux_global ? s->ranks.stage : spec_sequence_ranks(s);
}

static int64_t loss_parts(const LayerRun *r) { return loss_ranks(r->spec, &r->layer->as.moe); }

/* aux_scale is one over the number of groups. A global group has tokens of every data-parallel
 * rank, so there are fewer groups by that factor. */
static RouteRule route_rule(const LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    RouteRule rule = m->rule;
    int64_t data_ranks = r->spec->ranks.stage / spec_sequence_ranks(r->spec);
    if (m->aux_global) rule.aux_scale *= (float)data_ranks;
    return rule;
}

/* The number of ranks, or hosts, that this rank sends its tokens to. */
static int64_t exchange_blocks_of(const LayerRun *r)
{
    return exchange_blocks(r->spec->ranks.exchange, r->spec->ranks.ep, r->spec->ranks.ep_inside);
}

static Status prepare_relay(LayerRun *r)
{
    MoeState *s = r->state;
    const Rows rows = relayed_rows(r);
    int64_t k = moe_parts_taken(r);
    s->travel.relay =
        (ExchangeRelay){ .inside = r->spec->ranks.ep_inside, .expected = rows.expected };
    return tensor_new2(r->keep, DTYPE_I32, rows.bound, k, &s->travel.relay.offset);
}

/* Bounds of rows and tokens are known here, before routing: nothing of this depends on what the router will choose. */
static Status prepare_moe(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    int64_t n = r->rows, k = m->rule.top_k, e = m->experts;
    TRY(tensor_new2(r->keep, DTYPE_F32, n, e, &s->route.logits));
    TRY(tensor_new2(r->keep, DTYPE_I32, n, k, &s->route.index));
    TRY(tensor_new2(r->keep, DTYPE_F32, n, k, &s->route.weight));
    if (m->score_input) TRY(tensor_new2(r->keep, DTYPE_F32, n, k, &s->route.score));
    TRY(tensor_new2(r->keep, DTYPE_I32, r->batch->b, e, &s->route.seq_count));
    int64_t rows = moe_routed_rows(r).bound, tokens = received_tokens(r).bound;
    s->experts.index = s->route.index;
    s->experts.weight = s->route.weight;
    const int64_t taken = moe_parts_taken(r);
    if (moe_spread(r)) {
        TRY(tensor_new2(r->keep, DTYPE_I32, tokens, taken, &s->experts.index));
        TRY(tensor_new2(r->keep, DTYPE_F32, tokens, taken, &s->experts.weight));
        if (exchange_of(r)->offsets)
            TRY(tensor_new2(r->keep, DTYPE_I32, n, taken, &s->travel.offset));
        if (exchange_of(r)->compact) {
            TRY(tensor_new2(r->keep, DTYPE_I32, 1, r->spec->ranks.ep, &s->travel.count));
            TRY(tensor_new2(r->keep, DTYPE_I32, 1, r->spec->ranks.ep + 1, &s->travel.first));
        }
        if (exchange_of(r)->hierarchical) TRY(prepare_relay(r));
    }
    if (moe_pooled(r)) TRY(tensor_new1(r->keep, DTYPE_I32, 1, &s->order.begin));
    const int64_t here = spec_experts_here(&r->spec->ranks, e);
    TRY(tensor_new2(r->keep, DTYPE_I32, 1, here + 1, &s->order.offsets));
    TRY(tensor_new1(r->keep, DTYPE_I32, rows, &s->order.row_token));
    TRY(tensor_new1(r->keep, DTYPE_I32, rows, &s->order.row_slot));
    return tensor_new2(r->keep, DTYPE_I32, tokens, taken, &s->order.slot_row);
}

/* Costs of groups that lie over both axes count as those of the outer one. */
static int sequence_axis(const LayerRun *r) { return r->spec->ranks.cp > 1 ? AXIS_CP : AXIS_TP; }

/* `all`: the rows of all ranks that have rows of these sequences, rank by rank. */
static Status gather_sequences(LayerRun *r, Tensor own, Tensor all)
{
    return exchange_collective(r->ex, (Collective){ .in = own,
                                                    .out = all,
                                                    .kind = COMM_ALL_GATHER,
                                                    .axis = sequence_axis(r),
                                                    .group = GROUP_SEQUENCE,
                                                    .ranks = spec_sequence_ranks(r->spec) });
}

/* Sets the weights of tokens beyond an expert's capacity to 0. Capacity is by sequence, so ranks that
 * share sequences first gather the tokens of whole ones. */
static Status drop_tokens(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    if (m->capacity == 0 || !r->training) return OK;
    int64_t n = r->rows, ranks = spec_sequence_ranks(r->spec);
    double mean = (double)(n * ranks * m->rule.top_k) / (double)m->experts;
    Tensor target = r->batch->row_target[r->layer->depth];
    RouteDrop d = { .index = s->route.index,
                    .target = tensor_as2(&target, n, 1),
                    .weight = s->route.weight,
                    .own = s->route.weight,
                    .dropped = tensor_rows(&r->record->dropped, r->layer->load, 1),
                    .experts = m->experts,
                    .capacity = (int64_t)ceil(mean * m->capacity),
                    .sequences = r->batch->b,
                    .ranks = ranks,
                    .rank = layer_sequence_rank(r),
                    .tensor = r->spec->ranks.tp };
    Tensor *const all[] = { &d.index, &d.target, &d.weight };
    for (int i = 0; ranks > 1 && i < 3; i++) {
        Tensor own = *all[i];
        TRY(tensor_new2(r->scratch, own.dtype, ranks * n, tensor_cols(&own), all[i]));
        TRY(gather_sequences(r, own, *all[i]));
    }
    return route_drop(r->ex, d);
}

static Status route_forward(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    const Tensor bias = r->weights->w[ROLE_ROUTER_BIAS].data;
    const Tensor target = r->batch->row_target[r->layer->depth];
    TRY(layer_norm_forward(r, &s->norm, norm_use(r)));
    if (r->recomputing) return OK;
    TRY(linear_fwd(r->ex, (LinearFwd){ .x = operand_plain(s->norm.y.x),
                                       .w = r->weights->w[ROLE_ROUTER],
                                       .y = s->route.logits }));
    if (m->shift)
        TRY(bias_fwd(r->ex, (BiasFwd){ s->route.logits, r->weights->w[ROLE_ROUTER_SHIFT].data,
                                       s->route.logits }));
    if (loss_parts(r) > 1)
        TRY(tensor_new2(r->ring, DTYPE_F32, r->batch->b, m->experts, &s->route.score_sum));
    TRY(route_fwd(r->ex,
                  (RouteFwd){ .logits = s->route.logits,
                              .bias = bias,
                              .domain = r->batch->domain,
                              .target = target,
                              .pos = m->forced_balance ? r->batch->row_pos : (Tensor){ 0 },
                              .index = s->route.index,
                              .weight = s->route.weight,
                              .score = s->route.score,
                              .seq_count = s->route.seq_count,
                              .load = tensor_rows(&r->record->load, r->layer->load, 1),
                              .aux_loss = r->record->aux_loss,
                              .score_sum = s->route.score_sum,
                              .router_z = tensor_rows(&r->record->router_z, r->layer->load, 1),
                              .rule = route_rule(r) }));
    if (r->spec->counts & COUNT_MARGINS)
        TRY(route_margins(
            r->ex, (RouteMargins){ .logits = s->route.logits,
                                   .bias = bias,
                                   .index = s->route.index,
                                   .target = target,
                                   .margins = tensor_rows(&r->record->margins, r->layer->load, 1),
                                   .score = m->rule.score }));
    return spec_sequence_ranks(r->spec) > 1
               ? OK
               : drop_tokens(r); /* over ranks dispatch does it: LANE_COMM */
}

/* The auxiliary loss where other ranks have tokens of the same groups. It is a product of an
 * expert's share of tokens and its mean score, so the counts are summed over ranks first. */
static Status loss_of_counts(LayerRun *r)
{
    MoeState *s = r->state;
    bool global = r->layer->as.moe.aux_global;
    TRY(exchange_collective(r->ex, (Collective){ .in = s->route.seq_count,
                                                 .out = s->route.seq_count,
                                                 .kind = COMM_ALL_REDUCE,
                                                 .axis = global ? AXIS_DP : sequence_axis(r),
                                                 .group = global ? GROUP_STAGE : GROUP_SEQUENCE,
                                                 .ranks = loss_parts(r) }));
    return route_aux(r->ex, (RouteAux){ .seq_count = s->route.seq_count,
                                        .score_sum = s->route.score_sum,
                                        .aux_loss = r->record->aux_loss,
                                        .tokens = r->rows,
                                        .parts = loss_parts(r),
                                        .rule = route_rule(r) });
}

static Tensor overflow_flag(const LayerRun *r, int which)
{
    return tensor_rows(&r->record->overflow, which, 1);
}

/* A block has an equal part of the bound. Compact exchanges have no blocks: only what a receiver
 * gets in all is bounded, so a sender may place all its tokens. */
static Status place_tokens(LayerRun *r)
{
    MoeState *s = r->state;
    const Rows rows = exchange_of(r)->hierarchical ? relayed_rows(r) : received_tokens(r);
    int64_t room = exchange_of(r)->compact ? r->rows : rows.bound / exchange_blocks_of(r);
    return exchange_place(r->ex, (ExchangePlace){ .index = s->travel.index,
                                                  .offset = s->travel.offset,
                                                  .overflow = overflow_flag(r, OVERFLOW_BLOCKS),
                                                  .count = s->travel.count,
                                                  .experts = all_parts(r),
                                                  .ranks = exchange_blocks_of(r),
                                                  .room = room });
}

/* Sends the rows of x (N, D) to the ranks of their experts; *rows: what this rank receives. In
 * forward the routing goes along; backward still has it. */
static Status send_tokens(LayerRun *r, Operand x, bool routing, Arena *arena, Operand *rows)
{
    MoeState *s = r->state;
    Tensor none = { 0 };
    const int64_t dim[] = { received_tokens(r).bound, r->spec->hidden };
    TRY(operand_new(arena, x.kind, x.data.dtype, 2, dim, rows));
    return exchange_dispatch(
        r->ex, (ExchangeDispatch){ .x = x,
                                   .index = routing ? s->travel.index : none,
                                   .weight = routing ? s->travel.weight : none,
                                   .offset = s->travel.offset,
                                   .count = s->travel.count,
                                   .first = s->travel.first,
                                   .relay = s->travel.relay,
                                   .overflow = routing ? overflow_flag(r, OVERFLOW_BLOCKS) : none,
                                   .rows = *rows,
                                   .rows_index = routing ? s->experts.index : none,
                                   .rows_weight = routing ? s->experts.weight : none,
                                   .received = received_tokens(r),
                                   .ranks = r->spec->ranks.ep,
                                   .experts = all_parts(r),
                                   .kind = r->spec->ranks.exchange });
}

/* Where 8-bit rows lie before they are sent. Experts read them there if they stay. */
static Arena *sent_arena(const LayerRun *r) { return moe_spread(r) ? r->scratch : r->ring; }

/* Makes the rows that go to the experts. In forward the norm has made those of y. */
static Status make_sent(LayerRun *r, bool forward)
{
    MoeState *s = r->state;
    Tensor y = s->norm.y.x;
    s->travel.sent = s->norm.y.rows;
    if (forward && sends_rows(r)) return OK;
    if (r->layer->as.moe.score_input) {
        TRY(tensor_new2(r->ring, r->spec->act, r->rows, r->spec->hidden, &y));
        TRY(scale_fwd(r->ex, (ScaleFwd){ .x = s->norm.y.x, .w = s->route.score, .y = y }));
    }
    return recipe_dispatched(r, ROLE_EXPERT_GATE_UP, SIDE_FORWARD, y, sent_arena(r),
                             &s->travel.sent);
}

/* The choice as the exchange sees it: of parts of experts. */
static Status choose_parts(LayerRun *r)
{
    MoeState *s = r->state;
    s->travel.index = s->route.index, s->travel.weight = s->route.weight;
    if (r->spec->ranks.etp == 1) return OK;
    const int64_t n = r->rows, taken = moe_parts_taken(r);
    TRY(tensor_new2(r->scratch, DTYPE_I32, n, taken, &s->travel.index));
    TRY(tensor_new2(r->scratch, DTYPE_F32, n, taken, &s->travel.weight));
    return expert_parts_fwd(
        r->ex,
        (ExpertPartsFwd){ .index = s->route.index,
                          .weight = s->route.weight,
                          .part_index = s->travel.index,
                          .part_weight = s->travel.weight,
                          .here = spec_experts_here(&r->spec->ranks, r->layer->as.moe.experts) });
}

/* Order matters: tokens are dropped before they are placed, and the routing travels before rows are
 * sorted at the receiver. */
static Status dispatch_forward(LayerRun *r)
{
    MoeState *s = r->state;
    TRY(make_sent(r, true));
    s->experts.x = s->travel.sent;
    if (!r->recomputing && loss_parts(r) > 1) TRY(loss_of_counts(r));
    if (!r->recomputing && spec_sequence_ranks(r->spec) > 1) TRY(drop_tokens(r));
    if (!r->recomputing) TRY(choose_parts(r));
    if (!r->recomputing && s->travel.offset.data != NULL) TRY(place_tokens(r));
    if (moe_spread(r))
        TRY(send_tokens(r, s->travel.sent, !r->recomputing, layer_arena(r, RECOMPUTE_EXCHANGE),
                        &s->experts.x));
    if (r->recomputing) return OK;
    const RowPool none = { 0 }, *pool = moe_pooled(r) ? r->pool : &none;
    return moe_sort(r->ex, (MoeSort){ .index = s->experts.index,
                                      .offsets = s->order.offsets,
                                      .row_token = s->order.row_token,
                                      .row_slot = s->order.row_slot,
                                      .slot_row = s->order.slot_row,
                                      .overflow = overflow_flag(r, OVERFLOW_ROWS),
                                      .top = pool->top,
                                      .first = s->order.begin,
                                      .pool = pool->rows.data.dim[0],
                                      .elsewhere = moe_spread(r) });
}

/* Reads y alone, so it may run while tokens travel (overlap_ok). */
static Status shared_forward(LayerRun *r)
{
    MoeState *s = r->state;
    const MoeSpec *m = &r->layer->as.moe;
    int64_t n = r->rows, d = r->spec->hidden;
    if (m->shared_ffn == 0) return OK;
    s->shared.mlp.glu = m->glu;
    TRY(tensor_new2(m->shared_gate ? r->keep : r->ring, r->spec->act, n, d, &s->shared.gated));
    Operand y = s->norm.y.rows;
    if (!recipe_quantises(r->spec, r->layer, ROLE_GATE_UP)) y = operand_plain(s->norm.y.x);
    TRY(mlp_forward(r, &s->shared.mlp, y, (Tensor){ 0 }, s->shared.gated, RECOMPUTE_SHARED));
    s->shared.out = s->shared.gated;
    if (!m->shared_gate) return OK;
    /* The recomputed MLP's output is needed only behind a gate. */
    if (r->recomputing)
        TRY(recipe_forward(r, ROLE_DOWN, s->shared.mlp.act.rows, (Tensor){ 0 }, s->shared.gated));
    TRY(tensor_new2(r->keep, DTYPE_F32, n, 1, &s->shared.gate));
    Tensor w = r->weights->w[ROLE_SHARED_GATE].data;
    TRY(linear_fwd(r->ex, (LinearFwd){ .x = operand_plain(s->norm.y.x),
                                       .w = operand_plain(w),
                                       .y = s->shared.gate }));
    if (r->recomputing) return OK;
    TRY(tensor_new2(r->ring, r->spec->act, n, d, &s->shared.out));
    return scale_fwd(r->ex, (ScaleFwd){ .x = s->shared.gated,
                                        .w = s->shared.gate,
                                        .y = s->shared.out,
                                        .sigmoid = true });
}

/* out (M, D): for each received token the sum of its rows here, so that one row a token travels back. */
static Status sum_rows(LayerRun *r, Tensor rows, Tensor weight, Tensor *out)
{
    MoeState *s = r->state;
    TRY(tensor_new2(r->ring, r->spec->act, received_tokens(r).bound, r->spec->hidden, out));
    return moe_combine(r->ex, (MoeCombine){ .out = rows,
                                            .slot_row = s->order.slot_row,
                                            .weight = weight,
                                            .y = *out,
                                            .rows = moe_routed_rows(r) });
}

/* Over ranks a received token's rows are summed with their weights first, so that one row travels
 * back. On one rank moe_combine reads the experts' rows directly. */
static Status combine_forward(LayerRun *r)
{
    MoeState *s = r->state;
    if (r->recomputing) return OK;
    if (moe_spread(r)) {
        Tensor back;
        TRY(sum_rows(r, s->experts.out, s->experts.weight, &back));
        return exchange_combine(r->ex, (ExchangeCombine){ .x = back,
                                                          .offset = s->travel.offset,
                                                          .first = s->travel.first,
                                                          .relay = s->travel.relay,
                                                          .shared = s->shared.out,
                                                          .residual = r->h,
                                                          .y = r->h_out,
                                                          .received = received_tokens(r),
                                                          .ranks = r->spec->ranks.ep,
                                                          .kind = r->spec->ranks.exchange });
    }
    return moe_combine(r->ex, (MoeCombine){ .out = s->experts.out,
                                            .slot_row = s->order.slot_row,
                                            .weight = s->route.weight,
                                            .shared = s->shared.out,
                                            .residual = r->h,
                                            .y = r->h_out });
}

/* Sends the gradient of the output to the ranks of the tokens' experts. Rows and norms that forward
 * did not keep are fetched or made again. */
static Status combine_backward_input(LayerRun *r)
{
    MoeState *s = r->state;
    bool fetches = moe_spread(r) && layer_arena(r, RECOMPUTE_EXCHANGE) == r->ring;
    Operand dout;
    TRY(layer_norm_recompute(r, &s->norm, norm_use(r)));
    TRY(recipe_dispatched(r, ROLE_EXPERT_DOWN, SIDE_GRADIENT, r->dh_out, sent_arena(r), &dout));
    s->experts.dout = dout;
    if (fetches || !moe_spread(r)) TRY(make_sent(r, false));
    if (!moe_spread(r)) {
        s->experts.x = s->travel.sent;
        return OK;
    }
    if (fetches) TRY(send_tokens(r, s->travel.sent, false, r->ring, &s->experts.x));
    return send_tokens(r, dout, false, r->ring, &s->experts.dout);
}

static Status shared_backward_input(LayerRun *r)
{
    MoeState *s = r->state;
    const MoeSpec *m = &r->layer->as.moe;
    int64_t n = r->rows, d = r->spec->hidden;
    if (m->shared_ffn == 0) return OK;
    TRY(tensor_new2(r->ring, r->spec->act, n, d, &s->shared.dy));
    s->shared.dgated = r->dh_out;
    if (m->shared_gate) {
        TRY(tensor_new2(r->ring, r->spec->act, n, d, &s->shared.dgated));
        TRY(tensor_new2(r->ring, DTYPE_F32, n, 1, &s->shared.dgate));
        TRY(scale_bwd(r->ex, (ScaleBwd){ .dy = r->dh_out,
                                         .x = s->shared.gated,
                                         .w = s->shared.gate,
                                         .dx = s->shared.dgated,
                                         .dw = s->shared.dgate,
                                         .sigmoid = true }));
    }
    Activation y;
    Arena *rows = layer_arena(r, RECOMPUTE_SHARED) == r->ring ? r->scratch : NULL;
    TRY(recipe_operands(r, ROLE_GATE_UP, SIDE_FORWARD, s->norm.y.x, rows, r->ring, &y));
    s->shared.y = y.columns;
    TRY(mlp_backward_input(r, &s->shared.mlp, y.rows, s->shared.dgated, s->shared.dy,
                           RECOMPUTE_SHARED));
    if (!m->shared_gate) return OK;
    Tensor w = r->weights->w[ROLE_SHARED_GATE].data, dy = s->shared.dy;
    return linear_bwd_input(r->ex, (LinearBwdInput){ .dy = operand_plain(s->shared.dgate),
                                                     .w = operand_plain(w),
                                                     .r = dy,
                                                     .dx = dy });
}

static Status shared_backward_weight(LayerRun *r)
{
    MoeState *s = r->state;
    if (r->layer->as.moe.shared_ffn == 0) return OK;
    TRY(mlp_backward_weight(r, &s->shared.mlp, s->shared.y));
    if (!r->layer->as.moe.shared_gate) return OK;
    return linear_bwd_weight(r->ex, (LinearBwdWeight){ .dy = operand_plain(s->shared.dgate),
                                                       .x = operand_plain(s->norm.y.x),
                                                       .dw = r->weights->dw[ROLE_SHARED_GATE] });
}

static bool scales_inputs(const LayerRun *r) { return r->layer->as.moe.score_input; }

/* Sends the gradients of y and of the routing weights back to the tokens' ranks. */
static Status dispatch_backward_input(LayerRun *r)
{
    MoeState *s = r->state;
    const Tensor none = { 0 };
    int64_t n = r->rows;
    s->travel.dweight = s->experts.dweight;
    if (!moe_spread(r)) return OK;
    Tensor back;
    TRY(sum_rows(r, s->experts.dx, (Tensor){ 0 }, &back));
    TRY(tensor_new2(r->ring, r->spec->act, n, r->spec->hidden, &s->travel.dy));
    TRY(tensor_new2(r->ring, DTYPE_F32, n, tensor_cols(&s->route.weight), &s->travel.dweight));
    Tensor dweight = s->travel.dweight;
    if (r->spec->ranks.etp > 1)
        TRY(tensor_new2(r->scratch, DTYPE_F32, n, moe_parts_taken(r), &dweight));
    TRY(exchange_combine(r->ex, (ExchangeCombine){ .x = back,
                                                   .offset = s->travel.offset,
                                                   .first = s->travel.first,
                                                   .relay = s->travel.relay,
                                                   .rows_weight = s->experts.dweight,
                                                   .shared = scales_inputs(r) ? none : s->shared.dy,
                                                   .y = s->travel.dy,
                                                   .weight = dweight,
                                                   .received = received_tokens(r),
                                                   .ranks = r->spec->ranks.ep,
                                                   .kind = r->spec->ranks.exchange }));
    if (r->spec->ranks.etp == 1) return OK;
    return expert_parts_bwd(r->ex, (ExpertPartsBwd){ dweight, s->travel.dweight });
}

/* Adds up the gradients of y from the routed rows, the shared experts and the router. */
static Status route_backward_input(LayerRun *r)
{
    const MoeSpec *m = &r->layer->as.moe;
    MoeState *s = r->state;
    const Tensor none = { 0 };
    Tensor dy = s->travel.dy;
    if (!moe_spread(r)) {
        TRY(tensor_new2(r->scratch, r->spec->act, r->rows, r->spec->hidden, &dy));
        TRY(moe_combine(r->ex, (MoeCombine){ .out = s->experts.dx,
                                             .slot_row = s->order.slot_row,
                                             .shared = scales_inputs(r) ? none : s->shared.dy,
                                             .y = dy }));
    }
    if (scales_inputs(r))
        TRY(scale_bwd(r->ex, (ScaleBwd){ .dy = dy,
                                         .x = s->norm.y.x,
                                         .w = s->route.score,
                                         .r = s->shared.dy,
                                         .dx = dy,
                                         .dw = s->travel.dweight }));
    /* Nothing reads the logits after this op, so their gradient overwrites them. */
    TRY(route_bwd(r->ex, (RouteBwd){ .logits = s->route.logits,
                                     .index = s->route.index,
                                     .seq_count = s->route.seq_count,
                                     .dweight = s->travel.dweight,
                                     .weight = m->capacity > 0 ? s->route.weight : (Tensor){ 0 },
                                     .scale = r->grad_scale,
                                     .dlogits = s->route.logits,
                                     .parts = loss_parts(r),
                                     .rule = route_rule(r) }));
    TRY(linear_bwd_input(r->ex, (LinearBwdInput){ .dy = operand_plain(s->route.logits),
                                                  .w = r->weights->w[ROLE_ROUTER],
                                                  .r = dy,
                                                  .dx = dy }));
    return layer_norm_rows_backward(r, &s->norm, dy, r->dh_out);
}

static Status route_backward_weight(LayerRun *r)
{
    MoeState *s = r->state;
    if (r->layer->as.moe.shift)
        TRY(bias_bwd(r->ex, (BiasBwd){ s->route.logits, r->weights->dw[ROLE_ROUTER_SHIFT] }));
    return linear_bwd_weight(r->ex, (LinearBwdWeight){ .dy = operand_plain(s->route.logits),
                                                       .x = operand_plain(s->norm.y.x),
                                                       .dw = r->weights->dw[ROLE_ROUTER] });
}

enum { ROUTE, DISPATCH, SHARED, EXPERTS, COMBINE };

static const Phase phases[] = {
    [ROUTE] = { "route", LANE_COMPUTE, route_forward, route_backward_input, route_backward_weight,
                .part = PHASE_ATTENTION },
    [DISPATCH] = { "dispatch", LANE_COMM, dispatch_forward, dispatch_backward_input, NULL,
                   .part = PHASE_DISPATCH },
    [SHARED] = { "shared", LANE_COMPUTE, shared_forward, shared_backward_input,
                 shared_backward_weight, .overlap_ok = true, .part = PHASE_EXPERTS },
    [EXPERTS] = { "experts", LANE_COMPUTE, moe_experts_forward, moe_experts_backward_input,
                  moe_experts_backward_weight, .part = PHASE_EXPERTS },
    [COMBINE] = { "combine", LANE_COMM, combine_forward, combine_backward_input, NULL,
                  .part = PHASE_COMBINE },
};

/* Tokens and their gradients travel. In forward alone so do the counts of the auxiliary loss and
 * the routing that drop_tokens compares. */
static bool moe_communicates(const ModelSpec *s, const LayerSpec *l, int phase, bool forward)
{
    if (phase != DISPATCH && phase != COMBINE) return false;
    bool sums = loss_ranks(s, &l->as.moe) > 1,
         drops = l->as.moe.capacity > 0 && spec_sequence_ranks(s) > 1;
    return s->ranks.ep > 1 || (phase == DISPATCH && forward && (sums || drops));
}

/* Shared experts run while tokens, or their gradients, travel to the routed ones. */
static const int backward[] = { COMBINE, SHARED, EXPERTS, DISPATCH, ROUTE };

/* After the step: nudges the bias of each expert by its load (arXiv:2408.15664), or by quantiles of
 * margins. sum->clip gates it, so that a skipped step changes nothing. */
static Status update_bias(Exec *ex, const LayerSpec *l, const LayerWeights *w, const Record *sum)
{
    const MoeSpec *m = &l->as.moe;
    if (!m->bias) return OK;
    Tensor margins = sum->margins;
    if (margins.data != NULL) margins = tensor_rows(&margins, l->load, 1);
    return moe_bias_update(ex, (MoeBiasUpdate){ .load = tensor_rows(&sum->load, l->load, 1),
                                                .margins = margins,
                                                .gate = sum->clip,
                                                .bias = w->w[ROLE_ROUTER_BIAS].data,
                                                .rate = m->bias_rate,
                                                .centred = m->bias_rule == BIAS_CENTRED,
                                                .top_k = m->rule.top_k });
}

const LayerDesc layer_moe = {
    .name = "moe",
    .title = "MoE",
    .state_bytes = sizeof(MoeState),
    .params = moe_params,
    .prepare = prepare_moe,
    .pooled = pool_need,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
    .backward = backward,
    .communicates = moe_communicates,
    .after_step = update_bias,
};
