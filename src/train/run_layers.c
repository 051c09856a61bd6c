/* run_layers: the phases of one action, for one micro-batch on the layers of a chunk, and the memory
 * that they take and give back. */
#include "train/run_layers.h"

#include "train/engine_program.h"
#include "train/recorder.h"

#include <string.h>

/* One phase function: scratch is taken back after it, and the recorder notes its end. */
static Status run_phase(Engine *e, LayerRun *r, PhaseFn *fn, const char *name, RecordPart part)
{
    if (fn == NULL) return OK;
    r->scratch = e->ex.scratch;
    ArenaMark mark = arena_mark(r->scratch);
    TRY(fn(r));
    if (e->recorder != NULL) TRY(recorder_phase(e, r, name, part));
    arena_release(r->scratch, mark);
    return OK;
}

/* One action's way through the layers of its chunk. */
typedef struct ChunkPass {
    Engine *e;
    const Action *a;
    const ChunkRow *row; /* of which it runs some phases */
    SlotState *s;
    LayerRange range;
    bool input, weight; /* which gradients */
    LayerRun r;
} ChunkPass;

static Status new_stream(const Engine *e, Arena *a, const MicroBatch *m, Tensor *out)
{
    return tensor_new2(a, e->spec.act, m->b * m->t, e->spec.hidden, out);
}

static Tensor entry_of(const ChunkPass *p, int i)
{
    return tensor_rows(&p->e->way->entries[i], 0, p->r.batch->b * p->r.batch->t);
}

static Status copy_stream(Engine *e, const Tensor *to, const Tensor *from)
{
    return e->ex.backend->copy(&e->ex, to->data, from->data, tensor_bytes(to));
}

MicroBatch run_part(const Engine *e, int64_t first, int64_t b)
{
    const MicroBatch *whole = &e->batch;
    int64_t t = whole->t;
    MicroBatch m = { .b = b,
                     .t = t,
                     .id = tensor_rows(&whole->id, first * t, b * t),
                     .target = tensor_rows(&whole->target, first * t, b * t),
                     .pos = tensor_rows(&whole->pos, first * t, b * t),
                     .doc = tensor_rows(&whole->doc, first, b),
                     .domain = tensor_rows(&whole->domain, first, b),
                     .sequence = tensor_rows(&whole->sequence, first, b),
                     .step = whole->step,
                     .depths = whole->depths };
    for (int i = 0; i < m.depths; i++) {
        m.next[i].id = tensor_rows(&whole->next[i].id, first * t, b * t);
        m.next[i].target = tensor_rows(&whole->next[i].target, first * t, b * t);
    }
    return m;
}

/* Generation has a cache, and wants the logits of the last tokens; all else losses. */
static LayerRun layer_run(Engine *e, const MicroBatch *batch, SlotState *s)
{
    int64_t n = batch->b * batch->t, rows = n < e->shape.logit_rows ? n : e->shape.logit_rows;
    bool cache = e->shape.cache;
    return (LayerRun){ .ex = &e->ex,
                       .spec = &e->way->spec,
                       .batch = batch,
                       .record = &e->record,
                       .rope_cos = e->rope_cos,
                       .rope_sin = e->rope_sin,
                       .loss_scale = e->loss_scale,
                       .training = !e->list->program.evaluates,
                       .cache = cache ? &e->kv : NULL,
                       .logits = cache ? tensor_rows(&e->logits, 0, rows) : (Tensor){ 0 },
                       .loss = cache ? (Tensor){ 0 } : tensor_rows(&e->token_loss, 0, n),
                       .keep = &s->arena,
                       .pool = e->list->program.evaluates ? NULL : &s->pool,
                       .ring = &e->way->ring[RING_FORWARD],
                       .scratch = e->ex.scratch };
}

static Status prepare(LayerRun *r)
{
    const LayerDesc *desc = layer_desc(r->layer->kind);
    if (desc->state_bytes > 0) memset(r->state, 0, desc->state_bytes);
    return desc->prepare == NULL ? OK : desc->prepare(r);
}

static void select(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    int layer = p->range.first + i;
    p->r.layer = &p->e->way->spec.layers[layer];
    p->r.weights = &p->e->weights[layer];
    p->r.written = &p->e->written[layer];
    p->r.state = at->state;
    p->e->ex.layer = p->r.layer->block;
    p->r.h = at->h;
    p->r.h_out = at[1].h;
    p->r.dh = at->dh;
    p->r.dh_out = at[1].dh;
}

static int layers_in(const ChunkPass *p) { return p->range.end - p->range.first; }

