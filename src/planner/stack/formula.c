/* formula: fills the sheet of a memory formula (primus.def) and reads its results. */
#include "planner/stack/formula.h"

#include "planner/stack/inputs.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HEAD, DOCS, CHART, FORMULAS };

static const char *const formulas[FORMULAS] = { "primus-head", "primus-docs", "primus-chart" };

/* Both files are included as code: each INPUT and DEF adds a row and declares a local variable of
 * that name, which later rows may use. */
static void fill_primus(Sheet *s, const PlanInputs *in, int formula)
{
    const bool docs = formula == DOCS, chart = formula == CHART;
#define INPUT(name, value, source)   SHEET_INPUT(s, name, source, in->name)
#define DEF(name, unit, source, ...) SHEET_DEFINE(s, name, unit, source, __VA_ARGS__)
#include "planner/stack/inputs.def"
#include "planner/stack/primus.def"
#undef INPUT
#undef DEF
}

static Status find_formula(const char *name, size_t bytes, int *out)
{
    char word[64], hint[TEXT_HINT_BYTES];
    (void)snprintf(word, sizeof word, "%.*s", (int)bytes, name);
    for (int i = 0; i < FORMULAS; i++) {
        if (strcmp(word, formulas[i]) == 0) {
            *out = i;
            return OK;
        }
    }
    return FAIL(ERR_ARG, "there is no formula %s%s", word,
                text_hint(hint, word, formulas, FORMULAS, ""));
}

/* A given value can divide by zero anywhere in the sheet, so each result is checked for being finite. */
static Status read_results(PlanFormula *f)
{
    const struct {
        const char *name;
        double *value;
    } result[] = {
        { "params_total", &f->params_total },
        { "params_rank", &f->params_rank },
        { "bytes_per_param", &f->bytes_per_param },
        { "weight_bytes", &f->weight_bytes },
        { "grad_bytes", &f->grad_bytes },
        { "main_bytes", &f->main_bytes },
        { "moment_bytes", &f->moment_bytes },
        { "total_bytes", &f->total_bytes },
        { "activation_bytes", &f->activation_bytes },
    };
    for (size_t i = 0; i < sizeof result / sizeof *result; i++) {
        *result[i].value = f->sheet.row[sheet_find(&f->sheet, result[i].name)].value;
        if (!isfinite(*result[i].value))
            return FAIL(
                ERR_ARG,
                "%s: %s is not finite: a value that is given divides by zero or is too large",
                f->sheet.name, result[i].name);
    }
    return OK;
}

/* Reads the numbers after the formula's name. The sheet has been filled once already, so all names are known. */
static Status read_settings(const char *text, Arena *a, PlanFormula *f)
{
    const char *names[SHEET_ROWS_MAX];
    for (int i = 0; i < f->sheet.n; i++) names[i] = f->sheet.row[i].name;
    return sheet_give_text(&f->given, f->sheet.name, names, f->sheet.n, text, a);
}

/* The sheet is filled twice. The first time gives the names that may be set, the second uses the values given. */
Status plan_formula(const Config *c, int64_t gpus, const char *name, Arena *a, PlanFormula *out)
{
    PlanFormula f = { .given = { .n = 0 } };
    PlanInputs in;
    Text title;
    int formula = 0;
    TRY(find_formula(name, strcspn(name, ","), &formula));
    TRY(text_init(&title, a));
    TRY(text_printf(&title, "formula %s", formulas[formula]));
    if (gpus < c->mesh_pp * c->mesh_ep)
        return FAIL(ERR_ARG,
                    "%s: %lld GPUs are fewer than mesh.pp %lld x mesh.ep %lld, give at least %lld",
                    title.data, (long long)gpus, (long long)c->mesh_pp, (long long)c->mesh_ep,
                    (long long)(c->mesh_pp * c->mesh_ep));
    TRY(plan_inputs(c, gpus, (InputTokens){ 0 }, a, &in));
    f.sheet = (Sheet){ .name = title.data };
    fill_primus(&f.sheet, &in, formula);
    TRY(read_settings(name, a, &f));
    f.sheet = (Sheet){ .name = title.data, .given = &f.given };
    fill_primus(&f.sheet, &in, formula);
    TRY(read_results(&f));
    f.sheet.given = NULL; /* it is not read again, and f moves */
    *out = f;
    return OK;
}
