/* study: the table of studies, their rows, and the price of a row. */
#include "study/study.h"

#include "engine/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

Status study_text(Arena *a, const char **out, const char *fmt, ...)
{
    char text[2048]; /* a list of 256 layers, and more */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof text) n = (int)sizeof text - 1;
    return arena_text(a, text, (size_t)n, out);
}

/* The configuration of a row is const for the planner; each row has its own copy. */
Config *study_config(StudyRow *r) { return (Config *)(uintptr_t)r->request.config; }

Status study_add(Study *s, StudyRow **out, const char *fmt, ...)
{
    char label[256];
    Config *c = NULL;
    va_list ap;
    if (s->n == STUDY_ROWS)
        return FAIL(ERR_ARG, "plan: --study %s has more than %d rows", s->kind->name, STUDY_ROWS);
    va_start(ap, fmt);
    (void)vsnprintf(label, sizeof label, fmt, ap);
    va_end(ap);
    TRY(ARENA_NEW(s->a, 1, &c));
    *c = *s->base.config;
    StudyRow *r = &s->row[s->n++];
    *r = (StudyRow){ .settings = "", .request = s->base };
    r->request.config = c;
    *out = r;
    return study_text(s->a, &r->label, "%s", label);
}

/* In a table a few words are enough: what to do about it is behind the first semicolon or colon. */
Status study_refuse(Study *s, StudyRow *r, Status failed)
{
    char why[512];
    if (failed != ERR_ARG) return failed;
    status_sentence(why, sizeof why);
    why[strcspn(why, ";")] = '\0';
    char *advice = strstr(why, ": set ");
    if (advice != NULL) *advice = '\0';
    status_clear();
    return study_text(s->a, &r->why, "%s", text_starts(why, "plan: ") ? why + 6 : why);
}

/* Blocks of a chunk that a share of it is, rounded up. */
static int share_blocks(const Config *c, const PlanLayout *l, double share)
{
    const int64_t stages = (int64_t)l->pp * l->vpp;
    return (int)ceil(share * (double)((c->model_layers + stages - 1) / stages));
}

/* What `plan` does for a layout that is given (answer.c). */
static Status price_layout(Study *s, StudyRow *r, Planner *p)
{
    PlanLayout *l = &r->layout;
    const Config *c = r->request.config;
    if (planner_runs_list(p)) TRY(plan_spread_evenly(c, s->a, l));
    plan_recompute_by_chunk(c, l);
    if (r->share > 0) {
        l->recompute = RECOMPUTE_LAYER;
        l->recompute_blocks = share_blocks(c, l, r->share);
        l->again = NULL;
    }
    TRY(planner_price_list(p, l, s->a, &r->price, NULL));
    if (s->tokens > 0) plan_goodput(&r->request, &r->price, s->tokens, &r->goodput);
    if (!r->by_rank) return OK;
    TRY(ARENA_NEW(s->a, l->pp, &r->memory));
    return planner_memory(p, l, &r->price, r->memory);
}

Status study_price(Study *s, StudyRow *r)
{
    Planner *p = NULL;
    Status made = config_check(r->request.config);
    if (made == OK) made = plan_layout_of(r->request.config, r->request.gpus, s->a, &r->layout);
    if (made == OK) made = planner_make(&r->request, &p);
    if (made == OK) made = price_layout(s, r, p);
    planner_free(p);
    return made == OK ? OK : study_refuse(s, r, made);
}

/* ---- studies ---- */

/* Doubles until the batch does not divide, or three do not fit; or takes the values of search.micro_batch. */
static Status micro_rows(Study *s)
{
    const ConfigInts *given = &s->base.config->search_micro_batch;
    StudyRow *r = NULL;
    int unfit = 0;
    for (int64_t i = 0, micro = 1; given->n == 0 ? unfit < 3 : i < given->n; i++, micro *= 2) {
        if (given->n > 0) micro = given->at[i];
        TRY(study_add(s, &r, "%" PRId64, micro));
        study_config(r)->train_micro_batch = micro;
        r->x = (double)micro;
        TRY(study_text(s->a, &r->settings, "train.micro_batch=%" PRId64, micro));
        TRY(study_price(s, r));
        if (!study_legal(r) && given->n == 0) break;
        unfit += study_legal(r) && !r->price.fits;
    }
    return OK;
}

