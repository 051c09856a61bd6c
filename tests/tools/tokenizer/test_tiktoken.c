/* .tiktoken files, written as tokenizer.json and read again. Ids of a small vocabulary are worked by hand;
 * those of the published ones are OpenAI's `tiktoken`'s (tools/check_tokenizers compares many more). */
#include "corpus/tokenizer/tokenizer.h"
#include "harness/packed.h"
#include "harness/place.h"

#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tokenizer/tiktoken.h"

#include <cjson/cJSON.h>

static const char GOLDEN[] = "tests/golden/tokenizer/cases.json.zst";

typedef struct Bench {
    Arena arena;
    char folder[64];
    Tokenizer *t;
    Text file;
} Bench;

static int place_open(void **state)
{
    static Bench bench;
    Bench *b = *state = &bench;
    *b = (Bench){ 0 };
    place_make(b->folder, &b->arena);
    return 0;
}

static int place_close(void **state)
{
    Bench *b = *state;
    tokenizer_free(b->t);
    place_drop(b->folder, &b->arena);
    return 0;
}

static void add_line(Text *file, const char *bytes, size_t n, int rank)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t group = 0;
        char four[4];
        for (size_t k = 0; k < 3; k++) group = group << 8 | (i + k < n ? (uint8_t)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            four[k] = (char)(i + k > n ? '=' : DIGITS[group >> (18 - 6 * k) & 63]);
        CHECK_OK(text_append(file, four, 4));
    }
    CHECK_OK(text_printf(file, " %d\n", rank));
}

/* The 256 bytes are their own ranks; these follow. "xyz" is a token that no two tokens make. */
static const char *const MORE[] = { "ab", "ba", "aba", "xyz", " \n", "\n\xFF", "a\n", "cc" };
enum { N_MORE = sizeof MORE / sizeof *MORE, N_TOKENS = 256 + N_MORE };
enum { AB = 256, BA, ABA, XYZ, BLANK, BLANK_FF, A_BLANK, CC };

static void good_file(Bench *b)
{
    CHECK_OK(text_init(&b->file, &b->arena));
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        add_line(&b->file, &byte, 1, i);
    }
    for (int i = 0; i < N_MORE; i++) add_line(&b->file, MORE[i], strlen(MORE[i]), 256 + i);
}

static const char *const SPECIAL[] = { "<end>=270", "a=b=271" };
static const TokenizerConversion OWN = { .pattern = "[a-z]+|\\s|[^a-z\\s]+",
                                         .special = SPECIAL,
                                         .n_special = 2 };

/* The tokenizer of the file that is written. */
static Status parse(Bench *b, const char *text, size_t n, const TokenizerConversion *c)
{
    TokenizerFile file = { 0 };
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, b->folder, "t.json"));
    TRY(tiktoken_read("t.tiktoken", text, n, c, &b->arena, &file));
    TRY(tokenizer_write(path, &file, &b->arena));
    return tokenizer_load(path, &b->arena, &b->t);
}

static void load_good(Bench *b)
{
    good_file(b);
    CHECK_OK(parse(b, b->file.data, b->file.used, &OWN));
}

static void check_ids(Bench *b, const char *text, const int32_t *want, int n)
{
    int32_t *ids = NULL;
    int64_t n_ids = 0;
    CHECK_OK(tokenizer_encode(b->t, text, strlen(text), &b->arena, &ids, &n_ids));
    for (int i = 0; i < n && i < n_ids; i++) {
        if (ids[i] != want[i]) fail_msg("id %d of \"%s\" is %d, want %d", i, text, ids[i], want[i]);
    }
    CHECK_INT(n_ids, n);
}

#define CHECK_IDS(b, text, ...)                                                                    \
    check_ids((b), (text), (const int32_t[]){ __VA_ARGS__ },                                       \
              (int)(sizeof(int32_t[]){ __VA_ARGS__ } / sizeof(int32_t)))

/* ---- ids ---- */

