/* Tensor parallelism of other stacks, optimizer states on the host, and Muon.
 * Parameters and bytes are worked by hand. */
#include "harness/question.h"

#include "planner/price/price_private.h"
#include "planner/report.h"
#include "planner/search/search.h"

#include <math.h>

static void open_plan(Question *q, const char *model, int64_t gpus, const char *stack,
                      const char *const *set, int n)
{
    question_load(q, model, "h100", gpus, stack, set, n);
    question_open(q);
}

#define OPEN(q, model, gpus, stack, ...)                                                           \
    open_plan(q, model, gpus, stack, (const char *const[]){ __VA_ARGS__ },                         \
              (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

static const PriceEntry *entry_of(Question *q)
{
    const PriceEntry *e = NULL;
    CHECK_OK(planner_legal(q->planner, &q->layout));
    CHECK_OK(price_entry(q->planner, &q->layout, &e));
    return e;
}

static const LayerPrice *layer_of(Question *q, LayerKind kind)
{
    const PriceEntry *e = entry_of(q);
    for (int i = 0; i < q->planner->classes; i++) {
        if (q->planner->spec.layers[q->planner->first_of[i]].kind == kind) return &e->plain[i];
    }
    fail_msg("no layer of kind %d", (int)kind);
    return NULL;
}

static double parameters(Question *q, LayerKind kind)
{
    return (double)layer_of(q, kind)->count.params.of[BUF_MAIN].flat;
}

static PlanPrice price_of(Question *q)
{
    PlanPrice p;
    CHECK_OK(planner_price(q->planner, &q->layout, &p));
    return p;
}

/* ---- tensor parallelism: what a rank holds ---- */

/* Llama 3 8B: hidden 4096, 32 heads and 8 of keys of 128, MLPs of 14336, a table of 128256. */
static void ranks_of_tp_share_the_matrices_of_a_llama(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 4; tp *= 2) {
        Question q;
        OPEN(&q, "llama3-8b", 4, "megatron", "train.batch=8");
        q.layout.tp = tp, q.layout.dp = 4 / tp;
        CHECK_NEAR(parameters(&q, LAYER_EMBED), 128256.0 * 4096 / tp, 0);
        CHECK_NEAR(parameters(&q, LAYER_ATTENTION), 4096.0 * 128 * (32 + 8 + 8 + 32) / tp + 4096,
                   0);
        CHECK_NEAR(parameters(&q, LAYER_MLP), 3.0 * 4096 * 14336 / tp + 4096, 0);
        CHECK_NEAR(parameters(&q, LAYER_HEAD), 128256.0 * 4096 / tp + 4096, 0);
        CHECK_NEAR(layer_of(&q, LAYER_MLP)->copies, tp == 1 ? 0 : 4096, 1e-6);
        question_close(&q);
    }
}

/* DeepSeek-V2-Lite: hidden 2048; 16 heads of 128 + 64 for queries, 128 + 128 for keys and values from a latent of
 * 512; shared experts of 2 x 1408, 64 routed ones of 1408 over 8 ranks. Down-projection, router and norms are on all
 * ranks of tp; experts are not cut. */
static void latents_routers_and_experts_are_not_cut(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 4; tp *= 2) {
        Question q;
        OPEN(&q, "deepseek-v2-lite", 8, "megatron", "train.batch=8", "mesh.ep=8");
        q.layout.tp = tp, q.layout.dp = 8 / tp;
        const double down = (512 + 64) * 2048.0, router = 64 * 2048.0, norms = 2048 + 512;
        CHECK_NEAR(parameters(&q, LAYER_ATTENTION),
                   (16 * 192 * 2048.0 + 16 * 256 * 512.0 + 16 * 128 * 2048.0) / tp + down + norms,
                   0);
        CHECK_NEAR(parameters(&q, LAYER_MOE),
                   8 * 3 * 2048.0 * 1408 + 3 * 2048.0 * 2816 / tp + router + 2048, 64);
        if (tp > 1) CHECK_NEAR(layer_of(&q, LAYER_ATTENTION)->copies, down + norms, 1e-6);
        question_close(&q);
    }
}

