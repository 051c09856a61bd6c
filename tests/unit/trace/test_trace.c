/* The writer is checked by another's parser (cJSON), the reader against the writer. */
#include "harness/place.h"
#include "harness/texts.h"

#include "base/scan.h"
#include "trace/stats.h"

#include <cjson/cJSON.h>

typedef struct Place {
    char folder[64];
    char path[FILE_PATH_MAX];
    Arena arena;
    Trace trace;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->path, p->folder, "trace.json"));
    CHECK_OK(trace_init(&p->trace, &p->arena, 16));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

/* An op, its phase and its action, in the order in which they end; the second op begins with its
 * phase. A clock far from zero, as CLOCK_MONOTONIC is. */
static void record_step(Trace *t)
{
    double s = 123456.75;
    trace_event(t, (TraceEvent){ .name = "gemm",
                                 .start_s = s + 0.001,
                                 .duration_s = 0.002,
                                 .flops = 8e9,
                                 .bytes = 1e6,
                                 .step = 7,
                                 .layer = 3,
                                 .depth = 2 });
    trace_event(t, (TraceEvent){ .name = "qkv",
                                 .start_s = s + 0.001,
                                 .duration_s = 0.003,
                                 .step = 7,
                                 .layer = 3,
                                 .depth = 1 });
    trace_event(t, (TraceEvent){ .name = "gemm",
                                 .start_s = s + 0.005,
                                 .duration_s = 0.001,
                                 .flops = 2e9,
                                 .step = 7,
                                 .layer = 4,
                                 .depth = 2 });
    trace_event(t, (TraceEvent){ .name = "FORWARD",
                                 .start_s = s,
                                 .duration_s = 0.01,
                                 .step = 7,
                                 .layer = -1,
                                 .depth = 0 });
    trace_event(t, (TraceEvent){ .name = "dispatch \"a\"\\<b>",
                                 .start_s = s + 0.006,
                                 .duration_s = 0.0005,
                                 .bytes = 4096,
                                 .step = 7,
                                 .layer = 4,
                                 .lane = 1,
                                 .depth = 1 });
}

/* What was recorded, written and read by the reader; and by another's parser. */
static Trace read_back(Place *p)
{
    Trace back = { 0 };
    CHECK_OK(trace_write(&p->trace, p->path, &p->arena));
    CHECK_OK(trace_read(p->path, &p->arena, &back));
    return back;
}

static cJSON *parse(Place *p)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(trace_write(&p->trace, p->path, &p->arena));
    CHECK_OK(file_read_all(p->path, &p->arena, &text, &bytes));
    cJSON *root = cJSON_Parse(text);
    CHECK(root != NULL);
    return root;
}

static double number(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItem(event, key);
    return cJSON_IsNumber(value) ? value->valuedouble : (double)NAN;
}

static const char *text_of(const cJSON *event, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(event, key));
    return value == NULL ? "(none)" : value;
}

static const cJSON *find(const cJSON *root, const char *phase, const char *name)
{
    const cJSON *event = NULL;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(root, "traceEvents"))
    {
        bool same = strcmp(text_of(event, "ph"), phase) == 0;
        if (same && strcmp(text_of(event, "name"), name) == 0) return event;
    }
    fail_msg("no event %s of phase %s", name, phase);
    return NULL;
}

/* ---- writer ---- */

static void an_event_has_microseconds_from_the_first_one_and_its_arguments(void **state)
{
    Place *p = *state;
    record_step(&p->trace);
    cJSON *root = parse(p);
    const cJSON *gemm = find(root, "X", "gemm");
    CHECK_NEAR(number(gemm, "ts"), 1000, 1e-3);
    CHECK_NEAR(number(gemm, "dur"), 2000, 1e-3);
    CHECK_NEAR(number(gemm, "pid"), 0, 0);
    CHECK_NEAR(number(gemm, "tid"), 0, 0);
    CHECK_TEXT(text_of(gemm, "cat"), "op");
    const cJSON *args = cJSON_GetObjectItem(gemm, "args");
    CHECK_NEAR(number(args, "flops"), 8e9, 0);
    CHECK_NEAR(number(args, "bytes"), 1e6, 0);
    CHECK_NEAR(number(args, "step"), 7, 0);
    CHECK_NEAR(number(args, "layer"), 3, 0);
    cJSON_Delete(root);
}

static void each_lane_is_a_named_thread(void **state)
{
    Place *p = *state;
    record_step(&p->trace);
    cJSON *root = parse(p);
    const char *want[] = { "compute", "comm" };
    int threads = 0;
    const cJSON *event = NULL;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(root, "traceEvents"))
    {
        if (strcmp(text_of(event, "name"), "thread_name") != 0) continue;
        CHECK_TEXT(text_of(event, "ph"), "M");
        CHECK_NEAR(number(event, "tid"), threads, 0);
        CHECK(threads < 2);
        CHECK_TEXT(text_of(cJSON_GetObjectItem(event, "args"), "name"), want[threads]);
        threads++;
    }
    CHECK_INT(threads, 2);
    CHECK_NEAR(number(find(root, "X", "dispatch \"a\"\\<b>"), "tid"), 1, 0);
    cJSON_Delete(root);
}

