/* gpu_state: clock, power and temperature of a GPU, and why its clock is throttled. Two step times can
 * only be compared if the clock under load is known. The figures come from NVML, opened at run time. If
 * the library, a function or a permission is missing, the figure is missing and training continues. A
 * reading asks the driver and does not wait for work on the GPU. */
#ifndef ENGINE_GPU_GPU_STATE_H
#define ENGINE_GPU_GPU_STATE_H

#include "engine/base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum GpuFigure {
    GPU_CLOCK_MHZ, /* of the multiprocessors */
    GPU_MEMORY_CLOCK_MHZ,
    GPU_POWER_W, /* the driver's mean, over up to a second */
    GPU_TEMPERATURE_C,
    GPU_THROTTLE, /* in `throttle`, not in `value` */
    GPU_FIGURES
} GpuFigure;

typedef struct GpuReading {
    unsigned known; /* bit f: value f is known; 0: nothing was read */
    double value[GPU_FIGURES];
    uint64_t throttle; /* NVML's bit mask of clocks event reasons */
} GpuReading;

/* NVML's functions. They return 0 on success. Those from `clock` on may be NULL. */
typedef struct Nvml {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int code);
    int (*find)(const char *pci_bus_id, void **out_device);
    int (*clock)(void *device, int domain, unsigned *out_mhz);
    int (*power)(void *device, unsigned *out_milliwatts);
    int (*temperature)(void *device, int sensor, unsigned *out_celsius);
    int (*throttle)(void *device, unsigned long long *out_mask);
} Nvml;

/* One GPU, from gpu_state_open to gpu_state_close. */
typedef struct GpuState {
    void *library, *device; /* device NULL: nothing can be read */
    Nvml nvml;
} GpuState;

/* Opens NVML for the GPU at a PCI bus id ("0000:19:00.0"). If that fails, one warning says why, and
 * readings contain nothing. Of AMD's GPUs nothing is read. */
void gpu_state_open(GpuState *g, const char *pci_bus_id);
GpuReading gpu_state_read(const GpuState *g);
void gpu_state_close(GpuState *g); /* safe on { 0 } */

extern const char gpu_state_library[]; /* the file name of NVML */

/* The two steps of gpu_state_open. ERR_UNSUPPORTED names the missing library, function or GPU. */
Status nvml_load(const char *library, GpuState *g);
Status nvml_find(GpuState *g, const char *pci_bus_id);

static inline bool gpu_knows(const GpuReading *r, GpuFigure f) { return r->known >> f & 1; }

/* The reasons in a mask as words: "sw_power_cap", "hw_slowdown", ...; "other" stands for all unknown
 * bits. Returns the number of words, at most GPU_REASONS_MAX. */
enum { GPU_REASONS_MAX = 10 };
int gpu_throttle_words(uint64_t mask, const char *out[GPU_REASONS_MAX]);

#endif
