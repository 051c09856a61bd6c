/*
 * grouped_vendor: the grouped products of this build's GPU vendor. A vendor's file provides, for
 * every policy P of grouped.cuh,
 *
 *     launch(ex, op, p)                          runs the product p; P::KERNEL says by which kernel
 *     by_types<KERNEL, INDEXES>(f32, indexed, run)   calls run(KernelTypes()) for one of its kernels
 *     GROUPED_VENDOR_KERNELS(ENTRY)              ENTRY(name, KERNEL_VENDOR_...) for each of its kernels
 *     dot_parts(p)                               how many partial sums of a row's `dot` launch leaves
 *
 * Which of them multiplies is decided by the rows of product_kernels.c.
 *
 * The plain kernel of grouped.cuh runs on any GPU: a vendor may begin with it alone. A second
 * vendor's folder is chosen here.
 */
#ifndef OP_GROUPED_VENDOR_CUH
#define OP_GROUPED_VENDOR_CUH

#include "op/nv/grouped_hopper.cuh"

#endif
