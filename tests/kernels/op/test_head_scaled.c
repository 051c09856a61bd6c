/* head_loss with a matrix in 8 bits, against its definition in double on the numbers that the codes stand for. x
 * and w are signs times powers of two, which codes hold exactly. So logits are exact, and only the gradient of
 * the logits is rounded: by quantize, which has tests of its own. */
#include "scaled_case.h"

#include "kernels/core/op.h"
#include "kernels/head/head_private.h"

typedef struct Sizes {
    int64_t N, V, D, chunk;
} Sizes;

/* Short last blocks of each side, several chunks of which the last is short, and rows of whole packs. */
static const Sizes sizes[] = {
    { 1, 16, 5, 128 },
    { 129, 144, 33, 128 },
    { 300, 272, 144, 128 },
    { 260, 400, 128, 256 },
};

/* Of scaled_forms: powers of two, and exact scales with gradients in e5m2. */
static const ScaledForm *const forms[] = { &scaled_forms[2], &scaled_forms[3] };

enum { SIZES = sizeof sizes / sizeof *sizes };

/* A turned code is off by 1/16 or 1/8 of a number, and many logits of a row have the same one. Few rows have such a
 * code. Where all codes are others, as with other scales or another type, gradients are off by 3 % or more. */
static const double ROW_LIMIT = 5e-2, WHOLE_LIMIT = 1e-2;

static Tensor powers(OpTest *t, Dtype act, int64_t rows, int64_t cols)
{
    Tensor x = optest_signs(t, act, DIMS(rows, cols));
    for (int64_t i = 0; i < rows * cols; i++)
        optest_set(&x, i, ldexp(optest_get(&x, i), (int)((i / cols + i % cols / 64) % 3) - 3));
    return x;
}

static HeadLoss make_args(OpTest *t, const Sizes *s, const ScaledForm *f, Dtype act)
{
    Tensor w = powers(t, act, s->V, s->D);
    HeadLoss a = { .x = powers(t, act, s->N, s->D),
                   .w = scaled_weight(t, f, w, false),
                   .turned = scaled_weight(t, f, w, true),
                   .target = optest_integers(t, DTYPE_I32, DIMS(s->N), 0, s->V),
                   .scale = optest_normal(t, DTYPE_F32, DIMS(1)),
                   .loss = optest_poisoned(t, DTYPE_F32, DIMS(s->N)),
                   .loss_sum = optest_normal(t, DTYPE_F32, DIMS(1)),
                   .dx = optest_poisoned(t, act, DIMS(s->N, s->D)),
                   .dw = optest_signs(t, DTYPE_F32, DIMS(s->V, s->D)),
                   .chunk = s->chunk,
                   .pow2 = f->pow2,
                   .gradient = f->gradient };
    optest_set(&a.scale, 0, 0.37);
    for (int64_t n = 3; n < s->N; n += 5) optest_set(&a.target, n, -1);
    return a;
}

/* The losses and the gradients of the logits of tokens [first, first + n), as `act`. */
static Tensor chunk_gradient(OpTest *t, const HeadLoss *a, const double *w, int64_t first,
                             int64_t n, double *loss)
{
    int64_t D = tensor_cols(&a->x), V = a->w.data.dim[0];
    Tensor logits = optest_poisoned(t, a->x.dtype, DIMS(n, V));
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, target = optest_get(&a->target, first + i);
        for (int64_t v = 0; v < V; v++) {
            double logit = 0;
            for (int64_t d = 0; d < D; d++)
                logit += optest_get(&a->x, (first + i) * D + d) * w[v * D + d];
            optest_set(&logits, i * V + v, logit);
            sum += exp(optest_get(&logits, i * V + v));
        }
        loss[first + i] = target < 0 ? 0 : log(sum) - optest_get(&logits, i * V + (int64_t)target);
        for (int64_t v = 0; v < V; v++) {
            double p = exp(optest_get(&logits, i * V + v)) / sum - (v == (int64_t)target);
            optest_set(&logits, i * V + v, target < 0 ? 0 : p * optest_get(&a->scale, 0));
        }
    }
    return logits;
}