/* The stack with an option of it set; NULL: it has no such option, or the option is given. */
static Status with_option(Study *s, const char *option, int value, const PlanStack **out)
{
    PlanStack *stack = NULL;
    const char *source = NULL;
    *out = NULL;
    if (!stack_offers(s->base.stack, option)) return OK;
    TRY(study_text(s->a, &source, "%s,%s=%d", s->stack, option, value));
    TRY(ARENA_NEW(s->a, 1, &stack));
    TRY(stack_load(stack, s->a, source));
    *out = stack;
    return OK;
}

static Status ep_row(Study *s, int64_t ep, int curve, const PlanStack *stack)
{
    StudyRow *r = NULL;
    TRY(study_add(s, &r, s->curve[curve] == NULL ? "%" PRId64 : "%" PRId64 " %s", ep,
                  s->curve[curve]));
    study_config(r)->mesh_ep = ep;
    if (stack != NULL) r->request.stack = stack;
    r->x = (double)ep;
    r->curve = curve;
    TRY(study_text(s->a, &r->settings, "mesh.ep=%" PRId64 "%s%s%s%s", ep,
                   stack == NULL ? "" : " --stack ", stack == NULL ? "" : s->stack,
                   stack == NULL ? "" : ",", stack == NULL ? "" : s->curve[curve]));
    return study_price(s, r);
}

static Status ep_rows(Study *s)
{
    static const char *const names[] = { "deepep=0", "deepep=1" };
    const Config *c = s->base.config;
    const ConfigInts *given = &c->search_ep;
    const PlanStack *stack[2] = { NULL };
    const int64_t ranks = s->base.gpus / c->mesh_pp;
    if (config_moe_layers(c) == 0)
        return FAIL(ERR_ARG,
                    "plan: --study ep: %s has no experts: it is dense; micro-batch, scale, "
                    "recompute, precision and memory are studies of it",
                    c->model_name);
    for (int k = 0; k < 2; k++) TRY(with_option(s, "deepep", k, &stack[k]));
    for (int k = 0; k < (stack[0] == NULL ? 1 : 2); k++) {
        if (stack[0] != NULL) s->curve[k] = names[k];
        for (int64_t ep = 1; given->n == 0 && ep <= c->moe_experts; ep++) {
            if (c->moe_experts % ep == 0 && ranks % ep == 0) TRY(ep_row(s, ep, k, stack[k]));
        }
        for (int i = 0; i < given->n; i++) TRY(ep_row(s, given->at[i], k, stack[k]));
    }
    return OK;
}

/* Sets what all blocks of a row recompute, as settings, too. `pieces`: words with commas; "": nothing. */
static Status set_pieces(Study *s, StudyRow *r, const char *before, const char *pieces)
{
    Config *c = study_config(r);
    char list[CONFIG_LIST_MAX * 5] = "";
    size_t at = 0;
    c->recompute_pieces = (ConfigTexts){ .n = *pieces != '\0', .at = { pieces } };
    c->recompute_layers.n = 0;
    const int64_t blocks = c->model_layers + c->mtp_layers;
    for (int64_t i = 0; *pieces != '\0' && i < blocks && i < CONFIG_LIST_MAX; i++) {
        c->recompute_layers.at[c->recompute_layers.n++] = i;
        at = text_add(list, sizeof list, at, "%s%" PRId64, i > 0 ? "," : "", i);
    }
    return study_text(s->a, &r->settings, "%srecompute.pieces=[%s] recompute.layers=[%s]", before,
                      pieces, list);
}

