/*
 * route_margin: by how much each token chose an expert or left it, and the bias that gives every
 * expert its fair share (quantile balancing: Kimi K3's report; Megatron-LM #5349).
 *
 * Let c_te = p_te + bias_e, what route_fwd compares. With all other biases fixed, token t takes
 * expert e if c_te is above the K-th largest of the other experts' c. So its margin is
 *   d_te = (K-th largest c_tj over j != e) - c_te
 *        = (K+1)-th largest of all - c_te  if t chose e,   K-th largest of all - c_te  if not.
 * If bias_e moved by x alone, e would get the tokens with d_te < x. Its fair share is K / E of the
 * tokens. So x is the (K/E)-quantile of d_e over all tokens of the step. All biases move at once:
 *   bias_e += rate * (x_e - mean(x))
 * rate damps the step. Two experts that compete for the same tokens would each close the whole gap,
 * so at rate 1 their loads may swing for ever; at 1/2 both meet in the middle. The mean is taken off
 * because a common shift changes no choice, and its random walk would cost digits.
 *
 * Differences to the sources: K3 takes the (K+1)-th largest for all experts, moves the biases the
 * whole way, and cuts the range of scores into bins of equal width.
 *
 * Margins are counted in bins, so sums over ranks and micro-batches are sums of integers: the same
 * bits in any order. A margin near 0 matters most and scores may be as small as 1 / E. So bins are
 * equal in ratio, not in width: the float's exponent and its next two bits, from 2^-15 to 2, for
 * each sign. A quantile lies inside its bin as if the margins in it were spread evenly.
 */
#ifndef KERNELS_ROUTE_ROUTE_MARGIN_H
#define KERNELS_ROUTE_ROUTE_MARGIN_H

#include "kernels/route/route.h"

#include <string.h>

#if defined(__CUDACC__) || defined(__HIP__)
#define MARGIN_SHARED static inline __host__ __device__
#else
#define MARGIN_SHARED static inline
#endif

enum {
    MARGIN_BINS = 128,       /* the first half: below 0, chosen */
    MARGIN_SIDE = 64,        /* of one sign */
    MARGIN_LEAST = 112 << 2, /* the bits of 2^-15 above a float's lowest 21 */
};

typedef struct RouteMargins {
    Tensor logits;  /* in  (N, E) f32 */
    Tensor bias;    /* in  (1, E) f32 */
    Tensor index;   /* in  (N, K) i32, K < E: what route_fwd chose, without groups */
    Tensor target;  /* in  (N) i32, optional: a token below 0 is padding and not counted */
    Tensor margins; /* add (E, MARGIN_BINS) i32 */
    RouteScore score;
} RouteMargins;

/* The bin of a margin whose sign is known: chosen means below 0. */
MARGIN_SHARED int margin_bin(float margin, bool chosen)
{
    uint32_t bits;
    memcpy(&bits, &margin, sizeof bits);
    int step = (int)(bits << 1 >> 22) - MARGIN_LEAST;
    step = step < 0 ? 0 : step;
    step = step < MARGIN_SIDE ? step : MARGIN_SIDE - 1;
    return chosen ? MARGIN_SIDE - 1 - step : MARGIN_SIDE + step;
}

/* The least margin of bin i; bin MARGIN_BINS ends at 2. */
MARGIN_SHARED float margin_edge(int i)
{
    int step = i < MARGIN_SIDE ? MARGIN_SIDE - i : i - MARGIN_SIDE;
    uint32_t bits = step == 0 ? 0 : (uint32_t)(MARGIN_LEAST + step) << 21;
    float edge;
    memcpy(&edge, &bits, sizeof edge);
    return i < MARGIN_SIDE ? -edge : edge;
}

/* The (K/E)-quantile of one expert's margins; 0 if there are none. Comparisons are of integers. */
MARGIN_SHARED float margin_quantile(const int32_t *bin, int64_t K, int64_t E)
{
    int64_t tokens = 0, before = 0;
    int i = 0;
    for (int j = 0; j < MARGIN_BINS; j++) tokens += bin[j];
    if (tokens == 0) return 0;
    while ((before + bin[i]) * E < tokens * K) before += bin[i++];
    float into = (float)(tokens * K - before * E) / (float)(bin[i] * E);
    return margin_edge(i) + into * (margin_edge(i + 1) - margin_edge(i));
}

#define OPS_ROUTE_MARGIN
#include "kernels/core/declare.h"
#undef OPS_ROUTE_MARGIN

#endif
