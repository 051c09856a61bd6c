/*
 * runtime: HIP's runtime over gfxrun, as a shared library with the name of AMD's. The program opens it
 * in place of theirs (LD_LIBRARY_PATH) and then runs its kernels, tests and training steps without a
 * GPU. A call does its work before it returns, so streams and events order nothing. In a capture
 * work is recorded instead, and a graph does it in that order.
 *
 * Environment: GFXRUN_SEED, of the order of waves; GFXRUN_TRACE=1 prints each launch to stderr, with
 * what it executed. For tests of what is refused: GFXRUN_DEVICES=0, no GPU; GFXRUN_CHIP=90, a chip with
 * this compute capability.
 */
#include "gfxrun/hip/runtime.h"

#include "kernels-amd/hip_table.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSORS = 8,
    SHARED_BYTES = 65536,
    PINNED_MOST = 1024,
    ERROR_INVALID = 1,
    ERROR_MEMORY = 2,
    ERROR_LAUNCH = 719,
    ERROR_UNSUPPORTED = 801
};
static const size_t DEVICE_BYTES = (size_t)64 << 30, FILL_MOST = (size_t)16 << 20;

struct ihipModule_t {
    const char *bundle;
    CodeObject *code; /* NULL until one of its kernels is needed */
};

struct ihipModuleSymbol_t {
    hipModule_t module;
    const char *name;
};

struct ihipEvent_t {
    struct ihipGraph *capture; /* of the stream that recorded it; NULL: none */
    double at_s;
};

/* A launch, a function of the host, a copy (src) or a fill. */
struct hipGraphNode {
    hipFunction_t function;
    hipHostFn_t host;
    unsigned grid[3], block[3], shared_bytes;
    void *args;
    size_t bytes;
    void *dst;
    const void *src;
    int byte;
};

struct ihipGraph {
    struct hipGraphNode *nodes;
    size_t n, room;
};

struct hipGraphExec {
    struct hipGraphNode *nodes;
    size_t n;
};

struct ihipStream_t {
    struct ihipGraph *capture;
    struct ihipStream_t *next;
};

/* What all threads share; `lock` guards it. Buffers are sorted by address. */
static struct {
    pthread_mutex_t lock;
    Arena code, scratch;
    GfxBuffer *buffers;
    int n, room;
    size_t used_bytes;
    struct ihipStream_t *streams;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local hipError_t last_error;
static _Thread_local char message[1200];

static hipError_t failed(hipError_t code)
{
    last_error = code;
    return code;
}

static hipError_t of_status(Status s)
{
    if (s == OK) return hipSuccess;
    status_sentence(message, sizeof message);
    status_clear();
    return failed(ERROR_LAUNCH);
}

const char *hipGetErrorString(hipError_t e)
{
    if (e == ERROR_LAUNCH) return message;
    return e == ERROR_MEMORY ? "no memory" : e == ERROR_UNSUPPORTED ? "not supported" : "an error";
}

const char *hipGetErrorName(hipError_t e)
{
    return e == ERROR_LAUNCH ? "gfxrun" : "of gfxrun's runtime";
}

hipError_t hipGetLastError(void)
{
    hipError_t e = last_error;
    last_error = hipSuccess;
    return e;
}

static uint64_t number_of(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable); /* NOLINT(concurrency-mt-unsafe): nobody sets them */
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

/* Devices: one */

hipError_t hipGetDeviceCount(int *n)
{
    return *n = (int)number_of("GFXRUN_DEVICES", 1), hipSuccess;
}
hipError_t hipGetDevice(int *device) { return *device = 0, hipSuccess; }
hipError_t hipSetDevice(int device) { return device == 0 ? hipSuccess : failed(hipErrorNoDevice); }
hipError_t hipDriverGetVersion(int *version) { return *version = 60300000, hipSuccess; }
hipError_t hipRuntimeGetVersion(int *version) { return *version = 60300000, hipSuccess; }

hipError_t hipDeviceGetAttribute(int *value, int which, int device)
{
    const int chip = (int)number_of("GFXRUN_CHIP", 94);
    (void)device;
    switch (which) {
    case hipDeviceAttributeComputeCapabilityMajor: *value = chip / 10; return hipSuccess;
    case hipDeviceAttributeComputeCapabilityMinor: *value = chip % 10; return hipSuccess;
    case hipDeviceAttributeMultiprocessorCount: *value = PROCESSORS; return hipSuccess;
    case hipDeviceAttributeMaxSharedMemoryPerBlock: *value = SHARED_BYTES; return hipSuccess;
    default: return failed(ERROR_UNSUPPORTED);
    }
}

hipError_t hipDeviceGetName(char *name, int room, int device)
{
    (void)device;
    (void)snprintf(name, (size_t)room, "gfxrun, an interpreter of gfx942");
    return hipSuccess;
}

hipError_t hipDeviceGetPCIBusId(char *id, int room, int device)
{
    (void)device;
    (void)snprintf(id, (size_t)room, "0000:00:00.0");
    return hipSuccess;
}

hipError_t hipDeviceEnablePeerAccess(int device, unsigned flags)
{
    (void)device, (void)flags;
    return failed(ERROR_UNSUPPORTED);
}

hipError_t hipDeviceCanAccessPeer(int *can, int device, int peer)
{
    (void)device, (void)peer;
    return *can = 0, hipSuccess;
}

hipError_t hipDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return *least = *greatest = 0, hipSuccess;
}

