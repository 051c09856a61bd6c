#include "bench/bench.h"

#include "base/clock.h"
#include "train/train.h"

#include <inttypes.h>
#include <stdlib.h>

enum { WARM_UP = 3 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static Status report(const BenchModel *m, double *seconds, int64_t n, Text *out)
{
    const Config *c = m->config;
    BenchRoof roof;
    char bytes[32], tokens_text[32];
    size_t peak_bytes = process_peak_bytes(); /* before the roof takes memory of its own */
    TRY(bench_roof(c, &roof));
    qsort(seconds, (size_t)n, sizeof *seconds, by_size);
    double p50 = seconds[n / 2], p99 = seconds[(n * 99) / 100 < n ? (n * 99) / 100 : n - 1];
    double tokens = (double)(c->train_batch * c->data_sequence);
    size_t total = 0;
    for (int i = 0; i < ENGINE_ARENAS; i++) total += m->plan.bytes[i];
    TRY(text_printf(out, "%s, %s, %d threads, %" PRId64 " steps of %.0f tokens\n", c->model_name,
                    c->run_compute == COMPUTE_BF16 ? "bf16" : "f32", train_threads(c), n, tokens));
    TRY(text_printf(out, "  tokens/s     %s (median)\n",
                    text_thousands(tokens_text, (int64_t)(tokens / p50))));
    TRY(text_printf(out, "  step         %.1f ms p50, %.1f ms p99 (p99/p50 %.3f)\n", p50 * 1e3,
                    p99 * 1e3, p99 / p50));
    TRY(text_printf(out, "  FLOP/s       %.1f GFLOP/s, %.1f %% of the measured %.1f\n",
                    m->plan.step.flops / p50 / 1e9, 100 * m->plan.step.flops / p50 / roof.flops,
                    roof.flops / 1e9));
    TRY(text_printf(out, "  arenas       %s\n", text_bytes(bytes, (double)total)));
    return text_printf(out, "  process      %s at its peak\n",
                       text_bytes(bytes, (double)peak_bytes));
}

static Status run(BenchModel *m, int64_t steps, Text *out)
{
    void *memory = NULL;
    double warm = 0;
    TRY(arena_alloc(&m->arena, (size_t)steps * sizeof(double), &memory));
    for (int i = 0; i < WARM_UP; i++) TRY(bench_run_step(m, &warm));
    for (int64_t i = 0; i < steps; i++) TRY(bench_run_step(m, (double *)memory + i));
    return report(m, memory, steps, out);
}

Status bench_step(const Config *c, int64_t steps, Text *out)
{
    BenchModel m;
    TRY(bench_open(&m, c));
    Status s = run(&m, steps, out);
    bench_close(&m);
    return s;
}
