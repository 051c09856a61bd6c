/* Stages of equal cost: by hand, and of random costs as good as trying every cut. */
#include "harness/test.h"

#include "engine/base/rng.h"
#include "planner/price/balance.h"

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
    CHECK_OK(balance_layout(&(LayoutCost){ ones, 15, 0, 1 }, 4, &arena, &scratch, &l));
    layers_are(&l, (int[]){ 4, 4, 4, 3 }, 4);
    /* 16 in all: the embedding with two layers, the loss with one */
    CHECK_OK(balance_layout(&(LayoutCost){ ones, 11, 2, 3 }, 4, &arena, &scratch, &l));
    layers_are(&l, (int[]){ 2, 4, 4, 1 }, 4);
    CHECK_OK(balance_layout(&(LayoutCost){ ones, 2, 1, 1 }, 4, &arena, &scratch, &l));
    layers_are(&l, (int[]){ 0, 1, 1, 0 }, 4);
    /* nothing helps the first stage: the others share evenly all the same */
    static const double one_dear[] = { 5, 1, 1, 1, 1 };
    CHECK_OK(balance_layout(&(LayoutCost){ one_dear, 5, 0, 0 }, 3, &arena, &scratch, &l));
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
        CHECK_OK(balance_layout(&c, stages, &arena, &scratch, &l));
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
    CHECK_FAILS(balance_layout(&(LayoutCost){ two, 2, 0, 0 }, 2, &arena, &scratch, &l), ERR_ARG,
                "layer 1 costs -1");
    CHECK_FAILS(balance_layout(&(LayoutCost){ two, 1, NAN, 0 }, 2, &arena, &scratch, &l), ERR_ARG,
                "embedding 0 costs nan");
    CHECK_FAILS(balance_layout(&(LayoutCost){ two, 1, 0, 0 }, 4, &arena, &scratch, &l), ERR_ARG,
                "4 stages for 1 layers, an embedding and a loss; legal are 1 to 3");
    CHECK_FAILS(balance_layout(&(LayoutCost){ two, 0, 0, 0 }, 1, &arena, &scratch, &l), ERR_ARG,
                "0 layers to balance");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_layers_make_room_for_embedding_and_loss),
        TEST(random_costs_are_balanced_as_well_as_can_be),
        TEST(wrong_costs_are_errors),
    };
    if (arena_init(&arena, "test", MEM_HOST, 64 << 20) != OK) return 1;
    if (arena_init(&scratch, "scratch", MEM_HOST, 64 << 20) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    arena_free(&scratch);
    return failed;
}
