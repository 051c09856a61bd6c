/*
 * gemm: C = op(A) op(B) + beta C on the CPU, row-major, in f32, bf16 or f16 with f32 sums. It is the one
 * place where large matrix products are computed, and is used inside ops only. Attention has small
 * products of its own (attention_tile.h).
 *
 * Inside an OpenMP parallel region a call runs on the calling thread alone; outside it uses ex->threads. Results depend
 * neither on the number of threads nor on timing, and a row of C does not depend on the number of rows. All memory of a
 * call is the caller's workspace. The heap is touched only once: when the first call makes OpenMP create its threads.
 *
 * bf16 instructions treat subnormal numbers (below 2^-126) as zero.
 */
#ifndef KERNELS_DENSE_GEMM_H
#define KERNELS_DENSE_GEMM_H

#include "engine/base/tensor.h"
#include "engine/host/cpu.h"

#include <stdbool.h>

struct Exec;
typedef struct Gemm {
    bool amx, pairs; /* the bf16 instructions that are used */
} Gemm;

/* A matrix in memory: ld elements between its rows; f32, bf16 or f16. */
typedef struct GemmOperand {
    const void *at;
    Dtype type;
    int64_t ld;
    bool turned; /* op() is the transpose */
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

/* A part of a product, as a product of its own: rows [first, first + n) of C, or terms [first,
 * first + n) of the sums along k. Terms are added to C, except that the first ones keep beta. */
GemmArgs gemm_rows(GemmArgs g, int64_t first, int64_t n);
GemmArgs gemm_terms(GemmArgs g, int64_t first, int64_t n);

Status gemm_make(Arena *a, const Cpu *cpu, Gemm **out);

/* Scratch bytes that gemm_run needs for these sizes and types; pointers in g are not read. */
size_t gemm_workspace(const struct Exec *ex, const GemmArgs *g);
Status gemm_run(struct Exec *ex, const GemmArgs *g, void *workspace);

/* "AVX512-BF16", or "AMX-BF16" (gemm_amx.h); "": bf16 is converted to f32. */
const char *gemm_bf16(const Gemm *g);

#endif
