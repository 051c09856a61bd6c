#include "viz/report.h"

#include "base/file.h"
#include "viz/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const Section *const SECTION[] = {
    &section_loss,   &section_rates,    &section_throughput, &section_experts,
    &section_memory, &section_timeline, &section_sample,     &section_config,
};

enum { SECTIONS = sizeof SECTION / sizeof SECTION[0] };

/* ---- small helpers ---- */

const char *part_duration(char out[32], double seconds)
{
    long long whole = llround(seconds);
    if (seconds < 60) {
        (void)snprintf(out, 32, "%.3g s", seconds);
    } else if (whole < 3600) {
        (void)snprintf(out, 32, "%lld min %02lld s", whole / 60, whole % 60);
    } else {
        (void)snprintf(out, 32, "%lld h %02lld min", whole / 3600, whole % 3600 / 60);
    }
    return out;
}

/* ---- the run's facts ---- */

static void summarise(const RunData *d, RunSummary *out)
{
    int layer = -1, expert = -1;
    double least = run_least_share(d, &layer, &expert);
    *out =
        (RunSummary){ .steps = d->steps,
                      .tokens = (int64_t)d->tokens,
                      .wall_s = d->time_s,
                      .final_loss = d->final_loss,
                      .first_bits_per_byte =
                          d->evals > 0 ? d->first_eval.bits_per_byte : (double)NAN,
                      .last_bits_per_byte = d->evals > 0 ? d->last_eval.bits_per_byte : (double)NAN,
                      .least_share = least,
                      .least_layer = layer < 0 ? -1 : d->layer_name[layer],
                      .least_expert = expert };
}

/* One fact; `small` is a second line or "". Both are made here, of numbers only. */
static Status fact(Text *out, const char *name, const char *value, const char *small)
{
    return text_printf(out, "<div><dl><dt>%s</dt><dd>%s<small>%s</small></dd></dl></div>\n", name,
                       value, small);
}

static Status size_facts(Text *out, const RunData *d, const RunSummary *s)
{
    char value[64], small[64], a[32], b[32];
    if (isfinite(d->params_total)) {
        (void)snprintf(small, sizeof small, "%s active a token", text_si(b, d->params_active));
        TRY(fact(out, "Parameters", text_si(a, d->params_total),
                 isfinite(d->params_active) ? small : ""));
    }
    (void)snprintf(small, sizeof small, "%s tokens", text_thousands(b, s->tokens));
    TRY(fact(out, "Tokens", text_si(a, (double)s->tokens), small));
    (void)snprintf(small, sizeof small, "the last is step %lld", (long long)d->last_step);
    TRY(fact(out, "Steps", text_thousands(a, s->steps), small));
    (void)snprintf(value, sizeof value, "%s", part_duration(a, s->wall_s));
    (void)snprintf(small, sizeof small, "%s tokens/s",
                   s->wall_s > 0 ? text_si(b, (double)s->tokens / s->wall_s) : "-");
    return fact(out, "Time in steps", value, small);
}

/* Over the whole run: of the points of the curve, so nearly that of the steps. */
static Status utilisation_fact(Text *out, const RunData *d)
{
    const Curve *mfu = &d->curve[RUN_MFU];
    double sum = 0;
    char value[32], small[64], peak[32];
    for (int i = 0; i < mfu->n; i++) sum += isfinite(mfu->y[i]) ? mfu->y[i] : 0;
    if (mfu->finite == 0) return OK;
    (void)snprintf(value, sizeof value, "%.1f %%", 100 * sum / mfu->finite);
    (void)snprintf(small, sizeof small, "mean, of %sFLOP/s", text_si(peak, d->peak_flops));
    return fact(out, "Model FLOPs utilisation", value, d->peak_flops > 0 ? small : "");
}

static Status result_facts(Text *out, const RunData *d, const RunSummary *s)
{
    char value[96], small[96], a[32];
    if (s->steps > 0) {
        (void)snprintf(small, sizeof small, "nats a token, step %lld", (long long)d->final_step);
        TRY(fact(out, "Final training loss", svg_value_text(a, s->final_loss, SVG_PLAIN), small));
    }
    if (isfinite(s->last_bits_per_byte)) {
        (void)snprintf(value, sizeof value, "%.3f → %.3f", s->first_bits_per_byte,
                       s->last_bits_per_byte);
        (void)snprintf(small, sizeof small, "step %lld → step %lld", (long long)d->first_eval.step,
                       (long long)d->last_eval.step);
        TRY(fact(out, "Held-out bits per byte", value, small));
    }
    TRY(utilisation_fact(out, d));
    if (!isfinite(s->least_share)) return OK;
    (void)snprintf(value, sizeof value, "%.1f %%", 100 * s->least_share);
    (void)snprintf(small, sizeof small, "of mean load: layer %lld, expert %lld",
                   (long long)s->least_layer, (long long)s->least_expert);
    return fact(out, "Least loaded expert", value, small);
}

