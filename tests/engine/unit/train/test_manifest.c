/* Manifests over pieces: what any ranks wrote by columns, rows, ranges or parts of columns, any
 * others read; gaps, overlaps and wrong bytes are sentences; a manifest from before columns is read
 * as ever. */
#include "harness/test.h"

#include "engine/base/rng.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/manifest.h"

#include <fcntl.h>
#include <unistd.h>

enum { RANKS_MAX = 4, ELEMS_MAX = 64 * 64 };

/* A checkpoint of one matrix. */
typedef struct Lab {
    char folder[64];
    Arena arena, lines_arena;
    Text lines;
    CheckpointInfo info;
    int64_t rows, columns;
    ManifestEntry *entry;
    int64_t n;
} Lab;

static void lab_open(Lab *l, int64_t rows, int64_t columns)
{
    *l = (Lab){ .rows = rows, .columns = columns, .folder = "/tmp/switchyard_test_XXXXXX" };
    l->info = (CheckpointInfo){ .step = 3, .config = "model: {}\n", .products = "" };
    CHECK(mkdtemp(l->folder) != NULL);
    CHECK_OK(arena_init(&l->arena, "lab", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&l->lines_arena, "lines", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(text_init(&l->lines, &l->lines_arena));
}

static void lab_close(Lab *l)
{
    CHECK_OK(file_remove_tree(l->folder));
    arena_free(&l->arena);
    arena_free(&l->lines_arena);
}

/* ---- how a matrix is cut ---- */

typedef enum Cut { BY_ROW, BY_COLUMN, BY_RANGE, BY_PART, CUTS } Cut;

/* Rank r of n has from share r to share r + 1 of the whole: even, or ever more. */
static int64_t share(int64_t whole, int r, int n, bool even)
{
    return even ? whole * r / n : whole * r * r / (n * n);
}

static Piece cut_piece(const Lab *l, Cut cut, int r, int n, bool even);

/* As with tensor parallelism and ZeRO: two groups of ranks have half of the columns each, and the
 * ranks of a group have ranges of its elements. */
static Piece cut_part(const Lab *l, int r, int n, bool even)
{
    const int groups = n > 1 ? 2 : 1, ranks = (n - r % groups + groups - 1) / groups;
    Piece half = cut_piece(l, BY_COLUMN, r % groups, groups, even);
    int64_t all = piece_elems(&half), first = share(all, r / groups, ranks, even);
    return piece_part(&half, first, share(all, r / groups + 1, ranks, even) - first);
}

static Piece cut_piece(const Lab *l, Cut cut, int r, int n, bool even)
{
    if (cut == BY_PART) return cut_part(l, r, n, even);
    int64_t whole = cut == BY_ROW ? l->rows : cut == BY_COLUMN ? l->columns : l->rows * l->columns;
    int64_t first = share(whole, r, n, even), width = share(whole, r + 1, n, even) - first;
    if (cut == BY_COLUMN && width > 0) return (Piece){ first, width, l->columns, l->rows, 0, 0 };
    if (cut == BY_ROW) return piece_range(first * l->columns, width * l->columns);
    return piece_range(first, width);
}

static float value(int64_t element) { return (float)element + 0.5f; }

/* ---- writing and reading ---- */

static Status write_piece(Lab *l, int rank, Piece piece, float (*of)(int64_t))
{
    float x[ELEMS_MAX];
    char path[FILE_PATH_MAX], name[32], buffer[1 << 12];
    int64_t n = piece_elems(&piece);
    folder_shard_name(name, rank);
    ManifestShard w = { .step = 3, .lines = &l->lines };
    ManifestEntry entry = { .param = "model.w",
                            .file = name,
                            .buffer = BUF_MAIN,
                            .rank = 2,
                            .dim = { l->rows, l->columns },
                            .piece = piece };
    for (int64_t i = 0; i < n; i++) x[i] = of(piece_element(&piece, i));
    TRY(manifest_sum_new(&l->arena, &w.sum));
    TRY(file_join(path, l->folder, name));
    TRY(file_create_temp_buffered(&w.file, path, buffer, sizeof buffer));
    Status s = manifest_write_entry(&w, &entry, x);
    if (s == OK) s = file_commit(&w.file);
    file_close(&w.file);
    return s;
}

static void write_manifest(Lab *l)
{
    Manifest m = { 0 };
    CHECK_OK(manifest_create(&m, l->folder, "lab", &l->info, &l->arena));
    CHECK_OK(manifest_lines(&m, l->lines.data, l->lines.used));
    CHECK_OK(manifest_commit(&m));
    file_close(&m.file);
    l->lines.used = 0;
}

/* Its entries as one chain. */
static const ManifestEntry *read_manifest(Lab *l)
{
    const ManifestEntry *chain = NULL;
    CHECK_OK(manifest_read(l->folder, &l->arena, &l->info, &l->entry, &l->n));
    for (int64_t i = 0; i < l->n; i++) {
        l->entry[i].other = chain;
        chain = &l->entry[i];
    }
    return chain;
}

static void write_cut(Lab *l, Cut cut, int ranks, bool even)
{
    for (int r = 0; r < ranks; r++) {
        Piece piece = cut_piece(l, cut, r, ranks, even);
        if (piece_elems(&piece) > 0) CHECK_OK(write_piece(l, r, piece, value));
    }
    write_manifest(l);
}

static Status read_piece(Lab *l, Piece want, void *x)
{
    const Tensor at = { x, DTYPE_F32, 1, { piece_elems(&want) } };
    for (int64_t i = 0; i < l->n; i++) {
        TRY(manifest_read_entry(NULL, l->folder, &l->entry[i], &(ParamPiece){ want, at },
                                &l->arena));
    }
    return OK;
}

static void check_cut(Lab *l, Cut cut, int ranks, bool even)
{
    float x[ELEMS_MAX + 1];
    int64_t read = 0;
    for (int r = 0; r < ranks; r++) {
        Piece want = cut_piece(l, cut, r, ranks, even);
        int64_t n = piece_elems(&want);
        for (int i = 0; i <= ELEMS_MAX; i++) x[i] = -1;
        CHECK_OK(read_piece(l, want, x));
        for (int64_t i = 0; i < n; i++) CHECK(x[i] == value(piece_element(&want, i)));
        CHECK(x[n] == -1);
        read += n;
    }
    CHECK_INT(read, l->rows * l->columns);
}

static void check_all_readers(Lab *l)
{
    CHECK_OK(manifest_check_cover(l->folder, read_manifest(l), l->rows * l->columns));
    for (int cut = 0; cut < CUTS; cut++) {
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
            check_cut(l, (Cut)cut, ranks, true);
            check_cut(l, (Cut)cut, ranks, false);
        }
    }
}

static void two_that_wrote_by_column_are_read_by_any(void **state)
{
    (void)state;
    Lab l;
    lab_open(&l, 6, 8);
    write_cut(&l, BY_COLUMN, 2, true);
    CHECK_INT(l.n, 0);
    check_all_readers(&l);
    CHECK_INT(l.n, 2);
    CHECK(l.entry[1].piece.first == 4 && l.entry[1].piece.n == 4);
    CHECK(l.entry[1].piece.stride == 8 && l.entry[1].piece.rows == 6);
    lab_close(&l);
}

static void any_cut_of_any_shape_is_read_by_any_other(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 40; i++) {
        Lab l;
        lab_open(&l, 1 + (int64_t)(rng_uniform(1, 1, i) * 17),
                 1 + (int64_t)(rng_uniform(1, 2, i) * 33));
        write_cut(&l, (Cut)(i % CUTS), 1 + (int)(i / 3 % RANKS_MAX), i / CUTS % 2 == 0);
        check_all_readers(&l);
        lab_close(&l);
    }
}

