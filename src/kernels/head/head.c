/* head_loss: check, cost and CPU version. head_products and the sizes of chunks serve the GPU, too. */
#include "kernels/head/head_private.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/op.h"
#include "kernels/dense/product.h"

#include <math.h>
#include <omp.h>

enum { PIECE = 1024 }; /* logits of one row that are worked on at a time */

static int64_t vocabulary(const HeadLoss *a)
{
    return tensor_elems(&a->w.data) / tensor_cols(&a->w.data);
}

/* The matrix in 8 bits, as both products read it; the other products' operands are made here. */
static Status check_scaled(const HeadLoss *a, int64_t V, int64_t D)
{
    const char *op = "head_loss";
    bool scaled = a->w.kind != OPERAND_PLAIN, turned = a->turned.data.data != NULL;
    if (turned != (scaled && a->dx.data != NULL))
        return FAIL(ERR_ARG, "%s: turned is %s, but w has %sscales and dx is %s", op,
                    turned ? "given" : "absent", scaled ? "" : "no ",
                    a->dx.data == NULL ? "absent" : "given");
    if (!turned) return OK;
    if (!a->turned.transposed || a->w.transposed)
        return FAIL(ERR_ARG, "%s: turned must be transposed, and w must not", op);
    if (!dtype_is_narrow(a->gradient))
        return FAIL(ERR_SHAPE, "%s: gradients are %s, wanted 8 bits", op, dtype_name(a->gradient));
    return operand_expect(op, "turned", &a->turned, D, V, 1 << OPERAND_128X128);
}

Status head_loss_check(const HeadLoss *a)
{
    const char *op = "head_loss";
    if (a->chunk < 1) {
        return FAIL(ERR_ARG, "%s: chunk is %lld tokens, at least 1 is needed", op,
                    (long long)a->chunk);
    }
    int64_t D = tensor_cols(&a->w.data), N = tensor_elems(&a->target);
    if (tensor_elems(&a->w.data) == 0) return FAIL(ERR_SHAPE, "%s: w is empty", op);
    int64_t V = tensor_elems(&a->w.data) / D, ranks = head_ranks(a);
    if (a->vocab_first % V != 0 || a->vocab_first < 0 || a->vocab_first / V >= ranks) {
        return FAIL(ERR_ARG,
                    "%s: w has %lld rows from number %lld on: not one of %lld equal parts of a "
                    "vocabulary",
                    op, (long long)V, (long long)a->vocab_first, (long long)ranks);
    }
    TRY(op_expect_act(op, "x", &a->x, N, D));
    TRY(operand_expect_type(op, "w", &a->w, V, D, a->x.dtype,
                            OPERANDS_PLAIN | 1 << OPERAND_128X128));
    TRY(check_scaled(a, V, D));
    TRY(op_expect(op, "target", &a->target, N, -1, DTYPE_I32));
    TRY(op_expect(op, "scale", &a->scale, 1, 1, DTYPE_F32));
    TRY(op_expect(op, "loss", &a->loss, N, -1, DTYPE_F32));
    TRY(op_expect(op, "loss_sum", &a->loss_sum, 1, 1, DTYPE_F32));
    if (a->dx.data != NULL) TRY(op_expect(op, "dx", &a->dx, N, D, a->x.dtype));
    if (a->dw.data == NULL) return OK;
    if (a->dx.data == NULL) return FAIL(ERR_ARG, "%s: dw is set but dx is not", op);
    return op_expect(op, "dw", &a->dw, V, D, DTYPE_F32);
}

/* FLOPs of the products alone: 2NVD each for logits, dx and dw. Bytes of a chunk's logits and 8-bit copies are not
 * counted: at best they never leave the chip. A dw in x's type gives its rate to all three. Of a split vocabulary
 * ranks all-reduce three floats a token; links carry 2 (ranks - 1) / ranks of each. */
