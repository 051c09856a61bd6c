/*
 * grouped: matrix products over groups of rows, one group for each expert, in one launch. This file
 * has what all kernels share, and the plain kernel. Tensor cores are used in nv/.
 *
 * There are two kinds of product, both in tiles of TILE x TILE:
 *
 *   rows   C[r][j] = sum over k of A[r][k] B_e[j][k]     rows of the result are routed rows
 *   sums   C_e[i][j] += sum over the rows r of group e of A[r][i] B[r][j]     weight gradients
 *
 * The host does not know the groups, so the grid covers the largest possible number of tiles. For rows, group e has
 * tile numbers from offsets[e] / TILE + e on. These are enough up to those of group e + 1, because ceil((b - a) / T) <=
 * floor(b / T) - floor(a / T) + 1. A block finds the expert of its number; a block whose number belongs to no tile ends
 * at once. Blocks of one tile of rows are neighbours. So blocks that run at the same time share the rows and weights of
 * few experts, which come from L2.
 *
 * A product is a policy P, which says where operands are and what is done with a result:
 *
 *     A, B, KERNEL, WIDE                                operands' types, which kernel: KernelTypes
 *     SUMS, DOTS; SideA, SideB                          how operands lie: Side
 *     Groups groups; int64_t m, n;                      of the result; m of sums only
 *     View<A> a(tile); View<B> b(tile); int64_t depth(tile);    operands, and the length of k
 *     Row row(tile, i);                                 what `store` needs of a row
 *     Extra<N> extra(tile, i, j);                       and of N columns of it; loaded early
 *     float store(tile, i, j, v, extra, row);           stores N columns of a row of the result
 *     void dot(tile, i, part, sum);                     DOTS: sums of what store returned
 *
 * and, for a vendor's kernels (grouped_vendor.cuh):
 *
 *     Shapes; a_shape(), b_shape(); a_at(tile), b_at(tile)    tiles; operands for a copy engine
 *     AS_IS; C *place(tile, i, j)                       c is stored unchanged, there; NULL: nowhere
 *     UNIT; READS, c_shape()                            else: columns for store; what extra reads
 *
 *     NARROW                                            c's 8-bit forms are stored: NarrowRows
 *     MIRRORED                                          each group's rows of c are a symmetric matrix: only tiles
 *                                                       that reach its diagonal or lie below it are made, and
 *                                                       `store` also writes their transpose
 *
 * 8-bit operands (EIGHT) have scales (kernels/core/operand.h), and both lie with k along rows of memory. Their
 * sums are as on the CPU (kernels/dense/scaled.h): 128 terms are summed, multiplied by their scales, and added
 * to an f32 sum. A weight gradient finds the terms of group e from column `column` of its tile on.
 *
 * Several kernels serve all policies. The plain one here uses multiply-adds, for f32 and for rows that do not begin at
 * multiples of 16 bytes. If all rows do, tensor cores are used: nv/grouped_mma.cuh, for Hopper nv/grouped_hopper.cuh,
 * and on AMD's GPUs kernels-amd/grouped_matrix.cuh. All keep sums in f32, in an order that depends on shapes alone.
 */
#ifndef KERNELS_MOE_GROUPED_CUH
#define KERNELS_MOE_GROUPED_CUH

#include "kernels/core/dtype.cuh"

#include "kernels/moe/moe.h"

