/* perf: see perf.h. A model reads the arguments of a call, says its parameters and counts its work;
 * MODELS says which operators have which. */
#include "analyze/perf_work.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- parameters ---- */

void perf_put(PerfWork *c, const char *name, Cell value)
{
    Perf *p = c->out;
    if (p->params == PERF_PARAMS) return;
    p->name[p->params] = name;
    p->value[p->params++] = value;
}

/* A text among those of the call, which perf_model moves together. */
static const char *keep(PerfWork *c, const char *text)
{
    size_t n = strlen(text) + 1;
    if (c->used + n > sizeof c->texts) return NULL;
    char *kept = memcpy(c->texts + c->used, text, n);
    c->used += n;
    return kept;
}

void perf_put_text(PerfWork *c, const char *name, const char *text)
{
    const char *kept = keep(c, text);
    perf_put(c, name, kept == NULL ? (Cell){ 0 } : cell_text(kept));
}

static Status move_texts(PerfWork *c, Arena *a)
{
    char *kept = NULL;
    Perf *p = c->out;
    TRY(ARENA_NEW(a, c->used + 1, &kept));
    memcpy(kept, c->texts, c->used);
    for (int i = 0; i < p->params; i++) {
        Cell *v = &p->value[i];
        bool ours = v->type == CELL_TEXT && v->text >= c->texts && v->text < c->texts + c->used;
        if (ours) v->text = kept + (v->text - c->texts);
    }
    if (p->spec != NULL) p->spec = kept + (p->spec - c->texts);
    return OK;
}

void perf_put_whole(PerfWork *c, const char *name, double x)
{
    bool fits = x > -9e18 && x < 9e18;
    perf_put(c, name, fits ? cell_whole((int64_t)x) : cell_number(x));
}

/* "(16, 559)", "(1,)", "()": as Python prints a tuple. Nothing of a shape that is not there. */
void perf_put_shape(PerfWork *c, const char *name, const Shape *s)
{
    char text[PERF_DIMS_MOST * 24 + 8] = "(";
    size_t used = 1;
    for (int i = 0; i < s->n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%lld", i == 0 ? "" : ", ",
                                 (long long)s->at[i]);
    (void)snprintf(text + used, sizeof text - used, s->n == 1 ? ",)" : ")");
    if (s->n < 0)
        perf_put(c, name, (Cell){ 0 });
    else
        perf_put_text(c, name, text);
}

/* "('float', None)"; a NULL is None. */
void perf_put_types(PerfWork *c, const char *name, int n, const char *const *type)
{
    char text[256] = "(";
    size_t used = 1;
    for (int i = 0; i < n && used < sizeof text; i++) {
        const char *quote = type[i] == NULL ? "" : "'";
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%.60s%s", i == 0 ? "" : ", ",
                                 quote, type[i] == NULL ? "None" : type[i], quote);
    }
    if (used < sizeof text) (void)snprintf(text + used, sizeof text - used, ")");
    perf_put_text(c, name, text);
}

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

static const Element *element_of(const PerfWork *c, const char *type)
{
    for (size_t i = 0; i < sizeof ELEMENTS / sizeof *ELEMENTS; i++) {
        if (ELEMENTS[i].ours && c->q->compat) continue;
        if (text_word_index(ELEMENTS[i].types, type) >= 0) return &ELEMENTS[i];
    }
    return NULL;
}

double perf_bytes_of(const PerfWork *c, const char *type)
{
    const Element *e = element_of(c, type);
    if (e != NULL && strncmp(type, "short", 5) == 0) return 2;
    return e == NULL ? (double)NAN : e->bytes;
}

void perf_set_work(PerfWork *c, double flops, double bytes, const char *type)
{
    const Element *e = element_of(c, type);
    char text[32];
    c->out->flops = flops;
    c->out->bytes = bytes;
    if (c->unit == NULL || e == NULL || e->spec == NULL) return;
    bool byte = c->q->compat && strcmp(e->spec, "int8") == 0; /* TraceLens: any byte is fp8 */
    (void)snprintf(text, sizeof text, "%s_%s", c->unit, byte ? "fp8" : e->spec);
    c->out->spec = keep(c, text);
}

/* ---- arguments ---- */

Shape perf_shape_read(const char *text)
{
    static const int64_t LARGEST = (int64_t)1 << 40; /* no tensor has a larger size or stride */
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
    bool sound = false; /* each model looks at what it needs */
    TRY(op_args_read(s, c->q->args, a, arg, &c->args, &sound));
    for (int i = 0; i < OP_ARGS_MOST; i++)
        c->arg[i] = (PerfArg){ perf_shape_read(arg[i].dims), perf_shape_read(arg[i].strides),
                               arg[i].type, arg[i].value == NULL ? "" : arg[i].value };
    return OK;
}

/* ---- which operator has which ---- */

