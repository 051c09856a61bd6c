#include "op/cublaslt.cuh"

#include <cublas_api.h>
#include <dlfcn.h>
#include <stdio.h>

#define TEXT_OF(x)  TEXT_OF_(x)
#define TEXT_OF_(x) #x

static const char NAME[] = "libcublasLt.so." TEXT_OF(CUBLAS_VER_MAJOR);

/* After the loader's path, which holds the CUDA that built the program. */
static const char *const FOLDERS[] = { "/usr/local/cuda/lib64", "/usr/local/cuda/lib",
                                       "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu" };

static Status resolve(void *file, CublasLt *lt)
{
    const struct {
        const char *name;
        void **to;
    } rows[] = {
#define CALL(name) { "cublasLt" #name, (void **)&lt->name },
        CUBLASLT_CALLS(CALL)
#undef CALL
    };
    for (const auto &row : rows) {
        *row.to = dlsym(file, row.name);
        if (*row.to == NULL)
            return FAIL(ERR_UNSUPPORTED, "%s has no function %s: is it of another version?", NAME,
                        row.name);
    }
    return OK;
}

Status cublaslt_open(CublasLt *lt)
{
    char places[512];
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
    return resolve(file, lt);
}
