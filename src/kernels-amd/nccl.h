/* nccl: the part of NCCL's public interface that engine/comm/nccl.c uses, for builds whose collectives are RCCL.
 * RCCL has NCCL's functions, types and numbers under the same names; a stream is HIP's. Builds for NVIDIA take NCCL's own
 * header. */
#ifndef KERNELS_AMD_NCCL_H
#define KERNELS_AMD_NCCL_H

#include <limits.h>
#include <stddef.h>

typedef struct ncclComm *ncclComm_t;

typedef enum { ncclSuccess = 0, ncclInProgress = 7 } ncclResult_t;
typedef enum { ncclSum = 0, ncclMax = 2 } ncclRedOp_t;
typedef enum {
    ncclInt8 = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt64 = 4,
    ncclFloat16 = 6,
    ncclFloat32 = 7,
    ncclFloat64 = 8,
    ncclBfloat16 = 9
} ncclDataType_t;

typedef struct {
    char internal[128];
} ncclUniqueId;

/* The layout of version 2.27. A library takes what it knows of it, by the size. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                    \
    {                                                                                              \
        .size = sizeof(ncclConfig_t), .magic = 0xcafebeef, .version = 22700, .blocking = INT_MIN,  \
        .cgaClusterSize = INT_MIN, .minCTAs = INT_MIN, .maxCTAs = INT_MIN, .splitShare = INT_MIN,  \
        .trafficClass = INT_MIN, .collnetEnable = INT_MIN                                          \
    }

ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error);
ncclResult_t ncclMemAlloc(void **out, size_t bytes);
ncclResult_t ncclMemFree(void *at);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, void *stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n_received, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, void *stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t n_sent, ncclDataType_t type,
                           ncclComm_t comm, void *stream);
ncclResult_t ncclAlltoAll(const void *from, void *to, size_t n, ncclDataType_t type,
                          ncclComm_t comm, void *stream);
ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, void *stream);
ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      void *stream);
ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      void *stream);

#endif
