/* Any text as --stack and as --formula: refused with a sentence, or numbers that are finite. */
#include "harness/fuzz.h"
#include "planner/stack/formula.h"
#include "planner/stack/stack.h"

#include <math.h>

static void use_stack(const Config *c, const char *text, Arena *a)
{
    PlanStack stack;
    PlanInputs inputs;
    StackValues v;
    if (stack_load(&stack, a, text) != OK) return;
    need(plan_inputs(c, 8, (InputTokens){ .tokens = 4096 }, a, &inputs) == OK);
    if (stack_values(&stack, &inputs, &v) != OK) return;
    for (int i = 0; i < STACK_COUNT; i++) need(isfinite(v.at[i]));
}

static Status make_config(Arena *a, void **out)
{
    TRY(arena_alloc(a, sizeof(Config), out));
    return config_load(*out, a, "deepseek-v2-lite", NULL, 0);
}

static Status look(Fuzz *f)
{
    const Config *c = fuzz_once(make_config);
    PlanFormula theirs;
    const char *text = fuzz_text(f);
    use_stack(c, text, f->a);
    TRY(plan_formula(c, 8, text, f->a, &theirs));
    need(isfinite(theirs.total_bytes));
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1000 };
