/* run_layers: runs the phases of one action for one micro-batch on the layers of a chunk, and takes and
 * releases their memory. Which phases an action has is decided by the schedule (engine/schedule/chunk.h); what a
 * phase computes is the layer's (engine/model/layer.h). chunk_count.c adds up the same memory without running. */
#include "engine/step/run_layers.h"

#include "engine/step/slots.h"
#include "engine/train/recorder.h"

#include <string.h>

/* Runs one phase function, has the recorder stamp its end, and releases its scratch. */
static Status run_phase(Recorder *recorder, LayerRun *r, PhaseFn *fn, const char *name,
                        RecordPart part)
{
    if (fn == NULL) return OK;
    r->scratch = r->ex->scratch;
    ArenaMark mark = arena_mark(r->scratch);
    TRY(fn(r));
    TRY(recorder_phase(recorder, r, name, part));
    arena_release(r->scratch, mark);
    return OK;
}

/* When a backward releases the memory above a layer: after the layer, after its block, or after the pass. */
typedef enum GiveBack { GIVE_BACK_LAYER, GIVE_BACK_BLOCK, GIVE_BACK_PASS } GiveBack;

/* How a backward uses memory; the list of actions says which of the three it is.
 * whole    input and weight gradients layer by layer, in the ring of the forward; over ranks of tp two rings
 *          take turns (backward_ring)
 * phased   part by part while a forward runs, so in a ring of its own; the weight gradients of a block
 *          may still read what its other layers left
 * split    input gradients now, weight gradients in a later pass: what waits for them lies in an arena
 *          of the pool; in a phased program a forward may run beside them, so the ring is the second one */
typedef struct BackwardMode {
    int ring; /* of RINGS */
    bool from_pool;
    GiveBack give_back;
} BackwardMode;

static const BackwardMode WHOLE = { RING_FORWARD, false, GIVE_BACK_LAYER },
                          PHASED = { RING_BACKWARD, false, GIVE_BACK_BLOCK },
                          SPLIT = { RING_FORWARD, true, GIVE_BACK_PASS },
                          SPLIT_PHASED = { RING_BACKWARD, true, GIVE_BACK_PASS };

/* One action over the layers of its chunk. */
typedef struct ChunkPass {
    Engine *e;
    const Action *a;
    const ChunkRow *row; /* it runs some phases of this row */
    SlotState *s;
    LayerRange range;
    bool input, weight; /* which gradients */
    const BackwardMode *mode;
    LayerRun r;
    /* Of a backward: what a second forward keeps, and its own ring; where the layer's ring begins. */
    Arena *second_keep, *gradients;
    ArenaMark ring_begin;
} ChunkPass;

/* Rows of the residual stream that this rank holds of a micro-batch. */
static int64_t stream_rows(const ModelSpec *s, const MicroBatch *m)
{
    return m->b * m->t / s->ranks.tp;
}

/* (rows, D) in the type of activations. */
static Status new_stream(const LayerRun *r, Arena *a, Tensor *out)
{
    return tensor_new2(a, r->spec->act, r->rows, r->spec->hidden, out);
}

/* An entry has room for a whole micro-batch; an evaluation of fewer sequences uses its first rows. */
static Tensor entry_of(const ChunkPass *p, int i)
{
    return tensor_rows(&p->e->mode->entries[i], 0, p->r.rows);
}

static Status copy_stream(Exec *ex, const Tensor *to, const Tensor *from)
{
    return ex->backend->copy(ex, to->data, from->data, tensor_bytes(to));
}

MicroBatch run_part(const MicroBatch *whole, int64_t first, int64_t b)
{
    int64_t t = whole->t;
    MicroBatch m = { .b = b,
                     .t = t,
                     .id = tensor_rows(&whole->id, first * t, b * t),
                     .target = tensor_rows(&whole->target, first * t, b * t),
                     .pos = tensor_rows(&whole->pos, first * t, b * t),
                     .doc = tensor_rows(&whole->doc, first, b),
                     .domain = tensor_rows(&whole->domain, first, b),
                     .depths = whole->depths };
    for (int i = 0; i < m.depths; i++) {
        m.next[i].id = tensor_rows(&whole->next[i].id, first * t, b * t);
        m.next[i].target = tensor_rows(&whole->next[i].target, first * t, b * t);
    }
    const int64_t rows = tensor_elems(&whole->row_pos) * t / tensor_elems(&whole->pos);
    m.row_pos = tensor_rows(&whole->row_pos, first * rows, b * rows);
    for (int i = 0; i <= m.depths; i++)
        m.row_target[i] = tensor_rows(&whole->row_target[i], first * rows, b * rows);
    return m;
}

