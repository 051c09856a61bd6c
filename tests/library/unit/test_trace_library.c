/* What the library of traces gives to a program that has only its header. */
#include "traces/unit/traces.h"

#include <math.h>
#include <pthread.h>
#include <switchyard_trace.h>

#define X(cat, name, pid, tid, ts, dur, args)                                                      \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\",\"pid\":" pid ",\"tid\":" tid         \
    ",\"ts\":" ts ",\"dur\":" dur ",\"args\":{" args "}}"

/* 20 us of computation, 10 us of exchange of which 4 are hidden, a copy of 5 us, a gap of 9 us. */
static const char SMALL[] =
    "{\"distributedInfo\":{\"rank\":3,\"world_size\":8},\"traceEvents\":[\n"
    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":2,\"args\":{\"name\":\"main\"}},\n" //
    X("user_annotation", "ProfilerStep#4", "1", "2", "0", "90", "") ",\n"                         //
    X("cpu_op", "aten::mm", "1", "2", "1", "9", "\"Input Dims\":[[2,3],[3,4]]") ",\n"             //
    X("cuda_runtime", "cudaLaunchKernel", "1", "2", "2", "1", "\"correlation\":5") ",\n"          //
    X("kernel", "gemm", "0", "7", "20", "20",
      "\"correlation\":5,\"stream\":7,\"device\":0") ",\n"                                     //
    X("kernel", "ncclDevKernel", "0", "8", "36", "10", "\"correlation\":6,\"stream\":8") ",\n" //
    X("python_function", "train.py(3): step", "1", "2", "0.5", "20", "\"Python id\":1") ",\n"  //
    X("gpu_memcpy", "Memcpy HtoD", "0", "7", "55", "5",
      "\"stream\":7") ",\n" //
                      "{\"ph\":\"X\",\"name\":\"no time\",\"pid\":1,\"tid\":2},\n"
                      "{\"ph\":\"i\",\"name\":\"mark\",\"pid\":1,\"tid\":2,\"ts\":3}\n"
                      "]}\n";

static char path[32];

static int write_small(void **state)
{
    (void)state;
    trace_file(path, SMALL, sizeof SMALL - 1);
    return 0;
}

static int drop_small(void **state)
{
    (void)state;
    return unlink(path);
}

static SwitchyardTrace *small(const SwitchyardTraceOptions *o)
{
    SwitchyardTrace *t = NULL;
    CHECK_INT(switchyard_trace_open(path, o, &t), SWITCHYARD_TRACE_OK);
    CHECK(t != NULL);
    return t;
}

#define FAILS(call, want, says)                                                                    \
    do {                                                                                           \
        CHECK_INT(call, want);                                                                     \
        if (strstr(switchyard_trace_error(), (says)) == NULL)                                      \
            fail_msg("\"%s\" is not in: %s", (says), switchyard_trace_error());                    \
    } while (0)

/* ---- what a trace has ---- */

static void counts_say_what_is_there_and_what_is_not(void **state)
{
    (void)state;
    SwitchyardTrace *t = small(NULL);
    SwitchyardTraceCounts c;
    CHECK_INT(switchyard_trace_counts(t, &c), SWITCHYARD_TRACE_OK);
    CHECK_INT(c.rank, 3);
    CHECK_INT(c.world, 8);
    CHECK_INT(c.bytes, sizeof SMALL - 1);
    CHECK_INT(c.events, 6);
    CHECK_INT(c.device_events, 3);
    CHECK_INT(c.malformed, 0);
    CHECK_INT(c.incomplete, 1);
    CHECK_INT(c.unused, 1);
    CHECK_INT(c.unlinked, 2);
    CHECK_INT(c.dropped, 0);
    CHECK_INT(c.truncated, 0);
    switchyard_trace_close(t);
    CHECK_INT(switchyard_trace_version(), SWITCHYARD_TRACE_VERSION);
}

static void the_timeline_is_in_microseconds(void **state)
{
    (void)state;
    SwitchyardTrace *t = small(NULL);
    SwitchyardTraceTimeline time;
    CHECK_INT(switchyard_trace_timeline(t, &time), SWITCHYARD_TRACE_OK);
    CHECK_NEAR(time.computation, 20, 1e-9);
    CHECK_NEAR(time.exposed_comm, 6, 1e-9);
    CHECK_NEAR(time.exposed_memcpy, 5, 1e-9);
    CHECK_NEAR(time.busy, 31, 1e-9);
    CHECK_NEAR(time.idle, 9, 1e-9);
    CHECK_NEAR(time.total, 40, 1e-9);
    CHECK_NEAR(time.comm, 10, 1e-9);
    CHECK_NEAR(time.memcpy, 5, 1e-9);
    switchyard_trace_close(t);
}

