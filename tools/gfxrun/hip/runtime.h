/* runtime: the functions of HIP's runtime that gfxrun offers, with the types of gpu/amd/hip_table.h. */
#ifndef GFXRUN_HIP_RUNTIME_H
#define GFXRUN_HIP_RUNTIME_H

#include "gfxrun/gfxrun.h"
#include "gpu/amd/hip_table.h"

#define CALL(field, name, arguments)                                                               \
    __attribute__((visibility("default"))) hipError_t name arguments;
HIP_CALLS(CALL)
#undef CALL
#define CALL(field, name) __attribute__((visibility("default"))) const char *name(hipError_t);
HIP_TEXTS(CALL)
#undef CALL

#endif
