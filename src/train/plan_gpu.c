/* plan_gpu: what a run takes of a GPU's memory, and whether it is there. Arenas are exact. The rest
 * is the driver's: its context (measured, with what other processes hold), and the kernels, which
 * it loads when they first run, with their graph. */
#include "backend/backend.h"
#include "train/engine_memory.h"
#include "train/plan_host.h"

#include <inttypes.h>
#include <stdio.h>

static const size_t GRANULE_BYTES = (size_t)2 << 20; /* the driver gives memory in such pieces */
/* Measured on an H100 with driver 580: in use after the rehearsal less context and arenas. */
static const size_t KERNEL_BYTES = (size_t)8 << 20;

/* Measured on two H200s with NCCL 2.28: what a communicator takes for its rings, and for transfers
 * between its ranks (exchanges; comm/nccl.c has the blocks, by which both go). */
static const size_t RING_BYTES = (size_t)588 << 20, PEER_BYTES = (size_t)410 << 20;
static const size_t WAY_BYTES = (size_t)166 << 20; /* of stages' transfers, of one way */

static bool on_device(int arena) { return arena != ENGINE_PINNED; }

static size_t arenas_bytes(const EnginePlan *plan)
{
    size_t sum = 0;
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        size_t granules = (plan->bytes[i] + GRANULE_BYTES - 1) / GRANULE_BYTES;
        if (on_device(i)) sum += granules * GRANULE_BYTES;
    }
    return sum;
}

/* One communicator for groups with the same members, one for each way between stages. */
static size_t comm_bytes(const Config *c, const Mesh *m)
{
    size_t sum = 0;
    if (m == NULL) return 0;
    const MeshShape *s = &m->shape;
    ExchangeShape shape;
    bool stores = exchange_kinds[spec_exchange(c, &shape)]->board_bytes > 0;
    bool connected[GROUP_COUNT] = { false };
    for (MeshGroup g = GROUP_WORLD; g < GROUP_COUNT; g++) {
        MeshGroup first = mesh_first(s, g);
        bool peers = mesh_exchanges(s, g, stores);
        if (mesh_group_size(s, g) == 1) continue;
        if (first == g) sum += RING_BYTES;
        if (peers && !connected[first]) sum += PEER_BYTES;
        connected[first] |= peers;
    }
    int64_t colors = 2 + s->pp % 2, ways = s->pp > 1 ? 2 * c->mesh_vpp * colors : 0;
    return sum + (size_t)ways * WAY_BYTES;
}

/* Context and handles are made and given back; what is then in use is not ours alone, nor is what
 * is free. */
static Status probe(const Config *c, GpuPlan *out)
{
    Arena tables = { 0 };
    Exec ex = { 0 };
    TRY(arena_init(&tables, "probe", MEM_HOST, (size_t)64 << 20));
    Status s = gpu_exec_init(&ex, (int)c->run_gpu, &tables, NULL);
    if (s == OK) s = gpu_info((int)c->run_gpu, &out->gpu);
    exec_free(&ex);
    arena_free(&tables);
    return s;
}

Status train_plan_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                      GpuPlan *out)
{
    *out = (GpuPlan){ 0 };
    if (!plan->apart) return OK;
    GpuPlan p = { .arenas_bytes = arenas_bytes(plan), .kernel_bytes = KERNEL_BYTES };
    TRY(probe(c, &p));
    p.context_bytes = p.gpu.total_bytes - p.gpu.free_bytes;
    p.comm_bytes = comm_bytes(c, shape->mesh);
    p.total_bytes = p.context_bytes + p.kernel_bytes + p.comm_bytes + p.arenas_bytes;
    Config other = *c;
    EnginePlan with_other;
    other.attention_deterministic = !c->attention_deterministic;
    TRY(engine_plan(&other, ENGINE_TRAIN, shape, &with_other));
    size_t here = plan->bytes[ENGINE_SCRATCH], there = with_other.bytes[ENGINE_SCRATCH];
    p.ordered_bytes = c->attention_deterministic ? here : there;
    p.any_order_bytes = c->attention_deterministic ? there : here;
    *out = p;
    return OK;
}

static bool fits(const void *gpu, const EnginePlan *plan, size_t *bytes)
{
    const GpuPlan *p = gpu;
    *bytes = p->context_bytes + p->kernel_bytes + p->comm_bytes + arenas_bytes(plan);
    return *bytes <= p->gpu.total_bytes;
}

/* What others take of a GPU may grow, and what was measured may be a little more elsewhere. */
bool train_gpu_has(const GpuPlan *p, const EnginePlan *plan)
{
    enum { MARGIN_PART = 50 };
    size_t bytes = 0;
    return fits(p, plan, &bytes) && bytes <= p->gpu.total_bytes - p->gpu.total_bytes / MARGIN_PART;
}

Status train_check_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                       const GpuPlan *p)
{
    if (p->total_bytes <= p->gpu.total_bytes) return OK;
    char hint[TRAIN_HINT_BYTES], need[32], have[32], used[32], arena[32], list[192] = "";
    size_t at = 0;
    for (int i = 0; i < ENGINE_ARENAS && at < sizeof list; i++) {
        if (!on_device(i)) continue;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s %s", at > 0 ? ", " : "",
                               engine_arena_names[i], text_bytes(arena, (double)plan->bytes[i]));
    }
    TRY(train_nearest(c, shape, fits, p, "a GPU with more memory", hint));
    return FAIL(ERR_ARG,
                "GPU %d (%s) has %s, of which %s are in use; the plan needs %s in all (%s): %s",
                (int)c->run_gpu, p->gpu.name, text_bytes(have, (double)p->gpu.total_bytes),
                text_bytes(used, (double)p->context_bytes),
                text_bytes(need, (double)p->total_bytes), list, hint);
}

Status train_print_gpu(const GpuPlan *p, Text *out)
{
    char text[32], scratch[96], peak[64];
    (void)snprintf(scratch, sizeof scratch,
                   "scratch with attention.deterministic=true, %s with false",
                   text_bytes(text, (double)p->any_order_bytes));
    (void)snprintf(peak, sizeof peak, "in use at the peak (%zu bytes)", p->total_bytes);
    TRY(text_printf(out, "GPU         %s, %s\n", p->gpu.name,
                    text_bytes(text, (double)p->gpu.total_bytes)));
    TRY(train_print_bytes(out, "arenas", p->arenas_bytes,
                          "run, slot, ring, step and scratch, in the driver's pieces"));
    TRY(train_print_bytes(out, "context", p->context_bytes, "the driver's, and other programs'"));
    TRY(train_print_bytes(out, "kernels", p->kernel_bytes,
                          "loaded when they first run; the step's graph"));
    if (p->comm_bytes > 0) TRY(train_print_bytes(out, "ranks", p->comm_bytes, "NCCL's buffers"));
    TRY(train_print_bytes(out, "attention", p->ordered_bytes, scratch));
    return train_print_bytes(out, "total", p->total_bytes, peak);
}
