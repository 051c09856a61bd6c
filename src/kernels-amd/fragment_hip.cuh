/*
 * fragment_hip: the product of fragment.cuh for CDNA3, by v_mfma_f32_16x16x16_bf16. A lane gives it
 * four terms of a row of A and of a column of B, and holds four rows of a column of C:
 *
 *   A, B   row or column lane % 16, terms 4 (lane / 16) to + 3
 *   C      column lane % 16, rows 4 (lane / 16) to + 3
 */
#ifndef KERNELS_AMD_FRAGMENT_HIP_CUH
#define KERNELS_AMD_FRAGMENT_HIP_CUH

#include "engine/gpu/lane.cuh"

typedef short FourTerms __attribute__((ext_vector_type(4)));
typedef float FourSums __attribute__((ext_vector_type(4)));

/* Four terms that stand `step` elements apart. */
static __device__ __forceinline__ FourTerms terms_at(const Bf16 *at, int step)
{
    FourTerms v;
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = (short)at[k * step].bits;
    return v;
}

template <bool A_T, bool B_T, bool ADD>
static __device__ __forceinline__ void fragment_product(const Bf16 *a, int lda, const Bf16 *b,
                                                        int ldb, float *c, int ldc, int k)
{
    constexpr int HALVES = STRIP / FRAGMENT;
    int lane = lane_number(), line = lane % FRAGMENT, four = lane / FRAGMENT * 4;
    float *to = c + four * ldc + line;
    FourSums sum[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int i = 0; i < 4; i++) sum[h][i] = ADD ? to[i * ldc + h * FRAGMENT] : 0.0f;
    }
    for (int l = four; l < k; l += FRAGMENT) {
        FourTerms left = terms_at(A_T ? a + l * lda + line : a + line * lda + l, A_T ? lda : 1);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            int col = h * FRAGMENT + line;
            FourTerms right = terms_at(B_T ? b + col * ldb + l : b + l * ldb + col, B_T ? 1 : ldb);
            sum[h] = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(left, right, sum[h], 0, 0, 0);
        }
    }
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
#pragma unroll
        for (int i = 0; i < 4; i++) to[i * ldc + h * FRAGMENT] = sum[h][i];
    }
}

#endif
