/* Hardware files: presets, rates between points, messages. */
#include "harness/arena.h"

#include "engine/base/text.h"
#include "hardware/hardware.h"
#include "hardware/presets.h"

#include <stdlib.h>

/* A whole file; cases replace one line of it. */
static const char *const lines[] = {
    "gpu: {title: T, measured: true}",
    "memory: {gib: 80, gb_s: 4000, achieved_gb_s: 3000, source: s}",
    "peak: {bf16: 1000, fp8: 2000, source: s}",
    "gemm: {bf16: [[1000, 400], [10000, 600]], source: s}",
    "attention: {bf16: [[4096, 500]], source: s}",
    "attention_backward: {bf16: [[4096, 300]], source: s}",
    "host: {launch_us: 5, sync_us: 0, source: s}",
    "scale_up: {fabric: switch, gpus: 8, gb_s: 450, achieved_gb_s: 400, latency_us: 10, "
    "issue_us: 1, source: s}",
    "scale_out: {rails: 8, gb_s: 50, achieved_gb_s: 40, latency_us: 20, issue_us: 1, "
    "tiers: [[64, 1, 2], [512, 0.5, 10]], source: s}",
};

enum { LINES = sizeof lines / sizeof *lines };

/* The file with `line` in place of line number `at`; at LINES: with it behind. */
static Status parse(Hardware *h, int at, const char *line)
{
    Text t = { 0 };
    CHECK_OK(text_init(&t, &arena));
    for (int i = 0; i < LINES; i++) CHECK_OK(text_printf(&t, "%s\n", i == at ? line : lines[i]));
    if (at == LINES) CHECK_OK(text_printf(&t, "%s\n", line));
    return hardware_parse(h, &arena, "a.yaml", t.data, t.used);
}

static void every_preset_loads_and_says_where_its_numbers_are_from(void **state)
{
    (void)state;
    Hardware h;
    double rate = 0;
    CHECK_INT(hardware_presets_n, 13);
    for (int i = 0; i < hardware_presets_n; i++) {
        CHECK_OK(hardware_load(&h, &arena, hardware_presets[i].name));
        CHECK_TEXT(h.name, hardware_presets[i].name);
        CHECK(strlen(h.memory_source) > 10 && strlen(h.gemm_source) > 10);
        CHECK(h.gpu_watts > 0 || strcmp(h.name, "mi450") == 0 || strcmp(h.name, "cpu") == 0);
        if (strcmp(h.name, "cpu") == 0) continue; /* its peaks are upper limits */
        const bool fp8 = h.peak_fp8 > 0;          /* an A100 has no products in 8 bits */
        CHECK_OK(hardware_rate(&h, WORK_GROUPED, fp8 ? HARDWARE_FP8 : HARDWARE_BF16, 1536, &rate));
        const double peak = 1e12 * (fp8 ? h.peak_fp8 : h.peak_bf16);
        CHECK(rate > 0.2 * peak && rate < peak);
        CHECK(fp8 == (strcmp(h.name, "a100") != 0));
        CHECK(h.gpu_measured == (strcmp(h.name, "h200") == 0));
    }
}

