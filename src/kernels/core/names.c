/* names: the names of kinds of work, of exchanges and of kernels, in a file without ops. Hardware
 * files, settings and the trace library need these names and link no op. */
#include "kernels/core/kinds.h"
#include "kernels/core/work.h"

const char *const op_work_names[WORK_COUNT] = {
    [WORK_MEMORY] = "memory",
#define RATE(ID, name) [WORK_##ID] = #name,
    OP_RATES(RATE)
#undef RATE
        [WORK_COMM] = "links",
};

const char exchange_names[] =
#define EXCHANGE(KIND, name) "|" #name
#include "kernels/exchange/exchange.def"
#undef EXCHANGE
    "|auto";

const char attention_kernel_names[] = "|auto"
#define KERNEL(ID, name, ...) "|" #name
#include "kernels/attention/attention.def"
    ;

const AttentionWord attention_words[ATTENTION_KERNELS] = {
    [ATTENTION_AUTO] = { "auto", true, false },
#define KERNEL(ID, name, f32, skips, ...) [ATTENTION_##ID] = { #name, f32, skips },
#include "kernels/attention/attention.def"
};
