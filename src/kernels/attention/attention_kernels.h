/* attention_kernels: the tables of candidates for attention on a GPU. A candidate's functions take
 * an AttentionFwd or AttentionBwd as their untyped call. */
#ifndef KERNELS_ATTENTION_ATTENTION_KERNELS_H
#define KERNELS_ATTENTION_ATTENTION_KERNELS_H

#include "kernels/attention/attention.h"
#include "kernels/core/kernels.h"

extern const KernelTable attention_fwd_kernels, attention_bwd_kernels;
extern const KernelTable attention_e4m3_kernels; /* of the 8-bit forward; no setting names them */

/* The kernel that comes first on NVIDIA's GPUs of this capability (10 * major + minor). */
AttentionKernel attention_kernel_of(int capability);

/* The table that a forward call chooses from, and which row it asks for. */
static inline const KernelTable *attention_fwd_table(const AttentionFwd *a, int *asked)
{
    *asked = a->e4m3 ? 0 : (int)a->kernel;
    return a->e4m3 ? &attention_e4m3_kernels : &attention_fwd_kernels;
}

#endif
