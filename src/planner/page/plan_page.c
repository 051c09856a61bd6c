/* plan_page: the sections of a plan's page, in their order. Groups of GPUs are in plan_mesh.c; timelines
 * and what each rank holds and does are pipeline_page.c's. */
#include "planner/page/plan_page.h"

#include "pages/charts/page.h"
#include "planner/page/pipeline_page.h"
#include "planner/stack/stack.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = 1080,
    BARS_MOST = 64,    /* ranks whose memory is drawn */
    TIMELINES = 8,     /* best layouts with a timeline */
    MORE_BOXES = 8000, /* of each timeline behind the first */
    ROWS_MOST = SEARCH_TOP_MAX + SEARCH_FRONT_MAX
};

static const double DAY_S = 86400;

/* ---- what is drawn of a layout ---- */

/* A layout with its memory by pipeline rank and kind, its groups of GPUs, and its timeline. */
typedef struct Drawn {
    const PlanLayout *layout;
    const PlanPrice *price;
    double (*memory)[PLAN_KINDS];
    PlanGroups groups;
    Timeline timeline;
} Drawn;

/* The best rows that have a timeline; 0: there was no search, or nothing fits. */
static int best_rows(const PlanPage *p)
{
    int n = p->answer->searched ? p->answer->found.n_best : 0;
    return n < TIMELINES ? n : TIMELINES;
}

static double kinds_sum(const double memory[PLAN_KINDS])
{
    double sum = 0;
    for (int k = 0; k < PLAN_KINDS; k++) sum += memory[k];
    return sum;
}

/* Makes the timeline of a simulated step. The simulation follows activations over time; the other kinds
 * are constant, and each rank has its own. It counts what waits between stages as activations, the price
 * as buffers, so buffers are less by what would be counted twice. */
static Status make_timeline(const PlanPage *p, const PlanStep *step, const char *title, Drawn *d)
{
    TimelineResident kept[PLAN_KINDS];
    Timeline *t = &d->timeline;
    int n = 0, ranks = d->layout->pp;
    for (int k = 0; k < PLAN_KINDS; k++) {
        double *bytes = NULL;
        if (k == PLAN_ACTIVATIONS) continue;
        TRY(ARENA_NEW(p->arena, ranks, &bytes));
        for (int r = 0; r < ranks; r++) {
            double twice = fmax(0, step->sim.rank[r].peak_bytes - d->memory[r][PLAN_ACTIVATIONS]);
            bytes[r] = fmax(0, d->memory[r][k] - (k == PLAN_BUFFERS ? twice : 0));
        }
        kept[n++] = (TimelineResident){ plan_kind_names[k], bytes };
    }
    TRY(timeline_simulated(&step->pipeline, &step->sim, kept, n, title, p->arena, t));
    for (int r = 0; r < ranks; r++) t->rank[r].peak_bytes = kinds_sum(d->memory[r]);
    timeline_sum(t);
    t->room_bytes = plan_room_bytes(&p->answer->request);
    return OK;
}

static Status ask_planner(const PlanPage *p, Planner *planner, Drawn *d, PlanStep *step)
{
    TRY(planner_memory(planner, d->layout, d->price, d->memory));
    TRY(planner_groups(planner, d->layout, d->price, &d->groups));
    return planner_simulate(planner, d->layout, planner_runs_list(planner), p->arena, step);
}

/* Rows of a search may have other settings than the answer (`config`), so each has a planner of its own. */
static Status draw_layout(const PlanPage *p, const Config *config, const PlanLayout *layout,
                          const PlanPrice *price, unsigned others, Drawn *out)
{
    PlanRequest q = p->answer->request;
    PlanLayout l = *layout;
    PlanStep step;
    Planner *planner = NULL;
    char text[PLAN_LAYOUT_BYTES], also[PLAN_ALSO_BYTES], both[PLAN_LAYOUT_BYTES + PLAN_ALSO_BYTES];
    const char *title = NULL;
    int n = snprintf(both, sizeof both, "%s%s", plan_layout_text(text, layout, price),
                     plan_also_text(also, others, "; the same under ", ", "));
    q.config = config;
    l.room = price->room;
    *out = (Drawn){ .layout = &l, .price = price };
    TRY(arena_text(p->arena, both, (size_t)n, &title));
    TRY(ARENA_NEW(p->arena, l.pp, &out->memory));
    TRY(planner_make(&q, &planner));
    Status s = ask_planner(p, planner, out, &step);
    planner_free(planner);
    out->layout = layout;
    TRY(s);
    return make_timeline(p, &step, title, out);
}

