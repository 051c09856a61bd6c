/*
 * timeline_svg: draws a timeline as one <svg>. Each rank has a row, each pass a box with the number
 * of its micro-batch where that fits; idle time is the grey background. Passes too short for a box
 * of their own share one. A thin strip below a row's boxes shows the communication lane. Two passes
 * over the same time get half of the row's height each.
 *
 * Colours differ also with red-green blindness: kinds by hue (blue, orange, yellow; the halves of a
 * backward are a darker orange and yellow), chunks by lightness. data- attributes carry what the
 * page's script needs to zoom (page/pipeline.js).
 */
#include "pages/charts/timeline.h"

#include "pages/charts/merge.h"
#include "pages/charts/svg.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TITLE = 26,
    LEFT = 64,
    RIGHT = 132, /* room for a rank's bubble and memory */
    BUBBLE = 58,
    BAR = 18,
    STRIP = 5,
    GAP = 4,
    AXIS = 26,
    LEGEND = 22,
    SHADES = 6,
    DIGIT = 5,  /* pixels of a digit in a box ... */
    SMALL = 4,  /* ... and of one in smaller type, if there is no room; page/pipeline.js has both */
    NARROW = 3, /* pixels of a mean pass, below which parts of the step are drawn, too, ... */
    WIDE = 14,  /* ... in which it has so many */
    PART_BOXES = 600, /* spans shorter than this share of a part share boxes */
    THIN = 6,         /* narrower boxes have no edge, because it would cover them */
};
static_assert(TIMELINE_KINDS * SHADES <= MERGE_KINDS, "a group has each kind in each shade");

static const unsigned char COLOR[TIMELINE_KINDS][3] = {
    { 0x1f, 0x5f, 0xa8 }, { 0xd9, 0x78, 0x1e }, { 0xa8, 0x45, 0x14 }, { 0xe0, 0xb4, 0x00 },
    { 0x4d, 0x59, 0x65 }, { 0x7a, 0x4f, 0xb5 }, { 0x0e, 0x8a, 0x8a },
};

/* ---- colours ---- */

/* The shade of a chunk: spread over all shades; with more chunks than shades they repeat. What belongs to no
 * chunk (-1) is dark. */
static int shade_of(const Timeline *t, int chunk)
{
    if (chunk < 0) return 0;
    if (t->chunks > SHADES) return chunk % SHADES;
    return t->chunks == 1 ? 0 : chunk * (SHADES - 1) / (t->chunks - 1);
}

/* Text on a box is black or white, whichever contrasts more. */
Status timeline_colors(Text *out)
{
    for (int k = 0; k < TIMELINE_KINDS; k++) {
        for (int shade = 0; shade < SHADES; shade++) {
            int rgb[3];
            double white = 0.62 * shade / (SHADES - 1);
            for (int i = 0; i < 3; i++) rgb[i] = (int)(COLOR[k][i] + white * (255 - COLOR[k][i]));
            /* luma of ITU-R BT.601, 0 to 255 */
            int light = (299 * rgb[0] + 587 * rgb[1] + 114 * rgb[2]) / 1000;
            TRY(text_printf(out, ".k%d%d{fill:#%02x%02x%02x}.tk%d%d{fill:%s}\n", k, shade, rgb[0],
                            rgb[1], rgb[2], k, shade, light < 140 ? "#fff" : "#111"));
        }
        TRY(text_printf(out, ".kinds .f%d{fill:#%02x%02x%02x}\n", k, COLOR[k][0], COLOR[k][1],
                        COLOR[k][2]));
    }
    return text_printf(out,
                       ".pipe .win{cursor:grab}.pipe .win text{font-size:9px;"
                       "text-anchor:middle;pointer-events:none}.pipe .win .small{font-size:7px}"
                       ".pipe .r rect{stroke:#fff;"
                       "stroke-width:.4}.pipe .r .thin{stroke:none;"
                       "shape-rendering:crispEdges}.pipe .head{font-weight:bold;font-size:13px}\n");
}

/* ---- layout ---- */

static bool has_kind(const Timeline *t, int kind)
{
    for (int r = 0; r < t->ranks; r++) {
        if (t->rank[r].sum_s[kind] > 0) return true;
    }
    return false;
}

/* A row is higher if any rank communicates, so that all rows are alike. */
static double row_height(const Timeline *t)
{
    bool strip = has_kind(t, TIMELINE_EXCHANGE) || has_kind(t, TIMELINE_SEND);
    return strip ? BAR + STRIP + GAP : BAR + GAP;
}

double timeline_svg_height(const Timeline *t)
{
    return TITLE + t->shown * row_height(t) + AXIS + LEGEND;
}

