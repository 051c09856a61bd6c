/* Columns of Parquet files that pyarrow wrote (tools/make_parquet), beside the rows that it was given. */
#include "engine/base/json.h"
#include "harness/place.h"
#include "parquet/private.h"

#include <stdio.h>
#include <string.h>

static const char FILES[] = "tests/golden/parquet";

typedef struct Place {
    char folder[64];
    Arena arena, rows_arena;
    Text rows; /* of the last file */
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(arena_reserve(&p->rows_arena, "rows", (size_t)1 << 30));
    CHECK_OK(text_init(&p->rows, &p->rows_arena));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    arena_free(&p->rows_arena);
    place_drop(p->folder, &p->arena);
    return 0;
}

/* Reads a column of `bytes` bytes to p->rows, each row an object on a line. */
static Status read_rows(Place *p, const char *field, const char *data, size_t bytes)
{
    Parquet *column = NULL;
    const ArenaMark mark = arena_mark(&p->arena);
    bool more = true;
    p->rows.used = 0;
    Status s = parquet_open("a.parquet", field, (const uint8_t *)data, bytes, &p->arena, &column);
    while (s == OK && more) {
        const size_t before = p->rows.used;
        CHECK_OK(text_append(&p->rows, "{", 1));
        s = parquet_row(column, &p->rows, &more);
        if (!more) p->rows.data[p->rows.used = before] = '\0';
        if (s == OK && more) CHECK_OK(text_append(&p->rows, "}\n", 2));
    }
    parquet_close(column);
    arena_release(&p->arena, mark);
    return s;
}

static void load(Place *p, const char *name, char **data, size_t *bytes)
{
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, FILES, name));
    CHECK_OK(file_read_all(path, &p->arena, data, bytes));
}

/* Are two values of JSON the same, whatever their spelling? */
static bool same(const Json *a, const Json *b)
{
    if (a == NULL || b == NULL) return a == b;
    if (a->type != b->type || a->number != b->number) return false;
    if ((a->text == NULL) != (b->text == NULL) || (a->name == NULL) != (b->name == NULL))
        return false;
    if (a->text != NULL && strcmp(a->text, b->text) != 0) return false;
    if (a->name != NULL && strcmp(a->name, b->name) != 0) return false;
    const Json *x = json_first(a), *y = json_first(b);
    for (; x != NULL && y != NULL; x = x->next, y = y->next)
        if (!same(x, y)) return false;
    return x == y;
}

static const Json *take_line(Place *p, const char **at, const char *end)
{
    Json *out = NULL;
    size_t bad = 0;
    const char *newline = memchr(*at, '\n', (size_t)(end - *at));
    if (newline == NULL) return NULL;
    CHECK_OK(json_parse(*at, (size_t)(newline - *at), &p->arena, &out, &bad));
    if (out == NULL) fail_msg("no JSON: %.*s", (int)(newline - *at), *at);
    *at = newline + 1;
    return out;
}

/* The field is the name of the first row's member: a row of Python's has one. */
static void check_file(Place *p, const char *name)
{
    char other[FILE_PATH_MAX];
    char *data = NULL, *lines = NULL;
    size_t bytes = 0, n = 0;
    (void)snprintf(other, sizeof other, "%.*s.jsonl", (int)(strlen(name) - strlen(".parquet")),
                   name);
    load(p, name, &data, &bytes);
    load(p, other, &lines, &n);
    const char *want = lines;
    const Json *first = take_line(p, &want, lines + n);
    want = lines;
    if (read_rows(p, first == NULL ? "text" : json_first(first)->name, data, bytes) != OK)
        fail_msg("%s: %s", name, status_message());
    const char *got = p->rows.data;
    for (int row = 1;; row++) {
        const Json *a = take_line(p, &want, lines + n);
        const Json *b = take_line(p, &got, p->rows.data + p->rows.used);
        if (!same(a, b)) fail_msg("%s: row %d differs", name, row);
        if (a == NULL) break;
    }
}

static void every_file_has_the_rows_that_were_written(void **state)
{
    Place *p = *state;
    const char *const *names = NULL;
    int n = 0, files = 0;
    CHECK_OK(file_list(FILES, &p->arena, &names, &n));
    for (int i = 0; i < n; i++) {
        if (!text_ends(names[i], ".parquet") || text_starts(names[i], "refused")) continue;
        const ArenaMark mark = arena_mark(&p->arena);
        check_file(p, names[i]);
        arena_release(&p->arena, mark);
        files++;
    }
    CHECK(files >= 40);
}

