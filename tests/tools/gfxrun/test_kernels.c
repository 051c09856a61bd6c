/* gfxrun runs kernels that clang compiled for gfx942, with the CPU's results, and finds what is wrong
 * with those that have a fault. */
#include "harness/arena.h"

#include "engine/base/dtype.h"
#include "gfxrun/gfxrun.h"

#include <unistd.h>

static CodeObject *code; /* NULL: no clang 19 */
static char folder[] = "/tmp/gfxrun.XXXXXX";

static void compile(const char *gpu, const char *options, const char *path)
{
    char command[512];
    (void)snprintf(command, sizeof command,
                   "clang-19 -x cl -cl-std=CL2.0 -Xclang -finclude-default-header -O2 -target "
                   "amdgcn-amd-amdhsa -mcpu=%s -nogpulib %s tests/tools/gfxrun/kernels.cl -o %s",
                   gpu, options, path);
    CHECK_INT(system(command), 0);
}

static int open_code(void **state)
{
    static const char tools[] = "for t in clang-19 ld.lld-19 llvm-objdump-19 llvm-readelf-19; do "
                                "command -v $t >/dev/null || exit 1; done";
    char path[64];
    (void)open_arena(state);
    CHECK(mkdtemp(folder) != NULL);
    if (system(tools) != 0) return 0;
    (void)snprintf(path, sizeof path, "%s/kernels.co", folder);
    compile("gfx942", "", path);
    CHECK_OK(gfx_load(&arena, path, &code));
    (void)unlink(path);
    return 0;
}

static int close_code(void **state)
{
    (void)rmdir(folder);
    return close_arena(state);
}

#define NEEDS_CODE()                                                                               \
    do {                                                                                           \
        if (code == NULL) {                                                                        \
            printf("skip: kernels for gfx942: clang-19, lld-19 or llvm-19 is missing\n");          \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

static float value(int i) { return (float)((i * 7919 + 13) % 1009) / 512 - 1; }

typedef struct Vectors {
    float *y, *x;
    float a;
    int n;
} Vectors;

/* y and x with n elements each, of which the kernel sees as buffers. */
static void vectors_make(Vectors *v, int n, GfxBuffer buffers[2])
{
    CHECK_OK(ARENA_NEW(&arena, n, &v->y));
    CHECK_OK(ARENA_NEW(&arena, n, &v->x));
    for (int i = 0; i < n; i++) v->x[i] = value(i), v->y[i] = value(i + n);
    v->a = 3;
    v->n = n;
    buffers[0] = (GfxBuffer){ "y", v->y, (size_t)n * sizeof(float) };
    buffers[1] = (GfxBuffer){ "x", v->x, (size_t)n * sizeof(float) };
}

static GfxLaunch launch_of(const char *kernel, const void *args, size_t bytes,
                           const GfxBuffer *buffers, int n_buffers)
{
    return (GfxLaunch){ .kernel = kernel,
                        .args = args,
                        .args_bytes = bytes,
                        .buffers = buffers,
                        .n_buffers = n_buffers,
                        .grid = { 1, 1, 1 },
                        .block = { 256, 1, 1 } };
}

static void saxpy_in_blocks_with_a_tail(void **state)
{
    (void)state;
    NEEDS_CODE();
    Vectors v;
    GfxBuffer buffers[2];
    GfxCounts counts;
    float want[1000];
    vectors_make(&v, 1000, buffers);
    for (int i = 0; i < v.n; i++) want[i] = fmaf(v.a, v.x[i], v.y[i]);
    GfxLaunch l = launch_of("saxpy", &v, sizeof v, buffers, 2);
    l.grid[0] = 4;
    CHECK_OK(gfx_run(code, &l, &arena, &counts));
    for (int i = 0; i < v.n; i++) CHECK_NEAR(v.y[i], want[i], 0);
    CHECK_INT(counts.written_bytes, 4000);
}

static void memory_past_the_buffers_is_an_error(void **state)
{
    (void)state;
    NEEDS_CODE();
    Vectors v;
    GfxBuffer buffers[2];
    vectors_make(&v, 1000, buffers);
    GfxLaunch l = launch_of("saxpy_past_end", &v, sizeof v, buffers, 2);
    l.grid[0] = 4;
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_DEVICE, "in no buffer");
    CHECK(strstr(status_message(), "saxpy_past_end") != NULL);
    CHECK(strstr(status_message(), "wave 3, lane 40") != NULL);
}

/* Unsorted and one over the other: the second half of y comes first, then x, then the first of y. */
static void buffers_in_any_order(void **state)
{
    (void)state;
    NEEDS_CODE();
    Vectors v;
    GfxBuffer whole[2], buffers[300];
    vectors_make(&v, 1000, whole);
    buffers[0] = (GfxBuffer){ "the end of y", v.y + 500, 2000 };
    buffers[1] = whole[1];
    buffers[2] = (GfxBuffer){ "the begin of y", v.y, 2400 };
    for (int i = 3; i < 300; i++) buffers[i] = (GfxBuffer){ "others", (char *)0x1000 + 16 * i, 8 };
    GfxLaunch l = launch_of("saxpy", &v, sizeof v, buffers, 300);
    l.grid[0] = 4;
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    CHECK_NEAR(v.y[999], fmaf(v.a, v.x[999], value(1999)), 0);
    buffers[0].bytes = 1992;
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_DEVICE,
                "the begin of y begins 3992 bytes before and has 3992");
}

