/*
 * moe_narrow: products of routed rows whose results have 8 bits (moe.h), as policies of grouped.cuh. A vendor's kernel
 * makes codes and scales from the values; here is where they are stored, and what is launched besides.
 */
#include "kernels/moe/moe_product.cuh"

/* kept: pre; inner: act. */
template <typename Types, bool PLAIN> struct UpNarrow : UpForward<Types, PLAIN> {
    typedef TileShapes<TILE_SHARED> Shapes;
    static constexpr bool NARROW = true;
    NarrowRows kept, inner;

    UpNarrow(const MoeProduct &p, const MoeUpFwd *a)
        : UpForward<Types, PLAIN>(p, a), kept(narrow_rows(a->pre)), inner(narrow_rows(a->act))
    {
    }

    __device__ __forceinline__ void bias_add(const GroupTile &t, int64_t f, float *gate,
                                             float *up) const
    {
        if (PLAIN || this->bias == NULL) return;
        *gate += to_f32(this->bias[t.expert * 2 * this->F + f]);
        *up += to_f32(this->bias[(t.expert * 2 + 1) * this->F + f]);
    }
};

/* kept: pre, which is read; rows and columns: dpre; inner: wact, in columns. dpre has the format of dy. */
template <typename Types, bool GENERAL> struct DownNarrow : DownBackward<Types, GENERAL> {
    static constexpr bool NARROW = true;
    typedef typename std::conditional<std::is_same<typename Types::A, E5M2Bits>::value, E5M2,
                                      E4M3>::type Gradient;
    NarrowRows kept, rows, columns, inner;

    DownNarrow(const MoeProduct &p, const MoeDownBwdInput *a, float *shares)
        : DownBackward<Types, GENERAL>(p, a, shares), kept(narrow_rows(a->pre)),
          rows(narrow_rows(a->dpre)), columns(narrow_rows(a->dpre_columns)),
          inner(narrow_rows(a->wact))
    {
    }

    TensorShape c_shape() const
    {
        return { kept.data, 2 * this->n, this->rows_pre, 1, DTYPE_E4M3 };
    }
};

enum { TAIL_THREADS = 256 };

/* The scales of columns past the last group are 1, as quantize has them. A warp has rows. */
static __global__ __launch_bounds__(TAIL_THREADS) void moe_tail_kernel(Groups groups, NarrowRows q,
                                                                       int64_t n)
{
    __shared__ int used;
    if (threadIdx.x == 0) used = 0;
    __syncthreads();
    for (int64_t e = threadIdx.x; e < groups.experts; e += TAIL_THREADS)
        atomicAdd(&used,
                  (int)(whole_blocks(groups.first(e + 1) - groups.first(e)) / OPERAND_BLOCK));
    __syncthreads();
    int64_t warps = (int64_t)gridDim.x * (TAIL_THREADS / WARP);
    int64_t row = (int64_t)blockIdx.x * (TAIL_THREADS / WARP) + threadIdx.x / WARP;
    for (; row < n; row += warps)
        for (int64_t k = used + threadIdx.x % WARP; k < q.blocks; k += WARP)
            q.scale[row * q.blocks + k] = 1;
}

static Status tail(struct Exec *ex, const MoeProduct &p, const Operand &q)
{
    int64_t n = q.data.dim[0];
    unsigned blocks = grid_of(n, TAIL_THREADS / WARP * 4);
    moe_tail_kernel<<<blocks, TAIL_THREADS, 0, exec_stream(ex)>>>(
        groups_of(p.offsets, p.rows, NULL), narrow_rows(q), n);
    return kernel_status(p.op);
}

template <Kernel KERNEL> static Status backward(struct Exec *ex, const MoeProduct &p)
{
    const MoeDownBwdInput *a = (const MoeDownBwdInput *)p.args;
    TRY(a->glu.limit > 0 ? (swiglu_backward<KERNEL, true, true, DownNarrow>(ex, p, a))
                         : (swiglu_backward<KERNEL, true, false, DownNarrow>(ex, p, a)));
    TRY(tail(ex, p, a->dpre_columns));
    return tail(ex, p, a->wact);
}

template <Kernel KERNEL> static Status narrow(struct Exec *ex, const void *call)
{
    const MoeProduct &p = *(const MoeProduct *)((const GroupedCall *)call)->product;
    if (p.epilogue == MOE_SWIGLU_BACKWARD) return backward<KERNEL>(ex, p);
    const MoeUpFwd *a = (const MoeUpFwd *)p.args;
    return moe_product_biased(&p) || a->glu.limit > 0
               ? swiglu<KERNEL, true, false, UpNarrow>(ex, p, a)
               : swiglu<KERNEL, true, true, UpNarrow>(ex, p, a);
}

/* Entries for each kernel, which product_kernels.c names. */
#define ENTRY(name, KERNEL)                                                                        \
    extern "C" Status moe_narrow_product_##name(struct Exec *ex, const void *call)                 \
    {                                                                                              \
        return narrow<KERNEL>(ex, call);                                                           \
    }
GROUPED_VENDOR_NARROW_KERNELS(ENTRY)