/* ---- what it is about ---- */

static Status header_part(const PlanPage *p, const char *title, Text *out)
{
    const PlanAnswer *r = p->answer;
    const char *layouts = best_rows(p) > 0 ? "<a href=\"#layouts\">layouts</a>" : "";
    char layout[PLAN_LAYOUT_BYTES];
    TRY(page_begin(out, title));
    TRY(pipeline_style(out));
    TRY(text_markup(out, "<header><h1>%s</h1><p>%s; partition %s</p>", title,
                    plan_layout_text(layout, &r->layout, &r->price), p->report->partition));
    TRY(text_printf(out,
                    "<nav>%s<a href=\"#memory\">memory</a><a href=\"#time\">time</a>"
                    "<a href=\"#mesh\">groups of GPUs</a><a href=\"#timeline1\">timeline</a></nav>"
                    "</header>\n",
                    layouts));
    if (p->unfit == NULL) return OK;
    return text_markup(out, "<p class=\"bad verdict\">Does not fit: %s</p>\n", p->unfit);
}

static Status question_facts(const PlanPage *p, Text *out)
{
    const PlanRequest *q = &p->answer->request;
    const Config *c = q->config;
    const PlanLayout *l = &p->answer->layout;
    int64_t each = (int64_t)q->hardware->scale_up_gpus, hosts = (q->gpus + each - 1) / each;
    char a[32], b[32], value[64];
    (void)snprintf(value, sizeof value, "%s GPUs", text_thousands(a, q->gpus));
    TRY(part_fact(out, "Cluster", value, "%s, %s %s%s of %" PRId64, q->hardware->gpu_title,
                  text_thousands(b, hosts), plan_mesh_domain(q->hardware), hosts == 1 ? "" : "s",
                  each < q->gpus ? each : q->gpus));
    TRY(part_fact(out, "Model", c->model_name, "stack %s", p->report->stack));
    (void)snprintf(value, sizeof value, "%s x %s", text_thousands(a, c->train_batch),
                   text_thousands(b, c->data_sequence));
    TRY(part_fact(out, "Batch", value, "sequences x tokens, %" PRId64 " micro-batches of %" PRId64,
                  c->train_batch / l->dp / l->micro_batch, l->micro_batch));
    return part_fact(out, "Precision", dtype_name(compute_type(p->answer->price.compute)),
                     "run.compute, the type of products");
}

static Status training_fact(const PlanPage *p, Text *out)
{
    Goodput g;
    char days[32], tokens[32], mean[160] = "it never ends", cost[GPU_HOUR_COST_BYTES];
    if (p->report->tokens <= 0) return OK;
    plan_goodput(&p->answer->request, &p->answer->price, p->report->tokens, &g);
    (void)snprintf(days, sizeof days, "%.1f days", g.full_s / DAY_S);
    if (g.share > 0)
        (void)snprintf(mean, sizeof mean, "%.1f (P90 %.1f), whole %.1f (plan.lost)%s%s",
                       g.mean_s / DAY_S, g.p90_s / DAY_S, g.whole_s / DAY_S,
                       g.hour.price > 0 ? ", cost " : "",
                       g.hour.price > 0 ? gpu_hour_cost(cost, &g.hour, g.gpu_hours) : "");
    return part_fact(out, "Training", days, "%s tokens at full speed; with failures %s",
                     text_si(tokens, p->report->tokens), mean);
}

/* What failures and checkpoints make of the GPU's hours, and the energy for that. */
static Status cost_fact(const PlanPage *p, Text *out)
{
    Goodput g;
    char hours[32], energy[64] = "of all GPUs, with failures and checkpoints";
    if (p->report->tokens <= 0) return OK;
    plan_goodput(&p->answer->request, &p->answer->price, p->report->tokens, &g);
    if (g.share == 0) return OK;
    if (g.megawatt_h > 0)
        (void)snprintf(energy, sizeof energy, "with failures and checkpoints; at most %.1f MWh",
                       g.megawatt_h);
    return part_fact(out, "Cost, GPU hours", text_thousands(hours, llround(g.gpu_hours)), "%s",
                     energy);
}

