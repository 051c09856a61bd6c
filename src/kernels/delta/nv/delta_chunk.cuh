/*
 * delta_chunk: the gated delta rule in bf16 by chunks of 64 tokens, on mma.sync (the WY form of Yang et al.,
 * arXiv:2406.06484, with the decay of arXiv:2412.06464). With k of unit length, g the sum of log alpha from the chunk's
 * first token on, S the state before the chunk, and tokens i >= j of one document:
 *
 *     a_ij = e^(g_i - g_j) k_i . k_j   (j < i)        X = (1 + diag(beta) a)^-1
 *     W = X diag(beta e^g) K,   U = X diag(beta) V - W S,   P_ij = e^(g_i - g_j) q_i . k_j   (j <= i)
 *     O = diag(e^g) Q S + P U,  S of the next chunk = e^(g_last) S + (diag(e^(g_last - g)) K)^T U
 *
 * A document that begins inside the chunk has no part in S: its e^g is 0 (`seen`), and so is the carry of tokens of
 * documents that end. Kernels, one after the other; only `pass` and `back` walk chunks in order, each block 32 columns of v:
 *
 *     prepare   X, W, X diag(beta) V      pass   S of each chunk, U      out    O
 *     pull      P^T dO, dO^T Q            back   dS of each chunk, dU    slope  all gradients
 *
 *     dU = P^T dO + diag(carry) K dS,   dS before = e^(g_last) dS + dO^T diag(e^g) Q - dU^T W
 *     dX = X^T dU,  dV = diag(beta) dX,  da = -dV U^T,  dP = dO U^T
 *
 * The gradient of log alpha is summed from rows and columns of dP P + da a, in f32: there it would cancel.
 *
 * S and dS are kept turned, (Dv, Dk), as rows of accumulators: so they leave one product as an operand of the next. All
 * that passes through memory between kernels is bf16, sums are f32. Tiles have D = 64 or 128 columns; those that a head
 * lacks are zeros. Every result has one owner and one order of sums.
 */
#ifndef KERNELS_DELTA_NV_DELTA_CHUNK_CUH
#define KERNELS_DELTA_NV_DELTA_CHUNK_CUH

#include "kernels/core/nv/mma.cuh"
#include "kernels/delta/delta.cuh"

#include "engine/gpu/fast_math.cuh"

