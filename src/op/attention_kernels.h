/* attention_kernels: the candidates for attention on a GPU. A call is an AttentionFwd or AttentionBwd. */
#ifndef OP_ATTENTION_KERNELS_H
#define OP_ATTENTION_KERNELS_H

#include "op/attention.h"
#include "op/kernels.h"

extern const KernelTable attention_fwd_kernels, attention_bwd_kernels;

#endif
