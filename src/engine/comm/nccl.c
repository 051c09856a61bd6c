/*
 * nccl: groups of GPUs, through NCCL, which is opened at run time. RCCL has the same functions under
 * the same names; gpu_libraries says which file is opened. mesh.c decides which ranks form a group.
 *
 * Each GPU group belongs to a host group with the same ranks. They use the host group to wait for each
 * other, to exchange colors and to share NCCL's id. A call is a launch on the group's stream. If the
 * stream changes, NCCL keeps the order of calls. Rings are set up when the group is made, pairs by
 * comm_connect, so that a captured step sets up nothing. Groups of one rank do not use NCCL: they copy,
 * or do nothing.
 *
 * The order of sums depends only on the mesh. The ring is the only algorithm, with the same number of
 * blocks for all sizes. NCCL chooses the protocol for a size from a table that depends only on the
 * links. No plugin may change it, and a captured call is the same as an eager one. NCCL's
 * configuration and environment variables (SETTINGS) are set once, before the first call. The user may
 * override all of them except NVLink multicast.
 *
 * A launch waits for its peers on the device, without a limit. So code that waits for a stream asks
 * comm_watch again and again. comm_watch fails if another rank has ended, NCCL reports an error, or
 * the deadline has passed. It then gives up all groups: ncclCommAbort ends their kernels, also
 * those that a graph starts later. ncclCommAbort waits until the graphs that use the group are
 * freed. So it runs in a thread of its own, which ends in comm_free at the latest.
 */
#include "engine/comm/host.h"
#include "engine/gpu/gpu.h"
#include "engine/host/library.h"

#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LEAVE_S = 10 }; /* how long comm_free waits for a group that was aborted */

/* NVLS would use NVLink multicast. ALGO and TUNER_PLUGIN could change the order of sums. Without
 * GRAPH_REGISTER a captured call takes the same path as an eager one. overwrite 1: replaces a value
 * that the user set. */
static const struct {
    const char *name, *value;
    int overwrite;
} SETTINGS[] = {
    { "NCCL_NVLS_ENABLE", "0", 1 },
    { "NCCL_ALGO", "Ring", 0 },
    { "NCCL_TUNER_PLUGIN", "none", 0 },
    { "NCCL_GRAPH_REGISTER", "0", 0 },
};

/* The second name is the one in RCCL. */
#define NCCL_CALLS(CALL)                                                                           \
    CALL(GetVersion, NULL)                                                                         \
    CALL(GetUniqueId, NULL)                                                                        \
    CALL(GetErrorString, NULL)                                                                     \
    CALL(GetLastError, NULL)                                                                       \
    CALL(CommInitRankConfig, NULL)                                                                 \
    CALL(CommDestroy, NULL)                                                                        \
    CALL(CommAbort, NULL)                                                                          \
    CALL(CommGetAsyncError, NULL)                                                                  \
    CALL(MemAlloc, NULL)                                                                           \
    CALL(MemFree, NULL)                                                                            \
    CALL(GroupStart, NULL)                                                                         \
    CALL(GroupEnd, NULL)                                                                           \
    CALL(AllReduce, NULL)                                                                          \
    CALL(ReduceScatter, NULL)                                                                      \
    CALL(AllGather, NULL)                                                                          \
    CALL(AlltoAll, "ncclAllToAll")                                                                 \
    CALL(Broadcast, NULL)                                                                          \
    CALL(Send, NULL)                                                                               \
    CALL(Recv, NULL)

typedef struct Nccl {
#define CALL(name, older) __typeof__ (&nccl##name)(name);
    NCCL_CALLS(CALL)
#undef CALL
} Nccl;

static void set_environment(void)
{
    for (size_t i = 0; i < sizeof SETTINGS / sizeof SETTINGS[0]; i++)
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): once, before anybody reads them */
        (void)setenv(SETTINGS[i].name, SETTINGS[i].value, SETTINGS[i].overwrite);
}

static int ask_version(const void *nccl)
{
    int version = 0;
    return ((const Nccl *)nccl)->GetVersion(&version) == ncclSuccess ? version : 0;
}

