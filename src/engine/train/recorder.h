/*
 * recorder: keeps times, FLOPs and memory of the last steps, in every run.
 *
 * Every action and phase of a training step has a time: on the host by its clock, on a GPU by a
 * stamp that the device writes where the work ends (as part of the graph of a captured step). The
 * last `run.trace_ring` steps lie in a ring of memory that is made at the start; nothing is allocated
 * while steps run. A traced step stamps each op, too.
 *
 * The ring is the only record of a step. Its exports (recorder_files.c) are the SYRECORD file of
 * each rank (engine/trace/record.h), trace.json of the traced steps, and the folder of one step of a
 * pipeline that `switchyard viz` draws. A recorder does not sum up: `trace report` and the run's
 * report do.
 */
#ifndef ENGINE_TRAIN_RECORDER_H
#define ENGINE_TRAIN_RECORDER_H

#include "engine/base/text.h"
#include "engine/step/engine_parts.h"
#include "engine/trace/record.h"

enum { RECORDER_OPS = 1 << 16 }; /* of one traced step; more are counted as dropped */

/* What the rows of one execution mode mean. It is filled when the mode first runs a step, and again when it
 * runs another list (train.batch_ramp): the ring then begins anew. */
typedef struct RecorderMode {
    RecordRow *row;
    int rows;
    const EngineList *list; /* that the rows are of; NULL: not known yet */
} RecorderMode;

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
    int64_t first;    /* of them the first whose rows are still known */
    int64_t began_us; /* of Unix time, of rank 0 when it was opened: tells runs apart */
    int room, loads;  /* rows at most; numbers of a step's expert load */
    Arena memory, scratch, stamps;
    char *names; /* one after the other, each with a NUL */
    size_t names_bytes;
    uint32_t n_names;
    RecorderMode mode[RECORD_WAYS];
    uint64_t *stamp;    /* ns: begin and end of each action, then the end of each phase */
    RecorderSlot *slot; /* (steps), then the last traced step, which the ring may have lost */
    int64_t ahead_ns;   /* Unix time minus the clock of the stamps: the minimum seen. A reading can
                           only be late, so the minimum is the best estimate. */
    RecorderMode *now;  /* of the step that runs; NULL: none, or an evaluation */
    int at;             /* its next row */
    bool learns;        /* its rows are being filled */

    /* Ops of the last traced step. */
    bool traces; /* the step that runs is one */
    Decorator note;
    RecordOp *op;       /* times are those of op_stamp, until it is exported */
    uint64_t *op_stamp; /* ns: begin and end of each */
    int n_ops, most_ops;
    int64_t dropped; /* ops so far that did not fit */

    Arena trace_memory;
    Text trace;             /* trace.json so far, without its end */
    int64_t trace_began_ns; /* Unix time at which it begins */
} Recorder;

/* For an engine that trains, before engine_prepare; all ranks of `world` (NULL: alone) together.
 * `steps` 0: nothing is recorded. */
Status recorder_open(Recorder *r, Engine *e, Comm *world, int steps);
void recorder_close(Recorder *r); /* safe on { 0 } */

/* ---- called by the engine; no-ops without a recorder ----
 * begin and end enclose the walk over a program. phase comes after a phase was launched, action after an
 * action, with the FLOPs that the Exec had counted before it. */

void recorder_begin(Recorder *r);
Status recorder_phase(Recorder *r, const LayerRun *run, const char *name, RecordPart part);
void recorder_action(Recorder *r, int action, double flops_before);
void recorder_end(Recorder *r);
bool recorder_traces(const Recorder *r);

/* ---- called by the trainer ---- */

/* Turns tracing op by op on or off, for the steps from here on. No-op if nothing is recorded. */
void recorder_trace(Recorder *r, bool on);

/* Puts a step that has ended into the ring. `seconds` is its time by the host's clock. */
void recorder_take(Recorder *r, const StepResult *result, double seconds, double tokens,
                   uint64_t memory_bytes);

typedef struct RecorderMeta {
    int rank, ranks;
    const char *device;             /* NULL or "": the CPU */
    double flops;                   /* of the model, a step of all ranks */
    double sheet_flops, roof_flops; /* FLOP/s of one rank's device; 0: unknown */
} RecorderMeta;

/* ---- exports: recorder_files.c ---- */

/* Appends the JSON object that describes the recording (META of docs/reference/formats.md). */
Status recorder_meta(const Recorder *r, const RecorderMeta *m, Text *out);

/* Writes FOLDER/rank-NNNNN.syr: the ring, and the ops of the last traced step. A reader sees the old file or
 * the new one. `meta` is a JSON object. */
Status recorder_dump(Recorder *r, const char *folder, int rank, const char *meta);

/* Adds the last step, which was traced, to the events so far, and writes all of them to the trace event file
 * at `path`. `folder` has this rank's recording with that step. */
Status recorder_trace_json(Recorder *r, const char *folder, int rank, const char *path);

/* Writes the last step into `folder` in the format of pp_vis (docs/reference/formats.md): pp_rank_N.json of
 * this stage, and config.json by the first stage. Only the first rank of a stage writes. Writes nothing
 * without a pipeline over ranks or a comm lane of its own: then one action runs at a time. */
Status recorder_pipeline(Recorder *r, const char *folder);

#endif
