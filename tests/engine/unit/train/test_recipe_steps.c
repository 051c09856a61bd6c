/* Steps with 8-bit products: memory is as planned, bits depend neither on threads nor on recompute, an
 * infinity is named, and gradients point where those of f32 do. */
#include "engine/model/recipe.h"
#include "engine/step/copies.h"
#include "engine/step/shards.h"
#include "harness/param_view.h"
#include "harness/tiny.h"
#include "kernels/quant/quant.h"

#include <float.h>

enum { SETTINGS_MAX = 8 };

#define HEAD_8_BIT "fp8.recipe=block", "fp8.head=true", "model.vocab=64", "model.loss_chunk=128"

/* Models that differ in what is quantised, and how: each option of a recipe at least once. */
static const char *const models[][SETTINGS_MAX] = {
    { "fp8.recipe=block", "moe.shared=1", "attention.q_rank=9" },
    { "fp8.recipe=block", "moe.ffn=128", "run.compute=bf16" },
    { "fp8.recipe=row", "fp8.format=hybrid", "moe.shared=2", "run.compute=bf16" },
    { "fp8.recipe=tensor", "attention.kind=gqa", "attention.bias=true", "moe.shared=0" },
    { "fp8.recipe=block", "fp8.scales=exact", "attention.kind=gqa", "moe.expert_bias=true",
      "moe.activation=clamped", "moe.limit=2" },
    { "fp8.recipe=row", "fp8.wgrad=bf16", "moe.shared_gate=true", "moe.every=2",
      "model.dense_layers=0" },
    { "fp8.recipe=tensor", "fp8.scales=pow2", "fp8.layers=[0, 2]", "run.compute=bf16" },
    { "fp8.recipe=block", "mtp.layers=1", "attention.kind=gqa",
      "init.frozen=[\"*.o_proj.*\", \"*.experts.*.down_proj.*\"]" },
    { "fp8.attention=true", "fp8.recipe=block" },
    { "fp8.attention=true", "attention.kind=gqa", "attention.sinks=true", "run.compute=bf16" },
    { "fp8.recipe=mx", "fp8.format=e2m1", "moe.shared=1", "run.compute=bf16" },
    { "fp8.recipe=mx", "fp8.format=hybrid", "attention.kind=gqa", "mtp.layers=1" },
    { "fp8.recipe=block", "fp8.format=hybrid", "fp8.wgrad=bf16", "run.compute=bf16",
      "moe.expert_bias=true", "moe.score_input=true", "moe.top_k=1", "moe.score=sigmoid" },
    { "fp8.recipe=block", "fp8.dispatch=bf16", "moe.shared=1" },
    { HEAD_8_BIT, "mtp.layers=1", "run.compute=bf16" },
    { "fp8.recipe=block", "attention.kind=gqa", "attention.qk_norm=rms", "attention.gate=true" },
    { "fp8.recipe=block", "fp8.head=true", "model.vocab=80", "model.loss_chunk=0",
      "fp8.format=hybrid", "fp8.wgrad=bf16" },
};
enum { MODELS = sizeof models / sizeof *models };

/* A model's settings, then one more. */
static void open_with(Tiny *t, int model, const char *more, const char *also)
{
    const char *all[SETTINGS_MAX + 3] = { 0 };
    int n = 0;
    for (int i = 0; i < SETTINGS_MAX && models[model][i] != NULL; i++) all[n++] = models[model][i];
    all[n++] = more;
    if (also != NULL) all[n++] = also;
    tiny_open(t, all);
}

static void used_bytes_are_the_planned_bytes(void **state)
{
    (void)state;
    static const char *const settings[] = { "recompute.layers=[]", "recompute.layers=[0, 2]",
                                            "train.micro_batch=1" };
    for (int i = 0; i < 3 * MODELS; i++) {
        Tiny t;
        open_with(&t, i / 3, settings[i % 3], NULL);
        tiny_steps(&t, 0, 2);
        tiny_check_planned(&t);
        tiny_close(&t);
    }
}

