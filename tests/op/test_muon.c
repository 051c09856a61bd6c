/* muon against its definition in double: X is not scaled on the way, and tall matrices are turned. */
#include "harness/optest.h"
#include "op/muon.h"

static const double LR = 0.02, DECAY = 0.1, CLIP = 0.5, MOMENTUM = 0.95, SCALE = 1.7;

typedef struct Sizes {
    int64_t count, rows, cols;
} Sizes;

/* Square, wide, tall, single rows and columns, one past a tile and past a piece; several matrices. */
static const Sizes sizes[] = {
    { 1, 16, 16 }, { 1, 9, 40 },  { 1, 40, 9 },  { 1, 1, 33 },  { 1, 33, 1 },  { 1, 1, 1 },
    { 1, 65, 67 }, { 1, 257, 3 }, { 1, 3, 257 }, { 5, 24, 17 }, { 4, 13, 64 }, { 3, 64, 64 },
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static Tensor scalar(OpTest *t, double value)
{
    Tensor out = optest_poisoned(t, DTYPE_F32, DIMS(1));
    optest_set(&out, 0, value);
    return out;
}

static Tensor normal(OpTest *t, Dtype type, const Sizes *s)
{
    if (s->count == 1) return optest_normal(t, type, DIMS(s->rows, s->cols));
    return optest_normal(t, type, DIMS(s->count, s->rows, s->cols));
}

static Muon args_of(OpTest *t, const Sizes *s, Dtype moment, Dtype products)
{
    Muon a = { .w = normal(t, DTYPE_F32, s),
               .g = normal(t, DTYPE_F32, s),
               .m = normal(t, moment, s),
               .w_low = normal(t, DTYPE_BF16, s),
               .clip = scalar(t, CLIP),
               .hyper = scalar(t, LR),
               .products = products,
               .steps = 5,
               .nesterov = true,
               .momentum = (float)MOMENTUM,
               .decay = (float)DECAY,
               .scale = (float)SCALE };
    memset(a.w_low.data, 0xFF, tensor_bytes(&a.w_low));
    return a;
}

/* out (n, m) = x (n, k) y (k, m), or x y^T with y (m, k). */
static void product(const double *x, const double *y, bool turned, int64_t n, int64_t k, int64_t m,
                    double *out)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < m; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += x[i * k + l] * (turned ? y[j * k + l] : y[l * m + j]);
            out[i * m + j] = sum;
        }
    }
}

/* X of the definition: x (n, m), n <= m. */
static void orthogonal(OpTest *t, double *x, int64_t n, int64_t m, int steps)
{
    double *a = optest_doubles(t, n * n), *b = optest_doubles(t, n * n);
    double *y = optest_doubles(t, n * m), size = 0;
    for (int64_t i = 0; i < n * m; i++) size += x[i] * x[i];
    for (int64_t i = 0; i < n * m; i++) x[i] /= sqrt(size) + 1e-7;
    for (int s = 0; s < steps; s++) {
        product(x, x, true, n, m, n, a);
        product(a, a, false, n, n, n, b);
        for (int64_t i = 0; i < n * n; i++) b[i] = -4.7750 * a[i] + 2.0315 * b[i];
        product(b, x, false, n, n, m, y);
        for (int64_t i = 0; i < n * m; i++) x[i] = 3.4445 * x[i] + y[i];
    }
}

/* One update of one matrix of doubles. u: room. The stored momentum is what rounding makes of m. */
static void update_double(OpTest *t, const Muon *a, const Sizes *s, double *w, const double *g,
                          double *m, Dtype moment)
{
    const int64_t n = s->rows, k = s->cols;
    const bool tall = n > k;
    Tensor round = optest_poisoned(t, moment, DIMS(1));
    double *x = optest_doubles(t, n * k);
    for (int64_t i = 0; i < n * k; i++) {
        const double d = optest_get(&a->clip, 0) * g[i];
        m[i] = (double)a->momentum * m[i] + d;
        if (moment == DTYPE_BF16) {
            optest_set(&round, 0, m[i]);
            m[i] = optest_get(&round, 0);
        }
        const double u = a->nesterov ? d + (double)a->momentum * m[i] : m[i];
        x[tall ? i % k * n + i / k : i] = u;
    }
    orthogonal(t, x, tall ? k : n, tall ? n : k, a->steps);
    for (int64_t i = 0; i < n * k; i++) {
        const double lr = optest_get(&a->hyper, 0);
        w[i] -= lr * ((double)a->decay * w[i] + (double)a->scale * x[tall ? i % k * n + i / k : i]);
    }
}

