/* sink_terms: how large the terms are whose sum is the gradient of a head's sink.
 *
 * The gradient is the sum of p d_o o over tokens and columns, p = e^(sink - lse). The terms have both signs: their
 * sizes add up to as much as 900 times the sum. The op adds a call's terms in double. But d_o, o and lse come from f32
 * layers, which a mesh rounds in another order. So results differ by some 2^-24 of the sum of sizes, and no other order
 * of the last sum can mend that.
 *
 * Measured over 3047 comparisons (drawn cases 0 to 1499, of which 151 with sinks ran): the median is 0.17 * 2^-24 of
 * the sum of sizes, the largest 1.4 * 2^-24. The limit is 4 * 2^-24. Cases 1165 and 1437 differ by 1.8e-5 and 1.6e-5 of
 * the gradient. Built with double in place of f32 they differ by 2e-14, so what differs is rounding. A gradient without
 * one token's term is seen for 97.9 % of tokens; with the relative limit alone for 98.1 %. */
#ifndef TESTS_HARNESS_SINK_TERMS_H
#define TESTS_HARNESS_SINK_TERMS_H

#include "engine/backend/backend.h"
#include "kernels/attention/attention.h"

#include <math.h>

enum { SINK_LAYERS_MAX = 16, SINK_HEADS_MAX = 16 };

typedef struct SinkTerms {
    Decorator seen;
    int layers;
    const void *dsinks[SINK_LAYERS_MAX]; /* each layer's gradient */
    double size[SINK_LAYERS_MAX][SINK_HEADS_MAX];
} SinkTerms;

static inline double *sink_terms_of(SinkTerms *t, const void *dsinks)
{
    for (int i = 0; i < t->layers; i++) {
        if (t->dsinks[i] == dsinks) return t->size[i];
    }
    if (t->layers == SINK_LAYERS_MAX) return NULL;
    t->dsinks[t->layers] = dsinks;
    memset(t->size[t->layers], 0, sizeof t->size[0]);
    return t->size[t->layers++];
}

/* By how much the gradient in `dsinks` may be off for its terms; 0: nobody has seen a sink there. */
static inline double sink_terms_rounding(const SinkTerms *t, const void *dsinks)
{
    double square = 0;
    for (int i = 0; i < t->layers; i++) {
        for (int h = 0; h < SINK_HEADS_MAX && t->dsinks[i] == dsinks; h++)
            square += t->size[i][h] * t->size[i][h];
    }
    return 4 * ldexp(1, -24) * sqrt(square);
}

static inline Status sink_terms_run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    SinkTerms *t = ex->front[level]->self;
    const AttentionSinkBwd *a = args;
    TRY(op_next(ex, level, op, args));
    if (strcmp(op->name, "attention_sink_bwd") != 0 || a->o.dtype != DTYPE_F32) return OK;
    const int64_t T = a->o.dim[1], H = a->o.dim[2], width = a->o.dim[3];
    const float *o = a->o.data, *d_o = a->d_o.data, *lse = a->lse.data, *sinks = a->sinks.data;
    double *size = sink_terms_of(t, a->dsinks.data);
    if (size == NULL || H > SINK_HEADS_MAX) return FAIL(ERR_ARG, "more sinks than are watched");
    for (int64_t i = 0; i < a->o.dim[0] * T * H; i++) {
        const int64_t token = i / H, h = i % H;
        const double p = exp((double)sinks[h] - (double)lse[(token / T * H + h) * T + token % T]);
        for (int64_t d = 0; d < width; d++)
            size[h] += fabs(p * (double)o[i * width + d] * (double)d_o[i * width + d]);
    }
    return OK;
}

/* On the CPU; of other devices nothing is seen. */
static inline void sink_terms_watch(SinkTerms *t, Exec *ex)
{
    *t = (SinkTerms){ .seen = { sink_terms_run, t } };
    if (!ex->backend->apart) exec_push(ex, &t->seen);
}

#endif
