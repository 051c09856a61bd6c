/* report_load: where the tokens went: expert load by domain, and over the steps. */
#include "viz/report_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LAYERS_BY_NAME = SVG_COLORS, /* more layers than these are grey lines with their envelope */
    LOAD_HEIGHT = 300,
};

/* ---- made ready ---- */

/* Loads become shares relative to uniform, in place; a layer without load has none. */
static void make_relative(const RunData *d, const RunLoad *load)
{
    if (load->lines == 0) return;
    for (int l = 0; l < d->moe_layers; l++) {
        double *row = load->sum + (int64_t)l * d->experts, sum = 0;
        for (int e = 0; e < d->experts; e++) sum += row[e];
        for (int e = 0; e < d->experts; e++)
            row[e] = sum > 0 ? row[e] * d->experts / sum : (double)NAN;
    }
}

/* "layer 3", and with `what` behind it. */
static Status label(Arena *a, int64_t layer, const char *what, const char **out)
{
    char text[64];
    int n = snprintf(text, sizeof text, "layer %lld%s", (long long)layer, what);
    return arena_text(a, text, (size_t)n, out);
}

/* The least of the least or the most of the most over all layers. All layers have the same points;
 * where one has none, neither has the envelope. */
static Status envelope(const Curve *layer, int layers, bool most, Arena *a, Curve *out)
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
        TRY(envelope(most ? d->most : d->least, d->moe_layers, most, a, &c));
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

static Status make_series(Report *r, Arena *a)
{
    const RunData *d = &r->data;
    bool named = d->moe_layers <= LAYERS_BY_NAME;
    TRY(ARENA_ZEROED(a, 2 * d->moe_layers + 2, &r->load_series));
    for (int i = 0; i < 2 * d->moe_layers; i++) {
        int layer = i / 2;
        const Curve *c = i % 2 == 0 ? &d->least[layer] : &d->most[layer];
        SvgSeries *s = &r->load_series[r->n_load_series++];
        *s = (SvgSeries){
            .x = c->x, .y = c->y, .n = c->n, .color = named ? layer : -1, .legend = ""
        };
        s->mark = named ? SVG_LINE : SVG_FAINT;
        TRY(label(a, d->layer_name[layer], i % 2 == 0 ? ", least" : ", most", &s->name));
        if (named && i % 2 == 0) TRY(label(a, d->layer_name[layer], "", &s->legend));
    }
    return named ? OK : add_envelopes(r, a);
}

Status load_view_make(Report *r, Arena *a)
{
    const RunData *d = &r->data;
    if (d->moe_layers == 0) return OK;
    make_relative(d, &d->load);
    for (int i = 0; i < d->domains.n; i++) make_relative(d, &d->domain_load[i]);
    return make_series(r, a);
}

/* ---- over the steps ---- */

static Status write_series(Text *out, const Report *r)
{
    static const double UNIFORM = 1;
    const SvgChart chart = { "Least and most loaded expert over the steps",
                             "step",
                             "load / mean load",
                             r->load_series,
                             r->n_load_series,
                             REPORT_FULL,
                             LOAD_HEIGHT,
                             .from_zero = true,
                             .guide = &UNIFORM };
    TRY(text_printf(out, "<h3>Least and most loaded expert of a layer, over the steps</h3>\n<div "
                         "class=\"wide full\">\n"));
    TRY(svg_chart(out, &chart));
    return text_printf(out, "</div>\n");
}

/* ---- by domain ---- */

static int count_panels(const RunData *d)
{
    int n = d->load.lines > 0;
    for (int i = 0; i < d->domains.n; i++) n += d->domain_load[i].lines > 0;
    return n;
}

static SvgHeat heat_of(const RunData *d, const char *name, const RunLoad *load, int panels)
{
    return (SvgHeat){ name,      "layer",       "expert",   d->layer_name,
                      load->sum, d->moe_layers, d->experts, panels };
}

static Status panel(Text *out, const RunData *d, const char *name, const RunLoad *load, int panels)
{
    if (load->lines == 0) return OK;
    const SvgHeat heat = heat_of(d, name, load, panels);
    TRY(text_markup(out, "<figure><h3>%s", name));
    if (load->first_step == load->last_step) {
        TRY(text_printf(out, " <span class=\"note\">step %lld</span></h3>\n",
                        (long long)load->last_step));
    } else {
        TRY(text_printf(out, " <span class=\"note\">steps %lld to %lld</span></h3>\n",
                        (long long)load->first_step, (long long)load->last_step));
    }
    TRY(svg_heat(out, &heat));
    return text_printf(out, "</figure>\n");
}

static Status load_note(Text *out, const RunData *d, int panels)
{
    const SvgHeat heat = heat_of(d, "", &d->load, panels);
    int group = svg_heat_group(&heat);
    TRY(text_printf(
        out,
        "<p class=\"note\">Rows are layers, columns experts. A number is the share of a "
        "layer's routed tokens that an expert took, relative to the uniform share "
        "1/%d.",
        d->experts));
    if (group > 1)
        TRY(text_printf(out,
                        " One cell stands for %d neighbouring experts and shows the one "
                        "farthest from uniform.",
                        group));
    if (d->domain_load_held_out && panels > 1)
        TRY(text_printf(out, " The domains are those of the last evaluation."));
    return text_printf(out, "</p>\n");
}

static bool has_load(const Report *r) { return r->n_load_series > 0; }

static Status write_load(Text *out, const Report *r)
{
    const RunData *d = &r->data;
    int panels = count_panels(d);
    if (panels > 0) {
        TRY(load_note(out, d, panels));
        TRY(svg_heat_key(out));
        TRY(text_printf(out, "<div class=\"panels\">\n"));
        TRY(panel(out, d, "all tokens", &d->load, panels));
        for (int i = 0; i < d->domains.n; i++)
            TRY(panel(out, d, d->domains.name[i], &d->domain_load[i], panels));
        TRY(text_printf(out, "</div>\n"));
    }
    return write_series(out, r);
}

const Section section_experts = { "experts", "Expert load", .has = has_load, .write = write_load };
