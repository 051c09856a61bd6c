/* swiglu_slope: a constant of SwiGLU's clamped form (op/swiglu.h), for the functions of both backends
 * (cpu_math.h, swiglu.cuh). */
#ifndef OP_SWIGLU_SLOPE_H
#define OP_SWIGLU_SLOPE_H

#define SWIGLU_SLOPE 1.702f /* a of the clamped form */

#endif
