/*
 * comm: `bench comm`: collectives between ranks, called as a step calls them: NCCL on GPUs, our own
 * on the host. The exchange of tokens is in comm_exchange.c, timing and printing in comm_rows.c.
 *
 * A time is the median of 11 calls after 3 others, on the slowest rank. On a GPU calls follow each
 * other without a gap, each between two marks in the stream; then they run as one graph, as in a
 * captured step (the median of 5 launches, over the 11 calls in each). On the host a barrier comes
 * before each call.
 *
 * Bandwidths are those of NCCL-tests (doc/PERFORMANCE.md). Algorithm bandwidth is the bytes of a
 * call over its time. Bus bandwidth is that times 2 (n-1)/n for an all-reduce, (n-1)/n for a
 * reduce-scatter, an all-gather and an all-to-all, and 1 for a broadcast and for transfers. So it
 * compares with a link's rate for every number of ranks n. Bytes are those of the larger of input
 * and output.
 */
#include "comm/comm.h"

#include "engine/backend/backend.h"
#include "engine/step/agree.h"
#include "engine/step/engine_memory.h"
#include "hardware/hardware.h"
#include "kernels/core/op.h"
#include "kernels/exchange/exchange.h"

#include <stdio.h>

/* Tensors of a collective: the whole one, one rank's part of `other`, and another of the same
 * size. */
typedef struct Call {
    Tensor whole, part, other;
} Call;

static Status call_all_reduce(CommBench *b, void *state)
{
    return comm_all_reduce(b->mesh.group[GROUP_WORLD], &((Call *)state)->whole, REDUCE_SUM);
}

static Status call_reduce_scatter(CommBench *b, void *state)
{
    const Call *c = state;
    return comm_reduce_scatter(b->mesh.group[GROUP_WORLD], &c->whole, &c->part);
}

static Status call_all_gather(CommBench *b, void *state)
{
    const Call *c = state;
    return comm_all_gather(b->mesh.group[GROUP_WORLD], &c->part, &c->whole);
}

static Status call_all_to_all(CommBench *b, void *state)
{
    const Call *c = state;
    return comm_all_to_all(b->mesh.group[GROUP_WORLD], &c->whole, &c->other);
}

static Status call_broadcast(CommBench *b, void *state)
{
    return comm_broadcast(b->mesh.group[GROUP_WORLD], &((Call *)state)->whole, 0);
}

/* Each rank sends to the next and receives from the one before it. */
static Status call_send_recv(CommBench *b, void *state)
{
    const Call *c = state;
    Comm *w = b->mesh.group[GROUP_WORLD];
    CommRequest going = { 0 }, coming = { 0 };
    TRY(comm_batch_begin(w));
    Status s = comm_recv(w, &c->other, (w->rank + w->size - 1) % w->size, 0, &coming);
    if (s == OK) s = comm_send(w, &c->whole, (w->rank + 1) % w->size, 0, &going);
    Status end = comm_batch_end(w); /* after a failure, too */
    TRY(s);
    TRY(end);
    TRY(comm_wait(w, &coming));
    return comm_wait(w, &going);
}

static Status call_barrier(CommBench *b, void *state)
{
    return (void)state, comm_barrier(b->mesh.group[GROUP_WORLD]);
}

/* bus: how many times (n-1)/n of a call's bytes cross a link; 0: all bytes cross once. */
static const struct {
    const char *name;
    CommCall *call;
    int bus;
} collectives[] = {
    { "all_reduce", call_all_reduce, 2 }, { "reduce_scatter", call_reduce_scatter, 1 },
    { "all_gather", call_all_gather, 1 }, { "all_to_all", call_all_to_all, 1 },
    { "broadcast", call_broadcast, 0 },   { "send_recv", call_send_recv, 0 },
};

static const int64_t gpu_bytes[] = { 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30 },
                     host_bytes[] = { 64 << 10, 1 << 20, 16 << 20 };

/* ---- the ranks ---- */

/* Makes a mesh in which all ranks share matrices and experts, so that GROUP_TP and GROUP_EP are the world. Connections are
 * opened here, because the first call of a group would otherwise include them. */
