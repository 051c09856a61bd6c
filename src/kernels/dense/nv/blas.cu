/*
 * blas: C = op(A) op(B) + beta C on the GPU by cuBLASLt, row-major, in f32 or bf16 with f32 sums (no
 * TF32). Used inside ops only.
 *
 * The algorithm of a shape is chosen once and kept (kernels/dense/product_algo.h). Candidates are the library's
 * proposals that neither split k nor use atomics.
 *
 * Without tuning a call waits for nothing and allocates nothing: its descriptors are on the stack,
 * its scratch is the caller's DENSE_WORKSPACE bytes.
 */
#include "kernels/core/kernel.cuh"
#include "kernels/core/nv/libraries.cuh"

extern "C" {
#include "engine/host/library.h"
#include "kernels/dense/product_algo.h"
}

#include <cublasLt.h>
#include <cublas_api.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The functions of cuBLASLt that are called here. Each rank has its own table; the library is loaded once a process. */
#define CUBLASLT_CALLS(CALL)                                                                       \
    CALL(Create)                                                                                   \
    CALL(Destroy)                                                                                  \
    CALL(GetStatusString)                                                                          \
    CALL(GetVersion)                                                                               \
    CALL(Matmul)                                                                                   \
    CALL(MatmulDescInit_internal)                                                                  \
    CALL(MatmulDescSetAttribute)                                                                   \
    CALL(MatrixLayoutInit_internal)                                                                \
    CALL(MatrixLayoutSetAttribute)                                                                 \
    CALL(MatmulPreferenceInit_internal)                                                            \
    CALL(MatmulPreferenceSetAttribute)                                                             \
    CALL(MatmulAlgoConfigGetAttribute)                                                             \
    CALL(MatmulAlgoGetHeuristic)                                                                   \
    CALL(MatmulAlgoCheck)

struct CublasLt {
#define CALL(name) decltype(&cublasLt##name) name;
    CUBLASLT_CALLS(CALL)
#undef CALL
};

/* Lives in the arena of blas_open. */
struct Blas {
    CublasLt lt;
    cublasLtHandle_t handle;
    Tuner tuner;
};

static Blas *blas_of(struct Exec *ex) { return (Blas *)exec_library(ex, LIBRARY_PRODUCTS); }

static_assert(sizeof(cublasLtMatmulAlgo_t) == CHOICE_WORDS * sizeof(uint64_t),
              "an algorithm is kept as words");

#define TEXT_OF(x)  TEXT_OF_(x)
#define TEXT_OF_(x) #x

static Status cublaslt_open(CublasLt *lt)
{
    static const LibraryCall calls[] = {
#define CALL(name) { "cublasLt" #name, NULL, offsetof(CublasLt, name), false },
        CUBLASLT_CALLS(CALL)
#undef CALL
    };
    static const Library library = { "libcublasLt.so." TEXT_OF(CUBLAS_VER_MAJOR),
                                     "matrix products",
                                     "install CUDA " TEXT_OF(
                                         CUBLAS_VER_MAJOR) " or set LD_LIBRARY_PATH",
                                     calls,
                                     sizeof calls / sizeof *calls,
                                     0,
                                     NULL };
    void *file = NULL;
    return library_open(&library, lt, &file);
}

static Status blas_status(const CublasLt *lt, cublasStatus_t e, const char *what)
{
    if (e == CUBLAS_STATUS_SUCCESS) return OK;
    return FAIL(ERR_DEVICE, "cuBLASLt: %s: %s", what, lt->GetStatusString(e));
}

/* The name of the machine for which choices are valid: GPU, driver, libraries. */
static Status machine_name(const CublasLt *lt, char out[CHOICE_MACHINE_MAX])
{
    int device = 0, driver = 0;
    cudaDeviceProp p;
    TRY(gpu_status(cudaGetDevice(&device), "GPU"));
    TRY(gpu_status(cudaGetDeviceProperties(&p, device), "GPU properties"));
    TRY(gpu_status(cudaDriverGetVersion(&driver), "driver version"));
    snprintf(out, CHOICE_MACHINE_MAX, "%.112s, driver for CUDA %d.%d, cuBLASLt %zu", p.name,
             driver / 1000, driver % 1000 / 10, lt->GetVersion());
    return OK;
}

