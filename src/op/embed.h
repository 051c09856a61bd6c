/*
 * embed: the embedding look-up and its gradient.
 *
 *   forward    h[n] = table[id[n]]
 *   backward   dtable[id[n]] += dh[n], in the order of n for each id: bits do not depend on threads
 *
 * The loader never gives an id outside [0, V). On the CPU such an id is an error before anything is
 * read or written. A GPU cannot report it: there the row of h becomes NaN, and the gradient is
 * dropped.
 */
#ifndef OP_EMBED_H
#define OP_EMBED_H

#include "base/tensor.h"

typedef struct EmbedFwd {
    Tensor id;    /* in  (N) i32 */
    Tensor table; /* in  (V, D) act */
    Tensor h;     /* out (N, D) act */
} EmbedFwd;

typedef struct EmbedBwd {
    Tensor id;     /* in  (N) i32 */
    Tensor dh;     /* in  (N, D) act */
    Tensor dtable; /* add (V, D) f32 */
} EmbedBwd;

#define OPS_EMBED
#include "op/declare.h"
#undef OPS_EMBED

#endif
