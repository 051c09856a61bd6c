/* A rank that dies or stands still, over TCP: the others end, soon, and name it; the next run goes on to the bits of
 * the run that was never stopped. */
#include "harness/tcp_job.h"

enum { RANKS = 4, STEPS = 30 };
static const double DEADLINE_S = 6;

#define SETTINGS                                                                                   \
    "train", "../tiny.yaml", "train.steps=30", "train.micro_batch=1", "mesh.pp=2", "mesh.ep=2",    \
        "mesh.zero=2", "moe.buffers=worst", "checkpoint.every=1", "run.threads=1",                 \
        "comm.timeout_s=6"

static TcpJob begin(Lab *lab, const char *setting)
{
    TcpJob job = { .ranks = RANKS };
    CHECK_OK(file_remove_tree(lab_path(lab, "cut")));
    job_start(lab, &job, "cut", ARGS(SETTINGS, setting));
    return job;
}

static bool runs(TcpJob *job) { return child_runs(&job->rank[0]); }

/* Sends the signal to rank `lost`; the others end with 3 and name it. How long it took. */
static double hit(Lab *lab, TcpJob *job, int lost, int signal)
{
    char name[16];
    double since = clock_s();
    snprintf(name, sizeof name, "rank %d", lost);
    kill(job->rank[lost].pid, signal);
    for (int r = 0; r < RANKS; r++) {
        if (r != lost) job->end[r] = lab_wait(lab, &job->rank[r]);
    }
    double took_s = clock_s() - since;
    if (signal == SIGSTOP) kill(job->rank[lost].pid, SIGKILL);
    job->end[lost] = lab_wait(lab, &job->rank[lost]);
    job_check(job, lost, 3, name);
    return took_s;
}

static void goes_on_like_the_whole(Lab *lab)
{
    TcpJob job = { .ranks = RANKS };
    run_whole_s(lab, &(Launch){ .args = ARGS(SETTINGS, "--ranks", "4") });
    job_start(lab, &job, "cut", ARGS(SETTINGS, "--resume=auto"));
    job_wait(lab, &job);
    job_check(&job, -1, 0, "");
    check_same_steps(lab, "whole", "cut", 1, STEPS);
    check_same_checkpoint(lab, "whole", "cut", STEPS);
}

/* At once: nobody waits for a deadline, also not who waits for another rank. */
static void a_rank_killed_in_a_step_is_named_at_once(void **state)
{
    Lab *lab = *state;
    for (int lost = 0; lost < RANKS; lost += 3) {
        TcpJob job = begin(lab, NULL);
        while (run_count_steps(lab, "cut") < 5 && runs(&job)) child_sleep();
        double took_s = hit(lab, &job, lost, SIGKILL);
        if (took_s >= DEADLINE_S) fail_msg("it took %.1f s", took_s);
        goes_on_like_the_whole(lab);
        lab_forget(state);
    }
}

/* Training waits for each save, so the ranks are most often in one, and rank 0 cannot speak for the others. */
static void a_rank_killed_in_a_save_costs_one_step(void **state)
{
    Lab *lab = *state;
    for (int lost = 0; lost < RANKS; lost++) {
        TcpJob job = begin(lab, "checkpoint.async=false");
        while (run_count_steps(lab, "cut") < 3 && runs(&job)) child_sleep();
        while (run_count_checkpoints(lab, "cut", false) == 0 && runs(&job)) child_sleep();
        (void)hit(lab, &job, lost, SIGKILL);
    }
    goes_on_like_the_whole(lab);
}

static void a_rank_killed_while_all_start_is_named(void **state)
{
    Lab *lab = *state;
    for (int i = 0; i < 3; i++) {
        TcpJob job = begin(lab, NULL);
        usleep((useconds_t)(100000 * i));
        (void)hit(lab, &job, 2, SIGKILL);
    }
}

static void a_rank_that_stands_still_is_named_at_the_deadline(void **state)
{
    Lab *lab = *state;
    TcpJob job = begin(lab, NULL);
    while (run_count_steps(lab, "cut") < 5 && runs(&job)) child_sleep();
    double took_s = hit(lab, &job, 2, SIGSTOP);
    if (took_s < DEADLINE_S - 1 || took_s > 2 * DEADLINE_S + 6) fail_msg("it took %.1f s", took_s);
    goes_on_like_the_whole(lab);
}

static void a_late_rank_is_awaited_while_strangers_knock(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = RANKS };
    const Launch l = { .cell = "cut",
                       .args = ARGS(SETTINGS, "train.steps=2", "comm.timeout_s=60") };
    CHECK_OK(file_remove_tree(lab_path(lab, "cut")));
    for (int r = 0; r < RANKS - 1; r++) job_start_rank(lab, &job, r, &l);
    for (int i = 0; i < 5; i++) {
        int fd = tcp_connect(job.port);
        CHECK(fd >= 0 && send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL) == 18);
        close(fd);
    }
    job_start_rank(lab, &job, RANKS - 1, &l);
    job_wait(lab, &job);
    job_check(&job, -1, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_rank_killed_in_a_step_is_named_at_once),
        LAB_TEST(a_rank_killed_in_a_save_costs_one_step),
        LAB_TEST(a_rank_killed_while_all_start_is_named),
        LAB_TEST(a_rank_that_stands_still_is_named_at_the_deadline),
        LAB_TEST(a_late_rank_is_awaited_while_strangers_knock),
    };
    return LAB_RUN_ALL(tests);
}
