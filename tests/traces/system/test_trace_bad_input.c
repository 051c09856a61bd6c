/* Every `trace` command, and bench trace, with what a user may hand it by mistake: one sentence, exit 2
 * (3 where the input ends early), and nothing half-written. */
#include "harness/program.h"

#include <zlib.h>

#define X(cat, name, pid, tid, ts, dur, args)                                                      \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\",\"pid\":" pid ",\"tid\":" tid         \
    ",\"ts\":" ts ",\"dur\":" dur ",\"args\":{" args "}}"
#define MM(ts)                                                                                     \
    X("cpu_op", "aten::mm", "1", "1", ts, "9",                                                     \
      "\"Input Dims\":[[2,3],[3,4]],\"Input type\":[\"float\",\"float\"],\"Input "                 \
      "Strides\":[[3,1],[4,1]],\"Concrete Inputs\":[\"\",\"\"]")
#define STEP X("user_annotation", "ProfilerStep#4", "1", "1", "0", "90", "")
#define LAUNCH(ts, id)                                                                             \
    X("cuda_runtime", "cudaLaunchKernel", "1", "1", ts, "1", "\"correlation\":" id)
#define GEMM(ts, id) X("kernel", "gemm", "0", "7", ts, "10", "\"correlation\":" id ",\"stream\":7")
#define NCCL(ts)                                                                                   \
    X("kernel", "ncclDevKernel_AllReduce", "0", "8", ts, "10",                                     \
      "\"stream\":8,\"Collective name\":\"allreduce\",\"In msg nelems\":64,\"Out msg "             \
      "nelems\":64,\"Group size\":2,\"dtype\":\"Float\",\"Process Group Name\":\"0\",\"Process "   \
      "Group Ranks\":\"[0, 1]\"")
#define WORK        STEP "," MM("1") "," LAUNCH("2", "5") "," GEMM("20", "5")
#define RANK(r, of) "{\"distributedInfo\":{\"rank\":" r ",\"world_size\":" of "},\"traceEvents\":["

static const struct {
    const char *name, *text;
} FILES[] = {
    { "r0.json", RANK("0", "2") WORK "," NCCL("40") "]}" },
    { "r1.json", RANK("1", "2") WORK "," NCCL("41") "]}" },
    { "more.json", RANK("3", "4") WORK "," NCCL("40") "]}" },
    { "quiet.json", RANK("1", "2") WORK "]}" },
    { "alone.json", "[" WORK "," NCCL("40") "]" },
    { "host.json", "[" MM("1") "," MM("11") "]" },
    { "gpu.json", "[" GEMM("20", "5") "]" },
    { "bare.json", "[" X("cpu_op", "aten::mm", "1", "1", "1", "9", "") "]" },
    { "none.json", "{\"traceEvents\":[]}" },
    { "other.json", "{\"a\":[1,2]}" },
    { "list.json", "[1,2,3]" },
    { "text", "no JSON at all\n" },
    { "empty", "" },
    { "there/file", "x" },
    { "cut.json", RANK("1", "2") WORK "," NCCL("41") ",{\"ph\":\"X\",\"na" },
    { "early.json", "[" MM("1") ",{\"ph\":\"X\",\"na" },
};

static void write_gzip(Lab *lab, const char *name, const char *text, double part)
{
    unsigned char packed[4096];
    z_stream z = { .next_in = (unsigned char *)(uintptr_t)text,
                   .avail_in = (unsigned)strlen(text),
                   .next_out = packed,
                   .avail_out = sizeof packed };
    CHECK_INT(deflateInit2(&z, 0, Z_DEFLATED, MAX_WBITS + 16, 8, 0), Z_OK);
    CHECK_INT(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t n = (size_t)(part * (double)z.total_out);
    deflateEnd(&z);
    lab_write(lab, lab_path(lab, "cell/%s", name), packed, n);
}

static int write_files(void **state)
{
    Lab *lab = NULL;
    CHECK(lab_open(state) == 0);
    lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "cell/there")));
    CHECK_OK(file_make_folders(lab_path(lab, "cell/folder/full/")));
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
        lab_write_text(lab, lab_path(lab, "cell/%s", FILES[i].name), FILES[i].text);
    write_gzip(lab, "r1.json.gz", FILES[1].text, 1);
    write_gzip(lab, "cut.json.gz", FILES[14].text, 0.99);
    write_gzip(lab, "stump.json.gz", FILES[1].text, 0.005);
    unsigned char torn[40] = { 0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 0xFF, 0xFF, 0xFF };
    lab_write(lab, lab_path(lab, "cell/torn.json.gz"), torn, sizeof torn);
    return 0;
}

