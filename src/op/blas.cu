#include "op/blas.cuh"

#include "op/gemm_plain.cuh"

#include <cublasLt.h>

#include <string.h>

enum {
    SETS = 256,
    WAYS = 4, /* plans of one hash value */
    PROPOSALS = 8,
    ALIGN = 16 /* bytes: the widest access; more says nothing about a kernel's fitness */
};

/* All that a choice may depend on; 64-bit fields only, so that no padding is compared. */
typedef struct Key {
    int64_t m, n, k, lda, ldb, ldc, kinds;
} Key;

typedef struct Plan {
    Key key;
    cublasLtMatmulAlgo_t algo;
    bool used, proposed; /* proposed: cuBLASLt has an algorithm */
} Plan;

/* Lives in the arena of cuda_blas_make. */
struct Blas {
    cublasLtHandle_t handle;
    Plan plan[SETS][WAYS];
    unsigned next[SETS]; /* the way that is forgotten next */
};

static Status blas_status(cublasStatus_t e, const char *what)
{
    if (e == CUBLAS_STATUS_SUCCESS) return OK;
    return FAIL(ERR_DEVICE, "cuBLASLt: %s: %s", what, cublasLtGetStatusString(e));
}

extern "C" Status cuda_blas_make(Arena *a, struct Blas **out)
{
    void *memory = NULL;
    TRY(arena_alloc_zero(a, sizeof(Blas), &memory));
    Blas *b = (Blas *)memory;
    TRY(blas_status(cublasLtCreate(&b->handle), "start"));
    *out = b;
    return OK;
}

extern "C" void cuda_blas_free(struct Blas *b)
{
    if (b == NULL || b->handle == NULL) return;
    cublasLtDestroy(b->handle);
    b->handle = NULL;
}

/* A product as cuBLASLt takes it. It counts by columns, and a row-major matrix read by columns is
 * its transpose, so C^T = op(B)^T op(A)^T is asked for: `left` is our B. */
typedef struct Call {
    const GemmArgs *g;
    const void *r;
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t left, right, c;
} Call;

static cudaDataType_t cuda_type(Dtype t) { return t == DTYPE_F32 ? CUDA_R_32F : CUDA_R_16BF; }

