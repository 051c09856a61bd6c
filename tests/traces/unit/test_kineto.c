#include "traces/unit/traces.h"

#include <sys/stat.h>

#define OP(name, ts, dur)                                                                          \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":2,\"ts\":" ts        \
    ",\"dur\":" dur ",\"args\":{\"External id\":5}}"
#define A             OP("a", "1", "2")
#define B             OP("b", "3.5", "4.25")
#define C             OP("c", "9", "1")
#define TRACE(events) "{\"schemaVersion\":1,\"traceEvents\":[" events "],\"traceName\":\"t.json\"}"

#define TEN(x) x x x x x x x x x x
#define LONG   TEN(TEN("longer "))

static const ReadAs PLAIN = { 0 };

static const char *text_of(const Events *e, uint32_t id) { return strings_text(&e->strings, id); }

/* ---- every field ---- */

static const char FIELDS_TRACE[] =
    "{ \"deviceProperties\": [ {\"id\": 0, \"name\": \"GPU \\u00e9\", \"totalGlobalMem\": "
    "85018279936,"
    "\"computeMajor\": 9, \"computeMinor\": 4, \"warpSize\": 32, \"numSms\": 132}, {\"id\": 1} ],\n"
    "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 3, \"world_size\": 8, \"pg_config\": ["
    "{\"pg_name\": \"0\", \"pg_desc\": \"default_pg\", \"pg_size\": 2, \"ranks\": [0, 1]}]},\n"
    "\"traceEvents\": [\n"
    "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 7, \"tid\": 0, \"args\": {\"name\": "
    "\"python\"}},\n"
    "{\"ph\": \"M\", \"name\": \"process_labels\", \"pid\": 7, \"args\": {\"labels\": \"CPU\"}},\n"
    "{\"ph\": \"M\", \"name\": \"process_sort_index\", \"pid\": 7, \"args\": {\"sort_index\": "
    "70}},\n"
    "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": 7, \"tid\": 8, \"args\": {\"name\": "
    "\"main\"}},\n"
    "{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": 7, \"tid\": 8, \"args\": "
    "{\"sort_index\": 80}},\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 7, \"tid\": 8, \"ts\": "
    "10.5, \"dur\": 4,"
    "\"args\": {\"External id\": 11, \"Sequence number\": 12, \"Fwd thread id\": 1, \"Ev Idx\": 3,"
    "\"Input Dims\": [[2, 3], [ ], []], \"Input type\": [\"c10::BFloat16\", \"long int\"],"
    "\"Input Strides\": [[3, 1]], \"Concrete Inputs\": [\"\", \"[ 1, 2 ]\"]}},\n"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 7, "
    "\"tid\": 8, \"ts\": 11,"
    "\"dur\": 1, \"args\": {\"External id\": 11, \"cbid\": 211, \"correlation\": 77}},\n"
    "{\"ph\": \"s\", \"id\": 77, \"pid\": 7, \"tid\": 8, \"ts\": 11, \"cat\": \"ac2g\", \"name\": "
    "\"ac2g\"},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 9, \"ts\": 20, "
    "\"dur\": 5.125,"
    "\"args\": {\"External id\": 11, \"device\": 1, \"stream\": 9, \"correlation\": 77, "
    "\"registers per thread\":"
    "168, \"shared memory\": 2048, \"blocks per SM\": 0.5, \"warps per SM\": 4, \"grid\": [56, 2, "
    "1],"
    "\"block\": [384, 1, 1], \"est. achieved occupancy %\": 19}},\n"
    "{\"ph\": \"f\", \"id\": 77, \"pid\": 0, \"tid\": 9, \"ts\": 20, \"cat\": \"ac2g\", \"name\": "
    "\"ac2g\", \"bp\": \"e\"},\n"
    "{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy HtoD\", \"pid\": 1, \"tid\": 9, "
    "\"ts\": 26, \"dur\": 1,"
    "\"args\": {\"bytes\": 4096, \"correlation\": 78}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel\", \"pid\": 0, \"tid\": 10, "
    "\"ts\": 30, \"dur\": 9,"
    "\"args\": {\"Collective name\": \"allreduce\", \"In msg nelems\": 100, \"Out msg nelems\": "
    "101,"
    "\"Group size\": 2, \"dtype\": \"BFloat16\", \"In split size\": \"[]\", \"Out split size\": "
    "[1, 2],"
    "\"Process Group Name\": \"0\", \"Process Group Description\": \"dp\", \"Process Group "
    "Ranks\": \"[0, 1]\"}},\n"
    "{\"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"f.py(3): f\", \"pid\": 7, \"tid\": "
    "8, \"ts\": 1,"
    "\"dur\": 90, \"args\": {\"Python id\": 4, \"Python parent id\": null, \"Python module id\": "
    "6}},\n"
    "{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"s\": \"t\", \"name\": \"[memory]\", "
    "\"pid\": 7, \"tid\": 8,"
    "\"ts\": 12, \"args\": {\"Total Reserved\": 400, \"Total Allocated\": 300, \"Bytes\": -20,"
    "\"Addr\": 137877174353920, \"Device Id\": 0, \"Device Type\": 1}},\n"
    "{\"ph\": \"i\", \"s\": \"g\", \"name\": \"Iteration Start\", \"pid\": \"Traces\", \"tid\": "
    "\"T\", \"ts\": 1}\n"
    "],\n\"traceName\": \"a.json\", \"baseTimeNanoseconds\": 1710437880123456789 }\n";

