/* stack: reads a stack's sheet and answers what its layers take. */
#include "plan/stack.h"

#include "base/file.h"
#include "plan/presets.h"

#include <stdio.h>
#include <string.h>

static const char prefix[] = "stack-"; /* of stacks among the program's sheets */

const char *const stack_names[STACK_COUNT] = {
#define STACK(name, fallback, help) [STACK_##name] = #name,
#include "plan/stack.def"
#undef STACK
};

static const double fallbacks[STACK_COUNT] = {
#define STACK(name, fallback, help) [STACK_##name] = (fallback),
#include "plan/stack.def"
#undef STACK
};

static Status load_sheet(FormulaSheet *sheet, Arena *a, const char *name)
{
    if (strchr(name, '/') == NULL && strchr(name, '.') == NULL) {
        char whole[128], names[256] = "";
        (void)snprintf(whole, sizeof whole, "%s%.100s", prefix, name);
        for (int i = 0; i < formula_presets_n; i++) {
            if (strcmp(formula_presets[i].name, whole) == 0) return formula_load(sheet, a, whole);
            if (!text_starts(formula_presets[i].name, prefix)) continue;
            size_t at = strlen(names);
            (void)snprintf(names + at, sizeof names - at, "%s%s", at > 0 ? ", " : "",
                           formula_presets[i].name + strlen(prefix));
        }
        return FAIL(ERR_ARG,
                    "there is no stack %.60s: %s are, and files (with a / or . in the name)", name,
                    names);
    }
    char *text = NULL;
    size_t bytes = 0;
    TRY(file_read_input(name, a, &text, &bytes));
    return formula_parse(sheet, a, name, text, bytes);
}

Status stack_load(PlanStack *s, Arena *a, const char *source)
{
    const char *name = NULL;
    PlanStack next = { 0 };
    TRY(arena_text(a, source, strcspn(source, ","), &name));
    TRY(load_sheet(&next.sheet, a, name));
    TRY(formula_settings(&next.sheet, a, source, &next.settings));
    for (int i = 0; i < STACK_COUNT; i++) {
        for (int d = 0; d < next.sheet.n; d++)
            next.has[i] |= strcmp(next.sheet.def[d].name, stack_names[i]) == 0;
        for (int d = 0; d < next.settings.n; d++)
            next.has[i] |= strcmp(next.settings.at[d].name, stack_names[i]) == 0;
    }
    *s = next;
    return OK;
}

static Status check(const PlanStack *s, const StackValues *v)
{
    enum { ABOVE_0 = 4 }; /* so many are above 0, the others shares */
    static const StackName names[] = { STACK_share_compute, STACK_share_memory,
                                       STACK_share_links,   STACK_checkpoint_gb_s,
                                       STACK_hide_exchange, STACK_hide_gradients };
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        double value = v->at[names[i]];
        if (i < ABOVE_0 ? value > 0 : value >= 0 && value <= 1) continue;
        return FAIL(ERR_ARG, "stack %s: %s is %g, it must be %s", s->sheet.name,
                    stack_names[names[i]], value, i < ABOVE_0 ? "above 0" : "from 0 to 1");
    }
    double kind = v->at[STACK_dispatch], again = v->at[STACK_recompute];
    if (!(again >= 0 && again < 64))
        return FAIL(ERR_ARG, "stack %s: recompute is %g, a sum of pieces is from 0 to 63",
                    s->sheet.name, again);
    if (kind < 0 || kind == 0 || kind == 1 || kind == 2) return OK;
    return FAIL(ERR_ARG,
                "stack %s: dispatch is %g, it must be 0 (expert), 1 (rank), 2 (host) or below 0",
                s->sheet.name, kind);
}

bool stack_offers(const PlanStack *s, const char *name)
{
    bool offers = false;
    for (int i = 0; i < s->sheet.n; i++) offers |= strcmp(s->sheet.def[i].name, name) == 0;
    for (int i = 0; i < s->settings.n; i++) offers &= strcmp(s->settings.at[i].name, name) != 0;
    return offers;
}

Status stack_settings(const PlanStack *s, FormulaInputs *in)
{
    for (int i = 0; i < s->settings.n; i++) TRY(formula_set(in, &s->settings.at[i]));
    return OK;
}

double stack_of_layer(const StackValues *v, const char *what, const char *layer, double otherwise)
{
    size_t n = strlen(what);
    for (int i = 0; i < STACK_COUNT; i++) {
        const char *at = stack_names[i];
        if (strncmp(at, what, n) == 0 && at[n] == '_' && strcmp(at + n + 1, layer) == 0)
            return v->at[i];
    }
    return otherwise;
}

Status stack_values(const PlanStack *s, const FormulaInputs *in, StackValues *out)
{
    for (int i = 0; i < STACK_COUNT; i++) {
        out->at[i] = fallbacks[i];
        if (s->has[i]) TRY(formula_eval(&s->sheet, stack_names[i], in, &out->at[i]));
    }
    return check(s, out);
}