/* Names in the cell, one a line. */
static const char *names(Lab *lab)
{
    char all[4096] = "";
    const char *const *name = NULL, *out = NULL;
    int n = 0;
    size_t at = 0;
    CHECK_OK(file_list(lab_path(lab, "cell"), &lab->arena, &name, &n));
    for (int i = 0; i < n && at < sizeof all; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s\n", name[i]);
    CHECK(at < sizeof all);
    CHECK_OK(arena_text(&lab->arena, all, at, &out));
    return out;
}

/* ---- one file that is not a trace, or less than one ---- */

static const struct {
    const char *file, *says;
} WRONG[] = {
    { "nowhere.json", "nowhere.json cannot be opened: No such file" },
    { "text", "text is not a trace: it is not JSON, which begins with { or [: name a file of" },
    { "other.json", "other.json is not a trace: it is JSON without traceEvents: name" },
    { "list.json", "list.json is not a trace: it is a JSON array without events: name" },
    { "empty", "empty is not a trace: it is empty: name" },
    { "folder", "folder is neither a file nor a pipe: name a trace" },
    { "/dev/null", "/dev/null is neither a file nor a pipe" },
    { "stump.json.gz", "its gzip ends before any text" },
    { "torn.json.gz", "torn.json.gz is a corrupt gzip file: invalid" },
};

static void what_is_no_trace_is_refused_by_every_command(void **state)
{
    Lab *lab = *state;
    const char *before = names(lab);
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        const char *f = WRONG[i].file;
        const char *const call[][10] = {
            { "trace", "report", f, "--out", "new/out" },
            { "trace", "report", "r0.json", f, "--out", "out", "--format", "html" },
            { "trace", "collectives", f, "--out", "out" },
            { "trace", "collectives", "r0.json", f, "--out", "out" },
            { "trace", "diff", f, "r0.json", "--out", "out" },
            { "trace", "diff", "r0.json", f, "--out", "new/deep/out" },
            { "trace", "replay", f, "--out", "out.json", "--bench", "out.jsonl" },
            { "bench", "trace", f, "--steps", "1" },
        };
        for (size_t k = 0; k < sizeof call / sizeof *call; k++) {
            Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = call[k] });
            CHECK_REFUSED(o, 2, WRONG[i].says);
            CHECK_TEXT(o.out, "");
            CHECK_TEXT(names(lab), before);
        }
    }
}

/* ---- calls that cannot be ---- */

static void a_call_that_cannot_be_is_one_sentence(void **state)
{
    static const struct {
        const char *args[10], *says;
    } row[] = {
        { { "trace", "report", "none.json" }, "none.json has no device events, only 0 operators" },
        { { "trace", "report", "host.json", "--out", "out" }, "only 2 operators, 0 runtime calls" },
        { { "trace", "report", "r0.json", "host.json", "--out", "out" }, "no device events" },
        { { "trace", "report", "r0.json", "r0.json", "--out", "out" },
          "are both rank 0: name each" },
        { { "trace", "report", "r0.json", "more.json" }, "name files of one run" },
        { { "trace", "report", "r0.json", "alone.json" }, "alone.json has no rank" },
        { { "trace", "report", "alone.json", "r1.json" }, "alone.json has no rank" },
        { { "trace", "report", "alone.json", "alone.json" }, "alone.json is named twice" },
        { { "trace", "report", "r0.json", "--step", "5", "--out", "out" }, "has steps 4 to 4" },
        { { "trace", "report", "gpu.json", "--step", "5" }, "the trace marks no steps" },
        { { "trace", "report", "r0.json", "--out", "there" }, "there exists already" },
        { { "trace", "report", "r0.json", "--out", "folder" }, "folder exists already" },
        { { "trace", "report", "r0.json", "--out", "text" }, "text exists already" },
        { { "trace", "report", "r0.json", "--out", "" }, "--out is empty: give DIR" },
        { { "trace", "report", "r0.json", "--out", "out", "--format", "" },
          "--format is empty: give LIST" },
        { { "trace", "report", "r0.json", "--out", "out", "--format", "csv," }, "has \"\", not" },
        { { "trace", "report", "r0.json", "--out", "out", "--perfetto", "p" },
          "is not a recording" },
        { { "trace", "collectives", "r0.json", "--out", "out" }, "rank 1 of 2 is missing" },
        { { "trace", "collectives", "r0.json", "r0.json" }, "are both rank 0" },
        { { "trace", "collectives", "r0.json", "more.json" }, "name ranks of one run" },
        { { "trace", "collectives", "r0.json", "quiet.json", "--out", "out" },
          "quiet.json has no collective, no kernel of NCCL" },
        { { "trace", "collectives", "gpu.json" }, "no collective in gpu.json" },
        { { "trace", "collectives", "r0.json", "r1.json", "--out", "there" },
          "there exists already" },
        { { "trace", "diff", "r0.json" }, "needs OLD NEW, got 1" },
        { { "trace", "diff", "r0.json", "gpu.json", "--out", "out" },
          "gpu.json has no host calls" },
        { { "trace", "diff", "none.json", "r0.json" }, "none.json has no host calls" },
        { { "trace", "diff", "r0.json", "r1.json", "--out", "there" }, "there exists already" },
        { { "trace", "replay", "r0.json" }, "name a file with --out" },
        { { "trace", "replay", "gpu.json", "--out", "x" }, "record it with record_shapes=True" },
        { { "trace", "replay", "r0.json", "--out", "x", "--op-filter", "zz" }, "name has zz" },
        { { "trace", "replay", "r0.json", "--out", "r0.json" }, "write over the trace itself" },
        { { "trace", "replay", "r0.json", "--bench", "./there/../r0.json" }, "over the trace" },
        { { "trace", "replay", "r0.json", "--out", "there" }, "--out \"there\" is not a file" },
        { { "trace", "replay", "r0.json", "--out", "" }, "--out is empty: give" },
        { { "trace", "replay", "r0.json", "--out", "x", "--bench", "no/x" }, "no folder no: make" },
        { { "trace", "replay", "r0.json", "--out", "x", "--bench", "x" }, "are both x" },
        { { "bench", "trace", "host.json", "--steps", "1" }, "host.json has no device events" },
        { { "bench", "trace", "r0.json", "--steps", "0" }, "--steps is 0" },
    };
    Lab *lab = *state;
    const char *before = names(lab);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = row[i].args });
        CHECK_REFUSED(o, 2, row[i].says);
        CHECK_TEXT(o.out, "");
        CHECK_TEXT(names(lab), before);
    }
    CHECK_TEXT(lab_read(lab, lab_path(lab, "cell/r0.json"), NULL), FILES[0].text);
}

