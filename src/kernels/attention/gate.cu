/* gate: the kernel of both ops, bound by memory. A thread has a pack of EACH heads of rows. */
#include "kernels/norm/rows.cuh"

#include "kernels/attention/gate.h"

#include "engine/gpu/fast_math.cuh"

enum { EACH = 4 };

/* n heads of rows of d columns; x: rows of `width` columns, where a head's gate lies behind its query. */
template <typename T> struct GateCall {
    const T *x, *in, *o;
    T *out;
    int64_t n, heads, d, width;
};

template <typename T, bool WIDE, bool BACK>
static __global__ __launch_bounds__(ROWS_THREADS) void gate_kernel(GateCall<T> a)
{
    constexpr int P = Packed<T, WIDE>::P;
    row_groups<EACH, P>(a.n, a.d, [&](int64_t col, int64_t first, int64_t step) {
        Packed<T, WIDE> gate[EACH], in[EACH], o[EACH];
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int64_t i = first + j * step;
            if (i >= a.n) break;
            fetch_once(gate[j], a.x + i / a.heads * a.width + (2 * (i % a.heads) + 1) * a.d + col);
            fetch_once(in[j], a.in + i * a.d + col);
            if (BACK) fetch_once(o[j], a.o + i * a.d + col);
        }
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            int64_t i = first + j * step;
            float g[P], v[P], w[P];
            if (i >= a.n) break;
            widen(gate[j], g);
            widen(in[j], v);
            if (BACK) widen(o[j], w);
#pragma unroll
            for (int p = 0; p < P; p++)
                v[p] *= BACK ? w[p] * sigmoid_for<T>(-g[p]) : sigmoid_for<T>(g[p]);
            int64_t to = i / a.heads * a.width + (2 * (i % a.heads) + 1) * a.d;
            store<WIDE>(a.out + (BACK ? to : i * a.d) + col, v);
        }
    });
}

extern "C" Status gate_gpu(struct Exec *ex, const Gate *g)
{
    const void *o = g->o == NULL ? g->in->data : g->o->data;
    int64_t d = tensor_row_elems(g->in) / g->heads, width = tensor_row_elems(g->x);
    if (tensor_elems(g->in) == 0) return OK;
    return launch_packed(
        ex, g->op, g->x->dtype, { g->x->data, g->in->data, o, g->out->data }, { d, width },
        [&](auto t, auto wide) {
            typedef decltype(t) T;
            GateCall<T> a = { (const T *)g->x->data,
                              (const T *)g->in->data,
                              (const T *)o,
                              (T *)g->out->data,
                              g->x->dim[0] * g->heads,
                              g->heads,
                              d,
                              width };
            RowGrid grid = row_grid(a.n, d / Packed<T, wide>::P, EACH);
            if (g->o == NULL)
                gate_kernel<T, wide, false><<<grid.grid, grid.block, 0, exec_stream(ex)>>>(a);
            else
                gate_kernel<T, wide, true><<<grid.grid, grid.block, 0, exec_stream(ex)>>>(a);
        });
}
