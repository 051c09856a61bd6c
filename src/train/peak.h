/* peak: what this machine reaches at best, against which steps and ops are held. A large matrix product
 * gives FLOP/s, a large copy bytes a second, where `c` runs, in its compute type, with random data. On
 * the CPU it is a product of 1024^3 and a copy of 128 MiB, the best of a few, because others take CPU
 * time. On a GPU it is a product of 8192^3 (f32: 4096^3), whose algorithm is timed and not kept, and a
 * copy of 512 MiB, the median; that takes 1.1 GiB of its memory meanwhile. */
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include "config/config.h"

typedef struct Roof {
    double flops; /* FLOP/s of the product */
    double bytes; /* read and written a second by the copy; 0 without one */
} Roof;

/* Raises *best, which begins as { 0 }, to what is measured now: calls at several times miss what else
 * the machine does meanwhile. */
Status peak_measure(const Config *c, int threads, bool with_copy, Roof *best);

/* Bytes that measuring takes on the CPU, without the copy. */
Status peak_plan(const Config *c, int threads, size_t *out_bytes);

#endif
