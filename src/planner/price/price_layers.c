/* price_layers: memory and time of a layer of each class for one micro-batch, counted once by the engine's own code
 * and kept in a hash table.
 *
 * Not here: sums over stages and ranks (price.c). */
#include "kernels/exchange/exchange.h"
#include "kernels/head/head.h"
#include "planner/price/price_private.h"

#include <math.h>
#include <string.h>

/* ---- classes ---- */

/* Do two layers take the same memory and time? */
static bool layers_alike(const ModelSpec *s, int i, int j)
{
    const LayerSpec *a = &s->layers[i], *b = &s->layers[j];
    const LayerDesc *desc = layer_desc(a->kind);
    if (a->kind != b->kind || spec_opens(s, i) != spec_opens(s, j)) return false;
    if (a->eight_bit != b->eight_bit) return false;
    if (a->frozen != b->frozen || a->no_backward != b->no_backward) return false;
    return desc->alike == NULL || desc->alike(a, b);
}

/* Sorts layers into classes: layers of one class are counted once. */
Status price_classes(Planner *p)
{
    TRY(spec_build(&p->config, &p->kept, &p->spec));
    TRY(ARENA_NEW(&p->kept, p->spec.n_layers, &p->class_of));
    TRY(ARENA_NEW(&p->kept, 2 * p->spec.n_layers, &p->layers));
    for (int i = 0; i < p->spec.n_layers; i++) {
        int c = 0;
        while (c < p->classes && !layers_alike(&p->spec, p->first_of[c], i)) c++;
        if (c == LAYER_CLASSES_MAX)
            return FAIL(ERR_UNSUPPORTED, "plan: more than %d kinds of layers", LAYER_CLASSES_MAX);
        if (c == p->classes) p->first_of[p->classes++] = i;
        p->class_of[i] = c;
    }
    return OK;
}

/* ---- one layer ---- */

typedef struct Counting {
    const Roofline *roofline;
    const LayerSpec *layer;
    LayerPrice *out;
    const Config *config;
} Counting;

/* Calls of one op in one pass with one size share a line of the list. */
static Status list_op(LayerPrice *l, LayerPass pass, const OpDesc *op, const OpCost *c,
                      const RooflineTime *t)
{
    int i = 0;
    if (l->op == NULL) return OK;
    while (i < l->n_ops && !(l->op[i].name == op->name && l->op[i].pass == pass &&
                             l->op[i].size == c->size && l->op[i].lane == t->lane)) {
        i++;
    }
    if (i == LAYER_OPS_MAX) return OK; /* the list is only for people: sums do not need it */
    OpPrice *o = &l->op[i];
    if (i == l->n_ops) {
        *o = (OpPrice){ op->name, pass, c->work, t->lane, .size = c->size, .rate = t->rate };
        l->n_ops++;
    }
    o->calls++;
    o->flops += c->flops, o->bytes += c->bytes, o->comm_bytes += c->comm_bytes, o->s += t->s;
    return OK;
}

static bool attends(OpWork work) { return work == WORK_ATTENTION || work == WORK_ATTENTION_PLAIN; }

/* The share of an op of a second forward that runs: of the other ops of its kind the outputs are kept. */
static double runs_again(const StackValues *v, RooflineLane lane, OpWork work)
{
    if (lane == ROOFLINE_EXCHANGE) return v->at[STACK_again_exchange];
    if (work == WORK_GEMM) return v->at[STACK_again_products];
    return attends(work) ? v->at[STACK_again_attention] : 1;
}

