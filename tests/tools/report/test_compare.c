/* Several runs over each other: the table, curves over steps and tokens, settings that differ, and what is no run. */
#include "pages/unit/report_run.h"
#include "report/compare.h"

/* Two runs and what is made of them. */
typedef struct Pair {
    Run run[2];
    Arena arena;
    Compare c;
} Pair;

static int pair_set_up(void **state)
{
    static Pair p;
    p = (Pair){ 0 };
    for (int i = 0; i < 2; i++) run_open(&p.run[i]);
    CHECK_OK(arena_init(&p.arena, "compare", MEM_HOST, (size_t)1 << 32));
    *state = &p;
    return 0;
}

static int pair_tear_down(void **state)
{
    Pair *p = *state;
    for (int i = 0; i < 2; i++) run_close(&p->run[i]);
    arena_free(&p->arena);
    return 0;
}

#define PAIR_TEST(name) cmocka_unit_test_setup_teardown(name, pair_set_up, pair_tear_down)

static Status load(Pair *p, bool by_tokens)
{
    char *path[2] = { p->run[0].dir, p->run[1].dir };
    for (int i = 0; i < 2; i++) run_done(&p->run[i]);
    return compare_load(path, 2, by_tokens, &p->arena, &p->c);
}

/* The text that `write` makes. */
static const char *text_of(Pair *p, Status (*write)(Text *out, const Compare *c))
{
    Text t = { 0 };
    CHECK_OK(text_init(&t, &p->arena));
    CHECK_OK(write(&t, &p->c));
    return t.data;
}

static void says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in: %.2000s", part, text);
}

/* ---- the table ---- */

/* The speeds are 10, 30, 20 and 90: the median of four is the lower one in the middle. */
static void the_table_has_last_and_best_loss_tokens_and_the_median_speed(void **state)
{
    static const double loss[] = { 4, 1.5, 3, 2.25 };
    static const int speed[] = { 10, 30, 20, 90 };
    Pair *p = *state;
    for (int i = 0; i < 4; i++)
        CHECK(fprintf(p->run[0].metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":%g,\"tokens\":1000,"
                      "\"tokens_per_s\":%d}\n",
                      i + 1, loss[i], speed[i]) > 0);
    put_run(&p->run[1], 2);
    CHECK_OK(load(p, false));
    const char *json = text_of(p, compare_json), *text = text_of(p, compare_text);
    says(json,
         "\"steps\":[4,2],\"tokens\":[4000,8192],\"last_loss\":[2.25,4],\"best_loss\":[1.5,4],"
         "\"best_step\":[2,2],\"eval_loss\":[null,3],\"tokens_per_s\":[20,8192],\"settings\":{}}");
    says(text, "\ntokens                                   4,000           8,192\nlast_loss");
    says(text, "\neval_loss                                    -               3\n");
}

/* Steps 3 and 4 of the first start do not count: neither their low loss nor their tokens. */
static void of_a_step_that_a_resumed_run_repeats_the_last_line_counts(void **state)
{
    Pair *p = *state;
    put_start(&p->run[0], "m");
    for (int i = 1; i <= 4; i++) put_step(&p->run[0], i, i < 3 ? 5 : 0.5, 100, 100);
    put_start(&p->run[0], "m");
    for (int i = 3; i <= 4; i++) put_step(&p->run[0], i, 4, 100, 100);
    put_run(&p->run[1], 1);
    CHECK_OK(load(p, true));
    says(text_of(p, compare_json), "\"steps\":[4,1],\"tokens\":[16384,4096],\"last_loss\":[4,8],"
                                   "\"best_loss\":[4,8],\"best_step\":[3,1],");
    CHECK_INT(p->c.run[0]->curve[RUN_LOSS].n, 4);
    CHECK_NEAR(p->c.run[0]->curve[RUN_LOSS].x[3], 16384, 0);
}

/* ---- curves ---- */

/* A step of the first run has 4096 tokens, of the second 1000 and 3000 in turn. An evaluation before the first step
 * is at 0 tokens, one after step 2 at those of both steps. */
