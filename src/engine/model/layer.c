/* layer: the table of layers, the step's inputs and record, and the pool of rows. What one kind
 * alone does is in its own file; the engine that calls phases is engine/step/run_layers.c. */
#include "engine/model/layer.h"

#include "kernels/exchange/exchange.h"
#include "kernels/route/route_margin.h"

#include <assert.h>
#include <math.h>
#include <string.h>

const LayerDesc *layer_desc(LayerKind kind)
{
    static const LayerDesc *const table[LAYER_KINDS] = {
#define LAYER(KIND, name) &layer_##name,
#include "engine/model/layer.def"
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

/* Where Record has a figure; 0: it has not. */
static const size_t RECORD_AT[FIGURES] = {
#define HOST_FIGURE(...)
#define FIGURE(NAME, name, ...) [FIGURE_##NAME] = offsetof(Record, name),
#include "engine/model/figure.def"
};

Tensor record_figure(const Record *r, Figure f)
{
    if (RECORD_AT[f] == 0) return (Tensor){ 0 };
    return *(const Tensor *)(const void *)((const char *)r + RECORD_AT[f]);
}

/* The sizes of what a model has one number for. */
static void set_shapes(const ModelSpec *s, int64_t domains, Tensor out[EACH_COUNT])
{
    const int64_t moe = s->n_moe, heads = s->optimizer.qk_clip > 0 ? heads_of(s) : 0;
    const bool verifies = optimizer_follows(&s->optimizer, RULE_VERIFY);
    const Tensor shape[EACH_COUNT] = {
        [EACH_RUN] = { .rank = 1, .dim = { 1 } },
        [EACH_DEPTH] = { .rank = 1, .dim = { s->depths } },
        [EACH_GROUP] = { .rank = 1, .dim = { GRAD_GROUPS } },
        [EACH_LAYER] = { .rank = 1, .dim = { moe } },
        [EACH_DROPPED] = { .rank = 1, .dim = { s->counts & COUNT_DROPPED ? moe : 0 } },
        [EACH_LOAD] = { .rank = 3, .dim = { moe, domains, s->experts } },
        [EACH_MARGIN] = { .rank = 3,
                          .dim = { s->counts & COUNT_MARGINS ? moe : 0, s->experts, MARGIN_BINS } },
        [EACH_HEAD] = { .rank = 2, .dim = { s->blocks + s->depths, heads } },
        [EACH_FLAG] = { .rank = 1, .dim = { OVERFLOW_DIFFERS + verifies } },
        [EACH_CHECK] = { .rank = 2, .dim = { verifies ? s->n_layers + 1 : 0, VERIFY_POINTS } },
    };
    memcpy(out, shape, sizeof shape);
}

/* All sums lie in one tensor and all counts in another, so that one all-reduce each adds them over
 * ranks. Their order is that of figure.def. */
Status record_make(Arena *a, const ModelSpec *s, int64_t domains, Record *out)
{
    Record r = { 0 };
    int64_t total[2] = { 0 }, used[2] = { 0 }; /* of RECORD_SUM and RECORD_COUNT */
    Tensor shape[EACH_COUNT];
    set_shapes(s, domains, shape);
    for (int i = 0; i < 2 * FIGURES; i++) {
        const FigureRow *row = &figure_rows[i % FIGURES];
        const FigureRecord kind = row->record;
        const bool whole = kind == RECORD_COUNT || kind == RECORD_OWN;
        Tensor t = shape[row->each], *all = kind == RECORD_SUM ? &r.sums : &r.counts;
        const int64_t n = tensor_elems(&t);
        if (i < FIGURES && kind <= RECORD_COUNT) total[kind] += n;
        if (i < FIGURES || kind == RECORD_HOST || n == 0) continue;
        t.dtype = whole ? DTYPE_I32 : DTYPE_F32;
        if (kind <= RECORD_COUNT) {
            if (used[kind] == 0) TRY(tensor_new1(a, t.dtype, total[kind], all));
            t.data = tensor_at(all, used[kind]);
            used[kind] += n;
        } else {
            TRY(tensor_new(a, t.dtype, t.rank, t.dim, &t));
        }
        memcpy((char *)&r + RECORD_AT[i % FIGURES], &t, sizeof t);
    }
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
