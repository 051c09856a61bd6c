/* svg: the parts of every plot (colours, ticks, numbers, legends), and stacked bars. Line charts
 * and points are in svg_chart.c. */
#include "pages/charts/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Colours repeat from the ninth series on. */
char svg_color(int color)
{
    static const char LETTER[] = "01234567";
    if (color < 0) return 'x';
    return LETTER[color % SVG_COLORS];
}

/* ---- ticks ---- */

/* The smallest step of 1, 2, 2.5 or 5 times a power of ten that gives at most about `want` ticks.
 * With `least` >= 1 (counts, steps) only whole steps are allowed: 2.5 is not one. */
static double round_step(double span, int want, double least)
{
    static const double FACTOR[] = { 1, 2, 2.5, 5, 10 };
    double raw = fmax(span / want, least), power = pow(10, floor(log10(raw)));
    for (int i = 0; i < 5; i++) {
        double step = FACTOR[i] * power;
        bool whole = least < 1 || step == nearbyint(step);
        if (step >= raw * (1 - 1e-9) && whole) return step;
    }
    return 10 * power;
}

/* Ticks are products of a whole number and the step, so that rounding errors do not add up. */
int svg_ticks(double lo, double hi, int want, double least_step, double tick[SVG_TICKS_MAX],
              double *step)
{
    double s = hi > lo ? round_step(hi - lo, want, least_step) : fmax(fabs(lo), 1);
    double first = ceil(lo / s - 1e-6), n = floor(hi / s + 1e-6) - first + 1;
    int count = (int)fmin(fmax(n, 0), SVG_TICKS_MAX);
    for (int i = 0; i < count; i++) tick[i] = (first + i) * s;
    *step = s;
    return count;
}

/* Fewer than three decades get 1, 2 and 5 in each. More decades get powers of ten, with a stride if
 * there are too many. */
int svg_log_ticks(double lo, double hi, double tick[SVG_TICKS_MAX])
{
    static const double DIGIT[] = { 1, 2, 5 };
    double decades = log10(hi) - log10(lo);
    int digits = decades < 3 ? 3 : 1, stride = 1 + (int)decades / (SVG_TICKS_MAX / 2), n = 0;
    int first = (int)floor(log10(lo)), last = (int)ceil(log10(hi));
    for (int e = first; e <= last; e += stride) {
        for (int d = 0; d < digits; d++) {
            double v = DIGIT[d] * pow(10, e);
            if (v < lo * (1 - 1e-9) || v > hi * (1 + 1e-9) || n == SVG_TICKS_MAX) continue;
            tick[n++] = v;
        }
    }
    return n;
}

/* ---- numbers ---- */

/* Decimals that a step needs, 6 at most. */
static int decimals_of(double step)
{
    int n = 0;
    /* shifts digits until the rest is whole: 2.5e-3 needs four */
    while (n < 6 && fabs(step - nearbyint(step)) > 1e-6 * fabs(step)) {
        step *= 10;
        n++;
    }
    return n;
}

/* What a number is divided by, and the text behind it. */
typedef struct Scale {
    double factor;
    const char *suffix;
} Scale;

/* The unit or SI prefix for a value. Plain numbers get one from 10,000 on. */
static Scale scale_of(double v, SvgUnit unit)
{
    double size = fabs(v);
    if (unit == SVG_PERCENT) return (Scale){ 0.01, " %" };
    if (unit == SVG_SECONDS && size < 1e-3) return (Scale){ 1e-6, " µs" };
    if (unit == SVG_SECONDS && size < 1) return (Scale){ 1e-3, " ms" };
    if (unit == SVG_SECONDS) return (Scale){ 1, " s" };
    if (size >= 1e12) return (Scale){ 1e12, "T" };
    if (size >= 1e9) return (Scale){ 1e9, "G" };
    if (size >= 1e6) return (Scale){ 1e6, "M" };
    if (size >= 1e4) return (Scale){ 1e3, "k" };
    return (Scale){ 1, "" };
}

/* All ticks of an axis get the decimals that its step needs, so that they line up. */
const char *svg_tick_text(char out[32], double v, double step, SvgUnit unit)
{
    if (unit == SVG_BYTES) return text_bytes(out, v);
    /* All ticks of a time axis get the unit of its step: 0.5 ms, 1 ms, 1.5 ms. */
    Scale s = scale_of(unit == SVG_SECONDS ? step : v, unit);
    if (v == 0) {
        (void)snprintf(out, 32, "0%s", unit == SVG_PLAIN ? "" : s.suffix);
    } else if (unit == SVG_PLAIN && step < 1e-3 && fabs(v) < 1e-2) {
        int exponent = (int)floor(log10(fabs(v)) + 1e-9);
        double power = pow(10, exponent);
        (void)snprintf(out, 32, "%.*fe%d", decimals_of(v / power), v / power, exponent);
    } else {
        int decimals = decimals_of(step / s.factor);
        (void)snprintf(out, 32, "%.*f%s", decimals, v / s.factor, s.suffix);
    }
    return out;
}

