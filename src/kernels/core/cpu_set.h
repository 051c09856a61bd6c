/*
 * cpu_set: the CPU implementations of all ops, compiled for one instruction set. A run uses one set
 * for all of its ops (run.cpu_isa).
 *
 * The files that compute are compiled once for each set (Makefile: SETS). Each set but the first is linked into one
 * object that exports only its OpSet, so code of a set calls functions of that set. Vector widths differ, and with them
 * the order of sums: results of two sets agree to rounding, not in bits.
 */
#ifndef KERNELS_CORE_CPU_SET_H
#define KERNELS_CORE_CPU_SET_H

#include "engine/host/cpu.h"
#include "kernels/core/op.h"
#include "kernels/dense/gemm.h"

typedef struct OpCpu {
    OpSpace *workspace; /* NULL: none */
    OpRun *run;
} OpCpu;

typedef struct OpSet {
    CpuIsa isa;      /* what it was compiled for; CPU_AUTO: less than v3 */
    const OpCpu *op; /* by OpId */
    Status (*gemm_make)(Arena *a, const Cpu *cpu,
                        Gemm **out); /* of kernels/dense/gemm.h, as are these */
    size_t (*gemm_workspace)(const Exec *ex, const GemmArgs *g);
    Status (*gemm_run)(Exec *ex, const GemmArgs *g, void *workspace);
} OpSet;

extern const OpSet op_set_base, op_set_v4; /* base: compiled like the rest of the program */

/* Finds the set for `asked`; CPU_AUTO: the best one that the processor supports. ERR_UNSUPPORTED:
 * the processor or this build lacks it. */
Status op_set_find(CpuIsa asked, const Cpu *cpu, const OpSet **out);

enum { OP_SET_TEXT_BYTES = 32 };
/* "x86-64-v4"; with `bf16` also the instructions that multiply bf16: "x86-64-v4, AMX-BF16". "" on a GPU. */
void op_set_text(const Exec *ex, bool bf16, char out[OP_SET_TEXT_BYTES]);

#endif
