/* formula: the memory formula of AMD's Primus for a configuration, to compare plans with.
 *
 * There are three versions: of Primus' code (primus-head, from primus/core/projection and figures of runs of
 * that code), of its documents (primus-docs: memory projection), and of AMD's charts of its 1T and 2T
 * models (primus-chart). The charts have bars with one decimal and no formula. Our definitions reproduce
 * all 60 bars; primus.def says which ones are derived.
 *
 * Not here: our own plan (plan.h). */
#ifndef PLANNER_STACK_FORMULA_H
#define PLANNER_STACK_FORMULA_H

#include "engine/config/config.h"
#include "planner/stack/sheet.h"

/* Results for pipeline rank 0. */
typedef struct PlanFormula {
    double params_total, params_rank, bytes_per_param;
    double weight_bytes, grad_bytes, main_bytes, moment_bytes;
    double activation_bytes, total_bytes;
    SheetGivens given;
    Sheet sheet; /* all definitions with their values */
} PlanFormula;

/* `name` is a formula, and optionally values that replace inputs and definitions: "primus-head" or
 * "primus-head,loss_fusion=1,dp=8". ERR_ARG: no such formula or name, with the nearest; a layout of
 * another number of stages than mesh.pp * mesh.vpp or layers than model.layers; fewer GPUs than mesh.pp *
 * mesh.ep; a result that is not finite. */
Status plan_formula(const Config *c, int64_t gpus, const char *name, Arena *a, PlanFormula *out);

#endif
