/* price_program: runs the simulator over the Programs of all ranks, in two forms: the passes alone, with the times
 * and slots of price.c; and the whole step as `train` runs it, where each phase takes the time of its ops and
 * each collective that of its bytes. It also makes prices with these times, and is the pricer of a search. */
#include "planner/price/price_private.h"
#include "planner/search/search.h"

#include <math.h>

/* Periods of a simulation that differ by less than STEADY are the same. */
static const double STEADY = 1e-9, NEARLY = 1e-3;
enum { MANY = 48 };

/* What an action of a pass takes and uses. end: of its phases; 0: not known yet. */
enum { PASS_KINDS = 4 };
typedef struct PassCost {
    short end;
    double s;
    SimUse use;
} PassCost;

/* memo: by rank, chunk, kind and first phase, because micro-batches repeat them; rows: phases of the longest row. */
typedef struct ProgramCost {
    const EstimateInput *in;
    PassCost *memo;
    int rows;
    ModelSpec spec;           /* with what the layout recomputes */
    const LayerPrice **layer; /* by layer of the model */
    GradientTimes *shared;    /* by layer of the model */
    bool whole;               /* replicated gradients: one all-reduce over all ranks */
    const double *update;     /* by pipeline rank */
    const Program *program;   /* by pipeline rank */
    double multiprocessors;   /* of a GPU; 0: not known */
    bool sends_out,
        tokens_out; /* transfers, and collectives of layers, leave the scale-up domain */
} ProgramCost;

/* The simulator asks by rank and chunk; the estimate's input has the answer. */
static SlotBytes slot_of(void *ctx, int rank, int chunk)
{
    const EstimateInput *in = ((const ProgramCost *)ctx)->in;
    return in->slot[rank * in->chunks + chunk];
}

/* In a phased schedule an action takes the time of its last phase in one block. Backward meets phases in reverse. */
static double pass_duration(void *ctx, int rank, const Action *a)
{
    const EstimateInput *in = ((const ProgramCost *)ctx)->in;
    if (action_is_transfer(a->kind)) return in->send_s;
    if (!action_is_pass(a->kind)) return 0;
    const ChunkTimes *t = &in->time[rank * in->chunks + a->chunk];
    const double *part = a->kind == ACTION_FORWARD           ? t->forward
                         : a->kind == ACTION_BACKWARD_WEIGHT ? t->weight
                                                             : t->input;
    if (in->schedule->phases) {
        int last = (a->end - 1) % PHASES;
        return part[a->kind == ACTION_FORWARD ? last : PHASES - 1 - last] / in->blocks;
    }
    return price_phases_s(part) + (a->kind == ACTION_BACKWARD ? price_phases_s(t->weight) : 0);
}

/* Seconds of phases of one pass, the part that multiprocessors bound, and that of links (LayerPrice). */
typedef struct RowTime {
    double s, bound_s, moved_s;
} RowTime;

/* Second forwards count only with input gradients, which they precede. */
static RowTime row_time(const ProgramCost *c, const ChunkRow *row, int first, int end,
                        LayerPass pass)
{
    RowTime t = { 0 };
    for (int i = first; i < end && row->at->own >= 0; i++) {
        const ChunkPhase *x = &row->at[i];
        const LayerPrice *l = c->layer[x->own];
        if (x->recompute && pass != PASS_INPUT) continue;
        LayerPass of = x->recompute ? PASS_RECOMPUTE : pass;
        t.s += l->phase_s[of][x->phase];
        t.bound_s += l->bound_s[of][x->phase];
        t.moved_s += l->moved_s[of][x->phase];
    }
    return t;
}

/* The time of an action's ops, scaled so that a whole pass takes the chunk's time: that also has the traffic and
 * waits which a stack's sheet adds. */
static double action_pass_s(const ProgramCost *c, int rank, const Action *a, LayerPass pass)
{
    const Program *p = &c->program[rank];
    const ChunkRow *row = action_row(p, a);
    const ChunkTimes *t = &c->in->time[rank * c->in->chunks + a->chunk];
    double whole = row_time(c, row, 0, row->n, pass).s;
    double s = row_time(c, row, a->first, a->end, pass).s;
    return whole > 0 ? s * price_phases_s(t->of[pass]) / whole : 0;
}

