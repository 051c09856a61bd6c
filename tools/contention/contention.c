/*
 * contention: `bench contention`: how much longer ops take beside communication. Blocks of a
 * communication kernel each occupy a multiprocessor from its launch to its end, also while it waits
 * for another rank. One that runs takes a part of the memory rate, too. So each op is timed alone
 * and beside three calls:
 *
 *   gather  an all-gather that runs for longer than the op: COMM_BLOCKS blocks, and their bytes
 *   held    the same call while it waits for a rank that comes late: the blocks alone
 *   recv    a receive whose sender comes late: COMM_FEW_BLOCKS blocks
 *
 * Rank 0's times are printed. Ranks with odd numbers come late. Repetitions of the four cases
 * alternate, so that a change of the clock meets all of them; each figure is a median. The call is
 * on the stream of collectives, and the op starts a little later (START_S) on its own.
 *
 * Factors under 1 / (1 - blocks / multiprocessors) mean that the op does not need them all. Larger
 * ones mean a kernel with a fixed part of the work for each multiprocessor: its last blocks wait
 * until others end. Two waves take twice as long. On the host ops and calls run one after the other,
 * so that factors there are 1 but for noise.
 */
#include "contention/contention.h"
#include "bench/bench.h"
#include "bench/runner.h"
#include "engine/backend/backend.h"
#include "engine/base/order.h"
#include "engine/step/agree.h"
#include "engine/step/engine_memory.h"
#include "kernels/core/libraries.h"
#include "shapes/shapes.h"

#include "engine/base/rng.h"

#include <stdio.h>

enum { RUNS = 9, SENT = 1 << 20, HOST_SHRINK = 64, HOST_WIDTH = 8, STEP = 64 };

static const int64_t GATHER_BYTES = INT64_C(4) << 30; /* lasts 6 ms or more */
static const double AHEAD_S = 0.005,                  /* the host gets ahead of the device */
    START_S = 50e-6,                                  /* until the call's blocks are running */
    LATE_S = 0.03;                                    /* how late odd ranks come */

typedef enum Beside { ALONE, GATHER, HELD, RECV, CASES } Beside;

static const char *const beside_names[CASES] = { "alone", "gather", "held", "recv" };

/* An op on the shapes of DeepSeek-V2-Lite, sizes as in shapes.def. */
static const struct {
    const char *name;
    ShapeSizes s;
    ShapeCase what;
} ops[] = {
    { "grouped product",
      { .n = 16384, .d = 2048, .f = 1408, .e = 64, .k = 6 },
      { .calls = 1, .call = { { OP_MOE_DOWN_FWD, { T_INNER, T_W2, T_OFFSETS, T_OUTER } } } } },
    { "grouped weights",
      { .n = 16384, .d = 2048, .f = 1408, .e = 64, .k = 6 },
      { .calls = 1,
        .call = { { OP_MOE_DOWN_BWD_WEIGHT,
                    { T_DY, T_INNER, T_OFFSETS, T_ROW_TOKEN, T_DW2 } } } } },
    { "dense product",
      { .n = 16384, .d = 2048, .e = 8192 },
      { .calls = 1, .call = { { OP_LINEAR_FWD, { T_X, T_W_HEAD, T_NONE, T_PROJECTED } } } } },
    { "dense, few tiles",
      { .n = 4096, .d = 8192, .e = 1024 },
      { .calls = 1, .call = { { OP_LINEAR_FWD, { T_X, T_W_HEAD, T_NONE, T_PROJECTED } } } } },
    { "attention",
      { .b = 4, .t = 4096, .h = 16, .d = 192, .f = 128 },
      { .calls = 1, .call = { { OP_ATTENTION_FWD, { T_Q, T_K, T_V, T_NONE, T_O, T_LSE } } } } },
    { "attention back",
      { .b = 4, .t = 4096, .h = 16, .d = 192, .f = 128 },
      { .prepare = 1,
        .calls = 2,
        .call = { { OP_ATTENTION_FWD, { T_Q, T_K, T_V, T_NONE, T_O, T_LSE } },
                  { OP_ATTENTION_BWD,
                    { T_DO, T_Q, T_K, T_V, T_NONE, T_O, T_LSE, T_DQ, T_DK, T_DV } } } } },
    { "swiglu",
      { .n = 98304, .d = 1408, .f = 1408 },
      { .calls = 1, .call = { { OP_SWIGLU_FWD, { T_GATE_UP, T_GATED } } } } },
};

