/* fragment_cuda: the product of fragment.cuh for CUDA, by wmma. */
#ifndef ENGINE_GPU_FRAGMENT_CUDA_CUH
#define ENGINE_GPU_FRAGMENT_CUDA_CUH

#include "engine/gpu/lane.cuh"

#include <mma.h>

/* C (FRAGMENT, STRIP) f32 = A (FRAGMENT, k) B (k, STRIP), or += with ADD, by one warp. A_T: A is stored
 * as (k, FRAGMENT). B_T: B is stored as (STRIP, k). lda, ldb and ldc are row strides in elements. */
template <bool A_T, bool B_T, bool ADD>
static __device__ __forceinline__ void fragment_product(const Bf16 *a, int lda, const Bf16 *b,
                                                        int ldb, float *c, int ldc, int k)
{
    using namespace nvcuda::wmma;
    typedef typename std::conditional<A_T, col_major, row_major>::type LayoutA;
    typedef typename std::conditional<B_T, col_major, row_major>::type LayoutB;
    constexpr int HALVES = STRIP / FRAGMENT;
    /* The A tile is loaded once for both halves of the strip, so shared memory is read less. */
    fragment<matrix_a, FRAGMENT, FRAGMENT, FRAGMENT, Bf16, LayoutA> left;
    fragment<matrix_b, FRAGMENT, FRAGMENT, FRAGMENT, Bf16, LayoutB> right[HALVES];
    fragment<accumulator, FRAGMENT, FRAGMENT, FRAGMENT, float> sum[HALVES];
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        if (ADD)
            load_matrix_sync(sum[h], c + h * FRAGMENT, (unsigned)ldc, mem_row_major);
        else
            fill_fragment(sum[h], 0.0f);
    }
    for (int l = 0; l < k; l += FRAGMENT) {
        load_matrix_sync(left, A_T ? a + l * lda : a + l, (unsigned)lda);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            int col = h * FRAGMENT;
            load_matrix_sync(right[h], B_T ? b + col * ldb + l : b + l * ldb + col, (unsigned)ldb);
            mma_sync(sum[h], left, right[h], sum[h]);
        }
    }
#pragma unroll
    for (int h = 0; h < HALVES; h++)
        store_matrix_sync(c + h * FRAGMENT, sum[h], (unsigned)ldc, mem_row_major);
}

#endif