static Status join_ranks(CommBench *b)
{
    const Config *c = b->r.config;
    int ranks = b->host->size, per_host = (int)c->mesh_ranks_per_host;
    MeshShape shape = { .pp = 1, .replicate = 1, .shard = 1, .ep = ranks, .cp = 1, .tp = ranks };
    Comm *world = b->host;
    if (per_host > 0 && ranks % per_host != 0)
        return FAIL(ERR_ARG, "mesh.ranks_per_host %d does not divide the %d ranks", per_host,
                    ranks);
    if (per_host == 0) TRY(comm_hosts(b->host, &b->r.tables, &per_host));
    TRY(mesh_inside(ranks, per_host, &shape.inside));
    if (b->r.ex.backend->apart)
        TRY(comm_nccl(b->host, b->r.ex.backend->streams->of_lane(&b->r.ex, LANE_COMPUTE),
                      COMM_BLOCKS, &b->r.tables, &world));
    b->mesh.group[GROUP_WORLD] = world;
    TRY(mesh_make(world, &shape, true, &b->r.tables, &b->mesh));
    for (MeshGroup g = GROUP_WORLD; g < GROUP_MADE; g++) {
        if (b->mesh.group[g]->size > 1) TRY(comm_connect(b->mesh.group[g]));
    }
    return OK;
}

/* The GPU's link rate comes from its data sheet, if it is a known GPU. */
static Status open_ranks(CommBench *b, const Config *c)
{
    bool gpu = engine_wants_gpu(c);
    GpuInfo info;
    TRY(bench_runner_open(&b->r, c));
    b->type = config_type(c);
    b->r.ex.mesh = &b->mesh;
    TRY(join_ranks(b));
    if (!gpu) return OK;
    TRY(gpu_info((int)c->run_gpu, &info));
    return hardware_sheet_link(info.name, b->host->size, &b->link);
}

/* The mesh's groups are closed before the world that they were split from. */
static void close_ranks(CommBench *b)
{
    Comm *world = b->mesh.group[GROUP_WORLD];
    bench_runner_release(&b->r);
    mesh_free(&b->mesh);
    if (world != b->host) comm_free(world);
    bench_runner_close(&b->r);
}

/* The first line, or JSON object: the machine, the ranks, and the link that shares refer to. */
static Status print_head(CommBench *b)
{
    char machine[GPU_NAME_MAX], link[64] = "";
    int ranks = b->host->size;
    const char *type = dtype_name(b->type);
    TRY(bench_machine(b->r.config, machine));
    if (b->options->json)
        return text_json(b->out,
                         "{\"kind\":\"machine\",\"name\":%s,\"ranks\":%d,\"ranks_per_host\":%d,"
                         "\"compute\":%s,\"link_bytes_s\":%g}\n",
                         machine, ranks, b->mesh.shape.inside, type, b->link);
    if (b->link > 0)
        (void)snprintf(link, sizeof link, "; link: %g GB/s of the data sheet", b->link / 1e9);
    TRY(text_printf(b->out,
                    "%d ranks, %d a host, %s, %s%s; algorithm and bus bandwidth as NCCL-tests "
                    "define them\n",
                    ranks, b->mesh.shape.inside, machine, type, link));
    return text_printf(b->out, "%-20s %-16s %-8s %5s %11s %11s %10s %10s %7s\n", "call", "size",
                       "routing", "room", "us", "us in graph", "alg GB/s", "bus GB/s", "link %");
}

/* ---- collectives ---- */

static Status call_gather_rows(CommBench *b, void *state)
{
    const Call *c = state;
    return exchange_collective(&b->r.ex, (Collective){ .in = c->part,
                                                       .out = c->whole,
                                                       .kind = COMM_ALL_GATHER,
                                                       .axis = AXIS_TP,
                                                       .ranks = b->host->size });
}

static Status call_add_rows(CommBench *b, void *state)
{
    const Call *c = state;
    return exchange_collective(&b->r.ex, (Collective){ .in = c->whole,
                                                       .out = c->part,
                                                       .kind = COMM_REDUCE_SCATTER,
                                                       .axis = AXIS_TP,
                                                       .ranks = b->host->size });
}

