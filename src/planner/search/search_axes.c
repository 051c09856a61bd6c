/* search_axes: the values of each axis of a search, and combinations of them as layouts. A combination is a number:
 * its digits, each in the base of an axis, are the indices of values. */
#include "planner/search/search_private.h"

#include "engine/config/ramp.h"
#include "engine/model/spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const SearchRecompute search_recompute[] = {
    { "none", 0, 0 },
    { "norm+act", RECOMPUTE_NORM | RECOMPUTE_ACT, 1 },
    { "pieces", RECOMPUTE_NORM | RECOMPUTE_ACT | RECOMPUTE_ATTN_UP | RECOMPUTE_SHARED, 1 },
    { "pieces+exchange",
      RECOMPUTE_NORM | RECOMPUTE_ACT | RECOMPUTE_ATTN_UP | RECOMPUTE_SHARED | RECOMPUTE_EXCHANGE,
      1 },
    { "layer/4", RECOMPUTE_LAYER, 0.25 },
    { "layer/2", RECOMPUTE_LAYER, 0.5 },
    { "layer", RECOMPUTE_LAYER, 1 },
};
const int search_recompute_n = (int)(sizeof search_recompute / sizeof *search_recompute);

enum { VPP_MAX = 8, CP_MAX = 64, TP_MAX = 8, MICRO_MAX = 16 };

static void add_value(ConfigInts *list, int64_t value)
{
    if (!config_has_int(list, value) && list->n < CONFIG_LIST_MAX) list->at[list->n++] = value;
}

/* Rising divisors of `of`, up to `max`. */
static void add_divisors(ConfigInts *list, int64_t of, int64_t max)
{
    for (int64_t d = 1; d <= of && d <= max; d++)
        if (of % d == 0) add_value(list, d);
}

static bool has_experts(const Config *c) { return config_moe_layers(c) > 0; }

/* ---- values ---- */

/* Does a list have word number `value` of `words`? If the list is empty, the answer is `own`. */
static bool is_wanted(const ConfigTexts *list, const char *words, int value, bool own)
{
    bool has = list->n == 0 && own;
    for (int i = 0; i < list->n; i++) has |= text_word_index(words, list->at[i]) == value;
    return has;
}

/* A value of SEARCH_BUFFERS in digits, the first the fastest, and the words of each. */
enum { DIGITS = 4, COMBINATIONS = 2 * 3 * 5 * 2 };
static const int bases[DIGITS] = { SEARCH_BUFFER_KINDS, 3, 5, 2 };
static const char *const words[DIGITS] = { CONFIG_BUFFERS_WORDS, CONFIG_COMPUTE_WORDS,
                                           CONFIG_RECIPE_WORDS, CONFIG_BOOL_WORDS };

typedef struct Digits {
    int at[DIGITS];
} Digits;

static Digits own_digits(const Config *c)
{
    return (Digits){ { c->moe_buffers, c->run_compute, c->fp8_recipe, c->optimizer_offload } };
}

static Digits value_digits(int64_t value)
{
    Digits d;
    for (int i = 0; i < DIGITS; i++) {
        d.at[i] = (int)(value % bases[i]);
        value /= bases[i];
    }
    return d;
}

static int64_t config_value(Digits d)
{
    int64_t value = 0;
    for (int i = DIGITS - 1; i >= 0; i--) value = value * bases[i] + d.at[i];
    return value;
}

void search_configure(Config *c, int64_t value)
{
    const Digits d = value_digits(value);
    c->moe_buffers = d.at[0];
    c->run_compute = d.at[1];
    c->fp8_recipe = d.at[2];
    c->optimizer_offload = d.at[3] != 0;
}