static void events_come_in_the_order_of_the_file(void **state)
{
    (void)state;
    SwitchyardTrace *t = small(NULL);
    SwitchyardTraceEvent e;
    CHECK_INT(switchyard_trace_event(t, 1, &e), SWITCHYARD_TRACE_OK);
    CHECK_TEXT(e.name, "aten::mm");
    CHECK_TEXT(e.category, "cpu_op");
    CHECK_TEXT(e.process, "1");
    CHECK_TEXT(e.thread, "2");
    CHECK_TEXT(e.thread_name, "main");
    CHECK_NEAR(e.start, 1, 0);
    CHECK_NEAR(e.duration, 9, 0);
    CHECK_INT(e.correlation, -1);
    CHECK_INT(e.stream, -1);
    CHECK_INT(switchyard_trace_event(t, 3, &e), SWITCHYARD_TRACE_OK);
    CHECK_TEXT(e.name, "gemm");
    CHECK_TEXT(e.category, "kernel");
    CHECK_INT(e.correlation, 5);
    CHECK_INT(e.device, 0);
    CHECK_INT(e.stream, 7);
    FAILS(switchyard_trace_event(t, 6, &e), SWITCHYARD_TRACE_BAD_ARGUMENT, "event 6 is not there");
    FAILS(switchyard_trace_event(t, -1, &e), SWITCHYARD_TRACE_BAD_ARGUMENT, "there are 6");
    CHECK_TEXT(e.name, "gemm"); /* as it was */
    switchyard_trace_close(t);
}

/* ---- sheets ---- */

static SwitchyardTraceCell cell(SwitchyardTrace *t, const char *name, int64_t row,
                                const char *column)
{
    SwitchyardTraceCell c = { .text = "" };
    SwitchyardTraceSheet s;
    int32_t at = -1;
    CHECK_INT(switchyard_trace_find_sheet(t, name, &at), SWITCHYARD_TRACE_OK);
    CHECK_INT(switchyard_trace_sheet(t, at, &s), SWITCHYARD_TRACE_OK);
    CHECK_TEXT(s.name, name);
    for (int32_t i = 0; i < s.columns; i++) {
        if (strcmp(s.column[i], column) != 0) continue;
        CHECK_INT(switchyard_trace_cell(t, at, row, i, &c), SWITCHYARD_TRACE_OK);
        return c;
    }
    fail_msg("%s has no column %s", name, column);
    return c;
}

static void cells_have_a_type_and_a_value(void **state)
{
    (void)state;
    SwitchyardTraceOptions o = SWITCHYARD_TRACE_OPTIONS;
    o.recompute = 1;
    SwitchyardTrace *t = small(&o);
    SwitchyardTraceCell c = cell(t, "gpu_timeline", 0, "type");
    CHECK_INT(c.type, SWITCHYARD_TRACE_TEXT);
    CHECK_TEXT(c.text, "computation_time");
    CHECK(isnan(c.number));
    c = cell(t, "gpu_timeline", 0, "time ms");
    CHECK_INT(c.type, SWITCHYARD_TRACE_NUMBER);
    CHECK_NEAR(c.number, 0.02, 1e-12);
    CHECK_TEXT(c.text, "");
    c = cell(t, "gpu_timeline", 0, "is_recompute");
    CHECK_INT(c.type, SWITCHYARD_TRACE_BOOL);
    CHECK_INT(c.truth, 0);
    c = cell(t, "gpu_timeline", 8, "is_recompute");
    CHECK_INT(c.truth, 1);
    CHECK_NEAR(c.number, 1, 0);
    c = cell(t, "ops_unique_args", 0, "operation_count");
    CHECK_INT(c.type, SWITCHYARD_TRACE_WHOLE);
    CHECK_INT(c.whole, 1);
    CHECK_NEAR(c.number, 1, 0);
    c = cell(t, "gpu_timeline_by_step", 0,
             "host ms"); /* of what ran before the first step's work */
    CHECK(c.type == SWITCHYARD_TRACE_NONE || c.type == SWITCHYARD_TRACE_NUMBER);
    switchyard_trace_close(t);
}

