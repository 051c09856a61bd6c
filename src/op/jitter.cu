/* jitter: a thread makes a block of four random numbers and uses one of them. Ten rounds of integers
 * a logit, where choosing takes some hundred instructions: a warp is not worth their sharing. */
#include "op/kernel.cuh"

extern "C" {
#include "op/jitter.h"
}

enum { THREADS = 256 };

/* Word i % 4 of block i / 4: rng_u32 of base/rng.c. */
static __device__ uint32_t random_word(uint64_t seed, uint64_t stream, uint64_t i)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint64_t block = i / 4;
    uint32_t c[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                      (uint32_t)(stream >> 32) };
#pragma unroll
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint32_t low = i % 2 == 0 ? c[0] : c[1], high = i % 2 == 0 ? c[2] : c[3];
    return i % 4 < 2 ? low : high;
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

extern "C" Status jitter_cuda(struct Exec *ex, const void *args)
{
    const Jitter *a = (const Jitter *)args;
    int64_t n = tensor_elems(&a->pos), e = tensor_cols(&a->x);
    if (n * e == 0) return OK;
    jitter_kernel<<<grid_of(n * e, THREADS), THREADS, 0, exec_stream(ex)>>>(
        *a, jitter_stream(a), n, e, n / tensor_elems(&a->sequence));
    return kernel_status("jitter");
}