/* `share` of the blocks of each chunk, or all; such a share has no settings that hold for every partition. */
static Status piece_row(Study *s, const char *label, const char *pieces, double share,
                        StudyRow **out)
{
    StudyRow *r = NULL;
    TRY(study_add(s, &r, "%s", label));
    TRY(set_pieces(s, r, "", pieces));
    if (share > 0) r->settings = "";
    r->share = share;
    *out = r;
    return OK;
}

/* Why recomputing a module changes nothing for this layout; NULL: there is such a module. */
static const char *absent(const Config *c, unsigned piece)
{
    const bool experts = config_moe_layers(c) > 0, shared = experts && c->moe_shared > 0;
    if (piece == RECOMPUTE_SHARED && !shared) return "the model has no shared experts";
    if (piece == RECOMPUTE_ACT && !shared && config_moe_layers(c) == c->model_layers)
        return "the model has neither shared experts nor dense MLPs";
    if (piece != RECOMPUTE_EXCHANGE || c->mesh_ep * c->mesh_etp > 1) return NULL;
    return experts ? "nothing is exchanged with mesh.ep=1" : "the model has no experts";
}

/* Whole layers, of some shares of each chunk. */
static Status share_rows(Study *s)
{
    static const double shares[] = { 0.25, 0.5, 0.75 };
    const StudyRow *none = &s->row[0];
    StudyRow *r = NULL;
    if (!study_legal(none)) return OK;
    const int all = share_blocks(none->request.config, &none->layout, 1);
    for (size_t i = 0, last = 0; i < sizeof shares / sizeof *shares; i++) {
        char label[64];
        const int blocks = share_blocks(none->request.config, &none->layout, shares[i]);
        if (blocks == (int)last || blocks >= all) continue;
        last = (size_t)blocks;
        (void)snprintf(label, sizeof label, "layer, %d of %d a chunk", blocks, all);
        TRY(piece_row(s, label, "layer", shares[i], &r));
        TRY(study_price(s, r));
    }
    return OK;
}

static Status recompute_rows(Study *s)
{
    StudyRow *r = NULL;
    TRY(piece_row(s, "none", "", 0, &r));
    TRY(study_price(s, r));
    for (unsigned piece = 1; piece <= RECOMPUTE_LAYER; piece *= 2) {
        ConfigTexts name = { 0 };
        spec_recompute_names(piece, &name);
        if (piece == RECOMPUTE_LAYER) TRY(share_rows(s));
        TRY(piece_row(s, name.at[0], name.at[0], 0, &r));
        r->why = absent(r->request.config, piece);
        if (study_legal(r)) TRY(study_price(s, r));
    }
    return OK;
}

/* The type of products without 8 bits, then each recipe in the format of the configuration. */
static Status precision_rows(Study *s)
{
    char words[64];
    StudyRow *r = NULL;
    for (int recipe = 0, n = 0; recipe == 0 || text_word(CONFIG_RECIPE_WORDS, recipe, &n) != NULL;
         recipe++) {
        const char *word = text_word(CONFIG_RECIPE_WORDS, recipe, &n);
        (void)snprintf(words, sizeof words, "%.*s", n, word);
        int m = 0;
        const char *format = text_word(CONFIG_FORMAT_WORDS, s->base.config->fp8_format, &m);
        if (recipe == 0)
            TRY(study_add(s, &r, "%s", dtype_name(compute_type(COMPUTE_BF16))));
        else
            TRY(study_add(s, &r, "%.*s %s", m, format, words));
        study_config(r)->run_compute = COMPUTE_BF16;
        study_config(r)->fp8_recipe = recipe;
        TRY(study_text(s->a, &r->settings, "run.compute=bf16 fp8.recipe=%s", words));
        TRY(study_price(s, r));
    }
    return OK;
}

