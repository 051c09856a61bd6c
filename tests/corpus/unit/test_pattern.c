/* Patterns of tokenizer.json and of .tiktoken files: what each cuts is what `tokenizers` 0.23 and `tiktoken` 0.14 cut.
 * The golden file is tools/check_patterns': lines of texts, then of patterns with the bytes of all pieces. */
#include "harness/packed.h"
#include "harness/place.h"

#include "corpus/tokenizer/charset.h"
#include "corpus/tokenizer/pattern.h"
#include "corpus/tokenizer/split.h"
#include "engine/base/file.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static const char GOLDEN[] = "tests/golden/patterns/cases.txt.zst";

enum { TEXTS_MAX = 32, LINE_BYTES = 1 << 14 };

typedef struct Bench {
    Arena arena;
    char folder[64];
    int n_texts;
    const char *text[TEXTS_MAX];
    size_t bytes[TEXTS_MAX];
    char cut[LINE_BYTES];
    int unwritten; /* patterns of fancy-regex that Oniguruma does not read */
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
    place_drop(b->folder, &b->arena);
    return 0;
}

static const char *from_hex(Bench *b, const char *hex, size_t *n)
{
    char *out = NULL;
    CHECK_OK(ARENA_NEW(&b->arena, strlen(hex) / 2 + 1, &out));
    for (*n = 0; hex[2 * *n] != '\0'; ++*n) {
        char two[3] = { hex[2 * *n], hex[2 * *n + 1] };
        out[*n] = (char)strtoul(two, NULL, 16);
    }
    out[*n] = '\0';
    return out;
}

static Status put(void *context, const char *piece, int32_t n)
{
    (void)piece;
    Bench *b = context;
    size_t used = strlen(b->cut);
    bool more = used > 0 && b->cut[used - 1] != ' ';
    (void)snprintf(b->cut + used, sizeof b->cut - used, "%s%d", more ? "," : "", (int)n);
    return OK;
}

/* All texts into b->cut, in the form of the golden file. */
static void cut_all(Bench *b, const Splitter *s)
{
    b->cut[0] = '\0';
    for (int i = 0; i < b->n_texts; i++) {
        SplitCut c;
        size_t used = 0, at = strlen(b->cut);
        CHECK_OK(split_begin(&c, s, put, b, &b->arena));
        bool good = split_text(&c, b->text[i], b->bytes[i], &used) == OK;
        if (good && b->cut[at] != '\0') at = strlen(b->cut);
        (void)snprintf(b->cut + at, sizeof b->cut - at, "%s",
                       !good                             ? "! "
                       : at > 0 && b->cut[at - 1] != ' ' ? " "
                                                         : "- ");
    }
}

/* Where tiktoken ends, at a match of no bytes, there is nothing to compare with. */
static bool same_pieces(const char *have, const char *want)
{
    for (; *have != '\0' && *want != '\0'; have++, want++) {
        if (*want == '!') {
            want++;
            have += strcspn(have, " ");
        }
        if (*have != *want) return false;
        if (*have == '\0') return true;
    }
    return *have == *want;
}

/* A pattern of fancy-regex is written as Oniguruma's, which a tokenizer.json has. *written: it can be. */
static Status add_pattern(Bench *b, Splitter *s, bool fancy, const char *pattern, bool *written)
{
    Text text;
    *written = true;
    if (!fancy) return splitter_add_rule(s, pattern, SPLIT_ONIGURUMA, SPLIT_ISOLATED, &b->arena);
    TRY(text_init(&text, &b->arena));
    TRY(pattern_translate(pattern, PATTERN_FANCY, CHARSET_UNICODE, &text));
    *written =
        splitter_add_rule(s, text.data, SPLIT_ONIGURUMA, SPLIT_ONLY_MATCHES, &b->arena) == OK;
    return OK;
}

static void check_case(Bench *b, char *line)
{
    Splitter s = { 0 };
    size_t n = 0;
    bool fancy = *line == 'F';
    char *want = strchr(line + 2, ' ');
    *want++ = '\0';
    const char *pattern = from_hex(b, line + 2, &n);
    bool written = true;
    Status status = add_pattern(b, &s, fancy, pattern, &written);
    bool refused = strcmp(want, "refused") == 0;
    if (!written) b->unwritten += !refused;
    if (!written) return;
    if (status == OK && !refused) cut_all(b, &s);
    size_t used = strlen(b->cut);
    if (used > 0 && b->cut[used - 1] == ' ') b->cut[used - 1] = '\0';
    splitter_free(&s);
    if ((status != OK) != refused)
        fail_msg("%c %s: %s", *line, pattern, refused ? "read" : "refused");
    if (!refused && !(fancy ? same_pieces(b->cut, want) : strcmp(b->cut, want) == 0))
        fail_msg("%c %s:\n%s, want\n%s", *line, pattern, b->cut, want);
}

static void pieces_are_those_of_tokenizers_and_tiktoken(void **state)
{
    Bench *b = *state;
    const Packed golden = packed_read(GOLDEN);
    const char *text = NULL;
    CHECK_OK(arena_text(&b->arena, golden.text, golden.bytes, &text));
    int cases = 0;
    for (char *line = strtok((char *)(uintptr_t)text, "\n"); line != NULL;
         line = strtok(NULL, "\n")) {
        ArenaMark mark = arena_mark(&b->arena);
        if (*line == 'T') {
            b->text[b->n_texts] = from_hex(b, line + 2, &b->bytes[b->n_texts]);
            b->n_texts++;
            continue;
        }
        check_case(b, line);
        arena_release(&b->arena, mark);
        cases++;
    }
    CHECK(b->n_texts >= 20 && cases > 1000);
    CHECK(b->unwritten < 5);
}

