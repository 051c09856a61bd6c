/* recording: a file of the trainer's own recorder (engine/trace/record.h). It becomes JSON for our reader
 * and for Perfetto, and sheets that no other trace has data for. Writing recordings is the
 * trainer's business (engine/train/recorder.h). */
#ifndef TRACES_READ_RECORDING_H
#define TRACES_READ_RECORDING_H

#include "engine/trace/record.h"
#include "traces/table/table.h"

/* The last steps of one rank, as the recorder's ring had them. */
typedef struct Recording {
    Arena arena; /* this record lies in it */
    const char *path;
    Recorded file;
    /* From META; 0 or "": it is not there. */
    int rank, ranks;
    const char *device;
    double flops, sheet_flops, roof_flops;
    int64_t experts, began_us; /* began_us: when the run began, the same on all ranks */
} Recording;

/* Does the file begin like a recording? False also if it cannot be read. */
bool recording_is(const char *path);
/* Reads the bytes of a file. ERR_FORMAT: it is not a recording, or has no complete step. *out lies
 * in memory of its own; close it with recording_close. */
Status recording_parse(const char *path, const uint8_t *data, size_t bytes, const Recording **out);
void recording_close(const Recording *r); /* safe on NULL */

/* Writes n ranks as one JSON trace for Perfetto. */
Status recording_json(const Recording *const *r, int n, Text *out);

/*
 * Makes the sheets of one rank's steps; times are ms of a step:
 *   phases         by phase and what it computes: time, FLOP/s, MFU (of the data sheet's peak, else of
 *                  the measured one), share of the step; then the same by layer
 *   traced_ops     ops of the last traced step: calls, time, share, FLOP/s, bytes a second
 *   steps          each step: time, tokens/s, loss, second runs, computation, exposed communication,
 *                  bubble (no lane of the device works), busiest expert over the mean
 *   jitter         p50, p99 and worst of step times, and by which actions the worst differ from p50
 *   expert_load    by MoE layer: the busiest and the least busy expert over the mean, over the steps
 *   memory         the most bytes of working arenas in use at the end of each kind of action
 */
enum { RECORDING_SHEETS = 7 };
/* r NULL: there are none. Texts of cells live as long as the recording. */
Status recording_tables(const Recording *r, Arena *a, Table *out, int *n);

#endif
