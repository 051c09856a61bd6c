/* perf_dense: models of matrix products, attention and convolutions. Their operations can reach the
 * peak of a GPU's matrix units; perf_rows.c has the others. Formulas count operations (a
 * multiply-add is two) and bytes; sizes are doubles, which do not overflow. */
#include "traces/sheets/perf_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- matrix products: M x K times K x N ---- */

/* rocBLAS names a kernel by the order of its indices: Ailk is A as it lies, Alik is A
 * transposed. */
static void put_transposes(PerfWork *c)
{
    const char *k = c->q->kernel == NULL ? NULL : strstr(c->q->kernel, "Cijk_A");
    if (k == NULL || strlen(k) < 14) return;
    bool a = strncmp(k + 6, "lik", 3) == 0, b = strncmp(k + 11, "jlk", 3) == 0;
    perf_put(c, "\"transpose",
             a   ? b ? "(True, True)" : "(True, False)"
             : b ? "(False, True)"
                 : "(False, False)");
}

/* For batch products of M x K times K x N:
 *
 * operations: batch (2 M N K + M N with a bias)
 * bytes:      batch ((M K + weights K N + N with a bias) in + M N out) */
static void count_product(PerfWork *c, const PerfProduct *p, const char *type)
{
    double out = p->m * p->n, in = p->m * p->k + p->weights * p->k * p->n + (p->row ? p->n : 0);
    perf_set_work(c, p->batch * (2 * out * p->k + (p->bias ? out : 0)),
                  p->batch * (in * p->in + out * p->out), type);
}

/* addmm has the bias as its first argument. _scaled_mm multiplies 8-bit numbers: x (M, K) times w
 * (N, K) transposed, with a 16-bit result. */
bool perf_model_gemm(PerfWork *c)
{
    const char *name = c->q->name;
    bool add = strstr(name, "addmm") != NULL || strstr(name, "addbmm") != NULL;
    bool batched = strstr(name, "bmm") != NULL, scaled = text_ends(name, "_scaled_mm");
    const PerfArg *a = &c->arg[add], *b = a + 1;
    int rank = batched ? 3 : 2;
    if (a->dims.n != rank || b->dims.n != rank) return false;
    const int64_t *x = a->dims.at + batched, *y = b->dims.at + batched;
    PerfProduct p = { .m = (double)x[0], .k = (double)x[1], .n = (double)y[1] };
    p.batch = batched ? (double)a->dims.at[0] : 1;
    p.weights = 1;
    p.row = add;
    p.bias = scaled ? c->args > 4 && perf_is_tensor(&c->arg[4]) : add;
    p.in = p.out = perf_bytes_of(c, a->type);
    if (scaled && p.in == 1) p.out = 2;
    PERF_RULE(c, product, c, &p);
    if (batched) perf_put(c, "#B", p.batch);
    perf_put(c, "#M #N #K ?bias /stride_A /stride_B 2dtype_A_B", p.m, p.n, p.k, p.bias, &a->strides,
             &b->strides, a->type, b->type);
    if (!batched) perf_put(c, "#B", 1.0);
    put_transposes(c);
    count_product(c, &p, a->type);
    return true;
}

static void put_grouped(PerfWork *c, double groups, PerfProduct *p, const PerfArg type[2])
{
    p->batch = 1;
    PERF_RULE(c, product, c, p);
    perf_put(c, "#G #M #N #K 2dtype_A_B", groups, p->m, p->n, p->k, type[0].type, type[1].type);
    count_product(c, p, type[0].type);
}

/* Rows grouped by expert: x (M, K) times w (G, K, N) or (G, N, K). All G matrices are read. */
bool perf_model_grouped_gemm(PerfWork *c)
{
    const PerfArg *x = &c->arg[0], *w = &c->arg[1];
    if (x->dims.n != 2 || w->dims.n != 3) return false;
    bool as_is = w->dims.at[1] == x->dims.at[1];
    PerfProduct p = { .m = (double)x->dims.at[0], .k = (double)x->dims.at[1] };
    p.n = (double)w->dims.at[as_is ? 2 : 1];
    p.weights = (double)w->dims.at[0];
    p.in = p.out = perf_bytes_of(c, x->type);
    put_grouped(c, p.weights, &p, c->arg);
    return true;
}

/* Weight gradients of a grouped product: x (M, K) transposed times dy (M, N), giving a matrix (K,
 * N) for each of G groups. The third argument has the groups' lengths. In count_product's terms the
 * results are the `weights`, and dy is the output. */