/* ---- the form ---- */

static const ManifestEntry shown = { .param = "model.w",
                                     .file = "rank-00001.bin",
                                     .buffer = BUF_OPTIMIZER,
                                     .rule = &optimizer_adamw,
                                     .rank = 2,
                                     .dim = { 4, 6 },
                                     .offset = 64,
                                     .sum = "0123456789abcdef0123456789abcdef" };

static void one_run_is_written_as_ever_and_more_say_so(void **state)
{
    (void)state;
    Lab l;
    lab_open(&l, 4, 6);
    ManifestEntry e = shown;
    e.piece = piece_range(5, 7);
    CHECK_OK(manifest_line(&l.lines, &e));
    CHECK_TEXT(l.lines.data,
               "{\"param\":\"model.w\",\"buffer\":\"moment1\",\"shape\":[4,6],\"first\":5,"
               "\"count\":7,\"file\":\"rank-00001.bin\",\"offset\":64,"
               "\"xxh3\":\"0123456789abcdef0123456789abcdef\"}\n");
    l.lines.used = 0;
    e.piece = (Piece){ 2, 3, 6, 4, 0, 0 };
    CHECK_OK(manifest_line(&l.lines, &e));
    CHECK_TEXT(l.lines.data,
               "{\"param\":\"model.w\",\"buffer\":\"moment1\",\"shape\":[4,6],\"first\":2,"
               "\"count\":3,\"stride\":6,\"rows\":4,\"file\":\"rank-00001.bin\",\"offset\":64,"
               "\"xxh3\":\"0123456789abcdef0123456789abcdef\"}\n");
    lab_close(&l);
}