/* Are phases i - 1 and i of one layer, and both on the compute lane? */
static bool products_before(const ChunkRow *row, int i)
{
    const ChunkPhase *a = &row->at[i - 1], *b = &row->at[i];
    return a->own == b->own && a->lane == LANE_COMPUTE && b->lane == LANE_COMPUTE && !a->recompute;
}

/* Rows that ranks of tp add up travel beside the weight gradients before them (Action.early). */
static double hidden_s(const ProgramCost *c, int rank, const Action *a)
{
    const ChunkRow *row = action_row(&c->program[rank], a);
    if (a->first == 0 || a->lane != LANE_COMM || !row->at[a->first].tensor) return 0;
    Action before = *a;
    before.first = (short)(a->first - 1), before.end = a->first;
    while (before.first > 0 && products_before(row, before.first)) before.first--;
    return fmin(action_pass_s(c, rank, a, PASS_INPUT),
                action_pass_s(c, rank, &before, PASS_WEIGHT));
}

static double pass_s(const ProgramCost *c, int rank, const Action *a)
{
    switch (a->kind) {
    case ACTION_FORWARD: return action_pass_s(c, rank, a, PASS_FORWARD);
    case ACTION_BACKWARD:
        return action_pass_s(c, rank, a, PASS_INPUT) + action_pass_s(c, rank, a, PASS_WEIGHT) -
               hidden_s(c, rank, a);
    case ACTION_BACKWARD_INPUT: return action_pass_s(c, rank, a, PASS_INPUT);
    default: return action_pass_s(c, rank, a, PASS_WEIGHT);
    }
}
/* Each block of a communication kernel takes a multiprocessor away from compute (moe.exchange=direct has as many
 * blocks as a collective). That slows products and attention by what hardware_contention says. Ops that memory bounds
 * are not slowed unless the file says so: fewer multiprocessors also saturate it, and the bytes of a collective
 * would add at most 0.3 % to a step of DeepSeek-V2-Lite on two H200s. */
static SimUse use_of_pass(const ProgramCost *c, int rank, const Action *a)
{
    static const LayerPass passes[ACTION_KIND_COUNT][2] = {
        [ACTION_FORWARD] = { PASS_FORWARD, PASS_FORWARD },
        [ACTION_BACKWARD] = { PASS_INPUT, PASS_WEIGHT },
        [ACTION_BACKWARD_INPUT] = { PASS_INPUT, PASS_INPUT },
        [ACTION_BACKWARD_WEIGHT] = { PASS_WEIGHT, PASS_WEIGHT },
    };
    RowTime sum = { 0 };
    SimUse use = { 0 };
    for (int i = 0; i < 2; i++) {
        RowTime t =
            row_time(c, action_row(&c->program[rank], a), a->first, a->end, passes[a->kind][i]);
        sum = (RowTime){ sum.s + t.s, sum.bound_s + t.bound_s, sum.moved_s + t.moved_s };
    }
    if (sum.s <= 0) return use;
    use.bound = sum.bound_s / sum.s;
    /* Beside an exchange between domains a send is slower already (collective_send_beside). */
    if (!c->tokens_out) use.into[SIM_UP] = use.out[SIM_UP] = sum.moved_s / sum.s;
    return use;
}

/* What an action of a pass takes and uses, found once. */
static const PassCost *pass_cost(const ProgramCost *c, int rank, const Action *a)
{
    const int place = rank * c->in->chunks + a->chunk, kind = (int)(a->kind - ACTION_FORWARD);
    PassCost *x = &c->memo[(place * PASS_KINDS + kind) * c->rows + a->first];
    if (x->end != a->end) *x = (PassCost){ a->end, pass_s(c, rank, a), use_of_pass(c, rank, a) };
    return x;
}

/* Collectives of a layer take the time that the price gives them. Zeroing and freeing take none. */
static double action_duration(void *ctx, int rank, const Action *a)
{
    const ProgramCost *c = ctx;
    if (action_is_pass(a->kind)) return pass_cost(c, rank, a)->s;
    switch (a->kind) {
    case ACTION_GATHER_WEIGHTS: return c->shared[a->layer].gather;
    case ACTION_REDUCE_GRADS:
        return c->whole ? c->shared[a->layer].replicate : c->shared[a->layer].reduce;
    case ACTION_SUM_GRADS:
        return c->shared[a->layer].twins + (c->whole ? 0 : c->shared[a->layer].replicate);
    case ACTION_UPDATE: return c->update[rank];
    default: return action_is_transfer(a->kind) ? c->in->send_s : 0;
    }
}

