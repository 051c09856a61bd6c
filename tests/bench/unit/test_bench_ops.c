/* bench ops on the CPU: a row for every op that a step runs, and what the measured peak leaves to gain. */
#include "harness/test.h"

#include "bench/bench.h"
#include "calibrate/calibrate.h"
#include "engine/base/log.h"
#include "hardware/hardware.h"
#include "kernels/core/op.h"

enum { STEPS = 3, LAYERS = 2, MICROS = 2 };

static const char *const small[] = {
    "model.vocab=131", "model.hidden=32",      "model.layers=2",         "data.sequence=32",
    "train.batch=4",   "moe.experts=4",        "train.micro_batch=2",    "run.device=cpu",
    "moe.top_k=2",     "model.dense_layers=1", "attention.kind=\"mla\"",
};

typedef struct Row {
    int rows, calls;
    double time, peak;
} Row;

/* What the table says of one op, or (NULL) of all: sums over its rows. A row ends in time %, calls,
 * us, TFLOP/s, GB/s, percent of the peak, work and size. */
static Row row_of(const char *table, const char *op)
{
    Row sum = { 0 };
    const char *line = strchr(strchr(table, '\n') + 1, '\n') + 1; /* behind peak and names */
    for (; *line != '\n'; line = strchr(line, '\n') + 1) { /* behind an empty one: the peak's */
        char name[64], last[256];
        double time = 0, us = 0, flops = 0, bytes = 0, peak = 0;
        int calls = 0;
        CHECK_INT(sscanf(line, "%63s", name), 1);
        if (op != NULL && strcmp(name, op) != 0) continue;
        CHECK(strcspn(line, "\n") > 70 && strcspn(line, "\n") < sizeof last);
        CHECK_INT(
            sscanf(line + 70, "%lf %d %lf %lf %lf %lf", &time, &calls, &us, &flops, &bytes, &peak),
            6);
        CHECK(calls >= STEPS && us >= 0 && flops >= 0 && bytes >= 0 && peak >= 0);
        sum.rows++;
        sum.calls += calls;
        sum.time += time;
        sum.peak += peak;
    }
    return sum;
}

static void run(Arena *a, const char *more, Text *out)
{
    Config c;
    CHECK_OK(arena_init(a, "test", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(config_default(&c, a));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        CHECK_OK(config_override(&c, a, small[i]));
    CHECK_OK(config_override(&c, a, more));
    CHECK_OK(config_check(&c));
    CHECK_OK(text_init(out, a));
    CHECK_OK(bench_ops(&c, STEPS, a, out));
}

static void every_op_has_its_rows_and_its_share_of_the_time(void **state)
{
    (void)state;
    static const char *const OP[] = { "embed_fwd", "moe_up_fwd", "adamw", "rope_mla_bwd" };
    Text out;
    Arena a = { 0 };
    run(&a, "run.compute=f32", &out);
    CHECK(strstr(out.data, "threads, f32, 64 tokens; measured peak: ") != NULL);
    for (size_t i = 0; i < sizeof OP / sizeof *OP; i++) {
        if (row_of(out.data, OP[i]).rows < 1) fail_msg("no row of %s in\n%s", OP[i], out.data);
    }
    CHECK_INT(row_of(out.data, "attention_fwd").rows, 1);
    CHECK_INT(row_of(out.data, "attention_fwd").calls, STEPS * LAYERS * MICROS);
    CHECK_INT(row_of(out.data, "moe_up_fwd").calls, STEPS * MICROS);
    CHECK_INT(row_of(out.data, "rope_gqa_fwd").rows, 0); /* only what the model runs */
    /* forward with weights and residual, backward without: other bytes, so not one row */
    CHECK_INT(row_of(out.data, "moe_combine").rows, 2);
    CHECK_INT(row_of(out.data, "moe_combine").calls, 2 * STEPS * MICROS);
    CHECK_NEAR(row_of(out.data, NULL).time, 100, 3); /* each row is rounded to a tenth */
    CHECK(row_of(out.data, "attention_fwd").peak > 0);
    arena_free(&a);
}

/* A line of the peak's table: what stands behind shape and routing. */
typedef struct Left {
    char op[64], shape[64];
    double calls, ms, time, at_peak, left, gain;
} Left;

static const char *next_left(const char *line, Left *out)
{
    CHECK(strcspn(line, "\n") > 70);
    CHECK_INT(sscanf(line, "%63s", out->op), 1);
    CHECK(snprintf(out->shape, sizeof out->shape, "%.40s", line + 21) > 0);
    CHECK_INT(sscanf(line + 70, "%lf %lf %lf %lf %lf %lf", &out->calls, &out->ms, &out->time,
                     &out->at_peak, &out->left, &out->gain),
              6);
    return strchr(line, '\n') + 1;
}

/* The op's row of the first table with the same shape says the same of a call. */
static void check_call(const char *table, const Left *l)
{
    double us = 0, peak = 0;
    int calls = 0;
    bool found = false;
    for (const char *line = table; *line != '\n'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, l->op, strlen(l->op)) != 0 || strncmp(line + 21, l->shape, 40) != 0)
            continue;
        CHECK_INT(sscanf(line + 70, "%*f %d %lf %*f %*f %lf", &calls, &us, &peak), 3);
        found |= fabs(calls / (double)STEPS - l->calls) < 0.5 &&
                 fabs(l->calls * us * 1e-3 - l->ms) <= 1e-3 + 1e-4 * l->calls &&
                 fabs(l->ms * peak / 100 - l->at_peak) <= 1e-3 + 1e-3 * l->ms;
    }
    if (!found)
        fail_msg("no row of %s %s with %g calls of %g ms", l->op, l->shape, l->calls, l->ms);
}

