/*
 * gemm against plain loops in double. An element may be off by LIMIT times the sum of the absolute
 * products behind it, and by the last rounding where C is bf16: a bound for each element, so one
 * wrong element fails however large the matrix is.
 */
#include "harness/optest.h"

#include "kernels/core/cpu_set.h"

static const double LIMIT = 2e-6;
static const double BF16_ROUNDING = 0.00390625 * 1.01; /* half a unit of 8 bits, and a bit */

/* One product with its operands, what stands in C before, and what must stand there after. */
typedef struct Case {
    GemmArgs g;
    void *before;
    double *want, *size; /* size: sum of the absolute products */
    int64_t c_elems;
} Case;

static double element(const void *data, Dtype type, int64_t i)
{
    if (type == DTYPE_F32) return (double)((const float *)data)[i];
    return (double)f32_from_bf16(((const uint16_t *)data)[i]);
}

static void put(void *data, Dtype type, int64_t i, float v)
{
    if (type == DTYPE_F32) ((float *)data)[i] = v;
    if (type == DTYPE_BF16) ((uint16_t *)data)[i] = bf16_from_f32(v);
}

/* Normal numbers, or mostly zeros with some 1 and -1 (whose sums below 256 are exact in bf16). */
static void *random_values(OpTest *t, Dtype type, int64_t n, uint64_t seed, bool integers)
{
    void *data = NULL;
    CHECK_OK(arena_alloc(&t->arena, (size_t)n * dtype_bytes(type), &data));
    for (int64_t i = 0; i < n; i++) {
        double u = rng_uniform(seed, 1, (uint64_t)i);
        float v = integers ? (float)((u > 0.8) - (u < 0.2)) : (float)(2 * u - 1);
        put(data, type, i, v);
    }
    return data;
}

static void reference(Case *c)
{
    const GemmArgs *g = &c->g;
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            double at = g->beta != 0 ? element(c->before, g->c.type, i * g->c.ld + j) : 0;
            double sum = at, size = fabs(at);
            for (int64_t l = 0; l < g->k; l++) {
                double a =
                    element(g->a.at, g->a.type, g->a.turned ? l * g->a.ld + i : i * g->a.ld + l);
                double x =
                    element(g->b.at, g->b.type, g->b.turned ? j * g->b.ld + l : l * g->b.ld + j);
                sum += a * x, size += fabs(a * x);
            }
            c->want[i * g->c.ld + j] = sum, c->size[i * g->c.ld + j] = size;
        }
    }
}

/* pad: elements between the rows. With beta 0, C is NaN before; the gaps of C always are. */
static Case make_operands(OpTest *t, GemmArgs g, int64_t pad, uint64_t seed, bool integers)
{
    g.a.ld = (g.a.turned ? g.m : g.k) + pad;
    g.b.ld = (g.b.turned ? g.k : g.n) + pad;
    g.c.ld = g.n + pad;
    g.a.at = random_values(t, g.a.type, (g.a.turned ? g.k : g.m) * g.a.ld, seed, integers);
    g.b.at = random_values(t, g.b.type, (g.b.turned ? g.n : g.k) * g.b.ld, seed + 1, integers);
    Case c = { .g = g, .c_elems = g.m * g.c.ld };
    c.before = random_values(t, g.c.type, c.c_elems, seed + 2, integers);
    for (int64_t i = 0; i < c.c_elems; i++) {
        if (g.beta == 0 || i % g.c.ld >= g.n) put(c.before, g.c.type, i, NAN);
    }
    void *at = NULL;
    size_t bytes = (size_t)c.c_elems * dtype_bytes(g.c.type);
    CHECK_OK(arena_alloc(&t->arena, bytes, &c.g.c.at));
    memcpy(c.g.c.at, c.before, bytes);
    CHECK_OK(arena_alloc(&t->arena, (size_t)c.c_elems * sizeof(double), &at));
    c.want = at;
    CHECK_OK(arena_alloc(&t->arena, (size_t)c.c_elems * sizeof(double), &at));
    c.size = at;
    return c;
}

