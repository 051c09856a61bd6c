/* Supervised ranks of mpirun, on two hosts that are names on this machine (harness/supervised.h). */
#include "harness/supervised.h"

#include "engine/base/clock.h"

enum { STEPS = 80 };

#define SETTINGS                                                                                   \
    "../tiny.yaml", "train.steps=80", "checkpoint.every=5", "mesh.ep=2", "mesh.zero=2",            \
        "train.micro_batch=1", "moe.buffers=worst", "comm.timeout_s=6"
#define SUPERVISE "supervise", SETTINGS
#define TWO_HOSTS "--", ON_HOSTS("ha:2,hb:2")

static bool have_hosts;

static const char *const whole_args[] = { "train", SETTINGS, "--ranks", "4", NULL };
static const Launch whole = { .args = whole_args };

/* Until the n-th start has run a step. */
static void wait_for_start(Lab *lab, const char *cell, Child *c, int n)
{
    while (text_count(run_journal(lab, cell), "\"kind\":\"start\"") < n && child_runs(c))
        child_sleep();
    const int before = run_count_steps(lab, cell);
    while (run_count_steps(lab, cell) <= before && child_runs(c)) child_sleep();
}

/* Kills all of host hb in the first two starts. */
static Outcome lose_host_twice(Lab *lab, const char *cell, const char *const *args)
{
    char host[FILE_PATH_MAX + 16];
    snprintf(host, sizeof host, "LAB_HOST=hb:%s", lab->folder);
    Child c = lab_start(lab, &(Launch){ .cell = cell, .args = args });
    for (int n = 1; n <= 2; n++) {
        wait_for_start(lab, cell, &c, n);
        if (child_runs(&c)) CHECK(signal_processes(host, host, SIGKILL) > 0);
    }
    return lab_wait(lab, &c);
}

static double last_loss(Lab *lab, const char *cell, int step)
{
    const char *text = run_step_text(lab, run_metrics(lab, cell), step);
    const char *at = strstr(text, "\"loss\":");
    CHECK(at != NULL);
    return strtod(at + strlen("\"loss\":"), NULL);
}

static void a_host_that_failed_twice_is_left_out_and_the_loss_stays(void **state)
{
    Lab *lab = *state;
    if (!have_hosts) skip();
    Outcome o = lose_host_twice(lab, "fewer", ARGS(SUPERVISE, TWO_HOSTS));
    CHECK_EXIT(o, 0);
    const char *said = run_journal(lab, "fewer");
    CHECK_INT(text_count(said, "\"host\":\"hb\""), 2);
    CHECK_INT(text_count(said, "\"left_out\":\"hb\""), 1);
    CHECK_SAYS(said, "\"ranks\":2,\"mesh\":\"");
    CHECK_SAYS(said, "--host ha:2 -n 2");
    run_whole_s(lab, &whole);
    for (int step = 1; step <= STEPS; step++)
        CHECK_NEAR(last_loss(lab, "fewer", step), last_loss(lab, "whole", step), 2e-3);
}

static void a_spare_host_takes_its_ranks_with_the_same_bits(void **state)
{
    Lab *lab = *state;
    if (!have_hosts) skip();
    Outcome o = lose_host_twice(lab, "spare", ARGS(SUPERVISE, "--spare", "hc", TWO_HOSTS));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "host hb failed 2 times and is left out: hc takes its ranks");
    CHECK_SAYS(run_journal(lab, "spare"), "--host ha:2,hc:2 -n 4");
    run_whole_s(lab, &whole);
    check_same_steps(lab, "whole", "spare", 1, STEPS);
    check_same_checkpoint(lab, "whole", "spare", STEPS);
}

static void a_rank_that_stands_still_is_ended_and_its_host_named(void **state)
{
    Lab *lab = *state;
    char mine[FILE_PATH_MAX + 16];
    if (!have_hosts) skip();
    snprintf(mine, sizeof mine, "LAB=%s", lab->folder);
    Child c = START(lab, "still", SUPERVISE, TWO_HOSTS);
    wait_for_start(lab, "still", &c, 1);
    CHECK_INT(signal_processes(mine, "OMPI_COMM_WORLD_RANK=3", SIGSTOP), 1);
    Outcome o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    CHECK_INT(text_count(run_journal(lab, "still"), "\"kind\":\"start\""), 2);
    CHECK_SAYS(run_journal(lab, "still"), "\"host\":\"hb\",");
}

static void a_signal_to_stop_reaches_ranks_through_mpirun(void **state)
{
    Lab *lab = *state;
    Child c = START(lab, "asked", SUPERVISE, "--", "mpirun", "--oversubscribe", "-n", "4");
    wait_for_start(lab, "asked", &c, 1);
    kill(c.pid, SIGTERM);
    Outcome o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "stopped by signal 12 after step ");
    const int steps = run_count_steps(lab, "asked");
    CHECK(steps < STEPS && run_has_checkpoint(lab, "asked", steps));
}

static void a_run_folder_that_hosts_do_not_share_is_refused(void **state)
{
    Lab *lab = *state;
    if (!have_hosts) skip();
    CHECK(setenv("LAB_HIDE", "hb", 1) == 0);
    Outcome o = RUN(lab, "apart", SUPERVISE, TWO_HOSTS);
    CHECK(unsetenv("LAB_HIDE") == 0);
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err,
               "run.dir run is not the same folder on host hb (rank 2) as where supervise runs");
    CHECK_INT(text_count(run_journal(lab, "apart"), "\"kind\":\"start\""), 1);
}

static int open_all(void **state)
{
    if (lab_open(state) != 0) return 1;
    Lab *lab = *state;
    have_hosts = make_hosts(lab);
    if (!have_hosts) printf("skip: namespaces cannot be made here\n");
    return setenv("LAB", lab->folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_host_that_failed_twice_is_left_out_and_the_loss_stays),
        LAB_TEST(a_spare_host_takes_its_ranks_with_the_same_bits),
        LAB_TEST(a_rank_that_stands_still_is_ended_and_its_host_named),
        LAB_TEST(a_signal_to_stop_reaches_ranks_through_mpirun),
        LAB_TEST(a_run_folder_that_hosts_do_not_share_is_refused),
    };
    return cmocka_run_group_tests(tests, open_all, lab_close);
}
