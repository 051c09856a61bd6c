/* layer_count: a layer counted alone takes and costs what it does in the engine's counting run. */
#include "harness/arena.h"

#include "engine/config/config.h"
#include "engine/count/layer_count.h"
#include "engine/train/train.h"

/* One micro-batch of the preset `name`, by the engine and layer by layer. */
static void compare(const char *name, const char *const *set, int n)
{
    Config c;
    ModelSpec spec;
    EnginePlan plan;
    CHECK_OK(config_load(&c, &arena, name, set, n));
    EngineShape shape = train_shape(&c, NULL);
    shape.domains = 1, shape.threads = 1;
    CHECK_OK(engine_plan(&c, ENGINE_TRAIN, &shape, &plan));
    CHECK_OK(spec_build(&c, &arena, &spec));
    size_t used = 0, peak = 0, ring[2] = { 0, 0 }, stream = 0;
    double flops = 0;
    int64_t elems = 0;
    PoolNeed pool = { 0 };
    for (int i = 0; i < spec.n_layers; i++) {
        LayerCount l;
        CHECK_OK(layer_count(&spec, i, shape.micro_batch, shape.sequence, NULL, &arena, &l));
        pool_need_add(&pool, &l.pool);
        stream = l.stream;
        if (i + 1 < spec.n_layers) used += stream;
        size_t most = l.keep_peak > l.recompute_peak ? l.keep_peak : l.recompute_peak;
        if (used + most > peak) peak = used + most;
        used += l.keep;
        if (l.ring_forward > ring[0]) ring[0] = l.ring_forward;
        if (l.ring_backward > ring[1]) ring[1] = l.ring_backward;
        for (int p = 0; p < LAYER_PASSES; p++) flops += l.pass[p].flops;
        elems += l.params.of[BUF_MAIN].flat;
    }
    ring[1] += 2 * stream;
    CHECK((pool.cols > 0) == (c.mesh_ep > 1));
    if (c.mesh_ep > 1) {
        size_t rows = (size_t)pool_need_rows(&pool, spec.capacity.pool);
        size_t row = (size_t)pool.cols * (pool.kind == OPERAND_PLAIN ? dtype_bytes(spec.act) : 1);
        peak += arena_rounded(rows * row) + arena_rounded(sizeof(int32_t));
        if (pool.kind != OPERAND_PLAIN)
            peak += arena_rounded(rows * (((size_t)pool.cols + 127) / 128) * sizeof(float));
    }
    assert_int_equal(plan.bytes[ENGINE_SLOT], peak);
    assert_int_equal(plan.bytes[ENGINE_RING], ring[0] > ring[1] ? ring[0] : ring[1]);
    /* The optimizer's: 15 a parameter, 2 of the norm, and a handful. A recipe adds copies of weights. */
    if (spec.recipe.kind == RECIPE_NONE)
        CHECK_NEAR(flops / (plan.step.flops - 17 * (double)elems), 1, 1e-6);
}

static void layers_alone_add_up_to_the_counting_run(void **state)
{
    (void)state;
    const char *const one[] = { "train.batch=1", "train.micro_batch=1", "run.device=cpu" };
    const char *const bf16[] = { "train.batch=2", "train.micro_batch=2", "run.device=cpu",
                                 "run.compute=bf16", "recompute.layers=[1,2]" };
    const char *const some[] = { "train.batch=2",  "train.micro_batch=2",
                                 "run.device=cpu", "recompute.layers=[0,1,3]",
                                 "mesh.ep=2",      "recompute.pieces=[norm,act,attn_up,exchange]" };
    const char *const narrow[] = { "train.batch=2", "train.micro_batch=2", "run.device=cpu",
                                   "mesh.ep=2",     "run.compute=bf16",    "fp8.recipe=block" };
    compare("quickstart", one, 3);
    compare("quickstart", narrow, 6);
    compare("quickstart", bf16, 5);
    compare("quickstart", some, 6);
    compare("mixtral-8x7b", one, 3);
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
    CHECK_INT(head_scratch("model.loss_chunk=0"), head_scratch("model.loss_chunk=512"));
    CHECK(head_scratch("model.loss_chunk=0") < head_scratch("model.loss_chunk=1024"));
}

