/*
 * delta_rule: the recurrence on the CPU, token by token. Forward: a thread owns a value head of a sequence, whose state
 * (Dk, Dv) stays in its L2 cache. Backward: a thread owns a key head of a sequence with all value heads that share it.
 * It runs forward once more and notes the state at every CHUNK-th token. Then it takes the chunks from the last to the
 * first, makes the states of a chunk again, and walks back through it. Sums have one order, whatever the number of
 * threads: gradients of A and dt are summed by sequence and head, then over sequences.
 */
#include "engine/base/order.h"
#include "kernels/core/cpu_math.h"
#include "kernels/delta/delta_check.h"

#include <assert.h>
#include <omp.h>

#ifdef HOSTILE
enum { CHUNK = 3 };
#else
enum { CHUNK = 64 };
#endif

static const float NORM_EPS = 1e-6f; /* of q and k, as Qwen3-Next's */

/* Of each run and head (Dk, width), or none. */
static Status state_check(const char *op, const char *name, const DeltaRuleFwd *a, const Tensor *t,
                          int64_t width)
{
    if (t->data == NULL) return OK;
    return op_expect(op, name, t, a->x.dim[0] / a->sequence, a->dims.heads * a->dims.key * width,
                     DTYPE_F32);
}

static Status rule_check(const char *op, const DeltaRuleFwd *a, const char *o)
{
    const DeltaDims *d = &a->dims;
    TRY(delta_check_x(op, &a->x, d));
    TRY(delta_check_doc(op, &a->x, &a->doc, a->sequence));
    TRY(op_expect(op, "qkv", &a->qkv, a->x.dim[0], delta_qkv_cols(d), a->x.dtype));
    if (o != NULL) TRY(op_expect(op, o, &a->o, a->x.dim[0], d->heads * d->value, a->x.dtype));
    TRY(op_expect(op, "decay", &a->decay, 1, 2 * d->heads, DTYPE_F32));
    return state_check(op, "state", a, &a->state, d->value);
}

/* Three products of a state of so many columns with a vector for each token and head: S^T k, k (beta e)^T, S^T q.
 * Backward has six, and makes the states again with two. tensors: how often qkv, o and the gates cross memory. */
static OpCost rule_cost(const DeltaRuleFwd *a, double products, int64_t width, double tensors)
{
    const DeltaDims *d = &a->dims;
    const double rows = (double)a->x.dim[0], heads = (double)d->heads;
    const double gates = 2 * heads * rows * (double)dtype_bytes(a->x.dtype);
    return (OpCost){ .flops = products * 2 * rows * heads * (double)(d->key * width),
                     .bytes = tensors * (double)(tensor_bytes(&a->qkv) + tensor_bytes(&a->o)) +
                              tensors * gates + (double)tensor_bytes(&a->decay),
                     .work = WORK_DELTA,
                     .dtype = a->x.dtype,
                     .size = (double)least(d->key, d->value) };
}

/* One value head of a sequence: its state, and what it reads of the current token. */
typedef struct Head {
    DeltaRuleFwd a;
    int64_t b, h, width;                 /* of the state: Dv, of a span Dv + Dk */
    float *state;                        /* (Dk, width) */
    float *q, *k, *v, *update;           /* (Dk), (Dk), (width), (width); update: beta e */
    float q_scale, q_inverse, k_inverse; /* of q and k: 1 / length; q is scaled by Dk^-1/2, too */
    float alpha, log_alpha, beta, gate;  /* gate: sigmoid(a + dt), the slope of softplus */
    int64_t q_at, k_at, v_at, b_at, a_at, o_at; /* first elements in qkv, x and o */
} Head;

/* Floats of one thread; `at` NULL: only counts them. */
typedef struct Floats {
    float *at;
    int64_t used;
} Floats;

