#include "harness/test.h"

#include "engine/base/text.h"

static Arena arena_of(size_t bytes)
{
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, bytes));
    return a;
}

/* ---- builder ---- */

static void a_new_text_is_empty_and_ended(void **state)
{
    (void)state;
    Arena a = arena_of(4096);
    Text t = { 0 };
    CHECK_OK(text_init(&t, &a));
    CHECK_TEXT(t.data, "");
    arena_free(&a);
}

static void a_text_grows_in_place_over_many_blocks(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 20);
    Text t = { 0 };
    CHECK_OK(text_init(&t, &a));
    const char *before = t.data;
    for (int i = 0; i < 3000; i++) {
        CHECK_OK(text_append(&t, "abcdefg", (size_t)(i % 8)));
        CHECK(t.data[t.used] == '\0');
    }
    CHECK(t.data == before);
    CHECK_INT(t.used, 3000 / 8 * 28);
    for (size_t i = 0; i < t.used; i++) CHECK(t.data[i] >= 'a' && t.data[i] <= 'g');
    arena_free(&a);
}

static void every_length_around_a_block_is_kept(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 20);
    char line[600];
    memset(line, 'x', sizeof line);
    for (size_t n = 250; n < 520; n++) {
        ArenaMark mark = arena_mark(&a);
        Text t = { 0 };
        CHECK_OK(text_init(&t, &a));
        CHECK_OK(text_append(&t, line, n));
        CHECK_OK(text_printf(&t, "%.*s|", (int)n, line));
        CHECK_INT(strlen(t.data), 2 * n + 1);
        arena_release(&a, mark);
    }
    arena_free(&a);
}

static void bytes_of_any_value_are_appended(void **state)
{
    (void)state;
    Arena a = arena_of(4096);
    Text t = { 0 };
    CHECK_OK(text_init(&t, &a));
    CHECK_OK(text_append(&t, "a\0b", 3));
    CHECK_INT(t.used, 3);
    CHECK(memcmp(t.data, "a\0b", 4) == 0);
    arena_free(&a);
}

static void printing_appends_at_the_end(void **state)
{
    (void)state;
    Arena a = arena_of(4096);
    Text t = { 0 };
    CHECK_OK(text_init(&t, &a));
    CHECK_OK(text_printf(&t, "%d of %s", 3, "eight"));
    CHECK_OK(text_printf(&t, " ranks"));
    CHECK_TEXT(t.data, "3 of eight ranks");
    arena_free(&a);
}

static void a_text_whose_arena_is_full_keeps_what_it_had(void **state)
{
    (void)state;
    Arena a = arena_of(512);
    Text t = { 0 };
    char line[400];
    memset(line, 'x', sizeof line);
    CHECK_OK(text_init(&t, &a));
    CHECK_OK(text_append(&t, line, 300));
    CHECK_FAILS(text_append(&t, line, 212), ERR_MEMORY, "arena test");
    CHECK_FAILS(text_printf(&t, "%.*s", 400, line), ERR_MEMORY, "arena test");
    CHECK_INT(strlen(t.data), 300);
    CHECK_OK(text_append(&t, line, 211));
    arena_free(&a);
}

/* ---- names ---- */

static const char *const ROWS[] = { "model.layers", "model.heads", "train.lr", "train.steps",
                                    "dp" };

enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };

static void a_typing_error_finds_its_name(void **state)
{
    (void)state;
    CHECK_INT(text_nearest("model.layrs", ROWS, N_ROWS), 0);  /* left out */
    CHECK_INT(text_nearest("modell.heads", ROWS, N_ROWS), 1); /* too many */
    CHECK_INT(text_nearest("train.lt", ROWS, N_ROWS), 2);     /* wrong */
    CHECK_INT(text_nearest("trian.steps", ROWS, N_ROWS), 3);  /* swapped */
    CHECK_INT(text_nearest("model.heads", ROWS, N_ROWS), 1);  /* none */
}

static void a_swap_is_one_error(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "abxx", "ba" };
    CHECK_INT(text_nearest("ab", NAMES, 2), 1); /* limit 1: the swap is 1, "xx" is 2 */
}

