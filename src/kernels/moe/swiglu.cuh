/* swiglu: a gated activation (kernels/moe/glu.h) of one gate and up in registers, for swiglu.cu and moe_product.cu. */
#ifndef KERNELS_MOE_SWIGLU_CUH
#define KERNELS_MOE_SWIGLU_CUH

#include "engine/gpu/lane.cuh"

#include "kernels/moe/glu.h"

struct GluSlopes {
    float act, by_gate,
        by_up; /* and its slopes, which the compiler drops where they are not read */
};

/* The caller gives its own `sigmoid`, exact or fast. NaN stays NaN. */
template <typename F>
static __device__ __forceinline__ GluSlopes glu_slopes(const Glu &k, float gate, float up,
                                                       F sigmoid)
{
    float g = min_or_nan(gate, k.limit), u = max_or_nan(min_or_nan(up, k.limit), -k.limit);
    float q = max_or_nan(min_or_nan(g, k.reach), -k.reach), bend = k.cube * q * q;
    float s = sigmoid(q * (k.slope + bend)), glu = g * s;
    float slope = (u + k.shift) * s * (1 + q * (k.slope + 3 * bend) * (1 - s));
    return { (u + k.shift) * glu, gate > k.limit ? 0 : slope, fabsf(up) > k.limit ? 0 : glu };
}

#endif
