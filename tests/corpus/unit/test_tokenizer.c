/* The witness of the ids is Hugging Face's library: tests/golden/tokenizer/cases.json.zst, made by
 * tools/make_tokenizer_golden.py. Long pieces, which take another way through the code, are held
 * against a plain search for the lowest pair; broken files are made from a good one. */
#include "corpus/tokenizer/tokenizer_private.h"
#include "harness/packed.h"
#include "harness/place.h"

#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

static const char GOLDEN[] = "tests/golden/tokenizer/cases.json.zst";
static const char DEEPSEEK[] = "../shared/vocab/deepseek-v3.tokenizer.json";

typedef struct Bench {
    Arena arena;
    Tokenizer *t;
    cJSON *golden;
} Bench;

static int place_open(void **state)
{
    static Bench bench;
    Bench *b = *state = &bench;
    *b = (Bench){ 0 };
    CHECK_OK(arena_init(&b->arena, "test", MEM_HOST, (size_t)1 << 30));
    return 0;
}

static int place_close(void **state)
{
    Bench *b = *state;
    tokenizer_free(b->t);
    cJSON_Delete(b->golden);
    arena_free(&b->arena);
    return 0;
}

static void read_golden(Bench *b)
{
    const Packed golden = packed_read(GOLDEN);
    b->golden = cJSON_ParseWithLength(golden.text, golden.bytes);
    CHECK(b->golden != NULL);
}

static const cJSON *find(const cJSON *o, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(o, key);
}

static const cJSON *get(const cJSON *o, const char *key)
{
    const cJSON *item = find(o, key);
    if (item == NULL) fail_msg("the golden file has no %s", key);
    return item;
}

/* The tokenizer of a golden model with one of its pipelines and what else the pipeline names. */
static void load_pipeline(Bench *b, const cJSON *pipeline)
{
    static const char *const PARTS[] = { "normalizer", "pre_tokenizer", "added_tokens" };
    const cJSON *name = find(pipeline, "model");
    cJSON *file = cJSON_CreateObject();
    cJSON *model =
        cJSON_Duplicate(get(b->golden, name == NULL ? "model" : name->valuestring), true);
    cJSON_DeleteItemFromObject(model, "ignore_merges");
    cJSON_AddItemToObject(model, "ignore_merges",
                          cJSON_CreateBool(cJSON_IsTrue(find(pipeline, "ignore_merges"))));
    cJSON_AddItemToObject(file, "model", model);
    for (int i = 0; i < 3; i++) {
        if (find(pipeline, PARTS[i]) != NULL)
            cJSON_AddItemToObject(file, PARTS[i], cJSON_Duplicate(find(pipeline, PARTS[i]), true));
    }
    char *text = cJSON_PrintUnformatted(file);
    tokenizer_free(b->t);
    b->t = NULL;
    CHECK_OK(tokenizer_parse("golden", text, strlen(text), &b->arena, &b->t));
    cJSON_free(text);
    cJSON_Delete(file);
}

static const cJSON *pipeline_named(const Bench *b, const char *list, const char *name)
{
    const cJSON *each = NULL;
    cJSON_ArrayForEach(each, get(b->golden, list))
    {
        if (strcmp(get(each, "name")->valuestring, name) == 0) return each;
    }
    fail_msg("no pipeline %s", name);
    return NULL;
}

static void load_gpt2(Bench *b)
{
    read_golden(b);
    load_pipeline(b, pipeline_named(b, "pipelines", "gpt2"));
}

static void check_ids(const Bench *b, Arena *a, const char *text, const cJSON *want,
                      const char *name)
{
    int32_t *ids = NULL;
    int64_t n = 0, at = 0;
    const cJSON *each = NULL;
    CHECK_OK(tokenizer_encode(b->t, text, strlen(text), a, &ids, &n));
    cJSON_ArrayForEach(each, want)
    {
        if (at < n && ids[at] != each->valueint) {
            fail_msg("%s: id %lld of \"%s\" is %d, want %d", name, (long long)at, text, ids[at],
                     each->valueint);
        }
        at++;
    }
    if (at != n) {
        fail_msg("%s: \"%s\" has %lld ids, want %lld", name, text, (long long)n, (long long)at);
    }
}

static void check_texts(Bench *b, const cJSON *texts, const cJSON *ids, const char *name)
{
    const cJSON *text = texts->child, *want = ids->child;
    CHECK_INT(cJSON_GetArraySize(texts), cJSON_GetArraySize(ids));
    for (; text != NULL; text = text->next, want = want->next) {
        check_ids(b, &b->arena, text->valuestring, want, name);
    }
}

