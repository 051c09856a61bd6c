/*
 * stack: the software that runs a training, as numbers: the bytes its layers keep and move, the launches and
 * waits, and the memory it reserves, where it differs from our own engine. stack.def lists the numbers. A
 * number that a stack does not define is our engine's.
 *
 * The stacks are `switchyard`, `primus`, `megatron` and `torchtitan`, computed from the inputs of inputs.h
 * (stack_NAME.def, and for all but ours stack_layers.def). Numbers after the name replace any of them: "primus,deepep=0,share_memory=0.9".
 *
 * Not here: what the numbers do to a price (price_layers.c, price.c, roofline.c).
 */
#ifndef PLANNER_STACK_STACK_H
#define PLANNER_STACK_STACK_H

#include "planner/stack/inputs.h"
#include "planner/stack/sheet.h"

typedef enum StackName {
#define STACK(name, fallback, help) STACK_##name,
#include "planner/stack/stack.def"
#undef STACK
    STACK_COUNT
} StackName;

extern const char *const stack_names[STACK_COUNT];

typedef enum StackKind {
    STACK_OF_SWITCHYARD,
    STACK_OF_PRIMUS,
    STACK_OF_MEGATRON,
    STACK_OF_TORCHTITAN,
    STACK_OF_COUNT
} StackKind;

typedef struct PlanStack {
    const char *name; /* for sentences */
    StackKind kind;
    SheetGivens given; /* the numbers after the name */
    bool has[STACK_COUNT];
    double slower, larger; /* shares by which its times and its bytes are made worse (interval.h) */
} PlanStack;

/* By StackName, for one set of inputs. */
typedef struct StackValues {
    double at[STACK_COUNT];
} StackValues;

/* Are its layers those of this program's engine? */
static inline bool stack_is_ours(const PlanStack *s) { return s->kind == STACK_OF_SWITCHYARD; }

/* `source`: a stack, and optionally numbers that replace its own: "primus,deepep=1". ERR_ARG: no such stack or name
 * (with the nearest), or not a number. */
Status stack_load(PlanStack *s, Arena *a, const char *source);

/* ERR_ARG: the stack does not run on GPUs of this maker (gpu.vendor). */
Status stack_check_gpu(const PlanStack *s, const Hardware *h);
/* Where its constants are from, on GPUs of this maker. */
HardwareBasis stack_basis(const PlanStack *s, const Hardware *h);
/* Has it ever run on GPUs of this maker? */
bool stack_is_proven(const PlanStack *s, const Hardware *h);

/* Is `name` an option of the stack that has not been given after its name? */
bool stack_offers(const PlanStack *s, const char *name);

/* All definitions with their values, for sheet_explain. */
void stack_sheet(const PlanStack *s, const PlanInputs *in, Sheet *out);
/* All values for the inputs; ERR_ARG names a value that cannot be (a share outside 0 to 1, negative bytes). */
Status stack_values(const PlanStack *s, const PlanInputs *in, StackValues *out);
/* The value WHAT_LAYER of a kind of layer (LayerDesc.name); `otherwise` if there is no such name. */
double stack_of_layer(const StackValues *v, const char *what, const char *layer, double otherwise);

#endif