OpCost head_loss_cost(const HeadLoss *a)
{
    int64_t D = tensor_cols(&a->w.data), products = 1 + (a->dx.data != NULL) + (a->dw.data != NULL);
    double rows = (double)tensor_elems(&a->target), ranks = (double)head_ranks(a);
    return (OpCost){ .flops = (double)products * 2 * rows * (double)tensor_elems(&a->w.data),
                     .bytes = op_port_bytes(OP_HEAD_LOSS, a),
                     .comm_bytes = 2 * (ranks - 1) / ranks * 3 * sizeof(float) * rows,
                     .axis = AXIS_TP,
                     .work = WORK_HEAD,
                     .dtype = a->plain_dw ? a->x.dtype : a->w.data.dtype,
                     .size = (double)(D < a->chunk ? D : a->chunk) };
}

/* The three products of a chunk. dw adds over chunks (beta 1), the others write their own rows. */
HeadProducts head_products(const HeadLoss *a, void *logits, const HeadCopies *c, int64_t first,
                           int64_t n)
{
    Dtype act = a->x.dtype;
    int64_t D = tensor_cols(&a->w.data), V = vocabulary(a);
    void *dx = a->dx.data == NULL ? NULL : tensor_at(&a->dx, first * D);
    GemmOperand x = { tensor_at(&a->x, first * D), act, D, false };
    GemmOperand w = { a->w.data.data, act, D, false }, w_turned = { a->w.data.data, act, D, true };
    GemmOperand dlogits = { logits, act, V, false }, dlogits_turned = { logits, act, V, true };
    return (HeadProducts){
        .logits = { { n, V, D, x, w_turned, { logits, act, V }, 0 }, c->x.rows, a->w },
        .dx = { { n, D, V, dlogits, w, { dx, act, D }, 0 }, c->dlogits.rows, a->turned },
        .dw = { { V, D, n, dlogits_turned, x, { a->dw.data, DTYPE_F32, D }, 1 },
                c->dlogits.columns,
                c->x.columns },
    };
}

ScaledArgs head_scaled(const HeadProduct *p)
{
    const GemmArgs *g = &p->g;
    return (ScaledArgs){ .m = g->m,
                         .n = g->n,
                         .k = g->k,
                         .a = { .q = &p->a },
                         .b = { .q = &p->b },
                         .c = g->c,
                         .r = g->beta == 0 ? NULL : g->c.at };
}

static Operand copy_at(Dtype type, int64_t rows, int64_t cols, char **at)
{
    Operand q = operand_shape(OPERAND_1X128, type, 2, (const int64_t[]){ rows, cols });
    q.data.data = *at;
    *at += arena_rounded(tensor_bytes(&q.data));
    q.scale.data = *at;
    *at += arena_rounded(tensor_bytes(&q.scale));
    return q;
}

HeadCopies head_copies(const HeadLoss *a, int64_t n, char **at)
{
    const int64_t D = tensor_cols(&a->w.data), V = vocabulary(a);
    HeadCopies c = { { .pow2 = a->pow2, .of = "the input of the head" },
                     { .pow2 = a->pow2, .of = "the gradient of the logits" } };
    if (a->w.kind == OPERAND_PLAIN) return c;
    c.x.rows = copy_at(a->w.data.dtype, n, D, at);
    if (a->dx.data != NULL) c.dlogits.rows = copy_at(a->gradient, n, V, at);
    if (a->dw.data == NULL || a->plain_dw) return c;
    c.x.columns = copy_at(a->w.data.dtype, D, n, at);
    c.dlogits.columns = copy_at(a->gradient, V, n, at);
    c.x.columns.transposed = c.dlogits.columns.transposed = true;
    return c;
}

size_t head_copies_bytes(const HeadLoss *a)
{
    char *first = a->x.data, *end = first;
    (void)head_copies(a, head_chunk_rows(a), &end);
    return (size_t)(end - first);
}

