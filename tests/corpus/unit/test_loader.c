/* The corpora of these tests hold every id once, so an id says which document it is from and
 * where it stands in it. */
#include "corpus/shard/loader_private.h"
#include "harness/place.h"
#include "harness/shards.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { DOCUMENTS_MAX = 600, TOKENS_MAX = 70000, SOURCES = 3 };

static const char *const NAMES[SOURCES] = { "web", "books", "code" };

typedef struct Corpus {
    char prefix[FILE_PATH_MAX];
    int64_t documents, tokens;
    int32_t document[TOKENS_MAX], place[TOKENS_MAX]; /* of each id */
    bool held[DOCUMENTS_MAX];
} Corpus;

typedef struct Place {
    char folder[64];
    Arena arena;
    Corpus corpus[SOURCES];
    LoaderSource source[SOURCES];
    LoaderConfig config;
    Loader *loader; /* the test's, if it has one of open_loader */
} Place;

static int place_open(void **state)
{
    Place *p = *state = calloc(1, sizeof *p);
    CHECK(p != NULL);
    place_make(p->folder, &p->arena);
    for (int i = 0; i < SOURCES; i++) {
        CHECK_OK(file_join(p->corpus[i].prefix, p->folder, NAMES[i]));
        p->source[i] = (LoaderSource){ .name = NAMES[i], .path = p->corpus[i].prefix };
    }
    p->config = (LoaderConfig){ .sources = p->source,
                                .n_sources = 1,
                                .sequence = 16,
                                .batch = 4,
                                .vocab = TOKENS_MAX,
                                .seed = 7,
                                .validation = 0.2,
                                .shuffle = true };
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    loader_close(p->loader);
    place_drop(p->folder, &p->arena);
    free(p);
    return 0;
}

static Loader *open_loader(Place *p)
{
    CHECK_OK(loader_open(&p->config, &p->arena, &p->loader));
    return p->loader;
}

/* Documents of these many tokens, ids from 0 on. */
static void write_corpus(Place *p, int source, const int64_t *length, int64_t documents)
{
    Corpus *c = &p->corpus[source];
    c->documents = documents;
    c->tokens = 0;
    CHECK(documents <= DOCUMENTS_MAX);
    for (int64_t d = 0; d < documents; d++) {
        CHECK(c->tokens + length[d] <= TOKENS_MAX);
        for (int32_t i = 0; i < length[d]; i++) {
            int32_t id = (int32_t)c->tokens++;
            c->document[id] = (int32_t)d;
            c->place[id] = i;
        }
        c->held[d] = holdout_by_hash(NAMES[source], d, p->config.validation);
    }
    write_numbered(c->prefix, TOKENS_MAX, 0, length, documents, &p->arena);
}

/* Empty, one-token, short, and documents much longer than a sequence. */
static void write_mixed(Place *p, int source, int64_t documents)
{
    int64_t length[DOCUMENTS_MAX];
    for (int64_t d = 0; d < documents; d++) {
        length[d] = d % 11 == 0 ? 0 : d % 7 == 0 ? 1 : d % 13 == 0 ? 157 + d : 5 + d * 7 % 23;
    }
    write_corpus(p, source, length, documents);
}

static int64_t training_tokens(const Corpus *c)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->tokens; i++) n += !c->held[c->document[i]];
    return n;
}

static const int32_t *ints(const Tensor *t) { return t->data; }

/* ---- what a batch holds ---- */

