/* comm_rows: the rows of `bench comm`: memory that either all ranks get or none, the time of a call
 * as single launches and as a graph, and printing. The calls are in comm.c and comm_exchange.c. */
#include "comm/comm.h"

#include "engine/backend/backend.h"
#include "engine/step/agree.h"

#include <stdio.h>

enum { WARM_UP = 3, RUNS = 11, GRAPH_RUNS = 5 };

static const size_t LEFT_BYTES = (size_t)1 << 30; /* left free on a GPU for NCCL, graphs, kernels */

/* ---- memory ---- */

/* Checks before the allocation: a failed one would be reported by the next launch. */
static Status check_free_memory(const CommBench *b, size_t bytes)
{
    char need[32], there[32];
    GpuInfo info;
    if (!b->r.ex.backend->apart) return OK;
    TRY(gpu_info((int)b->r.config->run_gpu, &info));
    if (bytes + LEFT_BYTES <= info.free_bytes) return OK;
    return FAIL(ERR_MEMORY, "%s do not fit: GPU %d has %s free", text_bytes(need, (double)bytes),
                (int)b->r.config->run_gpu, text_bytes(there, (double)info.free_bytes));
}

/* Collective: if one rank lacks memory all of them give theirs back, so none waits in the next
 * call. */
Status comm_bench_alloc(CommBench *b, size_t block_bytes, size_t scratch_bytes)
{
    Status s = check_free_memory(b, block_bytes + scratch_bytes);
    if (s == OK) s = bench_runner_alloc(&b->r, block_bytes, scratch_bytes);
    s = agree_status(b->host, s);
    if (s != OK) bench_runner_release(&b->r);
    return s;
}

/* ---- time ---- */

/* What the timing loop calls: one call with its state, and the graph of several. */
typedef struct Timed {
    CommBench *b;
    CommCall *call;
    void *state;
    Graph graph;
} Timed;

static Status timed_call(void *state, int64_t i)
{
    const Timed *t = state;
    return (void)i, t->call(t->b, t->state);
}

static Status launch_graph(void *state, int64_t i)
{
    const Timed *t = state;
    return (void)i, t->b->r.ex.backend->graphs->launch(&t->b->r.ex, &t->graph);
}

/* The median time of the loop's calls, on the slowest rank. All ranks return the same. */
static Status time_slowest(CommBench *b, const BenchLoop *loop, double *seconds)
{
    TRY(bench_runner_time(&b->r, loop, seconds));
    float most = (float)*seconds;
    TRY(comm_all_reduce(b->host, &(Tensor){ &most, DTYPE_F32, 1, { 1 } }, REDUCE_MAX));
    *seconds = (double)most;
    return OK;
}

/* The time of a call within a graph of RUNS calls, as a captured step runs it. *out 0: the backend
 * has no graphs. A capture that began must end, even after a failure. */
static Status time_graph(Timed *t, double *out)
{
    Exec *ex = &t->b->r.ex;
    const Graphs *graphs = ex->backend->graphs;
    *out = 0;
    if (!ex->backend->captures) return OK;
    TRY(graphs->begin(ex));
    Status s = OK;
    for (int i = 0; i < RUNS && s == OK; i++) s = timed_call(t, i);
    Status end = graphs->end(ex, &t->graph);
    if (s == OK) s = end;
    const BenchLoop loop = { launch_graph, t, 1, GRAPH_RUNS, t->b->host };
    if (s == OK) s = time_slowest(t->b, &loop, out);
    if (t->graph.exec != NULL) graphs->free(&t->graph);
    *out /= RUNS;
    return s;
}

/* ---- printing ---- */

/* An empty column means that the figure does not exist: no graph, no known link, no room. */
static Status print_text(const CommBench *b, const CommRow *r)
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

/* The first call is not timed: it loads kernels and opens connections. */
Status comm_bench_row(CommBench *b, CommCall *call, void *state, CommRow row)
{
    Timed t = { .b = b, .call = call, .state = state };
    const BenchLoop loop = { timed_call, &t, WARM_UP, RUNS, b->host };
    TRY(call(b, state));
    TRY(time_slowest(b, &loop, &row.seconds));
    TRY(time_graph(&t, &row.graph_s));
    return b->options->json ? print_json(b, &row) : print_text(b, &row);
}

/* Takes the sentence of the last failure as the row's text and clears it: a shape that does not run
 * is no error. */
Status comm_bench_print_why(CommBench *b, const char *call, const char *shape)
{
    char why[1024];
    status_sentence(why, sizeof why);
    status_clear();
    if (!b->options->json) return text_printf(b->out, "%-20s %-16s %s\n", call, shape, why);
    return text_json(b->out, "{\"kind\":\"none\",\"call\":%s,\"shape\":%s,\"why\":%s}\n", call,
                     shape, why);
}