static void check_host_events(const Events *e)
{
    const OpDetail *d = &e->ops[e->detail[0]];
    const OpArgs *a = &e->args[d->args];
    const Track *t = &e->tracks[e->track[0]];
    CHECK_TEXT(event_name(e, 0), "aten::mm");
    CHECK(e->ts[0] == 10.5 && e->dur[0] == 4 && event_end(e, 0) == 14.5);
    CHECK_INT(e->kind[0], EVENT_CPU_OP);
    CHECK_INT(e->index[0], 5);
    CHECK_INT(e->link[0], -1);
    CHECK_INT(e->external[0], 11);
    CHECK_INT(d->sequence, 12);
    CHECK_INT(d->collective, EVENT_NONE);
    CHECK_TEXT(text_of(e, a->dims), "[[2,3],[],[]]");
    CHECK_TEXT(text_of(e, a->types), "[\"c10::BFloat16\",\"long int\"]");
    CHECK_TEXT(text_of(e, a->strides), "[[3,1]]");
    CHECK_TEXT(text_of(e, a->concrete), "[\"\",\"[ 1, 2 ]\"]");
    CHECK_TEXT(text_of(e, t->pid), "7");
    CHECK_TEXT(text_of(e, t->tid), "8");
    CHECK_TEXT(text_of(e, t->process_name), "python");
    CHECK_TEXT(text_of(e, t->process_label), "CPU");
    CHECK_TEXT(text_of(e, t->thread_name), "main");
    CHECK_INT(e->kind[1], EVENT_RUNTIME);
    CHECK_INT(e->link[1], 77);
    CHECK_INT(e->detail[1], EVENT_NONE);
    CHECK_INT(e->track[1], e->track[0]);
    CHECK(e->kind[5] == EVENT_PYTHON && e->detail[5] == EVENT_NONE);
}

static void check_gpu_events(const Events *e)
{
    const GpuDetail *k = &e->gpu[e->detail[2]], *m = &e->gpu[e->detail[3]],
                    *n = &e->gpu[e->detail[4]];
    const Collective *c = &e->collectives[n->collective];
    CHECK_INT(e->kind[2], EVENT_KERNEL);
    CHECK_INT(e->link[2], 77);
    CHECK(k->device == 1 && k->stream == 9 && k->collective == EVENT_NONE);
    CHECK_INT(e->kind[3], EVENT_MEMCPY);
    /* not in args: from pid and tid */
    CHECK(m->device == 1 && m->stream == 9);
    CHECK_TEXT(text_of(e, c->name), "allreduce");
    CHECK_TEXT(text_of(e, c->dtype), "BFloat16");
    CHECK_TEXT(text_of(e, c->in_split), "[]");
    CHECK_TEXT(text_of(e, c->out_split), "[1,2]");
    CHECK_TEXT(text_of(e, c->group), "0");
    CHECK_TEXT(text_of(e, c->group_description), "dp");
    CHECK_TEXT(text_of(e, c->ranks), "[0, 1]");
    CHECK(c->in_elements == 100 && c->out_elements == 101 && c->group_size == 2);
}

static void every_field_is_read_where_it_belongs(void **state)
{
    (void)state;
    Events e;
    CHECK_OK(trace_read(FIELDS_TRACE, &PLAIN, &e));
    CHECK_INT(e.n, 6);
    check_host_events(&e);
    check_gpu_events(&e);
    CHECK(e.n_flows == 2 && e.flows[0].from && !e.flows[1].from);
    CHECK(e.flows[1].id == 77 && e.flows[0].track == e.track[0] && e.flows[1].track == e.track[2]);
    const MemoryPoint *m = &e.memory[0];
    CHECK_INT(e.n_memory, 1);
    CHECK(m->ts == 12 && m->bytes == -20 && m->allocated == 300 && m->reserved == 400 &&
          m->device == 0 && m->device_type == 1);
    CHECK_INT(e.n_devices, 2);
    CHECK_TEXT(text_of(&e, e.devices[0].name), "GPU \u00e9");
    CHECK_INT(e.devices[1].name, 0);
    CHECK_INT(e.n_groups, 1);
    CHECK_TEXT(text_of(&e, e.groups[0].name), "0");
    CHECK_TEXT(text_of(&e, e.groups[0].ranks), "[0,1]");
    CHECK(e.rank == 3 && e.world == 8 && e.base_ns == 1710437880123456789);
    CHECK(e.counts.seen == 15 && e.counts.malformed == 0 && e.counts.incomplete == 0 &&
          e.counts.unused == 1 && !e.counts.truncated);
    CHECK_INT(e.counts.bytes, sizeof FIELDS_TRACE - 1);
    events_free(&e);
    events_free(&e);
}