/* The next n, from a cache line on. */
static float *take(Floats *of, int64_t n)
{
    float *out = of->at == NULL ? NULL : of->at + of->used;
    of->used += (n + 15) / 16 * 16;
    return out;
}

static Head head_make(const DeltaRuleFwd *a, int64_t width, Floats *of)
{
    const DeltaDims *d = &a->dims;
    return (Head){ .a = *a,
                   .width = width,
                   .q_scale = 1 / sqrtf((float)d->key),
                   .state = take(of, d->key * width),
                   .q = take(of, d->key),
                   .k = take(of, d->key),
                   .v = take(of, width),
                   .update = take(of, width) };
}

/* Its state begins as zeros, or as the one that is given, to which `back` then writes it. */
static void head_choose(Head *f, int64_t b, int64_t h, bool back)
{
    const int64_t n = f->a.dims.key * f->a.dims.value;
    float *given = f->a.state.data;
    f->b = b, f->h = h;
    assert(f->state != NULL);
    if (given == NULL && !back) memset(f->state, 0, (size_t)n * sizeof *given);
    if (given != NULL) given += (b * f->a.dims.heads + h) * n;
    if (given != NULL)
        memcpy(back ? given : f->state, back ? f->state : given, (size_t)n * sizeof *given);
}

static float dot(const float *x, const float *y, int64_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static void load(const Tensor *t, int64_t at, int64_t n, float *to)
{
    const float *x = row_load(t, at, n, to);
    if (x != to) memcpy(to, x, (size_t)n * sizeof *to);
}

static void store(const Tensor *t, int64_t at, int64_t n, const float *from)
{
    dtype_from_f32(tensor_at(t, at), t->dtype, from, n);
}

/* to = x times the inverse of its length, which is returned, and `scale`. */
static float load_unit(const Tensor *t, int64_t at, int64_t n, float scale, float *to)
{
    load(t, at, n, to);
    const float inverse = 1 / sqrtf(dot(to, to, n) + NORM_EPS);
    for (int64_t i = 0; i < n; i++) to[i] *= inverse * scale;
    return inverse;
}

/* alpha is 0 for the first token of a document. */
static void load_token(Head *f, int64_t t)
{
    const DeltaDims *d = &f->a.dims;
    const int64_t row = f->b * f->a.sequence + t, keys = d->key_heads * d->key;
    const float *decay = f->a.decay.data;
    f->q_at = row * delta_qkv_cols(d) + f->h / delta_shared(d) * d->key;
    f->k_at = f->q_at + keys;
    f->v_at = row * delta_qkv_cols(d) + 2 * keys + f->h * d->value;
    f->b_at = row * delta_x_cols(d) + delta_b_at(d, f->h);
    f->a_at = f->b_at + delta_shared(d);
    f->o_at = (row * d->heads + f->h) * d->value;
    f->q_inverse = load_unit(&f->a.qkv, f->q_at, d->key, f->q_scale, f->q);
    f->k_inverse = load_unit(&f->a.qkv, f->k_at, d->key, 1, f->k);
    load(&f->a.qkv, f->v_at, d->value, f->v);
    float a, b;
    load(&f->a.x, f->a_at, 1, &a);
    load(&f->a.x, f->b_at, 1, &b);
    a += decay[d->heads + f->h];
    f->beta = 1 / (1 + exp_f32(-b));
    f->log_alpha = -exp_f32(decay[f->h]) * (a > 20 ? a : log1pf(exp_f32(a)));
    f->gate = 1 / (1 + exp_f32(-a));
    const bool given = f->a.doc.data == NULL && f->a.state.data != NULL;
    const int64_t position = delta_position(f->a.first, row, f->a.sequence);
    const bool begins = !given && delta_first(&f->a.doc, row) == position;
    f->alpha = begins ? 0 : exp_f32(f->log_alpha);
}

/* state = alpha state,  e = v - state^T k,  state += k (beta e)^T. Leaves e in f->v and beta e in f->update. */
static void step_state(Head *f)
{
    const int64_t key = f->a.dims.key, value = f->width;
    float *e = f->v, *update = f->update;
    for (int64_t i = 0; i < key; i++) {
        float *row = f->state + i * value;
        const float k = f->k[i], alpha = f->alpha;
#pragma omp simd
        for (int64_t j = 0; j < value; j++) {
            row[j] *= alpha;
            e[j] -= k * row[j];
        }
    }
    for (int64_t j = 0; j < value; j++) update[j] = f->beta * e[j];
    for (int64_t i = 0; i < key; i++) {
        float *row = f->state + i * value;
        const float k = f->k[i];
#pragma omp simd
        for (int64_t j = 0; j < value; j++) row[j] += k * update[j];
    }
}

/* Forward. */

Status delta_rule_fwd_check(const DeltaRuleFwd *a) { return rule_check("delta_rule_fwd", a, "o"); }

OpCost delta_rule_fwd_cost(const DeltaRuleFwd *a) { return rule_cost(a, 3, a->dims.value, 1); }

size_t delta_rule_fwd_workspace(const Exec *ex, const DeltaRuleFwd *a)
{
    Floats each = { 0 };
    (void)head_make(a, a->dims.value, &each);
    return (size_t)(ex->threads * each.used) * sizeof(float);
}

/* o = S^T q, in f->v, whose e is used up. */
static void read_state(Head *f)
{
    const int64_t key = f->a.dims.key, value = f->a.dims.value;
    float *o = f->v;
    memset(o, 0, (size_t)value * sizeof *o);
    for (int64_t i = 0; i < key; i++) {
        const float *row = f->state + i * value, q = f->q[i];
#pragma omp simd
        for (int64_t j = 0; j < value; j++) o[j] += q * row[j];
    }
    store(&f->a.o, f->o_at, value, o);
}

Status delta_rule_fwd_cpu(Exec *ex, const DeltaRuleFwd *a)
{
    const int64_t heads = a->dims.heads, sequences = a->x.dim[0] / a->sequence;
    Floats each = { 0 };
    (void)head_make(a, a->dims.value, &each);
#pragma omp parallel num_threads(ex->threads)
    {
        Floats own = { .at = (float *)ex->workspace + omp_get_thread_num() * each.used };
        Head f = head_make(a, a->dims.value, &own);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < sequences * heads; i++) {
            head_choose(&f, i / heads, i % heads, false);
            for (int64_t t = 0; t < a->sequence; t++) {
                load_token(&f, t);
                step_state(&f);
                read_state(&f);
            }
            head_choose(&f, i / heads, i % heads, true);
        }
    }
    return OK;
}