/* Outputs of the head: with a cache (generation) the logits of the last tokens, otherwise losses. */
static HeadRun head_run(const StepTensors *io, const EngineShape *shape, int64_t tokens)
{
    int64_t last = tokens < shape->logit_rows ? tokens : shape->logit_rows;
    HeadRun head = { .scale = io->loss_scale };
    if (shape->cache > 0)
        head.logits = tensor_rows(&io->logits, 0, last);
    else
        head.loss = tensor_rows(&io->token_loss, 0, tokens);
    return head;
}

/* What layers of one pass have in common. select_layer fills in the rest, layer by layer. */
static LayerRun layer_run(Engine *e, const MicroBatch *batch, SlotState *s)
{
    int64_t n = batch->b * batch->t;
    return (LayerRun){ .ex = &e->ex,
                       .spec = &e->mode->spec,
                       .batch = batch,
                       .tokens = n,
                       .rows = stream_rows(&e->mode->spec, batch),
                       .record = &e->io.record,
                       .rope = e->io.rope,
                       .head = head_run(&e->io, &e->shape, n),
                       .grad_scale = e->io.grad_scale,
                       .training = !e->list->program.evaluates,
                       .cache = e->shape.cache > 0 ? &e->io.kv : NULL,
                       .keep = &s->arena,
                       .pool = e->list->program.evaluates ? NULL : &s->pool,
                       .ring = &e->mode->ring[RING_FORWARD],
                       .scratch = e->ex.scratch };
}

/* A layer's state begins as zeros in each forward, so tensors that it did not make are NULL. */
static Status prepare_layer(LayerRun *r)
{
    const LayerDesc *desc = layer_desc(r->layer->kind);
    if (desc->state_bytes > 0) memset(r->state, 0, desc->state_bytes);
    return desc->prepare == NULL ? OK : desc->prepare(r);
}

/* A layer's output is the next layer's input, so it is found in the next slot. One slot more has the last output. */
static void select_layer(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    int layer = p->range.first + i;
    p->r.layer = &p->e->mode->spec.layers[layer];
    p->r.weights = &p->e->params.layer[layer];
    p->r.written = &p->e->params.written[layer];
    p->r.state = at->state;
    p->e->ex.layer = p->r.layer->block;
    p->r.h = at->h;
    p->r.h_out = at[1].h;
    p->r.dh = at->dh;
    p->r.dh_out = at[1].dh;
}

static int layers_in(const ChunkPass *p) { return p->range.end - p->range.first; }

/* Evaluations skip layers of multi-token prediction. */
static bool is_skipped(const LayerRun *r) { return r->layer->trains && !r->training; }

static bool is_recomputed(const LayerRun *r)
{
    return (r->layer->recompute & RECOMPUTE_LAYER) != 0;
}

static const Phase *phase_of(const ChunkPass *p, const ChunkPhase *x)
{
    return &layer_desc(p->r.layer->kind)->phases[x->phase];
}

/* Is phase i of the row the first one of its layer? */
static bool begins_layer(const ChunkRow *row, int i)
{
    return i == 0 || row->at[i - 1].layer != row->at[i].layer;
}

/* Forward. */

/* Memory for h before layer i of the chunk. Training keeps it in the slot for backward. An evaluation keeps
 * nothing, and its h alternates between block_layers buffers. */
static Status new_input(ChunkPass *p, int i)
{
    Tensor *h = &p->s->at[i].h;
    if (p->r.training) return new_stream(&p->r, &p->s->arena, h);
    *h = p->e->mode->stream[i % p->e->spec.block_layers];
    return OK;
}

/* Marks the arenas, and makes the layer's output. The output of the chunk lies in an entry. */
static Status open_forward(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    at->before = arena_mark(&p->s->arena);
    at->ring = arena_mark(p->r.ring);
    if (i + 1 < layers_in(p))
        TRY(new_input(p, i + 1));
    else
        at[1].h = p->a->out >= 0 ? entry_of(p, p->a->out) : (Tensor){ 0 };
    select_layer(p, i);
    TRY(prepare_layer(&p->r));
    at->kept = arena_mark(&p->s->arena);
    return OK;
}

/* Releases what backward does not need: the ring; of a recomputed layer all but its input and what `prepare`
 * kept; in an evaluation everything. */
static void close_forward(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    arena_release(p->r.ring, at->ring);
    if (!p->r.training)
        arena_release(&p->s->arena, at->before);
    else if (is_recomputed(&p->r))
        arena_release(&p->s->arena, at->kept);
}

