/* 8-bit attention: the CPU against its definition in double (kernels/attention/attention.h) and against attention
 * that rounds nothing; the GPU's kernel against the CPU. */
#include "kernels/op/attention_reference.h"

typedef struct Sizes {
    int64_t B, Tq, Tk, H, G, dk, dv;
} Sizes;

/* One token; primes; a block of keys and one more; shared keys; a cache. */
static const Sizes sizes[] = {
    { 1, 1, 1, 1, 1, 1, 1 },       { 2, 67, 67, 3, 3, 19, 13 },  { 1, 128, 128, 2, 2, 16, 24 },
    { 1, 129, 129, 4, 2, 24, 16 }, { 1, 300, 300, 2, 1, 32, 8 }, { 2, 5, 261, 2, 2, 16, 16 },
};

typedef enum Mask { CAUSAL, DOCUMENTS, WINDOW, CHUNKS, MASKS } Mask;

/* Documents of 1 to 200 tokens. */
static Tensor documents(OpTest *t, const Sizes *s)
{
    Tensor doc = optest_poisoned(t, DTYPE_I32, DIMS(s->B, s->Tq));
    for (int64_t b = 0; b < s->B; b++) {
        int64_t start = 0, end = 0;
        for (int64_t i = 0; i < s->Tk; i++) {
            if (i == end) start = i, end = i + 1 + (int64_t)rng_below(3, 7, (uint64_t)i, 200);
            int64_t query = i - (s->Tk - s->Tq);
            if (query >= 0) optest_set(&doc, b * s->Tq + query, (double)start);
        }
    }
    return doc;
}

static AttentionFwd make_args(OpTest *t, const Sizes *s, Dtype act, Mask mask)
{
    return (AttentionFwd){ .q = optest_normal(t, act, DIMS(s->B, s->Tq, s->H, s->dk)),
                           .k = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, s->dk)),
                           .v = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, s->dv)),
                           .doc = mask == DOCUMENTS ? documents(t, s) : (Tensor){ 0 },
                           .o = optest_poisoned(t, act, DIMS(s->B, s->Tq, s->H, s->dv)),
                           .lse = optest_poisoned(t, DTYPE_F32, DIMS(s->B, s->H, s->Tq)),
                           .scale = 1 / sqrtf((float)s->dk),
                           .window = mask == WINDOW ? 1 + s->Tk / 3 : 0,
                           .chunk = mask == CHUNKS ? 1 + s->Tk / 2 : 0,
                           .e4m3 = true };
}

/* Entries 1e4 and 1e3 times the others: of a row of q, of two rows of k, of a column of v. */
static void add_outliers(const AttentionFwd *a)
{
    int64_t Tk = a->k.dim[1], H = a->q.dim[2], G = a->k.dim[2], dk = a->q.dim[3], dv = a->v.dim[3];
    optest_set(&a->q, (a->q.dim[1] - 1) * H * dk + dk / 2, 1e3);
    optest_set(&a->k, Tk / 2 * G * dk + dk / 3, -1e4);
    for (int64_t j = 0; j < Tk; j += 3) optest_set(&a->v, (j * G + G - 1) * dv + dv / 2, 1e4);
}

/* ---- the definition ---- */

/* x rounded to the nearest of e4m3's numbers, ties to even: multiples of 2^(e - 3) from 2^e on. */
static double e4m3(double x)
{
    double step = 0x1p-9;
    while (step * 16 <= fabs(x)) step *= 2;
    return nearbyint(x / step) * step;
}

/* Rounds each run of `block` rows of a head with one power of two that brings its largest magnitude
 * to 448 or below. */
static void round_heads(const Tensor *x, int64_t block, double *value)
{
    int64_t T = x->dim[1], d = x->dim[3];
    for (int64_t run = 0; run < x->dim[0] * x->dim[2] * T; run++) {
        int64_t b = run / T / x->dim[2], h = run / T % x->dim[2], first = run % T;
        double most = 0, scale = 0x1p-126;
        if (first % block != 0) continue;
        int64_t end = first + block < T ? first + block : T;
        for (int64_t i = first; i < end; i++)
            for (int64_t c = 0; c < d; c++) most = fmax(most, fabs(value[row_of(x, b, i, h) + c]));
        while (most / scale > 448) scale *= 2;
        for (int64_t i = first; i < end; i++)
            for (int64_t c = 0; c < d; c++)
                value[row_of(x, b, i, h) + c] = e4m3(value[row_of(x, b, i, h) + c] / scale) * scale;
    }
}