static void events_are_in_order_of_time_with_parents_first(void **state)
{
    Place *p = *state;
    record_step(&p->trace);
    Trace back = read_back(p);
    const char *want[] = { "FORWARD", "qkv", "gemm", "gemm", "dispatch \"a\"\\<b>" };
    CHECK_INT(back.used, 5);
    for (int i = 0; i < 5; i++) CHECK_TEXT(back.events[i].name, want[i]);
}

/* Durations in thirds of a nanosecond: rounding each by itself would push ends past the parent. */
static void rounding_never_lets_a_child_stick_out_of_its_parent(void **state)
{
    Place *p = *state;
    CHECK_OK(trace_init(&p->trace, &p->arena, 4096));
    double at = 1000.0, begin = at;
    for (int i = 0; i < 2000; i++) {
        double third = (double)(i % 7 + 1) / 3 * 1e-9;
        trace_event(&p->trace,
                    (TraceEvent){ .name = "op", .start_s = at, .duration_s = third, .depth = 2 });
        at += third;
    }
    trace_event(&p->trace,
                (TraceEvent){ .name = "all", .start_s = begin, .duration_s = at - begin });
    Trace back = read_back(p);
    CHECK_INT(back.used, 2001);
    const TraceEvent *all = &back.events[0], *last = all;
    CHECK_TEXT(all->name, "all");
    for (int64_t i = 1; i < back.used; i++) {
        const TraceEvent *e = &back.events[i];
        double end = e->start_s + e->duration_s, limit = all->start_s + all->duration_s;
        if (!(end <= limit + 1e-13)) fail_msg("event %d ends %g s late", (int)i, end - limit);
        bool overlaps = i > 1 && !(e->start_s >= last->start_s + last->duration_s - 1e-13);
        if (overlaps) fail_msg("event %d begins before the last one ends", (int)i);
        last = e;
    }
}

static void a_full_buffer_counts_what_it_dropped_and_the_file_says_so(void **state)
{
    Place *p = *state;
    CHECK_OK(trace_init(&p->trace, &p->arena, 2));
    record_step(&p->trace);
    CHECK_INT(p->trace.used, 2);
    CHECK_INT(p->trace.dropped, 3);
    cJSON *root = parse(p);
    CHECK_NEAR(number(cJSON_GetObjectItem(root, "otherData"), "dropped_events"), 3, 0);
    cJSON_Delete(root);
    CHECK_INT(read_back(p).dropped, 3);
}

static void a_trace_without_events_is_valid(void **state)
{
    Place *p = *state;
    CHECK_OK(trace_init(&p->trace, &p->arena, 0));
    cJSON_Delete(parse(p));
    CHECK_INT(read_back(p).used, 0);
}

static void writing_gives_the_scratch_back(void **state)
{
    Place *p = *state;
    record_step(&p->trace);
    size_t before = p->arena.used_bytes;
    CHECK_OK(trace_write(&p->trace, p->path, &p->arena));
    CHECK_INT(p->arena.used_bytes, before);
}

static void a_folder_that_is_not_there_is_an_error_with_the_path(void **state)
{
    Place *p = *state;
    CHECK_OK(file_join(p->path, p->folder, "none/trace.json"));
    CHECK_FAILS(trace_write(&p->trace, p->path, &p->arena), ERR_DISK, "none/trace.json");
}

/* ---- reader ---- */

static void what_was_written_is_read_back(void **state)
{
    Place *p = *state;
    record_step(&p->trace);
    Trace back = read_back(p);
    const TraceEvent *e = &back.events[4];
    CHECK_TEXT(e->name, "dispatch \"a\"\\<b>");
    CHECK_NEAR(e->start_s, 0.006, 1e-9);
    CHECK_NEAR(e->duration_s, 0.0005, 1e-9);
    CHECK_NEAR(e->bytes, 4096, 0);
    CHECK_INT(e->step, 7);
    CHECK_INT(e->layer, 4);
    CHECK_INT(e->lane, 1);
    CHECK_INT(e->depth, 1);
    CHECK_INT(back.events[0].layer, -1);
}

