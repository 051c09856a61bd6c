/* layers: lists of layers become intervals. */
#include "convert/layers.h"

#include <math.h>

static bool at_interval(const bool *has, int64_t layers, int64_t first, int64_t every)
{
    int64_t i = 0;
    while (i < layers && has[i] == (i >= first && (i + 1) % every == 0)) i++;
    return i == layers;
}

/* has[i]: does the list name layer i? */
static Status read_list(const char *path, const Json *list, bool zeros, int64_t layers, bool *has)
{
    int64_t n = 0;
    bool good = json_is(list, JSON_ARRAY);
    for (const Json *at = json_first(list); at != NULL; at = at->next) {
        double x = at->number;
        good = good && at->type == JSON_NUMBER && x == floor(x) && x >= 0 && (!zeros || x <= 1);
        if (!good) break;
        if (!zeros && x < (double)layers) has[(int64_t)x] = true;
        if (zeros && n < layers) has[n] = x == 0;
        n++;
    }
    if (!good)
        return FAIL(ERR_FORMAT, "%s: %s must be a list of %s", path, list->name,
                    zeros ? "0 and 1" : "layer numbers");
    if (!zeros || n >= layers) return OK;
    return FAIL(ERR_FORMAT, "%s: %s has %lld entries for %lld layers", path, list->name,
                (long long)n, (long long)layers);
}

Status layers_list(const char *path, const Json *list, bool zeros, int64_t layers, Arena *a,
                   LayersList *out)
{
    int64_t every = out->every, first = 0;
    bool *has = NULL;
    TRY(ARENA_ZEROED(a, layers + 1, &has));
    TRY(read_list(path, list, zeros, layers, has));
    if (at_interval(has, layers, 0, every)) {
        out->first = 0;
        return OK;
    }
    for (every = 1; every <= layers && !at_interval(has, layers, 0, every);) every++;
    if (!zeros && !at_interval(has, layers, 0, every)) {
        while (first < layers && !has[first]) first++;
        for (every = 1; every <= layers && !at_interval(has, layers, first, every);) every++;
    }
    *out = (LayersList){ every, first };
    if (at_interval(has, layers, first, every)) return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s is not supported: its layers do not follow at one interval", path,
                list->name);
}
