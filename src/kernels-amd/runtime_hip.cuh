/* runtime_hip: what gpu_runtime.cu takes of HIP's runtime, and what is HIP's alone. */
#ifndef KERNELS_AMD_RUNTIME_HIP_CUH
#define KERNELS_AMD_RUNTIME_HIP_CUH

extern "C" {
#include "engine/gpu/gpu.h"
#include "kernels-amd/hip_table.h"
}

#include <cstdio>
#include <cstring>

#define RT(name)   hip##name
#define CALL(name) hip_table()->name
typedef hipError_t Error;
typedef hipStream_t Stream;
typedef hipEvent_t Event;

/* In the order of GpuLimit. All of a processor's shared memory can be asked for. */
static const int LIMITS[] = {
    hipDeviceAttributeComputeCapabilityMajor, /* GPU_CAPABILITY_MAJOR */
    hipDeviceAttributeComputeCapabilityMinor,
    hipDeviceAttributeMultiprocessorCount,
    hipDeviceAttributeMaxSharedMemoryPerBlock,
};

extern "C" const GpuRuntime gpu_runtime = GPU_RUNTIME_HIP;
extern "C" const char gpu_kernels_note[] =
    "built for" HIP_ARCHES "; these kernels ran in an interpreter, never on a GPU";
extern "C" const GpuLibraries gpu_libraries = {
    .collectives = "librccl.so.1",
    .collectives_advice = "install RCCL of ROCm 6.2 or later, or set LD_LIBRARY_PATH",
    .collectives_least = 22200,
};

static bool runtime_there()
{
    if (hip_open() == OK) return true;
    status_clear();
    return false;
}

/* HIP's versions are 10^7 * major + 10^5 * minor + patch, those of gpu.h 1000 * major + 10 * minor. */
static int version_of(int hip) { return hip / 10000000 * 1000 + hip / 100000 % 100 * 10; }

static int runtime_version()
{
    int version = 0;
    if (runtime_there()) (void)CALL(RuntimeGetVersion)(&version);
    return version_of(version);
}

static Status runtime_check(GpuInfo *info)
{
    TRY(hip_open());
    TRY(gpu_status(CALL(RuntimeGetVersion)(&info->runtime), "HIP runtime"));
    TRY(gpu_status(CALL(DriverGetVersion)(&info->driver), "AMD driver"));
    info->runtime = version_of(info->runtime);
    info->driver = version_of(info->driver);
    return OK;
}

/* HIP_ARCHES lists what the program was built for, " gfx942 gfx950". A chip's compute capability are
 * the first two digits of its name: 9.4 and 9.5. */
static Status device_check(int device, GpuInfo *info)
{
    char chip[16];
    TRY(gpu_status(CALL(DeviceGetName)(info->name, GPU_NAME_MAX, device), "GPU properties"));
    TRY(gpu_status(CALL(DeviceGetAttribute)(&info->major, LIMITS[GPU_CAPABILITY_MAJOR], device),
                   "GPU properties"));
    TRY(gpu_status(CALL(DeviceGetAttribute)(&info->minor, LIMITS[GPU_CAPABILITY_MINOR], device),
                   "GPU properties"));
    TRY(gpu_status(CALL(DeviceGetAttribute)(&info->sms, LIMITS[GPU_PROCESSORS], device),
                   "GPU properties"));
    snprintf(chip, sizeof chip, " gfx%d%d", info->major, info->minor);
    if (strstr(HIP_ARCHES, chip) != NULL) return OK;
    return FAIL(
        ERR_DEVICE,
        "GPU %d (%s) is a%sx, and this program has kernels for%s: build it with `make HIP=1 "
        "HIP_ARCH=...`, or set run.device=cpu",
        device, info->name, chip, HIP_ARCHES);
}

static Status device_open(int device, const GpuInfo *) { return hip_kernels_load(device); }
extern "C" const char *gpu_code_lacks() { return NULL; }

/* A block may use all of the shared memory that there is without asking. */
extern "C" Status gpu_kernel_shared(const void *, size_t bytes, const char *what)
{
    size_t most = (size_t)gpu_limit(GPU_BLOCK_SHARED_BYTES);
    if (bytes <= most) return OK;
    return FAIL(ERR_DEVICE, "%s: a block needs %zu bytes of shared memory, this GPU has %zu", what,
                bytes, most);
}

#endif