/* Where PCRE2's tables are those of 14, 15 or 16, names of categories are written. They must be ours there. */
static void categories_of_pcre2_are_ours_in_its_version(void **state)
{
    Bench *b = *state;
    char version[64] = { 0 };
    CHECK(pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) < 64);
    (void)pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    CharSetReader r;
    CHECK_OK(charset_reader(&b->arena, (int)strtol(version, NULL, 10), &r));
    if (!r.whole) skip();
    static const char *const NAME[] = { "L", "M", "N", "P", "S", "Lu", "Ll", "Lt", "Lm", "Lo" };
    for (size_t i = 0; i < sizeof NAME / sizeof *NAME; i++) {
        char pattern[16];
        int code = 0;
        size_t at = 0;
        (void)snprintf(pattern, sizeof pattern, "^\\p{%s}$", NAME[i]);
        pcre2_code *c =
            pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
        pcre2_match_data *m = pcre2_match_data_create(1, NULL);
        CHECK(c != NULL && m != NULL);
        CHECK(pcre2_jit_compile(c, PCRE2_JIT_COMPLETE) <= 0);
        for (uint32_t u = 0x80; u < 0x110000; u += u == 0xD7FF ? 0x801 : 1) {
            char utf8[4];
            size_t n = u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
            for (size_t k = n - 1; k > 0; k--)
                utf8[k] = (char)(0x80 | ((u >> 6 * (n - 1 - k)) & 0x3F));
            utf8[0] = (char)((n == 2 ? 0xC0 : n == 3 ? 0xE0 : 0xF0) | u >> 6 * (n - 1));
            bool theirs = pcre2_match(c, (PCRE2_SPTR)utf8, n, 0, PCRE2_NO_UTF_CHECK, m, NULL) > 0;
            if (theirs != charset_has(r.view[i], u)) fail_msg("U+%04X in %s", u, NAME[i]);
        }
        pcre2_match_data_free(m);
        pcre2_code_free(c);
    }
}

/* Without names of categories the sets are the same, written as ranges. */
static void pieces_do_not_depend_on_the_tables_of_pcre2(void **state)
{
    Bench *b = *state;
    Text named, plain;
    CHECK_OK(text_init(&named, &b->arena));
    CHECK_OK(pattern_translate("\\p{Lu}", PATTERN_ONIGURUMA, 14, &named));
    CHECK_OK(text_init(&plain, &b->arena));
    CHECK_OK(pattern_translate("\\p{Lu}", PATTERN_ONIGURUMA, 0, &plain));
    CHECK(strstr(named.data, "\\p{Lu}") != NULL);
    CHECK(strstr(plain.data, "\\p") == NULL && strstr(plain.data, "\\x{41A}") == NULL);
    CHECK(strstr(plain.data, "-\\x{42F}") != NULL);
}

/* U+0CF3 and U+10D4A came with Unicode 15 and 16, U+0CF1 stood beside the first before. */
static void
characters_newer_than_the_tables_are_known_and_their_neighbours_cost_nothing(void **state)
{
    static const char *const TEXT[] = { "twelve bytes\u0CF3", "twelve bytes\U00010D4A",
                                        "twelve bytes\U00010D4Aof", "twelve bytes\u0CF1" };
    static const char *const WANT[] = { "6,1,5,3", "6,1,9", "6,1,11", "6,1,8" };
    Bench *b = *state;
    Splitter s = { 0 };
    SplitCut c;
    CHECK_OK(splitter_add_rule(&s, "\\p{L}+", SPLIT_ONIGURUMA, SPLIT_ISOLATED, &b->arena));
    CHECK_OK(split_begin(&c, &s, put, b, &b->arena));
    for (size_t i = 0; i < sizeof TEXT / sizeof *TEXT; i++) {
        size_t used = 0;
        b->cut[0] = '\0';
        CHECK_OK(split_text(&c, TEXT[i], strlen(TEXT[i]), &used));
        CHECK_TEXT(b->cut, WANT[i]);
    }
    CHECK(!c.later);
    splitter_free(&s);
}

static void a_pattern_that_cannot_be_read_is_refused_with_its_place(void **state)
{
    Bench *b = *state;
    static const char *const BAD[][2] = {
        { "ab\\X", "pattern \"ab\\X\": \"\\X\" at byte 2 has no meaning" },
        { "a|(?~b)", "\"(?~\" at byte 2 is no group that can be translated" },
        { "(a)\\1", "\"\\1\" at byte 3 has no meaning" },
        { "[a&&]", "\"[a&&\" at byte 0 has an empty part" },
        { "\\p{Klingon}", "at byte 0 is no category, script or property" },
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Text out;
        CHECK_OK(text_init(&out, &b->arena));
        CHECK_FAILS(pattern_translate(BAD[i][0], PATTERN_ONIGURUMA, 14, &out), ERR_UNSUPPORTED,
                    BAD[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(pieces_are_those_of_tokenizers_and_tiktoken),
        PLACE_TEST(categories_of_pcre2_are_ours_in_its_version),
        PLACE_TEST(pieces_do_not_depend_on_the_tables_of_pcre2),
        PLACE_TEST(characters_newer_than_the_tables_are_known_and_their_neighbours_cost_nothing),
        PLACE_TEST(a_pattern_that_cannot_be_read_is_refused_with_its_place),
    };
    return TEST_RUN(tests);
}
