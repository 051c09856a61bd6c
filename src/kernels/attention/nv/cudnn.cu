/* cudnn: opens cuDNN, builds graphs of operations node by node, and finds and runs their plans. It
 * knows nothing of attention, whose graphs are in attention_cudnn.cu. */
#include "kernels/attention/nv/cudnn.cuh"

extern "C" {
#include "engine/host/library.h"
}

#include <dlfcn.h>
#include <stddef.h>

/* The library */

static int ask_version(const void *calls) { return (int)((const CudnnCalls *)calls)->version(); }

/* Versions before 9.16 do not mask keys after the last one of a sequence if its length is not a
 * multiple of 128. */
void cudnn_open(Cudnn *c)
{
    static const LibraryCall calls[] = {
#define CALL(as, function) { #function, NULL, offsetof(CudnnCalls, as), false },
        CUDNN_CALLS(CALL)
#undef CALL
    };
    static const Library library = { "libcudnn.so.9",
                                     "attention",
                                     "install cuDNN 9.16 or later, or set LD_LIBRARY_PATH",
                                     calls,
                                     sizeof calls / sizeof *calls,
                                     91600,
                                     ask_version };
    *c = {};
    if (library_open(&library, &c->call, &c->file) == OK) return;
    status_sentence(c->why, sizeof c->why);
    status_clear();
}

void cudnn_close(Cudnn *c)
{
    if (c->handle != NULL) c->call.destroy(c->handle);
    if (c->file != NULL) dlclose(c->file);
    *c = {};
}

/* "Not supported" is no error of the device: the caller then tries another kernel. */
static Status cudnn_status(const Cudnn *c, cudnnStatus_t e, const char *what)
{
    char text[256] = "";
    if (e == CUDNN_STATUS_SUCCESS) return OK;
    c->call.last_error(text, sizeof text);
    bool refused = CUDNN_STATUS_CATEGORY(e) == CUDNN_STATUS_NOT_SUPPORTED;
    return FAIL(refused ? ERR_UNSUPPORTED : ERR_DEVICE, "cuDNN: %s: %s%s%s", what,
                c->call.error_text(e), text[0] == 0 ? "" : ": ", text);
}

/* A handle takes time and device memory, so it is made only when a call of attention needs it. */
Status cudnn_start(Cudnn *c, cudaStream_t stream)
{
    if (c->handle != NULL) return OK;
    TRY(cudnn_status(c, c->call.create(&c->handle), "start"));
    return cudnn_status(c, c->call.set_stream(c->handle, stream), "stream");
}

/* Graphs */

/* Only the first failure counts: what follows it are calls on descriptors that were never
 * finished. */
static void status_keep(CudnnGraph *g, cudnnStatus_t e, const char *what)
{
    if (g->status == OK) g->status = cudnn_status(g->cudnn, e, what);
}

/* NULL after a failure. Later calls pass NULL on, and part_set does nothing then. */
static cudnnBackendDescriptor_t part_make(CudnnGraph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;
    if (g->status == OK && g->parts == GRAPH_PARTS_MAX)
        g->status = FAIL(ERR_UNSUPPORTED, "cuDNN: a graph of more than %d parts", GRAPH_PARTS_MAX);
    if (g->status != OK) return NULL;
    status_keep(g, g->cudnn->call.make(type, &d), "descriptor");
    if (g->status == OK) g->part[g->parts++] = d;
    return d;
}

static void part_set(CudnnGraph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t n, const void *value)
{
    if (g->status == OK) status_keep(g, g->cudnn->call.set(d, name, type, n, value), "attribute");
}

