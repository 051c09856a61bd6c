/*
 * moe_case: the experts by their definition, in double: for each token, for each of its slots, the
 * expert that the slot names, with no sorting. What a tensor holds between two ops is rounded to
 * the tensor's type, so that one op is compared at a time and not the roundings before it.
 */
#ifndef KERNELS_OP_MOE_CASE_H
#define KERNELS_OP_MOE_CASE_H

#include "harness/optest.h"

#include "kernels/core/op.h"

typedef struct MoeSizes {
    int64_t N, K, E, D, F;
    int64_t pad; /* rows of every buffer past the last routed one */
} MoeSizes;

/* All tensors of the ops. Without b1, b2 there are no biases, with limit 0 the activation is SwiGLU
 * and with an infinite one GELU: moe_form gives both. */
typedef struct Moe {
    MoeSizes s;
    Dtype act;
    Rows rows;
    Tensor x, w1, w2, weight, dy, shared, residual;
    Tensor index, offsets, row_token, row_slot, slot_row;
    Tensor pre, act_rows, out, y;
    Tensor dpre, wact, dweight, dx_rows, dx, dw1, dw2;
    Tensor b1, b2, db1, db2;
    float limit;
    int32_t live;
} Moe;

/* The same values per slot or token, in double. */
typedef struct MoeReference {
    double *pre, *act, *out, *y;
    double *dpre, *wact, *dweight, *dx_slots, *dx, *dw1, *dw2, *db1, *db2;
} MoeReference;

static inline int64_t moe_slots(const MoeSizes *s) { return s->N * s->K; }

/* Rows that do not count stay NaN, which the guard would refuse: it is taken away. */
static inline void moe_open(OpTest *t, int threads)
{
    optest_open(t, threads);
    optest_unguard(t);
}

static inline int moe_set_up(void **state)
{
    (void)optest_set_up(state);
    optest_unguard(*state);
    return 0;
}

#define MOE_TEST(name, threads)                                                                    \
    cmocka_unit_test_prestate_setup_teardown(name, moe_set_up, optest_tear_down, &(int){ threads })

static inline Tensor moe_values(OpTest *t, Dtype type, int64_t rows, int64_t cols, bool integers)
{
    return integers ? optest_signs(t, type, DIMS(rows, cols))
                    : optest_normal(t, type, DIMS(rows, cols));
}

/* The weights of an expert: small enough that gates are not all shut or open. */
static inline Tensor moe_weights(OpTest *t, Dtype type, MoeSizes s, int64_t rows, int64_t cols,
                                 bool integers)
{
    Tensor w = moe_values(t, type, s.E * rows, cols, integers);
    for (int64_t i = 0; !integers && i < tensor_elems(&w); i++) {
        optest_set(&w, i, optest_get(&w, i) / sqrt((double)cols));
    }
    w.rank = 3, w.dim[0] = s.E, w.dim[1] = rows, w.dim[2] = cols;
    return w;
}

/* Give slots to experts in the given numbers, in an order that has nothing to do with either. */
static inline void moe_deal(Moe *m, const int64_t *group)
{
    int64_t slot = 0, slots = moe_slots(&m->s);
    for (int64_t e = 0; e < m->s.E; e++) {
        for (int64_t i = 0; i < group[e]; i++, slot++) {
            uint64_t at = rng_permute(11, 0, (uint64_t)slot, (uint64_t)slots);
            optest_set(&m->index, (int64_t)at, (double)e);
        }
    }
    CHECK_INT(slot, slots);
}

