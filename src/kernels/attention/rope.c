/* rope: check, cost and CPU version. Each of the four ops becomes a list of parts that are copied or rotated
 * (rope_parts.h), and one function runs any such list. The tables of angles are made in engine/model/rotary.c. */
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_parts.h"
#include "kernels/core/cpu_math.h"
#include "kernels/core/index_check.h"
#include "kernels/core/op.h"

enum { HEAD_MAX = 1024 }; /* the widest rotated part; a thread keeps two on its stack */

/* How to rotate the pairs of a rotated part at one position. */
typedef struct Angle {
    const float *cos, *sin; /* d/2 each */
    float sign;             /* -1: by the opposite angle; 0: not at all */
    float temper;           /* queries are multiplied by it */
    bool interleaved;
} Angle;

/* 1 + temper_scale ln(1 + floor((pos + 1) / temper_floor)), as rope.h has it. */
static float temper_at(const Rope *r, int64_t pos)
{
    if (r->gqa == NULL || r->gqa->temper_floor == 0) return 1;
    int64_t steps = (pos + 1) / r->gqa->temper_floor;
    return 1 + r->gqa->temper_scale * log1pf((float)steps);
}

/* Zeros if there are no positions: then everything is copied. */
static Angle angle_at(const Rope *r, int64_t row)
{
    const int32_t *pos = r->pos->data;
    if (pos == NULL) return (Angle){ 0 };
    int64_t first = pos[row] * tensor_cols(r->cos);
    return (Angle){ (const float *)r->cos->data + first, (const float *)r->sin->data + first,
                    r->back ? -1.0f : 1.0f, temper_at(r, pos[row]), r->interleaved };
}

/* Rotates pairs. Pairs begin `step` elements apart; the second element of a pair is `apart` elements after the first.
 * Callers pass constants for both, so that the loop becomes vector code. */
static inline __attribute__((always_inline)) void
rotate_pairs(const Angle *t, const float *x, float *y, int64_t pairs, int64_t step, int64_t apart)
{
    const float *cos_at = t->cos, *sin_at = t->sin, sign = t->sign;
#pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
        int64_t first = step * i, second = first + apart;
        float a = x[first], b = x[second], c = cos_at[i], s = sign * sin_at[i];
        y[first] = a * c - b * s;
        y[second] = a * s + b * c;
    }
}

static void rotate_part(const Angle *t, const float *x, float *y, int64_t d)
{
    if (t->cos == NULL)
        memcpy(y, x, (size_t)d * sizeof *y);
    else if (t->interleaved)
        rotate_pairs(t, x, y, d / 2, 2, 1);
    else
        rotate_pairs(t, x, y, d / 2, 1, d / 2);
}

/* Copies n elements from one tensor to another of the same type. */
static void copy_columns(const Tensor *from, int64_t at, const Tensor *to, int64_t to_at, int64_t n)
{
    size_t bytes = dtype_bytes(from->dtype);
    memcpy((char *)to->data + (size_t)to_at * bytes, (const char *)from->data + (size_t)at * bytes,
           (size_t)n * bytes);
}

static void rotate_columns(const Angle *t, const Tensor *from, int64_t at, const Tensor *to,
                           int64_t to_at, int64_t d)
{
    float x_buffer[HEAD_MAX], y_buffer[HEAD_MAX];
    float *y = row_open(to, to_at, y_buffer);
    rotate_part(t, row_load(from, at, d, x_buffer), y, d);
    row_store(to, to_at, d, y);
}

/* In pieces, because a head without rotation may be wider than HEAD_MAX. */
static void scale_columns(const Angle *t, const Tensor *from, int64_t at, const Tensor *to,
                          int64_t to_at, int64_t d)
{
    float x_buffer[HEAD_MAX], y_buffer[HEAD_MAX];
    for (int64_t i = 0, n; i < d; i += n) {
        n = d - i < HEAD_MAX ? d - i : HEAD_MAX;
        const float *x = row_load(from, at + i, n, x_buffer);
        float *y = row_open(to, to_at + i, y_buffer);
#pragma omp simd
        for (int64_t j = 0; j < n; j++) y[j] = t->temper * x[j];
        row_store(to, to_at + i, n, y);
    }
}

