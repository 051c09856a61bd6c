/* gpu_exec: what launchers ask of the Exec that an op runs on. They see nothing else of it, so a
 * .cu need not include op.h. */
#ifndef OP_GPU_EXEC_H
#define OP_GPU_EXEC_H

#include "gpu/gpu.h"
#include "op/libraries.h"

GpuStream exec_gpu_stream(struct Exec *ex); /* of ex->lane */
void *exec_workspace(struct Exec *ex);
/* A counter on the device, one a lane: 0 before and after each kernel. Blocks count themselves off
 * with atomicInc, which wraps to 0 at the last of them. */
unsigned *exec_ticket(struct Exec *ex);
void *exec_library(struct Exec *ex, LibraryId id); /* NULL: not open */
/* op/op.h */
void exec_note_once(struct Exec *ex, const char *op, const char *what);

#endif