static void the_lowest_rank_is_merged_first_and_then_the_leftmost(void **state)
{
    Bench *b = *state;
    load_good(b);
    CHECK_IDS(b, "ababa", AB, ABA);
    CHECK_IDS(b, "bab", 'b', AB);
    CHECK_IDS(b, "bba", 'b', BA);
    CHECK_IDS(b, "aba", ABA);
    CHECK_IDS(b, "ccc", CC, 'c');
    char text[102] = ""; /* long pieces are merged in another way */
    int32_t want[51];
    memset(text, 'c', 101);
    for (int i = 0; i < 51; i++) want[i] = i < 50 ? (int32_t)CC : 'c';
    check_ids(b, text, want, 51);
}

/* A piece that is a token is this token, also if no merges make it. */
static void a_whole_piece_is_looked_up_first(void **state)
{
    Bench *b = *state;
    load_good(b);
    CHECK_IDS(b, "xyz!", XYZ, '!');
    CHECK_IDS(b, "xyzx", 'x', 'y', 'z', 'x');
}

static void what_no_match_of_an_own_pattern_has_is_dropped(void **state)
{
    Bench *b = *state;
    good_file(b);
    const TokenizerConversion c = { .pattern = "[a-z]+" };
    CHECK_OK(parse(b, b->file.data, b->file.used, &c));
    CHECK_IDS(b, "!ab ba.", AB, BA);
}

static void special_tokens_are_found_and_decode_to_nothing(void **state)
{
    Bench *b = *state;
    load_good(b);
    CHECK_IDS(b, "ab<end>a=b<end", AB, 270, 271, '<', 'e', 'n', 'd');
    CHECK_INT(tokenizer_vocab(b->t), 272);
    Text text;
    CHECK_OK(text_init(&text, &b->arena));
    CHECK_OK(tokenizer_decode(b->t, (const int32_t[]){ AB, 270, 269, XYZ }, 4, &text));
    CHECK_TEXT(text.data, "abxyz");
}

/* tiktoken's byte interface: the last piece before the byte and all behind it are one piece. If the last
 * piece is blank, blank tokens before it belong to it, too. */
static void from_a_byte_that_is_no_utf8_on_all_is_one_piece(void **state)
{
    Bench *b = *state;
    load_good(b);
    CHECK_IDS(b, "\xFF", 0xFF);
    CHECK_IDS(b,
              "!a\xFF"
              "ab ba",
              '!', 'a', 0xFF, AB, ' ', BA);
    CHECK_IDS(b, "b!\xFF", 'b', '!', 0xFF);
    CHECK_IDS(b, "a\n", 'a', '\n');
    CHECK_IDS(b, "b\n\xFF", 'b', BLANK_FF);
    CHECK_IDS(b, "a \n\xFF", 'a', BLANK, 0xFF); /* without the blank: 'a', ' ', BLANK_FF */
    CHECK_IDS(b, "<end>\n\xFF", 270, BLANK_FF);
    CHECK_IDS(b, "ab\xFF<end>ab\xFF", AB, 0xFF, 270, AB, 0xFF);
    CHECK_IDS(b, "xyz\xE4\xB8", 'x', 'y', 'z', 0xE4, 0xB8);
}

static void any_bytes_come_back_from_their_ids(void **state)
{
    Bench *b = *state;
    load_good(b);
    for (uint64_t round = 0; round < 300; round++) {
        char text[300];
        size_t n = rng_below(31, 0, round, sizeof text);
        for (size_t i = 0; i < n; i++)
            text[i] = "ab \n\xFF\xE4\xB8\x96xyz"[rng_below(32, round, i, 11)];
        int32_t *ids = NULL;
        int64_t n_ids = 0;
        Text back;
        ArenaMark mark = arena_mark(&b->arena);
        CHECK_OK(tokenizer_encode(b->t, text, n, &b->arena, &ids, &n_ids));
        CHECK_OK(text_init(&back, &b->arena));
        CHECK_OK(text_append(&back, "", 0));
        CHECK_OK(tokenizer_decode(b->t, ids, n_ids, &back));
        CHECK_INT(back.used, n);
        CHECK(n == 0 || memcmp(back.data, text, n) == 0);
        arena_release(&b->arena, mark);
    }
}

