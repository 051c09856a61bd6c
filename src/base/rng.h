/* rng: counter-based random numbers: value = f(seed, name, index). Element i of the tensor called
 * `name` is the same on any mesh, in any chunk, from any thread. Philox4x32-10 (philox.h): key = seed;
 * counter = (index / 4, stream); the four output words serve the indexes 4i .. 4i+3. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* The stream number of a name: XXH3-64 of its bytes. */
uint64_t rng_stream(const char *name);

uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 32 random bits */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n); /* [0, n) */

/* out[i] = std * N(0, 1) truncated to +-3 std, for index = first + i: by inverse of the normal
 * distribution function in double (so one draw a value), rounded to f32. */
void rng_fill_normal(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first,
                     double std);

/* A permutation of [0, n) as a function: element `index`. A balanced Feistel network over the next
 * power of four with cycle walking, keyed by (seed, stream); O(1) memory, no table. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

#endif
