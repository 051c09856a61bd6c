#include "op/kernel.cuh"

extern "C" {
#include "backend/cuda.h"
}

#include <cstring>

static cudaEvent_t event_of(const CudaTimer *t, int which) { return (cudaEvent_t)t->event[which]; }

static __device__ __forceinline__ uint64_t now_ns()
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void delay_kernel(uint64_t ns)
{
    for (uint64_t start = now_ns(); now_ns() - start < ns;) __nanosleep(1000);
}

extern "C" {

Status cuda_timer_make(Arena *a, int n, CudaTimer *out)
{
    void *memory = NULL;
    TRY(arena_alloc_zero(a, (size_t)n * sizeof(void *), &memory));
    CudaTimer t = { (void **)memory, n };
    Status s = OK;
    for (int i = 0; i < n && s == OK; i++)
        s = cuda_status(cudaEventCreate((cudaEvent_t *)&t.event[i]), "event");
    if (s != OK) cuda_timer_free(&t);
    *out = t;
    return s;
}

void cuda_timer_free(CudaTimer *t)
{
    for (int i = 0; i < t->n; i++) {
        if (t->event[i] != NULL) cudaEventDestroy(event_of(t, i));
    }
    memset(t, 0, sizeof *t);
}

Status cuda_timer_mark(const CudaTimer *t, Exec *ex, int which)
{
    return cuda_status(cudaEventRecord(event_of(t, which), exec_stream(ex)), "mark");
}

Status cuda_timer_s(const CudaTimer *t, int from, int to, double *out)
{
    float ms = 0;
    TRY(cuda_status(cudaEventElapsedTime(&ms, event_of(t, from), event_of(t, to)), "marks"));
    *out = (double)ms / 1e3;
    return OK;
}

Status cuda_delay(Exec *ex, double seconds)
{
    delay_kernel<<<1, 1, 0, exec_stream(ex)>>>((uint64_t)(seconds * 1e9));
    return kernel_status("delay");
}
}
