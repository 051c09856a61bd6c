/* libraries: the functions that the table in libraries.cu names, for AMD's library. */
#ifndef KERNELS_AMD_LIBRARIES_CUH
#define KERNELS_AMD_LIBRARIES_CUH

extern "C" {
#include "kernels/core/libraries.h"

/* hipBLASLt. A missing library is not an error: our own kernels multiply. */
Status hipblaslt_open(struct Exec *ex, Arena *a, void **out);
void hipblaslt_close(void *blas);
struct Tuner *hipblaslt_tuner(void *blas);     /* NULL: there is no hipBLASLt */
const char *hipblaslt_lacks(const void *blas); /* why there is none; NULL: it is there */
}

#endif
