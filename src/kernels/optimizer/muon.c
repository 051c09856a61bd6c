/* muon: check, cost and CPU version. Matrices follow one another; inside one, products and loops use
 * all threads. Of matrices that ranks split, each rank owns one in a round. */
#include "kernels/optimizer/muon.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"
#include "kernels/dense/gemm.h"

#include <assert.h>
#include <string.h>

enum { PIECE = 1 << 8 }; /* elements at a time: a constant, so bits do not depend on threads */

Status muon_check(const Muon *a)
{
    const MuonShape s = muon_shape(&a->w);
    const int64_t rows = s.count * s.rows;
    Dtype low = a->w_low.dtype == DTYPE_F16 ? DTYPE_F16 : DTYPE_BF16;
    TRY(op_expect("muon", "w", &a->w, rows, s.cols, DTYPE_F32));
    TRY(op_expect("muon", "g", &a->g, rows, s.cols, DTYPE_F32));
    TRY(op_expect_act("muon", "m", &a->m, rows, s.cols));
    if (a->w_low.data != NULL) TRY(op_expect("muon", "w_low", &a->w_low, rows, s.cols, low));
    TRY(op_expect("muon", "clip", &a->clip, 1, 1, DTYPE_F32));
    TRY(op_expect("muon", "hyper", &a->hyper, 1, 1, DTYPE_F32));
    const MuonParts p = muon_parts(a);
    if (p.ranks % p.copies != 0)
        return FAIL(ERR_ARG, "muon: %lld ranks cannot hold each part %lld times",
                    (long long)p.ranks, (long long)p.copies);
    if (a->products == DTYPE_F32 || a->products == DTYPE_BF16) return OK;
    return FAIL(ERR_SHAPE, "muon: products are %s, not f32 or bf16", dtype_name(a->products));
}

/* A step's products: A and its use are 2 side^2 long each, A^2 is 2 side^3. Bytes are those of w, g
 * and m; what lies between the products is left out, as in all costs. Of split matrices a rank owns as
 * many as others, in the mean. It sends its parts of u, padding included, and later as much of X. */
OpCost muon_cost(const Muon *a)
{
    const MuonShape s = muon_owned(a);
    const MuonParts p = muon_parts(a);
    double count = (double)muon_shape(&a->w).count, ranks = (double)p.ranks;
    double sent = 2 * (ranks - 1) * (double)(s.count * p.elems) * (double)dtype_bytes(a->products);
    double n = (double)tensor_elems(&a->w), low = a->w_low.data != NULL ? 2 * n : 0;
    double side = (double)s.side, longer = (double)(s.rows + s.cols - s.side);
    double step = 4 * side * side * longer + 2 * side * side * side;
    return (OpCost){ .flops = count / ranks * a->steps * step,
                     .bytes = (3 * 4 + 2 * (double)dtype_bytes(a->m.dtype)) * n + low,
                     .comm_bytes = sent,
                     .axis = AXIS_TP,
                     .work = WORK_GEMM,
                     .dtype = a->products,
                     .size = side };
}

/* One matrix in work. y, next: (rows, cols); p, q: (side, side); parts: of all ranks, f32. */
typedef struct Work {
    MuonShape s;
    MuonParts split;
    Tensor y, next, p, q, parts[2];
    double *part;  /* a sum of squares for each PIECE */
    void *product; /* scratch of products */
    size_t bytes;
} Work;

static int64_t pieces_of(int64_t n) { return (n + PIECE - 1) / PIECE; }

static int64_t piece_size(int64_t n, int64_t first)
{
    return n - first < PIECE ? n - first : PIECE;
}

/* C = op(A) op(B) + beta C, in the type of the operands. */
static GemmArgs product_of(const Tensor *a, bool a_turned, const Tensor *b, bool b_turned,
                           const Tensor *c, float beta)
{
    return (GemmArgs){ .m = c->dim[0],
                       .n = c->dim[1],
                       .k = a->dim[a_turned ? 0 : 1],
                       .a = { a->data, a->dtype, a->dim[1], a_turned },
                       .b = { b->data, b->dtype, b->dim[1], b_turned },
                       .c = { c->data, c->dtype, c->dim[1] },
                       .beta = beta };
}

typedef enum MuonProduct { GRAM, SQUARE, USE, PRODUCTS } MuonProduct;

static GemmArgs step_product(const Work *k, MuonProduct which)
{
    bool tall = k->s.rows > k->s.cols;
    if (which == GRAM) return product_of(&k->y, tall, &k->y, !tall, &k->p, 0);
    if (which == SQUARE) return product_of(&k->p, false, &k->p, false, &k->q, 0);
    return tall ? product_of(&k->y, false, &k->q, false, &k->next, 1)
                : product_of(&k->q, false, &k->y, false, &k->next, 1);
}

