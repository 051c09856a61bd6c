/*
 * scaled_kernels: which kernel runs a dense product of 8-bit operands on a GPU. Grouped products of
 * 8-bit operands are in product_kernels.c.
 */
#include "kernels/dense/product_kernels.h"

#include <stdio.h>

enum { PACK_BYTES = 16, SCALES = 4 /* of a row of scales, as cuBLASLt reads it */ };

/* The pairs of scales that cuBLASLt multiplies: those of a recipe's products. */
static bool pair_fits(OperandKind a, OperandKind b)
{
    bool lines = a == OPERAND_1X128 || b == OPERAND_1X128;
    bool blocks = (a == OPERAND_1X128 || a == OPERAND_128X128) &&
                  (b == OPERAND_1X128 || b == OPERAND_128X128);
    return (blocks && lines) || (a == b && (a == OPERAND_TENSOR || a == OPERAND_ROW));
}

static bool at_packs(const void *at) { return (uintptr_t)at % PACK_BYTES == 0; }

/* Rows of operands and of the result begin at multiples of 16 bytes. Scales of 1 x 128 are read as
 * columns, four at a time. */
static bool rows_fit(const ScaledArgs *s, KernelWhy *why)
{
    size_t row = (size_t)s->c.ld * dtype_bytes(s->c.type);
    bool fit = s->k % PACK_BYTES == 0 && row % PACK_BYTES == 0 && at_packs(s->c.at);
    fit = fit && at_packs(s->r) && at_packs(s->a.q->data.data) && at_packs(s->b.q->data.data);
    if (!fit) return kernel_refuses(why, false, "rows do not lie at multiples of 16 bytes");
    bool a = s->a.q->kind == OPERAND_1X128, b = s->b.q->kind == OPERAND_1X128;
    if ((!a || s->m % SCALES == 0) && (!b || s->n % SCALES == 0)) return true;
    return kernel_refuses(why, false, "rows with scales of 1 x 128 are no multiple of %d", SCALES);
}

static bool cublaslt_can(const void *call, KernelWhy *why)
{
    const ScaledArgs *s = ((const ScaledCall *)call)->s;
    const Operand *a = s->a.q, *b = s->b.q;
    if (s->k == 0) return kernel_refuses(why, true, "there is nothing to multiply");
    if (a->data.dtype == DTYPE_E5M2 && b->data.dtype == DTYPE_E5M2)
        return kernel_refuses(why, true, "both operands are e5m2");
    if (!pair_fits(a->kind, b->kind))
        return kernel_refuses(why, true, "operands of kinds %d and %d", (int)a->kind, (int)b->kind);
    if (a->data.rank == 3 || b->data.rank == 3)
        return kernel_refuses(why, true, "an operand has several matrices of scales");
    return rows_fit(s, why);
}

static void cublaslt_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "one side e4m3; scales paired as recipes do; rows of whole packs of %d bytes",
                   PACK_BYTES);
}

size_t scaled_scales_bytes(const Operand *q)
{
    if (q->kind != OPERAND_1X128 && q->kind != OPERAND_128X128) return 0;
    int64_t rows = tensor_elems(&q->scale) / tensor_cols(&q->scale);
    int64_t cols = (tensor_cols(&q->scale) + SCALES - 1) / SCALES * SCALES;
    return arena_rounded((size_t)(rows * cols) * sizeof(float));
}

static size_t cublaslt_workspace(const void *call)
{
    const ScaledArgs *s = ((const ScaledCall *)call)->s;
    return DENSE_WORKSPACE + scaled_scales_bytes(s->a.q) + scaled_scales_bytes(s->b.q);
}

/* Our own kernel (moe_scaled.cu). Rows of the result have no gaps; what is added to an f32 result is
 * the result itself. A tile has one scale of b for 128 columns. */
