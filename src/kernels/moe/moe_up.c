/* moe_up: the experts' first product, followed by SwiGLU (moe_product.c runs it). The pre-activation is rounded to
 * bf16 when it is stored; act is computed from the unrounded f32 values. */
#include "kernels/core/cpu_math.h"
#include "kernels/moe/moe_product.h"
#include "kernels/moe/moe_tiles.h"

enum { PIECE = 256 }; /* columns that a thread holds on the stack */

/* act_r = silu(pre_r[:F]) * pre_r[F:], or another gated activation */
static Status up_finish(const void *args, int64_t expert, int64_t row, const float *pre)
{
    (void)expert;
    const MoeUpFwd *a = args;
    int64_t F = tensor_cols(&a->act.data);
    for (int64_t first = 0; first < F; first += PIECE) {
        int64_t n = F - first < PIECE ? F - first : PIECE;
        float buffer[PIECE], *y = row_open(&a->act.data, row * F + first, buffer);
        glu_f32(y, pre + first, pre + F + first, n, a->glu);
        row_store(&a->act.data, row * F + first, n, y);
    }
    row_store(&a->pre.data, (row + moe_first(a->rows.first)) * 2 * F, 2 * F, pre);
    return OK;
}

static Status up_check(const void *args, int64_t R)
{
    const MoeUpFwd *a = args;
    int64_t F = tensor_cols(&a->act.data), kept = a->rows.first == NULL ? R : -1;
    Dtype act = moe_act_type(&a->act, &a->pre, NULL, a->f32);
    TRY(moe_result_check("moe_up_fwd", "pre", &a->pre, kept, 2 * F, act));
    return moe_result_check("moe_up_fwd", "act", &a->act, R, F, act);
}

MoeProduct moe_up_fwd_view(const MoeUpFwd *a)
{
    int64_t F = tensor_cols(&a->act.data);
    double row_bytes = moe_result_bytes(&a->pre, 2 * F) + moe_result_bytes(&a->act, F);
    bool narrow = a->pre.kind != OPERAND_PLAIN || a->act.kind != OPERAND_PLAIN;
    return (MoeProduct){
        { "moe_up_fwd", "x", &a->x, &a->w, &a->offsets, &a->row_token, &a->rows, a->rows.first },
        { tensor_cols(&a->x.data), 2 * F, true, &a->bias },
        { &a->act.data, moe_act_type(&a->act, &a->pre, NULL, a->f32),
          F == 0 ? 0 : tensor_elems(&a->act.data) / F, F, narrow, &a->pre.data, NULL, &a->pre.data,
          row_bytes },
        { MOE_SWIGLU, a, up_check, up_finish },
    };
}

OP_PORTS(moe_up_fwd, IN_OPERAND(MoeUpFwd, x), IN_OPERAND(MoeUpFwd, w), IN(MoeUpFwd, offsets),
         IN_OPT(MoeUpFwd, row_token), OUT_OPERAND_POOL(MoeUpFwd, pre), OUT_OPERAND(MoeUpFwd, act),
         IN_OPT(MoeUpFwd, bias), ROWS(MoeUpFwd, rows));
