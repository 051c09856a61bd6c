/* Best-fit packing of a shard's documents. */
#include "corpus/shard/shard.h"
#include "harness/place.h"
#include "pack/pack.h"

#include <string.h>

typedef struct Place {
    Arena arena;
    char folder[64], whole[FILE_PATH_MAX], out[FILE_PATH_MAX];
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->whole, p->folder, "whole"));
    CHECK_OK(file_join(p->out, p->folder, "out"));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

enum { P = 10 };

/* Packs documents of these lengths, whose ids are 100 d + place; 7 is padding. */
static void pack(Place *p, const int *lengths, int n, Shard *out, PackStats *stats)
{
    ShardWriter w = { 0 };
    Shard from = { 0 };
    CHECK_OK(shard_create(&w, p->whole, 70000, 0, &p->arena));
    for (int d = 0; d < n; d++) {
        for (int i = 0; i < lengths[d]; i++)
            CHECK_OK(shard_append(&w, &(int32_t){ 100 * d + i }, 1));
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
    CHECK_OK(shard_open(&from, p->whole));
    CHECK_OK(shard_create(&w, p->out, 70000, P, &p->arena));
    CHECK_OK(pack_best_fit(&from, &w, 7, &p->arena, stats));
    CHECK_OK(shard_commit(&w));
    shard_close(&from);
    CHECK_OK(shard_open(out, p->out));
}

/* By hand. Pieces, longest first: 8 7 5 (the rest of 15) 3 2. 8 opens a pack, 7 too, 5 too; 3 goes to
 * the 7, which it fills, and 2 to the 8. */
static void best_fit_leaves_the_least_room(void **state)
{
    static const int LENGTHS[] = { 7, 8, 15, 0, 2, 3 };
    static const int32_t WANT[4 * P] = {
        0,   1,   2,   3,   4,   5,   6,   500, 501, 502, /* 7 and 3 */
        100, 101, 102, 103, 104, 105, 106, 107, 400, 401, /* 8 and 2 */
        200, 201, 202, 203, 204, 205, 206, 207, 208, 209, /* 10 of 15 */
        210, 211, 212, 213, 214, 7,   7,   7,   7,   7,   /* the other 5 */
    };
    Place *p = *state;
    Shard s = { 0 };
    PackStats stats;
    int32_t got[4 * P];
    pack(p, LENGTHS, 6, &s, &stats);
    CHECK_INT(s.tokens, 4 * P);
    CHECK_INT(s.documents, 4);
    CHECK_INT(s.pack, P);
    shard_read(&s, 0, s.tokens, got);
    for (int i = 0; i < 4 * P; i++) {
        if (got[i] != WANT[i]) fail_msg("token %d is %d, want %d", i, got[i], WANT[i]);
        bool first = i % P == 0 || got[i] / 100 != got[i - 1] / 100;
        if (shard_learns(&s, i) != (!first && got[i] != 7)) fail_msg("token %d", i);
    }
    CHECK_INT(stats.packs, 4);
    CHECK_INT(stats.padding, 5);
    CHECK_INT(stats.cut, 1);
    shard_close(&s);
}

/* Every token once, no short document cut, and nearly no padding. */
static void packs_hold_every_token_once(void **state)
{
    enum { N = 900 };
    Place *p = *state;
    Shard s = { 0 };
    PackStats stats;
    static int lengths[N], seen[N][23];
    static int32_t got[100 * N];
    int64_t total = 0;
    for (int d = 0; d < N; d++) total += lengths[d] = d * d % 23;
    pack(p, lengths, N, &s, &stats);
    CHECK_INT(s.tokens, stats.packs * P);
    CHECK_INT(s.tokens - stats.padding, total);
    CHECK(stats.padding * 50 < s.tokens);
    shard_read(&s, 0, s.tokens, got);
    memset(seen, 0, sizeof seen);
    for (int64_t i = 0; i < s.tokens; i++) {
        int32_t d = got[i] / 100, at = got[i] % 100;
        if (got[i] == 7 && !shard_learns(&s, i) && lengths[0] == 0) continue;
        CHECK_INT(seen[d][at]++, 0);
        if (at > 0 && lengths[d] <= P) CHECK_INT(got[i - 1], got[i] - 1);
    }
    for (int i = 0; i < N * 23; i++) CHECK_INT(seen[i / 23][i % 23], i % 23 < lengths[i / 23]);
    shard_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(best_fit_leaves_the_least_room),
        PLACE_TEST(packs_hold_every_token_once),
    };
    return TEST_RUN(tests);
}
