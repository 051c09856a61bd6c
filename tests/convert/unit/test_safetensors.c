/* Headers of safetensors files: what is right is read, everything else is refused with the tensor and
 * what is wrong with it; files that are written are read again; elements of all types. */
#include "harness/place.h"

#include "convert/weights.h"
#include "engine/base/text.h"

#include <unistd.h>

typedef struct Place {
    char folder[64];
    Arena arena;
} Place;

static int place_open(void **state)
{
    static Place place;
    place_make(place.folder, &place.arena);
    *state = &place;
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

static const char *path_of(Place *p, const char *name)
{
    static char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, p->folder, name));
    return path;
}

/* ---- headers ---- */

enum { DATA_FIRST = 100, DATA_BYTES = 24 };

static Status parse(Arena *a, const char *json, SafeTensor **t, int64_t *n)
{
    const char *copy = NULL;
    CHECK_OK(arena_text(a, json, strlen(json), &copy));
    const SafeHeader h = { (char *)(uintptr_t)copy, strlen(json), DATA_FIRST, DATA_BYTES };
    return safetensors_parse("f", &h, a, t, n);
}

#define T(name, type, shape, begin, end)                                                           \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void tensors_are_read_by_rising_place(void **state)
{
    Place *p = *state;
    SafeTensor *t = NULL;
    int64_t n = 0;
    char text[SAFETENSORS_TEXT_BYTES];
    CHECK_OK(
        parse(&p->arena,
              "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "BF16", "[2,3]", "12", "24") "," T(
                  "a", "F32", "[3]", "0", "12") "," T("none", "F32", "[0,4]", "12", "12") "}  ",
              &t, &n));
    CHECK_INT(n, 3);
    CHECK_TEXT(t[0].name, "a");
    CHECK_TEXT(t[1].name, "none");
    CHECK_TEXT(t[2].name, "b");
    CHECK_INT(t[2].begin, DATA_FIRST + 12);
    CHECK_INT(t[2].end, DATA_FIRST + 24);
    CHECK_TEXT(safetensors_text(text, &t[2]), "BF16 (2, 3)");
    CHECK_INT(t[2].dtype, DTYPE_BF16);
    CHECK_INT(safetensors_elems(&t[1]), 0);
}

static void a_wrong_header_is_refused_with_the_tensor(void **state)
{
    static const struct {
        const char *json, *says;
    } rows[] = {
        { "", "not a JSON object of tensors" },
        { "[]", "not a JSON object of tensors" },
        { " {}", "not a JSON object of tensors" },
        { "{" T("a", "F32", "[6]", "0", "24"), "not a JSON object of tensors" },
        { "{" T("a", "F32", "[6]", "0", "24") "} x", "not a JSON object of tensors" },
        { "{\"a\":3}", "not a JSON object of tensors" },
        { "{}", "the 24 bytes after the last tensor belong to no tensor" },
        { "{" T("a", "F32", "[3]", "0", "12") "}", "12 bytes after the last tensor" },
        { "{" T("a", "F32", "[3]", "12", "24") "}", "12 bytes before a belong to no tensor" },
        { "{" T("a", "F32", "[3]", "0", "12") "," T("b", "F32", "[4]", "8", "24") "}",
          "a and b overlap" },
        { "{" T("a", "F32", "[6]", "0", "24") "," T("b", "F32", "[6]", "0", "24") "}",
          "a and b overlap" },
        { "{" T("a", "F32", "[3]", "0", "12") "," T("a", "F32", "[3]", "12", "24") "}",
          "the 12 bytes before a belong to no tensor" },
        { "{" T("a", "F32", "[7]", "0", "28") "}",
          "truncated: a ends at byte 128, the file at 124" },
        { "{" T("a", "F32", "[5]", "0", "24") "}", "a has 24 bytes, but F32 (5) has 20" },
        { "{" T("a", "F31", "[6]", "0", "24") "}", "a has the unknown type \"F31\"" },
        { "{" T("a", "F4", "[3]", "0", "1") "}", "F4 (3), which no whole number of bytes" },
        { "{" T("a", "F32", "[-6]", "0", "24") "}", "the shape of a must be a list" },
        { "{" T("a", "F32", "[6.5]", "0", "24") "}", "the shape of a must be a list" },
        { "{" T("a", "F32", "[1,1,1,1,1,1,1,1,6]", "0", "24") "}", "at most 8 whole numbers" },
        { "{" T("a", "F32", "{}", "0", "24") "}", "the shape of a must be a list" },
        { "{" T("a", "F32", "[6]", "24", "0") "}", "data_offsets of a must be two whole numbers" },
        { "{" T("a", "F32", "[6]", "0", "1e300") "}",
          "data_offsets of a must be two whole numbers" },
        { "{" T("a", "F32", "[6]", "null", "24") "}",
          "data_offsets of a must be two whole numbers" },
        { "{" T("a", "U8", "[4294967296,4294967296,4294967296]", "0", "0") "}",
          "which no whole number of bytes can hold" },
        { "{" T("a", "F64", "[2305843009213693952]", "0", "0") "}",
          "the shape of a must be a list" },
        { "{\"a\":{\"shape\":[6],\"data_offsets\":[0,24]}}", "a has no dtype" },
        { "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,24]}}", "the shape of a must be a list" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[6]}}", "data_offsets of a" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SafeTensor *t = NULL;
        int64_t n = 0;
        CHECK_FAILS(parse(&p->arena, rows[i].json, &t, &n), ERR_FORMAT, rows[i].says);
    }
}