/* The environment is set once per process. Each rank fills its own table of functions. */
static Status open_library(Nccl *nccl)
{
    static const LibraryCall calls[] = {
#define CALL(name, older) { "nccl" #name, older, offsetof(Nccl, name), false },
        NCCL_CALLS(CALL)
#undef CALL
    };
    const Library library = {
        .file = gpu_libraries.collectives,
        .what = "collectives of GPUs",
        .advice = gpu_libraries.collectives_advice,
        .call = calls,
        .calls = sizeof calls / sizeof calls[0],
        .least = gpu_libraries.collectives_least,
        .version = ask_version,
    };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void *file = NULL;
    (void)pthread_once(&once, set_environment);
    return library_open(&library, nccl, &file);
}

/* Groups */

typedef struct Group Group;

/* What the groups of a rank share; lives in the arena of comm_nccl. */
typedef struct GpuWorld {
    Nccl lib; /* set if there is more than one rank */
    Comm *host;
    Group *first; /* list of the groups that are not freed yet */
    void *page;   /* device memory for dummy data of barriers and set-up; never read */
    bool over;    /* all groups are aborted */
    char why[COMM_WHY_BYTES];
} GpuWorld;

struct Group {
    Comm comm; /* what callers hold */
    GpuWorld *world;
    Comm *host;
    const Nccl *lib;
    ncclComm_t nccl; /* NULL: a group of one rank */
    GpuStream stream;
    int blocks;       /* blocks of each call */
    CommSpin *spin;   /* for kernels that wait for members; NULL: there is no window */
    const char *call; /* the last call, for messages; NULL: none so far */
    pthread_t leaver; /* runs ncclCommAbort, if `leaving` */
    bool leaving;
    Group *next;
};

static const CommTable table;

static Group *group_of(Comm *c) { return c->own; }

static Status nccl_status(const Group *g, const char *call, ncclResult_t r)
{
    if (r == ncclSuccess) return OK;
    return FAIL(ERR_COMM, "%s of group %s on a GPU: NCCL: %s: %s", call, g->comm.name,
                g->lib->GetErrorString(r), g->lib->GetLastError(NULL));
}

/* Adds the call and the group to a failure of the GPU's runtime. */
static Status runtime_status(const Group *g, const char *call, Status s)
{
    char why[512];
    if (s == OK) return OK;
    status_sentence(why, sizeof why);
    return FAIL(s, "%s of group %s: %s", call, g->comm.name, why);
}

static Status check_not_aborted(const Group *g, const char *call)
{
    if (!g->world->over) return OK;
    return FAIL(ERR_COMM, "%s of group %s: this rank has given up: %s", call, g->comm.name,
                g->world->why);
}

/* Remembers the call for the message of a timeout, which is found long after the launch
 * returned. */
static Status begin_call(Group *g, const char *call)
{
    TRY(check_not_aborted(g, call));
    g->call = call;
    return OK;
}

static Status nccl_copy(Comm *c, void *dst, const void *src, size_t bytes)
{
    Group *g = group_of(c);
    return runtime_status(g, g->call == NULL ? "copy" : g->call,
                          gpu_copy(dst, src, bytes, g->stream));
}

/* A collective in a group of one rank: the result is the input. */
static Status copy_to_self(Group *g, const Tensor *in, const Tensor *out)
{
    return in->data == out->data ? OK : nccl_copy(&g->comm, out->data, in->data, tensor_bytes(in));
}

/* comm.c lets only these four types through to reductions. */
static ncclDataType_t type_of(const Tensor *t)
{
    if (t->dtype == DTYPE_F32) return ncclFloat32;
    if (t->dtype == DTYPE_F16) return ncclFloat16;
    return t->dtype == DTYPE_BF16 ? ncclBfloat16 : ncclInt32;
}

static Status nccl_all_reduce(Comm *c, const Tensor *t, ReduceOp op)
{
    Group *g = group_of(c);
    TRY(begin_call(g, "all_reduce"));
    if (g->nccl == NULL) return OK;
    return nccl_status(g, g->call,
                       g->lib->AllReduce(t->data, t->data, (size_t)tensor_elems(t), type_of(t),
                                         op == REDUCE_MAX ? ncclMax : ncclSum, g->nccl, g->stream));
}

static Status nccl_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out)
{
    Group *g = group_of(c);
    TRY(begin_call(g, "reduce_scatter"));
    if (g->nccl == NULL) return copy_to_self(g, in, out);
    return nccl_status(g, g->call,
                       g->lib->ReduceScatter(in->data, out->data, (size_t)tensor_elems(out),
                                             type_of(in), ncclSum, g->nccl, g->stream));
}

/* Collectives that only move data use bytes, whatever the tensor's type. */

