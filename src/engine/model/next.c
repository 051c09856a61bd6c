/*
 * next: multi-token prediction (DeepSeek-V3, arXiv:2412.19437, section 2.2): a head in the middle
 * of the stack. Depth k predicts the token k positions further on than the model proper does:
 *
 *   y   = norm(h), and the loss of y's own targets, as in the head
 *   h'  = W [ enorm(E[token k further on]) ; hnorm(y) ]
 *
 * One more block turns h' into the input of the next such layer, or of the head. Table E and head
 * are the model's own. Each is read in a phase of its own, because under ZeRO the weights of only
 * one layer are gathered at a time. Each half of W multiplies its own rows, so the concatenation is
 * never made.
 *
 * Evaluations stop at the loss of the model proper. The loss itself is head.c's.
 *
 * Over ranks of tp the loss reads y of all tokens, and each rank looks up its part of the table for all
 * tokens. Everything else works on this rank's rows, so the projection is not split.
 */
#include "engine/model/stream.h"
#include "kernels/dense/linear.h"
#include "kernels/norm/elementwise.h"
#include "kernels/norm/rmsnorm.h"

typedef struct NextState {
    StreamState stream;      /* y */
    NormState token, hidden; /* enorm's and hnorm's rows */
    Tensor row;              /* (rows, D): E[token] */
    Tensor dy;               /* (tokens, D): gradient of y from the loss; of one rank: all of it */
    Tensor dnext, drow;      /* (rows, D): gradients of y from h', over ranks of tp; of row */
} NextState;

static Status next_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    const int64_t d = s->hidden;
    const ParamAdd matrix = { ROLE_EH_PROJ, -1, d, 2 * d, INIT_NORMAL, .decay = true };
    ParamAdd norm = { ROLE_ENORM, -1, 0, d, INIT_ONE, .keep_f32 = true };
    TRY(layer_last_norm(s, l->depth - 1, out));
    TRY(params_add(out, norm, "model.layers.%d.enorm.weight", l->block));
    norm.role = ROLE_HNORM;
    TRY(params_add(out, norm, "model.layers.%d.hnorm.weight", l->block));
    return params_add(out, matrix, "model.layers.%d.eh_proj.weight", l->block);
}

static Status new_rows(LayerRun *r, Arena *a, Tensor *out)
{
    return tensor_new2(a, r->spec->act, r->rows, r->spec->hidden, out);
}

/* This rank's rows of y. */
static Tensor own_y(const LayerRun *r)
{
    const NextState *s = r->state;
    return layer_splits(r) ? s->stream.norm.rows : s->stream.norm.y.x;
}

/* Rows of y are kept: the projection and its backward read them. */
static Status norm_rows(LayerRun *r)
{
    NextState *s = r->state;
    TRY(tensor_new2(r->keep, DTYPE_F32, r->rows, 1, &s->stream.norm.rstd));
    return layer_norm_rows(r, &s->stream.norm, r->keep);
}

/* The residual stream ends here and h' begins a new one, so dh is only the norm's gradient. */
static Status norm_rows_backward(LayerRun *r)
{
    const NextState *s = r->state;
    TRY(add(r->ex, (Add){ .x = s->dnext, .y = s->stream.norm.dy }));
    return layer_norm_rows_backward(r, &s->stream.norm, s->stream.norm.dy, (Tensor){ 0 });
}

static const NormUse loss_norm = { .role = ROLE_NORM, .plain = true, .all_tokens = true };

static Status predict_loss(LayerRun *r)
{
    NextState *s = r->state;
    TRY(layer_norm_forward(r, &s->stream.norm, loss_norm));
    return layer_loss(r, r->layer->depth - 1, s->stream.norm.y.x, &s->dy);
}

static Status predict_loss_backward(LayerRun *r)
{
    NextState *s = r->state;
    s->stream.norm.dy = s->dy;
    if (layer_splits(r)) return OK;
    return layer_norm_rows_backward(r, &s->stream.norm, s->dy, (Tensor){ 0 });
}

static Tensor next_id(const LayerRun *r) { return r->batch->next[r->layer->depth - 1].id; }

static Status look_up_token(LayerRun *r)
{
    NextState *s = r->state;
    if (!r->training) return OK;
    TRY(new_rows(r, r->keep, &s->row));
    if (!layer_splits(r)) return layer_look_up(r, next_id(r), s->row);
    TRY(tensor_new2(r->ring, r->spec->act, r->tokens, r->spec->hidden, &s->stream.part));
    return layer_look_up(r, next_id(r), s->stream.part);
}

static Status scatter_token(LayerRun *r)
{
    const NextState *s = r->state;
    return r->training ? layer_collect_rows(r, COMM_REDUCE_SCATTER, s->stream.part, s->row) : OK;
}

static Status scatter_token_backward(LayerRun *r)
{
    NextState *s = r->state;
    TRY(tensor_new2(r->ring, r->spec->act, r->tokens, r->spec->hidden, &s->stream.dout));
    return layer_collect_rows(r, COMM_ALL_GATHER, s->drow, s->stream.dout);
}

