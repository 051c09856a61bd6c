/* import_more: what a foreign file says beside our settings: options of its stack, keys that no plan follows, the
 * notes on them, and what only the number of GPUs decides. Names are those of import_known.def. */
#include "engine/base/text.h"
#include "planner/stack/import.h"
#include "planner/stack/import_private.h"
#include "planner/stack/stack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ours NULL: harmless. */
static const struct {
    const char *theirs, *ours;
} known[] = {
#define OPTION(theirs, ours) { theirs, ours },
#define HARMLESS(theirs)     { theirs, NULL },
#include "planner/stack/import_known.def"
#undef OPTION
#undef HARMLESS
};

enum { KNOWN = sizeof known / sizeof *known };

const char *import_next_word(const char **list, const char *end, int *n)
{
    const char *word = *list;
    *n = (int)strcspn(word, end);
    *list = word + *n + (word[*n] != '\0');
    return *word == '\0' ? NULL : word;
}

/* Words beyond IMPORT_WORDS_MAX are dropped: they are notes for people. */
void import_add_word(ImportWords *w, const char *key, const char *value)
{
    if (w->n < IMPORT_WORDS_MAX) w->at[w->n++] = (ImportWord){ key, value, false };
}

/* Is the key in a list of names, of which one may end in *? */
static bool is_named(const char *list, const char *key)
{
    int n = 0;
    for (const char *w = import_next_word(&list, " ", &n); w != NULL;
         w = import_next_word(&list, " ", &n)) {
        const bool begins = w[n - 1] == '*';
        if (strncmp(key, w, (size_t)(n - begins)) == 0 && (begins || key[n] == '\0')) return true;
    }
    return false;
}

/* An option that the stack offers is followed, and so is what has become a setting. */
Status import_sort_others(Settings *s, PlanImport *more)
{
    static const char settings[] = "turbo|fp8|fp4|main_grads|main_params|moment1|moment2|"
                                   "precision_aware_optimizer";
    PlanStack own;
    TRY(stack_load(&own, s->arena, more->stack));
    for (Setting *x = s->at; x < s->at + s->n; x++) {
        int i = 0;
        while (i < KNOWN && !is_named(known[i].theirs, x->key)) i++;
        if (i < KNOWN && known[i].ours != NULL && x->value != NULL) {
            const bool yes = strcasecmp(x->value, "true") == 0;
            const char *value = yes ? "1" : strcasecmp(x->value, "false") == 0 ? "0" : x->value;
            import_add_word(&more->options, *known[i].ours == '\0' ? x->key : known[i].ours, value);
        }
        if (i == KNOWN && !x->read) import_add_word(&more->unknown, x->key, x->place);
    }
    for (ImportWord *o = more->options.at; o < more->options.at + more->options.n; o++)
        o->followed = text_word_index(settings, o->key) >= 0 || stack_offers(&own, o->key);
    return OK;
}

/* These stacks spread experts over the shards of one replica and their context and tensor ranks. */
Status import_check_shards(const Config *c, int64_t shards, const char *place)
{
    const int64_t ranks = shards * c->mesh_cp * c->mesh_tp;
    if (ranks % c->mesh_ep == 0) return OK;
    return FAIL(ERR_ARG,
                "%s: the expert-parallel degree %lld does not divide the %lld ranks of a replica",
                place, (long long)c->mesh_ep, (long long)ranks);
}

/* A batch of one replica becomes that of all; torchtitan's number of replicas becomes shards. */
Status plan_import_cluster(const PlanImport *more, int64_t gpus, Config *c)
{
    const int64_t others = c->mesh_pp * c->mesh_cp * c->mesh_tp, dp = gpus / others;
    if (more->per_replica) c->train_batch *= dp;
    if (more->replicas <= 1) return OK;
    if (gpus % others != 0 || dp % more->replicas != 0)
        return FAIL(ERR_ARG,
                    "%s: %s is %lld, which does not divide the %lld data-parallel ranks of %lld "
                    "GPUs",
                    more->replicas_place, more->replicas_key, (long long)more->replicas,
                    (long long)dp, (long long)gpus);
    TRY(import_check_shards(c, dp / more->replicas, more->replicas_place));
    c->mesh_shard = dp / more->replicas;
    if (c->mesh_shard == 1) c->mesh_shard = c->mesh_zero = 0;
    return OK;
}