OP_PORTS(delta_rule_fwd, IN(DeltaRuleFwd, qkv), IN(DeltaRuleFwd, x), IN(DeltaRuleFwd, decay),
         IN_OPT(DeltaRuleFwd, doc), OUT(DeltaRuleFwd, o), ADD_OPT(DeltaRuleFwd, state));

/* Backward. */

/* One thread's memory. */
typedef struct Backward {
    Head f;
    const DeltaRuleBwd *a;
    float *begin;    /* (chunks, Dk, Dv): the state before each chunk */
    float *states;   /* (CHUNK + 1, Dk, Dv): before each token of a chunk, and after the last */
    float *errors;   /* (CHUNK, Dv): e of each token of a chunk */
    float *dstate;   /* (Dk, Dv) */
    float *dq, *dk;  /* (T, Dk): sums over the value heads that share the key head */
    float *d_o, *du; /* (Dv) */
    float dA, ddt;   /* sums over the tokens of a head */
} Backward;

static int64_t chunks_of(const DeltaRuleBwd *a) { return (a->of.sequence + CHUNK - 1) / CHUNK; }

static Backward backward_make(const DeltaRuleBwd *a, Floats *of)
{
    const int64_t key = a->of.dims.key, value = a->of.dims.value;
    return (Backward){ .f = head_make(&a->of, value, of),
                       .a = a,
                       .begin = take(of, chunks_of(a) * key * value),
                       .states = take(of, (CHUNK + 1) * key * value),
                       .errors = take(of, CHUNK * value),
                       .dstate = take(of, key * value),
                       .dq = take(of, a->of.sequence * key),
                       .dk = take(of, a->of.sequence * key),
                       .d_o = take(of, value),
                       .du = take(of, value) };
}