static Status check_tables(const char *op, const Rope *r, int64_t n, int64_t d)
{
    if (d <= 0 || d % 2 != 0 || d > HEAD_MAX) {
        return FAIL(ERR_SHAPE, "%s: the rotated part has %lld columns: wanted 2 to %d, even", op,
                    (long long)d, HEAD_MAX);
    }
    if (r->pos->data != NULL) TRY(op_expect(op, "pos", r->pos, n, 1, DTYPE_I32));
    TRY(op_expect(op, "cos", r->cos, -1, d / 2, DTYPE_F32));
    return op_expect(op, "sin", r->sin, r->cos->dim[0], d / 2, DTYPE_F32);
}

/* In both lists, parts 0 and 1 belong to q, 2 and 3 to k, and 4 to v. */
static Rope mla_parts(const Tensor *q, const Tensor *kv, const Tensor *k_rope, const Tensor *q_out,
                      const Tensor *k_out, const Tensor *v_out, const RopeMlaDims *m)
{
    int64_t H = m->heads, dn = m->nope, dr = m->rope, qk = dn + dr, kv_step = dn + m->v;
    return (Rope){
        .mla = m,
        .interleaved = m->interleaved,
        .part = { { q, q_out, m->q_col, qk, 0, qk, H, dn, .turned = false },
                  { q, q_out, m->q_col + dn, qk, dn, qk, H, dr, .turned = true },
                  { kv, k_out, 0, kv_step, 0, qk, H, dn, .turned = false },
                  { k_rope, k_out, m->k_col, 0, dn, qk, H, dr, .turned = true },
                  { kv, v_out, dn, kv_step, 0, m->v, H, m->v, .turned = false } },
    };
}

/* q and k are columns of qkv, unless they are given as tensors of their own. */
static Rope gqa_parts(const Tensor *qkv, const Tensor *q, const Tensor *k, const Tensor *q_out,
                      const Tensor *k_out, const Tensor *v_out, const RopeGqaDims *m)
{
    int64_t H = m->heads, G = m->kv_heads, d = m->head, dr = m->rotary;
    int64_t q_cols = H * d * (m->gated ? 2 : 1), q_step = q->data != NULL ? d : q_cols / H;
    int64_t k_col = k->data != NULL ? 0 : q_cols;
    bool tempered = m->temper_floor > 0;
    if (q->data == NULL) q = qkv;
    if (k->data == NULL) k = qkv;
    return (Rope){
        .gqa = m,
        .interleaved = m->interleaved,
        .part = { { q, q_out, 0, q_step, 0, d, H, dr, .turned = true },
                  { q, q_out, dr, q_step, dr, d, H, d - dr, .tempered = tempered },
                  { k, k_out, k_col, d, 0, d, G, dr, .turned = true },
                  { k, k_out, k_col + dr, d, dr, d, G, d - dr, .turned = false },
                  { qkv, v_out, q_cols + G * d, d, 0, d, G, d, .turned = false } },
    };
}

/* Adds what all four ops have in common to a list of parts. */
static Rope with_angles(Rope r, const char *op, const Tensor *pos, const Tensor *cos,
                        const Tensor *sin, bool back)
{
    r.op = op;
    r.pos = pos;
    r.cos = cos;
    r.sin = sin;
    r.back = back;
    return r;
}

Rope rope_mla_fwd_view(const RopeMlaFwd *a)
{
    return with_angles(
        mla_parts(&a->q, &a->kv, &a->k_rope, &a->q_out, &a->k_out, &a->v_out, &a->dims),
        "rope_mla_fwd", &a->pos, &a->cos, &a->sin, false);
}

Rope rope_mla_bwd_view(const RopeMlaBwd *a)
{
    Rope r = with_angles(
        mla_parts(&a->dq, &a->dkv, &a->dk_rope, &a->dq_out, &a->dk_out, &a->dv_out, &a->dims),
        "rope_mla_bwd", &a->pos, &a->cos, &a->sin, true);
    r.out[0] = (RopeQuant){ &a->dq, &a->dq_quant, "dq" };
    r.out[1] = (RopeQuant){ &a->dkv, &a->dkv_quant, "dkv" };
    return r;
}

