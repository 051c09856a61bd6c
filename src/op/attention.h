/*
 * attention: o = softmax(scale * q k^T + mask) v, causal, inside documents.
 *
 * Query i of Tq stands at key position i + Tk - Tq (so with a cache, the queries are the last ones)
 * and sees keys doc[i] .. its own position; doc[i] is the position of the first token of its
 * document, so packed documents do not see each other. Without doc it sees from key 0 on. With a
 * window it sees no more than its own key and the window - 1 before it (Mistral 7B,
 * arXiv:2310.06825); with chunks, no key before the chunk of the sequence in which it stands (Llama
 * 4). Time and cost fall with both: tiles that no query sees are skipped.
 *
 * Keys may come in blocks, one call each. A call takes the result over the blocks before (o in f32,
 * and lse) and gives the result that includes its own keys. Backward adds up dq in the same way;
 * each block takes o and lse over all keys. A row that has seen no key has o = 0, lse = -infinity
 * and no gradient. If a sequence is cut over ranks, queries and keys are two pieces of it each.
 * Head h uses key/value head h * G / H. Computed block by block with a running maximum, as in
 * FlashAttention (arXiv:2205.14135, 2307.08691): no (T, T) matrix is kept. lse = log of the sum of
 * exponentials (natural log, of scaled scores) is kept for backward.
 *
 *   backward, p = exp(scale * q k^T - lse), delta_i = sum_d do_i * o_i:
 *     dv = p^T do,   ds = p * (do v^T - delta),   dq = scale * ds k,   dk = scale * ds^T q
 * dk and dv are summed over the H / G heads that share them.
 */
#ifndef OP_ATTENTION_H
#define OP_ATTENTION_H

#include "base/tensor.h"
#include "op/kinds.h"

#include <stdbool.h>

/* q and k are two pieces of a sequence each, one behind the other. A query sees the keys at its own
 * position and before it. */
typedef struct AttentionPieces {
    int64_t length;     /* tokens of a piece; Tq = Tk = 2 length. 0: the sequence is not cut */
    int64_t q[2], k[2]; /* where the pieces begin in the sequence, ascending */
} AttentionPieces;

typedef struct AttentionFwd {
    Tensor q;   /* in  (B, Tq, H, dk) act */
    Tensor k;   /* in  (B, Tk, G, dk) act, Tk >= Tq */
    Tensor v;   /* in  (B, Tk, G, dv) act */
    Tensor doc; /* in  (B, Tq) i32, optional */
    Tensor o;   /* out (B, Tq, H, dv) act or f32 */
    Tensor lse; /* out (B, H, Tq) f32 */
    /* in, optional: the result over earlier blocks of keys, f32; may be o and lse */
    Tensor o_before, lse_before;
    float scale;
    AttentionPieces pieces;
    AttentionKernel kernel;
    int64_t window, chunk; /* tokens; 0: none */
} AttentionFwd;

typedef struct AttentionBwd {
    Tensor d_o;        /* in (B, T, H, dv) act; "do" is a keyword */
    Tensor q, k, v;    /* in, Tq = Tk */
    Tensor doc;        /* in, optional */
    Tensor o, lse;     /* in */
    Tensor dq, dk, dv; /* out, like q, k, v; dq may be f32 */
    /* in, optional: sums to which dq (f32), dk and dv (act) are added; may be the outputs
     * themselves */
    Tensor dq_before, dk_before, dv_before;
    float scale;
    AttentionPieces pieces;
    AttentionKernel kernel;
    int64_t window, chunk; /* as in forward */
    /* atomics may add up dq: faster, with less workspace, but with other bits in each run */
    bool any_order;
} AttentionBwd;

/*
 * A sink is a trained logit s of a head. It takes part in the softmax of each of the head's rows and
 * has no value (gpt-oss; Xiao et al., arXiv:2309.17453). The op works on the results of
 * attention_fwd over all keys, and attention_bwd is given what it leaves:
 *   lse' = log(e^lse + e^s),  o' = o e^(lse - lse'),  ds = - sum over rows of e^(s - lse') (do . o')
 */
typedef struct AttentionSinkFwd {
    Tensor sinks;  /* in  (H) f32 */
    Tensor o, lse; /* in and out: (B, T, H, dv) act, (B, H, T) f32 */
} AttentionSinkFwd;

typedef struct AttentionSinkBwd {
    Tensor d_o, o; /* in  (B, T, H, dv) act; o: o' */
    Tensor lse;    /* in  (B, H, T) f32; lse' */
    Tensor sinks;  /* in  (H) f32 */
    Tensor dsinks; /* add (H) f32 */
} AttentionSinkBwd;

#define OPS_ATTENTION
#include "op/declare.h"
#undef OPS_ATTENTION

#endif
