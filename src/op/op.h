/*
 * op: the one door between model code and arithmetic.
 *
 * An op is a plain struct of arguments and an OpDesc that knows how to check it, what it costs, and
 * how to run it on each backend. Because every op goes through op_run, whatever wants to see all of
 * them (count, guard against NaN, the recorder's stamps) is written once, and needs no change when
 * an op is added.
 *
 * Dimension letters, here and in every op: B sequences, T tokens a sequence, N = B*T tokens, D
 * model width, H heads, G key/value heads, E experts, K experts a token, R = N*K routed rows, F
 * hidden width of an MLP, V vocabulary, I and O inputs and outputs of a linear map. A gradient is
 * the name with a d in front. Weights are (out, in), as in Hugging Face files: y = x W^T.
 *
 * Gradient rule of the whole program: gradients of parameters are f32 and accumulate (PORT_ADD);
 * gradients of activations are written (PORT_OUT), in the activations' type.
 *
 * Types: "act" below is f32 or bf16, the same in all tensors of a call that say so.
 *
 * This header knows every op's id and no op's arguments: it includes no header of an op, and
 * tools/check_layers holds it to that. A file that calls an op includes that op's header, whose last
 * lines declare its functions (op/declare.h).
 */
#ifndef OP_OP_H
#define OP_OP_H

#include "base/lane.h"
#include "base/tensor.h"
#include "comm/mesh.h"
#include "op/libraries.h"
#include "op/work.h"

#include <stdbool.h>

typedef struct Exec Exec;
typedef struct OpDesc OpDesc;

typedef enum PortDir {
    PORT_END,
    PORT_IN,
    PORT_OUT,
    PORT_OUT_POOL, /* the same, of a tensor that may be a pool: from Rows.first on */
    PORT_OUT_PART, /* only a window of its columns is written; another op writes the others */
    PORT_ADD,      /* read and accumulated into */
    PORT_IN_OPT,   /* the _OPT ones may have data == NULL: not given, not wanted */
    PORT_OUT_OPT,
    PORT_ADD_OPT,
    PORT_OUT_PART_OPT,
    PORT_IN_SCALE, /* the scale of the Operand before it; given if that Operand has scales */
    PORT_ROWS      /* not a tensor but a Rows, whose device pointer kernels read */
} PortDir;

typedef struct OpPort {
    const char *name;
    size_t offset; /* of a Tensor inside the argument struct */
    PortDir dir;
} OpPort;

typedef struct OpCost {
    double flops;      /* a multiply-add is two */
    double bytes;      /* the fewest bytes that must cross memory */
    double comm_bytes; /* bytes that one rank sends over the group `axis` of the mesh */
    int axis;
    OpWork work;
    Dtype dtype; /* products and attention: the type of their operands; mixed ones: the narrower */
    double size; /* the size on which the rate depends. Products: the smallest of m, n, k (grouped
                    ones: without m, the rows of an expert). Attention: the keys of a sequence.
                    Collectives: the bytes of the whole */
    OpComm comm;
} OpCost;

typedef Status OpCheck(const void *args);
typedef OpCost OpCostOf(const void *args);
typedef size_t OpSpace(const Exec *ex, const void *args);
typedef Status OpRun(Exec *ex, const void *args);

struct OpDesc {
    const char *name;
    size_t args_bytes;
    const OpPort *ports;
    OpCheck *check;
    OpCostOf *cost;
    /* Bytes of scratch that the CPU implementation needs with ex->threads threads; they lie at
     * ex->workspace. NULL: none. Must not read tensor data, because it also runs over counting
     * arenas. */
    OpSpace *workspace;
    OpRun *cpu;
    OpRun *cuda; /* NULL in a build without CUDA; workspace in device memory */
    OpSpace *cuda_workspace;
};

/* Where ops run and memory lives. */
typedef struct Backend {
    bool apart;    /* tensors lie in memory that the host reaches through copies alone */
    bool async;    /* `run` returns before the op has run, and lanes run beside each other */
    bool captures; /* work can be recorded as a graph; its first run loads and chooses kernels */
    Status (*run)(Exec *ex, const OpDesc *op, const void *args);
    Status (*alloc)(Exec *ex, MemKind kind, size_t bytes, void **out);
    void (*free)(Exec *ex, MemKind kind, void *at, size_t bytes);
    Status (*copy)(Exec *ex, void *dst, const void *src, size_t bytes);
    /* Copies to the host's memory. Waits for this lane alone, because other lanes may wait for what
     * this lane does next. */
    Status (*read)(Exec *ex, void *dst, const void *src, size_t bytes);
    Status (*fill)(Exec *ex, void *dst, int byte, size_t bytes);
    Status (*sync)(Exec *ex); /* waits for all lanes */
    /* Waits; the first element that is not finite and its value, or index -1. */
    Status (*find_bad)(Exec *ex, const Tensor *t, int64_t *index, double *value);
    const struct Streams *streams; /* of these two: backend/backend.h */
    const struct Graphs *graphs;
    void (*close)(Exec *ex); /* gives back what the Exec holds; NULL: nothing */
} Backend;

/* Sees every op on its way to the backend. It passes the op on with op_next, and finds itself at
 * ex->front[level]. */
typedef struct Decorator {
    Status (*run)(Exec *ex, int level, const OpDesc *op, const void *args);
    void *self;
} Decorator;

enum { EXEC_FRONT_MAX = 3 };

