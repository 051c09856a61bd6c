#include "op/cpu_math.h"
#include "op/index_check.h"
#include "op/op.h"

enum { HEAD_MAX = 1024 }; /* widest rotated part: a thread keeps two on its stack */

/* How to turn the pairs of a rotated part at one position. */
typedef struct Angle {
    const float *cos, *sin; /* d/2 each */
    float sign;             /* -1: by the opposite angle */
    bool interleaved;
} Angle;

/* pos, cos and sin of either op; back: its backward. */
typedef struct Rotation {
    const Tensor *pos, *cos, *sin;
    bool back, interleaved;
} Rotation;

static Angle angle_at(const Rotation *r, int64_t row)
{
    int64_t half = tensor_cols(r->cos), first = ((const int32_t *)r->pos->data)[row] * half;
    return (Angle){ (const float *)r->cos->data + first, (const float *)r->sin->data + first,
                    r->back ? -1.0f : 1.0f, r->interleaved };
}

static void turn_neighbours(const Angle *t, const float *x, float *y, int64_t half)
{
    const float *cos_at = t->cos, *sin_at = t->sin, sign = t->sign;
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float a = x[2 * i], b = x[2 * i + 1], c = cos_at[i], s = sign * sin_at[i];
        y[2 * i] = a * c - b * s;
        y[2 * i + 1] = a * s + b * c;
    }
}

static void turn_halves(const Angle *t, const float *x, float *y, int64_t half)
{
    const float *cos_at = t->cos, *sin_at = t->sin, sign = t->sign;
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[half + i], c = cos_at[i], s = sign * sin_at[i];
        y[i] = a * c - b * s;
        y[half + i] = a * s + b * c;
    }
}

static void turn(const Angle *t, const float *x, float *y, int64_t d)
{
    if (t->interleaved)
        turn_neighbours(t, x, y, d / 2);
    else
        turn_halves(t, x, y, d / 2);
}

/* n columns from one tensor to another of the same type. */
static void move(const Tensor *from, int64_t at, const Tensor *to, int64_t to_at, int64_t n)
{
    size_t bytes = dtype_bytes(from->dtype);
    memcpy((char *)to->data + (size_t)to_at * bytes, (const char *)from->data + (size_t)at * bytes,
           (size_t)n * bytes);
}

static void turn_to(const Angle *t, const Tensor *from, int64_t at, const Tensor *to, int64_t to_at,
                    int64_t d)
{
    float x_buffer[HEAD_MAX], y_buffer[HEAD_MAX];
    float *y = row_open(to, to_at, y_buffer);
    turn(t, row_load(from, at, d, x_buffer), y, d);
    row_store(to, to_at, d, y);
}

static Status check_tables(const char *op, const Rotation *r, int64_t n, int64_t d)
{
    if (d <= 0 || d % 2 != 0 || d > HEAD_MAX) {
        return FAIL(ERR_SHAPE, "%s: the rotated part has %lld columns: wanted 2 to %d, even", op,
                    (long long)d, HEAD_MAX);
    }
    TRY(op_expect(op, "pos", r->pos, n, 1, DTYPE_I32));
    TRY(op_expect(op, "cos", r->cos, -1, d / 2, DTYPE_F32));
    return op_expect(op, "sin", r->sin, r->cos->dim[0], d / 2, DTYPE_F32);
}

static Status check_window(const char *op, const char *port, const Tensor *t, int64_t col,
                           int64_t d)
{
    if (col >= 0 && col + d <= tensor_row_elems(t)) return OK;
    return FAIL(ERR_SHAPE, "%s: columns %lld to %lld of %s, which has %lld", op, (long long)col,
                (long long)(col + d), port, (long long)tensor_row_elems(t));
}

/* MLA: both directions walk the same heads. */

typedef struct RopePort {
    const char *name;
    const Tensor *t;
} RopePort;

/* wide side: q, kv, k_rope; heads side: q_out, k_out, v_out; or the gradients of either. */
typedef struct Mla {
    const char *op;
    RopePort q, kv, k_rope, q_out, k_out, v_out;
    Rotation rotation;
    const RopeMlaDims *dims;
} Mla;

