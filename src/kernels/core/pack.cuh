/*
 * pack: reads and writes rows of f32 or bf16 16 bytes (a pack) at a time, if their alignment allows.
 *
 * Row-wise ops are bound by memory, and a thread that moves 2 bytes an access cannot saturate it. So their kernels have
 * two versions. WIDE needs every row to begin at a multiple of 16 bytes and all widths to be whole packs (packs_fit,
 * which the launcher checks once). The other version moves one element at a time. Arithmetic is in f32 in both:
 *
 *     constexpr int P = WIDE ? PACK<T> : 1;
 *     float v[P];
 *     load<WIDE>(x + i, v);
 *     ...
 *     store<WIDE>(y + i, v);
 *
 * load_const is for memory that the kernel does not write. The compiler may then move the load
 * before stores, so that several loads run at a time.
 */
#ifndef KERNELS_CORE_PACK_CUH
#define KERNELS_CORE_PACK_CUH

#include "kernels/core/kernel.cuh"

#include <initializer_list>
#include <type_traits>

/* Elements of one access. */
template <typename T> constexpr int PACK = 16 / (int)sizeof(T);

/* The unit in which BYTES bytes are moved. */
template <int BYTES>
using Unit = std::conditional_t<
    BYTES == 2, uint16_t,
    std::conditional_t<BYTES == 4, uint32_t, std::conditional_t<BYTES == 8, uint2, uint4>>>;

template <bool CONSTANT, bool WIDE, typename T, int N>
static __device__ __forceinline__ void elements_get(const T *at, T (&v)[N])
{
    if constexpr (WIDE) {
        typedef Unit<N *(int)sizeof(T)> U;
        constexpr int UNITS = N * (int)sizeof(T) / (int)sizeof(U);
        U u[UNITS];
#pragma unroll
        for (int k = 0; k < UNITS; k++) {
            const U *from = reinterpret_cast<const U *>(at) + k;
            u[k] = CONSTANT ? read_const(from) : *from;
        }
        memcpy(v, u, sizeof v);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = CONSTANT ? read_const(at + k) : at[k];
    }
}

template <bool WIDE, typename T, int N>
static __device__ __forceinline__ void elements_put(T *at, const T (&v)[N])
{
    if constexpr (WIDE) {
        typedef Unit<N *(int)sizeof(T)> U;
        constexpr int UNITS = N * (int)sizeof(T) / (int)sizeof(U);
        U u[UNITS];
        memcpy(u, v, sizeof v);
#pragma unroll
        for (int k = 0; k < UNITS; k++) write_whole(reinterpret_cast<U *>(at) + k, u[k]);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) at[k] = v[k];
    }
}

template <bool WIDE, typename T, int N>
static __device__ __forceinline__ void load(const T *at, float (&out)[N])
{
    T v[N];
    elements_get<false, WIDE>(at, v);
#pragma unroll
    for (int k = 0; k < N; k++) out[k] = to_f32(v[k]);
}

template <bool WIDE, typename T, int N>
static __device__ __forceinline__ void load_const(const T *at, float (&out)[N])
{
    T v[N];
    elements_get<true, WIDE>(at, v);
#pragma unroll
    for (int k = 0; k < N; k++) out[k] = to_f32(v[k]);
}

/* In bf16, as a W of 2 N bytes. */
template <typename W, int N> static __device__ __forceinline__ W bf16_word(const float (&v)[N])
{
    Bf16Pair pair[N / 2];
    W word;
    static_assert(sizeof word == sizeof pair, "a W of other bytes");
#pragma unroll
    for (int k = 0; k < N / 2; k++) pair[k] = pair_from_f32(v[2 * k], v[2 * k + 1]);
    memcpy(&word, pair, sizeof word);
    return word;
}

template <bool WIDE, typename T, int N>
static __device__ __forceinline__ void store(T *at, const float (&in)[N])
{
    if constexpr (WIDE && std::is_same<T, Bf16>::value) {
        Bf16Pair pairs[N / 2];
        Bf16 v[N];
#pragma unroll
        for (int k = 0; k < N / 2; k++) pairs[k] = pair_from_f32(in[2 * k], in[2 * k + 1]);
        memcpy(v, pairs, sizeof v);
        elements_put<WIDE>(at, v);
    } else {
        T v[N];
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = from_f32<T>(in[k]);
        elements_put<WIDE>(at, v);
    }
}

/* Can rows at these addresses, with these widths and offsets in elements of T, be read as packs? */
template <typename T>
static inline bool packs_fit(std::initializer_list<const void *> at,
                             std::initializer_list<int64_t> spans)
{
    for (const void *p : at) {
        if ((uintptr_t)p % 16 != 0) return false;
    }
    for (int64_t n : spans) {
        if (n % PACK<T> != 0) return false;
    }
    return true;
}

static const char UNPACKED[] = "a slower kernel runs: rows do not lie at multiples of 16 bytes";

/* Returns packs_fit. If it is false, that is logged once for each op, unless rows are shorter than
 * a line of memory: rows of routing weights are, and cost little anyway. */
template <typename T>
static inline bool packs_chosen(struct Exec *ex, const char *op,
                                std::initializer_list<const void *> at,
                                std::initializer_list<int64_t> spans)
{
    const int64_t line = 128 / (int64_t)sizeof(T);
    bool fit = packs_fit<T>(at, spans), tiny = false;
    for (int64_t n : spans) tiny = tiny || (n > 0 && n < line);
    if (!fit && !tiny) exec_note_once(ex, op, UNPACKED);
    return fit;
}

/* Calls run(T()) for the C++ type T of `type`; run launches the kernel. */
template <typename F> static inline Status launch_typed(const char *op, Dtype type, F run)
{
    if (type == DTYPE_F32)
        run(float());
    else
        run(Bf16());
    return kernel_status(op);
}

/* Calls run(T(), wide), where wide is the result of packs_chosen as a compile-time constant. */
template <typename F>
static inline Status launch_packed(struct Exec *ex, const char *op, Dtype type,
                                   std::initializer_list<const void *> at,
                                   std::initializer_list<int64_t> spans, F run)
{
    return launch_typed(op, type, [&](auto t) {
        if (packs_chosen<decltype(t)>(ex, op, at, spans))
            run(t, std::true_type());
        else
            run(t, std::false_type());
    });
}

#endif