static void keys_stand_in_any_order(void **state)
{
    (void)state;
    Events e;
    CHECK_OK(trace_read("{\"traceEvents\":[{\"args\":{\"stream\":3,\"correlation\":8},\"dur\":2,"
                        "\"name\":\"k\",\"ts\":1,\"tid\":\"x\",\"cat\":\"kernel\",\"ph\":\"X\"}],"
                        "\"distributedInfo\":{\"world_size\":4,\"rank\":1}}",
                        &PLAIN, &e));
    CHECK_INT(e.n, 1);
    CHECK_INT(e.link[0], 8);
    CHECK_INT(e.gpu[0].stream, 3);
    CHECK_INT(e.gpu[0].device, -1);
    CHECK(e.rank == 1 && e.world == 4);
    events_free(&e);
}

static void old_spellings_mean_the_same(void **state)
{
    (void)state;
    static const char *const CATS[] = { "Operator", "Runtime",     "Kernel", "Memcpy",
                                        "Memset",   "cuda_driver", "Trace" };
    static const int KINDS[] = { EVENT_CPU_OP, EVENT_RUNTIME, EVENT_KERNEL, EVENT_MEMCPY,
                                 EVENT_MEMSET, EVENT_DRIVER,  EVENT_OTHER };
    char text[300];
    for (int i = 0; i < 7; i++) {
        Events e;
        snprintf(
            text, sizeof text,
            "[{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"x\",\"ts\":1,\"dur\":1,\"args\":"
            "{\"external id\":6}},{\"ph\":\"s\",\"cat\":\"async_gpu\",\"id\":\"0x1f\",\"ts\":1},"
            "{\"ph\":\"f\",\"cat\":\"async_cpu_to_gpu\",\"id\":31,\"ts\":2}]",
            CATS[i]);
        CHECK_OK(trace_read(text, &PLAIN, &e));
        CHECK_INT(e.kind[0], KINDS[i]);
        CHECK_INT(e.external[0], 6);
        CHECK_INT(e.n_flows, 2);
        CHECK(e.flows[0].id == 31 && e.flows[1].id == 31);
        events_free(&e);
    }
}

static void frames_of_python_are_kept_only_if_asked_for(void **state)
{
    (void)state;
    Events e;
    CHECK_OK(trace_read(FIELDS_TRACE, &(ReadAs){ .no_python = true }, &e));
    CHECK_INT(e.n, 5);
    CHECK_INT(e.counts.seen, 15);
    CHECK_INT(strings_find(&e.strings, "f.py(3): f"), UINT32_MAX);
    events_free(&e);
}

static void equal_arguments_share_a_row(void **state)
{
    (void)state;
    Events e;
    static const char OPS[] =
        "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\",\"ts\":1,\"args\":{\"Input "
        "Dims\":[[1]]}},"
        "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"b\",\"ts\":1,\"args\":{\"Input Dims\":[[ "
        "1]]}},"
        "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"b\",\"ts\":1,\"args\":{\"Input Dims\":[[2]]}},"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1,\"args\":{\"grid\":[1,2,3]}},"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"ts\":1,\"args\":{\"grid\":[1,2,3]}}]";
    CHECK_OK(trace_read(OPS, &PLAIN, &e));
    CHECK(e.n == 5 && e.n_ops == 3 && e.n_args == 2);
    CHECK_INT(e.ops[0].args, e.ops[1].args);
    CHECK(e.ops[1].args != e.ops[2].args);
    CHECK_INT(e.args[0].types, 0);
    CHECK_INT(e.n_tracks, 1);
    events_free(&e);
}

/* ---- numbers ---- */

static void check_number(const char *digits)
{
    Events e;
    char text[200];
    double want = strtod(digits, NULL);
    snprintf(text, sizeof text, "[{\"ph\":\"X\",\"name\":\"x\",\"ts\":%s}]", digits);
    CHECK_OK(trace_read(text, &PLAIN, &e));
    if (e.n != 1 || memcmp(&e.ts[0], &want, sizeof want) != 0)
        fail_msg("%s is read as %.17g", digits, e.n == 1 ? e.ts[0] : (double)NAN);
    events_free(&e);
}

