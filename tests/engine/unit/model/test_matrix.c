/* Matrices: the shape of parameters side by side, bytes of copies, cuts between matrices. */
#include "engine/model/matrix.h"
#include "harness/test.h"

/* ---- shapes ---- */

typedef struct Part {
    int rank, expert;
    int64_t dim[2];
} Part;

static void check_shape(const Part *part, int n, int rank, const int64_t *dim)
{
    Matrix m = { 0 };
    int64_t elems = 1;
    for (int i = 0; i < n; i++) matrix_grow(&m, part[i].rank, part[i].dim, part[i].expert);
    CHECK_INT(m.rank, rank);
    for (int i = 0; i < rank; i++) {
        CHECK_INT(m.dim[i], dim[i]);
        elems *= dim[i];
    }
    CHECK_INT(matrix_elems(&m), elems);
}

static void parameters_of_a_role_are_one_matrix(void **state)
{
    (void)state;
    static const Part gate_up[] = { { 2, -1, { 5, 3 } }, { 2, -1, { 5, 3 } } };
    check_shape(gate_up, 1, 2, (const int64_t[]){ 5, 3 });
    check_shape(gate_up, 2, 2, (const int64_t[]){ 10, 3 });
    static const Part q_kv[] = { { 2, -1, { 7, 4 } }, { 2, -1, { 2, 4 } }, { 2, -1, { 1, 4 } } };
    check_shape(q_kv, 3, 2, (const int64_t[]){ 10, 4 });
}

static void vectors_lie_beside_each_other(void **state)
{
    (void)state;
    static const Part bias[] = { { 1, -1, { 6 } }, { 1, -1, { 2 } } };
    check_shape(bias, 1, 2, (const int64_t[]){ 1, 6 });
    check_shape(bias, 2, 2, (const int64_t[]){ 1, 8 });
}

static void experts_add_to_the_first_dimension(void **state)
{
    (void)state;
    static const Part p[] = { { 2, 0, { 5, 3 } }, { 2, 0, { 5, 3 } }, { 2, 1, { 5, 3 } },
                              { 2, 1, { 5, 3 } }, { 2, 2, { 5, 3 } }, { 2, 2, { 5, 3 } } };
    check_shape(p, 6, 3, (const int64_t[]){ 3, 10, 3 });
    static const Part down[] = { { 2, 0, { 3, 5 } }, { 2, 1, { 3, 5 } } };
    check_shape(down, 2, 3, (const int64_t[]){ 2, 3, 5 });
    static const Part bias[] = {
        { 1, 0, { 4 } }, { 1, 0, { 4 } }, { 1, 1, { 4 } }, { 1, 1, { 4 } }
    };
    check_shape(bias, 4, 2, (const int64_t[]){ 2, 8 });
}

/* ---- copies ---- */

static void without_copies_products_read_the_main_weights(void **state)
{
    (void)state;
    CopySet none = copies_plain(DTYPE_F32), low = copies_plain(DTYPE_BF16);
    CHECK_INT(none.n, 0);
    CHECK_INT(copies_type(&none), DTYPE_F32);
    CHECK_NEAR(copies_bytes(&none, 5, 3), 60, 0);
    CHECK_INT(low.n, 1);
    CHECK_INT(copies_type(&low), DTYPE_BF16);
    CHECK_NEAR(copies_bytes(&low, 5, 3), 30, 0);
    CHECK_INT(copy_desc(low.at[0].kind)->operand, OPERAND_PLAIN);
    low.at[low.n++] = (CopySpec){ COPY_PLAIN, DTYPE_F32, .transposed = true };
    CHECK_NEAR(copies_bytes(&low, 5, 3), 30 + 60, 0);
}

/* ---- cuts ---- */

static void check_cut(const double *cost, int n, int ranks, const int *want)
{
    int end[8];
    matrix_cut(cost, n, ranks, end);
    for (int r = 0; r < ranks; r++) CHECK_INT(end[r], want[r]);
}

static void parts_end_at_the_boundary_nearest_to_their_share(void **state)
{
    (void)state;
    static const double even[] = { 1, 1, 1, 1, 1, 1 };
    check_cut(even, 6, 1, (const int[]){ 6 });
    check_cut(even, 6, 2, (const int[]){ 3, 6 });
    check_cut(even, 6, 3, (const int[]){ 2, 4, 6 });
    /* shares end at 2.5 and 5 of 10: 2 is nearer than 5, 5 is there, and 9 is nearer to 7.5 than 5 is */
    static const double mixed[] = { 2, 3, 4, 1 };
    check_cut(mixed, 4, 4, (const int[]){ 1, 2, 3, 4 });
}

static void ranks_without_a_matrix_have_an_empty_part(void **state)
{
    (void)state;
    static const double one[] = { 5 }, large[] = { 1, 10, 1 };
    check_cut(one, 1, 3, (const int[]){ 0, 1, 1 });
    check_cut(large, 3, 3, (const int[]){ 1, 2, 3 });
    check_cut(large, 3, 4, (const int[]){ 1, 2, 2, 3 });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parameters_of_a_role_are_one_matrix),
        TEST(vectors_lie_beside_each_other),
        TEST(experts_add_to_the_first_dimension),
        TEST(without_copies_products_read_the_main_weights),
        TEST(parts_end_at_the_boundary_nearest_to_their_share),
        TEST(ranks_without_a_matrix_have_an_empty_part),
    };
    return TEST_RUN(tests);
}
