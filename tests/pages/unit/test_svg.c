#include "harness/out.h"

#include "engine/base/rng.h"
#include "pages/charts/svg.h"
#include "pages/unit/xml_check.h"

#include <stdlib.h>

static const char NASTY[] = "a<b> & \"c\" \x01\xFF";
static const char NASTY_ESCAPED[] = "a&lt;b&gt; &amp; &quot;c&quot; \xEF\xBF\xBD\xEF\xBF\xBD";

static void check_xml(const char *text)
{
    const char *place = NULL, *error = xml_error(text, &place);
    if (error != NULL) fail_msg("%s, before: %.60s", error, place);
}

static void check_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in: %.3000s", part, text);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) n++;
    return n;
}

/* ---- the checker itself ---- */

static void the_xml_check_refuses_what_is_not_well_formed(void **state)
{
    (void)state;
    static const char *const BAD[] = {
        "",
        "text",
        "<a>",
        "<a></b>",
        "<a></a><b></b>",
        "<a><b></a></b>",
        "<a x=1/>",
        "<a x=\"1/>",
        "<a x=\"1\" x=\"2\"/>",
        "<a x=\"<\"/>",
        "<a>&</a>",
        "<a>&nbsp;</a>",
        "<a>\x01</a>",
        "<a",
        "<style>a",
    };
    const char *place = NULL;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        if (xml_error(BAD[i], &place) == NULL) fail_msg("taken: %s", BAD[i]);
    }
    check_xml("<!DOCTYPE html>\n<a x=\"1\" y=\"&lt;\"><b/>&amp;<style>a<b</style></a>\n");
}

/* ---- text ---- */

static void names_are_escaped(void **state)
{
    Out *p = *state;
    CHECK_OK(text_markup(&p->text, "%s", NASTY));
    CHECK_TEXT(p->text.data, NASTY_ESCAPED);
}

/* ---- ticks ---- */

static void ticks_are_round_numbers_inside_the_range(void **state)
{
    (void)state;
    double tick[SVG_TICKS_MAX], step = 0;
    CHECK_INT(svg_ticks(0, 10, 5, 0, tick, &step), 6);
    CHECK_NEAR(step, 2, 1e-12);
    CHECK_NEAR(tick[5], 10, 1e-12);
    CHECK_INT(svg_ticks(0.13, 0.42, 3, 0, tick, &step), 3);
    CHECK_NEAR(tick[0], 0.2, 1e-12);
    CHECK_NEAR(step, 0.1, 1e-12);
    CHECK_INT(svg_ticks(-1, 1, 4, 0, tick, &step), 5);
    CHECK_NEAR(tick[2], 0, 0);
}

static void ticks_of_any_range_are_few_even_and_within(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 2000; i++) {
        double tick[SVG_TICKS_MAX], step = 0;
        double lo = (rng_uniform(1, 1, 2 * i) - 0.5) * pow(10, (double)(i % 13) - 6);
        double hi = lo + rng_uniform(1, 1, 2 * i + 1) * pow(10, (double)(i % 11) - 5) + 1e-9;
        int want = 2 + (int)(i % 9), n = svg_ticks(lo, hi, want, 0, tick, &step);
        double slack = 1e-5 * step + 1e-15 * fabs(lo);
        if (!(n <= want + 1 && n >= want / 3)) fail_msg("%d ticks for %d", n, want);
        for (int k = 0; k < n; k++) {
            if (!(tick[k] >= lo - slack && tick[k] <= hi + slack)) fail_msg("%g", tick[k]);
            if (k > 0) CHECK_NEAR(tick[k] - tick[k - 1], step, slack);
        }
        double digit = step / pow(10, floor(log10(step) + 1e-9));
        bool nice = fabs(digit - 1) < 1e-6 || fabs(digit - 2) < 1e-6 || fabs(digit - 2.5) < 1e-6 ||
                    fabs(digit - 5) < 1e-6;
        if (!nice) fail_msg("a step of %g", step);
    }
}

static void ticks_of_steps_are_whole(void **state)
{
    (void)state;
    double tick[SVG_TICKS_MAX], step = 0;
    CHECK_INT(svg_ticks(0, 3, 10, 1, tick, &step), 4);
    CHECK_NEAR(step, 1, 0);
    svg_ticks(0, 20, 8, 1, tick, &step); /* 2.5 would be nearest */
    CHECK_NEAR(step, 5, 0);
}

