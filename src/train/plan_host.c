/* plan_host: whether the memory that is planned is there, before the kernel finds that it is not
 * and ends this process, or another's. Arenas are mapped at once but taken page by page, so nothing
 * else would notice. Pages of data files are the page cache's, which gives way. */
#include "train/plan_host.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What there is is the kernel's estimate; a plan that is this little above it may fit. */
enum { MARGIN_PART = 20, HOST_BYTES = 64 };

size_t train_host_bytes(const EnginePlan *p)
{
    size_t sum = p->tables_bytes;
    for (int i = 0; i < ENGINE_ARENAS; i++) {
        if (!p->apart || i == ENGINE_PINNED) sum += p->bytes[i];
    }
    return sum;
}

static bool there(uint64_t bytes, uint64_t available)
{
    uint64_t margin = available / MARGIN_PART;
    return available > UINT64_MAX - margin || bytes <= available + margin;
}

bool train_host_has(uint64_t bytes)
{
    HostMemory m;
    host_memory("/proc", "/sys/fs/cgroup", &m);
    return bytes <= m.available_bytes - m.available_bytes / MARGIN_PART;
}

Status train_check_bytes(const char *what, size_t bytes, const HostMemory *m, const char *hint)
{
    char need[32], have[32];
    if (there(bytes, m->available_bytes)) return OK;
    return FAIL(ERR_ARG, "%s %s of memory, %s are available (%s): %s", what,
                text_bytes(need, (double)bytes), text_bytes(have, (double)m->available_bytes),
                m->limit, hint);
}

/* The change that costs least: smaller micro-batches, then recompute of every layer. */
Status train_nearest(const Config *c, const EngineShape *shape, TrainFits *fits, const void *state,
                     const char *larger, char out[TRAIN_HINT_BYTES])
{
    Config other = *c;
    EngineShape small = *shape;
    char text[32];
    for (int again = 0; again < 2; again++) {
        for (int64_t m = shape->micro_batch - (again == 0); m >= 1; m--) {
            size_t bytes = 0;
            EnginePlan plan;
            if (shape->batch % m != 0) continue;
            other.train_micro_batch = small.micro_batch = m;
            TRY(engine_plan(&other, ENGINE_TRAIN, &small, &plan));
            if (!fits(state, &plan, &bytes)) continue;
            (void)snprintf(out, TRAIN_HINT_BYTES, "train.micro_batch=%" PRId64 "%s fits with %s", m,
                           again ? " and recompute of all layers" : "",
                           text_bytes(text, (double)bytes));
            return OK;
        }
        other.recompute_layers.n = 0;
        for (int64_t i = 0; i < c->model_layers && i < CONFIG_LIST_MAX; i++) {
            other.recompute_layers.at[other.recompute_layers.n++] = i;
        }
    }
    (void)snprintf(out, TRAIN_HINT_BYTES,
                   "no train.micro_batch fits, even with recompute of all layers: take %s or a "
                   "smaller model",
                   larger);
    return OK;
}

/* What a rank takes and what it sees of its host. */
typedef struct Need {
    char host[HOST_BYTES];
    uint64_t planned;
    HostMemory memory;
} Need;

/* All ranks of a host, as if each were this one. */
typedef struct OnHost {
    uint64_t others, ranks, available; /* others: bytes beside the arenas */
} OnHost;

static bool fits_host(const void *state, const EnginePlan *plan, size_t *bytes)
{
    const OnHost *h = state;
    *bytes = h->others + h->ranks * train_host_bytes(plan);
    return there(*bytes, h->available);
}

static Status hint(const Config *c, const TrainPlan *p, uint64_t sum, uint64_t ranks,
                   const HostMemory *m, char out[TRAIN_HINT_BYTES])
{
    const uint64_t engines = ranks * train_host_bytes(&p->engine);
    const OnHost h = { sum > engines ? sum - engines : 0, ranks, m->available_bytes };
    if (!p->engine.apart && there(ranks * p->engine.bytes[ENGINE_RUN], h.available))
        return train_nearest(c, &p->shape, fits_host, &h, "a host with more memory", out);
    (void)snprintf(out, TRAIN_HINT_BYTES,
                   "take a host with more memory, more hosts or a smaller model");
    return OK;
}

/* The ranks of rank i's host. The first of them speaks for all. */
static Status check_host(const Config *c, const TrainPlan *p, const Need *all, int n, int i)
{
    Need sum = { .memory = all[i].memory };
    uint64_t ranks = 0;
    char what[HOST_BYTES + 64], text[TRAIN_HINT_BYTES];
    for (int r = 0; r < n; r++) {
        if (strcmp(all[r].host, all[i].host) != 0) continue;
        if (r < i) return OK;
        sum.planned += all[r].planned;
        if (all[r].memory.available_bytes < sum.memory.available_bytes) sum.memory = all[r].memory;
        ranks++;
    }
    if (there(sum.planned, sum.memory.available_bytes)) return OK;
    TRY(hint(c, p, sum.planned, ranks, &sum.memory, text));
    (void)snprintf(what, sizeof what, n > 1 ? "the %d ranks on %s plan" : "the plan takes",
                   (int)ranks, all[i].host);
    return train_check_bytes(what, sum.planned, &sum.memory, text);
}

Status train_check_host(const Config *c, const TrainPlan *p, Comm *world, const HostMemory *m,
                        Arena *a)
{
    Need mine = { .planned = p->total_bytes - p->mapped_bytes, .memory = *m }, *all = &mine;
    int n = world == NULL ? 1 : world->size;
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