static void a_nul_in_a_header_does_not_hide_what_follows(void **state)
{
    Place *p = *state;
    char json[] = "{" T("a", "F32", "[6]", "0", "24") "} {}";
    SafeTensor *t = NULL;
    int64_t n = 0;
    json[strlen(json) - 3] = '\0';
    const SafeHeader h = { json, sizeof json - 1, 0, DATA_BYTES };
    CHECK_FAILS(safetensors_parse("f", &h, &p->arena, &t, &n), ERR_FORMAT, "not a JSON object");
}

/* Of few tensors the JSON reader takes the last of a name, and its place does not fit. */
static void a_name_twice_among_many_tensors_is_refused(void **state)
{
    Place *p = *state;
    char json[16384] = "{" T("a", "F32", "[6]", "0", "24");
    SafeTensor *t = NULL;
    int64_t n = 0;
    for (int i = 0; i < 82; i++) {
        const size_t used = strlen(json);
        (void)snprintf(json + used, sizeof json - used, "," T("t%d", "F32", "[0]", "24", "24"),
                       i < 81 ? i : 80);
    }
    strcat(json, "}");
    CHECK_FAILS(parse(&p->arena, json, &t, &n), ERR_FORMAT, "t80 appears twice");
}

static void a_wrong_length_of_the_header_is_refused(void **state)
{
    static const struct {
        uint64_t length;
        size_t bytes;
        const char *says;
    } rows[] = {
        { 2, 7, "truncated: 7 bytes are too few for a header" },
        { 93, 100, "truncated: it has 100 bytes, and its header should have 93" },
        { SAFETENSORS_HEADER_MAX + 1ull, 100, "104857600 is the most" },
        { UINT64_MAX, 100, "18446744073709551615 bytes" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SafeTensor *t = NULL;
        int64_t n = 0;
        char file[128] = "";
        for (int b = 0; b < 8; b++) file[b] = (char)(rows[i].length >> (8 * b));
        CHECK_OK(file_write_whole(path_of(p, "length"), file, rows[i].bytes));
        CHECK_FAILS(safetensors_open(path_of(p, "length"), &p->arena, &t, &n), ERR_FORMAT,
                    rows[i].says);
    }
}

/* ---- elements ---- */

/* A file of tensors with these elements in f32, rounded to their types. */
static void write_file(Place *p, const char *name, SafeTensor *t, int64_t n, const float *const *x)
{
    File f = { 0 };
    CHECK_OK(safetensors_create(&f, path_of(p, name), t, n, &p->arena));
    for (int64_t i = 0; i < n; i++) {
        void *room = NULL;
        int64_t elems = safetensors_elems(&t[i]);
        size_t bytes = (size_t)elems * dtype_bytes((Dtype)t[i].dtype);
        CHECK_OK(arena_alloc(&p->arena, bytes, &room));
        dtype_from_f32(room, (Dtype)t[i].dtype, x[i], elems);
        CHECK_OK(file_write(&f, room, bytes));
    }
    CHECK_OK(file_commit(&f));
    file_close(&f);
}

static void read_all(Weights *w, const char *name, const WeightsView *like, float *out)
{
    WeightsView v = *like;
    v.tensor = weights_take(w, name);
    CHECK(v.tensor != NULL);
    CHECK_OK(weights_scale(w, v.tensor, &v.scale));
    /* in two parts, so that rows are counted from the view's first */
    CHECK_OK(weights_read(w, &v, 0, v.rows - 1, out));
    CHECK_OK(weights_read(w, &v, v.rows - 1, 1, out + (v.rows - 1) * v.cols));
}

static void every_type_comes_back(void **state)
{
    static const Dtype types[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16, DTYPE_E4M3, DTYPE_E5M2 };
    static const float x[6] = { 1, -2, 0.5f, 3, -0.25f, 96 }; /* exact in all of them */
    Place *p = *state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        Weights w;
        float got[6];
        SafeTensor t = { .name = "a\"b", .dtype = (int)types[i], .rank = 2, .dim = { 3, 2 } };
        const float *const all[] = { x };
        write_file(p, WEIGHTS_ONE, &t, 1, all);
        CHECK_OK(weights_open(&w, p->folder, &p->arena));
        CHECK_TEXT(w.at[0].type, safetensors_type(types[i]));
        read_all(&w, "a\"b", &(WeightsView){ .rows = 3, .cols = 2, .row_step = 2, .col_step = 1 },
                 got);
        for (int k = 0; k < 6; k++) CHECK_NEAR(got[k], x[k], 0);
        /* the second column as a row: steps the other way */
        read_all(&w, "a\"b", &(WeightsView){ .rows = 2, .cols = 3, .row_step = 1, .col_step = 2 },
                 got);
        CHECK_NEAR(got[1], 0.5, 0);
        CHECK_NEAR(got[5], 96, 0);
        weights_close(&w);
    }
}