extern "C" Status blas_open(struct Exec *, Arena *a, void **out)
{
    char machine[CHOICE_MACHINE_MAX];
    Blas *b = NULL;
    TRY(ARENA_ZEROED(a, 1, &b));
    TRY(cublaslt_open(&b->lt));
    TRY(machine_name(&b->lt, machine));
    TRY(choices_make(a, machine, &b->tuner.choices));
    TRY(blas_status(&b->lt, b->lt.Create(&b->handle), "start"));
    *out = b;
    return OK;
}

extern "C" void blas_close(void *blas)
{
    Blas *b = (Blas *)blas;
    (void)tuner_switch(&b->tuner, false);
    b->lt.Destroy(b->handle);
}

extern "C" struct Tuner *blas_tuner(void *blas) { return &((Blas *)blas)->tuner; }

/* A product as cuBLASLt's arguments. cuBLASLt is column-major, and a row-major matrix read by
 * columns is its transpose. So the call is C^T = op(B)^T op(A)^T, and `left` is our B. */
typedef struct Call : ProductCall {
    const CublasLt *lt;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t left, right, c;
    int64_t count; /* of equal products (DenseCall) */
} Call;

static Call *call_of(ProductCall *call) { return static_cast<Call *>(call); }

/* Callers pass f32, bf16 and, with scales, e4m3 and e5m2. */
static cudaDataType_t cuda_type(Dtype t)
{
    if (t == DTYPE_E4M3) return CUDA_R_8F_E4M3;
    if (t == DTYPE_E5M2) return CUDA_R_8F_E5M2;
    return t == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF;
}

/* op(X) is (rows, cols). */
static Status operand_make(Call *c, cublasLtMatrixLayoutOpaque_t *layout, const GemmOperand &x,
                           int64_t rows, int64_t cols, cublasLtMatmulDescAttributes_t transposes,
                           const char *what)
{
    cublasOperation_t op = x.turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    /* Rows and columns of the matrix in memory as cuBLASLt counts them: our rows are its columns. */
    uint64_t high = (uint64_t)(x.turned ? rows : cols), wide = (uint64_t)(x.turned ? cols : rows);
    TRY(blas_status(c->lt, c->lt->MatmulDescSetAttribute(&c->op, transposes, &op, sizeof op),
                    what));
    return blas_status(c->lt,
                       c->lt->MatrixLayoutInit_internal(layout, sizeof *layout, cuda_type(x.type),
                                                        high, wide, x.ld),
                       what);
}

/* Descriptors are filled in place, so a call takes no memory from the heap. */
static Status call_make(Call *c)
{
    const GemmArgs *g = c->g;
    TRY(blas_status(
        c->lt, c->lt->MatmulDescInit_internal(&c->op, sizeof c->op, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "product"));
    TRY(operand_make(c, &c->left, g->b, g->k, g->n, CUBLASLT_MATMUL_DESC_TRANSA, "left side"));
    TRY(operand_make(c, &c->right, g->a, g->m, g->k, CUBLASLT_MATMUL_DESC_TRANSB, "right side"));
    return blas_status(c->lt,
                       c->lt->MatrixLayoutInit_internal(&c->c, sizeof c->c, cuda_type(g->c.type),
                                                        (uint64_t)g->n, (uint64_t)g->m, g->c.ld),
                       "layout of the result");
}

/* What the library may propose: algorithms that fit the workspace, sum k in one piece, and need no
 * more alignment than these addresses have. A and B of the library are our B and A. */
static Status limits_make(const Call *call, cublasLtMatmulPreferenceOpaque_t *out)
{
    const CublasLt *lt = call->lt;
    const GemmArgs *g = call->g;
    const size_t space = DENSE_WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE, left = product_alignment(g->b.at),
                   right = product_alignment(g->a.at), c = product_alignment(call->r),
                   d = product_alignment(g->c.at);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } rows[] = {
        { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space },
        { CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &left, sizeof left },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &right, sizeof right },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c },
        { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d },
    };
    TRY(blas_status(lt, lt->MatmulPreferenceInit_internal(out, sizeof *out), "limits"));
    for (const auto &row : rows) {
        TRY(blas_status(lt, lt->MatmulPreferenceSetAttribute(out, row.name, row.value, row.bytes),
                        "limit"));
    }
    return OK;
}

