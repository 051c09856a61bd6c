/* ties: how close a step's routes come to a tie, where a last bit decides which experts a token
 * goes to. */
#ifndef TESTS_HARNESS_TIES_H
#define TESTS_HARNESS_TIES_H

#include "engine/backend/backend.h"
#include "kernels/route/route.h"

#include <math.h>

/* Scores this close are a tie: sums of several ranks have been seen 2e-6 from those of one. */
static const double TIE = 1e-5;

enum { TIES_EXPERTS_MAX = 64 };

typedef struct Ties {
    Decorator seen;
    double closest; /* difference of the worst score that was chosen and the best that was not */
} Ties;

/* What the n largest of `count` keys and the next one differ by. */
static inline double ties_gap(double *key, int64_t count, int64_t n)
{
    for (int64_t i = 0; i <= n && i < count; i++) {
        for (int64_t j = i + 1; j < count; j++) {
            double most = fmax(key[i], key[j]), least = fmin(key[i], key[j]);
            key[i] = most, key[j] = least;
        }
    }
    return n < count ? key[n - 1] - key[n] : (double)INFINITY;
}

/* The gap of one token; with groups of experts that of its groups, too. */
static inline double ties_token(const RouteFwd *a, int64_t token)
{
    const RouteRule *r = &a->rule;
    int64_t E = tensor_cols(&a->logits), per = E / r->groups, open = 0;
    const float *logit = (const float *)a->logits.data + token * E, *bias = a->bias.data;
    double p[TIES_EXPERTS_MAX], group[TIES_EXPERTS_MAX] = { 0 }, sorted[TIES_EXPERTS_MAX], sum = 0;
    for (int64_t e = 0; e < E; e++) sum += exp((double)logit[e]);
    for (int64_t e = 0; e < E; e++) {
        double x = exp((double)logit[e]);
        p[e] = r->score == ROUTE_SIGMOID ? x / (1 + x) : x / sum;
        p[e] += bias == NULL ? 0 : (double)bias[e];
    }
    for (int64_t g = 0; g < r->groups; g++) {
        memcpy(sorted, p + g * per, (size_t)per * sizeof *p);
        (void)ties_gap(sorted, per, r->group_score_top);
        group[g] = 0;
        for (int64_t i = 0; i < r->group_score_top && i < per; i++) group[g] += sorted[i];
    }
    memcpy(sorted, group, (size_t)r->groups * sizeof *group);
    int64_t groups = r->groups > 1 ? r->top_groups : 1;
    double gap = ties_gap(sorted, r->groups, groups), least = sorted[groups - 1];
    for (int64_t e = 0; e < E; e++) {
        if (group[e / per] >= least) p[open++] = p[e];
    }
    return fmin(gap, ties_gap(p, open, r->top_k));
}

static inline Status ties_run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    Ties *t = ex->front[level]->self;
    TRY(op_next(ex, level, op, args));
    if (strcmp(op->name, "route_fwd") != 0) return OK;
    const RouteFwd *a = args;
    int64_t E = tensor_cols(&a->logits), n = tensor_elems(&a->logits) / E;
    if (E > TIES_EXPERTS_MAX) return FAIL(ERR_ARG, "ties of %lld experts", (long long)E);
    for (int64_t i = 0; i < n && a->pos.data == NULL; i++)
        t->closest = fmin(t->closest, ties_token(a, i));
    return OK;
}

/* On the CPU; of other devices nothing is a tie. */
static inline void ties_watch(Ties *t, Exec *ex)
{
    *t = (Ties){ .seen = { ties_run, t }, .closest = (double)INFINITY };
    if (!ex->backend->apart) exec_push(ex, &t->seen);
}

#endif
