/* Which row of a table of kernels takes a call, what is said about it, and what attention's rows take. */
#include "harness/test.h"

#include "kernels/attention/attention.h"
#include "kernels/attention/attention_kernels.h"
#include "kernels/dense/product_kernels.h"

#include <math.h>

/* A call that rows judge by its size. */
typedef struct Call {
    int size, ran; /* ran: the number of the row that ran it */
    Status late;   /* what row 2 returns */
} Call;

static bool small_can(const void *call, KernelWhy *why)
{
    int size = ((const Call *)call)->size;
    if (size < 0) return kernel_refuses(why, true, "it is not made for sizes below 0");
    return size < 10 || kernel_refuses(why, false, "size is %d, 9 is the most", size);
}

static Status ran(const void *call, int row)
{
    *(int *)(uintptr_t) & ((const Call *)call)->ran = row;
    return OK;
}

static Status small_run(Exec *ex, const void *call)
{
    (void)ex;
    return ran(call, 1);
}

static Status library_run(Exec *ex, const void *call)
{
    const Call *c = call;
    (void)ex;
    if (c->late == ERR_UNSUPPORTED) return FAIL(ERR_UNSUPPORTED, "the library has no plan");
    return c->late != OK ? FAIL(c->late, "the launch failed") : ran(call, 2);
}

static Status any_run(Exec *ex, const void *call)
{
    (void)ex;
    return ran(call, 3);
}

static size_t hundred(const void *call)
{
    (void)call;
    return 100;
}

static size_t two_hundred(const void *call)
{
    (void)call;
    return 200;
}

static const KernelDesc rows[] = {
    { .name = "small",
      .vendor = VENDOR_NVIDIA,
      .capability_least = 80,
      .can = small_can,
      .workspace = hundred,
      .run = small_run,
      .work = WORK_GEMM },
    { .name = "library",
      .vendor = VENDOR_NVIDIA,
      .library = NEEDS(LIBRARY_PRODUCTS),
      .workspace = two_hundred,
      .run = library_run,
      .work = WORK_HEAD },
    { .name = "any", .run = any_run },
};
static const KernelTable table = { "some.kernel", rows, 3 };

/* Runs a call of this size; gives the row that ran it. */
static int row_of(Exec *ex, int size, Status late)
{
    Call c = { .size = size, .late = late };
    ex->notes.n = 0;
    CHECK_OK(kernels_run(ex, &table, "op", 0, &c));
    return c.ran;
}

static void the_first_row_that_can_runs_the_call(void **state)
{
    (void)state;
    KernelDevice d = kernel_device_full;
    Exec ex = { .device = &d };
    CHECK_INT(row_of(&ex, 9, OK), 1);
    CHECK_INT(ex.notes.n, 0);
    CHECK_INT(row_of(&ex, 10, OK), 2);
    d.capability = 75;
    CHECK_INT(row_of(&ex, 9, OK), 2);
    d.vendor = VENDOR_AMD;
    CHECK_INT(row_of(&ex, 9, OK), 3);
}

static void a_row_that_refuses_when_it_runs_is_passed_over(void **state)
{
    (void)state;
    KernelDevice d = kernel_device_full;
    Exec ex = { .device = &d };
    CHECK_INT(row_of(&ex, -1, ERR_UNSUPPORTED), 3);
    CHECK_TEXT(ex.notes.what[0],
               "a slower kernel runs, any instead of library: the library has no plan");
    Call c = { .size = -1, .late = ERR_DEVICE };
    CHECK_FAILS(kernels_run(&ex, &table, "op", 0, &c), ERR_DEVICE, "the launch failed");
    CHECK_INT(c.ran, 0);
}

static void a_note_names_the_fastest_row_that_was_expected(void **state)
{
    (void)state;
    KernelDevice d = kernel_device_full;
    Exec ex = { .device = &d };
    CHECK_INT(row_of(&ex, 10, OK), 2);
    CHECK_TEXT(ex.notes.op[0], "op");
    CHECK_TEXT(ex.notes.what[0],
               "a slower kernel runs, library instead of small: size is 10, 9 is the most");
    CHECK_INT(row_of(&ex, -1, OK), 2); /* small is not made for such calls */
    CHECK_INT(ex.notes.n, 0);
    d.lacks[LIBRARY_PRODUCTS] = "libcublasLt is not there";
    CHECK_INT(row_of(&ex, 10, OK), 3);
    CHECK_TEXT(ex.notes.what[0],
               "a slower kernel runs, any instead of small: size is 10, 9 is the most");
    CHECK_INT(row_of(&ex, -1, OK), 3);
    CHECK_TEXT(ex.notes.what[0],
               "a slower kernel runs, any instead of library: libcublasLt is not there");
}

