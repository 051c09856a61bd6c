#include "base/json_in.h"

#include <cjson/cJSON.h>

Status json_in_parse(JsonIn *j, const char *path, const char *text, size_t n)
{
    *j = (JsonIn){ .path = path };
    cJSON *root = cJSON_ParseWithLength(text, n);
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return FAIL(ERR_FORMAT, "%s: \"%.*s\" is no JSON object", path, (int)(n < 60 ? n : 60),
                    text);
    }
    j->root = root;
    return OK;
}

void json_in_free(JsonIn *j)
{
    cJSON_Delete(j->root);
    *j = (JsonIn){ 0 };
}

static Status wrong(const JsonIn *j, const char *key, const char *want)
{
    return FAIL(ERR_FORMAT, "%s: \"%s\" is missing or no %s", j->path, key, want);
}

/* Whole numbers up to 2^53 are exact in a double, which is what the library keeps. */
static Status whole(const JsonIn *j, const char *key, const cJSON *item, int64_t *out)
{
    if (!cJSON_IsNumber(item)) return wrong(j, key, "whole number");
    double v = item->valuedouble;
    if (!(v >= -9007199254740992.0 && v <= 9007199254740992.0) || v != (double)(int64_t)v) {
        return wrong(j, key, "whole number");
    }
    *out = (int64_t)v;
    return OK;
}

Status json_in_int(const JsonIn *j, const char *key, int64_t *out)
{
    return whole(j, key, cJSON_GetObjectItemCaseSensitive(j->root, key), out);
}

Status json_in_text(const JsonIn *j, const char *key, const char **out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(j->root, key);
    if (!cJSON_IsString(item)) return wrong(j, key, "text");
    *out = item->valuestring;
    return OK;
}

Status json_in_ints(const JsonIn *j, const char *key, int64_t *out, int most, int *out_n)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(j->root, key);
    if (!cJSON_IsArray(list)) return wrong(j, key, "list of numbers");
    int n = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (n == most) return FAIL(ERR_FORMAT, "%s: \"%s\" has more than %d", j->path, key, most);
        TRY(whole(j, key, item, &out[n]));
        n++;
    }
    *out_n = n;
    return OK;
}