static void a_part_of_columns_says_what_its_runs_lack(void **state)
{
    (void)state;
    static const struct {
        Piece piece;
        const char *says;
    } is[] = {
        { { 2, 3, 6, 4, 1, 2 },
          "\"count\":3,\"stride\":6,\"rows\":4,\"skip\":1,\"lack\":2,\"file\"" },
        { { 2, 3, 6, 4, 1, 0 }, "\"rows\":4,\"skip\":1,\"file\"" },
        { { 2, 3, 6, 4, 0, 2 }, "\"rows\":4,\"lack\":2,\"file\"" },
        { { 2, 3, 3, 1, 1, 1 }, "\"count\":3,\"skip\":1,\"lack\":1,\"file\"" },
    };
    Lab l;
    lab_open(&l, 4, 6);
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        ManifestEntry e = shown;
        e.piece = is[i].piece;
        CHECK_OK(manifest_line(&l.lines, &e));
        CHECK(strstr(l.lines.data, is[i].says) != NULL);
        write_manifest(&l);
        read_manifest(&l);
        CHECK(memcmp(&l.entry[0].piece, &e.piece, sizeof e.piece) == 0);
    }
    lab_close(&l);
}

static void a_part_that_is_no_part_does_not_fit(void **state)
{
    (void)state;
    static const int64_t far = 1LL << 53;
    const Piece bad[] = {
        { 2, 3, 6, 4, 3, 0 },  { 2, 3, 6, 4, 0, 3 },     { 2, 3, 6, 4, -1, 0 },
        { 2, 3, 6, 4, 0, -1 }, { 2, 3, 6, 4, far, far }, { 2, 3, 6, 4, -far, far },
        { 2, 3, 3, 1, 1, 2 },  { 2, 3, 3, 1, 2, 2 },
    };
    Lab l;
    lab_open(&l, 4, 6);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ManifestEntry e = shown;
        e.piece = bad[i];
        CHECK_OK(manifest_line(&l.lines, &e));
    }
    write_manifest(&l);
    read_manifest(&l);
    CHECK_INT(l.n, sizeof bad / sizeof *bad);
    for (int64_t i = 0; i < l.n; i++) CHECK(!piece_fits(&l.entry[i].piece, 24));
    lab_close(&l);
}