namespace delta
{

enum { CHUNK = 64, HALF = CHUNK / 2, PIECE = 8 /* elements of 16 bytes */, PASS_ROWS = 32 };
enum { PASS_THREADS = 2 * WARP, TILE_THREADS = 4 * WARP, SLOPE_THREADS = 16 * WARP };
enum { PITCH = CHUNK + 4 /* floats of a row of f32 in shared memory */ };

/* Numbers of a chunk's tokens in f32, a row of 64 each. G in powers of two; SEEN: e^g, or 0; CARRY: e^(g_last - g)
 * / |k|, or 0. SEEN of token 63 is what S is multiplied by. */
enum Mark { G, BETA, LENGTH /* 1 / |k| */, SEEN, CARRY, MARKS };

/* A slab of heads, from `unit` on; slot: number of a chunk in the slab. A tile is (64, D), turned (D, 64), a state
 * (D, D). */
typedef struct Args {
    DeltaShape s;
    const Bf16 *qkv, *x, *d_o;
    const float *decay;
    Bf16 *o, *dqkv;
    float *slopes;         /* (rows, H, 2): gradients of b and of log alpha */
    float *state, *dstate; /* (B, H Dk Dv), or NULL */
    float
        *span; /* (B, H Dk (Dv + Dk)), or NULL: what chunks do to a state is wanted (delta_span) */
    int64_t unit;
    int chunks;
    float q_scale;
    Bf16 *W, *U, *S, *X, *dU,
        *dS; /* tile, turned tile, turned states, (64, 64), turned tile, turned states */
    float *marks;
} Args;

/* ---- where things are ---- */

typedef struct Here {
    int64_t row, slot;            /* of the chunk's first token */
    int head, key_head, n, first; /* n: its tokens; first: the token's number in its sequence */
    int64_t b;
} Here;

static __device__ __forceinline__ Here here_of(const Args &a, int64_t unit, int chunk)
{
    Here h;
    int64_t all = a.unit + unit;
    h.b = all / a.s.heads;
    h.head = (int)(all % a.s.heads), h.key_head = h.head / a.s.shared;
    h.first = chunk * CHUNK;
    h.row = h.b * a.s.sequence + h.first;
    h.n = (int)min((int64_t)CHUNK, a.s.sequence - h.first);
    h.slot = unit * a.chunks + chunk;
    return h;
}

/* The same head's chunk number `chunk`, without here_of's divisions. */
static __device__ __forceinline__ Here chunk_of(const Args &a, Here h, int chunk)
{
    int more = chunk * CHUNK - h.first;
    h.first += more, h.row += more, h.slot += more / CHUNK;
    h.n = (int)min((int64_t)CHUNK, a.s.sequence - h.first);
    return h;
}

static __device__ __forceinline__ const Bf16 *q_of(const Args &a, const Here &h)
{
    return a.qkv + h.row * a.s.qkv_cols + (int64_t)h.key_head * a.s.key;
}
static __device__ __forceinline__ const Bf16 *k_of(const Args &a, const Here &h)
{
    return q_of(a, h) + (int64_t)a.s.key_heads * a.s.key;
}
static __device__ __forceinline__ int64_t v_at(const Args &a, const Here &h)
{
    return h.row * a.s.qkv_cols + 2 * (int64_t)a.s.key_heads * a.s.key +
           (int64_t)h.head * a.s.value;
}
static __device__ __forceinline__ int64_t o_at(const Args &a, const Here &h)
{
    return (h.row * a.s.heads + h.head) * a.s.value;
}
static __device__ __forceinline__ float *marks_of(const Args &a, const Here &h, Mark m)
{
    return a.marks + (h.slot * MARKS + m) * CHUNK;
}

/* The document of token i of the chunk, by its first token, counted from the chunk's: below 0 if it sees the state. Of the
 * last token if there is no token i. */
static __device__ __forceinline__ int document_of(const Args &a, const Here &h, int i)
{
    return (int)(delta_first_of(a.s, h.row + min(i, h.n - 1)) - delta_position_of(a.s, h.row));
}

/* ---- tiles in shared memory ---- */

template <int D> static __device__ __forceinline__ uint32_t place(int row, int piece)
{
    return (uint32_t)(row * D * 2 + ((piece ^ (row & 7)) << 4));
}

/* N rows of D columns; those from `rows` and from `width` on are zeros. WHOLE: there are none. A thread has every STEP-th
 * row of a piece. */
template <int N, int D, int THREADS, bool WHOLE = false>
static __device__ __forceinline__ void load_tile(uint32_t to, const Bf16 *from, int64_t stride,
                                                 int rows, int width)
{
    constexpr int STEP = THREADS / (D / PIECE);
    int first = (int)threadIdx.x / (D / PIECE), piece = (int)threadIdx.x % (D / PIECE);
    bool there = piece * PIECE < width;
    const Bf16 *at = from + first * stride + piece * PIECE;
#pragma unroll
    for (int i = 0; i < (N + STEP - 1) / STEP; i++, at += STEP * stride) {
        int r = first + i * STEP;
        if (N % STEP != 0 && r >= N) break;
        bool inside = WHOLE || (there && r < rows);
        copy_chunk(to + place<D>(r, piece), inside ? at : from, inside);
    }
}

template <int N, int D, int THREADS>
static __device__ __forceinline__ void load_whole(uint32_t to, const Bf16 *from)
{
    load_tile<N, D, THREADS, true>(to, from, D, N, D);
}

static __device__ __forceinline__ float2 widen(__nv_bfloat162 v)
{
    float2 two;
    two.x = bf16_widen(v.x), two.y = bf16_widen(v.y);
    return two;
}

/* Two neighbours of a tile in shared memory. */
template <int D>
static __device__ __forceinline__ __nv_bfloat162 *pair_at(unsigned char *tile, int row, int column)
{
    return (__nv_bfloat162 *)(tile + place<D>(row, column / PIECE) + column % PIECE * 2);
}

/* 1 / length of each of a tile's 64 rows. `THREADS / 64` neighbouring threads share a row. */
template <int D, int THREADS>
static __device__ __forceinline__ void lengths(unsigned char *tile, float *out)
{
    constexpr int EACH = THREADS / CHUNK;
    int row = (int)threadIdx.x / EACH, part = (int)threadIdx.x % EACH;
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < D / 2 / EACH; i++) {
        float2 v = widen(*pair_at<D>(tile, row, 2 * (i * EACH + part)));
        sum += v.x * v.x + v.y * v.y;
    }
    for (int bits = 1; bits < EACH; bits *= 2) sum += lane_get_xor(sum, bits);
    if (part == 0) out[row] = 1 / sqrtf(sum + DELTA_LENGTH_EPS);
}