static inline Moe moe_make(OpTest *t, Dtype act, MoeSizes s, const int64_t *group, bool integers)
{
    int64_t slots = moe_slots(&s), R = slots + s.pad;
    Moe m = { .s = s, .act = act, .rows = { .bound = R } };
    m.x = moe_values(t, act, s.N, s.D, integers);
    m.w1 = moe_weights(t, act, s, 2 * s.F, s.D, integers);
    m.w2 = moe_weights(t, act, s, s.D, s.F, integers);
    m.dy = moe_values(t, act, s.N, s.D, integers);
    m.shared = moe_values(t, act, s.N, s.D, integers);
    m.residual = moe_values(t, act, s.N, s.D, integers);
    m.weight = moe_values(t, DTYPE_F32, s.N, s.K, integers);
    for (int64_t i = 0; !integers && i < slots; i++) { /* as routing weights are: nothing cancels */
        optest_set(&m.weight, i, 0.1 + fabs(optest_get(&m.weight, i)));
    }
    m.index = optest_poisoned(t, DTYPE_I32, DIMS(s.N, s.K));
    moe_deal(&m, group);
    m.offsets = optest_poisoned(t, DTYPE_I32, DIMS(1, s.E + 1));
    m.row_token = optest_poisoned(t, DTYPE_I32, DIMS(R));
    m.row_slot = optest_poisoned(t, DTYPE_I32, DIMS(R));
    m.slot_row = optest_poisoned(t, DTYPE_I32, DIMS(s.N, s.K));
    m.pre = optest_poisoned(t, act, DIMS(R, 2 * s.F));
    m.act_rows = optest_poisoned(t, act, DIMS(R, s.F));
    m.out = optest_poisoned(t, act, DIMS(R, s.D));
    m.y = optest_poisoned(t, act, DIMS(s.N, s.D));
    m.dpre = optest_poisoned(t, act, DIMS(R, 2 * s.F));
    m.wact = optest_poisoned(t, act, DIMS(R, s.F));
    m.dweight = optest_poisoned(t, DTYPE_F32, DIMS(s.N, s.K));
    m.dx_rows = optest_poisoned(t, act, DIMS(R, s.D));
    m.dx = optest_poisoned(t, act, DIMS(s.N, s.D));
    m.dw1 = moe_values(t, DTYPE_F32, s.E * 2 * s.F, s.D, integers);
    m.dw2 = moe_values(t, DTYPE_F32, s.E * s.D, s.F, integers);
    return m;
}

static inline Glu glu_of(float limit)
{
    return isinf(limit) ? glu_gelu() : limit > 0 ? glu_clamped(limit) : (Glu){ 0 };
}

/* Makes gpt-oss' experts of m. Without `given` they keep no biases. */
static inline void moe_form(OpTest *t, Moe *m, bool given, float limit)
{
    m->limit = limit;
    if (!given) return;
    m->b1 = moe_values(t, m->act, m->s.E, 2 * m->s.F, false);
    m->b2 = moe_values(t, m->act, m->s.E, m->s.D, false);
    m->db1 = moe_values(t, DTYPE_F32, m->s.E, 2 * m->s.F, false);
    m->db2 = moe_values(t, DTYPE_F32, m->s.E, m->s.D, false);
}

static inline Status moe_sort_run(OpTest *t, const Moe *m)
{
    return moe_sort(&t->ex, (MoeSort){ .index = m->index,
                                       .offsets = m->offsets,
                                       .row_token = m->row_token,
                                       .row_slot = m->row_slot,
                                       .slot_row = m->slot_row });
}

static inline MoeUpFwd moe_up_fwd_of(const Moe *m)
{
    return (MoeUpFwd){ .x = operand_plain(m->x),
                       .w = operand_plain(m->w1),
                       .offsets = m->offsets,
                       .row_token = m->row_token,
                       .pre = operand_plain(m->pre),
                       .act = operand_plain(m->act_rows),
                       .bias = m->b1,
                       .rows = m->rows,
                       .glu = glu_of(m->limit) };
}

static inline MoeDownFwd moe_down_fwd_of(const Moe *m)
{
    return (MoeDownFwd){ .act = operand_plain(m->act_rows),
                         .w = operand_plain(m->w2),
                         .offsets = m->offsets,
                         .out = m->out,
                         .bias = m->b2,
                         .rows = m->rows };
}

static inline MoeDownBwdInput moe_down_bwd_input_of(const Moe *m)
{
    return (MoeDownBwdInput){ .dy = operand_plain(m->dy),
                              .w = operand_plain(m->w2),
                              .pre = operand_plain(m->pre),
                              .offsets = m->offsets,
                              .row_token = m->row_token,
                              .row_slot = m->row_slot,
                              .weight = m->weight,
                              .dpre = operand_plain(m->dpre),
                              .wact = operand_plain(m->wact),
                              .dweight = m->dweight,
                              .bias = m->b2,
                              .rows = m->rows,
                              .glu = glu_of(m->limit) };
}

static inline MoeDownBwdWeight moe_down_bwd_weight_of(const Moe *m)
{
    return (MoeDownBwdWeight){ .dy = operand_plain(m->dy),
                               .wact = operand_plain(m->wact),
                               .offsets = m->offsets,
                               .row_token = m->row_token,
                               .dw = m->dw2,
                               .rows = m->rows };
}

static inline MoeUpBwdInput moe_up_bwd_input_of(const Moe *m)
{
    return (MoeUpBwdInput){ .dpre = operand_plain(m->dpre),
                            .w = operand_plain(m->w1),
                            .offsets = m->offsets,
                            .dx = m->dx_rows,
                            .rows = m->rows };
}

