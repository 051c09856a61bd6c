/* ops: the headers of all ops, for the few files that make a table or a test of every op. All other
 * files include the headers of the ops that they call. */
#ifndef OP_OPS_H
#define OP_OPS_H

#include "op/attention.h"
#include "op/bias.h"
#include "op/checksum.h"
#include "op/elementwise.h"
#include "op/embed.h"
#include "op/exchange.h"
#include "op/expert_parts.h"
#include "op/head.h"
#include "op/linear.h"
#include "op/moe.h"
#include "op/muon.h"
#include "op/optimizer.h"
#include "op/qk_clip.h"
#include "op/quant.h"
#include "op/rmsnorm.h"
#include "op/rope.h"
#include "op/route.h"
#include "op/route_drop.h"
#include "op/route_margin.h"
#include "op/scale.h"
#include "op/swiglu.h"

#endif
