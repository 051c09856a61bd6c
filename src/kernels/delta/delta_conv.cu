/*
 * delta_conv: kernels of the short causal convolution, bound by memory. A thread has a pack of channels and SPAN rows, so
 * that it reads its weights once. It fetches ROWS of them at a time with the tokens that they join: the TAPS - 1 before,
 * and backward as many behind. Backward makes the slopes of all of these, and sums of dw over its rows; a second kernel
 * adds these up. Where a row is in its sequence is counted on: divisions of 64 bits cost more than the convolution.
 */
#include "kernels/norm/rows_add.cuh"

#include "kernels/delta/delta_call.cuh"

#include "engine/gpu/fast_math.cuh"

enum { ROWS = 8, SPAN = 64, BACK_SPAN = 128, THREADS = 128 };

template <typename T> struct Conv {
    DeltaShape s;
    const T *x;
    const float *w;
    T *y; /* backward: read as dy */
    T *dx, *dbefore;
    const T *before; /* or NULL */
    float *part;     /* (spans, channels, taps) */
    int64_t taps;
};

/* The column of x that channel c of y is made of. A head's q, its k, and v of all heads that share these are neighbours. */
static __device__ __forceinline__ int64_t column_of(const DeltaShape &s, int64_t c)
{
    int64_t keys = (int64_t)s.key_heads * s.key, values = (int64_t)s.shared * s.value;
    if (c < keys) return c / s.key * s.head_cols + c % s.key;
    c -= keys;
    if (c < keys) return c / s.key * s.head_cols + s.key + c % s.key;
    c -= keys;
    return c / values * s.head_cols + 2 * s.key + c % values;
}

/* Weights of P channels: tap k is that of the token k before. */
template <int TAPS, int P, typename T>
static __device__ __forceinline__ void load_taps(const Conv<T> &a, int64_t c, float (&w)[TAPS][P])
{
    float own[P * TAPS];
    bool whole = P > 1 && a.taps == TAPS;
    if (whole) load_const<true>(a.w + c * TAPS, own);
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
#pragma unroll
        for (int p = 0; p < P; p++) {
            if (whole) w[k][p] = own[p * TAPS + TAPS - 1 - k];
            if (!whole) w[k][p] = k < a.taps ? a.w[(c + p) * a.taps + a.taps - 1 - k] : 0.0f;
        }
    }
}

/* Where a row is: token t of a run; `joins`: how many tokens before it the convolution takes, at most. */
struct Row {
    int64_t run;
    int t, joins;
};

/* N rows from `first` on; rows that do not exist join nothing. */
template <int N, typename T>
static __device__ __forceinline__ void place_rows(const Conv<T> &a, int64_t first, Row (&row)[N])
{
    int tokens = (int)a.s.sequence, t = (int)(first % tokens);
    int64_t run = first / tokens;
#pragma unroll
    for (int i = 0; i < N; i++, t++) {
        if (t == tokens) t = 0, run++;
        int64_t at = first + i, seen = -1;
        if (at < a.s.rows)
            seen = a.s.first[run % 2] + t - (a.s.doc == NULL ? 0 : (int64_t)a.s.doc[at]);
        if (a.before == NULL) seen = min(seen, (int64_t)t);
        row[i].run = run, row[i].t = t, row[i].joins = (int)min(seen, a.taps - 1);
    }
}

/* The offset in `before` of the token k before the first of a run. */
template <typename T>
static __device__ __forceinline__ int64_t before_at(const Conv<T> &a, int64_t run, int k)
{
    return ((run + 1) * (a.taps - 1) - k) * a.s.x_cols;
}

/* u = sum of w_k x of k tokens before; held[at] is the row's own. */
template <int TAPS, int HELD, int P, typename T, bool WIDE>
static __device__ __forceinline__ void
convolve(const Conv<T> &a, const Packed<T, WIDE> (&held)[HELD], int at, const Row &row,
         int64_t column, const float (&w)[TAPS][P], float (&u)[P])
{
#pragma unroll
    for (int p = 0; p < P; p++) u[p] = 0;
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
        float x[P];
        if (k > row.joins) break;
        widen(held[at - k], x);
        if (k > row.t) load_const<WIDE>(a.before + before_at(a, row.run, k - row.t) + column, x);
#pragma unroll
        for (int p = 0; p < P; p++) u[p] += w[k][p] * x[p];
    }
}

