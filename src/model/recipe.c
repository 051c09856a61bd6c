/* recipe: makes the operands of a layer's products, and runs dense ones. */
#include "model/recipe.h"

#include "op/linear.h"
#include "op/quant.h"

typedef struct RecipeKinds {
    OperandKind rows, weight, columns;
} RecipeKinds;

static const RecipeKinds kinds[] = {
    [RECIPE_NONE] = { OPERAND_PLAIN, OPERAND_PLAIN, OPERAND_PLAIN },
    [RECIPE_TENSOR] = { OPERAND_TENSOR, OPERAND_TENSOR, OPERAND_TENSOR },
    [RECIPE_ROW] = { OPERAND_ROW, OPERAND_ROW, OPERAND_ROW },
    [RECIPE_BLOCK] = { OPERAND_1X128, OPERAND_128X128, OPERAND_1X128 },
};

/* Matrices that 8-bit recipes multiply by. */
static bool role_fits(ParamRole role)
{
    static const ParamRole roles[] = { ROLE_Q,          ROLE_A,
                                       ROLE_Q_B,        ROLE_KV_B,
                                       ROLE_O,          ROLE_GATE_UP,
                                       ROLE_DOWN,       ROLE_EXPERT_GATE_UP,
                                       ROLE_EXPERT_DOWN };
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (roles[i] == role) return true;
    }
    return false;
}

bool recipe_quantises(const ModelSpec *s, const LayerSpec *l, ParamRole role)
{
    return s->recipe.kind != RECIPE_NONE && l->eight_bit && role_fits(role);
}

bool recipe_columns_quantised(const LayerRun *r, ParamRole role)
{
    return r->spec->recipe.weight_gradients && recipe_quantises(r->spec, r->layer, role);
}

static Dtype type_of(const LayerRun *r, RecipeSide side)
{
    return side == SIDE_GRADIENT ? r->spec->recipe.gradient : r->spec->recipe.forward;
}

Status recipe_rows(LayerRun *r, ParamRole role, RecipeSide side, Tensor x, const Rows *rows,
                   Operand *out)
{
    *out = operand_plain(x);
    if (!recipe_quantises(r->spec, r->layer, role)) return OK;
    Quantize q = { .x = x, .pow2 = r->spec->recipe.pow2 };
    int64_t D = tensor_cols(&x), n = rows != NULL ? rows->bound : tensor_elems(&x) / D;
    if (rows != NULL) q.rows = *rows;
    TRY(operand_new(r->scratch, kinds[r->spec->recipe.kind].rows, type_of(r, side), 2,
                    (const int64_t[]){ n, D }, &q.quant));
    *out = q.quant;
    return quantize(r->ex, q);
}

Status recipe_columns(LayerRun *r, ParamRole role, RecipeSide side, Tensor x,
                      const RecipeGroups *groups, Operand *out)
{
    *out = operand_plain(x);
    if (!recipe_columns_quantised(r, role) || r->weights->dw[role].data == NULL) return OK;
    const OperandKind kind = kinds[r->spec->recipe.kind].columns;
    Quantize q = { .x = x, .pow2 = r->spec->recipe.pow2 };
    int64_t D = tensor_cols(&x), n = tensor_elems(&x) / D;
    if (groups == NULL) {
        TRY(operand_new(r->scratch, kind, type_of(r, side), 2, (const int64_t[]){ D, n },
                        &q.transposed));
        q.transposed.transposed = true;
    } else {
        q.offsets = groups->offsets;
        q.row_token = groups->row_token;
        q.rows = groups->rows;
        TRY(operand_new_groups(r->scratch, kind, type_of(r, side), D, groups->rows.bound,
                               tensor_elems(&groups->offsets) - 1, &q.transposed));
    }
    *out = q.transposed;
    return quantize(r->ex, q);
}

/* As stored, or (cols, rows) of each matrix. */
static Status weight_copy(LayerRun *r, const Tensor *w, bool transposed, Operand *out)
{
    int64_t dim[3] = { w->rank == 3 ? w->dim[0] : 1, w->dim[w->rank - 2], tensor_cols(w) };
    int64_t turned[3] = { dim[0], dim[2], dim[1] };
    const int64_t *shape = (transposed ? turned : dim) + (w->rank == 2);
    TRY(operand_new(r->scratch, kinds[r->spec->recipe.kind].weight, type_of(r, SIDE_FORWARD),
                    w->rank, shape, out));
    out->transposed = transposed;
    Quantize q = { .x = *w, .pow2 = r->spec->recipe.pow2 };
    *(transposed ? &q.transposed : &q.quant) = *out;
    return quantize(r->ex, q);
}

Status recipe_weight(LayerRun *r, ParamRole role, bool transposed, Operand *out)
{
    const Operand *w = &r->weights->w[role];
    *out = *w;
    if (!recipe_quantises(r->spec, r->layer, role)) return OK;
    return weight_copy(r, &w->data, transposed, out);
}

Status recipe_forward(LayerRun *r, ParamRole role, Tensor x, Tensor residual, Tensor y)
{
    LinearFwd a = { .r = residual, .y = y };
    ArenaMark mark = arena_mark(r->scratch);
    TRY(recipe_rows(r, role, SIDE_FORWARD, x, NULL, &a.x));
    TRY(recipe_weight(r, role, false, &a.w));
    TRY(linear_fwd(r->ex, a));
    arena_release(r->scratch, mark);
    return OK;
}

Status recipe_backward_input(LayerRun *r, ParamRole role, Tensor dy, Tensor residual, Tensor dx)
{
    LinearBwdInput a = { .r = residual, .dx = dx };
    ArenaMark mark = arena_mark(r->scratch);
    TRY(recipe_rows(r, role, SIDE_GRADIENT, dy, NULL, &a.dy));
    TRY(recipe_weight(r, role, true, &a.w));
    TRY(linear_bwd_input(r->ex, a));
    arena_release(r->scratch, mark);
    return OK;
}

Status recipe_backward_weight(LayerRun *r, ParamRole role, Tensor dy, Tensor x)
{
    LinearBwdWeight a = { .dw = r->weights->dw[role] };
    ArenaMark mark = arena_mark(r->scratch);
    if (a.dw.data == NULL) return OK; /* the matrix is frozen */
    TRY(recipe_columns(r, role, SIDE_GRADIENT, dy, NULL, &a.dy));
    TRY(recipe_columns(r, role, SIDE_FORWARD, x, NULL, &a.x));
    TRY(linear_bwd_weight(r->ex, a));
    arena_release(r->scratch, mark);
    return OK;
}
