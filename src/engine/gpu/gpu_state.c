/* gpu_state: reads NVML, NVIDIA's management library, through functions that are looked up at run time.
 * Constants are repeated from nvml.h, so that the build needs no header of it. */
#include "engine/gpu/gpu_state.h"

#include "engine/base/log.h"
#include "engine/gpu/gpu.h"
#include "engine/host/library.h"

#include <dlfcn.h>
#include <stddef.h>

const char gpu_state_library[] = "libnvidia-ml.so.1";

/* From nvml.h: nvmlClockType_t, nvmlTemperatureSensors_t. */
enum { NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2, NVML_TEMPERATURE_GPU = 0 };

/* nvmlClocksEventReason*, from nvml.h. If none is set, the clock is at its maximum. */
static const struct {
    uint64_t bit;
    const char *word;
} REASON[] = {
    { 0x001, "idle" },        { 0x002, "applications_clocks" }, { 0x004, "sw_power_cap" },
    { 0x008, "hw_slowdown" }, { 0x010, "sync_boost" },          { 0x020, "sw_thermal" },
    { 0x040, "hw_thermal" },  { 0x080, "hw_power_brake" },      { 0x100, "display_clocks" },
};

enum { REASONS = sizeof REASON / sizeof *REASON };
_Static_assert(REASONS + 1 == GPU_REASONS_MAX, "and one word for bits without a word");

int gpu_throttle_words(uint64_t mask, const char *out[GPU_REASONS_MAX])
{
    int n = 0;
    for (int i = 0; i < REASONS; i++) {
        if (mask & REASON[i].bit) out[n++] = REASON[i].word;
        mask &= ~REASON[i].bit;
    }
    if (mask != 0) out[n++] = "other";
    return n;
}

/* The last four may be missing: a figure without its function stays unknown. */
static const LibraryCall CALLS[] = {
    { "nvmlInit_v2", NULL, offsetof(Nvml, init), false },
    { "nvmlShutdown", NULL, offsetof(Nvml, shutdown), false },
    { "nvmlErrorString", NULL, offsetof(Nvml, error_text), false },
    { "nvmlDeviceGetHandleByPciBusId_v2", NULL, offsetof(Nvml, find), false },
    { "nvmlDeviceGetClockInfo", NULL, offsetof(Nvml, clock), true },
    { "nvmlDeviceGetPowerUsage", NULL, offsetof(Nvml, power), true },
    { "nvmlDeviceGetTemperature", NULL, offsetof(Nvml, temperature), true },
    /* the second name is the one in drivers before 535 */
    { "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons",
      offsetof(Nvml, throttle), true },
};

Status nvml_load(const char *library, GpuState *g)
{
    const Library l = { .file = library,
                        .what = "clock, power and temperature of the GPU",
                        .advice = "it comes with the NVIDIA driver",
                        .call = CALLS,
                        .calls = sizeof CALLS / sizeof *CALLS };
    *g = (GpuState){ 0 };
    return library_open(&l, &g->nvml, &g->library);
}

/* On failure NVML is shut down again, so that gpu_state_close need not know how far this came. */
Status nvml_find(GpuState *g, const char *pci_bus_id)
{
    int code = g->nvml.init();
    if (code != 0) {
        return FAIL(ERR_UNSUPPORTED, "%s does not start: %s", gpu_state_library,
                    g->nvml.error_text(code));
    }
    void *device = NULL;
    code = g->nvml.find(pci_bus_id, &device);
    if (code != 0) {
        g->nvml.shutdown();
        return FAIL(ERR_UNSUPPORTED, "%s knows no GPU at %s: %s", gpu_state_library, pci_bus_id,
                    g->nvml.error_text(code));
    }
    g->device = device;
    return OK;
}

void gpu_state_open(GpuState *g, const char *pci_bus_id)
{
    char why[800];
    *g = (GpuState){ 0 };
    if (gpu_runtime == GPU_RUNTIME_HIP) return;
    Status s = nvml_load(gpu_state_library, g);
    if (s == OK) s = nvml_find(g, pci_bus_id);
    if (s == OK) return;
    status_sentence(why, sizeof why);
    status_clear();
    log_warn("clock, power and temperature of the GPU will not be known: %s", why);
    gpu_state_close(g);
}

void gpu_state_close(GpuState *g)
{
    if (g->device != NULL) g->nvml.shutdown();
    if (g->library != NULL) dlclose(g->library);
    *g = (GpuState){ 0 };
}

/* Stores a value and marks it as known, if NVML's code is success. */
static void store_figure(GpuReading *r, GpuFigure f, int code, const unsigned *value, double unit)
{
    if (code != 0) return;
    r->known |= 1u << f;
    r->value[f] = *value / unit;
}

/* Power comes in milliwatts, clocks in MHz, temperature in degrees Celsius. */
GpuReading gpu_state_read(const GpuState *g)
{
    GpuReading r = { 0 };
    const Nvml *n = &g->nvml;
    unsigned v = 0;
    unsigned long long mask = 0;
    if (g->device == NULL) return r;
    if (n->clock != NULL) {
        store_figure(&r, GPU_CLOCK_MHZ, n->clock(g->device, NVML_CLOCK_SM, &v), &v, 1);
        store_figure(&r, GPU_MEMORY_CLOCK_MHZ, n->clock(g->device, NVML_CLOCK_MEM, &v), &v, 1);
    }
    if (n->power != NULL) store_figure(&r, GPU_POWER_W, n->power(g->device, &v), &v, 1e3);
    if (n->temperature != NULL) {
        int code = n->temperature(g->device, NVML_TEMPERATURE_GPU, &v);
        store_figure(&r, GPU_TEMPERATURE_C, code, &v, 1);
    }
    if (n->throttle == NULL) return r;
    int code = n->throttle(g->device, &mask);
    /* A mask has 64 bits and does not fit `value`, so store_figure only marks it as known. */
    if (code == 0) r.throttle = mask;
    store_figure(&r, GPU_THROTTLE, code, &(unsigned){ 0 }, 1);
    return r;
}
