/* late_clock: for LD_PRELOAD: the time of day is LATE_CLOCK_MS milliseconds ahead. Other clocks stay. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *out)
{
    long failed = syscall(SYS_clock_gettime, clock, out);
    const char *ahead = getenv("LATE_CLOCK_MS");
    if (failed != 0 || clock != CLOCK_REALTIME || ahead == NULL) return (int)failed;
    long ns = out->tv_nsec + atol(ahead) % 1000 * 1000000;
    out->tv_sec += atol(ahead) / 1000 + ns / 1000000000;
    out->tv_nsec = ns % 1000000000;
    return 0;
}
