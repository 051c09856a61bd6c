/* import_private: the settings of a foreign file, between its readers (import_read.c) and the table (import.c). */
#ifndef PLANNER_STACK_IMPORT_PRIVATE_H
#define PLANNER_STACK_IMPORT_PRIVATE_H

#include "planner/stack/import.h"

/* One setting of a foreign file, with the file and line that won. */
typedef struct Setting {
    const char *key;   /* "num_layers", "training.seq_len" */
    const char *value; /* a scalar, or a list as "[a, b]"; NULL: null */
    const char *place; /* "FILE:LINE:COLUMN" */
    bool read;
} Setting;

/* All settings of an experiment, each key once. */
typedef struct Settings {
    Arena *arena;
    Setting *at;
    int n, files, pairs;        /* settings; read so far */
    const char *extends;        /* of the file that was read last */
    const char *framework;      /* "megatron" or "torchtitan" */
    const char *model, *module; /* files that an experiment names and that are not there, or NULL */
} Settings;

Setting *settings_find(const Settings *s, const char *key); /* NULL: there is none */

/* Read options of Megatron-LM, an experiment with all files that it names, or a job file in TOML. */
Status settings_read_megatron(Settings *s, Arena *a, const char *path);
Status settings_read_primus(Settings *s, Arena *a, const char *path);
Status settings_read_torchtitan(Settings *s, Arena *a, const char *path);

/* The next word of a list and its length; NULL after the last. */
const char *import_next_word(const char **list, const char *end, int *n);
void import_add_word(ImportWords *w, const char *key, const char *value);
Status import_check_shards(const Config *c, int64_t shards, const char *place);
/* Sorts the keys that no row has read: options of more->stack, harmless ones, unknown ones. */
Status import_sort_others(Settings *s, PlanImport *more);

#endif
