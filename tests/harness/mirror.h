/*
 * mirror: every op that a test runs on the CPU runs on the GPU as well, and must agree.
 *
 * A decorator for tests: it copies what an op is given to the device, lets the CPU do its work,
 * runs the op's CUDA version on the copies, and compares every output, by tensor, row and tile. So
 * each case of each op test is a case of the kernel too, with no line of its own. Where the program
 * is built without CUDA, or there is no GPU, it is not pushed and nothing changes.
 */
#ifndef TESTS_HARNESS_MIRROR_H
#define TESTS_HARNESS_MIRROR_H

#include "engine/backend/backend.h"
#include "kernels/attention/attention.h"
#include "kernels/core/libraries.h"
#include "kernels/head/head.h"
#include "kernels/moe/moe.h"

enum { MIRROR_PORTS_MAX = 24, MIRROR_ARGS_MAX = 2048, MIRROR_KINDS_MAX = 256 };

/* A block of host memory that ports lie in, and its copy on the device. */
typedef struct MirrorBlock {
    char *host, *device;
    size_t bytes;
} MirrorBlock;

typedef struct Mirror {
    Exec gpu;
    Arena tables, device, scratch, host;
    void *device_memory, *scratch_memory;
    int64_t compared; /* outputs so far */
    bool finite_only; /* for inputs at which rounding decides: only look for what is no number */
    bool gives;       /* the GPU's results take the place of the CPU's, once they are compared */
    bool unlike;      /* they are not compared: a test compares the GPU's with each other */
    double work;      /* TEST_WORK; 0: any */
    uint64_t seen[MIRROR_KINDS_MAX]; /* kinds of calls of this test, and what each may still do */
    double left[MIRROR_KINDS_MAX];
    int kinds;
} Mirror;

static Mirror mirror;

static inline bool mirror_floating(Dtype t) { return t != DTYPE_I32 && t != DTYPE_I64; }

/* The copy lies as far past a multiple of SKEW bytes as the host's. */
static inline Status mirror_block(MirrorBlock *blocks, int *n, const void *at, size_t bytes,
                                  char **device)
{
    enum { SKEW = 16 };
    char *host = (char *)(uintptr_t)at;
    for (int i = 0; i < *n; i++) {
        if (host < blocks[i].host || host + bytes > blocks[i].host + blocks[i].bytes) continue;
        *device = blocks[i].device + (host - blocks[i].host);
        return OK;
    }
    void *memory = NULL;
    TRY(arena_alloc(&mirror.device, bytes + SKEW, &memory));
    *device = (char *)memory + (uintptr_t)at % SKEW;
    TRY(mirror.gpu.backend->copy(&mirror.gpu, *device, at, bytes));
    blocks[(*n)++] = (MirrorBlock){ host, *device, bytes };
    return OK;
}

/* The same arguments over device memory. Larger tensors first, so that a tensor inside another one
 * finds it. */
static inline Status mirror_args(const OpDesc *op, const void *args, char *gpu_args)
{
    MirrorBlock blocks[MIRROR_PORTS_MAX];
    int n = 0;
    memcpy(gpu_args, args, op->args_bytes);
    for (int pass = 0; pass < 2; pass++) {
        for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
            if (p->dir == PORT_ROWS) {
                Rows *rows = (Rows *)(void *)(gpu_args + p->offset);
                char *device = NULL;
                const int32_t **of[] = { &rows->device, &rows->first };
                for (int i = 0; i < 2 && pass == 1; i++) {
                    if (*of[i] == NULL) continue;
                    TRY(mirror_block(blocks, &n, *of[i], sizeof **of[i], &device));
                    *of[i] = (const int32_t *)(void *)device;
                }
                continue;
            }
            const Tensor *t = op_port_tensor(p, args);
            size_t bytes = tensor_bytes(t);
            if (t->data == NULL || (pass == 0) != (bytes >= 4096)) continue;
            char *device = NULL;
            TRY(mirror_block(blocks, &n, t->data, bytes, &device));
            ((Tensor *)(void *)(gpu_args + p->offset))->data = device;
        }
    }
    return mirror.gpu.backend->sync(&mirror.gpu);
}

