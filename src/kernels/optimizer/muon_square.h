/* muon_square: the symmetric products of Muon's update on a GPU (kernels/optimizer/muon.h). They are grouped products
 * (kernels/moe/grouped.cuh) that make only half of their tiles; the other half is their transpose. */
#ifndef KERNELS_OPTIMIZER_MUON_SQUARE_H
#define KERNELS_OPTIMIZER_MUON_SQUARE_H

#include "kernels/core/operand.h"

/* out = square size^2 Y Y^T + linear `add`, for `count` matrices one behind the other. */
typedef struct MuonSquare {
    Operand
        y; /* (count, side, deep) f32 or bf16; turned: (count, deep, side), and Y is its transpose */
    const void *add;   /* (count, side, side) of y's type; NULL: nothing */
    void *out;         /* as add, other memory */
    Tensor offsets;    /* (count+1) i32: side times 0, 1, ... */
    const float *size; /* (count); NULL: 1 */
    int64_t side;
    float square, linear;
    bool turned;
} MuonSquare;

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the first kernel that can (product_kernels.c). The bits of one result do not depend on the others. */
Status muon_square_gpu(struct Exec *ex, const MuonSquare *s);

#ifdef __cplusplus
}
#endif

#endif
