/* comm: collectives and the exchange of tokens between ranks, as a step calls them: over NCCL on
 * GPUs, over our own on the host.
 *
 * A time is the median of 11 calls after 3, of the slowest rank. On a GPU they follow each other
 * without a gap, each between two marks in the stream, and then again as one graph, as a captured
 * step runs them (the median of 5 launches over the 11 calls in each). On the host a barrier comes
 * before each. Bandwidths are those of NCCL-tests (doc/PERFORMANCE.md): algorithm: the bytes of a
 * call over its time; bus: that times 2 (n-1)/n for an all-reduce, (n-1)/n for a reduce-scatter, an
 * all-gather and an all-to-all, 1 for a broadcast and for transfers, so that it compares to a link's
 * rate whatever the number of ranks n. Bytes are those of the larger of input and output. */
#include "bench/comm.h"

#include "backend/backend.h"
#include "plan/hardware.h"
#include "train/agree.h"
#include "train/engine_memory.h"

#include <stdio.h>

static const double DELAY_S = 0.02;
static const size_t LEFT_BYTES = (size_t)1 << 30; /* of a GPU, for NCCL, graphs and kernels */

/* Tensors of a collective: the whole, one rank's part of it, and another whole. */
typedef struct Call {
    Tensor whole, part, other;
} Call;

static Status all_reduce(CommBench *b, void *state)
{
    return comm_all_reduce(b->mesh.group[GROUP_WORLD], &((Call *)state)->whole, REDUCE_SUM);
}

static Status reduce_scatter(CommBench *b, void *state)
{
    const Call *c = state;
    return comm_reduce_scatter(b->mesh.group[GROUP_WORLD], &c->whole, &c->part);
}

static Status all_gather(CommBench *b, void *state)
{
    const Call *c = state;
    return comm_all_gather(b->mesh.group[GROUP_WORLD], &c->part, &c->whole);
}

static Status all_to_all(CommBench *b, void *state)
{
    const Call *c = state;
    return comm_all_to_all(b->mesh.group[GROUP_WORLD], &c->whole, &c->other);
}

static Status broadcast(CommBench *b, void *state)
{
    return comm_broadcast(b->mesh.group[GROUP_WORLD], &((Call *)state)->whole, 0);
}

/* Each rank sends to the next and receives from the one before it. */
static Status send_recv(CommBench *b, void *state)
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

static Status barrier(CommBench *b, void *state)
{
    return (void)state, comm_barrier(b->mesh.group[GROUP_WORLD]);
}

/* bus: so many times (n-1)/n of a call's bytes; 0: once all of them. */
static const struct {
    const char *name;
    CommCall *call;
    int bus;
} collectives[] = {
    { "all_reduce", all_reduce, 2 }, { "reduce_scatter", reduce_scatter, 1 },
    { "all_gather", all_gather, 1 }, { "all_to_all", all_to_all, 1 },
    { "broadcast", broadcast, 0 },   { "send_recv", send_recv, 0 },
};

static const int64_t gpu_bytes[] = { 64 << 10, 1 << 20, 16 << 20, 256 << 20, 1 << 30 },
                     host_bytes[] = { 64 << 10, 1 << 20, 16 << 20 };

/* ---- the ranks ---- */

static Status join(CommBench *b)
{
    const Config *c = b->config;
    int ranks = b->host->size, per_host = (int)c->mesh_ranks_per_host;
    MeshShape shape = { .pp = 1, .replicate = 1, .shard = ranks, .ep = ranks, .cp = 1 };
    Comm *world = b->host;
    if (per_host > 0 && ranks % per_host != 0)
        return FAIL(ERR_ARG, "mesh.ranks_per_host %d does not divide the %d ranks", per_host,
                    ranks);
    if (per_host == 0) TRY(comm_hosts(b->host, &b->tables, &per_host));
    TRY(mesh_inside(ranks, per_host, &shape.inside));
    if (b->ex.backend->apart)
        TRY(comm_nccl(b->host, b->ex.backend->streams->of_lane(&b->ex, LANE_COMPUTE), &b->tables,
                      &world));
    b->mesh.group[GROUP_WORLD] = world;
    TRY(mesh_make(world, &shape, true, &b->tables, &b->mesh));
    for (MeshGroup g = GROUP_WORLD; g < GROUP_MADE; g++) {
        if (b->mesh.group[g]->size > 1) TRY(comm_connect(b->mesh.group[g]));
    }
    return OK;
}

static Status open_ranks(CommBench *b)
{
    const Config *c = b->config;
    bool gpu = engine_wants_gpu(c);
    GpuInfo info;
    TRY(arena_init(&b->tables, "tables", MEM_HOST, (size_t)16 << 30));
    TRY(gpu ? gpu_exec_init(&b->ex, (int)c->run_gpu, &b->tables, &b->scratch)
            : exec_init(&b->ex, &b->tables, &b->scratch, train_threads(c), (CpuIsa)c->run_cpu_isa));
    for (int i = 0; i < 2 * COMM_RUNS; i++)
        TRY(b->ex.backend->streams->event_new(&b->ex, true, &b->mark[i]));
    b->type = c->run_compute == COMPUTE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    b->ex.mesh = &b->mesh;
    TRY(join(b));
    if (!gpu) return OK;
    TRY(gpu_info((int)c->run_gpu, &info));
    return hardware_sheet_link(info.name, b->host->size, &b->link);
}

