/* head_loss against the definition in double. */
#include "harness/optest.h"

#include "op/head_private.h"
#include "operand_case.h"

typedef struct Sizes {
    int64_t N, V, D;
} Sizes;

/* One word, primes, one past a tile, and rows of logits longer than are worked on at a time. On a
 * GPU: whole packs of 16 bytes, and rows that fill shared memory and go beyond it. */
static const Sizes sizes[] = {
    { 1, 2, 1 },    { 5, 1, 3 },    { 13, 7, 23 },    { 129, 33, 17 },   { 31, 1031, 16 },
    { 6, 2049, 8 }, { 9, 1032, 5 }, { 4, 50000, 16 }, { 4, 131080, 16 },
};

enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct Reference {
    double *loss, *dx, *dw, loss_sum;
} Reference;

static double *zeros(OpTest *t, int64_t n)
{
    double *x = optest_doubles(t, n);
    for (int64_t i = 0; i < n; i++) x[i] = 0;
    return x;
}

/* Normal numbers; in bf16 on a grid of 1/64 and below 4, so that sums of a hundred products are
 * exact in f32 in any order: everybody then rounds a logit to the same bf16. */
static Tensor draw(OpTest *t, Dtype act, int64_t rows, int64_t cols)
{
    Tensor x = optest_normal(t, act, DIMS(rows, cols));
    for (int64_t i = 0; act == DTYPE_BF16 && i < rows * cols; i++) {
        optest_set(&x, i, fmin(4, fmax(-4, round(64 * optest_get(&x, i)) / 64)));
    }
    return x;
}

static HeadLoss make_args(OpTest *t, const Sizes *s, Dtype act)
{
    HeadLoss a = { .x = draw(t, act, s->N, s->D),
                   .w = operand_plain(draw(t, act, s->V, s->D)),
                   .target = optest_integers(t, DTYPE_I32, DIMS(s->N), 0, s->V),
                   .scale = optest_normal(t, DTYPE_F32, DIMS(1)),
                   .loss = optest_poisoned(t, DTYPE_F32, DIMS(s->N)),
                   .loss_sum = optest_normal(t, DTYPE_F32, DIMS(1)),
                   .dx = optest_poisoned(t, act, DIMS(s->N, s->D)),
                   .dw = optest_normal(t, DTYPE_F32, DIMS(s->V, s->D)),
                   .chunk = 8 };
    optest_set(&a.scale, 0, 0.37);
    for (int64_t n = 3; n < s->N; n += 5) optest_set(&a.target, n, -1);
    return a;
}

/* The call in double: what the op reads, and room for a row of logits. */
typedef struct Problem {
    int64_t N, V, D;
    const double *x, *w, *target;
    double scale, *p;
    bool narrow; /* logits are rounded to bf16 */
} Problem;

static Problem problem_of(OpTest *t, const HeadLoss *a)
{
    Problem p = { .N = tensor_elems(&a->target), .D = tensor_cols(&a->w.data) };
    p.V = tensor_elems(&a->w.data) / p.D;
    p.narrow = a->x.dtype == DTYPE_BF16;
    p.x = optest_read(t, &a->x), p.w = optest_read(t, &a->w.data);
    p.target = optest_read(t, &a->target), p.scale = optest_get(&a->scale, 0);
    p.p = optest_doubles(t, p.V);
    return p;
}

/* loss = lse(logits) - logits[target]; p becomes the softmax. */
static double token_loss(const Problem *p, int64_t n)
{
    if (p->target[n] < 0) return 0;
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < p->V; v++) {
        p->p[v] = 0;
        for (int64_t d = 0; d < p->D; d++) p->p[v] += p->x[n * p->D + d] * p->w[v * p->D + d];
        if (p->narrow) p->p[v] = (double)f32_from_bf16(bf16_from_f32((float)p->p[v]));
        max = fmax(max, p->p[v]);
    }
    double at_target = p->p[(int64_t)p->target[n]];
    for (int64_t v = 0; v < p->V; v++) sum += p->p[v] = exp(p->p[v] - max);
    for (int64_t v = 0; v < p->V; v++) p->p[v] /= sum;
    return max - at_target + log(sum);
}

