/* delta_kernels: the tables of candidates for the gated delta rule on a GPU. A candidate's functions take the arguments
 * of the op as their untyped call. */
#ifndef KERNELS_DELTA_DELTA_KERNELS_H
#define KERNELS_DELTA_DELTA_KERNELS_H

#include "kernels/core/kernels.h"

extern const KernelTable delta_rule_fwd_kernels, delta_rule_bwd_kernels, delta_span_fwd_kernels,
    delta_span_bwd_kernels;

#endif