Tensor head_rows(const HeadLoss *a, int64_t first, int64_t n)
{
    int64_t D = tensor_cols(&a->w.data);
    return (Tensor){ tensor_at(&a->x, first * D), a->x.dtype, 2, { n, D } };
}

Tensor head_logits(const HeadLoss *a, void *at, int64_t n)
{
    return (Tensor){ at, a->x.dtype, 2, { n, vocabulary(a) } };
}

int64_t head_chunk(int64_t chosen, bool gpu, int64_t vocab, Dtype act)
{
    int64_t tokens = 4096, row_bytes = vocab * (int64_t)dtype_bytes(act);
    if (chosen > 0) return chosen;
    if (!gpu) return 512;
    while (2 * tokens * row_bytes <= (int64_t)1 << 30) tokens *= 2;
    return tokens;
}

/* A call with fewer tokens than a chunk has one short chunk. */
int64_t head_chunk_rows(const HeadLoss *a)
{
    int64_t N = tensor_elems(&a->target);
    return a->chunk < N ? a->chunk : N;
}

/* Of one chunk. The products' scratch lies behind the logits. */
size_t head_logits_bytes(const HeadLoss *a)
{
    size_t V = (size_t)vocabulary(a);
    return arena_rounded((size_t)head_chunk_rows(a) * V * dtype_bytes(a->x.dtype));
}

size_t head_share_bytes(const HeadLoss *a)
{
    size_t each = 4 * sizeof(float); /* the fields of a HeadShare */
    return head_ranks(a) == 1 ? 0 : arena_rounded((size_t)head_chunk_rows(a) * each);
}

HeadShare head_share(const HeadLoss *a, void *logits, int64_t n)
{
    float *at = (float *)(void *)((char *)logits + head_logits_bytes(a));
    return (HeadShare){ at, at + n, at + 2 * n, at + 3 * n };
}

Status head_reduce(Exec *ex, const HeadLoss *a, float *at, int64_t n, ReduceOp op)
{
    Comm *c = ex->mesh == NULL ? NULL : ex->mesh->group[GROUP_TP];
    if (c != NULL && c->size == a->ranks && c->rank * vocabulary(a) == a->vocab_first)
        return comm_all_reduce(c, &(Tensor){ at, DTYPE_F32, 1, { n } }, op);
    return FAIL(ERR_ARG,
                "head_loss: rows from %lld on of the vocabulary of %lld ranks, but rank %d of the "
                "mesh is number %d of %d ranks of tp",
                (long long)a->vocab_first, (long long)a->ranks,
                ex->mesh == NULL ? 0 : ex->mesh->rank, c == NULL ? 0 : c->rank,
                c == NULL ? 0 : c->size);
}

static size_t product_space(const Exec *ex, const HeadProduct *p)
{
    if (!head_is_scaled(p)) return gemm_workspace(ex, &p->g);
    ScaledArgs s = head_scaled(p);
    return scaled_workspace(ex, &s);
}

static Status product_run(Exec *ex, const HeadProduct *p, void *space)
{
    if (!head_is_scaled(p)) return gemm_run(ex, &p->g, space);
    ScaledArgs s = head_scaled(p);
    return scaled_run(ex, &s, space);
}

size_t head_space(const Exec *ex, const HeadLoss *a, HeadSpace *product,
                  size_t (*copy)(const Exec *, const QuantOut *, const Tensor *), size_t most)
{
    char *at = a->x.data; /* any address: nothing is written */
    int64_t n = head_chunk_rows(a);
    const Tensor x = head_rows(a, 0, n), logits = head_logits(a, at, n);
    HeadCopies c = head_copies(a, n, &at);
    HeadProducts p = head_products(a, NULL, &c, 0, n);
    size_t each[] = { copy(ex, &c.x, &x), copy(ex, &c.dlogits, &logits), product(ex, &p.logits),
                      product(ex, &p.dx), product(ex, &p.dw) };
    int count = a->dx.data != NULL ? 5 : 3;
    for (int i = 0; i < count; i++) most = each[i] > most ? each[i] : most;
    return head_logits_bytes(a) + head_share_bytes(a) + head_copies_bytes(a) + most;
}

