#include "harness/optest.h"
#include "kernels/core/libraries.h"
#include "kernels/norm/elementwise.h"
#include "kernels/optimizer/optimizer.h"

#include "engine/base/clock.h"

/* An op with a port of every direction, that does what a test asks for. */
typedef struct Probe {
    Tensor in, out, part, add, out_opt;
    Rows rows;
    int64_t bad_at;    /* element of `bad` that gets the value; -1: none */
    const Tensor *bad; /* a copy of one of the tensors above */
    double value;
    Status status;
} Probe;

static const OpPort probe_ports[] = {
    PORT(Probe, in, PORT_IN),
    PORT(Probe, out, PORT_OUT),
    PORT(Probe, part, PORT_OUT_PART),
    PORT(Probe, add, PORT_ADD),
    PORT(Probe, out_opt, PORT_OUT_OPT),
    PORT(Probe, rows, PORT_ROWS),
    PORTS_END,
};

static Status probe_check(const void *args)
{
    (void)args;
    return OK;
}

static OpCost probe_cost(const void *args)
{
    (void)args;
    return (OpCost){ .flops = 7, .bytes = 11, .comm_bytes = 13 };
}

static Status probe_cpu(Exec *ex, const void *args)
{
    (void)ex;
    const Probe *a = args;
    const Tensor *written[] = { &a->out, &a->add, &a->out_opt };
    for (int t = 0; t < 3; t++) {
        if (written[t]->data == NULL) continue;
        for (int64_t i = 0; i < tensor_elems(written[t]); i++) optest_set(written[t], i, 2);
    }
    if (a->bad_at >= 0) optest_set(a->bad, a->bad_at, a->value);
    if (a->status != OK) return FAIL(a->status, "probe fails on purpose");
    return OK;
}

static const OpDesc probe_desc = {
    .name = "probe",
    .args_bytes = sizeof(Probe),
    .ports = probe_ports,
    .check = probe_check,
    .cost = probe_cost,
    .cpu = probe_cpu,
};

/* 3000 elements: more than the guard looks at in one go, and no multiple of it. */
static Probe probe_make(OpTest *t, Dtype dtype)
{
    return (Probe){ .in = optest_normal(t, dtype, DIMS(300, 10)),
                    .out = optest_poisoned(t, dtype, DIMS(300, 10)),
                    .part = optest_poisoned(t, dtype, DIMS(300, 10)),
                    .add = optest_normal(t, dtype, DIMS(300, 10)),
                    .bad_at = -1 };
}

static Status probe_run(OpTest *t, const Probe *a) { return op_next(&t->ex, -1, &probe_desc, a); }

static const Backend *const backends[] = { &backend_cpu, &backend_count };

static void every_backend_has_every_entry(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const Backend *b = backends[i];
        CHECK(b->run != NULL && b->alloc != NULL && b->free != NULL);
        CHECK(b->copy != NULL && b->read != NULL && b->fill != NULL && b->sync != NULL);
        CHECK(b->find_bad != NULL);
        CHECK(b->streams != NULL && b->graphs != NULL);
        CHECK(!b->apart && !b->async && !b->captures);
    }
}

static void backends_without_memory_say_so(void **state)
{
    OpTest *t = *state;
    void *at = NULL;
    CHECK_FAILS(backend_count.alloc(&t->ex, MEM_HOST, 12, &at), ERR_UNSUPPORTED, "12 bytes");
    CHECK_FAILS(backend_cpu.alloc(&t->ex, MEM_DEVICE, 12, &at), ERR_UNSUPPORTED, "12 bytes");
    CHECK(at == NULL);
}

static void cpu_allocates_copies_and_fills(void **state)
{
    OpTest *t = *state;
    void *memory = NULL;
    CHECK_OK(backend_cpu.alloc(&t->ex, MEM_HOST, 1000, &memory));
    CHECK_INT((uintptr_t)memory % ARENA_ALIGN, 0);
    unsigned char *bytes = memory;
    CHECK_OK(backend_cpu.fill(&t->ex, bytes, 0x5A, 1000));
    for (int i = 0; i < 1000; i++) CHECK_INT(bytes[i], 0x5A);
    CHECK_OK(backend_cpu.copy(&t->ex, bytes, "abc", 3));
    CHECK(memcmp(bytes, "abc\x5A", 4) == 0);
    backend_cpu.free(&t->ex, MEM_HOST, memory, 1000);
}