Rope rope_gqa_fwd_view(const RopeGqaFwd *a)
{
    return with_angles(gqa_parts(&a->qkv, &a->q, &a->k, &a->q_out, &a->k_out, &a->v_out, &a->dims),
                       "rope_gqa_fwd", &a->pos, &a->cos, &a->sin, false);
}

Rope rope_gqa_bwd_view(const RopeGqaBwd *a)
{
    Rope r = with_angles(
        gqa_parts(&a->dqkv, &a->dq, &a->dk, &a->dq_out, &a->dk_out, &a->dv_out, &a->dims),
        "rope_gqa_bwd", &a->pos, &a->cos, &a->sin, true);
    r.out[0] = (RopeQuant){ &a->dqkv, &a->quant, "dqkv" };
    return r;
}

/* A port's name: "dq" in backward, "q" in forward. */
static const char *port_of(const Rope *r, const char *gradient)
{
    return r->back ? gradient : gradient + 1;
}

/* The tensor that gives the number of rows and the type: MLA's q, or kv if there is no q. */
static const Tensor *rope_wide(const Rope *r)
{
    return rope_wants(r, r->part[0].wide) ? r->part[0].wide : r->part[2].wide;
}

static Status check_heads(const Rope *r, const char *gradient, const Tensor *t, int64_t cols)
{
    const Tensor *wide = rope_wide(r);
    return op_expect(r->op, port_of(r, gradient), t, wide->dim[0], cols, wide->dtype);
}

static Status check_mla(const Rope *r)
{
    const RopeMlaDims *m = r->mla;
    const Tensor *q = r->part[0].wide, *kv = r->part[2].wide, *k_rope = r->part[3].wide;
    int64_t n = rope_wide(r)->dim[0], qk = m->heads * (m->nope + m->rope);
    TRY(check_tables(r->op, r, n, m->rope));
    if (rope_wants(r, q)) {
        TRY(op_expect_act(r->op, port_of(r, "dq"), q, n, -1));
        TRY(op_expect_window(r->op, port_of(r, "dq"), q, m->q_col, qk));
        TRY(check_heads(r, "dq_out", r->part[0].heads, qk));
    }
    if (rope_wants(r, q) && !rope_wants(r, kv) && k_rope->data == NULL) return OK;
    TRY(op_expect_act(r->op, port_of(r, "dkv"), kv, n, m->heads * (m->nope + m->v)));
    TRY(check_heads(r, "dkv", kv, -1));
    TRY(check_heads(r, "dk_rope", k_rope, -1));
    TRY(op_expect_window(r->op, port_of(r, "dk_rope"), k_rope, m->k_col, m->rope));
    TRY(check_heads(r, "dk_out", r->part[2].heads, qk));
    return check_heads(r, "dv_out", r->part[4].heads, m->heads * m->v);
}

static Status check_gqa(const Rope *r)
{
    const RopeGqaDims *m = r->gqa;
    const Tensor *q = r->part[0].wide, *k = r->part[2].wide, *qkv = r->part[4].wide;
    int64_t n = qkv->dim[0], d = m->head;
    if (!rope_wants(r, qkv)) return FAIL(ERR_ARG, "%s: dqkv is not set", r->op);
    const int64_t q_heads = m->gated ? 2 * m->heads : m->heads;
    TRY(op_expect_act(r->op, port_of(r, "dqkv"), qkv, n, (q_heads + 2 * m->kv_heads) * d));
    if (q != qkv) TRY(op_expect(r->op, port_of(r, "dq"), q, n, m->heads * d, qkv->dtype));
    if (k != qkv) TRY(op_expect(r->op, port_of(r, "dk"), k, n, m->kv_heads * d, qkv->dtype));
    TRY(check_heads(r, "dq_out", r->part[0].heads, m->heads * d));
    TRY(check_heads(r, "dk_out", r->part[2].heads, m->kv_heads * d));
    TRY(check_heads(r, "dv_out", r->part[4].heads, m->kv_heads * d));
    if (m->rotary < 0 || m->rotary > d) {
        return FAIL(ERR_SHAPE, "%s: %lld columns of a head are rotated, it has %lld", r->op,
                    (long long)m->rotary, (long long)d);
    }
    if (m->rotary == 0) return op_expect(r->op, "pos", r->pos, n, 1, DTYPE_I32);
    if (m->temper_floor > 0) {
        return FAIL(ERR_SHAPE,
                    "%s: temper_floor %lld is for heads that are not rotated, rotary is "
                    "%lld",
                    r->op, (long long)m->temper_floor, (long long)m->rotary);
    }
    return check_tables(r->op, r, n, m->rotary);
}

