/* recipe_text: see the header. The list of parameters is short however many experts and layers there
 * are: numbers in a name become stars, and names that are then equal are one line. */
#include "engine/model/recipe_text.h"

#include "engine/model/recipe.h"
#include "kernels/attention/attention_kernels.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum {
    WIDTH_STEP = 16,        /* elements, of one byte: what GPUs read at once */
    CAPABILITY_LEAST = 89,  /* NVIDIA Ada: the first with 8-bit products */
    CAPABILITY_NARROW = 90, /* Hopper: alone has kernels that keep pre-activations in 8 bits */
    CAPABILITY_MX = 100,    /* Blackwell: the first with scales of 1 x 32, and with 4 and 6 bits */
};

/* Names that differ only in numbers. */
typedef struct Pattern {
    char name[PARAM_NAME_MAX];
    int64_t n, elems;
} Pattern;

static bool is_quantised(const ModelSpec *s, const Param *p)
{
    return recipe_quantises(s, &s->layers[p->layer], p->role);
}

/* Every run of digits between two dots becomes a star. */
static void pattern_of(const char *name, char out[PARAM_NAME_MAX])
{
    size_t n = 0;
    for (const char *at = name; *at != '\0'; at++) {
        bool number = isdigit((unsigned char)*at) && at > name && at[-1] == '.';
        out[n++] = *at;
        if (number) out[n - 1] = '*';
        while (number && isdigit((unsigned char)at[1])) at++;
    }
    out[n] = '\0';
}

/* The patterns of all quantised parameters, in the order of the table. */
static Status find_patterns(const ModelSpec *s, const ParamTable *t, Arena *a, Pattern **out,
                            int *n_out)
{
    Pattern *found = NULL;
    int n = 0, at = 0;
    TRY(ARENA_NEW(a, t->n, &found));
    for (int i = 0; i < t->n; i++) {
        Pattern one = { .n = 1, .elems = param_elems(&t->at[i]) };
        if (!is_quantised(s, &t->at[i])) continue;
        pattern_of(t->at[i].name, one.name);
        for (at = 0; at < n && strcmp(found[at].name, one.name) != 0;) at++;
        if (at == n) {
            found[n++] = one;
        } else {
            found[at].n++;
            found[at].elems += one.elems;
        }
    }
    *out = found, *n_out = n;
    return OK;
}

/* What a scale belongs to, as words. */
typedef struct ScaleWords {
    const char *rows, *weight, *columns;
} ScaleWords;

static const char *recipe_names[] = { "none", "tensor", "row", "block", "mx" };

static const ScaleWords scale_words[] = {
    [RECIPE_TENSOR] = { "the tensor", "a matrix", "the tensor" },
    [RECIPE_ROW] = { "a row", "a row", "a column of a group" },
    [RECIPE_BLOCK] = { "1 x 128", "128 x 128", "128 x 1" },
    [RECIPE_MX] = { "1 x 32", "1 x 32", "32 x 1" },
};

static Status print_row(Text *out, const char *what, const char *along, const char *scale,
                        Dtype from, Dtype type, const char *kept)
{
    return text_printf(out, "            %-31s  %-7s  %-19s  %-4s  %-4s  %s\n", what, along, scale,
                       dtype_name(from), dtype_name(type), kept);
}

/* A product sums along the rows of both operands' data. Weights are read in both orientations. */
static Status print_table(const Config *c, const ModelSpec *s, Text *out)
{
    const RecipeSpec *r = &s->recipe;
    const ScaleWords *w = &scale_words[r->kind];
    const char *weights = c->mesh_zero == 3 ? "one product" : "a step";
    TRY(text_printf(out, "%d-bit       fp8.recipe=%s, scales are %s\n", dtype_bits(r->forward),
                    recipe_names[r->kind], r->pow2 ? "powers of two" : "exact (amax / largest)"));
    TRY(text_printf(out, "            %-31s  %-7s  %-19s  %-4s  %-4s  %s\n", "operand", "along",
                    "a scale for", "from", "to", "kept for"));
    TRY(print_row(out, "inputs", "width", w->rows, s->act, r->forward, "its products"));
    TRY(print_row(out, "weights", "inputs", w->weight, s->act, r->forward, weights));
    TRY(print_row(out, "weights, transposed", "outputs", w->weight, s->act, r->forward, weights));
    TRY(print_row(out, "gradients", "width", w->rows, s->act, r->gradient, "its products"));
    bool narrow = false;
    for (int i = 0; i < s->n_layers; i++)
        narrow |= s->layers[i].kind == LAYER_MOE && recipe_narrow(s, &s->layers[i]);
    if (narrow)
        TRY(text_printf(out,
                        "            experts' pre-activations wait for backward in 8 bits, a scale "
                        "for 1 x 128 (fp8.kept)\n"));
    if (r->dispatch)
        TRY(text_printf(out, "            rows go to experts in 8 bits, and columns are made from "
                             "them (fp8.dispatch)\n"));
    if (!r->weight_gradients)
        return text_printf(out, "            weight gradients are products in %s (fp8.wgrad)\n",
                           dtype_name(s->act));
    TRY(print_row(out, "inputs, for weight gradients", "tokens", w->columns, s->act, r->forward,
                  "until backward"));
    return print_row(out, "gradients, for weight gradients", "tokens", w->columns, s->act,
                     r->gradient, "backward");
}