/* Rows first .. first + HELD, those that exist; others are zeros. */
template <int HELD, typename T, bool WIDE>
static __device__ __forceinline__ void fetch_rows(Packed<T, WIDE> (&held)[HELD], const T *at,
                                                  int64_t first, int64_t rows, int64_t stride)
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        clear(held[i]);
        if (first + i >= 0 && first + i < rows) fetch(held[i], at + (first + i) * stride);
    }
}

template <typename T, bool WIDE, int TAPS>
static __global__ __launch_bounds__(THREADS) void delta_conv_fwd_kernel(Conv<T> a)
{
    constexpr int P = Packed<T, WIDE>::P, BEFORE = TAPS - 1;
    int64_t c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * P;
    int64_t first = (int64_t)blockIdx.x * SPAN;
    Packed<T, WIDE> held[ROWS + BEFORE];
    float w[TAPS][P];
    if (c >= a.s.qkv_cols) return;
    int64_t column = column_of(a.s, c);
    load_taps<TAPS, P>(a, c, w);
    for (int64_t from = first; from < min(first + SPAN, a.s.rows); from += ROWS) {
        Row row[ROWS];
        fetch_rows(held, a.x + column, from - BEFORE, a.s.rows, a.s.x_cols);
        place_rows(a, from, row);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float u[P];
            if (from + i >= a.s.rows) return;
            convolve<TAPS>(a, held, i + BEFORE, row[i], column, w, u);
#pragma unroll
            for (int p = 0; p < P; p++) u[p] *= sigmoid_for<T>(u[p]);
            store<WIDE>(a.y + (from + i) * a.s.qkv_cols + c, u);
        }
    }
}

/* dx_t = sum over k of w_k du_(t + k),  dw_k += du_(t + k) x_t, for tokens t + k of the run that join t, which may lie
 * `back` tokens before it. row and du: from the token itself, or from the first of its run on. */
template <int TAPS, int SLOPES, int P>
static __device__ __forceinline__ void
pull_token(const Row (&row)[SLOPES], int at, int back, const float (&du)[SLOPES][P],
           const float (&x)[P], const float (&w)[TAPS][P], float (&dw)[TAPS][P], float (&dx)[P])
{
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
        if (k < back) continue;
        const Row &to = row[at + k - back];
        if (to.run != row[at].run || to.joins < k) break;
#pragma unroll
        for (int p = 0; p < P; p++) {
            dx[p] += w[k][p] * du[at + k - back][p];
            dw[k][p] += du[at + k - back][p] * x[p];
        }
    }
}

template <typename T, bool WIDE, int TAPS>
static __global__ __launch_bounds__(THREADS) void delta_conv_bwd_kernel(Conv<T> a)
{
    constexpr int P = Packed<T, WIDE>::P, MORE = TAPS - 1, SLOPES = ROWS + MORE;
    int64_t c = ((int64_t)blockIdx.y * THREADS + threadIdx.x) * P;
    float w[TAPS][P], dw[TAPS][P] = {};
    if (c >= a.s.qkv_cols) return;
    load_taps<TAPS, P>(a, c, w);
    int64_t span = (int64_t)blockIdx.x * BACK_SPAN, column = column_of(a.s, c);
    for (int64_t first = span; first < min(span + BACK_SPAN, a.s.rows); first += ROWS) {
        Packed<T, WIDE> held[SLOPES + MORE], slopes[SLOPES];
        float du[SLOPES][P];
        Row place[SLOPES];
        fetch_rows(held, a.x + column, first - MORE, a.s.rows, a.s.x_cols);
        fetch_rows(slopes, a.y + c, first, a.s.rows, a.s.qkv_cols);
        place_rows(a, first, place);
#pragma unroll
        for (int i = 0; i < SLOPES; i++) {
            float u[P];
            convolve<TAPS>(a, held, i + MORE, place[i], column, w, u);
            widen(slopes[i], du[i]);
#pragma unroll
            for (int p = 0; p < P; p++) {
                float s = sigmoid_for<T>(u[p]);
                du[i][p] *= s * (1 + u[p] * (1 - s));
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float x[P], dx[P] = {};
            int64_t row = first + i;
            if (row >= a.s.rows) break;
            widen(held[i + MORE], x);
            pull_token<TAPS>(place, i, 0, du, x, w, dw, dx);
            store<WIDE>(a.dx + row * a.s.x_cols + column, dx);
            if (a.before == NULL || place[i].t > 0) continue;
#pragma unroll
            for (int back = 1; back <= MORE; back++) {
                float d[P] = {};
                int64_t at = before_at(a, place[i].run, back) + column;
                if (back >= a.taps) break;
                load_const<WIDE>(a.before + at, x);
                pull_token<TAPS>(place, i, back, du, x, w, dw, d);
                store<WIDE>(a.dbefore + at, d);
            }
        }
    }
    float *to = a.part + ((int64_t)blockIdx.x * a.s.qkv_cols + c) * a.taps;
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
#pragma unroll
        for (int p = 0; p < P; p++)
            if (k < a.taps) to[p * a.taps + a.taps - 1 - k] = dw[k][p];
    }
}

