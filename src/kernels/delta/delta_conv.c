/*
 * delta_conv: the short causal convolution on the CPU, and checks that all ops of delta/ share. A thread owns pieces
 * of channels and walks their sequences in order, so sums of dw have one order for any number of threads.
 */
#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/delta/delta_check.h"

enum { PIECE = 64 }; /* channels that a thread takes at a time */

Status delta_check_x(const char *op, const Tensor *x, const DeltaDims *d)
{
    if (d->key_heads < 1 || d->heads < 1 || d->heads % d->key_heads != 0)
        return FAIL(ERR_SHAPE, "%s: %lld key heads do not divide %lld value heads", op,
                    (long long)d->key_heads, (long long)d->heads);
    if (d->key < 1 || d->value < 1 || most(d->key, d->value) > DELTA_WIDTH_MAX)
        return FAIL(ERR_SHAPE, "%s: heads of %lld and %lld columns, wanted 1 to %d", op,
                    (long long)d->key, (long long)d->value, DELTA_WIDTH_MAX);
    return op_expect_act(op, "x", x, -1, delta_x_cols(d));
}

Status delta_check_doc(const char *op, const Tensor *x, const Tensor *doc, int64_t sequence)
{
    if (sequence < 1 || x->dim[0] % sequence != 0)
        return FAIL(ERR_SHAPE, "%s: %lld rows are no sequences of %lld tokens", op,
                    (long long)x->dim[0], (long long)sequence);
    if (doc->data == NULL) return OK;
    return op_expect(op, "doc", doc, x->dim[0] / sequence, sequence, DTYPE_I32);
}

Status delta_check_dx(const char *op, const Tensor *x, const Tensor *dx, const Tensor *w,
                      const Tensor *dw)
{
    TRY(op_expect(op, "dx", dx, x->dim[0], tensor_cols(x), x->dtype));
    return dw->data == NULL
               ? OK
               : op_expect(op, "the gradient of w", dw, w->dim[0], tensor_cols(w), DTYPE_F32);
}

/* Rows before each run that its tokens may join. */
static int64_t past_of(const DeltaConvFwd *a) { return tensor_cols(&a->w) - 1; }

static Status conv_check(const char *op, const DeltaConvFwd *a, const char *y)
{
    const int64_t channels = delta_qkv_cols(&a->dims);
    TRY(delta_check_x(op, &a->x, &a->dims));
    TRY(delta_check_doc(op, &a->x, &a->doc, a->sequence));
    TRY(op_expect(op, y, &a->y, a->x.dim[0], channels, a->x.dtype));
    TRY(op_expect(op, "w", &a->w, channels, -1, DTYPE_F32));
    if (tensor_cols(&a->w) > DELTA_TAPS_MAX)
        return FAIL(ERR_SHAPE, "%s: w joins %lld tokens, at most %d", op,
                    (long long)tensor_cols(&a->w), DELTA_TAPS_MAX);
    if (a->before.data == NULL) return OK;
    return op_expect(op, "before", &a->before, past_of(a) * (a->x.dim[0] / a->sequence),
                     tensor_cols(&a->x), a->x.dtype);
}

/* At most PIECE channels that are neighbours in x and y. */
typedef struct Channels {
    const DeltaConvFwd *a;
    int64_t x, y, n, taps; /* the first column of both */
    const float *w;
} Channels;

typedef void ConvRun(const void *args, const Channels *c);

/* Runs an op for all channels. A head's q, its k, and v of all heads that share these are neighbours. */
static void for_channels(const Exec *ex, const DeltaConvFwd *a, ConvRun *run, const void *args)
{
    const int64_t G = a->dims.key_heads, key = a->dims.key, taps = tensor_cols(&a->w);
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t i = 0; i < 3 * G; i++) {
        const int64_t width = i < 2 * G ? key : delta_shared(&a->dims) * a->dims.value;
        const int64_t x = delta_q_at(&a->dims, i % G) + i / G * key,
                      y = i / G * G * key + i % G * width;
        for (int64_t at = 0; at < width; at += PIECE) {
            const float *w = (const float *)a->w.data + (y + at) * taps;
            run(args, &(Channels){ a, x + at, y + at, least(PIECE, width - at), taps, w });
        }
    }
}

