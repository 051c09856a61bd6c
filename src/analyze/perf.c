/* perf: see perf.h. A model reads the arguments of a call, says its parameters and counts its work;
 * MODELS at the end says which operators have which. */
#include "analyze/perf.h"
#include "analyze/perf_args.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Call {
    const PerfQuery *q;
    PerfArgs args;
    Arena *a;
    Perf *out;
    Status status; /* the first failure of put */
} Call;

/* ---- parameters ---- */

static void put(Call *c, const char *name, Cell value)
{
    Perf *p = c->out;
    if (p->params == PERF_PARAMS) return;
    p->name[p->params] = name;
    p->value[p->params++] = value;
}

static void put_text(Call *c, const char *name, const char *text)
{
    const char *kept = NULL;
    Status s = arena_text(c->a, text, strlen(text), &kept);
    if (s != OK) c->status = s;
    put(c, name, s == OK ? cell_text(kept) : (Cell){ 0 });
}

static void put_whole(Call *c, const char *name, double x) { put(c, name, cell_whole((int64_t)x)); }

/* "(16, 559)", "(1,)", "()": as Python prints a tuple. Nothing of a shape that is not there. */
static void put_shape(Call *c, const char *name, const Shape *s)
{
    char text[PERF_DIMS_MOST * 24 + 8] = "(";
    size_t used = 1;
    for (int i = 0; i < s->n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i == 0 ? "" : ", ",
                                 (long long)s->at[i]);
    (void)snprintf(text + used, sizeof text - used, s->n == 1 ? ",)" : ")");
    if (s->n < 0)
        put(c, name, (Cell){ 0 });
    else
        put_text(c, name, text);
}

/* "('float', None)"; a NULL is None. */
static void put_types(Call *c, const char *name, int n, const char *const *type)
{
    char text[256] = "(";
    size_t used = 1;
    for (int i = 0; i < n && used < sizeof text; i++) {
        const char *quote = type[i] == NULL ? "" : "'";
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%.60s%s", i == 0 ? "" : ", ",
                                 quote, type[i] == NULL ? "None" : type[i], quote);
    }
    if (used < sizeof text) (void)snprintf(text + used, sizeof text - used, ")");
    put_text(c, name, text);
}

#define PUT_TYPES(c, name, ...)                                                                    \
    put_types((c), (name), (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)),        \
              (const char *const[]){ __VA_ARGS__ })

/* ---- types ---- */

typedef struct Element {
    const char *types; /* with | between */
    double bytes;
    const char *spec; /* NULL: no peak is given for it */
    bool ours;        /* not in compat */
} Element;

static const Element ELEMENTS[] = {
    { "double", 8, "fp64", false },
    { "float", 4, "fp32", false },
    { "c10::Half|half", 2, "fp16", false },
    { "c10::BFloat16|bfloat16", 2, "bf16", false },
    { "c10::Float8_e4m3fn|c10::Float8_e4m3fnuz|c10::Float8_e5m2|c10::Float8_e5m2fnuz", 1, "fp8",
      false },
    { "long int|long|int64", 8, NULL, false },
    { "int|Scalar|scalar", 4, NULL, false },
    { "signed char|unsigned char", 1, "int8", false },
    { "c10::Float4_e2m1fn_x2", 1, "fp4", false },
    { "bool|short int|short", 1, NULL, true },
};

static const Element *element_of(const Call *c, const char *type)
{
    for (size_t i = 0; i < sizeof ELEMENTS / sizeof *ELEMENTS; i++) {
        if (ELEMENTS[i].ours && c->q->compat) continue;
        if (text_word_index(ELEMENTS[i].types, type) >= 0) return &ELEMENTS[i];
    }
    return NULL;
}

static double bytes_of(const Call *c, const char *type)
{
    const Element *e = element_of(c, type);
    if (e != NULL && strncmp(type, "short", 5) == 0) return 2;
    return e == NULL ? (double)NAN : e->bytes;
}

static void set_spec(Call *c, const char *unit, const char *type)
{
    const Element *e = element_of(c, type);
    char text[32];
    if (e == NULL || e->spec == NULL) return;
    bool byte = c->q->compat && strcmp(e->spec, "int8") == 0; /* TraceLens: any byte is fp8 */
    (void)snprintf(text, sizeof text, "%s_%s", unit, byte ? "fp8" : e->spec);
    Status s = arena_text(c->a, text, strlen(text), &c->out->spec);
    if (s != OK) c->status = s;
}

static bool is_tensor(const PerfArg *a) { return a->dims.n > 0; }

static bool is_true(const char *text) { return strcmp(text, "True") == 0; }

/* Products and sums apart: a fused multiply-add would round once where numpy rounds twice. Counts
 * are whole and far below 2^53, so only what is above differs, and by its last bit. */
