/* The table of settings as people read it: help, levels, docs/reference/config.md. */
#include "harness/arena.h"

#include "base/file.h"
#include "config/config.h"

#include <stdio.h>
#include <string.h>

static void help_names_every_row(void **state)
{
    (void)state;
    Text t;
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(config_help(&t));
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
    int n[CONFIG_LEVELS] = { 0 };
    for (int i = 0; i < config_row_count; i++) n[config_rows[i].level]++;
    CHECK(n[CONFIG_FIRST] >= 8 && n[CONFIG_FIRST] <= 12);
    CHECK(n[CONFIG_COMMON] >= 30 && n[CONFIG_COMMON] <= 45);
}

/* Help and page name each setting once, under its level. */
static void settings_stand_under_their_level(void **state)
{
    (void)state;
    static const char *const title[] = { "First", "Common", "Expert" };
    Text help;
    CHECK_OK(text_init(&help, &arena));
    CHECK_OK(config_help(&help));
    for (int i = 0; i < config_row_count; i++) {
        char line[80], heading[80];
        (void)snprintf(line, sizeof line, "\n  %s ", config_rows[i].name);
        const char *at = strstr(help.data, line);
        CHECK(at != NULL && strstr(at + 1, line) == NULL);
        for (int level = 0; level < CONFIG_LEVELS; level++) {
            (void)snprintf(heading, sizeof heading, "\n%s settings. ", title[level]);
            const char *begins = strstr(help.data, heading);
            CHECK((at > begins) == (level <= (int)config_rows[i].level));
        }
    }
}

static void docs_reference_config_md_is_current_else_run_make_docs(void **state)
{
    (void)state;
    char *have = NULL;
    size_t bytes = 0;
    Text want;
    CHECK_OK(file_read_all("docs/reference/config.md", &arena, &have, &bytes));
    CHECK_OK(text_init(&want, &arena));
    CHECK_OK(config_markdown(&want));
    CHECK(strcmp(have, want.data) == 0);
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
        TEST(settings_stand_under_their_level),
        TEST(docs_reference_config_md_is_current_else_run_make_docs),
        TEST(quantile_balancing_is_refused_where_tokens_do_not_choose_freely),
    };
    return ARENA_RUN(tests);
}