static void numbers_are_those_that_strtod_reads(void **state)
{
    (void)state;
    static const char *const EDGES[] = { "0",
                                         "-0.0",
                                         "9007199254740993",
                                         "9007199254740992.5",
                                         "1419117003011.565",
                                         "0.1",
                                         "1e22",
                                         "-1.5E-3",
                                         "123456789012345678901234567890",
                                         "0.00000000000000000000000123",
                                         "4.35",
                                         "18446744073709551616",
                                         "0.3000000000000000166" };
    for (size_t i = 0; i < sizeof EDGES / sizeof *EDGES; i++) check_number(EDGES[i]);
    uint64_t x = 7;
    for (int i = 0; i < 500; i++) {
        char digits[64];
        x = x * 6364136223846793005u + 1442695040888963407u;
        uint64_t whole = x >> (12 + x % 50), part = (x * x) >> (x / 64 % 60);
        snprintf(digits, sizeof digits, "%s%llu.%0*llu", i % 2 ? "-" : "",
                 (unsigned long long)whole, (int)(x / 8 % 12) + 1, (unsigned long long)part);
        check_number(digits);
    }
}

static void numbers_may_stand_in_quotes(void **state)
{
    (void)state;
    Events e;
    CHECK_OK(
        trace_read("[{\"ph\":\"X\",\"cat\":\"gpu_memcpy\",\"name\":\"m\",\"ts\":\"1.5\",\"dur\":"
                   "\"2\",\"pid\":\"1\",\"tid\":\"7\",\"args\":{\"bytes\":\"9216\",\"stream\":"
                   "\"0x10\",\"device\":\"none\",\"correlation\":3.0}}]",
                   &PLAIN, &e));
    CHECK(e.n == 1 && e.ts[0] == 1.5 && e.dur[0] == 2);
    CHECK_INT(e.gpu[0].stream, 16);
    CHECK_INT(e.gpu[0].device, 1); /* no number: that of pid */
    CHECK_INT(e.link[0], 3);
    events_free(&e);
}

/* ---- odd texts ---- */

typedef struct Odd {
    const char *text;
    int n, seen, malformed, incomplete, unused, truncated;
} Odd;

static const Odd ODD[] = {
    { TRACE(A "," B), 2, 2, 0, 0, 0, 0 },
    { TRACE(""), 0, 0, 0, 0, 0, 0 },
    { "\xEF\xBB\xBF \n" TRACE(A), 1, 1, 0, 0, 0, 0 },
    { "[" A "," B "]", 2, 2, 0, 0, 0, 0 },
    { "[" A ",\n" B, 2, 2, 0, 0, 0, 0 }, /* the array form needs no bracket at its end */
    { "[" A "," B ",", 2, 2, 0, 0, 0, 0 },
    { "[" A "," B ",{}]", 2, 3, 0, 0, 1, 0 },
    { "[" A ",{\"ph\":\"X\",\"na", 1, 1, 0, 0, 0, 1 },
    { "{\"traceEvents\":[" A "," B, 2, 2, 0, 0, 0, 1 },
    { "{\"traceEvents\":[" A "," B "]", 2, 2, 0, 0, 0, 1 },
    { "{\"traceEvents\":[" A "],\"traceName\":\"x", 1, 1, 0, 0, 0, 1 },
    { TRACE(A " " B), 2, 2, 0, 0, 0, 0 }, /* no comma */
    { TRACE(OP("a\x01\n\t", "1", "2")), 1, 1, 0, 0, 0, 0 },
    { TRACE(A "," OP("x \"y\" z", "2", "2") "," C), 2, 3, 1, 0, 0, 0 },
    { TRACE(A "," C "," OP("x \"y\" z", "2", "2")), 2, 3, 1, 0, 0, 0 },
    /* only the end says that the bracket was the events' */
    { TRACE(A ",{\"ph\" \"X\",\"x\":[3],\"" LONG "\":1}"), 1, 2, 1, 0, 0, 0 },
    { TRACE(A ",{\"ph\":\"X\" \"cat\"," B "," C), 2, 3, 1, 0, 0, 0 },
    { TRACE(A "}," B "," C "}," B), 4, 6, 2, 0, 0, 0 }, /* a brace too many ends nothing else */
    { TRACE(A ",null,7,\"x\"," B), 2, 5, 3, 0, 0, 0 },
    { TRACE(OP("a", "1", "NaN") "," OP("a", "-Infinity", "1") "," B), 1, 3, 0, 2, 0, 0 },
    { TRACE(OP("a", "1", "-1") "," OP("a", "x7", "1") "," B), 1, 3, 0, 2, 0, 0 },
    { TRACE("{\"ph\":\"X\",\"ts\":1}," B), 1, 2, 0, 1, 0, 0 },
    { TRACE("{\"ph\":\"X\",\"name\":\"x\",\"ts\":1,\"args\":{\"datatype\":ncclInt8,}}"), 1, 1, 0, 0,
      0, 0 },
    { TRACE("{\"ph\":\"B\",\"name\":\"x\",\"ts\":1},{\"ph\":\"E\",\"ts\":1},{\"ph\":\"XX\"},{\"a\":"
            "1}"),
      0, 4, 0, 0, 4, 0 },
    { TRACE("{\"ph\":\"s\",\"cat\":\"fwdbwd\",\"id\":1,\"ts\":1},{\"ph\":\"s\",\"cat\":\"ac2g\","
            "\"ts\":1}"),
      0, 2, 0, 1, 1, 0 },
    { TRACE(A) " x", 1, 1, 1, 0, 0, 0 },
    { TRACE(A) TRACE(B), 1, 1, 1, 0, 0, 0 },
    { "{\"traceEvents\":[" A "],\"x\" 1}", 1, 1, 1, 0, 0, 0 },
    { "{\"distributedInfo\":{\"rank\":1,,},\"traceEvents\":[" A "]}", 1, 1, 1, 0, 0, 0 },
    { "{\"a\":{\"b\":[\"}\\\"]\"]},\"c\":1.5,\"d\":true,\"e\":\"traceEvents\",\"traceEvents\" : [" A
      "]}",
      1, 1, 0, 0, 0, 0 },
};
enum { ODDS = sizeof ODD / sizeof *ODD };

