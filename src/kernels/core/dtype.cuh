/*
 * dtype: the conversions of engine/base/dtype.h on the device, with the same bits, NaNs included.
 * engine/base/dtype.h explains the steps. A format is a type, so it is resolved at compile time.
 */
#ifndef KERNELS_CORE_DTYPE_CUH
#define KERNELS_CORE_DTYPE_CUH

#include "kernels/core/pack.cuh"

struct F32 {
    typedef uint32_t Code;
    static __device__ __forceinline__ float widen(Code c) { return __uint_as_float(c); }
    static __device__ __forceinline__ Code narrow(float v) { return __float_as_uint(v); }
};

struct BF16 {
    typedef uint16_t Code;
    static __device__ __forceinline__ float widen(Code c)
    {
        return __uint_as_float((uint32_t)c << 16);
    }
    static __device__ __forceinline__ Code narrow(float v)
    {
        uint32_t u = __float_as_uint(v);
        uint32_t rounded = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
        uint32_t quiet = u >> 16 | 0x40u;
        return (Code)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
    }
};

/* A format of 8 or 16 bits. MANTISSA: number of bits; ABOVE: the code of values above LARGEST, the
 * largest finite one; QUIET: the code of NaN. */
template <typename C, int MANTISSA, int BIAS, uint32_t LARGEST, uint32_t ABOVE, uint32_t QUIET>
struct Small {
    typedef C Code;
    static constexpr int BITS = 8 * (int)sizeof(C), DOWN = 23 - MANTISSA;
    static constexpr uint32_t MASK = (1u << MANTISSA) - 1;

    static __device__ __forceinline__ float largest() { return widen((C)LARGEST); }

    static __device__ __forceinline__ float widen(C code)
    {
        uint32_t sign = (uint32_t)code >> (BITS - 1) << 31;
        uint32_t magnitude = code & ((1u << (BITS - 1)) - 1);
        uint32_t normal = (magnitude << DOWN) + ((uint32_t)(127 - BIAS) << 23);
        float least = __uint_as_float((uint32_t)(1 - BIAS - MANTISSA + 127) << 23);
        uint32_t subnormal = __float_as_uint((float)(int32_t)magnitude * least);
        uint32_t special =
            ABOVE == QUIET ? 0x7FC00000u : 0x7F800000u | ((magnitude << DOWN) & 0x7FFFFFu);
        uint32_t u = magnitude >> MANTISSA == 0 ? subnormal : normal;
        u = magnitude > LARGEST ? special : u;
        return __uint_as_float(sign | u);
    }

    static __device__ __forceinline__ C narrow(float v)
    {
        uint32_t u = __float_as_uint(v);
        uint32_t sign = u >> 31 << (BITS - 1), magnitude = u & 0x7FFFFFFFu;
        int exponent = (int)(magnitude >> 23) - 127, lowest = 1 - BIAS;
        uint32_t significand = (magnitude & 0x7FFFFFu) | 0x800000u;
        int shift = DOWN + (exponent < lowest ? lowest - exponent : 0);
        shift = shift > 25 ? 25 : shift;
        uint32_t odd = significand >> shift & 1u;
        uint32_t code = (significand + (1u << (shift - 1)) - 1u + odd) >> shift;
        code += exponent > lowest ? (uint32_t)(exponent - lowest) << MANTISSA : 0;
        code = code > LARGEST ? ABOVE : code;
        code = magnitude > 0x7F800000u ? QUIET | (magnitude >> DOWN & MASK) : code;
        return (C)(sign | code);
    }
};

typedef Small<uint16_t, 10, 15, 0x7BFF, 0x7C00, 0x7E00> F16;
typedef Small<uint8_t, 3, 7, 0x7E, 0x7F, 0x7F> E4M3;
typedef Small<uint8_t, 2, 15, 0x7B, 0x7C, 0x7E> E5M2;

/* Loads elements [i, i + N) of format F. */
template <typename F, bool WIDE, int N>
static __device__ __forceinline__ void codes_load(const void *t, int64_t i, float (&out)[N])
{
    typename F::Code c[N];
    elements_get<false, WIDE>((const typename F::Code *)t + i, c);
#pragma unroll
    for (int k = 0; k < N; k++) out[k] = F::widen(c[k]);
}

template <typename F, bool WIDE, int N>
static __device__ __forceinline__ void codes_store(void *t, int64_t i, const float (&in)[N])
{
    typename F::Code c[N];
#pragma unroll
    for (int k = 0; k < N; k++) c[k] = F::narrow(in[k]);
    elements_put<WIDE>((typename F::Code *)t + i, c);
}

#endif
