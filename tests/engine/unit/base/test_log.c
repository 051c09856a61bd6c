/* What reaches stderr, and that lines stay whole. */
#include "harness/catch.h"

#include "engine/base/log.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

static void each_level_has_its_beginning(void **state)
{
    (void)state;
    log_set_level(LOG_DEBUG);
    catch_begin();
    log_error("disk %s is full", "a");
    log_warn("slow");
    log_info("step %d", 3);
    log_debug("detail");
    catch_end();
    CHECK_TEXT(caught, "error: disk a is full\nwarning: slow\nstep 3\ndebug: detail\n");
}

static void messages_below_the_level_are_silent(void **state)
{
    (void)state;
    log_set_level(LOG_WARN);
    catch_begin();
    log_info("not this");
    log_progress(true, "nor this");
    log_warn("but this");
    catch_end();
    log_set_level(LOG_INFO);
    CHECK_TEXT(caught, "warning: but this\n");
}

static void a_message_that_ends_its_line_gets_no_second_end(void **state)
{
    (void)state;
    catch_begin();
    log_info("two\nlines\n");
    log_info("%s", "");
    catch_end();
    CHECK_TEXT(caught, "two\nlines\n\n");
}

static void a_message_that_is_too_long_is_cut_and_says_so(void **state)
{
    (void)state;
    char big[6000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    catch_begin();
    log_info("%s", big);
    log_info("next");
    catch_end();
    CHECK(strstr(caught, "xxx...\nnext\n") != NULL);
    CHECK(strlen(caught) < 4200);
}

/* Elsewhere than on a terminal the second line comes too early, and the last one always. */
static void progress_into_a_file_is_rare_lines(void **state)
{
    (void)state;
    catch_begin();
    log_progress(false, "step 1");
    log_progress(false, "step 2");
    log_progress(true, "step 3");
    catch_end();
    CHECK_TEXT(caught, "step 1\nstep 3\n");
}

static void control_characters_are_shown_and_not_sent(void **state)
{
    (void)state;
    catch_begin();
    log_info("no \033[31mfoo\a\r, but \xc3\xa4\tand \xc2\x9b");
    catch_end();
    CHECK_TEXT(caught, "no \\x1b[31mfoo\\x07\\x0d, but \xc3\xa4\tand \\xc2\\x9b\n");
}

static void *speak(void *name)
{
    for (int i = 0; i < 500; i++)
        log_info("thread %s says a sentence of some length", (char *)name);
    return NULL;
}

static void lines_of_two_threads_do_not_mix(void **state)
{
    (void)state;
    static char name[2][2] = { "a", "b" };
    pthread_t thread[2];
    catch_begin();
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, speak, name[i]);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    catch_end();
    int lines = 0;
    for (char *at = caught, *end; (end = strchr(at, '\n')) != NULL; at = end + 1, lines++) {
        *end = '\0';
        bool whole = strcmp(at, "thread a says a sentence of some length") == 0 ||
                     strcmp(at, "thread b says a sentence of some length") == 0;
        if (!whole) fail_msg("line %d is \"%s\"", lines, at);
    }
    CHECK_INT(lines, 1000);
}

static void a_failure_shows_its_source_only_when_asked(void **state)
{
    (void)state;
    CHECK_INT(FAIL(ERR_ARG, "no"), ERR_ARG);
    catch_begin();
    log_failure(LOG_WARN, "step %d: ", 3);
    CHECK_OK(log_set_level_named("debug"));
    log_failure(LOG_ERROR, "%s", "");
    CHECK_OK(log_set_level_named("info"));
    catch_end();
    CHECK(strstr(caught, "warning: step 3: no\nerror: no [bad argument]\n  at "
                         "tests/engine/unit/base/test_log.c:") == caught);
    CHECK_FAILS(log_set_level_named("loud"), ERR_ARG,
                "SWITCHYARD_LOG is \"loud\", must be error, warn, info or debug");
    CHECK_INT(log_level(), LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(progress_into_a_file_is_rare_lines),
        TEST(
            control_characters_are_shown_and_not_sent), /* first: the sink remembers the last progress */
        TEST(each_level_has_its_beginning),
        TEST(messages_below_the_level_are_silent),
        TEST(a_message_that_ends_its_line_gets_no_second_end),
        TEST(a_message_that_is_too_long_is_cut_and_says_so),
        TEST(a_failure_shows_its_source_only_when_asked),
        TEST(lines_of_two_threads_do_not_mix),
    };
    return TEST_RUN(tests);
}
