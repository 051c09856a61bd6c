/* ops: what each op costs where it is used. A training step runs under the trace backend, which
 * notes every call with its time and cost. So shapes, cache state and routing are those of
 * training, and an op added to the table needs no line here. */
#include "bench/bench.h"

#include "base/rng.h"
#include "trace/trace.h"
#include "train/engine_memory.h"

#include <inttypes.h>
#include <string.h>

enum { TRACE_EVENTS = 1 << 18, WARM_UP = 2 };

typedef struct OpSum {
    int64_t calls;
    double seconds, flops, bytes;
} OpSum;

static int op_of(const char *name)
{
    for (int i = 0; i < OP_ID_COUNT; i++) {
        if (strcmp(op_desc((OpId)i)->name, name) == 0) return i;
    }
    return -1;
}

static void add_events(const Trace *t, OpSum *sums)
{
    for (int64_t i = 0; i < t->used; i++) {
        const TraceEvent *e = &t->events[i];
        int id = e->depth == 2 ? op_of(e->name) : -1;
        if (id < 0) continue;
        sums[id].calls++;
        sums[id].seconds += e->duration_s;
        sums[id].flops += e->flops;
        sums[id].bytes += e->bytes;
    }
}

static Status run_model(const Config *c, int64_t steps, OpSum *sums)
{
    BenchModel m;
    Trace trace = { 0 };
    double seconds = 0;
    TRY(bench_open(&m, c, NULL));
    Status s = trace_init(&trace, &m.arena, TRACE_EVENTS);
    for (int i = 0; i < WARM_UP && s == OK; i++) s = bench_run_step(&m, &seconds);
    if (s == OK) engine_trace(&m.engine, &trace);
    for (int64_t i = 0; i < steps && s == OK; i++) {
        trace.used = 0;
        s = bench_run_step(&m, &seconds);
        add_events(&trace, sums);
    }
    bench_close(&m);
    return s;
}

/* Ops that no step on this machine runs: 8-bit conversion, at the size of a batch of activations.
 */
static Status run_quant(BenchModel *m, int64_t n, int64_t d, QuantKind kind)
{
    Tensor x;
    Quant q = { .kind = kind };
    int64_t rows = 0, cols = 0;
    quant_scale_shape(kind, n, d, &rows, &cols);
    TRY(tensor_new2(&m->arena, DTYPE_F32, n, d, &x));
    TRY(tensor_new2(&m->arena, DTYPE_E4M3, n, d, &q.data));
    TRY(tensor_new2(&m->arena, DTYPE_F32, rows, cols, &q.scale));
    rng_fill_normal(x.data, n * d, 1, rng_stream("bench quant"), 0, 1);
    TRY(quantize(&m->engine.ex, (Quantize){ x, q }));
    TRY(dequantize(&m->engine.ex, (Dequantize){ q, x }));
    return add(&m->engine.ex, (Add){ x, x });
}

static Status run_others(const Config *c, int64_t steps, OpSum *sums)
{
    BenchModel m;
    Trace trace = { 0 };
    TRY(bench_open(&m, c, NULL));
    Status s = trace_init(&trace, &m.arena, TRACE_EVENTS);
    if (s == OK) engine_trace(&m.engine, &trace);
    for (int64_t i = 0; i < steps && s == OK; i++) {
        ArenaMark mark = arena_mark(&m.arena);
        s = run_quant(&m, c->train_micro_batch * c->data_sequence, c->model_hidden, QUANT_1X128);
        arena_release(&m.arena, mark);
    }
    add_events(&trace, sums);
    bench_close(&m);
    return s;
}

static Status print(const OpSum *sums, const BenchRoof *roof, Text *out)
{
    double total = 0;
    for (int i = 0; i < OP_ID_COUNT; i++) total += sums[i].seconds;
    TRY(text_printf(out, "roof: %.1f GFLOP/s (1024^3 product), %.1f GB/s (copy)\n",
                    roof->flops / 1e9, roof->bytes / 1e9));
    TRY(text_printf(out, "%-20s %8s %10s %7s %10s %8s %7s\n", "op", "calls", "us/call", "time %",
                    "GFLOP/s", "GB/s", "roof %"));
    for (int i = 0; i < OP_ID_COUNT; i++) {
        const OpSum *s = &sums[i];
        if (s->calls == 0) continue;
        double least = s->flops / roof->flops;
        if (s->bytes / roof->bytes > least) least = s->bytes / roof->bytes;
        TRY(text_printf(out, "%-20s %8" PRId64 " %10.1f %7.1f %10.1f %8.1f %7.1f\n",
                        op_desc((OpId)i)->name, s->calls, s->seconds / (double)s->calls * 1e6,
                        100 * s->seconds / total, s->flops / s->seconds / 1e9,
                        s->bytes / s->seconds / 1e9, 100 * least / s->seconds));
    }
    return OK;
}

Status bench_ops(const Config *c, int64_t steps, Arena *a, Text *out)
{
    (void)a;
    OpSum sums[OP_ID_COUNT] = { 0 };
    BenchRoof roof;
    if (engine_wants_gpu(c)) return bench_ops_gpu(c, steps, out);
    TRY(run_model(c, steps, sums));
    Config other = *c; /* the other attention, and the other type of activations */
    other.attention_kind = c->attention_kind == ATTENTION_MLA ? ATTENTION_GQA : ATTENTION_MLA;
    OpSum rest[OP_ID_COUNT] = { 0 };
    TRY(run_model(&other, steps, rest));
    other.run_compute = COMPUTE_BF16;
    TRY(run_others(&other, steps, rest));
    for (int i = 0; i < OP_ID_COUNT; i++) {
        if (sums[i].calls == 0) sums[i] = rest[i];
    }
    TRY(bench_roof(c, &roof));
    return print(sums, &roof, out);
}