static void ticks_of_one_value_are_no_endless_loop(void **state)
{
    (void)state;
    double tick[SVG_TICKS_MAX], step = 0;
    CHECK_INT(svg_ticks(3, 3, 5, 0, tick, &step), 1);
    CHECK_NEAR(tick[0], 3, 1e-12);
    CHECK_INT(svg_ticks(0, 0, 5, 0, tick, &step), 1);
}

static void log_ticks_are_1_2_5_or_powers(void **state)
{
    (void)state;
    double tick[SVG_TICKS_MAX];
    CHECK_INT(svg_log_ticks(0.9, 21, tick), 5);
    CHECK_NEAR(tick[0], 1, 1e-9);
    CHECK_NEAR(tick[4], 20, 1e-9);
    CHECK_INT(svg_log_ticks(1e-3, 1e3, tick), 7);
    CHECK_NEAR(tick[0], 1e-3, 1e-9);
    int n = svg_log_ticks(1e-200, 1e200, tick);
    CHECK(n > 3 && n <= SVG_TICKS_MAX);
}

static void numbers_have_the_decimals_that_they_need(void **state)
{
    (void)state;
    static const struct {
        double v, step;
        SvgUnit unit;
        const char *want;
    } CASE[] = {
        { 2.5, 0.5, SVG_PLAIN, "2.5" },
        { 3, 0.5, SVG_PLAIN, "3.0" },
        { 20000, 20000, SVG_PLAIN, "20k" },
        { 12500, 2500, SVG_PLAIN, "12.5k" },
        { 1e6, 5e5, SVG_PLAIN, "1.0M" },
        { 4e-4, 2e-4, SVG_PLAIN, "4e-4" },
        { 1.5e-3, 5e-4, SVG_PLAIN, "1.5e-3" },
        { 0, 2e-4, SVG_PLAIN, "0" },
        { -2, 1, SVG_PLAIN, "-2" },
        { 0.4, 0.2, SVG_PERCENT, "40 %" },
        { 0.125, 0.025, SVG_PERCENT, "12.5 %" },
        { 0.05, 0.05, SVG_SECONDS, "50 ms" },
        { 0, 0.05, SVG_SECONDS, "0 ms" },
        { 1.5, 0.5, SVG_SECONDS, "1500 ms" },
        { 4e-6, 2e-6, SVG_SECONDS, "4 µs" },
        { 1536, 512, SVG_BYTES, "1.50 KiB" },
    };
    char text[32];
    for (size_t i = 0; i < sizeof CASE / sizeof CASE[0]; i++) {
        CHECK_TEXT(svg_tick_text(text, CASE[i].v, CASE[i].step, CASE[i].unit), CASE[i].want);
    }
    CHECK_TEXT(svg_value_text(text, (double)NAN, SVG_PLAIN), "-");
    CHECK_TEXT(svg_value_text(text, 3.14159, SVG_PLAIN), "3.142");
    CHECK_TEXT(svg_value_text(text, 0.00123, SVG_SECONDS), "1.23 ms");
}

/* ---- line chart ---- */

typedef struct Plot {
    double box[4], x[2], y[2];
    int log;
} Plot;

/* The frame that the page's script reads. */
static Plot plot_of(const char *svg)
{
    Plot p = { 0 };
    const char *at = strstr(svg, "data-box=");
    CHECK(at != NULL);
    int n = sscanf(at,
                   "data-box=\"%lf %lf %lf %lf\" data-x=\"%lf %lf\" data-y=\"%lf %lf\" "
                   "data-log=\"%d\"",
                   &p.box[0], &p.box[1], &p.box[2], &p.box[3], &p.x[0], &p.x[1], &p.y[0], &p.y[1],
                   &p.log);
    CHECK_INT(n, 9);
    return p;
}

/* The first curve's path. */
static const char *path_of(const char *svg)
{
    const char *at = strstr(svg, "class=\"line data");
    CHECK(at != NULL);
    at = strstr(at, " d=\"");
    CHECK(at != NULL);
    return at + 4;
}

static const double STEP[] = { 1, 2, 3, 4, 5, 6, 7 };

