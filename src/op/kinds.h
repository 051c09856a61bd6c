/* kinds: what settings choose among by name: kernels for attention and exchanges. Settings and specs need
 * these names alone, not the ops' arguments. */
#ifndef OP_KINDS_H
#define OP_KINDS_H

#include <stdbool.h>

/* Attention */

/* On a GPU: the first kernel of attention.def that can (AUTO), or the one that is named, which is
 * an error where it cannot. The CPU has one way. */
typedef enum AttentionKernel {
    ATTENTION_AUTO,
#define KERNEL(ID, name, ...) ATTENTION_##ID,
#include "op/attention.def"
    ATTENTION_KERNELS
} AttentionKernel;

/* Is it one of a GPU's? With PLAIN the CPU runs its own, as it does with AUTO. */
static inline bool attention_kernel_wants_gpu(AttentionKernel kernel)
{
    return kernel != ATTENTION_AUTO && kernel != ATTENTION_PLAIN;
}

/* The kernels as words of attention.kernel, and whether they take f32. */
typedef struct AttentionWord {
    const char *name;
    bool f32;
} AttentionWord;
extern const AttentionWord attention_words[ATTENTION_KERNELS];

/* The words in a row, behind a '|'. */
extern const char attention_kernel_names[];

/* Exchanges */

typedef enum ExchangeKind {
#define EXCHANGE(KIND, name) EXCHANGE_##KIND,
#include "op/exchange.def"
#undef EXCHANGE
    EXCHANGE_KINDS,
    EXCHANGE_AUTO = EXCHANGE_KINDS /* moe.exchange=auto: exchange_choose decides */
} ExchangeKind;

/* "|alltoall|allgather...|auto": a bar before each name. */
extern const char exchange_names[];

#endif
