/* engine_memory: see the header. Arenas of a mode (slots, ring, scratch) lie either each in an allocation
 * of its own or, where two modes share memory or peers map it, one after the other in one block. */
#include "engine/step/engine_memory.h"

#include "engine/backend/backend.h"
#include "engine/base/log.h"
#include "engine/step/agree.h"
#include "engine/step/slots.h"
#include "kernels/exchange/exchange.h"

#include <string.h>

enum { COPY_BYTES = 256 << 10 }; /* what a thread copies at a time */

/* Capacity of arenas that only count: more than any model takes. */
static const size_t COUNT_BYTES = (size_t)1 << 60;

/* auto takes a GPU if the program was built for one and the host has one. */
bool engine_wants_gpu(const Config *c)
{
    if (c->run_device == DEVICE_AUTO) return gpu_built() && gpu_devices() > 0;
    return c->run_device != DEVICE_CPU;
}

/* An arena in the memory that ops use: counted, mapped on the host, or allocated on the GPU. */
static Status arena_make(EngineArenas *m, Arena *a, const char *name, MemKind kind, size_t bytes)
{
    if (m->counting || !m->ex->backend->apart) {
        TRY(arena_init(a, name, m->counting ? MEM_COUNT : MEM_HOST, bytes));
        arena_huge_pages(a);
        return OK;
    }
    void *block = NULL;
    size_t rounded = arena_rounded(bytes > 0 ? bytes : 1);
    TRY(m->ex->backend->alloc(m->ex, kind, rounded, &block));
    arena_over(a, name, kind, block, rounded);
    return OK;
}

/* The reverse of arena_make. Not for arenas that lie in another one: those own no memory. */
static void arena_drop(EngineArenas *m, Arena *a)
{
    if ((a->kind == MEM_DEVICE || a->kind == MEM_PINNED) && a->base != NULL) {
        m->ex->backend->free(m->ex, a->kind, a->base, a->cap_bytes);
    }
    arena_free(a);
}

/* The next `bytes` of a block as an arena of their own. */
static Status carve_arena(Arena *block, const char *name, size_t bytes, Arena *out)
{
    void *at = NULL;
    TRY(arena_alloc(block, bytes, &at));
    arena_over(out, name, block->kind, at, arena_rounded(bytes));
    return OK;
}

/* Bytes of the largest LayerDesc.state_bytes: a slot's tables fit layers of any kind. */
static size_t layer_state_bytes(void)
{
    size_t most = 0;
    for (int k = 0; k < LAYER_KINDS; k++) {
        size_t bytes = layer_desc((LayerKind)k)->state_bytes;
        if (bytes > most) most = bytes;
    }
    return arena_rounded(most);
}

/* Layers of the largest chunk: a slot is used by one chunk after the other. */
static int most_layers(const EngineMode *w)
{
    int most = 1;
    for (int c = 0; c < w->step->program.chunks; c++) {
        int n = w->chunks[c].end - w->chunks[c].first;
        if (n > most) most = n;
    }
    return most;
}

size_t engine_slot_tables(const EngineMode *w)
{
    size_t n = (size_t)most_layers(w);
    return arena_rounded((n + 1) * sizeof(LayerSlot)) + n * layer_state_bytes();
}

/* The bookkeeping of one slot, large enough for any chunk. */
static Status slot_tables(const EngineMode *w, Arena *tables, SlotState *s)
{
    size_t n = (size_t)most_layers(w);
    char *state = NULL;
    TRY(ARENA_ZEROED(tables, n + 1, &s->at));
    TRY(ARENA_NEW(tables, n * layer_state_bytes(), &state));
    for (size_t i = 0; i < n; i++) s->at[i].state = state + i * layer_state_bytes();
    return OK;
}

/* Cuts the arenas of slots and of the gradient pool out of the mode's memory. A counting run has one of each.
 * After engine_resize arenas are cut anew, but their tables are made once. */