/* Adds the time of an op to the phase, the pass and the lane. */
static Status add_time(Counting *c, LayerPass pass, int phase, const OpDesc *op, const OpCost *cost,
                       RooflineTime t)
{
    if (t.lane == ROOFLINE_TENSOR) t.s *= 1 - c->roofline->stack->at[STACK_hide_tensor];
    double runs = pass == PASS_RECOMPUTE ? runs_again(c->roofline->stack, t.lane, cost->work) : 1;
    t.s *= runs, t.nic.nic_s *= runs;
    int part = (int)layer_desc(c->layer->kind)->phases[phase].part;
    c->out->phase_s[pass][phase] += t.s;
    if (t.lane == ROOFLINE_COMPUTE)
        c->out->bound_s[pass][phase] +=
            t.s * hardware_contention(c->roofline->hardware, t.rate > 0 ? cost->work : WORK_MEMORY);
    else
        c->out->moved_s[pass][phase] += t.s;
    /* Ops of the exchange that compute, such as sorting and sums, count as the experts' part. */
    if (t.lane == ROOFLINE_COMPUTE && part % 2 == 1) part = PHASE_EXPERTS;
    /* A second forward belongs to the input gradients, which wait for it. */
    c->out->time.of[pass == PASS_RECOMPUTE ? PASS_INPUT : pass][part] += t.s;
    c->out->lane_s[t.lane] += t.s;
    c->out->nic_s[pass == PASS_RECOMPUTE ? PASS_INPUT : pass] += t.nic.nic_s;
    if (t.nic.nic_s > c->out->exchange.nic_s) c->out->exchange = t.nic;
    return list_op(c->out, pass, op, cost, &t);
}

/* Tiles are computed whole, so a query costs as many keys more as two of them have. Measured on an H200: documents of 512
 * and 1,000 tokens in sequences of 4,096 (docs/performance.md). */
enum { SKIPPED_TILES = 256 };

/* Documents hide pairs of query and key (plan.mean_context). Without them a query sees w - w (w - 1) / 2 T keys on average,
 * with a window of w keys in a chunk of T tokens, or of all. Attention computes hidden pairs, too, unless its kernel, or
 * that of another stack, skips them: then it works on sequences as short as those that have so many pairs. */
static void hide_documents(const Counting *c, LayerPass pass, OpCost *cost)
{
    const StackValues *v = c->roofline->stack;
    const double context = c->config->plan_mean_context, all = (double)c->config->data_sequence;
    if (context == 0 || cost->kernel == NULL) return;
    const AttentionSpec *a = &c->layer->as.attention;
    const double tokens = a->chunk > 0 ? fmin((double)a->chunk, all) : all;
    const double keys = a->window > 0 ? fmin((double)a->window, tokens) : tokens;
    const double seen = keys - keys * (keys - 1) / (2 * tokens), share = fmin(1, context / seen);
    if (pass != PASS_RECOMPUTE) c->out->hidden_flops += (1 - share) * cost->flops;
    c->out->skips =
        (cost->kernel->skips && v->at[STACK_list] != 0) || v->at[STACK_skips_documents] != 0;
    if (!c->out->skips) return;
    cost->flops *= fmin(1, (context + SKIPPED_TILES) / (seen + SKIPPED_TILES));
    cost->size = fmin(cost->size, 2 * (context + SKIPPED_TILES) - 1);
}

/* Called for each op of a counted layer. What an op that computes sends counts apart. Some stacks run the core of attention
 * a second time before backward. */
static Status count_op(void *self, LayerPass pass, int phase, const OpDesc *op, const void *args,
                       const OpCost *cost)
{
    (void)args;
    Counting *c = self;
    RooflineTime t;
    OpCost own = *cost;
    const unsigned again = c->layer->recompute & (RECOMPUTE_CORE_ATTN | RECOMPUTE_LAYER);
    if (again == RECOMPUTE_CORE_ATTN && pass == PASS_FORWARD && attends(cost->work))
        TRY(count_op(self, PASS_RECOMPUTE, phase, op, args, cost));
    hide_documents(c, pass, &own);
    TRY(roofline_op(c->roofline, c->layer, &own, &t));
    if (cost->work == WORK_COMM || cost->comm_bytes == 0)
        return add_time(c, pass, phase, op, &own, t);
    own.comm_bytes = 0;
    TRY(add_time(c, pass, phase, op, &own, t));
    own = (OpCost){ .comm_bytes = cost->comm_bytes, .work = WORK_COMM, .axis = cost->axis };
    TRY(roofline_loss_sums(c->roofline, cost, &t));
    return add_time(c, pass, phase, op, &own, t);
}

/* ---- what a stack says of a layer ---- */

/* The part of a block of the layer's last compute phase. In the part of an exchange it counts as the experts'. */
static int computing_part(const LayerDesc *desc)
{
    int part = PHASE_ATTENTION;
    for (int i = 0; i < desc->n_phases; i++) {
        if (desc->phases[i].lane == LANE_COMPUTE) part = (int)desc->phases[i].part;
    }
    return part % 2 == 1 ? PHASE_EXPERTS : part;
}