/* `text` is markup. */
static Status svg_text(Text *out, const char *class, double x, double y, const char *text)
{
    return text_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x, y,
                       text);
}

/* ---- boxes ---- */

/* Do spans i and i + 1 overlap by more than half, as passes that ran as one do? */
static bool coincides(const TimelineRank *r, int i)
{
    if (i < 0 || i + 1 >= r->spans || r->span[i + 1].kind >= TIMELINE_EXCHANGE) return false;
    const TimelineSpan *a = &r->span[i], *b = a + 1;
    double common = fmin(a->end_s, b->end_s) - b->start_s;
    return a->kind < TIMELINE_EXCHANGE && common > 0.5 * (b->end_s - b->start_s);
}

/* What is drawn: `axis_s` from `from_s` on, `scale` pixels a second. Spans shorter than brief_s share boxes. by_pass:
 * a number stands for each pass, not for each of its spans. */
typedef struct View {
    const Timeline *t;
    double from_s, axis_s, brief_s, scale;
    bool by_pass;
} View;

/* The number of a micro-batch at x, if a box of this width has room for it. */
static Status draw_number(Text *out, const View *v, const TimelineSpan *s, double x, double width)
{
    int digits = s->micro < 10 ? 1 : s->micro < 100 ? 2 : s->micro < 1000 ? 3 : 5;
    if (s->micro < 0 || width < digits * SMALL) return OK;
    return text_printf(out, "<text class=\"tk%d%d%s\" x=\"%.1f\" y=\"13\">%d</text>", (int)s->kind,
                       shade_of(v->t, s->chunk), width < digits * DIGIT + 2 ? " small" : "",
                       x + width / 2, s->micro);
}

/* Draws one span. half: it has half the row's height; lower: the lower half. */
static Status draw_span(Text *out, const View *v, const TimelineSpan *s, bool half, bool lower)
{
    const Timeline *t = v->t;
    bool comm = s->kind >= TIMELINE_EXCHANGE;
    double x = (s->start_s - v->from_s) * v->scale, width = (s->end_s - s->start_s) * v->scale;
    int shade = shade_of(t, s->chunk), height = comm ? STRIP : half ? BAR / 2 : BAR;
    TRY(text_printf(out, "<rect class=\"k%d%d%s\" x=\"%.3f\" width=\"%.3f\" height=\"%d\"",
                    (int)s->kind, shade, width < THIN ? " thin" : "", x, width, height));
    if (comm || lower) TRY(text_printf(out, " y=\"%d\"", comm ? BAR : BAR / 2));
    if (t->chunks > 1 && s->chunk >= 0) TRY(text_printf(out, " data-c=\"%d\"", s->chunk));
    if (s->micro >= 0 && (comm || !v->by_pass)) TRY(text_printf(out, " data-m=\"%d\"", s->micro));
    TRY(text_printf(out, "/>\n"));
    return comm || half || v->by_pass ? OK : draw_number(out, v, s, x, width);
}

/* An invisible box over each pass, with its number: from its first span to its last one, with the waits for exchanges
 * between them. Passes that run in turns have several. */
static Status draw_passes(Text *out, const View *v, const TimelineRank *r)
{
    for (int i = 0, last; i < r->spans; i = last + 1) {
        TimelineSpan pass = r->span[i];
        last = i;
        if (pass.kind >= TIMELINE_OTHER) continue;
        for (int k = i + 1; k < r->spans; k++) {
            const TimelineSpan *s = &r->span[k];
            if (s->kind >= TIMELINE_OTHER) continue;
            if (s->kind != pass.kind || s->micro != pass.micro || s->chunk != pass.chunk) break;
            pass.end_s = s->end_s;
            last = k;
        }
        const double x = (pass.start_s - v->from_s) * v->scale;
        const double width = (pass.end_s - pass.start_s) * v->scale;
        if (pass.end_s <= v->from_s || pass.start_s >= v->from_s + v->axis_s) continue;
        TRY(text_printf(out,
                        "<rect class=\"k%d%d thin\" fill-opacity=\"0\" x=\"%.3f\" width=\"%.3f\" "
                        "height=\"%d\" data-m=\"%d\" data-c=\"%d\"/>\n",
                        (int)pass.kind, shade_of(v->t, pass.chunk), x, width, BAR, pass.micro,
                        pass.chunk));
        TRY(draw_number(out, v, &pass, x, width));
    }
    return OK;
}

/* The open group of brief spans of a row's strip. A group of one is drawn as that span. */
typedef struct Group {
    Merge merge;
    const TimelineSpan *only; /* the span of a group of one; NULL: none or several */
} Group;

