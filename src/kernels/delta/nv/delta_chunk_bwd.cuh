/* delta_chunk_bwd: the gradients of the gated delta rule by chunks (delta_chunk.cuh). */
#ifndef KERNELS_DELTA_NV_DELTA_CHUNK_BWD_CUH
#define KERNELS_DELTA_NV_DELTA_CHUNK_BWD_CUH

#include "kernels/delta/nv/delta_chunk.cuh"

namespace delta
{

/* ---- pull ---- */

template <int D> struct Pull {
    static constexpr int TILE = CHUNK * D * 2;
    static constexpr int Q = 0, K = Q + TILE, D_O = K + TILE, P = D_O + TILE,
                         NUMBERS = P + CHUNK * CHUNK * 2, BYTES = NUMBERS + 5 * CHUNK * 4;
};

/* P^T dO to dU and dO^T diag(e^g) Q to dS, both turned, (Dv, 64) and (Dv, Dk). */
template <int D>
static __device__ __forceinline__ void pull_run(const Args &a, unsigned char *memory)
{
    typedef Pull<D> R;
    Here h = here_of(a, blockIdx.x / (unsigned)a.chunks, (int)(blockIdx.x % (unsigned)a.chunks));
    uint32_t base = shared_address(memory);
    Numbers n = numbers_at(memory + R::NUMBERS);
    float *of_q = n.log_alpha, p[CHUNK / 8][4], s[D / 8][4];
    int m = warp_of() * 16, i = m + own_row(), t = (int)threadIdx.x;
    load_tile<CHUNK, D, TILE_THREADS>(base + R::Q, q_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    load_tile<CHUNK, D, TILE_THREADS>(base + R::K, k_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    load_tile<CHUNK, D, TILE_THREADS>(base + R::D_O, a.d_o + o_at(a, h),
                                      (int64_t)a.s.heads * a.s.value, h.n, a.s.value);
    copies_close();
    load_numbers(a, h, n);
    copies_wait<0>();
    __syncthreads();
    lengths<D, TILE_THREADS>(memory + R::Q, of_q);
    make_p<D>(p, base + R::Q, base + R::K, m, n);
    __syncthreads();
    scale_own(p, of_q[i] * a.q_scale, of_q[i + 8] * a.q_scale);
    put_part<CHUNK>(memory + R::P, m, 0, p);
    if (t < CHUNK) n.beta[t] = of_q[t] * a.q_scale * marks_of(a, h, SEEN)[t];
    __syncthreads();
    scale_rows<D, TILE_THREADS>(memory + R::Q, n.beta);
    __syncthreads();
    for (; m < D; m += CHUNK) {
        clear(p);
        multiply<TERMS_DOWN, D, TERMS_DOWN, CHUNK, CHUNK>(p, base + R::D_O, m, base + R::P, 0);
        store_part<true>(a.dU + (h.slot * D + m) * CHUNK, CHUNK, 16, CHUNK, p);
        clear(s);
        multiply<TERMS_DOWN, D, TERMS_DOWN, D, CHUNK>(s, base + R::D_O, m, base + R::Q, 0);
        store_part<true>(a.dS + (h.slot * D + m) * D, D, 16, D, s);
    }
}

/* ---- back ---- */

/* From the last chunk to the first; memory of dU and dS as pull left it, then with what its name says. */
template <int D>
static __device__ __forceinline__ void back_run(const Args &a, unsigned char *memory)
{
    typedef Pass<D, true> R;
    constexpr int PARTS = D / PASS_ROWS;
    uint32_t base = shared_address(memory);
    int64_t unit = blockIdx.x / PARTS;
    int part = (int)(blockIdx.x % PARTS) * PASS_ROWS, row = part + warp_of() * 16;
    Here h = here_of(a, unit, 0);
    float dS[D / 8][4];
    load_state(a, h, a.dstate, row, dS);
    for (int i = 0; i < R::STAGES - 1; i++) load_next<D, true>(a, h, i, part, base);
    for (int i = 0; i < a.chunks; i++) {
        h = chunk_of(a, h, a.chunks - 1 - i);
        int at = i % R::STAGES * R::STAGE;
        const float *mark = (const float *)(memory + at + R::MARK);
        uint32_t packed[D / 16][4], left_u[CHUNK / 16][4];
        float u[CHUNK / 8][4], more[CHUNK / 8][4], s[D / 8][4];
        pack(dS, packed);
        copies_wait<R::STAGES - 2>();
        __syncthreads();
        load_next<D, true>(a, h, i + R::STAGES - 1, part, base);
        clear(more);
        multiply_packed<TERMS_ACROSS, D>(more, packed, base + at + R::K);
        scale_columns(more, mark + CHUNK);
        get_part<CHUNK>(memory + at + R::U, warp_of() * 16, u);
#pragma unroll
        for (int e = 0; e < CHUNK / 2; e++) u[e / 4][e % 4] += more[e / 4][e % 4];
        store_part<true>(a.dU + (h.slot * D + row) * CHUNK, CHUNK, 16, CHUNK, u);
        store_part<true>(a.dS + (h.slot * D + row) * D, D, 16, D, dS);
        scale(u, -1);
        pack(u, left_u);
        get_part<D>(memory + at + R::S, warp_of() * 16, s);
        float keep = mark[CHUNK - 1];
#pragma unroll
        for (int e = 0; e < D / 2; e++)
            dS[e / 4][e % 4] = fmaf(dS[e / 4][e % 4], keep, s[e / 4][e % 4]);
        multiply_packed<TERMS_DOWN, D>(dS, left_u, base + at + R::W);
    }
    if (a.span != NULL)
        store_span(a, h, false, row, dS);
    else
        store_state(a, h, a.dstate, row, dS);
}

/* ---- slope ---- */

/* Warps of 16 rows, and of a part of the columns: 32 of D, 16 of 64. */
enum {
    PARTS = SLOPE_THREADS / WARP / 4,
    PAIR_COLUMNS = CHUNK / PARTS,
    PAIR_TILES = PAIR_COLUMNS / 8
};

/* D_P: dP e^(g_i - g_j); F: da e^(g_i - g_j); both (64, 64). F takes the place of X. */
template <int D> struct Slope {
    static constexpr int TILE = CHUNK * D * 2, SQUARE = CHUNK * CHUNK * 2;
    static constexpr int Q = 0, K = Q + TILE, D_O = K + TILE, U = D_O + TILE, D_U = U + TILE,
                         S = D_U + TILE, D_S = S + D * D * 2, X = D_S + D * D * 2, D_P = X + SQUARE,
                         D_X = D_P + SQUARE, NUMBERS = D_X + TILE, SUMS = NUMBERS + 6 * CHUNK * 4,
                         BYTES = SUMS + (3 * PARTS + 5) * CHUNK * 4;
};

/* Sums of a chunk, from warps of 16 rows and a part of the columns: f32 in shared memory. */
typedef struct Sums {
    float *row;    /* (PARTS, 64): of dP P + da a */
    float *column; /* (4, 64): of the same, by warps of the same rows */
    float *seen;   /* (PARTS, 64): of terms with S */
    float *carry;  /* (PARTS, 64): of terms with dS */
    float *room;   /* (64) */
} Sums;

static __device__ __forceinline__ Sums sums_at(unsigned char *at)
{
    float *f = (float *)at;
    return { f, f + PARTS * CHUNK, f + (PARTS + 4) * CHUNK, f + (2 * PARTS + 4) * CHUNK,
             f + (3 * PARTS + 4) * CHUNK };
}

/* The warp's rows, its part of the columns, and a thread's rows. */
typedef struct Own {
    int m, part, i; /* rows m .., this thread's i and i + 8 */
} Own;

static __device__ __forceinline__ Own own_of()
{
    Own o;
    o.m = warp_of() % 4 * 16, o.part = warp_of() / 4, o.i = o.m + own_row();
    return o;
}

static __device__ __forceinline__ float part_sum(const float *of, int i)
{
    float sum = 0;
    for (int part = 0; part < PARTS; part++) sum += of[part * CHUNK + i];
    return sum;
}

/* sum = what the pairs (i, j) of this warp add to rows and columns; z: dP P + da a. */
static __device__ __forceinline__ void add_pairs(const Sums &to, const Own &own,
                                                 const float (&z)[PAIR_TILES][4])
{
    float up = 0, low = 0;
#pragma unroll
    for (int n = 0; n < PAIR_TILES; n++) up += z[n][0] + z[n][1], low += z[n][2] + z[n][3];
    up = row_fold(up), low = row_fold(low);
    if (lane_of() % 4 == 0) {
        to.row[own.part * CHUNK + own.i] = up;
        to.row[own.part * CHUNK + own.i + 8] = low;
    }
#pragma unroll
    for (int e = 0; e < 2 * PAIR_TILES; e++) {
        float sum = z[e / 2][e % 2] + z[e / 2][2 + e % 2];
        for (int bits = 4; bits < WARP; bits *= 2) sum += lane_get_xor(sum, bits);
        if (lane_of() < 4)
            to.column[own.m / 16 * CHUNK + own.part * PAIR_COLUMNS + e / 2 * 8 + own_column() +
                      e % 2] = sum;
    }
}

/* The products of this thread's two rows of c with those of the tile, over this warp's columns. */
template <int D, int N>
static __device__ __forceinline__ void row_products(const float (&c)[N][4], unsigned char *tile,
                                                    const Own &own, float (&sum)[2])
{
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int n = 0; n < N; n++) {
        int column = own.part * N * 8 + n * 8 + own_column();
        float2 up = widen(*pair_at<D>(tile, own.i, column)),
               low = widen(*pair_at<D>(tile, own.i + 8, column));
        sum[0] += c[n][0] * up.x + c[n][1] * up.y;
        sum[1] += c[n][2] * low.x + c[n][3] * low.y;
    }
    sum[0] = row_fold(sum[0]), sum[1] = row_fold(sum[1]);
}

static __device__ __forceinline__ void keep_rows(float *to, const Own &own, const float (&sum)[2])
{
    if (lane_of() % 4 != 0) return;
    to[own.part * CHUNK + own.i] = sum[0];
    to[own.part * CHUNK + own.i + 8] = sum[1];
}

template <int N>
static __device__ __forceinline__ void add_all(float (&to)[N][4], const float (&c)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) to[i / 4][i % 4] += c[i / 4][i % 4];
}

/* dX = X^T dU to shared memory, dV = diag(beta) dX to memory. */
template <int D>
static __device__ __forceinline__ void make_dx(const Args &a, const Here &h, unsigned char *memory,
                                               const Numbers &n, const Own &own)
{
    typedef Slope<D> R;
    uint32_t base = shared_address(memory);
    float c[D / 8 / PARTS][4];
    clear(c);
    multiply<TERMS_DOWN, CHUNK, TERMS_ACROSS, CHUNK, CHUNK>(c, base + R::X, own.m, base + R::D_U,
                                                            own.part * D / PARTS);
    put_part<D>(memory + R::D_X, own.m, own.part * D / PARTS, c);
    scale_own(c, n.beta[own.i], n.beta[own.i + 8]);
    store_part(a.dqkv + v_at(a, h) + own.m * a.s.qkv_cols + own.part * D / PARTS, a.s.qkv_cols,
               h.n - own.m, a.s.value - own.part * D / PARTS, c);
}

/* D_P and F, the sums over their pairs, and the gradient of b. q and k have unit length here, q is scaled. */
template <int D>
static __device__ __forceinline__ void make_pairs(const Args &a, const Here &h,
                                                  unsigned char *memory, const Numbers &n,
                                                  const Sums &sums, const Own &own)
{
    typedef Slope<D> R;
    uint32_t base = shared_address(memory);
    Pairs of = { n.g, n.document };
    float d[PAIR_TILES][4], s[PAIR_TILES][4], z[PAIR_TILES][4];
    int from = own.part * PAIR_COLUMNS;
    clear(d);
    clear(s);
    multiply<TERMS_ACROSS, D, TERMS_DOWN, CHUNK, D>(d, base + R::D_O, own.m, base + R::U, from);
    multiply<TERMS_ACROSS, D, TERMS_ACROSS, D, D>(s, base + R::Q, own.m, base + R::K, from);
#pragma unroll
    for (int e = 0; e < 4 * PAIR_TILES; e++) {
        int i = own.i + e / 2 % 2 * 8, j = from + e / 4 * 8 + own_column() + e % 2;
        d[e / 4][e % 4] *= kept(of, i, j, true);
        z[e / 4][e % 4] = d[e / 4][e % 4] * s[e / 4][e % 4];
    }
    put_part<CHUNK>(memory + R::D_P, own.m, from, d);
    clear(d);
    clear(s);
    multiply<TERMS_ACROSS, D, TERMS_DOWN, CHUNK, D>(d, base + R::D_X, own.m, base + R::U, from);
    multiply<TERMS_ACROSS, D, TERMS_ACROSS, D, D>(s, base + R::K, own.m, base + R::K, from);
#pragma unroll
    for (int e = 0; e < 4 * PAIR_TILES; e++) {
        int i = own.i + e / 2 % 2 * 8, j = from + e / 4 * 8 + own_column() + e % 2;
        float y = d[e / 4][e % 4];
        if (i == j && i < h.n)
            a.slopes[((h.row + i) * a.s.heads + h.head) * 2] = y * (1 - n.beta[i]);
        d[e / 4][e % 4] = -n.beta[i] * y * kept(of, i, j, false);
        z[e / 4][e % 4] += d[e / 4][e % 4] * s[e / 4][e % 4];
    }
    put_part<CHUNK>(memory + R::X, own.m, from, d);
    add_pairs(sums, own, z);
}

/* dq += diag(e^g) dO S^T + D_P K,  dk += diag(carry) U dS^T - diag(beta e^g) dX S^T + F K + F^T K + D_P^T Q, for this
 * warp's rows and columns. */
template <int D>
static __device__ __forceinline__ void
make_dqk(const Args &a, const Here &h, unsigned char *memory, const Numbers &n, const Sums &sums,
         const Own &own, float (&dq)[D / 8 / PARTS][4], float (&dk)[D / 8 / PARTS][4])
{
    typedef Slope<D> R;
    uint32_t base = shared_address(memory);
    float c[D / 8 / PARTS][4], of_q[2], of_k[2], last = n.g[CHUNK - 1];
    int from = own.part * D / PARTS, i = own.i, begins = n.document[CHUNK - 1];
    float seen = marks_of(a, h, SEEN)[i], seen_low = marks_of(a, h, SEEN)[i + 8];
    clear(c);
    multiply<TERMS_ACROSS, D, TERMS_DOWN, D, D>(c, base + R::D_O, own.m, base + R::S, from);
    scale_own(c, seen, seen_low);
    row_products<D>(c, memory + R::Q, own, of_q);
    add_all(dq, c);
    multiply<TERMS_ACROSS, CHUNK, TERMS_DOWN, D, CHUNK>(dq, base + R::D_P, own.m, base + R::K,
                                                        from);
    clear(c);
    multiply<TERMS_ACROSS, D, TERMS_DOWN, D, D>(c, base + R::D_X, own.m, base + R::S, from);
    scale_own(c, -n.beta[i] * seen, -n.beta[i + 8] * seen_low);
    row_products<D>(c, memory + R::K, own, of_k);
    of_q[0] += of_k[0], of_q[1] += of_k[1];
    keep_rows(sums.seen, own, of_q);
    add_all(dk, c);
    clear(c);
    multiply<TERMS_DOWN, CHUNK, TERMS_DOWN, D, D>(c, base + R::U, own.m, base + R::D_S, from);
    scale_own(c, begins <= i ? fast_exp2(last - n.g[i]) : 0.0f,
              begins <= i + 8 ? fast_exp2(last - n.g[i + 8]) : 0.0f);
    row_products<D>(c, memory + R::K, own, of_k);
    keep_rows(sums.carry, own, of_k);
    add_all(dk, c);
    multiply<TERMS_ACROSS, CHUNK, TERMS_DOWN, D, CHUNK>(dk, base + R::X, own.m, base + R::K, from);
    multiply<TERMS_DOWN, CHUNK, TERMS_DOWN, D, CHUNK>(dk, base + R::X, own.m, base + R::K, from);
    multiply<TERMS_DOWN, CHUNK, TERMS_DOWN, D, CHUNK>(dk, base + R::D_P, own.m, base + R::Q, from);
}

/* The product of S and dS, element by element. */
template <int D>
static __device__ __forceinline__ float states_product(unsigned char *memory, float *room)
{
    typedef Slope<D> R;
    float sum = 0;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < D * D / 2; i += SLOPE_THREADS) { /* both lie alike */
        float2 s = widen(((const __nv_bfloat162 *)(memory + R::S))[i]),
               d = widen(((const __nv_bfloat162 *)(memory + R::D_S))[i]);
        sum += s.x * d.x + s.y * d.y;
    }
    return block_sum(sum, room);
}

