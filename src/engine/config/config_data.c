/* config_data: the mix of sources: their weights, and how these change in data.curriculum. */
#include "engine/config/config_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 128 };

/* Weights below 1 are shares: 0.7 and 0.2 miss something, as 7 and 2 do not. One alone is no mix. */
static Status check_shares(const char *where, const double *weight, int n)
{
    double sum = 0, most = 0;
    int used = 0;
    for (int i = 0; i < n; i++) {
        sum += weight[i];
        most = fmax(most, weight[i]);
        used += weight[i] > 0;
    }
    if (used < 2 || most >= 1 || fabs(sum - 1) <= 1e-3) return OK;
    return FAIL(
        ERR_ARG,
        "%s: the weights are shares, but sum to %g: make the sum 1, or give parts such as 7 "
        "and 3",
        where, sum);
}

/* Parses "NAME=WEIGHT" at `at`; *next: what follows it. */
static Status read_part(const Config *c, const char *where, const char *at, const char **next,
                        double *weight)
{
    char word[WORD_BYTES], *end = NULL;
    size_t n = strcspn(at, " ");
    const char *equals = memchr(at, '=', n);
    *next = at + n;
    (void)snprintf(word, sizeof word, "%.*s", (int)(n < WORD_BYTES ? n : WORD_BYTES - 1), at);
    if (equals == NULL || equals == at || n >= WORD_BYTES)
        return FAIL(ERR_ARG, "%s: \"%s\" must be NAME=WEIGHT", where, word);
    double value = strtod(word + (equals - at) + 1, &end);
    if (end == word + (equals - at) + 1 || *end != '\0' || !(value >= 0 && value <= 1e9))
        return FAIL(ERR_ARG, "%s: \"%s\" has no weight from 0 to 1e9", where, word);
    for (int i = 0; i < c->data_sources.n; i++) {
        const char *name = c->data_sources.at[i].name;
        if (strlen(name) != (size_t)(equals - at) || memcmp(name, at, strlen(name)) != 0) continue;
        weight[i] = value;
        return OK;
    }
    return FAIL(ERR_ARG, "%s: \"%s\" names no source of data.sources", where, word);
}

Status config_curriculum(const Config *c, int i, int64_t *step, double weight[CONFIG_SOURCES_MAX])
{
    const char *text = c->data_curriculum.at[i];
    char where[WORD_BYTES], *at = NULL;
    (void)snprintf(where, sizeof where, "data.curriculum[%d]", i);
    memset(weight, 0, CONFIG_SOURCES_MAX * sizeof *weight);
    long long value = strtoll(text, &at, 10);
    if (at == text || *at != ':' || value < 1 || value > (long long)1e15)
        return FAIL(ERR_ARG,
                    "%s is \"%.80s\", must be \"STEP: NAME=WEIGHT ...\" with a step from 1", where,
                    text);
    *step = value;
    for (const char *next = at + 1; *next != '\0';) {
        if (*next == ' ')
            next++;
        else
            TRY(read_part(c, where, next, &next, weight));
    }
    double sum = 0;
    for (int k = 0; k < c->data_sources.n; k++) sum += weight[k];
    if (sum == 0) return FAIL(ERR_ARG, "%s gives no source a weight above 0", where);
    return check_shares(where, weight, c->data_sources.n);
}

Status config_check_data(const Config *c)
{
    double weight[CONFIG_SOURCES_MAX] = { 0 };
    int64_t step = 0, before = 0;
    for (int i = 0; i < c->data_sources.n; i++) {
        if (c->data_sources.at[i].path[0] == '\0')
            return FAIL(ERR_ARG, "data.sources[%d].path is empty: name a prefix", i);
        weight[i] = c->data_sources.at[i].weight;
        if (weight[i] > 0 && c->data_sources.at[i].epochs > 0)
            return FAIL(ERR_ARG, "data.sources[%d] has a weight and epochs: give one of them", i);
    }
    TRY(check_shares("data.sources", weight, c->data_sources.n));
    for (int i = 0; i < c->data_curriculum.n; i++, before = step) {
        TRY(config_curriculum(c, i, &step, weight));
        if (step <= before)
            return FAIL(ERR_ARG,
                        "data.curriculum[%d] begins at step %lld, the one before at %lld: "
                        "steps must rise",
                        i, (long long)step, (long long)before);
    }
    return OK;
}
