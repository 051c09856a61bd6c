/* muon against its definition in double: X is not scaled on the way, and tall matrices are turned. */
#include "harness/optest.h"

#include "kernels/optimizer/muon.h"
#include "op_ranks.h"

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

/* A matrix is a row here: an element of a narrow one may be as small as rounding. A momentum in bf16 is as exact, but
 * that the last bit of an f32 sum may turn the code of an element or two. */
static void check_matrices(const Tensor *x, const Sizes *s, const double *want, double limit)
{
    if (x->dtype == DTYPE_BF16 && limit < 2e-4) limit = 2e-4;
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
    const MuonShape shape = { s.count, s.rows, s.cols, s.rows, 0 };
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

/* Matrices that ranks split: by rows or by columns, also into parts of one row or column, and into
 * fewer parts than ranks. Square, wide and tall ones, with and without whole packs. */
static const struct SplitCase {
    int64_t rows, cols;
    int ranks, copies;
    bool cols_split;
} split_cases[] = {
    { 6, 10, 2, 1, false },    { 34, 10, 2, 1, true },   { 9, 21, 3, 1, false },
    { 40, 3, 3, 1, true },     { 16, 33, 4, 1, false },  { 5, 4, 4, 1, true },
    { 14, 12, 4, 2, false },   { 10, 14, 4, 2, true },   { 9, 7, 2, 2, false },
    { 48, 16, 4, 4, false },   { 257, 24, 2, 1, true },  { 24, 272, 2, 1, true },
    { 272, 136, 2, 1, false }, { 136, 144, 3, 1, true },
};
enum { SPLIT_CASES = sizeof split_cases / sizeof *split_cases };

typedef struct MuonPart {
    Part p;
    Muon a;
} MuonPart;
static MuonPart parts[PARTS_MOST];

/* The element of all whole matrices that is element i of a rank's parts. */
static int64_t whole_element(const struct SplitCase *c, int rank, int64_t i)
{
    const int64_t n = c->ranks / c->copies, part = rank / c->copies;
    const int64_t rows = c->cols_split ? c->rows : c->rows / n;
    const int64_t cols = c->cols_split ? c->cols / n : c->cols;
    const int64_t row = i % (rows * cols) / cols + (c->cols_split ? 0 : part * rows);
    const int64_t col = i % cols + (c->cols_split ? part * cols : 0);
    return (i / (rows * cols) * c->rows + row) * c->cols + col;
}

static Tensor part_of(const struct SplitCase *c, int rank, const Tensor *whole)
{
    const int64_t n = c->ranks / c->copies, count = tensor_elems(whole) / (c->rows * c->cols);
    const int64_t rows = c->cols_split ? c->rows : c->rows / n;
    const int64_t cols = c->cols_split ? c->cols / n : c->cols;
    const size_t size = dtype_bytes(whole->dtype);
    Tensor part = optest_poisoned(&parts[rank].p.t, whole->dtype, DIMS(count, rows, cols));
    for (int64_t i = 0; i < tensor_elems(&part); i++)
        memcpy(tensor_at(&part, i), tensor_at(whole, whole_element(c, rank, i)), size);
    if (count == 1) part = tensor_as2(&part, rows, cols);
    return part;
}

/* Runs the op on the parts of `whole`, which stays as it is. */
static Status run_parts(const struct SplitCase *c, const Muon *whole, bool on_gpu)
{
    Ranks of = { .n = c->ranks, .on_gpu = on_gpu };
    for (int r = 0; r < c->ranks; r++) {
        Muon *a = &parts[r].a;
        *a = *whole;
        a->w = part_of(c, r, &whole->w), a->g = part_of(c, r, &whole->g);
        a->m = part_of(c, r, &whole->m), a->w_low = part_of(c, r, &whole->w_low);
        a->ranks = c->ranks, a->copies = c->copies, a->cols_split = c->cols_split;
        of.part[r] = &parts[r].p;
    }
    return ranks_run(&of);
}

static void open_parts(const struct SplitCase *c)
{
    for (int r = 0; r < c->ranks; r++) part_open(&parts[r].p, r, OP_MUON, &parts[r].a);
}

static void close_parts(const struct SplitCase *c)
{
    for (int r = 0; r < c->ranks; r++) optest_close(&parts[r].p.t);
}

static bool same_part(const struct SplitCase *c, int rank, const Tensor *part, const Tensor *whole)
{
    bool same = true;
    for (int64_t i = 0; i < tensor_elems(part); i++) {
        const void *want = tensor_at(whole, whole_element(c, rank, i));
        same = same && memcmp(tensor_at(part, i), want, dtype_bytes(part->dtype)) == 0;
    }
    return same;
}

/* count matrices of the case's size, with the number i of types. */
static Muon split_args(OpTest *t, const struct SplitCase *c, int64_t count, int i)
{
    const Sizes s = { count, c->rows, c->cols };
    Muon a = args_of(t, &s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, i < 2 ? DTYPE_F32 : DTYPE_BF16);
    a.nesterov = i % 3 != 0;
    return a;
}

static void check_same_bits(OpTest *t, const struct SplitCase *c, int64_t count, int type)
{
    Muon whole = split_args(t, c, count, type), one = whole;
    one.w = optest_copy(t, &whole.w), one.m = optest_copy(t, &whole.m);
    one.w_low = optest_copy(t, &whole.w_low);
    CHECK_OK(run_parts(c, &whole, false));
    CHECK_OK(muon(&parts[0].p.t.ex, one)); /* on the CPU, whatever else there is */
    for (int r = 0; r < c->ranks; r++) {
        const Muon *a = &parts[r].a;
        if (same_part(c, r, &a->w, &one.w) && same_part(c, r, &a->m, &one.m) &&
            same_part(c, r, &a->w_low, &one.w_low))
            continue;
        fail_msg("%d matrices of case %d, types %d: rank %d has other bits", (int)count,
                 (int)(c - split_cases), type, r);
    }
}

/* From one matrix, of which one rank makes X, to two rounds and one matrix more. */
static void ranks_that_split_matrices_have_the_bits_of_one(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SPLIT_CASES; i++) {
        const struct SplitCase *c = &split_cases[i];
        const int64_t most = c->rows * c->cols < 2000 ? 2 * c->ranks + 1 : 2;
        for (int64_t count = 1; count <= most; count++) {
            ArenaMark mark = arena_mark(&t->arena);
            open_parts(c);
            for (int type = 0; type < 4; type++) check_same_bits(t, c, count, type);
            close_parts(c);
            arena_release(&t->arena, mark);
        }
    }
}