/* The values that a search tries on an axis for which the configuration gives none. */
static void fill_axis(const PlanRequest *q, SearchAxis axis, ConfigInts *list)
{
    const Config *c = q->config;
    int64_t most;
    switch (axis) {
    case SEARCH_BUFFERS: add_value(list, config_value(own_digits(c))); break;
    case SEARCH_PP: add_divisors(list, q->gpus, c->model_layers); break;
    case SEARCH_CP:
        for (int64_t n = 1; n <= CP_MAX && c->data_sequence % n == 0; n *= 2) add_value(list, n);
        break;
    case SEARCH_TP: /* within a scale-up domain; the planner refuses what the stack has not */
        most = q->stack != NULL && q->stack->has[STACK_tp_most] ? TP_MAX : 1;
        /* mesh.ep shares out most parameters of a model with experts, so its searches stay four times shorter. */
        if (search_is_ours(q) && has_experts(c)) most = 1;
        for (int64_t n = 1; n <= most; n *= 2)
            if (n <= (int64_t)q->hardware->scale_up_gpus) add_value(list, n);
        break;
    case SEARCH_EP: add_divisors(list, has_experts(c) ? c->moe_experts : 1, q->gpus); break;
    case SEARCH_VPP:
        for (int64_t n = 1; n <= VPP_MAX; n++) add_value(list, n);
        break;
    case SEARCH_SCHEDULE:
        for (int64_t i = 0; i < schedule_table_n; i++) add_value(list, i);
        break;
    case SEARCH_MICRO:
        for (int64_t n = 1; n <= MICRO_MAX && c->train_batch % n == 0; n *= 2) add_value(list, n);
        break;
    case SEARCH_ZERO:
        for (int64_t n = 1; n <= 3; n++) add_value(list, n);
        break;
    case SEARCH_SHARD: /* all ranks, those of one domain, those of eight */
        add_value(list, 0);
        add_value(list, (int64_t)q->hardware->scale_up_gpus);
        add_value(list, 8 * (int64_t)q->hardware->scale_up_gpus);
        break;
    case SEARCH_RECOMPUTE:
        for (int64_t i = 0; i < search_recompute_n; i++) add_value(list, i);
        break;
    case SEARCH_AXES: break;
    }
}

static int compare_values(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Values are sorted, so combinations have the same numbers whatever order they were given in. Without experts no rank has
 * a part of them. */
void search_axes_fill(const PlanRequest *q, SearchAxes *axes)
{
    for (int i = 0; i < SEARCH_AXES; i++) {
        ConfigInts *list = &axes->axis[i];
        if (list->n == 0) fill_axis(q, (SearchAxis)i, list);
        qsort(list->at, (size_t)list->n, sizeof *list->at, compare_values);
        const bool alone = i == SEARCH_EP && !has_experts(q->config);
        while (alone && list->n > 0 && list->at[list->n - 1] > 1) list->n--;
    }
}

/* All combinations of the words that search.* lists; a setting without a list keeps its value. What config_check
 * refuses, as details of a recipe without one, is left out; if it refuses all, its sentence is the error. */
static Status add_configurations(const Config *c, ConfigInts *out)
{
    const ConfigTexts *const lists[DIGITS] = { &c->search_buffers, &c->search_compute,
                                               &c->search_recipe, &c->search_offload };
    Status last = OK;
    bool any = false;
    for (int i = 0; i < DIGITS; i++) any = any || lists[i]->n > 0;
    for (int64_t value = 0; any && value < COMBINATIONS; value++) {
        Digits d = value_digits(value), own = own_digits(c);
        Config changed = *c;
        bool wanted = true;
        for (int i = 0; i < DIGITS; i++)
            wanted = wanted && is_wanted(lists[i], words[i], d.at[i], d.at[i] == own.at[i]);
        if (!wanted) continue;
        search_configure(&changed, value);
        last = config_check(&changed);
        if (last == OK) add_value(out, value);
    }
    if (out->n == 0) return last;
    status_clear();
    return OK;
}

/* Only what search.* names; axes left empty are filled later, when the number of GPUs is known. */
Status search_axes(const Config *c, SearchAxes *out)
{
    *out = (SearchAxes){ .axis = { [SEARCH_PP] = c->search_pp,
                                   [SEARCH_CP] = c->search_cp,
                                   [SEARCH_TP] = c->search_tp,
                                   [SEARCH_EP] = c->search_ep,
                                   [SEARCH_VPP] = c->search_vpp,
                                   [SEARCH_MICRO] = c->search_micro_batch,
                                   [SEARCH_ZERO] = c->search_zero,
                                   [SEARCH_SHARD] = c->search_shard } };
    for (int i = 0; i < c->search_schedule.n; i++) {
        const ScheduleDesc *d = NULL;
        TRY(schedule_find(c->search_schedule.at[i], &d));
        add_value(&out->axis[SEARCH_SCHEDULE], d - schedule_table);
    }
    for (int k = 0; k < search_recompute_n; k++) {
        if (config_has_text(&c->search_recompute, search_recompute[k].name))
            add_value(&out->axis[SEARCH_RECOMPUTE], k);
    }
    return add_configurations(c, &out->axis[SEARCH_BUFFERS]);
}

/* ---- combinations ---- */

int64_t search_combinations(const SearchAxes *axes, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++) n *= axes->axis[i].n;
    return n;
}

