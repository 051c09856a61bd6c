/* runtime_cuda: what gpu_runtime.cu takes of CUDA's runtime, and what is CUDA's alone. */
#ifndef ENGINE_GPU_RUNTIME_CUDA_CUH
#define ENGINE_GPU_RUNTIME_CUDA_CUH

#include <cuda_runtime.h>

extern "C" {
#include "engine/gpu/gpu.h"
}

#include <cstdio>

#define RT(name)   cuda##name
#define CALL(name) cuda##name
typedef cudaError_t Error;
typedef cudaStream_t Stream;
typedef cudaEvent_t Event;

static const int LEAST_MAJOR = 8; /* Ampere: bf16 matrix units and asynchronous copies */

/* In the order of GpuLimit. */
static const cudaDeviceAttr LIMITS[] = {
    cudaDevAttrComputeCapabilityMajor, /* GPU_CAPABILITY_MAJOR */
    cudaDevAttrComputeCapabilityMinor,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrMaxSharedMemoryPerBlockOptin,
};

extern "C" const GpuRuntime gpu_runtime = GPU_RUNTIME_CUDA;
extern "C" const char gpu_kernels_note[] = "";
extern "C" const GpuLibraries gpu_libraries = {
    .collectives = "libnccl.so.2",
    .collectives_advice = "install NCCL 2.28 or later (libnccl2), or set LD_LIBRARY_PATH",
    .collectives_least = 22800,
};

/* The runtime is part of the program. */
static bool runtime_there() { return true; }
static int runtime_version() { return CUDART_VERSION; }

/* A driver runs programs of its own CUDA version and of older ones. Versions are 1000 * major + 10
 * * minor. */
static Status runtime_check(GpuInfo *info)
{
    TRY(gpu_status(cudaRuntimeGetVersion(&info->runtime), "CUDA runtime"));
    if (cudaDriverGetVersion(&info->driver) != cudaSuccess || info->driver == 0) {
        return FAIL(ERR_DEVICE, "no NVIDIA driver was found; this program needs one for CUDA %d.%d",
                    info->runtime / 1000, info->runtime % 1000 / 10);
    }
    if (info->driver >= info->runtime) return OK;
    return FAIL(ERR_DEVICE, "the NVIDIA driver is for CUDA %d.%d, this program needs %d.%d",
                info->driver / 1000, info->driver % 1000 / 10, info->runtime / 1000,
                info->runtime % 1000 / 10);
}

static Status device_check(int device, GpuInfo *info)
{
    cudaDeviceProp p;
    TRY(gpu_status(cudaGetDeviceProperties(&p, device), "GPU properties"));
    if (p.major < LEAST_MAJOR) {
        return FAIL(ERR_DEVICE, "GPU %d (%s) has compute capability %d.%d, %d.0 is needed", device,
                    p.name, p.major, p.minor, LEAST_MAJOR);
    }
    snprintf(info->name, sizeof info->name, "%.*s", GPU_NAME_MAX - 1, p.name);
    info->major = p.major;
    info->minor = p.minor;
    info->sms = p.multiProcessorCount;
    return OK;
}

/* Kernels are part of the program, and the driver loads them. */
static Status device_open(int) { return OK; }

extern "C" Status gpu_kernel_shared(const void *kernel, size_t bytes, const char *what)
{
    return gpu_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        what);
}

#endif
