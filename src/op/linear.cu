/*
 * linear: the three ops. The products are cuBLASLt's (blas.cuh). What it does not take is brought
 * into its shape in the workspace, by small kernels that are bound by memory: operands of two types
 * (the router's) are both made f32, and what leaves f32 operands in bf16 is made in f32 and
 * narrowed. Such a call is cut along N, so that the wide copies of a batch never exist as a whole.
 */
#include "op/blas.cuh"

#include "op/elementwise.h"
#include "op/product.h"

extern "C" Status elementwise_cuda(struct Exec *ex, const Elementwise *e);

static const int64_t CUT_ROWS = 4096; /* fills the chip with tiles of 128 x 128 from n = 512 on */
static const int THREADS = 256, EACH = 4;

extern "C" size_t linear_cuda_workspace(const struct Exec *, const Linear *l)
{
    Product p = linear_product(l);
    ProductCut cut = product_cut(&p, CUT_ROWS, true);
    return BLAS_WORKSPACE_BYTES + cut.a_bytes + cut.b_bytes + cut.c_bytes;
}

/* to = from + r, r may be `to` itself. Neighbouring threads take neighbouring elements; a thread
 * EACH of them, a block apart. */
static __global__ void narrow_kernel(const float *from, const Bf16 *r, Bf16 *to, int64_t n)
{
    int64_t first = (int64_t)blockIdx.x * THREADS * EACH + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * THREADS;
        if (i < n) to[i] = from_f32<Bf16>(from[i] + (r == NULL ? 0.0f : to_f32(r[i])));
    }
}

static Status widen(struct Exec *ex, const void *from, void *to, int64_t n)
{
    const Tensor x = { const_cast<void *>(from), DTYPE_BF16, 1, { n } };
    const Tensor y = { to, DTYPE_F32, 1, { n } };
    const Elementwise cast = { "linear", &x, &y, false };
    return elementwise_cuda(ex, &cast);
}

static Status narrow(struct Exec *ex, const void *from, const Product *p)
{
    int64_t n = p->g.m * p->g.c.ld;
    const void *r = p->g.beta == 0 ? NULL : p->r != NULL ? p->r : p->g.c.at;
    narrow_kernel<<<grid_of(n, THREADS * EACH), THREADS, 0, exec_stream(ex)>>>(
        (const float *)from, (const Bf16 *)r, (Bf16 *)p->g.c.at, n);
    return kernel_status("linear");
}

/* Rows [first, first + n). An operand that every part reads whole is widened with the first. */
static Status part_run(struct Exec *ex, const Product *p, const ProductCut *cut, int64_t first,
                       int64_t n)
{
    Product part = product_rows(p, first, n);
    GemmArgs g = part.g;
    char *blas_space = (char *)exec_workspace(ex), *a = blas_space + BLAS_WORKSPACE_BYTES;
    char *b = a + cut->a_bytes, *c = b + cut->b_bytes;
    if (cut->a_bytes > 0) {
        TRY(widen(ex, g.a.at, a, product_a_elems(&g)));
        g.a.at = a;
        g.a.type = DTYPE_F32;
    }
    if (cut->b_bytes > 0) {
        if (p->sum_over_rows || first == 0) TRY(widen(ex, g.b.at, b, product_b_elems(&g)));
        g.b.at = b;
        g.b.type = DTYPE_F32;
    }
    if (cut->c_bytes == 0) return blas_run(ex, &g, part.r, blas_space);
    g.c.at = c;
    g.c.type = DTYPE_F32;
    g.beta = 0;
    TRY(blas_run(ex, &g, NULL, blas_space));
    return narrow(ex, c, &part);
}

extern "C" Status linear_cuda(struct Exec *ex, const Linear *l)
{
    Product p = linear_product(l);
    ProductCut cut = product_cut(&p, CUT_ROWS, true);
    for (int64_t first = 0, N = product_row_count(&p); first < N; first += cut.rows)
        TRY(part_run(ex, &p, &cut, first, N - first < cut.rows ? N - first : cut.rows));
    return OK;
}