typedef struct SumArgs {
    float *out;
    const float *x;
    int n;
} SumArgs;

static Status run_sum(const char *kernel, uint64_t seed, float *out)
{
    static float x[777];
    for (int i = 0; i < 777; i++) x[i] = value(i);
    SumArgs args = { out, x, 777 };
    GfxBuffer buffers[] = { { "out", out, sizeof *out }, { "x", x, sizeof x } };
    GfxLaunch l = launch_of(kernel, &args, sizeof args, buffers, 2);
    l.seed = seed;
    return gfx_run(code, &l, &arena, NULL);
}

static void sum_through_lds_in_any_order_of_waves(void **state)
{
    (void)state;
    NEEDS_CODE();
    double want = 0;
    float first = 0;
    for (int i = 0; i < 777; i++) want += (double)value(i);
    for (uint64_t seed = 0; seed < 20; seed++) {
        float sum = NAN;
        CHECK_OK(run_sum("block_sum", seed, &sum));
        CHECK_NEAR(sum, want, 1e-4);
        if (seed == 0) first = sum;
        CHECK_NEAR(sum, first, 0);
    }
}

/* In some orders wave 0 reads what was not written yet, in others the result is right by luck. Both
 * are found. */
static void missing_barrier_is_found_in_any_order_of_waves(void **state)
{
    (void)state;
    NEEDS_CODE();
    int races = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        float sum;
        CHECK_FAILS(run_sum("block_sum_race", seed, &sum), ERR_DEVICE, "LDS");
        races += strstr(status_message(), "race: ") != NULL;
    }
    CHECK(races > 0);
}

enum { K = 40 };

static void product_of_bf16_tiles(void **state)
{
    (void)state;
    NEEDS_CODE();
    static float c[32 * 32];
    static uint16_t a[32 * K], b[32 * K];
    struct {
        float *c;
        const uint16_t *a, *b;
        int k;
    } args = { c, a, b, K };
    GfxBuffer buffers[] = { { "c", c, sizeof c }, { "a", a, sizeof a }, { "b", b, sizeof b } };
    for (int i = 0; i < 32 * K; i++) {
        a[i] = bf16_from_f32(value(i));
        b[i] = bf16_from_f32(value(i + 5000));
    }
    GfxLaunch l = launch_of("product", &args, sizeof args, buffers, 3);
    GfxCounts counts;
    l.block[0] = 64;
    CHECK_OK(gfx_run(code, &l, &arena, &counts));
    CHECK_INT(counts.matrix_instructions, K / 8);
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 32; j++) {
            double want = 0;
            for (int k = 0; k < K; k++)
                want += (double)f32_from_bf16(a[i * K + k]) * (double)f32_from_bf16(b[j * K + k]);
            CHECK_NEAR(c[i * 32 + j], want, 1e-5);
        }
}

