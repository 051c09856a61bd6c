/* Processes that a launcher does not wait for, and those that it leaves behind. */
#include "harness/test.h"

#include "engine/host/process.h"
#include "supervise/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Its children have groups of their own, as those of mpirun: one ends by itself, the other does not. */
static void what_a_launcher_leaves_behind_is_ended(void **state)
{
    (void)state;
    skip_under_emulator("no process adopts orphans");
    static Process process;
    const char *const words[] = {
        "sh", "-c", "setsid sleep 0.3 & echo $!; setsid sleep 1000 & echo $!; sleep 0.1", NULL
    };
    int one = 0, two = 0;
    orphans_adopt();
    CHECK_OK(process_start(&process, "test", words, &(ProcessHow){ 0 }));
    while (!process_look(&process, 50)) {}
    CHECK(sscanf(process.said, "%d %d", &one, &two) == 2 && kill(one, 0) == 0 && kill(two, 0) == 0);
    CHECK_INT(orphans_end(1), 1);
    CHECK(kill(one, 0) != 0 && kill(two, 0) != 0);
    CHECK_INT(orphans_end(1), 0);
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
}

/* The shell becomes a program that does not know of the child. */
static void a_child_that_nobody_waits_for_is_seen(void **state)
{
    (void)state;
    static Process process;
    const char *const words[] = { "sh", "-c", "sleep 1 & exec sleep 1000", NULL };
    CHECK_OK(process_start(&process, "test", words, &(ProcessHow){ 0 }));
    usleep(200000);
    CHECK_INT(orphans_unreaped(process.pid), 0);
    for (int i = 0; i < 100 && orphans_unreaped(process.pid) == 0; i++) usleep(100000);
    CHECK(orphans_unreaped(process.pid) > 0);
    process_end(&process, SIGKILL, 1);
    CHECK_INT(orphans_unreaped(process.pid), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_launcher_leaves_behind_is_ended),
        TEST(a_child_that_nobody_waits_for_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
