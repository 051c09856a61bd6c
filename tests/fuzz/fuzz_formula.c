/* Any bytes as a formula sheet either fail with a message, or each definition has a finite value or
 * a message, and what has a value can be opened. */
#include "plan/formula.h"

#include <math.h>
#include <stdlib.h>

enum { INPUT_MAX = 4096, ARENA_BYTES = 32 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition)
{
    if (!condition) abort();
}

static void need_values(const FormulaSheet *s, Arena *a)
{
    static const FormulaInputs in = { .n = 2, .at = { { "a", 3, "" }, { "b", 0, "none" } } };
    for (int i = 0; i < s->n; i++) {
        double v = NAN;
        Text t = { 0 };
        ArenaMark mark = arena_mark(a);
        if (formula_eval(s, s->def[i].name, &in, &v) == OK) {
            need(isfinite(v) && text_init(&t, a) == OK);
            need(formula_explain(s, s->def[i].name, &in, 3, &t) == OK);
            need(text_starts(t.data, s->def[i].name));
        } else {
            need(*status_message() != '\0');
        }
        arena_release(a, mark);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    FormulaSheet s;
    if (bytes > INPUT_MAX) return 0;
    need(arena_init(&a, "fuzz", MEM_HOST, ARENA_BYTES) == OK);
    if (formula_parse(&s, &a, "fuzz", (const char *)data, bytes) == OK)
        need_values(&s, &a);
    else
        need(*status_message() != '\0');
    arena_free(&a);
    return 0;
}