static Case make_case(OpTest *t, GemmArgs g, int64_t pad, uint64_t seed, bool integers)
{
    Case c = make_operands(t, g, pad, seed, integers);
    reference(&c);
    return c;
}

static void run_case(OpTest *t, const Case *c)
{
    void *workspace = NULL;
    CHECK_OK(arena_alloc(&t->arena, t->ex.set->gemm_workspace(&t->ex, &c->g), &workspace));
    CHECK_OK(t->ex.set->gemm_run(&t->ex, &c->g, workspace));
}

static void check_case(const Case *c, bool exact)
{
    const GemmArgs *g = &c->g;
    for (int64_t i = 0; i < c->c_elems; i++) {
        double got = element(g->c.at, g->c.type, i);
        if (i % g->c.ld >= g->n) {
            if (!isnan(got)) fail_msg("element %lld between the rows was written", (long long)i);
            continue;
        }
        double limit = exact ? 0 : LIMIT * c->size[i];
        if (!exact && g->c.type == DTYPE_BF16) limit += BF16_ROUNDING * fabs(c->want[i]);
        if (!(fabs(got - c->want[i]) <= limit)) {
            fail_msg("%lld x %lld x %lld, %s %s, %s -> %s, beta %g: C[%lld][%lld] is %.9g, want "
                     "%.9g within %.3g",
                     (long long)g->m, (long long)g->n, (long long)g->k, g->a.turned ? "A^T" : "A",
                     g->b.turned ? "B^T" : "B", dtype_name(g->a.type), dtype_name(g->c.type),
                     (double)g->beta, (long long)(i / g->c.ld), (long long)(i % g->c.ld), got,
                     c->want[i], limit);
        }
    }
}

static GemmArgs args_of(int64_t m, int64_t n, int64_t k, Dtype in, Dtype out)
{
    return (GemmArgs){ .m = m, .n = n, .k = k, .a.type = in, .b.type = in, .c.type = out };
}

/* Every transpose, beta and pad (bits of `variant`) over sizes that are 1, prime, past a vector. */
static void random_shapes(OpTest *t, Dtype in, Dtype out, bool integers)
{
    static const int64_t sizes[] = { 1, 2, 3, 7, 13, 16, 17, 31, 33, 64, 65, 97, 129 };
    const uint64_t count = sizeof sizes / sizeof *sizes;
    for (uint64_t i = 0; i < 48; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        int64_t dim[3];
        for (uint64_t d = 0; d < 3; d++) dim[d] = sizes[rng_below(7, 2, 3 * i + d, count)];
        GemmArgs g = args_of(dim[0], dim[1], dim[2], in, out);
        g.a.turned = i & 1, g.b.turned = i & 2, g.beta = i & 4 ? 1 : 0;
        Case c = make_case(t, g, i & 8 ? 5 : 0, 100 * i, integers);
        run_case(t, &c);
        check_case(&c, integers);
        arena_release(&t->arena, mark);
    }
}

static void f32_products_match_double(void **state)
{
    random_shapes(*state, DTYPE_F32, DTYPE_F32, false);
}

static void bf16_products_into_f32_match_double(void **state)
{
    random_shapes(*state, DTYPE_BF16, DTYPE_F32, false);
}

static void bf16_products_into_bf16_are_rounded_once(void **state)
{
    random_shapes(*state, DTYPE_BF16, DTYPE_BF16, false);
}

static void f32_products_into_bf16_are_rounded_once(void **state)
{
    random_shapes(*state, DTYPE_F32, DTYPE_BF16, false);
}

static void products_of_small_integers_are_exact(void **state)
{
    for (int i = 0; i < 4; i++) {
        random_shapes(*state, i & 1 ? DTYPE_BF16 : DTYPE_F32, i & 2 ? DTYPE_BF16 : DTYPE_F32, true);
    }
}

/* Every number of rows up to one past a square of AMX and of columns up to one past a tile, with
 * sums around its 32 elements along k and every transpose, beta and pad. */
