/*
 * stack: the software that runs a training, as numbers: what its layers keep, move, launch and wait for
 * where our own engine differs, and what it reserves. stack.def lists the numbers; what a stack does not
 * define of them is as in our engine.
 *
 * There are `switchyard`, `primus` and `torchtitan`, computed from inputs.h's numbers (stack_primus.def).
 * Numbers behind the name replace any of them: "primus,deepep=0,share_memory=0.9".
 *
 * Not here: what the numbers do to a price (price_layers.c, price.c, roofline.c).
 */
#ifndef PLAN_STACK_H
#define PLAN_STACK_H

#include "plan/inputs.h"
#include "plan/sheet.h"

typedef enum StackName {
#define STACK(name, fallback, help) STACK_##name,
#include "plan/stack.def"
#undef STACK
    STACK_COUNT
} StackName;

extern const char *const stack_names[STACK_COUNT];

typedef struct PlanStack {
    const char *name;  /* for sentences */
    bool primus;       /* computed as Primus' layers, else as our own */
    SheetGivens given; /* the stack's own, then those behind the name */
    int own;           /* how many of `given` come first */
    bool has[STACK_COUNT];
} PlanStack;

typedef struct StackValues {
    double at[STACK_COUNT];
} StackValues;

/* `source`: a stack, and what its names shall be instead: "primus,deepep=1". ERR_ARG in one sentence: no
 * such stack or name, with the nearest; what is no number. */
Status stack_load(PlanStack *s, Arena *a, const char *source);

/* Is `name` an option of the stack that nothing behind its name has set? */
bool stack_offers(const PlanStack *s, const char *name);

/* All definitions with their values, for sheet_explain. */
void stack_sheet(const PlanStack *s, const PlanInputs *in, Sheet *out);
/* All values for the inputs; ERR_ARG names a value that cannot be (a share outside 0 to 1, negative
 * bytes). */
Status stack_values(const PlanStack *s, const PlanInputs *in, StackValues *out);
/* What the values say of a kind of layer (LayerDesc.name): WHAT_LAYER; where there is no such name,
 * `otherwise`. */
double stack_of_layer(const StackValues *v, const char *what, const char *layer, double otherwise);

#endif
