/*
 * golden: named arrays that another program computed, and the comparison with them.
 *
 * A file (tools/golden_format.py writes it), unpacked, is a text head, a line "data", and raw
 * little-endian elements:
 *
 *     golden 1
 *     made by ...                           the versions of what made it
 *     array NAME f32|i32 OFFSET DIM...      OFFSET in bytes, counted after the line "data"
 *
 * A NaN in an f32 array says that the op must leave this element alone. Files are found from the
 * top of the tree, where `make test` runs.
 */
#ifndef TESTS_GOLDEN_GOLDEN_H
#define TESTS_GOLDEN_GOLDEN_H

#include "harness/packed.h"

#include "engine/base/tensor.h"

#include <stdlib.h>

enum { GOLDEN_ARRAYS_MAX = 1024, GOLDEN_NAME_MAX = 128 };

typedef struct GoldenArray {
    char name[GOLDEN_NAME_MAX];
    Tensor t;
} GoldenArray;

typedef struct Golden {
    Arena arena; /* holds the arrays, and whatever a test wants for as long */
    GoldenArray *at;
    int n;
} Golden;

/* "array NAME TYPE OFFSET DIM...": offset comes back, the shape is in a->t. */
static inline int64_t golden_parse_line(const char *line, GoldenArray *a)
{
    char type[8];
    long long offset = 0;
    int used = 0;
    CHECK_INT(sscanf(line, "array %127s %7s %lld%n", a->name, type, &offset, &used), 3);
    a->t.dtype = strcmp(type, "i32") == 0 ? DTYPE_I32 : DTYPE_F32;
    const char *at = line + used;
    while (*at == ' ') {
        CHECK(a->t.rank < TENSOR_MAX_RANK);
        char *end = NULL;
        a->t.dim[a->t.rank++] = strtoll(at, &end, 10);
        at = end;
    }
    CHECK(*at == '\n' && a->t.rank > 0);
    return offset;
}

static inline Golden golden_open(const char *path)
{
    Golden g = { 0 };
    Packed whole = packed_read(path);
    const char *text = whole.text;
    CHECK_OK(arena_init(&g.arena, "golden", MEM_HOST, (size_t)256 << 20));
    CHECK_OK(ARENA_ZEROED(&g.arena, GOLDEN_ARRAYS_MAX, &g.at));
    CHECK(strncmp(text, "golden 1\n", 9) == 0);
    const char *data = strstr(text, "\ndata\n");
    CHECK(data != NULL);
    data += 6;
    for (const char *line = strstr(text, "\narray ") + 1; line + 5 < data;
         line = strchr(line, '\n') + 1) {
        CHECK(g.n < GOLDEN_ARRAYS_MAX);
        GoldenArray *a = &g.at[g.n++];
        int64_t offset = golden_parse_line(line, a);
        CHECK(data + offset + tensor_bytes(&a->t) <= text + whole.bytes);
        CHECK_OK(arena_alloc(&g.arena, tensor_bytes(&a->t), &a->t.data));
        memcpy(a->t.data, data + offset, tensor_bytes(&a->t));
    }
    return g;
}

static inline void golden_close(Golden *g) { arena_free(&g->arena); }

/* data NULL: there is no such array. */
static inline Tensor golden_find(const Golden *g, const char *name)
{
    for (int i = 0; i < g->n; i++) {
        if (strcmp(g->at[i].name, name) == 0) return g->at[i].t;
    }
    return (Tensor){ 0 };
}

static inline Tensor golden_get(const Golden *g, const char *group, const char *name)
{
    char full[GOLDEN_NAME_MAX];
    CHECK(snprintf(full, sizeof full, "%s/%s", group, name) < (int)sizeof full);
    Tensor t = golden_find(g, full);
    if (t.data == NULL) fail_msg("the golden file has no array %s", full);
    return t;
}

/* A tensor of the same shape, filled with NaN (i32: -1). */
static inline Tensor golden_poisoned(Golden *g, const Tensor *like)
{
    Tensor t = *like;
    CHECK_OK(arena_alloc(&g->arena, tensor_bytes(like), &t.data));
    memset(t.data, 0xFF, tensor_bytes(like));
    return t;
}

static inline Tensor golden_copy(Golden *g, const Tensor *from)
{
    Tensor t = golden_poisoned(g, from);
    memcpy(t.data, from->data, tensor_bytes(from));
    return t;
}

/* Norms of the difference and of the reference over n elements. An element that must be left alone
 * and was not makes the difference infinite. */
static inline void golden_norms(const float *got, const float *want, int64_t n, double *error,
                                double *norm)
{
    double e = 0, w = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan((double)want[i])) {
            if (!isnan((double)got[i])) e = INFINITY;
            continue;
        }
        double d = (double)got[i] - (double)want[i];
        e += d * d, w += (double)want[i] * (double)want[i];
    }
    *error = sqrt(e), *norm = sqrt(w);
}

/* |got - want| <= limit |want| for the tensor and for every row: the last dim, or of (B, T, H, d)
 * all heads of a token. A row under 1e-3 of the mean row norm is held to that mean. Integers must
 * be equal. */
static inline void golden_compare(const char *what, const Tensor *got, const Tensor *want,
                                  double limit)
{
    int64_t n = tensor_elems(want), cols = tensor_cols(want) * (want->rank == 4 ? want->dim[2] : 1);
    int64_t rows = n / cols;
    if (want->dtype == DTYPE_I32) {
        const int32_t *a = got->data, *b = want->data;
        for (int64_t i = 0; i < n; i++) {
            if (a[i] != b[i]) {
                fail_msg("%s: element %lld is %d, want %d", what, (long long)i, a[i], b[i]);
            }
        }
        return;
    }
    const float *a = got->data, *b = want->data;
    double error, norm, mean = 0;
    golden_norms(a, b, n, &error, &norm);
    if (!(error <= limit * norm)) {
        fail_msg("%s: relative error %.3g, limit %.3g", what, error / norm, limit);
    }
    for (int64_t r = 0; r < rows; r++) {
        golden_norms(a + r * cols, b + r * cols, cols, &error, &norm);
        mean += norm / (double)rows;
    }
    for (int64_t r = 0; r < rows; r++) {
        golden_norms(a + r * cols, b + r * cols, cols, &error, &norm);
        double scale = norm < 1e-3 * mean ? mean : norm;
        if (!(error <= limit * scale)) {
            fail_msg("%s: row %lld of %lld has relative error %.3g, limit %.3g", what, (long long)r,
                     (long long)rows, error / scale, limit);
        }
    }
}

#endif
