/*
 * ops: `bench ops`: what each op costs where it is used. A decorator takes the time before and
 * after every op of whole training steps. So caches are as cold and shapes are the same as in
 * training, and a new op needs no line here. Ops that the model does not use are timed by `bench
 * shapes`.
 *
 * On a GPU the decorator records events in the stream. The stream is delayed at a step's start
 * until the host is far ahead; otherwise short ops would be timed at the speed of their launches.
 * Two events without work between them are about 2 us apart. An untrained router would not balance
 * experts, so on a GPU the decorator overwrites its choice. On the CPU the model runs unchanged.
 */
#include "bench/bench.h"

#include "bench/runner.h"
#include "engine/backend/backend.h"
#include "engine/base/order.h"
#include "engine/base/rng.h"
#include "engine/step/engine_memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_MAX = 1 << 16, GPU_CALLS_MAX = 2048, ROWS_MAX = 512, SAMPLES_MAX = 512, WARM_UP = 3 };

static const double DELAY_S = 0.02; /* longer than the host needs to launch a step's ops */
static const double SMALL_SHARE =
    1e-3; /* of a step's time: rows with less are added up as others */

typedef enum Routing { ROUTING_ANY, ROUTING_EVEN, ROUTING_ZIPF } Routing;

static const char *const routing_names[] = { "", "even", "zipf" };

/* All calls of one op with the same shapes and the same optional tensors. */
typedef struct OpRow {
    const OpDesc *op;
    char shape[BENCH_SHAPE_MAX];
    unsigned given; /* bit i: tensor i of the op's ports */
    Routing routing;
    OpCost cost;
    int64_t calls;
    double *seconds; /* of the first SAMPLES_MAX calls; seconds_of sorts them */
    double a_step;   /* calls in a step; 0: none in the steps that are compared with the peak */
    double ms, peak_ms, left_ms; /* in a step: measured, at the measured peak, the difference */
} OpRow;

typedef struct OpTimer {
    Event mark[2 * CALLS_MAX]; /* before and after each call of this step */
    int most;                  /* calls of a step that are timed, at most */
    Arena *arena;
    OpRow rows[ROWS_MAX];
    int n_rows;
    int row_of[CALLS_MAX]; /* by call of this step */
    int n_calls;
    Routing routing;
    void *index; /* (N, K) i32 on the device: the experts that replace the router's choice */
    size_t index_bytes;
    int64_t steps;   /* timed steps for each routing */
    int64_t untimed; /* calls of a step beyond the number of marks */
    ExecNotes notes; /* from the Exec that ran the ops */
} OpTimer;

void bench_shape_text(const OpDesc *op, const void *args, char out[BENCH_SHAPE_MAX])
{
    int tensors = 0;
    size_t used = 0;
    out[0] = '\0';
    for (const OpPort *p = op->ports; p->dir != PORT_END && tensors < 2; p++) {
        if (p->dir == PORT_ROWS || p->dir == PORT_IN_SCALE || op_port_tensor(p, args)->data == NULL)
            continue;
        const Tensor *t = op_port_tensor(p, args);
        for (int i = 0; i < t->rank && used < BENCH_SHAPE_MAX - 1; i++) {
            const char *before = i > 0 ? "x" : tensors > 0 ? " " : "";
            int n = snprintf(out + used, BENCH_SHAPE_MAX - used, "%s%" PRId64, before, t->dim[i]);
            used += (size_t)n;
        }
        tensors++;
    }
}

/* A bit for each port whose tensor is given: an op with a bias is another row than one without. */
static unsigned given_tensors(const OpDesc *op, const void *args)
{
    unsigned given = 0;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (p->dir != PORT_ROWS && op_port_tensor(p, args)->data != NULL)
            given |= 1u << (p - op->ports);
    }
    return given;
}

/* Finds the row of a call, or adds it; -1: the table is full. Only MoE ops depend on the
 * routing. */
static int row_find(OpTimer *t, const OpDesc *op, const void *args)
{
    char shape[BENCH_SHAPE_MAX];
    Routing routing = text_starts(op->name, "moe_") ? t->routing : ROUTING_ANY;
    unsigned given = given_tensors(op, args);
    bench_shape_text(op, args, shape);
    for (int i = 0; i < t->n_rows; i++) {
        const OpRow *r = &t->rows[i];
        if (r->op == op && r->routing == routing && r->given == given &&
            strcmp(r->shape, shape) == 0)
            return i;
    }
    if (t->n_rows == ROWS_MAX) return -1;
    OpRow *r = &t->rows[t->n_rows];
    *r = (OpRow){ .op = op, .given = given, .routing = routing, .cost = op->cost(args) };
    memcpy(r->shape, shape, sizeof shape);
    return t->n_rows++;
}

