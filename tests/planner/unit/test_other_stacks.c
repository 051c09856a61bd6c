/* Layers of other stacks: what hides an exchange, what lives of one micro-batch at a time, modules that are computed
 * again. Bytes are worked by hand: Llama 3 8B has hidden 4096, 32 heads, queries of 4096, keys and values of 1024 each,
 * MLPs of 14336 and a vocabulary of 128256; a micro-batch has 4096 tokens. */
#include "harness/question.h"

#include "planner/price/price_private.h"

#include <math.h>

#define ALL "recompute.layers=[0,1,2,3,4,5,6,7]"

typedef struct Asked {
    Question q;
    const PriceEntry *entry;
} Asked;

static void ask(Asked *a, const char *model, int gpus, const char *stack, const char *const *set,
                int n)
{
    question_load(&a->q, model, "h100", gpus, stack, set, n);
    question_open(&a->q);
    CHECK_OK(planner_legal(a->q.planner, &a->q.layout));
    CHECK_OK(price_entry(a->q.planner, &a->q.layout, &a->entry));
}

#define ASK(a, model, gpus, stack, ...)                                                            \
    ask((a), model, gpus, stack,                                                                   \
        (const char *const[]){ "data.sequence=4096", "run.compute=bf16", "model.layers=8",         \
                               __VA_ARGS__ },                                                      \
        3 + (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

static const LayerPrice *layer_of(const Asked *a, LayerKind kind)
{
    const Planner *p = a->q.planner;
    for (int i = 0; i < p->classes; i++) {
        if (p->spec.layers[p->first_of[i]].kind == kind) return &a->entry->recomputed[i];
    }
    fail_msg("no layer of kind %d", (int)kind);
    return NULL;
}

static PlanPrice price_of(Asked *a)
{
    PlanPrice p;
    CHECK_OK(planner_price(a->q.planner, &a->q.layout, &p));
    return p;
}

/* ---- exchanges ---- */

/* Seconds of a MoE layer's exchange that do not show, and of its shared experts. */
static void hidden_of(const char *model, const char *hide, double *hidden, double *shared)
{
    const LayerDesc *moe = layer_desc(LAYER_MOE);
    double shown[2], lane[2];
    for (int i = 0; i < 2; i++) {
        Asked a;
        ASK(&a, model, 16, i == 0 ? "megatron,hide_ep=0" : hide, "mesh.ep=16", "train.batch=16");
        const LayerPrice *l = layer_of(&a, LAYER_MOE);
        const ChunkTimes *t = &l->time;
        shown[i] = t->forward[PHASE_DISPATCH] + t->forward[PHASE_COMBINE] +
                   t->input[PHASE_DISPATCH] + t->input[PHASE_COMBINE];
        lane[i] = l->lane_s[ROOFLINE_EXCHANGE];
        *shared = 0;
        for (int k = 0; k < moe->n_phases; k++) {
            if (moe->phases[k].overlap_ok)
                *shared += l->phase_s[PASS_FORWARD][k] + l->phase_s[PASS_INPUT][k];
        }
        question_close(&a.q);
    }
    *hidden = shown[0] - shown[1];
    CHECK_NEAR(lane[0] - lane[1], *hidden, 1e-12);
}

/* Over two hosts DeepSeek-V2-Lite's shared experts are shorter than its exchange: they hide what they take, and a small
 * share of it is hidden whole. Qwen3 has none: nothing hides. */
static void an_exchange_hides_behind_shared_experts_alone(void **state)
{
    (void)state;
    double hidden, shared, tenth;
    hidden_of("deepseek-v2-lite", "megatron,hide_ep=1", &hidden, &shared);
    CHECK(shared > 1e-5);
    CHECK_NEAR(hidden / shared, 1, 1e-9);
    hidden_of("deepseek-v2-lite", "megatron,hide_ep=0.01", &tenth, &shared);
    CHECK(tenth > 0 && tenth < hidden / 2);
    hidden_of("deepseek-v2-lite", "megatron,deepep=0,shared_overlap=1", &hidden, &shared);
    CHECK(hidden != 0);
    hidden_of("qwen3-30b-a3b", "megatron,hide_ep=1", &hidden, &shared);
    CHECK_NEAR(hidden, 0, 0);
    CHECK_NEAR(shared, 0, 0);
}

/* ---- memory ---- */

/* Bytes of a logit change what one micro-batch needs at a time, and not what a slot keeps: rank 3 has both chunks' slots
 * and the head. */
static void logits_live_of_one_micro_batch_at_a_time(void **state)
{
    (void)state;
    static const char *const stacks[] = { "megatron,logit_size=16", "megatron,logit_size=48" };
    PlanPrice p[2];
    for (int i = 0; i < 2; i++) {
        Asked a;
        ASK(&a, "llama3-8b", 4, stacks[i], "model.dense_layers=8", "mesh.pp=4", "mesh.vpp=2",
            "mesh.schedule=interleaved", "train.batch=16");
        p[i] = price_of(&a);
        CHECK_INT(p[i].worst_rank, 3);
        question_close(&a.q);
    }
    CHECK_NEAR(p[1].memory[PLAN_ACTIVATIONS], p[0].memory[PLAN_ACTIVATIONS], 0);
    CHECK_NEAR(p[1].peak_bytes - p[0].peak_bytes, 32.0 * 4096 * 128256, 1);
}

/* A dense model has no rows of experts: 2 x 4096 x (2 x 4096 + 2 x 14336) bytes, and logits of 2 bytes. */
static void a_dense_model_has_no_buffers_of_experts(void **state)
{
    (void)state;
    const double used = 2.0 * 4096 * (2 * 4096 + 2 * 14336), logits = 2.0 * 4096 * 128256;
    Asked a;
    ASK(&a, "llama3-8b", 1, "megatron", "model.dense_layers=8", "train.batch=1");
    PlanPrice p = price_of(&a);
    CHECK_NEAR(a.entry->stack.at[STACK_working], used, 1);
    CHECK_NEAR(p.memory[PLAN_WORKSPACE], logits, 1);
    question_close(&a.q);
}

/* Two blocks a stage: of a micro-batch the input of each block is kept, and while the second layer of a block runs
 * forward also its own. What a block keeps without is there once, however many micro-batches are in flight. */
static void a_recomputed_block_keeps_its_input_alone(void **state)
{
    (void)state;
    const double stream = 2.0 * 4096 * 4096;
    const double block = 4096.0 * (2 * 4096 + 2 * (4096 + 1024 + 1024 + 4096) + 4 * 32) +
                         4096.0 * (2 * (4096 + 14336) + 4 * 14336);
    Asked a, plain;
    ASK(&a, "llama3-8b", 4, "megatron,logit_size=0.1", "model.dense_layers=8", "mesh.pp=4",
        "train.batch=16", "recompute.pieces=[layer]", ALL);
    ASK(&plain, "llama3-8b", 4, "megatron,logit_size=0.1", "model.dense_layers=8", "mesh.pp=4",
        "train.batch=16");
    PlanPrice p = price_of(&a);
    CHECK_INT(p.worst_rank, 0);
    CHECK_NEAR(p.memory[PLAN_ACTIVATIONS] / (4 * stream), 3, 0.01);
    CHECK_NEAR(a.entry->stack.at[STACK_working] - plain.entry->stack.at[STACK_working], block, 1);
    question_close(&a.q);
    question_close(&plain.q);
}

/* Trainers in PyTorch allocate the rows that come: pools are our own engine's. */
static void other_stacks_have_no_pools(void **state)
{
    (void)state;
    static const char *const stacks[] = { "megatron", "torchtitan", "switchyard" };
    for (int i = 0; i < 3; i++) {
        Asked a;
        ASK(&a, "qwen3-30b-a3b", 8, stacks[i], "mesh.ep=8", "train.batch=8");
        CHECK_INT(price_of(&a).buffers, i == 2 ? BUFFERS_POOLED : PLAN_COUNTED_ROWS);
        question_close(&a.q);
    }
}

/* Context and allocator 1.75 GiB; each communicator 0.65: all ranks and replicas, two of experts, two of a pipeline. */
static void a_process_holds_its_communicators(void **state)
{
    (void)state;
    static const struct {
        const char *pp, *ep;
        double communicators;
    } row[] = { { "mesh.pp=1", "mesh.ep=1", 2 },
                { "mesh.pp=2", "mesh.ep=1", 4 },
                { "mesh.pp=2", "mesh.ep=4", 6 } };
    for (int i = 0; i < 3; i++) {
        Asked a;
        ASK(&a, "qwen3-30b-a3b", 8, "megatron", "train.batch=16", row[i].pp, row[i].ep);
        CHECK_NEAR(price_of(&a).memory[PLAN_RESERVE],
                   (1.75 + 0.65 * row[i].communicators) * PLAN_GIB, 1);
        question_close(&a.q);
    }
}

/* ---- modules ---- */

/* core_attn runs attention forward again and keeps its sums of exponentials no more; mlp keeps its norm's output, and
 * runs two of its nine products again: nobody needs the third's result. */
static void single_modules_are_computed_again(void **state)
{
    (void)state;
    Asked none, core, mlp;
    ASK(&none, "llama3-8b", 1, "megatron", "model.dense_layers=8", "train.batch=1");
    ASK(&core, "llama3-8b", 1, "megatron", "model.dense_layers=8", "train.batch=1",
        "recompute.pieces=[core_attn]", ALL);
    ASK(&mlp, "llama3-8b", 1, "megatron", "model.dense_layers=8", "train.batch=1",
        "recompute.pieces=[mlp]", ALL);
    const LayerPrice *plain = layer_of(&none, LAYER_ATTENTION);
    const LayerPrice *again = layer_of(&core, LAYER_ATTENTION);
    CHECK_NEAR((double)plain->count.keep - (double)again->count.keep, 4.0 * 4096 * 32, 256);
    CHECK(price_layer_s(again) > 1.05 * price_layer_s(plain));
    CHECK(price_layer_s(again) < 1.4 * price_layer_s(plain));
    CHECK_NEAR(price_layer_s(layer_of(&core, LAYER_MLP)), price_layer_s(layer_of(&none, LAYER_MLP)),
               1e-12);
    CHECK_NEAR((double)layer_of(&mlp, LAYER_MLP)->count.keep, 2.0 * 4096 * 4096, 256);
    CHECK_NEAR(price_layer_s(layer_of(&mlp, LAYER_MLP)) / price_layer_s(layer_of(&none, LAYER_MLP)),
               1 + 2.0 / 9, 0.03);
    CHECK_NEAR((double)layer_of(&mlp, LAYER_ATTENTION)->count.keep, (double)plain->count.keep, 0);
    question_close(&none.q);
    question_close(&core.q);
    question_close(&mlp.q);
}

/* A MoE layer that is named is recomputed with its exchange; attention beside it is not. */
static void a_moe_layer_is_recomputed_alone(void **state)
{
    (void)state;
    Asked none, moe;
    ASK(&none, "qwen3-30b-a3b", 8, "megatron", "mesh.ep=8", "train.batch=8");
    ASK(&moe, "qwen3-30b-a3b", 8, "megatron", "mesh.ep=8", "train.batch=8",
        "recompute.pieces=[moe]", ALL);
    CHECK_NEAR((double)layer_of(&moe, LAYER_MOE)->count.keep, 2.0 * 4096 * 2048, 256);
    CHECK_NEAR(layer_of(&moe, LAYER_MOE)->lane_s[ROOFLINE_EXCHANGE] /
                   layer_of(&none, LAYER_MOE)->lane_s[ROOFLINE_EXCHANGE],
               1.25, 0.02); /* tokens go out again; results need not come back */
    CHECK_NEAR(price_layer_s(layer_of(&moe, LAYER_ATTENTION)),
               price_layer_s(layer_of(&none, LAYER_ATTENTION)), 1e-12);
    question_close(&none.q);
    question_close(&moe.q);
}

/* Unfused attention keeps its softmax in bf16, 32 heads x 4096 x 4096, which core_attn does not. */
static void unfused_attention_keeps_its_scores(void **state)
{
    (void)state;
    const double scores = 2.0 * 32 * 4096 * 4096;
    Asked fused, plain, again;
    ASK(&fused, "llama3-8b", 1, "megatron", "model.dense_layers=8", "train.batch=1");
    ASK(&plain, "llama3-8b", 1, "megatron,flash=0", "model.dense_layers=8", "train.batch=1");
    ASK(&again, "llama3-8b", 1, "megatron,flash=0", "model.dense_layers=8", "train.batch=1",
        "recompute.pieces=[core_attn]", ALL);
    const double keep = (double)layer_of(&fused, LAYER_ATTENTION)->count.keep;
    CHECK_NEAR((double)layer_of(&plain, LAYER_ATTENTION)->count.keep - keep, scores, 256);
    CHECK_NEAR(keep - (double)layer_of(&again, LAYER_ATTENTION)->count.keep, 4.0 * 4096 * 32, 256);
    CHECK(price_layer_s(layer_of(&plain, LAYER_ATTENTION)) >
          1.5 * price_layer_s(layer_of(&fused, LAYER_ATTENTION)));
    CHECK_NEAR(plain.entry->stack.at[STACK_traffic_attention], 11 * scores, 1);
    CHECK_NEAR(again.entry->stack.at[STACK_traffic_attention], 15 * scores, 1);
    question_close(&fused.q);
    question_close(&plain.q);
    question_close(&again.q);
}

/* ---- what a stack has not ---- */

static void modules_that_a_stack_has_not_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "switchyard", "recompute.pieces=[core_attn]",
          "recompute.pieces core_attn: this stack computes no such part of a layer again, but "
          "norm, "
          "attn_up, act, shared, layer, exchange" },
        { "torchtitan", "recompute.pieces=[norm, mlp]",
          "recompute.pieces mlp: this stack computes no such part of a layer again, but norm, act, "
          "layer" },
        { "megatron", "recompute.pieces=[attn_up]", "recompute.pieces attn_up: this stack" },
        { "megatron", "recompute.pieces=[exchange]", "recompute.pieces exchange: this stack" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const set[] = { "model.layers=8", "model.dense_layers=8", "train.batch=8", ALL,
                                    cases[i][1] };
        Question q;
        question_load(&q, "llama3-8b", "h100", 1, cases[i][0], set, 5);
        question_open(&q);
        CHECK_FAILS(planner_legal(q.planner, &q.layout), ERR_ARG, cases[i][2]);
        question_close(&q);
    }
}