/* The same state after two steps as with `usual`. */
static void check_same(int model, const char *usual, const char *other, const char *pieces)
{
    Tiny one, two;
    open_with(&one, model, usual, NULL);
    open_with(&two, model, other, pieces);
    tiny_steps(&one, 0, 2);
    tiny_steps(&two, 0, 2);
    CHECK(tiny_same_state(&one, &two));
    tiny_close(&one);
    tiny_close(&two);
}

static void threads_do_not_change_a_bit(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) check_same(m, "run.threads=1", "run.threads=2", NULL);
}

/* What is quantised a second time has the bytes of the first time. Each model takes two of the four. */
static void recompute_does_not_change_a_bit(void **state)
{
    (void)state;
    static const char *const pieces[] = { "recompute.pieces=[layer]",
                                          "recompute.pieces=[norm, attn_up, act, shared]",
                                          "recompute.pieces=[attn_up]", "recompute.pieces=[norm]" };
    for (int i = 0; i < 2 * MODELS; i += MANY_EVERY)
        check_same(i / 2, "recompute.layers=[]", "recompute.layers=[0, 1, 2]",
                   pieces[(i + i / 4 * 2) % 4]);
}

#define BLOCK "fp8.recipe=block", "moe.ffn=128", "model.vocab=64", "model.loss_chunk=128"

static void every_setting_of_a_recipe_changes_the_step(void **state)
{
    (void)state;
    static const char *const change[] = {
        "fp8.recipe=none",  "fp8.recipe=row",    "fp8.recipe=tensor",  "fp8.format=hybrid",
        "fp8.scales=exact", "fp8.layers=[1]",    "fp8.wgrad=bf16",     "fp8.products=grouped",
        "fp8.kept=plain",   "fp8.dispatch=bf16", "fp8.attention=true", "fp8.recipe=mx",
        "fp8.head=true"
    };
    Tiny plain;
    tiny_open(&plain, TINY(BLOCK));
    tiny_steps(&plain, 0, 1);
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        Tiny t;
        tiny_open(&t, TINY(BLOCK, change[i]));
        tiny_steps(&t, 0, 1);
        CHECK(!tiny_same_state(&plain, &t));
        tiny_close(&t);
    }
    tiny_close(&plain);
}

/* 8-bit copies are those of the weights that the last update left: a step from loaded weights has the bits
 * of a step behind another one, whether the update writes them or the step's beginning does. */
static void copies_follow_the_update(void **state)
{
    (void)state;
    static const char *const updates[] = { "optimizer.kind=adamw", "optimizer.offload=true",
                                           "optimizer.kind=muon" };
    for (int m = 0; m < 3; m++) {
        Tiny one, two;
        StepResult a, b;
        open_with(&one, m, "run.threads=1", updates[m]);
        open_with(&two, m, "run.threads=1", updates[m]);
        tiny_steps(&one, 0, 1);
        CHECK_OK(engine_init_weights(&two.engine.params, 7)); /* with copies of other weights */
        for (int k = 0; k < BUF_COUNT; k++) {
            const Tensor *from = &one.engine.params.memory.buffer[k];
            if (from->data != NULL)
                memcpy(two.engine.params.memory.buffer[k].data, from->data, tensor_bytes(from));
        }
        CHECK_OK(copies_refresh(&two.engine.params));
        a = tiny_steps(&one, 1, 1);
        b = tiny_steps(&two, 1, 1);
        CHECK_NEAR(a.loss, b.loss, 0);
        CHECK(tiny_same_state(&one, &two));
        tiny_close(&one);
        tiny_close(&two);
    }
}

/* ---- weights without a place in BUF_WEIGHT ---- */

static int64_t low_elems(const EngineParams *w)
{
    int64_t n = 0;
    for (int i = 0; i < w->n_ranges; i++)
        n += w->ranges[i].low.data != NULL ? tensor_elems(&w->ranges[i].low) : 0;
    return n;
}