/* Overwrites the router's choice right after it, with a copy on the same stream. Only the main
 * model's shape is replaced: other sizes are not those of t->index. */
static Status replace_routing(const OpTimer *t, Exec *ex, const RouteFwd *route)
{
    if (t->routing == ROUTING_ANY || t->index_bytes != tensor_bytes(&route->index)) return OK;
    return ex->backend->copy(ex, route->index.data, t->index, t->index_bytes);
}

/* The decorator. The first op of a step delays the stream. */
static Status time_op(Exec *ex, int level, const OpDesc *op, const void *args)
{
    OpTimer *t = ex->front[level]->self;
    const Streams *s = ex->backend->streams;
    int row = t->n_calls < t->most ? row_find(t, op, args) : -1;
    size_t call = (size_t)t->n_calls;
    if (call == 0) TRY(s->delay(ex, DELAY_S));
    if (row < 0) {
        t->untimed++;
        return op_next(ex, level, op, args);
    }
    TRY(s->record(ex, &t->mark[2 * call], NULL));
    TRY(op_next(ex, level, op, args));
    TRY(s->record(ex, &t->mark[2 * call + 1], NULL));
    t->row_of[t->n_calls++] = row;
    return op == op_desc(OP_ROUTE_FWD) ? replace_routing(t, ex, args) : OK;
}

/* Adds the times of a step's calls to their rows. The step has waited for the GPU, so events are
 * done. */
static Status add_step(OpTimer *t, Exec *ex)
{
    for (size_t i = 0; i < (size_t)t->n_calls; i++) {
        OpRow *r = &t->rows[t->row_of[i]];
        double seconds = 0;
        TRY(ex->backend->streams->elapsed_s(ex, &t->mark[2 * i], &t->mark[2 * i + 1], &seconds));
        if (r->seconds == NULL) TRY(ARENA_NEW(t->arena, SAMPLES_MAX, &r->seconds));
        if (r->calls < SAMPLES_MAX) r->seconds[r->calls] = seconds;
        r->calls++;
    }
    t->n_calls = 0;
    return OK;
}

/* Writes the experts of all tokens to t->index. */
static Status make_index(BenchModel *m, const OpTimer *t, Arena *a)
{
    const Config *c = m->config;
    Exec *ex = &m->engine.ex;
    int32_t *index = NULL;
    TRY(bench_experts(t->routing == ROUTING_ZIPF ? BENCH_ZIPF : BENCH_IN_TURN,
                      rng_stream("bench zipf"), c->train_micro_batch * c->data_sequence,
                      c->moe_top_k, c->moe_experts, a, &index));
    TRY(ex->backend->copy(ex, t->index, index, t->index_bytes));
    return ex->backend->sync(ex);
}

/* Warm-up steps do not count: kernels are loaded and chosen in them. */
static Status time_routing(BenchModel *m, OpTimer *t, int64_t steps)
{
    double seconds = 0;
    if (t->routing != ROUTING_ANY) {
        ArenaMark mark = arena_mark(&m->arena);
        TRY(make_index(m, t, &m->arena));
        arena_release(&m->arena, mark);
    }
    for (int64_t i = 0; i < WARM_UP + steps; i++) {
        t->n_calls = 0;
        t->untimed = 0;
        TRY(bench_run_step(m, &seconds));
        if (i >= WARM_UP) TRY(add_step(t, &m->engine.ex));
    }
    return OK;
}

/* Runs steps under the decorator: once for each routing if there are experts on a GPU. */
static Status time_ops(BenchModel *m, OpTimer *t, int64_t steps)
{
    const Config *c = m->config;
    Exec *ex = &m->engine.ex;
    bool routed = ex->backend->apart && m->engine.spec.n_moe > 0;
    const Decorator decorator = { time_op, t };
    t->index_bytes =
        routed ? (size_t)(c->train_micro_batch * c->data_sequence * c->moe_top_k) * 4 : 0;
    t->most = ex->backend->async ? GPU_CALLS_MAX : CALLS_MAX;
    for (int i = 0; i < 2 * t->most; i++)
        TRY(ex->backend->streams->event_new(ex, true, &t->mark[i]));
    if (routed) TRY(ex->backend->alloc(ex, MEM_DEVICE, t->index_bytes, &t->index));
    exec_push(ex, &decorator);
    t->routing = routed ? ROUTING_EVEN : ROUTING_ANY;
    Status s = time_routing(m, t, steps);
    t->routing = ROUTING_ZIPF;
    if (s == OK && routed) s = time_routing(m, t, steps);
    exec_pop(ex);
    if (t->index != NULL) ex->backend->free(ex, MEM_DEVICE, t->index, t->index_bytes);
    t->notes = ex->notes;
    return s;
}

/* ---- the report ---- */

