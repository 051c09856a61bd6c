/* peak: the machine's own measured roof, for the share of it that a step or an op reaches. Measured
 * where `c` runs and in its compute type, with random data: on the CPU a product of 1024^3 and a
 * copy of 128 MiB, the best of a few; on a GPU a product of 8192^3 (f32: 4096^3), whose algorithm
 * is timed and not kept, and a copy of 512 MiB, the median. There it takes 1.1 GiB of device
 * memory meanwhile. What it takes is given back. */
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include "config/config.h"

typedef struct Roof {
    double flops; /* FLOP/s of the product */
    double bytes; /* read and written a second by the copy; 0 without one */
} Roof;

Status peak_measure(const Config *c, int threads, bool with_copy, Roof *out);

/* Bytes that measuring takes on the CPU, without the copy. */
Status peak_plan(const Config *c, int threads, size_t *out_bytes);

#endif
