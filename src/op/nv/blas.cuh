/*
 * blas: C = op(A) op(B) + beta C on the GPU, row-major, in f32 or bf16 with f32 sums (no TF32):
 * the one place that knows cuBLASLt. Used inside ops only.
 *
 * Which algorithm a shape takes is decided once and kept (op/choices.h), so that a shape has one
 * order of sums for the life of the process, and of the run if its choices go into the checkpoint.
 * Candidates are cuBLASLt's proposals that neither split k nor use atomics. Normally the first is
 * taken. While tuning, every candidate runs on the operands of the call, and the fastest is taken.
 * If r is c, the product is then added more than once, and the call waits for the GPU; so tuning is
 * for a step whose results nobody needs, outside of a capture. If cuBLASLt has no proposal,
 * it refuses the product (dense_cublaslt).
 *
 * Otherwise a call waits for nothing and allocates nothing: its descriptors stand on the stack, its
 * scratch is the caller's DENSE_WORKSPACE bytes.
 */
#ifndef OP_NV_BLAS_CUH
#define OP_NV_BLAS_CUH

#include "op/kernel.cuh"

extern "C" {
#include "op/choices.h"
#include "op/product.h"

struct Blas;

/* cudnn: the version of cuDNN, 0 for none. A run's bits depend on it, too, so it is part of the
 * machine's name. */
Status cuda_blas_make(Arena *a, size_t cudnn, struct Blas **out);
void cuda_blas_free(struct Blas *b); /* safe on NULL */
struct Blas *exec_blas(struct Exec *ex);

/* Both take NULL, which an Exec has that only counts. */
struct Choices *blas_choices(struct Blas *b);
Status blas_tune(struct Blas *b, bool on);

/* A grouped product, launched in the one of n tile shapes that is on record (choices.h), or else in
 * the first. While tuning, one without a record is timed in all of them; what it adds to is then
 * added to more than once, as by blas_run. */
typedef Status GroupedLaunch(struct Exec *ex, const char *op, const void *product);
Status grouped_run(struct Exec *ex, const char *op, const ChoiceKey *key, const int *shape,
                   GroupedLaunch *const *launch, int n, const void *product);
}

#endif
