/* gemm_tile: packs operands into panels and multiplies panels in registers. Which panels are
 * multiplied, and in which order, is decided in gemm.c. */
#include "kernels/dense/gemm_tile.h"

#include <assert.h>
#include <string.h>

enum {
    STEPS = 8,        /* steps along k that are packed at a time if memory runs across k */
    AHEAD = 2 * STEPS /* steps between a prefetch and its use */
};

Word word_of(Dtype type, bool pairs)
{
    if (type == DTYPE_F32) return WORD_F32;
    if (type == DTYPE_F16) return WORD_F16_WIDENED;
    return pairs ? WORD_BF16_PAIR : WORD_BF16_WIDENED;
}

/* packing */

/* Loads a square of words: lines from `line` on, steps from `k` on; zeros outside the operand. */
static void square_read(Vector v[VECTOR_LANES], const PackSource *o, int64_t line, int64_t k)
{
    for (int64_t i = 0; i < VECTOR_LANES; i++) {
        const char *from =
            (const char *)o->data + (size_t)((line + i) * o->ld + k) * word_elem_bytes(o->word);
        v[i] = line + i < o->lines ? line_words(from, o->word, o->elems - k) : (Vector){ 0 };
    }
}

/* The same for a square that lies inside the operand. */
static inline void square_read_whole(Vector v[VECTOR_LANES], const PackSource *o, int64_t line,
                                     int64_t k)
{
    int64_t each = (int64_t)word_elem_bytes(o->word);
    const char *from = (const char *)o->data + (line * o->ld + k) * each;
#pragma GCC unroll 16
    for (int64_t i = 0; i < VECTOR_LANES; i++) memcpy(&v[i], from + i * o->ld * each, sizeof v[i]);
}

/* Packs lines whose neighbours in memory are neighbours along k: VECTOR_LANES lines at a time are transposed. If a
 * panel is narrower than a vector, each step writes past its end, and the next step overwrites that. */
static inline __attribute__((always_inline)) void pack_along(float *to, const PackSource *o,
                                                             int64_t first, int64_t width)
{
    int64_t per_word = word_elems(o->word), words = panel_words(o->word, o->elems);
    for (int64_t line = 0; line < width; line += VECTOR_LANES) {
        bool lines = first + line + VECTOR_LANES <= o->lines && !word_widens(o->word);
        for (int64_t k = 0; k < words; k += VECTOR_LANES) {
            float *at = to + k * width + line;
            Vector v[VECTOR_LANES];
            if (lines && (k + VECTOR_LANES) * per_word <= o->elems) {
                square_read_whole(v, o, first + line, k * per_word);
                square_turn(v);
#pragma GCC unroll 16
                for (int64_t i = 0; i < VECTOR_LANES; i++) *(VectorAt *)(at + i * width) = v[i];
                continue;
            }
            int64_t steps = words - k < VECTOR_LANES ? words - k : VECTOR_LANES;
            square_read(v, o, first + line, k * per_word);
            square_turn(v);
            for (int64_t i = 0; i < steps; i++) *(VectorAt *)(at + i * width) = v[i];
        }
    }
}

/* Packs one step: `n` neighbours in memory, of one row or of two rows that are paired. */
static inline __attribute__((always_inline)) void step_pack(float *to, const PackSource *o,
                                                            int64_t k, int64_t at, int64_t n)
{
    if (o->word == WORD_F32) {
        memcpy(to, (const float *)o->data + k * o->ld + at, (size_t)n * sizeof(float));
        return;
    }
    const uint16_t *even = (const uint16_t *)o->data + k * o->ld + at;
    if (word_widens(o->word)) {
        bool bf16 = o->word == WORD_BF16_WIDENED;
        int64_t i = 0;
        for (; bf16 && i + VECTOR_LANES <= n; i += VECTOR_LANES)
            *(VectorAt *)(to + i) = widened(even + i);
        dtype_to_f32(to + i, even + i, word_type(o->word), n - i);
        return;
    }
    bool paired = k + 1 < o->elems;
    const uint16_t *odd = paired ? even + o->ld : even;
    uint32_t keep = paired ? UINT32_MAX : 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = even[i] | ((uint32_t)odd[i] << 16 & keep);
        memcpy(to + i, &word, sizeof word);
    }
}

