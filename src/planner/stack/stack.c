/* stack: the built-in stacks, the numbers that replace theirs, and the values of both. */
#include "planner/stack/stack.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const stack_names[STACK_COUNT] = {
#define STACK(name, fallback, help) [STACK_##name] = #name,
#include "planner/stack/stack.def"
#undef STACK
};

static const double fallbacks[STACK_COUNT] = {
#define STACK(name, fallback, help) [STACK_##name] = (fallback),
#include "planner/stack/stack.def"
#undef STACK
};

/* ---- stacks of the program ---- */

#define INPUT(name, value, source)   SHEET_INPUT(s, name, source, in->name)
#define DEF(name, unit, source, ...) SHEET_DEFINE(s, name, unit, source, __VA_ARGS__)

static void fill_sheet(Sheet *s, const PlanInputs *in, StackKind kind)
{
#include "planner/stack/inputs.def"
    if (kind == STACK_OF_PRIMUS) {
#include "planner/stack/stack_primus.def"
    } else if (kind == STACK_OF_MEGATRON) {
#include "planner/stack/stack_megatron.def"
    } else if (kind == STACK_OF_TORCHTITAN) {
#include "planner/stack/stack_torchtitan.def"
    } else {
#include "planner/stack/stack_switchyard.def"
    }
}

#undef INPUT
#undef DEF

/* vendor: whose GPUs it runs on; NULL: both makers'. unproven: the maker on whose GPUs it never ran. basis: where
 * its constants are from. */
static const struct {
    const char *name, *vendor, *unproven;
    HardwareBasis basis;
} stacks[STACK_OF_COUNT] = {
    [STACK_OF_SWITCHYARD] = { "switchyard", NULL, "AMD", BASIS_MEASURED },
    [STACK_OF_PRIMUS] = { "primus", "AMD", NULL, BASIS_PUBLISHED },
    [STACK_OF_MEGATRON] = { "megatron", "NVIDIA", NULL, BASIS_ASSUMED },
    [STACK_OF_TORCHTITAN] = { "torchtitan", NULL, NULL, BASIS_ASSUMED },
};

static Status find_stack(const char *name, StackKind *out)
{
    bool file = strchr(name, '/') != NULL || strchr(name, '.') != NULL;
    const char *names[STACK_OF_COUNT];
    char hint[TEXT_HINT_BYTES];
    for (int i = 0; i < STACK_OF_COUNT; i++) {
        names[i] = stacks[i].name;
        if (strcmp(stacks[i].name, name) != 0) continue;
        *out = (StackKind)i;
        return OK;
    }
    return FAIL(ERR_ARG, "there is no stack %.60s: megatron, primus, switchyard, torchtitan are%s",
                name,
                file ? "; files were removed after 0.9.0: give numbers after the name, "
                       "--stack primus,NAME=NUMBER"
                     : text_hint(hint, name, names, STACK_OF_COUNT, ""));
}

/* ---- names ---- */

/* The names of a stack's definitions: its sheet with all inputs 0. */
static void empty_sheet(const PlanStack *s, Sheet *out)
{
    static const PlanInputs none;
    stack_sheet(s, &none, out);
}

/* The names that may be given: the stack's own definitions, and all names of stack.def. */
static int list_names(const Sheet *sheet, const char *names[SHEET_ROWS_MAX + STACK_COUNT])
{
    int n = 0;
    for (int i = 0; i < sheet->n; i++) {
        if (sheet->row[i].text != NULL) names[n++] = sheet->row[i].name;
    }
    for (int i = 0; i < STACK_COUNT; i++) names[n++] = stack_names[i];
    return n;
}

void stack_sheet(const PlanStack *s, const PlanInputs *in, Sheet *out)
{
    *out = (Sheet){ .name = s->name, .given = &s->given };
    fill_sheet(out, in, s->kind);
    sheet_end(out);
}

/* has[]: which values the stack defines. All others have the fallback of stack.def. */
static void note_defined(PlanStack *s)
{
    Sheet sheet;
    empty_sheet(s, &sheet);
    for (int i = 0; i < STACK_COUNT; i++) s->has[i] = sheet_find(&sheet, stack_names[i]) >= 0;
}

/* ---- what --stack says ---- */

/* Two fillings: the first one finds the names that may be given. */
Status stack_load(PlanStack *s, Arena *a, const char *source)
{
    const char *names[SHEET_ROWS_MAX + STACK_COUNT], *name = NULL;
    PlanStack next = { .given = { .n = 0 } };
    Sheet sheet;
    Text title;
    TRY(arena_text(a, source, strcspn(source, ","), &name));
    TRY(find_stack(name, &next.kind));
    TRY(text_init(&title, a));
    TRY(text_printf(&title, "stack %s", name));
    next.name = title.data;
    empty_sheet(&next, &sheet);
    TRY(sheet_give_text(&next.given, next.name, names, list_names(&sheet, names), source, a));
    note_defined(&next);
    *s = next;
    return OK;
}

