/* Hardware files written and read back; rates out of a bench's output. */
#include "harness/test.h"

#include "calibrate/calibrate.h"
#include "engine/count/layer_count.h"
#include "hardware/hardware.h"
#include "hardware/presets.h"
#include "planner/price/collective.h"
#include "planner/price/roofline.h"

#include <string.h>

static const char bench[] =
    "NVIDIA H200, bf16, 16384 tokens; roof: 744.2 TFLOP/s (large product), 4102 GB/s (copy, read "
    "and written)\n"
    "op                   shape                      routing  calls us/call TFLOP/s GB/s roof % "
    "work size\n"
    "linear_fwd           (16384, 2048) (3072, 2048)             20   300.0   600.0  500   92.0 "
    "gemm.bf16 2048\n"
    "linear_bwd_input     (16384, 2048) (3072, 2048)             20   100.0   800.0  500   92.0 "
    "gemm.bf16 2048\n"
    "linear_fwd           (16384, 2048) (576, 2048)              20   100.0   386.5  500   52.0 "
    "gemm.bf16 576\n"
    "moe_up_fwd           (16384, 2048) (64, 2816, 2048) even    20  4000.0   283.5  400   38.0 "
    "grouped.bf16 2048\n"
    "linear_bwd_weight    (16384, 64) (16384, 2048)              20   741.3     5.8   98    2.4 "
    "gemm.f32 64\n"
    "rmsnorm_fwd          (16384, 2048) (2048)                   20    40.0     3.4 3400   83.0 "
    "memory 0\n";

static void rates_are_those_of_the_bench_by_time(void **state)
{
    (void)state;
    Arena a = { 0 };
    Hardware h;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    double before = h.attention_bf16.at[0].tflops;
    CHECK_OK(calibrate("bench.txt", bench, &a, &h));
    assert_int_equal(h.gemm_bf16.n, 2);
    CHECK_NEAR(h.gemm_bf16.at[0].size, 576, 0);
    CHECK_NEAR(h.gemm_bf16.at[0].tflops, 386.5, 1e-9);
    CHECK_NEAR(h.gemm_bf16.at[1].tflops, (600 * 300 + 800 * 100) / 400.0, 1e-9);
    assert_int_equal(h.gemm_f32.n, 1);
    CHECK_NEAR(h.gemm_f32.at[0].tflops, 5.8, 1e-9);
    CHECK_NEAR(h.grouped_bf16.at[0].tflops, 283.5, 1e-9);
    CHECK_NEAR(h.memory_achieved_gb_s, 4102, 0);
    CHECK_NEAR(h.attention_bf16.at[0].tflops, before, 0); /* not measured: the base's */
    assert_true(h.gpu_measured);
    assert_non_null(strstr(h.gemm_source, "bench.txt"));
    arena_free(&a);
}

/* What `bench ops deepseek-v2-lite run.compute=bf16` prints of products and attention on a GPU, with
 * other numbers: no two rates are equal. */