/* A send fills the link out of its rank, a receive the link into it, a collective both. No kernel of ours uses
 * copy engines. */
static SimUse action_use(void *ctx, int rank, const Action *a)
{
    const ProgramCost *c = ctx;
    bool transfer = action_is_transfer(a->kind), pass = action_is_pass(a->kind);
    SimUse use = { 0 };
    if (pass) use = pass_cost(c, rank, a)->use;
    if (a->lane != LANE_COMM && !transfer) return use;
    const int blocks = c->spec.ranks.tp > 1 ? COMM_TENSOR_BLOCKS : COMM_BLOCKS;
    if (c->multiprocessors > 0)
        use.blocks = (transfer ? COMM_FEW_BLOCKS : blocks) / c->multiprocessors;
    if (pass) return use;
    SimLink link = SIM_UP;
    if (transfer ? c->sends_out : a->layer >= 0 && c->shared[a->layer].leaves) link = SIM_OUT;
    if (!transfer || action_is_send(a->kind)) use.out[link] = 1;
    if (!transfer || !action_is_send(a->kind)) use.into[link] = 1;
    return use;
}

/* Sets the price and the recompute modules of each layer of a stage. */
static LayerRange set_stage_prices(Planner *p, const PlanLayout *l, const PriceEntry *e,
                                   const LayoutStage *s, ProgramCost *c)
{
    LayerRange range = chunk_layers(&c->spec, s);
    for (int i = range.first; i < range.end; i++) {
        LayerSpec *layer = &c->spec.layers[i];
        bool again = price_again(l, s, layer->block);
        c->layer[i] = &(again ? e->recomputed : e->plain)[p->class_of[i]];
        layer->recompute = layer_recompute(layer, again ? l->recompute : 0);
    }
    return range;
}

/* The times of a layer's gathers, reductions and sums over replicas. */
static Status shared_times(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                           const LayerCount *n, GradientTimes *out)
{
    const RankPrice layer = { .sum = { .params = n->params } };
    return price_gradients(p, l, e, &layer, out);
}

/* The shape from which `train` makes its Programs: with equal durations, because it does not know costs. */
static Status list_shape(Planner *p, const PlanLayout *l, const PriceEntry *e, Arena *a,
                         ProgramCost *c, ScheduleShape *out)
{
    int stages = price_stage_count(l);
    LayoutStage *stage = NULL;
    Chunk *chunk = NULL;
    LayerSpec *layers = NULL;
    ParamShards shards = price_shards(p, l, e);
    bool two = l->schedule->placement == PLACE_BOTH || (spec_shares_table(&e->spec) && l->pp > 1);
    bool same = l->dp * l->cp * e->spec.ranks.tp > shards.dense || price_keys(&e->spec) > 1;
    *out = (ScheduleShape){ .stages = l->pp,
                            .chunks = l->vpp,
                            .micros = (int)price_micros(p, l),
                            .forward = 1,
                            .input = 1,
                            .weight = 1,
                            .blocks = 1,
                            .shards = chunk_shards(&shards, two || same) };
    c->whole = shards.zero == 0 && out->shards.reduce;
    c->spec = e->spec;
    TRY(ARENA_NEW(a, c->spec.n_layers, &layers));
    for (int i = 0; i < c->spec.n_layers; i++) layers[i] = e->spec.layers[i];
    c->spec.layers = layers;
    TRY(ARENA_ZEROED(a, c->spec.n_layers, &c->layer));
    TRY(ARENA_NEW(a, c->spec.n_layers, &c->shared));
    TRY(ARENA_NEW(a, stages, &chunk));
    TRY(price_stages(p, l, e, stages, &stage));
    for (int i = 0; i < stages; i++) {
        LayerRange range = set_stage_prices(p, l, e, &stage[i], c);
        TRY(chunk_build(&c->spec, range, &out->shards, a, &chunk[i]));
        if (chunk[i].blocks > out->blocks) out->blocks = chunk[i].blocks;
        for (int k = 0; k < CHUNK_ROWS; k++)
            c->rows = chunk[i].row[k].n > c->rows ? chunk[i].row[k].n : c->rows;
    }
    for (int i = 0; i < c->spec.n_layers; i++) {
        TRY(shared_times(p, l, e, &c->layer[i]->count, &c->shared[i]));
    }
    out->chunk = chunk;
    return ARENA_ZEROED(&p->scratch, l->pp * l->vpp * PASS_KINDS * c->rows, &c->memo);
}