static void a_file_cut_short_is_an_error_with_the_path(void **state)
{
    Place *p = *state;
    Trace back = { 0 };
    write_text(p->path, "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"ge");
    CHECK_FAILS(trace_read(p->path, &p->arena, &back), ERR_FORMAT, "trace.json is not a trace");
}

static void text_that_is_no_json_is_an_error(void **state)
{
    Place *p = *state;
    static const char *const BAD[] = {
        "",
        "hello",
        "[]",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "{\"a\":1}x",
        "{\"a\":nan}",
        "{\"a\":0x10}",
        "{\"traceEvents\":[{\"name\":\"\\q\"}]}",
        "{\"a\":1 \"b\":2}",
        "{\"traceEvents\":[{\"name\":\"\\u12\"}]}",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        Trace back = { 0 };
        write_text(p->path, BAD[i]);
        Status s = trace_read(p->path, &p->arena, &back);
        if (s != ERR_FORMAT) fail_msg("taken: %s", BAD[i]);
    }
}

static void escapes_are_decoded(void **state)
{
    Place *p = *state;
    Trace back = { 0 };
    write_text(p->path, "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":1,\"dur\":2,"
                        "\"name\":\"\\u00e9\\ud83d\\ude00\\ud800\\/\\n\\\"\"}]}");
    CHECK_OK(trace_read(p->path, &p->arena, &back));
    CHECK_INT(back.used, 1);
    CHECK_TEXT(back.events[0].name, "\xC3\xA9\xF0\x9F\x98\x80\xEF\xBF\xBD/\n\"");
}

/* ---- totals ---- */

static void members_are_found_without_being_consumed(void **state)
{
    (void)state;
    char text[] = "{\"nn\":3,\"in\":{\"n\":7},\"a\\\"n\":1,\"n\" : -2.5 "
                  ",\"list\":[1,[2],{}],\"s\":\"x\\ty\"}";
    for (int again = 0; again < 2; again++) {
        CHECK_NEAR(scan_number_at(scan_member(text, "n")), -2.5, 0);
        CHECK_NEAR(scan_number_at(scan_member(scan_member(text, "in"), "n")), 7, 0);
        CHECK(scan_member(text, "m") == NULL && scan_member(NULL, "n") == NULL);
        CHECK(scan_member(scan_member(text, "list"), "n") == NULL);
        CHECK(isnan(scan_number_at(scan_member(text, "list"))) && isnan(scan_number_at(NULL)));
    }
    int n = 0;
    Scan s = scan_inside(scan_member(text, "list"));
    for (; scan_item(&s); n++) scan_skip(&s);
    CHECK_INT(n, 3);
    CHECK(!s.bad && scan_inside(scan_member(text, "n")).bad);
    CHECK(scan_string_at(scan_member(text, "n")) == NULL && scan_string_at(NULL) == NULL);
    CHECK_TEXT(scan_string_at(scan_member(text, "s")), "x\ty");
}

static void members_behind_what_is_no_json_are_not_found(void **state)
{
    (void)state;
    char comma[] = "{\"a\":1 \"b\":2}", colon[] = "{\"a\" 1,\"b\":2}", cut[] = "{\"a\":1,\"b\":\"x";
    CHECK_NEAR(scan_number_at(scan_member(comma, "a")), 1, 0);
    CHECK(scan_member(comma, "b") == NULL);
    CHECK(scan_member(colon, "a") == NULL && scan_member(colon, "b") == NULL);
    CHECK(scan_member(cut, "b") == NULL);
}

static void totals_sum_by_name_within_a_depth_longest_first(void **state)
{
    Place *p = *state;
    record_step(&p->trace);
    trace_event(&p->trace, (TraceEvent){ .name = "qkv", .duration_s = 1, .depth = 2 });
    TraceTotal *total = NULL;
    int n = 0;
    CHECK_OK(trace_totals(&p->trace, &p->arena, &total, &n));
    CHECK_INT(n, 5); /* FORWARD; qkv, dispatch; qkv the op, gemm */
    CHECK_TEXT(total[0].name, "FORWARD");
    CHECK_TEXT(total[1].name, "qkv");
    CHECK_TEXT(total[3].name, "qkv");
    CHECK_INT(total[3].depth, 2);
    CHECK_TEXT(total[4].name, "gemm");
    CHECK_INT(total[4].calls, 2);
    CHECK_NEAR(total[4].seconds, 0.003, 1e-12);
    CHECK_NEAR(total[4].flops, 1e10, 0);
    CHECK_NEAR(total[4].bytes, 1e6, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(an_event_has_microseconds_from_the_first_one_and_its_arguments),
        PLACE_TEST(each_lane_is_a_named_thread),
        PLACE_TEST(events_are_in_order_of_time_with_parents_first),
        PLACE_TEST(rounding_never_lets_a_child_stick_out_of_its_parent),
        PLACE_TEST(a_full_buffer_counts_what_it_dropped_and_the_file_says_so),
        PLACE_TEST(a_trace_without_events_is_valid),
        PLACE_TEST(writing_gives_the_scratch_back),
        PLACE_TEST(a_folder_that_is_not_there_is_an_error_with_the_path),
        PLACE_TEST(what_was_written_is_read_back),
        PLACE_TEST(a_file_cut_short_is_an_error_with_the_path),
        PLACE_TEST(text_that_is_no_json_is_an_error),
        PLACE_TEST(escapes_are_decoded),
        TEST(members_are_found_without_being_consumed),
        TEST(members_behind_what_is_no_json_are_not_found),
        PLACE_TEST(totals_sum_by_name_within_a_depth_longest_first),
    };
    return TEST_RUN(tests);
}
