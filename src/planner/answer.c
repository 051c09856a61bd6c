/* answer: chooses a layout and prices it, names what limits it, and searches for one that fits. */
#include "planner/answer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- a layout ---- */

/* Searches on all GPUs, or, if these cannot divide the batch, on the largest number that can. */
static Status search_layouts(PlanAnswer *r, Arena *a)
{
    SearchAxes axes;
    PlanRequest *q = &r->request;
    TRY(search_axes(q->config, &axes));
    /* The nearest to a given layout cuts matrices as that does: four times fewer layouts. */
    if (!r->searched && axes.axis[SEARCH_TP].n == 0)
        axes.axis[SEARCH_TP] = (ConfigInts){ .n = 1, .at = { r->layout.tp } };
    int64_t gpus = search_gpus(q, &axes);
    r->asked = gpus > 0 && gpus < q->gpus ? q->gpus : 0;
    if (r->asked > 0) r->even_below = search_even_batch(q, &axes, -1);
    if (r->asked > 0) r->even_above = search_even_batch(q, &axes, 1);
    if (r->asked > 0) q->gpus = gpus;
    Progress bar = { .what = "search", .unit = "layouts", .left = "the search has no result" };
    SearchOptions o = { .axes = &axes, .pricer = &search_planner, .top = r->top, .bar = &bar };
    progress_begin(&bar);
    TRY(search_run(q, &o, a, &r->found));
    progress_end(&bar);
    return OK;
}

/* On a stack that runs our own lists the layers lie as the trainer would lay them, evenly, and the
 * list is simulated. */
static Status price_given(PlanAnswer *r, Arena *a)
{
    const PlanRequest *q = &r->request;
    TRY(plan_layout_of(q->config, q->gpus, a, &r->layout));
    TRY(planner_make(q, &r->planner));
    if (planner_runs_list(r->planner)) TRY(plan_spread_evenly(q->config, a, &r->layout));
    plan_recompute_by_chunk(q->config, &r->layout);
    return planner_price_list(r->planner, &r->layout, a, &r->price, NULL);
}

/* If nothing fits, the nearest layout is the answer, and plan_answer_fits turns it into an error. */
static Status price_best(PlanAnswer *r, Arena *a)
{
    TRY(search_layouts(r, a));
    const SearchRow *row = r->found.n_best > 0 ? r->found.best : &r->found.nearest;
    r->layout = row->layout;
    r->price = row->price;
    search_configure(&r->config, row->buffers); /* the rest of the answer is about this row */
    TRY(search_batch(&r->request, &r->found, &r->batch));
    return planner_make(&r->request, &r->planner);
}

/* The answer owns a copy of the configuration, because a search changes settings in it. */
Status plan_answer(const PlanQuestion *q, Arena *a, PlanAnswer *out)
{
    *out = (PlanAnswer){
        .config = *q->request.config, .request = q->request, .searched = q->search, .top = q->top
    };
    out->request.config = &out->config;
    return (q->search ? price_best : price_given)(out, a);
}

void plan_answer_free(PlanAnswer *r)
{
    planner_free(r->planner);
    r->planner = NULL;
}

/* ---- notes and reports ---- */

/* Two notes: the batch cannot use all GPUs, or a larger batch would be faster. */
Status plan_answer_limits(const PlanAnswer *r, Text *out)
{
    char gpus[32], asked[32], batch[32], below[64] = "";
    (void)text_thousands(gpus, r->request.gpus);
    (void)text_thousands(batch, r->config.train_batch);
    if (r->even_below > 0)
        (void)snprintf(below, sizeof below, "train.batch=%" PRId64 " below and ", r->even_below);
    if (r->asked > 0)
        TRY(text_printf(out,
                        "gpus        %s cannot share out train.batch %s: this is for %s of them, "
                        "the most that can; all share out %strain.batch=%" PRId64 " above\n",
                        text_thousands(asked, r->asked), batch, gpus, below, r->even_above));
    if (r->batch.sequences == 0) return OK;
    return text_printf(out,
                       "batch       %s sequences are too few for %s GPUs and limit all layouts; "
                       "with train.batch=%" PRId64 " layouts like these reach ~%.0f tokens/s/GPU\n",
                       batch, gpus, r->batch.sequences, r->batch.tokens_per_s_per_gpu);
}

