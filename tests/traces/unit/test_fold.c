#include "harness/test.h"

#include "traces/table/fold.h"

#include <math.h>

static Arena arena;

/* Three calls of a on two streams, one of b: us 1, 5, NaN (not known) and 4. */
static void put_rows(FoldRows *rows, const Fold *f)
{
    *rows = (FoldRows){ .whole = { NAN, 40 } };
    CHECK_OK(table_init(&rows->t, "rows", f->rows, "", &arena));
    static const struct {
        const char *name;
        int stream;
        double us;
        const char *sizes;
    } row[] = { { "a", 7, 1, "[[2,3],[]]" },
                { "b", 7, 4, "" },
                { "a", 9, 5, "[[8]]" },
                { "a", 7, NAN, "[[9]]" } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        CHECK_OK(TABLE_ROW(&rows->t, cell_text(row[i].name), cell_whole(row[i].stream),
                           cell_number(row[i].us), cell_text(row[i].sizes)));
}

static Table folded(const Fold *f, const char *without)
{
    FoldRows rows;
    Table t = { .name = "sheet" };
    put_rows(&rows, f);
    CHECK_OK(fold_rows(&rows, f, without, &arena, &t));
    return t;
}

static void groups_come_by_their_sums(void **state)
{
    (void)state;
    const Fold f = { .rows = "name|stream|us|sizes",
                     .keys = "name|stream",
                     .by = "us",
                     .columns = "name=first name|stream=first stream|rows=n|us_*=sum,max us" };
    Table t = folded(&f, "");
    static const struct {
        const char *name;
        int stream, rows;
        double sum;
    } want[] = { { "a", 9, 1, 5 }, { "b", 7, 1, 4 }, { "a", 7, 2, 1 } };
    CHECK_INT(t.columns, 5);
    CHECK_TEXT(t.column[3], "us_sum");
    CHECK_TEXT(t.column[4], "us_max");
    CHECK_INT(t.rows, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_TEXT(table_at(&t, i, 0)->text, want[i].name);
        CHECK_INT(table_at(&t, i, 1)->whole, want[i].stream);
        CHECK_INT(table_at(&t, i, 2)->whole, want[i].rows);
        CHECK_NEAR(table_at(&t, i, 3)->number, want[i].sum, 1e-12);
    }
}

/* Without a column to rank them the group with most rows is the first. What is not known is in no
 * number, but counts as a row. */
static void groups_come_by_their_rows_and_skip_what_is_unknown(void **state)
{
    (void)state;
    const Fold f = { .rows = "name|stream|us|sizes",
                     .keys = "name",
                     .columns = "name=first name|rows=n|us_*=sum,mean,median,min,std us|ms=ms us" };
    Table t = folded(&f, "");
    CHECK_INT(t.rows, 2);
    CHECK_TEXT(table_at(&t, 0, 0)->text, "a");
    CHECK_INT(table_at(&t, 0, 1)->whole, 3);
    const double want[] = { 6, 3, 3, 1, sqrt(8), 0.006 };
    for (int i = 0; i < 6; i++) CHECK_NEAR(table_at(&t, 0, 2 + i)->number, want[i], 1e-12);
    CHECK(isnan(table_at(&t, 1, 6)->number)); /* std of one */
}

/* "first" is the first row's cell, "known" the first that is not empty. */
static void what_the_first_row_lacks_may_come_from_the_next(void **state)
{
    (void)state;
    FoldRows rows = { .whole = { NAN, NAN } };
    const Fold f = { .rows = "key|size",
                     .keys = "key",
                     .columns = "first=first size|known=known size" };
    Table t = { .name = "sheet" };
    CHECK_OK(table_init(&rows.t, "rows", f.rows, "", &arena));
    CHECK_OK(TABLE_ROW(&rows.t, cell_text("a"), cell_none()));
    CHECK_OK(TABLE_ROW(&rows.t, cell_text("a"), cell_whole(7)));
    CHECK_OK(TABLE_ROW(&rows.t, cell_text("a"), cell_whole(8)));
    CHECK_OK(fold_rows(&rows, &f, "", &arena, &t));
    CHECK(table_at(&t, 0, 0)->type == CELL_NONE);
    CHECK_INT(table_at(&t, 0, 1)->whole, 7);
}

/* Of all groups' rows where nothing is given, else of what is: 2 + 1 rows here, 40 there. */
static void shares_are_of_the_whole_that_is_given(void **state)
{
    (void)state;
    const Fold f = { .rows = "name|stream|us|sizes",
                     .keys = "name",
                     .columns = "a=share0 stream|b=share1 stream|c=upto0 stream" };
    FoldRows rows;
    Table t = { .name = "sheet" };
    put_rows(&rows, &f);
    rows.whole[0] = 30; /* of which a has 23, b 7 */
    CHECK_OK(fold_rows(&rows, &f, "", &arena, &t));
    CHECK_NEAR(table_at(&t, 0, 0)->number, 2300.0 / 30, 1e-9);
    CHECK_NEAR(table_at(&t, 0, 1)->number, 2300.0 / 40, 1e-9);
    CHECK_NEAR(table_at(&t, 1, 0)->number, 700.0 / 30, 1e-9);
    CHECK_NEAR(table_at(&t, 1, 2)->number, 100, 1e-9);
}

static void columns_that_a_table_lacks_are_left_out(void **state)
{
    (void)state;
    const Fold f = { .rows = "name|stream|us|sizes",
                     .keys = "name|sizes",
                     .columns = "name=first name|?sizes=tuple sizes|list=list sizes|rows=n" };
    Table t = folded(&f, "");
    CHECK_TEXT(table_at(&t, 0, 1)->text, "((2, 3), ())");
    CHECK_TEXT(table_at(&t, 0, 2)->text, "[[2, 3], []]");
    CHECK_INT(table_at(&t, 1, 1)->type, CELL_NONE); /* no sizes */
    t = folded(&f, "?");
    CHECK_INT(t.columns, 3);
    CHECK_TEXT(t.column[1], "list");
    CHECK_INT(table_at(&t, 3, 2)->whole, 1);
}

/* b loses 6, a gains 4 in all: for the order the sign does not count. */
static void groups_may_come_by_the_size_of_their_sums(void **state)
{
    (void)state;
    const Fold f = { .rows = "name|change|n",
                     .keys = "name",
                     .by = "change",
                     .magnitude = true,
                     .columns = "name=first name|sum=sum change|whole=whole n" };
    FoldRows rows = { .whole = { NAN, NAN } };
    Table t = { .name = "sheet" };
    CHECK_OK(table_init(&rows.t, "rows", f.rows, "", &arena));
    CHECK_OK(TABLE_ROW(&rows.t, cell_text("a"), cell_number(6), cell_whole(2)));
    CHECK_OK(TABLE_ROW(&rows.t, cell_text("b"), cell_number(-6), cell_whole(3)));
    CHECK_OK(TABLE_ROW(&rows.t, cell_text("a"), cell_number(-2), cell_whole(5)));
    CHECK_OK(fold_rows(&rows, &f, "", &arena, &t));
    CHECK_TEXT(table_at(&t, 0, 0)->text, "b");
    CHECK_NEAR(table_at(&t, 0, 1)->number, -6, 1e-12);
    CHECK_INT(table_at(&t, 1, 2)->type, CELL_WHOLE);
    CHECK_INT(table_at(&t, 1, 2)->whole, 7);
}

static Status say_streams(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a, Cell *out)
{
    (void)a;
    out[0] = cell_whole(n);
    out[1] = *table_at(&rows->t, row[n - 1], 1);
    return OK;
}

static void a_sheet_may_make_cells_of_its_own(void **state)
{
    (void)state;
    const Fold f = { .rows = "name|stream|us|sizes",
                     .keys = "name",
                     .columns = "rows=more|name=first name|last stream=more",
                     .more = say_streams };
    Table t = folded(&f, "");
    CHECK_INT(table_at(&t, 0, 0)->whole, 3);
    CHECK_TEXT(table_at(&t, 1, 1)->text, "b");
    CHECK_INT(table_at(&t, 0, 2)->whole, 7);
}

static Status describe_row(const FoldRows *rows, uint32_t row, Table *out)
{
    (void)rows;
    return TABLE_ROW(out, cell_whole(100 + (int64_t)row), cell_text("[1]"));
}

/* What only a group's first row shows is asked for once a group. */
static void first_rows_are_described(void **state)
{
    (void)state;
    const Fold f = { .rows = "name|stream|us|sizes",
                     .keys = "name",
                     .columns = "name=first name|nth=first nth|list=tuple list|rows=n",
                     .described = "nth|list",
                     .describe = describe_row };
    Table t = folded(&f, "");
    CHECK_INT(table_at(&t, 0, 1)->whole, 100);
    CHECK_INT(table_at(&t, 1, 1)->whole, 101);
    CHECK_TEXT(table_at(&t, 1, 2)->text, "(1,)");
    CHECK_INT(table_at(&t, 0, 3)->whole, 3);
}

static void no_rows_are_a_table_without_rows_or_none(void **state)
{
    (void)state;
    Fold f = { .rows = "name|us", .keys = "name", .columns = "name=first name|us=sum us" };
    for (int optional = 0; optional < 2; optional++) {
        FoldRows rows = { .whole = { NAN, NAN } };
        Table t = { .name = "sheet" };
        f.optional = optional == 1;
        CHECK_OK(table_init(&rows.t, "rows", f.rows, "", &arena));
        CHECK_OK(fold_rows(&rows, &f, "", &arena, &t));
        CHECK_INT(t.rows, 0);
        CHECK_INT(t.columns, optional == 1 ? 0 : 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(groups_come_by_their_sums),
        TEST(groups_come_by_their_rows_and_skip_what_is_unknown),
        TEST(what_the_first_row_lacks_may_come_from_the_next),
        TEST(shares_are_of_the_whole_that_is_given),
        TEST(columns_that_a_table_lacks_are_left_out),
        TEST(groups_may_come_by_the_size_of_their_sums),
        TEST(a_sheet_may_make_cells_of_its_own),
        TEST(first_rows_are_described),
        TEST(no_rows_are_a_table_without_rows_or_none),
    };
    if (arena_init(&arena, "test", MEM_HOST, (size_t)1 << 26) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
