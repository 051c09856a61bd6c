/* lower_shards: the second step of lower. It walks the passes and transfers of one rank in the order of the
 * list, and inserts gathers and reductions where they are due:
 *
 *   weights    a layer's are gathered one layer ahead of the first action that reads them, into
 *              the place that the layer before the last one has left
 *   gradients  a layer's place is zeroed before the first action that adds to it, and reduced when
 *              a pass over the layer has ended, or when another layer wants the place
 *   the rest   is reduced as soon as the last action that adds to it has ended; after the last
 *              pass come sums over replicas, the update, and gathers of what it wrote; of an
 *              evaluation, which has no gradients, the sum of its records
 *
 * All that talks to other ranks is ordered here, whatever its lane, so that the members of every
 * group, who run the same list, issue it in one order. */
#include "engine/schedule/lower.h"

#include <string.h>

typedef struct Sharing {
    const ScheduleShards *s;
    const Program *from;
    Program *p;
    int layers;
    int *last;                 /* by layer of the model: the last action of `from` that adds to its
                                  gradients, -1: none here */
    int *due;                  /* by layer: the action of p that its reduction awaits, -1: none */
    bool *done;                /* by layer: reduced for good */
    int held[CHUNK_HALVES];    /* the layer whose weights are in the place, -1: none */
    int arrived[CHUNK_HALVES]; /* the event of their gather until compute has waited for it */
    int opened[CHUNK_HALVES];  /* the layer whose gradients are in the place, -1: none */
    int reduced[CHUNK_HALVES]; /* the event of the reduce that was in the place before, -1: none */
    int compute, comm;         /* the last action of the lane in p, -1: none */
    int meeting; /* the last one on the compute lane that talks to other ranks, until the
                            comm lane has waited for it */
} Sharing;

static int insert_action(Sharing *l, Action a)
{
    Program *p = l->p;
    bool transfer = action_is_transfer(a.kind), communicates = action_communicates(p, &a);
    if (communicates && a.lane == LANE_COMM && l->meeting >= 0) {
        lower_wait(&a, lower_event(p, l->meeting));
        l->meeting = -1;
    }
    if (communicates && a.lane == LANE_COMPUTE && l->comm >= 0)
        lower_wait(&a, lower_event(p, l->comm));
    p->at[p->n] = a;
    if (!transfer) *(a.lane == LANE_COMM ? &l->comm : &l->compute) = p->n;
    if (communicates && a.lane == LANE_COMPUTE) l->meeting = p->n;
    return p->n++;
}

static int insert_layer_action(Sharing *l, ActionKind kind, int layer, int place, int event)
{
    Action a = action_make(kind);
    a.layer = (short)layer;
    a.half = (short)place;
    lower_wait(&a, event);
    return insert_action(l, a);
}

static int event_of(Sharing *l, int action) { return action < 0 ? -1 : lower_event(l->p, action); }

/* Weights. */

static void free_half(Sharing *l, int place)
{
    if (l->held[place] < 0) return;
    (void)insert_layer_action(l, ACTION_FREE_WEIGHTS, l->held[place], place, l->arrived[place]);
    l->held[place] = l->arrived[place] = -1;
}

static void insert_gather(Sharing *l, int layer, int place)
{
    if (l->held[place] == layer) return;
    bool used = l->held[place] >= 0;
    free_half(l, place);
    int event = used ? event_of(l, l->compute) : -1;
    l->arrived[place] =
        event_of(l, insert_layer_action(l, ACTION_GATHER_WEIGHTS, layer, place, event));
    l->held[place] = layer;
}

/* The first phase of an action, if there is one, that reads gathered weights: all of them read the
 * same layer's. */
static const ChunkPhase *gathered_phase(const Program *p, const Action *a)
{
    if (!action_is_pass(a->kind)) return NULL;
    for (int i = a->first; i < a->end; i++) {
        const ChunkPhase *phase = &action_row(p, a)->at[i];
        if (phase->half >= 0) return phase;
    }
    return NULL;
}