static void set_work(Call *c, double flops, double bytes)
{
    c->out->flops = flops;
    c->out->bytes = bytes;
}

/* ---- matrix products: M x K times K x N ---- */

/* rocBLAS names a kernel by its index order: Ailk is A as it lies, Alik transposed. */
static void put_transposes(Call *c)
{
    const char *k = c->q->kernel == NULL ? NULL : strstr(c->q->kernel, "Cijk_A");
    if (k == NULL || strlen(k) < 14) return;
    bool a = strncmp(k + 6, "lik", 3) == 0, b = strncmp(k + 11, "jlk", 3) == 0;
    put_text(c, "transpose",
             a   ? b ? "(True, True)" : "(True, False)"
             : b ? "(False, True)"
                 : "(False, False)");
}

static void put_product(Call *c, double m, double n, double k, bool bias)
{
    put_whole(c, "M", m);
    put_whole(c, "N", n);
    put_whole(c, "K", k);
    put(c, "bias", cell_bool(bias));
}

static bool gemm(Call *c)
{
    const char *name = c->q->name;
    bool add = strstr(name, "addmm") != NULL || strstr(name, "addbmm") != NULL;
    bool batched = strstr(name, "bmm") != NULL;
    const PerfArg *a = &c->args.at[add], *b = a + 1;
    int rank = batched ? 3 : 2;
    if (a->dims.n != rank || b->dims.n != rank) return false;
    const int64_t *x = a->dims.at + batched, *y = b->dims.at + batched;
    double m = (double)x[0], k = (double)x[1], n = (double)y[1];
    double groups = batched ? (double)a->dims.at[0] : 1;
    if (batched) put_whole(c, "B", groups);
    put_product(c, m, n, k, add);
    put_shape(c, "stride_A", &a->strides);
    put_shape(c, "stride_B", &b->strides);
    PUT_TYPES(c, "dtype_A_B", a->type, b->type);
    if (!batched) put_whole(c, "B", 1);
    put_transposes(c);
    double each = bytes_of(c, a->type);
    double work = 2 * m * n * k + (add ? m * n : 0);
    double moved = (m * k + k * n + m * n + (add ? n : 0)) * each;
    if (c->q->compat && strcmp(a->type, b->type) != 0) moved = NAN;
    set_work(c, groups * work, groups * moved);
    set_spec(c, "matrix", a->type);
    return true;
}

/* x (M, K) times w (N, K) transposed, both of a byte; the result's type is `out_dtype`. */
static bool scaled_mm(Call *c)
{
    const PerfArg *a = &c->args.at[0], *b = &c->args.at[1];
    if (a->dims.n != 2 || b->dims.n != 2) return false;
    double m = (double)a->dims.at[0], k = (double)a->dims.at[1], n = (double)b->dims.at[1];
    bool bias = c->q->compat ? c->args.n == 3 : c->args.n > 4 && is_tensor(&c->args.at[4]);
    put_product(c, m, n, k, bias);
    put_shape(c, "stride_A", &a->strides);
    put_shape(c, "stride_B", &b->strides);
    PUT_TYPES(c, "dtype_A_B", a->type, b->type);
    put_whole(c, "B", 1);
    put_transposes(c);
    double each = bytes_of(c, a->type), out = each == 1 ? 2 : each;
    set_work(c, 2 * m * n * k + (bias ? m * n : 0), (m * k + k * n) * each + (m * n) * out);
    set_spec(c, "matrix", a->type);
    return true;
}

/* Rows grouped by expert: x (M, K) times w (G, K, N) or (G, N, K). */
static bool grouped_gemm(Call *c)
{
    const PerfArg *x = &c->args.at[0], *w = &c->args.at[1];
    if (x->dims.n != 2 || w->dims.n != 3) return false;
    double m = (double)x->dims.at[0], k = (double)x->dims.at[1], groups = (double)w->dims.at[0];
    bool as_is = w->dims.at[1] == x->dims.at[1];
    double n = (double)w->dims.at[as_is ? 2 : 1];
    put_whole(c, "G", groups);
    put_whole(c, "M", m);
    put_whole(c, "N", n);
    put_whole(c, "K", k);
    PUT_TYPES(c, "dtype_A_B", x->type, w->type);
    double in = bytes_of(c, x->type), out = bytes_of(c, c->q->compat ? w->type : x->type);
    set_work(c, 2 * m * k * n, (m * k + groups * k * n) * in + (m * n) * out);
    set_spec(c, "matrix", x->type);
    return true;
}

/* Their weight gradients: x (M, K) transposed times dy (M, N), a (K, N) for each of G groups, whose
 * lengths are the third argument. */