/* dx = dlogits w, and dw += dlogits^T x, of the codes of dlogits' rows and columns. */
static void add_gradients(OpTest *t, const HeadLoss *a, const double *w, Tensor dlogits,
                          int64_t first, double *dx, double *dw)
{
    int64_t D = tensor_cols(&a->x), n = dlogits.dim[0], V = dlogits.dim[1];
    const Rows all = { 0 };
    Operand rows = scaled_rows(t, OPERAND_1X128, a->gradient, a->pow2, dlogits, all);
    Operand columns = scaled_columns(t, OPERAND_1X128, a->gradient,
                                     (Quantize){ .x.data = dlogits, .pow2 = a->pow2 });
    Tensor r = scaled_plain(t, &rows, 0), c = scaled_plain(t, &columns, 0);
    for (int64_t i = 0; i < n * D; i++) dx[first * D + i] = 0;
    for (int64_t i = 0; i < n * V; i++) {
        double up = optest_get(&r, i), back = optest_get(a->plain_dw ? &dlogits : &c, i);
        for (int64_t d = 0; d < D; d++) {
            dx[(first + i / V) * D + d] += up * w[i % V * D + d];
            dw[i % V * D + d] += back * optest_get(&a->x, (first + i / V) * D + d);
        }
    }
}

static void check_gradient(const Tensor *have, const double *want)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < tensor_elems(have); i++) {
        error += pow(optest_get(have, i) - want[i], 2);
        norm += want[i] * want[i];
    }
    CHECK_NEAR(sqrt(error / norm), 0, WHOLE_LIMIT);
    CHECK_TENSOR_WITHIN(have, want, ROW_LIMIT);
}

static void check_call(OpTest *t, const HeadLoss *a)
{
    int64_t N = tensor_elems(&a->target), D = tensor_cols(&a->x), V = a->w.data.dim[0];
    Tensor plain = scaled_plain(t, &a->w, 0);
    double *w = optest_read(t, &plain), *loss = optest_doubles(t, N);
    double *dx = optest_doubles(t, N * D), *dw = optest_read(t, &a->dw);
    const double *before = optest_read(t, &a->dw);
    double sum = optest_get(&a->loss_sum, 0), limit = a->pow2 ? 2e-6 : 1e-2;
    for (int64_t first = 0; first < N; first += a->chunk) {
        int64_t n = N - first < a->chunk ? N - first : a->chunk;
        Tensor dlogits = chunk_gradient(t, a, w, first, n, loss);
        add_gradients(t, a, w, dlogits, first, dx, dw);
    }
    CHECK_INT(V, tensor_elems(&a->dw) / D);
    CHECK_OK(head_loss(&t->ex, *a));
    for (int64_t n = 0; n < N; n++) {
        CHECK_NEAR(optest_get(&a->loss, n), loss[n], limit * (1 + fabs(loss[n])));
        sum += optest_get(&a->scale, 0) * loss[n];
    }
    CHECK_NEAR(optest_get(&a->loss_sum, 0), sum, 5 * limit * (1 + fabs(sum)));
    check_gradient(&a->dx, dx);
    for (int64_t i = 0; i < V * D; i++) { /* without what was there before */
        dw[i] -= before[i];
        optest_set(&a->dw, i, optest_get(&a->dw, i) - before[i]);
    }
    check_gradient(&a->dw, dw);
}

static void loss_and_gradients_match_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 8; i += RUNS(1, 3)) {
        ArenaMark mark = arena_mark(&t->arena);
        HeadLoss a =
            make_args(t, &sizes[i / 8], forms[i / 2 % 2], i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        a.plain_dw = i / 4 % 2 == 1;
        check_call(t, &a);
        arena_release(&t->arena, mark);
    }
}

