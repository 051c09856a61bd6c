/* report: writes RUN/report.html: the header with its facts, then the sections in the order of a
 * table. Charts are in report_charts.c, expert load in report_load.c, the recording in
 * report_trace.c. */
#include "pages/report.h"

#include "engine/base/file.h"
#include "pages/report_parts.h"

#include <math.h>
#include <stdio.h>

/* ---- the run's facts ---- */

/* Facts that follow from the configuration and the length of the run. */
static Status size_facts(Text *out, const RunData *d)
{
    const RunSummary *s = &d->sum;
    char a[32], b[32];
    bool active = isfinite(d->params_active);
    if (isfinite(d->params_total))
        TRY(part_fact(out, "Parameters", text_si(a, d->params_total), "%s%s",
                      active ? text_si(b, d->params_active) : "", active ? " active a token" : ""));
    TRY(part_fact(out, "Tokens", text_si(a, (double)s->tokens), "%s tokens",
                  text_thousands(b, s->tokens)));
    TRY(part_fact(out, "Steps", text_thousands(a, s->steps), "the last is step %lld",
                  (long long)d->last_step));
    return part_fact(out, "Time in steps", text_duration(a, s->wall_s), "%s tokens/s",
                     s->wall_s > 0 ? text_si(b, (double)s->tokens / s->wall_s) : "-");
}

/* Writes the mean over the whole run. It is a mean of the curve's points, so nearly that of all
 * steps. */
static Status share_fact(Text *out, const char *name, const Curve *c, const char *of, double flops)
{
    double sum = 0;
    char value[32], peak[32];
    for (int i = 0; i < c->n; i++) sum += isfinite(c->y[i]) ? c->y[i] : 0;
    if (c->finite == 0 || !(flops > 0)) return OK;
    (void)snprintf(value, sizeof value, "%.1f %%", 100 * sum / c->finite);
    return part_fact(out, name, value, "mean, of %sFLOP/s %s", text_si(peak, flops), of);
}

static Status result_facts(Text *out, const RunData *d)
{
    const RunSummary *s = &d->sum;
    char value[96];
    if (s->steps > 0)
        TRY(part_fact(out, "Final training loss", svg_value_text(value, s->final_loss, SVG_PLAIN),
                      "nats a token, step %lld", (long long)d->final_step));
    if (isfinite(s->last_bits_per_byte)) {
        char first[48] = "", step[48] = "";
        if (s->first_eval < s->last_eval) {
            (void)snprintf(first, sizeof first, "%.3f → ", s->first_bits_per_byte);
            (void)snprintf(step, sizeof step, "step %lld → ", (long long)s->first_eval);
        }
        (void)snprintf(value, sizeof value, "%s%.3f", first, s->last_bits_per_byte);
        TRY(part_fact(out, "Held-out bits per byte", value, "%sstep %lld%s", step,
                      (long long)s->last_eval, s->since));
    }
    TRY(share_fact(out, "Model FLOPs utilisation", &d->curve[RUN_MFU], "of the data sheet",
                   d->sheet_flops));
    TRY(share_fact(out, "Share of the measured peak", &d->curve[RUN_ROOF_SHARE], "measured",
                   d->roof_flops));
    if (s->saves > 0) {
        (void)snprintf(value, sizeof value, "%.2g s", s->save_stall_s);
        TRY(part_fact(out, "Waits for checkpoints", value,
                      "%lld checkpoints, at most %.3g %% of an interval", (long long)s->saves,
                      100 * s->save_share));
    }
    if (!isfinite(s->least_share)) return OK;
    (void)snprintf(value, sizeof value, "%.1f %%", 100 * s->least_share);
    return part_fact(out, "Least loaded expert", value, "of mean load: layer %lld, expert %lld",
                     (long long)s->least_layer, (long long)s->least_expert);
}

/* Warnings that a reader should see before the curves. */
static Status write_warnings(Text *out, const RunData *d)
{
    long long starts = d->starts, losses = d->bad_losses, lines = d->bad_lines;
    if (starts > 1)
        TRY(text_printf(out,
                        "<p class=\"note\">The run was started %lld times; where a step was run "
                        "again, its last result counts.</p>\n",
                        starts));
    if (d->sum.twice > 0)
        TRY(text_printf(
            out,
            "<p class=\"note\">%lld of %lld steps ran twice: received rows had no room (a larger "
            "moe.pool_factor or moe.buffer_factor gives more). Second runs took %.3g s, new "
            "captures and larger room %.3g s.</p>\n",
            (long long)d->sum.twice, (long long)d->sum.steps, d->sum.again_s, d->sum.capture_s));
    if (losses > 0)
        TRY(text_printf(out,
                        "<p class=\"note\">%lld of %lld steps had no finite loss: gaps in the "
                        "curves.</p>\n",
                        losses, (long long)d->sum.steps));
    if (lines == 0) return OK;
    return text_printf(out,
                       "<p class=\"note\">%lld line%s of metrics.jsonl could not be read and "
                       "%s left out.</p>\n",
                       lines, lines == 1 ? "" : "s", lines == 1 ? "was" : "were");
}

/* ---- the parts ---- */

static bool load_has(const Report *r) { return r->n_load_series > 0; }
static bool memory_has(const Report *r) { return r->data.arenas.n > 0; }
static bool trace_has(const Report *r) { return r->trace.present; }
static bool sample_has(const Report *r) { return r->sample != NULL; }
static bool config_has(const Report *r) { return r->config != NULL; }

static Status trace_write(Text *out, const Report *r) { return trace_view_write(out, &r->trace); }

static Status sample_write(Text *out, const Report *r)
{
    return text_markup(out, "<pre>%.*s</pre>\n", (int)r->sample_bytes, r->sample);
}