static bool grouped_wgrad(Call *c)
{
    const PerfArg *x = &c->args.at[0], *y = &c->args.at[1], *lengths = &c->args.at[2];
    if (x->dims.n != 2 || y->dims.n != 2 || x->dims.at[0] != y->dims.at[0]) return false;
    double m = (double)x->dims.at[0], k = (double)x->dims.at[1], n = (double)y->dims.at[1];
    double groups = lengths->dims.n == 1 ? (double)lengths->dims.at[0] : 1;
    double each = bytes_of(c, x->type);
    put_whole(c, "G", groups);
    put_whole(c, "M", m);
    put_whole(c, "N", n);
    put_whole(c, "K", k);
    PUT_TYPES(c, "dtype_A_B", x->type, y->type);
    double right = (m * k + m * n + groups * k * n) * each;
    set_work(c, 2 * m * k * n, c->q->compat ? (m * k + k * n + m * n) * each : right);
    set_spec(c, "matrix", x->type);
    return true;
}

/* ---- attention ---- */

typedef struct Attention {
    double batch, queries, heads, keys, kv_heads, qk, v;
    bool causal, flash;
} Attention;

/* Pairs of a query and a key. Under a causal mask query i of Nq sees keys 0 to i, of two lengths
 * aligned at the first (PyTorch); TraceLens counts half, and knows none of two lengths. */
static double pairs(const Call *c, const Attention *t)
{
    double all = t->queries * t->keys;
    if (!t->causal) return all;
    if (c->q->compat) return t->queries == t->keys ? all / 2 : (double)NAN;
    double seen = t->queries < t->keys ? t->queries : t->keys;
    return seen * (seen + 1) / 2 + (t->queries - seen) * t->keys;
}

static void attention_work(Call *c, const Attention *t, double each)
{
    double pair = t->batch * t->heads * pairs(c, t);
    double q = t->batch * t->queries * t->heads * t->qk,
           o = t->batch * t->queries * t->heads * t->v;
    double k = t->batch * t->keys * t->kv_heads * t->qk,
           v = t->batch * t->keys * t->kv_heads * t->v;
    set_work(c, 2 * pair * t->qk + 2 * pair * t->v, (q + k + v + o) * each);
    double reduce = t->batch * t->keys * (t->v + t->qk) * (t->heads / t->kv_heads - 1);
    double gradient = 2 * pair * t->v * 2 + 2 * pair * t->qk * (t->flash ? 3 : 2);
    c->out->backward_sheet = "SDPA_bwd";
    c->out->backward_flops = gradient + (t->causal && c->q->compat ? reduce / 2 : reduce);
    c->out->backward_bytes = (2 * q + 2 * k + 2 * v + o) * each;
}

/* Where an operator has what: (B, H, N, d) or (B, N, H, d), and the places of dropout and mask. */
typedef struct AttentionArgs {
    const char *name;
    int dropout, causal;
    bool heads_first, flash;
} AttentionArgs;

static const AttentionArgs ATTENTIONS[] = {
    { "aten::_scaled_dot_product_flash_attention", 3, 4, true, true },
    { "aten::_scaled_dot_product_efficient_attention", 5, 6, true, true },
    { "aten::_scaled_dot_product_cudnn_attention", 5, 6, true, true },
    { "flash_attn::_flash_attn_forward", 3, 5, false, true },
    { "FlashAttnFunc", 3, 5, false, true },
};

static bool attention(Call *c)
{
    const AttentionArgs *from = ATTENTIONS;
    while (strcmp(from->name, c->q->name) != 0) from++;
    const PerfArg *q = &c->args.at[0], *k = &c->args.at[1], *v = &c->args.at[2];
    if (q->dims.n != 4 || k->dims.n != 4 || v->dims.n != 4) return false;
    int h = from->heads_first ? 1 : 2, s = 3 - h;
    Attention t = { (double)q->dims.at[0],
                    (double)q->dims.at[s],
                    (double)q->dims.at[h],
                    (double)k->dims.at[s],
                    (double)k->dims.at[h],
                    (double)q->dims.at[3],
                    (double)v->dims.at[3],
                    is_true(c->args.at[from->causal].concrete),
                    from->flash };
    put_whole(c, "B", t.batch);
    put_whole(c, "N_Q", t.queries);
    put_whole(c, "H_Q", t.heads);
    put_whole(c, "N_KV", t.keys);
    put_whole(c, "H_KV", t.kv_heads);
    put_whole(c, "d_h_qk", t.qk);
    put_whole(c, "d_h_v", t.v);
    put(c, "dropout", cell_number(strtod(c->args.at[from->dropout].concrete, NULL)));
    put(c, "causal", cell_bool(t.causal));
    put(c, "flash_impl", cell_bool(t.flash));
    PUT_TYPES(c, "dtype_A_B", q->type, k->type);
    attention_work(c, &t, c->q->compat ? 2 : bytes_of(c, q->type));
    set_spec(c, "matrix", q->type);
    return true;
}