typedef struct Bench {
    const BenchContention *options;
    BenchRunner r;
    Exec counter; /* counts memory */
    Arena count_scratch;
    Comm *host, *gather, *pair; /* between host threads; of collectives; of transfers */
    Mesh mesh;                  /* on a GPU: whom waits for the device watch */
    Tensor whole, part, first, sent;
    int multiprocessors; /* 0: a CPU */
    float *pattern;      /* (SHAPE_PATTERN) random numbers, which fill tensors */
    Text *out;
} Bench;

/* ---- the ranks ---- */

static void *comm_stream(Bench *b)
{
    return b->r.ex.backend->streams->of_lane(&b->r.ex, LANE_COMM);
}

/* On a GPU transfers have a group of their own, as in the engine. */
static Status join_ranks(Bench *b)
{
    b->gather = b->pair = b->host;
    if (!b->r.ex.backend->apart) return OK;
    TRY(comm_nccl(b->host, comm_stream(b), COMM_BLOCKS, &b->r.tables, &b->gather));
    b->mesh = (Mesh){ .ranks = b->host->size, .group[GROUP_WORLD] = b->gather };
    b->r.ex.mesh = &b->mesh;
    TRY(comm_duplicate(b->gather, comm_stream(b), "transfers", &b->r.tables, &b->pair));
    return comm_connect(b->pair);
}

static Status open_bench(Bench *b, const Config *c)
{
    GpuInfo info = { 0 };
    TRY(bench_runner_open(&b->r, c));
    TRY(bench_runner_counter(&b->r, &b->count_scratch, &b->counter));
    TRY(ARENA_NEW(&b->r.tables, SHAPE_PATTERN, &b->pattern));
    rng_fill_normal(b->pattern, SHAPE_PATTERN, 1, rng_stream("bench contention"), 0, 1);
    TRY(join_ranks(b));
    if (!engine_wants_gpu(c)) return OK;
    TRY(gpu_info((int)c->run_gpu, &info));
    b->multiprocessors = info.sms;
    return OK;
}

static void close_bench(Bench *b)
{
    bench_runner_release(&b->r);
    if (b->pair != b->host) comm_free(b->pair);
    if (b->gather != b->host) comm_free(b->gather);
    exec_free(&b->counter);
    arena_free(&b->count_scratch);
    bench_runner_close(&b->r);
}

/* ---- one run ---- */

static bool comes_late(const Bench *b) { return b->host->rank % 2 == 1; }

/* Odd ranks send to the rank before them. A rank without a partner only runs the op. */
static Status begin_transfer(Bench *b, CommRequest *request)
{
    int peer = comes_late(b) ? b->host->rank - 1 : b->host->rank + 1;
    if (peer == b->host->size) return OK;
    return comes_late(b) ? comm_send(b->pair, &b->sent, peer, 0, request)
                         : comm_recv(b->pair, &b->sent, peer, 0, request);
}

/* Launches the call on the stream of collectives. A first all-gather of few bytes brings the ranks
 * together; from its end on (mark[1]) the op may start. Delays go to the lane of the Exec. */