static void rates_are_measured_published_or_assumed(void **state)
{
    (void)state;
    /* of products, of the memory, of links in a domain and between domains */
    static const struct {
        const char *gpu, *vendor;
        HardwareBasis gemm, memory, up, out;
    } want[] = {
        { "h200", "NVIDIA", BASIS_MEASURED, BASIS_MEASURED, BASIS_MEASURED, BASIS_ASSUMED },
        { "h100", "NVIDIA", BASIS_ASSUMED, BASIS_ASSUMED, BASIS_MEASURED, BASIS_ASSUMED },
        { "b200", "NVIDIA", BASIS_PUBLISHED, BASIS_PUBLISHED, BASIS_ASSUMED, BASIS_ASSUMED },
        { "mi300x", "AMD", BASIS_PUBLISHED, BASIS_ASSUMED, BASIS_ASSUMED, BASIS_ASSUMED },
        { "mi355x", "AMD", BASIS_PUBLISHED, BASIS_ASSUMED, BASIS_ASSUMED, BASIS_ASSUMED },
        { "mi450", "AMD", BASIS_ASSUMED, BASIS_ASSUMED, BASIS_ASSUMED, BASIS_ASSUMED },
    };
    Hardware h;
    HardwareRates rates[HARDWARE_SECTIONS_MAX];
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK_OK(hardware_load(&h, &arena, want[i].gpu));
        const int n = hardware_bases(&h, rates);
        int found = 0;
        for (int k = 0; k < n; k++) {
            const struct {
                const char *section;
                HardwareBasis basis;
            } row[] = { { "gemm", want[i].gemm },
                        { "memory", want[i].memory },
                        { "scale_up", want[i].up },
                        { "scale_out", want[i].out } };
            CHECK(strcmp(rates[k].section, "peak") != 0 && strcmp(rates[k].section, "bound") != 0);
            for (int r = 0; r < 4; r++) {
                if (strcmp(rates[k].section, row[r].section) != 0) continue;
                found++;
                if (rates[k].basis != row[r].basis) fail_msg("%s %s", h.name, row[r].section);
            }
        }
        CHECK_INT(found, 4);
        CHECK_TEXT(h.gpu_vendor, want[i].vendor);
    }
    for (int i = 0; i < hardware_presets_n; i++) {
        CHECK_OK(hardware_load(&h, &arena, hardware_presets[i].name));
        bool gpu = strcmp(h.name, "cpu") != 0;
        CHECK(gpu ? h.gpu_vendor != NULL && text_starts(h.gpu_title, h.gpu_vendor)
                  : h.gpu_vendor == NULL);
    }
}

static double rate_of(const Hardware *h, OpWork work, HardwareDtype dtype, double size)
{
    double rate = 0;
    CHECK_OK(hardware_rate(h, work, dtype, size, &rate));
    return rate / 1e12;
}

static void presets_hold_the_figures_that_are_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double gib, hbm, bf16, up, gpus, reached; /* reached: products of 8192 cubed, TFLOP/s */
    } want[] = {
        { "mi300x", 192, 5300, 1307.4, 448, 8, 708 },
        { "mi325x", 256, 6000, 1307.4, 448, 8, 843 },
        { "mi355x", 288, 8000, 2516.6, 537.6, 8, 1613 },
        { "h100", 79.1, 3350, 989.4, 450, 8, 798 },
        { "h200", 139.8, 4800, 989.4, 450, 8, 798 },
        { "b200", 178, 8000, 2250, 900, 8, 1401 },
        { "gb200", 185, 8000, 2500, 900, 72, 1557 },
        { "b300", 268, 8000, 2250, 900, 8, 1541 },
        { "gb300", 268, 8000, 2500, 900, 72, 1816 },
        { "h800", 79.1, 3350, 989.4, 200, 8, 798 },
        { "a100", 79.1, 2039, 312, 300, 8, 265 },
        { "mi450", 432, 19600, 10000, 1800, 72, 6409 },
    };
    Hardware h;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK_OK(hardware_load(&h, &arena, want[i].name));
        CHECK_NEAR(h.memory_gib, want[i].gib, 0);
        CHECK_NEAR(h.memory_gb_s, want[i].hbm, 0);
        CHECK_NEAR(h.peak_bf16, want[i].bf16, 0);
        CHECK_NEAR(h.scale_up_gb_s, want[i].up, 0);
        CHECK_NEAR(h.scale_up_gpus, want[i].gpus, 0);
        CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_BF16, 8192), want[i].reached, 0.5);
    }
}

static void rates_lie_on_lines_over_the_logarithm_of_the_size(void **state)
{
    (void)state;
    Hardware h;
    CHECK_OK(parse(&h, LINES, ""));
    CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_BF16, 1000), 400, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_BF16, sqrt(1e7)), 500, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_BF16, 10000), 600, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_BF16, 1e9), 600, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_BF16, 250), 100, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_ATTENTION_BACKWARD, HARDWARE_BF16, 8192), 300, 1e-9);
}