/* A part of each exchange runs beside the layer's shared experts, for no longer than these compute: nothing else of a
 * layer can be computed while its tokens travel. Of a stack with hide_longer measured runs say more. */
static void hide_exchange(const StackValues *v, const LayerDesc *desc, LayerPrice *l)
{
    for (int k = 0; k < CHUNK_PASSES; k++) {
        double *of = l->time.of[k], moved = of[PHASE_DISPATCH] + of[PHASE_COMBINE], beside = 0;
        for (int i = 0; i < desc->n_phases; i++) {
            if (desc->phases[i].overlap_ok && desc->phases[i].part == PHASE_EXPERTS)
                beside += l->phase_s[k][i] + (k == PASS_INPUT ? l->phase_s[PASS_RECOMPUTE][i] : 0);
        }
        const double most = v->at[STACK_hide_longer] != 0 && beside > 0 ? (double)INFINITY : beside;
        const double hidden = fmin(v->at[STACK_hide_exchange] * moved, most);
        const double shown = hidden > 0 ? 1 - hidden / moved : 1;
        of[PHASE_DISPATCH] *= shown, of[PHASE_COMBINE] *= shown;
        l->lane_s[ROOFLINE_EXCHANGE] -= hidden;
        for (OpPrice *o = l->op; o < l->op + l->n_ops; o++) {
            int pass = o->pass == PASS_RECOMPUTE ? PASS_INPUT : (int)o->pass;
            if (o->lane == ROOFLINE_EXCHANGE && pass == k) o->s *= shown;
        }
    }
}

/* Bytes of another stack's layer. What lives only while one micro-batch is in it is in working, and logits are scratch.
 * The chunk adds each layer's input. Of a block that is recomputed whole only the first's is kept: the second keeps so
 * much less than nothing, which wraps. An MLP that is recomputed alone also keeps its norm's output. */
static void take_bytes(const LayerSpec *layer, const LayerDesc *desc, double keep,
                       const StackValues *v, LayerCount *n)
{
    const bool whole = (layer->recompute & RECOMPUTE_LAYER) != 0 && layer->block >= 0;
    const bool alone = (layer->recompute & (RECOMPUTE_MLP | RECOMPUTE_MOE)) != 0;
    n->keep = arena_rounded((size_t)keep);
    if (whole && alone) n->keep += n->stream;
    if (whole && !alone && !n->opens) n->keep += (size_t)v->at[STACK_block_inputs] * n->stream;
    if (whole && !alone && !n->opens) n->keep -= 2 * n->stream;
    n->keep_peak = n->recompute_peak = n->keep;
    n->keep_eval = n->recompute_bytes = 0, n->pool = (PoolNeed){ 0 };
    if (desc->ends) n->scratch = (size_t)v->at[STACK_working_head];
}

/* Bytes of an element of experts' outputs that other trainers move to add the trained bias of the second product.
 * Megatron-Core does so expert by expert, in plain ops and in f32, the type of routing weights (experts.py,
 * TEGroupedMLP): a product, a sum, a join and a cast forward; two casts, two products, two sums and a join backward. */
static const double BIAS_BYTES = (4 + 10 + 8 + 6) + (6 + 6 + 12 + 12 + 4);
static double expert_bias_bytes(const Roofline *r, const LayerSpec *layer)
{
    const MoeSpec *m = &layer->as.moe;
    if (layer->kind != LAYER_MOE || !m->expert_bias || r->stack->at[STACK_list] != 0) return 0;
    return BIAS_BYTES * r->tokens * r->spec->ranks.imbalance *
           (double)(m->rule.top_k * r->spec->hidden);
}

/* Applies what a stack says of a layer. Extra traffic is divided evenly over the three passes; a second forward adds
 * another third. */