static Status begin_beside(Bench *b, Beside how, CommRequest *request)
{
    Exec *ex = &b->r.ex;
    const Streams *streams = ex->backend->streams;
    Status s = OK;
    if (how == ALONE) return OK;
    TRY(streams->record(ex, &b->r.mark[0], NULL));
    TRY(streams->wait(ex, &b->r.mark[0], comm_stream(b)));
    const Tensor mine = tensor_rows(&b->first, b->host->rank, 1);
    TRY(comm_all_gather(b->gather, &mine, &b->first));
    TRY(streams->record(ex, &b->r.mark[1], comm_stream(b)));
    ex->lane = LANE_COMM;
    if (how != GATHER && comes_late(b)) s = streams->delay(ex, LATE_S);
    ex->lane = LANE_COMPUTE;
    TRY(s);
    TRY(how == RECV ? begin_transfer(b, request) : comm_all_gather(b->gather, &b->part, &b->whole));
    return streams->wait(ex, &b->r.mark[1], NULL);
}

/* One time of the op. *left: how long the call went on after the op; below 0 it ended before. */
static Status run_once(Bench *b, const ShapeSet *set, Beside how, double *seconds, double *left)
{
    Exec *ex = &b->r.ex;
    const Streams *streams = ex->backend->streams;
    Event *mark = b->r.mark;
    CommRequest request = { 0 };
    TRY(ex->backend->sync(ex));
    TRY(comm_barrier(b->host));
    TRY(streams->delay(ex, AHEAD_S));
    TRY(begin_beside(b, how, &request));
    TRY(streams->delay(ex, START_S));
    TRY(streams->record(ex, &mark[2], NULL));
    TRY(shape_set_run(set, set->what->prepare, set->what->calls));
    TRY(streams->record(ex, &mark[3], NULL));
    if (request.slot != 0) TRY(comm_wait(b->pair, &request));
    TRY(streams->record(ex, &mark[4], comm_stream(b)));
    TRY(ex->backend->sync(ex));
    TRY(streams->elapsed_s(ex, &mark[2], &mark[3], seconds));
    return streams->elapsed_s(ex, &mark[3], &mark[4], left);
}

/* ---- an op ---- */

typedef struct Row {
    double seconds[CASES]; /* medians */
    double left[CASES];    /* the median of run_once's */
    OpCost cost;           /* of the last call */
} Row;

static double median(double v[RUNS])
{
    sort_doubles(v, RUNS);
    return v[RUNS / 2];
}

/* Runs each call alone. A first launch loads the kernel, for which the driver waits until the device
 * is idle. If it waited for a rank whose thread waits for the driver, both would wait for ever. */
static Status load_calls(Bench *b)
{
    CommRequest request = { 0 };
    const Tensor mine = tensor_rows(&b->first, b->host->rank, 1);
    TRY(comm_all_gather(b->gather, &mine, &b->first));
    TRY(b->r.ex.backend->sync(&b->r.ex));
    TRY(comm_barrier(b->host));
    TRY(comm_all_gather(b->gather, &b->part, &b->whole));
    TRY(b->r.ex.backend->sync(&b->r.ex));
    TRY(comm_barrier(b->host));
    TRY(begin_transfer(b, &request));
    return request.slot != 0 ? comm_wait(b->pair, &request) : OK;
}

/* The first run of each case is not timed. */
static Status time_op(Bench *b, const ShapeSet *set, Row *row)
{
    double s[CASES][RUNS], left[CASES][RUNS];
    TRY(load_calls(b));
    TRY(exec_tune(&b->r.ex, true));
    TRY(shape_set_run(set, 0, set->what->calls));
    TRY(exec_tune(&b->r.ex, false));
    for (int i = -1; i < RUNS; i++) {
        for (Beside how = ALONE; how < CASES; how++)
            TRY(run_once(b, set, how, &s[how][i < 0 ? 0 : i], &left[how][i < 0 ? 0 : i]));
    }
    for (Beside how = ALONE; how < CASES; how++) {
        row->seconds[how] = median(s[how]);
        row->left[how] = median(left[how]);
    }
    return OK;
}