/* The bytes of the ids must be the text. */
static void check_decodes_to(const Tokenizer *t, const int32_t *ids, int64_t n_ids,
                             const char *text, size_t n)
{
    size_t at = 0;
    for (int64_t i = 0; i < n_ids; i++) {
        const char *bytes = NULL;
        int32_t n_bytes = 0;
        tokenizer_bytes(t, ids[i], &bytes, &n_bytes);
        CHECK(at + (size_t)n_bytes <= n);
        if (memcmp(text + at, bytes, (size_t)n_bytes) != 0) {
            fail_msg("id %lld, %d, is not the text from byte %zu", (long long)i, ids[i], at);
        }
        at += (size_t)n_bytes;
    }
    CHECK_INT(at, n);
}

/* The text must come back from its ids. */
static void check_decoded(Bench *b, const char *text, size_t n)
{
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    Text back;
    ArenaMark mark = arena_mark(&b->arena);
    CHECK_OK(tokenizer_encode(b->t, text, n, &b->arena, &ids, &n_ids));
    CHECK_OK(text_init(&back, &b->arena));
    CHECK_OK(text_append(&back, "", 0));
    CHECK_OK(tokenizer_decode(b->t, ids, n_ids, &back));
    CHECK_INT(back.used, n);
    CHECK(memcmp(back.data, text, n) == 0);
    arena_release(&b->arena, mark);
}

/* ---- ids ---- */

/* Every pipeline of a list encodes its own texts, or those that all share, to the golden's ids.
 * Returns how many there are. */
static int check_pipelines(Bench *b, const char *list)
{
    read_golden(b);
    const cJSON *each = NULL, *shared = cJSON_GetObjectItemCaseSensitive(b->golden, "texts");
    int n = 0;
    cJSON_ArrayForEach(each, get(b->golden, list))
    {
        const cJSON *own = cJSON_GetObjectItemCaseSensitive(each, "texts");
        load_pipeline(b, each);
        check_texts(b, own != NULL ? own : shared, get(each, "ids"),
                    get(each, "name")->valuestring);
        n++;
    }
    return n;
}

static void ids_are_those_of_hugging_face_for_every_pipeline(void **state)
{
    CHECK(check_pipelines(*state, "pipelines") >= 16);
}

static void forms_of_unicode_are_those_of_hugging_face(void **state)
{
    CHECK_INT(check_pipelines(*state, "forms"), 4);
}

static void vocabularies_of_characters_are_those_of_hugging_face(void **state)
{
    CHECK_INT(check_pipelines(*state, "characters"), 14);
}

/* With flags, next to each other, inside words, in white space, as part of one another. */
static void added_tokens_in_a_text_are_those_of_hugging_face(void **state)
{
    CHECK_INT(check_pipelines(*state, "added"), 5);
}

static void skip_without(const char *path)
{
    if (file_exists(path)) return;
    printf("skip: %s is not there\n", path);
    skip();
}

static void ids_of_deepseek_v3_are_those_of_hugging_face(void **state)
{
    Bench *b = *state;
    skip_without(DEEPSEEK);
    read_golden(b);
    CHECK_OK(tokenizer_load(DEEPSEEK, &b->arena, &b->t));
    check_texts(b, get(b->golden, "texts"), get(b->golden, "deepseek_v3"), "deepseek-v3");
    const cJSON *roles = get(b->golden, "deepseek_v3_roles");
    check_texts(b, get(roles, "texts"), get(roles, "ids"), "deepseek-v3's roles");
    CHECK_INT(tokenizer_vocab(b->t), 128815);
    CHECK_INT(tokenizer_end_of_text(b->t), 1);
    const char *bytes = NULL;
    int32_t n = 0;
    tokenizer_bytes(b->t, 128803, &bytes, &n); /* added, not special: stands for its text */
    CHECK_INT(n, 12);
    CHECK(memcmp(bytes, "<\uFF5CUser\uFF5C>", 12) == 0);
}

static const MergeSlot *merge_of(const Tokenizer *t, int32_t left, int32_t right)
{
    for (uint64_t i = 0; i <= t->merge_mask; i++) {
        if (t->merge[i].left == left && t->merge[i].right == right) return &t->merge[i];
    }
    return NULL;
}

/* Merge the leftmost pair of the lowest rank; false if none has a merge. */
static bool merge_once(const Tokenizer *t, int32_t *id, int32_t *n)
{
    const MergeSlot *best = NULL;
    int32_t at = 0;
    for (int32_t i = 0; i + 1 < *n; i++) {
        const MergeSlot *m = merge_of(t, id[i], id[i + 1]);
        if (m == NULL || (best != NULL && best->rank <= m->rank)) continue;
        best = m;
        at = i;
    }
    if (best == NULL) return false;
    id[at] = best->result;
    for (int32_t i = at + 2; i < *n; i++) id[i - 1] = id[i];
    --*n;
    return true;
}

