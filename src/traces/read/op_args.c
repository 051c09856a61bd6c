/* op_args: see op_args.h. A profiler writes four JSON lists for a call: sizes, types, strides and
 * values, each with one element per argument. They are read one after the other into the same
 * records. */
#include "traces/read/op_args.h"
#include "engine/base/scan.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Puts element i of a JSON array into the member at offset `field` of argument i. Texts are
 * decoded, other values stay as they were written. A list among the types is the type of a list of
 * tensors. */
static Status split_list(const Strings *strings, uint32_t text, size_t field, Arena *a, OpArg *out,
                         int *n, bool *sound)
{
    const char *s = strings_text(strings, text), *copy = NULL;
    const bool texts = field == offsetof(OpArg, type) || field == offsetof(OpArg, value);
    char *json = NULL;
    int i = 0;
    if (text == 0) return OK;
    TRY(arena_text(a, s, strlen(s), &copy));
    memcpy(&json, &copy, sizeof json); /* the copy is ours: scanning decodes in place */
    Scan scan = scan_begin(json);
    scan_array(&scan);
    for (; i < OP_ARGS_MOST && scan_item(&scan); i++) {
        const char **to = (const char **)(void *)((char *)&out[i] + field);
        if (texts && *scan.at != '[') {
            *to = scan_string(&scan);
            continue;
        }
        const char *begin = scan_skip(&scan);
        if (field == offsetof(OpArg, type)) *to = "TensorList";
        if (!scan.bad && !texts) TRY(arena_text(a, begin, (size_t)(scan.at - begin), to));
    }
    if (*n == 0) *n = i;
    *sound &= !scan.bad && i == *n && i < OP_ARGS_MOST;
    return OK;
}

Status op_args_read(const Strings *s, const OpArgs *args, Arena *a, OpArg out[OP_ARGS_MOST], int *n,
                    bool *sound)
{
    *n = 0;
    *sound = true;
    for (int i = 0; i < OP_ARGS_MOST; i++) out[i] = (OpArg){ "", NULL, "", "" };
    TRY(split_list(s, args->dims, offsetof(OpArg, dims), a, out, n, sound));
    TRY(split_list(s, args->types, offsetof(OpArg, type), a, out, n, sound));
    TRY(split_list(s, args->strides, offsetof(OpArg, strides), a, out, n, sound));
    return split_list(s, args->concrete, offsetof(OpArg, value), a, out, n, sound);
}

int op_sizes(const char *list, int64_t *out, int most)
{
    int n = 0;
    if (*list != '[') return -1;
    while (*++list != ']') {
        char *end = NULL;
        int64_t size = strtoll(list, &end, 10);
        if (end == list || n == most || (*end != ',' && *end != ']')) return -1;
        out[n++] = size;
        list = *end == ',' ? end : end - 1;
    }
    return n;
}