static void part_set_part(CudnnGraph *g, cudnnBackendDescriptor_t d,
                          cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    part_set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* NO_NODE leaves the attribute unset: the operation has no such argument. */
static void part_set_node(CudnnGraph *g, cudnnBackendDescriptor_t d,
                          cudnnBackendAttributeName_t name, Node x)
{
    if (g->status == OK && x != NO_NODE) part_set_part(g, d, name, g->node[x]);
}

static void part_finish(CudnnGraph *g, cudnnBackendDescriptor_t d, const char *what)
{
    if (g->status == OK) status_keep(g, g->cudnn->call.finalize(d), what);
}

/* Operations must be finished before the graph lists them. */
static void finish_op(CudnnGraph *g, cudnnBackendDescriptor_t op, const char *what)
{
    part_finish(g, op, what);
    if (g->status == OK && g->ops == GRAPH_OPS_MAX)
        g->status = FAIL(ERR_UNSUPPORTED, "cuDNN: a graph of more than %d ops", GRAPH_OPS_MAX);
    if (g->status == OK) g->op[g->ops++] = op;
}

/* cuDNN's ids of nodes begin at 1. */
static int64_t id_of(Node x) { return x + 1; }

/* Rows of bf16 are read 16 bytes at a time, other types by element. */
static int64_t alignment(cudnnDataType_t type) { return type == CUDNN_DATA_BFLOAT16 ? 16 : 4; }

/* Strides are cuDNN's idea of the layout: a transposed view is the same memory with exchanged
 * strides. */
Node graph_node(CudnnGraph *g, NodeShape shape, cudnnDataType_t type, NodeKind kind)
{
    int64_t align = alignment(type), id = id_of(g->nodes);
    bool is_virtual = kind == NODE_VIRTUAL, by_value = kind == NODE_VALUE;
    cudnnBackendDescriptor_t d = part_make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    part_set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    part_set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape.dim);
    part_set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, shape.stride);
    part_set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    part_set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
    part_set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    part_set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    part_finish(g, d, "tensor");
    if (g->status == OK && g->nodes == GRAPH_NODES_MAX)
        g->status = FAIL(ERR_UNSUPPORTED, "cuDNN: more than %d tensors", GRAPH_NODES_MAX);
    if (g->status != OK) return 0;
    g->shape[g->nodes] = shape;
    g->node[g->nodes] = d;
    return g->nodes++;
}

Node graph_value(CudnnGraph *g, cudnnDataType_t type)
{
    const NodeShape one = { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } };
    return graph_node(g, one, type, NODE_VALUE);
}

Node graph_typed_like(CudnnGraph *g, Node x, cudnnDataType_t type)
{
    return graph_node(g, g->shape[x], type, NODE_VIRTUAL);
}

Node graph_like(CudnnGraph *g, Node x) { return graph_typed_like(g, x, CUDNN_DATA_FLOAT); }

NodeShape node_transposed(const NodeShape &s)
{
    return { { s.dim[0], s.dim[1], s.dim[3], s.dim[2] },
             { s.stride[0], s.stride[1], s.stride[3], s.stride[2] } };
}

/* Sums are f32, whatever the types of a and b are. */
void graph_matmul(CudnnGraph *g, Node a, Node b, Node c)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t kind = part_make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    part_set(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    part_finish(g, kind, "product");
    cudnnBackendDescriptor_t op = part_make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    part_set_part(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    finish_op(g, op, "product");
}

/* An elementwise operation. t: selects x or b (select); axis: along which an index counts. */
typedef struct Pointwise {
    cudnnPointwiseMode_t op;
    cudnnDataType_t compute;
    Node x, b, t, y;
    int64_t axis;
} Pointwise;

static void pointwise(CudnnGraph *g, const Pointwise &p)
{
    cudnnBackendDescriptor_t kind = part_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    part_set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.op);
    part_set(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.compute);
    if (p.op == CUDNN_POINTWISE_GEN_INDEX)
        part_set(g, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis);
    part_finish(g, kind, "elementwise op");
    cudnnBackendDescriptor_t op = part_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    part_set_part(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p.x);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p.b);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p.t);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, p.y);
    finish_op(g, op, "elementwise op");
}

void graph_pointwise(CudnnGraph *g, cudnnPointwiseMode_t op, Node x, Node b, Node y)
{
    pointwise(g, { op, CUDNN_DATA_FLOAT, x, b, NO_NODE, y, 0 });
}

