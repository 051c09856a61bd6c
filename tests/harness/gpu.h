/* gpu: for tests that need a GPU. */
#ifndef TESTS_HARNESS_GPU_H
#define TESTS_HARNESS_GPU_H

#include "engine/backend/backend.h"

#define NEEDS_GPUS(n)                                                                              \
    do {                                                                                           \
        (void)state;                                                                               \
        if (!gpu_built() || gpu_devices() < (n)) {                                                 \
            printf("skip: needs %d GPU%s and a build with CUDA=1\n", n, (n) > 1 ? "s" : "");       \
            skip();                                                                                \
        }                                                                                          \
    } while (0)
#define NEEDS_GPU() NEEDS_GPUS(1)

#define ON_CPU "run.device=cpu"
#define ON_GPU "run.device=gpu"

#endif
