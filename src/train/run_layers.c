#include "train/run_layers.h"

#include "base/clock.h"
#include "trace/trace.h"
#include "train/engine_program.h"
#include "train/lanes.h"
#include "train/run_program.h"
#include "train/shards.h"
#include "train/update.h"

#include <string.h>

/* One phase function: scratch is taken back after it, and a traced step notes its time. */
static Status run_phase(Engine *e, LayerRun *r, PhaseFn *fn, const Phase *f)
{
    if (fn == NULL) return OK;
    TRY(lanes_begin_phase(e, r, f));
    ArenaMark mark = arena_mark(r->scratch);
    double start = e->ex.trace != NULL ? clock_s() : 0;
    TRY(fn(r));
    arena_release(r->scratch, mark);
    TRY(lanes_end_phase(e, f));
    if (e->ex.trace != NULL) {
        trace_event(e->ex.trace, (TraceEvent){ .name = f->name,
                                               .start_s = start,
                                               .duration_s = clock_s() - start,
                                               .step = e->step,
                                               .layer = e->ex.layer,
                                               .depth = 1 });
    }
    return OK;
}

/* One action's way through the layers of its chunk. */
typedef struct ChunkPass {
    Engine *e;
    const Action *a;
    SlotState *s;
    LayerRange range;
    bool phased; /* only the phases of a->phase */
    LayerRun r;
} ChunkPass;

static Status new_stream(const Engine *e, Arena *a, const MicroBatch *m, Tensor *out)
{
    return tensor_new2(a, e->spec.act, m->b * m->t, e->spec.hidden, out);
}

static Status copy_stream(Engine *e, const Tensor *to, const Tensor *from)
{
    TRY(lanes_wait(e, MARK_EXCHANGE));
    return exec_bottom(&e->ex)->copy(&e->ex, to->data, from->data, tensor_bytes(to));
}

MicroBatch run_part(const Engine *e, int64_t first, int64_t b)
{
    const MicroBatch *whole = &e->batch;
    int64_t t = whole->t;
    return (MicroBatch){ .b = b,
                         .t = t,
                         .id = tensor_rows(&whole->id, first * t, b * t),
                         .target = tensor_rows(&whole->target, first * t, b * t),
                         .pos = tensor_rows(&whole->pos, first * t, b * t),
                         .doc = tensor_rows(&whole->doc, first, b),
                         .domain = tensor_rows(&whole->domain, first, b) };
}

static LayerRun layer_run(Engine *e, const MicroBatch *batch, SlotState *s)
{
    return (LayerRun){ .ex = &e->ex,
                       .spec = &e->spec,
                       .batch = batch,
                       .record = &e->record,
                       .rope_cos = e->rope_cos,
                       .rope_sin = e->rope_sin,
                       .loss_scale = e->loss_scale,
                       .keep = &s->arena,
                       .ring = &e->ring[RING_FORWARD],
                       .scratch = &e->arena[ENGINE_SCRATCH] };
}

static void select_layer(Engine *e, LayerRun *r, void *state, int i)
{
    r->layer = &e->spec.layers[i];
    r->weights = &e->weights[i];
    r->state = state;
    e->ex.layer = r->layer->block;
}

static Status prepare(LayerRun *r)
{
    const LayerDesc *desc = layer_desc(r->layer->kind);
    if (desc->state_bytes > 0) memset(r->state, 0, desc->state_bytes);
    return desc->prepare == NULL ? OK : desc->prepare(r);
}

static Status forward_phases(Engine *e, LayerRun *r)
{
    const LayerDesc *desc = layer_desc(r->layer->kind);
    ArenaMark ring = arena_mark(r->ring);
    for (int p = 0; p < desc->n_phases; p++) {
        TRY(run_phase(e, r, desc->phases[p].forward, &desc->phases[p]));
    }
    arena_release(r->ring, ring);
    return OK;
}

static void select(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    select_layer(p->e, &p->r, at->state, p->range.first + i);
    p->r.h = at->h;
    p->r.h_out = at[1].h;
    p->r.dh = at->dh;
    p->r.dh_out = at[1].dh;
}

