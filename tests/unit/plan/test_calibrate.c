/* Hardware files written and read back; rates out of a bench's output. */
#include "harness/test.h"

#include "plan/hardware.h"
#include "plan/presets.h"

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
                ERR_FORMAT, "x.txt:2: no line of an op");
    for (size_t cut = 0; cut < strlen(bench); cut += 7) {
        char part[sizeof bench];
        memcpy(part, bench, cut);
        part[cut] = '\0';
        Status s = calibrate("x.txt", part, &a, &h);
        assert_true(s == OK || s == ERR_FORMAT);
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
        TEST(memory_is_no_faster_than_its_data_sheet),
        TEST(what_is_no_bench_is_refused),
        TEST(a_printed_file_reads_back),
    };
    return TEST_RUN(tests);
}