static Status call_make(const GemmArgs *g, const void *r, Call *out)
{
    cublasOperation_t left = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t right = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    uint64_t n = (uint64_t)g->n, m = (uint64_t)g->m, k = (uint64_t)g->k;
    Call c = {};
    c.g = g, c.r = r;
    TRY(blas_status(cublasLtMatmulDescInit(&c.op, CUBLAS_COMPUTE_32F, CUDA_R_32F), "product"));
    TRY(blas_status(
        cublasLtMatmulDescSetAttribute(&c.op, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof left),
        "left side"));
    TRY(blas_status(
        cublasLtMatmulDescSetAttribute(&c.op, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof right),
        "right side"));
    TRY(blas_status(cublasLtMatrixLayoutInit(&c.left, cuda_type(g->b_type), g->trans_b ? k : n,
                                             g->trans_b ? n : k, g->ldb),
                    "left layout"));
    TRY(blas_status(cublasLtMatrixLayoutInit(&c.right, cuda_type(g->a_type), g->trans_a ? m : k,
                                             g->trans_a ? k : m, g->lda),
                    "right layout"));
    TRY(blas_status(cublasLtMatrixLayoutInit(&c.c, cuda_type(g->c_type), n, m, g->ldc),
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

static Key key_of(const GemmArgs *g, const void *r)
{
    int64_t kinds = (int64_t)g->trans_a | (int64_t)g->trans_b << 1 | (int64_t)(g->beta != 0) << 2;
    kinds |= (int64_t)(g->a_type == DTYPE_F32) << 3 | (int64_t)(g->c_type == DTYPE_F32) << 4;
    const void *at[4] = { g->a, g->b, r, g->c };
    for (int i = 0; i < 4; i++) kinds |= (int64_t)alignment(at[i]) << (8 + 8 * i);
    return Key{ g->m, g->n, g->k, g->lda, g->ldb, g->ldc, kinds };
}

/* FNV-1a over the fields, folded. */
static unsigned set_of(const Key *key)
{
    const int64_t fields[] = { key->m, key->n, key->k, key->lda, key->ldb, key->ldc, key->kinds };
    uint64_t h = 0xCBF29CE484222325u;
    for (int64_t f : fields) h = (h ^ (uint64_t)f) * 0x100000001B3u;
    return (unsigned)((h ^ h >> 32) % SETS);
}

static Status limits_make(const GemmArgs *g, const void *r, cublasLtMatmulPreferenceOpaque_t *out)
{
    const size_t space = BLAS_WORKSPACE_BYTES;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE, left = alignment(g->b),
                   right = alignment(g->a), c = alignment(r), d = alignment(g->c);
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
    TRY(blas_status(cublasLtMatmulPreferenceInit(out), "limits"));
    for (const auto &row : rows) {
        TRY(blas_status(cublasLtMatmulPreferenceSetAttribute(out, row.name, row.value, row.bytes),
                        "limit"));
    }
    return OK;
}

/* Is k summed in one piece? An algorithm that does not know the question does not split. */
static bool whole_sums(const cublasLtMatmulAlgo_t *algo)
{
    int32_t parts = 0;
    uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                         sizeof parts, &written);
    cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                         sizeof scheme, &written);
    return parts <= 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static Status plan_choose(struct Blas *b, Call *call, Plan *out)
{
    cublasLtMatmulHeuristicResult_t proposal[PROPOSALS];
    cublasLtMatmulPreferenceOpaque_t limits;
    int n = 0;
    out->proposed = false;
    TRY(limits_make(call->g, call->r, &limits));
    cublasStatus_t e =
        cublasLtMatmulAlgoGetHeuristic(b->handle, &call->op, &call->left, &call->right, &call->c,
                                       &call->c, &limits, PROPOSALS, proposal, &n);
    if (e == CUBLAS_STATUS_NOT_SUPPORTED || e == CUBLAS_STATUS_INVALID_VALUE) return OK;
    TRY(blas_status(e, "choice of an algorithm"));
    for (int i = 0; i < n && !out->proposed; i++) {
        if (proposal[i].state != CUBLAS_STATUS_SUCCESS || !whole_sums(&proposal[i].algo)) continue;
        out->algo = proposal[i].algo;
        out->proposed = true;
    }
    return OK;
}

static Status plan_find(struct Blas *b, Call *call, const Plan **out)
{
    Key key = key_of(call->g, call->r);
    unsigned set = set_of(&key);
    Plan *plans = b->plan[set], *free_plan = NULL;
    for (int way = 0; way < WAYS && free_plan == NULL; way++) {
        if (!plans[way].used) {
            free_plan = &plans[way];
        } else if (memcmp(&plans[way].key, &key, sizeof key) == 0) {
            *out = &plans[way];
            return OK;
        }
    }
    if (free_plan == NULL) free_plan = &plans[b->next[set]++ % WAYS];
    free_plan->used = false;
    TRY(plan_choose(b, call, free_plan));
    free_plan->key = key, free_plan->used = true;
    *out = free_plan;
    return OK;
}

template <typename T, typename U>
static Status plain(struct Exec *ex, const GemmArgs *g, const void *r)
{
    gemm_plain::Args<T, U> p;
    p.a = { (const T *)g->a, g->trans_a ? 1 : g->lda, g->trans_a ? g->lda : 1 };
    p.b = { (const T *)g->b, g->trans_b ? g->ldb : 1, g->trans_b ? 1 : g->ldb };
    p.c = (U *)g->c, p.r = g->beta == 0 ? NULL : (const U *)r;
    p.m = g->m, p.n = g->n, p.k = g->k, p.ldc = g->ldc;
    return gemm_plain::run(ex, p);
}

static Status plain_run(struct Exec *ex, const GemmArgs *g, const void *r)
{
    if (g->a_type == DTYPE_F32 && g->c_type == DTYPE_F32) return plain<float, float>(ex, g, r);
    if (g->a_type == DTYPE_F32) return plain<float, Bf16>(ex, g, r);
    if (g->c_type == DTYPE_F32) return plain<Bf16, float>(ex, g, r);
    return plain<Bf16, Bf16>(ex, g, r);
}

extern "C" Status blas_run(struct Exec *ex, const GemmArgs *g, const void *r, void *workspace)
{
    struct Blas *b = exec_blas(ex);
    const Plan *plan = NULL;
    const float one = 1;
    Call call;
    if (g->m == 0 || g->n == 0) return OK;
    if (r == NULL) r = g->c;
    /* cuBLASLt makes no bf16 from f32 */
    if (g->k == 0 || (g->a_type == DTYPE_F32 && g->c_type != DTYPE_F32)) return plain_run(ex, g, r);
    TRY(call_make(g, r, &call));
    TRY(plan_find(b, &call, &plan));
    if (!plan->proposed) return plain_run(ex, g, r);
    return blas_status(cublasLtMatmul(b->handle, &call.op, &one, g->b, &call.left, g->a,
                                      &call.right, &g->beta, r, &call.c, g->c, &call.c, &plan->algo,
                                      workspace, BLAS_WORKSPACE_BYTES, exec_stream(ex)),
                       "product");
}
