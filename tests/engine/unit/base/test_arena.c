#include "harness/pages.h"

#include "engine/base/arena.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
static bool can_see_poison(void) { return true; }
static bool is_off_limits(const void *at) { return __asan_address_is_poisoned(at); }
#else
static bool can_see_poison(void) { return false; }
static bool is_off_limits(const void *at) { return at == NULL; }
#endif

#ifndef ARENA_POISON
#define ARENA_POISON 1
#endif

static void skip_because(const char *why)
{
    print_message("skip: %s\n", why);
    skip();
}

static void blocks_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *block[20];
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 20));
    for (int i = 0; i < 20; i++) {
        CHECK_OK(arena_alloc(&a, (size_t)i * 97 + 1, &block[i]));
        CHECK_INT((uintptr_t)block[i] % 64, 0);
        memset(block[i], i, (size_t)i * 97 + 1);
    }
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < i * 97 + 1; j++) CHECK_INT(((unsigned char *)block[i])[j], i);
    }
    arena_free(&a);
}

static void a_request_takes_its_rounded_size(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_INT(arena_rounded(0), 0);
    CHECK_INT(arena_rounded(1), ARENA_ALIGN);
    CHECK_INT(arena_rounded(ARENA_ALIGN), ARENA_ALIGN);
    CHECK_INT(arena_rounded(ARENA_ALIGN + 1), 2 * ARENA_ALIGN);
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 4096));
    CHECK_OK(arena_alloc(&a, 300, &at));
    CHECK_INT(a.used_bytes, 512);
    arena_free(&a);
}

static void the_last_byte_of_the_capacity_is_usable(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1000)); /* rounded up to 1024 */
    CHECK_OK(arena_alloc(&a, 1024, &at));
    memset(at, 7, 1024);
    CHECK_FAILS(arena_alloc(&a, 1, &at), ERR_MEMORY, "0 of 1024 left");
    arena_free(&a);
}

static void a_full_arena_names_itself_and_both_sizes(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "slot[3]", MEM_HOST, 1024));
    CHECK_OK(arena_alloc(&a, 512, &at));
    void *before = at;
    CHECK_FAILS(arena_alloc(&a, 600, &at), ERR_MEMORY,
                "arena slot[3]: 600 bytes wanted, 512 of 1024 left");
    CHECK(at == before);
    CHECK_INT(a.used_bytes, 512);
    arena_free(&a);
}

static void a_size_whose_rounding_overflows_is_refused(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 4096));
    CHECK_FAILS(arena_alloc(&a, SIZE_MAX, &at), ERR_MEMORY, "bytes wanted");
    CHECK_FAILS(arena_alloc(&a, SIZE_MAX - ARENA_ALIGN, &at), ERR_MEMORY, "bytes wanted");
    arena_free(&a);
}

static void release_gives_back_everything_since_the_mark(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *first = NULL, *second = NULL, *again = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 16));
    CHECK_OK(arena_alloc(&a, 100, &first));
    ArenaMark mark = arena_mark(&a);
    CHECK_OK(arena_alloc(&a, 1000, &second));
    CHECK_OK(arena_alloc(&a, 2000, &again));
    arena_release(&a, mark);
    CHECK_INT(a.used_bytes, 256);
    CHECK_OK(arena_alloc(&a, 10, &again));
    CHECK(again == second);
    arena_free(&a);
}

static void the_peak_survives_a_release(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 1 << 16));
    ArenaMark mark = arena_mark(&a);
    CHECK_OK(arena_alloc(&a, 5000, &at));
    arena_release(&a, mark);
    CHECK_OK(arena_alloc(&a, 100, &at));
    CHECK_INT(a.peak_bytes, 5120);
    arena_free(&a);
}

static void zeroed_blocks_are_zero_where_others_wrote(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 4096));
    CHECK_OK(arena_alloc(&a, 1000, &at));
    memset(at, 0x5A, 1000);
    arena_release(&a, (ArenaMark){ 0 });
    CHECK_OK(arena_array_zero(&a, 1000, 1, &at));
    for (int i = 0; i < 1000; i++) CHECK_INT(((char *)at)[i], 0);
    arena_free(&a);
}

static void a_counting_arena_counts_as_a_real_one(void **state)
{
    (void)state;
    Arena real = { 0 }, count = { 0 };
    CHECK_OK(arena_init(&real, "real", MEM_HOST, 1 << 20));
    CHECK_OK(arena_init(&count, "count", MEM_COUNT, 1 << 20));
    for (size_t i = 0; i < 50; i++) {
        void *r = NULL, *c = NULL;
        ArenaMark mark = arena_mark(&real), count_mark = arena_mark(&count);
        CHECK_OK(arena_alloc(&real, i * 131, &r));
        CHECK_OK(arena_array_zero(&count, i * 131, 1, &c));
        CHECK_INT((char *)r - real.base, (char *)c - count.base);
        if (i % 3 == 0) arena_release(&real, mark);
        if (i % 3 == 0) arena_release(&count, count_mark);
    }
    CHECK_INT(count.peak_bytes, real.peak_bytes);
    arena_free(&real);
    arena_free(&count);
}

