/* chunks: writes a chunk's rows of phases: forward in the order of layers, backward in the reverse order
 * with the forward phases of recomputed layers before their own. */
#include "engine/count/chunks.h"

#include <assert.h>

/* A row while it is written. placed: phases read a half of the gather buffer. */
typedef struct Row {
    const ModelSpec *s;
    LayerRange range;
    bool placed;
    ChunkPhase *at;
    int n;
} Row;

/* Number of a layer's block in the chunk, from 0. The embedding belongs to the first block, the head to
 * the last. */
static int block_of(const Row *r, int layer)
{
    const LayerSpec *l = r->s->layers;
    int first = r->range.first, last = layer;
    while (first < r->range.end && l[first].block < 0) first++;
    while (last >= first && l[last].block < 0) last--;
    return last >= first && first < r->range.end ? l[last].block - l[first].block : 0;
}

/* Appends a phase. Three questions about its place in the row are answered here, because only the
 * row's writer knows the phases before it: does it communicate, may it overlap, and does it add to
 * gradients? */
static void add_phase(Row *r, int layer, int phase, bool forward, bool recompute)
{
    const ModelSpec *s = r->s;
    const LayerSpec *l = &s->layers[layer];
    const LayerDesc *desc = layer_desc(l->kind);
    const Phase *f = &desc->phases[phase], *opens = &desc->phases[layer_backward(desc, 0)];
    if (!phase_runs(s, f)) return;
    /* Schedules that take blocks apart have weight gradients of these parts alone. */
    assert(f->backward_weight == NULL || f->part == PHASE_ATTENTION || f->part == PHASE_EXPERTS);
    /* Phases on the comm lane read no gathered weights. */
    bool communicates =
        layer_communicates(s, l, phase, forward && !recompute) && !(f->local && r->placed);
    /* With RECOMPUTE_NORM the exchange's phase runs the norm again, so the phase after it has a
     * result to wait for. */
    bool norm_again = !forward && (l->recompute & RECOMPUTE_NORM) != 0;
    bool exchanges = r->n > 0 && r->at[r->n - 1].lane == LANE_COMM;
    ChunkPhase x = { .kind = desc->name,
                     .name = f->name,
                     .layer = (short)(layer - r->range.first),
                     .own = (short)layer,
                     .weights = (short)layer_weights_of(s, layer, phase),
                     .half = -1,
                     .block = (short)block_of(r, layer),
                     .phase = (unsigned char)phase,
                     .part = (unsigned char)(recompute ? opens->part : f->part),
                     .lane = (unsigned char)(communicates ? f->lane : LANE_COMPUTE),
                     .recompute = recompute,
                     .tensor = f->split };
    x.communicates = communicates && x.lane == LANE_COMPUTE;
    x.overlap_ok = f->overlap_ok && !norm_again && exchanges;
    x.gradients = recompute ? false
                  : forward ? f->forward_gradients
                            : s->ranks.cp > 1 && f->input_gradients;
    if (r->placed && x.lane == LANE_COMPUTE) x.half = (short)params_half(x.weights);
    r->at[r->n++] = x;
}

/* A recomputed layer has its forward phases first in backward's row, in forward order. Its own
 * follow in the order of layer_backward. */
static void add_layer(Row *r, int layer, bool forward)
{
    const LayerSpec *l = &r->s->layers[layer];
    const LayerDesc *desc = layer_desc(l->kind);
    bool recompute = !forward && (l->recompute & RECOMPUTE_LAYER) != 0;
    for (int i = 0; i < desc->n_phases && (forward || recompute); i++)
        add_phase(r, layer, i, forward, recompute);
    for (int i = 0; i < desc->n_phases && !forward; i++)
        add_phase(r, layer, layer_backward(desc, i), false, false);
    if (!forward) r->at[r->n - 1].ends = true;
}

/* A layer has at most its phases twice (recomputed and backward). A row without any phase still
 * needs one, so that transfers have an action to wait for. */
static Status make_row(const ModelSpec *s, LayerRange range, bool placed, bool forward, Arena *a,
                       ChunkRow *out)
{
    int most = 1;
    for (int i = range.first; i < range.end; i++) {
        most += 2 * layer_desc(s->layers[i].kind)->n_phases;
    }
    Row r = { .s = s, .range = range, .placed = placed };
    TRY(ARENA_NEW(a, most, &r.at));
    for (int i = 0; i < range.end - range.first; i++) {
        int layer = forward ? range.first + i : range.end - 1 - i;
        if (forward || !s->layers[layer].no_backward) add_layer(&r, layer, forward);
    }
    if (r.n == 0) r.at[r.n++] = (ChunkPhase){ "chunk", "hand on", -1, -1, -1, .half = -1 };
    *out = (ChunkRow){ r.at, r.n };
    return OK;
}

Status chunk_build(const ModelSpec *s, LayerRange range, const ScheduleShards *shards, Arena *a,
                   Chunk *out)
{
    bool placed = shards->weights || shards->gradients;
    *out = (Chunk){ .blocks = 1 };
    TRY(make_row(s, range, placed, true, a, &out->row[ROW_FORWARD]));
    TRY(make_row(s, range, placed, false, a, &out->row[ROW_BACKWARD]));
    const ChunkRow *row = &out->row[ROW_FORWARD];
    out->blocks = row->at[row->n - 1].block + 1;
    return OK;
}

/* With sharded gradients `sums` is set, too: buckets that every rank holds whole are then added at
 * the end. */
ScheduleShards chunk_shards(const ParamShards *s, bool sums)
{
    bool ranks = !shards_alone(s), gradients = ranks && s->zero >= 2;
    return (ScheduleShards){ .weights = ranks && s->zero >= 3,
                             .gradients = gradients,
                             .reduce = ranks,
                             .sums = sums || gradients,
                             .update = ranks && (s->zero == 1 || s->zero == 2) };
}
