/* Files that are cut or overwritten while they are mapped. */
#include "engine/base/file_changed.h"
#include "harness/place.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 5, PAGE = 4096 };

typedef struct Place {
    char folder[64], path[FILE_PATH_MAX];
    Arena arena;
    FileMap map;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->path, p->folder, "x"));
    char bytes[PAGES * PAGE];
    memset(bytes, 7, sizeof bytes);
    CHECK_OK(file_write_whole(p->path, bytes, sizeof bytes));
    CHECK_OK(file_map(p->path, &p->map));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    file_unmap(&p->map);
    place_drop(p->folder, &p->arena);
    return 0;
}

/* In a process of its own, because what was lost stays known until its end. */
static int in_child(int (*body)(Place *), Place *p)
{
    int state = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        (void)signal(SIGBUS, SIG_DFL); /* not the handler of cmocka */
        alarm(10);
        _exit(body(p));
    }
    CHECK(waitpid(child, &state, 0) == child);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

static int read_cut_map(Place *p)
{
    file_changed_catch();
    if (truncate(p->path, PAGE) != 0) return 1;
    if (p->map.data[PAGE - 1] != 7) return 2;
    if (file_changed_check() != OK) return 3;
    for (int i = PAGE; i < PAGES * PAGE; i++)
        if (p->map.data[i] != 0) return 4;
    if (file_changed_check() != ERR_CHANGED) return 5;
    return strstr(status_message(), "/x became shorter while it was read") != NULL ? 0 : 6;
}

static void pages_that_a_file_lost_are_zeros_and_remembered(void **state)
{
    CHECK_INT(in_child(read_cut_map, *state), 0);
}

static int read_unguarded(Place *p)
{
    file_changed_catch();
    file_changed_unguard(p->map.data);
    if (truncate(p->path, PAGE) != 0) return 1;
    return p->map.data[2 * PAGE];
}

static int read_stamped(Place *p)
{
    file_changed_catch();
    file_changed_stamped(p->map.data);
    if (truncate(p->path, PAGE) != 0) return 1;
    if (p->map.data[2 * PAGE] != 0) return 2;
    return file_changed_check() == OK ? 0 : 3;
}

static void a_map_with_a_stamp_is_left_to_its_reader(void **state)
{
    CHECK_INT(in_child(read_stamped, *state), 0);
}

static void another_map_still_ends_the_process(void **state)
{
    int code = in_child(read_unguarded, *state);
    CHECK(code != 0 && code != 7); /* a sanitizer makes an exit code of the signal */
}

static void a_stamp_sees_a_file_that_was_written_to_or_cut(void **state)
{
    Place *p = *state;
    FileStamp stamp;
    file_stamp(p->path, &stamp);
    CHECK_OK(file_stamp_check(p->path, &stamp));
    usleep(20000); /* file systems keep times in ticks of the kernel's clock */
    int fd = open(p->path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, "9", 1, 3) == 1 && close(fd) == 0);
    CHECK_FAILS(file_stamp_check(p->path, &stamp), ERR_CHANGED, "was changed while it was read");
    CHECK_FAILS(file_stamp_check(p->path, &stamp), ERR_CHANGED,
                "20480 when it was opened, and the time");
    file_stamp(p->path, &stamp);
    CHECK_INT(truncate(p->path, PAGES * PAGE - 1), 0);
    CHECK_FAILS(file_stamp_check(p->path, &stamp), ERR_CHANGED, "it has 20479 bytes, it had 20480");
}

static void a_file_that_was_removed_or_replaced_is_no_change(void **state)
{
    Place *p = *state;
    FileStamp stamp;
    file_stamp(p->path, &stamp);
    CHECK_OK(file_write_whole(p->path, "other", 5));
    CHECK_OK(file_stamp_check(p->path, &stamp));
    CHECK_INT(unlink(p->path), 0);
    CHECK_OK(file_stamp_check(p->path, &stamp));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(pages_that_a_file_lost_are_zeros_and_remembered),
        PLACE_TEST(a_map_with_a_stamp_is_left_to_its_reader),
        PLACE_TEST(another_map_still_ends_the_process),
        PLACE_TEST(a_stamp_sees_a_file_that_was_written_to_or_cut),
        PLACE_TEST(a_file_that_was_removed_or_replaced_is_no_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