static void a_row_that_is_asked_for_runs_or_is_an_error(void **state)
{
    (void)state;
    Exec ex = { .device = &kernel_device_full };
    Call c = { .size = 9 };
    CHECK_OK(kernels_run(&ex, &table, "op", 3, &c));
    CHECK_INT(c.ran, 3);
    CHECK_INT(ex.notes.n, 0);
    c.size = 12;
    CHECK_FAILS(kernels_run(&ex, &table, "op", 1, &c), ERR_UNSUPPORTED,
                "some.kernel is small, which cannot run here: size is 12, 9 is the most");
    const KernelTable alone = { NULL, rows, 1 };
    CHECK_FAILS(kernels_run(&ex, &alone, "op", 0, &c), ERR_UNSUPPORTED,
                "op: no kernel can run this call: size is 12, 9 is the most");
}

/* As if all libraries were there, whatever this device has. */
static void workspace_is_the_most_of_all_rows_that_can(void **state)
{
    (void)state;
    CHECK_INT(kernels_workspace(&table, 0, &(Call){ .size = 9 }), 200);
    CHECK_INT(kernels_workspace(&table, 0, &(Call){ .size = 10 }), 200);
    CHECK_INT(kernels_workspace(&table, 1, &(Call){ .size = 9 }), 100);
    CHECK_INT(kernels_workspace(&table, 1, &(Call){ .size = 10 }), 0);
    CHECK_INT(kernels_workspace(&table, 3, &(Call){ .size = 9 }), 0);
    CHECK_TEXT(kernels_first(&table, &kernel_device_full, 0, &(Call){ .size = 9 })->name, "small");
    CHECK(kernels_first(&table, &kernel_device_full, 1, &(Call){ .size = 10 }) == NULL);
}

static void a_device_is_refused_with_the_reason(void **state)
{
    (void)state;
    KernelDevice d = kernel_device_full;
    const KernelDesc hopper = {
        .name = "hopper", .vendor = VENDOR_NVIDIA, .capability_least = 90, .capability_most = 90
    };
    KernelWhy why;
    CHECK(kernel_can(&hopper, &d, NULL, &why));
    d.capability = 89;
    CHECK(!kernel_can(&hopper, &d, NULL, &why) && why.expected);
    CHECK_TEXT(why.text, "compute capability is 8.9, 9.0 is the least");
    d.capability = 100;
    CHECK(!kernel_can(&hopper, &d, NULL, &why) && why.expected);
    CHECK_TEXT(why.text, "compute capability is 10.0, 9.0 is the most");
    d.capability = 90;
    d.lacks_code = "no code of sm_90a is in use";
    CHECK(!kernel_can(&hopper, &d, NULL, &why) && !why.expected);
    CHECK_TEXT(why.text, "no code of sm_90a is in use");
    const KernelDesc anywhere = { .name = "mma", .vendor = VENDOR_NVIDIA, .capability_least = 80 };
    CHECK(kernel_can(&anywhere, &d, NULL, &why));
    d.vendor = VENDOR_ANY;
    CHECK(!kernel_can(&hopper, &d, NULL, &why));
    CHECK_TEXT(why.text, "there is no GPU");
}

/* Attention: heads share key/value heads two by two. */
static AttentionBwd call_of(Dtype act, int64_t Tq, int64_t Tk, int64_t d)
{
    Tensor q = { NULL, act, 4, { 1, Tq, 4, d } }, k = { NULL, act, 4, { 1, Tk, 2, d } };
    return (AttentionBwd){ .q = q, .k = k, .v = k };
}

static void check_attention(AttentionBwd a, const char *hopper, bool expected, const char *plain)
{
    const KernelDesc *row = attention_bwd_kernels.row;
    KernelWhy why;
    CHECK_TEXT(row[0].name, "hopper");
    CHECK_TEXT(row[3].name, "plain");
    CHECK_INT(kernel_can(&row[0], &kernel_device_full, &a, &why), hopper == NULL);
    if (hopper != NULL) CHECK_TEXT(why.text, hopper);
    if (hopper != NULL) CHECK_INT(why.expected, expected);
    CHECK_INT(kernel_can(&row[3], &kernel_device_full, &a, &why), plain == NULL);
    if (plain != NULL) CHECK_TEXT(why.text, plain);
}

