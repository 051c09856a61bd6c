/*
 * blas: C = op(A) op(B) + beta C on the GPU, row-major, in f32 or bf16 with f32 sums (no TF32):
 * the one place that knows cuBLASLt. Used inside ops only.
 *
 * Which algorithm a shape takes is asked once and kept, so that a shape has one order of sums for
 * the life of the process: the first of cuBLASLt's proposals that neither splits k nor uses
 * atomics. The store is bounded; what it forgets is chosen again, and alike, since the choice
 * depends on nothing but the shape, the types and how pointers are aligned. Where cuBLASLt has no
 * proposal the kernel of gemm_plain.cuh runs.
 *
 * A call waits for nothing and allocates nothing: its descriptors stand on the stack, its scratch
 * is the caller's BLAS_WORKSPACE_BYTES.
 */
#ifndef OP_BLAS_CUH
#define OP_BLAS_CUH

#include "op/kernel.cuh"

extern "C" {
#include "op/gemm.h"

struct Blas;

Status cuda_blas_make(Arena *a, struct Blas **out);
void cuda_blas_free(struct Blas *b); /* safe on NULL */
struct Blas *exec_blas(struct Exec *ex);

/* r: what is added where g->beta is 1, of c's type and layout; NULL: c itself. a_type and b_type
 * are equal. */
Status blas_run(struct Exec *ex, const GemmArgs *g, const void *r, void *workspace);
}

static const size_t BLAS_WORKSPACE_BYTES = (size_t)32 << 20;

#endif
