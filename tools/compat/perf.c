/* compat/perf: how TraceLens counts the work of operators where it differs from perf.h. It
 * overlooks some biases, halves a causal mask, and takes most types as two bytes. All other
 * formulas are ours. docs/reference/trace.md lists the differences. */
#include "compat/compat.h"
#include "traces/sheets/perf_work.h"

#include <math.h>
#include <stdlib.h>

/* Types whose size it does not know. Any byte is fp8. */
static const PerfElement ELEMENTS[] = {
    { "bool|short int|short", NAN, NULL },
    { "signed char|unsigned char", 1, "fp8" },
    { NULL, 0, NULL },
};

/* A scaled product has a bias if it has three arguments. Grouped weight gradients write one matrix,
 * and results of grouped products have the weights' type. */
static void tracelens_product(const PerfWork *c, PerfProduct *p)
{
    const PerfArg *a = c->arg;
    if (text_ends(c->q->name, "_scaled_mm"))
        p->bias = c->args == 3;
    else if (strcmp(c->out->sheet, "GEMM") == 0 && strcmp(a[p->row].type, a[p->row + 1].type) != 0)
        p->in = NAN;
    else if (strstr(c->q->name, "variable_k") != NULL)
        p->weights = 1;
    else if (strcmp(c->out->sheet, "GroupedGEMM_fwd") == 0)
        p->out = perf_bytes_of(c, a[1].type);
}

/* A causal mask halves the pairs. With different lengths of queries and keys the work is unknown.
 * Elements have two bytes. */
static void tracelens_attention(PerfAttention *t)
{
    const double nq = t->queries, nk = t->keys;
    t->bytes = 2;
    if (!t->causal) return;
    t->pairs = nq == nk ? nq * nk / 2 : (double)NAN;
    t->reduced /= 2;
}

/* Both gradients count, whatever the mask says. A bias counts if there are three arguments. */
static void tracelens_conv(const PerfWork *c, PerfConv *v)
{
    if (strcmp(c->out->sheet, "CONV_bwd") == 0) {
        v->parts = 2;
        v->adds = false;
    } else {
        v->adds = v->bias = c->args == 3;
    }
}

/* A result has one element, whatever dimensions are reduced. */
static void tracelens_reduction(double *out_elements) { *out_elements = 1; }

static bool is_group_gradient(const PerfWork *c)
{
    return strcmp(c->q->name, "aten::native_group_norm_backward") == 0;
}

/* Weights, biases and training are taken for granted, except where a mask says otherwise. */
static void tracelens_norm(const PerfWork *c, PerfNorm *m)
{
    const bool layer = m->backward && !m->rms && m->layer;
    bool mask[3] = { false };
    if (m->has_mask) memcpy(mask, m->mask, sizeof mask);
    m->affine = !layer || mask[1];
    m->bias = !m->rms && (!layer || mask[2]);
    m->training = !m->rms && (!m->backward || m->has_mask);
    memcpy(m->mask, mask, sizeof mask);
    if (m->backward && !m->has_mask) m->mask[0] = true;
    m->written = 0;
    if (!is_group_gradient(c)) return;
    double groups = strtod(c->arg[8].concrete, NULL);
    if (groups > 0) m->channels /= groups;
}

/* Parameters that it prints differently. */
static void tracelens_finish(PerfWork *c)
{
    static const char BY_SHAPE[] = "aten::native_batch_norm_backward|"
                                   "aten::miopen_batch_norm_backward|"
                                   "aten::cudnn_batch_norm_backward"; /* read no mask */
    Perf *p = c->out;
    for (int i = 0; i < p->params; i++) {
        Cell *v = &p->value[i];
        if (strcmp(p->name[i], "bias") == 0 && strcmp(p->sheet, "CONV_bwd") == 0)
            *v = cell_text("[]");
        if (strcmp(p->name[i], "output_mask") == 0 && text_word_index(BY_SHAPE, c->q->name) >= 0)
            *v = cell_text("[True]");
        if (strcmp(p->name[i], "num_channels") == 0 && is_group_gradient(c))
            *v = cell_number(cell_value(v));
    }
}

const PerfRules compat_perf_rules = {
    .without_model =
        "aten::_grouped_mm|aten::cos|aten::sin|aten::exp|aten::exp_|aten::log|aten::tanh|"
        "aten::gelu|aten::relu|aten::relu_|aten::silu_|aten::sqrt|aten::abs|aten::reciprocal|"
        "aten::sigmoid_|aten::elu|aten::sub|aten::sub_|aten::gelu_backward|aten::silu_backward|"
        "aten::tanh_backward|aten::eq|aten::lt|aten::gt|aten::maximum|aten::minimum|aten::amax|"
        "aten::amin|aten::argmax|aten::argmin|aten::prod|aten::all|aten::any|"
        "_C::rotary_embedding|aten::cross_entropy_loss|DaoAILab::_causal_conv1d_fwd_cpp|"
        "MoEDispatch|MoECombine|FusedDispatch|FusedCombine",
    .elements = ELEMENTS,
    .product = tracelens_product,
    .attention = tracelens_attention,
    .conv = tracelens_conv,
    .reduction = tracelens_reduction,
    .norm = tracelens_norm,
    .finish = tracelens_finish,
};