static void cpu_events_are_always_reached_and_tell_the_time(void **state)
{
    OpTest *t = *state;
    const Streams *s = t->ex.backend->streams;
    Event from, to;
    double seconds = -1, before = clock_s();
    CHECK_OK(s->event_new(&t->ex, true, &from));
    CHECK_OK(s->event_new(&t->ex, true, &to));
    CHECK_OK(s->wait(&t->ex, &from, NULL));
    CHECK_OK(s->record(&t->ex, &from, NULL));
    for (double start = clock_s(); clock_s() - start < 2e-3;) continue;
    CHECK_OK(s->record(&t->ex, &to, NULL));
    double after = clock_s();
    CHECK_OK(s->wait(&t->ex, &to, NULL));
    CHECK_OK(s->elapsed_s(&t->ex, &from, &to, &seconds));
    CHECK(seconds > 1.99e-3 && seconds < after - before + 1e-6);
    CHECK_OK(t->ex.backend->sync(&t->ex));
}

/* What engine and bench do on every backend must do nothing on this one. */
static void the_host_has_no_streams_graphs_or_device(void **state)
{
    OpTest *t = *state;
    void *stream = t;
    Graph g = { .nodes = 3 };
    char bus_id[GPU_BUS_ID_MAX] = "x";
    size_t bytes = 1;
    double start = clock_s();
    const Streams *s = t->ex.backend->streams;
    CHECK(s->of_lane(&t->ex, LANE_COMM) == NULL);
    CHECK_OK(s->add(&t->ex, &stream));
    CHECK(stream == NULL);
    CHECK_OK(s->delay(&t->ex, 3600));
    CHECK(clock_s() - start < 60);
    CHECK_FAILS(t->ex.backend->graphs->begin(&t->ex), ERR_UNSUPPORTED, "there are no graphs");
    CHECK_FAILS(t->ex.backend->graphs->end(&t->ex, &g), ERR_UNSUPPORTED, "there are no graphs");
    CHECK_FAILS(t->ex.backend->graphs->launch(&t->ex, &g), ERR_UNSUPPORTED, "there are no graphs");
    t->ex.backend->graphs->free(&g);
    CHECK_INT(g.nodes, 0);
    CHECK_OK(exec_bus_id(&t->ex, bus_id));
    CHECK_TEXT(bus_id, "");
    CHECK_OK(exec_used_bytes(&t->ex, &bytes));
    CHECK_INT(bytes, 0);
    CHECK(exec_choices(&t->ex) == NULL);
    CHECK_OK(exec_tune(&t->ex, true));
    CHECK_OK(exec_tune(&t->ex, false));
}

static int closed;

static void note_close(Exec *ex)
{
    CHECK(ex->scratch != NULL);
    closed++;
}

/* Once, and before the Exec is forgotten. */
static void exec_free_closes_the_backend(void **state)
{
    (void)state;
    Arena scratch = { 0 };
    Backend backend = backend_count;
    backend.close = note_close;
    Exec ex = { .backend = &backend, .scratch = &scratch };
    exec_push(&ex, &backend_guard);
    exec_free(&ex);
    CHECK_INT(closed, 1);
    exec_free(&ex);
    CHECK_INT(closed, 1);
}

static void an_exec_runs_on_the_cpu_and_knows_no_layer(void **state)
{
    (void)state;
    Arena arena, scratch;
    Exec ex;
    CHECK_OK(arena_init(&arena, "arena", MEM_HOST, 1 << 20));
    CHECK_OK(arena_init(&scratch, "scratch", MEM_HOST, 1 << 20));
    CHECK_OK(exec_init(&ex, &arena, &scratch, 3, CPU_AUTO));
    CHECK(ex.depth == 0 && ex.backend == &backend_cpu);
    CHECK(ex.gemm != NULL && ex.scratch == &scratch);
    CHECK_INT(ex.threads, 3);
    CHECK_INT(ex.layer, -1);
    exec_free(&ex);
    exec_free(&ex);
    arena_free(&scratch);
    arena_free(&arena);
}

