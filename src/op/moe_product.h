/* moe_product: the experts' products as both backends see them. Four ops multiply routed rows by
 * the experts' weights and differ in what they do with the result; two ops sum over rows. */
#ifndef OP_MOE_PRODUCT_H
#define OP_MOE_PRODUCT_H

#include "base/status.h"
#include "op/moe.h"

/* What happens to a row of a product. */
typedef enum MoeEpilogue { MOE_STORE, MOE_SWIGLU, MOE_SWIGLU_BACKWARD } MoeEpilogue;

/* c_r = in[row_token[r]] W_e^T (turned) or in[row_token[r]] W_e, for the rows r of expert e. */
typedef struct MoeProduct {
    struct { /* who reads what */
        const char *op, *in_port;
        const Operand *in, *w;
        const Tensor *offsets;
        const Tensor *row_token; /* NULL: `in` has a row for each routed row */
        const Rows *rows;
        /* A pool's first row (Rows.first) for `in`, if rows are stored as they are, else for what the
         * epilogue reads and writes but `result`; NULL: there is none */
        const int32_t *first;
    };
    struct {
        int64_t I, O; /* columns of in and of c */
        bool turned;
        const Tensor *bias; /* (E, O), added to c; without data, or NULL: none */
    };
    struct {                  /* what is written */
        const Tensor *result; /* an output of type act with a row for each routed row */
        const Tensor *out;    /* c is stored there as it is, if the types allow; NULL: it is not */
        const Tensor *zeroed; /* set to 0 first, as not every row writes its place; NULL: none */
        const Tensor *pool;   /* what an epilogue has there, if `first` is given */
        double row_bytes;     /* bytes for each routed row of all tensors but in and w */
    };
    struct { /* nothing with MOE_STORE */
        MoeEpilogue epilogue;
        const void *args; /* the op's arguments */
        /* On the CPU: the op's other tensors fit R routed rows; f32 row r of c becomes results. */
        Status (*check)(const void *args, int64_t R);
        Status (*finish)(const void *args, int64_t expert, int64_t r, const float *c);
    };
} MoeProduct;

static inline bool moe_product_biased(const MoeProduct *p)
{
    return p->bias != NULL && p->bias->data != NULL;
}

/* The weight gradients, one sum seen from two sides. One operand has width D and is read by token
 * (x for dW1, dy for dW2), the other has a row for each routed row (dpre, wact):
 *
 *   dW1_e (2F, D) += sum over r of dpre_r^T x[row_token[r]]        D: columns of the result
 *   dW2_e (D, F)  += sum over r of dy[row_token[r]]^T wact_r       D: its rows (token_first) */
typedef struct MoeSum {
    const char *op, *token_port, *row_port;
    const Operand *by_token, *by_row;
    const Tensor *offsets, *row_token, *dw;
    const Rows *rows;
    const int32_t *first; /* of by_row in a pool, or NULL */
    bool token_first;
    bool overwrite; /* = instead of += */
} MoeSum;

/* A grouped product as kernels see it: what decides which of them multiplies (product_kernels.c). */
enum { GROUPED_AT = 5, GROUPED_HOPPER_EXPERTS = 4096 };
typedef struct GroupedCall {
    const Operand *a, *b;
    int64_t experts;
    const void *at[GROUPED_AT]; /* other memory that is read or written by rows; NULL: none */
    int64_t width[2];           /* of rows, in elements */
    const void *product;        /* the MoeProduct or MoeSum */
} GroupedCall;

#endif
