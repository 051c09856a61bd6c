/* Progress: silent at first, then a line with share, amount and time; Ctrl-C ends the loop. */
#include "harness/catch.h"

#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/host/progress.h"

#include <stdbool.h>

static void a_short_command_shows_nothing(void **state)
{
    (void)state;
    Progress p = { .what = "short", .total = 10 };
    catch_begin();
    progress_begin(&p);
    p.begin_s -= 1.5;
    for (int i = 0; i < 10; i++) CHECK_OK(progress_add(&p, 1));
    progress_end(&p);
    CHECK_OK(progress_add(NULL, 1));
    catch_end();
    CHECK_TEXT(caught, "");
}

static void quiet_shows_nothing_either(void **state)
{
    (void)state;
    Progress p = { .what = "quiet", .total = 10 };
    log_set_level(LOG_WARN);
    catch_begin();
    progress_begin(&p);
    p.begin_s -= 20;
    CHECK_OK(progress_add(&p, 5));
    progress_end(&p);
    catch_end();
    log_set_level(LOG_INFO);
    CHECK_TEXT(caught, "");
}

/* stderr is a file here: no bar, a line at once and one at the end, none between. */
static void a_long_one_says_share_amount_and_times(void **state)
{
    (void)state;
    Progress p = { .what = "look", .unit = "files", .total = 2 };
    catch_begin();
    progress_begin(&p);
    CHECK_OK(progress_add(&p, 2));
    p.what = "prepare", p.name = "web", p.unit = "tensors", p.total = 4000;
    progress_next(&p); /* the time left is that of the stage alone */
    p.begin_s -= 30, p.stage_s -= 20;
    CHECK_OK(progress_to(&p, 1000));
    CHECK_OK(progress_add(&p, 1));
    CHECK_OK(progress_to(&p, 4000));
    progress_end(&p);
    catch_end();
    CHECK_TEXT(caught, " 25 %, 1,000 of 4,000 tensors, 30 s, 60 s left: prepare web\n"
                       "100 %, 4,000 of 4,000 tensors, 30 s: prepare web\n");
}

static void bytes_of_an_unknown_total_have_no_share(void **state)
{
    (void)state;
    Progress p = { .what = "read" };
    catch_begin();
    progress_begin(&p);
    p.begin_s -= 30;
    CHECK_OK(progress_to(&p, 3 << 20));
    progress_end(&p);
    catch_end();
    CHECK(strstr(caught, "3.00 MiB, 30 s: read\n") != NULL);
}

/* Last: the flag stays up. */
static void a_signal_ends_the_loop_and_says_what_is_left(void **state)
{
    (void)state;
    Progress p = { .what = "write", .left = "nothing was written" }, other = { .what = "no end" };
    progress_begin(&p);
    progress_begin(&other);
    CHECK_OK(progress_add(&p, 1));
    CHECK_OK(interrupt_check("all is well"));
    CHECK_INT(raise(SIGTERM), 0);
    CHECK_INT(interrupt_signal(), SIGTERM);
    CHECK_INT(*interrupt_flag(), SIGTERM);
    CHECK_FAILS(progress_add(&p, 1), ERR_INTERRUPTED, "interrupted: nothing was written");
    CHECK_OK(progress_add(&other, 1));
    CHECK_INT(status_exit_code(ERR_INTERRUPTED), 130);
    struct sigaction second;
    CHECK_INT(sigaction(SIGTERM, NULL, &second), 0);
    CHECK(second.sa_handler == SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_short_command_shows_nothing),
        TEST(quiet_shows_nothing_either),
        TEST(a_long_one_says_share_amount_and_times),
        TEST(bytes_of_an_unknown_total_have_no_share),
        TEST(a_signal_ends_the_loop_and_says_what_is_left),
    };
    return TEST_RUN(tests);
}
