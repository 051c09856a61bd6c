/* mlp: the SwiGLU MLP as a part of a layer: of the dense layer (mlp.c) and, for shared experts, of the MoE layer. */
#ifndef ENGINE_MODEL_MLP_H
#define ENGINE_MODEL_MLP_H

#include "engine/model/stream.h"

/* A SwiGLU MLP on y (dense layers and shared experts). */
typedef struct MlpState {
    Tensor gu;
    Activation act;
    Operand dout, dgu; /* ring, backward: columns for backward_weight */
    Glu glu;           /* set by the layer; zeros: SwiGLU */
} MlpState;
/* out = mlp(y) + residual (optional), from the rows of y. gu_piece: the recompute module of the
 * pre-activation; 0: none. */
Status mlp_forward(LayerRun *r, MlpState *m, Operand y, Tensor residual, Tensor out,
                   unsigned gu_piece);
/* Makes dy from dout, and what backward_weight reads. y: rows, if the pre-activation is recomputed. */
Status mlp_backward_input(LayerRun *r, MlpState *m, Operand y, Tensor dout, Tensor dy,
                          unsigned gu_piece);
/* y: columns. */
Status mlp_backward_weight(LayerRun *r, const MlpState *m, Operand y);

#endif
