/* A rank that dies or stands still at any moment: the others end, soon, and name it; the next run
 * goes on to the bits of the run that was never stopped. `--all` takes 50 kills instead of 3, ten
 * of them inside a checkpoint. */
#include "harness/processes.h"

#include "engine/base/clock.h"
#include "supervise/orphans.h"

enum {
    RANKS = 4,
    STEPS = 30,
    KILLS = 2,
    KILLS_WRITING = 1,
    ALL_KILLS = 40,
    ALL_KILLS_WRITING = 10
};
/* The deadline, and what comes on top: half of it to tell the others, mpirun's own end. */
static const double DEADLINE_S = 4, MORE_S = 8;

static bool all;

#define SETTINGS                                                                                   \
    "train", "../tiny.yaml", "train.steps=30", "train.micro_batch=1", "mesh.pp=2", "mesh.ep=2",    \
        "mesh.zero=2", "moe.buffers=worst", "checkpoint.every=1", "comm.timeout_s=4"

static const char *const settings[] = { SETTINGS, NULL };
static const Launch cut = { .cell = "cut", .args = settings, .processes = RANKS };

/* Nothing is lost beyond the interval, which is one step. */
static void goes_on_like_the_whole(Lab *lab)
{
    int before = run_count_steps(lab, "cut");
    bool resume = run_count_checkpoints(lab, "cut", true) > 0;
    Outcome o = resume ? RUN_MPI(lab, RANKS, "cut", SETTINGS, "--resume") : lab_run(lab, &cut);
    CHECK_EXIT(o, 0);
    CHECK(run_count_steps(lab, "cut") <= STEPS + (resume ? 2 : before));
    check_same_steps(lab, "whole", "cut", 1, STEPS);
    check_same_checkpoint(lab, "whole", "cut", STEPS);
}

/* Its error names the lost rank; on stderr or in its log. */
static bool names(const char *said, int r, const char *lost)
{
    char mine[32];
    snprintf(mine, sizeof mine, r == 0 ? "error: " : "rank %d: error: ", r);
    for (const char *at = said; (at = strstr(at, mine)) != NULL;) {
        at += strlen(mine);
        const char *found = strstr(at, lost), *end = strchr(at, '\n');
        if (found != NULL && found < end) return true;
    }
    return false;
}

static void all_name(Lab *lab, const Outcome *o, int lost)
{
    char name[16];
    snprintf(name, sizeof name, "rank %d", lost);
    for (int r = 0; r < RANKS; r++) {
        const char *log = lab_path(lab, "cut/run/log/rank-%05d.log", r);
        if (r == lost || names(o->err, r, name)) continue;
        if (r > 0 && names(lab_read(lab, log, NULL), r, name)) continue;
        print_error("%s\n", o->err);
        fail_msg("rank %d does not name rank %d", r, lost);
    }
}

static Child begin(Lab *lab)
{
    CHECK_OK(file_remove_tree(lab_path(lab, "cut")));
    return lab_start(lab, &cut);
}

static void hit(Lab *lab, Child *c, int lost, int signal)
{
    pid_t pid = rank_pid(c, lost);
    int step = run_count_steps(lab, "cut");
    if (pid > 0) kill(pid, signal);
    double since = clock_s();
    Outcome o = lab_wait(lab, c);
    double took_s = clock_s() - since;
    if (o.code == 0) return; /* it had ended */
    if (took_s > DEADLINE_S + MORE_S) fail_msg("it took %.1f s to end: %s", took_s, o.err);
    if (step > 0 && step < STEPS) all_name(lab, &o, lost);
}

static void a_killed_rank_is_named_and_nothing_is_lost(void **state)
{
    Lab *lab = *state;
    double took_s = run_whole_s(lab, &cut);
    for (int i = 0; i < (all ? ALL_KILLS : KILLS); i++) {
        Child c = begin(lab);
        double u = rng_uniform(1, rng_stream("moments"), (uint64_t)i);
        usleep((useconds_t)(1e6 * took_s * u));
        hit(lab, &c, i % RANKS, SIGKILL);
        goes_on_like_the_whole(lab);
        lab_forget(state);
    }
}

static void killed_inside_a_checkpoint_a_run_goes_on_from_the_one_before(void **state)
{
    Lab *lab = *state;
    run_whole_s(lab, &cut);
    int hits = 0, wanted = all ? ALL_KILLS_WRITING : KILLS_WRITING;
    for (int i = 0; hits < wanted; i++) {
        if (i == 20 * wanted) fail_msg("%d of %d signals hit a checkpoint", hits, i);
        Child c = begin(lab);
        while (run_count_steps(lab, "cut") < 1 + i % 20 && child_runs(&c)) child_sleep();
        while (run_count_checkpoints(lab, "cut", false) == 0 && child_runs(&c)) child_sleep();
        hit(lab, &c, i % RANKS, SIGKILL);
        hits += run_count_checkpoints(lab, "cut", false) > 0;
        goes_on_like_the_whole(lab);
        CHECK_INT(run_count_checkpoints(lab, "cut", false), 0);
        lab_forget(state);
    }
}

static void a_rank_that_stands_still_is_named_within_the_deadline(void **state)
{
    Lab *lab = *state;
    run_whole_s(lab, &cut);
    for (int lost = 1; lost < (all ? RANKS : 2); lost++) {
        Child c = begin(lab);
        while (run_count_steps(lab, "cut") < 5 && child_runs(&c)) child_sleep();
        hit(lab, &c, lost, SIGSTOP);
        goes_on_like_the_whole(lab);
    }
}

/* Open MPI's mpirun may miss the end of a rank that ends as it starts, and waits for it without end. False: it does. */
static bool mpirun_ends(Child *mpirun)
{
    for (int looks = 0; child_runs(mpirun); usleep(200000)) {
        looks = orphans_unreaped(mpirun->pid) != 0 ? looks + 1 : 0;
        if (looks > 50) return false;
    }
    return true;
}

static void a_rank_that_never_starts_ends_the_others_at_the_deadline(void **state)
{
    Lab *lab = *state;
    Child c;
    for (int turn = 0;; turn++) {
        c = begin(lab);
        const pid_t stopped = rank_pid(&c, 1);
        if (stopped > 0) kill(stopped, SIGSTOP);
        if (mpirun_ends(&c) || turn == 2) break;
        if (stopped > 0) kill(stopped, SIGKILL);
        kill(c.pid, SIGKILL);
        (void)lab_wait(lab, &c);
    }
    Outcome o = lab_wait(lab, &c);
    /* mpirun may end by SIGPIPE itself, when it has named the first rank that ended and clears up */
    if (o.code == 128 + SIGPIPE)
        CHECK_SAYS(o.err, "Exit code:    3");
    else
        CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "a rank has not come");
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_killed_rank_is_named_and_nothing_is_lost),
        LAB_TEST(killed_inside_a_checkpoint_a_run_goes_on_from_the_one_before),
        LAB_TEST(a_rank_that_stands_still_is_named_within_the_deadline),
        LAB_TEST(a_rank_that_never_starts_ends_the_others_at_the_deadline),
    };
    return LAB_RUN_ALL(tests);
}
