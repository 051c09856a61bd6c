/* perf: see perf.h. A model is a function that reads the arguments of a call, lists its parameters
 * (perf_put) and counts its work (perf_set_work). MODELS says which operators have which model. The
 * models themselves are in perf_dense.c and perf_rows.c. */
#include "traces/sheets/perf.h"
#include "traces/sheets/perf_work.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- parameters ---- */

/* Keeps a text in the call's buffer. perf_model then copies all texts to the arena at once. So
 * nothing is lost in the arena when a model gives up, as most do. NULL: the buffer is full. */
static const char *keep_text(PerfWork *c, const char *text, size_t n)
{
    if (c->used + n + 1 > sizeof c->texts) return NULL;
    char *kept = memcpy(c->texts + c->used, text, n);
    kept[n] = '\0';
    c->used += n + 1;
    return kept;
}

static Cell text_cell(PerfWork *c, const char *text)
{
    return cell_text(keep_text(c, text, strlen(text)));
}

static bool is_of_call(const PerfWork *c, const char *text)
{
    return text >= c->texts && text < c->texts + c->used;
}

/* Copies the call's texts to the arena, and moves all pointers to them. */
static Status move_texts(PerfWork *c, Arena *a)
{
    char *kept = NULL;
    Perf *p = c->out;
    TRY(ARENA_NEW(a, c->used + 1, &kept));
    memcpy(kept, c->texts, c->used);
    for (int i = 0; i < p->params; i++) {
        Cell *v = &p->value[i];
        p->name[i] = kept + (p->name[i] - c->texts);
        if (v->type == CELL_TEXT && is_of_call(c, v->text)) v->text = kept + (v->text - c->texts);
    }
    if (p->spec != NULL) p->spec = kept + (p->spec - c->texts);
    return OK;
}

/* Sizes are computed as doubles, which do not overflow, and printed as whole numbers if they
 * fit. */
static Cell whole_cell(double x)
{
    bool fits = x > -9e18 && x < 9e18;
    return fits ? cell_whole((int64_t)x) : cell_number(x);
}

/* "(16, 559)", "(1,)", "()" */
static Cell shape_cell(PerfWork *c, const Shape *s)
{
    char text[PERF_DIMS_MOST * 24 + 8] = "(";
    size_t used = 1;
    if (s == NULL || s->n < 0) return cell_none();
    for (int i = 0; i < s->n; i++)
        used = text_add(text, sizeof text, used, "%s%lld", i == 0 ? "" : ", ", (long long)s->at[i]);
    (void)text_add(text, sizeof text, used, "%s", s->n == 1 ? ",)" : ")");
    return text_cell(c, text);
}

/* "('float', None)" */
static Cell types_cell(PerfWork *c, int n, const char *const *type)
{
    char text[256] = "(";
    size_t used = 1;
    for (int i = 0; i < n; i++) {
        const char *quote = type[i] == NULL ? "" : "'";
        used = text_add(text, sizeof text, used, "%s%s%.60s%s", i == 0 ? "" : ", ", quote,
                        type[i] == NULL ? "None" : type[i], quote);
    }
    (void)text_add(text, sizeof text, used, ")");
    return text_cell(c, text);
}

/* Takes the next argument of perf_put, by the mark before its name. */
static Cell next_value(PerfWork *c, char mark, va_list *values)
{
    const char *type[3];
    switch (mark) {
    case '#': return whole_cell(va_arg(*values, double));
    case '~': return cell_number(va_arg(*values, double));
    case '?': return cell_bool(va_arg(*values, int) != 0);
    case '/': return shape_cell(c, va_arg(*values, const Shape *));
    case '"': return text_cell(c, va_arg(*values, const char *));
    default: break;
    }
    for (int i = 0; i < mark - '0'; i++) type[i] = va_arg(*values, const char *);
    return types_cell(c, mark - '0', type);
}

/* Parameters beyond PERF_PARAMS, or beyond the buffer of texts, are left out. */
void perf_put(PerfWork *c, const char *names, ...)
{
    Perf *p = c->out;
    va_list values;
    va_start(values, names);
    while (*names != '\0') {
        size_t n = strcspn(names + 1, " ");
        const char *name = keep_text(c, names + 1, n);
        const Cell value = next_value(c, *names, &values);
        if (p->params < PERF_PARAMS && name != NULL) {
            p->name[p->params] = name;
            p->value[p->params++] = value;
        }
        names += 1 + n;
        names += *names == ' ';
    }
    va_end(values);
}