/* The gradient of log alpha of each token: the sum over tokens behind it in its document of what g has. */
static __device__ __forceinline__ void store_slopes(const Args &a, const Here &h, const Numbers &n,
                                                    const Sums &sums, float states)
{
    int i = (int)threadIdx.x;
    float *of_g = n.log_alpha, *carried = sums.room;
    if (i < CHUNK) {
        float pairs = part_sum(sums.row, i);
        for (int quarter = 0; quarter < 4; quarter++) pairs -= sums.column[quarter * CHUNK + i];
        carried[i] = part_sum(sums.carry, i);
        of_g[i] = pairs + part_sum(sums.seen, i) - carried[i];
    }
    __syncthreads();
    if (i >= h.n) return;
    float sum = 0;
    if (n.document[i] == n.document[CHUNK - 1]) {
        sum = n.document[i] < 0 ? states * marks_of(a, h, SEEN)[CHUNK - 1] : 0.0f;
        for (int j = 0; j < CHUNK; j++) sum += carried[j];
    }
    for (int j = i; j < CHUNK; j++) sum += n.document[j] == n.document[i] ? of_g[j] : 0.0f;
    a.slopes[((h.row + i) * a.s.heads + h.head) * 2 + 1] = n.document[i] == i ? 0.0f : sum;
}

