/* price: memory and time of a layout: it adds up layers (price_layers.c) to chunks, chunks to ranks, and ranks to
 * the step with the estimated schedule. The fullest rank decides the memory. */
#include "planner/price/price_private.h"

#include "engine/count/capacity.h"
#include "engine/count/engine_count.h"
#include "kernels/exchange/exchange.h"
#include "kernels/norm/elementwise.h"

#include <math.h>
#include <string.h>

/* Plans of memory are off by so much: a layout that takes at most this times what may be used is tight. */
static const double TIGHT = 1.05;

/* ---- a chunk ---- */

static void add_extras(ChunkPrice *c, double copies, const double whole_s[2], double longest_s,
                       double largest)
{
    c->copies += copies;
    c->largest = fmax(c->largest, largest);
    for (int i = 0; i < 2; i++) c->whole_s[i] += whole_s[i];
    c->longest_s = fmax(c->longest_s, longest_s);
}

/* Adds a layer. Its time lost to the host is spread over the passes, in the part where the layer computes. */
static void add_layer_price(ChunkPrice *c, const LayerPrice *l)
{
    const LayerCount *n = &l->count;
    spaces_add(&c->params, &n->params);
    c->state_elems += (double)n->state_elems;
    add_extras(c, l->copies, l->whole_s, l->longest_s, l->largest);
    double lost = price_lost_s(l);
    for (int k = 0; k < CHUNK_PASSES; k++) {
        for (int i = 0; i < PHASES; i++) c->time.of[k][i] += l->time.of[k][i];
        c->nic_s[k] += l->nic_s[k];
        c->time.of[k][l->part] += lost / CHUNK_PASSES;
    }
    c->host_s += lost;
    for (int i = 0; i < ROOFLINE_LANES; i++) c->lane_s[i] += l->lane_s[i];
    c->layer[c->layers++] = n;
}

/* Does the head's stage hold the table although another rank has the embedding? */
static bool has_table_copy(const PriceEntry *e, const PlanLayout *l, const LayoutStage *s)
{
    if (!s->loss || s->embedding || !spec_shares_table(&e->spec) || l->schedule == NULL)
        return false;
    Program like = price_program_like(l);
    int last = hop_stage(&like, 0, hop_count(&like) - 1).rank;
    return like.placement != PLACE_BOTH && hop_stage(&like, 0, 0).rank != last;
}

void price_chunk(const Planner *p, const PlanLayout *l, const PriceEntry *e, const LayoutStage *s,
                 const LayerCount **layer, ChunkPrice *c)
{
    *c = (ChunkPrice){ .layer = layer };
    LayerRange range = chunk_layers(&p->spec, s);
    for (int i = range.first; i < range.end; i++) {
        bool again = price_again(l, s, p->spec.layers[i].block);
        add_layer_price(c, &(again ? e->recomputed : e->plain)[p->class_of[i]]);
    }
    if (!has_table_copy(e, l, s)) return;
    const LayerCount *table = &e->plain[p->class_of[0]].count;
    spaces_add(&c->params, &table->params);
}

/* ---- time outside of the schedule ---- */

/* mesh.shard limits the data-parallel ranks of a group. Parameters that our own engine splits over tp are sharded over
 * ranks with the same part. Layers of other stacks have none: their ModelSpec is of one rank of tp. Some stacks shard
 * dense parameters over the ranks of experts (STACK_shard_together). */
ParamShards price_shards(const Planner *p, const PlanLayout *l, const PriceEntry *e)
{
    int64_t ranks = l->dp * l->cp, experts = plan_expert_ranks(l);
    int64_t part = l->shard > 0 ? l->shard * l->cp : ranks, dense = part * e->spec.ranks.tp;
    ParamShards s = { .zero = dense > 1 ? l->zero : 0,
                      .dense = dense,
                      .part = part,
                      .expert = part * l->tp > experts ? part * l->tp / experts : 1,
                      .low_reduce = p->config.mesh_reduce == REDUCE_BF16 };
    if (e->stack.at[STACK_shard_together] != 0)
        s.dense = s.part = s.expert = ranks * l->tp / experts;
    return s;
}

/* The cost of the op that adds or gathers `bytes` of parameters: that of one element, scaled. The cost is linear.
 * Fractions of an element occur, because shards divide evenly only after buckets are padded. */
