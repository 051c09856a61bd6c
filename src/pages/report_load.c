/* report_load: the report's section on expert load: heat maps by domain, and the least and most
 * loaded expert over the steps. The loads are gathered by run_data.c. */
#include "pages/report_parts.h"

#include <math.h>
#include <stdio.h>

enum {
    LAYERS_BY_NAME = SVG_COLORS, /* more layers than these are grey lines with their envelope */
    LOAD_HEIGHT = 300,
    CELLS_MOST = 5000, /* cells of all heat maps together */
    LEFT = 34,
    TOP = 22,
    WIDTH = 480, /* of all columns, if their cells come out between the two limits */
    CELL_LEAST = 4,
    CELL_MOST = 37,
};

/* ---- prepared before the page is written ---- */

/* "layer 3" followed by `what`. */
static Status layer_label(Arena *a, int64_t layer, const char *what, const char **out)
{
    char text[64];
    int n = snprintf(text, sizeof text, "layer %lld%s", (long long)layer, what);
    return arena_text(a, text, (size_t)n, out);
}

/* The envelope over all layers: the smallest of the smallest loads, or the largest of the largest.
 * All layers have the same points; where one layer has no value, the envelope has none. */
static Status layers_envelope(const Curve *layer, int layers, bool most, Arena *a, Curve *out)
{
    *out = layer[0];
    TRY(ARENA_NEW(a, out->n, &out->y));
    for (int i = 0; i < out->n; i++) {
        double v = layer[0].y[i];
        for (int l = 1; l < layers && !isnan(v); l++) {
            double w = layer[l].y[i];
            if (isnan(w) || (most ? w > v : w < v)) v = w;
        }
        out->y[i] = v;
    }
    return OK;
}

static Status add_envelopes(Report *r, Arena *a)
{
    const RunData *d = &r->data;
    for (int most = 0; most < 2; most++) {
        Curve c = { 0 };
        TRY(layers_envelope(most ? d->most : d->least, d->moe_layers, most, a, &c));
        r->load_series[r->n_load_series++] =
            (SvgSeries){ .name = most ? "most loaded expert of all layers"
                                      : "least loaded expert of all layers",
                         .x = c.x,
                         .y = c.y,
                         .n = c.n,
                         .color = most };
    }
    return OK;
}

/* With few layers each has a colour and a name; with many all are grey, and an envelope is
 * named. */
Status load_view_make(Report *r, Arena *a)
{
    const RunData *d = &r->data;
    bool named = d->moe_layers <= LAYERS_BY_NAME;
    if (d->moe_layers == 0) return OK;
    TRY(ARENA_ZEROED(a, 2 * d->moe_layers + 2, &r->load_series));
    for (int i = 0; i < 2 * d->moe_layers; i++) {
        int layer = i / 2;
        const Curve *c = i % 2 == 0 ? &d->least[layer] : &d->most[layer];
        SvgSeries *s = &r->load_series[r->n_load_series++];
        *s = (SvgSeries){
            .x = c->x, .y = c->y, .n = c->n, .color = named ? layer : -1, .legend = ""
        };
        s->mark = named ? SVG_LINE : SVG_FAINT;
        TRY(layer_label(a, d->layer_name[layer], i % 2 == 0 ? ", least" : ", most", &s->name));
        if (named && i % 2 == 0) TRY(layer_label(a, d->layer_name[layer], "", &s->legend));
    }
    return named ? OK : add_envelopes(r, a);
}

/* ---- over the steps ---- */

static Status load_series_chart(Text *out, const Report *r)
{
    static const SvgGuide UNIFORM = { 1, "" };
    const SvgChart chart = { "Least and most loaded expert over the steps",
                             "step",
                             "load / mean load",
                             r->load_series,
                             r->n_load_series,
                             REPORT_FULL,
                             LOAD_HEIGHT,
                             .from_zero = true,
                             .guide = &UNIFORM,
                             .guides = 1 };
    TRY(text_printf(out, "<h3>Least and most loaded expert of a layer, over the steps</h3>\n"));
    return part_broad(out, &chart, NULL);
}

/* ---- heat maps by domain ----
 *
 * Values are relative to uniform load, 1. Below 1 a cell has one colour, above it another; the
 * depth of colour is |log2 of the value|, up to a factor of 4. If all maps together would have more
 * than CELLS_MOST cells, neighbouring experts share a cell. It shows the value farthest from 1,
 * since a mean would hide the one expert that matters. */

typedef struct Heat {
    int layers, experts, panels;
    int group, columns;   /* experts a cell, cells a row */
    double width, height; /* of a cell, in pixels */
    const int64_t *layer_name;
} Heat;

/* Chooses how many experts share a cell, and the size of cells, for all maps alike. */
static Heat heat_layout(const RunData *d)
{
    Heat h = { .layers = d->moe_layers, .experts = d->experts, .panels = d->load.lines > 0 };
    for (int i = 0; i < d->domains.n; i++) h.panels += d->domain_load[i].lines > 0;
    h.group = 1;
    h.columns = d->experts;
    h.layer_name = d->layer_name;
    while (h.columns > 1 && (int64_t)h.columns * h.layers * h.panels > CELLS_MOST) {
        h.group *= 2;
        h.columns = (h.experts + h.group - 1) / h.group;
    }
    h.width = fmin(fmax(floor((double)WIDTH / h.columns), CELL_LEAST), CELL_MOST);
    h.height = h.layers > 24 ? 12 : fmin(fmax(h.width, 14), 26);
    return h;
}

/* How far a load is from uniform: a half and a double are equally far. */
static double log_distance(double v) { return v > 0 ? fabs(log2(v)) : HUGE_VAL; }