static void curves_are_over_the_tokens_of_each_run(void **state)
{
    Pair *p = *state;
    put_run(&p->run[0], 3);
    for (int i = 1; i <= 4; i++)
        CHECK(fprintf(p->run[1].metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":2,\"tokens\":%d}\n", i,
                      i % 2 == 1 ? 1000 : 3000) > 0);
    put_eval(&p->run[1], 0, 3);
    put_eval(&p->run[1], 2, 2);
    CHECK_OK(load(p, true));
    static const double want[] = { 1000, 4000, 5000, 8000 };
    for (int i = 0; i < 4; i++) CHECK_NEAR(p->c.run[1]->curve[RUN_LOSS].x[i], want[i], 1e-9);
    for (int i = 0; i < 3; i++) CHECK_NEAR(p->c.run[0]->curve[RUN_LR].x[i], 4096 * (i + 1), 1e-9);
    CHECK_INT(p->c.run[1]->curve[RUN_EVAL_LOSS].n, 2);
    CHECK_NEAR(p->c.run[1]->curve[RUN_EVAL_LOSS].x[0], 0, 1e-9);
    CHECK_NEAR(p->c.run[1]->curve[RUN_EVAL_LOSS].x[1], 4000, 1e-9);
    says(text_of(p, compare_page), "data-word=\"tokens\"");
}

/* 8000 steps of 10 tokens in points of 4: point 0 is step 2.5, in the middle of tokens 10 to 40. */
static void tokens_of_a_point_of_several_steps_are_those_at_its_mean_step(void **state)
{
    Pair *p = *state;
    for (int i = 1; i <= 8000; i++)
        CHECK(fprintf(p->run[0].metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":1,\"lr\":1,\"tokens\":10}\n",
                      i) > 0);
    put_run(&p->run[1], 1);
    CHECK_OK(load(p, true));
    const Curve *c = &p->c.run[0]->curve[RUN_LR];
    CHECK_INT(c->n, 2000);
    CHECK_NEAR(c->x[0], 25, 1e-9);
    CHECK_NEAR(c->x[1999], 79985, 1e-6);
}

/* The second run is of before: it has neither norms by group nor a router. Both colours stay with their run. */
static void the_page_draws_a_curve_for_each_run_that_has_the_figure(void **state)
{
    Pair *p = *state;
    for (int i = 1; i <= 3; i++)
        CHECK(fprintf(p->run[0].metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"lr\":0.1,\"grad_norm_experts\":0.5,"
                      "\"router_z\":[1,3]}\n",
                      i) > 0);
    put_run(&p->run[1], 3);
    CHECK_OK(load(p, false));
    CHECK_NEAR(p->c.run[0]->curve[RUN_ROUTER_Z].y[1], 2, 1e-12);
    CHECK_NEAR(p->c.run[1]->curve[RUN_LOAD_MAX].y[1], 1.5, 1e-12);
    Run *r = &p->run[0];
    r->page = (char *)(uintptr_t)text_of(p, compare_page);
    check_xml(r);
    has(r, "<h3>Gradient norm: experts</h3>");
    has_not(r, "<h3>Gradient norm: head</h3>");
    has(r, "<h3>Router z (mean of layers)</h3>");
    has(r, "<h3>Training loss</h3>");
    has(r, "data-word=\"step\"");
    const char *lr = strstr(r->page, "<h3>Learning rate</h3>"),
               *loss = strstr(r->page, "<h3>Training");
    CHECK(strstr(lr, "class=\"line data s0\"") != NULL);
    const char *first = strstr(loss, "class=\"line data s");
    CHECK(first != NULL && first[18] == '1');
}

/* ---- settings ---- */

static void settings_in_which_runs_differ_are_listed(void **state)
{
    Pair *p = *state;
    put_file(&p->run[0], "config.yaml", "optimizer:\n  lr: 0.001\nrun:\n  dir: a\n");
    put_file(&p->run[1], "config.yaml", "optimizer:\n  lr: 0.002\nrun:\n  dir: b\n");
    for (int i = 0; i < 2; i++) put_run(&p->run[i], 1);
    CHECK_OK(load(p, false));
    CHECK_INT(p->c.rows, COMPARE_FIGURES + 1);
    says(text_of(p, compare_text),
         "\noptimizer.lr                             0.001           0.002\n");
    says(text_of(p, compare_json), "\"settings\":{\"optimizer.lr\":[\"0.001\",\"0.002\"]}");
    says(text_of(p, compare_page), "<td>optimizer.lr</td><td>0.001</td><td>0.002</td>");
}