static Tensor take_matrix(void *workspace, size_t *at, Dtype type, int64_t rows, int64_t cols)
{
    Tensor t = { .dtype = type, .rank = 2, .dim = { rows, cols } };
    t.data = muon_take(workspace, at, tensor_bytes(&t));
    return t;
}

static Work work_at(const Exec *ex, const Muon *a, void *workspace)
{
    const MuonShape s = muon_owned(a);
    size_t at = 0, most = 0;
    Work k = { .s = s, .split = muon_parts(a) };
    k.y = take_matrix(workspace, &at, a->products, s.rows, s.cols);
    k.next = take_matrix(workspace, &at, a->products, s.rows, s.cols);
    k.p = take_matrix(workspace, &at, a->products, s.side, s.side);
    k.q = take_matrix(workspace, &at, a->products, s.side, s.side);
    for (int i = 0; i < 2; i++) k.parts[i] = take_matrix(workspace, &at, DTYPE_F32, 1, s.sent);
    k.part = muon_take(workspace, &at, (size_t)pieces_of(s.rows * s.cols) * sizeof *k.part);
    for (int i = 0; i < PRODUCTS; i++) {
        const GemmArgs g = step_product(&k, (MuonProduct)i);
        const size_t bytes = gemm_workspace(ex, &g);
        if (bytes > most) most = bytes;
    }
    k.product = muon_take(workspace, &at, most);
    k.bytes = at;
    return k;
}

size_t muon_workspace(const Exec *ex, const Muon *a) { return work_at(ex, a, NULL).bytes; }

/* u = nesterov ? g' + momentum m : m, for m as it is stored. */
static void momentum_of(const Muon *a, int64_t first, int64_t n, float *u)
{
    const float clip = *(const float *)a->clip.data, keep = a->momentum;
    const float *g = (const float *)a->g.data + first;
    float room[PIECE];
    const float *m = row_load(&a->m, first, n, room);
    for (int64_t i = 0; i < n; i++) u[i] = a->nesterov ? clip * g[i] + keep * m[i] : m[i];
}

static void momentum_piece(const Muon *a, int64_t first, int64_t n)
{
    const float clip = *(const float *)a->clip.data;
    const float *g = (const float *)a->g.data + first;
    float room[PIECE], *m = row_open(&a->m, first, room);
    (void)row_load(&a->m, first, n, m);
    for (int64_t i = 0; i < n; i++) m[i] = a->momentum * m[i] + clip * g[i];
    row_store(&a->m, first, n, m);
}

/* Updates the momentum of n elements from `at` on. u: where to put theirs; NULL: nowhere. */
static void momentum(Exec *ex, const Muon *a, int64_t at, int64_t n, float *u)
{
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t m = piece_size(n, first);
        momentum_piece(a, at + first, m);
        if (u != NULL) momentum_of(a, at + first, m, u + first);
    }
}

/* u of the matrix at element `at`; given: the whole u, if ranks have made parts of it, else NULL. */
static const float *load_u(const Muon *a, int64_t at, const float *given, int64_t first, int64_t n,
                           float room[PIECE])
{
    if (given != NULL) return given + first;
    momentum_of(a, at + first, n, room);
    return room;
}

/* y = u / (|u| + eps). at, given: as for load_u. */
static void begin(Exec *ex, const Muon *a, int64_t at, const float *given, const Work *k)
{
    const int64_t n = k->s.rows * k->s.cols;
    double sum = 0;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t p = 0; p < pieces_of(n); p++) {
        const int64_t m = piece_size(n, p * PIECE);
        float room[PIECE];
        const float *u = load_u(a, at, given, p * PIECE, m, room);
        k->part[p] = 0;
        for (int64_t i = 0; i < m; i++) k->part[p] += (double)u[i] * (double)u[i];
    }
    for (int64_t i = 0; i < pieces_of(n); i++) sum += k->part[i];
    const float by = (float)(1 / (sqrt(sum) + (double)MUON_EPS));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t m = piece_size(n, first);
        float room[PIECE], y[PIECE];
        const float *u = load_u(a, at, given, first, m, room);
        for (int64_t i = 0; i < m; i++) y[i] = u[i] * by;
        row_store(&k->y, first, m, y);
    }
}

/* q = linear p + square q */
static void combine(Exec *ex, const Work *k, MuonFactors f)
{
    const int64_t n = tensor_elems(&k->q);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t m = piece_size(n, first);
        float p_room[PIECE], q_room[PIECE], *q = row_open(&k->q, first, q_room);
        const float *p = row_load(&k->p, first, m, p_room);
        (void)row_load(&k->q, first, m, q);
        for (int64_t i = 0; i < m; i++) q[i] = f.linear * p[i] + f.square * q[i];
        row_store(&k->q, first, m, q);
    }
}

