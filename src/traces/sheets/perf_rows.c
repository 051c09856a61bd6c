/* perf_rows: models of operators that go over their tensors once: element by element, reductions,
 * normalizations, and some of MoE and language models. Their time is that of the bytes they move;
 * perf_dense.c has those whose operations count. */
#include "traces/sheets/perf_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- element by element ---- */

/* One operation an element. If there is a second tensor, the result has its type. */
bool perf_model_unary(PerfWork *c)
{
    const PerfArg *in = &c->arg[0], *out = &c->arg[1];
    if (c->args < 1 || in->dims.n < 0) return false;
    bool given = c->args > 1 && perf_is_tensor(out);
    double n = perf_elements(&in->dims);
    double read = perf_bytes_of(c, in->type), written = given ? perf_bytes_of(c, out->type) : read;
    perf_put(c, "/op_shape 2dtype_in_out /stride_input /stride_output", &in->dims, in->type,
             given ? out->type : NULL, &in->strides, given ? &out->strides : NULL);
    perf_set_work(c, n, n * read + n * written, in->type);
    return true;
}

/* One operation an element of the result. Its sizes are the second argument. */
bool perf_model_upsample(PerfWork *c)
{
    const PerfArg *in = &c->arg[0];
    Shape size = perf_shape_read(c->arg[1].concrete), out = in->dims;
    if (out.n < 3 || size.n != out.n - 2) return false;
    for (int i = 0; i < size.n; i++) out.at[i + 2] = size.at[i];
    double each = perf_bytes_of(c, in->type), n = perf_elements(&out);
    perf_put(c, "/input_shape /output_shape /op_shape 2dtype_in_out /stride_input \"stride_output",
             &in->dims, &out, &out, in->type, in->type, &in->strides, "None");
    perf_set_work(c, n, perf_elements(&in->dims) * each + n * each, in->type);
    return true;
}

/* Elements of a broadcast result: shapes are aligned at their ends, and a dimension of 1 is
 * repeated. */
static double broadcast_elements(const Shape *a, const Shape *b)
{
    double n = 1;
    for (int i = 1; i <= a->n || i <= b->n; i++) {
        int64_t x = i <= a->n ? a->at[a->n - i] : 1, y = i <= b->n ? b->at[b->n - i] : 1;
        n *= (double)(x == 1 ? y : x);
    }
    return n;
}

/* One operation an element of the result. The result has the type of a third tensor if there is
 * one. Otherwise it has the wider type of two tensors, or the type of the first argument. */
bool perf_model_binary(PerfWork *c)
{
    const PerfArg *a = &c->arg[0], *b = a + 1, *out = a + 2;
    if (c->args < 2 || a->dims.n < 0 || b->dims.n < 0) return false;
    bool given = c->args > 2 && perf_is_tensor(out);
    double n = broadcast_elements(&a->dims, &b->dims);
    double in1 = perf_bytes_of(c, a->type), in2 = perf_bytes_of(c, b->type),
           wider = in1 > in2 ? in1 : in2;
    perf_put(c,
             "/shape_in1 /shape_in2 3dtype_in1_in2_out /stride_input1 /stride_input2 "
             "/stride_output",
             &a->dims, &b->dims, a->type, b->type, given ? out->type : NULL, &a->strides,
             &b->strides, given ? &out->strides : NULL);
    double each = given                                    ? perf_bytes_of(c, out->type)
                  : perf_is_tensor(a) && perf_is_tensor(b) ? wider
                                                           : in1;
    perf_set_work(c, n, perf_elements(&a->dims) * in1 + perf_elements(&b->dims) * in2 + n * each,
                  a->type);
    return true;
}

/* ---- reductions ---- */

/* Returns the elements of a result without the dimensions in the list. Without a list all
 * dimensions are reduced, so it is 1. */
static double reduced_elements(const Shape *in, const char *list)
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

/* One operation for each element that is read. The gradient of a sum or mean moves as much. */
bool perf_model_reduction(PerfWork *c)
{
    const PerfArg *in = &c->arg[0];
    bool norm = strcmp(c->q->name, "aten::linalg_norm") == 0;
    const char *dims = c->arg[norm ? 2 : 1].concrete;
    if (c->args < 1 || in->dims.n < 0) return false;
    /* A max of two tensors takes the greater of each pair: it reduces nothing. */
    bool pairwise = c->args == 2 && perf_is_tensor(&c->arg[1]);
    double n = perf_elements(&in->dims), each = perf_bytes_of(c, in->type);
    double out = pairwise ? n : reduced_elements(&in->dims, dims);
    PERF_RULE(c, reduction, &out);
    perf_put(c, "#num_input_elems #num_output_elems 2dtype_in_out \"reduce_type", n, out, in->type,
             (const char *)NULL, norm ? "norm" : c->q->name + strlen("aten::"));
    perf_set_work(c, n, n * each + out * each, in->type);
    if (strcmp(c->q->name, "aten::mean") == 0 || strcmp(c->q->name, "aten::sum") == 0) {
        c->out->backward_sheet = "Reduce_bwd";
        c->out->backward_flops = n;
        c->out->backward_bytes = n * each + out * each;
    }
    return true;
}

