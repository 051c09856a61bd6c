/*
 * blas: C = op(A) op(B) + beta C on the GPU by cuBLASLt, row-major, in f32 or bf16 with f32 sums (no
 * TF32). Used inside ops only.
 *
 * The algorithm of a shape is chosen once and kept (op/choices.h). So a shape has one order of sums
 * for the life of the process, and of the run if its choices go into the checkpoint. Candidates are
 * the library's proposals that neither split k nor use atomics. Normally the first one is used;
 * while tuning (op/tuner.h), the fastest. If the library has no proposal, it refuses the product,
 * and the next kernel runs (product_kernels.c).
 *
 * Without tuning a call waits for nothing and allocates nothing: its descriptors are on the stack,
 * its scratch is the caller's DENSE_WORKSPACE bytes.
 */
#include "op/kernel.cuh"
#include "op/nv/libraries.cuh"

extern "C" {
#include "base/library.h"
#include "base/log.h"
#include "op/product.h"
#include "op/tuner.h"
}

#include <cublasLt.h>
#include <cublas_api.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum {
    PROPOSALS = TUNER_VARIANTS,
    ALIGN = 16 /* bytes of the widest access: a larger alignment makes no kernel better */
};

/* The functions of cuBLASLt that are called here. Each rank has its own table; the library is
 * loaded once a process. */
#define CUBLASLT_CALLS(CALL)                                                                       \
    CALL(Create)                                                                                   \
    CALL(Destroy)                                                                                  \
    CALL(GetStatusString)                                                                          \
    CALL(GetVersion)                                                                               \
    CALL(Matmul)                                                                                   \
    CALL(MatmulDescInit_internal)                                                                  \
    CALL(MatmulDescSetAttribute)                                                                   \
    CALL(MatrixLayoutInit_internal)                                                                \
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
static Status machine_name(const CublasLt *lt, size_t cudnn, char out[CHOICE_MACHINE_MAX])
{
    int device = 0, driver = 0;
    cudaDeviceProp p;
    TRY(gpu_status(cudaGetDevice(&device), "GPU"));
    TRY(gpu_status(cudaGetDeviceProperties(&p, device), "GPU properties"));
    TRY(gpu_status(cudaDriverGetVersion(&driver), "driver version"));
    snprintf(out, CHOICE_MACHINE_MAX, "%.112s, driver for CUDA %d.%d, cuBLASLt %zu, cuDNN %zu",
             p.name, driver / 1000, driver % 1000 / 10, lt->GetVersion(), cudnn);
    return OK;
}

/* A run's bits depend on cuDNN's version, too, so it is part of the machine's name. */
extern "C" Status blas_open(struct Exec *ex, Arena *a, void **out)
{
    char machine[CHOICE_MACHINE_MAX];
    Blas *b = NULL;
    TRY(ARENA_ZEROED(a, 1, &b));
    TRY(cublaslt_open(&b->lt));
    const void *attention = exec_library(ex, LIBRARY_ATTENTION);
    TRY(machine_name(&b->lt, attention_cudnn_version(attention), machine));
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
typedef struct Call {
    const CublasLt *lt;
    const GemmArgs *g;
    const void *r;
    void *workspace;
    int64_t kinds; /* of scales, for the key of a choice; 0: operands have none */
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t left, right, c;
} Call;

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
    /* Rows and columns of the matrix in memory as cuBLASLt counts them: our rows are its
     * columns. */
    uint64_t high = (uint64_t)(x.turned ? rows : cols), wide = (uint64_t)(x.turned ? cols : rows);
    TRY(blas_status(c->lt, c->lt->MatmulDescSetAttribute(&c->op, transposes, &op, sizeof op),
                    what));
    return blas_status(c->lt,
                       c->lt->MatrixLayoutInit_internal(layout, sizeof *layout, cuda_type(x.type),
                                                        high, wide, x.ld),
                       what);
}

/* `r` is what beta C reads: it has the layout of C, but may be other memory. Descriptors are filled
 * in place, so a call takes no memory from the heap. */
