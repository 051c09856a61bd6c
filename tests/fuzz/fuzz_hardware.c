/* fuzz_hardware: any bytes as a hardware file either fail with a message or give rates that are
 * finite, above 0 and not above the peak, and exchanges that take a finite time. */
#include "plan/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 1 << 14, ARENA_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition)
{
    if (!condition) abort();
}

static void need_rates(const Hardware *h)
{
    for (int i = 0; i < 12; i++) {
        HardwareDtype dtype = (HardwareDtype)(i % 3);
        double rate = 0;
        if (hardware_rate(h, (OpWork)(WORK_GEMM + i / 3), dtype, 4096, &rate) != OK) continue;
        need(rate > 0 && rate <= hardware_peak(h, dtype) * (1 + 1e-9));
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    Hardware h;
    if (bytes > INPUT_MAX) return 0;
    need(arena_init(&a, "fuzz", MEM_HOST, ARENA_BYTES) == OK);
    if (hardware_parse(&h, &a, "fuzz", (const char *)data, bytes) == OK) {
        need_rates(&h);
        need_times(&h);
    } else {
        need(*status_message() != '\0');
    }
    arena_free(&a);
    return 0;
}