/* ---- convolution ---- */

typedef struct Conv {
    const PerfArg *x, *w;
    Shape stride, padding, dilation, output_padding, out;
    bool transposed, bias;
    double groups;
} Conv;

/* y = floor((x + 2 p - d (k - 1) - 1) / s) + 1; transposed: x = (y - 1) s - 2 p + d (k - 1) + o + 1 */
static bool conv_shape(Conv *v)
{
    const Shape *x = &v->x->dims, *w = &v->w->dims;
    int spatial = x->n - 2;
    if (spatial < 1 || w->n != x->n || v->stride.n < 1 || v->padding.n < 1 || v->dilation.n < 1)
        return false;
    v->out = *x;
    v->out.at[1] = v->transposed ? w->at[1] * (int64_t)v->groups : w->at[0];
    for (int i = 0; i < spatial; i++) {
        int64_t s = v->stride.at[v->stride.n == 1 ? 0 : i],
                p = v->padding.at[v->padding.n == 1 ? 0 : i];
        int64_t d = v->dilation.at[v->dilation.n == 1 ? 0 : i], k = d * (w->at[i + 2] - 1);
        int64_t o = v->output_padding.n > i ? v->output_padding.at[i] : 0, at = x->at[i + 2];
        if (s < 1) return false;
        v->out.at[i + 2] =
            v->transposed ? (at - 1) * s - 2 * p + k + o + 1 : (at + 2 * p - k - 1) / s + 1;
    }
    return true;
}

static void put_conv(Call *c, const Conv *v)
{
    static const char *const KIND[] = { "conv1d", "conv2d", "conv3d" };
    bool back = c->out->sheet != NULL && strcmp(c->out->sheet, "CONV_bwd") == 0;
    int kind = v->x->dims.n - 3;
    put(c, "convNd", cell_text(kind < 3 ? KIND[kind] : "convNd"));
    put_shape(c, "input_shape", &v->x->dims);
    put_shape(c, "filter_shape", &v->w->dims);
    PUT_TYPES(c, "dtype_input_weight", v->x->type, v->w->type);
    put_shape(c, "input_stride", &v->x->strides);
    put_shape(c, "weight_stride", &v->w->strides);
    put(c, "bias", back && c->q->compat ? cell_text("[]") : cell_bool(v->bias));
    put_shape(c, "stride", &v->stride);
    put_shape(c, "padding", &v->padding);
    put_shape(c, "dilation", &v->dilation);
    put(c, "transposed_conv", cell_bool(v->transposed));
    put_shape(c, "output_padding", &v->output_padding);
    put_whole(c, "groups", v->groups);
    set_spec(c, "matrix", v->x->type);
}

static bool conv_read(Call *c, int x, int first, Conv *v)
{
    const PerfArg *a = c->args.at;
    *v = (Conv){ .x = &a[x],
                 .w = &a[x + 1],
                 .stride = perf_shape_read(a[first].concrete),
                 .padding = perf_shape_read(a[first + 1].concrete),
                 .dilation = perf_shape_read(a[first + 2].concrete),
                 .transposed = is_true(a[first + 3].concrete),
                 .output_padding = perf_shape_read(a[first + 4].concrete),
                 .groups = strtod(a[first + 5].concrete, NULL) };
    if (v->groups < 1) v->groups = 1;
    return conv_shape(v);
}

/* 2 operations for each weight that an output (transposed: an input) meets. */
static double conv_flops(const Conv *v)
{
    const Shape *w = &v->w->dims;
    double met = perf_elements(w) / (double)w->at[0];
    return 2 * perf_elements(v->transposed ? &v->x->dims : &v->out) * met;
}

static bool conv_forward(Call *c)
{
    Conv v;
    if (!conv_read(c, 0, 3, &v)) return false;
    v.bias = c->q->compat ? c->args.n == 3 : is_tensor(&c->args.at[2]);
    put_conv(c, &v);
    double out = perf_elements(&v.out);
    double all = perf_elements(&v.x->dims) + perf_elements(&v.w->dims) + out;
    set_work(c, conv_flops(&v) + (v.bias ? out : 0),
             (all + (v.bias ? (double)v.out.at[1] : 0)) * bytes_of(c, v.x->type));
    return true;
}

/* (dy, x, w, bias sizes, stride, ..., mask of the gradients that are wanted): of x and of w each as
 * much as forward. TraceLens counts both whatever the mask says. */
