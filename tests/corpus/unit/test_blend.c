/* How sources are mixed over a run: epochs, weights that change, runs that go on; and that every byte of a
 * corpus comes once an epoch. */
#include "corpus/prepare/prepare.h"
#include "corpus/shard/loader.h"
#include "corpus/shard/shard.h"
#include "engine/base/rng.h"
#include "harness/place.h"
#include "harness/shards.h"
#include "harness/texts.h"

enum { SOURCES = 3, BATCH = 8, T = 16, DOCUMENTS_MAX = 200 };

typedef struct Place {
    char folder[64];
    Arena arena;
    char prefix[SOURCES][FILE_PATH_MAX];
    LoaderSource source[SOURCES];
    LoaderPhase phase[2];
    LoaderConfig config;
    Loader *loader;
} Place;

/* Source i has documents of 41 tokens; tokens are numbered, so that none is twice in an epoch. */
static void write_source(Place *p, int i, int documents)
{
    int64_t length[DOCUMENTS_MAX];
    for (int d = 0; d < documents; d++) length[d] = 41;
    write_numbered(p->prefix[i], 1 << 20, 0, length, documents, &p->arena);
}

static int place_open(void **state)
{
    static const char *const NAMES[SOURCES] = { "web", "books", "code" };
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    for (int i = 0; i < SOURCES; i++) {
        CHECK_OK(file_join(p->prefix[i], p->folder, NAMES[i]));
        p->source[i] = (LoaderSource){ .name = NAMES[i], .path = p->prefix[i] };
        write_source(p, i, 100 + 50 * i);
    }
    p->config = (LoaderConfig){ .sources = p->source,
                                .n_sources = SOURCES,
                                .phases = p->phase,
                                .sequence = T,
                                .batch = BATCH,
                                .vocab = 1 << 20,
                                .seed = 7,
                                .shuffle = true };
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    loader_close(p->loader);
    place_drop(p->folder, &p->arena);
    return 0;
}

static Loader *open_loader(Place *p)
{
    loader_close(p->loader);
    p->loader = NULL;
    CHECK_OK(loader_open(&p->config, &p->arena, &p->loader));
    return p->loader;
}

/* Reads n steps. Returns a hash of all ids and sources; taken: the counts after the last step. */
static uint64_t read_steps(Loader *l, int n, int64_t taken[SOURCES])
{
    const Batch *b = NULL;
    uint64_t hash = 0;
    for (int i = 0; i < n; i++) {
        CHECK_OK(loader_next(l, &b));
        const int32_t *id = b->id.data, *domain = b->domain.data;
        for (int64_t k = 0; k < b->domain.dim[0]; k++) {
            for (int t = 0; t < T; t++) hash = hash * 1099511628211U + (uint64_t)id[k * T + t];
            hash = hash * 1099511628211U + (uint64_t)domain[k];
        }
    }
    memcpy(taken, b->taken, SOURCES * sizeof *taken);
    return hash;
}

/* ---- weights ---- */

static void epochs_are_times_a_sources_own_tokens(void **state)
{
    Place *p = *state;
    int64_t taken[SOURCES], all = 0;
    p->source[0].epochs = 4;
    p->source[2].epochs = 0.5; /* books: once */
    Loader *l = open_loader(p);
    for (int i = 0; i < SOURCES; i++) all += loader_epoch_sequences(l, i);
    int64_t want = 4 * loader_epoch_sequences(l, 0) + loader_epoch_sequences(l, 1) +
                   loader_epoch_sequences(l, 2) / 2;
    CHECK(want < 3 * all);
    read_steps(l, (int)(want / BATCH), taken);
    CHECK_NEAR(taken[0], 4.0 * (double)loader_epoch_sequences(l, 0), BATCH + 2);
    CHECK_NEAR(taken[1], (double)loader_epoch_sequences(l, 1), BATCH + 2);
    CHECK_NEAR(taken[2], 0.5 * (double)loader_epoch_sequences(l, 2), BATCH + 2);
    p->source[0].weight = 1;
    p->source[0].epochs = 0;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "give all sources a weight");
    p->source[1].weight = p->source[2].weight = 1;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG,
                "source code has 0.5 epochs and weight 1");
}