/* Multiplies each of a tile's 64 rows by a number. */
template <int D, int THREADS>
static __device__ __forceinline__ void scale_rows(unsigned char *tile, const float *by)
{
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < CHUNK * D / 2; i += THREADS) {
        int row = i / (D / 2);
        __nv_bfloat162 *at = pair_at<D>(tile, row, i % (D / 2) * 2);
        float2 v = widen(*at);
        *at = __floats2bfloat162_rn(v.x * by[row], v.y * by[row]);
    }
}

/* ---- products of a warp: 16 rows, N columns, over K terms ---- */

/* A thread has rows own_row() and own_row() + 8, and of 8 columns own_column() and the next. */
static __device__ __forceinline__ int lane_of() { return (int)threadIdx.x % WARP; }
static __device__ __forceinline__ int warp_of() { return (int)threadIdx.x / WARP; }
static __device__ __forceinline__ int own_row() { return lane_of() / 4; }
static __device__ __forceinline__ int own_column() { return lane_of() % 4 * 2; }

template <int N> static __device__ __forceinline__ void clear(float (&c)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) c[i / 4][i % 4] = 0;
}

/* Which side of an operand's tile its terms are: TERMS_ACROSS if a row of the tile has the terms of one row or column
 * of the product. */
enum Side { TERMS_ACROSS, TERMS_DOWN };

/* Rows m .. m + 16 of a left operand, terms k .. k + 16. */
template <Side S, int D>
static __device__ __forceinline__ void left(uint32_t (&a)[4], uint32_t tile, int m, int k)
{
    int l = lane_of();
    if constexpr (S == TERMS_ACROSS)
        mma::squares_load<false>(tile + place<D>(m + l % 16, k / PIECE + l / 16), a[0], a[1], a[2],
                                 a[3]);
    else
        mma::squares_load<true>(tile + place<D>(k + l % 8 + l / 16 * 8, m / PIECE + l / 8 % 2),
                                a[0], a[1], a[2], a[3]);
}

/* c += a times columns n .. n + 8 N, terms k .. k + 16 of a right operand. */
template <Side S, int D, int N>
static __device__ __forceinline__ void add_terms(float (&c)[N][4], const uint32_t (&a)[4],
                                                 uint32_t tile, int n, int k)
{
    int l = lane_of();
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
        uint32_t x[4];
        if constexpr (S == TERMS_ACROSS)
            mma::squares_load<false>(
                tile + place<D>(n + j * 16 + l % 8 + l / 16 * 8, k / PIECE + l / 8 % 2), x[0], x[1],
                x[2], x[3]);
        else
            mma::squares_load<true>(tile + place<D>(k + l % 16, (n + j * 16) / PIECE + l / 16),
                                    x[0], x[1], x[2], x[3]);
        mma::multiply_add(c[2 * j], a, x[0], x[1]);
        mma::multiply_add(c[2 * j + 1], a, x[2], x[3]);
    }
}

/* c += rows m .. of tile `one` times columns n .. of tile `two`. */
template <Side SA, int DA, Side SB, int DB, int K, int N>
static __device__ __forceinline__ void multiply(float (&c)[N][4], uint32_t one, int m, uint32_t two,
                                                int n)
{
#pragma unroll 2
    for (int k = 0; k < K; k += 16) {
        uint32_t a[4];
        left<SA, DA>(a, one, m, k);
        add_terms<SB, DB>(c, a, two, n, k);
    }
}

/* Accumulators as a left operand, whose terms are their columns. */
template <int N>
static __device__ __forceinline__ void pack(const float (&c)[N][4], uint32_t (&p)[N / 2][4])
{
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        int k = i / 4, r = i % 4;
        __nv_bfloat162 two =
            __floats2bfloat162_rn(c[2 * k + r / 2][r % 2 * 2], c[2 * k + r / 2][r % 2 * 2 + 1]);
        memcpy(&p[k][r], &two, sizeof two);
    }
}

template <Side S, int D, int N, int K>
static __device__ __forceinline__ void multiply_packed(float (&c)[N][4], const uint32_t (&a)[K][4],
                                                       uint32_t tile)
{
#pragma unroll
    for (int k = 0; k < K; k++) add_terms<S, D>(c, a[k], tile, 0, 16 * k);
}

/* Accumulators to a row-major bf16 matrix whose element (0, 0) of this warp is *to; only rows below `rows` and columns
 * below `columns`. WHOLE: all are. */
