/*
 * Work is cut into heads: forward by (sequence, head), backward by (sequence, key/value head), so
 * that one thread adds up dk and dv of the query heads that share them, always in the same order.
 * Inside a head everything runs on one thread, so results do not depend on how many there are.
 *
 * A head is walked in blocks of BLOCK_Q queries; each meets the keys from the first that one of its
 * rows sees to its last row's own, in blocks of BLOCK_K. Keys outside that range are never touched;
 * inside it, a row's hidden keys get the score -infinity and so the probability 0. The products are
 * gemm's: bf16 operands go in as they are, probabilities are rounded to bf16 for the product that
 * follows (as FlashAttention does on a GPU), all sums are f32.
 */
#include "op/attention.h"

#include "op/cpu_math.h"
#include "op/failure.h"
#include "op/gemm.h"
#include "op/op.h"

#include <math.h>
#include <omp.h>

enum { BLOCK_Q = 64, BLOCK_K = 512, LANES = 16 };

/* What forward and backward have in common. Rows of q begin every H * dk elements, and so on. */
typedef struct Shape {
    int64_t B, H, G, Tq, Tk, dk, dv;
    Dtype act;
    float scale;
    const int32_t *doc; /* (B, Tq) or NULL */
} Shape;

static Shape shape_of(const Tensor *q, const Tensor *k, const Tensor *v, const Tensor *doc,
                      float scale)
{
    Shape s = { .B = q->dim[0], .H = q->dim[2], .Tq = q->dim[1], .dk = q->dim[3] };
    s.G = k->dim[2], s.Tk = k->dim[1], s.dv = v->dim[3];
    s.act = q->dtype, s.scale = scale, s.doc = doc->data;
    return s;
}

static Shape fwd_shape(const AttentionFwd *a)
{
    return shape_of(&a->q, &a->k, &a->v, &a->doc, a->scale);
}