static void add_gradients(const Problem *p, int64_t n, Reference *r)
{
    for (int64_t v = 0; v < p->V && p->target[n] >= 0; v++) {
        double dlogit = (p->p[v] - (v == (int64_t)p->target[n])) * p->scale;
        for (int64_t d = 0; d < p->D; d++) {
            r->dx[n * p->D + d] += dlogit * p->w[v * p->D + d];
            r->dw[v * p->D + d] += dlogit * p->x[n * p->D + d];
        }
    }
}

/* What the call must leave behind: dw and loss_sum on top of what is there now. */
static Reference reference(OpTest *t, const HeadLoss *a)
{
    Problem p = problem_of(t, a);
    Reference r = { .loss = optest_doubles(t, p.N),
                    .dx = zeros(t, p.N * p.D),
                    .dw = a->dw.data == NULL ? zeros(t, p.V * p.D) : optest_read(t, &a->dw),
                    .loss_sum = optest_get(&a->loss_sum, 0) };
    for (int64_t n = 0; n < p.N; n++) {
        r.loss[n] = token_loss(&p, n);
        r.loss_sum += p.scale * r.loss[n];
        add_gradients(&p, n, &r);
    }
    return r;
}

static void check_losses(const HeadLoss *a, const Reference *r)
{
    for (int64_t n = 0; n < tensor_elems(&a->target); n++) {
        CHECK_NEAR(optest_get(&a->loss, n), r->loss[n], 2e-6 * (1 + fabs(r->loss[n])));
    }
    CHECK_NEAR(optest_get(&a->loss_sum, 0), r->loss_sum, 1e-5 * (1 + fabs(r->loss_sum)));
}

/* dx is a sum of V terms. gemm adds 256 of them or more to C at a time, which rounds dx by less than
 * the usual limit. With small limits it adds 3 at a time: that alone puts a row of V = 131080 off
 * by 1.3e-5, as the same sums of exact gradients of logits show. An addition is rounded by at most
 * u = 2^-24 of the sum so far. Here these sums are hardly longer than dx, so V roundings of mean 0
 * have a standard deviation of at most sqrt(V) u (Higham and Mary, "A new approach to probabilistic
 * rounding error analysis", SISC 2019). Two of these are allowed: 4.3e-5 at V = 131080. */
#ifdef HOSTILE
static const double SUM_ROUNDING = 2 * 0x1p-24;
#else
static const double SUM_ROUNDING = 0;
#endif

static void check_all(const HeadLoss *a, const Reference *r)
{
    double limit = optest_limit(LIMIT_PLAIN, a->x.dtype); /* for dw too: dlogits are rounded */
    double terms = (double)a->w.data.dim[0];
    check_losses(a, r);
    CHECK_TENSOR_WITHIN(&a->dx, r->dx, limit + SUM_ROUNDING * sqrt(terms));
    CHECK_TENSOR_WITHIN(&a->dw, r->dw, limit);
}

static void loss_and_gradients_match_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 2; i++) {
        HeadLoss a = make_args(t, &sizes[i / 2], i % 2 ? DTYPE_BF16 : DTYPE_F32);
        Reference r = reference(t, &a);
        CHECK_OK(head_loss(&t->ex, a));
        check_all(&a, &r);
    }
}

static void evaluation_gives_the_losses_of_training(void **state)
{
    OpTest *t = *state;
    HeadLoss train = make_args(t, &sizes[4], DTYPE_F32), eval = train;
    eval.loss = optest_poisoned(t, DTYPE_F32, train.loss.dim);
    eval.loss_sum = optest_copy(t, &train.loss_sum);
    eval.dx = eval.dw = (Tensor){ 0 };
    CHECK_OK(head_loss(&t->ex, train));
    CHECK_OK(head_loss(&t->ex, eval));
    CHECK_SAME(&eval.loss, &train.loss);
    CHECK_SAME(&eval.loss_sum, &train.loss_sum);
}

/* dx alone: a head whose weights are frozen. */
static void the_weight_gradient_is_optional(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[3], DTYPE_F32);
    a.dw = (Tensor){ 0 };
    Reference r = reference(t, &a);
    CHECK_OK(head_loss(&t->ex, a));
    check_losses(&a, &r);
    CHECK_TENSOR(&a.dx, r.dx);
}

static void any_chunk_gives_the_same_result(void **state)
{
    OpTest *t = *state;
    const int64_t chunks[] = { 1, 7, 129, 1000 }; /* 129 tokens */
    for (int i = 0; i < 8; i++) {
        t->drawn = 0;
        HeadLoss a = make_args(t, &sizes[3], i & 1 ? DTYPE_BF16 : DTYPE_F32);
        a.chunk = chunks[i / 2];
        Reference r = reference(t, &a);
        CHECK_OK(head_loss(&t->ex, a));
        check_all(&a, &r);
    }
}