static Mla mla_forward(const RopeMlaFwd *a)
{
    return (Mla){ .op = "rope_mla_fwd",
                  .q = { "q", &a->q },
                  .kv = { "kv", &a->kv },
                  .k_rope = { "k_rope", &a->k_rope },
                  .q_out = { "q_out", &a->q_out },
                  .k_out = { "k_out", &a->k_out },
                  .v_out = { "v_out", &a->v_out },
                  .rotation = { &a->pos, &a->cos, &a->sin, false, a->dims.interleaved },
                  .dims = &a->dims };
}

static Mla mla_backward(const RopeMlaBwd *a)
{
    return (Mla){ .op = "rope_mla_bwd",
                  .q = { "dq", &a->dq },
                  .kv = { "dkv", &a->dkv },
                  .k_rope = { "dk_rope", &a->dk_rope },
                  .q_out = { "dq_out", &a->dq_out },
                  .k_out = { "dk_out", &a->dk_out },
                  .v_out = { "dv_out", &a->dv_out },
                  .rotation = { &a->pos, &a->cos, &a->sin, true, a->dims.interleaved },
                  .dims = &a->dims };
}

static Status check_mla(const Mla *a)
{
    const RopeMlaDims *m = a->dims;
    int64_t n = a->q.t->dim[0], qk = m->heads * (m->nope + m->rope);
    Dtype type = a->q.t->dtype;
    TRY(op_expect_act(a->op, a->q.name, a->q.t, n, -1));
    TRY(check_window(a->op, a->q.name, a->q.t, m->q_col, qk));
    TRY(op_expect(a->op, a->kv.name, a->kv.t, n, m->heads * (m->nope + m->v), type));
    TRY(op_expect(a->op, a->k_rope.name, a->k_rope.t, n, -1, type));
    TRY(check_window(a->op, a->k_rope.name, a->k_rope.t, m->k_col, m->rope));
    TRY(check_tables(a->op, &a->rotation, n, m->rope));
    TRY(op_expect(a->op, a->q_out.name, a->q_out.t, n, qk, type));
    TRY(op_expect(a->op, a->k_out.name, a->k_out.t, n, qk, type));
    return op_expect(a->op, a->v_out.name, a->v_out.t, n, m->heads * m->v, type);
}

/* Every column of both sides crosses memory once, and a position a token; the tables stay in the
 * cache. A pair is four products and two sums; backward sums the shared key over the heads. */
static OpCost cost_mla(const Mla *a)
{
    const RopeMlaDims *m = a->dims;
    double n = (double)a->q.t->dim[0], heads = n * (double)m->heads, rope = (double)m->rope;
    double moved = heads * (double)(4 * m->nope + 3 * m->rope + 2 * m->v) + n * rope;
    double turned = (heads + n) * rope, summed = a->rotation.back ? heads * rope : 0;
    return (OpCost){ .flops = 3 * turned + summed,
                     .bytes = moved * (double)dtype_bytes(a->q.t->dtype) + 4 * n };
}

/* Where a row begins in each tensor. */
typedef struct MlaRow {
    int64_t q, kv, k_rope, qk_out, v_out;
} MlaRow;

static MlaRow mla_row(const Mla *a, int64_t row)
{
    const RopeMlaDims *m = a->dims;
    return (MlaRow){ .q = row * tensor_row_elems(a->q.t) + m->q_col,
                     .kv = row * m->heads * (m->nope + m->v),
                     .k_rope = row * tensor_row_elems(a->k_rope.t) + m->k_col,
                     .qk_out = row * m->heads * (m->nope + m->rope),
                     .v_out = row * m->heads * m->v };
}

static Status positions_check(const char *op, const Rotation *r)
{
    return index_check(op, "pos", r->pos, r->cos->dim[0]);
}

/* MLA, forward. */

static Status check_mla_fwd(const void *args)
{
    Mla a = mla_forward(args);
    return check_mla(&a);
}

static OpCost cost_mla_fwd(const void *args)
{
    Mla a = mla_forward(args);
    return cost_mla(&a);
}

