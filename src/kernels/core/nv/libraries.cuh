/* libraries: the functions that the table in libraries.cu names, for each of NVIDIA's libraries. */
#ifndef KERNELS_CORE_NV_LIBRARIES_CUH
#define KERNELS_CORE_NV_LIBRARIES_CUH

extern "C" {
#include "kernels/core/libraries.h"

/* cuBLASLt */
Status blas_open(struct Exec *ex, Arena *a, void **out);
void blas_close(void *blas);
struct Tuner *blas_tuner(void *blas);
}

#endif