/* Memory */

hipError_t hipMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = DEVICE_BYTES;
    *free_bytes = DEVICE_BYTES - shared.used_bytes;
    return hipSuccess;
}

/* Where a buffer with this address stands, or would. */
static int buffer_place(const void *at)
{
    int low = 0, high = shared.n;
    while (low < high) {
        int middle = (low + high) / 2;
        if ((const char *)shared.buffers[middle].data < (const char *)at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool buffer_add(void *at, size_t bytes)
{
    if (shared.n == shared.room) {
        int room = 2 * shared.room + 64;
        GfxBuffer *more = realloc(shared.buffers, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        shared.buffers = more;
        shared.room = room;
    }
    GfxBuffer *to = &shared.buffers[buffer_place(at)];
    memmove(to + 1, to, (size_t)(shared.buffers + shared.n - to) * sizeof *to);
    *to = (GfxBuffer){ "an allocation", at, bytes };
    shared.n++;
    shared.used_bytes += bytes;
    return true;
}

/* Fresh memory is NaN in every format, as far as that costs little. */
hipError_t hipMalloc(void **out, size_t bytes)
{
    void *at = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return failed(ERROR_MEMORY);
    memset(at, 0xff, bytes < FILL_MOST ? bytes : FILL_MOST);
    pthread_mutex_lock(&shared.lock);
    bool added = buffer_add(at, bytes);
    pthread_mutex_unlock(&shared.lock);
    *out = at;
    return added ? hipSuccess : failed(ERROR_MEMORY);
}

hipError_t hipFree(void *at)
{
    pthread_mutex_lock(&shared.lock);
    int i = buffer_place(at);
    if (at != NULL && i < shared.n && shared.buffers[i].data == at) {
        size_t bytes = shared.buffers[i].bytes;
        GfxBuffer *from = &shared.buffers[i];
        memmove(from, from + 1, (size_t)(shared.n - i - 1) * sizeof *from);
        shared.n--;
        shared.used_bytes -= bytes;
        (void)munmap(at, bytes + 1);
    }
    pthread_mutex_unlock(&shared.lock);
    return hipSuccess;
}

hipError_t hipHostMalloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return hipMalloc(out, bytes);
}

hipError_t hipHostFree(void *at) { return hipFree(at); }

/* Memory of the program that is pinned. As on a GPU, a copy lies in one of these pieces or in none. */
static struct {
    const char *at;
    size_t bytes;
} pinned[PINNED_MOST];
static int n_pinned;

static bool in_parts(const void *at, size_t bytes)
{
    const char *first = at, *end = first + bytes;
    bool parts = false;
    pthread_mutex_lock(&shared.lock);
    for (int i = 0; i < n_pinned; i++) {
        const char *own = pinned[i].at, *own_end = own + pinned[i].bytes;
        parts |= first < own_end && end > own && (first < own || end > own_end);
    }
    pthread_mutex_unlock(&shared.lock);
    return parts;
}

hipError_t hipHostRegister(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&shared.lock);
    const bool room = n_pinned < PINNED_MOST;
    if (room) pinned[n_pinned].at = at, pinned[n_pinned++].bytes = bytes;
    pthread_mutex_unlock(&shared.lock);
    return room ? hipSuccess : failed(ERROR_MEMORY);
}

hipError_t hipHostUnregister(void *at)
{
    bool found = false;
    pthread_mutex_lock(&shared.lock);
    for (int i = 0; i < n_pinned && !found; i++) {
        found = pinned[i].at == at;
        if (found) pinned[i] = pinned[--n_pinned];
    }
    pthread_mutex_unlock(&shared.lock);
    return found ? hipSuccess : failed(ERROR_INVALID);
}

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *at)
{
    (void)handle, (void)at;
    return failed(ERROR_UNSUPPORTED);
}

hipError_t hipIpcOpenMemHandle(void **out, hipIpcMemHandle_t handle, unsigned flags)
{
    (void)out, (void)handle, (void)flags;
    return failed(ERROR_UNSUPPORTED);
}

hipError_t hipIpcCloseMemHandle(void *at) { return (void)at, hipSuccess; }

/* Kernels */

/* The code object for gfx942 in what the compiler's bundler made: a magic word, a number of entries, and
 * for each offset, size and name. */
static const char *bundle_find(const char *bundle, size_t *bytes)
{
    static const char MAGIC[] = "__CLANG_OFFLOAD_BUNDLE__";
    uint64_t n, entry[3];
    const char *at = bundle + sizeof MAGIC - 1;
    if (memcmp(bundle, MAGIC, sizeof MAGIC - 1) != 0) return NULL;
    memcpy(&n, at, sizeof n);
    at += sizeof n;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(entry, at, sizeof entry);
        const char *name = at + sizeof entry, *end = name + entry[2];
        *bytes = entry[1];
        if (entry[2] > 6 && memcmp(end - 6, "gfx942", 6) == 0) return bundle + entry[0];
        at = end;
    }
    return NULL;
}

