/* Which weight gradients our kernels make in parts of their tokens (weight_parts): the rows `split` of the tables of
 * dense products. */
#include "harness/test.h"

#include "kernels/dense/product_kernels.h"

/* A weight gradient: a (k, m) and b (k, n), rows of bf16, make c (m, n) in f32. */
static GemmArgs weight_gradient(int64_t m, int64_t n, int64_t k)
{
    return (GemmArgs){ .m = m,
                       .n = n,
                       .k = k,
                       .a = { (void *)64, DTYPE_BF16, m, true },
                       .b = { (void *)64, DTYPE_BF16, n, false },
                       .c = { (void *)64, DTYPE_F32, n },
                       .beta = 1 };
}

static void check_split(const KernelDevice *d, GemmArgs g, const void *r, const char *name)
{
    DenseCall call = { .g = &g, .r = r };
    CHECK_TEXT(kernels_first(&dense_kernels, d, 0, &call)->name, name);
}

/* Where it has few tiles and many tokens, and lies whole. */
static void weight_gradients_with_few_tiles_are_made_in_parts(void **state)
{
    (void)state;
    const KernelDevice *hopper = &kernel_device_full;
    KernelDevice ampere = { .vendor = VENDOR_NVIDIA, .capability = 80 };
    KernelDevice amd = { .vendor = VENDOR_AMD, .capability = 94 };
    GemmArgs g = weight_gradient(512, 512, 65536), odd = g;
    check_split(hopper, g, g.c.at, "split");
    check_split(&ampere, g, g.c.at, "cublaslt");
    check_split(&amd, g, g.c.at, "hipblaslt");
    amd.lacks[LIBRARY_PRODUCTS] = "libhipblaslt.so.0 was not found";
    check_split(&amd, g, g.c.at, "split");
    check_split(hopper, g, (void *)128, "cublaslt"); /* added to another matrix */
    check_split(hopper, weight_gradient(512, 512, 2048), g.c.at, "cublaslt");
    check_split(hopper, weight_gradient(2048, 2048, 65536), g.c.at, "cublaslt");
    check_split(hopper, weight_gradient(512, 508, 65536), g.c.at, "cublaslt");
    odd.c.ld = 1024; /* a window */
    check_split(hopper, odd, g.c.at, "cublaslt");
    odd = g, odd.c.type = DTYPE_BF16;
    check_split(hopper, odd, g.c.at, "cublaslt");
    odd = g, odd.a.turned = false; /* no gradient: a is (m, k) */
    check_split(hopper, odd, g.c.at, "cublaslt");
}

typedef struct EightBit {
    Operand a, b;
    ScaledArgs s;
} EightBit;

static Operand operand(OperandKind kind, int64_t n, int64_t k)
{
    const OperandGrid g = operand_grid(kind, n, k);
    return (Operand){ .data = { (void *)64, DTYPE_E4M3, 2, { n, k } },
                      .scale = { (void *)64, DTYPE_F32, 2, { g.rows, g.cols } },
                      .kind = kind };
}

static void check_8bit(const EightBit *e, const KernelDevice *d, const char *name)
{
    ScaledCall call = { .s = &e->s };
    CHECK_TEXT(kernels_first(&scaled_kernels, d, 0, &call)->name, name);
}

static void so_are_those_of_8_bit_operands(void **state)
{
    (void)state;
    const KernelDevice *hopper = &kernel_device_full;
    KernelDevice ada = { .vendor = VENDOR_NVIDIA, .capability = 89 };
    KernelDevice amd = { .vendor = VENDOR_AMD, .capability = 94 };
    EightBit e = { operand(OPERAND_1X128, 512, 65536),
                   operand(OPERAND_1X128, 512, 65536),
                   { .m = 512, .n = 512, .k = 65536 } };
    e.s.a.q = &e.a, e.s.b.q = &e.b;
    e.s.c = (GemmResult){ (void *)64, DTYPE_F32, 512 };
    e.s.r = e.s.c.at;
    check_8bit(&e, hopper, "split");
    check_8bit(&e, &ada, "cublaslt");
    check_8bit(&e, &amd, "matrix"); /* which makes parts, too */
    e.b.data.dtype = DTYPE_E5M2;
    check_8bit(&e, hopper, "cublaslt");
    e.b.data.dtype = DTYPE_E4M3;
    e.s.k = 2048;
    check_8bit(&e, hopper, "cublaslt");
    e.b = operand(OPERAND_128X128, 512, 65536); /* a product of rows */
    e.s.k = 65536, e.s.c.type = DTYPE_BF16, e.s.r = NULL;
    check_8bit(&e, hopper, "cublaslt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(weight_gradients_with_few_tiles_are_made_in_parts),
        TEST(so_are_those_of_8_bit_operands),
    };
    return TEST_RUN(tests);
}
