/* ops: the headers of all ops: part of the door of the kernels (kernels/kernels.h), and for the few files that make a
 * table or a test of every op. All other files include the headers of the ops that they call. */
#ifndef KERNELS_CORE_OPS_H
#define KERNELS_CORE_OPS_H

#include "kernels/attention/attention.h"
#include "kernels/attention/gate.h"
#include "kernels/attention/rope.h"
#include "kernels/delta/delta.h"
#include "kernels/dense/linear.h"
#include "kernels/exchange/exchange.h"
#include "kernels/head/embed.h"
#include "kernels/head/head.h"
#include "kernels/moe/expert_parts.h"
#include "kernels/moe/moe.h"
#include "kernels/moe/swiglu.h"
#include "kernels/norm/bias.h"
#include "kernels/norm/elementwise.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/optimizer/checksum.h"
#include "kernels/optimizer/muon.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/optimizer/qk_clip.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/scale.h"
#include "kernels/route/route.h"
#include "kernels/route/route_drop.h"
#include "kernels/route/route_margin.h"

#endif
