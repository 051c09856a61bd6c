/* The planner's prices: bytes of our own stack are those of the engine's counting run; another
 * stack's meet what was published of it. */
#include "harness/counted.h"

#include "engine/config/config_private.h"
#include "hardware/presets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1073741824.0;

/* The first blocks with the table, and roles of others. */
static const char some_frozen[] = "init.frozen=[model.embed_tokens.weight, "
                                  "\"model.layers.[0-2].*\", \"*.experts.*.down_proj.*\", "
                                  "\"model.layers.[35].*.kv_b_proj.*\", \"*.mlp.gate.*\"]";

static void open_plan(Question *q, const char *model, const char *hardware, int64_t gpus,
                      const char *stack, const char *const *set, int n)
{
    question_load(q, model, hardware, gpus, stack, set, n);
    question_open(q);
}

static void one_rank_takes_what_the_engine_counts(void **state)
{
    (void)state;
    const char *const sets[][6] = {
        { "train.batch=4", "train.micro_batch=4", "run.device=cpu", "run.threads=1" },
        { "train.batch=6", "train.micro_batch=2", "run.device=cpu", "run.threads=1",
          "run.compute=bf16" },
        { "train.batch=4", "train.micro_batch=1", "run.device=cpu", "run.threads=1",
          "recompute.layers=[0,1,2,3]", "recompute.pieces=[act,norm,shared,attn_up]" },
        { "train.batch=4", "train.micro_batch=1", "run.device=cpu", "run.threads=1",
          "recompute.layers=[0,1,2,3]" },
        { "train.batch=4", "train.micro_batch=4", "run.device=cpu", "run.threads=1",
          "run.compute=bf16", "optimizer.moments=bf16" },
        { "train.batch=4", "train.micro_batch=2", "run.device=cpu", "run.threads=1",
          "mtp.layers=2" },
        { "train.batch=4", "train.micro_batch=2", "run.device=cpu", "run.threads=1", "mtp.layers=1",
          "model.tied=true" },
        { "train.batch=4", "train.micro_batch=2", "run.device=cpu", "run.threads=1", some_frozen },
        { "train.batch=4", "train.micro_batch=2", "run.device=cpu", "run.threads=1",
          "fp8.recipe=block", "run.compute=bf16" },
        { "train.batch=4", "train.micro_batch=2", "run.device=cpu", "run.threads=1",
          "fp8.recipe=row", "fp8.layers=[1,3]" },
        { "train.batch=4", "train.micro_batch=2", "run.device=cpu", "run.threads=1",
          "fp8.recipe=tensor", "recompute.layers=[0,1,2,3]" },
        { "train.batch=4", "train.micro_batch=2", "run.device=cpu", "run.threads=1", "mtp.layers=1",
          "optimizer.ema=0.9" },
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        int n = 0;
        while (n < 6 && sets[i][n] != NULL) n++;
        Question q;
        PlanPrice price;
        EnginePlan plan;
        open_plan(&q, "quickstart", "h200", 1, "switchyard,reserve=0,workspace=0", sets[i], n);
        Config c = q.config;
        counted_like_plans(&c);
        EngineShape shape = train_shape(&c, NULL);
        shape.domains = 1;
        CHECK_OK(engine_plan(&c, ENGINE_TRAIN, &shape, &plan));
        CHECK_OK(planner_price(q.planner, &q.layout, &price));
        double sum = 0;
        for (int a = 0; a < ENGINE_ARENAS; a++) sum += (double)plan.bytes[a];
        CHECK_NEAR(price.peak_bytes, sum, 0.5);
        question_close(&q);
    }
}

static void parts_add_up_to_the_step(void **state)
{
    (void)state;
    const char *const set[] = { "mesh.pp=4",          "mesh.ep=8",        "mesh.cp=2",
                                "train.batch=128",    "run.compute=bf16", "data.sequence=4096",
                                "train.micro_batch=1" };
    const char *const stacks[] = { "switchyard", "primus", "primus,deepep=0" };
    for (int i = 0; i < 3; i++) {
        Question q;
        PlanPrice p;
        open_plan(&q, "deepseek-v2", "mi355x", 64, stacks[i], set, 7);
        CHECK_OK(planner_price(q.planner, &q.layout, &p));
        double seconds = 0, bytes = 0;
        for (int k = 0; k < PLAN_PARTS; k++) seconds += p.part_s[k];
        for (int k = 0; k < PLAN_KINDS; k++) bytes += p.memory[k];
        CHECK_NEAR(seconds / p.step_s, 1, 1e-9);
        CHECK_NEAR(bytes, p.peak_bytes, 0.5);
        CHECK_NEAR(p.tokens_per_s_per_gpu, 128 * 4096 / p.step_s / 64, 1e-6);
        assert_true(p.mfu > 0.05 && p.mfu < 0.6);
        question_close(&q);
    }
}

/* Of 34 bytes that an update moves for a parameter 8 are gone, of 8 that moments take 4, of 12 that
 * a checkpoint holds 4. */
