/* price_program: the simulator over all ranks' Programs: of the passes alone, with the times and
 * slots of price.c; and of the whole step of a layout as `train` runs it, where phases take what
 * their ops cost, gathers and reductions what they move. And prices with these times. */
#include "plan/price_private.h"
#include "plan/search.h"
#include "train/chunks.h"
#include "train/shards.h"

#include <math.h>

static const size_t STEP_BYTES = (size_t)1 << 38; /* reserved; only what is written counts */

typedef struct ProgramCost {
    const EstimateInput *in;
    ModelSpec spec;           /* with what the layout recomputes */
    const LayerPrice **layer; /* by layer of the model */
    GradientTimes *shared;    /* likewise */
    bool whole;               /* gradients that all ranks hold are reduced over all at once */
    const double *update;     /* by pipeline rank */
    const Program *program;   /* by pipeline rank */
} ProgramCost;

static SlotBytes slot_of(void *ctx, int rank, int chunk)
{
    const EstimateInput *in = ((const ProgramCost *)ctx)->in;
    return in->slot[rank * in->chunks + chunk];
}

/* ---- passes alone ---- */

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

static Status simulate_passes(Planner *p, const PlanLayout *l, Arena *a, PlanStep *out)
{
    const PriceEntry *e = NULL;
    PriceRanks ranks;
    EstimateInput in;
    ProgramCost c = { .in = &in };
    TRY(price_entry(p, l, &e));
    TRY(price_input(p, l, e, &ranks, &in));
    ScheduleShape shape = estimate_shape(&in);
    TRY(schedule_make(l->schedule, &shape, a, &p->scratch, &out->pipeline));
    SimCost cost = { &c, pass_duration, slot_of, 0 };
    return simulate_run(&out->pipeline, &cost, a, &out->sim);
}

/* ---- the list that train runs ---- */

/* Seconds of a phase with one kind of gradients, or forward. */
static double phase_s(const LayerPrice *l, const ChunkPhase *x, LayerPass pass)
{
    if (x->again) return pass == PASS_INPUT ? l->phase_s[PASS_AGAIN][x->phase] : 0;
    return l->phase_s[pass][x->phase];
}

static double row_s(const ProgramCost *c, const ChunkRow *row, int first, int end, LayerPass pass)
{
    double s = 0;
    for (int i = first; i < end && row->at->own >= 0; i++) {
        s += phase_s(c->layer[row->at[i].own], &row->at[i], pass);
    }
    return s;
}

/* The ops' own time, and beside it in equal proportion what the chunk's times have on top: traffic
 * and waits that a stack's sheet adds. */
static double pass_s(const ProgramCost *c, int rank, const Action *a, LayerPass pass)
{
    const Program *p = &c->program[rank];
    const ChunkRow *row = action_row(p, a);
    const ChunkTimes *t = &c->in->time[rank * c->in->chunks + a->chunk];
    double whole = row_s(c, row, 0, row->n, pass), s = row_s(c, row, a->first, a->end, pass);
    return whole > 0 ? s * price_phases_s(t->of[pass]) / whole : 0;
}

static double duration(void *ctx, int rank, const Action *a)
{
    const ProgramCost *c = ctx;
    switch (a->kind) {
    case ACTION_FORWARD: return pass_s(c, rank, a, PASS_FORWARD);
    case ACTION_BACKWARD: return pass_s(c, rank, a, PASS_INPUT) + pass_s(c, rank, a, PASS_WEIGHT);
    case ACTION_BACKWARD_INPUT: return pass_s(c, rank, a, PASS_INPUT);
    case ACTION_BACKWARD_WEIGHT: return pass_s(c, rank, a, PASS_WEIGHT);
    case ACTION_GATHER_WEIGHTS: return c->shared[a->layer].gather;
    case ACTION_REDUCE_GRADS:
        return c->whole ? c->shared[a->layer].replicate : c->shared[a->layer].reduce;
    case ACTION_SUM_GRADS: return c->whole ? 0 : c->shared[a->layer].replicate;
    case ACTION_UPDATE: return c->update[rank];
    default: return action_is_transfer(a->kind) ? c->in->send_s : 0;
    }
}

/* The layers of a stage; their prices and recomputation. */
static LayerRange take_stage(Planner *p, const PlanLayout *l, const PriceEntry *e,
                             const LayoutStage *s, ProgramCost *c)
{
    LayerRange range = chunk_layers(&c->spec, s);
    for (int i = range.first; i < range.end; i++) {
        LayerSpec *layer = &c->spec.layers[i];
        bool again = price_again(l, s, layer->block);
        c->layer[i] = &(again ? e->recomputed : e->plain)[p->class_of[i]];
        layer->recompute = again ? l->recompute : 0;
    }
    return range;
}

/* What a layer's parameters take to come together, to be reduced, and to be added over replicas. */
static Status shared_times(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                           const LayerCount *n, GradientTimes *out)
{
    const RankPrice layer = { .sum = { .elems = (double)n->elems,
                                       .expert_elems = (double)n->expert_elems } };
    return price_gradients(p, l, e, &layer, out);
}

