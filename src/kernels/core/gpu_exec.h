/* gpu_exec: what a launcher may ask of the Exec that its op runs on: stream, workspace, ticket, libraries. A .cu
 * includes this and not op.h, so a change of the Exec does not recompile kernels. */
#ifndef KERNELS_CORE_GPU_EXEC_H
#define KERNELS_CORE_GPU_EXEC_H

#include "engine/gpu/gpu.h"
#include "kernels/core/vendor.h"

GpuStream exec_gpu_stream(struct Exec *ex); /* of ex->lane */
void *exec_workspace(struct Exec *ex);
/* A counter in device memory, one for each lane: 0 before and after each kernel. Blocks that end count themselves with
 * atomicInc, which wraps to 0 at the last block. So the last block knows that it is. */
unsigned *exec_ticket(struct Exec *ex);
void *exec_library(struct Exec *ex, LibraryId id); /* NULL: not open */
/* That of the library of products (kernels/core/tuner.h); NULL: it is not open. */
struct Tuner *exec_tuner(const struct Exec *ex);
/* kernels/core/op.h */
void exec_note_once(struct Exec *ex, const char *op, const char *what);

#endif
