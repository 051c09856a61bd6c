#include "op/blas.cuh"

extern "C" {
#include "backend/cuda.h"
}

#include <cstdio>
#include <cstring>

/* What an Exec on a GPU has beside the common part. */
struct Cuda {
    int device, sms;
    cudaStream_t stream;
    struct Blas *blas;
};

extern "C" {

bool cuda_built(void) { return true; }

Status cuda_status(cudaError_t e, const char *what)
{
    if (e == cudaSuccess) return OK;
    return FAIL(ERR_DEVICE, "%s: %s (%s)", what, cudaGetErrorString(e), cudaGetErrorName(e));
}

cudaStream_t exec_stream(Exec *ex) { return ex->cuda->stream; }
void *exec_workspace(Exec *ex) { return ex->workspace; }
int exec_sms(const Exec *ex) { return ex->cuda->sms; }
struct Blas *exec_blas(Exec *ex) { return ex->cuda->blas; }

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

Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch)
{
    CudaInfo info;
    void *memory = NULL;
    TRY(cuda_info(device, &info));
    TRY(arena_alloc_zero(arena, sizeof(Cuda), &memory));
    Cuda *c = (Cuda *)memory;
    c->device = device, c->sms = info.sms;
    TRY(cuda_status(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking), "stream"));
    TRY(cuda_blas_make(arena, &c->blas));
    memset(ex, 0, sizeof *ex);
    ex->stack[0] = &backend_cuda;
    ex->depth = 1;
    ex->scratch = scratch;
    ex->threads = 1;
    ex->layer = -1;
    ex->cuda = c;
    return OK;
}

void cuda_exec_free(Exec *ex)
{
    if (ex->cuda != NULL) {
        cuda_blas_free(ex->cuda->blas);
        cudaStreamDestroy(ex->cuda->stream);
    }
    memset(ex, 0, sizeof *ex);
}

static Status run(Exec *ex, int level, const OpDesc *op, const void *args)
{
    (void)level;
    if (op->cuda == NULL) return FAIL(ERR_UNSUPPORTED, "%s: there is no CUDA version", op->name);
    return op->cuda(ex, args);
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

static Status fill(Exec *ex, void *dst, int byte, size_t bytes)
{
    return cuda_status(cudaMemsetAsync(dst, byte, bytes, exec_stream(ex)), "fill");
}

static Status event_new(Exec *ex, Event *out)
{
    (void)ex;
    cudaEvent_t e = NULL;
    TRY(cuda_status(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event"));
    out->value = (uint64_t)(uintptr_t)e;
    return OK;
}

static Status record(Exec *ex, Event event)
{
    return cuda_status(cudaEventRecord((cudaEvent_t)(uintptr_t)event.value, exec_stream(ex)),
                       "event record");
}

static Status wait(Exec *ex, Event event)
{
    return cuda_status(cudaStreamWaitEvent(exec_stream(ex), (cudaEvent_t)(uintptr_t)event.value, 0),
                       "event wait");
}

static Status sync(Exec *ex)
{
    return cuda_status(cudaStreamSynchronize(exec_stream(ex)), "wait for the GPU");
}

const Backend backend_cuda = { "cuda", run,       alloc,  release, copy,
                               fill,   event_new, record, wait,    sync };
}
