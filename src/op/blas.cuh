/*
 * blas: C = op(A) op(B) + beta C on the GPU, row-major, in f32 or bf16 with f32 sums (no TF32),
 * by the vendor's library of matrix products (nv/blas.cu: cuBLASLt). Used inside ops only.
 *
 * The algorithm of a shape is chosen once and kept (op/choices.h). So a shape has one order of sums
 * for the life of the process, and of the run if its choices go into the checkpoint. Candidates are
 * the library's proposals that neither split k nor use atomics. Normally the first one is used. If
 * the library has no proposal, it refuses the product, and the next kernel runs
 * (product_kernels.c).
 *
 * While tuning, every candidate runs on the operands of the call, and the fastest is used. If r is
 * c, the product is then added more than once, and the call waits for the GPU. So tune only in a
 * step whose results are not needed, outside of a capture.
 *
 * Without tuning a call waits for nothing and allocates nothing: its descriptors are on the stack,
 * its scratch is the caller's DENSE_WORKSPACE bytes.
 */
#ifndef OP_BLAS_CUH
#define OP_BLAS_CUH

#include "op/kernel.cuh"

extern "C" {
#include "op/choices.h"
#include "op/product.h"

/* Launches a grouped product with the recorded one of its n tile shapes (choices.h), or else with
 * the first. While tuning, a product without a record is timed with all shapes; a product that adds
 * to its result then adds more than once. */
typedef Status GroupedLaunch(struct Exec *ex, const char *op, const void *product);
Status grouped_run(struct Exec *ex, const char *op, const ChoiceKey *key, const int *shape,
                   GroupedLaunch *const *launch, int n, const void *product);
}

#endif
