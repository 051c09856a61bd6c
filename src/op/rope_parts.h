/* rope_parts: what rope copies and rotates, as one list for both layouts (MLA, GQA), both
 * directions and both backends. */
#ifndef OP_ROPE_PARTS_H
#define OP_ROPE_PARTS_H

#include "base/tensor.h"
#include "op/rope_dims.h"

enum { ROPE_PARTS = 5 };

/* `n` columns of each of `count` heads. Forward moves them from a row of the wide side (q, kv,
 * k_rope; qkv) to a row of the heads' side (q_out, k_out, v_out); backward moves them the other
 * way. They are rotated (turned), scaled by position (tempered), or copied. wide_step 0: all heads
 * share the same columns of the wide side, whose gradient is the sum over heads. */
typedef struct RopePart {
    const Tensor *wide, *heads;
    int64_t wide_col, wide_step, heads_col, heads_step; /* of head 0; from head to head */
    int64_t count, n;
    bool turned, tempered;
} RopePart;

typedef struct Rope {
    const char *op;
    const RopeMlaDims *mla; /* one of these two is NULL */
    const RopeGqaDims *gqa;
    const Tensor *pos, *cos, *sin;
    bool back, interleaved; /* back: backward, with the opposite angle */
    RopePart part[ROPE_PARTS];
} Rope;

#endif