/* The last axis is the fastest digit. */
static void decode_axes(const SearchAxes *axes, int first, int end, int64_t id, int64_t *value)
{
    for (int i = end - 1; i >= first; i--) {
        const ConfigInts *list = &axes->axis[i];
        value[i] = list->at[id % list->n];
        id /= list->n;
    }
}

/* Everything that must divide without asking the schedule: GPUs, sequence, experts, batch, layers. */
static bool sizes_divide(const PlanRequest *q, const PlanLayout *l)
{
    const Config *c = q->config;
    if (l->cp > 1 && c->fp8_attention) return false; /* config_check_cp has both reasons */
    int64_t pieces = l->cp > 1 ? 2 * l->cp : 1, ranks = (int64_t)l->pp * l->cp * l->tp;
    if (q->gpus % ranks != 0 || c->data_sequence % pieces != 0) return false;
    int64_t wide = q->gpus / l->pp;
    if (wide % plan_expert_ranks(l) != 0 || (l->ep > 1 && c->moe_experts % l->ep != 0))
        return false;
    return plan_reaches(q, plan_expert_ranks(l)) && ramp_unit(c) % (l->dp * l->micro_batch) == 0 &&
           (int64_t)l->pp * l->vpp <= c->model_layers;
}

/* Does the schedule take the layout? With one pipeline rank all schedules are the same, so only 1f1b is tried. */
static bool schedule_takes(const PlanRequest *q, const PlanLayout *l)
{
    int64_t micros = q->config->train_batch / (l->dp * l->micro_batch);
    if (micros > SCHEDULE_MICROS_MAX || l->pp > SCHEDULE_STAGES_MAX) return false;
    if (l->pp == 1) return l->vpp == 1 && strcmp(l->schedule->name, "1f1b") == 0;
    int64_t blocks = (q->config->model_layers + (int64_t)l->pp * l->vpp - 1) / l->pp / l->vpp;
    const ScheduleShape shape = { .stages = l->pp,
                                  .chunks = l->vpp,
                                  .micros = (int)micros,
                                  .forward = 1,
                                  .input = 1,
                                  .weight = 1,
                                  .blocks = (int)blocks };
    return schedule_legal(l->schedule, &shape) == OK;
}

void search_set_outer(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l,
                      int *buffers)
{
    int64_t value[SEARCH_AXES];
    decode_axes(axes, 0, SEARCH_OUTER, id, value);
    *l = (PlanLayout){ .schedule = &schedule_table[value[SEARCH_SCHEDULE]],
                       .pp = (int)value[SEARCH_PP],
                       .vpp = (int)value[SEARCH_VPP],
                       .ep = (int)value[SEARCH_EP],
                       .etp = (int)q->config->mesh_etp,
                       .cp = (int)value[SEARCH_CP],
                       .tp = (int)value[SEARCH_TP],
                       .micro_batch = value[SEARCH_MICRO] };
    *buffers = (int)value[SEARCH_BUFFERS];
    l->dp = q->gpus / l->pp / l->cp / l->tp;
}

bool search_decode_outer(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l,
                         int *buffers)
{
    search_set_outer(q, axes, id, l, buffers);
    return sizes_divide(q, l) && schedule_takes(q, l);
}

/* Blocks of a chunk that a share of it is, rounded up: a share above 0 is at least one block. */
static int64_t blocks_of(int64_t in_chunk, const SearchRecompute *r)
{
    return (int64_t)ceil((double)in_chunk * r->share);
}

