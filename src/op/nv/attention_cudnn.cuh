/*
 * attention_cudnn: attention through cuDNN's fused kernels, in bf16 on Hopper.
 *
 * Taken where queries and keys are as many (no cache), widths are multiples of 8 up to 256 and
 * cuDNN has a kernel for the shape; else the kernels of attention.cu run. cuDNN reads the strides
 * of (B, T, H, d), so no operand is copied. Blocks of keys (mesh.cp) are taken where the call's
 * pieces see one rectangle (attention_pieces.h); then o and dq come in bf16 and are added in f32. Plans are made on the first call of a shape and kept: that
 * call must not be inside a stream capture; the others may, and none waits.
 */
#ifndef OP_NV_ATTENTION_CUDNN_CUH
#define OP_NV_ATTENTION_CUDNN_CUH

#include "op/kernel.cuh"

extern "C" {
#include "op/attention.h"
}

/* *done false: cuDNN cannot take this call (a->kernel, why), and nothing was launched. With
 * ATTENTION_CUDNN that is an error. Uses exec_workspace. */
Status attention_cudnn_fwd(struct Exec *ex, const AttentionFwd *a, bool *done);
Status attention_cudnn_bwd(struct Exec *ex, const AttentionBwd *a, bool *done);

/* How many bytes of workspace those calls may use, found without the library; 0: they use none. */
size_t attention_cudnn_fwd_workspace(const AttentionFwd *a);
size_t attention_cudnn_bwd_workspace(const AttentionBwd *a);

#endif
