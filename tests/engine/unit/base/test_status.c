#include "harness/test.h"

#include "engine/base/status.h"

#include <pthread.h>

static Status inner(void) { return FAIL(ERR_SHAPE, "w has %d columns, x has %d", 3, 2); }

static Status outer(void)
{
    TRY(inner());
    return OK;
}

static Status untouched(void)
{
    TRY(OK);
    return OK;
}

static void a_failure_is_one_sentence_with_its_code(void **state)
{
    (void)state;
    CHECK_FAILS(inner(), ERR_SHAPE, "w has 3 columns, x has 2 [bad shape]\n  at ");
}

static void every_try_adds_one_frame(void **state)
{
    (void)state;
    CHECK_INT(outer(), ERR_SHAPE);
    int frames = 0;
    for (const char *at = status_message(); (at = strstr(at, "  at ")) != NULL; at++) frames++;
    CHECK_INT(frames, 2);
    CHECK(strstr(status_message(), "test_status.c:7\n") != NULL);
}

static void try_of_ok_goes_on_and_records_nothing(void **state)
{
    (void)state;
    status_clear();
    CHECK_OK(untouched());
    CHECK_TEXT(status_message(), "");
}

static void a_new_failure_replaces_the_old_one(void **state)
{
    (void)state;
    CHECK_INT(FAIL(ERR_IO, "first"), ERR_IO);
    CHECK_INT(FAIL(ERR_ARG, "second"), ERR_ARG);
    CHECK(strstr(status_message(), "first") == NULL);
}

static void a_failure_may_wrap_the_one_before(void **state)
{
    (void)state;
    CHECK_INT(FAIL(ERR_IO, "no such file"), ERR_IO);
    CHECK_FAILS(FAIL(ERR_ARG, "config: %s", status_message()), ERR_ARG, "config: no such file");
}

static void the_sentence_comes_without_code_and_frames(void **state)
{
    (void)state;
    char sentence[128];
    CHECK_INT(outer(), ERR_SHAPE);
    status_sentence(sentence, sizeof sentence);
    CHECK_TEXT(sentence, "w has 3 columns, x has 2");
}

static void the_head_ends_before_the_frames(void **state)
{
    (void)state;
    CHECK_INT(outer(), ERR_SHAPE);
    CHECK_INT(status_head_bytes(), strlen("w has 3 columns, x has 2 [bad shape]\n"));
    status_clear();
    CHECK_INT(status_head_bytes(), 0);
}

static void brackets_inside_the_sentence_stay(void **state)
{
    (void)state;
    char sentence[128];
    CHECK_INT(FAIL(ERR_ARG, "slot [3] of [0, 2) is taken"), ERR_ARG);
    status_sentence(sentence, sizeof sentence);
    CHECK_TEXT(sentence, "slot [3] of [0, 2) is taken");
    CHECK_INT(FAIL(ERR_ARG, "a pattern ends:\n  [a [b\n     ^"), ERR_ARG);
    status_sentence(sentence, sizeof sentence);
    CHECK_TEXT(sentence, "a pattern ends:\n  [a [b\n     ^");
}

static void a_long_sentence_is_cut_to_the_room_given(void **state)
{
    (void)state;
    char sentence[9];
    memset(sentence, '#', sizeof sentence);
    CHECK_INT(FAIL(ERR_ARG, "0123456789"), ERR_ARG);
    status_sentence(sentence, 8);
    CHECK_TEXT(sentence, "0123456");
    CHECK(sentence[8] == '#');
}

static void no_failure_has_an_empty_sentence(void **state)
{
    (void)state;
    char sentence[8] = "#######";
    status_clear();
    status_sentence(sentence, sizeof sentence);
    CHECK_TEXT(sentence, "");
}

static void a_record_that_is_full_keeps_its_beginning(void **state)
{
    (void)state;
    CHECK_INT(FAIL(ERR_ARG, "the beginning"), ERR_ARG);
    for (int i = 0; i < 1000; i++) CHECK_INT(status_frame("some/file.c", i, ERR_ARG), ERR_ARG);
    CHECK(strncmp(status_message(), "the beginning [bad argument]\n", 29) == 0);
    CHECK(strlen(status_message()) < 4096);
}