bool perf_model_grouped_wgrad(PerfWork *c)
{
    const PerfArg *x = &c->arg[0], *y = &c->arg[1], *lengths = &c->arg[2];
    if (x->dims.n != 2 || y->dims.n != 2 || x->dims.at[0] != y->dims.at[0]) return false;
    PerfProduct p = { .m = (double)x->dims.at[0], .k = (double)x->dims.at[1] };
    p.n = (double)y->dims.at[1];
    p.weights = lengths->dims.n == 1 ? (double)lengths->dims.at[0] : 1;
    p.in = p.out = perf_bytes_of(c, x->type);
    put_grouped(c, p.weights, &p, c->arg);
    return true;
}

/* ---- attention ---- */

/* Pairs under a causal mask of Nq queries and Nk keys. Query i sees keys 0 to i (PyTorch), or keys
 * 0 to i + Nk - Nq (flash_attn, at_end). The triangle has s (s + 1) / 2 pairs, s = min(Nq, Nk); the
 * rest is the rectangle next to it. */
static double attention_pairs(const PerfAttention *t)
{
    double nq = t->queries, nk = t->keys, shorter = nq < nk ? nq : nk;
    if (!t->causal) return nq * nk;
    double rectangle = t->at_end ? nq * (nk - shorter) : (nq - shorter) * nk;
    return shorter * (shorter + 1) / 2 + rectangle;
}

/* For P pairs of a query and a key in each head (Dao et al., "FlashAttention", arXiv:2205.14135):
 *
 * forward:  2 P d_qk for scores, 2 P d_v for weighted values; moves q, k, v, o
 * backward: 4 P d_v for dv and the gradient of the weights, 4 P d_qk for dq and dk; flash attention
 *           computes the scores again, 2 P d_qk; moves q, k, v, their gradients, and do */
static void count_attention(PerfWork *c, const PerfAttention *t, const char *type)
{
    double pairs = t->batch * t->heads * t->pairs;
    double q = t->batch * t->queries * t->heads * t->qk,
           o = t->batch * t->queries * t->heads * t->v;
    double k = t->batch * t->keys * t->kv_heads * t->qk,
           v = t->batch * t->keys * t->kv_heads * t->v;
    perf_set_work(c, 2 * pairs * t->qk + 2 * pairs * t->v, (q + k + v + o) * t->bytes, type);
    c->out->backward_sheet = "SDPA_bwd";
    c->out->backward_flops =
        2 * pairs * t->v * 2 + 2 * pairs * t->qk * (t->flash ? 3 : 2) + t->reduced;
    c->out->backward_bytes = (2 * q + 2 * k + 2 * v + o) * t->bytes;
}

/* How an operator's arguments lie. heads_first: tensors are (B, H, N, d), else (B, N, H, d).
 * dropout, causal: the indices of these arguments. */
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

/* Grouped queries: a key head is shared by heads / kv_heads query heads, and its gradients are
 * added up over them (`reduced`). */
bool perf_model_attention(PerfWork *c)
{
    const AttentionArgs *from = ATTENTIONS;
    while (strcmp(from->name, c->q->name) != 0) from++;
    const PerfArg *q = &c->arg[0], *k = &c->arg[1], *v = &c->arg[2];
    if (q->dims.n != 4 || k->dims.n != 4 || v->dims.n != 4) return false;
    int h = from->heads_first ? 1 : 2, s = 3 - h;
    PerfAttention t = { .batch = (double)q->dims.at[0],
                        .queries = (double)q->dims.at[s],
                        .heads = (double)q->dims.at[h],
                        .keys = (double)k->dims.at[s],
                        .kv_heads = (double)k->dims.at[h],
                        .qk = (double)q->dims.at[3],
                        .v = (double)v->dims.at[3],
                        .causal = perf_is_true(c->arg[from->causal].concrete),
                        .flash = from->flash,
                        .at_end = !from->heads_first,
                        .bytes = perf_bytes_of(c, q->type) };
    t.pairs = attention_pairs(&t);
    t.reduced = t.batch * t.keys * (t.v + t.qk) * (t.heads / t.kv_heads - 1);
    PERF_RULE(c, attention, &t);
    perf_put(c, "#B #N_Q #H_Q #N_KV #H_KV #d_h_qk #d_h_v ~dropout ?causal ?flash_impl 2dtype_A_B",
             t.batch, t.queries, t.heads, t.keys, t.kv_heads, t.qk, t.v,
             strtod(c->arg[from->dropout].concrete, NULL), t.causal, t.flash, q->type, k->type);
    count_attention(c, &t, q->type);
    return true;
}

