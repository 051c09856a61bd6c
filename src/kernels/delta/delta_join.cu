/*
 * delta_join: what the state is before each run of this rank, or its gradient behind it (delta_join.c). A block has
 * SIDE columns of a head, which no other column needs, and goes from run to run: S = M S + B, in shared memory.
 */
#include "kernels/core/kernel.cuh"

#include "kernels/delta/delta.h"

enum { SIDE = 32, THREADS = 256 };

typedef struct Join {
    const float *span;
    float *state;
    int64_t heads, key, value, runs, ranks, rank;
    bool back;
} Join;

static __global__ __launch_bounds__(THREADS) void delta_join_kernel(const Join a)
{
    extern __shared__ float room[];
    int64_t run = blockIdx.x / a.heads, head = blockIdx.x % a.heads, last = 2 * a.ranks - 1;
    int64_t width = a.key + a.value, own = run % 2 == 0 ? a.rank : last - a.rank;
    int side = (int)threadIdx.x % SIDE, down = (int)threadIdx.x / SIDE;
    int64_t column = blockIdx.y * (int64_t)SIDE + side;
    float *S = room, *next = room + a.key * SIDE;
    for (int64_t i = threadIdx.x; i < a.key * SIDE; i += THREADS) S[i] = 0;
    __syncthreads();
    for (int64_t i = a.back ? last : 0; i != own; i += a.back ? -1 : 1) {
        int64_t second = i >= a.ranks, rank = second ? last - i : i;
        int64_t row = rank * a.runs + run / 2 * 2 + second;
        const float *span = a.span + (row * a.heads + head) * a.key * width;
        for (int64_t j = down; j < a.key; j += THREADS / SIDE) {
            float sum = column < a.value ? span[j * width + column] : 0.0f;
            for (int64_t k = 0; k < a.key; k++)
                sum += span[a.back ? k * width + a.value + j : j * width + a.value + k] *
                       S[k * SIDE + side];
            next[j * SIDE + side] = sum;
        }
        float *other = S;
        S = next, next = other;
        __syncthreads();
    }
    for (int64_t j = down; j < a.key; j += THREADS / SIDE)
        if (column < a.value)
            a.state[((run * a.heads + head) * a.key + j) * a.value + column] = S[j * SIDE + side];
}

extern "C" Status delta_join_gpu(struct Exec *ex, const void *args)
{
    const DeltaJoin *j = (const DeltaJoin *)args;
    Join a = { (const float *)j->span.data,
               (float *)j->state.data,
               j->dims.heads,
               j->dims.key,
               j->dims.value,
               j->state.dim[0],
               j->ranks,
               j->rank,
               j->back };
    size_t bytes = 2 * (size_t)a.key * SIDE * sizeof(float);
    TRY(kernel_shared("delta_join", delta_join_kernel, bytes));
    dim3 grid((unsigned)(a.runs * a.heads), grid_of(a.value, SIDE));
    delta_join_kernel<<<grid, THREADS, bytes, exec_stream(ex)>>>(a);
    return kernel_status("delta_join");
}