static void updates_double(OpTest *t, const Muon *a, const Sizes *s, double *w, double *m)
{
    const double *g = optest_read(t, &a->g);
    for (int64_t e = 0; e < s->count; e++) {
        const int64_t at = e * s->rows * s->cols;
        ArenaMark mark = arena_mark(&t->arena);
        update_double(t, a, s, w + at, g + at, m + at, a->m.dtype);
        arena_release(&t->arena, mark);
    }
}

static void check_low(const Muon *a)
{
    for (int64_t i = 0; i < tensor_elems(&a->w); i++) {
        uint16_t want = bf16_from_f32(((const float *)a->w.data)[i]);
        CHECK_INT(((const uint16_t *)a->w_low.data)[i], want);
    }
}

/* A matrix is a row here: an element of a narrow one may be as small as rounding. */
static void check_matrices(const Tensor *x, const Sizes *s, const double *want, double limit)
{
    const Tensor rows = tensor_as2(x, s->count, s->rows * s->cols);
    CHECK_TENSOR_WITHIN(&rows, want, limit);
}

/* The GPU's results are compared with doubles, as the CPU's are. */
static void on_the_gpu_alone(void)
{
    mirror.unlike = true;
    mirror_gives();
}

/* From weights of 0, so that nothing hides an update. */
static void f32_updates_match_double_over_several_steps(void **state)
{
    OpTest *t = *state;
    on_the_gpu_alone();
    for (int i = 0; i < 2 * SIZES; i++) {
        const Sizes *s = &sizes[i / 2];
        ArenaMark mark = arena_mark(&t->arena);
        Muon a = args_of(t, s, DTYPE_F32, DTYPE_F32);
        a.nesterov = i % 2 == 0;
        double *m = optest_read(t, &a.m);
        for (int step = 0; step < 3; step++) {
            memset(a.w.data, 0, tensor_bytes(&a.w));
            double *w = optest_read(t, &a.w);
            updates_double(t, &a, s, w, m);
            CHECK_OK(muon(&t->ex, a));
            check_matrices(&a.w, s, w, 1e-5);
            check_matrices(&a.m, s, m, 1e-5);
            check_low(&a);
        }
        arena_release(&t->arena, mark);
    }
}

/* The iteration lets an error of an earlier step grow: by half in each, from the sixth on. */
static void ten_steps_stay_in_the_range_of_f32(void **state)
{
    OpTest *t = *state;
    on_the_gpu_alone();
    for (int i = 0; i < SIZES; i++) {
        Muon a = args_of(t, &sizes[i], DTYPE_F32, DTYPE_F32);
        double *m = optest_read(t, &a.m);
        memset(a.w.data, 0, tensor_bytes(&a.w));
        double *w = optest_read(t, &a.w);
        a.steps = 10;
        updates_double(t, &a, &sizes[i], w, m);
        CHECK_OK(muon(&t->ex, a));
        check_matrices(&a.w, &sizes[i], w, 1e-4);
    }
}

/* Weights that are there decay; a bf16 momentum is rounded before the update reads it. */
static void weights_decay_and_a_bf16_momentum_is_read_as_stored(void **state)
{
    OpTest *t = *state;
    on_the_gpu_alone();
    for (int i = 0; i < SIZES; i++) {
        Muon a = args_of(t, &sizes[i], DTYPE_BF16, DTYPE_F32);
        double *w = optest_read(t, &a.w), *m = optest_read(t, &a.m);
        a.decay = 5;
        updates_double(t, &a, &sizes[i], w, m);
        CHECK_OK(muon(&t->ex, a));
        check_matrices(&a.w, &sizes[i], w, 1e-5);
        check_matrices(&a.m, &sizes[i], m, 1e-9);
    }
}

/* Operands are rounded to 8 bits five times three; the iteration forgives most of it. */
static void bf16_products_are_as_close_as_that(void **state)
{
    OpTest *t = *state;
    on_the_gpu_alone();
    for (int i = 0; i < SIZES; i++) {
        Muon a = args_of(t, &sizes[i], DTYPE_F32, DTYPE_BF16);
        memset(a.w.data, 0, tensor_bytes(&a.w));
        double *w = optest_read(t, &a.w), *m = optest_read(t, &a.m);
        updates_double(t, &a, &sizes[i], w, m);
        CHECK_OK(muon(&t->ex, a));
        check_matrices(&a.w, &sizes[i], w, 5e-2);
        check_matrices(&a.m, &sizes[i], m, 1e-5);
    }
}

