/* Tensor parallelism of our own engine (mesh.tp): what a rank holds is what engines count, what travels is worked out
 * by hand. Other stacks are test_axes' part. */
#include "harness/counted.h"

#include "engine/base/rng.h"
#include "planner/report.h"
#include "planner/search/search_private.h"

#include <math.h>

#define SMALL                                                                                      \
    "data.sequence=64", "model.vocab=512", "model.hidden=64", "model.layers=4", "model.ffn=256",   \
        "attention.heads=4", "moe.experts=8", "moe.ffn=64", "train.batch=16",                      \
        "train.micro_batch=2", "run.device=cpu", "run.threads=1"
#define GQA   "attention.kind=gqa", "attention.head_dim=16", "attention.kv_heads=4"
#define DENSE "model.dense_layers=4"
#define MOE   "model.dense_layers=1", "moe.shared=1"

enum { SETTINGS = 32 };

static int count_settings(const char *const *set)
{
    int n = 0;
    while (n < SETTINGS && set[n] != NULL) n++;
    return n;
}

static void open_plan(Question *q, const char *model, const char *hardware, int64_t gpus,
                      const char *const *set)
{
    question_load(q, model, hardware, gpus, "switchyard,reserve=0,workspace=0", set,
                  count_settings(set));
    question_open(q);
}

#define OPEN(q, model, gpus, ...)                                                                  \
    open_plan(q, model, "h100", gpus, (const char *const[SETTINGS]){ __VA_ARGS__ })

static const LayerPrice *layer_of(Question *q, LayerKind kind)
{
    const PriceEntry *e = NULL;
    CHECK_OK(planner_legal(q->planner, &q->layout));
    CHECK_OK(price_entry(q->planner, &q->layout, &e));
    for (int i = 0; i < q->planner->classes; i++) {
        if (q->planner->spec.layers[q->planner->first_of[i]].kind == kind) return &e->plain[i];
    }
    fail_msg("no layer of kind %d", (int)kind);
    return NULL;
}

/* ---- what a rank holds ---- */

/* Each rank of the mesh, as it would count its own memory before it starts. */
static void check_ranks(Question *q, const double (*memory)[PLAN_KINDS], const RowCapacity *room)
{
    MeshShape shape;
    Config c = q->config;
    const PriceEntry *e = NULL;
    PlanLayout l = q->layout;
    l.room = *room;
    CHECK_OK(price_entry(q->planner, &l, &e));
    counted_like_plans(&c);
    CHECK_OK(train_mesh(&c, (int)q->request.gpus, &shape));
    for (int rank = 0; rank < mesh_ranks(&shape); rank++) {
        const Mesh m = mesh_alone(&shape, rank);
        EngineShape of = train_shape(&c, &m);
        EnginePlan plan;
        double sum = price_comm_bytes(&l, e), planned = 0;
        of.domains = 1, of.capacity = *room;
        CHECK_OK(engine_plan(&c, ENGINE_TRAIN, &of, &plan));
        for (int i = 0; i < ENGINE_ARENAS; i++) sum += (double)plan.bytes[i];
        for (int i = 0; i < PLAN_KINDS; i++) planned += memory[m.at.stage][i];
        CHECK(sum >= planned - 0.5 && sum <= planned + counted_padding(q, &l) + 0.5);
    }
}