/* Stages hold different parameters, so each has its own update. */
static Status update_times(Planner *p, const PlanLayout *l, const PriceEntry *e,
                           const PriceRanks *n, Arena *a, ProgramCost *c)
{
    double *update = NULL, part_s[PLAN_PARTS];
    TRY(ARENA_NEW(a, l->pp, &update));
    for (int r = 0; r < l->pp; r++) {
        TRY(price_rank_ends(p, l, e, &n->rank[r], part_s));
        update[r] = part_s[PLAN_UPDATE];
    }
    c->update = update;
    return OK;
}

/* Do exchanges of tokens, or collectives of layers, leave a scale-up domain? */
static bool tokens_leave(const Planner *p, const PlanLayout *l)
{
    const int64_t rows = (int64_t)l->cp * l->tp, experts = plan_expert_ranks(l);
    const int64_t group = experts > 1 ? experts : rows;
    bool out = roofline_group(p->q.hardware, group, 1).local < group;
    return out || (l->tp > 1 && roofline_group(p->q.hardware, rows, 1).local < rows);
}

/* The list is the one that `train` makes for this layout; only times are the plan's. Passes alone are made from the shape
 * that the estimate used, so both time the same Programs. */
static Status simulate_program(Planner *p, const PlanLayout *l, bool list, bool memory, Arena *a,
                               PlanStep *out)
{
    const PriceEntry *e = NULL;
    PriceRanks ranks;
    EstimateInput in;
    ProgramCost c = { .in = &in };
    TRY(price_entry(p, l, &e));
    TRY(price_input(p, l, e, &ranks, &in));
    ScheduleShape shape = estimate_shape(&in);
    if (list) TRY(list_shape(p, l, e, a, &c, &shape));
    if (list) TRY(update_times(p, l, e, &ranks, a, &c));
    TRY(schedule_make(l->schedule, &shape, a, &p->scratch, &out->pipeline));
    c.program = out->pipeline.rank;
    c.multiprocessors = p->q.hardware->gpu_multiprocessors;
    c.tokens_out = tokens_leave(p, l);
    c.sends_out = price_sends_out(p, l);
    SimCost cost = { &c, pass_duration, NULL, memory ? slot_of : NULL, 0 };
    if (list) cost.duration = action_duration, cost.use = action_use;
    if (list) cost.entry_bytes = (double)e->plain[0].count.stream;
    return simulate_run(&out->pipeline, &cost, a, &out->sim);
}

/* Pipeline and simulation lie in `a`; everything else is released. `memory`: it is followed, too. */
static Status simulate_step(Planner *p, const PlanLayout *l, bool list, bool memory, Arena *a,
                            PlanStep *out)
{
    TRY(planner_legal(p, l));
    ArenaMark mark = arena_mark(&p->scratch);
    Status s = simulate_program(p, l, list, memory, a, out);
    arena_release(&p->scratch, mark);
    return s;
}

Status planner_simulate(Planner *p, const PlanLayout *l, bool list, Arena *a, PlanStep *out)
{
    return simulate_step(p, l, list, true, a, out);
}

/* ---- prices with simulated times ---- */

bool planner_runs_list(const Planner *p) { return p->limits->at[STACK_list] != 0; }

/* Seconds of a simulated step; of a mean rank those by which communication slows the compute, and those in which the
 * compute lane runs passes; and the end of the last pass of all. */
typedef struct StepTime {
    double step_s, slowed_s, busy_s, pipeline_s;
} StepTime;

/* Adds what the actions [first, end) of a rank take. */
static void add_actions(const PlanStep *step, int rank, int first, int end, StepTime *t)
{
    const Action *at = step->pipeline.rank[rank].at;
    const SimSpan *span = step->sim.rank[rank].span;
    for (int i = first; i < end; i++) {
        const bool computes = at[i].lane == LANE_COMPUTE, pass = action_is_pass(at[i].kind);
        if (computes) t->slowed_s += span[i].slowed / step->pipeline.stages;
        if (pass) t->pipeline_s = fmax(t->pipeline_s, span[i].end);
        if (pass && computes) t->busy_s += (span[i].end - span[i].start) / step->pipeline.stages;
    }
}

