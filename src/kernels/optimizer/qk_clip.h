/*
 * qk_clip: QK-clip (Kimi K2, arXiv:2507.20534, section 2.1). It bounds the logits of attention by scaling weights after
 * an update. Of each layer and head h, with m_h the largest scaled logit of a step and tau the threshold:
 *
 *   gamma_h = min(1, tau / m_h),   g = the least gamma of the heads that share h's key head
 *   rows of queries   gamma_h / sqrt(g)      rows of keys   sqrt(g)
 *
 * So each head's logits are scaled by gamma_h, and those of heads below tau not at all. Without
 * groups both factors are sqrt(gamma_h), as in the paper. A group's heads share a key, so a head of a
 * larger gamma gets longer queries for it. Megatron-LM scales all heads of a group by g instead. In
 * mla all heads share the rotated key, which stays: rotated rows of queries are scaled by gamma_h.
 *
 * attention_max (kernels/attention/attention.h) finds m_h; where it is not above tau it may be 0.
 *
 * qk_clip scales this rank's part of a matrix, and the copy that products read. Nothing changes if
 * `clip` is not finite: the step was skipped. Moments stay as they are.
 */
#ifndef KERNELS_OPTIMIZER_QK_CLIP_H
#define KERNELS_OPTIMIZER_QK_CLIP_H

#include "engine/base/tensor.h"
#include "kernels/attention/attention_pieces.h"

/* Which rows of a matrix are scaled: those of the query heads come first, then those of the key
 * heads. Rows behind them stay. */
typedef struct QkRows {
    int64_t heads, kv_heads;
    int64_t queries, keys; /* numbers of rows; 0: the matrix has none */
    int64_t width;         /* rows of a head */
    /* The first rows of a head, for which query and key are both scaled. The others are scaled by
     * gamma in queries, and not at all in keys. */
    int64_t both;
    /* Of a matrix that ranks of tp split, whose heads these are: heads of all ranks, the ranks' different
     * parts of the key heads, and the number of this rank's first head. 0: this rank has all. */
    int64_t all_heads, key_parts, first_head;
} QkRows;

typedef struct QkClip {
    Tensor w;      /* add (n) f32: elements [first, first + n) of a matrix */
    Tensor low;    /* add (n) bf16 or f16, optional: the rounded weights that products read */
    Tensor max;    /* in  (all H) f32: of attention_max, over all ranks */
    Tensor clip;   /* in  (1) f32 */
    int64_t first; /* in the matrix */
    int64_t cols;  /* of the matrix */
    QkRows rows;
    float above;
} QkClip;

ATTENTION_SHARED float qk_gamma(float max, float above) { return max > above ? above / max : 1; }

ATTENTION_SHARED int64_t qk_heads(const QkRows *r)
{
    return r->all_heads > 0 ? r->all_heads : r->heads;
}

/* The factor on a row of the matrix; exactly 1 where nothing is clipped. */
ATTENTION_SHARED float qk_factor(const QkRows *r, const float *max, float above, int64_t row)
{
    bool query = row < r->queries;
    int64_t at = query ? row : row - r->queries;
    if (!query && at >= r->keys) return 1;
    int64_t own = at / r->width,
            head = r->first_head + (query ? own : own * r->heads / r->kv_heads);
    int64_t group = qk_heads(r) / (r->kv_heads * (r->key_parts > 1 ? r->key_parts : 1));
    const float *sharing = max + head / group * group;
    float largest = 0, gamma = query ? qk_gamma(max[head], above) : 1;
    if (at % r->width >= r->both) return gamma;
    for (int64_t i = 0; i < group; i++) largest = fmaxf(largest, sharing[i]);
    float key = sqrtf(qk_gamma(largest, above));
    return query ? gamma / key : key;
}

#define OPS_QK_CLIP
#include "kernels/core/declare.h"
#undef OPS_QK_CLIP

#endif