static void elements_that_are_not_f32_say_so(void **state)
{
    (void)state;
    Lab l;
    lab_open(&l, 4, 6);
    ManifestEntry e = shown;
    e.piece = piece_range(5, 7);
    e.dtype = DTYPE_BF16;
    CHECK_OK(manifest_line(&l.lines, &e));
    CHECK_TEXT(l.lines.data,
               "{\"param\":\"model.w\",\"buffer\":\"moment1\",\"dtype\":\"bf16\",\"shape\":[4,6],"
               "\"first\":5,\"count\":7,\"file\":\"rank-00001.bin\",\"offset\":64,"
               "\"xxh3\":\"0123456789abcdef0123456789abcdef\"}\n");
    e.dtype = DTYPE_F32;
    e.buffer = BUF_MAIN;
    CHECK_OK(manifest_line(&l.lines, &e));
    write_manifest(&l);
    read_manifest(&l);
    CHECK_INT(l.entry[0].dtype, DTYPE_BF16);
    CHECK_INT(l.entry[1].dtype, DTYPE_F32);
    lab_close(&l);
}

static void one_from_before_columns_is_read(void **state)
{
    (void)state;
    static const char OLD[] =
        "{\"format\":\"switchyard checkpoint\",\"version\":1,\"model\":\"tiny\",\"step\":4,"
        "\"position\":16,\"config\":\"model:\\n\",\"products\":\"\"}\n"
        "{\"param\":\"model.w\",\"buffer\":\"main\",\"shape\":[2,3],\"first\":0,\"count\":4,"
        "\"file\":\"rank-00000.bin\",\"offset\":0,\"xxh3\":\"41a047b33836bd3cc44fe6afba862733\"}\n"
        "{\"param\":\"model.w\",\"buffer\":\"main\",\"shape\":[2,3],\"first\":4,\"count\":2,"
        "\"file\":\"rank-00001.bin\",\"offset\":64,\"xxh3\":\"6b49e0dc882d74c5e2a2d914d9202485\"}\n"
        "{\"entries\":2,\"xxh3\":\"44935eb812ff7cfdcda5a57c9db09ea0\"}\n";
    static const float values[18] = { 0.5f, 1.5f, 2.5f, 3.5f, [16] = 4.5f, 5.5f };
    Lab l;
    char path[FILE_PATH_MAX], name[32];
    lab_open(&l, 2, 3);
    CHECK_OK(file_join(path, l.folder, MANIFEST_NAME));
    CHECK_OK(file_write_whole(path, OLD, sizeof OLD - 1));
    for (int r = 0; r < 2; r++) {
        folder_shard_name(name, r);
        CHECK_OK(file_join(path, l.folder, name));
        CHECK_OK(file_write_whole(path, values, sizeof values));
    }
    const ManifestEntry *chain = read_manifest(&l);
    CHECK_INT(l.info.step, 4);
    CHECK_INT(l.n, 2);
    CHECK(chain->piece.first == 4 && chain->piece.n == 2 && chain->piece.rows == 1);
    CHECK_INT(chain->offset, 64);
    check_all_readers(&l);
    lab_close(&l);
}

/* ---- what is wrong ---- */

static void check_pieces(const Piece *piece, int n, const char *says)
{
    Lab l;
    lab_open(&l, 4, 6);
    for (int r = 0; r < n; r++) CHECK_OK(write_piece(&l, r, piece[r], value));
    write_manifest(&l);
    CHECK_FAILS(manifest_check_cover(l.folder, read_manifest(&l), 24), ERR_FORMAT, says);
    CHECK(strstr(status_message(), l.folder) != NULL);
    CHECK(strstr(status_message(), "model.w (main)") != NULL);
    lab_close(&l);
}