static Status write_file(int file, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(file, data, bytes);
        if (n <= 0) return FAIL(ERR_DISK, "cannot write a code object to /tmp");
        data += n;
        bytes -= (size_t)n;
    }
    return OK;
}

static Status module_open(hipModule_t m)
{
    char path[] = "/tmp/gfxrun.XXXXXX";
    size_t bytes = 0;
    const char *code = bundle_find(m->bundle, &bytes);
    if (code == NULL) return FAIL(ERR_UNSUPPORTED, "the program has no code for gfx942");
    if (shared.code.base == NULL) {
        TRY(arena_init(&shared.code, "code objects", MEM_HOST, (size_t)64 << 30));
        TRY(arena_init(&shared.scratch, "gfxrun", MEM_HOST, (size_t)8 << 30));
    }
    int file = mkstemp(path);
    if (file < 0) return FAIL(ERR_DISK, "cannot make a file in /tmp");
    Status s = write_file(file, code, bytes);
    (void)close(file);
    if (s == OK) s = gfx_load(&shared.code, path, &m->code);
    (void)unlink(path);
    return s;
}

hipError_t hipModuleLoadData(hipModule_t *out, const void *image)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return failed(ERROR_MEMORY);
    (*out)->bundle = image;
    return hipSuccess;
}

hipError_t hipModuleGetFunction(hipFunction_t *out, hipModule_t module, const char *name)
{
    *out = malloc(sizeof **out);
    if (*out == NULL) return failed(ERROR_MEMORY);
    **out = (struct ihipModuleSymbol_t){ module, name };
    return hipSuccess;
}

