/* perf_dense: products, attention, convolutions. */
#include "analyze/perf_work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- matrix products: M x K times K x N ---- */

/* rocBLAS names a kernel by its index order: Ailk is A as it lies, Alik transposed. */
static void put_transposes(PerfWork *c)
{
    const char *k = c->q->kernel == NULL ? NULL : strstr(c->q->kernel, "Cijk_A");
    if (k == NULL || strlen(k) < 14) return;
    bool a = strncmp(k + 6, "lik", 3) == 0, b = strncmp(k + 11, "jlk", 3) == 0;
    perf_put_text(c, "transpose",
                  a   ? b ? "(True, True)" : "(True, False)"
                  : b ? "(False, True)"
                      : "(False, False)");
}

static void put_sizes(PerfWork *c, double m, double n, double k)
{
    perf_put_whole(c, "M", m);
    perf_put_whole(c, "N", n);
    perf_put_whole(c, "K", k);
}

/* Also of a byte (_scaled_mm): x (M, K) times w (N, K) transposed; its result has two. */
bool perf_model_gemm(PerfWork *c)
{
    const char *name = c->q->name;
    bool add = strstr(name, "addmm") != NULL || strstr(name, "addbmm") != NULL, bias = add;
    bool batched = strstr(name, "bmm") != NULL, scaled = text_ends(name, "_scaled_mm");
    const PerfArg *a = &c->arg[add], *b = a + 1;
    int rank = batched ? 3 : 2;
    if (a->dims.n != rank || b->dims.n != rank) return false;
    if (scaled) bias = c->q->compat ? c->args == 3 : c->args > 4 && perf_is_tensor(&c->arg[4]);
    const int64_t *x = a->dims.at + batched, *y = b->dims.at + batched;
    double m = (double)x[0], k = (double)x[1], n = (double)y[1];
    double groups = batched ? (double)a->dims.at[0] : 1;
    if (batched) perf_put_whole(c, "B", groups);
    put_sizes(c, m, n, k);
    perf_put(c, "bias", cell_bool(bias));
    perf_put_shape(c, "stride_A", &a->strides);
    perf_put_shape(c, "stride_B", &b->strides);
    PERF_PUT_TYPES(c, "dtype_A_B", a->type, b->type);
    if (!batched) perf_put_whole(c, "B", 1);
    put_transposes(c);
    double each = perf_bytes_of(c, a->type), out = scaled && each == 1 ? 2 : each;
    double work = 2 * m * n * k + (bias ? m * n : 0);
    double moved = (m * k + k * n + (add ? n : 0)) * each + m * n * out;
    if (c->q->compat && !scaled && strcmp(a->type, b->type) != 0) moved = NAN;
    perf_set_work(c, groups * work, groups * moved, a->type);
    return true;
}

/* Rows grouped by expert: x (M, K) times w (G, K, N) or (G, N, K). */
bool perf_model_grouped_gemm(PerfWork *c)
{
    const PerfArg *x = &c->arg[0], *w = &c->arg[1];
    if (x->dims.n != 2 || w->dims.n != 3) return false;
    double m = (double)x->dims.at[0], k = (double)x->dims.at[1], groups = (double)w->dims.at[0];
    bool as_is = w->dims.at[1] == x->dims.at[1];
    double n = (double)w->dims.at[as_is ? 2 : 1];
    perf_put_whole(c, "G", groups);
    put_sizes(c, m, n, k);
    PERF_PUT_TYPES(c, "dtype_A_B", x->type, w->type);
    double in = perf_bytes_of(c, x->type), out = perf_bytes_of(c, c->q->compat ? w->type : x->type);
    perf_set_work(c, 2 * m * k * n, (m * k + groups * k * n) * in + (m * n) * out, x->type);
    return true;
}

/* Their weight gradients: x (M, K) transposed times dy (M, N), a (K, N) for each of G groups, whose
 * lengths are the third argument. */
bool perf_model_grouped_wgrad(PerfWork *c)
{
    const PerfArg *x = &c->arg[0], *y = &c->arg[1], *lengths = &c->arg[2];
    if (x->dims.n != 2 || y->dims.n != 2 || x->dims.at[0] != y->dims.at[0]) return false;
    double m = (double)x->dims.at[0], k = (double)x->dims.at[1], n = (double)y->dims.at[1];
    double groups = lengths->dims.n == 1 ? (double)lengths->dims.at[0] : 1;
    double written = c->q->compat ? 1 : groups;
    perf_put_whole(c, "G", groups);
    put_sizes(c, m, n, k);
    PERF_PUT_TYPES(c, "dtype_A_B", x->type, y->type);
    perf_set_work(c, 2 * m * k * n, (m * k + m * n + written * k * n) * perf_bytes_of(c, x->type),
                  x->type);
    return true;
}

