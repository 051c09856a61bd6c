/*
 * product_kernels: which kernel runs a dense or a grouped product on a GPU. A library or a kernel may have several
 * algorithms for one product; these are timed once, and the choice is kept (kernels/core/choices.h). The kernels are in
 * gemm_plain.cu, moe_product.cu, moe_weight.cu, moe_scaled.cu, nv/ and kernels-amd/.
 */
#include "kernels/dense/product_kernels.h"

#include <stdio.h>

enum { PACK_BYTES = 16, PACK = PACK_BYTES / 2 }; /* what kernels move at a time */

/* Dense products */

/* Neither cuBLASLt nor hipBLASLt supports f32 operands with a bf16 result. */
static bool dense_library_can(const void *call, KernelWhy *why)
{
    const GemmArgs *g = ((const DenseCall *)call)->g;
    if (g->k == 0) return kernel_refuses(why, true, "there is nothing to multiply");
    if (g->a.type != DTYPE_F32 || g->c.type == DTYPE_F32) return true;
    return kernel_refuses(why, true, "it makes no bf16 from f32");
}

static void dense_library_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX, "f32, bf16, but no bf16 from f32; proposes an algorithm");
}

size_t dense_workspace(const void *call)
{
    (void)call;
    return DENSE_WORKSPACE;
}

/* Matrix cores read and write packs of 16 bytes. Along k, and along the result, packs are whole. */
static bool dense_matrix_can(const void *call, KernelWhy *why)
{
    const DenseCall *d = call;
    const GemmArgs *g = d->g;
    if (g->a.type != DTYPE_BF16 || g->b.type != DTYPE_BF16)
        return kernel_refuses(why, true, "tensors are %s, it takes bf16", dtype_name(g->a.type));
    if (g->k == 0) return kernel_refuses(why, true, "there is nothing to multiply");
    bool along = !g->a.turned || g->b.turned, fit = g->n % PACK == 0;
    fit = fit && (!along || g->k % PACK == 0);
    fit = fit && g->a.ld % PACK == 0 && g->b.ld % PACK == 0 && g->c.ld % PACK == 0;
    const void *at[] = { g->a.at, g->b.at, g->c.at, d->r };
    for (int i = 0; i < 4; i++) fit = fit && (uintptr_t)at[i] % PACK_BYTES == 0;
    return fit || kernel_refuses(why, false, "rows do not lie at multiples of 16 bytes");
}

static void dense_matrix_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX, "bf16; rows of whole packs of %d bytes", PACK_BYTES);
}

/* Weight gradients with few tiles, which our kernels make in parts of their tokens. */
static bool dense_split_can(const void *call, KernelWhy *why)
{
    const DenseCall *d = call;
    const GemmArgs *g = d->g;
    bool sum = g->a.turned && !g->b.turned && g->c.type == DTYPE_F32 && d->r == g->c.at;
    sum = sum && g->a.ld == g->m && g->b.ld == g->n && g->c.ld == g->n;
    if (!sum || weight_parts(g->m, g->n, g->k) == 1)
        return kernel_refuses(why, true, "it is no weight gradient of few tiles");
    return dense_matrix_can(call, why);
}

static void dense_split_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "bf16 weight gradients of at most 32 tiles, 128 x 256, "
                   "and at least 4096 tokens");
}

OpRun dense_cublaslt, dense_hipblaslt, dense_matrix, dense_plain;
OpRun dense_split_hopper, dense_split_matrix;