/* More rows than a GPU works on at a time. */
static void a_chunk_of_many_rows_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        HeadLoss a = make_args(t, &(Sizes){ 613, 520, 33 }, i == 0 ? DTYPE_F32 : DTYPE_BF16);
        a.chunk = 600;
        Reference r = reference(t, &a);
        CHECK_OK(head_loss(&t->ex, a));
        check_all(&a, &r);
    }
}

/* In bf16 neighbours of 32 lie 1/4 apart. */
static void logits_are_rounded_to_the_type_of_x(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &(Sizes){ 1, 2, 2 }, DTYPE_BF16);
    const double x[2] = { 32, 1 }, w[4] = { 1, 0.0625, 1, 0 };
    optest_write(&a.x, x);
    optest_write(&a.w.data, w);
    optest_set(&a.target, 0, 0);
    CHECK_OK(head_loss(&t->ex, a)); /* 32.0625 and 32 */
    CHECK_NEAR(optest_get(&a.loss, 0), log(2), 1e-6);
}

static void a_chunk_that_nobody_chose_depends_on_device_vocabulary_and_type(void **state)
{
    (void)state;
    CHECK_INT(head_chunk(7, true, 102400, DTYPE_BF16), 7);
    CHECK_INT(head_chunk(7, false, 102400, DTYPE_BF16), 7);
    CHECK_INT(head_chunk(0, false, 102400, DTYPE_BF16), 512);
    CHECK_INT(head_chunk(0, true, 102400, DTYPE_BF16), 4096); /* 839 MB */
    CHECK_INT(head_chunk(0, true, 65536, DTYPE_BF16), 8192);  /* 1 GiB */
    CHECK_INT(head_chunk(0, true, 65537, DTYPE_BF16), 4096);
    CHECK_INT(head_chunk(0, true, 65536, DTYPE_F32), 4096);
    CHECK_INT(head_chunk(0, true, 32000, DTYPE_F32), 8192);
    CHECK_INT(head_chunk(0, true, 1000000, DTYPE_BF16), 4096); /* more than 1 GiB */
}

/* A chunk of logits takes the bytes of x's type. */
static void bf16_logits_take_half_the_room(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &(Sizes){ 64, 512, 2 }, DTYPE_BF16);
    HeadLoss wide = make_args(t, &(Sizes){ 64, 512, 2 }, DTYPE_F32);
    a.chunk = wide.chunk = 64;
    CHECK_INT(head_logits_bytes(&a), 64 * 512 * 2);
    CHECK_INT(head_logits_bytes(&wide), 64 * 512 * 4);
}

static double total(const Problem *p)
{
    double sum = 0;
    for (int64_t n = 0; n < p->N; n++) sum += p->scale * token_loss(p, n);
    return sum;
}

static double total_of_x(const void *context, const double *x)
{
    Problem p = *(const Problem *)context;
    p.x = x;
    return total(&p);
}

static double total_of_w(const void *context, const double *w)
{
    Problem p = *(const Problem *)context;
    p.w = w;
    return total(&p);
}

static void gradients_are_the_slopes_of_the_loss(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[2], DTYPE_F32);
    memset(a.dw.data, 0, tensor_bytes(&a.dw));
    Problem p = problem_of(t, &a);
    double *x = optest_read(t, &a.x), *w = optest_read(t, &a.w.data);
    double *dx = optest_doubles(t, p.N * p.D), *dw = optest_doubles(t, p.V * p.D);
    optest_slopes(total_of_x, &p, x, p.N * p.D, dx);
    optest_slopes(total_of_w, &p, w, p.V * p.D, dw);
    CHECK_OK(head_loss(&t->ex, a));
    CHECK_TENSOR(&a.dx, dx);
    CHECK_TENSOR(&a.dw, dw);
}

