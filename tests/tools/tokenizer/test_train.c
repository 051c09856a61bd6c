/* Three witnesses: a text worked by hand, a trainer that counts everything anew at each step, and
 * the merges of Hugging Face's trainer (tests/golden/tokenizer/cases.json.zst). */
#include "corpus/tokenizer/tokenizer_private.h"
#include "harness/packed.h"
#include "harness/place.h"
#include "harness/texts.h"
#include "tokenizer/train.h"

#include "engine/base/rng.h"

#include <cjson/cJSON.h>

static const char GOLDEN[] = "tests/golden/tokenizer/cases.json.zst";

typedef struct Place {
    char folder[64];
    char text[FILE_PATH_MAX], lines[FILE_PATH_MAX], out[FILE_PATH_MAX];
    Arena arena;
    cJSON *learned; /* the file that training wrote */
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->text, p->folder, "text.txt"));
    CHECK_OK(file_join(p->lines, p->folder, "lines.jsonl"));
    CHECK_OK(file_join(p->out, p->folder, "tokenizer.json"));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    cJSON_Delete(p->learned);
    place_drop(p->folder, &p->arena);
    return 0;
}

static Status train(Place *p, const char *file, int32_t vocab)
{
    const char *const files[] = { file };
    return tokenizer_train(&(TokenizerTraining){ files, 1, vocab, p->out }, &p->arena);
}

/* What training wrote. */
static const char *written(Place *p)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(p->out, &p->arena, &text, &bytes));
    CHECK_INT(strlen(text), bytes);
    return text;
}

static void read_learned(Place *p)
{
    cJSON_Delete(p->learned);
    p->learned = cJSON_Parse(written(p));
    CHECK(p->learned != NULL);
}

static const cJSON *model_of(const cJSON *file, const char *key)
{
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(file, "model");
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(model, key);
    CHECK(item != NULL);
    return item;
}

static const char *merge_text(const Place *p, int at)
{
    const cJSON *merge = cJSON_GetArrayItem(model_of(p->learned, "merges"), at);
    CHECK(cJSON_IsString(merge));
    return merge->valuestring;
}

/* One piece, aaabdaaabac. Pairs: aa 4 (overlapping), ab 2, bd da ba ac 1: aa.
 * Then it is AA a b d AA a b a c: (a, b) and (AA, a) are both 2; a is the smaller left id: ab.
 * Then AA AB d AA AB a c: (AA, AB) 2, others 1. */
static void the_merges_of_a_small_text_are_those_worked_by_hand(void **state)
{
    Place *p = *state;
    write_text(p->text, "aaabdaaabac");
    CHECK_OK(train(p, p->text, 256 + 3 + 1));
    read_learned(p);
    CHECK_INT(cJSON_GetArraySize(model_of(p->learned, "merges")), 3);
    CHECK_TEXT(merge_text(p, 0), "a a");
    CHECK_TEXT(merge_text(p, 1), "a b");
    CHECK_TEXT(merge_text(p, 2), "aa ab");
}

/* Pairs that come equally often: (z, a), (b, z) and (b, a), in this order in the text. */
static void of_equally_frequent_pairs_the_smaller_ids_go_first(void **state)
{
    Place *p = *state;
    write_text(p->text, "za\nbz\nba\n");
    CHECK_OK(train(p, p->text, 256 + 3 + 1));
    read_learned(p);
    CHECK_TEXT(merge_text(p, 0), "b a");
    CHECK_TEXT(merge_text(p, 1), "b z");
    CHECK_TEXT(merge_text(p, 2), "z a");
}

static void merges_are_those_of_hugging_face(void **state)
{
    Place *p = *state;
    const Packed whole = packed_read(GOLDEN);
    cJSON *golden = cJSON_ParseWithLength(whole.text, whole.bytes);
    CHECK(golden != NULL);
    write_text(p->text, cJSON_GetObjectItem(golden, "training_text")->valuestring);
    CHECK_OK(train(p, p->text, cJSON_GetObjectItem(golden, "vocab")->valueint));
    read_learned(p);
    const cJSON *want = model_of(golden, "merges")->child;
    CHECK_INT(cJSON_GetArraySize(model_of(p->learned, "merges")),
              cJSON_GetArraySize(model_of(golden, "merges")));
    for (int i = 0; want != NULL; want = want->next, i++) {
        char both[128];
        (void)snprintf(both, sizeof both, "%s %s", want->child->valuestring,
                       want->child->next->valuestring);
        CHECK_TEXT(merge_text(p, i), both);
    }
    cJSON_Delete(golden);
}

/* ---- a trainer that counts anew ---- */

enum { WORDS = 40, WORD_MAX = 24, STEPS = 30 };

typedef struct PlainWord {
    char token[WORD_MAX][WORD_MAX + 1];
    int n;
} PlainWord;

static int plain_count(const PlainWord *w, const char *left, const char *right)
{
    int n = 0;
    for (int k = 0; k < WORDS; k++) {
        for (int i = 0; i + 1 < w[k].n; i++) {
            n += strcmp(w[k].token[i], left) == 0 && strcmp(w[k].token[i + 1], right) == 0;
        }
    }
    return n;
}

