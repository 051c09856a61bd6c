/* exchange_hier on a GPU: both stages exchange blocks of rows, so it uses alltoall's kernels. */
#include "kernels/core/kernel.cuh"

#include "kernels/exchange/exchange.h"

extern "C" ExchangeLocal exchange_hier_gpu(void) { return { exchange_pack_gpu, exchange_unpack }; }
