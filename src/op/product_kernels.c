/*
 * product_kernels: which kernel runs a dense or a grouped product on a GPU. A library or a kernel
 * may have several algorithms for one product; these are timed once, and the choice is kept
 * (op/choices.h). The kernels are in gemm_plain.cu, moe_product.cu, moe_weight.cu and nv/.
 */
#include "op/product_kernels.h"

#include <stdio.h>

/* Dense products */

/* cuBLASLt does not support f32 operands with a bf16 result. */
static bool cublaslt_can(const void *call, KernelWhy *why)
{
    const GemmArgs *g = ((const DenseCall *)call)->g;
    if (g->k == 0) return kernel_refuses(why, true, "there is nothing to multiply");
    if (g->a.type != DTYPE_F32 || g->c.type == DTYPE_F32) return true;
    return kernel_refuses(why, true, "it makes no bf16 from f32");
}

static void cublaslt_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX, "f32, bf16, but no bf16 from f32; proposes an algorithm");
}

/* A constant, so that the plan needs no library to know it. */
static size_t dense_workspace(const void *call)
{
    (void)call;
    return DENSE_WORKSPACE;
}

OpRun dense_cublaslt, dense_plain;

static const KernelDesc dense_rows[] = {
    { .name = "cublaslt",
      .vendor = VENDOR_NVIDIA,
      .library = NEEDS(LIBRARY_PRODUCTS),
      .needs = cublaslt_needs,
      .can = cublaslt_can,
      .workspace = dense_workspace,
      .run = GPU_OP(dense_cublaslt),
      .work = WORK_GEMM },
    { .name = "plain", .run = GPU_OP(dense_plain), .work = WORK_GEMM },
};
const KernelTable dense_kernels = { NULL, dense_rows, sizeof dense_rows / sizeof *dense_rows };

Status dense_run(Exec *ex, const GemmArgs *g, const void *r, void *workspace)
{
    if (g->m == 0 || g->n == 0) return OK;
    DenseCall call = { g, r == NULL ? g->c.at : r, workspace };
    return kernels_run(ex, &dense_kernels, NULL, 0, &call);
}

/* Grouped products */

enum { PACK_BYTES = 16, PACK = PACK_BYTES / 2 };

/* Kernels on tensor cores read and write packs of 16 bytes: rows must begin at multiples of
 * them. */
static bool packs_fit(const GroupedCall *c, KernelWhy *why)
{
    bool fit = (uintptr_t)c->a->data.data % PACK_BYTES == 0;
    fit = fit && (uintptr_t)c->b->data.data % PACK_BYTES == 0;
    for (int i = 0; i < GROUPED_AT; i++) fit = fit && (uintptr_t)c->at[i] % PACK_BYTES == 0;
    fit = fit && c->width[0] % PACK == 0 && c->width[1] % PACK == 0;
    return fit || kernel_refuses(why, false, "rows do not lie at multiples of 16 bytes");
}

static bool mma_can(const void *call, KernelWhy *why)
{
    const GroupedCall *c = call;
    Dtype type = c->a->data.dtype;
    if (type != DTYPE_BF16)
        return kernel_refuses(why, true, "tensors are %s, it takes bf16", dtype_name(type));
    return packs_fit(c, why);
}

/* Hopper's gather indexes packs with 32 bits, and its kernel keeps a bounded table of experts. */
static bool hopper_can(const void *call, KernelWhy *why)
{
    const GroupedCall *c = call;
    if (!mma_can(call, why)) return false;
    int64_t a = tensor_elems(&c->a->data), b = tensor_elems(&c->b->data);
    if (c->experts <= GROUPED_HOPPER_EXPERTS && (a > b ? a : b) / PACK < UINT32_MAX) return true;
    return kernel_refuses(why, false, "over %d experts or 2^35 elements", GROUPED_HOPPER_EXPERTS);
}

static void mma_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX, "bf16; rows of whole packs of %d bytes", PACK_BYTES);
}

static void hopper_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "bf16; rows of whole packs of %d bytes; at most %d experts and 2^35 elements",
                   PACK_BYTES, GROUPED_HOPPER_EXPERTS);
}

OpRun moe_product_hopper, moe_product_mma, moe_product_plain;
OpRun moe_weight_hopper, moe_weight_mma, moe_weight_plain;

/* The candidates of a family of grouped products: the same three kernels, each with the family's
 * epilogue. */
/* clang-format off */
#define GROUPED_ROWS(family, rate)                                                                 \
    { .name = "hopper", .vendor = VENDOR_NVIDIA, .capability_least = 90, .capability_most = 90,    \
      .needs = hopper_needs, .can = hopper_can, .run = GPU_OP(family##_hopper), .work = (rate) },  \
    { .name = "mma", .vendor = VENDOR_NVIDIA, .capability_least = 80, .needs = mma_needs,          \
      .can = mma_can, .run = GPU_OP(family##_mma), .work = (rate) },                               \
    { .name = "plain", .run = GPU_OP(family##_plain), .work = (rate) },
/* clang-format on */

static const KernelDesc grouped_rows[] = { GROUPED_ROWS(moe_product, WORK_GROUPED) };
static const KernelDesc weight_rows[] = { GROUPED_ROWS(moe_weight, WORK_GROUPED_WEIGHT) };
enum { ROWS = sizeof grouped_rows / sizeof *grouped_rows };
const KernelTable moe_product_kernels = { NULL, grouped_rows, ROWS };
const KernelTable moe_weight_kernels = { NULL, weight_rows, ROWS };

static const void *data_or_null(const Tensor *t) { return t == NULL ? NULL : t->data; }

/* All addresses that a kernel moves in packs, and the widths of the rows at them. */
GroupedCall moe_product_call(const MoeProduct *p)
{
    const MoeDownBwdInput *down = p->args;
    const void *dpre = p->epilogue == MOE_SWIGLU_BACKWARD ? down->dpre.data : NULL;
    return (GroupedCall){
        .a = p->in,
        .b = p->w,
        .experts = tensor_elems(p->offsets) - 1,
        .at = { data_or_null(p->out), data_or_null(p->result), data_or_null(p->bias),
                data_or_null(p->pool), dpre },
        .width = { p->I, tensor_cols(p->result) },
        .product = p,
    };
}

GroupedCall moe_sum_call(const MoeSum *s)
{
    const Operand *a = s->token_first ? s->by_token : s->by_row;
    const Operand *b = s->token_first ? s->by_row : s->by_token;
    return (GroupedCall){
        .a = a,
        .b = b,
        .experts = tensor_elems(s->offsets) - 1,
        .at = { s->dw->data },
        .width = { tensor_cols(&a->data), tensor_cols(&b->data) },
        .product = s,
    };
}

Status moe_product_gpu(Exec *ex, const MoeProduct *p)
{
    GroupedCall call = moe_product_call(p);
    return kernels_run(ex, &moe_product_kernels, p->op, 0, &call);
}

Status moe_weight_gpu(Exec *ex, const MoeSum *s)
{
    GroupedCall call = moe_sum_call(s);
    return kernels_run(ex, &moe_weight_kernels, s->op, 0, &call);
}