/* The engine would recompute nothing without a word. */
static void the_engine_refuses_modules_of_others(void **state)
{
    (void)state;
    static const char *const pieces[][2] = { { "recompute.pieces=[norm, moe]", "pieces moe" },
                                             { "recompute.pieces=[mlp]", "pieces mlp" },
                                             { "recompute.pieces=[core_attn]",
                                               "pieces core_attn" } };
    for (int i = 0; i < 3; i++) {
        const char *const set[] = { pieces[i][0], "recompute.layers=[0]" };
        Question q;
        question_load(&q, "llama3-8b", "h100", 1, "switchyard", set, 2);
        CHECK_FAILS(config_check_ops(&q.config, 1), ERR_UNSUPPORTED, pieces[i][1]);
        q.config.recompute_layers.n = 0;
        CHECK_OK(config_check_ops(&q.config, 1));
        arena_free(&q.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_exchange_hides_behind_shared_experts_alone),
        TEST(logits_live_of_one_micro_batch_at_a_time),
        TEST(a_dense_model_has_no_buffers_of_experts),
        TEST(a_recomputed_block_keeps_its_input_alone),
        TEST(other_stacks_have_no_pools),
        TEST(a_process_holds_its_communicators),
        TEST(single_modules_are_computed_again),
        TEST(a_moe_layer_is_recomputed_alone),
        TEST(unfused_attention_keeps_its_scores),
        TEST(modules_that_a_stack_has_not_are_refused_by_name),
        TEST(the_engine_refuses_modules_of_others),
    };
    return TEST_RUN(tests);
}
