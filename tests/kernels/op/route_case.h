/*
 * route_case: routing by its definition, in double: one token, one expert at a time. The choice is
 * made by looking for the largest again and again, which shares nothing with the op's way.
 */
#ifndef KERNELS_OP_ROUTE_CASE_H
#define KERNELS_OP_ROUTE_CASE_H

#include "kernels/route/route.h"

#include <math.h>
#include <stdbool.h>

enum { ROUTE_CASE_EXPERTS = 512 }; /* the most that a reference holds on the stack */

typedef struct RouteSizes {
    int64_t B, T, E;
} RouteSizes;

static inline void reference_scores(const RouteRule *r, int64_t E, const double *logits, double *p)
{
    double max = logits[0], sum = 0;
    for (int64_t e = 1; e < E; e++) max = fmax(max, logits[e]);
    for (int64_t e = 0; e < E; e++) {
        p[e] = r->score == ROUTE_SIGMOID ? 1 / (1 + exp(-logits[e])) : exp(logits[e] - max);
        sum += p[e];
    }
    for (int64_t e = 0; r->score == ROUTE_SOFTMAX && e < E; e++) p[e] /= sum;
}

/* The first largest of the entries not yet taken, which it takes. */
static inline int64_t reference_take(const double *v, bool *taken, int64_t n)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!taken[i] && (best < 0 || v[i] > v[best])) best = i;
    }
    taken[best] = true;
    return best;
}

/* closed[e]: expert e is in none of the best groups. */
static inline void reference_groups(const RouteRule *r, int64_t E, const double *choice,
                                    bool *closed)
{
    int64_t per = E / r->groups;
    double score[ROUTE_CASE_EXPERTS];
    bool taken[ROUTE_CASE_EXPERTS] = { false }, open[ROUTE_CASE_EXPERTS] = { false };
    for (int64_t g = 0; g < r->groups; g++) {
        score[g] = 0;
        for (int64_t i = 0; i < r->group_score_top; i++) {
            score[g] += choice[g * per + reference_take(choice + g * per, taken + g * per, per)];
        }
    }
    bool best[ROUTE_CASE_EXPERTS] = { false };
    for (int64_t i = 0; i < r->top_groups; i++) open[reference_take(score, best, r->groups)] = true;
    for (int64_t e = 0; e < E; e++) closed[e] = !open[e / per];
}

static inline void reference_choose(const RouteRule *r, int64_t E, const double *p,
                                    const float *bias, int32_t *index)
{
    double choice[ROUTE_CASE_EXPERTS];
    bool taken[ROUTE_CASE_EXPERTS] = { false };
    for (int64_t e = 0; e < E; e++) choice[e] = p[e] + (bias == NULL ? 0 : (double)bias[e]);
    if (r->groups > 1) reference_groups(r, E, choice, taken);
    for (int64_t k = 0; k < r->top_k; k++) index[k] = (int32_t)reference_take(choice, taken, E);
}

static inline void reference_weights(const RouteRule *r, const double *p, const int32_t *index,
                                     double *weight)
{
    double sum = 1e-20;
    for (int64_t k = 0; k < r->top_k; k++) sum += p[index[k]];
    for (int64_t k = 0; k < r->top_k; k++) {
        weight[k] = p[index[k]] * (double)r->scaling / (r->normalise ? sum : 1);
    }
}

/* n_ge of the group that sequence b belongs to. */
static inline double reference_count(const RouteRule *r, const RouteSizes *s, const int32_t *index,
                                     int64_t b, int64_t e)
{
    double n = 0;
    for (int64_t t = 0; t < s->B * s->T; t++) {
        if (!r->aux_per_batch && t / s->T != b) continue;
        for (int64_t k = 0; k < r->top_k; k++) n += index[t * r->top_k + k] == e;
    }
    return n;
}

/* aux_scale * sum over g of E / (K T_g) * sum over e of n_ge P_ge, for a choice already made. */
static inline double reference_aux(const RouteRule *r, const RouteSizes *s, const double *logits,
                                   const int32_t *index)
{
    double loss = 0, tokens = (double)(r->aux_per_batch ? s->B * s->T : s->T);
    for (int64_t b = 0; b < s->B; b++) {
        double n[ROUTE_CASE_EXPERTS];
        for (int64_t e = 0; e < s->E; e++) n[e] = reference_count(r, s, index, b, e);
        for (int64_t t = b * s->T; t < (b + 1) * s->T; t++) {
            double p[ROUTE_CASE_EXPERTS], sum = 0;
            reference_scores(r, s->E, logits + t * s->E, p);
            for (int64_t e = 0; e < s->E; e++) sum += p[e];
            for (int64_t e = 0; e < s->E; e++) loss += n[e] * p[e] / sum / tokens;
        }
    }
    return (double)r->aux_scale * (double)s->E / ((double)r->top_k * tokens) * loss;
}

/* z_scale * sum over tokens of log(sum of e^logit)^2 */
static inline double reference_z(const RouteRule *r, const RouteSizes *s, const double *logits)
{
    double loss = 0;
    for (int64_t n = 0; n < s->B * s->T; n++) {
        double sum = 0;
        for (int64_t e = 0; e < s->E; e++) sum += exp(logits[n * s->E + e]);
        loss += log(sum) * log(sum);
    }
    return (double)r->z_scale * loss;
}

#endif
