/*
 * Whole training steps on a GPU: the losses of the CPU, the same bits run to run and in both
 * executors, checkpoints that move between CPU and GPU. Skipped where there is no GPU.
 */
#include "engine/base/clock.h"
#include "harness/gpu_state.h"

static const char *const kinds[][6] = {
    { "attention.kind=mla", "attention.q_rank=16", NULL },
    { "attention.kind=gqa", "attention.heads=4", "attention.kv_heads=2", NULL },
    { "moe.score=sigmoid", "moe.bias_rate=0.01", "moe.normalise=true", "moe.aux_scope=batch",
      NULL },
    { "train.micro_batch=1", "recompute.layers=[0,1,2]", "model.tied=true", NULL },
    { "optimizer.kind=muon", "moe.top_k=6", "optimizer.qk_clip=0.2", NULL },
    { "moe.score=sigmoid", "moe.bias_rule=quantile", "moe.bias_rate=0.5", NULL },
};

enum { KINDS = sizeof kinds / sizeof *kinds, STEPS = 20 };

/* What a run says of each step: its loss, and a number for who got which tokens. */
typedef struct Said {
    double loss[STEPS], routes[STEPS];
} Said;

static void said_of(int kind, const char *const *more, Said *out)
{
    Tiny t;
    tiny_open_also(&t, kinds[kind], more);
    for (int64_t i = 0; i < STEPS; i++) {
        StepResult r = tiny_steps(&t, i, 1);
        out->loss[i] = r.loss;
        out->routes[i] = 0;
        for (int64_t e = 0; e < tensor_elems(&t.engine.io.host[FIGURE_LOAD]); e++)
            out->routes[i] += (double)r.load[e] * (double)(e + 1) * (double)(e + 7);
    }
    tiny_close(&t);
}

/* Once a rounding has sent a token elsewhere these are two trainings; the trajectory's models
 * (test_gpu_trajectory.c) keep clear of that for all of their steps. */
static void f32_losses_are_the_cpu_s(void **state)
{
    enum { ALIKE = 4 };
    NEEDS_GPU();
    for (int k = 0; k < KINDS; k++) {
        Said cpu, gpu;
        said_of(k, TINY(ON_CPU), &cpu);
        said_of(k, TINY(ON_GPU), &gpu);
        for (int i = 0; i < STEPS && (i < ALIKE || gpu.routes[i] == cpu.routes[i]); i++) {
            if (fabs(gpu.loss[i] / cpu.loss[i] - 1) <= 1e-4) continue;
            fail_msg("model %d, step %d: loss %.9g on the GPU, %.9g on the CPU", k, i + 1,
                     gpu.loss[i], cpu.loss[i]);
        }
    }
}

static void bf16_losses_are_near_the_cpu_s(void **state)
{
    NEEDS_GPU();
    for (int k = 0; k < KINDS; k++) {
        Said cpu, gpu;
        said_of(k, TINY(ON_CPU), &cpu);
        said_of(k, TINY(ON_GPU, "run.compute=bf16"), &gpu);
        /* this learning rate makes of every rounding a difference that grows */
        for (int i = 0; i < STEPS / 2; i++) {
            if (fabs(gpu.loss[i] / cpu.loss[i] - 1) <= 1e-2) continue;
            fail_msg("model %d, step %d: loss %.9g in bf16, %.9g in f32 on the CPU", k, i + 1,
                     gpu.loss[i], cpu.loss[i]);
        }
    }
}

static void two_runs_and_both_executors_give_the_same_bits(void **state)
{
    NEEDS_GPU();
    static const char *const types[] = { "run.compute=f32", "run.compute=bf16" };
    for (int i = 0; i < KINDS * 2; i++) {
        Tiny a, b, eager;
        tiny_open_also(&a, kinds[i / 2], TINY(ON_GPU, types[i % 2]));
        tiny_open_also(&b, kinds[i / 2], TINY(ON_GPU, types[i % 2]));
        tiny_open_also(&eager, kinds[i / 2], TINY(ON_GPU, types[i % 2], "run.executor=eager"));
        double x = tiny_steps(&a, 0, STEPS).loss, y = tiny_steps(&b, 0, STEPS).loss;
        double z = tiny_steps(&eager, 0, STEPS).loss;
        CHECK(x == y && x == z && isfinite(x));
        CHECK(gpu_same_state(&a, &b) && gpu_same_state(&a, &eager));
        tiny_close(&a);
        tiny_close(&b);
        tiny_close(&eager);
    }
}

