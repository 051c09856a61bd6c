/* layer: the table of layers, the step's inputs and record, and the pool of rows. What one kind
 * alone does is in its own file; the engine that calls phases is train/run_layers.c. */
#include "model/layer.h"

#include "op/exchange.h"
#include "op/route_margin.h"

#include <assert.h>
#include <math.h>

const LayerDesc *layer_desc(LayerKind kind)
{
    static const LayerDesc *const table[LAYER_KINDS] = {
#define LAYER(KIND, name) &layer_##name,
#include "model/layer.def"
#undef LAYER
    };
    return table[kind];
}

/* Integer tensors, one number a token. `doc` is (B, T), because attention looks for documents' ends
 * sequence by sequence. */
Status batch_make(Arena *a, const ModelSpec *s, int64_t b, int64_t t, MicroBatch *out)
{
    MicroBatch m = { .b = b, .t = t, .depths = s->depths };
    Tensor *const by_token[] = { &m.id, &m.target, &m.pos };
    for (int i = 0; i < 3; i++) TRY(tensor_new1(a, DTYPE_I32, b * t, by_token[i]));
    TRY(tensor_new2(a, DTYPE_I32, b, t, &m.doc));
    TRY(tensor_new1(a, DTYPE_I32, b, &m.domain));
    for (int i = 0; i < m.depths; i++) {
        TRY(tensor_new1(a, DTYPE_I32, b * t, &m.next[i].id));
        TRY(tensor_new1(a, DTYPE_I32, b * t, &m.next[i].target));
    }
    m.row_pos = m.pos;
    for (int i = 0; i <= m.depths; i++) m.row_target[i] = batch_target(&m, i);
    if (s->ranks.tp > 1) {
        TRY(tensor_new1(a, DTYPE_I32, b * t / s->ranks.tp, &m.row_pos));
        for (int i = 0; i <= m.depths; i++)
            TRY(tensor_new1(a, DTYPE_I32, b * t / s->ranks.tp, &m.row_target[i]));
    }
    *out = m;
    return OK;
}

/* Heads of a layer of attention, over all ranks of tp; all layers have as many. */
static int64_t heads_of(const ModelSpec *s)
{
    for (int i = 0; i < s->n_layers; i++) {
        const LayerDesc *desc = layer_desc(s->layers[i].kind);
        if (desc->clips != NULL) return desc->clips(&s->layers[i], ROLE_COUNT).heads * s->ranks.tp;
    }
    return 0;
}

/* All sums lie in one tensor and all counts in another, so that one all-reduce each adds them over
 * ranks. The members are views of these. Margins come last, for they are large and the host does not
 * read them. */
Status record_make(Arena *a, const ModelSpec *s, int64_t domains, Record *out)
{
    Record r = { 0 };
    Tensor *const sums[] = { &r.loss, &r.aux_loss, &r.square_sum };
    const int first = RECORD_SUMS + optimizer_follows(&s->optimizer, RULE_VERIFY);
    TRY(tensor_new1(a, DTYPE_F32, first + s->depths + GRAD_GROUPS + s->n_moe, &r.sums));
    for (int i = 0; i < 3; i++) *sums[i] = tensor_rows(&r.sums, i, 1);
    r.overflow = tensor_rows(&r.sums, 3, first - 3);
    r.next_loss = tensor_rows(&r.sums, first, s->depths);
    r.group_sums = tensor_rows(&r.sums, first + s->depths, GRAD_GROUPS);
    r.router_z = tensor_rows(&r.sums, first + s->depths + GRAD_GROUPS, s->n_moe);
    if (optimizer_follows(&s->optimizer, RULE_VERIFY))
        TRY(tensor_new2(a, DTYPE_I32, s->n_layers + 1, VERIFY_POINTS, &r.checks));
    TRY(tensor_new1(a, DTYPE_F32, 1, &r.norm));
    TRY(tensor_new1(a, DTYPE_F32, 1, &r.clip));
    if (s->optimizer.qk_clip > 0)
        TRY(tensor_new2(a, DTYPE_F32, s->blocks + s->depths, heads_of(s), &r.logits));
    int64_t loads = s->n_moe * domains * s->experts;
    int64_t drops = s->counts & COUNT_DROPPED ? s->n_moe : 0;
    int64_t margins = s->counts & COUNT_MARGINS ? s->n_moe * s->experts * MARGIN_BINS : 0;
    if (s->n_moe > 0) {
        TRY(tensor_new1(a, DTYPE_I32, loads + drops + margins, &r.counts));
        r.load = (Tensor){ r.counts.data, DTYPE_I32, 3, { s->n_moe, domains, s->experts } };
    }
    if (drops > 0) r.dropped = tensor_rows(&r.counts, loads, drops);
    if (margins > 0)
        r.margins = (Tensor){
            tensor_at(&r.counts, loads + drops), DTYPE_I32, 3, { s->n_moe, s->experts, MARGIN_BINS }
        };
    *out = r;
    return OK;
}

