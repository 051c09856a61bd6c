/* head_loss against the definition in double. */
#include "harness/optest.h"

#include "head_split.h"
#include "kernels/head/head_private.h"
#include "operand_case.h"

typedef struct Sizes {
    int64_t N, V, D;
} Sizes;

/* One word, primes, one past a tile, and rows of logits longer than are worked on at a time. On a
 * GPU: whole packs of 16 bytes, and rows that fill shared memory and go beyond it. */
static const Sizes sizes[] = {
    { 1, 2, 1 },    { 5, 1, 3 },    { 13, 7, 23 },    { 129, 33, 17 },   { 31, 1031, 16 },
    { 6, 2049, 8 }, { 9, 1032, 5 }, { 4, 50000, 16 }, { 4, 131080, 16 },
};

enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct Reference {
    double *loss, *dx, *dw, loss_sum;
} Reference;

static double *zeros(OpTest *t, int64_t n)
{
    double *x = optest_doubles(t, n);
    for (int64_t i = 0; i < n; i++) x[i] = 0;
    return x;
}

/* Normal numbers; in bf16 on a grid of 1/64 and below 4, so that sums of a hundred products are
 * exact in f32 in any order: everybody then rounds a logit to the same bf16. */
static Tensor draw(OpTest *t, Dtype act, int64_t rows, int64_t cols)
{
    Tensor x = optest_normal(t, act, DIMS(rows, cols));
    for (int64_t i = 0; act == DTYPE_BF16 && i < rows * cols; i++) {
        optest_set(&x, i, fmin(4, fmax(-4, round(64 * optest_get(&x, i)) / 64)));
    }
    return x;
}

static HeadLoss make_args(OpTest *t, const Sizes *s, Dtype act)
{
    HeadLoss a = { .x = draw(t, act, s->N, s->D),
                   .w = operand_plain(draw(t, act, s->V, s->D)),
                   .target = optest_integers(t, DTYPE_I32, DIMS(s->N), 0, s->V),
                   .scale = optest_normal(t, DTYPE_F32, DIMS(1)),
                   .loss = optest_poisoned(t, DTYPE_F32, DIMS(s->N)),
                   .loss_sum = optest_normal(t, DTYPE_F32, DIMS(1)),
                   .dx = optest_poisoned(t, act, DIMS(s->N, s->D)),
                   .dw = optest_normal(t, DTYPE_F32, DIMS(s->V, s->D)),
                   .chunk = 8 };
    optest_set(&a.scale, 0, 0.37);
    for (int64_t n = 3; n < s->N; n += 5) optest_set(&a.target, n, -1);
    return a;
}

/* The call in double: what the op reads, and room for a row of logits. Gradients are sums over the
 * rows [first, end) of w. */
typedef struct Problem {
    int64_t N, V, D, first, end;
    const double *x, *w, *target;
    double scale, *p;
    bool narrow; /* logits are rounded to bf16 */
} Problem;

static Problem problem_of(OpTest *t, const HeadLoss *a)
{
    Problem p = { .N = tensor_elems(&a->target), .D = tensor_cols(&a->w.data) };
    p.V = p.end = tensor_elems(&a->w.data) / p.D;
    p.narrow = a->x.dtype == DTYPE_BF16;
    p.x = optest_read(t, &a->x), p.w = optest_read(t, &a->w.data);
    p.target = optest_read(t, &a->target), p.scale = optest_get(&a->scale, 0);
    p.p = optest_doubles(t, p.V);
    return p;
}

/* loss = lse(logits) - logits[target]; p becomes the softmax. */
static double token_loss(const Problem *p, int64_t n)
{
    if (p->target[n] < 0) return 0;
    double max = -INFINITY, sum = 0;
    for (int64_t v = 0; v < p->V; v++) {
        p->p[v] = 0;
        for (int64_t d = 0; d < p->D; d++) p->p[v] += p->x[n * p->D + d] * p->w[v * p->D + d];
        if (p->narrow) p->p[v] = (double)f32_from_bf16(bf16_from_f32((float)p->p[v]));
        max = fmax(max, p->p[v]);
    }
    double at_target = p->p[(int64_t)p->target[n]];
    for (int64_t v = 0; v < p->V; v++) sum += p->p[v] = exp(p->p[v] - max);
    for (int64_t v = 0; v < p->V; v++) p->p[v] /= sum;
    return max - at_target + log(sum);
}

