/* attention against a softmax over the whole row of scores, in double. */
#include "kernels/op/attention_reference.h"

typedef struct Sizes {
    int64_t B, Tq, Tk, H, G, dk, dv;
} Sizes;

/* One token; primes; a block of queries and one more; dk != dv; several blocks of keys; a cache. */
static const Sizes square[] = {
    { 1, 1, 1, 1, 1, 1, 1 },     { 2, 7, 7, 3, 3, 19, 13 },     { 2, 65, 65, 4, 2, 16, 24 },
    { 1, 64, 64, 6, 2, 23, 17 }, { 1, 131, 131, 2, 1, 24, 16 }, { 1, 601, 601, 1, 1, 16, 16 },
};
static const Sizes cached[] = {
    { 2, 1, 1, 2, 1, 8, 16 },      { 2, 1, 37, 4, 2, 8, 14 },     { 1, 5, 133, 2, 2, 16, 13 },
    { 1, 66, 70, 2, 1, 12, 18 },   { 1, 1, 1030, 2, 1, 8, 16 },   { 2, 1, 300, 4, 1, 64, 64 },
    { 1, 5, 133, 2, 2, 128, 128 }, { 1, 66, 70, 2, 1, 192, 128 },
};
/* Of a GPU's fused kernels: whole tiles and a few more, widths that differ, shared keys. */
static const Sizes fused[] = {
    { 1, 128, 128, 2, 2, 192, 128 }, { 2, 200, 200, 2, 2, 192, 128 }, { 2, 65, 65, 2, 2, 64, 64 },
    { 1, 256, 256, 4, 2, 128, 128 }, { 1, 129, 129, 4, 1, 64, 64 },   { 1, 601, 601, 2, 1, 96, 96 },
    { 1, 1024, 1024, 1, 1, 64, 64 },
};

enum {
    SQUARE = sizeof square / sizeof *square,
    FUSED = sizeof fused / sizeof *fused,
    CACHED = sizeof cached / sizeof *cached,
};

/* Which keys a query sees: all before it, those of its document, a document that starts at the last
 * token beside one that starts at the first, a window, those of its chunk, all three. OF_THE_FIRST: documents of the
 * first sequence alone. */
typedef enum Mask {
    CAUSAL,
    DOCUMENTS,
    LAST_TOKEN,
    WINDOW,
    CHUNKS,
    ALL_MASKS,
    MASKS,
    OF_THE_FIRST
} Mask;

static bool has_documents(Mask mask)
{
    return mask == DOCUMENTS || mask == LAST_TOKEN || mask == ALL_MASKS || mask == OF_THE_FIRST;
}

/* Of a sequence of so many tokens; chunks are no multiple of a window. */
static int64_t window_of(Mask mask, int64_t tokens)
{
    return mask == WINDOW || mask == ALL_MASKS ? 1 + tokens / 5 : 0;
}

static int64_t chunk_of(Mask mask, int64_t tokens)
{
    return mask == CHUNKS || mask == ALL_MASKS ? 1 + tokens / 3 : 0;
}

static Tensor documents(OpTest *t, const Sizes *s, Mask mask)
{
    if (!has_documents(mask)) return (Tensor){ 0 };
    Tensor doc = optest_poisoned(t, DTYPE_I32, DIMS(s->B, s->Tq));
    for (int64_t b = 0; b < s->B; b++) {
        int64_t start = 0;
        for (int64_t i = 0; i < s->Tq; i++) {
            int64_t position = i + s->Tk - s->Tq;
            bool begins = mask == LAST_TOKEN ? i == s->Tq - 1
                                             : rng_below(9, (uint64_t)b, (uint64_t)i, 12) == 0;
            if (begins && (b == 0 || mask != OF_THE_FIRST)) start = position;
            optest_set(&doc, b * s->Tq + i, (double)start);
        }
    }
    return doc;
}

static AttentionFwd make_args(OpTest *t, const Sizes *s, Dtype act, Mask mask)
{
    return (AttentionFwd){ .q = optest_normal(t, act, DIMS(s->B, s->Tq, s->H, s->dk)),
                           .k = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, s->dk)),
                           .v = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, s->dv)),
                           .doc = documents(t, s, mask),
                           .o = optest_poisoned(t, act, DIMS(s->B, s->Tq, s->H, s->dv)),
                           .lse = optest_poisoned(t, DTYPE_F32, DIMS(s->B, s->H, s->Tq)),
                           .scale = 1 / sqrtf((float)s->dk),
                           .window = window_of(mask, s->Tk),
                           .chunk = chunk_of(mask, s->Tk) };
}

static double limit_of(const Tensor *x) { return optest_limit(LIMIT_ATTENTION, x->dtype); }

