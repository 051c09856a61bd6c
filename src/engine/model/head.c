/*
 * head: the last norm, the output projection and the loss.
 *
 * The loss op computes the gradient of its input and of the projection during forward (kernels/head/head.h),
 * because logits of all tokens would not fit in memory. So backward here is only the norm's.
 * Without training it computes losses, or, for generation, the logits themselves. layer_loss also
 * serves the modules of multi-token prediction (next.c).
 */
#include "kernels/head/head.h"
#include "engine/model/recipe.h"
#include "engine/model/stream.h"

typedef struct HeadState {
    StreamState stream;
    Tensor dy;
} HeadState;

Status layer_last_norm(const ModelSpec *s, int depth, ParamList *out)
{
    const ParamAdd add = { ROLE_NORM, -1, 0, s->hidden, INIT_ONE, .keep_f32 = true };
    if (depth == 0) return params_add(out, add, "model.norm.weight");
    int block = (int)s->blocks + depth - 1;
    return params_add(out, add, "model.layers.%d.shared_head.norm.weight", block);
}

static Status head_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    TRY(layer_last_norm(s, l->depth, out));
    if (s->tied) return OK; /* params_bind gives the head the embedding's table */
    return params_add(out,
                      (ParamAdd){ ROLE_HEAD, -1, s->vocab, s->hidden, INIT_NORMAL, .decay = true,
                                  .split = SPLIT_ROWS },
                      "lm_head.weight");
}

Status layer_loss(LayerRun *r, int depth, Tensor y, Tensor *dy)
{
    const ModelSpec *spec = r->spec;
    const int64_t rows = spec_vocab_rows(spec);
    Tensor sum = r->record->loss;
    if (depth > 0) sum = tensor_rows(&r->record->next_loss, depth - 1, 1);
    HeadLoss loss = { .x = y,
                      .target = batch_target(r->batch, depth),
                      .scale = tensor_rows(&r->head.scale, depth, 1),
                      .loss = r->head.loss,
                      .loss_sum = sum,
                      .chunk = head_chunk(spec->loss.chunk, r->ex->gpu != NULL, rows, spec->act),
                      .vocab_first = spec->ranks.tp_rank * rows,
                      .ranks = spec->ranks.tp,
                      .silent = spec->ranks.tp_rank > 0,
                      .pow2 = spec->recipe.pow2,
                      .plain_dw = !spec->recipe.weight_gradients,
                      .gradient = spec->recipe.gradient };
    TRY(recipe_weight(r, ROLE_HEAD, false, &loss.w));
    if (r->training) {
        if (spec->recipe.head) TRY(recipe_weight(r, ROLE_HEAD, true, &loss.turned));
        TRY(tensor_new2(r->keep, spec->act, r->tokens, spec->hidden, dy));
        loss.dx = *dy;
        loss.dw = r->weights->dw[ROLE_HEAD];
    }
    return head_loss(r->ex, loss);
}

static const NormUse loss_norm = { .role = ROLE_NORM, .plain = true, .all_tokens = true };

/* With logits set only the last `rows` tokens are projected: generation needs one row of N. */
static Status head_forward(LayerRun *r)
{
    HeadState *s = r->state;
    int64_t n = r->tokens;
    TRY(layer_norm_forward(r, &s->stream.norm, loss_norm));
    if (r->head.logits.data != NULL) {
        int64_t rows = r->head.logits.dim[0];
        Tensor last = tensor_rows(&s->stream.norm.y.x, n - rows, rows);
        Operand x;
        TRY(recipe_rows(r, ROLE_HEAD, SIDE_FORWARD, last, NULL, &x));
        return recipe_forward(r, ROLE_HEAD, x, (Tensor){ 0 }, r->head.logits);
    }
    return layer_loss(r, r->layer->depth, s->stream.norm.y.x, &s->dy);
}

/* dy was made by the loss in forward, so only the norm is left. */
static Status head_backward_input(LayerRun *r)
{
    HeadState *s = r->state;
    return layer_norm_backward(r, &s->stream.norm, s->dy);
}

static const Phase phases[] = {
    STREAM_NORM(PHASE_COMBINE),
    STREAM_GATHER(PHASE_COMBINE),
    { "head", LANE_COMPUTE, head_forward, head_backward_input, NULL, .part = PHASE_COMBINE,
      .weights = WEIGHTS_HEAD, .forward_gradients = true },
};

/* Ranks of tp add up the maxima and sums of their parts of the logits. */
static bool head_communicates(const ModelSpec *s, const LayerSpec *l, int phase, bool forward)
{
    (void)l, (void)phase;
    return s->ranks.tp > 1 && forward;
}

const LayerDesc layer_head = {
    .name = "head",
    .title = "head",
    .ends = true,
    .state_bytes = sizeof(HeadState),
    .params = head_params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
    .communicates = head_communicates,
};
