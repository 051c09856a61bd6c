/* cuda: the GPU as a backend. A lane is a stream: ops, copies, fills and events go to that of
 * ex->lane, in order; events order lanes. Nothing waits but `sync`, which waits for all lanes.
 * Where other ranks are (ex->mesh), it waits with the deadline of the world, and says for whom.
 * Ops take their workspace from ex->scratch, so each lane wants one of its own; attention goes to
 * the compute lane, whose stream cuDNN's handle has.
 *
 * Several Execs in a process: a thread and a device each. The device is current for the thread that
 * called cuda_exec_init, and it alone uses the Exec.
 *
 * Device and pinned memory are taken once, by whoever makes the arenas. `copy` works in every
 * direction. In a build without CUDA the functions are there and say that the build has none. */
#ifndef BACKEND_CUDA_H
#define BACKEND_CUDA_H

#include "op/op.h"

#include <stdbool.h>

enum { CUDA_NAME_MAX = 128, CUDA_BUS_ID_MAX = 32 };

typedef struct CudaInfo {
    char name[CUDA_NAME_MAX];
    int driver, runtime; /* 13000: 13.0 */
    int major, minor;    /* compute capability */
    int sms;
    size_t total_bytes, free_bytes;
} CudaInfo;

bool cuda_built(void);
int cuda_devices(void); /* 0: none, or no driver */

/* ERR_UNSUPPORTED: not built in, no GPU, a driver older than the program's CUDA, or a GPU below
 * compute capability 8.0; each says what was found and what is needed. */
Status cuda_info(int device, CudaInfo *out);

/* An Exec whose ops run on `device`; `scratch` is an arena of device memory. */
Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch);
/* An Exec for a plan: op_run asks the kernels for their workspaces, and touches no device. Its
 * bottom backend is backend_count. */
Status cuda_exec_count(Exec *ex, Arena *arena, Arena *scratch);
void cuda_exec_free(Exec *ex); /* safe on { 0 }, and on one for a plan */

extern const Backend backend_cuda;

/* Streams for those who launch by themselves (comm_nccl): a lane's, and more, which the Exec owns
 * and waits for. NULL on an Exec without a GPU. */
void *cuda_stream(Exec *ex, Lane lane);
Status cuda_stream_new(Exec *ex, void **out);
/* An event of event_new on such a stream. */
Status cuda_record_on(Exec *ex, Event event, void *stream);
Status cuda_wait_on(Exec *ex, Event event, void *stream);

/* A run of launches, recorded once and started with one call. */
typedef struct CudaGraph {
    void *exec;             /* NULL: none */
    int64_t nodes, kernels; /* all of them; those that are kernels */
} CudaGraph;

/* Between begin and end nothing runs: launches, copies from and to pinned memory and fills on the
 * compute lane become the graph, and those on streams that wait for an event of it; these must be
 * waited for by the compute lane before the end. A failed capture ends with an error and leaves
 * none. A graph with collectives goes before their groups. */
Status cuda_capture_begin(Exec *ex);
Status cuda_capture_end(Exec *ex, CudaGraph *out);
Status cuda_graph_launch(Exec *ex, const CudaGraph *g);
void cuda_graph_free(CudaGraph *g); /* safe on { 0 } */

/* Where the Exec's GPU is plugged in, "0000:19:00.0": its name for NVML, whatever subset of the
 * machine's GPUs this process may see. */
Status cuda_bus_id(Exec *ex, char out[CUDA_BUS_ID_MAX]);

/* How often the host has waited for the Exec's GPU so far; 0 on the CPU. */
int64_t cuda_waits(const Exec *ex);

/* Bytes of the device in use now, by whomever, as the driver says. */
Status cuda_used_bytes(Exec *ex, size_t *out);

/* Time on the device between two marks in the compute lane; `cuda_marks_s` waits for neither: call
 * it after a sync. */
Status cuda_mark(Exec *ex, int which); /* 0: begin, 1: end */
Status cuda_marks_s(Exec *ex, double *out);

/* More such marks, `n` of them, which lie in streams one after the other. */
typedef struct CudaTimer {
    void **event; /* in the arena given to cuda_timer_make */
    int n;
} CudaTimer;

Status cuda_timer_make(Arena *a, int n, CudaTimer *out);
void cuda_timer_free(CudaTimer *t); /* safe on { 0 } */
Status cuda_timer_mark(const CudaTimer *t, Exec *ex, int which);
Status cuda_timer_s(const CudaTimer *t, int from, int to, double *out); /* after a sync */
/* The stream stands still for so long, so that what the host launches meanwhile then runs without
 * gaps. */
Status cuda_delay(Exec *ex, double seconds);

/* Why this Exec's last attention did not go through cuDNN, as a sentence; before the first, why
 * none will; "": it did, or may. */
const char *cuda_attention_why(const Exec *ex);

/* Which algorithms the matrix products of this Exec take (op/choices.h). NULL: it runs on no GPU.
 */
struct Choices *cuda_choices(Exec *ex);
/* While on, a product of a shape that has no choice yet times its candidates: results mean nothing,
 * each such call waits. Not while a graph is captured. Without a GPU nothing happens. */
Status cuda_tune(Exec *ex, bool on);

#endif