/* What a MoE layer keeps of a micro-batch from forward to backward, in bf16 on one rank. */
typedef struct MoeShape {
    int64_t b, t, d, n, e, k, shared; /* n: width of an expert; shared: how many of that width */
} MoeShape;

static LayerCount moe_count(const MoeShape *s, const char *recompute)
{
    char set[11][48];
    const char *all[11];
    Config c;
    ModelSpec spec;
    LayerCount l = { 0 };
    snprintf(set[0], sizeof set[0], "model.hidden=%lld", (long long)s->d);
    snprintf(set[1], sizeof set[1], "moe.ffn=%lld", (long long)s->n);
    snprintf(set[2], sizeof set[2], "moe.experts=%lld", (long long)s->e);
    snprintf(set[3], sizeof set[3], "moe.top_k=%lld", (long long)s->k);
    snprintf(set[4], sizeof set[4], "moe.shared=%lld", (long long)s->shared);
    snprintf(set[5], sizeof set[5], "data.sequence=%lld", (long long)s->t);
    snprintf(set[6], sizeof set[6], "run.compute=bf16");
    snprintf(set[7], sizeof set[7], "model.dense_layers=0");
    snprintf(set[8], sizeof set[8], "model.layers=1");
    snprintf(set[9], sizeof set[9], "recompute.layers=%s", recompute == NULL ? "[]" : "[0]");
    snprintf(set[10], sizeof set[10], "recompute.pieces=[%s]", recompute == NULL ? "" : recompute);
    for (int i = 0; i < 11; i++) all[i] = set[i];
    CHECK_OK(config_load(&c, &arena, "quickstart", all, 11));
    CHECK_OK(spec_build(&c, &arena, &spec));
    for (int i = 0; i < spec.n_layers; i++) {
        if (spec.layers[i].kind != LAYER_MOE) continue;
        CHECK_OK(layer_count(&spec, i, s->b, s->t, NULL, &arena, &l));
    }
    return l;
}

/* Router logits, the norm's statistic, and the routing: what to gather, where from and where to. */
static size_t moe_metadata(const MoeShape *s)
{
    int64_t tokens = s->b * s->t, slots = tokens * s->k, by_token = 4 * (s->e + 1);
    CHECK(by_token + 20 * s->k < 2 * s->d + 4 * s->k * s->n);
    size_t sum = arena_rounded((size_t)(4 * tokens)) + arena_rounded((size_t)(4 * tokens * s->e)) +
                 5 * arena_rounded((size_t)(4 * slots)) + arena_rounded((size_t)(4 * s->b * s->e)) +
                 arena_rounded((size_t)(4 * (s->e + 1)));
    CHECK(sum <= (size_t)(tokens * (by_token + 20 * s->k) + 4 * (s->b + 1) * (s->e + 1)) + 9 * 256);
    return sum;
}

/* The experts' input, 2 T D, and their pre-activations, 4 T K n; no expert's activation or output, no
 * gathered rows. Shared experts keep their pre-activation and activation, 6 T n each. The layer's own
 * input, which the norm needs, is the residual stream's: with the norm computed again the
 * stream is the only 2 T D. */
static void a_moe_layer_keeps_its_input_and_pre_activations(void **state)
{
    (void)state;
    static const MoeShape shapes[] = {
        { 1, 512, 256, 128, 8, 2, 0 },     { 2, 1024, 2048, 1408, 64, 6, 0 },
        { 2, 1024, 2048, 1408, 64, 6, 2 }, { 1, 4096, 7168, 2048, 32, 8, 1 },
        { 4, 256, 512, 64, 16, 4, 1 },     { 3, 96, 320, 96, 12, 3, 0 },
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const MoeShape *s = &shapes[i];
        size_t tokens = (size_t)(s->b * s->t), meta = moe_metadata(s);
        size_t input = 2 * tokens * (size_t)s->d, width = (size_t)(s->shared * s->n);
        size_t pre = 4 * tokens * (size_t)(s->k * s->n), shared = 6 * tokens * width;
        LayerCount l = moe_count(s, NULL);
        CHECK_INT(l.keep, input + pre + shared + meta);
        CHECK_INT(l.keep_peak, l.keep);
        CHECK_INT(l.stream, input);
        l = moe_count(s, "norm");
        CHECK_INT(l.stream + l.keep, input + pre + shared + meta);
        l = moe_count(s, "norm,act");
        CHECK_INT(l.keep, pre + 4 * tokens * width + meta);
        l = moe_count(s, "norm,shared");
        CHECK_INT(l.keep, pre + meta);
    }
}