/* A GPU whose file names no maker takes every stack. */
Status stack_check_gpu(const PlanStack *s, const Hardware *h)
{
    const char *made = h->gpu_vendor, *runs_on = stacks[s->kind].vendor;
    if (made == NULL || runs_on == NULL || strcmp(made, runs_on) == 0) return OK;
    return FAIL(ERR_ARG,
                "plan: %s runs on GPUs of %s only, and %s is made by %s: take --stack "
                "switchyard or torchtitan",
                s->name, runs_on, h->name, made);
}

bool stack_is_proven(const PlanStack *s, const Hardware *h)
{
    const char *made = h->gpu_vendor, *unproven = stacks[s->kind].unproven;
    return made == NULL || unproven == NULL || strcmp(made, unproven) != 0;
}

HardwareBasis stack_basis(const PlanStack *s, const Hardware *h)
{
    return stack_is_proven(s, h) ? stacks[s->kind].basis : BASIS_ASSUMED;
}

/* Does the stack define the name, and has the user not set it? An imported file may then set it. */
bool stack_offers(const PlanStack *s, const char *name)
{
    Sheet sheet;
    empty_sheet(s, &sheet);
    for (int i = 0; i < s->given.n; i++) {
        if (strcmp(s->given.at[i].name, name) == 0) return false;
    }
    return sheet_find(&sheet, name) >= 0;
}

/* ---- values ---- */

/* Values that would make prices infinite or negative are refused by name. Below 0 is legal only where the
 * fallback is, which stands for our engine's own number. */
static Status check_values(const PlanStack *s, const StackValues *v)
{
    enum { ABOVE_0 = 4 }; /* the first four must be above 0, the others are shares */
    static const StackName names[] = { STACK_share_compute,  STACK_share_memory,
                                       STACK_share_links,    STACK_checkpoint_gb_s,
                                       STACK_hide_exchange,  STACK_hide_gradients,
                                       STACK_again_products, STACK_again_attention,
                                       STACK_again_exchange };
    for (int i = 0; i < STACK_COUNT; i++) {
        if (!isfinite(v->at[i]))
            return FAIL(ERR_ARG, "%s: %s is %g, it must be finite", s->name, stack_names[i],
                        v->at[i]);
        if (v->at[i] < 0 && fallbacks[i] >= 0)
            return FAIL(ERR_ARG, "%s: %s is %g, it must be at least 0", s->name, stack_names[i],
                        v->at[i]);
    }
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        double value = v->at[names[i]];
        if (i < ABOVE_0 ? value > 0 : value >= 0 && value <= 1) continue;
        return FAIL(ERR_ARG, "%s: %s is %g, it must be %s", s->name, stack_names[names[i]], value,
                    i < ABOVE_0 ? "above 0" : "from 0 to 1");
    }
    double kind = v->at[STACK_dispatch], again = v->at[STACK_recompute];
    if (!(again >= 0 && again < 512))
        return FAIL(ERR_ARG, "%s: recompute is %g, a sum of pieces is from 0 to 511", s->name,
                    again);
    if (kind < 0 || kind == 0 || kind == 1 || kind == 2) return OK;
    return FAIL(ERR_ARG, "%s: dispatch is %g, it must be 0 (expert), 1 (rank), 2 (host) or below 0",
                s->name, kind);
}

/* Makes a stack's values worse. What a value is shows in the first word of its name: a share of a rate, a time,
 * bytes. Numbers that the stack does not define stay. */
static void make_worse(const PlanStack *s, StackValues *v)
{
    for (int i = 0; i < STACK_COUNT; i++) {
        char word[32];
        (void)snprintf(word, sizeof word, "%.*s", (int)strcspn(stack_names[i], "_"),
                       stack_names[i]);
        if (!s->has[i] || v->at[i] < 0) continue;
        if (text_word_index("share", word) >= 0) v->at[i] /= 1 + s->slower;
        if (text_word_index("host|wait|kernel|traffic", word) >= 0) v->at[i] *= 1 + s->slower;
        if (text_word_index("keep|saves|working|workspace|reserve", word) >= 0)
            v->at[i] *= 1 + s->larger;
    }
}

/* Definitions depend on the tokens of a micro-batch, so values are computed for each set of inputs. */
Status stack_values(const PlanStack *s, const PlanInputs *in, StackValues *out)
{
    Sheet sheet;
    stack_sheet(s, in, &sheet);
    for (int i = 0; i < STACK_COUNT; i++) {
        int row = s->has[i] ? sheet_find(&sheet, stack_names[i]) : -1;
        out->at[i] = row < 0 ? fallbacks[i] : sheet.row[row].value;
    }
    make_worse(s, out);
    return check_values(s, out);
}

/* A value by two words, "keep" and "moe" for keep_moe, so that callers can loop over kinds of layers. */
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