/* False also for a combination that means the same as another one. */
bool search_decode_inner(const PlanRequest *q, const SearchAxes *axes, int64_t id, PlanLayout *l)
{
    int64_t value[SEARCH_AXES], stages = (int64_t)l->pp * l->vpp;
    int64_t in_chunk = (q->config->model_layers + stages - 1) / stages;
    decode_axes(axes, SEARCH_OUTER, SEARCH_AXES, id, value);
    const SearchRecompute *r = &search_recompute[value[SEARCH_RECOMPUTE]];
    l->zero = (int)value[SEARCH_ZERO];
    l->shard = value[SEARCH_SHARD];
    l->recompute = r->pieces;
    l->recompute_blocks = r->share < 1 ? (int)blocks_of(in_chunk, r) : SCHEDULE_BLOCKS_MAX;
    if (plan_expert_ranks(l) == 1 && (r->pieces & RECOMPUTE_EXCHANGE)) return false;
    if (r->pieces != 0 && r->share < 1 && blocks_of(in_chunk, r) == blocks_of(in_chunk, r + 1))
        return false;
    const int64_t shards = l->dp * l->cp * (search_is_ours(q) ? l->tp : 1);
    if (shards == 1 && l->zero != axes->axis[SEARCH_ZERO].at[0]) return false;
    return l->shard == 0 || (l->zero > 0 && l->shard < l->dp && l->dp % l->shard == 0);
}

/* ---- if no layout is legal ---- */

/* Data-parallel ranks under the i-th combination of pipeline, context and tensor ranks; 0: it does not divide the GPUs. */
static int64_t dp_of(const SearchAxes *axes, int64_t gpus, int i)
{
    const ConfigInts *pp = &axes->axis[SEARCH_PP], *cp = &axes->axis[SEARCH_CP];
    const ConfigInts *tp = &axes->axis[SEARCH_TP];
    int64_t ranks = pp->at[i / cp->n / tp->n] * cp->at[i / tp->n % cp->n] * tp->at[i % tp->n];
    return gpus % ranks == 0 ? gpus / ranks : 0;
}

/* Is there any with which this number of GPUs can share out the batch? */
static bool batch_divides(const PlanRequest *q, const SearchAxes *axes, int64_t gpus)
{
    bool any = false;
    for (int i = 0; i < search_combinations(axes, SEARCH_PP, SEARCH_TP + 1) && !any; i++) {
        const int64_t dp = dp_of(axes, gpus, i);
        any = dp > 0 && ramp_unit(q->config) % dp == 0;
    }
    return any;
}

/* Counts down from the GPUs of the question. 0: not even one GPU can, which needs an axis without the value 1. */
int64_t search_gpus(const PlanRequest *q, const SearchAxes *given)
{
    PlanRequest other = *q;
    for (; other.gpus > 0; other.gpus--) {
        SearchAxes axes = *given;
        search_axes_fill(&other, &axes);
        if (batch_divides(q, &axes, other.gpus)) break;
    }
    return other.gpus;
}

/* A multiple of one of the possible numbers of data-parallel ranks. */
int64_t search_even_batch(const PlanRequest *q, const SearchAxes *given, int way)
{
    SearchAxes axes = *given;
    search_axes_fill(q, &axes);
    const int64_t batch = q->config->train_batch;
    int64_t best = 0;
    for (int i = 0; i < search_combinations(&axes, SEARCH_PP, SEARCH_TP + 1); i++) {
        const int64_t dp = dp_of(&axes, q->gpus, i);
        if (dp == 0) continue;
        const int64_t even[2] = { batch / dp * dp, (batch + dp - 1) / dp * dp };
        for (int k = way > 0; k < (way < 0 ? 1 : 2); k++) {
            int64_t off = llabs(even[k] - batch), least = llabs(best - batch);
            if (even[k] == 0 || (best > 0 && off > least)) continue;
            if (best == 0 || off < least || even[k] < best) best = even[k];
        }
    }
    return best;
}

Status search_why_none(const PlanRequest *q)
{
    return FAIL(ERR_ARG,
                "plan: no combination of axes is legal on %" PRId64
                " GPUs: pp * vpp is at most model.layers %" PRId64
                ", ep divides the model's experts, %" PRId64
                ", and gpus / pp, micro_batch divides train.batch %" PRId64
                " / dp, and a schedule must take vpp",
                q->gpus, q->config->model_layers,
                has_experts(q->config) ? q->config->moe_experts : 1, q->config->train_batch);
}

/* GPUs that hold one whole model: pp x lcm(ep x etp, cp x tp), because experts are spread over data, context and tensor
 * ranks. */
int64_t search_replica(const PlanLayout *l)
{
    int64_t own = (int64_t)l->cp * l->tp, a = plan_expert_ranks(l), b = own;
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return (int64_t)l->pp * plan_expert_ranks(l) * own / a;
}
