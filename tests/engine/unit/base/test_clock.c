#include "harness/test.h"

#include "engine/base/clock.h"

#include <time.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(time_never_goes_back),
        TEST(a_sleep_takes_its_time),
    };
    return TEST_RUN(tests);
}