static void the_limit_grows_with_the_word(void **state)
{
    (void)state;
    static const char *const NAME[] = { "abcdefghi" };
    CHECK_INT(text_nearest("abcdeXYZW", NAME, 1), 0);  /* 4 = 1 + 9 / 3 */
    CHECK_INT(text_nearest("abcdXXYZW", NAME, 1), -1); /* 5 */
}

static void the_nearer_of_two_names_wins(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "stepss", "steps" };
    CHECK_INT(text_nearest("step", NAMES, 2), 1);
}

static void the_first_of_equal_names_wins(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "step1", "step2" };
    CHECK_INT(text_nearest("step", NAMES, 2), 0);
}

static void a_name_at_the_limit_is_still_near(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "zz", "aXX" };
    CHECK_INT(text_nearest("aYY", NAMES, 2), 1); /* limit 2, distance 2 */
}

static void nothing_is_near_an_alien_word(void **state)
{
    (void)state;
    CHECK_INT(text_nearest("zzzzzzzzzzz", ROWS, N_ROWS), -1);
    CHECK_INT(text_nearest("train.lr", ROWS, 0), -1);
}

static void an_enormous_word_is_near_nothing(void **state)
{
    (void)state;
    char word[500];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    const char *names[] = { word };
    CHECK_INT(text_nearest(word, names, 1), -1);
    CHECK_INT(text_nearest("aa", names, 1), -1);
}

static void beginnings_and_ends_are_compared(void **state)
{
    (void)state;
    CHECK(text_starts("model.layers", "model.") && text_starts("a", ""));
    CHECK(!text_starts("model", "model."));
    CHECK(text_ends("run.jsonl", ".jsonl") && text_ends("a", ""));
    CHECK(!text_ends("l", "jsonl") && !text_ends("run.json", ".jsonl"));
}

/* ---- human units ---- */

static void bytes_are_printed_in_binary_units(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *want;
    } WANT[] = { { 0, "0 B" },
                 { 512, "512 B" },
                 { 1023, "1023 B" },
                 { 1024, "1.00 KiB" },
                 { 1536.0 * 1024 * 1024, "1.50 GiB" },
                 { 15.74 * 1024, "15.7 KiB" },
                 { 157.4 * 1024, "157 KiB" },
                 { 1023.7 * 1024, "1.00 MiB" },
                 { 139.8 * 1024 * 1024 * 1024, "140 GiB" },
                 { -2048, "-2.00 KiB" },
                 { 4096 * 0x1p60, "4096 EiB" } };
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++) {
        char out[32];
        CHECK_TEXT(text_bytes(out, WANT[i].bytes), WANT[i].want);
    }
}

static void values_are_printed_in_decimal_units(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *want;
    } WANT[] = { { 0, "0" },           { 7, "7" },
                 { 0.25, "0.25" },     { 999, "999" },
                 { 999.7, "1.00 k" },  { 1000, "1.00 k" },
                 { 15.7e9, "15.7 G" }, { 9.996e6, "10.0 M" },
                 { 671e9, "671 G" },   { 989.4e12, "989 T" } };
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++) {
        char out[32];
        CHECK_TEXT(text_si(out, WANT[i].value), WANT[i].want);
    }
}

static void units_of_any_double_fit_the_room(void **state)
{
    (void)state;
    static const double VALUE[] = { 1e300,       -1.7e308, (double)INFINITY, -(double)INFINITY,
                                    (double)NAN, 1e-300 };
    for (int i = 0; i < 6; i++) {
        char out[64];
        memset(out, '#', sizeof out);
        text_bytes(out, VALUE[i]);
        CHECK(memchr(out, '\0', 32) != NULL && out[32] == '#');
    }
}

static void thousands_are_separated(void **state)
{
    (void)state;
    char out[32];
    CHECK_TEXT(text_thousands(out, 0), "0");
    CHECK_TEXT(text_thousands(out, 999), "999");
    CHECK_TEXT(text_thousands(out, 1234), "1,234");
    CHECK_TEXT(text_thousands(out, -123456), "-123,456");
    CHECK_TEXT(text_duration(out, 0.0314159), "0.0314 s");
    CHECK_TEXT(text_duration(out, 59.4), "59.4 s");
    CHECK_TEXT(text_duration(out, 59.99), "60 s");
    CHECK_TEXT(text_duration(out, 61), "1 min 01 s");
    CHECK_TEXT(text_duration(out, 3599.4), "59 min 59 s");
    CHECK_TEXT(text_duration(out, 3599.6), "1 h 00 min");
    CHECK_TEXT(text_duration(out, 172799), "47 h 59 min");
    CHECK_TEXT(text_duration(out, 269000), "3 d 02 h");
    CHECK_TEXT(text_duration(out, INFINITY), "unknown");
    CHECK_TEXT(text_duration(out, NAN), "unknown");
    CHECK_TEXT(text_thousands(out, 1000000), "1,000,000");
    CHECK_TEXT(text_thousands(out, INT64_MIN), "-9,223,372,036,854,775,808");
}

