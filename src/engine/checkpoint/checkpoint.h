/*
 * checkpoint: the whole state of a training, written so that a crash can only cost the newest one.
 *
 *   RUN/checkpoints/step-0000000040/rank-00000.bin    raw elements, each entry 64-byte aligned
 *                                   rank-00001.bin    and so on: a file a rank that has something
 *                                   manifest.jsonl    written last
 *
 * Elements are f32; moments are in the type that the run keeps them in (optimizer.moments), and are
 * rounded or widened by a run that keeps the other.
 *
 * The manifest is one JSON object a line (docs/reference/formats.md): a header, one line an entry,
 * and an end line with the number of entries and the XXH3-128 of all lines before it. A folder
 * without that end line is not a checkpoint. Everything is written into step-N.tmp, each file is
 * fsynced, the manifest comes last, and then the folder is renamed.
 *
 * Coordinates are parameter names and element ranges of the canonical unsharded tensor. How buffers are
 * fused, padded or sharded is decided at load, so any mesh loads the checkpoint of any other. What a rank
 * holds of a tensor, and what an entry holds, is a Piece (engine/model/piece.h): a range, a range of columns, or
 * a part of such columns. All entries of a tensor together must hold each element once.
 *
 * Every element is written once: by the first of the ranks that hold it. Ranks write at the same
 * time into one folder that all of them see; rank 0 makes it, gathers the lines of the manifest and
 * renames once every rank's file is on disk. If one rank fails, the save fails on all of them.
 *
 * A save stops training for a copy; a thread then writes the copy. The save ends at a later step,
 * at which all ranks call checkpoint_poll or checkpoint_finish together.
 *
 * With checkpoint.peer that copy lies in memory that outlives the process, and a neighbour gets it, too (peer.h).
 */
#ifndef ENGINE_CHECKPOINT_CHECKPOINT_H
#define ENGINE_CHECKPOINT_CHECKPOINT_H

#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/peer.h"
#include "engine/host/worker.h"
#include "engine/train/heartbeat.h"

#include <stdatomic.h>

/* What saves cost the training: the time that it spends in calls of this file, as it copies, agrees and waits. */
typedef struct SaveTimes {
    /* The reader of the first two sets them to 0. */
    double stall_s; /* since they were read last */
    double share; /* stall of the save that ended since then, over the time since the one before */
    double spent_s;    /* by the save that is pending */
    double began_s;    /* clock_s() when it began; at first, when the Checkpointer was opened */
    double interval_s; /* from the save before until then */
    double all_s, worst_share; /* of all saves that ended */
    int64_t saves;
} SaveTimes;

/* Host memory that saves are copied to, unless `peer` has it. */
typedef struct SaveMemory {
    Arena arena;
    size_t pinned;      /* bytes from its beginning that a GPU writes itself */
    atomic_bool wanted; /* by a save: the writer's first job, taking its pages, ends */
} SaveMemory;

/* Saves into one run's folder and keeps the newest `keep`. All its memory is taken at open, so that
 * saving allocates nothing. */
typedef struct Checkpointer {
    EngineParams *params;
    const char *folder;   /* RUN/checkpoints */
    const char *config;   /* YAML of this run */
    const int64_t *taken; /* (sources) sequences read of each, for the next save; NULL: none */
    const char (*sums)[FILE_SUM_BYTES]; /* (sources) of their data; NULL with `taken` */
    int64_t *steps;                     /* steps of the folder's checkpoints, rising */
    int n_steps, keep;
    int gone; /* steps behind these, of the folders that the writer removes */
    SaveTimes times;
    size_t bytes; /* size of this rank's file; 0: it writes none */
    char *buffer; /* write buffer of the file */
    void *sum;    /* state of the checksum of the entry that is being written */
    Arena arena;
    SaveMemory copy;
    char *image; /* the file's bytes, in `copy` or a slot of `peer`; NULL: not checkpoint.async */
    Peer peer;   /* checkpoint.peer; slots are open behind checkpoint_open_copies */
    Arena text;
    Text lines;          /* the manifest's lines of this rank's entries, in `text` */
    CheckpointInfo info; /* of the save that is pending; texts behind `mark` in the arena */
    ArenaMark mark;
    bool pending; /* a save has begun and is not finished */
    bool on_disk; /* it goes into `folder`, not only into `peer` */
    Worker writer;
} Checkpointer;

/* Collective functions here are collective over the world of the parameters' mesh; this is one of them.
 * `c` is the user's configuration, the same on all ranks. ERR_ARG: a rank sees another folder than
 * rank 0. */
Status checkpointer_open(Checkpointer *k, const Config *c, EngineParams *w, Arena *a);
/* Waits for the writer. Finishes a pending save if this rank is alone; else drops it, because the other
 * ranks may not come. Copies in memory stay. Safe on { 0 }. */
