/*
 * fits: compares the memory that a plan takes with what is available.
 *
 * On the host, arenas are mapped at once but taken page by page. Without this check nobody would notice
 * before the kernel kills this process, or another one. Pages of data files do not count: the page cache
 * gives them up. On a GPU arenas are exact. The rest belongs to the driver: its context (measured, with
 * what other processes hold), and the kernels with their graph.
 *
 * A Memory is a host or a GPU: its size, what others take there, and how many engines share it. A plan
 * that does not fit is refused with the nearest settings that fit.
 */
#include "engine/train/fits.h"

#include "engine/backend/backend.h"
#include "engine/config/ramp.h"
#include "engine/schedule/schedule.h"
#include "kernels/exchange/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Margins, as 1/n of the memory. The kernel only estimates what is available on a host, so a plan that is a
 * little larger is still tried. On a GPU other processes may grow, and measured constants may be larger
 * elsewhere. */
enum { HOST_MARGIN = 20, HOST_BYTES = 64, HINT_BYTES = 192 };

static const size_t GRANULE_BYTES = (size_t)2 << 20; /* the driver gives memory in such pieces */
/* Measured on an H100 with driver 580: in use after the rehearsal less context and arenas. */
static const size_t KERNEL_BYTES = (size_t)8 << 20;

/* Memory of a host or a GPU. */
typedef struct Memory {
    uint64_t there;   /* bytes that may be used */
    uint64_t others;  /* bytes that are taken by other things than engines */
    uint64_t engines; /* engines that share it; all are taken to be alike */
    size_t (*engine_bytes)(const EnginePlan *plan);
    const char *larger; /* what to take if no setting fits */
} Memory;

/* What others take, and all engines that share this memory. */
static uint64_t bytes_taken(const Memory *m, const EnginePlan *plan)
{
    return m->others + m->engines * m->engine_bytes(plan);
}

/* Writes a hint: "train.micro_batch=2 fits with 3 GiB". It is the change that costs least: smaller
 * micro-batches are tried first, then recompute of all layers. */
static Status nearest_that_fits(const Config *c, const EngineShape *shape, const Memory *m,
                                char out[HINT_BYTES])
{
    Config other = *c;
    EngineShape small = *shape;
    char text[32];
    int64_t ranks = c->train_batch / shape->batch;
    for (int all = 0; all < 2; all++) {
        for (int64_t b = shape->micro_batch - (all == 0); b >= 1; b--) {
            EnginePlan plan;
            if (shape->batch % b != 0 || (ranks > 0 && ramp_unit(c) % (ranks * b) != 0)) continue;
            other.train_micro_batch = small.micro_batch = b;
            TRY(engine_plan(&other, ENGINE_TRAIN, &small, &plan));
            if (bytes_taken(m, &plan) > m->there) continue;
            (void)snprintf(out, HINT_BYTES, "train.micro_batch=%" PRId64 "%s fits with %s", b,
                           all ? " and recompute of all layers" : "",
                           text_bytes(text, (double)bytes_taken(m, &plan)));
            return OK;
        }
        other.recompute_layers.n = 0;
        for (int64_t i = 0; i < c->model_layers && i < CONFIG_LIST_MAX; i++) {
            other.recompute_layers.at[other.recompute_layers.n++] = i;
        }
    }
    (void)snprintf(out, HINT_BYTES,
                   "no train.micro_batch fits, even with recompute of all layers: take %s or a "
                   "smaller model",
                   m->larger);
    return OK;
}

/* ---- the host ---- */

size_t train_host_bytes(const EnginePlan *p)
{
    size_t sum = p->tables_bytes;
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        if (!p->apart || i == ENGINE_PINNED) sum += p->bytes[i];
    }
    return sum;
}

/* Available memory plus a margin, without overflow where nothing is known (UINT64_MAX). */
static uint64_t with_margin(uint64_t available)
{
    uint64_t margin = available / HOST_MARGIN;
    return available > UINT64_MAX - margin ? UINT64_MAX : available + margin;
}