static void bf16_moments_cost_less_memory_and_time(void **state)
{
    (void)state;
    static const char *const moments[] = { "optimizer.moments=f32", "optimizer.moments=bf16" };
    PlanPrice p[2];
    for (int i = 0; i < 2; i++) {
        const char *const set[] = { "run.compute=bf16", "checkpoint.every=10", moments[i] };
        Question q;
        open_plan(&q, "deepseek-v2-lite", "h200", 8, "switchyard", set, 3);
        CHECK_OK(planner_price(q.planner, &q.layout, &p[i]));
        question_close(&q);
    }
    CHECK_NEAR(p[1].part_s[PLAN_UPDATE] / p[0].part_s[PLAN_UPDATE], 26.0 / 34, 1e-3);
    CHECK_NEAR(p[1].part_s[PLAN_CHECKPOINT] / p[0].part_s[PLAN_CHECKPOINT], 8.0 / 12, 1e-9);
    CHECK_NEAR(p[1].memory[PLAN_OPTIMIZER] / p[0].memory[PLAN_OPTIMIZER], 0.5, 1e-3);
    CHECK_NEAR(p[1].memory[PLAN_MAIN], p[0].memory[PLAN_MAIN], 0);
}

/* Copies of weights are made behind the update, once a step. A rank holds both orientations, and no bf16. With
 * ZeRO-3 they are made for each use, and nothing is held. */
static void eight_bit_products_are_faster_and_their_copies_are_counted(void **state)
{
    (void)state;
    static const char *const recipes[] = { "fp8.recipe=none", "fp8.recipe=block" };
    PlanPrice p[2];
    for (int zero = 1; zero <= 3; zero += 2) {
        for (int i = 0; i < 2; i++) {
            const char *const set[] = { "run.compute=bf16", "mesh.ep=32",          "mesh.pp=8",
                                        "train.batch=2048", "train.micro_batch=1", recipes[i] };
            Question q;
            open_plan(&q, "deepseek-v3", "h200", 512, "switchyard", set, 6);
            q.layout.zero = zero;
            CHECK_OK(planner_price(q.planner, &q.layout, &p[i]));
            question_close(&q);
        }
        CHECK(p[1].part_s[PLAN_COMPUTE] < 0.85 * p[0].part_s[PLAN_COMPUTE]);
        CHECK(p[1].step_s < 0.95 * p[0].step_s);
        CHECK(zero == 3 ? p[1].part_s[PLAN_UPDATE] == p[0].part_s[PLAN_UPDATE]
                        : p[1].part_s[PLAN_UPDATE] > p[0].part_s[PLAN_UPDATE]);
        double more = p[1].memory[PLAN_WEIGHTS] / p[0].memory[PLAN_WEIGHTS];
        CHECK(zero == 3 ? more == 1 : more > 1 && more < 1.01);
    }
}

/* Layers that follow the recipe and others are classes of their own. */
static void layers_that_follow_a_recipe_are_priced_apart(void **state)
{
    (void)state;
    static const char *const layers[] = { "fp8.layers=[2, 3]", "fp8.layers=[1, 2, 3]",
                                          "fp8.layers=[]" };
    double s[3];
    int classes[3];
    for (int i = 0; i < 3; i++) {
        const char *const set[] = { "run.compute=bf16", "fp8.recipe=row", layers[i],
                                    "model.layers=6" };
        Question q;
        PlanPrice p;
        open_plan(&q, "deepseek-v3", "h200", 64, "switchyard", set, 4);
        CHECK_OK(planner_price(q.planner, &q.layout, &p));
        s[i] = p.step_s, classes[i] = q.planner->classes;
        question_close(&q);
    }
    CHECK(s[0] > s[1] && s[1] > s[2]);
    CHECK(classes[0] > classes[2] && classes[1] > classes[2]);
}

static void a_recipe_needs_hardware_with_8_bit_products(void **state)
{
    (void)state;
    static const char *const set[] = { "fp8.recipe=row" };
    Question q;
    question_load(&q, "quickstart", "h200", 1, "switchyard", set, 1);
    q.hardware.peak_fp8 = 0;
    hardware_curve(&q.hardware, WORK_GEMM, HARDWARE_FP8)->n = 0;
    CHECK_FAILS(planner_make(&q.request, &q.planner), ERR_ARG,
                "fp8.recipe: h200 has no 8-bit products");
    q.config.fp8_recipe = 0, q.config.fp8_attention = true;
    CHECK_FAILS(planner_make(&q.request, &q.planner), ERR_ARG,
                "fp8.attention: h200 has no 8-bit products");
    q.config.fp8_attention = false;
    question_open(&q);
    question_close(&q);
}

