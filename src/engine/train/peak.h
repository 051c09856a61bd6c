/* peak: measures the peak of this machine, to which times of steps and ops are compared. FLOP/s are those of
 * a large matrix product and bytes/s those of a large copy, on the device of `c`, in its compute type, with
 * random data.
 *
 * On the CPU: a product of 1024^3 (of 16 rows where all take over a second) and a copy of 128 MiB; the best of a few runs,
 * by CPU time, so that other processes do not count. On a GPU: a product of 8192^3 (f32: 4096^3), whose algorithm is tuned and not kept, and a
 * copy of 512 MiB; the median. It takes 1.1 GiB of GPU memory, and frees it.
 *
 * Not here: peaks of the data sheet (hardware/hardware.h). */
#ifndef ENGINE_TRAIN_PEAK_H
#define ENGINE_TRAIN_PEAK_H

#include "engine/config/config.h"
#include "kernels/core/op.h"

typedef struct MeasuredPeak {
    double flops; /* FLOP/s of the product */
    double bytes; /* read and written a second by the copy; 0 without one */
} MeasuredPeak;

/* Measures, and raises *best to the result. *best begins as { 0 }. Several calls at different times make it
 * less likely that other processes disturb all of them. */
Status peak_measure(const Config *c, int threads, bool with_copy, MeasuredPeak *best);

/* Bytes that a measurement takes on the CPU, without the copy. */
Status peak_plan(const Config *c, int threads, size_t *out_bytes);

/* Fills a matrix with random normal numbers, because a GPU is faster on zeros. After 2^20 numbers the same
 * ones repeat. */
Status peak_fill(Exec *ex, const Tensor *t);

/* Rows of the timed product on a CPU: all `rows`, or 16 if all would take too long. s: seconds that 16 take. */
int64_t peak_rows(double s, int64_t rows);

#endif