static void a_gap_is_named_with_its_range(void **state)
{
    (void)state;
    const Piece right_is_late[] = { { 0, 3, 6, 4, 0, 0 }, { 4, 2, 6, 4, 0, 0 } };
    const Piece a_row_short[] = { { 0, 3, 6, 4, 0, 0 }, { 3, 3, 6, 3, 0, 0 } };
    const Piece begins_late[] = { { 1, 23, 23, 1, 0, 0 } };
    const Piece hole[] = { { 0, 11, 11, 1, 0, 0 }, { 14, 10, 10, 1, 0, 0 } };
    const Piece part_is_late[] = { { 0, 3, 6, 4, 0, 0 },
                                   { 3, 3, 6, 2, 0, 1 },
                                   { 15, 3, 6, 2, 0, 0 } };
    check_pieces(part_is_late, 3, "elements 11 to 11 of model.w (main) are in no entry");
    check_pieces(right_is_late, 2, "elements 3 to 3 of model.w (main) are in no entry");
    check_pieces(a_row_short, 2, "elements 21 to 23 of model.w (main) are in no entry");
    check_pieces(begins_late, 1, "elements 0 to 0 of model.w (main) are in no entry");
    check_pieces(hole, 2, "manifest.jsonl: elements 11 to 13 of model.w (main) are in no entry");
}

/* As many elements as there should be are no proof. */
static void an_overlap_is_named_with_both_entries(void **state)
{
    (void)state;
    const Piece columns[] = { { 0, 4, 6, 4, 0, 0 }, { 3, 3, 6, 4, 0, 0 } };
    const Piece ranges[] = { { 0, 14, 14, 1, 0, 0 }, { 12, 10, 10, 1, 0, 0 } };
    const Piece mixed[] = { { 0, 3, 6, 4, 0, 0 }, { 3, 3, 6, 4, 0, 0 }, { 9, 1, 1, 1, 0, 0 } };
    const Piece parts[] = { { 3, 3, 6, 3, 0, 2 }, { 0, 3, 6, 4, 0, 0 }, { 9, 3, 6, 3, 2, 0 } };
    const Piece part_ends[] = { { 0, 3, 6, 4, 0, 0 }, { 3, 3, 6, 2, 0, 1 }, { 10, 2, 2, 1, 0, 0 } };
    check_pieces(parts, 3, "elements 11 to 11 of model.w (main) are in two entries");
    check_pieces(part_ends, 3, "elements 10 to 10 of model.w (main) are in two entries");
    check_pieces(columns, 2, "elements 3 to 3 of model.w (main) are in two entries");
    check_pieces(ranges, 2, "elements 12 to 13 of model.w (main) are in two entries");
    check_pieces(mixed, 3, "elements 9 to 9 of model.w (main) are in two entries");
    check_pieces(ranges, 2, "rank-00001.bin at 0 and of rank-00000.bin at 0");
}

static void a_wrong_byte_of_columns_is_found_by_who_reads_them_all(void **state)
{
    (void)state;
    Lab l;
    float x[ELEMS_MAX];
    char path[FILE_PATH_MAX];
    lab_open(&l, 4, 6);
    write_cut(&l, BY_COLUMN, 2, true);
    read_manifest(&l);
    CHECK_OK(file_join(path, l.folder, "rank-00001.bin"));
    int fd = open(path, O_WRONLY);
    CHECK(pwrite(fd, "\x01", 1, 5 * 4) == 1 && close(fd) == 0); /* the sixth of its elements */
    CHECK_OK(read_piece(&l, piece_range(0, 6), x));
    CHECK_FAILS(read_piece(&l, piece_range(0, 24), x), ERR_FORMAT,
                "the bytes of model.w (main) at 0 have sum");
    CHECK_FAILS(manifest_read_entry(NULL, l.folder, &l.entry[1],
                                    &(ParamPiece){ .in = l.entry[1].piece }, &l.arena),
                ERR_FORMAT, "rank-00001.bin: the bytes of model.w (main)");
    lab_close(&l);
}