enum { TILED_M = 128, TILED_N = 192, TILED_K = 96 };

static void product_through_two_buffers_of_lds(void **state)
{
    (void)state;
    NEEDS_CODE();
    static float c[TILED_M * TILED_N];
    static uint16_t a[TILED_M * TILED_K], b[TILED_N * TILED_K];
    struct {
        float *c;
        const uint16_t *a, *b;
        int n, k;
    } args = { c, a, b, TILED_N, TILED_K };
    GfxBuffer buffers[] = { { "c", c, sizeof c }, { "a", a, sizeof a }, { "b", b, sizeof b } };
    for (int i = 0; i < TILED_M * TILED_K; i++) a[i] = bf16_from_f32(value(i));
    for (int i = 0; i < TILED_N * TILED_K; i++) b[i] = bf16_from_f32(value(i + 5000));
    GfxLaunch l = launch_of("tiled_product", &args, sizeof args, buffers, 3);
    l.grid[0] = TILED_N / 64;
    l.grid[1] = TILED_M / 64;
    for (l.seed = 0; l.seed < 4; l.seed++) {
        memset(c, 0xff, sizeof c);
        CHECK_OK(gfx_run(code, &l, &arena, NULL));
        for (int i = 0; i < TILED_M; i++)
            for (int j = 0; j < TILED_N; j++) {
                double want = 0;
                for (int k = 0; k < TILED_K; k++)
                    want += (double)f32_from_bf16(a[i * TILED_K + k]) *
                            (double)f32_from_bf16(b[j * TILED_K + k]);
                CHECK_NEAR(c[i * TILED_N + j], want, 2e-5);
            }
    }
}

static void division_and_root_of_an_update(void **state)
{
    (void)state;
    NEEDS_CODE();
    static float w[131], g[131];
    struct {
        float *w;
        const float *g;
        int64_t n;
        float eps;
    } args = { w, g, 131, 0.5F };
    GfxBuffer buffers[] = { { "w", w, sizeof w }, { "g", g, sizeof g } };
    for (int i = 0; i < 131; i++) w[i] = value(i), g[i] = value(i + 900);
    GfxLaunch l = launch_of("update", &args, sizeof args, buffers, 2);
    l.grid[0] = 2;
    l.block[0] = 64;
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    for (int i = 0; i < 131; i++) CHECK_NEAR(w[i], value(i) - g[i] / (fabsf(g[i]) + 0.5F), 1e-6);
}

static void atomics_count_every_lane(void **state)
{
    (void)state;
    NEEDS_CODE();
    static int bins[16];
    static uint8_t x[1000];
    struct {
        int *bins;
        const uint8_t *x;
        int n;
    } args = { bins, x, 1000 };
    GfxBuffer buffers[] = { { "bins", bins, sizeof bins }, { "x", x, sizeof x } };
    int want[16] = { 0 };
    for (int i = 0; i < 1000; i++) {
        x[i] = (uint8_t)(i * i % 251);
        want[x[i] & 15]++;
    }
    GfxLaunch l = launch_of("count_bytes", &args, sizeof args, buffers, 2);
    l.block[0] = 64;
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    for (int i = 0; i < 16; i++) CHECK_INT(bins[i], want[i]);
}

