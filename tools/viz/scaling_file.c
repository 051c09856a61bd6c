/* scaling_file: reads curves of how a training scales from files. */
#include "viz/scaling_file.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

#include <math.h>

/* A number from 0 to 1e18; NaN if the key is missing or holds something else: not known. */
static double read_number(const Json *object, const char *key)
{
    const Json *v = json_get(object, key);
    return json_is(v, JSON_NUMBER) && v->number >= 0 && v->number < 1e18 ? v->number : (double)NAN;
}

/* Reads a point. GPUs must rise from point to point, because a curve's x rises. */
static Status read_point(const char *path, const Json *item, Scaling *s)
{
    int n = s->points++;
    double gpus = read_number(item, "gpus");
    if (n == SCALING_POINTS || !(gpus >= 1 && (n == 0 || gpus > s->gpus[n - 1])))
        return FAIL(ERR_FORMAT,
                    "%s: point %d of \"scaling\": \"gpus\" must be a number of at least 1 that "
                    "rises from point to point, of at most %d",
                    path, n + 1, SCALING_POINTS);
    s->gpus[n] = gpus;
    s->tokens_per_s_per_gpu[n] = read_number(item, "tokens_per_s_per_gpu");
    s->efficiency[n] = read_number(item, "efficiency");
    s->reason[n] = json_string(json_get(item, "reason"));
    return OK;
}

/* The format is what `plan --scale --json` prints, with a title (docs/reference/formats.md). */
Status scaling_read(const char *path, Arena *a, Scaling *out)
{
    char *text = NULL;
    Json *root = NULL;
    size_t bytes = 0, bad = 0;
    *out = (Scaling){ 0 };
    TRY(file_read_input(path, a, &text, &bytes));
    TRY(json_parse(text, bytes, a, &root, &bad));
    if (root == NULL) return FAIL(ERR_FORMAT, "%s is not a JSON object", path);
    const Json *list = json_get(root, "scaling");
    for (const Json *v = json_is(list, JSON_ARRAY) ? list->child : NULL; v != NULL; v = v->next)
        TRY(read_point(path, v, out));
    out->title = json_string(json_get(root, "title"));
    if (out->title == NULL) return FAIL(ERR_FORMAT, "%s: \"title\" is missing or not a text", path);
    if (out->points > 0) return OK;
    return FAIL(ERR_FORMAT, "%s: \"scaling\" is missing or not a list of points", path);
}