Status delta_rule_bwd_check(const DeltaRuleBwd *a)
{
    const char *op = "delta_rule_bwd";
    TRY(rule_check(op, &a->of, "d_o"));
    TRY(state_check(op, "dstate", &a->of, &a->dstate, a->of.dims.value));
    TRY(op_expect(op, "dqkv", &a->dqkv, a->of.x.dim[0], tensor_cols(&a->of.qkv), a->of.x.dtype));
    return delta_check_dx(op, &a->of.x, &a->dx, &a->of.decay, &a->ddecay);
}

OpCost delta_rule_bwd_cost(const DeltaRuleBwd *a)
{
    return rule_cost(&a->of, 6, a->of.dims.value, 2);
}

/* Sums of dA and ddt, two for each head of each sequence, lie before the threads' memory. */
static int64_t decay_sums(const DeltaRuleFwd *a)
{
    return a->x.dim[0] / a->sequence * 2 * a->dims.heads;
}

size_t delta_rule_bwd_workspace(const Exec *ex, const DeltaRuleBwd *a)
{
    Floats each = { 0 };
    (void)backward_make(a, &each);
    return (size_t)(decay_sums(&a->of) + ex->threads * each.used) * sizeof(float);
}

/* dS += q do^T,  du = dS^T k,  dq += S do. `after`: the state after the token. */
static void pull_output(Backward *f, const float *after, float *dq)
{
    const int64_t key = f->a->of.dims.key, value = f->a->of.dims.value;
    memset(f->du, 0, (size_t)value * sizeof *f->du);
    for (int64_t i = 0; i < key; i++) {
        float *d = f->dstate + i * value, *du = f->du;
        const float *d_o = f->d_o, q = f->f.q[i], k = f->f.k[i];
        dq[i] += f->f.q_scale * dot(after + i * value, d_o, value);
#pragma omp simd
        for (int64_t j = 0; j < value; j++) {
            d[j] += q * d_o[j];
            du[j] += k * d[j];
        }
    }
}

/* dk += dS (beta e) - S' dv,  dS' = dS - k dv^T,  d log(alpha) = <dS', S'>,  dS = alpha dS', S' = alpha S of before the
 * token. du holds dv. */
static float pull_state(Backward *f, const float *before, float *dk)
{
    const int64_t key = f->a->of.dims.key, value = f->a->of.dims.value;
    const float alpha = f->f.alpha, *update = f->f.update, *dv = f->du;
    float slope = 0;
    for (int64_t i = 0; i < key; i++) {
        float *d = f->dstate + i * value, sum = 0, with = 0;
        const float *s = before + i * value, k = f->f.k[i];
#pragma omp simd reduction(+ : sum, with)
        for (int64_t j = 0; j < value; j++) {
            const float decayed = alpha * s[j];
            sum += d[j] * update[j] - decayed * dv[j];
            d[j] -= k * dv[j];
            with += d[j] * decayed;
            d[j] *= alpha;
        }
        dk[i] += sum;
        slope += with;
    }
    return slope;
}

/* Gradients of b and a, and of the head's A and dt. */
static void store_gates(Backward *f, float dbeta, float slope)
{
    const Head *h = &f->f;
    const float decay = exp_f32(((const float *)h->a.decay.data)[h->h]);
    const float db = dbeta * h->beta * (1 - h->beta), da = -slope * decay * h->gate;
    store(&f->a->dx, h->b_at, 1, &db);
    store(&f->a->dx, h->a_at, 1, &da);
    f->dA += slope * h->log_alpha;
    f->ddt += da;
}