static void apply_stack(const Roofline *r, const LayerSpec *layer, LayerPrice *l)
{
    const StackValues *v = r->stack;
    const LayerDesc *desc = layer_desc(layer->kind);
    bool whole = (layer->recompute & RECOMPUTE_LAYER) != 0;
    double keep = stack_of_layer(v, whole ? "saves" : "keep", desc->name, -1);
    if (whole && keep < 0) keep = v->at[STACK_keep_input];
    if (keep >= 0) take_bytes(layer, desc, keep, v, &l->count);
    hide_exchange(v, desc, l);
    double s = roofline_memory_s(r, stack_of_layer(v, "traffic", desc->name, 0) +
                                        expert_bias_bytes(r, layer));
    double host = desc->begins ? 0 : stack_of_layer(v, "host", desc->name, v->at[STACK_host_layer]);
    int passes = layer->no_backward ? 1 : whole ? 4 : 3;
    l->part = computing_part(desc);
    for (int k = 0; k < CHUNK_PASSES && k < passes; k++)
        l->time.of[k][l->part] += s * (passes == 4 && k == PASS_INPUT ? 2 : 1) / 3;
    l->lane_s[ROOFLINE_COMPUTE] += s * passes / 3;
    l->host_s = host * (passes / 3.0);
    l->wait_s = stack_of_layer(v, "wait", desc->name, 0) *
                (whole ? 1 + 0.5 * v->at[STACK_again_exchange] : 1);
}

double price_layer_s(const LayerPrice *l)
{
    const ChunkTimes *t = &l->time;
    return price_phases_s(t->forward) + price_phases_s(t->input) + price_phases_s(t->weight);
}

/* What the host takes longer than the device, and what the device waits for it in any case. */
double price_lost_s(const LayerPrice *l)
{
    return fmax(0, l->host_s - price_layer_s(l)) + l->wait_s;
}

/* What ranks of tp send beside a layer's own ops, at `cols` columns a token: gathered forward, and their gradients
 * summed and scattered backward; or the reverse. */
static Status add_tensor_call(const Roofline *r, OpComm kind, LayerPass pass, double cols, int tp,
                              LayerPrice *l)
{
    const OpDesc *op = op_desc(OP_COLLECTIVE);
    double size = cols * r->tokens * tp * (double)dtype_bytes(r->spec->act);
    const OpCost cost = {
        .comm_bytes = size * (tp - 1) / tp, .work = WORK_COMM, .size = size, .comm = kind
    };
    CollectiveGroup g = roofline_group(r->hardware, tp, 1);
    CollectiveCost c;
    RooflineTime t = { .lane = ROOFLINE_TENSOR };
    if (size == 0) return OK;
    TRY(roofline_collective(r->hardware, &cost, &g, &c));
    t.s = c.s / r->stack->at[STACK_share_links] * (1 - r->stack->at[STACK_hide_tensor]);
    l->time.of[pass == PASS_RECOMPUTE ? PASS_INPUT : pass][l->part] += t.s;
    l->lane_s[t.lane] += t.s;
    return list_op(l, pass, op, &cost, &t);
}

/* Tokens are gathered before the layer's products and summed behind them; backward does the reverse
 * (arXiv:2205.05198, figure 5). A recomputed layer gathers and sums once more. */
static Status add_tensor_calls(const Roofline *r, const LayerSpec *layer, int tp, LayerPrice *l)
{
    const char *name = layer_desc(layer->kind)->name;
    const double gather = stack_of_layer(r->stack, "gather", name, 0);
    const double sum = stack_of_layer(r->stack, "sum", name, 0);
    const bool back = !layer->no_backward, again = (layer->recompute & RECOMPUTE_LAYER) != 0;
    for (int i = 0; i < (back && again ? 2 : 1); i++) {
        LayerPass pass = i == 0 ? PASS_FORWARD : PASS_RECOMPUTE;
        TRY(add_tensor_call(r, COMM_ALL_GATHER, pass, gather, tp, l));
        TRY(add_tensor_call(r, COMM_REDUCE_SCATTER, pass, sum, tp, l));
    }
    if (!back) return OK;
    TRY(add_tensor_call(r, COMM_ALL_GATHER, PASS_INPUT, sum, tp, l));
    return add_tensor_call(r, COMM_REDUCE_SCATTER, PASS_INPUT, gather, tp, l);
}

/* The parameters of one layer. */
static Status layer_params(const ModelSpec *s, const LayerSpec *layer, Arena *scratch,
                           ParamTable *out)
{
    ModelSpec one = *s;
    LayerSpec alone = *layer;
    one.layers = &alone, one.n_layers = 1;
    return params_build(&one, alone.rank, NULL, scratch, out);
}

