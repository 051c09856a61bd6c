/* attention_kernels: the tables of candidates for attention on a GPU. A candidate's functions take
 * an AttentionFwd or AttentionBwd as their untyped call. */
#ifndef OP_ATTENTION_KERNELS_H
#define OP_ATTENTION_KERNELS_H

#include "op/kernels.h"

extern const KernelTable attention_fwd_kernels, attention_bwd_kernels;

#endif