/* Balanced experts, tokens in order. */
static Status set_routing(Bench *b, ShapeSet *set)
{
    int32_t *offsets = NULL, *token = NULL;
    set->s.r = set->s.n * set->s.k;
    if (set->s.k == 0) return OK;
    TRY(ARENA_NEW(&b->r.tables, set->s.e + 1, &offsets));
    TRY(ARENA_NEW(&b->r.tables, set->s.r, &token));
    for (int64_t e = 0; e <= set->s.e; e++) offsets[e] = (int32_t)(set->s.r * e / set->s.e);
    for (int64_t i = 0; i < set->s.r; i++) token[i] = (int32_t)(i % set->s.n);
    set->routing[T_OFFSETS] = offsets;
    set->routing[T_ROW_TOKEN] = token;
    return OK;
}

/* The tensors of the calls: what the all-gather collects, in N parts. */
static Status make_sent(Bench *b, Arena *a)
{
    int64_t ranks = b->host->size, shrink = b->options->shrink;
    int64_t part = GATHER_BYTES / (int64_t)sizeof(float) / ranks / shrink;
    TRY(tensor_new2(a, DTYPE_F32, ranks, part, &b->whole));
    TRY(tensor_new2(a, DTYPE_F32, 1, part, &b->part));
    TRY(tensor_new2(a, DTYPE_F32, ranks, 1, &b->first));
    return tensor_new1(a, DTYPE_F32, SENT / shrink, &b->sent);
}

/* Counts the bytes that a case and the calls take, without running anything. */
static Status count_bytes(Bench *b, ShapeSet set, OpCost *cost, size_t *bytes)
{
    Arena counted = { 0 };
    TRY(arena_init(&counted, "count", MEM_COUNT, (size_t)1 << 50));
    set.ex = &b->counter;
    set.arena = &counted;
    b->count_scratch.peak_bytes = 0;
    TRY(make_sent(b, &counted));
    TRY(shape_set_make(&set));
    TRY(shape_set_run(&set, 0, set.what->calls));
    int last = set.what->calls - 1;
    *cost = op_desc(set.what->call[last].op)->cost(set.args[last]);
    *bytes = counted.peak_bytes;
    return OK;
}

static Status fill_sent(Bench *b)
{
    const Backend *k = b->r.ex.backend;
    const Tensor *t[] = { &b->whole, &b->part, &b->first, &b->sent };
    for (int i = 0; i < 4; i++) TRY(k->fill(&b->r.ex, t[i]->data, 0, tensor_bytes(t[i])));
    return OK;
}

/* ---- printing ---- */

/* A call that ends before the op slows only a part of it. */
static Status print_short(const Bench *b, const char *name, const Row *row)
{
    for (Beside how = GATHER; how < CASES && b->multiprocessors > 0; how++) {
        if (row->left[how] >= 0) continue;
        TRY(text_printf(b->out, "%s: `%s` ended %.0f us before the op: its factor is too low\n",
                        name, beside_names[how], -1e6 * row->left[how]));
    }
    return OK;
}

static Status print_row(const Bench *b, const char *name, const Row *row)
{
    const double *s = row->seconds, one = s[ALONE] > 0 ? s[ALONE] : 1e-9;
    const char *work = op_work_names[row->cost.work], *type = dtype_name(config_type(b->r.config));
    if (!b->options->json) {
        TRY(text_printf(b->out, "%-18s %10.1f %8.3f %8.3f %8.3f  %s.%s\n", name, 1e6 * s[ALONE],
                        s[GATHER] / one, s[HELD] / one, s[RECV] / one, work, type));
        return print_short(b, name, row);
    }
    TRY(text_json(b->out, "{\"kind\":\"row\",\"op\":%s,\"work\":%s,\"type\":%s", name, work, type));
    for (Beside how = ALONE; how < CASES; how++)
        TRY(text_json(b->out, ",%s:%g", beside_names[how], s[how]));
    for (Beside how = GATHER; how < CASES; how++)
        TRY(text_json(b->out, how == GATHER ? ",\"left_s\":[%g" : ",%g", row->left[how]));
    return text_json(b->out, "]}\n");
}