/* One token; `before` and behind it lie the states before and after it. f->f has e and beta e. */
static void pull_token(Backward *f, int64_t t, const float *before)
{
    Head *h = &f->f;
    const int64_t key = f->a->of.dims.key, value = f->a->of.dims.value;
    load(&h->a.o, h->o_at, value, f->d_o);
    pull_output(f, before + key * value, f->dq + t * key);
    const float dbeta = dot(f->du, h->v, value);
    for (int64_t j = 0; j < value; j++) f->du[j] *= h->beta;
    store_gates(f, dbeta, pull_state(f, before, f->dk + t * key));
    store(&f->a->dqkv, h->v_at, value, f->du);
}

/* The chunk of tokens [first, end): forward, then back. */
static void pull_chunk(Backward *f, int64_t first, int64_t end)
{
    Head *h = &f->f;
    const int64_t value = f->a->of.dims.value, state = f->a->of.dims.key * value;
    const size_t bytes = (size_t)state * sizeof *f->states, row = (size_t)value * sizeof *h->v;
    memcpy(h->state, f->begin + first / CHUNK * state, bytes);
    memcpy(f->states, h->state, bytes);
    for (int64_t i = 0; i < end - first; i++) {
        load_token(h, first + i);
        step_state(h);
        memcpy(f->errors + i * value, h->v, row);
        memcpy(f->states + (i + 1) * state, h->state, bytes);
    }
    for (int64_t i = end - first - 1; i >= 0; i--) {
        load_token(h, first + i);
        memcpy(h->v, f->errors + i * value, row);
        for (int64_t j = 0; j < value; j++) h->update[j] = h->beta * h->v[j];
        pull_token(f, first + i, f->states + i * state);
    }
}

static void pull_head(Backward *f, int64_t b, int64_t h, float *sums)
{
    const int64_t state = f->a->of.dims.key * f->a->of.dims.value, sequence = f->a->of.sequence;
    const size_t bytes = (size_t)state * sizeof *f->dstate;
    head_choose(&f->f, b, h, false);
    for (int64_t t = 0; t < sequence; t++) {
        if (t % CHUNK == 0) memcpy(f->begin + t / CHUNK * state, f->f.state, bytes);
        load_token(&f->f, t);
        step_state(&f->f);
    }
    float *behind = f->a->dstate.data;
    if (behind != NULL) behind += (b * f->a->of.dims.heads + h) * state;
    memset(f->dstate, 0, bytes);
    if (behind != NULL) memcpy(f->dstate, behind, bytes);
    f->dA = f->ddt = 0;
    for (int64_t chunk = chunks_of(f->a) - 1; chunk >= 0; chunk--)
        pull_chunk(f, chunk * CHUNK, least(chunk * CHUNK + CHUNK, sequence));
    if (behind != NULL) memcpy(behind, f->dstate, bytes);
    sums[h] = f->dA;
    sums[f->a->of.dims.heads + h] = f->ddt;
}

/* The gradient of x through x / |x|:  dx = (d - u (u . d)) / |x|,  u = x / |x|. `scale`: the length of u. */
static void store_unit(const Tensor *to, int64_t at, int64_t n, const float *u, float scale,
                       float inverse, float *d)
{
    const float along = dot(u, d, n) / (scale * scale);
    for (int64_t i = 0; i < n; i++) d[i] = inverse * (d[i] - along * u[i]);
    store(to, at, n, d);
}

