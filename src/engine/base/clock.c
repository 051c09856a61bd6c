/* clock: reads the system's monotonic clock and makes condition variables that wait by it. */
#include "engine/base/clock.h"

#include <math.h>

static const double LONGEST_S = 1e9; /* so that INFINITY fits a time_t */

/* A double keeps 0.1 microseconds for 28 years of uptime, more than any timing here needs. */
double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_date_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void clock_cond_init(pthread_cond_t *out)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(out, &attr);
    pthread_condattr_destroy(&attr);
}

/* The same clock as clock_cond_init's, or a step of the wall clock would stretch or cut a wait. */
struct timespec clock_after(double seconds)
{
    double at = clock_s() + fmin(seconds, LONGEST_S), whole = floor(at);
    return (struct timespec){ (time_t)whole, (long)(1e9 * (at - whole)) };
}
