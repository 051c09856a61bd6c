/* Pieces of a tensor: what is worked by hand, then all of a small tensor and random ones of a larger
 * one beside lists of their elements. */
#include "harness/test.h"

#include "engine/base/rng.h"
#include "engine/model/piece.h"

enum { ELEMS = 200, SMALL = 7, PIECES_MAX = 1 << 10 };

/* Columns 2 to 4 of rows 1 to 3 of a matrix of 10 columns; and elements 2 to 6 of them. */
static const Piece columns = { 12, 3, 10, 3, 0, 0 }, middle = { 12, 3, 10, 3, 2, 2 };

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

static void a_part_begins_and_ends_inside_of_runs(void **state)
{
    (void)state;
    static const int64_t want[] = { 14, 22, 23, 24, 32 }, run[] = { 1, 3, 2, 1, 1 };
    const Piece part = piece_part(&columns, 2, 5), lower = piece_part(&columns, 4, 4);
    CHECK(memcmp(&part, &middle, sizeof part) == 0);
    CHECK_INT(piece_elems(&middle), 5);
    for (int i = 0; i < 5; i++) {
        CHECK_INT(piece_element(&middle, i), want[i]);
        CHECK_INT(piece_seek(&middle, want[i]), i);
        CHECK_INT(piece_run(&middle, i), run[i]);
    }
    CHECK_INT(piece_seek(&middle, 13), 0);
    CHECK_INT(piece_seek(&middle, 33), 5);
    CHECK(memcmp(&lower, &(Piece){ 22, 3, 10, 2, 1, 1 }, sizeof lower) == 0);
}

static void a_part_of_one_run_is_a_plain_range(void **state)
{
    (void)state;
    const Piece rows = piece_range(10, 20);
    const struct {
        Piece part, range;
    } is[] = {
        { piece_part(&columns, 3, 3), piece_range(22, 3) },
        { piece_part(&columns, 4, 1), piece_range(23, 1) },
        { piece_part(&middle, 1, 2), piece_range(22, 2) },
        { piece_part(&rows, 0, 20), rows },
        { piece_part(&rows, 5, 7), piece_range(15, 7) },
        { piece_part(&rows, 20, 0), (Piece){ 0 } },
    };
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        CHECK(memcmp(&is[i].part, &is[i].range, sizeof rows) == 0);
    }
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
    const Piece upper = { 12, 3, 10, 2, 0, 0 };
    CHECK(piece_meet(&columns, &upper, &s));
    CHECK(s.a == 0 && s.b == 0 && s.n == 6);
    CHECK(!piece_meet(&columns, &upper, &s));
}

static void only_what_lies_in_the_tensor_fits(void **state)
{
    (void)state;
    const int64_t huge = INT64_MAX;
    const Piece bad[] = {
        { -1, 1, 1, 1, 0, 0 },
        { 0, 0, 0, 1, 0, 0 },
        { 0, -3, 1, 1, 0, 0 },
        { 0, 1, 1, 0, 0, 0 },
        { 0, 4, 3, 2, 0, 0 },
        { 0, 101, 101, 1, 0, 0 },
        { 99, 2, 2, 1, 0, 0 },
        { 5, 6, 10, 10 + 1, 0, 0 },
        { huge, 1, 1, 1, 0, 0 },
        { 0, huge, huge, 1, 0, 0 },
        { 1, 1, huge, 2, 0, 0 },
        { 0, 1, 1, huge, 0, 0 },
        { 1, 1, huge / 2, 3, 0, 0 },
        { huge, huge, huge, huge, 0, 0 },
        { 91, 5, 10, 2, 0, 0 },
        { 0, 4, 10, 2, 4, 0 },
        { 0, 4, 10, 2, 0, 4 },
        { 0, 4, 10, 2, -1, 0 },
        { 0, 4, 10, 2, 0, -1 },
        { 0, 4, 4, 1, 2, 2 },
        { 0, 4, 4, 1, 1, 3 },
        { 0, 4, 10, 2, huge, 1 },
        { 0, 4, 10, 2, 1, huge },
        { 0, 4, 4, 1, 3, huge },
        { 0, 4, 4, 1, -huge - 1, -huge - 1 },
        { 5, 6, 10, 10, 0, 1 },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!piece_fits(&bad[i], 100));
    CHECK(piece_fits(&(Piece){ 0, 100, 100, 1, 0, 0 }, 100));
    CHECK(piece_fits(&(Piece){ 5, 5, 10, 10, 0, 0 }, 100));
    CHECK(piece_fits(&(Piece){ 0, 1, 1, 100, 0, 0 }, 100));
    CHECK(!piece_fits(&(Piece){ 6, 5, 10, 10, 0, 0 }, 100));
    CHECK(piece_fits(&(Piece){ 0, 4, 10, 2, 3, 3 }, 100));
    CHECK(piece_fits(&(Piece){ 0, 4, 4, 1, 1, 2 }, 100));
    CHECK(piece_fits(&columns, 35) && !piece_fits(&columns, 34));
}

/* ---- beside lists ---- */

static int64_t draw(uint64_t *i, int64_t below)
{
    return (int64_t)(rng_uniform(7, 1, (*i)++) * (double)below);
}

