#include "base/cpu.h"

#include <stddef.h>

const char *const cpu_isa_names[] = { "x86-64", "x86-64-v3", "x86-64-v4" };

/* Bits of Intel's and AMD's manuals (CPUID). The levels are those of the x86-64 psABI. */
enum {
    BASIC_V3 = 1 << 12 | 1 << 22 | 1 << 27 | 1 << 28 | 1 << 29, /* FMA MOVBE OSXSAVE AVX F16C */
    MORE_V3 = 1 << 3 | 1 << 5 | 1 << 8,                         /* BMI1 AVX2 BMI2 */
    EXTENDED_V3 = 1 << 5,                                       /* LZCNT */
    SAVED_V3 = 0x6,                                             /* xmm, ymm */
    SAVED_V4 = 0xE6,                                            /* masks and zmm, too */
    SAVED_AMX = 0x60000,                                        /* tiles and their shapes */
    BF16 = 1 << 5,
    AMX = 1 << 22 | 1 << 24 /* AMX-BF16, AMX-TILE */
};
static const uint32_t MORE_V4 =
    1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31; /* F DQ CD BW VL */

static bool all(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

Cpu cpu_of(const CpuId *id)
{
    Cpu c = { .isa = CPU_AUTO };
    if (!all(id->basic_c, BASIC_V3) || !all(id->more_b, MORE_V3)) return c;
    if (!all(id->extended_c, EXTENDED_V3) || !all(id->saved, SAVED_V3)) return c;
    c.isa = CPU_V3;
    if (!all(id->more_b, MORE_V4) || !all(id->saved, SAVED_V4)) return c;
    c.isa = CPU_V4;
    c.bf16 = all(id->more1_a, BF16);
    c.amx = all(id->more_d, AMX) && all(id->saved, SAVED_AMX);
    return c;
}

#if defined(__x86_64__)

#include <cpuid.h>

Cpu cpu_here(void)
{
    CpuId id = { 0 };
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) id.basic_c = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) id.more_b = b, id.more_d = d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) id.more1_a = a;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) id.extended_c = c;
    if (all(id.basic_c, 1 << 27)) __asm__("xgetbv" : "=a"(id.saved), "=d"(d) : "c"(0));
    return cpu_of(&id);
}

#else

Cpu cpu_here(void) { return (Cpu){ .isa = CPU_AUTO }; }

#endif
