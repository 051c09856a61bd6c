/*
 * Whole models against Hugging Face's transformers: tests/golden/model/NAME.golden.zst and NAME.yaml,
 * made by tools/golden_models.py (array names there, file format in golden/golden.h).
 *
 * The engine takes the weights by their names, which are those of Hugging Face's files, and one
 * step gives losses and the gradient of every parameter; an engine with a cache gives logits. The
 * batch is two sequences, one of them of three documents, one sequence a micro-batch.
 */
#include "golden/golden.h"
#include "harness/param_view.h"

#include "engine/step/copies.h"
#include "engine/step/engine.h"

/* Both sides compute in f32: relative to the norm of a parameter's gradient, or of a row of logits.
 */
static const double LIMIT = 1e-4, LOGITS_LIMIT = 1e-5;

typedef struct Model {
    Golden golden;
    Arena arena;
    Config config;
    Engine engine;
    Batch batch;
    int64_t sequences, tokens;
} Model;

/* ---- set-up ---- */

static void read_model(Model *m, const char *name, const char *const *overrides, int n_overrides)
{
    char path[256], *yaml = NULL;
    size_t bytes = 0;
    CHECK_OK(arena_init(&m->arena, "test", MEM_HOST, (size_t)256 << 20));
    snprintf(path, sizeof path, "tests/golden/model/%s.golden.zst", name);
    m->golden = golden_open(path);
    snprintf(path, sizeof path, "tests/golden/model/%s.yaml", name);
    CHECK_OK(file_read_all(path, &m->arena, &yaml, &bytes));
    CHECK_OK(config_default(&m->config, &m->arena));
    CHECK_OK(config_parse(&m->config, &m->arena, path, yaml, bytes));
    for (int i = 0; i < n_overrides; i++) {
        CHECK_OK(config_override(&m->config, &m->arena, overrides[i]));
    }
    CHECK_OK(config_check(&m->config));
}

static void copy_array(const Golden *g, const char *name, Tensor *to)
{
    Tensor from = golden_find(g, name);
    CHECK(from.data != NULL);
    CHECK_INT(tensor_elems(to), tensor_elems(&from));
    memcpy(to->data, from.data, tensor_bytes(to));
}

/* Of multi-token prediction. */
static void read_depth(Model *m, int d)
{
    char id[32], target[32];
    snprintf(id, sizeof id, "next_id/%d", d + 1);
    snprintf(target, sizeof target, "next_target/%d", d + 1);
    copy_array(&m->golden, id, &m->batch.next[d].id);
    copy_array(&m->golden, target, &m->batch.next[d].target);
    const int32_t *at = m->batch.next[d].target.data;
    m->batch.next[d].targets = 0;
    for (int64_t i = 0; i < m->sequences * m->tokens; i++) m->batch.next[d].targets += at[i] >= 0;
}

static void read_batch(Model *m)
{
    Tensor id = golden_find(&m->golden, "id");
    m->sequences = id.dim[0], m->tokens = id.dim[1];
    Batch *b = &m->batch;
    CHECK_OK(batch_new_deep(&m->arena, m->sequences, m->tokens, (int)m->config.mtp_layers, b));
    copy_array(&m->golden, "id", &b->id);
    copy_array(&m->golden, "target", &b->target);
    copy_array(&m->golden, "doc", &b->doc);
    int32_t *pos = b->pos.data, *domain = b->domain.data, *target = b->target.data;
    b->targets = 0;
    for (int64_t i = 0; i < m->sequences * m->tokens; i++) {
        pos[i] = (int32_t)(i % m->tokens);
        b->targets += target[i] >= 0;
    }
    for (int64_t i = 0; i < m->sequences; i++) domain[i] = 0;
    for (int d = 0; d < b->depths; d++) read_depth(m, d);
}

/* Every parameter has its array, and in training every array its parameter. */
static void load_weights(Model *m)
{
    Engine *e = &m->engine;
    int arrays = 0;
    for (int i = 0; i < m->golden.n; i++) {
        const char *name = m->golden.at[i].name;
        arrays += strncmp(name, "weight/", 7) == 0 || strncmp(name, "state/", 6) == 0;
    }
    if (e->use == ENGINE_TRAIN) CHECK_INT(e->params.table.n, arrays);
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        bool trained = p->first[BUF_STATE] < 0;
        Tensor from = golden_get(&m->golden, trained ? "weight" : "state", p->name);
        Tensor to = param_view(p, &e->params.memory, trained ? BUF_MAIN : BUF_STATE);
        CHECK_INT(to.rank, from.rank);
        for (int d = 0; d < to.rank; d++) CHECK_INT(to.dim[d], from.dim[d]);
        memcpy(to.data, from.data, tensor_bytes(&to));
    }
    CHECK_OK(copies_refresh(&e->params));
}

