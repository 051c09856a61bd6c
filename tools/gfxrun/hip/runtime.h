/* runtime: the functions of HIP's runtime that gfxrun offers, with the types of kernels-amd/hip_table.h. The
 * program calls those of the table; the last one is for libraries. */
#ifndef GFXRUN_HIP_RUNTIME_H
#define GFXRUN_HIP_RUNTIME_H

#include "gfxrun/gfxrun.h"
#include "kernels-amd/hip_table.h"

#define CALL(field, name, arguments)                                                               \
    __attribute__((visibility("default"))) hipError_t name arguments;
HIP_CALLS(CALL)
#undef CALL
#define CALL(field, name) __attribute__((visibility("default"))) const char *name(hipError_t);
HIP_TEXTS(CALL)
#undef CALL

typedef void (*hipHostFn_t)(void *data);
__attribute__((visibility("default"))) hipError_t hipLaunchHostFunc(hipStream_t stream,
                                                                    hipHostFn_t host, void *data);

#endif