/* Lengths around the change from the short to the long way of merging, and far past it. */
static void merging_takes_the_lowest_pair_first_however_long_the_piece(void **state)
{
    Bench *b = *state;
    static const int32_t LENGTHS[] = { 1, 2, 3, 4, 5, 47, 48, 49, 50, 97, 499 };
    read_golden(b);
    load_pipeline(b, pipeline_named(b, "pipelines", "no cuts"));
    for (size_t l = 0; l < sizeof LENGTHS / sizeof LENGTHS[0]; l++) {
        char text[512];
        int32_t want[512], n = LENGTHS[l], *ids = NULL;
        int64_t n_ids = 0;
        for (int32_t i = 0; i < n; i++) {
            text[i] = "aeorntl s"[rng_below(3, (uint64_t)n, (uint64_t)i, 9)];
            want[i] = tokenizer_find(b->t, text + i, 1);
        }
        CHECK_OK(tokenizer_encode(b->t, text, (size_t)n, &b->arena, &ids, &n_ids));
        while (merge_once(b->t, want, &n)) continue;
        CHECK_INT(n_ids, n);
        for (int32_t i = 0; i < n; i++) CHECK_INT(ids[i], want[i]);
    }
}

static void random_bytes_come_back_from_their_ids(void **state)
{
    Bench *b = *state;
    load_gpt2(b);
    for (uint64_t round = 0; round < 200; round++) {
        char text[700];
        size_t n = rng_below(11, 0, round, sizeof text);
        for (size_t i = 0; i < n; i++) text[i] = (char)rng_u32(12, round, i);
        int32_t *ids = NULL;
        int64_t n_ids = 0;
        CHECK_OK(tokenizer_encode(b->t, text, n, &b->arena, &ids, &n_ids));
        check_decodes_to(b->t, ids, n_ids, text, n);
    }
}

/* In a vocabulary of characters each such byte is its token, and merges go on behind it. The space that
 * is put before a text is taken away again. */
static void any_bytes_come_back_from_a_vocabulary_of_characters(void **state)
{
    static const char *const NAMES[] = { "llama 2", "no signs", "metaspace never True" };
    Bench *b = *state;
    read_golden(b);
    for (int i = 0; i < 3; i++) {
        load_pipeline(b, pipeline_named(b, "characters", NAMES[i]));
        for (uint64_t round = 0; round < 100; round++) {
            char text[200];
            size_t n = rng_below(13, 0, round, sizeof text);
            for (size_t k = 0; k < n; k++)
                text[k] = (char)(round < 50 ? (int)rng_u32(14, round, k)
                                            : " of\xFF\xE4\xB8\x96\n"[rng_below(15, round, k, 8)]);
            check_decoded(b, text, n);
        }
    }
    load_pipeline(b, pipeline_named(b, "characters", "llama 2"));
    int32_t *ids = NULL, *behind = NULL;
    int64_t n = 0, n_behind = 0;
    CHECK_OK(tokenizer_encode(b->t, "\xFF of the", 8, &b->arena, &ids, &n));
    CHECK_OK(tokenizer_encode(b->t, "of the", 6, &b->arena, &behind, &n_behind));
    CHECK_INT(n, 2 + n_behind); /* the sign, the byte */
    CHECK_INT(ids[1], b->t->byte_id[0xFF]);
    CHECK(memcmp(ids + 2, behind, (size_t)n_behind * sizeof *ids) == 0);
}

/* A repeated piece is copied from before: many pieces, so that entries of the table are replaced
 * and found again. */
static void a_piece_has_the_same_ids_wherever_it_stands(void **state)
{
    Bench *b = *state;
    load_gpt2(b);
    Text text;
    int32_t *want = NULL, *ids = NULL, *one = NULL;
    int64_t n_want = 0, n = 0, n_one = 0;
    Arena other = { 0 };
    TokenizerCache *cache = NULL;
    CHECK_OK(arena_init(&other, "text", MEM_HOST, 1 << 23));
    CHECK_OK(text_init(&text, &other));
    void *at = NULL;
    CHECK_OK(arena_alloc(&b->arena, sizeof(int32_t) << 20, &at));
    want = at;
    for (uint64_t i = 0; i < 20000; i++) {
        char word[48];
        int length =
            snprintf(word, sizeof word, i % 9 == 0 ? " w%032llu" : " w%llux",
                     (unsigned long long)rng_below(21, 0, i, 3000)); /* some are too long for it */
        CHECK_OK(text_append(&text, word, (size_t)length));
        ArenaMark mark = arena_mark(&b->arena);
        CHECK_OK(tokenizer_encode(b->t, word, (size_t)length, &b->arena, &one, &n_one));
        for (int64_t k = 0; k < n_one; k++) want[n_want++] = one[k];
        arena_release(&b->arena, mark);
    }
    for (int round = 0; round < 3;
         round++) { /* without a cache, with an empty one, with a full one */
        if (round == 1) CHECK_OK(tokenizer_cache_make(&other, &cache));
        CHECK_OK(tokenizer_encode_cached(b->t, cache, text.data, text.used, &b->arena, &ids, &n));
        CHECK_INT(n, n_want);
        CHECK(memcmp(ids, want, (size_t)n * sizeof *ids) == 0);
    }
    arena_free(&other);
}