static inline MoeUpBwdWeight moe_up_bwd_weight_of(const Moe *m)
{
    return (MoeUpBwdWeight){ .dpre = operand_plain(m->dpre),
                             .x = operand_plain(m->x),
                             .offsets = m->offsets,
                             .row_token = m->row_token,
                             .dw = m->dw1,
                             .rows = m->rows };
}

static inline MoeBiasBwd moe_up_bias_of(const Moe *m)
{
    return (MoeBiasBwd){ .dy = m->dpre, .offsets = m->offsets, .db = m->db1, .rows = m->rows };
}

static inline MoeBiasBwd moe_down_bias_of(const Moe *m)
{
    MoeBiasBwd a = { .dy = m->dy,
                     .offsets = m->offsets,
                     .row_token = m->row_token,
                     .row_slot = m->row_slot,
                     .weight = m->weight,
                     .db = m->db2,
                     .rows = m->rows };
    a.rows.first = NULL;
    return a;
}

static inline void moe_forward(OpTest *t, const Moe *m)
{
    CHECK_OK(moe_up_fwd(&t->ex, moe_up_fwd_of(m)));
    CHECK_OK(moe_down_fwd(&t->ex, moe_down_fwd_of(m)));
    CHECK_OK(moe_combine(&t->ex, (MoeCombine){ .out = m->out,
                                               .slot_row = m->slot_row,
                                               .weight = m->weight,
                                               .shared = m->shared,
                                               .residual = m->residual,
                                               .y = m->y }));
}

static inline void moe_backward(OpTest *t, const Moe *m)
{
    CHECK_OK(moe_down_bwd_input(&t->ex, moe_down_bwd_input_of(m)));
    CHECK_OK(moe_down_bwd_weight(&t->ex, moe_down_bwd_weight_of(m)));
    CHECK_OK(moe_up_bwd_input(&t->ex, moe_up_bwd_input_of(m)));
    CHECK_OK(moe_up_bwd_weight(&t->ex, moe_up_bwd_weight_of(m)));
    if (m->b1.data != NULL) CHECK_OK(moe_bias_bwd(&t->ex, moe_up_bias_of(m)));
    if (m->b2.data != NULL) CHECK_OK(moe_bias_bwd(&t->ex, moe_down_bias_of(m)));
    CHECK_OK(moe_combine(&t->ex,
                         (MoeCombine){ .out = m->dx_rows, .slot_row = m->slot_row, .y = m->dx }));
}

/* v as a tensor of the type would hold it. */
static inline double rounded_to(Dtype type, double v)
{
    return type == DTYPE_F32 ? (double)(float)v : (double)f32_from_bf16(bf16_from_f32((float)v));
}

static inline double sigmoid(double g) { return 1 / (1 + exp(-g)); }

/* act of a gate and an up. Its slopes, where they are wanted. */
static inline double activation(double limit, double gate, double up, double slope[2])
{
    if (isinf(limit)) {
        double c = sqrt(2 / M_PI), th = tanh(c * (gate + 0.044715 * gate * gate * gate));
        double inner = c * (1 + 3 * 0.044715 * gate * gate);
        if (slope != NULL) {
            slope[0] = up * ((1 + th) / 2 + gate / 2 * (1 - th * th) * inner);
            slope[1] = gate * (1 + th) / 2;
        }
        return up * gate * (1 + th) / 2;
    }
    double L = limit > 0 ? limit : (double)INFINITY, a = limit > 0 ? 1.702 : 1,
           one = limit > 0 ? 1 : 0;
    double g = fmin(gate, L), u = fmax(-L, fmin(up, L)), s = sigmoid(a * g);
    if (slope != NULL) {
        slope[0] = gate > L ? 0 : (u + one) * s * (1 + a * g * (1 - s));
        slope[1] = fabs(up) > L ? 0 : g * s;
    }
    return (u + one) * g * s;
}

/* 0 if there are no biases. */
static inline double bias_at(const Tensor *b, int64_t i)
{
    return b->data == NULL ? 0 : optest_get(b, i);
}