/* Calls run(T(), wide, taps): 4 or DELTA_TAPS_MAX. Forward has no gradients in b. */
template <typename F> static Status launch_conv(struct Exec *ex, const DeltaConvBwd &b, F run)
{
    const DeltaConvFwd &f = b.of;
    return launch_packed(ex, "delta_conv", f.x.dtype,
                         { f.x.data, f.w.data, f.y.data, f.before.data, b.dx.data, b.dbefore.data },
                         { f.dims.key, f.dims.value, delta_x_cols(&f.dims) },
                         [&](auto t, auto wide) {
                             if (tensor_cols(&f.w) <= 4)
                                 run(t, wide, std::integral_constant<int, 4>());
                             else
                                 run(t, wide, std::integral_constant<int, DELTA_TAPS_MAX>());
                         });
}

template <typename T> static Conv<T> conv_of(const DeltaConvFwd *f)
{
    Conv<T> a = {};
    a.s = delta_shape(&f->x, &f->y, &f->doc, &f->dims, f->sequence, f->first);
    a.before = (const T *)f->before.data;
    a.x = (const T *)f->x.data, a.w = (const float *)f->w.data, a.y = (T *)f->y.data;
    a.taps = tensor_cols(&f->w);
    return a;
}

extern "C" Status delta_conv_fwd_gpu(struct Exec *ex, const void *args)
{
    const DeltaConvFwd *f = (const DeltaConvFwd *)args;
    const DeltaConvBwd b = { *f, {}, {}, {} };
    return launch_conv(ex, b, [&](auto t, auto wide, auto taps) {
        typedef decltype(t) T;
        Conv<T> a = conv_of<T>(f);
        dim3 grid(grid_of(a.s.rows, SPAN), grid_of(a.s.qkv_cols, THREADS * Packed<T, wide>::P));
        delta_conv_fwd_kernel<T, wide, taps><<<grid, THREADS, 0, exec_stream(ex)>>>(a);
    });
}

extern "C" size_t delta_conv_bwd_gpu_workspace(const struct Exec *, const void *args)
{
    const DeltaConvFwd *f = &((const DeltaConvBwd *)args)->of;
    return grid_of(f->x.dim[0], BACK_SPAN) * (size_t)tensor_elems(&f->w) * sizeof(float);
}

extern "C" Status delta_conv_bwd_gpu(struct Exec *ex, const void *args)
{
    const DeltaConvBwd *b = (const DeltaConvBwd *)args;
    int64_t spans = grid_of(b->of.x.dim[0], BACK_SPAN), cols = tensor_elems(&b->of.w);
    float *part = (float *)exec_workspace(ex);
    TRY(launch_conv(ex, *b, [&](auto t, auto wide, auto taps) {
        typedef decltype(t) T;
        Conv<T> a = conv_of<T>(&b->of);
        a.dx = (T *)b->dx.data, a.dbefore = (T *)b->dbefore.data, a.part = part;
        dim3 grid((unsigned)spans, grid_of(a.s.qkv_cols, THREADS * Packed<T, wide>::P));
        delta_conv_bwd_kernel<T, wide, taps><<<grid, THREADS, 0, exec_stream(ex)>>>(a);
    }));
    if (b->dw.data == NULL) return OK;
    rows_add_kernel<<<grid_of(cols, ADD_SIDE), dim3(ADD_SIDE, ADD_SIDE), 0, exec_stream(ex)>>>(
        part, (float *)b->dw.data, spans, cols);
    return kernel_status("delta_conv_bwd");
}
