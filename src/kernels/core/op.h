/*
 * op: the single entry from model code to arithmetic.
 *
 * An op is a plain struct of arguments and an OpDesc that knows how to check it, what it costs, and how to run it on
 * each backend. Every op goes through op_run. So what has to see all ops (counting, the guard against NaN, the
 * recorder's stamps) is written once and does not change when an op is added.
 *
 * Dimension letters, here and in every op: B sequences, T tokens a sequence, N = B*T tokens, D
 * model width, H heads, G key/value heads, E experts, K experts a token, R = N*K routed rows, F
 * hidden width of an MLP, V vocabulary, I and O inputs and outputs of a linear map. A gradient is
 * the name with a d in front. Weights are (out, in), as in Hugging Face files: y = x W^T.
 *
 * Gradient rule of the whole program: gradients of parameters are f32 and accumulate (PORT_ADD);
 * gradients of activations are written (PORT_OUT), in the activations' type.
 *
 * Types: "act" below is f32, bf16 or f16 (CPU only), the same in all tensors of a call that say so.
 *
 * This header knows every op's id and no op's arguments: it includes no header of an op, and
 * tools/check_layers holds it to that. A file that calls an op includes that op's header, whose
 * last lines declare its functions (kernels/core/declare.h).
 */
#ifndef KERNELS_CORE_OP_H
#define KERNELS_CORE_OP_H

#include "engine/base/lane.h"
#include "engine/base/tensor.h"
#include "engine/comm/mesh.h"
#include "kernels/core/vendor.h"
#include "kernels/core/work.h"

#include <stdbool.h>

typedef struct Exec Exec;
typedef struct OpDesc OpDesc;

typedef enum PortDir {
    PORT_END,
    PORT_IN,
    PORT_OUT,
    PORT_OUT_POOL, /* an output that may be a pool: rows from Rows.first on are written */
    PORT_OUT_PART, /* an output of which only a window of columns is written */
    PORT_ADD,      /* read and accumulated into */
    PORT_IN_OPT,   /* _OPT: data may be NULL, which means not given or not wanted */
    PORT_OUT_OPT,
    PORT_ADD_OPT,
    PORT_OUT_PART_OPT,
    PORT_IN_SCALE, /* the scale of the Operand in the port before; NULL if that has no scales */
    PORT_ROWS      /* not a Tensor but a Rows, whose device pointer kernels read */
} PortDir;

typedef struct OpPort {
    const char *name;
    size_t offset; /* of the Tensor inside the argument struct, in bytes */
    PortDir dir;
} OpPort;

typedef struct OpCost {
    double flops;      /* a multiply-add is two */
    double bytes;      /* the fewest bytes that must be read and written */
    double comm_bytes; /* bytes that one rank sends over the group `axis` of the mesh */
    double
        sum_bytes; /* weight gradients: bytes of the sums that the product is added to, which it reads last */
    int axis;
    OpWork work;
    Dtype dtype; /* products and attention: the type of their operands; mixed ones: the narrower */
    double
        size; /* the rate depends on it. Products: the smallest of m, n, k (grouped ones: of n and
                    k, not the rows of an expert). Attention: keys of a sequence. Collectives: bytes
                    of the whole tensor */
    OpComm comm;
    const struct AttentionWord *kernel; /* attention: which runs (kernels/core/kinds.h) */
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
    /* Bytes of scratch that the CPU implementation needs with ex->threads threads. op_run places them at ex->workspace.
     * NULL: none. Must not read tensor data: it also runs over arenas that only count and have no memory. */
    OpSpace *workspace;
    OpRun *cpu;
    OpRun *gpu;             /* NULL in a build without CUDA */
    OpSpace *gpu_workspace; /* bytes of device memory; NULL: none */
};

/* Where ops run and memory lives. */
typedef struct Backend {
    bool apart;    /* tensors lie in memory that the host can only access by copies */
    bool async;    /* `run` returns before the op has run, and lanes run concurrently */
    bool captures; /* work can be recorded as a graph; a first run must load and choose kernels */
    Status (*run)(Exec *ex, const OpDesc *op, const void *args);
    Status (*alloc)(Exec *ex, MemKind kind, size_t bytes, void **out);
    void (*free)(Exec *ex, MemKind kind, void *at, size_t bytes);
    Status (*copy)(Exec *ex, void *dst, const void *src, size_t bytes);
    /* Pins host memory: copies to and from it take no detour and do not block. Any thread may call these. NULL: there
     * is no device. */
    Status (*pin)(Exec *ex, void *at, size_t bytes);
    void (*unpin)(Exec *ex, void *at);
    /* Copies to host memory. Waits for this lane only: other lanes may be waiting for what this
     * lane does next, so waiting for them could deadlock. */
    Status (*read)(Exec *ex, void *dst, const void *src, size_t bytes);
    Status (*fill)(Exec *ex, void *dst, int byte, size_t bytes);
    Status (*sync)(Exec *ex); /* waits for all lanes */
    /* Waits, then finds the first element that is not finite, and its value; index -1: none. */
    Status (*find_bad)(Exec *ex, const Tensor *t, int64_t *index, double *value);
    const struct Streams *streams; /* engine/backend/backend.h has both */
    const struct Graphs *graphs;
    void (*close)(Exec *ex); /* frees what the backend holds for the Exec; NULL: nothing */
} Backend;