template <bool WHOLE = false, int N>
static __device__ __forceinline__ void store_part(Bf16 *to, int64_t stride, int rows, int columns,
                                                  const float (&c)[N][4])
{
    Bf16 *own = to + own_row() * stride + own_column();
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        int row = own_row() + i % 2 * 8, column = i / 2 * 8 + own_column();
        if (WHOLE || (row < rows && column < columns))
            *(__nv_bfloat162 *)(own + i % 2 * 8 * stride + i / 2 * 8) =
                __floats2bfloat162_rn(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
    }
}

/* The same to rows m .., columns n .. of a tile in shared memory. */
template <int D, int N>
static __device__ __forceinline__ void put_part(unsigned char *tile, int m, int n,
                                                const float (&c)[N][4])
{
#pragma unroll
    for (int i = 0; i < 2 * N; i++)
        *pair_at<D>(tile, m + own_row() + i % 2 * 8, n + i / 2 * 8 + own_column()) =
            __floats2bfloat162_rn(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
}

/* Sum over the four lanes that share a row. */
static __device__ __forceinline__ float row_fold(float v)
{
    v += lane_get_xor(v, 1);
    return v + lane_get_xor(v, 2);
}

/* ---- masks ---- */

/* For calls about the pairs of tokens of a chunk: in powers of two, and documents. */
typedef struct Pairs {
    const float *g;      /* shared (64) */
    const int *document; /* shared (64): the first token of each, counted from the chunk's first */
} Pairs;

/* e^(g_i - g_j) if i sees j, else 0. */
static __device__ __forceinline__ float kept(const Pairs &p, int i, int j, bool itself)
{
    bool sees = j >= p.document[i] && (j < i || (itself && j == i));
    return sees ? fast_exp2(p.g[i] - p.g[j]) : 0.0f;
}

/* ---- prepare ---- */

template <int D> struct Prepare {
    static constexpr int K = 0, V = K + CHUNK * D * 2, A = V + CHUNK * D * 2,
                         X = A + CHUNK * PITCH * 4, NUMBERS = X + CHUNK * PITCH * 4,
                         BYTES = NUMBERS + 5 * CHUNK * 4;
};

typedef struct Numbers {
    float *g, *beta, *length, *log_alpha; /* shared (64) each */
    int *document;
} Numbers;

static __device__ __forceinline__ Numbers numbers_at(unsigned char *at)
{
    float *f = (float *)at;
    return { f, f + CHUNK, f + 2 * CHUNK, f + 3 * CHUNK, (int *)(f + 4 * CHUNK) };
}

/* g, beta and documents of the chunk's tokens. */
static __device__ __forceinline__ void make_gates(const Args &a, const Here &h, const Numbers &to)
{
    int i = (int)threadIdx.x;
    if (i < CHUNK) {
        const Bf16 *x = a.x + (h.row + i) * a.s.x_cols + delta_b_of(a.s, h.head);
        DeltaGates t = { 0, 0, 0 };
        if (i < h.n)
            t = delta_gates(a.s, a.decay, h.head, bf16_widen(x[0]), bf16_widen(x[a.s.shared]));
        to.document[i] = document_of(a, h, i);
        to.beta[i] = t.beta;
        to.log_alpha[i] = to.document[i] == i ? 0 : t.log_alpha * 1.44269504088896341f;
    }
    __syncthreads();
    if (i < CHUNK) {
        float sum = 0;
        for (int j = 0; j < CHUNK; j++) sum += j <= i ? to.log_alpha[j] : 0.0f;
        to.g[i] = sum;
    }
    __syncthreads();
}

static __device__ __forceinline__ void store_marks(const Args &a, const Here &h, const Numbers &n)
{
    int i = (int)threadIdx.x, last = CHUNK - 1;
    if (i >= CHUNK) return;
    bool carried = n.document[last] <= i;
    marks_of(a, h, G)[i] = n.g[i];
    marks_of(a, h, BETA)[i] = n.beta[i];
    marks_of(a, h, LENGTH)[i] = n.length[i];
    marks_of(a, h, SEEN)[i] = n.document[i] < 0 ? fast_exp2(n.g[i]) : 0.0f;
    marks_of(a, h, CARRY)[i] = carried ? fast_exp2(n.g[last] - n.g[i]) * n.length[i] : 0.0f;
}

/* diag(beta) a, f32, with zeros elsewhere: a warp has 16 rows. */
template <int D>
static __device__ __forceinline__ void make_a(uint32_t k, const Numbers &n, float *A)
{
    float c[CHUNK / 8][4];
    int m = warp_of() * 16;
    Pairs p = { n.g, n.document };
    clear(c);
    multiply<TERMS_ACROSS, D, TERMS_ACROSS, D, D>(c, k, m, k, 0);
#pragma unroll
    for (int e = 0; e < CHUNK / 2;
         e++) { /* stores come later: to the compiler they could change n */
        int i = m + own_row() + e / 2 % 2 * 8, j = e / 4 * 8 + own_column() + e % 2;
        c[e / 4][e % 4] *= kept(p, i, j, false) * n.beta[i] * n.length[i] * n.length[j];
    }
#pragma unroll
    for (int e = 0; e < CHUNK / 4; e++) {
        int i = m + own_row() + e % 2 * 8, j = e / 2 * 8 + own_column();
        float2 two;
        two.x = c[e / 2][e % 2 * 2], two.y = c[e / 2][e % 2 * 2 + 1];
        *(float2 *)(A + i * PITCH + j) = two;
    }
}

/* Column c % 32 of the inverse of diagonal square c / 32 of 1 + A, by substitution. */
static __device__ __forceinline__ void invert_square(const float *A, float *X, int c)
{
    float x[HALF];
    const float *own = A + c / HALF * HALF * (PITCH + 1);
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        float sum = i == c % HALF ? 1 : 0, row[HALF];
        memcpy(row, __builtin_assume_aligned(own + i * PITCH, 16), sizeof row);
#pragma unroll
        for (int j = 0; j < i; j++) sum -= row[j] * x[j];
        x[i] = sum;
        X[(c / HALF * HALF + i) * PITCH + c] = sum;
    }
}

