/* Documents of parts: packed whole, with what is learned in their mask; batches with those targets. */
#include "corpus/prepare/prepare.h"
#include "corpus/shard/loader.h"
#include "corpus/shard/shard.h"
#include "corpus/tokenizer/tokenizer.h"
#include "harness/place.h"
#include "tokenizer/train.h"

enum { PACK = 32, VOCAB = 300 };

#define ASKED(text)  "{\"text\":\"Q" text ":\",\"learned\":false}"
#define ANSWER(text) "{\"text\":\"" text ";\",\"learned\":true}"
#define PARTS(...)   "{\"parts\":[" __VA_ARGS__ "]}"
#define PAIR(q, a)   PARTS(ASKED(q) "," ANSWER(a))

typedef struct Place {
    Arena arena;
    char folder[64], tokenizer[FILE_PATH_MAX], out[FILE_PATH_MAX], lines[FILE_PATH_MAX];
    const char *file;
    PrepareConfig config;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->tokenizer, p->folder, "tokenizer.json"));
    CHECK_OK(file_join(p->out, p->folder, "out"));
    CHECK_OK(file_join(p->lines, p->folder, "a.jsonl"));
    static const char text[] = "{\"text\":\"the cat sat on the mat and the rat on the hat\"}\n";
    CHECK_OK(file_write_whole(p->lines, text, sizeof text - 1));
    p->file = p->lines;
    CHECK_OK(tokenizer_train(
        &(TokenizerTraining){
            .files = &p->file, .n_files = 1, .vocab = 260, .out_path = p->tokenizer },
        &p->arena));
    p->config = (PrepareConfig){ .tokenizer = p->tokenizer,
                                 .out = p->out,
                                 .files = &p->file,
                                 .n_files = 1,
                                 .parts = true,
                                 .sequence = PACK,
                                 .documents.field = "text" };
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

static void prepare_lines(Place *p, const char *text, PrepareStats *stats)
{
    CHECK_OK(file_write_whole(p->lines, text, strlen(text)));
    CHECK_OK(prepare_run(&p->config, stats));
}

static void chats_are_packed_whole_and_their_answers_are_learned(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    Shard s = { 0 };
    /* letters are ids of one byte: Qxy:z; and the end are 6, a chat of 30 does not fit behind two */
    prepare_lines(p,
                  PAIR("xy", "z") "\n" PARTS(ASKED("v") "," ANSWER("w") "," ASKED("k")) "\n" PAIR(
                      "xxxxxxxxxxxxxxxxxxxxxxxx", "zz") "\n",
                  &stats);
    CHECK_INT(stats.documents, 3);
    CHECK_INT(stats.learned, 3 + 2 + 4);
    CHECK_OK(shard_open(&s, p->out));
    CHECK_INT(s.pack, PACK);
    CHECK_INT(s.documents, 2);
    CHECK_INT(s.tokens, 2 * PACK);
    CHECK_INT(s.sequences, 5); /* and the padding of both packs */
    static const char want[2 * PACK + 1] = "....zzz...zz...................."
                                           "..........................zzzz..";
    for (int64_t i = 0; i < s.tokens; i++) {
        /* the second chat is Qv:w;Qk: and an end that is not learned */
        CHECK_INT(shard_learns(&s, i), want[i] == 'z' || (want[i] == 'w'));
    }
    int64_t end = 0;
    CHECK_INT(shard_chat(&s, 8, &end), 7);
    CHECK_INT(end, 16);
    shard_close(&s);
}