static bool conv_backward(Call *c)
{
    Conv v;
    if (!conv_read(c, 1, 4, &v)) return false;
    const char *mask = c->args.at[10].concrete;
    const char *second = strchr(mask, ','),
               *third = second == NULL ? NULL : strchr(second + 1, ',');
    bool dx = c->q->compat || text_starts(mask, "[True");
    bool dw = c->q->compat || (second != NULL && text_starts(second, ", True"));
    v.bias = third != NULL && text_starts(third, ", True");
    put_conv(c, &v);
    double once = conv_flops(&v), y = perf_elements(&c->args.at[0].dims);
    double all = y + perf_elements(&v.x->dims) + perf_elements(&v.w->dims);
    bool db = v.bias && !c->q->compat;
    set_work(c, once * ((double)dx + (double)dw) + (db ? y : 0),
             (all * ((double)dx + (double)dw) + (db ? (double)v.out.at[1] : 0)) *
                 bytes_of(c, v.x->type));
    return true;
}

/* ---- element by element ---- */

static const Shape NO_SHAPE = { .n = -1 };

static bool unary(Call *c)
{
    const PerfArg *in = &c->args.at[0], *out = &c->args.at[1];
    if (c->args.n < 1 || in->dims.n < 0) return false;
    bool given = c->args.n > 1 && is_tensor(out);
    double n = perf_elements(&in->dims);
    put_shape(c, "op_shape", &in->dims);
    PUT_TYPES(c, "dtype_in_out", in->type, given ? out->type : NULL);
    put_shape(c, "stride_input", &in->strides);
    put_shape(c, "stride_output", given ? &out->strides : &NO_SHAPE);
    set_work(c, n, n * bytes_of(c, in->type) + n * bytes_of(c, given ? out->type : in->type));
    set_spec(c, "vector", in->type);
    return true;
}

static bool upsample(Call *c)
{
    const PerfArg *in = &c->args.at[0];
    Shape size = perf_shape_read(c->args.at[1].concrete), out = in->dims;
    if (out.n < 3 || size.n != out.n - 2) return false;
    for (int i = 0; i < size.n; i++) out.at[i + 2] = size.at[i];
    double each = bytes_of(c, in->type), n = perf_elements(&out);
    put_shape(c, "input_shape", &in->dims);
    put_shape(c, "output_shape", &out);
    put_shape(c, "op_shape", &out);
    PUT_TYPES(c, "dtype_in_out", in->type, in->type);
    put_shape(c, "stride_input", &in->strides);
    put(c, "stride_output", cell_text("None"));
    set_work(c, n, perf_elements(&in->dims) * each + n * each);
    set_spec(c, "vector", in->type);
    return true;
}

/* Shapes are aligned at their ends; a dimension of 1 is repeated. */
static double broadcast_elements(const Shape *a, const Shape *b)
{
    double n = 1;
    for (int i = 1; i <= a->n || i <= b->n; i++) {
        int64_t x = i <= a->n ? a->at[a->n - i] : 1, y = i <= b->n ? b->at[b->n - i] : 1;
        n *= (double)(x == 1 ? y : x);
    }
    return n;
}

static bool binary(Call *c)
{
    const PerfArg *a = &c->args.at[0], *b = a + 1, *out = a + 2;
    if (c->args.n < 2 || a->dims.n < 0 || b->dims.n < 0) return false;
    bool given = c->args.n > 2 && is_tensor(out);
    double n = broadcast_elements(&a->dims, &b->dims);
    double in1 = bytes_of(c, a->type), in2 = bytes_of(c, b->type), wider = in1 > in2 ? in1 : in2;
    put_shape(c, "shape_in1", &a->dims);
    put_shape(c, "shape_in2", &b->dims);
    PUT_TYPES(c, "dtype_in1_in2_out", a->type, b->type, given ? out->type : NULL);
    put_shape(c, "stride_input1", &a->strides);
    put_shape(c, "stride_input2", &b->strides);
    put_shape(c, "stride_output", given ? &out->strides : &NO_SHAPE);
    double each = given ? bytes_of(c, out->type) : is_tensor(a) && is_tensor(b) ? wider : in1;
    set_work(c, n, perf_elements(&a->dims) * in1 + perf_elements(&b->dims) * in2 + n * each);
    set_spec(c, "vector", a->type);
    return true;
}

/* ---- reductions ---- */

/* Elements that are left: the dimensions that are not in the list, all gone where there is none. */
static double reduced(const Shape *in, const char *list)
{
    Shape dims = perf_shape_read(list);
    double n = perf_elements(in), left = n;
    if (dims.n < 0 && *list != '\0') dims = (Shape){ 1, { strtoll(list, NULL, 10) } };
    if (dims.n <= 0 || n == 0) return 1;
    for (int i = 0; i < dims.n; i++) {
        int64_t d = dims.at[i] < 0 ? dims.at[i] + in->n : dims.at[i];
        if (d >= 0 && d < in->n) left /= (double)in->at[d];
    }
    return left;
}