/* Prefetches the rows of step k: the hardware does not predict a walk in short pieces over long rows. */
static inline __attribute__((always_inline)) void step_fetch(const PackSource *o, int64_t k,
                                                             int64_t line)
{
    if (k + word_elems(o->word) > o->elems) return;
    for (int64_t i = 0; i < word_elems(o->word); i++) {
        const char *row =
            (const char *)o->data + (size_t)((k + i) * o->ld) * word_elem_bytes(o->word);
        __builtin_prefetch(row + (size_t)line * word_elem_bytes(o->word));
    }
}

/* Packs steps [first, end) of the panel that begins with `line`, zeros up to its width. */
static inline __attribute__((always_inline)) void panel_across(float *to, const PackSource *o,
                                                               int64_t width, int64_t line,
                                                               int64_t first, int64_t end)
{
    int64_t n = o->lines - line, per_word = word_elems(o->word);
    for (int64_t k = first; k < end; k++) {
        step_fetch(o, (k + AHEAD) * per_word, line);
        float *at = to + k * width;
        if (k * per_word >= o->elems) {
            memset(at, 0, (size_t)width * sizeof *at);
        } else if (n >= width) {
            step_pack(at, o, k * per_word, line, width);
        } else {
            memset(at, 0, (size_t)width * sizeof *at);
            step_pack(at, o, k * per_word, line, n);
        }
    }
}

/* Packs an operand whose neighbours in memory are different lines: a few steps of all panels at a
 * time, so that each cache line of the operand is read once. */
static inline __attribute__((always_inline)) void pack_across(float *to, const PackSource *o,
                                                              int64_t width)
{
    int64_t words = panel_words(o->word, o->elems);
    for (int64_t first = 0; first < words; first += STEPS) {
        int64_t end = words - first < STEPS ? words : first + STEPS;
        for (int64_t line = 0; line < o->lines; line += width) {
            panel_across(to + line * words, o, width, line, first, end);
        }
    }
}

/* width is a constant in each inlined copy. */
static inline __attribute__((always_inline)) void panels_pack_width(float *to, const PackSource *o,
                                                                    int64_t width)
{
    if (!o->along_k) {
        pack_across(to, o, width);
        return;
    }
    int64_t words = panel_words(o->word, o->elems);
    for (int64_t line = 0; line < o->lines; line += width) {
        pack_along(to + line * words, o, line, width);
    }
}

void panels_pack(float *to, const PackSource *from, int64_t width)
{
    if (width == TILE_COLS) {
        panels_pack_width(to, from, TILE_COLS);
    } else if (width == VECTOR_LANES) {
        panels_pack_width(to, from, VECTOR_LANES);
    } else {
        panels_pack_width(to, from, TILE_ROWS);
    }
}

/* the tile */

void row_narrow(uint16_t *c, Dtype type, const float *from, int64_t n, bool add)
{
    int64_t i = 0;
    for (; type == DTYPE_BF16 && i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        Vector v = *(const VectorAt *)(from + i);
        narrowed_store(c + i, add ? v + widened(c + i) : v);
    }
    for (int64_t part = 0; i < n; i += part) {
        float old[TILE_COLS] = { 0 };
        part = n - i < TILE_COLS ? n - i : TILE_COLS;
        if (add) dtype_to_f32(old, c + i, type, part);
        for (int64_t k = 0; k < part; k++) old[k] = add ? from[i + k] + old[k] : from[i + k];
        dtype_from_f32(c + i, type, old, part);
    }
}

/* As row_narrow, for f32. C is not read unless the product is added. */
static void row_copy(float *c, const float *from, int64_t n, bool add)
{
    int64_t i = 0;
    for (; i + VECTOR_LANES <= n; i += VECTOR_LANES) {
        Vector v = *(const VectorAt *)(from + i);
        *(VectorAt *)(c + i) = add ? v + *(const VectorAt *)(c + i) : v;
    }
    for (; i < n; i++) c[i] = add ? from[i] + c[i] : from[i];
}

/* A constant in every inlined copy of registers_run: loops unroll and sums stay in registers. */
typedef struct Form {
    int rows, vectors;
    bool pairs;
} Form;

