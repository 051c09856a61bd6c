/*
 * layers: config.json lists layers one by one; settings say "every n-th layer". Finds the n.
 */
#ifndef CONVERT_LAYERS_H
#define CONVERT_LAYERS_H

#include "base/json.h"

/* The layers i >= first for which `every` divides i + 1. */
typedef struct LayersList {
    int64_t every, first;
} LayersList;

/* Finds the interval of a list of layer numbers, or with `zeros` of a list that has a 0 for each of
 * them and a 1 for the others. out->every: an interval that is tried first. An empty list gives
 * `layers` + 1. Numbers from `layers` on are ignored. ERR_FORMAT: not such a list. ERR_UNSUPPORTED:
 * the layers have no interval. The sentence begins with the path and the list's name. */
Status layers_list(const char *path, const Json *list, bool zeros, int64_t layers, Arena *a,
                   LayersList *out);

#endif
