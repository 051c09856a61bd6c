#include "train/run_layers.h"

#include "base/clock.h"
#include "trace/trace.h"
#include "train/update.h"

#include <string.h>

/* One phase function: scratch is taken back after it, and a traced step notes its time. */
static Status run_phase(Engine *e, LayerRun *r, PhaseFn *fn, const char *name)
{
    if (fn == NULL) return OK;
    ArenaMark mark = arena_mark(r->scratch);
    double start = e->ex.trace != NULL ? clock_s() : 0;
    TRY(fn(r));
    arena_release(r->scratch, mark);
    if (e->ex.trace != NULL) {
        trace_event(e->ex.trace, (TraceEvent){ .name = name,
                                               .start_s = start,
                                               .duration_s = clock_s() - start,
                                               .step = e->step,
                                               .layer = e->ex.layer,
                                               .depth = 1 });
    }
    return OK;
}

static Status forward_phases(Engine *e, LayerRun *r)
{
    const LayerDesc *desc = layer_desc(r->layer->kind);
    ArenaMark ring = arena_mark(r->ring);
    for (int p = 0; p < desc->n_phases; p++) {
        TRY(run_phase(e, r, desc->phases[p].forward, desc->phases[p].name));
    }
    arena_release(r->ring, ring);
    return OK;
}

static Status backward_phases(Engine *e, LayerRun *r)
{
    const LayerDesc *desc = layer_desc(r->layer->kind);
    for (int p = desc->n_phases - 1; p >= 0; p--) {
        TRY(run_phase(e, r, desc->phases[p].backward_input, desc->phases[p].name));
        TRY(run_phase(e, r, desc->phases[p].backward_weight, desc->phases[p].name));
    }
    return OK;
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
                       .ring = &e->arena[ENGINE_RING],
                       .scratch = &e->arena[ENGINE_SCRATCH] };
}

static void select_layer(Engine *e, LayerRun *r, const SlotState *s, int i)
{
    r->layer = &e->spec.layers[i];
    r->weights = &e->weights[i];
    r->state = s->state[i];
    e->ex.layer = r->layer->block;
}

static void clear_state(const LayerRun *r)
{
    size_t bytes = layer_desc(r->layer->kind)->state_bytes;
    if (bytes > 0) memset(r->state, 0, bytes);
}

static Status prepare(LayerRun *r)
{
    const LayerDesc *desc = layer_desc(r->layer->kind);
    clear_state(r);
    return desc->prepare == NULL ? OK : desc->prepare(r);
}

static MicroBatch part_of(const MicroBatch *whole, int64_t first, int64_t b)
{
    int64_t t = whole->t;
    return (MicroBatch){ .b = b,
                         .t = t,
                         .id = tensor_rows(&whole->id, first * t, b * t),
                         .target = tensor_rows(&whole->target, first * t, b * t),
                         .pos = tensor_rows(&whole->pos, first * t, b * t),
                         .doc = tensor_rows(&whole->doc, first, b),
                         .domain = tensor_rows(&whole->domain, first, b) };
}

static Status new_stream(const Engine *e, Arena *a, const MicroBatch *m, Tensor *out)
{
    return tensor_new2(a, e->spec.act, m->b * m->t, e->spec.hidden, out);
}

static Status forward_micro(Engine *e, const MicroBatch *m, SlotState *s)
{
    LayerRun r = layer_run(e, m, s);
    r.training = true;
    r.loss = tensor_rows(&e->token_loss, 0, m->b * m->t);
    for (int i = 0; i < e->spec.n_layers; i++) {
        select_layer(e, &r, s, i);
        s->before[i] = arena_mark(&s->arena);
        if (r.layer->kind != LAYER_HEAD) TRY(new_stream(e, &s->arena, m, &s->h[i]));
        r.h_out = s->h[i];
        TRY(prepare(&r));
        s->kept[i] = arena_mark(&s->arena);
        TRY(forward_phases(e, &r));
        if ((r.layer->recompute & RECOMPUTE_LAYER) != 0) arena_release(&s->arena, s->kept[i]);
        r.h = r.h_out;
    }
    return OK;
}

static Status backward_micro(Engine *e, const MicroBatch *m, SlotState *s)
{
    LayerRun r = layer_run(e, m, s);
    r.training = true;
    ArenaMark outer = arena_mark(r.ring);
    Tensor dh[2];
    for (int i = 0; i < 2; i++) TRY(new_stream(e, r.ring, m, &dh[i]));
    for (int i = e->spec.n_layers - 1; i >= 0; i--) {
        select_layer(e, &r, s, i);
        r.h = i > 0 ? s->h[i - 1] : (Tensor){ 0 };
        r.h_out = s->h[i];
        if ((r.layer->recompute & RECOMPUTE_LAYER) != 0) {
            r.again = true;
            TRY(forward_phases(e, &r));
            r.again = false;
        }
        r.dh_out = r.layer->kind == LAYER_HEAD ? (Tensor){ 0 } : dh[i % 2];
        r.dh = r.layer->kind == LAYER_EMBED ? (Tensor){ 0 } : dh[(i + 1) % 2];
        ArenaMark ring = arena_mark(r.ring);
        TRY(backward_phases(e, &r));
        arena_release(r.ring, ring);
        arena_release(&s->arena, s->before[i]);
    }
    arena_release(r.ring, outer);
    return OK;
}

