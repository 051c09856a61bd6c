/* gemm_amx: asks the system for the matrix unit, packs rows of A for it, and multiplies packed
 * panels on it. Columns of B are packed as for vectors (gemm_tile.c). */
#include "kernels/dense/gemm_amx.h"

#include <assert.h>

#if VECTOR_AMX && defined(__linux__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SIDE = AMX_PANEL_ROWS, /* words along a side of a square */
    SQUARE = SIDE * SIDE,
    ROW_BYTES = SIDE * 4
};
_Static_assert(SIDE == (int)VECTOR_LANES && (int)TILE_COLS == 2 * SIDE, "whole vectors");

bool amx_ask(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 }; /* asm/prctl.h of Linux 5.16 */
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

/* All eight registers hold 16 rows of 64 bytes. */
typedef struct Configuration {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} Configuration;

_Static_assert(sizeof(Configuration) == 64, "what LDTILECFG reads");

static const Configuration squares = {
    .palette = 1,
    .row_bytes = { ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES, ROW_BYTES,
                   ROW_BYTES },
    .rows = { SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE },
};

void amx_begin(void) { _tile_loadconfig(&squares); }

void amx_end(void) { _tile_release(); }

/* Packs one square of 16 rows by 32 elements along k; neighbours in memory are neighbours along k,
 * so rows are copied. `line` and k are those of its first element. */
static void square_copy(float *to, const PackSource *o, int64_t line, int64_t k)
{
    const char *from = (const char *)o->data + (size_t)(line * o->ld + k) * sizeof(uint16_t);
    for (int64_t r = 0; r < SIDE; r++, from += (size_t)o->ld * sizeof(uint16_t)) {
        Vector v = { 0 };
        if (line + r < o->lines) v = line_words(from, WORD_BF16_AMX, o->elems - k);
        *(VectorAt *)(to + r * SIDE) = v;
    }
}

/* Words of one step for 16 rows: `even` and `odd` are neighbours in memory, from two lines along k. */
static inline Vector step_words(const uint16_t *even, const uint16_t *odd)
{
    return (Vector)((VectorBits)widened(even) >> 16 | (VectorBits)widened(odd));
}

/* The same if neighbours in memory are rows: two lines along k are paired into words, and the square is transposed. */
static void square_turned(float *to, const PackSource *o, int64_t line, int64_t k)
{
    const uint16_t *from = (const uint16_t *)o->data + k * o->ld + line;
    int64_t n = o->lines - line < SIDE ? o->lines - line : SIDE, left = o->elems - k;
    Vector v[SIDE];
    if (n == SIDE && left >= (int64_t)2 * SIDE) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < SIDE; i++) {
            v[i] = step_words(from + 2 * i * o->ld, from + (2 * i + 1) * o->ld);
        }
    } else {
        for (int64_t i = 0; i < SIDE; i++) {
            uint16_t pair[2][SIDE] = { 0 };
            for (int64_t j = 0; j < 2 && 2 * i + j < left; j++) {
                memcpy(pair[j], from + (2 * i + j) * o->ld, (size_t)n * sizeof *from);
            }
            v[i] = step_words(pair[0], pair[1]);
        }
    }
    square_turn(v);
#pragma GCC unroll 16
    for (int64_t i = 0; i < SIDE; i++) *(VectorAt *)(to + i * SIDE) = v[i];
}

void amx_rows_pack(float *to, const PackSource *from)
{
    int64_t words = panel_words(WORD_BF16_AMX, from->elems);
    for (int64_t k = 0; k < words; k += SIDE) {
        for (int64_t line = 0; line < from->lines; line += SIDE) {
            float *square = to + line * words + k * SIDE;
            from->along_k ? square_copy(square, from, line, 2 * k)
                          : square_turned(square, from, line, 2 * k);
        }
    }
}

/* A constant in every inlined copy of squares_run. */
typedef struct Form {
    bool lower, right; /* are there rows beyond 16, columns beyond 16? */
} Form;

static inline __attribute__((always_inline)) void squares_run(const Tile *t, float *sums,
                                                              int64_t ld, Form form)
{
    const float *a = t->a, *lower = a + t->words * SIDE, *b = t->b;
    /* gcc 12's tile loads do not declare that they read memory: finish the stores to panels first. */
    __asm__ volatile("" ::: "memory");
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < t->words;
         k += SIDE, a += SQUARE, lower += SQUARE, b += (int64_t)2 * SQUARE) {
        _tile_loadd(4, a, ROW_BYTES);
        _tile_loadd(6, b, 2 * ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        if (form.right) {
            _tile_loadd(7, b + SIDE, 2 * ROW_BYTES);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (form.lower) {
            _tile_loadd(5, lower, ROW_BYTES);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (form.lower && form.right) _tile_dpbf16ps(3, 5, 7);
    }
    int64_t row_bytes = ld * (int64_t)sizeof *sums;
    _tile_stored(0, sums, row_bytes);
    if (form.right) _tile_stored(1, sums + SIDE, row_bytes);
    if (form.lower) _tile_stored(2, sums + SIDE * ld, row_bytes);
    if (form.lower && form.right) _tile_stored(3, sums + SIDE * ld + SIDE, row_bytes);
}

/* Computes a tile of up to 32 x 32 sums; rows of `sums` are `ld` floats apart. Whole squares are
 * written; only t->rows x t->cols of them are results. */
static void amx_sums(const Tile *t, float *sums, int64_t ld)
{
    bool right = t->cols > SIDE;
    if (t->rows > SIDE) {
        right ? squares_run(t, sums, ld, (Form){ .lower = true, .right = true })
              : squares_run(t, sums, ld, (Form){ .lower = true });
    } else {
        right ? squares_run(t, sums, ld, (Form){ .right = true })
              : squares_run(t, sums, ld, (Form){ .right = false });
    }
}

/* AMX stores whole squares of f32. Only a tile of such squares that is not added goes straight to
 * C; others pass through the stack. */
void amx_tile_run(const Tile *t)
{
    assert(t->rows > 0 && t->rows <= AMX_TILE_ROWS);
    tile_fetch(t);
    bool whole = t->rows % AMX_PANEL_ROWS == 0 && t->cols % VECTOR_LANES == 0;
    if (t->c_type == DTYPE_F32 && whole && !t->add) {
        amx_sums(t, t->c, t->ldc);
        return;
    }
    float sums[AMX_TILE_ROWS * TILE_COLS];
    amx_sums(t, sums, TILE_COLS);
    tile_store(t, sums);
}

#else

/* Without AMX amx_ask returns false, so the other functions are never called. */
bool amx_ask(void) { return false; }
void amx_begin(void) { assert(!"AMX was not available"); }
void amx_end(void) { assert(!"AMX was not available"); }

/* NOLINTNEXTLINE(readability-non-const-parameter): the one above writes */
void amx_rows_pack(float *to, const PackSource *from)
{
    (void)to, (void)from;
    assert(!"AMX was not available");
}

void amx_tile_run(const Tile *t)
{
    (void)t;
    assert(!"AMX was not available");
}

#endif
