/* late_clock: for LD_PRELOAD: the time of day is LATE_CLOCK_S seconds ahead. Other clocks stay. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out)
{
    long failed = syscall(SYS_clock_gettime, clock, out);
    const char *ahead = getenv("LATE_CLOCK_S");
    if (failed == 0 && clock == CLOCK_REALTIME && ahead != NULL) out->tv_sec += atoi(ahead);
    return (int)failed;
}