/* ---- options of the stack ---- */

/* The value of an option in the file, the largest of several; below 0: not given. */
static double option_of(const PlanImport *more, const char *name)
{
    double most = -1;
    for (int i = 0; i < more->options.n; i++) {
        char *end = NULL;
        double value = strtod(more->options.at[i].value, &end);
        bool number = end != more->options.at[i].value && *end == '\0';
        if (number && strcmp(more->options.at[i].key, name) == 0) most = fmax(most, value);
    }
    return most;
}

/* Sync-free MoE and DeepEP belong to Primus-Turbo. Stages 2 and above of sync-free MoE turn on DeepEP (Primus,
 * rocm_arg_validation). */
Status plan_import_stack(const PlanImport *more, const char *stack, Arena *a, const char **out)
{
    double sync_free = option_of(more, "sync_free"), deepep = option_of(more, "deepep");
    const double least = -(strcmp(stack, "megatron") != 0); /* 0: off, whatever its sheet guesses */
    if (option_of(more, "turbo") == 0) sync_free = deepep = 0;
    if (sync_free >= 2) deepep = 1;
    const SheetGiven option[] = {
        { .name = "loss_fusion", .value = option_of(more, "loss_fusion") },
        { .name = "deepep", .value = deepep },
        { .name = "sync_free", .value = sync_free },
        { .name = "legacy_grouped", .value = option_of(more, "legacy_grouped") },
        { .name = "turbo_attention", .value = option_of(more, "turbo_attention") },
        { .name = "zero_most", .value = option_of(more, "zero_most") },
        { .name = "grad_size", .value = option_of(more, "grad_size") },
        { .name = "main_size", .value = option_of(more, "main_size") },
        { .name = "moment_size", .value = option_of(more, "moment_size") },
        { .name = "grad_overlap", .value = option_of(more, "grad_overlap") },
        { .name = "graphs", .value = fmax(least, option_of(more, "graphs")) },
        { .name = "tp_overlap", .value = fmax(least, option_of(more, "tp_overlap")) },
        { .name = "fp8_params", .value = fmax(0, option_of(more, "fp8_params")) },
        { .name = "offload_overlap", .value = option_of(more, "offload_overlap") },
        { .name = "flash", .value = option_of(more, "flash") },
        { .name = "shared_overlap", .value = option_of(more, "shared_overlap") },
        { .name = "op_ac", .value = option_of(more, "op_ac") },
    };
    PlanStack own;
    Text t;
    TRY(stack_load(&own, a, stack));
    TRY(text_init(&t, a));
    TRY(text_printf(&t, "%s", stack));
    for (size_t i = 0; i < sizeof option / sizeof *option; i++) {
        if (option[i].value >= 0 && stack_offers(&own, option[i].name))
            TRY(text_printf(&t, ",%s=%g", option[i].name, option[i].value));
    }
    *out = t.data;
    return OK;
}

Status plan_import_notes(const PlanImport *more, Text *out)
{
    const ImportWord *first = more->options.at, *end = first + more->options.n;
    const char *before = "note: options that a plan does not follow: ";
    for (int i = 0; i < more->notes_n; i++) TRY(text_printf(out, "note: %s\n", more->notes[i]));
    for (const ImportWord *o = first; o < end; o++) {
        if (strcmp(o->key, "fp4") == 0 && !more->fp4 &&
            text_word_index("0|none|None|null", o->value) < 0)
            TRY(text_printf(out, "note: fp4 %s is planned as bf16\n", o->value));
    }
    for (const ImportWord *o = first; o < end; o++) {
        if (o->followed || text_word_index("0|none|None|null|[]", o->value) >= 0) continue;
        TRY(text_printf(out, "%s%s %s", before, o->key, o->value));
        before = ", ";
    }
    if (*before == ',') TRY(text_printf(out, "\n"));
    const ImportWords *u = &more->unknown;
    if (u->n == 0) return OK;
    TRY(text_printf(out, "note: %d keys are not understood and not followed, the first in %s:",
                    u->n, u->at[0].value));
    for (int i = 0; i < u->n; i++) TRY(text_printf(out, " %s", u->at[i].key));
    return text_printf(out, "\n");
}