namespace grouped
{

enum {
    TILE = 128,      /* rows and columns of the result that a block makes */
    HALF = TILE / 2, /* rows of results that shared memory holds for `store` */
    COLUMNS = 16,    /* columns that `store` gets at a time, except on Hopper */
    PITCH = TILE + 4 /* floats from row to row of these: rows begin in different banks */
};

/* The plain kernel, and two that a vendor may have (grouped_vendor.cuh). */
typedef enum Kernel { KERNEL_PLAIN, KERNEL_VENDOR_1, KERNEL_VENDOR_2 } Kernel;

/* An element of an 8-bit operand. EightBit: the operand says which of the two formats it has. */
struct E4M3Bits {
    uint8_t code;
};
struct E5M2Bits {
    uint8_t code;
};
struct EightBit {
    uint8_t code;
};

/* The types of a product's operands and of the rows that it writes, and which kernel multiplies.
 * INDEX: an operand's rows may be named by an index; on Hopper they are. */
template <typename TypeA, typename TypeB, typename TypeC, Kernel WHICH, bool INDEX>
struct KernelTypes {
    typedef TypeA A;
    typedef TypeB B;
    typedef TypeC C;
    static constexpr Kernel KERNEL = WHICH;
    static constexpr bool WIDE = WHICH != KERNEL_PLAIN, INDEXED = INDEX;
    static constexpr bool EIGHT = sizeof(TypeA) == 1;
    static constexpr bool NARROW = false;   /* results have 8 bits: a policy may say so */
    static constexpr bool MIRRORED = false; /* so are results that are equal to their transpose */
};

/* An operand of a product. RUNS: memory runs along k. */
template <typename T, bool RUNS, bool INDEXED, bool PAIRED> struct Side {
    typedef T Type;
    static constexpr bool ALONG = RUNS;      /* memory runs along k */
    static constexpr bool GATHERS = INDEXED; /* an index names its rows */
    static constexpr bool PAIRS = PAIRED;    /* rows of two halves in turn: View.pair */
};

/* A tensor of f32, bf16 or 8-bit numbers as `deep` consecutive matrices of `rows` x `cols`: what a copy engine
 * needs to know of an operand. */
typedef struct TensorShape {
    const void *data;
    int64_t cols, rows, deep;
    Dtype dtype;
} TensorShape;

/* How two groups of warps divide tiles, for kernels that have such groups. The numbers are written
 * to files (choices.h), so they must not change. SHARED: both work on one tile with more columns
 * than rows. TALL: the same with more rows than columns. IN_TURN: each has its own tile. A policy's
 * Shapes are those that it may use; the first one is used if nothing was timed. */
typedef enum TileShape { TILE_SHARED = 1, TILE_TALL = 2, TILE_IN_TURN = 3 } TileShape;
template <TileShape... S> struct TileShapes {
};

/* Shapes for plain operands, or those for 8-bit ones, whose sums need twice the registers. FEW: only
 * the shape with 128 rows. */
template <bool EIGHT, bool FEW, typename PLAIN> struct ShapesOf {
    typedef PLAIN Type;
};
template <bool FEW, typename PLAIN> struct ShapesOf<true, FEW, PLAIN> {
    typedef typename std::conditional<FEW, TileShapes<TILE_SHARED>,
                                      TileShapes<TILE_SHARED, TILE_TALL>>::type Type;
};

/* The Row or Extra of a policy that needs none. */
struct Nothing {
};

/* n rounded up to whole blocks of scales. */
static __host__ __device__ __forceinline__ int64_t whole_blocks(int64_t n)
{
    return (n + OPERAND_BLOCK - 1) / OPERAND_BLOCK * OPERAND_BLOCK;
}

typedef struct Groups {
    const int32_t *offsets; /* NULL: all groups but the last have `each` rows, whole blocks */
    const int32_t *live;    /* how many rows exist, or NULL */
    const int32_t *pool;    /* the first row in a pool, or NULL */
    int64_t bound, experts, each;

    /* The first row of group e; for e == experts the end of the last group. Rows from `live` on do not exist. */
    __device__ __forceinline__ int64_t first(int64_t e) const
    {
        int64_t rows = live == NULL ? bound : min(bound, (int64_t)*live);
        return min(offsets == NULL ? e * each : (int64_t)offsets[e], rows);
    }
    /* The first column of group e in a transposed operand: operand_group_start. */
    __device__ __forceinline__ int64_t column(int64_t e) const
    {
        int64_t sum = 0;
        for (int64_t i = 0; i < e; i++) sum += whole_blocks(first(i + 1) - first(i));
        return sum;
    }
    /* The row of the pool that is routed row r. */
    __device__ __forceinline__ int64_t pooled(int64_t r) const
    {
        return pool == NULL ? r : r + *pool;
    }
} Groups;

static inline Groups groups_of(const Tensor *offsets, const Rows *rows, const int32_t *first)
{
    Groups g = {};
    g.offsets = (const int32_t *)offsets->data;
    g.live = rows->device;
    g.pool = first;
    g.bound = rows->bound;
    g.experts = tensor_elems(offsets) - 1;
    g.each = whole_blocks((g.bound + g.experts - 1) / g.experts);
    return g;
}

/* What a block works on: the routed rows [first, first + rows) of an expert, which begin at row
 * `pooled` of a pool; the columns of the result from `col` on; for sums also the rows of the result
 * from `row` on, and the first column of the expert's terms in 8-bit operands. */
typedef struct GroupTile {
    int64_t expert, first, pooled, rows, row, col, column;
} GroupTile;

/* The scales of an 8-bit operand. Those of a row of data lie one behind the other. */
typedef struct Scales {
    const float *at, *end;   /* NULL: the operand is plain */
    int64_t data_rows, rows; /* of a matrix: rows of data, rows of scales */
    int64_t cols, height;    /* columns of scales; rows of data that share one */
    bool along;              /* each 128 terms have a scale of their own; else all have one */
    bool by_group;           /* the columns are those of groups */

    /* The first scale of a row of data, for terms of this group. */
    __device__ __forceinline__ const float *of_row(int64_t row, int64_t group) const
    {
        int64_t matrix = row / data_rows, block = (row - matrix * data_rows) / height;
        return at + (matrix * rows + block) * cols + (by_group ? group : 0);
    }
} Scales;

static inline Scales scales_of(const Operand &q)
{
    Scales s = {};
    if (q.kind == OPERAND_PLAIN) return s;
    OperandGrid g = operand_grid_of(&q);
    s.at = (const float *)q.scale.data;
    s.end = s.at + tensor_elems(&q.scale);
    s.data_rows = g.n > 0 ? g.n : 1;
    s.rows = g.rows;
    s.cols = tensor_cols(&q.scale);
    s.height = g.height;
    s.along = q.kind == OPERAND_1X128 || q.kind == OPERAND_128X128;
    s.by_group = q.kind == OPERAND_ROW && s.cols > 1;
    return s;
}

/* An 8-bit operand that is written, with scales of 1 x 128. */
typedef struct NarrowRows {
    uint8_t *data;
    float *scale;
    int64_t width, blocks; /* of a row, in elements and in scales */

    /* The scale of the block that begins at this column. */
    __device__ __forceinline__ float *scale_at(int64_t row, int64_t column) const
    {
        return scale + row * blocks + column / OPERAND_BLOCK;
    }
} NarrowRows;

static inline NarrowRows narrow_rows(const Operand &q)
{
    return { (uint8_t *)q.data.data, (float *)q.scale.data, tensor_cols(&q.data),
             tensor_cols(&q.scale) };
}

/* Where a View stands in an 8-bit operand: its first row, the block of scales of its first column,
 * and the group of its terms. */
typedef struct ScalesAt {
    Scales scales;
    int64_t row, block, group;
    bool e5m2;
} ScalesAt;

/* An operand of a tile. Row i of memory is a row of the tile (ALONG) or a term of the sum. */
template <typename T> struct View {
    const T *data;
    int64_t ld;           /* elements between rows of memory */
    const int32_t *index; /* row i is row index[i] of data; NULL: i itself */
    int64_t rows, cols;   /* elements beyond them count as 0 */
    int64_t pair; /* nonzero: groups of 8 rows alternate between two halves, `pair` rows apart */
    ScalesAt of;  /* 8-bit operands */

    /* The row of memory of row i; -1: none. */
    __device__ __forceinline__ int64_t row(int64_t i) const
    {
        if (pair != 0) {
            int64_t one = i / 16 * 8 + i % 8;
            return one < rows ? one + i / 8 % 2 * pair : -1;
        }
        if (i >= rows) return -1;
        return index != NULL ? (int64_t)index[i] : i;
    }
    /* An element in f32, without its scale. */
    __device__ __forceinline__ float value(int64_t row_of_memory, int64_t col) const
    {
        const T &v = data[row_of_memory * ld + col];
        if constexpr (std::is_same<T, EightBit>::value)
            return of.e5m2 ? E5M2::widen(v.code) : E4M3::widen(v.code);
        else
            return to_f32(v);
    }
    /* Where the scales of a row of memory begin, for the View's terms. */
    __device__ __forceinline__ const float *scales(int64_t row_of_memory) const
    {
        const float *first = of.scales.of_row(of.row + row_of_memory, of.group);
        return first + (of.scales.along ? of.block : 0);
    }
    /* The scale of row i for terms [k, k + 128); 0: there is no such row. */
    __device__ __forceinline__ float scale(int64_t i, int64_t k) const
    {
        int64_t r = row(i);
        return r < 0 ? 0.0f : scales(r)[of.scales.along ? k / OPERAND_BLOCK : 0];
    }
};

/* An operand as kernels see it. */
template <typename T> struct Source {
    const T *data;
    int64_t ld;
    Scales scales;
    bool e5m2;

    explicit Source(const Operand &q)
        : data((const T *)q.data.data), ld(tensor_cols(&q.data)), scales(scales_of(q)),
          e5m2(q.data.dtype == DTYPE_E5M2)
    {
    }

    /* The View from row `first` and column `col` on. group: of its terms, where scales need it. */
    __device__ __forceinline__ View<T> view(int64_t first, int64_t col, const int32_t *index,
                                            int64_t rows, int64_t cols, int64_t pair,
                                            int64_t group = 0) const
    {
        return { data + first * ld + col,
                 ld,
                 index,
                 rows,
                 cols,
                 pair,
                 { scales, first, col / OPERAND_BLOCK, group, e5m2 } };
    }
};

/* Finds the tile of rows with this number; false: there is none. All threads of a block must call it. */
static __device__ bool find_rows(const Groups &g, int64_t number, GroupTile *t)
{
    __shared__ GroupTile found;
    if (threadIdx.x == 0) found = {};
    __syncthreads();
    for (int64_t e = threadIdx.x; e < g.experts; e += blockDim.x) {
        int64_t begin = g.first(e), end = g.first(e + 1);
        int64_t i = number - (begin / TILE + e), first = begin + i * TILE;
        if (i < 0 || first >= end) continue;
        found.expert = e;
        found.first = first;
        found.pooled = g.pooled(first);
        found.rows = min((int64_t)TILE, end - first);
    }
    __syncthreads();
    t->expert = found.expert;
    t->first = found.first;
    t->pooled = found.pooled;
    t->rows = found.rows;
    t->row = 0;
    return t->rows > 0;
}

/* Is a tile of rows above the diagonal of its group, so that another tile's transpose fills it? */
template <typename P>
static __device__ __forceinline__ bool tile_mirrors(const P &p, const GroupTile &t)
{
    return P::MIRRORED && t.col > t.first - p.groups.first(t.expert);
}

/* The tile of block `number`; false: the block has nothing to do. */
template <typename P> static __device__ bool find_tile(const P &p, GroupTile *t)
{
    int64_t number = blockIdx.x, across = (p.n + TILE - 1) / TILE;
    t->col = number % across * TILE;
    number /= across;
    if constexpr (P::SUMS) {
        int64_t down = (p.m + TILE - 1) / TILE;
        t->row = number % down * TILE;
        t->expert = number / down;
        t->first = p.groups.first(t->expert);
        t->pooled = p.groups.pooled(t->first);
        t->rows = p.groups.first(t->expert + 1) - t->first;
        t->column = P::EIGHT ? p.groups.column(t->expert) : 0;
        return t->rows > 0;
    } else {
        return find_rows(p.groups, number, t) && !tile_mirrors(p, *t);
    }
}

/* A number of blocks that covers all tiles, for any groups. */
template <typename P> static inline int64_t blocks_of(const P &p)
{
    int64_t across = (p.n + TILE - 1) / TILE, down = (p.m + TILE - 1) / TILE;
    if (P::SUMS) return p.groups.experts * down * across;
    return (p.groups.bound / TILE + p.groups.experts) * across;
}

/* Partial sums of a row's `dot` that a tile leaves: one for each thread on the row. */
template <int THREADS> constexpr int PARTS = THREADS / HALF;

/* Passes half a tile of results, HALF rows of PITCH floats in shared memory, to `store`.
 * Neighbouring threads have neighbouring rows, and each walks its share of the columns. A share is
 * at least one line of memory, and the threads of a warp use different banks. */
template <typename P, int THREADS>
static __device__ __forceinline__ void results_store(const P &p, const GroupTile &t,
                                                     const float *room, int half)
{
    constexpr int PART = TILE / PARTS<THREADS>;
    int in_half = (int)threadIdx.x % HALF, part = (int)threadIdx.x / HALF;
    int64_t i = half * HALF + in_half;
    if (i >= (P::SUMS ? p.m - t.row : t.rows)) return;
    const float *from = room + in_half * PITCH;
    typename P::Row row = p.row(t, i);
    float dot = 0;
    for (int j = part * PART; j < (part + 1) * PART; j += COLUMNS) {
        float v[COLUMNS];
#pragma unroll
        for (int k = 0; k < COLUMNS; k += 4) {
            float4 four = *reinterpret_cast<const float4 *>(from + j + k);
            v[k] = four.x;
            v[k + 1] = four.y;
            v[k + 2] = four.z;
            v[k + 3] = four.w;
        }
        dot += p.store(t, i, j, v, p.template extra<COLUMNS>(t, i, j), row);
    }
    if constexpr (P::DOTS) p.dot(t, i, t.col / TILE * PARTS<THREADS> + part, dot);
}

/* Are N elements of a row one pack, so that either all of them exist or none? Rows of WIDE policies
 * consist of whole packs of bf16. */
template <bool WIDE, int N> constexpr bool WHOLE = WIDE &&N == PACK<Bf16>;

/* Reads N neighbouring elements of a row from `at` on, of which n exist; the others are 0. */
template <bool WIDE, typename T, int N>
static __device__ __forceinline__ void get(const T *at, int64_t n, T (&v)[N])
{
    if (n >= N) {
        elements_get<false, WIDE>(at, v);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = k < n ? at[k] : from_f32<T>(0);
    }
}

/* N elements of a row that are being loaded into registers. A pack of bf16 is unpacked only when it
 * is used: unpacking it earlier would wait for the load. */
template <bool WIDE, typename T, int N> struct Coming {
    static constexpr bool PACKED = WHOLE<WIDE, N> && std::is_same<T, Bf16>::value;
    typename std::conditional<PACKED, uint4, T[N]>::type v;

    __device__ __forceinline__ void ask(const T *at, int64_t n)
    {
        if constexpr (PACKED) {
            v = n > 0 ? read_shared_cache(reinterpret_cast<const uint4 *>(at))
                      : make_uint4(0, 0, 0, 0);
        } else {
            get<WIDE>(at, n, v);
        }
    }
    __device__ __forceinline__ float operator[](int k) const
    {
        if constexpr (PACKED) {
            uint32_t pair = k < 2 ? v.x : k < 4 ? v.y : k < 6 ? v.z : v.w;
            return __uint_as_float(k % 2 == 0 ? pair << 16 : pair & 0xFFFF0000u);
        } else {
            return to_f32(v[k]);
        }
    }
};

template <bool WIDE, typename T, int N>
static __device__ __forceinline__ void put(T *at, int64_t n, const float (&v)[N])
{
    if constexpr (WHOLE<WIDE, N>) {
        if (n > 0) store<WIDE>(at, v);
    } else if (n >= N) {
        store<WIDE>(at, v);
    } else {
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (k < n) at[k] = from_f32<T>(v[k]);
        }
    }
}

