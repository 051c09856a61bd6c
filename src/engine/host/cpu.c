/* cpu: decodes CPUID and XGETBV, on aarch64 what the kernel says of the processor. The only place that reads
 * them; ops ask the Cpu that it fills. */
#include "engine/host/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#if defined(__aarch64__)
#define CPU_LEAST "armv8-a"
#else
#define CPU_LEAST "x86-64"
#endif
const char *const cpu_isa_names[] = { CPU_LEAST, "x86-64-v3", "x86-64-v4", "armv8.2-a" };

/* The levels are those of the x86-64 psABI, the bits those of Intel's and AMD's manuals. The operating
 * system must also save a level's registers (XCR0): v3 xmm and ymm; v4 also masks and zmm; AMX tiles
 * and their shapes. */
enum { SAVED_V3 = 0x6, SAVED_V4 = 0xE6, SAVED_AMX = 0x60000, OSXSAVE = 1 << 27 };
enum { BASIC_V3 = 1 << 12 | 1 << 22 | OSXSAVE | 1 << 28 | 1 << 29 }; /* FMA MOVBE AVX F16C */
enum { LZCNT = 1 << 5, MORE_V3 = 1 << 3 | 1 << 5 | 1 << 8 };         /* BMI1 AVX2 BMI2 */
enum { BF16 = 1 << 5, AMX = 1 << 22 | 1 << 24 };                     /* AMX-BF16 AMX-TILE */
static const uint32_t MORE_V4 = 0xD0030000;                          /* F DQ CD BW VL */
/* CRC32, ATOMICS and ASIMDRDM of the kernel's elf_hwcaps: what a compiler takes of armv8.2-a and of no level before */
enum { ARM_V8_2 = 1 << 7 | 1 << 8 | 1 << 12 };

static bool has_bits(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

Cpu cpu_of(const CpuId *id)
{
    Cpu c = { .isa = CPU_AUTO };
    if (has_bits(id->arm, ARM_V8_2)) c.isa = CPU_ARMV8_2;
    bool v3 = has_bits(id->basic_c, BASIC_V3) && has_bits(id->more_b, MORE_V3) &&
              has_bits(id->extended_c, LZCNT);
    if (!v3 || !has_bits(id->saved, SAVED_V3)) return c;
    c.isa = has_bits(id->more_b, MORE_V4) && has_bits(id->saved, SAVED_V4) ? CPU_V4 : CPU_V3;
    c.bf16 = c.isa == CPU_V4 && has_bits(id->more1_a, BF16);
    c.amx = c.isa == CPU_V4 && has_bits(id->more_d, AMX) && has_bits(id->saved, SAVED_AMX);
    return c;
}

Cpu cpu_here(void)
{
    CpuId id = { 0 };
#if defined(__x86_64__)
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d)) id.basic_c = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) id.more_b = b, id.more_d = d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) id.more1_a = a;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d)) id.extended_c = c;
    if (has_bits(id.basic_c, OSXSAVE)) __asm__("xgetbv" : "=a"(id.saved), "=d"(d) : "c"(0));
#elif defined(__aarch64__)
    id.arm = (uint32_t)getauxval(AT_HWCAP);
#endif
    return cpu_of(&id);
}
