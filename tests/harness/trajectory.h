/*
 * trajectory: `train_run` itself, from shards and a checkpoint of initial weights in a folder of its
 * own, beside the same steps by PyTorch: ten, with every weight and moment, or fifty of transformers'
 * models, whose weights at the start are those of tests/golden/model (tests/golden/trajectory and
 * tests/golden/steps, NAME.golden.zst and NAME.yaml each; tools/golden_trajectory.py and golden_steps.py
 * say what the arrays are).
 *
 * What a run leaves is all that is looked at: metrics.jsonl has losses, norms, rates and the experts'
 * loads of every step; the checkpoints have weights, moments and the router's bias. An engine of one
 * rank reads them, so a run of any mesh, type or device is compared in the same way.
 */
#ifndef TESTS_HARNESS_TRAJECTORY_H
#define TESTS_HARNESS_TRAJECTORY_H

#include "golden/golden.h"
#include "harness/param_view.h"

#include "corpus/shard/shard.h"
#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/train/peak.h"
#include "engine/train/train.h"

#include <stdlib.h>

typedef struct Trajectory {
    Golden golden;
    Golden start; /* of fifty steps: has the weights at the start */
    bool fifty;
    Arena arena, scratch;
    char folder[64], init[FILE_PATH_MAX], shard[FILE_PATH_MAX], run[FILE_PATH_MAX];
    const char *yaml;
    size_t yaml_bytes;
    Config config; /* of the engine: one rank, f32, CPU */
    Engine engine; /* writes the initial weights, reads what a run saved */
    int64_t steps; /* of the last run */
    double worst_loss, worst_norm, worst_tensor; /* relative differences of the last comparison */
} Trajectory;

/* Relative differences that pass: of losses, of norms, of weights and moments. */
typedef struct TrajectoryLimits {
    double loss, norm;
    double tensor; /* 0: neither checkpoints nor loads are looked at */
} TrajectoryLimits;

/* In f32 on any mesh; loads and biases are equal. The rate is the same in any type. */
static const TrajectoryLimits trajectory_f32 = { 1e-5, 1e-5, 1e-5 };
static const double TRAJECTORY_LR = 1e-7;

/* On one rank: about three times what was measured, 5.3e-3 and 3.1e-2. A rounding sends a few tokens
 * to other experts. */
static const TrajectoryLimits trajectory_bf16 = { 2e-2, 0.1, 0 };

/* Of fifty steps. */
static const TrajectoryLimits steps_f32 = { 2e-6, 1e-4, 0 };
static const TrajectoryLimits steps_bf16 = { 1e-2, 0.2, 0 };

typedef struct TrajectoryCase {
    const char *name, *model; /* its files in tests/golden */
    int ranks;
    const char *settings[8];
} TrajectoryCase;

/* The linker takes these in place of engine/train/peak.c: measuring a machine's peak, of which only the MFU
 * is told, takes longer than ten steps. 0: not known. */
Status peak_measure(const Config *c, int threads, bool with_copy, MeasuredPeak *out)
{
    (void)c;
    (void)threads;
    (void)with_copy;
    *out = (MeasuredPeak){ 0 };
    return OK;
}

Status peak_plan(const Config *c, int threads, size_t *out_bytes)
{
    (void)c;
    (void)threads;
    *out_bytes = 0;
    return OK;
}

/* ---- set-up ---- */

static inline void trajectory_config(Trajectory *t, const char *run_dir,
                                     const char *const *settings, Config *out)
{
    const char *every = t->fifty ? "checkpoint.every=50" : "checkpoint.every=1";
    const char *const kept[] = { every, "checkpoint.keep=100", "comm.timeout_s=100",
                                 "run.device=cpu" };
    CHECK_OK(config_default(out, &t->arena));
    CHECK_OK(config_parse(out, &t->arena, "trajectory", t->yaml, t->yaml_bytes));
    for (int i = 0; i < 4; i++) CHECK_OK(config_override(out, &t->arena, kept[i]));
    for (; settings != NULL && *settings != NULL; settings++) {
        CHECK_OK(config_override(out, &t->arena, *settings));
    }
    out->data_sources = (ConfigSources){ .n = 1, .at = { { "stream", t->shard, 1, 0 } } };
    out->run_dir = run_dir;
    CHECK_OK(config_check(out));
}