/* ---- published vocabularies ---- */

static void load_shared(Bench *b, const char *name)
{
    tokenizer_free(b->t);
    b->t = NULL;
    if (!file_exists(name)) {
        printf("skip: %s is not there\n", name);
        skip();
    }
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, b->folder, "shared.json"));
    const bool tiktoken = text_ends(name, ".tiktoken");
    const TokenizerConversion c = { .path = name, .out_path = path };
    if (tiktoken) CHECK_OK(tiktoken_convert(&c, &b->arena));
    CHECK_OK(tokenizer_load(tiktoken ? path : name, &b->arena, &b->t));
}

static void ids_of_gpt2_are_those_of_tiktoken(void **state)
{
    Bench *b = *state;
    load_shared(b, "../shared/vocab/gpt2.tiktoken");
    CHECK_IDS(b, "Hello, \u4e16\u754c! It's 1234567 tokens.\n\n  don't", 15496, 11, 220, 10310, 244,
              45911, 234, 0, 632, 338, 17031, 2231, 3134, 16326, 13, 628, 220, 836, 470);
    CHECK_IDS(b, "a\n <|endoftext|>", 64, 198, 220, 50256);
    CHECK_INT(tokenizer_vocab(b->t), 50257);
}

static void ids_of_o200k_are_those_of_tiktoken(void **state)
{
    Bench *b = *state;
    load_shared(b, "../shared/vocab/o200k_base.tiktoken");
    CHECK_IDS(b, "Hello, \u4e16\u754c! It's 1234567 tokens.\n\n  don't", 13225, 11, 185558, 0, 7744,
              220, 7633, 19354, 22, 20290, 364, 220, 4128);
    CHECK_INT(tokenizer_end_of_text(b->t), 199999);
    CHECK_INT(tokenizer_vocab(b->t), 200019);
}

static uint64_t fnv(const void *data, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)data)[i]) * 0x100000001B3u;
    return h;
}

static void check_sum(const void *data, size_t n, const cJSON *want, const char *name)
{
    char sum[20];
    (void)snprintf(sum, sizeof sum, "%016llx", (unsigned long long)fnv(data, n));
    if (strcmp(sum, want->valuestring) != 0)
        fail_msg("%s: sum %s, want %s", name, sum, want->valuestring);
}

/* Random text of many scripts: its ids have the sums of other programs' ids, and decode to the text. */
static void ids_of_mixed_text_are_those_of_other_programs(void **state)
{
    Bench *b = *state;
    char path[FILE_PATH_MAX], command[FILE_PATH_MAX + 64], *text = NULL;
    size_t n = 0;
    const cJSON *each = NULL;
    load_shared(b, "../shared/vocab/gpt2.tiktoken"); /* skips before anything is to be freed */
    CHECK_OK(file_join(path, b->folder, "mixed"));
    (void)snprintf(command, sizeof command, "tools/make_mixed_text 0.3 7 %s seeded", path);
    CHECK_INT(system(command), 0);
    CHECK_OK(file_read_all(path, &b->arena, &text, &n));
    const Packed golden = packed_read(GOLDEN);
    cJSON *root = cJSON_ParseWithLength(golden.text, golden.bytes);
    const cJSON *mixed = cJSON_GetObjectItemCaseSensitive(root, "mixed");
    check_sum(text, n, cJSON_GetObjectItemCaseSensitive(mixed, "text"), "the text");
    cJSON_ArrayForEach(each, cJSON_GetObjectItemCaseSensitive(mixed, "ids"))
    {
        int32_t *ids = NULL;
        int64_t n_ids = 0;
        Text back;
        (void)snprintf(path, sizeof path, "../shared/vocab/%s", each->string);
        load_shared(b, path);
        ArenaMark mark = arena_mark(&b->arena);
        CHECK_OK(tokenizer_encode(b->t, text, n, &b->arena, &ids, &n_ids));
        check_sum(ids, (size_t)n_ids * sizeof *ids, each, each->string);
        CHECK_OK(text_init(&back, &b->arena));
        CHECK_OK(tokenizer_decode(b->t, ids, n_ids, &back));
        CHECK(back.used == n && memcmp(back.data, text, n) == 0);
        arena_release(&b->arena, mark);
    }
    cJSON_Delete(root);
}

