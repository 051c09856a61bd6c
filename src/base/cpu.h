/* cpu: which instructions this processor has and the system lets a program use. cpu.c and main.c are
 * compiled for any x86-64: a processor that lacks an instruction is told so before it meets one. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of run.cpu_isa's words. As what a processor has CPU_AUTO means less than v3. */
typedef enum CpuIsa { CPU_AUTO, CPU_V3, CPU_V4 } CpuIsa;
extern const char *const cpu_isa_names[]; /* of CPU_AUTO: "x86-64" */

typedef struct Cpu {
    CpuIsa isa;     /* the most that it has */
    bool bf16, amx; /* AVX512-BF16; AMX-BF16, for which a process must ask, too (op/gemm_amx.h) */
} Cpu;

/* Registers that CPUID and XGETBV fill. */
typedef struct CpuId {
    uint32_t basic_c, extended_c, more_b, more_d, more1_a; /* leaves 1, 0x80000001, 7, 7, 7.1 */
    uint32_t saved; /* XCR0: the registers that the system saves */
} CpuId;

Cpu cpu_of(const CpuId *id);
Cpu cpu_here(void);

#endif
