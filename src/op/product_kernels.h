/* product_kernels: the candidates for matrix products on a GPU. A dense call is a DenseCall, a grouped one a
 * GroupedCall. */
#ifndef OP_PRODUCT_KERNELS_H
#define OP_PRODUCT_KERNELS_H

#include "op/kernels.h"
#include "op/moe_product.h"
#include "op/product.h"

extern const KernelTable dense_kernels, moe_product_kernels, moe_weight_kernels;

GroupedCall moe_product_call(const MoeProduct *p);
GroupedCall moe_sum_call(const MoeSum *s);

#endif
