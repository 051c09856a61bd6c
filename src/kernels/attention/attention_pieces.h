/*
 * attention_pieces: which keys of a call its queries see, defined once for all implementations. It
 * also finds the one rectangle of scores as which a fused kernel can run a call over pieces.
 *
 * Under context parallelism rank c of cp holds pieces c and 2 cp - 1 - c of each sequence:
 *
 *     keys of              queries of the first piece   queries of the second piece
 *     this rank            causal square over both pieces
 *     an earlier rank      its first piece              its first piece
 *     a later rank         none                         both its pieces
 *
 * So each block of keys is one call, either causal or without a mask. All blocks have the same
 * number of pairs, except for the diagonal of a rank's own block: the load is even.
 */
#ifndef KERNELS_ATTENTION_ATTENTION_PIECES_H
#define KERNELS_ATTENTION_ATTENTION_PIECES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIP__)
#define ATTENTION_SHARED static inline __host__ __device__
#else
#define ATTENTION_SHARED static inline
#endif

/* Where a call's tokens stand in a sequence that is cut over ranks: rows of q are two pieces of it,
 * one after the other, and so are rows of k. A query sees keys at its position and before it. */
typedef struct AttentionPieces {
    int64_t length;     /* tokens of a piece; Tq = Tk = 2 length. 0: the sequence is not cut */
    int64_t q[2], k[2]; /* where the pieces begin in the sequence, ascending */
} AttentionPieces;

/* Queries [q, q + Tq) and keys [k, k + Tk) of a call. Causal: Tq = Tk, and query q + i sees keys k
 * to k + i. Otherwise each query sees each key. All other pairs of the call are hidden. */
typedef struct AttentionRect {
    int64_t q, Tq, k, Tk;
    bool causal;
} AttentionRect;

/* The rectangle of a call of Tq queries and Tk keys. False: its scores are no such rectangle, and
 * *out is the whole call. */
bool attention_rect(const AttentionPieces *p, int64_t Tq, int64_t Tk, AttentionRect *out);

/* Position of query i in the sequence. */
ATTENTION_SHARED int64_t attention_position(const AttentionPieces *p, int64_t Tq, int64_t Tk,
                                            int64_t i)
{
    if (p->length == 0) return i + Tk - Tq;
    return i < p->length ? p->q[0] + i : p->q[1] + i - p->length;
}

/* Position of the first key that a query at position `at` sees, if its document begins at `doc`. */
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

/* Number of the call's keys that stand before `position` in the sequence. */
ATTENTION_SHARED int64_t attention_keys_before(const AttentionPieces *p, int64_t Tk,
                                               int64_t position)
{
    if (p->length == 0) return attention_clamped(position, Tk);
    return attention_clamped(position - p->k[0], p->length) +
           attention_clamped(position - p->k[1], p->length);
}

/* Index of the first of the rectangle's keys at or after `doc`, the begin of a document; rect->Tk: there is none. */
ATTENTION_SHARED int64_t attention_first_key(const AttentionPieces *p, const AttentionRect *rect,
                                             int64_t doc)
{
    return attention_clamped(attention_keys_before(p, rect->k + rect->Tk, doc) - rect->k, rect->Tk);
}

/* How two results over disjoint sets of keys merge: o = before * o_before + part * o_part. */
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