/* ---- input that ends early ---- */

static void what_ends_early_is_done_and_said(void **state)
{
    static const struct {
        const char *args[10], *says, *whole;
    } row[] = {
        { { "trace", "report", "cut.json", "--out", "o1" },
          "cut.json ends early",
          "o1/gpu_timeline.csv" },
        { { "trace", "report", "cut.json.gz", "r0.json", "--out", "o2" },
          "cut.json.gz ends early: the report",
          "o2/rank_1/gpu_timeline.csv" },
        { { "trace", "collectives", "r0.json", "cut.json", "--out", "o3" },
          "cut.json ends early (1 of 2 traces do)",
          "o3/clocks.csv" },
        { { "trace", "diff", "r0.json", "cut.json.gz", "--out", "o4" },
          "cut.json.gz ends early: only complete events",
          "o4/diff_ops.csv" },
        { { "trace", "diff", "cut.json", "cut.json", "--out", "o5" },
          "cut.json ends early, and so does the other",
          "o5/diff_ops.csv" },
        { { "trace", "replay", "cut.json", "--out", "o6.json" }, "cut.json ends early", "o6.json" },
        { { "bench", "trace", "cut.json", "--steps", "1" },
          "cut.json ends early: the times",
          NULL },
    };
    Lab *lab = *state;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = row[i].args });
        CHECK_REFUSED(o, 3, row[i].says);
        if (row[i].whole != NULL) CHECK(file_exists(lab_path(lab, "cell/%s", row[i].whole)));
    }
    Outcome o = RUN(lab, "cell", "trace", "report", "early.json", "--out", "o7");
    CHECK_REFUSED(o, 3, "early.json ends early, before any of its device events");
    CHECK(!file_exists(lab_path(lab, "cell/o7")));
}

/* ---- what is taken, and what it lacks ---- */

static void what_a_trace_lacks_is_said(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "cell", "trace", "diff", "host.json", "host.json");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "it has no device events: only its calls");
    o = RUN(lab, "cell", "trace", "replay", "host.json", "--out", "list.out");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "no call in it launched device work");
    o = RUN(lab, "cell", "trace", "report", "r0.json", "r1.json.gz");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "cell", "trace", "report", "more.json", "--out", "a/b/c");
    CHECK_EXIT(o, 0);
    CHECK(file_exists(lab_path(lab, "cell/a/b/c/gpu_timeline.csv")));
}

/* A file to which somebody goes on writing, until the command has looked. */
static void a_file_that_grows_is_refused(void **state)
{
    enum { EVENTS = 40000 };
    Lab *lab = *state;
    const char *path = lab_path(lab, "cell/grows.json");
    FILE *f = fopen(path, "w");
    CHECK(f != NULL && fputs("[", f) >= 0);
    for (int i = 0; i < EVENTS; i++) CHECK(fputs(WORK ",", f) >= 0);
    CHECK(fflush(f) == 0);
    Child c = START(lab, "cell", "trace", "report", "grows.json", "--out", "grown");
    while (child_runs(&c)) {
        CHECK(fputs(WORK ",", f) >= 0 && fflush(f) == 0);
        child_sleep();
    }
    CHECK(fclose(f) == 0);
    Outcome o = lab_wait(lab, &c);
    CHECK_REFUSED(o, 2, "grows.json changed from ");
    CHECK_SAYS(o.err, "while it was read: wait until it is written");
    CHECK(!file_exists(lab_path(lab, "cell/grown")));
    CHECK(!file_exists(lab_path(lab, "cell/grown.tmp")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(what_is_no_trace_is_refused_by_every_command),
        LAB_TEST(a_call_that_cannot_be_is_one_sentence),
        LAB_TEST(what_ends_early_is_done_and_said),
        LAB_TEST(what_a_trace_lacks_is_said),
        LAB_TEST(a_file_that_grows_is_refused),
    };
    return cmocka_run_group_tests(tests, write_files, lab_close);
}