/* The expert of a cell whose value is farthest from 1; -1 if the cell has no value. */
static int farthest_expert(const Heat *h, const double *value, int cell)
{
    int most = -1;
    for (int e = cell * h->group; e < h->experts && e < (cell + 1) * h->group; e++) {
        if (isnan(value[e])) continue;
        if (most < 0 || log_distance(value[e]) > log_distance(value[most])) most = e;
    }
    return most;
}

/* A cell, with its numbers at the pointer; wide cells also show the value. */
static Status heat_cell(Text *out, const Heat *h, const double *value, int64_t layer, int cell)
{
    int e = farthest_expert(h, value, cell);
    if (e < 0) return OK;
    double v = value[e], x = LEFT + cell * h->width, depth = fmin(log_distance(v) / 2, 1);
    TRY(text_printf(out,
                    "<rect class=\"%s\" x=\"%.0f\" fill-opacity=\"%.2f\"><title>layer %lld, expert "
                    "%d: %.2f × 1/%d = %.2f %%</title></rect>",
                    v < 1 ? "lo" : "hi", x, 0.05 + 0.9 * depth, (long long)layer, e, v, h->experts,
                    100 * v / h->experts));
    if (h->width < 34) return OK;
    return text_printf(out, "<text class=\"mid%s\" x=\"%.0f\" y=\"%.0f\">%.2f</text>",
                       depth > 0.6 ? " over" : "", x + h->width / 2, h->height / 2 + 4, v);
}

/* Draws one map. The size of cells is written once, in a style, because there are thousands of
 * cells. */
static Status heat_map(Text *out, const Heat *h, const char *name, const double *value)
{
    double gap = h->width > 10 ? 2 : 0;
    int every = 1;
    while (every * h->width < 26) every *= 2;
    TRY(svg_open(out, "heat", LEFT + h->columns * h->width + 2, TOP + h->layers * h->height, name));
    TRY(text_printf(out, ">\n"));
    for (int cell = 0; cell < h->columns; cell += every)
        TRY(text_printf(out, "<text class=\"mid dim\" x=\"%.1f\" y=\"%d\">%d</text>",
                        LEFT + (cell + 0.5) * h->width, TOP - 8, cell * h->group));
    for (int l = 0; l < h->layers; l++, value += h->experts) {
        TRY(text_printf(out,
                        "<g transform=\"translate(0 %.0f)\" style=\"--w:%.0fpx;--h:%.0fpx\"><text "
                        "class=\"end dim\" x=\"%d\" y=\"%.0f\">%lld</text>",
                        TOP + l * h->height, h->width - gap, h->height - (gap > 0 ? 2 : 1),
                        LEFT - 8, h->height / 2 + 4, (long long)h->layer_name[l]));
        for (int cell = 0; cell < h->columns; cell++)
            TRY(heat_cell(out, h, value, h->layer_name[l], cell));
        TRY(text_printf(out, "</g>\n"));
    }
    return text_printf(out, "</svg>\n");
}

static Status heat_key(Text *out)
{
    static const char *const NAME[] = { "1/4", "1/2", "1", "2", "4" };
    TRY(svg_open(out, "heat", 330, 34, "colour scale"));
    TRY(text_printf(out, "><g style=\"--w:32px;--h:12px\">"));
    for (int i = 0; i < 9; i++) {
        double depth = fabs(i - 4.0) / 4;
        TRY(text_printf(out, "<rect class=\"%s\" x=\"%d\" fill-opacity=\"%.2f\"/>",
                        i < 4 ? "lo" : "hi", 10 + i * 34, 0.05 + 0.9 * depth));
    }
    for (int i = 0; i < 5; i++)
        TRY(text_printf(out, "<text class=\"mid dim\" x=\"%d\" y=\"28\">%s</text>",
                        10 + i * 68 + 16, NAME[i]));
    return text_printf(out, "</g></svg>\n");
}

static Status heat_panel(Text *out, const Heat *h, const char *name, const RunLoad *load)
{
    long long first = load->first_step, last = load->last_step;
    if (load->lines == 0) return OK;
    TRY(text_markup(out, "<figure><h3>%s <span class=\"note\">", name));
    TRY(first == last ? text_printf(out, "step %lld", last)
                      : text_printf(out, "steps %lld to %lld", first, last));
    TRY(text_printf(out, "</span></h3>\n"));
    TRY(heat_map(out, h, name, load->sum));
    return text_printf(out, "</figure>\n");
}

static Status load_note(Text *out, const RunData *d, const Heat *h)
{
    TRY(text_printf(
        out,
        "<p class=\"note\">Rows are layers, columns experts. A number is the share of a "
        "layer's routed tokens that an expert took, relative to the uniform share "
        "1/%d.",
        d->experts));
    if (h->group > 1)
        TRY(text_printf(out,
                        " One cell stands for %d neighbouring experts and shows the one "
                        "farthest from uniform.",
                        h->group));
    if (d->domain_load_held_out && h->panels > 1)
        TRY(text_printf(out, " The domains are those of the last evaluation."));
    return text_printf(out, "</p>\n");
}

Status load_write(Text *out, const Report *r)
{
    const RunData *d = &r->data;
    const Heat h = heat_layout(d);
    if (h.panels > 0) {
        TRY(load_note(out, d, &h));
        TRY(heat_key(out));
        TRY(text_printf(out, "<div class=\"panels\">\n"));
        TRY(heat_panel(out, &h, "all tokens", &d->load));
        for (int i = 0; i < d->domains.n; i++)
            TRY(heat_panel(out, &h, d->domains.name[i], &d->domain_load[i]));
        TRY(text_printf(out, "</div>\n"));
    }
    return load_series_chart(out, r);
}
