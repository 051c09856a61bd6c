/* recipe: makes the operands of a layer's products, and runs dense ones. */
#include "engine/model/recipe.h"

#include "kernels/dense/linear.h"
#include "kernels/quant/quant.h"

typedef struct RecipeKinds {
    OperandKind rows, weight, columns;
} RecipeKinds;

enum { SIDE_WEIGHT = SIDE_GRADIENT + 1 }; /* the matrix itself, for names */

static const RecipeKinds kinds[] = {
    [RECIPE_NONE] = { OPERAND_PLAIN, OPERAND_PLAIN, OPERAND_PLAIN },
    [RECIPE_TENSOR] = { OPERAND_TENSOR, OPERAND_TENSOR, OPERAND_TENSOR },
    [RECIPE_ROW] = { OPERAND_ROW, OPERAND_ROW, OPERAND_ROW },
    [RECIPE_BLOCK] = { OPERAND_1X128, OPERAND_128X128, OPERAND_1X128 },
    [RECIPE_MX] = { OPERAND_1X32, OPERAND_1X32, OPERAND_1X32 },
};

/* The matrices that 8-bit recipes multiply by, and what errors call the operands of their products:
 * those of SIDE_FORWARD and SIDE_GRADIENT, and the matrix itself. */
#define SIDES(matrix)                                                                              \
    {                                                                                              \
        "the input of " matrix, "the gradient of " matrix, matrix                                  \
    }
static const char *const operand_names[ROLE_COUNT][SIDE_WEIGHT + 1] = {
    [ROLE_Q] = SIDES("attention's q projection"),
    [ROLE_A] = SIDES("attention's first projection"),
    [ROLE_Q_B] = SIDES("attention's q_b projection"),
    [ROLE_KV_B] = SIDES("attention's kv_b projection"),
    [ROLE_O] = SIDES("attention's output projection"),
    [ROLE_GATE_UP] = SIDES("the MLP's gate and up projections"),
    [ROLE_DOWN] = SIDES("the MLP's down projection"),
    [ROLE_EXPERT_GATE_UP] = SIDES("the experts' gate and up projections"),
    [ROLE_EXPERT_DOWN] = SIDES("the experts' down projections"),
    [ROLE_HEAD] = SIDES("the head"),
};
#undef SIDES

bool recipe_quantises(const ModelSpec *s, const LayerSpec *l, ParamRole role)
{
    bool routed = role == ROLE_EXPERT_GATE_UP || role == ROLE_EXPERT_DOWN;
    bool wanted = routed ? s->recipe.grouped : s->recipe.dense;
    if (role == ROLE_HEAD) return s->recipe.head;
    return s->recipe.kind != RECIPE_NONE && wanted && l->eight_bit &&
           operand_names[role][0] != NULL;
}

/* Only scales of 1 x 128 are known where a tile is. A pool has rows of one kind, so all layers must
 * agree. A bias needs gradients that no product has rounded. */
bool recipe_narrow(const ModelSpec *s, const LayerSpec *l)
{
    const RecipeSpec *r = &s->recipe;
    const MoeSpec *m = &l->as.moe;
    return r->kind == RECIPE_BLOCK && r->keep && r->weight_gradients && !r->some_layers &&
           r->forward == r->gradient && recipe_quantises(s, l, ROLE_EXPERT_GATE_UP) &&
           m->ffn % OPERAND_BLOCK == 0 && !m->expert_bias;
}

/* Does the weight gradient of `role` read 8-bit columns? */
static bool quantises_columns(const LayerRun *r, ParamRole role)
{
    return r->spec->recipe.weight_gradients && recipe_quantises(r->spec, r->layer, role);
}

/* A frozen matrix has no weight gradient. */
static bool trains(const LayerRun *r, ParamRole role) { return r->weights->dw[role].data != NULL; }

/* A planned operand takes the memory that hardware would need: where elements are emulated in more,
 * nothing is ever stored. */
static Status place(const ModelSpec *s, Arena *a, Operand shape, Operand *out)
{
    void *at = NULL;
    *out = shape;
    if (!s->recipe.packed) return operand_alloc(a, out);
    TRY(arena_alloc(a, (size_t)operand_bytes(out), &at));
    out->data.data = out->scale.data = at;
    return OK;
}

static Dtype type_of(const LayerRun *r, RecipeSide side)
{
    return side == SIDE_GRADIENT ? r->spec->recipe.gradient : r->spec->recipe.forward;
}

/* The columns of an (n, cols) tensor as one group. */
static Status new_columns(LayerRun *r, Arena *a, RecipeSide side, int64_t n, int64_t cols,
                          Operand *out)
{
    Operand q = operand_shape(kinds[r->spec->recipe.kind].columns, type_of(r, side), 2,
                              (const int64_t[]){ cols, n });
    q.transposed = true;
    return place(r->spec, a, q, out);
}

