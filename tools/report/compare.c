/* compare: loads several runs, finds what differs, and writes it as text, JSON or a page. Its charts are
 * report_charts.c's. */
#include "report/compare.h"

#include "engine/base/file.h"
#include "engine/config/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- loading ---- */

static Status load_run(const char *path, Arena *a, RunData **out)
{
    char metrics[FILE_PATH_MAX];
    TRY(ARENA_NEW(a, 1, out));
    if (file_is_file(path))
        return FAIL(ERR_ARG, "%.200s is a file: name the folder of a run, which has metrics.jsonl",
                    path);
    TRY(file_join(metrics, path, "metrics.jsonl"));
    if (!file_exists(metrics))
        return FAIL(
            ERR_ARG,
            "%.200s has no metrics.jsonl: name the folder of a run (run.dir) that has begun", path);
    TRY(run_data_load(metrics, a, *out));
    if ((*out)->damaged == 0) return OK;
    return FAIL(
        ERR_FORMAT,
        "%s: line %lld is damaged (no JSON object, or a step that is no whole number, and not the "
        "first part of one either): delete that line, or take the file from a copy",
        metrics, (long long)(*out)->damaged);
}

/* Curves over each other hide each other unless they are smooth. The learning rate keeps its corners,
 * tokens their sum, and evaluations are few. */
static Status smooth_curves(RunData *d, Arena *a)
{
    for (int k = 0; k < RUN_CURVES; k++) {
        if (k == RUN_LR || k == RUN_TOKENS || run_curve_held_out((RunCurve)k)) continue;
        TRY(curve_smooth(&d->curve[k], a, &d->curve[k]));
    }
    return OK;
}

/* Replaces steps by the tokens until then. Points of the curve of tokens are means of steps in a row, so the tokens
 * until a point's mean step are those of the points before it and of (n + 1) / 2 of its n steps. */
static Status over_tokens(RunData *d, Arena *a)
{
    const Curve *t = &d->curve[RUN_TOKENS];
    double *step = NULL, *sum = NULL, before = 0;
    TRY(ARENA_NEW(a, t->n + 1, &step));
    TRY(ARENA_NEW(a, t->n + 1, &sum));
    step[0] = t->n > 0 ? t->x[0] - (t->steps[0] + 1) / 2.0 : 0; /* before the first step */
    sum[0] = 0;
    for (int i = 0; i < t->n; i++) {
        const double tokens = isfinite(t->y[i]) ? t->y[i] : 0;
        step[i + 1] = t->x[i];
        sum[i + 1] = before + tokens * (t->steps[i] + 1) / 2;
        before += tokens * t->steps[i];
    }
    for (const Curve *c = d->curve; c < d->curve + RUN_CURVES; c++) {
        for (int i = 0, at = 0; i < c->n; i++) {
            while (at < t->n && step[at + 1] < c->x[i]) at++;
            const int end = at < t->n ? at + 1 : at;
            const double span = step[end] - step[at];
            c->x[i] = sum[at] + (span > 0 ? (c->x[i] - step[at]) / span * (sum[end] - sum[at]) : 0);
        }
    }
    return OK;
}

