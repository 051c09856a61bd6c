/* operand_case: an op refuses each of its operands if that has scales and the others do not. */
#ifndef KERNELS_OP_OPERAND_CASE_H
#define KERNELS_OP_OPERAND_CASE_H

#include "harness/optest.h"
#include "kernels/core/operand.h"

/* The tensor as 8-bit numbers with a scale for each block of 128 x 128; nothing reads them. */
static inline Operand operand_scaled(OpTest *t, Tensor like)
{
    Operand q = { .data = like, .kind = OPERAND_128X128 };
    int64_t d = tensor_cols(&like);
    OperandGrid g = operand_grid(q.kind, tensor_elems(&like) / d, d);
    q.data.dtype = DTYPE_E4M3;
    q.scale = optest_normal(t, DTYPE_F32, DIMS(g.rows, g.cols));
    return q;
}

/* Each Operand among the arguments in turn; returns how many there are. The error names the operand
 * that was changed or, where that one decides what the op takes, another one. */
static inline int operands_refused(OpTest *t, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    _Alignas(16) char changed[2048];
    int operands = 0;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (p[1].dir != PORT_IN_SCALE) continue;
        memcpy(changed, args, op->args_bytes);
        Operand *q = (Operand *)(void *)(changed + p->offset);
        if (q->data.data == NULL) continue;
        *q = operand_scaled(t, q->data);
        Status s = op_run(&t->ex, id, changed);
        CHECK(s == ERR_UNSUPPORTED || s == ERR_ARG);
        CHECK(strncmp(status_message(), op->name, strlen(op->name)) == 0);
        CHECK(strstr(status_message(), "is of kind") != NULL ||
              strstr(status_message(), "must be transposed") != NULL ||
              strstr(status_message(), "turned is absent") != NULL ||
              strstr(status_message(), "8-bit results need") != NULL);
        operands++;
    }
    return operands;
}

#endif