static void encoding_keeps_only_the_ids_in_the_arena(void **state)
{
    Bench *b = *state;
    static const char TEXT[] = "The trains, they're sorted; the cars' order isn't lost, is it?";
    read_golden(b);
    load_pipeline(b, pipeline_named(b, "pipelines", "gpt2 with a space before"));
    size_t before = b->arena.used_bytes;
    int32_t *ids = NULL;
    int64_t n = 0;
    CHECK_OK(tokenizer_encode(b->t, TEXT, sizeof TEXT - 1, &b->arena, &ids, &n));
    CHECK_INT(b->arena.used_bytes - before, arena_rounded((size_t)n * sizeof *ids));
}

static void a_full_arena_is_an_error_and_keeps_nothing(void **state)
{
    Bench *b = *state;
    load_gpt2(b);
    Arena small = { 0 };
    CHECK_OK(arena_init(&small, "small", MEM_HOST, 1 << 11));
    int32_t *ids = NULL;
    int64_t n = 0;
    static char text[600];
    memset(text, 'a', sizeof text);
    CHECK_FAILS(tokenizer_encode(b->t, text, sizeof text, &small, &ids, &n), ERR_MEMORY, "small");
    CHECK_INT(small.used_bytes, 0);
    arena_free(&small);
}

/* ---- files ---- */

static const char FILE_HEAD[] =
    "{\"version\": \"1.0\", \"added_tokens\": ["
    "{\"id\": 260, \"content\": \"<|endoftext|>\", \"special\": true},"
    "{\"id\": 262, \"content\": \"<think>\", \"special\": false}],"
    "\"normalizer\": null,"
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false},"
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"vocab\": {";
static const char FILE_TAIL[] =
    "\"he\": 256, \"ll\": 257, \"hell\": 258, \"hello\": 259, \"<|endoftext|>\": 260},"
    "\"merges\": [\"h e\", \"l l\", [\"he\", \"ll\"], \"hell o\"]}}";

/* A good file: the bytes by their value, a few merges, an id (261) without a token. */
static void good_file(Text *out, Arena *a)
{
    CHECK_OK(text_init(out, a));
    CHECK_OK(text_append(out, FILE_HEAD, sizeof FILE_HEAD - 1));
    for (int b = 0; b < 256; b++) {
        int32_t c = tokenizer_code_point((uint8_t)b);
        CHECK_OK(text_printf(out, "\"\\u%04x\": %d, ", (unsigned)c, b));
    }
    CHECK_OK(text_append(out, FILE_TAIL, sizeof FILE_TAIL - 1));
}

/* The good file with the first `from` replaced by `to`. */
static void changed_file(Text *out, const char *from, const char *to, Arena *a)
{
    Text good;
    good_file(&good, a);
    const char *at = strstr(good.data, from);
    if (at == NULL) fail_msg("the good file has no %s", from);
    CHECK_OK(text_init(out, a));
    CHECK_OK(text_append(out, good.data, (size_t)(at - good.data)));
    CHECK_OK(text_append(out, to, strlen(to)));
    CHECK_OK(text_append(out, at + strlen(from), strlen(at + strlen(from))));
}

static void the_good_file_is_read(void **state)
{
    Bench *b = *state;
    Text file;
    good_file(&file, &b->arena);
    CHECK_OK(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t));
    int32_t *ids = NULL;
    int64_t n = 0;
    CHECK_OK(tokenizer_encode(b->t, "hellohe!", 8, &b->arena, &ids, &n));
    CHECK_INT(n, 2 + 1);
    CHECK_INT(ids[0], 259);
    CHECK_INT(ids[1], 256);
    CHECK_INT(ids[2], '!');
}