static void add_gradients(const Problem *p, int64_t n, Reference *r)
{
    for (int64_t v = p->first; v < p->end && p->target[n] >= 0; v++) {
        double dlogit = (p->p[v] - (v == (int64_t)p->target[n])) * p->scale;
        for (int64_t d = 0; d < p->D; d++) {
            r->dx[n * p->D + d] += dlogit * p->w[v * p->D + d];
            r->dw[v * p->D + d] += dlogit * p->x[n * p->D + d];
        }
    }
}

/* What the call must leave behind: dw and loss_sum on top of what is there now. part: which of
 * `ranks` has run it. */
static Reference reference_of(OpTest *t, const HeadLoss *a, int part, int ranks)
{
    Problem p = problem_of(t, a);
    p.first = part * p.V / ranks, p.end = (part + 1) * p.V / ranks;
    Reference r = { .loss = optest_doubles(t, p.N),
                    .dx = zeros(t, p.N * p.D),
                    .dw = a->dw.data == NULL ? zeros(t, p.V * p.D) : optest_read(t, &a->dw),
                    .loss_sum = optest_get(&a->loss_sum, 0) };
    for (int64_t n = 0; n < p.N; n++) {
        r.loss[n] = token_loss(&p, n);
        r.loss_sum += p.scale * r.loss[n];
        add_gradients(&p, n, &r);
    }
    return r;
}

static Reference reference(OpTest *t, const HeadLoss *a) { return reference_of(t, a, 0, 1); }

static void check_losses(const HeadLoss *a, const Reference *r)
{
    for (int64_t n = 0; n < tensor_elems(&a->target); n++) {
        CHECK_NEAR(optest_get(&a->loss, n), r->loss[n], 2e-6 * (1 + fabs(r->loss[n])));
    }
    CHECK_NEAR(optest_get(&a->loss_sum, 0), r->loss_sum, 1e-5 * (1 + fabs(r->loss_sum)));
}

/* dx is a sum of V terms. gemm adds 256 of them or more to C at a time, which rounds dx by less than
 * the usual limit. With small limits it adds 3 at a time: that alone puts a row of V = 131080 off
 * by 1.3e-5, as the same sums of exact gradients of logits show. Our kernels for GPUs add term by
 * term. An addition is rounded by at most u = 2^-24 of the sum so far. Here these sums are hardly
 * longer than dx, so V roundings of mean 0 have a standard deviation of at most sqrt(V) u (Higham and
 * Mary, "A new approach to probabilistic rounding error analysis", SISC 2019). Two of these are
 * allowed: 4.3e-5 at V = 131080. */
static const double GPU_ROUNDING = 2 * 0x1p-24;
#ifdef HOSTILE
static const double SUM_ROUNDING = 2 * 0x1p-24;
#else
static const double SUM_ROUNDING = 0;
#endif

static void check_all(const HeadLoss *a, const Reference *r)
{
    double limit = optest_limit(LIMIT_PLAIN, a->x.dtype); /* for dw too: dlogits are rounded */
    double terms = (double)a->w.data.dim[0];
    check_losses(a, r);
    CHECK_TENSOR_WITHIN(&a->dx, r->dx, limit + SUM_ROUNDING * sqrt(terms));
    CHECK_TENSOR_WITHIN(&a->dw, r->dw, limit);
}

static void loss_and_gradients_match_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < SIZES * 2; i++) {
        HeadLoss a = make_args(t, &sizes[i / 2], i % 2 ? DTYPE_BF16 : DTYPE_F32);
        Reference r = reference(t, &a);
        CHECK_OK(head_loss(&t->ex, a));
        check_all(&a, &r);
    }
}

static void evaluation_gives_the_losses_of_training(void **state)
{
    OpTest *t = *state;
    HeadLoss train = make_args(t, &sizes[4], DTYPE_F32), eval = train;
    eval.loss = optest_poisoned(t, DTYPE_F32, train.loss.dim);
    eval.loss_sum = optest_copy(t, &train.loss_sum);
    eval.dx = eval.dw = (Tensor){ 0 };
    CHECK_OK(head_loss(&t->ex, train));
    CHECK_OK(head_loss(&t->ex, eval));
    CHECK_SAME(&eval.loss, &train.loss);
    CHECK_SAME(&eval.loss_sum, &train.loss_sum);
}

