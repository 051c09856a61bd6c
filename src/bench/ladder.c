/* ladder: what each feature is worth. It begins with the plainest way to train the model: all
 * logits at once, a wait of the host after every op, no graph, the library's first proposals. Then
 * every rung keeps what the rungs before it switched on and adds one thing. */
#include "bench/bench.h"

#include "base/clock.h"
#include "trace/trace.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TRACE_EVENTS = 1 << 16, WARM_UP = 2 };

typedef struct Rung {
    const char *name;
    const char *setting; /* switched on here, and kept; NULL: none */
    bool gpu_only;
    bool no_waits; /* from here on the host does not wait after each op */
} Rung;

/* Where the ladder begins; a configuration of one's own may have set them otherwise. */
static const char *const plain[] = { "run.executor=eager", "run.tune=false",
                                     "attention.kernel=plain" };

static const Rung rungs[] = {
    { "no host wait", NULL, true, true },
    { "chunked loss", "model.loss_chunk=0", false, false },
    { "timed products", "run.tune=true", true, false },
    { "cuDNN attention", "attention.kernel=auto", true, false },
    { "one graph", "run.executor=captured", true, false },
};

typedef struct Row {
    double tokens_per_s;
    size_t bytes; /* of arenas; on a GPU what is in use */
    StepResult result;
} Row;

static Status measure(BenchModel *m, int64_t steps, bool waits, Row *out)
{
    Trace trace = { 0 };
    double warm = 0;
    const Config *c = m->config;
    double *seconds = NULL;
    TRY(ARENA_NEW(&m->arena, steps, &seconds));
    TRY(trace_init(&trace, &m->arena, TRACE_EVENTS));
    if (waits) engine_trace(&m->engine, &trace); /* the trace waits before and after each op */
    for (int i = 0; i < WARM_UP; i++) TRY(bench_run_step(m, &warm));
    for (int64_t i = 0; i < steps; i++) {
        trace.used = 0;
        TRY(bench_run_step(m, &seconds[i]));
    }
    bench_sort(seconds, steps);
    out->tokens_per_s = (double)(c->train_batch * c->data_sequence) / seconds[steps / 2];
    out->result = m->result;
    TRY(m->engine.ex.backend->device->used_bytes(&m->engine.ex, &out->bytes));
    for (int i = 0; i < ENGINE_ARENAS && !m->plan.apart; i++) out->bytes += m->plan.bytes[i];
    return OK;
}

static Status print_row(const char *name, const Row *r, bool gpu, Text *out)
{
    char tokens[32], bytes[32];
    TRY(text_printf(out, "%-24s %12s %12s", name, text_thousands(tokens, (int64_t)r->tokens_per_s),
                    text_bytes(bytes, (double)r->bytes)));
    if (!gpu) return text_printf(out, "\n");
    return text_printf(out, " %9" PRId64 " %7" PRId64 "\n", r->result.launches, r->result.waits);
}

/* A rung that does not fit says so and is passed over. */
static Status run_row(const Config *c, const char *name, int64_t steps, bool waits, Text *out)
{
    BenchModel m;
    Row row = { 0 };
    Status s = bench_open(&m, c, NULL);
    if (s == OK) {
        s = measure(&m, steps, waits, &row);
        bool gpu = m.plan.apart;
        bench_close(&m);
        TRY(s);
        return print_row(name, &row, gpu, out);
    }
    if (s != ERR_ARG && s != ERR_MEMORY) return s;
    char why[1024];
    status_sentence(why, sizeof why);
    return text_printf(out, "%-24s %s\n", name, why);
}

static Status batches(const Config *c, int64_t steps, bool gpu, Text *out)
{
    for (int64_t b = 1; b <= c->train_micro_batch; b *= 2) {
        char name[32];
        Config small = *c;
        small.train_batch = small.train_micro_batch = b;
        (void)snprintf(name, sizeof name, "batch %" PRId64, b);
        TRY(run_row(&small, name, steps, gpu, out));
    }
    return OK;
}

Status bench_ladder(const Config *config, int64_t steps, Arena *a, Text *out)
{
    Config c = *config;
    EnginePlan plan;
    EngineShape shape = { .batch = 1,
                          .micro_batch = 1,
                          .sequence = c.data_sequence,
                          .positions = c.data_sequence,
                          .domains = 1,
                          .threads = 1 };
    TRY(engine_plan(&c, ENGINE_TRAIN, &shape, &plan));
    bool gpu = plan.apart, waits = gpu;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) TRY(config_override(&c, a, plain[i]));
    c.model_loss_chunk = c.train_micro_batch * c.data_sequence;
    TRY(text_printf(out, "%-24s %12s %12s%s\n", "", "tokens/s", gpu ? "GPU in use" : "arenas",
                    gpu ? "  launches   waits" : ""));
    TRY(batches(&c, steps, gpu, out));
    for (size_t i = 0; i < sizeof rungs / sizeof *rungs; i++) {
        const Rung *r = &rungs[i];
        char name[64];
        if (r->gpu_only && !gpu) continue;
        if (r->setting != NULL) TRY(config_override(&c, a, r->setting));
        waits = waits && !r->no_waits;
        (void)snprintf(name, sizeof name, "+ %s", r->name);
        TRY(run_row(&c, name, steps, waits, out));
    }
    return OK;
}