static void check_fwd(OpTest *t, const Sizes *s, Dtype act, Mask mask)
{
    AttentionFwd a = make_args(t, s, act, mask);
    Problem p = problem_of(t, &a);
    each_query(&p, forward);
    CHECK_OK(attention_fwd(&t->ex, a));
    CHECK_TENSOR_WITHIN(&a.o, p.o, limit_of(&a.o));
    for (int64_t i = 0; i < tensor_elems(&a.lse); i++) {
        CHECK_NEAR(optest_get(&a.lse, i), p.lse[i], 2e-6 * (1 + fabs(p.lse[i])));
    }
}

/* dq and dk are sums of p * (dp - delta), which nearly cancel where a query sees few keys (one:
 * they are 0). So an element is held to the size of what was added and subtracted, where f32 rounds
 * it and bf16 rounds p and ds; the tensor as a whole to its norm, as everywhere. */
static void check_sum_of(Dtype act, const char *name, const Tensor *got, const double *want,
                         const double *size)
{
    double limit = act == DTYPE_F32 ? 2e-6 : 0x1p-8;
    for (int64_t i = 0; i < tensor_elems(got); i++) {
        double value = optest_get(got, i);
        double most = limit * (size[i] + fabs(want[i])); /* its terms are rounded, and itself */
        if (!(fabs(value - want[i]) <= most)) {
            fail_msg("%s[%lld] is %.9g, want %.9g within %.3g", name, (long long)i, value, want[i],
                     most);
        }
    }
    double norm[2], within = optest_limit(LIMIT_ATTENTION, act);
    int64_t width = tensor_cols(got), rows = tensor_elems(got) / width;
    optest_norms(got, want, width, (OpPart){ 0, 0, rows, width }, norm);
    bool zero = norm[1] < 1e-9; /* one token: 0 but for rounding, which was looked at above */
    if (!zero && !(norm[0] <= within * norm[1])) {
        fail_msg("%s: the error has norm %.3g, the reference %.3g", name, norm[0], norm[1]);
    }
}

static void check_sum(const char *name, const Tensor *got, const double *want, const double *size)
{
    check_sum_of(got->dtype, name, got, want, size);
}

static void check_bwd(OpTest *t, const Sizes *s, Dtype act, Mask mask)
{
    AttentionFwd f = make_args(t, s, act, mask);
    CHECK_OK(attention_fwd(&t->ex, f));
    AttentionBwd a = make_bwd(t, &f);
    Problem p = problem_of(t, &f);
    p.d_o = optest_read(t, &a.d_o), p.given_o = optest_read(t, &f.o);
    p.given_lse = optest_read(t, &f.lse);
    each_query(&p, backward);
    CHECK_OK(attention_bwd(&t->ex, a));
    check_sum("dq", &a.dq, p.dq, p.dq_size);
    check_sum("dk", &a.dk, p.dk, p.dk_size);
    CHECK_TENSOR_WITHIN(&a.dv, p.dv, limit_of(&a.dv));
}

static void check_cases(OpTest *t, void (*check)(OpTest *, const Sizes *, Dtype, Mask),
                        const Sizes *sizes, int n, int every)
{
    for (int i = 0; i < n * 2 * MASKS; i += every) {
        ArenaMark mark = arena_mark(&t->arena);
        check(t, &sizes[i / (2 * MASKS)], i % 2 ? DTYPE_BF16 : DTYPE_F32, (Mask)(i / 2 % MASKS));
        arena_release(&t->arena, mark);
    }
}

static void forward_matches_double(void **state)
{
    check_cases(*state, check_fwd, square, SQUARE, 1);
}

/* Every way that a GPU has; the CPU has one. */
static void check_ways(OpTest *t, const Sizes *s, Dtype act, Mask mask)
{
    if (act == DTYPE_F32 || gpu_devices() == 0) return;
    AttentionFwd f = make_args(t, s, act, mask);
    CHECK_OK(attention_fwd(&t->ex, f));
    AttentionBwd a = make_bwd(t, &f);
    f.kernel = a.kernel = ATTENTION_PLAIN;
    CHECK_OK(attention_fwd(&t->ex, f));
    CHECK_OK(attention_bwd(&t->ex, a));
}

static void fused_shapes_match_double(void **state)
{
    check_cases(*state, check_fwd, fused, FUSED, RUNS(1, 5));
    check_cases(*state, check_bwd, fused, FUSED, RUNS(1, 5));
    check_cases(*state, check_ways, fused, FUSED, RUNS(1, 5));
}

static void forward_behind_a_cache_matches_double(void **state)
{
    check_cases(*state, check_fwd, cached, CACHED, 1);
}

static void backward_matches_double(void **state)
{
    check_cases(*state, check_bwd, square, SQUARE, 1);
}

