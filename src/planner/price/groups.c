/* groups: what pages ask of a layout beside its price: memory of each pipeline rank, and which groups of GPUs
 * exchange how much in a step.
 *
 * The order of ranks is engine/comm/mesh.h's, with tp innermost: then come cp, dp and pp. Groups of ep lie over tp,
 * cp and dp. Prices of the exchanges are price.c's and roofline.c's. */
#include "planner/price/price_private.h"

#include <assert.h>
#include <string.h>

/* All that price_input makes of one layout. */
typedef struct Grouped {
    Planner *p;
    PlanLayout l;
    const PriceEntry *entry;
    PriceRanks ranks;
    EstimateInput in;
} Grouped;

/* The room for rows is set to what the price chose, so that the entry is the same one. */
static Status grouped_make(Planner *p, const PlanLayout *l, const PlanPrice *price, Grouped *out)
{
    *out = (Grouped){ .p = p, .l = *l };
    out->l.room = price->room;
    TRY(price_entry(p, &out->l, &out->entry));
    assert(out->entry != NULL);
    return price_input(p, &out->l, out->entry, &out->ranks, &out->in);
}

/* ---- memory ---- */

static Status rank_memories(Planner *p, const PlanLayout *l, const PlanPrice *price,
                            double (*out)[PLAN_KINDS])
{
    Grouped g;
    Estimate t;
    TRY(grouped_make(p, l, price, &g));
    TRY(estimate(&p->estimator, &g.in, &t));
    memset(out, 0, (size_t)l->pp * sizeof *out);
    AlikeBytes alike = { .comm = price_comm_bytes(&g.l, g.entry) };
    TRY(price_step_bytes(p, &g.l, g.entry, &alike.step));
    for (int r = 0; r < l->pp; r++)
        price_rank_memory(p, &g.l, g.entry, &g.ranks.rank[r], &t.rank[r], &alike, out[r]);
    return OK;
}

Status planner_memory(Planner *p, const PlanLayout *l, const PlanPrice *price,
                      double (*out)[PLAN_KINDS])
{
    ArenaMark mark = arena_mark(&p->scratch);
    Status s = rank_memories(p, l, price, out);
    arena_release(&p->scratch, mark);
    return s;
}

/* ---- exchanges ---- */

Status price_count_layers(Planner *p, const PlanLayout *l, const PriceEntry *e,
                          int n[2][LAYER_CLASSES_MAX])
{
    LayoutStage *stage = NULL;
    int stages = price_stage_count(l);
    TRY(price_stages(p, l, e, stages, &stage));
    for (int i = 0; i < stages; i++) {
        LayerRange range = chunk_layers(&p->spec, &stage[i]);
        for (int k = range.first; k < range.end; k++) {
            bool again = l->recompute != 0 && price_again(l, &stage[i], p->spec.layers[k].block);
            n[again][p->class_of[k]]++;
        }
    }
    return OK;
}

/* Adds a kind of group. A group of one GPU exchanges nothing and is left out. */
static void add_group(const Grouped *g, PlanGroup group, PlanGroups *out)
{
    if (group.ranks <= 1) return;
    group.local = roofline_group(g->p->q.hardware, group.ranks, group.stride).local;
    out->at[out->n++] = group;
}

/* Bytes that a GPU sends in a step in the ops of one lane, mean of the pipeline ranks. */
static Status lane_bytes(const Grouped *g, RooflineLane lane, double *out)
{
    int n[2][LAYER_CLASSES_MAX] = { { 0 } };
    TRY(price_count_layers(g->p, &g->l, g->entry, n));
    *out = 0;
    for (int i = 0; i < 2 * g->p->classes; i++) {
        int class = i / 2, again = i % 2;
        const LayerPrice *one = &(again ? g->entry->recomputed : g->entry->plain)[class];
        for (int k = 0; k < one->n_ops; k++) {
            if (one->op[k].lane == lane) *out += n[again][class] * one->op[k].comm_bytes;
        }
    }
    *out *= (double)price_micros(g->p, &g->l) / g->l.pp;
    return OK;
}

/* Seconds of one lane in a step, mean of the pipeline ranks. With two copies of the model each chunk has half
 * of the micro-batches. */