/* ---- UTF-8 ---- */

/* The witness: decode with the bits' positions alone, then ask whether that code point is allowed
 * and needs this many bytes. */
static size_t sequence_by_value(const uint8_t *s, size_t n)
{
    static const uint32_t SMALLEST[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t length = s[0] < 0x80             ? 1
                    : (s[0] & 0xE0) == 0xC0 ? 2
                    : (s[0] & 0xF0) == 0xE0 ? 3
                    : (s[0] & 0xF8) == 0xF0 ? 4
                                            : 0;
    if (length == 0 || n < length) return 0;
    uint32_t value = length == 1 ? s[0] : s[0] & (0xFFu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (s[i] >> 6 != 2) return 0;
        value = value << 6 | (s[i] & 0x3Fu);
    }
    bool surrogate = value >= 0xD800 && value <= 0xDFFF;
    return value < SMALLEST[length] || value > 0x10FFFF || surrogate ? 0 : length;
}

static void check_utf8(const uint8_t *s, size_t n)
{
    size_t want = 0, got = SIZE_MAX;
    for (size_t step; want < n && (step = sequence_by_value(s + want, n - want)) > 0;) want += step;
    bool valid = text_utf8_valid((const char *)s, n, &got);
    if (valid != (want == n) || (!valid && got != want)) {
        fail_msg("%02x %02x %02x %02x: %d at %d, want %d", s[0], s[1], s[2], s[3], valid, (int)got,
                 (int)want);
    }
}

static void every_pair_of_bytes_is_judged_rightly(void **state)
{
    (void)state;
    for (unsigned v = 0; v < 1u << 16; v++) {
        const uint8_t s[4] = { (uint8_t)(v >> 8), (uint8_t)v, 0, 0 };
        check_utf8(s, 2);
    }
}

static void every_triple_with_a_long_lead_is_judged_rightly(void **state)
{
    (void)state;
    for (unsigned v = 0xE00000; v < 0xF00000; v++) {
        const uint8_t s[4] = { (uint8_t)(v >> 16), (uint8_t)(v >> 8), (uint8_t)v, 0 };
        check_utf8(s, 3);
    }
}

static void sequences_of_four_are_judged_rightly_at_the_limits(void **state)
{
    (void)state;
    static const uint8_t EDGE[] = { 0x00, 0x7F, 0x80, 0x8F, 0x90, 0xBF, 0xC0, 0xFF };
    for (unsigned v = 0; v < 16 * 256 * 64; v++) {
        const uint8_t s[4] = { (uint8_t)(0xF0 | v >> 14), (uint8_t)(v >> 6), EDGE[v >> 3 & 7],
                               EDGE[v & 7] };
        check_utf8(s, 4);
    }
}

static void a_bad_byte_is_found_at_every_offset(void **state)
{
    (void)state;
    for (size_t n = 1; n < 40; n++) {
        for (size_t at = 0; at < n; at++) {
            char text[40];
            size_t bad = SIZE_MAX;
            memset(text, 'a', sizeof text);
            text[at] = (char)0xFF;
            CHECK(!text_utf8_valid(text, n, &bad));
            CHECK_INT(bad, at);
        }
    }
}

static void a_sequence_cut_by_the_end_is_bad_where_it_begins(void **state)
{
    (void)state;
    static const char TEXT[] = "eight by\xE2\x82\xAC"; /* a euro sign behind a full word */
    size_t bad = SIZE_MAX;
    CHECK(text_utf8_valid(TEXT, 11, &bad));
    CHECK(!text_utf8_valid(TEXT, 10, &bad));
    CHECK_INT(bad, 8);
    CHECK(!text_utf8_valid(TEXT, 9, &bad));
    CHECK_INT(bad, 8);
}

static void nothing_is_valid(void **state)
{
    (void)state;
    size_t bad = 0;
    CHECK(text_utf8_valid("", 0, &bad));
}

static void words_are_found_by_number_and_by_name(void **state)
{
    (void)state;
    int n = 0;
    CHECK_INT(text_word_index("fail|skip|ask", "skip"), 1);
    CHECK_INT(text_word_index("fail|skip|ask", "ski"), -1);
    CHECK_INT(text_word_index("fail|skip|ask", ""), -1);
    CHECK(strncmp(text_word("fail|skip|ask", 2, &n), "ask", 3) == 0);
    CHECK_INT(n, 3);
    CHECK(text_word("fail|skip|ask", 3, &n) == NULL);
    CHECK_INT(n, 0);
}

static void a_hint_names_the_nearest_or_says_what_else_to_do(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "train", "plan" };
    char hint[TEXT_HINT_BYTES];
    CHECK_TEXT(text_hint(hint, "trian", NAMES, 2, " (see --help)"), ", did you mean train?");
    CHECK_TEXT(text_hint(hint, "xyzzyx", NAMES, 2, " (see --help)"), " (see --help)");
}