/* Layers of multi-token prediction, by an evaluation. */
static bool passed_by(const LayerRun *r) { return r->layer->trains && !r->training; }

static bool recomputed(const LayerRun *r) { return (r->layer->recompute & RECOMPUTE_LAYER) != 0; }

static const Phase *phase_of(const ChunkPass *p, const ChunkPhase *x)
{
    return &layer_desc(p->r.layer->kind)->phases[x->phase];
}

/* Is phase i of the row the first, or the last, that the row has of its layer? */
static bool begins_layer(const ChunkRow *row, int i)
{
    return i == 0 || row->at[i - 1].layer != row->at[i].layer;
}

/* Forward. */

/* h before layer i of the chunk: kept in the slot for backward. An evaluation keeps nothing: its
 * stream goes back and forth between two buffers. */
static Status new_input(ChunkPass *p, int i)
{
    Tensor *h = &p->s->at[i].h;
    if (p->r.training) return new_stream(p->e, &p->s->arena, p->r.batch, h);
    *h = p->e->stream[i % p->e->spec.block_layers];
    return OK;
}

/* The chunk's output goes into an entry. */
static Status open_forward(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    at->before = arena_mark(&p->s->arena);
    at->ring = arena_mark(p->r.ring);
    if (i + 1 < layers_in(p))
        TRY(new_input(p, i + 1));
    else
        at[1].h = p->a->out >= 0 ? entry_of(p, p->a->out) : (Tensor){ 0 };
    select(p, i);
    TRY(prepare(&p->r));
    at->kept = arena_mark(&p->s->arena);
    return OK;
}

static void close_forward(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    arena_release(p->r.ring, at->ring);
    if (!p->r.training)
        arena_release(&p->s->arena, at->before);
    else if (recomputed(&p->r))
        arena_release(&p->s->arena, at->kept);
}

static Status new_streams(ChunkPass *p, Arena *a)
{
    for (int i = 0; i < p->e->spec.block_layers; i++)
        TRY(new_stream(p->e, a, p->r.batch, &p->e->stream[i]));
    return OK;
}

/* For what the layers of the chunk keep of their rows. */
static Status new_pool(ChunkPass *p)
{
    const ModelSpec *s = p->r.spec;
    PoolNeed need = { 0 };
    for (int i = p->range.first; i < p->range.end; i++) {
        const LayerDesc *desc = layer_desc(s->layers[i].kind);
        if (desc->pooled == NULL) continue;
        PoolNeed one = desc->pooled(s, &s->layers[i], layer_tokens(&p->r));
        pool_need_add(&need, &one);
    }
    return pool_make(&p->e->ex, &p->s->arena, s->act, &need, s->pool, &p->s->pool);
}

/* A chunk without layers hands its input on. */
static Status start_forward(ChunkPass *p)
{
    Tensor *h = &p->s->at->h;
    TRY(p->r.training ? new_pool(p) : new_streams(p, &p->s->arena));
    if (p->a->in < 0) return OK;
    Tensor in = entry_of(p, p->a->in);
    if (layers_in(p) == 0)
        *h = entry_of(p, p->a->out);
    else
        TRY(new_input(p, 0));
    return copy_stream(p->e, h, &in);
}

static Status forward_pass(ChunkPass *p)
{
    if (p->a->first == 0) TRY(start_forward(p));
    for (int i = p->a->first; i < p->a->end && layers_in(p) > 0; i++) {
        const ChunkPhase *x = &p->row->at[i];
        if (begins_layer(p->row, i)) TRY(open_forward(p, x->layer));
        select(p, x->layer);
        PhaseFn *fn = passed_by(&p->r) ? NULL : phase_of(p, x)->forward;
        TRY(run_phase(p->e, &p->r, fn, x->name, RECORD_FORWARD));
        if (i + 1 == p->row->n || x[1].layer != x->layer) close_forward(p, x->layer);
    }
    bool ends = !p->r.training && p->a->end == p->row->n;
    if (ends) arena_release(p->r.keep, (ArenaMark){ 0 });
    return OK;
}

/* Backward. */

/* Gradients of h: from layer to layer in buffers in turn, as many as a block has layers, whose weight
 * gradients may come after it; where all weights wait, each in memory of its own; the chunk's in an
 * entry. */
static Status new_gradient(ChunkPass *p, int i)
{
    Tensor *dh = &p->s->at[i].dh;
    if (i == 0 && p->a->out >= 0)
        *dh = entry_of(p, p->a->out);
    else if (p->s->grads != NULL)
        return new_stream(p->e, p->s->grads, p->r.batch, dh);
    else
        *dh = p->e->stream[i % p->e->spec.block_layers];
    return OK;
}