static Shape bwd_shape(const AttentionBwd *a)
{
    return shape_of(&a->q, &a->k, &a->v, &a->doc, a->scale);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Position of query i among the keys: the last key that it sees. */
static int64_t position(const Shape *s, int64_t i) { return i + s->Tk - s->Tq; }

static int64_t first_key(const Shape *s, int64_t b, int64_t i)
{
    if (s->doc == NULL) return 0;
    int64_t first = s->doc[b * s->Tq + i];
    return first < 0 ? 0 : least(first, position(s, i));
}

/*
 * A thread's part of the workspace, as offsets. Rows of scores are a multiple of the vector width
 * apart, plus one vector: rows a power of two apart would fall on the same lines of the cache.
 */
typedef struct Space {
    size_t scores;               /* (BLOCK_Q, ld) f32: scores, then probabilities */
    size_t grads;                /* backward, the same for dp, then ds */
    size_t narrow, narrow_grads; /* bf16: both once more, rounded */
    size_t rows;                 /* (BLOCK_Q, dv or dk) f32: the block's o or dq */
    size_t dk, dv;               /* backward in bf16: (Tk, dk), (Tk, dv) f32 */
    size_t gemm, total;
    int64_t ld;
} Space;

static size_t take(Space *space, size_t elems, size_t each)
{
    size_t at = space->total;
    space->total += arena_rounded(elems * each);
    return at;
}

/* Scratch of the largest of the products below; the last two are backward's. */
static size_t gemm_bytes(const Exec *ex, const Shape *s, bool backward)
{
    int64_t q = least(BLOCK_Q, s->Tq), k = least(BLOCK_K, s->Tk);
    const int64_t mnk[6][3] = { { q, k, s->dk }, { q, s->dv, k }, { q, k, s->dv },
                                { k, s->dv, q }, { k, s->dk, q }, { q, s->dk, k } };
    size_t most = 0;
    for (int i = 0; i < (backward ? 6 : 2); i++) {
        GemmArgs g = { .m = mnk[i][0], .n = mnk[i][1], .k = mnk[i][2] };
        g.a_type = g.b_type = s->act, g.c_type = DTYPE_F32;
        size_t bytes = gemm_workspace(ex, &g);
        if (bytes > most) most = bytes;
    }
    return most;
}

static Space space_of(const Exec *ex, const Shape *s, bool backward)
{
    Space space = { .ld = (least(BLOCK_K, s->Tk) + LANES - 1) / LANES * LANES + LANES };
    bool narrow = s->act != DTYPE_F32;
    size_t block = (size_t)(least(BLOCK_Q, s->Tq) * space.ld), half = dtype_bytes(s->act);
    space.scores = take(&space, block, sizeof(float));
    if (backward) space.grads = take(&space, block, sizeof(float));
    if (narrow) space.narrow = take(&space, block, half);
    if (narrow && backward) space.narrow_grads = take(&space, block, half);
    space.rows = take(&space, (size_t)(BLOCK_Q * (backward ? s->dk : s->dv)), sizeof(float));
    if (narrow && backward) {
        space.dk = take(&space, (size_t)(s->Tk * s->dk), sizeof(float));
        space.dv = take(&space, (size_t)(s->Tk * s->dv), sizeof(float));
    }
    space.gemm = take(&space, gemm_bytes(ex, s, backward), 1);
    return space;
}

/* One block of queries of one head, and the keys it meets now. */
typedef struct Block {
    const Shape *s;
    Space space;
    char *at;       /* the thread's part of the workspace */
    int64_t b, h;   /* sequence, query head */
    int64_t i0, nq; /* queries i0 .. i0 + nq */
    int64_t j0, nk; /* keys j0 .. j0 + nk */
} Block;

static float *floats(const Block *b, size_t offset) { return (float *)(void *)(b->at + offset); }

/* Element (sequence, row, head, 0) of a (B, T, heads, width) tensor. */
static void *head_row(const Tensor *t, int64_t b, int64_t row, int64_t head)
{
    return tensor_at(t, ((b * t->dim[1] + row) * t->dim[2] + head) * t->dim[3]);
}

static int64_t row_stride(const Tensor *t) { return t->dim[2] * t->dim[3]; }

static int64_t kv_head(const Shape *s, int64_t h) { return h * s->G / s->H; }

/* The keys that a block of queries meets: from the first that any of its rows sees, or a few before
 * it, so that a document's start does not leave rows with a remainder of single scores. */
static int64_t block_first_key(const Block *b)
{
    int64_t first = first_key(b->s, b->b, b->i0);
    for (int64_t r = 1; r < b->nq; r++) {
        first = least(first, first_key(b->s, b->b, b->i0 + r));
    }
    return first / LANES * LANES;
}

static int64_t block_end_key(const Block *b) { return position(b->s, b->i0 + b->nq - 1) + 1; }

static GemmArgs product(const Block *b, int64_t m, int64_t n, int64_t k)
{
    return (GemmArgs){
        .m = m, .n = n, .k = k, .a_type = b->s->act, .b_type = b->s->act, .c_type = DTYPE_F32
    };
}

/* to (nq, nk) = x y^T for rows of x at the block's queries and of y at its keys: scores, and dp. */
static Status rows_by_keys(Exec *ex, const Block *b, const Tensor *x, const Tensor *y, float *to)
{
    GemmArgs g = product(b, b->nq, b->nk, x->dim[3]);
    g.a = head_row(x, b->b, b->i0, b->h), g.lda = row_stride(x);
    g.b = head_row(y, b->b, b->j0, kv_head(b->s, b->h)), g.ldb = row_stride(y), g.trans_b = true;
    g.c = to, g.ldc = b->space.ld;
    return gemm_run(ex, &g, b->at + b->space.gemm);
}

/* The block's rows (nq, width) = p y + beta rows, y at the block's keys: o from v, dq from k. */
static Status rows_from_keys(Exec *ex, const Block *b, const void *p, const Tensor *y, float beta)
{
    GemmArgs g = product(b, b->nq, y->dim[3], b->nk);
    g.a = p, g.lda = b->space.ld;
    g.b = head_row(y, b->b, b->j0, kv_head(b->s, b->h)), g.ldb = row_stride(y);
    g.c = floats(b, b->space.rows), g.ldc = y->dim[3], g.beta = beta;
    return gemm_run(ex, &g, b->at + b->space.gemm);
}

/* to (nk, width) += p^T x, x at the block's queries: dv from d_o, dk from q. */
static Status keys_from_rows(Exec *ex, const Block *b, const void *p, const Tensor *x, float *to,
                             int64_t ld_to)
{
    GemmArgs g = product(b, b->nk, x->dim[3], b->nq);
    g.a = p, g.lda = b->space.ld, g.trans_a = true;
    g.b = head_row(x, b->b, b->i0, b->h), g.ldb = row_stride(x);
    g.c = to, g.ldc = ld_to, g.beta = 1;
    return gemm_run(ex, &g, b->at + b->space.gemm);
}

/* Hide the keys of block row r that its query does not see. Whole rows are then worked on with no
 * branch, and lengths that are multiples of the vector width. */
static void hide(const Block *b, int64_t r, float *row)
{
    int64_t i = b->i0 + r;
    int64_t first = least(first_key(b->s, b->b, i) - b->j0, b->nk);
    int64_t end = position(b->s, i) + 1 - b->j0;
    for (int64_t j = 0; j < first; j++) row[j] = -INFINITY;
    for (int64_t j = end < 0 ? 0 : end; j < b->nk; j++) row[j] = -INFINITY;
}

/* The operand that a product takes: the f32 block itself, or its copy in bf16. */
static const void *operand(const Block *b, size_t wide, size_t narrow)
{
    return b->at + (b->s->act == DTYPE_F32 ? wide : narrow);
}

static void round_row(const Block *b, int64_t r, const float *row, size_t narrow)
{
    if (b->s->act == DTYPE_F32) return;
    uint16_t *to = (uint16_t *)(void *)(b->at + narrow) + r * b->space.ld;
    dtype_from_f32(to, b->s->act, row, b->nk);
}

/* forward */

/* Turn a row of scores into e^(score - max) with the running maximum, add them to the running sum;
 * returns the factor for what was summed up with the maximum before. */
static float softmax_row(float *row, int64_t n, float scale, float *max, float *sum)
{
    float most = max_f32(row, n) * scale;
    if (most < *max) most = *max;
    if (most == -INFINITY) { /* nothing seen yet: e^(-inf - -inf) would be NaN */
        memset(row, 0, (size_t)n * sizeof *row);
        return 1;
    }
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t j = 0; j < n; j++) {
        row[j] = exp_f32(row[j] * scale - most);
        part += row[j];
    }
    float factor = exp_f32(*max - most);
    *max = most;
    *sum = *sum * factor + part;
    return factor;
}

