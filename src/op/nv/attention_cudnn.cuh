/*
 * attention_cudnn: attention through cuDNN's fused kernels, in bf16 on Hopper.
 *
 * attention.def says which calls it takes. cuDNN may still have no kernel for a shape, and then
 * refuses the call. It reads the strides of (B, T, H, d), so no operand is copied. Blocks of keys
 * (mesh.cp) are taken where the call's pieces see one rectangle (attention_pieces.h); then o and dq
 * come in bf16 and are added in f32.
 *
 * Plans are made on the first call of a shape and kept. That call must not be inside a stream
 * capture; the others may, and none waits.
 */
#ifndef OP_NV_ATTENTION_CUDNN_CUH
#define OP_NV_ATTENTION_CUDNN_CUH

#include "op/kernel.cuh"

extern "C" {
#include "op/attention.h"

struct CudnnAttention;

/* Opens cuDNN; a missing library is no error. Its work goes to `stream`. */
Status cuda_attention_make(Arena *a, cudaStream_t stream, struct CudnnAttention **out);
void cuda_attention_free(struct CudnnAttention *c); /* safe on NULL */
struct CudnnAttention *exec_attention(struct Exec *ex);
}

/* Why there is no cuDNN; NULL: there is. */
const char *attention_cudnn_lacks(const struct CudnnAttention *c);

/* cuDNN's version, 91900 for 9.19.0; 0: there is no cuDNN. */
size_t attention_cudnn_version(const struct CudnnAttention *c);

#endif
