/* kernels: the door of the kernels: what other houses may include of them. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

/* attention: attention with its masks, sinks and gradients; rotary positions */
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_kernels.h"
#include "kernels/attention/gate.h"
#include "kernels/attention/rope.h"

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

/* delta: the gated delta rule with its convolution and norm */
#include "kernels/delta/delta.h"

/* dense: matrix products on CPUs and GPUs */
#include "kernels/dense/linear.h"
#include "kernels/dense/product.h"
#include "kernels/dense/product_algo.h"

/* exchange: tokens between ranks: all-to-all, all-gather, over hosts, by direct stores */
#include "kernels/exchange/exchange.h"

/* head: the embedding, the output projection with its loss */
#include "kernels/head/embed.h"
#include "kernels/head/head.h"

/* moe: sorting of tokens, products of experts (grouped), SwiGLU, combining */
#include "kernels/moe/expert_parts.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/swiglu.h"

/* norm: RMSNorm, sums over rows, elementwise ops, biases */
#include "kernels/norm/bias.h"
#include "kernels/norm/elementwise.h"
#include "kernels/norm/rmsnorm.h"

/* optimizer: AdamW, Muon, QK-clip, checksums */
#include "kernels/optimizer/checksum.h"
#include "kernels/optimizer/muon.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/qk_clip.h"

/* quant: 8-bit formats, scales, quantising */
#include "kernels/quant/quant.h"
#include "kernels/quant/scale.h"

/* route: the choice of experts, their balance, capacities */
#include "kernels/route/route.h"
#include "kernels/route/route_drop.h"
#include "kernels/route/route_margin.h"

#endif