/* The share of the mean row norm that rows and tiles are held to at least. Like the CPU's against
 * double it is a thousandth. It is more where a row is what is left of larger terms that cancel,
 * which each side rounds in an order of its own: attention's means over thousands of values of both
 * signs (the first query's dq is p (dp - D) = 0), and a routing weight's gradient, which is one sum
 * of products of both signs. Where a document begins, the state has no gradient but rounding. */
static inline double mirror_least(const OpDesc *op, const OpPort *p)
{
    if (strncmp(op->name, "attention", 9) == 0) return 0.25;
    if (strncmp(op->name, "delta_rule", 10) == 0) return 0.25;
    return strcmp(p->name, "dweight") == 0 ? 0.5 : OPTEST_LEAST;
}

/* What is no number on both sides (left untouched, or the norm of a skipped step) is no difference.
 * Formats that nothing computes in are compared by bits as a whole. */
static inline Status mirror_compare(const OpDesc *op, const OpPort *p, Tensor *cpu, Tensor *gpu,
                                    double limit)
{
    int64_t n = tensor_elems(cpu);
    size_t each = dtype_bytes(cpu->dtype);
    if (mirror.finite_only && each == 1) return OK;
    if (!mirror_floating(cpu->dtype) || each == 1 || cpu->dtype == DTYPE_F16) {
        for (int64_t i = 0; i < n; i++) {
            if (memcmp(tensor_at(cpu, i), tensor_at(gpu, i), each) == 0) continue;
            return FAIL(ERR_NUMERIC,
                        "%s: %s[%lld] begins with 0x%02x on the CPU, 0x%02x on the GPU", op->name,
                        p->name, (long long)i, *(unsigned char *)tensor_at(cpu, i),
                        *(unsigned char *)tensor_at(gpu, i));
        }
        return OK;
    }
    void *memory = NULL;
    TRY(arena_alloc(&mirror.host, (size_t)n * sizeof(double), &memory));
    double *ref = memory;
    for (int64_t i = 0; i < n; i++) {
        ref[i] = optest_get(cpu, i);
        double got = optest_get(gpu, i);
        bool same = memcmp(tensor_at(cpu, i), tensor_at(gpu, i), each) == 0;
        if (!isfinite(ref[i]) && (same || (isnan(ref[i]) && isnan(got)))) {
            ref[i] = 0, optest_set(gpu, i, 0);
        }
        if (mirror.finite_only && isfinite(got)) optest_set(gpu, i, ref[i]);
    }
    OpMatch m = optest_match_above(gpu, ref, mirror_least(op, p));
    mirror.compared++;
    if (m.ratio <= limit) return OK;
    return FAIL(ERR_NUMERIC,
                "%s: %s differs between CPU and GPU: rows %lld + %lld, columns %lld + "
                "%lld: norm %.3g, more than %.3g of %.3g",
                op->name, p->name, (long long)m.part.row, (long long)m.part.rows,
                (long long)m.part.col, (long long)m.part.cols, m.error, limit, m.held_to);
}

/* Does the op multiply 8-bit operands? */
static inline bool mirror_scaled(const OpDesc *op, const void *args)
{
    if (strstr(op->name, "quantize") != NULL) return false;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (p->dir == PORT_IN_SCALE && op_port_tensor(p, args)->data != NULL) return true;
    }
    return false;
}

/* Attention's products round their operands to the type of the first of them, also where their sum
 * goes on in f32. Both sides round probabilities, each other ones, so each may be off by a limit.
 * Matrix units add products of 8-bit numbers with 13 bits below the largest of 32, so beside an
 * outlier the others lose more. Scores that differ so turn the codes of some p, each by 6 or 12 %,
 * and a query that sees two keys has no other. Tests that know their operands are stricter. */
