/* formula: sheets of named definitions, evaluated as arithmetic, each value explainable.
 *
 * A sheet is a YAML text: `title`, `source`, `extends` (a sheet of the program, plan/formula/,
 * whose definitions it takes over and may replace) and `define`, a mapping of names to an
 * expression or to [expression, unit, source]. Their order is free: a definition is evaluated when
 * a value that is asked for needs it, once.
 *
 * Expressions: numbers, names, ( ), c ? x : y (not 0 is true), < <= > >= == !=, + -, * / % and //
 * (quotient rounded down; % has its remainder), - x, min(...), max(...), ceil(x), floor(x),
 * log2(x). Values are doubles: counts and bytes are exact below 2^53. The side of ?: that is not
 * taken is not evaluated. Inputs, numbers given by name, go before definitions of the same name, so
 * that whatever a sheet defines can be set to something else.
 *
 * Errors (ERR_ARG, one sentence with file:line:column, the expression and a caret): no expression,
 * an unknown name with the nearest, a division by zero, a logarithm of what is not above 0, a value
 * that is not finite, definitions that need each other in a circle. */
#ifndef PLAN_FORMULA_H
#define PLAN_FORMULA_H

#include "config/config.h"

enum { FORMULA_DEFS_MAX = 160, FORMULA_INPUTS_MAX = 64 };

typedef struct FormulaDef {
    const char *name, *text;
    const char *unit, *source; /* "" if not given */
    const char *file;
    int line, column; /* of the text's first character, from 1 */
    bool one_line;    /* places within the text have columns of their own */
} FormulaDef;

/* Texts live in the arena given to formula_parse. */
typedef struct FormulaSheet {
    const char *name, *title, *source;
    FormulaDef *def;
    int n;
} FormulaSheet;

typedef struct FormulaInput {
    const char *name;
    double value;
    const char *source; /* where the number is from, as in "model.hidden" */
} FormulaInput;

typedef struct FormulaInputs {
    FormulaInput at[FORMULA_INPUTS_MAX];
    int n;
} FormulaInputs;

/* A sheet of the program. ERR_ARG with the nearest name if there is none such. */
Status formula_load(FormulaSheet *s, Arena *a, const char *name);
/* The same from a YAML text; `name` stands in messages in place of a file name. Every expression is
 * checked, also those that nobody asks for. */
Status formula_parse(FormulaSheet *s, Arena *a, const char *name, const char *yaml,
                     size_t yaml_bytes);

Status formula_eval(const FormulaSheet *s, const char *name, const FormulaInputs *in, double *out);

/* Appends "name = expression = value unit [source]" and, indented below it, the names it was made
 * from, down to `depth` levels below. A name that was opened above is not opened again. */
Status formula_explain(const FormulaSheet *s, const char *name, const FormulaInputs *in, int depth,
                       Text *out);

/* Index of the input (below in->n) or in->n + index of the definition; -1: neither, ERR_ARG says so
 * with the nearest name. */
Status formula_find(const FormulaSheet *s, const FormulaInputs *in, const char *name, int *out);

/* formula_inputs: a memory formula of others (plan/formula/) for a configuration. The inputs that
 * formulas take, of pipeline rank 0 where a rank is meant:
 *   gpus pp vpp ep cp zero micro_batch batch sequence vocab hidden layers ffn mla heads kv_heads
 *   head_dim q_rank kv_rank nope_dim rope_dim v_dim qk_norm experts top_k expert_ffn shared_ffn
 *   all_dense all_moe (layers of the model), n_dense n_moe (of the rank), n_dense_recomputed
 *   n_moe_recomputed (of these, layers with recompute.pieces=[layer]).
 * Stage i of mesh.layout is on rank i mod pp; without a layout stages have as many layers each and
 * the first ones take the rest. This is Primus' rule, not the one that we train by. */
/* What a formula gives: the definitions of these names, which every sheet has. */
typedef struct PlanFormula {
    double params_total, params_rank, bytes_per_param;
    double weight_bytes, grad_bytes, main_bytes, moment_bytes;
    double activation_bytes, total_bytes;
    FormulaSheet sheet; /* with the inputs for formula_explain */
    FormulaInputs inputs;
} PlanFormula;

/* The inputs above. */
Status formula_inputs(const Config *c, int64_t gpus, Arena *a, FormulaInputs *out);
/* Adds an input, or takes the place of one of its name. */
Status formula_set(FormulaInputs *in, const FormulaInput *value);
/* Behind the first comma of text: "NAME=NUMBER,...": inputs, new or in place of old ones, of names
 * that the sheet or `in` knows. */
Status formula_settings(const FormulaSheet *s, Arena *a, const char *text, FormulaInputs *in);

/* `name` is a sheet of the program, and what its inputs and definitions shall be instead:
 * "primus-head" or "primus-head,loss_fusion=1,dp=8". ERR_ARG: no such sheet or name, with the
 * nearest; a layout of another number of stages than mesh.pp * mesh.vpp or layers than
 * model.layers; fewer GPUs than mesh.pp * mesh.ep; and what formula.h lists. */
Status plan_formula(const Config *c, int64_t gpus, const char *name, Arena *a, PlanFormula *out);

#endif
