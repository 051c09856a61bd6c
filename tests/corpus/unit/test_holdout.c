/* Which tokens of a source are held out: documents by their hash, or the end of the source. */
#include "corpus/shard/holdout.h"
#include "corpus/shard/loader.h"
#include "harness/place.h"
#include "harness/shards.h"

typedef struct Place {
    char folder[64], prefix[FILE_PATH_MAX];
    Arena arena;
    Shard shard;
} Place;

static int place_open(void **state)
{
    static Place p;
    p = (Place){ 0 };
    *state = &p;
    place_make(p.folder, &p.arena);
    CHECK_OK(file_join(p.prefix, p.folder, "source"));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    shard_close(&p->shard);
    place_drop(p->folder, &p->arena);
    return 0;
}

/* Documents of these many tokens, whose ids count from 0; in packs of `pack`, if that is not 0. */
static const Shard *write_shard(Place *p, const int64_t *length, int n, int64_t pack)
{
    write_numbered(p->prefix, 1 << 20, pack, length, n, &p->arena);
    CHECK_OK(shard_open(&p->shard, p->prefix));
    return &p->shard;
}

/* Every token is on one side, and those from `cut` on are held out. */
static void check_cut(const HoldOut *h, const Shard *s, int64_t cut)
{
    int64_t at = 0;
    for (int64_t d = 0; d < s->documents; d++) {
        int64_t first = -1, n = holdout_part(h, s, d, false, &first);
        if (n > 0) CHECK_INT(first, at);
        at += n;
        if (n > 0) CHECK(at <= cut);
        n = holdout_part(h, s, d, true, &first);
        if (n > 0) CHECK_INT(first, at);
        if (n > 0) CHECK(first >= cut);
        at += n;
        CHECK_INT(at, shard_start(s, d + 1));
    }
}

/* A name under which the hash takes none of so many documents. */
static const char *name_of_none(int64_t documents, double share)
{
    static char name[2] = "a";
    for (name[0] = 'a'; name[0] <= 'z'; name[0]++) {
        bool any = false;
        for (int64_t d = 0; d < documents; d++) any |= holdout_by_hash(name, d, share);
        if (!any) return name;
    }
    fail_msg("every name has a document that the hash takes");
    return NULL;
}

static void one_document_holds_out_its_end(void **state)
{
    Place *p = *state;
    const Shard *s = write_shard(p, (const int64_t[]){ 1001 }, 1, 0);
    HoldOut h = holdout_of(s, "web", 0.1);
    CHECK_INT(h.tail, 100);
    check_cut(&h, s, 901);
    /* the hash takes every document whose number is below the share, here the only one */
    h = holdout_of(s, "web", 0.9);
    CHECK(holdout_by_hash("web", 0, 0.9));
    CHECK_INT(h.tail, 901);
    check_cut(&h, s, 100);
}

static void the_end_may_be_of_several_documents_and_of_empty_ones(void **state)
{
    Place *p = *state;
    const Shard *s = write_shard(p, (const int64_t[]){ 700, 40, 0, 60, 0, 1 }, 6, 0);
    HoldOut h = holdout_of(s, name_of_none(6, 0.1), 0.1);
    CHECK_INT(h.tail, 80);
    check_cut(&h, s, 721);
}

static void documents_that_the_hash_chooses_are_held_out_whole(void **state)
{
    Place *p = *state;
    int64_t length[200], held = 0;
    for (int d = 0; d < 200; d++) length[d] = 3 + d % 5;
    const Shard *s = write_shard(p, length, 200, 0);
    HoldOut h = holdout_of(s, "web", 0.1);
    CHECK_INT(h.tail, 0);
    for (int64_t d = 0; d < 200; d++) {
        int64_t first = 0;
        bool out = holdout_by_hash("web", d, 0.1);
        held += out;
        CHECK_INT(holdout_part(&h, s, d, out, &first), length[d]);
        CHECK_INT(first, shard_start(s, d));
        CHECK_INT(holdout_part(&h, s, d, !out, &first), 0);
    }
    CHECK(held > 5 && held < 50);
}

static void chats_are_held_out_in_whole_packs(void **state)
{
    Place *p = *state;
    static const int64_t length[] = { 8, 8, 8, 8, 8, 8, 8, 8, 8, 8 };
    const Shard *s = write_shard(p, length, 10, 8);
    CHECK(s->pack == 8);
    const char *name = name_of_none(10, 0.16);
    HoldOut h = holdout_of(s, name, 0.16);
    CHECK_INT(h.tail, 16); /* 1.6 packs */
    check_cut(&h, s, 64);
    CHECK_INT(holdout_of(s, name, 0.04).tail, 0);
}

static void too_little_text_holds_out_nothing(void **state)
{
    Place *p = *state;
    const Shard *s = write_shard(p, (const int64_t[]){ 60 }, 1, 0);
    HoldOut h = holdout_of(s, "web", 0.02); /* a lone token has nothing to be predicted from */
    CHECK_INT(h.tail, 0);
    check_cut(&h, s, 60);
    h = holdout_of(s, "web", 0);
    CHECK_INT(h.tail, 0);
    check_cut(&h, s, 60);
}

/* The loader trains on the beginning and hands out the end, in the same order on every rank. */
static void a_loader_reads_the_end_as_held_out_text(void **state)
{
    Place *p = *state;
    write_shard(p, (const int64_t[]){ 300, 101 }, 2, 0);
    const LoaderSource source = { .name = name_of_none(2, 0.3), .path = p->prefix };
    LoaderConfig c = { .sources = &source,
                       .n_sources = 1,
                       .sequence = 16,
                       .batch = 4,
                       .vocab = 1 << 20,
                       .seed = 7,
                       .validation = 0.3,
                       .shuffle = true };
    Loader *l = NULL;
    const Batch *b = NULL;
    Batch held = { 0 };
    int64_t n = 0, end = 0;
    CHECK_OK(loader_open(&c, &p->arena, &l));
    CHECK_INT(loader_held_tail(l, 0), 120);
    for (int i = 0; i < 20; i++) {
        CHECK_OK(loader_next(l, &b));
        const int32_t *id = b->id.data, *target = b->target.data;
        for (int t = 0; t < 64; t++) CHECK(id[t] < 281 && target[t] < 281);
    }
    CHECK_OK(loader_held_sequences(l, 0, &n));
    CHECK_INT(n, 8);
    CHECK_OK(batch_new(&p->arena, 8, 16, &held));
    CHECK_OK(loader_held(l, 0, 0, 8, &held));
    const int32_t *id = held.id.data, *target = held.target.data, *doc = held.doc.data;
    for (int t = 0; t < 119; t++) {
        CHECK_INT(id[t], 281 + t);
        CHECK_INT(target[t], 282 + t);
        CHECK_INT(doc[t], t / 16 == 1 && t >= 19 ? 3 : 0); /* document 1 begins at token 19 */
    }
    CHECK_INT(held.targets, 119);
    CHECK_INT(loader_held_documents(l, 0), 2);
    CHECK_INT(loader_held_document(l, 0, 0, &end), 0);
    CHECK_INT(end, 19);
    loader_close(l);
}

#define PLACE_TEST(name) cmocka_unit_test_setup_teardown(name, place_open, place_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(one_document_holds_out_its_end),
        PLACE_TEST(the_end_may_be_of_several_documents_and_of_empty_ones),
        PLACE_TEST(documents_that_the_hash_chooses_are_held_out_whole),
        PLACE_TEST(chats_are_held_out_in_whole_packs),
        PLACE_TEST(too_little_text_holds_out_nothing),
        PLACE_TEST(a_loader_reads_the_end_as_held_out_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
