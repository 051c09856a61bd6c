/* QK-clip in the engine: what a step notes of logits, and what the next step finds. */
#include "harness/param_view.h"
#include "harness/tiny.h"

#define MODEL                                                                                      \
    "attention.heads=8", "optimizer.weight_decay=0", "train.micro_batch=2", "model.layers=2",      \
        "model.init_std=0.3"
#define CLIPPED MODEL, "optimizer.qk_clip=1e6"
#define GQA     CLIPPED, "attention.kind=gqa", "attention.kv_heads=2"
#define BIASED  GQA, "attention.bias=true", "attention.out_bias=true"

enum { HEADS = 8 };

/* A step whose learning rate is 0: QK-clip alone changes weights. It notes all logits, and clips those
 * above tau. */
static const float *still_step(Tiny *t, double tau, int64_t step, StepResult *out)
{
    t->engine.modes[0].spec.optimizer.qk_clip = 1e-6F;
    t->engine.spec.optimizer.qk_clip = (float)tau;
    CHECK_OK(engine_step(&t->engine, &t->batch, 0, step, out));
    return t->engine.io.record.logits.data;
}

/* A threshold that some heads of the first layer are above. */
static double middle(const float *logits)
{
    double least = (double)logits[0], most = least;
    for (int h = 1; h < HEADS; h++) {
        least = fmin(least, (double)logits[h]);
        most = fmax(most, (double)logits[h]);
    }
    CHECK(most > 1.05 * least && least > 0);
    return (least + most) / 2;
}

/* The first layer's input is the same in all steps, so each of its heads comes back at its logit, or at
 * the threshold. */
static void check_comes_back(const char *const *settings, double limit)
{
    Tiny t;
    StepResult r;
    float before[HEADS];
    tiny_open(&t, settings);
    CHECK_INT(tensor_elems(&t.engine.io.record.logits), 2 * HEADS);
    memcpy(before, still_step(&t, 1e6, 1, &r), sizeof before);
    const double tau = middle(before);
    (void)still_step(&t, tau, 2, &r);
    const float *after = still_step(&t, 1e6, 3, &r);
    for (int h = 0; h < HEADS; h++) {
        const double want = fmin((double)before[h], tau);
        CHECK_NEAR((double)after[h], want, limit * want);
    }
    tiny_close(&t);
}

static void a_clipped_head_comes_back_at_the_threshold(void **state)
{
    (void)state;
    check_comes_back(TINY(CLIPPED), 1e-5);
    check_comes_back(TINY(CLIPPED, "attention.q_rank=16", "optimizer.kind=muon"), 1e-5);
    check_comes_back(TINY(GQA, "attention.window=5", "attention.sinks=true"), 1e-5);
    check_comes_back(TINY(GQA, "attention.rotary=0.5", "recompute.layers=[0,1]"), 1e-5);
    check_comes_back(TINY(CLIPPED, "attention.chunk=7", "run.compute=bf16"), 1e-2);
    check_comes_back(TINY(GQA, "run.compute=bf16", "attention.document_mask=false"), 1e-2);
    check_comes_back(TINY(CLIPPED, "run.compute=f16"), 2e-3);
}

/* Biases of queries and keys begin at 0: as vectors that count they must be scaled like rows. */
static void biases_are_scaled_with_their_rows(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    float before[HEADS];
    tiny_open(&t, TINY(BIASED));
    for (int i = 0; i < t.engine.params.table.n; i++) {
        const Param *p = &t.engine.params.table.at[i];
        float *w = param_view(p, &t.engine.params.memory, BUF_MAIN).data;
        for (int64_t k = 0; p->role == ROLE_A_BIAS && k < param_elems(p); k++)
            w[k] = 0.5F + 0.01F * (float)(k % 17);
    }
    memcpy(before, still_step(&t, 1e6, 1, &r), sizeof before);
    const double tau = middle(before);
    (void)still_step(&t, tau, 2, &r);
    const float *after = still_step(&t, 1e6, 3, &r);
    for (int h = 0; h < HEADS; h++)
        CHECK_NEAR((double)after[h], fmin((double)before[h], tau), 1e-5 * tau);
    tiny_close(&t);
}

