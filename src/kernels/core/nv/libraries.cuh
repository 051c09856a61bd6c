/* libraries: the functions that the table in libraries.cu names, for each of NVIDIA's libraries. */
#ifndef KERNELS_CORE_NV_LIBRARIES_CUH
#define KERNELS_CORE_NV_LIBRARIES_CUH

extern "C" {
#include "kernels/core/libraries.h"

/* cuDNN. A missing library is not an error. Its work goes to the stream of the Exec's lane at the
 * time when it is opened. */
Status attention_cudnn_open(struct Exec *ex, Arena *a, void **out);
void attention_cudnn_close(void *attention);
const char *
attention_cudnn_lacks(const void *attention); /* why there is no cuDNN; NULL: it is there */
size_t attention_cudnn_version(const void *attention); /* 91900 for 9.19.0; 0: there is no cuDNN */

/* cuBLASLt */
Status blas_open(struct Exec *ex, Arena *a, void **out);
void blas_close(void *blas);
struct Tuner *blas_tuner(void *blas);
}

#endif
