/* Copies in memory: which one a start takes, where parts go, files that are mapped. */
#include "harness/test.h"

#include "engine/checkpoint/peer.h"
#include "engine/host/shared_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static PeerPart part(int64_t step, const char *sum, int files, int rank, int owner)
{
    PeerPart p = { .step = step, .files = files, .rank = rank, .owner = owner };
    snprintf(p.sum, sizeof p.sum, "%s", sum);
    return p;
}

#define PARTS(...)                                                                                 \
    PeerPart at[] = { __VA_ARGS__ };                                                               \
    const int n = peer_choose(at, sizeof at / sizeof *at)

static void the_newest_whole_set_is_chosen(void **state)
{
    (void)state;
    PARTS(part(20, "b", 2, 0, 0), part(30, "c", 2, 0, 0), part(30, "c", 2, 1, 1),
          part(20, "b", 2, 1, 1), part(-1, "", 0, 0, 0));
    CHECK_INT(n, 2);
    CHECK_INT(at[0].step, 30);
    CHECK_INT(at[0].rank, 0);
    CHECK_INT(at[1].step, 30);
    CHECK_INT(at[1].rank, 1);
}

static void a_set_that_lacks_a_part_is_left_for_the_one_before(void **state)
{
    (void)state;
    PARTS(part(30, "c", 3, 0, 0), part(30, "c", 3, 0, 1), part(30, "c", 3, 2, 1),
          part(20, "b", 3, 0, 0), part(20, "b", 3, 1, 0), part(20, "b", 3, 2, 2));
    CHECK_INT(n, 3);
    CHECK_INT(at[0].step, 20);
}

static void parts_under_another_manifest_do_not_fill_a_gap(void **state)
{
    (void)state;
    PARTS(part(30, "c", 2, 0, 0), part(30, "d", 2, 1, 1));
    CHECK_INT(n, 0);
}

static void a_copy_stands_in_for_a_part_and_the_first_owner_is_first(void **state)
{
    (void)state;
    PARTS(part(7, "a", 2, 1, 3), part(7, "a", 2, 1, 0), part(7, "a", 2, 0, 0));
    CHECK_INT(n, 3);
    CHECK_INT(at[1].owner, 0);
    CHECK_INT(at[2].owner, 3);
}

static void nothing_at_all_is_no_set(void **state)
{
    (void)state;
    PARTS(part(-1, "", 0, 0, 0));
    CHECK_INT(n, 0);
}

/* Does every part go to another host? */
static bool all_leave(const char *const *host, int ranks)
{
    CommHostName name[8] = { 0 };
    int order[8], shift;
    bool leave = true;
    for (int i = 0; i < ranks; i++) snprintf(name[i].text, sizeof name[i].text, "%s", host[i]);
    shift = peer_order(name, ranks, order);
    for (int i = 0; i < ranks; i++)
        leave &= strcmp(host[order[i]], host[order[(i + shift) % ranks]]) != 0;
    return leave;
}

static void parts_go_to_another_host_where_there_are_several(void **state)
{
    (void)state;
    CHECK(all_leave((const char *[]){ "a", "a", "b", "b" }, 4));
    CHECK(all_leave((const char *[]){ "a", "b", "a", "b" }, 4));
    CHECK(all_leave((const char *[]){ "a", "b", "b", "c", "c", "b" }, 6));
    CHECK(all_leave((const char *[]){ "a", "a", "a", "b", "b", "b", "c", "c" }, 8));
    CHECK(!all_leave((const char *[]){ "a", "a", "a", "b" }, 4)); /* no way */
}

static void on_one_host_parts_go_to_the_next_rank(void **state)
{
    (void)state;
    CommHostName name[3] = { { "a" }, { "a" }, { "a" } };
    int order[3];
    CHECK_INT(peer_order(name, 3, order), 1);
    CHECK_INT(order[2], 2);
}

static void a_mapped_file_keeps_its_bytes_and_gets_its_size(void **state)
{
    char path[] = "/tmp/switchyard_test_XXXXXX";
    const int fd = mkstemp(path);
    SharedFile f = { 0 };
    uint64_t bytes = 0;
    (void)state;
    CHECK(fd >= 0);
    close(fd);
    CHECK_OK(shared_file_open(&f, path, 5000));
    memset(f.data, 'x', f.bytes);
    shared_file_close(&f);
    CHECK(f.data == NULL);
    CHECK_OK(shared_file_open(&f, path, 4000));
    CHECK_INT(((const char *)f.data)[3999], 'x');
    CHECK_OK(file_size(path, &bytes));
    CHECK_INT((int)bytes, 4000);
    shared_file_close(&f);
    shared_file_close(&f);
    unlink(path);
}

static void a_mapped_file_without_room_is_an_error_that_names_it(void **state)
{
    SharedFile f = { 0 };
    (void)state;
    CHECK_FAILS(shared_file_open(&f, "/tmp/switchyard_test_no_room", (size_t)1 << 50), ERR_DISK,
                "/tmp/switchyard_test_no_room cannot be made with");
    CHECK(f.data == NULL);
    unlink("/tmp/switchyard_test_no_room");
    CHECK_FAILS(shared_file_open(&f, "/no/such/folder/file", 10), ERR_DISK, "/no/such/folder/file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_whole_set_is_chosen),
        cmocka_unit_test(a_set_that_lacks_a_part_is_left_for_the_one_before),
        cmocka_unit_test(parts_under_another_manifest_do_not_fill_a_gap),
        cmocka_unit_test(a_copy_stands_in_for_a_part_and_the_first_owner_is_first),
        cmocka_unit_test(nothing_at_all_is_no_set),
        cmocka_unit_test(parts_go_to_another_host_where_there_are_several),
        cmocka_unit_test(on_one_host_parts_go_to_the_next_rank),
        cmocka_unit_test(a_mapped_file_keeps_its_bytes_and_gets_its_size),
        cmocka_unit_test(a_mapped_file_without_room_is_an_error_that_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
