/* Sinks: attention and the op behind it, against a softmax with one more logit, in double. */
#include "kernels/op/attention_reference.h"

typedef struct Sizes {
    int64_t B, T, H, G, dk, dv, window;
} Sizes;

/* One token, whose only key shares its weight with the sink; primes; more tokens than a kernel has
 * parts; widths that are whole packs of 16 bytes, and more of them than a warp has lanes. */
static const Sizes sizes[] = {
    { 1, 1, 1, 1, 1, 1, 0 },    { 2, 7, 3, 3, 19, 13, 0 },  { 2, 65, 4, 2, 16, 24, 9 },
    { 1, 131, 2, 1, 8, 64, 0 }, { 3, 201, 1, 1, 8, 40, 5 }, { 1, 5, 2, 1, 8, 200, 2 },
};
enum { SIZES = sizeof sizes / sizeof *sizes };

typedef struct Call {
    AttentionFwd f;
    AttentionBwd b;
    AttentionSinkBwd s;
    Tensor sinks;
    double *before; /* of dsinks */
} Call;

static Tensor rows(OpTest *t, Dtype act, int64_t b, int64_t n, int64_t heads, int64_t width)
{
    return optest_normal(t, act, DIMS(b, n, heads, width));
}

/* Forward; sinks of about the size of the largest scores, the last far below them. */
static Call run_forward(OpTest *t, const Sizes *s, Dtype act)
{
    Call c = { .f = { .q = rows(t, act, s->B, s->T, s->H, s->dk),
                      .k = rows(t, act, s->B, s->T, s->G, s->dk),
                      .v = rows(t, act, s->B, s->T, s->G, s->dv),
                      .o = optest_poisoned(t, act, DIMS(s->B, s->T, s->H, s->dv)),
                      .lse = optest_poisoned(t, DTYPE_F32, DIMS(s->B, s->H, s->T)),
                      .scale = 1 / sqrtf((float)s->dk),
                      .window = s->window },
               .sinks = optest_normal(t, DTYPE_F32, DIMS(s->H)) };
    if (s->H > 2) optest_set(&c.sinks, s->H - 1, -20);
    CHECK_OK(attention_fwd(&t->ex, c.f));
    CHECK_OK(attention_sink_fwd(
        &t->ex, (AttentionSinkFwd){ .sinks = c.sinks, .o = c.f.o, .lse = c.f.lse }));
    return c;
}

static void run_backward(OpTest *t, Call *c)
{
    c->b = make_bwd(t, &c->f);
    c->s = (AttentionSinkBwd){ .d_o = c->b.d_o,
                               .o = c->f.o,
                               .lse = c->f.lse,
                               .sinks = c->sinks,
                               .dsinks = optest_normal(t, DTYPE_F32, DIMS(c->f.o.dim[2])) };
    c->before = optest_read(t, &c->s.dsinks);
    CHECK_OK(attention_sink_bwd(&t->ex, c->s));
    CHECK_OK(attention_bwd(&t->ex, c->b));
}

static Problem problem_with_sinks(OpTest *t, const Call *c)
{
    Problem p = problem_of(t, &c->f);
    p.sinks = optest_read(t, &c->sinks);
    p.dsinks = zeros(t, c->f.q.dim[2]);
    return p;
}

static void each_size(OpTest *t, void (*check)(OpTest *, const Sizes *, Dtype))
{
    for (int i = 0; i < 2 * SIZES; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        check(t, &sizes[i / 2], i % 2 ? DTYPE_BF16 : DTYPE_F32);
        arena_release(&t->arena, mark);
    }
}

static void check_fwd(OpTest *t, const Sizes *s, Dtype act)
{
    Call c = run_forward(t, s, act);
    Problem p = problem_with_sinks(t, &c);
    each_query(&p, forward);
    CHECK_TENSOR_WITHIN(&c.f.o, p.o, optest_limit(LIMIT_ATTENTION, act));
    for (int64_t i = 0; i < tensor_elems(&c.f.lse); i++)
        CHECK_NEAR(optest_get(&c.f.lse, i), p.lse[i], 3e-6 * (1 + fabs(p.lse[i])));
}

static void forward_is_a_softmax_with_one_more_logit(void **state) { each_size(*state, check_fwd); }

/* The sum of the sizes of what is added up. */
static double sink_size(const Problem *p, int64_t h)
{
    double size = 0;
    const int64_t *dim = p->a->o.dim;
    for (int64_t row = 0; row < dim[0] * dim[1]; row++) {
        Query x = query_of(p->a, row / dim[1], h, row % dim[1]);
        double weight = exp(p->sinks[h] - p->given_lse[x.lse]);
        size += weight * dot_of_sizes(p->d_o + x.o, p->given_o + x.o, dim[3]);
    }
    return size;
}

static void check_bwd(OpTest *t, const Sizes *s, Dtype act)
{
    Call c = run_forward(t, s, act);
    run_backward(t, &c);
    Problem p = problem_with_sinks(t, &c);
    p.d_o = optest_read(t, &c.s.d_o), p.given_o = optest_read(t, &c.f.o);
    p.given_lse = optest_read(t, &c.f.lse);
    each_query(&p, backward);
    for (int64_t h = 0; h < s->H; h++)
        CHECK_NEAR(optest_get(&c.s.dsinks, h), c.before[h] + p.dsinks[h],
                   2e-6 * (sink_size(&p, h) + fabs(c.before[h])));
    CHECK_TENSOR_WITHIN(&c.b.dv, p.dv, optest_limit(LIMIT_ATTENTION, act));
}

