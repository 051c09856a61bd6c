/* perf_work: what models of operators are written with, and their list. Only models, and rules that
 * change what they count, include it; everything else uses perf.h. */
#ifndef TRACES_SHEETS_PERF_WORK_H
#define TRACES_SHEETS_PERF_WORK_H

#include "traces/read/op_args.h"
#include "traces/sheets/perf_query.h"

#include <string.h>

enum { PERF_DIMS_MOST = 8 };

/* Sizes or strides of a tensor, or a list of numbers. */
typedef struct Shape {
    int n; /* how many numbers; -1: not there, or a list of shapes */
    int64_t at[PERF_DIMS_MOST];
} Shape;

/* One argument as models read it. */
typedef struct PerfArg {
    Shape dims, strides;
    const char *type, *concrete; /* concrete: the value; "" where not there */
} PerfArg;

/* One call while a model looks at it. */
typedef struct PerfWork {
    const PerfQuery *q;
    const char *unit; /* of the GPU: "matrix", "vector"; NULL: none */
    int args;
    PerfArg arg[OP_ARGS_MOST];
    Perf *out;
    char texts[4096]; /* names and values of parameters; `used` bytes of it */
    size_t used;
} PerfWork;

/* ---- what a model reads from a call, before it counts ---- */

/* M x K times K x N, `batch` times. weights: how many matrices of K x N are moved. bias: a bias is
 * added to each product. row: its N numbers are read. */
typedef struct PerfProduct {
    double m, n, k, batch, weights;
    bool bias, row;
    double in, out; /* bytes of an element */
} PerfProduct;

/* Attention of `queries` by `keys` tokens with `heads` heads of widths qk (scores) and v
 * (values). */
typedef struct PerfAttention {
    double batch, queries, heads, keys, kv_heads, qk, v;
    bool causal, flash, at_end; /* at_end: the last query sees the last key */
    double pairs;               /* how many pairs of a query and a key one head computes */
    double reduced;             /* additions for gradients of key heads that queries share */
    double bytes;               /* of an element */
} PerfAttention;

/* parts: how many convolutions of this size are computed (backward: one for x, one for w). */
typedef struct PerfConv {
    const PerfArg *x, *w;
    Shape stride, padding, dilation, output_padding, out;
    bool transposed, bias, adds; /* adds: a bias, or its gradient, is added up */
    double groups, parts;
} PerfConv;

/* n elements. channels: how many of them have a weight of their own. written: how many of the
 * gradients of weight and bias are written outside training. */
typedef struct PerfNorm {
    const struct NormArgs *from;
    const char *type;
    double n, channels, bytes, written;
    bool backward, rms, layer, has_mask, bias, affine, training, mask[3];
} PerfNorm;

/* Types of one size, by their names in traces. */
typedef struct PerfElement {
    const char *types; /* with | between */
    double bytes;
    const char *spec; /* NULL: no peak is given for it */
} PerfElement;

/* What others count differently. A model calls its function after it has read the call and before
 * it counts; `finish` is called at the end. A function that is NULL changes nothing. */
typedef struct PerfRules {
    const char *without_model;   /* operators that have none, with | between; NULL: none */
    const PerfElement *elements; /* come before ours; the last one has no types. NULL: none */
    void (*product)(const PerfWork *c, PerfProduct *p);
    void (*attention)(PerfAttention *t);
    void (*conv)(const PerfWork *c, PerfConv *v);
    void (*reduction)(double *out_elements);
    void (*norm)(const PerfWork *c, PerfNorm *m);
    void (*finish)(PerfWork *c);
} PerfRules;

/* Calls a function of the query's rules, if there is one. */
#define PERF_RULE(c, rule, ...)                                                                    \
    do {                                                                                           \
        const PerfRules *rules_ = (c)->q->rules;                                                   \
        if (rules_ != NULL && rules_->rule != NULL) rules_->rule(__VA_ARGS__);                     \
    } while (0)

/* ---- what a model says ---- */

/* Lists the next parameters. `names` are words with blanks between. The mark before each one says which
 * type its value has, and how it is printed:
 *   #  double: a whole number, where it fits
 *   ~  double
 *   ?  int: True or False
 *   /  const Shape *: as Python prints a tuple; empty where it is not there or NULL
 *   "  const char *
 *   1, 2, 3: that number of const char * of types, as Python prints a tuple; NULL is None */
void perf_put(PerfWork *c, const char *names, ...);

/* Bytes of an element; NaN: unknown. */
double perf_bytes_of(const PerfWork *c, const char *type);
/* Sets the result. type: of the elements that are computed with. */
void perf_set_work(PerfWork *c, double flops, double bytes, const char *type);

/* "[16, 16]"; n is -1 where it is none. */
Shape perf_shape_read(const char *text);
double perf_elements(const Shape *s); /* 1 of a scalar */

static inline bool perf_is_tensor(const PerfArg *a) { return a->dims.n > 0; }

/* "[True, False, True]": which gradients are wanted. */
static inline void perf_read_mask(const char *text, bool mask[3])
{
    for (int i = 0; i < 3 && text != NULL; i++) {
        mask[i] = text_starts(text, i == 0 ? "[True" : ", True");
        text = *text == '\0' ? NULL : strchr(text + 1, ',');
    }
}

static inline bool perf_is_true(const char *text) { return strcmp(text, "True") == 0; }

/* The models: false if the arguments are not what the operator's are. */
typedef bool PerfModel(PerfWork *c);
PerfModel perf_model_gemm, perf_model_grouped_gemm, perf_model_grouped_wgrad, perf_model_attention,
    perf_model_conv_forward, perf_model_conv_backward, perf_model_unary, perf_model_upsample,
    perf_model_binary, perf_model_reduction, perf_model_norm, perf_model_rope,
    perf_model_cross_entropy, perf_model_conv1d, perf_model_moe_exchange;

#endif
