/* rope_parts: what rope copies and rotates, as one list for both layouts (MLA, GQA), both
 * directions and both backends. */
#ifndef KERNELS_ATTENTION_ROPE_PARTS_H
#define KERNELS_ATTENTION_ROPE_PARTS_H

#include "kernels/attention/rope_dims.h"
#include "kernels/quant/quant.h"

enum { ROPE_PARTS = 5, ROPE_QUANTS = 2 };

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

/* 8-bit copies of a tensor of the wide side, backward. quant NULL: there is none. */
typedef struct RopeQuant {
    const Tensor *plain;
    const QuantOut *quant;
    const char *port;
} RopeQuant;

typedef struct Rope {
    const char *op;
    const RopeMlaDims *mla; /* one of these two is NULL */
    const RopeGqaDims *gqa;
    const Tensor *pos, *cos, *sin;
    bool back, interleaved; /* back: backward, with the opposite angle */
    RopePart part[ROPE_PARTS];
    RopeQuant out[ROPE_QUANTS];
} Rope;

/* Is a tensor of the wide side given, or made in the workspace for its copies? */
static inline bool rope_wants(const Rope *r, const Tensor *wide)
{
    for (const RopeQuant *q = r->out; q < r->out + ROPE_QUANTS; q++)
        if (q->plain == wide && q->quant != NULL && quant_out_wanted(q->quant)) return true;
    return wide->data != NULL;
}

/* Replaces what has copies by plain[], which lies in the workspace where it is not given. `bytes`
 * is quant_out_workspace of the backend; space[] is where each part of the workspace begins. */
static inline void rope_open(const struct Exec *ex, Rope *r, char *workspace, Tensor *plain,
                             char **space,
                             size_t (*bytes)(const struct Exec *, const QuantOut *, const Tensor *))
{
    for (int i = 0; i < ROPE_QUANTS; i++) {
        RopeQuant *q = &r->out[i];
        if (q->quant == NULL) continue;
        space[i] = workspace;
        workspace += bytes(ex, q->quant, q->plain);
        plain[i] = quant_out_open(q->quant, *q->plain, space[i]);
        for (int k = 0; k < ROPE_PARTS; k++)
            if (r->part[k].wide == q->plain) r->part[k].wide = &plain[i];
        q->plain = &plain[i];
    }
}

#endif
