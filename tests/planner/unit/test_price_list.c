/* The price of the list that train runs: against measured steps, and its parts. */
#include "harness/posted.h"
#include "harness/question.h"

#include <math.h>

enum { SET_MAX = 9, GPUS = 4 };

/* First layers of DeepSeek-V2-Lite in bf16 on H200s of one host, sequences of 4096 random tokens:
 * tokens a second and GiB in use (docs/performance.md, "Two GPUs, and what the plan said"). Blocks lie evenly, as without
 * mesh.layout. */
static const struct {
    int gpus;
    double measured, gib; /* gib 0: not measured */
    const char *set[SET_MAX];
} told[] = {
    { 1, 92764, 68.5, { "model.layers=6", "train.batch=4", "train.micro_batch=4" } },
    { 1, 101071, 0, { "model.layers=6", "train.batch=8", "train.micro_batch=4" } },
    { 1, 107850, 68.5, { "model.layers=6", "train.batch=32", "train.micro_batch=4" } },
#define IN_TWO     "model.layers=8"
#define MBS_1      "train.batch=16", "train.micro_batch=1"
#define MBS_2      "train.batch=16", "train.micro_batch=2"
#define MBS_4      "train.batch=16", "train.micro_batch=4"
#define MBS_8      "train.batch=16", "train.micro_batch=8"
#define RECOMPUTED "recompute.layers=[0,1,2,3,4,5,6,7]"
#define PIECES     RECOMPUTED, "recompute.pieces=[norm,act]"
    { 2,
      166315,
      71,
      { "model.layers=6", "mesh.pp=2", "mesh.schedule=dualpipe", "mesh.vpp=2", MBS_2 } },
    { 2, 159155, 60.7, { IN_TWO, "mesh.ep=2", "moe.exchange=direct", MBS_4 } },
    { 2, 158153, 78.6, { IN_TWO, "mesh.ep=2", "mesh.schedule=1f1b-overlap", MBS_4 } },
    { 2, 158047, 76.6, { IN_TWO, "mesh.ep=2", "mesh.zero=3", PIECES, MBS_8 } },
    { 2, 156857, 61.2, { IN_TWO, "mesh.ep=2", MBS_4 } },
    { 2, 155251, 70.2, { IN_TWO, "mesh.zero=2", PIECES, MBS_8 } },
    { 2, 154945, 68.1, { IN_TWO, "mesh.zero=3", PIECES, MBS_8 } },
    { 2, 148232, 59.9, { IN_TWO, "mesh.zero=1", MBS_2 } },
    { 2, 143956, 51.5, { IN_TWO, "mesh.cp=2", "mesh.ep=2", MBS_4 } },
    { 2, 134335, 47.9, { IN_TWO, "mesh.ep=2", RECOMPUTED, MBS_4 } },
    { 2, 128012, 53, { IN_TWO, "mesh.pp=2", "mesh.schedule=zbv", "mesh.vpp=2", MBS_2 } },
    { 2, 126841, 57.3, { IN_TWO, "mesh.pp=2", "mesh.schedule=zb-h1", MBS_2 } },
    { 2, 125480, 53.8, { IN_TWO, "mesh.pp=2", "mesh.schedule=dualpipe-v", "mesh.vpp=2", MBS_2 } },
    { 2, 120491, 51.4, { IN_TWO, "mesh.pp=2", "mesh.schedule=interleaved", "mesh.vpp=2", MBS_2 } },
    { 2, 110378, 47.6, { IN_TWO, "mesh.pp=2", "mesh.schedule=1f1b", MBS_1 } },
    { 2, 104389, 53.1, { IN_TWO, "mesh.cp=2", "mesh.zero=3", MBS_4 } },
#undef IN_TWO
};