/* A GPU makes P and Q in tiles of 128 x 128, half of them as the others' transpose. */
static void sides_of_several_tiles_match_double(void **state)
{
    OpTest *t = *state;
    const Sizes several[] = { { 2, 136, 144 }, { 1, 264, 136 }, { 2, 131, 130 } };
    on_the_gpu_alone();
    for (int i = 0; i < 6; i++) {
        const Sizes *s = &several[i / 2];
        ArenaMark mark = arena_mark(&t->arena);
        Muon a = args_of(t, s, DTYPE_F32, i % 2 == 0 ? DTYPE_BF16 : DTYPE_F32);
        memset(a.w.data, 0, tensor_bytes(&a.w));
        double *w = optest_read(t, &a.w), *m = optest_read(t, &a.m);
        a.steps = 2;
        updates_double(t, &a, s, w, m);
        CHECK_OK(muon(&t->ex, a));
        check_matrices(&a.w, s, w, i % 2 == 0 ? 2e-2 : 1e-5);
        arena_release(&t->arena, mark);
    }
}

/* u = (3, 4) on a diagonal has norm 5, and one step takes x to 3.4445 x - 4.775 x^3 + 2.0315 x^5:
 * 0.6 to 1.1932694, 0.8 to 0.9764819. */
static void a_diagonal_is_worked_by_hand(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 1, 2, 2 };
    Muon a = args_of(t, &s, DTYPE_F32, DTYPE_F32);
    memset(a.w.data, 0, tensor_bytes(&a.w));
    memset(a.m.data, 0, tensor_bytes(&a.m));
    memset(a.g.data, 0, tensor_bytes(&a.g));
    optest_set(&a.g, 0, 6), optest_set(&a.g, 3, 8);
    a.nesterov = false, a.steps = 1, a.scale = 1;
    CHECK_OK(muon(&t->ex, a));
    CHECK_NEAR(optest_get(&a.m, 0), 3, 1e-6);
    CHECK_NEAR(optest_get(&a.w, 0) / -LR, 1.1932694, 1e-6);
    CHECK_NEAR(optest_get(&a.w, 3) / -LR, 0.9764819, 1e-6);
    CHECK_NEAR(optest_get(&a.w, 1), 0, 0);
}

/* The length of a gradient is divided out, but for eps. A matrix without gradients only decays. */
static void only_the_direction_of_a_gradient_counts(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 1, 12, 30 };
    on_the_gpu_alone();
    Muon a = args_of(t, &s, DTYPE_F32, DTYPE_F32), b = a;
    memset(a.m.data, 0, tensor_bytes(&a.m));
    b.w = optest_copy(t, &a.w), b.m = optest_copy(t, &a.m), b.g = optest_copy(t, &a.g);
    for (int64_t i = 0; i < tensor_elems(&b.g); i++)
        optest_set(&b.g, i, optest_get(&a.g, i) / 1024);
    CHECK_OK(muon(&t->ex, a));
    CHECK_OK(muon(&t->ex, b));
    CHECK_TENSOR(&b.w, optest_read(t, &a.w));
    memset(a.m.data, 0, tensor_bytes(&a.m));
    memset(a.g.data, 0, tensor_bytes(&a.g));
    const double *w = optest_read(t, &a.w);
    CHECK_OK(muon(&t->ex, a));
    for (int64_t i = 0; i < tensor_elems(&a.w); i++)
        CHECK_NEAR(optest_get(&a.w, i), w[i] * (1 - LR * DECAY), 1e-6);
}

static void check_alone_and_among_others(OpTest *t, const Sizes *s, Dtype type, int steps)
{
    Muon a = args_of(t, s, type, type), b = a;
    a.steps = b.steps = steps;
    b.w = optest_copy(t, &a.w), b.m = optest_copy(t, &a.m), b.w_low = optest_copy(t, &a.w_low);
    CHECK_OK(muon(&t->ex, a));
    for (int64_t e = 0; e < s->count; e++) {
        Muon one = b;
        t->ex.threads = 1 + (int)e;
        Tensor *part[] = { &one.w, &one.g, &one.m, &one.w_low };
        for (int k = 0; k < 4; k++) {
            *part[k] = tensor_as2(part[k], s->count * s->rows, s->cols);
            *part[k] = tensor_rows(part[k], e * s->rows, s->rows);
        }
        CHECK_OK(muon(&t->ex, one));
    }
    CHECK_SAME(&b.w, &a.w);
    CHECK_SAME(&b.m, &a.m);
    CHECK_SAME(&b.w_low, &a.w_low);
}