static Status answer_facts(const PlanPage *p, Text *out)
{
    const PlanRequest *q = &p->answer->request;
    const PlanPrice *price = &p->answer->price;
    char value[64], name[32], a[32];
    (void)snprintf(value, sizeof value, "%.1f", price->tokens_per_s_per_gpu);
    const PlanInterval *v = &p->report->interval;
    TRY(part_fact(out, "Speed, tokens/s/GPU", value,
                  "interval %.0f to %.0f%s; %.1f %% of the bf16 peak (MFU)",
                  price->tokens_per_s_per_gpu / (1 + v->time),
                  price->tokens_per_s_per_gpu * (1 + v->faster),
                  v->assumed ? ", links assumed" : "", 100 * price->mfu));
    TRY(part_fact(out, "Step", svg_value_text(a, price->step_s, SVG_SECONDS),
                  "compute %.1f %%; bubble %.1f %%: the mean share of the pipeline's time in which "
                  "compute lanes run nothing",
                  100 * price->part_s[PLAN_COMPUTE] / price->step_s, 100 * price->bubble));
    (void)snprintf(value, sizeof value, "%.2f of %.2f GiB", price->peak_bytes / PLAN_GIB,
                   plan_room_bytes(q) / PLAN_GIB);
    (void)snprintf(name, sizeof name, "Memory: %s", plan_fit_word(price));
    if (!price->fits) TRY(text_printf(out, "<div class=\"bad\">"));
    TRY(part_fact(out, name, value,
                  "interval up to %.1f; pipeline rank %d, the fullest; the GPU has %.1f GiB, "
                  "plan.margin is %g",
                  price->peak_bytes * (1 + v->bytes) / PLAN_GIB, price->worst_rank,
                  q->hardware->memory_gib, q->config->plan_margin));
    if (!price->fits) TRY(text_printf(out, "</div>"));
    TRY(training_fact(p, out));
    return cost_fact(p, out);
}

/* The same lines that the text has: which rates are measured, published or assumed, what limits all layouts, and what
 * is not proven. Each begins with its word. */
static Status basis_part(const PlanPage *p, Text *out)
{
    Text lines;
    int n = 0;
    TRY(text_init(&lines, p->arena));
    TRY(plan_report_basis(&p->answer->request, true, &lines));
    TRY(plan_answer_limits(p->answer, &lines));
    TRY(plan_report_notes(p->report, &lines));
    TRY(text_printf(out, "<section id=\"basis\"><h2>What this rests on</h2>\n<dl>\n"));
    for (const char *at = lines.data; *at != '\0'; at += n + (at[n] == '\n')) {
        n = (int)strcspn(at, "\n");
        if (n <= PLAN_LINE_WORD) continue;
        TRY(text_markup(out, "<dt>%.*s</dt><dd>%.*s</dd>\n", (int)strcspn(at, " "), at,
                        n - PLAN_LINE_WORD, at + PLAN_LINE_WORD));
    }
    return text_printf(out, "</dl></section>\n");
}

/* ---- memory and time ---- */

static Status bars_section(Text *out, const char *id, const SvgBars *bars)
{
    TRY(text_printf(out, "<section id=\"%s\"><h2>%s</h2>\n", id, bars->title));
    TRY(part_broad(out, NULL, bars));
    return text_printf(out, "</section>\n");
}

/* Kinds of each rank against what may be used, and what the GPU has. Of many ranks some, evenly chosen. */
static Status memory_section(const PlanPage *p, const Drawn *d, Text *out)
{
    const PlanRequest *q = &p->answer->request;
    const Timeline *t = &d->timeline;
    char name[BARS_MOST][24], use[64], has[64], title[96] = "Memory of each pipeline rank";
    const char *row[BARS_MOST];
    double value[BARS_MOST][PLAN_KINDS], room = plan_room_bytes(q);
    for (int i = 0; i < t->shown; i++) {
        int rank = timeline_shown_rank(t, i);
        (void)snprintf(name[i], sizeof name[i], "rank %d", rank);
        row[i] = name[i];
        memcpy(value[i], d->memory[rank], sizeof value[i]);
    }
    if (t->shown < t->ranks)
        (void)snprintf(title, sizeof title, "Memory of %d of %d pipeline ranks", t->shown,
                       t->ranks);
    (void)snprintf(use, sizeof use, "%.1f GiB may be used", room / PLAN_GIB);
    (void)snprintf(has, sizeof has, "the GPU has %.1f GiB", q->hardware->memory_gib);
    const SvgGuide guide[] = { { room, use }, { q->hardware->memory_gib * PLAN_GIB, has } };
    const SvgBars bars = { title,      row,   plan_kind_names, *value, t->shown,
                           PLAN_KINDS, WIDTH, SVG_BYTES,       guide,  2 };
    return bars_section(out, "memory", &bars);
}