static Status new_rows(LayerRun *r, Arena *a, RecipeSide side, int64_t n, int64_t cols,
                       Operand *out)
{
    const Operand q = operand_shape(kinds[r->spec->recipe.kind].rows, type_of(r, side), 2,
                                    (const int64_t[]){ n, cols });
    return place(r->spec, a, q, out);
}

/* Operands that no product will read have no arena; those of a plain tensor need none. */
static Status new_operands(LayerRun *r, ParamRole role, RecipeSide side, Arena *rows,
                           Arena *columns, Activation *a)
{
    int64_t cols = tensor_cols(&a->x), n = tensor_elems(&a->x) / cols;
    a->rows = a->columns = operand_plain(a->x);
    if (rows != NULL && recipe_quantises(r->spec, r->layer, role))
        TRY(new_rows(r, rows, side, n, cols, &a->rows));
    if (columns != NULL && quantises_columns(r, role))
        TRY(new_columns(r, columns, side, n, cols, &a->columns));
    return OK;
}

Status recipe_new(LayerRun *r, ParamRole role, RecipeSide side, int64_t n, int64_t cols,
                  ActivationArenas at, Activation *out)
{
    bool read = at.plain || !recipe_quantises(r->spec, r->layer, role) ||
                (at.columns != NULL && !quantises_columns(r, role));
    out->x = (Tensor){ .dtype = r->spec->act, .rank = 2, .dim = { n, cols } };
    if (read && at.over.data != NULL)
        out->x = at.over;
    else if (read)
        TRY(tensor_new2(at.x, r->spec->act, n, cols, &out->x));
    return new_operands(r, role, side, at.rows, at.columns, out);
}

QuantOut recipe_output(const LayerRun *r, ParamRole role, RecipeSide side, const Activation *a)
{
    const Operand none = { 0 };
    return (QuantOut){ .rows = a->rows.kind == OPERAND_PLAIN ? none : a->rows,
                       .columns = a->columns.kind == OPERAND_PLAIN ? none : a->columns,
                       .pow2 = r->spec->recipe.pow2,
                       .of = operand_names[role][side] };
}

Status recipe_quantise(LayerRun *r, ParamRole role, RecipeSide side, const Activation *a)
{
    QuantOut q = recipe_output(r, role, side, a);
    return quant_out_wanted(&q) ? quantize(r->ex, quant_out_call(&q, a->x)) : OK;
}

Status recipe_operands(LayerRun *r, ParamRole role, RecipeSide side, Tensor x, Arena *rows,
                       Arena *columns, Activation *out)
{
    out->x = x;
    TRY(new_operands(r, role, side, rows, trains(r, role) ? columns : NULL, out));
    return recipe_quantise(r, role, side, out);
}

/* A first forward of a layer that is recomputed as a whole keeps nothing. */
Arena *recipe_keeps(const LayerRun *r, unsigned piece)
{
    bool again = (r->layer->recompute & RECOMPUTE_LAYER) != 0 && !r->recomputing;
    return r->training && !again && layer_arena(r, piece) == r->keep ? r->keep : NULL;
}

Status recipe_rows(LayerRun *r, ParamRole role, RecipeSide side, Tensor x,
                   const RecipeGroups *routed, Operand *out)
{
    *out = operand_plain(x);
    if (!recipe_quantises(r->spec, r->layer, role)) return OK;
    Quantize q = { .x = operand_plain(x),
                   .pow2 = r->spec->recipe.pow2,
                   .of = operand_names[role][side] };
    int64_t D = tensor_cols(&x), n = routed != NULL ? routed->rows.bound : tensor_elems(&x) / D;
    if (routed != NULL) q.rows = routed->rows, q.row_token = routed->row_token;
    TRY(new_rows(r, r->scratch, side, n, D, &q.quant));
    *out = q.quant;
    return quantize(r->ex, q);
}

Status recipe_dispatched(LayerRun *r, ParamRole role, RecipeSide side, Tensor x, Arena *a,
                         Operand *out)
{
    Activation y = { 0 };
    TRY(recipe_operands(r, role, side, x, r->spec->recipe.dispatch ? a : NULL, NULL, &y));
    *out = y.rows;
    return OK;
}

Status recipe_undispatched(LayerRun *r, Operand x, Tensor *out)
{
    *out = x.data;
    if (x.kind == OPERAND_PLAIN) return OK;
    TRY(tensor_new(r->scratch, r->spec->act, x.data.rank, x.data.dim, out));
    return dequantize(r->ex, (Dequantize){ .quant = x, .y = *out });
}

Status recipe_columns(LayerRun *r, ParamRole role, RecipeSide side, Operand from,
                      const RecipeGroups *groups, Operand *out)
{
    Tensor x;
    *out = from;
    if (!trains(r, role)) return OK;
    if (!quantises_columns(r, role)) {
        TRY(recipe_undispatched(r, from, &x));
        *out = operand_plain(x);
        return OK;
    }
    Quantize q = { .x = from,
                   .offsets = groups->offsets,
                   .row_token = groups->row_token,
                   .rows = groups->rows,
                   .pow2 = r->spec->recipe.pow2,
                   .of = operand_names[role][side] };
    const Operand shape = operand_shape_groups(
        kinds[r->spec->recipe.kind].columns, type_of(r, side), tensor_cols(&from.data),
        groups->rows.bound, tensor_elems(&groups->offsets) - 1);
    TRY(place(r->spec, r->scratch, shape, &q.transposed));
    *out = q.transposed;
    return quantize(r->ex, q);
}

