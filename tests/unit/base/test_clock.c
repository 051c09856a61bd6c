#include "harness/test.h"

#include "base/arena.h"
#include "base/clock.h"

#include <time.h>

static const size_t BLOCK = (size_t)32 << 20;

static void time_never_goes_back(void **state)
{
    (void)state;
    double before = clock_s();
    for (int i = 0; i < 10000; i++) {
        double now = clock_s();
        CHECK(now >= before);
        before = now;
    }
}

static void a_sleep_takes_its_time(void **state)
{
    (void)state;
    double before = clock_s();
    nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    double slept = clock_s() - before;
    CHECK(slept >= 0.02 && slept < 10);
}

static void written_memory_shows_in_both_figures(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    size_t now = process_now_bytes();
    CHECK(now > 0);
    CHECK_OK(arena_init(&a, "test", MEM_HOST, BLOCK));
    CHECK_OK(arena_alloc(&a, BLOCK, &at));
    memset(at, 1, BLOCK);
    CHECK(process_now_bytes() >= now + BLOCK * 9 / 10);
    CHECK(process_peak_bytes() >= now + BLOCK * 9 / 10);
    arena_free(&a);
}

static void the_peak_stays_when_memory_goes_back(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, BLOCK));
    CHECK_OK(arena_alloc(&a, BLOCK, &at));
    memset(at, 1, BLOCK);
    size_t during = process_now_bytes();
    arena_free(&a);
    CHECK(process_now_bytes() <= during - BLOCK * 9 / 10);
    CHECK(process_peak_bytes() >= during * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(time_never_goes_back),
        TEST(a_sleep_takes_its_time),
        TEST(written_memory_shows_in_both_figures),
        TEST(the_peak_stays_when_memory_goes_back),
    };
    return TEST_RUN(tests);
}