Node graph_map(CudnnGraph *g, cudnnPointwiseMode_t op, Node x, Node b)
{
    Node y = graph_like(g, x);
    graph_pointwise(g, op, x, b, y);
    return y;
}

/* Compares in cuDNN's boolean type, which graph_select reads. */
Node graph_at_least(CudnnGraph *g, Node x, Node b)
{
    Node y = graph_typed_like(g, x, CUDNN_DATA_BOOLEAN);
    pointwise(g, { CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, x, b, NO_NODE, y, 0 });
    return y;
}

Node graph_sum_above(CudnnGraph *g, Node x, Node y, Node b)
{
    Node sum = graph_typed_like(g, x, CUDNN_DATA_INT32);
    Node above = graph_typed_like(g, x, CUDNN_DATA_BOOLEAN);
    pointwise(g, { CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, x, y, NO_NODE, sum, 0 });
    pointwise(g, { CUDNN_POINTWISE_CMP_GT, CUDNN_DATA_BOOLEAN, sum, b, NO_NODE, above, 0 });
    return above;
}

Node graph_select(CudnnGraph *g, Node where, Node x, Node other)
{
    Node y = graph_like(g, x);
    pointwise(g, { CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, other, where, y, 0 });
    return y;
}

/* GEN_INDEX has one input, which gives the shape alone; its values are not read. */
Node graph_index(CudnnGraph *g, Node like, int64_t axis)
{
    Node y = graph_typed_like(g, like, CUDNN_DATA_INT32);
    pointwise(g, { CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, like, NO_NODE, NO_NODE, y, axis });
    return y;
}

void graph_reduce(CudnnGraph *g, cudnnReduceTensorOp_t op, Node x, Node y)
{
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t kind = part_make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    part_set(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    part_set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
    part_finish(g, kind, "reduction");
    cudnnBackendDescriptor_t d = part_make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    part_set_node(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    part_set_node(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    part_set_part(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    finish_op(g, d, "reduction");
}

void graph_reshape(CudnnGraph *g, Node x, Node y)
{
    cudnnBackendDescriptor_t op = part_make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    part_set_node(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_op(g, op, "view");
}

/* Plans */

enum { PROPOSALS_MAX = 8, NOTES_MAX = CUDNN_NUMERICAL_NOTE_TYPE_COUNT };

/* What kind of plan is searched for, and what rejected proposals would have needed. */
typedef struct Search {
    bool one_order;
    size_t limit_bytes, least_bytes; /* least_bytes: the smallest need above the limit; 0: none */
    CudnnPlan plan;
} Search;

/* If cuDNN does not answer, the engine counts as not deterministic, which is the safe side. */
static bool in_any_order(const Cudnn *c, cudnnBackendDescriptor_t config)
{
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t note[NOTES_MAX];
    int64_t n = 0;
    bool any = true;
    if (c->call.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) return true;
    if (c->call.get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                    &engine) == CUDNN_STATUS_SUCCESS &&
        c->call.get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, NOTES_MAX,
                    &n, note) == CUDNN_STATUS_SUCCESS) {
        any = false;
        for (int64_t i = 0; i < n && i < NOTES_MAX; i++)
            any |= note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    }
    c->call.drop(engine);
    return any;
}

/* Compiles one proposal; true if it fits the limits and is now s->plan. */
static bool plan_try(const Cudnn *c, cudnnBackendDescriptor_t config, Search *s)
{
    cudnnBackendDescriptor_t plan = NULL;
    cudnnHandle_t handle = c->handle;
    int64_t bytes = 0, n = 0;
    if (s->one_order && in_any_order(c, config)) return false;
    if (c->call.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS)
        return false;
    bool good = c->call.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                            &handle) == CUDNN_STATUS_SUCCESS &&
                c->call.set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config) == CUDNN_STATUS_SUCCESS &&
                c->call.finalize(plan) == CUDNN_STATUS_SUCCESS &&
                c->call.get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                            &bytes) == CUDNN_STATUS_SUCCESS;
    size_t wants = (size_t)bytes;
    if (good && wants > s->limit_bytes && (s->least_bytes == 0 || wants < s->least_bytes))
        s->least_bytes = wants;
    if (good && wants <= s->limit_bytes) {
        s->plan = { config, plan, wants };
        return true;
    }
    c->call.drop(plan);
    return false;
}