static void check_counts(const Odd *o, const Events *e, const char *how)
{
    const ReadCounts *c = &e->counts;
    if (e->n != o->n || c->seen != o->seen || c->malformed != o->malformed ||
        c->incomplete != o->incomplete || c->unused != o->unused || c->truncated != o->truncated)
        fail_msg("%s: %lld events, %lld seen, %lld malformed, %lld incomplete, %lld unused, "
                 "truncated %d: %s",
                 how, (long long)e->n, (long long)c->seen, (long long)c->malformed,
                 (long long)c->incomplete, (long long)c->unused, c->truncated, o->text);
}

static void odd_texts_are_counted_and_the_rest_is_read(void **state)
{
    (void)state;
    Events e;
    for (int i = 0; i < ODDS; i++) {
        CHECK_OK(trace_read(ODD[i].text, &PLAIN, &e));
        check_counts(&ODD[i], &e, "whole");
        events_free(&e);
        for (size_t block = 17; block < 300; block += 31) {
            CHECK_OK(trace_read(ODD[i].text, &(ReadAs){ .block = block, .threads = 2 }, &e));
            check_counts(&ODD[i], &e, "in blocks");
            events_free(&e);
        }
    }
}

static void what_is_no_trace_is_refused_in_a_sentence(void **state)
{
    (void)state;
    static const char *const BAD[][2] = {
        { "", "is not a trace: it is empty" },
        { " \n ", "is not a trace: it is empty" },
        { "hello", "is not a trace: it is not JSON" },
        { "{}", "is not a trace: it is JSON without traceEvents" },
        { "{\"traceEvents\":{}}", "it is JSON without traceEvents" },
        { "{\"traceEv", "it ends before its events" },
        { "{\"a\":1,\"traceEvents\":", "it ends before its events" },
        { "{hello}", "what comes before its events is not JSON" },
        { "[]", "it is a JSON array without events" },
        { "[1,2,{\"a\":3}]", "it is a JSON array without events" },
    };
    Events e;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++)
        CHECK_FAILS(trace_read(BAD[i][0], &PLAIN, &e), ERR_FORMAT, BAD[i][1]);
    EventsOptions o = { 0 };
    CHECK_FAILS(events_read("/tmp/there_is_no_such_trace.json", &o, &e), ERR_IO,
                "/tmp/there_is_no_such_trace.json cannot be opened: No such file");
    CHECK_FAILS(events_read("/tmp", &o, &e), ERR_IO, "/tmp is neither a file nor a pipe");
}

static void escapes_are_resolved_and_what_is_none_stays(void **state)
{
    (void)state;
    Events e;
    CHECK_OK(trace_read("[{\"ph\":\"X\",\"ts\":1,\"name\":\"a\\u00e9\\n\\\"q\\\" \\ud83d\\ude00\"},"
                        "{\"ph\":\"X\",\"ts\":1,\"name\":\"C:\\x\\\\\"}]",
                        &PLAIN, &e));
    CHECK_INT(e.n, 2);
    CHECK_TEXT(event_name(&e, 0), "a\u00e9\n\"q\" \U0001F600");
    CHECK_TEXT(event_name(&e, 1), "C:\\x\\\\");
    events_free(&e);
}

static void the_last_of_equal_keys_counts(void **state)
{
    (void)state;
    Events e;
    CHECK_OK(trace_read("[{\"ph\":\"X\",\"ts\":1,\"name\":\"a\",\"ts\":7,\"name\":\"b\",\"args\":"
                        "{\"correlation\":1,\"External id\":2},\"args\":{\"correlation\":3}}]",
                        &PLAIN, &e));
    CHECK_TEXT(event_name(&e, 0), "b");
    CHECK(e.ts[0] == 7 && e.link[0] == 3 && e.external[0] == -1);
    events_free(&e);
}

static void brackets_that_do_not_fit_are_malformed(void **state)
{
    (void)state;
    Events e;
    CHECK_OK(trace_read("[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"q\":[1,{\"x\":2]}},{\"ph\":\"X\","
                        "\"name\":\"b\",\"ts\":1,\"q\":{\"x\":[1}]}," B "]",
                        &PLAIN, &e));
    CHECK(e.n == 1 && e.counts.seen == 3 && e.counts.malformed == 2);
    CHECK_TEXT(event_name(&e, 0), "b");
    CHECK(e.ts[0] == 3.5);
    events_free(&e);
}

