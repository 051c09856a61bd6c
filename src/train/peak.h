/* peak: the machine's own measured roof of matrix products, for MFU. */
#ifndef TRAIN_PEAK_H
#define TRAIN_PEAK_H

#include "config/config.h"

/* FLOP/s of a 1024^3 product in the compute type, the best of a few; 0 if it cannot be measured.
 * Its memory is given back. */
double peak_measure(const Config *c, int threads);

/* Bytes that measuring takes. */
Status peak_plan(const Config *c, int threads, size_t *out_bytes);

#endif
