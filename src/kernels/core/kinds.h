/* kinds: the kinds that a setting chooses by name: kernels for attention, exchanges, recipes of 8-bit products.
 * Settings and specs include this file and not the ops' headers, so a change of an op does not rebuild them. */
#ifndef KERNELS_CORE_KINDS_H
#define KERNELS_CORE_KINDS_H

#include <stdbool.h>

/* Attention */

/* AUTO: on a GPU the first kernel of attention.def that supports the call. A named kernel that does
 * not support it is an error. The CPU has one implementation. */
typedef enum AttentionKernel {
    ATTENTION_AUTO,
#define KERNEL(ID, name, ...) ATTENTION_##ID,
#include "kernels/attention/attention.def"
    ATTENTION_KERNELS
} AttentionKernel;

/* Does this choice need a GPU? With AUTO and PLAIN the CPU runs its own implementation. */
static inline bool attention_kernel_wants_gpu(AttentionKernel kernel)
{
    return kernel != ATTENTION_AUTO && kernel != ATTENTION_PLAIN;
}

/* The kernels' names in attention.kernel, whether they support f32, and whether they skip pairs that documents hide. */
typedef struct AttentionWord {
    const char *name;
    bool f32, skips;
} AttentionWord;
extern const AttentionWord attention_words[ATTENTION_KERNELS];

/* All names in one string, each after a '|'. */
extern const char attention_kernel_names[];

/* Exchanges */

typedef enum ExchangeKind {
#define EXCHANGE(KIND, name) EXCHANGE_##KIND,
#include "kernels/exchange/exchange.def"
#undef EXCHANGE
    EXCHANGE_KINDS,
    EXCHANGE_AUTO = EXCHANGE_KINDS /* moe.exchange=auto: exchange_choose decides */
} ExchangeKind;

/* "|alltoall|allgather...|auto": a bar before each name. */
extern const char exchange_names[];

/* 8-bit products */

/* What a scale belongs to (engine/model/recipe.h), in the order of fp8.recipe's words. */
typedef enum RecipeKind {
    RECIPE_NONE,
    RECIPE_TENSOR,
    RECIPE_ROW,
    RECIPE_BLOCK,
    RECIPE_MX
} RecipeKind;

#endif