void pool_need_add(PoolNeed *sum, const PoolNeed *more)
{
    double balanced = sum->balanced + more->balanced, most = sum->most + more->most;
    assert(sum->cols == 0 || more->cols == 0 ||
           (sum->cols == more->cols && sum->kind == more->kind && sum->type == more->type));
    if (more->cols > 0) *sum = *more;
    sum->balanced = balanced, sum->most = most;
}

/* Never more rows than can come, whatever the factor. */
int64_t pool_need_rows(const PoolNeed *need, double factor)
{
    return (int64_t)fmin(ceil(need->balanced * factor), need->most);
}

size_t pool_need_bytes(const PoolNeed *need, double factor)
{
    int64_t rows = pool_need_rows(need, factor);
    if (rows == 0) return 0;
    OperandGrid g = operand_grid(need->kind, rows, need->cols);
    return arena_rounded((size_t)(rows * need->cols) * dtype_bytes(need->type)) +
           arena_rounded((size_t)(g.rows * g.cols) * sizeof(float)) +
           arena_rounded(sizeof(int32_t));
}

/* The rows need no contents: each layer writes its part before it reads it. */
Status pool_make(Exec *ex, Arena *a, const PoolNeed *need, double factor, RowPool *out)
{
    int64_t rows = pool_need_rows(need, factor);
    *out = (RowPool){ 0 };
    if (rows == 0) return OK;
    TRY(operand_new(a, need->kind, need->type, 2, (const int64_t[]){ rows, need->cols },
                    &out->rows));
    TRY(tensor_new1(a, DTYPE_I32, 1, &out->top));
    return ex->backend->fill(ex, out->top.data, 0, tensor_bytes(&out->top));
}

/* Does backward recompute this module by itself? Not under RECOMPUTE_LAYER: there the second
 * forward makes everything, and keeps it until backward has read it. */
static bool recomputes(const LayerRun *r, unsigned piece)
{
    unsigned set = r->layer->recompute;
    return r->training && (set & RECOMPUTE_LAYER) == 0 && (set & piece) != 0;
}

Arena *layer_arena(const LayerRun *r, unsigned piece)
{
    return recomputes(r, piece) ? r->ring : r->keep;
}

int64_t layer_sequence_rank(const LayerRun *r)
{
    return layer_rank(r, 0) * r->spec->ranks.tp + r->spec->ranks.tp_rank;
}

/* Numbers go around: behind the last context rank comes rank 0. */
int64_t layer_rank(const LayerRun *r, int64_t behind)
{
    int64_t own = r->ex->mesh == NULL ? 0 : r->ex->mesh->at.cp;
    return (own + behind) % r->spec->ranks.cp;
}

Status layer_collect(LayerRun *r, OpComm kind, Tensor in, Tensor out)
{
    return exchange_collective(
        r->ex,
        (Collective){
            .in = in, .out = out, .kind = kind, .axis = AXIS_CP, .ranks = r->spec->ranks.cp });
}

Status layer_collect_rows(LayerRun *r, OpComm kind, Tensor in, Tensor out)
{
    return exchange_collective(r->ex, (Collective){ .in = in,
                                                    .out = out,
                                                    .kind = kind,
                                                    .axis = AXIS_TP,
                                                    .parts = r->batch->b,
                                                    .ranks = r->spec->ranks.tp });
}
