#include "corpus/shard/shard.h"
#include "harness/place.h"
#include "harness/shards.h"
#include "harness/texts.h"
#include "inspect/inspect.h"

typedef struct Place {
    char folder[64];
    char prefix[FILE_PATH_MAX], tokenizer[FILE_PATH_MAX], text[FILE_PATH_MAX];
    Arena arena, report;
    Tokenizer *loaded;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(arena_init(&p->report, "report", MEM_HOST, (size_t)1 << 26));
    CHECK_OK(file_join(p->prefix, p->folder, "<x>"));
    CHECK_OK(file_join(p->tokenizer, p->folder, "tokenizer.json"));
    CHECK_OK(file_join(p->text, p->folder, "a.txt"));
    return 0;
}

/* Bytes alone, so that id and byte correspond as the tokenizer says. */
static void load_bytes(Place *p)
{
    write_text(p->text, "abc");
    p->loaded = learn_tokenizer(p->text, 257, p->tokenizer, &p->arena);
}

static int place_close(void **state)
{
    Place *p = *state;
    tokenizer_free(p->loaded);
    place_drop(p->folder, &p->arena);
    arena_free(&p->report);
    return 0;
}

static void write_document(Place *p, const char *text)
{
    ShardWriter w = { 0 };
    int32_t *ids = NULL, end = tokenizer_end_of_text(p->loaded);
    int64_t n = 0;
    CHECK_OK(tokenizer_encode(p->loaded, text, strlen(text), &p->arena, &ids, &n));
    CHECK_OK(shard_create(&w, p->prefix, 257, 0, &p->arena));
    CHECK_OK(shard_append(&w, ids, n));
    CHECK_OK(shard_append(&w, &end, 1));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_commit(&w));
}

static const char *report_text(Place *p)
{
    Inspect r = { 0 };
    Text text = { 0 };
    CHECK_OK(inspect_scan(p->prefix, 16, &p->arena, &r));
    CHECK_OK(text_init(&text, &p->report));
    CHECK_OK(inspect_text(&r, p->loaded, &text));
    return text.data;
}

static void check_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("no \"%s\" in: %s", part, text);
}

static void lengths_and_their_quantiles_are_exact(void **state)
{
    Place *p = *state;
    Inspect r = { 0 };
    int64_t length[101];
    for (int d = 0; d <= 100; d++) length[d] = (d * 37) % 101; /* 0 .. 100, mixed */
    write_numbered(p->prefix, 50, 0, length, 101, &p->arena);
    CHECK_OK(inspect_scan(p->prefix, 16, &p->arena, &r));
    CHECK_INT(r.documents, 101);
    CHECK_INT(r.tokens, 5050);
    CHECK_INT(r.id_bytes, 2);
    CHECK_INT(r.bytes, 5050 * 2 + 34 + 101 * 20 + 8);
    CHECK_INT(r.shortest, 0);
    CHECK_INT(r.longest, 100);
    CHECK_NEAR(r.mean, 50, 1e-12);
    CHECK_INT(r.quantile[0], 1);
    CHECK_INT(r.quantile[1], 10);
    CHECK_INT(r.quantile[2], 50);
    CHECK_INT(r.quantile[3], 90);
    CHECK_INT(r.quantile[4], 99);
    static const int64_t BIN[] = { 2, 2, 4, 8, 16, 32, 37, 0 }; /* 0-1, 2-3, 4-7 ... 64-100 */
    for (int b = 0; b < 8; b++) CHECK_INT(r.bin[b], BIN[b]);
}

/* By a walk over all phases at which a document may begin in a sequence. */
static double keys_by_hand(const int64_t *length, int n, int64_t T)
{
    double keys = 0, tokens = 0;
    for (int i = 0; i < n; i++) {
        tokens += (double)length[i];
        for (int64_t phase = 0; phase < T; phase++) {
            for (int64_t d = 0, p = phase; d < length[i]; d++, p = (p + 1) % T)
                keys += (double)(d < p ? d + 1 : p + 1) / (double)T;
        }
    }
    return keys / tokens;
}

static void keys_that_a_query_sees_are_those_of_its_document(void **state)
{
    Place *p = *state;
    static const int64_t length[] = { 1, 3, 15, 16, 17, 40, 100 };
    enum { N = sizeof length / sizeof *length };
    for (int first = 0; first < N; first++) {
        Inspect r = { 0 };
        write_numbered(p->prefix, 30, 0, length + first, N - first, &p->arena);
        CHECK_OK(inspect_scan(p->prefix, 16, &p->arena, &r));
        CHECK_NEAR(r.keys, keys_by_hand(length + first, N - first, 16), 1e-9);
        CHECK(r.keys >= 1 && r.keys <= 17 / 2.0);
    }
    load_bytes(p);
    write_document(p, "0123456789012345678901234567890");
    check_has(report_text(p), "keys that a query sees in sequences of 16 tokens: mean 7.2 of 8.5 ");
}