/* Is k summed in one piece? An algorithm without this attribute does not split k. */
static bool whole_sums(const CublasLt *lt, const cublasLtMatmulAlgo_t *algo)
{
    int32_t parts = 0;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t written = 0;
    lt->MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts,
                                     &written);
    lt->MatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                     sizeof scheme, &written);
    return (parts == 0 || parts == 1) && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static cublasLtMatmulAlgo_t algo_of(const uint64_t *words)
{
    cublasLtMatmulAlgo_t algo;
    memcpy(algo.data, words, sizeof algo.data);
    return algo;
}

static Status cublaslt_propose(ProductCall *product, ProductAlgos *out)
{
    Call *call = call_of(product);
    cublasLtMatmulHeuristicResult_t proposal[TUNER_VARIANTS];
    cublasLtMatmulPreferenceOpaque_t limits;
    int n = 0;
    TRY(limits_make(call, &limits));
    cublasStatus_t e = call->lt->MatmulAlgoGetHeuristic(
        blas_of(call->ex)->handle, &call->op, &call->left, &call->right, &call->c, &call->c,
        &limits, TUNER_VARIANTS, proposal, &n);
    /* Both say that the library has nothing for this product. That is no failure: our own kernel runs. */
    if (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE) return OK;
    TRY(blas_status(call->lt, e, "choice of an algorithm"));
    for (int i = 0; i < n; i++) {
        const cublasLtMatmulAlgo_t *algo = &proposal[i].algo;
        if (proposal[i].state != CUBLAS_STATUS_SUCCESS || !whole_sums(call->lt, algo)) continue;
        memcpy(out->algo[out->n++], algo->data, sizeof algo->data);
    }
    return OK;
}

static bool cublaslt_fits(ProductCall *product, const uint64_t *words)
{
    Call *call = call_of(product);
    cublasLtMatmulHeuristicResult_t result = {};
    cublasLtMatmulAlgo_t algo = algo_of(words);
    if (!whole_sums(call->lt, &algo)) return false;
    cublasStatus_t e = call->lt->MatmulAlgoCheck(blas_of(call->ex)->handle, &call->op, &call->left,
                                                 &call->right, &call->c, &call->c, &algo, &result);
    return e == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= DENSE_WORKSPACE;
}

static Status repeat(const Call *call, cublasLtMatrixLayoutOpaque_t *layout, int64_t stride)
{
    const CublasLt *lt = call->lt;
    const int32_t count = (int32_t)call->count;
    cublasStatus_t e = lt->MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                    &count, sizeof count);
    if (e == CUBLAS_STATUS_SUCCESS)
        e = lt->MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &stride, sizeof stride);
    return blas_status(lt, e, "several products");
}

/* From now on the call runs all of its products at once. */
static Status call_repeat(Call *call)
{
    if (call->count == 1) return OK;
    TRY(repeat(call, &call->left, product_b_elems(call->g)));
    TRY(repeat(call, &call->right, product_a_elems(call->g)));
    return repeat(call, &call->c, product_c_elems(call->g));
}

