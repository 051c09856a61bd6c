/* hipblaslt: the part of hipBLASLt's public interface that blas.cu calls. Functions, types and numbers
 * are those since ROCm 6.2, so neither the build nor a machine without the library needs its headers.
 * Matrices are stored by columns, and ld is the distance of two columns in elements. */
#ifndef KERNELS_AMD_HIPBLASLT_H
#define KERNELS_AMD_HIPBLASLT_H

#include <stddef.h>
#include <stdint.h>

struct ihipStream_t;

/* NOLINTBEGIN(readability-identifier-naming): the names are AMD's */
typedef enum hipblasStatus_t {
    HIPBLAS_STATUS_SUCCESS = 0,
    HIPBLAS_STATUS_NOT_INITIALIZED = 1,
    HIPBLAS_STATUS_ALLOC_FAILED = 2,
    HIPBLAS_STATUS_INVALID_VALUE = 3,
    HIPBLAS_STATUS_MAPPING_ERROR = 4,
    HIPBLAS_STATUS_EXECUTION_FAILED = 5,
    HIPBLAS_STATUS_INTERNAL_ERROR = 6,
    HIPBLAS_STATUS_NOT_SUPPORTED = 7,
    HIPBLAS_STATUS_ARCH_MISMATCH = 8,
    HIPBLAS_STATUS_HANDLE_IS_NULLPTR = 9,
    HIPBLAS_STATUS_INVALID_ENUM = 10,
    HIPBLAS_STATUS_UNKNOWN = 11
} hipblasStatus_t;

typedef enum hipblasOperation_t { HIPBLAS_OP_N = 111, HIPBLAS_OP_T = 112 } hipblasOperation_t;
typedef enum hipblasComputeType_t { HIPBLAS_COMPUTE_32F = 2 } hipblasComputeType_t;
typedef enum hipDataType { HIP_R_32F = 0, HIP_R_16BF = 14 } hipDataType;

/* Each is an int32_t. */
typedef enum hipblasLtMatmulDescAttributes_t {
    HIPBLASLT_MATMUL_DESC_TRANSA = 0,
    HIPBLASLT_MATMUL_DESC_TRANSB = 1
} hipblasLtMatmulDescAttributes_t;

/* A uint64_t; 0 unless it is set. */
typedef enum hipblasLtMatmulPreferenceAttributes_t {
    HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1
} hipblasLtMatmulPreferenceAttributes_t;

typedef void *hipblasLtHandle_t;
typedef struct hipblasLtMatmulDescOpaque_t *hipblasLtMatmulDesc_t;
typedef struct hipblasLtMatrixLayoutOpaque_t *hipblasLtMatrixLayout_t;
typedef struct hipblasLtMatmulPreferenceOpaque_t *hipblasLtMatmulPreference_t;

/* Plain bytes: a copy is the same algorithm, for the same version of the library. */
typedef struct hipblasLtMatmulAlgo_t {
    uint8_t data[16];
    size_t max_workspace_bytes;
} hipblasLtMatmulAlgo_t;

/* The rest is valid only if `state` is success. */
typedef struct hipblasLtMatmulHeuristicResult_t {
    hipblasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    hipblasStatus_t state;
    float wavesCount;
    int reserved[4];
} hipblasLtMatmulHeuristicResult_t;

/* NOLINTEND(readability-identifier-naming) */

/* Function without hipblasLt, its arguments. All return a hipblasStatus_t. */
#define HIPBLASLT_CALLS(CALL)                                                                      \
    CALL(Create, (hipblasLtHandle_t *))                                                            \
    CALL(Destroy, (hipblasLtHandle_t))                                                             \
    CALL(GetVersion, (hipblasLtHandle_t, int *))                                                   \
    CALL(GetGitRevision, (hipblasLtHandle_t, char *))                                              \
    CALL(MatrixLayoutCreate,                                                                       \
         (hipblasLtMatrixLayout_t *, hipDataType, uint64_t rows, uint64_t columns, int64_t ld))    \
    CALL(MatrixLayoutDestroy, (hipblasLtMatrixLayout_t))                                           \
    CALL(MatmulDescCreate, (hipblasLtMatmulDesc_t *, hipblasComputeType_t, hipDataType scale))     \
    CALL(MatmulDescDestroy, (hipblasLtMatmulDesc_t))                                               \
    CALL(MatmulDescSetAttribute,                                                                   \
         (hipblasLtMatmulDesc_t, hipblasLtMatmulDescAttributes_t, const void *, size_t bytes))     \
    CALL(MatmulPreferenceCreate, (hipblasLtMatmulPreference_t *))                                  \
    CALL(MatmulPreferenceDestroy, (hipblasLtMatmulPreference_t))                                   \
    CALL(MatmulPreferenceSetAttribute,                                                             \
         (hipblasLtMatmulPreference_t, hipblasLtMatmulPreferenceAttributes_t, const void *,        \
          size_t bytes))                                                                           \
    CALL(MatmulAlgoGetHeuristic,                                                                   \
         (hipblasLtHandle_t, hipblasLtMatmulDesc_t, hipblasLtMatrixLayout_t a,                     \
          hipblasLtMatrixLayout_t b, hipblasLtMatrixLayout_t c, hipblasLtMatrixLayout_t d,         \
          hipblasLtMatmulPreference_t, int asked, hipblasLtMatmulHeuristicResult_t *,              \
          int *returned))                                                                          \
    /* D = alpha op(A) op(B) + beta C; alpha and beta lie in host memory */                        \
    CALL(Matmul, (hipblasLtHandle_t, hipblasLtMatmulDesc_t, const void *alpha, const void *a,      \
                  hipblasLtMatrixLayout_t, const void *b, hipblasLtMatrixLayout_t,                 \
                  const void *beta, const void *c, hipblasLtMatrixLayout_t, void *d,               \
                  hipblasLtMatrixLayout_t, const hipblasLtMatmulAlgo_t *, void *workspace,         \
                  size_t workspace_bytes, struct ihipStream_t *))

#endif
