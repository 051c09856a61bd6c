/*
 * optest: what tests of ops share: a place to run them, tensors to run them on, and a comparison.
 *
 *     OpTest *t = *state;                       of OP_TEST(name, threads)
 *     Add a = { .x = optest_normal(t, DTYPE_BF16, DIMS(7, 130)), ... };
 *     double *want = optest_read(t, &a.x);      the double reference works on these
 *     CHECK_OK(add(&t->ex, a));
 *     CHECK_TENSOR(&a.y, want);
 *
 * Inputs are random and never zero unless asked for, outputs begin as NaN, and the guard stands in
 * front of the CPU, so an element that an op forgot is an error that names it. Everything lives in
 * t->arena until the test ends; a loop over many cases takes a mark and releases it.
 *
 * A tensor matches its reference if |out - ref| <= limit * |ref| in the Frobenius norm, over the
 * whole tensor AND over every row AND over every 128 x 128 tile: one norm over everything hides
 * four wrong rows in a hundred thousand. A row or tile whose reference is under 1e-3 of the mean
 * row norm is held to that norm instead, or rounding alone would fail it.
 */
#ifndef TESTS_HARNESS_OPTEST_H
#define TESTS_HARNESS_OPTEST_H

#include "harness/test.h"

#include "engine/backend/backend.h"
#include "engine/base/rng.h"

#include <assert.h>

typedef struct OpTest {
    Arena arena;    /* tensors and references */
    Arena scratch;  /* of ops */
    Exec ex;        /* guard over cpu */
    uint64_t drawn; /* random tensors so far: each has its own stream */
} OpTest;

static inline Status mirror_push(Exec *ex);

