/* perf_args: the arguments of a call, read for the models of perf.c. */
#ifndef ANALYZE_PERF_ARGS_H
#define ANALYZE_PERF_ARGS_H

#include "analyze/perf.h"

enum { PERF_ARGS_MOST = 40, PERF_DIMS_MOST = 8, PERF_TEXT_BYTES = 8192 };

typedef struct Shape {
    int n; /* numbers; -1: not there, or a list of shapes */
    int64_t at[PERF_DIMS_MOST];
} Shape;

typedef struct PerfArg {
    Shape dims, strides;
    const char *type, *concrete; /* "" where not there */
} PerfArg;

typedef struct PerfArgs {
    int n;
    PerfArg at[PERF_ARGS_MOST];
    char text[PERF_TEXT_BYTES];
    size_t used;
} PerfArgs;

/* Arguments past PERF_ARGS_MOST and texts past PERF_TEXT_BYTES are left out. */
void perf_args_read(const Strings *s, const OpArgs *args, PerfArgs *out);
/* "[16, 16]" of a concrete input; n is -1 where it is none. */
Shape perf_shape_read(const char *text);
double perf_elements(const Shape *s); /* 1 of a scalar */

#endif