/* By hand, each role from a multiple of 64 elements on: the table and the head have 61 x 32 = 1952, so 1984
 * each. Norms: of attention 32 and 12 in 128, three times; of the MLP, of two MoE layers and of the head 64
 * each; each router 6 x 32 = 192. A shared gate (1 x 32) keeps the dense bucket of its layer, with gate and
 * up (40 x 32) and down (32 x 20) of the shared expert: 64 + 1280 + 640. */
static void what_is_quantised_has_no_bf16_copy(void **state)
{
    (void)state;
    static const struct {
        const char *settings[5];
        int64_t elems; /* of BUF_WEIGHT; -1: as many as main weights */
    } rows[] = {
        { { "run.compute=bf16", "fp8.recipe=block" }, 2 * 1984 + 3 * 128 + 4 * 64 + 2 * 192 },
        { { "run.compute=bf16", "fp8.recipe=row", "moe.shared_gate=true" },
          2 * 1984 + 3 * 128 + 4 * 64 + 2 * 192 + 2 * (64 + 1280 + 640) },
        { { "run.compute=bf16", "fp8.recipe=none" }, -1 },
        { { "run.compute=bf16", HEAD_8_BIT }, 2048 + 3 * 128 + 4 * 64 + 2 * 192 },
        { { "run.compute=f32", "fp8.recipe=block" }, -1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Tiny t;
        const char *const *s = rows[i].settings;
        tiny_open(&t, TINY("moe.shared=1", s[0], s[1], s[2], s[3], s[4]));
        const EngineParams *w = &t.engine.params;
        int64_t all = tensor_elems(&w->memory.buffer[BUF_MAIN]);
        int64_t have = tensor_elems(&w->memory.buffer[BUF_WEIGHT]);
        CHECK_INT(have, rows[i].elems < 0 ? all : rows[i].elems);
        if (strcmp(s[0], "run.compute=bf16") == 0) CHECK_INT(low_elems(w), have);
        CHECK(w->memory.stage.data == NULL);
        tiny_close(&t);
    }
}

/* The 8-bit copies of a layer's matrix are those of its main weights, cast to bf16. */
static void check_copies(Tiny *t, const Matrix *m)
{
    EngineParams *w = &t->engine.params;
    const Operand *have = w->layer[m->layer].scaled[0], *turned = w->layer[m->layer].scaled[1];
    if (m->bucket < 0 || have[m->role].data.data == NULL) return;
    const ParamBucket *k = &w->table.bucket[m->bucket];
    Tensor main = bucket_whole(&w->table, &w->memory, k, BUF_MAIN);
    int64_t n = matrix_elems(m);
    uint16_t *low = malloc((size_t)n * sizeof *low);
    dtype_from_f32(low, DTYPE_BF16, tensor_at(&main, m->first), n);
    LayerWeights want = { 0 };
    Quantize q = { .x.data = matrix_at(m, low, DTYPE_BF16), .pow2 = t->engine.spec.recipe.pow2 };
    want.w[m->role] = q.x;
    CHECK_OK(recipe_alloc(&t->engine.spec, &t->engine.spec.layers[m->layer], &t->arena, &want));
    q.quant = want.scaled[0][m->role], q.transposed = want.scaled[1][m->role];
    CHECK_OK(quantize(&t->engine.ex, q));
    const Operand *a[] = { &q.quant, &q.transposed }, *b[] = { &have[m->role], &turned[m->role] };
    for (int i = 0; i < 2; i++) {
        CHECK(memcmp(a[i]->data.data, b[i]->data.data, (size_t)n) == 0);
        CHECK(memcmp(a[i]->scale.data, b[i]->scale.data, tensor_bytes(&a[i]->scale)) == 0);
    }
    free(low);
}

/* Modules of multi-token prediction have no copies of the head's matrix: they would not follow the update. */
static void check_head(const EngineParams *w)
{
    const LayerWeights *head = &w->layer[w->spec->n_layers - 1];
    for (int i = 0; i < w->spec->n_layers; i++) {
        if (w->layer[i].w[ROLE_HEAD].data.data == NULL) continue;
        for (int k = 0; k < 2; k++)
            CHECK(w->layer[i].scaled[k][ROLE_HEAD].data.data ==
                  head->scaled[k][ROLE_HEAD].data.data);
    }
}

/* After a step, as the next one will find them. Returns how many matrices' copies the update wrote. */
static int check_step(int model, const char *more)
{
    Tiny t;
    int written = 0;
    open_with(&t, model, "run.compute=bf16", more);
    const EngineParams *w = &t.engine.params;
    tiny_steps(&t, 0, 1);
    CHECK_OK(copies_quantise(&t.engine.params, false));
    for (int k = 0; k < w->table.n_matrices; k++) {
        check_copies(&t, &w->table.matrix[k]);
        written += shards_update_copies(w, &w->table.matrix[k]);
    }
    check_head(w);
    tiny_close(&t);
    return written;
}

static void copies_are_those_of_main_weights_in_the_type_of_compute(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i += MANY_EVERY) (void)check_step(i, NULL);
}