/* One buffer for each layer of a block: weight gradients of a block may read all of them. */
static Status new_streams(ChunkPass *p, Arena *a)
{
    for (int i = 0; i < p->e->spec.block_layers; i++)
        TRY(new_stream(&p->r, a, &p->e->mode->stream[i]));
    return OK;
}

/* The pool of rows: for what all layers of the chunk keep of their received rows. */
static Status new_pool(ChunkPass *p)
{
    const ModelSpec *s = p->r.spec;
    PoolNeed need = { 0 };
    for (int i = p->range.first; i < p->range.end; i++) {
        const LayerDesc *desc = layer_desc(s->layers[i].kind);
        if (desc->pooled == NULL) continue;
        PoolNeed one = desc->pooled(s, &s->layers[i], p->r.rows);
        pool_need_add(&need, &one);
    }
    return pool_make(&p->e->ex, &p->s->arena, &need, s->capacity.pool, &p->s->pool);
}

/* Makes the chunk's input. A chunk without layers copies its input entry to its output entry. */
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
    return copy_stream(p->r.ex, h, &in);
}

/* Runs the phases of one action. A pass may be several actions, so begin and end are found by the row. */
static Status forward_pass(ChunkPass *p)
{
    if (p->a->first == 0) TRY(start_forward(p));
    for (int i = p->a->first; i < p->a->end && layers_in(p) > 0; i++) {
        const ChunkPhase *x = &p->row->at[i];
        if (begins_layer(p->row, i)) TRY(open_forward(p, x->layer));
        select_layer(p, x->layer);
        PhaseFn *fn = is_skipped(&p->r) ? NULL : phase_of(p, x)->forward;
        TRY(run_phase(p->e->recorder, &p->r, fn, x->name, RECORD_FORWARD));
        if (i + 1 == p->row->n || x[1].layer != x->layer) close_forward(p, x->layer);
    }
    bool ends = !p->r.training && p->a->end == p->row->n;
    if (ends) arena_release(p->r.keep, (ArenaMark){ 0 });
    return OK;
}

/* Backward. */

/* The gradient of h after layer i - 1. It alternates between block_layers buffers, because weight gradients may still
 * read the one before. Where all weight gradients wait, each has memory of its own. The chunk's lies in an entry. */
static Status new_gradient(ChunkPass *p, int i)
{
    Tensor *dh = &p->s->at[i].dh;
    if (i == 0 && p->a->out >= 0)
        *dh = entry_of(p, p->a->out);
    else if (p->mode->from_pool)
        return new_stream(&p->r, p->s->grads, dh);
    else
        *dh = p->e->mode->stream[i % p->e->spec.block_layers];
    return OK;
}

/* Takes memory for the gradients of h, and copies the gradient of the chunk's output out of its entry. */
static Status start_backward(ChunkPass *p)
{
    Engine *e = p->e;
    int n = layers_in(p);
    if (p->mode->from_pool) {
        p->s->grads = pool_take(&e->mode->grads);
    } else {
        TRY(new_streams(p, p->r.ring));
        e->mode->stream_end = arena_mark(p->r.ring);
    }
    p->s->at[n].dh = (Tensor){ 0 };
    if (p->a->in < 0) return OK;
    TRY(new_gradient(p, n));
    Tensor in = entry_of(p, p->a->in);
    return copy_stream(p->r.ex, &p->s->at[n].dh, &in);
}

/* Runs a forward phase of a recomputed layer a second time, before its backward. What it makes is kept
 * for the weight gradients, too. The ring is given back after the last such phase. */
static Status recompute_phase(ChunkPass *p, int i)
{
    const ChunkPhase *x = &p->row->at[i];
    LayerSlot *at = &p->s->at[x->layer];
    LayerRun r = p->r;
    r.recomputing = true;
    r.keep = p->second_keep;
    if (begins_layer(p->row, i)) at->ring = arena_mark(r.ring);
    TRY(run_phase(p->e->recorder, &r, phase_of(p, x)->forward, x->name, RECORD_AGAIN));
    if (!p->row->at[i + 1].recompute) arena_release(r.ring, at->ring);
    return OK;
}

/* The first phase whose weight gradients phase i runs: over ranks of tp those of all phases of the layer in this
 * action come behind the input gradients, since the comm lane goes on with these (Action.early). Returns i + 1 if a
 * later phase runs them. */
static int first_weights(const ChunkPass *p, int i)
{
    const ChunkPhase *at = p->row->at;
    int first = i;
    if (p->r.spec->ranks.tp == 1 || p->mode->give_back != GIVE_BACK_LAYER) return i;
    if (i + 1 < p->a->end && at[i + 1].layer == at[i].layer) return i + 1;
    while (first > p->a->first && at[first - 1].layer == at[i].layer && !at[first - 1].recompute)
        first--;
    return first;
}

