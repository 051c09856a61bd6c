/*
 * head: the last norm, the output projection and the loss.
 *
 * The loss op computes the gradient of its input and of the projection on the spot (op/head.h), so
 * backward here is only the norm's. Without training it computes losses, or, for generation, the
 * logits themselves.
 */
#include "model/layer.h"

typedef struct HeadState {
    NormState norm;
    Tensor dy;
} HeadState;

static Status params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    (void)l;
    TRY(params_add(out, (ParamAdd){ ROLE_NORM, -1, 0, s->hidden, INIT_ONE, .keep_f32 = true },
                   "model.norm.weight"));
    if (s->tied) return OK; /* params_bind gives the head the embedding's table */
    return params_add(out,
                      (ParamAdd){ ROLE_HEAD, -1, s->vocab, s->hidden, INIT_NORMAL, .decay = true },
                      "lm_head.weight");
}

static Status forward(LayerRun *r)
{
    HeadState *s = r->state;
    const ModelSpec *spec = r->spec;
    int64_t n = layer_tokens(r);
    TRY(layer_norm_forward(r, &s->norm));
    if (r->logits.data != NULL) {
        int64_t rows = r->logits.dim[0];
        return linear_fwd(r->ex, (LinearFwd){ .x = tensor_rows(&s->norm.y, n - rows, rows),
                                              .w = r->weights->w[ROLE_HEAD],
                                              .y = r->logits });
    }
    HeadLoss loss = { .x = s->norm.y,
                      .w = r->weights->w[ROLE_HEAD],
                      .target = r->batch->target,
                      .scale = r->loss_scale,
                      .loss = r->loss,
                      .loss_sum = r->record->loss,
                      .chunk = head_chunk(spec->loss_chunk, r->ex->cuda != NULL, spec->vocab,
                                          spec->act) };
    if (r->training) {
        TRY(tensor_new2(r->keep, spec->act, n, spec->hidden, &s->dy));
        loss.dx = s->dy;
        loss.dw = r->weights->dw[ROLE_HEAD];
    }
    return head_loss(r->ex, loss);
}

static Status backward_input(LayerRun *r)
{
    HeadState *s = r->state;
    return layer_norm_backward(r, &s->norm, s->dy);
}

static const Phase phases[] = {
    { "head", LANE_COMPUTE, forward, backward_input, NULL, .part = PHASE_COMBINE },
};

const LayerDesc layer_head = {
    .name = "head",
    .title = "head",
    .ends = true,
    .state_bytes = sizeof(HeadState),
    .params = params,
    .phases = phases,
    .n_phases = 1,
    .forward_gradients = true,
};