/* Short documents, so that most blocks are not seen; or ones that end inside pieces. */
static Tensor documents_in_pieces(OpTest *t, const Sizes *s, Mask mask, const AttentionPieces *p)
{
    if (!has_documents(mask)) return (Tensor){ 0 };
    Tensor doc = optest_poisoned(t, DTYPE_I32, DIMS(s->B, s->Tq));
    for (int64_t i = 0; i < s->B * s->Tq; i++) {
        int64_t at = piece_position(p, p->q, i % s->Tq);
        int64_t length = mask == LAST_TOKEN ? 13 : 3 * p->length / 2 + 1;
        at -= at % length;
        optest_set(&doc, i, (double)at);
    }
    return doc;
}

static void keys_of_block(OpTest *t, const Sizes *s, Dtype act, AttentionFwd *f)
{
    f->k = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, s->dk));
    f->v = optest_normal(t, act, DIMS(s->B, s->Tk, s->G, s->dv));
}

/* One block after another, the own one first; o grows in f32 and in place. */
static void check_blocks_fwd(OpTest *t, const Sizes *s, AttentionFwd *f, int64_t ranks, int64_t own)
{
    Tensor whole = f->o, sum = optest_poisoned(t, DTYPE_F32, DIMS4(&f->o));
    for (int64_t i = 0; i < ranks; i++) {
        f->pieces = pieces_of(s->Tq / 2, ranks, own, (own + i) % ranks);
        f->o = i == ranks - 1 ? whole : sum;
        if (i > 0) keys_of_block(t, s, f->q.dtype, f);
        if (i > 0) f->o_before = sum, f->lse_before = f->lse;
        Problem p = problem_of(t, f);
        if (i > 0) p.o_before = optest_read(t, &sum), p.lse_before = optest_read(t, &f->lse);
        each_query(&p, forward);
        CHECK_OK(attention_fwd(&t->ex, *f));
        CHECK_TENSOR_WITHIN(&f->o, p.o, limit_of(&f->q));
        for (int64_t j = 0; j < tensor_elems(&f->lse); j++)
            CHECK_NEAR(optest_get(&f->lse, j), p.lse[j],
                       (mirror.gives ? 1e-5 : 2e-6) * (1 + fabs(p.lse[j])));
    }
}

static void begin_sum(double *sum, double *size, const Tensor *before)
{
    for (int64_t i = 0; i < tensor_elems(before); i++) {
        sum[i] += optest_get(before, i);
        if (size != NULL) size[i] += fabs(sum[i]);
    }
}

/* A block's gradients on top of given ones, in place. */
static void check_block_bwd(OpTest *t, const AttentionFwd *f)
{
    AttentionBwd a = make_bwd(t, f);
    Dtype act = f->q.dtype;
    a.pieces = f->pieces;
    a.dq = a.dq_before = optest_normal(t, DTYPE_F32, DIMS4(&f->q));
    a.dk = a.dk_before = optest_normal(t, act, DIMS4(&f->k));
    a.dv = a.dv_before = optest_normal(t, act, DIMS4(&f->v));
    Problem p = problem_of(t, f);
    p.d_o = optest_read(t, &a.d_o), p.given_o = optest_read(t, &f->o);
    p.given_lse = optest_read(t, &f->lse);
    begin_sum(p.dq, p.dq_size, &a.dq);
    begin_sum(p.dk, p.dk_size, &a.dk);
    begin_sum(p.dv, NULL, &a.dv);
    each_query(&p, backward);
    CHECK_OK(attention_bwd(&t->ex, a));
    check_sum_of(act, "dq", &a.dq, p.dq, p.dq_size);
    check_sum("dk", &a.dk, p.dk, p.dk_size);
    CHECK_TENSOR_WITHIN(&a.dv, p.dv, limit_of(&a.dv));
}

/* Every rank of two, and of three if it is quick, over all blocks. */
static void check_blocks(OpTest *t, const Sizes *s, Dtype act, Mask mask)
{
    for (int64_t ranks = 2; ranks <= (s->Tq < 100 ? 3 : 2); ranks++) {
        for (int64_t own = 0; own < ranks; own++) {
            AttentionFwd f = make_args(t, s, act, CAUSAL);
            AttentionPieces p = pieces_of(s->Tq / 2, ranks, own, own);
            f.doc = documents_in_pieces(t, s, mask, &p);
            f.window = window_of(mask, ranks * s->Tq);
            f.chunk = chunk_of(mask, ranks * s->Tq);
            check_blocks_fwd(t, s, &f, ranks, own);
            for (int64_t i = 0; i < ranks; i++) {
                f.pieces = pieces_of(s->Tq / 2, ranks, own, (own + i) % ranks);
                check_block_bwd(t, &f);
            }
        }
    }
}