const char *svg_value_text(char out[32], double v, SvgUnit unit)
{
    if (!isfinite(v)) return memcpy(out, "-", 2);
    if (unit == SVG_BYTES) return text_bytes(out, v);
    Scale s = scale_of(v, unit);
    double scaled = v / s.factor;
    bool whole = unit == SVG_PLAIN && scaled == nearbyint(scaled);
    (void)snprintf(out, 32, whole ? "%.0f%s" : "%.4g%s", scaled, s.suffix);
    return out;
}

/* ---- parts of plots ---- */

Status svg_open(Text *out, const char *class, double width, double height, const char *title)
{
    return text_markup(out,
                       "<svg class=\"%s\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" "
                       "role=\"img\" aria-label=\"%s\"",
                       class, width, height, width, height, title);
}

/* "2.5 s": a time in the unit of the span that is shown, so that an axis of seconds has no ms. */
static const char *time_text(char out[32], double v, double step, double span_s)
{
    const Scale s = scale_of(span_s, SVG_SECONDS);
    (void)snprintf(out, 32, "%.*f%s", decimals_of(step / s.factor), v / s.factor, s.suffix);
    return out;
}

/* A label near the right edge ends at its tick instead of being centred on it, so it does not leave
 * the picture. */
Status svg_time_axis(Text *out, double from_s, double span_s, double left, double right, double top,
                     double bottom)
{
    double tick[SVG_TICKS_MAX], step = 0, scale = (right - left) / span_s;
    int n = svg_ticks(from_s, from_s + span_s, 8, 0, tick, &step);
    char label[32];
    TRY(text_printf(out, "<g class=\"grid ticks\">"));
    for (int i = 0; i < n; i++) {
        double x = left + (tick[i] - from_s) * scale;
        bool last = x > right - 4.0 * SVG_CHAR;
        TRY(text_printf(out,
                        "<path d=\"M%.1f %.0fV%.0f\"/>"
                        "<text class=\"%s\" x=\"%.1f\" y=\"%.0f\">%s</text>",
                        x, top, bottom, last ? "end" : "mid", x, bottom + 13,
                        time_text(label, tick[i], step, span_s)));
    }
    return text_printf(out, "</g>\n");
}

/* Starts a new row if the entry does not fit, unless it is the first of its row. */
Status svg_legend_entry(Text *out, SvgLegend *l, const char *name, int color, SvgMark mark)
{
    double width = (double)strlen(name) * SVG_CHAR + 34;
    char c = svg_color(color);
    if (l->x + width > l->right && l->x > l->left) {
        l->x = l->left;
        l->y += SVG_LINE_HEIGHT;
    }
    double x = l->x, y = l->y;
    l->x += width;
    if (out == NULL) return OK;
    TRY(text_printf(out, "<g transform=\"translate(%.0f %.0f)\">", x, y));
    if (mark == SVG_POINTS)
        TRY(text_printf(out, "<circle class=\"f%c\" cx=\"9\" cy=\"-4\" r=\"5\"/>", c));
    else if (mark == SVG_BOX)
        TRY(text_printf(out, "<rect class=\"f%c\" y=\"-10\" width=\"12\" height=\"12\"/>", c));
    else
        TRY(text_printf(out, "<path class=\"line s%c%s\" d=\"M0 -4H18\"/>", c,
                        mark == SVG_FAINT ? " faint" : ""));
    if (mark == SVG_DOTS)
        TRY(text_printf(out, "<circle class=\"f%c\" cx=\"9\" cy=\"-4\" r=\"3\"/>", c));
    return text_markup(out, "<text x=\"%d\">%s</text></g>\n", mark == SVG_BOX ? 18 : 23, name);
}

/* ---- stacked bars ---- */

enum { BAR_HEIGHT = 26, BAR_THIN = 14, BARS_MANY = 16, GUIDE_LINE = 15 };

/* Many bars are thinner. The gap below a bar is half of its height. */
static int bar_height(const SvgBars *b) { return b->rows > BARS_MANY ? BAR_THIN : BAR_HEIGHT; }