/* Everything that is true of every row, whatever its place in the epoch. */
static void check_row(const Place *p, const Batch *b, int64_t row)
{
    int64_t T = p->config.sequence;
    const int32_t *id = ints(&b->id) + row * T, *target = ints(&b->target) + row * T;
    const int32_t *pos = ints(&b->pos) + row * T, *doc = ints(&b->doc) + row * T;
    const Corpus *c = &p->corpus[ints(&b->domain)[row]];
    for (int64_t t = 0, filled = false; t < T; t++) {
        CHECK_INT(pos[t], t);
        if (filled) CHECK(id[t] == 0 && target[t] == -1 && doc[t] <= t);
        if (filled) continue;
        CHECK(id[t] >= 0 && id[t] < c->tokens);
        CHECK_INT(doc[t], c->place[id[t]] < t ? t - c->place[id[t]] : 0);
        filled = target[t] == -1;
        if (filled) continue;
        if (t + 1 < T) CHECK_INT(target[t], id[t + 1]);
        bool last = id[t] + 1 == c->tokens || c->document[id[t] + 1] != c->document[id[t]];
        if (!last) CHECK_INT(target[t], id[t] + 1);
        if (last) CHECK_INT(c->place[target[t]], 0);
    }
}

/* Count the targets of the first epoch of source 0 alone. */
static void check_coverage(Place *p)
{
    Corpus *c = &p->corpus[0];
    Loader *l = NULL;
    const Batch *b = NULL;
    ArenaMark mark = arena_mark(&p->arena);
    int64_t T = p->config.sequence, L = training_tokens(c), sequences = (L - 2) / T + 1;
    static int seen[TOKENS_MAX];
    memset(seen, 0, sizeof seen);
    p->config.batch = 1;
    CHECK_OK(loader_open(&p->config, &p->arena, &l));
    CHECK_INT(l->source[0].tokens, L);
    CHECK_INT(l->source[0].sequences, sequences);
    int32_t first = -1;
    for (int64_t i = 0; i < sequences; i++) {
        CHECK_OK(loader_next(l, &b));
        CHECK_INT(b->targets, i + 1 < sequences ? T : L - 1 - i * T);
        check_row(p, b, 0);
        if (i == 0) first = ints(&b->id)[0];
        for (int64_t t = 0; t < b->targets; t++) seen[ints(&b->target)[t]]++;
    }
    int64_t unseen = 0;
    for (int64_t id = 0; id < c->tokens; id++) {
        CHECK(seen[id] <= 1);
        if (c->held[c->document[id]]) CHECK_INT(seen[id], 0);
        unseen += !c->held[c->document[id]] && seen[id] == 0;
    }
    CHECK_INT(seen[first], 0);
    CHECK_INT(unseen, 1); /* the first token */
    loader_close(l);
    arena_release(&p->arena, mark);
}

static void every_training_token_of_an_epoch_but_the_first_is_a_target_once(void **state)
{
    Place *p = *state;
    static const int64_t T[] = { 1, 2, 16, 61, 257, 1000 };
    write_mixed(p, 0, 200);
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        for (size_t i = 0; i < sizeof T / sizeof *T; i++) {
            p->config.sequence = T[i];
            p->config.shuffle = shuffle == 1;
            check_coverage(p);
        }
    }
}

static void a_source_of_one_document_trains(void **state)
{
    Place *p = *state;
    p->config.validation = 0;
    write_corpus(p, 0, (const int64_t[]){ 1001 }, 1);
    check_coverage(p);
}

static void one_sequence_and_its_last_target_are_enough(void **state)
{
    Place *p = *state;
    p->config.validation = 0;
    write_corpus(p, 0, (const int64_t[]){ 9, 8 }, 2);
    check_coverage(p);
}

static void without_shuffle_documents_keep_their_order(void **state)
{
    Place *p = *state;
    const Batch *b = NULL;
    p->config.shuffle = false;
    p->config.validation = 0;
    write_mixed(p, 0, 40);
    Loader *l = open_loader(p);
    CHECK_OK(loader_next(l, &b));
    for (int32_t i = 0; i < 4 * 16; i++) CHECK_INT(ints(&b->id)[i], i);
}

/* ---- the order of sequences ---- */