/* ---- normalization ---- */

/* Where the arguments of a normalization are. channels: how its number of channels is known. */
typedef struct NormArgs {
    const char *names; /* with | between */
    enum { CHANNELS_SHAPE, CHANNELS_LIST, CHANNELS_WEIGHT, CHANNELS_GROUP } channels;
    bool backward, rms;
    int input, weight, bias, training, mask; /* indices of arguments; -1: there is none */
} NormArgs;

static const NormArgs NORMS[] = {
    { "aten::batch_norm|aten::native_batch_norm|aten::miopen_batch_norm|aten::cudnn_batch_norm|"
      "aten::instance_norm",
      CHANNELS_SHAPE, false, false, 0, 1, 2, 5, -1 },
    { "aten::group_norm", CHANNELS_SHAPE, false, false, 0, 2, 3, -1, -1 },
    { "aten::native_group_norm", CHANNELS_SHAPE, false, false, 0, 1, 2, -1, -1 },
    { "aten::layer_norm|aten::native_layer_norm", CHANNELS_LIST, false, false, 0, 2, 3, -1, -1 },
    { "aten::_fused_rms_norm", CHANNELS_LIST, false, true, 0, 2, -1, -1, -1 },
    { "aten::native_batch_norm_backward", CHANNELS_SHAPE, true, false, 1, 2, -1, 7, 9 },
    { "aten::miopen_batch_norm_backward|aten::cudnn_batch_norm_backward", CHANNELS_SHAPE, true,
      false, 1, 2, -1, -1, -1 },
    { "aten::native_layer_norm_backward", CHANNELS_LIST, true, false, 1, 5, 6, -1, 7 },
    { "aten::native_group_norm_backward", CHANNELS_GROUP, true, false, 1, 4, -1, -1, 9 },
    { "aten::_fused_rms_norm_backward", CHANNELS_LIST, true, true, 1, 4, -1, -1, 5 },
    { "aiter::rms_norm", CHANNELS_WEIGHT, false, true, 0, 1, -1, -1, -1 },
    { "aiter::rmsnorm2d_fwd_with_add_ck", CHANNELS_WEIGHT, false, true, 1, 4, -1, -1, -1 },
};

/* Finds how many elements have a weight of their own (C): by the shape's second dimension, by a
 * list of normalized sizes, by the weight's elements, or by an argument. */
static bool norm_channels(const PerfWork *c, PerfNorm *m)
{
    const PerfArg *x = &c->arg[m->from->input];
    Shape list = perf_shape_read(c->arg[m->from->input + 1].concrete);
    switch (m->from->channels) {
    case CHANNELS_SHAPE: m->channels = x->dims.n > 1 ? (double)x->dims.at[1] : 0; break;
    case CHANNELS_LIST: m->channels = list.n > 0 ? perf_elements(&list) : 0; break;
    case CHANNELS_WEIGHT: m->channels = perf_elements(&c->arg[m->from->weight].dims); break;
    case CHANNELS_GROUP: m->channels = strtod(c->arg[6].concrete, NULL); break;
    }
    return x->dims.n > 0 && m->channels > 0;
}

/* Sets which of weight, bias and statistics the call has, by the arguments that are there. */
static void norm_flags(const PerfWork *c, PerfNorm *m)
{
    const NormArgs *f = m->from;
    const PerfArg *a = c->arg;
    bool weight = f->weight >= 0 && perf_is_tensor(&a[f->weight]);
    m->affine = weight;
    m->bias = f->bias >= 0 ? perf_is_tensor(&a[f->bias]) : f->backward && !f->rms && weight;
    m->training = f->training >= 0 ? perf_is_true(a[f->training].concrete) : !f->rms;
    if (f->backward && f->mask < 0) {
        m->mask[0] = true;
        m->mask[1] = m->mask[2] = weight;
    }
    m->written = (double)m->mask[1] + (double)m->mask[2];
}

/* n elements, C channels, n / C rows.
 *
 * RMSNorm: 2 C + 2 a row for its root mean square, n to scale, n with weights, n for a sum before it
 * others:  2 n to shift and scale, 6 C for the channels' factors, 3 n for statistics in training
 *
 * Input and output are moved once, and so are mean, variance, weight, bias, running statistics. */
static void norm_forward_work(PerfWork *c, const PerfNorm *m)
{
    double n = m->n, channels = m->channels;
    bool add = strstr(c->q->name, "with_add") != NULL;
    if (m->rms) {
        double rows = n / channels;
        perf_set_work(c, rows * (2 * channels + 2) + n * (m->affine ? 2 : 1) + (add ? n : 0),
                      n * (add ? 4 : 2) * m->bytes + (m->affine ? channels * m->bytes : 0),
                      m->type);
        return;
    }
    double own = 2 + (double)m->affine + (double)m->bias + (m->training ? 2 : 0);
    perf_set_work(c, 2 * n + 6 * channels + (m->training ? 3 * n : 0),
                  n * m->bytes + n * m->bytes + channels * m->bytes * own, m->type);
}