static void group_add(Group *g, const Timeline *t, const TimelineSpan *s)
{
    g->only = g->merge.spans == 0 ? s : NULL;
    merge_add(&g->merge, (int)s->kind * SHADES + shade_of(t, s->chunk), s->start_s, s->end_s);
}

/* Draws the boxes of a group and empties it. Each box extends under the later ones, which avoids seams. data-n
 * and data-s: how many spans it stands for, and their seconds. */
static Status draw_group(Text *out, const View *v, Group *g)
{
    MergeBox box[MERGE_KINDS];
    const TimelineSpan *only = g->only;
    int n = merge_boxes(&g->merge, box);
    g->only = NULL;
    if (only != NULL) return draw_span(out, v, only, false, false);
    for (const MergeBox *x = box; x < box + n; x++) {
        bool comm = x->kind / SHADES >= TIMELINE_EXCHANGE;
        TRY(text_printf(out,
                        "<rect class=\"k%d%d thin\" x=\"%.3f\" y=\"%d\" width=\"%.3f\" "
                        "height=\"%d\" data-n=\"%lld\" data-s=\"%.9g\"/>\n",
                        x->kind / SHADES, x->kind % SHADES, (x->start - v->from_s) * v->scale,
                        comm ? BAR : 0, (x->end - x->start) * v->scale, comm ? STRIP : BAR,
                        (long long)x->spans, x->sum));
    }
    return OK;
}

/* Walks the spans by start. Brief ones join the open group of their strip, if it takes them; every other span
 * closes the group and gets a box. */
static Status draw_boxes(Text *out, const View *v, const TimelineRank *r)
{
    Group passes = { 0 }, communication = { 0 };
    const double brief_s = v->brief_s, end_s = v->from_s + v->axis_s;
    for (int i = 0; i < r->spans; i++) {
        const TimelineSpan *s = &r->span[i];
        if (s->end_s <= v->from_s || s->start_s >= end_s) continue;
        Group *group = s->kind >= TIMELINE_EXCHANGE ? &communication : &passes;
        bool brief = s->end_s - s->start_s < brief_s, lower = coincides(r, i - 1);
        if (!brief || !merge_takes(&group->merge, s->start_s, s->end_s, brief_s))
            TRY(draw_group(out, v, group));
        if (brief)
            group_add(group, v->t, s);
        else
            TRY(draw_span(out, v, s, lower || coincides(r, i), lower));
    }
    TRY(draw_group(out, v, &passes));
    return draw_group(out, v, &communication);
}

/* ---- around the boxes ---- */

static Status draw_rank(Text *out, const Timeline *t, int rank, double y, double right)
{
    const TimelineRank *r = &t->rank[rank];
    bool over = t->room_bytes > 0 && r->peak_bytes > t->room_bytes;
    char name[32], bubble[32], memory[32] = "";
    (void)snprintf(name, sizeof name, "rank %d", rank);
    (void)snprintf(bubble, sizeof bubble, "%.2f %%", 100 * r->bubble);
    if (!isnan(r->peak_bytes)) (void)text_bytes(memory, r->peak_bytes);
    TRY(svg_text(out, "end", LEFT - 8, y + 13, name));
    TRY(svg_text(out, "end", right + BUBBLE, y + 13, bubble));
    return svg_text(out, over ? "end bad" : "end", right + RIGHT, y + 13, memory);
}

static Status timeline_legend(Text *out, const Timeline *t, double y)
{
    double x = LEFT;
    int chunks = t->chunks < SHADES ? t->chunks : SHADES;
    for (int k = 0; k < TIMELINE_KINDS; k++) {
        if (!has_kind(t, k)) continue;
        for (int c = 0; c < chunks; c++)
            TRY(text_printf(out,
                            "<rect class=\"k%d%d\" x=\"%.0f\" y=\"%.0f\" width=\"12\" "
                            "height=\"12\"/>",
                            k, shade_of(t, c), x + 12 * c, y));
        x += 12 * chunks;
        TRY(svg_text(out, "", x + 6, y + 10, timeline_kind[k].name));
        x += 7.0 * (double)strlen(timeline_kind[k].name) + 22;
    }
    return chunks > 1 ? svg_text(out, "dim", x, y + 10, "chunks from dark to light") : OK;
}

/* What the page's script needs, and the end of the tag. */
static Status timeline_data(Text *out, double axis_s, double from_s)
{
    TRY(text_printf(out, " data-axis=\"%.9g\" data-from=\"%.9g\" data-kinds=\"", axis_s, from_s));
    for (int k = 0; k < TIMELINE_KINDS; k++) TRY(text_printf(out, "%s,", timeline_kind[k].name));
    return text_printf(out, "\">\n");
}

