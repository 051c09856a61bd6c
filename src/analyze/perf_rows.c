/* perf_rows: what goes over its tensors once: element by element, reductions, normalizations. */
#include "analyze/perf_work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- element by element ---- */

static const Shape NO_SHAPE = { .n = -1 };

bool perf_model_unary(PerfWork *c)
{
    const PerfArg *in = &c->arg[0], *out = &c->arg[1];
    if (c->args < 1 || in->dims.n < 0) return false;
    bool given = c->args > 1 && perf_is_tensor(out);
    double n = perf_elements(&in->dims);
    perf_put_shape(c, "op_shape", &in->dims);
    PERF_PUT_TYPES(c, "dtype_in_out", in->type, given ? out->type : NULL);
    perf_put_shape(c, "stride_input", &in->strides);
    perf_put_shape(c, "stride_output", given ? &out->strides : &NO_SHAPE);
    perf_set_work(
        c, n, n * perf_bytes_of(c, in->type) + n * perf_bytes_of(c, given ? out->type : in->type),
        in->type);
    return true;
}

bool perf_model_upsample(PerfWork *c)
{
    const PerfArg *in = &c->arg[0];
    Shape size = perf_shape_read(c->arg[1].concrete), out = in->dims;
    if (out.n < 3 || size.n != out.n - 2) return false;
    for (int i = 0; i < size.n; i++) out.at[i + 2] = size.at[i];
    double each = perf_bytes_of(c, in->type), n = perf_elements(&out);
    perf_put_shape(c, "input_shape", &in->dims);
    perf_put_shape(c, "output_shape", &out);
    perf_put_shape(c, "op_shape", &out);
    PERF_PUT_TYPES(c, "dtype_in_out", in->type, in->type);
    perf_put_shape(c, "stride_input", &in->strides);
    perf_put(c, "stride_output", cell_text("None"));
    perf_set_work(c, n, perf_elements(&in->dims) * each + n * each, in->type);
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

bool perf_model_binary(PerfWork *c)
{
    const PerfArg *a = &c->arg[0], *b = a + 1, *out = a + 2;
    if (c->args < 2 || a->dims.n < 0 || b->dims.n < 0) return false;
    bool given = c->args > 2 && perf_is_tensor(out);
    double n = broadcast_elements(&a->dims, &b->dims);
    double in1 = perf_bytes_of(c, a->type), in2 = perf_bytes_of(c, b->type),
           wider = in1 > in2 ? in1 : in2;
    perf_put_shape(c, "shape_in1", &a->dims);
    perf_put_shape(c, "shape_in2", &b->dims);
    PERF_PUT_TYPES(c, "dtype_in1_in2_out", a->type, b->type, given ? out->type : NULL);
    perf_put_shape(c, "stride_input1", &a->strides);
    perf_put_shape(c, "stride_input2", &b->strides);
    perf_put_shape(c, "stride_output", given ? &out->strides : &NO_SHAPE);
    double each = given                                    ? perf_bytes_of(c, out->type)
                  : perf_is_tensor(a) && perf_is_tensor(b) ? wider
                                                           : in1;
    perf_set_work(c, n, perf_elements(&a->dims) * in1 + perf_elements(&b->dims) * in2 + n * each,
                  a->type);
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

bool perf_model_reduction(PerfWork *c)
{
    const PerfArg *in = &c->arg[0];
    bool norm = strcmp(c->q->name, "aten::linalg_norm") == 0;
    const char *dims = c->arg[norm ? 2 : 1].concrete;
    if (c->args < 1 || in->dims.n < 0) return false;
    /* A max with a second tensor takes the greater of each pair. */
    bool pairwise = c->args == 2 && perf_is_tensor(&c->arg[1]);
    double n = perf_elements(&in->dims), each = perf_bytes_of(c, in->type);
    double out = c->q->compat ? 1 : pairwise ? n : reduced(&in->dims, dims);
    perf_put_whole(c, "num_input_elems", n);
    perf_put_whole(c, "num_output_elems", out);
    PERF_PUT_TYPES(c, "dtype_in_out", in->type, NULL);
    perf_put_text(c, "reduce_type", norm ? "norm" : c->q->name + strlen("aten::"));
    perf_set_work(c, n, n * each + out * each, in->type);
    if (strcmp(c->q->name, "aten::mean") == 0 || strcmp(c->q->name, "aten::sum") == 0) {
        c->out->backward_sheet = "Reduce_bwd";
        c->out->backward_flops = n;
        c->out->backward_bytes = n * each + out * each;
    }
    return true;
}

/* ---- normalization: n elements, C of them have their own weight, or are one channel ---- */

typedef struct NormArgs {
    const char *names; /* with | between */
    enum { CHANNELS_SHAPE, CHANNELS_LIST, CHANNELS_WEIGHT, CHANNELS_GROUP } channels;
    bool backward, rms;
    int input, weight, bias, training, mask; /* places; -1: it has none */
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

typedef struct Norm {
    const NormArgs *from;
    const char *type;
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

static bool norm_channels(const PerfWork *c, Norm *m)
{
    const PerfArg *x = &c->arg[m->from->input];
    Shape list = perf_shape_read(c->arg[m->from->input + 1].concrete);
    switch (m->from->channels) {
    case CHANNELS_SHAPE: m->channels = x->dims.n > 1 ? (double)x->dims.at[1] : 0; break;
    case CHANNELS_LIST: m->channels = list.n > 0 ? perf_elements(&list) : 0; break;
    case CHANNELS_WEIGHT: m->channels = perf_elements(&c->arg[m->from->weight].dims); break;
    case CHANNELS_GROUP: {
        double groups = strtod(c->arg[8].concrete, NULL);
        double channels = strtod(c->arg[6].concrete, NULL);
        m->channels = c->q->compat && groups > 0 ? channels / groups : channels;
        break;
    }
    }
    return x->dims.n > 0 && m->channels > 0;
}

/* What TraceLens takes for granted: weights, biases and training, of what a mask is not about. */
static void norm_flags_compat(const PerfWork *c, Norm *m)
{
    bool has_mask = m->from->mask >= 0;
    bool layer = m->from->backward && !m->from->rms && m->from->channels == CHANNELS_LIST;
    m->affine = !layer || m->mask[1];
    m->bias = !m->from->rms && (!layer || m->mask[2]);
    m->training = !m->from->rms && (!m->from->backward || has_mask);
    if (m->from->backward && !has_mask) m->mask[0] = true;
    (void)c;
}

static void norm_flags(const PerfWork *c, Norm *m)
{
    const NormArgs *f = m->from;
    const PerfArg *a = c->arg;
    bool weight = f->weight >= 0 && perf_is_tensor(&a[f->weight]);
    m->affine = weight;
    m->bias = f->bias >= 0 ? perf_is_tensor(&a[f->bias]) : f->backward && !f->rms && weight;
    m->training = f->training >= 0 ? perf_is_true(a[f->training].concrete) : !f->rms;
    if (f->backward && f->mask < 0) m->mask[0] = true, m->mask[1] = m->mask[2] = weight;
}

static void norm_forward_work(PerfWork *c, const Norm *m)
{
    double n = m->n, channels = m->channels;
    bool add = strstr(c->q->name, "with_add") != NULL;
    if (m->from->rms) {
        double rows = n / channels;
        perf_set_work(c, rows * (2 * channels + 2) + n * (m->affine ? 2 : 1) + (add ? n : 0),
                      n * (add ? 4 : 2) * m->each + (m->affine ? channels * m->each : 0), m->type);
        return;
    }
    double own = 2 + (double)m->affine + (double)m->bias + (m->training ? 2 : 0);
    perf_set_work(c, 2 * n + 6 * channels + (m->training ? 3 * n : 0),
                  n * m->each + n * m->each + channels * m->each * own, m->type);
}

static void norm_backward_work(PerfWork *c, const Norm *m)
{
    double n = m->n, channels = m->channels;
    if (m->from->rms) {
        bool weight = m->mask[1] && m->affine;
        double dx = m->mask[0] ? 6 * n : 0, dw = weight ? n + (n / channels > 1 ? n : 0) : 0;
        perf_set_work(c, (m->affine ? n : 0) + n + dx + dw,
                      n * m->each + 2 * n * m->each + 2 * channels * m->each, m->type);
        return;
    }
    double dx = !m->mask[0] ? 2 * n : m->training ? 5 * n : 0;
    double own = (double)m->training + (double)m->affine +
                 (m->training ? (double)m->affine + (double)m->bias : 0);
    if (!c->q->compat && !m->training) own += (double)m->mask[1] + (double)m->mask[2];
    perf_set_work(c, 4 * n + dx + (m->training ? 0 : 3 * channels),
                  n * m->each + n * m->each * (m->mask[0] && m->training ? 2 : 1) +
                      channels * m->each * own,
                  m->type);
}

bool perf_model_norm(PerfWork *c)
{
    Norm m = { .from = NORMS };
    while (text_word_index(m.from->names, c->q->name) < 0) m.from++;
    const NormArgs *f = m.from;
    const PerfArg *x = &c->arg[f->input];
    const char *mask = f->mask < 0 ? "" : c->arg[f->mask].concrete;
    if (!norm_channels(c, &m)) return false;
    read_mask(*mask == '\0' ? NULL : mask, m.mask);
    (c->q->compat ? norm_flags_compat : norm_flags)(c, &m);
    m.n = perf_elements(&x->dims);
    m.type = x->type;
    m.each = perf_bytes_of(c, x->type);
    perf_put_shape(c, "op_shape", &x->dims);
    PERF_PUT_TYPES(c, "dtype_in_out", x->type, NULL);
    perf_put_shape(c, "stride_input", &x->strides);
    perf_put(c, "stride_output", (Cell){ 0 });
    if (f->channels == CHANNELS_GROUP && c->q->compat)
        perf_put(c, "num_channels", cell_number(m.channels));
    else
        perf_put_whole(c, "num_channels", m.channels);
    perf_put(c, "has_bias", cell_bool(m.bias));
    perf_put(c, "is_affine", cell_bool(m.affine));
    perf_put(c, "is_training", cell_bool(m.training));
    if (f->backward) {
        bool first = c->q->compat && f->channels == CHANNELS_SHAPE; /* it reads no further */
        perf_put_text(c, "output_mask", first || *mask == '\0' ? "[True]" : mask);
        norm_backward_work(c, &m);
    } else {
        norm_forward_work(c, &m);
    }
    return true;
}

/* ---- tokens ---- */

/* Rotary embedding of queries and keys: 3 operations an element, each read and written. */
bool perf_model_rope(PerfWork *c)
{
    const PerfArg *q = &c->arg[1], *k = &c->arg[2];
    if (!perf_is_tensor(q) || !perf_is_tensor(k)) return false;
    double n = perf_elements(&q->dims) + perf_elements(&k->dims);
    perf_put_shape(c, "query_shape", &q->dims);
    perf_put_shape(c, "key_shape", &k->dims);
    PERF_PUT_TYPES(c, "dtype", q->type, k->type);
    perf_set_work(c, 3 * n, 2 * n * perf_bytes_of(c, q->type), q->type);
    return true;
}

/* Logits (B, V) and targets (B): 5 operations a logit; a loss in f32 and a target of 8 bytes a row. */
bool perf_model_cross_entropy(PerfWork *c)
{
    const PerfArg *x = &c->arg[0];
    if (x->dims.n != 2) return false;
    double rows = (double)x->dims.at[0], words = (double)x->dims.at[1];
    perf_put_whole(c, "B", rows);
    perf_put_whole(c, "V", words);
    PERF_PUT_TYPES(c, "dtype", x->type);
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
    perf_put_whole(c, "B", (double)x->dims.at[0]);
    perf_put_whole(c, "C", (double)x->dims.at[1]);
    perf_put_whole(c, "L", (double)x->dims.at[2]);
    perf_put_whole(c, "k", k);
    PERF_PUT_TYPES(c, "dtype", x->type, w->type);
    perf_set_work(c, 2 * n * k, (2 * n + perf_elements(&w->dims)) * perf_bytes_of(c, x->type),
                  x->type);
    return true;
}

/* Tokens (tokens, hidden) that go to their experts, or come back: moved, not worked on. */
bool perf_model_moe_exchange(PerfWork *c)
{
    const PerfArg *x = &c->arg[0];
    if (x->dims.n != 2) return false;
    perf_put_whole(c, "num_tokens", (double)x->dims.at[0]);
    perf_put_whole(c, "hidden_dim", (double)x->dims.at[1]);
    PERF_PUT_TYPES(c, "dtype", x->type);
    perf_set_work(c, 0, perf_elements(&x->dims) * perf_bytes_of(c, x->type), x->type);
    return true;
}
