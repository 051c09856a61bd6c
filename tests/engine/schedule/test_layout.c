/* Layouts as text and by balance. */
#include "harness/test.h"

#include "engine/base/rng.h"
#include "engine/schedule/layout.h"

static Arena arena, scratch;

static void forget(void)
{
    arena_release(&arena, (ArenaMark){ 0 });
    arena_release(&scratch, (ArenaMark){ 0 });
}

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

static double stage_cost(const LayoutStage *s, const LayoutCost *c)
{
    double sum = (s->embedding ? c->embedding : 0) + (s->loss ? c->loss : 0);
    for (int i = 0; i < s->layers; i++) sum += c->layer[s->first + i];
    return sum;
}

static double dearest(const Layout *l, const LayoutCost *c)
{
    double most = 0;
    for (int i = 0; i < l->stages; i++) most = fmax(most, stage_cost(&l->stage[i], c));
    return most;
}

static void equal_layers_make_room_for_embedding_and_loss(void **state)
{
    (void)state;
    double ones[15];
    for (int i = 0; i < 15; i++) ones[i] = 1;
    Layout l;
    CHECK_OK(layout_balance(&(LayoutCost){ ones, 15, 0, 1 }, 4, &arena, &scratch, &l));
    layers_are(&l, (int[]){ 4, 4, 4, 3 }, 4);
    /* 16 in all: the embedding with two layers, the loss with one */
    CHECK_OK(layout_balance(&(LayoutCost){ ones, 11, 2, 3 }, 4, &arena, &scratch, &l));
    layers_are(&l, (int[]){ 2, 4, 4, 1 }, 4);
    CHECK_OK(layout_balance(&(LayoutCost){ ones, 2, 1, 1 }, 4, &arena, &scratch, &l));
    layers_are(&l, (int[]){ 0, 1, 1, 0 }, 4);
    /* nothing helps the first stage: the others share evenly all the same */
    static const double one_dear[] = { 5, 1, 1, 1, 1 };
    CHECK_OK(layout_balance(&(LayoutCost){ one_dear, 5, 0, 0 }, 3, &arena, &scratch, &l));
    layers_are(&l, (int[]){ 1, 2, 2 }, 3);
    forget();
}

/* The least possible dearest stage of the pieces from `at` on, by trying every cut. */
static double by_hand(const LayoutCost *c, int at, int stages)
{
    int pieces = c->layers + 2;
    double sum = 0, best = INFINITY;
    for (int end = at + 1; end <= pieces - (stages - 1); end++) {
        int piece = end - 1;
        sum += piece == 0 ? c->embedding : piece == pieces - 1 ? c->loss : c->layer[piece - 1];
        if (stages > 1) best = fmin(best, fmax(sum, by_hand(c, end, stages - 1)));
    }
    return stages == 1 ? sum : best;
}

static void random_costs_are_balanced_as_well_as_can_be(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        double layer[9];
        int layers = 1 + (int)rng_below(3, 1, i, 9), stages = 0;
        stages = 1 + (int)rng_below(3, 2, i, (uint64_t)layers + 2);
        for (int k = 0; k < layers; k++) layer[k] = rng_uniform(3, 3, i * 16 + (uint64_t)k);
        LayoutCost c = { layer, layers, rng_uniform(3, 4, i), 3 * rng_uniform(3, 5, i) };
        Layout l, again;
        const char *text = NULL;
        CHECK_OK(layout_balance(&c, stages, &arena, &scratch, &l));
        CHECK_NEAR(dearest(&l, &c), by_hand(&c, 0, stages), 1e-12);
        CHECK_OK(layout_text(&l, &arena, &text));
        CHECK_OK(layout_parse(text, stages, layers, &arena, &again));
        for (int k = 0; k < stages; k++) CHECK_INT(again.stage[k].layers, l.stage[k].layers);
        forget();
    }
}

static void wrong_costs_are_errors(void **state)
{
    (void)state;
    double two[] = { 1, -1 };
    Layout l;
    CHECK_FAILS(layout_balance(&(LayoutCost){ two, 2, 0, 0 }, 2, &arena, &scratch, &l), ERR_ARG,
                "layer 1 costs -1");
    CHECK_FAILS(layout_balance(&(LayoutCost){ two, 1, NAN, 0 }, 2, &arena, &scratch, &l), ERR_ARG,
                "embedding 0 costs nan");
    CHECK_FAILS(layout_balance(&(LayoutCost){ two, 1, 0, 0 }, 4, &arena, &scratch, &l), ERR_ARG,
                "4 stages for 1 layers, an embedding and a loss; legal are 1 to 3");
    CHECK_FAILS(layout_balance(&(LayoutCost){ two, 0, 0, 0 }, 1, &arena, &scratch, &l), ERR_ARG,
                "0 layers to balance");
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
        TEST(equal_layers_make_room_for_embedding_and_loss),
        TEST(random_costs_are_balanced_as_well_as_can_be),
        TEST(wrong_costs_are_errors),
        TEST(the_first_stages_take_what_is_left_over),
    };
    if (arena_init(&arena, "test", MEM_HOST, 64 << 20) != OK) return 1;
    if (arena_init(&scratch, "scratch", MEM_HOST, 64 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    arena_free(&scratch);
    return failed;
}
