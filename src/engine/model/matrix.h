/*
 * matrix: a layer's weights as it reads them: the parameters of one role, side by side, as one
 * fused matrix, and the copies that are computed from it.
 *
 * The main weights of a matrix are f32, and ranks may hold pieces of them (engine/model/piece.h, ZeRO).
 * Products read the main weights, or a copy of another type. The update writes copies, since it has
 * each element in a register anyway; copies_refresh makes them after a load (engine/step/copies.h).
 *
 * A kind of copy is a row of the table: which operand it gives to a product, and how many bytes it
 * takes. The plan asks the row. A kind with scales, or a transposed copy, needs a row here, the op
 * that makes it, and its memory (params_alloc).
 *
 * Not here: buckets and the flat space (params.h), and products (kernels/dense/linear.h, kernels/moe/moe.h).
 */
#ifndef ENGINE_MODEL_MATRIX_H
#define ENGINE_MODEL_MATRIX_H

#include "engine/model/optimizer.h"
#include "kernels/core/operand.h"

/* What a layer uses a matrix for. */
typedef enum ParamRole {
    ROLE_TABLE,          /* embedding (V, D) */
    ROLE_NORM,           /* (D): the norm that a layer begins with, or the last one */
    ROLE_Q,              /* mla without q rank: (H*dqk, D) */
    ROLE_A,              /* mla: [q_a |] kv_a down-projections; gqa: q, k, v; delta: all it reads */
    ROLE_A_BIAS,         /* one number for each row of ROLE_A */
    ROLE_Q_NORM,         /* mla: of the latent; gqa: of each head */
    ROLE_KV_NORM,        /* mla: of the latent of keys and values; gqa: of k's heads */
    ROLE_Q_B,            /* mla: (H*dqk, q rank) */
    ROLE_KV_B,           /* mla: (H*(nope+v), kv rank) */
    ROLE_O,              /* (D, H*dv) */
    ROLE_O_BIAS,         /* (D) */
    ROLE_SINKS,          /* (H) */
    ROLE_CONV,           /* delta: (columns of q, k and v, taps) */
    ROLE_DECAY,          /* delta: A of each value head, then dt */
    ROLE_DELTA_NORM,     /* delta: (Dv), which all heads share */
    ROLE_GATE_UP,        /* (2F, D) */
    ROLE_DOWN,           /* (D, F) */
    ROLE_ROUTER,         /* (E, D): f32 */
    ROLE_ROUTER_BIAS,    /* steers the choice; not trained */
    ROLE_ROUTER_SHIFT,   /* trained: a bias of the logits */
    ROLE_SHARED_GATE,    /* (1, D) */
    ROLE_EXPERT_GATE_UP, /* (E, 2F, D) */
    ROLE_EXPERT_DOWN,    /* (E, D, F) */
    ROLE_EXPERT_GATE_UP_BIAS, /* (E, 2F) */
    ROLE_EXPERT_DOWN_BIAS,    /* (E, D) */
    ROLE_ENORM,               /* multi-token prediction: norm of the next token's embedding */
    ROLE_HNORM,               /* norm of the hidden state of the depth before */
    ROLE_EH_PROJ,             /* (D, 2D): projects both, side by side */
    ROLE_HEAD,                /* (V, D); a tied model has none */
    ROLE_COUNT
} ParamRole;

/* Roles whose gradients have a norm of their own in metrics. */
typedef enum GradGroup {
#define GRAD_GROUP(NAME, name, what, roles) GRAD_##NAME,
#include "engine/model/grad_group.def"
#undef GRAD_GROUP
    GRAD_GROUPS
} GradGroup;

extern const char *const grad_group_names[GRAD_GROUPS];
GradGroup grad_group(ParamRole role);

typedef enum CopyKind { COPY_PLAIN, COPY_KINDS } CopyKind;

/* A copy that every matrix of a model has, except those that stay in f32. */
typedef struct CopySpec {
    CopyKind kind;
    Dtype type;
    bool transposed; /* (cols, rows) */
} CopySpec;

typedef struct CopyDesc {
    OperandKind operand; /* what a product is given */
    /* Bytes of (rows, cols) in this type, scales included. */
    double (*bytes)(Dtype type, int64_t rows, int64_t cols);
} CopyDesc;

const CopyDesc *copy_desc(CopyKind kind);

enum { COPIES_MAX = 2 }; /* as stored, and transposed */

/* The copies of a model's matrices. n 0: products read the main weights. */
typedef struct CopySet {
    CopySpec at[COPIES_MAX];
    int n;
} CopySet;

/* Plain copies of this type; f32: none. */
CopySet copies_plain(Dtype type);
/* Type of the weights that products read. */
Dtype copies_type(const CopySet *c);
/* Bytes that products read of a (rows, cols) matrix: its copies, or the main weights. */
double copies_bytes(const CopySet *c, int64_t rows, int64_t cols);

/* The parameters of one role in one layer. */
typedef struct Matrix {
    int layer;
    ParamRole role;
    int bucket;     /* -1: not trained (BUF_STATE) */
    int64_t first;  /* its first element within the bucket, or within BUF_STATE */
    int rank;       /* dimensions; vectors are a matrix of one row */
    int64_t dim[3]; /* (rows, cols), or of all experts (E, rows, cols) or (E, cols) */
    int expert;     /* of the first parameter; -1: no expert's */
    bool keep_f32;  /* products read the main weights, whatever other matrices have */
} Matrix;

/* Appends the next parameter to the matrix: `dim` has one or two dimensions; expert -1: no expert's. Experts lie as
 * gate_0 up_0 gate_1 up_1 ...: the first expert's parameters add rows, later experts only add to E. */
void matrix_grow(Matrix *m, int rank, const int64_t *dim, int expert);

/* The matrix that lies at data, of this type. */
Tensor matrix_at(const Matrix *m, void *data, Dtype type);
int64_t matrix_elems(const Matrix *m);

/* Cuts a run of n matrices into parts for `ranks` ranks, so that none is divided. cost: of each;
 * end[r]: the number of matrices in the parts of ranks 0 to r. Parts have about the same cost: each
 * boundary is the one nearest to the rank's share. */
void matrix_cut(const double *cost, int n, int64_t ranks, int *end);

#endif
