/*
 * cublaslt: cuBLASLt's functions, each passed on to the library that is opened at run time. So the
 * program starts where the library is missing, and says which file it wanted and where it looked;
 * and the code that calls it is what its documentation shows.
 *
 * Only what blas.cu calls is here. The table of addresses is one for the process, as the library
 * is: it is written before the first product and never again.
 */
#include "op/kernel.cuh"

#include <cublasLt.h>
#include <cublas_api.h>
#include <dlfcn.h>
#include <stdio.h>

#define TEXT_OF(x)  TEXT_OF_(x)
#define TEXT_OF_(x) #x

static const char NAME[] = "libcublasLt.so." TEXT_OF(CUBLAS_VER_MAJOR);

/* After the loader's path, which holds the CUDA that built the program. */
static const char *const FOLDERS[] = { "/usr/local/cuda/lib64", "/usr/local/cuda/lib",
                                       "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu" };

static struct {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtGetStatusString) get_status_string;
    decltype(&cublasLtGetVersion) get_version;
    decltype(&cublasLtMatmul) matmul;
    decltype(&cublasLtMatmulDescInit_internal) matmul_desc_init_internal;
    decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set_attribute;
    decltype(&cublasLtMatrixLayoutInit_internal) matrix_layout_init_internal;
    decltype(&cublasLtMatmulPreferenceInit_internal) matmul_preference_init_internal;
    decltype(&cublasLtMatmulPreferenceSetAttribute) matmul_preference_set_attribute;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) matmul_algo_config_get_attribute;
    decltype(&cublasLtMatmulAlgoGetHeuristic) matmul_algo_get_heuristic;
    decltype(&cublasLtMatmulAlgoCheck) matmul_algo_check;
} call;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lightHandle) { return call.create(lightHandle); }

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) { return call.destroy(lightHandle); }

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return call.get_status_string(status);
}

size_t cublasLtGetVersion(void) { return call.get_version(); }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc,
                              const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta,
                              const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspaceSizeInBytes, cudaStream_t stream)
{
    return call.matmul(lightHandle, computeDesc, alpha, A, Adesc, B, Bdesc, beta, C, Cdesc, D,
                       Ddesc, algo, workspace, workspaceSizeInBytes, stream);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc, size_t size,
                                               cublasComputeType_t computeType,
                                               cudaDataType_t scaleType)
{
    return call.matmul_desc_init_internal(matmulDesc, size, computeType, scaleType);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t matmulDesc,
                                              cublasLtMatmulDescAttributes_t attr, const void *buf,
                                              size_t sizeInBytes)
{
    return call.matmul_desc_set_attribute(matmulDesc, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld)
{
    return call.matrix_layout_init_internal(matLayout, size, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size)
{
    return call.matmul_preference_init_internal(pref, size);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t attr,
                                                    const void *buf, size_t sizeInBytes)
{
    return call.matmul_preference_set_attribute(pref, attr, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attr,
                                                    void *buf, size_t sizeInBytes,
                                                    size_t *sizeWritten)
{
    return call.matmul_algo_config_get_attribute(algo, attr, buf, sizeInBytes, sizeWritten);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount)
{
    return call.matmul_algo_get_heuristic(lightHandle, operationDesc, Adesc, Bdesc, Cdesc, Ddesc,
                                          preference, requestedAlgoCount, heuristicResultsArray,
                                          returnAlgoCount);
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t lightHandle,
                                       cublasLtMatmulDesc_t operationDesc,
                                       cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                       cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    return call.matmul_algo_check(lightHandle, operationDesc, Adesc, Bdesc, Cdesc, Ddesc, algo,
                                  result);
}

static Status resolve(void *file)
{
    const struct {
        const char *name;
        void **to;
    } rows[] = {
        { "cublasLtCreate", (void **)&call.create },
        { "cublasLtDestroy", (void **)&call.destroy },
        { "cublasLtGetStatusString", (void **)&call.get_status_string },
        { "cublasLtGetVersion", (void **)&call.get_version },
        { "cublasLtMatmul", (void **)&call.matmul },
        { "cublasLtMatmulDescInit_internal", (void **)&call.matmul_desc_init_internal },
        { "cublasLtMatmulDescSetAttribute", (void **)&call.matmul_desc_set_attribute },
        { "cublasLtMatrixLayoutInit_internal", (void **)&call.matrix_layout_init_internal },
        { "cublasLtMatmulPreferenceInit_internal", (void **)&call.matmul_preference_init_internal },
        { "cublasLtMatmulPreferenceSetAttribute", (void **)&call.matmul_preference_set_attribute },
        { "cublasLtMatmulAlgoConfigGetAttribute", (void **)&call.matmul_algo_config_get_attribute },
        { "cublasLtMatmulAlgoGetHeuristic", (void **)&call.matmul_algo_get_heuristic },
        { "cublasLtMatmulAlgoCheck", (void **)&call.matmul_algo_check },
    };
    for (const auto &row : rows) {
        *row.to = dlsym(file, row.name);
        if (*row.to == NULL) {
            return FAIL(ERR_UNSUPPORTED, "%s has no function %s: is it of another version?", NAME,
                        row.name);
        }
    }
    return OK;
}

Status cublaslt_open(void)
{
    char places[512];
    if (call.create != NULL) return OK;
    void *file = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    size_t used = (size_t)snprintf(places, sizeof places, "the loader's path");
    for (const char *folder : FOLDERS) {
        char path[256];
        if (file != NULL) break;
        snprintf(path, sizeof path, "%s/%s", folder, NAME);
        file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        used += (size_t)snprintf(places + used, sizeof places - used, ", %s", folder);
    }
    if (file == NULL) {
        return FAIL(ERR_UNSUPPORTED,
                    "%s (matrix products) was not found in %s: install CUDA %d or set "
                    "LD_LIBRARY_PATH",
                    NAME, places, CUBLAS_VER_MAJOR);
    }
    return resolve(file);
}
}