/* Layouts of the whole model on four GPUs. */
static const char *const layout[][SET_MAX] = {
    { "mesh.ep=4", "train.batch=16", "train.micro_batch=4" },
    { "mesh.ep=4", "train.batch=16", "train.micro_batch=1" },
    { "mesh.zero=3", "mesh.ep=2", "train.batch=16", "train.micro_batch=4" },
    { "mesh.pp=2", "mesh.ep=2", "train.batch=32", "train.micro_batch=2" },
    { "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=interleaved", "train.batch=32",
      "train.micro_batch=2" },
    { "mesh.pp=4", "train.batch=32", "train.micro_batch=2" },
    { "mesh.zero=3", "train.batch=64", "train.micro_batch=4" },
    { "mesh.zero=3", "train.batch=16", "train.micro_batch=4" },
};
enum { ROWS = sizeof layout / sizeof *layout };

/* links: the bandwidth of the host's links, as a share of what they have. */
static void open_plan(Question *q, const char *const *more, int gpus, const char *stack,
                      double links)
{
    const char *set[16] = { "run.compute=bf16", "data.sequence=4096" };
    int n = 2;
    while (*more != NULL) set[n++] = *more++;
    question_load(q, "deepseek-v2-lite", "h200", gpus, stack, set, n);
    q->hardware.scale_up_achieved_gb_s *= links;
    q->hardware.scale_up_shard_gb_s *= links, q->hardware.scale_up_pair_gb_s *= links;
    question_open(q);
    CHECK_OK(plan_spread_evenly(&q->config, &q->arena, &q->layout));
}

/* The price by the list, of which a step is told if the stack runs lists. */
static PlanPrice price_by_list(Question *q)
{
    PlanPrice price;
    PlanStep step = { .pipeline = { .stages = -1 } };
    CHECK_OK(planner_price_list(q->planner, &q->layout, &q->arena, &price, &step));
    CHECK_INT(step.pipeline.stages, q->layout.pp);
    CHECK(step.sim.step <= price.step_s && step.sim.step >= 0);
    return price;
}

static void measured_steps_are_foretold(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        Question q;
        PlanPrice price;
        open_plan(&q, told[i].set, told[i].gpus, "switchyard", 1);
        price = price_by_list(&q);
        /* with cuDNN's attention; our own makes steps 2 to 3 % shorter */
        CHECK_NEAR(price.tokens_per_s_per_gpu * told[i].gpus / told[i].measured, 1.02, 0.04);
        if (told[i].gib > 0) CHECK_NEAR(price.peak_bytes / PLAN_GIB / told[i].gib, 1, 0.01);
        question_close(&q);
    }
}

static void parts_of_a_list_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        Question q;
        PlanPrice list, passes;
        double sum = 0;
        open_plan(&q, layout[i], GPUS, "switchyard", 1);
        CHECK_OK(planner_price(q.planner, &q.layout, &passes));
        list = price_by_list(&q);
        for (int k = 0; k < PLAN_PARTS; k++) {
            CHECK(list.part_s[k] >= 0);
            sum += list.part_s[k];
        }
        CHECK_NEAR(sum / list.step_s, 1, 1e-9);
        CHECK(list.schedule_s > 0 && list.schedule_s <= list.step_s);
        CHECK(list.bubble >= 0 && list.bubble < 1);
        CHECK_NEAR(list.peak_bytes, passes.peak_bytes, 0);
        question_close(&q);
    }
}

/* Of a stack that is not ours nobody knows the list. */
static void other_stacks_keep_their_price(void **state)
{
    (void)state;
    static const char *const stacks[] = { "torchtitan", "switchyard,list=0" };
    for (int i = 0; i < 2; i++) {
        Question q;
        PlanPrice list, passes;
        open_plan(&q, layout[6], GPUS, stacks[i], 1);
        CHECK(!planner_runs_list(q.planner));
        CHECK_OK(planner_price(q.planner, &q.layout, &passes));
        list = price_by_list(&q);
        CHECK_NEAR(list.step_s, passes.step_s, 0);
        question_close(&q);
    }
}

/* Each action's time is there: links longer, so the step is. */
static void what_links_carry_shows(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        Question q;
        PlanPrice fast, slow;
        open_plan(&q, layout[i], GPUS, "switchyard", 1);
        fast = price_by_list(&q);
        question_close(&q);
        open_plan(&q, layout[i], GPUS, "switchyard", 0.2);
        slow = price_by_list(&q);
        CHECK(slow.step_s > 1.0005 * fast.step_s);
        question_close(&q);
    }
}

