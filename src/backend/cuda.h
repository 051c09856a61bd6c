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

enum { CUDA_NAME_MAX = 128 };

typedef struct CudaInfo {
    char name[CUDA_NAME_MAX];
    int driver, runtime; /* 13000: 13.0 */
    int major, minor;    /* compute capability */
    int sms;
    size_t total_bytes, free_bytes;
} CudaInfo;

bool cuda_built(void);
int cuda_runtime_version(void); /* 13000: 13.0; 0: not built in */
int cuda_devices(void);         /* 0: none, or no driver */

/* ERR_UNSUPPORTED: not built in, no GPU, a driver older than the program's CUDA, or a GPU below
 * compute capability 8.0; each says what was found and what is needed. */
Status cuda_info(int device, CudaInfo *out);

/* An Exec whose ops run on `device`; `scratch` is an arena of device memory. */
Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch);
/* An Exec for a plan: op_run asks the kernels for their workspaces, and touches no device. Its
 * bottom backend is backend_count with the GPU's properties. */
Status cuda_exec_count(Exec *ex, Arena *arena, Arena *scratch);

#endif
