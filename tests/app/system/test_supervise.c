/* A run under `supervise`: killed, stopped, failing, refused and asked to stop. The bits at its end are those of a run
 * that nobody disturbed. */
#include "harness/supervised.h"

enum { STEPS = 60 };

#define SETTINGS "../tiny.yaml", "train.steps=60", "checkpoint.every=5"

static const char *const whole_args[] = { "train", SETTINGS, NULL };
static const Launch whole = { .args = whole_args };

static void wait_for_steps(Lab *lab, const char *cell, Child *c, int steps)
{
    while (run_count_steps(lab, cell) < steps && child_runs(c)) child_sleep();
}

static void check_like_the_whole(Lab *lab, const char *cell)
{
    run_whole_s(lab, &whole);
    check_same_steps(lab, "whole", cell, 1, STEPS);
    check_same_checkpoint(lab, "whole", cell, STEPS);
}

/* Signals the run after each of these numbers of steps, and returns how supervise ended. */
static Outcome disturbed(Lab *lab, const char *cell, const char *const *args, int signal,
                         const int *after, int n)
{
    Child c = lab_start(lab, &(Launch){ .cell = cell, .args = args });
    pid_t last = 0;
    for (int i = 0; i < n; i++) {
        wait_for_steps(lab, cell, &c, after[i]);
        pid_t pid = supervised_pid(&c);
        while (pid == last && child_runs(&c)) pid = supervised_pid(&c);
        last = pid;
        if (pid > 0) kill(pid, signal);
    }
    return lab_wait(lab, &c);
}

static void a_killed_run_goes_on_to_the_same_bits(void **state)
{
    Lab *lab = *state;
    Outcome o = disturbed(lab, "killed", ARGS("supervise", SETTINGS, "--", "--ranks", "1"), SIGKILL,
                          (const int[]){ 7, 20 }, 2);
    CHECK_EXIT(o, 0);
    check_like_the_whole(lab, "killed");
    const char *said = run_journal(lab, "killed");
    CHECK_INT(text_count(said, "\"kind\":\"start\""), 3);
    CHECK_INT(text_count(said, "\"end\":\"killed\",\"signal\":9,"), 2);
    CHECK_INT(text_count(said, "\"pause_s\":1,"), 2); /* a newer checkpoint sets the pause back */
    CHECK_INT(text_count(said, "\"end\":\"done\",\"code\":0,"), 1);
    CHECK_SAYS(o.out, "starts                3, ");
    CHECK_SAYS(o.err, "warning: supervise: killed at step ");
    /* a checkpoint is whole at the latest when the next one begins */
    CHECK(run_count_steps(lab, "killed") <= STEPS + 2 * 2 * 5);
}

static void a_run_that_stands_still_is_ended_and_goes_on(void **state)
{
    Lab *lab = *state;
    Outcome o = disturbed(
        lab, "stopped",
        ARGS("supervise", SETTINGS, "mesh.ep=2", "--hang-after", "2", "--", "--ranks", "2"),
        SIGSTOP, (const int[]){ 7 }, 1);
    CHECK_EXIT(o, 0);
    CHECK_INT(text_count(run_journal(lab, "stopped"), "\"end\":\"hung\",\"signal\":9,"), 1);
    CHECK_SAYS(o.err, "supervise: no heartbeat for 2 s: the run is ended");
    CHECK(run_has_checkpoint(lab, "stopped", STEPS));
}

/* The first start is of a launcher that waits for nobody, whose only rank has ended. */
static void a_launcher_that_misses_the_end_of_a_rank_is_ended(void **state)
{
    Lab *lab = *state;
    const char *mpirun = lab_path(lab, "mpirun");
    lab_write_text(lab, mpirun,
                   "#!/bin/sh\n"
                   "if mkdir ../once 2>/dev/null; then true & exec sleep 600; fi\n"
                   "while [ \"$1\" = -n ] || [ \"$1\" = 1 ]; do shift; done\n"
                   "exec \"$@\"\n");
    CHECK(chmod(mpirun, 0755) == 0);
    Outcome o = RUN(lab, "missed", "supervise", "../tiny.yaml", "train.steps=60",
                    "checkpoint.every=5", "--", "../mpirun", "-n", "1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "has ended and its launcher does not see it: the run is ended");
    check_like_the_whole(lab, "missed");
}

static void the_same_failure_twice_ends_with_its_sentence(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "nan", "supervise", SETTINGS, "checkpoint.every=1", "optimizer.lr=100",
                    "optimizer.min_lr=100", "train.clip_norm=0", "optimizer.weight_decay=10", "--",
                    "--ranks", "1");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "error: supervise: the same failure came twice at the same step: step ");
    CHECK_INT(text_count(run_journal(lab, "nan"), "\"kind\":\"start\""), 2);
}

