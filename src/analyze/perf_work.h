/* perf_work: what the models of perf are written with, and their list. */
#ifndef ANALYZE_PERF_WORK_H
#define ANALYZE_PERF_WORK_H

#include "analyze/op_args.h"
#include "analyze/perf.h"

#include <string.h>

enum { PERF_DIMS_MOST = 8 };

typedef struct Shape {
    int n; /* numbers; -1: not there, or a list of shapes */
    int64_t at[PERF_DIMS_MOST];
} Shape;

typedef struct PerfArg {
    Shape dims, strides;
    const char *type, *concrete; /* "" where not there */
} PerfArg;

/* One call while a model looks at it. */
typedef struct PerfWork {
    const PerfQuery *q;
    const char *unit; /* of the GPU: "matrix", "vector"; NULL: none */
    int args;
    PerfArg arg[OP_ARGS_MOST];
    Perf *out;
    char texts[4096]; /* of parameters */
    size_t used;
} PerfWork;

/* The next parameter. Shapes and types are printed as Python prints tuples; a shape that is not there
 * is an empty cell, a type NULL is None. */
void perf_put(PerfWork *c, const char *name, Cell value);
void perf_put_text(PerfWork *c, const char *name, const char *text);
void perf_put_whole(PerfWork *c, const char *name, double x);
void perf_put_shape(PerfWork *c, const char *name, const Shape *s);
void perf_put_types(PerfWork *c, const char *name, int n, const char *const *type);
#define PERF_PUT_TYPES(c, name, ...)                                                               \
    perf_put_types((c), (name), (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)),   \
                   (const char *const[]){ __VA_ARGS__ })

/* Bytes of an element; NaN: unknown. */
double perf_bytes_of(const PerfWork *c, const char *type);
/* `type`: of the elements that are computed. */
void perf_set_work(PerfWork *c, double flops, double bytes, const char *type);

/* "[16, 16]"; n is -1 where it is none. */
Shape perf_shape_read(const char *text);
double perf_elements(const Shape *s); /* 1 of a scalar */

static inline bool perf_is_tensor(const PerfArg *a) { return a->dims.n > 0; }

static inline bool perf_is_true(const char *text) { return strcmp(text, "True") == 0; }

/* The models: false if the arguments are not what the operator's are. */
typedef bool PerfModel(PerfWork *c);
PerfModel perf_model_gemm, perf_model_grouped_gemm, perf_model_grouped_wgrad, perf_model_attention,
    perf_model_conv_forward, perf_model_conv_backward, perf_model_unary, perf_model_upsample,
    perf_model_binary, perf_model_reduction, perf_model_norm, perf_model_rope,
    perf_model_cross_entropy, perf_model_conv1d, perf_model_moe_exchange;

#endif
