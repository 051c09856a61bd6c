/*
 * attention_merge: kernels before and after a library's fused attention, where one call is split
 * into calls over blocks of keys (mesh.cp). Before: each row's first key and lse. After: sums over
 * blocks. The attention itself is not here.
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

/* Computes what the fused kernel reads for the rectangle's rows. */
typedef struct AttentionRows {
    AttentionPieces pieces;
    AttentionRect rect;
    int64_t B, H, Tq;      /* Tq: of the call */
    int64_t window, chunk; /* as in the call */
    const int32_t *doc;    /* (B, Tq) in the sequence, or NULL */
    const float *lse;      /* (B, H, Tq), or NULL: not wanted */
    /* out (B, rect.Tq) or NULL: the first of the rectangle's keys that a row sees */
    int32_t *rect_doc;
    float *rect_lse; /* out (B, H, rect.Tq); 0 for rows that see no key at all */
} AttentionRows;

Status attention_rows(struct Exec *ex, const AttentionRows *x);

/* Merges o and lse over earlier keys with a part's, weighted by their lse (attention_merge). */
typedef struct AttentionJoin {
    AttentionRect rect;
    const Bf16 *part;      /* (B, rect.Tq, H, dv) */
    const float *part_lse; /* (B, H, rect.Tq) */
    /* AttentionRows.rect_doc or NULL: a row of rect.Tk sees no key, and its part is not read. */
    const int32_t *part_doc;
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
