/* hip_table: HIP's runtime, which is opened by name when the program first asks for a GPU. Functions, types
 * and numbers are those of HIP's public interface since ROCm 6, so neither the build nor a machine
 * without a GPU needs ROCm. Fields have the names of CUDA's functions (gpu_runtime.cu). */
#ifndef KERNELS_AMD_HIP_TABLE_H
#define KERNELS_AMD_HIP_TABLE_H

#include "engine/base/status.h"

#include <stddef.h>

/* NOLINTBEGIN(readability-identifier-naming,bugprone-macro-parentheses): names of HIP */
typedef struct ihipStream_t *hipStream_t;
typedef int hipError_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipModule_t *hipModule_t;
typedef struct ihipModuleSymbol_t *hipFunction_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct hipGraphNode *hipGraphNode_t;
typedef struct hipGraphExec *hipGraphExec_t;
typedef int hipGraphNodeType;
typedef struct hipIpcMemHandle_t {
    char bytes[64];
} hipIpcMemHandle_t;

enum {
    hipSuccess = 0,
    hipErrorNoDevice = 100,
    hipErrorNotReady = 600,
    hipErrorPeerAccessAlreadyEnabled = 704,
    hipMemcpyDefault = 4,
    hipHostAllocPortable = 1,
    hipHostRegisterPortable = 1,
    hipStreamNonBlocking = 1,
    hipStreamCaptureModeThreadLocal = 1,
    hipEventDefault = 0,
    hipEventDisableTiming = 2,
    hipIpcMemLazyEnablePeerAccess = 1,
    hipGraphNodeTypeKernel = 0,
};

/* Of hipDeviceGetAttribute. */
enum {
    hipDeviceAttributeComputeCapabilityMajor = 23,
    hipDeviceAttributeComputeCapabilityMinor = 61,
    hipDeviceAttributeMultiprocessorCount = 63,
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
};