static void special_tokens_are_found_in_a_text_and_stand_for_none(void **state)
{
    Bench *b = *state;
    static const char TEXT[] = "a<|endoftext|><think>b<|endoftext>";
    Text file;
    good_file(&file, &b->arena);
    CHECK_OK(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t));
    CHECK_INT(tokenizer_end_of_text(b->t), 260);
    const char *bytes = NULL;
    int32_t n_bytes = -1, *ids = NULL;
    tokenizer_bytes(b->t, 260, &bytes, &n_bytes);
    CHECK_INT(n_bytes, 0);
    tokenizer_bytes(b->t, 262, &bytes, &n_bytes); /* added, but not special */
    CHECK_INT(n_bytes, 7);
    CHECK(memcmp(bytes, "<think>", 7) == 0);
    int64_t n = 0;
    CHECK_OK(tokenizer_encode(b->t, TEXT, sizeof TEXT - 1, &b->arena, &ids, &n));
    CHECK(n > 4 && ids[0] == 'a' && ids[1] == 260 && ids[2] == 262 && ids[3] == 'b');
    check_decodes_to(b->t, ids, n, "a<think>b<|endoftext>", 21);
}

/* Hugging Face's `tokenizers` reads such a merge as any other one. */
static void a_merge_may_spell_an_added_token(void **state)
{
    Bench *b = *state;
    Text file;
    changed_file(&file, "\"<|endoftext|>\": 260},\"merges\": [",
                 "\"|>\": 263, \"<|endoftext|>\": 260, \"<|endoftext|>a\": 264},\"merges\": ["
                 "\"<|endoftext |>\", \"<|endoftext|> a\", ",
                 &b->arena);
    CHECK_FAILS(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t), ERR_FORMAT,
                "names \"<|endoftext\", which is no token");
    changed_file(
        &file, "\"<|endoftext|>\": 260},\"merges\": [",
        "\"<|endoftext\": 265, \"|>\": 263, \"<|endoftext|>\": 260, \"<|endoftext|>a\": 264},"
        "\"merges\": [\"<|endoftext |>\", \"<|endoftext|> a\", ",
        &b->arena);
    CHECK_OK(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t));
    int32_t *ids = NULL, n_bytes = -1;
    int64_t n = 0;
    const char *bytes = NULL;
    CHECK_OK(tokenizer_encode(b->t, "<|endoftext|>a", 14, &b->arena, &ids, &n));
    CHECK(n == 2 && ids[0] == 260 && ids[1] == 'a');
    tokenizer_bytes(b->t, 260, &bytes, &n_bytes);
    CHECK_INT(n_bytes, 0);
}

/* Ids of `tokenizers`: "he" is an added token as a word alone, and merges make it elsewhere. */
static void merges_make_a_special_token_within_a_word(void **state)
{
    static const int32_t WANT[] = { 256, ' ', 259, ' ', 256, ' ', 't', 256, 258, 256, '.' };
    Bench *b = *state;
    Text file;
    changed_file(&file, "\"id\": 262, \"content\": \"<think>\", \"special\": false",
                 "\"id\": 256, \"content\": \"he\", \"special\": true, \"single_word\": true",
                 &b->arena);
    CHECK_OK(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t));
    int32_t *ids = NULL;
    int64_t n = 0;
    CHECK_OK(tokenizer_encode(b->t, "he hello he thehellhe.", 22, &b->arena, &ids, &n));
    CHECK_INT(n, (int64_t)(sizeof WANT / sizeof *WANT));
    for (int64_t i = 0; i < n; i++) CHECK_INT(ids[i], WANT[i]);
}

static void ids_without_a_token_stand_for_no_bytes(void **state)
{
    Bench *b = *state;
    static const int32_t NOT_THERE[] = { 261, 263, -1, INT32_MAX, INT32_MIN };
    Text file;
    good_file(&file, &b->arena);
    CHECK_OK(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t));
    CHECK_INT(tokenizer_vocab(b->t), 263);
    for (int i = 0; i < 5; i++) {
        const char *bytes = NULL;
        int32_t n = -1;
        tokenizer_bytes(b->t, NOT_THERE[i], &bytes, &n);
        CHECK_INT(n, 0);
        CHECK(bytes != NULL);
    }
}

/* Token bytes and code points are one to one, with the characters that GPT-2 uses. */
static void every_byte_has_its_own_character(void **state)
{
    (void)state;
    bool seen[TOKENIZER_ALPHABET] = { 0 };
    for (int b = 0; b < 256; b++) {
        int32_t c = tokenizer_code_point((uint8_t)b);
        CHECK(c > ' ' && c < TOKENIZER_ALPHABET && !seen[c]);
        seen[c] = true;
        CHECK_INT(tokenizer_byte((uint32_t)c), b);
    }
    CHECK_INT(tokenizer_code_point(' '), 0x120);
    CHECK_INT(tokenizer_code_point('\n'), 0x10A);
    CHECK_INT(tokenizer_code_point(0xAD), 0x143);
    CHECK_INT(tokenizer_byte(' '), -1);
    CHECK_INT(tokenizer_byte(TOKENIZER_ALPHABET), -1);
}

typedef struct Breakage {
    const char *from, *to;
    Status code;
    const char *says;
} Breakage;