static void plain_merge(PlainWord *w, const char *left, const char *right)
{
    for (int i = 0; i + 1 < w->n; i++) {
        if (strcmp(w->token[i], left) != 0 || strcmp(w->token[i + 1], right) != 0) continue;
        size_t n = strlen(left);
        for (int c = 0; right[c] != '\0'; c++) w->token[i][n++] = right[c]; /* the rest is zero */
        w->n--;
        memmove(w->token[i + 1], w->token[i + 2], sizeof w->token[0] * (size_t)(w->n - i - 1));
    }
}

/* The learned merge must be as frequent as any pair, and before those that are as frequent. Ids
 * are those of the written vocabulary. */
static void check_is_best(const Place *p, const PlainWord *w, const char *left, const char *right)
{
    const cJSON *vocab = model_of(p->learned, "vocab");
    int count = plain_count(w, left, right);
    int left_id = cJSON_GetObjectItemCaseSensitive(vocab, left)->valueint;
    int right_id = cJSON_GetObjectItemCaseSensitive(vocab, right)->valueint;
    for (int k = 0; k < WORDS; k++) {
        for (int i = 0; i + 1 < w[k].n; i++) {
            const char *a = w[k].token[i], *b = w[k].token[i + 1];
            int other = plain_count(w, a, b);
            int a_id = cJSON_GetObjectItemCaseSensitive(vocab, a)->valueint;
            int b_id = cJSON_GetObjectItemCaseSensitive(vocab, b)->valueint;
            bool before = a_id < left_id || (a_id == left_id && b_id < right_id);
            if (other > count || (other == count && before)) {
                fail_msg("\"%s %s\" comes %d times, \"%s %s\" %d", left, right, count, a, b, other);
            }
        }
    }
}

/* Words of few letters, so that pairs overlap and tie a lot; each is a line. */
static void every_merge_is_the_most_frequent_pair_counted_anew(void **state)
{
    Place *p = *state;
    static PlainWord word[WORDS];
    char text[WORDS * (WORD_MAX + 2)] = { 0 };
    size_t at = 0;
    memset(word, 0, sizeof word);
    for (uint64_t k = 0; k < WORDS; k++) {
        word[k].n = 1 + (int)rng_below(31, k, 0, WORD_MAX - 1);
        for (uint64_t i = 0; i < (uint64_t)word[k].n; i++) {
            char c = "abc"[rng_below(32, k, i, 3) * rng_below(33, k, i, 2)];
            word[k].token[i][0] = c;
            text[at++] = c;
        }
        text[at++] = '\n';
    }
    write_text(p->text, text);
    CHECK_OK(train(p, p->text, 256 + STEPS + 1));
    read_learned(p);
    for (int m = 0; m < STEPS; m++) {
        char left[64], *right = NULL;
        (void)snprintf(left, sizeof left, "%s", merge_text(p, m));
        right = strchr(left, ' ');
        CHECK(right != NULL);
        *right++ = '\0';
        check_is_best(p, word, left, right);
        for (int k = 0; k < WORDS; k++) plain_merge(&word[k], left, right);
    }
}

/* ---- files ---- */

static void what_is_written_can_be_loaded_and_has_the_size_asked_for(void **state)
{
    Place *p = *state;
    Tokenizer *t = NULL;
    int32_t *ids = NULL;
    int64_t n = 0;
    write_text(p->text, "low lower lowest \"quoted\\\" na\xC3\xAFve \x01\xFF\n");
    CHECK_OK(train(p, p->text, 264));
    CHECK_OK(tokenizer_load(p->out, &p->arena, &t));
    CHECK_INT(tokenizer_vocab(t), 264);
    CHECK_INT(tokenizer_end_of_text(t), 263);
    CHECK_OK(tokenizer_encode(t, "low", 3, &p->arena, &ids, &n));
    CHECK_INT(n, 1); /* (l, o) and (lo, w) come three times: both are learned */
    CHECK(ids[0] >= 256 && ids[0] < 263);
    tokenizer_free(t);
}

static void training_twice_writes_the_same_bytes(void **state)
{
    Place *p = *state;
    write_text(p->text, "the cat sat on the mat and the bat sat on the hat, that is that\n");
    CHECK_OK(train(p, p->text, 275));
    const char *first = written(p);
    CHECK_OK(train(p, p->text, 275));
    CHECK_TEXT(written(p), first);
}

static void json_lines_teach_what_their_texts_teach(void **state)
{
    Place *p = *state;
    write_text(p->text, "the cat\nsat \xE4\xB8\x96 there\nthe mat");
    write_text(p->lines,
               "{\"text\": \"the cat\\n\", \"id\": 1}\n\n{\"text\": \"sat \\u4e16 there\\n\"}\r\n"
               "{\"text\": \"the mat\"}");
    CHECK_OK(train(p, p->text, 266));
    const char *from_text = written(p);
    CHECK_OK(train(p, p->lines, 266));
    CHECK_TEXT(written(p), from_text);
}