static Status fwd_block(Exec *ex, const AttentionFwd *a, Block *b)
{
    const Shape *s = b->s;
    float max[BLOCK_Q], sum[BLOCK_Q], *o = floats(b, b->space.rows);
    for (int64_t r = 0; r < b->nq; r++) max[r] = -INFINITY, sum[r] = 0;
    int64_t first = block_first_key(b), end = block_end_key(b);
    for (b->j0 = first; b->j0 < end; b->j0 += BLOCK_K) {
        b->nk = least(BLOCK_K, end - b->j0);
        float *scores = floats(b, b->space.scores);
        TRY(rows_by_keys(ex, b, &a->q, &a->k, scores));
        for (int64_t r = 0; r < b->nq; r++) {
            float *row = scores + r * b->space.ld;
            hide(b, r, row);
            float factor = softmax_row(row, b->nk, s->scale, &max[r], &sum[r]);
            round_row(b, r, row, b->space.narrow);
            if (b->j0 == first) continue;
            for (int64_t d = 0; d < s->dv; d++) o[r * s->dv + d] *= factor;
        }
        const void *p = operand(b, b->space.scores, b->space.narrow);
        TRY(rows_from_keys(ex, b, p, &a->v, b->j0 == first ? 0 : 1));
    }
    float *lse = (float *)a->lse.data + (b->b * s->H + b->h) * s->Tq + b->i0;
    for (int64_t r = 0; r < b->nq; r++) {
        float inverse = 1 / sum[r];
        for (int64_t d = 0; d < s->dv; d++) o[r * s->dv + d] *= inverse;
        dtype_from_f32(head_row(&a->o, b->b, b->i0 + r, b->h), s->act, o + r * s->dv, s->dv);
        lse[r] = max[r] + logf(sum[r]);
    }
    return OK;
}

