/*
 * cuda: the GPU as a backend. Ops are launched in order on one stream; nothing waits but `sync`.
 *
 * Device memory is taken with cudaMalloc, pinned host memory with cudaHostAlloc, once, by whoever
 * makes the arenas (arena_over gives an arena a block that a backend made). `copy` works in every
 * direction: the driver knows which side an address is on. In a build without CUDA the functions
 * are there and say that the build has none.
 */
#ifndef BACKEND_CUDA_H
#define BACKEND_CUDA_H

#include "op/op.h"

#include <stdbool.h>

enum { CUDA_NAME_MAX = 128 };

typedef struct CudaInfo {
    char name[CUDA_NAME_MAX];
    int driver, runtime; /* 13000: 13.0 */
    int major, minor;    /* compute capability */
    int sms;
    size_t total_bytes, free_bytes;
} CudaInfo;

bool cuda_built(void);
int cuda_devices(void); /* 0: none, or no driver */

/* ERR_UNSUPPORTED: not built in, no GPU, a driver older than the program's CUDA, or a GPU below
 * compute capability 8.0; each says what was found and what is needed. */
Status cuda_info(int device, CudaInfo *out);

/* An Exec whose ops run on `device`; `scratch` is an arena of device memory. */
Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch);
void cuda_exec_free(Exec *ex); /* safe on { 0 } */

extern const Backend backend_cuda;

#endif