/* The ids and domains of sequences [first, first + n) into out (n * (T + 1)). */
static void read_sequences(Place *p, uint64_t first, int64_t n, int32_t *out)
{
    Loader *l = NULL;
    const Batch *b = NULL;
    int64_t T = p->config.sequence;
    ArenaMark mark = arena_mark(&p->arena);
    CHECK_OK(loader_open(&p->config, &p->arena, &l));
    CHECK_OK(loader_seek(l, first));
    for (int64_t i = 0; i < n; i += p->config.batch) {
        CHECK_OK(loader_next(l, &b));
        for (int64_t row = 0; row < p->config.batch && i + row < n; row++) {
            int32_t *at = out + (i + row) * (T + 1);
            memcpy(at, ints(&b->id) + row * T, (size_t)T * sizeof *at);
            at[T] = ints(&b->domain)[row];
            check_row(p, b, row);
        }
    }
    loader_close(l);
    arena_release(&p->arena, mark);
}

enum { MANY = 400, WIDE = 17 }; /* sequences, and numbers of each: 16 ids and a domain */

static Place *three_sources(Place *p)
{
    p->config.n_sources = SOURCES;
    write_mixed(p, 0, 60);
    write_mixed(p, 1, 90);
    write_mixed(p, 2, 31);
    p->source[0].weight = 0.5, p->source[1].weight = 0.3, p->source[2].weight = 0.2;
    return p;
}

static void resuming_anywhere_gives_the_uninterrupted_sequence(void **state)
{
    static int32_t whole[MANY * WIDE], part[MANY * WIDE];
    static const uint64_t AT[] = { 0, 1, 3, 4, 57, 58, 131, 200, 399 };
    Place *p = three_sources(*state);
    read_sequences(p, 0, MANY, whole);
    for (size_t i = 0; i < sizeof AT / sizeof *AT; i++) {
        int64_t n = MANY - (int64_t)AT[i] < 50 ? MANY - (int64_t)AT[i] : 50;
        read_sequences(p, AT[i], n, part);
        CHECK(memcmp(part, whole + AT[i] * WIDE, (size_t)n * WIDE * sizeof *part) == 0);
    }
}

static void the_size_of_a_batch_does_not_change_the_sequences(void **state)
{
    static int32_t four[MANY * WIDE], seven[MANY * WIDE];
    Place *p = three_sources(*state);
    read_sequences(p, 0, MANY, four);
    p->config.batch = 7;
    read_sequences(p, 0, MANY, seven);
    CHECK(memcmp(four, seven, sizeof four) == 0);
}

static void the_seed_decides_the_order(void **state)
{
    static int32_t first[MANY * WIDE], again[MANY * WIDE], other[MANY * WIDE];
    Place *p = three_sources(*state);
    read_sequences(p, 0, MANY, first);
    read_sequences(p, 0, MANY, again);
    p->config.seed = 8;
    read_sequences(p, 0, MANY, other);
    CHECK(memcmp(first, again, sizeof first) == 0);
    CHECK(memcmp(first, other, sizeof first) != 0);
}

static void every_epoch_has_an_order_of_its_own(void **state)
{
    Place *p = *state;
    write_mixed(p, 0, 60);
    p->config.batch = 1;
    int64_t n = (training_tokens(&p->corpus[0]) - 2) / 16 + 1;
    static int32_t first[MANY * WIDE], second[MANY * WIDE];
    CHECK(n > 1 && n <= MANY);
    read_sequences(p, 0, n, first);
    read_sequences(p, (uint64_t)n, n, second);
    CHECK(memcmp(first, second, (size_t)n * WIDE * sizeof *first) != 0);
}

/* Else those that were prepared alike would move in step. */
static void every_source_has_an_order_of_its_own(void **state)
{
    Place *p = *state;
    static int32_t rows[2][MANY * WIDE];
    p->config.validation = 0;
    p->config.batch = 1;
    for (int i = 0; i < 2; i++) {
        write_mixed(p, i, 60);
        p->config.sources = &p->source[i];
        int64_t n = (p->corpus[i].tokens - 1) / 16;
        CHECK(n > 1 && n <= MANY);
        read_sequences(p, 0, n, rows[i]);
    }
    CHECK(memcmp(rows[0], rows[1], sizeof rows[0]) != 0);
}

