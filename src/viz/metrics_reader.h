/* metrics_reader: RUN/metrics.jsonl (docs/formats.md), line by line. In memory is a piece and the
 * longest line. A line is taken as a whole or not at all: a crash may leave half of one, at the end
 * or (after a resume) inside. */
#ifndef VIZ_METRICS_READER_H
#define VIZ_METRICS_READER_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum MetricsKind { METRICS_BAD, METRICS_START, METRICS_STEP, METRICS_EVAL } MetricsKind;

/* A number that is null or not there is NaN; text and raw values are NULL. Raw values are JSON
 * arrays and objects, each to be scanned once. Everything points into the reader's buffer. */
typedef struct MetricsLine {
    MetricsKind kind;
    int64_t step;             /* >= 0 in a step or eval line */
    const char *word, *model; /* word: the kind */
    double params_total, params_active, roof_flops, sheet_flops, experts;
    double given_step, loss, aux_loss, lr, grad_norm, tokens, step_s, tokens_per_s, mfu, roof_share,
        bits_per_byte;
    double clock_mhz, power_w;
    char *moe_layers, *arenas_planned, *memory_bytes, *domains;
    char *expert_load, *expert_load_by_domain, *again; /* again: "true..." or NULL */
} MetricsLine;

typedef struct MetricsReader {
    const char *path;
    char *buffer;            /* in the arena given to metrics_reader_open */
    size_t cap, used, taken; /* bytes: room; read; handed out as lines */
    uint64_t offset, bytes;  /* of the file: next to read; size when it was opened */
} MetricsReader;

/* `path` must outlive the reader. A missing file is ERR_IO. */
Status metrics_reader_open(MetricsReader *r, const char *path, Arena *a);
void metrics_reader_rewind(MetricsReader *r); /* the same bytes once more */

/* The next line, valid until the next call; *more is false at the end. A line that is not JSON, of
 * no known kind, or whose step is no whole number has kind METRICS_BAD; blank lines are passed
 * over. */
Status metrics_reader_next(MetricsReader *r, MetricsLine *out, bool *more);

#endif