static void a_counting_arena_may_be_larger_than_any_memory(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "plan", MEM_COUNT, (size_t)1 << 50));
    CHECK_OK(arena_alloc(&a, (size_t)1 << 49, &at));
    CHECK_INT(a.peak_bytes, 1LL << 49);
    arena_free(&a);
}

static void device_memory_needs_a_backend(void **state)
{
    (void)state;
    Arena a = { 0 };
    CHECK_FAILS(arena_init(&a, "weights", MEM_DEVICE, 4096), ERR_UNSUPPORTED, "arena weights");
}

static void a_reservation_that_the_system_refuses_is_an_error(void **state)
{
    (void)state;
    Arena a = { 0 };
    CHECK_FAILS(arena_init(&a, "huge", MEM_HOST, (size_t)1 << 62), ERR_MEMORY, "arena huge");
    arena_free(&a);
}

static rlim_t used_addresses(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f != NULL && fscanf(f, "%lu", &pages) == 1 && fclose(f) == 0);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Many reservations fit into a limit of a few GiB, and one that is too small says why. */
static void under_a_limit_of_addresses_reservations_shrink_and_say_so(void **state)
{
    (void)state;
    skip_under_emulator("a limit of addresses is the emulator's own");
    Arena a[20] = { { 0 } }, exact = { 0 };
    struct rlimit before, limit;
    void *block = NULL;
    bool ok = true;
    CHECK_INT(getrlimit(RLIMIT_AS, &before), 0);
    limit = (struct rlimit){ used_addresses() + ((rlim_t)4 << 30), before.rlim_max };
    CHECK_INT(setrlimit(RLIMIT_AS, &limit), 0);
    for (int i = 0; i < 20; i++) ok = ok && arena_reserve(&a[i], "many", (size_t)64 << 30) == OK;
    Status much = arena_alloc(&a[0], (size_t)1 << 30, &block), refused = OK;
    bool named = strstr(status_message(), " of address space: raise ulimit -v") != NULL;
    refused = arena_init(&exact, "exact", MEM_HOST, (size_t)8 << 30);
    bool named_too = strstr(status_message(), " of address space: raise ulimit -v") != NULL;
    CHECK_INT(setrlimit(RLIMIT_AS, &before), 0);
    CHECK(ok && named && named_too);
    CHECK_INT(much, ERR_MEMORY);
    CHECK_INT(refused, ERR_MEMORY);
    CHECK(a[0].limited && a[0].cap_bytes > (size_t)400 << 20 && a[19].cap_bytes > (size_t)16 << 20);
    for (int i = 0; i < 20; i++) arena_free(&a[i]);
    CHECK_OK(arena_reserve(&a[0], "one", (size_t)64 << 30));
    CHECK(!a[0].limited && a[0].cap_bytes == (size_t)64 << 30);
    arena_free(&a[0]);
}

static void an_empty_arena_and_a_zeroed_one_can_be_freed(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    arena_free(&a);
    CHECK_OK(arena_init(&a, "empty", MEM_HOST, 0));
    CHECK_FAILS(arena_alloc(&a, 1, &at), ERR_MEMORY, "arena empty");
    arena_free(&a);
    arena_free(&a);
    CHECK(a.base == NULL);
}

static void text_is_copied_with_its_end(void **state)
{
    (void)state;
    Arena a = { 0 };
    const char *copy = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 4096));
    CHECK_OK(arena_text(&a, "expert choice", 6, &copy));
    CHECK_TEXT(copy, "expert");
    arena_free(&a);
}

static void unwritten_memory_is_nan_in_poisoning_builds(void **state)
{
    (void)state;
    if (!ARENA_POISON) skip_because("this build does not poison");
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 4096));
    CHECK_OK(arena_alloc(&a, 400, &at));
    for (int i = 0; i < 100; i++) CHECK(isnan(((float *)at)[i]));
    arena_free(&a);
}

static void what_was_never_taken_of_a_large_arena_is_off_limits_under_asan(void **state)
{
    (void)state;
    if (!can_see_poison()) skip_because("this build has no address sanitizer");
    const size_t bytes = (size_t)9 << 20;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 4 * bytes));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(arena_alloc(&a, bytes, &at));
        CHECK(!is_off_limits((char *)at + bytes - 1));
        CHECK(is_off_limits((char *)at + bytes));
    }
    arena_free(&a);
}