static void limits_of_attention_are_exact(void **state)
{
    (void)state;
    AttentionBwd cut = call_of(DTYPE_BF16, 126, 126, 64);
    cut.pieces = (AttentionPieces){ 63, { 63, 126 }, { 0, 189 } };
    check_attention(call_of(DTYPE_BF16, 64, 64, 128), NULL, false, NULL);
    check_attention(call_of(DTYPE_BF16, 63, 63, 128), "63 tokens a sequence: it is used from 64 on",
                    false, NULL);
    check_attention(call_of(DTYPE_BF16, 64, 64, 124),
                    "heads are 124 and 124 wide, it takes multiples of 8 up to 192 and 128", false,
                    NULL);
    check_attention(call_of(DTYPE_BF16, 64, 64, 136),
                    "heads are 136 and 136 wide, it takes multiples of 8 up to 192 and 128", false,
                    NULL);
    check_attention(call_of(DTYPE_BF16, 64, 64, 264),
                    "heads are 264 and 264 wide, it takes multiples of 8 up to 192 and 128", false,
                    "heads are 264 and 264 wide, 256 is the most");
    check_attention(call_of(DTYPE_F32, 64, 64, 64), "tensors are f32, it takes bf16", true, NULL);
    check_attention(call_of(DTYPE_BF16, 1, 64, 64),
                    "1 queries and 64 keys: it is used where all are new", true, NULL);
    check_attention(cut, "63 tokens a sequence's piece: it is used from 64 on", false, NULL);
    cut.pieces.q[0]--;
    check_attention(cut, "pieces of queries and keys lie as no two ranks of mesh.cp have them",
                    false, NULL);
}

static void attention_on_hopper_is_for_hopper_alone(void **state)
{
    (void)state;
    AttentionBwd a = call_of(DTYPE_BF16, 64, 64, 64);
    AttentionFwd f = { .q = a.q, .k = a.k, .v = a.v };
    KernelDevice d = kernel_device_full;
    KernelWhy why;
    for (d.capability = 80; d.capability <= 100; d.capability += 10) {
        bool is = d.capability == 90;
        CHECK_INT(kernel_can(&attention_fwd_kernels.row[0], &d, &f, &why), is);
        CHECK_INT(kernel_can(&attention_bwd_kernels.row[0], &d, &a, &why), is);
        CHECK_TEXT(kernels_first(&attention_bwd_kernels, &d, 0, &a)->name, is ? "hopper" : "mma");
        CHECK_INT(attention_kernel_of(d.capability), is ? ATTENTION_HOPPER : ATTENTION_MMA);
    }
}

static void attention_by_mma_takes_wide_heads_and_no_caches(void **state)
{
    (void)state;
    static const struct {
        int64_t Tq, d;
        const char *why;
    } call[] = {
        { 64, 256, NULL },
        { 1, 8, "1 queries and 64 keys: it is used where all are new" },
        { 64, 264, "heads are 264 and 264 wide, it takes multiples of 8 up to 256 and 256" },
        { 64, 124, "heads are 124 and 124 wide, it takes multiples of 8 up to 256 and 256" }
    };
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        AttentionBwd a = call_of(DTYPE_BF16, call[i].Tq, 64, call[i].d);
        KernelWhy why;
        CHECK_TEXT(attention_bwd_kernels.row[1].name, "mma");
        CHECK_INT(kernel_can(&attention_bwd_kernels.row[1], &kernel_device_full, &a, &why),
                  call[i].why == NULL);
        if (call[i].why != NULL) CHECK_TEXT(why.text, call[i].why);
    }
}

static void check_matrix(AttentionBwd a, int64_t dv, bool expected, const char *want)
{
    const KernelDevice amd = { .vendor = VENDOR_AMD };
    KernelWhy why;
    a.v.dim[3] = dv;
    CHECK_TEXT(attention_bwd_kernels.row[2].name, "matrix");
    CHECK_INT(kernel_can(&attention_bwd_kernels.row[2], &amd, &a, &why), want == NULL);
    if (want != NULL) CHECK_TEXT(why.text, want);
    if (want != NULL) CHECK_INT(why.expected, expected);
}

/* It takes caches and pieces as they come. */
static void amds_matrix_kernel_takes_pairs_of_widths(void **state)
{
    (void)state;
    check_matrix(call_of(DTYPE_BF16, 1, 64, 64), 64, false, NULL);
    check_matrix(call_of(DTYPE_BF16, 64, 64, 128), 128, false, NULL);
    check_matrix(call_of(DTYPE_BF16, 64, 64, 192), 128, false, NULL);
    check_matrix(call_of(DTYPE_BF16, 64, 64, 192), 192, false,
                 "heads are 192 and 192 wide, it takes 64 and 64, 128 and 128, 192 and 128");
    check_matrix(call_of(DTYPE_BF16, 64, 64, 0), 0, true,
                 "heads are 0 and 0 wide, it takes 64 and 64, 128 and 128, 192 and 128");
    check_matrix(call_of(DTYPE_F32, 64, 64, 64), 64, true, "tensors are f32, it takes bf16");
    AttentionBwd a = call_of(DTYPE_BF16, 64, 64, 64);
    KernelWhy why;
    CHECK(!kernel_can(&attention_bwd_kernels.row[2], &kernel_device_full, &a, &why));
    CHECK_TEXT(why.text, "it is made for another vendor's GPUs");
}