static bool reduction(Call *c)
{
    const PerfArg *in = &c->args.at[0];
    bool norm = strcmp(c->q->name, "aten::linalg_norm") == 0;
    const char *dims = c->args.at[norm ? 2 : 1].concrete;
    if (c->args.n < 1 || in->dims.n < 0) return false;
    /* A max with a second tensor takes the greater of each pair. */
    bool pairwise = c->args.n == 2 && is_tensor(&c->args.at[1]);
    double n = perf_elements(&in->dims), each = bytes_of(c, in->type);
    double out = c->q->compat ? 1 : pairwise ? n : reduced(&in->dims, dims);
    put_whole(c, "num_input_elems", n);
    put_whole(c, "num_output_elems", out);
    PUT_TYPES(c, "dtype_in_out", in->type, NULL);
    put_text(c, "reduce_type", norm ? "norm" : c->q->name + strlen("aten::"));
    set_work(c, n, n * each + out * each);
    set_spec(c, "vector", in->type);
    if (strcmp(c->q->name, "aten::mean") == 0 || strcmp(c->q->name, "aten::sum") == 0) {
        c->out->backward_sheet = "Reduce_bwd";
        c->out->backward_flops = n;
        c->out->backward_bytes = n * each + out * each;
    }
    return true;
}

/* ---- normalization: n elements, C of them have their own weight, or are one channel ---- */

typedef struct NormArgs {
    const char *name;
    enum { CHANNELS_SHAPE, CHANNELS_LIST, CHANNELS_WEIGHT, CHANNELS_GROUP } channels;
    bool backward, rms;
    int input, weight, bias, training, mask; /* places; -1: it has none */
} NormArgs;

static const NormArgs NORMS[] = {
    { "aten::batch_norm", CHANNELS_SHAPE, false, false, 0, 1, 2, 5, -1 },
    { "aten::native_batch_norm", CHANNELS_SHAPE, false, false, 0, 1, 2, 5, -1 },
    { "aten::miopen_batch_norm", CHANNELS_SHAPE, false, false, 0, 1, 2, 5, -1 },
    { "aten::cudnn_batch_norm", CHANNELS_SHAPE, false, false, 0, 1, 2, 5, -1 },
    { "aten::instance_norm", CHANNELS_SHAPE, false, false, 0, 1, 2, 5, -1 },
    { "aten::group_norm", CHANNELS_SHAPE, false, false, 0, 2, 3, -1, -1 },
    { "aten::native_group_norm", CHANNELS_SHAPE, false, false, 0, 1, 2, -1, -1 },
    { "aten::layer_norm", CHANNELS_LIST, false, false, 0, 2, 3, -1, -1 },
    { "aten::native_layer_norm", CHANNELS_LIST, false, false, 0, 2, 3, -1, -1 },
    { "aten::_fused_rms_norm", CHANNELS_LIST, false, true, 0, 2, -1, -1, -1 },
    { "aten::native_batch_norm_backward", CHANNELS_SHAPE, true, false, 1, 2, -1, 7, 9 },
    { "aten::miopen_batch_norm_backward", CHANNELS_SHAPE, true, false, 1, 2, -1, -1, -1 },
    { "aten::cudnn_batch_norm_backward", CHANNELS_SHAPE, true, false, 1, 2, -1, -1, -1 },
    { "aten::native_layer_norm_backward", CHANNELS_LIST, true, false, 1, 5, 6, -1, 7 },
    { "aten::native_group_norm_backward", CHANNELS_GROUP, true, false, 1, 4, -1, -1, 9 },
    { "aten::_fused_rms_norm_backward", CHANNELS_LIST, true, true, 1, 4, -1, -1, 5 },
    { "aiter::rms_norm", CHANNELS_WEIGHT, false, true, 0, 1, -1, -1, -1 },
    { "aiter::rmsnorm2d_fwd_with_add_ck", CHANNELS_WEIGHT, false, true, 1, 4, -1, -1, -1 },
};

typedef struct Norm {
    const NormArgs *from;
    double n, channels, each;
    bool bias, affine, training, mask[3];
} Norm;

/* "[True, False, True]" */
static void read_mask(const char *text, bool mask[3])
{
    for (int i = 0; i < 3 && text != NULL; i++) {
        mask[i] = text_starts(text + 1 + (i > 0), "True");
        text = strchr(text + 1, ',');
    }
}

