/*
 * cudnn: cuDNN 9's backend API: operation graphs, and plans that run them.
 *
 * The library is opened at run time; if it is missing, `why` says so. A graph is built op by op.
 * Tensors are numbers (Node); intermediate ones are virtual and are never in memory. The first
 * failure is kept in `status`, and later calls do nothing, so code that builds a graph needs no
 * checks. A plan is a graph for which cuDNN found and compiled a kernel, which takes about a
 * second. Running a plan does not wait. Used inside ops only.
 */
#ifndef KERNELS_ATTENTION_NV_CUDNN_CUH
#define KERNELS_ATTENTION_NV_CUDNN_CUH

#include "kernels/core/kernel.cuh"

#include <cudnn_backend.h>

enum {
    CUDNN_WHY_MAX = 800,
    GRAPH_NODES_MAX = 56,
    GRAPH_OPS_MAX = 40,
    GRAPH_PARTS_MAX = 136, /* descriptors of tensors, ops and ops' kinds */
    BOUND_MAX = 20         /* tensors of a graph that the caller gives */
};

/* The functions that are used, under the names that they have here. */
#define CUDNN_CALLS(CALL)                                                                          \
    CALL(version, cudnnGetVersion)                                                                 \
    CALL(create, cudnnCreate)                                                                      \
    CALL(destroy, cudnnDestroy)                                                                    \
    CALL(set_stream, cudnnSetStream)                                                               \
    CALL(error_text, cudnnGetErrorString)                                                          \
    CALL(last_error, cudnnGetLastErrorString)                                                      \
    CALL(make, cudnnBackendCreateDescriptor)                                                       \
    CALL(drop, cudnnBackendDestroyDescriptor)                                                      \
    CALL(set, cudnnBackendSetAttribute)                                                            \
    CALL(get, cudnnBackendGetAttribute)                                                            \
    CALL(finalize, cudnnBackendFinalize)                                                           \
    CALL(execute, cudnnBackendExecute)

typedef struct CudnnCalls {
#define CALL(as, function) decltype(&function) as;
    CUDNN_CALLS(CALL)
#undef CALL
} CudnnCalls;

typedef struct Cudnn {
    void *file; /* NULL: cuDNN is not usable; `why` says why */
    CudnnCalls call;
    cudnnHandle_t handle; /* made for the first plan */
    char why[CUDNN_WHY_MAX];
} Cudnn;

typedef int Node;
static const Node NO_NODE = -1;

typedef struct NodeShape {
    int64_t dim[4], stride[4]; /* in elements */
} NodeShape;

/* MEMORY: the caller gives its address; VALUE: one number of the host, copied at the call. */
typedef enum NodeKind { NODE_MEMORY, NODE_VIRTUAL, NODE_VALUE } NodeKind;

/* `part` holds every descriptor in the order of creation, for freeing; node and op are two views of
 * some of them. */
typedef struct CudnnGraph {
    const Cudnn *cudnn;
    Status status;
    NodeShape shape[GRAPH_NODES_MAX];
    cudnnBackendDescriptor_t node[GRAPH_NODES_MAX], op[GRAPH_OPS_MAX], part[GRAPH_PARTS_MAX];
    int nodes, ops, parts;
} CudnnGraph;

/* Owned by the caller until plan_free. The plan refers to its configuration, so both live equally
 * long. */
typedef struct CudnnPlan {
    cudnnBackendDescriptor_t config, plan; /* plan NULL: none */
    size_t workspace_bytes;
} CudnnPlan;

/* Opens the library. On failure c->why is set and c->file is NULL. */
void cudnn_open(Cudnn *c);
void cudnn_close(Cudnn *c);
/* Makes the handle if there is none; its work goes to `stream`. */
Status cudnn_start(Cudnn *c, cudaStream_t stream);

Node graph_node(CudnnGraph *g, NodeShape shape, cudnnDataType_t type, NodeKind kind);
Node graph_value(CudnnGraph *g, cudnnDataType_t type);
/* A virtual f32 (or other) tensor of x's shape. */
Node graph_like(CudnnGraph *g, Node x);
Node graph_typed_like(CudnnGraph *g, Node x, cudnnDataType_t type);
/* The same elements with the last two dimensions exchanged. */
NodeShape node_transposed(const NodeShape &s);

/* c = a b over the last two dimensions. */
void graph_matmul(CudnnGraph *g, Node a, Node b, Node c);
/* y = x op b, element by element; b is NO_NODE for an operation with one argument. */
void graph_pointwise(CudnnGraph *g, cudnnPointwiseMode_t op, Node x, Node b, Node y);
/* The same into a new tensor like x. */
Node graph_map(CudnnGraph *g, cudnnPointwiseMode_t op, Node x, Node b);
/* In this order: x >= b; x + y > b for integers; x where `where` is true, else `other`; the index
 * of each element along `axis`. */
Node graph_at_least(CudnnGraph *g, Node x, Node b);
Node graph_sum_above(CudnnGraph *g, Node x, Node y, Node b);
Node graph_select(CudnnGraph *g, Node where, Node x, Node other);
Node graph_index(CudnnGraph *g, Node like, int64_t axis);
/* y = x, reduced over the dimensions in which y is smaller than x. */
void graph_reduce(CudnnGraph *g, cudnnReduceTensorOp_t op, Node x, Node y);
/* y is a view of x with y's shape. */
void graph_reshape(CudnnGraph *g, Node x, Node y);

/* Takes the first of cuDNN's proposals that compiles; with one_order only proposals whose sums
 * always have the same order. Fails if none compiles, or if all need more than `workspace_bytes`.
 * Frees the graph. */
Status graph_plan(CudnnGraph *g, bool one_order, size_t workspace_bytes, CudnnPlan *out);

/* The operands of a plan: addresses of its MEMORY nodes (device) and VALUE nodes (host). */
typedef struct CudnnBound {
    int64_t node[BOUND_MAX];
    void *at[BOUND_MAX];
    int n;
} CudnnBound;

/* At most BOUND_MAX for each call. `at` must stay valid until plan_run returns. */
void cudnn_bind(CudnnBound *b, Node x, void *at);

/* Launches on the stream of cudnn_start. `workspace` has at least p->workspace_bytes, on the
 * device. */
Status plan_run(const Cudnn *c, const CudnnPlan *p, const CudnnBound *bound, void *workspace);
void plan_free(const Cudnn *c, CudnnPlan *p);

#endif