static void what_lies_past_a_block_is_off_limits_under_asan(void **state)
{
    (void)state;
    if (!can_see_poison()) skip_because("this build has no address sanitizer");
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 4096));
    CHECK_OK(arena_alloc(&a, 104, &at));
    CHECK(!is_off_limits((char *)at + 103));
    CHECK(is_off_limits((char *)at + 104)); /* the padding */
    CHECK(is_off_limits((char *)at + 256)); /* not yet given out */
    arena_release(&a, (ArenaMark){ 0 });
    CHECK(is_off_limits(at));
    arena_free(&a);
}

static void a_growing_array_keeps_its_elements_and_doubles(void **state)
{
    (void)state;
    Arena a = { 0 };
    int32_t *v = NULL;
    int64_t room = 0;
    CHECK_OK(arena_init(&a, "grow", MEM_HOST, 1 << 24));
    for (int32_t i = 0; i < 100000; i++) {
        CHECK_OK(ARENA_GROW(&a, i + 1, &room, &v));
        CHECK(room > i);
        v[i] = 3 * i;
    }
    for (int32_t i = 0; i < 100000; i++) CHECK_INT(v[i], 3 * i);
    size_t used = a.used_bytes;
    CHECK_OK(ARENA_GROW(&a, room, &room, &v));
    CHECK_INT(a.used_bytes, used);
    arena_free(&a);
}

static void an_array_too_large_to_count_is_an_error(void **state)
{
    (void)state;
    Arena a = { 0 };
    double *v = NULL;
    CHECK_OK(arena_init(&a, "small", MEM_HOST, 1 << 12));
    CHECK_FAILS(ARENA_NEW(&a, SIZE_MAX / 4, &v), ERR_MEMORY, "elements of 8 bytes");
    CHECK_FAILS(ARENA_NEW(&a, -1, &v), ERR_MEMORY, "arena small");
    CHECK(v == NULL);
    CHECK_OK(ARENA_ZEROED(&a, 3, &v));
    CHECK(v[0] == 0 && v[1] == 0 && v[2] == 0);
    arena_free(&a);
}

static void pages_are_taken_before_they_are_written(void **state)
{
    (void)state;
    skip_under_emulator("no page is taken before it is written");
    enum { BYTES = 1 << 20, FIRST = 300001, TAKEN = 400000 };
    Arena a = { 0 };
    char *v = NULL;
    int64_t all = 0;
    if (!pages_can_be_taken()) {
        printf("skip: needs Linux 5.14 or later\n");
        skip();
    }
    CHECK_OK(arena_init(&a, "pages", MEM_HOST, BYTES));
    CHECK_OK(ARENA_NEW(&a, BYTES, &v));
    v[FIRST] = 7;
    arena_take_pages(&a, FIRST, TAKEN);
    CHECK_INT(pages_resident(v + FIRST, TAKEN, &all), all);
    CHECK(all >= TAKEN / sysconf(_SC_PAGESIZE));
    CHECK_INT(v[FIRST], 7);
    if (!ARENA_POISON) CHECK(pages_resident(v, BYTES, &all) < all);
    arena_free(&a);
    arena_take_pages(&a, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_aligned_and_do_not_overlap),
        TEST(a_request_takes_its_rounded_size),
        TEST(the_last_byte_of_the_capacity_is_usable),
        TEST(a_full_arena_names_itself_and_both_sizes),
        TEST(a_size_whose_rounding_overflows_is_refused),
        TEST(release_gives_back_everything_since_the_mark),
        TEST(the_peak_survives_a_release),
        TEST(zeroed_blocks_are_zero_where_others_wrote),
        TEST(a_counting_arena_counts_as_a_real_one),
        TEST(a_counting_arena_may_be_larger_than_any_memory),
        TEST(device_memory_needs_a_backend),
        TEST(a_reservation_that_the_system_refuses_is_an_error),
        TEST(under_a_limit_of_addresses_reservations_shrink_and_say_so),
        TEST(an_empty_arena_and_a_zeroed_one_can_be_freed),
        TEST(text_is_copied_with_its_end),
        TEST(unwritten_memory_is_nan_in_poisoning_builds),
        TEST(what_lies_past_a_block_is_off_limits_under_asan),
        TEST(what_was_never_taken_of_a_large_arena_is_off_limits_under_asan),
        TEST(a_growing_array_keeps_its_elements_and_doubles),
        TEST(an_array_too_large_to_count_is_an_error),
        TEST(pages_are_taken_before_they_are_written),
    };
    return TEST_RUN(tests);
}
