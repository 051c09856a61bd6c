#include "corpus/shard/shard.h"
#include "harness/place.h"

#include <fcntl.h>
#include <unistd.h>

typedef struct Place {
    char folder[64];
    char prefix[FILE_PATH_MAX], bin[FILE_PATH_MAX], idx[FILE_PATH_MAX];
    Arena arena;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->prefix, p->folder, "x"));
    CHECK_OK(file_join(p->bin, p->folder, "x.bin"));
    CHECK_OK(file_join(p->idx, p->folder, "x.idx"));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

static void check_bytes(Place *p, const char *path, const uint8_t *want, size_t want_bytes)
{
    char *got = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(path, &p->arena, &got, &bytes));
    CHECK_INT(bytes, want_bytes);
    for (size_t i = 0; i < bytes; i++) {
        if ((uint8_t)got[i] != want[i]) {
            fail_msg("byte %zu of %s is %d, want %d", i, path, (uint8_t)got[i], want[i]);
        }
    }
}

/* Documents 5 6 7 | (nothing) | 258, as u16. Worked out from the layout in shard.h. */
static const uint8_t BIN_U16[] = { 5, 0, 6, 0, 7, 0, 2, 1 };
static const uint8_t IDX_U16[] = {
    'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0,                      /* magic */
    1,   0,   0,   0,   0,   0,   0,   0,                         /* version */
    8,                                                            /* u16 */
    3,   0,   0,   0,   0,   0,   0,   0,                         /* sequences */
    4,   0,   0,   0,   0,   0,   0,   0,                         /* document entries */
    3,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0,             /* lengths 3 0 1 */
    0,   0,   0,   0,   0,   0,   0,   0,                         /* start of sequence 0 */
    6,   0,   0,   0,   0,   0,   0,   0,                         /* 1 */
    6,   0,   0,   0,   0,   0,   0,   0,                         /* 2 */
    0,   0,   0,   0,   0,   0,   0,   0, 1, 0, 0, 0, 0, 0, 0, 0, /* documents 0 1 2 */
    2,   0,   0,   0,   0,   0,   0,   0, 3, 0, 0, 0, 0, 0, 0, 0, /* and the end */
};
enum {
    AT_TYPE = 17,
    AT_SEQUENCES = 18,
    AT_ENTRIES = 26,
    AT_LENGTHS = 34,
    AT_STARTS = 46,
    AT_DOCUMENTS = 70
};

static void write_three(Place *p, int64_t vocab)
{
    static const int32_t FIRST[] = { 5, 6, 7 }, LAST[] = { 258 };
    ShardWriter w = { 0 };
    CHECK_OK(shard_create(&w, p->prefix, vocab, 0, &p->arena));
    CHECK_OK(shard_append(&w, FIRST, 2));
    CHECK_OK(shard_append(&w, FIRST + 2, 1));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_append(&w, LAST, 1));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_commit(&w));
}

static void a_small_vocabulary_is_written_as_u16_byte_for_byte(void **state)
{
    Place *p = *state;
    write_three(p, 65499);
    check_bytes(p, p->bin, BIN_U16, sizeof BIN_U16);
    check_bytes(p, p->idx, IDX_U16, sizeof IDX_U16);
}

static void a_large_vocabulary_is_written_as_i32_byte_for_byte(void **state)
{
    Place *p = *state;
    static const uint8_t BIN[] = { 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 2, 1, 0, 0 };
    uint8_t idx[sizeof IDX_U16];
    memcpy(idx, IDX_U16, sizeof idx);
    idx[AT_TYPE] = 4;
    idx[AT_STARTS + 8] = idx[AT_STARTS + 16] = 12;
    write_three(p, 65500);
    check_bytes(p, p->bin, BIN, sizeof BIN);
    check_bytes(p, p->idx, idx, sizeof idx);
}

