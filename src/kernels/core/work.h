/* work: kinds of work by what bounds their speed. Plans and benchmarks use them to turn an op's
 * cost into time; the rates are in hardware files. */
#ifndef KERNELS_CORE_WORK_H
#define KERNELS_CORE_WORK_H

#include <stdbool.h>

/* Kinds of work with a rate of their own, which depends on type and size: RATE(ID, name). The name
 * is a section of a hardware file.
 *   gemm            matrix products whose operands have one type
 *   gemm_mixed      products of f32 and bf16: the router's, if activations are bf16
 *   delta           the gated delta rule: products of a state with vectors, whatever form a kernel gives them
 *   head            the products of head_loss, with the kernel between them
 *   grouped         products by expert, forward
 *   grouped_input   the same for the gradients of rows
 *   grouped_weight  the same for the gradients of weights
 *   attention       attention
 *   attention_ordered the same backward in a fixed order of sums
 *   attention_plain attention in bf16 by the kernels for all GPUs
 *   own_...         no op's work, but rates of gemm, grouped and attention that this program reaches within steps */
/* clang-format off */
#define OP_RATES(RATE)                                                                             \
    RATE(GEMM, gemm) RATE(GEMM_MIXED, gemm_mixed) RATE(DELTA, delta) RATE(HEAD, head)              \
    RATE(GROUPED, grouped) RATE(GROUPED_INPUT, grouped_input) RATE(GROUPED_WEIGHT, grouped_weight) \
    RATE(ATTENTION, attention) RATE(ATTENTION_BACKWARD, attention_backward)                        \
    RATE(ATTENTION_ORDERED, attention_ordered) RATE(ATTENTION_PLAIN, attention_plain)              \
    RATE(ATTENTION_PLAIN_BACKWARD, attention_plain_backward)                                       \
    RATE(OWN_GEMM, own_gemm) RATE(OWN_GROUPED, own_grouped) RATE(OWN_ATTENTION, own_attention)

typedef enum OpWork {
    WORK_MEMORY, /* bound by its bytes */
#define RATE(ID, name) WORK_##ID,
    OP_RATES(RATE)
#undef RATE
    WORK_COMM, /* bound by comm_bytes over the axis */
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