/* Gathers the next layer that is read after the action at `at`, so that the gather runs in parallel with this
 * action. The other half is free for it. */
static void gather_ahead(Sharing *l, int at, const ChunkPhase *now)
{
    for (int i = at + 1; i < l->from->n; i++) {
        const ChunkPhase *next = gathered_phase(l->from, &l->from->at[i]);
        if (next == NULL || next->weights == now->weights) continue;
        if (next->half != now->half) insert_gather(l, next->weights, next->half);
        return;
    }
}

static void weights_before(Sharing *l, int at, Action *a)
{
    const ChunkPhase *phase = gathered_phase(l->from, a);
    if (!l->s->weights || phase == NULL) return;
    insert_gather(l, phase->weights, phase->half);
    gather_ahead(l, at, phase);
    lower_wait(a, l->arrived[phase->half]);
    l->arrived[phase->half] = -1;
}

/* Gradients. */

static void insert_reduce(Sharing *l, int layer, int place)
{
    int at = insert_layer_action(l, ACTION_REDUCE_GRADS, layer, place, event_of(l, l->due[layer]));
    l->done[layer] = true;
    if (place < 0) return;
    l->reduced[place] = event_of(l, at);
    l->opened[place] = -1;
}

static bool adds_weights(const Action *a)
{
    return a->kind == ACTION_BACKWARD || a->kind == ACTION_BACKWARD_WEIGHT;
}

static bool adds_gradients(const Action *a, const ChunkPhase *phase)
{
    return phase->gradients || adds_weights(a);
}

static bool adds_any(const Program *p, const Action *a)
{
    for (int i = a->first; i < a->end; i++) {
        if (adds_gradients(a, &action_row(p, a)->at[i])) return true;
    }
    return false;
}

static void open_gradients(Sharing *l, const Action *a)
{
    const ChunkPhase *phase = gathered_phase(l->from, a);
    if (!l->s->gradients || phase == NULL || !adds_any(l->from, a)) return;
    int half = phase->half;
    if (l->opened[half] == phase->weights) return;
    if (l->opened[half] >= 0) insert_reduce(l, l->opened[half], half);
    (void)insert_layer_action(l, ACTION_ZERO_GRADS, phase->weights, half, l->reduced[half]);
    l->opened[half] = phase->weights;
}

/* Does another stage wait for gradients that this pass makes? Reductions that come once a step then wait until
 * these gradients are sent: they would hold up the exchanges of the layers below. Where weight gradients
 * of a whole pass run apart, the gradients have already been sent. */
static bool gradients_awaited(const Sharing *l, const Action *a)
{
    bool gone = a->kind == ACTION_BACKWARD_WEIGHT && a->apart;
    return !gone && !l->s->gradients && hop_of(l->from, a->chunk, a->micro) > 0;
}

/* A reduction waits for the last action that adds to its gradients, or for the end of a pass that another stage
 * waits for. Later actions on the compute lane run in parallel with it. */
static void note_due(Sharing *l, const Action *a)
{
    if (!action_is_pass(a->kind) || a->lane != LANE_COMPUTE) return;
    const ChunkRow *row = action_row(l->from, a);
    bool all = adds_weights(a) && gradients_awaited(l, a) && a->end == row->n;
    for (int i = all ? 0 : a->first; i < a->end; i++) {
        const ChunkPhase *x = &row->at[i];
        if (x->own >= 0 && adds_gradients(a, x)) l->due[x->own] = l->due[x->weights] = l->compute;
    }
}

/* Reduces the layers whose pass has ended; gradients that are held whole after the last pass only. */
static void reduce_after(Sharing *l, int at, const Action *a)
{
    if (!adds_weights(a)) return;
    const ChunkRow *row = action_row(l->from, a);
    bool whole = a->end == row->n, waits = gradients_awaited(l, a);
    if (waits && !whole) return;
    for (int i = waits ? 0 : a->first; i < a->end; i++) {
        const ChunkPhase *x = &row->at[i];
        if (!x->ends) continue;
        if (l->s->gradients && x->half >= 0 && l->opened[x->half] == x->own)
            insert_reduce(l, x->own, x->half);
        else if (!l->s->gradients && l->s->reduce && !l->done[x->own] && l->last[x->own] <= at)
            insert_reduce(l, x->own, -1);
    }
}

