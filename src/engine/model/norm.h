/*
 * norm: the RMSNorm at the beginning of most layers, and what products read of its result.
 *
 * Where ranks of tp split the stream (engine/model/stream.h), the norm works on the rows of this rank and has
 * phases of its own. layer_norm_forward then only makes what products read of the gathered y, and
 * layer_norm_backward leaves dy to these phases.
 */
#ifndef ENGINE_MODEL_NORM_H
#define ENGINE_MODEL_NORM_H

#include "engine/model/recipe.h"

/* Shared by layers: y = norm(h) in layer_arena(RECOMPUTE_NORM). _recompute makes it in backward if it was not kept. */
typedef struct NormState {
    Activation y;
    Tensor rstd;
    Tensor rows; /* over ranks of tp: norm(h) of this rank's rows, in ring */
    Tensor dy;   /* over ranks of tp: gradient of y, this rank's part of the sum, in ring */
} NormState;
/* Who reads y. Forward leaves rows in `rows`; columns lie in the norm's arena. */
typedef struct NormUse {
    ParamRole role;  /* of the matrix whose products read y in 8 bits; ROLE_NORM: none */
    bool plain;      /* the plain tensor is read, too */
    bool rows_later; /* later phases of this pass read the rows: they lie in ring, not in scratch */
    bool columns_later; /* backward makes the columns, from the plain tensor */
    bool
        all_tokens; /* over ranks of tp y was gathered (engine/model/stream.h); else it is of own rows */
} NormUse;
Status layer_norm_forward(LayerRun *r, NormState *n, NormUse use);
Status layer_norm_recompute(LayerRun *r, NormState *n, NormUse use);
/* Memory for dy (tokens, D), which products make. */
Status layer_norm_new_gradient(LayerRun *r, Tensor *dy);
/* r->dh = r->dh_out + (gradient of h through the norm, from dy), dw += */
Status layer_norm_backward(LayerRun *r, NormState *n, Tensor dy);
/* The same two for the rows of this rank alone: n->rows = norm(h) in `arena`, and its backward. */
Status layer_norm_rows(LayerRun *r, NormState *n, Arena *arena);
Status layer_norm_rows_backward(LayerRun *r, const NormState *n, Tensor dy, Tensor dres);

#endif