/* Sees every op on its way to the backend, and passes it on with op_next. Its `run` is called with
 * its own level: the decorator is ex->front[level]. */
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
#define OP(ID, Args, stem, space, gpu_space) OP_##ID,
#include "kernels/core/ops.def"
    OP_ID_COUNT
} OpId;

enum { EXEC_NOTE_BYTES = 320 };

/* Notes that ops log once: that a slower kernel runs than the one made for this device. */
typedef struct ExecNotes {
    const char *op[OP_ID_COUNT]; /* names of the table */
    char what[OP_ID_COUNT][EXEC_NOTE_BYTES];
    int n;
} ExecNotes;

struct Gemm;    /* kernels/dense/gemm.h */
struct OpSet;   /* kernels/core/cpu_set.h */
struct GpuExec; /* engine/gpu/gpu.h */

/* Where and how the ops of one lane run. Pointers are borrowed: who made the Exec keeps them alive. */
struct Exec {
    const Backend *backend;
    const Decorator *front[EXEC_FRONT_MAX]; /* outermost first */
    int depth;                              /* number of decorators */
    Arena *scratch;                         /* the lane's; op_run allocates workspaces in it */
    void *workspace;                        /* set by op_run for the op that is running */
    int threads;
    const struct OpSet *set;      /* the instruction set of CPU ops; NULL on a GPU */
    struct Gemm *gemm;            /* which bf16 instructions CPU products use */
    struct GpuExec *gpu;          /* the streams of the device that ops run on; NULL: the CPU */
    void *library[LIBRARY_COUNT]; /* handles of the device's libraries; NULL: not open */
    const struct KernelDevice
        *device; /* what candidates may ask of the GPU (kernels/core/kernels.h); NULL: the CPU */
    const Mesh *mesh; /* the ranks to communicate with; NULL: this rank is alone */
    /* Memory of the other ranks of the experts (exchange_open), and of tp (exchange_rows_start). NULL: none is open. */
    CommWindow *peers, *row_peers;
    Lane lane;       /* on a GPU: the stream that launches go to */
    OpTotals totals; /* added up by the count backend */
    int64_t waits;   /* how often the host has waited for the device so far */
    int64_t step;    /* for messages: the step that is running */
    int layer;       /* and the layer; -1: none */
    ExecNotes notes; /* kept by exec_note_once */
};

const OpDesc *op_desc(OpId id);

/* Runs an op: checks the arguments, allocates the workspace, then decorators and backend. Does
 * nothing if none of the op's outputs is given. */
Status op_run(Exec *ex, OpId id, const void *args);

/* For decorators: passes the op to the decorator after `level`, or, after the last one, to the backend. */
Status op_next(Exec *ex, int level, const OpDesc *op, const void *args);

/* Logs and keeps the first note of this Exec about this op; later ones are dropped. `op` must
 * outlive the Exec; `what` is copied. */
void exec_note_once(Exec *ex, const char *op, const char *what);

/* The tensor of a port. */
static inline const Tensor *op_port_tensor(const OpPort *p, const void *args)
{
    return (const Tensor *)(const void *)((const char *)args + p->offset);
}

/* Declares an op's ports, in the order in which generic code walks them. Example:
 * OP_PORTS(add, IN(Add, x), ADD(Add, y)). */
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
/* An Operand (kernels/core/operand.h) is two ports: its data, which is its first member and has the field's
 * name, and its scale. */
#define OPERAND(Args, field, dir_, scale_dir)                                                        \
    PORT(Args, field, dir_),                                                                       \
    { #field ".scale", offsetof(Args, field) + offsetof(Operand, scale), scale_dir }
#define IN_OPERAND(Args, field)   OPERAND(Args, field, PORT_IN, PORT_IN_SCALE)
#define OUT_OPERAND(Args, field)  OPERAND(Args, field, PORT_OUT, PORT_OUT_PART_OPT)
#define OUT_OPERAND_POOL(Args, f) OPERAND(Args, f, PORT_OUT_POOL, PORT_OUT_PART_OPT)
#define OUT_OPERAND_PART_OPT(Args, f) OPERAND(Args, f, PORT_OUT_PART_OPT, PORT_OUT_OPT)
#define OUT_OPERAND_OPT(Args, f)  OPERAND(Args, f, PORT_OUT_OPT, PORT_OUT_OPT)
/* clang-format on */

/* For costs: the bytes of all given tensors, each once, but twice if it is added to. */
double op_port_bytes(OpId id, const void *args);

/* For check functions: fails with ERR_SHAPE, op, port and both shapes, unless t has type `dtype`
 * and can be viewed as (rows, cols). rows or cols -1: any. */
Status op_expect(const char *op, const char *port, const Tensor *t, int64_t rows, int64_t cols,
                 Dtype dtype);
/* The same for "act": f32, bf16 or f16. */
Status op_expect_act(const char *op, const char *port, const Tensor *t, int64_t rows, int64_t cols);
/* Fails unless t has the columns [col, col + n). */
Status op_expect_window(const char *op, const char *port, const Tensor *t, int64_t col, int64_t n);

#endif