/* Norms alone are trained: hardly anything is reduced, and weights are gathered with ZeRO-3 alone. */
static void what_is_frozen_costs_no_gradients_and_no_update(void **state)
{
    (void)state;
    static const char *const frozen[] = {
        "init.frozen=[]",
        "init.frozen=[model.embed_tokens.weight, \"*_proj*\", \"*.gate.weight\", lm_head.weight]"
    };
    PlanPrice p[2];
    for (int zero = 1; zero <= 3; zero += 2) {
        for (int i = 0; i < 2; i++) {
            const char *const set[] = { "run.compute=bf16", frozen[i] };
            Question q;
            open_plan(&q, "deepseek-v2-lite", "h200", 8, "switchyard", set, 2);
            q.layout.zero = zero;
            CHECK_OK(planner_price(q.planner, &q.layout, &p[i]));
            question_close(&q);
        }
        double rest = p[1].part_s[PLAN_GRADIENTS] / p[0].part_s[PLAN_GRADIENTS];
        CHECK(p[1].part_s[PLAN_UPDATE] < 0.01 * p[0].part_s[PLAN_UPDATE]);
        CHECK(p[1].memory[PLAN_GRADS] < 0.01 * p[0].memory[PLAN_GRADS]);
        CHECK(zero < 3 ? rest < 0.01 : rest > 0.3 && rest < 0.8);
        CHECK_NEAR(p[1].memory[PLAN_WEIGHTS] / p[0].memory[PLAN_WEIGHTS], 1, 1e-3);
        CHECK(p[1].schedule_s < 0.8 * p[0].schedule_s);
    }
}

/* AMD's table of DeepSeek-V2-Lite on 8 MI355X, row by row (ROCm blog "MoE training on AMD GPUs");
 * rows 1, 3, 5, 7 and 10 fitted the stack's constants. */
static void the_ladder_of_deepseek_v2_lite_comes_out(void **state)
{
    (void)state;
    static const struct {
        int micro_batch, fusion, deepep, sync_free, tuned;
        double tokens, percent;
    } rows[] = {
        { 1, 0, 0, 0, 0, 10734.6, 28.05 },  { 2, 0, 0, 0, 0, 21028.2, 34.50 },
        { 4, 0, 0, 0, 0, 28063.1, 47.46 },  { 8, 0, 0, 0, 0, 30359.5, 75.76 },
        { 12, 0, 0, 0, 0, 30444.3, 99.13 }, { 12, 1, 0, 0, 0, 31095.1, 92.18 },
        { 12, 1, 1, 0, 0, 35150.6, 83.63 }, { 12, 1, 1, 1, 0, 39273.1, 83.90 },
        { 12, 1, 1, 1, 1, 39981.6, 84.04 }, { 14, 1, 1, 1, 1, 40805.5, 95.08 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char stack[128], batch[32], micro[32];
        snprintf(stack, sizeof stack,
                 "primus,loss_fusion=%d,deepep=%d,sync_free=%d,launch_tuned=%d", rows[i].fusion,
                 rows[i].deepep, rows[i].sync_free, rows[i].tuned);
        snprintf(batch, sizeof batch, "train.batch=%d", 64 * rows[i].micro_batch);
        snprintf(micro, sizeof micro, "train.micro_batch=%d", rows[i].micro_batch);
        const char *const set[] = { batch, micro, "mesh.ep=8", "run.compute=bf16",
                                    "data.sequence=4096" };
        Question q;
        PlanPrice p;
        open_plan(&q, "deepseek-v2-lite", "mi355x", 8, stack, set, 5);
        CHECK_OK(planner_price(q.planner, &q.layout, &p));
        CHECK_NEAR(p.tokens_per_s_per_gpu / rows[i].tokens, 1, 0.15);
        CHECK_NEAR(100 * p.peak_bytes / GIB / q.hardware.memory_gib / rows[i].percent, 1, 0.10);
        question_close(&q);
    }
}

/* One all-reduce of counts a MoE layer and micro-batch, of all data-parallel ranks; none for what
 * one rank counts alone. */
static void a_global_group_costs_a_sum_of_counts(void **state)
{
    (void)state;
    static const struct {
        int64_t gpus;
        const char *pp;
    } cases[] = { { 8, "mesh.pp=1" }, { 16, "mesh.pp=1" }, { 8, "mesh.pp=8" } };
    for (int i = 0; i < 3; i++) {
        double exchange_s[2];
        Question q;
        for (int global = 0; global < 2; global++) {
            const char *const set[] = { "train.batch=64", "train.micro_batch=2", cases[i].pp,
                                        global ? "moe.aux_scope=global" : "moe.aux_scope=batch" };
            PlanPrice p;
            open_plan(&q, "qwen3-30b-a3b", "h200", cases[i].gpus, "switchyard", set, 4);
            CHECK_OK(planner_price(q.planner, &q.layout, &p));
            exchange_s[global] = p.part_s[PLAN_EXCHANGE];
            if (global == 0) question_close(&q);
        }
        CollectiveCost sum;
        CollectiveGroup g = roofline_group(&q.hardware, q.layout.dp, 1);
        CHECK_OK(collective_cost(&q.hardware, COLLECTIVE_ALL_REDUCE, &g, 2 * 128 * 4, &sum));
        double want = 48 * 64 / (2 * (double)q.layout.dp) * sum.s;
        CHECK_NEAR(exchange_s[0], 0, 0);
        CHECK_NEAR(exchange_s[1], q.layout.dp == 1 ? 0 : want, 1e-6 * want);
        question_close(&q);
    }
}

static uint32_t seed = 12345;

static int pick(const int *of, int n)
{
    seed = seed * 1664525 + 1013904223;
    return of[(seed >> 16) % (uint32_t)n];
}

#define PICK(...)                                                                                  \
    pick((const int[]){ __VA_ARGS__ }, (int)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)))

