/* embed: h_out = table[id]: the first layer, which begins the residual stream. Its gradient goes to
 * the table alone: token ids have none, so there is no backward_input. A tied head reads the same
 * table (head.c). */
#include "op/embed.h"
#include "model/layer.h"

static Status embed_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    (void)l;
    return params_add(out,
                      (ParamAdd){ ROLE_TABLE, -1, s->vocab, s->hidden, INIT_NORMAL, .decay = true },
                      "model.embed_tokens.weight");
}

static Status embed_forward(LayerRun *r)
{
    return embed_fwd(
        r->ex,
        (EmbedFwd){ .id = r->batch->id, .table = r->weights->w[ROLE_TABLE].data, .h = r->h_out });
}

/* dtable[id[n]] += dh[n], in the order of tokens, so the sum has the same bits in every run. */
static Status embed_backward_weight(LayerRun *r)
{
    return embed_bwd(
        r->ex,
        (EmbedBwd){ .id = r->batch->id, .dh = r->dh_out, .dtable = r->weights->dw[ROLE_TABLE] });
}

static const Phase phases[] = {
    { "embed", LANE_COMPUTE, embed_forward, NULL, embed_backward_weight, .part = PHASE_ATTENTION },
};

const LayerDesc layer_embed = {
    .name = "embed",
    .title = "embedding",
    .begins = true,
    .params = embed_params,
    .phases = phases,
    .n_phases = 1,
};
