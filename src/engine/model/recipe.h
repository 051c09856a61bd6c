/*
 * recipe: which products of a model read 8-bit operands, and how these are scaled. A layer asks
 * here for the operands of each product. Without a recipe it is given plain tensors.
 *
 *   recipe   rows of x, dy       weights          columns of x, dy (weight gradient)
 *   tensor   one scale           one a matrix     one scale
 *   row      one a row           one a row        one a column (of each expert's rows)
 *   block    1 x 128             128 x 128        128 x 1
 *   mx       1 x 32              1 x 32           32 x 1
 *
 * block is DeepSeek-V3's (arXiv:2412.19437, section 3.3), mx that of OCP Microscaling (MX) v1.0. Every operand is
 * quantised from the tensor in run.compute's type, never from another 8-bit operand, with scales of the call at hand.
 * But with recipe.dispatch the rows that go to routed experts are quantised once, at their token's rank. These 8-bit
 * rows travel, products read them, and columns are made from them. Scales are powers of two, so a column's code is the
 * row's but for numbers that are subnormal in the column's block. With recipe.head so are the head's products
 * (kernels/head/head.h). Other layers that read its matrix share its copies. Not quantised: embedding, router, norms,
 * attention itself, the projection of multi-token prediction, main weights, sums of gradients.
 */
#ifndef ENGINE_MODEL_RECIPE_H
#define ENGINE_MODEL_RECIPE_H

#include "engine/model/layer.h"
#include "kernels/moe/moe.h"
#include "kernels/quant/quant.h"

/* Does this layer multiply by the matrix of this role in 8 bits? */
bool recipe_quantises(const ModelSpec *s, const LayerSpec *l, ParamRole role);

typedef enum RecipeSide { SIDE_FORWARD, SIDE_GRADIENT } RecipeSide;

/* The routed rows of each expert. row_token without data: x has a row for each. */
typedef struct RecipeGroups {
    Tensor offsets, row_token;
    Rows rows;
} RecipeGroups;

/* An activation that products read: its rows (y = x W^T, dx = dy W) and its columns (weight
 * gradients). Without a recipe both are x itself. */
typedef struct Activation {
    Tensor x; /* no data: nothing reads it but products in 8 bits */
    Operand rows, columns;
} Activation;

/* Do the products of routed experts write the 8-bit operands of the next ones themselves, and keep
 * pre-activations in 8 bits? */
bool recipe_narrow(const ModelSpec *s, const LayerSpec *l);

/* Where the parts of an activation lie. `x`: the plain tensor; it is made if `plain` is set or an
 * operand is plain. rows, columns NULL: no product will read these. */
typedef struct ActivationArenas {
    Arena *x, *rows, *columns;
    Tensor over; /* with data: x overwrites it, instead of memory in an arena */
    bool plain;
} ActivationArenas;

/* Allocates an output (n, cols) of an op that products with `role` will read. The op makes the operands
 * (recipe_output). If nothing else reads the plain tensor, it has a shape but no data. */
Status recipe_new(LayerRun *r, ParamRole role, RecipeSide side, int64_t n, int64_t cols,
                  ActivationArenas at, Activation *out);
/* The 8-bit operands of `a`, for the op that makes it. */
QuantOut recipe_output(const LayerRun *r, ParamRole role, RecipeSide side, const Activation *a);
/* Quantises what an op wrote into a->x. */
Status recipe_quantise(LayerRun *r, ParamRole role, RecipeSide side, const Activation *a);
/* The operands of a tensor that is already there, both from one read. */
Status recipe_operands(LayerRun *r, ParamRole role, RecipeSide side, Tensor x, Arena *rows,
                       Arena *columns, Activation *out);
/* The arena for columns that forward makes of a tensor that `piece` would recompute; NULL: backward
 * makes them, or nothing reads them. */
Arena *recipe_keeps(const LayerRun *r, unsigned piece);

/* The rows of x, for the product with the matrix of `role`. routed: the rows in use, gathered by
 * row_token if it has data; NULL: all rows. The operand is in scratch. */
Status recipe_rows(LayerRun *r, ParamRole role, RecipeSide side, Tensor x,
                   const RecipeGroups *routed, Operand *out);

/* x as it goes to routed experts, for the product with the matrix of `role`: 8-bit rows in `a` with
 * recipe.dispatch, else x itself. */
Status recipe_dispatched(LayerRun *r, ParamRole role, RecipeSide side, Tensor x, Arena *a,
                         Operand *out);

/* x in the type of run.compute: x itself, or, if it was dispatched in 8 bits, a copy in scratch. */
Status recipe_undispatched(LayerRun *r, Operand x, Tensor *out);

/* The columns of `from`, plain or dispatched, for the weight gradient of `role`. */
Status recipe_columns(LayerRun *r, ParamRole role, RecipeSide side, Operand from,
                      const RecipeGroups *groups, Operand *out);

/* Allocates the 8-bit copies of a layer's matrices, both orientations, in `a`, except those that `w` already has. */
Status recipe_alloc(const ModelSpec *s, const LayerSpec *l, Arena *a, LayerWeights *w);
/* Bytes that recipe_alloc takes for a matrix of `role`, as arenas round them; 0: it is not quantised. */
size_t recipe_bytes(const ModelSpec *s, const LayerSpec *l, ParamRole role, const Matrix *m);
/* The lasting copies of the matrix of `role`, for the op that makes them; no data: it has none. */
QuantOut recipe_copies(const ModelSpec *s, const LayerWeights *w, ParamRole role);
/* Quantises the matrix of `role`, if it has such copies: after a load, and once a step unless the update does. */
Status recipe_refresh(Exec *ex, const ModelSpec *s, const LayerWeights *w, ParamRole role);

/* The matrix of `role`, for the product of forward (transposed false) or of backward to the input. */
Status recipe_weight(LayerRun *r, ParamRole role, bool transposed, Operand *out);

/* The three products with a matrix, as kernels/dense/linear.h has them: y = x W^T + residual (optional),
 * dx = dy W + residual, dW += dy^T x. x and dy of the first two are rows, of the last columns. */
Status recipe_forward(LayerRun *r, ParamRole role, Operand x, Tensor residual, Tensor y);
Status recipe_backward_input(LayerRun *r, ParamRole role, Operand dy, Tensor residual, Tensor dx);
Status recipe_backward_weight(LayerRun *r, ParamRole role, Operand dy, Operand x);

#endif
