#include "harness/test.h"

#include "engine/base/tensor.h"

static Arena arena_of(size_t bytes)
{
    Arena a = { 0 };
    CHECK_OK(arena_init(&a, "test", MEM_HOST, bytes));
    return a;
}

static void a_new_tensor_has_its_shape_and_memory(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 16);
    Tensor t = { 0 };
    CHECK_OK(tensor_new(&a, DTYPE_BF16, 3, (int64_t[]){ 3, 5, 7 }, &t));
    CHECK_INT(t.rank, 3);
    CHECK_INT(tensor_elems(&t), 105);
    CHECK_INT(tensor_bytes(&t), 210);
    CHECK_INT(tensor_row_elems(&t), 35);
    CHECK_INT(tensor_cols(&t), 7);
    memset(t.data, 1, tensor_bytes(&t));
    arena_free(&a);
}

static void shorthands_set_the_rank(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 16);
    Tensor one = { 0 }, two = { 0 };
    CHECK_OK(tensor_new1(&a, DTYPE_I64, 13, &one));
    CHECK_OK(tensor_new2(&a, DTYPE_F32, 11, 17, &two));
    CHECK(one.rank == 1 && one.dim[0] == 13);
    CHECK(two.rank == 2 && two.dim[0] == 11 && two.dim[1] == 17);
    arena_free(&a);
}

static void a_row_of_a_vector_is_one_element(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 16);
    Tensor t = { 0 };
    CHECK_OK(tensor_new1(&a, DTYPE_F32, 13, &t));
    CHECK_INT(tensor_row_elems(&t), 1);
    CHECK_INT(tensor_cols(&t), 13);
    arena_free(&a);
}

static void a_tensor_that_does_not_fit_leaves_the_output_alone(void **state)
{
    (void)state;
    Arena a = arena_of(1024);
    Tensor t = { .rank = 77 };
    CHECK_FAILS(tensor_new2(&a, DTYPE_F32, 100, 100, &t), ERR_MEMORY, "40000 bytes wanted");
    CHECK_INT(t.rank, 77);
    arena_free(&a);
}

static void views_share_the_memory(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 16);
    Tensor t = { 0 };
    CHECK_OK(tensor_new(&a, DTYPE_F32, 3, (int64_t[]){ 4, 6, 5 }, &t));
    Tensor flat = tensor_as2(&t, 24, 5), deep = tensor_as4(&t, 2, 2, 3, 10);
    CHECK(flat.data == t.data && deep.data == t.data);
    CHECK(flat.rank == 2 && flat.dim[0] == 24 && flat.dim[1] == 5);
    CHECK(deep.rank == 4 && deep.dim[0] == 2 && deep.dim[1] == 2 && deep.dim[2] == 3 &&
          deep.dim[3] == 10);
    arena_free(&a);
}

static void rows_begin_at_their_first_element(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 16);
    Tensor t = { 0 };
    CHECK_OK(tensor_new(&a, DTYPE_I32, 3, (int64_t[]){ 7, 3, 5 }, &t));
    for (int i = 0; i < 105; i++) ((int32_t *)t.data)[i] = i;
    Tensor rows = tensor_rows(&t, 2, 4);
    CHECK_INT(*(int32_t *)rows.data, 30);
    CHECK_INT(rows.dim[0], 4);
    CHECK_INT(tensor_elems(&rows), 60);
    arena_free(&a);
}

static void no_rows_at_the_end_are_legal(void **state)
{
    (void)state;
    Arena a = arena_of(1 << 16);
    Tensor t = { 0 };
    CHECK_OK(tensor_new2(&a, DTYPE_U8, 7, 3, &t));
    Tensor none = tensor_rows(&t, 7, 0);
    CHECK_INT(tensor_bytes(&none), 0);
    arena_free(&a);
}

static void an_element_is_found_by_its_size(void **state)
{
    (void)state;
    char memory[100];
    for (int d = 0; d < DTYPE_COUNT; d++) {
        Tensor t = { memory, (Dtype)d, 1, { 11 } };
        CHECK_INT((char *)tensor_at(&t, 11) - memory, 11 * dtype_bytes((Dtype)d));
    }
}

static void counts_past_32_bits_are_exact(void **state)
{
    (void)state;
    Tensor t = { NULL, DTYPE_BF16, 3, { 100000, 3, 100003 } };
    CHECK_INT(tensor_elems(&t), 30000900000LL);
    CHECK_INT(tensor_bytes(&t), 60001800000LL);
}

static void the_shape_is_printed_for_people(void **state)
{
    (void)state;
    char text[64];
    Tensor t = { NULL, DTYPE_BF16, 2, { 4, 128 } };
    CHECK_TEXT(tensor_shape_text(&t, text, sizeof text), "(4, 128) bf16");
}

static void a_shape_longer_than_the_room_is_cut(void **state)
{
    (void)state;
    Tensor t = { NULL, DTYPE_F32, 4, { 123456, 123456, 123456, 123456 } };
    for (size_t room = 1; room < 50; room++) {
        char text[64];
        memset(text, '#', sizeof text);
        tensor_shape_text(&t, text, room);
        CHECK(strlen(text) < room);
        CHECK(text[room] == '#');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_tensor_has_its_shape_and_memory),
        TEST(shorthands_set_the_rank),
        TEST(a_row_of_a_vector_is_one_element),
        TEST(a_tensor_that_does_not_fit_leaves_the_output_alone),
        TEST(views_share_the_memory),
        TEST(rows_begin_at_their_first_element),
        TEST(no_rows_at_the_end_are_legal),
        TEST(an_element_is_found_by_its_size),
        TEST(counts_past_32_bits_are_exact),
        TEST(the_shape_is_printed_for_people),
        TEST(a_shape_longer_than_the_room_is_cut),
    };
    return TEST_RUN(tests);
}
