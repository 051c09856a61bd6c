/* Which bytes of a shard's files its sum depends on. */
#include "corpus/shard/fingerprint.h"
#include "harness/place.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct Place {
    char folder[64];
    char prefix[FILE_PATH_MAX];
    Arena arena;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->prefix, p->folder, "x"));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

static void put(Place *p, const char *suffix, const char *bytes, size_t n)
{
    char path[FILE_PATH_MAX + 8];
    snprintf(path, sizeof path, "%s%s", p->prefix, suffix);
    CHECK_OK(file_write_whole(path, bytes, n));
}

static void sum_of(Place *p, char sum[FILE_SUM_BYTES])
{
    Text lines = { 0 };
    ArenaMark mark = arena_mark(&p->arena);
    CHECK_OK(text_init(&lines, &p->arena));
    CHECK_OK(fingerprint_shard(p->prefix, &lines, sum));
    arena_release(&p->arena, mark);
}

/* Does a change of the byte at `at` show? */
static bool shows(Place *p, char *bytes, size_t n, size_t at)
{
    char before[FILE_SUM_BYTES], after[FILE_SUM_BYTES];
    put(p, ".bin", bytes, n);
    sum_of(p, before);
    bytes[at] ^= 1;
    put(p, ".bin", bytes, n);
    sum_of(p, after);
    bytes[at] ^= 1;
    return strcmp(before, after) != 0;
}

static void every_byte_of_a_small_shard_counts(void **state)
{
    Place *p = *state;
    const size_t n = (size_t)8 << 20;
    char *bytes = calloc(n, 1);
    put(p, ".idx", "i", 1);
    for (size_t at = 0; at < n; at += 65521) CHECK(shows(p, bytes, n, at));
    CHECK(shows(p, bytes, n, n - 1) && shows(p, bytes, 1, 0) && shows(p, bytes, 65537, 65536));
    free(bytes);
}

/* 128 pieces of 64 KiB, from the first byte to the last. */
static void of_a_large_shard_pieces_count(void **state)
{
    Place *p = *state;
    const size_t n = ((size_t)10 << 20) + 1, piece = 65536;
    char *bytes = calloc(n, 1);
    put(p, ".idx", "i", 1);
    CHECK(shows(p, bytes, n, 0) && shows(p, bytes, n, piece - 1) && shows(p, bytes, n, n - 1));
    CHECK(shows(p, bytes, n, n - piece) && shows(p, bytes, n, (n - piece) / 127 * 64));
    CHECK(!shows(p, bytes, n, piece)); /* between two pieces */
    free(bytes);
}

static void index_and_mask_count_too(void **state)
{
    Place *p = *state;
    char sum[4][FILE_SUM_BYTES];
    put(p, ".bin", "abc", 3);
    put(p, ".idx", "i", 1);
    sum_of(p, sum[0]);
    put(p, ".mask", "m", 1);
    sum_of(p, sum[1]);
    put(p, ".mask", "n", 1);
    sum_of(p, sum[2]);
    put(p, ".idx", "j", 1);
    sum_of(p, sum[3]);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) CHECK(strcmp(sum[i], sum[k]) != 0);
}

/* A shard's mask that cannot be read is not a shard without one. */
static void a_mask_that_is_a_link_to_nowhere_is_refused(void **state)
{
    Place *p = *state;
    char sum[FILE_SUM_BYTES], path[FILE_PATH_MAX];
    Text lines = { 0 };
    put(p, ".bin", "abc", 3);
    put(p, ".idx", "i", 1);
    snprintf(path, sizeof path, "%.1000s.mask", p->prefix);
    CHECK(symlink("nowhere", path) == 0);
    CHECK_OK(text_init(&lines, &p->arena));
    CHECK_FAILS(fingerprint_shard(p->prefix, &lines, sum), ERR_IO, ".mask cannot be read");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(every_byte_of_a_small_shard_counts),
        PLACE_TEST(of_a_large_shard_pieces_count),
        PLACE_TEST(index_and_mask_count_too),
        PLACE_TEST(a_mask_that_is_a_link_to_nowhere_is_refused),
    };
    return TEST_RUN(tests);
}