static Status make_slots(EngineMode *w, const EnginePlan *plan, Arena *tables)
{
    size_t count = COUNT_BYTES / 4;
    SlotSizes sizes = { .bytes = { &count, &count }, .n = { 1, 0 } };
    Arena *block = &w->arena[ENGINE_SLOT];
    for (int i = 0; i < w->n_steps; i++) sizes.n[SLOT_GRADS] |= program_splits(&w->step[i].program);
    if (plan != NULL) TRY(slot_sizes_all(w, plan, tables, &sizes));
    ArenaPool *pool = &w->grads;
    if (w->slots == NULL) {
        w->n_slots = sizes.n[SLOT_KEEP], pool->n = sizes.n[SLOT_GRADS];
        TRY(ARENA_ZEROED(tables, w->n_slots, &w->slots));
        for (int i = 0; i < w->n_slots; i++) TRY(slot_tables(w, tables, &w->slots[i]));
        TRY(ARENA_ZEROED(tables, pool->n, &pool->at));
        TRY(ARENA_ZEROED(tables, pool->n, &pool->taken));
    }
    for (int i = 0; i < w->n_slots; i++)
        TRY(carve_arena(block, "slot", sizes.bytes[SLOT_KEEP][i], &w->slots[i].arena));
    for (int i = 0; i < pool->n; i++) {
        TRY(carve_arena(block, "gradients", sizes.bytes[SLOT_GRADS][i], &pool->at[i]));
    }
    return OK;
}

/* The ring holds the entries of transfers, then the memory between phases. */
static Status make_ring(EngineArenas *m, EngineMode *w, const EnginePlan *plan)
{
    static const char *const names[RINGS] = { "ring", "backward ring" };
    Arena *block = &w->arena[ENGINE_RING];
    int64_t rows = m->shape->micro_batch * m->shape->sequence / w->spec.ranks.tp;
    if (w->entries == NULL) TRY(ARENA_NEW(m->tables, w->n_entries, &w->entries));
    for (int i = 0; i < w->n_entries; i++) {
        TRY(tensor_new2(block, w->spec.act, rows, w->spec.hidden, &w->entries[i]));
    }
    for (int i = 0; i < RINGS; i++) {
        size_t bytes = plan == NULL ? COUNT_BYTES / 4 : plan->ring_bytes[i];
        TRY(carve_arena(block, names[i], bytes, &w->ring[i]));
    }
    return OK;
}

/* Lanes run at the same time, so the comm lane has scratch of its own, at the front. */
static Status make_comm_scratch(const EngineArenas *m, EngineMode *w, const EnginePlan *plan)
{
    static const char name[] = "scratch of the comm lane";
    if (!m->lanes) return OK;
    if (plan == NULL) return arena_init(&w->comm_scratch, name, MEM_COUNT, COUNT_BYTES);
    return carve_arena(&w->arena[ENGINE_SCRATCH], name, plan->comm_scratch_bytes, &w->comm_scratch);
}

/* Cuts the slots, the rings and the entries of a mode out of its arenas. plan NULL: a counting run. The order
 * matters: the comm lane's scratch lies at the front of ENGINE_SCRATCH. */
static Status lay_out(EngineArenas *m, EngineMode *w, const EnginePlan *plan)
{
    TRY(make_comm_scratch(m, w, plan));
    TRY(make_slots(w, plan, m->tables));
    return make_ring(m, w, plan);
}

/* All ranks of tp load from each other's memory, or none does. Where one refuses, the windows of the others
 * stay open: closing them would wait for it. */
static Status open_rows(EngineArenas *m, const ModelSpec *s)
{
    CommWindow *w = NULL;
    TRY(ARENA_ZEROED(m->tables, 1, &w));
    int32_t refused = exchange_rows_map(m->ex, m->block.base, m->block.cap_bytes,
                                        engine_expert_header_bytes(s), m->tables, w) != OK;
    if (refused) {
        char why[256];
        status_sentence(why, sizeof why);
        status_clear();
        log_message(m->shape->swap != NULL ? LOG_DEBUG : LOG_INFO,
                    "rows of mesh.tp go through NCCL: %s", why);
    }
    TRY(agree_most(m->shape->mesh->group[GROUP_WORLD], &refused, 1));
    return refused ? OK : exchange_rows_start(m->ex, w);
}

/* Opens the block to other ranks, as far as the mesh has ranks that load from it. */
Status engine_open_peers(EngineArenas *m, const ModelSpec *s)
{
    if (m->counting) return OK;
    TRY(exchange_open(m->ex, s->ranks.exchange, m->block.base, m->block.cap_bytes, m->tables));
    const bool gpu = m->ex->backend->apart && gpu_runtime == GPU_RUNTIME_CUDA; /* engine_device.c */
    return gpu && s->ranks.tp > 1 ? open_rows(m, s) : OK;
}

/* The arenas that each mode has of its own. */
static const EngineArena work[] = { ENGINE_SLOT, ENGINE_RING, ENGINE_SCRATCH };
enum { WORK_ARENAS = sizeof work / sizeof *work };

static bool is_work(int arena)
{
    bool found = false;
    for (int i = 0; i < WORK_ARENAS; i++) found |= (int)work[i] == arena;
    return found;
}

