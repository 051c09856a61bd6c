#include "harness/optest.h"
#include "kernels/head/embed.h"

typedef struct Sizes {
    int64_t N, V, D;
} Sizes;

/* Columns around the lines and strips that threads own; few ids, so that they repeat. The last ones
 * are for the sort of the GPU: an id over several of its tiles, several tiles, ids of two digits,
 * and more tiles than digits. */
static const Sizes sizes[] = {
    { 1, 1, 1 },     { 7, 13, 5 },   { 129, 11, 65 },  { 64, 3, 16 },      { 33, 7, 17 },
    { 40, 5, 1031 }, { 200, 2, 24 }, { 2500, 300, 8 }, { 263000, 300, 8 },
};

enum { SIZES = sizeof sizes / sizeof *sizes };

static EmbedFwd forward_args(OpTest *t, const Sizes *s, Dtype dtype)
{
    return (EmbedFwd){ .id = optest_integers(t, DTYPE_I32, DIMS(s->N), 0, s->V),
                       .table = optest_normal(t, dtype, DIMS(s->V, s->D)),
                       .h = optest_poisoned(t, dtype, DIMS(s->N, s->D)) };
}

static EmbedBwd backward_args(OpTest *t, const Sizes *s, Dtype dtype)
{
    return (EmbedBwd){ .id = optest_integers(t, DTYPE_I32, DIMS(s->N), 0, s->V),
                       .dh = optest_normal(t, dtype, DIMS(s->N, s->D)),
                       .dtable = optest_normal(t, DTYPE_F32, DIMS(s->V, s->D)) };
}

static void rows_are_copied_to_the_bit(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SIZES; i++) {
        const Sizes *s = &sizes[i / 2];
        EmbedFwd a = forward_args(t, s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        Tensor want = optest_poisoned(t, a.h.dtype, DIMS(s->N, s->D));
        for (int64_t j = 0; j < s->N * s->D; j++) {
            int64_t row = (int64_t)optest_get(&a.id, j / s->D);
            optest_set(&want, j, optest_get(&a.table, row * s->D + j % s->D));
        }
        CHECK_OK(embed_fwd(&t->ex, a));
        CHECK_SAME(&a.h, &want);
    }
}

static void gradients_are_added_and_match_double(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SIZES; i++) {
        const Sizes *s = &sizes[i / 2];
        EmbedBwd a = backward_args(t, s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        double *want = optest_read(t, &a.dtable);
        for (int64_t j = 0; j < s->N * s->D; j++) {
            int64_t row = (int64_t)optest_get(&a.id, j / s->D);
            want[row * s->D + j % s->D] += optest_get(&a.dh, j);
        }
        CHECK_OK(embed_bwd(&t->ex, a));
        CHECK_TENSOR(&a.dtable, want);
    }
}

/* Tokens 0 and 2 share id 1; id 0 and id 3 get nothing. */
static void gradients_worked_by_hand(void **state)
{
    OpTest *t = *state;
    int32_t id[3] = { 1, 2, 1 };
    float dh[6] = { 1, 2, 10, 20, 100, 200 }, dtable[8] = { 5, 5, 5, 5, 5, 5, 5, 5 };
    CHECK_OK(embed_bwd(&t->ex, (EmbedBwd){ .id = { id, DTYPE_I32, 1, { 3 } },
                                           .dh = { dh, DTYPE_F32, 2, { 3, 2 } },
                                           .dtable = { dtable, DTYPE_F32, 2, { 4, 2 } } }));
    const double want[8] = { 5, 5, 106, 207, 15, 25, 5, 5 };
    for (int i = 0; i < 8; i++) CHECK_NEAR(dtable[i], want[i], 0);
}

static void bits_do_not_depend_on_threads(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 200, 5, 333 };
    EmbedBwd a = backward_args(t, &s, DTYPE_F32), b = a;
    Tensor before = optest_copy(t, &a.dtable);
    CHECK_OK(embed_bwd(&t->ex, a));
    for (int threads = 2; threads <= 40; threads += 19) {
        b.dtable = optest_copy(t, &before);
        t->ex.threads = threads;
        CHECK_OK(embed_bwd(&t->ex, b));
        CHECK_SAME(&b.dtable, &a.dtable);
    }
}