/* Token n through expert e, as slot `slot` sees it. */
static inline void reference_expert(const Moe *m, const MoeReference *r, int64_t slot, int64_t e)
{
    int64_t D = m->s.D, F = m->s.F, n = slot / m->s.K;
    double *pre = r->pre + slot * 2 * F, *act = r->act + slot * F, *out = r->out + slot * D;
    for (int64_t f = 0; f < 2 * F; f++) {
        pre[f] = bias_at(&m->b1, e * 2 * F + f);
        for (int64_t d = 0; d < D; d++) {
            pre[f] += optest_get(&m->w1, (e * 2 * F + f) * D + d) * optest_get(&m->x, n * D + d);
        }
    }
    for (int64_t f = 0; f < F; f++) {
        act[f] = rounded_to(m->act, activation((double)m->limit, pre[f], pre[F + f], NULL));
        pre[f] = rounded_to(m->act, pre[f]), pre[F + f] = rounded_to(m->act, pre[F + f]);
    }
    for (int64_t d = 0; d < D; d++) {
        out[d] = bias_at(&m->b2, e * D + d);
        for (int64_t f = 0; f < F; f++) out[d] += optest_get(&m->w2, (e * D + d) * F + f) * act[f];
        out[d] = rounded_to(m->act, out[d]);
        r->y[n * D + d] += optest_get(&m->weight, slot) * out[d];
    }
}

/* The same backward: what slot `slot` adds to every gradient. */
static inline void reference_expert_gradient(const Moe *m, const MoeReference *r, int64_t slot,
                                             int64_t e)
{
    int64_t D = m->s.D, F = m->s.F, n = slot / m->s.K;
    const double *pre = r->pre + slot * 2 * F;
    double *dpre = r->dpre + slot * 2 * F, *wact = r->wact + slot * F;
    double *dx = r->dx_slots + slot * D, weight = optest_get(&m->weight, slot);
    r->dweight[slot] = 0;
    for (int64_t f = 0; f < F; f++) {
        double slope[2], act = activation((double)m->limit, pre[f], pre[F + f], slope), da = 0;
        for (int64_t d = 0; d < D; d++) {
            da += optest_get(&m->dy, n * D + d) * optest_get(&m->w2, (e * D + d) * F + f);
        }
        r->dweight[slot] += da * act;
        wact[f] = rounded_to(m->act, weight * act);
        dpre[f] = rounded_to(m->act, weight * da * slope[0]);
        dpre[F + f] = rounded_to(m->act, weight * da * slope[1]);
        for (int64_t d = 0; d < D; d++) {
            r->dw2[(e * D + d) * F + f] += optest_get(&m->dy, n * D + d) * wact[f];
        }
    }
    for (int64_t f = 0; m->b1.data != NULL && f < 2 * F; f++) r->db1[e * 2 * F + f] += dpre[f];
    for (int64_t d = 0; d < D; d++) {
        double dy = optest_get(&m->dy, n * D + d);
        r->dweight[slot] += dy * bias_at(&m->b2, e * D + d);
        if (m->b2.data != NULL) r->db2[e * D + d] += weight * dy;
        dx[d] = 0;
        for (int64_t f = 0; f < 2 * F; f++) {
            int64_t at = (e * 2 * F + f) * D + d;
            dx[d] += dpre[f] * optest_get(&m->w1, at);
            r->dw1[at] += dpre[f] * optest_get(&m->x, n * D + d);
        }
        dx[d] = rounded_to(m->act, dx[d]);
        r->dx[n * D + d] += dx[d];
    }
}

/* Call it before the ops run: weight gradients go on from what stands there. */
static inline MoeReference moe_reference(OpTest *t, const Moe *m)
{
    int64_t slots = moe_slots(&m->s), D = m->s.D, F = m->s.F, K = m->s.K;
    MoeReference r = { .pre = optest_doubles(t, slots * 2 * F),
                       .act = optest_doubles(t, slots * F),
                       .out = optest_doubles(t, slots * D),
                       .y = optest_doubles(t, m->s.N * D),
                       .dpre = optest_doubles(t, slots * 2 * F),
                       .wact = optest_doubles(t, slots * F),
                       .dweight = optest_doubles(t, slots),
                       .dx_slots = optest_doubles(t, slots * D),
                       .dx = optest_doubles(t, m->s.N * D),
                       .dw1 = optest_read(t, &m->dw1),
                       .dw2 = optest_read(t, &m->dw2) };
    if (m->b1.data != NULL) r.db1 = optest_read(t, &m->db1), r.db2 = optest_read(t, &m->db2);
    for (int64_t n = 0; n < m->s.N; n++) {
        for (int64_t d = n * D; d < (n + 1) * D; d++) {
            r.dx[d] = 0;
            r.y[d] = optest_get(&m->shared, d) + optest_get(&m->residual, d);
        }
        for (int64_t slot = n * K; slot < (n + 1) * K; slot++) {
            int64_t e = (int64_t)optest_get(&m->index, slot);
            reference_expert(m, &r, slot, e);
            reference_expert_gradient(m, &r, slot, e);
        }
    }
    return r;
}