/* <svg>, and the line above the boxes. */
static Status timeline_head(Text *out, const Timeline *t, double width, double axis_s)
{
    char step[32];
    TRY(svg_open(out, "pipe", width, timeline_svg_height(t), t->title));
    TRY(timeline_data(out, axis_s, 0));
    TRY(text_markup(out, "<text class=\"head\" x=\"0\" y=\"14\">%s: %s %s, bubble %.2f %%</text>\n",
                    t->title, t->pipeline_s > 0 ? "ends after" : "step",
                    svg_value_text(step, t->step_s, SVG_SECONDS), 100 * t->bubble));
    TRY(svg_text(out, "end dim", width - RIGHT + BUBBLE, 14, "bubble"));
    return svg_text(out, "end dim", width, 14, t->peak_rank >= 0 ? "memory" : "");
}

/* The rows of all ranks that are drawn, in an inner <svg>, which clips them when the page's script zooms. */
static Status draw_rows(Text *out, const View *v, double plot)
{
    const Timeline *t = v->t;
    const double row = row_height(t);
    TRY(text_printf(out,
                    "<svg class=\"win\" x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"%.0f\">"
                    "<g class=\"z\">\n",
                    LEFT, TITLE, plot, t->shown * row));
    for (int i = 0; i < t->shown; i++) {
        int rank = timeline_shown_rank(t, i);
        TRY(text_printf(out,
                        "<g class=\"r\" data-r=\"%d\" transform=\"translate(0 %.0f)\">"
                        "<rect class=\"idle\" width=\"%.3f\" height=\"%d\"/>\n",
                        rank, i * row, fmin(t->step_s - v->from_s, v->axis_s) * v->scale, BAR));
        TRY(draw_boxes(out, v, &t->rank[rank]));
        if (v->by_pass) TRY(draw_passes(out, v, &t->rank[rank]));
        TRY(text_printf(out, "</g>\n"));
    }
    return text_printf(out, "</g></svg>\n");
}

Status timeline_svg(Text *out, const Timeline *t, double width, double axis_s)
{
    double row = row_height(t), plot = width - LEFT - RIGHT, bottom = TITLE + t->shown * row;
    const View v = { t, 0, axis_s, t->step_s / t->grain, plot / axis_s, false };
    TRY(timeline_head(out, t, width, axis_s));
    TRY(svg_time_axis(out, 0, axis_s, LEFT, width - RIGHT, TITLE, bottom + 4));
    for (int i = 0; i < t->shown; i++) {
        int rank = timeline_shown_rank(t, i);
        TRY(draw_rank(out, t, rank, TITLE + i * row, width - RIGHT));
    }
    TRY(draw_rows(out, &v, plot));
    TRY(timeline_legend(out, t, bottom + AXIS + 2));
    return text_printf(out, "</svg>\n");
}

/* The time of a mean pass: each micro-batch has a forward and a backward one in each chunk. */
static double mean_pass_s(const Timeline *t)
{
    double s = 0;
    for (int r = 0; r < t->ranks; r++) s += t->rank[r].passes_s / t->ranks;
    return s / (2.0 * t->micros * t->chunks);
}

double timeline_part_s(const Timeline *t, double width, double axis_s)
{
    const double plot = width - LEFT - RIGHT, pass_s = mean_pass_s(t);
    if (pass_s <= 0 || pass_s * plot / axis_s >= NARROW) return 0;
    return fmin(pass_s * plot / WIDE, 0.5 * t->step_s);
}

Status timeline_part_svg(Text *out, const Timeline *t, double width, double from_s, double part_s,
                         const char *title)
{
    double row = row_height(t), plot = width - LEFT - RIGHT, bottom = TITLE + t->shown * row;
    const View v = { t, from_s, part_s, part_s / PART_BOXES, plot / part_s, true };
    TRY(svg_open(out, "pipe", width, bottom + AXIS, title));
    TRY(timeline_data(out, part_s, from_s));
    TRY(text_markup(out, "<text class=\"head\" x=\"0\" y=\"14\">%s</text>\n", title));
    TRY(svg_time_axis(out, from_s, part_s, LEFT, width - RIGHT, TITLE, bottom + 4));
    for (int i = 0; i < t->shown; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "rank %d", timeline_shown_rank(t, i));
        TRY(svg_text(out, "end", LEFT - 8, TITLE + i * row + 13, name));
    }
    TRY(draw_rows(out, &v, plot));
    return text_printf(out, "</svg>\n");
}
