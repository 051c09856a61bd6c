/* bench ops on a GPU: a row for every op that a step runs, with numbers that can be. Skipped where
 * there is no GPU. */
#include "bench/bench.h"
#include "comm/comm.h"
#include "contention/contention.h"
#include "harness/gpu.h"
#include "harness/test.h"

#include <stdio.h>

enum { STEPS = 3 };

static const char *const small[] = {
    "model.vocab=1031", "model.hidden=256", "model.layers=4",      "data.sequence=128",
    "train.batch=8",    "moe.experts=8",    "train.micro_batch=2", "run.device=gpu",
    "run.tune=false",   "moe.top_k=2",      "run.compute=bf16",
};

static const char *run(Arena *a, const char *more)
{
    Config c;
    Text out;
    CHECK_OK(config_default(&c, a));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        CHECK_OK(config_override(&c, a, small[i]));
    }
    CHECK_OK(config_override(&c, a, more));
    CHECK_OK(config_check(&c));
    CHECK_OK(text_init(&out, a));
    CHECK_OK(bench_ops(&c, STEPS, a, &out));
    return out.data;
}

/* Rows of one op; each ends with calls, us, TFLOP/s, GB/s and percent of the peak. */
static int rows_of(const char *table, const char *op, const char *routing)
{
    int n = 0;
    for (const char *line = table; *line != '\n'; line = strchr(line, '\n') + 1) {
        size_t name = strlen(op), width = strcspn(line, "\n");
        char text[256];
        double calls = 0, us = 0, flops = 0, bytes = 0, peak = 0;
        if (strncmp(line, op, name) != 0 || line[name] != ' ') continue;
        CHECK(width < sizeof text && width > 80);
        (void)snprintf(text, sizeof text, "%.*s", (int)width, line);
        char *tail = text + width - 45 - 32; /* work and size come last */
        CHECK_INT(sscanf(tail, "%lf %lf %lf %lf %lf", &calls, &us, &flops, &bytes, &peak), 5);
        CHECK(calls >= STEPS && us > 0.5 && us < 1e6 && flops >= 0 && bytes >= 0);
        CHECK(peak >= 0 && peak < 200);
        if (*routing != '\0' && strstr(text, routing) == NULL) continue;
        n++;
    }
    return n;
}

static void every_op_of_a_step_has_its_rows(void **state)
{
    NEEDS_GPU();
    static const char *const once[] = { "attention_fwd", "attention_bwd", "embed_fwd", "embed_bwd",
                                        "head_loss",     "route_fwd",     "route_bwd", "adamw" };
    static const char *const routed[] = { "moe_sort",         "moe_up_fwd",
                                          "moe_down_fwd",     "moe_down_bwd_input",
                                          "moe_up_bwd_input", "moe_down_bwd_weight",
                                          "moe_up_bwd_weight" };
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 28));
    const char *table = run(&a, "model.dense_layers=1");
    CHECK(strstr(table, "measured peak: ") != NULL);
    for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
        if (rows_of(table, once[i], "") < 1) fail_msg("no row of %s in\n%s", once[i], table);
    }
    for (size_t i = 0; i < sizeof routed / sizeof *routed; i++) {
        CHECK_INT(rows_of(table, routed[i], "even"), 1);
        CHECK_INT(rows_of(table, routed[i], "zipf"), 1);
    }
    CHECK(rows_of(table, "linear_fwd", "") >= 6);
    arena_free(&a);
}

static void a_dense_model_has_no_rows_of_experts(void **state)
{
    NEEDS_GPU();
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 28));
    const char *table = run(&a, "model.dense_layers=4");
    CHECK_INT(rows_of(table, "moe_up_fwd", ""), 0);
    CHECK_INT(rows_of(table, "swiglu_fwd", ""), 1);
    arena_free(&a);
}

static int times_in(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part)) != NULL) text++, n++;
    return n;
}

/* Widths that do not fill 16 bytes: each op that runs another kernel for it says so, once. */
static void a_slower_kernel_is_said_once_by_op(void **state)
{
    NEEDS_GPU();
    static const char *const odd[] = { "\nhead_loss: a slower kernel runs", /* 1031 logits */
                                       "\nswiglu_fwd: a slower kernel runs",
                                       "\nswiglu_bwd: a slower kernel runs" };
    static const char *const on_hopper[] = { "\nmoe_down_fwd: a slower kernel runs",
                                             "\nmoe_down_bwd_weight: a slower kernel runs" };
    Arena a = { 0 };
    GpuInfo info;
    CHECK_OK(gpu_info(0, &info));
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 28));
    const char *table = run(&a, "moe.ffn=100");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) CHECK_INT(times_in(table, odd[i]), 1);
    for (size_t i = 0;
         i < sizeof on_hopper / sizeof *on_hopper && gpu_code_lacks() == NULL && info.major == 9;
         i++)
        CHECK_INT(times_in(table, on_hopper[i]), 1);
    CHECK_INT(times_in(run(&a, "model.vocab=1032"), "a slower kernel runs"), 0);
    arena_free(&a);
}