static void a_sentence_longer_than_the_record_is_cut(void **state)
{
    (void)state;
    char big[8000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    CHECK_INT(FAIL(ERR_DISK, "%s", big), ERR_DISK);
    CHECK(strstr(status_message(), "xx [cannot write]\n") != NULL);
}

static void *fail_elsewhere(void *out)
{
    Status s = FAIL(ERR_COMM, "from the other thread");
    memcpy(out, status_message(), strlen(status_message()) + 1);
    return s == ERR_COMM ? out : NULL;
}

static void the_record_belongs_to_the_thread(void **state)
{
    (void)state;
    char text[4096];
    pthread_t thread;
    CHECK_INT(FAIL(ERR_IO, "from this thread"), ERR_IO);
    CHECK_INT(pthread_create(&thread, NULL, fail_elsewhere, text), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK(strstr(status_message(), "from this thread") != NULL);
}

static void another_threads_failure_can_be_adopted(void **state)
{
    (void)state;
    char text[4096];
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, fail_elsewhere, text), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(status_adopt(ERR_COMM, text), ERR_COMM);
    CHECK_TEXT(status_message(), text);
}

static void exit_codes_tell_bad_input_from_a_failed_run(void **state)
{
    (void)state;
    static const struct {
        Status code;
        int exit_code;
    } WANT[] = { { OK, 0 },
                 { ERR_ARG, 2 },
                 { ERR_SHAPE, 2 },
                 { ERR_MEMORY, 2 },
                 { ERR_IO, 2 },
                 { ERR_FORMAT, 2 },
                 { ERR_DISK, 3 },
                 { ERR_DEVICE, 3 },
                 { ERR_COMM, 3 },
                 { ERR_UNSUPPORTED, 2 },
                 { ERR_FIT, 3 },
                 { ERR_NUMERIC, 3 },
                 { ERR_INTERRUPTED, 130 },
                 { ERR_CHANGED, 3 },
                 { ERR_CLOSED, 0 } };
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++) {
        CHECK_INT(status_exit_code(WANT[i].code), WANT[i].exit_code);
    }
}

static void every_code_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (int a = OK; a <= ERR_CLOSED; a++) {
        CHECK(strcmp(status_name((Status)a), "unknown") != 0);
        for (int b = OK; b < a; b++) {
            CHECK(strcmp(status_name((Status)a), status_name((Status)b)) != 0);
        }
    }
}

/* Only the code is kept, and what was recorded before stays. */
static void muted_failures_have_a_code_and_no_text(void **state)
{
    (void)state;
    (void)FAIL(ERR_IO, "before");
    status_mute(true);
    CHECK_INT(FAIL(ERR_ARG, "%d is not looked at", 3), ERR_ARG);
    status_mute(false);
    CHECK(strncmp(status_message(), "before [input/output]", 21) == 0);
    CHECK_INT(FAIL(ERR_ARG, "after"), ERR_ARG);
    CHECK(strncmp(status_message(), "after [bad argument]", 20) == 0);
    status_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_failure_is_one_sentence_with_its_code),
        TEST(every_try_adds_one_frame),
        TEST(try_of_ok_goes_on_and_records_nothing),
        TEST(a_new_failure_replaces_the_old_one),
        TEST(a_failure_may_wrap_the_one_before),
        TEST(the_sentence_comes_without_code_and_frames),
        TEST(the_head_ends_before_the_frames),
        TEST(brackets_inside_the_sentence_stay),
        TEST(a_long_sentence_is_cut_to_the_room_given),
        TEST(no_failure_has_an_empty_sentence),
        TEST(a_record_that_is_full_keeps_its_beginning),
        TEST(a_sentence_longer_than_the_record_is_cut),
        TEST(the_record_belongs_to_the_thread),
        TEST(another_threads_failure_can_be_adopted),
        TEST(exit_codes_tell_bad_input_from_a_failed_run),
        TEST(every_code_has_a_name_of_its_own),
        TEST(muted_failures_have_a_code_and_no_text),
    };
    return TEST_RUN(tests);
}