/* ---- attention ---- */

typedef struct Attention {
    double batch, queries, heads, keys, kv_heads, qk, v;
    bool causal, flash, at_end; /* at_end: the last query sees the last key */
} Attention;

/* Pairs of a query and a key. Under a causal mask of Nq queries and Nk keys, query i sees keys 0 to i
 * (PyTorch), or to i + Nk - Nq (flash_attn). TraceLens counts half, and knows none of two lengths. */
static double pairs(const PerfWork *c, const Attention *t)
{
    double nq = t->queries, nk = t->keys, shorter = nq < nk ? nq : nk;
    if (!t->causal) return nq * nk;
    if (c->q->compat) return nq == nk ? nq * nk / 2 : (double)NAN;
    double beside = t->at_end ? nq * (nk - shorter) : (nq - shorter) * nk;
    return shorter * (shorter + 1) / 2 + beside;
}

static void attention_work(PerfWork *c, const Attention *t, double each, const char *type)
{
    double pair = t->batch * t->heads * pairs(c, t);
    double q = t->batch * t->queries * t->heads * t->qk,
           o = t->batch * t->queries * t->heads * t->v;
    double k = t->batch * t->keys * t->kv_heads * t->qk,
           v = t->batch * t->keys * t->kv_heads * t->v;
    perf_set_work(c, 2 * pair * t->qk + 2 * pair * t->v, (q + k + v + o) * each, type);
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

bool perf_model_attention(PerfWork *c)
{
    const AttentionArgs *from = ATTENTIONS;
    while (strcmp(from->name, c->q->name) != 0) from++;
    const PerfArg *q = &c->arg[0], *k = &c->arg[1], *v = &c->arg[2];
    if (q->dims.n != 4 || k->dims.n != 4 || v->dims.n != 4) return false;
    int h = from->heads_first ? 1 : 2, s = 3 - h;
    Attention t = { (double)q->dims.at[0], (double)q->dims.at[s],
                    (double)q->dims.at[h], (double)k->dims.at[s],
                    (double)k->dims.at[h], (double)q->dims.at[3],
                    (double)v->dims.at[3], perf_is_true(c->arg[from->causal].concrete),
                    from->flash,           !from->heads_first };
    perf_put_whole(c, "B", t.batch);
    perf_put_whole(c, "N_Q", t.queries);
    perf_put_whole(c, "H_Q", t.heads);
    perf_put_whole(c, "N_KV", t.keys);
    perf_put_whole(c, "H_KV", t.kv_heads);
    perf_put_whole(c, "d_h_qk", t.qk);
    perf_put_whole(c, "d_h_v", t.v);
    perf_put(c, "dropout", cell_number(strtod(c->arg[from->dropout].concrete, NULL)));
    perf_put(c, "causal", cell_bool(t.causal));
    perf_put(c, "flash_impl", cell_bool(t.flash));
    PERF_PUT_TYPES(c, "dtype_A_B", q->type, k->type);
    attention_work(c, &t, c->q->compat ? 2 : perf_bytes_of(c, q->type), q->type);
    return true;
}

/* ---- convolution ---- */

typedef struct Conv {
    const PerfArg *x, *w;
    Shape stride, padding, dilation, output_padding, out;
    bool transposed, bias;
    double groups;
} Conv;

/* Element i of a list that may hold one number for all. */
static int64_t each(const Shape *s, int i) { return s->at[s->n == 1 ? 0 : i]; }

/* y = floor((x + 2 p - d (k - 1) - 1) / s) + 1; transposed: x = (y - 1) s - 2 p + d (k - 1) + o + 1 */
static bool conv_shape(Conv *v)
{
    static const int64_t LARGE = (int64_t)1 << 28; /* products of two, and their sums, fit */
    const Shape *x = &v->x->dims, *w = &v->w->dims;
    int spatial = x->n - 2;
    if (spatial < 1 || w->n != x->n || v->stride.n < 1 || v->padding.n < 1 || v->dilation.n < 1)
        return false;
    if (w->at[0] < 1 || w->at[1] > LARGE || v->groups > (double)LARGE) return false;
    v->out = *x;
    v->out.at[1] = v->transposed ? w->at[1] * (int64_t)v->groups : w->at[0];
    for (int i = 0; i < spatial; i++) {
        int64_t s = each(&v->stride, i), p = each(&v->padding, i), d = each(&v->dilation, i);
        int64_t o = v->output_padding.n > i ? v->output_padding.at[i] : 0;
        const int64_t all[] = { s - 1, p, d, o, x->at[i + 2], w->at[i + 2] };
        for (int k = 0; k < 6; k++)
            if (all[k] < 0 || all[k] > LARGE) return false;
        int64_t at = x->at[i + 2], reach = d * (w->at[i + 2] - 1);
        v->out.at[i + 2] =
            v->transposed ? (at - 1) * s - 2 * p + reach + o + 1 : (at + 2 * p - reach - 1) / s + 1;
    }
    return true;
}

static void put_conv(PerfWork *c, const Conv *v)
{
    static const char *const KIND[] = { "conv1d", "conv2d", "conv3d" };
    bool back = c->out->sheet != NULL && strcmp(c->out->sheet, "CONV_bwd") == 0;
    int kind = v->x->dims.n - 3;
    perf_put(c, "convNd", cell_text(kind < 3 ? KIND[kind] : "convNd"));
    perf_put_shape(c, "input_shape", &v->x->dims);
    perf_put_shape(c, "filter_shape", &v->w->dims);
    PERF_PUT_TYPES(c, "dtype_input_weight", v->x->type, v->w->type);
    perf_put_shape(c, "input_stride", &v->x->strides);
    perf_put_shape(c, "weight_stride", &v->w->strides);
    perf_put(c, "bias", back && c->q->compat ? cell_text("[]") : cell_bool(v->bias));
    perf_put_shape(c, "stride", &v->stride);
    perf_put_shape(c, "padding", &v->padding);
    perf_put_shape(c, "dilation", &v->dilation);
    perf_put(c, "transposed_conv", cell_bool(v->transposed));
    perf_put_shape(c, "output_padding", &v->output_padding);
    perf_put_whole(c, "groups", v->groups);
}

static bool conv_read(PerfWork *c, int x, int first, Conv *v)
{
    const PerfArg *a = c->arg;
    *v = (Conv){ .x = &a[x],
                 .w = &a[x + 1],
                 .stride = perf_shape_read(a[first].concrete),
                 .padding = perf_shape_read(a[first + 1].concrete),
                 .dilation = perf_shape_read(a[first + 2].concrete),
                 .transposed = perf_is_true(a[first + 3].concrete),
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

bool perf_model_conv_forward(PerfWork *c)
{
    Conv v;
    if (!conv_read(c, 0, 3, &v)) return false;
    v.bias = c->q->compat ? c->args == 3 : perf_is_tensor(&c->arg[2]);
    put_conv(c, &v);
    double out = perf_elements(&v.out);
    double all = perf_elements(&v.x->dims) + perf_elements(&v.w->dims) + out;
    perf_set_work(c, conv_flops(&v) + (v.bias ? out : 0),
                  (all + (v.bias ? (double)v.out.at[1] : 0)) * perf_bytes_of(c, v.x->type),
                  v.x->type);
    return true;
}

/* (dy, x, w, bias sizes, stride, ..., mask of the gradients that are wanted): of x and of w each as
 * much as forward. TraceLens counts both whatever the mask says. */
bool perf_model_conv_backward(PerfWork *c)
{
    Conv v;
    if (!conv_read(c, 1, 4, &v)) return false;
    const char *mask = c->arg[10].concrete;
    const char *second = strchr(mask, ','),
               *third = second == NULL ? NULL : strchr(second + 1, ',');
    bool dx = c->q->compat || text_starts(mask, "[True");
    bool dw = c->q->compat || (second != NULL && text_starts(second, ", True"));
    v.bias = third != NULL && text_starts(third, ", True");
    put_conv(c, &v);
    double once = conv_flops(&v), y = perf_elements(&c->arg[0].dims);
    double all = y + perf_elements(&v.x->dims) + perf_elements(&v.w->dims);
    bool db = v.bias && !c->q->compat;
    perf_set_work(c, once * ((double)dx + (double)dw) + (db ? y : 0),
                  (all * ((double)dx + (double)dw) + (db ? (double)v.out.at[1] : 0)) *
                      perf_bytes_of(c, v.x->type),
                  v.x->type);
    return true;
}
