/*
 * Ops against PyTorch: tests/golden/ops/FAMILY.golden.zst, made by tools/make_golden.py in float64
 * (format: golden/golden.h).
 *
 * Array names are port names: CASE/PORT, and CASE/PORT.before for what an accumulating port starts
 * with. So one function binds the ports of any op from its descriptor, poisons the outputs, runs
 * the op and compares; what a test adds are the settings that are no tensors.
 */
#include "golden/golden.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rope.h"
#include "kernels/dense/linear.h"
#include "kernels/head/embed.h"
#include "kernels/head/head.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/swiglu.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/optimizer/muon.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/qk_clip.h"
#include "kernels/route/route.h"

#include "engine/backend/backend.h"

enum { PORTS_MAX = 16 };

static const double LIMIT = 1e-5; /* f32, relative */

typedef struct Bench {
    Golden golden;
    Arena arena, scratch;
    Exec ex;
} Bench;

static Bench *bench_open(const char *family)
{
    static Bench bench; /* Exec points into it */
    Bench *b = &bench;
    char path[256];
    snprintf(path, sizeof path, "tests/golden/ops/%s.golden.zst", family);
    *b = (Bench){ .golden = golden_open(path) };
    CHECK_OK(arena_init(&b->arena, "test", MEM_HOST, (size_t)64 << 20));
    CHECK_OK(arena_init(&b->scratch, "scratch", MEM_HOST, (size_t)64 << 20));
    CHECK_OK(exec_init(&b->ex, &b->arena, &b->scratch, 2, CPU_AUTO));
    return b;
}

static void bench_close(Bench *b)
{
    exec_free(&b->ex);
    arena_free(&b->arena);
    arena_free(&b->scratch);
    golden_close(&b->golden);
}

static bool is_input(const OpPort *p)
{
    return p->dir == PORT_IN || p->dir == PORT_IN_OPT || p->dir == PORT_IN_SCALE;
}

/* How many rows count is a setting of the test: no array. */
static bool is_tensor(const OpPort *p) { return p->dir != PORT_ROWS; }

/* Point one port at its array, or at memory where the array is to come out. An accumulating port
 * without a start is one that is written in part: NaN marks the rest, before and after. */
static bool bind_port(Bench *b, const char *group, const OpPort *p, void *args)
{
    char name[GOLDEN_NAME_MAX];
    snprintf(name, sizeof name, "%s/%s", group, p->name);
    Tensor array = golden_find(&b->golden, name);
    Tensor *port = (Tensor *)(void *)((char *)args + p->offset);
    *port = array;
    if (array.data == NULL) return false;
    if (is_input(p)) return true;
    snprintf(name, sizeof name, "%s/%s.before", group, p->name);
    Tensor before = golden_find(&b->golden, name);
    bool adds = p->dir == PORT_ADD || p->dir == PORT_ADD_OPT;
    *port = adds && before.data != NULL ? golden_copy(&b->golden, &before)
                                        : golden_poisoned(&b->golden, &array);
    return true;
}

/* Every array of the group belongs to a port: none was misnamed and passed over. */
static void check_all_bound(const Golden *g, const char *group, int bound)
{
    size_t n = strlen(group);
    int arrays = 0;
    for (int i = 0; i < g->n; i++) {
        const char *name = g->at[i].name;
        bool ours = strncmp(name, group, n) == 0 && name[n] == '/';
        arrays += ours && strstr(name + n, ".before") == NULL;
    }
    if (arrays != bound) fail_msg("%s: %d arrays, %d ports bound", group, arrays, bound);
}

static void run_case(Bench *b, const char *group, OpId id, void *args)
{
    const OpDesc *op = op_desc(id);
    int bound = 0, compared = 0;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        bound += is_tensor(p) && bind_port(b, group, p, args);
    }
    check_all_bound(&b->golden, group, bound);
    CHECK_OK(op_run(&b->ex, id, args));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Tensor *got = op_port_tensor(p, args);
        if (!is_tensor(p) || is_input(p) || got->data == NULL) continue;
        char what[2 * GOLDEN_NAME_MAX];
        snprintf(what, sizeof what, "%s %s/%s", op->name, group, p->name);
        Tensor want = golden_get(&b->golden, group, p->name);
        golden_compare(what, got, &want, LIMIT);
        compared++;
    }
    CHECK(compared > 0);
}