/* Where token t of a run lies, in rows or, of tokens before the run, in `before`: the first element of its channels. */
static int64_t token_at(const Channels *c, int64_t run, int64_t t)
{
    const int64_t row = t < 0 ? (run + 1) * past_of(c->a) + t : run * c->a->sequence + t;
    return row * tensor_cols(&c->a->x) + c->x;
}

/* Tokens before a row that it joins. */
static int64_t seen_by(const DeltaConvFwd *a, int64_t row)
{
    const int64_t seen = delta_position(a->first, row, a->sequence) - delta_first(&a->doc, row);
    return a->before.data != NULL ? seen : least(seen, row % a->sequence);
}

/* u of the token of a row. */
static void convolve(const Channels *c, int64_t row, float *u)
{
    float buffer[PIECE];
    const int64_t seen = seen_by(c->a, row), run = row / c->a->sequence, t = row % c->a->sequence;
    memset(u, 0, PIECE * sizeof *u);
    for (int64_t k = 0; k < c->taps && k <= seen; k++) {
        const Tensor *of = k > t ? &c->a->before : &c->a->x;
        const float *x = row_load(of, token_at(c, run, t - k), c->n, buffer);
        const float *w = c->w + c->taps - 1 - k;
        for (int64_t i = 0; i < c->n; i++) u[i] += w[i * c->taps] * x[i];
    }
}

/* Forward. */

Status delta_conv_fwd_check(const DeltaConvFwd *a) { return conv_check("delta_conv_fwd", a, "y"); }

/* q, k and v are read and written once. */
OpCost delta_conv_fwd_cost(const DeltaConvFwd *a)
{
    const double elems = (double)tensor_elems(&a->y), taps = (double)tensor_cols(&a->w);
    return (OpCost){ .flops = (2 * taps + 4) * elems,
                     .bytes = (double)(2 * tensor_bytes(&a->y) + tensor_bytes(&a->w)) };
}

static void conv_forward(const void *args, const Channels *c)
{
    const DeltaConvFwd *a = args;
    float u[PIECE], buffer[PIECE];
    for (int64_t row = 0; row < a->x.dim[0]; row++) {
        const int64_t at = row * tensor_cols(&a->y) + c->y;
        convolve(c, row, u);
        float *y = row_open(&a->y, at, buffer);
#pragma omp simd
        for (int64_t i = 0; i < c->n; i++) y[i] = u[i] / (1 + exp_f32(-u[i]));
        row_store(&a->y, at, c->n, y);
    }
}

Status delta_conv_fwd_cpu(Exec *ex, const DeltaConvFwd *a)
{
    for_channels(ex, a, conv_forward, a);
    return OK;
}

OP_PORTS(delta_conv_fwd, IN(DeltaConvFwd, x), IN(DeltaConvFwd, w), IN_OPT(DeltaConvFwd, doc),
         IN_OPT(DeltaConvFwd, before), OUT(DeltaConvFwd, y));

/* Backward. */

Status delta_conv_bwd_check(const DeltaConvBwd *a)
{
    TRY(conv_check("delta_conv_bwd", &a->of, "dy"));
    if (a->of.before.data != NULL)
        TRY(op_expect("delta_conv_bwd", "dbefore", &a->dbefore, a->of.before.dim[0],
                      tensor_cols(&a->of.x), a->of.x.dtype));
    return delta_check_dx("delta_conv_bwd", &a->of.x, &a->dx, &a->of.w, &a->dw);
}