static bool norm_channels(const Call *c, Norm *m)
{
    const PerfArg *x = &c->args.at[m->from->input];
    Shape list = perf_shape_read(c->args.at[m->from->input + 1].concrete);
    switch (m->from->channels) {
    case CHANNELS_SHAPE: m->channels = x->dims.n > 1 ? (double)x->dims.at[1] : 0; break;
    case CHANNELS_LIST: m->channels = list.n > 0 ? perf_elements(&list) : 0; break;
    case CHANNELS_WEIGHT: m->channels = perf_elements(&c->args.at[m->from->weight].dims); break;
    case CHANNELS_GROUP: {
        double groups = strtod(c->args.at[8].concrete, NULL);
        double channels = strtod(c->args.at[6].concrete, NULL);
        m->channels = c->q->compat && groups > 0 ? channels / groups : channels;
        break;
    }
    }
    return x->dims.n > 0 && m->channels > 0;
}

/* What TraceLens takes for granted: weights, biases and training, of what a mask is not about. */
static void norm_flags_compat(const Call *c, Norm *m)
{
    bool has_mask = m->from->mask >= 0;
    bool layer = m->from->backward && !m->from->rms && m->from->channels == CHANNELS_LIST;
    m->affine = !layer || m->mask[1];
    m->bias = !m->from->rms && (!layer || m->mask[2]);
    m->training = !m->from->rms && (!m->from->backward || has_mask);
    if (m->from->backward && !has_mask) m->mask[0] = true;
    (void)c;
}

static void norm_flags(const Call *c, Norm *m)
{
    const NormArgs *f = m->from;
    const PerfArg *a = c->args.at;
    bool weight = f->weight >= 0 && is_tensor(&a[f->weight]);
    m->affine = weight;
    m->bias = f->bias >= 0 ? is_tensor(&a[f->bias]) : f->backward && !f->rms && weight;
    m->training = f->training >= 0 ? is_true(a[f->training].concrete) : !f->rms;
    if (f->backward && f->mask < 0) m->mask[0] = true, m->mask[1] = m->mask[2] = weight;
}

static void norm_forward_work(Call *c, const Norm *m)
{
    double n = m->n, channels = m->channels;
    bool add = strstr(m->from->name, "with_add") != NULL;
    if (m->from->rms) {
        double rows = n / channels;
        set_work(c, rows * (2 * channels + 2) + n * (m->affine ? 2 : 1) + (add ? n : 0),
                 n * (add ? 4 : 2) * m->each + (m->affine ? channels * m->each : 0));
        return;
    }
    double own = 2 + (double)m->affine + (double)m->bias + (m->training ? 2 : 0);
    set_work(c, 2 * n + 6 * channels + (m->training ? 3 * n : 0),
             n * m->each + n * m->each + channels * m->each * own);
}

static void norm_backward_work(Call *c, const Norm *m)
{
    double n = m->n, channels = m->channels;
    if (m->from->rms) {
        bool weight = m->mask[1] && m->affine;
        double dx = m->mask[0] ? 6 * n : 0, dw = weight ? n + (n / channels > 1 ? n : 0) : 0;
        set_work(c, (m->affine ? n : 0) + n + dx + dw,
                 n * m->each + 2 * n * m->each + 2 * channels * m->each);
        return;
    }
    double dx = !m->mask[0] ? 2 * n : m->training ? 5 * n : 0;
    double own = (double)m->training + (double)m->affine +
                 (m->training ? (double)m->affine + (double)m->bias : 0);
    if (!c->q->compat && !m->training) own += (double)m->mask[1] + (double)m->mask[2];
    set_work(c, 4 * n + dx + (m->training ? 0 : 3 * channels),
             n * m->each + n * m->each * (m->mask[0] && m->training ? 2 : 1) +
                 channels * m->each * own);
}

static bool norm(Call *c)
{
    Norm m = { .from = NORMS };
    while (strcmp(m.from->name, c->q->name) != 0) m.from++;
    const NormArgs *f = m.from;
    const PerfArg *x = &c->args.at[f->input];
    const char *mask = f->mask < 0 ? "" : c->args.at[f->mask].concrete;
    if (!norm_channels(c, &m)) return false;
    read_mask(*mask == '\0' ? NULL : mask, m.mask);
    (c->q->compat ? norm_flags_compat : norm_flags)(c, &m);
    m.n = perf_elements(&x->dims);
    m.each = bytes_of(c, x->type);
    put_shape(c, "op_shape", &x->dims);
    PUT_TYPES(c, "dtype_in_out", x->type, NULL);
    put_shape(c, "stride_input", &x->strides);
    put(c, "stride_output", (Cell){ 0 });
    if (f->channels == CHANNELS_GROUP && c->q->compat)
        put(c, "num_channels", cell_number(m.channels));
    else
        put_whole(c, "num_channels", m.channels);
    put(c, "has_bias", cell_bool(m.bias));
    put(c, "is_affine", cell_bool(m.affine));
    put(c, "is_training", cell_bool(m.training));
    if (f->backward) {
        bool first = c->q->compat && f->channels == CHANNELS_SHAPE; /* it reads no further */
        put_text(c, "output_mask", first || *mask == '\0' ? "[True]" : mask);
        norm_backward_work(c, &m);
    } else {
        norm_forward_work(c, &m);
    }
    set_spec(c, "vector", x->type);
    return true;
}