/* All ranks of tp together do what one did, but for what the loss does a token. */
static void the_work_of_a_layer_is_shared_out_whole(void **state)
{
    (void)state;
    static const LayerKind kinds[] = { LAYER_ATTENTION, LAYER_MLP, LAYER_MOE, LAYER_HEAD };
    double one[4] = { 0 };
    for (int tp = 1; tp <= 8; tp *= 2) {
        Question q;
        OPEN(&q, "deepseek-v2-lite", 8, "torchtitan", "train.batch=8", "mesh.ep=8");
        q.layout.tp = tp, q.layout.dp = 8 / tp;
        q.planner->listing = true;
        for (int k = 0; k < 4; k++) {
            const LayerPrice *l = layer_of(&q, kinds[k]);
            double flops = 0;
            for (int i = 0; i < l->n_ops; i++) flops += l->op[i].flops;
            if (tp == 1) one[k] = flops;
            CHECK(flops > 0);
            CHECK_NEAR(flops * tp / one[k], 1, 1e-3);
        }
        question_close(&q);
    }
}

/* Megatron's s b h (34 + 5 a s / h) / t bytes (arXiv:2205.05198, table 2), for a layer of its kind: MLPs with 8 h
 * numbers a token between their products (here 3 of 8/3 h each). Of its 34, 2 are masks of dropout, which there is
 * none of; flash attention keeps 4 bytes of a token and head in place of 5 a s. */
static void a_layer_keeps_what_megatron_published(void **state)
{
    (void)state;
    for (int tp = 1; tp <= 8; tp *= 2) {
        Question q;
        OPEN(&q, "llama2-7b", 8, "megatron", "train.batch=8", "model.hidden=3072", "model.ffn=8192",
             "attention.heads=24", "attention.kv_heads=24", "attention.head_dim=128",
             "data.sequence=2048");
        q.layout.tp = tp, q.layout.dp = 8 / tp;
        const LayerCount *attention = &layer_of(&q, LAYER_ATTENTION)->count;
        const LayerCount *mlp = &layer_of(&q, LAYER_MLP)->count;
        double sum = (double)(attention->keep + attention->stream + mlp->keep + mlp->stream);
        CHECK_NEAR(sum, (2048.0 * 3072 * (34 - 2) + 4 * 2048.0 * 24) / tp, 256);
        question_close(&q);
    }
}

static void activations_of_a_step_fall_with_tp(void **state)
{
    (void)state;
    double one = 0;
    for (int tp = 1; tp <= 4; tp *= 2) {
        Question q;
        OPEN(&q, "llama3-8b", 8, "torchtitan", "train.batch=16");
        q.layout.tp = tp, q.layout.dp = 8 / tp;
        PlanPrice p = price_of(&q);
        if (tp == 1) one = p.memory[PLAN_ACTIVATIONS];
        CHECK_NEAR(p.memory[PLAN_ACTIVATIONS] * tp / one, 1, 1e-6);
        CHECK_INT(search_replica(&q.layout), tp);
        question_close(&q);
    }
}

/* ---- tensor parallelism: what travels ---- */

/* An MLP gathers and sums tokens x hidden in bf16, once forward and once backward; with tp_overlap a share of it is
 * hidden. The head gathers alone. */