static Status print_patterns(const ModelSpec *s, const ParamTable *t, bool attention, Arena *a,
                             Text *out)
{
    Pattern *found = NULL;
    int n = 0;
    int64_t elems = 0;
    char share[32], total[32];
    TRY(find_patterns(s, t, a, &found, &n));
    for (int i = 0; i < n; i++) elems += found[i].elems;
    TRY(text_printf(out,
                    "            not quantised: embedding, %srouter, norms, biases, %smain "
                    "weights, sums of gradients\n"
                    "            quantised: %s parameters of %s\n",
                    s->recipe.head ? "" : "head, ", attention ? "" : "attention itself, ",
                    text_thousands(share, elems), text_thousands(total, t->total)));
    for (int i = 0; i < n; i++)
        TRY(text_printf(out, "            %7" PRId64 "  %s\n", found[i].n, found[i].name));
    return OK;
}

static Status print_attention(const Config *c, Text *out)
{
    const char *act = c->run_compute == COMPUTE_BF16 ? "bf16" : "f32";
    return text_printf(out,
                       "8-bit       fp8.attention: forward multiplies in e4m3, with a scale (a "
                       "power of two) for a row of q, for 128 keys of k and of v; backward in %s\n",
                       act);
}

/* Of the whole model: what one rank has of it does not matter here. */
Status recipe_print(const Config *c, Arena *a, Text *out)
{
    Config whole = *c;
    ModelSpec spec;
    ParamTable table;
    if (c->fp8_attention) TRY(print_attention(c, out));
    if (c->fp8_recipe == RECIPE_NONE) return OK;
    config_alone(&whole);
    TRY(spec_build(&whole, a, &spec));
    TRY(params_build(&spec, 0, NULL, a, &table));
    TRY(print_table(c, &spec, out));
    return print_patterns(&spec, &table, c->fp8_attention, a, out);
}

/* The first parameter of the matrix. */
static const char *name_of(const ParamTable *t, const Matrix *m)
{
    for (int i = 0; i < t->n; i++) {
        if (t->at[i].layer == m->layer && t->at[i].role == m->role) return t->at[i].name;
    }
    return "?";
}

static Status check_widths(const ModelSpec *s, const ParamTable *t)
{
    for (int i = 0; i < t->n_matrices; i++) {
        const Matrix *m = &t->matrix[i];
        int64_t rows = m->dim[m->rank - 2], cols = m->dim[m->rank - 1];
        if (!recipe_quantises(s, &s->layers[m->layer], m->role)) continue;
        if (rows % WIDTH_STEP == 0 && cols % WIDTH_STEP == 0) continue;
        return FAIL(ERR_ARG,
                    "%s is in a matrix of %lld x %lld: 8-bit products on a GPU need multiples of "
                    "%d on both sides; change the width, %s, or set run.device=cpu",
                    name_of(t, m), (long long)rows, (long long)cols, WIDTH_STEP,
                    m->role == ROLE_HEAD ? "set fp8.head=false"
                                         : "leave its layer out of fp8.layers");
    }
    return OK;
}