static void blocks_of_keys_add_up_as_in_double(void **state)
{
    static const Sizes sizes[] = { { 2, 2, 2, 2, 1, 5, 6 },
                                   { 2, 38, 38, 2, 1, 19, 13 },
                                   { 1, 130, 130, 4, 2, 16, 24 },
                                   { 1, 128, 128, 2, 2, 64, 64 },
                                   { 1, 546, 546, 1, 1, 8, 8 } };
    check_cases(*state, check_blocks, sizes, sizeof sizes / sizeof *sizes, RUNS(1, 5));
}

/* The same with the GPU's results in the place of the CPU's: through cuDNN, where there is one. */
static void a_gpus_blocks_add_up_as_in_double(void **state)
{
    OpTest *t = *state;
    static const Sizes sizes[] = { { 1, 256, 256, 2, 2, 192, 128 },
                                   { 2, 130, 130, 4, 2, 64, 64 },
                                   { 1, 390, 390, 2, 1, 128, 128 } };
    if (!gpu_built() || gpu_devices() == 0) skip();
    mirror_gives();
    for (int i = 0; i < 3 * MASKS; i++) {
        ArenaMark mark = arena_mark(&t->arena);
        check_blocks(t, &sizes[i / MASKS], DTYPE_BF16, (Mask)(i % MASKS));
        arena_release(&t->arena, mark);
    }
}

/* Rows of two pieces of a sequence, which are a rank's. */
static Tensor rows_of_rank(OpTest *t, const Tensor *whole, const AttentionPieces *p,
                           const int64_t first[2])
{
    Tensor out =
        optest_poisoned(t, whole->dtype, DIMS(1, 2 * p->length, whole->dim[2], whole->dim[3]));
    size_t row = tensor_bytes(whole) / (size_t)whole->dim[1];
    for (int64_t i = 0; i < 2 * p->length; i++)
        memcpy((char *)out.data + (size_t)i * row,
               (const char *)whole->data + (size_t)piece_position(p, first, i) * row, row);
    return out;
}

/* The square of the error of a rank's o, after it met the keys of all ranks one after the other. */
static double error_over_blocks(OpTest *t, const AttentionFwd *whole, const double *want,
                                int64_t ranks, int64_t own)
{
    int64_t n = whole->q.dim[1] / ranks, width = whole->o.dim[2] * whole->o.dim[3];
    AttentionFwd f = *whole;
    Tensor o = optest_poisoned(t, DTYPE_BF16, DIMS(1, n, whole->o.dim[2], whole->o.dim[3]));
    Tensor sum = optest_poisoned(t, DTYPE_F32, DIMS4(&o));
    double error = 0;
    f.lse = optest_poisoned(t, DTYPE_F32, DIMS(1, whole->q.dim[2], n));
    for (int64_t i = 0; i < ranks; i++) {
        f.pieces = pieces_of(n / 2, ranks, own, (own + i) % ranks);
        f.q = rows_of_rank(t, &whole->q, &f.pieces, f.pieces.q);
        f.k = rows_of_rank(t, &whole->k, &f.pieces, f.pieces.k);
        f.v = rows_of_rank(t, &whole->v, &f.pieces, f.pieces.k);
        f.o = i == ranks - 1 ? o : sum;
        CHECK_OK(attention_fwd(&t->ex, f));
        f.o_before = sum, f.lse_before = f.lse;
    }
    for (int64_t i = 0; i < n * width; i++) {
        int64_t at = piece_position(&f.pieces, f.pieces.q, i / width) * width + i % width;
        error += pow(optest_get(&o, i) - want[at], 2);
    }
    return error;
}

/* o over blocks of keys is rounded once more a block where a kernel leaves it in bf16: against
 * double it may be further off than o in one piece by no more than that. */
static void blocks_cost_little_accuracy(void **state)
{
    OpTest *t = *state;
    mirror_gives();
    const Sizes s = { 1, 1024, 1024, 1, 1, 192, 128 };
    AttentionFwd f = make_args(t, &s, DTYPE_BF16, CAUSAL);
    Problem p = problem_of(t, &f);
    each_query(&p, forward);
    CHECK_OK(attention_fwd(&t->ex, f));
    double whole = 0, size = 0;
    for (int64_t i = 0; i < tensor_elems(&f.o); i++) {
        whole += pow(optest_get(&f.o, i) - p.o[i], 2);
        size += pow(p.o[i], 2);
    }
    for (int64_t ranks = 2; ranks <= 4; ranks *= 2) {
        double cut = 0;
        for (int64_t own = 0; own < ranks; own++) cut += error_over_blocks(t, &f, p.o, ranks, own);
        print_message("o of one call is off by %.3g, over %lld ranks by %.3g\n", sqrt(whole / size),
                      (long long)ranks, sqrt(cut / size));
        CHECK(sqrt(cut) <= 1.5 * sqrt(whole));
    }
}

