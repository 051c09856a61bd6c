/*
 * recorder: what the last steps did, always at hand.
 *
 * Every action and phase of a training step has a time: on the host by its clock, on a GPU by a
 * stamp that the device writes where the work ends (as part of the graph of a captured step). The
 * last `run.trace_ring` steps lie in a ring of memory that is made at the start; nothing is allocated
 * while steps run. A traced step stamps each op, too.
 *
 * The ring is the only record of a step. Its exports (recorder_files.c) are the SYRECORD file of
 * each rank (trace/record.h), trace.json of the traced steps, and the folder of one step of a
 * pipeline that `switchyard viz` draws. A recorder does not sum up: `trace report` and the run's
 * report do.
 */
#ifndef TRAIN_RECORDER_H
#define TRAIN_RECORDER_H

#include "base/text.h"
#include "trace/record.h"
#include "train/engine_parts.h"

enum { RECORDER_OPS = 1 << 16 }; /* of one traced step; more are counted as dropped */

/* What the rows of one way to run a step mean; found out when it is first walked. */
typedef struct RecorderWay {
    RecordRow *row;
    int rows;
    bool known;
} RecorderWay;

/* A step of the ring. unix_ns of its head is by the clock of the stamps until it is exported. */
typedef struct RecorderSlot {
    RecordStep head;
    RecordTime *times; /* (rows) */
    uint32_t *load;    /* (loads), right after the times */
} RecorderSlot;

typedef struct Recorder {
    Engine *e;
    int steps;        /* of the ring */
    int64_t taken;    /* steps so far */
    int64_t began_us; /* of Unix time, of rank 0 when it was opened: tells runs apart */
    int room, loads;  /* rows at most; numbers of a step's expert load */
    Arena memory, scratch, stamps;
    char *names; /* one after the other, each with a NUL */
    size_t names_bytes;
    uint32_t n_names;
    RecorderWay way[RECORD_WAYS];
    uint64_t *stamp;    /* ns: begin and end of each action, then the end of each phase */
    RecorderSlot *slot; /* (steps), then the last traced step, which the ring may have lost */
    int64_t ahead_ns;   /* Unix time less the clock of the stamps: the least that was seen */
    RecorderWay *now;   /* of the step that is being walked; NULL: none, or an evaluation */
    int at;             /* its next row */
    bool learns;        /* its rows are being found out */

    /* Ops of the last traced step. */
    bool traces; /* the step that runs is one */
    Decorator note;
    RecordOp *op;       /* times are those of op_stamp, until it is exported */
    uint64_t *op_stamp; /* ns: begin and end of each */
    int n_ops, most_ops;
    int64_t dropped; /* ops so far for which there was no room */

    Arena trace_memory;
    Text trace;             /* trace.json so far, without its end */
    int64_t trace_began_ns; /* Unix time at which it begins */
} Recorder;

/* For an engine that trains, before engine_prepare; all ranks of `world` (NULL: alone) together.
 * `steps` 0: nothing is recorded. */
Status recorder_open(Recorder *r, Engine *e, Comm *world, int steps);
void recorder_close(Recorder *r); /* safe on { 0 } */

/* ---- the engine's: no-ops without a recorder ---- */

void recorder_begin(Recorder *r);
Status recorder_phase(Recorder *r, const LayerRun *run, const char *name, RecordPart part);
void recorder_action(Recorder *r, int action, double flops_before);
void recorder_end(Recorder *r);
bool recorder_traces(const Engine *e);

/* ---- the trainer's ---- */

/* Steps from here on are traced op by op, or no longer. Nothing if nothing is recorded. */
void recorder_trace(Recorder *r, bool on);

/* After a step that has ended. */
void recorder_take(Recorder *r, const StepResult *result, double seconds, double tokens,
                   uint64_t memory_bytes);
uint32_t recorder_name(Recorder *r, const char *name); /* its number in `names` */

typedef struct RecorderMeta {
    int rank, ranks;
    const char *device;             /* NULL or "": the CPU */
    double flops;                   /* of the model, a step of all ranks */
    double sheet_flops, roof_flops; /* a second of one rank's device; 0: not known */
} RecorderMeta;

/* ---- exports: recorder_files.c ---- */

/* The JSON object that says what was recorded. */
Status recorder_meta(const Recorder *r, const RecorderMeta *m, Text *out);

/* Writes FOLDER/rank-NNNNN.syr, whole or not at all: the ring, and the ops of the last traced step.
 * `meta` is a JSON object. */
Status recorder_dump(Recorder *r, const char *folder, int rank, const char *meta);

/* Adds the last step, which was traced, to the trace event file at `path` and writes the file. The
 * file has all steps that this recorder added. `folder` has the rank's recording with that step. */
Status recorder_trace_json(Recorder *r, const char *folder, int rank, const char *path);

/* The last step into `folder`, as pp_vis does (docs/reference/formats.md): this stage's
 * pp_rank_N.json, and from the first stage config.json. Of several ranks of a stage only the first
 * writes. Nothing without a pipeline over ranks or lanes that are streams: then one action runs at a
 * time. */
Status recorder_pipeline(Recorder *r, const char *folder);

#endif