/* RMSNorm: n to scale dy, n with weights, 6 n for dx, n or 2 n for dw
 * others:  4 n for sums over channels, 5 n for dx in training, 2 n without dx, 3 C in evaluation */
static void norm_backward_work(PerfWork *c, const PerfNorm *m)
{
    double n = m->n, channels = m->channels;
    if (m->rms) {
        bool weight = m->mask[1] && m->affine;
        double dx = m->mask[0] ? 6 * n : 0, dw = weight ? n + (n / channels > 1 ? n : 0) : 0;
        perf_set_work(c, (m->affine ? n : 0) + n + dx + dw,
                      n * m->bytes + 2 * n * m->bytes + 2 * channels * m->bytes, m->type);
        return;
    }
    double dx = !m->mask[0] ? 2 * n : m->training ? 5 * n : 0;
    double own = (double)m->training + (double)m->affine +
                 (m->training ? (double)m->affine + (double)m->bias : m->written);
    perf_set_work(c, 4 * n + dx + (m->training ? 0 : 3 * channels),
                  n * m->bytes + n * m->bytes * (m->mask[0] && m->training ? 2 : 1) +
                      channels * m->bytes * own,
                  m->type);
}

/* The arguments are read by the operator's row of NORMS. Rules may then change what was read, and
 * only the result is printed and counted. */
bool perf_model_norm(PerfWork *c)
{
    PerfNorm m = { .from = NORMS };
    while (text_word_index(m.from->names, c->q->name) < 0) m.from++;
    const NormArgs *f = m.from;
    const PerfArg *x = &c->arg[f->input];
    const char *mask = f->mask < 0 ? "" : c->arg[f->mask].concrete;
    if (!norm_channels(c, &m)) return false;
    perf_read_mask(mask, m.mask);
    norm_flags(c, &m);
    m.n = perf_elements(&x->dims);
    m.type = x->type;
    m.bytes = perf_bytes_of(c, x->type);
    m.backward = f->backward;
    m.rms = f->rms;
    m.layer = f->channels == CHANNELS_LIST;
    m.has_mask = f->mask >= 0;
    PERF_RULE(c, norm, c, &m);
    perf_put(c,
             "/op_shape 2dtype_in_out /stride_input /stride_output #num_channels ?has_bias "
             "?is_affine ?is_training",
             &x->dims, x->type, (const char *)NULL, &x->strides, (const Shape *)NULL, m.channels,
             m.bias, m.affine, m.training);
    if (f->backward) perf_put(c, "\"output_mask", *mask == '\0' ? "[True]" : mask);
    (f->backward ? norm_backward_work : norm_forward_work)(c, &m);
    return true;
}

/* ---- tokens ---- */

/* Rotary embedding of queries and keys: 3 operations an element, which is read and written. */
bool perf_model_rope(PerfWork *c)
{
    const PerfArg *q = &c->arg[1], *k = &c->arg[2];
    if (!perf_is_tensor(q) || !perf_is_tensor(k)) return false;
    double n = perf_elements(&q->dims) + perf_elements(&k->dims);
    perf_put(c, "/query_shape /key_shape 2dtype", &q->dims, &k->dims, q->type, k->type);
    perf_set_work(c, 3 * n, 2 * n * perf_bytes_of(c, q->type), q->type);
    return true;
}

/* Logits (B, V) and targets (B): 5 operations a logit. Each row has a loss of 4 bytes and a target
 * of 8 bytes. */
bool perf_model_cross_entropy(PerfWork *c)
{
    const PerfArg *x = &c->arg[0];
    if (x->dims.n != 2) return false;
    double rows = (double)x->dims.at[0], words = (double)x->dims.at[1];
    perf_put(c, "#B #V 1dtype", rows, words, x->type);
    perf_set_work(c, 5 * rows * words,
                  rows * words * perf_bytes_of(c, x->type) + 8 * rows + 4 * rows, x->type);
    return true;
}

/* A causal convolution of each channel: x (B, C, L), weights (C, k). */
bool perf_model_conv1d(PerfWork *c)
{
    const PerfArg *x = &c->arg[0], *w = &c->arg[1];
    if (x->dims.n != 3 || w->dims.n != 2) return false;
    double n = perf_elements(&x->dims), k = (double)w->dims.at[1];
    perf_put(c, "#B #C #L #k 2dtype", (double)x->dims.at[0], (double)x->dims.at[1],
             (double)x->dims.at[2], k, x->type, w->type);
    perf_set_work(c, 2 * n * k, (2 * n + perf_elements(&w->dims)) * perf_bytes_of(c, x->type),
                  x->type);
    return true;
}

/* Tokens (tokens, hidden) that go to their experts or come back: they are moved, nothing is
 * computed. */
bool perf_model_moe_exchange(PerfWork *c)
{
    const PerfArg *x = &c->arg[0];
    if (x->dims.n != 2) return false;
    perf_put(c, "#num_tokens #hidden_dim 1dtype", (double)x->dims.at[0], (double)x->dims.at[1],
             x->type);
    perf_set_work(c, 0, perf_elements(&x->dims) * perf_bytes_of(c, x->type), x->type);
    return true;
}
