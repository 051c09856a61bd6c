/* embed: h_out = table[id]: the first layer, which begins the residual stream. Its gradient goes to
 * the table alone: token ids have none, so there is no backward_input. A tied head reads the same
 * table (head.c).
 *
 * Each rank of tp has some rows of the table. It looks up all tokens, those of other ranks as zeros. The
 * scatter adds these parts. */
#include "kernels/head/embed.h"
#include "engine/model/stream.h"

static Status embed_params(const ModelSpec *s, const LayerSpec *l, ParamList *out)
{
    (void)l;
    return params_add(out,
                      (ParamAdd){ ROLE_TABLE, -1, s->vocab, s->hidden, INIT_NORMAL, .decay = true,
                                  .split = SPLIT_ROWS },
                      "model.embed_tokens.weight");
}

static Status embed_forward(LayerRun *r)
{
    Tensor none, out;
    TRY(stream_out(r, &none, &out));
    return layer_look_up(r, r->batch->id, out);
}

static Status embed_backward_weight(LayerRun *r)
{
    return layer_look_up_backward(r, r->batch->id, stream_gradient(r));
}

Status layer_look_up(LayerRun *r, Tensor id, Tensor h)
{
    const int64_t rows = spec_vocab_rows(r->spec);
    return embed_fwd(r->ex, (EmbedFwd){ .id = id,
                                        .table = r->weights->w[ROLE_TABLE].data,
                                        .h = h,
                                        .first = r->spec->ranks.tp_rank * rows,
                                        .vocab = r->spec->vocab });
}

/* dtable[id[n]] += dh[n], in the order of tokens, so the sum has the same bits in every run. */
Status layer_look_up_backward(LayerRun *r, Tensor id, Tensor dh)
{
    const int64_t rows = spec_vocab_rows(r->spec);
    return embed_bwd(r->ex, (EmbedBwd){ .id = id,
                                        .dh = dh,
                                        .dtable = r->weights->dw[ROLE_TABLE],
                                        .first = r->spec->ranks.tp_rank * rows,
                                        .vocab = r->spec->vocab });
}

static const Phase phases[] = {
    { "embed", LANE_COMPUTE, embed_forward, NULL, embed_backward_weight, .part = PHASE_ATTENTION },
    STREAM_SCATTER(PHASE_ATTENTION),
};

const LayerDesc layer_embed = {
    .name = "embed",
    .title = "embedding",
    .begins = true,
    .state_bytes = sizeof(StreamState),
    .params = embed_params,
    .phases = phases,
    .n_phases = sizeof phases / sizeof *phases,
};
