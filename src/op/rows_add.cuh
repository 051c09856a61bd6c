/* rows_add: the second half of a sum over rows: what blocks of rows gave, added to the sum. */
#ifndef OP_ROWS_ADD_CUH
#define OP_ROWS_ADD_CUH

#include "op/rows.cuh"

/* to += the sum of part (blocks, d) over blocks. A warp's lanes are neighbouring columns; warp k adds
 * blocks k, k + 32, and so on, then the first warp adds the warps' sums in order. */
static __global__ void rows_add_kernel(const float *part, float *to, int64_t blocks, int64_t d)
{
    __shared__ float sums[ROWS_WARP][ROWS_WARP];
    int64_t col = (int64_t)blockIdx.x * ROWS_WARP + threadIdx.x;
    float sum = 0;
    if (col < d) {
#pragma unroll 8
        for (int64_t b = threadIdx.y; b < blocks; b += ROWS_WARP) sum += __ldg(part + b * d + col);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= d) return;
    float total = 0;
    for (int k = 0; k < ROWS_WARP; k++) total += sums[k][threadIdx.x];
    to[col] += total;
}

#endif