static Status call_make(const CublasLt *lt, const GemmArgs *g, const void *r, Call *out)
{
    Call c = {};
    c.lt = lt;
    c.g = g;
    c.r = r;
    TRY(blas_status(lt,
                    lt->MatmulDescInit_internal(&c.op, sizeof c.op, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                    "product"));
    TRY(operand_make(&c, &c.left, g->b, g->k, g->n, CUBLASLT_MATMUL_DESC_TRANSA, "left side"));
    TRY(operand_make(&c, &c.right, g->a, g->m, g->k, CUBLASLT_MATMUL_DESC_TRANSB, "right side"));
    TRY(blas_status(lt,
                    lt->MatrixLayoutInit_internal(&c.c, sizeof c.c, cuda_type(g->c.type),
                                                  (uint64_t)g->n, (uint64_t)g->m, g->c.ld),
                    "layout of the result"));
    *out = c;
    return OK;
}

/* The largest power of two up to ALIGN that divides an address. */
static uint32_t alignment(const void *at)
{
    uint32_t bytes = ALIGN;
    while ((uintptr_t)at % bytes != 0) bytes /= 2;
    return bytes;
}

/* Alignments are part of the key, because they decide which algorithms the library may propose.
 * Bits of `kinds`: 0 and 1 transpositions, 2 beta, 3 and 4 types, from 8 on the four alignments, from
 * 40 on scales and 8-bit types. */
static ChoiceKey key_of(const Call *call)
{
    const GemmArgs *g = call->g;
    const void *r = call->r;
    int64_t kinds = (int64_t)g->a.turned | (int64_t)g->b.turned << 1 | (int64_t)(g->beta != 0) << 2;
    kinds |= (int64_t)(g->a.type == DTYPE_F32) << 3 | (int64_t)(g->c.type == DTYPE_F32) << 4;
    const void *at[4] = { g->a.at, g->b.at, r, g->c.at };
    for (int i = 0; i < 4; i++) kinds |= (int64_t)alignment(at[i]) << (8 + 8 * i);
    kinds |= call->kinds << 40;
    return ChoiceKey{ g->m, g->n, g->k, g->a.ld, g->b.ld, g->c.ld, kinds };
}

/* What the library may propose: algorithms that fit the workspace, sum k in one piece, and need no
 * more alignment than these addresses have. A and B of the library are our B and A. */
static Status limits_make(const CublasLt *lt, const GemmArgs *g, const void *r,
                          cublasLtMatmulPreferenceOpaque_t *out)
{
    const size_t space = DENSE_WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE, left = alignment(g->b.at),
                   right = alignment(g->a.at), c = alignment(r), d = alignment(g->c.at);
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

/* The proposals that may be chosen, the library's best guess first. */
typedef struct Legal {
    cublasLtMatmulAlgo_t algo[PROPOSALS];
    int n;
} Legal;

static Status legal_find(struct Blas *b, Call *call, Legal *out)
{
    cublasLtMatmulHeuristicResult_t proposal[PROPOSALS];
    cublasLtMatmulPreferenceOpaque_t limits;
    int n = 0;
    out->n = 0;
    TRY(limits_make(call->lt, call->g, call->r, &limits));
    cublasStatus_t e =
        call->lt->MatmulAlgoGetHeuristic(b->handle, &call->op, &call->left, &call->right, &call->c,
                                         &call->c, &limits, PROPOSALS, proposal, &n);
    /* Both say that the library has nothing for this product. That is no failure: our own kernel
     * runs. */
    if (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE) return OK;
    TRY(blas_status(call->lt, e, "choice of an algorithm"));
    for (int i = 0; i < n; i++) {
        if (proposal[i].state != CUBLAS_STATUS_SUCCESS || !whole_sums(call->lt, &proposal[i].algo))
            continue;
        out->algo[out->n++] = proposal[i].algo;
    }
    return OK;
}

/* The only place that launches a dense product, for timing and for real. */
static cublasStatus_t launch(struct Exec *ex, Call *call, const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1;
    const GemmArgs *g = call->g;
    return call->lt->Matmul(blas_of(ex)->handle, &call->op, &one, g->b.at, &call->left, g->a.at,
                            &call->right, &g->beta, call->r, &call->c, g->c.at, &call->c, algo,
                            call->workspace, DENSE_WORKSPACE, exec_stream(ex));
}

/* Keeps the proposals that can be launched. A failed launch leaves an error in the runtime, which
 * is cleared. */
static void legal_launchable(struct Exec *ex, Call *call, Legal *legal)
{
    int kept = 0;
    for (int i = 0; i < legal->n; i++) {
        cublasStatus_t e = CUBLAS_STATUS_SUCCESS;
        for (int w = 0; w < TUNER_WARM_UP && e == CUBLAS_STATUS_SUCCESS; w++)
            e = launch(ex, call, &legal->algo[i]);
        if (e == CUBLAS_STATUS_SUCCESS)
            legal->algo[kept++] = legal->algo[i];
        else
            gpu_error_clear();
    }
    legal->n = kept;
}

/* A product that is timed with its legal proposals. */
typedef struct Timed {
    struct Exec *ex;
    Call *call;
    const Legal *legal;
} Timed;

static Status launch_proposal(void *self, int i)
{
    const Timed *t = (const Timed *)self;
    return blas_status(t->call->lt, launch(t->ex, t->call, &t->legal->algo[i]), "timed product");
}

/* Sets the kind and the algorithm of *out, not its key. timed: launches the product several times,
 * so a product that adds to C itself adds more than once. */
static Status choose(struct Exec *ex, Call *call, bool timed, Choice *out)
{
    struct Blas *b = blas_of(ex);
    float ms[PROPOSALS] = {};
    int best = 0;
    Legal legal;
    TRY(legal_find(b, call, &legal));
    if (timed) legal_launchable(ex, call, &legal);
    out->kind = legal.n == 0 ? CHOICE_PLAIN : timed ? CHOICE_TIMED : CHOICE_FIRST;
    if (out->kind == CHOICE_PLAIN) return OK;
    if (out->kind == CHOICE_TIMED) {
        Timed t = { ex, call, &legal };
        TRY(tuner_time(&b->tuner, exec_stream(ex), legal.n, launch_proposal, &t, ms));
        best = tuner_fastest(ms, legal.n);
        b->tuner.choices->unsaved = true;
    }
    memcpy(out->algo, legal.algo[best].data, sizeof out->algo);
    return OK;
}

static cublasLtMatmulAlgo_t algo_of(const Choice *c)
{
    cublasLtMatmulAlgo_t algo;
    memcpy(algo.data, c->algo, sizeof algo.data);
    return algo;
}

/* Can this product run the algorithm that came from a text? */
static bool fits(struct Blas *b, Call *call, const Choice *c)
{
    cublasLtMatmulHeuristicResult_t result = {};
    cublasLtMatmulAlgo_t algo = algo_of(c);
    if (c->kind == CHOICE_PLAIN) return true;
    if (!whole_sums(call->lt, &algo)) return false;
    cublasStatus_t e = call->lt->MatmulAlgoCheck(b->handle, &call->op, &call->left, &call->right,
                                                 &call->c, &call->c, &algo, &result);
    return e == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= DENSE_WORKSPACE;
}

/* Finds the table's choice for a product, or makes one. If the table is full, *out is `spare` with
 * the library's first proposal, which is the same every time. */
static Status choice_find(struct Exec *ex, Call *call, Choice *spare, Choice **out)
{
    struct Blas *b = blas_of(ex);
    ChoiceKey key = key_of(call);
    Choice *c = choices_find(b->tuner.choices, &key), made = {};
    if (c != NULL && c->unchecked && !fits(b, call, c)) {
        log_warn("the kept choice for a product of %lld x %lld x %lld does not fit it: another is "
                 "made",
                 (long long)key.m, (long long)key.n, (long long)key.k);
        /* The one case in which an entry changes: in this run no product has used it. */
        TRY(choose(ex, call, b->tuner.on, c));
    }
    if (c == NULL) {
        made.key = key;
        TRY(choose(ex, call, b->tuner.on && b->tuner.choices->n < CHOICES_MAX, &made));
        c = choices_add(b->tuner.choices, &key);
        if (c == NULL) c = spare;
        *c = made;
    }
    c->unchecked = false;
    *out = c;
    return OK;
}

/* ERR_UNSUPPORTED: cuBLASLt has no algorithm for the product. */
extern "C" Status dense_cublaslt(struct Exec *ex, const void *args)
{
    const DenseCall *d = (const DenseCall *)args;
    Choice spare, *choice = NULL;
    Call call;
    TRY(call_make(&blas_of(ex)->lt, d->g, d->r, &call));
    call.workspace = d->workspace;
    TRY(choice_find(ex, &call, &spare, &choice));
    if (choice->kind == CHOICE_PLAIN)
        return FAIL(ERR_UNSUPPORTED, "cuBLASLt proposes no algorithm for it");
    cublasLtMatmulAlgo_t algo = algo_of(choice);
    return blas_status(call.lt, launch(ex, &call, &algo), "product");
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
    if (as_is && (uintptr_t)s.from % ALIGN == 0) s.at = (float *)q->scale.data;
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
    Choice spare, *choice = NULL;
    Call call;
    TRY(call_make(&blas_of(ex)->lt, &g, s->r == NULL ? s->c.at : s->r, &call));
    call.workspace = d->workspace;
    call.kinds = s->a.q->kind | s->b.q->kind << 4 | (int64_t)(g.a.type == DTYPE_E5M2) << 8 |
                 (int64_t)(g.b.type == DTYPE_E5M2) << 9;
    TRY(scales_set(&call, &b, CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
                   CUBLASLT_MATMUL_DESC_A_SCALE_POINTER));
    TRY(scales_set(&call, &a, CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
                   CUBLASLT_MATMUL_DESC_B_SCALE_POINTER));
    if (blas_of(ex)->tuner.on) TRY(scales_copy(ex, &a, &b));
    TRY(choice_find(ex, &call, &spare, &choice));
    if (choice->kind == CHOICE_PLAIN)
        return FAIL(ERR_UNSUPPORTED, "cuBLASLt proposes no algorithm for it");
    if (!blas_of(ex)->tuner.on) TRY(scales_copy(ex, &a, &b));
    cublasLtMatmulAlgo_t algo = algo_of(choice);
    return blas_status(call.lt, launch(ex, &call, &algo), "product");
}
