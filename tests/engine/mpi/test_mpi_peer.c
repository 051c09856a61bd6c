/* Checkpoints in memory, over processes: ranks or a whole host are killed and their copies removed, as if the host
 * were another one. The neighbour has them, and the bits at the end are those of a run that nobody disturbed. */
#include "harness/supervised.h"

enum { RANKS = 4, STEPS = 60, EVERY = 3 };

/* The disk has nothing before the end, so each step that is found again was in memory. */
#define SETTINGS                                                                                   \
    "../tiny.yaml", "train.steps=60", "checkpoint.every=1000", "checkpoint.peer=true",             \
        "checkpoint.peer_every=3", "mesh.ep=2", "mesh.zero=2", "train.micro_batch=1",              \
        "moe.buffers=worst", "comm.timeout_s=6", dir

static char dir[FILE_PATH_MAX + 64];
static bool have_hosts;

/* A shell command in the folder of the run's copies. */
static void in_copies(const Lab *lab, const char *command)
{
    char line[FILE_PATH_MAX + 256];
    snprintf(line, sizeof line, "cd %s/shm/switchyard-* && %s", lab->folder, command);
    if (system(line) != 0) fail_msg("%s", line);
}

static void check_like_the_whole(Lab *lab, const char *cell)
{
    const char *const *names = NULL;
    int n = 0;
    const Launch whole = { .args = ARGS("train", SETTINGS), .processes = RANKS };
    run_whole_s(lab, &whole);
    check_same_steps(lab, "whole", cell, 1, STEPS);
    check_same_checkpoint(lab, "whole", cell, STEPS);
    CHECK_OK(file_list(lab_path(lab, "shm"), &lab->arena, &names, &n));
    CHECK_INT(n, 0);
}

static void wait_for_steps(Lab *lab, const char *cell, Child *c, int steps)
{
    while (run_count_steps(lab, cell) < steps && child_runs(c)) child_sleep();
}

static void a_killed_rank_s_part_comes_from_its_neighbour(void **state)
{
    Lab *lab = *state;
    Child c = lab_start(
        lab, &(Launch){ .cell = "rank", .args = ARGS("train", SETTINGS), .processes = RANKS });
    wait_for_steps(lab, "rank", &c, 20);
    const pid_t pid = rank_pid(&c, 2);
    CHECK(pid > 0 && kill(pid, SIGKILL) == 0);
    CHECK(lab_wait(lab, &c).code != 0);
    CHECK_INT(run_count_checkpoints(lab, "rank", true), 0);
    in_copies(lab, "rm -r */rank-00002");
    Outcome o = RUN_MPI(lab, RANKS, "rank", "train", SETTINGS, "--resume");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resumed from the memory of hosts: step ");
    CHECK(run_count_steps(lab, "rank") <= STEPS + 2 * EVERY);
    check_like_the_whole(lab, "rank");
}

/* mpirun's own hosts: names on this machine. hb is lost twice; its copies are gone each time. */
static void a_spare_host_takes_the_parts_of_a_lost_one_from_memory(void **state)
{
    Lab *lab = *state;
    char host[FILE_PATH_MAX + 16];
    if (!have_hosts) skip();
    snprintf(host, sizeof host, "LAB_HOST=hb:%s", lab->folder);
    Child c =
        START(lab, "host", "supervise", SETTINGS, "--spare", "hc", "--", ON_HOSTS("ha:2,hb:2"));
    for (int n = 1; n <= 2; n++) {
        wait_for_steps(lab, "host", &c, 20 * n);
        if (child_runs(&c)) CHECK(signal_processes(host, host, SIGKILL) > 0);
        in_copies(lab, "rm -r hb");
    }
    Outcome o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    CHECK_INT(text_count(o.err, "resumed from the memory of hosts: step "), 2);
    CHECK_SAYS(o.err, "host hb failed 2 times and is left out: hc takes its ranks");
    CHECK(run_count_steps(lab, "host") <= STEPS + 2 * 2 * EVERY);
    check_like_the_whole(lab, "host");
}

static int open_all(void **state)
{
    if (lab_open(state) != 0) return 1;
    Lab *lab = *state;
    have_hosts = make_hosts(lab);
    if (!have_hosts) printf("skip: namespaces cannot be made here\n");
    snprintf(dir, sizeof dir, "checkpoint.peer_dir=%s/shm", lab->folder);
    return setenv("LAB", lab->folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_killed_rank_s_part_comes_from_its_neighbour),
        LAB_TEST(a_spare_host_takes_the_parts_of_a_lost_one_from_memory),
    };
    return cmocka_run_group_tests(tests, open_all, lab_close);
}