static void tokens_are_gathered_and_summed_over_ranks_of_tp(void **state)
{
    (void)state;
    static const char *const stacks[] = { "megatron,tp_overlap=0",
                                          "megatron,tp_overlap=1,hide_tp=0.25" };
    const double bytes = 8192.0 * 4096 * 2;
    for (int i = 0; i < 2; i++) {
        Question q;
        CollectiveCost gather, sum;
        OPEN(&q, "llama3-8b", 8, stacks[i], "train.batch=8", "mesh.tp=4");
        const CollectiveGroup g = { 4, 4, 4 };
        CHECK_OK(collective_cost(&q.hardware, COLLECTIVE_ALL_GATHER, &g, bytes, &gather));
        CHECK_OK(collective_cost(&q.hardware, COLLECTIVE_REDUCE_SCATTER, &g, bytes, &sum));
        double shown = i == 0 ? 1 : 0.75;
        CHECK_NEAR(layer_of(&q, LAYER_MLP)->lane_s[ROOFLINE_TENSOR] / (2 * (gather.s + sum.s)),
                   shown, 1e-9);
        CHECK_NEAR(layer_of(&q, LAYER_HEAD)->lane_s[ROOFLINE_TENSOR] / (gather.s + sum.s), shown,
                   1e-9);
        PlanPrice p = price_of(&q);
        /* 32 blocks of two layers, and embedding and head, which together have one layer's; 4 micro-batches */
        CHECK_NEAR(p.part_s[PLAN_TENSOR] / (4 * 65 * 2 * (gather.s + sum.s)), shown, 1e-6);
        question_close(&q);
    }
}

/* Forward, each layer's gather takes as long as the rank's own products, which run beside it, or less: 64 layers, two
 * micro-batches. */
static void products_of_own_rows_run_beside_the_gather(void **state)
{
    (void)state;
    double waits[2];
    CollectiveCost gather;
    for (int i = 0; i < 2; i++) {
        Question q;
        OPEN(&q, "llama3-8b", 2, "switchyard", "train.batch=2", "train.micro_batch=1", "mesh.tp=2",
             i == 0 ? "mesh.tp_pieces=0" : "mesh.tp_pieces=4096");
        const CollectiveGroup g = { 2, 2, 2 };
        CHECK_OK(
            collective_cost(&q.hardware, COLLECTIVE_ALL_GATHER, &g, 8192.0 * 4096 * 2, &gather));
        PlanPrice p;
        CHECK_OK(planner_legal(q.planner, &q.layout));
        CHECK_OK(planner_price_list(q.planner, &q.layout, &q.arena, &p, NULL));
        waits[i] = p.part_s[PLAN_TENSOR];
        question_close(&q);
    }
    const double hidden = (waits[0] - waits[1]) / (2 * 64 * gather.s);
    if (!(hidden >= 0.85 && hidden <= 1.001))
        fail_msg("%.3f of the gathers of forward are hidden", hidden);
}

/* Data-parallel ranks stand tp GPUs apart, replicas of experts ep. */
static void groups_of_gradients_stride_over_ranks_of_tp(void **state)
{
    (void)state;
    Question q;
    GradientTimes t;
    OPEN(&q, "deepseek-v2-lite", 32, "megatron", "train.batch=32", "mesh.ep=8", "mesh.tp=2");
    const PriceEntry *e = entry_of(&q);
    const RankPrice rank = { .sum = { .params = layer_of(&q, LAYER_MOE)->count.params,
                                      .copies = 1e6 } };
    CHECK_OK(price_gradients(q.planner, &q.layout, e, &rank, &t));
    CHECK_INT(t.calls, 5);
    CHECK_INT(t.call[0].ranks, 16);
    CHECK_INT(t.call[0].stride, 2);
    CHECK_INT(t.call[2].ranks, 4);
    CHECK_INT(t.call[2].stride, 8);
    CHECK_INT(t.call[4].ranks, 2);
    CHECK_INT(t.call[4].stride, 1);
    CHECK_NEAR(t.call[4].cost.size, 4e6, 1);
    q.layout.zero = 0; /* all replicas then add up */
    CHECK_OK(price_gradients(q.planner, &q.layout, e, &rank, &t));
    CHECK_INT(t.calls, 3);
    CHECK_INT(t.call[0].ranks, 16);
    CHECK_INT(t.call[1].ranks, 4);
    CHECK_INT(t.call[1].stride, 8);
    question_close(&q);
}