/* The ms that the rows of the first table leave, those faster than the peak nothing. Each row's share
 * of the peak is that of the nearer one, products or memory. */
static double left_of_rows(const char *table)
{
    double flops_peak = 0, bytes_peak = 0, left = 0;
    CHECK_INT(sscanf(strstr(table, "measured peak: "),
                     "measured peak: %lf TFLOP/s (large product), %lf", &flops_peak, &bytes_peak),
              2);
    const char *line = strchr(strchr(table, '\n') + 1, '\n') + 1;
    for (; *line != '\n'; line = strchr(line, '\n') + 1) {
        double calls = 0, us = 0, flops = 0, bytes = 0, peak = 0;
        CHECK_INT(sscanf(line + 70, "%*f %lf %lf %lf %lf %lf", &calls, &us, &flops, &bytes, &peak),
                  5);
        double nearer = 100 * fmax(flops / flops_peak, bytes / bytes_peak);
        double rounded = 100 * (0.1 / bytes_peak + 1e-4 / flops_peak); /* as they are printed */
        if (us > 1) CHECK_NEAR(peak, nearer, 0.5 + rounded + 0.03 * nearer);
        left += calls / STEPS * us * 1e-3 * fmax(1 - peak / 100, 0);
    }
    return left;
}

/* The largest gain stands first, rows add up, and a row is its calls of a step. */
static void what_the_peak_leaves_is_told_op_by_op(void **state)
{
    (void)state;
    Arena a = { 0 };
    Text out;
    run(&a, "run.compute=f32", &out);
    const char *line =
        strstr(out.data, "\nwhat the measured peak leaves to gain, in ms of a step of 2 x 64 "
                         "tokens\n");
    CHECK(line != NULL);
    line = strchr(strchr(line + 1, '\n') + 1, '\n') + 1;
    Left l = { .op = "" }, sum = { .op = "" };
    double before = 1e30;
    int rows = 0;
    for (line = next_left(line, &l); strcmp(l.op, "all") != 0; line = next_left(line, &l)) {
        sum.calls += l.calls, sum.ms += l.ms, sum.at_peak += l.at_peak, sum.left += l.left;
        sum.time += l.time, sum.gain += l.gain;
        if (strcmp(l.op, "others") == 0) continue;
        CHECK(l.left <= before);
        CHECK_NEAR(l.left, fmax(l.ms - l.at_peak, 0), 2e-3);
        check_call(out.data, &l);
        before = l.left;
        rows++;
    }
    CHECK(rows > 0 && *line == '\0');
    CHECK_NEAR(l.calls, sum.calls, 0);
    CHECK_NEAR(l.ms, sum.ms, 0.1);
    CHECK_NEAR(l.at_peak, sum.at_peak, 0.1);
    CHECK_NEAR(l.left, sum.left, 0.1);
    CHECK_NEAR(l.left, left_of_rows(out.data), 0.05 + 0.01 * l.left);
    CHECK_NEAR(l.time, 100, 0.1);
    CHECK_NEAR(sum.time, 100, 3);
    CHECK_NEAR(sum.gain, l.gain, 3);
    arena_free(&a);
}