/* Types that are unknown, and weights that were not saved in f32. */
static void elements_of_another_type_are_refused(void **state)
{
    (void)state;
    static const struct {
        ParamBuffer buffer;
        Dtype dtype;
        const char *says;
    } wrong[] = {
        { BUF_OPTIMIZER, DTYPE_F16, "model.w (moment1) has elements of type f16, not f32 or bf16" },
        { BUF_OPTIMIZER + 1, DTYPE_I32,
          "model.w (moment2) has elements of type i32, not f32 or bf16" },
        { BUF_MAIN, DTYPE_BF16, "model.w (main) has elements of type bf16, not f32" },
        { BUF_STATE, DTYPE_BF16, "model.w (state) has elements of type bf16, not f32" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Lab l;
        lab_open(&l, 4, 6);
        ManifestEntry e = shown;
        e.piece = piece_range(0, 24);
        e.buffer = wrong[i].buffer, e.dtype = wrong[i].dtype;
        CHECK_OK(manifest_line(&l.lines, &e));
        write_manifest(&l);
        CHECK_FAILS(manifest_read(l.folder, &l.arena, &l.info, &l.entry, &l.n), ERR_FORMAT,
                    wrong[i].says);
        lab_close(&l);
    }
}

static float not_finite_at_16(int64_t element) { return element == 16 ? INFINITY : value(element); }

static void what_is_not_finite_is_named_by_its_element_of_the_tensor(void **state)
{
    (void)state;
    Lab l;
    lab_open(&l, 4, 6);
    CHECK_FAILS(write_piece(&l, 0, (Piece){ 3, 3, 6, 4, 0, 0 }, not_finite_at_16), ERR_NUMERIC,
                "model.w (main) with inf at element 16");
    CHECK_FAILS(write_piece(&l, 0, (Piece){ 3, 3, 6, 4, 2, 1 }, not_finite_at_16), ERR_NUMERIC,
                "model.w (main) with inf at element 16");
    lab_close(&l);
}

/* By name, and with names that JSON must escape. A manifest without them is an old one. */
static void sequences_taken_of_each_source_come_back(void **state)
{
    (void)state;
    Lab l;
    lab_open(&l, 2, 2);
    write_manifest(&l);
    (void)read_manifest(&l);
    CHECK_INT(l.info.taken.n, 0);
    l.info.taken =
        (SourcesTaken){ .n = 2, .name = { "we\"b", "books" }, .sequences = { 7, 1LL << 40 } };
    write_manifest(&l);
    l.info.taken = (SourcesTaken){ 0 };
    (void)read_manifest(&l);
    CHECK_INT(l.info.taken.n, 2);
    CHECK_TEXT(l.info.taken.name[0], "we\"b");
    CHECK_TEXT(l.info.taken.name[1], "books");
    CHECK_INT(l.info.taken.sequences[0], 7);
    CHECK_INT(l.info.taken.sequences[1], 1LL << 40);
    CHECK_INT(l.info.step, 3);
    lab_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sequences_taken_of_each_source_come_back),
        TEST(two_that_wrote_by_column_are_read_by_any),
        TEST(any_cut_of_any_shape_is_read_by_any_other),
        TEST(one_run_is_written_as_ever_and_more_say_so),
        TEST(a_part_of_columns_says_what_its_runs_lack),
        TEST(a_part_that_is_no_part_does_not_fit),
        TEST(elements_that_are_not_f32_say_so),
        TEST(one_from_before_columns_is_read),
        TEST(a_gap_is_named_with_its_range),
        TEST(an_overlap_is_named_with_both_entries),
        TEST(a_wrong_byte_of_columns_is_found_by_who_reads_them_all),
        TEST(elements_of_another_type_are_refused),
        TEST(what_is_not_finite_is_named_by_its_element_of_the_tensor),
    };
    return TEST_RUN(tests);
}