/* The first rank's queries before the second's keys: the first piece sees none of them. */
static void rows_that_see_no_key_give_nothing(void **state)
{
    OpTest *t = *state;
    optest_unguard(t);
    const Sizes s = { 1, 46, 46, 4, 2, 12, 9 };
    for (int k = 0; k < 2; k++) {
        AttentionFwd f = make_args(t, &s, k ? DTYPE_BF16 : DTYPE_F32, CAUSAL);
        f.pieces = pieces_of(23, 2, 0, 1);
        CHECK_OK(attention_fwd(&t->ex, f));
        AttentionBwd a = make_bwd(t, &f);
        a.pieces = f.pieces;
        CHECK_OK(attention_bwd(&t->ex, a));
        for (int64_t i = 0; i < 23 * 4 * 9; i++) CHECK_NEAR(optest_get(&f.o, i), 0, 0);
        for (int64_t i = 0; i < 23 * 4 * 12; i++) CHECK_NEAR(optest_get(&a.dq, i), 0, 0);
        for (int64_t i = 0; i < 4 * 46; i++)
            CHECK(i % 46 < 23 ? optest_get(&f.lse, i) == -(double)INFINITY
                              : isfinite(optest_get(&f.lse, i)));
        for (int64_t i = 0; i < tensor_elems(&a.dk); i++) CHECK(isfinite(optest_get(&a.dk, i)));
    }
}

/* The last query of a whole sequence, and the same query behind a cache of the rest. */
static void one_query_behind_a_cache_is_the_last_row_of_the_sequence(void **state)
{
    OpTest *t = *state;
    const Sizes whole = { 1, 67, 67, 4, 2, 8, 16 }, last = { 1, 1, 67, 4, 2, 8, 16 };
    AttentionFwd a = make_args(t, &whole, DTYPE_F32, CAUSAL);
    AttentionFwd b = make_args(t, &last, DTYPE_F32, CAUSAL);
    int64_t row = 4 * 8, out = 4 * 16;
    memcpy(b.q.data, (const float *)a.q.data + 66 * row, (size_t)row * sizeof(float));
    b.k = a.k, b.v = a.v;
    CHECK_OK(attention_fwd(&t->ex, a));
    CHECK_OK(attention_fwd(&t->ex, b));
    for (int64_t i = 0; i < out; i++) {
        CHECK_NEAR(optest_get(&b.o, i), optest_get(&a.o, 66 * out + i), 2e-6);
    }
}

/* Documents [0, 41) and [41, 96), and the same with other keys in the first. */
static void check_documents_apart(OpTest *t, const Sizes *s, Dtype act)
{
    const int64_t cut = 41;
    AttentionFwd a = make_args(t, s, act, CAUSAL), b = a;
    a.doc = optest_poisoned(t, DTYPE_I32, DIMS(1, s->Tq));
    for (int64_t i = 0; i < s->Tq; i++) optest_set(&a.doc, i, i < cut ? 0 : (double)cut);
    b.doc = a.doc, b.o = poisoned_like(t, &a.o);
    b.k = optest_copy(t, &a.k), b.v = optest_copy(t, &a.v);
    for (int64_t i = 0; i < cut * s->G * s->dk; i++) optest_set(&b.k, i, 3 * optest_get(&b.k, i));
    for (int64_t i = 0; i < cut * s->G * s->dv; i++) optest_set(&b.v, i, -optest_get(&b.v, i));
    CHECK_OK(attention_fwd(&t->ex, a));
    CHECK_OK(attention_fwd(&t->ex, b));
    size_t first = tensor_bytes(&a.o) / (size_t)s->Tq * (size_t)cut;
    CHECK(memcmp((char *)a.o.data + first, (char *)b.o.data + first, tensor_bytes(&a.o) - first) ==
          0);
    CHECK(memcmp(a.o.data, b.o.data, first) != 0);
}

/* Nothing of another document or of the future may arrive, not even times zero. */
static void documents_do_not_see_each_other(void **state)
{
    check_documents_apart(*state, &(Sizes){ 1, 96, 96, 2, 1, 8, 8 }, DTYPE_F32);
    if (gpu_built() && gpu_devices() > 0) mirror_gives();
    check_documents_apart(*state, &(Sizes){ 1, 96, 96, 2, 1, 64, 64 }, DTYPE_BF16);
}