/* dx alone: a head whose weights are frozen. */
static void the_weight_gradient_is_optional(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[3], DTYPE_F32);
    a.dw = (Tensor){ 0 };
    Reference r = reference(t, &a);
    CHECK_OK(head_loss(&t->ex, a));
    check_losses(&a, &r);
    CHECK_TENSOR(&a.dx, r.dx);
}

static void any_chunk_gives_the_same_result(void **state)
{
    OpTest *t = *state;
    const int64_t chunks[] = { 1, 7, 129, 1000 }; /* 129 tokens */
    for (int i = 0; i < 8; i++) {
        t->drawn = 0;
        HeadLoss a = make_args(t, &sizes[3], i & 1 ? DTYPE_BF16 : DTYPE_F32);
        a.chunk = chunks[i / 2];
        Reference r = reference(t, &a);
        CHECK_OK(head_loss(&t->ex, a));
        check_all(&a, &r);
    }
}

/* More rows than a GPU works on at a time. */
static void a_chunk_of_many_rows_matches_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        HeadLoss a = make_args(t, &(Sizes){ 613, 520, 33 }, i == 0 ? DTYPE_F32 : DTYPE_BF16);
        a.chunk = 600;
        Reference r = reference(t, &a);
        CHECK_OK(head_loss(&t->ex, a));
        check_all(&a, &r);
    }
}

/* In bf16 neighbours of 32 lie 1/4 apart. */
static void logits_are_rounded_to_the_type_of_x(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &(Sizes){ 1, 2, 2 }, DTYPE_BF16);
    const double x[2] = { 32, 1 }, w[4] = { 1, 0.0625, 1, 0 };
    optest_write(&a.x, x);
    optest_write(&a.w.data, w);
    optest_set(&a.target, 0, 0);
    CHECK_OK(head_loss(&t->ex, a)); /* 32.0625 and 32 */
    CHECK_NEAR(optest_get(&a.loss, 0), log(2), 1e-6);
}

static void a_chunk_that_nobody_chose_depends_on_device_vocabulary_and_type(void **state)
{
    (void)state;
    CHECK_INT(head_chunk(7, true, 102400, DTYPE_BF16), 7);
    CHECK_INT(head_chunk(7, false, 102400, DTYPE_BF16), 7);
    CHECK_INT(head_chunk(0, false, 102400, DTYPE_BF16), 512);
    CHECK_INT(head_chunk(0, true, 102400, DTYPE_BF16), 4096); /* 839 MB */
    CHECK_INT(head_chunk(0, true, 65536, DTYPE_BF16), 8192);  /* 1 GiB */
    CHECK_INT(head_chunk(0, true, 65537, DTYPE_BF16), 4096);
    CHECK_INT(head_chunk(0, true, 65536, DTYPE_F32), 4096);
    CHECK_INT(head_chunk(0, true, 32000, DTYPE_F32), 8192);
    CHECK_INT(head_chunk(0, true, 1000000, DTYPE_BF16), 4096); /* more than 1 GiB */
}

/* A chunk of logits takes the bytes of x's type. */
static void bf16_logits_take_half_the_room(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &(Sizes){ 64, 512, 2 }, DTYPE_BF16);
    HeadLoss wide = make_args(t, &(Sizes){ 64, 512, 2 }, DTYPE_F32);
    a.chunk = wide.chunk = 64;
    CHECK_INT(head_logits_bytes(&a), 64 * 512 * 2);
    CHECK_INT(head_logits_bytes(&wide), 64 * 512 * 4);
}

static double total(const Problem *p)
{
    double sum = 0;
    for (int64_t n = 0; n < p->N; n++) sum += p->scale * token_loss(p, n);
    return sum;
}

static double total_of_x(const void *context, const double *x)
{
    Problem p = *(const Problem *)context;
    p.x = x;
    return total(&p);
}

static double total_of_w(const void *context, const double *w)
{
    Problem p = *(const Problem *)context;
    p.w = w;
    return total(&p);
}