static const Breakage BROKEN[] = {
    { "\"version\"", "version", ERR_FORMAT, "broken JSON at byte " },
    { "\"version\": \"1.0\"", "\"version\": \"2.0\"", ERR_UNSUPPORTED, "another version than 1.0" },
    { "\"version\": \"1.0\"", "\"version\": 1.0", ERR_UNSUPPORTED, "another version than 1.0" },
    { "\"model\":", "\"modell\":", ERR_FORMAT, "has no model" },
    { "\"BPE\"", "\"Unigram\"", ERR_UNSUPPORTED, "model of type \"Unigram\"" },
    { "\"BPE\"", "7", ERR_UNSUPPORTED, "model of type \"\"" },
    { "\"dropout\": null", "\"dropout\": 0.1", ERR_UNSUPPORTED, "model.dropout is 0.1" },
    { "\"dropout\": null", "\"end_of_word_suffix\": \"</w>\"", ERR_UNSUPPORTED,
      "model.end_of_word_suffix" },
    { "\"vocab\": {", "\"words\": {", ERR_FORMAT, "model.vocab is not an object" },
    { "\"merges\": [", "\"pairs\": [", ERR_FORMAT, "model.merges is not a list" },
    { "\"added_tokens\": [", "\"added_tokens\": 7, \"x\": [", ERR_FORMAT,
      "added_tokens is not a list" },
    { "\"hello\": 259", "\"hello\": 258", ERR_FORMAT, "model.vocab gives id 258 twice" },
    { "\"<think>\"", "\"<|endoftext|>\"", ERR_FORMAT, "added_tokens has \"<|endoftext|>\" twice" },
    { "\"<think>\"", "\"hell\"", ERR_FORMAT, "\"hell\" is id 258 in model.vocab and 262 in" },
    { "\"hello\": 259", "\"hell\": 259", ERR_FORMAT, "has the token \"hell\" twice" },
    { "\"hello\": 259", "\"hello\": -1", ERR_FORMAT, "the id of token \"hello\"" },
    { "\"hello\": 259", "\"hello\": 1.5", ERR_FORMAT, "the id of token \"hello\"" },
    { "\"hello\": 259", "\"hello\": 16777216", ERR_FORMAT, "a whole number from 0 to 16777215" },
    { "\"hello\": 259", "\"hello\": \"259\"", ERR_FORMAT, "the id of token \"hello\"" },
    { "\"hello\": 259", "\"help\": 259", ERR_FORMAT, "model.merges[3] joins ids 258 and 111" },
    { "\"id\": 260", "\"id\": 259", ERR_FORMAT, "id 259 is \"hello\" in model.vocab and" },
    { "\"id\": 262", "\"id\": 260", ERR_FORMAT, "added_tokens gives id 260 twice" },
    { "\"id\": 262", "\"ident\": 262", ERR_FORMAT, "the id of token \"<think>\"" },
    { "\"content\": \"<think>\"", "\"text\": \"<think>\"", ERR_FORMAT, "has no content" },
    { "\"\\u0041\": 65, ", "", ERR_UNSUPPORTED, "no token for the byte 65" },
    { "\"h e\"", "\"h q e\"", ERR_FORMAT, "model.merges[0] is not two tokens" },
    { "\"h e\"", "\"he\"", ERR_FORMAT, "model.merges[0] is not two tokens" },
    { "\"h e\"", "[\"h\", 3]", ERR_FORMAT, "model.merges[0] is not two tokens" },
    { "\"h e\"", "null", ERR_FORMAT, "model.merges[0] is not two tokens" },
    { "\"l l\"", "\"l xyz\"", ERR_FORMAT, "model.merges[1] names \"xyz\"" },
    { "\"l l\"", "\"\u4e16 l\"", ERR_FORMAT, "model.merges[1] names \"\u4e16\"" },
    { "\"normalizer\": null", "\"normalizer\": {\"type\": \"Nmt\"}", ERR_UNSUPPORTED,
      "normalizer of type \"Nmt\"" },
    { "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFKC\"}", ERR_UNSUPPORTED,
      "normalizer of type \"NFKC\"" },
    { "\"normalizer\": null",
      "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": \"\"}",
      ERR_UNSUPPORTED, "normalizer of type \"Replace\"" },
    { "\"normalizer\": null",
      "\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"sixty-four characters, all of them "
      "put before every text and part\"}",
      ERR_UNSUPPORTED, "normalizer: a text can become 66 times as long, more than 64 times" },
    { "\"normalizer\": null",
      "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Lowercase\"}]}",
      ERR_UNSUPPORTED, "normalizer of type \"Lowercase\"" },
    { "\"pre_tokenizer\":", "\"pre_tokenizers\":", ERR_UNSUPPORTED,
      "pre_tokenizer does not end with ByteLevel" },
    { "\"ByteLevel\"", "\"Metaspace\"", ERR_UNSUPPORTED, "does not end with ByteLevel, and" },
    { "\"type\": \"ByteLevel\"", "\"type\": \"Sequence\"", ERR_FORMAT, "has no pretokenizers" },
};

