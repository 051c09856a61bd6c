/*
 * embed: the embedding look-up and its gradient.
 *
 *   forward    h[n] = table[id[n]]
 *   backward   dtable[id[n]] += dh[n], in the order of n for each id: bits do not depend on threads
 *
 * Ranks may split the table: each has the rows of ids [first, first + V) of `vocab`. Ids of other ranks' rows give a
 * row of zeros in forward and nothing in backward. So the sum of all ranks' h is the look-up in the whole table.
 *
 * The loader never gives an id outside [0, vocab). On the CPU such an id is an error before anything is read or
 * written. A GPU cannot report it: there the row of h becomes NaN, and the gradient is dropped.
 */
#ifndef KERNELS_HEAD_EMBED_H
#define KERNELS_HEAD_EMBED_H

#include "engine/base/tensor.h"

typedef struct EmbedFwd {
    Tensor id;     /* in  (N) i32 */
    Tensor table;  /* in  (V, D) act */
    Tensor h;      /* out (N, D) act */
    int64_t first; /* id of the table's first row */
    int64_t vocab; /* rows of the whole table; 0: this is all of it */
} EmbedFwd;

typedef struct EmbedBwd {
    Tensor id;     /* in  (N) i32 */
    Tensor dh;     /* in  (N, D) act */
    Tensor dtable; /* add (V, D) f32 */
    int64_t first; /* id of dtable's first row */
    int64_t vocab; /* as in EmbedFwd */
} EmbedBwd;

#define OPS_EMBED
#include "kernels/core/declare.h"
#undef OPS_EMBED

#endif
