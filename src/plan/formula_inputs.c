#include "plan/formula.h"

#include "schedule/layout.h"

#include <stddef.h>
#include <string.h>

/* Numbers of layers: of the model, of rank 0, of those recomputed; [0] dense, [1] MoE. */
typedef struct Layers {
    int64_t all[2], rank[2], recomputed[2];
} Layers;

static bool recomputes(const Config *c, int64_t layer)
{
    return config_has_text(&c->recompute_pieces, "layer") &&
           config_has_int(&c->recompute_layers, layer);
}

static Status count_layers(const Config *c, Arena *a, Layers *n)
{
    Layout layout;
    int stages = (int)(c->mesh_pp * c->mesh_vpp), layers = (int)c->model_layers;
    TRY(*c->mesh_layout == '\0' ? layout_even(stages, layers, a, &layout)
                                : layout_parse(c->mesh_layout, stages, layers, a, &layout));
    int64_t experts = config_moe_layers(c);
    *n = (Layers){ .all = { c->model_layers - experts, experts } };
    for (int64_t i = 0; i < stages; i += c->mesh_pp) {
        const LayoutStage *stage = &layout.stage[i];
        for (int l = stage->first; l < stage->first + stage->layers; l++) {
            int moe = config_has_experts(c, l);
            n->rank[moe]++;
            n->recomputed[moe] += recomputes(c, l);
        }
    }
    return OK;
}

static void fill(const Config *c, int64_t gpus, const Layers *n, FormulaInputs *in)
{
    bool moe = n->all[1] > 0;
    const FormulaInput all[] = {
        { "gpus", (double)gpus, "number of GPUs" },
#define INPUT(name, section, row) { #name, (double)c->section##_##row, #section "." #row }
        INPUT(pp, mesh, pp),
        INPUT(vpp, mesh, vpp),
        INPUT(ep, mesh, ep),
        INPUT(cp, mesh, cp),
        INPUT(zero, mesh, zero),
        INPUT(micro_batch, train, micro_batch),
        INPUT(batch, train, batch),
        INPUT(sequence, data, sequence),
        INPUT(vocab, model, vocab),
        INPUT(hidden, model, hidden),
        INPUT(layers, model, layers),
        INPUT(ffn, model, ffn),
        INPUT(heads, attention, heads),
        INPUT(kv_heads, attention, kv_heads),
        INPUT(head_dim, attention, head_dim),
        INPUT(q_rank, attention, q_rank),
        INPUT(kv_rank, attention, kv_rank),
        INPUT(nope_dim, attention, nope_dim),
        INPUT(rope_dim, attention, rope_dim),
        INPUT(v_dim, attention, v_dim),
        INPUT(experts, moe, experts),
        INPUT(top_k, moe, top_k),
        INPUT(expert_ffn, moe, ffn),
#undef INPUT
        { "shared_ffn", moe ? (double)(c->moe_shared * c->moe_ffn) : 0, "moe.shared x moe.ffn" },
        { "mla", c->attention_kind == ATTENTION_MLA, "attention.kind" },
        { "qk_norm", c->attention_kind == ATTENTION_MLA || c->attention_qk_norm != QK_NORM_NONE,
          "attention.qk_norm; mla normalises its latents" },
        { "all_dense", (double)n->all[0], "model.layers without experts" },
        { "all_moe", (double)n->all[1], "model.layers with experts" },
        { "n_dense", (double)n->rank[0], "dense layers of rank 0" },
        { "n_moe", (double)n->rank[1], "MoE layers of rank 0" },
        { "n_dense_recomputed", (double)n->recomputed[0], "recompute.layers of rank 0" },
        { "n_moe_recomputed", (double)n->recomputed[1], "recompute.layers of rank 0" }
    };
    in->n = sizeof all / sizeof *all;
    memcpy(in->at, all, sizeof all);
}

Status formula_set(FormulaInputs *in, const FormulaInput *value)
{
    int i = 0;
    while (i < in->n && strcmp(in->at[i].name, value->name) != 0) i++;
    if (i == FORMULA_INPUTS_MAX) return FAIL(ERR_ARG, "formula: more than %d inputs", i);
    if (i == in->n) in->n++;
    in->at[i] = *value;
    return OK;
}

/* ",NAME=NUMBER..." behind a sheet's name: inputs of these names, new or in place of old ones. */
Status formula_settings(const FormulaSheet *s, Arena *a, const char *text, FormulaInputs *in)
{
    const char *at = text + strcspn(text, ",");
    while (*at == ',') {
        FormulaDef value = { .file = "--formula", .line = 1, .one_line = true };
        FormulaSheet one = { .name = "--formula", .def = &value, .n = 1 };
        const char *name = at + 1, *end = name + strcspn(name, ",");
        size_t n = strcspn(name, "=,");
        int i = 0;
        if (name[n] != '=')
            return FAIL(ERR_ARG, "formula %s: %.60s is no NAME=NUMBER", s->name, name);
        TRY(arena_text(a, name, n, &value.name));
        TRY(arena_text(a, name + n + 1, (size_t)(end - name) - n - 1, &value.text));
        value.column = (int)(name + n + 1 - text) + 1;
        TRY(formula_find(s, in, value.name, &i));
        FormulaInput new = { .name = value.name, .source = "given" };
        TRY(formula_eval(&one, value.name, &(FormulaInputs){ 0 }, &new.value));
        TRY(formula_set(in, &new));
        at = end;
    }
    return OK;
}

static Status fill_results(PlanFormula *f)
{
    static const char *const names[] = { "params_total", "params_rank",      "bytes_per_param",
                                         "weight_bytes", "grad_bytes",       "main_bytes",
                                         "moment_bytes", "activation_bytes", "total_bytes" };
    double *const values[] = { &f->params_total, &f->params_rank,      &f->bytes_per_param,
                               &f->weight_bytes, &f->grad_bytes,       &f->main_bytes,
                               &f->moment_bytes, &f->activation_bytes, &f->total_bytes };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TRY(formula_eval(&f->sheet, names[i], &f->inputs, values[i]));
    return OK;
}

Status formula_inputs(const Config *c, int64_t gpus, Arena *a, FormulaInputs *out)
{
    Layers n;
    TRY(count_layers(c, a, &n));
    fill(c, gpus, &n, out);
    return OK;
}

Status plan_formula(const Config *c, int64_t gpus, const char *name, Arena *a, PlanFormula *out)
{
    PlanFormula f = { 0 };
    const char *sheet = NULL;
    size_t length = strcspn(name, ",");
    TRY(arena_text(a, name, length, &sheet));
    TRY(formula_load(&f.sheet, a, sheet));
    if (gpus < c->mesh_pp * c->mesh_ep)
        return FAIL(ERR_ARG,
                    "formula %s: %lld GPUs are fewer than mesh.pp %lld x mesh.ep %lld, give at "
                    "least %lld",
                    sheet, (long long)gpus, (long long)c->mesh_pp, (long long)c->mesh_ep,
                    (long long)(c->mesh_pp * c->mesh_ep));
    TRY(formula_inputs(c, gpus, a, &f.inputs));
    TRY(formula_settings(&f.sheet, a, name, &f.inputs));
    TRY(fill_results(&f));
    *out = f;
    return OK;
}