static void close_ranks(CommBench *b)
{
    Comm *world = b->mesh.group[GROUP_WORLD];
    comm_bench_give(b);
    mesh_free(&b->mesh);
    if (world != b->host) comm_free(world);
    exec_free(&b->ex);
    arena_free(&b->tables);
}

/* Asked beforehand: a failed allocation would be the next launch's error. */
static Status check_room(const CommBench *b, size_t bytes)
{
    char need[32], there[32];
    GpuInfo info;
    if (!b->ex.backend->apart) return OK;
    TRY(gpu_info((int)b->config->run_gpu, &info));
    if (bytes + LEFT_BYTES <= info.free_bytes) return OK;
    return FAIL(ERR_MEMORY, "%s do not fit: GPU %d has %s free", text_bytes(need, (double)bytes),
                (int)b->config->run_gpu, text_bytes(there, (double)info.free_bytes));
}

void comm_bench_give(CommBench *b)
{
    bench_give(&b->ex, &b->block);
    bench_give(&b->ex, &b->scratch);
}

Status comm_bench_take(CommBench *b, size_t block_bytes, size_t scratch_bytes)
{
    Status s = check_room(b, block_bytes + scratch_bytes);
    if (s == OK) s = bench_take(&b->ex, &b->block, "block", block_bytes);
    if (s == OK) s = bench_take(&b->ex, &b->scratch, "scratch", scratch_bytes);
    s = agree_status(b->host, s);
    if (s != OK) comm_bench_give(b);
    return s;
}

/* ---- time ---- */

/* Of the slowest rank. */
static Status slowest(CommBench *b, double *seconds)
{
    float most = (float)*seconds;
    TRY(comm_all_reduce(b->host, &(Tensor){ &most, DTYPE_F32, 1, { 1 } }, REDUCE_MAX));
    *seconds = (double)most;
    return OK;
}

/* Waits; the median between the first n pairs of marks. */
static Status median(CommBench *b, int64_t n, double *out)
{
    double seconds[COMM_RUNS];
    TRY(b->ex.backend->sync(&b->ex));
    for (int64_t i = 0; i < n; i++)
        TRY(b->ex.backend->streams->elapsed_s(&b->ex, &b->mark[2 * i], &b->mark[2 * i + 1],
                                              &seconds[i]));
    bench_sort(seconds, n);
    *out = seconds[n / 2];
    return OK;
}

static Status time_calls(CommBench *b, CommCall *call, void *state, double *out)
{
    const Streams *streams = b->ex.backend->streams;
    bool host = !b->ex.backend->async;
    TRY(call(b, state)); /* loads kernels */
    TRY(b->ex.backend->sync(&b->ex));
    TRY(comm_barrier(b->host));
    TRY(streams->delay(&b->ex, DELAY_S));
    for (int64_t i = -COMM_WARM_UP; i < COMM_RUNS; i++) {
        if (host) TRY(comm_barrier(b->host));
        if (i >= 0) TRY(streams->record(&b->ex, &b->mark[2 * i], NULL));
        TRY(call(b, state));
        if (i >= 0) TRY(streams->record(&b->ex, &b->mark[2 * i + 1], NULL));
    }
    TRY(median(b, COMM_RUNS, out));
    return slowest(b, out);
}

static Status launch_graph(CommBench *b, const Graph *g, double *out)
{
    const Streams *streams = b->ex.backend->streams;
    for (int64_t i = -1; i < COMM_GRAPH_RUNS; i++) {
        Event *mark = &b->mark[2 * (i < 0 ? 0 : i)];
        TRY(streams->record(&b->ex, &mark[0], NULL));
        TRY(b->ex.backend->graphs->launch(&b->ex, g));
        TRY(streams->record(&b->ex, &mark[1], NULL));
    }
    TRY(median(b, COMM_GRAPH_RUNS, out));
    *out /= COMM_RUNS;
    return OK;
}

static Status time_graph(CommBench *b, CommCall *call, void *state, double *out)
{
    const Graphs *graphs = b->ex.backend->graphs;
    Graph g = { 0 };
    *out = 0;
    if (!b->ex.backend->captures) return OK;
    TRY(graphs->begin(&b->ex));
    Status s = OK;
    for (int i = 0; i < COMM_RUNS && s == OK; i++) s = call(b, state);
    Status end = graphs->end(&b->ex, &g);
    if (s == OK) s = end;
    if (s == OK) s = launch_graph(b, &g, out);
    if (g.exec != NULL) graphs->free(&g);
    TRY(s);
    return slowest(b, out);
}

/* ---- what is told ---- */

