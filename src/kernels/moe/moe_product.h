/*
 * moe_product: the experts' products as both backends see them. Four ops multiply routed rows by the experts' weights
 * and differ in what they do with the result (MoeProduct). Two ops sum over rows, the weight gradients (MoeSum). Views
 * hold pointers into an op's arguments and live for one call.
 */
#ifndef KERNELS_MOE_MOE_PRODUCT_H
#define KERNELS_MOE_MOE_PRODUCT_H

#include "engine/base/status.h"
#include "kernels/moe/moe.h"

/* What happens to a row of a product before it is stored. */
typedef enum MoeEpilogue { MOE_STORE, MOE_SWIGLU, MOE_SWIGLU_BACKWARD } MoeEpilogue;

/* c_r = in[row_token[r]] W_e^T (turned) or in[row_token[r]] W_e, for the rows r of expert e. */
typedef struct MoeProduct {
    struct { /* what is read */
        const char *op, *in_port;
        const Operand *in, *w;
        const Tensor *offsets;
        const Tensor *row_token; /* NULL: `in` has a row for each routed row */
        const Rows *rows;
        /* The first row in a pool (Rows.first); NULL: there is no pool. With MOE_STORE it is `in`
         * that lies in the pool, else what the epilogue reads and writes, except `result`. */
        const int32_t *first;
    };
    struct {
        int64_t I, O; /* columns of in and of c */
        bool turned;
        const Tensor *bias; /* (E, O), added to c; without data, or NULL: none */
    };
    struct {                  /* what is written */
        const Tensor *result; /* the last output; plain, it has a row for each routed row */
        Dtype act;
        int64_t R, width;     /* rows and columns of the result, as a plain one has them */
        bool narrow;          /* results have 8 bits, or pre has */
        const Tensor *out;    /* c is stored here; NULL: only the epilogue's results are */
        const Tensor *zeroed; /* cleared first, since rows need not write all of it; NULL: none */
        const Tensor *pool;   /* with `first`: the pooled tensor of the epilogue */
        double row_bytes;     /* for costs: bytes a routed row of all tensors except in and w */
    };
    struct { /* with MOE_STORE all but `epilogue` are NULL */
        MoeEpilogue epilogue;
        const void *args; /* the op's arguments */
        /* check: do the op's other tensors fit R routed rows? finish, on the CPU only: turns row r
         * of c, in f32, into the op's results. */
        Status (*check)(const void *args, int64_t R);
        Status (*finish)(const void *args, int64_t expert, int64_t r, const float *c);
    };
} MoeProduct;

static inline bool moe_product_biased(const MoeProduct *p)
{
    return p->bias != NULL && p->bias->data != NULL;
}

/* The type of values whose 8-bit form is stored: that of a plain one among these, or what f32 says. c may be NULL. */
Dtype moe_act_type(const Operand *a, const Operand *b, const Operand *c, bool f32);
/* For checks: q, what an epilogue reads or writes, is (rows, cols), plain of type act or 8-bit. */
Status moe_result_check(const char *op, const char *port, const Operand *q, int64_t rows,
                        int64_t cols, Dtype act);
/* The same of the 8-bit columns of `cols` values of each routed row. */
Status moe_columns_check(const char *op, const char *port, const Operand *q, const Rows *rows,
                         int64_t experts, int64_t cols);
/* For costs: bytes of a routed row with this many columns. */
double moe_result_bytes(const Operand *q, int64_t cols);

/* The two weight gradients as one kind of sum. One operand has width D and is read by token (x for
 * dW1, dy for dW2); the other has a row for each routed row (dpre, wact):
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

/* A call with 8-bit results as several ops (moe_apart.c). CPUs run this, and GPUs where no kernel makes
 * all results at once. */
size_t moe_apart_workspace(const struct Exec *ex, const MoeProduct *p);
Status moe_apart_run(struct Exec *ex, const MoeProduct *p);
#ifdef __cplusplus
extern "C" {
#endif
/* Bytes of workspace: `shares` where one kernel of the device, or of the GPU of a plan, makes all results. */
size_t moe_narrow_workspace(const struct Exec *ex, const MoeProduct *p, size_t shares);
#ifdef __cplusplus
}
#endif

/* A grouped product as candidates see it: everything that decides which kernel runs it (product_kernels.c). */
enum { GROUPED_AT = 5, GROUPED_HOPPER_EXPERTS = 4096 };
typedef struct GroupedCall {
    const Operand *a, *b;
    int64_t experts;
    const void *at[GROUPED_AT]; /* other memory that is read or written in rows; NULL: none */
    int64_t width[2];           /* of rows, in elements */
    const void *product;        /* the MoeProduct or MoeSum */
} GroupedCall;

#endif