/* One query, in blocks of 128 keys with a running maximum. */
static void define(const Problem *p, const Query *x)
{
    int64_t dv = p->a->v.dim[3];
    double max = -(double)INFINITY, sum = 0, *o = p->o + x->o;
    score(p, x);
    for (int64_t from = x->first / 128 * 128; from < x->end; from += 128) {
        int64_t first = from > x->first ? from : x->first, before = from + 128;
        int64_t end = before < x->end ? before : x->end;
        double old = max;
        for (int64_t j = first; j < end; j++) max = fmax(max, p->p[j]);
        sum *= exp(old - max);
        for (int64_t c = 0; c < dv; c++) o[c] *= exp(old - max);
        for (int64_t j = first; j < end; j++) {
            double weight = exp(p->p[j] - max);
            sum += weight;
            add_scaled(o, e4m3(256 * weight) / 256, p->v + row_of(&p->a->v, x->b, j, x->g), dv);
        }
    }
    for (int64_t c = 0; c < dv; c++) o[c] /= sum;
    p->lse[x->lse] = max + log(sum);
}

static Problem defined(OpTest *t, const AttentionFwd *a)
{
    double *q = optest_read(t, &a->q), *k = optest_read(t, &a->k), *v = optest_read(t, &a->v);
    Problem p = problem_of(t, a);
    round_heads(&a->q, 1, q), round_heads(&a->k, 128, k), round_heads(&a->v, 128, v);
    p.q = q, p.k = k, p.v = v;
    each_query(&p, define);
    return p;
}

/* ---- the CPU ---- */

/* Takes the GPU away, whose kernel has widths of its own. */
static void cpu_alone(OpTest *t)
{
    int kept = 0;
    for (int i = 0; i < t->ex.depth; i++)
        if (t->ex.front[i] != &backend_mirror) t->ex.front[kept++] = t->ex.front[i];
    t->ex.depth = kept;
}

/* Where p lies on a border, f32 and double round it to different codes. That moves a row by up to
 * 6 % of p, and there are too few of such p to move the tensor. */
static void check_defined(const AttentionFwd *a, const Problem *p)
{
    double norm[2], limit = a->o.dtype == DTYPE_F32 ? 5e-4 : 3e-3;
    int64_t width = tensor_cols(&a->o);
    OpPart all = { 0, 0, tensor_elems(&a->o) / width, width };
    CHECK_TENSOR_WITHIN(&a->o, p->o, 2e-2);
    optest_norms(&a->o, p->o, width, all, norm);
    if (!(norm[0] <= limit * norm[1])) fail_msg("o is off by %.3g of its norm", norm[0] / norm[1]);
    for (int64_t i = 0; i < tensor_elems(&a->lse); i++)
        CHECK_NEAR(optest_get(&a->lse, i), p->lse[i], 2e-6 * (1 + fabs(p->lse[i])));
}

static void the_cpu_computes_what_is_defined(void **state)
{
    OpTest *t = *state;
    cpu_alone(t);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes * MASKS * 2; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        AttentionFwd a = make_args(t, &sizes[i / 2 / MASKS], i % 2 ? DTYPE_BF16 : DTYPE_F32,
                                   (Mask)(i / 2 % MASKS));
        Problem p = defined(t, &a);
        CHECK_OK(attention_fwd(&t->ex, a));
        check_defined(&a, &p);
        arena_release(&t->arena, mark);
    }
}

static void outliers_are_rounded_as_defined(void **state)
{
    OpTest *t = *state;
    cpu_alone(t);
    AttentionFwd a = make_args(t, &sizes[4], DTYPE_F32, CAUSAL);
    add_outliers(&a);
    Problem p = defined(t, &a);
    CHECK_OK(attention_fwd(&t->ex, a));
    check_defined(&a, &p);
}

/* 20 log10 of the norms of the result without rounding and of the error. */
static double signal_to_noise(OpTest *t, const AttentionFwd *a)
{
    double norm[2];
    Problem p = problem_of(t, a);
    each_query(&p, forward);
    CHECK_OK(attention_fwd(&t->ex, *a));
    int64_t width = tensor_cols(&a->o);
    optest_norms(&a->o, p.o, width, (OpPart){ 0, 0, tensor_elems(&a->o) / width, width }, norm);
    return 20 * log10(norm[1] / norm[0]);
}

