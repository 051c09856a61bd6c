/*
 * linear: the three ops on a GPU. The products run as dense candidates (product_kernels.c), those of
 * 8-bit operands as candidates of their own (scaled_kernels.c).
 *
 * If f32 and bf16 meet (the router's products), all is multiplied on tensor cores. An f32 operand is written as a sum
 * of bf16 parts, v = v0 + v1 + v2 to within 2^-24 of v: each rounding leaves a rest of 2^-9 of what it rounded. The
 * parts are stored side by side, so that one product computes all that is needed:
 *
 *   one operand is f32: the parts make three times as many rows (or columns) of the result, which
 *     are added up:                       x W^T       = x W0^T + x W1^T + x W2^T
 *   both are, and the result is bf16: three products, to 2^-16 of each term, are one sum of three
 *     times as many terms:                dy W        = [ dy0 dy0 dy1 ] [ W0; W1; W0 ]
 *
 * bf16 times bf16 is exact in f32. But tensor cores truncate when they add to a sum (Fasi et al.,
 * doi:10.7717/peerj-cs.330), 16 terms at a time. These errors have one sign and grow with the
 * number of terms, while errors of f32 additions grow with its root. So a long sum is cut into
 * pieces of about 12 sqrt(k) terms, whose sums C's additions round. Simulated on a CPU, the error
 * is then 0.5 - 0.8 times that of a plain f32 sum of 2048 - 16384 terms; in one piece it would be 3
 * - 11 times.
 *
 * Such a call is cut along N, so that the parts of a whole batch never exist at once.
 */
#include "kernels/core/kernel.cuh"

extern "C" {
#include "kernels/dense/product.h"
}

#include <cmath>

static const int64_t CUT_ROWS = 8192;
static const int THREADS = 256, EACH = 4, PARTS = 3;
static const int PIECE_UNIT = 64; /* terms: a step of a tile */

/* Which operands are split into parts, and the bytes of their parts and of the result's parts. */
typedef struct Split {
    bool a, b, along_k;
    int64_t rows; /* of N at a time */
    size_t a_bytes, b_bytes, c_bytes;
} Split;

static size_t parts_bytes(int64_t elems, size_t each)
{
    return arena_rounded((size_t)(PARTS * elems) * each);
}

static Split split_of(const Product *p)
{
    GemmArgs g = p->g;
    bool a = g.a.type == DTYPE_F32, b = g.b.type == DTYPE_F32;
    Split s = { a, b, a && b, product_row_count(p), 0, 0, 0 };
    if (!product_mixed(&g)) return Split{ false, false, false, s.rows, 0, 0, 0 };
    if (s.rows > CUT_ROWS) s.rows = CUT_ROWS;
    *(p->sum_over_rows ? &g.k : &g.m) = s.rows;
    if (a) s.a_bytes = parts_bytes(product_a_elems(&g), sizeof(Bf16));
    if (b) s.b_bytes = parts_bytes(product_b_elems(&g), sizeof(Bf16));
    if (!s.along_k) s.c_bytes = parts_bytes(g.m * g.n, sizeof(float));
    return s;
}

extern "C" size_t linear_gpu_workspace(const struct Exec *, const Linear *l)
{
    if (linear_is_scaled(l)) {
        ScaledArgs scaled = linear_scaled_args(l);
        return scaled_dense_workspace(&scaled);
    }
    Product p = linear_product(l);
    Split s = split_of(&p);
    return DENSE_WORKSPACE + s.a_bytes + s.b_bytes + s.c_bytes;
}

/* The layout of the parts of a matrix: element (r, c) of part i is at r * row + c + i * part. */
typedef struct Parts {
    int64_t cols, row, part;
} Parts;

static Parts parts_of(int64_t rows, int64_t cols, bool side_by_side)
{
    if (side_by_side) return Parts{ cols, PARTS * cols, cols };
    return Parts{ cols, cols, rows * cols };
}

/* Which part of a number is stored at which of the three positions. */
typedef struct Order {
    int part[PARTS];
} Order;

/* Splits numbers into their parts. Neighbouring threads handle neighbouring elements; a thread
 * handles EACH of them, THREADS apart. */
static __global__ void split_kernel(const float *from, Bf16 *to, int64_t n, Parts at, Order order)
{
    int64_t first = (int64_t)blockIdx.x * THREADS * EACH + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * THREADS;
        if (i >= n) return;
        Bf16 *out = to + i / at.cols * at.row + i % at.cols, part[PARTS];
        float rest = from[i];
#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            part[j] = from_f32<Bf16>(rest);
            rest -= to_f32(part[j]);
        }
#pragma unroll
        for (int j = 0; j < PARTS; j++) {
            int which = order.part[j];
            out[j * at.part] = which == 0 ? part[0] : which == 1 ? part[1] : part[2];
        }
    }
}

