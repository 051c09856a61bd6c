/* layer_count: a layer counted alone takes and costs what it does in the engine's counting run. */
#include "harness/test.h"

#include "config/config.h"
#include "train/engine.h"
#include "train/layer_count.h"

static Arena arena;

/* One micro-batch of the preset `name`, by the engine and layer by layer. */
static void compare(const char *name, const char *const *set, int n)
{
    Config c;
    ModelSpec spec;
    EnginePlan plan;
    CHECK_OK(config_load(&c, &arena, name, set, n));
    EngineShape shape = { .batch = c.train_batch,
                          .micro_batch = c.train_micro_batch,
                          .sequence = c.data_sequence,
                          .positions = c.data_sequence,
                          .domains = 1,
                          .threads = 1 };
    CHECK_OK(engine_plan(&c, ENGINE_TRAIN, &shape, &plan));
    CHECK_OK(spec_build(&c, &arena, &spec));
    size_t used = 0, peak = 0, ring[2] = { 0, 0 }, stream = 0;
    double flops = 0;
    int64_t elems = 0;
    for (int i = 0; i < spec.n_layers; i++) {
        LayerCount l;
        CHECK_OK(layer_count(&spec, i, shape.micro_batch, shape.sequence, NULL, &arena, &l));
        stream = l.stream;
        if (i + 1 < spec.n_layers) used += stream;
        size_t most = l.keep_peak > l.again_peak ? l.keep_peak : l.again_peak;
        if (used + most > peak) peak = used + most;
        used += l.keep;
        if (l.ring_forward > ring[0]) ring[0] = l.ring_forward;
        if (l.ring_backward > ring[1]) ring[1] = l.ring_backward;
        for (int p = 0; p < LAYER_PASSES; p++) flops += l.pass[p].flops;
        elems += l.elems;
    }
    ring[1] += 2 * stream;
    assert_int_equal(plan.bytes[ENGINE_SLOT], peak);
    assert_int_equal(plan.bytes[ENGINE_RING], ring[0] > ring[1] ? ring[0] : ring[1]);
    /* The optimizer's: 15 a parameter, 2 of the norm, and a handful. */
    CHECK_NEAR(flops / (plan.step.flops - 17 * (double)elems), 1, 1e-6);
}

static void layers_alone_add_up_to_the_counting_run(void **state)
{
    (void)state;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)1 << 30));
    const char *const one[] = { "train.batch=1", "train.micro_batch=1", "run.device=cpu" };
    const char *const bf16[] = { "train.batch=2", "train.micro_batch=2", "run.device=cpu",
                                 "run.compute=bf16", "recompute.layers=[1,2]" };
    const char *const some[] = { "train.batch=2",  "train.micro_batch=2",
                                 "run.device=cpu", "recompute.layers=[0,1,3]",
                                 "mesh.ep=2",      "recompute.pieces=[norm,act,attn_up,exchange]" };
    compare("quickstart", one, 3);
    compare("quickstart", bf16, 5);
    compare("quickstart", some, 6);
    compare("mixtral-8x7b", one, 3);
    arena_free(&arena);
}

static size_t head_scratch(const char *chunk)
{
    Config c;
    ModelSpec spec;
    LayerCount l;
    const char *const set[] = { "run.compute=bf16", "data.sequence=1024", chunk };
    CHECK_OK(config_load(&c, &arena, "quickstart", set, 3));
    CHECK_OK(spec_build(&c, &arena, &spec));
    CHECK_OK(layer_count(&spec, spec.n_layers - 1, 1, c.data_sequence, NULL, &arena, &l));
    return l.scratch;
}

static void logits_of_512_tokens_exist_at_a_time_on_a_cpu(void **state)
{
    (void)state;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_INT(head_scratch("model.loss_chunk=0"), head_scratch("model.loss_chunk=512"));
    CHECK(head_scratch("model.loss_chunk=0") < head_scratch("model.loss_chunk=1024"));
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(layers_alone_add_up_to_the_counting_run),
        TEST(logits_of_512_tokens_exist_at_a_time_on_a_cpu),
    };
    return TEST_RUN(tests);
}