/* Of our own engine: trained parameters of heads of keys that several ranks of tp hold. */
static Status count_copies(const ModelSpec *s, const LayerSpec *layer, Arena *scratch,
                           LayerPrice *out)
{
    ParamTable table;
    if (price_keys(s) == 1) return OK;
    TRY(layer_params(s, layer, scratch, &table));
    for (int i = 0; i < table.n; i++) {
        const Param *p = &table.at[i];
        if (p->copies > 1 && param_bucket_rule(&table, p) != NULL)
            out->copies += (double)param_elems(p);
    }
    return OK;
}

/* What updating matrices as wholes takes beside memory (OptimizerDesc.cost): by matrix, because small ones run at
 * lower rates. Equal ones that follow one another share scratch. Of those that ranks of tp split, each rank owns one in
 * a round, which takes as long with one owner as with all. */
static Status add_whole_updates(const Roofline *r, const ModelSpec *s, const LayerSpec *layer,
                                Arena *scratch, LayerPrice *out)
{
    ParamTable table;
    if (!s->optimizer.rule[0]->whole_matrices) return OK;
    TRY(layer_params(s, layer, scratch, &table));
    for (int i = 0, equal = 0; i < table.n; i++) {
        const Param *p = &table.at[i];
        UpdateRange range = { p->rule, .w = { .rank = 3, .dim = { 1, p->dim[0], p->dim[1] } } };
        if (p->rule == NULL || !p->rule->whole_matrices || p->bucket < 0) continue;
        param_split_range(p, &range);
        OpCost cost = p->rule->cost(&s->optimizer, &range);
        equal =
            i > 0 && p->role == p[-1].role && p->copies == p[-1].copies && p->dim[0] == p[-1].dim[0]
                ? equal + 1
                : 1;
        range.w.dim[0] = equal;
        size_t room = p->rule->scratch(NULL, &s->optimizer, &range);
        if (room > out->count.scratch) out->count.scratch = room;
        RooflineTime t;
        cost.bytes = 0; /* rank_update_s has the bytes of all parameters */
        TRY(roofline_op(r, layer, &cost, &t));
        t.s *= (double)range.ranks;
        if ((equal - 1) % range.ranks == 0) out->whole_s[p->expert >= 0] += t.s;
        out->longest_s = fmax(out->longest_s, t.s);
        out->largest = fmax(out->largest, (double)(range.ranks * param_elems(p)));
    }
    return OK;
}

/* Counts the layer as the engine would run it, prices its ops on the way, then applies the stack's differences. */
static Status price_layer(Planner *p, const Roofline *r, PriceEntry *e, int layer,
                          unsigned recompute, LayerPrice *out)
{
    LayerSpec *l = &e->spec.layers[layer];
    const unsigned named = l->kind == LAYER_MOE ? RECOMPUTE_MOE : RECOMPUTE_MLP;
    if (l->kind != LAYER_ATTENTION && (recompute & named) != 0) recompute |= RECOMPUTE_LAYER;
    l->recompute = layer_recompute(l, recompute);
    *out = (LayerPrice){ 0 };
    if (e->key.listed) TRY(ARENA_NEW(&p->kept, LAYER_OPS_MAX, &out->op));
    Counting c = { r, l, out, &p->config };
    LayerCountObserver observer = { count_op, &c, &p->exec };
    int64_t sequence = p->config.data_sequence / e->key.cp;
    const bool apart = e->key.tp > e->spec.ranks.tp; /* the layers are another stack's */
    TRY(apart ? price_tensor_count(&e->spec, layer, &e->key, sequence, &observer, &p->scratch, out)
              : layer_count(&e->spec, layer, e->key.micro_batch, sequence, &observer, &p->scratch,
                            &out->count));
    apply_stack(r, l, out);
    TRY(add_whole_updates(r, &e->spec, l, &p->scratch, out));
    return apart ? add_tensor_calls(r, l, e->key.tp, out)
                 : count_copies(&e->spec, l, &p->scratch, out);
}

/* ---- entries ---- */

