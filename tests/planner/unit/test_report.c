/* What a plan prints: rows that can be told apart, the type that was planned. */
#include "harness/question.h"

#include "planner/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { GPUS = 64 };

#define CHECK_SAYS(text, part)                                                                     \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL) fail_msg("\"%s\" is not in: %.2000s", part, text);     \
    } while (0)

typedef struct Told {
    Question of;
    Arena text;
    PlanPrice price;
    PlanReport report;
    Text out;
} Told;

/* Rows of a search are told apart by what passes take: lists are test_price's. */
static void open_question(Told *q, const char *stack, const char *const *set, int n)
{
    *q = (Told){ 0 };
    question_load(&q->of, "deepseek-v2-lite", "mi355x", GPUS, stack, set, n);
    question_open(&q->of);
    CHECK_OK(arena_init(&q->text, "text", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(text_init(&q->out, &q->text));
    CHECK_OK(planner_price(q->of.planner, &q->of.layout, &q->price));
    q->report = (PlanReport){ .request = &q->of.request,
                              .stack = "switchyard",
                              .layout = &q->of.layout,
                              .price = &q->price,
                              .partition = "" };
}

static void close_question(Told *q)
{
    question_close(&q->of);
    arena_free(&q->text);
}

#define OPEN(q, ...) OPEN_STACK(q, "switchyard,list=0", __VA_ARGS__)
#define OPEN_STACK(q, stack, ...)                                                                  \
    open_question((q), (stack), (const char *const[]){ __VA_ARGS__ },                              \
                  (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))
#define COMMON "train.batch=256", "train.micro_batch=1", "data.sequence=4096"

static SearchResult search(Told *q, int threads)
{
    SearchAxes axes;
    SearchResult found = { 0 };
    CHECK_OK(search_axes(&q->of.config, &axes));
    SearchOptions o = { .axes = &axes, .pricer = &search_planner, .top = 60, .threads = threads };
    CHECK_OK(search_run(&q->of.request, &o, &q->of.arena, &found));
    return found;
}

/* ---- rows ---- */

static void the_type_that_was_planned_is_said_everywhere(void **state)
{
    (void)state;
    static const char *const types[][2] = { { "run.compute=bf16", "bf16" },
                                            { "run.compute=f32", "f32" } };
    for (int i = 0; i < 2; i++) {
        Told q;
        char layout[PLAN_LAYOUT_BYTES], want[48];
        OPEN(&q, COMMON, "mesh.ep=8", types[i][0]);
        (void)snprintf(want, sizeof want, " %s ", types[i][1]);
        q.report.stack = "a \"b\".yaml"; /* a file may be called so */
        CHECK_SAYS(plan_layout_text(layout, &q.of.layout, &q.price), want);
        CHECK_OK(plan_report_text(&q.report, &q.out));
        (void)snprintf(want, sizeof want, "tokens/s/GPU in %s,", types[i][1]);
        CHECK_SAYS(q.out.data, want);
        q.out.used = 0;
        CHECK_OK(plan_report_json(&q.report, &q.out));
        (void)snprintf(want, sizeof want, "\"compute\":\"%s\"", types[i][1]);
        CHECK_SAYS(q.out.data, want);
        CHECK_SAYS(q.out.data, "\"stack\":\"a \\\"b\\\".yaml\"");
        q.out.used = 0;
        CHECK_OK(plan_report_csv(&q.report, &q.out));
        (void)snprintf(want, sizeof want, ",0,%s,pooled,0,alltoall,,,1,0,1\n", types[i][1]);
        CHECK_SAYS(q.out.data, want);
        close_question(&q);
    }
}

/* The layout's words, JSON and CSV tell such rows apart. */
static void offload_and_ranks_of_tp_are_said(void **state)
{
    (void)state;
    Told q;
    char layout[PLAN_LAYOUT_BYTES];
    OPEN(&q, COMMON, "mesh.ep=8", "optimizer.offload=true", "fp8.recipe=block", "run.compute=bf16");
    CHECK_OK(plan_report_text(&q.report, &q.out));
    CHECK(strstr(q.out.data, "does not run") == NULL);
    CHECK_SAYS(q.out.data, "GiB of host memory a GPU for moments\n");
    q.out.used = 0;
    CHECK_OK(plan_explain(q.of.planner, &q.report, "peak", &q.out));
    CHECK_SAYS(q.out.data, "GiB: what stays on the GPU; ");
    CHECK_SAYS(plan_layout_text(layout, &q.of.layout, &q.price),
               " bf16 with e4m3 block recompute none, offload");
    q.out.used = 0;
    CHECK_OK(plan_report_json(&q.report, &q.out));
    CHECK_SAYS(q.out.data, "\"tp\":1,\"etp\":1},\"offload\":true,\"host_bytes\":");
    q.of.layout.tp = 4;
    CHECK_SAYS(plan_layout_text(layout, &q.of.layout, &q.price), " CP1 TP4 DP");
    close_question(&q);
}

/* The columns of a line that say what was planned, not what came out: before "fits" and the last. */
static void identity(const char *line, char out[256])
{
    const char *at = line, *end = line + strcspn(line, "\n"), *last = end;
    for (int i = 0; i < 9; i++) at += strcspn(at, ",") + 1;
    for (int commas = 0; commas < 10; last--) commas += last[-1] == ',';
    (void)snprintf(out, 256, "%.*s%.*s", (int)(at - line), line, (int)(end - last), last);
}

static void rows_of_a_search_can_be_told_apart(void **state)
{
    (void)state;
    Told q;
    static char seen[200][PLAN_LAYOUT_BYTES];
    int n = 0;
    OPEN(&q, COMMON, "run.compute=bf16", "search.pp=[1,2]", "search.ep=[8]", "search.cp=[1]",
         "search.shard=[0,8,16]", "search.micro_batch=[1,2]", "search.zero=[1,3]",
         "search.buffers=[pooled,worst]", "search.compute=[f32,bf16]", "search.schedule=[1f1b]");
    SearchResult found = search(&q, 2);
    bool sharded = false, worst = false;
    CHECK_INT(found.n_best, 60);
    for (int i = 0; i < found.n_best; i++) {
        const SearchRow *row = &found.best[i];
        (void)plan_layout_text(seen[n], &row->layout, &row->price);
        for (int k = 0; k < n; k++) CHECK(strcmp(seen[k], seen[n]) != 0);
        sharded |= row->layout.shard > 0;
        worst |= row->price.buffers == BUFFERS_WORST;
        n++;
    }
    CHECK(sharded && worst);
    q.report.search = &found;
    CHECK_OK(plan_report_csv(&q.report, &q.out));
    const char *line = strchr(q.out.data, '\n') + 1;
    for (n = 0; *line != '\0'; n++, line = strchr(line, '\n') + 1) {
        identity(line, seen[n]);
        for (int k = 0; k < n; k++) CHECK(strcmp(seen[k], seen[n]) != 0);
    }
    CHECK_INT(n, 60);
    close_question(&q);
}

static void a_search_says_the_same_each_time(void **state)
{
    (void)state;
    static const int threads[] = { 1, 4, 2, 2 };
    char *first = NULL;
    for (int i = 0; i < RUNS(4, 2); i++) {
        Told q;
        OPEN(&q, COMMON, "run.compute=bf16", "search.zero=[1]", "search.pp=[2,4,8]",
             "search.schedule=[1f1b,interleaved,zbv]", "search.shard=[0]");
        SearchResult found = search(&q, threads[i]);
        found.seconds = 1;
        CHECK(found.n_front > 5);
        q.report.search = &found;
        for (int k = 0; k < found.n_best; k++) found.best[k].partition = "";
        for (int k = 0; k < found.n_front; k++) found.front[k].partition = "";
        CHECK_OK(plan_report_json(&q.report, &q.out));
        if (first == NULL) first = strdup(q.out.data);
        CHECK_TEXT(q.out.data, first);
        close_question(&q);
    }
    free(first);
}

/* No overlap that does not happen is recommended; who asks for it is told. */
static void a_schedule_without_its_overlap_is_named_only_on_request(void **state)
{
    (void)state;
    Told q;
    OPEN_STACK(&q, "switchyard,lanes=0,list=0", COMMON, "run.compute=bf16", "search.pp=[2]",
               "search.ep=[8]", "search.zero=[1]");
    SearchResult found = search(&q, 2);
    for (int i = 0; i < found.n_best; i++) CHECK(!found.best[i].layout.schedule->phases);
    for (int i = 0; i < found.n_front; i++) CHECK(!found.front[i].layout.schedule->phases);
    close_question(&q);
    OPEN_STACK(&q, "switchyard,lanes=0,list=0", COMMON, "run.compute=bf16", "mesh.pp=2",
               "mesh.ep=8", "search.pp=[2]", "mesh.schedule=1f1b-overlap",
               "search.schedule=[1f1b-overlap]");
    found = search(&q, 2);
    CHECK(found.n_best > 0 && found.best->layout.schedule->phases);
    CHECK_OK(plan_report_text(&q.report, &q.out));
    CHECK_SAYS(q.out.data, "exchanges in series with compute, as stack switchyard runs it");
    close_question(&q);
}

static void a_row_of_scaling_that_does_not_fit_says_so(void **state)
{
    (void)state;
    Told q;
    OPEN(&q, COMMON, "run.compute=bf16");
    PlanScale row[2] = { { .gpus = GPUS, .layout = q.of.layout, .price = q.price } };
    row[1] = row[0];
    row[1].gpus = 2 * GPUS;
    row[0].price.fits = false;
    row[1].price.fits = true;
    CHECK_OK(plan_scale_text(row, 2, 1e9, &q.out));
    const char *second = strchr(q.out.data, '\n');
    CHECK(strstr(q.out.data, "DOES NOT FIT") < second);
    CHECK(strstr(second, "DOES NOT FIT") == NULL);
    close_question(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_type_that_was_planned_is_said_everywhere),
        TEST(offload_and_ranks_of_tp_are_said),
        TEST(rows_of_a_search_can_be_told_apart),
        TEST(a_search_says_the_same_each_time),
        TEST(a_schedule_without_its_overlap_is_named_only_on_request),
        TEST(a_row_of_scaling_that_does_not_fit_says_so),
    };
    return TEST_RUN(tests);
}
