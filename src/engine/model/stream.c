/* stream: gathers and scatters of the rows that ranks of tp hold of the residual stream. */
#include "engine/model/stream.h"

#include "kernels/norm/elementwise.h"

Status stream_norm(LayerRun *r)
{
    StreamState *s = r->state;
    TRY(tensor_new2(r->keep, DTYPE_F32, r->rows, 1, &s->norm.rstd));
    return layer_norm_rows(r, &s->norm, r->ring);
}

Status stream_norm_backward(LayerRun *r)
{
    const StreamState *s = r->state;
    return layer_norm_rows_backward(r, &s->norm, s->norm.dy, r->dh_out);
}

static Status all_tokens(LayerRun *r, Arena *arena, Tensor rows, Tensor *out)
{
    TRY(tensor_new2(arena, r->spec->act, r->tokens, r->spec->hidden, out));
    return layer_collect_rows(r, COMM_ALL_GATHER, rows, *out);
}

Status stream_gather(LayerRun *r)
{
    StreamState *s = r->state;
    return all_tokens(r, layer_arena(r, RECOMPUTE_NORM), s->norm.rows, &s->norm.y.x);
}

bool stream_begins(const LayerRun *r, ParamRole role)
{
    return r->spec->ranks.own_first && !recipe_quantises(r->spec, r->layer, role);
}

/* Each sequence's rows lie in the order of ranks. Those of others lie before, between and behind this rank's. */
bool stream_next_run(const LayerRun *r, bool own, int64_t *i, Tensor outs, Operand *x, Tensor *out)
{
    const StreamState *s = r->state;
    const SpecRanks *ranks = &r->spec->ranks;
    const int64_t sequences = r->batch->b, run = r->rows / sequences;
    for (int64_t k; (k = (*i)++) < sequences + (own ? 0 : 1);) {
        const int64_t mine = (k * ranks->tp + ranks->tp_rank) * run;
        const int64_t before = k == 0 ? 0 : mine - (ranks->tp - 1) * run;
        const int64_t first = own ? mine : before;
        const int64_t n = own ? run : (k < sequences ? mine : r->tokens) - before;
        if (n == 0) continue;
        *x = (Operand){ .data = own ? tensor_rows(&s->norm.rows, k * run, run)
                                    : tensor_rows(&s->norm.y.x, first, n) };
        *out = tensor_rows(&outs, first, n);
        return true;
    }
    return false;
}

Status stream_product(LayerRun *r, ParamRole role, bool own, Tensor outs)
{
    Operand x;
    Tensor out;
    for (int64_t i = 0; stream_next_run(r, own, &i, outs, &x, &out);)
        TRY(recipe_forward(r, role, x, (Tensor){ 0 }, out));
    return OK;
}

/* Adds up the parts of dy, of which this rank keeps its rows. */
Status stream_gather_backward(LayerRun *r)
{
    StreamState *s = r->state;
    Tensor rows;
    TRY(tensor_new2(r->ring, r->spec->act, r->rows, r->spec->hidden, &rows));
    TRY(layer_collect_rows(r, COMM_REDUCE_SCATTER, s->norm.dy, rows));
    s->norm.dy = rows;
    return OK;
}

/* A second forward stops before it: backward does not read h_out. */
Status stream_scatter(LayerRun *r)
{
    const StreamState *s = r->state;
    if (r->recomputing) return OK;
    TRY(layer_collect_rows(r, COMM_REDUCE_SCATTER, s->part, r->h_out));
    if (layer_desc(r->layer->kind)->begins) return OK;
    return add(r->ex, (Add){ .x = r->h, .y = r->h_out });
}

/* Makes y again, too, if forward did not keep it. */
Status stream_scatter_backward(LayerRun *r)
{
    StreamState *s = r->state;
    TRY(all_tokens(r, r->ring, r->dh_out, &s->dout));
    if (layer_arena(r, RECOMPUTE_NORM) != r->ring) return OK;
    TRY(layer_norm_rows(r, &s->norm, r->scratch));
    return all_tokens(r, r->ring, s->norm.rows, &s->norm.y.x);
}

Status stream_out(LayerRun *r, Tensor *residual, Tensor *out)
{
    StreamState *s = r->state;
    *residual = r->h, *out = r->h_out;
    if (!layer_splits(r)) return OK;
    *residual = (Tensor){ 0 };
    TRY(tensor_new2(r->ring, r->spec->act, r->tokens, r->spec->hidden, &s->part));
    *out = s->part;
    return OK;
}

Tensor stream_gradient(const LayerRun *r)
{
    const StreamState *s = r->state;
    return layer_splits(r) ? s->dout : r->dh_out;
}