/* Runs the backward functions of a phase: for input gradients, for weight gradients, or for both. */
static Status backward_phase(ChunkPass *p, int i)
{
    const ChunkPhase *x = &p->row->at[i];
    const Phase *f = phase_of(p, x);
    bool first = begins_layer(p->row, i) || p->row->at[i - 1].recompute;
    if (p->input && first) {
        p->s->at[x->layer].dh = (Tensor){ 0 };
        if (!layer_desc(p->r.layer->kind)->begins) TRY(new_gradient(p, x->layer));
        select_layer(p, x->layer);
    }
    LayerRun r = p->r;
    r.ring = p->gradients;
    if (p->input) TRY(run_phase(p->e->recorder, &r, f->backward_input, x->name, RECORD_INPUT));
    if (i + 1 == p->a->end && !p->e->arenas.counting)
        TRY(transfers_signal_early(&p->e->list->transfers, p->a));
    for (int k = first_weights(p, i); k <= i && p->weight; k++) {
        const ChunkPhase *w = &p->row->at[k];
        TRY(run_phase(p->e->recorder, &r, phase_of(p, w)->backward_weight, w->name, RECORD_WEIGHT));
    }
    return OK;
}

/* Chooses the ring of layer i. The first ring of a backward begins with the streams' gradients. */
static void select_ring(ChunkPass *p, int i)
{
    int ring = p->mode->ring;
    if (p->mode->give_back == GIVE_BACK_LAYER) ring = backward_ring(p->r.spec->ranks.tp > 1, i);
    p->r.ring = &p->e->mode->ring[ring];
    p->ring_begin = ring == p->mode->ring ? p->e->mode->stream_end : (ArenaMark){ 0 };
    p->gradients = p->mode->from_pool ? p->s->grads : p->r.ring;
}

/* Releases the memory above a layer: its part of the ring, and everything in the slot since its forward.
 * Backward goes from the last layer to the first, so releases come in the reverse order of allocations. */
static void close_backward(ChunkPass *p, int i)
{
    const ChunkPhase *x = &p->row->at[i];
    bool in_block = i + 1 < p->row->n && x[1].block == x->block;
    if (p->mode->give_back == GIVE_BACK_PASS || !p->weight || !x->ends) return;
    if (p->mode->give_back == GIVE_BACK_BLOCK && in_block) return;
    arena_release(p->r.ring, p->ring_begin);
    arena_release(&p->s->arena, p->s->at[x->layer].before);
}

/* The whole slot is free: its micro-batch is done on this chunk. */
static void end_backward(ChunkPass *p)
{
    arena_release(&p->s->arena, (ArenaMark){ 0 });
    if (p->mode->from_pool)
        pool_give(&p->e->mode->grads, p->s->grads);
    else
        arena_release(&p->e->mode->ring[p->mode->ring], (ArenaMark){ 0 });
}

/* With a pool, what waits for weight gradients goes to the pool's arena; else it stays in the slot and the ring. */
static Status backward_pass(ChunkPass *p)
{
    if (p->a->first == 0 && p->input) TRY(start_backward(p));
    p->second_keep = p->mode->from_pool ? p->s->grads : p->r.keep;
    for (int i = p->a->first; i < p->a->end && p->row->at[i].layer >= 0; i++) {
        const ChunkPhase *x = &p->row->at[i];
        select_layer(p, x->layer);
        select_ring(p, x->layer);
        if (!x->recompute)
            TRY(backward_phase(p, i));
        else if (p->input)
            TRY(recompute_phase(p, i));
        close_backward(p, i);
    }
    if (p->weight && p->a->end == p->row->n) end_backward(p);
    return OK;
}

/* The list decides the mode: phased programs, split backwards, or whole ones. */
Status run_pass(Engine *e, const Action *a, const MicroBatch *m, SlotState *s)
{
    const Program *program = &e->list->program;
    ChunkPass p = { .e = e,
                    .a = a,
                    .row = action_row(program, a),
                    .s = s,
                    .range = e->mode->chunks[a->chunk],
                    .input = a->kind != ACTION_BACKWARD_WEIGHT,
                    .weight = a->kind != ACTION_BACKWARD_INPUT };
    p.r = layer_run(e, m, s);
    if (a->kind == ACTION_FORWARD) return forward_pass(&p);
    if (a->apart)
        p.mode = program->phased ? &SPLIT_PHASED : &SPLIT;
    else
        p.mode = program->phased ? &PHASED : &WHOLE;
    p.r.ring = &e->mode->ring[p.mode->ring];
    return backward_pass(&p);
}