static SvgChart chart_of(const SvgSeries *s, int n)
{
    return (SvgChart){ .title = NASTY,
                       .x_label = NASTY,
                       .y_label = "loss",
                       .series = s,
                       .n_series = n,
                       .width = 600,
                       .height = 300 };
}

static void check_points_map_back(const SvgChart *c, double tolerance)
{
    Out p;
    out_open(&p);
    CHECK_OK(svg_chart(&p.text, c));
    check_xml(p.text.data);
    Plot plot = plot_of(p.text.data);
    const char *at = path_of(p.text.data);
    for (int i = 0; i < c->series->n; i++) {
        char *end = NULL;
        double x = strtod(at + 1, &end), y = strtod(end, &end);
        double t = (plot.box[3] - y) / (plot.box[3] - plot.box[1]);
        double u = (x - plot.box[0]) / (plot.box[2] - plot.box[0]);
        double value = plot.log ? plot.y[0] * pow(plot.y[1] / plot.y[0], t)
                                : plot.y[0] + t * (plot.y[1] - plot.y[0]);
        CHECK_NEAR(plot.x[0] + u * (plot.x[1] - plot.x[0]), c->series->x[i], 0.01);
        CHECK_NEAR(value / c->series->y[i], 1, tolerance);
        at = end;
    }
    out_close(&p);
}

static void values_can_be_read_back_off_a_linear_plot(void **state)
{
    (void)state;
    const double y[] = { 8.25, 5.5, 4.125, 3.75, 3.5, 3.375, 3.3125 };
    const SvgSeries s = { .name = "train", .x = STEP, .y = y, .n = 7 };
    SvgChart c = chart_of(&s, 1);
    check_points_map_back(&c, 1e-3);
}

static void values_can_be_read_back_off_a_log_plot(void **state)
{
    (void)state;
    const double y[] = { 1e-3, 0.5, 2000, 3, 40, 0.07, 9 };
    const SvgSeries s = { .name = "norm", .x = STEP, .y = y, .n = 7 };
    SvgChart c = chart_of(&s, 1);
    c.log_y = true;
    check_points_map_back(&c, 2e-3);
}

static void check_path_pieces(const double *y, bool log_y, int pieces, int dots)
{
    Out p;
    out_open(&p);
    const SvgSeries s = { .name = "train", .x = STEP, .y = y, .n = 7 };
    SvgChart c = chart_of(&s, 1);
    c.log_y = log_y;
    CHECK_OK(svg_chart(&p.text, &c));
    check_xml(p.text.data);
    int moves = 0;
    for (const char *at = path_of(p.text.data); *at != '"'; at++) moves += *at == 'M';
    CHECK_INT(moves, pieces);
    CHECK_INT(count(p.text.data, "<circle"), dots);
    CHECK(strstr(p.text.data, "nan") == NULL);
    CHECK(strstr(p.text.data, "inf") == NULL);
    out_close(&p);
}

static void a_value_that_is_not_finite_is_a_gap(void **state)
{
    (void)state;
    const double nan = (double)NAN, inf = (double)INFINITY;
    const double one_gap[] = { 3, 2, nan, 2, 1, 1, 1 }, two[] = { 3, 2, 2, inf, 1, nan, 1 };
    check_path_pieces(one_gap, false, 2, 0);
    check_path_pieces(two, false, 3, 2); /* lone points are dots */
}

static void a_value_that_is_not_positive_is_a_gap_in_a_log_plot(void **state)
{
    (void)state;
    const double y[] = { 3, 2, 0, 2, 1, -1, 1 };
    check_path_pieces(y, true, 3, 1);
    check_path_pieces(y, false, 1, 0);
}

static void a_log_plot_without_positive_values_becomes_linear(void **state)
{
    (void)state;
    const double y[] = { 0, 0, 0, -1, 0, 0, 0 };
    check_path_pieces(y, true, 1, 0);
}

static void a_chart_without_data_says_so(void **state)
{
    Out *p = *state;
    const double y[] = { (double)NAN, (double)NAN };
    const SvgSeries s = { .name = "train", .x = STEP, .y = y, .n = 2 };
    SvgChart c = chart_of(&s, 1);
    CHECK_OK(svg_chart(&p->text, &c));
    check_xml(p->text.data);
    check_has(p->text.data, "no data");
}