static void change_weights_twice(Place *p)
{
    for (int i = 0; i < SOURCES; i++) p->source[i].weight = 1 + i % 2; /* 1 2 1 */
    p->phase[0] = (LoaderPhase){ .step = 10, .weight = { 3, 0, 1 } };
    p->phase[1] = (LoaderPhase){ .step = 25, .weight = { 0, 1, 0 } };
    p->config.n_phases = 2;
}

/* 10 steps of 8 by 1:2:1, 15 by 3:0:1, then the second source alone. */
static void weights_change_at_their_steps_exactly(void **state)
{
    static const struct {
        int steps;
        int64_t taken[SOURCES];
    } WANT[] = { { 10, { 20, 40, 20 } }, { 15, { 110, 40, 50 } }, { 4, { 110, 72, 50 } } };
    Place *p = *state;
    int64_t taken[SOURCES];
    change_weights_twice(p);
    Loader *l = open_loader(p);
    for (int i = 0; i < 3; i++) {
        read_steps(l, WANT[i].steps, taken);
        for (int k = 0; k < SOURCES; k++) CHECK_INT(taken[k], WANT[i].taken[k]);
    }
}

static void wrong_changes_of_weights_are_refused(void **state)
{
    Place *p = *state;
    Loader *l = NULL;
    change_weights_twice(p);
    p->phase[1].step = 10;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG,
                "the mix changes at step 10 and then at step 10");
    p->phase[0].step = 0;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "at step 0 and then at step 0");
    p->config.n_phases = 1;
    p->phase[0] = (LoaderPhase){ .step = 3 };
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "all 3 sources have weight 0");
}

/* ---- going on ---- */

static void going_on_anywhere_gives_what_would_have_come(void **state)
{
    Place *p = *state;
    int64_t taken[SOURCES], after[SOURCES], again[SOURCES];
    change_weights_twice(p);
    for (int at = 1; at < 40; at += 3) {
        Loader *l = open_loader(p);
        read_steps(l, at, taken);
        uint64_t want = read_steps(l, 30, after);
        l = open_loader(p);
        CHECK_OK(loader_resume(l, at, (uint64_t)at * BATCH, taken));
        CHECK(read_steps(l, 30, again) == want);
        CHECK_OK(loader_seek(l, (uint64_t)at * BATCH));
        CHECK(read_steps(l, 30, again) == want);
        for (int i = 0; i < SOURCES; i++) CHECK_INT(again[i], after[i]);
    }
}

/* The ids that each of `ranks` loaders reads in a step, from step `from` on, in the order of the batch. */
static uint64_t read_ranks(Place *p, int ranks, int from, int n, const int64_t *taken)
{
    Loader *rank[BATCH];
    uint64_t hash = 0;
    ArenaMark mark = arena_mark(&p->arena);
    for (int r = 0; r < ranks; r++) {
        LoaderConfig c = p->config;
        c.own = BATCH / ranks;
        c.first = c.own * r;
        CHECK_OK(loader_open(&c, &p->arena, &rank[r]));
        if (from > 0) CHECK_OK(loader_resume(rank[r], from, (uint64_t)from * BATCH, taken));
    }
    for (int i = 0; i < n * ranks; i++) {
        const Batch *b = NULL;
        CHECK_OK(loader_next(rank[i % ranks], &b));
        for (int64_t k = 0; k < b->id.dim[0]; k++)
            hash = hash * 1099511628211U + (uint64_t)((const int32_t *)b->id.data)[k];
    }
    for (int r = 0; r < ranks; r++) loader_close(rank[r]);
    arena_release(&p->arena, mark);
    return hash;
}

static void another_number_of_ranks_goes_on_with_the_same_sequences(void **state)
{
    Place *p = *state;
    int64_t taken[SOURCES];
    change_weights_twice(p);
    read_steps(open_loader(p), 17, taken);
    uint64_t want = read_ranks(p, 1, 17, 20, taken);
    for (int ranks = 2; ranks <= BATCH; ranks *= 2)
        CHECK(read_ranks(p, ranks, 17, 20, taken) == want);
}

