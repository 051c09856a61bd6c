/*
 * blas: C = op(A) op(B) + beta C on the GPU, row-major, in f32 or bf16 with f32 sums (no TF32),
 * by the vendor's library of matrix products (nv/blas.cu: cuBLASLt). Used inside ops only.
 *
 * Which algorithm a shape takes is decided once and kept (op/choices.h), so that a shape has one
 * order of sums for the life of the process, and of the run if its choices go into the checkpoint.
 * Candidates are the library's proposals that neither split k nor use atomics. Normally the first is
 * taken. While tuning, every candidate runs on the operands of the call, and the fastest is taken.
 * If r is c, the product is then added more than once, and the call waits for the GPU; so tuning is
 * for a step whose results nobody needs, outside of a capture. If the library has no proposal, it
 * refuses the product, and the next kernel runs (product_kernels.c).
 *
 * Otherwise a call waits for nothing and allocates nothing: its descriptors stand on the stack, its
 * scratch is the caller's DENSE_WORKSPACE bytes.
 */
#ifndef OP_BLAS_CUH
#define OP_BLAS_CUH

#include "op/kernel.cuh"

extern "C" {
#include "op/choices.h"
#include "op/product.h"

/* A grouped product, launched in the one of n tile shapes that is on record (choices.h), or else in
 * the first. While tuning, one without a record is timed in all of them; what it adds to is then
 * added to more than once. */
typedef Status GroupedLaunch(struct Exec *ex, const char *op, const void *product);
Status grouped_run(struct Exec *ex, const char *op, const ChoiceKey *key, const int *shape,
                   GroupedLaunch *const *launch, int n, const void *product);
}

#endif