/* The begin and the end of the step. */

/* Finds for each layer the last action that adds to its gradients. */
static void find_last(Sharing *l)
{
    for (int i = 0; i < l->layers; i++) l->last[i] = l->due[i] = -1;
    for (int i = 0; i < l->from->n; i++) {
        const Action *a = &l->from->at[i];
        if (!action_is_pass(a->kind)) continue;
        const ChunkRow *row = action_row(l->from, a);
        for (int k = a->first; k < a->end; k++) {
            if (row->at[k].own < 0 || !adds_gradients(a, &row->at[k])) continue;
            l->last[row->at[k].own] = i;
            l->last[row->at[k].weights] = i;
        }
    }
}

/* Reduces what is left: a layer whose last gradients do not come from a backward pass over it, such as a tied
 * table on the stage of the head. */
static void reduce_rest(Sharing *l)
{
    for (int i = 0; i < CHUNK_HALVES; i++) {
        if (l->opened[i] >= 0) insert_reduce(l, l->opened[i], i);
    }
    for (int i = l->layers - 1; i >= 0 && l->s->reduce && !l->s->gradients; i--) {
        if (l->last[i] >= 0 && !l->done[i]) insert_reduce(l, i, -1);
    }
}

static void finish_step(Sharing *l)
{
    reduce_rest(l);
    for (int i = 0; i < CHUNK_HALVES; i++) free_half(l, i);
    for (int i = l->layers - 1; i >= 0 && l->s->sums; i--) {
        if (l->last[i] >= 0)
            (void)insert_layer_action(l, ACTION_SUM_GRADS, i, -1, event_of(l, l->due[i]));
    }
    int update =
        insert_action(l, action_make(l->p->evaluates ? ACTION_ADD_RECORDS : ACTION_UPDATE));
    for (int i = 0; i < l->layers && l->s->update; i++) {
        if (l->last[i] < 0) continue;
        (void)insert_layer_action(l, ACTION_GATHER_WEIGHTS, i, -1, event_of(l, update));
    }
}

static Status sharing_make(Sharing *l, Arena *scratch)
{
    l->layers = program_layers(l->from);
    TRY(ARENA_NEW(scratch, l->layers, &l->last));
    TRY(ARENA_NEW(scratch, l->layers, &l->due));
    TRY(ARENA_ZEROED(scratch, l->layers, &l->done));
    for (int i = 0; i < CHUNK_HALVES; i++) {
        l->held[i] = l->arrived[i] = l->opened[i] = l->reduced[i] = -1;
    }
    l->compute = l->comm = l->meeting = -1;
    find_last(l);
    return OK;
}

Status lower_shards(Program *p, Arena *a, Arena *scratch)
{
    Program from = *p;
    Sharing l = { .s = &from.shards, .from = &from, .p = p };
    TRY(sharing_make(&l, scratch));
    p->n = 0;
    /* Around each action at most: two frees, two gathers, a zero, a reduce before and after. */
    bool shared = from.shards.weights || from.shards.gradients || from.shards.reduce;
    TRY(ARENA_NEW(scratch, (shared ? 8 : 1) * from.n + 4 * l.layers + 8, &p->at));
    (void)insert_action(&l, action_make(ACTION_ZERO_GRADS));
    for (int i = 0; i < from.n; i++) {
        Action x = from.at[i];
        weights_before(&l, i, &x);
        open_gradients(&l, &x);
        (void)insert_action(&l, x);
        note_due(&l, &x);
        reduce_after(&l, i, &x);
    }
    finish_step(&l);
    Action *kept = NULL;
    TRY(ARENA_NEW(a, p->n, &kept));
    memcpy(kept, p->at, (size_t)p->n * sizeof *kept);
    p->at = kept;
    return OK;
}