static Status orthogonalise(Exec *ex, const Muon *a, Work *k)
{
    for (int step = 0; step < a->steps; step++) {
        GemmArgs gram = step_product(k, GRAM), square = step_product(k, SQUARE);
        TRY(gemm_run(ex, &gram, k->product));
        TRY(gemm_run(ex, &square, k->product));
        combine(ex, k, muon_factors(step));
        GemmArgs use = step_product(k, USE);
        memcpy(k->next.data, k->y.data, tensor_bytes(&k->y));
        TRY(gemm_run(ex, &use, k->product));
        const Tensor y = k->y;
        k->y = k->next, k->next = y;
    }
    return OK;
}

/* w -= lr (decay w + scale X), X = muon_size Y, for n elements from `at` on. */
static void apply(Exec *ex, const Muon *a, int64_t at, int64_t n, const Tensor *y)
{
    const float lr = *(const float *)a->hyper.data, keep = 1 - lr * a->decay;
    const float rate = lr * a->scale * (float)muon_size(a->steps);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t m = piece_size(n, first);
        float room[PIECE], *w = (float *)a->w.data + at + first;
        const float *x = row_load(y, first, m, room);
        for (int64_t i = 0; i < m; i++) w[i] = keep * w[i] - rate * x[i];
        if (a->w_low.data != NULL) row_store(&a->w_low, at + first, m, w);
    }
}

/* Matrices that ranks split */

Status muon_group_of(Exec *ex, const Muon *a, Comm **out)
{
    const MeshGroup group = a->of_experts ? GROUP_EXPERT_PARTS : GROUP_TP;
    Comm *c = ex->mesh == NULL ? NULL : ex->mesh->group[group];
    if (c == NULL || c->size != a->ranks)
        return FAIL(ERR_ARG, "muon: matrices of %lld ranks, but the mesh has %d ranks of %s",
                    (long long)a->ranks, c == NULL ? 1 : c->size, mesh_group_names[group]);
    *out = c;
    return OK;
}

/* Copies a part of a matrix, which is f32, between its own place and the whole matrix. */
static void copy_part(Exec *ex, const Work *k, int64_t part, float *own, const Tensor *whole,
                      bool joins)
{
    const MuonParts *p = &k->split;
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t line = 0; line < p->elems / p->run; line++) {
        const int64_t at = line * p->stride + part * p->run;
        float *from = own + line * p->run;
        if (joins)
            row_store(whole, at, p->run, from);
        else
            dtype_to_f32(from, tensor_at(whole, at), whole->dtype, p->run);
    }
}

/* Makes y of the u whose parts have come, and leaves parts of X in their place. */
static Status update_owned(Exec *ex, const Muon *a, Work *k)
{
    const MuonParts *p = &k->split;
    float *came = k->parts[1].data;
    for (int64_t r = 0; r < p->ranks; r += p->copies)
        copy_part(ex, k, r / p->copies, came + r * p->elems, &k->parts[0], true);
    begin(ex, a, 0, k->parts[0].data, k);
    TRY(orthogonalise(ex, a, k));
    for (int64_t r = 0; r < p->ranks; r++)
        copy_part(ex, k, r / p->copies, came + r * p->elems, &k->y, false);
    return OK;
}

/* The parts of n matrices, at most one a rank, from element `at` on. Rank i owns the i-th. */
static Status update_round(Exec *ex, const Muon *a, Comm *c, Work *k, int64_t at, int64_t n)
{
    const int64_t elems = n * k->split.elems;
    momentum(ex, a, at, elems, k->parts[0].data);
    TRY(comm_all_to_all(c, &k->parts[0], &k->parts[1]));
    if (c->rank < n) TRY(update_owned(ex, a, k));
    TRY(comm_all_to_all(c, &k->parts[1], &k->parts[0]));
    apply(ex, a, at, elems, &k->parts[0]);
    return OK;
}

static Status update_parts(Exec *ex, const Muon *a, Work *k)
{
    const int64_t count = muon_shape(&a->w).count, ranks = k->split.ranks;
    Comm *c = NULL;
    TRY(muon_group_of(ex, a, &c));
    for (int64_t i = 0; i < count; i += ranks)
        TRY(update_round(ex, a, c, k, i * k->split.elems, count - i < ranks ? count - i : ranks));
    return OK;
}

Status muon_cpu(Exec *ex, const Muon *a)
{
    if (!isfinite(*(const float *)a->clip.data)) return OK; /* a skipped step, on all ranks */
    assert(ex->workspace != NULL);                          /* op_run has placed it */
    Work k = work_at(ex, a, ex->workspace);
    const int64_t n = k.s.rows * k.s.cols;
    if (k.split.ranks > 1) return update_parts(ex, a, &k);
    for (int64_t i = 0; i < k.s.count; i++) {
        momentum(ex, a, i * n, n, NULL);
        begin(ex, a, i * n, NULL, &k);
        TRY(orthogonalise(ex, a, &k));
        apply(ex, a, i * n, n, &k.y);
    }
    return OK;
}

OP_PORTS(muon, ADD(Muon, w), IN(Muon, g), ADD(Muon, m), OUT_OPT(Muon, w_low), IN(Muon, clip),
         IN(Muon, hyper));
