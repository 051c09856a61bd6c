/* perf_args: see perf_args.h. */
#include "analyze/perf_args.h"

#include <stdlib.h>
#include <string.h>

/* No tensor has a larger dimension or stride. */
static const int64_t LARGEST = (int64_t)1 << 40;

/* From its bracket on: a list of whole numbers. Whatever else it holds is skipped, and n is -1. */
static Shape read_shape(const char **at)
{
    Shape s = { 0 };
    int depth = 0;
    bool plain = true;
    do {
        char c = **at;
        if (c == '\0') break;
        if (c == '[' || c == ']') {
            depth += c == '[' ? 1 : -1;
            plain &= depth < 2;
            (*at)++;
        } else if (c == ',' || c == ' ') {
            (*at)++;
        } else {
            char *end = NULL;
            int64_t x = strtoll(*at, &end, 10);
            plain &= end != *at && s.n < PERF_DIMS_MOST && x >= -LARGEST && x <= LARGEST;
            if (plain) s.at[s.n++] = x;
            *at = end != *at ? end : *at + 1;
        }
    } while (depth > 0);
    if (!plain) s.n = -1;
    return s;
}

Shape perf_shape_read(const char *text)
{
    return *text == '[' ? read_shape(&text) : (Shape){ .n = -1 };
}

double perf_elements(const Shape *s)
{
    double n = 1;
    for (int i = 0; i < s->n; i++) n *= (double)s->at[i];
    return n;
}

static int read_shapes(const char *json, PerfArgs *out, bool strides)
{
    int n = 0;
    if (*json == '[') json++;
    while (*json != '\0' && *json != ']' && n < PERF_ARGS_MOST) {
        if (*json != '[') {
            json++;
            continue;
        }
        Shape s = read_shape(&json);
        *(strides ? &out->at[n].strides : &out->at[n].dims) = s;
        n++;
    }
    return n;
}

/* The text of a JSON string from its quote on, kept in `out`; escapes as they stand. */
static const char *read_text(const char **at, PerfArgs *out)
{
    const char *s = *at + 1, *end = s;
    while (*end != '\0' && *end != '"') end += *end == '\\' && end[1] != '\0' ? 2 : 1;
    size_t n = (size_t)(end - s);
    *at = *end == '"' ? end + 1 : end;
    if (out->used + n + 1 > sizeof out->text) return "";
    char *kept = out->text + out->used;
    memcpy(kept, s, n);
    kept[n] = '\0';
    out->used += n + 1;
    return kept;
}

/* A list of strings; an element that is a list itself counts as one without text. */
static int read_texts(const char *json, PerfArgs *out, bool concrete)
{
    int n = 0, depth = 0;
    for (; *json != '\0' && n < PERF_ARGS_MOST;) {
        if (*json == '"') {
            const char *text = read_text(&json, out);
            if (depth == 1) *(concrete ? &out->at[n++].concrete : &out->at[n++].type) = text;
        } else {
            depth += (*json == '[') - (*json == ']');
            n += *json == ']' && depth == 1;
            json++;
        }
    }
    return n;
}

void perf_args_read(const Strings *s, const OpArgs *args, PerfArgs *out)
{
    out->used = 0;
    for (int i = 0; i < PERF_ARGS_MOST; i++)
        out->at[i] = (PerfArg){ .dims.n = -1, .strides.n = -1, .type = "", .concrete = "" };
    out->n = read_shapes(strings_text(s, args->dims), out, false);
    read_shapes(strings_text(s, args->strides), out, true);
    read_texts(strings_text(s, args->types), out, false);
    read_texts(strings_text(s, args->concrete), out, true);
}
