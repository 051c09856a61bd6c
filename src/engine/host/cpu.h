/* cpu: which instructions this processor has and the operating system lets a program use. cpu.c and
 * main.c are compiled for any x86-64 or aarch64, so that an older processor gets an error sentence and not an
 * illegal instruction. */
#ifndef ENGINE_HOST_CPU_H
#define ENGINE_HOST_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of the words of run.cpu_isa. In Cpu.isa, CPU_AUTO means that the processor has less than the
 * first level of its architecture: v3 on x86-64, armv8.2-a on aarch64. */
typedef enum CpuIsa { CPU_AUTO, CPU_V3, CPU_V4, CPU_ARMV8_2 } CpuIsa;
extern const char *const cpu_isa_names[]; /* of CPU_AUTO: "x86-64" or "armv8-a" */

typedef struct Cpu {
    CpuIsa isa; /* the highest level that it has */
    bool bf16,
        amx; /* AVX512-BF16; AMX-BF16, which a process must request first (kernels/dense/gemm_amx.h) */
} Cpu;

/* Registers that CPUID and XGETBV fill; on aarch64 only `arm`. */
typedef struct CpuId {
    uint32_t basic_c, extended_c, more_b, more_d, more1_a; /* leaves 1, 0x80000001, 7, 7, 7.1 */
    uint32_t saved; /* XCR0: the registers that the system saves */
    uint32_t arm;   /* AT_HWCAP of aarch64's kernel */
} CpuId;

Cpu cpu_of(const CpuId *id); /* pure, for tests */
Cpu cpu_here(void);          /* this processor */

#endif