/* What the rows of a buffer should hold, from what the slots do. */
static inline double *by_row(OpTest *t, const Moe *m, const double *slots, int64_t cols)
{
    int64_t n = moe_slots(&m->s);
    double *out = optest_doubles(t, n * cols);
    for (int64_t r = 0; r < n; r++) {
        int64_t slot = (int64_t)optest_get(&m->row_slot, r);
        memcpy(out + r * cols, slots + slot * cols, (size_t)cols * sizeof *out);
    }
    return out;
}

enum { GROUPS_MAX = 70 };

typedef struct Deal {
    MoeSizes s;
    int64_t group[GROUPS_MAX]; /* rows of each expert */
} Deal;

/* N, K, E, D, F, pad. Sizes are primes and one past a tile or a piece: 256 rows, 256 columns of D,
 * 512 rows of a sum, 256 columns of F. */
static const Deal deals[] = {
    { { 226, 2, 8, 33, 17, 5 }, { 0, 1, 63, 64, 65, 127, 129, 3 } },
    { { 700, 1, 4, 257, 11, 0 }, { 0, 0, 700, 0 } },
    { { 205, 3, 7, 13, 11, 1 }, { 237, 119, 79, 60, 47, 40, 33 } }, /* Zipf */
    { { 1, 1, 3, 1, 1, 3 }, { 0, 0, 1 } },
    { { 5, 3, 2, 7, 257, 2 }, { 6, 9 } },
    /* widths that are multiples of 8: in bf16 tensor cores multiply on a GPU */
    { { 226, 2, 8, 264, 136, 5 }, { 0, 1, 63, 64, 65, 127, 129, 3 } },
    { { 700, 1, 4, 520, 72, 0 }, { 0, 0, 700, 0 } },
    { { 205, 3, 7, 8, 16, 1 }, { 237, 119, 79, 60, 47, 40, 33 } },
    { { 71, 1, 70, 8, 16, 1 },
      { [0] = 1, [63] = 30, [64] = 33, [69] = 7 } }, /* over a warp of experts */
};

enum { DEALS = sizeof deals / sizeof *deals, WIDE = 5 };

/* The same groups for each kernel: plain, and on a GPU tensor cores. */
typedef struct KernelCase {
    Dtype act;
    int deal;
} KernelCase;

static const KernelCase kernel_cases[] = { { DTYPE_F32, 0 }, { DTYPE_BF16, WIDE } };

enum { KERNEL_CASES = sizeof kernel_cases / sizeof *kernel_cases };

static inline Moe deal_make(OpTest *t, Dtype act, const Deal *d, bool integers)
{
    Moe m = moe_make(t, act, d->s, d->group, integers);
    CHECK_OK(moe_sort_run(t, &m));
    return m;
}

static inline void check_untouched(const char *name, const Tensor *t, int64_t first_row)
{
    Tensor rest = tensor_rows(t, first_row, t->dim[0] - first_row);
    const unsigned char *byte = rest.data;
    for (size_t i = 0; i < tensor_bytes(&rest); i++) {
        if (byte[i] != 0xFF)
            fail_msg("%s: byte %zu past row %lld is written", name, i, (long long)first_row);
    }
}

/* Case i of so many, made with 1, 2 and 5 threads, gives the same bits. */
static inline void moe_check_threads(Moe (*make)(OpTest *t, int i), int cases)
{
    const int threads[] = { 1, 2, 5 };
    for (int i = 0; i < cases; i++) {
        OpTest t[3];
        Moe m[3];
        for (int k = 0; k < 3; k++) {
            moe_open(&t[k], threads[k]);
            m[k] = make(&t[k], i);
            moe_forward(&t[k], &m[k]);
            moe_backward(&t[k], &m[k]);
        }
        for (int k = 1; k < 3; k++) {
            const Tensor *have[] = { &m[k].y,   &m[k].dx,  &m[k].dweight, &m[k].dw1,
                                     &m[k].dw2, &m[k].db1, &m[k].db2 };
            const Tensor *want[] = { &m[0].y,   &m[0].dx,  &m[0].dweight, &m[0].dw1,
                                     &m[0].dw2, &m[0].db1, &m[0].db2 };
            for (int j = 0; j < 7; j++) {
                CHECK(j >= 5 || want[j]->data != NULL);
                if (want[j]->data != NULL) CHECK_SAME(have[j], want[j]);
            }
        }
        for (int k = 0; k < 3; k++) optest_close(&t[k]);
    }
}

#endif