static void gradients_of_sinks_are_added_up_over_rows(void **state)
{
    each_size(*state, check_bwd);
}

/* <d_o, o> as a function of sinks, q, k and v, which stand one behind the other. */
static double weighted_output(const void *context, const double *x)
{
    Problem p = *(const Problem *)context;
    p.sinks = x;
    return output_of(p, x + p.a->q.dim[2]);
}

/* attention_bwd knows nothing of sinks but the o and lse that it is given. */
static void gradients_are_the_slopes_of_the_output(void **state)
{
    OpTest *t = *state;
    Call c = run_forward(t, &(Sizes){ 2, 9, 4, 2, 5, 6, 4 }, DTYPE_F32);
    run_backward(t, &c);
    Problem p = problem_with_sinks(t, &c);
    p.d_o = optest_read(t, &c.s.d_o);
    const Tensor *in[] = { &c.sinks, &c.f.q, &c.f.k, &c.f.v };
    const Tensor *out[] = { &c.s.dsinks, &c.b.dq, &c.b.dk, &c.b.dv };
    int64_t n = 0;
    for (int i = 0; i < 4; i++) n += tensor_elems(in[i]);
    double *x = optest_doubles(t, n), *slope = optest_doubles(t, n);
    for (int64_t i = 0, at = 0; i < 4; at += tensor_elems(in[i]), i++)
        memcpy(x + at, optest_read(t, in[i]), (size_t)tensor_elems(in[i]) * sizeof *x);
    optest_slopes(weighted_output, &p, x, n, slope);
    for (int64_t h = 0; h < 4; h++) slope[h] += c.before[h];
    for (int64_t i = 0, at = 0; i < 4; at += tensor_elems(in[i]), i++)
        for (int64_t j = 0; j < tensor_elems(out[i]); j++)
            CHECK_NEAR(optest_get(out[i], j), slope[at + j], 1e-5);
}

/* A logit of minus infinity takes part in nothing. */
static void a_sink_of_no_weight_changes_no_bit(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    Call c = run_forward(t, &sizes[2], DTYPE_BF16);
    Tensor o = optest_copy(t, &c.f.o), lse = optest_copy(t, &c.f.lse);
    for (int64_t h = 0; h < 4; h++) optest_set(&c.sinks, h, -(double)INFINITY);
    CHECK_OK(attention_sink_fwd(
        &t->ex, (AttentionSinkFwd){ .sinks = c.sinks, .o = c.f.o, .lse = c.f.lse }));
    CHECK_SAME(&c.f.o, &o);
    CHECK_SAME(&c.f.lse, &lse);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    OpTest *t = *state;
    Call c[3];
    for (int n = 0; n < 3; n++) {
        t->drawn = 0, t->ex.threads = (int[]){ 1, 2, 4 }[n];
        c[n] = run_forward(t, &sizes[2], DTYPE_BF16);
        run_backward(t, &c[n]);
        CHECK_SAME(&c[n].f.o, &c[0].f.o);
        CHECK_SAME(&c[n].f.lse, &c[0].f.lse);
        CHECK_SAME(&c[n].s.dsinks, &c[0].s.dsinks);
    }
}

static void wrong_shapes_are_errors_that_name_the_tensor(void **state)
{
    OpTest *t = *state;
    Call c = run_forward(t, &sizes[2], DTYPE_F32);
    run_backward(t, &c);
    AttentionSinkFwd f = { .sinks = c.sinks, .o = c.f.o, .lse = c.f.lse };
    f.sinks.dim[0] = 3;
    CHECK_FAILS(attention_sink_fwd(&t->ex, f), ERR_SHAPE, "attention_sink_fwd: sinks is");
    f.sinks = c.sinks, f.lse.dim[1] = 3;
    CHECK_FAILS(attention_sink_fwd(&t->ex, f), ERR_SHAPE, "attention_sink_fwd: lse is");
    AttentionSinkBwd b = c.s;
    b.d_o.dtype = DTYPE_BF16;
    CHECK_FAILS(attention_sink_bwd(&t->ex, b), ERR_SHAPE, "attention_sink_bwd: d_o is");
    b = c.s, b.dsinks.dim[0] = 5;
    CHECK_FAILS(attention_sink_bwd(&t->ex, b), ERR_SHAPE, "attention_sink_bwd: dsinks is");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(forward_is_a_softmax_with_one_more_logit, 2),
        OP_TEST(gradients_of_sinks_are_added_up_over_rows, 2),
        OP_TEST(gradients_are_the_slopes_of_the_output, 2),
        OP_TEST(a_sink_of_no_weight_changes_no_bit, 2),
        OP_TEST(any_number_of_threads_gives_the_same_bits, 4),
        OP_TEST(wrong_shapes_are_errors_that_name_the_tensor, 1),
    };
    return TEST_RUN(tests);
}