/* What a step tells: nothing where no head is above the threshold, and nothing of a skipped step. */
static void a_step_reports_the_heads_that_it_clipped(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY(CLIPPED, "optimizer.skip_spikes=2"));
    t.engine.modes[0].spec.optimizer.qk_clip = 1e6F;
    CHECK_OK(engine_step(&t.engine, &t.batch, 0, 1, &r));
    CHECK_INT(r.clipped, 0);
    CHECK_NEAR(r.logit, 0, 0);
    const float *logits = still_step(&t, 1e6, 2, &r);
    double most = 0;
    for (int h = 0; h < 2 * HEADS; h++) most = fmax(most, (double)logits[h]);
    CHECK_INT(r.clipped, 2 * HEADS);
    CHECK_NEAR(r.logit, most, 0);
    t.engine.params.kept.means.norms = (Band){ .mean = 1e-6, .steps = 99 };
    float before[2 * HEADS];
    memcpy(before, still_step(&t, 1e-3, 3, &r), sizeof before);
    CHECK(r.skipped);
    CHECK_INT(r.clipped, 0);
    t.engine.params.kept.means.norms.mean = 1e6;
    logits = still_step(&t, 1e6, 4, &r);
    for (int h = 0; h < 2 * HEADS; h++) CHECK_NEAR((double)logits[h], (double)before[h], 0);
    tiny_close(&t);
}

/* A layer that is frozen as a whole is neither looked at nor clipped. */
static void a_frozen_layer_is_not_clipped(void **state)
{
    (void)state;
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY(CLIPPED, "init.frozen=[\"model.layers.0.*_proj*\"]"));
    const float *logits = still_step(&t, 1e-3, 1, &r);
    for (int h = 0; h < HEADS; h++) {
        CHECK_NEAR((double)logits[h], 0, 0);
        CHECK((double)logits[HEADS + h] > 0);
    }
    CHECK_INT(r.clipped, HEADS);
    tiny_close(&t);
}

static void a_layer_that_is_frozen_in_part_is_an_error(void **state)
{
    (void)state;
    Tiny t = { 0 };
    ModelSpec s;
    ParamTable table;
    CHECK_OK(tiny_config(&t, TINY(CLIPPED, "init.frozen=[\"*.1.self_attn.q_proj.*\"]")));
    CHECK_OK(spec_build(&t.config, &t.arena, &s));
    CHECK_OK(params_build(&s, 0, NULL, &t.arena, &table));
    CHECK_FAILS(params_check_frozen(&s, &table), ERR_ARG,
                "optimizer.qk_clip scales model.layers.1.self_attn.q_proj.weight and "
                "model.layers.1.self_attn.kv_b_proj.weight of a layer together, and init.frozen");
    arena_free(&t.arena);
    CHECK_OK(tiny_config(&t, TINY(CLIPPED, "init.frozen=[\"*.self_attn.o_proj.*\"]")));
    CHECK_OK(spec_build(&t.config, &t.arena, &s));
    CHECK_OK(params_build(&s, 0, NULL, &t.arena, &table));
    CHECK_OK(params_check_frozen(&s, &table));
    arena_free(&t.arena);
}

static void a_norm_behind_the_projections_is_an_error(void **state)
{
    (void)state;
    Tiny t = { 0 };
    CHECK_FAILS(tiny_config(&t, TINY(GQA, "attention.qk_norm=rms")), ERR_ARG,
                "optimizer.qk_clip 1000000 scales the weights of queries and keys, which "
                "attention.qk_norm normalises after them: it would change nothing; set");
    arena_free(&t.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_clipped_head_comes_back_at_the_threshold),
        TEST(biases_are_scaled_with_their_rows),
        TEST(a_step_reports_the_heads_that_it_clipped),
        TEST(a_frozen_layer_is_not_clipped),
        TEST(a_layer_that_is_frozen_in_part_is_an_error),
        TEST(a_norm_behind_the_projections_is_an_error),
    };
    return TEST_RUN(tests);
}