/* So their tiles of scores differ. */
static void sequences_have_documents_of_their_own(void **state)
{
    if (gpu_built() && gpu_devices() > 0) mirror_gives();
    check_bwd(*state, &(Sizes){ 2, 200, 200, 1, 1, 64, 64 }, DTYPE_BF16, OF_THE_FIRST);
}

/* Both calls, forward and backward, on the same inputs. */
static void check_same_bits(OpTest *t, AttentionFwd a, AttentionFwd b)
{
    b.o = poisoned_like(t, &a.o), b.lse = optest_poisoned(t, DTYPE_F32, DIMS(1, 2, a.q.dim[1]));
    CHECK_OK(attention_fwd(&t->ex, a));
    CHECK_OK(attention_fwd(&t->ex, b));
    CHECK_SAME(&a.o, &b.o);
    CHECK_SAME(&a.lse, &b.lse);
    AttentionBwd da = make_bwd(t, &a), db = make_bwd(t, &b);
    db.d_o = da.d_o;
    CHECK_OK(attention_bwd(&t->ex, da));
    CHECK_OK(attention_bwd(&t->ex, db));
    CHECK_SAME(&da.dq, &db.dq);
    CHECK_SAME(&da.dk, &db.dk);
    CHECK_SAME(&da.dv, &db.dv);
}

/* A window and a chunk as long as the sequence hide nothing; chunks are documents. */
static void masks_that_hide_the_same_keys_give_the_same_bits(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 1, 161, 161, 2, 1, 64, 64 };
    for (int i = 0; i < 2; i++) {
        AttentionFwd a = make_args(t, &s, i ? DTYPE_BF16 : DTYPE_F32, CAUSAL), b = a;
        b.window = b.chunk = 161;
        check_same_bits(t, a, b);
        b.window = b.chunk = (int64_t)1 << 40;
        check_same_bits(t, a, b);
        a.doc = optest_poisoned(t, DTYPE_I32, DIMS(1, 161));
        for (int64_t j = 0; j < 161; j++) optest_set(&a.doc, j, (double)(j - j % 37));
        b.window = 0, b.chunk = 37;
        check_same_bits(t, a, b);
    }
}

/* Values are at most 3, and so are their averages. */
static void check_huge_scores(OpTest *t, const Sizes *s, Dtype act)
{
    AttentionFwd f = make_args(t, s, act, CAUSAL);
    f.scale = 1e4f;
    CHECK_OK(attention_fwd(&t->ex, f));
    AttentionBwd a = make_bwd(t, &f);
    CHECK_OK(attention_bwd(&t->ex, a));
    double most = act == DTYPE_F32 ? 3.001 : 3.02;
    for (int64_t i = 0; i < tensor_elems(&f.o); i++) CHECK(fabs(optest_get(&f.o, i)) <= most);
    for (int64_t i = 0; i < tensor_elems(&a.dq); i++) CHECK(isfinite(optest_get(&a.dq, i)));
}

static void huge_scores_do_not_overflow(void **state)
{
    mirror_finite_only();
    check_huge_scores(*state, &square[2], DTYPE_F32);
    check_huge_scores(*state, &fused[2], DTYPE_BF16);
}

/* <d_o, o> as a function of q, k and v, which stand one behind the other. */
static double weighted_output(const void *context, const double *qkv)
{
    return output_of(*(const Problem *)context, qkv);
}

static void gradients_are_the_slopes_of_the_output(void **state)
{
    OpTest *t = *state;
    AttentionFwd f = make_args(t, &(Sizes){ 1, 9, 9, 4, 2, 5, 6 }, DTYPE_F32, DOCUMENTS);
    CHECK_OK(attention_fwd(&t->ex, f));
    AttentionBwd a = make_bwd(t, &f);
    CHECK_OK(attention_bwd(&t->ex, a));
    Problem p = problem_of(t, &f);
    p.d_o = optest_read(t, &a.d_o);
    int64_t nq = tensor_elems(&f.q), nk = tensor_elems(&f.k), nv = tensor_elems(&f.v);
    double *qkv = optest_doubles(t, nq + nk + nv), *slope = optest_doubles(t, nq + nk + nv);
    memcpy(qkv, p.q, (size_t)nq * sizeof *qkv);
    memcpy(qkv + nq, p.k, (size_t)nk * sizeof *qkv);
    memcpy(qkv + nq + nk, p.v, (size_t)nv * sizeof *qkv);
    optest_slopes(weighted_output, &p, qkv, nq + nk + nv, slope);
    p.given_o = optest_read(t, &f.o), p.given_lse = optest_read(t, &f.lse);
    each_query(&p, backward);
    check_sum("dq", &a.dq, slope, p.dq_size);
    check_sum("dk", &a.dk, slope + nq, p.dk_size);
    CHECK_TENSOR(&a.dv, slope + nq + nk);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2; i++) {
        AttentionFwd f[3];
        AttentionBwd a[3];
        for (int n = 0; n < 3; n++) {
            t->drawn = 0, t->ex.threads = (int[]){ 1, 2, 4 }[n];
            f[n] = make_args(t, &square[2], i ? DTYPE_BF16 : DTYPE_F32, DOCUMENTS);
            CHECK_OK(attention_fwd(&t->ex, f[n]));
            a[n] = make_bwd(t, &f[n]);
            CHECK_OK(attention_bwd(&t->ex, a[n]));
        }
        for (int n = 1; n < 3; n++) {
            CHECK_SAME(&f[n].o, &f[0].o);
            CHECK_SAME(&a[n].dq, &a[0].dq);
            CHECK_SAME(&a[n].dk, &a[0].dk);
            CHECK_SAME(&a[n].dv, &a[0].dv);
        }
    }
}