static inline double mirror_limit(const OpDesc *op, const void *args, const Tensor *out)
{
    /* of the head's logits, rounded twice, a few more codes turn */
    if (mirror_scaled(op, args)) return strcmp(op->name, "head_loss") == 0 ? 5e-2 : 1e-2;
    /* dx sums a term for each row of w, which test_head.c explains */
    if (strcmp(op->name, "head_loss") == 0 && out->dtype == DTYPE_F32)
        return optest_limit(LIMIT_PLAIN, DTYPE_F32) +
               2 * 0x1p-24 * sqrt((double)((const HeadLoss *)args)->w.data.dim[0]);
    /* chunks round the same products in another order, and gradients of A and dt are made of rounded ones */
    if (strncmp(op->name, "delta_rule", 10) == 0)
        return 4 * optest_limit(LIMIT_ATTENTION, op_port_tensor(op->ports, args)->dtype);
    if (strncmp(op->name, "attention", 9) != 0) return optest_limit(LIMIT_PLAIN, out->dtype);
    if (strcmp(op->name, "attention_fwd") == 0 && ((const AttentionFwd *)args)->e4m3)
        return out->rank == 4 ? 0.1 : 1e-3;
    Dtype act = op_port_tensor(op->ports, args)->dtype;
    return 2 * optest_limit(LIMIT_ATTENTION, out->rank == 4 ? act : out->dtype);
}

static inline Status mirror_outputs(const OpDesc *op, const void *args, const char *gpu_args)
{
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (p->dir == PORT_IN || p->dir == PORT_IN_OPT || p->dir == PORT_IN_SCALE) continue;
        if (p->dir == PORT_ROWS) continue;
        Tensor cpu = *op_port_tensor(p, args), gpu = cpu;
        if (cpu.data == NULL) continue;
        TRY(arena_alloc(&mirror.host, tensor_bytes(&gpu), &gpu.data));
        TRY(mirror.gpu.backend->copy(&mirror.gpu, gpu.data, op_port_tensor(p, gpu_args)->data,
                                     tensor_bytes(&gpu)));
        TRY(mirror.gpu.backend->sync(&mirror.gpu));
        if (!mirror.unlike) TRY(mirror_compare(op, p, &cpu, &gpu, mirror_limit(op, args, &cpu)));
        if (!mirror.gives) continue;
        TRY(mirror.gpu.backend->copy(&mirror.gpu, cpu.data, op_port_tensor(p, gpu_args)->data,
                                     tensor_bytes(&cpu)));
        TRY(mirror.gpu.backend->sync(&mirror.gpu));
    }
    return OK;
}

static inline Status mirror_both(Exec *ex, int level, const OpDesc *op, const void *args)
{
    _Alignas(16) char gpu_args[MIRROR_ARGS_MAX];
    TRY(mirror_args(op, args, gpu_args));
    TRY(op_next(ex, level, op, args));
    mirror.gpu.workspace = NULL; /* an op without one must not find the last op's */
    if (op->gpu_workspace != NULL) {
        TRY(arena_alloc(&mirror.scratch, op->gpu_workspace(&mirror.gpu, gpu_args),
                        &mirror.gpu.workspace));
    }
    Status s = op->gpu(&mirror.gpu, gpu_args);
    if (s == ERR_UNSUPPORTED && strstr(status_message(), "bytes of shared memory that") != NULL) {
        status_clear(); /* the plain attention's f32 tiles of wide heads, which no other kernel takes */
        return OK;
    }
    TRY(s);
    TRY(mirror.gpu.backend->sync(&mirror.gpu));
    return mirror_outputs(op, args, gpu_args);
}

/* What decides which kernel runs a call: the op, the types of its tensors, and which of their rows are
 * whole packs. */
static inline uint64_t mirror_kind(const OpDesc *op, const void *args)
{
    uint64_t kind = (uint64_t)(uintptr_t)op;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        if (p->dir == PORT_ROWS) continue;
        const Tensor *t = op_port_tensor(p, args);
        uint64_t port =
            t->data == NULL ? 0 : 1 + 2 * (uint64_t)t->dtype + 64 * (tensor_cols(t) % 16 == 0);
        kind = (kind ^ port) * 0x9E3779B97F4A7C15u;
    }
    return kind;
}