static Status print_row(const CommBench *b, const CommRow *r)
{
    char graph[32] = "", share[32] = "", room[32] = "";
    double s = r->seconds, bus = r->bus_bytes / s;
    if (r->graph_s > 0) (void)snprintf(graph, sizeof graph, "%.1f", r->graph_s * 1e6);
    if (b->link > 0 && r->bytes > 0)
        (void)snprintf(share, sizeof share, "%.1f", 100 * bus / b->link);
    if (r->room > 0) (void)snprintf(room, sizeof room, "%.2f", r->room);
    return text_printf(b->out, "%-20s %-16s %-8s %5s %11.1f %11s %10.3f %10.3f %7s\n", r->call,
                       r->shape, r->routing, room, s * 1e6, graph, r->bytes / s / 1e9, bus / 1e9,
                       share);
}

static Status print_json(const CommBench *b, const CommRow *r)
{
    double s = r->seconds;
    TRY(text_json(b->out, "{\"kind\":\"row\",\"call\":%s,\"shape\":%s,\"routing\":%s,\"room\":%g",
                  r->call, r->shape, r->routing, r->room));
    TRY(text_json(b->out, ",\"bytes\":%g,\"bus_bytes\":%g,\"seconds\":%g", r->bytes, r->bus_bytes,
                  s));
    if (r->graph_s > 0) TRY(text_json(b->out, ",\"graph_s\":%g", r->graph_s));
    if (b->link > 0) TRY(text_json(b->out, ",\"link_share\":%g", r->bus_bytes / s / b->link));
    return text_json(b->out, "}\n");
}

Status comm_bench_row(CommBench *b, CommCall *call, void *state, CommRow row)
{
    TRY(time_calls(b, call, state, &row.seconds));
    TRY(time_graph(b, call, state, &row.graph_s));
    return b->options->json ? print_json(b, &row) : print_row(b, &row);
}

Status comm_bench_why(CommBench *b, const char *call, const char *shape)
{
    char why[1024];
    status_sentence(why, sizeof why);
    status_clear();
    if (!b->options->json) return text_printf(b->out, "%-20s %-16s %s\n", call, shape, why);
    return text_json(b->out, "{\"kind\":\"none\",\"call\":%s,\"shape\":%s,\"why\":%s}\n", call,
                     shape, why);
}

static Status print_head(CommBench *b)
{
    char machine[GPU_NAME_MAX], link[64] = "";
    int ranks = b->host->size;
    const char *type = dtype_name(b->type);
    TRY(bench_machine(b->config, machine));
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

static Status run_size(CommBench *b, int64_t bytes)
{
    int64_t n = b->host->size, part = bytes / n / (int64_t)dtype_bytes(b->type);
    double others = (double)(n - 1) / (double)n;
    char size[32];
    Call c;
    if (part < 1) part = 1;
    text_bytes(size, (double)bytes);
    size_t whole = (size_t)(part * n) * dtype_bytes(b->type);
    Status s = comm_bench_take(b, 2 * whole + (size_t)4 * ARENA_ALIGN, 1);
    if (s == ERR_MEMORY) return comm_bench_why(b, "collectives", size);
    TRY(s);
    TRY(tensor_new2(&b->block, b->type, n, part, &c.whole));
    TRY(tensor_new2(&b->block, b->type, n, part, &c.other));
    c.part = tensor_rows(&c.other, b->host->rank, 1);
    TRY(b->ex.backend->fill(&b->ex, c.whole.data, 0, whole));
    TRY(b->ex.backend->fill(&b->ex, c.other.data, 0, whole));
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives && s == OK; i++) {
        double shares = collectives[i].bus == 0 ? 1 : collectives[i].bus * others;
        s = comm_bench_row(b, collectives[i].call, &c,
                           (CommRow){ .call = collectives[i].name,
                                      .shape = size,
                                      .routing = "",
                                      .bytes = (double)whole,
                                      .bus_bytes = shares * (double)whole });
    }
    TRY(s);
    comm_bench_give(b);
    return OK;
}

static Status run_collectives(CommBench *b)
{
    bool gpu = b->ex.backend->apart;
    size_t n = gpu ? sizeof gpu_bytes / sizeof *gpu_bytes : sizeof host_bytes / sizeof *host_bytes;
    for (size_t i = 0; i < n; i++)
        TRY(run_size(b, (gpu ? gpu_bytes : host_bytes)[i] / b->options->shrink));
    return comm_bench_row(b, barrier, NULL,
                          (CommRow){ .call = "barrier", .shape = "", .routing = "" });
}

Status bench_comm(const Config *c, Comm *world, const BenchComm *options, Text *out)
{
    CommBench b = { .config = c, .options = options, .host = world, .out = out };
    if (world == NULL || world->size < 2)
        return FAIL(ERR_ARG, "bench comm: communication takes two ranks or more: give --ranks, or "
                             "start it with mpirun");
    Status s = open_ranks(&b);
    if (s == OK) s = print_head(&b);
    if (s == OK && options->only != BENCH_COMM_EXCHANGE) s = run_collectives(&b);
    if (s == OK && options->only != BENCH_COMM_COLLECTIVES) s = comm_bench_exchanges(&b);
    if (s != OK) bench_end_others(world);
    close_ranks(&b);
    return s;
}