static const char in_full[] =
    "NVIDIA H200, bf16, 16384 tokens; measured peak: 798.123 TFLOP/s (large product), 4260.3 GB/s "
    "(copy, "
    "read and written)\n"
    "op                   shape                                    routing  time %  calls    "
    "us/call   TFLOP/s     GB/s  peak % work                       size\n"
    "linear_fwd           16384x2048 3072x2048                                 1.0     40      "
    "343.6   600.000   1234.5    75.2 gemm.bf16                  2048\n"
    "linear_fwd           16384x2048 64x2048                                   0.5     40      "
    "109.0    39.403    650.1     4.9 gemm_mixed.bf16              64\n"
    "attention_fwd        4x4096x16x192 4x4096x16x192                          1.0     40      "
    "602.0   571.000    400.0    71.5 attention.bf16             4096\n"
    "attention_bwd        4x4096x16x128 4x4096x16x192                          3.0     40     "
    "2100.0   425.000    400.0    53.3 attention_backward.bf16    4096\n"
    "rmsnorm_fwd          16384x2048 1x2048                                    0.3     40       "
    "47.0     1.430   2856.0    67.0 memory                        0\n"
    "head_loss            16384x2048 102400x2048                              15.0     40    "
    "33000.0   624.700    150.0    78.3 head.bf16                  2048\n"
    "moe_up_fwd           16384x2048 64x2816x2048                  even        6.0     20     "
    "1690.0   671.000    800.0    84.1 grouped.bf16               2048\n"
    "moe_up_fwd           16384x2048 64x2816x2048                  zipf        6.0     20     "
    "1690.0   671.000    800.0    84.1 grouped.bf16               2048\n"
    "moe_down_fwd         98304x1408 64x2048x1408                  even        3.0     20      "
    "855.0   663.000    800.0    83.1 grouped.bf16               1408\n"
    "moe_down_bwd_input   16384x2048 64x2048x1408                  even        4.0     20     "
    "1277.0   444.000    800.0    55.6 grouped_input.bf16         1408\n"
    "moe_down_bwd_weight  16384x2048 98304x1408                    even        4.0     20     "
    "1066.0   532.000    800.0    66.7 grouped_weight.bf16        1408\n"
    "moe_up_bwd_input     98304x2816 64x2816x2048                  even        5.0     20     "
    "1581.0   717.000    800.0    89.8 grouped_input.bf16         2048\n"
    "moe_up_bwd_weight    98304x2816 16384x2048                    even        6.0     20     "
    "1996.0   568.000    800.0    71.2 grouped_weight.bf16        2048\n"
    "\n"
    "what is left above the peak, ms of a step of one micro-batch\n"
    "op                   shape                                    routing  calls       ms   roof "
    "ms  left ms  left %\n"
    "head_loss            16384x2048 102400x2048                                1   33.000   "
    "25.840    7.160     4.5\n";

/* The rates that an op of in_full was measured with; rows of 2048 x 1408 have their own. */
static const struct {
    const char *op;
    OpWork work;
    double size, tflops;
} measured[] = {
    { "linear_fwd", WORK_GEMM, 2048, 600 },
    { "linear_fwd", WORK_GEMM_MIXED, 64, 39.403 },
    { "attention_fwd", WORK_ATTENTION, 4096, 571 },
    { "attention_bwd", WORK_ATTENTION_ORDERED, 4096, 425 },
    { "head_loss", WORK_HEAD, 2048, 624.7 },
    { "moe_up_fwd", WORK_GROUPED, 2048, 671 },
    { "moe_down_fwd", WORK_GROUPED, 1408, 663 },
    { "moe_down_bwd_input", WORK_GROUPED_INPUT, 1408, 444 },
    { "moe_down_bwd_weight", WORK_GROUPED_WEIGHT, 1408, 532 },
    { "moe_up_bwd_input", WORK_GROUPED_INPUT, 2048, 717 },
    { "moe_up_bwd_weight", WORK_GROUPED_WEIGHT, 2048, 568 },
};
enum { MEASURED = sizeof measured / sizeof *measured };

typedef struct Pricing {
    Roofline roof;
    const LayerSpec *layer;
    unsigned seen; /* bit i: measured[i] */
} Pricing;

/* Holds an op that the planner counts to the rate with which it was measured. */
static Status price_op(void *self, LayerPass pass, int phase, const OpDesc *op, const void *args,
                       const OpCost *cost)
{
    (void)args;
    (void)pass;
    (void)phase;
    Pricing *p = self;
    RooflineTime t;
    CHECK_OK(roofline_op(&p->roof, p->layer, cost, &t));
    for (int i = 0; i < MEASURED; i++) {
        if (strcmp(op->name, measured[i].op) != 0 || cost->work != measured[i].work ||
            cost->size != measured[i].size)
            continue;
        double rows = 16384 * 6.0 / 64, tiles = rows / (rows + 64);
        double share = work_is_grouped(cost->work) ? tiles : 1;
        double s = cost->flops / (share * measured[i].tflops * 1e12) +
                   roofline_memory_s(&p->roof, cost->sum_bytes);
        if (t.rate > 0) CHECK_NEAR(t.rate * s / cost->flops, 1, 1e-9);
        p->seen |= 1u << i;
    }
    return OK;
}