/* What one mode takes of the block. The block is as large as the larger mode. */
size_t engine_work_bytes(const EnginePlan *plan)
{
    size_t sum = 0;
    for (int i = 0; i < WORK_ARENAS; i++) sum += arena_rounded(plan->bytes[work[i]]);
    return sum;
}

/* plan NULL: a counting run with arenas of unlimited size. With a block the modes' arenas are cut out of it. */
Status engine_make_arenas(EngineArenas *m, EngineMode *modes, const EnginePlan *plan)
{
    bool block =
        plan != NULL && (m->shape->retry != NULL || engine_header_bytes(&modes[0].spec) > 0);
    m->lanes = m->ex->backend->async && m->shape->mesh != NULL;
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        if (block && is_work(i)) continue;
        size_t bytes = plan == NULL ? COUNT_BYTES : plan->bytes[i];
        MemKind kind = i == ENGINE_PINNED ? MEM_PINNED : MEM_DEVICE;
        Arena *a = is_work(i) ? &modes[0].arena[i] : &m->at[i];
        TRY(arena_make(m, a, engine_arena_names[i], kind, bytes));
    }
    return block ? engine_remake_modes(m, modes, plan) : lay_out(m, &modes[0], plan);
}

/* Places a mode's three arenas after the exchange header, inside the block. Scratch gives the header's
 * bytes: it is counted as scratch. */
static void place_arenas(const Arena *block, EngineMode *w, const EnginePlan *plan)
{
    size_t header = engine_header_bytes(&w->spec), at = header;
    for (int i = 0; i < WORK_ARENAS; i++) {
        size_t bytes = arena_rounded(plan->bytes[work[i]]);
        if (work[i] == ENGINE_SCRATCH) bytes -= header;
        arena_over(&w->arena[work[i]], engine_arena_names[work[i]], block->kind, block->base + at,
                   bytes);
        at += bytes;
    }
}

/* Allocates the block for the larger mode: engine_plan_retry has raised the plan's scratch to it. */
static Status make_block(EngineArenas *m, EngineMode *modes, const EnginePlan *plan)
{
    void *memory = NULL;
    TRY(arena_make(m, &m->block, "work", MEM_DEVICE, engine_work_bytes(plan)));
    TRY(arena_alloc(&m->block, m->block.cap_bytes, &memory));
    if (m->shape->retry != NULL) place_arenas(&m->block, &modes[1], m->shape->retry);
    place_arenas(&m->block, &modes[0], plan);
    return OK;
}

/* Also called by engine_resize. The old block is dropped first, because both may not fit at once. */
Status engine_remake_modes(EngineArenas *m, EngineMode *modes, const EnginePlan *plan)
{
    arena_drop(m, &m->block);
    TRY(make_block(m, modes, plan));
    if (m->shape->retry != NULL) TRY(lay_out(m, &modes[1], m->shape->retry));
    return lay_out(m, &modes[0], plan);
}

/* If there is a block, the arenas of modes lie in it and are freed with it. */
void engine_free_arenas(EngineArenas *m, EngineMode *modes)
{
    bool block = m->block.base != NULL;
    arena_drop(m, &m->block);
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        arena_drop(m, &m->at[i]);
        if (!block) arena_drop(m, &modes[0].arena[i]);
    }
}

/* The slot arena is cut into slots, so its peak is the sum of theirs. Entries of the ring are always in use. */
size_t engine_peak_bytes(const Engine *e, EngineArena which)
{
    const EngineMode *w = e->mode;
    if (!is_work((int)which)) return e->arenas.at[which].peak_bytes;
    if (which == ENGINE_SCRATCH) return w->arena[which].peak_bytes + engine_header_bytes(&w->spec);
    size_t sum = 0;
    if (which == ENGINE_RING) {
        for (int i = 0; i < w->n_entries; i++) {
            sum += arena_rounded(tensor_bytes(&w->entries[i]));
        }
        for (int i = 0; i < RINGS; i++) sum += w->ring[i].peak_bytes;
        return sum;
    }
    for (int i = 0; i < w->n_slots; i++) sum += w->slots[i].arena.peak_bytes;
    for (int i = 0; i < w->grads.n; i++) sum += w->grads.at[i].peak_bytes;
    return sum;
}

/* Optimizer state, the mirror, then the staging block. Without separate device memory none of them exists. */
size_t engine_pinned_bytes(const EngineArenas *m)
{
    if (!m->ex->backend->apart) return 0;
    return m->at[ENGINE_PINNED].used_bytes + arena_rounded(m->at[ENGINE_STEP].peak_bytes) +
           ENGINE_STAGING_BYTES;
}

/* The mirror of the step arena in pinned memory. */