static void what_is_written_reads_back(void **state)
{
    Place *p = *state;
    Shard s = { 0 };
    int32_t ids[4] = { -1, -1, -1, -1 };
    for (int64_t vocab = 65499; vocab <= 65500; vocab++) {
        write_three(p, vocab);
        CHECK_OK(shard_open(&s, p->prefix));
        CHECK_INT(s.documents, 3);
        CHECK_INT(s.tokens, 4);
        CHECK_INT(shard_start(&s, 0), 0);
        CHECK_INT(shard_start(&s, 1), 3);
        CHECK_INT(shard_start(&s, 2), 3);
        CHECK_INT(shard_start(&s, 3), 4);
        shard_read(&s, 1, 3, ids);
        CHECK_INT(ids[0], 6);
        CHECK_INT(ids[1], 7);
        CHECK_INT(ids[2], 258);
        CHECK_INT(ids[3], -1);
        shard_forget(&s);
        shard_read(&s, 0, 1, ids);
        CHECK_INT(ids[0], 5);
        shard_close(&s);
    }
}

static void a_document_of_two_sequences_is_one_range(void **state)
{
    Place *p = *state;
    Shard s = { 0 };
    uint8_t idx[sizeof IDX_U16 - 8];
    memcpy(idx, IDX_U16, sizeof idx);
    idx[AT_ENTRIES] = 3;
    idx[AT_DOCUMENTS + 8] = 2; /* entries 0 2 3 */
    idx[AT_DOCUMENTS + 16] = 3;
    CHECK_OK(file_write_whole(p->bin, BIN_U16, sizeof BIN_U16));
    CHECK_OK(file_write_whole(p->idx, idx, sizeof idx));
    CHECK_OK(shard_open(&s, p->prefix));
    CHECK_INT(s.documents, 2);
    CHECK_INT(shard_start(&s, 1), 3);
    CHECK_INT(shard_start(&s, 2), 4);
    shard_close(&s);
}

static void modes_at_the_end_of_an_index_are_passed_over(void **state)
{
    Place *p = *state;
    Shard s = { 0 };
    uint8_t idx[sizeof IDX_U16 + 3] = { 0 };
    memcpy(idx, IDX_U16, sizeof IDX_U16);
    CHECK_OK(file_write_whole(p->bin, BIN_U16, sizeof BIN_U16));
    CHECK_OK(file_write_whole(p->idx, idx, sizeof idx));
    CHECK_OK(shard_open(&s, p->prefix));
    CHECK_INT(s.tokens, 4);
    shard_close(&s);
}

static void an_empty_shard_is_legal(void **state)
{
    Place *p = *state;
    ShardWriter w = { 0 };
    Shard s = { 0 };
    CHECK_OK(shard_create(&w, p->prefix, 100, 0, &p->arena));
    CHECK_OK(shard_commit(&w));
    CHECK_OK(shard_open(&s, p->prefix));
    CHECK_INT(s.documents, 0);
    CHECK_INT(s.tokens, 0);
    CHECK_INT(shard_start(&s, 0), 0);
    shard_close(&s);
}

