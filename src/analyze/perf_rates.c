/* perf_rates: what work comes to in a time, beside what the GPU's data sheet promises. */
#include "analyze/perf_calls.h"
#include "plan/hardware.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A slice of a GPU for a virtual machine is named after it. */
static Status of_trace(const Report *r, Hardware *h)
{
    char name[128];
    const Events *e = r->e;
    if (e->n_devices == 0) return OK;
    (void)snprintf(name, sizeof name, "%s", strings_text(&e->strings, e->devices[0].name));
    if (text_ends(name, " VF")) name[strlen(name) - 3] = '\0';
    return hardware_of_driver(name, h);
}

Status perf_peaks(const Report *r, PerfPeaks *out)
{
    Hardware h = { 0 };
    if (r->o->gpu != NULL)
        TRY(hardware_load(&h, r->arena, r->o->gpu));
    else
        TRY(of_trace(r, &h));
    *out = (PerfPeaks){ h.peak_f32, h.peak_bf16, h.peak_fp8, h.memory_gb_s };
    return OK;
}

/* What is computed element by element runs in f32. */
static double peak_of(const PerfPeaks *p, const char *spec)
{
    if (spec == NULL || text_ends(spec, "fp64") || text_ends(spec, "int8") ||
        text_ends(spec, "fp4"))
        return 0;
    if (text_starts(spec, "vector") || text_ends(spec, "fp32")) return p->f32;
    return text_ends(spec, "fp8") ? p->fp8 : p->bf16;
}

/* The roofline: the longer of the times that operations and bytes take at their peaks. */
static void beside_peaks(const PerfPeaks *p, const char *spec, double us, PerfRates *out,
                         double flops, double bytes)
{
    double peak = peak_of(p, spec);
    if (!(p->gb_s > 0) || !(bytes >= 0) || (flops > 0 && peak <= 0)) return;
    double compute = flops > 0 ? flops / (peak * 1e12) * 1e6 : 0,
           memory = bytes / (p->gb_s * 1e9) * 1e6;
    out->roofline_us = compute > memory ? compute : memory;
    out->bound = compute >= memory ? "COMPUTE_BOUND" : "MEMORY_BOUND";
    if (us > 0) out->roofline_percent = out->roofline_us / us * 100;
}

void perf_rates(const PerfCalls *p, double flops, double bytes, const char *spec, double us,
                PerfRates *out)
{
    *out = (PerfRates){ .gflops = flops / 1e9,
                        .mb = bytes / p->how.mb,
                        .intensity = bytes > 0 ? flops / bytes : (double)NAN,
                        .tb_s = us > 0 ? bytes / 1e12 / (us / 1e6) : (double)NAN,
                        .tflops = us > 0 ? flops / 1e9 / 1e3 / (us / 1e6) : (double)NAN,
                        .roofline_us = NAN,
                        .roofline_percent = NAN };
    if (p->how.peaks) beside_peaks(&p->peaks, spec, us, out, flops, bytes);
}

Status perf_known(const Report *r, const double *value, const uint32_t *row, int64_t n,
                  Summary *out)
{
    double *known = NULL;
    int64_t m = 0;
    ArenaMark mark = arena_mark(r->arena);
    TRY(ARENA_NEW(r->arena, n + 1, &known));
    for (int64_t i = 0; i < n; i++)
        if (!isnan(value[row[i]])) known[m++] = value[row[i]];
    Status s = summary_of(known, NULL, m, r->arena, out);
    arena_release(r->arena, mark);
    return s;
}