static Status start_backward(ChunkPass *p)
{
    Engine *e = p->e;
    int n = layers_in(p);
    p->s->grads = NULL;
    if (e->split && !p->weight) {
        p->s->grads = pool_take(&e->way->grads);
    } else {
        TRY(new_streams(p, p->r.ring));
        e->stream_end = arena_mark(p->r.ring);
    }
    p->s->at[n].dh = (Tensor){ 0 };
    if (p->a->in < 0) return OK;
    TRY(new_gradient(p, n));
    Tensor in = entry_of(p, p->a->in);
    return copy_stream(e, &p->s->at[n].dh, &in);
}

/* The phases of a recomputed layer's forward, before its own. What they make waits for the weights,
 * too, and the memory between them is given back. */
static Status again_phase(ChunkPass *p, int i)
{
    const ChunkPhase *x = &p->row->at[i];
    LayerSlot *at = &p->s->at[x->layer];
    LayerRun r = p->r;
    r.again = true;
    if (p->s->grads != NULL) r.keep = p->s->grads;
    if (begins_layer(p->row, i)) at->ring = arena_mark(r.ring);
    TRY(run_phase(p->e, &r, phase_of(p, x)->forward, x->name, RECORD_AGAIN));
    if (!p->row->at[i + 1].again) arena_release(r.ring, at->ring);
    return OK;
}

static Status own_phase(ChunkPass *p, int i)
{
    const ChunkPhase *x = &p->row->at[i];
    const Phase *f = phase_of(p, x);
    bool first = begins_layer(p->row, i) || p->row->at[i - 1].again;
    if (p->input && first) {
        p->s->at[x->layer].dh = (Tensor){ 0 };
        if (!layer_desc(p->r.layer->kind)->begins) TRY(new_gradient(p, x->layer));
        select(p, x->layer);
    }
    LayerRun r = p->r;
    if (p->s->grads != NULL) r.ring = p->s->grads;
    if (p->input) TRY(run_phase(p->e, &r, f->backward_input, x->name, RECORD_INPUT));
    return p->weight ? run_phase(p->e, &r, f->backward_weight, x->name, RECORD_WEIGHT) : OK;
}

/* All that lies above a layer goes: in the ring its own, in the slot all since its forward. Where
 * weight gradients run part by part beside their input's, a block goes as a whole. */
static void close_backward(ChunkPass *p, int i)
{
    bool phased = p->e->list->program.phased;
    const ChunkPhase *x = &p->row->at[i];
    if (p->s->grads != NULL || !p->weight || !x->ends) return;
    if (phased && i + 1 < p->row->n && p->row->at[i + 1].block == x->block) return;
    arena_release(p->r.ring, p->e->stream_end);
    arena_release(&p->s->arena, p->s->at[x->layer].before);
}

static void end_backward(ChunkPass *p)
{
    arena_release(&p->s->arena, (ArenaMark){ 0 });
    if (p->s->grads != NULL)
        pool_give(&p->e->way->grads, p->s->grads);
    else
        arena_release(p->r.ring, (ArenaMark){ 0 });
}

static Status backward_pass(ChunkPass *p)
{
    if (p->a->first == 0 && p->input) TRY(start_backward(p));
    for (int i = p->a->first; i < p->a->end && p->row->at[i].layer >= 0; i++) {
        const ChunkPhase *x = &p->row->at[i];
        select(p, x->layer);
        if (!x->again)
            TRY(own_phase(p, i));
        else if (p->input)
            TRY(again_phase(p, i));
        close_backward(p, i);
    }
    if (p->weight && p->a->end == p->row->n) end_backward(p);
    return OK;
}

Status run_pass(Engine *e, const Action *a, const MicroBatch *m, SlotState *s)
{
    const Program *program = &e->list->program;
    bool forward = a->kind == ACTION_FORWARD;
    ChunkPass p = { .e = e,
                    .a = a,
                    .row = action_row(program, a),
                    .s = s,
                    .range = e->chunks[a->chunk],
                    .input = a->kind != ACTION_BACKWARD_WEIGHT,
                    .weight = a->kind != ACTION_BACKWARD_INPUT };
    p.r = layer_run(e, m, s);
    if (program->phased && !forward) p.r.ring = &e->way->ring[RING_BACKWARD];
    return forward ? forward_pass(&p) : backward_pass(&p);
}
