#include "bench/bench.h"

#include "base/clock.h"
#include "train/train.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 3 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the timed steps, in seconds: as the host sees them, and on a GPU from the first launch's begin
 * to the last one's end. */
typedef struct StepTimes {
    double *step, *device;
    int64_t n;
} StepTimes;

static double part_of(const double *sorted, int64_t n, double share)
{
    int64_t i = (int64_t)((double)n * share);
    return sorted[i < n ? i : n - 1];
}

static Status machine(const BenchModel *m, char out[], size_t out_bytes)
{
    const Config *c = m->config;
    CudaInfo gpu;
    if (!m->plan.on_gpu) {
        (void)snprintf(out, out_bytes, "%d threads", train_threads(c));
        return OK;
    }
    TRY(cuda_info((int)c->run_gpu, &gpu));
    (void)snprintf(out, out_bytes, "%s", gpu.name);
    return OK;
}

static Status report_gpu(const BenchModel *m, const StepTimes *t, size_t used_bytes, Text *out)
{
    char bytes[32], planned[32];
    if (!m->plan.on_gpu) return OK;
    TRY(text_printf(out, "  device       %.1f ms p50, %.1f ms p99; %" PRId64 " launches a step\n",
                    part_of(t->device, t->n, 0.5) * 1e3, part_of(t->device, t->n, 0.99) * 1e3,
                    m->result.launches));
    return text_printf(out, "  GPU in use   %s, %s planned (%zu bytes)\n",
                       text_bytes(bytes, (double)used_bytes),
                       text_bytes(planned, (double)m->gpu.total_bytes), used_bytes);
}

static Status report(BenchModel *m, const StepTimes *t, Text *out)
{
    const Config *c = m->config;
    BenchRoof roof;
    char bytes[32], tokens_text[32], name[CUDA_NAME_MAX];
    size_t peak_bytes = process_peak_bytes(), used_bytes = 0; /* before the roof takes its own */
    if (m->plan.on_gpu) TRY(cuda_used_bytes(&m->engine.ex, &used_bytes));
    TRY(machine(m, name, sizeof name));
    TRY(bench_roof(c, &roof));
    double p50 = part_of(t->step, t->n, 0.5), p99 = part_of(t->step, t->n, 0.99);
    double tokens = (double)(c->train_batch * c->data_sequence);
    size_t total = 0;
    for (int i = 0; i < ENGINE_ARENAS; i++) total += m->plan.bytes[i];
    TRY(text_printf(out, "%s, %s, %s, %" PRId64 " steps of %.0f tokens\n", c->model_name,
                    c->run_compute == COMPUTE_BF16 ? "bf16" : "f32", name, t->n, tokens));
    TRY(text_printf(out, "  tokens/s     %s (median)\n",
                    text_thousands(tokens_text, (int64_t)(tokens / p50))));
    TRY(text_printf(out, "  step         %.1f ms p50, %.1f ms p99 (p99/p50 %.3f)\n", p50 * 1e3,
                    p99 * 1e3, p99 / p50));
    TRY(text_printf(out, "  FLOP/s       %.1f GFLOP/s, %.1f %% of the measured %.1f\n",
                    m->plan.step.flops / p50 / 1e9, 100 * m->plan.step.flops / p50 / roof.flops,
                    roof.flops / 1e9));
    TRY(report_gpu(m, t, used_bytes, out));
    TRY(text_printf(out, "  arenas       %s\n", text_bytes(bytes, (double)total)));
    return text_printf(out, "  process      %s at its peak\n",
                       text_bytes(bytes, (double)peak_bytes));
}

static Status run(BenchModel *m, int64_t steps, Text *out)
{
    void *step = NULL, *device = NULL;
    double warm = 0;
    TRY(arena_alloc(&m->arena, (size_t)steps * sizeof(double), &step));
    TRY(arena_alloc(&m->arena, (size_t)steps * sizeof(double), &device));
    StepTimes t = { step, device, steps };
    for (int i = 0; i < WARM_UP; i++) TRY(bench_run_step(m, &warm));
    for (int64_t i = 0; i < steps; i++) {
        TRY(bench_run_step(m, &t.step[i]));
        t.device[i] = m->result.device_s;
    }
    qsort(t.step, (size_t)steps, sizeof *t.step, by_size);
    qsort(t.device, (size_t)steps, sizeof *t.device, by_size);
    return report(m, &t, out);
}

Status bench_step(const Config *c, int64_t steps, Text *out)
{
    BenchModel m;
    TRY(bench_open(&m, c));
    Status s = run(&m, steps, out);
    bench_close(&m);
    return s;
}