static Status fwd_head(Exec *ex, const AttentionFwd *a, Block *b)
{
    for (b->i0 = 0; b->i0 < b->s->Tq; b->i0 += BLOCK_Q) {
        b->nq = least(BLOCK_Q, b->s->Tq - b->i0);
        TRY(fwd_block(ex, a, b));
    }
    return OK;
}

static Status fwd_cpu(Exec *ex, const void *args)
{
    const AttentionFwd *a = args;
    Shape s = fwd_shape(a);
    Space space = space_of(ex, &s, false);
    Failure failure = { 0 };
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t head = 0; head < s.B * s.H; head++) {
        Block b = { .s = &s, .space = space, .b = head / s.H, .h = head % s.H };
        b.at = (char *)ex->workspace + (size_t)omp_get_thread_num() * space.total;
        failure_note(&failure, fwd_head(ex, a, &b));
    }
    return failure_status(&failure);
}

/* backward */

/* Where the gradients of one key/value head are summed up: in the tensors themselves in f32. */
typedef struct KeyGrads {
    float *dk, *dv;
    int64_t ld_dk, ld_dv;
} KeyGrads;

static void clear(float *at, int64_t rows, int64_t width, int64_t ld)
{
    for (int64_t j = 0; j < rows; j++) memset(at + j * ld, 0, (size_t)width * sizeof *at);
}

static KeyGrads key_grads_open(const AttentionBwd *a, const Block *b, int64_t g)
{
    const Shape *s = b->s;
    KeyGrads to = { .ld_dk = s->dk, .ld_dv = s->dv };
    if (s->act == DTYPE_F32) {
        to.dk = head_row(&a->dk, b->b, 0, g), to.ld_dk = row_stride(&a->dk);
        to.dv = head_row(&a->dv, b->b, 0, g), to.ld_dv = row_stride(&a->dv);
    } else {
        to.dk = floats(b, b->space.dk), to.dv = floats(b, b->space.dv);
    }
    clear(to.dk, s->Tk, s->dk, to.ld_dk);
    clear(to.dv, s->Tk, s->dv, to.ld_dv);
    return to;
}

static void key_grads_store(const AttentionBwd *a, const Block *b, int64_t g, const KeyGrads *from)
{
    const Shape *s = b->s;
    if (s->act == DTYPE_F32) return;
    for (int64_t j = 0; j < s->Tk; j++) {
        dtype_from_f32(head_row(&a->dk, b->b, j, g), s->act, from->dk + j * s->dk, s->dk);
        dtype_from_f32(head_row(&a->dv, b->b, j, g), s->act, from->dv + j * s->dv, s->dv);
    }
}

/* sum over d of do * o of query i of the block's head. */
static float delta(const AttentionBwd *a, const Block *b, int64_t i)
{
    enum { PIECE = 64 };
    float wide_o[PIECE], wide_do[PIECE], sum = 0;
    int64_t first = ((b->b * b->s->Tq + i) * b->s->H + b->h) * b->s->dv;
    for (int64_t d = 0; d < b->s->dv; d += PIECE) {
        int64_t n = least(PIECE, b->s->dv - d);
        const float *o = row_load(&a->o, first + d, n, wide_o);
        const float *d_o = row_load(&a->d_o, first + d, n, wide_do);
#pragma omp simd reduction(+ : sum)
        for (int64_t k = 0; k < n; k++) sum += o[k] * d_o[k];
    }
    return sum;
}

/* p = exp(scale * q k^T - lse) in the place of the scores, ds = scale * p * (dp - delta) in the
 * place of dp. */