/* Each family of ops has its own rate in a plan for our stack, also if its file was printed and read
 * between. */
static void a_plan_takes_each_kernels_own_rate(void **state)
{
    (void)state;
    static const char *const set[] = { "run.compute=bf16", "data.sequence=4096",
                                       "train.batch=4",    "train.micro_batch=4",
                                       "model.layers=6",   "model.loss_chunk=4096" };
    Arena a = { 0 }, text = { 0 };
    Text out = { 0 };
    Hardware h, again;
    Config c;
    ModelSpec spec;
    StackValues stack = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&text, "text", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(text_init(&out, &text));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    CHECK_OK(calibrate("bench.txt", in_full, &a, &h));
    CHECK_OK(hardware_print(&h, &out));
    CHECK_OK(hardware_parse(&again, &a, "h200.yaml", out.data, out.used));
    CHECK_OK(config_load(&c, &a, "deepseek-v2-lite", set, 6));
    CHECK_OK(spec_build(&c, &a, &spec));
    stack.at[STACK_share_compute] = stack.at[STACK_share_memory] = 1;
    stack.at[STACK_share_grouped] = 1;
    stack.at[STACK_list] = 1; /* as our own engine */
    Pricing p = { .roof = { &again, &stack, &spec, 16384 } };
    const LayerCountObserver observer = { price_op, &p, NULL };
    for (int i = 0; i < spec.n_layers; i++) {
        LayerCount count;
        p.layer = &spec.layers[i];
        CHECK_OK(layer_count(&spec, i, 4, 4096, &observer, &a, &count));
    }
    CHECK_INT(p.seen, (1u << MEASURED) - 1);
    arena_free(&text);
    arena_free(&a);
}

/* The router's products by tensor cores are faster than f32's peak; the file must still be read. */
static void mixed_products_may_pass_the_peak_of_f32(void **state)
{
    (void)state;
    Arena a = { 0 }, text = { 0 };
    Text out = { 0 };
    Hardware h, again;
    double rate = 0;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&text, "text", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(text_init(&out, &text));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    CHECK_OK(calibrate("x.txt",
                       "gpu, bf16, 1 tokens; roof: 1 TFLOP/s (large product), 4000 GB/s (copy)\n"
                       "linear_fwd 8192x7168 256x7168 1.0 20 150.0 200.408 500 92.0 "
                       "gemm_mixed.bf16 256\n",
                       &a, &h));
    CHECK_OK(hardware_print(&h, &out));
    CHECK_OK(hardware_parse(&again, &a, "again", out.data, out.used));
    CHECK_OK(hardware_rate(&again, WORK_GEMM_MIXED, HARDWARE_BF16, 256, &rate));
    CHECK_NEAR(rate / 200.408e12, 1, 1e-9);
    arena_free(&text);
    arena_free(&a);
}

/* A copy that stays in the cache looks faster than memory can be. */
static void memory_is_no_faster_than_its_data_sheet(void **state)
{
    (void)state;
    Arena a = { 0 };
    Hardware h;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    CHECK_OK(calibrate("x.txt",
                       "gpu, bf16, 1 tokens; roof: 1 TFLOP/s (large product), 99999 GB/s (copy)\n"
                       "linear_fwd (1) 20 300.0 600.0 500 92.0 gemm.bf16 2048\n",
                       &a, &h));
    CHECK_NEAR(h.memory_achieved_gb_s, h.memory_gb_s, 0);
    arena_free(&a);
}

/* One op of each kind as bench contention prints it, and what the mean by time must be. */
static const char contention[] =
    "2 ranks, NVIDIA H200; a collective holds 24 of 132 multiprocessors, a transfer 4\n"
    "op, times as long    us alone   gather     held     recv  work\n"
    "grouped product        1000.0    1.250    1.220    1.030  grouped.bf16\n"
    "grouped weights        3000.0    1.350    1.220    1.030  grouped_weight.bf16\n"
    "dense product           800.0    1.500    1.400    1.040  gemm.bf16\n"
    "dense, few tiles        200.0    2.000    2.000    1.950  gemm.bf16\n"
    "attention               500.0    1.300    1.200    1.030  attention.bf16\n"
    "attention: `recv` ended 12 us before the op: its factor is too low\n"
    "attention back         1500.0    1.100    1.200    1.030  attention_backward.bf16\n"
    "swiglu                  300.0    0.990    1.000    1.000  memory.bf16\n";