static Piece draw_piece(uint64_t *i)
{
    Piece p = { 0 };
    while (!piece_fits(&p, ELEMS)) {
        p = (Piece){ draw(i, ELEMS), 1 + draw(i, 30), 0, 1 + draw(i, 12), 0, 0 };
        p.stride = p.n + draw(i, 20);
        p.skip = draw(i, 2) * draw(i, p.n);
        p.lack = draw(i, 2) * draw(i, p.n);
    }
    return p;
}

/* place[e]: of element e in the piece, -1 for one that it lacks. */
static void list(const Piece *p, int64_t place[ELEMS])
{
    for (int e = 0; e < ELEMS; e++) place[e] = -1;
    int64_t i = 0, at = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t k = 0; k < p->n; k++, at++) {
            if (at < p->skip || at >= p->rows * p->n - p->lack) continue;
            place[p->first + r * p->stride + k] = i++;
        }
    }
    CHECK_INT(i, piece_elems(p));
}

static void check_elements(const Piece *p)
{
    int64_t place[ELEMS], next = piece_elems(p), run = 0;
    list(p, place);
    for (int64_t e = ELEMS - 1; e >= 0; e--) {
        if (place[e] >= 0) next = place[e];
        CHECK_INT(piece_seek(p, e), next);
        bool run_ends = place[e] < 0 || (e + 1 - p->first) % p->stride == 0;
        run = run_ends ? place[e] >= 0 : run + 1;
        if (place[e] < 0) continue;
        CHECK_INT(piece_element(p, place[e]), e);
        CHECK_INT(piece_run(p, place[e]), run);
    }
}

static void check_part(const Piece *p, int64_t first, int64_t n)
{
    int64_t in_p[ELEMS], in_part[ELEMS];
    const Piece part = piece_part(p, first, n), range = piece_range(part.first, n);
    CHECK(piece_fits(&part, ELEMS));
    CHECK_INT(piece_elems(&part), n);
    list(p, in_p);
    list(&part, in_part);
    for (int e = 0; e < ELEMS; e++) {
        bool there = in_p[e] >= first && in_p[e] < first + n;
        CHECK_INT(in_part[e], there ? in_p[e] - first : -1);
    }
    CHECK(part.rows > 1 || memcmp(&part, &range, sizeof part) == 0);
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

/* Each number is tried from -1 to SMALL. */
static int small_pieces(Piece out[PIECES_MAX])
{
    enum { VALUES = SMALL + 2 };
    int n = 0;
    for (int64_t i = 0; i < VALUES * VALUES * VALUES * VALUES * VALUES * VALUES; i++) {
        int64_t v[6], left = i;
        for (int k = 0; k < 6; k++, left /= VALUES) v[k] = left % VALUES - 1;
        Piece p = { v[0], v[1], v[2], v[3], v[4], v[5] };
        bool runs = p.first >= 0 && p.n > 0 && p.stride >= p.n && p.rows > 0 &&
                    p.first + (p.rows - 1) * p.stride + p.n <= SMALL;
        bool ends = p.skip >= 0 && p.skip < p.n && p.lack >= 0 && p.lack < p.n;
        CHECK_INT(piece_fits(&p, SMALL), runs && ends && p.rows * p.n - p.skip - p.lack > 0);
        if (piece_fits(&p, SMALL)) out[n++] = p;
        CHECK(n < PIECES_MAX);
    }
    return n;
}

static void all_parts_of_all_small_pieces_are_as_their_lists(void **state)
{
    (void)state;
    static Piece p[PIECES_MAX];
    int n = small_pieces(p);
    for (int i = 0; i < n; i++) {
        int64_t all = piece_elems(&p[i]);
        check_elements(&p[i]);
        for (int64_t first = 0; first < all; first++) {
            for (int64_t k = 1; first + k <= all; k++) check_part(&p[i], first, k);
        }
    }
}

static void all_small_pieces_share_what_their_lists_share(void **state)
{
    (void)state;
    static Piece p[PIECES_MAX];
    int n = small_pieces(p);
    for (int a = 0; a < n; a++) {
        for (int b = 0; b < n; b++) check_pair(&p[a], &p[b]);
    }
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

static void random_pieces_and_their_parts_are_as_their_lists(void **state)
{
    (void)state;
    uint64_t i = 1 << 20;
    for (int n = 0; n < 500; n++) {
        Piece p = draw_piece(&i);
        int64_t first = draw(&i, piece_elems(&p));
        check_elements(&p);
        check_part(&p, first, 1 + draw(&i, piece_elems(&p) - first));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(columns_are_runs_a_row_apart),
        TEST(a_part_begins_and_ends_inside_of_runs),
        TEST(a_part_of_one_run_is_a_plain_range),
        TEST(a_range_of_nothing_has_no_elements),
        TEST(what_two_pieces_share_comes_in_spans),
        TEST(what_follows_in_both_is_one_span),
        TEST(only_what_lies_in_the_tensor_fits),
        TEST(all_parts_of_all_small_pieces_are_as_their_lists),
        TEST(all_small_pieces_share_what_their_lists_share),
        TEST(random_pieces_share_what_their_lists_share),
        TEST(random_pieces_and_their_parts_are_as_their_lists),
    };
    return TEST_RUN(tests);
}
