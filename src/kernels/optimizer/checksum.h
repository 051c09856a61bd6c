/*
 * checksum: a checksum of a tensor's bits, in any memory. It tells whether two computations of the same
 * numbers gave the same bits (engine/step/verify.h).
 *
 *   sum += sum over i of mix(bits of x_i, i)   modulo 2^32
 *
 * mix is the finalizer of MurmurHash3 (Appleby, public domain) over bits + i * 2^32 / golden ratio. For
 * one i it maps different bits to different words, so one wrong element always changes the sum. Several
 * wrong ones leave it as it was with a probability of 2^-32. Integers add up in any order, so CPU and GPU
 * give the same sum with any number of threads.
 *
 * checksum does nothing where `on` is below 1, and checksum_compare nothing where it is below 2: a
 * captured step has both, and most steps read only this number.
 */
#ifndef KERNELS_OPTIMIZER_CHECKSUM_H
#define KERNELS_OPTIMIZER_CHECKSUM_H

#include "engine/base/tensor.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define CHECKSUM_SHARED static inline __host__ __device__
#else
#define CHECKSUM_SHARED static inline
#endif

CHECKSUM_SHARED uint32_t checksum_mix(uint32_t bits, int64_t i)
{
    uint32_t h = bits + (uint32_t)i * 0x9E3779B9u + (uint32_t)(i >> 32) * 0x85EBCA77u;
    h = (h ^ h >> 16) * 0x85EBCA6Bu;
    h = (h ^ h >> 13) * 0xC2B2AE35u;
    return h ^ h >> 16;
}

typedef struct Checksum {
    Tensor x;   /* in  (n), elements of 1, 2 or 4 bytes */
    Tensor sum; /* add (1) i32 */
    Tensor on;  /* in  (1) f32, optional: without it the sum is always made */
} Checksum;

/* differs = 1 if any word of a is not b's; else it stays. */
typedef struct ChecksumCompare {
    Tensor a, b;    /* in  (n) i32 */
    Tensor on;      /* in  (1) f32 */
    Tensor differs; /* add (1) f32 */
} ChecksumCompare;

#define OPS_CHECKSUM
#include "kernels/core/declare.h"
#undef OPS_CHECKSUM

#endif
