/* The page of a plan: what it says of the question, of memory by rank, of groups of GPUs, and of a search. */
#include "harness/question.h"

#include "engine/base/file.h"
#include "pages/unit/xml_check.h"
#include "planner/page/plan_page.h"

#include <stdlib.h>
#include <unistd.h>

static Question asked;

/* A layout of small pieces: two stages, experts over all GPUs of a stage. */
#define SMALL                                                                                      \
    "run.compute=bf16", "model.layers=8", "mesh.pp=2", "mesh.ep=8", "train.batch=64",              \
        "data.sequence=4096"

static void check_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in: %.3000s", part, text);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) n++;
    return n;
}

/* Writes the page of an answer, checks that it is well-formed, and returns its text. */
static const char *page_of(const PlanQuestion *q, PlanAnswer *answer, const char *unfit,
                           const char *ending)
{
    char path[64], *text = NULL;
    size_t bytes = 0;
    PlanReport report;
    Text out;
    Arena page = { 0 };
    (void)snprintf(path, sizeof path, "/tmp/switchyard_page_XXXXXX%s", ending);
    const int file = mkstemps(path, (int)strlen(ending));
    CHECK(file >= 0);
    close(file);
    CHECK_OK(arena_init(&page, "page", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(text_init(&out, &page));
    CHECK_OK(text_printf(&out, "before"));
    CHECK_OK(plan_answer(q, &asked.arena, answer));
    CHECK_OK(plan_answer_report(answer, &asked.arena, &report));
    report.stack = "switchyard";
    report.tokens = 1e12;
    const PlanPage p = { answer, &report, unfit, &asked.arena };
    CHECK_OK(plan_page_write(&p, path, &out));
    CHECK_TEXT(out.data, "before"); /* nothing of the page is left for stdout */
    arena_free(&page);
    CHECK_OK(file_read_all(path, &asked.arena, &text, &bytes));
    (void)unlink(path);
    const char *place = NULL, *error = xml_error(text, &place);
    if (error != NULL) fail_msg("%s, before: %.80s", error, place);
    CHECK(strstr(text, ">nan") == NULL && strstr(text, "\"inf") == NULL);
    return text;
}

static const char *small_page(PlanAnswer *answer, const char *unfit, const char *ending)
{
    const char *set[] = { SMALL, "plan.gpu_hour=\xe2\x82\xac"
                                 "2.5" };
    question_load(&asked, "deepseek-v2-lite", "h200", 16, "switchyard", set, 7);
    const PlanQuestion q = { .request = asked.request, .top = 3 };
    return page_of(&q, answer, unfit, ending);
}

static void a_page_says_what_it_is_for_and_what_comes_out(void **state)
{
    (void)state;
    PlanAnswer a;
    char speed[64];
    const char *page = small_page(&a, NULL, ".html");
    check_in(page, "<h1>deepseek-v2-lite on 16 x NVIDIA H200");
    check_in(page, ", 2 hosts of 8</small>");
    check_in(page, "<dd>64 x 4,096<small>");
    check_in(page, "<dd>bf16<small>");
    check_in(page, "stack switchyard");
    check_in(page, "<dt>Memory: fits</dt>");
    check_in(page, "1.00 T tokens at full speed; with failures ");
    check_in(page, " \xe2\x82\xac</small>");
    (void)snprintf(speed, sizeof speed, "<dt>Speed, tokens/s/GPU</dt><dd>%.1f<small>",
                   a.price.tokens_per_s_per_gpu);
    check_in(page, speed);
    check_in(page, "132.8 GiB may be used");
    check_in(page, "the GPU has 139.8 GiB");
    CHECK(strstr(page, "verdict\"") == NULL && strstr(page, "id=\"layouts\"") == NULL);
    CHECK(strstr(page, "http") == NULL && strstr(page, "src=") == NULL);
    plan_answer_free(&a);
    question_close(&asked);
}

/* The kinds of the fullest rank are those of the price, each rank has its own, and the timeline shows the
 * same sums. */
static void each_rank_has_its_own_memory(void **state)
{
    (void)state;
    PlanAnswer a;
    double memory[2][PLAN_KINDS], sum[2] = { 0 };
    char peak[2][32];
    const char *page = small_page(&a, NULL, ".html");
    CHECK_OK(planner_memory(a.planner, &a.layout, &a.price, memory));
    for (int k = 0; k < PLAN_KINDS; k++) {
        CHECK_NEAR(memory[a.price.worst_rank][k], a.price.memory[k], 0);
        for (int r = 0; r < 2; r++) sum[r] += memory[r][k];
    }
    CHECK_NEAR(sum[a.price.worst_rank], a.price.peak_bytes, 1);
    CHECK(sum[1 - a.price.worst_rank] < a.price.peak_bytes);
    for (int r = 0; r < 2; r++) {
        char text[48];
        (void)snprintf(text, sizeof text, ">%s</text>", text_bytes(peak[r], sum[r]));
        CHECK_INT(count(page, text),
                  3); /* in the bars, also those of a narrow page, and behind the timeline */
    }
    plan_answer_free(&a);
    question_close(&asked);
}

static void what_does_not_fit_is_said_in_red(void **state)
{
    (void)state;
    PlanAnswer a;
    const char *set[] = { SMALL, "plan.margin=0.95" };
    question_load(&asked, "deepseek-v2-lite", "h200", 16, "switchyard", set, 7);
    const PlanQuestion q = { .request = asked.request, .top = 3 };
    const char *page = page_of(&q, &a, "it lacks 5 < 6", ".html");
    CHECK(!a.price.fits);
    check_in(page, "<p class=\"bad verdict\">Does not fit: it lacks 5 &lt; 6</p>");
    check_in(page, "<div class=\"bad\"><div><dl><dt>Memory: does not fit</dt>");
    check_in(page, "<text class=\"bad\" x=");
    plan_answer_free(&a);
    question_close(&asked);
}

/* pp 2, dp 8, ep 8 on hosts of 8: stages lie on hosts of their own, so only transfers between stages leave
 * a host. A GPU sends the stream of each micro-batch to the other stage once. */
static void groups_are_those_of_the_mesh(void **state)
{
    (void)state;
    PlanAnswer a;
    PlanGroups g;
    const char *page = small_page(&a, NULL, ".html");
    CHECK_OK(planner_groups(a.planner, &a.layout, &a.price, &g));
    const PlanGroup *ep = &g.at[0], *pp = &g.at[g.n - 1];
    CHECK_INT(ep->axis, PLAN_AXIS_EP);
    CHECK(ep->ranks == 8 && ep->stride == 1 && ep->local == 8);
    CHECK(ep->bytes > 0 && ep->s > 0);
    CHECK_INT(pp->axis, PLAN_AXIS_PP);
    CHECK(pp->ranks == 2 && pp->stride == 8 && pp->local == 1);
    double micros = 64.0 / 8 / (double)a.layout.micro_batch;
    double stream = 2.0 * (double)a.layout.micro_batch * 4096 * (double)a.config.model_hidden;
    CHECK_NEAR(pp->bytes, micros * stream, 0.01 * micros * stream);
    for (int i = 0; i < g.n; i++) CHECK(g.at[i].ranks > 1 && g.at[i].axis != PLAN_AXIS_CP);
    check_in(page, "pp: 2 ranks, stride 8: the first group lies on 2 hosts</text>");
    check_in(page, "ep: 8 ranks, stride 1: the first group lies on 1 host</text>");
    check_in(page, "across 2 hosts, 1 in each");
    check_in(page, "inside a host");
    check_in(page, "<title>GPU 8: group 0, rank 1 of 2</title>");
    check_in(page, "<title>GPU 9: group 1, rank 1 of 2</title>");
    plan_answer_free(&a);
    question_close(&asked);
}

/* ep 16 over hosts of 8, cp 2 inside of it. */
static void a_group_over_hosts_says_so(void **state)
{
    (void)state;
    PlanAnswer a;
    PlanGroups g;
    const char *set[] = { "run.compute=bf16", "model.layers=8",  "mesh.cp=2",
                          "mesh.ep=16",       "train.batch=128", "data.sequence=4096" };
    question_load(&asked, "deepseek-v2-lite", "h200", 32, "switchyard", set, 6);
    const PlanQuestion q = { .request = asked.request, .top = 3 };
    const char *page = page_of(&q, &a, NULL, ".html");
    CHECK_OK(planner_groups(a.planner, &a.layout, &a.price, &g));
    CHECK(g.at[0].axis == PLAN_AXIS_CP && g.at[0].ranks == 2 && g.at[0].local == 2);
    CHECK(g.at[0].bytes > 0);
    CHECK(g.at[1].axis == PLAN_AXIS_EP && g.at[1].ranks == 16 && g.at[1].local == 8);
    bool experts = false; /* replicas of one set of experts stand 16 apart */
    for (int i = 2; i < g.n; i++)
        experts |= g.at[i].axis == PLAN_AXIS_DP && g.at[i].ranks == 2 && g.at[i].stride == 16;
    CHECK(experts);
    check_in(page, "across 2 hosts, 8 in each");
    plan_answer_free(&a);
    question_close(&asked);
}

/* tp 2 is innermost: ranks of cp stand 2 apart, those of a stage 8. */
static void ranks_of_tp_are_neighbours(void **state)
{
    (void)state;
    PlanAnswer a;
    PlanGroups g;
    const char *set[] = { "run.compute=bf16", "model.layers=8",  "mesh.pp=2",         "mesh.cp=2",
                          "mesh.tp=2",        "train.batch=128", "data.sequence=4096" };
    question_load(&asked, "deepseek-v2-lite", "h200", 16, "megatron", set, 7);
    const PlanQuestion q = { .request = asked.request, .top = 3 };
    const char *page = page_of(&q, &a, NULL, ".html");
    CHECK_OK(planner_groups(a.planner, &a.layout, &a.price, &g));
    CHECK(g.at[0].axis == PLAN_AXIS_TP && g.at[0].ranks == 2 && g.at[0].stride == 1);
    CHECK(g.at[0].bytes > 0 && g.at[0].s > 0);
    CHECK(g.at[1].axis == PLAN_AXIS_CP && g.at[1].ranks == 2 && g.at[1].stride == 2);
    CHECK(g.at[g.n - 1].axis == PLAN_AXIS_PP && g.at[g.n - 1].stride == 8);
    check_in(page, "tp: 2 ranks, stride 1: the first group lies on 1 host</text>");
    plan_answer_free(&a);
    question_close(&asked);
}

static void a_search_has_a_plot_a_table_and_timelines(void **state)
{
    (void)state;
    static const char *const set[] = { "run.compute=bf16", "model.layers=8",
                                       "train.batch=64",   "search.cp=[1]",
                                       "search.pp=[1,2]",  "search.schedule=[1f1b]",
                                       "search.ep=[8]",    "search.micro_batch=[1]" };
    PlanAnswer a;
    question_load(&asked, "deepseek-v2-lite", "h200", 16, "switchyard", set, 8);
    const PlanQuestion q = { .request = asked.request, .search = true, .top = 3 };
    const char *page = page_of(&q, &a, NULL, ".html");
    int rows = count(page, "<tr id=\"row");
    CHECK_INT(a.found.n_best, 3);
    CHECK(rows >= 3 && rows <= 3 + a.found.n_front);
    CHECK_INT(count(page, "<a href=\"#row"), 2 * rows); /* the chart has two sizes */
    for (int i = 1; i <= rows; i++) {
        char link[32];
        (void)snprintf(link, sizeof link, "<a href=\"#row%d\"", i);
        CHECK_INT(count(page, link), 2);
    }
    CHECK_INT(count(page, "~"), 0); /* every row is simulated */
    CHECK_INT(count(page, "<td>front</td>"), rows - 3);
    CHECK_INT(count(page, "\">timeline</a>"), 3 + 1); /* and one in the header */
    for (int i = 1; i <= 3; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "id=\"timeline%d\"", i);
        CHECK_INT(count(page, id), 1);
    }
    CHECK_INT(count(page, "<svg class=\"pipe\""), 3);
    plan_answer_free(&a);
    question_close(&asked);
}

/* A stack whose lists are not known has a timeline of passes alone. Ours lacks the wait for the slowest GPU. */
static void a_timeline_that_ends_before_the_step_says_why(void **state)
{
    (void)state;
    PlanAnswer a;
    char note[128];
    const char *set[] = { SMALL };
    question_load(&asked, "deepseek-v2-lite", "h200", 16, "torchtitan", set, 6);
    const PlanQuestion q = { .request = asked.request, .top = 3 };
    const char *page = page_of(&q, &a, NULL, ".html");
    (void)snprintf(note, sizeof note,
                   "The step takes %.4g s: it waits %.3g s for the slowest GPU; gradients, ",
                   a.price.step_s, a.price.part_s[PLAN_SLOWEST]);
    check_in(page, note);
    check_in(page, ": ends after ");
    plan_answer_free(&a);
    question_close(&asked);
    page = small_page(&a, NULL, ".html");
    (void)snprintf(note, sizeof note,
                   "The step takes %.4g s: it waits %.3g s for the slowest GPU.</p>",
                   a.price.step_s, a.price.part_s[PLAN_SLOWEST]);
    CHECK(a.price.part_s[PLAN_SLOWEST] > 0.001 * a.price.step_s);
    check_in(page, note);
    plan_answer_free(&a);
    question_close(&asked);
}

/* In f32 a layout takes more than in bf16: each timeline is of its row's type. */
static void each_timeline_has_the_memory_of_its_row(void **state)
{
    (void)state;
    static const char *const set[] = { "model.layers=8",     "train.batch=64",
                                       "search.cp=[1]",      "search.pp=[1]",
                                       "search.zero=[1]",    "search.schedule=[1f1b]",
                                       "search.ep=[8]",      "search.micro_batch=[1]",
                                       "data.sequence=4096", "search.compute=[bf16,f32]" };
    PlanAnswer a;
    bool type[2] = { false, false };
    question_load(&asked, "deepseek-v2-lite", "h200", 8, "switchyard", set, 10);
    const PlanQuestion q = { .request = asked.request, .search = true, .top = 8 };
    const char *at = page_of(&q, &a, NULL, ".html");
    for (int i = 0; i < a.found.n_best && i < 8; i++) {
        char bytes[32], text[48];
        const PlanPrice *price = &a.found.best[i].price;
        type[price->compute == a.price.compute] = true;
        at = strstr(at, "<svg class=\"pipe\"");
        CHECK(at != NULL);
        (void)snprintf(text, sizeof text, ">%s</text>", text_bytes(bytes, price->peak_bytes));
        const char *end = strstr(at, "</svg>"), *found = strstr(at, text);
        CHECK(found != NULL && found < end);
        at = end;
    }
    CHECK(type[0] && type[1]); /* both are among them */
    plan_answer_free(&a);
    question_close(&asked);
}

static void a_picture_is_the_timeline_alone(void **state)
{
    (void)state;
    PlanAnswer a;
    const char *still = small_page(&a, NULL, ".svg");
    CHECK(text_starts(still, "<svg xmlns="));
    check_in(still, ">rank 1</text>");
    plan_answer_free(&a);
    question_close(&asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_page_says_what_it_is_for_and_what_comes_out),
        TEST(each_rank_has_its_own_memory),
        TEST(what_does_not_fit_is_said_in_red),
        TEST(groups_are_those_of_the_mesh),
        TEST(a_group_over_hosts_says_so),
        TEST(ranks_of_tp_are_neighbours),
        TEST(a_search_has_a_plot_a_table_and_timelines),
        TEST(a_timeline_that_ends_before_the_step_says_why),
        TEST(each_timeline_has_the_memory_of_its_row),
        TEST(a_picture_is_the_timeline_alone),
    };
    return TEST_RUN(tests);
}