/* TEST_WORK in the environment: flops and bytes that an interpreter of kernels has time for, of each kind
 * of call in a test. What is more runs on the CPU alone, but for the first call of a kind, and where a
 * test compares the GPU's results with each other. */
static inline bool mirror_affords(const OpDesc *op, const void *args)
{
    const double FIRST = 100;
    if (mirror.work == 0 || mirror.gives || mirror.unlike) return true;
    uint64_t kind = mirror_kind(op, args);
    OpCost cost = op->cost(args);
    double work = cost.flops + cost.bytes;
    int i = 0;
    while (i < mirror.kinds && mirror.seen[i] != kind) i++;
    if (i == MIRROR_KINDS_MAX) return false;
    if (i == mirror.kinds) {
        if (work > FIRST * mirror.work) return false;
        mirror.seen[i] = kind;
        mirror.left[i] = work > mirror.work ? work : mirror.work;
        mirror.kinds++;
    }
    if (work > mirror.left[i]) return false;
    mirror.left[i] -= work;
    return true;
}

static inline Status mirror_run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    if (op->gpu == NULL || op->args_bytes > MIRROR_ARGS_MAX || !mirror_affords(op, args))
        return op_next(ex, level, op, args);
    ArenaMark device = arena_mark(&mirror.device), host = arena_mark(&mirror.host);
    ArenaMark scratch = arena_mark(&mirror.scratch);
    Status s = mirror_both(ex, level, op, args);
    arena_release(&mirror.device, device);
    arena_release(&mirror.host, host);
    arena_release(&mirror.scratch, scratch);
    return s;
}

/* Both until the next optest_open. */
static inline void mirror_finite_only(void) { mirror.finite_only = true; }
static inline void mirror_gives(void) { mirror.gives = true; }

static const Decorator backend_mirror = { .run = mirror_run };

static inline Status mirror_open(void)
{
    enum { BYTES = 1 << 30 };
    TRY(arena_init(&mirror.tables, "mirror tables", MEM_HOST, (size_t)1 << 24));
    TRY(arena_init(&mirror.host, "mirror", MEM_HOST, (size_t)2 << 30));
    TRY(gpu_exec_init(&mirror.gpu, 0, &mirror.tables, &mirror.scratch));
    TRY(mirror.gpu.backend->alloc(&mirror.gpu, MEM_DEVICE, BYTES, &mirror.device_memory));
    TRY(mirror.gpu.backend->alloc(&mirror.gpu, MEM_DEVICE, BYTES, &mirror.scratch_memory));
    arena_over(&mirror.device, "mirror device", MEM_DEVICE, mirror.device_memory, BYTES);
    arena_over(&mirror.scratch, "mirror scratch", MEM_DEVICE, mirror.scratch_memory, BYTES);
    return OK;
}

/* Is the GPU of the mirror an NVIDIA Hopper, with code of its own? AMD's gfx942 has compute capability 9.4. */
static inline bool mirror_hopper(void)
{
    GpuInfo info;
    return mirror.device_memory != NULL && op_vendor == VENDOR_NVIDIA && gpu_info(0, &info) == OK &&
           info.major == 9 && gpu_code_lacks() == NULL;
}

/* Put the mirror in front if there is a GPU; made on first use, kept for the process. */
static inline Status mirror_push(Exec *ex)
{
    if (!gpu_built() || gpu_devices() == 0) return OK;
    if (mirror.device_memory == NULL) TRY(mirror_open());
    const char *work = getenv("TEST_WORK");
    mirror.finite_only = mirror.gives = mirror.unlike = false;
    mirror.work = work == NULL ? 0 : strtod(work, NULL);
    mirror.kinds = 0;
    exec_push(ex, &backend_mirror);
    return OK;
}

#endif