static Status name_partitions(PlanAnswer *r, SearchRow *row, int n, Arena *a)
{
    for (int i = 0; i < n; i++)
        TRY(planner_partition(r->planner, &row[i].layout, a, &row[i].partition));
    return OK;
}

/* The price of a layout like the answer's with a configuration like its own. */
static Status price_other(const PlanAnswer *r, const Config *c, const PlanLayout *l, Arena *a,
                          PlanPrice *out)
{
    PlanRequest q = r->request;
    Planner *p = NULL;
    q.config = c;
    TRY(planner_make(&q, &p));
    Status s = planner_price_list(p, l, a, out, NULL);
    planner_free(p);
    return s;
}

/* The same layout where routers leave the busiest rank with more rows. More rows are never faster: where the host sets
 * the pace they take as long, and only rounding differs. */
static Status price_unbalanced(const PlanAnswer *r, Arena *a, double *out)
{
    Config c = r->config;
    PlanPrice price = { 0 };
    *out = 0;
    if (plan_expert_ranks(&r->layout) < 2 || c.moe_forced_balance) return OK;
    c.plan_imbalance *= PLAN_UNBALANCED;
    TRY(price_other(r, &c, &r->layout, a, &price));
    *out = fmin(price.tokens_per_s_per_gpu, r->price.tokens_per_s_per_gpu);
    return OK;
}

/* The slope: as many layers more on each stage as kinds of layers take turns, and of what they add the part of one. It
 * has none where the recomputed layers are a list, or a model so deep is refused. */
static Status price_deeper(const PlanAnswer *r, Arena *a, PlanReport *out)
{
    Config c = r->config;
    PlanLayout l = r->layout;
    PlanPrice deep = { 0 };
    Layout of;
    const bool experts = 2 * config_moe_layers(&c) >= c.model_layers;
    const int64_t turns =
        (int64_t)fmax(experts ? (double)c.moe_every : 1, (double)c.attention_full_every);
    if (l.again != NULL) return OK;
    TRY(layout_parse(out->partition, 0, (int)c.model_layers, a, &of));
    for (int i = 0; i < of.stages; i++)
        of.stage[i].first += i * (int)turns, of.stage[i].layers += (int)turns;
    const int64_t more = turns * of.stages;
    of.layers += (int)more, c.model_layers += more;
    if (!experts) c.model_dense_layers += more;
    l.partition = &of;
    if (price_other(r, &c, &l, a, &deep) != OK) return status_clear(), OK;
    if (deep.room.pool > 0) /* a deeper model may have less room for rows of each layer */
        deep.peak_bytes += deep.pool_bytes * (r->price.room.pool / deep.room.pool - 1);
    out->slope_s = (deep.step_s - r->price.step_s) / (double)more;
    out->slope_bytes = (deep.peak_bytes - r->price.peak_bytes) / (double)(turns * l.vpp);
    out->slope_of = experts ? "with experts" : "without experts";
    return OK;
}

Status plan_answer_report(PlanAnswer *r, Arena *a, PlanReport *out)
{
    SearchResult *found = &r->found;
    *out = (PlanReport){ .request = &r->request,
                         .layout = &r->layout,
                         .price = &r->price,
                         .search = r->searched ? found : NULL,
                         .asked = r->asked,
                         .batch = r->batch,
                         .skips_documents = planner_skips_documents(r->planner) };
    TRY(name_partitions(r, found->best, found->n_best, a));
    TRY(name_partitions(r, found->front, found->n_front, a));
    if (r->searched && found->n_best == 0) TRY(name_partitions(r, &found->nearest, 1, a));
    const PlanLayout *l = &r->layout;
    TRY(plan_intervals(&r->request, &l, 1, &out->interval));
    TRY(price_unbalanced(r, a, &out->unbalanced));
    TRY(planner_partition(r->planner, &r->layout, a, &out->partition));
    return price_deeper(r, a, out);
}

Status plan_answer_write(const PlanAnswer *r, const PlanReport *report, int64_t row, Arena *a,
                         Text *out)
{
    const SearchResult *s = &r->found;
    SearchRow own = { .layout = r->layout, .price = r->price, .partition = report->partition };
    const SearchRow *at = &own;
    const int64_t rows = r->searched ? s->n_best + s->n_front : 1;
    Config c;
    if (row > rows)
        return FAIL(ERR_ARG, "plan: --row %" PRId64 ": there are rows 1 to %" PRId64, row, rows);
    if (r->searched) at = row <= s->n_best ? &s->best[row - 1] : &s->front[row - 1 - s->n_best];
    TRY(plan_config_of(&r->config, &at->layout, &at->price, at->partition, a, &c));
    return config_print(&c, out);
}

