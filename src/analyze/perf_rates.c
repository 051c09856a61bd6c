/* perf_rates: what work comes to in a time, and beside what a GPU could do. */
#include "analyze/perf_calls.h"

#include <math.h>

void perf_rates(const Report *r, double flops, double bytes, const char *spec, double us,
                PerfRates *out)
{
    (void)spec;
    const double mb = r->o->compat ? 1048576 : 1e6;
    *out = (PerfRates){ .gflops = flops / 1e9,
                        .mb = bytes / mb,
                        .intensity = bytes > 0 ? flops / bytes : (double)NAN,
                        .tb_s = us > 0 ? bytes / 1e12 / (us / 1e6) : (double)NAN,
                        .tflops = us > 0 ? flops / 1e9 / 1e3 / (us / 1e6) : (double)NAN,
                        .roofline_us = NAN,
                        .roofline_percent = NAN };
}
