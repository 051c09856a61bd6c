/* backend: where ops run. cpu runs them on the host, gpu on a GPU. count runs nothing: it adds up what
 * ops would cost, which is how plans are made. guard is a decorator: it passes ops on and checks every
 * output for NaN. What an op computes is defined in src/kernels, not here.
 *
 * Streams and graphs have their own tables. Backends without streams or graphs share tables that do
 * nothing, so callers need not ask which backend there is. */
#ifndef ENGINE_BACKEND_BACKEND_H
#define ENGINE_BACKEND_BACKEND_H

#include "engine/gpu/gpu.h"
#include "engine/host/cpu.h"
#include "kernels/core/op.h"

/* A point in a stream's work; made by event_new. */
typedef struct Event {
    GpuEvent gpu; /* on a GPU; else NULL */
    uint64_t ns;  /* on the host: the time of the last record */
} Event;

/* Orders work between lanes, and measures its time. On the host ops run inside the call, one after the
 * other: there is no stream (NULL) and nothing to wait for. */
typedef struct Streams {
    void *(*of_lane)(Exec *ex, Lane lane);
    Status (*add)(Exec *ex,
                  void **out); /* a new stream; the Exec owns it and `sync` waits for it */
    /* The Exec owns the event. timed: elapsed_s can be asked. */
    Status (*event_new)(Exec *ex, bool timed, Event *out);
    /* record marks this point of a stream; wait makes a stream wait for it. NULL: the stream of
     * ex->lane. */
    Status (*record)(Exec *ex, Event *event, void *stream);
    Status (*wait)(Exec *ex, const Event *event, void *stream);
    /* Like Backend.copy, on this stream (NULL: of ex->lane). Between pinned memory and the device it runs
     * beside other streams. */
    Status (*copy)(Exec *ex, void *dst, const void *src, size_t bytes, void *stream);
    /* Time between two records. Does not wait for them, so call it after a sync. */
    Status (*elapsed_s)(Exec *ex, const Event *from, const Event *to, double *out);
    /* Keeps the lane idle for `seconds`. What the host launches meanwhile then runs without gaps, which
     * benchmarks need. */
    Status (*delay)(Exec *ex, double seconds);
    /* Writes a clock in ns to `at` when all earlier work of the stream (NULL: of ex->lane) is done. On a
     * GPU the device writes it, and `at` is pinned memory. */
    Status (*stamp)(Exec *ex, uint64_t *at, void *stream);
} Streams;

/* Captures a step as a CUDA graph. Between begin and end nothing runs. Launches, fills, and copies from
 * and to pinned memory are recorded if they are on the compute lane, or on a stream that waited for an
 * event of the compute lane. The compute lane must wait for each such stream before `end`. A failed
 * capture returns an error and leaves no graph. A graph with collectives must be freed before their
 * groups. */
typedef struct Graphs {
    Status (*begin)(Exec *ex);
    Status (*end)(Exec *ex, Graph *out);
    Status (*launch)(Exec *ex, const Graph *g);
    void (*free)(Graph *g); /* safe on { 0 } */
} Graphs;

/* backend_gpu is not here: gpu_exec_init alone gives an Exec that backend. */
extern const Backend backend_cpu, backend_count;
extern const Decorator backend_guard;

/* The rows of a call's MoE buffers that are in use, for decorators that look at outputs. */
typedef struct LiveRows {
    const struct Rows *rows; /* NULL: the op has no such buffer */
    int32_t n, first;        /* first: offset of the rows in a pool */
} LiveRows;
/* How many are in use is known only on the device, so this reads it back. */
Status live_rows_read(Exec *ex, const OpDesc *op, const void *args, LiveRows *out);
/* The rows of an output that the call has written. */
Tensor live_rows_of(const OpPort *p, const Tensor *t, const LiveRows *live);

/* Makes an Exec that runs on the CPU. Ops take workspace from `scratch`; `arena` holds the tables of the
 * matrix library. Both must outlive the Exec. */
Status exec_init(Exec *ex, Arena *arena, Arena *scratch, int threads, CpuIsa isa);
/* Makes an Exec whose ops run on GPU `device`; `scratch` is device memory. Fails like gpu_info. */
Status gpu_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch);
/* Makes an Exec for a plan: op_run asks the kernels for their workspace sizes, and no device is touched.
 * Its bottom backend is backend_count with the properties of a GPU. */
Status gpu_exec_count(Exec *ex, Arena *arena, Arena *scratch);
void exec_free(Exec *ex); /* of any backend; safe on { 0 } */

/* About the device that ops run on. The PCI bus id ("0000:19:00.0") identifies it for NVML, even if this
 * process sees only some of the machine's GPUs. For the host: "" and 0 bytes. */
Status exec_bus_id(const Exec *ex, char out[GPU_BUS_ID_MAX]);
Status exec_used_bytes(const Exec *ex, size_t *out); /* in use now, by all processes */

/* Add a decorator in front of the others; remove the front one. The decorator must live until
 * exec_pop. At most EXEC_FRONT_MAX at a time (asserted). */
void exec_push(Exec *ex, const Decorator *decorator);
void exec_pop(Exec *ex);

/* Entries for backends without streams, graphs or asynchronous work (none.c). */
Status backend_sync_nothing(Exec *ex);
extern const Streams backend_no_streams;
extern const Graphs backend_no_graphs;
#define BACKEND_WITHOUT_DEVICE                                                                     \
    .sync = backend_sync_nothing, .streams = &backend_no_streams, .graphs = &backend_no_graphs

#endif
