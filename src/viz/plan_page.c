/* plan_page: the sections of a plan's page, in their order. Groups of GPUs are in plan_mesh.c; timelines
 * and what each rank holds and does are pipeline_page.c's. */
#include "viz/plan_page.h"

#include "viz/page.h"
#include "viz/pipeline_page.h"

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

/* ---- timelines ---- */

/* A layout with its memory by pipeline rank and kind. */
typedef struct Drawn {
    const PlanLayout *layout;
    const PlanPrice *price;
    double (*memory)[PLAN_KINDS];
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
static Status make_timeline(const PlanPage *p, const Drawn *d, const PlanStep *step,
                            const char *title, Timeline *out)
{
    TimelineResident kept[PLAN_KINDS];
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
    TRY(timeline_simulated(&step->pipeline, &step->sim, kept, n, title, p->arena, out));
    for (int r = 0; r < ranks; r++) out->rank[r].peak_bytes = kinds_sum(d->memory[r]);
    timeline_sum(out);
    out->room_bytes = plan_room_bytes(&p->answer->request);
    return OK;
}

static Status title_of(const PlanPage *p, const PlanLayout *l, const PlanPrice *price,
                       unsigned others, const char **out)
{
    char layout[PLAN_LAYOUT_BYTES], also[PLAN_ALSO_BYTES],
        title[PLAN_LAYOUT_BYTES + PLAN_ALSO_BYTES];
    int n = snprintf(title, sizeof title, "%s%s", plan_layout_text(layout, l, price),
                     plan_also_text(also, others, "; the same under ", ", "));
    return arena_text(p->arena, title, (size_t)n, out);
}

static Status main_timeline(const PlanPage *p, const Drawn *d, Timeline *out)
{
    PlanAnswer *r = p->answer;
    const char *title = NULL;
    unsigned also = best_rows(p) > 0 ? r->found.best->also : 0;
    TRY(plan_answer_simulate(r, false, p->arena));
    TRY(title_of(p, &r->layout, &r->price, also, &title));
    return make_timeline(p, d, &r->step, title, out);
}

/* Simulates one row of a search. Its type and buffers may differ from the answer's, so it has a planner
 * of its own. */
static Status row_timeline(const PlanPage *p, const SearchRow *row, Timeline *out)
{
    Config config = p->answer->config;
    PlanRequest q = p->answer->request;
    PlanStep step;
    PlanLayout l = row->layout;
    Drawn d = { &l, &row->price, NULL };
    const char *title = NULL;
    Planner *planner = NULL;
    config.run_compute = row->price.compute;
    config.moe_buffers = row->price.buffers;
    q.config = &config;
    l.room = row->price.room;
    TRY(ARENA_NEW(p->arena, l.pp, &d.memory));
    TRY(title_of(p, &l, &row->price, row->also, &title));
    TRY(planner_make(&q, &planner));
    Status s = planner_memory(planner, &l, &row->price, d.memory);
    if (s == OK) s = planner_simulate(planner, &l, planner_runs_list(planner), p->arena, &step);
    planner_free(planner);
    TRY(s);
    return make_timeline(p, &d, &step, title, out);
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

static Status answer_facts(const PlanPage *p, Text *out)
{
    const PlanRequest *q = &p->answer->request;
    const PlanPrice *price = &p->answer->price;
    char value[64], a[32];
    const double *part_s = price->part_s;
    (void)snprintf(value, sizeof value, "%.1f", price->tokens_per_s_per_gpu);
    const double time = 1 + p->report->interval.time, bytes = 1 + p->report->interval.bytes;
    TRY(part_fact(
        out, "Speed, tokens/s/GPU", value, "interval %.0f to %.0f; %.1f %% of the bf16 peak (MFU)",
        price->tokens_per_s_per_gpu / time, price->tokens_per_s_per_gpu * time, 100 * price->mfu));
    TRY(part_fact(out, "Step", svg_value_text(a, price->step_s, SVG_SECONDS),
                  "compute %.1f %%, bubble %.1f %%", 100 * part_s[PLAN_COMPUTE] / price->step_s,
                  100 * part_s[PLAN_BUBBLE] / price->step_s));
    (void)snprintf(value, sizeof value, "%.2f of %.2f GiB", price->peak_bytes / PLAN_GIB,
                   plan_room_bytes(q) / PLAN_GIB);
    if (!price->fits) TRY(text_printf(out, "<div class=\"bad\">"));
    TRY(part_fact(out, price->fits ? "Memory: fits" : "Memory: does not fit", value,
                  "interval up to %.1f; pipeline rank %d, the fullest; the GPU has %.1f GiB, "
                  "plan.margin is %g",
                  price->peak_bytes * bytes / PLAN_GIB, price->worst_rank, q->hardware->memory_gib,
                  q->config->plan_margin));
    if (!price->fits) TRY(text_printf(out, "</div>"));
    if (p->report->tokens <= 0) return OK;
    double days = p->report->tokens / (price->tokens_per_s_per_gpu * (double)q->gpus) / 86400;
    (void)snprintf(value, sizeof value, "%.1f days", days);
    return part_fact(out, "Training", value, "%s tokens, without pauses",
                     text_si(a, p->report->tokens));
}

/* ---- memory and time ---- */

/* Kinds of each rank against what may be used, and what the GPU has. */
static Status memory_section(const PlanPage *p, const Drawn *d, Text *out)
{
    const PlanRequest *q = &p->answer->request;
    int ranks = d->layout->pp, shown = ranks < BARS_MOST ? ranks : BARS_MOST;
    char name[BARS_MOST][24], use[64], has[64];
    const char *row[BARS_MOST];
    double value[BARS_MOST][PLAN_KINDS], room = plan_room_bytes(q);
    for (int i = 0; i < shown; i++) {
        int rank = shown == 1 ? 0 : (int)((int64_t)i * (ranks - 1) / (shown - 1));
        (void)snprintf(name[i], sizeof name[i], "rank %d", rank);
        row[i] = name[i];
        memcpy(value[i], d->memory[rank], sizeof value[i]);
    }
    (void)snprintf(use, sizeof use, "%.1f GiB may be used", room / PLAN_GIB);
    (void)snprintf(has, sizeof has, "the GPU has %.1f GiB", q->hardware->memory_gib);
    const SvgGuide guide[] = { { room, use }, { q->hardware->memory_gib * PLAN_GIB, has } };
    TRY(text_printf(out, "<section id=\"memory\"><h2>Memory of each pipeline rank</h2>\n"));
    if (shown < ranks)
        TRY(text_printf(out, "<p class=\"note\">%d of %d ranks, evenly chosen.</p>\n", shown,
                        ranks));
    TRY(text_printf(out, "<div class=\"wide full\">\n"));
    TRY(svg_bars(out, &(SvgBars){ .title = "Memory of each pipeline rank",
                                  .row = row,
                                  .part = plan_kind_names,
                                  .value = *value,
                                  .rows = shown,
                                  .parts = PLAN_KINDS,
                                  .width = WIDTH,
                                  .unit = SVG_BYTES,
                                  .guide = guide,
                                  .guides = 2 }));
    return text_printf(out, "</div></section>\n");
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
    TRY(text_printf(out, "<section id=\"time\"><h2>Where the step's time goes</h2>\n"
                         "<div class=\"wide full\">\n"));
    TRY(svg_bars(out, &(SvgBars){ .title = "Parts of the step",
                                  .row = row,
                                  .part = plan_part_names,
                                  .value = *value,
                                  .rows = rows,
                                  .parts = PLAN_PARTS,
                                  .width = WIDTH,
                                  .unit = SVG_SECONDS }));
    return text_printf(out, "</div></section>\n");
}

/* ---- layouts of a search ---- */

/* The best rows, then those of the front that are not among them. */
typedef struct Rows {
    const SearchRow *at[ROWS_MOST];
    int n, n_best;
} Rows;

static void collect_rows(const SearchResult *found, Rows *out)
{
    out->n = 0;
    for (int i = 0; i < found->n_best; i++) out->at[out->n++] = &found->best[i];
    out->n_best = out->n;
    for (int i = 0; i < found->n_front; i++) {
        bool known = false;
        for (int k = 0; k < out->n_best; k++)
            known |= out->at[k]->id == found->front[i].id &&
                     out->at[k]->layout.schedule == found->front[i].layout.schedule;
        if (!known) out->at[out->n++] = &found->front[i];
    }
}

/* Memory over speed: what more memory buys. Each point leads to its row. */
static Status layouts_plot(const PlanPage *p, const Rows *rows, Text *out)
{
    const PlanRequest *q = &p->answer->request;
    double *x = NULL, *y = NULL, *radius = NULL, room = plan_room_bytes(q) / PLAN_GIB;
    const char **label = NULL, **link = NULL;
    TRY(ARENA_NEW(p->arena, rows->n, &x));
    TRY(ARENA_NEW(p->arena, rows->n, &y));
    TRY(ARENA_NEW(p->arena, rows->n, &radius));
    TRY(ARENA_NEW(p->arena, rows->n, &label));
    TRY(ARENA_NEW(p->arena, rows->n, &link));
    for (int i = 0; i < rows->n; i++) {
        const PlanPrice *price = &rows->at[i]->price;
        char layout[PLAN_LAYOUT_BYTES], text[PLAN_LAYOUT_BYTES + 96], to[24];
        x[i] = price->tokens_per_s_per_gpu;
        y[i] = price->peak_bytes / PLAN_GIB;
        radius[i] = i < rows->n_best ? 6 : 4;
        int n = snprintf(text, sizeof text, "%d: %.1f tokens/s/GPU, %.2f GiB: %s", i + 1, x[i],
                         y[i], plan_layout_text(layout, &rows->at[i]->layout, price));
        TRY(arena_text(p->arena, text, (size_t)n, &label[i]));
        n = snprintf(to, sizeof to, "#row%d", i + 1);
        TRY(arena_text(p->arena, to, (size_t)n, &link[i]));
    }
    const int best = rows->n_best;
    const SvgSeries series[] = {
        { "front of memory and time", NULL, x + best, y + best, rows->n - best, 0, SVG_POINTS,
          radius + best, label + best, link + best },
        { "best", NULL, x, y, best, 1, SVG_POINTS, radius, label, link },
    };
    const SvgGuide guide[] = { { room, "may be used" } };
    return svg_chart(out, &(SvgChart){ .title = "Memory over speed",
                                       .x_label = "tokens/s/GPU",
                                       .y_label = "GiB",
                                       .series = series,
                                       .n_series = 2,
                                       .width = WIDTH,
                                       .height = 360,
                                       .from_zero = true,
                                       .guide = guide,
                                       .guides = 1 });
}

static Status layout_row(Text *out, const Rows *rows, int i)
{
    const PlanPrice *price = &rows->at[i]->price;
    char layout[PLAN_LAYOUT_BYTES], also[PLAN_ALSO_BYTES], timeline[48] = "";
    if (i < TIMELINES && i < rows->n_best)
        (void)snprintf(timeline, sizeof timeline, "<a href=\"#timeline%d\">timeline</a>", i + 1);
    TRY(text_markup(out,
                    "<tr id=\"row%d\"><td>%d</td><td>%s</td><td>%.1f</td><td>%.2f</td><td>%.3f</td>"
                    "<td>%.1f %%</td><td class=\"words\">%s%s</td>",
                    i + 1, i + 1, i < rows->n_best ? "best" : "front", price->tokens_per_s_per_gpu,
                    price->peak_bytes / PLAN_GIB, price->step_s,
                    100 * price->part_s[PLAN_BUBBLE] / price->step_s,
                    plan_layout_text(layout, &rows->at[i]->layout, price),
                    plan_also_text(also, rows->at[i]->also, "; the same under ", ", ")));
    return text_printf(out, "<td>%s</td></tr>\n", timeline);
}

static Status layouts_section(const PlanPage *p, Text *out)
{
    const SearchResult *found = &p->answer->found;
    char a[32], b[32];
    Rows *rows = NULL;
    if (best_rows(p) == 0) return OK;
    TRY(ARENA_NEW(p->arena, 1, &rows));
    collect_rows(found, rows);
    TRY(text_printf(
        out,
        "<section id=\"layouts\"><h2>Layouts</h2>\n<p class=\"note\">%s legal layouts, "
        "%s priced: the best, and the front, on which less memory costs speed. The best are "
        "simulated; speeds of the front are estimates, which a simulation may lower. A "
        "point leads to its row.</p>\n",
        text_thousands(a, found->count.legal), text_thousands(b, found->count.priced)));
    TRY(layouts_plot(p, rows, out));
    TRY(text_printf(out, "<div class=\"wide\"><table class=\"fit\"><thead><tr><th></th><th></th>"
                         "<th>tokens/s/GPU</th><th>GiB</th><th>step, s</th><th>bubble</th>"
                         "<th class=\"words\">layout</th><th></th></tr></thead><tbody>\n"));
    for (int i = 0; i < rows->n; i++) TRY(layout_row(out, rows, i));
    return text_printf(out, "</tbody></table></div></section>\n");
}

/* ---- the page ---- */

/* The answer's timeline, then those of further rows, folded. All share one time axis. */
static Status timelines_part(const PlanPage *p, const Timeline *first, Text *out)
{
    const SearchResult *found = &p->answer->found;
    int n = best_rows(p);
    Timeline more[TIMELINES];
    double axis_s = first->step_s;
    for (int i = 1; i < n; i++) {
        TRY(row_timeline(p, &found->best[i], &more[i]));
        timeline_limit(&more[i], MORE_BOXES);
        axis_s = fmax(axis_s, more[i].step_s);
    }
    TRY(text_printf(out, "<section id=\"timeline1\"><h2>Timeline of the step</h2>\n"));
    TRY(pipeline_timeline(out, first, axis_s));
    TRY(pipeline_ranks(out, first));
    TRY(text_printf(out, "</section>\n"));
    for (int i = 1; i < n; i++) {
        TRY(text_printf(out, "<section id=\"timeline%d\"><h2>Timeline of row %d</h2>\n", i + 1,
                        i + 1));
        TRY(pipeline_timeline(out, &more[i], axis_s));
        TRY(text_printf(out, "</section>\n"));
    }
    return OK;
}

static Status page_text(const PlanPage *p, const Drawn *d, const Timeline *t, Text *out)
{
    PlanAnswer *r = p->answer;
    char title[256], gpus[32];
    PlanGroups groups;
    (void)snprintf(title, sizeof title, "%.80s on %s x %.80s", r->config.model_name,
                   text_thousands(gpus, r->request.gpus), r->request.hardware->gpu_title);
    TRY(planner_groups(r->planner, d->layout, d->price, &groups));
    TRY(header_part(p, title, out));
    TRY(text_printf(out, "<div class=\"facts\">\n"));
    TRY(question_facts(p, out));
    TRY(answer_facts(p, out));
    TRY(text_printf(out, "</div>\n"));
    TRY(layouts_section(p, out));
    TRY(memory_section(p, d, out));
    TRY(time_section(p, out));
    TRY(plan_mesh_section(out, &r->request, &groups));
    TRY(timelines_part(p, t, out));
    return page_end(out, "pipeline.js");
}

Status plan_page_write(const PlanPage *p, const char *path, Text *out)
{
    PlanAnswer *r = p->answer;
    Drawn d = { &r->layout, &r->price, NULL };
    Timeline t;
    size_t before = out->used;
    TRY(ARENA_NEW(p->arena, r->layout.pp, &d.memory));
    TRY(planner_memory(r->planner, &r->layout, &r->price, d.memory));
    TRY(main_timeline(p, &d, &t));
    if (text_ends(path, ".svg"))
        return pipeline_write(path, &(PipelineView){ .timeline = &t, .timelines = 1 }, out);
    TRY(page_text(p, &d, &t, out));
    return pipeline_put(path, out, before);
}

/* ---- scaling ---- */

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
        s.gpus[i] = (double)row[i].gpus;
        s.tokens_per_s_per_gpu[i] = row[i].price.tokens_per_s_per_gpu;
        s.efficiency[i] = plan_scale_efficiency(row, i);
        s.unfit[i] = !row[i].price.fits;
    }
    char title[128], about[160], batch[32], length[32];
    const Config *c = q->request.config;
    (void)snprintf(title, sizeof title, "%.60s on %.60s", c->model_name,
                   q->request.hardware->gpu_title);
    (void)snprintf(about, sizeof about, "%s sequences of %s tokens a step on all numbers of GPUs",
                   text_thousands(batch, c->train_batch), text_thousands(length, c->data_sequence));
    const PipelineView v = { .title = title, .about = about, .scaling = &s, .scalings = 1 };
    return pipeline_write(path, &v, out);
}
