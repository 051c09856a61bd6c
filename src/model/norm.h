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
/* Who reads y. Forward leaves rows in `rows`; columns lie in the norm's arena. */
typedef struct NormUse {
    ParamRole role;  /* of the matrix whose products read y in 8 bits; ROLE_NORM: none */
    bool plain;      /* the plain tensor is read, too */
    bool rows_later; /* later phases of this pass read the rows: they lie in ring, not in scratch */
    bool columns_later; /* backward makes the columns, from the plain tensor */
} NormUse;
Status layer_norm_forward(LayerRun *r, NormState *n, NormUse use);
Status layer_norm_recompute(LayerRun *r, NormState *n, NormUse use);
/* r->dh = r->dh_out + (gradient of h through the norm, from dy), dw += */
Status layer_norm_backward(LayerRun *r, const NormState *n, Tensor dy);

#endif