/* Behind the eighth part all are grey. */
static int part_color(int part) { return part < SVG_COLORS ? part : -1; }

/* The length of a bar. Values that are not positive have no part in it. */
static double bars_total(const SvgBars *b, int row)
{
    double sum = 0;
    for (int p = 0; p < b->parts; p++) {
        double v = b->value[(int64_t)row * b->parts + p];
        if (v > 0) sum += v;
    }
    return sum;
}

/* Pixels of the widest name. SVG_CHAR overestimates, so a name is never cut. */
static double widest(const char *const *name, int n)
{
    size_t most = 1;
    for (int i = 0; i < n; i++) {
        if (strlen(name[i]) > most) most = strlen(name[i]);
    }
    return (double)most * SVG_CHAR;
}

/* Names stand right-aligned before the bar, the sum behind it. Each part has a tooltip with its
 * value. */
static Status bars_row(Text *out, const SvgBars *b, int row, double left, double scale)
{
    int height = bar_height(b);
    double x = left, y = b->guides * GUIDE_LINE + row * 1.5 * height, text = y + 0.5 * height + 4;
    double sum = bars_total(b, row);
    bool over = b->guides > 0 && sum > b->guide->at;
    char number[32];
    TRY(text_markup(out, "<text class=\"end\" x=\"%.0f\" y=\"%.0f\">%s</text>", left - 8, text,
                    b->row[row]));
    for (int p = 0; p < b->parts; p++) {
        double v = b->value[(int64_t)row * b->parts + p];
        if (!(v > 0)) continue;
        TRY(text_markup(out,
                        "<rect class=\"f%c edge\" x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" "
                        "height=\"%d\"><title>%s: %s</title></rect>",
                        svg_color(part_color(p)), x, y, v * scale, height, b->part[p],
                        svg_value_text(number, v, b->unit)));
        x += v * scale;
    }
    return text_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.0f\">%s</text>\n",
                       over ? "bad" : "", x + 8, text, svg_value_text(number, sum, b->unit));
}

/* Names stand above the bars, one line each, left of their lines where there is room. The first one is lowest, so that no
 * line crosses a name if guides rise. */
static Status bars_guides(Text *out, const SvgBars *b, double left, double scale, double bottom)
{
    for (int i = 0; i < b->guides; i++) {
        double x = left + b->guide[i].at * scale, y = (b->guides - i) * GUIDE_LINE - 4;
        TRY(text_printf(out, "<path class=\"guide\" d=\"M%.1f %.1fV%.0f\"/>\n", x, y - 10, bottom));
        bool ends = x > 0.5 * b->width;
        TRY(text_markup(out, "<text class=\"%sdim\" x=\"%.1f\" y=\"%.0f\">%s</text>\n",
                        ends ? "end " : "", x + (ends ? -5 : 5), y, b->guide[i].label));
    }
    return OK;
}

/* Writes the legend from *l on, or with out NULL only moves it. It has the parts that can be seen in at
 * least one bar. */
static Status bars_legend(Text *out, const SvgBars *b, double scale, SvgLegend *l)
{
    static const double SEEN = 0.05; /* pixels */
    for (int p = 0; p < b->parts; p++) {
        double most = 0;
        for (int r = 0; r < b->rows; r++) most = fmax(most, b->value[(int64_t)r * b->parts + p]);
        if (most * scale >= SEEN) TRY(svg_legend_entry(out, l, b->part[p], part_color(p), SVG_BOX));
    }
    return OK;
}

Status svg_bars(Text *out, const SvgBars *b)
{
    double left = widest(b->row, b->rows) + 12, most = 0;
    double bottom = b->guides * GUIDE_LINE + b->rows * 1.5 * bar_height(b);
    for (int r = 0; r < b->rows; r++) most = fmax(most, bars_total(b, r));
    for (int i = 0; i < b->guides; i++) most = fmax(most, b->guide[i].at);
    double scale = most > 0 ? (b->width - left - 90) / most : 0;
    /* The legend is laid out twice: the first time only to know its height, for the <svg>'s
     * size. */
    SvgLegend l = { left, bottom + 10, left, b->width }, measured = l;
    TRY(bars_legend(NULL, b, scale, &measured));
    TRY(svg_open(out, "bars", b->width, measured.y - 10 + SVG_LINE_HEIGHT, b->title));
    TRY(text_printf(out, ">\n"));
    for (int r = 0; r < b->rows; r++) TRY(bars_row(out, b, r, left, scale));
    TRY(bars_guides(out, b, left, scale, bottom));
    TRY(bars_legend(out, b, scale, &l));
    return text_printf(out, "</svg>\n");
}