static void sources_get_their_weights(void **state)
{
    static int32_t rows[MANY * WIDE];
    Place *p = three_sources(*state);
    int64_t taken[SOURCES] = { 0 };
    read_sequences(p, 0, MANY, rows);
    for (int64_t i = 0; i < MANY; i++) {
        taken[rows[i * WIDE + 16]]++;
        for (int s = 0; s < SOURCES; s++) {
            CHECK_NEAR((double)taken[s], p->source[s].weight * (double)(i + 1), 1.001);
        }
    }
}

static void without_weights_sources_get_their_tokens(void **state)
{
    Place *p = three_sources(*state);
    double all = 0;
    for (int i = 0; i < SOURCES; i++) {
        p->source[i].weight = 0;
        all += (double)training_tokens(&p->corpus[i]);
    }
    Loader *l = open_loader(p);
    for (int i = 0; i < SOURCES; i++) {
        double share = (double)l->mix.task[i].rate / (double)l->mix.total;
        CHECK_NEAR(share, (double)training_tokens(&p->corpus[i]) / all, 1e-6);
        CHECK_TEXT(loader_source_name(l, i), NAMES[i]);
    }
    CHECK_INT(loader_sources(l), SOURCES);
}

/* Long enough for the thread to make a batch. */
static void let_it_work(void) { nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL); }

static void seeking_drops_the_batch_that_was_ahead(void **state)
{
    Place *p = three_sources(*state);
    const Batch *b = NULL;
    static int32_t first[4 * 16];
    Loader *l = open_loader(p);
    CHECK_OK(loader_next(l, &b));
    memcpy(first, b->id.data, sizeof first);
    for (uint64_t i = 0; i < 10; i++) {
        CHECK_OK(loader_seek(l, 40 * i));
        CHECK_OK(loader_next(l, &b));
        let_it_work();
        CHECK_OK(loader_seek(l, 0));
        CHECK_OK(loader_next(l, &b));
        CHECK(memcmp(first, b->id.data, sizeof first) == 0);
    }
}

static void a_batch_stays_valid_until_the_second_next_call(void **state)
{
    Place *p = three_sources(*state);
    const Batch *b[3] = { NULL };
    static int32_t copy[4 * 16];
    Loader *l = open_loader(p);
    for (int i = 0; i < 10; i++) {
        CHECK_OK(loader_next(l, &b[0]));
        memcpy(copy, b[0]->id.data, sizeof copy);
        CHECK_OK(loader_next(l, &b[1]));
        let_it_work();
        CHECK(memcmp(copy, b[0]->id.data, sizeof copy) == 0);
        CHECK(memcmp(copy, b[1]->id.data, sizeof copy) != 0);
    }
}

static void bytes_are_those_of_the_targets(void **state)
{
    static int32_t bytes[TOKENS_MAX];
    Place *p = three_sources(*state);
    const Batch *b = NULL;
    for (int32_t i = 0; i < TOKENS_MAX; i++) bytes[i] = i % 9;
    p->config.token_bytes = bytes;
    Loader *l = open_loader(p);
    for (int i = 0; i < 5; i++) {
        int64_t want = 0;
        CHECK_OK(loader_next(l, &b));
        for (int64_t t = 0; t < 4 * 16; t++) want += ints(&b->target)[t] % 9;
        CHECK_INT(b->bytes, want);
        CHECK_INT(b->targets, 4 * 16);
    }
}

/* ---- held-out documents ---- */