/* The 8-bit operand for a matrix: as stored, or (cols, rows) of each matrix. */
static Status new_weight(const ModelSpec *s, Arena *a, const Tensor *w, bool transposed,
                         Operand *out)
{
    int64_t dim[3] = { w->dim[0], w->dim[1], w->dim[2] };
    if (transposed) dim[w->rank - 1] = w->dim[w->rank - 2], dim[w->rank - 2] = tensor_cols(w);
    Operand q = operand_shape(kinds[s->recipe.kind].weight, s->recipe.forward, w->rank, dim);
    q.transposed = transposed;
    return place(s, a, q, out);
}

Status recipe_alloc(const ModelSpec *s, const LayerSpec *l, Arena *a, LayerWeights *w)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        const Tensor *data = &w->w[role].data;
        if (data->data == NULL || w->scaled[0][role].data.data != NULL) continue;
        if (!recipe_quantises(s, l, (ParamRole)role)) continue;
        for (int t = 0; t < 2; t++) TRY(new_weight(s, a, data, t == 1, &w->scaled[t][role]));
    }
    return OK;
}

size_t recipe_bytes(const ModelSpec *s, const LayerSpec *l, ParamRole role, const Matrix *m)
{
    if (!recipe_quantises(s, l, role)) return 0;
    int64_t cols = m->dim[m->rank - 1], matrices = m->rank == 3 ? m->dim[0] : 1;
    int64_t elems = matrix_elems(m), rows = elems / cols / matrices;
    OperandKind kind = kinds[s->recipe.kind].weight;
    OperandGrid g = operand_grid(kind, rows, cols), t = operand_grid(kind, cols, rows);
    if (s->recipe.packed)
        return 2 * arena_rounded(
                       (size_t)((double)elems * operand_element_bytes(kind, s->recipe.forward)));
    return 2 * arena_rounded((size_t)elems) +
           arena_rounded((size_t)(matrices * g.rows * g.cols) * sizeof(float)) +
           arena_rounded((size_t)(matrices * t.rows * t.cols) * sizeof(float));
}

/* Main weights are rounded as a copy of them would be: where it lies does not change the bits. */
QuantOut recipe_copies(const ModelSpec *s, const LayerWeights *w, ParamRole role)
{
    return (QuantOut){ .rows = w->scaled[0][role],
                       .columns = w->scaled[1][role],
                       .round = copies_type(&s->weights),
                       .pow2 = s->recipe.pow2,
                       .of = operand_names[role][SIDE_WEIGHT] };
}

Status recipe_refresh(Exec *ex, const ModelSpec *s, const LayerWeights *w, ParamRole role)
{
    const QuantOut copies = recipe_copies(s, w, role);
    return quant_out_wanted(&copies) ? quantize(ex, quant_out_call(&copies, w->w[role].data)) : OK;
}

Status recipe_weight(LayerRun *r, ParamRole role, bool transposed, Operand *out)
{
    const Operand *w = &r->weights->w[role], *copy = &r->weights->scaled[transposed][role];
    *out = *w;
    if (!recipe_quantises(r->spec, r->layer, role)) return OK;
    *out = *copy;
    if (copy->data.data != NULL) return OK;
    TRY(new_weight(r->spec, r->scratch, &w->data, transposed, out));
    Quantize q = { .x = *w, .pow2 = r->spec->recipe.pow2, .of = operand_names[role][SIDE_WEIGHT] };
    *(transposed ? &q.transposed : &q.quant) = *out;
    return quantize(r->ex, q);
}

Status recipe_forward(LayerRun *r, ParamRole role, Operand x, Tensor residual, Tensor y)
{
    LinearFwd a = { .x = x, .r = residual, .y = y };
    ArenaMark mark = arena_mark(r->scratch);
    TRY(recipe_weight(r, role, false, &a.w));
    TRY(linear_fwd(r->ex, a));
    arena_release(r->scratch, mark);
    return OK;
}

Status recipe_backward_input(LayerRun *r, ParamRole role, Operand dy, Tensor residual, Tensor dx)
{
    LinearBwdInput a = { .dy = dy, .r = residual, .dx = dx };
    ArenaMark mark = arena_mark(r->scratch);
    TRY(recipe_weight(r, role, true, &a.w));
    TRY(linear_bwd_input(r->ex, a));
    arena_release(r->scratch, mark);
    return OK;
}

Status recipe_backward_weight(LayerRun *r, ParamRole role, Operand dy, Operand x)
{
    LinearBwdWeight a = { .dy = dy, .x = x, .dw = r->weights->dw[role] };
    return linear_bwd_weight(r->ex, a);
}
