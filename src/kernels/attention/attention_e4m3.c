/*
 * attention_e4m3: what 8-bit attention rounds before its products, on the CPU. Operands become the
 * numbers that their codes and scales stand for, in the type that they had: bf16 and f32 hold them
 * exactly. So the CPU's attention works on them as on any others.
 */
#include "kernels/attention/attention_cpu.h"
#include "kernels/quant/quant.h"

enum { PIECE = 256 }; /* elements that a thread widens at a time */

static const float largest = 448.0f;

/* The largest magnitude of `rows` rows of a head; NaNs are left out. */
static float rows_amax(const Tensor *x, int64_t b, int64_t first, int64_t rows, int64_t head)
{
    float piece[PIECE], amax = 0;
    int64_t d = x->dim[3];
    for (int64_t at = 0; at < rows * d; at += least(PIECE, d - at % d)) {
        int64_t n = least(PIECE, d - at % d);
        const char *from = head_row(x, b, first + at / d, head);
        dtype_to_f32(piece, from + (size_t)(at % d) * dtype_bytes(x->dtype), x->dtype, n);
        for (int64_t i = 0; i < n; i++) amax = fabsf(piece[i]) > amax ? fabsf(piece[i]) : amax;
    }
    return amax;
}

/* An infinity has no scale: x / inf is 0 or NaN, and both times inf are NaN. */
static void rows_round(const Tensor *x, const Tensor *to, int64_t b, int64_t row, int64_t head,
                       float scale)
{
    float piece[PIECE];
    uint8_t code[PIECE];
    size_t each = dtype_bytes(x->dtype);
    for (int64_t at = 0; at < x->dim[3]; at += PIECE) {
        int64_t n = least(PIECE, x->dim[3] - at);
        dtype_to_f32(piece, (char *)head_row(x, b, row, head) + (size_t)at * each, x->dtype, n);
        for (int64_t i = 0; i < n; i++) piece[i] /= scale;
        dtype_from_f32(code, DTYPE_E4M3, piece, n);
        dtype_to_f32(piece, code, DTYPE_E4M3, n);
        for (int64_t i = 0; i < n; i++) piece[i] *= scale;
        dtype_from_f32((char *)head_row(to, b, row, head) + (size_t)at * each, x->dtype, piece, n);
    }
}

/* Rounds x with one scale for each `block` rows of a head. */
static void heads_round(const Exec *ex, const Tensor *x, int64_t block, const Tensor *to)
{
    int64_t T = x->dim[1], heads = x->dim[2], blocks = (T + block - 1) / block;
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < x->dim[0] * blocks * heads; i++) {
        int64_t head = i % heads, first = i / heads % blocks * block, b = i / heads / blocks;
        int64_t rows = least(block, T - first);
        float scale = quantize_scale(rows_amax(x, b, first, rows, head), largest, true);
        for (int64_t r = 0; r < rows; r++) rows_round(x, to, b, first + r, head, scale);
    }
}

size_t attention_e4m3_round(const Exec *ex, AttentionFwd *a, char *room)
{
    struct {
        Tensor *x;
        int64_t block;
    } of[] = { { &a->q, 1 }, { &a->k, OPERAND_BLOCK }, { &a->v, OPERAND_BLOCK } };
    size_t used = 0;
    for (int i = 0; i < 3; i++) {
        Tensor to = *of[i].x;
        if (room != NULL) {
            to.data = room + used;
            heads_round(ex, of[i].x, of[i].block, &to);
        }
        used += arena_rounded(tensor_bytes(&to));
        *of[i].x = to;
    }
    return used;
}