static OpCost cost_of_shared(OpComm kind, int64_t ranks, double bytes)
{
    float at = 0;
    const Tensor one = { .data = &at, .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    const Collective args = { .in = one, .out = one, .kind = kind, .ranks = ranks };
    OpCost c = op_desc(OP_COLLECTIVE)->cost(&args);
    double elems = bytes / (double)dtype_bytes(DTYPE_F32);
    c.bytes *= elems, c.comm_bytes *= elems, c.size *= elems;
    return c;
}

static OpCost of_kind(OpComm kind, double bytes) { return (OpCost){ .comm = kind, .size = bytes }; }

/* Of call.cost only `comm` and `size` are set: its kind and bytes. A group of one rank, or nothing to send, costs nothing
 * and is not listed. */
static Status add_call(const Planner *p, const PriceEntry *e, GradientCall call, GradientTimes *t,
                       double *sum)
{
    if (call.ranks <= 1 || call.cost.size <= 0) return OK;
    CollectiveGroup g = roofline_group(p->q.hardware, call.ranks, call.stride);
    CollectiveCost c;
    call.cost = cost_of_shared(call.cost.comm, call.ranks, call.cost.size);
    TRY(roofline_collective(p->q.hardware, &call.cost, &g, &c));
    call.s = c.s / e->stack.at[STACK_share_links];
    *sum += call.s;
    t->leaves |= c.out_bytes > 0;
    if (call.s > 0) t->call[t->calls++] = call;
    return OK;
}

/* Parameters of one kind, held by `ranks` GPUs with stride `stride`, sharded over `shards` of them. */
typedef struct SharedParams {
    int64_t ranks, shards, stride;
    double reduced, gathered; /* numbers of parameters whose gradients, or weights, are sent */
    double weight;            /* bytes of a gathered weight */
} SharedParams;

/* Three calls: reduce-scatter over the shards, all-reduce of a part over the replicas, all-gather of the weights. */
static Status add_gradients(const Planner *p, const PriceEntry *e, const SharedParams *x,
                            GradientTimes *t)
{
    double size = p->config.mesh_reduce == REDUCE_BF16 ? 2 : 4; /* of a gradient */
    int64_t shards = x->shards, replicas = x->ranks / shards;
    /* Parts that are whole matrices differ in length, so all ranks get the sum (params.h, CUT_MATRICES). */
    OpComm kind = e->spec.optimizer.rule[0]->whole_matrices ? COMM_ALL_REDUCE : COMM_REDUCE_SCATTER;
    const GradientCall each[] = {
        { "gradients reduced", of_kind(kind, x->reduced * size), shards, x->stride, 0 },
        { "replicas added up", of_kind(COMM_ALL_REDUCE, x->reduced / (double)shards * size),
          replicas, x->stride * shards, 0 },
        { "weights gathered", of_kind(COMM_ALL_GATHER, x->gathered * x->weight), shards, x->stride,
          0 },
    };
    double *const sum[] = { &t->reduce, &t->replicate, &t->gather };
    for (int i = 0; i < 3; i++) TRY(add_call(p, e, each[i], t, sum[i]));
    return OK;
}

/* Of dense parameters that ranks of tp do not split. */
static double dense_elems(const ParamSizes *z) { return (double)(z->flat - z->part - z->expert); }

/* Number of parameters that this rank updates: those whose summed gradients it holds. */
double price_updated_elems(const ParamShards *s, const RankPrice *r)
{
    const ParamSizes *own = &r->sum.params.of[BUF_GRAD];
    if (s->zero == 0) return (double)own->flat;
    return dense_elems(own) / (double)s->dense + (double)own->part / (double)s->part +
           (double)own->expert / (double)s->expert;
}

/* Mean bytes of a weight in the form that products read. */
static double weight_size(const ParamSpaces *s)
{
    double elems = (double)s->of[BUF_WEIGHT].flat;
    return elems > 0 ? (double)s->copies.flat / elems : 0;
}

/* Where exchanges run beside compute, a micro-batch takes the longer of both; a third of it is its forward's. */
void price_raise_pace(const PlanLayout *l, const PriceEntry *e, const PassSum *s, RankPrice *r)
{
    double forward = s->forward, backward = s->input + s->weight;
    if (l->schedule->phases && !price_in_series(e, l)) {
        double both = fmax(s->compute, forward + backward - s->compute);
        forward = both / 3, backward = both - forward;
    }
    r->forward_s = fmax(r->forward_s, forward);
    r->backward_s = fmax(r->backward_s, backward);
}

/* The time of a pass behind which gradients or weights move. It is that of the slowest rank: all others wait for it.
 * If a rank's own were taken, a faster GPU could hide less than it gains. Between domains gradients and exchanges
 * send through the same NICs, which are busy for the sum of both: exchanges hide none of it. */
static double hiding_s(const GradientTimes *t, double hide, double pass_s, double nic_s)
{
    return fmax(0, hide * pass_s - (t->leaves ? nic_s : 0));
}

/* Sets what no pass hides. With ZeRO-3 backward hides a gather, too: each second of a pass hides one of
 * transfers, not two. Replicas add up in the last backward. Collectives slow the passes that hide them. */
static void show_gradients(const Hardware *h, const PlanLayout *l, const PriceEntry *e,
                           const RankPrice *r, GradientTimes *t)
{
    double hide = e->stack.at[STACK_hide_gradients], again = l->zero < 3 ? 0 : t->gather;
    double hidden = t->behind_backward = hiding_s(t, hide, r->backward_s, r->backward_nic_s);
    double rest = fmax(0, hidden - t->reduce);
    t->shown_reduce = fmax(0, t->reduce - hidden);
    t->shown_replicate = fmax(0, t->replicate + t->twins - fmax(0, rest - again));
    /* Our own list gathers updated weights at the end of the step, where nothing hides it. */
    bool at_end = e->stack.at[STACK_list] != 0 && l->zero < 3;
    double forward = at_end ? 0 : hiding_s(t, hide, r->forward_s, r->forward_nic_s);
    t->shown_gather = fmax(0, t->gather - forward);
    if (l->zero == 3) t->shown_gather = (t->shown_gather + fmax(0, again - rest)) / 2;
    double beside = (t->reduce - t->shown_reduce) * t->reductions +
                    (t->replicate + t->twins - t->shown_replicate) +
                    (t->gather - t->shown_gather) * t->gathers;
    t->slowed = e->stack.at[STACK_contend] * fmax(0, h->contention_gemm - 1) * beside;
}

/* Gradients of parameters that ranks of tp hold together. Our own engine adds up those of heads of keys with the twins:
 * behind all reductions, of what this rank updates. */
static Status add_copies(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                         const ParamShards *s, double elems, GradientTimes *t)
{
    const bool own = e->own;
    const int ranks = own ? price_keys(&e->spec) : l->tp;
    if (own && s->zero > 0) elems /= (double)s->part;
    const GradientCall call = { own ? "heads of keys added up" : "copies of tp added up",
                                of_kind(COMM_ALL_REDUCE, 4 * elems), ranks, 1, 0 };
    return add_call(p, e, call, t, own ? &t->twins : &t->replicate);
}

/* Behind each reduction our own engine adds this rank's part to its sums, on the same lane (shards_reduce). */
static double added_s(const Planner *p, const PriceEntry *e, double elems)
{
    const Roofline roof = { p->q.hardware, &e->stack, &e->spec, 0, 1 };
    const Tensor one = { .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    return roofline_memory_s(&roof, elems * op_desc(OP_ADD)->cost(&(Add){ one, one }).bytes);
}

/* With ZeRO-2 gradients are reduced in every micro-batch, with ZeRO-3 weights are also gathered in every one;
 * otherwise once a step. Only the time beyond that of the pass that hides it shows. Under DualPipe the
 * replica stage has the same parameters, and gradients of its own passes. */
Status price_gradients(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *r, GradientTimes *t)
{
    ParamShards shards = price_shards(p, l, e);
    bool whole = shards.zero == 0;
    int64_t ranks = l->dp * l->cp, stage = plan_stage_gpus(l), own = e->spec.ranks.tp;
    int64_t experts = plan_expert_ranks(l), replicas = stage > experts ? stage / experts : 1;
    double micros = (double)price_micros(p, l);
    if (l->schedule->placement == PLACE_BOTH) micros /= 2; /* of each of both chunks */
    const ParamSizes *z = &r->sum.params.of[BUF_GRAD];
    const ParamSizes *read = l->zero < 3 ? z : &r->sum.params.of[BUF_WEIGHT];
    double weight = weight_size(&r->sum.params);
    const SharedParams kinds[] = {
        { ranks * own, whole ? 1 : shards.dense, l->tp / own, dense_elems(z), dense_elems(read),
          weight },
        { ranks, whole ? 1 : shards.part, l->tp, (double)z->part, (double)read->part, weight },
        { replicas, whole ? 1 : shards.expert, experts, (double)z->expert, (double)read->expert,
          weight },
    };
    *t = (GradientTimes){ .reductions = l->zero < 2 ? 1 : micros,
                          .gathers = l->zero < 3 ? 1 : 2 * micros }; /* for either pass */
    for (int i = 0; i < 3; i++) TRY(add_gradients(p, e, &kinds[i], t));
    if (e->own && shards.zero >= 2) t->sums = added_s(p, e, price_updated_elems(&shards, r));
    t->reduce += t->sums;
    if (l->schedule->placement == PLACE_BOTH) {
        OpCost c = of_kind(COMM_ALL_REDUCE, 4 * price_updated_elems(&shards, r));
        const GradientCall twins = { "replicas of both added up", c, 2, l->pp * stage / 2, 0 };
        TRY(add_call(p, e, twins, t, &t->twins));
    }
    TRY(add_copies(p, l, e, &shards, r->sum.copies, t));
    show_gradients(p->q.hardware, l, e, r, t);
    return OK;
}

/* Bytes that 8-bit copies of weights take to make, once a step: both orientations are written, and main weights or a
 * bf16 copy are read. Main weights are twice as long, but the update writes no copy of them, which engine_update_bytes
 * counts. An update that makes copies (shards_update_copies) reads nothing more. But its bytes, all but the norm's,
 * move at SHARE of the rate of memory (H200: 3,842 GB/s; AdamW alone 4,194). */
static double copies_bytes_a_step(const PriceEntry *e, const ParamShards *z, const RankPrice *r)
{
    const RecipeSpec *q = &e->spec.recipe;
    const double SHARE = 0.916, update = engine_update_bytes(&e->spec) - sizeof(float);
    double scaled = q->per_use ? 0 : (double)r->sum.params.scaled;
    double each = q->packed ? operand_element_bytes(OPERAND_1X32, q->forward) : 1;
    double n = scaled / (2 * each), low = n * (double)dtype_bytes(e->spec.act);
    bool whole = e->own && !e->offload && (z->zero == 0 || (z->dense == 1 && z->expert == 1));
    bool makes = whole && e->spec.optimizer.rule[0]->writes_copies && q->kind == RECIPE_BLOCK;
    return makes ? scaled - low + (1 / SHARE - 1) * update * n : scaled + low;
}

/* The update is bound by memory: bytes of one parameter times the parameters of this rank. Where it takes whole
 * matrices, it is their products that count, and the longest of them goes to one rank. */
static double rank_update_s(const Planner *p, const PriceEntry *e, const ParamShards *shards,
                            const RankPrice *r)
{
    Roofline roof = { p->q.hardware, &e->stack, &e->spec, 0, 1 };
    double bytes = price_updated_elems(shards, r) * engine_update_bytes(&e->spec) +
                   copies_bytes_a_step(e, shards, r);
    double n = shards->zero == 0 ? 1 : (double)shards->part;
    double n_expert = shards->zero == 0 ? 1 : (double)shards->expert;
    double update_s = roofline_memory_s(&roof, bytes) +
                      fmax(r->sum.longest_s, r->sum.whole_s[0] / n + r->sum.whole_s[1] / n_expert);
    return e->offload ? price_offload_s(p, e, shards, r, update_s) : update_s;
}

/* ---- memory ---- */

/* As an arena rounds each allocation. */
static double round_bytes(double bytes) { return (double)arena_rounded((size_t)bytes); }

/* A stack's value below 0 means that it has none of its own. */
static double stack_size(const PriceEntry *e, StackName name, double ours)
{
    return e->stack.at[name] < 0 ? ours : e->stack.at[name];
}

/* Bytes of an optimizer buffer, for one parameter. Stacks give those of both of AdamW's. */
double price_state_size(const PriceEntry *e)
{
    return stack_size(e, STACK_moment_size, 2 * (double)dtype_bytes(e->spec.optimizer.state)) / 2;
}

/* Bytes of all optimizer buffers, for one parameter of a matrix. */
static double state_size(const PriceEntry *e)
{
    return e->spec.optimizer.rule[0]->n_states * price_state_size(e);
}

double price_main_size(const PriceEntry *e)
{
    /* in f32 products read the main weights */
    return stack_size(e, STACK_main_size, e->spec.weights.n > 0 ? 4 : 0);
}

/* Bytes of parameters by kind: what a rank holds under this ZeRO stage, each buffer rounded as its arena is. A stack
 * may have other sizes of elements. */
static void param_bytes(const PriceEntry *e, const ParamShards *shards, const RankPrice *r,
                        double memory[PLAN_KINDS])
{
    const ParamTable t = { .spaces = r->sum.params };
    double elems[BUF_COUNT] = { 0 };
    for (int b = 0; b < BUF_STATE; b++)
        elems[b] = (double)params_shard_elems(&e->spec, &t, (ParamBuffer)b, shards);
    double copies = (double)params_copy_bytes(&e->spec, &t, shards);
    double size = e->stack.at[STACK_weight_size], all = (double)t.spaces.of[BUF_MAIN].flat;
    bool shared =
        size >= 0 && price_main_size(e) == 0; /* the optimizer updates shards of weights */
    if (size >= 0) copies = size * (shards->zero < 3 && !shared ? all : elems[BUF_MAIN]);
    if (shared && shards->zero % 3 != 0) copies += all * (double)dtype_bytes(e->spec.act);
    memory[PLAN_WEIGHTS] = round_bytes(copies);
    memory[PLAN_GRADS] = round_bytes(elems[BUF_GRAD] * e->stack.at[STACK_grad_size]);
    memory[PLAN_MAIN] = round_bytes(elems[BUF_MAIN] * price_main_size(e));
    memory[PLAN_OPTIMIZER] =
        round_bytes(4 * r->sum.state_elems) + round_bytes(4 * elems[BUF_AVERAGE]);
    for (int i = 0; i < OPTIMIZER_STATES; i++) {
        double n = elems[BUF_OPTIMIZER + i];
        memory[PLAN_OPTIMIZER] +=
            e->offload ? price_offload_bytes(e, r, n, i) : round_bytes(n * price_state_size(e));
    }
    if (e->offload && price_by_host(e)) memory[PLAN_MAIN] = memory[PLAN_OPTIMIZER] = 0;
}

void price_buffers(const Planner *p, const PlanLayout *l, const PriceEntry *e, const RankPrice *r,
                   const EstimateRank *slots, double step_bytes, double term[BUFFER_TERMS])
{
    const ParamTable t = { .spaces = r->sum.params };
    ParamShards shards = price_shards(p, l, e);
    const double *v = e->stack.at;
    double positions = (double)p->config.data_sequence, half = (double)p->spec.rotary.dim / 2;
    term[BUFFER_GATHERED] = round_bytes((double)params_gathered_bytes(&t, &shards));
    term[BUFFER_ROWS] = r->ring[RING_FORWARD] + r->ring[RING_BACKWARD];
    if (v[STACK_working] >= 0) term[BUFFER_ROWS] = v[STACK_working];
    term[BUFFER_TRANSFERS] = slots->entries * (double)e->plain[0].count.stream;
    term[BUFFER_STEP] = step_bytes;
    term[BUFFER_ROTARY] = 2 * round_bytes(4 * positions * half);
    term[BUFFER_EXCHANGE] = v[STACK_exchange_buffers];
}

Status price_step_bytes(const Planner *p, const PlanLayout *l, const PriceEntry *e, double *out)
{
    const EngineShape shape = { .batch = p->config.train_batch / l->dp,
                                .micro_batch = l->micro_batch,
                                .sequence = p->config.data_sequence / l->cp,
                                .domains = 1 };
    size_t bytes = 0;
    TRY(engine_step_bytes(&e->spec, &shape, &bytes));
    *out = (double)bytes;
    return OK;
}

/* Other stacks' sheets have it in their reserve, but for what a pipeline adds. */
double price_comm_bytes(const PlanLayout *l, const PriceEntry *e)
{
    const SpecRanks *of = &e->spec.ranks;
    const int dp = (int)l->dp, shard = l->shard > 0 ? (int)l->shard : dp;
    const bool matrices = e->spec.optimizer.rule[0]->whole_matrices;
    const MeshShape s = { .pp = l->pp,
                          .replicate = dp / shard,
                          .shard = shard,
                          .ep = plan_expert_ranks(l),
                          .cp = l->cp,
                          .inside = of->exchange == EXCHANGE_HIER ? (int)of->ep_inside : 0,
                          .tp = (int)of->tp,
                          .keys = price_keys(&e->spec),
                          .parts = matrices ? (int)of->etp : 1,
                          .matrices = matrices };
    const bool stores = exchange_kinds[of->exchange]->header_bytes > 0;
    const bool loop = l->schedule->placement == PLACE_LOOP;
    if (e->stack.at[STACK_list] == 0) return l->pp > 1 ? e->stack.at[STACK_reserve_pipeline] : 0;
    return (double)engine_comm_bytes(&s, stores, loop ? 1 : l->vpp);
}

/* An evaluation may need more of the first slot than training does: the difference is added. */
static double activations_of(const RankPrice *r, const EstimateRank *slots)
{
    return slots->slot_arena_bytes + fmax(0, r->eval - slots->first_slot_bytes);
}

void price_rank_memory(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *r, const EstimateRank *slots, const AlikeBytes *alike,
                       double memory[PLAN_KINDS])
{
    ParamShards shards = price_shards(p, l, e);
    double term[BUFFER_TERMS];
    price_buffers(p, l, e, r, slots, alike->step, term);
    param_bytes(e, &shards, r, memory);
    const double *v = e->stack.at;
    memory[PLAN_BUFFERS] = 0;
    for (int i = 0; i < BUFFER_TERMS; i++) memory[PLAN_BUFFERS] += term[i];
    memory[PLAN_ACTIVATIONS] = activations_of(r, slots);
    memory[PLAN_WORKSPACE] = r->scratch + v[STACK_workspace];
    memory[PLAN_RESERVE] = v[STACK_reserve] + alike->comm;
    /* Gradients come as the only backward frees activations; its layers need buffers when logits are gone. */
    if (v[STACK_late_grads] == 0 || l->pp > 1 || price_micros(p, l) > 1) return;
    const double logits = fmin(v[STACK_working_head], memory[PLAN_WORKSPACE]);
    const double later = memory[PLAN_GRADS] + fmin(logits, memory[PLAN_BUFFERS]);
    memory[PLAN_WORKSPACE] -= logits;
    memory[PLAN_ACTIVATIONS] = fmax(0, memory[PLAN_ACTIVATIONS] + logits - later);
}

/* ---- a layout ---- */

/* With two copies of the model (PLACE_BOTH) each rank holds two chunks but the model has only pp stages. */
int price_stage_count(const PlanLayout *l)
{
    return l->schedule->placement == PLACE_BOTH ? l->pp : l->pp * l->vpp;
}

/* Times and parameters add up over the chunks of a rank. */
void price_add_chunk(RankPrice *r, const ChunkPrice *c)
{
    ChunkPrice *s = &r->sum;
    PassSum pass = price_pass_sum(&c->time);
    price_add_sum(&r->pass, &pass, 1);
    r->forward_nic_s += c->nic_s[PASS_FORWARD];
    r->backward_nic_s += c->nic_s[PASS_INPUT] + c->nic_s[PASS_WEIGHT];
    for (int i = 0; i < ROOFLINE_LANES; i++) s->lane_s[i] += c->lane_s[i];
    s->host_s += c->host_s;
    spaces_add(&s->params, &c->params);
    s->state_elems += c->state_elems;
    add_extras(s, c->copies, c->whole_s, c->longest_s, c->largest);
}

/* A chunk without layers keeps only its input, which it passes on. */
ChunkBytes price_add_bytes(RankPrice *r, const PlanLayout *l, const PriceEntry *e,
                           const ChunkPrice *c, unsigned passes)
{
    double pool = l->room.pool > 0 ? l->room.pool : e->spec.capacity.pool;
    const size_t stream = e->plain[0].count.stream;
    ChunkBytes b = { .slot = { stream }, .split_keep = stream };
    if (c->layers > 0) b = chunk_count(c->layer, c->layers, passes, pool);
    for (int i = 0; i < RINGS; i++) r->ring[i] = fmax(r->ring[i], (double)b.ring[i]);
    if (e->stack.at[STACK_list] != 0) b.scratch += engine_header_bytes(&e->spec);
    r->scratch = fmax(r->scratch, (double)b.scratch);
    r->eval = fmax(r->eval, (double)b.eval);
    return b;
}

/* Moves the time of exchanges into the experts' phase, so that nothing runs during them. */
static void run_in_series(ChunkTimes *t)
{
    for (int i = 0; i < CHUNK_PASSES; i++) {
        double *pass = t->of[i];
        pass[PHASE_EXPERTS] += pass[PHASE_DISPATCH] + pass[PHASE_COMBINE];
        pass[PHASE_DISPATCH] = pass[PHASE_COMBINE] = 0;
    }
}

/* Prices every chunk of every rank. Layers of all chunks lie one after the other in p->layers. */
static Status price_ranks(Planner *p, const PlanLayout *l, const PriceEntry *e, PriceRanks *out)
{
    size_t chunks = (size_t)l->pp * (size_t)l->vpp;
    const LayerCount **layer = p->layers;
    LayoutStage *stage;
    *out = (PriceRanks){ .blocks = 1 };
    TRY(price_stages(p, l, e, price_stage_count(l), &stage));
    TRY(ARENA_ZEROED(&p->scratch, l->pp, &out->rank));
    TRY(ARENA_NEW(&p->scratch, chunks, &out->chunk));
    TRY(ARENA_NEW(&p->scratch, chunks, &out->time));
    TRY(ARENA_NEW(&p->scratch, chunks, &out->slot));
    Program like = price_program_like(l);
    for (like.rank = 0; like.rank < l->pp; like.rank++) {
        for (int c = 0; c < l->vpp; c++) {
            const LayoutStage *s = &stage[hop_of(&like, c, c)];
            int at = like.rank * l->vpp + c;
            price_chunk(p, l, e, s, layer, &out->chunk[at]);
            price_add_chunk(&out->rank[like.rank], &out->chunk[at]);
            layer += out->chunk[at].layers;
            out->time[at] = out->chunk[at].time;
            if (price_in_series(e, l)) run_in_series(&out->time[at]);
            int blocks = s->layers + (s->loss ? p->spec.depths : 0);
            if (blocks > out->blocks) out->blocks = blocks;
        }
        price_raise_pace(l, e, &out->rank[like.rank].pass, &out->rank[0]);
        out->compute_s += out->rank[like.rank].pass.compute;
    }
    for (int r = 1; r < l->pp; r++) {
        out->rank[r].forward_s = out->rank[0].forward_s;
        out->rank[r].backward_s = out->rank[0].backward_s;
    }
    return OK;
}

bool price_sends_out(const Planner *p, const PlanLayout *l)
{
    int64_t domain = (int64_t)p->q.hardware->scale_up_gpus;
    return 2 * plan_stage_gpus(l) > domain && p->q.gpus > domain;
}

/* A send starts while the next micro-batch goes through its layers: it shares its NIC with the longest exchange of
 * one. It is shorter than what is computed until another exchange. */
static double transfer_s(const Planner *p, const PlanLayout *l, const PriceEntry *e)
{
    int64_t span = 2 * plan_stage_gpus(l);
    CollectiveLoad load = { 0 };
    for (int i = 0; i < p->classes; i++) {
        if (e->plain[i].exchange.nic_s > load.nic_s) load = e->plain[i].exchange;
    }
    load.nic_s *= e->stack.at[STACK_share_links]; /* all of this is divided by it below */
    CollectiveCost c = collective_send_beside(p->q.hardware, !price_sends_out(p, l), span,
                                              (double)e->plain[0].count.stream, &load);
    return c.s / e->stack.at[STACK_share_links];
}

Status price_rank_ends(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                       const RankPrice *rank, double part_s[PLAN_PARTS])
{
    const double *v = e->stack.at;
    ParamShards shards = price_shards(p, l, e);
    GradientTimes gradients;
    TRY(price_gradients(p, l, e, rank, &gradients));
    part_s[PLAN_GRADIENTS] = price_gradients_s(&gradients);
    part_s[PLAN_UPDATE] = rank_update_s(p, e, &shards, rank);
    double elems = (double)rank->sum.params.of[BUF_MAIN].flat;
    double state = (4 + state_size(e)) * elems / (double)(l->dp * l->cp);
    part_s[PLAN_CHECKPOINT] = 0;
    if (p->config.checkpoint_every > 0) {
        double every = (double)p->config.checkpoint_every;
        part_s[PLAN_CHECKPOINT] = state / (1e9 * v[STACK_checkpoint_gb_s]) / every;
    }
    return OK;
}

/* Has a rank all sums of the rank before? Where padding differs, it only takes longer. */
static bool is_alike(const PriceRanks *n, int r)
{
    const char *rank = (const char *)&n->rank[r];
    return r > 0 && memcmp(rank, rank - sizeof *n->rank, sizeof *n->rank) == 0;
}

/* The parts after the schedule. The slowest rank of each part counts. */
static Status price_ends(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                         const PriceRanks *n, PlanPrice *out)
{
    static const PlanPart ends[] = { PLAN_GRADIENTS, PLAN_UPDATE, PLAN_CHECKPOINT };
    for (int r = 0; r < l->pp; r++) {
        double part_s[PLAN_PARTS];
        if (is_alike(n, r)) continue;
        TRY(price_rank_ends(p, l, e, &n->rank[r], part_s));
        for (int i = 0; i < 3; i++)
            out->part_s[ends[i]] = fmax(out->part_s[ends[i]], part_s[ends[i]]);
    }
    out->part_s[PLAN_HOST] += e->stack.at[STACK_wait_step];
    return OK;
}

/* Splits the time of the pipeline: what the mean rank does, and the rest, which is the bubble. */
static void price_parts(const PlanLayout *l, const PriceEntry *e, const PriceRanks *n,
                        double micros, double step_s, PlanPrice *out)
{
    /* With two copies of the model each chunk has half of the micro-batches. */
    bool both = l->schedule->placement == PLACE_BOTH;
    double busy = 0, share = micros / l->pp / (both ? 2 : 1);
    for (int r = 0; r < l->pp; r++) {
        const ChunkPrice *s = &n->rank[r].sum;
        out->part_s[PLAN_COMPUTE] += s->lane_s[ROOFLINE_COMPUTE] * share;
        out->part_s[PLAN_EXCHANGE] += s->lane_s[ROOFLINE_EXCHANGE] * share;
        out->part_s[PLAN_CONTEXT] += s->lane_s[ROOFLINE_CONTEXT] * share;
        out->part_s[PLAN_TENSOR] += s->lane_s[ROOFLINE_TENSOR] * share;
        out->part_s[PLAN_HOST] += s->host_s * share;
    }
    for (int i = 0; i < PLAN_PARTS; i++) busy += out->part_s[i];
    double over = busy - step_s; /* hidden communication does not show */
    static const PlanPart beside[] = { PLAN_EXCHANGE, PLAN_CONTEXT, PLAN_TENSOR };
    const int hidable = e->own ? 3 : 2; /* other stacks' tensor time is in series */
    out->part_s[PLAN_BUBBLE] = fmax(0, -over);
    for (int i = 0; i < hidable && over > 0; i++) {
        double hidden = fmin(over, out->part_s[beside[i]]);
        out->part_s[beside[i]] -= hidden;
        over -= hidden;
    }
}

/* The memory of the fullest rank decides whether the layout fits. */
static Status price_memory(Planner *p, const PlanLayout *l, const PriceEntry *e,
                           const PriceRanks *n, const EstimateInput *in, PlanPrice *out)
{
    EstimateRank *slots = NULL;
    AlikeBytes alike = { .comm = price_comm_bytes(l, e) };
    double memory[PLAN_KINDS] = { 0 };
    TRY(estimate_memory(&p->estimator, in, &slots));
    TRY(price_step_bytes(p, l, e, &alike.step));
    for (int r = 0; r < l->pp; r++) {
        double sum = 0;
        if (is_alike(n, r) && slots[r].entries == slots[r - 1].entries)
            memory[PLAN_ACTIVATIONS] = activations_of(&n->rank[r], &slots[r]);
        else
            price_rank_memory(p, l, e, &n->rank[r], &slots[r], &alike, memory);
        for (int i = 0; i < PLAN_KINDS; i++) sum += memory[i];
        ParamShards shards = price_shards(p, l, e);
        double host = e->offload ? price_host_bytes(e, &shards, &n->rank[r]) : 0;
        out->host_bytes = fmax(out->host_bytes, host);
        if (sum <= out->peak_bytes) continue;
        out->peak_bytes = sum, out->worst_rank = r;
        out->pool_bytes = slots[r].pool_bytes;
        memcpy(out->memory, memory, sizeof memory);
    }
    out->fits = out->peak_bytes <= plan_room_bytes(&p->q);
    out->tight = !out->fits && out->peak_bytes <= p->q.hardware->memory_gib * PLAN_GIB &&
                 out->peak_bytes <= TIGHT * plan_room_bytes(&p->q);
    return OK;
}

/* In two passes: times first, because the schedule's passes (whole, split, phased) decide how much
 * memory a chunk takes. */
Status price_input(Planner *p, const PlanLayout *l, const PriceEntry *e, PriceRanks *n,
                   EstimateInput *out)
{
    unsigned *passes = NULL;
    TRY(price_ranks(p, l, e, n));
    const double waits = e->stack.at[STACK_waiting];
    *out = (EstimateInput){ .schedule = l->schedule,
                            .stages = l->pp,
                            .chunks = l->vpp,
                            .micros = (int)price_micros(p, l),
                            .blocks = n->blocks,
                            .time = n->time,
                            .slot = n->slot,
                            .send_s = l->pp > 1 ? transfer_s(p, l, e) : 0,
                            .frees = waits >= 0 };
    TRY(ARENA_NEW(&p->scratch, l->pp * l->vpp, &passes));
    TRY(estimate_passes(&p->estimator, out, passes));
    for (int i = 0; i < l->pp * l->vpp; i++) {
        ChunkBytes b = price_add_bytes(&n->rank[i / l->vpp], l, e, &n->chunk[i], passes[i]);
        double keep = (double)b.slot[SLOT_KEEP], split = (double)b.split_keep;
        if ((passes[i] & CHUNK_SPLIT) == 0) split = keep;
        n->slot[i] = (SlotBytes){ .weight = split,
                                  .gradients = (double)b.slot[SLOT_GRADS],
                                  .pool = (double)b.pool,
                                  .whole = keep - split };
        if (out->frees) n->slot[i] = (SlotBytes){ .input = keep, .gradients = waits * keep };
    }
    return OK;
}

/* The kind of exchange of the price; -1: none, or another stack's own. */
static int exchange_of(const PriceEntry *e, const PlanLayout *l)
{
    return plan_expert_ranks(l) > 1 && e->stack.at[STACK_dispatch] < 0 ? (int)e->spec.ranks.exchange
                                                                       : -1;
}

/* A step with this schedule and these parts after it. */
static double step_of(const PriceEntry *e, const PlanPrice *ends, double schedule_s)
{
    const double *part_s = ends->part_s;
    return schedule_s + part_s[PLAN_SLOWEST] + part_s[PLAN_GRADIENTS] + part_s[PLAN_UPDATE] +
           part_s[PLAN_CHECKPOINT] + e->stack.at[STACK_wait_step];
}

/* The price with the layout's capacity for rows. The schedule is walked last, unless the limit shows before it that
 * the time is of no use. */
static Status price_with(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out)
{
    const PriceEntry *e = NULL;
    PriceRanks n;
    Estimate t;
    EstimateInput in;
    PlanPrice ends = { 0 };
    TRY(price_entry(p, l, &e));
    TRY(price_input(p, l, e, &n, &in));
    *out = (PlanPrice){ .compute = p->config.run_compute,
                        .buffers = plan_counts_rows(&p->config) ? PLAN_COUNTED_ROWS
                                                                : p->config.moe_buffers,
                        .offload = e->offload,
                        .exchange = exchange_of(e, l),
                        .recipe = p->config.fp8_recipe,
                        .format = p->config.fp8_format,
                        .attention_e4m3 = p->config.fp8_attention,
                        .in_series = price_in_series(e, l),
                        .bounded = e->stack.at[STACK_bound] != 0,
                        .room = l->room };
    double shared_s;
    TRY(price_ends(p, l, e, &n, &ends));
    TRY(price_shared_s(p, l, e, &shared_s));
    ends.part_s[PLAN_SLOWEST] = price_slowest_s(p, l, n.compute_s);
    TRY(price_memory(p, l, e, &n, &in, out));
    if (limit != NULL) {
        double least_s;
        TRY(price_least_s(p, l, e, &n, &least_s));
        least_s = fmax(least_s, shared_s - ends.part_s[PLAN_GRADIENTS]);
        out->step_s = step_of(e, &ends, least_s);
        if (!out->fits || out->step_s > limit->step_s(limit->self, out->peak_bytes)) return OK;
    }
    TRY(estimate(&p->estimator, &in, &t));
    ends.part_s[PLAN_GRADIENTS] = fmax(ends.part_s[PLAN_GRADIENTS], shared_s - t.step_s);
    out->bubble = fmax(0, t.bubble);
    price_parts(l, e, &n, in.micros, t.step_s, out);
    for (int i = 0; i < PLAN_PARTS; i++) out->part_s[i] += ends.part_s[i];
    out->schedule_s = t.step_s;
    out->step_s = step_of(e, &ends, t.step_s);
    planner_take_schedule(p, out, t.step_s);
    return OK;
}

typedef struct Priced {
    Planner *p;
    PlanLayout l;
} Priced;

/* Asked by capacity_choose for one capacity after the other. Memory needs no times of passes. */
static Status room_fits(void *self, const RowCapacity *room, bool *fits)
{
    Priced *x = self;
    Planner *p = x->p;
    const PriceEntry *e = NULL;
    PriceRanks n;
    EstimateInput in;
    PlanPrice price = { 0 };
    x->l.room = *room;
    ArenaMark mark = arena_mark(&p->scratch);
    TRY(price_entry(p, &x->l, &e));
    TRY(price_input(p, &x->l, e, &n, &in));
    TRY(price_memory(p, &x->l, e, &n, &in, &price));
    arena_release(&p->scratch, mark);
    *fits = price.fits;
    return OK;
}

/* Adds the expected rows, and the chance that a step runs a second time. */
static void price_outlook(const Planner *p, const PlanLayout *l, PlanPrice *out)
{
    double stages = price_stage_count(l), ranks = (double)plan_stage_gpus(l);
    const CapacityUse use = { .exchange = (ExchangeKind)out->exchange,
                              .ep = l->ep,
                              .etp = plan_etp(l),
                              .tokens = l->micro_batch * p->config.data_sequence / l->cp / l->tp,
                              .layers = fmax(1, floor(p->spec.n_moe / stages)),
                              .pools = (double)price_micros(p, l) * ranks * stages };
    if (out->room.pool == 0 || out->exchange < 0) return;
    out->outlook = capacity_outlook(&p->config, &out->room, &use);
}

/* Chooses the largest capacity with which the layout fits, and prices it. */
static Status price_layout(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out)
{
    Priced x = { p, *l };
    RowCapacity room;
    TRY(capacity_choose(&p->config, plan_expert_ranks(l), room_fits, &x, &room));
    x.l.room = room;
    TRY(price_with(p, &x.l, limit, out));
    price_outlook(p, l, out);
    return OK;
}

/* Only the price outlives the call: scratch is released. */
Status planner_price_within(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out)
{
    TRY(planner_legal(p, l));
    price_trim(p);
    ArenaMark mark = arena_mark(&p->scratch);
    Status s = price_layout(p, l, limit, out);
    arena_release(&p->scratch, mark);
    return s;
}

Status planner_price(Planner *p, const PlanLayout *l, PlanPrice *out)
{
    return planner_price_within(p, l, NULL, out);
}