static inline void optest_open(OpTest *t, int threads)
{
    *t = (OpTest){ 0 };
    CHECK_OK(arena_init(&t->arena, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&t->scratch, "scratch", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(exec_init(&t->ex, &t->arena, &t->scratch, threads, CPU_AUTO));
    exec_push(&t->ex, &backend_guard);
    CHECK_OK(mirror_push(&t->ex));
}

/* Take the guard away, for a test in which a NaN is right. */
static inline void optest_unguard(OpTest *t)
{
    int kept = 0;
    for (int i = 0; i < t->ex.depth; i++) {
        if (t->ex.front[i] != &backend_guard) t->ex.front[kept++] = t->ex.front[i];
    }
    t->ex.depth = kept;
}

static inline void optest_close(OpTest *t)
{
    exec_free(&t->ex);
    arena_free(&t->scratch);
    arena_free(&t->arena);
}

static inline int optest_set_up(void **state)
{
    static OpTest t;
    optest_open(&t, *(const int *)*state);
    *state = &t;
    return 0;
}

static inline int optest_tear_down(void **state)
{
    optest_close(*state);
    return 0;
}

/* A test that gets an OpTest of so many threads as *state. */
#define OP_TEST(name, threads)                                                                     \
    cmocka_unit_test_prestate_setup_teardown(name, optest_set_up, optest_tear_down,                \
                                             &(int){ threads })

/* Elements as doubles: floats and i32; setting rounds to nearest. */

static inline double optest_get(const Tensor *t, int64_t i)
{
    float v = 0;
    if (t->dtype == DTYPE_I32) return ((const int32_t *)t->data)[i];
    if (t->dtype == DTYPE_F32) return (double)((const float *)t->data)[i];
    dtype_to_f32(&v, tensor_at(t, i), t->dtype, 1);
    return (double)v;
}

static inline void optest_set(const Tensor *t, int64_t i, double value)
{
    float v = (float)value;
    if (t->dtype == DTYPE_I32)
        ((int32_t *)t->data)[i] = (int32_t)value;
    else
        dtype_from_f32(tensor_at(t, i), t->dtype, &v, 1);
}

/* n doubles, each NaN: a reference that leaves one out fails. */
static inline double *optest_doubles(OpTest *t, int64_t n)
{
    void *at = NULL;
    CHECK_OK(arena_alloc(&t->arena, (size_t)n * sizeof(double), &at));
    memset(at, 0xFF, (size_t)n * sizeof(double));
    return at;
}

static inline double *optest_read(OpTest *t, const Tensor *from)
{
    int64_t n = tensor_elems(from);
    double *to = optest_doubles(t, n);
    for (int64_t i = 0; i < n; i++) to[i] = optest_get(from, i);
    return to;
}

static inline void optest_write(const Tensor *to, const double *from)
{
    for (int64_t i = 0; i < tensor_elems(to); i++) optest_set(to, i, from[i]);
}

/* Tensors. DIMS holds one to four numbers. */

#define DIMS(...) ((const int64_t[5]){ __VA_ARGS__, 0 })

/* All bits set: NaN in every floating type, -1 in integers. */
static inline Tensor optest_poisoned(OpTest *t, Dtype dtype, const int64_t *dims)
{
    Tensor out;
    int rank = 0;
    while (dims[rank] > 0) rank++;
    CHECK_OK(tensor_new(&t->arena, dtype, rank, dims, &out));
    memset(out.data, 0xFF, tensor_bytes(&out));
    return out;
}

/* N(0, 1), rounded to the type; no element is 0. */
static inline Tensor optest_normal(OpTest *t, Dtype dtype, const int64_t *dims)
{
    enum { CHUNK = 256 };
    float chunk[CHUNK];
    Tensor out = optest_poisoned(t, dtype, dims);
    uint64_t stream = t->drawn++;
    for (int64_t i = 0; i < tensor_elems(&out); i++) {
        if (i % CHUNK == 0) rng_fill_normal(chunk, CHUNK, 1, stream, (uint64_t)i, 1);
        float value = chunk[i % CHUNK];
        optest_set(&out, i, value == 0 ? 1 : (double)value);
    }
    return out;
}

/* Integers of 0 .. limit - 1, plus `lowest`, in any type. */
static inline Tensor optest_integers(OpTest *t, Dtype dtype, const int64_t *dims, int64_t lowest,
                                     int64_t limit)
{
    Tensor out = optest_poisoned(t, dtype, dims);
    uint64_t stream = t->drawn++;
    for (int64_t i = 0; i < tensor_elems(&out); i++) {
        uint64_t drawn = rng_below(1, stream, (uint64_t)i, (uint64_t)limit);
        optest_set(&out, i, (double)(lowest + (int64_t)drawn));
    }
    return out;
}

/* -1, 0 or 1: sums of products are exact, so results are compared to the bit. */
static inline Tensor optest_signs(OpTest *t, Dtype dtype, const int64_t *dims)
{
    return optest_integers(t, dtype, dims, -1, 3);
}

static inline Tensor optest_copy(OpTest *t, const Tensor *from)
{
    Tensor out;
    CHECK_OK(tensor_new(&t->arena, from->dtype, from->rank, from->dim, &out));
    memcpy(out.data, from->data, tensor_bytes(from));
    return out;
}

/* Comparison. */

typedef enum OpLimit { LIMIT_PLAIN, LIMIT_ATTENTION, LIMIT_COUNT } OpLimit;

/* The one table of limits. bf16 rounds an element by 2^-9 of itself on average; attention rounds
 * its probabilities as well. */
static inline double optest_limit(OpLimit kind, Dtype dtype)
{
    static const struct {
        double f32, bf16;
    } limits[LIMIT_COUNT] = {
        [LIMIT_PLAIN] = { 1e-5, 5e-3 },
        [LIMIT_ATTENTION] = { 1e-5, 1e-2 },
    };
    return dtype == DTYPE_F32 ? limits[kind].f32 : limits[kind].bf16;
}

typedef struct OpPart {
    int64_t row, col, rows, cols;
} OpPart;

/* How far a tensor is from its reference, where it is furthest. */
typedef struct OpMatch {
    double ratio;          /* error / held_to; infinite where there is a NaN */
    double error, held_to; /* norm of out - ref; of ref, or 1e-3 of the mean row norm */
    OpPart part;
} OpMatch;

/* Norms of out - ref and of ref over a part; a row has `width` columns. */
static inline void optest_norms(const Tensor *out, const double *ref, int64_t width, OpPart p,
                                double norm[2])
{
    double error = 0, size = 0;
    for (int64_t r = p.row; r < p.row + p.rows; r++) {
        for (int64_t i = r * width + p.col; i < r * width + p.col + p.cols; i++) {
            double e = optest_get(out, i) - ref[i];
            error += e * e;
            size += ref[i] * ref[i];
        }
    }
    norm[0] = sqrt(error), norm[1] = sqrt(size);
}

static inline void optest_match_part(const Tensor *out, const double *ref, OpPart p, double least,
                                     OpMatch *worst)
{
    double norm[2];
    optest_norms(out, ref, tensor_cols(out), p, norm);
    double held_to = norm[1] > least ? norm[1] : least;
    double ratio = norm[0] == 0 ? 0 : norm[0] / held_to;
    if (isnan(ratio)) ratio = (double)INFINITY;
    if (ratio > worst->ratio) *worst = (OpMatch){ ratio, norm[0], held_to, p };
}

/* small: share of the mean row norm that every part is held to at least. */
static inline OpMatch optest_match_above(const Tensor *out, const double *ref, double small)
{
    enum { TILE = 128 };
    int64_t width = tensor_cols(out), rows = tensor_elems(out) / width;
    double sum = 0, norm[2];
    for (int64_t r = 0; r < rows; r++) {
        optest_norms(out, ref, width, (OpPart){ r, 0, 1, width }, norm);
        sum += norm[1];
    }
    double least = small * sum / (double)rows;
    OpMatch worst = { .ratio = -1 };
    optest_match_part(out, ref, (OpPart){ 0, 0, rows, width }, least, &worst);
    for (int64_t r = 0; r < rows; r++) {
        optest_match_part(out, ref, (OpPart){ r, 0, 1, width }, least, &worst);
    }
    for (int64_t r = 0; r < rows; r += TILE) {
        for (int64_t c = 0; c < width; c += TILE) {
            OpPart tile = { r, c, rows - r, width - c };
            if (tile.rows > TILE) tile.rows = TILE;
            if (tile.cols > TILE) tile.cols = TILE;
            optest_match_part(out, ref, tile, least, &worst);
        }
    }
    return worst;
}

static const double OPTEST_LEAST = 1e-3;

static inline OpMatch optest_match(const Tensor *out, const double *ref)
{
    return optest_match_above(out, ref, OPTEST_LEAST);
}

#define CHECK_TENSOR(out, ref)                                                                     \
    CHECK_TENSOR_WITHIN(out, ref, optest_limit(LIMIT_PLAIN, (out)->dtype))

#define CHECK_TENSOR_WITHIN(out, ref, limit)                                                       \
    do {                                                                                           \
        OpMatch m_ = optest_match((out), (ref));                                                   \
        double limit_ = (limit);                                                                   \
        if (!(m_.ratio <= limit_)) {                                                               \
            fail_msg("%s (%s): rows %lld + %lld, columns %lld + %lld: the error has norm %.3g, "   \
                     "more than %.3g of %.3g",                                                     \
                     #out, dtype_name((out)->dtype), (long long)m_.part.row,                       \
                     (long long)m_.part.rows, (long long)m_.part.col, (long long)m_.part.cols,     \
                     m_.error, limit_, m_.held_to);                                                \
        }                                                                                          \
    } while (0)

/* Index of the first element whose bits differ, -1 if none. */
static inline int64_t optest_first_difference(const Tensor *a, const Tensor *b)
{
    assert(a->dtype == b->dtype && tensor_elems(a) == tensor_elems(b));
    size_t each = dtype_bytes(a->dtype);
    for (int64_t i = 0; i < tensor_elems(a); i++) {
        if (memcmp(tensor_at(a, i), tensor_at(b, i), each) != 0) return i;
    }
    return -1;
}

#define CHECK_SAME(got, want)                                                                      \
    do {                                                                                           \
        int64_t at_ = optest_first_difference((got), (want));                                      \
        if (at_ >= 0) {                                                                            \
            fail_msg("%s[%lld] is %.9g, want %.9g to the bit", #got, (long long)at_,               \
                     optest_get((got), at_), optest_get((want), at_));                             \
        }                                                                                          \
    } while (0)

/* slope[i] = d f / d x[i] by central differences, (f(x + h) - f(x - h)) / 2h: for a smooth f in
 * double good to about h^2 = 1e-8 of its third derivative, far below the limits. x is put back. */
typedef double OpScalar(const void *context, const double *x);

static inline void optest_slopes(OpScalar *f, const void *context, double *x, int64_t n,
                                 double *slope)
{
    const double h = 1e-4;
    for (int64_t i = 0; i < n; i++) {
        double at = x[i];
        x[i] = at + h;
        double above = f(context, x);
        x[i] = at - h;
        double below = f(context, x);
        x[i] = at;
        slope[i] = (above - below) / (2 * h);
    }
}

#include "harness/mirror.h"

#endif