static void odd_shapes_in_bf16_match_double(void **state)
{
    OpTest *t = *state;
    static const int64_t terms[] = { 1, 2, 31, 32, 33, 47, 63, 64, 65, 95, 513 };
    for (uint64_t i = 0; i < (uint64_t)(17 * 33); i++) {
        ArenaMark mark = arena_mark(&t->arena);
        GemmArgs g = args_of((int64_t)(i % 17) + 1, (int64_t)(i / 17) + 1,
                             terms[i % (sizeof terms / sizeof *terms)], DTYPE_BF16,
                             i & 16 ? DTYPE_BF16 : DTYPE_F32);
        g.a.turned = i & 1, g.b.turned = i & 2, g.beta = i & 4 ? 1 : 0;
        Case c = make_case(t, g, i & 8 ? 3 : 0, 1000 + 10 * i, false);
        run_case(t, &c);
        check_case(&c, false);
        arena_release(&t->arena, mark);
    }
}

/* More rows than pass through the workspace at a time, and a last block of one row. */
static void many_rows_match_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 8; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        GemmArgs g = args_of(2049, 5, 9, i & 4 ? DTYPE_F32 : DTYPE_BF16, DTYPE_BF16);
        g.a.turned = i & 1, g.beta = i & 2 ? 1 : 0, g.b.turned = g.a.turned;
        Case c = make_case(t, g, 3, 40, false);
        run_case(t, &c);
        check_case(&c, false);
        arena_release(&t->arena, mark);
    }
}

/* The weight gradient's shape: a long sum into a small matrix that already holds something. */
static void long_sums_match_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        GemmArgs g = args_of(37, 29, 4999, i ? DTYPE_BF16 : DTYPE_F32, DTYPE_F32);
        g.a.turned = true, g.beta = 1;
        Case c = make_case(t, g, 0, 50, false);
        run_case(t, &c);
        check_case(&c, false);
    }
}

static void no_rows_and_no_columns_write_nothing(void **state)
{
    OpTest *t = *state;
    float c[4] = { 1, 2, 3, 4 }, x[4] = { 1, 1, 1, 1 };
    GemmArgs g = args_of(0, 2, 2, DTYPE_F32, DTYPE_F32);
    g.a.at = g.b.at = x, g.c.at = c, g.a.ld = g.b.ld = g.c.ld = 2;
    CHECK_OK(t->ex.set->gemm_run(&t->ex, &g, NULL));
    g.m = 2, g.n = 0;
    CHECK_OK(t->ex.set->gemm_run(&t->ex, &g, NULL));
    CHECK(c[0] == 1 && c[1] == 2 && c[2] == 3 && c[3] == 4);
}

static void an_empty_sum_is_zero_or_what_was_there(void **state)
{
    OpTest *t = *state;
    float c[4] = { 1, 2, 3, NAN }, x[4] = { 1, 1, 1, 1 };
    GemmArgs g = args_of(2, 1, 0, DTYPE_F32, DTYPE_F32);
    g.a.at = g.b.at = x, g.c.at = c, g.a.ld = g.b.ld = 2, g.c.ld = 2, g.beta = 1;
    CHECK_OK(t->ex.set->gemm_run(&t->ex, &g, NULL));
    CHECK(c[0] == 1 && c[2] == 3);
    g.beta = 0;
    CHECK_OK(t->ex.set->gemm_run(&t->ex, &g, NULL));
    CHECK(c[0] == 0 && c[1] == 2 && c[2] == 0 && isnan(c[3]));
}

