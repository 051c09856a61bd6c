/* exchange_allgather on a GPU: the kernel that marks experts of other ranks with -1. Rows travel by
 * comm's collectives (exchange_allgather.c). */
#include "kernels/core/kernel.cuh"

#include "kernels/exchange/exchange.h"

/* A thread for each index. exchange_local_expert is host code, so its rule is repeated here. */
static __global__ void exchange_keep_own_kernel(int32_t *index, int64_t n, int64_t first,
                                                int64_t here)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int64_t e = index[i] - first;
    index[i] = e >= 0 && e < here ? (int32_t)e : -1;
}

static Status keep_own(struct Exec *ex, const ExchangeDispatch *a, const ExchangeRows *rows)
{
    int64_t n = tensor_elems(&a->rows_index), here = a->experts / a->ranks;
    exchange_keep_own_kernel<<<grid_of(n, 256), 256, 0, exec_stream(ex)>>>(
        (int32_t *)a->rows_index.data, n, rows->all->rank * here, here);
    return kernel_status("exchange_dispatch");
}

extern "C" ExchangeLocal exchange_allgather_gpu(void) { return { keep_own, exchange_unpack }; }
