/* Runs that end before their time: whatever moment a signal comes, the next run goes on to the bits
 * of the run that was never stopped. `--all` takes 20 moments instead of 6. */
#include "harness/run_folder.h"

#include <sys/inotify.h>

enum { STEPS = 12, KILLS = 4, KILLS_WRITING = 2, ALL_KILLS = 15, ALL_KILLS_WRITING = 5 };

static bool all;

/* Large enough that a checkpoint takes a good part of the time: 13 MB after every step. */
static const char *const settings[] = {
    "train",       "../tiny.yaml",  "train.steps=12",     "train.eval_every=4", "model.hidden=96",
    "moe.ffn=192", "moe.experts=8", "checkpoint.every=1", "moe.bias_rate=0.01", NULL
};

static const Launch cut = { .cell = "cut", .args = settings };

static const char *const *with_resume(void)
{
    static const char *args[16];
    int n = 0;
    for (; settings[n] != NULL; n++) args[n] = settings[n];
    args[n] = "--resume";
    return args;
}

/* Go on with the run in this cell until its end. Without a whole checkpoint it begins anew. */
static void finish(Lab *lab, const char *cell)
{
    bool resume = run_count_checkpoints(lab, cell, true) > 0;
    const Launch again = { .cell = cell, .args = resume ? with_resume() : settings };
    Outcome o = lab_run(lab, &again);
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.err, "damaged") == NULL);
}

static void check_finished_like_the_whole(Lab *lab, const char *cell)
{
    check_same_steps(lab, "whole", cell, 1, STEPS);
    check_same_checkpoint(lab, "whole", cell, STEPS - 1);
    check_same_checkpoint(lab, "whole", cell, STEPS);
    CHECK_OK(file_remove_tree(lab_path(lab, "%s", cell)));
}

static void killed_at_any_moment_a_run_goes_on_with_the_same_bits(void **state)
{
    Lab *lab = *state;
    double took_s = run_whole_s(lab, &cut);
    uint64_t stream = rng_stream("moments");
    for (int i = 0; i < (all ? ALL_KILLS : KILLS); i++) {
        Child c = lab_start(lab, &cut);
        usleep((useconds_t)(1e6 * took_s * rng_uniform(1, stream, (uint64_t)i)));
        kill(c.pid, SIGKILL);
        Outcome o = lab_wait(lab, &c);
        if (o.code != 0) CHECK_EXIT(o, 128 + SIGKILL);
        finish(lab, "cut");
        check_finished_like_the_whole(lab, "cut");
        lab_forget(state);
    }
}

/* Wait until a checkpoint's temporary folder appears for the n-th time. */
static void wait_for_writing(Lab *lab, const char *cell, Child *c, int nth)
{
    const char *folder = lab_path(lab, "%s/run/checkpoints", cell);
    CHECK_OK(file_make_folders(folder));
    int fd = inotify_init1(IN_NONBLOCK);
    CHECK(fd >= 0 && inotify_add_watch(fd, folder, IN_CREATE) >= 0);
    while (nth > 0 && child_runs(c)) {
        union {
            struct inotify_event event;
            char bytes[4096];
        } got;
        ssize_t n = read(fd, &got, sizeof got);
        for (ssize_t at = 0; at < n && nth > 0;) {
            const struct inotify_event *e = (const void *)(got.bytes + at);
            nth -= text_ends(e->name, ".tmp");
            at += (ssize_t)(sizeof *e + e->len);
        }
        if (n < 0) child_sleep();
    }
    close(fd);
}

/* Somewhere inside the nth checkpoint; false if it was whole before the signal came. */
static bool kill_while_writing(Lab *lab, int nth, useconds_t later_us)
{
    CHECK_OK(file_remove_tree(lab_path(lab, "cut")));
    Child c = lab_start(lab, &cut);
    wait_for_writing(lab, "cut", &c, nth);
    usleep(later_us);
    kill(c.pid, SIGKILL);
    Outcome o = lab_wait(lab, &c);
    return o.code == 128 + SIGKILL && run_count_checkpoints(lab, "cut", false) > 0;
}

static void killed_inside_a_checkpoint_a_run_goes_on_from_the_one_before(void **state)
{
    Lab *lab = *state;
    run_whole_s(lab, &cut);
    int hits = 0, wanted = all ? ALL_KILLS_WRITING : KILLS_WRITING;
    for (int i = 0; hits < wanted; i++) {
        if (i == 20 * wanted) fail_msg("%d of %d signals hit a checkpoint", hits, i);
        uint64_t r = rng_below(2, rng_stream("writing"), (uint64_t)i, 3000);
        if (!kill_while_writing(lab, 1 + i % 7, (useconds_t)r)) continue;
        hits++;
        finish(lab, "cut");
        CHECK_INT(run_count_checkpoints(lab, "cut", false), 0); /* what was left behind is gone */
        check_finished_like_the_whole(lab, "cut");
        lab_forget(state);
    }
}

/* ---- signals that ask ---- */

static void stops_politely(Lab *lab, int signal)
{
    run_whole_s(lab, &cut);
    Child c = lab_start(lab, &cut);
    while (run_count_steps(lab, "cut") < 3 && child_runs(&c)) child_sleep();
    kill(c.pid, signal);
    Outcome o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    char stopped[64];
    int steps = run_count_steps(lab, "cut");
    CHECK(steps >= 3 && steps < STEPS);
    snprintf(stopped, sizeof stopped, "stopped by signal %d after step %d", signal, steps);
    CHECK_SAYS(o.err, stopped);
    CHECK_SAYS(o.out, "held-out bits a byte  ");
    if (steps % 4 != 0) CHECK_SAYS(o.out, "; not measured since\n"); /* train.eval_every */
    if (steps % 4 != 0) CHECK(strstr(o.out, "after") == NULL);
    CHECK(run_has_checkpoint(lab, "cut", steps));
    finish(lab, "cut");
    CHECK_INT(run_count_steps(lab, "cut"), STEPS); /* none was run twice */
    check_finished_like_the_whole(lab, "cut");
}

static void sigint_ends_the_step_saves_and_exits_with_0(void **state)
{
    stops_politely(*state, SIGINT);
}

static void sigterm_ends_the_step_saves_and_exits_with_0(void **state)
{
    stops_politely(*state, SIGTERM);
}

int main(int argc, char **argv)
{
    all = argc > 1 && strcmp(argv[1], "--all") == 0;
    const struct CMUnitTest tests[] = {
        LAB_TEST(killed_at_any_moment_a_run_goes_on_with_the_same_bits),
        LAB_TEST(killed_inside_a_checkpoint_a_run_goes_on_from_the_one_before),
        LAB_TEST(sigint_ends_the_step_saves_and_exits_with_0),
        LAB_TEST(sigterm_ends_the_step_saves_and_exits_with_0),
    };
    return LAB_RUN_ALL(tests);
}