/* A row longer than what is gathered at a time. */
static void long_rows_are_gathered_whole(void **state)
{
    enum { ROWS = 2, COLS = 1500 };
    static float x[ROWS * COLS], got[ROWS * COLS];
    Place *p = *state;
    Weights w;
    SafeTensor t = { .name = "a", .dtype = DTYPE_BF16, .rank = 2, .dim = { COLS, ROWS } };
    const float *const all[] = { x };
    for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)(i % 251);
    write_file(p, WEIGHTS_ONE, &t, 1, all);
    CHECK_OK(weights_open(&w, p->folder, &p->arena));
    read_all(&w, "a", &(WeightsView){ .rows = ROWS, .cols = COLS, .row_step = 1, .col_step = ROWS },
             got);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) CHECK_NEAR(got[r * COLS + c], x[c * ROWS + r], 0);
    }
    weights_close(&w);
}

/* Blocks of 128 x 128, the last ones cut: element (r, c) is 2 (r + c) mod 5, its scale tells its
 * block. */
static void scales_of_blocks_multiply_their_elements(void **state)
{
    enum { ROWS = 130, COLS = 259 };
    static float x[ROWS * COLS], got[ROWS * COLS];
    static const float scale[6] = { 1, 2, 4, 0.5f, 3, 0.125f };
    Place *p = *state;
    Weights w;
    SafeTensor t[] = { { .name = "a", .dtype = DTYPE_E4M3, .rank = 2, .dim = { ROWS, COLS } },
                       { .name = "a_scale_inv", .dtype = DTYPE_F32, .rank = 2, .dim = { 2, 3 } } };
    const float *const all[] = { x, scale };
    for (int i = 0; i < ROWS * COLS; i++) x[i] = (float)((i / COLS + i % COLS) % 5 * 2);
    write_file(p, WEIGHTS_ONE, t, 2, all);
    CHECK_OK(weights_open(&w, p->folder, &p->arena));
    read_all(&w, "a", &(WeightsView){ .rows = ROWS, .cols = COLS, .row_step = COLS, .col_step = 1 },
             got);
    for (int i = 0; i < ROWS * COLS; i++) {
        float s = scale[i / COLS / 128 * 3 + i % COLS / 128];
        CHECK_NEAR(got[i], x[i] * s, 0);
    }
    weights_close(&w);
    t[1].dim[1] = 2;
    write_file(p, WEIGHTS_ONE, t, 2, all);
    CHECK_OK(weights_open(&w, p->folder, &p->arena));
    const SafeTensor *scales = NULL;
    CHECK_FAILS(weights_scale(&w, weights_take(&w, "a"), &scales), ERR_FORMAT,
                "a_scale_inv is F32 (2, 2); it must hold an F32 scale for each block of 128 x 128 "
                "of a (130, 259)");
    weights_close(&w);
}

