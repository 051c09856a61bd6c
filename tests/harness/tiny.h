/*
 * tiny: a small model on random tokens, for tests of the engine.
 *
 * Settings are fallbacks of the configuration, then TINY_BASE, then the test's own overrides.
 */
#ifndef TESTS_HARNESS_TINY_H
#define TESTS_HARNESS_TINY_H

#include "harness/test.h"

#include "engine/backend/backend.h"
#include "engine/base/rng.h"
#include "engine/config/config.h"
#include "engine/step/engine.h"

/* Under sanitizers every third of cases that differ little. */
enum { MANY_EVERY = RUNS(1, 3) };

typedef struct Tiny {
    Arena arena;
    Config config;
    EngineShape shape;
    EnginePlan plan;
    Engine engine;
    Batch batch;
} Tiny;

static const char *const tiny_base[] = {
    "model.vocab=61",     "model.hidden=32",      "model.layers=3",       "model.ffn=40",
    "attention.heads=2",  "attention.kv_rank=12", "attention.nope_dim=8", "attention.rope_dim=4",
    "attention.v_dim=10", "moe.experts=6",        "moe.top_k=2",          "moe.ffn=20",
    "data.sequence=24",   "train.batch=4",        "train.micro_batch=4",  "run.threads=2",
    "model.init_std=0.1", "model.loss_chunk=17",  "attention.kv_heads=1", "attention.head_dim=12",
    "optimizer.eps=1e-5", "run.device=cpu",       "run.tune=false",
};

/* What depth d + 1 of multi-token prediction reads and predicts. */
static void tiny_depth(Tiny *t, int64_t step, int d)
{
    Batch *b = &t->batch;
    uint64_t stream = rng_stream("tiny depth"), vocab = (uint64_t)t->config.model_vocab;
    int64_t n = tensor_elems(&b->id);
    int32_t *id = b->next[d].id.data, *target = b->next[d].target.data;
    b->next[d].targets = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)((step * CONFIG_DEPTHS_MAX + d) * n + i) * 3;
        id[i] = (int32_t)rng_below(7, stream, at, vocab);
        target[i] = (int32_t)rng_below(7, stream, at + 1, vocab);
        if (rng_uniform(7, stream, at + 2) < 0.2) target[i] = -1;
        b->next[d].targets += target[i] >= 0;
    }
}

/* Random ids and documents; the same for the same step whatever the model. */
static void tiny_batch(Tiny *t, int64_t step)
{
    Batch *b = &t->batch;
    uint64_t stream = rng_stream("tiny");
    int64_t n = tensor_elems(&b->id), seq = t->shape.sequence;
    int32_t *id = b->id.data, *target = b->target.data, *pos = b->pos.data, *doc = b->doc.data;
    b->targets = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)(step * n + i) * 4;
        bool starts = i % seq == 0 || rng_uniform(7, stream, at) < 0.1;
        id[i] = (int32_t)rng_below(7, stream, at + 1, (uint64_t)t->config.model_vocab);
        target[i] = (int32_t)rng_below(7, stream, at + 2, (uint64_t)t->config.model_vocab);
        if (rng_uniform(7, stream, at + 3) < 0.05) target[i] = -1;
        pos[i] = (int32_t)(i % seq);
        doc[i] = starts ? pos[i] : doc[i - 1];
        b->targets += target[i] >= 0;
    }
    int32_t *domain = b->domain.data;
    for (int64_t i = 0; i < b->domain.dim[0]; i++) domain[i] = (int32_t)(i % t->shape.domains);
    for (int d = 0; d < b->depths; d++) tiny_depth(t, step, d);
}

static inline Status tiny_config(Tiny *t, const char *const *overrides)
{
    TRY(arena_init(&t->arena, "tiny", MEM_HOST, (size_t)1 << 30));
    TRY(config_default(&t->config, &t->arena));
    for (size_t i = 0; i < sizeof tiny_base / sizeof *tiny_base; i++) {
        TRY(config_override(&t->config, &t->arena, tiny_base[i]));
    }
    for (; *overrides != NULL; overrides++) {
        TRY(config_override(&t->config, &t->arena, *overrides));
    }
    return config_check(&t->config);
}

/* From t->config, which lies in t->arena; mesh NULL: alone. */
static inline Status tiny_start(Tiny *t, const Mesh *mesh)
{
    if (mesh != NULL && gpu_devices() > 0) t->config.run_gpu = mesh->rank % gpu_devices();
    const Config *c = &t->config;
    t->shape = (EngineShape){ .batch = c->train_batch,
                              .micro_batch = c->train_micro_batch,
                              .sequence = c->data_sequence,
                              .positions = c->data_sequence,
                              .domains = 2,
                              .threads = (int)c->run_threads,
                              .pp_rank = mesh != NULL ? mesh->at.stage : 0,
                              .mesh = mesh };
    TRY(engine_plan(c, ENGINE_TRAIN, &t->shape, &t->plan));
    TRY(engine_open(&t->engine, c, ENGINE_TRAIN, &t->shape, &t->plan));
    TRY(engine_prepare(&t->engine, NULL));
    TRY(engine_init_weights(&t->engine.params, 42));
    TRY(batch_new_deep(&t->arena, c->train_batch, c->data_sequence, (int)c->mtp_layers, &t->batch));
    tiny_batch(t, 0);
    return OK;
}

/* `overrides` is NULL-terminated. For threads of ranks, where a failed CHECK has nowhere to go. */
static inline Status tiny_make(Tiny *t, const char *const *overrides, const Mesh *mesh)
{
    *t = (Tiny){ 0 };
    TRY(tiny_config(t, overrides));
    return tiny_start(t, mesh);
}

static inline void tiny_open(Tiny *t, const char *const *overrides)
{
    CHECK_OK(tiny_make(t, overrides, NULL));
}

static inline void tiny_close(Tiny *t)
{
    engine_close(&t->engine);
    arena_free(&t->arena);
}

/* Steps first .. first + n - 1, each on its own batch; the last result. */
static inline StepResult tiny_steps(Tiny *t, int64_t first, int64_t n)
{
    StepResult r = { 0 };
    for (int64_t i = first; i < first + n; i++) {
        tiny_batch(t, i);
        CHECK_OK(engine_step(&t->engine, &t->batch, 1e-2, i + 1, &r));
    }
    return r;
}

/* After steps, and an evaluation here, each arena has used what was planned. */
static inline void tiny_check_planned(Tiny *t)
{
    const float *losses = NULL;
    t->batch.domain.dim[0] = t->shape.micro_batch;
    CHECK_OK(engine_losses(&t->engine, &t->batch, &losses));
    for (int a = 0; a < ENGINE_ARENAS; a++)
        CHECK_INT(engine_peak_bytes(&t->engine, (EngineArena)a), t->plan.bytes[a]);
}

/* Bitwise equality of all weights and moments. */
static inline bool tiny_same_state(const Tiny *a, const Tiny *b)
{
    static const ParamBuffer buffers[] = { BUF_MAIN, BUF_OPTIMIZER, BUF_OPTIMIZER + 1, BUF_STATE };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        const Tensor *x = &a->engine.params.memory.buffer[buffers[i]];
        const Tensor *y = &b->engine.params.memory.buffer[buffers[i]];
        if (x->data == NULL && y->data == NULL) continue;
        if (memcmp(x->data, y->data, tensor_bytes(x)) != 0) return false;
    }
    return true;
}

#define TINY(...) ((const char *const[]){ __VA_ARGS__, NULL })

#endif
