/* exchange_hier on a GPU: both stages are blocks of rows, as alltoall's one. */
#include "op/kernel.cuh"

#include "op/exchange.h"

const ExchangeLocal exchange_hier_cuda = { exchange_pack_cuda, exchange_unpack };