static inline void trajectory_write_shard(Trajectory *t)
{
    Tensor token = golden_find(&t->golden, "token"), document = golden_find(&t->golden, "document");
    const int32_t *at = token.data, *length = document.data;
    ShardWriter w = { 0 };
    CHECK_OK(shard_create(&w, t->shard, t->config.model_vocab, 0, &t->arena));
    for (int64_t d = 0; d < tensor_elems(&document); d++) {
        CHECK_OK(shard_append(&w, at, length[d]));
        CHECK_OK(shard_end_document(&w));
        at += length[d];
    }
    CHECK_INT(at - (const int32_t *)token.data, tensor_elems(&token));
    CHECK_OK(shard_commit(&w));
    shard_writer_close(&w);
}

/* A parameter's array, by what changes most slowly: (what was kept when, its elements). */
static inline Tensor trajectory_array(const Trajectory *t, const Param *p, int64_t row)
{
    Tensor all = golden_get(&t->golden, p->first[BUF_STATE] < 0 ? "param" : "state", p->name);
    int64_t n = param_elems(p);
    CHECK_INT(tensor_elems(&all), all.dim[0] * n);
    CHECK_INT(all.rank, p->rank + 1);
    for (int d = 0; d < p->rank; d++) CHECK_INT(all.dim[d + 1], p->dim[d]);
    CHECK(row < all.dim[0]);
    return (Tensor){ (float *)all.data + row * n, DTYPE_F32, 1, { n } };
}

static inline Tensor trajectory_start(const Trajectory *t, const Param *p)
{
    if (!t->fifty) return trajectory_array(t, p, 0);
    return golden_get(&t->start, p->first[BUF_STATE] < 0 ? "weight" : "state", p->name);
}

/* Every parameter has its array, and every array its parameter. */
static inline void trajectory_write_init(Trajectory *t)
{
    Engine *e = &t->engine;
    Checkpointer saver = { 0 };
    int arrays = 0;
    const Golden *g = t->fifty ? &t->start : &t->golden;
    for (int i = 0; i < g->n; i++) {
        const char *name = g->at[i].name;
        arrays += strchr(name, '/') != NULL && strncmp(name, "grad/", 5) != 0;
    }
    CHECK_INT(e->params.table.n, arrays);
    CHECK_OK(engine_init_weights(&e->params, 1)); /* padding and moments become zero */
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        Tensor from = trajectory_start(t, p);
        Tensor to =
            param_view(p, &e->params.memory, p->first[BUF_STATE] < 0 ? BUF_MAIN : BUF_STATE);
        CHECK_INT(tensor_elems(&to), tensor_elems(&from));
        memcpy(to.data, from.data, tensor_bytes(&to));
    }
    CHECK_OK(checkpointer_open(&saver, &t->config, &e->params, &t->arena));
    CHECK_OK(checkpoint_save(&saver, 0, 0));
    CHECK_OK(checkpoint_finish(&saver));
    checkpointer_close(&saver);
}