typedef struct OpTotals {
    double flops, bytes, comm_bytes;
    int64_t ops;
} OpTotals;

typedef enum OpId {
#define OP(ID, Args, stem, space, cuda_space) OP_##ID,
#include "op/ops.def"
    OP_ID_COUNT
} OpId;

enum { EXEC_NOTE_BYTES = 320 };

/* What ops have to say once: that a slower kernel runs than the one made for this device. */
typedef struct ExecNotes {
    const char *op[OP_ID_COUNT]; /* names of the table */
    char what[OP_ID_COUNT][EXEC_NOTE_BYTES];
    int n;
} ExecNotes;

struct Gemm;    /* op/gemm.h */
struct OpSet;   /* op/cpu_set.h */
struct GpuExec; /* gpu/gpu.h */

struct Exec {
    const Backend *backend;
    const Decorator *front[EXEC_FRONT_MAX]; /* outermost first */
    int depth;                              /* of these */
    Arena *scratch;                         /* of the lane */
    void *workspace;                        /* set by op_run for the op that is running */
    int threads;
    const struct OpSet *set;      /* the instruction set of CPU ops; NULL on a GPU */
    struct Gemm *gemm;            /* matrix products: chosen library, cached primitives */
    struct GpuExec *gpu;          /* the streams of the device that ops run on; NULL: the CPU */
    void *library[LIBRARY_COUNT]; /* of that device; NULL: not open */
    const struct KernelDevice
        *device;       /* what kernels may ask of it (op/kernels.h); NULL: the CPU */
    const Mesh *mesh;  /* the ranks to exchange with; NULL: this rank is alone */
    CommWindow *peers; /* their memory (exchange_open); NULL: none is open */
    Lane lane;         /* on a GPU: the stream that launches go to */
    OpTotals totals;   /* kept by count */
    int64_t waits;     /* how often the host has waited for the device so far */
    int64_t step;      /* for messages: what is running */
    int layer;         /* -1: none */
    ExecNotes notes;   /* kept by exec_note_once */
};

const OpDesc *op_desc(OpId id);

/* Checks, workspace, decorators, backend: the single entry. Without a result to make it does nothing. */
Status op_run(Exec *ex, OpId id, const void *args);

/* For decorators: go on to the next one below `level`, at last to the backend. */
Status op_next(Exec *ex, int level, const OpDesc *op, const void *args);

/* Keeps and logs the first thing that this Exec has to say about this op, whose name outlives the
 * Exec; `what` may be gone after the call. */
void exec_note_once(Exec *ex, const char *op, const char *what);

/* The tensor of a port. */
static inline const Tensor *op_port_tensor(const OpPort *p, const void *args)
{
    return (const Tensor *)(const void *)((const char *)args + p->offset);
}

/* OP_PORTS(add, IN(Add, x), ADD(Add, y)); in the order in which generic code walks them. */
/* clang-format off */
#define PORT(Args, field, dir_) { #field, offsetof(Args, field), dir_ }
#define PORTS_END               { NULL, 0, PORT_END }
#define OP_PORTS(stem, ...)     const OpPort stem##_ports[] = { __VA_ARGS__, PORTS_END }
#define IN(Args, field)         PORT(Args, field, PORT_IN)
#define IN_OPT(Args, field)     PORT(Args, field, PORT_IN_OPT)
#define OUT(Args, field)        PORT(Args, field, PORT_OUT)
#define OUT_POOL(Args, field)   PORT(Args, field, PORT_OUT_POOL)
#define OUT_PART(Args, field)   PORT(Args, field, PORT_OUT_PART)
#define OUT_OPT(Args, field)    PORT(Args, field, PORT_OUT_OPT)
#define OUT_PART_OPT(Args, f)   PORT(Args, f, PORT_OUT_PART_OPT)
#define ADD(Args, field)        PORT(Args, field, PORT_ADD)
#define ADD_OPT(Args, field)    PORT(Args, field, PORT_ADD_OPT)
#define ROWS(Args, field)       PORT(Args, field, PORT_ROWS)
/* An Operand (op/operand.h) is two ports: its data, which is its first member and has the field's
 * name, and its scale. */
#define OPERAND(Args, field, dir_, scale_dir)                                                        \
    PORT(Args, field, dir_),                                                                       \
    { #field ".scale", offsetof(Args, field) + offsetof(Operand, scale), scale_dir }
#define IN_OPERAND(Args, field)   OPERAND(Args, field, PORT_IN, PORT_IN_SCALE)
#define OUT_OPERAND(Args, field)  OPERAND(Args, field, PORT_OUT, PORT_OUT)
/* clang-format on */

/* For costs: the bytes of all given tensors, each once; tensors that are added to count twice. */
double op_port_bytes(OpId id, const void *args);

/* For check functions: FAIL(ERR_SHAPE) with op, port and both shapes unless t is rank-2-viewable as
 * (rows, cols) of `dtype`. rows or cols -1: any. */
Status op_expect(const char *op, const char *port, const Tensor *t, int64_t rows, int64_t cols,
                 Dtype dtype);
/* The same for "act": f32 or bf16. */
Status op_expect_act(const char *op, const char *port, const Tensor *t, int64_t rows, int64_t cols);
/* The same unless t has columns [col, col + n). */
Status op_expect_window(const char *op, const char *port, const Tensor *t, int64_t col, int64_t n);

#endif