/* Reads RUN/config.yaml. *out NULL: it is missing, or of a version with other settings. */
static Status load_config(const char *path, Arena *a, Config **out)
{
    char file[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    TRY(file_join(file, path, "config.yaml"));
    if (!file_is_file(file)) return OK;
    TRY(file_read_all(file, a, &text, &bytes));
    TRY(ARENA_NEW(a, 1, out));
    TRY(config_default(*out, a));
    Status s = config_parse(*out, a, file, text, bytes);
    if (s == OK || s == ERR_MEMORY) return s;
    status_clear();
    *out = NULL;
    return OK;
}

/* ---- rows ---- */

/* A row for each figure. Whole numbers are shown in full, others to four digits. */
static Status put_figures(Compare *c, Arena *a)
{
    static const char *const key[] = { "steps",     "tokens",    "last_loss",   "best_loss",
                                       "best_step", "eval_loss", "tokens_per_s" };
    for (int i = 0; i < c->set.n; i++) {
        const RunSummary *s = &c->run[i]->sum;
        const double v[] = { (double)s->steps,
                             (double)s->tokens,
                             s->final_loss,
                             s->best_loss,
                             isfinite(s->best_loss) ? (double)s->best_step : (double)NAN,
                             c->run[i]->evals > 0 ? c->run[i]->last_eval.loss : (double)NAN,
                             s->tokens_per_s };
        for (int k = 0; k < COMPARE_FIGURES; k++) {
            char text[32];
            bool count = (k < 2 || k == 4) && isfinite(v[k]);
            const char *shown =
                count ? text_thousands(text, (int64_t)v[k]) : svg_value_text(text, v[k], SVG_PLAIN);
            c->row[k].name = key[k];
            c->row[k].number[i] = v[k];
            TRY(arena_text(a, shown, strlen(shown), &c->row[k].value[i]));
        }
    }
    c->rows = COMPARE_FIGURES;
    return OK;
}

/* A row for each setting that differs, as config.yaml has it. run.dir always differs. */
static Status put_settings(Compare *c, Config *const *config, Arena *a)
{
    for (int k = 0; k < config_row_count; k++) {
        CompareRow r = { .name = config_rows[k].name };
        const char *first = NULL;
        bool differs = false;
        ArenaMark mark = arena_mark(a);
        for (int i = 0; i < c->set.n; i++) {
            Text t = { 0 };
            r.value[i] = "-";
            if (config[i] == NULL || config_rows[k].offset == offsetof(Config, run_dir)) continue;
            TRY(text_init(&t, a));
            TRY(config_print_value(&config_rows[k], config[i], &t));
            r.value[i] = t.data;
            if (first == NULL) first = t.data;
            differs |= strcmp(first, t.data) != 0;
        }
        if (differs)
            c->row[c->rows++] = r;
        else
            arena_release(a, mark);
    }
    return OK;
}

Status compare_load(char *const *path, int n, bool by_tokens, Arena *a, Compare *out)
{
    Config *config[RUNS_MOST];
    *out = (Compare){ .set = { out->run, out->name, n, by_tokens ? "tokens" : "step" } };
    TRY(ARENA_ZEROED(a, COMPARE_FIGURES + config_row_count, &out->row));
    for (int i = 0; i < n; i++) {
        TRY(load_run(path[i], a, &out->run[i]));
        TRY(smooth_curves(out->run[i], a));
        if (by_tokens) TRY(over_tokens(out->run[i], a));
        TRY(load_config(path[i], a, &config[i]));
        TRY(file_last_part(path[i], a, &out->name[i]));
        for (int k = 0; k < i; k++) {
            if (strcmp(out->name[i], out->name[k]) == 0)
                out->name[i] = path[i], out->name[k] = path[k];
        }
    }
    TRY(put_figures(out, a));
    return put_settings(out, config, a);
}

/* ---- text, JSON and the page ---- */

Status compare_text(Text *out, const Compare *c)
{
    TRY(text_printf(out, "%-30s", "run"));
    for (int i = 0; i < c->set.n; i++) TRY(text_printf(out, " %15s", c->name[i]));
    for (const CompareRow *r = c->row; r < c->row + c->rows; r++) {
        TRY(text_printf(out, "\n%-30s", r->name));
        for (int i = 0; i < c->set.n; i++) TRY(text_printf(out, " %15s", r->value[i]));
    }
    return text_printf(out, "\n");
}

Status compare_json(Text *out, const Compare *c)
{
    for (int i = 0; i < c->set.n; i++)
        TRY(text_json(out, i == 0 ? "{\"run\":[%s" : ",%s", c->name[i]));
    for (int k = 0; k < c->rows; k++) {
        const CompareRow *r = &c->row[k];
        bool figure = k < COMPARE_FIGURES;
        TRY(text_json(out, k == COMPARE_FIGURES ? "],\"settings\":{%s:" : "],%s:", r->name));
        for (int i = 0; i < c->set.n; i++) {
            TRY(text_append(out, i == 0 ? "[" : ",", 1));
            TRY(figure ? text_json(out, "%g", r->number[i]) : text_json(out, "%s", r->value[i]));
        }
    }
    return text_printf(out, c->rows > COMPARE_FIGURES ? "]}}\n" : "],\"settings\":{}}\n");
}

static Status put_table(Text *out, const Compare *c)
{
    TRY(text_printf(out, "<section><h2>Figures, and settings that differ</h2><div class=\"wide\">"
                         "<table class=\"fit\"><thead><tr><th>run</th>"));
    for (int i = 0; i < c->set.n; i++) TRY(text_markup(out, "<th>%s</th>", c->name[i]));
    TRY(text_printf(out, "</tr></thead><tbody>\n"));
    for (const CompareRow *r = c->row; r < c->row + c->rows; r++) {
        TRY(text_markup(out, "<tr><td>%s</td>", r->name));
        for (int i = 0; i < c->set.n; i++) TRY(text_markup(out, "<td>%s</td>", r->value[i]));
        TRY(text_printf(out, "</tr>\n"));
    }
    return text_printf(out, "</tbody></table></div></section>\n");
}

Status compare_page(Text *out, const Compare *c)
{
    SmallChart chart[RUN_CURVES];
    TRY(page_begin(out, "Training runs"));
    TRY(text_printf(out, "<header><h1>Training runs</h1><p>"));
    for (int i = 0; i < c->set.n; i++) TRY(text_markup(out, "%s%s", i > 0 ? ", " : "", c->name[i]));
    TRY(text_printf(out, "</p></header>\n"));
    TRY(put_table(out, c));
    TRY(text_printf(out, "<section><h2>Curves</h2>\n"));
    TRY(part_note(
        out, "Each point is the mean of the points around it, 2 % of a run to either side; the "
             "learning rate and held-out figures are not smoothed."));
    TRY(charts_write(out, &c->set, chart, charts_of(SECTION_COMPARED, chart)));
    TRY(text_printf(out, "</section>\n"));
    return page_end(out, NULL);
}