static void bwd_rows(const Block *b, const float *lse, const float *deltas)
{
    float scale = b->s->scale;
    for (int64_t r = 0; r < b->nq; r++) {
        float *p = floats(b, b->space.scores) + r * b->space.ld;
        float *ds = floats(b, b->space.grads) + r * b->space.ld;
        hide(b, r, p);
        float log_sum = lse[r], row_delta = deltas[r];
#pragma omp simd
        for (int64_t j = 0; j < b->nk; j++) {
            p[j] = exp_f32(p[j] * scale - log_sum);
            ds[j] = scale * p[j] * (ds[j] - row_delta);
        }
        round_row(b, r, p, b->space.narrow);
        round_row(b, r, ds, b->space.narrow_grads);
    }
}

static Status bwd_block(Exec *ex, const AttentionBwd *a, Block *b, const KeyGrads *to)
{
    const Shape *s = b->s;
    const float *lse = (const float *)a->lse.data + (b->b * s->H + b->h) * s->Tq + b->i0;
    float deltas[BLOCK_Q], *dq = floats(b, b->space.rows);
    for (int64_t r = 0; r < b->nq; r++) deltas[r] = delta(a, b, b->i0 + r);
    int64_t first = block_first_key(b), end = block_end_key(b);
    for (b->j0 = first; b->j0 < end; b->j0 += BLOCK_K) {
        b->nk = least(BLOCK_K, end - b->j0);
        TRY(rows_by_keys(ex, b, &a->q, &a->k, floats(b, b->space.scores)));
        TRY(rows_by_keys(ex, b, &a->d_o, &a->v, floats(b, b->space.grads)));
        bwd_rows(b, lse, deltas);
        const void *p = operand(b, b->space.scores, b->space.narrow);
        const void *ds = operand(b, b->space.grads, b->space.narrow_grads);
        TRY(keys_from_rows(ex, b, p, &a->d_o, to->dv + b->j0 * to->ld_dv, to->ld_dv));
        TRY(keys_from_rows(ex, b, ds, &a->q, to->dk + b->j0 * to->ld_dk, to->ld_dk));
        TRY(rows_from_keys(ex, b, ds, &a->k, b->j0 == first ? 0 : 1));
    }
    for (int64_t r = 0; r < b->nq; r++) {
        dtype_from_f32(head_row(&a->dq, b->b, b->i0 + r, b->h), s->act, dq + r * s->dk, s->dk);
    }
    return OK;
}

/* All query heads of one key/value head. */
static Status bwd_head(Exec *ex, const AttentionBwd *a, Block *b, int64_t g)
{
    const Shape *s = b->s;
    KeyGrads to = key_grads_open(a, b, g);
    int64_t heads = s->H / s->G;
    for (b->h = g * heads; b->h < (g + 1) * heads; b->h++) {
        for (b->i0 = 0; b->i0 < s->Tq; b->i0 += BLOCK_Q) {
            b->nq = least(BLOCK_Q, s->Tq - b->i0);
            TRY(bwd_block(ex, a, b, &to));
        }
    }
    key_grads_store(a, b, g, &to);
    return OK;
}

static Status bwd_cpu(Exec *ex, const void *args)
{
    const AttentionBwd *a = args;
    Shape s = bwd_shape(a);
    Space space = space_of(ex, &s, true);
    Failure failure = { 0 };
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t head = 0; head < s.B * s.G; head++) {
        Block b = { .s = &s, .space = space, .b = head / s.G };
        b.at = (char *)ex->workspace + (size_t)omp_get_thread_num() * space.total;
        failure_note(&failure, bwd_head(ex, a, &b, head % s.G));
    }
    return failure_status(&failure);
}

static size_t fwd_workspace(const Exec *ex, const void *args)
{
    Shape s = fwd_shape(args);
    return (size_t)ex->threads * space_of(ex, &s, false).total;
}

static size_t bwd_workspace(const Exec *ex, const void *args)
{
    Shape s = bwd_shape(args);
    return (size_t)ex->threads * space_of(ex, &s, true).total;
}

/* checks and costs */

