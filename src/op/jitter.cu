/* jitter: the kernel that multiplies the router's logits by random factors. A thread makes a block
 * of four random numbers and uses one of them: ten rounds of integers a logit. Sharing them in a
 * warp is not worth it, because choosing experts takes some hundred instructions a logit anyway. */
#define PHILOX_FUNCTION static __device__ __forceinline__
#include "base/philox.h"
#include "op/kernel.cuh"

extern "C" {
#include "op/jitter.h"
}

enum { THREADS = 256 };

/* rng_u32 on the device. */
static __device__ uint32_t random_word(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint32_t word[PHILOX_WORDS];
    philox_at(seed, stream, i / PHILOX_WORDS, word);
    uint32_t low = i % 2 == 0 ? word[0] : word[1], high = i % 2 == 0 ? word[2] : word[3];
    return i % PHILOX_WORDS < 2 ? low : high; /* no index: the words stay in registers */
}

static __global__ void jitter_kernel(Jitter a, uint64_t stream, int64_t n, int64_t e, int64_t t)
{
    int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, i = at / e;
    if (i >= n) return;
    uint64_t token = (uint64_t)((const int32_t *)a.sequence.data)[i / t] * (uint64_t)a.positions +
                     (uint64_t)((const int32_t *)a.pos.data)[i];
    stream += (uint32_t) * (const int32_t *)a.step.data;
    uint32_t word = random_word(a.seed, stream, token * (uint64_t)e + (uint64_t)(at % e));
    float u = (float)(word * 0x1p-32), factor = __fmul_rn(a.size, __fmaf_rn(2, u, -1));
    float *x = (float *)a.x.data + at;
    *x = __fmul_rn(*x, __fadd_rn(1, factor));
}

extern "C" Status jitter_gpu(struct Exec *ex, const void *args)
{
    const Jitter *a = (const Jitter *)args;
    int64_t n = tensor_elems(&a->pos), e = tensor_cols(&a->x);
    if (n * e == 0) return OK;
    jitter_kernel<<<grid_of(n * e, THREADS), THREADS, 0, exec_stream(ex)>>>(
        *a, jitter_stream(a), n, e, n / tensor_elems(&a->sequence));
    return kernel_status("jitter");
}
