/* What CPUID's words say, and which set of CPU ops a processor gets. */
#include "harness/test.h"

#include "kernels/core/cpu_set.h"

/* A Zen 5's. */
static const CpuId zen5 = { .basic_c = 0x7ED8320B,
                            .more_b = 0xF1BF97A9,
                            .more_d = 0x10000110,
                            .more1_a = 0x30,
                            .extended_c = 0x75C237FF,
                            .saved = 0xE7 };

static void a_processor_has_a_level(void **state)
{
    (void)state;
    CpuId id = zen5;
    Cpu c = cpu_of(&id);
    CHECK_INT(c.isa, CPU_V4);
    CHECK(c.bf16 && !c.amx);
    id.more_d |= 1u << 22 | 1u << 24;
    CHECK(!cpu_of(&id).amx); /* the system saves no tiles */
    id.saved |= 0x60000;
    CHECK(cpu_of(&id).amx);
    id.more1_a = 0;
    CHECK(!cpu_of(&id).bf16);
}

/* One bit is missing: of the processor, or of what the system saves. */
static void each_bit_of_a_level_counts(void **state)
{
    (void)state;
    static const int basic[] = { 12, 22, 27, 28, 29 }, v3[] = { 3, 5, 8 };
    static const int v4[] = { 16, 17, 28, 30, 31 };
    for (int i = 0; i < 5; i++) {
        CpuId less = zen5, low = zen5;
        less.more_b &= ~(1u << v4[i]);
        CHECK_INT(cpu_of(&less).isa, CPU_V3);
        CHECK(!cpu_of(&less).bf16);
        low.basic_c &= ~(1u << basic[i]);
        CHECK_INT(cpu_of(&low).isa, CPU_AUTO);
    }
    for (int i = 0; i < 3; i++) {
        CpuId low = zen5;
        low.more_b &= ~(1u << v3[i]);
        CHECK_INT(cpu_of(&low).isa, CPU_AUTO);
    }
    CpuId id = zen5;
    id.saved = 0x7;
    CHECK_INT(cpu_of(&id).isa, CPU_V3);
    id.saved = 0x3;
    CHECK_INT(cpu_of(&id).isa, CPU_AUTO);
    id = zen5, id.extended_c = 0;
    CHECK_INT(cpu_of(&id).isa, CPU_AUTO);
    CHECK_INT(cpu_of(&(CpuId){ 0 }).isa, CPU_AUTO);
}

/* An Ampere Altra's, then without each bit that a build for armv8.2-a needs. */
static void each_bit_of_aarch64_counts(void **state)
{
    (void)state;
    const CpuId altra = { .arm = 0x119FFF };
    CHECK_INT(cpu_of(&altra).isa, CPU_ARMV8_2);
    CHECK(!cpu_of(&altra).bf16 && !cpu_of(&altra).amx);
    static const int bits[] = { 7, 8, 12 };
    for (int i = 0; i < 3; i++)
        CHECK_INT(cpu_of(&(CpuId){ .arm = altra.arm & ~(1u << bits[i]) }).isa, CPU_AUTO);
}

/* A set of another architecture is in no build, also where its place in the enum is lower. */
static void a_level_of_another_architecture_is_refused(void **state)
{
    (void)state;
    const bool arm = op_set_base.isa == CPU_ARMV8_2;
    const Cpu here = { .isa = arm ? CPU_ARMV8_2 : CPU_V4 };
    const OpSet *set = NULL;
    CHECK_FAILS(op_set_find(arm ? CPU_V3 : CPU_ARMV8_2, &here, &set), ERR_UNSUPPORTED,
                arm ? "run.cpu_isa=x86-64-v3: this build does not have it"
                    : "run.cpu_isa=armv8.2-a: this processor does not have it");
}

/* The kernel lists what it found; it knows nothing of levels. */
static void this_processor_is_what_the_kernel_says(void **state)
{
    (void)state;
    static char line[1 << 14];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL && strncmp(line, "flags", 5) != 0) {}
    if (f == NULL) skip();
    (void)fclose(f);
    bool v3 = strstr(line, " avx2 ") != NULL && strstr(line, " fma ") != NULL;
    bool v4 = v3 && strstr(line, " avx512vl ") != NULL && strstr(line, " avx512dq ") != NULL;
    if (op_set_base.isa == CPU_ARMV8_2)
        skip(); /* under an emulator that is the file of the machine below */
    CHECK_INT(cpu_here().isa, v4 ? CPU_V4 : v3 ? CPU_V3 : CPU_AUTO);
    CHECK_INT(cpu_here().bf16, v4 && strstr(line, " avx512_bf16 ") != NULL);
}

static void a_processor_gets_the_best_set_or_the_one_asked_for(void **state)
{
    (void)state;
    const Cpu v3 = { .isa = CPU_V3 }, v4 = { .isa = CPU_V4 };
    const OpSet *set = NULL, *best = NULL;
    if (op_set_base.isa == CPU_ARMV8_2) skip();
    CHECK_OK(op_set_find(CPU_AUTO, &v4, &best));
    CHECK(best->isa >= op_set_base.isa);
    CHECK_OK(op_set_find(op_set_base.isa, &v4, &set));
    CHECK_INT(set->isa, op_set_base.isa);
    if (best->isa != CPU_V4 || op_set_base.isa != CPU_V3) skip(); /* one set, as with sanitizers */
    CHECK_OK(op_set_find(CPU_V4, &v4, &set));
    CHECK_INT(set->isa, CPU_V4);
    CHECK_OK(op_set_find(CPU_AUTO, &v3, &set));
    CHECK_INT(set->isa, CPU_V3);
    CHECK_FAILS(op_set_find(CPU_V4, &v3, &set), ERR_UNSUPPORTED,
                "run.cpu_isa=x86-64-v4: this processor does not have it; auto takes the best");
    CHECK_FAILS(op_set_find(CPU_AUTO, &(Cpu){ 0 }, &set), ERR_UNSUPPORTED,
                "run.cpu_isa=auto: this build does not have it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_processor_has_a_level),
        TEST(each_bit_of_a_level_counts),
        TEST(each_bit_of_aarch64_counts),
        TEST(a_level_of_another_architecture_is_refused),
        TEST(this_processor_is_what_the_kernel_says),
        TEST(a_processor_gets_the_best_set_or_the_one_asked_for),
    };
    return TEST_RUN(tests);
}