/* A row of f32 for each thread shares memory with the products' scratch: they are never used at once. */
size_t head_loss_workspace(const Exec *ex, const HeadLoss *a)
{
    size_t wide = (size_t)(ex->threads * vocabulary(a)) * sizeof(float);
    return head_space(ex, a, product_space, quant_out_workspace, wide);
}

/* The softmax of a row: its largest logit, the sum of e^(logit - max), and the target's logit. */
typedef struct RowSum {
    float max;
    double sum, at_target;
} RowSum;

/* Turns a row of logits into e^(logit - max) and returns their sum. Pieces are summed in f32, the row in double. */
static double row_exponentials(float *row, int64_t V, float max)
{
    double sum = 0;
    for (int64_t first = 0; first < V; first += PIECE) {
        int64_t n = V - first < PIECE ? V - first : PIECE;
        float *piece = row + first, part = 0;
#pragma omp simd reduction(+ : part)
        for (int64_t i = 0; i < n; i++) {
            piece[i] = exp_f32(piece[i] - max);
            part += piece[i];
        }
        sum += (double)part;
    }
    return sum;
}

/* Turns a row of logits into exponentials. A target elsewhere in the vocabulary counts as logit 0. */
static RowSum row_sum(float *row, int64_t V, int64_t target)
{
    RowSum r = { .max = max_f32(row, V) };
    r.at_target = target >= 0 && target < V ? (double)row[target] : 0;
    r.sum = row_exponentials(row, V, r.max);
    return r;
}

/* dlogits = (softmax - onehot) * scale, from the exponentials in `row`, which may be `to`. */
static void row_gradient(const float *row, const Tensor *to, int64_t at, int64_t target,
                         float inverse, float scale)
{
    int64_t V = tensor_cols(to);
    float piece[PIECE], factor = inverse * scale;
    for (int64_t first = 0; first < V; first += PIECE) {
        int64_t n = V - first < PIECE ? V - first : PIECE;
#pragma omp simd
        for (int64_t i = 0; i < n; i++) piece[i] = row[first + i] * factor;
        if (target >= first && target < first + n) piece[target - first] -= scale;
        row_store(to, at + first, n, piece);
    }
}

/* Fills *s for the rows of a chunk, and adds up over ranks. Logits stay as they are. space: as below. */
static Status share_sums(Exec *ex, const HeadLoss *a, const Tensor *logits, int64_t first,
                         const HeadShare *s, float *space)
{
    int64_t V = tensor_cols(logits), n = logits->dim[0];
    const int32_t *targets = (const int32_t *)a->target.data + first;
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t i = 0; i < n; i++) {
        float *row = space + omp_get_thread_num() * V;
        dtype_to_f32(row, tensor_at(logits, i * V), logits->dtype, V);
        RowSum own = row_sum(row, V, targets[i] - a->vocab_first);
        s->own[i] = s->most[i] = own.max;
        s->sum[i] = (float)own.sum;
        s->known[i] = (float)own.at_target;
    }
    TRY(head_reduce(ex, a, s->most, n, REDUCE_MAX));
    for (int64_t i = 0; i < n; i++) s->sum[i] *= exp_f32(s->own[i] - s->most[i]);
    return head_reduce(ex, a, s->sum, 2 * n, REDUCE_SUM);
}

/* Computes the losses of a chunk and replaces its logits by their gradient. s: the sums over all
 * ranks; NULL: this rank has the whole vocabulary. space: a row of floats for each thread. */
