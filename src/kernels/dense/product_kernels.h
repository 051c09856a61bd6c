/* product_kernels: the tables of candidates for matrix products on a GPU. The untyped call of a
 * dense candidate is a DenseCall, that of a grouped one a GroupedCall. */
#ifndef KERNELS_DENSE_PRODUCT_KERNELS_H
#define KERNELS_DENSE_PRODUCT_KERNELS_H

#include "kernels/core/kernels.h"
#include "kernels/dense/product.h"
#include "kernels/moe/moe_product.h"
#include "kernels/optimizer/muon_square.h"

extern const KernelTable dense_kernels, moe_product_kernels, moe_weight_kernels;
extern const KernelTable scaled_kernels; /* dense, of 8-bit operands: calls are ScaledCalls */
extern const KernelTable moe_scaled_product_kernels, moe_scaled_weight_kernels; /* 8-bit */
extern const KernelTable moe_narrow_product_kernels; /* 8-bit results, too */
extern const KernelTable muon_square_kernels;

/* DENSE_WORKSPACE: a constant, so that a plan needs no library to know it. */
size_t dense_workspace(const void *call);

GroupedCall muon_square_call(const MuonSquare *s);
GroupedCall moe_product_call(const MoeProduct *p);
GroupedCall moe_sum_call(const MoeSum *s);
/* The candidates for a product of rows, or for a sum over rows. */
const KernelTable *grouped_kernels(const GroupedCall *c, bool sums);

#endif