/* Copies are of a whole tensor, so all of its columns must be written here. */
static Status check_quants(const Rope *r)
{
    int64_t cols[ROPE_QUANTS] = { 0 };
    for (const RopePart *p = r->part; p < r->part + ROPE_PARTS; p++)
        for (int i = 0; i < ROPE_QUANTS; i++)
            cols[i] += p->wide == r->out[i].plain ? p->count * p->n : 0;
    for (int i = 0; i < ROPE_QUANTS; i++) {
        const RopeQuant *q = &r->out[i];
        if (q->quant == NULL || !quant_out_wanted(q->quant)) continue;
        if (cols[i] != tensor_row_elems(q->plain))
            return FAIL(ERR_ARG, "%s: 8-bit copies of %s: %lld of its %lld columns are written",
                        r->op, q->port, (long long)cols[i], (long long)tensor_row_elems(q->plain));
        TRY(quant_out_check(r->op, q->port, q->quant, q->plain));
    }
    return OK;
}

Status rope_check(const Rope *r)
{
    TRY(r->mla != NULL ? check_mla(r) : check_gqa(r));
    return check_quants(r);
}

/* Bytes: every column of both sides once, and a position (4 bytes) for each token; the tables stay
 * in the cache. FLOPs: four products and two sums a pair; backward also sums what heads share. */
OpCost rope_cost(const Rope *r)
{
    double n = (double)rope_wide(r)->dim[0], moved = 0, flops = 0;
    for (const RopePart *p = r->part; p < r->part + ROPE_PARTS; p++) {
        if (!rope_wants(r, p->wide)) continue;
        double heads = (double)(p->count * p->n), wide = p->wide_step == 0 ? (double)p->n : heads;
        moved += heads + wide;
        if (p->turned) flops += 3 * wide;
        if (p->tempered) flops += wide;
        if (r->back && p->wide_step == 0) flops += heads;
    }
    OpCost cost = { .flops = n * flops,
                    .bytes = n * (moved * (double)dtype_bytes(rope_wide(r)->dtype) + 4) };
    for (const RopeQuant *q = r->out; q < r->out + ROPE_QUANTS; q++) {
        if (q->quant == NULL || !quant_out_wanted(q->quant)) continue;
        cost.bytes -= (double)tensor_bytes(q->plain); /* which the output's own cost has */
        quant_out_cost(&cost, q->quant, q->plain);
    }
    return cost;
}

/* The gradient of a key that all heads share: the sum over heads, rotated back. */
static void shared_backward(const RopePart *p, const Angle *t, int64_t wide, int64_t heads)
{
    float sum[HEAD_MAX], buffer[HEAD_MAX];
    memset(sum, 0, (size_t)p->n * sizeof *sum);
    for (int64_t h = 0; h < p->count; h++) {
        const float *x = row_load(p->heads, heads + h * p->heads_step, p->n, buffer);
#pragma omp simd
        for (int64_t i = 0; i < p->n; i++) sum[i] += x[i];
    }
    rotate_part(t, sum, buffer, p->n);
    row_store(p->wide, wide, p->n, buffer);
}

/* Runs one part for one token. A key that all heads share is rotated once, for head 0, and copied
 * to the other heads. */
static void rope_part_run(const Rope *r, const RopePart *p, const Angle *t, int64_t row)
{
    int64_t wide = row * tensor_row_elems(p->wide) + p->wide_col;
    int64_t heads = row * tensor_row_elems(p->heads) + p->heads_col, first = heads;
    if (r->back && p->wide_step == 0) {
        shared_backward(p, t, wide, heads);
        return;
    }
    for (int64_t h = 0; h < p->count; h++, wide += p->wide_step, heads += p->heads_step) {
        const Tensor *from = r->back ? p->heads : p->wide, *to = r->back ? p->wide : p->heads;
        int64_t at = r->back ? heads : wide, to_at = r->back ? wide : heads;
        if (p->wide_step == 0 && h > 0)
            copy_columns(to, first, to, to_at, p->n);
        else if (p->turned && t->sign != 0)
            rotate_columns(t, from, at, to, to_at, p->n);
        else if (p->tempered)
            scale_columns(t, from, at, to, to_at, p->n);
        else
            copy_columns(from, at, to, to_at, p->n);
    }
}

