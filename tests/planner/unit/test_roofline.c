/* What an op takes: the slower of compute and memory, what a stack reaches of either, and the rows
 * of the busiest rank. */
#include "harness/test.h"

#include "planner/price/roofline.h"

#include <math.h>

typedef struct Bench {
    Arena arena;
    Hardware hardware;
    StackValues stack;
    ModelSpec spec;
    LayerSpec layer;
    Roofline roof;
} Bench;

static const double KERNEL_S = 3e-6;

static void open_bench(Bench *b)
{
    *b = (Bench){ .spec = { .ranks = { .ep = 8, .etp = 1, .cp = 1, .imbalance = 1 },
                            .act = DTYPE_BF16 } };
    CHECK_OK(arena_init(&b->arena, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(hardware_load(&b->hardware, &b->arena, "h200"));
    b->stack.at[STACK_share_memory] = 0.5;
    b->stack.at[STACK_share_compute] = 0.8;
    b->stack.at[STACK_share_grouped] = 0.25;
    b->stack.at[STACK_share_attention] = -1;
    b->stack.at[STACK_share_links] = 0.5;
    b->stack.at[STACK_kernel_s] = KERNEL_S;
    b->stack.at[STACK_dispatch] = 1;
    b->layer.kind = LAYER_MOE;
    b->layer.as.moe.experts = 64;
    b->layer.as.moe.rule.top_k = 8;
    b->layer.as.moe.rule.groups = 1;
    b->roof = (Roofline){ &b->hardware, &b->stack, &b->spec, 64, 1 };
}

static RooflineTime time_of(Bench *b, OpCost c)
{
    RooflineTime t = { 0 };
    CHECK_OK(roofline_op(&b->roof, &b->layer, &c, &t));
    return t;
}

static double rate_of(Bench *b, OpWork work, double size)
{
    double rate = 0;
    CHECK_OK(hardware_rate(&b->hardware, work, HARDWARE_BF16, size, &rate));
    return rate;
}

static void the_slower_of_compute_and_memory_counts(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    double memory_s = 1e9 / (0.5e9 * b.hardware.memory_achieved_gb_s);
    double rate = 0.8 * rate_of(&b, WORK_GEMM, 2048);
    RooflineTime bytes = time_of(&b, (OpCost){ .flops = 1e6, .bytes = 1e9, .work = WORK_MEMORY });
    CHECK_NEAR((bytes.s - KERNEL_S) / memory_s, 1, 1e-9);
    OpCost product = {
        .flops = 1e13, .bytes = 1e9, .work = WORK_GEMM, .dtype = DTYPE_BF16, .size = 2048
    };
    RooflineTime flops = time_of(&b, product);
    CHECK(1e13 / rate > 2 * memory_s);
    CHECK_NEAR((flops.s - KERNEL_S) / (1e13 / rate), 1, 1e-9);
    CHECK_NEAR(flops.rate / rate, 1, 1e-9);
    product.flops = 1e6;
    RooflineTime thin = time_of(&b, product);
    CHECK_NEAR((thin.s - KERNEL_S) / memory_s, 1, 1e-9);
    CHECK_NEAR(thin.rate, 0, 0);
    arena_free(&b.arena);
}

static OpCost weight_gradient(Dtype type, double m, double n, double tokens)
{
    return (OpCost){ .flops = 2 * m * n * tokens,
                     .sum_bytes = 4 * m * n,
                     .bytes = 8 * m * n + (m + n) * tokens,
                     .work = WORK_GEMM,
                     .dtype = type,
                     .size = fmin(m, n) };
}

/* On an H200 two of DeepSeek-V2-Lite's took 94 and 102 us, with 40 and 64 blocks. Of 65,536 tokens a result of 512 x 512
 * has 8 blocks and one of 512 x 256 four. Where tokens are not divided, neither is faster; a Hopper GPU makes 16 and 32
 * parts of them, in 62 and 50 us, and adds parts of 16 MiB. */
static void few_blocks_of_a_weight_gradient_take_as_long_as_one(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    b.stack.at[STACK_share_memory] = b.stack.at[STACK_share_compute] = b.stack.at[STACK_list] = 1;
    CHECK_INT(b.hardware.gpu_capability, 90);
    CHECK_NEAR(time_of(&b, weight_gradient(DTYPE_E4M3, 576, 2048, 16384)).s, 94e-6, 15e-6);
    CHECK_NEAR(time_of(&b, weight_gradient(DTYPE_E4M3, 4096, 512, 16384)).s, 102e-6, 15e-6);
    CHECK_NEAR(time_of(&b, weight_gradient(DTYPE_E4M3, 512, 512, 65536)).s, 62e-6, 6e-6);
    CHECK_NEAR(time_of(&b, weight_gradient(DTYPE_E4M3, 512, 256, 65536)).s, 50e-6, 10e-6);
    OpCost forward = weight_gradient(DTYPE_E4M3, 512, 512, 65536);
    forward.sum_bytes = 0;
    CHECK(time_of(&b, forward).s < 52e-6);
    double plain = time_of(&b, weight_gradient(DTYPE_BF16, 512, 512, 65536)).s;
    CHECK_NEAR(plain, 69.5e-6, 7e-6);
    b.hardware.gpu_capability = 0;
    CHECK(time_of(&b, weight_gradient(DTYPE_E4M3, 512, 512, 65536)).s > 350e-6); /* unknown */
    b.hardware.gpu_vendor = "AMD"; /* in 8 bits alone */
    CHECK(time_of(&b, weight_gradient(DTYPE_E4M3, 512, 512, 65536)).s < 68e-6);
    CHECK(time_of(&b, weight_gradient(DTYPE_BF16, 512, 512, 65536)).s < plain - 5e-6);
    b.hardware.gpu_vendor = "NVIDIA", b.hardware.gpu_capability = 100;
    double eight = time_of(&b, weight_gradient(DTYPE_E4M3, 512, 512, 65536)).s;
    double four = time_of(&b, weight_gradient(DTYPE_E4M3, 512, 256, 65536)).s;
    CHECK(eight > 350e-6 && fabs(four / eight - 1) < 0.02);
    CHECK(time_of(&b, weight_gradient(DTYPE_BF16, 512, 512, 65536)).s < eight / 3);
    double large = time_of(&b, weight_gradient(DTYPE_E4M3, 8192, 8192, 65536)).s;
    CHECK(large < 2 * 8192. * 8192 * 65536 / 1e15);
    b.stack.at[STACK_list] = 0;
    CHECK(time_of(&b, weight_gradient(DTYPE_E4M3, 512, 512, 65536)).s < eight / 2);
    arena_free(&b.arena);
}

/* 64 tokens of 8 experts each from 8 ranks are 64 rows an expert: of tiles of 128 rows the last is
 * half empty on average, so half of the work is of rows that count. */
/* With bound=1 rates are shares of the peak, each work's own; f32 keeps its rates. */
static void bounds_take_the_place_of_rates(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    CHECK_OK(hardware_load(&b.hardware, &b.arena, "mi300x"));
    b.stack.at[STACK_bound] = 1;
    const Hardware *h = &b.hardware;
    const struct {
        OpWork work;
        Dtype type;
        double share, peak;
    } want[] = {
        { WORK_GEMM, DTYPE_BF16, h->bound_products, h->peak_bf16 },
        { WORK_HEAD, DTYPE_BF16, h->bound_products, h->peak_bf16 },
        { WORK_ATTENTION, DTYPE_BF16, h->bound_attention, h->peak_bf16 },
        { WORK_ATTENTION_BACKWARD, DTYPE_BF16, h->bound_attention_backward, h->peak_bf16 },
        { WORK_GEMM, DTYPE_E4M3, h->bound_products_fp8, h->peak_fp8 },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        OpCost c = { .flops = 1e13, .work = want[i].work, .dtype = want[i].type, .size = 2048 };
        CHECK(want[i].share > 0.5 && want[i].share < 1);
        CHECK_NEAR(time_of(&b, c).rate / (0.8e12 * want[i].share * want[i].peak), 1, 1e-9);
    }
    OpCost sums = { .flops = 1e13, .work = WORK_GROUPED_WEIGHT, .dtype = DTYPE_BF16, .size = 2048 };
    OpCost rows = { .flops = 1e13, .work = WORK_GROUPED, .dtype = DTYPE_BF16, .size = 2048 };
    CHECK_NEAR(time_of(&b, sums).rate / time_of(&b, rows).rate, h->bound_sums / h->bound_products,
               1e-9);
    OpCost wide = { .flops = 1e13, .work = WORK_GEMM, .dtype = DTYPE_F32, .size = 2048 };
    double bounded = time_of(&b, wide).rate;
    b.stack.at[STACK_bound] = 0;
    CHECK_NEAR(time_of(&b, wide).rate / bounded, 1, 1e-9);
    arena_free(&b.arena);
}

static void grouped_products_pay_for_their_tiles(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    RooflineTime t = time_of(
        &b, (OpCost){ .flops = 1e13, .work = WORK_GROUPED, .dtype = DTYPE_BF16, .size = 2048 });
    CHECK_NEAR(t.rate / (0.25 * 0.5 * rate_of(&b, WORK_GROUPED, 2048)), 1, 1e-9);
    arena_free(&b.arena);
}

/* 64 tokens x top 8 x 8 ranks over 64 experts are 64 rows each, 8 experts a rank: as many launches, each at the rate
 * of a product of 64 rows. */
static void looped_experts_run_one_after_the_other(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    b.stack.at[STACK_loop_experts] = 1;
    b.stack.at[STACK_share_grouped] = -1;
    RooflineTime t = time_of(
        &b, (OpCost){ .flops = 1e13, .work = WORK_GROUPED, .dtype = DTYPE_BF16, .size = 2048 });
    CHECK_NEAR(t.rate / (0.8 * rate_of(&b, WORK_GEMM, 64)), 1, 1e-9);
    CHECK_NEAR(t.s, 1e13 / t.rate + 8 * KERNEL_S, 1e-9);
    arena_free(&b.arena);
}

static void attention_may_have_a_share_of_its_own(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    b.stack.at[STACK_share_attention] = 0.4;
    const OpCost c = {
        .flops = 1e13, .work = WORK_ATTENTION_PLAIN_BACKWARD, .dtype = DTYPE_BF16, .size = 4096
    };
    CHECK_NEAR(time_of(&b, c).rate / (0.4 * rate_of(&b, WORK_ATTENTION_BACKWARD, 4096)), 1, 1e-9);
    arena_free(&b.arena);
}

/* Our own engine's kernel by its name; other stacks have kernels of their own. */
static void a_kernels_own_rate_counts_where_it_runs(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    b.hardware.attention_kernels_plain = (HardwareCurve){ 1, { { 4096, 300 } } };
    b.hardware.attention_kernels_plain_backward = (HardwareCurve){ 1, { { 4096, 200 } } };
    static const OpWork work[] = { WORK_ATTENTION_PLAIN, WORK_ATTENTION_PLAIN_BACKWARD };
    for (int back = 0; back < 2; back++) {
        OpCost c = { .flops = 1e13, .work = work[back], .dtype = DTYPE_BF16, .size = 4096 };
        const double theirs = time_of(&b, c).rate;
        c.kernel = &attention_words[ATTENTION_PLAIN];
        CHECK_NEAR(time_of(&b, c).rate / theirs, 1, 1e-12);
        b.stack.at[STACK_list] = 1;
        CHECK_NEAR(time_of(&b, c).rate / (0.8e12 * (back ? 200 : 300)), 1, 1e-9);
        c.kernel = &attention_words[ATTENTION_HOPPER];
        CHECK_NEAR(time_of(&b, c).rate / (0.8 * rate_of(&b, work[back], 4096)), 1, 1e-9);
        b.stack.at[STACK_list] = 0;
    }
    arena_free(&b.arena);
}

/* 64 rows an expert: two micro-batches as one product have 128, of tiles of 128 two thirds. Sums are read and written
 * once for both, and so is the launch. */
static void weight_gradients_of_several_micro_batches_may_be_one_product(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    const OpCost sums = {
        .flops = 1e13, .work = WORK_GROUPED_WEIGHT, .dtype = DTYPE_BF16, .size = 2048
    };
    const OpCost small = { .flops = 1,
                           .bytes = 5e9,
                           .sum_bytes = 2e9,
                           .work = WORK_GEMM,
                           .dtype = DTYPE_BF16,
                           .size = 2048 };
    const OpCost forward = {
        .flops = 1e13, .work = WORK_GROUPED, .dtype = DTYPE_BF16, .size = 2048
    };
    const RooflineTime one = time_of(&b, sums), bytes = time_of(&b, small);
    const double before = time_of(&b, forward).s;
    b.roof.joined = 1;
    CHECK_NEAR(time_of(&b, sums).s / one.s, 1, 0);
    b.roof.joined = 2;
    CHECK_NEAR(time_of(&b, sums).rate / one.rate, (2.0 / 3) / (1.0 / 2), 1e-9);
    CHECK_NEAR((time_of(&b, small).s - KERNEL_S / 2) / (bytes.s - KERNEL_S), 3.0 / 5, 1e-9);
    CHECK_NEAR(time_of(&b, forward).s / before, 1, 0);
    b.stack.at[STACK_list] =
        1; /* our kernels read the sums at their end: half as many bytes of them */
    OpCost adds = sums;
    adds.sum_bytes = 4e9, adds.bytes = 8e9;
    const double all = time_of(&b, adds).s;
    b.roof.joined = 4;
    const double less = time_of(&b, adds).s,
                 read_s = 1e9 / (0.5e9 * b.hardware.memory_achieved_gb_s);
    b.roof.joined = 2;
    adds.sum_bytes = 0;
    const double product = time_of(&b, adds).s;
    CHECK_NEAR((all - product) / (2 * read_s), 1, 1e-6);
    b.roof.joined = 4;
    CHECK_NEAR((less - time_of(&b, adds).s) / read_s, 1, 1e-6);
    arena_free(&b.arena);
}

static void an_exchange_takes_as_long_as_its_busiest_rank(void **state)
{
    (void)state;
    Bench b;
    open_bench(&b);
    CollectiveGroup g = roofline_group(&b.hardware, 8, 1);
    const Dispatch d = {
        .kind = DISPATCH_RANK, .tokens = 64, .row_bytes = 1e6, .experts = 64, .top_k = 8
    };
    CollectiveCost one;
    CHECK_OK(collective_dispatch(&b.hardware, &g, &d, &one));
    for (int imbalance = 1; imbalance <= 2; imbalance++) {
        b.spec.ranks.imbalance = imbalance;
        RooflineTime t =
            time_of(&b, (OpCost){ .work = WORK_COMM, .comm = COMM_EXCHANGE, .size = 1e6 });
        double want = one.latency_s + (one.s - one.latency_s) * imbalance;
        CHECK_INT(t.lane, ROOFLINE_EXCHANGE);
        CHECK_NEAR(t.s / (want / 0.5), 1, 1e-9);
    }
    arena_free(&b.arena);
}

/* Our own engine copies rows into blocks and adds up what returns; `direct` does neither, and an all-gather sends rows
 * from where they lie. */
static void blocks_of_rows_are_copied(void **state)
{
    (void)state;
    static const bool copies[EXCHANGE_KINDS] = {
        [EXCHANGE_ALLTOALL] = true, [EXCHANGE_HIER] = true
    };
    const double copied_s = 1e9 / (0.5e9 * 4260) + KERNEL_S; /* share and rate of memory */
    OpCost c = { .work = WORK_COMM, .comm = COMM_EXCHANGE, .size = 1e6, .bytes = 1e9 };
    Bench b;
    open_bench(&b);
    b.stack.at[STACK_dispatch] = -1;
    for (int kind = 0; kind < EXCHANGE_KINDS; kind++) {
        b.spec.ranks.exchange = (ExchangeKind)kind;
        b.stack.at[STACK_list] = 0;
        const double theirs_s = time_of(&b, c).s;
        b.stack.at[STACK_list] = 1;
        CHECK_NEAR(time_of(&b, c).s - theirs_s, copies[kind] ? copied_s : 0, 1e-9);
    }
    arena_free(&b.arena);
}

/* A stack that does not say how tokens travel sends them as moe.exchange says: 32 ranks are four
 * domains. */
static void an_exchange_is_that_of_the_configuration(void **state)
{
    (void)state;
    static const DispatchKind want[EXCHANGE_KINDS] = { [EXCHANGE_ALLTOALL] = DISPATCH_RANK,
                                                       [EXCHANGE_ALLGATHER] = DISPATCH_ALL,
                                                       [EXCHANGE_HIER] = DISPATCH_RELAY,
                                                       [EXCHANGE_DIRECT] = DISPATCH_RANK };
    Bench b;
    open_bench(&b);
    b.stack.at[STACK_dispatch] = -1;
    b.spec.ranks.ep = 32;
    CollectiveGroup g = roofline_group(&b.hardware, 32, 1);
    for (int kind = 0; kind < EXCHANGE_KINDS; kind++) {
        const Dispatch d = {
            .kind = want[kind], .tokens = 64, .row_bytes = 1e6, .experts = 64, .top_k = 8
        };
        CollectiveCost c;
        CHECK_OK(collective_dispatch(&b.hardware, &g, &d, &c));
        b.spec.ranks.exchange = (ExchangeKind)kind;
        RooflineTime t =
            time_of(&b, (OpCost){ .work = WORK_COMM, .comm = COMM_EXCHANGE, .size = 1e6 });
        CHECK_NEAR(t.s / (c.s / 0.5), 1, 1e-9);
    }
    b.stack.at[STACK_dispatch] = 0; /* another stack's own way, whatever the setting */
    CollectiveCost each;
    const Dispatch d = {
        .kind = DISPATCH_EACH, .tokens = 64, .row_bytes = 1e6, .experts = 64, .top_k = 8
    };
    CHECK_OK(collective_dispatch(&b.hardware, &g, &d, &each));
    RooflineTime t = time_of(&b, (OpCost){ .work = WORK_COMM, .comm = COMM_EXCHANGE, .size = 1e6 });
    CHECK_NEAR(t.s / (each.s / 0.5), 1, 1e-9);
    arena_free(&b.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_slower_of_compute_and_memory_counts),
        TEST(few_blocks_of_a_weight_gradient_take_as_long_as_one),
        TEST(bounds_take_the_place_of_rates),
        TEST(grouped_products_pay_for_their_tiles),
        TEST(looped_experts_run_one_after_the_other),
        TEST(attention_may_have_a_share_of_its_own),
        TEST(a_kernels_own_rate_counts_where_it_runs),
        TEST(weight_gradients_of_several_micro_batches_may_be_one_product),
        TEST(an_exchange_takes_as_long_as_its_busiest_rank),
        TEST(an_exchange_is_that_of_the_configuration),
        TEST(blocks_of_rows_are_copied),
    };
    return TEST_RUN(tests);
}