static void what_tp_does_not_divide_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *stack, *why;
        int tp;
    } cases[] = {
        { "llama3-8b", "switchyard,tp_most=1",
          "mesh.tp 2: this stack shares matrices over 1 ranks at most", 2 },
        { "llama3-8b", "megatron", "mesh.tp 16 does not divide attention.kv_heads 8", 16 },
        { "deepseek-v2-lite", "megatron", "mesh.tp 32 does not divide attention.heads 16", 32 },
        { "llama3-8b", "megatron", "mesh.pp x mesh.cp x mesh.tp 6 does not divide the number of",
          6 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Question q;
        OPEN(&q, cases[i].model, 32, cases[i].stack, "train.batch=32");
        q.layout.tp = cases[i].tp, q.layout.dp = 32 / cases[i].tp;
        CHECK_FAILS(planner_legal(q.planner, &q.layout), ERR_ARG, cases[i].why);
        question_close(&q);
    }
}

/* Experts lie over tp x dp ranks: 8 of 64 experts a GPU whatever tp is. */
static void experts_spread_over_ranks_of_tp(void **state)
{
    (void)state;
    Question q;
    OPEN(&q, "deepseek-v2-lite", 8, "megatron", "train.batch=8", "mesh.ep=8", "mesh.tp=8");
    CHECK_INT(q.layout.dp, 1);
    CHECK_OK(planner_legal(q.planner, &q.layout));
    q.layout.ep = 16;
    CHECK_FAILS(planner_legal(q.planner, &q.layout), ERR_ARG, "the ranks of a pipeline stage, 8");
    question_close(&q);
}

/* ---- the optimizer ---- */

/* Of matrices in blocks Muon holds a momentum, of table, head and norms AdamW's two moments. 5 iterations of
 * 4 r r k + 2 r r r FLOPs for a matrix (k, r): here q and o, k and v, gate, up and down of Llama 3 8B. */
static void muon_holds_one_moment_and_multiplies(void **state)
{
    (void)state;
    Question q;
    OPEN(&q, "llama3-8b", 1, "switchyard", "train.batch=1", "optimizer.kind=muon",
         "data.sequence=512");
    q.layout.zero = 0;
    const double block = 4096.0 * 128 * 80 + 3.0 * 4096 * 14336, rest = 2 * 128256.0 * 4096;
    PlanPrice p = price_of(&q);
    CHECK_NEAR(p.memory[PLAN_OPTIMIZER] / (4 * 32 * block + 8 * (rest + 65 * 4096)), 1, 1e-6);
    const LayerPrice *l = layer_of(&q, LAYER_MLP);
    double rate = 0, kernel = entry_of(&q)->stack.at[STACK_kernel_s], r = 4096, k = 14336;
    CHECK_OK(hardware_rate(&q.hardware, WORK_OWN_GEMM, HARDWARE_BF16, 4096, &rate));
    CHECK_NEAR(l->whole_s[0], 3 * (5 * (4 * r * r * k + 2 * r * r * r) / rate + kernel), 1e-9);
    CHECK_NEAR(l->longest_s, l->whole_s[0] / 3, 1e-12);
    CHECK_INT(l->count.scratch,
              2 * 2 * (4096 * 14336 + 4096 * 4096)); /* one matrix in bf16, and its square */
    question_close(&q);
}

/* Of gate and up each of two ranks of tp owns one; down is one rank's. What comes from ranks takes room, too. */
static void muon_over_ranks_of_tp_takes_rounds_of_whole_matrices(void **state)
{
    (void)state;
    Question q;
    OPEN(&q, "llama3-8b", 2, "switchyard", "train.batch=2", "optimizer.kind=muon", "mesh.tp=2",
         "data.sequence=512");
    const LayerPrice *l = layer_of(&q, LAYER_MLP);
    double rate = 0, kernel = entry_of(&q)->stack.at[STACK_kernel_s], r = 4096, k = 14336;
    CHECK_OK(hardware_rate(&q.hardware, WORK_OWN_GEMM, HARDWARE_BF16, 4096, &rate));
    double one = 5 * (4 * r * r * k + 2 * r * r * r) / rate + 2 * kernel;
    CHECK_NEAR(l->whole_s[0], 2 * one, 1e-9);
    CHECK_NEAR(l->longest_s, one, 1e-12);
    CHECK_NEAR(l->largest, r * k, 0);
    CHECK_INT(l->count.scratch, 2 * (3 * 4096 * 14336 + 2 * 4096 * 4096));
    question_close(&q);
}

