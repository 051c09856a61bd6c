/* op_kernels: which candidates (op/kernels.h) a call of an op has, for whoever wants to list them. Ops
 * themselves do not come here. */
#ifndef OP_OP_KERNELS_H
#define OP_OP_KERNELS_H

#include "op/kernels.h"

/* what: the product among several of an op's; "" if there is one. asked as in kernels_first. */
typedef Status KernelVisit(void *self, const char *what, const KernelTable *t, int asked,
                           const void *call);

/* Visits each product of the call. An op that has one kernel alone has none. */
Status op_kernels_visit(OpId id, const void *args, KernelVisit *visit, void *self);

/* A table's title in docs and its rows. */
typedef struct OpKernels {
    const char *title;
    const KernelTable *table;
} OpKernels;

enum { OP_KERNELS = 3 };
extern const OpKernels op_kernels[OP_KERNELS];

#endif
