#include "train/engine_memory.h"

#include "backend/backend.h"
#include "backend/cuda.h"
#include "train/again.h"
#include "train/engine_program.h"

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

/* The next `bytes` of a block as an arena of their own. */
static Status carve(Arena *block, const char *name, size_t bytes, Arena *out)
{
    void *at = NULL;
    TRY(arena_alloc(block, bytes, &at));
    arena_over(out, name, block->kind, at, arena_rounded(bytes));
    return OK;
}

static size_t state_bytes(void)
{
    size_t most = 0;
    for (int k = LAYER_EMBED; k <= LAYER_HEAD; k++) {
        size_t bytes = layer_desc((LayerKind)k)->state_bytes;
        if (bytes > most) most = bytes;
    }
    return arena_rounded(most);
}

static int most_layers(const Engine *e)
{
    int most = 1;
    for (int c = 0; c < e->program.chunks; c++) {
        int n = e->chunks[c].end - e->chunks[c].first;
        if (n > most) most = n;
    }
    return most;
}

size_t engine_slot_tables(const Engine *e)
{
    size_t n = (size_t)most_layers(e);
    return arena_rounded((n + 1) * sizeof(LayerSlot)) + n * state_bytes();
}

/* Room for the layers of any chunk. */
static Status slot_tables(Engine *e, SlotState *s)
{
    size_t n = (size_t)most_layers(e);
    void *memory = NULL;
    TRY(arena_alloc_zero(&e->tables, (n + 1) * sizeof *s->at, &memory));
    s->at = memory;
    TRY(arena_alloc(&e->tables, n * state_bytes(), &memory));
    for (size_t i = 0; i < n; i++) s->at[i].state = (char *)memory + i * state_bytes();
    return OK;
}

/* A counting run has one of each. */
static Status make_slots(Engine *e, const EnginePlan *plan)
{
    size_t count = COUNT_BYTES / 4;
    SlotSizes sizes = { { &count, &count }, { 1, e->split } };
    void *memory = NULL;
    Arena *block = &e->arena[ENGINE_SLOT];
    if (plan != NULL) TRY(slot_sizes(&e->program, plan, &e->tables, &sizes));
    e->n_slots = sizes.n[SLOT_KEEP];
    TRY(arena_alloc_zero(&e->tables, (size_t)e->n_slots * sizeof *e->slots, &memory));
    e->slots = memory;
    for (int i = 0; i < e->n_slots; i++) {
        TRY(carve(block, "slot", sizes.bytes[SLOT_KEEP][i], &e->slots[i].arena));
        TRY(slot_tables(e, &e->slots[i]));
    }
    ArenaPool *pool = &e->grads;
    pool->n = sizes.n[SLOT_GRADS];
    TRY(arena_alloc_zero(&e->tables, (size_t)pool->n * sizeof *pool->at, &memory));
    pool->at = memory;
    TRY(arena_alloc_zero(&e->tables, (size_t)pool->n * sizeof *pool->taken, &memory));
    pool->taken = memory;
    for (int i = 0; i < pool->n; i++) {
        TRY(carve(block, "gradients", sizes.bytes[SLOT_GRADS][i], &pool->at[i]));
    }
    return OK;
}

static Status make_ring(Engine *e, const EnginePlan *plan)
{
    static const char *const names[RINGS] = { "ring", "backward ring" };
    Arena *block = &e->arena[ENGINE_RING];
    int64_t micro_tokens = e->shape.micro_batch * e->shape.sequence;
    void *memory = NULL;
    TRY(arena_alloc(&e->tables, (size_t)e->program.entries * sizeof(Tensor), &memory));
    e->entries = memory;
    for (int i = 0; i < e->program.entries; i++) {
        TRY(tensor_new2(block, e->spec.act, micro_tokens, e->spec.hidden, &e->entries[i]));
    }
    for (int i = 0; i < RINGS; i++) {
        size_t bytes = plan == NULL ? COUNT_BYTES / 4 : plan->ring_bytes[i];
        TRY(carve(block, names[i], bytes, &e->ring[i]));
    }
    if (e->program.phases == 0) return OK;
    return tensor_new2(&e->ring[RING_FORWARD], e->spec.act, micro_tokens, e->spec.hidden,
                       &e->output);
}

/* The comm lane's share of the scratch comes first. */
static Status make_comm_scratch(Engine *e, const EnginePlan *plan)
{
    static const char name[] = "scratch of the comm lane";
    e->lanes.on = e->on_gpu && e->shape.mesh != NULL;
    if (!e->lanes.on) return OK;
    if (plan == NULL) return arena_init(&e->lanes.scratch, name, MEM_COUNT, COUNT_BYTES);
    return carve(&e->arena[ENGINE_SCRATCH], name, plan->comm_scratch_bytes, &e->lanes.scratch);
}

Status engine_lay_out(Engine *e, const EnginePlan *plan)
{
    TRY(make_comm_scratch(e, plan));
    TRY(make_slots(e, plan));
    return make_ring(e, plan);
}

Status engine_make_block(Engine *e, size_t bytes)
{
    return arena_make(e, &e->block, "work", MEM_DEVICE, bytes);
}

static bool is_work(int arena)
{
    return arena == ENGINE_SLOT || arena == ENGINE_RING || arena == ENGINE_SCRATCH;
}

Status engine_make_arenas(Engine *e, const EnginePlan *plan)
{
    bool both = plan != NULL && e->shape.again != NULL;
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        if (both && is_work(i)) continue;
        size_t bytes = plan == NULL ? COUNT_BYTES : plan->bytes[i];
        MemKind kind = i == ENGINE_PINNED ? MEM_PINNED : MEM_DEVICE;
        TRY(arena_make(e, &e->arena[i], engine_arena_names[i], kind, bytes));
    }
    return both ? again_make(e, plan) : engine_lay_out(e, plan);
}

void engine_free_arenas(Engine *e)
{
    arena_drop(e, &e->block);
    for (int i = 0; i < ENGINE_ARENAS; i++) arena_drop(e, &e->arena[i]);
}

size_t engine_peak_bytes(const Engine *e, EngineArena which)
{
    if (which != ENGINE_SLOT && which != ENGINE_RING) return e->arena[which].peak_bytes;
    size_t sum = 0;
    if (which == ENGINE_RING) {
        for (int i = 0; i < e->program.entries; i++) {
            sum += arena_rounded(tensor_bytes(&e->entries[i]));
        }
        for (int i = 0; i < RINGS; i++) sum += e->ring[i].peak_bytes;
        return sum;
    }
    for (int i = 0; i < e->n_slots; i++) sum += e->slots[i].arena.peak_bytes;
    for (int i = 0; i < e->grads.n; i++) sum += e->grads.at[i].peak_bytes;
    return sum;
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