/* ---- files ---- */

typedef struct Breakage {
    const char *text; /* replaces the last line of the good file, or is put behind it */
    const char *says;
} Breakage;

static const Breakage BROKEN[] = {
    { "QUJD", "line 265 is not a token in base64, a space and a rank from 0 to 16777215" },
    { "QUJD ", "line 265 is not a token in base64, a space and a rank" },
    { " 300", "line 265: \"\" is not base64" },
    { "QUJD x", "line 265 is not a token in base64, a space and a rank" },
    { "QUJD -1", "line 265 is not a token in base64, a space and a rank" },
    { "QUJD 3 4", "line 265 is not a token in base64, a space and a rank" },
    { "QUJD 16777216", "line 265 is not a token in base64, a space and a rank" },
    { "QUJD 2147483648", "line 265 is not a token in base64, a space and a rank" },
    { "QUJD 99999999999999999999", "line 265 is not a token in base64, a space and a rank" },
    { "QUJ 300", "line 265: \"QUJ\" is not base64" },
    { "QU=D 300", "line 265: \"QU=D\" is not base64" },
    { "Q=== 300", "line 265: \"Q===\" is not base64" },
    { "QU*D 300", "line 265: \"QU*D\" is not base64" },
    { "QUJD 97", "line 265 gives rank 97 a second time" },
    { "YWI= 300", "line 265 has the token of rank 256 again, as rank 300" },
    { "QUJD 270", "id 270 of the special token <end> is taken" },
};

static void broken_lines_are_errors_with_their_number(void **state)
{
    Bench *b = *state;
    for (size_t i = 0; i < sizeof BROKEN / sizeof *BROKEN; i++) {
        good_file(b);
        CHECK_OK(text_printf(&b->file, "%s\n", BROKEN[i].text));
        CHECK_FAILS(parse(b, b->file.data, b->file.used, &OWN), ERR_FORMAT, BROKEN[i].says);
        CHECK(strncmp(status_message(), "t.tiktoken: ", 12) == 0);
    }
}

/* Lines may end in \r\n, and the last one without either; ranks may have gaps and any order. */
static void other_ends_of_lines_are_read(void **state)
{
    Bench *b = *state;
    good_file(b);
    CHECK_OK(text_printf(&b->file, "QUJD 280\r\nREVG 275"));
    CHECK_OK(parse(b, b->file.data, b->file.used, &OWN));
    CHECK_IDS(b, "ABC", 280);
    CHECK_IDS(b, "DEF", 275);
    CHECK_INT(tokenizer_vocab(b->t), 281);
}

static void a_file_cut_anywhere_is_an_error(void **state)
{
    Bench *b = *state;
    good_file(b);
    for (size_t n = 0; n < 2000; n += 7) {
        Status s = parse(b, b->file.data, n, &OWN);
        if (s != ERR_FORMAT && s != ERR_UNSUPPORTED)
            fail_msg("%zu bytes: status %d, want an error of the format", n, (int)s);
    }
}