static void what_has_no_curve_takes_the_nearest_one(void **state)
{
    (void)state;
    Hardware h;
    double rate = 0;
    CHECK_OK(parse(&h, LINES, "grouped: {fp8: [[1000, 900]], source: s}"));
    CHECK_NEAR(rate_of(&h, WORK_GROUPED, HARDWARE_BF16, 1000), 400, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GROUPED, HARDWARE_FP8, 1000), 900, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GROUPED_INPUT, HARDWARE_FP8, 1000), 900, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GROUPED_WEIGHT, HARDWARE_BF16, 1000), 400, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_HEAD, HARDWARE_BF16, 1000), 400, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_FP8, 1000), 800, 1e-9);
    CHECK_NEAR(rate_of(&h, WORK_DELTA, HARDWARE_BF16, 128),
               0.05 * hardware_peak(&h, HARDWARE_BF16) / 1e12, 1e-9);
    CHECK_FAILS(hardware_rate(&h, WORK_DELTA, HARDWARE_F32, 128, &rate), ERR_ARG,
                "a.yaml has no rate for delta in f32");
    CHECK_FAILS(hardware_rate(&h, WORK_GEMM, HARDWARE_F32, 1000, &rate), ERR_ARG,
                "a.yaml has no rate for gemm in f32: give gemm.f32 or peak.f32");
    CHECK_FAILS(hardware_rate(&h, WORK_GEMM_MIXED, HARDWARE_BF16, 1000, &rate), ERR_ARG,
                "a.yaml has no rate for gemm in f32");
    CHECK_FAILS(hardware_rate(&h, WORK_GEMM, HARDWARE_BF16, 0, &rate), ERR_ARG, "size 0");
    CHECK_FAILS(hardware_rate(&h, WORK_GEMM, HARDWARE_BF16, NAN, &rate), ERR_ARG, "above 0");
}

/* Each kind of work has a curve of its own; mixed products have f32's unless they are given. */
static void each_kind_of_work_has_its_own_curve(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        OpWork work;
    } row[] = { { "delta: {bf16: [[128, 123]], source: s}", WORK_DELTA },
                { "gemm_mixed: {bf16: [[1000, 123]], source: s}", WORK_GEMM_MIXED },
                { "head: {bf16: [[1000, 123]], source: s}", WORK_HEAD },
                { "grouped: {bf16: [[1000, 123]], source: s}", WORK_GROUPED },
                { "grouped_input: {bf16: [[1000, 123]], source: s}", WORK_GROUPED_INPUT },
                { "grouped_weight: {bf16: [[1000, 123]], source: s}", WORK_GROUPED_WEIGHT } };
    Hardware h;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        CHECK_OK(parse(&h, LINES, row[i].line));
        CHECK_NEAR(rate_of(&h, row[i].work, HARDWARE_BF16, 1000), 123, 1e-9);
        CHECK_NEAR(rate_of(&h, WORK_GEMM, HARDWARE_BF16, 1000), 400, 1e-9);
    }
    CHECK_OK(parse(&h, 2, "peak: {f32: 100, bf16: 1000, source: s}"));
    CHECK_NEAR(rate_of(&h, WORK_GEMM_MIXED, HARDWARE_BF16, 1000), 40, 1e-9);
}

/* A row of a kernel counts for that kernel alone, forward and backward, and is gone with another chip's rates. */
static void a_kernel_for_attention_may_have_rates_of_its_own(void **state)
{
    (void)state;
    static const char ROWS[] = "attention_kernels: {plain: [[1000, 100], [2000, 200]], "
                               "plain_backward: [[1000, 70]], source: measured}";
    static const char OTHER[] = "extends: h200\nattention: {bf16: [[4096, 500]], source: s}\n";
    static const char SAME[] = "extends: h200\ngpu: {title: t}\n";
    Hardware h, other;
    double rate = 0;
    CHECK_OK(parse(&h, LINES, ROWS));
    CHECK(hardware_kernel_rate(&h, "plain", false, 2000, &rate));
    CHECK_NEAR(rate, 200e12, 1);
    CHECK(hardware_kernel_rate(&h, "plain", true, 2000, &rate));
    CHECK_NEAR(rate, 70e12, 1);
    CHECK(!hardware_kernel_rate(&h, "hopper", false, 2000, &rate));
    CHECK(!hardware_kernel_rate(&h, "none", false, 2000, &rate));
    CHECK_NEAR(rate_of(&h, WORK_ATTENTION_PLAIN, HARDWARE_BF16, 4096), 500, 1e-9);
    hardware_slow(&h, "attention_kernels", 2);
    CHECK(hardware_kernel_rate(&h, "plain", true, 2000, &rate));
    CHECK_NEAR(rate, 35e12, 1);
    Hardware base = h;
    CHECK_OK(hardware_parse(&h, &arena, "same", SAME, sizeof SAME - 1));
    CHECK_OK(hardware_parse(&other, &arena, "other", OTHER, sizeof OTHER - 1));
    h.attention_kernels_plain = other.attention_kernels_plain = base.attention_kernels_plain;
    base = h;
    base.attention_kernels_source = other.attention_kernels_source;
    hardware_drop_steps(&h, &base);
    hardware_drop_steps(&other, &base);
    CHECK(hardware_kernel_rate(&h, "plain", false, 2000, &rate));
    CHECK(!hardware_kernel_rate(&other, "plain", false, 2000, &rate));
    other.attention_kernels_plain = base.attention_kernels_plain;
    other.attention_kernels_plain.at[1].tflops = 90; /* its own, of as many points */
    hardware_drop_steps(&other, &base);
    CHECK(hardware_kernel_rate(&other, "plain", false, 2000, &rate));
    other.attention_kernels_plain = base.attention_kernels_plain;
    other.attention_kernels_source = "another file's"; /* who names a source means the numbers */
    hardware_drop_steps(&other, &base);
    CHECK(hardware_kernel_rate(&other, "plain", false, 2000, &rate));
}

