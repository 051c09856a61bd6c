/* The table of settings as people read it: help and levels. */
#include "harness/arena.h"

#include "engine/base/file.h"
#include "engine/config/config.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void help_names_every_row(void **state)
{
    (void)state;
    Text t;
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(config_help(false, &t));
    CHECK(strstr(t.data, "  plan.") == NULL && strstr(t.data, "  search.") == NULL);
    CHECK_OK(config_help(true, &t));
    for (int i = 0; i < config_row_count; i++) {
        if (strstr(t.data, config_rows[i].name) == NULL) fail_msg("%s", config_rows[i].name);
    }
}

/* 25 words a sentence; a colon or semicolon ends one, too. */
static void helps_are_short(void **state)
{
    (void)state;
    for (int i = 0; i < config_row_count; i++) {
        const char *help = config_rows[i].help;
        int words = 1;
        if (strlen(help) > 300) fail_msg("%s: over 300 characters", config_rows[i].name);
        for (const char *s = help; *s != '\0'; s++) {
            const bool ends = strchr(".:;", *s) != NULL && s[1] == ' ';
            words = ends ? 0 : words + (*s == ' ');
            if (words > 25) fail_msg("%s: a sentence of over 25 words", config_rows[i].name);
        }
    }
}

static void few_settings_are_needed_first(void **state)
{
    (void)state;
    int n[CONFIG_PLAN + 1] = { 0 };
    for (int i = 0; i < config_row_count; i++) n[config_rows[i].level]++;
    CHECK(config_row_count - n[CONFIG_PLAN] <= 174);
    CHECK(n[CONFIG_FIRST] >= 8 && n[CONFIG_FIRST] <= 12);
    CHECK(n[CONFIG_COMMON] >= 30 && n[CONFIG_COMMON] <= 45);
}

/* So a section stands whole in a run's config.yaml, or not at all; and no training changes with an argument. */
static void arguments_of_plan_have_sections_of_their_own(void **state)
{
    (void)state;
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i], *before = i == 0 ? row : row - 1;
        const bool plans = row->level == CONFIG_PLAN;
        CHECK(!plans || row->mark == CONFIG_FREE);
        if (strncmp(row->name, before->name, strcspn(row->name, ".") + 1) == 0)
            CHECK(plans == (before->level == CONFIG_PLAN));
    }
}

/* A training takes no argument of plan. It skips those that an older version wrote into a config.yaml. */
static void a_training_has_no_argument_of_plan(void **state)
{
    (void)state;
    static const char few[] = "plan: {margin: 0.1}\nsearch: {pp: [1], vpp: [], ep: [], cp: [], "
                              "zero: [], tp: [], schedule: [], shard: [], micro_batch: [], "
                              "recompute: [], compute: []}\n";
    static const char all[] =
        "run: {seed: 5}\nplan: {margin: 0.1, imbalance: 2}\nsearch: {pp: [1], "
        "vpp: [], ep: [], cp: [], zero: [], schedule: [], shard: [], "
        "micro_batch: [], recompute: [], compute: [], buffers: []}\n";
    char path[64];
    const char *const set[] = { "plan.imbalance=2", "search.pp=[2]" };
    Config c;
    CHECK_OK(config_load(&c, &arena, NULL, set, 2));
    CHECK_NEAR(c.plan_imbalance, 2, 0);
    for (int i = 0; i < 2; i++)
        CHECK_FAILS(config_load_as(&c, &arena, CONFIG_RUN | i, NULL, set + i, 1), ERR_ARG,
                    i == 0
                        ? "override plan.imbalance=2: plan.imbalance is an argument of `switchyard "
                          "plan`, not of a training run"
                        : "search.pp is an argument of `switchyard plan`");
    snprintf(path, sizeof path, "/tmp/switchyard_arguments_%ld.yaml", (long)getpid());
    CHECK_OK(file_write_whole(path, few, strlen(few)));
    CHECK_FAILS(config_load_as(&c, &arena, CONFIG_RUN, path, NULL, 0), ERR_ARG,
                "yaml:1:8: plan.margin is an argument of `switchyard plan`");
    CHECK_OK(config_load(&c, &arena, path, NULL, 0));
    CHECK_NEAR(c.plan_margin, 0.1, 0);
    CHECK_OK(file_write_whole(path, all, strlen(all)));
    CHECK_OK(config_load_as(&c, &arena, CONFIG_RUN, path, NULL, 0));
    CHECK_INT(c.run_seed, 5);
    CHECK_NEAR(c.plan_margin, 0.05, 0);
    CHECK_INT(c.search_pp.n, 0);
    unlink(path);
    CHECK_OK(config_load_as(&c, &arena, CONFIG_RUN | CONFIG_SMALL,
                            "tests/golden/settings-0.9.0.yaml", NULL, 0));
}

/* Help and page name each setting once, under its level. */
static void settings_stand_under_their_level(void **state)
{
    (void)state;
    static const char *const title[] = { "First", "Common", "Expert" };
    Text help;
    CHECK_OK(text_init(&help, &arena));
    CHECK_OK(config_help(false, &help));
    for (int i = 0; i < config_row_count; i++) {
        char line[80], heading[80];
        if (config_rows[i].level == CONFIG_PLAN) continue;
        (void)snprintf(line, sizeof line, "\n  %s ", config_rows[i].name);
        const char *at = strstr(help.data, line);
        CHECK(at != NULL && strstr(at + 1, line) == NULL);
        for (int level = 0; level < CONFIG_PLAN; level++) {
            (void)snprintf(heading, sizeof heading, "\n%s settings. ", title[level]);
            const char *begins = strstr(help.data, heading);
            CHECK((at > begins) == (level <= (int)config_rows[i].level));
        }
    }
}

/* The rule is free where no bias moves. */
static void quantile_balancing_is_refused_where_tokens_do_not_choose_freely(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "moe.groups=4",
          "choose freely: moe.groups 4 must be 1, moe.top_k 2 below moe.experts 8" },
        { "moe.forced_balance=true", "moe.top_k 2 below moe.experts 8, moe.forced_balance false" },
        { "moe.top_k=8", "moe.top_k 8 below moe.experts 8" },
    };
    Config c;
    for (int i = 0; i < 3; i++) {
        const char *set[] = { "moe.bias_rule=quantile", cases[i][0], "moe.bias_rate=0.5" };
        CHECK_OK(config_load(&c, &arena, NULL, set, 2));
        CHECK_FAILS(config_load(&c, &arena, NULL, set, 3), ERR_ARG, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(help_names_every_row),
        TEST(helps_are_short),
        TEST(few_settings_are_needed_first),
        TEST(arguments_of_plan_have_sections_of_their_own),
        TEST(a_training_has_no_argument_of_plan),
        TEST(settings_stand_under_their_level),
        TEST(quantile_balancing_is_refused_where_tokens_do_not_choose_freely),
    };
    return ARENA_RUN(tests);
}
