/*
 * stack: the software that runs a training, as data: what its layers keep of a micro-batch, move,
 * launch and wait for beside what our own do, and what it reserves.
 *
 * A stack NAME is the formula sheet stack-NAME (formula.h), or a file of that form. It may define
 * the names of stack.def in terms of formula_inputs.c's and tokens          of a micro-batch on one
 * rank routed          rows of the experts of one rank, on average times plan.imbalance received
 * tokens that they come from hbm_gib, launch_s, sync_s   of the hardware and of options and fitted
 * constants of its own. What it does not define is as our engine has it: the sheet `switchyard` is
 * nearly empty, because ours is counted.
 */
#ifndef PLAN_STACK_H
#define PLAN_STACK_H

#include "plan/formula.h"
#include "plan/hardware.h"

typedef enum StackName {
#define STACK(name, fallback, help) STACK_##name,
#include "plan/stack.def"
#undef STACK
    STACK_COUNT
} StackName;

extern const char *const stack_names[STACK_COUNT];

typedef struct PlanStack {
    FormulaSheet sheet;
    FormulaInputs settings; /* given behind the name */
    bool has[STACK_COUNT];
} PlanStack;

typedef struct StackValues {
    double at[STACK_COUNT];
} StackValues;

/* `source`: a stack of the program or a file, and what its names shall be instead:
 * "primus,deepep=1". ERR_ARG or ERR_FORMAT as formula.h says. */
Status stack_load(PlanStack *s, Arena *a, const char *source);

/* Is `name` an option of the sheet that `source` did not set? */
bool stack_offers(const PlanStack *s, const char *name);

/* The stack's settings join the inputs. */
Status stack_settings(const PlanStack *s, FormulaInputs *in);
/* What the values say of a kind of layer (LayerDesc.name): WHAT_LAYER; where there is no such name,
 * `otherwise`. */
double stack_of_layer(const StackValues *v, const char *what, const char *layer, double otherwise);
/* All values for the inputs; ERR_ARG names a value
 * that cannot be (a share outside 0 to 1, negative bytes). */
Status stack_values(const PlanStack *s, const FormulaInputs *in, StackValues *out);

#endif