static void gradients_are_the_slopes_of_the_loss(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[2], DTYPE_F32);
    memset(a.dw.data, 0, tensor_bytes(&a.dw));
    Problem p = problem_of(t, &a);
    double *x = optest_read(t, &a.x), *w = optest_read(t, &a.w.data);
    double *dx = optest_doubles(t, p.N * p.D), *dw = optest_doubles(t, p.V * p.D);
    optest_slopes(total_of_x, &p, x, p.N * p.D, dx);
    optest_slopes(total_of_w, &p, w, p.V * p.D, dw);
    CHECK_OK(head_loss(&t->ex, a));
    CHECK_TENSOR(&a.dx, dx);
    CHECK_TENSOR(&a.dw, dw);
}

static void huge_logits_do_not_overflow(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[3], DTYPE_F32);
    for (int64_t i = 0; i < tensor_elems(&a.x); i++) optest_set(&a.x, i, 1e4 * optest_get(&a.x, i));
    Reference r = reference(t, &a);
    CHECK_OK(head_loss(&t->ex, a));
    for (int64_t n = 0; n < tensor_elems(&a.target); n++) {
        CHECK_NEAR(optest_get(&a.loss, n), r.loss[n], 0.1); /* 1e-6 of logits of 1e5 */
    }
    for (int64_t i = 0; i < tensor_elems(&a.dx); i++) CHECK(isfinite(optest_get(&a.dx, i)));
    for (int64_t i = 0; i < tensor_elems(&a.dw); i++) CHECK(isfinite(optest_get(&a.dw, i)));
}

static void an_ignored_token_leaves_no_trace(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[1], DTYPE_BF16);
    for (int64_t n = 0; n < tensor_elems(&a.target); n++) optest_set(&a.target, n, -1);
    Tensor dw = optest_copy(t, &a.dw), sum = optest_copy(t, &a.loss_sum);
    CHECK_OK(head_loss(&t->ex, a));
    for (int64_t n = 0; n < tensor_elems(&a.target); n++) CHECK(optest_get(&a.loss, n) == 0);
    for (int64_t i = 0; i < tensor_elems(&a.dx); i++) CHECK(optest_get(&a.dx, i) == 0);
    CHECK_SAME(&a.dw, &dw);
    CHECK_SAME(&a.loss_sum, &sum);
}

static void a_target_outside_the_vocabulary_is_an_error_that_names_the_token(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[2], DTYPE_F32);
    optest_set(&a.target, 4, 7);
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "the target of token 4 is 7, outside -1 .. 6");
    optest_set(&a.target, 4, -2);
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "token 4 is -2");
}

static void wrong_arguments_are_errors_that_name_the_tensor(void **state)
{
    OpTest *t = *state;
    const HeadLoss good = make_args(t, &sizes[3], DTYPE_F32);
    HeadLoss a = good;
    a.chunk = 0;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "chunk is 0");
    a = good, a.dx.data = NULL;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "dw is set but dx is not");
    a = good, a.x.dim[1]++;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: x is");
    a = good, a.w.data.dtype = DTYPE_BF16;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: w is");
    a = good, a.loss.dim[0]--;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: loss is");
    a = good, a.dw.dim[0]--;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_SHAPE, "head_loss: dw is");
}

static void a_weight_with_scales_is_refused_by_name(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &sizes[3], DTYPE_F32);
    CHECK_INT(operands_refused(t, OP_HEAD_LOSS, &a), 1);
}

static void costs_are_three_products_and_every_tensor_once(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &(Sizes){ 4, 10, 3 }, DTYPE_BF16);
    OpCost cost = op_desc(OP_HEAD_LOSS)->cost(&a);
    CHECK_NEAR(cost.flops, 3 * 2 * 4 * 10 * 3, 0);
    double scalars = 4 + 2 * 4; /* scale, and loss_sum, which is added to */
    CHECK_NEAR(cost.bytes, 2 * 12 * 2 + 30 * 2 + 2 * 4 * 4 + 2 * 30 * 4 + scalars, 0);
    a.dx = a.dw = (Tensor){ 0 };
    cost = op_desc(OP_HEAD_LOSS)->cost(&a);
    CHECK_NEAR(cost.flops, 2 * 4 * 10 * 3, 0);
    CHECK_NEAR(cost.bytes, 12 * 2 + 30 * 2 + 2 * 4 * 4 + scalars, 0);
}