static void a_captured_step_is_one_launch_and_an_eager_one_many(void **state)
{
    NEEDS_GPU();
    Tiny a, b;
    tiny_open(&a, TINY(ON_GPU));
    tiny_open(&b, TINY(ON_GPU, "run.executor=eager"));
    const double start_s = clock_s();
    StepResult one = tiny_steps(&a, 0, 2), many = tiny_steps(&b, 0, 2);
    CHECK_INT(one.launches, 1);
    CHECK_INT(one.waits, 1);
    CHECK_INT(many.waits, 1);
    CHECK_INT(many.kernels, one.kernels);
    CHECK(many.launches > 100);
    CHECK(one.device_s > 0 && one.device_s < clock_s() - start_s);
    CHECK(one.kernels > 100);
    tiny_close(&a);
    tiny_close(&b);
}

static void checkpoints_move_between_cpu_and_gpu(void **state)
{
    NEEDS_GPU();
    gpu_checkpoints_move(kinds[2], ON_CPU, ON_GPU, false);
    gpu_checkpoints_move(kinds[2], ON_GPU, ON_CPU, false);
    gpu_checkpoints_move(kinds[2], ON_GPU, ON_GPU, true);
}

static void evaluation_gives_the_cpu_s_losses(void **state)
{
    NEEDS_GPU();
    Tiny a, b;
    tiny_open(&a, TINY(ON_CPU));
    tiny_open(&b, TINY(ON_GPU));
    const float *x = NULL, *y = NULL;
    CHECK_OK(engine_losses(&a.engine, &a.batch, &x));
    CHECK_OK(engine_losses(&b.engine, &b.batch, &y));
    int64_t n = tensor_elems(&a.batch.id);
    for (int64_t i = 0; i < n; i++) CHECK_NEAR((double)y[i], (double)x[i], 1e-4);
    int64_t loads = tensor_elems(&a.engine.io.record.load);
    CHECK(memcmp(engine_load(&a.engine), engine_load(&b.engine), (size_t)loads * 4) == 0);
    tiny_close(&a);
    tiny_close(&b);
}

/* An engine that generates, with the weights of tiny_open. */
static void open_generator(Engine *e, const Config *c)
{
    const EngineShape shape = { .batch = 1,
                                .micro_batch = 1,
                                .sequence = 7,
                                .positions = 12,
                                .domains = 1,
                                .threads = 2,
                                .cache = 1,
                                .logit_rows = 1 };
    EnginePlan plan;
    CHECK_OK(engine_plan(c, ENGINE_INFER, &shape, &plan));
    CHECK_OK(engine_open(e, c, ENGINE_INFER, &shape, &plan));
    CHECK_OK(engine_init_weights(&e->params, 42));
}

/* A prompt of 7 tokens, then single ones behind the cache. */
static void generation_gives_the_cpu_s_logits(void **state)
{
    NEEDS_GPU();
    static const int32_t ids[] = { 5, 0, 17, 60, 17, 3, 9, 44, 2, 31 };
    for (int k = 0; k < 2; k++) {
        Tiny t[2];
        Engine e[2];
        tiny_open_also(&t[0], kinds[k], TINY(ON_CPU));
        tiny_open_also(&t[1], kinds[k], TINY(ON_GPU));
        for (int i = 0; i < 2; i++) open_generator(&e[i], &t[i].config);
        for (int64_t at = 0; at < 10; at += at == 0 ? 7 : 1) {
            const float *logits[2] = { NULL, NULL };
            for (int i = 0; i < 2; i++) {
                CHECK_OK(engine_next_logits(&e[i], ids + at, at == 0 ? 7 : 1, &logits[i]));
            }
            for (int64_t v = 0; v < t[0].config.model_vocab; v++) {
                CHECK_NEAR((double)logits[1][v], (double)logits[0][v], 1e-4);
            }
        }
        for (int i = 0; i < 2; i++) {
            engine_close(&e[i]);
            tiny_close(&t[i]);
        }
    }
}