/* ---- folders ---- */

static Status open_folder(Place *p, const char *index)
{
    Weights w;
    CHECK_OK(file_write_whole(path_of(p, WEIGHTS_INDEX), index, strlen(index)));
    Status s = weights_open(&w, p->folder, &p->arena);
    weights_close(&w);
    CHECK(unlink(path_of(p, WEIGHTS_INDEX)) == 0);
    return s;
}

static void an_index_is_held_to_its_files(void **state)
{
    static const struct {
        const char *index, *says;
        Status status;
    } rows[] = {
        { "{\"weight_map\":{\"a\":\"x\",\"b\":\"y\"}", "not a JSON object", ERR_FORMAT },
        { "{\"weight_map\":{}}", "has no weight_map, or an empty one", ERR_FORMAT },
        { "{\"metadata\":{}}", "has no weight_map, or an empty one", ERR_FORMAT },
        { "{\"weight_map\":{\"a\":\"x\",\"b\":\"none\"}}", "none is missing", ERR_IO },
        { "{\"weight_map\":{\"a\":\"../x\"}}", "\"../x\", which is not the name of a file",
          ERR_FORMAT },
        { "{\"weight_map\":{\"a\":\"\"}}", "which is not the name of a file", ERR_FORMAT },
        { "{\"weight_map\":{\"a\":3}}", "not a JSON object", ERR_FORMAT },
        { "{\"weight_map\":{\"a\":\"x\",\"b\":\"x\"}}", "says that b is in x, but it is not",
          ERR_FORMAT },
        { "{\"weight_map\":{\"a\":\"y\",\"b\":\"x\"}}", "says that a is in y, but it is not",
          ERR_FORMAT },
        { "{\"weight_map\":{\"a\":\"x\",\"b\":\"twice\"}}", "a is in ", ERR_FORMAT },
    };
    static const float x[2] = { 1, 2 };
    Place *p = *state;
    const float *const all[] = { x, x };
    SafeTensor a = { .name = "a", .rank = 1, .dim = { 2 } },
               b = { .name = "b", .rank = 1, .dim = { 2 } };
    SafeTensor both[] = { a, b };
    (void)unlink(path_of(p, WEIGHTS_ONE));
    write_file(p, "x", &a, 1, all);
    write_file(p, "y", &b, 1, all);
    write_file(p, "twice", both, 2, all);
    CHECK_OK(open_folder(p, "{\"weight_map\":{\"a\":\"x\",\"b\":\"y\"},\"metadata\":{}}"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_FAILS(open_folder(p, rows[i].index), rows[i].status, rows[i].says);
}

/* Transformers reads model.safetensors and not the index, we would read the index. */
static void a_file_beside_an_index_of_other_files_is_refused(void **state)
{
    static const float x[2] = { 1, 2 };
    Place *p = *state;
    const float *const all[] = { x };
    SafeTensor a = { .name = "a", .rank = 1, .dim = { 2 } },
               b = { .name = "b", .rank = 1, .dim = { 2 } };
    write_file(p, "x", &a, 1, all);
    write_file(p, WEIGHTS_ONE, &a, 1, all);
    CHECK_FAILS(open_folder(p, "{\"weight_map\":{\"a\":\"x\"}}"), ERR_FORMAT,
                "has model.safetensors and also model.safetensors.index.json, which names other "
                "files: remove one of the two");
    CHECK_OK(open_folder(p, "{\"weight_map\":{\"a\":\"model.safetensors\"}}"));
    write_file(p, "x", &b, 1, all);
    CHECK_FAILS(open_folder(p, "{\"weight_map\":{\"a\":\"model.safetensors\",\"b\":\"x\"}}"),
                ERR_FORMAT, "names other files");
    CHECK(unlink(path_of(p, WEIGHTS_ONE)) == 0);
}

/* Three files are read in turn through the two maps that there are. */
static void more_files_than_maps_are_read(void **state)
{
    Place *p = *state;
    Weights w;
    const char index[] = "{\"weight_map\":{\"a\":\"f0\",\"b\":\"f1\",\"c\":\"f2\"}}";
    CHECK_OK(file_write_whole(path_of(p, WEIGHTS_INDEX), index, sizeof index - 1));
    for (int i = 0; i < 3; i++) {
        const char *const names[] = { "a", "b", "c" }, *const files[] = { "f0", "f1", "f2" };
        const float x[1] = { (float)(i + 1) };
        const float *const all[] = { x };
        SafeTensor t = { .name = names[i], .rank = 2, .dim = { 1, 1 } };
        write_file(p, files[i], &t, 1, all);
    }
    CHECK_OK(weights_open(&w, p->folder, &p->arena));
    const WeightsView v = { .rows = 1, .cols = 1, .row_step = 1, .col_step = 1 };
    for (int i = 0; i < 9; i++) {
        const char *const names[] = { "a", "b", "c" };
        WeightsView one = v;
        float got = 0;
        int k = i * 2 % 3;
        one.tensor = weights_take(&w, names[k]);
        CHECK_OK(weights_read(&w, &one, 0, 1, &got));
        CHECK_NEAR(got, k + 1, 0);
    }
    CHECK(weights_take(&w, "d") == NULL);
    weights_close(&w);
    CHECK(unlink(path_of(p, WEIGHTS_INDEX)) == 0);
}

/* As many tensors as the largest models have, in a table that must grow, in time that shows if it is
 * walked for every name. */
static void an_index_of_a_hundred_thousand_tensors_is_read(void **state)
{
    enum { TENSORS = 100000 };
    Place *p = *state;
    Text text;
    WeightsEntry *entry = NULL;
    int64_t n = 0;
    Names names;
    Arena arena = { 0 };
    CHECK_OK(arena_init(&arena, "text", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(text_init(&text, &arena));
    CHECK_OK(text_printf(&text, "{\"weight_map\":{"));
    for (int i = 0; i < TENSORS; i++)
        CHECK_OK(text_printf(&text, "%s\"model.layers.%d.weight\":\"file\"", i == 0 ? "" : ",", i));
    CHECK_OK(text_printf(&text, "}}"));
    CHECK_OK(weights_parse_index("index", text.data, text.used, &p->arena, &entry, &n));
    CHECK_INT(n, TENSORS);
    CHECK_OK(names_init(&names, n, &p->arena));
    for (int64_t i = 0; i < n; i++) CHECK_INT(names_add(&names, entry[i].tensor, i), -1);
    for (int64_t i = 0; i < n; i++) CHECK_INT(names_find(&names, entry[i].tensor), i);
    CHECK_INT(names_add(&names, entry[7].tensor, 9), 7);
    CHECK_INT(names_find(&names, "model.layers.100000.weight"), -1);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tensors_are_read_by_rising_place),
        TEST(a_wrong_header_is_refused_with_the_tensor),
        TEST(a_nul_in_a_header_does_not_hide_what_follows),
        TEST(a_name_twice_among_many_tensors_is_refused),
        TEST(a_wrong_length_of_the_header_is_refused),
        TEST(every_type_comes_back),
        TEST(long_rows_are_gathered_whole),
        TEST(scales_of_blocks_multiply_their_elements),
        TEST(an_index_is_held_to_its_files),
        TEST(a_file_beside_an_index_of_other_files_is_refused),
        TEST(more_files_than_maps_are_read),
        TEST(an_index_of_a_hundred_thousand_tensors_is_read),
    };
    return cmocka_run_group_tests(tests, place_open, place_close);
}
