#include "train/engine_memory.h"

#include "backend/backend.h"
#include "train/again.h"
#include "train/engine_program.h"

#include <stdio.h>
#include <string.h>

static const size_t COUNT_BYTES = (size_t)1 << 60;

bool engine_wants_gpu(const Config *c)
{
    if (c->run_device == DEVICE_AUTO) return gpu_built() && gpu_devices() > 0;
    return c->run_device == DEVICE_CUDA;
}

static Status arena_make(Engine *e, Arena *a, const char *name, MemKind kind, size_t bytes)
{
    if (e->counting || !e->ex.backend->apart) {
        TRY(arena_init(a, name, e->counting ? MEM_COUNT : MEM_HOST, bytes));
        arena_huge_pages(a);
        return OK;
    }
    void *block = NULL;
    size_t room = arena_rounded(bytes > 0 ? bytes : 1);
    TRY(e->ex.backend->alloc(&e->ex, kind, room, &block));
    arena_over(a, name, kind, block, room);
    return OK;
}

static void arena_drop(Engine *e, Arena *a)
{
    if ((a->kind == MEM_DEVICE || a->kind == MEM_PINNED) && a->base != NULL) {
        e->ex.backend->free(&e->ex, a->kind, a->base, a->cap_bytes);
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
    for (int k = 0; k < LAYER_KINDS; k++) {
        size_t bytes = layer_desc((LayerKind)k)->state_bytes;
        if (bytes > most) most = bytes;
    }
    return arena_rounded(most);
}

static int most_layers(const Engine *e)
{
    int most = 1;
    for (int c = 0; c < e->ways[0].step.program.chunks; c++) {
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
    char *state = NULL;
    TRY(ARENA_ZEROED(&e->tables, n + 1, &s->at));
    TRY(ARENA_NEW(&e->tables, n * state_bytes(), &state));
    for (size_t i = 0; i < n; i++) s->at[i].state = state + i * state_bytes();
    return OK;
}

/* A counting run has one of each. The tables of slots are made once. */
static Status make_slots(Engine *e, EngineWay *w, const EnginePlan *plan)
{
    size_t count = COUNT_BYTES / 4;
    SlotSizes sizes = { .bytes = { &count, &count }, .n = { 1, e->split } };
    Arena *block = &w->arena[ENGINE_SLOT];
    if (plan != NULL) TRY(slot_sizes(&w->step.program, plan, &e->tables, &sizes));
    ArenaPool *pool = &w->grads;
    if (w->slots == NULL) {
        w->n_slots = sizes.n[SLOT_KEEP], pool->n = sizes.n[SLOT_GRADS];
        TRY(ARENA_ZEROED(&e->tables, w->n_slots, &w->slots));
        for (int i = 0; i < w->n_slots; i++) TRY(slot_tables(e, &w->slots[i]));
        TRY(ARENA_ZEROED(&e->tables, pool->n, &pool->at));
        TRY(ARENA_ZEROED(&e->tables, pool->n, &pool->taken));
    }
    for (int i = 0; i < w->n_slots; i++)
        TRY(carve(block, "slot", sizes.bytes[SLOT_KEEP][i], &w->slots[i].arena));
    for (int i = 0; i < pool->n; i++) {
        TRY(carve(block, "gradients", sizes.bytes[SLOT_GRADS][i], &pool->at[i]));
    }
    return OK;
}

static Status make_ring(Engine *e, EngineWay *w, const EnginePlan *plan)
{
    static const char *const names[RINGS] = { "ring", "backward ring" };
    Arena *block = &w->arena[ENGINE_RING];
    int64_t micro_tokens = e->shape.micro_batch * e->shape.sequence;
    if (w->entries == NULL) TRY(ARENA_NEW(&e->tables, w->step.program.entries, &w->entries));
    for (int i = 0; i < w->step.program.entries; i++) {
        TRY(tensor_new2(block, e->spec.act, micro_tokens, e->spec.hidden, &w->entries[i]));
    }
    for (int i = 0; i < RINGS; i++) {
        size_t bytes = plan == NULL ? COUNT_BYTES / 4 : plan->ring_bytes[i];
        TRY(carve(block, names[i], bytes, &w->ring[i]));
    }
    return OK;
}

/* The comm lane's share of the scratch comes first. */
static Status make_comm_scratch(Engine *e, EngineWay *w, const EnginePlan *plan)
{
    static const char name[] = "scratch of the comm lane";
    if (!e->lanes) return OK;
    if (plan == NULL) return arena_init(&w->comm_scratch, name, MEM_COUNT, COUNT_BYTES);
    return carve(&w->arena[ENGINE_SCRATCH], name, plan->comm_scratch_bytes, &w->comm_scratch);
}

Status engine_lay_out(Engine *e, EngineWay *w, const EnginePlan *plan)
{
    TRY(make_comm_scratch(e, w, plan));
    TRY(make_slots(e, w, plan));
    return make_ring(e, w, plan);
}

size_t engine_board_bytes(const Engine *e)
{
    return e->spec.ep == 1 ? 0 : arena_rounded(exchange_kinds[e->spec.exchange]->board_bytes);
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
    bool block = plan != NULL && (e->shape.again != NULL || engine_board_bytes(e) > 0);
    e->lanes = e->ex.backend->async && e->shape.mesh != NULL;
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        if (block && is_work(i)) continue;
        size_t bytes = plan == NULL ? COUNT_BYTES : plan->bytes[i];
        MemKind kind = i == ENGINE_PINNED ? MEM_PINNED : MEM_DEVICE;
        Arena *a = is_work(i) ? &e->ways[0].arena[i] : &e->arena[i];
        TRY(arena_make(e, a, engine_arena_names[i], kind, bytes));
    }
    return block ? engine_remake_ways(e, plan) : engine_lay_out(e, &e->ways[0], plan);
}

Status engine_remake_ways(Engine *e, const EnginePlan *plan)
{
    arena_drop(e, &e->block);
    TRY(again_make(e, plan));
    if (e->shape.again != NULL) TRY(engine_lay_out(e, &e->ways[1], e->shape.again));
    return engine_lay_out(e, &e->ways[0], plan);
}

/* The arenas of work lie in the block, if there is one. */
void engine_free_arenas(Engine *e)
{
    bool block = e->block.base != NULL;
    arena_drop(e, &e->block);
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        arena_drop(e, &e->arena[i]);
        if (!block) arena_drop(e, &e->ways[0].arena[i]);
    }
}