static void huge_logits_do_not_overflow(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[3], DTYPE_F32);
    for (int64_t i = 0; i < tensor_elems(&a.x); i++) optest_set(&a.x, i, 1e4 * optest_get(&a.x, i));
    Reference r = reference(t, &a);
    CHECK_OK(head_loss(&t->ex, a));
    for (int64_t n = 0; n < tensor_elems(&a.target); n++) {
        CHECK_NEAR(optest_get(&a.loss, n), r.loss[n], 0.1); /* 1e-6 of logits of 1e5 */
    }
    for (int64_t i = 0; i < tensor_elems(&a.dx); i++) CHECK(isfinite(optest_get(&a.dx, i)));
    for (int64_t i = 0; i < tensor_elems(&a.dw); i++) CHECK(isfinite(optest_get(&a.dw, i)));
}

static void an_ignored_token_leaves_no_trace(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[1], DTYPE_BF16);
    for (int64_t n = 0; n < tensor_elems(&a.target); n++) optest_set(&a.target, n, -1);
    Tensor dw = optest_copy(t, &a.dw), sum = optest_copy(t, &a.loss_sum);
    CHECK_OK(head_loss(&t->ex, a));
    for (int64_t n = 0; n < tensor_elems(&a.target); n++) CHECK(optest_get(&a.loss, n) == 0);
    for (int64_t i = 0; i < tensor_elems(&a.dx); i++) CHECK(optest_get(&a.dx, i) == 0);
    CHECK_SAME(&a.dw, &dw);
    CHECK_SAME(&a.loss_sum, &sum);
}

static void a_target_outside_the_vocabulary_is_an_error_that_names_the_token(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[2], DTYPE_F32);
    optest_set(&a.target, 4, 7);
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "the target of token 4 is 7, outside -1 .. 6");
    optest_set(&a.target, 4, -2);
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "token 4 is -2");
}

static void wrong_arguments_are_errors_that_name_the_tensor(void **state)
{
    OpTest *t = *state;
    const HeadLoss good = make_args(t, &sizes[3], DTYPE_F32);
    HeadLoss a = good;
    a.chunk = 0;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "chunk is 0");
    a = good, a.dx.data = NULL;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "dw is set but dx is not");
    a = good, a.x.dim[1]++;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: x is");
    a = good, a.w.data.dtype = DTYPE_BF16;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: w is");
    a = good, a.loss.dim[0]--;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: loss is");
    a = good, a.dw.dim[0]--;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: dw is");
}

static void a_weight_with_scales_is_refused_by_name(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[3], DTYPE_F32);
    CHECK_INT(operands_refused(t, OP_HEAD_LOSS, &a), 1);
}

static void costs_are_three_products_and_every_tensor_once(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &(Sizes){ 4, 10, 3 }, DTYPE_BF16);
    OpCost cost = op_desc(OP_HEAD_LOSS)->cost(&a);
    CHECK_NEAR(cost.flops, 3 * 2 * 4 * 10 * 3, 0);
    double scalars = 4 + 2 * 4; /* scale, and loss_sum, which is added to */
    CHECK_NEAR(cost.bytes, 2 * 12 * 2 + 30 * 2 + 2 * 4 * 4 + 2 * 30 * 4 + scalars, 0);
    a.dx = a.dw = (Tensor){ 0 };
    cost = op_desc(OP_HEAD_LOSS)->cost(&a);
    CHECK_NEAR(cost.flops, 2 * 4 * 10 * 3, 0);
    CHECK_NEAR(cost.bytes, 12 * 2 + 30 * 2 + 2 * 4 * 4 + scalars, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(loss_and_gradients_match_double, 2),
        OP_TEST(evaluation_gives_the_losses_of_training, 2),
        OP_TEST(the_weight_gradient_is_optional, 2),
        OP_TEST(any_chunk_gives_the_same_result, 2),
        OP_TEST(a_chunk_of_many_rows_matches_double, 2),
        OP_TEST(logits_are_rounded_to_the_type_of_x, 1),
        TEST(a_chunk_that_nobody_chose_depends_on_device_vocabulary_and_type),
        OP_TEST(bf16_logits_take_half_the_room, 1),
        OP_TEST(gradients_are_the_slopes_of_the_loss, 2),
        OP_TEST(huge_logits_do_not_overflow, 2),
        OP_TEST(an_ignored_token_leaves_no_trace, 2),
        OP_TEST(a_target_outside_the_vocabulary_is_an_error_that_names_the_token, 1),
        OP_TEST(wrong_arguments_are_errors_that_name_the_tensor, 1),
        OP_TEST(a_weight_with_scales_is_refused_by_name, 1),
        OP_TEST(costs_are_three_products_and_every_tensor_once, 1),
    };
    return TEST_RUN(tests);
}
