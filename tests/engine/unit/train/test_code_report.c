/* The report on 8-bit numbers: shares of zeros and of largest codes, by tensor. */
#include "engine/backend/backend.h"
#include "engine/train/code_report.h"
#include "harness/test.h"
#include "kernels/moe/swiglu.h"
#include "kernels/quant/quant.h"

#include <string.h>

enum { N = 4, D = 256 };

typedef struct Bench {
    Arena arena, scratch;
    Exec ex;
    CodeReport report;
    Tensor x;
    Operand rows, columns;
} Bench;

static void open_bench(Bench *b)
{
    *b = (Bench){ 0 };
    CHECK_OK(arena_init(&b->arena, "tensors", MEM_HOST, (size_t)1 << 24));
    CHECK_OK(arena_init(&b->scratch, "scratch", MEM_HOST, (size_t)1 << 24));
    CHECK_OK(exec_init(&b->ex, &b->arena, &b->scratch, 1, CPU_AUTO));
    CHECK_OK(code_report_open(&b->report));
    CHECK_OK(tensor_new2(&b->arena, DTYPE_F32, N, D, &b->x));
    CHECK_OK(operand_new(&b->arena, OPERAND_1X128, DTYPE_E4M3, 2, (int64_t[]){ N, D }, &b->rows));
    CHECK_OK(
        operand_new(&b->arena, OPERAND_1X128, DTYPE_E4M3, 2, (int64_t[]){ D, N }, &b->columns));
    b->columns.transposed = true;
}

static void close_bench(Bench *b)
{
    code_report_close(&b->report);
    exec_free(&b->ex);
    arena_free(&b->scratch);
    arena_free(&b->arena);
}

/* In each block of 128 one number is 1, one in the largest binade, every second one 0, and one too
 * small for the scale. */
static void fill(float *x)
{
    for (int i = 0; i < N * D; i++) x[i] = i % 2 == 0 ? 0.0F : 0.25F;
    for (int i = 0; i < N * D; i += 128) x[i + 1] = 1, x[i + 3] = 1e-9F, x[i + 5] = 0.7F;
}

static const CodeShares *shares(const Bench *b, int layer, const char *of)
{
    for (int i = 0; i < b->report.n; i++) {
        const CodeShares *s = &b->report.at[i];
        if (s->layer == layer && s->of != NULL && strcmp(s->of, of) == 0) return s;
    }
    fail_msg("no tensor of layer %d is %s", layer, of);
    return NULL;
}

static void zeros_and_largest_codes_are_counted_by_tensor(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    Quantize q = { .x.data = b.x, .quant = b.rows, .transposed = b.columns, .of = "x" };
    fill(b.x.data);
    CHECK_OK(quantize(&b.ex, q));
    CHECK_INT(b.report.n, 0); /* not before it begins */
    code_report_begin(&b.report, &b.ex);
    for (b.ex.layer = 0; b.ex.layer < 2; b.ex.layer++) CHECK_OK(quantize(&b.ex, q));
    CHECK_OK(quantize(&b.ex, q));
    CHECK_INT(b.report.n, 3); /* layers 0, 1 and 2, the rows alone */
    for (int layer = 0; layer < 3; layer++) {
        const CodeShares *s = shares(&b, layer, "x");
        CHECK_NEAR(s->n, N * D, 0);
        CHECK_INT((int64_t)s->zero, N * D / 2 + N * D / 128);
        CHECK_INT((int64_t)s->largest, N * D / 128);
    }
    code_report_end(&b.ex);
    CHECK_OK(quantize(&b.ex, q));
    CHECK_NEAR(shares(&b, 2, "x")->n, N * D, 0);
    code_report_print(&b.report, 7);
    CHECK_INT(b.report.n, 0);
    close_bench(&b);
}

/* Behind the rows in use there may be anything. */
static void rows_in_use_alone_are_counted(void **state)
{
    (void)state;
    Bench b;
    const int32_t live = 3;
    open_bench(&b);
    Quantize q = { .x = operand_plain(b.x), .quant = b.rows, .of = "x" };
    q.rows = (Rows){ .bound = N, .device = &live };
    for (int i = 0; i < N * D; i++) ((float *)b.x.data)[i] = 1;
    memset(b.rows.data.data, 0, tensor_bytes(&b.rows.data));
    code_report_begin(&b.report, &b.ex);
    CHECK_OK(quantize(&b.ex, q));
    CHECK_INT((int64_t)shares(&b, b.ex.layer, "x")->n, 3 * D);
    CHECK_INT((int64_t)shares(&b, b.ex.layer, "x")->zero, 0);
    code_report_end(&b.ex);
    close_bench(&b);
}

/* An op that writes 8-bit copies of its output says what they are for, too. */
static void outputs_of_other_ops_are_counted(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    Tensor gu;
    CHECK_OK(tensor_new2(&b.arena, DTYPE_F32, N, 2 * D, &gu));
    for (int i = 0; i < N * 2 * D; i++) ((float *)gu.data)[i] = i % (2 * D) < D / 4 ? 0 : 1;
    code_report_begin(&b.report, &b.ex);
    CHECK_OK(swiglu_fwd(
        &b.ex, (SwigluFwd){ .gu = gu, .y = b.x, .quant = { .rows = b.rows, .of = "act" } }));
    const CodeShares *s = shares(&b, b.ex.layer, "act");
    CHECK_NEAR(s->zero / s->n, 0.25, 1e-9);
    code_report_end(&b.ex);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(zeros_and_largest_codes_are_counted_by_tensor),
        TEST(rows_in_use_alone_are_counted),
        TEST(outputs_of_other_ops_are_counted),
    };
    return TEST_RUN(tests);
}