/* ---- which operator has which ---- */

typedef struct Model {
    const char *sheet;
    bool (*work)(Call *c);
    const char *operators; /* with | between */
    const char *ours;      /* those that TraceLens has no model for; NULL: none */
} Model;

#define BATCH_NORMS                                                                                \
    "aten::batch_norm|aten::native_batch_norm|aten::miopen_batch_norm|aten::cudnn_batch_norm|"

static const Model MODELS[] = {
    { "GEMM", gemm, "aten::mm|aten::addmm|aten::bmm|aten::baddbmm", NULL },
    { "GEMM", scaled_mm, "aten::_scaled_mm", NULL },
    { "GroupedGEMM_fwd", grouped_gemm,
      "primus_turbo::grouped_gemm|primus_turbo_cpp_extension::grouped_gemm|"
      "primus_turbo::grouped_gemm_impl",
      "aten::_grouped_mm" },
    { "GroupedGEMM_fwd", grouped_wgrad,
      "primus_turbo::grouped_gemm_variable_k|primus_turbo_cpp_extension::grouped_gemm_variable_k|"
      "primus_turbo::grouped_gemm_variable_k_impl",
      NULL },
    { "CONV_fwd", conv_forward, "aten::convolution", NULL },
    { "CONV_bwd", conv_backward, "aten::convolution_backward", NULL },
    { "SDPA_fwd", attention,
      "aten::_scaled_dot_product_flash_attention|aten::_scaled_dot_product_efficient_attention|"
      "aten::_scaled_dot_product_cudnn_attention|flash_attn::_flash_attn_forward|FlashAttnFunc",
      NULL },
    { "Normalization", norm,
      BATCH_NORMS "aten::instance_norm|aten::group_norm|aten::native_group_norm|aten::layer_norm|"
                  "aten::native_layer_norm|aten::_fused_rms_norm|aten::native_batch_norm_backward|"
                  "aten::miopen_batch_norm_backward|aten::cudnn_batch_norm_backward|"
                  "aten::native_layer_norm_backward|aten::native_group_norm_backward|"
                  "aten::_fused_rms_norm_backward",
      NULL },
    { "RMSNorm_fwd", norm, "aiter::rms_norm|aiter::rmsnorm2d_fwd_with_add_ck", NULL },
    { "UnaryElementwise", unary,
      "aten::copy|aten::copy_|aten::clamp_min|aten::clamp_min_|aten::sigmoid|aten::pow|aten::silu|"
      "aten::neg|aten::rsqrt",
      "aten::cos|aten::sin|aten::exp|aten::exp_|aten::log|aten::tanh|aten::gelu|aten::relu|"
      "aten::relu_|aten::silu_|aten::sqrt|aten::abs|aten::reciprocal|aten::sigmoid_|aten::elu" },
    { "UnaryElementwise", upsample, "aten::upsample_nearest1d", NULL },
    { "BinaryElementwise", binary,
      "aten::add|aten::add_|aten::mul|aten::mul_|aten::div|aten::div_|aten::threshold_backward|"
      "aten::sigmoid_backward",
      "aten::sub|aten::sub_|aten::gelu_backward|aten::silu_backward|aten::tanh_backward|"
      "aten::eq|aten::lt|aten::gt|aten::maximum|aten::minimum" },
    { "Reduce_fwd", reduction, "aten::mean|aten::sum|aten::max|aten::linalg_norm|aten::min",
      "aten::amax|aten::amin|aten::argmax|aten::argmin|aten::prod|aten::all|aten::any" },
};

static const Model *find_model(const char *name, bool compat)
{
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
        const Model *m = &MODELS[i];
        if (text_word_index(m->operators, name) >= 0) return m;
        if (!compat && m->ours != NULL && text_word_index(m->ours, name) >= 0) return m;
    }
    return NULL;
}

bool perf_has_model(const char *name, bool compat) { return find_model(name, compat) != NULL; }

Status perf_model(const Events *e, const PerfQuery *q, Arena *a, Perf *out)
{
    const Model *m = find_model(q->name, q->compat);
    Call c = { .q = q, .a = a, .out = out };
    *out = (Perf){ .flops = NAN, .bytes = NAN, .backward_flops = NAN, .backward_bytes = NAN };
    if (m == NULL || q->args == NULL) return OK;
    perf_args_read(&e->strings, q->args, &c.args);
    out->sheet = m->sheet;
    if (!m->work(&c)) out->sheet = NULL, out->params = 0;
    return c.status;
}
