/*
 * eight_bit_hip: the names of eight_bit.cuh for CDNA. Numbers of 8 bits are those of OCP's standard on
 * every chip, as in checkpoints and on the CPU. gfx950 converts to them. gfx942 has instructions only
 * for its own formats (FNUZ), which have the same bits for half the value, one zero, and NaN in the
 * place of -0. So there half of a number is converted, and zeros get their sign back.
 */
#ifndef KERNELS_AMD_EIGHT_BIT_HIP_CUH
#define KERNELS_AMD_EIGHT_BIT_HIP_CUH

#include "engine/gpu/lane.cuh"

/* One number within `largest`, as the chip's instruction takes it. */
static __device__ __forceinline__ float eight_bit_clamp(float v, float largest)
{
    float within = __builtin_amdgcn_fmed3f(v, -largest, largest);
#ifdef __gfx950__
    return within;
#else
    return 0.5f * within;
#endif
}

/* A code without its sign, or NaN, with the sign of v. */
static __device__ __forceinline__ uint32_t eight_bit_signed(uint32_t code, float v)
{
    uint32_t magnitude = v != v ? 0x7Fu : code & 0x7Fu;
    return magnitude | (__float_as_uint(v) >> 24 & 0x80u);
}

static __device__ __forceinline__ uint32_t eight_bit_pair(uint32_t codes, float low, float high)
{
    return eight_bit_signed(codes, low) | eight_bit_signed(codes >> 8, high) << 8;
}

static __device__ __forceinline__ uint32_t pair_to_e4m3(float low, float high)
{
    float a = eight_bit_clamp(low, 448), b = eight_bit_clamp(high, 448);
    return eight_bit_pair((uint32_t)__builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false), low, high);
}

static __device__ __forceinline__ uint32_t pair_to_e5m2(float low, float high)
{
    float a = eight_bit_clamp(low, 57344), b = eight_bit_clamp(high, 57344);
    return eight_bit_pair((uint32_t)__builtin_amdgcn_cvt_pk_bf8_f32(a, b, 0, false), low, high);
}

/* A number of 16 bits. */
static __device__ __forceinline__ float half_widen(uint32_t bits)
{
    return (float)__builtin_bit_cast(_Float16, (uint16_t)bits);
}

/* As f16 the bits of e4m3 are 2^-8 of the number, exactly: biases are 15 and 7. */
static __device__ __forceinline__ float e4m3_widen(uint32_t code)
{
    float v = 256 * half_widen((code & 0x80u) << 8 | (code & 0x7Fu) << 7);
    return (code & 0x7Fu) == 0x7Fu ? __uint_as_float(0x7FC00000u) : v;
}

static __device__ __forceinline__ float2 pair_from_e4m3(uint32_t codes)
{
    return make_float2(e4m3_widen(codes), e4m3_widen(codes >> 8));
}

/* e5m2 is the upper half of f16. */
static __device__ __forceinline__ float2 pair_from_e5m2(uint32_t codes)
{
    return make_float2(half_widen(codes << 8 & 0xFF00u), half_widen(codes & 0xFF00u));
}

/* Magnitudes of bf16 are in the order of their bits, NaNs above all. */
static __device__ __forceinline__ uint32_t pair_most(uint32_t a, uint32_t b)
{
    typedef uint16_t Pair __attribute__((ext_vector_type(2)));
    Pair x = __builtin_bit_cast(Pair, a & 0x7FFF7FFFu),
         y = __builtin_bit_cast(Pair, b & 0x7FFF7FFFu);
    return __builtin_bit_cast(uint32_t, __builtin_elementwise_max(x, y));
}

static __device__ __forceinline__ void value_forget(uint32_t &v) { asm volatile("" : "+v"(v)); }

#endif
