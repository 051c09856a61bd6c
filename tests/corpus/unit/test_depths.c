/* What depths of multi-token prediction read and predict. Every id stands once in the corpus, so an id
 * says which document it is from. */
#include "corpus/shard/loader.h"
#include "harness/shards.h"

#include <stdlib.h>
#include <unistd.h>

enum { DOCUMENTS = 200, TOKENS_MAX = 8000, T = 16, BATCH = 4, DEPTHS = 3, STEPS = 200 };

static char folder[] = "/tmp/switchyard_test_XXXXXX";
static char prefix[FILE_PATH_MAX];
static int32_t document[TOKENS_MAX]; /* of each id */
static Arena arena;

/* Empty, one-token, short, and documents much longer than a sequence. */
static void write_corpus(void)
{
    int64_t length[DOCUMENTS];
    int32_t id = 0;
    for (int32_t d = 0; d < DOCUMENTS; d++) {
        length[d] = d % 11 == 0 ? 0 : d % 7 == 0 ? 1 : d % 13 == 0 ? 157 : 3 + d * 7 % 23;
        CHECK(id + length[d] <= TOKENS_MAX);
        for (int64_t i = 0; i < length[d]; i++) document[id++] = d;
    }
    write_numbered(prefix, TOKENS_MAX, 0, length, DOCUMENTS, &arena);
}

static const int32_t *row_of(const Tensor *t, int64_t row)
{
    return (const int32_t *)t->data + row * T;
}

/* Depth k reads the token k further on, and predicts the one behind it if that is of the same document
 * and not beyond the row's last target. Returns how many it predicts. */
static int64_t check_depth(const Batch *b, int64_t row, int k)
{
    int64_t n = 0;
    int have = 1; /* tokens of the row; the last row of an epoch is filled up */
    int32_t token[T + 1];
    const int32_t *next = row_of(&b->next[k - 1].id, row);
    const int32_t *target = row_of(&b->next[k - 1].target, row);
    memcpy(token, row_of(&b->id, row), T * sizeof *token);
    token[T] = row_of(&b->target, row)[T - 1];
    while (have <= T && row_of(&b->target, row)[have - 1] >= 0) have++;
    for (int t = 0; t < T; t++) {
        CHECK_INT(next[t], t + k < have ? token[t + k] : 0);
        bool there = t + 1 + k < have && document[token[t + 1 + k]] == document[token[t]];
        CHECK_INT(target[t], there ? token[t + 1 + k] : -1);
        n += there;
    }
    return n;
}

/* Each of four ranks that read a sequence has the counts of the whole batch. */
static void depths_predict_within_the_sequence_and_the_document(void **state)
{
    (void)state;
    int cut = 0;
    LoaderSource source = { .name = "web", .path = prefix };
    LoaderConfig all = { .sources = &source,
                         .n_sources = 1,
                         .sequence = T,
                         .batch = BATCH,
                         .vocab = TOKENS_MAX,
                         .seed = 7,
                         .validation = 0.2,
                         .shuffle = true,
                         .depths = DEPTHS };
    Loader *whole = NULL, *rank[BATCH] = { NULL };
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)64 << 20));
    CHECK(mkdtemp(folder) != NULL);
    CHECK_OK(file_join(prefix, folder, "web"));
    write_corpus();
    CHECK_OK(loader_open(&all, &arena, &whole));
    for (int r = 0; r < BATCH; r++) {
        LoaderConfig own = all;
        own.first = r, own.own = 1;
        CHECK_OK(loader_open(&own, &arena, &rank[r]));
    }
    for (int i = 0; i < STEPS; i++) {
        const Batch *b = NULL, *own = NULL;
        CHECK_OK(loader_next(whole, &b));
        CHECK_INT(b->depths, DEPTHS);
        for (int k = 1; k <= DEPTHS; k++) {
            int64_t n = 0;
            for (int64_t row = 0; row < BATCH; row++) n += check_depth(b, row, k);
            CHECK(n <= BATCH * (T - k));
            cut += n < BATCH * (T - k);
            CHECK_INT(b->next[k - 1].targets, n);
        }
        for (int r = 0; r < BATCH; r++) {
            CHECK_OK(loader_next(rank[r], &own));
            CHECK_INT(own->targets, b->targets);
            for (int k = 0; k < DEPTHS; k++) CHECK_INT(own->next[k].targets, b->next[k].targets);
        }
    }
    CHECK(cut > STEPS);
    for (int r = 0; r < BATCH; r++) loader_close(rank[r]);
    loader_close(whole);
    CHECK_OK(file_remove_tree(folder));
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(depths_predict_within_the_sequence_and_the_document) };
    return TEST_RUN(tests);
}
