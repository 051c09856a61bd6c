/*
 * blas: C = op(A) op(B) + beta C on the GPU by hipBLASLt, row-major, in f32 or bf16 with f32 sums (no
 * TF32). Used inside ops only.
 *
 * The algorithm of a shape is chosen once and kept (kernels/dense/product_algo.h). The library cannot be asked
 * whether an algorithm splits k, but parts of k need workspace, and it says how much. So candidates
 * are the proposals without workspace. Where all need some, as those of Stream-K, all are candidates;
 * whether their sums then repeat bit for bit was never seen on a GPU.
 *
 * Kernels of one handle share counters in device memory, so only one of them may run at a time.
 * Therefore each stream has a handle. A call makes its descriptors and frees them: they lie on the
 * heap of the library. Without tuning it waits for nothing, and its scratch is the caller's
 * DENSE_WORKSPACE bytes.
 */
#include "kernels-amd/hipblaslt.h"
#include "kernels-amd/libraries.cuh"
#include "kernels/core/kernel.cuh"

extern "C" {
#include "engine/host/library.h"
#include "kernels/dense/product_algo.h"
}

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* 0.8.0, of ROCm 6.2: earlier ones have other numbers for types of sums. */
enum { VERSION_LEAST = 800, WHY_BYTES = 1000, REVISION_BYTES = 256 };

struct HipblasLt {
#define CALL(name, arguments) hipblasStatus_t(*name) arguments;
    HIPBLASLT_CALLS(CALL)
#undef CALL
};

/* Lives in the arena of hipblaslt_open. */
struct Blas {
    HipblasLt lt;
    hipblasLtHandle_t handle[LANE_COUNT];
    LaunchStream stream[LANE_COUNT]; /* of the handle; NULL: of none yet */
    Tuner tuner;
    char why[WHY_BYTES]; /* there is no library; empty: it is there */
};

static Blas *blas_of(struct Exec *ex) { return (Blas *)exec_library(ex, LIBRARY_PRODUCTS); }

/* The library */

static const char *status_text(hipblasStatus_t e)
{
    static const char *const text[] = {
        "success",
        "it is not initialized",
        "no memory",
        "a value that it does not support",
        "mapping failed",
        "a kernel failed",
        "internal error",
        "not supported",
        "no code for this GPU",
    };
    return e < sizeof text / sizeof *text ? text[e] : "an error without a name";
}

static Status hipblaslt_status(hipblasStatus_t e, const char *what)
{
    if (e == HIPBLAS_STATUS_SUCCESS) return OK;
    return FAIL(ERR_DEVICE, "hipBLASLt: %s: %s (%d)", what, status_text(e), (int)e);
}

/* ROCm 7 and 6 differ in the library's name alone. */
static Status table_open(HipblasLt *lt)
{
    static const LibraryCall calls[] = {
#define CALL(name, arguments) { "hipblasLt" #name, NULL, offsetof(HipblasLt, name), false },
        HIPBLASLT_CALLS(CALL)
#undef CALL
    };
    Library library = { "libhipblaslt.so.1",
                        "matrix products",
                        "install ROCm 6.2 or later, or set LD_LIBRARY_PATH",
                        calls,
                        sizeof calls / sizeof *calls,
                        0,
                        NULL };
    void *file = NULL;
    if (library_open(&library, lt, &file) == OK) return OK;
    status_clear();
    library.file = "libhipblaslt.so.0";
    return library_open(&library, lt, &file);
}

/* The name of the machine for which choices are valid. The library chooses by the number of
 * processors, too, which a GPU's partitions share. */
static Status machine_name(Blas *b, int version, char out[CHOICE_MACHINE_MAX])
{
    char revision[REVISION_BYTES] = "";
    GpuInfo info;
    int device = 0;
    TRY(gpu_current(&device));
    TRY(gpu_info(device, &info));
    TRY(hipblaslt_status(b->lt.GetGitRevision(b->handle[0], revision), "revision"));
    snprintf(out, CHOICE_MACHINE_MAX, "%.80s, %d processors, driver %d, hipBLASLt %d %.40s",
             info.name, info.sms, info.driver, version, revision);
    return OK;
}

static Status blas_start(Blas *b, Arena *a)
{
    char machine[CHOICE_MACHINE_MAX];
    int version = 0;
    TRY(table_open(&b->lt));
    for (int i = 0; i < LANE_COUNT; i++)
        TRY(hipblaslt_status(b->lt.Create(&b->handle[i]), "start"));
    TRY(hipblaslt_status(b->lt.GetVersion(b->handle[0], &version), "version"));
    if (version < VERSION_LEAST)
        return FAIL(ERR_UNSUPPORTED, "hipBLASLt is version %d, %d is needed: install ROCm 6.2",
                    version, VERSION_LEAST);
    TRY(machine_name(b, version, machine));
    return choices_make(a, machine, &b->tuner.choices);
}