/* Rounding a number of q, k, p or v costs 2.6 %, 31.7 dB. Scores have a standard deviation of 1, so
 * the errors of q and k add as those of p and v do: 4 x as much noise is 25.7 dB. */
static void the_error_is_that_of_three_bits(void **state)
{
    OpTest *t = *state;
    cpu_alone(t);
    AttentionFwd a = make_args(t, &(Sizes){ 1, 400, 400, 2, 2, 64, 32 }, DTYPE_F32, CAUSAL);
    double plain = signal_to_noise(t, &a);
    if (!(plain > 24.5 && plain < 29)) fail_msg("%.2f dB", plain);
    a.v = optest_copy(t, &a.v);
    for (int64_t j = 0; j < 400 * 2; j++) optest_set(&a.v, j * 32 + 5, 3e3);
    double outlier = signal_to_noise(t, &a);
    if (!(outlier > 24.5)) fail_msg("%.2f dB with a large column of v", outlier);
}

/* A query that sees one key, with p = 1: o is v, rounded. So no other query's keys, and no p but its
 * own, have a part in it. */
static void a_query_of_one_key_gets_its_rounded_value(void **state)
{
    OpTest *t = *state;
    cpu_alone(t);
    AttentionFwd a = make_args(t, &sizes[4], DTYPE_F32, CAUSAL);
    a.window = 1;
    double *v = optest_read(t, &a.v);
    round_heads(&a.v, 128, v);
    CHECK_OK(attention_fwd(&t->ex, a));
    for (int64_t i = 0; i < tensor_elems(&a.o); i++)
        CHECK_NEAR(optest_get(&a.o, i), v[i / 16 * 8 + i % 8], 4e-7 * fabs(v[i / 16 * 8 + i % 8]));
}

/* What has no scale makes the keys of its block NaN, and so all queries that see one of them. */
static void an_infinity_makes_its_block_nan(void **state)
{
    OpTest *t = *state;
    cpu_alone(t);
    optest_unguard(t);
    AttentionFwd a = make_args(t, &sizes[4], DTYPE_F32, CAUSAL);
    optest_set(&a.v, 200 * 8 + 3, (double)INFINITY);
    CHECK_OK(attention_fwd(&t->ex, a));
    for (int64_t i = 0; i < 300; i++) CHECK_INT(isfinite(optest_get(&a.o, i * 16)), i < 128);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    OpTest *t = *state;
    AttentionFwd a[3];
    cpu_alone(t);
    for (int n = 0; n < 3; n++) {
        t->drawn = 0, t->ex.threads = (int[]){ 1, 2, 4 }[n];
        a[n] = make_args(t, &sizes[1], DTYPE_BF16, DOCUMENTS);
        CHECK_OK(attention_fwd(&t->ex, a[n]));
        CHECK_SAME(&a[n].o, &a[0].o);
        CHECK_SAME(&a[n].lse, &a[0].lse);
    }
}

static void a_cost_counts_8_bit_products(void **state)
{
    OpTest *t = *state;
    AttentionFwd a = make_args(t, &sizes[4], DTYPE_BF16, CAUSAL), plain = a;
    plain.e4m3 = false;
    OpCost cost = op_desc(OP_ATTENTION_FWD)->cost(&a);
    CHECK_INT(cost.dtype, DTYPE_E4M3);
    CHECK_INT(cost.work, WORK_ATTENTION);
    CHECK_NEAR(cost.flops, op_desc(OP_ATTENTION_FWD)->cost(&plain).flops, 0);
}

/* ---- a GPU ---- */

/* Of the kernel: one token, whole tiles, a few more, shared keys, a cache. */
static const Sizes fused[] = {
    { 1, 1, 1, 1, 1, 192, 128 },     { 2, 128, 128, 2, 2, 192, 128 },
    { 1, 129, 129, 4, 2, 128, 128 }, { 2, 517, 517, 2, 1, 192, 128 },
    { 1, 640, 640, 2, 2, 128, 128 }, { 1, 70, 450, 2, 2, 192, 128 },
};