/* The reverse margin of with_margin: a chosen capacity must be safe, a configured one may be
 * tried. */
bool train_host_has(uint64_t bytes)
{
    HostMemory m;
    host_memory("/proc", "/sys/fs/cgroup", &m);
    return bytes <= m.available_bytes - m.available_bytes / HOST_MARGIN;
}

Status train_check_bytes(const char *what, size_t bytes, const HostMemory *m, const char *hint)
{
    char need[32], have[32];
    if (bytes <= with_margin(m->available_bytes)) return OK;
    return FAIL(ERR_ARG, "%s %s of memory, %s are available (%s): %s", what,
                text_bytes(need, (double)bytes), text_bytes(have, (double)m->available_bytes),
                m->limit, hint);
}

/* What a rank plans to take, and what it sees of its host. Ranks exchange these structs as bytes. */
typedef struct Need {
    char host[HOST_BYTES];
    int place; /* its LOCAL_RANK; below 0: the launcher's own matter */
    uint64_t planned;
    HostMemory memory;
} Need;

/* A hint for a host whose `ranks` ranks plan `sum` bytes together. */
static Status host_hint(const Config *c, const TrainPlan *p, uint64_t sum, uint64_t ranks,
                        uint64_t available, char out[HINT_BYTES])
{
    const uint64_t engines = ranks * train_host_bytes(&p->engine);
    const Memory m = { .there = with_margin(available),
                       .others = sum > engines ? sum - engines : 0,
                       .engines = ranks,
                       .engine_bytes = train_host_bytes,
                       .larger = "a host with more memory" };
    if (!p->engine.apart && ranks * p->engine.bytes[ENGINE_RUN] <= m.there)
        return nearest_that_fits(c, &p->shape, &m, out);
    (void)snprintf(out, HINT_BYTES, "take a host with more memory, more hosts or a smaller model");
    return OK;
}

/* Checks the host of rank i, once for all ranks on it: when i is the first of them. */
static Status check_host(const Config *c, const TrainPlan *p, const Need *all, int n, int i)
{
    Need sum = { .memory = all[i].memory };
    uint64_t ranks = 0;
    char what[HOST_BYTES + 64], hint[HINT_BYTES];
    for (int r = 0; r < n; r++) {
        if (strcmp(all[r].host, all[i].host) != 0) continue;
        if (r < i) return OK;
        if (r > i && all[i].place >= 0 && all[r].place == all[i].place)
            return FAIL(ERR_ARG,
                        "ranks %d and %d are both on host %s with LOCAL_RANK %d: give each process "
                        "of a host its own LOCAL_RANK, and LOCAL_WORLD_SIZE; hosts need different "
                        "names",
                        i, r, all[i].host, all[i].place);
        sum.planned += all[r].planned;
        if (all[r].memory.available_bytes < sum.memory.available_bytes) sum.memory = all[r].memory;
        ranks++;
    }
    if (sum.planned <= with_margin(sum.memory.available_bytes)) return OK;
    TRY(host_hint(c, p, sum.planned, ranks, sum.memory.available_bytes, hint));
    (void)snprintf(what, sizeof what, n > 1 ? "the %d ranks on %s plan" : "the plan takes",
                   (int)ranks, all[i].host);
    return train_check_bytes(what, sum.planned, &sum.memory, hint);
}

/* Pages of data files are left out of the need: the page cache can drop them. */
Status train_check_host(const Config *c, const TrainPlan *p, Comm *world, const HostMemory *m,
                        Arena *a)
{
    Need mine = { .planned = p->total_bytes - p->need[NEED_DATA], .memory = *m }, *all = &mine;
    int n = world == NULL ? 1 : world->size;
    mine.place = n == 1 || comm_launched_by_mpi() ? -1 : comm_local_rank(world);
    (void)gethostname(mine.host, sizeof mine.host - 1);
    if (n > 1) {
        Tensor in = { &mine, DTYPE_U8, 1, { sizeof mine } };
        TRY(ARENA_NEW(a, n, &all));
        Tensor out = { all, DTYPE_U8, 1, { (int64_t)sizeof mine * n } };
        TRY(comm_all_gather(world, &in, &out));
    }
    for (int i = 0; i < n; i++) TRY(check_host(c, p, all, n, i));
    return OK;
}

