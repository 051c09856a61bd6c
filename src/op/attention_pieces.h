/*
 * attention_pieces: which keys of a call its queries see, said once for all implementations, and
 * what fused kernels need to take a call over pieces of a sequence as one rectangle of scores.
 *
 * Rank c of cp has pieces c and 2 cp - 1 - c. Against the keys of its own rank, both in order, the
 * queries see what they would in a sequence of two pieces: one causal square. Of an earlier rank's
 * keys both pieces of queries see the first piece whole and the second not at all; of a later
 * rank's keys the first piece of queries sees none and the second all. So each block of keys is one
 * call, either causal or without a mask, and each has the same number of pairs but for the own
 * block's diagonal.
 */
#ifndef OP_ATTENTION_PIECES_H
#define OP_ATTENTION_PIECES_H

#include "op/attention.h"

#include <math.h>

#ifdef __CUDACC__
#define ATTENTION_SHARED static inline __host__ __device__
#else
#define ATTENTION_SHARED static inline
#endif

/* Queries [q, q + Tq) and keys [k, k + Tk) of a call. Causal: Tq = Tk, and query q + i sees keys k
 * to k + i; else each sees each. Other pairs of the call are hidden. */
typedef struct AttentionRect {
    int64_t q, Tq, k, Tk;
    bool causal;
} AttentionRect;

/* The rectangle of a call of Tq queries and Tk keys. False: it sees none, *out is the whole call. */
bool attention_rect(const AttentionPieces *p, int64_t Tq, int64_t Tk, AttentionRect *out);

/* Where query i stands in the sequence. */
ATTENTION_SHARED int64_t attention_position(const AttentionPieces *p, int64_t Tq, int64_t Tk,
                                            int64_t i)
{
    if (p->length == 0) return i + Tk - Tq;
    return i < p->length ? p->q[0] + i : p->q[1] + i - p->length;
}

/* Where the first key that a query at `at` sees stands, if its document begins at `doc`. */
ATTENTION_SHARED int64_t attention_first_seen(int64_t window, int64_t chunk, int64_t doc,
                                              int64_t at)
{
    int64_t first = doc < at ? doc : at;
    if (chunk > 0 && first < at - at % chunk) first = at - at % chunk;
    return window > 0 && first <= at - window ? at - window + 1 : first;
}

ATTENTION_SHARED int64_t attention_clamped(int64_t n, int64_t most)
{
    return n < 0 ? 0 : n < most ? n : most;
}

/* How many of the call's keys stand before a position of the sequence. */
ATTENTION_SHARED int64_t attention_keys_before(const AttentionPieces *p, int64_t Tk,
                                               int64_t position)
{
    if (p->length == 0) return attention_clamped(position, Tk);
    return attention_clamped(position - p->k[0], p->length) +
           attention_clamped(position - p->k[1], p->length);
}

/* The first of the rectangle's keys in a document that begins at `doc`; rect->Tk: none. */
ATTENTION_SHARED int64_t attention_first_key(const AttentionPieces *p, const AttentionRect *rect,
                                             int64_t doc)
{
    return attention_clamped(attention_keys_before(p, rect->k + rect->Tk, doc) - rect->k, rect->Tk);
}

/* The weights of two results over disjoint keys in the result over both, and its lse. */
typedef struct AttentionMerge {
    float before, part, lse;
} AttentionMerge;

/* lse = log(e^before + e^part), weights e^(lse_i - lse). -infinity: no key, weight 0. */
ATTENTION_SHARED AttentionMerge attention_merge(float before, float part)
{
    float most = before > part ? before : part;
    AttentionMerge none = { 0, 0, -INFINITY };
    if (before == -INFINITY && part == -INFINITY) return none;
    float b = expf(before - most), p = expf(part - most), sum = b + p;
    AttentionMerge m = { b / sum, p / sum, most + logf(sum) };
    return m;
}

#endif
