/* op_kernels: which candidates (kernels/core/kernels.h) an op's call has, for code that lists them. Running
 * an op does not need this file. */
#ifndef WHY_OP_KERNELS_H
#define WHY_OP_KERNELS_H

#include "kernels/core/kernels.h"

/* what: which of the op's products it is; "" if the op has one. asked: as in kernels_first. */
typedef Status KernelVisit(void *self, const char *what, const KernelTable *t, int asked,
                           const void *call);

/* Visits each product, or attention, of the call. Ops with a single kernel have nothing to visit. */
Status op_kernels_visit(OpId id, const void *args, KernelVisit *visit, void *self);

/* A table's title in docs and its rows. */
typedef struct OpKernels {
    const char *title;
    const KernelTable *table;
} OpKernels;

enum { OP_KERNELS = 9 };
extern const OpKernels op_kernels[OP_KERNELS];

#endif