/* The mirror compares rows, which a single code may turn; a tensor is compared here. */
static void a_gpu_agrees_with_the_cpu(void **state)
{
    OpTest *t = *state;
    if (!mirror_hopper()) skip();
    mirror_gives();
    for (size_t i = 0; i < sizeof fused / sizeof *fused * MASKS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        AttentionFwd a = make_args(t, &fused[i / MASKS], DTYPE_BF16, (Mask)(i % MASKS));
        Problem p = defined(t, &a);
        double norm[2];
        OpPart all = { 0, 0, tensor_elems(&a.o) / a.o.dim[3], a.o.dim[3] };
        CHECK_OK(attention_fwd(&t->ex, a));
        optest_norms(&a.o, p.o, a.o.dim[3], all, norm);
        if (!(norm[0] <= 1e-2 * norm[1])) fail_msg("o is off by %.3g", norm[0] / norm[1]);
        arena_release(&t->arena, mark);
    }
}

/* The keys beside an outlier lose bits in the matrix units; what must hold is where rows, columns and
 * scales belong. */
static void a_gpu_agrees_about_outliers(void **state)
{
    OpTest *t = *state;
    if (!mirror_hopper()) skip();
    for (int i = 3; i < 5; i++) {
        AttentionFwd a = make_args(t, &fused[i], DTYPE_BF16, DOCUMENTS);
        add_outliers(&a);
        CHECK_OK(attention_fwd(&t->ex, a));
    }
}

/* Scores of one key lie far above the others, so that p is 1 and 0, and a sum has one term: bits
 * agree. Key and query i have 16 at column hash(i), so that queries see keys in all places. */
static void exact_cases_agree_to_the_bit(void **state)
{
    OpTest *t = *state;
    if (!mirror_hopper()) skip();
    mirror_gives();
    for (int n = 0; n < 2; n++) {
        Sizes s = { 1, 300, 300, 2, 1, n ? 128 : 192, 128 };
        AttentionFwd a = make_args(t, &s, DTYPE_BF16, CAUSAL), b = a;
        a.scale = b.scale = 1;
        for (int64_t i = 0; i < tensor_elems(&a.q); i++) optest_set(&a.q, i, 0);
        for (int64_t i = 0; i < tensor_elems(&a.k); i++) optest_set(&a.k, i, 0);
        for (int64_t i = 0; i < 300; i++) {
            int64_t key = (int64_t)rng_below(5, 1, (uint64_t)i, (uint64_t)i + 1);
            optest_set(&a.k, i * s.dk + i % 100, 16);
            optest_set(&a.k, i * s.dk + 100 + i / 100, 16);
            for (int64_t h = 0; h < 2; h++) {
                optest_set(&a.q, (i * 2 + h) * s.dk + key % 100, 16);
                optest_set(&a.q, (i * 2 + h) * s.dk + 100 + key / 100, 16);
            }
        }
        b.o = poisoned_like(t, &a.o), b.lse = optest_poisoned(t, DTYPE_F32, DIMS(1, 2, 300));
        CHECK_OK(attention_fwd(&t->ex, a));
        cpu_alone(t);
        CHECK_OK(attention_fwd(&t->ex, b));
        CHECK_SAME(&a.o, &b.o);
        CHECK_OK(mirror_push(&t->ex));
        mirror_gives();
    }
}

static void a_gpu_refuses_what_its_kernel_does_not_take(void **state)
{
    OpTest *t = *state;
    if (!mirror_hopper()) skip();
    AttentionFwd a = make_args(t, &sizes[1], DTYPE_BF16, CAUSAL);
    CHECK_FAILS(attention_fwd(&t->ex, a), ERR_UNSUPPORTED,
                "heads are 19 and 13 wide, it takes 192");
    a = make_args(t, &fused[2], DTYPE_F32, CAUSAL);
    CHECK_FAILS(attention_fwd(&t->ex, a), ERR_UNSUPPORTED, "tensors are f32, it takes bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(the_cpu_computes_what_is_defined, 2),
        OP_TEST(outliers_are_rounded_as_defined, 2),
        OP_TEST(the_error_is_that_of_three_bits, 2),
        OP_TEST(a_query_of_one_key_gets_its_rounded_value, 2),
        OP_TEST(an_infinity_makes_its_block_nan, 2),
        OP_TEST(any_number_of_threads_gives_the_same_bits, 4),
        OP_TEST(a_cost_counts_8_bit_products, 1),
        OP_TEST(a_gpu_agrees_with_the_cpu, 2),
        OP_TEST(a_gpu_agrees_about_outliers, 2),
        OP_TEST(exact_cases_agree_to_the_bit, 2),
        OP_TEST(a_gpu_refuses_what_its_kernel_does_not_take, 2),
    };
    return TEST_RUN(tests);
}
