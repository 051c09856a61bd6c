/* A build without CUDA: everything there, and each says so. */
#include "backend/cuda.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(readability-non-const-parameter,misc-unused-parameters): the prototypes of a build
 * with CUDA */

static Status none(void)
{
    return FAIL(ERR_UNSUPPORTED,
                "this program was built without CUDA: build it with `make CUDA=1`");
}

bool cuda_built(void) { return false; }
int cuda_runtime_version(void) { return 0; }
int cuda_devices(void) { return 0; }
Status cuda_info(int device, CudaInfo *out) { return none(); }

Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch) { return none(); }
Status cuda_exec_count(Exec *ex, Arena *arena, Arena *scratch) { return none(); }

/* NOLINTEND(readability-non-const-parameter,misc-unused-parameters) */