typedef struct Model {
    const char *sheet, *unit; /* unit: of the GPU that computes */
    PerfModel *work;
    const char *operators; /* with | between */
    const char *ours;      /* those that TraceLens has no model for; NULL: none */
} Model;

#define BATCH_NORMS                                                                                \
    "aten::batch_norm|aten::native_batch_norm|aten::miopen_batch_norm|aten::cudnn_batch_norm|"

static const Model MODELS[] = {
    { "GEMM", "matrix", perf_model_gemm,
      "aten::mm|aten::addmm|aten::bmm|aten::baddbmm|aten::_scaled_mm", NULL },
    { "GroupedGEMM_fwd", "matrix", perf_model_grouped_gemm,
      "primus_turbo::grouped_gemm|primus_turbo_cpp_extension::grouped_gemm|"
      "primus_turbo::grouped_gemm_impl",
      "aten::_grouped_mm" },
    { "GroupedGEMM_fwd", "matrix", perf_model_grouped_wgrad,
      "primus_turbo::grouped_gemm_variable_k|primus_turbo_cpp_extension::grouped_gemm_variable_k|"
      "primus_turbo::grouped_gemm_variable_k_impl",
      NULL },
    { "CONV_fwd", "matrix", perf_model_conv_forward, "aten::convolution", NULL },
    { "CONV_bwd", "matrix", perf_model_conv_backward, "aten::convolution_backward", NULL },
    { "SDPA_fwd", "matrix", perf_model_attention,
      "aten::_scaled_dot_product_flash_attention|aten::_scaled_dot_product_efficient_attention|"
      "aten::_scaled_dot_product_cudnn_attention|flash_attn::_flash_attn_forward|FlashAttnFunc",
      NULL },
    { "Normalization", "vector", perf_model_norm,
      BATCH_NORMS "aten::instance_norm|aten::group_norm|aten::native_group_norm|aten::layer_norm|"
                  "aten::native_layer_norm|aten::_fused_rms_norm|aten::native_batch_norm_backward|"
                  "aten::miopen_batch_norm_backward|aten::cudnn_batch_norm_backward|"
                  "aten::native_layer_norm_backward|aten::native_group_norm_backward|"
                  "aten::_fused_rms_norm_backward",
      NULL },
    { "RMSNorm_fwd", "vector", perf_model_norm, "aiter::rms_norm|aiter::rmsnorm2d_fwd_with_add_ck",
      NULL },
    { "UnaryElementwise", "vector", perf_model_unary,
      "aten::copy|aten::copy_|aten::clamp_min|aten::clamp_min_|aten::sigmoid|aten::pow|aten::silu|"
      "aten::neg|aten::rsqrt",
      "aten::cos|aten::sin|aten::exp|aten::exp_|aten::log|aten::tanh|aten::gelu|aten::relu|"
      "aten::relu_|aten::silu_|aten::sqrt|aten::abs|aten::reciprocal|aten::sigmoid_|aten::elu" },
    { "UnaryElementwise", "vector", perf_model_upsample, "aten::upsample_nearest1d", NULL },
    { "BinaryElementwise", "vector", perf_model_binary,
      "aten::add|aten::add_|aten::mul|aten::mul_|aten::div|aten::div_|aten::threshold_backward|"
      "aten::sigmoid_backward",
      "aten::sub|aten::sub_|aten::gelu_backward|aten::silu_backward|aten::tanh_backward|"
      "aten::eq|aten::lt|aten::gt|aten::maximum|aten::minimum" },
    { "Reduce_fwd", "vector", perf_model_reduction,
      "aten::mean|aten::sum|aten::max|aten::linalg_norm|aten::min",
      "aten::amax|aten::amin|aten::argmax|aten::argmin|aten::prod|aten::all|aten::any" },
    { "RoPE_fwd", "vector", perf_model_rope, "", "_C::rotary_embedding" },
    { "CrossEntropy_fwd", "vector", perf_model_cross_entropy, "", "aten::cross_entropy_loss" },
    { "SSM_fwd", "vector", perf_model_conv1d, "", "DaoAILab::_causal_conv1d_fwd_cpp" },
    { "MoE_comm_fwd", NULL, perf_model_moe_exchange, "",
      "MoEDispatch|MoECombine|FusedDispatch|FusedCombine" },
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
    PerfWork c = { .q = q, .out = out };
    *out = (Perf){ .flops = NAN, .bytes = NAN, .backward_flops = NAN, .backward_bytes = NAN };
    if (m == NULL || q->args == NULL) return OK;
    out->sheet = m->sheet;
    c.unit = m->unit;
    ArenaMark mark = arena_mark(a);
    TRY(read_args(&e->strings, &c, a));
    if (!m->work(&c)) out->sheet = NULL, out->params = 0;
    arena_release(a, mark);
    return move_texts(&c, a);
}