/* ---- a GPU ---- */

/* The driver allocates in granules, so each arena is rounded up to them. */
static size_t device_bytes(const EnginePlan *plan)
{
    size_t sum = 0;
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        size_t granules = (plan->bytes[i] + GRANULE_BYTES - 1) / GRANULE_BYTES;
        if (i != ENGINE_PINNED) sum += granules * GRANULE_BYTES;
    }
    return sum;
}

static Status comm_bytes(const Config *c, const Mesh *m, size_t *out)
{
    const ScheduleDesc *d;
    ExchangeShape shape;
    *out = 0;
    if (m == NULL) return OK;
    TRY(schedule_find(c->mesh_schedule, &d));
    bool stores = exchange_kinds[spec_exchange(c, &shape)]->header_bytes > 0;
    *out = engine_comm_bytes(&m->shape, stores, d->placement == PLACE_LOOP ? 1 : (int)c->mesh_vpp);
    return OK;
}

/* Makes a context and handles, reads the memory in use, and frees them. Other processes' memory counts,
 * too. */
static Status probe_gpu(const Config *c, GpuPlan *out)
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

/* One engine on one GPU: two ranks never share a GPU. */
static Memory memory_of_gpu(const GpuPlan *p)
{
    return (Memory){ .there = p->gpu.total_bytes,
                     .others = p->context_bytes + p->kernel_bytes + p->comm_bytes,
                     .engines = 1,
                     .engine_bytes = device_bytes,
                     .larger = "a GPU with more memory" };
}

Status train_plan_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                      GpuPlan *out)
{
    *out = (GpuPlan){ 0 };
    if (!plan->apart) return OK;
    GpuPlan p = { .arenas_bytes = device_bytes(plan), .kernel_bytes = KERNEL_BYTES };
    TRY(probe_gpu(c, &p));
    p.context_bytes = p.gpu.total_bytes - p.gpu.free_bytes;
    TRY(comm_bytes(c, shape->mesh, &p.comm_bytes));
    const Memory m = memory_of_gpu(&p);
    p.total_bytes = bytes_taken(&m, plan);
    *out = p;
    return OK;
}

/* Stricter than train_check_gpu, by the margin of a plan: a run then has the capacity that was planned. */
bool train_gpu_has(const GpuPlan *p, const EnginePlan *plan, double margin)
{
    const Memory m = memory_of_gpu(p);
    return (double)bytes_taken(&m, plan) <= (double)m.there * (1 - margin);
}

/* Pinned memory is the host's, so it is not in the list of arenas. */
Status train_check_gpu(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                       const GpuPlan *p)
{
    const Memory m = memory_of_gpu(p);
    if (p->total_bytes <= m.there) return OK;
    char hint[HINT_BYTES], need[32], have[32], used[32], arena[32], list[192] = "";
    size_t at = 0;
    for (int i = 0; i < ENGINE_ARENAS && at < sizeof list; i++) {
        if (i == ENGINE_PINNED) continue;
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s %s", at > 0 ? ", " : "",
                               engine_arena_names[i], text_bytes(arena, (double)plan->bytes[i]));
    }
    TRY(nearest_that_fits(c, shape, &m, hint));
    return FAIL(ERR_ARG, "GPU %d (%s) has %s, %s of it in use; the plan needs %s in all (%s): %s",
                (int)c->run_gpu, p->gpu.name, text_bytes(have, (double)p->gpu.total_bytes),
                text_bytes(used, (double)p->context_bytes),
                text_bytes(need, (double)p->total_bytes), list, hint);
}
