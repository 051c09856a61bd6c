/* bench ops on the CPU: a row for every op that a step runs. */
#include "harness/test.h"

#include "bench/bench.h"

enum { STEPS = 3, LAYERS = 2, MICROS = 2 };

static const char *const small[] = {
    "model.vocab=131", "model.hidden=32",      "model.layers=2",         "data.sequence=32",
    "train.batch=4",   "moe.experts=4",        "train.micro_batch=2",    "run.device=cpu",
    "moe.top_k=2",     "model.dense_layers=1", "attention.kind=\"mla\"",
};

typedef struct Row {
    int rows, calls;
    double time, roof;
} Row;

/* What the table says of one op, or (NULL) of all: sums over its rows. A row ends in time %, calls,
 * us, TFLOP/s, GB/s, percent of the roof, work and size. */
static Row row_of(const char *table, const char *op)
{
    Row sum = { 0 };
    const char *line = strchr(strchr(table, '\n') + 1, '\n') + 1; /* behind roof and names */
    for (; *line != '\0'; line = strchr(line, '\n') + 1) {
        char name[64], last[256];
        double time = 0, us = 0, flops = 0, bytes = 0, roof = 0;
        int calls = 0;
        CHECK_INT(sscanf(line, "%63s", name), 1);
        if (op != NULL && strcmp(name, op) != 0) continue;
        CHECK(strcspn(line, "\n") > 70 && strcspn(line, "\n") < sizeof last);
        CHECK_INT(
            sscanf(line + 70, "%lf %d %lf %lf %lf %lf", &time, &calls, &us, &flops, &bytes, &roof),
            6);
        CHECK(calls >= STEPS && us >= 0 && flops >= 0 && bytes >= 0 && roof >= 0);
        sum.rows++;
        sum.calls += calls;
        sum.time += time;
        sum.roof += roof;
    }
    return sum;
}

static void every_op_has_its_rows_and_its_share_of_the_time(void **state)
{
    (void)state;
    static const char *const OP[] = { "embed_fwd", "moe_up_fwd", "adamw", "rope_mla_bwd" };
    Config c;
    Text out;
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(config_default(&c, &a));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        CHECK_OK(config_override(&c, &a, small[i]));
    CHECK_OK(config_check(&c));
    CHECK_OK(text_init(&out, &a));
    CHECK_OK(bench_ops(&c, STEPS, &a, &out));
    CHECK(strstr(out.data, "threads, f32, 64 tokens; roof: ") != NULL);
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
    CHECK(row_of(out.data, "attention_fwd").roof > 0);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_op_has_its_rows_and_its_share_of_the_time),
    };
    return TEST_RUN(tests);
}