/* Each of 64 experts is a matrix of its own, on one of 8 ranks. */
static void muon_takes_each_expert_by_itself(void **state)
{
    (void)state;
    Question q;
    OPEN(&q, "deepseek-v2-lite", 8, "switchyard", "train.batch=8", "mesh.ep=8",
         "optimizer.kind=muon");
    const LayerPrice *l = layer_of(&q, LAYER_MOE);
    double rate = 0, kernel = entry_of(&q)->stack.at[STACK_kernel_s], r = 1408, k = 2048;
    CHECK_OK(hardware_rate(&q.hardware, WORK_OWN_GEMM, HARDWARE_BF16, r, &rate));
    CHECK_NEAR(l->whole_s[1], 24 * (5 * (4 * r * r * k + 2 * r * r * r) / rate + kernel), 1e-9);
    question_close(&q);
}

/* 1/8 of the parameters: gradients of 4 bytes come down, weights of 2 go up, 34 bytes of host memory. */
static void offloaded_states_lie_on_the_host(void **state)
{
    (void)state;
    static const char *const stacks[] = { "megatron", "megatron,offload_overlap=0" };
    for (int i = 0; i < 2; i++) {
        Question q;
        OPEN(&q, "llama3-8b", 8, stacks[i], "train.batch=8", "optimizer.offload=true");
        PlanPrice p = price_of(&q);
        double elems = 8030261248.0 / 8, down = 4 / 55e9, up = 2 / 55e9, host = 34 / 77e9;
        CHECK_NEAR(p.memory[PLAN_MAIN] + p.memory[PLAN_OPTIMIZER], 0, 0);
        CHECK_NEAR(p.host_bytes / (12 * elems), 1, 1e-3);
        CHECK_NEAR(p.part_s[PLAN_UPDATE] / (elems * (i == 0 ? host : down + up + host)), 1, 1e-3);
        CHECK(p.offload);
        question_close(&q);
    }
}

/* Our own engine: two moments of 1/8 of the parameters come and go in pieces of 2^23 elements, three at a time. The
 * link takes longer than the update, of which one piece shows, as the way of one piece there and back does. */
static void states_of_our_own_engine_come_to_the_gpu(void **state)
{
    (void)state;
    for (int muon = 0; muon < 2; muon++) {
        const char *kind = muon ? "optimizer.kind=muon" : "optimizer.kind=adamw";
        Question q, plain;
        OPEN(&q, "llama3-8b", 8, "switchyard", "train.batch=8", "optimizer.offload=true", kind);
        OPEN(&plain, "llama3-8b", 8, "switchyard", "train.batch=8", kind);
        PlanPrice p = price_of(&q), without = price_of(&plain);
        double all = 8030261248.0 / 8, hidden = 2.0 * 128256 * 4096 / 8, piece = 1 << 23;
        double largest = muon ? 4096.0 * 14336 : piece, both = muon ? hidden : all;
        double bytes = 4 * (all + both), come_s = bytes / 55e9;
        CHECK_NEAR(p.host_bytes / bytes, 1, 1e-3);
        CHECK_NEAR(p.memory[PLAN_OPTIMIZER], 3 * 4 * (largest + piece), 0);
        CHECK_NEAR(without.memory[PLAN_OPTIMIZER] / bytes, 1, 1e-3);
        CHECK_NEAR(p.memory[PLAN_MAIN], without.memory[PLAN_MAIN], 0);
        double n = all / largest, update_s = without.part_s[PLAN_UPDATE];
        double longer_s = fmax(come_s, update_s);
        double want = (2 * come_s + update_s + (n - 1) * longer_s) / n;
        CHECK_NEAR(p.part_s[PLAN_UPDATE] / want, 1, 1e-3);
        question_close(&q);
        question_close(&plain);
    }
}

