/* recording: what the trainer's own recorder wrote (trace/record.h): as text for the reader of traces
 * and for Perfetto, and as the sheets that only it can give. */
#ifndef ANALYZE_RECORDING_H
#define ANALYZE_RECORDING_H

#include "analyze/table.h"
#include "trace/record.h"

typedef struct Recording {
    Arena arena; /* holds it, too */
    const char *path;
    Recorded file;
    /* Of META; 0 or "": not there. */
    int rank, ranks;
    const char *device;
    double flops, sheet_flops, roof_flops;
    int64_t experts, began_us; /* began_us: when the run began, the same on all ranks */
} Recording;

/* Does the file begin as one? A file that cannot be read does not. */
bool recording_is(const char *path);
/* A file's bytes. ERR_FORMAT: no recording, or no whole step in it. */
Status recording_parse(const char *path, const uint8_t *data, size_t bytes, const Recording **out);
void recording_close(const Recording *r); /* safe on NULL */

/* One JSON trace of n ranks. */
Status recording_json(const Recording *const *r, int n, Text *out);

/*
 * Of one rank's steps, times in ms of a step:
 *   phases         by phase and what it computes: time, FLOP/s, MFU (of the data sheet's peak, else of
 *                  the measured one), share of the step; then the same by layer
 *   traced_ops     ops of the last traced step: calls, time, share, FLOP/s, bytes a second
 *   steps          each step: time, tokens/s, loss, second runs, computation, exposed communication,
 *                  bubble (no lane of the device works), busiest expert over the mean
 *   jitter         p50, p99 and worst of step times, and by which actions the worst differ from p50
 *   expert_load    by MoE layer: the busiest and the least busy expert over the mean, over the steps
 *   memory         bytes in use of the arenas of work, the most at the end of each kind of action
 */
enum { RECORDING_SHEETS = 7 };
/* None of no recording (NULL). Their texts live as long as it does. */
Status recording_tables(const Recording *r, Arena *a, Table *out, int *n);

#endif
