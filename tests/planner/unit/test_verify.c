/* Layouts that are run: which ones, by which settings, in a process that may fail or hang, and what their times
 * teach. */
#include "harness/question.h"

#include "engine/base/clock.h"
#include "planner/search/verify.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define SET(...)                                                                                   \
    ((const char *const[]){ __VA_ARGS__ }),                                                        \
        (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static SearchResult search(Question *q, int top)
{
    SearchAxes axes;
    SearchResult found = { 0 };
    CHECK_OK(search_axes(&q->config, &axes));
    SearchOptions o = { .axes = &axes, .pricer = &search_planner, .top = top, .threads = 1 };
    CHECK_OK(search_run(&q->request, &o, &q->arena, &found));
    question_open(q);
    for (int i = 0; i < found.n_best; i++)
        CHECK_OK(planner_partition(q->planner, &found.best[i].layout, &q->arena,
                                   &found.best[i].partition));
    return found;
}

/* ---- which ---- */

/* Kinds A A B A C: a want of three takes the first of each, one of four also the second A. */
static void the_best_of_each_kind_runs_first(void **state)
{
    (void)state;
    SearchRow row[5] = { 0 };
    static const int ep[] = { 1, 1, 2, 1, 4 }, three[] = { 0, 2, 4 }, four[] = { 0, 1, 2, 4 };
    int chosen[VERIFY_MAX];
    for (int i = 0; i < 5; i++) row[i].layout.ep = ep[i];
    CHECK_INT(verify_choose(row, 5, 3, chosen), 3);
    CHECK(memcmp(chosen, three, sizeof three) == 0);
    CHECK_INT(verify_choose(row, 5, 4, chosen), 4);
    CHECK(memcmp(chosen, four, sizeof four) == 0);
    CHECK_INT(verify_choose(row, 5, 9, chosen), 5);
    CHECK_INT(verify_choose(row, 1, 2, chosen), 1);
    row[1].layout.zero =
        3; /* another kind of the first mesh: half of those that run are other meshes */
    CHECK_INT(verify_choose(row, 5, 2, chosen), 2);
    CHECK_INT(chosen[1], 1);
    CHECK_INT(verify_choose(row, 5, 3, chosen), 3);
    CHECK(memcmp(chosen, (const int[]){ 0, 1, 2 }, 3 * sizeof(int)) == 0);
}

/* ---- settings ---- */

/* A configuration with a row's settings has its layout and its price. */
static void check_row(Question *q, const SearchRow *row, const char *const *set, int n)
{
    ProcessWords c = { 0 };
    Question again;
    PlanPrice mine, theirs;
    Layout partition;
    PlanLayout l = row->layout;
    for (int i = 0; i < n; i++) CHECK_OK(process_word(&c, set[i]));
    CHECK_OK(verify_settings(&q->config, row, &q->arena, &c));
    question_load(&again, "deepseek-v2-lite", "h100", q->request.gpus, "switchyard", c.word, c.n);
    question_open(&again);
    CHECK_OK(layout_parse(row->partition, 0, 0, &again.arena, &partition));
    l.partition = &partition;
    CHECK_OK(planner_price(again.planner, &l, &theirs));
    CHECK_OK(planner_price(again.planner, &again.layout, &mine));
    CHECK_INT(again.layout.pp, l.pp);
    CHECK_INT(again.layout.shard, l.shard);
    CHECK(again.layout.schedule == l.schedule && again.layout.zero == l.zero);
    CHECK_INT(again.config.run_compute, row->price.compute);
    CHECK_INT(again.config.moe_buffers, row->price.buffers);
    CHECK_NEAR(mine.step_s, theirs.step_s, 0);
    CHECK_NEAR(mine.peak_bytes, theirs.peak_bytes, 0);
    question_close(&again);
}

static void settings_give_the_layout_back(void **state)
{
    (void)state;
    static const struct {
        const char *set[7];
    } cases[] = {
        { { "search.pp=[1]", "search.zero=[1,3]", "search.shard=[0,2]",
            "search.recompute=[none,norm+act]", "search.buffers=[pooled,worst]" } },
        { { "search.pp=[2]", "search.vpp=[2]", "search.schedule=[interleaved,1f1b]",
            "search.recompute=[layer/4,layer/2,layer]", "search.compute=[f32,bf16]" } },
        { { "search.pp=[4]", "search.schedule=[dualpipe,zbv]", "search.recompute=[pieces,layer/2]",
            "search.ep=[2]", "recompute.layers=[1]" } },
    };
    for (int i = 0; i < 3; i++) {
        const char *const *k = cases[i].set;
        const char *set[] = { "train.batch=64",
                              "search.micro_batch=[1,2]",
                              "model.layers=9",
                              i == 1 ? "mtp.layers=1" : "mtp.layers=0",
                              k[0],
                              k[1],
                              k[2],
                              k[3],
                              k[4] };
        Question q;
        question_load(&q, "deepseek-v2-lite", "h100", 8, "switchyard", set, 9);
        SearchResult found = search(&q, 40);
        CHECK(found.n_best >= 8);
        for (int r = 0; r < found.n_best; r += 3) check_row(&q, &found.best[r], set, 9);
        question_close(&q);
    }
}

static void a_command_of_too_many_words_is_refused(void **state)
{
    (void)state;
    Arena a = { 0 };
    ProcessWords c = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 20));
    CHECK_OK(verify_words(&c, &a, "  mpirun -n  2 "));
    CHECK_INT(c.n, 3);
    assert_string_equal(c.word[2], "2");
    CHECK(c.word[3] == NULL);
    while (c.n < PROCESS_WORDS_MAX - 1) CHECK_OK(process_word(&c, "x"));
    CHECK_FAILS(process_word(&c, "x"), ERR_ARG, "more than 511 words");
    arena_free(&a);
}