/* Plain multiply-adds. A thread has 8 x 8 sums, as four squares of 4 x 4 that are HALF apart. So its operands are whole
 * 16-byte words next to its neighbours' words. While one step is multiplied, the next one is loaded into registers. */

enum { PLAIN_THREADS = 256, DEPTH = 8, EACH = TILE * DEPTH / PLAIN_THREADS, SIDE = 16 };

typedef float PlainTile[DEPTH][PITCH];

/* The q-th element that a thread loads: (row of the tile, term). */
template <bool ALONG> static __device__ __forceinline__ int2 plain_place(int q)
{
    int e = q * PLAIN_THREADS + (int)threadIdx.x;
    return ALONG ? make_int2(e / DEPTH, e % DEPTH) : make_int2(e % TILE, e / TILE);
}

template <bool ALONG, typename T>
static __device__ __forceinline__ void plain_fetch(const View<T> &v, int64_t k0, float (&out)[EACH])
{
#pragma unroll
    for (int q = 0; q < EACH; q++) {
        int2 at = plain_place<ALONG>(q);
        int64_t row = v.row(ALONG ? at.x : k0 + at.y), col = ALONG ? k0 + at.y : at.x;
        out[q] = row >= 0 && col < v.cols ? v.value(row, col) : 0.0f;
    }
}