/* Of each action on the compute lane, how long others hold multiprocessors beside it, times how many.
 * Where compute needs nothing else that is what it loses. */
static double lost_beside(const PlanStep *step, int multiprocessors)
{
    double sum = 0;
    for (int r = 0; r < step->pipeline.stages; r++) {
        const Program *p = &step->pipeline.rank[r];
        const SimSpan *span = step->sim.rank[r].span;
        for (int i = 0; i < p->n * p->n; i++) {
            const Action *a = &p->at[i / p->n], *b = &p->at[i % p->n];
            const SimSpan *x = &span[i / p->n], *y = &span[i % p->n];
            if (!action_is_pass(a->kind) || a->lane == LANE_COMM || b->lane != LANE_COMM) continue;
            double beside = fmin(x->end, y->end) - fmax(x->start, posted(p, span, i % p->n));
            sum += fmax(0, beside) * (action_is_transfer(b->kind) ? 4 : 24) / multiprocessors;
        }
    }
    return sum / step->pipeline.stages;
}

enum { BOUND_BY_MEMORY, BOUND_BY_PRODUCTS };

static PlanPrice price_bound_by(int what, const char *const *more, int multiprocessors,
                                double *lost_s)
{
    Question q;
    PlanPrice price;
    PlanStep step;
    const char *set[16] = { "run.compute=bf16", "data.sequence=4096", "model.layers=8" };
    int n = 3;
    while (*more != NULL) set[n++] = *more++;
    question_load(&q, "deepseek-v2-lite", "h200", 2, "switchyard,kernel_s=0", set, n);
    q.hardware.memory_achieved_gb_s = what == BOUND_BY_MEMORY ? 1 : 1e15;
    q.hardware.gpu_multiprocessors = multiprocessors;
    q.hardware.contention_blocks = 0; /* the ideal shares */
    question_open(&q);
    CHECK_OK(plan_spread_evenly(&q.config, &q.arena, &q.layout));
    CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &price, &step));
    *lost_s = multiprocessors > 0 ? lost_beside(&step, multiprocessors) : 0;
    question_close(&q);
    return price;
}

static void transfers_take_multiprocessors_from_products_alone(void **state)
{
    (void)state;
    static const char *const two[][SET_MAX] = {
        { "train.batch=16", "train.micro_batch=4", "mesh.zero=3" },
        { "train.batch=16", "train.micro_batch=1", "mesh.pp=2" },
        { "train.batch=16", "train.micro_batch=2", "mesh.ep=2", "mesh.schedule=1f1b-overlap" },
    };
    for (size_t i = 0; i < sizeof two / sizeof *two; i++) {
        double lost_s;
        PlanPrice few = price_bound_by(BOUND_BY_PRODUCTS, two[i], 60, &lost_s);
        CHECK(few.part_s[PLAN_SLOWED] > 1e-5);
        CHECK_NEAR(few.part_s[PLAN_SLOWED] / lost_s, 1, 1e-6);
        PlanPrice many = price_bound_by(BOUND_BY_PRODUCTS, two[i], 132, &lost_s);
        CHECK_NEAR(many.part_s[PLAN_SLOWED] / lost_s, 1, 1e-6);
        PlanPrice unknown = price_bound_by(BOUND_BY_PRODUCTS, two[i], 0, &lost_s);
        CHECK_NEAR(unknown.part_s[PLAN_SLOWED], 0, 0);
        CHECK(few.step_s > many.step_s && many.step_s > unknown.step_s);
        PlanPrice memory = price_bound_by(BOUND_BY_MEMORY, two[i], 132, &lost_s);
        CHECK(lost_s > 0);
        CHECK_NEAR(memory.part_s[PLAN_SLOWED], 0, 0);
    }
}

/* Beside a collective that leaves all but 24 of 132 multiprocessors, factors of 132/108 are those of a file
 * without them. Each kind of work has its own. */