static void factors_beside_a_collective_are_means_by_time(void **state)
{
    (void)state;
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    for (int order = 0; order < 3; order++) {
        char both[sizeof bench + sizeof contention];
        const char *text[] = { "", bench, contention, "" };
        Hardware h, base;
        (void)snprintf(both, sizeof both, "%s%s", order == 2 ? contention : text[order],
                       order == 2 ? bench : contention);
        CHECK_OK(hardware_load(&h, &a, "h200"));
        base = h;
        CHECK_OK(calibrate("x.txt", both, &a, &h));
        CHECK_NEAR(h.contention_blocks, 24, 0);
        CHECK_NEAR(h.contention_grouped, (1250 + 3 * 1350) / 4000.0, 1e-12);
        CHECK_NEAR(h.contention_gemm, 1.6, 1e-12);
        CHECK_NEAR(h.contention_attention, (650 + 1650) / 2000.0, 1e-12);
        CHECK_NEAR(h.contention_memory, 1, 0); /* nothing gets faster */
        CHECK_TEXT(h.contention_source, "measured: switchyard bench contention, x.txt");
        /* a second of grouped products beside 24 of 132 takes 1.325 s: 108 / 24 of 0.325 */
        CHECK_NEAR(hardware_contention(&h, WORK_GROUPED_INPUT), 0.325 * 108 / 24, 1e-12);
        CHECK_NEAR(hardware_contention(&h, WORK_HEAD), 0.6 * 108 / 24, 1e-12);
        CHECK_NEAR(hardware_contention(&h, WORK_ATTENTION_PLAIN), 0.15 * 108 / 24, 1e-12);
        CHECK_NEAR(hardware_contention(&h, WORK_MEMORY), 0, 0);
        CHECK_NEAR(h.gemm_bf16.n, order == 0 ? base.gemm_bf16.n : 2, 0);
        CHECK((order == 0) == (h.memory_source == base.memory_source));
    }
    arena_free(&a);
}

/* Kinds of work that were not measured keep the base's factor, or take no longer. */
static void a_part_of_contention_keeps_the_base(void **state)
{
    (void)state;
    static const char part[] =
        "2 ranks, NVIDIA H200; a collective holds 24 of 132 multiprocessors, a transfer 4\n"
        "dense product 800.0 1.500 1.400 1.040 gemm.bf16\n";
    Arena a = { 0 };
    Hardware h;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    h.contention_attention = 1.4, h.contention_grouped = 0;
    CHECK_OK(calibrate("x.txt", part, &a, &h));
    CHECK_NEAR(h.contention_gemm, 1.5, 1e-12);
    CHECK_NEAR(h.contention_attention, 1.4, 0);
    CHECK_NEAR(h.contention_grouped, 1, 0);
    CHECK_FAILS(calibrate("x.txt",
                          "2 ranks, 1 thread: ops and calls run one after the other here\n"
                          "dense product 800.0 1.500 1.400 1.040 gemm.f32\n",
                          &a, &h),
                ERR_FORMAT,
                "x.txt: no op of `switchyard bench ops` or `bench contention` on a GPU");
    arena_free(&a);
}

static void what_is_no_bench_is_refused(void **state)
{
    (void)state;
    Arena a = { 0 };
    Hardware h;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    CHECK_FAILS(calibrate("x.txt", "", &a, &h), ERR_FORMAT, "x.txt: no op of");
    CHECK_FAILS(calibrate("x.txt",
                          "gpu, bf16, 1 tokens; roof: 1 TFLOP/s (large product), 2 GB/s "
                          "(copy)\nlinear_fwd (1) 20 x 600.0 500 92.0 gemm.bf16 2048\n",
                          &a, &h),
                ERR_FORMAT, "x.txt:2: not a line of an op");
    for (size_t cut = 0; cut < strlen(bench); cut += 7) {
        char part[sizeof bench];
        memcpy(part, bench, cut);
        part[cut] = '\0';
        Status s = calibrate("x.txt", part, &a, &h);
        assert_true(s == OK || s == ERR_FORMAT);
    }
    arena_free(&a);
}