static void handles_free(Blas *b)
{
    for (int i = 0; i < LANE_COUNT; i++) {
        if (b->handle[i] != NULL) (void)b->lt.Destroy(b->handle[i]);
        b->handle[i] = NULL;
    }
}

extern "C" Status hipblaslt_open(struct Exec *ex, Arena *a, void **out)
{
    Blas *b = NULL;
    TRY(ARENA_ZEROED(a, 1, &b));
    Status s = blas_start(b, a);
    if (s != OK) handles_free(b);
    if (s != OK && s != ERR_UNSUPPORTED) return s;
    if (s == ERR_UNSUPPORTED) {
        status_sentence(b->why, sizeof b->why);
        status_clear();
        exec_note_once(ex, "dense products", b->why);
    }
    *out = b;
    return OK;
}

extern "C" void hipblaslt_close(void *blas)
{
    Blas *b = (Blas *)blas;
    (void)tuner_switch(&b->tuner, false);
    handles_free(b);
}

extern "C" struct Tuner *hipblaslt_tuner(void *blas)
{
    Blas *b = (Blas *)blas;
    return b->why[0] == '\0' ? &b->tuner : NULL;
}

extern "C" const char *hipblaslt_lacks(const void *blas)
{
    const Blas *b = (const Blas *)blas;
    return b->why[0] == '\0' ? NULL : b->why;
}

/* Products */

/* A product as hipBLASLt's arguments. hipBLASLt is column-major, and a row-major matrix read by
 * columns is its transpose. So the call is C^T = op(B)^T op(A)^T, and `left` is our B. */
typedef struct Call : ProductCall {
    Blas *blas;
    hipblasLtHandle_t handle;
    LaunchStream stream;
    hipblasLtMatmulDesc_t op;
    hipblasLtMatrixLayout_t left, right, c;
} Call;

static Call *call_of(ProductCall *call) { return static_cast<Call *>(call); }

/* An Exec has one stream for each lane. */
static hipblasLtHandle_t handle_of(Blas *b, LaunchStream stream)
{
    int i = 0;
    while (i < LANE_COUNT - 1 && b->stream[i] != NULL && b->stream[i] != stream) i++;
    b->stream[i] = stream;
    return b->handle[i];
}

static hipDataType hip_type(Dtype t) { return t == DTYPE_F32 ? HIP_R_32F : HIP_R_16BF; }

/* op(X) is (rows, cols). */
static Status operand_make(Call *c, hipblasLtMatrixLayout_t *layout, const GemmOperand &x,
                           int64_t rows, int64_t cols, hipblasLtMatmulDescAttributes_t transposes,
                           const char *what)
{
    const HipblasLt *lt = &c->blas->lt;
    int32_t op = x.turned ? HIPBLAS_OP_T : HIPBLAS_OP_N;
    int64_t high = x.turned ? rows : cols, wide = x.turned ? cols : rows;
    TRY(hipblaslt_status(lt->MatmulDescSetAttribute(c->op, transposes, &op, sizeof op), what));
    return hipblaslt_status(
        lt->MatrixLayoutCreate(layout, hip_type(x.type), (uint64_t)high, (uint64_t)wide, x.ld),
        what);
}

static Status call_make(Call *c)
{
    const HipblasLt *lt = &c->blas->lt;
    const GemmArgs *g = c->g;
    TRY(hipblaslt_status(lt->MatmulDescCreate(&c->op, HIPBLAS_COMPUTE_32F, HIP_R_32F), "product"));
    TRY(operand_make(c, &c->left, g->b, g->k, g->n, HIPBLASLT_MATMUL_DESC_TRANSA, "left side"));
    TRY(operand_make(c, &c->right, g->a, g->m, g->k, HIPBLASLT_MATMUL_DESC_TRANSB, "right side"));
    return hipblaslt_status(
        lt->MatrixLayoutCreate(&c->c, hip_type(g->c.type), (uint64_t)g->n, (uint64_t)g->m, g->c.ld),
        "layout of the result");
}

/* Safe after a call_make that failed halfway. */
static void call_free(Call *c)
{
    const HipblasLt *lt = &c->blas->lt;
    const hipblasLtMatrixLayout_t layout[] = { c->left, c->right, c->c };
    for (int i = 0; i < 3; i++)
        if (layout[i] != NULL) (void)lt->MatrixLayoutDestroy(layout[i]);
    if (c->op != NULL) (void)lt->MatmulDescDestroy(c->op);
}