static void one_point_is_a_dot(void **state)
{
    Out *p = *state;
    const double y[] = { 8.3 }, zero[] = { 0 };
    const SvgSeries s[] = { { .name = "train", .x = STEP, .y = y, .n = 1 },
                            { .name = "zero", .x = zero, .y = zero, .n = 1, .mark = SVG_DOTS } };
    for (int i = 0; i < 2; i++) {
        size_t before = p->text.used;
        SvgChart c = chart_of(&s[i], 1);
        CHECK_OK(svg_chart(&p->text, &c));
        check_xml(p->text.data + before);
        CHECK_INT(count(p->text.data + before, "cx="), 1 + i); /* and one in the legend */
        CHECK(strstr(p->text.data + before, "nan") == NULL);
    }
}

static void a_legend_names_each_series_that_wants_it(void **state)
{
    Out *p = *state;
    const SvgSeries s[] = { { .name = NASTY, .x = STEP, .y = STEP, .n = 7 },
                            { .name = "quiet", .legend = "", .x = STEP, .y = STEP, .n = 7 },
                            { .name = "long", .legend = "L", .x = STEP, .y = STEP, .n = 7 } };
    SvgChart c = chart_of(s, 3);
    CHECK_OK(svg_chart(&p->text, &c));
    check_xml(p->text.data);
    check_has(p->text.data, "<text x=\"23\">a&lt;b&gt; &amp; &quot;c&quot;");
    check_has(p->text.data, "<text x=\"23\">L</text>");
    CHECK_INT(count(p->text.data, "<text x=\"23\">"), 2);
    CHECK_INT(count(p->text.data, "data-name=\"quiet\""), 1);
}

static double attribute(const char *at, const char *name)
{
    at = strstr(at, name);
    CHECK(at != NULL);
    return strtod(at + strlen(name), NULL);
}

static void points_lie_inside_a_log_plot_with_room(void **state)
{
    Out *p = *state;
    const double x[] = { 1, 10, 100 }, rate[] = { 10, 100, 1000 }, radius[] = { 3, 12, 5 };
    const char *const label[] = { "one", NASTY, "three" };
    const SvgSeries s[] = {
        { .legend = "",
          .x = x,
          .y = rate,
          .n = 3,
          .mark = SVG_POINTS,
          .radius = radius,
          .label = label },
    };
    SvgChart c = chart_of(s, 1);
    c.log_x = c.log_y = true, c.room = 2;
    CHECK_OK(svg_chart(&p->text, &c));
    check_xml(p->text.data);
    Plot plot = plot_of(p->text.data);
    CHECK_NEAR(plot.x[0], 0.5, 1e-9);
    CHECK_NEAR(plot.x[1], 200, 1e-6);
    CHECK_INT(count(p->text.data, "<circle"), 3);
    const char *second = strstr(strstr(p->text.data, "<circle") + 1, "<circle");
    CHECK_NEAR(attribute(second, " r=\""), 12, 0);
    CHECK_NEAR(attribute(second, " cx=\""), (plot.box[0] + plot.box[2]) / 2, 0.1);
    check_has(second, NASTY_ESCAPED);
}

/* ---- bars ---- */

static void bars_are_as_long_as_their_values(void **state)
{
    Out *p = *state;
    static const char *const ROW[] = { "planned", NASTY }, *const PART[] = { "run", NASTY };
    const double value[] = { 3 << 20, 1 << 20, 1 << 20, (double)NAN };
    const SvgBars b = { .title = NASTY,
                        .row = ROW,
                        .part = PART,
                        .value = value,
                        .rows = 2,
                        .parts = 2,
                        .width = 800,
                        .unit = SVG_BYTES };
    CHECK_OK(svg_bars(&p->text, &b));
    check_xml(p->text.data);
    const char *run = strstr(p->text.data, "<rect class=\"f0 edge\"");
    const char *other = strstr(p->text.data, "<rect class=\"f1 edge\"");
    CHECK(run != NULL && other != NULL);
    CHECK_NEAR(attribute(run, "width=\"") / attribute(other, "width=\""), 3, 0.01);
    CHECK_NEAR(attribute(other, " x=\""), attribute(run, " x=\"") + attribute(run, "width=\""),
               0.2);
    check_has(p->text.data, "run: 3.00 MiB");
    check_has(p->text.data, ">4.00 MiB</text>");
    CHECK_INT(count(p->text.data, " edge\""), 3);
}