static void wrong_shapes_are_errors_that_name_the_tensor(void **state)
{
    OpTest *t = *state;
    const AttentionFwd good = make_args(t, &square[2], DTYPE_F32, DOCUMENTS);
    AttentionFwd f = good;
    f.k.dim[3]++;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_SHAPE, "attention_fwd: k is");
    f = good, f.k.dim[2] = f.v.dim[2] = 3;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_SHAPE, "do not share 3 key/value heads");
    f = good, f.k.dim[1] = f.v.dim[1] = 64;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_SHAPE, "65 queries but only 64 keys");
    f = good, f.o.dtype = DTYPE_BF16;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_SHAPE, "attention_fwd: o is");
    f = good, f.doc.dtype = DTYPE_F32;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_SHAPE, "attention_fwd: doc is");
    f = good, f.scale = 0;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_ARG, "scale is 0");
    f = good, f.window = -1;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_ARG, "a window of -1 and chunks of 0 tokens");
    f = good, f.pieces = pieces_of(32, 2, 0, 1);
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_SHAPE, "not two pieces of 32 tokens");
    f = good, f.o_before = f.o, f.o_before.dtype = DTYPE_BF16;
    CHECK_FAILS(attention_fwd(&t->ex, f), ERR_SHAPE, "attention_fwd: o_before is");
    AttentionBwd a = make_bwd(t, &good);
    a.dk.dim[1]++;
    CHECK_FAILS(attention_bwd(&t->ex, a), ERR_SHAPE, "attention_bwd: dk is");
}

/* 3 queries after 2 cached keys see 3 + 4 + 5 keys; backward, without a cache, 1 + 2 + 3. */
static void costs_count_the_pairs_that_a_causal_mask_leaves(void **state)
{
    OpTest *t = *state;
    AttentionFwd f = make_args(t, &(Sizes){ 2, 3, 5, 4, 2, 8, 6 }, DTYPE_F32, CAUSAL);
    OpCost cost = op_desc(OP_ATTENTION_FWD)->cost(&f);
    CHECK_NEAR(cost.flops, 2 * 4 * 12 * 2 * (8 + 6), 0);
    CHECK_NEAR(cost.bytes, 4 * (192 + 160 + 120 + 144 + 24), 0);
    f.chunk = 4; /* the queries stand at 2, 3 and 4: 3 + 4 + 1 */
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, 2 * 4 * 8 * 2 * (8 + 6), 0);
    f.chunk = 5;
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, cost.flops, 0);
    f.window = 3; /* 3 + 3 + 3 */
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, 2 * 4 * 9 * 2 * (8 + 6), 0);
    f.chunk = 4; /* 3 + 3 + 1 */
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, 2 * 4 * 7 * 2 * (8 + 6), 0);
    f = make_args(t, &(Sizes){ 2, 6, 6, 4, 2, 8, 6 }, DTYPE_F32, CAUSAL);
    f.pieces = pieces_of(3, 2, 1, 0); /* 6 queries, 3 keys each */
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, 2 * 4 * 18 * 2 * (8 + 6), 0);
    f.pieces = pieces_of(3, 2, 1, 1); /* 1 + 2 .. + 6 */
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, 2 * 4 * 21 * 2 * (8 + 6), 0);
    f.chunk = 4; /* the queries stand at 3 .. 8, in chunks from 0, 4 and 8 on: 1, 1 .. 4, 1 */
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, 2 * 4 * 12 * 2 * (8 + 6), 0);
    f.chunk = 0, f.window = 2; /* 1, 2, 2 .. 2 */
    CHECK_NEAR(op_desc(OP_ATTENTION_FWD)->cost(&f).flops, 2 * 4 * 11 * 2 * (8 + 6), 0);
    f = make_args(t, &(Sizes){ 2, 3, 3, 4, 2, 8, 6 }, DTYPE_F32, CAUSAL);
    AttentionBwd a = make_bwd(t, &f);
    cost = op_desc(OP_ATTENTION_BWD)->cost(&a);
    CHECK_NEAR(cost.flops, 2 * 4 * 6 * 2 * (3 * 8 + 2 * 6), 0);
    CHECK_NEAR(cost.bytes, 4 * (2 * (192 + 96 + 72) + 2 * 144 + 24), 0);
}