static void more_documents_than_a_block_of_lengths_keep_their_lengths(void **state)
{
    Place *p = *state;
    ShardWriter w = { 0 };
    Shard s = { 0 };
    int32_t ids[7] = { 3, 1, 4, 1, 5, 9, 2 };
    CHECK_OK(shard_create(&w, p->prefix, 100, 0, &p->arena));
    for (int d = 0; d < 1009; d++) {
        CHECK_OK(shard_append(&w, ids, d % 7));
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
    CHECK_OK(shard_open(&s, p->prefix));
    CHECK_INT(s.documents, 1009);
    for (int64_t d = 0; d < 1009; d++) {
        CHECK_INT(shard_start(&s, d + 1) - shard_start(&s, d), d % 7);
    }
    shard_close(&s);
}

static void nothing_appears_before_the_commit(void **state)
{
    Place *p = *state;
    ShardWriter w = { 0 };
    const char *const *names = NULL;
    const int32_t id = 1;
    int n = -1;
    CHECK_OK(shard_create(&w, p->prefix, 100, 0, &p->arena));
    CHECK_OK(shard_append(&w, &id, 1));
    CHECK_OK(shard_end_document(&w));
    CHECK(!file_exists(p->bin) && !file_exists(p->idx));
    shard_writer_close(&w);
    CHECK_OK(file_list(p->folder, &p->arena, &names, &n));
    CHECK_INT(n, 0);
}

static void folders_of_the_prefix_are_made(void **state)
{
    Place *p = *state;
    ShardWriter w = { 0 };
    Shard s = { 0 };
    char deep[FILE_PATH_MAX];
    CHECK_OK(file_join(deep, p->folder, "a/b/c"));
    CHECK_OK(shard_create(&w, deep, 100, 0, &p->arena));
    CHECK_OK(shard_commit(&w));
    CHECK_OK(shard_open(&s, deep));
    shard_close(&s);
}

static void ids_that_do_not_fit_their_type_are_refused(void **state)
{
    Place *p = *state;
    ShardWriter w = { 0 };
    const int32_t large = 65536, negative = -1;
    CHECK_OK(shard_create(&w, p->prefix, 100, 0, &p->arena));
    CHECK_FAILS(shard_append(&w, &large, 1), ERR_ARG, "id 65536, its type holds 0 to 65535");
    CHECK_FAILS(shard_append(&w, &negative, 1), ERR_ARG, "id -1");
    shard_writer_close(&w);
}

static void a_folder_is_no_prefix(void **state)
{
    Place *p = *state;
    ShardWriter w = { 0 };
    CHECK_FAILS(shard_create(&w, "data/", 100, 0, &p->arena), ERR_ARG, "\"data/\" is no prefix");
    shard_writer_close(&w);
}

/* ---- wrong files ---- */

/* Open the pair with byte `at` of the index set to `value` (at < 0: as it is), cut to `idx_bytes`
 * and `bin_bytes`. */
static Status open_changed(Place *p, int at, uint8_t value, size_t idx_bytes, size_t bin_bytes)
{
    Shard s = { 0 };
    uint8_t idx[sizeof IDX_U16 + 8] = { 0 }, bin[sizeof BIN_U16 + 8] = { 0 };
    memcpy(idx, IDX_U16, sizeof IDX_U16);
    memcpy(bin, BIN_U16, sizeof BIN_U16);
    if (at >= 0) idx[at] = value;
    CHECK_OK(file_write_whole(p->bin, bin, bin_bytes));
    CHECK_OK(file_write_whole(p->idx, idx, idx_bytes));
    Status status = shard_open(&s, p->prefix);
    shard_close(&s);
    return status;
}

static Status open_with(Place *p, int at, uint8_t value)
{
    return open_changed(p, at, value, sizeof IDX_U16, sizeof BIN_U16);
}

static void a_cut_bin_names_both_files_and_both_numbers(void **state)
{
    CHECK_FAILS(open_changed(*state, -1, 0, sizeof IDX_U16, 6), ERR_FORMAT,
                "x.idx promises 4 tokens (8 bytes), ");
    CHECK(strstr(status_message(), "x.bin has 6 bytes: prepare it again") != NULL);
    CHECK_FAILS(open_changed(*state, -1, 0, sizeof IDX_U16, 0), ERR_FORMAT, "x.bin has 0 bytes");
    CHECK_FAILS(open_changed(*state, -1, 0, sizeof IDX_U16, 10), ERR_FORMAT, "x.bin has 10 bytes");
}

static void an_index_of_the_wrong_size_says_what_it_promises(void **state)
{
    CHECK_FAILS(open_changed(*state, -1, 0, sizeof IDX_U16 - 1, 8), ERR_FORMAT,
                "3 sequences and 4 document entries");
    CHECK_FAILS(open_changed(*state, -1, 0, sizeof IDX_U16 + 1, 8), ERR_FORMAT, "has 103 bytes");
    CHECK_FAILS(open_changed(*state, -1, 0, 33, 8), ERR_FORMAT, "its header alone has 34");
    CHECK_FAILS(open_changed(*state, -1, 0, 0, 8), ERR_FORMAT, "has 0 bytes");
}

static void counts_beyond_the_file_do_not_overflow(void **state)
{
    for (int byte = 0; byte < 8; byte++) {
        CHECK_FAILS(open_with(*state, AT_SEQUENCES + byte, 0xFF), ERR_FORMAT, "which do not hold");
        CHECK_FAILS(open_with(*state, AT_ENTRIES + byte, 0xFF), ERR_FORMAT, "which do not hold");
    }
}

static void a_foreign_header_is_refused(void **state)
{
    CHECK_FAILS(open_with(*state, 0, 'm'), ERR_FORMAT, "does not begin with MMIDIDX");
    CHECK_FAILS(open_with(*state, 8, 1), ERR_FORMAT, "does not begin with MMIDIDX");
    CHECK_FAILS(open_with(*state, 9, 2), ERR_FORMAT, "has version 2, supported is 1");
    CHECK_FAILS(open_with(*state, AT_TYPE, 7), ERR_FORMAT, "type 7");
}

static void sequences_that_do_not_lie_end_to_end_are_refused(void **state)
{
    CHECK_FAILS(open_with(*state, AT_STARTS, 2), ERR_FORMAT, "sequence 0");
    CHECK_FAILS(open_with(*state, AT_STARTS + 16, 4), ERR_FORMAT, "sequence 2");
    CHECK_FAILS(open_with(*state, AT_STARTS + 23, 0x80), ERR_FORMAT, "sequence 2");
    CHECK_FAILS(open_with(*state, AT_LENGTHS + 3, 0x80), ERR_FORMAT, "sequence 0");
    CHECK_FAILS(open_with(*state, AT_LENGTHS + 8, 2), ERR_FORMAT, "promises 5 tokens (10 bytes)");
}

static void a_document_index_that_is_not_monotone_is_refused(void **state)
{
    CHECK_FAILS(open_with(*state, AT_DOCUMENTS, 1), ERR_FORMAT, "document 0");
    CHECK_FAILS(open_with(*state, AT_DOCUMENTS + 8, 3), ERR_FORMAT, "document 2");
    CHECK_FAILS(open_with(*state, AT_DOCUMENTS + 15, 0x80), ERR_FORMAT, "document 1");
    CHECK_FAILS(open_with(*state, AT_DOCUMENTS + 16, 4), ERR_FORMAT, "document 2");
    CHECK_FAILS(open_with(*state, AT_DOCUMENTS + 24, 2), ERR_FORMAT, "document 3");
}

static void a_missing_file_is_named(void **state)
{
    Place *p = *state;
    Shard s = { 0 };
    CHECK_FAILS(shard_open(&s, p->prefix), ERR_IO, "x.idx");
    CHECK_OK(file_write_whole(p->idx, IDX_U16, sizeof IDX_U16));
    CHECK_FAILS(shard_open(&s, p->prefix), ERR_IO, "x.bin");
}

/* A mark inside a byte of the mask; what was written after it is dropped. */
static void a_writer_goes_on_from_a_mark(void **state)
{
    static const int32_t IDS[12] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    Place *p = *state;
    ShardWriter w = { 0 };
    ShardMark mark = { 0 };
    Shard s = { 0 };
    int32_t got[12];
    CHECK_OK(shard_create(&w, p->prefix, 100, 6, &p->arena));
    CHECK_OK(shard_append_learned(&w, IDS, 6, true));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_append_learned(&w, IDS + 6, 4, true));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_mark(&w, &mark));
    CHECK_OK(shard_append_learned(&w, IDS, 9, true));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(file_flush(&w.bin));
    CHECK_OK(file_flush(&w.mask));
    shard_writer_keep(&w);
    CHECK_OK(shard_resume(&w, p->prefix, 100, 6, &mark, &p->arena));
    CHECK_OK(shard_append_learned(&w, IDS + 10, 2, false));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_commit(&w));
    CHECK_OK(shard_open(&s, p->prefix));
    CHECK_INT(s.documents, 2);
    CHECK_INT(s.sequences, 3);
    shard_read(&s, 0, 12, got);
    for (int i = 0; i < 12; i++) CHECK(got[i] == IDS[i] && shard_learns(&s, i) == (i < 10));
    shard_close(&s);
    CHECK_FAILS(shard_resume(&w, p->prefix, 100, 6, &mark, &p->arena), ERR_IO, "x.bin.tmp");
}