static void nesting_has_a_limit(void **state)
{
    (void)state;
    char text[2000], open[301] = "", close[301] = "";
    for (int depth = 64; depth <= 65; depth++) {
        Events e;
        memset(open, '[', (size_t)depth);
        memset(close, ']', (size_t)depth);
        open[depth] = close[depth] = '\0';
        snprintf(text, sizeof text, "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"q\":%s%s}," B "]",
                 open, close);
        CHECK_OK(trace_read(text, &PLAIN, &e));
        CHECK_INT(e.counts.malformed, depth == 65);
        CHECK_INT(e.n, depth == 65 ? 1 : 2);
        events_free(&e);
    }
}

/* ---- blocks, threads, ends ---- */

/* Events of all kinds, some damaged, laid out with or without blanks. */
static char *large_trace(int events, bool pretty)
{
    static const char *const GAP[] = { "", "\n   " };
    size_t room = (size_t)events * 400 + 1000, n = 0;
    char *text = malloc(room);
    const char *g = GAP[pretty];
    n += (size_t)snprintf(text + n, room - n,
                          "{\"x\":[{\"ph\":1},{\"ph\":2}],%s\"traceEvents\":[%s", g, g);
    for (int i = 0; i < events; i++) {
        const char *between = i == 0 ? "" : ",";
        n += (size_t)snprintf(text + n, room - n, "%s%s{%s\"ph\":\"%s\",%s", between, g, g,
                              i % 7 == 3 ? "s" : "X", g);
        n += (size_t)snprintf(text + n, room - n,
                              "\"cat\":\"%s\",\"name\":\"op %d%s}, {\\\"ph\\\": \",\"pid\":%d,%s",
                              i % 7 == 3   ? "ac2g"
                              : i % 5 == 0 ? "kernel"
                                           : "cpu_op",
                              i % 40, i % 97 == 50 ? "\" , \"" : "", i % 3, g);
        n += (size_t)snprintf(text + n, room - n,
                              "\"tid\":\"%d\",\"ts\":%d.%03d,\"id\":%d,\"dur\":%d,%s\"args\":{%s",
                              i % 4, i, i % 1000, i, i % 50, g, g);
        n += (size_t)snprintf(
            text + n, room - n,
            "\"Input Dims\":[[%d, 2],%s[ ]],\"correlation\":%d,%s\"grid\":[1,%d,2]}}", i % 9, g, i,
            g, i % 11);
    }
    snprintf(text + n, room - n, "%s],%s\"traceName\":\"n\"%s}%s", g, g, g, g);
    return text;
}

static void check_column(const void *a, const void *b, int64_t n, size_t each, const char *name)
{
    if (memcmp(a, b, (size_t)n * each) != 0) fail_msg("column %s differs", name);
}
#define SAME(column, rows) check_column(a->column, b->column, (rows), sizeof *a->column, #column)

/* Numbers of texts included. */
static void check_same(const Events *a, const Events *b)
{
    CHECK(a->n == b->n && a->n_tracks == b->n_tracks && a->n_args == b->n_args &&
          a->n_ops == b->n_ops && a->n_gpu == b->n_gpu && a->n_flows == b->n_flows &&
          a->strings.n == b->strings.n);
    CHECK(memcmp(&a->counts, &b->counts, sizeof a->counts) == 0);
    SAME(ts, a->n);
    SAME(dur, a->n);
    SAME(name, a->n);
    SAME(index, a->n);
    SAME(track, a->n);
    SAME(detail, a->n);
    SAME(link, a->n);
    SAME(external, a->n);
    SAME(kind, a->n);
    SAME(tracks, a->n_tracks);
    SAME(args, a->n_args);
    SAME(ops, a->n_ops);
    SAME(gpu, a->n_gpu);
    for (int64_t i = 0; i < a->n_flows; i++)
        CHECK(a->flows[i].id == b->flows[i].id && a->flows[i].track == b->flows[i].track);
    for (uint32_t i = 0; i < a->strings.n; i++)
        CHECK_TEXT(strings_text(&a->strings, i), strings_text(&b->strings, i));
}

static void blocks_and_threads_change_nothing(void **state)
{
    (void)state;
    static const size_t BLOCKS[] = { 23, 64, 333, 1000, 5000, 100000 };
    for (int pretty = 0; pretty < 2; pretty++) {
        Events want, got;
        char *text = large_trace(1000, pretty);
        CHECK_OK(trace_read(text, &(ReadAs){ .threads = 1 }, &want));
        CHECK(want.n > 800 && want.counts.malformed > 8 && !want.counts.truncated);
        for (int i = 0; i < 24; i++) {
            ReadAs as = { .block = BLOCKS[i % 6], .threads = 1 + i / 6 % 2, .gzip = i / 12 };
            CHECK_OK(trace_read(text, &as, &got));
            check_same(&want, &got);
            events_free(&got);
        }
        events_free(&want);
        free(text);
    }
}