/* Field, HIP's function, its arguments. All return an error code, but for those of HIP_TEXTS. */
#define HIP_CALLS(CALL)                                                                            \
    CALL(GetDeviceCount, hipGetDeviceCount, (int *))                                               \
    CALL(GetDevice, hipGetDevice, (int *))                                                         \
    CALL(SetDevice, hipSetDevice, (int))                                                           \
    CALL(DriverGetVersion, hipDriverGetVersion, (int *))                                           \
    CALL(RuntimeGetVersion, hipRuntimeGetVersion, (int *))                                         \
    CALL(DeviceGetAttribute, hipDeviceGetAttribute, (int *, int, int))                             \
    CALL(DeviceGetName, hipDeviceGetName, (char *, int, int))                                      \
    CALL(DeviceGetPCIBusId, hipDeviceGetPCIBusId, (char *, int, int))                              \
    CALL(DeviceEnablePeerAccess, hipDeviceEnablePeerAccess, (int, unsigned))                       \
    CALL(DeviceCanAccessPeer, hipDeviceCanAccessPeer, (int *, int, int))                           \
    CALL(DeviceGetStreamPriorityRange, hipDeviceGetStreamPriorityRange, (int *, int *))            \
    CALL(MemGetInfo, hipMemGetInfo, (size_t *, size_t *))                                          \
    CALL(GetLastError, hipGetLastError, (void))                                                    \
    CALL(Malloc, hipMalloc, (void **, size_t))                                                     \
    CALL(Free, hipFree, (void *))                                                                  \
    CALL(HostAlloc, hipHostMalloc, (void **, size_t, unsigned))                                    \
    CALL(FreeHost, hipHostFree, (void *))                                                          \
    CALL(HostRegister, hipHostRegister, (void *, size_t, unsigned))                                \
    CALL(HostUnregister, hipHostUnregister, (void *))                                              \
    CALL(MemcpyAsync, hipMemcpyAsync, (void *, const void *, size_t, int, hipStream_t))            \
    CALL(MemsetAsync, hipMemsetAsync, (void *, int, size_t, hipStream_t))                          \
    CALL(IpcGetMemHandle, hipIpcGetMemHandle, (hipIpcMemHandle_t *, void *))                       \
    CALL(IpcOpenMemHandle, hipIpcOpenMemHandle, (void **, hipIpcMemHandle_t, unsigned))            \
    CALL(IpcCloseMemHandle, hipIpcCloseMemHandle, (void *))                                        \
    CALL(StreamCreateWithPriority, hipStreamCreateWithPriority, (hipStream_t *, unsigned, int))    \
    CALL(StreamDestroy, hipStreamDestroy, (hipStream_t))                                           \
    CALL(StreamSynchronize, hipStreamSynchronize, (hipStream_t))                                   \
    CALL(StreamQuery, hipStreamQuery, (hipStream_t))                                               \
    CALL(StreamWaitEvent, hipStreamWaitEvent, (hipStream_t, hipEvent_t, unsigned))                 \
    CALL(StreamBeginCapture, hipStreamBeginCapture, (hipStream_t, int))                            \
    CALL(StreamEndCapture, hipStreamEndCapture, (hipStream_t, hipGraph_t *))                       \
    CALL(EventCreateWithFlags, hipEventCreateWithFlags, (hipEvent_t *, unsigned))                  \
    CALL(EventDestroy, hipEventDestroy, (hipEvent_t))                                              \
    CALL(EventRecord, hipEventRecord, (hipEvent_t, hipStream_t))                                   \
    CALL(EventSynchronize, hipEventSynchronize, (hipEvent_t))                                      \
    CALL(EventQuery, hipEventQuery, (hipEvent_t))                                                  \
    CALL(EventElapsedTime, hipEventElapsedTime, (float *, hipEvent_t, hipEvent_t))                 \
    CALL(GraphGetNodes, hipGraphGetNodes, (hipGraph_t, hipGraphNode_t *, size_t *))                \
    CALL(GraphNodeGetType, hipGraphNodeGetType, (hipGraphNode_t, hipGraphNodeType *))              \
    CALL(GraphInstantiate, hipGraphInstantiateWithFlags,                                           \
         (hipGraphExec_t *, hipGraph_t, unsigned long long))                                       \
    CALL(GraphUpload, hipGraphUpload, (hipGraphExec_t, hipStream_t))                               \
    CALL(GraphLaunch, hipGraphLaunch, (hipGraphExec_t, hipStream_t))                               \
    CALL(GraphDestroy, hipGraphDestroy, (hipGraph_t))                                              \
    CALL(GraphExecDestroy, hipGraphExecDestroy, (hipGraphExec_t))                                  \
    CALL(ModuleLoadData, hipModuleLoadData, (hipModule_t *, const void *))                         \
    CALL(ModuleGetFunction, hipModuleGetFunction, (hipFunction_t *, hipModule_t, const char *))    \
    CALL(ModuleLaunchKernel, hipModuleLaunchKernel,                                                \
         (hipFunction_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
          hipStream_t, void **, void **))
#define HIP_TEXTS(CALL)                                                                            \
    CALL(GetErrorString, hipGetErrorString)                                                        \
    CALL(GetErrorName, hipGetErrorName)

typedef struct HipTable {
#define CALL(field, name, arguments) hipError_t(*field) arguments;
    HIP_CALLS(CALL)
#undef CALL
#define CALL(field, name) const char *(*field)(hipError_t);
    HIP_TEXTS(CALL)
#undef CALL
} HipTable;
/* NOLINTEND(readability-identifier-naming,bugprone-macro-parentheses) */

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the runtime at the first call. ERR_DEVICE: where it was looked for, and what to install. */
Status hip_open(void);
/* Only after hip_open succeeded. */
const HipTable *hip_table(void);

/* Gives the kernels of the program to a device, which must be current. */
Status hip_kernels_load(int device);

#ifdef __cplusplus
}
#endif

#endif
