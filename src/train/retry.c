/* again: plans, lays out and switches to the second way of running a step. */
#include "train/retry.h"

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

Status retry_plan(const Config *c, EngineShape *shape, EnginePlan *plan, EnginePlan *retry)
{
    if (shape->mesh == NULL || c->mesh_ep == 1 || c->moe_buffers != BUFFERS_POOLED) return OK;
    EngineShape all = *shape;
    all.all_rows = true;
    TRY(engine_plan(c, ENGINE_TRAIN, &all, retry));
    size_t first = work_bytes(plan), second = work_bytes(retry);
    if (second > first) plan->bytes[ENGINE_SCRATCH] += second - first;
    shape->retry = retry;
    return OK;
}

Status retry_spec(ModelSpec *s, Arena *a)
{
    LayerSpec *layers = NULL;
    TRY(ARENA_NEW(a, s->n_layers, &layers));
    memcpy(layers, s->layers, (size_t)s->n_layers * sizeof *layers);
    for (int i = 0; i < s->n_layers; i++) {
        layers[i].recompute = layer_recompute(&layers[i], RECOMPUTE_LAYER | RECOMPUTE_EXCHANGE);
    }
    s->layers = layers;
    s->room = s->rows_room = s->pool = 0;
    return OK;
}

/* The three arenas of a way one behind the other, behind the board, which scratch lends. */
static void lay_out(Engine *e, EngineMode *w, const EnginePlan *plan)
{
    size_t board = engine_header_bytes(e), at = board;
    for (int i = 0; i < PARTS; i++) {
        size_t bytes = arena_rounded(plan->bytes[parts[i]]);
        if (parts[i] == ENGINE_SCRATCH) bytes -= board;
        arena_over(&w->arena[parts[i]], engine_arena_names[parts[i]], e->block.kind,
                   e->block.base + at, bytes);
        at += bytes;
    }
}

Status retry_make(Engine *e, const EnginePlan *plan)
{
    void *memory = NULL;
    TRY(engine_make_block(e, work_bytes(plan)));
    TRY(arena_alloc(&e->block, e->block.cap_bytes, &memory));
    if (e->shape.retry != NULL) lay_out(e, &e->modes[1], e->shape.retry);
    lay_out(e, &e->modes[0], plan);
    return OK;
}

void retry_use(Engine *e, int way)
{
    e->mode = &e->modes[way];
    e->ex.scratch = &e->mode->arena[ENGINE_SCRATCH];
    arena_unpoison(&e->block);
}

bool retry_needed(const Engine *e)
{
    const float *overflow = engine_host(e, &e->record.overflow);
    return e->shape.retry != NULL && e->mode == &e->modes[0] &&
           (overflow[OVERFLOW_BLOCKS] > 0 || overflow[OVERFLOW_ROWS] > 0);
}