/* to (32, 32) = sign one two: a thread has 8 columns of a row. */
static __device__ __forceinline__ void square_product(float *to, float sign, const float *one,
                                                      const float *two)
{
    int row = (int)threadIdx.x / 4, column = (int)threadIdx.x % 4 * 8;
    float c[8] = {};
#pragma unroll 4
    for (int k = 0; k < HALF; k++) {
        float v = one[row * PITCH + k], of[8];
        memcpy(of, __builtin_assume_aligned(two + k * PITCH + column, 16), sizeof of);
#pragma unroll
        for (int j = 0; j < 8; j++) c[j] += v * of[j];
    }
#pragma unroll
    for (int j = 0; j < 8; j++) to[row * PITCH + column + j] = sign * c[j];
}

/* X = (1 + A)^-1; its upper right square is scratch. */
static __device__ __forceinline__ void invert(const float *A, float *X)
{
    float *below = X + HALF * PITCH, *room = X + HALF;
    if (threadIdx.x < CHUNK) invert_square(A, X, (int)threadIdx.x);
    __syncthreads();
    square_product(room, 1, A + HALF * PITCH, X);
    __syncthreads();
    square_product(below, -1, below + HALF, room);
    __syncthreads();
}

/* X, and X diag(by) with and without e^g / |k|, as tiles of bf16. */
static __device__ __forceinline__ void split_inverse(const float *X, const Numbers &n, Bf16 *to,
                                                     unsigned char *of_v, unsigned char *of_k)
{
    int j = (int)threadIdx.x % HALF * 2;
    float by[2], seen[2];
    for (int r = 0; r < 2; r++) {
        by[r] = n.beta[j + r];
        seen[r] = n.document[j + r] < 0 ? by[r] * fast_exp2(n.g[j + r]) * n.length[j + r] : 0.0f;
    }
#pragma unroll 4
    for (int i = (int)threadIdx.x / HALF; i < CHUNK; i += TILE_THREADS / HALF) {
        float2 two = *(const float2 *)(X + i * PITCH + j);
        float x = j <= i ? two.x : 0, y = j + 1 <= i ? two.y : 0;
        *(__nv_bfloat162 *)(to + i * CHUNK + j) = __floats2bfloat162_rn(x, y);
        *pair_at<CHUNK>(of_v, i, j) = __floats2bfloat162_rn(x * by[0], y * by[1]);
        *pair_at<CHUNK>(of_k, i, j) = __floats2bfloat162_rn(x * seen[0], y * seen[1]);
    }
}