Status price_inputs(Planner *p, const PriceEntry *e, PlanInputs *out)
{
    const Config *c = &p->config;
    double tokens = (double)(e->key.micro_batch * c->data_sequence) / (e->key.cp * e->key.tp);
    double k = e->spec.experts == 0 ? 0 : (double)c->moe_top_k * c->plan_imbalance;
    double seen = e->spec.experts == 0
                      ? 0
                      : e->key.etp * exchange_distinct(c->moe_experts, c->moe_top_k, e->key.ep);
    const InputTokens micro = { tokens, tokens * k, tokens * seen * c->plan_imbalance,
                                e->key.recompute, p->q.hardware };
    return plan_inputs(c, p->q.gpus, micro, &p->scratch, out);
}

/* A price for each class of layers. */
static Status price_classes_of(Planner *p, const Roofline *r, PriceEntry *e, unsigned recompute,
                               const LayerPrice **out)
{
    LayerPrice *l = NULL;
    TRY(ARENA_NEW(&p->kept, p->classes, &l));
    for (int i = 0; i < p->classes; i++)
        TRY(price_layer(p, r, e, p->first_of[i], recompute, &l[i]));
    *out = l;
    return OK;
}

/* What a run of ours does with moe.exchange=auto (train_find_hosts), on NVIDIA's GPUs behind one switch. */
static bool takes_direct(const Planner *p, const Config *c)
{
    const Hardware *h = p->q.hardware;
    const int64_t ranks = config_expert_ranks(c);
    bool gpus = h->gpu_capability > 0 && h->scale_up_fabric == FABRIC_SWITCH;
    return p->q.config->moe_exchange == EXCHANGE_AUTO && stack_is_ours(p->q.stack) && gpus &&
           ranks > 1 && ranks == c->mesh_ranks_per_host &&
           ranks <= exchange_kinds[EXCHANGE_DIRECT]->ranks_most;
}

/* `like`: an entry whose layers differ in recompute alone (`plain` then), or in their room alone; or NULL. */
static Status fill_entry(Planner *p, PriceEntry *e, const PriceEntry *like, const PriceEntry *plain)
{
    Config *c = &p->config;
    c->mesh_ep = e->key.ep, c->mesh_etp = e->key.etp, c->mesh_cp = e->key.cp;
    c->train_micro_batch = e->key.micro_batch;
    /* A hierarchical exchange reads this. In a plan a host is a scale-up domain. */
    c->mesh_ranks_per_host = roofline_group(p->q.hardware, config_expert_ranks(c), 1).local;
    c->moe_exchange = takes_direct(p, c) ? EXCHANGE_DIRECT : p->q.config->moe_exchange;
    /* price_tensor.c narrows the whole layers of other stacks. Their sheets ask for mesh.tp, too. */
    e->own = stack_is_ours(p->q.stack);
    c->mesh_tp = e->own ? e->key.tp : 1;
    if (like !=
        NULL) /* the layers take most of an entry's memory; price_layer sets what they recompute */
        e->spec = like->spec;
    else
        TRY(spec_like(c, &p->spec, &p->kept, &e->spec));
    c->mesh_tp = e->key.tp;
    spec_set_capacity(&e->spec,
                      &(RowCapacity){ .rows = e->key.rows_room, .blocks = e->key.block_room });
    if (plan_counts_rows(c)) e->spec.capacity.blocks = e->spec.capacity.rows = c->plan_imbalance;
    /* The heads of other stacks process all tokens at once. */
    e->spec.loss.chunk =
        p->q.stack->has[STACK_keep_head]
            ? e->key.micro_batch * c->data_sequence
            : head_chunk(e->spec.loss.chunk, true, spec_vocab_rows(&e->spec), e->spec.act);
    e->offload = c->optimizer_offload;
    e->spec.ranks.stage = e->key.group_ranks;
    e->spec.recipe.per_use = e->key.per_use != 0;
    e->spec.recipe.packed = e->spec.recipe.kind == RECIPE_MX;
    ArenaMark mark = arena_mark(&p->scratch);
    PlanInputs in;
    Status s = price_inputs(p, e, &in);
    if (s == OK) s = stack_values(p->q.stack, &in, &e->stack);
    Roofline r = { p->q.hardware, &e->stack, &e->spec,
                   (double)(e->key.micro_batch * c->data_sequence) / (e->key.cp * e->key.tp), 1 };
    if (s == OK) s = plain != NULL ? OK : price_classes_of(p, &r, e, 0, &e->plain);
    if (plain != NULL) e->plain = plain->plain;
    e->recomputed = e->plain;
    if (s == OK && e->key.recompute != 0)
        s = price_classes_of(p, &r, e, e->key.recompute, &e->recomputed);
    arena_release(&p->scratch, mark);
    return s == OK ? price_sums(p, e) : s;
}