static OpCost cost_of(Dtype act, int64_t T, int64_t dk, AttentionKernel kernel, bool backward)
{
    Tensor q = { NULL, act, 4, { 1, T, 4, dk } }, k = { NULL, act, 4, { 1, T, 2, dk } };
    AttentionFwd a = { .q = q, .k = k, .v = k, .kernel = kernel };
    AttentionBwd b = { .q = q, .k = k, .v = k, .kernel = kernel };
    return backward ? attention_bwd_cost(&b) : attention_fwd_cost(&a);
}

static void a_cost_names_the_kernels_that_run(void **state)
{
    (void)state;
    static const struct {
        Dtype act;
        int64_t T, dk;
        AttentionKernel kernel, runs;
        bool plain; /* its rate */
    } call[] = {
        { DTYPE_BF16, 4096, 128, ATTENTION_AUTO, ATTENTION_HOPPER, false },
        { DTYPE_BF16, 4096, 128, ATTENTION_PLAIN, ATTENTION_PLAIN, true },
        { DTYPE_F32, 4096, 128, ATTENTION_PLAIN, ATTENTION_PLAIN, false },
        { DTYPE_BF16, 64, 128, ATTENTION_AUTO, ATTENTION_HOPPER, false },
        { DTYPE_BF16, 63, 128, ATTENTION_AUTO, ATTENTION_MMA, false },
        { DTYPE_BF16, 4096, 136, ATTENTION_AUTO, ATTENTION_MMA, false }, /* v is at most 128 wide */
        { DTYPE_BF16, 4096, 256, ATTENTION_AUTO, ATTENTION_MMA, false },
        { DTYPE_BF16, 4096, 124, ATTENTION_AUTO, ATTENTION_PLAIN, true },
        { DTYPE_BF16, 1 << 20, 128, ATTENTION_AUTO, ATTENTION_HOPPER, false },
        { DTYPE_BF16, 4096, 128, ATTENTION_MATRIX, ATTENTION_MATRIX, false },
        { DTYPE_BF16, 4096, 128, ATTENTION_MMA, ATTENTION_MMA, false },
    };
    for (size_t i = 0; i < sizeof call / sizeof *call; i++) {
        for (int back = 0; back < 2; back++) {
            OpWork own = back ? WORK_ATTENTION_PLAIN_BACKWARD : WORK_ATTENTION_PLAIN;
            OpWork f32 = back ? WORK_ATTENTION_BACKWARD : WORK_ATTENTION;
            OpWork fast = back && call[i].act == DTYPE_BF16 ? WORK_ATTENTION_ORDERED : f32;
            OpCost c = cost_of(call[i].act, call[i].T, call[i].dk, call[i].kernel, back);
            CHECK_TEXT(c.kernel->name, attention_words[call[i].runs].name);
            CHECK(c.kernel->skips);
            CHECK_INT(c.work, call[i].plain ? own : fast);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(forward_matches_double, 2),
        OP_TEST(forward_behind_a_cache_matches_double, 2),
        OP_TEST(backward_matches_double, 2),
        OP_TEST(fused_shapes_match_double, 2),
        OP_TEST(blocks_of_keys_add_up_as_in_double, 2),
        OP_TEST(a_gpus_blocks_add_up_as_in_double, 2),
        OP_TEST(blocks_cost_little_accuracy, 2),
        OP_TEST(rows_that_see_no_key_give_nothing, 2),
        OP_TEST(one_query_behind_a_cache_is_the_last_row_of_the_sequence, 2),
        OP_TEST(documents_do_not_see_each_other, 2),
        OP_TEST(sequences_have_documents_of_their_own, 2),
        OP_TEST(masks_that_hide_the_same_keys_give_the_same_bits, 2),
        OP_TEST(huge_scores_do_not_overflow, 2),
        OP_TEST(gradients_are_the_slopes_of_the_output, 2),
        OP_TEST(any_number_of_threads_gives_the_same_bits, 4),
        OP_TEST(wrong_shapes_are_errors_that_name_the_tensor, 1),
        OP_TEST(costs_count_the_pairs_that_a_causal_mask_leaves, 1),
        TEST(a_cost_names_the_kernels_that_run),
    };
    return TEST_RUN(tests);
}