/* The parts of all ranks, as whole matrices. */
static Tensor join_parts(OpTest *t, const struct SplitCase *c, const Tensor *like, size_t field)
{
    Tensor whole = optest_poisoned(t, like->dtype, like->dim);
    for (int r = 0; r < c->ranks; r++) {
        const Tensor *part = (const Tensor *)(const void *)((const char *)&parts[r].a + field);
        for (int64_t i = 0; i < tensor_elems(part); i++)
            memcpy(tensor_at(&whole, whole_element(c, r, i)), tensor_at(part, i),
                   dtype_bytes(like->dtype));
    }
    return whole;
}

/* From weights of 0, so that nothing hides an update. Roundings of 8 bits average out less in small
 * matrices. */
static void check_split(OpTest *t, const struct SplitCase *c, int64_t count, int type, bool on_gpu)
{
    const Sizes s = { count, c->rows, c->cols };
    Muon a = split_args(t, c, count, type);
    memset(a.w.data, 0, tensor_bytes(&a.w));
    double *w = optest_read(t, &a.w), *m = optest_read(t, &a.m);
    CHECK_OK(run_parts(c, &a, on_gpu));
    updates_double(t, &a, &s, w, m);
    a.w = join_parts(t, c, &a.w, offsetof(Muon, w));
    a.m = join_parts(t, c, &a.m, offsetof(Muon, m));
    a.w_low = join_parts(t, c, &a.w_low, offsetof(Muon, w_low));
    check_matrices(&a.w, &s, w, a.products == DTYPE_BF16 ? 8e-2 : 1e-5);
    check_matrices(&a.m, &s, m, 1e-5);
    check_low(&a);
}