static void every_rank_takes_what_the_plan_says(void **state)
{
    (void)state;
    static const struct {
        int gpus;
        const char *set[SETTINGS];
    } cases[] = {
        { 2, { SMALL, GQA, DENSE, "attention.kv_heads=4", "mesh.tp=2", "mesh.zero=0" } },
        { 4, { SMALL, GQA, DENSE, "attention.kv_heads=2", "mesh.tp=2", "mesh.zero=1" } },
        { 4, { SMALL, GQA, DENSE, "attention.kv_heads=2", "mesh.tp=4", "mesh.zero=0" } },
        { 8, { SMALL, GQA, DENSE, "attention.kv_heads=1", "mesh.tp=4", "mesh.zero=2" } },
        { 8, { SMALL, GQA, MOE, "attention.kv_heads=2", "mesh.tp=4", "mesh.zero=3" } },
        { 2, { SMALL, MOE, "mesh.tp=2", "mesh.zero=3", "run.compute=bf16" } },
        { 4, { SMALL, MOE, "mesh.tp=2", "mesh.ep=4", "mesh.zero=1", "moe.buffers=worst" } },
        { 4, { SMALL, MOE, "mesh.tp=2", "mesh.ep=2", "mesh.zero=2", "attention.q_rank=16" } },
        { 4, { SMALL, MOE, "mesh.tp=2", "mesh.pp=2", "mesh.zero=2", "mtp.layers=1" } },
        { 8, { SMALL, MOE, "mesh.tp=2", "mesh.pp=2", "mesh.ep=2", "model.tied=true" } },
        { 8, { SMALL, GQA, DENSE, "mesh.tp=2", "mesh.pp=2", "mesh.cp=2", "mesh.zero=3" } },
        { 8, { SMALL, GQA, MOE, "mesh.tp=2", "mesh.cp=2", "mesh.shard=1", "mesh.zero=2" } },
        { 4, { SMALL, GQA, MOE, "mesh.tp=4", "recompute.layers=[0,1,2,3]", "mesh.zero=1" } },
        { 4,
          { SMALL, MOE, "mesh.tp=2", "recompute.layers=[0,1,2,3]",
            "recompute.pieces=[norm,act,attn_up,shared]", "mesh.zero=1" } },
        { 4, { SMALL, GQA, MOE, "mesh.tp=2", "mesh.reduce=bf16", "run.compute=bf16" } },
        { 4, { SMALL, GQA, DENSE, "mesh.tp=2", "fp8.recipe=row", "run.compute=bf16" } },
        { 4, { SMALL, MOE, "mesh.ep=2", "mesh.etp=2", "mesh.zero=1" } },
        { 8, { SMALL, GQA, MOE, "mesh.etp=2", "mesh.tp=2", "mesh.zero=3", "moe.exchange=direct" } },
        { 8, { SMALL, MOE, "mesh.pp=2", "mesh.ep=2", "mesh.etp=2", "moe.shared=0" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Question q;
        PlanPrice price;
        double memory[2][PLAN_KINDS];
        open_plan(&q, "quickstart", "h200", cases[i].gpus, cases[i].set);
        CHECK_OK(plan_spread_evenly(&q.config, &q.arena, &q.layout));
        CHECK_OK(planner_price(q.planner, &q.layout, &price));
        CHECK_OK(planner_memory(q.planner, &q.layout, &price, memory));
        check_ranks(&q, (const double(*)[PLAN_KINDS])memory, &price.room);
        question_close(&q);
    }
}

static bool draw(const Question *q, const SearchAxes *axes, uint64_t number, PlanLayout *l)
{
    const double outer = (double)search_combinations(axes, 0, SEARCH_OUTER);
    const double inner = (double)search_combinations(axes, SEARCH_OUTER, SEARCH_AXES);
    int buffers = 0;
    return search_decode_outer(&q->request, axes, (int64_t)(rng_uniform(1, 5, 2 * number) * outer),
                               l, &buffers) &&
           search_decode_inner(&q->request, axes,
                               (int64_t)(rng_uniform(1, 5, 2 * number + 1) * inner), l) &&
           planner_legal(q->planner, l) == OK;
}

static void check_counted(Question *q, const PlanLayout *l, Arena *a)
{
    PlanPrice fast, slow = { 0 }, list;
    double bytes, step_s, padding = counted_padding(q, l), parts = 0;
    CHECK_OK(planner_price(q->planner, l, &fast));
    CHECK_OK(counted_price(q->planner, l, a, &slow));
    CHECK(slow.peak_bytes >= fast.peak_bytes - 0.5);
    CHECK(slow.peak_bytes <= fast.peak_bytes + padding + 0.5);
    CHECK_NEAR(fast.step_s / slow.step_s, 1, 0.01);
    CHECK_OK(planner_bound(q->planner, l, &bytes, &step_s));
    CHECK(bytes <= fast.peak_bytes + 0.5 && step_s <= 1.000001 * fast.step_s);
    CHECK_OK(planner_price_list(q->planner, l, a, &list, NULL));
    for (int i = 0; i < PLAN_PARTS; i++) parts += list.part_s[i];
    CHECK_NEAR(parts / list.step_s, 1, 1e-9);
}

/* Layouts drawn at random: bytes are those of the counting run, the bound is below both. */
static void drawn_layouts_take_what_engines_count(void **state)
{
    (void)state;
    enum { GPUS = 48, DRAWS = RUNS(60, 12), TRIES = 100000 };
    static const char *const sets[][SETTINGS] = {
        { "model.layers=12", GQA, "attention.kv_heads=2", "train.batch=96", "moe.experts=16",
          "train.micro_batch=1" },
        { "model.layers=12", GQA, "model.dense_layers=12", "attention.kv_heads=1", "train.batch=96",
          "train.micro_batch=1", "run.compute=bf16" },
        { "model.layers=13", "mtp.layers=1", "model.tied=true", "train.batch=96", "moe.experts=16",
          "train.micro_batch=1", "run.compute=bf16", "moe.buffers=worst" },
    };
    for (size_t m = 0; m < sizeof sets / sizeof *sets; m++) {
        Question q;
        Arena a = { 0 };
        SearchAxes axes = { .axis = { [SEARCH_TP] = { 2, { 2, 4 } } } };
        int seen = 0;
        open_plan(&q, "quickstart", "h200", GPUS, sets[m]);
        search_axes_fill(&q.request, &axes);
        axes.axis[SEARCH_ZERO] = (ConfigInts){ 4, { 0, 1, 2, 3 } };
        CHECK_OK(arena_init(&a, "count", MEM_HOST, (size_t)4 << 30));
        for (uint64_t n = 0; n < TRIES && seen < DRAWS; n++) {
            PlanLayout l;
            if (!draw(&q, &axes, n, &l)) continue;
            check_counted(&q, &l, &a);
            arena_release(&a, (ArenaMark){ 0 });
            seen++;
        }
        CHECK_INT(seen, DRAWS);
        arena_free(&a);
        question_close(&q);
    }
}

/* ---- what travels ---- */

static double collective_s(const Question *q, CollectiveKind kind, int64_t ranks, double bytes)
{
    CollectiveCost c;
    const CollectiveGroup g = roofline_group(&q->hardware, ranks, 1);
    CHECK_OK(collective_cost(&q->hardware, kind, &g, bytes, &c));
    return c.s;
}

static double tensor_s(Question *q, LayerKind kind)
{
    return layer_of(q, kind)->lane_s[ROOFLINE_TENSOR];
}

/* Attention, MLP and head gather tokens x hidden in bf16 before their products; the embedding, attention and MLP sum them
 * behind; backward does the reverse. A chunk of the loss has two all-reduces. */
static void rows_are_gathered_and_summed_in_each_layer(void **state)
{
    (void)state;
    const double tokens = 8192, bytes = tokens * 4096 * 2;
    Question q;
    OPEN(&q, "llama3-8b", 8, "train.batch=8", "mesh.tp=4", "run.compute=bf16");
    const double gather = collective_s(&q, COLLECTIVE_ALL_GATHER, 4, bytes);
    const double sum = collective_s(&q, COLLECTIVE_REDUCE_SCATTER, 4, bytes);
    const double chunk = (double)head_chunk(0, true, 128256 / 4, DTYPE_BF16);
    const double chunks = ceil(tokens / chunk);
    const double loss = chunks * (collective_s(&q, COLLECTIVE_ALL_REDUCE, 4, 4 * tokens / chunks) +
                                  collective_s(&q, COLLECTIVE_ALL_REDUCE, 4, 8 * tokens / chunks));
    CHECK_NEAR(tensor_s(&q, LAYER_MLP) / (2 * (gather + sum)), 1, 1e-9);
    CHECK_NEAR(tensor_s(&q, LAYER_ATTENTION) / (2 * (gather + sum)), 1, 1e-9);
    CHECK_NEAR(tensor_s(&q, LAYER_EMBED) / (gather + sum), 1, 1e-9);
    CHECK_NEAR(tensor_s(&q, LAYER_HEAD) / (gather + sum + loss), 1, 1e-9);
    PlanPrice p;
    CHECK_OK(planner_price(q.planner, &q.layout, &p));
    const double micros = 4; /* 32 blocks of two layers */
    CHECK_NEAR(p.part_s[PLAN_TENSOR] /
                   (micros * (66 * 2 * (gather + sum) - 2 * (gather + sum) + loss)),
               1, 1e-6);
    question_close(&q);
}

/* Routed experts exchange rows as without tp; of a MoE layer nothing is gathered. */
static void experts_work_on_rows(void **state)
{
    (void)state;
    Question q;
    OPEN(&q, "deepseek-v2-lite", 8, "train.batch=8", "mesh.tp=2", "mesh.ep=8", "moe.aux_loss=0");
    CHECK_NEAR(tensor_s(&q, LAYER_MOE), 0, 0);
    CHECK(layer_of(&q, LAYER_MOE)->lane_s[ROOFLINE_EXCHANGE] > 0);
    const double all = (double)layer_of(&q, LAYER_MOE)->count.params.of[BUF_MAIN].flat;
    q.layout.tp = 1, q.layout.dp = 8;
    CHECK_NEAR((double)layer_of(&q, LAYER_MOE)->count.params.of[BUF_MAIN].flat, all, 0);
    question_close(&q);
}

/* All ranks of tp together do what one did. */
static void the_work_of_a_layer_is_shared_out_whole(void **state)
{
    (void)state;
    static const LayerKind kinds[] = { LAYER_ATTENTION, LAYER_MLP, LAYER_HEAD };
    double one[3] = { 0 };
    for (int tp = 1; tp <= 8; tp *= 2) {
        Question q;
        OPEN(&q, "llama3-8b", 8, "train.batch=8");
        q.layout.tp = tp, q.layout.dp = 8 / tp;
        q.planner->listing = true;
        for (int k = 0; k < 3; k++) {
            const LayerPrice *l = layer_of(&q, kinds[k]);
            double flops = 0;
            for (int i = 0; i < l->n_ops; i++) flops += l->op[i].flops;
            if (tp == 1) one[k] = flops;
            CHECK(flops > 0);
            CHECK_NEAR(flops * tp / one[k], 1, 1e-2);
        }
        question_close(&q);
    }
}

/* Latents and norms are sharded over all ranks of a stage, parts over those with the same part, experts over those with
 * the same experts. */
static void gradients_have_three_kinds_of_groups(void **state)
{
    (void)state;
    Question q;
    GradientTimes t;
    const PriceEntry *e = NULL;
    OPEN(&q, "deepseek-v2-lite", 32, "train.batch=32", "mesh.ep=8", "mesh.tp=2");
    RankPrice rank = { .sum.params = layer_of(&q, LAYER_ATTENTION)->count.params };
    spaces_add(&rank.sum.params, &layer_of(&q, LAYER_MOE)->count.params);
    CHECK_OK(price_entry(q.planner, &q.layout, &e));
    const double elems[] = { (512 + 64) * 2048 + 2048 + 512 + 3 * 2048 * 2816 + 64 * 2048 + 2048,
                             (16 * 192 * 2048 + 16 * 256 * 512 + 16 * 128 * 2048) / 2.0,
                             8.0 * 3 * 2048 * 1408 };
    const int64_t ranks[] = { 32, 16, 4 }, stride[] = { 1, 2, 8 };
    for (int zero = 0; zero <= 1; zero++) {
        q.layout.zero = zero;
        CHECK_OK(price_gradients(q.planner, &q.layout, e, &rank, &t));
        CHECK_INT(t.calls, zero == 0 ? 3 : 6);
        for (int k = 0; k < 3; k++) {
            const GradientCall *call = &t.call[zero == 0 ? k : 2 * k];
            CHECK_INT(call->ranks, ranks[k]);
            CHECK_INT(call->stride, stride[k]);
            CHECK_NEAR(call->cost.size, 4 * elems[k], 4 * 128);
        }
        ParamShards s = price_shards(q.planner, &q.layout, e);
        const double updated = zero == 0 ? elems[0] + elems[1] + elems[2]
                                         : elems[0] / 32 + elems[1] / 16 + elems[2] / 4;
        CHECK_NEAR(price_updated_elems(&s, &rank), updated, 128);
    }
    question_close(&q);
}

/* Two heads of keys on eight ranks: four ranks have the same one, and add up gradients of its 2 x 128 rows. */
static void ranks_with_the_same_heads_of_keys_add_up_their_gradients(void **state)
{
    (void)state;
    for (int zero = 0; zero <= 1; zero++) {
        Question q;
        GradientTimes t;
        const PriceEntry *e = NULL;
        OPEN(&q, "llama3-8b", 32, "train.batch=32", "attention.kv_heads=2", "mesh.tp=8");
        q.layout.zero = zero;
        const LayerPrice *l = layer_of(&q, LAYER_ATTENTION);
        CHECK_NEAR(l->copies, 2 * 128 * 4096, 0);
        CHECK_NEAR(layer_of(&q, LAYER_MLP)->copies, 0, 0);
        const RankPrice rank = { .sum = { .params = l->count.params, .copies = l->copies } };
        CHECK_OK(price_entry(q.planner, &q.layout, &e));
        CHECK_OK(price_gradients(q.planner, &q.layout, e, &rank, &t));
        const GradientCall *call = &t.call[t.calls - 1];
        CHECK_TEXT(call->what, "heads of keys added up");
        CHECK_INT(call->ranks, 4);
        CHECK_NEAR(call->cost.size, 4 * l->copies / (zero == 0 ? 1 : 4), 0);
        CHECK_NEAR(t.twins, call->s, 0);
        question_close(&q);
    }
}

/* ---- which layouts there are ---- */

static void what_tp_does_not_divide_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *set[SETTINGS];
        int tp;
        const char *why; /* NULL: it is legal */
    } cases[] = {
        { { "train.batch=32" }, 16, NULL }, /* 8 heads of keys on 16 ranks */
        { { "train.batch=32" }, 64, "mesh.tp 64 does not divide attention.heads 32" },
        { { "train.batch=32", "attention.kv_heads=2", "attention.heads=6", "model.hidden=768",
            "model.ffn=3072", "data.sequence=3072", "rope.scaling=none" },
          3,
          "attention.kv_heads 2 does not divide mesh.tp 3" },
        { { "train.batch=32", "model.vocab=50257" },
          2,
          "mesh.tp 2 does not divide model.vocab 50257" },
        { { "train.batch=32", "model.ffn=14335" }, 2, "mesh.tp 2 does not divide model.ffn 14335" },
        { { "train.batch=32", "model.ffn=14352", "fp8.recipe=row", "run.compute=bf16" },
          2,
          "8-bit products on a GPU need multiples of 16" },
        { { "train.batch=32", "model.ffn=14368", "fp8.recipe=row", "run.compute=bf16" }, 2, NULL },
        { { "train.batch=32", "model.vocab=128032", "fp8.recipe=block", "fp8.head=true" },
          2,
          NULL },
        { { "train.batch=32", "model.vocab=128016", "fp8.recipe=block", "fp8.head=true" },
          2,
          "lm_head.weight is in a matrix of 64008 x 4096: 8-bit products on a GPU need" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Question q;
        open_plan(&q, "llama3-8b", "h100", 192, cases[i].set);
        q.layout.tp = cases[i].tp, q.layout.pp = 6, q.layout.dp = 32 / cases[i].tp;
        if (cases[i].tp == 3) q.layout.pp = 2, q.layout.dp = 32;
        if (cases[i].tp == 64) q.layout.pp = 3, q.layout.dp = 1;
        const Status s = planner_legal(q.planner, &q.layout);
        if (cases[i].why == NULL) CHECK_OK(s);
        if (cases[i].why != NULL) CHECK_FAILS(s, ERR_ARG, cases[i].why);
        question_close(&q);
    }
}

static void a_search_tries_tp_for_models_without_experts(void **state)
{
    (void)state;
    static const struct {
        const char *model, *gpu, *stack;
        ConfigInts given, want;
    } cases[] = {
        { "llama3-8b", "h100", "switchyard", { 0 }, { 4, { 1, 2, 4, 8 } } },
        { "deepseek-v2-lite", "h100", "switchyard", { 0 }, { 1, { 1 } } },
        { "deepseek-v2-lite", "h100", "switchyard", { 2, { 4, 2 } }, { 2, { 2, 4 } } },
        { "deepseek-v2-lite", "h100", "megatron", { 0 }, { 4, { 1, 2, 4, 8 } } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Question q;
        SearchAxes axes = { .axis = { [SEARCH_TP] = cases[i].given } };
        const char *const set[] = { "train.batch=32" };
        question_load(&q, cases[i].model, cases[i].gpu, 32, cases[i].stack, set, 1);
        search_axes_fill(&q.request, &axes);
        const ConfigInts *have = &axes.axis[SEARCH_TP];
        CHECK_INT(have->n, cases[i].want.n);
        for (int k = 0; k < have->n; k++) CHECK_INT(have->at[k], cases[i].want.at[k]);
        q.hardware.scale_up_gpus = 2, axes = (SearchAxes){ 0 };
        search_axes_fill(&q.request, &axes);
        CHECK(have->at[have->n - 1] <= 2);
        arena_free(&q.arena);
    }
}

/* Of ranks without data-parallel ones, those of tp still have latents and norms to shard. */
static void stages_of_zero_differ_over_ranks_of_tp(void **state)
{
    (void)state;
    static const char *const stacks[] = { "switchyard", "megatron" };
    for (int i = 0; i < 2; i++) {
        Question q;
        int n = 0;
        SearchAxes axes = { .axis = { [SEARCH_TP] = { 1, { 2 } },
                                      [SEARCH_RECOMPUTE] = { 1, { 0 } },
                                      [SEARCH_SHARD] = { 1, { 0 } } } };
        PlanLayout l = { .pp = 1, .vpp = 1, .ep = 1, .cp = 1, .tp = 2, .dp = 1, .micro_batch = 1 };
        const char *const set[] = { "train.batch=32" };
        question_load(&q, "llama3-8b", "h100", 2, stacks[i], set, 1);
        search_axes_fill(&q.request, &axes);
        for (int64_t k = 0; k < search_combinations(&axes, SEARCH_OUTER, SEARCH_AXES); k++)
            n += search_decode_inner(&q.request, &axes, k, &l);
        CHECK_INT(n, i == 0 ? 3 : 1);
        arena_free(&q.arena);
    }
}

static void tp_beyond_a_domain_is_a_warning(void **state)
{
    (void)state;
    for (int tp = 8; tp <= 16; tp *= 2) {
        Question q;
        Text out;
        PlanPrice p;
        OPEN(&q, "llama3-8b", 16, "train.batch=32", "run.compute=bf16");
        q.layout.tp = tp, q.layout.dp = 16 / tp;
        CHECK_OK(planner_price(q.planner, &q.layout, &p));
        const PlanReport report = {
            .request = &q.request, .layout = &q.layout, .price = &p, .partition = "", .stack = ""
        };
        CHECK_OK(text_init(&out, &q.arena));
        CHECK_OK(plan_report_text(&report, &out));
        const bool said = strstr(out.data, "warning     mesh.tp 16 spans more GPUs than a scale-up "
                                           "domain has, 8: ") != NULL;
        CHECK(said == (tp == 16));
        question_close(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_rank_takes_what_the_plan_says),
        TEST(drawn_layouts_take_what_engines_count),
        TEST(rows_are_gathered_and_summed_in_each_layer),
        TEST(experts_work_on_rows),
        TEST(the_work_of_a_layer_is_shared_out_whole),
        TEST(gradients_have_three_kinds_of_groups),
        TEST(ranks_with_the_same_heads_of_keys_add_up_their_gradients),
        TEST(what_tp_does_not_divide_is_refused),
        TEST(a_search_tries_tp_for_models_without_experts),
        TEST(stages_of_zero_differ_over_ranks_of_tp),
        TEST(tp_beyond_a_domain_is_a_warning),
    };
    return TEST_RUN(tests);
}