static Status check_attention(const ModelSpec *s, const RecipeGpu *gpu)
{
    KernelDevice device = { gpu->vendor, gpu->capability, .lacks_code = gpu->lacks_code };
    KernelWhy why;
    for (int i = 0; s->recipe.attention && i < s->n_layers; i++) {
        const LayerSpec *l = &s->layers[i];
        if (l->kind != LAYER_ATTENTION) continue;
        const AttentionSpec *a = &l->as.attention;
        int64_t qk = attention_qk_dim(a), v = attention_v_dim(a);
        AttentionFwd call = { .q = { NULL, s->act, 4, { 1, 1, a->heads, qk } },
                              .k = { NULL, s->act, 4, { 1, 1, a->kv_heads, qk } },
                              .v = { NULL, s->act, 4, { 1, 1, a->kv_heads, v } },
                              .o.dtype = s->act };
        if (kernel_can(&attention_e4m3_kernels.row[0], &device, &call, &why)) continue;
        return FAIL(ERR_UNSUPPORTED,
                    "fp8.attention: %s has no kernel for attention of layer %d (%s): %s; "
                    "run.device=cpu emulates it, fp8.attention=false does without",
                    gpu->name, l->block, a->kind == ATTENTION_MLA ? "mla" : "gqa", why.text);
    }
    return OK;
}

/* Plans count memory for Hopper's kernels. A GPU without them would need more for the same call. */
static Status check_kept(const ModelSpec *s, const RecipeGpu *gpu)
{
    bool is_made = gpu->vendor == VENDOR_NVIDIA && gpu->capability == CAPABILITY_NARROW;
    for (int i = 0; i < s->n_layers && (!is_made || gpu->lacks_code != NULL); i++) {
        if (s->layers[i].kind != LAYER_MOE || !recipe_narrow(s, &s->layers[i])) continue;
        if (is_made)
            return FAIL(ERR_UNSUPPORTED, "fp8.kept=fp8: %s: %s; or set fp8.kept=plain", gpu->name,
                        gpu->lacks_code);
        return FAIL(ERR_UNSUPPORTED,
                    "fp8.kept=fp8: %s has compute capability %d.%d, the kernels that keep "
                    "experts' pre-activations in 8 bits are for %d.%d alone: set fp8.kept=plain",
                    gpu->name, gpu->capability / 10, gpu->capability % 10, CAPABILITY_NARROW / 10,
                    CAPABILITY_NARROW % 10);
    }
    return OK;
}

static Status check_capability(const ModelSpec *s, const RecipeGpu *gpu)
{
    if (s->recipe.kind == RECIPE_NONE) return OK;
    if (s->recipe.kind == RECIPE_MX)
        return FAIL(ERR_UNSUPPORTED,
                    "fp8.recipe=mx (%s) has no kernel on a GPU: hardware has it from compute "
                    "capability %d.%d on, %s has %d.%d; run.device=cpu emulates it, "
                    "fp8.recipe=block is 8-bit",
                    dtype_name(s->recipe.forward), CAPABILITY_MX / 10, CAPABILITY_MX % 10,
                    gpu->name, gpu->capability / 10, gpu->capability % 10);
    if (gpu->capability < CAPABILITY_LEAST)
        return FAIL(ERR_UNSUPPORTED,
                    "fp8.recipe=%s: %s has compute capability %d.%d, 8-bit products need "
                    "%d.%d; run.device=cpu emulates them, fp8.recipe=none does without",
                    recipe_names[s->recipe.kind], gpu->name, gpu->capability / 10,
                    gpu->capability % 10, CAPABILITY_LEAST / 10, CAPABILITY_LEAST % 10);
    return check_kept(s, gpu);
}

Status recipe_check_shapes(const ModelSpec *s, const ParamTable *t, const RecipeGpu *gpu)
{
    TRY(check_attention(s, gpu));
    return s->recipe.kind == RECIPE_NONE ? OK : check_widths(s, t);
}

Status recipe_check_tokens(const ModelSpec *s, int64_t tokens)
{
    const RecipeSpec *r = &s->recipe;
    if (r->kind == RECIPE_NONE || !r->weight_gradients || tokens % WIDTH_STEP == 0) return OK;
    return FAIL(ERR_ARG,
                "a micro-batch has %lld tokens on a rank (train.micro_batch x data.sequence / "
                "mesh.cp / mesh.tp): 8-bit weight gradients on a GPU need a multiple of %d; or set "
                "fp8.wgrad=bf16",
                (long long)tokens, WIDTH_STEP);
}

Status recipe_check_gpu(const ModelSpec *s, const ParamTable *t, const RecipeGpu *gpu,
                        int64_t tokens)
{
    TRY(check_capability(s, gpu));
    TRY(recipe_check_shapes(s, t, gpu));
    return recipe_check_tokens(s, tokens);
}
