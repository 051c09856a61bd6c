/* backend: where ops run. cpu runs them on the host, gpu on a GPU. count runs nothing: it adds up
 * what ops would cost, and is how a plan is made. guard is a decorator: it passes ops on and looks
 * for a NaN in every output.
 *
 * Streams and graphs are tables of their own. Backends without them share tables that do nothing, so
 * callers need not ask which backend there is. */
#ifndef BACKEND_BACKEND_H
#define BACKEND_BACKEND_H

#include "base/cpu.h"
#include "gpu/gpu.h"
#include "op/op.h"

/* Of event_new. */
typedef struct Event {
    GpuEvent gpu; /* NULL on the host, */
    uint64_t ns;  /* where it is the time of its last record */
} Event;

/* The order of work on lanes, and its time. On the host ops run where they are called, one after
 * the other: there is no stream (NULL), and nothing to wait for. */
typedef struct Streams {
    void *(*of_lane)(Exec *ex, Lane lane);
    Status (*add)(Exec *ex, void **out); /* one more, which the Exec owns and `sync` waits for */
    /* The Exec owns it; timed: for elapsed_s. */
    Status (*event_new)(Exec *ex, bool timed, Event *out);
    /* In a stream; NULL: that of ex->lane. */
    Status (*record)(Exec *ex, Event *event, void *stream);
    Status (*wait)(Exec *ex, const Event *event, void *stream);
    /* Between two records; waits for neither: call it after a sync. */
    Status (*elapsed_s)(Exec *ex, const Event *from, const Event *to, double *out);
    /* The lane stands still for so long, so that what the host launches meanwhile then runs without
     * gaps. */
    Status (*delay)(Exec *ex, double seconds);
    /* Writes ns of a clock to `at` when all before it in the stream (NULL: of ex->lane) is done; on
     * a GPU the device does, into pinned memory. */
    Status (*stamp)(Exec *ex, uint64_t *at, void *stream);
} Streams;

/* Between begin and end nothing runs: launches, copies from and to pinned memory and fills on the
 * compute lane become the graph, and those on streams that wait for an event of it; these must be
 * waited for by the compute lane before the end. A failed capture ends with an error and leaves
 * none. A graph with collectives goes before their groups. */
typedef struct Graphs {
    Status (*begin)(Exec *ex);
    Status (*end)(Exec *ex, Graph *out);
    Status (*launch)(Exec *ex, const Graph *g);
    void (*free)(Graph *g); /* safe on { 0 } */
} Graphs;

extern const Backend backend_cpu, backend_count;
extern const Decorator backend_guard;

/* An Exec over `scratch` that runs on the CPU; tables of the matrix library go into `arena`. */
Status exec_init(Exec *ex, Arena *arena, Arena *scratch, int threads, CpuIsa isa);
/* An Exec whose ops run on GPU `device`; `scratch` is an arena of device memory. Fails as
 * gpu_info. */
Status gpu_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch);
/* An Exec for a plan: op_run asks the kernels for their workspaces, and touches no device. Its
 * bottom backend is backend_count with the GPU's properties. */
Status gpu_exec_count(Exec *ex, Arena *arena, Arena *scratch);
void exec_free(Exec *ex); /* of any backend; safe on { 0 } */

/* Of the device that ops run on. The bus id ("0000:19:00.0") is its name for NVML, whatever subset of
 * the machine's GPUs this process may see. The host has none ("") and says 0 bytes. */
Status exec_bus_id(const Exec *ex, char out[GPU_BUS_ID_MAX]);
Status exec_used_bytes(const Exec *ex, size_t *out); /* in use now, by all processes */

/* Put a decorator in front; take the front one away. */
void exec_push(Exec *ex, const Decorator *decorator);
void exec_pop(Exec *ex);

/* Entries of a backend that lacks a notion, shared by all tables (none.c). */
Status backend_sync_nothing(Exec *ex);
extern const Streams backend_no_streams;
extern const Graphs backend_no_graphs;
#define BACKEND_WITHOUT_DEVICE                                                                     \
    .sync = backend_sync_nothing, .streams = &backend_no_streams, .graphs = &backend_no_graphs

#endif