static Status nccl_all_gather(Comm *c, const Tensor *in, const Tensor *out)
{
    Group *g = group_of(c);
    TRY(begin_call(g, "all_gather"));
    if (g->nccl == NULL) return copy_to_self(g, in, out);
    return nccl_status(
        g, g->call,
        g->lib->AllGather(in->data, out->data, tensor_bytes(in), ncclInt8, g->nccl, g->stream));
}

static Status nccl_all_to_all(Comm *c, const Tensor *in, const Tensor *out)
{
    Group *g = group_of(c);
    TRY(begin_call(g, "all_to_all"));
    if (g->nccl == NULL) return copy_to_self(g, in, out);
    return nccl_status(g, g->call,
                       g->lib->AlltoAll(in->data, out->data, tensor_bytes(in) / (size_t)c->size,
                                        ncclInt8, g->nccl, g->stream));
}

static Status nccl_broadcast(Comm *c, const Tensor *t, int root)
{
    Group *g = group_of(c);
    TRY(begin_call(g, "broadcast"));
    if (g->nccl == NULL) return OK;
    return nccl_status(
        g, g->call,
        g->lib->Broadcast(t->data, t->data, tensor_bytes(t), ncclInt8, root, g->nccl, g->stream));
}

static Status nccl_barrier(Comm *c)
{
    Group *g = group_of(c);
    TRY(begin_call(g, "barrier"));
    if (g->nccl == NULL) return OK;
    return nccl_status(g, g->call,
                       g->lib->AllReduce(g->world->page, g->world->page, 1, ncclInt32, ncclSum,
                                         g->nccl, g->stream));
}

/* NCCL matches messages in stream order, so tags are not needed. */
static Status check_transfer(Group *g, const char *call, int peer, CommRequest *out)
{
    TRY(begin_call(g, call));
    *out = (CommRequest){ 0 };
    if (peer != g->comm.rank) return OK;
    return FAIL(ERR_UNSUPPORTED, "%s of group %s on a GPU: rank %d to itself: copy instead", call,
                g->comm.name, peer);
}

static Status nccl_send(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    Group *g = group_of(c);
    (void)tag;
    TRY(check_transfer(g, "send", peer, out));
    return nccl_status(g, g->call,
                       g->lib->Send(t->data, tensor_bytes(t), ncclInt8, peer, g->nccl, g->stream));
}

static Status nccl_recv(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out)
{
    Group *g = group_of(c);
    (void)tag;
    TRY(check_transfer(g, "recv", peer, out));
    return nccl_status(g, g->call,
                       g->lib->Recv(t->data, tensor_bytes(t), ncclInt8, peer, g->nccl, g->stream));
}

/* Making groups */

static Status share_id(const Group *g, ncclUniqueId *id)
{
    Tensor t = { id, DTYPE_I32, 1, { (int64_t)(sizeof *id / sizeof(int32_t)) } };
    if (g->comm.rank == 0) TRY(nccl_status(g, "start", g->lib->GetUniqueId(id)));
    TRY(comm_broadcast(g->host, &t, 0));
    /* ncclCommInitRankConfig waits for all ranks without a deadline, so make sure that all are here */
    return comm_barrier(g->host);
}

/* minCTAs = maxCTAs: NCCL would otherwise choose the number of blocks by size, and with it the
 * order of sums. */
static Status connect_ring(Group *g)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    config.blocking = 1;
    config.minCTAs = config.maxCTAs = g->blocks;
    config.collnetEnable = 0;
    config.commName = g->comm.name;
    TRY(share_id(g, &id));
    TRY(nccl_status(g, "start",
                    g->lib->CommInitRankConfig(&g->nccl, g->comm.size, id, g->comm.rank, &config)));
    TRY(nccl_barrier(&g->comm)); /* NCCL connects the ring in its first call */
    g->call = NULL;
    return OK;
}

/* The new group owns `host`, also if this fails. */
static Status group_make(GpuWorld *w, Comm *host, GpuStream stream, int blocks, Arena *a,
                         Comm **out)
{
    Group *g = NULL;
    Status s = ARENA_ZEROED(a, 1, &g);
    if (s == OK) {
        *g = (Group){ .comm = *host,
                      .world = w,
                      .lib = &w->lib,
                      .host = host,
                      .stream = stream,
                      .blocks = blocks,
                      .next = w->first };
        g->comm.table = &table;
        g->comm.own = g;
        if (host->size > 1) s = connect_ring(g);
    }
    if (s != OK) {
        if (g != NULL && g->nccl != NULL) (void)w->lib.CommAbort(g->nccl);
        if (host != w->host) comm_free(host);
        return s;
    }
    w->first = g;
    *out = &g->comm;
    return OK;
}

