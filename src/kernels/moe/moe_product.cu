/* moe_product: the products of routed rows whose operands are plain; moe_product.cuh has the kernels
 * and their launchers. */
#include "kernels/moe/moe_product.cuh"

/* Bytes for the largest number of shares that any kernel leaves; only the backward pass has shares. */
extern "C" size_t moe_product_gpu_workspace(const struct Exec *ex, const MoeProduct *p)
{
    const bool shares = p->epilogue == MOE_SWIGLU_BACKWARD;
    int64_t parts = shares ? (p->O + TILE - 1) / TILE * PARTS<PLAIN_THREADS> : 0;
    return moe_narrow_workspace(ex, p, (size_t)(parts * p->rows->bound) * sizeof(float));
}

/* An entry for each kernel, which product_kernels.c names. */
#define ENTRY(name, KERNEL)                                                                        \
    extern "C" Status moe_product_##name(struct Exec *ex, const void *call)                        \
    {                                                                                              \
        return product<KERNEL, false>(ex, call);                                                   \
    }
ENTRY(plain, KERNEL_PLAIN)
GROUPED_VENDOR_KERNELS(ENTRY)
