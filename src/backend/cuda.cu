#include "op/nv/attention_cudnn.cuh"
#include "op/nv/blas.cuh"

extern "C" {
#include "backend/backend.h"
#include "backend/cuda.h"
#include "base/clock.h"
#include "op/kernels.h"
}

#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

enum { PACE_OPS = 64 };

/* All events of an Exec; lies in Cuda.arena. */
struct EventNode {
    cudaEvent_t event;
    EventNode *next;
};

/* What an Exec on a GPU has beside the common part. */
struct Cuda {
    int device;
    Arena *arena;
    Backend counts;                   /* of an Exec for a plan: backend_count, of a GPU */
    cudaStream_t stream[STREAMS_MAX]; /* of the lanes, then of stream_new */
    int streams;
    unsigned used; /* bit i: stream i has been given to somebody, so waits are for it, too */
    EventNode *events;
    struct Blas *blas;
    struct CudnnAttention *attention;
    KernelDevice kernels; /* ex->device */
    cudaEvent_t pace[2], reached;
    int64_t ops; /* launched while there are other ranks */
    bool capturing;
    unsigned long long *bad; /* device: index of the first element that is not finite */
    unsigned *tickets;       /* device: of the lanes */
};

static __global__ void delay_kernel(uint64_t ns)
{
    for (uint64_t start = now_ns(); now_ns() - start < ns;) __nanosleep(1000);
}

static const int THREADS = 256;
static const unsigned long long NONE = ~0ull;

template <typename T>
static __global__ void find_bad_kernel(const T *t, int64_t n, unsigned long long *bad)
{
    int64_t stride = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += stride) {
        if (!isfinite(to_f32(t[i]))) atomicMin(bad, (unsigned long long)i);
    }
}

template <typename T> static Status search(Exec *ex, const Tensor *t)
{
    unsigned grid = grid_of(tensor_elems(t), THREADS * 16);
    find_bad_kernel<<<grid, THREADS, 0, exec_stream(ex)>>>((const T *)t->data, tensor_elems(t),
                                                           ex->cuda->bad);
    return kernel_status("search for values that are not finite");
}