/* The first line names the machine, and what a collective and a transfer hold of it. */
static Status print_head(const Bench *b)
{
    char machine[GPU_NAME_MAX];
    TRY(bench_machine(b->r.config, machine));
    if (b->options->json)
        return text_json(b->out,
                         "{\"kind\":\"machine\",\"name\":%s,\"ranks\":%d,\"multiprocessors\":%d,"
                         "\"gather_blocks\":%d,\"recv_blocks\":%d}\n",
                         machine, b->host->size, b->multiprocessors, COMM_BLOCKS, COMM_FEW_BLOCKS);
    TRY(text_printf(b->out, "%d ranks, %s", b->host->size, machine));
    TRY(b->multiprocessors > 0
            ? text_printf(b->out, "; a collective holds %d of %d multiprocessors, a transfer %d",
                          COMM_BLOCKS, b->multiprocessors, COMM_FEW_BLOCKS)
            : text_printf(b->out, ": ops and calls run one after the other here"));
    return text_printf(b->out, "\n%-18s %10s %8s %8s %8s  %s\n", "op, times as long", "us alone",
                       "gather", "held", "recv", "work");
}

/* ---- the bench ---- */

/* On the host widths are smaller, too. */
static void shrink_sizes(ShapeSizes *s, int64_t by, bool host)
{
    int64_t *const rows[] = { &s->n, &s->t }, *const widths[] = { &s->d, &s->f };
    for (int i = 0; i < 2; i++) {
        int64_t n = *rows[i] / by / STEP * STEP;
        if (*rows[i] > 0) *rows[i] = n > STEP ? n : STEP;
        if (host) *widths[i] /= HOST_WIDTH;
    }
}

/* Ranks agree on a lack of memory, as one that leaves alone would let the others wait. */
static Status run_op(Bench *b, int nth)
{
    Row row;
    ArenaMark mark = arena_mark(&b->r.tables);
    ShapeSet set = { .arena = &b->r.block,
                     .ex = &b->r.ex,
                     .tables = &b->r.tables,
                     .config = b->r.config,
                     .what = &ops[nth].what,
                     .s = ops[nth].s,
                     .pattern = b->pattern };
    size_t bytes = 0;
    shrink_sizes(&set.s, b->options->shrink, b->multiprocessors == 0);
    TRY(set_routing(b, &set));
    TRY(count_bytes(b, set, &row.cost, &bytes));
    Status s = bench_runner_alloc(&b->r, bytes, b->count_scratch.peak_bytes);
    s = agree_status(b->host, s);
    if (s == OK) s = make_sent(b, &b->r.block);
    if (s == OK) s = fill_sent(b);
    if (s == OK) s = shape_set_make(&set);
    if (s == OK) s = time_op(b, &set, &row);
    bench_runner_release(&b->r);
    TRY(s);
    arena_release(&b->r.tables, mark);
    return print_row(b, ops[nth].name, &row);
}

Status bench_contention(const Config *c, Comm *world, const BenchContention *options, Text *out)
{
    BenchContention own = *options;
    Bench b = { .options = &own, .host = world, .out = out };
    if (world == NULL || world->size < 2)
        return FAIL(ERR_ARG, "bench contention: it needs two ranks or more: give "
                             "--ranks, or start it with mpirun");
    if (!engine_wants_gpu(c)) own.shrink *= HOST_SHRINK;
    Status s = open_bench(&b, c);
    if (s == OK) s = print_head(&b);
    for (size_t i = 0; i < sizeof ops / sizeof *ops && s == OK; i++) s = run_op(&b, (int)i);
    if (s != OK) bench_abort_ranks(world);
    close_bench(&b);
    return s;
}