template <bool ALONG>
static __device__ __forceinline__ void plain_put(const float (&in)[EACH], PlainTile &tile)
{
#pragma unroll
    for (int q = 0; q < EACH; q++) {
        int2 at = plain_place<ALONG>(q);
        tile[at.y][at.x] = in[q];
    }
}

/* Loads four words at `at`, and four HALF words further on. */
static __device__ __forceinline__ void plain_eight(const float *at, float (&v)[8])
{
    float4 a = *reinterpret_cast<const float4 *>(at);
    float4 b = *reinterpret_cast<const float4 *>(at + HALF);
    v[0] = a.x;
    v[1] = a.y;
    v[2] = a.z;
    v[3] = a.w;
    v[4] = b.x;
    v[5] = b.y;
    v[6] = b.z;
    v[7] = b.w;
}

/* The first row and column of a thread's sums; the others follow as in plain_eight. */
static __device__ __forceinline__ int plain_row() { return (int)threadIdx.x / SIDE * 4; }
static __device__ __forceinline__ int plain_col() { return (int)threadIdx.x % SIDE * 4; }

static __device__ __forceinline__ void plain_step(const PlainTile &a, const PlainTile &b,
                                                  float (&sum)[8][8])
{
    int y = plain_row(), x = plain_col();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
        float left[8], right[8];
        plain_eight(&a[k][y], left);
        plain_eight(&b[k][x], right);
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) sum[i][j] += left[i] * right[j];
        }
    }
}