/* A vocabulary that ranks split. Targets: drawn, some of them -1, and the first and last number of
 * each part; all in the second part; none. */
typedef enum Targets { TARGETS_ALL, TARGETS_OF_ONE, TARGETS_NONE } Targets;

static const struct SplitCase {
    Sizes s;
    int ranks;
    int64_t chunk;
    Targets targets;
} split_cases[] = {
    { { 1, 4, 3 }, 4, 8, TARGETS_ALL },           { { 1, 66, 11 }, 2, 1, TARGETS_OF_ONE },
    { { 13, 8, 23 }, 2, 8, TARGETS_ALL },         { { 129, 44, 17 }, 4, 50, TARGETS_ALL },
    { { 129, 44, 17 }, 4, 1000, TARGETS_OF_ONE }, { { 31, 4128, 16 }, 4, 7, TARGETS_ALL },
    { { 9, 4098, 8 }, 2, 4, TARGETS_NONE },       { { 5, 131072, 16 }, 2, 3, TARGETS_ALL },
    { { 613, 520, 33 }, 2, 600, TARGETS_ALL },
};
enum { SPLIT_CASES = sizeof split_cases / sizeof *split_cases };

/* With x a quarter as large no probability is near 1: then 1 - p, and dx with it, would be what
 * roundings of p leave. */
static HeadLoss split_args(OpTest *t, const struct SplitCase *c, Dtype act)
{
    HeadLoss a = make_args(t, &c->s, act);
    int64_t V = c->s.V / c->ranks;
    a.chunk = c->chunk;
    for (int64_t i = 0; i < tensor_elems(&a.x); i++) optest_set(&a.x, i, optest_get(&a.x, i) / 4);
    for (int64_t n = 0; n < c->s.N; n++) {
        int64_t edge = n / 2 * V - n % 2; /* 0, -1 (ignored), V, V - 1, 2V, 2V - 1 ... */
        double drawn = optest_get(&a.target, n);
        if (c->targets == TARGETS_ALL && edge < c->s.V) drawn = (double)edge;
        if (c->targets == TARGETS_OF_ONE && drawn >= 0) drawn = (double)(V + (int64_t)drawn % V);
        if (c->targets == TARGETS_NONE) drawn = -1;
        optest_set(&a.target, n, drawn);
    }
    return a;
}

/* The ranks' dw, one behind the other. */
static Tensor split_dw(OpTest *t, const Split *s)
{
    const Tensor *part = &s->part[0].a.dw;
    Tensor all = optest_poisoned(t, DTYPE_F32, DIMS(s->ranks * part->dim[0], tensor_cols(part)));
    for (int r = 0; r < s->ranks; r++) {
        memcpy(tensor_at(&all, r * tensor_elems(part)), s->part[r].a.dw.data, tensor_bytes(part));
    }
    return all;
}

/* Each rank's loss, its part of the sum dx, and its rows of dw. The last rank alone adds the loss.
 * In bf16 dlogits are rounded, like attention's probabilities. Without the target's row a part of dx
 * is often a sum of few of them, so errors do not average out. */
static void check_split(OpTest *t, const Split *s, const HeadLoss *whole)
{
    double limit = optest_limit(LIMIT_PLAIN, whole->x.dtype);
    double few = optest_limit(LIMIT_ATTENTION, whole->x.dtype);
    double rounding = s->on_gpu ? GPU_ROUNDING : SUM_ROUNDING;
    int last = s->ranks - 1;
    for (int i = 0; i < s->ranks; i++) {
        const HeadLoss *a = &s->part[i].a;
        Reference r = reference_of(t, whole, i, s->ranks);
        int64_t rows = a->w.data.dim[0];
        CHECK_TENSOR_WITHIN(&a->dx, r.dx, few + rounding * sqrt((double)rows));
        CHECK_TENSOR_WITHIN(&a->dw, r.dw + a->vocab_first * tensor_cols(&a->dw), limit);
        CHECK_SAME(&a->loss, &s->part[last].a.loss);
        if (i < last) CHECK_SAME(&a->loss_sum, &whole->loss_sum);
        if (i == last) check_losses(a, &r);
    }
}