/* Cut anywhere, a trace gives its events up to there, and says that it was cut. */
static void every_beginning_of_a_trace_gives_what_is_whole(void **state)
{
    (void)state;
    Events e;
    char *text = large_trace(8, true);
    size_t whole = strlen(text), last = strlen(text);
    int64_t before = 0;
    while (text[last - 1] != '}') last--;
    for (size_t n = 1; n <= whole; n += n % 40 == 0 && n < whole - 80 ? 30 : 1) {
        Status s = trace_read_bytes(text, n, &(ReadAs){ .block = 1 + n % 100 + 20 }, &e);
        if (s != OK) {
            CHECK(s == ERR_FORMAT && before == 0);
            CHECK(strstr(status_message(), "it ends before its events") != NULL);
            continue;
        }
        CHECK(e.n == before || e.n == before + 1);
        CHECK_INT(e.counts.truncated, n < last);
        before = e.n;
        events_free(&e);
    }
    CHECK_INT(before, 7); /* one of eight is a flow */
    free(text);
}

static void a_giant_is_passed_over_in_bounded_memory(void **state)
{
    (void)state;
    enum { GIANT = 200000 };
    char *text = malloc(2 * GIANT), *name = malloc(GIANT + 1);
    memset(name, 'x', GIANT);
    name[GIANT] = '\0';
    static const char *const FORMS[] = {
        TRACE(A ",{\"ph\":\"X\",\"name\":\"%s\",\"ts\":1}," B), /* an event */
        "{\"distributedInfo\":{\"x\":\"%s\"},\"traceEvents\":[" A ",{}," B "]}",
        "{\"unknown\":\"%s\",\"traceEvents\":[" A ",{}," B "]}",
    };
    for (int i = 0; i < 3; i++) {
        Events e;
        sprintf(text, FORMS[i], name);
        CHECK_OK(trace_read(text, &(ReadAs){ .block = 700, .element_max = 5000 }, &e));
        CHECK(e.n == 2 && e.index[1] == 2);
        CHECK_INT(e.counts.malformed, i < 2);
        CHECK_INT(e.counts.truncated, 0);
        CHECK_INT(strings_find(&e.strings, name), UINT32_MAX);
        events_free(&e);
        CHECK_OK(trace_read(text, &PLAIN, &e)); /* not that large for the reader's own limit */
        CHECK_INT(e.counts.malformed, 0);
        events_free(&e);
    }
    Events e;
    sprintf(text, "{\"%s\":1," TRACE(A), name);
    CHECK_FAILS(trace_read(text, &(ReadAs){ .block = 700, .element_max = 5000 }, &e), ERR_FORMAT,
                "what surrounds its events is longer than 16 MiB");
    free(name);
    free(text);
}

/* ---- files ---- */

static void gzip_is_read_member_by_member(void **state)
{
    (void)state;
    Events e;
    char path[32];
    char *text = large_trace(300, false);
    size_t n = strlen(text), a = 0, b = 0;
    unsigned char *first = trace_gzip(text, n / 3, &a);
    unsigned char *second = trace_gzip(text + n / 3, n - n / 3, &b);
    unsigned char *both = calloc(1, a + b + 100);
    memcpy(both, first, a);
    memcpy(both + a, second, b);
    trace_file(path, both, a + b + 100); /* zeros behind it, as tapes have */
    CHECK_OK(trace_read_file(path, &PLAIN, &e));
    CHECK_INT(e.counts.bytes, n);
    CHECK_INT(e.counts.seen, 300);
    CHECK_INT(e.counts.truncated, 0);
    events_free(&e);
    unlink(path);

    trace_file(path, both, a + b - 100);
    CHECK_OK(trace_read_file(path, &PLAIN, &e));
    CHECK(e.counts.seen > 100 && e.counts.seen < 300 && e.counts.truncated);
    const uint64_t given = e.counts.bytes;
    events_free(&e);
    for (size_t block = 30; block < 200; block += 7) {
        CHECK_OK(trace_read_file(path, &(ReadAs){ .block = block }, &e));
        CHECK_INT(e.counts.bytes, given);
        events_free(&e);
    }
    unlink(path);

    trace_file(path, both, a + b - 1); /* all of the text, but not its length */
    CHECK_OK(trace_read_file(path, &PLAIN, &e));
    CHECK(e.counts.seen == 300 && e.counts.truncated);
    events_free(&e);
    unlink(path);

    trace_file(path, both, 6);
    CHECK_FAILS(trace_read_file(path, &PLAIN, &e), ERR_FORMAT, "its gzip ends before any text");
    unlink(path);

    both[a + b - 6] ^= 1; /* of the sum */
    trace_file(path, both, a + b);
    CHECK_FAILS(trace_read_file(path, &(ReadAs){ .threads = 2, .block = 100 }, &e), ERR_FORMAT,
                "is a corrupt gzip file: incorrect data check");
    unlink(path);
    free(both);
    free(second);
    free(first);
    free(text);
}