static Status expect4(const char *op, const char *port, const Tensor *t, const int64_t dim[4],
                      Dtype dtype)
{
    bool fits = t->rank == 4 && t->dtype == dtype;
    for (int i = 0; fits && i < 4; i++) fits = t->dim[i] == dim[i];
    if (fits) return OK;
    char shape[96];
    return FAIL(ERR_SHAPE, "%s: %s is %s, wanted (%lld, %lld, %lld, %lld) %s", op, port,
                tensor_shape_text(t, shape, sizeof shape), (long long)dim[0], (long long)dim[1],
                (long long)dim[2], (long long)dim[3], dtype_name(dtype));
}

static Status check_shape(const char *op, const Tensor *q, const Tensor *k, const Tensor *v,
                          const Tensor *doc)
{
    char shape[96];
    if (q->rank != 4 || (q->dtype != DTYPE_F32 && q->dtype != DTYPE_BF16)) {
        return FAIL(ERR_SHAPE, "%s: q is %s, wanted (B, Tq, H, dk) f32 or bf16", op,
                    tensor_shape_text(q, shape, sizeof shape));
    }
    if (k->rank != 4 || v->rank != 4) {
        return FAIL(ERR_SHAPE, "%s: k has rank %d and v has rank %d, wanted 4", op, k->rank,
                    v->rank);
    }
    Shape s = shape_of(q, k, v, doc, 1);
    TRY(expect4(op, "k", k, (const int64_t[4]){ s.B, s.Tk, s.G, s.dk }, s.act));
    TRY(expect4(op, "v", v, (const int64_t[4]){ s.B, s.Tk, s.G, s.dv }, s.act));
    if (s.dk < 1 || s.dv < 1 || s.H < 1 || s.G < 1 || s.H % s.G != 0) {
        return FAIL(ERR_SHAPE, "%s: %lld heads of %lld do not share %lld key/value heads of %lld",
                    op, (long long)s.H, (long long)s.dk, (long long)s.G, (long long)s.dv);
    }
    if (s.Tk < s.Tq) {
        return FAIL(ERR_SHAPE, "%s: %lld queries but only %lld keys", op, (long long)s.Tq,
                    (long long)s.Tk);
    }
    if (doc->data == NULL) return OK;
    return op_expect(op, "doc", doc, s.B, s.Tq, DTYPE_I32);
}

/* The softmax takes the largest score before it is scaled. */
static Status check_scale(const char *op, float scale)
{
    if (scale > 0) return OK;
    return FAIL(ERR_ARG, "%s: scale is %g, wanted a number above 0", op, (double)scale);
}

static Status fwd_check(const void *args)
{
    const AttentionFwd *a = args;
    const char *op = "attention_fwd";
    TRY(check_shape(op, &a->q, &a->k, &a->v, &a->doc));
    TRY(check_scale(op, a->scale));
    Shape s = fwd_shape(a);
    TRY(expect4(op, "o", &a->o, (const int64_t[4]){ s.B, s.Tq, s.H, s.dv }, s.act));
    return op_expect(op, "lse", &a->lse, s.B * s.H, s.Tq, DTYPE_F32);
}

static Status bwd_check(const void *args)
{
    const AttentionBwd *a = args;
    const char *op = "attention_bwd";
    TRY(check_shape(op, &a->q, &a->k, &a->v, &a->doc));
    TRY(check_scale(op, a->scale));
    Shape s = bwd_shape(a);
    if (s.Tk != s.Tq) {
        return FAIL(ERR_SHAPE, "%s: %lld queries and %lld keys, wanted as many", op,
                    (long long)s.Tq, (long long)s.Tk);
    }
    const int64_t like_o[4] = { s.B, s.Tq, s.H, s.dv };
    TRY(expect4(op, "d_o", &a->d_o, like_o, s.act));
    TRY(expect4(op, "o", &a->o, like_o, s.act));
    TRY(op_expect(op, "lse", &a->lse, s.B * s.H, s.Tq, DTYPE_F32));
    TRY(expect4(op, "dq", &a->dq, a->q.dim, s.act));
    TRY(expect4(op, "dk", &a->dk, a->k.dim, s.act));
    return expect4(op, "dv", &a->dv, a->v.dim, s.act);
}