/* The median time of a call. */
static double seconds_of(OpRow *r)
{
    int64_t n = r->calls < SAMPLES_MAX ? r->calls : SAMPLES_MAX;
    sort_doubles(r->seconds, n);
    return r->seconds[n / 2];
}

/* The time of a call that reaches the measured peak: of FLOPs or of memory, whichever takes
 * longer. */
static double peak_seconds(const OpRow *r, const MeasuredPeak *peak)
{
    return fmax(r->cost.flops / peak->flops, r->cost.bytes / peak->bytes);
}

/* A row of the first table. `work` and `size` are what `plan calibrate` reads. */
static Status print_row(OpRow *r, const MeasuredPeak *peak, double total_s, Text *out)
{
    double s = seconds_of(r), least = peak_seconds(r, peak);
    char work[48]; /* as hardware files call it */
    bool rate = work_has_rate(r->cost.work);
    (void)snprintf(work, sizeof work, "%s%s%s", op_work_names[r->cost.work], rate ? "." : "",
                   rate ? dtype_name(r->cost.dtype) : "");
    return text_printf(
        out, "%-20s %-*s %-7s %7.1f %6" PRId64 " %10.1f %#9.4g %8.1f %7.1f %-24s %6.0f\n",
        r->op->name, BENCH_SHAPE_MAX - 16, r->shape, routing_names[r->routing],
        100 * s * (double)r->calls / total_s, r->calls, s * 1e6, r->cost.flops / s / 1e12,
        r->cost.bytes / s / 1e9, 100 * least / s, work, r->cost.size);
}

/* Ops in the table's order, shapes of one in the order of their first call. */
static Status print_ops(OpTimer *t, const Config *c, const MeasuredPeak *peak, Text *out)
{
    char name[GPU_NAME_MAX];
    double total_s = 0;
    TRY(bench_machine(c, name));
    TRY(text_printf(out,
                    "%s, %s, %" PRId64 " tokens; measured peak: %.4f TFLOP/s (large product), %.1f "
                    "GB/s (copy, read and written)\n",
                    name, dtype_name(config_type(c)), c->train_micro_batch * c->data_sequence,
                    peak->flops / 1e12, peak->bytes / 1e9));
    TRY(text_printf(out, "%-20s %-*s %-7s %7s %6s %10s %9s %8s %7s %-24s %6s\n", "op",
                    BENCH_SHAPE_MAX - 16, "shape", "routing", "time %", "calls", "us/call",
                    "TFLOP/s", "GB/s", "peak %", "work", "size"));
    for (int i = 0; i < t->n_rows; i++) {
        if (t->rows[i].calls > 0) total_s += seconds_of(&t->rows[i]) * (double)t->rows[i].calls;
    }
    for (int id = 0; id < OP_ID_COUNT; id++) {
        for (int i = 0; i < t->n_rows; i++) {
            OpRow *r = &t->rows[i];
            if (r->op == op_desc((OpId)id) && r->calls > 0) TRY(print_row(r, peak, total_s, out));
        }
    }
    return OK;
}

/* ---- what the measured peak leaves to gain ---- */

/* Sets what a row takes of a step. MoE ops count with balanced routing only. Other ops ran in the
 * steps of both routings, so their calls are divided by twice as many steps. */
static void set_step_share(OpTimer *t, OpRow *r, const MeasuredPeak *peak)
{
    bool both = t->index_bytes > 0 && r->routing == ROUTING_ANY;
    if (r->routing == ROUTING_ZIPF || r->calls == 0) return;
    r->a_step = (double)r->calls / (double)(both ? 2 * t->steps : t->steps);
    r->ms = 1e3 * r->a_step * seconds_of(r);
    r->peak_ms = 1e3 * r->a_step * peak_seconds(r, peak);
    r->left_ms = fmax(r->ms - r->peak_ms, 0);
}

static int compare_left(const void *a, const void *b)
{
    const OpRow *x = *(const OpRow *const *)a, *y = *(const OpRow *const *)b;
    if (x->left_ms != y->left_ms) return x->left_ms < y->left_ms ? 1 : -1;
    return x < y ? -1 : 1;
}

/* A row of the second table; `op` is a name or a sum's title. */
static Status print_left(const char *op, const OpRow *r, double step_ms, Text *out)
{
    double percent = step_ms > 0 ? 100 / step_ms : 0;
    return text_printf(out, "%-20s %-*s %-7s %6.0f %9.3f %7.1f %9.3f %9.3f %7.1f\n", op,
                       BENCH_SHAPE_MAX - 16, r->shape, routing_names[r->routing], r->a_step, r->ms,
                       percent * r->ms, r->peak_ms, r->left_ms, percent * r->left_ms);
}