/* Products: the row that takes a call, and why the first one does not. First is the first but for `split`, which takes
 * few calls. */

static void check_row(const KernelTable *t, const KernelDevice *d, const void *call,
                      const char *name, const char *why_not_first)
{
    KernelWhy why;
    CHECK_TEXT(kernels_first(t, d, 0, call)->name, name);
    bool first = kernel_can(&t->row[strcmp(t->row[0].name, "split") == 0], d, call, &why);
    CHECK_INT(first, why_not_first == NULL);
    if (!first) CHECK_TEXT(why.text, why_not_first);
}

static void dense_products_go_to_the_library_where_it_has_the_types(void **state)
{
    (void)state;
    const KernelDevice *d = &kernel_device_full;
    const KernelTable *t = &dense_kernels;
    GemmArgs g = { .m = 2, .n = 3, .k = 5, .a.type = DTYPE_F32, .c.type = DTYPE_F32 };
    DenseCall call = { .g = &g };
    check_row(t, d, &call, "cublaslt", NULL);
    g.c.type = DTYPE_BF16;
    check_row(t, d, &call, "plain", "it makes no bf16 from f32");
    g.a.type = DTYPE_BF16;
    check_row(t, d, &call, "cublaslt", NULL);
    g.k = 0;
    check_row(t, d, &call, "plain", "there is nothing to multiply");
}

/* hipBLASLt's row is the third. */
static void check_on_amd(const KernelDevice *d, const DenseCall *call, const char *name,
                         const char *why_not_the_library)
{
    KernelWhy why;
    CHECK_TEXT(kernels_first(&dense_kernels, d, 0, call)->name, name);
    CHECK_INT(kernel_can(&dense_kernels.row[2], d, call, &why), why_not_the_library == NULL);
    CHECK_TEXT(why.text, why_not_the_library == NULL ? "" : why_not_the_library);
}

static void dense_products_on_amd_go_to_the_library_if_it_is_there(void **state)
{
    (void)state;
    KernelDevice d = { .vendor = VENDOR_AMD, .capability = 94 };
    GemmArgs g = { .m = 16, .n = 16, .k = 16, .a.type = DTYPE_BF16, .b.type = DTYPE_BF16 };
    g.a.ld = g.b.ld = g.c.ld = 16;
    DenseCall call = { .g = &g };
    check_on_amd(&d, &call, "hipblaslt", NULL);
    d.lacks[LIBRARY_PRODUCTS] = "libhipblaslt.so.0 was not found";
    check_on_amd(&d, &call, "matrix", "libhipblaslt.so.0 was not found");
    g.a.ld = 15;
    check_on_amd(&d, &call, "plain", "libhipblaslt.so.0 was not found");
    d.lacks[LIBRARY_PRODUCTS] = NULL;
    check_on_amd(&d, &call, "hipblaslt", NULL);
    g.a.type = g.b.type = DTYPE_F32, g.c.type = DTYPE_BF16;
    check_on_amd(&d, &call, "plain", "it makes no bf16 from f32");
}

/* Products of 8-bit operands (m, n, k): which pairs of types and scales the library takes. */
typedef struct Dense8Bit {
    Operand a, b;
    ScaledArgs s;
    ScaledCall call;
} Dense8Bit;

static Operand dense_8bit_operand(OperandKind kind, int64_t n, int64_t k)
{
    OperandGrid g = operand_grid(kind, n, k);
    return (Operand){ .data = { (void *)64, DTYPE_E4M3, 2, { n, k } },
                      .scale = { (void *)64, DTYPE_F32, 2, { g.rows, g.cols } },
                      .kind = kind };
}

static void dense_8bit_make(Dense8Bit *e, OperandKind a, OperandKind b, int64_t m, int64_t n,
                            int64_t k)
{
    e->a = dense_8bit_operand(a, m, k), e->b = dense_8bit_operand(b, n, k);
    e->s = (ScaledArgs){
        .m = m, .n = n, .k = k, .a.q = &e->a, .b.q = &e->b, .c = { (void *)64, DTYPE_BF16, n }
    };
    e->call = (ScaledCall){ .s = &e->s };
}

/* On a device without a kernel of our own for them. */
static void check_dense_8bit(Dense8Bit *e, const char *why)
{
    KernelDevice ada = { .vendor = VENDOR_NVIDIA, .capability = 89 };
    check_row(&scaled_kernels, &ada, &e->call, why == NULL ? "cublaslt" : "plain", why);
}

