/* Which kernel takes each call, listed for GPUs that this machine may not have. And the table of
 * docs/explain/kernels.md, which `--write` prints (make docs). */
#include "harness/arena.h"

#include "engine/base/file.h"
#include "why/why.h"

static void why_of(const char *gpu, const char *setting, Text *out)
{
    const char *settings[] = { "run.compute=bf16", setting };
    Config c = { 0 };
    CHECK_OK(config_load(&c, &arena, "quickstart", settings, setting == NULL ? 1 : 2));
    CHECK_OK(text_init(out, &arena));
    CHECK_OK(bench_why(&c, gpu, out));
}

/* The line of this kernel in the block of an op. */
static void check_says(const Text *text, const char *op, const char *kernel, const char *says)
{
    char want[160], head[32];
    (void)snprintf(head, sizeof head, "\n%s ", op);
    (void)snprintf(want, sizeof want, "%-10s %s", kernel, says);
    const char *at = strstr(text->data, head);
    CHECK(at != NULL);
    const char *next = strstr(at, want), *end = strstr(at + 1, "\nmoe_combine");
    if (next == NULL) fail_msg("%s: no \"%s\" in\n%s", op, want, at);
    CHECK(end == NULL || next < end);
}

static void each_gpu_has_the_kernels_that_are_made_for_it(void **state)
{
    (void)state;
    Text out = { 0 };
    why_of("h200", NULL, &out);
    check_says(&out, "attention_fwd", "hopper", "runs");
    check_says(&out, "attention_fwd", "plain", "can, but hopper comes first");
    check_says(&out, "linear_fwd", "cublaslt", "runs");
    check_says(&out, "moe_up_fwd", "hopper", "runs");
    check_says(&out, "moe_up_bwd_weight", "mma", "can, but hopper comes first");
    why_of("b200", NULL, &out);
    check_says(&out, "moe_up_fwd", "hopper", "compute capability is 10.0, 9.0 is the most");
    check_says(&out, "moe_up_fwd", "mma", "runs");
    why_of("mi300x", NULL, &out);
    check_says(&out, "attention_bwd", "hopper", "it is made for another vendor's GPUs");
    check_says(&out, "attention_bwd", "matrix",
               "heads are 48 and 32 wide, it takes 64 and 64, 128 and 128, 192 and 128");
    check_says(&out, "attention_bwd", "plain", "runs");
}

static void a_kernel_that_was_asked_for_is_the_reason(void **state)
{
    (void)state;
    Text out = { 0 };
    why_of("h200", "attention.kernel=plain", &out);
    check_says(&out, "attention_fwd", "hopper", "attention.kernel is plain");
    check_says(&out, "attention_fwd", "plain", "runs");
}

static void ops_with_one_kernel_are_named_once(void **state)
{
    (void)state;
    Text out = { 0 };
    why_of("h200", NULL, &out);
    const char *last = strstr(out.data, "\none kernel each: ");
    CHECK(last != NULL && strstr(last, "rmsnorm_fwd") != NULL);
    CHECK(strstr(last, "linear_fwd") == NULL && strstr(last, "scale_fwd") == NULL);
}

static void a_gpu_that_nobody_knows_is_an_error(void **state)
{
    (void)state;
    Config c = { 0 };
    Text out = { 0 };
    CHECK_OK(config_load(&c, &arena, "quickstart", NULL, 0));
    CHECK_OK(text_init(&out, &arena));
    CHECK_FAILS(bench_why(&c, "h2000", &out), ERR_ARG, "h2000");
}

static const char BEGIN[] = "<!-- kernels: written by `make docs` -->\n", END[] = "<!-- end -->\n";

static void the_page_has_the_table_else_run_make_docs(void **state)
{
    (void)state;
    Arena file = { 0 };
    Text want = { 0 };
    char *have = NULL;
    size_t bytes = 0;
    CHECK_OK(text_init(&want, &arena));
    CHECK_OK(text_printf(&want, "%s", BEGIN));
    CHECK_OK(bench_kernels_table(&want));
    CHECK_OK(text_printf(&want, "%s", END));
    CHECK_OK(arena_init(&file, "file", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(file_read_all("docs/explain/kernels.md", &file, &have, &bytes));
    CHECK(strstr(have, want.data) != NULL);
    arena_free(&file);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(each_gpu_has_the_kernels_that_are_made_for_it),
        TEST(a_kernel_that_was_asked_for_is_the_reason),
        TEST(ops_with_one_kernel_are_named_once),
        TEST(a_gpu_that_nobody_knows_is_an_error),
        TEST(the_page_has_the_table_else_run_make_docs),
    };
    Text table;
    if (argc < 2 || strcmp(argv[1], "--write") != 0) return ARENA_RUN(tests);
    open_arena(NULL);
    CHECK_OK(text_init(&table, &arena));
    CHECK_OK(bench_kernels_table(&table));
    return fputs(table.data, stdout) < 0;
}