/* The only place that launches a dense product, for timing and for real. */
static Status cublaslt_launch(ProductCall *product, const uint64_t *words)
{
    const float one = 1;
    Call *call = call_of(product);
    const GemmArgs *g = call->g;
    cublasLtMatmulAlgo_t algo = algo_of(words);
    TRY(call_repeat(call));
    return blas_status(call->lt,
                       call->lt->Matmul(blas_of(call->ex)->handle, &call->op, &one, g->b.at,
                                        &call->left, g->a.at, &call->right, &g->beta, call->r,
                                        &call->c, g->c.at, &call->c, &algo, call->workspace,
                                        DENSE_WORKSPACE, exec_stream(call->ex)),
                       "product");
}

static const ProductLibrary cublaslt = { "cuBLASLt", cublaslt_propose, cublaslt_fits,
                                         cublaslt_launch };

static Call call_of_args(struct Exec *ex, const GemmArgs *g, const void *r, void *workspace)
{
    Call c = {};
    c.library = &cublaslt;
    c.ex = ex;
    c.g = g;
    c.r = r;
    c.workspace = workspace;
    c.lt = &blas_of(ex)->lt;
    c.count = 1;
    return c;
}

/* ERR_UNSUPPORTED: cuBLASLt has no algorithm for the product, or not for several at once. The
 * proposals are those for one product, so that bits do not depend on the number. While tuning, all
 * products are timed together: one alone may leave half of the GPU idle. */
extern "C" Status dense_cublaslt(struct Exec *ex, const void *args)
{
    const DenseCall *d = (const DenseCall *)args;
    uint64_t algo[CHOICE_WORDS];
    Call call = call_of_args(ex, d->g, d->r, d->workspace);
    TRY(call_make(&call));
    call.count = d->count;
    if (call.count == 1) return product_algo_run(&call);
    TRY(product_algo_find(&call, algo));
    TRY(call_repeat(&call));
    if (cublaslt_fits(&call, algo)) return cublaslt_launch(&call, algo);
    return FAIL(ERR_UNSUPPORTED, "cuBLASLt runs its algorithm for one product at a time");
}

/* ---- 8-bit operands ---- */

/* cuBLASLt reads scales of 1 x 128 as columns: those of all rows for one block of k lie together.
 * Rows of scales of 128 x 128 begin at multiples of four. Ours are rows without gaps. */
enum { SCALES = 4, TURN = 32 };

/* to[c][r] = from[r][c] */
static __global__ void scales_turn_kernel(const float *from, float *to, int64_t rows, int64_t cols)
{
    __shared__ float tile[TURN][TURN + 1];
    int64_t across = (cols + TURN - 1) / TURN;
    int64_t r0 = blockIdx.x / across * TURN, c0 = blockIdx.x % across * TURN;
    int x = (int)threadIdx.x % TURN;
    for (int y = (int)threadIdx.x / TURN; y < TURN; y += (int)blockDim.x / TURN)
        if (r0 + y < rows && c0 + x < cols) tile[y][x] = from[(r0 + y) * cols + c0 + x];
    __syncthreads();
    for (int y = (int)threadIdx.x / TURN; y < TURN; y += (int)blockDim.x / TURN)
        if (c0 + y < cols && r0 + x < rows) to[(c0 + y) * rows + r0 + x] = tile[x][y];
}

/* to[r][c] = from[r][c], where rows of `to` have `wide` elements. */
static __global__ void scales_spread_kernel(const float *from, float *to, int64_t rows,
                                            int64_t cols, int64_t wide)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * wide) to[i] = i % wide < cols ? from[i / wide * cols + i % wide] : 0;
}

/* An operand's scales as the library reads them: where they are, and whether they are copied. */
typedef struct Scales {
    const float *from;
    float *at;
    int64_t rows, cols;
    cublasLtMatmulMatrixScale_t mode;
} Scales;

