#include "harness/events_of.h"

#include "compat/compat.h"
#include "traces/sheets/perf.h"
#include "traces/sheets/perf_calls.h"
#include "traces/sheets/report.h"

static Arena arena;
static EventsOf of;
static Tree tree;

/* ---- models ---- */

typedef struct Asked {
    const char *name, *dims, *types, *concrete, *kernel;
    bool compat;
} Asked;

static Perf work(Asked a)
{
    Events e = { 0 };
    OpArgs args = { 0 };
    Perf p;
    CHECK_OK(strings_init(&e.strings));
    const struct {
        const char *text;
        uint32_t *id;
    } list[] = { { a.dims, &args.dims }, { a.types, &args.types }, { a.concrete, &args.concrete } };
    for (int i = 0; i < 3; i++)
        if (list[i].text != NULL)
            CHECK_OK(strings_id(&e.strings, list[i].text, strlen(list[i].text), list[i].id));
    const PerfQuery q = { a.name, a.kernel, &args, a.compat ? &compat_perf_rules : NULL };
    CHECK_OK(perf_model(&e, &q, &arena, &p));
    strings_free(&e.strings);
    return p;
}

#define MIB 1048576.0
#define WORK(p, want_flops, want_bytes)                                                            \
    do {                                                                                           \
        CHECK_NEAR((p).flops, want_flops, 1e-9 * (want_flops));                                    \
        CHECK_NEAR((p).bytes, want_bytes, 1e-9 * (want_bytes));                                    \
    } while (0)

