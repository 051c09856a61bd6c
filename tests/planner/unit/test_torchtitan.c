/* What torchtitan keeps, runs again, gathers and hides. Bytes are worked by hand: Llama 3 8B has hidden 4096, queries
 * of 4096, keys and values of 1024 each, 32 heads, and MLPs of 14336; a micro-batch has 4096 tokens. */
#include "harness/question.h"

#include "planner/price/price_private.h"

#include <math.h>

static void open_titan(Question *q, const char *model, const char *stack, const char *const *set,
                       int n)
{
    question_load(q, model, "h100", 8, stack, set, n);
    question_open(q);
}

#define OPEN(q, model, stack, ...)                                                                 \
    open_titan(q, model, stack, (const char *const[]){ "data.sequence=4096", __VA_ARGS__ },        \
               1 + (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

#define AGAIN "recompute.pieces=[layer]", "recompute.layers=[0,1,2,3,4,5,6,7,8]"

static const PriceEntry *entry_of(Question *q)
{
    const PriceEntry *e = NULL;
    CHECK_OK(planner_legal(q->planner, &q->layout));
    CHECK_OK(price_entry(q->planner, &q->layout, &e));
    return e;
}

static const LayerPrice *again_of(Question *q, LayerKind kind)
{
    const PriceEntry *e = entry_of(q);
    for (int i = 0; i < q->planner->classes; i++) {
        if (q->planner->spec.layers[q->planner->first_of[i]].kind == kind) return &e->recomputed[i];
    }
    fail_msg("no layer of kind %d", (int)kind);
    return NULL;
}

/* Seconds of the second forward: what computes, and what moves tokens. */
static double computed_again(const LayerPrice *l)
{
    double s = 0;
    for (int i = 0; i < LAYER_PHASES_MAX; i++)
        s += l->phase_s[PASS_RECOMPUTE][i] - l->moved_s[PASS_RECOMPUTE][i];
    return s;
}

static double moved_again(const LayerPrice *l)
{
    double s = 0;
    for (int i = 0; i < LAYER_PHASES_MAX; i++) s += l->moved_s[PASS_RECOMPUTE][i];
    return s;
}

static PlanPrice price_of(const char *model, const char *stack, const char *const *set, int n)
{
    Question q;
    PlanPrice p;
    open_titan(&q, model, stack, set, n);
    CHECK_OK(planner_price(q.planner, &q.layout, &p));
    question_close(&q);
    return p;
}

#define PRICE(model, stack, ...)                                                                   \
    price_of(model, stack, (const char *const[]){ "data.sequence=4096", __VA_ARGS__ },             \
             1 + (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

static void recompute_by_ops_keeps_products_and_attention(void **state)
{
    (void)state;
    static const struct {
        const char *stack;
        double attention, mlp;
    } cases[] = {
        { "torchtitan", 0, 0 },
        { "torchtitan,op_ac=1", 2 * (4096 + 1024 + 4096) + 4 * 32, 2 * 14336 },
        { "torchtitan,op_ac=3", 2 * (4096 + 1024 + 1024 + 4096 + 4096) + 4 * 32, 4 * 14336 },
    };
    double attention_s[3], mlp_s[3];
    for (int i = 0; i < 3; i++) {
        Question q;
        OPEN(&q, "llama3-8b", cases[i].stack, "train.batch=8", AGAIN);
        const LayerPrice *attention = again_of(&q, LAYER_ATTENTION), *mlp = again_of(&q, LAYER_MLP);
        CHECK_NEAR((double)attention->count.keep, 4096 * cases[i].attention, 256);
        CHECK_NEAR((double)mlp->count.keep, 4096 * cases[i].mlp, 256);
        attention_s[i] = computed_again(attention), mlp_s[i] = computed_again(mlp);
        question_close(&q);
    }
    /* Half of the products, then the other half; attention goes with the first. */
    CHECK(mlp_s[0] > mlp_s[1] && mlp_s[1] > mlp_s[2]);
    CHECK_NEAR((mlp_s[0] - mlp_s[1]) / (mlp_s[1] - mlp_s[2]), 1, 1e-9);
    CHECK((attention_s[0] - attention_s[1]) > 1.2 * (attention_s[1] - attention_s[2]));
}

static void rows_of_an_all_to_all_are_kept_since_2025(void **state)
{
    (void)state;
    static const char *const stacks[] = { "torchtitan,op_ac=1", "torchtitan,op_ac=2" };
    double keep[2], moved[2], wait[2];
    for (int i = 0; i < 2; i++) {
        Question q;
        OPEN(&q, "deepseek-v2-lite", stacks[i], "train.batch=8", "mesh.ep=8", AGAIN);
        const LayerPrice *moe = again_of(&q, LAYER_MOE);
        keep[i] = (double)moe->count.keep, moved[i] = moved_again(moe), wait[i] = moe->wait_s;
        question_close(&q);
    }
    CHECK_NEAR(keep[1] - keep[0], 4096.0 * 6 * 4 * 2048, 256);
    CHECK(moved[0] > 0);
    CHECK_NEAR(moved[1], 0, 0);
    CHECK_NEAR(wait[0] / wait[1], 1.5, 1e-9);
}

/* 16,384 tokens in 26 layers: 4.6 ms. On one rank no host waits for the sizes of a message. */
static void a_layer_waits_for_sizes_of_messages(void **state)
{
    (void)state;
    static const char *const ep[] = { "mesh.ep=1", "mesh.ep=8" };
    for (int i = 0; i < 2; i++) {
        Question q;
        OPEN(&q, "deepseek-v2-lite", "torchtitan", "train.batch=8", ep[i]);
        CHECK_NEAR(entry_of(&q)->stack.at[STACK_wait_moe], i * 0.0046015932, 1e-9);
        question_close(&q);
    }
}

/* 2 x 427 keys and a block of 128, of 4096. */
static void keys_of_other_documents_are_skipped(void **state)
{
    (void)state;
    static const char *const stacks[] = { "torchtitan,flash=2", "torchtitan,flash=2,documents=427",
                                          "torchtitan,flash=1" };
    double share[3];
    for (int i = 0; i < 3; i++) {
        Question q;
        OPEN(&q, "llama3-8b", stacks[i], "train.batch=8");
        share[i] = entry_of(&q)->stack.at[STACK_share_attention];
        question_close(&q);
    }
    CHECK_NEAR(share[1] / share[0], 4096.0 / (2 * 427 + 128), 1e-9);
    CHECK_NEAR(share[2] / share[0], 0.5, 1e-9);
}

/* 8.03 G parameters, sharded in f32 over 8 ranks; below ZeRO-3 all are gathered in bf16, too. */
static void weights_are_gathered_in_bf16(void **state)
{
    (void)state;
    static const char *const zero[] = { "mesh.zero=0", "mesh.zero=1", "mesh.zero=2",
                                        "mesh.zero=3" };
    static const double size[] = { 4, 4.0 / 8 + 2, 4.0 / 8 + 2, 4.0 / 8 };
    for (int i = 0; i < 4; i++) {
        PlanPrice p = PRICE("llama3-8b", "torchtitan", "train.batch=8", zero[i]);
        CHECK_NEAR(p.memory[PLAN_WEIGHTS] / (8030261248 * size[i]), 1, 1e-3);
    }
}

/* Activations with late_grads=0 less those without. */
static double places(const char *batch, const char *pp, PlanPrice *p)
{
    PlanPrice early = PRICE("llama3-8b", "torchtitan,late_grads=0", "mesh.zero=3", batch, pp);
    *p = PRICE("llama3-8b", "torchtitan", "mesh.zero=3", batch, pp);
    return early.peak_bytes - p->peak_bytes;
}

/* Logits of 4096 tokens take 4 x 4096 x 128256 bytes: less than gathered weights and buffers. */
static void gradients_take_the_place_of_activations(void **state)
{
    (void)state;
    PlanPrice p;
    const double logits = 4096.0 * 4 * 128256;
    double later = places("train.batch=8", "mesh.pp=1", &p);
    CHECK_NEAR(later, p.memory[PLAN_GRADS] + fmin(logits, p.memory[PLAN_BUFFERS]), 4096);
    CHECK_NEAR(places("train.batch=16", "mesh.pp=1", &p), 0, 0);
    CHECK_NEAR(places("train.batch=4", "mesh.pp=2", &p), 0, 0);
}

/* What is hidden holds multiprocessors: passes take 1.307 times as long (hardware/h200.yaml). */
static void passes_beside_collectives_take_longer(void **state)
{
    (void)state;
    static const char *const stacks[] = { "torchtitan,contend=0,hide_gradients=0",
                                          "torchtitan,contend=0", "torchtitan" };
    double s[3];
    for (int i = 0; i < 3; i++)
        s[i] =
            PRICE("llama3-8b", stacks[i], "train.batch=16", "mesh.zero=3").part_s[PLAN_GRADIENTS];
    CHECK(s[0] > s[1] + 0.01);
    CHECK_NEAR(s[2] - s[1], 0.307 * (s[0] - s[1]), 1e-9);
    static const char *const some[] = { "torchtitan,hide_gradients=0.02,contend=0",
                                        "torchtitan,hide_gradients=0.02" };
    for (int i = 0; i < 2; i++) { /* nobody measured it on an MI325X */
        Question q;
        PlanPrice p;
        const char *const set[] = { "train.batch=16", "mesh.zero=3" };
        question_load(&q, "llama3-8b", "mi325x", 8, some[i], set, 2);
        question_open(&q);
        CHECK_OK(planner_price(q.planner, &q.layout, &p));
        s[i] = p.part_s[PLAN_GRADIENTS];
        question_close(&q);
    }
    CHECK(s[0] > 0);
    CHECK_NEAR(s[1], s[0], 0);
}

/* An fp8 weight that was gathered in bf16: 12 bytes of traffic a micro-batch. A piece of keys of another rank: outputs
 * of 4096 added up in f32, 38 bytes for three of four tokens, and 14 for each gradient. */
static void weights_are_cast_and_pieces_are_merged(void **state)
{
    (void)state;
    static const char *const stacks[] = { "torchtitan", "torchtitan,fp8_gather=0" };
    static const char *const cp[] = { "mesh.cp=1", "mesh.cp=2" };
    double traffic[2][2];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            Question q;
            OPEN(&q, "llama3-8b", stacks[i], "train.batch=8", "fp8.recipe=tensor", cp[k]);
            traffic[i][k] = entry_of(&q)->stack.at[STACK_traffic_attention];
            question_close(&q);
        }
    }
    CHECK_NEAR(traffic[0][0], 0, 0);
    CHECK_NEAR(traffic[1][0], 12.0 * 4096 * (4096 + 1024 + 1024 + 4096), 1);
    CHECK_NEAR(traffic[0][1], 2048 * (0.75 * 38 * 4096 + 14 * (4096 + 1024 + 1024)), 1);
}

/* The loss: compiled, bf16 and its gradient; eager, three of f32; in 8 chunks an eighth. */
static void logits_are_kept_as_the_loss_keeps_them(void **state)
{
    (void)state;
    static const char *const stacks[] = { "torchtitan", "torchtitan,loss_fusion=0",
                                          "torchtitan,loss_chunks=8" };
    static const double size[] = { 4, 12, 0.5 };
    for (int i = 0; i < 3; i++) {
        Question q;
        OPEN(&q, "llama3-8b", stacks[i], "train.batch=8");
        CHECK_NEAR(entry_of(&q)->stack.at[STACK_keep_head], 4096.0 * 2 * 4096, 1);
        CHECK_NEAR(entry_of(&q)->stack.at[STACK_working_head], 4096.0 * size[i] * 128256, 1);
        question_close(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(recompute_by_ops_keeps_products_and_attention),
        TEST(rows_of_an_all_to_all_are_kept_since_2025),
        TEST(a_layer_waits_for_sizes_of_messages),
        TEST(keys_of_other_documents_are_skipped),
        TEST(weights_are_gathered_in_bf16),
        TEST(gradients_take_the_place_of_activations),
        TEST(passes_beside_collectives_take_longer),
        TEST(weights_are_cast_and_pieces_are_merged),
        TEST(logits_are_kept_as_the_loss_keeps_them),
    };
    return TEST_RUN(tests);
}