/* CASE is `stem.case`. */
static const char *joined(char out[GOLDEN_NAME_MAX], const char *stem, const char *name)
{
    snprintf(out, GOLDEN_NAME_MAX, "%s.%s", stem, name);
    return out;
}

#define EACH(i, array) (size_t i = 0; i < sizeof(array) / sizeof *(array); i++)

/* ---- norm, activation, embedding, linear ---- */

static const char *const norm_cases[] = { "one", "plain", "wide", "residual", "window", "heads" };

/* Those that are windows begin there. */
static int64_t norm_column(size_t i) { return i >= 4 ? 11 : 0; }

static void rmsnorm_forward_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("rmsnorm");
    for
        EACH(i, norm_cases)
        {
            char group[GOLDEN_NAME_MAX];
            RmsnormFwd a = { .eps = 1e-5f, .x_col = norm_column(i) };
            run_case(b, joined(group, "fwd", norm_cases[i]), OP_RMSNORM_FWD, &a);
        }
    bench_close(b);
}

static void rmsnorm_backward_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("rmsnorm");
    for
        EACH(i, norm_cases)
        {
            char group[GOLDEN_NAME_MAX];
            RmsnormBwd a = { .x_col = norm_column(i) };
            run_case(b, joined(group, "bwd", norm_cases[i]), OP_RMSNORM_BWD, &a);
        }
    bench_close(b);
}

static void swiglu_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("swiglu");
    const char *const cases[] = { "one", "plain", "wide" };
    for
        EACH(i, cases)
        {
            char group[GOLDEN_NAME_MAX];
            run_case(b, joined(group, "fwd", cases[i]), OP_SWIGLU_FWD, &(SwigluFwd){ 0 });
            run_case(b, joined(group, "bwd", cases[i]), OP_SWIGLU_BWD, &(SwigluBwd){ 0 });
        }
    bench_close(b);
}

static void embed_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("simple");
    run_case(b, "embed_fwd", OP_EMBED_FWD, &(EmbedFwd){ 0 });
    run_case(b, "embed_bwd", OP_EMBED_BWD, &(EmbedBwd){ 0 });
    bench_close(b);
}

static void linear_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("simple");
    const char *const cases[] = { "one", "plain" };
    for
        EACH(i, cases)
        {
            char group[GOLDEN_NAME_MAX];
            run_case(b, joined(group, "linear_fwd", cases[i]), OP_LINEAR_FWD, &(LinearFwd){ 0 });
            run_case(b, joined(group, "linear_bwd_input", cases[i]), OP_LINEAR_BWD_INPUT,
                     &(LinearBwdInput){ 0 });
            run_case(b, joined(group, "linear_bwd_weight", cases[i]), OP_LINEAR_BWD_WEIGHT,
                     &(LinearBwdWeight){ 0 });
        }
    bench_close(b);
}

/* ---- rope, attention ---- */

static void rope_of_mla_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("rope");
    const struct {
        const char *name;
        RopeMlaDims dims;
    } cases[] = {
        { "neighbours", { 3, 7, 6, 5, .interleaved = true } },
        { "windows", { 3, 5, 8, 9, .q_col = 4, .k_col = 11, .interleaved = true } },
        { "halves", { 2, 3, 10, 4, .k_col = 7 } },
    };
    for
        EACH(i, cases)
        {
            char group[GOLDEN_NAME_MAX];
            RopeMlaFwd fwd = { .dims = cases[i].dims };
            RopeMlaBwd bwd = { .dims = cases[i].dims };
            run_case(b, joined(group, "mla_fwd", cases[i].name), OP_ROPE_MLA_FWD, &fwd);
            run_case(b, joined(group, "mla_bwd", cases[i].name), OP_ROPE_MLA_BWD, &bwd);
        }
    bench_close(b);
}

static void rope_of_gqa_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("rope");
    const struct {
        const char *name;
        RopeGqaDims dims;
    } cases[] = { { "halves", { 6, 2, 10, 10, .interleaved = false } },
                  { "neighbours", { 3, 1, 14, 14, .interleaved = true } } };
    for
        EACH(i, cases)
        {
            char group[GOLDEN_NAME_MAX];
            RopeGqaFwd fwd = { .dims = cases[i].dims };
            RopeGqaBwd bwd = { .dims = cases[i].dims };
            run_case(b, joined(group, "gqa_fwd", cases[i].name), OP_ROPE_GQA_FWD, &fwd);
            run_case(b, joined(group, "gqa_bwd", cases[i].name), OP_ROPE_GQA_BWD, &bwd);
        }
    bench_close(b);
}