/* From the gradient of a unit vector u to that of x: (d - u (u . d)) / |x|. `scale`: the length of what the tile has. */
template <int D>
static __device__ __forceinline__ void
store_unit(const Args &a, const Here &h, Bf16 *to, float (&d)[D / 8 / PARTS][4],
           unsigned char *tile, const float *length, float scale_of, float *room, const Own &own)
{
    float along[2];
    row_products<D>(d, tile, own, along);
    keep_rows(room, own, along);
    __syncthreads();
    int from = own.part * D / PARTS;
#pragma unroll
    for (int e = 0; e < D / 2 / PARTS; e++) {
        int i = own.i + e / 2 % 2 * 8, column = from + e / 4 * 8 + own_column() + e % 2;
        float2 two = widen(*pair_at<D>(tile, i, column - e % 2));
        float u = e % 2 == 0 ? two.x : two.y, dot = part_sum(room, i);
        d[e / 4][e % 4] =
            length[i] * scale_of * (d[e / 4][e % 4] - u * dot / (scale_of * scale_of));
    }
    store_part(to + own.m * a.s.qkv_cols + from, a.s.qkv_cols, h.n - own.m, a.s.key - from, d);
    __syncthreads();
}

template <int D>
static __device__ __forceinline__ void slope_load(const Args &a, const Here &h, uint32_t base)
{
    typedef Slope<D> R;
    load_tile<CHUNK, D, SLOPE_THREADS>(base + R::D_O, a.d_o + o_at(a, h),
                                       (int64_t)a.s.heads * a.s.value, h.n, a.s.value);
    load_whole<D, CHUNK, SLOPE_THREADS>(base + R::U, a.U + h.slot * D * CHUNK);
    load_whole<D, CHUNK, SLOPE_THREADS>(base + R::D_U, a.dU + h.slot * D * CHUNK);
    load_whole<CHUNK, CHUNK, SLOPE_THREADS>(base + R::X, a.X + h.slot * CHUNK * CHUNK);
    load_whole<D, D, SLOPE_THREADS>(base + R::S, a.S + h.slot * D * D);
    load_whole<D, D, SLOPE_THREADS>(base + R::D_S, a.dS + h.slot * D * D);
    copies_close();
}

