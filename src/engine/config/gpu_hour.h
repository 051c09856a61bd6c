/* gpu_hour: what a GPU costs an hour, as plan.gpu_hour writes it: "2.5", "2.5 EUR", "$2.5". A currency is a word that
 * is printed again; there are no exchange rates. */
#ifndef ENGINE_CONFIG_GPU_HOUR_H
#define ENGINE_CONFIG_GPU_HOUR_H

#include "engine/config/config.h"

enum { GPU_HOUR_CURRENCY_BYTES = 16, GPU_HOUR_COST_BYTES = 64 };

typedef struct GpuHour {
    double price; /* 0: none is given */
    char currency[GPU_HOUR_CURRENCY_BYTES];
} GpuHour;

/* ERR_ARG: it is not empty, and not a number above 0 and at most one currency. */
Status gpu_hour_read(const Config *c, GpuHour *out);
/* The same for a configuration that config_check has passed. */
GpuHour gpu_hour_of(const Config *c);

/* Writes what so many hours cost: "1,234,567 EUR", "0.42 $". */
const char *gpu_hour_cost(char out[GPU_HOUR_COST_BYTES], const GpuHour *g, double hours);

#endif