static void loss_and_gradient(const HeadLoss *a, const Tensor *logits, int64_t first,
                              const HeadShare *s, float *space, int threads)
{
    int64_t V = tensor_cols(logits), n = logits->dim[0];
    const int32_t *targets = (const int32_t *)a->target.data + first;
    float *loss = (float *)a->loss.data + first, scale = *(const float *)a->scale.data;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < n; i++) {
        float *row = row_open(logits, i * V, space + omp_get_thread_num() * V);
        int64_t target = targets[i] - a->vocab_first;
        RowSum r;
        if (targets[i] < 0) {
            loss[i] = 0;
            memset(tensor_at(logits, i * V), 0, (size_t)V * dtype_bytes(logits->dtype));
            continue;
        }
        (void)row_load(logits, i * V, V, row);
        if (s == NULL) {
            r = row_sum(row, V, target);
        } else {
            r = (RowSum){ s->most[i], (double)s->sum[i], (double)s->known[i] };
            if (a->dx.data != NULL) (void)row_exponentials(row, V, r.max);
        }
        /* cppcheck-suppress invalidFunctionArg ; the largest logit adds e^0: sum >= 1 */
        loss[i] = (float)((double)r.max + log(r.sum) - r.at_target);
        float inverse = (float)(1 / r.sum);
        if (a->dx.data != NULL) row_gradient(row, logits, i * V, target, inverse, scale);
    }
}

/* Before anything is computed: an id outside the vocabulary would read past a row of logits. A GPU
 * cannot report it (head.cu). */
static Status check_targets(const HeadLoss *a)
{
    int64_t N = tensor_elems(&a->target), V = vocabulary(a) * head_ranks(a);
    const int32_t *target = a->target.data;
    for (int64_t n = 0; n < N; n++) {
        if (target[n] < -1 || target[n] >= V) {
            return FAIL(ERR_ARG, "head_loss: the target of token %lld is %d, outside -1 .. %lld",
                        (long long)n, target[n], (long long)V - 1);
        }
    }
    return OK;
}

Status head_loss_cpu(Exec *ex, const HeadLoss *a)
{
    TRY(check_targets(a));
    int64_t N = tensor_elems(&a->target), rows = head_chunk_rows(a);
    char *copies = (char *)ex->workspace + head_logits_bytes(a) + head_share_bytes(a);
    char *space = copies + head_copies_bytes(a);
    for (int64_t first = 0; first < N; first += rows) {
        int64_t n = N - first < rows ? N - first : rows;
        char *at = copies;
        const HeadCopies c = head_copies(a, n, &at);
        const Tensor x = head_rows(a, first, n), logits = head_logits(a, ex->workspace, n);
        HeadProducts p = head_products(a, logits.data, &c, first, n);
        HeadShare share = head_share(a, logits.data, n);
        bool split = head_ranks(a) > 1;
        TRY(quant_out_cpu(ex, &c.x, &x, space));
        TRY(product_run(ex, &p.logits, space));
        if (split) TRY(share_sums(ex, a, &logits, first, &share, (float *)(void *)space));
        loss_and_gradient(a, &logits, first, split ? &share : NULL, (float *)(void *)space,
                          ex->threads);
        TRY(quant_out_cpu(ex, &c.dlogits, &logits, space));
        if (a->dx.data != NULL) TRY(product_run(ex, &p.dx, space));
        if (a->dw.data != NULL) TRY(product_run(ex, &p.dw, space));
    }
    if (a->silent) return OK;
    double sum = 0; /* losses are added in the order of tokens, whatever the chunks */
    for (int64_t n = 0; n < N; n++) sum += (double)((const float *)a->loss.data)[n];
    *(float *)a->loss_sum.data += (float)((double)*(const float *)a->scale.data * sum);
    return OK;
}

OP_PORTS(head_loss, IN(HeadLoss, x), IN_OPERAND(HeadLoss, w),
         OPERAND(HeadLoss, turned, PORT_IN_OPT, PORT_IN_SCALE), IN(HeadLoss, target),
         IN(HeadLoss, scale), OUT(HeadLoss, loss), ADD(HeadLoss, loss_sum), OUT_OPT(HeadLoss, dx),
         ADD_OPT(HeadLoss, dw));