static uint64_t hash_key(const void *key, size_t bytes)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < bytes / sizeof(uint32_t); i++) {
        h = (h ^ ((const uint32_t *)key)[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 32;
    }
    return h;
}

void **price_place(void **table, size_t places, const void *key, size_t bytes)
{
    size_t at = hash_key(key, bytes) % places;
    while (table[at] != NULL && memcmp(table[at], key, bytes) != 0) at = (at + 1) % places;
    return &table[at];
}

static Status make_entry(Planner *p, const PlanLayout *l, const PriceKey *key)
{
    PriceEntry *e = NULL;
    const PriceEntry *like = NULL;
    PlanLayout whole = *l;
    const bool again = key->recompute != 0;
    whole.recompute = 0;
    if (!again) whole.room = (RowCapacity){ 0 };
    if (again || key->rows_room > 0 || key->block_room > 0) TRY(price_entry(p, &whole, &like));
    if (p->entries == PRICE_ENTRIES / 2)
        return FAIL(ERR_MEMORY, "plan: more than %d kinds of micro-batches", PRICE_ENTRIES / 2);
    TRY(ARENA_ZEROED(&p->kept, 1, &e));
    memcpy(&e->key, key, sizeof *key); /* with its padding */
    TRY(fill_entry(p, e, like, again ? like : NULL));
    *price_place(p->entry, PRICE_ENTRIES, key, sizeof *key) = e;
    p->entries++;
    return OK;
}

/* Ranks of tp that hold the same parameters as one does in our own engine, and different rows of the stream. */
static int row_ranks(const Planner *p, const PlanLayout *l)
{
    return stack_is_ours(p->q.stack) ? l->tp : 1;
}

/* The number of ranks over which the auxiliary loss is summed, as a part of the key. With moe.aux_scope=global these
 * are dp x cp x tp. The sum is a few hundred bytes, so its time hardly depends on how many ranks of other hosts
 * take part. One entry therefore stands for all dp that leave a domain: a search need not count each layer
 * again for each dp. */
static int64_t aux_group_ranks(const Planner *p, const PlanLayout *l)
{
    const int64_t own = (int64_t)l->cp * row_ranks(p, l), ranks = l->dp * own, all = ranks * l->pp;
    if (p->config.moe_aux_scope != AUX_GLOBAL || l->dp < 2) return own;
    return ranks <= (int64_t)p->q.hardware->scale_up_gpus ? ranks : all;
}

/* Weights that are gathered for each use have no lasting 8-bit copies (copies_alloc). */
static bool quantises_per_use(const Planner *p, const PlanLayout *l)
{
    int64_t shards = l->shard > 0 ? l->shard * l->cp : l->dp * l->cp;
    return p->spec.recipe.kind != RECIPE_NONE && l->zero == 3 && shards * row_ranks(p, l) > 1;
}

Status price_entry(Planner *p, const PlanLayout *l, const PriceEntry **out)
{
    PriceKey key;
    memset(&key, 0, sizeof key);
    key.micro_batch = l->micro_batch, key.ep = l->ep, key.cp = l->cp, key.tp = l->tp;
    key.etp = plan_etp(l);
    key.group_ranks = aux_group_ranks(p, l);
    key.rows_room = l->room.rows, key.block_room = l->room.blocks;
    key.recompute = l->recompute_blocks != 0 ? l->recompute : 0;
    key.per_use = quantises_per_use(p, l);
    key.listed = p->listing;
    void **at = price_place(p->entry, PRICE_ENTRIES, &key, sizeof key);
    if (*at == NULL) TRY(make_entry(p, l, &key)); /* may put its plain entry here: look up again */
    *out = *price_place(p->entry, PRICE_ENTRIES, &key, sizeof key);
    return OK;
}