static bool hopper_can(const void *call, KernelWhy *why)
{
    const ScaledArgs *s = ((const ScaledCall *)call)->s;
    const Operand *a = s->a.q, *b = s->b.q;
    bool f32 = s->c.type == DTYPE_F32;
    if (s->k == 0) return kernel_refuses(why, true, "there is nothing to multiply");
    if (b->data.dtype != DTYPE_E4M3)
        return kernel_refuses(why, true, "the second operand is %s", dtype_name(b->data.dtype));
    if (!f32 && b->kind == OPERAND_1X128)
        return kernel_refuses(why, true, "b has a scale for each 1 x 128");
    if (a->data.rank == 3 || b->data.rank == 3)
        return kernel_refuses(why, true, "an operand has several matrices of scales");
    bool apart = s->c.ld != s->n || (f32 && s->r != NULL && s->r != s->c.at);
    if (apart) return kernel_refuses(why, true, "the result is a window, or is added to another");
    bool fit = s->k % PACK_BYTES == 0 && (size_t)s->n * dtype_bytes(s->c.type) % PACK_BYTES == 0;
    fit = fit && at_packs(s->c.at) && at_packs(s->r) && at_packs(a->data.data);
    return (fit && at_packs(b->data.data)) ||
           kernel_refuses(why, false, "rows do not lie at multiples of 16 bytes");
}

/* Weight gradients with few tiles, which our kernel makes in parts of the tokens. */
static bool split_can(const void *call, KernelWhy *why)
{
    const ScaledArgs *s = ((const ScaledCall *)call)->s;
    if (s->c.type != DTYPE_F32 || weight_parts(s->m, s->n, s->k) == 1)
        return kernel_refuses(why, true, "it is no weight gradient of few tiles");
    return hopper_can(call, why);
}

static void split_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX, "weight gradients with few tiles; else as `hopper`");
}

static void hopper_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "right side e4m3, not 1 x 128 for bf16 results; rows of packs of %d bytes",
                   PACK_BYTES);
}

OpRun scaled_cublaslt, scaled_hopper, scaled_matrix, scaled_plain;

static const KernelDesc rows[] = {
    { .name = "split",
      .vendor = VENDOR_NVIDIA,
      .capability_least = 90,
      .capability_most = 90,
      .needs = split_needs,
      .can = split_can,
      .workspace = dense_workspace,
      .run = VENDOR_NVIDIA_OP(scaled_hopper),
      .work = WORK_GEMM },
    { .name = "cublaslt",
      .vendor = VENDOR_NVIDIA,
      .capability_least = 89,
      .library = NEEDS(LIBRARY_PRODUCTS),
      .needs = cublaslt_needs,
      .can = cublaslt_can,
      .workspace = cublaslt_workspace,
      .run = VENDOR_NVIDIA_OP(scaled_cublaslt),
      .work = WORK_GEMM },
    { .name = "hopper",
      .vendor = VENDOR_NVIDIA,
      .capability_least = 90,
      .capability_most = 90,
      .needs = hopper_needs,
      .can = hopper_can,
      .run = VENDOR_NVIDIA_OP(scaled_hopper),
      .work = WORK_GEMM },
    { .name = "matrix",
      .vendor = VENDOR_AMD,
      .needs = hopper_needs,
      .can = hopper_can,
      .workspace = dense_workspace,
      .run = VENDOR_AMD_OP(scaled_matrix),
      .work = WORK_GEMM },
    { .name = "plain", .run = GPU_OP(scaled_plain), .work = WORK_GEMM },
};
const KernelTable scaled_kernels = { NULL, rows, sizeof rows / sizeof *rows };

size_t scaled_dense_workspace(const ScaledArgs *s)
{
    ScaledCall call = { s, NULL };
    return kernels_workspace(&scaled_kernels, 0, &call);
}

Status scaled_dense_run(Exec *ex, const char *op, const ScaledArgs *s, void *workspace)
{
    if (s->m == 0 || s->n == 0) return OK;
    ScaledCall call = { s, workspace };
    return kernels_run(ex, &scaled_kernels, op, 0, &call);
}