static void a_call_from_a_parallel_region_gives_the_bits_of_one_thread(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 4; i++) {
        GemmArgs g =
            args_of(97, 65, 33, i & 1 ? DTYPE_BF16 : DTYPE_F32, i & 2 ? DTYPE_BF16 : DTYPE_F32);
        Case alone = make_case(t, g, 0, 60, false), inside[2];
        run_case(t, &alone);
        void *workspace[2];
        Status status[2] = { OK, OK };
        for (int n = 0; n < 2; n++) {
            inside[n] = make_case(t, g, 0, 60, false);
            CHECK_OK(arena_alloc(&t->arena, t->ex.set->gemm_workspace(&t->ex, &g), &workspace[n]));
        }
#pragma omp parallel for num_threads(2) schedule(static)
        for (int n = 0; n < 2; n++)
            status[n] = t->ex.set->gemm_run(&t->ex, &inside[n].g, workspace[n]);
        for (int n = 0; n < 2; n++) {
            CHECK_INT(status[n], OK);
            size_t bytes = (size_t)alone.c_elems * dtype_bytes(g.c.type);
            CHECK(memcmp(inside[n].g.c.at, alone.g.c.at, bytes) == 0);
        }
    }
}

static void the_same_product_twice_has_the_same_bits(void **state)
{
    OpTest *t = *state;
    GemmArgs g = args_of(131, 67, 1031, DTYPE_F32, DTYPE_F32);
    Case first = make_case(t, g, 0, 70, false), second = make_case(t, g, 0, 70, false);
    run_case(t, &first);
    run_case(t, &second);
    CHECK(memcmp(first.g.c.at, second.g.c.at, (size_t)first.c_elems * sizeof(float)) == 0);
}

/* More than one block along each of m, n and k; rows alone are as rows of the whole. */
static void bits_depend_neither_on_threads_nor_on_the_other_rows(void **state)
{
    (void)state;
    OpTest one, three;
    optest_open(&one, 1);
    optest_open(&three, 3);
    for (int i = 0; i < 5; i++) { /* the last one lets a row alone do without packing */
        GemmArgs g = args_of(185, i == 4 ? 544 : 545, i == 4 ? 528 : 531,
                             i & 1 ? DTYPE_BF16 : DTYPE_F32, i & 2 ? DTYPE_BF16 : DTYPE_F32);
        g.b.turned = (i & 1) != 0 || i == 4;
        Case alone = make_operands(&one, g, 1, 90, false);
        Case shared = make_operands(&three, g, 1, 90, false);
        Case last = make_operands(&one, g, 1, 90, false);
        run_case(&one, &alone);
        run_case(&three, &shared);
        size_t each = dtype_bytes(g.c.type), row = (size_t)alone.g.c.ld * each;
        CHECK(memcmp(alone.g.c.at, shared.g.c.at, (size_t)alone.c_elems * each) == 0);
        last.g.m = 1;
        last.g.a.at =
            (const char *)last.g.a.at + (size_t)(184 * last.g.a.ld) * dtype_bytes(g.a.type);
        run_case(&one, &last);
        CHECK(memcmp(last.g.c.at, (char *)alone.g.c.at + 184 * row, (size_t)g.n * each) == 0);
    }
    optest_close(&three);
    optest_close(&one);
}

/* The words behind the workspace keep their value, also without bf16 instructions. */
static void the_workspace_is_as_large_as_it_says(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 8; i++) {
        GemmArgs g =
            args_of(1025, 31, 17, i & 1 ? DTYPE_BF16 : DTYPE_F32, i & 2 ? DTYPE_BF16 : DTYPE_F32);
        g.a.turned = i & 4;
        size_t bytes = t->ex.set->gemm_workspace(&t->ex, &g); /* before there is any data */
        Case c = make_case(t, g, 0, 80, false);
        void *at = NULL;
        CHECK_OK(arena_alloc(&t->arena, bytes + 64, &at));
        memset((char *)at + bytes, 0x5A, 64);
        CHECK_OK(t->ex.set->gemm_run(&t->ex, &c.g, at));
        for (size_t j = 0; j < 64; j++) CHECK_INT(((unsigned char *)at)[bytes + j], 0x5A);
    }
}

static void the_set_has_a_name(void **state)
{
    OpTest *t = *state;
    char name[OP_SET_TEXT_BYTES];
    op_set_text(&t->ex, false, name);
    assert_string_equal(name, cpu_isa_names[t->ex.set->isa]);
    op_set_text(&t->ex, true, name);
    CHECK_INT(*gemm_bf16(t->ex.gemm) != '\0', strstr(name, "BF16") != NULL);
}

