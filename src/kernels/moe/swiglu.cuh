/* swiglu: the clamped form (kernels/moe/swiglu.h) of one gate and up in registers, for swiglu.cu and
 * moe_product.cu. */
#ifndef KERNELS_MOE_SWIGLU_CUH
#define KERNELS_MOE_SWIGLU_CUH

#include "engine/gpu/lane.cuh"

#include "kernels/moe/swiglu_slope.h"

struct Clamped {
    float act, by_gate,
        by_up; /* and its slopes, which the compiler drops where they are not read */
};

/* The caller gives its own `sigmoid`, exact or fast. NaN stays NaN. */
template <typename F>
static __device__ __forceinline__ Clamped swiglu_clamped(float gate, float up, float limit,
                                                         F sigmoid)
{
    float g = min_or_nan(gate, limit), u = max_or_nan(min_or_nan(up, limit), -limit);
    float s = sigmoid(SWIGLU_SLOPE * g), glu = g * s;
    float slope = (u + 1) * s * (1 + SWIGLU_SLOPE * g * (1 - s));
    return { (u + 1) * glu, gate > limit ? 0 : slope, fabsf(up) > limit ? 0 : glu };
}

#endif