static void an_id_outside_the_table_is_an_error_and_changes_nothing(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 7, 13, 5 };
    EmbedFwd f = forward_args(t, &s, DTYPE_F32);
    optest_set(&f.id, 4, 13);
    CHECK_FAILS(embed_fwd(&t->ex, f), ERR_ARG, "embed_fwd: element 4 of id is 13");
    EmbedBwd b = backward_args(t, &s, DTYPE_F32);
    Tensor before = optest_copy(t, &b.dtable);
    optest_set(&b.id, 6, -1);
    CHECK_FAILS(embed_bwd(&t->ex, b), ERR_ARG, "embed_bwd: element 6 of id is -1");
    CHECK_SAME(&b.dtable, &before);
}

/* Part r of `parts` of the whole table's rows; only the last may have fewer. */
typedef struct Piece {
    int64_t first, rows;
} Piece;

static Piece piece_of(int64_t V, int64_t parts, int64_t r)
{
    int64_t each = (V + parts - 1) / parts, first = r * each;
    return (Piece){ first, first + each < V ? each : V - first };
}

/* Ids of the first and last row of the part are among those that are looked up. */
static void each_part_gives_its_own_rows_and_zeros(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SIZES; i++) {
        const Sizes *s = &sizes[i / 2];
        int64_t parts = s->V < 4 ? s->V : 4;
        EmbedFwd whole = forward_args(t, s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        for (int64_t r = 0; r < parts && piece_of(s->V, parts, r).rows > 0; r++) {
            Piece p = piece_of(s->V, parts, r);
            EmbedFwd a = whole;
            Tensor want = optest_poisoned(t, whole.h.dtype, whole.h.dim), rows;
            if (s->N > 1) optest_set(&whole.id, 0, (double)p.first);
            if (s->N > 1) optest_set(&whole.id, 1, (double)(p.first + p.rows - 1));
            rows = tensor_rows(&whole.table, p.first, p.rows);
            a.table = optest_copy(t, &rows), a.first = p.first, a.vocab = s->V;
            a.h = optest_poisoned(t, whole.h.dtype, whole.h.dim);
            for (int64_t j = 0; j < s->N * s->D; j++) {
                int64_t id = (int64_t)optest_get(&a.id, j / s->D);
                bool own = id >= p.first && id < p.first + p.rows;
                optest_set(&want, j, own ? optest_get(&whole.table, id * s->D + j % s->D) : 0);
            }
            CHECK_OK(embed_fwd(&t->ex, a));
            CHECK_SAME(&a.h, &want);
        }
    }
}

/* On the CPU they have the bits of the whole table's. */
static void each_part_gets_its_own_gradients(void **state)
{
    OpTest *t = *state;
    for (int i = 0; i < 2 * SIZES; i++) {
        const Sizes *s = &sizes[i / 2];
        int64_t parts = s->V < 4 ? s->V : 4;
        EmbedBwd whole = backward_args(t, s, i % 2 == 0 ? DTYPE_F32 : DTYPE_BF16);
        Tensor before = optest_copy(t, &whole.dtable);
        for (int64_t r = 0; r < parts && s->N > 1; r++)
            optest_set(&whole.id, r, (double)(piece_of(s->V, parts, r).first % s->V));
        CHECK_OK(embed_bwd(&t->ex, whole));
        for (int64_t r = 0; r < parts && piece_of(s->V, parts, r).rows > 0; r++) {
            Piece p = piece_of(s->V, parts, r);
            EmbedBwd a = whole;
            Tensor mine = tensor_rows(&before, p.first, p.rows);
            Tensor want = tensor_rows(&whole.dtable, p.first, p.rows);
            a.dtable = optest_copy(t, &mine), a.first = p.first, a.vocab = s->V;
            CHECK_OK(embed_bwd(&t->ex, a));
            CHECK_SAME(&a.dtable, &want);
        }
    }
}