static void words_are_wrapped(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
        int at;
    } cases[] = {
        { "", "\n", 0 },
        { "one", "one\n", 0 },
        { "a b c d e", "a b c d e\n", 0 },
        { "a b c d e f", "a b c d e\n  f\n", 0 },
        { "  two   blanks ", "two\n  blanks\n", 0 },
        { "aaaa bbbb cccc ddd", "aaaa bbbb\n  cccc\n  ddd\n", 0 },
        { "a word-that-is-long b", "a\n  word-that-is-long\n  b\n", 0 },
        { "behind a name", "behind\n  a name\n", 2 }, /* begins where other lines do */
        { "behind", "\n  behind\n", 9 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena a = arena_of(4096);
        Text t;
        CHECK_OK(text_init(&t, &a));
        CHECK_OK(text_wrap(&t, cases[i].text, cases[i].at, 9, 2));
        CHECK_TEXT(t.data, cases[i].want);
        arena_free(&a);
    }
}

static void what_does_not_fit_is_left_out(void **state)
{
    (void)state;
    char out[16];
    memset(out, '#', sizeof out);
    size_t n = text_add(out, 8, 0, "%s", "abc");
    CHECK_INT(n, 3);
    n = text_add(out, 8, n, "%s", "defghijkl");
    CHECK_INT(n, 7);
    CHECK_INT(text_add(out, 8, n, "%s", "more"), 7);
    CHECK_TEXT(out, "abcdefg");
    CHECK_INT(out[8], '#');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_does_not_fit_is_left_out),
        TEST(a_new_text_is_empty_and_ended),
        TEST(a_text_grows_in_place_over_many_blocks),
        TEST(every_length_around_a_block_is_kept),
        TEST(bytes_of_any_value_are_appended),
        TEST(printing_appends_at_the_end),
        TEST(a_text_whose_arena_is_full_keeps_what_it_had),
        TEST(a_typing_error_finds_its_name),
        TEST(a_swap_is_one_error),
        TEST(the_limit_grows_with_the_word),
        TEST(the_nearer_of_two_names_wins),
        TEST(the_first_of_equal_names_wins),
        TEST(a_name_at_the_limit_is_still_near),
        TEST(nothing_is_near_an_alien_word),
        TEST(an_enormous_word_is_near_nothing),
        TEST(beginnings_and_ends_are_compared),
        TEST(bytes_are_printed_in_binary_units),
        TEST(values_are_printed_in_decimal_units),
        TEST(units_of_any_double_fit_the_room),
        TEST(thousands_are_separated),
        TEST(every_pair_of_bytes_is_judged_rightly),
        TEST(every_triple_with_a_long_lead_is_judged_rightly),
        TEST(sequences_of_four_are_judged_rightly_at_the_limits),
        TEST(a_bad_byte_is_found_at_every_offset),
        TEST(a_sequence_cut_by_the_end_is_bad_where_it_begins),
        TEST(nothing_is_valid),
        TEST(words_are_found_by_number_and_by_name),
        TEST(a_hint_names_the_nearest_or_says_what_else_to_do),
        TEST(words_are_wrapped),
    };
    return TEST_RUN(tests);
}
