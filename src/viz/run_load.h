/* run_load: tables of expert load, out of raw JSON. */
#ifndef VIZ_RUN_LOAD_H
#define VIZ_RUN_LOAD_H

#include "viz/run_data.h"

/* Rows and columns of [[...], ...]; false if it is no table with both. */
bool load_shape(char *raw, int *out_layers, int *out_experts);

/* Read a table of exactly (d->moe_layers, d->experts); false, and `table` is worth nothing, if it
 * is another. */
bool load_read(const RunData *d, char *raw, double *table);

Status load_init(RunLoad *l, const RunData *d, Arena *a);
void load_clear(RunLoad *l, const RunData *d);
void load_add(RunLoad *l, const RunData *d, const double *table, int64_t step);

/* Least and most loaded expert of a layer, relative to the layer's mean; NaN if it has no load. */
void load_extremes(const double *layer, int experts, double *least, double *most);

#endif