static StepTime time_of_step(const PlanStep *step)
{
    StepTime t = { .step_s = step->sim.step };
    for (int r = 0; r < step->pipeline.stages; r++)
        add_actions(step, r, 0, step->pipeline.rank[r].n, &t);
    return t;
}

/* The first action of the forward of a micro-batch on the first chunk of a rank; -1: there is none. */
static int forward_of(const Program *p, int micro)
{
    for (int i = 0; i < p->n; i++) {
        const Action *a = &p->at[i];
        if (a->kind == ACTION_FORWARD && a->micro == micro && a->first == 0) return i;
    }
    return -1;
}

/* Is action j the same as action i, `micros` micro-batches and `s` seconds later, but for the share `off` of these? */
static bool is_later(const Program *p, const SimSpan *span, int i, int j, int micros, double s,
                     double off)
{
    const Action *a = &p->at[i], *b = &p->at[j];
    return a->kind == b->kind && a->chunk == b->chunk && a->first == b->first && a->end == b->end &&
           a->layer == b->layer && b->micro - a->micro == (a->micro < 0 ? 0 : micros) &&
           fabs(span[j].start - span[i].start - s) <= off * s &&
           fabs(span[j].end - span[i].end - s) <= off * s;
}

/* Adds the time of `more` further periods of so many micro-batches, if three before the last run alike on all ranks, action
 * by action: none waits for one that is more than two periods older, so all that follow run alike, too. */
static bool add_periods(const PlanStep *step, int micros, double more, double off, StepTime *t)
{
    const int skip = step->pipeline.rank[0].micros / micros - 4;
    StepTime each = { 0 };
    for (int r = 0; r < step->pipeline.stages; r++) {
        const Program *p = &step->pipeline.rank[r];
        const SimSpan *span = step->sim.rank[r].span;
        const int first = forward_of(p, skip * micros),
                  n = forward_of(p, (skip + 1) * micros) - first;
        if (first < 0 || n <= 0 || first + 3 * n > p->n) return false;
        if (r == 0) each.step_s = span[first + n].start - span[first].start;
        for (int i = first; i < first + 2 * n; i++)
            if (!is_later(p, span, i, i + n, micros, each.step_s, off)) return false;
        add_actions(step, r, first, first + n, &each);
    }
    *t = (StepTime){ t->step_s + more * each.step_s, t->slowed_s + more * each.slowed_s,
                     t->busy_s + more * each.busy_s, t->pipeline_s + more * each.step_s };
    return true;
}

/* Simulates a step of fewer micro-batches: for that the planner's batch is smaller. *done: the time is that of a step with
 * `more` further periods. */
static Status simulate_micros(Planner *p, const PlanLayout *l, bool list, int64_t micros, int more,
                              StepTime *out, bool *done)
{
    PlanStep step = { 0 };
    int64_t batch = p->config.train_batch;
    ArenaMark mark = arena_mark(&p->steps);
    p->config.train_batch = micros * l->dp * l->micro_batch;
    Status s = simulate_step(p, l, list, false, &p->steps, &step);
    p->config.train_batch = batch;
    if (s == OK) *out = time_of_step(&step);
    const int period = estimate_period(l->schedule, l->pp), many = period * MANY / 8;
    *done = s != OK || more == 0 || add_periods(&step, period, more, STEADY, out) ||
            (micros >= (int64_t)MANY * period &&
             add_periods(&step, many, (double)more * period / many, NEARLY, out));
    arena_release(&p->steps, mark);
    return s;
}

/* The time of a step, by fewer periods once these run alike: lanes of lists wait for each other in more ways than passes
 * do. Where they never do so to the last digit, MANY of them are enough if eighths of them do within NEARLY. A step that
 * has not half as many again is simulated whole. */
static Status simulate_time(Planner *p, const PlanLayout *l, bool list, StepTime *out)
{
    const int micros = (int)price_micros(p, l), period = estimate_period(l->schedule, l->pp);
    bool done = false;
    int enough;
    for (int n = ESTIMATE_PERIODS - (l->vpp == 1 && !l->schedule->phases);
         3 * (enough = estimate_enough(l->schedule, l->pp, micros, n)) < 2 * micros;
         n += n < ESTIMATE_PERIODS ? 1 : n) {
        TRY(simulate_micros(p, l, list, enough, (micros - enough) / period, out, &done));
        if (done) return OK;
    }
    return simulate_micros(p, l, list, micros, 0, out, &done);
}

