/* What an evaluation says does not depend on how it was cut: not on the micro-batch, not on ranks.
 * Its load by domain counts each held-out target top_k times a layer: no padding. */
#include "corpus/shard/shard.h"
#include "engine/train/eval.h"
#include "harness/many.h"

#include <stdlib.h>

enum { SOURCES = 2, DOCUMENTS = 40, LOAD_MAX = 256, SOME = 7 };

#define TIED "model.tied=true", "model.vocab=64" /* which ranks of tp divide */

/* The first is the witness. 11 sequences of web and 5 of books are held out. */
static const ManyCase cases[] = {
    { "one at a time", 1, { TIED, "train.micro_batch=1" } },
    { "four at a time", 1, { TIED, "train.micro_batch=4" } },
    { "two data ranks", 2, { TIED, "mesh.ep=2", "train.micro_batch=2" } },
    { "two that hold parts", 2, { TIED, "mesh.zero=3", "train.micro_batch=2" } },
    { "four ranks", 4, { TIED, "mesh.pp=2", "mesh.ep=2", "train.micro_batch=4", "train.batch=8" } },
    { "four that hold parts",
      4,
      { TIED, "mesh.pp=2", "mesh.zero=3", "train.micro_batch=4", "train.batch=8" } },
    { "a sequence on two", 2, { TIED, "mesh.cp=2", "train.micro_batch=3", "train.batch=6" } },
    { "matrices on two", 2, { TIED, "mesh.tp=2", "train.micro_batch=2" } },
    { "matrices on two of four",
      4,
      { TIED, "mesh.tp=2", "mesh.pp=2", "mesh.ep=2", "mesh.zero=3", "train.micro_batch=4",
        "train.batch=8", "mtp.layers=1" } },
    /* depths of multi-token prediction are of training alone */
    { "two depths", 1, { TIED, "mtp.layers=2", "train.micro_batch=2" } },
    { "two depths on four",
      4,
      { TIED, "mtp.layers=2", "mesh.pp=2", "mesh.ep=2", "train.micro_batch=4", "train.batch=8" } },
};
enum { CASES = sizeof cases / sizeof *cases };

typedef struct Result {
    int64_t n_load, load[LOAD_MAX];
    EvalMetrics all, some;
} Result;

typedef struct Turn {
    const ManyCase *what;
    char prefix[SOURCES][FILE_PATH_MAX];
    Result result; /* rank 0's */
} Turn;

static void write_shard(Arena *a, const char *prefix, int32_t length)
{
    ShardWriter w = { 0 };
    CHECK_OK(shard_create(&w, prefix, 61, 0, a));
    for (int d = 0; d < DOCUMENTS; d++) {
        for (int32_t i = 0; i < length + d % 5; i++) {
            int32_t id = (7 * d + i * i) % 61;
            CHECK_OK(shard_append(&w, &id, 1));
        }
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
}

static Status open_loader(Turn *t, ManyRank *r, Loader **out)
{
    LoaderSource source[SOURCES] = { { .name = "web", .path = t->prefix[0] },
                                     { .name = "books", .path = t->prefix[1] } };
    LoaderConfig c = { .sources = source,
                       .n_sources = SOURCES,
                       .sequence = r->t.config.data_sequence,
                       .batch = r->t.config.train_batch,
                       .own = r->t.config.train_batch,
                       .vocab = 61,
                       .validation = 0.3 };
    return loader_open(&c, &r->t.arena, out);
}

static Status evaluate(Turn *t, ManyRank *r, Loader *l)
{
    Evaluator v = { 0 };
    EvalMetrics all, some;
    Engine *e = &r->t.engine;
    int64_t n = tensor_elems(&e->io.record.load);
    if (n > LOAD_MAX) return FAIL(ERR_ARG, "%lld counts of load", (long long)n);
    TRY(eval_make(&v, e, NULL, &r->t.arena));
    TRY(eval_run(&v, l, SOME, 0, &some));
    int64_t part[LOAD_MAX];
    memcpy(part, some.load, (size_t)n * sizeof *part);
    TRY(eval_run(&v, l, INT64_MAX / 2, 0, &all));
    if (r->mesh.rank > 0) return OK;
    t->result = (Result){ .n_load = 2 * n, .all = all, .some = some };
    memcpy(t->result.load, part, (size_t)n * sizeof *part);
    memcpy(t->result.load + n, all.load, (size_t)n * sizeof *part);
    return OK;
}

static Status take_turn(void *state, Comm *world)
{
    Turn *t = state;
    ManyRank r = { 0 };
    Loader *l = NULL;
    Status s = many_open(&r, t->what, world->size == 1 ? NULL : world);
    if (s == OK) s = open_loader(t, &r, &l);
    if (s == OK) s = evaluate(t, &r, l);
    loader_close(l);
    many_close(&r);
    return s;
}

/* Of a domain and over all layers and experts. */
static int64_t counted(const Result *r, const int64_t *load, int domain, int64_t experts)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < r->n_load / 2; i++) {
        if (i / experts % SOURCES == domain) sum += load[i];
    }
    return sum;
}

static void check_counts(const Result *r, const Config *c)
{
    int64_t layers = config_moe_layers(c);
    for (int d = 0; d < SOURCES; d++) {
        int64_t each = layers * c->moe_top_k;
        CHECK(r->some.domain[d].targets > 0 &&
              r->all.domain[d].targets > r->some.domain[d].targets);
        CHECK(r->all.domain[d].targets % c->data_sequence >
              0); /* or there is no padding to count */
        CHECK_INT(counted(r, r->load, d, c->moe_experts), r->some.domain[d].targets * each);
        CHECK_INT(counted(r, r->load + r->n_load / 2, d, c->moe_experts),
                  r->all.domain[d].targets * each);
    }
}

static void check_same(const Result *a, const Result *b)
{
    for (int d = 0; d < SOURCES; d++) {
        CHECK_INT(a->all.domain[d].targets, b->all.domain[d].targets);
        CHECK_INT(a->some.domain[d].targets, b->some.domain[d].targets);
        CHECK_NEAR(a->all.domain[d].nats / b->all.domain[d].nats, 1, 1e-5);
    }
    int64_t n = a->n_load / 2, both = b->n_load / 2; /* behind both: of depths */
    CHECK(n >= both);
    for (int64_t i = 0; i < 2 * n; i++)
        CHECK_INT(a->load[i], i % n < both ? b->load[i / n * both + i % n] : 0);
}

static void an_evaluation_is_the_same_however_it_is_cut(void **state)
{
    (void)state;
    Tiny tiny;
    Turn t[CASES] = { { 0 } };
    char folder[] = "/tmp/switchyard_test_XXXXXX";
    tiny_open(&tiny, TINY("run.threads=1"));
    CHECK(mkdtemp(folder) != NULL);
    for (int i = 0; i < CASES; i++) {
        int failed = -1;
        t[i].what = &cases[i];
        for (int s = 0; s < SOURCES; s++) {
            snprintf(t[i].prefix[s], sizeof t[i].prefix[s], "%s/%d", folder, s);
            if (i == 0) write_shard(&tiny.arena, t[i].prefix[s], s == 0 ? 19 : 11);
        }
        CHECK_OK(comm_threads(cases[i].ranks, 60, take_turn, &t[i], &failed));
        check_counts(&t[i].result, &tiny.config);
        check_same(&t[i].result, &t[0].result);
    }
    CHECK_OK(file_remove_tree(folder));
    tiny_close(&tiny);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_evaluation_is_the_same_however_it_is_cut),
    };
    return TEST_RUN(tests);
}
