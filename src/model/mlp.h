/* mlp: the SwiGLU MLP as a part of a layer: of the dense layer (mlp.c) and, for shared experts, of the
 * MoE layer. */
#ifndef MODEL_MLP_H
#define MODEL_MLP_H

#include "model/layer.h"

/* A SwiGLU MLP on y (dense layers and shared experts). */
typedef struct MlpState {
    Tensor gu, act;
    float limit; /* of the clamped form, set by the layer; 0: the plain one */
} MlpState;
/* out = mlp(y) + residual (optional). gu_piece: the recompute module of the pre-activation; 0:
 * none. */
Status mlp_forward(LayerRun *r, MlpState *m, Tensor y, Tensor residual, Tensor out,
                   unsigned gu_piece);
/* Makes dy from dout, and in m->gu the gradient of the pre-activation, which backward_weight
 * reads. */
Status mlp_backward_input(LayerRun *r, MlpState *m, Tensor y, Tensor dout, Tensor dy,
                          unsigned gu_piece);
Status mlp_backward_weight(LayerRun *r, const MlpState *m, Tensor y, Tensor dout);

#endif