/* The CPU's one rank with the whole vocabulary is held to the same reference. */
static void check_split_cases(OpTest *t, bool on_gpu)
{
    static Split s;
    for (int i = 0; i < SPLIT_CASES * 2; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        const struct SplitCase *c = &split_cases[i / 2];
        HeadLoss whole = split_args(t, c, i % 2 ? DTYPE_BF16 : DTYPE_F32), one = whole;
        if (on_gpu && !mirror_affords(op_desc(OP_HEAD_LOSS), &whole)) continue;
        Reference r = reference(t, &whole);
        split_open(&s, c->ranks, on_gpu);
        split_cut(&s, &whole);
        CHECK_OK(split_run(&s));
        check_split(t, &s, &whole);
        one.loss_sum = optest_copy(t, &whole.loss_sum), one.dw = optest_copy(t, &whole.dw);
        CHECK_OK(head_loss(&t->ex, one));
        check_all(&one, &r);
        split_close(&s);
        arena_release(&t->arena, mark);
    }
}

static void ranks_that_split_the_vocabulary_match_double(void **state)
{
    check_split_cases(*state, false);
}

static void so_they_do_on_gpus(void **state)
{
    if (!gpu_built() || gpu_devices() == 0) skip();
    check_split_cases(*state, true);
}

static void a_split_vocabulary_gives_the_same_bits_in_every_run(void **state)
{
    OpTest *t = *state;
    static Split s;
    HeadLoss whole = split_args(t, &split_cases[3], DTYPE_BF16);
    Tensor loss[2], dx[2][4], dw[2];
    for (int run = 0; run < 2; run++) {
        split_open(&s, 4, false);
        split_cut(&s, &whole);
        CHECK_OK(split_run(&s));
        loss[run] = optest_copy(t, &s.part[0].a.loss);
        for (int i = 0; i < 4; i++) dx[run][i] = optest_copy(t, &s.part[i].a.dx);
        dw[run] = split_dw(t, &s);
        split_close(&s);
    }
    CHECK_SAME(&loss[0], &loss[1]);
    for (int i = 0; i < 4; i++) CHECK_SAME(&dx[0][i], &dx[1][i]);
    CHECK_SAME(&dw[0], &dw[1]);
}

/* Without dx and dw. */
static void evaluation_over_a_split_vocabulary_gives_the_losses(void **state)
{
    OpTest *t = *state;
    static Split s;
    HeadLoss whole = split_args(t, &split_cases[3], DTYPE_F32);
    Reference r = reference(t, &whole);
    whole.dx = whole.dw = (Tensor){ 0 };
    for (int gpu = 0; gpu <= (gpu_built() && gpu_devices() > 0); gpu++) {
        split_open(&s, 4, gpu);
        split_cut(&s, &whole);
        CHECK_OK(split_run(&s));
        check_losses(&s.part[3].a, &r);
        for (int i = 0; i < 3; i++) {
            CHECK_SAME(&s.part[i].a.loss, &s.part[3].a.loss);
            CHECK_SAME(&s.part[i].a.loss_sum, &whole.loss_sum);
        }
        split_close(&s);
    }
}

/* The largest logits of two parts lie thousands apart. */
static void huge_logits_of_a_split_vocabulary_do_not_overflow(void **state)
{
    OpTest *t = *state;
    static Split s;
    HeadLoss whole = split_args(t, &split_cases[2], DTYPE_F32);
    for (int64_t i = 0; i < tensor_elems(&whole.x); i++)
        optest_set(&whole.x, i, 1e4 * optest_get(&whole.x, i));
    Reference r = reference(t, &whole);
    for (int gpu = 0; gpu <= (gpu_built() && gpu_devices() > 0); gpu++) {
        split_open(&s, 2, gpu);
        split_cut(&s, &whole);
        CHECK_OK(split_run(&s));
        for (int64_t n = 0; n < whole.target.dim[0]; n++)
            CHECK_NEAR(optest_get(&s.part[0].a.loss, n), r.loss[n], 0.1);
        Tensor dx = s.part[0].a.dx, dw = split_dw(t, &s);
        for (int64_t i = 0; i < tensor_elems(&dx); i++) CHECK(isfinite(optest_get(&dx, i)));
        for (int64_t i = 0; i < tensor_elems(&dw); i++) CHECK(isfinite(optest_get(&dw, i)));
        split_close(&s);
    }
}

