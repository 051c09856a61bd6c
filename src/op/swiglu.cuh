/* swiglu: the clamped form (op/swiglu.h) of one gate and up in registers. */
#ifndef OP_SWIGLU_CUH
#define OP_SWIGLU_CUH

#include "op/swiglu.h"

struct Clamped {
    float act, by_gate,
        by_up; /* and its slopes, which the compiler drops where they are not read */
};

/* fminf and fmaxf would make a number of a NaN; comparisons cost registers (36 more bytes of spills
 * in the gradient on Hopper). */
static __device__ __forceinline__ float at_most(float x, float limit)
{
    float y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(limit));
    return y;
}

static __device__ __forceinline__ float at_least(float x, float limit)
{
    float y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(limit));
    return y;
}

/* `sigmoid` is the caller's. A NaN stays one. */
template <typename F>
static __device__ __forceinline__ Clamped swiglu_clamped(float gate, float up, float limit,
                                                         F sigmoid)
{
    float g = at_most(gate, limit), u = at_least(at_most(up, limit), -limit);
    float s = sigmoid(SWIGLU_SLOPE * g), glu = g * s;
    float slope = (u + 1) * s * (1 + SWIGLU_SLOPE * g * (1 - s));
    return { (u + 1) * glu, gate > limit ? 0 : slope, fabsf(up) > limit ? 0 : glu };
}

#endif
