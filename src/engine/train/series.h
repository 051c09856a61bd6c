/*
 * series: the figures of a step or evaluation on the host, each with its last value. Whoever knows a number
 * sets it before metrics_step, which writes those that were set. event_file.c and live.c read those that
 * can be watched, so that TensorBoard, Prometheus and the live page have the same figures under the same
 * names (docs/reference/metrics.md). The table of figures is engine/model/figure.def.
 */
#ifndef ENGINE_TRAIN_SERIES_H
#define ENGINE_TRAIN_SERIES_H

#include "engine/base/arena.h"
#include "engine/model/figure.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Series {
    const char *name, *help;
    const char *key, *label; /* "layer" and "3", of several series of one name; else "" */
    bool total;              /* a sum that only grows */
    bool set, fresh, seen;   /* since series_taken; the same, and it is known; it was ever known */
    double now;
    Figure figure;
} Series;

typedef struct SeriesTable {
    Series *all; /* series of one figure lie together; the first `n` can be watched */
    int n, first[FIGURES], count[FIGURES];
} SeriesTable;

/* The labels of what figures have one series for; EACH_RUN's are not read. */
typedef struct SeriesLabels {
    const char *const *label;
    int n;
} SeriesLabels;

/* Makes the table in `a`, which must hold the labels, too. */
Status series_make(SeriesTable *t, const SeriesLabels of[EACH_LABELLED], Arena *a);
/* Sets a figure; nothing where there is no table, as on other ranks than 0. */
void series_set(SeriesTable *t, Figure f, int i, double value);
/* Sets a layer's busiest and least loaded expert, each over the mean, and the entropy of its load over
 * ln E: 1 is even load, 0 is one expert. load (domains, E); nothing if all of it is 0. */
void series_set_load(SeriesTable *t, int layer, const int32_t *load, int64_t domains,
                     int64_t experts);
void series_taken(SeriesTable *t);

#endif
