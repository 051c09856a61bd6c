/*
 * ladder: `bench ladder`: what each feature is worth, or with --ranks each doubling of ranks.
 *
 * The ladder of features begins with the plainest way to train the model: all logits at once, a
 * wait of the host after every op, no graph, the library's first proposal for each product. Each
 * rung keeps what the rungs before it switched on and adds one thing. Rungs are whole runs of the
 * model; single ops are in src/bench/ops.c.
 */
#include "ladder/ladder.h"
#include "bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { RUNG_SETTINGS = 2 };

typedef struct Rung {
    const char *name;
    const char *settings[RUNG_SETTINGS]; /* set on this rung and kept; NULL: none */
    bool gpu_only;
    bool no_waits; /* from here on the host does not wait after each op */
} Rung;

/* The settings of the first rung, whatever the user's configuration says. */
static const char *const plain_settings[] = { "run.executor=eager", "run.tune=false",
                                              "attention.kernel=plain", "fp8.attention=false",
                                              "fp8.recipe=none" };

static const Rung rungs[] = {
    { "no host wait", { NULL }, true, true },
    { "chunked loss", { "model.loss_chunk=0" }, false, false },
    { "timed products", { "run.tune=true" }, true, false },
    { "attention on Hopper", { "attention.kernel=auto" }, true, false },
    { "one graph", { "run.executor=captured" }, true, false },
    { "8-bit attention", { "fp8.attention=true" }, true, false },
    { "8-bit dense products", { "fp8.recipe=block", "fp8.products=dense" }, true, false },
    { "8-bit grouped products", { "fp8.products=all", "fp8.dispatch=bf16" }, true, false },
    { "8-bit dispatch", { "fp8.dispatch=fp8" }, true, false },
};

typedef struct Row {
    double tokens_per_s;
    size_t bytes; /* of arenas; on a GPU all memory in use */
    bool gpu;
    StepResult result;
} Row;

/* A decorator that makes the host wait before and after each op, as a plain implementation does. */
static Status wait_around_op(Exec *ex, int level, const OpDesc *op, const void *args)
{
    TRY(ex->backend->sync(ex));
    TRY(op_next(ex, level, op, args));
    return ex->backend->sync(ex);
}

static const Decorator op_waits = { .run = wait_around_op };

static Status time_model(BenchModel *m, int64_t steps, bool waits, Row *out)
{
    BenchMedian median = { 0 };
    const Config *c = m->config;
    if (waits) exec_push(&m->engine.ex, &op_waits);
    TRY(bench_time_steps(m, 2, steps, &median));
    out->tokens_per_s = (double)(c->train_batch * c->data_sequence) / median.seconds;
    out->result = m->result;
    TRY(exec_used_bytes(&m->engine.ex, &out->bytes));
    for (int i = 0; i < ENGINE_ARENAS && !m->plan.apart; i++) out->bytes += m->plan.bytes[i];
    return OK;
}

static Status print_row(const char *name, const Row *r, Text *out)
{
    char tokens[32], bytes[32];
    TRY(text_printf(out, "%-24s %12s %12s", name, text_thousands(tokens, (int64_t)r->tokens_per_s),
                    text_bytes(bytes, (double)r->bytes)));
    if (!r->gpu) return text_printf(out, "\n");
    return text_printf(out, " %9" PRId64 " %7" PRId64 "\n", r->result.launches, r->result.waits);
}

static Status run_model(const Config *c, Comm *world, int64_t steps, bool waits, Row *out)
{
    BenchModel m;
    TRY(bench_open(&m, c, world, (BenchOpen){ 0 }));
    Status s = time_model(&m, steps, waits, out);
    out->gpu = m.plan.apart;
    if (s != OK) bench_abort_ranks(world);
    bench_close(&m);
    return s;
}

/* A rung that does not fit prints why, and the ladder goes on. Other failures end it. */
static Status print_why(const char *name, Status s, Text *out)
{
    char why[1024];
    if (s != ERR_ARG && s != ERR_MEMORY) return s;
    status_sentence(why, sizeof why);
    status_clear();
    return text_printf(out, "%-24s %s\n", name, why);
}

/* Times one rung and prints its row. */
static Status run_row(const Config *c, const char *name, int64_t steps, bool waits, Text *out)
{
    Row row = { 0 };
    Status s = run_model(c, NULL, steps, waits, &row);
    return s == OK ? print_row(name, &row, out) : print_why(name, s, out);
}

/* The first rungs: micro-batches of 1, 2, 4 ... sequences, since larger ones alone already gain
 * much. */
