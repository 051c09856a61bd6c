/* Layouts as text. */
#include "harness/test.h"

#include "engine/schedule/layout.h"

static Arena arena;

static void forget(void) { arena_release(&arena, (ArenaMark){ 0 }); }

static void layers_are(const Layout *l, const int *want, int n)
{
    int first = 0;
    CHECK_INT(l->stages, n);
    for (int i = 0; i < n; i++) {
        CHECK_INT(l->stage[i].layers, want[i]);
        CHECK_INT(l->stage[i].first, first);
        CHECK_INT(l->stage[i].embedding, i == 0);
        CHECK_INT(l->stage[i].loss, i == n - 1);
        first += want[i];
    }
    CHECK_INT(l->layers, first);
}

static void text_is_stages_of_layers(void **state)
{
    (void)state;
    Layout l;
    CHECK_OK(layout_parse("Et*4|t*4|t*4|t*3,L", 4, 15, &arena, &l));
    layers_are(&l, (int[]){ 4, 4, 4, 3 }, 4);
    CHECK_OK(layout_parse("Ettt|(tt|)*29,m|L", 32, 61, &arena, &l)); /* DeepSeek-V3 over 16 x 2 */
    CHECK_INT(l.stages, 32);
    CHECK_INT(l.stage[29].layers, 2);
    CHECK_INT(l.stage[30].predictions, 1);
    CHECK_INT(l.stage[31].layers, 0);
    CHECK_OK(layout_parse("E | t, t | L", 0, 0, &arena, &l));
    layers_are(&l, (int[]){ 0, 2, 0 }, 3);
    CHECK_OK(layout_parse("E((t*2|)*2t|)*2L", 0, 0, &arena, &l));
    layers_are(&l, (int[]){ 2, 2, 1, 2, 2, 1, 0 }, 7);
    CHECK_OK(layout_parse("EL", 1, 0, &arena, &l));
    forget();
}

/* The place is under the text: the caret's column is that of the character it is about. */
static void wrong_text_has_a_caret_under_the_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int stages, layers;
        const char *says;
    } rows[] = {
        { "Et*4|t*4|t*4L", 4, 0, "3 stages, expected 4\n  Et*4|t*4|t*4L\n               ^" },
        { "Et|t|tL", 2, 0, "3 or more stages, expected 2\n  Et|t|tL\n      ^" },
        { "Et|x|tL", 0, 0, "legal are E, t, m, L, (, ), | and *\n  Et|x|tL\n     ^" },
        { "Et*|tL", 0, 0, "at least 1\n  Et*|tL\n     ^" },
        { "Et*0|tL", 0, 0, "at least 1\n" },
        { "Et*99999999999L", 0, 0, "more than 65536 times" },
        { "t|tL", 0, 0, "the embedding E is the first piece\n  t|tL\n  ^" },
        { "EtE|tL", 0, 0, "one embedding E, first\n  EtE|tL\n    ^" },
        { "Et|tLt", 0, 0, "the loss L is the last piece\n  Et|tLt\n       ^" },
        { "Et|t", 0, 0, "the loss L is missing at the end\n  Et|t\n      ^" },
        { "EtL|", 0, 0, "the loss L is missing at the end" },
        { "EtmtL", 0, 0, "a layer after one of multi-token prediction\n  EtmtL\n     ^" },
        { "E(t|L", 0, 0, "a group that does not end\n  E(t|L\n   ^" },
        { "Et)L", 0, 0, "a ) without its (\n  Et)L\n    ^" },
        { "E(((((((((t)))))))))L", 0, 0, "more than 8 groups" },
        { "Et*4|t*4L", 2, 9, "8 layers, expected 9" },
        { "Et*4|t*4L", 2, 7, "8 or more layers, expected 7\n  Et*4|t*4L\n       ^" },
        { "E(t|)*70000L", 0, 0, "more than 65536 times" },
        { "Et\n|tL", 0, 0, "  Et?|tL\n    ^" },
        { "", 0, 0, "the loss L is missing at the end" },
    };
    Layout l;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_FAILS(layout_parse(rows[i].text, rows[i].stages, rows[i].layers, &arena, &l), ERR_ARG,
                    rows[i].says);
    }
    char text[400];
    memset(text, 't', sizeof text);
    text[0] = 'E';
    text[300] = '?';
    text[sizeof text - 1] = '\0';
    CHECK_FAILS(layout_parse(text, 0, 0, &arena, &l), ERR_ARG,
                "\n                                ^");
    forget();
}

static void text_reads_back(void **state)
{
    (void)state;
    static const char *const texts[] = { "Et*4|t*4|t*4|t*3L", "E||t|mL", "EL" };
    Layout l;
    const char *again = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_OK(layout_parse(texts[i], 0, 0, &arena, &l));
        CHECK_OK(layout_text(&l, &arena, &again));
        CHECK_TEXT(again, texts[i]);
    }
    forget();
}

static void the_first_stages_take_what_is_left_over(void **state)
{
    (void)state;
    Layout l;
    const char *text = NULL;
    CHECK_OK(layout_even(3, 8, &arena, &l));
    CHECK_OK(layout_text(&l, &arena, &text));
    CHECK_TEXT(text, "Et*3|t*3|t*2L");
    CHECK_FAILS(layout_even(4, 3, &arena, &l), ERR_ARG, "4 stages (mesh.pp x mesh.vpp) and");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(text_is_stages_of_layers),
        TEST(wrong_text_has_a_caret_under_the_place),
        TEST(text_reads_back),
        TEST(the_first_stages_take_what_is_left_over),
    };
    if (arena_init(&arena, "test", MEM_HOST, 64 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