template <int D>
static __device__ __forceinline__ void prepare_run(const Args &a, unsigned char *memory)
{
    typedef Prepare<D> R;
    Here h = here_of(a, blockIdx.x / (unsigned)a.chunks, (int)(blockIdx.x % (unsigned)a.chunks));
    uint32_t base = shared_address(memory);
    float *A = (float *)(memory + R::A), *X = (float *)(memory + R::X);
    Numbers n = numbers_at(memory + R::NUMBERS);
    unsigned char *of_v = memory + R::A, *of_k = of_v + CHUNK * CHUNK * 2; /* where A was */
    load_tile<CHUNK, D, TILE_THREADS>(base + R::K, k_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    load_tile<CHUNK, D, TILE_THREADS>(base + R::V, a.qkv + v_at(a, h), a.s.qkv_cols, h.n,
                                      a.s.value);
    copies_close();
    make_gates(a, h, n);
    copies_wait<0>();
    __syncthreads();
    lengths<D, TILE_THREADS>(memory + R::K, n.length);
    __syncthreads();
    store_marks(a, h, n);
    make_a<D>(base + R::K, n, A);
    __syncthreads();
    invert(A, X);
    split_inverse(X, n, a.X + h.slot * CHUNK * CHUNK, of_v, of_k);
    __syncthreads();
    float c[D / 8][4], turned[CHUNK / 8][4];
    int m = warp_of() * 16;
    clear(c);
    multiply<TERMS_ACROSS, CHUNK, TERMS_DOWN, D, CHUNK>(c, base + R::A + CHUNK * CHUNK * 2, m,
                                                        base + R::K, 0);
    store_part<true>(a.W + (h.slot * CHUNK + m) * D, D, 16, D, c);
    for (; m < D; m += CHUNK) {
        clear(turned);
        multiply<TERMS_DOWN, D, TERMS_ACROSS, CHUNK, CHUNK>(turned, base + R::V, m, base + R::A, 0);
        store_part<true>(a.U + (h.slot * D + m) * CHUNK, CHUNK, 16, CHUNK, turned);
    }
}

/* ---- pass ---- */

/* A stage: W and K of a chunk, this block's rows of U (of dU, and of dO^T Q), CARRY and SEEN. */
template <int D, bool BACK> struct Pass {
    static constexpr int W = 0, K = W + CHUNK * D * 2, U = K + CHUNK * D * 2,
                         S = U + PASS_ROWS * CHUNK * 2, MARK = S + (BACK ? PASS_ROWS * D * 2 : 0),
                         STAGE = MARK + 2 * CHUNK * 4, STAGES = BACK ? 2 : 3,
                         BYTES = STAGES * STAGE;
};

/* `row`: the block's first of the turned state. */
template <int D, bool BACK>
static __device__ __forceinline__ void load_stage(const Args &a, const Here &h, int row,
                                                  uint32_t to)
{
    typedef Pass<D, BACK> R;
    const Bf16 *U = BACK ? a.dU : a.U;
    int i = (int)threadIdx.x;
    load_whole<CHUNK, D, PASS_THREADS>(to + R::W, a.W + h.slot * CHUNK * D);
    load_tile<CHUNK, D, PASS_THREADS>(to + R::K, k_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    load_whole<PASS_ROWS, CHUNK, PASS_THREADS>(to + R::U, U + (h.slot * D + row) * CHUNK);
    if (BACK) load_whole<PASS_ROWS, D, PASS_THREADS>(to + R::S, a.dS + (h.slot * D + row) * D);
    if (i < CHUNK / 2) /* SEEN and CARRY are neighbours */
        copy_chunk(to + R::MARK + i * 16, marks_of(a, h, SEEN) + 4 * i, true);
    copies_close();
}

/* An empty group, so that the number of groups is that of steps. */
template <int D, bool BACK>
static __device__ __forceinline__ void load_next(const Args &a, const Here &h, int i, int row,
                                                 uint32_t base)
{
    typedef Pass<D, BACK> R;
    if (i < a.chunks)
        load_stage<D, BACK>(a, chunk_of(a, h, BACK ? a.chunks - 1 - i : i), row,
                            base + i % R::STAGES * R::STAGE);
    else
        copies_close();
}

/* A thread's pairs of 16 rows, from m on, of a tile in shared memory. */
template <int D, int N>
static __device__ __forceinline__ void get_part(unsigned char *tile, int m, float (&c)[N][4])
{
#pragma unroll
    for (int i = 0; i < 2 * N; i++) {
        float2 v = widen(*pair_at<D>(tile, m + own_row() + i % 2 * 8, i / 2 * 8 + own_column()));
        c[i / 2][i % 2 * 2] = v.x, c[i / 2][i % 2 * 2 + 1] = v.y;
    }
}

/* Multiplies columns by numbers of their tokens. */
template <int N>
static __device__ __forceinline__ void scale_columns(float (&c)[N][4], const float *by)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 two = *(const float2 *)(by + n * 8 + own_column());
        c[n][0] *= two.x, c[n][1] *= two.y, c[n][2] *= two.x, c[n][3] *= two.y;
    }
}

