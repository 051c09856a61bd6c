/*
 * cpu: which instructions this processor has and the system lets a program use.
 *
 * cpu.c and main.c are compiled for any x86-64, so that they can run before anything else does and
 * a processor that lacks an instruction is told so in a sentence.
 */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of run.cpu_isa's words. As what a processor has CPU_AUTO means less than v3. */
typedef enum CpuIsa { CPU_AUTO, CPU_V3, CPU_V4 } CpuIsa;

/* "x86-64" of CPU_AUTO, "x86-64-v3", "x86-64-v4" */
extern const char *const cpu_isa_names[];

typedef struct Cpu {
    CpuIsa isa;     /* the most that it has */
    bool bf16, amx; /* AVX512-BF16; AMX-BF16, for which a process must ask, too (op/gemm_amx.h) */
} Cpu;

/* Registers that CPUID and XGETBV fill. */
typedef struct CpuId {
    uint32_t basic_c;        /* leaf 1: ecx */
    uint32_t more_b, more_d; /* leaf 7: ebx, edx */
    uint32_t more1_a;        /* leaf 7, subleaf 1: eax */
    uint32_t extended_c;     /* leaf 0x80000001: ecx */
    uint32_t saved;          /* XCR0: the registers that the system saves */
} CpuId;

/* What such registers say. */
Cpu cpu_of(const CpuId *id);

Cpu cpu_here(void);

#endif