/* All value heads of one key head of a sequence. */
static void pull_key_head(Backward *f, int64_t b, int64_t key_head, float *sums)
{
    const DeltaDims *d = &f->a->of.dims;
    const int64_t shared = delta_shared(d), n = f->a->of.sequence * d->key;
    assert(f->dq != NULL && f->dk != NULL);
    memset(f->dq, 0, (size_t)n * sizeof *f->dq);
    memset(f->dk, 0, (size_t)n * sizeof *f->dk);
    for (int64_t i = 0; i < shared; i++) pull_head(f, b, key_head * shared + i, sums);
    for (int64_t t = 0; t < f->a->of.sequence; t++) {
        Head *h = &f->f;
        load_token(h, t);
        store_unit(&f->a->dqkv, h->q_at, d->key, h->q, h->q_scale, h->q_inverse,
                   f->dq + t * d->key);
        store_unit(&f->a->dqkv, h->k_at, d->key, h->k, 1, h->k_inverse, f->dk + t * d->key);
    }
}

Status delta_rule_bwd_cpu(Exec *ex, const DeltaRuleBwd *a)
{
    const int64_t G = a->of.dims.key_heads, sequences = a->of.x.dim[0] / a->of.sequence;
    const int64_t decays = 2 * a->of.dims.heads;
    float *sums = ex->workspace, *add = a->ddecay.data;
    Floats each = { 0 };
    (void)backward_make(a, &each);
#pragma omp parallel num_threads(ex->threads)
    {
        Floats own = { .at = sums + decay_sums(&a->of) + omp_get_thread_num() * each.used };
        Backward f = backward_make(a, &own);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < sequences * G; i++)
            pull_key_head(&f, i / G, i % G, sums + i / G * decays);
    }
    for (int64_t i = 0; add != NULL && i < decays; i++)
        for (int64_t b = 0; b < sequences; b++) add[i] += sums[b * decays + i];
    return OK;
}

OP_PORTS(delta_rule_bwd, { "d_o", offsetof(DeltaRuleBwd, of.o), PORT_IN }, IN(DeltaRuleBwd, of.qkv),
         IN(DeltaRuleBwd, of.x), IN(DeltaRuleBwd, of.decay), IN_OPT(DeltaRuleBwd, of.doc),
         IN_OPT(DeltaRuleBwd, of.state), OUT(DeltaRuleBwd, dqkv), OUT_PART(DeltaRuleBwd, dx),
         ADD_OPT(DeltaRuleBwd, ddecay), ADD_OPT(DeltaRuleBwd, dstate));

/* Spans: all runs of a head with B and M as one state of Dv + Dk columns, which begins as zeros and ones. A row of M is
 * a value that no token brings, so it is what the state before the run becomes. */

static int64_t span_width(const DeltaDims *d) { return d->value + d->key; }

Status delta_span_fwd_check(const DeltaSpanFwd *a)
{
    TRY(rule_check("delta_span_fwd", &a->of, NULL));
    return state_check("delta_span_fwd", "span", &a->of, &a->span, span_width(&a->of.dims));
}

OpCost delta_span_fwd_cost(const DeltaSpanFwd *a)
{
    OpCost cost = rule_cost(&a->of, 2, span_width(&a->of.dims), 1);
    cost.bytes += (double)tensor_bytes(&a->span);
    return cost;
}

size_t delta_span_fwd_workspace(const Exec *ex, const DeltaSpanFwd *a)
{
    Floats each = { 0 };
    (void)head_make(&a->of, span_width(&a->of.dims), &each);
    return (size_t)(ex->threads * each.used) * sizeof(float);
}

static void span_forward(Head *f, float *span)
{
    const int64_t key = f->a.dims.key, value = f->a.dims.value, width = f->width;
    memset(f->state, 0, (size_t)(key * width) * sizeof *span);
    for (int64_t i = 0; i < key; i++) f->state[i * width + value + i] = 1;
    for (int64_t t = 0; t < f->a.sequence; t++) {
        load_token(f, t);
        memset(f->v + value, 0, (size_t)key * sizeof *span);
        step_state(f);
    }
    memcpy(span, f->state, (size_t)(key * width) * sizeof *span);
}