/* The shared key is turned once, for head 0, and copied to the other heads. */
static void mla_forward_row(const Mla *a, int64_t row)
{
    const RopeMlaDims *m = a->dims;
    const Tensor *q_out = a->q_out.t, *k_out = a->k_out.t;
    int64_t qk = m->nope + m->rope, kv = m->nope + m->v;
    MlaRow at = mla_row(a, row);
    Angle t = angle_at(&a->rotation, row);
    turn_to(&t, a->k_rope.t, at.k_rope, k_out, at.qk_out + m->nope, m->rope);
    for (int64_t h = 0; h < m->heads; h++) {
        int64_t q = at.q + h * qk, out = at.qk_out + h * qk;
        move(a->q.t, q, q_out, out, m->nope);
        turn_to(&t, a->q.t, q + m->nope, q_out, out + m->nope, m->rope);
        move(a->kv.t, at.kv + h * kv, k_out, out, m->nope);
        if (h > 0) move(k_out, at.qk_out + m->nope, k_out, out + m->nope, m->rope);
        move(a->kv.t, at.kv + h * kv + m->nope, a->v_out.t, at.v_out + h * m->v, m->v);
    }
}

static Status rope_mla_fwd_cpu(Exec *ex, const void *args)
{
    Mla a = mla_forward(args);
    int64_t n = a.q.t->dim[0];
    TRY(positions_check(a.op, &a.rotation));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < n; row++) mla_forward_row(&a, row);
    return OK;
}

static const OpPort ports_mla_fwd[] = {
    PORT(RopeMlaFwd, q, PORT_IN),      PORT(RopeMlaFwd, kv, PORT_IN),
    PORT(RopeMlaFwd, k_rope, PORT_IN), PORT(RopeMlaFwd, pos, PORT_IN),
    PORT(RopeMlaFwd, cos, PORT_IN),    PORT(RopeMlaFwd, sin, PORT_IN),
    PORT(RopeMlaFwd, q_out, PORT_OUT), PORT(RopeMlaFwd, k_out, PORT_OUT),
    PORT(RopeMlaFwd, v_out, PORT_OUT), PORTS_END,
};

#ifdef HAVE_CUDA
Status rope_mla_fwd_cuda(Exec *ex, const void *args);
Status rope_mla_bwd_cuda(Exec *ex, const void *args);
Status rope_gqa_fwd_cuda(Exec *ex, const void *args);
Status rope_gqa_bwd_cuda(Exec *ex, const void *args);
#endif

extern const OpDesc rope_mla_fwd_desc;
const OpDesc rope_mla_fwd_desc = {
    .name = "rope_mla_fwd",
    .args_bytes = sizeof(RopeMlaFwd),
    .ports = ports_mla_fwd,
    .check = check_mla_fwd,
    .cost = cost_mla_fwd,
    .cpu = rope_mla_fwd_cpu,
    .cuda = CUDA_OP(rope_mla_fwd_cuda),
};

/* MLA, backward. */

static Status check_mla_bwd(const void *args)
{
    Mla a = mla_backward(args);
    return check_mla(&a);
}

static OpCost cost_mla_bwd(const void *args)
{
    Mla a = mla_backward(args);
    return cost_mla(&a);
}

static void mla_backward_row(const Mla *a, int64_t row)
{
    const RopeMlaDims *m = a->dims;
    const Tensor *dq_out = a->q_out.t, *dk_out = a->k_out.t, *dkv = a->kv.t;
    int64_t qk = m->nope + m->rope, kv = m->nope + m->v;
    MlaRow at = mla_row(a, row);
    Angle t = angle_at(&a->rotation, row);
    float shared[HEAD_MAX], buffer[HEAD_MAX];
    memset(shared, 0, (size_t)m->rope * sizeof *shared);
    for (int64_t h = 0; h < m->heads; h++) {
        int64_t q = at.q + h * qk, out = at.qk_out + h * qk;
        move(dq_out, out, a->q.t, q, m->nope);
        turn_to(&t, dq_out, out + m->nope, a->q.t, q + m->nope, m->rope);
        move(dk_out, out, dkv, at.kv + h * kv, m->nope);
        move(a->v_out.t, at.v_out + h * m->v, dkv, at.kv + h * kv + m->nope, m->v);
        const float *dk = row_load(dk_out, out + m->nope, m->rope, buffer);
#pragma omp simd
        for (int64_t i = 0; i < m->rope; i++) shared[i] += dk[i];
    }
    turn(&t, shared, buffer, m->rope);
    row_store(a->k_rope.t, at.k_rope, m->rope, buffer);
}