static Status launch(const struct hipGraphNode *n)
{
    GfxCounts counts;
    const GfxLaunch l = { .kernel = n->function->name,
                          .args = n->args,
                          .args_bytes = n->bytes,
                          .buffers = shared.buffers,
                          .n_buffers = shared.n,
                          .grid = { n->grid[0], n->grid[1], n->grid[2] },
                          .block = { n->block[0], n->block[1], n->block[2] },
                          .dynamic_lds_bytes = n->shared_bytes,
                          .seed = number_of("GFXRUN_SEED", 0) };
    TRY(gfx_run(n->function->module->code, &l, &shared.scratch, &counts));
    if (number_of("GFXRUN_TRACE", 0) == 0) return OK;
    (void)fprintf(
        stderr, "gfxrun: %lld instructions, %lld matrix, %lld LDS, %lld conflict cycles: %s\n",
        (long long)counts.instructions, (long long)counts.matrix_instructions,
        (long long)counts.lds_instructions, (long long)counts.conflict_cycles, n->function->name);
    return OK;
}

static Status node_run(const struct hipGraphNode *n)
{
    if (n->function != NULL) return launch(n);
    if (n->host != NULL)
        n->host(n->dst);
    else if (n->src != NULL)
        memmove(n->dst, n->src, n->bytes);
    else
        memset(n->dst, n->byte, n->bytes);
    return OK;
}

/* Now, or in the graph that the stream records. A node of a graph owns its arguments. */
static Status submit(hipStream_t s, struct hipGraphNode n)
{
    struct ihipGraph *g = s == NULL ? NULL : s->capture;
    if (g == NULL) return node_run(&n);
    if (g->n == g->room) {
        size_t room = 2 * g->room + 64;
        struct hipGraphNode *more = realloc(g->nodes, room * sizeof *more);
        if (more == NULL) return FAIL(ERR_MEMORY, "no memory for a graph");
        g->nodes = more;
        g->room = room;
    }
    if (n.function != NULL) {
        void *args = malloc(n.bytes + 1);
        if (args == NULL) return FAIL(ERR_MEMORY, "no memory for a graph");
        n.args = memcpy(args, n.args, n.bytes);
    }
    g->nodes[g->n++] = n;
    return OK;
}

static Status launch_submit(hipStream_t s, struct hipGraphNode *n, void **arguments)
{
    hipModule_t m = n->function->module;
    if (m->code == NULL) TRY(module_open(m));
    TRY(gfx_pack(m->code, n->function->name, arguments, &shared.scratch, &n->args, &n->bytes));
    return submit(s, *n);
}

/* NOLINTNEXTLINE(readability-function-size): HIP has it so */
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned gx, unsigned gy, unsigned gz,
                                 unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes,
                                 hipStream_t stream, void **arguments, void **extra)
{
    struct hipGraphNode n = { .function = function,
                              .grid = { gx, gy, gz },
                              .block = { bx, by, bz },
                              .shared_bytes = shared_bytes };
    (void)extra;
    pthread_mutex_lock(&shared.lock);
    ArenaMark mark = arena_mark(&shared.scratch);
    Status s = launch_submit(stream, &n, arguments);
    if (shared.scratch.base != NULL) arena_release(&shared.scratch, mark);
    pthread_mutex_unlock(&shared.lock);
    return of_status(s);
}

hipError_t hipMemcpyAsync(void *dst, const void *src, size_t bytes, int kind, hipStream_t stream)
{
    (void)kind;
    if (in_parts(dst, bytes) || in_parts(src, bytes)) return failed(ERROR_INVALID);
    return of_status(
        submit(stream, (struct hipGraphNode){ .dst = dst, .src = src, .bytes = bytes }));
}

hipError_t hipMemsetAsync(void *dst, int byte, size_t bytes, hipStream_t stream)
{
    return of_status(
        submit(stream, (struct hipGraphNode){ .dst = dst, .byte = byte, .bytes = bytes }));
}

/* For libraries that stand on this runtime. `data` must live as long as a graph that recorded it. */
hipError_t hipLaunchHostFunc(hipStream_t stream, hipHostFn_t host, void *data)
{
    return of_status(submit(stream, (struct hipGraphNode){ .host = host, .dst = data }));
}

/* Streams and events */

hipError_t hipStreamCreateWithPriority(hipStream_t *out, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return failed(ERROR_MEMORY);
    pthread_mutex_lock(&shared.lock);
    (*out)->next = shared.streams;
    shared.streams = *out;
    pthread_mutex_unlock(&shared.lock);
    return hipSuccess;
}