static void conversions_that_cannot_be_are_errors(void **state)
{
    Bench *b = *state;
    static const char *const bad[] = { "end", "=3", "end=", "end=x", "end=16777216" };
    good_file(b);
    for (int i = 0; i < 5; i++) {
        TokenizerConversion c = { .pattern = ".", .special = &bad[i], .n_special = 1 };
        CHECK_FAILS(parse(b, b->file.data, b->file.used, &c), ERR_ARG, "is not TEXT=ID with an ID");
    }
    static const char *const twice[] = { "end=300", "end=301" };
    TokenizerConversion c = { .pattern = ".", .special = twice, .n_special = 2 };
    CHECK_FAILS(parse(b, b->file.data, b->file.used, &c), ERR_ARG,
                "special token end is given twice");
    c = (TokenizerConversion){ .encoding = "gpt3" };
    CHECK_FAILS(parse(b, b->file.data, b->file.used, &c), ERR_ARG,
                "encoding \"gpt3\" is not known");
    c = (TokenizerConversion){ .pattern = "a{,3}*" };
    CHECK_FAILS(parse(b, b->file.data, b->file.used, &c), ERR_UNSUPPORTED, "repeats a repetition");
    c = (TokenizerConversion){ .pattern = "a(" };
    CHECK_FAILS(parse(b, b->file.data, b->file.used, &c), ERR_UNSUPPORTED,
                "pattern \"a(\": \"(\" at byte 1 is not closed");
    c = (TokenizerConversion){ 0 };
    CHECK_FAILS(parse(b, b->file.data, b->file.used, &c), ERR_UNSUPPORTED,
                "t.tiktoken has 264 tokens, which is no encoding that is known (gpt2 of 50256");
}

static void what_is_no_tiktoken_file_is_not_converted(void **state)
{
    Bench *b = *state;
    char path[FILE_PATH_MAX], out[FILE_PATH_MAX];
    CHECK_OK(file_join(path, b->folder, "own.json"));
    CHECK_OK(file_join(out, b->folder, "out.json"));
    CHECK_OK(file_write_whole(path, "{}", 2));
    const TokenizerConversion c = { .path = path, .out_path = out };
    CHECK_FAILS(tiktoken_convert(&c, &b->arena), ERR_FORMAT, "own.json is no .tiktoken file");
    CHECK(!file_exists(out));
}

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

static void every_failing_allocation_is_an_error(void **state)
{
    Bench *b = *state;
    Status s = ERR_MEMORY;
    int32_t *ids = NULL;
    int64_t n = 0;
    good_file(b);
    for (long nth = 0; s != OK; nth++) {
        CHECK(nth < 1000);
        ArenaMark mark = arena_mark(&b->arena);
        arena_fail_countdown = nth;
        s = parse(b, b->file.data, b->file.used, &OWN);
        if (s == OK) s = tokenizer_encode(b->t, "abab b\n\xFF", 8, &b->arena, &ids, &n);
        arena_fail_countdown = -1;
        if (s == OK) break;
        CHECK_INT(s, ERR_MEMORY);
        tokenizer_free(b->t);
        b->t = NULL;
        arena_release(&b->arena, mark);
    }
    CHECK_INT(n, 5);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(the_lowest_rank_is_merged_first_and_then_the_leftmost),
        PLACE_TEST(a_whole_piece_is_looked_up_first),
        PLACE_TEST(what_no_match_of_an_own_pattern_has_is_dropped),
        PLACE_TEST(special_tokens_are_found_and_decode_to_nothing),
        PLACE_TEST(from_a_byte_that_is_no_utf8_on_all_is_one_piece),
        PLACE_TEST(any_bytes_come_back_from_their_ids),
        PLACE_TEST(ids_of_gpt2_are_those_of_tiktoken),
        PLACE_TEST(ids_of_o200k_are_those_of_tiktoken),
        PLACE_TEST(ids_of_mixed_text_are_those_of_other_programs),
        PLACE_TEST(broken_lines_are_errors_with_their_number),
        PLACE_TEST(other_ends_of_lines_are_read),
        PLACE_TEST(a_file_cut_anywhere_is_an_error),
        PLACE_TEST(conversions_that_cannot_be_are_errors),
        PLACE_TEST(what_is_no_tiktoken_file_is_not_converted),
#ifdef ARENA_FAIL_NTH
        PLACE_TEST(every_failing_allocation_is_an_error),
#endif
    };
    return TEST_RUN(tests);
}