static void dense_8bit_products_go_to_the_library_in_the_pairs_of_recipes(void **state)
{
    (void)state;
    static const OperandKind pairs[][2] = { { OPERAND_TENSOR, OPERAND_TENSOR },
                                            { OPERAND_ROW, OPERAND_ROW },
                                            { OPERAND_1X128, OPERAND_128X128 },
                                            { OPERAND_128X128, OPERAND_1X128 },
                                            { OPERAND_1X128, OPERAND_1X128 } };
    Dense8Bit e;
    for (int i = 0; i < 5; i++) {
        dense_8bit_make(&e, pairs[i][0], pairs[i][1], 64, 48, 256);
        check_dense_8bit(&e, NULL);
    }
    dense_8bit_make(&e, OPERAND_128X128, OPERAND_128X128, 64, 48, 256);
    check_dense_8bit(&e, "operands of kinds 4 and 4");
    check_row(&scaled_kernels, &kernel_device_full, &e.call, "hopper", "operands of kinds 4 and 4");
    dense_8bit_make(&e, OPERAND_ROW, OPERAND_TENSOR, 64, 48, 256);
    check_dense_8bit(&e, "operands of kinds 2 and 1");
    dense_8bit_make(&e, OPERAND_ROW, OPERAND_ROW, 64, 48, 256);
    e.a.data.dtype = DTYPE_E5M2;
    check_dense_8bit(&e, NULL);
    e.b.data.dtype = DTYPE_E5M2;
    check_dense_8bit(&e, "both operands are e5m2");
    KernelDevice ampere = { .vendor = VENDOR_NVIDIA, .capability = 80 };
    check_row(&scaled_kernels, &ampere, &e.call, "plain",
              "compute capability is 8.0, 8.9 is the least");
}

static void dense_8bit_rows_begin_at_packs(void **state)
{
    (void)state;
    const char *packs = "rows do not lie at multiples of 16 bytes";
    Dense8Bit e;
    dense_8bit_make(&e, OPERAND_TENSOR, OPERAND_TENSOR, 63, 48, 256);
    check_dense_8bit(&e, NULL); /* any number of rows */
    dense_8bit_make(&e, OPERAND_TENSOR, OPERAND_TENSOR, 64, 48, 248);
    check_dense_8bit(&e, packs);
    dense_8bit_make(&e, OPERAND_TENSOR, OPERAND_TENSOR, 64, 44, 256);
    check_dense_8bit(&e, packs);
    e.s.c.type = DTYPE_F32; /* 44 of them are 11 packs */
    check_dense_8bit(&e, NULL);
    e.s.r = (void *)72;
    check_dense_8bit(&e, packs);
    dense_8bit_make(&e, OPERAND_1X128, OPERAND_128X128, 63, 48, 256);
    check_dense_8bit(&e, "rows with scales of 1 x 128 are no multiple of 4");
    dense_8bit_make(&e, OPERAND_TENSOR, OPERAND_TENSOR, 64, 48, 0);
    check_dense_8bit(&e, "there is nothing to multiply");
}

/* Copies of scales: 64 rows of 2, and a row of 2 that becomes 4. */
static void the_workspace_holds_copies_of_scales(void **state)
{
    (void)state;
    Dense8Bit e;
    dense_8bit_make(&e, OPERAND_1X128, OPERAND_128X128, 64, 48, 256);
    CHECK_INT(scaled_scales_bytes(&e.a), arena_rounded(64 * 4 * 4));
    CHECK_INT(scaled_scales_bytes(&e.b), arena_rounded(4 * 4));
    CHECK_INT(scaled_dense_workspace(&e.s),
              DENSE_WORKSPACE + arena_rounded(64 * 4 * 4) + arena_rounded(4 * 4));
    dense_8bit_make(&e, OPERAND_ROW, OPERAND_ROW, 64, 48, 256);
    CHECK_INT(scaled_dense_workspace(&e.s), DENSE_WORKSPACE);
}

/* Our own kernel multiplies other pairs, but not into windows, and into f32 only by adding there. */
static void dense_8bit_products_that_the_library_lacks_run_on_ours(void **state)
{
    (void)state;
    const KernelTable *t = &scaled_kernels;
    const KernelDevice *d = &kernel_device_full;
    const char *why = "operands of kinds 2 and 1";
    Dense8Bit e;
    dense_8bit_make(&e, OPERAND_ROW, OPERAND_TENSOR, 64, 48, 256);
    e.s.c.ld = 64;
    check_row(t, d, &e.call, "plain", why);
    e.s.c.ld = 48, e.s.r = (void *)128;
    check_row(t, d, &e.call, "hopper", why);
    e.s.c.type = DTYPE_F32;
    check_row(t, d, &e.call, "plain", why);
    e.s.r = e.s.c.at;
    check_row(t, d, &e.call, "hopper", why);
    dense_8bit_make(&e, OPERAND_ROW, OPERAND_1X128, 64, 48, 256);
    check_row(t, d, &e.call, "plain", "operands of kinds 2 and 3");
}