static void sheets_are_those_of_the_report(void **state)
{
    (void)state;
    SwitchyardTraceOptions o = SWITCHYARD_TRACE_OPTIONS;
    SwitchyardTrace *t = small(&o);
    SwitchyardTraceSheet s;
    SwitchyardTraceCell c;
    int32_t n = 0, at = -7;
    CHECK_INT(switchyard_trace_sheets(t, &n), SWITCHYARD_TRACE_OK);
    CHECK(n > 5);
    CHECK_INT(switchyard_trace_find_sheet(t, "gpu_timeline", &at), SWITCHYARD_TRACE_OK);
    CHECK_INT(at, 0);
    FAILS(switchyard_trace_find_sheet(t, "kernel_summary", &at), SWITCHYARD_TRACE_BAD_ARGUMENT,
          "has no sheet kernel_summary");
    FAILS(switchyard_trace_sheet(t, n, &s), SWITCHYARD_TRACE_BAD_ARGUMENT, "sheet");
    FAILS(switchyard_trace_cell(t, 0, 8, 0, &c), SWITCHYARD_TRACE_BAD_ARGUMENT, "row 8");
    FAILS(switchyard_trace_cell(t, 0, 0, 3, &c), SWITCHYARD_TRACE_BAD_ARGUMENT, "column 3");
    const char *const *column = NULL; /* made once: nothing moves */
    CHECK_INT(switchyard_trace_sheet(t, 0, &s), SWITCHYARD_TRACE_OK);
    column = s.column;
    CHECK_INT(switchyard_trace_sheet(t, 0, &s), SWITCHYARD_TRACE_OK);
    CHECK(s.column == column);
    switchyard_trace_close(t);
    o.kernels = 1, o.short_kernels_us = 30, o.micro_idle_us = 10;
    t = small(&o);
    CHECK_TEXT(cell(t, "kernel_summary", 0, "Kernel name").text, "gemm");
    CHECK_TEXT(cell(t, "gpu_timeline", 4, "type").text, "micro_idle_time");
    CHECK_NEAR(cell(t, "gpu_timeline", 4, "time ms").number, 0.009, 1e-12);
    CHECK(cell(t, "short_kernels_summary", 0, "Kernel name").type == SWITCHYARD_TRACE_TEXT);
    switchyard_trace_close(t);
}

static void options_choose_what_counts(void **state)
{
    (void)state;
    SwitchyardTraceOptions o = SWITCHYARD_TRACE_OPTIONS;
    SwitchyardTraceCounts c;
    SwitchyardTrace *t = NULL;
    int32_t at = 0;
    o.compat_tracelens = 1, o.python = 1; /* no arrows: nothing is linked, and only that counts */
    t = small(&o);
    CHECK_INT(switchyard_trace_counts(t, &c), SWITCHYARD_TRACE_OK);
    CHECK_INT(c.events, 7);
    CHECK_INT(c.unlinked, 3);
    CHECK_INT(c.device_events, 0);
    switchyard_trace_close(t);
    o.include_unlinked = 1;
    t = small(&o);
    CHECK_INT(switchyard_trace_find_sheet(t, "gpu_timeline", &at), SWITCHYARD_TRACE_OK);
    FAILS(switchyard_trace_find_sheet(t, "idle_by_cause", &at), SWITCHYARD_TRACE_BAD_ARGUMENT,
          "has no sheet idle_by_cause");
    switchyard_trace_close(t);
    o = (SwitchyardTraceOptions)SWITCHYARD_TRACE_OPTIONS;
    o.step = 4;
    t = small(&o);
    switchyard_trace_close(t);
    t = NULL;
    o.step = 5;
    FAILS(switchyard_trace_open(path, &o, &t), SWITCHYARD_TRACE_BAD_ARGUMENT, "has steps 4 to 4");
    o.step = -2;
    FAILS(switchyard_trace_open(path, &o, &t), SWITCHYARD_TRACE_BAD_ARGUMENT, "step is -2");
    o.step = -1, o.micro_idle_us = (double)NAN;
    FAILS(switchyard_trace_open(path, &o, &t), SWITCHYARD_TRACE_BAD_ARGUMENT, "micro_idle_us is");
    CHECK(t == NULL);
}

