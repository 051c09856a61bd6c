/* rng: counter-based random numbers, value = f(seed, name, index). There is no state: element i of the
 * tensor `name` is the same on any mesh, in any chunk, from any thread. Philox4x32-10 (philox.h) with
 * key = seed and counter = (index / 4, stream). The four output words are those of indexes 4i .. 4i+3.
 * Not for cryptography. */
#ifndef ENGINE_BASE_RNG_H
#define ENGINE_BASE_RNG_H

#include <stdint.h>

/* The stream number of a name: XXH3-64 of its bytes. */
uint64_t rng_stream(const char *name);

uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1), 32 random bits */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n); /* [0, n) */

/* out[i] = std * N(0, 1) truncated to +-3 std, for index = first + i. Uses the inverse of the normal
 * distribution function in double, so each value needs one draw, and rounds to f32. */
void rng_fill_normal(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first,
                     double std);

/* Element `index` of a permutation of [0, n), computed without a table in O(1) memory. A balanced
 * Feistel network over the next power of four with cycle walking, keyed by (seed, stream). */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);

#endif