static void broken_files_are_errors_that_name_the_part(void **state)
{
    Bench *b = *state;
    for (size_t i = 0; i < sizeof BROKEN / sizeof BROKEN[0]; i++) {
        Text file;
        ArenaMark mark = arena_mark(&b->arena);
        changed_file(&file, BROKEN[i].from, BROKEN[i].to, &b->arena);
        CHECK_FAILS(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t),
                    BROKEN[i].code, BROKEN[i].says);
        if (strncmp(status_message(), "t.json", 6) != 0) {
            fail_msg("\"%s\" does not begin with the file", status_message());
        }
        arena_release(&b->arena, mark);
    }
}

/* Each stands where the good file has its ByteLevel. */
static const Breakage BROKEN_PIPELINES[] = {
    { "", "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"(a\"}}",
      ERR_UNSUPPORTED, "pattern \"(a\": \"(\" at byte 0 is not closed: add a )" },
    { "", "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"\\\\C\"}}",
      ERR_UNSUPPORTED, "pattern \"\\C\": \"\\C\" at byte 0 has no meaning" },
    { "",
      "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": {\"Regex\": \"(?=a\\\\K)\"}}",
      ERR_UNSUPPORTED, "pattern \"(?=a\\K)\": \"\\K\" at byte 4 has no meaning" },
    { "", "{\"type\": \"Split\", \"behavior\": \"Isolated\", \"pattern\": \"x\"}", ERR_FORMAT,
      "Split has no pattern" },
    { "", "{\"type\": \"Split\", \"behavior\": \"Contiguous\", \"pattern\": {\"String\": \"x\"}}",
      ERR_UNSUPPORTED, "the behavior \"Contiguous\"" },
    { "", "{\"type\": \"Whitespace\"}", ERR_UNSUPPORTED, "of type \"Whitespace\"" },
    { "", "{\"type\": \"ByteLevel\"}", ERR_UNSUPPORTED, "ByteLevel at the end" },
    { "", "7", ERR_UNSUPPORTED, "of type \"\"" },
};

static void broken_pipelines_are_errors_that_name_the_part(void **state)
{
    Bench *b = *state;
    static const char BYTE_LEVEL[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}";
    for (size_t i = 0; i < sizeof BROKEN_PIPELINES / sizeof BROKEN_PIPELINES[0]; i++) {
        const Breakage *broken = &BROKEN_PIPELINES[i];
        char pipeline[512];
        Text file;
        (void)snprintf(pipeline, sizeof pipeline,
                       "{\"type\": \"Sequence\", \"pretokenizers\": [%s, %s]}", broken->to,
                       BYTE_LEVEL);
        changed_file(&file, BYTE_LEVEL, pipeline, &b->arena);
        CHECK_FAILS(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t), broken->code,
                    broken->says);
        CHECK(strncmp(status_message(), "t.json: pre_tokenizer", 21) == 0);
    }
}

static void a_file_cut_anywhere_is_broken(void **state)
{
    Bench *b = *state;
    Text file;
    good_file(&file, &b->arena);
    for (size_t n = 1; n < file.used; n += 97) {
        CHECK_FAILS(tokenizer_parse("t.json", file.data, n, &b->arena, &b->t), ERR_FORMAT,
                    "t.json is broken JSON at byte");
    }
    CHECK_FAILS(tokenizer_parse("t.json", file.data, 0, &b->arena, &b->t), ERR_FORMAT, "empty");
    CHECK_FAILS(tokenizer_parse("t.json", "[1]", 3, &b->arena, &b->t), ERR_FORMAT, "not an object");
    CHECK_FAILS(tokenizer_parse("t.json", "{} x", 4, &b->arena, &b->t), ERR_FORMAT,
                "at byte 3 of 4");
}

static void a_missing_file_is_an_error_with_its_name(void **state)
{
    Bench *b = *state;
    CHECK_FAILS(tokenizer_load("no/such/tokenizer.json", &b->arena, &b->t), ERR_IO,
                "no/such/tokenizer.json");
}

/* The good file with the matches of a pattern taken out, and the rest not cut. */
static void load_without(Bench *b, const char *regex)
{
    static const char BYTE_LEVEL[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}";
    char pipeline[512];
    Text file;
    (void)snprintf(pipeline, sizeof pipeline,
                   "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", "
                   "\"behavior\": \"Removed\", \"pattern\": {\"Regex\": \"%s\"}},"
                   "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false}]}",
                   regex);
    changed_file(&file, BYTE_LEVEL, pipeline, &b->arena);
    CHECK_OK(tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t));
}

