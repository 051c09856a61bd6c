/* runtime_cuda: what gpu_runtime.cu takes of CUDA's runtime, and what is CUDA's alone. */
#ifndef ENGINE_GPU_RUNTIME_CUDA_CUH
#define ENGINE_GPU_RUNTIME_CUDA_CUH

#include <cuda_runtime.h>

extern "C" {
#include "engine/base/log.h"
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

/* Never launched. Its attributes say which of the program's code the driver takes for this GPU: code of
 * sm_90a has more shared memory. */
enum { PROBE_BYTES = 16, PROBE_BYTES_SM90A = 1024 };
static __global__ void code_probe(int *out)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ volatile char room[PROBE_BYTES_SM90A];
#else
    __shared__ volatile char room[PROBE_BYTES];
#endif
    room[threadIdx.x] = (char)*out;
    *out = room[0];
}

/* GPU_CODES, from the Makefile, lists what the program was built for, "sm_80 compute_90". */
static Status device_open(int device, const GpuInfo *info)
{
    cudaFuncAttributes probe;
    cudaError_t e = cudaFuncGetAttributes(&probe, code_probe);
    if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction)
        return FAIL(
            ERR_DEVICE,
            "GPU %d (%s) has compute capability %d.%d, and this program has code for %s: build it "
            "on "
            "a machine with such a GPU, or with `make CUDA=1 GPU_ARCH=all`, or set run.device=cpu",
            device, info->name, info->major, info->minor, GPU_CODES);
    TRY(gpu_status(e, "code for this GPU"));
    if (probe.binaryVersion > probe.ptxVersion)
        log_info("GPU %d (%s): the driver translates kernels that were compiled for %d.%d; the "
                 "first start takes "
                 "longer, and nobody has measured this GPU",
                 device, info->name, probe.ptxVersion / 10, probe.ptxVersion % 10);
    return OK;
}

extern "C" const char *gpu_code_lacks()
{
    cudaFuncAttributes probe;
    if (gpu_limit(GPU_CAPABILITY_MAJOR) != 9 ||
        cudaFuncGetAttributes(&probe, code_probe) != cudaSuccess ||
        probe.sharedSizeBytes >= PROBE_BYTES_SM90A)
        return NULL;
    return "no code of sm_90a is in use: the program was built without it (GPU_ARCH), or "
           "CUDA_FORCE_PTX_JIT is set";
}

extern "C" Status gpu_kernel_shared(const void *kernel, size_t bytes, const char *what)
{
    return gpu_status(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        what);
}

#endif