static void what_is_not_read_is_named(void **state)
{
    static const struct {
        const char *name, *sentence;
    } CASES[] = {
        { "lz4", "is compressed with LZ4_RAW, which is not read: write it with snappy" },
        { "brotli", "is compressed with brotli" },
        { "front",
          "column \"text\" is encoded as DELTA_BYTE_ARRAY, which is not read: write it with" },
        { "double",
          "column \"text\" holds DOUBLE, and only text and whole numbers are read: cast it" },
        { "fixed", "holds FIXED_LEN_BYTE_ARRAY" },
        { "date", "holds INT32 that stands for something else" },
        { "time", "holds INT64 that stands for something else" },
        { "group", "column \"text\" is a group of columns" },
        { "lists", "column \"text\" is a group of columns" },
        { "chat", "column \"text\" is a group of columns" },
        { "map", "column \"text\" is a group of columns" },
        { "column", "a.parquet has no column \"text\": --field names one of title, url" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char name[64], *data = NULL;
        size_t bytes = 0;
        (void)snprintf(name, sizeof name, "refused-%s.parquet", CASES[i].name);
        load(p, name, &data, &bytes);
        const Status s = read_rows(p, "text", data, bytes);
        if (s == OK || strstr(status_message(), CASES[i].sentence) == NULL)
            fail_msg("%s: %s", name, s == OK ? "read" : status_message());
    }
}

/* A null inside a list is no number, and the reader of the line says so. */
static void a_null_in_a_list_stays_null(void **state)
{
    Place *p = *state;
    char *data = NULL;
    size_t bytes = 0;
    load(p, "refused-null.parquet", &data, &bytes);
    CHECK_OK(read_rows(p, "text", data, bytes));
    CHECK_TEXT(p->rows.data, "{\"text\": [1,null,3]}\n");
}

static void a_file_that_is_cut_off_is_an_error(void **state)
{
    Place *p = *state;
    char *data = NULL;
    size_t bytes = 0;
    load(p, "text-checked.parquet", &data, &bytes);
    for (size_t n = 0; n < bytes; n++)
        CHECK_FAILS(read_rows(p, "text", data, n), ERR_FORMAT, "is no whole Parquet file");
    data[bytes - 1] = 'E'; /* PARE */
    CHECK_FAILS(read_rows(p, "text", data, bytes), ERR_UNSUPPORTED, "is encrypted Parquet");
}

/* With checksums no changed byte of a page gives other rows. Without, and in the index, it must not crash. */
static void a_changed_byte_is_an_error_or_changes_nothing(void **state)
{
    Place *p = *state;
    char *data = NULL, *want = NULL;
    size_t bytes = 0, differ = 0, errors = 0;
    load(p, "text-checked.parquet", &data, &bytes);
    CHECK_OK(read_rows(p, "text", data, bytes));
    const size_t n = p->rows.used;
    CHECK_OK(ARENA_NEW(&p->arena, n, &want));
    memcpy(want, p->rows.data, n);
    uint32_t index = 0;
    memcpy(&index, data + bytes - 8, 4);
    for (size_t at = 0; at < bytes - 8 - index; at++) {
        data[at] = (char)(data[at] ^ 0x10);
        const Status s = read_rows(p, "text", data, bytes);
        errors += s != OK;
        differ += s == OK && (p->rows.used != n || memcmp(p->rows.data, want, n) != 0);
        data[at] = (char)(data[at] ^ 0x10);
    }
    CHECK_INT(differ, 0);
    CHECK(errors > 100);
    for (size_t at = bytes - 8 - index; at < bytes; at++) {
        data[at] = (char)(data[at] ^ 0x10);
        (void)(read_rows(p, "text", data, bytes) == OK);
        data[at] = (char)(data[at] ^ 0x10);
    }
}

/* Worked by hand: four bytes that follow, a copy that repeats them, and one with a distance of two bytes. */
static void snappy_expands_bytes_and_copies(void **state)
{
    static const uint8_t packed[] = { 14,         3 << 2, 'a',        'b', 'c', 'd',
                                      2 << 2 | 1, 4,      3 << 2 | 2, 10,  0 };
    uint8_t out[14];
    (void)state;
    CHECK(snappy_expand((Bytes){ packed, packed + sizeof packed }, 14, out));
    CHECK(memcmp(out, "abcdabcdababcd", 14) == 0);
    for (size_t n = 0; n < sizeof packed; n++)
        CHECK(!snappy_expand((Bytes){ packed, packed + n }, 14, out));
    static const uint8_t before[] = { 5, 0, 'a', 0 << 2 | 1, 2 }, nowhere[] = { 5, 0, 'a', 1, 0 };
    CHECK(!snappy_expand((Bytes){ before, before + sizeof before }, 5, out));
    CHECK(!snappy_expand((Bytes){ nowhere, nowhere + sizeof nowhere }, 5, out));
    CHECK(!snappy_expand((Bytes){ packed, packed + sizeof packed }, 13, out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(every_file_has_the_rows_that_were_written),
        PLACE_TEST(what_is_not_read_is_named),
        PLACE_TEST(a_null_in_a_list_stays_null),
        PLACE_TEST(a_file_that_is_cut_off_is_an_error),
        PLACE_TEST(a_changed_byte_is_an_error_or_changes_nothing),
        PLACE_TEST(snappy_expands_bytes_and_copies),
    };
    return TEST_RUN(tests);
}
