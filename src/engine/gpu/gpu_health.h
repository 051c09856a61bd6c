/* gpu_health: what NVML tells of a GPU's state beyond its clock: power limits, memory errors, links. A figure that
 * the driver does not give, or not to this user, is unknown. */
#ifndef ENGINE_GPU_GPU_HEALTH_H
#define ENGINE_GPU_GPU_HEALTH_H

#include "engine/gpu/gpu_state.h"

typedef enum GpuHealthFigure {
    GPU_POWER_LIMIT_W,   /* that is in force */
    GPU_POWER_DEFAULT_W, /* as the GPU is sold */
    GPU_MEMORY_ERRORS,   /* that could not be corrected, since the driver was loaded */
    GPU_REMAP_FAULTS, /* 1: a row could not be replaced by a spare one; 2: one waits for a reset; 3: both */
    GPU_LINKS,          /* to other GPUs or switches, that are up */
    GPU_PCIE_GB_S,      /* of its bus, one way, by generation and width, now */
    GPU_PCIE_MOST_GB_S, /* the most that GPU and slot can do */
    GPU_HEALTH_FIGURES
} GpuHealthFigure;

enum { GPU_DRIVER_BYTES = 80 }; /* as NVML wants it */

typedef struct GpuHealth {
    unsigned known; /* bit f: value f is known */
    double value[GPU_HEALTH_FIGURES];
    char driver[GPU_DRIVER_BYTES]; /* its version, "580.65.06"; "": unknown */
} GpuHealth;

/* NVML's functions, which may be NULL. They return 0 on success. */
typedef struct NvmlHealth {
    int (*driver_version)(char *out, unsigned bytes);
    int (*power_limit)(void *device, unsigned *out_milliwatts);
    int (*power_default)(void *device, unsigned *out_milliwatts);
    int (*memory_errors)(void *device, int kind, int counter, unsigned long long *out);
    int (*remapped)(void *device, unsigned *out_corrected, unsigned *out_uncorrected,
                    unsigned *out_pending, unsigned *out_failed);
    int (*link_state)(void *device, unsigned link, int *out_active);
    int (*pcie_generation)(void *device, unsigned *out);
    int (*pcie_width)(void *device, unsigned *out);
    int (*pcie_generation_most)(void *device, unsigned *out);
    int (*pcie_width_most)(void *device, unsigned *out);
} NvmlHealth;

/* Reads the GPU that gpu_state_open found. Nothing is known if it found none. */
GpuHealth gpu_health_read(const GpuState *g);
/* The same with these functions. */
GpuHealth gpu_health_of(const NvmlHealth *nvml, void *device);

static inline bool gpu_health_knows(const GpuHealth *h, GpuHealthFigure f)
{
    return h->known >> f & 1;
}

#endif