/* Up to step 12 a step has 2 sequences, then 4, then 8; weights change at steps 10 and 25. */
static void a_growing_batch_goes_on_anywhere_and_over_ranks(void **state)
{
    static const BatchRamp ramp = { 3, { { 12, 2 }, { 20, 4 }, { INT64_MAX, BATCH } } };
    Place *p = *state;
    int64_t taken[SOURCES], again[SOURCES], sum = 0;
    change_weights_twice(p);
    p->config.ramp = &ramp;
    read_steps(open_loader(p), 25, taken);
    for (int i = 0; i < SOURCES; i++) sum += taken[i];
    CHECK_INT(sum, 12 * 2 + 8 * 4 + 5 * 8);
    CHECK_INT(taken[1], 10); /* half of 10 steps of 2, and nothing after them */
    for (int at = 1; at < 30; at += 2) {
        Loader *l = open_loader(p);
        read_steps(l, at, taken);
        uint64_t want = read_steps(l, 30, again);
        l = open_loader(p);
        CHECK_OK(loader_resume(l, at, ramp_sequences(&ramp, at), taken));
        CHECK(read_steps(l, 30, again) == want);
        CHECK_OK(loader_seek(l, ramp_sequences(&ramp, at)));
        CHECK(read_steps(l, 30, again) == want);
    }
    uint64_t want = read_ranks(p, 1, 0, 30, taken);
    CHECK(read_ranks(p, 2, 0, 30, taken) == want);
}

/* With other weights, and one source more, no document of the epoch comes a second time. */
static void other_weights_go_on_where_each_source_was(void **state)
{
    static int seen[SOURCES][1 << 14];
    Place *p = *state;
    const Batch *b = NULL;
    int64_t taken[SOURCES] = { 0 };
    memset(seen, 0, sizeof seen);
    p->config.n_sources = 2;
    for (int i = 0; i < SOURCES; i++) p->source[i].weight = 1;
    for (int run = 0; run < 2; run++) {
        Loader *l = open_loader(p);
        if (run == 1) CHECK_OK(loader_resume(l, 12, 12 * BATCH, taken));
        for (int step = 0; step < 12; step++) {
            CHECK_OK(loader_next(l, &b));
            for (int64_t k = 0; k < BATCH * T; k++) {
                int source = ((const int32_t *)b->domain.data)[k / T];
                int32_t id = ((const int32_t *)b->id.data)[k];
                CHECK_INT(seen[source][id]++, 0);
            }
        }
        memcpy(taken, b->taken, sizeof taken);
        p->config.n_sources = SOURCES;
        p->source[0].weight = 0.5;
        p->source[1].weight = 3;
    }
    CHECK_INT(taken[0] + taken[1] + taken[2], 24 * BATCH);
    CHECK(taken[2] > 15 && taken[1] > 48 + 50);
}

/* ---- a corpus of documents from 1 byte to 10 MB ---- */

enum { DOCUMENT_MAX = 10 << 20 };

/* FNV-1a over the bytes of a document. */
static const uint64_t FNV = 14695981039346656037U;

static uint64_t hash_bytes(uint64_t h, const char *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 1099511628211U;
    return h;
}

/* How many documents there are, and the sum of their hashes: the same in any order. */
typedef struct Checksum {
    int64_t documents, bytes;
    uint64_t sum;
} Checksum;

/* Documents of words with lengths from 1 byte on, each power of two as often as the next. */
static Checksum write_lines(const char *path, int64_t total, Arena *a)
{
    Checksum c = { 0 };
    File f = { 0 };
    char *text = NULL;
    double most = total / 4 < DOCUMENT_MAX ? (double)total / 4 : DOCUMENT_MAX;
    CHECK_OK(ARENA_NEW(a, DOCUMENT_MAX + 1, &text));
    CHECK_OK(file_create_temp(&f, path, a));
    for (uint64_t x = 1; c.bytes < total; c.documents++) {
        int64_t n = (int64_t)exp(rng_uniform(1, 2, (uint64_t)c.documents) * log(most));
        for (int64_t i = 0; i < n; i++) {
            x = x * 6364136223846793005U + 1442695040888963407U;
            text[i] = "the cat sat on mat"[(x >> 33) % 18];
        }
        c.sum += hash_bytes(FNV, text, n);
        c.bytes += n;
        CHECK_OK(file_write(&f, "{\"text\":\"", 9));
        CHECK_OK(file_write(&f, text, (size_t)n));
        CHECK_OK(file_write(&f, "\"}\n", 3));
    }
    CHECK_OK(file_commit(&f));
    return c;
}