static void all_of_lds_and_1024_work_items(void **state)
{
    (void)state;
    NEEDS_CODE();
    static int out[16384];
    int *args = out;
    GfxBuffer buffer = { "out", out, sizeof out };
    GfxLaunch l = launch_of("reverse", &args, sizeof args, &buffer, 1);
    l.block[0] = 1024;
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    for (int i = 0; i < 16384; i++) CHECK_INT(out[i], 3 * (16383 - i));
    l.block[0] = 1025;
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_ARG, "1025 work-items");
    l.block[0] = 1024;
    l.dynamic_lds_bytes = 4;
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_ARG, "65540 bytes of LDS");
}

static void lds_of_a_size_that_the_launch_says(void **state)
{
    (void)state;
    NEEDS_CODE();
    static int out[500];
    struct {
        int *out;
        unsigned words; /* an address in LDS */
        int n;
    } args = { out, 0, 500 };
    GfxBuffer buffer = { "out", out, sizeof out };
    GfxLaunch l = launch_of("reverse_dynamic", &args, sizeof args, &buffer, 1);
    l.dynamic_lds_bytes = 2000;
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    for (int i = 0; i < 500; i++) CHECK_INT(out[i], 3 * (499 - i));
    l.dynamic_lds_bytes = 1996;
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_DEVICE, "LDS at 1996 of 1996 bytes");
    l.dynamic_lds_bytes = 0;
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_DEVICE, "of 0 bytes");
}

static Status run_choose(const char *kernel, int out[256])
{
    static int which[20];
    struct {
        int *out;
        const int *which;
    } args = { out, which };
    GfxBuffer buffers[] = { { "out", out, 256 * sizeof(int) }, { "which", which, sizeof which } };
    for (int i = 0; i < 20; i++) which[i] = i * 7 % 23;
    GfxLaunch l = launch_of(kernel, &args, sizeof args, buffers, 2);
    return gfx_run(code, &l, &arena, NULL);
}

static void arrays_in_scratch_memory(void **state)
{
    (void)state;
    NEEDS_CODE();
    int out[256], which[20];
    CHECK_OK(run_choose("choose", out));
    for (int i = 0; i < 20; i++) which[i] = i * 7 % 23;
    for (int i = 0; i < 256; i++) {
        int at = which[i % 20] % 20, want = i * 100 + which[at];
        for (int k = 0; k < 8; k++) want += (which[k] + i) % 20 == at ? 7 : 0;
        CHECK_INT(out[i], want);
    }
    CHECK_FAILS(run_choose("choose_unwritten", out), ERR_DEVICE, "loaded from undefined bytes");
}

static void addresses_of_any_memory(void **state)
{
    (void)state;
    NEEDS_CODE();
    static int out[128], which[4] = { 2, 7, 5, 1 };
    struct {
        int *out, *which;
    } args = { out, which };
    GfxBuffer buffers[] = { { "out", out, sizeof out }, { "which", which, sizeof which } };
    GfxLaunch l = launch_of("choose_memory", &args, sizeof args, buffers, 2);
    l.block[0] = 64;
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    for (int i = 0; i < 64; i++)
        CHECK_INT(out[64 + i], 5 + (i % 3 == 0   ? i * 10 + which[which[i % 4] % 4]
                                    : i % 3 == 1 ? i
                                                 : 1000));
}

static void calls_of_functions(void **state)
{
    (void)state;
    NEEDS_CODE();
    char path[64];
    CodeObject *other;
    int out[256];
    int *args = out;
    GfxBuffer buffer = { "out", out, sizeof out };
    GfxLaunch l = launch_of("calls", &args, sizeof args, &buffer, 1);
    (void)snprintf(path, sizeof path, "%s/functions.co", folder);
    compile("gfx942", "-DFUNCTIONS", path);
    CHECK_OK(gfx_load(&arena, path, &other));
    (void)unlink(path);
    CHECK_OK(gfx_run(other, &l, &arena, NULL));
    for (int i = 0; i < 256; i++) CHECK_INT(out[i], i * 100 / 7 + i / 7 + 2);
}