/* Two sequences in one cache: a piece of a prompt behind a cached one, beside a single token. */
static void sequences_in_one_cache_give_the_cpu_s_logits(void **state)
{
    NEEDS_GPU();
    static const int32_t ids[] = { 5, 0, 17, 60, 17, 3, 9 };
    static const CachePart calls[][2] = { { { 0, 0, 3 }, { 1, 0, 4 } },
                                          { { 1, 4, 1 }, { 0, 3, 6 } } };
    for (int k = 0; k < 2; k++) {
        Tiny t[2];
        Engine e[2];
        EnginePlan plan[2];
        tiny_open_also(&t[0], kinds[k], TINY(ON_CPU));
        tiny_open_also(&t[1], kinds[k], TINY(ON_GPU));
        for (int i = 0; i < 2; i++) {
            const EngineShape shape = { .batch = 1,
                                        .micro_batch = 1,
                                        .sequence = 7,
                                        .positions = 12,
                                        .domains = 1,
                                        .threads = 2,
                                        .cache = 2,
                                        .logit_rows = 7 };
            CHECK_OK(engine_plan(&t[i].config, ENGINE_INFER, &shape, &plan[i]));
            CHECK_OK(engine_open(&e[i], &t[i].config, ENGINE_INFER, &shape, &plan[i]));
            CHECK_OK(engine_init_weights(&e[i].params, 42));
        }
        for (int call = 0; call < 2; call++) {
            const float *logits[2] = { NULL, NULL };
            for (int i = 0; i < 2; i++)
                CHECK_OK(engine_cached_logits(&e[i], calls[call], 2, ids, &logits[i]));
            for (int64_t v = 0; v < 7 * t[0].config.model_vocab; v++)
                CHECK_NEAR((double)logits[1][v], (double)logits[0][v], 1e-4);
        }
        for (int i = 0; i < 2; i++) {
            engine_close(&e[i]);
            tiny_close(&t[i]);
        }
    }
}

static void planned_and_used_bytes_are_equal(void **state)
{
    NEEDS_GPU();
    for (int k = 0; k < KINDS; k++) {
        Tiny t;
        const char *moments = k % 2 == 0 ? "optimizer.moments=bf16" : "optimizer.moments=f32";
        tiny_open_also(&t, kinds[k], TINY(ON_GPU, "run.compute=bf16", moments));
        const float *losses = NULL;
        tiny_steps(&t, 0, 2);
        t.batch.domain.dim[0] = t.shape.micro_batch;
        CHECK_OK(engine_losses(&t.engine, &t.batch, &losses));
        for (int a = 0; a < ENGINE_ARENAS; a++) {
            if (a == ENGINE_PINNED) continue; /* taken as a whole */
            CHECK_INT(engine_peak_bytes(&t.engine, (EngineArena)a), t.plan.bytes[a]);
        }
        tiny_close(&t);
    }
}

/* Halves of the staging block take turns: more than two of them, a last one that is not full, and less than one. */
static void a_save_reads_parts_larger_than_the_staging_block(void **state)
{
    NEEDS_GPU();
    Tiny t;
    tiny_open(&t, TINY(ON_GPU, "model.vocab=40001", "model.hidden=256", "model.tied=true"));
    const Tensor main = t.engine.params.memory.buffer[BUF_MAIN];
    const size_t all = tensor_bytes(&main), ends[] = { all, all - 100, (size_t)3 << 20, 12 };
    char *have = malloc(all);
    CHECK(have != NULL && all > 2 * ENGINE_STAGING_BYTES);
    for (int i = 0; i < 4; i++) {
        const char *from = (const char *)main.data + 8;
        memset(have, 0x5a, all);
        CHECK_OK(engine_read(&t.engine.arenas, have, from, ends[i] - 8, 3));
        for (size_t at = 0, n = 0; at < ends[i] - 8; at += n) {
            const void *want = NULL;
            n = ends[i] - 8 - at < ENGINE_STAGING_BYTES ? ends[i] - 8 - at : ENGINE_STAGING_BYTES;
            CHECK_OK(engine_get(&t.engine.arenas, from + at, n, &want));
            CHECK(memcmp(have + at, want, n) == 0);
        }
        CHECK(ends[i] == all || have[ends[i] - 8] == 0x5a);
    }
    free(have);
    tiny_close(&t);
}