static const Cell *param(const Perf *p, const char *name)
{
    for (int i = 0; i < p->params; i++)
        if (strcmp(p->name[i], name) == 0) return &p->value[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

#define BF16 "\"c10::BFloat16\""

static void a_product_is_two_operations_an_m_n_k(void **state)
{
    (void)state;
    Perf p =
        work((Asked){ .name = "aten::mm", "[[8944,1024],[1024,2816]]", "[" BF16 "," BF16 "]" });
    WORK(p, 51.581550592e9, 71.0078125 * MIB);
    CHECK_TEXT(p.spec, "matrix_bf16");
    CHECK_TEXT(p.sheet, "GEMM");
    CHECK_INT(param(&p, "K")->whole, 1024);
    p = work((Asked){ .name = "aten::addmm",
                      "[[1024],[8944,1024],[1024,1024],[],[]]",
                      "[" BF16 "," BF16 "," BF16 ",\"Scalar\",\"Scalar\"]" });
    WORK(p, 18.766086144e9, 36.939453125 * MIB);
    p = work((Asked){ .name = "aten::bmm", "[[96,3137,64],[96,64,3137]]", "[" BF16 "," BF16 "]" });
    WORK(p, 120.923369472e9, 1875.4220581054688 * MIB);
    CHECK_INT(param(&p, "B")->whole, 96);
}

static void a_kernel_of_rocblas_tells_what_is_transposed(void **state)
{
    (void)state;
    const char *dims = "[[8,4],[4,2]]", *types = "[" BF16 "," BF16 "]";
    Perf p = work((Asked){ .name = "aten::mm", dims, types, NULL, "Cijk_Alik_Bljk_BBS_BH" });
    CHECK_TEXT(param(&p, "transpose")->text, "(True, False)");
    p = work((Asked){ .name = "aten::mm", dims, types, NULL, "Cijk_Ailk_Bjlk_BBS_BH" });
    CHECK_TEXT(param(&p, "transpose")->text, "(False, True)");
}

/* x (8, 4), dy (8, 6) of 2 groups: the gradient is 2 x 4 x 6. TraceLens takes it for one group. */
static void weight_gradients_of_groups_are_all_written(void **state)
{
    (void)state;
    Asked a = { .name = "primus_turbo::grouped_gemm_variable_k",
                "[[8,4],[8,6],[2]]",
                "[" BF16 "," BF16 ",\"long int\"]" };
    WORK(work(a), 384.0, 2.0 * (32 + 48 + 48));
    a.compat = true;
    WORK(work(a), 384.0, 2.0 * (32 + 24 + 48));
}

static const char *const FLASH = "aten::_scaled_dot_product_flash_attention";

static void attention_counts_scores_and_values(void **state)
{
    (void)state;
    Asked a = { .name = FLASH,
                "[[16,16,559,64],[16,16,559,64],[16,16,559,64],[],[]]",
                "[" BF16 "," BF16 "," BF16 ",\"Scalar\",\"Scalar\"]",
                "[\"\",\"\",\"\",\"0.\",\"True\"]",
                NULL,
                true };
    WORK(work(a), 10.239377408e9, 69.875 * MIB);
    a.compat = false; /* of n (n + 1) / 2 pairs, not of n n / 2 */
    WORK(work(a), 10.239377408e9 * 560 / 559, 69.875 * MIB);
    a = (Asked){ .name = FLASH,
                 "[[512,16,176,64],[512,16,176,64],[512,16,176,64],[],[]]",
                 "[" BF16 "," BF16 "," BF16 ",\"Scalar\",\"Scalar\"]",
                 "[\"\",\"\",\"\",\"0.\",\"False\"]",
                 NULL,
                 true };
    Perf p = work(a);
    CHECK_TEXT(p.backward_sheet, "SDPA_bwd");
    CHECK_NEAR(p.backward_flops, 162.40345088e9, 1);
    CHECK_NEAR(p.backward_bytes, 1232 * MIB, 1);
}

/* 2 queries, 3 keys of width 4 in f32. Query 0 sees 1 key, query 1 sees 2: 3 pairs of 16 operations.
 * flash_attn aligns the ends: 2 and 3, 5 pairs. */
static void a_causal_mask_of_two_lengths_has_its_pairs(void **state)
{
    (void)state;
    const char *types = "[\"float\",\"float\",\"float\"]";
    Asked a = {
        .name = FLASH, "[[1,1,2,4],[1,1,3,4],[1,1,3,4]]", types, "[\"\",\"\",\"\",\"0.\",\"True\"]"
    };
    WORK(work(a), 48.0, 160.0);
    a.dims = "[[1,1,3,4],[1,1,2,4],[1,1,2,4]]"; /* 1, 2, 2 */
    CHECK_NEAR(work(a).flops, 80, 1e-9);
    a.compat = true;
    CHECK(isnan(work(a).flops));
    a = (Asked){ .name = "flash_attn::_flash_attn_forward",
                 "[[1,2,1,4],[1,3,1,4],[1,3,1,4]]",
                 types,
                 "[\"\",\"\",\"\",\"0.\",\"\",\"True\"]" };
    CHECK_NEAR(work(a).flops, 80, 1e-9);
}

#define CONV_TYPES                                                                                 \
    "[" BF16 "," BF16 "," BF16 ",\"ScalarList\",\"ScalarList\",\"ScalarList\","                    \
    "\"Scalar\",\"ScalarList\",\"Scalar\"]"
#define CONV_HOW "\"[1, 1]\",\"[1, 1]\",\"[1, 1]\",\"False\",\"[0, 0]\",\"1\""

static void a_convolution_meets_each_weight_once_an_output(void **state)
{
    (void)state;
    Asked a = { .name = "aten::convolution",
                "[[10,64,56,56],[64,64,3,3],[],[],[],[],[],[],[]]",
                CONV_TYPES,
                "[\"\",\"\",\"\"," CONV_HOW "]" };
    WORK(work(a), 2.31211008e9, 7.7265625 * MIB);
    a.dims = "[[10,64,56,56],[64,64,3,3],[64],[],[],[],[],[],[]]";
    WORK(work(a), 2.31211008e9 + 2007040, 7.7265625 * MIB + 128);
    a.compat = true; /* overlooks the bias */
    WORK(work(a), 2.31211008e9, 7.7265625 * MIB);
    a = (Asked){ .name = "aten::convolution",
                 "[[10,256,14,14],[512,256,3,3]]",
                 CONV_TYPES,
                 "[\"\",\"\",\"\",\"[2, 2]\",\"[1, 1]\",\"[1, 1]\",\"False\",\"[0, 0]\",\"1\"]" };
    CHECK_NEAR(work(a).flops, 2.31211008e9 / 2, 1);
}

static void gradients_of_a_convolution_are_those_that_are_wanted(void **state)
{
    (void)state;
    Asked a = { .name = "aten::convolution_backward",
                "[[10,64,56,56],[10,64,56,56],[64,64,3,3],[],[],[],[],[],[],[],[]]",
                "[" BF16 "," BF16 "," BF16 "]",
                "[\"\",\"\",\"\",\"[0]\"," CONV_HOW ",\"[True, True, False]\"]" };
    WORK(work(a), 4.62422016e9, 15.453125 * MIB);
    a.concrete = "[\"\",\"\",\"\",\"[0]\"," CONV_HOW ",\"[False, True, False]\"]";
    WORK(work(a), 2.31211008e9, 7.7265625 * MIB);
    a.compat = true;
    WORK(work(a), 4.62422016e9, 15.453125 * MIB);
}

static void elements_are_broadcast(void **state)
{
    (void)state;
    Perf p =
        work((Asked){ .name = "aten::mul", "[[16,559,1024],[16,559,1]]", "[\"float\",\"float\"]" });
    WORK(p, 9158656.0, 69.90911865234375 * MIB);
    CHECK_TEXT(param(&p, "dtype_in1_in2_out")->text, "('float', 'float', None)");
    CHECK_TEXT(param(&p, "shape_in2")->text, "(16, 559, 1)");
    p = work((Asked){ .name = "aten::add_",
                      "[[1,5184,4],[5184,4],[]]",
                      "[" BF16 ",\"float\",\"Scalar\"]" }); /* the wider type is written */
    WORK(p, 20736.0, 20736.0 * 10);
    p = work((Asked){ .name = "aten::copy_", "[[5],[5],[]]", "[\"float\"," BF16 ",\"Scalar\"]" });
    WORK(p, 5.0, 30.0);
    CHECK_TEXT(param(&p, "op_shape")->text, "(5,)");
    CHECK_TEXT(p.spec, "vector_fp32");
}

static void a_reduction_writes_what_is_left(void **state)
{
    (void)state;
    Asked a = { .name = "aten::mean",
                "[[16,559,1024],[],[],[]]",
                "[\"float\",\"ScalarList\"]",
                "[\"\",\"[-1]\",\"True\",\"\"]" };
    WORK(work(a), 9158656.0, 4.0 * (9158656 + 8944));
    a.compat = true;
    WORK(work(a), 9158656.0, 34.937503814697266 * MIB);
    a = (Asked){
        .name = "aten::sum", "[[10,1000],[]]", "[\"float\",\"ScalarList\"]", "[\"\",\"[]\"]"
    };
    WORK(work(a), 10000.0, 40004.0);
    a = (Asked){ .name = "aten::max", "[[4,6],[],[]]", "[\"float\"]", "[\"\",\"0\",\"False\"]" };
    WORK(work(a), 24.0, 120.0);
}

static void norms_have_channels_weights_and_statistics(void **state)
{
    (void)state;
    Asked a = { .name = "aten::native_layer_norm",
                "[[8,16,32,32],[],[16,32,32],[16,32,32],[]]",
                "[\"float\",\"ScalarList\",\"float\",\"float\",\"Scalar\"]",
                "[\"\",\"[16, 32, 32]\",\"\",\"\",\"1e-05\"]" };
    WORK(work(a), 753664.0, 1.375 * MIB);
    a = (Asked){ .name = "aten::native_layer_norm_backward",
                 "[[8,16,32,32],[8,16,32,32],[],[8,1,1,1],[8,1,1,1],[16,32,32],[16,32,32],[]]",
                 "[\"float\",\"float\"]",
                 "[\"\",\"\",\"[16, 32, 32]\",\"\",\"\",\"\",\"\",\"[True, True, True]\"]" };
    WORK(work(a), 1179648.0, 1.75 * MIB);
    a = (Asked){ .name = "aten::_fused_rms_norm",
                 "[[8,16,32,32],[],[32,32],[]]",
                 "[\"float\",\"ScalarList\",\"float\"]",
                 "[\"\",\"[32, 32]\",\"\",\"\"]" };
    WORK(work(a), 524544.0, 1.00390625 * MIB);
    /* In evaluation there are no statistics to compute: 2 n + 6 C. */
    a = (Asked){ .name = "aten::native_batch_norm",
                 "[[2,3,5],[3],[3],[3],[3],[],[],[]]",
                 "[\"float\",\"float\",\"float\"]",
                 "[\"\",\"\",\"\",\"\",\"\",\"False\",\"0.1\",\"1e-05\"]" };
    WORK(work(a), 60.0 + 18, 4.0 * (60 + 3 * 4));
    a.compat = true;
    WORK(work(a), 60.0 + 18 + 90, 4.0 * (60 + 3 * 6));
}

static void arguments_that_do_not_fit_have_no_model(void **state)
{
    (void)state;
    const Asked bad[] = {
        { .name = "aten::mm", "[[8944],[1024,2816]]" },
        { .name = "aten::mm", "" },
        { .name = "aten::mm", "[[1,2" },
        { .name = "aten::bmm", "[[[1,2]],[[3,4]]]" },
        { .name = "aten::convolution",
          "[[1,1,4,4],[1,1,3,3]]",
          "[]",
          "[\"\",\"\",\"\",\"[0, 0]\",\"[0]\",\"[1]\"]" },
        { .name = "aten::_scaled_dot_product_flash_attention", "[[1,2,3],[1,2,3],[1,2,3]]" },
        { .name = "aten::copy_", "[[1,2,3,4,5,6,7,8,9,10]]" },
        { .name = "aten::batch_norm", "[[8]]" },
        { .name = "no such operator", "[[1,2],[2,3]]" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_null(work(bad[i]).sheet);
}

/* ---- sheets ---- */

#define REPORT(r, o, ...)                                                                          \
    make_report((r), (o), (const EventOf[]){ __VA_ARGS__ },                                        \
                (int)(sizeof((const EventOf[]){ __VA_ARGS__ }) / sizeof(EventOf)))

static void make_report(Report *r, const ReportOptions *o, const EventOf *list, int n)
{
    events_of(&of, list, n);
    for (int64_t i = 0; i < of.e.n_args; i++)
        CHECK_OK(strings_id(&of.e.strings, "[" BF16 "," BF16 "]", 33, &of.args[i].types));
    CHECK_OK(tree_build(&of.e, &(TreeOptions){ .python = o->recompute }, &arena, &tree));
    CHECK_OK(report_make(&of.e, &tree, o, &arena, r));
}

static const Cell *cell(const Table *t, int64_t row, const char *column)
{
    CHECK(row < t->rows);
    for (int i = 0; i < t->columns; i++)
        if (strcmp(t->column[i], column) == 0) return &t->cell[row * t->columns + i];
    fail_msg("no column %s", column);
    return NULL;
}

#define OP(name, ts, dur, dims)                                                                    \
    {                                                                                              \
        EVENT_CPU_OP, name, 0, ts, dur, 0, dims                                                    \
    }
#define CALL(ts, id)                                                                               \
    {                                                                                              \
        EVENT_RUNTIME, "cudaLaunchKernel", 0, ts, 1, id, NULL                                      \
    }
#define KERNEL(name, ts, dur, id)                                                                  \
    {                                                                                              \
        EVENT_KERNEL, name, 4, ts, dur, id, NULL                                                   \
    }

/* 2 x 1000 x 1000 x 1000 = 2 GFLOP and 6 MB: on an H100 2.02 and 1.79 us of the 10 and 20 that it
 * took. */
static void a_sheet_has_rates_and_the_roofline(void **state)
{
    (void)state;
    const ReportOptions o = { .step = -1, .gpu = "h100" };
    const char *dims = "[[1000,1000],[1000,1000]]";
    Report r;
    Table t = { 0 };
    REPORT(&r, &o, OP("aten::mm", 0, 5, dims), CALL(1, 1), OP("aten::mm", 10, 5, dims), CALL(11, 2),
           OP("aten::mm", 20, 5, "[[4,4],[4,4]]"), CALL(21, 3), OP("aten::mm", 30, 5, dims),
           KERNEL("gemm", 100, 10, 1), KERNEL("gemm", 200, 20, 2), KERNEL("gemm", 300, 1, 3));
    t.name = "GEMM";
    CHECK_OK(sheet_perf(&r, &t));
    CHECK_INT(t.rows, 2);
    CHECK_INT(cell(&t, 0, "name_count")->whole, 2);
    CHECK_NEAR(cell(&t, 0, "GFLOPS_first")->number, 2, 1e-9);
    CHECK_NEAR(cell(&t, 0, "Data Moved (MB)_first")->number, 6, 1e-9);
    CHECK_NEAR(cell(&t, 0, "TFLOPS/s_max")->number, 200, 1e-9);
    CHECK_NEAR(cell(&t, 0, "TFLOPS/s_min")->number, 100, 1e-9);
    CHECK_NEAR(cell(&t, 0, "TB/s_mean")->number, (0.6 + 0.3) / 2, 1e-9);
    CHECK_NEAR(cell(&t, 0, "Kernel Time (µs)_sum")->number, 30, 1e-9);
    CHECK_NEAR(cell(&t, 0, "Roofline Time (µs)_first")->number, 2e9 / 989.4e6, 1e-9);
    CHECK_TEXT(cell(&t, 0, "Roofline Bound_first")->text, "COMPUTE_BOUND");
    CHECK_NEAR(cell(&t, 0, "Pct Roofline_max")->number, 2e9 / 989.4e6 * 10, 1e-9);
    CHECK_TEXT(cell(&t, 1, "Roofline Bound_first")->text, "MEMORY_BOUND");
    events_of_free(&of);
}

static void tracelens_lists_calls_without_device_work_and_counts_in_mib(void **state)
{
    (void)state;
    const ReportOptions o = { .step = -1, .linked_only = true };
    Report r;
    Table all[REPORT_SHEETS_MOST], t = { 0 };
    int n = 0;
    REPORT(&r, &o, OP("aten::mm", 0, 5, "[[1024,512],[512,512]]"), CALL(1, 1),
           OP("aten::mm", 10, 5, "[[2,2],[2,2]]"), KERNEL("gemm", 100, 10, 1));
    CHECK_OK(compat_tables(&r, all, &n));
    for (int i = 0; i < n; i++)
        if (strcmp(all[i].name, "GEMM") == 0) t = all[i];
    CHECK_INT(t.rows, 2);
    CHECK_NEAR(cell(&t, 0, "Data Moved (MB)_first")->number, 2.5, 1e-9);
    CHECK_TEXT(cell(&t, 1, "kernel_details__summarize_kernel_stats")->text, "[]");
    events_of_free(&of);
}

/* The gradient runs on another thread; of two forward operators with its number the inner one has it. */
static void gradients_have_the_work_of_their_forward(void **state)
{
    (void)state;
    const ReportOptions o = { .step = -1 };
    Report r;
    Table t = { 0 };
    REPORT(
        &r, &o, OP("aten::loss", 0, 9, NULL), OP("aten::mean", 1, 5, "[[8,4]]"), CALL(2, 1),
        { EVENT_CPU_OP, "autograd::engine::evaluate_function: MeanBackward0", 1, 20, 9, 0, NULL },
        { EVENT_RUNTIME, "cudaLaunchKernel", 1, 21, 1, 2, NULL }, KERNEL("reduce", 100, 3, 1),
        KERNEL("scale", 200, 7, 2));
    for (int i = 0; i < 3; i++) of.ops[i].sequence = 77;
    t.name = "Reduce_bwd";
    CHECK_OK(sheet_perf(&r, &t));
    CHECK_INT(t.rows, 1);
    CHECK_TEXT(cell(&t, 0, "name")->text, "aten::mean");
    CHECK_NEAR(cell(&t, 0, "Kernel Time (µs)_sum")->number, 7, 1e-9);
    CHECK_NEAR(cell(&t, 0, "GFLOPS_first")->number, 32e-9, 1e-18);
    events_of_free(&of);
}

/* layer_norm has all below it; mean is listed apart from the loss around it, whose own kernel then
 * stands alone; softmax launched its kernel; one kernel has no launch. */
static void all_device_time_stands_once(void **state)
{
    (void)state;
    const ReportOptions o = { .step = -1 };
    Report r;
    Table t = { 0 };
    double sum = 0;
    REPORT(&r, &o, OP("aten::linear", 0, 9, NULL), OP("aten::mm", 1, 7, "[[8,4],[4,2]]"),
           CALL(2, 1), OP("aten::mse_loss", 10, 9, NULL), CALL(11, 2),
           OP("aten::mean", 12, 5, "[[8,4]]"), CALL(13, 3), OP("aten::_softmax", 20, 9, NULL),
           CALL(21, 4), KERNEL("gemm", 100, 10, 1), KERNEL("mse", 200, 2, 2),
           KERNEL("reduce", 300, 3, 3), KERNEL("softmax", 400, 4, 4), KERNEL("early", 50, 1, 99));
    CHECK_OK(sheet_unified(&r, &t));
    const char *const want[] = { "aten::mm", "aten::_softmax", "aten::mean",
                                 "aten::mse_loss->mse (Synthetic Op)",
                                 "(unlinked)->early (Synthetic Op)" };
    CHECK_INT(t.rows, 5);
    for (int i = 0; i < 5; i++) {
        CHECK_TEXT(cell(&t, i, "name")->text, want[i]);
        CHECK(cell(&t, i, "has_perf_model")->truth == (i == 0 || i == 2));
        sum += cell(&t, i, "Kernel Time (µs)_sum")->number;
    }
    CHECK_NEAR(sum, 20, 1e-9);
    CHECK_NEAR(cell(&t, 4, "Cumulative Percentage (%)")->number, 100, 1e-9);
    events_of_free(&of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_product_is_two_operations_an_m_n_k),
        TEST(a_kernel_of_rocblas_tells_what_is_transposed),
        TEST(weight_gradients_of_groups_are_all_written),
        TEST(attention_counts_scores_and_values),
        TEST(a_causal_mask_of_two_lengths_has_its_pairs),
        TEST(a_convolution_meets_each_weight_once_an_output),
        TEST(gradients_of_a_convolution_are_those_that_are_wanted),
        TEST(elements_are_broadcast),
        TEST(a_reduction_writes_what_is_left),
        TEST(norms_have_channels_weights_and_statistics),
        TEST(arguments_that_do_not_fit_have_no_model),
        TEST(a_sheet_has_rates_and_the_roofline),
        TEST(tracelens_lists_calls_without_device_work_and_counts_in_mib),
        TEST(gradients_have_the_work_of_their_forward),
        TEST(all_device_time_stands_once),
    };
    if (arena_init(&arena, "test", MEM_HOST, (size_t)1 << 30) != OK) return 1;
    int failed = TEST_RUN(tests);
    arena_free(&arena);
    return failed;
}