static int layers_in(const ChunkPass *p) { return p->range.end - p->range.first; }

static bool recomputed(const LayerRun *r) { return (r->layer->recompute & RECOMPUTE_LAYER) != 0; }

/* Which phase of an action a layer's phase belongs to. Shared experts hide the exchange: their
 * gradients are due before the attention's, which overwrite the stream that they read. */
static int action_phase(const ChunkPass *p, int i, const char *name)
{
    static const struct {
        const char *name;
        int phase;
    } table[] = { { "dispatch", PHASE_DISPATCH }, { "shared", PHASE_EXPERTS },
                  { "experts", PHASE_EXPERTS },   { "mlp", PHASE_EXPERTS },
                  { "combine", PHASE_COMBINE },   { "head", PHASE_COMBINE } };
    const LayerSpec *first = &p->e->spec.layers[p->range.first], *l = first + i;
    int block = i > 0 && l->kind == LAYER_HEAD ? l[-1].block : l->block;
    if (first->block >= 0) block -= first->block;
    if (block < 0) block = 0;
    for (size_t k = 0; k < sizeof table / sizeof *table; k++) {
        if (strcmp(name, table[k].name) == 0) return PHASES * block + table[k].phase;
    }
    return PHASES * block + PHASE_ATTENTION;
}

static bool runs(const ChunkPass *p, int i, const char *name)
{
    return !p->phased || action_phase(p, i, name) == p->a->phase;
}

/* Forward. */

/* The output goes into the slot, that of the chunk into an entry; where a pass is in phases the
 * entry is not there yet. */
static Status open_forward(ChunkPass *p, int i)
{
    LayerSlot *at = &p->s->at[i];
    Tensor *out = &at[1].h;
    at->before = arena_mark(&p->s->arena);
    at->ring = arena_mark(p->r.ring);
    if (i + 1 < layers_in(p))
        TRY(new_stream(p->e, &p->s->arena, p->r.batch, out));
    else if (p->e->spec.layers[p->range.end - 1].kind == LAYER_HEAD)
        *out = (Tensor){ 0 };
    else
        *out = p->phased ? p->e->output : p->e->entries[p->a->out];
    select(p, i);
    TRY(prepare(&p->r));
    at->kept = arena_mark(&p->s->arena);
    return OK;
}

static void close_forward(ChunkPass *p, int i)
{
    arena_release(p->r.ring, p->s->at[i].ring);
    if (recomputed(&p->r)) arena_release(&p->s->arena, p->s->at[i].kept);
}

static Status forward_layer(ChunkPass *p, int i)
{
    const LayerDesc *desc = layer_desc(p->e->spec.layers[p->range.first + i].kind);
    for (int ph = 0; ph < desc->n_phases; ph++) {
        if (!runs(p, i, desc->phases[ph].name)) continue;
        if (ph == 0) TRY(open_forward(p, i));
        TRY(shards_open(p->e, p->range.first + i, i + 1 < layers_in(p) ? 1 : 0,
                        desc == &layer_head));
        select(p, i);
        TRY(run_phase(p->e, &p->r, desc->phases[ph].forward, &desc->phases[ph]));
        if (ph == desc->n_phases - 1) close_forward(p, i);
    }
    return OK;
}

static Status forward_pass(ChunkPass *p)
{
    Engine *e = p->e;
    LayerSlot *at = p->s->at;
    int n = layers_in(p);
    if (p->a->in >= 0) {
        TRY(new_stream(e, &p->s->arena, p->r.batch, &at->h));
        TRY(copy_stream(e, &at->h, &e->entries[p->a->in]));
    }
    for (int i = 0; i < n; i++) TRY(forward_layer(p, i));
    if (p->a->out < 0 || at[n].h.data == e->entries[p->a->out].data) return OK;
    return copy_stream(e, &e->entries[p->a->out], &at[n].h);
}

/* Backward. */

/* Gradients of h: from layer to layer in two buffers in turn; where weights wait for them each in
 * memory of its own. */
