#include "op/cublaslt.cuh"

#include <cublas_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define TEXT_OF(x)  TEXT_OF_(x)
#define TEXT_OF_(x) #x

static const char NAME[] = "libcublasLt.so." TEXT_OF(CUBLAS_VER_MAJOR);

/* After the loader's path, which holds the CUDA that built the program. */
static const char *const FOLDERS[] = { "/usr/local/cuda/lib64", "/usr/local/cuda/lib",
                                       "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu" };

CublasLt lt;

static Status resolve(void *file)
{
    const struct {
        const char *name;
        void **to;
    } rows[] = {
#define CALL(name) { "cublasLt" #name, (void **)&lt.name },
        CUBLASLT_CALLS(CALL)
#undef CALL
    };
    for (const auto &row : rows) {
        *row.to = dlsym(file, row.name);
        if (*row.to == NULL) {
            lt = {};
            return FAIL(ERR_UNSUPPORTED, "%s has no function %s: is it of another version?", NAME,
                        row.name);
        }
    }
    return OK;
}

static Status find(void)
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
    return resolve(file);
}

/* Ranks may be threads: the first of them fills the table. */
extern "C" Status cublaslt_open(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    Status s = lt.Create == NULL ? find() : OK;
    pthread_mutex_unlock(&mutex);
    return s;
}