/* One row of every kind of value through a vector and through the columns behind it. */
static void rounding_to_bf16_is_that_of_the_type(void **state)
{
    OpTest *t = *state;
    const float values[] = { 0.0f, -0.0f, 1.00390625f, 1.01171875f, -3.4e38f, INFINITY, -INFINITY };
    enum { VALUES = sizeof values / sizeof *values, COLUMNS = 67 };
    float one = 1, b[COLUMNS];
    uint16_t c[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) b[i] = i % 8 < VALUES ? values[i % 8] : NAN;
    GemmArgs g = args_of(1, COLUMNS, 1, DTYPE_F32, DTYPE_BF16);
    g.a.at = &one, g.b.at = b, g.c.at = c, g.a.ld = 1, g.b.ld = g.c.ld = COLUMNS;
    Case row = { .g = g };
    run_case(t, &row);
    for (int i = 0; i < COLUMNS; i++) {
        float want = f32_from_bf16(bf16_from_f32(b[i])), got = f32_from_bf16(c[i]);
        CHECK(i % 8 == VALUES ? isnan(got) : got == want);
    }
}

/* bf16 instructions take subnormal numbers for zero, f32's do not: 2^-130 2^20 shows which ran. */
static void bf16_instructions_run_where_the_set_says_so(void **state)
{
    OpTest *t = *state;
    uint16_t a = bf16_from_f32(ldexpf(1, -130)), b = bf16_from_f32(ldexpf(1, 20));
    float c = NAN;
    GemmArgs g = args_of(1, 1, 1, DTYPE_BF16, DTYPE_F32);
    g.a.at = &a, g.b.at = &b, g.c.at = &c, g.a.ld = g.b.ld = g.c.ld = 1;
    Case one = { .g = g };
    run_case(t, &one);
    CHECK(c == (*gemm_bf16(t->ex.gemm) != '\0' ? 0 : ldexpf(1, -110)));
}

/* The kernel lists what it lends. */
static bool machine_has_amx(void)
{
    static char line[1 << 14];
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        found = strstr(line, " amx_bf16") != NULL;
    }
    if (f != NULL) (void)fclose(f);
    return found;
}

static void amx_is_used_where_the_machine_has_it(void **state)
{
    OpTest *t = *state;
    if (t->ex.set->isa < CPU_V4 || !machine_has_amx()) skip();
    CHECK(strcmp(gemm_bf16(t->ex.gemm), "AMX-BF16") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(f32_products_match_double, 2),
        OP_TEST(bf16_products_into_f32_match_double, 2),
        OP_TEST(bf16_products_into_bf16_are_rounded_once, 2),
        OP_TEST(f32_products_into_bf16_are_rounded_once, 2),
        OP_TEST(products_of_small_integers_are_exact, 2),
        OP_TEST(odd_shapes_in_bf16_match_double, 2),
        OP_TEST(many_rows_match_double, 2),
        OP_TEST(long_sums_match_double, 2),
        OP_TEST(no_rows_and_no_columns_write_nothing, 2),
        OP_TEST(an_empty_sum_is_zero_or_what_was_there, 2),
        OP_TEST(a_call_from_a_parallel_region_gives_the_bits_of_one_thread, 1),
        OP_TEST(the_same_product_twice_has_the_same_bits, 2),
        TEST(bits_depend_neither_on_threads_nor_on_the_other_rows),
        OP_TEST(the_workspace_is_as_large_as_it_says, 2),
        OP_TEST(the_set_has_a_name, 1),
        OP_TEST(rounding_to_bf16_is_that_of_the_type, 1),
        OP_TEST(bf16_instructions_run_where_the_set_says_so, 1),
        OP_TEST(amx_is_used_where_the_machine_has_it, 1),
    };
    return TEST_RUN(tests);
}
