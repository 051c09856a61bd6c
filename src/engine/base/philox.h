/* philox: the random generator below rng.h, for the host and for kernels. It computes one block of four
 * words of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 * rng.h decides which word belongs to which index.
 *
 * A .cu file defines PHILOX_FUNCTION as the specifiers of its device functions. */
#ifndef ENGINE_BASE_PHILOX_H
#define ENGINE_BASE_PHILOX_H

#include <stdint.h>

#ifndef PHILOX_FUNCTION
#define PHILOX_FUNCTION static inline
#endif

enum { PHILOX_WORDS = 4 };

/* Multipliers and key increments are those of the paper's table 2; known answers stand in the test. */
PHILOX_FUNCTION void philox(const uint32_t key[2], const uint32_t counter[PHILOX_WORDS],
                            uint32_t out[PHILOX_WORDS])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Block `block` of a stream. The counter's upper half is the stream, so two streams never share a
 * block. */
PHILOX_FUNCTION void philox_at(uint64_t seed, uint64_t stream, uint64_t block,
                               uint32_t out[PHILOX_WORDS])
{
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    const uint32_t counter[PHILOX_WORDS] = { (uint32_t)block, (uint32_t)(block >> 32),
                                             (uint32_t)stream, (uint32_t)(stream >> 32) };
    philox(key, counter, out);
}

#endif