template <int N> static __device__ __forceinline__ void scale(float (&c)[N][4], float by)
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) c[i / 4][i % 4] *= by;
}

/* The state of a sequence that is given, or zeros; (Dk, Dv) in memory, turned here. */
template <int N>
static __device__ __forceinline__ void load_state(const Args &a, const Here &h, const float *from,
                                                  int row, float (&S)[N][4])
{
    clear(S);
    if (from == NULL) return;
    from += (h.b * a.s.heads + h.head) * (int64_t)a.s.key * a.s.value;
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        int v = row + own_row() + i / 2 % 2 * 8, k = i / 4 * 8 + own_column() + i % 2;
        if (v < a.s.value && k < a.s.key) S[i / 4][i % 4] = from[(int64_t)k * a.s.value + v];
    }
}

/* The same back, to rows of `stride` elements: columns of v below `columns`. */
template <int N>
static __device__ __forceinline__ void store_turned(const Args &a, float *to, int64_t stride,
                                                    int columns, int row, const float (&S)[N][4])
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) {
        int v = row + own_row() + i / 2 % 2 * 8, k = i / 4 * 8 + own_column() + i % 2;
        if (v < columns && k < a.s.key) to[k * stride + v] = S[i / 4][i % 4];
    }
}

template <int N>
static __device__ __forceinline__ void store_state(const Args &a, const Here &h, float *to, int row,
                                                   const float (&S)[N][4])
{
    int64_t head = h.b * a.s.heads + h.head;
    if (to != NULL) store_turned(a, to + head * a.s.key * a.s.value, a.s.value, a.s.value, row, S);
}

/* B or C of a span (offset 0), or M, whose columns are columns of a state that begins as 1. */
template <int N>
static __device__ __forceinline__ void store_span(const Args &a, const Here &h, bool map, int row,
                                                  const float (&S)[N][4])
{
    int64_t head = h.b * a.s.heads + h.head, width = a.s.key + a.s.value;
    store_turned(a, a.span + head * a.s.key * width + (map ? a.s.value : 0), width,
                 map ? a.s.key : a.s.value, row, S);
}

/* SPAN: nothing is wanted but the last state; parts behind the first PARTS begin with ones and see no values. */
template <int D, bool SPAN>
static __device__ __forceinline__ void pass_run(const Args &a, unsigned char *memory)
{
    typedef Pass<D, false> R;
    constexpr int PARTS = D / PASS_ROWS, ALL = SPAN ? 2 * PARTS : PARTS;
    uint32_t base = shared_address(memory);
    int64_t unit = blockIdx.x / ALL;
    bool map = (int)(blockIdx.x % ALL) >= PARTS;
    int part = (int)(blockIdx.x % PARTS) * PASS_ROWS, row = part + warp_of() * 16;
    Here h = here_of(a, unit, 0);
    float S[D / 8][4];
    load_state(a, h, SPAN ? NULL : a.state, row, S);
#pragma unroll
    for (int i = 0; i < D / 2; i++)
        if (map && row + own_row() + i / 2 % 2 * 8 == i / 4 * 8 + own_column() + i % 2)
            S[i / 4][i % 4] = 1;
    for (int i = 0; i < R::STAGES - 1; i++) load_next<D, false>(a, h, i, part, base);
    for (int i = 0; i < a.chunks; i++) {
        h = chunk_of(a, h, i);
        int at = i % R::STAGES * R::STAGE;
        const float *mark = (const float *)(memory + at + R::MARK);
        uint32_t packed[D / 16][4], left_u[CHUNK / 16][4];
        float u[CHUNK / 8][4], ws[CHUNK / 8][4];
        if (!SPAN) store_part<true>(a.S + (h.slot * D + row) * D, D, 16, D, S);
        pack(S, packed);
        copies_wait<R::STAGES - 2>();
        __syncthreads();
        load_next<D, false>(a, h, i + R::STAGES - 1, part, base);
        clear(ws);
        multiply_packed<TERMS_ACROSS, D>(ws, packed, base + at + R::W);
        clear(u);
        if (!map) get_part<CHUNK>(memory + at + R::U, warp_of() * 16, u);
#pragma unroll
        for (int e = 0; e < CHUNK / 2; e++) u[e / 4][e % 4] -= ws[e / 4][e % 4];
        if (!SPAN) store_part<true>(a.U + (h.slot * D + row) * CHUNK, CHUNK, 16, CHUNK, u);
        scale_columns(u, mark + CHUNK);
        scale(S, mark[CHUNK - 1]);
        pack(u, left_u);
        multiply_packed<TERMS_DOWN, D>(S, left_u, base + at + R::K);
    }
    if (SPAN) store_span(a, h, map, row, S);
    if (!SPAN && a.o != NULL) store_state(a, h, a.state, row, S);
}