/*
 * Products only, over the pairs of a query and a key at or before it (the causal half). Documents
 * hide more, but a cost reads no data, so with doc this is an upper bound. Forward does two
 * products a pair; backward five: the scores again, dp, dv, dk and dq. Bytes: every tensor once.
 */
static double pairs_of(const Shape *s)
{
    double Tq = (double)s->Tq, Tk = (double)s->Tk;
    return (double)(s->B * s->H) * (Tq * (Tk - Tq) + Tq * (Tq + 1) / 2);
}

static double bytes_of(const Tensor *t) { return t->data == NULL ? 0 : (double)tensor_bytes(t); }

static OpCost fwd_cost(const void *args)
{
    const AttentionFwd *a = args;
    Shape s = fwd_shape(a);
    return (OpCost){ .flops = 2 * pairs_of(&s) * (double)(s.dk + s.dv),
                     .bytes = bytes_of(&a->q) + bytes_of(&a->k) + bytes_of(&a->v) +
                              bytes_of(&a->doc) + bytes_of(&a->o) + bytes_of(&a->lse) };
}

static OpCost bwd_cost(const void *args)
{
    const AttentionBwd *a = args;
    Shape s = bwd_shape(a);
    double in = bytes_of(&a->q) + bytes_of(&a->k) + bytes_of(&a->v);
    return (OpCost){ .flops = 2 * pairs_of(&s) * (double)(3 * s.dk + 2 * s.dv),
                     .bytes = 2 * in + 2 * bytes_of(&a->o) + bytes_of(&a->lse) +
                              bytes_of(&a->doc) }; /* gradients are as large as their tensors */
}

static const OpPort fwd_ports[] = {
    PORT(AttentionFwd, q, PORT_IN),
    PORT(AttentionFwd, k, PORT_IN),
    PORT(AttentionFwd, v, PORT_IN),
    PORT(AttentionFwd, doc, PORT_IN_OPT),
    PORT(AttentionFwd, o, PORT_OUT),
    PORT(AttentionFwd, lse, PORT_OUT),
    PORTS_END,
};

static const OpPort bwd_ports[] = {
    PORT(AttentionBwd, d_o, PORT_IN),
    PORT(AttentionBwd, q, PORT_IN),
    PORT(AttentionBwd, k, PORT_IN),
    PORT(AttentionBwd, v, PORT_IN),
    PORT(AttentionBwd, doc, PORT_IN_OPT),
    PORT(AttentionBwd, o, PORT_IN),
    PORT(AttentionBwd, lse, PORT_IN),
    PORT(AttentionBwd, dq, PORT_OUT),
    PORT(AttentionBwd, dk, PORT_OUT),
    PORT(AttentionBwd, dv, PORT_OUT),
    PORTS_END,
};

#ifdef HAVE_CUDA
Status attention_fwd_cuda(Exec *ex, const void *args);
Status attention_bwd_cuda(Exec *ex, const void *args);
size_t attention_fwd_cuda_workspace(const Exec *ex, const void *args);
size_t attention_bwd_cuda_workspace(const Exec *ex, const void *args);
#endif

extern const OpDesc attention_fwd_desc, attention_bwd_desc;

const OpDesc attention_fwd_desc = {
    .name = "attention_fwd",
    .args_bytes = sizeof(AttentionFwd),
    .ports = fwd_ports,
    .check = fwd_check,
    .cost = fwd_cost,
    .workspace = fwd_workspace,
    .cpu = fwd_cpu,
    .cuda = CUDA_OP(attention_fwd_cuda),
    .cuda_workspace = CUDA_OP(attention_fwd_cuda_workspace),
};

const OpDesc attention_bwd_desc = {
    .name = "attention_bwd",
    .args_bytes = sizeof(AttentionBwd),
    .ports = bwd_ports,
    .check = bwd_check,
    .cost = bwd_cost,
    .workspace = bwd_workspace,
    .cpu = bwd_cpu,
    .cuda = CUDA_OP(attention_bwd_cuda),
    .cuda_workspace = CUDA_OP(attention_bwd_cuda_workspace),
};