size_t engine_peak_bytes(const Engine *e, EngineArena which)
{
    const EngineWay *w = e->way;
    if (!is_work((int)which)) return e->arena[which].peak_bytes;
    if (which == ENGINE_SCRATCH) return w->arena[which].peak_bytes + engine_board_bytes(e);
    size_t sum = 0;
    if (which == ENGINE_RING) {
        for (int i = 0; i < w->step.program.entries; i++) {
            sum += arena_rounded(tensor_bytes(&w->entries[i]));
        }
        for (int i = 0; i < RINGS; i++) sum += w->ring[i].peak_bytes;
        return sum;
    }
    for (int i = 0; i < w->n_slots; i++) sum += w->slots[i].arena.peak_bytes;
    for (int i = 0; i < w->grads.n; i++) sum += w->grads.at[i].peak_bytes;
    return sum;
}

size_t engine_pinned_bytes(const Engine *e)
{
    if (!e->ex.backend->apart) return 0;
    return arena_rounded(e->arena[ENGINE_STEP].peak_bytes) + ENGINE_STAGING_BYTES;
}

/* The mirror. */

static bool mirrored(const Engine *e) { return e->ex.backend->apart && !e->counting; }

void *engine_host(const Engine *e, const Tensor *t)
{
    if (!mirrored(e)) return t->data;
    return e->arena[ENGINE_PINNED].base + ((char *)t->data - e->arena[ENGINE_STEP].base);
}

static Status copy_out(Engine *e, void *first, size_t bytes)
{
    const Tensor at = { .data = first };
    if (!mirrored(e)) return OK;
    return e->ex.backend->copy(&e->ex, engine_host(e, &at), first, bytes);
}

Status engine_copy_in(Engine *e)
{
    if (!mirrored(e)) return OK;
    const Arena *step = &e->arena[ENGINE_STEP];
    return e->ex.backend->copy(&e->ex, step->base, e->arena[ENGINE_PINNED].base,
                               e->inputs_end.used_bytes);
}

Status engine_copy_record(Engine *e)
{
    size_t first = e->inputs_end.used_bytes;
    return copy_out(e, e->arena[ENGINE_STEP].base + first, e->record_end.used_bytes - first);
}

Status engine_copy_out(Engine *e, const Tensor *t) { return copy_out(e, t->data, tensor_bytes(t)); }

Status engine_wait(Engine *e) { return e->ex.backend->sync(&e->ex); }

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
    TRY(e->ex.backend->copy(&e->ex, at, staging(e), bytes));
    return engine_wait(e);
}

Status engine_get(Engine *e, const void *at, size_t bytes, const void **out)
{
    *out = at;
    if (!mirrored(e)) return OK;
    *out = staging(e);
    TRY(e->ex.backend->copy(&e->ex, staging(e), at, bytes));
    return engine_wait(e);
}