/* A layout that the model and the GPUs allow; false if this throw of the dice is none. */
static bool random_layout(const Question *q, const ScheduleDesc *d, int gpus, PlanLayout *l)
{
    static const unsigned sets[] = { 0, RECOMPUTE_NORM | RECOMPUTE_ACT,
                                     RECOMPUTE_ATTN_UP | RECOMPUTE_SHARED | RECOMPUTE_EXCHANGE,
                                     RECOMPUTE_LAYER };
    *l = (PlanLayout){ .schedule = d,
                       .pp = PICK(1, 2, 3, 4, 5, 6, 8),
                       .vpp = d->placement == PLACE_LOOP ? PICK(1, 2, 3) : 2,
                       .ep = PICK(1, 2, 4, 8),
                       .cp = PICK(1, 1, 2),
                       .tp = 1,
                       .zero = PICK(0, 1, 2, 3),
                       .micro_batch = PICK(1, 2),
                       .recompute = sets[PICK(0, 1, 2, 3)],
                       .recompute_blocks = PICK(-1, 1, 2) };
    l->dp = gpus / (l->pp * l->cp);
    return planner_legal(q->planner, l) == OK;
}

static PlanPrice price_with(const char *buffers, const char *counted)
{
    const char *const set[] = { "train.batch=64", "train.micro_batch=1",
                                "mesh.ep=8",      "data.sequence=4096",
                                buffers,          counted };
    Question q;
    PlanPrice p;
    open_plan(&q, "deepseek-v2-lite", "mi355x", 8, "switchyard", set, 6);
    CHECK_OK(planner_price(q.planner, &q.layout, &p));
    question_close(&q);
    return p;
}

/* A host that reads how many rows come has memory for these alone. Pools are bounds, counted or not. */
static void counted_rows_take_less_than_all_that_could_come(void **state)
{
    (void)state;
    PlanPrice worst = price_with("moe.buffers=worst", "plan.counted_rows=false");
    PlanPrice counted = price_with("moe.buffers=worst", "plan.counted_rows=true");
    PlanPrice pooled = price_with("moe.buffers=pooled", "plan.counted_rows=true");
    CHECK(counted.peak_bytes < worst.peak_bytes);
    CHECK_INT(worst.buffers, BUFFERS_WORST);
    CHECK_INT(counted.buffers, PLAN_COUNTED_ROWS);
    CHECK_INT(pooled.buffers, BUFFERS_POOLED);
}

/* Parts add up to the step and none is negative, whoever gave the schedule its time. */
static void check_parts(const PlanPrice *p)
{
    double sum = 0;
    for (int i = 0; i < PLAN_PARTS; i++) {
        CHECK(p->part_s[i] >= -1e-9 * p->step_s);
        sum += p->part_s[i];
    }
    CHECK_NEAR(sum / p->step_s, 1, 1e-9);
}

static void prices_are_those_of_the_counting_run_and_the_simulator(void **state)
{
    (void)state;
    enum { GPUS = 120, PRICED = RUNS(8, 2) };
    static const char *const sets[][8] = {
        { "train.batch=960", "model.layers=24", "moe.experts=16", "train.micro_batch=1" },
        { "train.batch=960", "model.layers=25", "moe.experts=8", "train.micro_batch=1",
          "run.compute=bf16", "attention.kind=gqa", "attention.kv_heads=2", "moe.buffers=worst" },
        { "train.batch=2880", "model.layers=31", "moe.experts=24", "train.micro_batch=1",
          "run.compute=bf16", "mesh.reduce=bf16", "plan.imbalance=1.3", "moe.shared=0" },
        { "train.batch=960", "model.layers=24", "moe.experts=16", "train.micro_batch=1",
          "mtp.layers=2" },
        { "train.batch=960", "model.layers=13", "moe.experts=16", "train.micro_batch=1",
          "model.tied=true", "mtp.layers=1", "run.compute=bf16" },
        { "train.batch=960", "model.layers=13", "moe.experts=16", "train.micro_batch=1",
          "mesh.reduce=bf16", "run.compute=bf16", some_frozen },
        /* with fp8.kept=fp8 a CPU, which counts here, takes more workspace than a GPU */
        { "train.batch=960", "model.layers=13", "moe.experts=16", "train.micro_batch=1",
          "fp8.recipe=block", "fp8.kept=plain", "run.compute=bf16", some_frozen },
    };
    int priced = 0;
    double worst = 0;
    for (size_t m = 0; m < sizeof sets / sizeof *sets; m++) {
        Question q;
        Arena a = { 0 };
        int n = 0;
        while (n < 8 && sets[m][n] != NULL) n++;
        open_plan(&q, "quickstart", "h200", GPUS, "switchyard", sets[m], n);
        CHECK_OK(arena_init(&a, "count", MEM_HOST, (size_t)4 << 30));
        for (int i = 0; i < PRICED * schedule_table_n;) {
            PlanLayout l;
            PlanPrice fast, slow = { 0 };
            if (!random_layout(&q, &schedule_table[i % schedule_table_n], GPUS, &l)) continue;
            if (planner_price(q.planner, &l, &fast) != OK) continue; /* no such schedule */
            CHECK_OK(counted_price(q.planner, &l, &a, &slow));
            check_parts(&fast);
            check_parts(&slow);
            double padding = counted_padding(&q, &l);
            CHECK(slow.peak_bytes >= fast.peak_bytes - 0.5);
            CHECK(slow.peak_bytes <= fast.peak_bytes + padding + 0.5);
            if (padding == 0) CHECK_INT(fast.worst_rank, slow.worst_rank);
            worst = fmax(worst, fabs(fast.step_s / slow.step_s - 1));
            arena_release(&a, (ArenaMark){ 0 });
            priced++, i++;
        }
        arena_free(&a);
        question_close(&q);
    }
    print_message("%d layouts, largest difference of times %.4f\n", priced, worst);
    CHECK(priced >= 6 * 8 * PRICED);
    CHECK_NEAR(worst, 0, 0.01);
}