/* 8 experts of 24 x 16, rows of 16. */
typedef struct Experts {
    Tensor offsets, out;
    Operand in, w;
    MoeProduct product;
} Experts;

static void experts_make(Experts *e, Dtype type)
{
    void *aligned = (void *)(uintptr_t)4096;
    *e = (Experts){ .offsets = { aligned, DTYPE_I32, 2, { 1, 9 } },
                    .out = { aligned, type, 2, { 40, 24 } } };
    e->in = operand_plain((Tensor){ aligned, type, 2, { 40, 16 } });
    e->w = operand_plain((Tensor){ aligned, type, 3, { 8, 24, 16 } });
    e->product = (MoeProduct){ { "up", "in", &e->in, &e->w, &e->offsets, NULL, NULL, NULL },
                               { 16, 24, true, NULL },
                               { .result = &e->out, .out = &e->out },
                               { .epilogue = MOE_STORE } };
}

static MoeProduct product_of(const Experts *e)
{
    MoeProduct p = e->product;
    p.act = e->out.dtype, p.width = e->out.dim[1];
    return p;
}

static void check_experts(const Experts *e, int capability, const char *name, const char *why)
{
    KernelDevice d = { .vendor = VENDOR_NVIDIA, .capability = capability };
    MoeProduct p = product_of(e);
    GroupedCall call = moe_product_call(&p);
    check_row(&moe_product_kernels, &d, &call, name, why);
}

static void grouped_products_go_to_the_chips_own_kernel(void **state)
{
    (void)state;
    Experts e;
    experts_make(&e, DTYPE_BF16);
    check_experts(&e, 90, "hopper", NULL);
    check_experts(&e, 80, "mma", "compute capability is 8.0, 9.0 is the least");
    check_experts(&e, 100, "mma", "compute capability is 10.0, 9.0 is the most");
    experts_make(&e, DTYPE_F32);
    check_experts(&e, 90, "plain", "tensors are f32, it takes bf16");
}

static void rows_that_are_no_whole_packs_go_to_the_plain_kernel(void **state)
{
    (void)state;
    const char *why = "rows do not lie at multiples of 16 bytes";
    Experts e;
    experts_make(&e, DTYPE_BF16);
    e.product.I = 20;
    check_experts(&e, 90, "plain", why);
    experts_make(&e, DTYPE_BF16);
    e.out.dim[1] = 28;
    check_experts(&e, 90, "plain", why);
    experts_make(&e, DTYPE_BF16);
    e.out.data = (void *)(uintptr_t)4104;
    check_experts(&e, 90, "plain", why);
    experts_make(&e, DTYPE_BF16);
    e.w.data.data = (void *)(uintptr_t)4098;
    check_experts(&e, 90, "plain", why);
    MoeDownBwdInput a = { .dpre.data.data = (void *)(uintptr_t)4100 };
    experts_make(&e, DTYPE_BF16);
    e.product.epilogue = MOE_SWIGLU_BACKWARD;
    e.product.args = &a;
    check_experts(&e, 90, "plain", why);
}

static void many_experts_or_elements_go_to_the_kernel_of_every_chip(void **state)
{
    (void)state;
    const char *why = "over 4096 experts or 2^35 elements";
    Experts e;
    experts_make(&e, DTYPE_BF16);
    e.offsets.dim[1] = 4097;
    check_experts(&e, 90, "hopper", NULL);
    e.offsets.dim[1]++;
    check_experts(&e, 90, "mma", why);
    experts_make(&e, DTYPE_BF16);
    e.w.data.dim[0] = ((int64_t)1 << 35) / (24 * 16);
    check_experts(&e, 90, "hopper", NULL);
    e.w.data.dim[0]++;
    check_experts(&e, 90, "mma", why);
}

/* 8 bits: rows of in and of w have I = 256 elements; results have 128 columns. */
static void eight_bit_make(Experts *e)
{
    experts_make(e, DTYPE_BF16);
    e->in.kind = OPERAND_1X128, e->in.data.dtype = DTYPE_E4M3;
    e->w.kind = OPERAND_128X128, e->w.data.dtype = DTYPE_E4M3;
    e->product.I = 256;
    e->out.dim[1] = 128;
}

static void check_eight_bit(const Experts *e, int capability, const char *why)
{
    KernelDevice d = { .vendor = VENDOR_NVIDIA, .capability = capability };
    MoeProduct p = product_of(e);
    GroupedCall call = moe_product_call(&p);
    const KernelTable *t = grouped_kernels(&call, false);
    CHECK(t == &moe_scaled_product_kernels);
    check_row(t, &d, &call, why == NULL ? "hopper" : "plain", why);
}