static void a_host_without_a_rate_cannot_be_offloaded_to(void **state)
{
    (void)state;
    Question q;
    static const char *const set[] = { "optimizer.offload=true" };
    question_load(&q, "llama3-8b", "h100", 8, "megatron", set, 1);
    q.hardware.host_link_gb_s = 0;
    CHECK_FAILS(planner_make(&q.request, &q.planner), ERR_ARG,
                "optimizer.offload=true: the file of h100 has no host.link_gb_s");
    question_close(&q);
}

/* ---- recompute by piece ---- */

/* V2-Lite, 4096 tokens, in bf16. What mla_up_proj no longer keeps: q and k of 16 x 192, v of 16 x 128, the normed
 * latent of 512; layernorm: 2048; moe_act: 1408 of 6 routed rows, 2816 of shared experts; shared_experts: 3 x 2816. */
static void pieces_that_are_recomputed_are_not_kept(void **state)
{
    (void)state;
    const struct {
        const char *pieces;
        double attention, moe;
    } cases[] = {
        { "recompute.pieces=[norm]", 2048, 2048 },
        { "recompute.pieces=[attn_up]", 2 * 16 * 192 + 16 * 128 + 512, 0 },
        { "recompute.pieces=[act]", 0, 6 * 1408 + 2816 },
        { "recompute.pieces=[shared]", 0, 3 * 2816 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Question q;
        OPEN(&q, "deepseek-v2-lite", 8, "megatron", "train.batch=8", "mesh.ep=8", "mesh.tp=2",
             "recompute.layers=[0,1,2]", cases[i].pieces);
        const PriceEntry *e = entry_of(&q);
        for (int c = 0; c < q.planner->classes; c++) {
            LayerKind kind = q.planner->spec.layers[q.planner->first_of[c]].kind;
            double less = (double)e->plain[c].count.keep - (double)e->recomputed[c].count.keep;
            if (kind == LAYER_ATTENTION) CHECK_NEAR(less, 2 * 2048 * cases[i].attention, 256);
            if (kind == LAYER_MOE) CHECK_NEAR(less, 2 * 2048 * cases[i].moe, 256);
        }
        question_close(&q);
    }
}

/* Operands of 8 bits are kept as such: attention's input, an expert's input and activation, a shared one's activation
 * of DeepSeek-V2-Lite with 4096 tokens. */
static void recipes_keep_operands_of_8_bits(void **state)
{
    (void)state;
    static const char *const recipes[] = { "fp8.recipe=none", "fp8.recipe=block" };
    double attention[2], moe[2];
    for (int i = 0; i < 2; i++) {
        Question q;
        OPEN(&q, "deepseek-v2-lite", 8, "megatron", "train.batch=8", "mesh.ep=8", recipes[i]);
        attention[i] = (double)layer_of(&q, LAYER_ATTENTION)->count.keep;
        moe[i] = (double)layer_of(&q, LAYER_MOE)->count.keep;
        CHECK_NEAR(entry_of(&q)->stack.at[STACK_weight_size], i == 0 ? 2 : 4, 0);
        question_close(&q);
    }
    CHECK_NEAR(attention[0] - attention[1], 4096.0 * 2048, 256);
    CHECK_NEAR(moe[0] - moe[1], 4096.0 * (6 * (2048 + 1408) + 2816), 256);
}

/* Inputs of weight gradients that wait take the place of activations that the input gradients have freed: the most
 * that is alive at one moment counts, not a sum of arenas (which would be 22 % above 1f1b here). */
static void what_waits_takes_the_place_of_what_is_freed(void **state)
{
    (void)state;
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        const char *const set[] = {
            "mesh.pp=4",        "mesh.ep=2",
            "train.batch=32",   "train.micro_batch=1",
            "run.compute=bf16", i == 0 ? "mesh.schedule=1f1b" : "mesh.schedule=zb-h1"
        };
        Question q;
        PlanPrice price;
        question_load(&q, "deepseek-v2-lite", "mi325x", 8, "primus", set, 6);
        question_open(&q);
        CHECK_OK(planner_legal(q.planner, &q.layout));
        CHECK_OK(planner_price(q.planner, &q.layout, &price));
        bytes[i] = price.memory[PLAN_ACTIVATIONS];
        question_close(&q);
    }
    CHECK(bytes[1] > bytes[0] && bytes[1] < 1.1 * bytes[0]);
}