static cublasLtMatmulMatrixScale_t mode_of(OperandKind kind)
{
    if (kind == OPERAND_ROW) return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    if (kind == OPERAND_1X128) return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    if (kind == OPERAND_128X128) return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

static Scales scales_of(const Operand *q, void *room)
{
    int64_t cols = tensor_cols(&q->scale), rows = tensor_elems(&q->scale) / cols;
    Scales s = { (const float *)q->scale.data, (float *)room, rows, cols, mode_of(q->kind) };
    bool as_is = scaled_scales_bytes(q) == 0 || (q->kind == OPERAND_1X128 && cols == 1) ||
                 (q->kind == OPERAND_128X128 && cols % SCALES == 0);
    if (as_is && (uintptr_t)s.from % PRODUCT_ALIGN == 0) s.at = (float *)q->scale.data;
    return s;
}

static Status scales_place(struct Exec *ex, const Scales *s)
{
    enum { THREADS = 256 };
    const int64_t wide = (s->cols + SCALES - 1) / SCALES * SCALES;
    if (s->at == s->from) return OK;
    if (s->mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F) {
        int64_t tiles = ((s->rows + TURN - 1) / TURN) * ((s->cols + TURN - 1) / TURN);
        scales_turn_kernel<<<(unsigned)tiles, THREADS, 0, exec_stream(ex)>>>(s->from, s->at,
                                                                             s->rows, s->cols);
    } else {
        scales_spread_kernel<<<grid_of(s->rows * wide, THREADS), THREADS, 0, exec_stream(ex)>>>(
            s->from, s->at, s->rows, s->cols, wide);
    }
    return kernel_status("scales");
}

static Status scales_copy(struct Exec *ex, const Scales *a, const Scales *b)
{
    TRY(scales_place(ex, a));
    return scales_place(ex, b);
}

static Status scales_set(Call *c, const Scales *s, cublasLtMatmulDescAttributes_t mode,
                         cublasLtMatmulDescAttributes_t pointer)
{
    const int32_t which = s->mode;
    TRY(blas_status(c->lt, c->lt->MatmulDescSetAttribute(&c->op, mode, &which, sizeof which),
                    "kind of scales"));
    return blas_status(c->lt, c->lt->MatmulDescSetAttribute(&c->op, pointer, &s->at, sizeof s->at),
                       "scales");
}

/* A product of 8-bit operands as a product of gemm's. Both have k along their rows. */
static GemmArgs scaled_gemm(const ScaledArgs *s)
{
    const Tensor *a = &s->a.q->data, *b = &s->b.q->data;
    return GemmArgs{ s->m,
                     s->n,
                     s->k,
                     { a->data, a->dtype, s->k, false },
                     { b->data, b->dtype, s->k, true },
                     s->c,
                     s->r == NULL ? 0.0f : 1.0f };
}

/* The library's A is our B. The sums stay in f32 (FAST_ACCUM is off). While tuning, products run
 * before their algorithm is chosen, so they need their scales before. */
extern "C" Status scaled_cublaslt(struct Exec *ex, const void *args)
{
    const ScaledCall *d = (const ScaledCall *)args;
    const ScaledArgs *s = d->s;
    const GemmArgs g = scaled_gemm(s);
    char *room = (char *)d->workspace + DENSE_WORKSPACE;
    Scales a = scales_of(s->a.q, room), b = scales_of(s->b.q, room + scaled_scales_bytes(s->a.q));
    uint64_t algo[CHOICE_WORDS];
    Call call = call_of_args(ex, &g, s->r == NULL ? s->c.at : s->r, d->workspace);
    TRY(call_make(&call));
    call.kinds = s->a.q->kind | s->b.q->kind << 4 | (int64_t)(g.a.type == DTYPE_E5M2) << 8 |
                 (int64_t)(g.b.type == DTYPE_E5M2) << 9;
    TRY(scales_set(&call, &b, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                   CUBLASLT_MATMUL_DESC_A_SCALE_POINTER));
    TRY(scales_set(&call, &a, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                   CUBLASLT_MATMUL_DESC_B_SCALE_POINTER));
    if (blas_of(ex)->tuner.on) TRY(scales_copy(ex, &a, &b));
    TRY(product_algo_find(&call, algo));
    if (!blas_of(ex)->tuner.on) TRY(scales_copy(ex, &a, &b));
    return cublaslt_launch(&call, algo);
}
