/*
 * matrix: v_mfma, D = A B + C for a tile of M x M and a depth of K.
 *
 * A has M rows and K columns. Lane l holds row l % M, and of it the K / (64 / M) columns from
 * (l / M) * K / (64 / M) on. B is held in the same way by columns. Of C and D, register r of lane l is
 * column l % M and row r % 4 + 4 (l / M) + (256 / M) (r / 4) (CDNA3 ISA, "Matrix Arithmetic
 * Instructions"; AMD's matrix instruction calculator). All 64 lanes take part, whatever exec says.
 *
 * Products are added in the order of k, each with one rounding; see gfxrun.h.
 */
#include "gfxrun/small_float.h"

typedef enum Element { F32, F16, BF16, FP8, BF8 } Element;

/* Row.a: M; b: K; c: the types of A and B. */
#define TYPES(a, b) ((a)*16 + (b))

static int bits_of(Element e) { return e == F32 ? 32 : e == F16 || e == BF16 ? 16 : 8; }

static float element(Element e, uint64_t v)
{
    switch (e) {
    case F32: return as_f32(v);
    case F16: return as_f16(v & 0xffff);
    case BF16: return as_bf16(v & 0xffff);
    case FP8: return as_fp8(v & 255);
    default: return as_bf8(v & 255);
    }
}

enum { M_MAX = 32, K_MAX = 32 };

/* Unpacks an operand: to[k][i] is column k of row i. The types are constants where it is inlined. */
static inline __attribute__((always_inline)) void
unpack_as(Element e, const uint32_t (*from)[LANES], int M, int per_lane, float to[K_MAX][M_MAX])
{
    int bits = bits_of(e), a_word = 32 / bits;
    for (int j = 0; j < per_lane; j++)
        for (int first = 0; first < LANES; first += M)
            for (int i = 0; i < M; i++)
                to[first / M * per_lane + j][i] =
                    element(e, from[j / a_word][first + i] >> j % a_word * bits);
}

static bool unpack(Wave *w, const Op *o, int which, Element e, float to[K_MAX][M_MAX])
{
    const Operand *from = &o->src[which];
    int M = o->row->a, per_lane = o->row->b * M / LANES;
    if (!vector_words(w, from, per_lane * bits_of(e) / 32, ~(uint64_t)0)) return false;
    const uint32_t(*regs)[LANES] = (const uint32_t(*)[LANES])w->v[from->reg];
    switch (e) {
    case F32: unpack_as(F32, regs, M, per_lane, to); break;
    case F16: unpack_as(F16, regs, M, per_lane, to); break;
    case BF16: unpack_as(BF16, regs, M, per_lane, to); break;
    case FP8: unpack_as(FP8, regs, M, per_lane, to); break;
    case BF8: unpack_as(BF8, regs, M, per_lane, to); break;
    }
    return true;
}

/* Register r of the lanes from `first` on holds a part of this row. */
static int row_of(int M, int first, int r) { return r % 4 + 4 * (first / M) + 256 / M * (r / 4); }

/* C, registers or one number, to where D will be. */
static bool place_addend(Wave *w, const Op *o, int words)
{
    const Operand *from = &o->src[2];
    int to = o->dst[0].reg;
    if (from->kind != OPERAND_CONST && !vector_words(w, from, words, ~(uint64_t)0)) return false;
    for (int i = 0; i < words; i++)
        if (!vector_unused(w, to + i)) return false;
    if (from->kind == OPERAND_VECTOR) {
        memmove(w->v[to], w->v[from->reg], (size_t)words * sizeof *w->v);
        return true;
    }
    for (int r = 0; r < words; r++)
        for (int l = 0; l < LANES; l++) w->v[to + r][l] = (uint32_t)from->value;
    return true;
}

/* One register of D, 64 / M rows, stays in the processor's registers while k runs. M is a constant where
 * this is inlined. */
static inline __attribute__((always_inline)) void
multiply(int M, int K, float a[K_MAX][M_MAX], float b[K_MAX][M_MAX], int r, uint32_t d[LANES])
{
    float sums[LANES];
    memcpy(sums, d, sizeof sums);
    for (int k = 0; k < K; k++)
#pragma GCC unroll 4
        for (int first = 0; first < LANES; first += M) {
            /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): unpack fills K rows */
            float x = a[k][row_of(M, first, r)];
            for (int j = 0; j < M; j++) sums[first + j] = fmaf(x, b[k][j], sums[first + j]);
        }
    memcpy(d, sums, sizeof sums);
}

static bool run_matrix(Wave *w, const Op *o)
{
    int M = o->row->a, K = o->row->b, words = M * M / LANES, to = o->dst[0].reg;
    float a[K_MAX][M_MAX], b[K_MAX][M_MAX];
    if (!unpack(w, o, 0, (Element)(o->row->c / 16), a) ||
        !unpack(w, o, 1, (Element)(o->row->c % 16), b) || !place_addend(w, o, words))
        return false;
    for (int r = 0; r < words; r++) {
        if (M == 32)
            multiply(32, K, a, b, r, w->v[to + r]);
        else
            multiply(16, K, a, b, r, w->v[to + r]);
        w->v_defined[to + r] = ~(uint64_t)0;
    }
    w->group->launch->counts.matrix_instructions++;
    return true;
}

#define ROW(name, M, K, A, B)                                                                      \
    {                                                                                              \
        "v_mfma_f32_" name, "x=xxx", run_matrix, .a = (M), .b = (K), .c = TYPES(A, B)              \
    }

const Row matrix_rows[] = {
    ROW("32x32x2_f32", 32, 2, F32, F32),
    ROW("16x16x4_f32", 16, 4, F32, F32),
    ROW("32x32x8_f16", 32, 8, F16, F16),
    ROW("16x16x16_f16", 16, 16, F16, F16),
    ROW("32x32x8_bf16", 32, 8, BF16, BF16),
    ROW("16x16x16_bf16", 16, 16, BF16, BF16),
    ROW("32x32x16_fp8_fp8", 32, 16, FP8, FP8),
    ROW("16x16x32_fp8_fp8", 16, 32, FP8, FP8),
    ROW("32x32x16_fp8_bf8", 32, 16, FP8, BF8),
    ROW("16x16x32_fp8_bf8", 16, 32, FP8, BF8),
    ROW("32x32x16_bf8_fp8", 32, 16, BF8, FP8),
    ROW("16x16x32_bf8_fp8", 16, 32, BF8, FP8),
    ROW("32x32x16_bf8_bf8", 32, 16, BF8, BF8),
    ROW("16x16x32_bf8_bf8", 16, 32, BF8, BF8),
    { 0 },
};