static const KernelDesc dense_rows[] = {
    { .name = "split",
      .vendor = VENDOR_NVIDIA,
      .capability_least = 90,
      .capability_most = 90,
      .needs = dense_split_needs,
      .can = dense_split_can,
      .workspace = dense_workspace,
      .run = VENDOR_NVIDIA_OP(dense_split_hopper),
      .work = WORK_GEMM },
    { .name = "cublaslt",
      .vendor = VENDOR_NVIDIA,
      .library = NEEDS(LIBRARY_PRODUCTS),
      .needs = dense_library_needs,
      .can = dense_library_can,
      .workspace = dense_workspace,
      .run = VENDOR_NVIDIA_OP(dense_cublaslt),
      .work = WORK_GEMM },
    { .name = "hipblaslt",
      .vendor = VENDOR_AMD,
      .library = NEEDS(LIBRARY_PRODUCTS),
      .needs = dense_library_needs,
      .can = dense_library_can,
      .workspace = dense_workspace,
      .run = VENDOR_AMD_OP(dense_hipblaslt),
      .work = WORK_GEMM },
    { .name = "split",
      .vendor = VENDOR_AMD,
      .needs = dense_split_needs,
      .can = dense_split_can,
      .workspace = dense_workspace,
      .run = VENDOR_AMD_OP(dense_split_matrix),
      .work = WORK_GEMM },
    { .name = "matrix",
      .vendor = VENDOR_AMD,
      .needs = dense_matrix_needs,
      .can = dense_matrix_can,
      .run = VENDOR_AMD_OP(dense_matrix),
      .work = WORK_GEMM },
    { .name = "plain", .run = GPU_OP(dense_plain), .work = WORK_GEMM },
};
const KernelTable dense_kernels = { NULL, dense_rows, sizeof dense_rows / sizeof *dense_rows };

Status dense_run(Exec *ex, const GemmArgs *g, const void *r, void *workspace)
{
    if (g->m == 0 || g->n == 0) return OK;
    DenseCall call = { g, r == NULL ? g->c.at : r, workspace, 1 };
    return kernels_run(ex, &dense_kernels, NULL, 0, &call);
}

int64_t dense_part_terms(const Exec *ex, const GemmArgs *g)
{
    const DenseCall call = { g, g->c.at, NULL, 1 };
    const KernelDesc *first = kernels_first(&dense_kernels, ex->device, 0, &call);
    const int64_t parts = weight_parts(g->m, g->n, g->k), blocks = (g->k + 127) / 128;
    return first != NULL && first->can == dense_split_can ? (blocks + parts - 1) / parts * 128
                                                          : g->k;
}

static const void *moved(const void *at, Dtype type, int64_t elems)
{
    return (const char *)at + (size_t)elems * dtype_bytes(type);
}

/* One product after the other. */
static Status dense_apart(Exec *ex, const void *args)
{
    const DenseCall *d = args;
    GemmArgs g = *d->g;
    const void *r = d->r;
    for (int64_t i = 0; i < d->count; i++) {
        TRY(dense_run(ex, &g, r, d->workspace));
        g.a.at = moved(g.a.at, g.a.type, product_a_elems(&g));
        g.b.at = moved(g.b.at, g.b.type, product_b_elems(&g));
        g.c.at = (char *)g.c.at + (size_t)product_c_elems(&g) * dtype_bytes(g.c.type);
        r = moved(r, g.c.type, product_c_elems(&g));
    }
    return OK;
}

static const KernelDesc each_rows[] = {
    { .name = "cublaslt",
      .vendor = VENDOR_NVIDIA,
      .library = NEEDS(LIBRARY_PRODUCTS),
      .can = dense_library_can,
      .run = VENDOR_NVIDIA_OP(dense_cublaslt),
      .work = WORK_GEMM },
    { .name = "apart", .run = dense_apart, .work = WORK_GEMM }
};
static const KernelTable each_kernels = { NULL, each_rows, sizeof each_rows / sizeof *each_rows };

Status dense_run_each(Exec *ex, const GemmArgs *g, const void *r, int64_t count, void *workspace)
{
    if (g->m == 0 || g->n == 0) return OK;
    DenseCall call = { g, r == NULL ? g->c.at : r, workspace, count };
    return kernels_run(ex, &each_kernels, NULL, 0, &call);
}

/* Grouped products */