/* ---- what is not a trace ---- */

static void open_bytes(const char *text, size_t n, SwitchyardTraceResult want, const char *says,
                       SwitchyardTrace **out)
{
    char file[32];
    trace_file(file, text, n);
    FAILS(switchyard_trace_open(file, NULL, out), want, says);
    unlink(file);
}

static void what_is_no_trace_is_an_error_with_a_sentence(void **state)
{
    (void)state;
    SwitchyardTrace *t = NULL;
    FAILS(switchyard_trace_open("/nowhere/trace.json", NULL, &t), SWITCHYARD_TRACE_CANNOT_READ,
          "/nowhere/trace.json cannot be opened");
    FAILS(switchyard_trace_open("/", NULL, &t), SWITCHYARD_TRACE_CANNOT_READ, "/");
    open_bytes("", 0, SWITCHYARD_TRACE_NOT_A_TRACE, "empty", &t);
    open_bytes("text\n", 5, SWITCHYARD_TRACE_NOT_A_TRACE, "not JSON", &t);
    open_bytes("{\"a\":1}", 7, SWITCHYARD_TRACE_NOT_A_TRACE, "traceEvents", &t);
    CHECK(t == NULL);
    CHECK(strchr(switchyard_trace_error(), '\n') == NULL);
}

static void a_file_that_ends_early_gives_what_was_whole(void **state)
{
    (void)state;
    SwitchyardTrace *t = NULL;
    SwitchyardTraceCounts c;
    char file[32];
    trace_file(file, SMALL, (size_t)(strstr(SMALL, "Memcpy") - SMALL));
    CHECK_INT(switchyard_trace_open(file, NULL, &t), SWITCHYARD_TRACE_OK);
    unlink(file);
    CHECK_INT(switchyard_trace_counts(t, &c), SWITCHYARD_TRACE_OK);
    CHECK_INT(c.truncated, 1);
    CHECK_INT(c.device_events, 2);
    switchyard_trace_close(t);
}

static void a_trace_of_the_host_has_events_but_no_sheets(void **state)
{
    (void)state;
    static const char HOST[] = "[" X("cpu_op", "aten::mm", "1", "2", "1", "9", "") "]";
    SwitchyardTrace *t = NULL;
    SwitchyardTraceTimeline time;
    SwitchyardTraceEvent e;
    int32_t n = 0;
    open_bytes(HOST, sizeof HOST - 1, SWITCHYARD_TRACE_OK, "", &t);
    CHECK_INT(switchyard_trace_event(t, 0, &e), SWITCHYARD_TRACE_OK);
    FAILS(switchyard_trace_timeline(t, &time), SWITCHYARD_TRACE_NOT_A_TRACE, "no device events");
    FAILS(switchyard_trace_sheets(t, &n), SWITCHYARD_TRACE_NOT_A_TRACE, "no device events");
    switchyard_trace_close(t);
}

static void nulls_are_refused(void **state)
{
    (void)state;
    SwitchyardTrace *t = small(NULL), *other = NULL;
    SwitchyardTraceCell c;
    int32_t n = 0;
    FAILS(switchyard_trace_open(NULL, NULL, &other), SWITCHYARD_TRACE_BAD_ARGUMENT, "open");
    FAILS(switchyard_trace_open(path, NULL, NULL), SWITCHYARD_TRACE_BAD_ARGUMENT, "open");
    FAILS(switchyard_trace_counts(t, NULL), SWITCHYARD_TRACE_BAD_ARGUMENT, "counts");
    FAILS(switchyard_trace_timeline(NULL, NULL), SWITCHYARD_TRACE_BAD_ARGUMENT, "timeline");
    FAILS(switchyard_trace_event(NULL, 0, NULL), SWITCHYARD_TRACE_BAD_ARGUMENT, "event");
    FAILS(switchyard_trace_sheets(NULL, &n), SWITCHYARD_TRACE_BAD_ARGUMENT, "sheets");
    FAILS(switchyard_trace_sheet(t, 0, NULL), SWITCHYARD_TRACE_BAD_ARGUMENT, "sheet");
    FAILS(switchyard_trace_find_sheet(t, NULL, &n), SWITCHYARD_TRACE_BAD_ARGUMENT, "find_sheet");
    FAILS(switchyard_trace_cell(NULL, 0, 0, 0, &c), SWITCHYARD_TRACE_BAD_ARGUMENT, "cell");
    switchyard_trace_close(t);
    switchyard_trace_close(NULL);
}

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

