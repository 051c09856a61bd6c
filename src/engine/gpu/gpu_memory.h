/* gpu_memory: a test of a GPU's memory. A pattern of words of 4 bytes depends on each word's number and a seed. */
#ifndef ENGINE_GPU_GPU_MEMORY_H
#define ENGINE_GPU_GPU_MEMORY_H

#include "engine/gpu/gpu.h"

/* Fills n words with the pattern; counts the words that differ from it. wrong: in pinned memory. Both are launches on
 * the stream. ERR_UNSUPPORTED in a build without a GPU. */
Status gpu_fill_pattern(GpuStream s, uint32_t *word, int64_t n, uint32_t seed);
Status gpu_count_wrong(GpuStream s, const uint32_t *word, int64_t n, uint32_t seed,
                       uint64_t *wrong);

#endif