/* The algorithm's bytes and its limit of workspace, then zeros. */
static void algo_keep(const hipblasLtMatmulAlgo_t *algo, uint64_t *words)
{
    static_assert(sizeof *algo <= CHOICE_WORDS * sizeof(uint64_t), "an algorithm is kept as words");
    memset(words, 0, CHOICE_WORDS * sizeof *words);
    memcpy(words, algo, sizeof *algo);
}

/* Keeps the legal ones of n proposals. */
static void legal_keep(const hipblasLtMatmulHeuristicResult_t *proposal, int n, ProductAlgos *out)
{
    size_t most = DENSE_WORKSPACE;
    for (int i = 0; i < n; i++) {
        bool whole = proposal[i].state == HIPBLAS_STATUS_SUCCESS && proposal[i].workspaceSize == 0;
        if (whole) most = 0;
    }
    for (int i = 0; i < n; i++) {
        if (proposal[i].state != HIPBLAS_STATUS_SUCCESS || proposal[i].workspaceSize > most)
            continue;
        algo_keep(&proposal[i].algo, out->algo[out->n++]);
    }
}

/* The library may leave bytes of an algorithm alone, so they are zero before. */
static Status ask(const Call *c, hipblasLtMatmulPreference_t limits, ProductAlgos *out)
{
    const HipblasLt *lt = &c->blas->lt;
    const uint64_t space = DENSE_WORKSPACE;
    hipblasLtMatmulHeuristicResult_t proposal[TUNER_VARIANTS] = {};
    int n = 0;
    hipblasStatus_t e = lt->MatmulPreferenceSetAttribute(
        limits, HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space);
    TRY(hipblaslt_status(e, "limit"));
    e = lt->MatmulAlgoGetHeuristic(c->handle, c->op, c->left, c->right, c->c, c->c, limits,
                                   TUNER_VARIANTS, proposal, &n);
    /* All three say that the library has nothing for this product: "not implemented" becomes an
     * internal error. That is no failure, since our own kernel runs. */
    if (e == HIPBLAS_STATUS_NOT_SUPPORTED || e == HIPBLAS_STATUS_INVALID_VALUE ||
        e == HIPBLAS_STATUS_INTERNAL_ERROR)
        return OK;
    TRY(hipblaslt_status(e, "choice of an algorithm"));
    legal_keep(proposal, n, out);
    return OK;
}

static Status hipblaslt_propose(ProductCall *product, ProductAlgos *out)
{
    Call *c = call_of(product);
    hipblasLtMatmulPreference_t limits = NULL;
    TRY(hipblaslt_status(c->blas->lt.MatmulPreferenceCreate(&limits), "limits"));
    Status s = ask(c, limits, out);
    (void)c->blas->lt.MatmulPreferenceDestroy(limits);
    return s;
}

/* The library cannot be asked about an algorithm, so it must propose it again. */
static bool hipblaslt_fits(ProductCall *product, const uint64_t *words)
{
    ProductAlgos legal = {};
    if (hipblaslt_propose(product, &legal) != OK) status_clear();
    for (int i = 0; i < legal.n; i++)
        if (memcmp(legal.algo[i], words, sizeof legal.algo[i]) == 0) return true;
    return false;
}

/* The only place that launches a dense product, for timing and for real. */
static Status hipblaslt_launch(ProductCall *product, const uint64_t *words)
{
    const float one = 1;
    const Call *c = call_of(product);
    const GemmArgs *g = c->g;
    hipblasLtMatmulAlgo_t algo;
    memcpy(&algo, words, sizeof algo);
    return hipblaslt_status(c->blas->lt.Matmul(c->handle, c->op, &one, g->b.at, c->left, g->a.at,
                                               c->right, &g->beta, c->r, c->c, g->c.at, c->c, &algo,
                                               c->workspace, DENSE_WORKSPACE, c->stream),
                            "product");
}

static const ProductLibrary hipblaslt = { "hipBLASLt", hipblaslt_propose, hipblaslt_fits,
                                          hipblaslt_launch };

/* ERR_UNSUPPORTED: hipBLASLt has no algorithm for the product. */
extern "C" Status dense_hipblaslt(struct Exec *ex, const void *args)
{
    const DenseCall *d = (const DenseCall *)args;
    Call c = {};
    c.library = &hipblaslt;
    c.ex = ex;
    c.g = d->g;
    c.r = d->r;
    c.workspace = d->workspace;
    c.blas = blas_of(ex);
    c.stream = exec_stream(ex);
    c.handle = handle_of(c.blas, c.stream);
    Status s = call_make(&c);
    if (s == OK) s = product_algo_run(&c);
    call_free(&c);
    return s;
}