OpCost delta_conv_bwd_cost(const DeltaConvBwd *a)
{
    const double elems = (double)tensor_elems(&a->of.y), taps = (double)tensor_cols(&a->of.w);
    return (OpCost){ .flops = (6 * taps + 8) * elems,
                     .bytes = (double)(3 * tensor_bytes(&a->of.y) + 3 * tensor_bytes(&a->of.w)) };
}

/* silu'(u) = s (1 + u (1 - s)),  s = sigmoid(u);  du = dy silu'(u) */
static void slope_row(const Channels *c, int64_t row, float *du)
{
    float u[PIECE], buffer[PIECE];
    convolve(c, row, u);
    const float *dy = row_load(&c->a->y, row * tensor_cols(&c->a->y) + c->y, c->n, buffer);
#pragma omp simd
    for (int64_t i = 0; i < c->n; i++) {
        const float s = 1 / (1 + exp_f32(-u[i]));
        du[i] = dy[i] * s * (1 + u[i] * (1 - s));
    }
}

/* dx_t = sum over k of w_(taps-1-k) du_(t+k),  dw_(taps-1-k) = sum over t of du_(t+k) x_t, of the tokens t + k of the
 * run that see t, which may lie before the run. */
static void pull_input(const DeltaConvBwd *a, const Channels *c, int64_t run, int64_t t,
                       float du[][PIECE], double *dw)
{
    const Tensor *from = t < 0 ? &a->of.before : &a->of.x, *to = t < 0 ? &a->dbefore : &a->dx;
    const int64_t at = token_at(c, run, t), row = run * a->of.sequence;
    float x_buffer[PIECE], buffer[PIECE], sum[PIECE] = { 0 };
    const float *x = row_load(from, at, c->n, x_buffer);
    for (int64_t k = most(0, -t); k < c->taps && t + k < a->of.sequence; k++) {
        if (seen_by(&a->of, row + t + k) < k) break;
        const float *slope = du[(t + k) % DELTA_TAPS_MAX];
        for (int64_t i = 0; i < c->n; i++) {
            const int64_t tap = i * c->taps + c->taps - 1 - k;
            sum[i] += c->w[tap] * slope[i];
            dw[tap] += (double)(slope[i] * x[i]);
        }
    }
    float *dx = row_open(to, at, buffer);
    memcpy(dx, sum, (size_t)c->n * sizeof *dx);
    row_store(to, at, c->n, dx);
}

/* From the last token of a run to the first: dx_t needs du of the tokens behind it. */
static void conv_backward(const void *args, const Channels *c)
{
    const DeltaConvBwd *a = args;
    const int64_t n = a->of.sequence, past = a->of.before.data == NULL ? 0 : past_of(&a->of);
    float du[DELTA_TAPS_MAX][PIECE], *sum = (float *)a->dw.data + c->y * c->taps;
    double dw[PIECE * DELTA_TAPS_MAX] = { 0 };
    for (int64_t run = a->of.x.dim[0] / n - 1; run >= 0; run--) {
        for (int64_t t = n - 1; t >= -past; t--) {
            if (t >= 0) slope_row(c, run * n + t, du[t % DELTA_TAPS_MAX]);
            pull_input(a, c, run, t, du, dw);
        }
    }
    for (int64_t i = 0; a->dw.data != NULL && i < c->n * c->taps; i++) sum[i] += (float)dw[i];
}

Status delta_conv_bwd_cpu(Exec *ex, const DeltaConvBwd *a)
{
    for_channels(ex, &a->of, conv_backward, a);
    return OK;
}

OP_PORTS(delta_conv_bwd, { "dy", offsetof(DeltaConvBwd, of.y), PORT_IN }, IN(DeltaConvBwd, of.x),
         IN(DeltaConvBwd, of.w), IN_OPT(DeltaConvBwd, of.doc), IN_OPT(DeltaConvBwd, of.before),
         OUT_PART(DeltaConvBwd, dx), ADD_OPT(DeltaConvBwd, dw),
         OUT_PART_OPT(DeltaConvBwd, dbefore));
