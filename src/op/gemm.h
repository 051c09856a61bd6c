/*
 * gemm: C = op(A) op(B) + beta C on the CPU, row-major, in f32 or bf16 with f32 sums: the one place
 * where matrix products are computed. Used inside ops only.
 *
 * Called from inside an OpenMP parallel region it runs on the calling thread alone; outside it uses
 * ex->threads. Results depend neither on the number of threads nor on timing, and a row of C does
 * not depend on the number of rows. A call's memory is the caller's workspace: after the first call
 * on ex->threads, which makes OpenMP's threads, the heap is never touched, whatever the shapes.
 *
 * bf16 instructions take subnormal numbers, below 2^-126, for zero.
 */
#ifndef OP_GEMM_H
#define OP_GEMM_H

#include "base/cpu.h"
#include "base/tensor.h"

#include <stdbool.h>

struct Exec;
typedef struct Gemm {
    bool amx, pairs; /* the bf16 instructions that are used */
} Gemm;

/* A matrix in memory: ld elements between its rows; f32 or bf16. */
typedef struct GemmOperand {
    const void *at;
    Dtype type;
    int64_t ld;
    bool turned; /* its transpose is multiplied */
} GemmOperand;

typedef struct GemmResult {
    void *at;
    Dtype type;
    int64_t ld;
} GemmResult;

typedef struct GemmArgs {
    int64_t m, n, k;
    GemmOperand a, b; /* op(A) (m, k) and op(B) (k, n), of one type */
    GemmResult c;     /* (m, n) */
    float beta;       /* 0 or 1 */
} GemmArgs;

/* A part of a product as a product: n rows of C from `first` on; or n terms of the sums, which are
 * added to C unless they are the first terms. */
GemmArgs gemm_rows(GemmArgs g, int64_t first, int64_t n);
GemmArgs gemm_terms(GemmArgs g, int64_t first, int64_t n);

Status gemm_make(Arena *a, const Cpu *cpu, Gemm **out);

/* Scratch bytes that gemm_run wants for these sizes and types (pointers are not read). */
size_t gemm_workspace(const struct Exec *ex, const GemmArgs *g);
Status gemm_run(struct Exec *ex, const GemmArgs *g, void *workspace);

/* "AVX512-BF16", or "AMX-BF16" (gemm_amx.h); "": bf16 is converted to f32. */
const char *gemm_bf16(const Gemm *g);

#endif
