/* import: converts configuration files of other trainers to our Config, for `plan`. It does not convert weights.
 * docs/reference/formats.md describes the files of `megatron`, `primus` and `torchtitan`; import.def is the table of
 * what is understood. Keys that a plan ignores are skipped; unknown ones are listed. */
#ifndef PLANNER_STACK_IMPORT_H
#define PLANNER_STACK_IMPORT_H

#include "engine/base/text.h"
#include "engine/config/config.h"

enum { IMPORT_WORDS_MAX = 1024, IMPORT_NOTES_MAX = 8 };

/* A key and its value, or the place where it stands. */
typedef struct ImportWord {
    const char *key, *value;
    bool followed; /* of options: the plan, or the stack that the file is for, has it */
} ImportWord;

typedef struct ImportWords {
    int n; /* the first IMPORT_WORDS_MAX are kept */
    ImportWord at[IMPORT_WORDS_MAX];
} ImportWords;

/* What a file says that our settings cannot hold. Texts live in the arena. */
typedef struct PlanImport {
    int64_t gpus;     /* 0: not given */
    bool per_replica; /* no global batch is given: train.batch is that of one data-parallel rank */
    int64_t replicas; /* of all shards, whose number is left to the GPUs; 0: not given */
    const char *replicas_key, *replicas_place;
    bool fp4;            /* products in 4 bits are planned as such */
    const char *stack;   /* that the file is for: its framework's */
    const char *preset;  /* our preset that stands in for the model's file; NULL: none */
    ImportWords options; /* of the stack: sync_free, deepep, loss_fusion ... and the value */
    ImportWords unknown; /* keys that are not understood, and where they stand */
    int notes_n;
    const char *notes[IMPORT_NOTES_MAX]; /* sentences on what was assumed */
} PlanImport;

/* `from` is "megatron", "primus" or "torchtitan". The result has passed config_check. Errors are one sentence. ERR_IO or
 * ERR_FORMAT: a file is missing or does not parse, with the position. ERR_ARG: a value is outside the limits
 * of our setting, with both names; or neither a file nor a preset has the model, with the nearest name.
 * ERR_UNSUPPORTED: no setting of ours can express it (tensor parallelism). */
Status plan_import(const char *from, const char *path, Arena *a, Config *out, PlanImport *more);
/* Sets what depends on the number of GPUs. ERR_ARG: the replicas do not divide them. */
Status plan_import_cluster(const PlanImport *more, int64_t gpus, Config *c);
/* Appends the file's options of the stack to the name `stack`. An option that `stack` itself sets is kept. */
Status plan_import_stack(const PlanImport *more, const char *stack, Arena *a, const char **out);
/* Appends a line for each assumption, one for the options that a plan ignores, and one for all unknown keys. */
Status plan_import_notes(const PlanImport *more, Text *out);

#endif