static Status nccl_split(Comm *c, int color, int key, const char *name, Arena *a, Comm **out)
{
    Group *g = group_of(c);
    Comm *host = NULL;
    TRY(check_not_aborted(g, "split"));
    TRY(comm_split(g->host, color, key, name, a, &host));
    *out = NULL;
    return host == NULL ? OK : group_make(g->world, host, g->stream, g->blocks, a, out);
}

static Status nccl_duplicate(Comm *c, void *stream, const char *name, Arena *a, Comm **out)
{
    Group *g = group_of(c);
    Comm *host = NULL;
    TRY(check_not_aborted(g, "a second group"));
    TRY(comm_duplicate(g->host, NULL, name, a, &host));
    return group_make(g->world, host, stream, COMM_FEW_BLOCKS, a, out);
}

Status comm_nccl(Comm *host, void *stream, int blocks, Arena *a, Comm **out)
{
    GpuWorld *w = NULL;
    TRY(ARENA_ZEROED(a, 1, &w));
    w->host = host;
    if (host->size > 1) {
        TRY(open_library(&w->lib));
        /* Two vectors of a number for each member, which connect_pairs exchanges, and one more. */
        size_t bytes = ((size_t)host->size * 2 + 1) * sizeof(int32_t);
        if (w->lib.MemAlloc(&w->page, bytes) != ncclSuccess)
            return FAIL(ERR_DEVICE, "no memory of the GPU for groups: %s",
                        w->lib.GetLastError(NULL));
    }
    Status s = group_make(w, host, stream, blocks, a, out);
    if (s != OK && w->page != NULL) (void)w->lib.MemFree(w->page);
    return s;
}

/* Ending groups */

/* Thread that aborts a group; the group may be freed before ncclCommAbort returns. */
static void *abort_group(void *group)
{
    const Group *g = group;
    (void)g->lib->CommAbort(g->nccl);
    return NULL;
}

/* Aborts all groups at once, because a kernel of one group may wait behind a kernel of another on
 * the device. */
static void give_up(GpuWorld *w, const char *why)
{
    if (w->over) return;
    w->over = true;
    (void)snprintf(w->why, sizeof w->why, "%s", why);
    for (Group *g = w->first; g != NULL; g = g->next) {
        if (g->nccl != NULL) g->leaving = pthread_create(&g->leaver, NULL, abort_group, g) == 0;
        if (g->spin != NULL) ((volatile CommSpin *)g->spin)->over = 1;
    }
}

/* Other ranks learn the reason through the host group, before this rank's kernels end. */
static void abort_all(Comm *c, const char *why)
{
    GpuWorld *w = group_of(c)->world;
    comm_abort(w->host, why);
    give_up(w, why);
}

/* Waits LEAVE_S for a group's thread. If a graph is never freed, the thread keeps running. */
static void await_leaver(Group *g)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVE_S;
    if (pthread_timedjoin_np(g->leaver, NULL, &until) != 0) (void)pthread_detach(g->leaver);
}

/* A group that was aborted but whose thread could not start is left alone: destroying it could wait
 * forever. */
static void group_free(Comm *c)
{
    Group *g = group_of(c), **at = &g->world->first;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    if (g->leaving)
        await_leaver(g);
    else if (g->nccl != NULL && !g->world->over)
        (void)g->lib->CommDestroy(g->nccl);
    if (g->spin != NULL) gpu_free_pinned(g->spin);
    if (g->host != g->world->host)
        comm_free(g->host);
    else if (g->world->page != NULL)
        (void)g->lib->MemFree(g->world->page);
}

/* Calls that only GPUs need */

static void nccl_set_stream(Comm *c, void *stream) { group_of(c)->stream = stream; }

static Status connect_pairs(Comm *c)
{
    Group *g = group_of(c);
    if (g->nccl == NULL) return OK;
    TRY(comm_barrier(g->host)); /* NCCL's set-up has no deadline; see share_id */
    Tensor in = { g->world->page, DTYPE_I32, 1, { c->size } };
    Tensor out = { (int32_t *)g->world->page + c->size, DTYPE_I32, 1, { c->size } };
    return nccl_all_to_all(c, &in, &out);
}

