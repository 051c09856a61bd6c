/* import: the configuration files of other trainers as our Config.
 *
 * `primus`: an experiment in YAML (modules.pre_trainer: {framework, config, model, overrides}) for
 * Megatron or torchtitan. Model and module files are sought beside the experiment and, in it and
 * the folders above, in models/FRAMEWORK/, configs/... and primus/configs/...; their `extends` are
 * read before them, key by key. Overrides win over the module's file, that over the model's.
 * ${NAME} and ${NAME:default} are of the environment, as that format wants it. A preset of ours
 * takes the place of a model's file that is not found. `torchtitan`: a job file in TOML; models are
 * those of presets and of the flavours in import.def, the table of what is understood
 * (docs/reference/formats.md). Keys that mean nothing to a plan are skipped, others are listed. */
#ifndef PLAN_IMPORT_H
#define PLAN_IMPORT_H

#include "base/text.h"
#include "config/config.h"

enum { IMPORT_WORDS_MAX = 256, IMPORT_NOTES_MAX = 8 };

typedef struct ImportWord {
    const char *key, *value;
} ImportWord;

typedef struct ImportWords {
    int n; /* the first IMPORT_WORDS_MAX are kept */
    ImportWord at[IMPORT_WORDS_MAX];
} ImportWords;

/* What a file says beside our settings. Texts live in the arena. */
typedef struct PlanImport {
    int64_t gpus;     /* 0: it does not say */
    bool per_replica; /* no global batch is given: train.batch is that of one data-parallel rank */
    const char *preset;  /* ours that stands in for the model's file; NULL: none does */
    ImportWords options; /* of the stack: sync_free, deepep, loss_fusion ... and the value */
    ImportWords unknown; /* keys that are not understood, and where they stand */
    int notes_n;
    const char *notes[IMPORT_NOTES_MAX]; /* sentences on what was assumed */
} PlanImport;

/* `from` is "primus" or "torchtitan". What comes out has passed config_check. ERR_IO, ERR_FORMAT,
 * ERR_ARG or ERR_UNSUPPORTED in one sentence: a file that is not there or does not parse, with the
 * place; a value outside the limits of our setting, with both names; a model that neither a file
 * nor a preset has, with the nearest; what no setting of ours can say (tensor parallelism). */
Status plan_import(const char *from, const char *path, Arena *a, Config *out, PlanImport *more);
/* `stack` with the file's options of it behind the name. An option that `stack` sets stays as it is. */
Status plan_import_stack(const PlanImport *more, const char *stack, Arena *a, const char **out);
/* Appends a line for each assumption, for the options that a plan ignores, and for each unknown key. */
Status plan_import_notes(const PlanImport *more, Text *out);

#endif