/* Gathers and reduce-scatters of rows of tp by loads from the peers' memory (kernels/exchange/exchange_rows.cu). */
static Status time_rows(CommBench *b, Call *c, const char *size)
{
    const double whole = (double)tensor_bytes(&c->whole), n = b->host->size;
    CommRow row = {
        .shape = size, .routing = "", .bytes = whole, .bus_bytes = whole * (n - 1) / n
    };
    CommWindow w = { 0 };
    if (!b->r.ex.backend->apart) return OK;
    Status s = agree_status(b->host, exchange_rows_map(&b->r.ex, b->r.block.base,
                                                       b->r.block.cap_bytes, 0, &b->r.tables, &w));
    if (s != OK) return comm_bench_print_why(b, "rows, direct", size);
    TRY(exchange_rows_start(&b->r.ex, &w));
    row.call = "gather, direct";
    s = comm_bench_row(b, call_gather_rows, c, row);
    row.call = "add, direct";
    if (s == OK) s = comm_bench_row(b, call_add_rows, c, row);
    exchange_close(&b->r.ex);
    return s;
}

/* Times every collective on about `bytes` bytes. Ranks that lack memory for it print why
 * instead. */
static Status time_size(CommBench *b, int64_t bytes)
{
    int64_t n = b->host->size, part = bytes / n / (int64_t)dtype_bytes(b->type);
    double others = (double)(n - 1) / (double)n;
    char size[32];
    Call c;
    if (part < 1) part = 1;
    text_bytes(size, (double)bytes);
    size_t whole = (size_t)(part * n) * dtype_bytes(b->type);
    Tensor flags; /* of time_rows: at the front of the block */
    const size_t flags_bytes = exchange_kinds[EXCHANGE_DIRECT]->header_bytes;
    Status s = comm_bench_alloc(b, flags_bytes + 2 * whole + (size_t)4 * ARENA_ALIGN, 1);
    if (s == ERR_MEMORY) return comm_bench_print_why(b, "collectives", size);
    TRY(s);
    TRY(tensor_new1(&b->r.block, DTYPE_I32, (int64_t)(flags_bytes / sizeof(int32_t)), &flags));
    TRY(tensor_new2(&b->r.block, b->type, n, part, &c.whole));
    TRY(tensor_new2(&b->r.block, b->type, n, part, &c.other));
    c.part = tensor_rows(&c.other, b->host->rank, 1);
    TRY(b->r.ex.backend->fill(&b->r.ex, c.whole.data, 0, whole));
    TRY(b->r.ex.backend->fill(&b->r.ex, c.other.data, 0, whole));
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives && s == OK; i++) {
        double shares = collectives[i].bus == 0 ? 1 : collectives[i].bus * others;
        s = comm_bench_row(b, collectives[i].call, &c,
                           (CommRow){ .call = collectives[i].name,
                                      .shape = size,
                                      .routing = "",
                                      .bytes = (double)whole,
                                      .bus_bytes = shares * (double)whole });
    }
    if (s == OK) s = time_rows(b, &c, size);
    TRY(s);
    bench_runner_release(&b->r);
    return OK;
}

static Status time_collectives(CommBench *b)
{
    bool gpu = b->r.ex.backend->apart;
    size_t n = gpu ? sizeof gpu_bytes / sizeof *gpu_bytes : sizeof host_bytes / sizeof *host_bytes;
    for (size_t i = 0; i < n; i++)
        TRY(time_size(b, (gpu ? gpu_bytes : host_bytes)[i] / b->options->shrink));
    return comm_bench_row(b, call_barrier, NULL,
                          (CommRow){ .call = "barrier", .shape = "", .routing = "" });
}

Status bench_comm(const Config *c, Comm *world, const BenchComm *options, Text *out)
{
    CommBench b = { .options = options, .host = world, .out = out };
    if (world == NULL || world->size < 2)
        return FAIL(ERR_ARG, "bench comm: it needs two ranks or more: give --ranks, or "
                             "start it with mpirun");
    Status s = open_ranks(&b, c);
    if (s == OK) s = print_head(&b);
    if (s == OK && options->only != BENCH_COMM_EXCHANGE) s = time_collectives(&b);
    if (s == OK && options->only != BENCH_COMM_COLLECTIVES) s = comm_bench_exchanges(&b);
    if (s != OK) bench_abort_ranks(world);
    close_ranks(&b);
    return s;
}
