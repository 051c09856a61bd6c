/* gpu_cuda: implements gpu.h with CUDA's runtime. Each function is a thin wrapper that turns CUDA's
 * error into a Status; policy (which stream, when to wait) is in backend/gpu.c. */
#include <cub/device/device_radix_sort.cuh>
#include <cuda_runtime.h>

extern "C" {
#include "gpu/gpu.h"
}

#include <cstdio>
#include <cstring>
#include <new>

static const int LEAST_MAJOR = 8; /* Ampere: bf16 matrix units and asynchronous copies */

extern "C" {

const GpuLibraries gpu_libraries = {
    .collectives = "libnccl.so.2",
    .collectives_advice = "install NCCL 2.28 or later (libnccl2), or set LD_LIBRARY_PATH",
};

Status gpu_status(int code, const char *what)
{
    cudaError_t e = (cudaError_t)code;
    if (e == cudaSuccess) return OK;
    return FAIL(ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

Status gpu_launch_status(const char *what) { return gpu_status(cudaGetLastError(), what); }
void gpu_error_clear(void) { (void)cudaGetLastError(); }

/* Devices */

bool gpu_built(void) { return true; }
int gpu_runtime_version(void) { return CUDART_VERSION; }

int gpu_devices(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

Status gpu_current(int *device) { return gpu_status(cudaGetDevice(device), "current GPU"); }

/* A driver runs programs of its own CUDA version and of older ones. Versions are 1000 * major + 10
 * * minor. */
static Status check_versions(GpuInfo *info)
{
    TRY(gpu_status(cudaRuntimeGetVersion(&info->runtime), "CUDA runtime"));
    if (cudaDriverGetVersion(&info->driver) != cudaSuccess || info->driver == 0) {
        return FAIL(ERR_UNSUPPORTED,
                    "no NVIDIA driver was found; this program needs one for CUDA %d.%d",
                    info->runtime / 1000, info->runtime % 1000 / 10);
    }
    if (info->driver >= info->runtime) return OK;
    return FAIL(ERR_UNSUPPORTED, "the NVIDIA driver is for CUDA %d.%d, this program needs %d.%d",
                info->driver / 1000, info->driver % 1000 / 10, info->runtime / 1000,
                info->runtime % 1000 / 10);
}

/* Versions are checked before anything else is asked, because an old driver fails with a sentence
 * that helps nobody. */
Status gpu_info(int device, GpuInfo *out)
{
    GpuInfo info = {};
    cudaDeviceProp p;
    int n = gpu_devices();
    TRY(check_versions(&info));
    if (device >= n) {
        return FAIL(ERR_UNSUPPORTED, "GPU %d was asked for, %d found", device, n);
    }
    TRY(gpu_status(cudaGetDeviceProperties(&p, device), "GPU properties"));
    if (p.major < LEAST_MAJOR) {
        return FAIL(ERR_UNSUPPORTED, "GPU %d (%s) has compute capability %d.%d, %d.0 is needed",
                    device, p.name, p.major, p.minor, LEAST_MAJOR);
    }
    TRY(gpu_status(cudaSetDevice(device), "GPU selection"));
    TRY(gpu_status(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "GPU memory"));
    snprintf(info.name, sizeof info.name, "%.*s", GPU_NAME_MAX - 1, p.name);
    info.major = p.major;
    info.minor = p.minor;
    info.sms = p.multiProcessorCount;
    *out = info;
    return OK;
}

/* One attribute is much cheaper to ask for than all properties. Rows are in the order of
 * GpuLimit. */
int gpu_limit(GpuLimit which)
{
    static const cudaDeviceAttr attribute[] = {
        cudaDevAttrComputeCapabilityMajor, /* GPU_CAPABILITY_MAJOR */
        cudaDevAttrComputeCapabilityMinor,
        cudaDevAttrMultiProcessorCount,
        cudaDevAttrMaxSharedMemoryPerBlockOptin,
    };
    static_assert(sizeof attribute / sizeof *attribute == GPU_BLOCK_SHARED_BYTES + 1, "a row each");
    int device = 0, value = 0;
    if (cudaGetDevice(&device) != cudaSuccess) return 0;
    return cudaDeviceGetAttribute(&value, attribute[which], device) == cudaSuccess ? value : 0;
}

Status gpu_bus_id(int device, char out[GPU_BUS_ID_MAX])
{
    return gpu_status(cudaDeviceGetPCIBusId(out, GPU_BUS_ID_MAX, device), "PCI bus id");
}

Status gpu_used_bytes(size_t *out)
{
    size_t free_bytes = 0, total = 0;
    TRY(gpu_status(cudaMemGetInfo(&free_bytes, &total), "GPU memory"));
    *out = total - free_bytes;
    return OK;
}

/* Memory */

Status gpu_alloc(size_t bytes, void **out)
{
    return gpu_status(cudaMalloc(out, bytes), "device memory");
}

void gpu_free(void *at) { (void)cudaFree(at); }

/* Portable: the memory is pinned for all devices of the process, since several ranks may be its
 * threads. */
Status gpu_alloc_pinned(size_t bytes, void **out)
{
    return gpu_status(cudaHostAlloc(out, bytes, cudaHostAllocPortable), "pinned memory");
}

void gpu_free_pinned(void *at) { (void)cudaFreeHost(at); }

/* cudaMemcpyDefault: the runtime knows from the addresses which side is the device. */
Status gpu_copy(void *dst, const void *src, size_t bytes, GpuStream s)
{
    return gpu_status(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, (cudaStream_t)s), "copy");
}

Status gpu_fill(void *dst, int byte, size_t bytes, GpuStream s)
{
    return gpu_status(cudaMemsetAsync(dst, byte, bytes, (cudaStream_t)s), "fill");
}

const char *gpu_error_text(int code) { return cudaGetErrorString((cudaError_t)code); }

/* Returns the code and clears CUDA's error state, or the next launch would report this error. */
static int code_of(cudaError_t e)
{
    gpu_error_clear();
    return e;
}

int gpu_share_make(void *base, GpuShare *out)
{
    cudaIpcMemHandle_t handle = {};
    static_assert(sizeof handle == sizeof out->handle, "a share holds a handle");
    cudaError_t e = cudaIpcGetMemHandle(&handle, base);
    memcpy(out->handle, &handle, sizeof handle);
    return code_of(e);
}

/* Peer access is enabled at the first use of the memory, not here. */
int gpu_share_open(const GpuShare *share, void **out)
{
    cudaIpcMemHandle_t handle = {};
    memcpy(&handle, share->handle, sizeof handle);
    return code_of(cudaIpcOpenMemHandle(out, handle, cudaIpcMemLazyEnablePeerAccess));
}

void gpu_share_close(void *at) { (void)cudaIpcCloseMemHandle(at); }

int gpu_peer_open(int device)
{
    int code = code_of(cudaDeviceEnablePeerAccess(device, 0));
    return code == cudaErrorPeerAccessAlreadyEnabled ? 0 : code;
}

/* Streams and events */

/* Non-blocking: the stream does not wait for the legacy default stream, on which libraries may
 * work. A smaller number is a higher priority. */
Status gpu_stream_make(bool urgent, GpuStream *out)
{
    int least = 0, greatest = 0;
    cudaStream_t s = NULL;
    TRY(gpu_status(cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities"));
    TRY(gpu_status(
        cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, urgent ? greatest : least),
        "stream"));
    *out = s;
    return OK;
}

void gpu_stream_free(GpuStream s) { (void)cudaStreamDestroy((cudaStream_t)s); }

static Status wait_status(cudaError_t e) { return gpu_status(e, "wait for the GPU"); }

/* The result of a query. CUDA also keeps "not ready" as an error for the next launch, so it is
 * cleared. */
static Status busy_status(cudaError_t e, bool *busy)
{
    *busy = e == cudaErrorNotReady;
    if (!*busy) return wait_status(e);
    gpu_error_clear();
    return OK;
}

Status gpu_stream_sync(GpuStream s) { return wait_status(cudaStreamSynchronize((cudaStream_t)s)); }

Status gpu_stream_busy(GpuStream s, bool *out)
{
    return busy_status(cudaStreamQuery((cudaStream_t)s), out);
}

Status gpu_stream_wait(GpuStream s, GpuEvent e)
{
    return gpu_status(cudaStreamWaitEvent((cudaStream_t)s, (cudaEvent_t)e, 0), "event wait");
}

/* Events without timing are cheaper to record and to wait for. */
Status gpu_event_make(bool timed, GpuEvent *out)
{
    cudaEvent_t e = NULL;
    TRY(gpu_status(cudaEventCreateWithFlags(&e, timed ? cudaEventDefault : cudaEventDisableTiming),
                   "event"));
    *out = e;
    return OK;
}

void gpu_event_free(GpuEvent e) { (void)cudaEventDestroy((cudaEvent_t)e); }

Status gpu_event_record(GpuEvent e, GpuStream s)
{
    return gpu_status(cudaEventRecord((cudaEvent_t)e, (cudaStream_t)s), "event record");
}

Status gpu_event_sync(GpuEvent e) { return wait_status(cudaEventSynchronize((cudaEvent_t)e)); }

Status gpu_event_busy(GpuEvent e, bool *out)
{
    return busy_status(cudaEventQuery((cudaEvent_t)e), out);
}

Status gpu_event_elapsed_s(GpuEvent from, GpuEvent to, double *out)
{
    float ms = 0;
    TRY(gpu_status(cudaEventElapsedTime(&ms, (cudaEvent_t)from, (cudaEvent_t)to), "event time"));
    *out = (double)ms / 1e3;
    return OK;
}

/* Graphs */

/* Thread-local: other ranks that are threads of this process may call the runtime meanwhile. */
Status gpu_capture_begin(GpuStream s)
{
    return gpu_status(cudaStreamBeginCapture((cudaStream_t)s, cudaStreamCaptureModeThreadLocal),
                      "start of a capture");
}

/* The first call gives the number of nodes, the second one the nodes. */
static Status count_nodes(cudaGraph_t graph, Graph *out)
{
    size_t n = 0;
    TRY(gpu_status(cudaGraphGetNodes(graph, NULL, &n), "graph"));
    cudaGraphNode_t *nodes = new (std::nothrow) cudaGraphNode_t[n];
    if (nodes == NULL) return FAIL(ERR_MEMORY, "graph: no room for a list of %zu nodes", n);
    Status s = gpu_status(cudaGraphGetNodes(graph, nodes, &n), "graph");
    for (size_t i = 0; i < n && s == OK; i++) {
        cudaGraphNodeType type;
        s = gpu_status(cudaGraphNodeGetType(nodes[i], &type), "graph");
        out->kernels += type == cudaGraphNodeTypeKernel;
    }
    out->nodes = (int64_t)n;
    delete[] nodes;
    return s;
}

/* The upload moves the graph's launch to the device now, so that the first step is not slower than
 * the next ones. */
Status gpu_capture_end(GpuStream stream, Graph *out)
{
    Graph g = {};
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    TRY(gpu_status(cudaStreamEndCapture((cudaStream_t)stream, &graph), "end of a capture"));
    Status s = count_nodes(graph, &g);
    if (s == OK) s = gpu_status(cudaGraphInstantiate(&exec, graph, 0), "graph");
    (void)cudaGraphDestroy(graph);
    TRY(s);
    g.exec = exec;
    *out = g;
    return gpu_status(cudaGraphUpload(exec, (cudaStream_t)stream), "graph");
}

Status gpu_graph_launch(const Graph *g, GpuStream s)
{
    return gpu_status(cudaGraphLaunch((cudaGraphExec_t)g->exec, (cudaStream_t)s),
                      "start of the step");
}

void gpu_graph_free(Graph *g)
{
    if (g->exec != NULL) (void)cudaGraphExecDestroy((cudaGraphExec_t)g->exec);
    memset(g, 0, sizeof *g);
}

/* Kernels */

Status gpu_kernel_shared(const void *kernel, size_t bytes, const char *what)
{
    return gpu_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        what);
}

/* If `room` is NULL, CUB only sets *bytes to the workspace that it needs. Otherwise it sorts. */
static cudaError_t sort_call(const GpuSort *x, void *room, size_t *bytes, cudaStream_t s)
{
    return cub::DeviceRadixSort::SortPairs(room, *bytes, x->key[0], x->key[1], x->value[0],
                                           x->value[1], x->n, 0, x->bits, s);
}

/* For keys of all 32 bits, which need the most. CUB only reads the sizes here, so pointers may be
 * NULL. */
size_t gpu_sort_bytes(int64_t n)
{
    size_t bytes = 0;
    GpuSort x = { {}, {}, n, 8 * (int)sizeof(uint32_t) };
    (void)sort_call(&x, NULL, &bytes, NULL);
    return bytes;
}

Status gpu_sort(const GpuSort *x, void *room, size_t room_bytes, GpuStream s)
{
    return gpu_status(sort_call(x, room, &room_bytes, (cudaStream_t)s), "sort");
}
}