/* The engine's counting run is told the list itself. */
static void recomputed_layers_count_on_the_stage_that_has_them(void **state)
{
    (void)state;
    static const char *const lists[] = { "recompute.layers=[0]", "recompute.layers=[7]",
                                         "recompute.layers=[0,1]", "recompute.layers=[6,7]",
                                         "recompute.layers=[1,3,5,7]" };
    double step_s[5];
    for (int i = 0; i < 5; i++) {
        const char *const set[] = { "model.layers=8",   "mesh.pp=4",
                                    "train.batch=32",   "train.micro_batch=1",
                                    "run.compute=bf16", "run.threads=1",
                                    lists[i],           "mesh.layout=Et*2|t*2|t*2|t*2L" };
        Question q;
        Arena a = { 0 };
        PlanPrice fast, slow;
        open_plan(&q, "quickstart", "h200", 4, "switchyard", set, 8);
        CHECK_OK(arena_init(&a, "count", MEM_HOST, (size_t)4 << 30));
        CHECK_OK(planner_price(q.planner, &q.layout, &fast));
        CHECK_OK(counted_price(q.planner, &q.layout, &a, &slow));
        CHECK_NEAR(fast.peak_bytes, slow.peak_bytes, 0.5);
        CHECK_INT(fast.worst_rank, slow.worst_rank);
        step_s[i] = fast.step_s;
        double bytes, least_s;
        CHECK_OK(planner_bound(q.planner, &q.layout, &bytes, &least_s));
        CHECK(bytes <= fast.peak_bytes && least_s <= fast.step_s);
        arena_free(&a);
        question_close(&q);
    }
    CHECK(step_s[1] > step_s[0]); /* the last stage has the head as well */
    CHECK(step_s[3] > step_s[2] && step_s[2] > step_s[0]);
}

/* A stack that runs an exchange before what comes next hides none of it with 1f1b-overlap, only sends, which exchanges
 * of the same NIC slow. Ours runs lanes beside each other. */
static void overlap_is_priced_as_the_stack_runs_it(void **state)
{
    (void)state;
    const char *const set[] = { "mesh.pp=4",           "mesh.ep=16",       "train.batch=256",
                                "train.micro_batch=1", "run.compute=bf16", "data.sequence=4096",
                                "mesh.vpp=1",          "model.layers=16" };
    static const char *const stacks[] = { "switchyard,lanes=0", "switchyard" };
    PlanPrice p[2], whole;
    for (int i = 0; i < 2; i++) {
        Question q;
        open_plan(&q, "deepseek-v3", "h200", 64, stacks[i], set, 8);
        CHECK_OK(planner_price(q.planner, &q.layout, &whole));
        CHECK(!whole.in_series);
        CHECK_OK(schedule_find("1f1b-overlap", &q.layout.schedule));
        CHECK_OK(planner_price(q.planner, &q.layout, &p[i]));
        CHECK(p[i].in_series == (i == 0));
        question_close(&q);
    }
    CHECK_NEAR(p[0].step_s / whole.step_s, 1,
               0.03); /* a forward more ahead hides some of the sends */
    CHECK_NEAR(p[0].part_s[PLAN_EXCHANGE], whole.part_s[PLAN_EXCHANGE], 1e-9);
    CHECK(p[1].step_s < 0.9 * p[0].step_s);
}

/* A planner that has priced others before, in this order or the other, says the same as a new one:
 * micro-batches and ranks of the context give stages that differ by less than a partition tells. */