static void add_left(OpRow *sum, const OpRow *r)
{
    sum->a_step += r->a_step;
    sum->ms += r->ms;
    sum->peak_ms += r->peak_ms;
    sum->left_ms += r->left_ms;
}

/* Prints rows in order of what is left to gain, largest first. An op faster than the measured peak
 * has nothing to gain: its operands were in a cache. */
static Status print_peak(OpTimer *t, const MeasuredPeak *peak, const char *of, Text *out)
{
    const OpRow *order[ROWS_MAX] = { 0 };
    OpRow all = { .shape = "" }, small = { .shape = "" };
    for (int i = 0; i < t->n_rows; i++) {
        set_step_share(t, &t->rows[i], peak);
        add_left(&all, &t->rows[i]);
        order[i] = &t->rows[i];
    }
    qsort(order, (size_t)t->n_rows, sizeof *order, compare_left);
    TRY(text_printf(out, "\nwhat the measured peak leaves to gain, in ms of %s\n", of));
    TRY(text_printf(out, "%-20s %-*s %-7s %6s %9s %7s %9s %9s %7s\n", "op", BENCH_SHAPE_MAX - 16,
                    "shape", "routing", "calls", "ms", "time %", "at peak", "to gain", "gain %"));
    for (int i = 0; i < t->n_rows; i++) {
        if (order[i]->a_step == 0) continue;
        if (order[i]->left_ms < SMALL_SHARE * all.ms)
            add_left(&small, order[i]);
        else
            TRY(print_left(order[i]->op->name, order[i], all.ms, out));
    }
    TRY(print_left("others", &small, all.ms, out));
    TRY(print_left("all", &all, all.ms, out));
    if (t->untimed == 0) return OK;
    return text_printf(out, "%" PRId64 " calls more of a step were not timed\n", t->untimed);
}

Status bench_print_notes(const ExecNotes *notes, Text *out)
{
    if (notes->n > 0) TRY(text_printf(out, "\n"));
    for (int i = 0; i < notes->n; i++)
        TRY(text_printf(out, "%s: %s\n", notes->op[i], notes->what[i]));
    return OK;
}

/* ---- the model ---- */

/* One layer of each kind that the model has. */
/* Keeps a dense layer and a MoE layer, as far as the model has them. */
static Config one_of_each(const Config *c)
{
    Config o = *c;
    int64_t experts = config_moe_layers(c);
    o.moe_every = 1;
    o.model_dense_layers = experts < c->model_layers ? 1 : 0;
    o.model_layers = o.model_dense_layers + (experts > 0 ? 1 : 0);
    o.recompute_layers.n = 0;
    return o;
}

/* Opens the model; on a GPU with one micro-batch. If the whole model does not fit there, one layer
 * of each kind is enough, because an op's time does not depend on the number of layers. */
static Status open_model(BenchModel *m, const Config *c, Config *timed, bool *whole)
{
    *timed = *c;
    *whole = true;
    if (!engine_wants_gpu(c)) return bench_open(m, timed, NULL, (BenchOpen){ 0 });
    timed->train_batch = c->train_micro_batch;
    Status s = bench_open(m, timed, NULL, (BenchOpen){ 0 });
    if (s != ERR_ARG && s != ERR_MEMORY) return s;
    status_clear();
    *timed = one_of_each(timed);
    *whole = false;
    return bench_open(m, timed, NULL, (BenchOpen){ 0 });
}

static Status run_and_print(const Config *c, OpTimer *t, const MeasuredPeak *peak, Text *out)
{
    BenchModel m;
    Config timed;
    bool whole = true;
    char of[128];
    TRY(open_model(&m, c, &timed, &whole));
    Status s = time_ops(&m, t, t->steps);
    bench_close(&m);
    TRY(s);
    TRY(print_ops(t, &timed, peak, out));
    (void)snprintf(of, sizeof of, "a step of %" PRId64 " x %" PRId64 " tokens%s",
                   timed.train_batch / timed.train_micro_batch,
                   timed.train_micro_batch * timed.data_sequence,
                   whole ? "" : " with one layer of each kind: the whole model does not fit");
    TRY(print_peak(t, peak, of, out));
    return bench_print_notes(&t->notes, out);
}

Status bench_ops(const Config *c, int64_t steps, Arena *a, Text *out)
{
    Arena arena = { 0 };
    OpTimer *t = NULL;
    MeasuredPeak peak = { 0 };
    (void)a;
    TRY(peak_measure(c, train_threads(c), true, &peak));
    TRY(arena_init(&arena, "timer", MEM_HOST, (size_t)64 << 20));
    Status s = ARENA_ZEROED(&arena, 1, &t);
    if (s == OK) {
        t->arena = &arena;
        t->steps = steps;
        s = run_and_print(c, t, &peak, out);
    }
    arena_free(&arena);
    return s;
}
