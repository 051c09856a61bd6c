/* delta_call: what launchers of delta/ share: sizes of a call, and the end of backward. */
#ifndef KERNELS_DELTA_DELTA_CALL_CUH
#define KERNELS_DELTA_DELTA_CALL_CUH

#include "kernels/delta/delta.cuh"
#include "kernels/delta/delta.h"

static inline DeltaShape delta_shape(const Tensor *x, const Tensor *qkv, const Tensor *doc,
                                     const DeltaDims *d, int64_t sequence, const int64_t first[2])
{
    DeltaShape s = {};
    s.rows = x->dim[0], s.sequence = sequence;
    s.x_cols = tensor_row_elems(x), s.qkv_cols = tensor_row_elems(qkv);
    s.key_heads = (int)d->key_heads, s.heads = (int)d->heads;
    s.shared = (int)delta_shared(d), s.key = (int)d->key, s.value = (int)d->value;
    s.head_cols = 2 * (d->key + delta_shared(d) * d->value);
    s.doc = (const int32_t *)doc->data;
    s.first[0] = first[0], s.first[1] = first[1];
    return s;
}

/* That of the rule. */
static inline DeltaShape delta_rule_shape(const DeltaRuleFwd *f)
{
    DeltaShape s = delta_shape(&f->x, &f->qkv, &f->doc, &f->dims, f->sequence, f->first);
    s.given = f->state.data != NULL;
    return s;
}

/* From slopes (rows, H, 2), the gradients of b and of log alpha, at the beginning of a workspace of delta_finish_bytes:
 * b and a of dx, and what is added to ddecay. */
size_t delta_finish_bytes(const DeltaRuleFwd *f);
Status delta_finish(struct Exec *ex, const DeltaRuleBwd *b, float *slopes);

#endif