static void held_documents_are_read_in_order_and_each_token_is_a_target_once(void **state)
{
    Place *p = *state;
    Batch b = { 0 };
    int64_t n = 0;
    write_mixed(p, 0, 300);
    Corpus *c = &p->corpus[0];
    Loader *l = open_loader(p);
    CHECK_OK(batch_new(&p->arena, 5, 16, &b));
    CHECK_OK(loader_held_sequences(l, 0, &n));
    int32_t next = 0, held = 0;
    for (int32_t id = 0; id < c->tokens; id++) held += c->held[c->document[id]];
    CHECK_INT(l->source[0].held.start[l->source[0].held.n], held);
    CHECK_INT(n, (held - 1 + 15) / 16);
    CHECK(held % 16 != 1 && n > 2); /* so there is a last sequence to fill up */
    while (!c->held[c->document[next]]) next++;
    int64_t targets = 0;
    for (int64_t i = 0; i < n + 5; i += 5) {
        CHECK_OK(loader_held(l, 0, i, 5, &b));
        targets += b.targets;
        for (int64_t t = 0; t < 5 * 16; t++) {
            if (ints(&b.target)[t] == -1) continue;
            CHECK_INT(ints(&b.id)[t], next);
            do {
                next++;
            } while (!c->held[c->document[next]]);
            CHECK_INT(ints(&b.target)[t], next);
        }
    }
    CHECK_INT(targets, held - 1);
}

static void the_last_held_sequence_is_filled_up_with_ignored_tokens(void **state)
{
    Place *p = *state;
    Batch b = { 0 };
    int64_t n = 0;
    write_mixed(p, 0, 300);
    Loader *l = open_loader(p);
    CHECK_OK(batch_new(&p->arena, 2, 16, &b));
    CHECK_OK(loader_held_sequences(l, 0, &n));
    CHECK_OK(loader_held(l, 0, n - 1, 2, &b));
    int64_t left = (l->source[0].held.start[l->source[0].held.n] - 1) % 16;
    CHECK_INT(b.targets, left);
    for (int64_t t = 0; t < 2 * 16; t++) {
        CHECK(t < left ? ints(&b.target)[t] >= 0 : ints(&b.target)[t] == -1);
        CHECK(ints(&b.id)[t] >= 0 && ints(&b.id)[t] < p->config.vocab);
        CHECK(ints(&b.doc)[t] >= 0 && ints(&b.doc)[t] <= t % 16);
        CHECK_INT(ints(&b.pos)[t], t % 16);
    }
    CHECK_INT(ints(&b.domain)[1], 0);
}

static void what_is_held_out_depends_on_name_and_document_alone(void **state)
{
    (void)state;
    int held = 0, both = 0;
    for (int64_t d = 0; d < 10000; d++) {
        bool web = holdout_by_hash("web", d, 0.1), books = holdout_by_hash("books", d, 0.1);
        held += web;
        both += web && books;
        CHECK(!holdout_by_hash("web", d, 0));
        CHECK(!web || holdout_by_hash("web", d, 0.2)); /* a larger share only adds documents */
    }
    CHECK_NEAR(held, 1000, 150); /* 5 standard deviations of 10000 draws at 0.1 */
    CHECK_NEAR(both, 100, 50);
}

static void held_batches_that_do_not_fit_are_refused(void **state)
{
    Place *p = *state;
    Batch b = { 0 };
    write_mixed(p, 0, 300);
    Loader *l = open_loader(p);
    CHECK_OK(batch_new(&p->arena, 2, 16, &b));
    CHECK_FAILS(loader_held(l, 0, 0, 3, &b), ERR_SHAPE, "room for 2");
    CHECK_FAILS(loader_held(l, 0, -1, 1, &b), ERR_SHAPE, "-1");
    CHECK_FAILS(loader_held(l, 0, INT64_MAX - 1, 1, &b), ERR_SHAPE, "9223372036854775806");
    CHECK_FAILS(loader_held(l, 1, 0, 1, &b), ERR_ARG, "source 1, there are 1");
}

/* ---- failures ---- */

static void an_id_beyond_the_vocabulary_says_where_it_stands(void **state)
{
    Place *p = *state;
    const Batch *b = NULL;
    p->config.validation = 0;
    p->config.shuffle = false;
    write_corpus(p, 0, (const int64_t[]){ 100, 100, 100 }, 3);
    p->config.vocab = 205;
    Loader *l = open_loader(p);
    for (int i = 0; i < 3; i++) CHECK_OK(loader_next(l, &b)); /* ids up to 192 */
    CHECK_FAILS(loader_next(l, &b), ERR_FORMAT, "source web: token 5 of document 2 in ");
    CHECK(strstr(status_message(), "web.bin is id 205, the vocabulary has 205") != NULL);
    CHECK_FAILS(loader_next(l, &b), ERR_FORMAT, "id 205");
    CHECK_OK(loader_seek(l, 4));
    CHECK_OK(loader_next(l, &b));
    CHECK_INT(ints(&b->id)[0], 64);
}

