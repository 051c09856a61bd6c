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

/* C: registers, or one number. */
static bool read_addend(Wave *w, const Op *o, uint32_t c[16][LANES])
{
    const Operand *from = &o->src[2];
    int words = o->row->a * o->row->a / LANES;
    if (from->kind == OPERAND_CONST) {
        for (int r = 0; r < words; r++)
            for (int l = 0; l < LANES; l++) c[r][l] = (uint32_t)from->value;
        return true;
    }
    if (!vector_words(w, from, words, ~(uint64_t)0)) return false;
    memcpy(c, w->v[from->reg], (size_t)words * sizeof *c);
    return true;
}

/* A row of D stays in registers while k runs; M is a constant where this is inlined. */
static inline __attribute__((always_inline)) void
multiply(int M, int K, float a[K_MAX][M_MAX], float b[K_MAX][M_MAX], float d[M_MAX][M_MAX])
{
    for (int i = 0; i < M; i++) {
        float row[M_MAX];
        for (int j = 0; j < M; j++) row[j] = d[i][j];
        for (int k = 0; k < K; k++)
            for (int j = 0; j < M; j++) row[j] = fmaf(a[k][i], b[k][j], row[j]);
        for (int j = 0; j < M; j++) d[i][j] = row[j];
    }
}

static bool run_matrix(Wave *w, const Op *o)
{
    int M = o->row->a, K = o->row->b, words = M * M / LANES;
    float a[K_MAX][M_MAX], b[K_MAX][M_MAX], d[M_MAX][M_MAX];
    uint32_t c[16][LANES];
    if (!unpack(w, o, 0, (Element)(o->row->c / 16), a) ||
        !unpack(w, o, 1, (Element)(o->row->c % 16), b) || !read_addend(w, o, c))
        return false;
    for (int i = 0; i < words; i++)
        if (!vector_unused(w, o->dst[0].reg + i)) return false;
    for (int r = 0; r < words; r++)
        for (int first = 0; first < LANES; first += M)
            memcpy(d[row_of(M, first, r)], &c[r][first], (size_t)M * sizeof(float));
    if (M == 32)
        multiply(32, K, a, b, d);
    else
        multiply(16, K, a, b, d);
    for (int r = 0; r < words; r++) {
        for (int first = 0; first < LANES; first += M)
            memcpy(&w->v[o->dst[0].reg + r][first], d[row_of(M, first, r)],
                   (size_t)M * sizeof(float));
        w->v_defined[o->dst[0].reg + r] = ~(uint64_t)0;
    }
    w->group->launch->counts.matrix_instructions++;
    return true;
}

#define ROW(name, M, K, A, B)                                                                      \
    {                                                                                              \
        "v_mfma_f32_" name, "x=xxx", run_matrix, .a = (M), .b = (K), .c = TYPES(A, B)              \
    }

const Row matrix_rows[] = {
    ROW("32x32x2_f32", 32, 2, F32, F32),       ROW("16x16x4_f32", 16, 4, F32, F32),
    ROW("32x32x8_f16", 32, 8, F16, F16),       ROW("16x16x16_f16", 16, 16, F16, F16),
    ROW("32x32x8_bf16", 32, 8, BF16, BF16),    ROW("16x16x16_bf16", 16, 16, BF16, BF16),
    ROW("32x32x16_fp8_bf8", 32, 16, FP8, BF8), ROW("32x32x16_bf8_fp8", 32, 16, BF8, FP8),
    ROW("32x32x16_bf8_bf8", 32, 16, BF8, BF8), ROW("16x16x32_fp8_fp8", 16, 32, FP8, FP8),
    ROW("16x16x32_fp8_bf8", 16, 32, FP8, BF8), ROW("16x16x32_bf8_fp8", 16, 32, BF8, FP8),
    ROW("16x16x32_bf8_bf8", 16, 32, BF8, BF8), { 0 },
};
