/* qk_clip: the kernel that scales rows. A block has one row of the matrix: in most steps it looks at the
 * maxima of its heads and ends. The kernel of attention_max is in attention.cu. */
#include "kernels/core/pack.cuh"

extern "C" {
#include "kernels/optimizer/qk_clip.h"
}

enum { THREADS = 256 };

static __global__ void qk_clip_kernel(float *w, Bf16 *low, const float *max, const float *clip,
                                      int64_t first, int64_t n, int64_t cols,
                                      const __grid_constant__ QkRows rows, float above)
{
    int64_t row = first / cols + blockIdx.x;
    float factor = qk_factor(&rows, max, above, row);
    if (factor == 1 || !isfinite(*clip)) return; /* not finite: a skipped step */
    for (int64_t c = threadIdx.x; c < cols; c += THREADS) {
        int64_t i = row * cols + c - first;
        if (i < 0 || i >= n) continue;
        w[i] *= factor;
        if (low != NULL) low[i] = from_f32<Bf16>(w[i]);
    }
}

extern "C" Status qk_clip_gpu(struct Exec *ex, const void *args)
{
    const QkClip *a = (const QkClip *)args;
    int64_t n = tensor_elems(&a->w), rows = (a->first + n - 1) / a->cols - a->first / a->cols + 1;
    if (n == 0) return OK;
    qk_clip_kernel<<<(unsigned)rows, THREADS, 0, exec_stream(ex)>>>(
        (float *)a->w.data, (Bf16 *)a->low.data, (const float *)a->max.data,
        (const float *)a->clip.data, a->first, n, a->cols, a->rows, a->above);
    return kernel_status("qk_clip");
}