static void the_most_frequent_ids_come_first_and_equal_ones_by_number(void **state)
{
    Place *p = *state;
    Inspect r = { 0 };
    write_numbered(p->prefix, 30, 0, (const int64_t[]){ 75 }, 1,
                   &p->arena); /* ids 0..14 three times, 15..29 twice */
    CHECK_OK(inspect_scan(p->prefix, 16, &p->arena, &r));
    CHECK_INT(r.distinct, 30);
    CHECK_INT(r.largest_id, 29);
    CHECK_INT(r.n_top, INSPECT_TOP);
    for (int i = 0; i < INSPECT_TOP; i++) {
        CHECK_INT(r.top[i].id, i);
        CHECK_INT(r.top[i].count, i < 15 ? 3 : 2);
    }
}

static void fewer_ids_than_places_are_all_listed(void **state)
{
    Place *p = *state;
    Inspect r = { 0 };
    write_numbered(p->prefix, 3, 0, (const int64_t[]){ 8 }, 1, &p->arena);
    CHECK_OK(inspect_scan(p->prefix, 16, &p->arena, &r));
    CHECK_INT(r.n_top, 3);
    CHECK_INT(r.top[2].id, 2);
    CHECK_INT(r.top[2].count, 2);
}

static void the_report_shows_text_with_what_is_not_printable_escaped(void **state)
{
    Place *p = *state;
    load_bytes(p);
    write_document(p, "a<b>\t\x01\xff\xe4\xb8\x96\nc");
    const char *text = report_text(p);
    check_has(text, ": 1 documents, 13 tokens of type u16");
    check_has(text, "document 0:\na<b>\\t\\x01\\xff\xe4\xb8\x96\nc\n");
    check_has(text, "(end of text)");
    check_has(text, "  \"\\xff\"\n");
}

static void samples_are_spread_over_the_documents(void **state)
{
    Place *p = *state;
    Inspect r = { 0 };
    int64_t length[10];
    for (int d = 0; d < 10; d++) length[d] = d + 1;
    write_numbered(p->prefix, 1000, 0, length, 10, &p->arena);
    CHECK_OK(inspect_scan(p->prefix, 16, &p->arena, &r));
    CHECK_INT(r.n_samples, INSPECT_SAMPLES);
    for (int i = 0; i < INSPECT_SAMPLES; i++) {
        CHECK_INT(r.sample[i].document, 2 * i);
        CHECK_INT(r.sample[i].n, 2 * i + 1);
        CHECK_INT(r.sample[i].id[0], i * (2 * i + 1)); /* 1 + 2 + ... + 2 i */
    }
    check_has(report_text(p), "\ndocument 6:\n21 22 23 24 25 26 27 \n");
}

static void an_empty_shard_has_a_report(void **state)
{
    Place *p = *state;
    write_numbered(p->prefix, 1, 0, NULL, 0, &p->arena);
    check_has(report_text(p), "0 documents, 0 tokens");
}

static void without_a_tokenizer_ids_are_shown(void **state)
{
    Place *p = *state;
    write_numbered(p->prefix, 300, 0, (const int64_t[]){ 300 }, 1, &p->arena);
    check_has(report_text(p), "document 0 begins:\n0 1 2 3 ");
}

/* One id of 2^31 - 1 would need a table of 16 GiB. */
static void ids_that_no_vocabulary_has_are_refused(void **state)
{
    Place *p = *state;
    Inspect r = { 0 };
    const int32_t huge = INT32_MAX;
    ShardWriter w = { 0 };
    CHECK_OK(shard_create(&w, p->prefix, (int64_t)1 << 31, 0, &p->arena));
    CHECK_OK(shard_append(&w, &huge, 1));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_commit(&w));
    CHECK_FAILS(inspect_scan(p->prefix, 16, &p->arena, &r), ERR_FORMAT,
                "token 0 is id 2147483647, a vocabulary has ids from 0 to below 4000000");
}

static void ids_beyond_the_tokenizer_are_said(void **state)
{
    Place *p = *state;
    load_bytes(p);
    write_numbered(p->prefix, 300, 0, (const int64_t[]){ 300 }, 1, &p->arena);
    check_has(report_text(p), "the tokenizer has 257 ids: this shard was made with another one\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(lengths_and_their_quantiles_are_exact),
        PLACE_TEST(keys_that_a_query_sees_are_those_of_its_document),
        PLACE_TEST(the_most_frequent_ids_come_first_and_equal_ones_by_number),
        PLACE_TEST(fewer_ids_than_places_are_all_listed),
        PLACE_TEST(the_report_shows_text_with_what_is_not_printable_escaped),
        PLACE_TEST(samples_are_spread_over_the_documents),
        PLACE_TEST(an_empty_shard_has_a_report),
        PLACE_TEST(without_a_tokenizer_ids_are_shown),
        PLACE_TEST(ids_that_no_vocabulary_has_are_refused),
        PLACE_TEST(ids_beyond_the_tokenizer_are_said),
    };
    return TEST_RUN(tests);
}