static void the_order_of_files_does_not_matter(void **state)
{
    Place *p = *state;
    write_text(p->text, "over the moon and under the sun, under and over\n");
    write_text(p->lines, "{\"text\": \"another moon over another sun\\n\"}\n");
    const char *const one[] = { p->text, p->lines }, *const other[] = { p->lines, p->text };
    CHECK_OK(tokenizer_train(&(TokenizerTraining){ one, 2, 280, p->out }, &p->arena));
    const char *first = written(p);
    CHECK_OK(tokenizer_train(&(TokenizerTraining){ other, 2, 280, p->out }, &p->arena));
    CHECK_TEXT(written(p), first);
}

static void training_leaves_the_arena_as_it_was(void **state)
{
    Place *p = *state;
    write_text(p->text, "the cat sat on the mat\n");
    size_t before = p->arena.used_bytes;
    CHECK_OK(train(p, p->text, 262));
    CHECK_INT(p->arena.used_bytes, before);
}

/* ---- errors ---- */

static void a_broken_line_is_an_error_with_its_number(void **state)
{
    Place *p = *state;
    write_text(p->lines, "{\"text\": \"one\"}\n\n{\"text\": \"two}\n");
    CHECK_FAILS(train(p, p->lines, 260), ERR_FORMAT, "lines.jsonl:3: ");
    write_text(p->lines, "{\"text\": \"one\"}\n{\"content\": \"two\"}\n");
    CHECK_FAILS(train(p, p->lines, 260), ERR_FORMAT, "lines.jsonl:2: ");
    CHECK(!file_exists(p->out));
}

static void a_text_with_too_few_pairs_is_an_error_with_both_sizes(void **state)
{
    Place *p = *state;
    write_text(p->text, "abcd"); /* three merges, whatever their order */
    CHECK_FAILS(train(p, p->text, 300), ERR_ARG, "at most 260, fewer than the 300 wanted");
    CHECK(!file_exists(p->out));
    CHECK_OK(train(p, p->text, 260));
    write_text(p->text, "");
    CHECK_FAILS(train(p, p->text, 258), ERR_ARG, "at most 257, fewer than the 258 wanted");
    CHECK_OK(train(p, p->text, 257));
}

static void a_vocabulary_out_of_range_is_an_error(void **state)
{
    Place *p = *state;
    write_text(p->text, "abcd");
    CHECK_FAILS(train(p, p->text, 256), ERR_ARG, "a vocabulary of 256; it can be 257 to");
    CHECK_FAILS(train(p, p->text, -1), ERR_ARG, "a vocabulary of -1");
    CHECK_FAILS(train(p, p->text, INT32_MAX), ERR_ARG, "a vocabulary of 2147483647");
}

static void files_that_cannot_be_read_or_written_are_named(void **state)
{
    Place *p = *state;
    CHECK_FAILS(train(p, "no/such/text.txt", 258), ERR_IO, "no/such/text.txt");
    write_text(p->text, "abcd");
    const char *const files[] = { p->text };
    TokenizerTraining t = { files, 1, 258, "no/such/folder/tokenizer.json" };
    CHECK_FAILS(tokenizer_train(&t, &p->arena), ERR_DISK, "no/such/folder/tokenizer.json");
}

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

static void every_failing_allocation_is_an_error_and_writes_nothing(void **state)
{
    Place *p = *state;
    write_text(p->text, "the cat sat on the mat\n");
    Status s = ERR_MEMORY;
    for (long nth = 0; s != OK; nth++) {
        CHECK(nth < 1000);
        arena_fail_countdown = nth;
        s = train(p, p->text, 262);
        arena_fail_countdown = -1;
        if (s != OK) CHECK(s == ERR_MEMORY && !file_exists(p->out));
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(the_merges_of_a_small_text_are_those_worked_by_hand),
        PLACE_TEST(of_equally_frequent_pairs_the_smaller_ids_go_first),
        PLACE_TEST(merges_are_those_of_hugging_face),
        PLACE_TEST(every_merge_is_the_most_frequent_pair_counted_anew),
        PLACE_TEST(what_is_written_can_be_loaded_and_has_the_size_asked_for),
        PLACE_TEST(training_twice_writes_the_same_bytes),
        PLACE_TEST(json_lines_teach_what_their_texts_teach),
        PLACE_TEST(the_order_of_files_does_not_matter),
        PLACE_TEST(training_leaves_the_arena_as_it_was),
        PLACE_TEST(a_broken_line_is_an_error_with_its_number),
        PLACE_TEST(a_text_with_too_few_pairs_is_an_error_with_both_sizes),
        PLACE_TEST(a_vocabulary_out_of_range_is_an_error),
        PLACE_TEST(files_that_cannot_be_read_or_written_are_named),
#ifdef ARENA_FAIL_NTH
        PLACE_TEST(every_failing_allocation_is_an_error_and_writes_nothing),
#endif
    };
    return TEST_RUN(tests);
}