/* Once while batches are read ahead, once while held-out text is. */
static void files_that_change_while_they_are_read_are_an_error(void **state)
{
    Place *p = *state;
    const Batch *b = NULL;
    Batch held;
    char path[FILE_PATH_MAX + 8];
    write_mixed(p, 0, 60);
    snprintf(path, sizeof path, "%s.bin", p->corpus[0].prefix);
    Loader *l = open_loader(p);
    CHECK_OK(batch_new(&p->arena, 1, p->config.sequence, &held));
    CHECK_OK(loader_next(l, &b));
    CHECK_OK(loader_wait(l));
    CHECK_OK(loader_held(l, 0, 0, 1, &held));
    CHECK_INT(truncate(path, 8), 0);
    CHECK_OK(loader_next(l, &b)); /* was read before */
    CHECK_FAILS(loader_wait(l), ERR_CHANGED, "web.bin was changed while it was read");
    CHECK_FAILS(loader_next(l, &b), ERR_CHANGED, "it has 8 bytes, it had ");
    CHECK_FAILS(loader_held(l, 0, 0, 1, &held), ERR_CHANGED, "web.bin was changed");
}

static void a_negative_id_is_beyond_the_vocabulary(void **state)
{
    Place *p = *state;
    const Batch *b = NULL;
    char path[FILE_PATH_MAX];
    p->config.validation = 0;
    write_corpus(p, 0, (const int64_t[]){ 100 }, 1);
    CHECK_OK(file_join(path, p->folder, "web.bin"));
    FILE *f = fopen(path, "r+");
    CHECK(f != NULL);
    CHECK_INT(fseek(f, 4 * 3, SEEK_SET), 0);
    CHECK_INT(fwrite("\xff\xff\xff\xff", 4, 1, f), 1);
    CHECK_INT(fclose(f), 0);
    Loader *l = open_loader(p);
    CHECK_FAILS(loader_next(l, &b), ERR_FORMAT, "token 3 of document 0");
}

static void a_source_too_small_for_a_sequence_is_refused(void **state)
{
    Place *p = *state;
    Loader *l = NULL;
    size_t arena = 0, mapped = 0;
    p->config.validation = 0;
    write_corpus(p, 0, (const int64_t[]){ 9, 7 }, 2);
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG,
                "has 16 training tokens (of 16 in 2 documents, the others are held out: "
                "data.validation 0), one sequence needs "
                "17");
    CHECK_FAILS(loader_plan(&p->config, &arena, &mapped), ERR_ARG, "source web");
    write_corpus(p, 0, (const int64_t[]){ 0 }, 0);
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "has 0 training tokens");
}

static void sources_that_cannot_be_told_apart_are_refused(void **state)
{
    Place *p = three_sources(*state);
    Loader *l = NULL;
    p->source[2].name = "web";
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG,
                "sources 0 and 2 are both called web");
}

static void weights_are_for_all_sources_or_for_none(void **state)
{
    Place *p = three_sources(*state);
    Loader *l = NULL;
    p->source[1].weight = 0;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG,
                "source web has weight 0.5 and source books has 0");
    p->source[1].weight = -2;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "source books has weight -2");
}

static void sizes_that_make_no_sense_are_refused(void **state)
{
    Place *p = *state;
    Loader *l = NULL;
    LoaderConfig good = p->config;
    write_mixed(p, 0, 60);
    p->config.sequence = 0;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "sequences of 0 tokens");
    p->config = good, p->config.batch = 0;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "0 a step");
    p->config = good, p->config.validation = 1;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "share 1");
    p->config = good, p->config.n_sources = 0;
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_ARG, "0 data sources");
}