static Status new_gradient(ChunkPass *p, int i)
{
    Tensor *dh = &p->s->at[i].dh;
    if (i == 0 && !p->phased && p->a->out >= 0)
        *dh = p->e->entries[p->a->out];
    else if (p->s->grads != NULL)
        return new_stream(p->e, p->s->grads, p->r.batch, dh);
    else
        *dh = p->e->stream[i % 2];
    return OK;
}

static Status start_backward(ChunkPass *p)
{
    Engine *e = p->e;
    int n = layers_in(p);
    p->s->grads = NULL;
    if (e->split && p->a->kind == ACTION_BACKWARD_INPUT) {
        p->s->grads = pool_take(&e->grads);
    } else {
        for (int i = 0; i < 2; i++) TRY(new_stream(e, p->r.ring, p->r.batch, &e->stream[i]));
        e->stream_end = arena_mark(p->r.ring);
    }
    p->s->at[n].dh = (Tensor){ 0 };
    if (p->a->in < 0) return OK;
    TRY(new_gradient(p, n));
    return copy_stream(e, &p->s->at[n].dh, &e->entries[p->a->in]);
}

/* What a second forward makes waits for the weights, too. */
static Status open_backward(ChunkPass *p, int i)
{
    select(p, i);
    if (recomputed(&p->r)) {
        LayerRun again = p->r;
        again.again = true;
        if (p->s->grads != NULL) again.keep = p->s->grads;
        TRY(forward_phases(p->e, &again));
    }
    p->s->at[i].dh = (Tensor){ 0 };
    return p->r.layer->kind == LAYER_EMBED ? OK : new_gradient(p, i);
}

/* `ended`: the lowest layer that is done. */
static Status backward_layer(ChunkPass *p, int i, int *ended)
{
    const LayerDesc *desc = layer_desc(p->e->spec.layers[p->range.first + i].kind);
    bool input = p->a->kind != ACTION_BACKWARD_WEIGHT, weight = p->a->kind != ACTION_BACKWARD_INPUT;
    for (int at = 0; at < desc->n_phases; at++) {
        int ph = layer_backward(desc, at);
        const Phase *f = &desc->phases[ph];
        if (!runs(p, i, f->name)) continue;
        TRY(shards_open(p->e, p->range.first + i, i > 0 ? -1 : 0, weight || p->e->spec.cp > 1));
        if (input && ph == desc->n_phases - 1) TRY(open_backward(p, i));
        select(p, i);
        LayerRun r = p->r;
        if (p->s->grads != NULL) r.ring = p->s->grads;
        if (input) TRY(run_phase(p->e, &r, f->backward_input, f));
        if (weight) TRY(run_phase(p->e, &r, f->backward_weight, f));
        if (!weight || ph > 0) continue;
        *ended = i;
        TRY(shards_close(p->e, p->range.first + i));
    }
    return OK;
}

/* What is above the layer goes: in the ring its own, in the slot all since its forward. */
static void close_backward(ChunkPass *p, int i)
{
    if (p->s->grads != NULL) return;
    arena_release(p->r.ring, p->e->stream_end);
    arena_release(&p->s->arena, p->s->at[i].before);
}

static void end_backward(ChunkPass *p)
{
    arena_release(&p->s->arena, (ArenaMark){ 0 });
    if (p->s->grads != NULL)
        pool_give(&p->e->grads, p->s->grads);
    else
        arena_release(p->r.ring, (ArenaMark){ 0 });
}

static Status backward_pass(ChunkPass *p)
{
    const Action *a = p->a;
    LayerSlot *at = p->s->at;
    int ended = -1, last = p->phased ? p->e->program.phases - 1 : -1;
    if (a->kind != ACTION_BACKWARD_WEIGHT && a->phase == last) TRY(start_backward(p));
    for (int i = layers_in(p) - 1; i >= 0; i--) {
        TRY(backward_layer(p, i, &ended));
        if (!p->phased && ended == i) close_backward(p, i);
    }
    if (a->out >= 0 && at[0].dh.data != p->e->entries[a->out].data) {
        TRY(copy_stream(p->e, &p->e->entries[a->out], &at[0].dh));
    }
    if (p->phased && ended >= 0) close_backward(p, ended);
    if (a->kind != ACTION_BACKWARD_INPUT && a->phase <= 0) end_backward(p);
    return OK;
}