/* ---- types ---- */

/* Names of types in PyTorch's traces. `spec` is the second half of a Compute Spec; without it no
 * peak of the GPU applies. */
static const PerfElement ELEMENTS[] = {
    { "double", 8, "fp64" },
    { "float", 4, "fp32" },
    { "c10::Half|half", 2, "fp16" },
    { "c10::BFloat16|bfloat16", 2, "bf16" },
    { "c10::Float8_e4m3fn|c10::Float8_e4m3fnuz|c10::Float8_e5m2|c10::Float8_e5m2fnuz", 1, "fp8" },
    { "long int|long|int64", 8, NULL },
    { "int|Scalar|scalar", 4, NULL },
    { "signed char|unsigned char", 1, "int8" },
    { "c10::Float4_e2m1fn_x2", 1, "fp4" },
    { "bool", 1, NULL },
    { "short int|short", 2, NULL },
    { NULL, 0, NULL },
};

/* Rules may have types of their own, which come first. */
static const PerfElement *element_of(const PerfWork *c, const char *type)
{
    const PerfElement *theirs = c->q->rules == NULL ? NULL : c->q->rules->elements;
    const PerfElement *const lists[] = { theirs, ELEMENTS };
    for (int i = 0; i < 2; i++) {
        for (const PerfElement *e = lists[i]; e != NULL && e->types != NULL; e++)
            if (text_word_index(e->types, type) >= 0) return e;
    }
    return NULL;
}

double perf_bytes_of(const PerfWork *c, const char *type)
{
    const PerfElement *e = element_of(c, type);
    return e == NULL ? (double)NAN : e->bytes;
}

/* The spec names a peak of the GPU: unit and type, like "matrix_bf16". */
void perf_set_work(PerfWork *c, double flops, double bytes, const char *type)
{
    const PerfElement *e = element_of(c, type);
    char text[32];
    c->out->flops = flops;
    c->out->bytes = bytes;
    if (c->unit == NULL || e == NULL || e->spec == NULL) return;
    int n = snprintf(text, sizeof text, "%s_%s", c->unit, e->spec);
    c->out->spec = keep_text(c, text, (size_t)n);
}

/* ---- arguments ---- */

Shape perf_shape_read(const char *text)
{
    static const int64_t LARGEST = (int64_t)1 << 40; /* a larger size or stride is nonsense */
    Shape s;
    s.n = op_sizes(text, s.at, PERF_DIMS_MOST);
    for (int i = 0; i < s.n; i++)
        if (s.at[i] < -LARGEST || s.at[i] > LARGEST) s.n = -1;
    return s;
}

double perf_elements(const Shape *s)
{
    double n = 1;
    for (int i = 0; i < s->n; i++) n *= (double)s->at[i];
    return n;
}

static Status read_args(const Strings *s, PerfWork *c, Arena *a)
{
    OpArg arg[OP_ARGS_MOST];
    bool sound = false; /* not asked: each model checks what it needs */
    TRY(op_args_read(s, c->q->args, a, arg, &c->args, &sound));
    for (int i = 0; i < OP_ARGS_MOST; i++)
        c->arg[i] = (PerfArg){ perf_shape_read(arg[i].dims), perf_shape_read(arg[i].strides),
                               arg[i].type, arg[i].value == NULL ? "" : arg[i].value };
    return OK;
}

/* ---- which operator has which model ---- */

/* A model, the operators that have it, and the sheet that lists them. */
typedef struct Model {
    const char *sheet, *unit; /* unit: the part of a GPU that computes it; NULL: it only moves */
    PerfModel *work;
    const char *operators; /* with | between */
} Model;

/* The names are those of PyTorch's dispatcher, of Primus-Turbo, flash-attn, AITER, vLLM, and
 * DeepEP. */