static void what_cannot_be_supervised_is_refused(void **state)
{
    Lab *lab = *state;
    CHECK_REFUSED(RUN(lab, "bad", "supervise", "../tiny.yaml", "--", "--ranks", "1"), 2,
                  "checkpoint.every is 0, so each restart would lose all of train.steps 40");
    CHECK_REFUSED(RUN(lab, "bad", "supervise", SETTINGS), 2, "nothing after --");
    CHECK_REFUSED(RUN(lab, "bad", "supervise", SETTINGS, "--", "python3", "train.py"), 2,
                  "python3 after -- is no launcher");
    CHECK_REFUSED(RUN(lab, "bad", "supervise", SETTINGS, "--", "--ranks", "x"), 2,
                  "--ranks x is not a number");
    CHECK(!file_exists(lab_path(lab, "bad/run")));
    CHECK_REFUSED(RUN(lab, "bad", "supervise", SETTINGS, "--", "./mpirun"), 2,
                  "cannot start ./mpirun: No such file");
    Outcome o = RUN(lab, "bad", "train", SETTINGS, "--supervised", "x");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "run.dir run is not the same folder on host ");
    CHECK_SAYS(o.err,
               "to a folder that all hosts share [bad argument]\n"); /* supervise reads the kind */
}

/* What runs is the program that became the supervisor, whatever its name. */
static void a_program_of_another_name_supervises_itself(void **state)
{
    Lab *lab = *state;
    Outcome o =
        SHELL(lab, "named",
              "cp \"$0\" yard && cp \"$0-supervise\" yard-supervise && cp yard-supervise alone && "
              "exec ./yard supervise ../tiny.yaml train.steps=5 checkpoint.every=5 -- --ranks 1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(run_journal(lab, "named"), "/named/yard train ../tiny.yaml");
    o = SHELL(lab, "named", "exec ./alone ../tiny.yaml checkpoint.every=5 -- --ranks 1");
    CHECK_REFUSED(o, 2,
                  "/named/alone, whose name does not say which program it belongs to: rename it "
                  "to switchyard-supervise, in the folder of switchyard");
}

/* The run's own refusal, here of another learning rate, ends it at once. */
static void what_the_run_refuses_is_not_tried_again(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "other", "train", SETTINGS, "train.steps=5", "optimizer.decay_steps=60");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "other", "supervise", SETTINGS, "optimizer.lr=0.5", "--", "--ranks", "1");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "error: supervise: a restart would be refused as well: ");
    CHECK_SAYS(o.err, "--change optimizer.lr");
    CHECK_INT(text_count(run_journal(lab, "other"), "\"end\":\"refused\",\"code\":2"), 1);
    CHECK_INT(text_count(run_journal(lab, "other"), "\"kind\":\"start\""), 1);
}

/* One restart: the run has leave each time. */
static void commands_of_a_file_run_where_supervise_allows_them(void **state)
{
    Lab *lab = *state;
    size_t n = 0;
    char text[8192];
    (void)snprintf(text, sizeof text, "%s\ncheckpoint: {after: 'echo ran {folder}'}\n",
                   lab_read(lab, lab_path(lab, "tiny.yaml"), &n));
    lab_write_text(lab, lab_path(lab, "code.yaml"), text);
    Outcome o = RUN(lab, "code", "supervise", "../code.yaml", "train.steps=5", "checkpoint.every=5",
                    "--", "--ranks", "1");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "give --allow-commands if it may run");
    o = disturbed(lab, "code",
                  ARGS("supervise", "../code.yaml", "train.steps=60", "checkpoint.every=5",
                       "--allow-commands", "--", "--ranks", "1"),
                  SIGKILL, (const int[]){ 12 }, 1);
    CHECK_EXIT(o, 0);
    CHECK_INT(text_count(run_journal(lab, "code"), "\"end\":\"killed\""), 1);
    CHECK_SAYS(lab_read(lab, lab_path(lab, "code/run/after.jsonl"), &n),
               "\"said\":\"ran run/checkpoints/step-0000000060\"");
}