static void a_price_depends_on_its_layout_alone(void **state)
{
    (void)state;
    enum { LAYOUTS = 60 };
    const char *const set[] = { "train.batch=1536", "train.micro_batch=1", "run.compute=bf16" };
    Question q[2];
    PlanLayout l[LAYOUTS];
    double step_s[2][LAYOUTS];
    for (int i = 0; i < 2; i++) open_plan(&q[i], "deepseek-v3", "h200", 256, "switchyard", set, 3);
    for (int i = 0; i < LAYOUTS;) {
        l[i] = (PlanLayout){ .pp = PICK(4, 8, 16),
                             .vpp = 1,
                             .ep = PICK(1, 2, 4, 8, 16),
                             .cp = PICK(1, 2, 4),
                             .tp = 1,
                             .zero = 1,
                             .micro_batch = PICK(1, 2, 4) };
        CHECK_OK(schedule_find("1f1b", &l[i].schedule));
        l[i].dp = 256 / (l[i].pp * l[i].cp);
        i += planner_legal(q[0].planner, &l[i]) == OK;
    }
    for (int i = 0; i < 2 * LAYOUTS; i++) {
        int way = i % 2, at = way == 0 ? i / 2 : LAYOUTS - 1 - i / 2;
        PlanPrice p;
        CHECK_OK(planner_price(q[way].planner, &l[at], &p));
        step_s[way][at] = p.step_s;
    }
    for (int i = 0; i < LAYOUTS; i++) CHECK_NEAR(step_s[0][i], step_s[1][i], 0);
    for (int i = 0; i < 2; i++) question_close(&q[i]);
}

static void check_has_a_price(const char *model, const char *gpu, bool low, const char *stack)
{
    const char *const set[] = { low ? "run.compute=bf16" : "run.compute=f32", "train.batch=16",
                                "train.micro_batch=1", "data.sequence=1024" };
    Question q;
    PlanPrice p;
    open_plan(&q, model, gpu, 8, stack, set, 4);
    if (planner_price(q.planner, &q.layout, &p) != OK)
        fail_msg("%s on %s: %s", model, gpu, status_message());
    CHECK(p.step_s > 0 && isfinite(p.step_s) && p.peak_bytes > 0 && isfinite(p.peak_bytes));
    CHECK_INT(p.compute, low ? COMPUTE_BF16 : COMPUTE_F32);
    question_close(&q);
}

static void every_model_has_a_price_on_every_gpu(void **state)
{
    (void)state;
    for (int m = 0; m < config_presets_n; m++) {
        for (int g = 0; g < hardware_presets_n; g++) {
            const char *model = config_presets[m].name, *gpu = hardware_presets[g].name;
            const char *ours =
                strcmp(model, "qwen3-next-80b-a3b") == 0 ? "megatron" : "switchyard"; /* on CPUs */
            check_has_a_price(model, gpu, false, ours);
            check_has_a_price(model, gpu, true, ours);
            check_has_a_price(model, gpu, true, "primus");
        }
    }
}

static void a_layout_that_cannot_be_is_refused(void **state)
{
    (void)state;
    const char *const set[] = { "train.batch=64", "run.compute=bf16" };
    Question q;
    PlanPrice p;
    open_plan(&q, "deepseek-v2-lite", "h100", 16, "switchyard", set, 2);
    PlanLayout l = q.layout;
    l.pp = 3;
    CHECK_FAILS(planner_price(q.planner, &l, &p), ERR_ARG,
                "mesh.pp 3 does not divide the number of GPUs, 16; 2 and 4 are the nearest");
    l = q.layout, l.ep = 6;
    CHECK_FAILS(planner_price(q.planner, &l, &p), ERR_ARG, "mesh.ep 6 does not divide moe.experts");
    l = q.layout, l.pp = 16, l.vpp = 2, l.dp = 1;
    CHECK_FAILS(planner_price(q.planner, &l, &p), ERR_ARG, "32 stages");
    l = q.layout, l.pp = 2, l.vpp = 3, l.dp = 8;
    CHECK_OK(schedule_find("dualpipe", &l.schedule));
    CHECK_FAILS(planner_legal(q.planner, &l), ERR_ARG, "dualpipe: 3 chunks a rank, this one");
    CHECK_FAILS(stack_load(&q.stack, &q.arena, "primes"), ERR_ARG,
                "there is no stack primes: megatron, primus, switchyard, torchtitan are");
    CHECK_FAILS(stack_load(&q.stack, &q.arena, "primus,deeep=1"), ERR_ARG, "deepep");
    question_close(&q);
}

/* Llama 4, and a model with windows: embedding, attention over chunks or a window, its MoE,
 * attention over all keys, head. */
static void layers_that_differ_are_priced_apart(void **state)
{
    (void)state;
    Question q;
    open_plan(&q, "llama4-scout", "h200", 64, "switchyard", NULL, 0);
    CHECK_INT(q.planner->classes, 5);
    CHECK_INT(q.planner->class_of[1], q.planner->class_of[3]);
    CHECK(q.planner->class_of[1] != q.planner->class_of[7]);
    question_close(&q);
    const char *const windows[] = { "attention.window=128", "attention.full_every=2" };
    open_plan(&q, "mixtral-8x7b", "h200", 64, "switchyard", windows, 2);
    CHECK_INT(q.planner->classes, 5);
    CHECK(q.planner->class_of[1] != q.planner->class_of[3]);
    CHECK_INT(q.planner->class_of[1], q.planner->class_of[5]);
    question_close(&q);
}

static void layers_without_positions_are_priced_apart(void **state)
{
    (void)state;
    Question q;
    const char *all_keys[] = { "attention.chunk=0", "attention.full_every=0",
                               "attention.qk_norm=none" };
    open_plan(&q, "llama4-scout", "h200", 64, "switchyard", all_keys, 3);
    CHECK_INT(q.planner->classes, 5);
    CHECK(q.planner->class_of[1] != q.planner->class_of[7]);
    question_close(&q);
}

