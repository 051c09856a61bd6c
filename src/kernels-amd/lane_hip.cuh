/*
 * lane_hip: the names of lane.cuh for AMD's CDNA: gfx942 and gfx950. A warp is a wavefront of 64 lanes.
 * Its lanes run in step, so a barrier between them only holds the compiler.
 *
 * Not as on CUDA: copy_chunk is synchronous, row_barrier waits for the whole block, and cache hints
 * are those that the compiler knows.
 */
#ifndef KERNELS_AMD_LANE_HIP_CUH
#define KERNELS_AMD_LANE_HIP_CUH

#include "kernels-amd/hip.cuh"

static constexpr int WARP = 64;
typedef uint64_t LaneMask;

typedef hipStream_t LaunchStream;

/* The registers that hold BYTES bytes, moved by one instruction. */
template <int BYTES> struct Words {
    typedef uint32_t type __attribute__((ext_vector_type(BYTES / 4)));
};
template <> struct Words<4> {
    typedef uint32_t type;
};
template <> struct Words<2> {
    typedef uint16_t type;
};
template <> struct Words<1> {
    typedef uint8_t type;
};

static __device__ __forceinline__ int lane_number()
{
    return (int)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

/* Registers have 32 bits, so a wider value travels in parts. */
template <typename T> static __device__ __forceinline__ T lane_get(T v, int from)
{
    constexpr int PARTS = ((int)sizeof(T) + 3) / 4;
    int32_t part[PARTS] = {};
    memcpy(part, &v, sizeof v);
#pragma unroll
    for (int i = 0; i < PARTS; i++) part[i] = __builtin_amdgcn_ds_bpermute(from * 4, part[i]);
    memcpy(&v, part, sizeof v);
    return v;
}

template <typename T> static __device__ __forceinline__ T lane_get_xor(T v, int bits)
{
    return lane_get(v, lane_number() ^ bits);
}

template <typename T> static __device__ __forceinline__ T lane_get_lower(T v, int distance)
{
    int lane = lane_number();
    return lane_get(v, lane < distance ? lane : lane - distance);
}

static __device__ __forceinline__ LaneMask lanes_where(bool condition)
{
    return __builtin_amdgcn_ballot_w64(condition);
}

static __device__ __forceinline__ bool lanes_any(bool condition)
{
    return lanes_where(condition) != 0;
}

static __device__ __forceinline__ int lanes_count(LaneMask m) { return __builtin_popcountll(m); }

static __device__ __forceinline__ int lanes_first(LaneMask m)
{
    return m == 0 ? -1 : __builtin_ctzll(m);
}

/* One turn for each value that is among them. */
static __device__ __forceinline__ LaneMask lanes_equal(LaneMask among, int32_t v)
{
    LaneMask same = 0;
    for (LaneMask left = among; left != 0;) {
        int32_t first = __builtin_amdgcn_readlane(v, __builtin_ctzll(left));
        LaneMask equal = lanes_where(v == first) & among;
        if (v == first) same = equal;
        left &= ~equal;
    }
    return same;
}

static __device__ __forceinline__ uint32_t lanes_max(uint32_t v)
{
    for (int bits = WARP / 2; bits > 0; bits /= 2) v = max(v, lane_get_xor(v, bits));
    return v;
}

static __device__ __forceinline__ void lanes_sync()
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
static __device__ __forceinline__ void lanes_sync(LaneMask) { lanes_sync(); }

/* Does the condition hold for any thread of the block, or for all? With a barrier. A warp has a word
 * of its own, which it rewrites only behind the first barrier of the next call. */
static __device__ __forceinline__ LaneMask block_where(bool condition)
{
    __shared__ uint32_t found[BLOCK_THREADS_MAX / WARP];
    int threads = (int)(blockDim.x * blockDim.y * blockDim.z);
    int thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    LaneMask here = lanes_where(condition);
    __syncthreads();
    if (thread % WARP == 0) found[thread / WARP] = here != 0;
    __syncthreads();
    uint32_t any = 0;
    for (int warp = 0; warp * WARP < threads; warp++) any |= found[warp];
    return any;
}

static __device__ __forceinline__ int __syncthreads_or(int condition)
{
    return block_where(condition != 0) != 0;
}

static __device__ __forceinline__ int __syncthreads_and(int condition)
{
    return block_where(condition == 0) == 0;
}

/* Memory order */

static __device__ __forceinline__ void compiler_fence() { asm volatile("" ::: "memory"); }

static __device__ __forceinline__ void device_fence()
{
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
static __device__ __forceinline__ void system_fence()
{
    __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "");
}

static __device__ __forceinline__ void store_release(uint32_t *at, uint32_t v)
{
    __hip_atomic_store(at, v, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}

static __device__ __forceinline__ uint32_t load_acquire(const uint32_t *at)
{
    return __hip_atomic_load(at, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}

static __device__ __forceinline__ void row_barrier(unsigned, int) { __syncthreads(); }

/* Time */

/* The counter behind it runs at 100 MHz, whatever the clock of the processors. */
static __device__ __forceinline__ uint64_t now_ns()
{
    return __builtin_amdgcn_s_memrealtime() * 10;
}

/* s_sleep 1 sleeps for 64 cycles: 30 ns at 2.1 GHz. */
static __device__ __forceinline__ void pause_ns(unsigned ns)
{
    for (unsigned slept = 0; slept < ns; slept += 30) __builtin_amdgcn_s_sleep(1);
}

/* Loads and stores */

template <typename T> static __device__ __forceinline__ T read_const(const T *at) { return *at; }

template <typename T> static __device__ __forceinline__ T read_once(const T *at)
{
    typedef typename Words<(int)sizeof(T)>::type Word;
    Word word = __builtin_nontemporal_load(reinterpret_cast<const Word *>(at));
    T v;
    memcpy(&v, &word, sizeof v);
    return v;
}

/* Atomic loads for the device pass by the L1 cache, in parts of at most 8 bytes. */
template <typename T> static __device__ __forceinline__ T read_shared_cache(const T *at)
{
    typedef typename std::conditional<sizeof(T) % 8 == 0, uint64_t, uint32_t>::type Part;
    constexpr int PARTS = (int)(sizeof(T) / sizeof(Part));
    static_assert(sizeof(T) % sizeof(Part) == 0, "a value is whole words");
    Part part[PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        part[i] = __hip_atomic_load(reinterpret_cast<const Part *>(at) + i, __ATOMIC_RELAXED,
                                    __HIP_MEMORY_SCOPE_AGENT);
    T v;
    memcpy(&v, part, sizeof v);
    return v;
}

template <typename T> static __device__ __forceinline__ void write_whole(T *at, const T &v)
{
    typedef typename Words<(int)sizeof(T)>::type Word;
    Word word;
    memcpy(&word, &v, sizeof word);
    *reinterpret_cast<Word *>(at) = word;
}

/* Copies to shared memory */

static constexpr bool COPIES_ASYNC = false;

static __device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return (uint32_t)(uintptr_t)(const __attribute__((address_space(3))) void *)at;
}

static __device__ __forceinline__ void copy_chunk(uint32_t to, const void *from, bool inside)
{
    typedef Words<16>::type Word;
    Word word = 0;
    if (inside) word = *(const Word *)from;
    *(__attribute__((address_space(3))) Word *)(uintptr_t)to = word;
}

static __device__ __forceinline__ void copies_close() {}
template <int LEFT> static __device__ __forceinline__ void copies_wait() {}

/* Arithmetic */

static __device__ __forceinline__ float fast_exp2(float x) { return __builtin_amdgcn_exp2f(x); }
static __device__ __forceinline__ float fast_reciprocal(float x)
{
    return __builtin_amdgcn_rcpf(x);
}

static __device__ __forceinline__ float min_or_nan(float x, float limit)
{
    return x > limit ? limit : x;
}

static __device__ __forceinline__ float max_or_nan(float x, float limit)
{
    return x < limit ? limit : x;
}

/* Types of numbers */

struct Bf16 {
    uint16_t bits;
};
struct alignas(4) Bf16Pair {
    Bf16 x, y;
};

static __device__ __forceinline__ float bf16_widen(Bf16 v)
{
    return __uint_as_float((uint32_t)v.bits << 16);
}

/* To nearest even. A NaN keeps its upper bits, as engine/base/dtype.h has it. */
static __device__ __forceinline__ Bf16 bf16_narrow(float v)
{
    uint32_t u = __float_as_uint(v), rounded = (u + 0x7FFFu + (u >> 16 & 1u)) >> 16;
    return { (uint16_t)(v != v ? u >> 16 | 0x40u : rounded) };
}

static __device__ __forceinline__ Bf16Pair pair_from_f32(float low, float high)
{
    return { bf16_narrow(low), bf16_narrow(high) };
}

#endif
