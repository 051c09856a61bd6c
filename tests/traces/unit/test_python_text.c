#include "harness/test.h"

#include "traces/table/group.h"
#include "traces/table/python_text.h"

static Arena arena;

static const char *value(const char *json, bool tuples)
{
    Text t;
    CHECK_OK(text_init(&t, &arena));
    CHECK_OK(python_value(&t, json, tuples));
    return t.data;
}

static void lists_become_tuples(void **state)
{
    (void)state;
    CHECK_TEXT(value("[[8944,1024],[1024,2816]]", true), "((8944, 1024), (1024, 2816))");
    CHECK_TEXT(value("[[16,559,1]]", true), "((16, 559, 1),)");
    CHECK_TEXT(value("[[64],[],[[1],[2]]]", true), "((64,), (), ((1,), (2,)))");
    CHECK_TEXT(value("[]", true), "()");
    CHECK_TEXT(value("[[16,559,1],[]]", false), "[[16, 559, 1], []]");
    CHECK_TEXT(value("[\"\"]", true), "('',)");
    CHECK_TEXT(value("[true,null,1.50,-3]", true), "(True, None, 1.5, -3)");
}

static void texts_have_pythons_quotes(void **state)
{
    (void)state;
    CHECK_TEXT(value("[\"c10::BFloat16\",\"\",\"[1, 1]\"]", true),
               "('c10::BFloat16', '', '[1, 1]')");
    CHECK_TEXT(value("[\"it's\"]", false), "[\"it's\"]");
    CHECK_TEXT(value("[\"'\\\"\"]", false), "['\\'\"']");
    CHECK_TEXT(value("[\"a\\nb\\\\\"]", false), "['a\\nb\\\\']");
}

/* Text that is cut or no JSON ends, and stays inside. */
static void what_is_no_json_goes_through(void **state)
{
    (void)state;
    CHECK_TEXT(value("[1,", true), "(1, ");
    CHECK_TEXT(value("[\"a", true), "('a'");
    CHECK_TEXT(value("[\"a\\", true), "('a\\\\'");
    CHECK_TEXT(value("]}", true), "]}");
    CHECK_TEXT(value("nan", true), "nan");
    CHECK_TEXT(value("", true), "");
}

/* ---- groups ---- */

static void rows_with_equal_keys_are_a_group(void **state)
{
    (void)state;
    const uint32_t key[] = { 1, 2, 1, 3, 1, 2, 2, 1, 1, 3 };
    const uint32_t rows[][2] = { { 0, 2 }, { 1, 4 }, { 3, 3 } };
    const uint32_t n[] = { 2, 2, 1 };
    Groups g;
    CHECK_OK(groups_make(key, 2, 5, &arena, &g));
    CHECK_INT(g.n, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(g.first[i + 1] - g.first[i], n[i]);
        for (uint32_t k = 0; k < n[i]; k++) CHECK_INT(g.row[g.first[i] + k], rows[i][k]);
    }
}

static void many_groups_are_found_again(void **state)
{
    (void)state;
    enum { ROWS = 30000, GROUPS = 7001 };
    static uint32_t key[ROWS];
    Groups g;
    for (uint32_t i = 0; i < ROWS; i++) key[i] = i % GROUPS * 0x10001u;
    CHECK_OK(groups_make(key, 1, ROWS, &arena, &g));
    CHECK_INT(g.n, GROUPS);
    for (uint32_t i = 0; i < ROWS; i++) CHECK_INT(g.of[i], i % GROUPS);
}

static void groups_stand_by_falling_value(void **state)
{
    (void)state;
    const double v[] = { 1, 5, 5, 7, -1 };
    const uint32_t want[] = { 3, 1, 2, 0, 4 };
    uint32_t *order = NULL;
    CHECK_OK(groups_by(v, 5, &arena, &order));
    for (int i = 0; i < 5; i++) CHECK_INT(order[i], want[i]);
}

static void groups_are_ranked_by_the_sum_of_their_rows(void **state)
{
    (void)state;
    const uint32_t key[] = { 7, 8, 7, 9, 8, 9 };
    const double v[] = { 1, 4, 2, 10, 3, -7 };
    const uint32_t want[][2] = { { 1, 4 }, { 0, 2 }, { 3, 5 } };
    const double sum[] = { 7, 3, 3 };
    Groups g;
    CHECK_OK(groups_ranked(key, 1, v, false, 6, &arena, &g));
    CHECK_INT(g.n, 3);
    for (int k = 0; k < 3; k++) {
        int64_t n = 0;
        const uint32_t *row = groups_rows(&g, k, &n);
        CHECK_INT(n, 2);
        for (int i = 0; i < 2; i++) CHECK_INT(row[i], want[k][i]);
        CHECK_NEAR(g.sum[k], sum[k], 0);
    }
    CHECK_OK(groups_ranked(key, 1, NULL, false, 4, &arena, &g));
    CHECK_INT(g.row[0], 0); /* twice there */
    CHECK_NEAR(g.sum[0], 2, 0);
    CHECK_OK(groups_ranked(key, 1, v, false, 0, &arena, &g));
    CHECK_INT(g.n, 0);
}

static void a_summary_is_of_a_sample(void **state)
{
    (void)state;
    const double v[] = { 4, 1, 99, 3, 2 };
    const uint32_t row[] = { 0, 1, 3, 4 };
    Summary s;
    CHECK_OK(summary_of(v, row, 4, &arena, &s));
    CHECK_NEAR(s.sum, 10, 0);
    CHECK_NEAR(s.mean, 2.5, 0);
    CHECK_NEAR(s.median, 2.5, 0);
    CHECK_NEAR(s.min, 1, 0);
    CHECK_NEAR(s.max, 4, 0);
    CHECK_NEAR(s.std, sqrt(5.0 / 3), 1e-15);
    CHECK_NEAR(summary_std_all(&s), sqrt(1.25), 1e-15);
    CHECK_OK(summary_of(v, NULL, 1, &arena, &s));
    CHECK(isnan(s.std));
    CHECK_NEAR(summary_std_all(&s), 0, 0);
    CHECK_OK(summary_of(v, NULL, 0, &arena, &s));
    CHECK(isnan(s.mean) && s.sum == 0);
}

/* Bits of numpy: np.sum(1 / (1 + np.arange(n))) for one block, its tail, and halves. */
static void sums_have_numpys_bits(void **state)
{
    (void)state;
    static const struct {
        int n;
        double sum;
    } row[] = { { 7, 2.5928571428571425 },  { 9, 2.8289682539682537 },  { 14, 3.251562326562327 },
                { 127, 5.425334592589172 }, { 129, 5.440899030573669 }, { 300, 6.282663880299504 },
                { 1000, 7.485470860550345 } };
    double v[1000];
    Summary s;
    for (int i = 0; i < 1000; i++) v[i] = 1.0 / (i + 1);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CHECK_OK(summary_of(v, NULL, row[i].n, &arena, &s));
        CHECK(s.sum == row[i].sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lists_become_tuples),
        TEST(texts_have_pythons_quotes),
        TEST(what_is_no_json_goes_through),
        TEST(rows_with_equal_keys_are_a_group),
        TEST(many_groups_are_found_again),
        TEST(groups_stand_by_falling_value),
        TEST(groups_are_ranked_by_the_sum_of_their_rows),
        TEST(a_summary_is_of_a_sample),
        TEST(sums_have_numpys_bits),
    };
    if (arena_init(&arena, "test", MEM_HOST, 64 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
