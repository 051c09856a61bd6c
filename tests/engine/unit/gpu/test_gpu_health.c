/* What NVML says becomes figures: over a table of functions that a test made. */
#include "engine/gpu/gpu_health.h"
#include "harness/test.h"

static struct {
    int refused; /* the code of all functions */
    unsigned pending, failed, generation;
    int links, up; /* links that it has; those that are up */
    int device;
} fake;

static int fake_driver(char *out, unsigned bytes)
{
    snprintf(out, bytes, "580.65.06");
    return fake.refused;
}

static int fake_limit(void *device, unsigned *out)
{
    CHECK(device == &fake.device);
    *out = 500000;
    return fake.refused;
}

static int fake_default(void *device, unsigned *out)
{
    CHECK(device == &fake.device);
    *out = 700000;
    return fake.refused;
}

static int fake_errors(void *device, int kind, int counter, unsigned long long *out)
{
    CHECK(device == &fake.device);
    *out = kind == 1 && counter == 0 ? 3 : 99; /* that could not be corrected, since the load */
    return fake.refused;
}

static int fake_remapped(void *device, unsigned *corrected, unsigned *uncorrected,
                         unsigned *pending, unsigned *failed)
{
    CHECK(device == &fake.device);
    *corrected = 7, *uncorrected = 8, *pending = fake.pending, *failed = fake.failed;
    return fake.refused;
}

static int fake_link(void *device, unsigned link, int *out)
{
    CHECK(device == &fake.device);
    *out = (int)link < fake.up;
    return (int)link < fake.links ? fake.refused : 2;
}

static int fake_generation(void *device, unsigned *out)
{
    CHECK(device == &fake.device);
    *out = fake.generation;
    return fake.refused;
}

static int fake_width(void *device, unsigned *out)
{
    CHECK(device == &fake.device);
    *out = 8;
    return fake.refused;
}

static int fake_generation_most(void *device, unsigned *out)
{
    CHECK(device == &fake.device);
    *out = 5;
    return fake.refused;
}

static int fake_width_most(void *device, unsigned *out)
{
    CHECK(device == &fake.device);
    *out = 16;
    return fake.refused;
}

static const NvmlHealth nvml = { fake_driver,          fake_limit,     fake_default,    fake_errors,
                                 fake_remapped,        fake_link,      fake_generation, fake_width,
                                 fake_generation_most, fake_width_most };

static int clear(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof fake);
    fake.links = 18, fake.up = 18, fake.generation = 4;
    return 0;
}

static void every_figure_has_its_unit(void **state)
{
    (void)state;
    GpuHealth h = gpu_health_of(&nvml, &fake.device);
    CHECK_INT(h.known, (1 << GPU_HEALTH_FIGURES) - 1);
    CHECK_TEXT(h.driver, "580.65.06");
    CHECK_NEAR(h.value[GPU_POWER_LIMIT_W], 500, 0);
    CHECK_NEAR(h.value[GPU_POWER_DEFAULT_W], 700, 0);
    CHECK_NEAR(h.value[GPU_MEMORY_ERRORS], 3, 0);
    CHECK_NEAR(h.value[GPU_REMAP_FAULTS], 0, 0);
    CHECK_NEAR(h.value[GPU_LINKS], 18, 0);
    CHECK_NEAR(h.value[GPU_PCIE_GB_S], 8 * 1.969, 1e-9);
    CHECK_NEAR(h.value[GPU_PCIE_MOST_GB_S], 16 * 3.938, 1e-9);
}

static void rows_that_fail_and_rows_that_wait_are_told_apart(void **state)
{
    (void)state;
    fake.failed = 1;
    CHECK_NEAR(gpu_health_of(&nvml, &fake.device).value[GPU_REMAP_FAULTS], 1, 0);
    fake.failed = 0, fake.pending = 1;
    CHECK_NEAR(gpu_health_of(&nvml, &fake.device).value[GPU_REMAP_FAULTS], 2, 0);
}

static void links_that_are_down_are_not_counted(void **state)
{
    (void)state;
    fake.up = 16;
    CHECK_NEAR(gpu_health_of(&nvml, &fake.device).value[GPU_LINKS], 16, 0);
    fake.links = 0;
    GpuHealth h = gpu_health_of(&nvml, &fake.device);
    CHECK(!gpu_health_knows(&h, GPU_LINKS));
}

static void what_is_refused_or_missing_is_unknown(void **state)
{
    (void)state;
    fake.refused = 4;
    GpuHealth h = gpu_health_of(&nvml, &fake.device);
    CHECK_INT(h.known, 0);
    CHECK_TEXT(h.driver, "");
    CHECK_INT(gpu_health_of(&(NvmlHealth){ 0 }, &fake.device).known, 0);
    CHECK_INT(gpu_health_read(&(GpuState){ 0 }).known, 0);
}

static void a_generation_of_the_future_is_no_read_outside(void **state)
{
    (void)state;
    fake.generation = 77;
    CHECK_NEAR(gpu_health_of(&nvml, &fake.device).value[GPU_PCIE_GB_S], 8 * 7.563, 1e-9);
}

#define CASE(name) cmocka_unit_test_setup(name, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_figure_has_its_unit),
        CASE(rows_that_fail_and_rows_that_wait_are_told_apart),
        CASE(links_that_are_down_are_not_counted),
        CASE(what_is_refused_or_missing_is_unknown),
        CASE(a_generation_of_the_future_is_no_read_outside),
    };
    return TEST_RUN(tests);
}