size_t rope_workspace(const Exec *ex, const Rope *r)
{
    size_t bytes = 0;
    for (const RopeQuant *q = r->out; q < r->out + ROPE_QUANTS; q++)
        if (q->quant != NULL) bytes += quant_out_workspace(ex, q->quant, q->plain);
    return bytes;
}

/* Positions are checked against the tables before any row is touched: a thread cannot report an error. */
Status rope_cpu(Exec *ex, const Rope *rope)
{
    Rope open = *rope, *r = &open;
    Tensor plain[ROPE_QUANTS];
    char *space[ROPE_QUANTS];
    rope_open(ex, r, ex->workspace, plain, space, quant_out_workspace);
    int64_t n = rope_wide(r)->dim[0];
    if (r->pos->data != NULL) TRY(index_check(r->op, "pos", r->pos, r->cos->dim[0]));
#pragma omp parallel for num_threads(ex->threads) schedule(static)
    for (int64_t row = 0; row < n; row++) {
        Angle t = angle_at(r, row);
        for (int i = 0; i < ROPE_PARTS; i++) {
            const RopePart *p = &r->part[i];
            if (p->wide->data != NULL && p->n > 0) rope_part_run(r, p, &t, row);
        }
    }
    for (int i = 0; i < ROPE_QUANTS; i++)
        if (r->out[i].quant != NULL)
            TRY(quant_out_cpu(ex, r->out[i].quant, r->out[i].plain, space[i]));
    return OK;
}

OP_PORTS(rope_mla_fwd, IN_OPT(RopeMlaFwd, q), IN_OPT(RopeMlaFwd, kv), IN_OPT(RopeMlaFwd, k_rope),
         IN_OPT(RopeMlaFwd, pos), IN(RopeMlaFwd, cos), IN(RopeMlaFwd, sin),
         OUT_OPT(RopeMlaFwd, q_out), OUT_OPT(RopeMlaFwd, k_out), OUT_OPT(RopeMlaFwd, v_out));
OP_PORTS(rope_mla_bwd, IN_OPT(RopeMlaBwd, dq_out), IN_OPT(RopeMlaBwd, dk_out),
         IN_OPT(RopeMlaBwd, dv_out), IN_OPT(RopeMlaBwd, pos), IN(RopeMlaBwd, cos),
         IN(RopeMlaBwd, sin), OUT_PART_OPT(RopeMlaBwd, dq), OUT_OPT(RopeMlaBwd, dkv),
         OUT_PART_OPT(RopeMlaBwd, dk_rope), OUT_OPERAND_OPT(RopeMlaBwd, dq_quant.rows),
         OUT_OPERAND_OPT(RopeMlaBwd, dq_quant.columns), OUT_OPERAND_OPT(RopeMlaBwd, dkv_quant.rows),
         OUT_OPERAND_OPT(RopeMlaBwd, dkv_quant.columns));
OP_PORTS(rope_gqa_fwd, IN(RopeGqaFwd, qkv), IN_OPT(RopeGqaFwd, q), IN_OPT(RopeGqaFwd, k),
         IN(RopeGqaFwd, pos), IN(RopeGqaFwd, cos), IN(RopeGqaFwd, sin), OUT(RopeGqaFwd, q_out),
         OUT(RopeGqaFwd, k_out), OUT(RopeGqaFwd, v_out));
OP_PORTS(rope_gqa_bwd, IN(RopeGqaBwd, dq_out), IN(RopeGqaBwd, dk_out), IN(RopeGqaBwd, dv_out),
         IN(RopeGqaBwd, pos), IN(RopeGqaBwd, cos), IN(RopeGqaBwd, sin),
         OUT_PART_OPT(RopeGqaBwd, dqkv), OUT_OPT(RopeGqaBwd, dq), OUT_OPT(RopeGqaBwd, dk),
         OUT_OPERAND_OPT(RopeGqaBwd, quant.rows), OUT_OPERAND_OPT(RopeGqaBwd, quant.columns));