static void measured_contention_counts(void **state)
{
    (void)state;
    static const char *const zero3[] = { "train.batch=16", "train.micro_batch=4", "mesh.zero=3",
                                         NULL };
    static const OpWork kinds[] = { WORK_MEMORY, WORK_GEMM, WORK_GROUPED, WORK_ATTENTION };
    const double ideal = 132.0 / 108;
    double slowed[6], step[6];
    for (int i = 0; i < 6; i++) { /* without; the same in the file; then one larger in turn */
        Question q;
        PlanPrice price;
        const char *set[8] = { "run.compute=bf16", "data.sequence=4096", "model.layers=8" };
        for (int k = 0; zero3[k] != NULL; k++) set[3 + k] = zero3[k];
        question_load(&q, "deepseek-v2-lite", "h200", 2, "switchyard", set, 6);
        q.hardware.contention_blocks = i == 0 ? 0 : 24;
        for (int k = 0; k < 4; k++)
            *hardware_contention_times(&q.hardware, kinds[k]) = k == 0 ? 1 : ideal;
        if (i > 1) *hardware_contention_times(&q.hardware, kinds[i - 2]) += 0.5;
        question_open(&q);
        price = price_by_list(&q);
        slowed[i] = price.part_s[PLAN_SLOWED], step[i] = price.step_s;
        question_close(&q);
    }
    CHECK_NEAR(slowed[1] / slowed[0], 1, 1e-9);
    CHECK_NEAR(step[1] / step[0], 1, 1e-9);
    double more = 0;
    for (int i = 2; i < 6; i++) {
        CHECK(slowed[i] > 1.02 * slowed[0] && step[i] > step[0]);
        more += slowed[i] - slowed[0];
    }
    CHECK(more > slowed[0]); /* 0.5 of all work, not 24/108 of three kinds */
}

/* Under DualPipe two stages hold the same parameters and add up f32 gradients: what of them is theirs,
 * as PLAN_GRADS counts it. The link carries them once each way. */
static void gradients_of_twins_are_added_up(void **state)
{
    (void)state;
#define BOTH "model.layers=8", "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=dualpipe"
    static const char *const set[][SET_MAX] = {
        { BOTH, "train.batch=16", "train.micro_batch=4" },
        { BOTH, "train.batch=32", "train.micro_batch=4", "mesh.zero=2", "mesh.ep=2" },
    };
    for (int i = 0; i < 2; i++) {
        Question q;
        PlanPrice price;
        PlanStep step;
        open_plan(&q, set[i], 2 + 2 * i, "switchyard", 1);
        q.hardware.scale_up_latency_us = q.hardware.scale_up_issue_us = 0;
        CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &price, &step));
        double link_s = price.memory[PLAN_GRADS] / (1e9 * q.hardware.scale_up_achieved_gb_s);
        for (int r = 0; r < 2; r++) {
            double sum = 0;
            for (int k = 0; k < step.pipeline.rank[r].n; k++) {
                const SimSpan *x = &step.sim.rank[r].span[k];
                if (step.pipeline.rank[r].at[k].kind == ACTION_SUM_GRADS) sum += x->end - x->start;
            }
            CHECK_NEAR(sum / link_s, 1, 0.001);
        }
        question_close(&q);
    }
}

/* With ZeRO-2 each of two ranks sends half of a layer's f32 gradients and adds the other half to its sums: it reads both
 * and writes one. Two micro-batches do so. */
static void reductions_of_every_pass_are_added_to_sums(void **state)
{
    (void)state;
    static const char *const set[] = { "model.layers=8", "mesh.zero=2", "train.batch=16",
                                       "train.micro_batch=4", NULL };
    Question q;
    PlanPrice price;
    PlanStep step;
    double sum = 0;
    open_plan(&q, set, 2, "switchyard", 1);
    q.hardware.scale_up_latency_us = q.hardware.scale_up_issue_us = 0;
    CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &price, &step));
    for (int k = 0; k < step.pipeline.rank[0].n; k++) {
        const SimSpan *x = &step.sim.rank[0].span[k];
        if (step.pipeline.rank[0].at[k].kind == ACTION_REDUCE_GRADS) sum += x->end - x->start;
    }
    const double link_s = 1e-9 / q.hardware.scale_up_pair_gb_s;
    const double memory_s = 1e-9 / q.hardware.memory_achieved_gb_s;
    CHECK_NEAR(sum / (2 * price.memory[PLAN_GRADS] * (link_s + 3 * memory_s)), 1, 0.001);
    question_close(&q);
}