/* The parts of the step; of a search those of all layouts with a timeline, one bar each. */
static Status time_section(const PlanPage *p, Text *out)
{
    int best = best_rows(p), rows = best == 0 ? 1 : best;
    char name[TIMELINES][16];
    const char *row[TIMELINES];
    double value[TIMELINES][PLAN_PARTS];
    for (int i = 0; i < rows; i++) {
        const PlanPrice *price = best == 0 ? &p->answer->price : &p->answer->found.best[i].price;
        (void)snprintf(name[i], sizeof name[i], best == 0 ? "step" : "row %d", i + 1);
        row[i] = name[i];
        memcpy(value[i], price->part_s, sizeof value[i]);
    }
    const SvgBars bars = { "Where the step's time goes",
                           row,
                           plan_part_words,
                           *value,
                           rows,
                           PLAN_PARTS,
                           WIDTH,
                           SVG_SECONDS,
                           NULL,
                           0 };
    return bars_section(out, "time", &bars);
}

/* ---- layouts of a search ---- */

/* The best rows, then those of the front that are not among them. */
typedef struct ListRows {
    const SearchRow *at[ROWS_MOST];
    int n, n_best;
} ListRows;

static void collect_rows(const SearchResult *found, ListRows *out)
{
    for (out->n = 0; out->n < found->n_best; out->n++) out->at[out->n] = &found->best[out->n];
    out->n_best = out->n;
    for (int i = 0; i < found->n_front; i++) {
        bool known = false;
        for (int k = 0; k < out->n_best; k++)
            known |= out->at[k]->id == found->front[i].id &&
                     out->at[k]->layout.schedule == found->front[i].layout.schedule;
        if (!known) out->at[out->n++] = &found->front[i];
    }
}

/* The points of a plot, by row. */
typedef struct Points {
    double x[ROWS_MOST], y[ROWS_MOST], radius[ROWS_MOST];
    const char *label[ROWS_MOST], *link[ROWS_MOST];
    char text[ROWS_MOST][PLAN_LAYOUT_BYTES + 96], to[ROWS_MOST][16];
} Points;

/* Memory over speed: what more memory buys. Each point leads to its row. */
static Status layouts_plot(const PlanPage *p, const ListRows *rows, Text *out)
{
    Points *at = NULL;
    const int best = rows->n_best;
    TRY(ARENA_NEW(p->arena, 1, &at));
    for (int i = 0; i < rows->n; i++) {
        const PlanPrice *price = &rows->at[i]->price;
        char layout[PLAN_LAYOUT_BYTES];
        at->x[i] = price->tokens_per_s_per_gpu;
        at->y[i] = price->peak_bytes / PLAN_GIB;
        at->radius[i] = i < best ? 6 : 4;
        (void)snprintf(at->text[i], sizeof at->text[i], "%d: %.1f tokens/s/GPU, %.2f GiB: %s",
                       i + 1, at->x[i], at->y[i],
                       plan_layout_text(layout, &rows->at[i]->layout, price));
        (void)snprintf(at->to[i], sizeof at->to[i], "#row%d", i + 1);
        at->label[i] = at->text[i];
        at->link[i] = at->to[i];
    }
    const SvgSeries series[] = {
        { "front of memory and time", NULL, at->x + best, at->y + best, rows->n - best, 0,
          SVG_POINTS, at->radius + best, at->label + best, at->link + best },
        { "best", NULL, at->x, at->y, best, 1, SVG_POINTS, at->radius, at->label, at->link },
    };
    const SvgGuide guide = { plan_room_bytes(&p->answer->request) / PLAN_GIB, "may be used" };
    const SvgChart chart = {
        "Memory over speed", "tokens/s/GPU",  "GiB",      series, 2, WIDTH, 360,
        .from_zero = true,   .guide = &guide, .guides = 1
    };
    return part_broad(out, &chart, NULL);
}