/* The first word of a process in lists of processes. */
static bool is_listed_as(pid_t pid, const char *ending)
{
    char path[64], word[4096] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL && fread(word, 1, sizeof word - 1, f) > 0);
    fclose(f);
    const size_t n = strlen(word), tail = strlen(ending);
    return n > tail && strcmp(word + n - tail, ending) == 0;
}

static void a_signal_to_stop_saves_and_ends_with_0(void **state)
{
    Lab *lab = *state;
    static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
    for (int i = 0; i < 3; i++) {
        Child c = START(lab, "asked", "supervise", SETTINGS, "--", "--ranks", "1");
        wait_for_steps(lab, "asked", &c, 7 + 10 * i);
        CHECK(is_listed_as(c.pid, "/switchyard-supervise"));
        kill(c.pid, SIGUSR1);
        kill(c.pid, signals[i]);
        Outcome o = lab_wait(lab, &c);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.err, "supervise: asks the run to save and end");
        CHECK_SAYS(o.err, "goodput 0.");
        const int steps = run_count_steps(lab, "asked");
        CHECK(steps < STEPS && run_has_checkpoint(lab, "asked", steps));
    }
    CHECK_EXIT(RUN(lab, "asked", "supervise", SETTINGS, "--", "--ranks", "1"), 0);
    CHECK_INT(run_count_steps(lab, "asked"), STEPS); /* none ran twice */
    check_like_the_whole(lab, "asked");
}

/* A signal to the run alone, as a host gives before it goes: the run saves and ends with 0, which is not its end. */
static void a_run_that_stops_early_is_started_again(void **state)
{
    Lab *lab = *state;
    Child c = START(lab, "early", "supervise", SETTINGS, "--", "--ranks", "1");
    wait_for_steps(lab, "early", &c, 7);
    kill(supervised_pid(&c), SIGTERM);
    Outcome o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "supervise: stopped at step ");
    CHECK_SAYS(o.err, ": it ended with exit code 0 before train.steps=");
    CHECK_INT(text_count(run_journal(lab, "early"), "\"end\":\"stopped\",\"code\":0"), 1);
    CHECK_INT(text_count(run_journal(lab, "early"), "\"kind\":\"start\""), 2);
    CHECK_INT(text_count(run_journal(lab, "early"), "\"then\":\"the run is done\""), 1);
    CHECK_INT(run_count_steps(lab, "early"), STEPS);
    check_like_the_whole(lab, "early");
}

/* Its second end without a rank is a failure. */
static void a_launcher_that_does_nothing_is_no_run_that_is_done(void **state)
{
    Lab *lab = *state;
    lab_write_text(lab, lab_path(lab, "mpirun"), "#!/bin/sh\nexit 0\n");
    CHECK_INT(chmod(lab_path(lab, "mpirun"), 0755), 0);
    Outcome o = RUN(lab, "idle", "supervise", SETTINGS, "--", "../mpirun", "-n", "1");
    CHECK_REFUSED(o, 3, "it ended with exit code 0 before train.steps=");
    CHECK_INT(text_count(run_journal(lab, "idle"), "\"end\":\"not started\",\"code\":0"), 2);
}

static void a_second_supervise_is_refused_and_a_killed_one_leaves_no_run_behind(void **state)
{
    Lab *lab = *state;
    Child c = START(lab, "lonely", "supervise", SETTINGS, "--", "--ranks", "1");
    wait_for_steps(lab, "lonely", &c, 3);
    CHECK_REFUSED(RUN(lab, "lonely", "supervise", SETTINGS, "--", "--ranks", "1"), 2,
                  "run folder run is in use by another supervise, process ");
    kill(c.pid, SIGKILL);
    CHECK_EXIT(lab_wait(lab, &c), 128 + SIGKILL);
    Outcome o = RUN(lab, "lonely", "supervise", SETTINGS, "--", "--ranks", "1");
    CHECK_EXIT(o, 0);
    CHECK_INT(run_count_steps(lab, "lonely"), STEPS); /* it had saved */
    check_like_the_whole(lab, "lonely");
}