/* Neither a folder without config.yaml nor one of another version hides the others' losses. */
static void a_run_whose_settings_are_unknown_differs_in_none(void **state)
{
    Pair *p = *state;
    put_file(&p->run[0], "config.yaml", "optimizer:\n  no_such_setting: 1\n");
    for (int i = 0; i < 2; i++) put_run(&p->run[i], 1);
    CHECK_OK(load(p, false));
    CHECK_INT(p->c.rows, COMPARE_FIGURES);
    CHECK_TEXT(status_message(), "");
}

/* ---- what is no run ---- */

static void the_half_line_of_a_killed_run_is_no_damage(void **state)
{
    static const char *const half[] = { "{\"kind\":\"st", "{\"kind\":\"step\",\"step\":2,\"lo",
                                        "{\"kind\":\"step\",\"memory_bytes\":{\"run\":1}",
                                        "{\"kind\":\"new\",\"step\":1.5}" };
    Pair *p = *state;
    for (int i = 0; i < 2; i++) put_run(&p->run[i], 2);
    for (int i = 0; i < 4; i++) put(&p->run[0], half[i]);
    CHECK_OK(load(p, false));
    CHECK_INT(p->c.run[0]->bad_lines, 4);
}

static void a_damaged_line_is_named(void **state)
{
    static const char *const damaged[] = {
        "rubbish",
        "[1]",
        "{\"kind\":\"step\",xx}",
        "{\"kind\":\"step\",\"step\":1}x}",
        "{\"kind\":\"step\",\"step\":-1}",
        "{\"kind\":\"eval\",\"step\":1.5}",
    };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        CHECK_INT(pair_set_up(state), 0);
        Pair *p = *state;
        for (int k = 0; k < 2; k++) put_run(&p->run[k], 2); /* five lines */
        put(&p->run[1], damaged[i]);
        CHECK_FAILS(load(p, false), ERR_FORMAT, "metrics.jsonl: line 6 is damaged");
        CHECK_INT(pair_tear_down(state), 0);
    }
}

static void a_file_and_a_folder_without_metrics_are_refused(void **state)
{
    Pair *p = *state;
    char path[FILE_PATH_MAX], *one = path;
    put_run(&p->run[0], 1);
    run_done(&p->run[0]);
    CHECK_OK(file_join(path, p->run[0].dir, "metrics.jsonl"));
    CHECK_FAILS(compare_load(&one, 1, false, &p->arena, &p->c), ERR_ARG, "is a file");
    CHECK_INT(remove(path), 0);
    one = p->run[0].dir;
    CHECK_FAILS(compare_load(&one, 1, false, &p->arena, &p->c), ERR_ARG, "has no metrics.jsonl");
    CHECK_FAILS(load(p, false), ERR_ARG, "has no metrics.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PAIR_TEST(the_table_has_last_and_best_loss_tokens_and_the_median_speed),
        PAIR_TEST(of_a_step_that_a_resumed_run_repeats_the_last_line_counts),
        PAIR_TEST(curves_are_over_the_tokens_of_each_run),
        PAIR_TEST(tokens_of_a_point_of_several_steps_are_those_at_its_mean_step),
        PAIR_TEST(the_page_draws_a_curve_for_each_run_that_has_the_figure),
        PAIR_TEST(settings_in_which_runs_differ_are_listed),
        PAIR_TEST(a_run_whose_settings_are_unknown_differs_in_none),
        PAIR_TEST(the_half_line_of_a_killed_run_is_no_damage),
        cmocka_unit_test(a_damaged_line_is_named),
        PAIR_TEST(a_file_and_a_folder_without_metrics_are_refused),
    };
    return TEST_RUN(tests);
}