/* Matrices that are ranges of their own leave out nothing that lies between them, and change no bit. */
static void the_update_has_the_bits_of_one_without_copies(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++)
        check_same(i, "optimizer.offload=true", "optimizer.offload=false", NULL);
}

/* What changes weights after the update, or takes their states in pieces, leaves copies to the next step's beginning. */
static void the_update_writes_copies_of_what_it_takes_whole(void **state)
{
    (void)state;
    int all = check_step(0, NULL), clipped = check_step(0, "optimizer.qk_clip=0.000001");
    CHECK(all > 10 && clipped > 0 && clipped < all);
    CHECK_INT(check_step(0, "optimizer.offload=true"), 0);
    CHECK(check_step(14, "optimizer.kind=muon") > 0); /* its head alone follows AdamW */
    CHECK(check_step(14, "optimizer.kind=muon") < all);
}

/* An evaluation behind a step reads copies of the weights that the step left. */
static void an_evaluation_reads_copies_of_the_last_weights(void **state)
{
    (void)state;
    enum { TOKENS = 16 }; /* of those of a micro-batch */
    Tiny t;
    const float *losses = NULL;
    float before[TOKENS];
    open_with(&t, 0, "run.threads=1",
              "optimizer.offload=true"); /* so that no update writes copies */
    tiny_steps(&t, 0, 1);
    t.batch.domain.dim[0] = t.shape.micro_batch;
    for (int i = 0; i < 2; i++) { /* the second finds copies that are new */
        CHECK_OK(engine_losses(&t.engine, &t.batch, &losses));
        memcpy(before, losses, sizeof before);
        CHECK_OK(copies_quantise(&t.engine.params, true));
        CHECK_OK(engine_losses(&t.engine, &t.batch, &losses));
        CHECK(memcmp(before, losses, sizeof before) == 0 && isfinite(before[0]));
    }
    tiny_close(&t);
}

/* The update makes the copies of an infinite weight. Then a product overflows, and the MLP's activations with it. */
static void an_infinity_is_named_by_step_layer_product_and_place(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY("fp8.recipe=block"));
    tiny_steps(&t, 0, 1);
    Tensor w = t.engine.params.layer[5].w[ROLE_Q].data;
    ((float *)w.data)[3] = INFINITY;
    CHECK_FAILS(engine_step(&t.engine, &t.batch, 1e-2, 2, &r), ERR_NUMERIC,
                "step 2, layer 2: quantize: x, attention's q projection is infinite at row 0, "
                "column 3: it has no scale");
    ((float *)w.data)[3] = 0;
    Tensor down = t.engine.params.layer[2].w[ROLE_GATE_UP].data;
    for (int64_t i = 0; i < tensor_elems(&down); i++) ((float *)down.data)[i] = FLT_MAX / 2;
    CHECK_OK(copies_refresh(&t.engine.params));
    CHECK_FAILS(engine_step(&t.engine, &t.batch, 1e-2, 2, &r), ERR_NUMERIC,
                "step 2, layer 0: quantize: x, the input of the MLP's down projection is infinite");
    tiny_close(&t);
}