/* ---- processes ---- */

static VerifyRun run(Arena *a, const char *script, double limit_s)
{
    ProcessWords c = { .word = { "sh", "-c", script, NULL }, .n = 3 };
    VerifyRun r = { 0 };
    CHECK_OK(verify_run(&c, limit_s, a, &r));
    return r;
}

#define STEP                                                                                       \
    "{\"kind\":\"step\",\"machine\":\"2 threads\",\"tokens_per_s\":64,\"step_p50_s\":0.5,"         \
    "\"step_p99_s\":1,"

static void a_result_is_read_between_other_lines(void **state)
{
    (void)state;
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 24));
    VerifyRun r =
        run(&a, "echo '{bad}'; echo note >&2; echo '" STEP "\"arena_bytes\":7}'; echo '}'", 60);
    CHECK(r.ran && !r.on_gpu);
    CHECK_NEAR(r.step_s, 0.5, 0);
    CHECK_NEAR(r.spread, 2, 0);
    CHECK_NEAR(r.tokens_per_s, 64, 0);
    CHECK_NEAR(r.bytes, 7, 0);
    assert_string_equal(r.machine, "2 threads");
    r = run(&a, "seq 100000; echo '" STEP "\"arena_bytes\":7,\"gpu_bytes\":9}'", 60);
    CHECK(r.ran && r.on_gpu); /* behind half a megabyte */
    CHECK_NEAR(r.bytes, 9, 0);
    r = run(&a, "echo '{\"kind\":\"step\"}'", 60);
    CHECK(!r.ran);
    assert_string_equal(r.why, "it printed no result of bench step");
    arena_free(&a);
}

static void a_failure_is_named(void **state)
{
    (void)state;
    Arena a = { 0 };
    ProcessWords none = { .word = { "/no/such/program", NULL }, .n = 1 };
    VerifyRun r = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 24));
    r = run(&a, "echo warning; echo 'error: moe: 3 [bad]' >&2; echo later; exit 2", 60);
    CHECK(!r.ran);
    assert_string_equal(r.why, "moe: 3 [bad]");
    r = run(&a, "echo '" STEP "\"arena_bytes\":7}'; printf 'one\\ntwo\\n\\n'; exit 1", 60);
    CHECK(!r.ran);
    assert_string_equal(r.why, "two");
    r = run(&a, "exit 1", 60);
    assert_string_equal(r.why, "it printed nothing");
    r = run(&a, "kill -SEGV $$", 60);
    assert_string_equal(r.why, "signal 11 ended it");
    CHECK_FAILS(verify_run(&none, 60, &a, &r), ERR_ARG, "cannot start /no/such/program");
    arena_free(&a);
}

/* Is there such a process, which is not merely dead and not waited for? */
static bool runs(int pid)
{
    char path[64], state = 'Z';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
    (void)fclose(f);
    return state != 'Z';
}

/* Both the process and what it started are gone. */
static void a_process_that_hangs_is_ended_with_its_children(void **state)
{
    (void)state;
    Arena a = { 0 };
    char path[] = "/tmp/verify-XXXXXX", script[200];
    int fd = mkstemp(path), child = 0;
    CHECK(fd >= 0);
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 24));
    (void)snprintf(script, sizeof script, "sleep 1000 & echo $! >%s; wait", path);
    double begin = clock_s();
    VerifyRun r = run(&a, script, 0.5);
    CHECK(clock_s() - begin < 30);
    CHECK(!r.ran);
    assert_string_equal(r.why, "it ran longer than 0.5 s and was ended");
    FILE *f = fdopen(fd, "r");
    CHECK(f != NULL && fscanf(f, "%d", &child) == 1 && child > 1);
    (void)fclose(f);
    (void)unlink(path);
    for (int i = 0; i < 100 && runs(child); i++) (void)usleep(20000);
    CHECK(!runs(child));
    arena_free(&a);
}