/* A step of the whole model is held against the peak: all four layers, not one of each kind. */
static void the_peak_has_a_step_of_all_layers(void **state)
{
    NEEDS_GPU();
    Arena a = { 0 };
    char op[64];
    double calls = 0, ms = 0, time = 0, peak = 0, left = 0, gain = 0;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 28));
    const char *table = run(&a, "model.dense_layers=1");
    const char *line =
        strstr(table, "\nwhat the measured peak leaves to gain, in ms of a step of 1 x 256 ");
    CHECK(line != NULL);
    for (line = strchr(line + 1, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        if (sscanf(line, "%63s", op) != 1 || strcmp(op, "attention_bwd") != 0) continue;
        CHECK_INT(
            sscanf(line + 71, "%lf %lf %lf %lf %lf %lf", &calls, &ms, &time, &peak, &left, &gain),
            6);
        CHECK_NEAR(calls, 4, 0);
        CHECK_NEAR(left, fmax(ms - peak, 0), 2e-3);
    }
    CHECK(calls > 0); /* it is far above the peak at this size */
    arena_free(&a);
}

/* ---- between GPUs ---- */

enum { RANKS_MAX = 8 };

typedef struct Ranks {
    Config config;
    enum { COMM, STEPS_EXPOSED, CONTENTION } what;
    Text out; /* of rank 0 */
} Ranks;

static Status on_gpu(void *state, Comm *world)
{
    Ranks *r = state;
    Config own = r->config;
    Arena a = { 0 };
    Text out;
    own.run_gpu = world->rank;
    TRY(arena_init(&a, "test", MEM_HOST, (size_t)1 << 28));
    Status s = text_init(&out, &a);
    if (s == OK && r->what == STEPS_EXPOSED)
        s = bench_step(&own, world, &(BenchStep){ .steps = STEPS, .json = true, .exposed = true },
                       &out);
    if (s == OK && r->what == COMM)
        s = bench_comm(&own, world, &(BenchComm){ .shrink = 16, .json = true }, &out);
    if (s == OK && r->what == CONTENTION)
        s = bench_contention(&own, world, &(BenchContention){ .shrink = 8 }, &out);
    if (s == OK && world->rank == 0) s = text_append(&r->out, out.data, out.used);
    arena_free(&a);
    return s;
}

static void run_ranks(Arena *a, Ranks *r, int ranks, const char *mesh)
{
    int failed = -1;
    CHECK_OK(arena_init(a, "test", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(config_default(&r->config, a));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        CHECK_OK(config_override(&r->config, a, small[i]));
    CHECK_OK(config_override(&r->config, a, mesh));
    CHECK_OK(config_override(&r->config, a, "train.micro_batch=1"));
    CHECK_OK(config_check(&r->config));
    CHECK_OK(text_init(&r->out, a));
    CHECK_OK(comm_threads(ranks, 60, on_gpu, r, &failed));
}

static int gpus(void) { return gpu_devices() < RANKS_MAX ? gpu_devices() : RANKS_MAX; }

/* Each row is timed alone and in a graph; what an exchange brings back is looked at there. */
static void every_call_between_gpus_has_its_row(void **state)
{
    NEEDS_GPUS(2);
    static const char *const hosts[] = { "mesh.ranks_per_host=0", "mesh.ranks_per_host=2" };
    for (int ranks = 2; ranks <= gpus(); ranks *= 2) {
        for (int h = 0; h < (ranks == 4 ? 2 : 1); h++) {
            Arena a = { 0 };
            Ranks r = { .what = COMM };
            run_ranks(&a, &r, ranks, hosts[h]);
            int rows = times_in(r.out.data, "\"kind\":\"row\"");
            CHECK(times_in(r.out.data, "\"graph_s\":") == rows);
            CHECK(rows >= 5 * 6 + 1 + 2 * 2 * 2 * (h == 1 ? 3 : 2));
            CHECK(strstr(r.out.data, ":null") == NULL);
            arena_free(&a);
        }
    }
}

/* Calls go on for longer than the ops beside them, and hold multiprocessors. */
static void ops_are_timed_beside_calls(void **state)
{
    NEEDS_GPUS(2);
    Arena a = { 0 };
    Ranks r = { .what = CONTENTION };
    run_ranks(&a, &r, 2, "run.compute=bf16");
    CHECK(strstr(r.out.data, "; a collective holds 24 of ") != NULL);
    CHECK(times_in(r.out.data, ".bf16\n") == 7);
    CHECK(strstr(r.out.data, "too low") == NULL);
    arena_free(&a);
}

/* A captured step without traffic is finite, or bench step says so. */
static void steps_without_traffic_run_on_gpus(void **state)
{
    NEEDS_GPUS(2);
    static const char *const mesh[] = { "mesh.ep=2", "mesh.zero=3", "mesh.pp=2", "mesh.cp=2" };
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) {
        Arena a = { 0 };
        Ranks r = { .what = STEPS_EXPOSED };
        run_ranks(&a, &r, 2, mesh[i]);
        CHECK(times_in(r.out.data, "\"without_p50_s\":") >= 1);
        static const char key[] = "\"waiting_most_s\":";
        const char *at = strstr(r.out.data, key);
        CHECK(at != NULL);
        double most = strtod(at + strlen(key), NULL);
        CHECK(most > -1 && most < 1); /* by the GPU's clock, of steps of milliseconds */
        if (strcmp(mesh[i], "mesh.pp=2") == 0) CHECK(most > 0);
        arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_op_of_a_step_has_its_rows),     TEST(a_dense_model_has_no_rows_of_experts),
        TEST(a_slower_kernel_is_said_once_by_op),  TEST(the_peak_has_a_step_of_all_layers),
        TEST(every_call_between_gpus_has_its_row), TEST(ops_are_timed_beside_calls),
        TEST(steps_without_traffic_run_on_gpus),
    };
    return TEST_RUN(tests);
}