/* A thread's sums of plain operands. */
template <bool EIGHT> struct PlainSums {
    float sum[8][8] = {};

    template <typename VA, typename VB>
    __device__ __forceinline__ void promote(const VA &, const VB &, int64_t, int64_t)
    {
    }
    __device__ __forceinline__ const float *row(int i) const { return sum[i]; }
};

/* Those of 8-bit operands: of up to 128 terms, and of all terms before with their scales. */
template <> struct PlainSums<true> {
    float sum[8][8] = {}, total[8][8] = {};

    /* After the terms up to `end`: if they complete a block of scales, adds them to the total. */
    template <typename VA, typename VB>
    __device__ __forceinline__ void promote(const VA &a, const VB &b, int64_t end, int64_t depth)
    {
        if (end % OPERAND_BLOCK != 0 && end < depth) return;
        int64_t k = (min(end, depth) - 1) / OPERAND_BLOCK * OPERAND_BLOCK;
        float left[8], right[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            left[i] = a.scale(plain_row() + i / 4 * HALF + i % 4, k);
            right[i] = b.scale(plain_col() + i / 4 * HALF + i % 4, k);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
#pragma unroll
            for (int j = 0; j < 8; j++) {
                total[i][j] += sum[i][j] * (left[i] * right[j]);
                sum[i][j] = 0;
            }
        }
    }
    __device__ __forceinline__ const float *row(int i) const { return total[i]; }
};

