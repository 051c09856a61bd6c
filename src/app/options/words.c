/* words: reads them with strtod and strtoll, which must take the whole word. */
#include "app/options/words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double TOKENS_MAX = 1e18;

Status words_tokens(const char *text, double *out)
{
    static const char units[] = "KMBT";
    char *end = NULL;
    double value = strtod(text, &end);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) value *= pow(1000, (double)(unit - units + 1)), end++;
    if (end == text || *end != '\0' || !(value >= 1 && value <= TOKENS_MAX))
        return FAIL(
            ERR_ARG,
            "plan: --tokens %.40s is not a number of tokens from 1 to %g: write 15T, 500B or "
            "3e12",
            text, TOKENS_MAX);
    *out = value;
    return OK;
}

/* Reads a number of GPUs at `at`, up to a comma or the end. `option` and its whole `value` stand in the
 * error. */
static Status read_count(const char *option, const char *value, const char *at, int64_t *out)
{
    char *stop = NULL;
    long long n = strtoll(at, &stop, 10);
    if (stop == at || (*stop != '\0' && *stop != ',') || n < 1 || n > 100000000)
        return FAIL(ERR_ARG,
                    "plan: %s %.60s: the number of GPUs is a whole number from 1 to 1e8, not "
                    "\"%.*s\"",
                    option, value, (int)fmin((double)strcspn(at, ","), 40), at);
    *out = n;
    return OK;
}

Status words_cluster(const char *text, Arena *a, const char **name, int64_t *gpus)
{
    const char *colon = strrchr(text, ':');
    if (*text == ':')
        return FAIL(ERR_ARG, "plan: --cluster %.60s names no GPU: write mi355x:1024", text);
    char *x = NULL;
    const long long before = strtoll(text, &x, 10);
    if (colon == NULL && before > 0 && *x == 'x' && x[1] != '\0')
        return FAIL(ERR_ARG, "plan: --cluster %.60s: write %.60s:%lld", text, x + 1, before);
    if (colon == NULL && *gpus == 0)
        return FAIL(ERR_ARG, "plan: --cluster %.60s does not say how many GPUs: write %.60s:8",
                    text, text);
    TRY(arena_text(a, text, colon != NULL ? (size_t)(colon - text) : strlen(text), name));
    return colon == NULL ? OK : read_count("--cluster", text, colon + 1, gpus);
}

Status words_scale(const char *text, int most, int64_t *gpus, int *n)
{
    *n = 0;
    for (const char *at = text, *end; at != NULL; at = *end == ',' ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        if (*n == most) return FAIL(ERR_ARG, "plan: --scale has more than %d numbers", most);
        TRY(read_count("--scale", text, at, &gpus[*n]));
        ++*n;
    }
    return OK;
}
