/* Pieces of a tensor: what is worked by hand, and random ones beside lists of their elements. */
#include "harness/test.h"

#include "base/rng.h"
#include "model/piece.h"

enum { ELEMS = 200 };

/* Columns 2 to 4 of rows 1 to 3 of a matrix of 10 columns. */
static const Piece columns = { 12, 3, 10, 3 };

static void columns_are_runs_a_row_apart(void **state)
{
    (void)state;
    static const int64_t want[] = { 12, 13, 14, 22, 23, 24, 32, 33, 34 };
    CHECK_INT(piece_elems(&columns), 9);
    for (int i = 0; i < 9; i++) {
        CHECK_INT(piece_element(&columns, i), want[i]);
        CHECK_INT(piece_seek(&columns, want[i]), i);
        CHECK_INT(piece_run(&columns, i), 3 - i % 3);
    }
    CHECK_INT(piece_seek(&columns, 0), 0);
    CHECK_INT(piece_seek(&columns, 15), 3);
    CHECK_INT(piece_seek(&columns, 21), 3);
    CHECK_INT(piece_seek(&columns, 35), 9);
    CHECK_INT(piece_seek(&columns, 100), 9);
}

static void a_range_of_nothing_has_no_elements(void **state)
{
    (void)state;
    const Piece none = { 0 }, empty = piece_range(7, 0);
    CHECK_INT(piece_elems(&empty), 0);
    CHECK_INT(piece_common(&columns, &none), 0);
    CHECK_INT(piece_common(&empty, &columns), 0);
}

static void what_two_pieces_share_comes_in_spans(void **state)
{
    (void)state;
    const Piece rows = piece_range(10, 20); /* rows 1 and 2 */
    PieceSpan s = { 0 };
    CHECK(piece_meet(&columns, &rows, &s));
    CHECK(s.a == 0 && s.b == 2 && s.n == 3);
    CHECK(piece_meet(&columns, &rows, &s));
    CHECK(s.a == 3 && s.b == 12 && s.n == 3);
    CHECK(!piece_meet(&columns, &rows, &s));
    CHECK_INT(piece_common(&columns, &rows), 6);
}

static void what_follows_in_both_is_one_span(void **state)
{
    (void)state;
    PieceSpan s = { 0 };
    const Piece upper = { 12, 3, 10, 2 };
    CHECK(piece_meet(&columns, &upper, &s));
    CHECK(s.a == 0 && s.b == 0 && s.n == 6);
    CHECK(!piece_meet(&columns, &upper, &s));
}

static void only_what_lies_in_the_tensor_fits(void **state)
{
    (void)state;
    const int64_t huge = INT64_MAX;
    const Piece bad[] = {
        { -1, 1, 1, 1 },       { 0, 0, 0, 1 },
        { 0, -3, 1, 1 },       { 0, 1, 1, 0 },
        { 0, 4, 3, 2 },        { 0, 101, 101, 1 },
        { 99, 2, 2, 1 },       { 5, 6, 10, 10 + 1 },
        { huge, 1, 1, 1 },     { 0, huge, huge, 1 },
        { 1, 1, huge, 2 },     { 0, 1, 1, huge },
        { 1, 1, huge / 2, 3 }, { huge, huge, huge, huge },
        { 91, 5, 10, 2 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!piece_fits(&bad[i], 100));
    CHECK(piece_fits(&(Piece){ 0, 100, 100, 1 }, 100));
    CHECK(piece_fits(&(Piece){ 5, 5, 10, 10 }, 100));
    CHECK(piece_fits(&(Piece){ 0, 1, 1, 100 }, 100));
    CHECK(!piece_fits(&(Piece){ 6, 5, 10, 10 }, 100));
    CHECK(piece_fits(&columns, 35) && !piece_fits(&columns, 34));
}

/* ---- random pieces ---- */

static int64_t draw(uint64_t *i, int64_t below)
{
    return (int64_t)(rng_uniform(7, 1, (*i)++) * (double)below);
}

static Piece draw_piece(uint64_t *i)
{
    Piece p = { 0 };
    while (!piece_fits(&p, ELEMS)) {
        p = (Piece){ draw(i, ELEMS), 1 + draw(i, 30), 0, 1 + draw(i, 12) };
        p.stride = p.n + draw(i, 20);
    }
    return p;
}

/* place[e]: of element e in the piece, -1 for one that it lacks. */
static void list(const Piece *p, int64_t place[ELEMS])
{
    for (int e = 0; e < ELEMS; e++) place[e] = -1;
    int64_t i = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t k = 0; k < p->n; k++) place[p->first + r * p->stride + k] = i++;
    }
    CHECK_INT(i, piece_elems(p));
}

static void check_pair(const Piece *a, const Piece *b)
{
    int64_t in_a[ELEMS], in_b[ELEMS], shared = 0, met = 0;
    list(a, in_a);
    list(b, in_b);
    PieceSpan before = { 0 };
    for (int e = 0; e < ELEMS; e++) shared += in_a[e] >= 0 && in_b[e] >= 0;
    for (PieceSpan s = { 0 }; piece_meet(a, b, &s); before = s) {
        CHECK(s.n > 0 && s.a >= before.a + before.n && s.b >= before.b + before.n);
        CHECK(before.n == 0 || s.a > before.a + before.n || s.b > before.b + before.n);
        for (int64_t k = 0; k < s.n; k++, met++) {
            int64_t e = piece_element(a, s.a + k);
            CHECK(in_a[e] == s.a + k && in_b[e] == s.b + k);
        }
    }
    CHECK_INT(met, shared);
    CHECK_INT(piece_common(a, b), shared);
}

static void random_pieces_share_what_their_lists_share(void **state)
{
    (void)state;
    uint64_t i = 0;
    for (int n = 0; n < 3000; n++) {
        Piece a = draw_piece(&i), b = draw_piece(&i);
        check_pair(&a, &b);
        check_pair(&a, &a);
    }
}

static void seeking_finds_the_next_element_that_a_list_has(void **state)
{
    (void)state;
    uint64_t i = 1 << 20;
    for (int n = 0; n < 500; n++) {
        int64_t place[ELEMS], next;
        Piece p = draw_piece(&i);
        list(&p, place);
        next = piece_elems(&p);
        for (int64_t e = ELEMS - 1; e >= 0; e--) {
            if (place[e] >= 0) next = place[e];
            CHECK_INT(piece_seek(&p, e), next);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(columns_are_runs_a_row_apart),
        TEST(a_range_of_nothing_has_no_elements),
        TEST(what_two_pieces_share_comes_in_spans),
        TEST(what_follows_in_both_is_one_span),
        TEST(only_what_lies_in_the_tensor_fits),
        TEST(random_pieces_share_what_their_lists_share),
        TEST(seeking_finds_the_next_element_that_a_list_has),
    };
    return TEST_RUN(tests);
}