/* The lists that train runs, by what their compute lanes wait for: only for traffic that the mesh has. */
static void lists_wait_for_what_their_meshes_send(void **state)
{
    (void)state;
    static const char *const context[] = { "mesh.cp=2", "mesh.ep=4", "train.batch=16",
                                           "train.micro_batch=4", NULL };
    for (int i = 0; i <= ROWS; i++) {
        Question q;
        PlanPrice price;
        PlanStep step;
        double sum[TRAFFICS] = { 0 };
        open_plan(&q, i < ROWS ? layout[i] : context, GPUS, "switchyard", 1);
        q.hardware.gpu_multiprocessors = 0;
        CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &price, &step));
        for (int r = 0; r < step.pipeline.stages; r++) {
            double idle_s[TRAFFICS];
            idle_in(&step.pipeline, &step.sim, r, &q.arena, idle_s);
            for (int k = 0; k < TRAFFICS; k++) sum[k] += idle_s[k];
        }
        CHECK((sum[TRAFFIC_PP] > 0) == (q.layout.pp > 1));
        CHECK((sum[TRAFFIC_EP] > 0) == (q.layout.ep > 1));
        CHECK((sum[TRAFFIC_CP] > 0) == (q.layout.cp > 1));
        CHECK((sum[TRAFFIC_ZERO] > 0) == (q.layout.dp * q.layout.cp > 1));
        question_close(&q);
    }
}

/* The time of many micro-batches, extended from a few, is that of the whole list: also where reductions of ZeRO-2 take
 * over from compute only after some periods. */
static void lists_of_many_micro_batches_are_extended(void **state)
{
    (void)state;
    static const char *const set[][SET_MAX] = {
        { "mesh.pp=4", "train.batch=256", "train.micro_batch=1" },
        { "mesh.pp=2", "mesh.zero=2", "train.batch=128", "train.micro_batch=1" },
        { "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=1f1b-overlap", "mesh.ep=2", "mesh.zero=2",
          "train.batch=128", "train.micro_batch=1" },
        { "mesh.pp=4", "mesh.zero=1", "train.batch=256", "train.micro_batch=1" },
        { "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv", "mesh.ep=2", "train.batch=128",
          "train.micro_batch=1" },
        { "mesh.pp=4", "mesh.vpp=2", "mesh.schedule=interleaved", "train.batch=256",
          "train.micro_batch=1" },
        { "mesh.pp=4", "mesh.vpp=2", "mesh.schedule=dualpipe-v", "train.batch=256",
          "train.micro_batch=1" },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) {
        Question q;
        PlanPrice few, all;
        PlanStep step;
        open_plan(&q, set[i], 4, "switchyard", 0.1);
        CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &all, &step));
        CHECK_OK(planner_price_list(q.planner, &q.layout, NULL, &few, NULL));
        CHECK_NEAR(few.step_s, all.step_s, 1e-8 * all.step_s);
        CHECK_NEAR(few.bubble, all.bubble, 1e-7);
        CHECK_NEAR(few.part_s[PLAN_SLOWED], all.part_s[PLAN_SLOWED], 1e-7 * all.step_s);
        question_close(&q);
    }
}

/* Where periods never repeat to the last digit, as many as are worth it stand for the rest. */
static void lists_that_repeat_nearly_are_extended(void **state)
{
    (void)state;
    static const char *const set[SET_MAX] = { "model.layers=24",  "mesh.pp=6",
                                              "mesh.cp=2",        "mesh.ep=2",
                                              "train.batch=2400", "train.micro_batch=1" };
    Question q;
    PlanPrice few, all;
    PlanStep step;
    open_plan(&q, set, 12, "switchyard", 1);
    CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &all, &step));
    CHECK_OK(planner_price_list(q.planner, &q.layout, NULL, &few, NULL));
    CHECK_NEAR(few.step_s, all.step_s, 1e-4 * all.step_s);
    CHECK(few.step_s != all.step_s);
    question_close(&q);
}