/* ---- an exchange ---- */

/* A plan of the exchange takes the time that it was measured with: between hosts by the NICs' rate, inside one by the
 * links'. Worked by hand: of 64 MiB a GPU sends a half to the other host, 33.55 MB in 3.1 ms less the latency. */
static void a_measured_exchange_is_planned_as_it_was(void **state)
{
    (void)state;
    static const struct {
        const char *gpu, *text;
        int64_t gpus;
        double bytes, s;
    } row[] = {
        { "h100", "16 GPUs, 64 MiB, 3.1 ms", 16, 67108864, 3.1e-3 },
        { "h100", "16 GPUs, 67108864 1048576 float none -1 3100.0 21.65 20.29 0 3000 22.4 21.0 0",
          16, 67108864, 3.1e-3 },
        { "h200", "8 GPUs, 1 GB, 4500 us", 8, 1e9, 4.5e-3 },
        { "mi300x", "64 GPUs,1 GiB,0.04 s", 64, 1073741824, 0.04 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Arena a = { 0 };
        Hardware h, base;
        CollectiveCost cost;
        HardwareRates rates[HARDWARE_SECTIONS_MAX];
        CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
        CHECK_OK(hardware_load(&h, &a, row[i].gpu));
        base = h;
        CHECK_OK(calibrate_exchange(row[i].text, &a, &h));
        const CollectiveGroup g = { row[i].gpus, 8, 0 };
        CHECK_OK(collective_cost(&h, COLLECTIVE_ALL_TO_ALL, &g, row[i].bytes, &cost));
        CHECK_NEAR(cost.s / row[i].s, 1, 1e-9);
        const bool far = row[i].gpus > 8;
        CHECK((h.scale_out_achieved_gb_s == base.scale_out_achieved_gb_s) == !far);
        CHECK((h.scale_up_achieved_gb_s == base.scale_up_achieved_gb_s) == far);
        CHECK_NEAR(h.scale_up_shard_gb_s * base.scale_up_achieved_gb_s,
                   base.scale_up_shard_gb_s * h.scale_up_achieved_gb_s, 1e-6); /* 0: it has none */
        if (i < 2) CHECK_NEAR(h.scale_out_achieved_gb_s, 33.554432e6 / 3.06e-3 / 1e9, 0.1);
        for (int k = 0, n = hardware_bases(&h, rates); k < n; k++) {
            if (strcmp(rates[k].section, far ? "scale_out" : "scale_up") == 0)
                CHECK_INT(rates[k].basis, BASIS_MEASURED);
        }
        arena_free(&a);
    }
}

/* A crowd of the sheet lets through 0.34 of four hosts' rate; an exchange that is faster than the data sheet with it
 * ends it, a slower one keeps it. */
static void an_exchange_may_end_a_crowd(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int crowd;
    } row[] = { { "32 GPUs, 64 MiB, 1.5 ms", 0 }, { "32 GPUs, 64 MiB, 8 ms", 3 } };
    for (int i = 0; i < 2; i++) {
        Arena a = { 0 };
        Hardware h;
        CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
        CHECK_OK(hardware_load(&h, &a, "mi300x"));
        CHECK_OK(calibrate_exchange(row[i].text, &a, &h));
        CHECK_INT(h.scale_out_crowd.n, row[i].crowd);
        CHECK(h.scale_out_achieved_gb_s <= h.scale_out_gb_s);
        arena_free(&a);
    }
}

