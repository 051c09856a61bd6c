/*
 * record: the file format for what a rank's last steps did (docs/reference/formats.md, "recording").
 * engine/train records the steps; traces and pages use what record_parse returns.
 *
 * A file has a head of 16 bytes (magic, version, byte order), then chunks. Each chunk has a tag, its
 * length and a checksum (XXH3-64). So the complete chunks of a file that ends early can be used:
 *
 *   META  a JSON object: the run, the rank, the machine
 *   NAME  NUL-terminated texts
 *   ROWS  RecordRow: what the times of a step mean, once for each execution mode
 *   STEP  RecordStep; then for each row its begin and end in ns since the step's begin (int64); then
 *         the tokens of each MoE layer's experts (uint32)
 *   OPS_  RecordOp: ops of the last step that was traced op by op
 */
#ifndef ENGINE_TRACE_RECORD_H
#define ENGINE_TRACE_RECORD_H

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <stdbool.h>

#define RECORD_MAGIC "SYRECORD"
enum { RECORD_VERSION = 1, RECORD_HEAD_BYTES = 16, RECORD_WAYS = 2 };

/* Which part of a layer's work a phase is; RECORD_WHOLE for an action. */
typedef enum RecordPart {
    RECORD_WHOLE,
    RECORD_FORWARD,
    RECORD_AGAIN, /* recomputation of forward */
    RECORD_INPUT, /* backward: gradients of the inputs */
    RECORD_WEIGHT /* backward: gradients of the weights */
} RecordPart;
extern const char *const record_part_name[RECORD_WEIGHT + 1];

/* Rows of actions come first, in the order of the program; rows of phases follow in the order in which
 * they run. */
typedef struct RecordRow {
    uint32_t name;              /* index of a text in NAME */
    int32_t action, micro;      /* index of the action's row; micro-batch, -1: none */
    int16_t lane, layer, chunk; /* layer: number of the block; -1: none */
    uint8_t part, transfer;     /* RecordPart; 1: a transfer between stages, on its own lane */
    double flops;
    uint64_t bytes; /* in use in the work arenas when it ended */
} RecordRow;

enum { RECORD_RAN_AGAIN = 1, RECORD_NOT_FINITE = 2, RECORD_TRACED = 4 };

typedef struct RecordStep {
    int64_t step, unix_ns; /* unix_ns: time of the step's begin */
    double seconds, loss, tokens;
    uint64_t memory_bytes;            /* in use by the process, or on the GPU */
    uint32_t flags, way, rows, loads; /* way: execution mode; numbers of times and of loads */
} RecordStep;

/* One op of a traced step, with its own time. */
typedef struct RecordOp {
    uint32_t name;
    int16_t layer, lane;
    int64_t step, start_ns, dur_ns; /* start_ns: Unix time */
    double flops, bytes;
} RecordOp;

_Static_assert(sizeof(RecordRow) == 40 && sizeof(RecordStep) == 64 && sizeof(RecordOp) == 48,
               "no padding, so that all builds write the same bytes");

/* ---- writing chunks into an open file ---- */

/* The first 16 bytes of a file; chunks follow. */
Status record_head(File *f);
/* A chunk's data may be in two parts, so that the caller need not join them; `rest` may be NULL. */
Status record_chunk(File *f, const char tag[4], const void *first, size_t first_bytes,
                    const void *rest, size_t rest_bytes);

/* The lane of step ranges in record_events, above the lanes of the device and of transfers. */
enum { RECORD_STEPS_LANE = 1000 };
/* The name of a lane for people: "compute", "comm", "lane 3". */
enum { RECORD_LANE_BYTES = 32 };
const char *record_lane_name(char out[RECORD_LANE_BYTES], int lane);

/* ---- reading ---- */

/* A chunk in the file's memory: data is not copied and may be unaligned. */
typedef struct RecordChunk {
    char tag[5];
    const uint8_t *data;
    size_t bytes;
} RecordChunk;

/* The rows of one execution mode. A parsed file was checked: every index is in range. */
typedef struct RecordWay {
    const RecordRow *row;
    const bool *range; /* (rows) is the row an action that has phases? */
    uint32_t rows;
} RecordWay;

/* In ns since the step's begin. */
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
    bool cut; /* the file ends early or a chunk is damaged; the content is what came before */
} Recorded;

/* Parses a file into `a`. ERR_FORMAT: not a recording, or its chunks contradict each other. */
Status record_parse(const char *path, const uint8_t *data, size_t bytes, Arena *a, Recorded *out);

/* Appends the recording as events of Chrome's trace event format, which Perfetto reads, separated by
 * commas. A rank is a process, a lane a thread. Steps are ProfilerStep#N, phases and actions without
 * phases are kernels, passes are ranges on the device, and ops are inside them. Times are microseconds
 * since `base_ns` (Unix time). */
Status record_events(const Recorded *r, int rank, int64_t base_ns, Text *out);

/* Does the file begin with a recording's magic? */
bool record_is(const uint8_t *data, size_t bytes);
/* ERR_FORMAT: not a recording, of another version, or of a machine with the other byte order. */
Status record_open(const char *path, const uint8_t *data, size_t bytes, size_t *at);
/* Reads the next complete chunk. False at the end of the file, or if the rest is no complete chunk;
 * *cut is true in the second case. */
bool record_next(const uint8_t *data, size_t bytes, size_t *at, RecordChunk *out, bool *cut);

#endif