static double lane_s(const Grouped *g, RooflineLane lane)
{
    double sum = 0, both = g->l.schedule->placement == PLACE_BOTH ? 2 : 1;
    for (int r = 0; r < g->l.pp; r++) sum += g->ranks.rank[r].sum.lane_s[lane];
    return sum * (double)price_micros(g->p, &g->l) / g->l.pp / both;
}

/* Transfers that leave a rank in a step, mean of the ranks: a micro-batch crosses each border between two
 * ranks forward and backward. */
static double sends_of_rank(const Grouped *g)
{
    Program like = price_program_like(&g->l);
    int borders = 0;
    for (int i = 0; i + 1 < hop_count(&like); i++)
        borders += hop_stage(&like, 0, i).rank != hop_stage(&like, 0, i + 1).rank;
    return 2.0 * borders * (double)price_micros(g->p, &g->l) / g->l.pp;
}

/* Those of the rank whose gradients take longest, as the step has their time. */
static Status add_gradient_groups(const Grouped *g, PlanGroups *out)
{
    GradientTimes t = { 0 };
    for (int r = 0; r < g->l.pp; r++) {
        GradientTimes of;
        TRY(price_gradients(g->p, &g->l, g->entry, &g->ranks.rank[r], &of));
        if (r == 0 || price_gradients_s(&of) > price_gradients_s(&t)) t = of;
    }
    for (int i = 0; i < t.calls; i++) {
        const GradientCall *call = &t.call[i];
        double times = call->cost.comm == COMM_REDUCE_SCATTER ? t.reductions
                       : call->cost.comm == COMM_ALL_GATHER   ? t.gathers
                                                              : 1;
        bool copies = g->l.tp > 1 && call->ranks <= g->l.tp && call->stride == 1;
        add_group(g,
                  (PlanGroup){ copies ? PLAN_AXIS_TP : PLAN_AXIS_DP, call->what, call->ranks,
                               call->stride, .bytes = call->cost.comm_bytes * times,
                               .s = call->s * times },
                  out);
    }
    return OK;
}

static Status list_groups(Planner *p, const PlanLayout *l, const PlanPrice *price, PlanGroups *out)
{
    const struct {
        PlanAxis axis;
        RooflineLane lane;
        const char *what;
        int64_t ranks, stride;
    } lane[] = {
        { PLAN_AXIS_TP, ROOFLINE_TENSOR, "tokens gathered and summed", l->tp, 1 },
        { PLAN_AXIS_CP, ROOFLINE_CONTEXT, "keys and values", l->cp, l->tp },
        { PLAN_AXIS_EP, ROOFLINE_EXCHANGE, "tokens to experts and back", plan_expert_ranks(l), 1 },
    };
    Grouped g;
    TRY(grouped_make(p, l, price, &g));
    *out = (PlanGroups){ 0 };
    for (int i = 0; i < 3; i++) {
        PlanGroup group = { lane[i].axis, lane[i].what, lane[i].ranks, lane[i].stride,
                            .s = lane_s(&g, lane[i].lane) };
        /* Another stack's exchange sends other copies of a token than the ops count. */
        bool theirs = lane[i].axis == PLAN_AXIS_EP && g.entry->stack.at[STACK_dispatch] >= 0;
        if (!theirs) TRY(lane_bytes(&g, lane[i].lane, &group.bytes));
        add_group(&g, group, out);
    }
    TRY(add_gradient_groups(&g, out));
    double sends = sends_of_rank(&g);
    add_group(&g,
              (PlanGroup){ PLAN_AXIS_PP, "streams between stages", l->pp, plan_stage_gpus(l),
                           .bytes = sends * (double)g.entry->plain[0].count.stream,
                           .s = sends * g.in.send_s },
              out);
    return OK;
}

Status planner_groups(Planner *p, const PlanLayout *l, const PlanPrice *price, PlanGroups *out)
{
    ArenaMark mark = arena_mark(&p->scratch);
    p->listing = true; /* the bytes are those of listed ops */
    Status s = list_groups(p, l, price, out);
    p->listing = false;
    arena_release(&p->scratch, mark);
    return s;
}
