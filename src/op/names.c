/* names: words of kinds of work and of exchange, which what runs no op needs, too: sheets of GPUs,
 * settings, the library of traces. */
#include "op/exchange.h"
#include "op/work.h"

const char *const op_work_names[WORK_COUNT] = {
    [WORK_MEMORY] = "memory",
#define RATE(ID, name) [WORK_##ID] = #name,
    OP_RATES(RATE)
#undef RATE
        [WORK_COMM] = "links",
};

const char exchange_names[] =
#define EXCHANGE(KIND, name) "|" #name
#include "op/exchange.def"
#undef EXCHANGE
    "|auto";