static void grouped_products_of_8_bits_have_kernels_of_their_own(void **state)
{
    (void)state;
    Experts e;
    eight_bit_make(&e);
    check_eight_bit(&e, 90, NULL);
    check_eight_bit(&e, 100, "compute capability is 10.0, 9.0 is the most");
    e.in.data.dtype = DTYPE_E5M2;
    check_eight_bit(&e, 90, NULL);
    e.product.epilogue = MOE_SWIGLU;
    check_eight_bit(&e, 90, "operands are e5m2 and e4m3");
    e.in.data.dtype = DTYPE_E4M3;
    check_eight_bit(&e, 90, NULL);
    e.out.dim[1] = 96; /* gates of two blocks in one tile */
    check_eight_bit(&e, 90, "gates and ups are 96 rows, no multiple of 64");
    e.w.kind = OPERAND_ROW;
    check_eight_bit(&e, 90, NULL);
    e.w.kind = OPERAND_1X128;
    check_eight_bit(&e, 90, "w has a scale for each 1 x 128");
    eight_bit_make(&e);
    e.product.I = 264;
    check_eight_bit(&e, 90, "rows do not lie at multiples of 16 bytes");
    eight_bit_make(&e);
    e.out.dim[1] = 124;
    check_eight_bit(&e, 90, "rows do not lie at multiples of 16 bytes");
    eight_bit_make(&e);
    e.out.dtype = DTYPE_F32;
    check_eight_bit(&e, 90, "results are f32, it makes bf16");
    eight_bit_make(&e);
    e.offsets.dim[1] = 1026;
    check_eight_bit(&e, 90, "over 1024 experts or 2^36 elements");
}

static void check_narrow(const Experts *e, const char *why)
{
    KernelDevice d = { .vendor = VENDOR_NVIDIA, .capability = 90 };
    MoeProduct p = product_of(e);
    p.narrow = true;
    GroupedCall call = moe_product_call(&p);
    const KernelTable *t = grouped_kernels(&call, false);
    CHECK(t == &moe_narrow_product_kernels);
    check_row(t, &d, &call, why == NULL ? "hopper" : "apart", why);
}

static void results_of_8_bits_are_made_at_once_or_apart(void **state)
{
    (void)state;
    Experts e;
    eight_bit_make(&e);
    Operand eight = { .data = { (void *)(uintptr_t)4096, DTYPE_E4M3, 2, { 40, 128 } },
                      .kind = OPERAND_1X128 };
    MoeUpFwd up = { .pre = eight, .act = eight, .pow2 = true };
    e.product.epilogue = MOE_SWIGLU, e.product.args = &up;
    check_narrow(&e, NULL);
    up.pow2 = false;
    check_narrow(&e, "scales are no powers of two");
    up.pow2 = true, up.act = operand_plain(eight.data);
    check_narrow(&e, "it makes all results in 8 bits, in e4m3 or dy's type");
    MoeDownBwdInput down = {
        .pre = eight, .dpre = eight, .dpre_columns = eight, .wact = eight, .pow2 = true
    };
    e.product.epilogue = MOE_SWIGLU_BACKWARD, e.product.args = &down;
    check_narrow(&e, NULL);
    down.dpre.data.dtype = down.dpre_columns.data.dtype = e.in.data.dtype = DTYPE_E5M2;
    check_narrow(&e, NULL);
    e.in.data.dtype = DTYPE_E4M3;
    check_narrow(&e, "it makes all results in 8 bits, in e4m3 or dy's type");
    down.dpre = eight, down.dpre_columns = (Operand){ 0 };
    check_narrow(&e, "it makes all results in 8 bits, in e4m3 or dy's type");
    down.dpre_columns = eight, e.out.dtype = DTYPE_F32;
    check_narrow(&e, "results are f32, it makes bf16");
}

/* Transposed operands of 24 and 16 rows. */
static void weight_gradients_of_8_bits_have_kernels_of_their_own(void **state)
{
    (void)state;
    KernelDevice d = { .vendor = VENDOR_NVIDIA, .capability = 90 };
    Experts e;
    eight_bit_make(&e);
    e.in.data.dim[0] = 24, e.in.data.dim[1] = 1024;
    e.w = e.in, e.w.data.dim[0] = 16;
    MoeSum sum = { .by_token = &e.in, .by_row = &e.w, .offsets = &e.offsets, .dw = &e.out };
    GroupedCall call = moe_sum_call(&sum);
    const KernelTable *t = grouped_kernels(&call, true);
    CHECK(t == &moe_scaled_weight_kernels);
    check_row(t, &d, &call, "hopper", NULL);
    e.w.data.dtype = DTYPE_E5M2;
    check_row(t, &d, &call, "hopper", NULL);
    e.in.data.dim[0] = 23;
    check_row(t, &d, &call, "plain", "rows do not lie at multiples of 16 bytes");
    e.in.data.dtype = DTYPE_E5M2;
    check_row(t, &d, &call, "plain", "operands are e5m2 and e5m2");
}