static inline void trajectory_open(Trajectory *t, const char *model)
{
    char path[FILE_PATH_MAX], *yaml = NULL;
    EnginePlan plan;
    *t = (Trajectory){ .folder = "/tmp/switchyard_trajectory_XXXXXX" };
    log_set_level(LOG_WARN);
    CHECK(mkdtemp(t->folder) != NULL);
    CHECK_OK(file_join(t->init, t->folder, "init"));
    CHECK_OK(file_join(t->shard, t->folder, "stream"));
    CHECK_OK(file_join(t->run, t->folder, "run"));
    CHECK_OK(arena_init(&t->arena, "trajectory", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&t->scratch, "scratch", MEM_HOST, (size_t)1 << 30));
    snprintf(path, sizeof path, "tests/golden/%s.golden.zst", model);
    t->golden = golden_open(path);
    t->fifty = text_starts(model, "steps/");
    snprintf(path, sizeof path, "tests/golden/model/%s.golden.zst", strchr(model, '/') + 1);
    if (t->fifty) t->start = golden_open(path);
    snprintf(path, sizeof path, "tests/golden/%s.yaml", model);
    CHECK_OK(file_read_all(path, &t->arena, &yaml, &t->yaml_bytes));
    t->yaml = yaml;
    trajectory_config(t, t->init, NULL, &t->config);
    trajectory_write_shard(t);
    EngineShape shape = train_shape(&t->config, NULL);
    CHECK_OK(engine_plan(&t->config, ENGINE_TRAIN, &shape, &plan));
    CHECK_OK(engine_open(&t->engine, &t->config, ENGINE_TRAIN, &shape, &plan));
    trajectory_write_init(t);
}

static inline void trajectory_close(Trajectory *t)
{
    engine_close(&t->engine);
    golden_close(&t->start);
    golden_close(&t->golden);
    CHECK_OK(file_remove_tree(t->folder));
    arena_free(&t->scratch);
    arena_free(&t->arena);
}

/* ---- a run ---- */

typedef struct TrajectoryRun {
    const Config *config;
    TrainOptions options;
} TrajectoryRun;

static inline Status trajectory_rank(void *run, Comm *world)
{
    const TrajectoryRun *r = run;
    TrainOptions options = r->options;
    options.world = world;
    return train_run(r->config, &options);
}

/* resume: what an earlier call began. */
static inline Status trajectory_run(Trajectory *t, int ranks, const char *const *settings,
                                    bool resume)
{
    Config c;
    int failed = -1;
    trajectory_config(t, t->run, settings, &c);
    t->steps = c.train_steps;
    TrajectoryRun r = { &c, { .resume = resume, .init = resume ? NULL : t->init } };
    if (ranks == 1) return trajectory_rank(&r, NULL);
    return comm_threads(ranks, c.comm_timeout_s, trajectory_rank, &r, &failed);
}

/* The last run's metrics. */
static inline char *trajectory_text(Trajectory *t)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    CHECK_OK(file_join(path, t->run, "metrics.jsonl"));
    CHECK_OK(file_read_all(path, &t->arena, &text, &bytes));
    return text;
}

/* A line of it, if it is of a step; else NULL. */
static inline const Json *trajectory_step(Trajectory *t, const char *line)
{
    Json *json = NULL;
    size_t bad = 0;
    CHECK_OK(json_parse(line, strlen(line), &t->arena, &json, &bad));
    CHECK(json != NULL);
    return strcmp(json_string(json_get(json, "kind")), "step") == 0 ? json : NULL;
}

static inline double trajectory_number(const Json *step, const char *key)
{
    const Json *v = json_get(step, key);
    return json_is(v, JSON_NUMBER) ? v->number : (double)NAN;
}

