/*
 * record: what a rank's last steps did, as a file (docs/reference/formats.md, "recording").
 *
 * A file is 16 bytes (magic, version, byte order) and chunks, each with a tag, its length and a
 * checksum (XXH3-64), so that one that ends early gives what was whole:
 *
 *   META  a JSON object: the run, the rank, the machine
 *   NAME  texts with a NUL behind each
 *   ROWS  RecordRow: what the times of a step mean, once for each way to run it
 *   STEP  RecordStep, a begin and an end for each row in ns from the step's begin (int64), the
 *         tokens of each MoE layer's experts (uint32)
 *   OPS_  RecordOp: ops of the last step that was traced op by op
 */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

#include "base/file.h"
#include "base/text.h"

#include <stdbool.h>

#define RECORD_MAGIC "SYRECORD"
enum { RECORD_VERSION = 1, RECORD_HEAD_BYTES = 16, RECORD_WAYS = 2 };

/* What of a layer a phase computes; of an action RECORD_WHOLE. */
typedef enum RecordPart {
    RECORD_WHOLE,
    RECORD_FORWARD,
    RECORD_AGAIN, /* forward for the second time: recomputation */
    RECORD_INPUT, /* backward: gradients of what was read */
    RECORD_WEIGHT /* backward: gradients of the weights */
} RecordPart;
extern const char *const record_part_name[RECORD_WEIGHT + 1];

/* Rows of actions come first, in the order of the list; those of phases follow as they run. */
typedef struct RecordRow {
    uint32_t name;              /* place in NAME, counted by texts */
    int32_t action, micro;      /* the action's row; -1: no micro-batch */
    int16_t lane, layer, chunk; /* layer: of the model's blocks; -1: none */
    uint8_t part, transfer;     /* RecordPart; 1: between stages, on a lane of its own */
    double flops;
    uint64_t bytes; /* in use of the arenas of work when it ended */
} RecordRow;

enum { RECORD_RAN_AGAIN = 1, RECORD_NOT_FINITE = 2, RECORD_TRACED = 4 };

typedef struct RecordStep {
    int64_t step, unix_ns; /* of its begin */
    double seconds, loss, tokens;
    uint64_t memory_bytes; /* of the process or the GPU */
    uint32_t flags, way, rows, loads;
} RecordStep;

typedef struct RecordOp {
    uint32_t name;
    int16_t layer, lane;
    int64_t step, start_ns, dur_ns; /* start: of Unix time */
    double flops, bytes;
} RecordOp;

_Static_assert(sizeof(RecordRow) == 40 && sizeof(RecordStep) == 64 && sizeof(RecordOp) == 48,
               "no padding, so that files of all builds are alike");

/* ---- writing: chunks into a file that was created ---- */

Status record_head(File *f);
/* A chunk's data are two pieces, so that nobody has to copy them together; `rest` may be NULL. */
Status record_chunk(File *f, const char tag[4], const void *first, size_t first_bytes,
                    const void *rest, size_t rest_bytes);

/* The lane of steps in record_events; lanes of the device and of transfers come first. */
enum { RECORD_STEPS_LANE = 1000 };
/* "compute", "comm", "lane 3": how people see a lane. */
enum { RECORD_LANE_BYTES = 32 };
const char *record_lane_name(char out[RECORD_LANE_BYTES], int lane);

/* ---- reading ---- */

typedef struct RecordChunk {
    char tag[5];
    const uint8_t *data;
    size_t bytes;
} RecordChunk;

/* A file in memory, parsed and checked: every index is in range. */
typedef struct RecordWay {
    const RecordRow *row;
    const bool *range; /* is it an action that has phases? */
    uint32_t rows;
} RecordWay;

/* ns from the step's begin */
typedef struct RecordTime {
    int64_t begin, end;
} RecordTime;

typedef struct RecordedStep {
    RecordStep head;
    const RecordTime *times; /* (rows) */
    const uint32_t *load;    /* (loads) */
} RecordedStep;

typedef struct Recorded {
    const char *meta; /* JSON */
    const char **name;
    uint32_t names;
    RecordWay way[RECORD_WAYS];
    RecordedStep *step; /* the oldest first */
    int64_t steps;
    const RecordOp *op;
    int64_t ops;
    bool cut; /* the file ends early, or a chunk is damaged: this is what stands before */
} Recorded;

/* Into `a`. ERR_FORMAT: no recording, or one whose chunks contradict each other. */
Status record_parse(const char *path, const uint8_t *data, size_t bytes, Arena *a, Recorded *out);

/* The recording as events of the trace event format (Perfetto reads them), with commas between them:
 * a process a rank, a thread a lane, steps as ProfilerStep#N, phases and
 * actions without phases as kernels, passes as ranges on the device, ops inside them. Times are
 * microseconds since `base_ns` of Unix time. */
Status record_events(const Recorded *r, int rank, int64_t base_ns, Text *out);

/* Does a file begin as a recording does? */
bool record_is(const uint8_t *data, size_t bytes);
/* ERR_FORMAT: not a recording, of another version, or of a machine with the other byte order. */
Status record_open(const char *path, const uint8_t *data, size_t bytes, size_t *at);
/* The next whole chunk. False at the end, and where what is left is none: *cut then. */
bool record_next(const uint8_t *data, size_t bytes, size_t *at, RecordChunk *out, bool *cut);

#endif
