/* gpu_runtime: implements gpu.h with a vendor's runtime. Each function is a thin wrapper that turns the
 * runtime's error into a Status; policy (which stream, when to wait) is in engine/backend/gpu.c. CUDA and HIP
 * name the same things alike: RT(Success) is cudaSuccess or hipSuccess, CALL(Malloc) the function. What
 * only one of them has is in its header. */
#ifdef __HIP__
#include "kernels-amd/runtime_hip.cuh"
#else
#include "engine/gpu/runtime_cuda.cuh"
#endif

#include <cstdio>
#include <cstring>
#include <new>

extern "C" {

Status gpu_status(int code, const char *what)
{
    Error e = (Error)code;
    if (e == RT(Success)) return OK;
    return FAIL(ERR_DEVICE, "%s: %s (%s)", what, CALL(GetErrorString)(e), CALL(GetErrorName)(e));
}

Status gpu_launch_status(const char *what) { return gpu_status(CALL(GetLastError)(), what); }
void gpu_error_clear(void) { (void)CALL(GetLastError)(); }

/* Devices */

bool gpu_built(void) { return true; }
int gpu_runtime_version(void) { return runtime_version(); }

int gpu_devices(void)
{
    int n = 0;
    return runtime_there() && CALL(GetDeviceCount)(&n) == RT(Success) ? n : 0;
}

Status gpu_current(int *device) { return gpu_status(CALL(GetDevice)(device), "current GPU"); }

/* The runtime is checked before anything else is asked, because an old one fails with a sentence that
 * helps nobody. */
Status gpu_info(int device, GpuInfo *out)
{
    GpuInfo info = {};
    TRY(runtime_check(&info));
    int n = gpu_devices();
    if (device >= n) {
        return FAIL(ERR_DEVICE, "GPU %d was asked for, %d found", device, n);
    }
    TRY(device_check(device, &info));
    TRY(gpu_status(CALL(SetDevice)(device), "GPU selection"));
    TRY(gpu_status(CALL(MemGetInfo)(&info.free_bytes, &info.total_bytes), "GPU memory"));
    *out = info;
    return device_open(device, out);
}

/* One attribute is much cheaper to ask for than all properties. */
int gpu_limit(GpuLimit which)
{
    static_assert(sizeof LIMITS / sizeof *LIMITS == GPU_BLOCK_SHARED_BYTES + 1, "a row each");
    int device = 0, value = 0;
    if (!runtime_there() || CALL(GetDevice)(&device) != RT(Success)) return 0;
    return CALL(DeviceGetAttribute)(&value, LIMITS[which], device) == RT(Success) ? value : 0;
}

Status gpu_bus_id(int device, char out[GPU_BUS_ID_MAX])
{
    return gpu_status(CALL(DeviceGetPCIBusId)(out, GPU_BUS_ID_MAX, device), "PCI bus id");
}

Status gpu_used_bytes(size_t *out)
{
    size_t free_bytes = 0, total = 0;
    TRY(gpu_status(CALL(MemGetInfo)(&free_bytes, &total), "GPU memory"));
    *out = total - free_bytes;
    return OK;
}

/* Memory */

Status gpu_alloc(size_t bytes, void **out)
{
    return gpu_status(CALL(Malloc)(out, bytes), "device memory");
}

void gpu_free(void *at) { (void)CALL(Free)(at); }

/* Portable: the memory is pinned for all devices of the process, since several ranks may be its
 * threads. */
Status gpu_alloc_pinned(size_t bytes, void **out)
{
    return gpu_status(CALL(HostAlloc)(out, bytes, RT(HostAllocPortable)), "pinned memory");
}

void gpu_free_pinned(void *at) { (void)CALL(FreeHost)(at); }

Status gpu_pin(int device, void *at, size_t bytes)
{
    TRY(gpu_status(CALL(SetDevice)(device), "GPU selection"));
    Error e = CALL(HostRegister)(at, bytes, RT(HostRegisterPortable));
    if (e != RT(Success)) gpu_error_clear(); /* or the next launch would report it */
    return gpu_status(e, "pinned memory");
}

void gpu_unpin(void *at)
{
    if (CALL(HostUnregister)(at) != RT(Success)) gpu_error_clear();
}

/* MemcpyDefault: the runtime knows from the addresses which side is the device. */
Status gpu_copy(void *dst, const void *src, size_t bytes, GpuStream s)
{
    return gpu_status(CALL(MemcpyAsync)(dst, src, bytes, RT(MemcpyDefault), (Stream)s), "copy");
}

Status gpu_fill(void *dst, int byte, size_t bytes, GpuStream s)
{
    return gpu_status(CALL(MemsetAsync)(dst, byte, bytes, (Stream)s), "fill");
}

const char *gpu_error_text(int code) { return CALL(GetErrorString)((Error)code); }

/* Returns the code and clears CUDA's error state, or the next launch would report this error. */
static int code_of(Error e)
{
    gpu_error_clear();
    return e;
}

int gpu_share_make(void *base, GpuShare *out)
{
    RT(IpcMemHandle_t) handle = {};
    static_assert(sizeof handle == sizeof out->handle, "a share holds a handle");
    Error e = CALL(IpcGetMemHandle)(&handle, base);
    memcpy(out->handle, &handle, sizeof handle);
    return code_of(e);
}

/* Peer access is enabled at the first use of the memory, not here. */
int gpu_share_open(const GpuShare *share, void **out)
{
    RT(IpcMemHandle_t) handle = {};
    memcpy(&handle, share->handle, sizeof handle);
    return code_of(CALL(IpcOpenMemHandle)(out, handle, RT(IpcMemLazyEnablePeerAccess)));
}

void gpu_share_close(void *at) { (void)CALL(IpcCloseMemHandle)(at); }

int gpu_peer_open(int device)
{
    int code = code_of(CALL(DeviceEnablePeerAccess)(device, 0));
    return code == RT(ErrorPeerAccessAlreadyEnabled) ? 0 : code;
}

bool gpu_all_reach(void)
{
    const int n = gpu_devices();
    int reaches = 1;
    for (int i = 0; i < n * n && reaches; i++)
        if (i / n != i % n && CALL(DeviceCanAccessPeer)(&reaches, i / n, i % n) != RT(Success))
            return false;
    return reaches;
}

/* Streams and events */

/* Non-blocking: the stream does not wait for the legacy default stream, on which libraries may
 * work. A smaller number is a higher priority. */
Status gpu_stream_make(bool urgent, GpuStream *out)
{
    int least = 0, greatest = 0;
    Stream s = NULL;
    TRY(gpu_status(CALL(DeviceGetStreamPriorityRange)(&least, &greatest), "priorities"));
    TRY(gpu_status(
        CALL(StreamCreateWithPriority)(&s, RT(StreamNonBlocking), urgent ? greatest : least),
        "stream"));
    *out = s;
    return OK;
}

void gpu_stream_free(GpuStream s) { (void)CALL(StreamDestroy)((Stream)s); }

static Status wait_status(Error e) { return gpu_status(e, "wait for the GPU"); }

/* The result of a query. CUDA also keeps "not ready" as an error for the next launch, so it is
 * cleared. */
static Status busy_status(Error e, bool *busy)
{
    *busy = e == RT(ErrorNotReady);
    if (!*busy) return wait_status(e);
    gpu_error_clear();
    return OK;
}

Status gpu_stream_sync(GpuStream s) { return wait_status(CALL(StreamSynchronize)((Stream)s)); }

Status gpu_stream_busy(GpuStream s, bool *out)
{
    return busy_status(CALL(StreamQuery)((Stream)s), out);
}

Status gpu_stream_wait(GpuStream s, GpuEvent e)
{
    return gpu_status(CALL(StreamWaitEvent)((Stream)s, (Event)e, 0), "event wait");
}

/* Events without timing are cheaper to record and to wait for. */
Status gpu_event_make(bool timed, GpuEvent *out)
{
    Event e = NULL;
    TRY(gpu_status(
        CALL(EventCreateWithFlags)(&e, timed ? RT(EventDefault) : RT(EventDisableTiming)),
        "event"));
    *out = e;
    return OK;
}

void gpu_event_free(GpuEvent e) { (void)CALL(EventDestroy)((Event)e); }

Status gpu_event_record(GpuEvent e, GpuStream s)
{
    return gpu_status(CALL(EventRecord)((Event)e, (Stream)s), "event record");
}

Status gpu_event_sync(GpuEvent e) { return wait_status(CALL(EventSynchronize)((Event)e)); }

Status gpu_event_busy(GpuEvent e, bool *out)
{
    return busy_status(CALL(EventQuery)((Event)e), out);
}

Status gpu_event_elapsed_s(GpuEvent from, GpuEvent to, double *out)
{
    float ms = 0;
    TRY(gpu_status(CALL(EventElapsedTime)(&ms, (Event)from, (Event)to), "event time"));
    *out = (double)ms / 1e3;
    return OK;
}

/* Graphs */

/* Thread-local: other ranks that are threads of this process may call the runtime meanwhile. */
Status gpu_capture_begin(GpuStream s)
{
    return gpu_status(CALL(StreamBeginCapture)((Stream)s, RT(StreamCaptureModeThreadLocal)),
                      "start of a capture");
}

/* The first call gives the number of nodes, the second one the nodes. */
static Status count_nodes(RT(Graph_t) graph, Graph *out)
{
    size_t n = 0;
    TRY(gpu_status(CALL(GraphGetNodes)(graph, NULL, &n), "graph"));
    RT(GraphNode_t) *nodes = new (std::nothrow) RT(GraphNode_t)[n];
    if (nodes == NULL) return FAIL(ERR_MEMORY, "graph: no room for a list of %zu nodes", n);
    Status s = gpu_status(CALL(GraphGetNodes)(graph, nodes, &n), "graph");
    for (size_t i = 0; i < n && s == OK; i++) {
        RT(GraphNodeType) type;
        s = gpu_status(CALL(GraphNodeGetType)(nodes[i], &type), "graph");
        out->kernels += type == RT(GraphNodeTypeKernel);
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
    RT(Graph_t) graph = NULL;
    RT(GraphExec_t) exec = NULL;
    TRY(gpu_status(CALL(StreamEndCapture)((Stream)stream, &graph), "end of a capture"));
    Status s = count_nodes(graph, &g);
    if (s == OK) s = gpu_status(CALL(GraphInstantiate)(&exec, graph, 0), "graph");
    (void)CALL(GraphDestroy)(graph);
    TRY(s);
    g.exec = exec;
    *out = g;
    return gpu_status(CALL(GraphUpload)(exec, (Stream)stream), "graph");
}

Status gpu_graph_launch(const Graph *g, GpuStream s)
{
    return gpu_status(CALL(GraphLaunch)((RT(GraphExec_t))g->exec, (Stream)s), "start of the step");
}

void gpu_graph_free(Graph *g)
{
    if (g->exec != NULL) (void)CALL(GraphExecDestroy)((RT(GraphExec_t))g->exec);
    memset(g, 0, sizeof *g);
}
}