static void a_part_that_is_not_the_rank_s_own_is_an_error(void **state)
{
    OpTest *t = *state;
    static Split s;
    HeadLoss whole = split_args(t, &split_cases[2], DTYPE_F32), a = whole; /* 8 rows, 2 ranks */
    split_open(&s, 2, false);
    split_cut(&s, &whole);
    s.part[0].a.vocab_first = 4, s.part[1].a.vocab_first = 0;
    CHECK_FAILS(split_run(&s), ERR_ARG, "rows from");
    split_close(&s);
    split_open(&s, 2, false);
    split_cut(&s, &whole);
    optest_set(&whole.target, 4, 8);
    CHECK_FAILS(split_run(&s), ERR_ARG, "the target of token 4 is 8, outside -1 .. 7");
    split_close(&s);
    optest_set(&whole.target, 4, 7);
    a.ranks = 2; /* without a mesh */
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "rank 0 of the mesh is number 0 of 0 ranks of tp");
    a.vocab_first = 16;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "8 rows from number 16 on: not one of 2 equal");
    a.vocab_first = 4;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "8 rows from number 4 on");
    a.ranks = 0, a.vocab_first = 8;
    CHECK_FAILS(head_loss(&t->ex, a), ERR_ARG, "8 rows from number 8 on");
}

/* Three floats a token, of which a ring of 4 ranks sends 3/4 twice. Logits are of this part alone. */
static void a_split_vocabulary_costs_its_part_and_the_sums(void **state)
{
    OpTest *t = *state;
    HeadLoss a = make_args(t, &(Sizes){ 4, 10, 3 }, DTYPE_BF16);
    OpCost whole = op_desc(OP_HEAD_LOSS)->cost(&a);
    size_t space = op_desc(OP_HEAD_LOSS)->workspace(&t->ex, &a);
    CHECK_NEAR(whole.comm_bytes, 0, 0);
    a.ranks = 4, a.vocab_first = 30;
    OpCost part = op_desc(OP_HEAD_LOSS)->cost(&a);
    CHECK_NEAR(part.comm_bytes, 2 * 0.75 * 3 * 4 * 4, 1e-9);
    CHECK_NEAR(part.flops, whole.flops, 0);
    CHECK_INT(part.axis, AXIS_TP);
    CHECK_INT(part.work, WORK_HEAD);
    CHECK_INT(head_logits_bytes(&a), (int64_t)arena_rounded(4 * 10 * 2));
    CHECK_INT(op_desc(OP_HEAD_LOSS)->workspace(&t->ex, &a), space + arena_rounded(4 * 4 * 4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(loss_and_gradients_match_double, 2),
        OP_TEST(evaluation_gives_the_losses_of_training, 2),
        OP_TEST(the_weight_gradient_is_optional, 2),
        OP_TEST(any_chunk_gives_the_same_result, 2),
        OP_TEST(a_chunk_of_many_rows_matches_double, 2),
        OP_TEST(logits_are_rounded_to_the_type_of_x, 1),
        TEST(a_chunk_that_nobody_chose_depends_on_device_vocabulary_and_type),
        OP_TEST(bf16_logits_take_half_the_room, 1),
        OP_TEST(gradients_are_the_slopes_of_the_loss, 2),
        OP_TEST(huge_logits_do_not_overflow, 2),
        OP_TEST(an_ignored_token_leaves_no_trace, 2),
        OP_TEST(a_target_outside_the_vocabulary_is_an_error_that_names_the_token, 1),
        OP_TEST(wrong_arguments_are_errors_that_name_the_tensor, 1),
        OP_TEST(a_weight_with_scales_is_refused_by_name, 1),
        OP_TEST(costs_are_three_products_and_every_tensor_once, 1),
        OP_TEST(ranks_that_split_the_vocabulary_match_double, 2),
        OP_TEST(so_they_do_on_gpus, 2),
        OP_TEST(a_split_vocabulary_gives_the_same_bits_in_every_run, 1),
        OP_TEST(evaluation_over_a_split_vocabulary_gives_the_losses, 1),
        OP_TEST(huge_logits_of_a_split_vocabulary_do_not_overflow, 1),
        OP_TEST(a_part_that_is_not_the_rank_s_own_is_an_error, 1),
        OP_TEST(a_split_vocabulary_costs_its_part_and_the_sums, 1),
    };
    return TEST_RUN(tests);
}
