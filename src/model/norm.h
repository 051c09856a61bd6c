/* norm: the RMSNorm at the beginning of most layers, and what products read of its result. */
#ifndef MODEL_NORM_H
#define MODEL_NORM_H

#include "model/recipe.h"

/* Shared by layers: y = norm(h) in layer_arena(RECOMPUTE_NORM). _recompute makes it in backward if
 * it was not kept. */
typedef struct NormState {
    Activation y;
    Tensor rstd;
} NormState;
/* What products read of y beside the plain tensor: forward leaves rows in scratch, and what
 * backward reads in the norm's arena. role ROLE_NORM: no product in 8 bits reads it. */
typedef struct NormUse {
    ParamRole role;
    bool plain; /* the plain tensor is read, too */
} NormUse;
Status layer_norm_forward(LayerRun *r, NormState *n, NormUse use);
Status layer_norm_recompute(LayerRun *r, NormState *n, NormUse use);
/* r->dh = r->dh_out + (gradient of h through the norm, from dy), dw += */
Status layer_norm_backward(LayerRun *r, const NormState *n, Tensor dy);

#endif