/* Where weights are gathered in every pass, and passes run part by part, the list takes twice the time of its passes: the
 * price knows most of it, and is never above. */
static void collectives_of_every_pass_are_in_the_price(void **state)
{
    (void)state;
    static const char *const set[] = { "run.compute=bf16",   "data.sequence=4096",
                                       "train.batch=256",    "mesh.pp=4",
                                       "mesh.vpp=8",         "mesh.ep=8",
                                       "mesh.zero=3",        "mesh.schedule=1f1b-overlap",
                                       "train.micro_batch=1" };
    for (int i = 0; i < 2; i++) {
        Question q;
        PlanPrice price, list;
        question_load(&q, "mixtral-8x7b", "h200", 64, "switchyard", set, 9);
        if (i == 1) q.config.mesh_zero = 2;
        question_open(&q);
        CHECK_OK(planner_price(q.planner, &q.layout, &price));
        CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &list, NULL));
        print_message("ZeRO-%d: %.4f s, in the list %.4f\n", 3 - i, price.step_s, list.step_s);
        CHECK(price.step_s <= list.step_s && price.step_s >= (i == 0 ? 0.7 : 0.62) * list.step_s);
        question_close(&q);
    }
}

/* Our own kernels are priced where they run, and under our own engine alone. A rank of mesh.cp=2 attends
 * with the kernel that its pieces get: the same, at half as many keys a call. */
static void attention_is_priced_as_it_runs(void **state)
{
    (void)state;
    static const struct {
        const char *stack, *mesh;
        double forward, backward; /* seconds of 1e12 FLOPs: plain kernels' less Hopper's */
    } row[] = {
        { "switchyard", "mesh.ep=2", 1 / 47.0 - 1 / 537.0, 1 / 28.0 - 1 / 324.0 },
        { "switchyard", "mesh.cp=2", 1 / 34.5 - 1 / 446.5, 1 / 26.5 - 1 / 277.0 },
        { "torchtitan", "mesh.ep=2", 0, 0 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double compute[2];
        for (int plain = 0; plain < 2; plain++) {
            const char *set[] = { "train.batch=16", "train.micro_batch=1", row[i].mesh,
                                  plain ? "attention.kernel=plain" : NULL, NULL };
            Question q;
            PlanPrice price;
            open_plan(&q, set, 2, row[i].stack, 1);
            CHECK_OK(planner_price(q.planner, &q.layout, &price));
            compute[plain] = price.part_s[PLAN_COMPUTE];
            question_close(&q);
        }
        /* 27 layers, 8 sequences a rank: pairs x 16 heads x (192 + 128) x 2, backward 832 x 2 */
        double pairs = 4096 * 4097 / 2.0 * 16 * 2 * 27 * 8;
        double more = pairs * 1e-12 * (320 * row[i].forward + 832 * row[i].backward);
        CHECK_NEAR(compute[1] - compute[0], more, 1e-3 * pairs * 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(measured_steps_are_foretold),
        TEST(parts_of_a_list_add_up),
        TEST(other_stacks_keep_their_price),
        TEST(what_links_carry_shows),
        TEST(transfers_take_multiprocessors_from_products_alone),
        TEST(measured_contention_counts),
        TEST(gradients_of_twins_are_added_up),
        TEST(reductions_of_every_pass_are_added_to_sums),
        TEST(lists_wait_for_what_their_meshes_send),
        TEST(lists_of_many_micro_batches_are_extended),
        TEST(lists_that_repeat_nearly_are_extended),
        TEST(collectives_of_every_pass_are_in_the_price),
        TEST(attention_is_priced_as_it_runs),
    };
    return TEST_RUN(tests);
}