/* One epoch of the loader as documents again: the end-of-text id is behind each. */
static Checksum read_epoch(Loader *l, const Tokenizer *t)
{
    Checksum c = { 0 };
    uint64_t hash = FNV;
    const Batch *b = NULL;
    int32_t end = tokenizer_end_of_text(t);
    bool first = true;
    for (int64_t k = loader_epoch_sequences(l, 0); k > 0; k--) {
        CHECK_OK(loader_next(l, &b));
        const int32_t *id = b->id.data, *target = b->target.data;
        for (int64_t i = first ? -1 : 0; i < b->targets; i++) {
            int32_t one = i < 0 ? id[0] : target[i], n = 0;
            const char *bytes = NULL;
            tokenizer_bytes(t, one, &bytes, &n);
            c.bytes += n;
            hash = hash_bytes(hash, bytes, n);
            if (one != end) continue;
            c.documents++;
            c.sum += hash;
            hash = FNV;
        }
        first = false;
    }
    return c;
}

/* CORPUS_MB in the environment: so many MB, in place of 2. */
static void every_byte_of_every_document_comes_once_an_epoch(void **state)
{
    Place *p = *state;
    PrepareStats stats;
    char text[FILE_PATH_MAX], lines[FILE_PATH_MAX], tokenizer[FILE_PATH_MAX];
    const char *size = getenv("CORPUS_MB"), *files[] = { lines };
    CHECK_OK(file_join(text, p->folder, "a.txt"));
    CHECK_OK(file_join(lines, p->folder, "a.jsonl"));
    CHECK_OK(file_join(tokenizer, p->folder, "t.json"));
    write_text(text, "the cat sat on the mat");
    Tokenizer *t = learn_tokenizer(text, 260, tokenizer, &p->arena);
    Checksum want =
        write_lines(lines, (size != NULL ? strtoll(size, NULL, 10) : 2) * 1000000, &p->arena);
    const PrepareConfig prepare = { .tokenizer = tokenizer,
                                    .out = p->prefix[0],
                                    .files = files,
                                    .n_files = 1,
                                    .threads = 2,
                                    .documents.field = "text" };
    CHECK_OK(prepare_run(&prepare, &stats));
    CHECK_INT(stats.text_bytes, want.bytes);
    p->config.n_sources = 1;
    p->config.batch = 1;
    p->config.sequence = 4096;
    Loader *l = open_loader(p);
    for (int epoch = 0; epoch < 2; epoch++) {
        Checksum got = read_epoch(l, t);
        CHECK_INT(got.documents, want.documents);
        CHECK_INT(got.bytes, want.bytes);
        CHECK(got.sum == want.sum);
    }
    tokenizer_free(t);
}

/* Of a hundred thousand documents: 4 bytes each, 8 for every 64th, and 16 for each that is held out. */
static void memory_of_a_loader_is_small(void **state)
{
    enum { N = 100000 };
    Place *p = *state;
    ShardWriter w = { 0 };
    size_t few = 0, many = 0, mapped = 0;
    p->config.n_sources = 1;
    CHECK_OK(loader_plan(&p->config, &few, &mapped));
    CHECK_OK(shard_create(&w, p->prefix[0], 1000, 0, &p->arena));
    for (int d = 0; d < N; d++) {
        CHECK_OK(shard_append(&w, &(int32_t){ 5 }, 1));
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
    CHECK_OK(loader_plan(&p->config, &many, &mapped));
    CHECK(many < few + N * 9 / 2 + 4096);
    p->config.validation = 0.02;
    CHECK_OK(loader_plan(&p->config, &many, &mapped));
    CHECK(many < few + N * 9 / 2 + 16 * N / 50 * 11 / 10 + 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(epochs_are_times_a_sources_own_tokens),
        PLACE_TEST(weights_change_at_their_steps_exactly),
        PLACE_TEST(wrong_changes_of_weights_are_refused),
        PLACE_TEST(going_on_anywhere_gives_what_would_have_come),
        PLACE_TEST(another_number_of_ranks_goes_on_with_the_same_sequences),
        PLACE_TEST(a_growing_batch_goes_on_anywhere_and_over_ranks),
        PLACE_TEST(other_weights_go_on_where_each_source_was),
        PLACE_TEST(every_byte_of_every_document_comes_once_an_epoch),
        PLACE_TEST(memory_of_a_loader_is_small),
    };
    return TEST_RUN(tests);
}
