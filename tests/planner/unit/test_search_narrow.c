/* A law of searches: a narrower one never finds a better layout than the wide one does. Drawn models, clusters and batches
 * are searched twice, with all values of an axis and with some of them. DRAWN=FIRST:N asks for other questions; 200 take four minutes. */
#include "harness/draw_model.h"
#include "harness/question.h"

#include "planner/search/search_private.h"

#include <stdio.h>
#include <stdlib.h>

enum { QUESTIONS = RUNS(20, 4) };

static int pick(Draws *d, const int *of, int n) { return of[draw_int(d, 0, n - 1)]; }

static void draw_question(Draws *d, Question *t)
{
    static const char *const models[] = { "mixtral-8x7b", "deepseek-v2-lite", "qwen3-30b-a3b",
                                          "gpt-oss-20b" },
                             *const gpu[] = { "h200", "h100", "mi355x" },
                             *const stacks[] = { "switchyard", "switchyard", "switchyard",
                                                 "primus" };
    static const int gpus[] = { 4, 8, 16, 24, 32 }, layers[] = { 8, 12, 16, 24 },
                     each[] = { 1, 2, 4, 8 }, lengths[] = { 2048, 4096, 16384 };
    char set[3][48];
    const int n = pick(d, gpus, 5);
    (void)snprintf(set[0], sizeof set[0], "model.layers=%d", pick(d, layers, 4));
    (void)snprintf(set[1], sizeof set[1], "train.batch=%d", n * pick(d, each, 4));
    (void)snprintf(set[2], sizeof set[2], "data.sequence=%d", pick(d, lengths, 3));
    const char *settings[] = { set[0], set[1], set[2], "run.compute=bf16" };
    question_load(t, models[draw_int(d, 0, 3)], gpu[draw_int(d, 0, 2)], n,
                  stacks[draw_int(d, 0, 3)], settings, 4);
}

/* Half of the values of one axis, at least one. */
static void narrow_axis(Draws *d, SearchAxes *axes)
{
    ConfigInts *list = NULL;
    while (list == NULL || list->n < 2) list = &axes->axis[draw_int(d, 0, SEARCH_AXES - 1)];
    for (int left = (list->n + 1) / 2; list->n > left; list->n--) {
        for (int i = draw_int(d, 0, list->n - 1); i + 1 < list->n; i++)
            list->at[i] = list->at[i + 1];
    }
}

static void check_question(uint64_t number)
{
    Question t;
    Draws d = { .seed = number, .stream = "questions" };
    SearchAxes wide = { 0 }, narrow;
    SearchResult all = { 0 }, some = { 0 };
    draw_question(&d, &t);
    search_axes_fill(&t.request, &wide);
    narrow = wide;
    narrow_axis(&d, &narrow);
    CHECK_OK(search_run(&t.request, &(SearchOptions){ &wide, &search_planner, 3, 0, NULL },
                        &t.arena, &all));
    Status s = search_run(&t.request, &(SearchOptions){ &narrow, &search_planner, 3, 0, NULL },
                          &t.arena, &some);
    CHECK(s == OK || s == ERR_ARG); /* no layout has what is left of the axis */
    status_clear();
    CHECK(some.n_best <= all.n_best);
    for (int i = 0; i < some.n_best; i++) {
        const double least_s = all.best[i].price.step_s, narrow_s = some.best[i].price.step_s;
        if (narrow_s < least_s * (1 - 1e-9))
            fail_msg("question %llu: row %d takes %.6f s, with fewer values %.6f",
                     (unsigned long long)number, i + 1, least_s, narrow_s);
    }
    question_close(&t);
}

static void a_narrower_search_never_finds_a_better_layout(void **state)
{
    (void)state;
    unsigned long long first = 0, n = QUESTIONS;
    const char *drawn = getenv("DRAWN");
    if (drawn != NULL) CHECK_INT(sscanf(drawn, "%llu:%llu", &first, &n), 2);
    for (uint64_t i = first; i < first + n; i++) check_question(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_narrower_search_never_finds_a_better_layout),
    };
    return TEST_RUN(tests);
}