static Status memory_row(Study *s, const char *label, int64_t zero, const char *pieces)
{
    char before[32];
    StudyRow *r = NULL;
    TRY(study_add(s, &r, "%s", label));
    study_config(r)->mesh_zero = zero;
    if (zero == 0) study_config(r)->mesh_shard = 0;
    (void)snprintf(before, sizeof before, "mesh.zero=%" PRId64 " ", zero);
    if (pieces != NULL) TRY(set_pieces(s, r, before, pieces));
    r->by_rank = true;
    r->listed = pieces == NULL;
    return study_price(s, r);
}

/* The layout as given, then its neighbours. */
static Status memory_rows(Study *s)
{
    char label[64];
    TRY(memory_row(s, "as given", s->base.config->mesh_zero, NULL));
    for (int zero = 0; zero <= 3; zero++) {
        for (int layer = 0; layer < 2; layer++) {
            (void)snprintf(label, sizeof label, "ZeRO-%d recompute %s", zero,
                           layer ? "layer" : "none");
            TRY(memory_row(s, label, zero, layer ? "layer" : ""));
        }
    }
    return OK;
}

static const StudyKind kinds[] = {
    { "micro-batch", "sequences", "micro-batches", true, micro_rows, study_says_micro },
    { "ep", "ranks of experts", "ranks of experts", true, ep_rows, study_says_ep },
    { "scale", "GPUs", "numbers of GPUs", true, study_scale_rows, study_says_scale },
    { "recompute", "recomputed", "what is recomputed", false, recompute_rows,
      study_says_recompute },
    { "precision", "products", "precision of products", false, precision_rows,
      study_says_precision },
    { "memory", "layout", "where memory goes", false, memory_rows, study_says_memory },
};
enum { KINDS = sizeof kinds / sizeof *kinds };

Status study_find(const char *name, const StudyKind **out)
{
    const char *names[KINDS];
    char hint[TEXT_HINT_BYTES];
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i].name;
        *out = &kinds[i];
        if (strcmp(name, names[i]) == 0) return OK;
    }
    for (int i = 0; i < KINDS && *name != '\0'; i++) {
        if (text_starts(names[i], name))
            return FAIL(ERR_ARG, "plan: there is no study %.40s, did you mean %s?", name, names[i]);
    }
    return FAIL(ERR_ARG, "plan: there is no study %.40s%s", name,
                text_hint(hint, name, names, KINDS,
                          "; there are micro-batch, ep, scale, recompute, precision and memory"));
}

/* No row is legal: is it the batch? */
static Status none_legal(const Study *s)
{
    const StudyRow *r = &s->row[0];
    const Config *c = r->request.config;
    int64_t below = 0, above = 0;
    if (r->layout.dp > 0) study_batches(c, &r->layout, c->train_batch, &below, &above);
    if (r->layout.dp == 0 || below == c->train_batch)
        return FAIL(ERR_ARG, "plan: --study %s: no row is legal: %s", s->kind->name, r->why);
    char least[64] = "";
    if (below > 0) (void)snprintf(least, sizeof least, "%" PRId64 " below and ", below);
    return FAIL(ERR_ARG,
                "plan: --study %s: no row takes train.batch %" PRId64 " over %" PRId64
                " data-parallel ranks: set train.batch to the nearest legal one, %s%" PRId64
                " above",
                s->kind->name, c->train_batch, r->layout.dp, least, above);
}

Status study_run(Study *s)
{
    TRY(s->kind->rows(s));
    for (int i = 0; i < s->n; i++) {
        if (study_legal(&s->row[i])) return OK;
    }
    return none_legal(s);
}

Status study_fits(const Study *s)
{
    const StudyRow *least = NULL;
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        if (study_row_fits(r)) return OK;
        if (study_legal(r) && (least == NULL || r->price.peak_bytes < least->price.peak_bytes))
            least = r;
    }
    return FAIL(
        ERR_FIT,
        "plan: --study %s: no row fits: %s takes least, %.2f GiB, and %.2f may be used; try "
        "more mesh.pp, or plan --search",
        s->kind->name, least->label, least->price.peak_bytes / PLAN_GIB,
        plan_room_bytes(&least->request) / PLAN_GIB);
}