Status run_pass(Engine *e, const Action *a, const MicroBatch *m, SlotState *s)
{
    bool phased = a->phase >= 0, forward = a->kind == ACTION_FORWARD;
    ChunkPass p = { .e = e, .a = a, .s = s, .range = e->chunks[a->chunk], .phased = phased };
    p.r = layer_run(e, m, s);
    p.r.training = true;
    p.r.loss = tensor_rows(&e->token_loss, 0, m->b * m->t);
    if (phased && !forward) p.r.ring = &e->ring[RING_BACKWARD];
    TRY(forward ? forward_pass(&p) : backward_pass(&p));
    return lanes_wait(e, MARK_EXCHANGE);
}

/* Without training: the stream goes back and forth between two buffers, and each layer's own memory
 * is taken back at once. */
static Status forward_chunk(Engine *e, LayerRun *r, SlotState *s, int chunk, const Tensor h[2])
{
    TRY(transfers_move(&e->transfers, ACTION_RECV_ACTIVATIONS, chunk, &r->h));
    for (int i = e->chunks[chunk].first; i < e->chunks[chunk].end; i++) {
        select_layer(e, r, s->at[0].state, i);
        TRY(shards_open(e, i, i + 1 < e->chunks[chunk].end ? 1 : 0, false));
        ArenaMark mark = arena_mark(&s->arena);
        r->h_out = r->h.data == h[0].data ? h[1] : h[0];
        TRY(prepare(r));
        TRY(forward_phases(e, r));
        arena_release(&s->arena, mark);
        r->h = r->h_out;
    }
    return transfers_move(&e->transfers, ACTION_SEND_ACTIVATIONS, chunk, &r->h);
}

static Status forward_only(Engine *e, const MicroBatch *m, LayerRun *r, SlotState *s)
{
    const Program *p = &e->program;
    ArenaMark outer = arena_mark(&s->arena);
    Tensor h[2];
    for (int i = 0; i < 2; i++) TRY(new_stream(e, &s->arena, m, &h[i]));
    r->h = h[1];
    /* a plan is of either way through two copies of the model */
    int ways = e->counting && p->placement == PLACE_BOTH ? 2 : 1;
    for (int hop = 0; hop < ways * place_hops(p); hop++) {
        Place at = place_at(p, hop / place_hops(p), hop % place_hops(p));
        if (at.rank == p->rank) TRY(forward_chunk(e, r, s, at.chunk, h));
    }
    arena_release(&s->arena, outer);
    return OK;
}

Status run_losses(Engine *e, int64_t n)
{
    MicroBatch m = run_part(e, 0, n);
    LayerRun r = layer_run(e, &m, &e->slots[0]);
    r.loss = tensor_rows(&e->token_loss, 0, n * m.t);
    shards_begin(e);
    TRY(run_zero_record(e));
    TRY(forward_only(e, &m, &r, &e->slots[0]));
    TRY(lanes_wait(e, MARK_ALL));
    return update_add_records(e);
}

Status run_next_logits(Engine *e, int64_t n)
{
    MicroBatch m = { .b = 1,
                     .t = n,
                     .id = tensor_rows(&e->batch.id, 0, n),
                     .pos = tensor_rows(&e->batch.pos, 0, n),
                     .domain = e->batch.domain };
    LayerRun r = layer_run(e, &m, &e->slots[0]);
    r.cache = &e->kv;
    int64_t rows = n < e->shape.logit_rows ? n : e->shape.logit_rows;
    r.logits = tensor_rows(&e->logits, 0, rows);
    TRY(run_zero_record(e));
    return forward_only(e, &m, &r, &e->slots[0]);
}