template <typename P>
static __global__ __launch_bounds__(PLAIN_THREADS, P::EIGHT ? 1 : 2) void plain_kernel(const P p)
{
    __shared__ union {
        PlainTile tile[2][2]; /* [step in turn][operand] */
        float4 result[HALF][PITCH / 4];
    } room;
    GroupTile t;
    if (!find_tile(p, &t)) return;
    View<typename P::A> a = p.a(t);
    View<typename P::B> b = p.b(t);
    int64_t depth = p.depth(t);
    PlainSums<P::EIGHT> sums;
    float next_a[EACH], next_b[EACH];
    plain_fetch<P::SideA::ALONG>(a, 0, next_a);
    plain_fetch<P::SideB::ALONG>(b, 0, next_b);
    for (int64_t k = 0, turn = 0; k < depth; k += DEPTH, turn ^= 1) {
        plain_put<P::SideA::ALONG>(next_a, room.tile[turn][0]);
        plain_put<P::SideB::ALONG>(next_b, room.tile[turn][1]);
        __syncthreads(); /* all threads are done with the other pair, which is filled next */
        if (k + DEPTH < depth) {
            plain_fetch<P::SideA::ALONG>(a, k + DEPTH, next_a);
            plain_fetch<P::SideB::ALONG>(b, k + DEPTH, next_b);
        }
        plain_step(room.tile[turn][0], room.tile[turn][1], sums.sum);
        sums.promote(a, b, k + DEPTH, depth);
    }
    int y = plain_row(), x = plain_col();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *v = sums.row(half * 4 + i);
            float4 *row = room.result[y + i] + x / 4;
            row[0] = make_float4(v[0], v[1], v[2], v[3]);
            row[HALF / 4] = make_float4(v[4], v[5], v[6], v[7]);
        }
        __syncthreads();
        results_store<P, PLAIN_THREADS>(p, t, &room.result[0][0].x, half);
    }
}

/* The grid of a kernel that has a block for each tile. */
template <typename P> static inline Status tiles_grid(const char *op, const P &p, unsigned *out)
{
    int64_t blocks = blocks_of(p);
    if (blocks > INT32_MAX) {
        return FAIL(ERR_UNSUPPORTED, "%s: %lld tiles, a GPU takes %d at a time", op,
                    (long long)blocks, INT32_MAX);
    }
    *out = (unsigned)blocks;
    return OK;
}

template <typename P> static Status plain_launch(struct Exec *ex, const char *op, const P &p)
{
    unsigned blocks = 0;
    TRY(tiles_grid(op, p, &blocks));
    plain_kernel<P><<<blocks, PLAIN_THREADS, 0, exec_stream(ex)>>>(p);
    return kernel_status(op);
}

} // namespace grouped

#endif
