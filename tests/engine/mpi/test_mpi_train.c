/* Training as processes of mpirun: the same bits as threads, resumed too. */
#include "harness/processes.h"

enum { STEPS = 100, HALF = 50 };

#define SETTINGS                                                                                   \
    "train", "../tiny.yaml", "mesh.pp=2", "mesh.ep=2", "mesh.zero=2", "train.micro_batch=1",       \
        "moe.buffers=worst", "moe.bias_rate=0.01", "checkpoint.every=25",                          \
        "optimizer.decay_steps=100"

static void check_same_runs(Lab *lab, const char *a, const char *b)
{
    check_same_steps(lab, a, b, 1, STEPS);
    check_same_checkpoint(lab, a, b, STEPS);
}

/* Once. */
static void run_over_threads(Lab *lab)
{
    if (run_has_checkpoint(lab, "threads", STEPS)) return;
    Outcome o = RUN(lab, "threads", SETTINGS, "train.steps=100", "--ranks", "4");
    CHECK_EXIT(o, 0);
}

static void processes_have_the_bits_of_threads(void **state)
{
    run_over_threads(*state);
    Outcome o = RUN_MPI(*state, 4, "whole", SETTINGS, "train.steps=100");
    CHECK_EXIT(o, 0);
    check_same_runs(*state, "threads", "whole");
}

/* A signal to one of them ends all after the same step. */
static void stopped_by_a_signal_and_resumed_they_have_the_same_bits(void **state)
{
    Lab *lab = *state;
    run_over_threads(lab);
    const Launch l = { .cell = "cut", .args = ARGS(SETTINGS, "train.steps=100"), .processes = 4 };
    Child c = lab_start(lab, &l);
    while (run_count_steps(lab, "cut") < 3 && child_runs(&c)) child_sleep();
    kill(rank_pid(&c, 2), SIGTERM);
    Outcome o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "stopped by signal 15 after step");
    o = RUN_MPI(lab, 4, "cut", SETTINGS, "train.steps=100", "--resume");
    CHECK_EXIT(o, 0);
    CHECK_INT(run_count_steps(lab, "cut"), STEPS); /* none was run twice */
    check_same_runs(lab, "threads", "cut");
}

static void threads_go_on_where_processes_ended(void **state)
{
    Lab *lab = *state;
    run_over_threads(lab);
    Outcome o = RUN_MPI(lab, 4, "half", SETTINGS, "train.steps=50");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "half", SETTINGS, "train.steps=100", "--resume", "--ranks", "4");
    CHECK_EXIT(o, 0);
    check_same_steps(lab, "threads", "half", 1, STEPS);
}

static void every_rank_but_0_has_a_log_of_its_own(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN_MPI(lab, 4, "logs", SETTINGS, "train.steps=1");
    CHECK_EXIT(o, 0);
    CHECK(!file_exists(lab_path(lab, "logs/run/log/rank-00000.log")));
    for (int r = 1; r < 4; r++) {
        CHECK(file_exists(lab_path(lab, "logs/run/log/rank-%05d.log", r)));
    }
}

/* Rank 0 alone tells what all measured. */
static void benches_run_over_processes(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN_MPI(lab, 2, "bench", "bench", "comm", "--shrink=64", "run.device=cpu");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "2 ranks, 2 a host, ");
    CHECK(strstr(strstr(o.out, "barrier") + 1, "barrier") == NULL);
    CHECK_SAYS(o.out, "alltoall combine");
    o = RUN_MPI(lab, 2, "bench", "bench", "step", "../tiny.yaml", "mesh.ep=2",
                "train.micro_batch=1", "--steps=2", "--exposed", "--data");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "exposed      ep");
    o = RUN_MPI(lab, 2, "bench", "bench", "comm", "--ranks=2");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "leave out --ranks");
    o = RUN_MPI(lab, 2, "bench", "bench", "ladder", "../tiny.yaml", "--ranks=2");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "start it without mpirun or srun");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(processes_have_the_bits_of_threads),
        LAB_TEST(stopped_by_a_signal_and_resumed_they_have_the_same_bits),
        LAB_TEST(threads_go_on_where_processes_ended),
        LAB_TEST(every_rank_but_0_has_a_log_of_its_own),
        LAB_TEST(benches_run_over_processes),
    };
    return LAB_RUN_ALL(tests);
}