static Status config_write(Text *out, const Report *r)
{
    return text_markup(
        out, "<details><summary>All settings of the run</summary><pre>%.*s</pre></details>\n",
        (int)r->config_bytes, r->config);
}

/* The sections of the page, in order. A section either has small charts of the curves that have
 * data, or a function that writes it if `has` says so. */
static const struct {
    const char *id, *title;
    bool (*has)(const Report *r);
    Status (*write)(Text *out, const Report *r);
    const char *note; /* below the heading */
    FigureSection charts;
} SECTION[] = {
    { "loss", "Loss", .has = loss_has, .write = loss_write },
    { "rates", "Optimisation", .charts = SECTION_RATES },
    { "norms", "Gradient norms by group", .charts = SECTION_NORMS },
    { "throughput", "Throughput",
      .note = "MFU is relative to the dense peak of the GPU's data sheet, where it is known; the "
              "measured peak is a large matrix product when the run began, or a faster step.",
      .charts = SECTION_THROUGHPUT },
    { "experts", "Expert load", .has = load_has, .write = load_write },
    { "memory", "Memory", .has = memory_has, .write = memory_write,
      .note = "Planned: peaks of a dry run of the step on a backend that only counts. Used: the "
              "largest that any step reported." },
    { "timeline", "Timeline", .has = trace_has, .write = trace_write },
    { "sample", "Generated text", .has = sample_has, .write = sample_write },
    { "config", "Configuration", .has = config_has, .write = config_write },
};

enum { SECTIONS = sizeof SECTION / sizeof SECTION[0] };

static bool has_section(const Report *r, int i)
{
    SmallChart chart[RUN_CURVES];
    if (SECTION[i].has != NULL) return SECTION[i].has(r);
    return charts_count(&r->alone, chart, charts_of(SECTION[i].charts, chart)) > 0;
}

static Status write_header(Text *out, const Report *r)
{
    TRY(text_markup(out, "<header><h1>%s</h1><p>Training run %s</p><nav>",
                    r->data.model[0] != '\0' ? r->data.model : r->folder, r->folder));
    for (int i = 0; i < SECTIONS; i++) {
        if (!has_section(r, i)) continue;
        TRY(text_printf(out, "<a href=\"#%s\">%s</a>", SECTION[i].id, SECTION[i].title));
    }
    TRY(text_printf(out, "</nav></header>\n<div class=\"facts\">\n"));
    TRY(size_facts(out, &r->data));
    TRY(result_facts(out, &r->data));
    TRY(text_printf(out, "</div>\n"));
    return write_warnings(out, &r->data);
}

/* ---- the page ---- */

static Status render_page(Text *out, const Report *r)
{
    SmallChart chart[RUN_CURVES];
    TRY(page_begin(out, r->data.model[0] != '\0' ? r->data.model : r->folder));
    TRY(write_header(out, r));
    for (int i = 0; i < SECTIONS; i++) {
        if (!has_section(r, i)) continue;
        TRY(text_printf(out, "<section id=\"%s\"><h2>%s</h2>\n", SECTION[i].id, SECTION[i].title));
        if (SECTION[i].note != NULL) TRY(part_note(out, SECTION[i].note));
        TRY(SECTION[i].write != NULL
                ? SECTION[i].write(out, r)
                : charts_write(out, &r->alone, chart, charts_of(SECTION[i].charts, chart)));
        TRY(text_printf(out, "</section>\n"));
    }
    return page_end(out, r->trace.present && r->trace.problem[0] == '\0' ? "trace.js" : NULL);
}

static Status read_optional_file(const char *run_dir, const char *name, Arena *a, const char **out,
                                 size_t *bytes)
{
    char path[FILE_PATH_MAX], *text = NULL;
    TRY(file_join(path, run_dir, name));
    if (!file_exists(path)) return OK;
    TRY(file_read_all(path, a, &text, bytes));
    *out = text;
    return OK;
}

/* Reads all inputs of the page before its text begins to grow: a growing text must be the arena's
 * last allocation. Only metrics.jsonl must be there. */
static Status load_report(Report *r, const char *run_dir, Arena *a)
{
    char path[FILE_PATH_MAX];
    r->one = &r->data;
    r->alone = (RunSet){ .run = &r->one, .n = 1, .x_label = "step" };
    TRY(file_join(path, run_dir, "metrics.jsonl"));
    TRY(run_data_load(path, a, &r->data));
    TRY(load_view_make(r, a));
    TRY(file_join(path, run_dir, "recording/rank-00000.syr"));
    TRY(trace_view_load(&r->trace, path, a));
    TRY(read_optional_file(run_dir, "config.yaml", a, &r->config, &r->config_bytes));
    TRY(read_optional_file(run_dir, "sample.txt", a, &r->sample, &r->sample_bytes));
    return file_last_part(run_dir, a, &r->folder);
}

/* The trace view holds memory of its own, so it is freed whatever failed. */
static Status write_report(const char *run_dir, Arena *a, RunSummary *out)
{
    char path[FILE_PATH_MAX];
    Report *r = NULL; /* too large for a stack */
    Text page = { 0 };
    TRY(ARENA_ZEROED(a, 1, &r));
    Status s = load_report(r, run_dir, a);
    if (s == OK) s = text_init(&page, a);
    if (s == OK) s = render_page(&page, r);
    if (s == OK) s = file_join(path, run_dir, "report.html");
    if (s == OK) s = file_write_whole(path, page.data, page.used);
    if (s == OK) *out = r->data.sum;
    trace_view_free(&r->trace);
    return s;
}

Status report_write(const char *run_dir, Arena *scratch, RunSummary *out)
{
    ArenaMark mark = arena_mark(scratch);
    Status s = write_report(run_dir, scratch, out);
    arena_release(scratch, mark);
    return s;
}