/* Without training: the stream goes back and forth between two buffers, and each layer's own memory
 * is taken back at once. */
static Status forward_only(Engine *e, const MicroBatch *m, LayerRun *r, SlotState *s)
{
    ArenaMark outer = arena_mark(&s->arena);
    Tensor h[2];
    for (int i = 0; i < 2; i++) TRY(new_stream(e, &s->arena, m, &h[i]));
    for (int i = 0; i < e->spec.n_layers; i++) {
        select_layer(e, r, s, i);
        ArenaMark mark = arena_mark(&s->arena);
        r->h_out = h[i % 2];
        TRY(prepare(r));
        TRY(forward_phases(e, r));
        arena_release(&s->arena, mark);
        r->h = r->h_out;
    }
    arena_release(&s->arena, outer);
    return OK;
}

static Status zero(Engine *e, const Tensor *t)
{
    if (t->data == NULL) return OK;
    return exec_bottom(&e->ex)->fill(&e->ex, t->data, 0, tensor_bytes(t));
}

static Status zero_record(Engine *e)
{
    TRY(zero(e, &e->record.loss));
    TRY(zero(e, &e->record.aux_loss));
    TRY(zero(e, &e->record.square_sum));
    return zero(e, &e->record.load);
}

static Status run_action(Engine *e, const Action *a)
{
    int64_t micro = e->shape.micro_batch;
    MicroBatch m = { 0 };
    if (a->micro >= 0) m = part_of(&e->batch, a->micro * micro, micro);
    switch (a->kind) {
    case ACTION_ZERO_GRADS: TRY(zero_record(e)); return zero(e, &e->memory.buffer[BUF_GRAD]);
    case ACTION_FORWARD: return forward_micro(e, &m, &e->slots[a->slot]);
    case ACTION_BACKWARD: return backward_micro(e, &m, &e->slots[a->slot]);
    case ACTION_REDUCE_GRADS: return OK; /* one rank has all of them */
    case ACTION_UPDATE: return update_run(e);
    case ACTION_BACKWARD_INPUT:
    case ACTION_BACKWARD_WEIGHT:
    case ACTION_SEND_ACTIVATIONS:
    case ACTION_RECV_ACTIVATIONS:
    case ACTION_SEND_GRADIENTS:
    case ACTION_RECV_GRADIENTS:
        return FAIL(ERR_UNSUPPORTED, "engine: one rank runs whole backward passes, not \"%s\"",
                    action_name(a->kind));
    case ACTION_KIND_COUNT: break;
    }
    return FAIL(ERR_ARG, "engine: unknown action %d", (int)a->kind);
}

/* Micro-batches that follow one another in one slot are alike: a plan counts the first and adds its
 * cost for each of the others, so that it takes as long for a step of many as for one of few. */
static Status count_action(Engine *e, const Action *a, OpTotals *first)
{
    OpTotals *all = &e->ex.totals, before = *all;
    if (a->micro <= 0 || e->program.chunks != 1 || e->program.slots != 1) {
        TRY(run_action(e, a));
        *first = (OpTotals){ all->flops - before.flops, all->bytes - before.bytes,
                             all->comm_bytes - before.comm_bytes, all->ops - before.ops };
        return OK;
    }
    all->flops += first->flops;
    all->bytes += first->bytes;
    all->comm_bytes += first->comm_bytes;
    all->ops += first->ops;
    return OK;
}

Status run_program(Engine *e)
{
    OpTotals first[ACTION_KIND_COUNT] = { 0 };
    for (int i = 0; i < e->program.n; i++) {
        const Action *a = &e->program.at[i];
        double start = e->ex.trace != NULL ? clock_s() : 0;
        e->ex.layer = -1;
        TRY(e->counting ? count_action(e, a, &first[a->kind]) : run_action(e, a));
        if (e->ex.trace == NULL) continue;
        trace_event(e->ex.trace, (TraceEvent){ .name = action_name(a->kind),
                                               .start_s = start,
                                               .duration_s = clock_s() - start,
                                               .step = e->step,
                                               .lane = a->lane,
                                               .layer = -1 });
    }
    return OK;
}

Status run_losses(Engine *e, int64_t n)
{
    MicroBatch m = part_of(&e->batch, 0, n);
    LayerRun r = layer_run(e, &m, &e->slots[0]);
    r.loss = tensor_rows(&e->token_loss, 0, n * m.t);
    TRY(zero_record(e));
    return forward_only(e, &m, &r, &e->slots[0]);
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
    TRY(zero_record(e));
    return forward_only(e, &m, &r, &e->slots[0]);
}