static Status nccl_batch_begin(Comm *c)
{
    Group *g = group_of(c);
    if (g->nccl == NULL) return OK;
    TRY(begin_call(g, "a batch of transfers"));
    return nccl_status(g, g->call, g->lib->GroupStart());
}

static Status nccl_batch_end(Comm *c)
{
    Group *g = group_of(c);
    return g->nccl == NULL ? OK : nccl_status(g, g->call, g->lib->GroupEnd());
}

/* Windows: threads of one process use each other's addresses; processes open each other's blocks. */

/* What each member sends to the others about its block. */
typedef struct Offer {
    CommHostName host;
    char gpu[GPU_BUS_ID_MAX];
    void *base;
    size_t bytes;
    int device, refused; /* refused: 0, or the runtime's error code for sharing with processes */
    GpuShare share;
} Offer;

static const Transport *transport_of(const Group *g) { return g->host->world->transport; }

static Status make_offer(const Group *g, void *base, size_t bytes, Offer *out)
{
    *out = (Offer){ .base = base, .bytes = bytes };
    if (gethostname(out->host.text, sizeof out->host.text - 1) != 0)
        return FAIL(ERR_IO, "rank %d cannot read its host's name", g->comm.rank);
    TRY(runtime_status(g, "window", gpu_current(&out->device)));
    TRY(runtime_status(g, "window", gpu_bus_id(out->device, out->gpu)));
    if (!transport_of(g)->one_memory) out->refused = gpu_share_make(base, &out->share);
    return OK;
}

/* 0, or the runtime's error code. Threads of one process share addresses and need only peer access.
 * Processes open a handle. */
static int map_block(const Group *g, const Offer *own, const Offer *peer, void **out)
{
    *out = peer->base;
    if (transport_of(g)->one_memory)
        return peer->device == own->device ? 0 : gpu_peer_open(peer->device);
    return peer->refused != 0 ? peer->refused : gpu_share_open(&peer->share, out);
}

static Status map_peer(const Group *g, const Offer *all, int r, void **out)
{
    static const char instead[] = "moe.exchange=alltoall needs no such access";
    const Offer *own = &all[g->comm.rank], *peer = &all[r];
    int me = g->comm.member[g->comm.rank], other = g->comm.member[r];
    *out = peer->base;
    if (peer->bytes != all[0].bytes) {
        return FAIL(ERR_SHAPE, "window of group %s: rank %d gives %zu bytes, rank 0 %zu",
                    g->comm.name, r, peer->bytes, all[0].bytes);
    }
    if (r == g->comm.rank) return OK;
    if (strcmp(own->host.text, peer->host.text) != 0) {
        return FAIL(ERR_UNSUPPORTED,
                    "window of group %s: rank %d is on host %s and rank %d on host %s, which share "
                    "no memory; %s",
                    g->comm.name, me, own->host.text, other, peer->host.text, instead);
    }
    int code = map_block(g, own, peer, out);
    if (code == 0) return OK;
    return FAIL(ERR_UNSUPPORTED,
                "window of group %s: GPU %s of rank %d has no access to GPU %s of rank %d (%s); %s",
                g->comm.name, own->gpu, me, peer->gpu, other, gpu_error_text(code), instead);
}

static Status nccl_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *w)
{
    const int64_t words = sizeof(Offer) / sizeof(int32_t);
    Group *g = group_of(c);
    Offer mine, *all = NULL;
    w->peer[0] = base;
    if (c->size == 1) return OK;
    TRY(check_not_aborted(g, "window"));
    TRY(make_offer(g, base, bytes, &mine));
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, c->size, &all));
    TRY(comm_all_gather(g->host, &(Tensor){ &mine, DTYPE_I32, 1, { words } },
                        &(Tensor){ all, DTYPE_I32, 1, { words * c->size } }));
    for (int r = 0; r < c->size; r++) TRY(map_peer(g, all, r, &w->peer[r]));
    arena_release(a, mark);
    if (g->spin == NULL) {
        TRY(runtime_status(g, "window", gpu_alloc_pinned(sizeof *g->spin, (void **)&g->spin)));
        *g->spin = (CommSpin){ 0 };
    }
    w->spin = g->spin;
    return OK;
}

