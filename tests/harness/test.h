/*
 * test: what cmocka lacks. A failed CHECK prints the expression and the values and fails the test.
 *
 * A test file is a list of functions named as sentences, and
 *     int main(void)
 *     {
 *         const struct CMUnitTest tests[] = { TEST(name), ... };
 *         return TEST_RUN(tests);
 *     }
 * TEST_FILTER=PATTERN in the environment runs those whose names match, with * and ?.
 */
#ifndef TESTS_HARNESS_TEST_H
#define TESTS_HARNESS_TEST_H

#include "engine/base/status.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

__attribute__((constructor)) static void test_filter(void)
{
    const char *pattern = getenv("TEST_FILTER");
    if (pattern != NULL) cmocka_set_test_filter(pattern);
}

/* Skips a test of what an emulator does otherwise than a kernel (EMULATOR of tools/run_tests). */
static inline void skip_under_emulator(const char *what)
{
    if (getenv("EMULATOR") == NULL) return;
    print_message("skip: under an emulator %s\n", what);
    skip();
}

/* How many times, or every which case: a sanitizer watches how memory and threads are used, and that
 * is alike from case to case. make test-long has all of them there too. */
#ifdef SHORT_RUNS
#define RUNS(all, short) (short)
#else
#define RUNS(all, short) (all)
#endif

#define TEST(name)      cmocka_unit_test(name)
#define TEST_RUN(tests) cmocka_run_group_tests(tests, NULL, NULL)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) fail_msg("%s", #cond);                                                        \
    } while (0)

#define CHECK_OK(expr)                                                                             \
    do {                                                                                           \
        Status status_ = (expr);                                                                   \
        if (status_ != OK) fail_msg("%s: %s", #expr, status_message());                            \
    } while (0)

/* The call fails with this code, and its message contains `part`. */
#define CHECK_FAILS(expr, code, part)                                                              \
    do {                                                                                           \
        Status status_ = (expr);                                                                   \
        if (status_ != (code)) {                                                                   \
            fail_msg("%s is %s, wanted %s", #expr, status_name(status_), status_name(code));       \
        }                                                                                          \
        if (strstr(status_message(), (part)) == NULL) {                                            \
            fail_msg("%s says \"%s\", wanted \"%s\"", #expr, status_message(), (part));            \
        }                                                                                          \
    } while (0)

#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        long long got_ = (long long)(got), want_ = (long long)(want);                              \
        if (got_ != want_) fail_msg("%s is %lld, want %lld", #got, got_, want_);                   \
    } while (0)

/* Written so that NaN fails: !(err <= tol), never err > tol. */
#define CHECK_NEAR(got, want, tol)                                                                 \
    do {                                                                                           \
        double got_ = (double)(got), want_ = (double)(want);                                       \
        if (!(fabs(got_ - want_) <= (double)(tol))) {                                              \
            fail_msg("%s is %.9g, want %.9g within %.3g", #got, got_, want_, (double)(tol));       \
        }                                                                                          \
    } while (0)

#define CHECK_TEXT(got, want)                                                                      \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        if (strcmp(got_, want_) != 0) fail_msg("%s is \"%s\", want \"%s\"", #got, got_, want_);    \
    } while (0)

#endif