/* The table is what `plan calibrate` reads: each kind of work has rates behind it. Sequences of so few
 * tokens are not the fast kernel's. */
static void the_table_is_a_calibration(void **state)
{
    (void)state;
    static const OpWork works[] = { WORK_GEMM,      WORK_GEMM_MIXED,       WORK_HEAD,
                                    WORK_GROUPED,   WORK_GROUPED_INPUT,    WORK_GROUPED_WEIGHT,
                                    WORK_ATTENTION, WORK_ATTENTION_ORDERED };
    Arena a = { 0 }, b = { 0 };
    Text out;
    Hardware h;
    run(&a, "run.compute=bf16", &out);
    CHECK(strstr(out.data, "gemm.f32") == NULL); /* all that is left in f32 meets bf16 */
    CHECK_OK(arena_init(&b, "hardware", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(hardware_load(&h, &b, "h200"));
    CHECK_OK(calibrate("bench.txt", out.data, &b, &h));
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        const HardwareCurve *curve = hardware_curve(&h, works[i], HARDWARE_BF16);
        CHECK(curve->n > 0 && curve->at[0].tflops < 10); /* this machine's */
        CHECK(strstr(*hardware_source(&h, works[i]), "bench.txt") != NULL);
    }
    arena_free(&b);
    arena_free(&a);
}

/* A GPU's file may lack the section, which a bench of such a model then writes. */
static void the_table_calibrates_the_gated_delta_rule(void **state)
{
    (void)state;
    Arena a = { 0 }, b = { 0 };
    Text out;
    Hardware h;
    double assumed = 0, measured = 0;
    run(&a, "delta.full_every=2", &out);
    CHECK_OK(arena_init(&b, "hardware", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(hardware_load(&h, &b, "h200"));
    CHECK_OK(hardware_rate(&h, WORK_DELTA, HARDWARE_F32, 32, &assumed));
    CHECK_OK(calibrate("bench.txt", out.data, &b, &h));
    CHECK_OK(hardware_rate(&h, WORK_DELTA, HARDWARE_F32, 32, &measured));
    CHECK(measured > 0 && measured < assumed); /* this machine's */
    CHECK(strstr(*hardware_source(&h, WORK_DELTA), "bench.txt") != NULL);
    arena_free(&b);
    arena_free(&a);
}

static void what_ops_had_to_say_is_told_once(void **state)
{
    (void)state;
    Arena a = { 0 };
    Text out;
    Exec ex = { 0 };
    char gone[] = "a slower kernel runs: rows are odd";
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(text_init(&out, &a));
    CHECK_OK(bench_print_notes(&ex.notes, &out));
    CHECK_INT(out.used, 0);
    log_set_level(LOG_WARN);
    exec_note_once(&ex, "moe_up_fwd", gone);
    memset(gone, 'x', sizeof gone - 1);
    exec_note_once(&ex, "swiglu_fwd", "a slower kernel runs");
    exec_note_once(&ex, "moe_up_fwd", "another one");
    CHECK_OK(bench_print_notes(&ex.notes, &out));
    CHECK_TEXT(out.data, "\nmoe_up_fwd: a slower kernel runs: rows are odd\n"
                         "swiglu_fwd: a slower kernel runs\n");
    for (int i = 0; i < OP_ID_COUNT; i++) exec_note_once(&ex, op_desc((OpId)i)->name, "");
    CHECK_INT(ex.notes.n, OP_ID_COUNT);
    log_set_level(LOG_INFO);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_op_has_its_rows_and_its_share_of_the_time),
        TEST(what_the_peak_leaves_is_told_op_by_op),
        TEST(the_table_is_a_calibration),
        TEST(the_table_calibrates_the_gated_delta_rule),
        TEST(what_ops_had_to_say_is_told_once),
    };
    return TEST_RUN(tests);
}