void checkpointer_close(Checkpointer *k);

/* checkpoint.peer (peer.h), without which these do nothing. A failure other than ERR_COMM is a warning: the
 * run goes on with checkpoints on disk. Collective.
 * find: looks for a copy that is newer than the newest checkpoint on disk; resume and host as of peer_init.
 * open: makes the slots for copies to come; call it behind the load. step: where the run goes on.
 * give_back: the run has ended, and its copies go. */
Status checkpoint_find_copy(Checkpointer *k, bool resume, const char *host);
Status checkpoint_open_copies(Checkpointer *k, int64_t step);
void checkpoint_give_back(Checkpointer *k);
/* The step of the copy that was found; -1: none. */
static inline int64_t checkpoint_copy_step(const Checkpointer *k)
{
    return k->peer.found.n > 0 ? k->peer.found.step : -1;
}

/* Begins a save, after finishing the one before. position: training sequences read. With open slots it goes
 * to memory, too. Collective. */
Status checkpoint_save(Checkpointer *k, int64_t step, uint64_t position);
/* The same into memory alone; without open slots it does nothing. Collective. */
Status checkpoint_save_copy(Checkpointer *k, int64_t step, uint64_t position);
/* Between steps: finishes the pending save if all ranks have written. Collective. */
Status checkpoint_poll(Checkpointer *k);
/* Waits for the pending save, and until older checkpoints are removed. ERR_DISK: it cannot be written
 * completely. ERR_NUMERIC: a number in it is not finite (numbers.h). After a failure older checkpoints are as
 * before. Collective. */
Status checkpoint_finish(Checkpointer *k);

/* Bytes that a Checkpointer will take in addition to its buffers of fixed size. peer: of its slots, if the
 * neighbour's part is as large as this rank's. */
size_t checkpoint_plan_bytes(const EngineParams *w, size_t *peer);

/* Header only; texts in `a`. `path` is a checkpoint's folder. ERR_FORMAT: it is no checkpoint, or one of
 * another step than a folder's name (step-N) says. */
Status checkpoint_info(const char *path, Arena *a, CheckpointInfo *out);
/* The configuration in the header. Whatever wrote it, it is checked as one of a user's is. */
Status checkpoint_config(const char *path, const CheckpointInfo *info, Arena *a, Config *out);

/* Loads this rank's pieces of every parameter from the folder `path`; moments, too, in a
 * training. Every byte of an entry is verified by some rank. ERR_FORMAT or ERR_IO: the checkpoint is
 * damaged; the sentence says where. ERR_NUMERIC: a number in it is not finite (numbers.h). ERR_ARG:
 * it is of another model (the sentence names the first parameter that differs), or not the one that
 * rank 0 sees. Collective. */
Status checkpoint_load(EngineParams *w, const char *path, Arena *scratch, CheckpointInfo *info);

/* May a checkpoint with this header be loaded? OK, or the reason why not. All ranks ask before anything
 * is read. Texts of the header, names of its sources too, may be read only here. The gate may set
 * info->modules, the number of modules of multi-token prediction there. Modules that this model lacks
 * are then skipped, and those that the checkpoint lacks keep their values. */
typedef struct CheckpointGate {
    Status (*may)(const void *self, const char *path, CheckpointInfo *info, Arena *scratch);
    const void *self;
    Heartbeat *beat; /* beats as values are read; NULL: none */
} CheckpointGate;

/* Like checkpoint_load, for a new training. `gate` must allow the checkpoint. Moments are loaded only if
 * `moments`; else they keep their values. Collective. */
Status checkpoint_load_init(EngineParams *w, const char *path, const CheckpointGate *gate,
                            bool moments, Arena *scratch, CheckpointInfo *info);

/* Loads the newest usable checkpoint of a run's folder, as rank 0 lists it. Skips, with a warning, those
 * that are damaged or hold a number that is not finite. ERR_IO or ERR_NUMERIC: none is usable. `gate`
 * must allow the checkpoint; NULL: all are allowed. Collective. */
Status checkpoint_load_newest(EngineParams *w, const char *run_dir, const CheckpointGate *gate,
                              Arena *scratch, CheckpointInfo *info);

/* Loads the copy that checkpoint_find_copy found, as checkpoint_load_newest loads one on disk. Errors as of
 * checkpoint_load. Collective. */
Status checkpoint_load_copy(Checkpointer *k, const CheckpointGate *gate, Arena *scratch,
                            CheckpointInfo *info);

/* A path given by a user: a checkpoint's folder, or a run's folder (its newest checkpoint with a
 * whole manifest). */
Status checkpoint_resolve(const char *path, Arena *scratch, char out[]);

#endif
