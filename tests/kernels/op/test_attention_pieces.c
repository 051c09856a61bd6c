/* attention_pieces against the mask itself, pair by pair of a query and a key. */
#include "harness/test.h"

#include "engine/base/rng.h"
#include "kernels/attention/attention_pieces.h"
#include "kernels/op/attention_case.h"

enum { DOCUMENTS = 5, DRAWN = 20000 };

/* Does query i see key j, where documents of `length` tokens (0: none) do not see each other? */
static bool sees(const AttentionPieces *p, int64_t i, int64_t j, int64_t length)
{
    int64_t q = piece_position(p, p->q, i), k = piece_position(p, p->k, j);
    return k <= q && (length == 0 || k >= q - q % length);
}

static bool rect_sees(const AttentionPieces *p, const AttentionRect *r, int64_t i, int64_t j,
                      int64_t length)
{
    int64_t row = i - r->q, col = j - r->k, at = piece_position(p, p->q, i), first = 0;
    if (row < 0 || row >= r->Tq || col < 0 || col >= r->Tk) return false;
    if (length > 0) first = attention_first_key(p, r, at - at % length);
    CHECK(first >= 0 && first <= r->Tk);
    return col >= first && (!r->causal || col <= row);
}

static void check_mask(const AttentionPieces *p, const AttentionRect *r, int64_t length)
{
    for (int64_t i = 0; i < 2 * p->length; i++) {
        for (int64_t j = 0; j < 2 * p->length; j++)
            CHECK_INT(rect_sees(p, r, i, j, length), sees(p, i, j, length));
    }
}

/* What the planner and all ranks count on: the own block is the largest call, and blocks of other
 * ranks have the same pairs as each other. */
static void every_pair_of_ranks_is_one_rectangle(void **state)
{
    (void)state;
    for (int64_t ranks = 1; ranks <= 8; ranks++) {
        for (int64_t pair = 0; pair < ranks * ranks * 7; pair++) {
            int64_t q = pair / 7 / ranks, k = pair / 7 % ranks, n = 1 + pair % 7;
            AttentionPieces p = pieces_of(n, ranks, q, k);
            AttentionRect r;
            CHECK(attention_rect(&p, 2 * n, 2 * n, &r));
            CHECK_INT(r.causal, q == k);
            CHECK_INT(r.Tq, k < q || k == q ? 2 * n : n);
            CHECK_INT(r.Tk, k > q || k == q ? 2 * n : n);
            for (int64_t length = 0; length <= DOCUMENTS * n; length++) check_mask(&p, &r, length);
        }
    }
}

static void a_whole_sequence_is_one_square(void **state)
{
    (void)state;
    AttentionPieces none = { 0 };
    AttentionRect r;
    CHECK(attention_rect(&none, 9, 9, &r));
    CHECK(r.q == 0 && r.Tq == 9 && r.k == 0 && r.Tk == 9 && r.causal);
    CHECK(!attention_rect(&none, 3, 9, &r)); /* a cache: its causal mask ends at the last key */
    CHECK_INT(attention_position(&none, 3, 9, 2), 8);
    CHECK_INT(attention_first_key(&none, &(AttentionRect){ 0, 9, 0, 9, true }, 4), 4);
}

/* Pieces anywhere: what is taken is right, and of pieces that meet in part nothing is taken. */
static void other_pieces_are_refused_or_right(void **state)
{
    (void)state;
    int taken = 0, refused = 0;
    for (uint64_t i = 0; i < DRAWN; i++) {
        int64_t n = 2 + (int64_t)rng_below(5, i, 0, 3), at[4];
        for (uint64_t j = 0; j < 4; j++) at[j] = (int64_t)rng_below(5, i, 1 + j, 12);
        AttentionPieces p = { n, { at[0], at[0] + n + at[1] }, { at[2], at[2] + n + at[3] } };
        AttentionRect r;
        bool fits = attention_rect(&p, 2 * n, 2 * n, &r);
        if (fits) check_mask(&p, &r, (int64_t)i % 7);
        if (!fits) CHECK(r.Tq == 2 * n && r.Tk == 2 * n);
        taken += fits, refused += !fits;
    }
    CHECK(taken > DRAWN / 20 && refused > DRAWN / 20);
}

/* Weights and lse of two sums of exponentials, against double. */
static void results_are_merged_by_their_sums(void **state)
{
    (void)state;
    static const float lse[] = { -1e4F, -87, -3.5F, 0, 0.25F, 11, 88, 5e3F };
    enum { N = sizeof lse / sizeof *lse };
    for (int i = 0; i < N * N; i++) {
        double a = (double)lse[i / N], b = (double)lse[i % N], most = fmax(a, b);
        double sum = exp(a - most) + exp(b - most);
        AttentionMerge m = attention_merge(lse[i / N], lse[i % N]);
        CHECK_NEAR((double)m.before, exp(a - most) / sum, 1e-6);
        CHECK_NEAR((double)m.part, exp(b - most) / sum, 1e-6);
        CHECK_NEAR((double)m.lse, most + log(sum), 1e-6 * (1 + fabs(most)));
    }
}

static void a_result_without_keys_has_no_weight(void **state)
{
    (void)state;
    const float none = -INFINITY;
    AttentionMerge m = attention_merge(none, 2);
    CHECK(m.before == 0 && m.part == 1 && m.lse == 2);
    m = attention_merge(-3, none);
    CHECK(m.before == 1 && m.part == 0 && m.lse == -3);
    m = attention_merge(none, none);
    CHECK(m.before == 0 && m.part == 0 && m.lse == none);
    CHECK(isnan(attention_merge(NAN, none).lse) && isnan(attention_merge(none, NAN).lse));
    CHECK(isnan(attention_merge(NAN, 1).part) && isnan(attention_merge(1, NAN).before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_pair_of_ranks_is_one_rectangle), TEST(a_whole_sequence_is_one_square),
        TEST(other_pieces_are_refused_or_right),    TEST(results_are_merged_by_their_sums),
        TEST(a_result_without_keys_has_no_weight),
    };
    return TEST_RUN(tests);
}
