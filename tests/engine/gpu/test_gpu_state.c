/* Clock, power and temperature of the GPU that trains, read while it trains. */
#include "engine/base/clock.h"
#include "engine/gpu/gpu_state.h"
#include "harness/gpu.h"
#include "harness/tiny.h"

#include <stdlib.h>

enum { STEPS = 50 };

typedef struct Watch {
    GpuState gpu;
    GpuReading last;
    double read_s[STEPS];
    int n;
} Watch;

static void look(void *self)
{
    Watch *w = self;
    double start = clock_s();
    w->last = gpu_state_read(&w->gpu);
    w->read_s[w->n++] = clock_s() - start;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void a_step_is_watched_at_work_in_well_under_a_millisecond(void **state)
{
    NEEDS_GPU();
    Tiny t;
    Watch w = { 0 };
    char bus_id[GPU_BUS_ID_MAX];
    tiny_open(&t, TINY(ON_GPU));
    CHECK_OK(exec_bus_id(&t.engine.ex, bus_id));
    gpu_state_open(&w.gpu, bus_id);
    if (w.gpu.device == NULL) {
        printf("skip: needs NVML, which comes with the NVIDIA driver\n");
        tiny_close(&t);
        skip();
    }
    t.engine.observer = (EngineObserver){ look, &w };
    StepResult r = tiny_steps(&t, 0, STEPS);
    CHECK_INT(w.n, STEPS);
    CHECK_INT(r.waits, 1);
    qsort(w.read_s, STEPS, sizeof *w.read_s, by_size);
    const double *v = w.last.value;
    printf(
        "%s: %.0f MHz, memory %.0f MHz, %.0f W, %.0f C, throttle 0x%llx; a reading takes %.0f us "
        "(median), %.0f us (longest)\n",
        bus_id, v[GPU_CLOCK_MHZ], v[GPU_MEMORY_CLOCK_MHZ], v[GPU_POWER_W], v[GPU_TEMPERATURE_C],
        (unsigned long long)w.last.throttle, w.read_s[STEPS / 2] * 1e6, w.read_s[STEPS - 1] * 1e6);
    CHECK(w.read_s[STEPS / 2] < 1e-3);
    /* a GPU in parts (MIG) does not tell everything: what it tells must be possible */
    CHECK(gpu_knows(&w.last, GPU_CLOCK_MHZ));
    CHECK(v[GPU_CLOCK_MHZ] > 200 && v[GPU_CLOCK_MHZ] < 5000);
    if (gpu_knows(&w.last, GPU_MEMORY_CLOCK_MHZ)) {
        CHECK(v[GPU_MEMORY_CLOCK_MHZ] > 400 && v[GPU_MEMORY_CLOCK_MHZ] < 20000);
    }
    if (gpu_knows(&w.last, GPU_POWER_W)) CHECK(v[GPU_POWER_W] > 5 && v[GPU_POWER_W] < 2000);
    if (gpu_knows(&w.last, GPU_TEMPERATURE_C)) {
        CHECK(v[GPU_TEMPERATURE_C] > 5 && v[GPU_TEMPERATURE_C] < 120);
    }
    gpu_state_close(&w.gpu);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_step_is_watched_at_work_in_well_under_a_millisecond),
    };
    return TEST_RUN(tests);
}