extern "C" {

bool cuda_built(void) { return true; }
int cuda_runtime_version(void) { return CUDART_VERSION; }

Status cuda_status(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return OK;
    return FAIL(ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

static cudaStream_t stream_of(Exec *ex, int i)
{
    ex->cuda->used |= 1u << i;
    return ex->cuda->stream[i];
}

cudaStream_t exec_stream(Exec *ex) { return stream_of(ex, ex->lane); }
static cudaStream_t compute_stream(Exec *ex) { return stream_of(ex, LANE_COMPUTE); }
static void *stream_of_lane(Exec *ex, Lane lane) { return stream_of(ex, lane); }

void *exec_workspace(Exec *ex) { return ex->workspace; }
unsigned *exec_ticket(Exec *ex) { return ex->cuda->tickets + ex->lane; }

struct Blas *exec_blas(Exec *ex) { return ex->cuda->blas; }
struct CudnnAttention *exec_attention(Exec *ex) { return ex->cuda->attention; }

int cuda_devices(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

static const int LEAST_MAJOR = 8;

Status cuda_info(int device, CudaInfo *out)
{
    CudaInfo info = {};
    cudaDeviceProp p;
    int n = cuda_devices();
    TRY(cuda_status(cudaRuntimeGetVersion(&info.runtime), "CUDA runtime"));
    if (cudaDriverGetVersion(&info.driver) != cudaSuccess || info.driver == 0) {
        return FAIL(ERR_UNSUPPORTED,
                    "no NVIDIA driver was found; this program needs one for CUDA %d.%d",
                    info.runtime / 1000, info.runtime % 1000 / 10);
    }
    if (info.driver < info.runtime) {
        return FAIL(ERR_UNSUPPORTED,
                    "the NVIDIA driver is for CUDA %d.%d, this program needs %d.%d",
                    info.driver / 1000, info.driver % 1000 / 10, info.runtime / 1000,
                    info.runtime % 1000 / 10);
    }
    if (device >= n) {
        return FAIL(ERR_UNSUPPORTED, "GPU %d was asked for, %d found", device, n);
    }
    TRY(cuda_status(cudaGetDeviceProperties(&p, device), "GPU properties"));
    if (p.major < LEAST_MAJOR) {
        return FAIL(ERR_UNSUPPORTED, "GPU %d (%s) has compute capability %d.%d, %d.0 is needed",
                    device, p.name, p.major, p.minor, LEAST_MAJOR);
    }
    TRY(cuda_status(cudaSetDevice(device), "GPU selection"));
    TRY(cuda_status(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "GPU memory"));
    snprintf(info.name, sizeof info.name, "%.*s", CUDA_NAME_MAX - 1, p.name);
    info.major = p.major, info.minor = p.minor, info.sms = p.multiProcessorCount;
    *out = info;
    return OK;
}

/* Transfers go before products: other ranks wait for them. */
static Status stream_add(Cuda *c, bool urgent, int *out)
{
    int least = 0, greatest = 0;
    if (c->streams == STREAMS_MAX) {
        return FAIL(ERR_ARG, "GPU %d: stream %d was asked for, %d is the most", c->device,
                    c->streams + 1, STREAMS_MAX);
    }
    TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities"));
    TRY(cuda_status(cudaStreamCreateWithPriority(&c->stream[c->streams], cudaStreamNonBlocking,
                                                 urgent ? greatest : least),
                    "stream"));
    *out = c->streams++;
    return OK;
}

static Status stream_new(Exec *ex, void **out)
{
    int i = 0;
    TRY(stream_add(ex->cuda, true, &i));
    *out = stream_of(ex, i);
    return OK;
}

static Status capture_begin(Exec *ex)
{
    TRY(cuda_status(cudaStreamBeginCapture(compute_stream(ex), cudaStreamCaptureModeThreadLocal),
                    "start of a capture"));
    ex->cuda->capturing = true;
    return OK;
}

static Status count_nodes(cudaGraph_t graph, Graph *out)
{
    size_t n = 0;
    TRY(cuda_status(cudaGraphGetNodes(graph, NULL, &n), "graph"));
    cudaGraphNode_t *nodes = new (std::nothrow) cudaGraphNode_t[n];
    if (nodes == NULL) return FAIL(ERR_MEMORY, "graph: no room for a list of %zu nodes", n);
    Status s = cuda_status(cudaGraphGetNodes(graph, nodes, &n), "graph");
    for (size_t i = 0; i < n && s == OK; i++) {
        cudaGraphNodeType type;
        s = cuda_status(cudaGraphNodeGetType(nodes[i], &type), "graph");
        out->kernels += type == cudaGraphNodeTypeKernel;
    }
    out->nodes = (int64_t)n;
    delete[] nodes;
    return s;
}

static Status capture_end(Exec *ex, Graph *out)
{
    Graph g = {};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    ex->cuda->capturing = false;
    TRY(cuda_status(cudaStreamEndCapture(compute_stream(ex), &graph), "end of a capture"));
    Status s = count_nodes(graph, &g);
    if (s == OK) s = cuda_status(cudaGraphInstantiate(&exec, graph, 0), "graph");
    cudaGraphDestroy(graph);
    TRY(s);
    g.exec = exec;
    *out = g;
    return cuda_status(cudaGraphUpload(exec, compute_stream(ex)), "graph");
}

static Status graph_launch(Exec *ex, const Graph *g)
{
    return cuda_status(cudaGraphLaunch((cudaGraphExec_t)g->exec, compute_stream(ex)),
                       "start of the step");
}

static void graph_free(Graph *g)
{
    if (g->exec != NULL) cudaGraphExecDestroy((cudaGraphExec_t)g->exec);
    memset(g, 0, sizeof *g);
}

static Status bus_id(Exec *ex, char out[BUS_ID_MAX])
{
    return cuda_status(cudaDeviceGetPCIBusId(out, BUS_ID_MAX, ex->cuda->device), "PCI bus id");
}

static Status used_bytes(Exec *ex, size_t *out)
{
    size_t free_bytes = 0, total = 0;
    (void)ex;
    TRY(cuda_status(cudaMemGetInfo(&free_bytes, &total), "GPU memory"));
    *out = total - free_bytes;
    return OK;
}

static struct Choices *choices(Exec *ex) { return blas_choices(exec_blas(ex)); }
static Status tune(Exec *ex, bool on) { return blas_tune(exec_blas(ex), on); }

static Status answer(cudaError_t e, bool *busy)
{
    *busy = e == cudaErrorNotReady;
    if (!*busy) return cuda_status(e, "wait for the GPU");
    (void)cudaGetLastError(); /* which would be the next launch's error */
    return OK;
}

/* *busy: is there work before `event`, or, without one, on a stream that somebody has? */
static Status look(Exec *ex, cudaEvent_t event, bool *busy)
{
    const Cuda *c = ex->cuda;
    if (event != NULL) return answer(cudaEventQuery(event), busy);
    *busy = false;
    for (int i = 0; i < c->streams && !*busy; i++) {
        if ((c->used >> i & 1) != 0) TRY(answer(cudaStreamQuery(c->stream[i]), busy));
    }
    return OK;
}

/* Most waits within a step are short: ask at once, then let others have the core. */
static const double SPIN_S = 50e-6, LEAVE_S = 10;

static void pause_after(double waited_s)
{
    struct timespec t = { 0, 20000 };
    if (waited_s > SPIN_S) nanosleep(&t, NULL);
}

/* Kernels of groups that were given up leave; until then their memory is theirs. */
static void let_leave(Exec *ex)
{
    bool busy = true;
    double start = clock_s();
    while (busy && clock_s() - start < LEAVE_S) {
        pause_after(SPIN_S * 2);
        if (look(ex, NULL, &busy) != OK) busy = false;
    }
}

/* Kernels that wait for other ranks may wait for ever: so the host does not wait with them, but
 * looks, and asks the groups whether there is still hope. */
static Status wait_watched(Exec *ex, cudaEvent_t event)
{
    bool busy = true;
    char why[1024];
    double start = clock_s();
    for (;;) {
        TRY(look(ex, event, &busy));
        if (!busy) return OK;
        double waited_s = clock_s() - start;
        if (comm_watch(ex->mesh->group[GROUP_WORLD], waited_s) != OK) break;
        pause_after(waited_s);
    }
    status_sentence(why, sizeof why);
    let_leave(ex);
    return FAIL(ERR_COMM, "%s", why);
}

static bool has_peers(const Exec *ex)
{
    return ex->mesh != NULL && ex->mesh->group[GROUP_WORLD] != NULL && ex->mesh->ranks > 1;
}

static Status wait_all(Exec *ex)
{
    Cuda *c = ex->cuda;
    ex->waits++;
    if (has_peers(ex)) return wait_watched(ex, NULL);
    for (int i = 0; i < c->streams; i++) {
        if ((c->used >> i & 1) == 0) continue;
        TRY(cuda_status(cudaStreamSynchronize(c->stream[i]), "wait for the GPU"));
    }
    return OK;
}

/* The driver takes about a thousand launches ahead of a kernel that waits, and then holds the host,
 * without a deadline: so the host is never further ahead than two times PACE_OPS. */
static Status pace(Exec *ex)
{
    Cuda *c = ex->cuda;
    if (!has_peers(ex) || c->capturing || ++c->ops % PACE_OPS != 0) return OK;
    cudaEvent_t event = c->pace[c->ops / PACE_OPS % 2];
    TRY(wait_watched(ex, event));
    return cuda_status(cudaEventRecord(event, exec_stream(ex)), "event record");
}

/* The error of a launch, with the op and its shapes. */
static Status failed(const Exec *ex, const OpDesc *op, const void *args)
{
    char why[512], shapes[512] = "", shape[96];
    size_t at = 0;
    status_sentence(why, sizeof why);
    for (const OpPort *p = op->ports; p->dir != PORT_END && at < sizeof shapes; p++) {
        const Tensor *t = op_port_tensor(p, args);
        if (p->dir == PORT_ROWS || t->data == NULL) continue;
        at += (size_t)snprintf(shapes + at, sizeof shapes - at, "%s%s %s", at > 0 ? ", " : "",
                               p->name, tensor_shape_text(t, shape, sizeof shape));
    }
    return FAIL(ERR_DEVICE, "step %lld, layer %d: %s of %s: %s", (long long)ex->step, ex->layer,
                op->name, shapes, why);
}

static Status run(Exec *ex, const OpDesc *op, const void *args)
{
    if (op->cuda == NULL) return FAIL(ERR_UNSUPPORTED, "%s: there is no CUDA version", op->name);
    TRY(pace(ex));
    Status s = op->cuda(ex, args);
    /* A decorator costs time anyway, so behind one each op is waited for, and an error is found at
     * the op that caused it. */
    if (s == OK && ex->depth > 0) s = wait_all(ex);
    return s == ERR_DEVICE ? failed(ex, op, args) : s;
}

static Status alloc(Exec *ex, MemKind kind, size_t bytes, void **out)
{
    (void)ex;
    if (kind == MEM_PINNED) return cuda_status(cudaHostAlloc(out, bytes, 0), "pinned memory");
    return cuda_status(cudaMalloc(out, bytes), "device memory");
}

static void release(Exec *ex, MemKind kind, void *at, size_t bytes)
{
    (void)ex, (void)bytes;
    if (kind == MEM_PINNED)
        cudaFreeHost(at);
    else
        cudaFree(at);
}

static Status copy(Exec *ex, void *dst, const void *src, size_t bytes)
{
    return cuda_status(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, exec_stream(ex)),
                       "copy");
}

static Status wait_lane(Exec *ex)
{
    Cuda *c = ex->cuda;
    ex->waits++;
    if (!has_peers(ex))
        return cuda_status(cudaStreamSynchronize(exec_stream(ex)), "wait for the GPU");
    TRY(cuda_status(cudaEventRecord(c->reached, exec_stream(ex)), "event record"));
    return wait_watched(ex, c->reached);
}

/* The driver would wait in the copy itself, without a deadline. */
static Status read_back(Exec *ex, void *dst, const void *src, size_t bytes)
{
    TRY(wait_lane(ex));
    TRY(copy(ex, dst, src, bytes));
    return wait_lane(ex);
}

static Status fill(Exec *ex, void *dst, int byte, size_t bytes)
{
    return cuda_status(cudaMemsetAsync(dst, byte, bytes, exec_stream(ex)), "fill");
}

/* 8-bit formats hold no infinities that an op makes: nothing to look for. */
static Status find_bad(Exec *ex, const Tensor *t, int64_t *index, double *value)
{
    unsigned long long at = NONE;
    char bits[4] = { 0 };
    float v = 0;
    *index = -1;
    if (tensor_elems(t) == 0 || (t->dtype != DTYPE_F32 && t->dtype != DTYPE_BF16)) return OK;
    TRY(fill(ex, ex->cuda->bad, 0xFF, sizeof at));
    TRY(t->dtype == DTYPE_F32 ? search<float>(ex, t) : search<Bf16>(ex, t));
    TRY(copy(ex, &at, ex->cuda->bad, sizeof at));
    TRY(wait_all(ex));
    if (at == NONE) return OK;
    TRY(copy(ex, bits, tensor_at(t, (int64_t)at), dtype_bytes(t->dtype)));
    TRY(wait_all(ex));
    dtype_to_f32(&v, bits, t->dtype, 1);
    *index = (int64_t)at, *value = (double)v;
    return OK;
}

static Status event_add(Cuda *c, unsigned flags, cudaEvent_t *out)
{
    EventNode *n = NULL;
    TRY(ARENA_ZEROED(c->arena, 1, &n));
    TRY(cuda_status(cudaEventCreateWithFlags(&n->event, flags), "event"));
    n->next = c->events;
    c->events = n;
    *out = n->event;
    return OK;
}

static Status event_new(Exec *ex, bool timed, Event *out)
{
    cudaEvent_t event = NULL;
    TRY(event_add(ex->cuda, timed ? cudaEventDefault : cudaEventDisableTiming, &event));
    out->value = (uint64_t)(uintptr_t)event;
    return OK;
}

static cudaEvent_t event_of(const Event *e) { return (cudaEvent_t)(uintptr_t)e->value; }

static cudaStream_t stream_or_lane(Exec *ex, void *stream)
{
    return stream != NULL ? (cudaStream_t)stream : exec_stream(ex);
}

static Status record(Exec *ex, Event *event, void *stream)
{
    return cuda_status(cudaEventRecord(event_of(event), stream_or_lane(ex, stream)),
                       "event record");
}

static Status wait(Exec *ex, const Event *event, void *stream)
{
    return cuda_status(cudaStreamWaitEvent(stream_or_lane(ex, stream), event_of(event), 0),
                       "event wait");
}

static Status elapsed_s(Exec *ex, const Event *from, const Event *to, double *out)
{
    float ms = 0;
    (void)ex;
    TRY(cuda_status(cudaEventElapsedTime(&ms, event_of(from), event_of(to)), "event time"));
    *out = (double)ms / 1e3;
    return OK;
}

static Status delay(Exec *ex, double seconds)
{
    delay_kernel<<<1, 1, 0, exec_stream(ex)>>>((uint64_t)(seconds * 1e9));
    return kernel_status("delay");
}

static __global__ void stamp_kernel(uint64_t *at)
{
    uint64_t ns = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    *at = ns;
}

static Status stamp(Exec *ex, uint64_t *at, void *stream)
{
    stamp_kernel<<<1, 1, 0, stream_or_lane(ex, stream)>>>(at);
    return kernel_status("stamp");
}

static void close_exec(Exec *ex)
{
    Cuda *c = ex->cuda;
    cuda_attention_free(c->attention);
    cuda_blas_free(c->blas);
    if (c->bad != NULL) cudaFree(c->bad);
    if (c->tickets != NULL) cudaFree(c->tickets);
    for (EventNode *n = c->events; n != NULL; n = n->next) cudaEventDestroy(n->event);
    for (int i = 0; i < c->streams; i++) cudaStreamDestroy(c->stream[i]);
}

static const Streams streams = {
    .of_lane = stream_of_lane,
    .add = stream_new,
    .event_new = event_new,
    .record = record,
    .wait = wait,
    .elapsed_s = elapsed_s,
    .delay = delay,
    .stamp = stamp,
};

static const Graphs graphs = {
    .begin = capture_begin,
    .end = capture_end,
    .launch = graph_launch,
    .free = graph_free,
};

static const Device device_entries = {
    .bus_id = bus_id,
    .used_bytes = used_bytes,
    .choices = choices,
    .tune = tune,
    .close = close_exec,
};

static const Backend backend_cuda = {
    .apart = true,
    .async = true,
    .captures = true,
    .run = run,
    .alloc = alloc,
    .free = release,
    .copy = copy,
    .read = read_back,
    .fill = fill,
    .sync = wait_all,
    .find_bad = find_bad,
    .streams = &streams,
    .graphs = &graphs,
    .device = &device_entries,
};

/* *out: what an Exec on a GPU has beside the common part; in `arena`. */
static Status exec_make(Exec *ex, Arena *arena, Arena *scratch, Cuda **out)
{
    TRY(ARENA_ZEROED(arena, 1, out));
    memset(ex, 0, sizeof *ex);
    ex->scratch = scratch;
    ex->threads = 1;
    ex->layer = -1;
    ex->cuda = *out;
    return OK;
}

Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch)
{
    const size_t tickets = LANE_COUNT * sizeof(unsigned);
    int i = 0;
    CudaInfo info;
    Cuda *c = NULL;
    TRY(cuda_info(device, &info));
    TRY(exec_make(ex, arena, scratch, &c));
    ex->backend = &backend_cuda;
    c->device = device, c->arena = arena;
    for (int lane = 0; lane < LANE_COUNT; lane++) TRY(stream_add(c, lane == LANE_COMM, &i));
    for (cudaEvent_t &pace : c->pace) TRY(event_add(c, cudaEventDisableTiming, &pace));
    TRY(event_add(c, cudaEventDisableTiming, &c->reached));
    TRY(cuda_status(cudaMalloc((void **)&c->bad, sizeof *c->bad), "device memory"));
    TRY(cuda_status(cudaMalloc((void **)&c->tickets, tickets), "device memory"));
    TRY(cuda_status(cudaMemset(c->tickets, 0, tickets), "device memory"));
    TRY(cuda_status(cudaDeviceSynchronize(), "device memory"));
    TRY(cuda_attention_make(arena, c->stream[LANE_COMPUTE], &c->attention));
    c->kernels.vendor = VENDOR_NVIDIA;
    c->kernels.capability = 10 * info.major + info.minor;
    c->kernels.lacks[NEEDS_CUDNN] = attention_cudnn_lacks(c->attention);
    ex->device = &c->kernels;
    return cuda_blas_make(arena, attention_cudnn_version(c->attention), &c->blas);
}

Status cuda_exec_count(Exec *ex, Arena *arena, Arena *scratch)
{
    Cuda *c = NULL;
    TRY(exec_make(ex, arena, scratch, &c));
    c->counts = backend_count;
    c->counts.apart = c->counts.async = true;
    ex->backend = &c->counts;
    ex->device = &kernel_device_full;
    return OK;
}
}