/* d_o becomes what a token reads, and f->state the gradient of the state before the run: C. */
static void span_backward(Head *f, float *span)
{
    const int64_t key = f->a.dims.key, value = f->a.dims.value;
    float *d_o = f->v, *dv = f->update;
    memset(f->state, 0, (size_t)(key * value) * sizeof *span);
    for (int64_t t = f->a.sequence - 1; t >= 0; t--) {
        load_token(f, t);
        load(&f->a.o, f->o_at, value, d_o);
        memset(dv, 0, (size_t)value * sizeof *dv);
        for (int64_t i = 0; i < key; i++) {
            float *d = f->state + i * value;
            const float q = f->q[i], k = f->k[i] * f->beta;
#pragma omp simd
            for (int64_t j = 0; j < value; j++) {
                d[j] += q * d_o[j];
                dv[j] += k * d[j];
            }
        }
        for (int64_t i = 0; i < key; i++) {
            float *d = f->state + i * value;
            const float k = f->k[i], alpha = f->alpha;
#pragma omp simd
            for (int64_t j = 0; j < value; j++) d[j] = alpha * (d[j] - k * dv[j]);
        }
    }
    for (int64_t i = 0; i < key; i++)
        memcpy(span + i * (value + key), f->state + i * value, (size_t)value * sizeof *span);
}

/* For each head of each run. */
static void for_spans(Exec *ex, const DeltaRuleFwd *a, int64_t width, const Tensor *span,
                      void (*run)(Head *f, float *span))
{
    const int64_t heads = a->dims.heads, n = a->x.dim[0] / a->sequence * heads;
    const int64_t size = a->dims.key * span_width(&a->dims);
    Floats each = { 0 };
    (void)head_make(a, width, &each);
#pragma omp parallel num_threads(ex->threads)
    {
        Floats own = { .at = (float *)ex->workspace + omp_get_thread_num() * each.used };
        Head f = head_make(a, width, &own);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < n; i++) {
            f.b = i / heads, f.h = i % heads;
            run(&f, (float *)span->data + i * size);
        }
    }
}

Status delta_span_fwd_cpu(Exec *ex, const DeltaSpanFwd *a)
{
    for_spans(ex, &a->of, span_width(&a->of.dims), &a->span, span_forward);
    return OK;
}

OP_PORTS(delta_span_fwd, IN(DeltaSpanFwd, of.qkv), IN(DeltaSpanFwd, of.x),
         IN(DeltaSpanFwd, of.decay), IN_OPT(DeltaSpanFwd, of.doc), OUT(DeltaSpanFwd, span));

Status delta_span_bwd_check(const DeltaSpanBwd *a)
{
    TRY(rule_check("delta_span_bwd", &a->of, "d_o"));
    return state_check("delta_span_bwd", "span", &a->of, &a->span, span_width(&a->of.dims));
}

OpCost delta_span_bwd_cost(const DeltaSpanBwd *a)
{
    OpCost cost = rule_cost(&a->of, 3, a->of.dims.value, 1);
    cost.bytes += (double)tensor_bytes(&a->span);
    return cost;
}

size_t delta_span_bwd_workspace(const Exec *ex, const DeltaSpanBwd *a)
{
    return delta_rule_fwd_workspace(ex, &a->of);
}

Status delta_span_bwd_cpu(Exec *ex, const DeltaSpanBwd *a)
{
    for_spans(ex, &a->of, a->of.dims.value, &a->span, span_backward);
    return OK;
}

OP_PORTS(delta_span_bwd, { "d_o", offsetof(DeltaSpanBwd, of.o), PORT_IN }, IN(DeltaSpanBwd, of.qkv),
         IN(DeltaSpanBwd, of.x), IN(DeltaSpanBwd, of.decay), IN_OPT(DeltaSpanBwd, of.doc),
         ADD(DeltaSpanBwd, span));
