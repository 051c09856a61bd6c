/*
 * glu: the family of gated activations that ops compute, y(g, u) of a gate g and an up u, as five numbers:
 *
 *   g' = min(g, limit),  u' = max(-limit, min(u, limit)),  q = max(-reach, min(g', reach))
 *   z = q (slope + cube q^2),  s = 1 / (1 + e^-z):     y = (u' + shift) g' s
 *
 *   backward:   dy/dg = (u' + shift) s (1 + q (slope + 3 cube q^2) (1 - s)) if g <= limit, else 0
 *               dy/du = g' s if |u| <= limit, else 0
 *
 * Beyond reach, s is 0 or 1, and a larger q would only overflow. Zeros are SwiGLU (swiglu.h), which kernels compute
 * with less work. The formula stands in cpu_math.h for CPUs and in swiglu.cuh for GPUs.
 */
#ifndef KERNELS_MOE_GLU_H
#define KERNELS_MOE_GLU_H

typedef struct Glu {
    float limit; /* above 0, or infinite; 0: SwiGLU, and no other number counts */
    float shift, slope, cube, reach;
} Glu;

#ifdef __cplusplus
extern "C" {
#endif
/* gpt-oss' clamped form (arXiv:2508.10925): y = (u' + 1) g' sigmoid(1.702 g') */
Glu glu_clamped(float limit);
/* GEGLU (arXiv:2002.05202) with the tanh form of GELU (arXiv:1606.08415): (1 + tanh(x)) / 2 is 1 / (1 + e^(-2x)), so
 * y = u g sigmoid(2 sqrt(2 / pi) (g + 0.044715 g^3)). In f32 s is 1 from 12 on, and 0 up to -12. */
Glu glu_gelu(void);
#ifdef __cplusplus
}
#endif

#endif
