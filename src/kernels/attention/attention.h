/*
 * attention: o = softmax(scale * q k^T + mask) v, causal, inside documents.
 *
 * Query i of Tq stands at key position i + Tk - Tq (so with a cache, the queries are the last ones) and sees the keys
 * from doc[i] to its own position. doc[i] is the position of the first token of its document, so packed documents do
 * not see each other. Without doc it sees all keys from 0 on. With a window it sees its own key and the window - 1 keys
 * before it (Mistral 7B, arXiv:2310.06825). With chunks it sees no key before its own chunk of the sequence (Llama 4).
 * Time and cost fall with both: tiles that no query sees are skipped.
 *
 * Keys may come in blocks, one call each. A call takes the result over earlier blocks (o in f32,
 * and lse) and returns the result that includes its own keys. Backward adds up dq in the same way;
 * each of its calls takes o and lse over all keys. A row that has seen no key has o = 0, lse =
 * -infinity and no gradient. Context parallelism cuts a sequence over ranks: then a call's queries
 * are two pieces of it, and so are its keys.
 *
 * Query head h uses key/value head h * G / H. Tiles are worked on with a running maximum, as in
 * FlashAttention (arXiv:2205.14135, 2307.08691), so no (T, T) matrix is kept. Forward keeps lse for
 * backward: the natural logarithm of the sum of exponentials of scaled scores.
 *
 *   backward, p = exp(scale * q k^T - lse), delta_i = sum_d do_i * o_i:
 *     dv = p^T do,   ds = p * (do v^T - delta),   dq = scale * ds k,   dk = scale * ds^T q
 * dk and dv are summed over the H / G heads that share them.
 *
 * 8-bit forward (e4m3): both products read e4m3 numbers and add in f32. Scales are powers of two that map the largest
 * magnitude below 448, as in quant.h: one for a row of q, one for a head's 128 keys (from a multiple of 128 on) of k,
 * one for those of v. Keys are walked in these blocks. p = exp(s - running max) is rounded as 2^8 p; its sum, and so
 * lse, takes p before that. One scale for 128 keys costs nothing next to one for each: e4m3 has 18 binades. It depends
 * on keys that a query may not see, by which only numbers below 2^-14 of the largest change. Backward is the same with
 * and without: it reads q, k and v as they are, and o and lse of this forward pass.
 *
 * Not here: positions (rope.h), projections (linear.h), the exchange of keys between ranks (engine/model/attention.c).
 */
#ifndef KERNELS_ATTENTION_ATTENTION_H
#define KERNELS_ATTENTION_ATTENTION_H

#include "engine/base/tensor.h"
#include "kernels/attention/attention_pieces.h"
#include "kernels/core/kinds.h"

#include <stdbool.h>

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
    bool e4m3;             /* the 8-bit forward; on a GPU by a kernel of its own */
} AttentionFwd;

typedef struct AttentionBwd {
    Tensor d_o;        /* in (B, T, H, dv) act; "do" is a keyword */
    Tensor q, k, v;    /* in, Tq = Tk */
    Tensor doc;        /* in, optional */
    Tensor o, lse;     /* in */
    Tensor dq, dk, dv; /* out, like q, k, v; dq may be f32 */
    /* in, optional: sums to which dq (f32), dk and dv (act) are added; may be the outputs themselves */
    Tensor dq_before, dk_before, dv_before;
    float scale;
    AttentionPieces pieces;
    AttentionKernel kernel;
    int64_t window, chunk; /* as in forward */
} AttentionBwd;

/*
 * A sink is a trained logit s of a head. It takes part in the softmax of each of the head's rows
 * and has no value (gpt-oss; Xiao et al., arXiv:2309.17453). The op changes the results of
 * attention_fwd over all keys in place. attention_bwd then reads o' and lse':
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

/*
 * attention_max: the largest scaled logit of each head in a call, where it is above a threshold, for QK-clip
 * (kernels/optimizer/qk_clip.h). It is nearly free: the lse of a row is at least each of its logits. Only blocks of
 * rows compute logits in which an lse is above the threshold and above the head's maximum so far. So the result is
 * exact where it is above the threshold; else it stays what it was, in any order of calls. lse has rounding errors,
 * hence LSE_SLACK. After 8-bit attention lse is of rounded queries and keys, and logits are those of the numbers before
 * that: rounding may hide a logit that is near the threshold.
 */
typedef struct AttentionMax {
    /* in: the call that has run: q, k, doc, masks, scale, and lse over these keys, and maybe over
     * others or a sink. Nothing else of it is read. */
    AttentionFwd of;
    Tensor max; /* add (H) f32, 0 or above: the largest of it and of logits above `above` */
    float above;
} AttentionMax;

/* Of an lse: far above its rounding error, and too small to compute many rows in vain. */
#define LSE_SLACK 0x1p-10f

#define OPS_ATTENTION
#include "kernels/core/declare.h"
#undef OPS_ATTENTION

#endif