/* ---- factors ---- */

enum { RUN_COUNT = 6 };

/* Six layouts whose steps have parts of other sizes, as they would take under these factors. */
static void make_runs(SearchRow *row, VerifyRun *r, const double factor[VERIFY_PARTS])
{
    static const double parts[RUN_COUNT][4] = { { 1, 0, 0.1, 0 },      { 1.1, 0.3, 0.1, 0.2 },
                                                { 0.9, 0.5, 0.3, 0 },  { 1.3, 0.1, 0.6, 0.1 },
                                                { 1, 0.2, 0.05, 0.6 }, { 1.2, 0.6, 0.2, 0.3 } };
    for (int i = 0; i < RUN_COUNT; i++) {
        const double *p = parts[i];
        PlanPrice *price = &row[i].price;
        *price = (PlanPrice){ .step_s = p[0] + p[1] + p[2] + p[3] };
        price->part_s[PLAN_COMPUTE] = p[0];
        price->part_s[i % 2 == 0 ? PLAN_EXCHANGE : PLAN_SEND] = p[1];
        price->part_s[PLAN_GRADIENTS] = p[2];
        price->part_s[PLAN_BUBBLE] = p[3];
        r[i] = (VerifyRun){ .row = &row[i], .ran = true };
        double pipeline = factor[0] * p[0] + factor[1] * p[1];
        r[i].step_s = pipeline * (1 + p[3] / (p[0] + p[1])) + factor[2] * p[2];
    }
}

static void factors_are_found(void **state)
{
    (void)state;
    static const double factor[] = { 1.3, 2.5, 0.7 };
    SearchRow row[RUN_COUNT];
    VerifyRun r[RUN_COUNT];
    VerifyFit f;
    make_runs(row, r, factor);
    r[2].ran = false; /* and its time counts for nothing */
    r[2].step_s = 100;
    verify_fit(r, RUN_COUNT, &f);
    CHECK_INT(f.n, RUN_COUNT - 1);
    for (int k = 0; k < VERIFY_PARTS; k++) CHECK_NEAR(f.factor[k] / factor[k], 1, 0.03);
    CHECK(f.before > 0.2 && f.after < 0.005);
    r[2].ran = true;
    make_runs(row, r, factor);
    for (int i = 0; i < RUN_COUNT; i++)
        CHECK_NEAR(verify_step_s(&f, &row[i].price) / r[i].step_s, 1, 0.01);
}

/* One layout says nothing of parts: all get its factor. Without any nothing changes. Noise that asks for a part of
 * less than nothing gets a tenth. */
static void few_layouts_give_one_factor(void **state)
{
    (void)state;
    static const double factor[] = { 2, 2, 2 }, odd[] = { 1, -1.5, 1 };
    SearchRow row[RUN_COUNT];
    VerifyRun r[RUN_COUNT];
    VerifyFit f;
    make_runs(row, r, factor);
    verify_fit(&r[1], 1, &f);
    for (int k = 0; k < VERIFY_PARTS; k++) CHECK_NEAR(f.factor[k], 2, 1e-9);
    CHECK_NEAR(f.before, 0.5, 1e-9);
    CHECK_NEAR(f.after, 0, 1e-9);
    r[1].ran = false;
    verify_fit(&r[1], 1, &f);
    CHECK_INT(f.n, 0);
    CHECK_NEAR(verify_step_s(&f, &row[3].price), row[3].price.step_s, 1e-12);
    make_runs(row, r, odd);
    for (int i = 0; i < RUN_COUNT; i++) r[i].step_s = fmax(r[i].step_s, 0.05);
    verify_fit(r, RUN_COUNT, &f);
    for (int k = 0; k < VERIFY_PARTS; k++) CHECK(f.factor[k] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_best_of_each_kind_runs_first),
        TEST(settings_give_the_layout_back),
        TEST(a_command_of_too_many_words_is_refused),
        TEST(a_result_is_read_between_other_lines),
        TEST(a_failure_is_named),
        TEST(a_process_that_hangs_is_ended_with_its_children),
        TEST(factors_are_found),
        TEST(few_layouts_give_one_factor),
    };
    return TEST_RUN(tests);
}