static void a_missing_source_is_named(void **state)
{
    Place *p = *state;
    Loader *l = NULL;
    p->config.n_sources = 2;
    write_mixed(p, 0, 60);
    CHECK_FAILS(loader_open(&p->config, &p->arena, &l), ERR_IO, "books.idx");
}

static void closing_early_or_nothing_is_fine(void **state)
{
    Place *p = three_sources(*state);
    Loader *l = NULL;
    loader_close(NULL);
    for (int i = 0; i < 20; i++) {
        ArenaMark mark = arena_mark(&p->arena);
        CHECK_OK(loader_open(&p->config, &p->arena, &l));
        if (i % 3 == 0) CHECK_OK(loader_seek(l, (uint64_t)i * 37));
        loader_close(l);
        arena_release(&p->arena, mark);
    }
}

/* ---- memory ---- */

static void the_plan_is_what_opening_takes(void **state)
{
    Place *p = three_sources(*state);
    const Batch *b = NULL;
    size_t planned = 0, mapped = 0, files = 0;
    for (int i = 0; i < SOURCES; i++) {
        files += (size_t)p->corpus[i].tokens * 4 + 34 + (size_t)p->corpus[i].documents * 20 + 8;
    }
    CHECK_OK(loader_plan(&p->config, &planned, &mapped));
    size_t before = p->arena.used_bytes;
    Loader *l = open_loader(p);
    CHECK_INT(p->arena.used_bytes - before, planned);
    CHECK_INT(mapped, files);
    for (int i = 0; i < 200; i++) CHECK_OK(loader_next(l, &b));
    CHECK_INT(p->arena.used_bytes - before, planned);
}

/* Memory of mapped files that this process holds. */
static size_t file_pages_bytes(Place *p)
{
    char *text = NULL;
    size_t n = 0;
    ArenaMark mark = arena_mark(&p->arena);
    CHECK_OK(file_read_all("/proc/self/status", &p->arena, &text, &n));
    const char *line = strstr(text, "RssFile:");
    CHECK(line != NULL);
    size_t bytes = (size_t)strtoull(line + 8, NULL, 10) << 10;
    arena_release(&p->arena, mark);
    return bytes;
}

/* An index of n documents of `length` ids of type u16, and a .bin that is one hole. */
static void write_hole(Place *p, int64_t n, int32_t length)
{
    char bin[FILE_PATH_MAX], idx[FILE_PATH_MAX];
    File f = { 0 };
    const uint64_t counts[2] = { (uint64_t)n, (uint64_t)n + 1 };
    CHECK_OK(file_join(bin, p->folder, "web.bin"));
    CHECK_OK(file_join(idx, p->folder, "web.idx"));
    CHECK_OK(file_create_temp(&f, bin, &p->arena));
    CHECK_OK(file_commit(&f));
    CHECK_INT(truncate(bin, n * length * 2), 0);
    CHECK_OK(file_create_temp(&f, idx, &p->arena));
    CHECK_OK(file_write(&f, "MMIDIDX\0\0\1\0\0\0\0\0\0\0\10", 18));
    CHECK_OK(file_write(&f, counts, sizeof counts));
    for (int64_t d = 0; d < n; d++) CHECK_OK(file_write(&f, &length, sizeof length));
    for (int64_t d = 0; d < n; d++) {
        CHECK_OK(file_write(&f, &(int64_t){ d * length * 2 }, sizeof(int64_t)));
    }
    for (int64_t d = 0; d <= n; d++) CHECK_OK(file_write(&f, &d, sizeof d));
    CHECK_OK(file_commit(&f));
}