static inline __attribute__((always_inline)) void registers_run(const Tile *t, float *c,
                                                                int64_t ldc, bool add, Form form)
{
    Vector sum[TILE_ROWS][TILE_VECTORS] = { 0 };
    const float *a = t->a, *b = t->b;
#pragma GCC unroll 16
    for (int r = 0; r < form.rows; r++) {
        __builtin_prefetch(c + (int64_t)r * ldc, 1);
        if (form.vectors > 1) __builtin_prefetch(c + (int64_t)r * ldc + VECTOR_LANES, 1);
    }
    for (int64_t k = 0; k < t->words; k++, a += TILE_ROWS, b += TILE_COLS) {
        Vector x[TILE_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < form.vectors; v++)
            x[v] = *(const VectorAt *)(b + (int64_t)v * VECTOR_LANES);
#pragma GCC unroll 16
        for (int r = 0; r < form.rows; r++) {
#pragma GCC unroll 2
            for (int v = 0; v < form.vectors; v++) {
                sum[r][v] = form.pairs ? vector_add_pairs(sum[r][v], a[r], x[v])
                                       : vector_add_product(sum[r][v], a[r], x[v]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < form.rows; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < form.vectors; v++) {
            VectorAt *to = (VectorAt *)(c + (int64_t)r * ldc + (int64_t)v * VECTOR_LANES);
            *to = add ? *to + sum[r][v] : sum[r][v];
        }
    }
}

#define FORM(n)                                                                                    \
    case n:                                                                                        \
        if ((n) <= TILE_ROWS) registers_run(t, c, ldc, add, (Form){ (n), vectors, pairs });        \
        break;

static inline __attribute__((always_inline)) void rows_run(const Tile *t, float *c, int64_t ldc,
                                                           bool add, int vectors, bool pairs)
{
    switch (t->rows) {
        FORM(1)
        FORM(2)
        FORM(3)
        FORM(4)
        FORM(5)
        FORM(6)
        FORM(7)
        FORM(8)
        FORM(9)
        FORM(10)
        FORM(11)
        FORM(12)
        FORM(13)
        FORM(14)
    default: break;
    }
}

/* Squares of op(B) are transposed in registers and multiplied at once. Sums are those of registers_run. */
bool row_run(const Tile *t, const PackSource *b)
{
    float *c = t->c;
    const int64_t part = b->lines % VECTOR_LANES + b->elems % VECTOR_LANES;
    if (!b->along_k || b->word != WORD_F32 || t->c_type != DTYPE_F32 || part > 0) return false;
    for (int64_t line = 0; line < b->lines; line += VECTOR_LANES) {
        Vector sum = { 0 }, v[VECTOR_LANES];
        for (int64_t k = 0; k < b->elems; k += VECTOR_LANES) {
            square_read_whole(v, b, line, k);
            square_turn(v);
#pragma GCC unroll 16
            for (int64_t i = 0; i < VECTOR_LANES; i++)
                sum = vector_add_product(sum, t->a[k + i], v[i]);
        }
        VectorAt *to = (VectorAt *)(c + line);
        *to = t->add ? *to + sum : sum;
    }
    return true;
}

/* Computes a tile of f32 results in whole vectors of columns. */
static void vectors_run(const Tile *t, float *c, int64_t ldc, bool add)
{
    bool pairs = t->word == WORD_BF16_PAIR;
    if (t->cols > VECTOR_LANES) {
        pairs ? rows_run(t, c, ldc, add, 2, true) : rows_run(t, c, ldc, add, 2, false);
    } else {
        pairs ? rows_run(t, c, ldc, add, 1, true) : rows_run(t, c, ldc, add, 1, false);
    }
}

void tile_store(const Tile *t, const float *from)
{
    for (int64_t r = 0; r < t->rows; r++, from += TILE_COLS) {
        if (t->c_type != DTYPE_F32) {
            row_narrow((uint16_t *)t->c + r * t->ldc, t->c_type, from, t->cols, t->add);
            continue;
        }
        row_copy((float *)t->c + r * t->ldc, from, t->cols, t->add);
    }
}

void tile_fetch(const Tile *t)
{
    size_t each = dtype_bytes(t->c_type), width = (size_t)(t->cols - 1) * each;
    for (int64_t r = 0; r < t->rows; r++) {
        const char *row = (const char *)t->c + (size_t)(r * t->ldc) * each;
        __builtin_prefetch(row, 1);
        __builtin_prefetch(row + width, 1);
    }
}

/* Tiles at the right edge of C, and narrow results, pass through the stack. */
void tile_run(const Tile *t)
{
    if (t->c_type == DTYPE_F32 && t->cols % VECTOR_LANES == 0) {
        vectors_run(t, t->c, t->ldc, t->add);
        return;
    }
    assert(t->rows > 0 && t->rows <= TILE_ROWS);
    float sums[TILE_ROWS * TILE_COLS];
    vectors_run(t, sums, TILE_COLS, false);
    tile_store(t, sums);
}