/* What a reader should know before he believes the curves. */
static Status warnings(Text *out, const RunData *d)
{
    if (d->starts > 1) {
        TRY(text_printf(out,
                        "<p class=\"note\">The run was started %lld times; where a step was run "
                        "again, its last result counts.</p>\n",
                        (long long)d->starts));
    }
    if (d->bad_losses > 0) {
        TRY(text_printf(out,
                        "<p class=\"note\">%lld of %lld steps had no finite loss: gaps in the "
                        "curves.</p>\n",
                        (long long)d->bad_losses, (long long)d->steps));
    }
    if (d->bad_lines > 0) {
        TRY(text_printf(out,
                        "<p class=\"note\">%lld line%s of metrics.jsonl could not be read and "
                        "%s left out.</p>\n",
                        (long long)d->bad_lines, d->bad_lines == 1 ? "" : "s",
                        d->bad_lines == 1 ? "was" : "were"));
    }
    return OK;
}

static Status header(Text *out, const Report *r)
{
    TRY(text_markup(out, "<header><h1>%s</h1><p>Training run %s</p><nav>",
                    r->data.model[0] != '\0' ? r->data.model : r->folder, r->folder));
    for (int i = 0; i < SECTIONS; i++) {
        if (!SECTION[i]->has(r)) continue;
        TRY(text_printf(out, "<a href=\"#%s\">%s</a>", SECTION[i]->id, SECTION[i]->title));
    }
    TRY(text_printf(out, "</nav></header>\n<div class=\"facts\">\n"));
    TRY(size_facts(out, &r->data, &r->summary));
    TRY(result_facts(out, &r->data, &r->summary));
    TRY(text_printf(out, "</div>\n"));
    return warnings(out, &r->data);
}

/* ---- text files ---- */

static bool has_sample(const Report *r) { return r->sample != NULL; }

static Status write_sample(Text *out, const Report *r)
{
    return text_markup(out, "<pre>%.*s</pre>\n", (int)r->sample_bytes, r->sample);
}

const Section section_sample = { "sample", "Generated text", has_sample, write_sample };

static bool has_config(const Report *r) { return r->config != NULL; }

static Status write_config(Text *out, const Report *r)
{
    return text_markup(
        out, "<details><summary>All settings of the run</summary><pre>%.*s</pre></details>\n",
        (int)r->config_bytes, r->config);
}

const Section section_config = { "config", "Configuration", has_config, write_config };

/* ---- the page ---- */

static Status section(Text *out, const Report *r, const Section *s)
{
    if (!s->has(r)) return OK;
    TRY(text_printf(out, "<section id=\"%s\"><h2>%s</h2>\n", s->id, s->title));
    TRY(s->write(out, r));
    return text_printf(out, "</section>\n");
}

static Status render(Text *out, const Report *r)
{
    TRY(page_begin(out, r->data.model[0] != '\0' ? r->data.model : r->folder));
    TRY(header(out, r));
    for (int i = 0; i < SECTIONS; i++) TRY(section(out, r, SECTION[i]));
    return page_end(out, NULL, 0);
}

static Status optional_file(const char *run_dir, const char *name, Arena *a, const char **out,
                            size_t *bytes)
{
    char path[FILE_PATH_MAX], *text = NULL;
    TRY(file_join(path, run_dir, name));
    if (!file_exists(path)) return OK;
    TRY(file_read_all(path, a, &text, bytes));
    *out = text;
    return OK;
}

static Status gather(Report *r, const char *run_dir, Arena *a)
{
    char path[FILE_PATH_MAX];
    TRY(file_join(path, run_dir, "metrics.jsonl"));
    TRY(run_data_load(path, a, &r->data));
    summarise(&r->data, &r->summary);
    TRY(load_view_make(r, a));
    TRY(file_join(path, run_dir, "trace.json"));
    TRY(trace_view_load(&r->trace, path, a));
    TRY(optional_file(run_dir, "config.yaml", a, &r->config, &r->config_bytes));
    TRY(optional_file(run_dir, "sample.txt", a, &r->sample, &r->sample_bytes));
    return file_last_part(run_dir, a, &r->folder);
}

static Status write_report(const char *run_dir, Arena *a, RunSummary *out)
{
    char path[FILE_PATH_MAX];
    Report *r = NULL; /* too large for a stack */
    Text page = { 0 };
    TRY(ARENA_ZEROED(a, 1, &r));
    TRY(gather(r, run_dir, a));
    TRY(text_init(&page, a));
    TRY(render(&page, r));
    TRY(file_join(path, run_dir, "report.html"));
    TRY(file_write_whole(path, page.data, page.used, a));
    *out = r->summary;
    return OK;
}

Status report_write(const char *run_dir, Arena *scratch, RunSummary *out)
{
    ArenaMark mark = arena_mark(scratch);
    Status s = write_report(run_dir, scratch, out);
    arena_release(scratch, mark);
    return s;
}