static void pages_of_large_files_are_given_back(void **state)
{
    enum { LENGTH = 2 << 20, DOCUMENTS = 40 }; /* 160 MiB */
    Place *p = *state;
    const Batch *b = NULL;
    size_t planned = 0, mapped = 0;
    write_hole(p, DOCUMENTS, LENGTH);
    p->config.validation = 0;
    p->config.sequence = LENGTH / 2;
    p->config.batch = 1;
    CHECK_OK(loader_plan(&p->config, &planned, &mapped));
    CHECK_INT(mapped, (size_t)32 << 20);
    Loader *l = open_loader(p);
    size_t before = file_pages_bytes(p);
    for (int i = 0; i < 70; i++) {
        CHECK_OK(loader_next(l, &b));
        CHECK(file_pages_bytes(p) < before + mapped);
    }
}

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

static void every_refused_allocation_is_an_error(void **state)
{
    Place *p = three_sources(*state);
    Loader *l = NULL;
    Status s = ERR_MEMORY;
    long n = 0;
    for (; s != OK; n++) {
        ArenaMark mark = arena_mark(&p->arena);
        arena_fail_countdown = n;
        s = loader_open(&p->config, &p->arena, &l);
        arena_fail_countdown = -1;
        if (s != OK) CHECK_INT(s, ERR_MEMORY);
        if (s != OK) arena_release(&p->arena, mark);
    }
    CHECK(n > 20);
    loader_close(l);
}
#endif

/* Its thread looks at the files by these names, when the stack of loader_open is gone. */
static void a_loader_holds_the_names_of_its_files(void **state)
{
    Place *p = three_sources(*state);
    const Loader *l = open_loader(p);
    for (int i = 0; i < SOURCES; i++) {
        const char *path = l->source[i].shard.prefix;
        CHECK(path != p->source[i].path);
        CHECK_TEXT(path, p->source[i].path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(every_training_token_of_an_epoch_but_the_first_is_a_target_once),
        PLACE_TEST(a_loader_holds_the_names_of_its_files),
        PLACE_TEST(a_source_of_one_document_trains),
        PLACE_TEST(one_sequence_and_its_last_target_are_enough),
        PLACE_TEST(without_shuffle_documents_keep_their_order),
        PLACE_TEST(resuming_anywhere_gives_the_uninterrupted_sequence),
        PLACE_TEST(the_size_of_a_batch_does_not_change_the_sequences),
        PLACE_TEST(the_seed_decides_the_order),
        PLACE_TEST(every_epoch_has_an_order_of_its_own),
        PLACE_TEST(every_source_has_an_order_of_its_own),
        PLACE_TEST(sources_get_their_weights),
        PLACE_TEST(without_weights_sources_get_their_tokens),
        PLACE_TEST(seeking_drops_the_batch_that_was_ahead),
        PLACE_TEST(a_batch_stays_valid_until_the_second_next_call),
        PLACE_TEST(bytes_are_those_of_the_targets),
        PLACE_TEST(held_documents_are_read_in_order_and_each_token_is_a_target_once),
        PLACE_TEST(the_last_held_sequence_is_filled_up_with_ignored_tokens),
        TEST(what_is_held_out_depends_on_name_and_document_alone),
        PLACE_TEST(held_batches_that_do_not_fit_are_refused),
        PLACE_TEST(an_id_beyond_the_vocabulary_says_where_it_stands),
        PLACE_TEST(files_that_change_while_they_are_read_are_an_error),
        PLACE_TEST(a_negative_id_is_beyond_the_vocabulary),
        PLACE_TEST(a_source_too_small_for_a_sequence_is_refused),
        PLACE_TEST(sources_that_cannot_be_told_apart_are_refused),
        PLACE_TEST(weights_are_for_all_sources_or_for_none),
        PLACE_TEST(sizes_that_make_no_sense_are_refused),
        PLACE_TEST(a_missing_source_is_named),
        PLACE_TEST(closing_early_or_nothing_is_fine),
        PLACE_TEST(the_plan_is_what_opening_takes),
        PLACE_TEST(pages_of_large_files_are_given_back),
#ifdef ARENA_FAIL_NTH
        PLACE_TEST(every_refused_allocation_is_an_error),
#endif
    };
    return TEST_RUN(tests);
}
