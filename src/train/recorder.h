/*
 * recorder: what the last steps did, always at hand.
 *
 * Every action and phase of a training step has a time: on the host by its clock, on a GPU by a
 * stamp that the device writes where the work ends (as part of the graph of a captured step). The
 * last `run.trace_ring` steps lie in a ring of memory that is made at the start; nothing is allocated
 * while steps run. A dump writes the ring as one file a rank (trace/record.h).
 */
#ifndef TRAIN_RECORDER_H
#define TRAIN_RECORDER_H

#include "base/text.h"
#include "trace/record.h"
#include "trace/trace.h"
#include "train/engine_parts.h"

/* What the rows of one way to run a step mean; found out when it is first walked. */
typedef struct RecorderWay {
    RecordRow *row;
    int rows;
    bool known;
} RecorderWay;

typedef struct Recorder {
    Engine *e;
    int steps;        /* of the ring */
    int64_t taken;    /* steps so far */
    int64_t began_us; /* of Unix time, of rank 0 when it was opened: tells runs apart */
    int room, loads;  /* rows at most; numbers of a step's expert load */
    Arena memory, scratch, stamps;
    char *names; /* one behind the other, each with a NUL */
    size_t names_bytes;
    uint32_t n_names;
    RecorderWay way[RECORD_WAYS];
    uint64_t *stamp;  /* ns: begin and end of each action, then the end of each phase */
    uint64_t *times;  /* (steps, 2 room): begin and end of each row, by the clock of the stamps */
    RecordStep *step; /* (steps) */
    uint32_t *load;   /* (steps, loads) */
    int64_t ahead_ns; /* Unix time less the clock of the stamps: the least that was seen */
    RecorderWay *now; /* of the step that is being walked; NULL: none, or an evaluation */
    int at;           /* its next row */
    bool learns;      /* its rows are being found out */
} Recorder;

/* For an engine that trains, before engine_prepare; all ranks of `world` (NULL: alone) together.
 * `steps` 0: nothing is recorded. */
Status recorder_open(Recorder *r, Engine *e, Comm *world, int steps);
void recorder_close(Recorder *r); /* safe on { 0 } */

/* ---- the engine's: no-ops without a recorder ---- */

void recorder_begin(Engine *e);
Status recorder_phase(Engine *e, const LayerRun *run, const char *name, RecordPart part);
void recorder_action(Engine *e, int action, double flops_before);
void recorder_end(Engine *e);

/* ---- the trainer's ---- */

/* Behind a step that has ended. */
void recorder_take(Recorder *r, const StepResult *result, double seconds, double tokens,
                   uint64_t memory_bytes, bool traced);
typedef struct RecorderMeta {
    int rank, ranks;
    const char *device;             /* NULL or "": the CPU */
    double flops;                   /* of the model, a step of all ranks */
    double sheet_flops, roof_flops; /* a second of one rank's device; 0: not known */
} RecorderMeta;

/* The JSON object that says what was recorded. */
Status recorder_meta(const Recorder *r, const RecorderMeta *m, Text *out);

/* Writes FOLDER/rank-NNNNN.syr, whole or not at all: the ring, and `ops` of traced steps. `meta` is a
 * JSON object. */
Status recorder_dump(Recorder *r, const char *folder, int rank, const char *meta, const Trace *ops);

#endif
