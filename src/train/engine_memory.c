#include "train/engine_memory.h"

#include "backend/backend.h"
#include "backend/cuda.h"

#include <stdio.h>
#include <string.h>

static const size_t COUNT_BYTES = (size_t)1 << 60;

bool engine_wants_gpu(const Config *c)
{
    if (c->run_device == DEVICE_AUTO) return cuda_built() && cuda_devices() > 0;
    return c->run_device == DEVICE_CUDA;
}

static Status arena_make(Engine *e, Arena *a, const char *name, MemKind kind, size_t bytes)
{
    if (e->counting || !e->on_gpu) {
        TRY(arena_init(a, name, e->counting ? MEM_COUNT : MEM_HOST, bytes));
        arena_huge_pages(a);
        return OK;
    }
    void *block = NULL;
    size_t room = arena_rounded(bytes > 0 ? bytes : 1);
    TRY(exec_bottom(&e->ex)->alloc(&e->ex, kind, room, &block));
    arena_over(a, name, kind, block, room);
    return OK;
}

static void arena_drop(Engine *e, Arena *a)
{
    if ((a->kind == MEM_DEVICE || a->kind == MEM_PINNED) && a->base != NULL) {
        exec_bottom(&e->ex)->free(&e->ex, a->kind, a->base, a->cap_bytes);
    }
    arena_free(a);
}

static Status slot_make(Engine *e, SlotState *s, size_t bytes)
{
    int n = e->spec.n_layers;
    void *memory = NULL;
    TRY(arena_make(e, &s->arena, "slot", MEM_DEVICE, bytes));
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->before, &memory));
    s->before = memory;
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->kept, &memory));
    s->kept = memory;
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->h, &memory));
    s->h = memory;
    TRY(arena_alloc_zero(&e->tables, (size_t)n * sizeof *s->state, &memory));
    s->state = memory;
    for (int i = 0; i < n; i++) {
        size_t state_bytes = layer_desc(e->spec.layers[i].kind)->state_bytes;
        if (state_bytes > 0) TRY(arena_alloc(&e->tables, state_bytes, &s->state[i]));
    }
    return OK;
}

Status engine_make_arenas(Engine *e, const EnginePlan *plan)
{
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        if (i == ENGINE_SLOT) continue;
        size_t bytes = plan == NULL ? COUNT_BYTES : plan->bytes[i];
        MemKind kind = i == ENGINE_PINNED ? MEM_PINNED : MEM_DEVICE;
        TRY(arena_make(e, &e->arena[i], engine_arena_names[i], kind, bytes));
    }
    e->n_slots = e->program.slots;
    void *memory = NULL;
    TRY(arena_alloc_zero(&e->tables, (size_t)e->n_slots * sizeof *e->slots, &memory));
    e->slots = memory;
    size_t slot_bytes = plan == NULL ? COUNT_BYTES : plan->bytes[ENGINE_SLOT] / (size_t)e->n_slots;
    for (int i = 0; i < e->n_slots; i++) TRY(slot_make(e, &e->slots[i], slot_bytes));
    return OK;
}

void engine_free_arenas(Engine *e)
{
    for (int i = 0; i < e->n_slots && e->slots != NULL; i++) arena_drop(e, &e->slots[i].arena);
    for (int i = 0; i < ENGINE_ARENAS; i++) arena_drop(e, &e->arena[i]);
}

size_t engine_pinned_bytes(const Engine *e)
{
    if (!e->on_gpu) return 0;
    return arena_rounded(e->arena[ENGINE_STEP].peak_bytes) + ENGINE_STAGING_BYTES;
}

/* The mirror. */

static bool mirrored(const Engine *e) { return e->on_gpu && !e->counting; }

void *engine_host(const Engine *e, const Tensor *t)
{
    if (!mirrored(e)) return t->data;
    return e->arena[ENGINE_PINNED].base + ((char *)t->data - e->arena[ENGINE_STEP].base);
}

static Status copy_out(Engine *e, void *first, size_t bytes)
{
    const Tensor at = { .data = first };
    if (!mirrored(e)) return OK;
    return exec_bottom(&e->ex)->copy(&e->ex, engine_host(e, &at), first, bytes);
}

Status engine_copy_in(Engine *e)
{
    if (!mirrored(e)) return OK;
    const Arena *step = &e->arena[ENGINE_STEP];
    return exec_bottom(&e->ex)->copy(&e->ex, step->base, e->arena[ENGINE_PINNED].base,
                                     e->inputs_end.used_bytes);
}

Status engine_copy_record(Engine *e)
{
    size_t first = e->inputs_end.used_bytes;
    return copy_out(e, e->arena[ENGINE_STEP].base + first, e->record_end.used_bytes - first);
}

Status engine_copy_out(Engine *e, const Tensor *t) { return copy_out(e, t->data, tensor_bytes(t)); }

Status engine_wait(Engine *e) { return exec_bottom(&e->ex)->sync(&e->ex); }

/* The staging block. */

size_t engine_piece_bytes(const Engine *e) { return mirrored(e) ? ENGINE_STAGING_BYTES : SIZE_MAX; }

static void *staging(const Engine *e)
{
    return e->arena[ENGINE_PINNED].base + arena_rounded(e->arena[ENGINE_STEP].peak_bytes);
}

void *engine_room(const Engine *e, void *at) { return mirrored(e) ? staging(e) : at; }

Status engine_put(Engine *e, void *at, size_t bytes)
{
    if (!mirrored(e)) return OK;
    TRY(exec_bottom(&e->ex)->copy(&e->ex, at, staging(e), bytes));
    return engine_wait(e);
}

Status engine_get(Engine *e, const void *at, size_t bytes, const void **out)
{
    *out = at;
    if (!mirrored(e)) return OK;
    *out = staging(e);
    TRY(exec_bottom(&e->ex)->copy(&e->ex, staging(e), at, bytes));
    return engine_wait(e);
}
