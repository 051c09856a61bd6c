/*
 * series: the figures of a run that can be watched, each with its last value. metrics.c sets them after
 * each step and evaluation. event_file.c and live.c read them, so that TensorBoard, Prometheus and the
 * live page have the same figures under the same names (docs/reference/metrics.md).
 */
#ifndef TRAIN_SERIES_H
#define TRAIN_SERIES_H

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum SeriesKind {
    SERIES_LOSS,
    SERIES_AUX_LOSS,
    SERIES_MTP_LOSS,
    SERIES_LR,
    SERIES_GRAD_NORM,
    SERIES_GROUP_NORM,
    SERIES_TOKENS_PER_S,
    SERIES_STEP_S,
    SERIES_ROOF_SHARE,
    SERIES_MFU,
    SERIES_AGAIN,
    SERIES_ALERTS,
    SERIES_LOAD_MAX,
    SERIES_LOAD_MIN,
    SERIES_LOAD_ENTROPY,
    SERIES_ROUTER_Z,
    SERIES_SOURCE_TOKENS,
    SERIES_SOURCE_EPOCHS,
    SERIES_EVAL_LOSS,
    SERIES_EVAL_BITS,
    SERIES_SOURCE_EVAL_LOSS,
    SERIES_KINDS
} SeriesKind;

/* What a kind has one series for. */
typedef enum SeriesEach {
    EACH_RUN,
    EACH_DEPTH,
    EACH_GROUP,
    EACH_LAYER,
    EACH_SOURCE,
    EACH_COUNT
} SeriesEach;

typedef struct Series {
    const char *name, *help;
    const char *key, *label; /* "layer" and "3", of several series of one name; else "" */
    bool total;              /* a sum that only grows */
    bool seen, fresh;        /* it was ever set; it was set since series_taken */
    double now;
} Series;

typedef struct SeriesTable {
    Series *all; /* series of one name lie together */
    int n, first[SERIES_KINDS];
} SeriesTable;

/* Labels of each; EACH_RUN's are not read. */
typedef struct SeriesLabels {
    const char *const *label;
    int n;
} SeriesLabels;

/* Makes the table in `a`, which must hold the labels, too. */
Status series_make(SeriesTable *t, const SeriesLabels of[EACH_COUNT], Arena *a);
void series_set(SeriesTable *t, SeriesKind kind, int i, double value);
/* Sets a layer's busiest and least loaded expert, each over the mean, and the entropy of its load over
 * ln E: 1 is even load, 0 is one expert. load (domains, E); nothing if all of it is 0. */
void series_set_load(SeriesTable *t, int layer, const int32_t *load, int64_t domains,
                     int64_t experts);
void series_taken(SeriesTable *t);

#endif