/* No scale belongs to tokens of two chunks. Only sums of dw have another order. */
static void chunks_of_whole_blocks_give_the_same_bits(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[2], forms[0], DTYPE_BF16), b = a;
    b.loss = optest_copy(t, &a.loss), b.dx = optest_copy(t, &a.dx);
    b.dw = optest_copy(t, &a.dw), b.loss_sum = optest_copy(t, &a.loss_sum);
    b.chunk = 512;
    CHECK_OK(head_loss(&t->ex, a));
    CHECK_OK(head_loss(&t->ex, b));
    CHECK(memcmp(a.loss.data, b.loss.data, tensor_bytes(&a.loss)) == 0);
    CHECK(memcmp(a.dx.data, b.dx.data, tensor_bytes(&a.dx)) == 0);
    CHECK_TENSOR_WITHIN(&b.dw, optest_read(t, &a.dw), 1e-6);
}

static void evaluation_gives_the_losses_of_training(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[1], forms[0], DTYPE_BF16), frozen = a, eval = a;
    frozen.dw = (Tensor){ 0 };
    frozen.dx = optest_copy(t, &a.dx), frozen.loss = optest_copy(t, &a.loss);
    eval.dx = eval.dw = (Tensor){ 0 }, eval.turned = (Operand){ 0 };
    eval.loss = optest_copy(t, &a.loss);
    CHECK_OK(head_loss(&t->ex, a));
    CHECK_OK(head_loss(&t->ex, frozen));
    CHECK_OK(head_loss(&t->ex, eval));
    CHECK(memcmp(a.loss.data, eval.loss.data, tensor_bytes(&a.loss)) == 0);
    CHECK(memcmp(a.loss.data, frozen.loss.data, tensor_bytes(&a.loss)) == 0);
    CHECK(memcmp(a.dx.data, frozen.dx.data, tensor_bytes(&a.dx)) == 0);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    OpTest t[2];
    HeadLoss a[2];
    for (int k = 0; k < 2; k++) {
        optest_open(&t[k], 1 + 2 * k);
        a[k] = make_args(&t[k], &sizes[2], forms[1], DTYPE_BF16);
        CHECK_OK(head_loss(&t[k].ex, a[k]));
    }
    CHECK(memcmp(a[0].dx.data, a[1].dx.data, tensor_bytes(&a[0].dx)) == 0);
    CHECK(memcmp(a[0].dw.data, a[1].dw.data, tensor_bytes(&a[0].dw)) == 0);
    for (int k = 0; k < 2; k++) optest_close(&t[k]);
}

/* All three products have the rate of 8 bits, unless dw has that of x's type. */
static void costs_have_the_rate_of_8_bits(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[1], forms[0], DTYPE_BF16);
    OpCost cost = op_desc(OP_HEAD_LOSS)->cost(&a);
    CHECK_INT(cost.dtype, DTYPE_E4M3);
    CHECK_NEAR(cost.flops, 3 * 2.0 * 129 * 144 * 33, 0);
    a.plain_dw = true;
    cost = op_desc(OP_HEAD_LOSS)->cost(&a);
    CHECK_INT(cost.dtype, DTYPE_BF16);
}

static void wrong_operands_are_errors_that_name_them(void **state)
{
    OpTest *t = *state;
    const HeadLoss good = make_args(t, &sizes[1], forms[0], DTYPE_BF16);
    HeadLoss a = good;
    a.w.kind = OPERAND_1X128;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_UNSUPPORTED, "head_loss: w is of kind");
    a = good, a.turned = (Operand){ 0 };
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG,
                "turned is absent, but w has scales and dx is given");
    a = good, a.w = operand_plain(optest_normal(t, DTYPE_BF16, DIMS(144, 33)));
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "turned is given, but w has no scales");
    a = good, a.turned.transposed = false;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "turned must be transposed");
    a = good, a.turned = good.w, a.turned.transposed = true;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: turned is");
    a = good, a.gradient = DTYPE_BF16;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "gradients are bf16, wanted 8 bits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(loss_and_gradients_match_double, 2),
        OP_TEST(chunks_of_whole_blocks_give_the_same_bits, 2),
        OP_TEST(evaluation_gives_the_losses_of_training, 2),
        TEST(any_number_of_threads_gives_the_same_bits),
        OP_TEST(costs_have_the_rate_of_8_bits, 1),
        OP_TEST(wrong_operands_are_errors_that_name_them, 1),
    };
    return TEST_RUN(tests);
}
