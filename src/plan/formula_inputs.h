/* formula_inputs: a memory formula of others (plan/formula/) for a configuration. The inputs that
 * formulas take, of pipeline rank 0 where a rank is meant:
 *   gpus pp vpp ep cp zero micro_batch batch sequence vocab hidden layers ffn mla heads kv_heads
 *   head_dim q_rank kv_rank nope_dim rope_dim v_dim qk_norm experts top_k expert_ffn shared_ffn
 *   all_dense all_moe (layers of the model), n_dense n_moe (of the rank), n_dense_recomputed
 *   n_moe_recomputed (of these, layers with recompute.pieces=[layer]).
 * Stage i of mesh.layout is on rank i mod pp; without a layout stages have as many layers each and
 * the first ones take the rest. This is Primus' rule, not the one that we train by. */
#ifndef PLAN_FORMULA_INPUTS_H
#define PLAN_FORMULA_INPUTS_H

#include "config/config.h"
#include "plan/formula.h"

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
