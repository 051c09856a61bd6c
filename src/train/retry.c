/* again: plans, lays out and switches to the second way of running a step. */
#include "train/retry.h"

#include "backend/backend.h"
#include "train/engine_memory.h"

#include <string.h>

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

void retry_use(Engine *e, int way)
{
    e->mode = &e->modes[way];
    e->ex.scratch = &e->mode->arena[ENGINE_SCRATCH];
    arena_unpoison(&e->arenas.block);
}

bool retry_needed(const Engine *e)
{
    const float *overflow = engine_host(&e->arenas, &e->io.record.overflow);
    return e->shape.retry != NULL && e->mode == &e->modes[0] &&
           (overflow[OVERFLOW_BLOCKS] > 0 || overflow[OVERFLOW_ROWS] > 0);
}