/* to = r + the parts of `from`, the smallest first; r: NULL, or `to` itself. */
template <typename T>
static __global__ void join_kernel(const float *from, const T *r, T *to, int64_t n, Parts at)
{
    int64_t first = (int64_t)blockIdx.x * THREADS * EACH + threadIdx.x;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t i = first + k * THREADS;
        if (i >= n) return;
        const float *in = from + i / at.cols * at.row + i % at.cols;
        float sum = in[0] + (in[at.part] + in[2 * at.part]);
        to[i] = from_f32<T>(sum + (r == NULL ? 0.0f : to_f32(r[i])));
    }
}

/* Splits an operand of `rows` rows of *ld elements into its parts, and sets *ld to their row
 * length. from NULL: the parts already exist. */
static Status take_apart(struct Exec *ex, const void *from, void *to, int64_t rows, int64_t *ld,
                         bool side_by_side, Order order)
{
    int64_t n = rows * *ld;
    Parts at = parts_of(rows, *ld, side_by_side);
    *ld = at.row;
    if (from == NULL) return OK;
    split_kernel<<<grid_of(n, THREADS * EACH), THREADS, 0, exec_stream(ex)>>>(
        (const float *)from, (Bf16 *)to, n, at, order);
    return kernel_status("linear");
}

static Status join(struct Exec *ex, const float *from, const Product *p, Parts at)
{
    const GemmArgs *g = &p->g;
    int64_t n = g->m * g->n;
    const void *r = g->beta == 0 ? NULL : p->r != NULL ? p->r : g->c.at;
    unsigned grid = grid_of(n, THREADS * EACH);
    if (g->c.type == DTYPE_F32) {
        join_kernel<<<grid, THREADS, 0, exec_stream(ex)>>>(from, (const float *)r, (float *)g->c.at,
                                                           n, at);
    } else {
        join_kernel<<<grid, THREADS, 0, exec_stream(ex)>>>(from, (const Bf16 *)r, (Bf16 *)g->c.at,
                                                           n, at);
    }
    return kernel_status("linear");
}

/* c = the products of the parts, or c += if `more`, cut along k so that pieces are added in f32. */
static Status in_pieces(struct Exec *ex, const GemmArgs *g, bool more, void *blas_space)
{
    int64_t units = (int64_t)ceil(12 * sqrt((double)g->k) / PIECE_UNIT), each = units * PIECE_UNIT;
    GemmArgs all = *g;
    all.beta = more ? 1 : 0;
    if (dense_part_terms(ex, g) <= each) each = g->k; /* the kernel's parts are such pieces */
    for (int64_t first = 0; first < g->k; first += each) {
        int64_t left = g->k - first;
        GemmArgs piece = gemm_terms(all, first, left < each ? left : each);
        TRY(dense_run(ex, &piece, NULL, blas_space));
    }
    return OK;
}

/* Runs rows [first, first + n) of N. An operand that all such calls read whole is split in the first. */
static Status part_run(struct Exec *ex, const Product *p, const Split *s, int64_t first, int64_t n)
{
    Product part = product_rows(p, first, n);
    GemmArgs g = part.g;
    char *blas_space = (char *)exec_workspace(ex), *a = blas_space + DENSE_WORKSPACE;
    char *b = a + s->a_bytes, *c = b + s->b_bytes;
    bool again = first > 0 && !p->sum_over_rows;
    if (!s->a && !s->b) return dense_run(ex, &g, part.r, blas_space);
    if (s->a) {
        TRY(take_apart(ex, g.a.at, a, g.a.turned ? g.k : g.m, &g.a.ld, s->along_k == !g.a.turned,
                       s->along_k ? Order{ 0, 0, 1 } : Order{ 0, 1, 2 }));
        g.a.at = a;
    }
    if (s->b) {
        TRY(take_apart(ex, again ? NULL : g.b.at, b, g.b.turned ? g.n : g.k, &g.b.ld,
                       s->along_k == g.b.turned, s->along_k ? Order{ 0, 1, 0 } : Order{ 0, 1, 2 }));
        g.b.at = b;
    }
    g.a.type = g.b.type = DTYPE_BF16;
    *(s->along_k ? &g.k : s->a ? &g.m : &g.n) *= PARTS;
    if (s->along_k) return dense_run(ex, &g, part.r, blas_space);
    g.c.at = c;
    g.c.type = DTYPE_F32;
    g.c.ld = g.n;
    TRY(in_pieces(ex, &g, p->sum_over_rows && first > 0, blas_space));
    if (p->sum_over_rows && first + n < p->g.k) return OK;
    return join(ex, (const float *)(void *)c, &part, parts_of(part.g.m, part.g.n, s->b));
}

extern "C" Status linear_gpu(struct Exec *ex, const Linear *l)
{
    if (linear_is_scaled(l)) {
        ScaledArgs scaled = linear_scaled_args(l);
        return scaled_dense_run(ex, l->op, &scaled, exec_workspace(ex));
    }
    Product p = linear_product(l);
    Split s = split_of(&p);
    for (int64_t first = 0, N = product_row_count(&p); first < N; first += s.rows)
        TRY(part_run(ex, &p, &s, first, N - first < s.rows ? N - first : s.rows));
    return OK;
}