/* n bytes of `fill` with `last` behind them must leave the one byte `left`. */
static void check_leaves(Bench *b, size_t n, char fill, const char *last, char left)
{
    void *text = NULL;
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    size_t n_last = strlen(last);
    CHECK_OK(arena_alloc(&b->arena, n + n_last, &text));
    memset(text, fill, n);
    memcpy((char *)text + n, last, n_last);
    CHECK_OK(tokenizer_encode(b->t, text, n + n_last, &b->arena, &ids, &n_ids));
    CHECK_INT(n_ids, 1);
    CHECK_INT(ids[0], left);
}

/* One that needs much stack where it is machine code goes on in the interpreter. */
static void a_pattern_that_nests_deeply_still_cuts(void **state)
{
    Bench *b = *state;
    load_without(b, "(a|b)*h");
    check_leaves(b, 100000, 'a', "h!", '!');
}

/* The first branch goes through all of it and back. */
static void a_long_run_of_white_space_is_cut(void **state)
{
    Bench *b = *state;
    load_without(b, "\\\\s*[\\r\\n]+|\\\\s+");
    check_leaves(b, 3000000, ' ', "!", '!');
}

static void a_pattern_that_would_search_for_ever_is_an_error(void **state)
{
    Bench *b = *state;
    static char text[200];
    int32_t *ids = NULL;
    int64_t n = 0;
    load_without(b, "(a|aa)+$");
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '!';
    CHECK_FAILS(tokenizer_encode(b->t, text, sizeof text, &b->arena, &ids, &n), ERR_UNSUPPORTED,
                "gave up at byte 0 of a piece of 200: match limit exceeded");
}

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

static void every_failing_allocation_is_an_error(void **state)
{
    Bench *b = *state;
    Text file;
    good_file(&file, &b->arena);
    Status s = ERR_MEMORY;
    int32_t *ids = NULL;
    int64_t n = 0;
    for (long nth = 0; s != OK; nth++) {
        CHECK(nth < 1000);
        ArenaMark mark = arena_mark(&b->arena);
        arena_fail_countdown = nth;
        s = tokenizer_parse("t.json", file.data, file.used, &b->arena, &b->t);
        if (s == OK) s = tokenizer_encode(b->t, "hello hello", 11, &b->arena, &ids, &n);
        arena_fail_countdown = -1;
        if (s != OK) {
            CHECK_INT(s, ERR_MEMORY);
            tokenizer_free(b->t);
            b->t = NULL;
            arena_release(&b->arena, mark);
        }
    }
    CHECK_INT(n, 3);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(ids_are_those_of_hugging_face_for_every_pipeline),
        PLACE_TEST(forms_of_unicode_are_those_of_hugging_face),
        PLACE_TEST(vocabularies_of_characters_are_those_of_hugging_face),
        PLACE_TEST(added_tokens_in_a_text_are_those_of_hugging_face),
        PLACE_TEST(ids_of_deepseek_v3_are_those_of_hugging_face),
        PLACE_TEST(merging_takes_the_lowest_pair_first_however_long_the_piece),
        PLACE_TEST(random_bytes_come_back_from_their_ids),
        PLACE_TEST(any_bytes_come_back_from_a_vocabulary_of_characters),
        PLACE_TEST(a_piece_has_the_same_ids_wherever_it_stands),
        PLACE_TEST(encoding_keeps_only_the_ids_in_the_arena),
        PLACE_TEST(a_full_arena_is_an_error_and_keeps_nothing),
        PLACE_TEST(the_good_file_is_read),
        PLACE_TEST(special_tokens_are_found_in_a_text_and_stand_for_none),
        PLACE_TEST(a_merge_may_spell_an_added_token),
        PLACE_TEST(merges_make_a_special_token_within_a_word),
        PLACE_TEST(ids_without_a_token_stand_for_no_bytes),
        TEST(every_byte_has_its_own_character),
        PLACE_TEST(broken_files_are_errors_that_name_the_part),
        PLACE_TEST(broken_pipelines_are_errors_that_name_the_part),
        PLACE_TEST(a_file_cut_anywhere_is_broken),
        PLACE_TEST(a_missing_file_is_an_error_with_its_name),
        PLACE_TEST(a_pattern_that_nests_deeply_still_cuts),
        PLACE_TEST(a_long_run_of_white_space_is_cut),
        PLACE_TEST(a_pattern_that_would_search_for_ever_is_an_error),
#ifdef ARENA_FAIL_NTH
        PLACE_TEST(every_failing_allocation_is_an_error),
#endif
    };
    return TEST_RUN(tests);
}
