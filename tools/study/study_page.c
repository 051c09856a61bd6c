/* study_page: a study as a page: speed over its axis, the parts of the step, memory by kind, and the table. */
#include "pages/charts/page.h"
#include "study/study.h"

#include <string.h>

enum { WIDTH = 1080, HEIGHT = 300, RANKS_MOST = 64, GUIDE_BYTES = 64 };

/* Rows that have a price. */
static int legal_rows(const Study *s, const StudyRow *out[STUDY_ROWS])
{
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (study_legal(&s->row[i])) out[n++] = &s->row[i];
    }
    return n;
}

/* Tokens/s/GPU over the study's axis, if that is a number: a curve for rows that fit, and one for those that do not. */
static Status speed_chart(const Study *s, const StudyRow *const *row, int n, Text *out)
{
    static const char *const names[] = { "fits", "does not fit" };
    double x[4][STUDY_ROWS], y[4][STUDY_ROWS];
    const char *name[4];
    SvgSeries series[4];
    int curves = 0;
    if (!s->kind->number) return OK;
    for (int k = 0; k < 4; k++) {
        int points = 0;
        for (int i = 0; i < n; i++) {
            if (row[i]->curve != k / 2 || row[i]->price.fits != (k % 2 == 0)) continue;
            int at = points++; /* x rises; rows come as they were asked for */
            for (; at > 0 && x[k][at - 1] > row[i]->x; at--)
                x[k][at] = x[k][at - 1], y[k][at] = y[k][at - 1];
            x[k][at] = row[i]->x;
            y[k][at] = row[i]->price.tokens_per_s_per_gpu;
        }
        if (points == 0) continue;
        name[k] = names[k % 2];
        if (s->curve[k / 2] != NULL)
            TRY(study_text(s->a, &name[k], "%s, %s", s->curve[k / 2], names[k % 2]));
        series[curves++] = (SvgSeries){ .name = name[k],
                                        .x = x[k],
                                        .y = y[k],
                                        .n = points,
                                        .color = k % 2 == 0 ? k / 2 : -1,
                                        .mark = SVG_DOTS };
    }
    const SvgChart chart = { s->kind->title, s->kind->axis, "tokens/s/GPU",   series, curves, WIDTH,
                             HEIGHT,         .log_x = true, .from_zero = true };
    TRY(text_printf(out, "<section><h2>Speed</h2><div class=\"wide\">\n"));
    TRY(part_broad(out, &chart, NULL));
    return text_printf(out, "</div></section>\n");
}

static Status bars_section(const SvgBars *bars, Text *out)
{
    TRY(text_markup(out, "<section><h2>%s</h2><div class=\"wide full\">\n", bars->title));
    TRY(svg_bars(out, bars));
    return text_printf(out, "</div></section>\n");
}

static SvgGuide room_guide(const Study *s, char use[GUIDE_BYTES])
{
    const double room = plan_room_bytes(&s->base);
    (void)snprintf(use, GUIDE_BYTES, "%.1f GiB may be used", room / PLAN_GIB);
    return (SvgGuide){ room, use };
}

/* Memory of the pipeline ranks of the layout that was given. Of many ranks the first are drawn, and the title says so. */
static Status rank_charts(const Study *s, const StudyRow *const *row, int n, Text *out)
{
    char name[RANKS_MOST][24], use[GUIDE_BYTES], title[96];
    const char *label[RANKS_MOST];
    const SvgGuide guide = room_guide(s, use);
    for (int i = 0; i < n; i++) {
        const int ranks = row[i]->layout.pp < RANKS_MOST ? row[i]->layout.pp : RANKS_MOST;
        if (!row[i]->listed) continue;
        for (int k = 0; k < ranks; k++) {
            (void)snprintf(name[k], sizeof name[k], "rank %d", k);
            label[k] = name[k];
        }
        (void)snprintf(title, sizeof title, "Memory of %d of %d pipeline ranks, %.40s", ranks,
                       row[i]->layout.pp, row[i]->label);
        const SvgBars bars = { title,      label, plan_kind_names, *row[i]->memory, ranks,
                               PLAN_KINDS, WIDTH, SVG_BYTES,       &guide,          1 };
        TRY(bars_section(&bars, out));
    }
    return OK;
}