static void a_shard_without_an_origin_drops_the_record_of_the_one_before(void **state)
{
    Place *p = *state;
    Origin o;
    for (int i = 0; i < 2; i++) {
        ShardWriter w = { 0 };
        CHECK_OK(shard_create(&w, p->prefix, 500, 0, &p->arena));
        CHECK_OK(shard_append(&w, &(int32_t){ 7 }, 1));
        CHECK_OK(shard_end_document(&w));
        if (i == 0)
            w.origin = (Origin){ .sum = "0123456789abcdef", .tokenizer = "a b/t.json", .vocab = 9 };
        CHECK_OK(shard_commit(&w));
        CHECK_OK(origin_read(p->prefix, &o));
        CHECK_INT(o.vocab, i == 0 ? 9 : 0);
        CHECK_TEXT(o.tokenizer, i == 0 ? "a b/t.json" : "");
        CHECK_TEXT(o.sum, i == 0 ? "0123456789abcdef" : "");
    }
}

/* The .idx is overwritten while it is mapped: starts become any number, but no id is read that lies
 * outside of the map. */
static void an_index_that_is_overwritten_leads_to_no_read_outside(void **state)
{
    Place *p = *state;
    Shard s = { 0 };
    int32_t ids[2] = { -1, -1 };
    const int64_t far = INT64_MAX / 2;
    write_three(p, 500);
    CHECK_OK(shard_open(&s, p->prefix));
    CHECK_OK(shard_check_same(&s));
    int fd = open(p->idx, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, &far, sizeof far, s.starts + 8 - s.idx.data) == 8);
    CHECK(pwrite(fd, &far, sizeof far, s.first_seq + 16 - s.idx.data) == 8 && close(fd) == 0);
    CHECK_INT(shard_start(&s, 2), 4);
    shard_read(&s, shard_start(&s, 1), 2, ids);
    CHECK_INT(ids[0], 0);
    CHECK_INT(ids[1], 0);
    shard_read(&s, 3, 2, ids);
    CHECK_INT(ids[0], 0);
    CHECK_FAILS(shard_check_same(&s), ERR_CHANGED, ".idx was changed while it was read");
    shard_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_small_vocabulary_is_written_as_u16_byte_for_byte),
        PLACE_TEST(a_large_vocabulary_is_written_as_i32_byte_for_byte),
        PLACE_TEST(what_is_written_reads_back),
        PLACE_TEST(a_document_of_two_sequences_is_one_range),
        PLACE_TEST(modes_at_the_end_of_an_index_are_passed_over),
        PLACE_TEST(an_empty_shard_is_legal),
        PLACE_TEST(more_documents_than_a_block_of_lengths_keep_their_lengths),
        PLACE_TEST(nothing_appears_before_the_commit),
        PLACE_TEST(folders_of_the_prefix_are_made),
        PLACE_TEST(ids_that_do_not_fit_their_type_are_refused),
        PLACE_TEST(a_folder_is_no_prefix),
        PLACE_TEST(a_cut_bin_names_both_files_and_both_numbers),
        PLACE_TEST(an_index_of_the_wrong_size_says_what_it_promises),
        PLACE_TEST(counts_beyond_the_file_do_not_overflow),
        PLACE_TEST(a_foreign_header_is_refused),
        PLACE_TEST(sequences_that_do_not_lie_end_to_end_are_refused),
        PLACE_TEST(a_document_index_that_is_not_monotone_is_refused),
        PLACE_TEST(a_missing_file_is_named),
        PLACE_TEST(a_writer_goes_on_from_a_mark),
        PLACE_TEST(a_shard_without_an_origin_drops_the_record_of_the_one_before),
        PLACE_TEST(an_index_that_is_overwritten_leads_to_no_read_outside),
    };
    return TEST_RUN(tests);
}
