/*
 * slope: is the gradient of every weight the derivative of the loss?
 *
 * Where a move makes a token change its expert the loss jumps: let the model choose all experts.
 */
#ifndef TESTS_HARNESS_SLOPE_H
#define TESTS_HARNESS_SLOPE_H

#include "harness/tiny.h"

#include <math.h>

typedef struct SlopeLook {
    double loss;
    int32_t load[256];
} SlopeLook;

static inline SlopeLook slope_look(Tiny *t)
{
    StepResult r;
    SlopeLook out = { 0 };
    CHECK_OK(engine_step(&t->engine, &t->batch, 0, 1, &r));
    out.loss = r.loss + r.aux_loss;
    for (int d = 0; d < t->engine.spec.depths; d++)
        out.loss += (double)t->engine.spec.loss.depth_weight * r.next_loss[d];
    size_t bytes = tensor_bytes(&t->engine.io.host[FIGURE_LOAD]);
    CHECK(t->engine.spec.n_moe == 0 || bytes <= sizeof out.load);
    if (t->engine.spec.n_moe > 0) memcpy(out.load, r.load, bytes);
    return out;
}

static inline void slope_move(Tiny *t, const float *direction, double h)
{
    float *w = t->engine.params.memory.buffer[BUF_MAIN].data;
    for (int64_t i = 0; i < t->engine.params.table.elems[BUF_MAIN]; i++) {
        w[i] += (float)(h * (double)direction[i]);
    }
}

/* Random numbers for the parameters of one role in one layer, 0 for all others. */
static inline void slope_direction(const Tiny *t, const Param *like, uint64_t seed, float *out)
{
    memset(out, 0, (size_t)t->engine.params.table.elems[BUF_MAIN] * sizeof *out);
    for (int i = 0; i < t->engine.params.table.n; i++) {
        const Param *p = &t->engine.params.table.at[i];
        if (p->layer != like->layer || p->role != like->role) continue;
        rng_fill_normal(out + p->first[BUF_MAIN], param_elems(p), seed, rng_stream(p->name), 0, 1);
    }
}

/* The slope that g gives along a random direction, if it is no small one: else we draw again. */
static inline double slope_draw(const Tiny *t, const Param *like, const float *g, float *direction)
{
    double slope = 0, usual = 0;
    for (uint64_t seed = 1; fabs(slope) <= usual; seed++) {
        double square = 0;
        slope_direction(t, like, seed, direction);
        slope = 0;
        for (int64_t i = 0; i < t->engine.params.table.elems[BUF_MAIN]; i++) {
            double part = (double)g[i] * (double)direction[i];
            slope += part;
            square += part * part;
        }
        usual = sqrt(square);
        if (!(usual > 0)) fail_msg("%s has no gradient", like->name);
    }
    return slope;
}

/* The loss's derivative along such a direction is what g says. The move is so long that the loss
 * changes by 2e-3, far above its rounding. */
static inline void slope_role(Tiny *t, const Param *like, const float *g, float *direction)
{
    double slope = slope_draw(t, like, g, direction), h = fmin(1e-3 / fabs(slope), 2e-2);
    slope_move(t, direction, h);
    double up = slope_look(t).loss;
    slope_move(t, direction, -2 * h);
    double have = (up - slope_look(t).loss) / (2 * h);
    slope_move(t, direction, h);
    if (!(fabs(have / slope - 1) <= 1e-2)) {
        fail_msg("%s of %s and its role: the loss rises by %g, by its gradient %g", like->name,
                 t->config.model_name, have, slope);
    }
}

/* Along the gradient itself nobody misses what it lacks. */
static inline void slope_each_role(Tiny *t)
{
    int64_t n = t->engine.params.table.elems[BUF_MAIN];
    void *memory = NULL;
    CHECK_OK(arena_alloc(&t->arena, 2 * (size_t)n * sizeof(float), &memory));
    float *g = memory, *direction = g + n;
    slope_look(t);
    memcpy(g, t->engine.params.memory.buffer[BUF_GRAD].data, (size_t)n * sizeof *g);
    for (int i = 0; i < t->engine.params.table.n; i++) {
        const Param *p = &t->engine.params.table.at[i];
        bool first = i == 0 || p[-1].layer != p->layer || p[-1].role != p->role;
        if (first && p->first[BUF_MAIN] >= 0) slope_role(t, p, g, direction);
    }
}

#endif
