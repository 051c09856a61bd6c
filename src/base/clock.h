/* clock: seconds of a clock that never goes back, and waits by it. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <pthread.h>
#include <time.h>

double clock_s(void); /* CLOCK_MONOTONIC */

/* A condition variable whose waits end by this clock, and so many seconds from now (30 years at
 * most) for pthread_cond_timedwait on it. */
void clock_cond_init(pthread_cond_t *out);
struct timespec clock_after(double seconds);

#endif