static const Model MODELS[] = {
    { "GEMM", "matrix", perf_model_gemm,
      "aten::mm|aten::addmm|aten::bmm|aten::baddbmm|aten::_scaled_mm" },
    { "GroupedGEMM_fwd", "matrix", perf_model_grouped_gemm,
      "primus_turbo::grouped_gemm|primus_turbo_cpp_extension::grouped_gemm|"
      "primus_turbo::grouped_gemm_impl|aten::_grouped_mm" },
    { "GroupedGEMM_fwd", "matrix", perf_model_grouped_wgrad,
      "primus_turbo::grouped_gemm_variable_k|primus_turbo_cpp_extension::grouped_gemm_variable_k|"
      "primus_turbo::grouped_gemm_variable_k_impl" },
    { "CONV_fwd", "matrix", perf_model_conv_forward, "aten::convolution" },
    { "CONV_bwd", "matrix", perf_model_conv_backward, "aten::convolution_backward" },
    { "SDPA_fwd", "matrix", perf_model_attention,
      "aten::_scaled_dot_product_flash_attention|aten::_scaled_dot_product_efficient_attention|"
      "aten::_scaled_dot_product_cudnn_attention|flash_attn::_flash_attn_forward|FlashAttnFunc" },
    { "Normalization", "vector", perf_model_norm,
      "aten::batch_norm|aten::native_batch_norm|aten::miopen_batch_norm|aten::cudnn_batch_norm|"
      "aten::instance_norm|aten::group_norm|aten::native_group_norm|aten::layer_norm|"
      "aten::native_layer_norm|aten::_fused_rms_norm|aten::native_batch_norm_backward|"
      "aten::miopen_batch_norm_backward|aten::cudnn_batch_norm_backward|"
      "aten::native_layer_norm_backward|aten::native_group_norm_backward|"
      "aten::_fused_rms_norm_backward" },
    { "RMSNorm_fwd", "vector", perf_model_norm,
      "aiter::rms_norm|aiter::rmsnorm2d_fwd_with_add_ck" },
    { "UnaryElementwise", "vector", perf_model_unary,
      "aten::copy|aten::copy_|aten::clamp_min|aten::clamp_min_|aten::sigmoid|aten::pow|aten::silu|"
      "aten::neg|aten::rsqrt|aten::cos|aten::sin|aten::exp|aten::exp_|aten::log|aten::tanh|"
      "aten::gelu|aten::relu|aten::relu_|aten::silu_|aten::sqrt|aten::abs|aten::reciprocal|"
      "aten::sigmoid_|aten::elu" },
    { "UnaryElementwise", "vector", perf_model_upsample, "aten::upsample_nearest1d" },
    { "BinaryElementwise", "vector", perf_model_binary,
      "aten::add|aten::add_|aten::mul|aten::mul_|aten::div|aten::div_|aten::threshold_backward|"
      "aten::sigmoid_backward|aten::sub|aten::sub_|aten::gelu_backward|aten::silu_backward|"
      "aten::tanh_backward|aten::eq|aten::lt|aten::gt|aten::maximum|aten::minimum" },
    { "Reduce_fwd", "vector", perf_model_reduction,
      "aten::mean|aten::sum|aten::max|aten::linalg_norm|aten::min|aten::amax|aten::amin|"
      "aten::argmax|aten::argmin|aten::prod|aten::all|aten::any" },
    { "RoPE_fwd", "vector", perf_model_rope, "_C::rotary_embedding" },
    { "CrossEntropy_fwd", "vector", perf_model_cross_entropy, "aten::cross_entropy_loss" },
    { "SSM_fwd", "vector", perf_model_conv1d, "DaoAILab::_causal_conv1d_fwd_cpp" },
    { "MoE_comm_fwd", NULL, perf_model_moe_exchange,
      "MoEDispatch|MoECombine|FusedDispatch|FusedCombine" },
};

static const Model *find_model(const char *name, const PerfRules *rules)
{
    const char *without = rules == NULL ? NULL : rules->without_model;
    if (without != NULL && text_word_index(without, name) >= 0) return NULL;
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (text_word_index(MODELS[i].operators, name) >= 0) return &MODELS[i];
    return NULL;
}

bool perf_has_model(const char *name, const PerfRules *rules)
{
    return find_model(name, rules) != NULL;
}

/* Most operators have no model, so arguments are read only where there is one. */
Status perf_model(const Events *e, const PerfQuery *q, Arena *a, Perf *out)
{
    const Model *m = find_model(q->name, q->rules);
    PerfWork c = { .q = q, .out = out };
    *out = (Perf){ .flops = NAN, .bytes = NAN, .backward_flops = NAN, .backward_bytes = NAN };
    if (m == NULL || q->args == NULL) return OK;
    out->sheet = m->sheet;
    c.unit = m->unit;
    /* Arguments are released; only texts that the result needs are moved to the arena. */
    ArenaMark mark = arena_mark(a);
    TRY(read_args(&e->strings, &c, a));
    if (!m->work(&c)) {
        out->sheet = NULL;
        out->params = 0;
    }
    PERF_RULE(&c, finish, &c);
    arena_release(a, mark);
    return move_texts(&c, a);
}
