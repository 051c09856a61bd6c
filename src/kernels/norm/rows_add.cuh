/* rows_add: the second launch of a sum over rows: adds the partial sums of blocks of rows to the
 * result. The first launch is the op's own (bias.cu, rmsnorm.cu). */
#ifndef KERNELS_NORM_ROWS_ADD_CUH
#define KERNELS_NORM_ROWS_ADD_CUH

#include "kernels/norm/rows.cuh"

enum { ADD_SIDE = 32 }; /* columns of a block, and rows of threads that share a column's sum */

/* to += the sum of part (blocks, d) over blocks. Threads along x are neighbouring columns. Row k of the threads adds
 * blocks k, k + ADD_SIDE, and so on; then the first row adds the rows' sums in order. */
static __global__ void rows_add_kernel(const float *part, float *to, int64_t blocks, int64_t d)
{
    __shared__ float sums[ADD_SIDE][ADD_SIDE];
    int64_t col = (int64_t)blockIdx.x * ADD_SIDE + threadIdx.x;
    float sum = 0;
    if (col < d) {
#pragma unroll 8
        for (int64_t b = threadIdx.y; b < blocks; b += ADD_SIDE)
            sum += read_const(part + b * d + col);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= d) return;
    float total = 0;
    for (int k = 0; k < ADD_SIDE; k++) total += sums[k][threadIdx.x];
    to[col] += total;
}

#endif