static void an_id_outside_the_vocabulary_is_an_error_for_every_part(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 7, 13, 5 };
    EmbedFwd f = forward_args(t, &s, DTYPE_F32);
    EmbedBwd b = backward_args(t, &s, DTYPE_F32);
    f.first = b.first = 13, f.vocab = b.vocab = 26;
    optest_set(&f.id, 4, 26);
    CHECK_FAILS(embed_fwd(&t->ex, f), ERR_ARG, "element 4 of id is 26, outside 0 .. 25");
    optest_set(&b.id, 6, -1);
    CHECK_FAILS(embed_bwd(&t->ex, b), ERR_ARG, "element 6 of id is -1, outside 0 .. 25");
    f.first = b.first = 14;
    CHECK_FAILS(embed_fwd(&t->ex, f), ERR_ARG, "13 rows from id 14 on, but the vocabulary 26");
    CHECK_FAILS(embed_bwd(&t->ex, b), ERR_ARG, "13 rows from id 14 on, but the vocabulary 26");
    f.first = b.first = 1, f.vocab = b.vocab = 0; /* all of it */
    CHECK_FAILS(embed_fwd(&t->ex, f), ERR_ARG, "13 rows from id 1 on, but the vocabulary 13");
    CHECK_FAILS(embed_bwd(&t->ex, b), ERR_ARG, "13 rows from id 1 on, but the vocabulary 13");
}

static void wrong_shapes_are_errors_with_a_message(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 7, 13, 5 };
    const EmbedFwd good = forward_args(t, &s, DTYPE_BF16);
    EmbedFwd f = good;
    f.h = optest_normal(t, DTYPE_BF16, DIMS(7, 4));
    CHECK_FAILS(embed_fwd(&t->ex, f), ERR_SHAPE, "embed_fwd: h is (7, 4)");
    f = good, f.id = f.h;
    CHECK_FAILS(embed_fwd(&t->ex, f), ERR_SHAPE, "embed_fwd: id is (7, 5) bf16");
    f = good, f.table = good.id;
    CHECK_FAILS(embed_fwd(&t->ex, f), ERR_SHAPE, "embed_fwd: table is (7) i32");
    EmbedBwd b = backward_args(t, &s, DTYPE_BF16);
    b.dtable = good.table;
    CHECK_FAILS(embed_bwd(&t->ex, b), ERR_SHAPE, "embed_bwd: dtable is (13, 5) bf16");
    b = backward_args(t, &s, DTYPE_BF16);
    b.dh = f.h;
    b.id = optest_integers(t, DTYPE_I32, DIMS(8), 0, s.V);
    CHECK_FAILS(embed_bwd(&t->ex, b), ERR_SHAPE, "embed_bwd: dh is (7, 5)");
}

static void costs_count_the_rows_that_are_used(void **state)
{
    OpTest *t = *state;
    const Sizes s = { 7, 1000, 5 };
    EmbedFwd f = forward_args(t, &s, DTYPE_BF16);
    EmbedBwd b = backward_args(t, &s, DTYPE_BF16);
    CHECK_NEAR(op_desc(OP_EMBED_FWD)->cost(&f).bytes, 2 * 35 * 2 + 7 * 4, 0);
    CHECK_NEAR(op_desc(OP_EMBED_BWD)->cost(&b).bytes, 35 * 2 + 2 * 35 * 4 + 7 * 4, 0);
    CHECK_NEAR(op_desc(OP_EMBED_BWD)->cost(&b).flops, 35, 0);
    f.vocab = b.vocab = 4000; /* a quarter of the ids has rows here */
    CHECK_NEAR(op_desc(OP_EMBED_FWD)->cost(&f).bytes, 1.25 * 35 * 2 + 7 * 4, 0);
    CHECK_NEAR(op_desc(OP_EMBED_BWD)->cost(&b).bytes, 0.25 * (35 * 2 + 2 * 35 * 4) + 7 * 4, 0);
    CHECK_NEAR(op_desc(OP_EMBED_BWD)->cost(&b).flops, 8.75, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(rows_are_copied_to_the_bit, 2),
        OP_TEST(gradients_are_added_and_match_double, 2),
        OP_TEST(gradients_worked_by_hand, 2),
        OP_TEST(bits_do_not_depend_on_threads, 1),
        OP_TEST(an_id_outside_the_table_is_an_error_and_changes_nothing, 2),
        OP_TEST(each_part_gives_its_own_rows_and_zeros, 2),
        OP_TEST(each_part_gets_its_own_gradients, 2),
        OP_TEST(an_id_outside_the_vocabulary_is_an_error_for_every_part, 1),
        OP_TEST(wrong_shapes_are_errors_with_a_message, 1),
        OP_TEST(costs_count_the_rows_that_are_used, 1),
    };
    return TEST_RUN(tests);
}