/* The operand that is read by token gives the result's rows or its columns. */
static void a_sum_over_rows_is_a_product_of_its_two_operands(void **state)
{
    (void)state;
    KernelDevice d = { .vendor = VENDOR_NVIDIA, .capability = 90 };
    Experts e;
    experts_make(&e, DTYPE_BF16);
    MoeSum sum = { .by_token = &e.in, .by_row = &e.w, .offsets = &e.offsets, .dw = &e.out };
    for (int first = 0; first < 2; first++) {
        sum.token_first = first;
        GroupedCall call = moe_sum_call(&sum);
        CHECK(call.a == (first ? &e.in : &e.w) && call.b == (first ? &e.w : &e.in));
        check_row(&moe_weight_kernels, &d, &call, "hopper", NULL);
    }
    e.out.data = (void *)(uintptr_t)4104;
    GroupedCall call = moe_sum_call(&sum);
    check_row(&moe_weight_kernels, &d, &call, "plain", "rows do not lie at multiples of 16 bytes");
}

/* Rows of Y and of the result are what tensor cores read and write in packs. */
static void squares_of_muon_run_on_tensor_cores_if_rows_are_packs(void **state)
{
    (void)state;
    void *at = (void *)(uintptr_t)4096;
    KernelDevice d = { .vendor = VENDOR_NVIDIA, .capability = 90 };
    MuonSquare s = { .y = { .data = { at, DTYPE_BF16, 3, { 2, 24, 40 } } },
                     .out = at,
                     .offsets = { at, DTYPE_I32, 1, { 3 } },
                     .side = 24 };
    GroupedCall call = muon_square_call(&s);
    CHECK_INT(call.experts, 2);
    check_row(&muon_square_kernels, &d, &call, "hopper", NULL);
    d.capability = 80;
    CHECK_TEXT(kernels_first(&muon_square_kernels, &d, 0, &call)->name, "mma");
    d.capability = 90;
    s.add = (void *)(uintptr_t)4104;
    call = muon_square_call(&s);
    check_row(&muon_square_kernels, &d, &call, "plain", "rows do not lie at multiples of 16 bytes");
    s.add = NULL, s.side = 20;
    call = muon_square_call(&s);
    check_row(&muon_square_kernels, &d, &call, "plain", "rows do not lie at multiples of 16 bytes");
    s.side = 24, s.y.data.dtype = DTYPE_F32;
    call = muon_square_call(&s);
    check_row(&muon_square_kernels, &d, &call, "plain", "tensors are f32, it takes bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_row_that_can_runs_the_call),
        TEST(a_row_that_refuses_when_it_runs_is_passed_over),
        TEST(a_note_names_the_fastest_row_that_was_expected),
        TEST(a_row_that_is_asked_for_runs_or_is_an_error),
        TEST(workspace_is_the_most_of_all_rows_that_can),
        TEST(a_device_is_refused_with_the_reason),
        TEST(limits_of_attention_are_exact),
        TEST(attention_on_hopper_is_for_hopper_alone),
        TEST(attention_by_mma_takes_wide_heads_and_no_caches),
        TEST(amds_matrix_kernel_takes_pairs_of_widths),
        TEST(dense_products_go_to_the_library_where_it_has_the_types),
        TEST(dense_products_on_amd_go_to_the_library_if_it_is_there),
        TEST(dense_8bit_products_go_to_the_library_in_the_pairs_of_recipes),
        TEST(dense_8bit_rows_begin_at_packs),
        TEST(the_workspace_holds_copies_of_scales),
        TEST(grouped_products_go_to_the_chips_own_kernel),
        TEST(rows_that_are_no_whole_packs_go_to_the_plain_kernel),
        TEST(many_experts_or_elements_go_to_the_kernel_of_every_chip),
        TEST(dense_8bit_products_that_the_library_lacks_run_on_ours),
        TEST(grouped_products_of_8_bits_have_kernels_of_their_own),
        TEST(results_of_8_bits_are_made_at_once_or_apart),
        TEST(weight_gradients_of_8_bits_have_kernels_of_their_own),
        TEST(a_sum_over_rows_is_a_product_of_its_two_operands),
        TEST(squares_of_muon_run_on_tensor_cores_if_rows_are_packs),
    };
    return TEST_RUN(tests);
}