static void open_engine(Model *m, EngineUse use, EngineShape shape)
{
    EnginePlan plan;
    CHECK_OK(engine_plan(&m->config, use, &shape, &plan));
    CHECK_OK(engine_open(&m->engine, &m->config, use, &shape, &plan));
    CHECK_OK(engine_init_weights(&m->engine.params, 1)); /* padding becomes zero */
    load_weights(m);
}

static void open_training(Model *m, const char *name, const char *const *overrides, int n_overrides)
{
    read_model(m, name, overrides, n_overrides);
    read_batch(m);
    open_engine(m, ENGINE_TRAIN,
                (EngineShape){ .batch = m->sequences,
                               .micro_batch = m->config.train_micro_batch,
                               .sequence = m->tokens,
                               .positions = m->tokens,
                               .domains = 1,
                               .threads = 2 });
}

static void open_inference(Model *m, const char *name, int64_t logit_rows)
{
    read_model(m, name, NULL, 0);
    read_batch(m);
    open_engine(m, ENGINE_INFER,
                (EngineShape){ .batch = 1,
                               .micro_batch = 1,
                               .sequence = m->tokens,
                               .positions = m->tokens,
                               .domains = 1,
                               .threads = 2,
                               .cache = 1,
                               .logit_rows = logit_rows });
}

static void close_model(Model *m)
{
    engine_close(&m->engine);
    golden_close(&m->golden);
    arena_free(&m->arena);
}

/* ---- comparisons ---- */

static void compare_losses(const Model *m, const float *got, int64_t sequence)
{
    Tensor all = golden_find(&m->golden, "loss");
    const float *want = (const float *)all.data + sequence * m->tokens;
    for (int64_t i = 0; i < m->tokens; i++) {
        CHECK_NEAR(got[i], want[i], LIMIT * fabs((double)want[i]));
    }
}

static void compare_gradients(const Model *m)
{
    const Engine *e = &m->engine;
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        if (p->first[BUF_STATE] >= 0) continue;
        Tensor got = param_view(p, &e->params.memory, BUF_GRAD);
        Tensor want = golden_get(&m->golden, "grad", p->name);
        double error, norm;
        golden_norms(got.data, want.data, tensor_elems(&want), &error, &norm);
        CHECK(norm > 0);
        if (!(error <= LIMIT * norm)) {
            fail_msg("gradient of %s: relative error %.3g, limit %.3g", p->name, error / norm,
                     LIMIT);
        }
    }
}

static void step(Model *m, StepResult *result)
{
    CHECK_OK(engine_step(&m->engine, &m->batch, 0, 1, result));
    CHECK(result->finite);
}

/* ---- tests: *state is the model's name ---- */

static void losses_agree(void **state)
{
    Model m = { 0 };
    open_training(&m, *state, NULL, 0);
    for (int64_t i = 0; i < m.sequences; i++) { /* a micro-batch holds one */
        const float *losses = NULL;
        Batch one = { .id = tensor_rows(&m.batch.id, i * m.tokens, m.tokens),
                      .target = tensor_rows(&m.batch.target, i * m.tokens, m.tokens),
                      .pos = tensor_rows(&m.batch.pos, i * m.tokens, m.tokens),
                      .doc = tensor_rows(&m.batch.doc, i, 1),
                      .domain = tensor_rows(&m.batch.domain, i, 1),
                      .targets = m.tokens };
        CHECK_OK(engine_losses(&m.engine, &one, &losses));
        compare_losses(&m, losses, i);
    }
    close_model(&m);
}

static void mean_loss_agrees(void **state)
{
    Model m = { 0 };
    StepResult result;
    open_training(&m, *state, NULL, 0);
    step(&m, &result);
    Tensor mean = golden_find(&m.golden, "mean");
    double want = (double)*(float *)mean.data;
    CHECK_NEAR(result.loss, want, LIMIT * want);
    close_model(&m);
}

static void losses_of_depths_agree(void **state)
{
    Model m = { 0 };
    StepResult result;
    open_training(&m, *state, NULL, 0);
    step(&m, &result);
    Tensor mean = golden_find(&m.golden, "next_mean");
    CHECK_INT(tensor_elems(&mean), m.config.mtp_layers);
    for (int64_t d = 0; d < m.config.mtp_layers; d++) {
        double want = (double)((float *)mean.data)[d];
        CHECK_NEAR(result.next_loss[d], want, 1e-5 * want);
    }
    close_model(&m);
}