/* A bad line is no document, so the same line again is bad, too. */
static void a_chat_that_came_before_is_not_encoded(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    p->config.dedup = true;
    p->config.documents.skip_bad = true;
    prepare_lines(p,
                  PAIR("xy", "z") "\n" PAIR("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "zz") "\n" PAIR(
                      "xy", "z") "\n" PAIR("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "zz") "\n",
                  &stats);
    CHECK_INT(stats.documents, 1);
    CHECK_INT(stats.encoded, 1);
    CHECK_INT(stats.duplicates, 1);
    CHECK_INT(stats.skipped, 2);
}

/* Rank 1 of 2 and the lone rank count the same targets; -1 is what the mask says; chats do not see each
 * other. */
static void batches_have_targets_where_answers_are(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    char lines[8192] = "";
    for (int i = 0; i < 40; i++) {
        size_t used = strlen(lines);
        snprintf(lines + used, sizeof lines - used, PAIR("%.*s", "%.*s") "\n", 1 + i % 7,
                 "xyxyxyxy", 1 + i % 3, "zzz");
    }
    prepare_lines(p, lines, &stats);
    LoaderSource source = { .name = "chats", .path = p->out };
    LoaderConfig c = { .sources = &source,
                       .n_sources = 1,
                       .sequence = PACK,
                       .batch = 4,
                       .own = 4,
                       .vocab = VOCAB,
                       .seed = 3,
                       .shuffle = true,
                       .validation = 0.2,
                       .depths = 1 };
    Loader *all = NULL, *half = NULL;
    const Batch *b = NULL, *h = NULL;
    CHECK_OK(loader_open(&c, &p->arena, &all));
    c.first = c.own = 2;
    CHECK_OK(loader_open(&c, &p->arena, &half));
    for (int step = 0; step < 5; step++) {
        int64_t targets = 0, next = 0;
        CHECK_OK(loader_next(all, &b));
        CHECK_OK(loader_next(half, &h));
        const int32_t *id = b->id.data, *target = b->target.data, *doc = b->doc.data;
        for (int64_t i = 0; i < 4 * PACK; i++) {
            int64_t t = i % PACK;
            targets += target[i] >= 0;
            CHECK(t > 0 || doc[i] == 0); /* a row starts with a pack */
            int32_t second = ((int32_t *)b->next[0].target.data)[i];
            bool same = t + 2 < PACK && doc[i + 2] <= t, learned = same && target[i + 1] >= 0;
            if (t + 2 < PACK) CHECK_INT(second, learned ? id[i + 2] : -1);
            next += second >= 0;
            bool starts = id[i] == 'Q' - '!' || doc[i] == t;
            CHECK(doc[i] == t || doc[i] == doc[i - 1]);
            CHECK(starts == (doc[i] == t));
            if (t + 1 == PACK) continue;
            CHECK(target[i] == -1 || target[i] == id[i + 1]);
            if (id[i] == ':' - '!') CHECK(target[i] == id[i + 1]);
            if (id[i + 1] == 'x' - '!' || id[i + 1] == ':' - '!') CHECK_INT(target[i], -1);
        }
        CHECK_INT(b->targets, targets);
        CHECK_INT(h->targets, targets);
        CHECK_INT(b->next[0].targets, next);
        CHECK_INT(h->next[0].targets, next);
        CHECK(targets > 10 && next > 5);
    }
    loader_close(all);
    loader_close(half);
    c = (LoaderConfig){
        .sources = &source, .n_sources = 1, .sequence = 48, .batch = 1, .vocab = VOCAB
    };
    CHECK_FAILS(loader_open(&c, &p->arena, &all), ERR_ARG, "packed for sequences of 32 tokens");
}

static void bad_lines_are_named_or_left_out(void **state)
{
    Place *p = *state;
    static const struct {
        const char *line, *want;
    } bad[] = {
        { "{\"text\":\"a\"}", "a.jsonl:2: no list \"parts\" with a part that is learned" },
        { PARTS(""), "a.jsonl:2: no list \"parts\"" },
        { PARTS(ASKED("a")), "a.jsonl:2: no list \"parts\"" },
        { PARTS("{\"text\":\"\",\"learned\":true}"), "a.jsonl:2: no list \"parts\"" },
        { PARTS(ANSWER("a") ",{\"learned\":true}"), "a.jsonl:2: part 2 has no text \"text\"" },
        { PARTS("{\"text\":\"a\",\"learned\":1}"), "part 1 has no true or false \"learned\"" },
        { PARTS(ANSWER("a") ",1"), "part 2 has no text" },
        { PAIR("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "b"),
          "a document of 43 tokens, --sequence has room for 32" },
        { "[1]", "a.jsonl:2: no JSON object" },
    };
    PrepareStats stats = { 0 };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, PAIR("a", "b") "\n%s\n", bad[i].line);
        CHECK_OK(file_write_whole(p->lines, text, strlen(text)));
        p->config.documents.skip_bad = false;
        CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT, bad[i].want);
        char left[FILE_PATH_MAX];
        CHECK_OK(file_join(left, p->folder, "out.bin"));
        CHECK(!file_exists(left));
    }
    p->config.documents.skip_bad = true;
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK_INT(stats.documents, 1);
    CHECK_INT(stats.skipped, 1);
}

/* A shard without a mask takes the place of one with it; a mask of other tokens is refused. */
static void a_mask_belongs_to_its_shard(void **state)
{
    Place *p = *state;
    Shard s = { 0 };
    PrepareStats stats = { 0 };
    char mask[FILE_PATH_MAX];
    CHECK_OK(file_join(mask, p->folder, "out.mask"));
    prepare_lines(p, "{\"text\":\"abc\",\"parts\":[" ASKED("a") "," ANSWER("b") "]}\n", &stats);
    CHECK(file_exists(mask));
    CHECK_OK(file_write_whole(mask, "SWMASK\0\0aaaaaaaaaaaaaaaa1234", 28));
    CHECK_FAILS(shard_open(&s, p->out), ERR_FORMAT, "out.mask has 28 bytes");
    CHECK_OK(file_write_whole(mask, "SWMASK\0\0aaaa", 12));
    CHECK_FAILS(shard_open(&s, p->out), ERR_FORMAT,
                "out.mask has 12 bytes, its header alone has 24");
    CHECK_OK(file_write_whole(mask, "SHMASK\0\0aaaaaaaaaaaaaaaa1234", 28));
    CHECK_FAILS(shard_open(&s, p->out), ERR_FORMAT, "it is no mask");
    p->config.parts = false;
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK(!file_exists(mask));
    CHECK_OK(shard_open(&s, p->out));
    CHECK(s.learned == NULL && shard_learns(&s, 0));
    shard_close(&s);
}

/* An empty part has no ids, and a text that ends with the end-of-text token has it once. */
static void a_document_ends_once(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    Shard s = { 0 };
    prepare_lines(p,
                  PARTS(ASKED("a") "," ANSWER("<|endoftext|>b<|endoftext|>")) "\n" PARTS(
                      ASKED("a") ",{\"text\":\"b<|endoftext|>\",\"learned\":true},"
                                 "{\"text\":\"\",\"learned\":false}") "\n",
                  &stats);
    CHECK_INT(stats.tokens, 3 + 4 + 1 + 3 + 2);
    CHECK_INT(stats.learned, 4 + 1 + 2);
    CHECK_OK(shard_open(&s, p->out));
    CHECK(shard_learns(&s, 12) && !shard_learns(&s, 13));
    shard_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(chats_are_packed_whole_and_their_answers_are_learned),
        PLACE_TEST(a_chat_that_came_before_is_not_encoded),
        PLACE_TEST(batches_have_targets_where_answers_are),
        PLACE_TEST(bad_lines_are_named_or_left_out),
        PLACE_TEST(a_mask_belongs_to_its_shard),
        PLACE_TEST(a_document_ends_once),
    };
    return TEST_RUN(tests);
}