static Status layout_row(Text *out, const ListRows *rows, int i)
{
    const PlanPrice *price = &rows->at[i]->price;
    char layout[PLAN_LAYOUT_BYTES], also[PLAN_ALSO_BYTES], timeline[48] = "";
    if (i < TIMELINES && i < rows->n_best)
        (void)snprintf(timeline, sizeof timeline, "<a href=\"#timeline%d\">timeline</a>", i + 1);
    TRY(text_markup(out,
                    "<tr id=\"row%d\"><td>%d</td><td>%s</td><td>%.1f</td><td>%.2f</td>"
                    "<td>%.3f</td><td>%.1f %%</td><td class=\"words\">%s%s</td>",
                    i + 1, i + 1, i < rows->n_best ? "best" : "front", price->tokens_per_s_per_gpu,
                    price->peak_bytes / PLAN_GIB, price->step_s, 100 * price->bubble,
                    plan_layout_text(layout, &rows->at[i]->layout, price),
                    plan_also_text(also, rows->at[i]->also, "; the same under ", ", ")));
    return text_printf(out, "<td>%s</td></tr>\n", timeline);
}

static Status layouts_section(const PlanPage *p, Text *out)
{
    const SearchResult *found = &p->answer->found;
    char a[32], b[32];
    ListRows *rows = NULL;
    if (best_rows(p) == 0) return OK;
    TRY(ARENA_NEW(p->arena, 1, &rows));
    collect_rows(found, rows);
    TRY(text_printf(out,
                    "<section id=\"layouts\"><h2>Layouts</h2>\n<p class=\"note\">%s legal layouts, "
                    "%s simulated: the best, and the front, on which less memory costs speed. A "
                    "point leads to its row.</p>\n",
                    text_thousands(a, found->count.legal),
                    text_thousands(b, found->count.simulated)));
    TRY(layouts_plot(p, rows, out));
    TRY(text_printf(out, "<div class=\"wide\"><table class=\"fit\"><thead><tr><th></th><th></th>"
                         "<th>tokens/s/GPU</th><th>GiB</th><th>step, s</th><th>bubble</th>"
                         "<th class=\"words\">layout</th><th></th></tr></thead><tbody>\n"));
    for (int i = 0; i < rows->n; i++) TRY(layout_row(out, rows, i));
    return text_printf(out, "</tbody></table></div></section>\n");
}

/* ---- the page ---- */

/* All timelines are those of a mean GPU. Those of stacks that run no list have passes alone. */
static Status timeline_part(const Drawn *d, double axis_s, Text *out)
{
    const double drawn_s = d->timeline.step_s, step_s = d->price->step_s;
    const double more_s = d->price->part_s[PLAN_SLOWEST];
    const bool all = drawn_s + more_s > 0.995 * step_s;
    TRY(pipeline_timeline(out, &d->timeline, axis_s));
    if (drawn_s > 0.999 * step_s) return OK;
    return text_printf(out,
                       "<p class=\"note\">This is a mean GPU. The step takes %.4g s: it waits %.3g "
                       "s for the slowest GPU%s.</p>\n",
                       step_s, more_s, all ? "" : "; gradients, update and waits are not drawn");
}

/* The answer's timeline, then those of further rows. All share one time axis. */
static Status timelines_part(const PlanPage *p, const Drawn *d, Text *out)
{
    const SearchRow *best = p->answer->found.best;
    int n = best_rows(p);
    Drawn more[TIMELINES];
    double axis_s = d->timeline.step_s;
    for (int i = 1; i < n; i++) {
        Config config = p->answer->config;
        search_configure(&config, best[i].buffers);
        TRY(draw_layout(p, &config, &best[i].layout, &best[i].price, best[i].also, &more[i]));
        timeline_limit(&more[i].timeline, MORE_BOXES);
        axis_s = fmax(axis_s, more[i].timeline.step_s);
    }
    TRY(text_printf(out, "<section id=\"timeline1\"><h2>Timeline of the step</h2>\n"));
    TRY(timeline_part(d, axis_s, out));
    TRY(pipeline_ranks(out, &d->timeline));
    for (int i = 1; i < n; i++) {
        TRY(text_printf(out, "</section>\n<section id=\"timeline%d\"><h2>Timeline of row %d</h2>\n",
                        i + 1, i + 1));
        TRY(timeline_part(&more[i], axis_s, out));
    }
    return text_printf(out, "</section>\n");
}