hipError_t hipStreamDestroy(hipStream_t s)
{
    pthread_mutex_lock(&shared.lock);
    struct ihipStream_t **at = &shared.streams;
    while (*at != NULL && *at != s) at = &(*at)->next;
    if (*at != NULL) *at = s->next;
    pthread_mutex_unlock(&shared.lock);
    free(s);
    return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t s) { return (void)s, hipSuccess; }
hipError_t hipStreamQuery(hipStream_t s) { return (void)s, hipSuccess; }

/* A stream that waits for an event of a capture belongs to the capture. */
hipError_t hipStreamWaitEvent(hipStream_t s, hipEvent_t e, unsigned flags)
{
    (void)flags;
    if (e->capture != NULL) s->capture = e->capture;
    return hipSuccess;
}

hipError_t hipEventCreateWithFlags(hipEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    return *out == NULL ? failed(ERROR_MEMORY) : hipSuccess;
}

hipError_t hipEventDestroy(hipEvent_t e) { return free(e), hipSuccess; }

hipError_t hipEventRecord(hipEvent_t e, hipStream_t s)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    e->capture = s == NULL ? NULL : s->capture;
    e->at_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    return hipSuccess;
}

hipError_t hipEventSynchronize(hipEvent_t e) { return (void)e, hipSuccess; }
hipError_t hipEventQuery(hipEvent_t e) { return (void)e, hipSuccess; }

hipError_t hipEventElapsedTime(float *ms, hipEvent_t from, hipEvent_t to)
{
    *ms = (float)((to->at_s - from->at_s) * 1e3);
    return hipSuccess;
}

/* Graphs */

hipError_t hipStreamBeginCapture(hipStream_t s, int mode)
{
    (void)mode;
    s->capture = calloc(1, sizeof *s->capture);
    return s->capture == NULL ? failed(ERROR_MEMORY) : hipSuccess;
}

hipError_t hipStreamEndCapture(hipStream_t s, hipGraph_t *out)
{
    *out = s->capture;
    pthread_mutex_lock(&shared.lock);
    for (struct ihipStream_t *each = shared.streams; each != NULL; each = each->next)
        if (each->capture == *out) each->capture = NULL;
    pthread_mutex_unlock(&shared.lock);
    return hipSuccess;
}

hipError_t hipGraphGetNodes(hipGraph_t g, hipGraphNode_t *nodes, size_t *n)
{
    for (size_t i = 0; nodes != NULL && i < g->n; i++) nodes[i] = &g->nodes[i];
    *n = g->n;
    return hipSuccess;
}

hipError_t hipGraphNodeGetType(hipGraphNode_t n, hipGraphNodeType *type)
{
    *type = n->function != NULL ? hipGraphNodeTypeKernel : hipGraphNodeTypeKernel + 1;
    return hipSuccess;
}

/* The executable graph takes the nodes over. */
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *out, hipGraph_t g, unsigned long long flags)
{
    (void)flags;
    *out = malloc(sizeof **out);
    if (*out == NULL) return failed(ERROR_MEMORY);
    **out = (struct hipGraphExec){ g->nodes, g->n };
    g->nodes = NULL;
    g->n = 0;
    return hipSuccess;
}

static void nodes_free(struct hipGraphNode *nodes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (nodes[i].function != NULL) free(nodes[i].args);
    free(nodes);
}

hipError_t hipGraphDestroy(hipGraph_t g)
{
    nodes_free(g->nodes, g->n);
    free(g);
    return hipSuccess;
}

hipError_t hipGraphExecDestroy(hipGraphExec_t g)
{
    nodes_free(g->nodes, g->n);
    free(g);
    return hipSuccess;
}

hipError_t hipGraphUpload(hipGraphExec_t g, hipStream_t s) { return (void)g, (void)s, hipSuccess; }

hipError_t hipGraphLaunch(hipGraphExec_t g, hipStream_t s)
{
    Status status = OK;
    (void)s;
    pthread_mutex_lock(&shared.lock);
    for (size_t i = 0; i < g->n && status == OK; i++) status = node_run(&g->nodes[i]);
    pthread_mutex_unlock(&shared.lock);
    return of_status(status);
}
