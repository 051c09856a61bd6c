/* embed: h[n] = table[id[n]], and its gradient: dtable[id[n]] += dh[n], summed in the order of n
 * for each id, so that the bits do not depend on threads. An id outside [0, V) is the loader's
 * fault; it is an error here too, before anything is read or written. A GPU cannot report it: there
 * the row of h is NaN, and the gradient is dropped. */
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