static Status pass_on(Exec *ex, int level, const OpDesc *op, const void *args)
{
    return op_next(ex, level, op, args);
}

static const Decorator passes_on = { .run = pass_on };

static void a_decorator_hands_on_what_the_guard_found(void **state)
{
    OpTest *t = *state;
    exec_push(&t->ex, &passes_on);
    Probe a = probe_make(t, DTYPE_F32);
    a.bad = &a.add, a.bad_at = 7, a.value = NAN;
    CHECK_FAILS(probe_run(t, &a), ERR_NUMERIC, "probe wrote nan into add[7]");
}

static void decorators_go_to_the_front_and_come_off_there(void **state)
{
    OpTest *t = *state;
    exec_push(&t->ex, &passes_on);
    CHECK_INT(t->ex.depth, 2);
    CHECK(t->ex.front[0] == &passes_on && t->ex.front[1] == &backend_guard);
    exec_pop(&t->ex);
    CHECK_INT(t->ex.depth, 1);
    CHECK(t->ex.front[0] == &backend_guard && t->ex.backend == &backend_cpu);
}

/* count */

/* Addresses of a counting arena fault when they are touched, so this also shows that nothing is. */
static void count_adds_up_costs_and_touches_nothing(void **state)
{
    (void)state;
    Arena arena, scratch;
    CHECK_OK(arena_init(&arena, "arena", MEM_COUNT, (size_t)1 << 40));
    CHECK_OK(arena_init(&scratch, "scratch", MEM_COUNT, (size_t)1 << 40));
    Exec ex = { .backend = &backend_count, .scratch = &scratch, .threads = 2 };
    Add add_args = { 0 };
    SquareSum sum_args = { 0 };
    CHECK_OK(tensor_new2(&arena, DTYPE_BF16, 1 << 20, 3, &add_args.x));
    CHECK_OK(tensor_new2(&arena, DTYPE_F32, 1 << 20, 3, &add_args.y));
    CHECK_OK(tensor_new1(&arena, DTYPE_F32, 3 << 20, &sum_args.x));
    CHECK_OK(tensor_new1(&arena, DTYPE_F32, 1, &sum_args.sum));
    CHECK_OK(add(&ex, add_args));
    CHECK_OK(square_sum(&ex, sum_args));
    double n = 3 << 20;
    CHECK_INT(ex.totals.ops, 2);
    CHECK_NEAR(ex.totals.flops, n + 2 * n, 0);
    CHECK_NEAR(ex.totals.bytes, (2 + 4 + 4) * n + 4 * n, 0);
    CHECK(scratch.peak_bytes > 0);
    CHECK_INT(scratch.used_bytes, 0);
    CHECK_OK(backend_count.copy(&ex, add_args.y.data, add_args.x.data, 100));
    CHECK_OK(backend_count.fill(&ex, add_args.y.data, 0, 100));
    arena_free(&scratch);
    arena_free(&arena);
}

static void count_adds_communication(void **state)
{
    (void)state;
    Exec ex = { .backend = &backend_count };
    Probe a = { 0 };
    CHECK_OK(backend_count.run(&ex, &probe_desc, &a));
    CHECK_OK(backend_count.run(&ex, &probe_desc, &a));
    CHECK_NEAR(ex.totals.comm_bytes, 26, 0);
    CHECK_NEAR(ex.totals.flops, 14, 0);
}

/* guard */

static void the_guard_lets_finite_outputs_pass(void **state)
{
    OpTest *t = *state;
    Probe a = probe_make(t, DTYPE_BF16);
    CHECK_OK(probe_run(t, &a));
    CHECK_NEAR(optest_get(&a.out, 2999), 2, 0);
}

static void the_guard_names_step_layer_op_port_and_place(void **state)
{
    OpTest *t = *state;
    t->ex.step = 41, t->ex.layer = 6;
    Probe a = probe_make(t, DTYPE_F32);
    a.bad = &a.out, a.bad_at = 2345, a.value = INFINITY;
    CHECK_FAILS(probe_run(t, &a), ERR_NUMERIC, "step 41, layer 6: probe wrote inf into out[2345]");
    CHECK_FAILS(probe_run(t, &a), ERR_NUMERIC, "(300, 10) f32");
}

