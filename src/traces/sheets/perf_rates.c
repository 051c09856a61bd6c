/*
 * perf_rates: operations and bytes a second of a call, and the least time by the GPU's data sheet,
 * which is the roofline (Williams et al., "Roofline: an insightful visual performance model", CACM
 * 2009):
 *
 *     least time = max(FLOPs / peak FLOP/s, bytes / memory bandwidth)
 *
 * The work comes from perf.h, the data sheet from hardware/hardware.h. Units: us, TFLOP/s, TB/s.
 */
#include "hardware/hardware.h"
#include "traces/sheets/perf_calls.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Finds the data sheet of the trace's first GPU. A slice of a GPU for a virtual machine (" VF") has
 * the whole GPU's data sheet. */
static Status find_gpu(const Report *r, Hardware *h)
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
        TRY(find_gpu(r, &h));
    *out = (PerfPeaks){ h.peak_f32, h.peak_bf16, h.peak_fp8, h.memory_gb_s };
    return OK;
}

/* The peak in TFLOP/s of a Compute Spec; 0: the data sheet does not have it. What is computed
 * element by element runs in f32. */
static double peak_of(const PerfPeaks *p, const char *spec)
{
    if (spec == NULL || text_ends(spec, "fp64") || text_ends(spec, "int8") ||
        text_ends(spec, "fp4"))
        return 0;
    if (text_starts(spec, "vector") || text_ends(spec, "fp32")) return p->f32;
    return text_ends(spec, "fp8") ? p->fp8 : p->bf16;
}

/* The longer of the times in us that operations and bytes take at their peaks; NaN: not known. */
static double roofline_us(const PerfCalls *p, double flops, double bytes, const char *spec,
                          const char **bound)
{
    double peak = peak_of(&p->peaks, spec);
    *bound = NULL;
    if (!p->how.peaks || !(p->peaks.gb_s > 0) || !(bytes >= 0) || (flops > 0 && peak <= 0))
        return NAN;
    double compute = flops > 0 ? flops / (peak * 1e12) * 1e6 : 0,
           memory = bytes / (p->peaks.gb_s * 1e9) * 1e6;
    *bound = compute >= memory ? "COMPUTE_BOUND" : "MEMORY_BOUND";
    return compute > memory ? compute : memory;
}

void perf_put_rates(const PerfCalls *p, double flops, double bytes, const char *spec, double us,
                    Table *rows)
{
    const char *bound = NULL;
    const double least = roofline_us(p, flops, bytes, spec, &bound);
    const double tb = us > 0 ? bytes / 1e12 / (us / 1e6) : (double)NAN;
    const double tflops = us > 0 ? flops / 1e9 / 1e3 / (us / 1e6) : (double)NAN;
    TABLE_MORE(rows, cell_number(tb), cell_number(tflops),
               cell_number(us > 0 ? least / us * 100 : (double)NAN), cell_number(us));
}

void perf_put_work(const PerfCalls *p, double flops, double bytes, const char *spec, Table *out)
{
    const char *bound = NULL;
    const double least = roofline_us(p, flops, bytes, spec, &bound);
    TABLE_MORE(out, cell_number(flops / 1e9), cell_number(bytes / p->how.mb),
               cell_number(bytes > 0 ? flops / bytes : (double)NAN), cell_number(least),
               cell_text(bound), cell_text(spec));
}
