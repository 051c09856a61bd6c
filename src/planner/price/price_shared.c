/* price_shared: how long a list takes at least whose ranks share weights or gradients in every pass (ZeRO-2, 3).
 *
 * A half of the buffer of whole layers (CHUNK_HALVES) holds one layer at a time: from the begin of its gather to the end
 * of its pass, and its gradients from the begin of the pass to the end of their reduction. The comm lane runs all
 * collectives one after the other. So no step is shorter than what any of these five is busy. Where passes run
 * part by part, other layers come between the parts of a block with experts, and take its half: it is gathered
 * for each part. */
#include "planner/price/price_private.h"

typedef struct SharedBusy {
    double weights[CHUNK_HALVES], gradients[CHUNK_HALVES], comm;
} SharedBusy;

/* What one layer adds in a micro-batch. gather, reduce: seconds of its collectives. */
static void add_layer(SharedBusy *b, int layer, const ChunkTimes *t, bool phases, double gather,
                      double reduce)
{
    double forward = 0, backward = 0, moved = 0;
    for (int k = 0; k < PHASES; k++) {
        const bool computes = k == PHASE_ATTENTION || k == PHASE_EXPERTS;
        if (!computes) moved += t->forward[k] + t->input[k] + t->weight[k];
        if (phases && !computes) continue;
        forward += t->forward[k], backward += t->input[k] + t->weight[k];
    }
    const int half = params_half(layer);
    const double gathers = 2 * (phases && t->forward[PHASE_EXPERTS] > 0 ? 2 : 1) * gather;
    b->weights[half] += gathers + forward + backward;
    b->gradients[half] += backward + reduce;
    b->comm += gathers + reduce + (phases ? moved : 0);
}

static double most_busy_s(const SharedBusy *b)
{
    double most = b->comm;
    for (int h = 0; h < CHUNK_HALVES; h++) most = fmax(most, fmax(b->weights[h], b->gradients[h]));
    return most;
}

/* The collectives of a layer of each class. */
static Status class_times(const Planner *p, const PlanLayout *l, const PriceEntry *e,
                          GradientTimes out[LAYER_CLASSES_MAX])
{
    for (int c = 0; c < p->classes; c++) {
        const RankPrice layer = { .sum = { .params = e->plain[c].count.params } };
        TRY(price_gradients(p, l, e, &layer, &out[c]));
    }
    return OK;
}

/* Blocks run part by part only beside those of another stage's micro-batch: not with one stage. */
Status price_shared_s(Planner *p, const PlanLayout *l, const PriceEntry *e, double *out)
{
    GradientTimes of[LAYER_CLASSES_MAX];
    LayoutStage *stage = NULL;
    Program like = price_program_like(l);
    const ParamShards shards = price_shards(p, l, e);
    const double copies = l->schedule->placement == PLACE_BOTH ? 2 : 1;
    const bool phases = l->schedule->phases && l->pp > 1 && !price_in_series(e, l);
    *out = 0;
    if (e->stack.at[STACK_list] == 0 || shards.zero < 2) return OK;
    TRY(class_times(p, l, e, of));
    TRY(price_stages(p, l, e, price_stage_count(l), &stage));
    for (like.rank = 0; like.rank < l->pp; like.rank++) {
        SharedBusy busy = { 0 };
        for (int c = 0; c < l->vpp; c++) {
            const LayoutStage *s = &stage[hop_of(&like, c, c)];
            const LayerRange range = chunk_layers(&p->spec, s);
            for (int i = range.first; i < range.end; i++) {
                const int class = p->class_of[i];
                const bool again = price_again(l, s, p->spec.layers[i].block);
                const LayerPrice *x = &(again ? e->recomputed : e->plain)[class];
                add_layer(&busy, i, &x->time, phases, shards.zero == 3 ? of[class].gather : 0,
                          of[class].reduce);
            }
        }
        *out = fmax(*out, most_busy_s(&busy) * (double)price_micros(p, l) / copies);
    }
    return OK;
}
