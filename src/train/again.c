#include "train/again.h"

#include "backend/backend.h"
#include "train/engine_memory.h"

#include <string.h>

static const EngineArena parts[] = { ENGINE_SLOT, ENGINE_RING, ENGINE_SCRATCH };
enum { PARTS = sizeof parts / sizeof *parts };

static size_t work_bytes(const EnginePlan *plan)
{
    size_t sum = 0;
    for (int i = 0; i < PARTS; i++) sum += arena_rounded(plan->bytes[parts[i]]);
    return sum;
}

Status again_plan(const Config *c, EngineShape *shape, EnginePlan *plan, EnginePlan *again)
{
    if (shape->mesh == NULL || c->mesh_ep == 1 || c->moe_buffers != BUFFERS_BOUNDED) return OK;
    EngineShape all = *shape;
    all.all_rows = true;
    TRY(engine_plan(c, ENGINE_TRAIN, &all, again));
    size_t first = work_bytes(plan), second = work_bytes(again);
    if (second > first) plan->bytes[ENGINE_SCRATCH] += second - first;
    shape->again = again;
    return OK;
}

Status again_spec(ModelSpec *s, Arena *a)
{
    LayerSpec *layers = NULL;
    TRY(ARENA_NEW(a, s->n_layers, &layers));
    memcpy(layers, s->layers, (size_t)s->n_layers * sizeof *layers);
    for (int i = 0; i < s->n_layers; i++) {
        bool block = layers[i].block >= 0;
        layers[i].recompute = block ? RECOMPUTE_LAYER | RECOMPUTE_EXCHANGE : 0;
    }
    s->layers = layers, s->room = 0;
    return OK;
}

static void save(Engine *e, EngineWork *w)
{
    for (int i = 0; i < PARTS; i++) w->arena[i] = e->arena[parts[i]];
    memcpy(w->ring, e->ring, sizeof w->ring);
    w->slots = e->slots, w->n_slots = e->n_slots, w->grads = e->grads;
    w->entries = e->entries, w->output = e->output;
    w->comm_scratch = e->lanes.scratch;
    w->layers = e->spec.layers, w->room = e->spec.room, w->graph = e->graph;
}

static void load(Engine *e, const EngineWork *w)
{
    for (int i = 0; i < PARTS; i++) e->arena[parts[i]] = w->arena[i];
    memcpy(e->ring, w->ring, sizeof w->ring);
    e->slots = w->slots, e->n_slots = w->n_slots, e->grads = w->grads;
    e->entries = w->entries, e->output = w->output;
    e->lanes.scratch = w->comm_scratch;
    e->spec.layers = w->layers, e->spec.room = w->room, e->graph = w->graph;
    e->transfers.entries = w->entries;
}

/* The three arenas one behind the other from the block's start. */
static Status lay_out(Engine *e, const EnginePlan *plan)
{
    size_t at = 0;
    for (int i = 0; i < PARTS; i++) {
        size_t bytes = arena_rounded(plan->bytes[parts[i]]);
        arena_over(&e->arena[parts[i]], engine_arena_names[parts[i]], e->block.kind,
                   e->block.base + at, bytes);
        at += bytes;
    }
    return engine_lay_out(e, plan);
}

Status again_make(Engine *e, const EnginePlan *plan)
{
    void *memory = NULL;
    TRY(engine_make_block(e, work_bytes(plan)));
    TRY(arena_alloc(&e->block, e->block.cap_bytes, &memory));
    LayerSpec *layers = e->spec.layers;
    double room = e->spec.room;
    TRY(again_spec(&e->spec, &e->tables));
    TRY(lay_out(e, e->shape.again));
    save(e, &e->work[1]);
    e->spec.layers = layers, e->spec.room = room;
    TRY(lay_out(e, plan));
    save(e, &e->work[0]);
    return OK;
}

void again_use(Engine *e, int way)
{
    save(e, &e->work[e->way]);
    load(e, &e->work[way]);
    arena_unpoison(&e->block);
    e->way = way;
}

bool again_needed(const Engine *e)
{
    return e->shape.again != NULL && e->way == 0 &&
           *(const float *)engine_host(e, &e->record.overflow) > 0;
}

void again_free(Engine *e)
{
    if (e->shape.again == NULL) return;
    if (e->way == 1) again_use(e, 0);
    cuda_graph_free(&e->work[1].graph);
    for (int i = 0; i < PARTS; i++) e->arena[parts[i]] = (Arena){ 0 };
}