static Status rope_mla_bwd_cpu(Exec *ex, const void *args)
{
    Mla a = mla_backward(args);
    int64_t n = a.q.t->dim[0];
    TRY(positions_check(a.op, &a.rotation));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < n; row++) mla_backward_row(&a, row);
    return OK;
}

static const OpPort ports_mla_bwd[] = {
    PORT(RopeMlaBwd, dq_out, PORT_IN),        PORT(RopeMlaBwd, dk_out, PORT_IN),
    PORT(RopeMlaBwd, dv_out, PORT_IN),        PORT(RopeMlaBwd, pos, PORT_IN),
    PORT(RopeMlaBwd, cos, PORT_IN),           PORT(RopeMlaBwd, sin, PORT_IN),
    PORT(RopeMlaBwd, dq, PORT_OUT_PART),      PORT(RopeMlaBwd, dkv, PORT_OUT),
    PORT(RopeMlaBwd, dk_rope, PORT_OUT_PART), PORTS_END,
};

extern const OpDesc rope_mla_bwd_desc;
const OpDesc rope_mla_bwd_desc = {
    .name = "rope_mla_bwd",
    .args_bytes = sizeof(RopeMlaBwd),
    .ports = ports_mla_bwd,
    .check = check_mla_bwd,
    .cost = cost_mla_bwd,
    .cpu = rope_mla_bwd_cpu,
    .cuda = CUDA_OP(rope_mla_bwd_cuda),
};

/* GQA: q and k turned, v moved; both directions walk the same heads. */

typedef struct Gqa {
    const char *op;
    RopePort wide, q, k, v; /* wide: qkv, or its gradient */
    Rotation rotation;
    const RopeGqaDims *dims;
} Gqa;

static Gqa gqa_forward(const RopeGqaFwd *a)
{
    return (Gqa){ .op = "rope_gqa_fwd",
                  .wide = { "qkv", &a->qkv },
                  .q = { "q_out", &a->q_out },
                  .k = { "k_out", &a->k_out },
                  .v = { "v_out", &a->v_out },
                  .rotation = { &a->pos, &a->cos, &a->sin, false, a->dims.interleaved },
                  .dims = &a->dims };
}

static Gqa gqa_backward(const RopeGqaBwd *a)
{
    return (Gqa){ .op = "rope_gqa_bwd",
                  .wide = { "dqkv", &a->dqkv },
                  .q = { "dq_out", &a->dq_out },
                  .k = { "dk_out", &a->dk_out },
                  .v = { "dv_out", &a->dv_out },
                  .rotation = { &a->pos, &a->cos, &a->sin, true, a->dims.interleaved },
                  .dims = &a->dims };
}

static Status check_gqa(const Gqa *a)
{
    const RopeGqaDims *m = a->dims;
    int64_t n = a->wide.t->dim[0], d = m->head;
    Dtype type = a->wide.t->dtype;
    TRY(op_expect_act(a->op, a->wide.name, a->wide.t, n, (m->heads + 2 * m->kv_heads) * d));
    TRY(op_expect(a->op, a->q.name, a->q.t, n, m->heads * d, type));
    TRY(op_expect(a->op, a->k.name, a->k.t, n, m->kv_heads * d, type));
    TRY(op_expect(a->op, a->v.name, a->v.t, n, m->kv_heads * d, type));
    return check_tables(a->op, &a->rotation, n, d);
}

static OpCost cost_gqa(const Gqa *a)
{
    const RopeGqaDims *m = a->dims;
    double n = (double)a->wide.t->dim[0], turned = n * (double)((m->heads + m->kv_heads) * m->head);
    return (OpCost){ .flops = 3 * turned, .bytes = 2 * (double)tensor_bytes(a->wide.t) + 4 * n };
}

/* `count` heads between column `col` of a row of wide and the heads of part; t NULL: as they are.
 */