/* Does nothing if this step is there already. */
Status plan_answer_simulate(PlanAnswer *r, bool list, Arena *a)
{
    if (r->step.pipeline.stages > 0 && (!list || planner_runs_list(r->planner))) return OK;
    if (list) TRY(plan_spread_evenly(&r->config, a, &r->layout));
    return planner_simulate(r->planner, &r->layout, list || planner_runs_list(r->planner), a,
                            &r->step);
}

/* ---- what does not fit ---- */

/* A given layout that does not fit starts a search near it, so that the error can name one that
 * does. A tight one is an answer: published runs have used 99 % of a GPU. */
Status plan_answer_fits(PlanAnswer *r, Arena *a)
{
    const double gib = r->request.hardware->memory_gib, margin = r->config.plan_margin;
    const double room = plan_room_bytes(&r->request) / PLAN_GIB;
    double needs = r->price.peak_bytes / PLAN_GIB;
    const PlanLayout *nearest = &r->layout;
    const PlanPrice *price = &r->price;
    char layout[PLAN_LAYOUT_BYTES];
    if (r->price.fits || (!r->searched && r->price.tight)) return OK;
    if (!r->searched) {
        TRY(search_near(&r->request, &r->layout, a, &r->found));
        const SearchRow *row = search_nearest(&r->found, &r->layout);
        if (row != NULL)
            return FAIL(
                ERR_FIT,
                "plan: this layout takes %.2f GiB, %.2f of %.1f may be used (plan.margin %g), "
                "it lacks %.2f; the nearest found that fits takes %.2f: %s",
                needs, room, gib, margin, needs - room, row->price.peak_bytes / PLAN_GIB,
                plan_layout_text(layout, &row->layout, &row->price));
        if (r->found.nearest.layout.pp > 0) {
            nearest = &r->found.nearest.layout;
            price = &r->found.nearest.price;
        }
    }
    needs = price->peak_bytes / PLAN_GIB;
    return FAIL(ERR_FIT,
                "plan: nothing%s fits: the nearest, %s, takes %.2f GiB, %.2f of %.1f may be used "
                "(plan.margin %g), it lacks %.2f%s",
                r->searched ? "" : " near it", plan_layout_text(layout, nearest, price), needs,
                room, gib, margin, needs - room,
                r->searched ? "" : "; --search looks at all layouts");
}

/* ---- the same training on more GPUs ---- */

Status plan_scale_add(const PlanQuestion *q, int64_t gpus, Arena *a, PlanScale *row, int *n,
                      const char **limits)
{
    PlanQuestion one = *q;
    PlanAnswer *r = NULL; /* in the arena: the row's layout may point to its configuration */
    Text lines;
    one.request.gpus = gpus;
    TRY(ARENA_ZEROED(a, 1, &r));
    Status s = plan_answer(&one, a, r);
    if (s == OK) s = text_init(&lines, a);
    if (s == OK) s = plan_answer_limits(r, &lines);
    if (s == OK) {
        PlanScale *next = &row[(*n)++];
        *next = (PlanScale){ .gpus = r->request.gpus, .layout = r->layout, .price = r->price };
        if (q->tokens > 0) plan_goodput(&r->request, &r->price, q->tokens, &next->goodput);
    }
    if (s == OK) *limits = lines.data;
    plan_answer_free(r);
    return s;
}

Status plan_scale_fits(const PlanScale *row, int n, const char *asked)
{
    bool fits = false;
    for (int i = 0; i < n; i++) {
        fits |= row[i].price.fits || row[i].price.tight;
        if ((row[i].price.fits || row[i].price.tight) &&
            (row[i].goodput.full_s == 0 || row[i].goodput.share > 0))
            return OK;
    }
    if (fits)
        return FAIL(ERR_FIT,
                    "plan: of --scale %s no training ends, because GPUs fail too often for "
                    "plan.restart_s and its checkpoints (plan.mtbf_hours)",
                    asked);
    return FAIL(ERR_FIT,
                "plan: nothing fits: of --scale %s no row does; try --search, or more mesh.pp or "
                "mesh.ep",
                asked);
}