static float attention_scale(const Bench *b, const char *group)
{
    Tensor q = golden_get(&b->golden, group, "q");
    return (float)(1 / sqrt((double)tensor_cols(&q)));
}

static void attention_forward_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("attention");
    const char *const cases[] = { "one", "mla", "gqa", "tile", "sharp", "cache" };
    for
        EACH(i, cases)
        {
            char group[GOLDEN_NAME_MAX];
            joined(group, "fwd", cases[i]);
            AttentionFwd a = { .scale = attention_scale(b, group) };
            run_case(b, group, OP_ATTENTION_FWD, &a);
        }
    bench_close(b);
}

static void attention_backward_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("attention");
    const char *const cases[] = { "one", "mla", "gqa", "tile", "sharp" };
    for
        EACH(i, cases)
        {
            char group[GOLDEN_NAME_MAX];
            joined(group, "bwd", cases[i]);
            AttentionBwd a = { .scale = attention_scale(b, group) };
            run_case(b, group, OP_ATTENTION_BWD, &a);
        }
    bench_close(b);
}

/* ---- head, router, experts ---- */

static void head_loss_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("head");
    run_case(b, "one", OP_HEAD_LOSS, &(HeadLoss){ .chunk = 1 });
    run_case(b, "plain", OP_HEAD_LOSS, &(HeadLoss){ .chunk = 7 });
    run_case(b, "wide", OP_HEAD_LOSS, &(HeadLoss){ .chunk = 64 });
    bench_close(b);
}

/* The same rules as in make_golden.py. */
static const struct {
    const char *name;
    RouteRule rule;
} routes[] = {
    { "softmax", { ROUTE_SOFTMAX, 2, 1, 1, 1, false, 2.5f, 0, false, 0 } },
    { "groups", { ROUTE_SOFTMAX, 3, 4, 2, 1, false, 1, 0.25f, false, 0 } },
    { "sigmoid", { ROUTE_SIGMOID, 4, 4, 2, 2, true, 2.5f, 0.5f, false, 0 } },
    { "batch", { ROUTE_SOFTMAX, 3, 1, 1, 1, true, 1, 0.75f, true, 0 } },
    { "all", { ROUTE_SIGMOID, 3, 1, 1, 1, false, 1, 1, false, 0 } },
};

static void routing_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("route");
    for
        EACH(i, routes)
        {
            char group[GOLDEN_NAME_MAX];
            RouteFwd a = { .rule = routes[i].rule };
            run_case(b, joined(group, "fwd", routes[i].name), OP_ROUTE_FWD, &a);
        }
    bench_close(b);
}

static void routing_gradient_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("route");
    for
        EACH(i, routes)
        {
            char group[GOLDEN_NAME_MAX];
            RouteBwd a = { .rule = routes[i].rule };
            run_case(b, joined(group, "bwd", routes[i].name), OP_ROUTE_BWD, &a);
        }
    bench_close(b);
}

static const char *const moe_cases[] = { "even", "crowd" };

static Rows rows_of(const Bench *b, const char *name)
{
    char group[GOLDEN_NAME_MAX];
    Tensor row_token = golden_get(&b->golden, joined(group, "sort", name), "row_token");
    int64_t n = tensor_elems(&row_token);
    return (Rows){ .bound = n, .expected = (double)n };
}