static void a_file_that_grows_is_refused(void **state)
{
    (void)state;
    char path[32];
    Arena a = { 0 };
    Source s;
    Events e = { .path = path, .rank = -1, .world = -1 };
    trace_file(path, TRACE(A), sizeof TRACE(A) - 1);
    CHECK_OK(arena_init(&a, "input", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(source_open(&s, path, &a));
    FILE *f = fopen(path, "a");
    CHECK(f != NULL && fputs("more", f) >= 0 && fclose(f) == 0);
    CHECK_FAILS(kineto_read(&s, false, 1, &e), ERR_IO, "bytes while it was read");
    events_free(&e);
    source_close(&s);
    arena_free(&a);
    unlink(path);
}

static void a_pipe_is_read_to_its_end(void **state)
{
    (void)state;
    char path[] = "/tmp/switchyard_test_XXXXXX", command[600];
    Events e;
    CHECK(mkdtemp(path) != NULL);
    char fifo[64], trace[64];
    snprintf(fifo, sizeof fifo, "%s/fifo", path);
    snprintf(trace, sizeof trace, "%s/trace", path);
    CHECK_OK(file_write_whole(trace, FIELDS_TRACE, sizeof FIELDS_TRACE - 1));
    CHECK(mkfifo(fifo, 0600) == 0);
    snprintf(command, sizeof command, "cat %s > %s &", trace, fifo);
    CHECK_INT(system(command), 0);
    CHECK_OK(trace_read_file(fifo, &(ReadAs){ .block = 1000, .threads = 2 }, &e));
    CHECK(e.n == 6 && e.counts.bytes == sizeof FIELDS_TRACE - 1);
    events_free(&e);
    CHECK_OK(file_remove_tree(path));
}

/* ---- published traces ---- */

static void published_traces_have_their_events(void **state)
{
    (void)state;
    FILE *list = fopen("../shared/traces/MANIFEST.tsv", "r");
    char line[1000], path[1100], name[900];
    if (list == NULL) {
        print_message("../shared/traces is not there\n");
        skip();
    }
    CHECK(fgets(line, sizeof line, list) != NULL);
    int traces = 0;
    while (fgets(line, sizeof line, list) != NULL) {
        long long packed, raw, events, gpu;
        Events e;
        EventsOptions o = { .python = true };
        CHECK_INT(sscanf(line, "%899s %lld %lld %lld %lld", name, &packed, &raw, &events, &gpu), 5);
        snprintf(path, sizeof path, "../shared/traces/%s", name);
        CHECK_OK(events_read(path, &o, &e));
        CHECK_INT(e.counts.seen, events);
        CHECK_INT(e.n_gpu, gpu);
        CHECK_INT(e.counts.bytes, raw);
        CHECK(e.counts.malformed == 0 && e.counts.incomplete == 0 && !e.counts.truncated);
        events_free(&e);
        traces++;
    }
    CHECK_INT(traces, 28);
    fclose(list);
}

/* ---- no memory ---- */

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

static void every_refused_allocation_is_an_error(void **state)
{
    (void)state;
    Events e;
    bool passed = false;
    for (long n = 0; !passed; n++) {
        arena_fail_countdown = n;
        Status s =
            trace_read(FIELDS_TRACE, &(ReadAs){ .threads = 1 + (int)n % 2, .block = 100 }, &e);
        passed = arena_fail_countdown >= 0;
        arena_fail_countdown = -1;
        CHECK(passed ? s == OK : s == ERR_MEMORY);
        if (s == OK) events_free(&e);
    }
}
#else
static void every_refused_allocation_is_an_error(void **state)
{
    (void)state;
    skip(); /* make hostile */
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_field_is_read_where_it_belongs),
        TEST(keys_stand_in_any_order),
        TEST(old_spellings_mean_the_same),
        TEST(frames_of_python_are_kept_only_if_asked_for),
        TEST(equal_arguments_share_a_row),
        TEST(numbers_are_those_that_strtod_reads),
        TEST(numbers_may_stand_in_quotes),
        TEST(odd_texts_are_counted_and_the_rest_is_read),
        TEST(what_is_no_trace_is_refused_in_a_sentence),
        TEST(escapes_are_resolved_and_what_is_none_stays),
        TEST(the_last_of_equal_keys_counts),
        TEST(brackets_that_do_not_fit_are_malformed),
        TEST(nesting_has_a_limit),
        TEST(blocks_and_threads_change_nothing),
        TEST(every_beginning_of_a_trace_gives_what_is_whole),
        TEST(a_giant_is_passed_over_in_bounded_memory),
        TEST(gzip_is_read_member_by_member),
        TEST(a_file_that_grows_is_refused),
        TEST(a_pipe_is_read_to_its_end),
        TEST(published_traces_have_their_events),
        TEST(every_refused_allocation_is_an_error),
    };
    return TEST_RUN(tests);
}
