/* work: what bounds an op's speed, for whoever turns its cost into time. */
#ifndef OP_WORK_H
#define OP_WORK_H

#include <stdbool.h>

/* Work that has a rate of its own by type and size: RATE(ID, name), the name of a hardware file's
 * section.
 *   gemm            matrix products whose operands have one type
 *   gemm_mixed      f32 meets bf16 in one: the router's, in bf16
 *   head            the head's products, between which logits become losses and gradients
 *   grouped         products by expert, forward
 *   grouped_input   the same for the gradients of rows
 *   grouped_weight  the same for the gradients of weights
 *   attention_plain attention in bf16 that cuDNN does not take, or is not asked for: our own kernels */
/* clang-format off */
#define OP_RATES(RATE)                                                                             \
    RATE(GEMM, gemm) RATE(GEMM_MIXED, gemm_mixed) RATE(HEAD, head)                                 \
    RATE(GROUPED, grouped) RATE(GROUPED_INPUT, grouped_input) RATE(GROUPED_WEIGHT, grouped_weight) \
    RATE(ATTENTION, attention) RATE(ATTENTION_BACKWARD, attention_backward)                        \
    RATE(ATTENTION_PLAIN, attention_plain)                                                         \
    RATE(ATTENTION_PLAIN_BACKWARD, attention_plain_backward)

typedef enum OpWork {
    WORK_MEMORY, /* its bytes alone */
#define RATE(ID, name) WORK_##ID,
    OP_RATES(RATE)
#undef RATE
    WORK_COMM, /* comm_bytes over the axis */
    WORK_COUNT
} OpWork;
/* clang-format on */

/* Does the work have a rate? */
static inline bool work_has_rate(OpWork w) { return w > WORK_MEMORY && w < WORK_COMM; }

static inline bool work_is_grouped(OpWork w)
{
    return w == WORK_GROUPED || w == WORK_GROUPED_INPUT || w == WORK_GROUPED_WEIGHT;
}

extern const char *const op_work_names[WORK_COUNT];

typedef enum OpComm {
    COMM_NONE,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_SHIFT,
    COMM_ALL_REDUCE,
    COMM_BROADCAST,
    COMM_EXCHANGE /* tokens to experts and back; size: bytes of one token's row */
} OpComm;

#endif