/* The ops of the experts on their cases. `limit`: of the clamped SwiGLU, with biases. */
static void run_experts(Bench *b, const char *name, float limit)
{
    char group[GOLDEN_NAME_MAX];
    Rows rows = rows_of(b, name);
    run_case(b, joined(group, "sort", name), OP_MOE_SORT, &(MoeSort){ 0 });
    run_case(b, joined(group, "up_fwd", name), OP_MOE_UP_FWD,
             &(MoeUpFwd){ .rows = rows, .glu = limit > 0 ? glu_clamped(limit) : (Glu){ 0 } });
    run_case(b, joined(group, "down_fwd", name), OP_MOE_DOWN_FWD, &(MoeDownFwd){ .rows = rows });
    run_case(b, joined(group, "combine", name), OP_MOE_COMBINE, &(MoeCombine){ 0 });
    run_case(
        b, joined(group, "down_bwd_input", name), OP_MOE_DOWN_BWD_INPUT,
        &(MoeDownBwdInput){ .rows = rows, .glu = limit > 0 ? glu_clamped(limit) : (Glu){ 0 } });
    run_case(b, joined(group, "down_bwd_weight", name), OP_MOE_DOWN_BWD_WEIGHT,
             &(MoeDownBwdWeight){ .rows = rows });
    run_case(b, joined(group, "up_bwd_input", name), OP_MOE_UP_BWD_INPUT,
             &(MoeUpBwdInput){ .rows = rows });
    run_case(b, joined(group, "up_bwd_weight", name), OP_MOE_UP_BWD_WEIGHT,
             &(MoeUpBwdWeight){ .rows = rows });
    run_case(b, joined(group, "gather_back", name), OP_MOE_COMBINE, &(MoeCombine){ 0 });
    if (limit == 0) return;
    run_case(b, joined(group, "down_bias", name), OP_MOE_BIAS_BWD, &(MoeBiasBwd){ .rows = rows });
    run_case(b, joined(group, "up_bias", name), OP_MOE_BIAS_BWD, &(MoeBiasBwd){ .rows = rows });
}

static void experts_agree(void **state)
{
    (void)state;
    Bench *b = bench_open("moe");
    for
        EACH(i, moe_cases) run_experts(b, moe_cases[i], 0);
    bench_close(b);
}

static void experts_of_gpt_oss_agree(void **state)
{
    (void)state;
    Bench *b = bench_open("gpt_oss");
    run_experts(b, "even", 7);
    run_experts(b, "crowd", 1.5f);
    bench_close(b);
}

static void router_bias_update_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("moe");
    run_case(b, "bias_update", OP_MOE_BIAS_UPDATE, &(MoeBiasUpdate){ .rate = 1e-3f });
    bench_close(b);
}

/* ---- optimizer ---- */

enum { STEPS = 5, DECAYED = 1003, OTHERS = 37 };

static const double BETA1 = 0.9, BETA2 = 0.95;

typedef struct Adam {
    Tensor w, m, v, sum, norm, clip, hyper;
} Adam;

static Adam adam_start(Bench *b)
{
    Adam a = { 0 };
    Tensor w = golden_get(&b->golden, "start", "w");
    a.w = golden_copy(&b->golden, &w);
    a.m = golden_poisoned(&b->golden, &w);
    a.v = golden_poisoned(&b->golden, &w);
    memset(a.m.data, 0, tensor_bytes(&w));
    memset(a.v.data, 0, tensor_bytes(&w));
    Tensor *scalars[] = { &a.sum, &a.norm, &a.clip };
    for (int i = 0; i < 3; i++) CHECK_OK(tensor_new1(&b->golden.arena, DTYPE_F32, 1, scalars[i]));
    CHECK_OK(tensor_new1(&b->golden.arena, DTYPE_F32, 3, &a.hyper));
    return a;
}

static void adam_range(Bench *b, const Adam *a, const Tensor *g, int64_t first, int64_t n,
                       float decay)
{
    CHECK_OK(adamw(&b->ex, (Adamw){ .w = tensor_rows(&a->w, first, n),
                                    .g = tensor_rows(g, first, n),
                                    .m = tensor_rows(&a->m, first, n),
                                    .v = tensor_rows(&a->v, first, n),
                                    .clip = a->clip,
                                    .hyper = a->hyper,
                                    .beta1 = (float)BETA1,
                                    .beta2 = (float)BETA2,
                                    .eps = 1e-8f,
                                    .decay = decay }));
}

static void adam_step(Bench *b, const Adam *a, const char *group, int step)
{
    Tensor g = golden_get(&b->golden, group, "g"), lr = golden_get(&b->golden, group, "lr");
    float *hyper = a->hyper.data;
    hyper[0] = *(float *)lr.data;
    hyper[1] = (float)(1 / (1 - pow((double)(float)BETA1, step + 1)));
    hyper[2] = (float)(1 / (1 - pow((double)(float)BETA2, step + 1)));
    *(float *)a->sum.data = 0;
    CHECK_OK(square_sum(&b->ex, (SquareSum){ .x = g, .sum = a->sum }));
    CHECK_OK(clip_scale(&b->ex, (ClipScale){ a->sum, a->norm, a->clip, .max_norm = 30 }));
    adam_range(b, a, &g, 0, DECAYED, 0.1f);
    adam_range(b, a, &g, DECAYED, OTHERS, 0);
}

