/*
 * hip: the language of HIP as far as kernels and launchers use it: specifiers, coordinates, types of
 * vectors, launches, atomics, arithmetic. The compiler gets it by -include, as nvcc has its own. So
 * clang alone builds, without the headers and the device library of ROCm. Names and meanings are those
 * of HIP's public interface. What is more than language is in lane_hip.cuh.
 *
 * Mathematics: the device library is not there, so functions are the compiler's own code
 * (__builtin_expf and so on), accurate to the last bit or two. sqrtf and divisions round correctly.
 */
#ifndef KERNELS_AMD_HIP_CUH
#define KERNELS_AMD_HIP_CUH

#define __host__         __attribute__((host))
#define __device__       __attribute__((device))
#define __global__       __attribute__((global))
#define __shared__       __attribute__((shared))
#define __forceinline__  inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

/* The second bound is for CUDA's register files: the compiler's own choice spills less here. */
#define __launch_bounds__(threads, ...) __attribute__((amdgpu_flat_work_group_size(1, (threads))))

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

/* Types */

struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

#define VECTOR_FUNCTION static constexpr __host__ __device__ __forceinline__
VECTOR_FUNCTION int2 make_int2(int x, int y) { return { x, y }; }
VECTOR_FUNCTION int4 make_int4(int x, int y, int z, int w) { return { x, y, z, w }; }
VECTOR_FUNCTION uint2 make_uint2(unsigned x, unsigned y) { return { x, y }; }
VECTOR_FUNCTION uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return { x, y, z, w };
}
VECTOR_FUNCTION float2 make_float2(float x, float y) { return { x, y }; }
VECTOR_FUNCTION float4 make_float4(float x, float y, float z, float w) { return { x, y, z, w }; }
#undef VECTOR_FUNCTION

struct dim3 {
    unsigned x, y, z;
    constexpr __host__ __device__ dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

/* What <<<>>> calls (kernels-amd/hip.cu). */
typedef struct ihipStream_t *hipStream_t;
typedef int hipError_t;

extern "C" hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes = 0,
                                                 hipStream_t stream = NULL);
extern "C" hipError_t hipLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                                      size_t shared_bytes, hipStream_t stream);

/* Coordinates. The numbers of blocks are the first three words of a kernel's hidden arguments, which is
 * the interface from code object version 5 on. */

static __device__ __forceinline__ unsigned hip_blocks(int axis)
{
    typedef const __attribute__((address_space(4))) unsigned *Hidden;
    return ((Hidden)__builtin_amdgcn_implicitarg_ptr())[axis];
}

#define COORDINATE(axis, value)                                                                    \
    __declspec(property(get = get_##axis)) unsigned axis;                                          \
    static __device__ __forceinline__ unsigned get_##axis() { return value; }
#define COORDINATES(type, object, vx, vy, vz)                                                      \
    struct type {                                                                                  \
        COORDINATE(x, vx) COORDINATE(y, vy) COORDINATE(z, vz)                                      \
    };                                                                                             \
    extern const __device__ __attribute__((weak)) type object;
COORDINATES(HipThreadIdx, threadIdx, __builtin_amdgcn_workitem_id_x(),
            __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z())
COORDINATES(HipBlockIdx, blockIdx, __builtin_amdgcn_workgroup_id_x(),
            __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z())
COORDINATES(HipBlockDim, blockDim, __builtin_amdgcn_workgroup_size_x(),
            __builtin_amdgcn_workgroup_size_y(), __builtin_amdgcn_workgroup_size_z())
COORDINATES(HipGridDim, gridDim, hip_blocks(0), hip_blocks(1), hip_blocks(2))
#undef COORDINATES
#undef COORDINATE

/* A barrier of the block, also for memory. */
static __device__ __forceinline__ void __syncthreads()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* Atomics, unordered, for all threads of the device */

template <typename T> static __device__ __forceinline__ T atomicAdd(T *at, T v)
{
    return __hip_atomic_fetch_add(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

template <typename T> static __device__ __forceinline__ T atomicMax(T *at, T v)
{
    return __hip_atomic_fetch_max(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

template <typename T> static __device__ __forceinline__ T atomicMin(T *at, T v)
{
    return __hip_atomic_fetch_min(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

/* *at + 1, or 0 from `last` on; returns what was there. */
static __device__ __forceinline__ unsigned atomicInc(unsigned *at, unsigned last)
{
    return __builtin_amdgcn_atomic_inc32(at, last, __ATOMIC_RELAXED, "agent");
}

/* Bits */

static __device__ __forceinline__ unsigned __float_as_uint(float v)
{
    return __builtin_bit_cast(unsigned, v);
}
static __device__ __forceinline__ float __uint_as_float(unsigned v)
{
    return __builtin_bit_cast(float, v);
}
static __device__ __forceinline__ float __int_as_float(int v)
{
    return __builtin_bit_cast(float, v);
}

/* The bytes of a word, from those of low (0 to 3) and high (4 to 7): `which` has a digit for each, the
 * lowest first. */
static __device__ __forceinline__ unsigned __byte_perm(unsigned low, unsigned high, unsigned which)
{
    unsigned bytes =
        (which & 7) | (which & 0x70) << 4 | (which & 0x700) << 8 | (which & 0x7000) << 12;
    return __builtin_amdgcn_perm(high, low, bytes);
}

/* Arithmetic */

template <typename T> static constexpr __host__ __device__ __forceinline__ T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> static constexpr __host__ __device__ __forceinline__ T max(T a, T b)
{
    return a < b ? b : a;
}

static __device__ __forceinline__ float fabsf(float x) { return __builtin_fabsf(x); }
static __device__ __forceinline__ float fminf(float x, float y) { return __builtin_fminf(x, y); }
static __device__ __forceinline__ float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
static __device__ __forceinline__ float fmaf(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
static __device__ __forceinline__ float sqrtf(float x) { return __builtin_sqrtf(x); }
static __device__ __forceinline__ float expf(float x) { return __builtin_expf(x); }
static __device__ __forceinline__ float logf(float x) { return __builtin_logf(x); }

/* log(1 + x). What 1 + x = u loses of x is put back by the ratio: log(u) x / (u - 1). W. Kahan's, in
 * the HP-15C Advanced Functions Handbook, 1982. */
static __device__ __forceinline__ float log1pf(float x)
{
    float u = 1 + x;
    if (u == 1) return x;
    return u == INFINITY ? u : logf(u) * (x / (u - 1));
}

/* Rounded once: not fused with what comes before or after. */
static __device__ __forceinline__ float __fmul_rn(float x, float y)
{
#pragma clang fp contract(off)
    return x * y;
}
static __device__ __forceinline__ float __fadd_rn(float x, float y)
{
#pragma clang fp contract(off)
    return x + y;
}
static __device__ __forceinline__ float __fsub_rn(float x, float y)
{
#pragma clang fp contract(off)
    return x - y;
}
static __device__ __forceinline__ float __fmaf_rn(float x, float y, float z)
{
    return __builtin_fmaf(x, y, z);
}
static __device__ __forceinline__ float __fdiv_rn(float x, float y) { return x / y; }
static __device__ __forceinline__ float __frcp_rn(float x) { return 1 / x; }

/* Memory */

static __device__ __forceinline__ void *memcpy(void *to, const void *from, size_t bytes)
{
    return __builtin_memcpy(to, from, bytes);
}
static __device__ __forceinline__ void *memset(void *at, int byte, size_t bytes)
{
    return __builtin_memset(at, byte, bytes);
}

#endif
