/* fuzz_hardware: any bytes as a hardware file either fail with a message or give rates that are
 * finite, above 0 and not above the peak, and exchanges that take a finite time. */
#include "harness/fuzz.h"
#include "planner/price/collective.h"

#include <math.h>

static void need_rates(const Hardware *h)
{
    for (int i = 0; i < 12; i++) {
        HardwareDtype dtype = (HardwareDtype)(i % 3);
        const OpWork work = (OpWork)(WORK_GEMM + i / 3);
        double rate = 0, peak = hardware_peak(h, dtype);
        /* products of two types are f32's where the file has no curve of them */
        if (work == WORK_GEMM_MIXED) peak = fmax(peak, hardware_peak(h, HARDWARE_F32));
        if (hardware_rate(h, work, dtype, 4096, &rate) != OK) continue;
        need(rate > 0 && rate <= peak * (1 + 1e-9));
    }
}

static void need_times(const Hardware *h)
{
    int64_t local = h->scale_up_gpus < 8 ? 1 : 8;
    const CollectiveGroup groups[] = { { local, local, 0 }, { 4 * local, local, 100000 } };
    for (int i = 0; i < 8; i++) {
        CollectiveCost c = { 0 };
        need(collective_cost(h, (CollectiveKind)(i % 4), &groups[i / 4], 1e6, &c) == OK);
        need(isfinite(c.s) && c.s >= c.latency_s && c.latency_s >= 0);
    }
}

static Status look(Fuzz *f)
{
    Hardware h;
    TRY(hardware_parse(&h, f->a, "fuzz", (const char *)f->data, f->bytes));
    need_rates(&h);
    need_times(&h);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
