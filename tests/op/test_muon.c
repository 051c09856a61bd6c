/* muon against its definition in double: X is not scaled on the way, and tall matrices are turned. */
#include "harness/optest.h"
#include "op/muon.h"

enum { SIDE_MOST = 96, STEPS_MOST = 8 };
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
            for (int64_t l = 0; l < k; l++) sum += x[i * k + l] * (turned ? y[j * k + l] : y[l * m + j]);
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
static void check_matrices(const Tensor *x, const Sizes *s, const double *want)
{
    const Tensor rows = tensor_as2(x, s->count, s->rows * s->cols);
    CHECK_TENSOR(&rows, want);
}

/* From weights of 0, so that nothing hides an update. */
static void f32_updates_match_double_over_several_steps(void **state)
{
    OpTest *t = *state;
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
            check_matrices(&a.w, s, w);
            check_matrices(&a.m, s, m);
            check_low(&a);
        }
        arena_release(&t->arena, mark);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(f32_updates_match_double_over_several_steps, 2),
    };
    return TEST_RUN(tests);
}