/* On any number of threads, wherever they lie. */
static void experts_side_by_side_have_the_bits_of_each_alone(void **state)
{
    OpTest *t = *state;
    on_the_gpu_alone();
    for (int i = 0; i < SIZES; i++) {
        check_alone_and_among_others(t, &sizes[i], DTYPE_F32, 5);
        check_alone_and_among_others(t, &sizes[i], DTYPE_BF16, 5);
    }
}

/* More than a GPU updates at a time, and no multiple of that. */
static void groups_of_matrices_are_updated_alike(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 4, 3072, 3072 };
    const MuonShape shape = { s.count, s.rows, s.cols, s.rows };
    CHECK_INT(muon_group(&shape, DTYPE_F32), 3);
    if (mirror.work > 0) skip(); /* an interpreter has no time for it */
    on_the_gpu_alone();
    check_alone_and_among_others(t, &s, DTYPE_F32, 0);
}

static void a_void_step_changes_nothing(void **state)
{
    OpTest *t = *state;
    const double clips[] = { NAN, INFINITY };
    optest_unguard(t); /* w_low stays NaN, as it was */
    for (int i = 0; i < 4; i++) {
        Muon a = args_of(t, &sizes[9], i < 2 ? DTYPE_F32 : DTYPE_BF16, DTYPE_F32), b = a;
        b.w = optest_copy(t, &a.w), b.m = optest_copy(t, &a.m), b.w_low = optest_copy(t, &a.w_low);
        optest_set(&b.clip, 0, clips[i % 2]);
        CHECK_OK(muon(&t->ex, b));
        CHECK_SAME(&b.w, &a.w);
        CHECK_SAME(&b.m, &a.m);
        CHECK_SAME(&b.w_low, &a.w_low);
    }
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 2, 3, 5 };
    const Muon good = args_of(t, &s, DTYPE_F32, DTYPE_F32);
    const Tensor six = optest_normal(t, DTYPE_F32, DIMS(6, 4));
    const Tensor half = optest_normal(t, DTYPE_BF16, DIMS(2, 3, 5));
    Tensor *field[6];
    const char *const message[] = { "g is (6, 4)",     "m is (6, 4)",     "clip is (6, 4)",
                                    "hyper is (6, 4)", "w_low is (6, 4)", "w is (2, 3, 5) bf16" };
    for (int i = 0; i < 6; i++) {
        Muon a = good;
        field[0] = &a.g, field[1] = &a.m, field[2] = &a.clip;
        field[3] = &a.hyper, field[4] = &a.w_low, field[5] = &a.w;
        *field[i] = i < 5 ? six : half;
        CHECK_FAILS(muon(&t->ex, a), ERR_SHAPE, message[i]);
    }
    Muon f16 = good;
    f16.products = DTYPE_F16;
    CHECK_FAILS(muon(&t->ex, f16), ERR_SHAPE, "products are f16, not f32 or bf16");
}

/* 5 (4 r r k + 2 r r r) FLOPs for each (k, r); w, g and m of 4 bytes, of which g is only read. */
static void the_cost_is_that_of_its_products(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 3, 40, 10 };
    Muon a = args_of(t, &s, DTYPE_F32, DTYPE_BF16);
    OpCost c = op_desc(OP_MUON)->cost(&a);
    CHECK_NEAR(c.flops, 3.0 * 5 * (4 * 100 * 40 + 2 * 1000), 0);
    CHECK_NEAR(c.bytes, 1200.0 * (5 * 4 + 2), 0);
    CHECK_NEAR(c.size, 10, 0);
    CHECK(c.work == WORK_GEMM && c.dtype == DTYPE_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(f32_updates_match_double_over_several_steps, 2),
        OP_TEST(ten_steps_stay_in_the_range_of_f32, 2),
        OP_TEST(weights_decay_and_a_bf16_momentum_is_read_as_stored, 2),
        OP_TEST(bf16_products_are_as_close_as_that, 2),
        OP_TEST(sides_of_several_tiles_match_double, 2),
        OP_TEST(a_diagonal_is_worked_by_hand, 1),
        OP_TEST(only_the_direction_of_a_gradient_counts, 2),
        OP_TEST(experts_side_by_side_have_the_bits_of_each_alone, 2),
        OP_TEST(groups_of_matrices_are_updated_alike, 2),
        OP_TEST(a_void_step_changes_nothing, 2),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 2),
        OP_TEST(the_cost_is_that_of_its_products, 2),
    };
    return TEST_RUN(tests);
}
