/* swiglu_slope: a constant of SwiGLU's clamped form (kernels/moe/swiglu.h), for the functions of both backends
 * (cpu_math.h, swiglu.cuh). */
#ifndef KERNELS_MOE_SWIGLU_SLOPE_H
#define KERNELS_MOE_SWIGLU_SLOPE_H

#define SWIGLU_SLOPE 1.702f /* a of the clamped form */

#endif