static void check_says(Question *q, const char *what)
{
    const PlanPrice none = { .exchange = -1 };
    const PlanReport report = {
        .request = &q->request, .layout = &q->layout, .price = &none, .partition = "", .stack = ""
    };
    char want[128];
    Text out;
    CHECK_OK(text_init(&out, &q->arena));
    CHECK_OK(plan_report_text(&report, &out));
    (void)snprintf(want, sizeof want,
                   "note        the engine of this program does not run %s yet\n", what);
    if (strstr(out.data, want) == NULL) fail_msg("\"%s\" is not in: %s", want, out.data);
}

/* A plan may have them; whoever would run them is told. */
static void what_can_only_be_planned_is_not_run(void **state)
{
    (void)state;
    static const char with[] = "mesh.tp=2 with attention.qk_norm=width";
    char words[CONFIG_PLANNED_BYTES];
    Question wide;
    OPEN(&wide, "llama3-8b", 8, "switchyard", "train.batch=8", "mesh.tp=2",
         "attention.qk_norm=width");
    CHECK_FAILS(config_check_ops(&wide.config, 8), ERR_UNSUPPORTED, with);
    CHECK_TEXT(config_planned_only(&wide.config, words), with);
    CHECK_FAILS(planner_legal(wide.planner, &wide.layout), ERR_ARG, with);
    check_says(&wide, with);
    question_close(&wide);
    static const char *const set[] = { "mesh.tp=2", "optimizer.kind=muon" };
    Question q = { 0 };
    Config c;
    CHECK_OK(arena_init(&q.arena, "test", MEM_HOST, (size_t)1 << 24));
    CHECK_OK(config_load(&c, &q.arena, NULL, set, 2));
    CHECK_OK(config_check_ops(&c, 8));
    CHECK_TEXT(config_planned_only(&c, words), "");
    const char *const odd[] = { "mesh.tp=3" };
    CHECK_FAILS(config_load(&c, &q.arena, "llama3-8b", odd, 1), ERR_ARG,
                "mesh.tp 3 does not divide attention.heads 32");
    arena_free(&q.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_of_tp_share_the_matrices_of_a_llama),
        TEST(latents_routers_and_experts_are_not_cut),
        TEST(the_work_of_a_layer_is_shared_out_whole),
        TEST(a_layer_keeps_what_megatron_published),
        TEST(activations_of_a_step_fall_with_tp),
        TEST(tokens_are_gathered_and_summed_over_ranks_of_tp),
        TEST(products_of_own_rows_run_beside_the_gather),
        TEST(groups_of_gradients_stride_over_ranks_of_tp),
        TEST(what_tp_does_not_divide_is_refused),
        TEST(experts_spread_over_ranks_of_tp),
        TEST(muon_holds_one_moment_and_multiplies),
        TEST(muon_over_ranks_of_tp_takes_rounds_of_whole_matrices),
        TEST(muon_takes_each_expert_by_itself),
        TEST(offloaded_states_lie_on_the_host),
        TEST(states_of_our_own_engine_come_to_the_gpu),
        TEST(a_host_without_a_rate_cannot_be_offloaded_to),
        TEST(pieces_that_are_recomputed_are_not_kept),
        TEST(recipes_keep_operands_of_8_bits),
        TEST(what_waits_takes_the_place_of_what_is_freed),
        TEST(what_can_only_be_planned_is_not_run),
    };
    return TEST_RUN(tests);
}
