/* work: what bounds an op's speed, for whoever turns its cost into time. */
#ifndef OP_WORK_H
#define OP_WORK_H

typedef enum OpWork {
    WORK_MEMORY, /* its bytes alone */
    WORK_GEMM,
    WORK_GROUPED, /* products grouped by expert */
    WORK_ATTENTION,
    WORK_ATTENTION_BACKWARD,
    WORK_COMM, /* comm_bytes over the axis */
    WORK_COUNT
} OpWork;

extern const char *const op_work_names[WORK_COUNT];

typedef enum OpComm {
    COMM_NONE,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_SHIFT,
    COMM_ALL_REDUCE,
    COMM_EXCHANGE /* tokens to experts and back; size: bytes of one token's row */
} OpComm;

#endif