/* The shape that `train` makes its Programs of: its schedules know no costs. */
static Status shape_of(Planner *p, const PlanLayout *l, const PriceEntry *e, Arena *a,
                       ProgramCost *c, ScheduleShape *out)
{
    int stages = price_stage_count(l);
    LayoutStage *stage = NULL;
    Chunk *chunk = NULL;
    LayerSpec *layers = NULL;
    ParamShards shards = price_shards(p, l, e);
    bool two = l->schedule->placement == PLACE_BOTH || (e->spec.tied && l->pp > 1);
    *out =
        (ScheduleShape){ .stages = l->pp,
                         .chunks = l->vpp,
                         .micros = (int)price_micros(p, l),
                         .forward = 1,
                         .input = 1,
                         .weight = 1,
                         .blocks = 1,
                         .shards = shards_schedule(&shards, two || l->dp * l->cp > shards.dense) };
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
        LayerRange range = take_stage(p, l, e, &stage[i], c);
        TRY(chunk_build(&c->spec, range, &out->shards, a, &chunk[i]));
        if (chunk[i].blocks > out->blocks) out->blocks = chunk[i].blocks;
    }
    for (int i = 0; i < c->spec.n_layers; i++) {
        TRY(shared_times(p, l, e, &c->layer[i]->count, &c->shared[i]));
    }
    out->chunk = chunk;
    return OK;
}

static Status updates(Planner *p, const PlanLayout *l, const PriceEntry *e, const PriceRanks *n,
                      Arena *a, ProgramCost *c)
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

static Status simulate_list(Planner *p, const PlanLayout *l, Arena *a, PlanStep *out)
{
    const PriceEntry *e = NULL;
    PriceRanks ranks;
    EstimateInput in;
    ProgramCost c = { .in = &in };
    ScheduleShape shape;
    TRY(price_entry(p, l, &e));
    TRY(price_input(p, l, e, &ranks, &in));
    TRY(shape_of(p, l, e, a, &c, &shape));
    TRY(updates(p, l, e, &ranks, a, &c));
    TRY(schedule_make(l->schedule, &shape, a, &p->scratch, &out->pipeline));
    c.program = out->pipeline.rank;
    SimCost cost = { &c, duration, slot_of, (double)e->plain[0].count.stream };
    return simulate_run(&out->pipeline, &cost, a, &out->sim);
}

Status planner_simulate(Planner *p, const PlanLayout *l, bool list, Arena *a, PlanStep *out)
{
    TRY(planner_legal(p, l));
    ArenaMark mark = arena_mark(&p->scratch);
    Status s = (list ? simulate_list : simulate_passes)(p, l, a, out);
    arena_release(&p->scratch, mark);
    return s;
}

/* ---- prices with simulated times ---- */

bool planner_runs_list(const Planner *p) { return p->limits->at[STACK_list] != 0; }

/* The parts of a step of so many seconds: what is over or lacking is of gradients, then of the
 * bubble, then of what compute hides. */
static void take_step(const Planner *p, double step_s, PlanPrice *price)
{
    static const PlanPart order[] = { PLAN_GRADIENTS, PLAN_BUBBLE, PLAN_EXCHANGE, PLAN_SEND };
    double *part = price->part_s, ends = price->step_s - price->schedule_s - part[PLAN_GRADIENTS];
    double more = step_s - price->step_s;
    for (int i = part[PLAN_GRADIENTS] > 0 ? 0 : 1; i < 4; i++) {
        double before = part[order[i]];
        part[order[i]] = fmax(0, before + more);
        more -= part[order[i]] - before;
    }
    price->step_s = step_s;
    planner_take_schedule(p, price, price->schedule_s);
    double schedule_s = step_s - ends - part[PLAN_GRADIENTS];
    price->bubble = fmax(0, 1 - (1 - price->bubble) * price->schedule_s / schedule_s);
    price->schedule_s = schedule_s;
}

Status planner_price_list(Planner *p, const PlanLayout *l, Arena *a, PlanPrice *out, PlanStep *step)
{
    const PriceEntry *e = NULL;
    *step = (PlanStep){ 0 };
    TRY(planner_price(p, l, out));
    if (!planner_runs_list(p)) return OK;
    TRY(price_entry(p, l, &e));
    TRY(planner_simulate(p, l, true, a, step));
    take_step(p, step->sim.step + out->part_s[PLAN_CHECKPOINT] + e->stack.at[STACK_wait_step], out);
    return OK;
}

/* ---- the planner as a search's pricer ---- */

/* Nobody who did not ask for it is told to take a schedule whose overlap does not happen. */
static Status search_legal(const Planner *p, const PlanLayout *l)
{
    bool asked = p->q.config->search_schedule.n > 0;
    if (l->schedule->phases && p->limits->at[STACK_lanes] == 0 && !asked)
        return FAIL(ERR_ARG, "mesh.schedule %s: this stack runs it without its overlap",
                    l->schedule->name);
    return planner_legal(p, l);
}

/* Of a stack that runs lists, the list's time; of others, that of all ranks' passes. */
static Status search_simulate(Planner *p, const PlanLayout *l, PlanPrice *out)
{
    Arena a = { 0 };
    PlanStep step;
    TRY(arena_init(&a, "simulation", MEM_HOST, STEP_BYTES));
    Status s = planner_price_list(p, l, &a, out, &step);
    if (s == OK && !planner_runs_list(p)) {
        s = planner_simulate(p, l, false, &a, &step);
        if (s == OK) planner_take_schedule(p, out, step.sim.step);
    }
    arena_free(&a);
    return s;
}

const SearchPricer search_planner = { planner_make,  planner_free,  search_legal,
                                      planner_bound, planner_price, search_simulate };
