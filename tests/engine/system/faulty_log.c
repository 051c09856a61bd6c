/* faulty_log: for LD_PRELOAD: one in FAULTY_LOG calls of log has another last bit, as of a faulty core. */
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

double log(double x)
{
    static double (*real)(double);
    static atomic_long calls;
    const char *every = getenv("FAULTY_LOG");
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "log");
    double y = real(x);
    if (every == NULL || atomic_fetch_add(&calls, 1) % atol(every) != 0) return y;
    unsigned long bits;
    memcpy(&bits, &y, sizeof bits);
    bits ^= 1ul << 40;
    memcpy(&y, &bits, sizeof y);
    return y;
}
