/*
 * stack: the software that runs a training, as data. A sheet says what the layers of a stack keep,
 * move, launch and wait for where our own engine differs, and what the stack reserves. The stack
 * NAME is the formula sheet stack-NAME (formula.h), or a file of that form. What it does not define
 * of stack.def is as in our engine. Definitions use its own options and constants, formula_inputs.c's
 * inputs, and these:
 *   tokens            tokens of a micro-batch on one rank
 *   routed, received  average rows of a rank's experts, times plan.imbalance; tokens they come from
 *   hbm_gib           memory of the GPU
 *   launch_s, sync_s  seconds to launch a kernel; seconds for the host to wait for the GPU
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