static void gqa_heads(const Gqa *a, const Angle *t, const Tensor *part, int64_t row, int64_t col,
                      int64_t count)
{
    int64_t d = a->dims->head, wide = row * tensor_row_elems(a->wide.t) + col;
    int64_t narrow = row * count * d;
    const Tensor *from = a->rotation.back ? part : a->wide.t;
    const Tensor *to = a->rotation.back ? a->wide.t : part;
    int64_t at = a->rotation.back ? narrow : wide, to_at = a->rotation.back ? wide : narrow;
    if (t == NULL) {
        move(from, at, to, to_at, count * d);
        return;
    }
    for (int64_t h = 0; h < count; h++) turn_to(t, from, at + h * d, to, to_at + h * d, d);
}

static Status gqa_run(const Exec *ex, const Gqa *a)
{
    const RopeGqaDims *m = a->dims;
    int64_t n = a->wide.t->dim[0], q_cols = m->heads * m->head, k_cols = m->kv_heads * m->head;
    TRY(positions_check(a->op, &a->rotation));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < n; row++) {
        Angle t = angle_at(&a->rotation, row);
        gqa_heads(a, &t, a->q.t, row, 0, m->heads);
        gqa_heads(a, &t, a->k.t, row, q_cols, m->kv_heads);
        gqa_heads(a, NULL, a->v.t, row, q_cols + k_cols, m->kv_heads);
    }
    return OK;
}

static Status check_gqa_fwd(const void *args)
{
    Gqa a = gqa_forward(args);
    return check_gqa(&a);
}

static OpCost cost_gqa_fwd(const void *args)
{
    Gqa a = gqa_forward(args);
    return cost_gqa(&a);
}

static Status rope_gqa_fwd_cpu(Exec *ex, const void *args)
{
    Gqa a = gqa_forward(args);
    return gqa_run(ex, &a);
}

static const OpPort ports_gqa_fwd[] = {
    PORT(RopeGqaFwd, qkv, PORT_IN),    PORT(RopeGqaFwd, pos, PORT_IN),
    PORT(RopeGqaFwd, cos, PORT_IN),    PORT(RopeGqaFwd, sin, PORT_IN),
    PORT(RopeGqaFwd, q_out, PORT_OUT), PORT(RopeGqaFwd, k_out, PORT_OUT),
    PORT(RopeGqaFwd, v_out, PORT_OUT), PORTS_END,
};

extern const OpDesc rope_gqa_fwd_desc;
const OpDesc rope_gqa_fwd_desc = {
    .name = "rope_gqa_fwd",
    .args_bytes = sizeof(RopeGqaFwd),
    .ports = ports_gqa_fwd,
    .check = check_gqa_fwd,
    .cost = cost_gqa_fwd,
    .cpu = rope_gqa_fwd_cpu,
    .cuda = CUDA_OP(rope_gqa_fwd_cuda),
};

static Status check_gqa_bwd(const void *args)
{
    Gqa a = gqa_backward(args);
    return check_gqa(&a);
}

static OpCost cost_gqa_bwd(const void *args)
{
    Gqa a = gqa_backward(args);
    return cost_gqa(&a);
}

static Status rope_gqa_bwd_cpu(Exec *ex, const void *args)
{
    Gqa a = gqa_backward(args);
    return gqa_run(ex, &a);
}

static const OpPort ports_gqa_bwd[] = {
    PORT(RopeGqaBwd, dq_out, PORT_IN), PORT(RopeGqaBwd, dk_out, PORT_IN),
    PORT(RopeGqaBwd, dv_out, PORT_IN), PORT(RopeGqaBwd, pos, PORT_IN),
    PORT(RopeGqaBwd, cos, PORT_IN),    PORT(RopeGqaBwd, sin, PORT_IN),
    PORT(RopeGqaBwd, dqkv, PORT_OUT),  PORTS_END,
};

extern const OpDesc rope_gqa_bwd_desc;
const OpDesc rope_gqa_bwd_desc = {
    .name = "rope_gqa_bwd",
    .args_bytes = sizeof(RopeGqaBwd),
    .ports = ports_gqa_bwd,
    .check = check_gqa_bwd,
    .cost = cost_gqa_bwd,
    .cpu = rope_gqa_bwd_cpu,
    .cuda = CUDA_OP(rope_gqa_bwd_cuda),
};
