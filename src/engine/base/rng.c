/* rng: Philox blocks, and uniform and normal numbers and permutations made of them. */
#include "engine/base/rng.h"

#include "engine/base/philox.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

__extension__ typedef unsigned __int128 Wide; /* pedantic C17 has no 128-bit product */

enum { BLOCK = PHILOX_WORDS, PERMUTE_ROUNDS = 8, PARALLEL_FROM = 1 << 16 };

uint64_t rng_stream(const char *name) { return XXH3_64bits(name, strlen(name)); }

uint32_t rng_u32(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t word[BLOCK];
    philox_at(seed, stream, index / BLOCK, word);
    return word[index % BLOCK];
}

double rng_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return rng_u32(seed, stream, index) * 0x1p-32;
}

/* Multiply and take the upper 64 bits of the 128-bit product. An index uses words 2 * index and
 * 2 * index + 1. Each value's probability is off by less than n / 2^64. */
uint64_t rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    uint32_t word[BLOCK];
    philox_at(seed, stream, index / 2, word);
    const uint32_t *half = word + 2 * (index % 2);
    uint64_t wide = (uint64_t)half[0] << 32 | half[1];
    return (uint64_t)((Wide)wide * n >> 64);
}

/* ---- normal ---- */

/* Phi(-3) = P(Z < -3). Uniform draws are mapped to [Phi(-3), 1 - Phi(-3)], which truncates to +-3. */
static const double TAIL = 1.3498980316300945e-3;

/* Inverse of the normal distribution function by rational approximations, relative error 1e-16
 * (Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Appl. Statist. 37
 * (1988) 477-484, PPND16). q = p - 1/2. Its third region, p < 1.4e-11, cannot occur here. */
static double polynomial_ratio(const double *a, const double *b, double x)
{
    double over = a[7], under = b[7];
    for (int i = 6; i >= 0; i--) {
        over = over * x + a[i];
        under = under * x + b[i];
    }
    return over / under;
}

static double normal_middle(double q) /* |q| <= 0.425 */
{
    static const double A[8] = { 3.3871328727963666080e0,  1.3314166789178437745e+2,
                                 1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                 3.3430575583588128105e+4, 2.5090809287301226727e+3 };
    static const double B[8] = { 1.0000000000000000000e0,  4.2313330701600911252e+1,
                                 6.8718700749205790830e+2, 5.3941960214247511077e+3,
                                 2.1213794301586595867e+4, 3.9307895800092710610e+4,
                                 2.8729085735721942674e+4, 5.2264952788528545610e+3 };
    return q * polynomial_ratio(A, B, 0.180625 - q * q);
}

/* Tails, |q| > 0.425: the approximation is in the square root of -log of the tail's probability. */
static double normal_side(double q)
{
    static const double C[8] = { 1.42343711074968357734e0,  4.63033784615654529590e0,
                                 5.76949722146069140550e0,  3.64784832476320460504e0,
                                 1.27045825245236838258e0,  2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4 };
    static const double D[8] = { 1.0,
                                 2.05319162663775882187e0,
                                 1.67638483018380384940e0,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9 };
    double r = sqrt(-log(0.5 - fabs(q))) - 1.6;
    return copysign(polynomial_ratio(C, D, r), q);
}

/* The half keeps u off 0 and 1. The final clamp removes a rounding error of the approximation at
 * the ends. */
static double normal_from_word(uint32_t word)
{
    double u = (word + 0.5) * 0x1p-32;
    double q = (u - 0.5) * (1 - 2 * TAIL);
    double z = fabs(q) <= 0.425 ? normal_middle(q) : normal_side(q);
    return fmin(fmax(z, -3.0), 3.0);
}

/* A range may begin inside a block of four. Its first words are computed and dropped, so the values
 * do not depend on how the tensor is cut. */
void rng_fill_normal(float *out, int64_t n, uint64_t seed, uint64_t stream, uint64_t first,
                     double std)
{
    uint64_t end = first + (uint64_t)n;
#pragma omp parallel for schedule(static) if (n >= PARALLEL_FROM)
    for (uint64_t block = first / BLOCK; block < (end + BLOCK - 1) / BLOCK; block++) {
        uint32_t word[BLOCK];
        philox_at(seed, stream, block, word);
        for (uint64_t i = 0; i < BLOCK; i++) {
            uint64_t index = block * BLOCK + i;
            if (index < first || index >= end) continue;
            out[index - first] = (float)(std * normal_from_word(word[i]));
        }
    }
}

/* ---- permutation ---- */

/* The finaliser of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
 * generators", OOPSLA 2014): every input bit reaches every output bit. */
static uint64_t mix_bits(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* A Feistel network: one round maps (left, right) to (right, left ^ f(right)). That is a bijection for
 * any f, and so is the composition of rounds. A value outside [0, n) is mapped again ("cycle walking").
 * Its cycle must return to [0, n) because it began there; the domain is below 4n, so under four steps
 * on average. */
uint64_t rng_permute(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    assert(index < n);
    int half = 0;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;

    /* The round keys are the last words of the stream, which no element's index reaches. */
    uint32_t word[PERMUTE_ROUNDS * 2];
    for (uint64_t i = 0; i < PERMUTE_ROUNDS * 2 / BLOCK; i++)
        philox_at(seed, stream, UINT64_MAX - i, word + i * BLOCK);
    uint64_t value = index;
    do {
        uint64_t left = value >> half, right = value & mask;
        for (size_t r = 0; r < PERMUTE_ROUNDS; r++) {
            uint64_t key = (uint64_t)word[2 * r] << 32 | word[2 * r + 1];
            uint64_t next = left ^ (mix_bits(right + key) & mask);
            left = right;
            right = next;
        }
        value = left << half | right;
    } while (value >= n);
    return value;
}