static void what_is_no_exchange_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } row[] = {
        { "", "write 2 GPUs or more" },
        { "garbage", "write 2 GPUs or more" },
        { "1 GPUs, 64 MiB, 3 ms", "write 2 GPUs or more" },
        { "2.5 GPUs, 64 MiB, 3 ms", "write 2 GPUs or more" },
        { "16 GPU, 64 MiB, 3 ms", "write 2 GPUs or more" },
        { "16 GPUs", "write 2 GPUs or more" },
        { "16 GPUs, 64 MiB", "write 2 GPUs or more" },
        { "16 GPUs, 64 XB, 3 ms", "write 2 GPUs or more" },
        { "16 GPUs, 64 MiB, 3 min", "write 2 GPUs or more" },
        { "16 GPUs, 64 MiBytesOfMemory, 3 ms", "write 2 GPUs or more" },
        { "16 GPUs, -64 MiB, 3 ms", "write 2 GPUs or more" },
        { "16 GPUs, 64 MiB, nan ms", "write 2 GPUs or more" },
        { "16 GPUs, inf MiB, 3 ms", "write 2 GPUs or more" },
        { "16 GPUs, 64 MiB, 3 ms, 4 ms", "write 2 GPUs or more" },
        { "16 GPUs, 67108864 1048576 float none -1 0 0 0 0", "write 2 GPUs or more" },
        { "16 GPUs, 67108864 1048576 float sum -1 3100.0 21.65 40.59 0", "write 2 GPUs or more" },
        { "8 GPUs, 67108864 1048576 float none -1 3100.0 21.65 20.29 0", "write 2 GPUs or more" },
        { "16 GPUs, 67108864 1048576 float none -1 31.0 21.65 20.29 0", "write 2 GPUs or more" },
        { "16 GPUs, 64 MiB, 0.3 ms",
          "faster than the data sheet of h100, whose scale_out.gb_s 50" },
        { "8 GPUs, 64 MiB, 0.03 ms",
          "faster than the data sheet of h100, whose scale_up.gb_s 450" },
        { "12 GPUs, 64 MiB, 3 ms", "a group of 12 ranks cannot have 8" },
    };
    Arena a = { 0 };
    Hardware h;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CHECK_OK(hardware_load(&h, &a, "h100"));
        CHECK_FAILS(calibrate_exchange(row[i].text, &a, &h), ERR_ARG, row[i].says);
    }
    arena_free(&a);
}

static void a_printed_file_reads_back(void **state)
{
    (void)state;
    for (int i = 0; i < hardware_presets_n; i++) {
        Arena a = { 0 }, text = { 0 };
        Hardware h, again;
        Text once = { 0 }, twice = { 0 };
        CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 30));
        CHECK_OK(hardware_load(&h, &a, hardware_presets[i].name));
        CHECK_OK(arena_init(&text, "once", MEM_HOST, (size_t)1 << 30));
        CHECK_OK(text_init(&once, &text));
        CHECK_OK(hardware_print(&h, &once));
        CHECK_OK(hardware_parse(&again, &a, "again", once.data, once.used));
        Arena other = { 0 };
        CHECK_OK(arena_init(&other, "twice", MEM_HOST, (size_t)1 << 30));
        CHECK_OK(text_init(&twice, &other));
        CHECK_OK(hardware_print(&again, &twice));
        assert_string_equal(once.data, twice.data);
        double x, y;
        CHECK_OK(hardware_rate(&h, WORK_GROUPED, HARDWARE_BF16, 1000, &x));
        CHECK_OK(hardware_rate(&again, WORK_GROUPED, HARDWARE_BF16, 1000, &y));
        CHECK_NEAR(x, y, 1);
        arena_free(&other);
        arena_free(&text);
        arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rates_are_those_of_the_bench_by_time),
        TEST(a_plan_takes_each_kernels_own_rate),
        TEST(mixed_products_may_pass_the_peak_of_f32),
        TEST(memory_is_no_faster_than_its_data_sheet),
        TEST(factors_beside_a_collective_are_means_by_time),
        TEST(a_part_of_contention_keeps_the_base),
        TEST(what_is_no_bench_is_refused),
        TEST(a_measured_exchange_is_planned_as_it_was),
        TEST(an_exchange_may_end_a_crowd),
        TEST(what_is_no_exchange_is_refused),
        TEST(a_printed_file_reads_back),
    };
    return TEST_RUN(tests);
}
