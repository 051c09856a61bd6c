/* gpu_health: asks NVML, whose functions are looked up at run time, as gpu_state.c does. */
#include "engine/gpu/gpu_health.h"

#include "engine/host/library.h"

#include <dlfcn.h>
#include <stddef.h>

/* From nvml.h: nvmlMemoryErrorType_t, nvmlEccCounterType_t, NVML_NVLINK_MAX_LINKS. */
enum { NVML_UNCORRECTED = 1, NVML_SINCE_LOAD = 0, NVML_LINKS_MAX = 18 };

static const LibraryCall CALLS[] = {
    { "nvmlSystemGetDriverVersion", NULL, offsetof(NvmlHealth, driver_version), true },
    { "nvmlDeviceGetEnforcedPowerLimit", NULL, offsetof(NvmlHealth, power_limit), true },
    { "nvmlDeviceGetPowerManagementDefaultLimit", NULL, offsetof(NvmlHealth, power_default), true },
    { "nvmlDeviceGetTotalEccErrors", NULL, offsetof(NvmlHealth, memory_errors), true },
    { "nvmlDeviceGetRemappedRows", NULL, offsetof(NvmlHealth, remapped), true },
    { "nvmlDeviceGetNvLinkState", NULL, offsetof(NvmlHealth, link_state), true },
    { "nvmlDeviceGetCurrPcieLinkGeneration", NULL, offsetof(NvmlHealth, pcie_generation), true },
    { "nvmlDeviceGetCurrPcieLinkWidth", NULL, offsetof(NvmlHealth, pcie_width), true },
    { "nvmlDeviceGetMaxPcieLinkGeneration", NULL, offsetof(NvmlHealth, pcie_generation_most),
      true },
    { "nvmlDeviceGetMaxPcieLinkWidth", NULL, offsetof(NvmlHealth, pcie_width_most), true },
};

static void store(GpuHealth *h, GpuHealthFigure f, double value)
{
    h->known |= 1u << f;
    h->value[f] = value;
}

static void read_power(const NvmlHealth *n, void *device, GpuHealth *h)
{
    unsigned v = 0;
    if (n->power_limit != NULL && n->power_limit(device, &v) == 0)
        store(h, GPU_POWER_LIMIT_W, v / 1e3);
    if (n->power_default != NULL && n->power_default(device, &v) == 0)
        store(h, GPU_POWER_DEFAULT_W, v / 1e3);
}

static void read_errors(const NvmlHealth *n, void *device, GpuHealth *h)
{
    unsigned long long errors = 0;
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    if (n->memory_errors != NULL &&
        n->memory_errors(device, NVML_UNCORRECTED, NVML_SINCE_LOAD, &errors) == 0)
        store(h, GPU_MEMORY_ERRORS, (double)errors);
    if (n->remapped != NULL &&
        n->remapped(device, &corrected, &uncorrected, &pending, &failed) == 0)
        store(h, GPU_REMAP_FAULTS, (failed != 0) + 2 * (pending != 0));
}

/* Links that the GPU does not have give an error. */
static void read_links(const NvmlHealth *n, void *device, GpuHealth *h)
{
    int links = 0, active = 0;
    bool known = false;
    for (unsigned i = 0; n->link_state != NULL && i < NVML_LINKS_MAX; i++) {
        if (n->link_state(device, i, &active) != 0) continue;
        known = true;
        links += active != 0;
    }
    if (known) store(h, GPU_LINKS, links);
}

/* GB/s of a lane by generation, after its line code: 8b/10b, then 128b/130b; 6 has neither. */
static double lane_gb_s(unsigned generation)
{
    static const double rate[] = { 0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563 };
    const unsigned last = sizeof rate / sizeof *rate - 1;
    return rate[generation > last ? last : generation];
}

static void read_bus(int (*generation)(void *, unsigned *), int (*width)(void *, unsigned *),
                     void *device, GpuHealthFigure f, GpuHealth *h)
{
    unsigned g = 0, w = 0;
    if (generation == NULL || width == NULL) return;
    if (generation(device, &g) != 0 || width(device, &w) != 0) return;
    store(h, f, w * lane_gb_s(g));
}

GpuHealth gpu_health_of(const NvmlHealth *n, void *device)
{
    GpuHealth h = { 0 };
    if (n->driver_version == NULL || n->driver_version(h.driver, sizeof h.driver) != 0)
        h.driver[0] = '\0';
    read_power(n, device, &h);
    read_errors(n, device, &h);
    read_links(n, device, &h);
    read_bus(n->pcie_generation, n->pcie_width, device, GPU_PCIE_GB_S, &h);
    read_bus(n->pcie_generation_most, n->pcie_width_most, device, GPU_PCIE_MOST_GB_S, &h);
    return h;
}

GpuHealth gpu_health_read(const GpuState *g)
{
    NvmlHealth nvml = { 0 };
    void *file = NULL;
    GpuHealth h = { 0 };
    const Library l = { .file = gpu_state_library,
                        .what = "health of the GPU",
                        .advice = "it comes with the NVIDIA driver",
                        .call = CALLS,
                        .calls = sizeof CALLS / sizeof *CALLS };
    if (g->device == NULL) return h;
    if (library_open(&l, &nvml, &file) != OK) {
        status_clear();
        return h;
    }
    h = gpu_health_of(&nvml, g->device);
    (void)dlclose(file);
    return h;
}