static Status time_batches(const Config *c, int64_t steps, bool gpu, Text *out)
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
    for (size_t i = 0; i < sizeof plain_settings / sizeof *plain_settings; i++)
        TRY(config_override(&c, a, plain_settings[i]));
    c.model_loss_chunk = c.train_micro_batch * c.data_sequence;
    TRY(text_printf(out, "%-24s %12s %12s%s\n", "", "tokens/s", gpu ? "GPU in use" : "arenas",
                    gpu ? "  launches   waits" : ""));
    TRY(time_batches(&c, steps, gpu, out));
    for (size_t i = 0; i < sizeof rungs / sizeof *rungs; i++) {
        const Rung *r = &rungs[i];
        char name[64];
        if (r->gpu_only && !gpu) continue;
        for (int k = 0; k < RUNG_SETTINGS && r->settings[k] != NULL; k++)
            TRY(config_override(&c, a, r->settings[k]));
        waits = waits && !r->no_waits;
        (void)snprintf(name, sizeof name, "+ %s", r->name);
        TRY(run_row(&c, name, steps, waits, out));
    }
    return OK;
}

/* ---- by number of ranks ---- */

typedef struct Scale {
    Config config;
    int64_t steps;
    Row row; /* of rank 0 */
} Scale;

/* Euclid's algorithm: the largest number that divides both. */
static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Makes a configuration for `ranks` ranks from that for `of` ranks: the same work per rank, and the
 * axes of the mesh as far as they divide the ranks. Threads are fixed, so that fewer ranks do not
 * get more. */
static Config config_of_fewer(const Config *c, int64_t ranks, int64_t of)
{
    Config s = *c;
    s.mesh_pp = common_divisor(c->mesh_pp, ranks);
    s.mesh_cp = common_divisor(c->mesh_cp, ranks / s.mesh_pp);
    s.mesh_ep = common_divisor(c->mesh_ep, ranks / s.mesh_pp);
    s.mesh_etp = common_divisor(c->mesh_etp, ranks / s.mesh_pp / s.mesh_ep);
    s.mesh_tp = common_divisor(c->mesh_tp, ranks / s.mesh_pp / s.mesh_cp);
    s.mesh_shard = common_divisor(c->mesh_shard, ranks / s.mesh_pp / s.mesh_cp / s.mesh_tp);
    if (c->mesh_shard == 0) s.mesh_shard = 0;
    s.mesh_ranks_per_host = common_divisor(c->mesh_ranks_per_host, ranks);
    if (c->mesh_ranks_per_host == 0) s.mesh_ranks_per_host = 0;
    if (s.mesh_pp != c->mesh_pp) s.mesh_layout = "";
    if (s.mesh_pp == 1) s.mesh_vpp = 1, s.mesh_schedule = "1f1b";
    if (s.run_threads == 0) s.run_threads = train_threads(c) / of > 0 ? train_threads(c) / of : 1;
    s.train_batch = c->train_batch * ranks / of;
    return s;
}

/* The body of each rank; rank 0 leaves its row for the caller. */
static Status scale_on_rank(void *state, Comm *world)
{
    Scale *all = state;
    Config own = all->config;
    Arena a = { 0 };
    Row row = { 0 };
    TRY(arena_init(&a, "hosts", MEM_HOST, (size_t)1 << 20));
    Status s = bench_bind_rank(&own, world, &a);
    if (s == OK) s = run_model(&own, world, all->steps, false, &row);
    if (world == NULL || world->rank == 0) all->row = row;
    arena_free(&a);
    return s;
}

static Status run_ranks(const Config *c, int ranks, int of, int64_t steps, double *first, Text *out)
{
    Scale all = { .config = config_of_fewer(c, ranks, of), .steps = steps };
    const Config *s = &all.config;
    int failed = -1;
    char name[64], tokens[32], each[32], bytes[32];
    (void)snprintf(name, sizeof name, "%d: pp %d, ep %d, cp %d", ranks, (int)s->mesh_pp,
                   (int)s->mesh_ep, (int)s->mesh_cp);
    Status status = ranks == 1
                        ? scale_on_rank(&all, NULL)
                        : comm_threads(ranks, c->comm_timeout_s, scale_on_rank, &all, &failed);
    if (status != OK) return print_why(name, status, out);
    double rate = all.row.tokens_per_s / ranks;
    if (*first == 0) *first = rate;
    return text_printf(out, "%-24s %12s %14s %11.1f %% %12s\n", name,
                       text_thousands(tokens, (int64_t)all.row.tokens_per_s),
                       text_thousands(each, (int64_t)rate), 100 * rate / *first,
                       text_bytes(bytes, (double)all.row.bytes));
}

Status bench_scale(const Config *config, int ranks, int64_t steps, Text *out)
{
    double first = 0;
    if (config->train_batch % ranks != 0)
        return FAIL(ERR_ARG,
                    "bench ladder: train.batch %" PRId64
                    " is not a multiple of %d ranks: each rank "
                    "gets the same number of sequences on all rungs",
                    config->train_batch, ranks);
    TRY(text_printf(out, "%-24s %12s %14s %13s %12s\n", "ranks", "tokens/s", "tokens/s/rank",
                    "efficiency", "memory/rank"));
    for (int n = 1; n < ranks; n *= 2) TRY(run_ranks(config, n, ranks, steps, &first, out));
    return run_ranks(config, ranks, ranks, steps, &first, out);
}