/* Opened, and asked for its sheets, as often as it takes to refuse every allocation once. */
static void every_refused_allocation_is_an_error(void **state)
{
    (void)state;
    bool passed = false;
    for (long n = 0; !passed; n++) {
        SwitchyardTrace *t = NULL;
        int32_t sheets = 0;
        arena_fail_countdown = n;
        SwitchyardTraceResult r = switchyard_trace_open(path, NULL, &t);
        if (r == SWITCHYARD_TRACE_OK) r = switchyard_trace_sheets(t, &sheets);
        passed = arena_fail_countdown >= 0;
        arena_fail_countdown = -1;
        CHECK_INT(r, passed ? SWITCHYARD_TRACE_OK : SWITCHYARD_TRACE_NO_MEMORY);
        if (t != NULL) CHECK_INT(switchyard_trace_sheets(t, &sheets), SWITCHYARD_TRACE_OK);
        switchyard_trace_close(t);
    }
}
#else
static void every_refused_allocation_is_an_error(void **state)
{
    (void)state;
    skip(); /* make hostile */
}
#endif

/* ---- threads ---- */

enum { THREADS = 4 };

typedef struct Asker {
    pthread_t thread;
    SwitchyardTrace *shared;
    bool same;
} Asker;

/* Asks for sheets of the shared trace, opens one of its own, and fails in its own way. */
static void *ask(void *state)
{
    Asker *a = state;
    SwitchyardTrace *own = NULL;
    SwitchyardTraceTimeline time = { .total = 0 };
    SwitchyardTraceCell c = { .text = "" };
    int32_t at = -1;
    char missing[32];
    a->same = switchyard_trace_error()[0] == '\0';
    (void)snprintf(missing, sizeof missing, "none of %p", (void *)a);
    for (int i = 0; i < 50; i++) {
        a->same &= switchyard_trace_find_sheet(a->shared, "gpu_timeline", &at) == 0 && at == 0;
        a->same &= switchyard_trace_cell(a->shared, at, 0, 0, &c) == 0 &&
                   strcmp(c.text, "computation_time") == 0;
        a->same &= switchyard_trace_timeline(a->shared, &time) == 0 && time.total == 40;
        a->same &= switchyard_trace_open(path, NULL, &own) == 0;
        a->same &= switchyard_trace_find_sheet(own, missing, &at) == SWITCHYARD_TRACE_BAD_ARGUMENT;
        a->same &= strstr(switchyard_trace_error(), missing) != NULL;
        switchyard_trace_close(own);
    }
    return NULL;
}

static void threads_share_a_trace_and_not_their_errors(void **state)
{
    (void)state;
    Asker a[THREADS];
    SwitchyardTrace *t = small(NULL), *other = NULL;
    FAILS(switchyard_trace_open("/nowhere", NULL, &other), SWITCHYARD_TRACE_CANNOT_READ,
          "/nowhere");
    for (int i = 0; i < THREADS; i++) {
        a[i] = (Asker){ .shared = t };
        CHECK_INT(pthread_create(&a[i].thread, NULL, ask, &a[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(a[i].thread, NULL);
        CHECK(a[i].same);
    }
    CHECK(strstr(switchyard_trace_error(), "/nowhere cannot be opened") != NULL);
    switchyard_trace_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_say_what_is_there_and_what_is_not),
        cmocka_unit_test(the_timeline_is_in_microseconds),
        cmocka_unit_test(events_come_in_the_order_of_the_file),
        cmocka_unit_test(cells_have_a_type_and_a_value),
        cmocka_unit_test(sheets_are_those_of_the_report),
        cmocka_unit_test(options_choose_what_counts),
        cmocka_unit_test(what_is_no_trace_is_an_error_with_a_sentence),
        cmocka_unit_test(a_file_that_ends_early_gives_what_was_whole),
        cmocka_unit_test(a_trace_of_the_host_has_events_but_no_sheets),
        cmocka_unit_test(nulls_are_refused),
        cmocka_unit_test(every_refused_allocation_is_an_error),
        cmocka_unit_test(threads_share_a_trace_and_not_their_errors),
    };
    return cmocka_run_group_tests(tests, write_small, drop_small);
}