static Status bar_charts(const Study *s, const StudyRow *const *row, int n, Text *out)
{
    const char *label[STUDY_ROWS];
    char use[GUIDE_BYTES];
    double(*time)[PLAN_PARTS] = NULL, (*memory)[PLAN_KINDS] = NULL;
    TRY(ARENA_NEW(s->a, n, &time));
    TRY(ARENA_NEW(s->a, n, &memory));
    for (int i = 0; i < n; i++) {
        label[i] = row[i]->label;
        memcpy(memory[i], row[i]->price.memory, sizeof memory[i]);
        for (int k = 0; k < PLAN_PARTS; k++)
            time[i][k] = row[i]->price.part_s[k] / row[i]->price.step_s;
    }
    const SvgGuide guide = room_guide(s, use);
    const SvgBars parts = { "Shares of the step", label, plan_part_names, *time, n,
                            PLAN_PARTS,           WIDTH, SVG_PERCENT,     NULL,  0 };
    const SvgBars kinds = { "Memory of the fullest GPU",
                            label,
                            plan_kind_names,
                            *memory,
                            n,
                            PLAN_KINDS,
                            WIDTH,
                            SVG_BYTES,
                            &guide,
                            1 };
    TRY(bars_section(&parts, out));
    return bars_section(&kinds, out);
}

static Status table_row(const StudyRow *r, Text *out)
{
    char layout[PLAN_LAYOUT_BYTES], batch[32];
    TRY(text_markup(out, "<tr><td class=\"words\">%s</td>", r->label));
    if (!study_legal(r))
        return text_markup(out, "<td class=\"words\" colspan=\"6\">not legal: %s</td></tr>\n",
                           r->why);
    const PlanPrice *p = &r->price;
    return text_markup(
        out,
        "<td>%.1f</td><td>%.2f</td><td>%.1f</td><td>%s%s%s</td><td class=\"%s\">%s</td>"
        "<td class=\"words\">%s</td></tr>\n",
        p->tokens_per_s_per_gpu, p->peak_bytes / PLAN_GIB, 100 * p->mfu,
        text_thousands(batch, r->request.config->train_batch), r->moved == NULL ? "" : ", ",
        r->moved == NULL ? "" : r->moved, p->fits ? "words" : "words bad", plan_fit_word(p),
        plan_layout_text(layout, &r->layout, p));
}

static Status page_body(const Study *s, const char *says, Text *out)
{
    const StudyRow *row[STUDY_ROWS];
    char title[192], gpus[32];
    const int n = legal_rows(s, row);
    Text basis;
    TRY(text_init(&basis, s->a));
    TRY(plan_report_basis(&s->base, true, &basis));
    (void)snprintf(title, sizeof title, "%.60s on %s x %.60s: %s", s->base.config->model_name,
                   text_thousands(gpus, s->base.gpus), s->base.hardware->gpu_title, s->kind->title);
    TRY(page_begin(out, title));
    TRY(text_markup(out, "<header><h1>%s</h1><p>%s</p></header>\n", title, says));
    TRY(text_markup(out, "<p class=\"note\">%s</p>\n", basis.data));
    TRY(speed_chart(s, row, n, out));
    TRY(bar_charts(s, row, n, out));
    TRY(rank_charts(s, row, n, out));
    TRY(text_markup(out,
                    "<section><h2>Rows</h2><div class=\"wide\"><table class=\"fit\"><thead><tr>"
                    "<th class=\"words\">%s</th><th>tokens/s/GPU</th><th>GiB</th><th>MFU %%</th>"
                    "<th>batch</th><th class=\"words\">memory</th><th class=\"words\">layout</th>"
                    "</tr></thead><tbody>\n",
                    s->kind->axis));
    for (int i = 0; i < s->n; i++) TRY(table_row(&s->row[i], out));
    TRY(text_printf(out, "</tbody></table></div></section>\n"));
    return page_end(out, NULL);
}

Status study_page_write(const Study *s, const char *path, Text *out)
{
    Text sentence;
    const char *says = NULL;
    const size_t before = out->used;
    TRY(text_init(&sentence, s->a));
    TRY(s->kind->says(s, &sentence));
    says = sentence.data;
    TRY(page_body(s, says, out));
    return pipeline_put(path, out, before);
}
