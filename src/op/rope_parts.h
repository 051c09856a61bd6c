/* rope_parts: what rope moves and turns, as one list for both layouts (MLA, GQA) and both
 * directions, for both backends. */
#ifndef OP_ROPE_PARTS_H
#define OP_ROPE_PARTS_H

#include "op/rope.h"

enum { ROPE_PARTS = 5 };

/* `n` columns of each of `count` heads, which go from a row of the wide side (q, kv, k_rope; qkv)
 * to a row of the heads' side (q_out, k_out, v_out), or backward from there: turned, or as they
 * are. wide_step 0: the heads share one piece, whose gradient is their sum. */
typedef struct RopePart {
    const Tensor *wide, *heads;
    int64_t wide_col, wide_step, heads_col, heads_step; /* of head 0; from head to head */
    int64_t count, n;
    bool turned, tempered;
} RopePart;

typedef struct Rope {
    const char *op;
    const RopeMlaDims *mla; /* of these two one is NULL */
    const RopeGqaDims *gqa;
    const Tensor *pos, *cos, *sin;
    bool back, interleaved;
    RopePart part[ROPE_PARTS];
} Rope;

#endif