/* A block has a chunk of a key head, and walks the heads that share it. */
template <int D>
static __device__ __forceinline__ void slope_run(const Args &a, unsigned char *memory)
{
    typedef Slope<D> R;
    int64_t unit = blockIdx.x / (unsigned)a.chunks * a.s.shared;
    int chunk = (int)(blockIdx.x % (unsigned)a.chunks);
    uint32_t base = shared_address(memory);
    Here h = here_of(a, unit, chunk);
    Numbers n = numbers_at(memory + R::NUMBERS);
    Sums sums = sums_at(memory + R::SUMS);
    float *of_q = (float *)(memory + R::NUMBERS) + 5 * CHUNK, dq[D / 8 / PARTS][4],
          dk[D / 8 / PARTS][4];
    Own own = own_of();
    load_tile<CHUNK, D, SLOPE_THREADS>(base + R::Q, q_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    load_tile<CHUNK, D, SLOPE_THREADS>(base + R::K, k_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    copies_close();
    slope_load<D>(a, h, base);
    load_numbers(a, h, n);
    copies_wait<1>();
    __syncthreads();
    lengths<D, SLOPE_THREADS>(memory + R::Q, of_q);
    __syncthreads();
    if (threadIdx.x < CHUNK) sums.seen[threadIdx.x] = of_q[threadIdx.x] * a.q_scale;
    __syncthreads();
    scale_rows<D, SLOPE_THREADS>(memory + R::Q, sums.seen);
    scale_rows<D, SLOPE_THREADS>(memory + R::K, n.length);
    clear(dq);
    clear(dk);
    for (int r = 0; r < a.s.shared; r++) {
        h = here_of(a, unit + r, chunk);
        if (r > 0) {
            slope_load<D>(a, h, base);
            load_numbers(a, h, n);
        }
        copies_wait<0>();
        __syncthreads();
        make_dx<D>(a, h, memory, n, own);
        float states = states_product<D>(memory, sums.room);
        make_pairs<D>(a, h, memory, n, sums, own);
        __syncthreads();
        make_dqk<D>(a, h, memory, n, sums, own, dq, dk);
        __syncthreads();
        store_slopes(a, h, n, sums, states);
        __syncthreads();
    }
    int64_t keys = (int64_t)a.s.key_heads * a.s.key;
    Bf16 *to = a.dqkv + h.row * a.s.qkv_cols + (int64_t)h.key_head * a.s.key;
    store_unit<D>(a, h, to, dq, memory + R::Q, of_q, a.q_scale, sums.row, own);
    store_unit<D>(a, h, to + keys, dk, memory + R::K, n.length, 1, sums.row, own);
}

} // namespace delta

#endif