/* All processes must have closed a block before its owner frees it. */
static void nccl_window_close(Comm *c, CommWindow *w)
{
    Group *g = group_of(c);
    if (transport_of(g)->one_memory) {
        transport_of(g)->part(g->host->world->self, c->member, c->size, w->timeout_s);
        return;
    }
    for (int r = 0; r < c->size; r++) {
        if (r != c->rank) gpu_share_close(w->peer[r]);
    }
    if (!g->world->over && comm_barrier(g->host) != OK) status_clear();
}

/* Watching */

/* "all_reduce of group ep with rank 1, 2; send of group pp with rank 4". */
static void say_calls(const GpuWorld *w, char *out, size_t out_bytes)
{
    size_t used = 0;
    (void)snprintf(out, out_bytes, "none");
    for (const Group *g = w->first; g != NULL; g = g->next) {
        if (g->nccl == NULL || g->call == NULL || used >= out_bytes) continue;
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%s of group %s with rank",
                                 used > 0 ? "; " : "", g->call, g->comm.name);
        for (int i = 0, said = 0; i < g->comm.size && used < out_bytes; i++) {
            if (i == g->comm.rank) continue;
            used += (size_t)snprintf(out + used, out_bytes - used, "%s %d", said++ > 0 ? "," : "",
                                     g->comm.member[i]);
        }
    }
}

static Status gpu_timed_out(const Group *g, double waited_s)
{
    const CommWorld *host = g->comm.world;
    char calls[COMM_WHY_BYTES / 2], place[HOST_PLACE_BYTES];
    say_calls(g->world, calls, sizeof calls);
    return FAIL(ERR_COMM,
                "rank %d waited %.1f s for its GPU (comm.timeout_s %g), where the last calls are "
                "%s%s",
                g->world->host->rank, waited_s, host->timeout_s, calls, host_place(host, place));
}

/* Has one of our kernels passed its deadline? */
static Status check_spin(const Group *g)
{
    char place[HOST_PLACE_BYTES];
    const CommWorld *host = g->comm.world;
    int lost = g->spin == NULL ? 0 : ((const volatile CommSpin *)g->spin)->lost;
    if (lost < 1 || lost > g->comm.size) return OK;
    return FAIL(ERR_COMM,
                "rank %d waited on its GPU for rank %d in an exchange of group %s (comm.timeout_s "
                "%g)%s",
                g->world->host->rank, g->comm.member[lost - 1], g->comm.name, host->timeout_s,
                host_place(host, place));
}

/* Errors that NCCL found by itself on the device or in the network, not in a call. */
static Status check_groups(const GpuWorld *w)
{
    for (const Group *g = w->first; g != NULL; g = g->next) {
        ncclResult_t e = ncclSuccess;
        if (g->nccl == NULL) continue;
        TRY(check_spin(g));
        TRY(nccl_status(g, "error found", g->lib->CommGetAsyncError(g->nccl, &e)));
        TRY(nccl_status(g, g->call == NULL ? "start" : g->call, e));
    }
    return OK;
}

/* After a failure every later call of this world fails with the same reason. */
static Status nccl_watch(Comm *c, double waited_s)
{
    Group *g = group_of(c);
    CommWorld *host = c->world;
    char why[COMM_WHY_BYTES];
    if (c->size == 1) return OK;
    TRY(check_not_aborted(g, "wait"));
    int by = host->transport->aborted(host->self, why);
    Status s = by < 0 ? check_groups(g->world) : FAIL(ERR_COMM, "rank %d failed: %s", by, why);
    if (s == OK && waited_s > host->timeout_s) s = gpu_timed_out(g, waited_s);
    if (s == OK) return OK;
    status_sentence(why, sizeof why);
    abort_all(c, why);
    return FAIL(ERR_COMM, "%s", why);
}

static const CommTable table = {
    .all_reduce = nccl_all_reduce,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .all_to_all = nccl_all_to_all,
    .broadcast = nccl_broadcast,
    .barrier = nccl_barrier,
    .send = nccl_send,
    .recv = nccl_recv,
    .test = comm_done_at_once,
    .wait = comm_done,
    .batch_begin = nccl_batch_begin,
    .batch_end = nccl_batch_end,
    .copy = nccl_copy,
    .window = nccl_window,
    .window_close = nccl_window_close,
    .connect = connect_pairs,
    .watch = nccl_watch,
    .set_stream = nccl_set_stream,
    .split = nccl_split,
    .duplicate = nccl_duplicate,
    .free = group_free,
    .abort = abort_all,
};