static Status page_text(const PlanPage *p, const Drawn *d, Text *out)
{
    const PlanAnswer *r = p->answer;
    char title[256], gpus[32];
    (void)snprintf(title, sizeof title, "%.80s on %s x %.80s", r->config.model_name,
                   text_thousands(gpus, r->request.gpus), r->request.hardware->gpu_title);
    TRY(header_part(p, title, out));
    TRY(text_printf(out, "<div class=\"facts\">\n"));
    TRY(question_facts(p, out));
    TRY(answer_facts(p, out));
    TRY(text_printf(out, "</div>\n"));
    TRY(basis_part(p, out));
    TRY(layouts_section(p, out));
    TRY(memory_section(p, d, out));
    TRY(time_section(p, out));
    TRY(plan_mesh_section(out, &r->request, &d->groups));
    TRY(timelines_part(p, d, out));
    return page_end(out, "pipeline.js");
}

Status plan_page_write(const PlanPage *p, const char *path, Text *out)
{
    const PlanAnswer *r = p->answer;
    Drawn d;
    size_t before = out->used;
    unsigned also = best_rows(p) > 0 ? r->found.best->also : 0;
    TRY(draw_layout(p, &r->config, &r->layout, &r->price, also, &d));
    if (text_ends(path, ".svg"))
        return pipeline_write(path, &(PipelineView){ .timeline = &d.timeline, .timelines = 1 },
                              out);
    TRY(page_text(p, &d, out));
    return pipeline_put(path, out, before);
}

/* ---- scaling ---- */

/* "60.1; 60.4 with failures (P90 60.6)"; NULL: not asked. */
static Status training_days(const Goodput *g, Arena *a, const char **out)
{
    char days[96];
    if (g->full_s <= 0) return OK;
    int n = snprintf(days, sizeof days, "%.1f; ", g->full_s / DAY_S);
    if (g->share > 0)
        n += snprintf(days + n, sizeof days - (size_t)n, "%.1f with failures (P90 %.1f)",
                      g->mean_s / DAY_S, g->p90_s / DAY_S);
    else
        n += snprintf(days + n, sizeof days - (size_t)n, "with failures it never ends");
    return arena_text(a, days, (size_t)n, out);
}

Status plan_page_scaling(const PlanQuestion *q, const PlanScale *row, int n, const char *path,
                         Arena *a, Text *out)
{
    Scaling s = { .title = q->request.config->model_name, .points = n };
    for (int i = 0; i < n; i++) {
        char layout[PLAN_LAYOUT_BYTES], losses[PLAN_LOSSES_BYTES];
        (void)plan_layout_text(layout, &row[i].layout, &row[i].price);
        (void)plan_scale_losses(losses, row, i, "");
        TRY(arena_text(a, layout, strlen(layout), &s.layout[i]));
        TRY(arena_text(a, losses, strlen(losses), &s.reason[i]));
        TRY(training_days(&row[i].goodput, a, &s.days[i]));
        s.gpus[i] = (double)row[i].gpus;
        s.tokens_per_s_per_gpu[i] = row[i].price.tokens_per_s_per_gpu;
        s.efficiency[i] = plan_scale_efficiency(row, i);
        s.unfit[i] = !row[i].price.fits;
    }
    char title[128], batch[32], length[32];
    const Config *c = q->request.config;
    Text about;
    (void)snprintf(title, sizeof title, "%.60s on %.60s", c->model_name,
                   q->request.hardware->gpu_title);
    TRY(text_init(&about, a));
    TRY(text_printf(&about, "%s sequences of %s tokens a step on all numbers of GPUs; %s; ",
                    text_thousands(batch, c->train_batch), text_thousands(length, c->data_sequence),
                    q->request.stack->name));
    TRY(plan_report_basis(&q->request, true, &about));
    for (size_t i = 0; i + 1 < about.used; i++) /* its lines become one */
        if (about.data[i] == '\n') about.data[i] = ';';
    const PipelineView v = { .title = title, .about = about.data, .scaling = &s, .scalings = 1 };
    return pipeline_write(path, &v, out);
}