/* 6 of 8 may be used, and the second row takes 7. Parts that no bar has are not in the legend. */
static void bars_have_guides_and_name_what_occurs(void **state)
{
    Out *p = *state;
    static const char *const ROW[] = { "first", "second" }, *const PART[] = { "a", "none", "c" };
    const double value[] = { 2, 0, 3, 4, 0, 3 };
    const SvgGuide guide[] = { { 6, "may be used" }, { 8, "has" } };
    const SvgBars b = { .title = "bars",
                        .row = ROW,
                        .part = PART,
                        .value = value,
                        .rows = 2,
                        .parts = 3,
                        .width = 800,
                        .guide = guide,
                        .guides = 2 };
    CHECK_OK(svg_bars(&p->text, &b));
    check_xml(p->text.data);
    CHECK_INT(count(p->text.data, "class=\"guide\""), 2);
    CHECK_INT(count(p->text.data, "class=\"bad\""), 1);
    check_has(p->text.data, ">may be used</text>");
    CHECK(strstr(p->text.data, ">none<") == NULL);
    const char *first = strstr(p->text.data, "<rect class=\"f0 edge\"");
    const char *line = strstr(p->text.data, "class=\"guide\"");
    double scale = attribute(first, "width=\"") / 2;
    CHECK_NEAR(attribute(line, "d=\"M"), attribute(first, " x=\"") + 6 * scale, 0.2);
}

/* A point leads to its row; one without a link is only a point. Lines across have names. */
static void points_lead_to_their_rows(void **state)
{
    Out *p = *state;
    static const char *const LABEL[] = { "1", "2" }, *const LINK[] = { "#row1", "" };
    const double x[] = { 1, 2 }, y[] = { 3, 4 }, radius[] = { 4, 4 };
    const SvgSeries s = { "best", NULL, x, y, 2, 1, SVG_POINTS, radius, LABEL, LINK };
    const SvgGuide guide = { 9, "may be <used" };
    CHECK_OK(svg_chart(&p->text, &(SvgChart){ .title = "t",
                                              .x_label = "x",
                                              .y_label = "y",
                                              .series = &s,
                                              .n_series = 1,
                                              .width = 600,
                                              .height = 200,
                                              .from_zero = true,
                                              .guide = &guide,
                                              .guides = 1 }));
    check_xml(p->text.data);
    CHECK_INT(count(p->text.data, "<a href=\"#row1\"><circle"), 1);
    CHECK_INT(count(p->text.data, "<a href="), 1);
    CHECK_INT(count(p->text.data, "<circle"), 3); /* and one in the legend */
    check_has(p->text.data, ">may be &lt;used</text>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_xml_check_refuses_what_is_not_well_formed),
        OUT_TEST(names_are_escaped),
        TEST(ticks_are_round_numbers_inside_the_range),
        TEST(ticks_of_any_range_are_few_even_and_within),
        TEST(ticks_of_steps_are_whole),
        TEST(ticks_of_one_value_are_no_endless_loop),
        TEST(log_ticks_are_1_2_5_or_powers),
        TEST(numbers_have_the_decimals_that_they_need),
        TEST(values_can_be_read_back_off_a_linear_plot),
        TEST(values_can_be_read_back_off_a_log_plot),
        TEST(a_value_that_is_not_finite_is_a_gap),
        TEST(a_value_that_is_not_positive_is_a_gap_in_a_log_plot),
        TEST(a_log_plot_without_positive_values_becomes_linear),
        OUT_TEST(a_chart_without_data_says_so),
        OUT_TEST(one_point_is_a_dot),
        OUT_TEST(a_legend_names_each_series_that_wants_it),
        OUT_TEST(points_lie_inside_a_log_plot_with_room),
        OUT_TEST(bars_are_as_long_as_their_values),
        OUT_TEST(bars_have_guides_and_name_what_occurs),
        OUT_TEST(points_lead_to_their_rows),
    };
    return TEST_RUN(tests);
}