static void clocks_advance(void **state)
{
    (void)state;
    NEEDS_CODE();
    uint64_t out[3] = { 0, 0, 77 };
    uint64_t *args = out;
    GfxBuffer buffer = { "out", out, sizeof out };
    GfxLaunch l = launch_of("clocks", &args, sizeof args, &buffer, 1);
    l.block[0] = 1;
    for (int i = 0; i < 2; i++) { /* nor do they begin again */
        uint64_t before = out[1];
        CHECK_OK(gfx_run(code, &l, &arena, NULL));
        CHECK(out[0] >= before && out[1] >= out[0] && out[0] > 0);
        CHECK_INT(out[2], 0);
    }
}

static void kernels_see_the_sizes_of_their_launch(void **state)
{
    (void)state;
    NEEDS_CODE();
    static const uint32_t want[6] = { 8, 4, 2, 24, 4, 10 };
    uint32_t out[6], *args = out;
    GfxBuffer buffer = { "out", out, sizeof out };
    GfxLaunch l = launch_of("sizes", &args, sizeof args, &buffer, 1);
    for (int i = 0; i < 3; i++) {
        l.block[i] = want[i];
        l.grid[i] = want[3 + i] / want[i];
    }
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    for (int i = 0; i < 6; i++) CHECK_INT(out[i], want[i]);
}

static void a_trap_is_an_error(void **state)
{
    (void)state;
    NEEDS_CODE();
    int out[1] = { 0 };
    int *args = out;
    GfxBuffer buffer = { "out", out, sizeof out };
    GfxLaunch l = launch_of("trap", &args, sizeof args, &buffer, 1);
    CHECK_OK(gfx_run(code, &l, &arena, NULL));
    out[0] = 1;
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_DEVICE, "the kernel stops itself");
}

static void every_instruction_is_known(void **state)
{
    (void)state;
    NEEDS_CODE();
    CHECK_OK(gfx_check(code));
}

static void other_files_are_refused(void **state)
{
    (void)state;
    NEEDS_CODE();
    char path[64];
    CodeObject *other;
    (void)snprintf(path, sizeof path, "%s/other.co", folder);
    CHECK_FAILS(gfx_load(&arena, path, &other), ERR_IO, "cannot open");
    CHECK_FAILS(gfx_load(&arena, "tests/tools/gfxrun/kernels.cl", &other), ERR_FORMAT,
                "no code object");
    compile("gfx90a", "", path);
    CHECK_FAILS(gfx_load(&arena, path, &other), ERR_UNSUPPORTED, "another GPU than gfx942");
    (void)unlink(path);
}

static void unknown_kernel_is_an_error(void **state)
{
    (void)state;
    NEEDS_CODE();
    GfxLaunch l = launch_of("nothing", NULL, 0, NULL, 0);
    CHECK_FAILS(gfx_run(code, &l, &arena, NULL), ERR_ARG, "no kernel nothing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(saxpy_in_blocks_with_a_tail),
        TEST(memory_past_the_buffers_is_an_error),
        TEST(buffers_in_any_order),
        TEST(sum_through_lds_in_any_order_of_waves),
        TEST(missing_barrier_is_found_in_any_order_of_waves),
        TEST(product_of_bf16_tiles),
        TEST(product_through_two_buffers_of_lds),
        TEST(division_and_root_of_an_update),
        TEST(atomics_count_every_lane),
        TEST(all_of_lds_and_1024_work_items),
        TEST(lds_of_a_size_that_the_launch_says),
        TEST(arrays_in_scratch_memory),
        TEST(addresses_of_any_memory),
        TEST(calls_of_functions),
        TEST(clocks_advance),
        TEST(kernels_see_the_sizes_of_their_launch),
        TEST(a_trap_is_an_error),
        TEST(every_instruction_is_known),
        TEST(other_files_are_refused),
        TEST(unknown_kernel_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_code, close_code);
}