static void a_stack_s_value_of_a_layer_goes_by_its_name(void **state)
{
    (void)state;
    StackValues v = { { 0 } };
    v.at[STACK_keep_moe] = 7;
    v.at[STACK_host_layer] = 5;
    CHECK_NEAR(stack_of_layer(&v, "keep", "moe", 1), 7, 0);
    CHECK_NEAR(stack_of_layer(&v, "keep", "mo", 1), 1, 0);
    CHECK_NEAR(stack_of_layer(&v, "host", "attention", v.at[STACK_host_layer]), 5, 0);
}

/* 1000 parameters over 16 ranks with ZeRO-1: sums in the type of mesh.reduce, weights in that of the
 * products. */
static void gradients_and_weights_travel_in_their_types(void **state)
{
    (void)state;
    for (int low = 0; low < 2; low++) {
        const char *set[] = { "run.compute=bf16", "mesh.zero=1", "train.batch=64",
                              low ? "mesh.reduce=bf16" : "mesh.reduce=f32" };
        const RankPrice rank = { .sum.params = {
                                     .of = { [BUF_WEIGHT].flat = 1000, [BUF_GRAD].flat = 1000 },
                                     .copies.flat = 2000 } };
        const PriceEntry *e = NULL;
        GradientTimes t;
        Question q;
        open_plan(&q, "llama3-8b", "h200", 16, "switchyard", set, 4);
        CHECK_OK(price_entry(q.planner, &q.layout, &e));
        CHECK_OK(price_gradients(q.planner, &q.layout, e, &rank, &t));
        CHECK_INT(t.calls, 2);
        CHECK_INT(t.call[0].cost.comm, COMM_REDUCE_SCATTER);
        CHECK_NEAR(t.call[0].cost.size, low ? 2000 : 4000, 0);
        CHECK_NEAR(t.call[0].cost.comm_bytes, (low ? 2000 : 4000) * 15 / 16.0, 1e-9);
        CHECK_INT(t.call[1].cost.comm, COMM_ALL_GATHER);
        CHECK_NEAR(t.call[1].cost.size, 2000, 0);
        question_close(&q);
    }
}

/* Under ZeRO-3, with passes of backward_s and forward_s, whose exchanges send for nic_s of both. */
static GradientTimes zero_3_times(double backward_s, double forward_s, double nic_s)
{
    const char *set[] = { "run.compute=bf16", "mesh.zero=3", "train.batch=64" };
    const RankPrice rank = { .sum.params = { .of = { [BUF_WEIGHT].flat = (size_t)1 << 30,
                                                     [BUF_GRAD].flat = (size_t)1 << 30 },
                                             .copies.flat = (size_t)2 << 30 },
                             .backward_s = backward_s,
                             .forward_s = forward_s,
                             .backward_nic_s = nic_s,
                             .forward_nic_s = nic_s };
    const PriceEntry *e = NULL;
    GradientTimes t;
    Question q;
    open_plan(&q, "llama3-8b", "h200", 16, "switchyard", set, 3);
    CHECK_OK(price_entry(q.planner, &q.layout, &e));
    CHECK_OK(price_gradients(q.planner, &q.layout, e, &rank, &t));
    question_close(&q);
    return t;
}

/* Backward hides its reduction and a gather, forward a gather; no second of a pass hides two of transfers. */
static void zero_3_hides_each_transfer_behind_its_own_pass(void **state)
{
    (void)state;
    GradientTimes bare = zero_3_times(0, 0, 0);
    double reduce = bare.reduce, gather = bare.gather;
    CHECK(reduce > 0 && gather > 0 && bare.leaves);
    CHECK_NEAR(bare.shown_reduce, reduce, 1e-12);
    CHECK_NEAR(bare.shown_gather, gather, 1e-12);
    GradientTimes forward = zero_3_times(0, 2 * gather, 0);
    CHECK_NEAR(forward.shown_gather, gather / 2, 1e-12);
    CHECK_NEAR(forward.shown_reduce, reduce, 1e-12);
    GradientTimes both = zero_3_times(gather / 2, gather, 0);
    CHECK_NEAR(price_gradients_s(&both) / both.reductions, reduce + gather / 2, 1e-12);
    GradientTimes all = zero_3_times(reduce + gather, gather, 0);
    CHECK_NEAR(price_gradients_s(&all), 0, 1e-12);
}

/* The NICs are busy for what exchanges and gradients send together. */
static void exchanges_take_the_nics_from_gradients(void **state)
{
    (void)state;
    GradientTimes bare = zero_3_times(0, 0, 0);
    double nic_s = bare.gather / 4;
    GradientTimes t = zero_3_times(bare.reduce + bare.gather, bare.gather, nic_s);
    CHECK_NEAR(price_gradients_s(&t) / t.reductions, 2 * nic_s, 1e-12);
}

/* 4 of 128 experts a token, 2,880 columns, 2 layers and micro-batches: what a bias adds under a stack, beyond what it
 * adds in our own kernels. Work without launches, so that ops differ in bytes alone. */
