/* What NVML says becomes figures and words: over a table of functions that a test made. */
#include "engine/gpu/gpu_state.h"
#include "harness/test.h"

static const char HERE[] = "0000:19:00.0";

/* What the made-up driver answers, and how often it was started and stopped. */
static struct {
    int init, find, clock, power, temperature, throttle; /* codes */
    unsigned long long mask;
    int started, stopped;
    int device;
} fake;

static int fake_init(void)
{
    fake.started += fake.init == 0;
    return fake.init;
}

static int fake_shutdown(void)
{
    fake.stopped++;
    return 0;
}

static const char *fake_text(int code) { return code == 3 ? "Not Supported" : "Unknown Error"; }

static int fake_find(const char *bus_id, void **out)
{
    if (fake.find != 0 || strcmp(bus_id, HERE) != 0) return 6;
    *out = &fake.device;
    return 0;
}

static int fake_clock(void *device, int domain, unsigned *out)
{
    CHECK(device == &fake.device);
    if (fake.clock != 0) return fake.clock;
    *out = domain == 1 ? 1755 : domain == 2 ? 2619 : 0;
    return 0;
}

static int fake_power(void *device, unsigned *out)
{
    CHECK(device == &fake.device);
    *out = 698250;
    return fake.power;
}

static int fake_temperature(void *device, int sensor, unsigned *out)
{
    CHECK(device == &fake.device && sensor == 0);
    *out = 61;
    return fake.temperature;
}

static int fake_throttle(void *device, unsigned long long *out)
{
    CHECK(device == &fake.device);
    *out = fake.mask;
    return fake.throttle;
}

static GpuState fake_state(void)
{
    memset(&fake, 0, sizeof fake);
    return (GpuState){ .nvml = { fake_init, fake_shutdown, fake_text, fake_find, fake_clock,
                                 fake_power, fake_temperature, fake_throttle } };
}

static void a_reading_has_every_figure_in_its_unit(void **state)
{
    (void)state;
    GpuState g = fake_state();
    CHECK_OK(nvml_find(&g, HERE));
    fake.mask = 0x24;
    GpuReading r = gpu_state_read(&g);
    CHECK_INT(r.known, (1 << GPU_FIGURES) - 1);
    CHECK_NEAR(r.value[GPU_CLOCK_MHZ], 1755, 0);
    CHECK_NEAR(r.value[GPU_MEMORY_CLOCK_MHZ], 2619, 0);
    CHECK_NEAR(r.value[GPU_POWER_W], 698.25, 1e-9);
    CHECK_NEAR(r.value[GPU_TEMPERATURE_C], 61, 0);
    CHECK_INT(r.throttle, 0x24);
    gpu_state_close(&g);
    CHECK_INT(fake.started, 1);
    CHECK_INT(fake.stopped, 1);
}

static void what_the_driver_refuses_is_not_known(void **state)
{
    (void)state;
    int *const code[] = { &fake.power, &fake.temperature, &fake.throttle };
    static const GpuFigure figure[] = { GPU_POWER_W, GPU_TEMPERATURE_C, GPU_THROTTLE };
    for (int i = 0; i < 3; i++) {
        GpuState g = fake_state();
        CHECK_OK(nvml_find(&g, HERE));
        fake.mask = 4;
        *code[i] = 3;
        GpuReading r = gpu_state_read(&g);
        CHECK_INT(r.known, ((1 << GPU_FIGURES) - 1) & ~(1 << figure[i]));
        CHECK(i < 2 || r.throttle == 0);
    }
    GpuState g = fake_state();
    CHECK_OK(nvml_find(&g, HERE));
    fake.clock = 3;
    GpuReading r = gpu_state_read(&g);
    CHECK(!gpu_knows(&r, GPU_CLOCK_MHZ) && !gpu_knows(&r, GPU_MEMORY_CLOCK_MHZ));
    CHECK(gpu_knows(&r, GPU_POWER_W));
}

static void a_function_that_is_not_there_is_not_called(void **state)
{
    (void)state;
    GpuState g = fake_state();
    g.nvml.clock = NULL, g.nvml.power = NULL;
    g.nvml.temperature = NULL, g.nvml.throttle = NULL;
    CHECK_OK(nvml_find(&g, HERE));
    CHECK_INT(gpu_state_read(&g).known, 0);
}

static void without_a_driver_or_the_gpu_nothing_is_known(void **state)
{
    (void)state;
    GpuState g = fake_state();
    fake.init = 9;
    CHECK_FAILS(nvml_find(&g, HERE), ERR_UNSUPPORTED, "Unknown Error");
    CHECK_INT(gpu_state_read(&g).known, 0);
    g = fake_state();
    CHECK_FAILS(nvml_find(&g, "0000:1a:00.0"), ERR_UNSUPPORTED, "0000:1a:00.0");
    CHECK_INT(gpu_state_read(&g).known, 0);
    CHECK_INT(fake.stopped, 1);
    gpu_state_close(&g);
    CHECK_INT(fake.stopped, 1);
}

static void a_missing_library_or_function_is_named(void **state)
{
    (void)state;
    GpuState g;
    CHECK_FAILS(nvml_load("libnone-such.so.1", &g), ERR_UNSUPPORTED, "libnone-such.so.1");
    CHECK_FAILS(nvml_load("libc.so.6", &g), ERR_UNSUPPORTED, "libc.so.6 has no function nvmlInit");
    CHECK(g.library == NULL);
    /* whatever this machine has, no GPU is there: a warning, and training goes on */
    gpu_state_open(&g, "ffff:ff:1f.7");
    CHECK(g.library == NULL);
    CHECK_INT(gpu_state_read(&g).known, 0);
    gpu_state_close(&g);
}

/* The numbers are nvml.h's: nvmlClocksEventReason*. */
static void reasons_become_words(void **state)
{
    (void)state;
    static const char *const word[] = { "idle",        "applications_clocks", "sw_power_cap",
                                        "hw_slowdown", "sync_boost",          "sw_thermal",
                                        "hw_thermal",  "hw_power_brake",      "display_clocks",
                                        "other" };
    const char *out[GPU_REASONS_MAX];
    CHECK_INT(gpu_throttle_words(0, out), 0);
    for (int bit = 0; bit < 64; bit++) {
        CHECK_INT(gpu_throttle_words((uint64_t)1 << bit, out), 1);
        CHECK_TEXT(out[0], word[bit < 9 ? bit : 9]);
    }
    CHECK_INT(gpu_throttle_words(0x64, out), 3);
    CHECK_TEXT(out[0], "sw_power_cap");
    CHECK_TEXT(out[1], "sw_thermal");
    CHECK_TEXT(out[2], "hw_thermal");
    CHECK_INT(gpu_throttle_words(UINT64_MAX, out), GPU_REASONS_MAX);
    CHECK_TEXT(out[GPU_REASONS_MAX - 1], "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_reading_has_every_figure_in_its_unit),
        TEST(what_the_driver_refuses_is_not_known),
        TEST(a_function_that_is_not_there_is_not_called),
        TEST(without_a_driver_or_the_gpu_nothing_is_known),
        TEST(a_missing_library_or_function_is_named),
        TEST(reasons_become_words),
    };
    return TEST_RUN(tests);
}