/* Takes a simulated time of the pipeline. What comes after it stays, the bubble has the difference. */
void planner_take_schedule(const Planner *p, PlanPrice *price, double schedule_s)
{
    const Config *c = &p->config;
    double ends = price->step_s - price->schedule_s;
    double tokens = (double)(c->train_batch * c->data_sequence), gpus = (double)p->q.gpus;
    static const PlanPart order[] = { PLAN_BUBBLE, PLAN_EXCHANGE, PLAN_COMPUTE };
    double more = schedule_s - price->schedule_s; /* an estimate may be above by its rounding */
    for (int i = 0; i < 3; i++) {
        double *part = &price->part_s[order[i]], before = *part;
        *part = fmax(0, before + more);
        more -= *part - before;
    }
    price->bubble = fmax(0, 1 - (1 - price->bubble) * price->schedule_s / schedule_s);
    price->schedule_s = schedule_s;
    price->step_s = schedule_s + ends;
    price->tokens_per_s_per_gpu = tokens / (price->step_s * gpus);
    price->mfu = p->flops / (price->step_s * gpus * hardware_peak(p->q.hardware, HARDWARE_BF16));
}

/* Splits a simulated step of step_s seconds into its parts. The difference to the price, less the compute that
 * transfers slowed, is attributed to gradients first, then to the bubble, then to hidden communication. */
static void split_step(const Planner *p, double step_s, const StepTime *t, PlanPrice *price)
{
    static const PlanPart order[] = { PLAN_GRADIENTS, PLAN_BUBBLE, PLAN_EXCHANGE,
                                      PLAN_TENSOR,    PLAN_SEND,   PLAN_SLOWED };
    double *part = price->part_s, ends = price->step_s - price->schedule_s - part[PLAN_GRADIENTS];
    double more = step_s - price->step_s - t->slowed_s;
    part[PLAN_SLOWED] = t->slowed_s;
    for (int i = part[PLAN_GRADIENTS] > 0 ? 0 : 1; i < 6; i++) {
        double before = part[order[i]];
        part[order[i]] = fmax(0, before + more);
        more -= part[order[i]] - before;
    }
    price->step_s = step_s;
    planner_take_schedule(p, price, price->schedule_s);
    price->schedule_s = step_s - ends - part[PLAN_GRADIENTS];
    price->bubble = fmax(0, 1 - t->busy_s / t->pipeline_s);
}

Status planner_price_list(Planner *p, const PlanLayout *l, Arena *a, PlanPrice *out, PlanStep *step)
{
    const PriceEntry *e = NULL;
    const bool list = planner_runs_list(p);
    StepTime t;
    if (step != NULL) *step = (PlanStep){ 0 };
    TRY(planner_price(p, l, out));
    TRY(price_entry(p, l, &e));
    double ends_s = out->step_s - out->schedule_s;
    if (list)
        ends_s =
            out->part_s[PLAN_SLOWEST] + out->part_s[PLAN_CHECKPOINT] + e->stack.at[STACK_wait_step];
    if (step == NULL) {
        TRY(simulate_time(p, l, list, &t));
    } else {
        TRY(planner_simulate(p, l, list, a, step));
        t = time_of_step(step);
    }
    if (list)
        split_step(p, t.step_s + ends_s, &t, out);
    else
        planner_take_schedule(p, out, t.step_s);
    return OK;
}

/* ---- the planner as a search's pricer ---- */

/* Do not recommend an overlapping schedule on a stack that does not overlap, unless the user named it. */
static Status search_legal(const Planner *p, const PlanLayout *l)
{
    bool asked = p->q.config->search_schedule.n > 0;
    if (l->schedule->phases && p->limits->at[STACK_lanes] == 0 && !asked)
        return FAIL(ERR_ARG, "mesh.schedule %s: this stack runs it without its overlap",
                    l->schedule->name);
    return planner_legal(p, l);
}

static Status search_simulate(Planner *p, const PlanLayout *l, const PlanLimit *limit,
                              PlanPrice *out)
{
    (void)limit;
    return planner_price_list(p, l, NULL, out, NULL);
}

const SearchPricer search_planner = { planner_make,  planner_free,         search_legal,
                                      planner_bound, planner_price_within, search_simulate };