/* Ports in turn, first and last element, both types and all three kinds of value. */
static void the_guard_finds_one_bad_value_anywhere(void **state)
{
    OpTest *t = *state;
    const Dtype types[] = { DTYPE_F32, DTYPE_BF16 };
    const double values[] = { NAN, INFINITY, -INFINITY };
    const int64_t places[] = { 0, 1023, 1024, 2999 };
    for (int i = 0; i < 2 * 3 * 4 * 3; i++) {
        Probe a = probe_make(t, types[i % 2]);
        a.out_opt = optest_poisoned(t, types[i % 2], DIMS(3000));
        const Tensor *ports[] = { &a.out, &a.add, &a.out_opt };
        a.bad = ports[i / 2 % 3], a.value = values[i / 6 % 3], a.bad_at = places[i / 18];
        const char *names[] = { "out[", "add[", "out_opt[" };
        CHECK_FAILS(probe_run(t, &a), ERR_NUMERIC, names[i / 2 % 3]);
    }
}

static void the_guard_passes_over_windows_and_inputs(void **state)
{
    OpTest *t = *state;
    Probe a = probe_make(t, DTYPE_F32);
    a.bad = &a.in, a.bad_at = 5, a.value = NAN;
    CHECK(isnan(optest_get(&a.part, 0)));
    CHECK_OK(probe_run(t, &a));
}

/* Of 300 rows 120 count: what lies behind them is nobody's. */
static void the_guard_searches_the_rows_that_count(void **state)
{
    OpTest *t = *state;
    static const struct {
        int64_t bad_at;
        bool found;
    } c[] = { { 1199, true }, { 1200, false }, { 2999, false } };
    exec_push(&t->ex, &backend_guard);
    const int32_t live = 120;
    for (int i = 0; i < 3; i++) {
        Probe a = probe_make(t, DTYPE_F32);
        a.rows = (Rows){ .bound = 300, .expected = 120, .device = &live };
        a.bad = &a.out, a.bad_at = c[i].bad_at, a.value = (double)NAN;
        CHECK((probe_run(t, &a) == ERR_NUMERIC) == c[i].found);
    }
}

static void the_guard_hands_on_failures_from_below(void **state)
{
    OpTest *t = *state;
    Probe a = probe_make(t, DTYPE_F32);
    a.bad = &a.out, a.bad_at = 0, a.value = NAN, a.status = ERR_ARG;
    CHECK_FAILS(probe_run(t, &a), ERR_ARG, "probe fails on purpose");
}

static void the_guard_sees_through_op_run(void **state)
{
    OpTest *t = *state;
    Add a = { .x = optest_normal(t, DTYPE_F32, DIMS(4, 2)),
              .y = optest_normal(t, DTYPE_F32, DIMS(4, 2)) };
    optest_set(&a.x, 5, NAN);
    CHECK_FAILS(add(&t->ex, a), ERR_NUMERIC, "add wrote nan into y[5] of (4, 2) f32");
    CHECK_INT(t->scratch.used_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_backend_has_every_entry),
        OP_TEST(backends_without_memory_say_so, 1),
        OP_TEST(cpu_allocates_copies_and_fills, 1),
        OP_TEST(cpu_events_are_always_reached_and_tell_the_time, 1),
        OP_TEST(the_host_has_no_streams_graphs_or_device, 1),
        TEST(exec_free_closes_the_backend),
        TEST(an_exec_runs_on_the_cpu_and_knows_no_layer),
        OP_TEST(decorators_go_to_the_front_and_come_off_there, 1),
        OP_TEST(a_decorator_hands_on_what_the_guard_found, 1),
        TEST(count_adds_up_costs_and_touches_nothing),
        TEST(count_adds_communication),
        OP_TEST(the_guard_lets_finite_outputs_pass, 1),
        OP_TEST(the_guard_names_step_layer_op_port_and_place, 1),
        OP_TEST(the_guard_finds_one_bad_value_anywhere, 1),
        OP_TEST(the_guard_passes_over_windows_and_inputs, 1),
        OP_TEST(the_guard_searches_the_rows_that_count, 1),
        OP_TEST(the_guard_hands_on_failures_from_below, 1),
        OP_TEST(the_guard_sees_through_op_run, 1),
    };
    return TEST_RUN(tests);
}