static void a_wrong_file_is_told_with_its_place(void **state)
{
    (void)state;
    static const struct {
        int at;
        const char *line, *part;
    } cases[] = {
        { 1, "memory: {gib: 80, achieved_gb_s: 3000, source: s}",
          "a.yaml: memory.gb_s is missing: GB/s of the data sheet" },
        { 1, "", "a.yaml: memory.gib is missing" },
        { 1, "memory: {gib: -80, gb_s: 4000, achieved_gb_s: 3000, source: s}",
          "a.yaml:2:15: memory.gib is -80, must be a number above 0: GiB that a process can have" },
        { 1, "memory: {gib: 0, gb_s: 4000, achieved_gb_s: 3000, source: s}", "gib is 0, must be" },
        { 1, "memory: {gib: nan, gb_s: 4000, achieved_gb_s: 3000, source: s}",
          "gib is the text \"nan\"" },
        { 1, "memory: {gib: 80, gb_s: 4000, achieved_gb_s: 5000, source: s}",
          "a.yaml: memory.achieved_gb_s is 5000 GB/s, more than memory.gb_s 4000" },
        { 1, "memory: {gib: 80, gb_s: 4000, achieved_gb_s: 3000, sorce: s}",
          "sorce is not a number of this section, did you mean source?" },
        { 1, "memory: {gib: 80, gb_s: 4000, achieved_gb_s: 3000, source: [s]}",
          "memory.source is a list, must be a text" },
        { 1, "memory: [80]", "a.yaml:2:9: memory must be a mapping" },
        { 1, "memry: {gib: 80}", "a.yaml:2:1: memry is not a section, did you mean memory?" },
        { 1, "else: {gib: 80}", "else is not a section (docs/reference/formats.md lists them)" },
        { 2, "peak: {fp8: 5, source: s}", "peak.bf16 is missing" },
        { 2, "peak: {bf16: 500, source: s}",
          "a.yaml: gemm.bf16 reaches 600 TFLOP/s at 10000, more than peak.bf16 500" },
        { 3, "gemm: {bf16: [[1000, 400], [900, 600]], source: s}",
          "sizes of gemm.bf16 must rise, 900 comes after 1000" },
        { 3, "gemm: {bf16: [[1000, 400], [9000]], source: s}",
          "a.yaml:4:28: gemm.bf16[1] is a list, must be a list of 1 to 32 lists of 2 numbers" },
        { 3, "gemm: {bf16: [[1000, -4]], source: s}",
          "gemm.bf16[0] is -4, must be a number above" },
        { 3, "gemm: {bf16: [], source: s}", "gemm.bf16 is a list, must be a list of 1 to 32" },
        { 3, "gemm: {bf16: 500, source: s}", "gemm.bf16 is 500, must be a list" },
        { 3, "gemm: {bf16: [[1, 4]], f32: [[1, 4]], source: s}",
          "there is gemm.f32, but peak.f32 is missing" },
        { 6, "host: {launch_us: -5, sync_us: 0, source: s}",
          "host.launch_us is -5, must be a number from 0" },
        { 7, "scale_up: {fabric: torus, gpus: 8}",
          "is the text \"torus\", must be mesh or switch" },
#define BESIDE  "gpu: {title: T, measured: true, multiprocessors: 24}\ncontention: {"
#define FACTORS "gemm: 1.2, grouped: 1.3, attention: 1.4, "
        { 0, BESIDE FACTORS "memory: 1, source: s}", "a.yaml: contention.blocks is missing" },
        { 0, BESIDE "blocks: 8, " FACTORS "source: s}", "contention.memory is missing" },
        { 0, BESIDE "blocks: 24, " FACTORS "memory: 1, source: s}",
          "a.yaml: contention.blocks 24 must be below gpu.multiprocessors 24" },
        { 0, BESIDE "blocks: 8, " FACTORS "memory: 0.9, source: s}",
          "a.yaml: a factor of contention is 0.9: give times as long, from 1" },
        { 0, "gpu: {title: T, measured: true, multiprocessors: 0}",
          "gpu.multiprocessors is 0, must be a whole number from 1" },
        { 7,
          "scale_up: {fabric: switch, gpus: 8, gb_s: 450, achieved_gb_s: 400, shard_gb_s: 460, "
          "latency_us: 10, issue_us: 1, source: s}",
          "a.yaml: scale_up.shard_gb_s is 460 GB/s, more than scale_up.gb_s 450" },
        { 7, "scale_up: {gpus: 2.5}", "scale_up.gpus is 2.5, must be a whole number from 1" },
        { 8, "scale_out: {tiers: [[64, 1]]}",
          "scale_out.tiers[0] is a list, must be a list of 1 to 8" },
        { 8,
          "scale_out: {rails: 8, gb_s: 50, achieved_gb_s: 40, latency_us: 20, issue_us: 1, "
          "tiers: [[64, 2, 2]], source: s}",
          "lets through a share of 2, at most 1" },
        { LINES, "grouped: {bf16: [[1000, 400]]}", "grouped.source is missing" },
        { LINES, "attention_kernels: {plian: [[1000, 400]], source: s}",
          "plian is not a number of this section, did you mean plain?" },
        { LINES, "attention_kernels: {plain: [[1000, 4000]], source: s}",
          "attention_kernels.plain reaches 4000 TFLOP/s at 1000, more than peak.bf16 1000" },
        { LINES, "attention_kernels: {hopper_backward: [[9, 4], [8, 4]], source: s}",
          "sizes of attention_kernels.hopper_backward must rise, 8 comes after 9" },
        { LINES, "attention_kernels: {plain: [[1000, 400]]}",
          "attention_kernels.source is missing" },
        { LINES, "gpu: {title: T}", "a.yaml:10:1: gpu is here a second time" },
        { 0, "gpu: {title: T, measured: maybe}",
          "measured is the text \"maybe\", must be true or" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Hardware h = { .name = "before" };
        CHECK_FAILS(parse(&h, cases[i].at, cases[i].line), ERR_ARG, cases[i].part);
        CHECK_TEXT(h.name, "before");
    }
}

static void an_unknown_gpu_is_told_with_the_nearest(void **state)
{
    (void)state;
    Hardware h;
    CHECK_FAILS(hardware_load(&h, &arena, "mi355"), ERR_ARG,
                "neither a hardware file nor a GPU mi355, did you mean mi355x?");
    CHECK_FAILS(hardware_load(&h, &arena, "/no/file.yaml"), ERR_ARG,
                "nor a GPU /no/file.yaml; the GPUs are a100, b200, ");
    CHECK_OK(hardware_load(&h, &arena, "MI355X"));
    CHECK_TEXT(h.name, "mi355x");
    CHECK_OK(hardware_load(&h, &arena, "share/hardware/mi450.yaml"));
    CHECK_NEAR(h.memory_gib, 432, 0);
}

static void a_data_sheet_is_found_by_the_whole_name_of_the_driver(void **state)
{
    (void)state;
    static const struct {
        const char *driver;
        double bf16, f32; /* TFLOP/s */
    } cases[] = {
        { "NVIDIA H200", 989.4, 66.9 },
        { "NVIDIA H100 80GB HBM3", 989.4, 66.9 },
        { "NVIDIA B200", 2250, 80 },
        { "AMD Instinct MI300X", 1307.4, 163.4 },
        { "AMD Instinct MI355X", 2516.6, 157.3 },
        { "NVIDIA H100 PCIe", 0, 0 },
        { "NVIDIA H200 NVL", 0, 0 },
        { "NVIDIA H20", 0, 0 },
        { "", 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double bf16 = -1, f32 = -1;
        CHECK_OK(hardware_sheet_flops(cases[i].driver, DTYPE_BF16, &bf16));
        CHECK_OK(hardware_sheet_flops(cases[i].driver, DTYPE_F32, &f32));
        CHECK_NEAR(bf16, cases[i].bf16 * 1e12, 1);
        CHECK_NEAR(f32, cases[i].f32 * 1e12, 1);
    }
}

/* A preset that extends another must not take its name, too. */
static void no_two_presets_are_one_gpu(void **state)
{
    (void)state;
    Hardware a, b;
    for (int i = 0; i < hardware_presets_n; i++) {
        CHECK_OK(hardware_load(&a, &arena, hardware_presets[i].name));
        for (int k = 0; k < i && a.gpu_driver != NULL; k++) {
            CHECK_OK(hardware_load(&b, &arena, hardware_presets[k].name));
            CHECK(b.gpu_driver == NULL || strcmp(a.gpu_driver, b.gpu_driver) != 0);
        }
    }
}

static void a_file_extends_a_preset(void **state)
{
    (void)state;
    static const char YAML[] = "extends: h200\ngpu:\n  title: mine\n  measured: false\n";
    static const char CIRCLE[] = "extends: mine.yaml\n";
    Hardware h, base;
    CHECK_OK(hardware_load(&base, &arena, "h200"));
    CHECK_OK(hardware_parse(&h, &arena, "mine.yaml", YAML, sizeof YAML - 1));
    CHECK_TEXT(h.name, "mine.yaml");
    CHECK_TEXT(h.gpu_title, "mine");
    CHECK(!h.gpu_measured && base.gpu_measured);
    CHECK_NEAR(h.memory_gib, base.memory_gib, 0);
    CHECK_INT(h.gemm_bf16.n, base.gemm_bf16.n);
    CHECK_FAILS(hardware_parse(&h, &arena, "mine.yaml", CIRCLE, sizeof CIRCLE - 1), ERR_ARG,
                "there is no GPU to extend: mine.yaml");
}

/* An H100 has the H200's chip, a B200 extends it with other rates of libraries. */
static void rates_within_steps_are_of_one_chip(void **state)
{
    (void)state;
    static const OpWork own[] = { WORK_OWN_GEMM,       WORK_HEAD,          WORK_OWN_GROUPED,
                                  WORK_GROUPED_WEIGHT, WORK_OWN_ATTENTION, WORK_ATTENTION_ORDERED };
    Arena a = { 0 };
    Hardware h200, h100, b200;
    CHECK_OK(arena_init(&a, "hardware", MEM_HOST, (size_t)1 << 28));
    CHECK_OK(hardware_load(&h200, &a, "h200"));
    CHECK_OK(hardware_load(&h100, &a, "h100"));
    CHECK_OK(hardware_load(&b200, &a, "b200"));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        int n = hardware_curve(&h200, own[i], HARDWARE_BF16)->n;
        CHECK(n > 0);
        CHECK_INT(hardware_curve(&h100, own[i], HARDWARE_BF16)->n, n);
        CHECK_INT(hardware_curve(&b200, own[i], HARDWARE_BF16)->n, 0);
        CHECK(*hardware_source(&b200, own[i]) == NULL);
    }
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rates_within_steps_are_of_one_chip),
        TEST(every_preset_loads_and_says_where_its_numbers_are_from),
        TEST(rates_are_measured_published_or_assumed),
        TEST(a_file_extends_a_preset),
        TEST(a_data_sheet_is_found_by_the_whole_name_of_the_driver),
        TEST(no_two_presets_are_one_gpu),
        TEST(presets_hold_the_figures_that_are_known),
        TEST(rates_lie_on_lines_over_the_logarithm_of_the_size),
        TEST(what_has_no_curve_takes_the_nearest_one),
        TEST(each_kind_of_work_has_its_own_curve),
        TEST(a_kernel_for_attention_may_have_rates_of_its_own),
        TEST(a_wrong_file_is_told_with_its_place),
        TEST(an_unknown_gpu_is_told_with_the_nearest),
    };
    return ARENA_RUN(tests);
}