/* A counting run has no memory to copy. */
static bool mirrored(const EngineArenas *m) { return m->ex->backend->apart && !m->counting; }

/* It lies after what was allocated there (make_params). */
static char *mirror(const EngineArenas *m)
{
    return m->at[ENGINE_PINNED].base + arena_rounded(m->at[ENGINE_PINNED].used_bytes);
}

void *engine_host(const EngineArenas *m, const Tensor *t)
{
    if (!mirrored(m)) return t->data;
    return mirror(m) + ((char *)t->data - m->at[ENGINE_STEP].base);
}

static Status copy_out(EngineArenas *m, void *first, size_t bytes)
{
    const Tensor at = { .data = first };
    if (!mirrored(m)) return OK;
    return m->ex->backend->copy(m->ex, engine_host(m, &at), first, bytes);
}

/* Inputs stand at the beginning of the step arena, so one copy brings all of them. */
Status engine_copy_in(EngineArenas *m)
{
    if (!mirrored(m)) return OK;
    const Arena *step = &m->at[ENGINE_STEP];
    return m->ex->backend->copy(m->ex, step->base, mirror(m), m->inputs_end.used_bytes);
}

/* The record follows the inputs and also takes one copy. */
Status engine_copy_record(EngineArenas *m)
{
    size_t first = m->inputs_end.used_bytes;
    return copy_out(m, m->at[ENGINE_STEP].base + first, m->record_end.used_bytes - first);
}

Status engine_copy_out(EngineArenas *m, const Tensor *t)
{
    return copy_out(m, t->data, tensor_bytes(t));
}

Status engine_wait(EngineArenas *m) { return m->ex->backend->sync(m->ex); }

/* The staging block. */

/* Without a mirror callers work on the memory itself, in one piece of any size. */
size_t engine_piece_bytes(const EngineArenas *m)
{
    return mirrored(m) ? ENGINE_STAGING_BYTES : SIZE_MAX;
}

/* It lies after the mirror, which is as long as the step arena. */
static void *staging_block(const EngineArenas *m)
{
    return mirror(m) + arena_rounded(m->at[ENGINE_STEP].peak_bytes);
}

void *engine_staging(const EngineArenas *m, void *at)
{
    return mirrored(m) ? staging_block(m) : at;
}

/* Waits for the copy, because the caller fills the same staging block again. */
Status engine_put(EngineArenas *m, void *at, size_t bytes)
{
    if (!mirrored(m)) return OK;
    TRY(m->ex->backend->copy(m->ex, at, staging_block(m), bytes));
    return engine_wait(m);
}

/* *out is valid until the next call that uses the staging block. */
Status engine_get(EngineArenas *m, const void *at, size_t bytes, const void **out)
{
    *out = at;
    if (!mirrored(m)) return OK;
    *out = staging_block(m);
    TRY(m->ex->backend->copy(m->ex, staging_block(m), at, bytes));
    return engine_wait(m);
}

bool engine_on_device(const EngineArenas *m, const void *at)
{
    const Arena *pinned = &m->at[ENGINE_PINNED];
    const char *p = at;
    return mirrored(m) && !(p >= pinned->base && p < pinned->base + pinned->used_bytes);
}

/* One thread does not fill the bandwidth of a host's memory. */
static void copy_bytes(char *to, const char *from, size_t bytes, int threads)
{
    const int64_t pieces = (int64_t)((bytes + COPY_BYTES - 1) / COPY_BYTES);
    if (pieces <= 1) { /* a region of one thread would allocate a team each time */
        memcpy(to, from, bytes);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < pieces; i++) {
        const size_t at = (size_t)i * COPY_BYTES;
        memcpy(to + at, from + at, bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES);
    }
}

Status engine_read(EngineArenas *m, char *to, const char *from, size_t bytes, int threads)
{
    const bool there = !engine_on_device(m, from);
    if (there) TRY(engine_wait(m));
    for (size_t at = 0, n = 0; at < bytes; at += n) {
        const void *piece = from + at;
        n = there || bytes - at < ENGINE_STAGING_BYTES ? bytes - at : ENGINE_STAGING_BYTES;
        if (!there) TRY(engine_get(m, from + at, n, &piece));
        copy_bytes(to + at, piece, n, threads);
    }
    return OK;
}

Status engine_zero(EngineArenas *m, const Tensor *t)
{
    char *at = t->data;
    if (at == NULL) return OK;
    if (mirrored(m) && !engine_on_device(m, at)) {
        TRY(engine_wait(m));
        memset(t->data, 0, tensor_bytes(t));
        return OK;
    }
    return m->ex->backend->fill(m->ex, t->data, 0, tensor_bytes(t));
}