static Status look_up_token_backward_weight(LayerRun *r)
{
    const NextState *s = r->state;
    return layer_look_up_backward(r, next_id(r), layer_splits(r) ? s->stream.dout : s->drow);
}

static Status normalise_rows(LayerRun *r, Tensor x, ParamRole w, NormState *n)
{
    TRY(new_rows(r, r->keep, &n->y.x));
    TRY(tensor_new2(r->keep, DTYPE_F32, r->rows, 1, &n->rstd));
    return rmsnorm_fwd(r->ex, (RmsnormFwd){ .x = x,
                                            .w = r->weights->w[w].data,
                                            .y = n->y.x,
                                            .rstd = n->rstd,
                                            .eps = r->spec->eps });
}

static Status project_next(LayerRun *r)
{
    NextState *s = r->state;
    const int64_t d = r->spec->hidden;
    LinearFwd half = { .w = r->weights->w[ROLE_EH_PROJ], .y = r->h_out, .w_cols = d };
    if (!r->training) return OK;
    TRY(normalise_rows(r, s->row, ROLE_ENORM, &s->token));
    TRY(normalise_rows(r, own_y(r), ROLE_HNORM, &s->hidden));
    half.x = operand_plain(s->token.y.x);
    TRY(linear_fwd(r->ex, half));
    half.x = operand_plain(s->hidden.y.x);
    half.r = r->h_out;
    half.w_col = d;
    return linear_fwd(r->ex, half);
}

/* Takes dh_out back through the half of W that begins at w_col and the norm before it, and adds
 * dres: dx = dres + d norm(W_half^T dh_out). */
static Status half_backward(LayerRun *r, int64_t w_col, ParamRole w, const NormState *n, Tensor x,
                            Tensor dres, Tensor dx)
{
    Tensor dn;
    TRY(new_rows(r, r->scratch, &dn));
    TRY(linear_bwd_input(r->ex, (LinearBwdInput){ .dy = operand_plain(r->dh_out),
                                                  .w = r->weights->w[ROLE_EH_PROJ],
                                                  .dx = dn,
                                                  .w_col = w_col,
                                                  .w_cols = r->spec->hidden }));
    return rmsnorm_bwd(r->ex, (RmsnormBwd){ .dy = dn,
                                            .x = x,
                                            .w = r->weights->w[w].data,
                                            .rstd = n->rstd,
                                            .dres = dres,
                                            .dx = dx,
                                            .dw = r->weights->dw[w] });
}

/* dy has the loss's gradient already; this adds the gradient that comes through h'. Over ranks of tp dy is
 * not yet summed, so the two are added later. */
static Status project_next_backward(LayerRun *r)
{
    NextState *s = r->state;
    const Tensor none = { 0 };
    TRY(new_rows(r, r->ring, &s->drow));
    TRY(half_backward(r, 0, ROLE_ENORM, &s->token, s->row, none, s->drow));
    s->dnext = s->dy;
    if (layer_splits(r)) TRY(new_rows(r, r->ring, &s->dnext));
    return half_backward(r, r->spec->hidden, ROLE_HNORM, &s->hidden, own_y(r),
                         layer_splits(r) ? none : s->dy, s->dnext);
}

static Status project_next_backward_weight(LayerRun *r)
{
    const NextState *s = r->state;
    const int64_t d = r->spec->hidden;
    LinearBwdWeight half = { .dy = operand_plain(r->dh_out),
                             .dw = r->weights->dw[ROLE_EH_PROJ],
                             .w_cols = d };
    half.x = operand_plain(s->token.y.x);
    TRY(linear_bwd_weight(r->ex, half));
    half.x = operand_plain(s->hidden.y.x);
    half.w_col = d;
    return linear_bwd_weight(r->ex, half);
}

static const Phase phases[] = {
    { "norm", LANE_COMPUTE, norm_rows, norm_rows_backward, NULL, .part = PHASE_ATTENTION,
      .split = true },
    STREAM_GATHER(PHASE_ATTENTION),
    { "loss", LANE_COMPUTE, predict_loss, predict_loss_backward, NULL, .part = PHASE_ATTENTION,
      .weights = WEIGHTS_HEAD, .forward_gradients = true },
    { "look_up", LANE_COMPUTE, look_up_token, NULL, look_up_token_backward_weight,
      .part = PHASE_ATTENTION, .weights = WEIGHTS_TABLE },
    { "scatter", LANE_COMM, scatter_token, scatter_token_backward, NULL, .part = PHASE_ATTENTION,
      .split = true },
    { "project", LANE_COMPUTE, project_next, project_next_backward, project_next_backward_weight,
      .part = PHASE_ATTENTION },
};

/* As the head's: the loss adds up maxima and sums over ranks of tp. */
static bool next_communicates(const ModelSpec *s, const LayerSpec *l, int phase, bool forward)
{
    (void)l;
    return s->ranks.tp > 1 && forward && phases[phase].forward_gradients;
}

const LayerDesc layer_next = {
    .name = "next",
    .title = "multi-token prediction",
    .state_bytes = sizeof(NextState),
    .params = next_params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
    .communicates = next_communicates,
    .once = true,
};
