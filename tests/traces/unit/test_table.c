#include "harness/test.h"

#include "traces/table/table.h"

#include <unistd.h>

static Arena arena;

static void a_number_is(double x, const char *want)
{
    char got[TABLE_NUMBER_BYTES];
    CHECK_TEXT(table_number(got, x), want);
}

static void numbers_have_the_fewest_digits_that_read_back(void **state)
{
    (void)state;
    a_number_is(0, "0.0");
    a_number_is(-0.0, "-0.0");
    a_number_is(1, "1.0");
    a_number_is(-120, "-120.0");
    a_number_is(0.1, "0.1");
    a_number_is(0.1 + 0.2, "0.30000000000000004");
    a_number_is(1e15, "1000000000000000.0");
    a_number_is(1e16, "1e+16");
    a_number_is(1.5e300, "1.5e+300");
    a_number_is(0.0001, "0.0001");
    a_number_is(0.00001, "1e-05");
    a_number_is(-1.25e-7, "-1.25e-07");
    a_number_is(113.44604166666666, "113.44604166666666");
    a_number_is(2.2250738585072014e-308, "2.2250738585072014e-308");
    a_number_is(NAN, "nan");
    a_number_is(-INFINITY, "-inf");
}

typedef Status Write(const Table *t, File *out);

static const char *written(const Table *t, Write *write)
{
    char path[64];
    char *text = NULL;
    size_t n = 0;
    File f = { 0 };
    (void)snprintf(path, sizeof path, "/tmp/test_table.%d", (int)getpid());
    CHECK_OK(file_create_temp(&f, path, &arena));
    CHECK_OK(write(t, &f));
    CHECK_OK(file_commit(&f));
    CHECK_OK(file_read_all(path, &arena, &text, &n));
    (void)remove(path);
    return text;
}

static Table sample(void)
{
    Table t;
    Cell *row = NULL;
    CHECK_OK(table_init(&t, "sample", "name|time, ms|count|yes", "", &arena));
    CHECK_OK(table_row(&t, &row));
    row[0] = cell_text("a \"b\", c");
    row[1] = cell_number(1.5);
    row[2] = cell_whole(-7);
    row[3] = cell_bool(true);
    CHECK_OK(table_row(&t, &row));
    row[0] = cell_text("line\nbreak");
    row[1] = cell_number(NAN);
    row[3] = cell_bool(false);
    return t;
}

static void a_csv_quotes_what_needs_it(void **state)
{
    (void)state;
    Table t = sample();
    CHECK_TEXT(written(&t, table_csv), "name,\"time, ms\",count,yes\n"
                                       "\"a \"\"b\"\", c\",1.5,-7,True\n"
                                       "\"line\nbreak\",,,False\n");
}

static void json_is_an_array_of_objects(void **state)
{
    (void)state;
    Table t = sample();
    CHECK_TEXT(written(&t, table_json),
               "[{\"name\": \"a \\\"b\\\", c\", \"time, ms\": 1.5, \"count\": -7, \"yes\": true},\n"
               " {\"name\": \"line\\nbreak\", \"time, ms\": null, \"count\": null, \"yes\": "
               "false}]\n");
}

static void rows_stay_when_the_table_grows(void **state)
{
    (void)state;
    enum { ROWS = 20000 };
    Table t;
    CHECK_OK(table_init(&t, "long", "a|b|c", "", &arena));
    for (int i = 0; i < ROWS; i++) {
        Cell *row = NULL;
        CHECK_OK(table_row(&t, &row));
        for (int k = 0; k < 3; k++) CHECK_INT(row[k].type, CELL_NONE);
        row[1] = cell_whole(i);
    }
    CHECK_INT(t.rows, ROWS);
    for (int i = 0; i < ROWS; i++) CHECK_INT(t.cell[i * 3 + 1].whole, i);
}

static void columns_that_a_table_lacks_take_no_cells(void **state)
{
    (void)state;
    Table t;
    CHECK_OK(table_init(&t, "some", "a|?b|+c|d", "?", &arena));
    CHECK_OK(table_add(&t, "rank_1_", "@e|f", "?@"));
    CHECK_INT(t.columns, 4);
    CHECK_INT(table_column(&t, "c"), 1);
    CHECK_INT(table_column(&t, "b"), -1);
    CHECK_INT(table_column(&t, "rank_1_f"), 3);
    CHECK_OK(TABLE_ROW(&t, cell_whole(1), cell_whole(2), cell_whole(3)));
    TABLE_MORE(&t, cell_text("four"), cell_whole(5), cell_number(0.5), cell_whole(7));
    CHECK_OK(TABLE_ROW(&t, cell_text(NULL), cell_bool(true), cell_count(-1)));
    CHECK_TEXT(written(&t, table_csv), "a,c,d,rank_1_f\n1,3,four,0.5\n,,,\n");
    CHECK_NEAR(cell_value(table_at(&t, 0, 1)), 3, 0);
    CHECK(isnan(cell_value(table_at(&t, 0, 2))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(numbers_have_the_fewest_digits_that_read_back),
        TEST(a_csv_quotes_what_needs_it),
        TEST(json_is_an_array_of_objects),
        TEST(rows_stay_when_the_table_grows),
        TEST(columns_that_a_table_lacks_take_no_cells),
    };
    if (arena_init(&arena, "test", MEM_HOST, 64 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