/* The losses of the last run. */
static inline void trajectory_losses(Trajectory *t, double *out)
{
    char *rest = NULL;
    int64_t steps = 0;
    for (char *line = strtok_r(trajectory_text(t), "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const Json *step = trajectory_step(t, line);
        if (step == NULL) continue;
        CHECK(steps < t->steps);
        out[steps++] = trajectory_number(step, "loss");
    }
    CHECK_INT(steps, t->steps);
}

/* ---- comparison ---- */

static inline void trajectory_scalar(const Trajectory *t, const char *what, int64_t step,
                                     double have, double limit, double *worst)
{
    Tensor all = golden_find(&t->golden, what);
    CHECK(all.data != NULL && step <= tensor_elems(&all));
    double want = (double)((const float *)all.data)[step - 1];
    double error = fabs(have - want) / fabs(want);
    *worst = fmax(*worst, error);
    if (!(error <= limit)) {
        fail_msg("step %lld: %s is %.9g, want %.9g: relative error %.3g, limit %.3g",
                 (long long)step, what, have, want, error, limit);
    }
}

/* expert_load: [[E numbers] a layer]. */
static inline void trajectory_load(const Trajectory *t, int64_t step, const Json *table)
{
    Tensor all = golden_find(&t->golden, "load");
    const int32_t *want = (const int32_t *)all.data + (step - 1) * all.dim[1] * all.dim[2];
    CHECK_INT(json_count(table), all.dim[1]);
    for (const Json *layer = json_first(table); layer != NULL; layer = layer->next) {
        CHECK_INT(json_count(layer), all.dim[2]);
        for (const Json *expert = layer->child; expert != NULL; expert = expert->next, want++) {
            if (expert->number == *want) continue;
            fail_msg("step %lld: an expert of a MoE layer took %g tokens, want %d: entry %lld",
                     (long long)step, expert->number, *want,
                     (long long)(want - (const int32_t *)all.data));
        }
    }
}

static inline void trajectory_metrics(Trajectory *t, const TrajectoryLimits *limits)
{
    const struct {
        const char *key, *name;
        double limit, *worst;
    } row[] = {
        { "lr", "lr", TRAJECTORY_LR, &(double){ 0 } },
        { "loss", "loss", limits->loss, &t->worst_loss },
        { "grad_norm", "norm", limits->norm, &t->worst_norm },
        { "aux_loss", "aux_loss", limits->loss, &t->worst_loss }, /* not among fifty steps */
    };
    char *rest = NULL;
    int64_t steps = 0;
    for (char *line = strtok_r(trajectory_text(t), "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        const Json *step = trajectory_step(t, line);
        if (step == NULL) continue;
        CHECK_NEAR(trajectory_number(step, "step"), (double)++steps, 0);
        for (int i = 0; i < 4 - t->fifty; i++)
            trajectory_scalar(t, row[i].name, steps, trajectory_number(step, row[i].key),
                              row[i].limit, row[i].worst);
        if (limits->tensor == 0) continue;
        trajectory_load(t, steps, json_get(step, "expert_load"));
    }
    CHECK_INT(steps, t->steps);
}

static inline void trajectory_tensor(Trajectory *t, const Param *p, int64_t step, ParamBuffer b,
                                     int64_t row, double limit)
{
    enum { FIRST_MOMENTS = BUF_OPTIMIZER, SECOND_MOMENTS };
    static const char *const what[BUF_COUNT] = { [BUF_MAIN] = "weights",
                                                 [FIRST_MOMENTS] = "first moments",
                                                 [SECOND_MOMENTS] = "second moments",
                                                 [BUF_STATE] = "biases" };
    double error, norm;
    Tensor want = trajectory_array(t, p, row), have = param_view(p, &t->engine.params.memory, b);
    golden_norms(have.data, want.data, tensor_elems(&want), &error, &norm);
    if (error > 0) t->worst_tensor = fmax(t->worst_tensor, error / norm);
    if (!(error <= limit * norm)) {
        fail_msg("step %lld: %s of %s: relative error %.3g, limit %.3g", (long long)step, what[b],
                 p->name, error / norm, limit);
    }
}

/* kept: which of the steps 1, 2 and 10, from 0. */
static inline void trajectory_checkpoint(Trajectory *t, int64_t step, int64_t kept, double limit)
{
    char path[FILE_PATH_MAX], name[64];
    CheckpointInfo info;
    snprintf(name, sizeof name, "checkpoints/step-%010lld", (long long)step);
    CHECK_OK(file_join(path, t->run, name));
    CHECK_OK(checkpoint_load(&t->engine.params, path, &t->scratch, &info));
    CHECK_INT(info.step, step);
    CHECK_INT(info.position, step * t->config.train_batch);
    for (int i = 0; i < t->engine.params.table.n; i++) {
        const Param *p = &t->engine.params.table.at[i];
        if (p->first[BUF_STATE] >= 0) {
            trajectory_tensor(t, p, step, BUF_STATE, step, 0);
            continue;
        }
        for (int b = 0; b < 3; b++) {
            trajectory_tensor(t, p, step, (ParamBuffer)(BUF_MAIN + b), 1 + 3 * kept + b, limit);
        }
    }
}

static inline void trajectory_check(Trajectory *t, const TrajectoryLimits *limits)
{
    static const int64_t kept[] = { 1, 2, 10 };
    t->worst_loss = t->worst_norm = t->worst_tensor = 0;
    trajectory_metrics(t, limits);
    for (int i = 0; limits->tensor > 0 && i < 3; i++) {
        trajectory_checkpoint(t, kept[i], i, limits->tensor);
    }
}

/* ---- cases ---- */

/* A case with more settings (NULL: none) behind its own. */
static inline void trajectory_case(const TrajectoryCase *c, const char *const *more,
                                   const TrajectoryLimits *limits)
{
    const char *all[16] = { 0 };
    int n = 0;
    Trajectory t;
    for (; n < 8 && c->settings[n] != NULL; n++) all[n] = c->settings[n];
    for (; more != NULL && *more != NULL; more++) all[n++] = *more;
    trajectory_open(&t, c->model);
    CHECK_OK(trajectory_run(&t, c->ranks, all, false));
    trajectory_check(&t, limits);
    print_message("%s: relative differences of losses %.1e, norms %.1e, tensors %.1e\n", c->name,
                  t.worst_loss, t.worst_norm, t.worst_tensor);
    trajectory_close(&t);
}

static const TrajectoryCase trajectory_alone[] = { { "mla", "trajectory/mla", 1, { NULL } },
                                                   { "gqa", "trajectory/gqa", 1, { NULL } } };

#define WORST "moe.buffers=worst"

static const char *const steps_models[] = {
    "steps/deepseek_v2_lite", "steps/deepseek_v2", "steps/deepseek_v3",
    "steps/deepseek_v3_yarn", "steps/llama",       "steps/llama3",
    "steps/llama_linear",     "steps/llama_yarn",  "steps/llama_chunks",
    "steps/qwen3_moe",        "steps/qwen2_moe",   "steps/olmoe",
    "steps/mixtral",          "steps/glm4_moe",    "steps/llama4",
    "steps/gpt_oss",
};
enum { STEPS_MODELS = sizeof steps_models / sizeof *steps_models };

static const TrajectoryCase trajectory_meshes[] = {
    { "dp 2, zero 0", "trajectory/mla", 2, { "mesh.zero=0" } },
    { "dp 4, zero 3", "trajectory/mla", 4, { "mesh.zero=3" } },
    { "dp 4, zero 2, shard 2", "trajectory/mla", 4, { "mesh.zero=2", "mesh.shard=2" } },
    { "ep 2, a pool", "trajectory/mla", 2, { "mesh.ep=2", "moe.pool_factor=1" } },
    { "dp 4, ep 2, zero 3", "trajectory/mla", 4, { "mesh.zero=3", "mesh.ep=2", WORST } },
    { "ep 4, allgather", "trajectory/mla", 4, { "mesh.ep=4", WORST, "moe.exchange=allgather" } },
    { "cp 2", "trajectory/mla", 2, { "mesh.cp=2" } },
    { "cp 2, gqa", "trajectory/gqa", 2, { "mesh.cp=2" } },
    { "dp 2, cp 2, zero 3, ep 2",
      "trajectory/mla",
      4,
      { "mesh.cp=2", "mesh.zero=3", "mesh.ep=2", WORST } },
    { "pp 2", "trajectory/mla", 2, { "mesh.pp=2" } },
    { "pp 2, zbv",
      "trajectory/mla",
      2,
      { "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv", "mesh.layout=Et|t|t|L" } },
    { "pp 2, tied", "trajectory/gqa", 2, { "mesh.pp=2" } },
    { "pp 2, ep 2", "trajectory/mla", 4, { "mesh.pp=2", "mesh.ep=2", WORST } },
    { "pp 2, dp 2, zero 2",
      "trajectory/mla",
      4,
      { "mesh.pp=2", "mesh.zero=2", "recompute.layers=[0,2]" } },
};
enum { TRAJECTORY_MESHES = sizeof trajectory_meshes / sizeof *trajectory_meshes };

/* Of a mesh's kinds some for each family. */
static const TrajectoryCase steps_meshes[] = {
    { "dp 2, zero 3", "steps/deepseek_v2_lite", 2, { "mesh.zero=3" } },
    { "pp 2, ep 2", "steps/deepseek_v2_lite", 4, { "mesh.pp=2", "mesh.ep=2", WORST } },
    { "dp 4, ep 2, zero 2", "steps/deepseek_v2", 4, { "mesh.zero=2", "mesh.ep=2", WORST } },
    { "cp 2", "steps/deepseek_v2", 2, { "mesh.cp=2" } },
    { "dp 4, ep 4, zero 1", "steps/deepseek_v3", 4, { "mesh.zero=1", "mesh.ep=4", WORST } },
    { "cp 2, ep 2", "steps/deepseek_v3", 2, { "mesh.cp=2", "mesh.ep=2", WORST } },
    { "pp 2, zero 2", "steps/deepseek_v3_yarn", 4, { "mesh.pp=2", "mesh.zero=2" } },
    { "cp 2, zero 3", "steps/deepseek_v3_yarn", 4, { "mesh.cp=2", "mesh.zero=3" } },
    { "pp 2", "steps/llama", 2, { "mesh.pp=2" } },
    { "cp 4", "steps/llama", 4, { "mesh.cp=4" } },
    { "cp 2, zero 2", "steps/llama3", 4, { "mesh.cp=2", "mesh.zero=2" } },
    { "dp 2, zero 0", "steps/llama_linear", 2, { "mesh.zero=0" } },
    { "pp 2, zb-h1", "steps/llama_yarn", 2, { "mesh.pp=2", "mesh.schedule=zb-h1" } },
    { "cp 2, pp 2", "steps/llama_chunks", 4, { "mesh.cp=2", "mesh.pp=2" } },
    { "ep 2, recompute",
      "steps/qwen3_moe",
      2,
      { "mesh.ep=2", WORST, "recompute.layers=[0,1,2]",
        "recompute.pieces=[exchange,norm,attn_up,act]" } },
    { "pp 2, ep 2, zb-h1",
      "steps/qwen3_moe",
      4,
      { "mesh.pp=2", "mesh.ep=2", WORST, "mesh.schedule=zb-h1" } },
    { "dp 2, zero 3", "steps/qwen2_moe", 2, { "mesh.zero=3" } },
    { "cp 2, pp 2", "steps/qwen2_moe", 4, { "mesh.cp=2", "mesh.pp=2" } },
    { "dp 4, zero 2, shard 2", "steps/olmoe", 4, { "mesh.zero=2", "mesh.shard=2" } },
    { "cp 2", "steps/olmoe", 2, { "mesh.cp=2" } },
    { "pp 2, zero 1", "steps/mixtral", 4, { "mesh.pp=2", "mesh.zero=1" } },
    { "cp 2", "steps/mixtral", 2, { "mesh.cp=2" } },
    { "dp 4, zero 3", "steps/glm4_moe", 4, { "mesh.zero=3" } },
    { "pp 2", "steps/glm4_moe", 2, { "mesh.pp=2" } },
    { "cp 2, zero 3", "steps/llama4", 4, { "mesh.cp=2", "mesh.zero=3" } },
    { "pp 2", "steps/llama4", 2, { "mesh.pp=2" } },
    { "cp 2, ep 2", "steps/gpt_oss", 2, { "mesh.cp=2", "mesh.ep=2", WORST } },
    { "dp 4, ep 2, zero 3", "steps/gpt_oss", 4, { "mesh.zero=3", "mesh.ep=2", WORST } },
    { "pp 2, a pool",
      "steps/gpt_oss",
      4,
      { "mesh.pp=2", "mesh.ep=2", "moe.buffers=pooled", "moe.pool_factor=1.5" } },
};
enum { STEPS_MESHES = sizeof steps_meshes / sizeof *steps_meshes };

#undef WORST

#endif