/* What a layer of experts sends, by pass: bytes of a row, and of all rows over links. */
typedef struct Sent {
    double row[LAYER_PASSES], all[LAYER_PASSES];
    size_t keep;
} Sent;

static Status note_sent(void *self, LayerPass pass, int phase, const OpDesc *op, const void *args,
                        const OpCost *cost)
{
    Sent *sent = self;
    (void)phase, (void)args;
    if (strcmp(op->name, "exchange_dispatch") != 0) return OK;
    sent->row[pass] += cost->size;
    sent->all[pass] += cost->comm_bytes;
    return OK;
}

static Sent what_is_sent(const char *rows, const char *kind, int64_t *hidden, int64_t *top_k)
{
    const char *const set[] = { "run.compute=bf16",    "mesh.ep=4", "mesh.ranks_per_host=2",
                                "moe.buffers=worst",   kind,        "fp8.recipe=block",
                                "recompute.layers=[]", rows };
    Sent sent = { 0 };
    Config c;
    ModelSpec spec;
    LayerCount l;
    CHECK_OK(config_load(&c, &arena, "quickstart", set, sizeof set / sizeof *set));
    CHECK_OK(spec_build(&c, &arena, &spec));
    const LayerCountObserver observer = { note_sent, &sent, NULL };
    int i = 0;
    while (spec.layers[i].kind != LAYER_MOE) i++;
    CHECK_OK(layer_count(&spec, i, 1, c.data_sequence, &observer, &arena, &l));
    *hidden = c.model_hidden, *top_k = c.moe_top_k;
    sent.keep = l.keep;
    return sent;
}

/* Rows of tokens and gradients take half their bytes and a scale for every 128 numbers. Routing, 8
 * bytes a choice, goes with tokens alone. Received rows are kept in 8 bits, too. */
static void eight_bit_rows_halve_what_is_sent(void **state)
{
    (void)state;
    static const char *const kinds[] = { "moe.exchange=alltoall", "moe.exchange=hier",
                                         "moe.exchange=direct", "moe.exchange=allgather" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int64_t d = 0, k = 0;
        Sent wide = what_is_sent("fp8.dispatch=bf16", kinds[i], &d, &k);
        Sent narrow = what_is_sent("fp8.dispatch=fp8", kinds[i], &d, &k);
        double routing = 8.0 * (double)k, row = (double)d * (1 + 4.0 / 128);
        CHECK_NEAR(wide.row[PASS_FORWARD], 2 * (double)d + routing, 0);
        CHECK_NEAR(wide.row[PASS_INPUT], 2 * (double)d, 0);
        CHECK_NEAR(narrow.row[PASS_FORWARD], row + routing, 0);
        CHECK_NEAR(narrow.row[PASS_INPUT], row, 0);
        for (int p = PASS_FORWARD; p <= PASS_INPUT; p++)
            CHECK_NEAR(narrow.all[p] / wide.all[p], narrow.row[p] / wide.row[p], 1e-9);
        CHECK(narrow.all[PASS_FORWARD] > 0 && narrow.keep < wide.keep);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(layers_alone_add_up_to_the_counting_run),
        TEST(logits_of_512_tokens_exist_at_a_time_on_a_cpu),
        TEST(a_moe_layer_keeps_its_input_and_pre_activations),
        TEST(eight_bit_rows_halve_what_is_sent),
    };
    return ARENA_RUN(tests);
}
