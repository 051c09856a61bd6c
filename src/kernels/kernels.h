/* kernels: the door of the kernels: what other houses may include of them, and the headers of all ops (core/ops.h). */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "kernels/core/ops.h"

/* attention: which kernels there are */
#include "kernels/attention/attention_kernels.h"

/* core: `op.h`, the list of ops (`ops.def`), the table of kernels, the tuner, sets of CPU instructions */
#include "kernels/core/choices.h"
#include "kernels/core/cpu_set.h"
#include "kernels/core/kernels.h"
#include "kernels/core/kinds.h"
#include "kernels/core/libraries.h"
#include "kernels/core/op.h"
#include "kernels/core/operand.h"
#include "kernels/core/vendor.h"
#include "kernels/core/work.h"

/* dense: what a product is, and its algorithms */
#include "kernels/dense/product.h"
#include "kernels/dense/product_algo.h"

/* moe: the numbers of gated activations */
#include "kernels/moe/glu.h"

#endif
