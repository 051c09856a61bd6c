/*
 * attention_merge: sums over blocks of keys, for a kernel whose call is one of several (mesh.cp).
 *
 * The fused kernel works on a rectangle of the call (attention_pieces.h) and writes a part: o, dq,
 * dk or dv in bf16, only the rectangle's rows, contiguous. Sums are in f32.
 */
#ifndef KERNELS_ATTENTION_ATTENTION_MERGE_CUH
#define KERNELS_ATTENTION_ATTENTION_MERGE_CUH

#include "kernels/core/kernel.cuh"

extern "C" {
#include "kernels/attention/attention.h"
}

/* Merges o and lse over earlier keys with a part's, weighted by their lse (attention_merge). */
typedef struct AttentionJoin {
    AttentionRect rect;
    const Bf16 *part;                    /* (B, rect.Tq, H, dv) */
    const float *part_lse;               /* (B, H, rect.Tq) */
    const Tensor *o_before, *lse_before; /* may have no data; may be o and lse */
    const Tensor *o, *lse;               /* out (B, Tq, H, dv) act or f32, (B, H, Tq) f32 */
} AttentionJoin;

Status attention_join(struct Exec *ex, const AttentionJoin *x);

/* out = before + part. Rows outside the part are those of `before`, or 0. */
typedef struct AttentionSum {
    const Bf16 *part; /* (B, rows, heads, d): out's rows from `first` on; NULL: already in out */
    int64_t first, rows;
    const Tensor *before, *out; /* (B, T, heads, d); before may have no data, or be out */
} AttentionSum;

enum { ATTENTION_SUMS = 3 };

Status attention_sums(struct Exec *ex, const AttentionSum x[ATTENTION_SUMS]);

#endif
