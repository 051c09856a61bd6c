/* gpu: for tests that need a GPU. */
#ifndef TESTS_HARNESS_GPU_H
#define TESTS_HARNESS_GPU_H

#include "backend/cuda.h"

#define NEEDS_GPU()                                                                                \
    do {                                                                                           \
        (void)state;                                                                               \
        if (!cuda_built() || cuda_devices() == 0) {                                                \
            printf("skip: needs a GPU and a build with CUDA=1\n");                                 \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#define ON_CPU "run.device=cpu"
#define ON_GPU "run.device=cuda"

#endif