/* ---- convolution ---- */

/* Number i of a list that may hold one number for all dimensions. */
static int64_t number_at(const Shape *s, int i) { return s->at[s->n == 1 ? 0 : i]; }

/*
 * Computes the output's shape. With x inputs, kernel k, padding p, dilation d, stride s, and output
 * padding o, in each dimension:
 *     y = floor((x + 2 p - d (k - 1) - 1) / s) + 1
 *     transposed: y = (x - 1) s - 2 p + d (k - 1) + o + 1
 * False: the arguments are not those of a convolution.
 */
static bool conv_shape(PerfConv *v)
{
    /* The product of two such numbers does not overflow. */
    static const int64_t LARGE = (int64_t)1 << 28;
    const Shape *x = &v->x->dims, *w = &v->w->dims;
    int spatial = x->n - 2;
    if (spatial < 1 || w->n != x->n || v->stride.n < 1 || v->padding.n < 1 || v->dilation.n < 1)
        return false;
    if (w->at[0] < 1 || w->at[1] > LARGE || v->groups > (double)LARGE) return false;
    v->out = *x;
    v->out.at[1] = v->transposed ? w->at[1] * (int64_t)v->groups : w->at[0];
    for (int i = 0; i < spatial; i++) {
        int64_t s = number_at(&v->stride, i), p = number_at(&v->padding, i),
                d = number_at(&v->dilation, i);
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

/* Reads the arguments: x is number x, w the next one, and stride, padding, dilation, transposed,
 * output padding and groups begin at number `first`. */
static bool conv_read(const PerfWork *c, int x, int first, PerfConv *v)
{
    const PerfArg *a = c->arg;
    *v = (PerfConv){ .x = &a[x],
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

/* Counts a convolution. operations: 2 for each weight that an output meets (transposed: an input),
 * plus the bias. elements: x + w + y, plus the bias. Both for every part; `y` is the shape of the
 * output, or of its gradient. */
static void count_conv(PerfWork *c, const PerfConv *v, const Shape *y)
{
    static const char *const KIND[] = { "conv1d", "conv2d", "conv3d" };
    const Shape *x = &v->x->dims, *w = &v->w->dims;
    int kind = x->n - 3;
    double met = perf_elements(w) / (double)w->at[0], out = perf_elements(y);
    double once = 2 * perf_elements(v->transposed ? x : &v->out) * met;
    double all = perf_elements(x) + perf_elements(w) + out;
    perf_put(c,
             "\"convNd /input_shape /filter_shape 2dtype_input_weight /input_stride /weight_stride "
             "?bias /stride /padding /dilation ?transposed_conv /output_padding #groups",
             kind < 3 ? KIND[kind] : "convNd", x, w, v->x->type, v->w->type, &v->x->strides,
             &v->w->strides, v->bias, &v->stride, &v->padding, &v->dilation, v->transposed,
             &v->output_padding, v->groups);
    perf_set_work(c, once * v->parts + (v->adds ? out : 0),
                  (all * v->parts + (v->adds ? (double)v->out.at[1] : 0)) *
                      perf_bytes_of(c, v->x->type),
                  v->x->type);
}

bool perf_model_conv_forward(PerfWork *c)
{
    PerfConv v;
    if (!conv_read(c, 0, 3, &v)) return false;
    v.parts = 1;
    v.adds = v.bias = perf_is_tensor(&c->arg[2]);
    PERF_RULE(c, conv, c, &v);
    count_conv(c, &v, &v.out);
    return true;
}

/* Arguments: dy, x, w, sizes of the bias, stride, ..., and which gradients are wanted. The
 * gradients of x and of w are each as much work as forward. */
bool perf_model_conv_backward(PerfWork *c)
{
    PerfConv v;
    bool mask[3] = { false };
    if (!conv_read(c, 1, 4, &v)) return false;
    perf_read_mask(c->arg[10].concrete, mask);
    v.parts = (double)mask[0] + (double)mask[1];
    v.adds = v.bias = mask[2];
    PERF_RULE(c, conv, c, &v);
    count_conv(c, &v, &c->arg[0].dims);
    return true;
}
