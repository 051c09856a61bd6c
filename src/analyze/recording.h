/* recording: what the trainer's own recorder wrote (trace/record.h): as text for the reader of traces
 * and for Perfetto, and as the sheets that only it can give. */
#ifndef ANALYZE_RECORDING_H
#define ANALYZE_RECORDING_H

#include "analyze/table.h"
#include "trace/record.h"

typedef struct Recording {
    const char *path;
    FileMap map;
    Recorded file;
    int rank, ranks;
    /* Of META; 0 or "": not there. */
    const char *device;
    double flops, sheet_flops, roof_flops;
    int64_t experts;
} Recording;

/* Does the file begin as one? A file that cannot be read does not. */
bool recording_is(const char *path);
/* In `a`, where texts of its sheets lie, too. ERR_FORMAT: no recording, or no whole step in it. */
Status recording_open(const char *path, Arena *a, Recording *out);
void recording_close(Recording *r); /* safe on { 0 } */

/* One JSON trace of n ranks. */
Status recording_json(const Recording *r, int n, Text *out);

/*
 * Of one rank's steps, times in ms of a step:
 *   phases         by phase and what it computes: time, FLOP/s, MFU (of the data sheet's peak, else of
 *                  the measured one), share of the step; then the same by layer
 *   steps          each step: time, tokens/s, loss, second runs, computation, exposed communication,
 *                  bubble (no lane of the device works), busiest expert over the mean
 *   jitter         p50, p99 and worst of step times, and by which actions the worst differ from p50
 *   expert_load    by MoE layer: the busiest and the least busy expert over the mean, over the steps
 *   memory         bytes in use of the arenas of work, the most at the end of each kind of action
 */
enum { RECORDING_SHEETS = 6 };
Status recording_tables(const Recording *r, Arena *a, Table *out, int *n);
/* The same of a file; all of it is read into `a`. */
Status recording_add(const char *path, Arena *a, Table *out, int *n);

#endif