/* Tries cuDNN's proposals for a finished graph, in its order. Mode A is cuDNN's fast heuristic,
 * without measurements. All proposals but the chosen one are freed here. */
static void plan_search(CudnnGraph *g, cudnnBackendDescriptor_t graph, Search *s)
{
    const Cudnn *c = g->cudnn;
    cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t config[PROPOSALS_MAX] = {};
    int64_t n = 0;
    cudnnBackendDescriptor_t d = part_make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    part_set_part(g, d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    part_set(g, d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    part_finish(g, d, "proposals");
    for (auto &x : config) {
        if (g->status == OK)
            status_keep(g, c->call.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &x), "plan");
    }
    if (g->status == OK)
        status_keep(g,
                    c->call.get(d, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                PROPOSALS_MAX, &n, config),
                    "proposals");
    for (int i = 0; i < PROPOSALS_MAX; i++) {
        bool chosen = g->status == OK && i < n && s->plan.plan == NULL && plan_try(c, config[i], s);
        if (!chosen && config[i] != NULL) c->call.drop(config[i]);
    }
}

/* Parts are freed from the last to the first, because later ones refer to earlier ones. A finished
 * plan needs none of them. */
Status graph_plan(CudnnGraph *g, bool one_order, size_t workspace_bytes, CudnnPlan *out)
{
    Search s = { one_order, workspace_bytes, 0, {} };
    cudnnHandle_t handle = g->cudnn->handle;
    cudnnBackendDescriptor_t graph = part_make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    part_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    part_set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->ops, g->op);
    part_finish(g, graph, "graph");
    if (g->status == OK) plan_search(g, graph, &s);
    for (int i = g->parts; i > 0; i--) g->cudnn->call.drop(g->part[i - 1]);
    g->parts = 0;
    TRY(g->status);
    if (s.plan.plan == NULL && s.least_bytes > 0) {
        return FAIL(ERR_DEVICE,
                    "cuDNN %zu wants %zu bytes of workspace where %zu were planned for its kernel",
                    g->cudnn->call.version(), s.least_bytes, workspace_bytes);
    }
    if (s.plan.plan == NULL) {
        return FAIL(ERR_UNSUPPORTED, "cuDNN %zu has no %skernel for it on this GPU",
                    g->cudnn->call.version(), one_order ? "deterministic " : "");
    }
    *out = s.plan;
    return OK;
}

void cudnn_bind(CudnnBound *b, Node x, void *at)
{
    b->node[b->n] = id_of(x);
    b->at[b->n] = at;
    b->n++;
}

/* A variant pack is the list of arguments of one call. It is not needed once the launch has
 * returned. */
Status plan_run(const Cudnn *c, const CudnnPlan *p, const CudnnBound *bound, void *workspace)
{
    cudnnBackendDescriptor_t pack = NULL;
    TRY(cudnn_status(c, c->call.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack), "arguments"));
    cudnnStatus_t e = c->call.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                  bound->n, bound->node);
    if (e == CUDNN_STATUS_SUCCESS)
        e = c->call.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, bound->n,
                        bound->at);
    if (e == CUDNN_STATUS_SUCCESS)
        e = c->call.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                        &workspace);
    if (e == CUDNN_STATUS_SUCCESS) e = c->call.finalize(pack);
    if (e == CUDNN_STATUS_SUCCESS) e = c->call.execute(c->handle, p->plan, pack);
    Status s = cudnn_status(c, e, "run");
    c->call.drop(pack);
    return s;
}

void plan_free(const Cudnn *c, CudnnPlan *p)
{
    if (p->plan != NULL) c->call.drop(p->plan);
    if (p->config != NULL) c->call.drop(p->config);
    *p = {};
}
