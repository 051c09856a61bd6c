/*
 * layers: lists of config.json that name layers one by one, as the interval that they are.
 */
#ifndef CONVERT_LAYERS_H
#define CONVERT_LAYERS_H

#include "base/arena.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

/* From the first-th layer on, those for which `every` divides their number + 1. */
typedef struct LayersList {
    int64_t every, first;
} LayersList;

/* What a list of numbers of layers is, or with `zeros` a list that has a 0 for each of them and a 1 for
 * the others. out->every: an interval that is taken if it does. A list of no layer is `layers` + 1.
 * Numbers behind the last layer say nothing. ERR_FORMAT: no such list. ERR_UNSUPPORTED: no interval.
 * Sentences begin with the path and the list's name. */
Status layers_list(const char *path, const cJSON *list, bool zeros, int64_t layers, Arena *a,
                   LayersList *out);

#endif
