#include "ngram/yardstick.h"

#include "corpus/shard/holdout.h"
#include "corpus/shard/shard.h"
#include "harness/place.h"
#include "harness/texts.h"
#include "ngram/ngram.h"

enum { DOCUMENTS = 60, SOURCES = 2, ORDERS = 2 };

static const double SHARE = 0.3;
static const char *const NAMES[SOURCES] = { "web", "books" };

typedef struct Place {
    char folder[64];
    char tokenizer[FILE_PATH_MAX], text[FILE_PATH_MAX], prefix[SOURCES][FILE_PATH_MAX];
    Arena arena, model[ORDERS];
    Tokenizer *loaded;
} Place;

/* Document d of a source: its own words again and again, so sources differ. */
static int document_text(char out[256], int source, int d)
{
    static const char *const WORD[SOURCES] = { "the cat sat ", "a whale swam " };
    int n = 0;
    for (int i = 0; i <= d % 5; i++)
        n += snprintf(out + n, 256 - (size_t)n, "%s%d ", WORD[source], d);
    return n;
}

static void write_source(Place *p, int source)
{
    ShardWriter w = { 0 };
    int32_t end = tokenizer_end_of_text(p->loaded);
    CHECK_OK(file_join(p->prefix[source], p->folder, NAMES[source]));
    CHECK_OK(shard_create(&w, p->prefix[source], 260, 0, &p->arena));
    for (int d = 0; d < DOCUMENTS; d++) {
        char text[256];
        int32_t *ids = NULL;
        int64_t n = 0;
        int bytes = document_text(text, source, d);
        CHECK_OK(tokenizer_encode(p->loaded, text, (size_t)bytes, &p->arena, &ids, &n));
        CHECK_OK(shard_append(&w, ids, n));
        CHECK_OK(shard_append(&w, &end, 1));
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
}

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    for (int k = 0; k < ORDERS; k++) {
        CHECK_OK(arena_init(&p->model[k], "model", MEM_HOST, (size_t)1 << 30));
    }
    CHECK_OK(file_join(p->tokenizer, p->folder, "tokenizer.json"));
    CHECK_OK(file_join(p->text, p->folder, "a.txt"));
    write_text(p->text, "the cat sat the cat sat the cat");
    p->loaded = learn_tokenizer(p->text, 260, p->tokenizer, &p->arena);
    for (int i = 0; i < SOURCES; i++) write_source(p, i);
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    tokenizer_free(p->loaded);
    place_drop(p->folder, &p->arena);
    for (int k = 0; k < ORDERS; k++) arena_free(&p->model[k]);
    return 0;
}

static YardstickConfig config_of(const Place *p, const LoaderSource *sources, const int64_t *orders)
{
    return (YardstickConfig){ .sources = sources,
                              .n_sources = SOURCES,
                              .tokenizer = p->loaded,
                              .validation = SHARE,
                              .orders = orders,
                              .n_orders = ORDERS };
}

/* The same figures from the texts themselves. */
static void bits_are_those_of_models_of_the_training_texts(void **state)
{
    Place *p = *state;
    const LoaderSource sources[SOURCES] = { { .name = NAMES[0], .path = p->prefix[0] },
                                            { .name = NAMES[1], .path = p->prefix[1] } };
    const int64_t orders[ORDERS] = { 2, 5 };
    YardstickConfig c = config_of(p, sources, orders);
    YardstickRow rows[SOURCES + 1], want[SOURCES + 1] = { 0 };
    Ngram *model[ORDERS] = { NULL };
    for (int k = 0; k < ORDERS; k++) CHECK_OK(ngram_make(&p->model[k], (int)orders[k], &model[k]));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < SOURCES * DOCUMENTS; i++) {
            char text[256];
            int s = i / DOCUMENTS, d = i % DOCUMENTS, n = document_text(text, s, d);
            if (holdout_by_hash(NAMES[s], d, SHARE) != (pass == 1)) continue;
            want[s].bytes[pass] += n;
            want[SOURCES].bytes[pass] += n;
            for (int k = 0; k < ORDERS; k++) {
                if (pass == 0) CHECK_OK(ngram_add(model[k], (const uint8_t *)text, (size_t)n));
                if (pass == 0) continue;
                double bits = ngram_bits(model[k], (const uint8_t *)text, (size_t)n);
                want[s].bits[k] += bits;
                want[SOURCES].bits[k] += bits;
            }
        }
    }
    CHECK_OK(yardstick_run(&c, rows));
    for (int i = 0; i <= SOURCES; i++) {
        CHECK(want[i].bytes[0] > 0 && want[i].bytes[1] > 0);
        CHECK_INT(rows[i].bytes[0], want[i].bytes[0]);
        CHECK_INT(rows[i].bytes[1], want[i].bytes[1]);
        for (int k = 0; k < ORDERS; k++) {
            CHECK_NEAR(rows[i].bits[k], want[i].bits[k], 1e-9 * want[i].bits[k]);
        }
    }
    CHECK_INT(rows[0].documents[0] + rows[0].documents[1], DOCUMENTS);
}

static void another_tokenizers_ids_and_no_documents_are_refused(void **state)
{
    Place *p = *state;
    const LoaderSource sources[SOURCES] = { { .name = NAMES[0], .path = p->prefix[0] },
                                            { .name = NAMES[1], .path = p->prefix[1] } };
    const int64_t orders[ORDERS] = { 1, 2 };
    YardstickConfig c = config_of(p, sources, orders);
    YardstickRow rows[SOURCES + 1];
    ShardWriter w = { 0 };
    const int32_t id = 300;
    CHECK_OK(shard_create(&w, p->prefix[1], 1000, 0, &p->arena));
    CHECK_OK(shard_append(&w, &id, 1));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_commit(&w));
    CHECK_FAILS(yardstick_run(&c, rows), ERR_FORMAT, "is id 300, the tokenizer has 260");
    CHECK_OK(shard_create(&w, p->prefix[1], 1000, 0, &p->arena));
    CHECK_OK(shard_commit(&w));
    CHECK_FAILS(yardstick_run(&c, rows), ERR_ARG, "/books) holds no document");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(bits_are_those_of_models_of_the_training_texts),
        PLACE_TEST(another_tokenizers_ids_and_no_documents_are_refused),
    };
    return TEST_RUN(tests);
}