static void check_splits(OpTest *t, bool on_gpu)
{
    for (int i = 0; i < SPLIT_CASES; i++) {
        const struct SplitCase *c = &split_cases[i];
        const int64_t counts[] = { 1, c->ranks + 1 };
        for (int k = 0; k < 4; k++) {
            ArenaMark mark = arena_mark(&t->arena);
            open_parts(c);
            check_split(t, c, counts[k / 2], k % 2 == 0 ? 0 : 3, on_gpu);
            close_parts(c);
            arena_release(&t->arena, mark);
        }
    }
}

static void parts_of_matrices_match_double(void **state) { check_splits(*state, false); }

static void so_they_do_on_gpus(void **state)
{
    if (!gpu_built() || gpu_devices() == 0) skip();
    check_splits(*state, true);
}

static void a_void_step_changes_no_part(void **state)
{
    OpTest *t = *state;
    const struct SplitCase *c = &split_cases[4];
    for (int gpu = 0; gpu <= (gpu_built() && gpu_devices() > 0); gpu++) {
        Muon whole = split_args(t, c, 5, 2);
        optest_set(&whole.clip, 0, gpu == 0 ? NAN : INFINITY);
        open_parts(c);
        for (int r = 0; r < c->ranks; r++) optest_unguard(&parts[r].p.t);
        CHECK_OK(run_parts(c, &whole, gpu == 1));
        for (int r = 0; r < c->ranks; r++) {
            CHECK(same_part(c, r, &parts[r].a.w, &whole.w));
            CHECK(same_part(c, r, &parts[r].a.m, &whole.m));
            CHECK(same_part(c, r, &parts[r].a.w_low, &whole.w_low));
        }
        close_parts(c);
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
    Muon split = good;
    split.ranks = 4, split.copies = 3;
    CHECK_FAILS(muon(&t->ex, split), ERR_ARG, "4 ranks cannot hold each part 3 times");
    split.copies = 2;
    CHECK_FAILS(muon(&t->ex, split), ERR_ARG, "of 4 ranks, but the mesh has 1 ranks of tp");
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
    CHECK_NEAR(c.comm_bytes, 0, 0);
    a.ranks = 4, a.copies = 2; /* of (80, 10), one a rank */
    c = op_desc(OP_MUON)->cost(&a);
    CHECK_NEAR(c.flops, 3.0 / 4 * 5 * (4 * 100 * 80 + 2 * 1000), 0);
    CHECK_NEAR(c.bytes, 1200.0 * (5 * 4 + 2), 0);
    CHECK_NEAR(c.comm_bytes, 2.0 * 3 * 400 * 2, 0);
    CHECK_INT(c.axis, AXIS_TP);
    a.cols_split = true; /* of (40, 20) */
    CHECK_NEAR(op_desc(OP_MUON)->cost(&a).flops, 3.0 / 4 * 5 * (4 * 400 * 40 + 2 * 8000), 0);
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
        OP_TEST(ranks_that_split_matrices_have_the_bits_of_one, 2),
        OP_TEST(parts_of_matrices_match_double, 2),
        OP_TEST(so_they_do_on_gpus, 2),
        OP_TEST(a_void_step_changes_no_part, 2),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 2),
        OP_TEST(the_cost_is_that_of_its_products, 2),
    };
    return TEST_RUN(tests);
}