/* ---- out ---- */

template <int D> struct Out {
    static constexpr int TILE = CHUNK * D * 2;
    static constexpr int Q = 0, K = Q + TILE, U = K + TILE, S = U + TILE, NUMBERS = S + D * D * 2,
                         BYTES = NUMBERS + 5 * CHUNK * 4;
};

/* g, documents, and 1 / |k| of a chunk's tokens from memory. */
static __device__ __forceinline__ void load_numbers(const Args &a, const Here &h, const Numbers &to)
{
    int i = (int)threadIdx.x;
    if (i >= CHUNK) return;
    to.g[i] = marks_of(a, h, G)[i];
    to.beta[i] = marks_of(a, h, BETA)[i];
    to.length[i] = marks_of(a, h, LENGTH)[i];
    to.document[i] = document_of(a, h, i);
}

/* 16 rows of P, without the length and scale of q. */
template <int D>
static __device__ __forceinline__ void make_p(float (&p)[CHUNK / 8][4], uint32_t q, uint32_t k,
                                              int m, const Numbers &n)
{
    Pairs of = { n.g, n.document };
    clear(p);
    multiply<TERMS_ACROSS, D, TERMS_ACROSS, D, D>(p, q, m, k, 0);
#pragma unroll
    for (int e = 0; e < CHUNK / 2; e++) {
        int i = m + own_row() + e / 2 % 2 * 8, j = e / 4 * 8 + own_column() + e % 2;
        p[e / 4][e % 4] *= kept(of, i, j, true) * n.length[j];
    }
}

/* Multiplies rows by two numbers of this thread. */
template <int N>
static __device__ __forceinline__ void scale_own(float (&c)[N][4], float upper, float lower)
{
#pragma unroll
    for (int i = 0; i < 4 * N; i++) c[i / 4][i % 4] *= i / 2 % 2 == 0 ? upper : lower;
}

template <int D>
static __device__ __forceinline__ void out_run(const Args &a, unsigned char *memory)
{
    typedef Out<D> R;
    Here h = here_of(a, blockIdx.x / (unsigned)a.chunks, (int)(blockIdx.x % (unsigned)a.chunks));
    uint32_t base = shared_address(memory), packed[CHUNK / 16][4];
    Numbers n = numbers_at(memory + R::NUMBERS);
    float *of_q = n.log_alpha, o[D / 8][4], p[CHUNK / 8][4];
    int m = warp_of() * 16, i = m + own_row();
    load_tile<CHUNK, D, TILE_THREADS>(base + R::Q, q_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    load_tile<CHUNK, D, TILE_THREADS>(base + R::K, k_of(a, h), a.s.qkv_cols, h.n, a.s.key);
    copies_close();
    load_whole<D, CHUNK, TILE_THREADS>(base + R::U, a.U + h.slot * D * CHUNK);
    load_whole<D, D, TILE_THREADS>(base + R::S, a.S + h.slot * D * D);
    copies_close();
    load_numbers(a, h, n);
    copies_wait<1>();
    __syncthreads();
    lengths<D, TILE_THREADS>(memory + R::Q, of_q);
    make_p<D>(p, base + R::Q, base + R::K, m, n);
    pack(p, packed);
    copies_wait<0>();
    __syncthreads();
    clear(o);
    multiply<TERMS_ACROSS, D, TERMS_ACROSS, D, D>(o, base + R::Q, m, base + R::S, 0);
    scale_own(o, marks_of(a, h, SEEN)[i], marks_of(a, h, SEEN)[i + 8]);
    multiply_packed<TERMS_ACROSS, CHUNK>(o, packed, base + R::U);
    scale_own(o, of_q[i] * a.q_scale, of_q[i + 8] * a.q_scale);
    store_part(a.o + o_at(a, h) + (int64_t)m * a.s.heads * a.s.value,
               (int64_t)a.s.heads * a.s.value, h.n - m, a.s.value, o);
}

} // namespace delta

#endif
