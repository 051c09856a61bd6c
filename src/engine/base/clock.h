/* clock: seconds of a clock that never goes back, and waits by it. Its zero is arbitrary and differs between hosts.
 * The time of day is a function of its own. */
#ifndef ENGINE_BASE_CLOCK_H
#define ENGINE_BASE_CLOCK_H

#include <pthread.h>
#include <time.h>

double clock_s(void);      /* CLOCK_MONOTONIC */
double clock_date_s(void); /* since 1970, for people: it may be set back */

/* clock_cond_init makes a condition variable whose timed waits use this clock. clock_after gives the
 * deadline for pthread_cond_timedwait on it: `seconds` from now, 30 years at most. */
void clock_cond_init(pthread_cond_t *out);
struct timespec clock_after(double seconds);

#endif
