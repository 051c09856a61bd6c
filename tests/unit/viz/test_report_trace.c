/* The timeline and the tables of a traced step. */
#include "unit/viz/report_run.h"

/* Two steps, each of an op in a phase in an action. Within a step events come in no order of time. */
static void write_trace(Run *r)
{
    FILE *f = create(r, "trace.json");
    (void)fprintf(
        f, "{\"traceEvents\":[{\"ph\":\"M\",\"name\":\"process_name\",\"args\":{\"name\":1}}");
    for (int step = 1; step <= 2; step++) {
        double at = 1e6 * step;
        (void)fprintf(f,
                      ",{\"ph\":\"X\",\"tid\":0,\"name\":\"gemm\",\"cat\":\"op\",\"ts\":%.3f,"
                      "\"dur\":4000,\"args\":{\"step\":%d,\"layer\":3,\"flops\":2e9,"
                      "\"bytes\":4e7}}",
                      at + 1000, step);
        (void)fprintf(
            f,
            ",{\"ph\":\"X\",\"tid\":0,\"name\":\"FORWARD\",\"cat\":\"action\",\"ts\":%.3f,"
            "\"dur\":10000,\"args\":{\"step\":%d}}",
            at, step);
        (void)fprintf(
            f,
            ",{\"ph\":\"X\",\"tid\":0,\"name\":\"ex<perts\",\"cat\":\"phase\",\"ts\":%.3f,"
            "\"dur\":8000,\"args\":{\"step\":%d,\"layer\":3}}",
            at, step);
    }
    (void)fprintf(f, "],\"otherData\":{\"dropped_events\":3}}\n");
    CHECK_INT(fclose(f), 0);
}

static void a_trace_is_a_timeline_and_tables_of_time(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    write_trace(r);
    run_report(r);
    has(r, "id=\"timeline\"");
    has(r, "Step 2. 3 events did not fit the trace's buffer and are missing. All 6 events");
    has(r, "gemm, layer 3: 4 ms, 500 GFLOP/s, at least 10.0 GB/s");
    has(r, "gemm</td><td>1</td><td>4.000</td><td>40.0 %</td>");
    has(r, "<td>500.0</td><td>10.0</td>");
    has(r, "ex&lt;perts</td><td>1</td><td>8.000</td><td>80.0 %</td>");
    has(r, "outside of these</td><td></td><td>6.000</td><td>60.0 %</td>");
    has(r, "mean of 2 traced steps");
}

/* Where the rectangle begins that is titled so, and how wide it is. */
static const char *box_of(const Run *r, const char *title, double *x, double *width)
{
    const char *at = strstr(r->page, title);
    CHECK(at != NULL);
    while (strncmp(at, "<rect", 5) != 0) at--;
    *x = strtod(strstr(at, " x=\"") + 4, NULL);
    *width = strtod(strstr(at, " width=\"") + 8, NULL);
    return at;
}

/* Of step 2: an op from 1 to 5 ms in a phase from 0 to 8 in an action from 0 to 10. */
static void a_timeline_places_events_by_row_and_time(void **state)
{
    Run *r = *state;
    double x[3], width[3];
    put_run(r, 2);
    write_trace(r);
    run_report(r);
    const char *action = box_of(r, "<title>FORWARD", &x[0], &width[0]);
    const char *phase = box_of(r, "<title>ex&lt;perts", &x[1], &width[1]);
    const char *op = box_of(r, "<title>gemm", &x[2], &width[2]);
    CHECK_NEAR(x[1], x[0], 0);
    CHECK_NEAR(width[0], 1080 - x[0], 1);
    CHECK_NEAR(width[1] / width[0], 0.8, 0.01);
    CHECK_NEAR(width[2] / width[0], 0.4, 0.01);
    CHECK_NEAR((x[2] - x[0]) / width[0], 0.1, 0.01);
    double y = strtod(strstr(action, " y=\"") + 4, NULL);
    CHECK(strtod(strstr(phase, " y=\"") + 4, NULL) > y + 20);
    CHECK(strtod(strstr(op, " y=\"") + 4, NULL) > y + 40);
    has(r, ">FORWARD</text>");
}

static void a_name_stands_in_its_box_where_there_is_room(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    put_file(r, "trace.json",
             "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"wide\",\"cat\":\"op\",\"tid\":0,\"ts\":0,"
             "\"dur\":1000},{\"ph\":\"X\",\"name\":\"a name too long\",\"cat\":\"op\",\"tid\":1,"
             "\"ts\":1000,\"dur\":10}]}");
    run_report(r);
    has(r, "<title>a name too long: 10 µs</title>");
    has(r, ">wide</text>");
    has_not(r, ">a name too long</text>");
    has(r, ">comm</text>");
}

static void a_trace_with_more_slices_than_a_page_holds_says_so(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    FILE *f = create(r, "trace.json");
    (void)fprintf(f, "{\"traceEvents\":[{}");
    for (int i = 0; i < 4000; i++)
        (void)fprintf(f, ",{\"ph\":\"X\",\"name\":\"op\",\"cat\":\"op\",\"ts\":%d,\"dur\":%s}", i,
                      i < 500 ? "0.25" : "0.5");
    (void)fprintf(f, "]}\n");
    CHECK_INT(fclose(f), 0);
    run_report(r);
    has(r, "The 1500 shortest events are not drawn");
    CHECK(r->page_bytes < 1000 * 1000);
}

static void a_broken_trace_is_a_sentence_in_the_report(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    put_file(r, "trace.json", "{\"traceEvents\":[{\"ph\":");
    run_report(r);
    has(r, "trace.json is not a trace");
    put_file(r, "trace.json", "{}");
    run_report(r);
    has(r, "trace.json holds no events");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_TEST(a_trace_is_a_timeline_and_tables_of_time),
        RUN_TEST(a_timeline_places_events_by_row_and_time),
        RUN_TEST(a_name_stands_in_its_box_where_there_is_room),
        RUN_TEST(a_trace_with_more_slices_than_a_page_holds_says_so),
        RUN_TEST(a_broken_trace_is_a_sentence_in_the_report),
    };
    return TEST_RUN(tests);
}