/* Kernels on tensor cores read and write packs of 16 bytes: rows must begin at multiples of them. */
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

OpRun moe_product_hopper, moe_product_mma, moe_product_matrix, moe_product_plain;
OpRun moe_weight_hopper, moe_weight_mma, moe_weight_matrix, moe_weight_plain;
OpRun muon_square_hopper, muon_square_mma, muon_square_matrix, muon_square_plain;

/* The candidates of a family of grouped products: the same kernels, each with the family's epilogue. */
/* clang-format off */
#define GROUPED_ROWS(family, rate)                                                                 \
    { .name = "hopper", .vendor = VENDOR_NVIDIA, .capability_least = 90, .capability_most = 90,    \
      .needs = hopper_needs, .can = hopper_can, .run = VENDOR_NVIDIA_OP(family##_hopper), .work = (rate) },  \
    { .name = "mma", .vendor = VENDOR_NVIDIA, .capability_least = 80, .needs = mma_needs,          \
      .can = mma_can, .run = VENDOR_NVIDIA_OP(family##_mma), .work = (rate) },                               \
    { .name = "matrix", .vendor = VENDOR_AMD, .needs = mma_needs, .can = mma_can,                  \
      .run = VENDOR_AMD_OP(family##_matrix), .work = (rate) },                                     \
    { .name = "plain", .run = GPU_OP(family##_plain), .work = (rate) },
/* clang-format on */

static const KernelDesc grouped_rows[] = { GROUPED_ROWS(moe_product, WORK_GROUPED) };
static const KernelDesc weight_rows[] = { GROUPED_ROWS(moe_weight, WORK_GROUPED_WEIGHT) };
static const KernelDesc square_rows[] = { GROUPED_ROWS(muon_square, WORK_GROUPED) };
enum { ROWS = sizeof grouped_rows / sizeof *grouped_rows };
const KernelTable moe_product_kernels = { NULL, grouped_rows, ROWS };
const KernelTable moe_weight_kernels = { NULL, weight_rows, ROWS };
const KernelTable muon_square_kernels = { NULL, square_rows, ROWS };

/* Grouped products of 8-bit operands. Rows of 16 elements are whole packs. */

enum { SCALED_EXPERTS = 1024, PAIR_BLOCK = OPERAND_BLOCK / 2 };

static bool aligned(const void *at) { return (uintptr_t)at % PACK_BYTES == 0; }

/* Hopper's instructions take any pair of formats; kernels are compiled for these. */
static bool formats_fit(const GroupedCall *c, bool gradient, KernelWhy *why)
{
    Dtype a = c->a->data.dtype, b = c->b->data.dtype;
    if ((a == DTYPE_E4M3 || gradient) && b == DTYPE_E4M3) return true;
    return kernel_refuses(why, true, "operands are %s and %s", dtype_name(a), dtype_name(b));
}

/* What all 8-bit products of Hopper need. columns: k of both operands. */
static bool scaled_fits(const GroupedCall *c, int64_t columns, KernelWhy *why)
{
    bool fit = aligned(c->a->data.data) && aligned(c->b->data.data) && columns % PACK_BYTES == 0;
    for (int i = 0; i < GROUPED_AT; i++) fit = fit && aligned(c->at[i]);
    if (!fit) return kernel_refuses(why, false, "rows do not lie at multiples of 16 bytes");
    if (c->experts <= SCALED_EXPERTS && tensor_elems(&c->a->data) / PACK_BYTES < UINT32_MAX)
        return true;
    return kernel_refuses(why, false, "over %d experts or 2^36 elements", SCALED_EXPERTS);
}

/* A tile has one scale of w for 128 columns, or for 64 gates and for their ups. */
static bool scaled_product_can(const void *call, KernelWhy *why)
{
    const GroupedCall *c = call;
    const MoeProduct *p = c->product;
    int64_t width = p->width;
    bool forward = p->epilogue == MOE_SWIGLU || moe_product_biased(p);
    if (p->act != DTYPE_BF16) return kernel_refuses(why, true, "results are f32, it makes bf16");
    if (!formats_fit(c, !forward, why) || !scaled_fits(c, p->I, why)) return false;
    if (width % PACK != 0)
        return kernel_refuses(why, false, "rows do not lie at multiples of 16 bytes");
    if (p->w->kind == OPERAND_1X128)
        return kernel_refuses(why, true, "w has a scale for each 1 x 128");
    if (p->epilogue != MOE_SWIGLU || p->w->kind != OPERAND_128X128 || width % PAIR_BLOCK == 0)
        return true;
    return kernel_refuses(why, false, "gates and ups are %lld rows, no multiple of %d",
                          (long long)width, PAIR_BLOCK);
}

static bool scaled_weight_can(const void *call, KernelWhy *why)
{
    enum { F32_PACK = PACK_BYTES / 4 };
    const GroupedCall *c = call;
    if (!formats_fit(c, true, why) || !scaled_fits(c, tensor_cols(&c->a->data), why)) return false;
    return c->b->data.dim[0] % F32_PACK == 0 ||
           kernel_refuses(why, false, "rows do not lie at multiples of 16 bytes");
}

static void scaled_product_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "widths multiples of 16, gates of %d; at most %d experts and 2^36 "
                   "elements",
                   PAIR_BLOCK, SCALED_EXPERTS);
}

static void scaled_weight_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX,
                   "left operand e4m3 or e5m2, right e4m3; at most %d experts", SCALED_EXPERTS);
}

OpRun moe_scaled_product_hopper, moe_scaled_product_matrix, moe_scaled_product_plain;
OpRun moe_scaled_weight_hopper, moe_scaled_weight_matrix, moe_scaled_weight_plain;

/* clang-format off */
#define SCALED_ROWS(family, rate)                                                                  \
    { .name = "hopper", .vendor = VENDOR_NVIDIA, .capability_least = 90, .capability_most = 90,    \
      .needs = family##_needs, .can = family##_can, .run = VENDOR_NVIDIA_OP(moe_##family##_hopper),         \
      .work = (rate) },                                                                            \
    { .name = "matrix", .vendor = VENDOR_AMD, .needs = family##_needs, .can = family##_can,        \
      .run = VENDOR_AMD_OP(moe_##family##_matrix), .work = (rate) },                               \
    { .name = "plain", .run = GPU_OP(moe_##family##_plain), .work = (rate) },
/* clang-format on */

static const KernelDesc scaled_rows[] = { SCALED_ROWS(scaled_product, WORK_GROUPED) };
static const KernelDesc scaled_sum_rows[] = { SCALED_ROWS(scaled_weight, WORK_GROUPED_WEIGHT) };
enum { SCALED = sizeof scaled_rows / sizeof *scaled_rows };
const KernelTable moe_scaled_product_kernels = { NULL, scaled_rows, SCALED };
const KernelTable moe_scaled_weight_kernels = { NULL, scaled_sum_rows, SCALED };

/* Products with 8-bit results. Hopper's kernel makes all of them or none. */

static bool is_8_bit(const Operand *q, Dtype type)
{
    return q->kind == OPERAND_1X128 && q->data.dtype == type && aligned(q->data.data);
}

static bool narrow_product_can(const void *call, KernelWhy *why)
{
    const MoeProduct *p = ((const GroupedCall *)call)->product;
    const MoeUpFwd *up = p->args;
    const MoeDownBwdInput *down = p->args;
    bool forward = p->epilogue == MOE_SWIGLU;
    if (!scaled_product_can(call, why)) return false;
    if (!(forward ? up->pow2 : down->pow2))
        return kernel_refuses(why, true, "scales are no powers of two");
    bool all = forward ? is_8_bit(&up->pre, DTYPE_E4M3) && is_8_bit(&up->act, DTYPE_E4M3)
                       : is_8_bit(&down->pre, DTYPE_E4M3) && is_8_bit(&down->wact, DTYPE_E4M3) &&
                             is_8_bit(&down->dpre, p->in->data.dtype) &&
                             is_8_bit(&down->dpre_columns, p->in->data.dtype);
    return all || kernel_refuses(why, true, "it makes all results in 8 bits, in e4m3 or dy's type");
}

static void narrow_product_needs(char out[KERNEL_NEEDS_MAX])
{
    (void)snprintf(out, KERNEL_NEEDS_MAX, "all results in 8 bits, scales that are powers of two");
}

OpRun moe_narrow_product_hopper;

static Status product_apart(Exec *ex, const void *call)
{
    return moe_apart_run(ex, ((const GroupedCall *)call)->product);
}

static const KernelDesc narrow_rows[] = {
    { .name = "hopper",
      .vendor = VENDOR_NVIDIA,
      .capability_least = 90,
      .capability_most = 90,
      .needs = narrow_product_needs,
      .can = narrow_product_can,
      .run = VENDOR_NVIDIA_OP(moe_narrow_product_hopper),
      .work = WORK_GROUPED },
    { .name = "apart", .run = product_apart, .work = WORK_GROUPED }
};
enum { NARROW = sizeof narrow_rows / sizeof *narrow_rows };
const KernelTable moe_narrow_product_kernels = { NULL, narrow_rows, NARROW };

size_t moe_narrow_workspace(const Exec *ex, const MoeProduct *p, size_t shares)
{
    GroupedCall call = moe_product_call(p);
    const KernelTable *t = grouped_kernels(&call, false);
    bool made =
        ex->device != NULL && kernels_first(t, ex->device, 0, &call) != &narrow_rows[NARROW - 1];
    return !p->narrow || made ? shares : moe_apart_workspace(ex, p);
}

const KernelTable *grouped_kernels(const GroupedCall *c, bool sums)
{
    bool scaled = c->a->kind != OPERAND_PLAIN;
    if (!sums && ((const MoeProduct *)c->product)->narrow) return &moe_narrow_product_kernels;
    if (sums) return scaled ? &moe_scaled_weight_kernels : &moe_weight_kernels;
    return scaled ? &moe_scaled_product_kernels : &moe_product_kernels;
}

static const void *data_or_null(const Tensor *t) { return t == NULL ? NULL : t->data; }

/* All addresses that a kernel moves in packs, and the widths of the rows at them. */
GroupedCall moe_product_call(const MoeProduct *p)
{
    const MoeDownBwdInput *down = p->args;
    const void *dpre = p->epilogue == MOE_SWIGLU_BACKWARD ? down->dpre.data.data : NULL;
    return (GroupedCall){
        .a = p->in,
        .b = p->w,
        .experts = tensor_elems(p->offsets) - 1,
        .at = { data_or_null(p->out), data_or_null(p->result), data_or_null(p->bias),
                data_or_null(p->pool), dpre },
        .width = { p->I, p->width },
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
    return kernels_run(ex, grouped_kernels(&call, false), p->op, 0, &call);
}

Status moe_weight_gpu(Exec *ex, const MoeSum *s)
{
    GroupedCall call = moe_sum_call(s);
    return kernels_run(ex, grouped_kernels(&call, true), s->op, 0, &call);
}

GroupedCall muon_square_call(const MuonSquare *s)
{
    return (GroupedCall){ .a = &s->y,
                          .b = &s->y,
                          .experts = tensor_elems(&s->offsets) - 1,
                          .at = { s->out, s->add },
                          .width = { tensor_cols(&s->y.data), s->side },
                          .product = s };
}

Status muon_square_gpu(Exec *ex, const MuonSquare *s)
{
    GroupedCall call = muon_square_call(s);
    return kernels_run(ex, &muon_square_kernels, "muon", 0, &call);
}