/* More than one piece of what the writer's thread pins. Behind the save the weights are others, so what is loaded is
 * what was saved. */
static void a_large_save_comes_straight_from_the_gpu(void **state)
{
    NEEDS_GPU();
    char folder[] = "/tmp/switchyard_test_XXXXXX", dir[96];
    Tiny a, b;
    Checkpointer saver;
    CheckpointInfo info;
    Arena scratch;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(dir, sizeof dir, "run.dir=%s", folder);
    const char *const large[] = {
        ON_GPU, "model.vocab=40001", "model.hidden=256", "model.tied=true", dir, NULL
    };
    tiny_open(&a, large);
    tiny_open(&b, large);
    CHECK_OK(arena_init(&scratch, "scratch", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(checkpointer_open(&saver, &a.config, &a.engine.params, &a.arena));
    CHECK(worker_wait(&saver.writer, 60));
    CHECK(saver.bytes > (size_t)100 << 20 && saver.copy.pinned == saver.bytes);
    CHECK_OK(checkpoint_save(&saver, 4, 16));
    CHECK_OK(engine_zero(&a.engine.arenas, &a.engine.params.memory.buffer[BUF_MAIN]));
    CHECK_OK(engine_zero(&b.engine.arenas, &b.engine.params.memory.buffer[BUF_OPTIMIZER]));
    CHECK(!gpu_same_state(&a, &b));
    CHECK_OK(checkpoint_finish(&saver));
    CHECK_OK(checkpoint_load_newest(&a.engine.params, folder, NULL, &scratch, &info));
    CHECK_OK(engine_init_weights(&b.engine.params, 42));
    CHECK(gpu_same_state(&a, &b));
    checkpointer_close(&saver);
    tiny_close(&a);
    tiny_close(&b);
    arena_free(&scratch);
    CHECK_OK(file_remove_tree(folder));
}

static void a_nan_is_named_and_skips_the_step(void **state)
{
    NEEDS_GPU();
    Tiny t;
    StepResult r;
    tiny_open(&t, TINY(ON_GPU));
    const float bad = NAN;
    const Tensor main = t.engine.params.memory.buffer[BUF_MAIN];
    memcpy(engine_staging(&t.engine.arenas, main.data), &bad, sizeof bad);
    CHECK_OK(engine_put(&t.engine.arenas, main.data, sizeof bad));
    int32_t *id = t.batch.id.data;
    id[0] = 0; /* row 0 of the embedding is what was spoilt */
    CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 1, &r));
    CHECK(!r.finite);
    CHECK_FAILS(engine_explain_nan(&t.engine, &t.batch, 1), ERR_NUMERIC,
                "adamw, in step 0 or before, left model.embed_tokens.weight (main) with nan at");
    engine_guard(&t.engine);
    CHECK_FAILS(engine_step(&t.engine, &t.batch, 1e-2, 1, &r), ERR_NUMERIC,
                "step 1, layer -1: embed_fwd");
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f32_losses_are_the_cpu_s),
        cmocka_unit_test(bf16_losses_are_near_the_cpu_s),
        cmocka_unit_test(two_runs_and_both_executors_give_the_same_bits),
        cmocka_unit_test(a_captured_step_is_one_launch_and_an_eager_one_many),
        cmocka_unit_test(checkpoints_move_between_cpu_and_gpu),
        cmocka_unit_test(evaluation_gives_the_cpu_s_losses),
        cmocka_unit_test(generation_gives_the_cpu_s_logits),
        cmocka_unit_test(sequences_in_one_cache_give_the_cpu_s_logits),
        cmocka_unit_test(planned_and_used_bytes_are_equal),
        cmocka_unit_test(a_save_reads_parts_larger_than_the_staging_block),
        cmocka_unit_test(a_large_save_comes_straight_from_the_gpu),
        cmocka_unit_test(a_nan_is_named_and_skips_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
