/* peak: the machine's own measured roof of matrix products, for the share of it that a step reaches. */
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include "config/config.h"

/* FLOP/s of a product in the compute type: on the CPU 1024^3, the best of a few, on a GPU
 * peak_gpu's. 0 if it cannot be measured. Its memory is given back. */
double peak_measure(const Config *c, int threads);

/* Of the GPU that `c` names, in the compute type: a product of 8192^3 (f32: 4096^3), whose
 * algorithm is timed and not kept, and a copy of 512 MiB; medians of random data. Takes 1.1 GiB of
 * device memory meanwhile. */
typedef struct GpuRoof {
    double flops; /* FLOP/s */
    double bytes; /* read and written a second */
} GpuRoof;
Status peak_gpu(const Config *c, GpuRoof *out);

/* Bytes that measuring on the CPU takes. */
Status peak_plan(const Config *c, int threads, size_t *out_bytes);

#endif