static void check_gradients(const char *model, const char *const *overrides, int n)
{
    Model m = { 0 };
    StepResult result;
    open_training(&m, model, overrides, n);
    step(&m, &result);
    compare_gradients(&m);
    close_model(&m);
}

static void gradients_agree(void **state) { check_gradients(*state, NULL, 0); }

static void gradients_agree_where_depths_are_recomputed(void **state)
{
    static const char *const overrides[] = { "train.micro_batch=2", "recompute.layers=[1,3]",
                                             "recompute.pieces=[layer]" };
    check_gradients(*state, overrides, 3);
}

static void gradients_agree_with_recompute_and_one_micro_batch(void **state)
{
    static const char *const overrides[] = { "train.micro_batch=2", "recompute.layers=[0,1,2]",
                                             "recompute.pieces=[norm,attn_up,act,shared]" };
    check_gradients(*state, overrides, 3);
}

static void logits_agree(void **state)
{
    Model m = { 0 };
    const float *logits = NULL;
    Tensor want;
    open_inference(&m, *state, 17);
    want = golden_find(&m.golden, "logits");
    CHECK_OK(engine_next_logits(&m.engine, m.batch.id.data, m.tokens, &logits));
    golden_compare("logits", &m.engine.io.logits, &want, LOGITS_LIMIT);
    close_model(&m);
}

static void logits_agree_token_by_token(void **state)
{
    Model m = { 0 };
    open_inference(&m, *state, 1);
    Tensor all = golden_find(&m.golden, "logits");
    const int32_t *id = m.batch.id.data;
    for (int64_t i = 0; i < m.tokens; i++) {
        const float *logits = NULL;
        Tensor want = tensor_rows(&all, i, 1);
        CHECK_OK(engine_next_logits(&m.engine, id + i, 1, &logits));
        golden_compare("logits", &m.engine.io.logits, &want, LOGITS_LIMIT);
    }
    close_model(&m);
}

#define OF(model, test)                                                                            \
    {                                                                                              \
#model ": " #test, test, NULL, NULL, (void *)(uintptr_t) #model                            \
    }
#define ALL_OF(model)                                                                              \
    OF(model, losses_agree), OF(model, mean_loss_agrees), OF(model, gradients_agree),              \
        OF(model, gradients_agree_with_recompute_and_one_micro_batch), OF(model, logits_agree),    \
        OF(model, logits_agree_token_by_token)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL_OF(deepseek_v2_lite), /* MLA, softmax top-k */
        ALL_OF(deepseek_v2),      /* query rank, groups, scaled weights */
        ALL_OF(deepseek_v3),      /* sigmoid, bias, groups by two, normalised weights */
        ALL_OF(llama),            /* GQA, halves rotated, dense */
        ALL_OF(qwen3_moe),        /* heads of q and k normalised, no shared expert */
        ALL_OF(deepseek_v3_yarn), /* both mscales, biases, an epsilon of the latents */
        ALL_OF(llama_linear),     /* biases of all projections */
        ALL_OF(llama_yarn),       /* gpt-oss's convention */
        ALL_OF(llama3),           /* Llama 3.1's frequencies */
        ALL_OF(glm4_moe),         /* half a head rotated; biases before norms */
        ALL_OF(olmoe),            /* a norm over all heads */
        ALL_OF(mixtral),          /* softmax over the chosen */
        ALL_OF(qwen2_moe),    /* a gate before the shared expert, experts in every second layer */
        ALL_OF(llama4),       /* weighed inputs; layers without positions, temperature */
        ALL_OF(gpt_oss),      /* sinks, windows, biases of experts and router, the clamped SwiGLU */
        ALL_OF(llama_chunks), /* chunks of Llama 4 */
        ALL_OF(deepseek_v3_mtp), /* two depths of multi-token prediction */
        ALL_OF(glm4_moe_mtp),    /* one */
        OF(deepseek_v3_mtp, losses_of_depths_agree),
        OF(deepseek_v3_mtp, gradients_agree_where_depths_are_recomputed),
        ALL_OF(qwen3_next), /* gated delta nets, gated attention */
        OF(glm4_moe_mtp, losses_of_depths_agree),
        OF(glm4_moe_mtp, gradients_agree_where_depths_are_recomputed),
    };
    return TEST_RUN(tests);
}