/* A run that a killed supervisor left behind still saves. */
static void a_start_waits_for_the_run_that_has_the_folder(void **state)
{
    Lab *lab = *state;
    Child train = START(lab, "busy", "train", SETTINGS);
    wait_for_steps(lab, "busy", &train, 3);
    kill(train.pid, SIGSTOP);
    Child c = START(lab, "busy", "supervise", SETTINGS, "--", "--ranks", "1");
    const char *said = "";
    while (strstr(said, "waits for the end of a run") == NULL && child_runs(&c)) {
        child_sleep();
        if (file_exists(c.err)) said = lab_read(lab, c.err, NULL);
    }
    kill(train.pid, SIGTERM);
    kill(train.pid, SIGCONT);
    CHECK_EXIT(lab_wait(lab, &train), 0);
    CHECK_EXIT(lab_wait(lab, &c), 0);
    check_like_the_whole(lab, "busy");
}

/* Copies in a folder of the lab, so that what stays there is seen. */
static const char *peer_setting(const Lab *lab)
{
    static char text[FILE_PATH_MAX + 64];
    snprintf(text, sizeof text, "checkpoint.peer_dir=%s/shm", lab->folder);
    return text;
}

static void a_killed_run_goes_on_from_memory_to_the_same_bits(void **state)
{
    Lab *lab = *state;
    const char *const *names = NULL;
    int n = 0;
    const char *dir = peer_setting(lab);
#define IN_MEMORY                                                                                  \
    "../tiny.yaml", "train.steps=60", "checkpoint.every=50", "checkpoint.peer=true",               \
        "checkpoint.peer_every=4", "mesh.ep=2", "train.micro_batch=1", dir
    Outcome o = disturbed(lab, "memory", ARGS("supervise", IN_MEMORY, "--", "--ranks", "2"),
                          SIGKILL, (const int[]){ 20, 35 }, 2);
    CHECK_EXIT(o, 0);
    CHECK_INT(text_count(run_journal(lab, "memory"), "\"kind\":\"start\""), 3);
    CHECK_INT(text_count(o.err, "resumed from the memory of hosts: step "), 2);
    /* the second start began at a step that the disk lacks: that is progress */
    CHECK_INT(text_count(run_journal(lab, "memory"), "\"pause_s\":1,"), 2);
    CHECK(run_count_steps(lab, "memory") <= STEPS + 2 * 2 * 4);
    o = RUN(lab, "calm", "train", IN_MEMORY, "--ranks", "2");
    CHECK_EXIT(o, 0);
    check_same_steps(lab, "calm", "memory", 1, STEPS);
    check_same_checkpoint(lab, "calm", "memory", STEPS);
    CHECK_OK(file_list(lab_path(lab, "shm"), &lab->arena, &names, &n));
    CHECK_INT(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_killed_run_goes_on_to_the_same_bits),
        LAB_TEST(a_killed_run_goes_on_from_memory_to_the_same_bits),
        LAB_TEST(a_run_that_stands_still_is_ended_and_goes_on),
        LAB_TEST(a_launcher_that_misses_the_end_of_a_rank_is_ended),
        LAB_TEST(the_same_failure_twice_ends_with_its_sentence),
        LAB_TEST(what_cannot_be_supervised_is_refused),
        LAB_TEST(a_program_of_another_name_supervises_itself),
        LAB_TEST(what_the_run_refuses_is_not_tried_again),
        LAB_TEST(commands_of_a_file_run_where_supervise_allows_them),
        LAB_TEST(a_signal_to_stop_saves_and_ends_with_0),
        LAB_TEST(a_run_that_stops_early_is_started_again),
        LAB_TEST(a_launcher_that_does_nothing_is_no_run_that_is_done),
        LAB_TEST(a_start_waits_for_the_run_that_has_the_folder),
        LAB_TEST(a_second_supervise_is_refused_and_a_killed_one_leaves_no_run_behind),
    };
    return LAB_RUN_ALL(tests);
}