static double cost_of_bias(const char *stack)
{
    PlanPrice price[2];
    for (int bias = 0; bias < 2; bias++) {
        const char *const set[] = {
            "model.layers=2",     "mesh.ep=8",
            "train.batch=16",     "train.micro_batch=1",
            "run.compute=bf16",   "data.sequence=4096",
            "plan.imbalance=1.5", bias ? "moe.expert_bias=true" : "moe.expert_bias=false"
        };
        Question q;
        open_plan(&q, "gpt-oss-120b", "h200", 8, stack, set, 8);
        CHECK_OK(planner_price(q.planner, &q.layout, &price[bias]));
        question_close(&q);
    }
    return price[1].part_s[PLAN_COMPUTE] - price[0].part_s[PLAN_COMPUTE];
}

static void other_trainers_add_a_bias_of_experts_in_plain_ops(void **state)
{
    (void)state;
    const double rows = 4096 * 4 * 1.5, bytes = 28 + 40, memory = 4260e9;
    double fused = cost_of_bias("switchyard,kernel_s=0");
    const char *const stacks[] = { "megatron,kernel_s=0", "torchtitan,kernel_s=0" };
    for (int i = 0; i < 2; i++) {
        double plain = cost_of_bias(stacks[i]);
        CHECK_NEAR((plain - fused) / (2 * 2 * bytes * rows * 2880 / memory), 1, 0.02);
    }
}

/* GiB in use on each of four H200s (tools/gpu_table --gpus 4): pools that the memory of a process limits, 8-bit results that
 * one kernel makes, exchanges with and without buffers of NCCL, shards, stages, tp. */
static void memory_is_what_four_gpus_used(void **state)
{
    (void)state;
    static const struct {
        const char *model, *set[8];
        double gib;
    } ran[] = {
        { "deepseek-v2-lite", { "mesh.ep=4", "train.micro_batch=4" }, 129.53 },
        { "deepseek-v2-lite", { "mesh.ep=4", "train.micro_batch=4", "fp8.recipe=block" }, 118.96 },
        { "deepseek-v2-lite",
          { "mesh.ep=4", "train.micro_batch=4", "moe.exchange=direct" },
          131.41 },
        { "deepseek-v2-lite",
          { "mesh.ep=4", "train.micro_batch=4", "moe.exchange=direct", "fp8.recipe=block" },
          117.52 },
        { "deepseek-v2-lite",
          { "mesh.ep=4", "train.micro_batch=8", "moe.exchange=direct", "fp8.recipe=block",
            "optimizer.moments=bf16" },
          131.80 },
        { "deepseek-v2-lite", { "mesh.zero=3", "train.micro_batch=4" }, 112.92 },
        { "deepseek-v2-lite", { "mesh.pp=2", "mesh.ep=2", "train.micro_batch=2" }, 101.13 },
        { "deepseek-v2-lite", { "mesh.tp=2", "mesh.ep=4", "train.micro_batch=4" }, 106.35 },
    };
    for (size_t i = 0; i < sizeof ran / sizeof *ran; i++) {
        const char *set[12] = { "data.sequence=4096", "train.batch=64", "run.compute=bf16" };
        PlanPrice price;
        Question q;
        int n = 3;
        for (int k = 0; k < 8 && ran[i].set[k] != NULL; k++) set[n++] = ran[i].set[k];
        open_plan(&q, ran[i].model, "h200", 4, "switchyard", set, n);
        CHECK_OK(planner_price(q.planner, &q.layout, &price));
        CHECK_NEAR(price.peak_bytes / PLAN_GIB, ran[i].gib, 0.5);
        question_close(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(memory_is_what_four_gpus_used),
        TEST(other_trainers_add_a_bias_of_experts_in_plain_ops),
        TEST(zero_3_hides_each_transfer_behind_its_own_pass),
        TEST(exchanges_take_the_nics_from_gradients),
        TEST(gradients_and_weights_travel_in_their_types),
        TEST(a_stack_s_value_of_a_layer_goes_by_its_name),
        TEST(layers_that_differ_are_priced_apart),
        TEST(layers_without_positions_are_priced_apart),
        TEST(one_rank_takes_what_the_engine_counts),
        TEST(a_global_group_costs_a_sum_of_counts),
        TEST(counted_rows_take_less_than_all_that_could_come),
        TEST(parts_add_up_to_the_step),
        TEST(bf16_moments_cost_less_memory_and_time),
        TEST(eight_bit_products_are_faster_and_their_copies_are_counted),
        TEST(layers_that_follow_a_recipe_are_priced_apart),
        TEST(a_recipe_needs_hardware_with_8_bit_products),
        TEST(what_is_frozen_costs_no_gradients_and_no_update),
        TEST(the_ladder_of_deepseek_v2_lite_comes_out),
        TEST(prices_are_those_of_the_counting_run_and_the_simulator),
        TEST(recomputed_layers_count_on_the_stage_that_has_them),
        TEST(overlap_is_priced_as_the_stack_runs_it),
        TEST(a_price_depends_on_its_layout_alone),
        TEST(every_model_has_a_price_on_every_gpu),
        TEST(a_layout_that_cannot_be_is_refused),
    };
    return TEST_RUN(tests);
}
