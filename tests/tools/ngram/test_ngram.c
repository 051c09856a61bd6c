/* One case is worked by hand from the formula in ngram.h, all orders are held against counting in
 * plain loops, and every context's probabilities must sum to one. */
#include "harness/test.h"
#include "ngram/ngram.h"

#include "engine/base/rng.h"

#include <stdbool.h>

enum { DOCUMENTS = 4, LENGTH = 61 };

static Ngram *new_ngram(Arena *a, int order)
{
    Ngram *g = NULL;
    CHECK_OK(arena_init(a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(ngram_make(a, order, &g));
    return g;
}

static double bits(const Ngram *g, const char *text)
{
    return ngram_bits(g, (const uint8_t *)text, strlen(text));
}

/* Text "abab". Empty context: n = 4, t = 2, so P0(a) = (2 + 2/256) / 6 = P0(b).
 * After a: n = 2, t = 1, P(b|a) = (2 + P0(b)) / 3. After b: n = 1, t = 1,
 * P(a|b) = (1 + P0(a)) / 2, P(b|b) = (0 + P0(b)) / 2; P(c|a) = (0 + P0(c)) / 3, where
 * P0(c) = (0 + 2/256) / 6. */
static void a_small_text_has_the_probabilities_worked_by_hand(void **state)
{
    (void)state;
    Arena a = { 0 };
    Ngram *g = new_ngram(&a, 2);
    CHECK_OK(ngram_add(g, (const uint8_t *)"abab", 4));
    double p0 = (2 + 2.0 / 256) / 6, c0 = 2.0 / 256 / 6;
    CHECK_NEAR(bits(g, "a"), -log2(p0), 1e-12);
    CHECK_NEAR(bits(g, "ab"), -log2(p0 * (2 + p0) / 3), 1e-12);
    CHECK_NEAR(bits(g, "ba"), -log2(p0 * (1 + p0) / 2), 1e-12);
    CHECK_NEAR(bits(g, "bb"), -log2(p0 * p0 / 2), 1e-12);
    CHECK_NEAR(bits(g, "ac"), -log2(p0 * c0 / 3), 1e-12);
    CHECK_NEAR(bits(g, "ca"), -log2(c0 * p0), 1e-12); /* nothing followed c: back to order 1 */
    arena_free(&a);
}

static void without_text_every_byte_takes_eight_bits(void **state)
{
    (void)state;
    Arena a = { 0 };
    const Ngram *g = new_ngram(&a, 3);
    CHECK_NEAR(bits(g, "xyz"), 24, 1e-12);
    CHECK_NEAR(ngram_bits(g, NULL, 0), 0, 0);
    arena_free(&a);
}

static void make_documents(uint8_t doc[DOCUMENTS][LENGTH])
{
    for (uint64_t d = 0; d < DOCUMENTS; d++) {
        for (uint64_t i = 0; i < LENGTH; i++) doc[d][i] = (uint8_t)(250 + rng_below(5, d, i, 4));
    }
}

/* n(hc) for the `length` bytes of context before h[length] = c; with `c` < 0 n(h). */
static int count(uint8_t doc[DOCUMENTS][LENGTH], const uint8_t *h, int length, int c)
{
    int n = 0;
    for (int d = 0; d < DOCUMENTS; d++) {
        for (int i = length; i < LENGTH; i++) {
            bool context = memcmp(doc[d] + i - length, h, (size_t)length) == 0;
            n += context && (c < 0 || doc[d][i] == c);
        }
    }
    return n;
}

static double plain_probability(uint8_t doc[DOCUMENTS][LENGTH], const uint8_t *text, int at,
                                int order)
{
    double p = 1.0 / 256;
    for (int length = 0; length < order && length <= at; length++) {
        const uint8_t *h = text + at - length;
        int n = count(doc, h, length, -1), kinds = 0;
        for (int c = 250; c < 254; c++) kinds += count(doc, h, length, c) > 0;
        if (n > 0) p = (count(doc, h, length, text[at]) + kinds * p) / (n + kinds);
    }
    return p;
}

static void every_order_agrees_with_plain_counting(void **state)
{
    (void)state;
    uint8_t doc[DOCUMENTS][LENGTH], text[40];
    make_documents(doc);
    for (uint64_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)(250 + rng_below(6, 0, i, 5));
    for (int order = 1; order <= 8; order++) {
        Arena a = { 0 };
        Ngram *g = new_ngram(&a, order);
        double want = 0;
        for (int d = 0; d < DOCUMENTS; d++) CHECK_OK(ngram_add(g, doc[d], LENGTH));
        for (int i = 0; i < (int)sizeof text; i++) {
            want -= log2(plain_probability(doc, text, i, order));
        }
        CHECK_NEAR(ngram_bits(g, text, sizeof text), want, 1e-9);
        arena_free(&a);
    }
}

static void probabilities_of_all_bytes_sum_to_one(void **state)
{
    (void)state;
    static const char *const CONTEXTS[] = { "", "a", "the", "qqqq", " of t", "\xFF\xFE" };
    static const char TEXT[] = "the cat of the hat of the theatre at the hut";
    for (int order = 1; order <= 8; order++) {
        Arena a = { 0 };
        Ngram *g = new_ngram(&a, order);
        CHECK_OK(ngram_add(g, (const uint8_t *)TEXT, sizeof TEXT - 1));
        for (int c = 0; c < 6; c++) {
            uint8_t text[16];
            size_t n = strlen(CONTEXTS[c]);
            memcpy(text, CONTEXTS[c], n);
            double before = ngram_bits(g, text, n), sum = 0;
            for (int byte = 0; byte < 256; byte++) {
                text[n] = (uint8_t)byte;
                sum += exp2(before - ngram_bits(g, text, n + 1));
            }
            CHECK_NEAR(sum, 1, 1e-9);
        }
        arena_free(&a);
    }
}

static void documents_do_not_see_each_other(void **state)
{
    (void)state;
    Arena a = { 0 }, b = { 0 };
    Ngram *apart = new_ngram(&a, 3), *joined = new_ngram(&b, 3);
    CHECK_OK(ngram_add(apart, (const uint8_t *)"ab", 2));
    CHECK_OK(ngram_add(apart, (const uint8_t *)"cd", 2));
    CHECK_OK(ngram_add(joined, (const uint8_t *)"abcd", 4));
    CHECK(bits(apart, "bc") > bits(joined, "bc") + 1); /* c never came after b */
    CHECK_NEAR(bits(apart, "c"), bits(joined, "c"), 1e-12);
    arena_free(&a);
    arena_free(&b);
}

/* English: a fixed vocabulary of words in random order. Longer contexts know the spelling, and the
 * tables grow many times. */
static void a_longer_context_tells_more_of_english(void **state)
{
    (void)state;
    static const char *const WORDS[] = { "the ",   "train ",  "leaves ",  "station ", "and ",
                                         "turns ", "slowly ", "towards ", "yard ",    "where " };
    Arena a = { 0 }, b = { 0 };
    Ngram *two = new_ngram(&a, 2), *five = new_ngram(&b, 5);
    double bits_two = 0, bits_five = 0;
    int bytes = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        char text[128];
        int n = 0;
        for (uint64_t w = 0; w < 6; w++) {
            const char *word = WORDS[rng_below(9, i, w, 10)];
            n += snprintf(text + n, sizeof text - (size_t)n, "%s", word);
        }
        if (i < 19900) {
            CHECK_OK(ngram_add(two, (const uint8_t *)text, (size_t)n));
            CHECK_OK(ngram_add(five, (const uint8_t *)text, (size_t)n));
            continue;
        }
        bits_two += bits(two, text);
        bits_five += bits(five, text);
        bytes += n;
    }
    CHECK(bits_two / bytes > 1.2 && bits_two / bytes < 2.5);
    CHECK(bits_five / bytes > 0.4 && bits_five / bytes < 0.75); /* log2(10) / 6.7 bytes a word */
    arena_free(&a);
    arena_free(&b);
}

static void an_order_out_of_range_is_an_error(void **state)
{
    (void)state;
    Arena a = { 0 };
    Ngram *g = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 20));
    CHECK_FAILS(ngram_make(&a, 0, &g), ERR_ARG, "order 0; it can be 1 to 8");
    CHECK_FAILS(ngram_make(&a, 9, &g), ERR_ARG, "order 9; it can be 1 to 8");
    arena_free(&a);
}

static void a_full_arena_is_an_error(void **state)
{
    (void)state;
    Arena a = { 0 };
    Ngram *g = NULL;
    static uint8_t text[1 << 18];
    for (uint64_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)rng_u32(4, 0, i);
    CHECK_OK(arena_init(&a, "small", MEM_HOST, 2 << 20));
    CHECK_OK(ngram_make(&a, 5, &g));
    CHECK_FAILS(ngram_add(g, text, sizeof text), ERR_MEMORY, "small");
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_small_text_has_the_probabilities_worked_by_hand),
        TEST(without_text_every_byte_takes_eight_bits),
        TEST(every_order_agrees_with_plain_counting),
        TEST(probabilities_of_all_bytes_sum_to_one),
        TEST(documents_do_not_see_each_other),
        TEST(a_longer_context_tells_more_of_english),
        TEST(an_order_out_of_range_is_an_error),
        TEST(a_full_arena_is_an_error),
    };
    return TEST_RUN(tests);
}