/* ---- gradients ---- */

/* A text of words in a skewed distribution, each of which four others may follow. */
static void write_text(Tiny *t, int64_t step)
{
    Batch *b = &t->batch;
    int32_t *id = b->id.data, *target = b->target.data;
    uint64_t stream = rng_stream("text"), vocab = (uint64_t)t->config.model_vocab;
    int64_t n = tensor_elems(&b->id), seq = t->shape.sequence;
    for (int64_t i = 0; i < n; i++) {
        uint64_t follows = rng_below(3, stream, (uint64_t)(step * n + i), 4),
                 before = (uint64_t)id[i > 0 ? i - 1 : 0];
        double u = i % seq == 0 ? 0.5 : rng_uniform(4, stream, 4 * before + follows);
        id[i] = (int32_t)(u * u * u * (double)vocab);
        if (i > 0) target[i - 1] = id[i];
    }
    target[n - 1] = id[0];
    b->targets = n;
}

static void open_quickstart(Tiny *t, const char *recipe, const char *layers)
{
    const char *set[] = { "data.sources=[]",
                          "data.tokenizer=",
                          "data.sequence=128",
                          "train.batch=4",
                          "train.micro_batch=4",
                          "moe.forced_balance=true",
                          "run.device=cpu",
                          "run.tune=false",
                          "run.threads=2",
                          "run.compute=bf16",
                          recipe,
                          layers };
    *t = (Tiny){ 0 };
    CHECK_OK(arena_init(&t->arena, "quickstart", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(config_load(&t->config, &t->arena, "quickstart", set, sizeof set / sizeof *set));
    CHECK_OK(tiny_start(t, NULL));
    write_text(t, 0);
}

/* The cosine of two gradients of a parameter; 1 where both are 0 (an expert without tokens). */
static double cosine(const Param *p, const Tiny *a, const Tiny *b)
{
    Tensor x = param_view(p, &a->engine.params.memory, BUF_GRAD);
    Tensor y = param_view(p, &b->engine.params.memory, BUF_GRAD);
    double xy = 0, xx = 0, yy = 0;
    for (int64_t i = 0; i < tensor_elems(&x); i++) {
        double u = (double)((const float *)x.data)[i], v = (double)((const float *)y.data)[i];
        xy += u * v, xx += u * u, yy += v * v;
    }
    return xx == 0 && yy == 0 ? 1 : xy / sqrt(xx * yy);
}

/* Gradients that point least in the direction of `plain`'s. */
static double least_cosine(const Tiny *plain, const Tiny *t, const Param **worst)
{
    double least = 2;
    *worst = NULL;
    for (int k = 0; k < t->engine.params.table.n; k++) {
        const Param *p = &t->engine.params.table.at[k];
        if (p->bucket < 0) continue;
        double c = cosine(p, plain, t);
        if (!(c >= least) || *worst == NULL) least = c, *worst = p;
    }
    return least;
}

/* The first step from the initial weights, so the roundings of one step alone are seen. Positions choose
 * experts: among initial weights many choices are so close that a rounding decides them.
 *
 * e4m3 keeps a sign and four binary digits. Its rounding has a mean square of (1/8)^2 / 12 in
 * numbers of 1 to 2, which is 2 * 0.026^2 = 0.0013 of a product with two rounded operands. Errors of
 * products in a row add up, so behind n of them the cosine is about 1 - 0.0013 n / 2. The first layer's
 * output is larger than the embedding that it is added to, and hides no error of its own: with it 30
 * products lie in a row at most (0.98), of the two last layers alone 14 (0.991). Each binary digit less
 * makes errors four times as large: e3m2 has one less (0.92), e2m1 two (0.66). */
static void gradients_of_the_first_step_are_close_to_those_without_a_recipe(void **state)
{
    (void)state;
    static const struct {
        const char *recipe, *layers;
        double limit;
    } rows[] = {
        { "fp8.recipe=block", "fp8.layers=[]", 0.975 },
        { "fp8.recipe=row", "fp8.layers=[]", 0.975 },
        { "fp8.recipe=tensor", "fp8.layers=[]", 0.975 },
        { "fp8.recipe=block", "fp8.layers=[2, 3]", 0.99 },
        { "fp8.recipe=row", "fp8.layers=[2, 3]", 0.99 },
        { "fp8.recipe=tensor", "fp8.layers=[2, 3]", 0.99 },
        { "fp8.recipe=block", "fp8.head=true", 0.975 },
        { "fp8.recipe=mx", "fp8.format=e4m3", 0.97 },
        { "fp8.recipe=mx", "fp8.format=e2m3", 0.97 },
        { "fp8.recipe=mx", "fp8.format=e3m2", 0.9 },
        { "fp8.recipe=mx", "fp8.format=e2m1", 0.6 },
    };
    Tiny plain;
    StepResult want, have;
    open_quickstart(&plain, "fp8.recipe=none", "fp8.layers=[]");
    CHECK_OK(engine_step(&plain.engine, &plain.batch, 1e-3, 1, &want));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i += RUNS(1, 3)) {
        Tiny t;
        const Param *worst;
        open_quickstart(&t, rows[i].recipe, rows[i].layers);
        CHECK_OK(engine_step(&t.engine, &t.batch, 1e-3, 1, &have));
        CHECK_NEAR(have.loss / want.loss, 1, 1e-3);
        double least = least_cosine(&plain, &t, &worst);
        if (!(least >= rows[i].limit))
            fail_msg("%s %s: the gradient of %s has the cosine %.5f", rows[i].recipe,
                     rows[i].layers, worst->name, least);
        tiny_close(&t);
    }
    tiny_close(&plain);
}

/* The mean loss of the last ten of fifty steps. */
static double late_loss(const char *recipe, const char *head)
{
    enum { STEPS = 50, LATE = 10 };
    Tiny t;
    double sum = 0;
    tiny_open(&t,
              TINY("run.compute=bf16", "model.hidden=64", "train.batch=16", "train.micro_batch=16",
                   "model.vocab=64", "model.loss_chunk=128", recipe, head));
    for (int64_t i = 0; i < STEPS; i++) {
        StepResult r;
        write_text(&t, i);
        CHECK_OK(engine_step(&t.engine, &t.batch, 5e-3, i + 1, &r));
        CHECK(r.finite && isfinite(r.loss));
        if (i >= STEPS - LATE) sum += r.loss / LATE;
    }
    tiny_close(&t);
    return sum;
}

/* docs/fp8.md has the same of the quickstart's text. */
static void fifty_steps_learn_as_much_as_without_a_recipe(void **state)
{
    (void)state;
    static const char *const recipes[] = { "fp8.recipe=block", "fp8.recipe=row",
                                           "fp8.recipe=tensor" };
    double plain = late_loss("fp8.recipe=none", NULL);
    CHECK(plain < 0.8 * log(64));
    for (int i = 0; i < RUNS(3, 1); i++) CHECK_NEAR(late_loss(recipes[i], NULL) / plain, 1, 0.01);
    CHECK_NEAR(late_loss(recipes[0], "fp8.head=true") / plain, 1, 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(used_bytes_are_the_planned_bytes),
        TEST(threads_do_not_change_a_bit),
        TEST(recompute_does_not_change_a_bit),
        TEST(every_setting_of_a_recipe_changes_the_step),
        TEST(copies_follow_the_update),
        TEST(what_is_quantised_has_no_bf16_copy),
        TEST(copies_are_those_of_main_weights_in_the_type_of_compute),
        TEST(the_update_writes_copies_of_what_it_takes_whole),
        TEST(the_update_has_the_bits_of_one_without_copies),
        TEST(an_evaluation_reads_copies_of_the_last_weights),
        TEST(an_infinity_is_named_by_step_layer_product_and_place),
        TEST(fifty_steps_learn_as_much_as_without_a_recipe),
        TEST(gradients_of_the_first_step_are_close_to_those_without_a_recipe),
    };
    return TEST_RUN(tests);
}
