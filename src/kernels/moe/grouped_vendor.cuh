/*
 * grouped_vendor: the grouped products of this build's GPU vendor. A vendor's file provides, for
 * every policy P of grouped.cuh,
 *
 *     launch(ex, op, p)                          runs the product p; P::KERNEL says by which kernel
 *     by_types<KERNEL, INDEXES>(f32, indexed, run)   calls run(KernelTypes()) for one of its kernels
 *     scaled_types<KERNEL, INDEXES, FORWARD>(e5m2, f32, indexed, run)   the same for 8-bit operands
 *     GROUPED_VENDOR_KERNELS(ENTRY)              ENTRY(name, KERNEL_VENDOR_...) for each of its kernels
 *     GROUPED_VENDOR_SCALED_KERNELS(ENTRY)       for those that take 8-bit operands
 *     GROUPED_VENDOR_NARROW_KERNELS(ENTRY)       for those that make 8-bit results
 *     dot_parts(p)                               the number of partial sums of a row's `dot`
 *
 * Which kernel runs a product is decided by the rows of product_kernels.c.
 *
 * The plain kernel of grouped.cuh runs on any GPU, so a new vendor can start with it alone.
 */
#ifndef KERNELS_MOE_GROUPED_VENDOR_CUH
#define KERNELS_MOE_GROUPED_VENDOR_CUH

#ifdef __HIP__
#include "kernels-amd/grouped.cuh"
#else
#include "kernels/moe/nv/grouped_hopper.cuh"
#endif

#endif