static void clipped_adamw_steps_agree(void **state)
{
    (void)state;
    Bench *b = bench_open("adamw");
    Adam a = adam_start(b);
    for (int step = 0; step < STEPS; step++) {
        char group[16];
        snprintf(group, sizeof group, "step%d", step);
        adam_step(b, &a, group, step);
        const struct {
            const char *name;
            Tensor got;
        } outs[] = { { "norm", a.norm }, { "m", a.m }, { "v", a.v }, { "w", a.w } };
        for
            EACH(i, outs)
            {
                char what[64];
                snprintf(what, sizeof what, "%s/%s", group, outs[i].name);
                Tensor want = golden_get(&b->golden, group, outs[i].name);
                golden_compare(what, &outs[i].got, &want, LIMIT);
            }
    }
    bench_close(b);
}

static void muon_agrees(void **state)
{
    (void)state;
    Bench *b = bench_open("muon");
    static const char *const cases[] = { "wide", "tall", "square", "experts" };
    for
        EACH(i, cases)
        {
            Tensor w = golden_get(&b->golden, cases[i], "w"),
                   m = golden_get(&b->golden, cases[i], "m");
            w = golden_copy(&b->golden, &w), m = golden_copy(&b->golden, &m);
            for (int step = 0; step < 3; step++) {
                char group[16];
                snprintf(group, sizeof group, "%s%d", cases[i], step);
                Tensor want_w = golden_get(&b->golden, group, "w");
                Tensor want_m = golden_get(&b->golden, group, "m");
                CHECK_OK(muon(&b->ex, (Muon){ .w = w,
                                              .g = golden_get(&b->golden, group, "g"),
                                              .m = m,
                                              .clip = golden_get(&b->golden, group, "clip"),
                                              .hyper = golden_get(&b->golden, group, "lr"),
                                              .steps = 5,
                                              .nesterov = i != 2,
                                              .momentum = 0.95f,
                                              .decay = 0.1f,
                                              .scale = 1.7f }));
                golden_compare("w", &w, &want_w, LIMIT);
                golden_compare("m", &m, &want_m, LIMIT);
            }
        }
    bench_close(b);
}

/* Latents of queries, and groups of three heads with biases. */
static void clipped_heads_agree(void **state)
{
    (void)state;
    static const struct {
        const char *name, *max;
        double tau;
        int64_t cols;
        QkRows rows;
    } cases[] = { { "clip.mla_q", "max.mla", 4.5, 9, { 4, 4, 40, 0, 10, 6, 0, 0, 0 } },
                  { "clip.mla_kv", "max.mla", 4.5, 9, { 4, 4, 0, 44, 11, 6, 0, 0, 0 } },
                  { "clip.gqa", "max.gqa", 8, 11, { 6, 2, 48, 16, 8, 8, 0, 0, 0 } },
                  { "clip.bias", "max.gqa", 8, 1, { 6, 2, 48, 16, 8, 8, 0, 0, 0 } } };
    Bench *b = bench_open("qk_clip");
    for
        EACH(i, cases)
        {
            const float above = (float)cases[i].tau;
            run_case(b, cases[i].max, OP_ATTENTION_MAX,
                     &(AttentionMax){ .of.scale = 0.3F, .above = above });
            run_case(b, cases[i].name, OP_QK_CLIP,
                     &(QkClip){ .cols = cases[i].cols, .rows = cases[i].rows, .above = above });
        }
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rmsnorm_forward_agrees),
        TEST(rmsnorm_backward_agrees),
        TEST(swiglu_agrees),
        TEST(embed_agrees),
        TEST(linear_agrees),
        TEST(rope_of_mla_agrees),
        TEST(rope_of_gqa_agrees),
        TEST(attention_forward_agrees),
        TEST(attention_backward_agrees),
        TEST(head_loss_agrees),
        TEST(routing_agrees),
        TEST(routing_gradient_agrees),
        TEST(experts_agree),
        TEST(experts_of_gpt_oss_agree),
        TEST(router_bias_update_agrees),
        TEST(clipped_adamw_steps_agree),
        TEST(muon_agrees),
        TEST(clipped_heads_agree),
    };
    return TEST_RUN(tests);
}
