/* Training as processes that meet over TCP, with no launcher on this machine: the bits of threads; what cannot start. */
#include "harness/doctor_table.h"
#include "harness/tcp_job.h"

#define SETTINGS                                                                                   \
    "train", "../tiny.yaml", "train.micro_batch=1", "moe.buffers=worst", "mesh.ep=2",              \
        "mesh.zero=2", "run.threads=1", "optimizer.decay_steps=100", "comm.timeout_s=60"
enum { STEPS = 4 };

/* No program is found by its name: neither mpirun nor a shell. */
static void hide_programs(void) { CHECK(setenv("PATH", "/nowhere", 1) == 0); }

static void processes_have_the_bits_of_threads(void **state)
{
    Lab *lab = *state;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
        char text[16], threads[32], tcp[32];
        TcpJob job = { .ranks = ranks };
        snprintf(text, sizeof text, "%d", ranks);
        snprintf(threads, sizeof threads, "threads-%d", ranks);
        snprintf(tcp, sizeof tcp, "tcp-%d", ranks);
        const char *pp = ranks == 8 ? "mesh.pp=2" : "mesh.pp=1";
        Outcome o = RUN(lab, threads, SETTINGS, pp, "train.steps=4", "--ranks", text);
        CHECK_EXIT(o, 0);
        job_start(lab, &job, tcp, ARGS(SETTINGS, pp, "train.steps=4"));
        job_wait(lab, &job);
        job_check(&job, -1, 0, "");
        CHECK_SAYS(job.end[0].err, "waits at ");
        check_same_steps(lab, threads, tcp, 1, STEPS);
        check_same_checkpoint(lab, threads, tcp, STEPS);
    }
}

static void a_rank_with_other_settings_ends_all(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    job_start_rank(lab, &job, 0, &(Launch){ .cell = "other", .args = ARGS(SETTINGS) });
    job_start_rank(lab, &job, 1,
                   &(Launch){ .cell = "other", .args = ARGS(SETTINGS, "optimizer.lr=0.01") });
    job_wait(lab, &job);
    job_check(&job, -1, 2, "rank 1: the configuration is not rank 0's: line");
}

/* One name, other contents, as on hosts without a common file system: each rank works in a folder of its own. */
static void a_rank_with_other_questions_ends_all(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    for (int r = 0; r < 2; r++) {
        char cell[16], line[80];
        (void)snprintf(cell, sizeof cell, "asked-%d", r);
        (void)snprintf(line, sizeof line,
                       "{\"prompt\":\"a\",\"choices\":[\" b\",\" c\"],\"answer\":%d}\n", r);
        CHECK_OK(file_make_folders(lab_path(lab, "%s", cell)));
        lab_write_text(lab, lab_path(lab, "%s/q.jsonl", cell), line);
        job_start_rank(
            lab, &job, r,
            &(Launch){ .cell = cell,
                       .args = ARGS(SETTINGS, "train.eval_every=2", "eval.choices=q.jsonl") });
    }
    job_wait(lab, &job);
    job_check(&job, -1, 2, "rank 1: the data is not rank 0's: line ");
    job_check(&job, -1, 2, " is \"q.jsonl: ");
    for (int r = 0; r < 2; r++) CHECK_INT(run_count_steps(lab, r == 0 ? "asked-0" : "asked-1"), 0);
}

/* A program's copy with so many bytes more. */
static void copy_program(Lab *lab, const char *from, const char *to, int more)
{
    size_t n = 0;
    const char *data = lab_read(lab, from, &n);
    lab_write(lab, to, data, n);
    FILE *f = fopen(to, "a");
    CHECK(f != NULL && chmod(to, 0755) == 0);
    while (more-- > 0) CHECK(fputc('x', f) == 'x');
    CHECK(fclose(f) == 0);
}

/* Rank 1 is another build of switchyard, beside which lies the same doctor. */
static TcpJob run_two_builds(Lab *lab, const Launch *l)
{
    TcpJob job = { .ranks = 2 };
    char own[FILE_PATH_MAX], doctor[FILE_PATH_MAX + 8];
    const char *other = lab_path(lab, "other-build");
    (void)snprintf(doctor, sizeof doctor, "%s-doctor", lab->program);
    copy_program(lab, lab->program, other, 1);
    copy_program(lab, doctor, lab_path(lab, "other-build-doctor"), 0);
    job_start_rank(lab, &job, 0, l);
    memcpy(own, lab->program, sizeof own);
    (void)snprintf(lab->program, sizeof lab->program, "%s", other);
    job_start_rank(lab, &job, 1, l);
    memcpy(lab->program, own, sizeof own);
    job_wait(lab, &job);
    return job;
}

static void a_rank_of_another_build_ends_all(void **state)
{
    TcpJob job = run_two_builds(*state, &(Launch){ .cell = "build", .args = ARGS(SETTINGS) });
    job_check(&job, -1, 2, "rank 1: the program is not rank 0's");
}

/* The program that trains counts, not the doctor that it became. */
static void doctor_names_a_rank_of_another_build(void **state)
{
    TcpJob job = run_two_builds(
        *state, &(Launch){ .cell = "builds", .args = ARGS("doctor", ".", "--shrink", "100") });
    const Outcome *o = &job.end[0];
    CHECK_EXIT(*o, 3);
    doctor_check_named(doctor_row(*state, o, "program and libraries"), "rank 1 (host ");
    CHECK_SAYS(o->out, "bad: it has \"sum ");
}

/* Three processes, two of which are rank 1. */
static void a_rank_twice_ends_all(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 3 };
    const Launch l = { .cell = "twice", .args = ARGS(SETTINGS) };
    job_start_rank(lab, &job, 0, &l);
    TcpJob again = { .ranks = 3, .port = job.port };
    job_start_rank(lab, &job, 1, &l);
    job_start_rank(lab, &again, 1, &l);
    job.rank[2] = again.rank[1];
    job_wait(lab, &job);
    job_check(&job, -1, 2, "rank 1 comes twice, from ");
}

static void an_address_that_does_not_resolve_is_each_ranks_sentence(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2, .address = "no-such-host.invalid" };
    job_start(lab, &job, "name", ARGS(SETTINGS, "comm.timeout_s=1"));
    job_wait(lab, &job);
    job_check(&job, -1, 2, "error: MASTER_ADDR no-such-host.invalid does not resolve: ");
}

/* Rank 0 knows at once. The other rank cannot know whether rank 0 still comes. */
static void a_port_of_another_program_is_each_ranks_sentence(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, n) == 0 && listen(fd, 8) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &n) == 0);
    job.port = ntohs(at.sin_port);
    job.address = "127.0.0.1";
    job_start(lab, &job, "port", ARGS(SETTINGS, "comm.timeout_s=2"));
    job_wait(lab, &job);
    close(fd);
    job_check(&job, 1, 2, "another program has this port, choose another one");
    job_check(&job, 0, 3, "what listens there is no rank 0 of this program");
}

static void threads_under_a_launcher(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    job_start(lab, &job, "both", ARGS(SETTINGS, "--ranks", "2"));
    job_wait(lab, &job);
    job_check(&job, -1, 2, "--ranks 2 starts ranks on one host, and a launcher started 2 already");
}

static void half_of_the_variables_are_refused(void **state)
{
    Lab *lab = *state;
    CHECK(setenv("RANK", "0", 1) == 0 && setenv("WORLD_SIZE", "2", 1) == 0);
    Outcome o = RUN(lab, "half", SETTINGS);
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "the environment has RANK, WORLD_SIZE, but not MASTER_ADDR, MASTER_PORT: ");
    CHECK(unsetenv("RANK") == 0 && unsetenv("WORLD_SIZE") == 0);
    CHECK(!file_exists(lab_path(lab, "half/run")));
}

/* Without LOCAL_RANK each takes the host, and its first GPU, for its own. */
static void two_pods_on_one_host_are_refused(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2, .is_pod = true };
    job_start(lab, &job, "pods", ARGS(SETTINGS));
    job_wait(lab, &job);
    job_check(&job, -1, 2, "ranks 0 and 1 are both on host ");
    job_check(&job, -1, 2, " with LOCAL_RANK 0: give each process of a host its own LOCAL_RANK");
    CHECK_INT(run_count_steps(lab, "pods"), 0);
}

/* They would share a GPU, the same cores and a line of the heartbeat. */
static void a_local_rank_twice_is_refused(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2, .in_one_place = true };
    job_start(lab, &job, "place", ARGS(SETTINGS));
    job_wait(lab, &job);
    job_check(&job, -1, 2, "ranks 0 and 1 are both on host ");
    CHECK_INT(run_count_steps(lab, "place"), 0);
}

/* One of the ranks hears the signal; all end after the same step. */
static void a_signal_to_one_rank_saves_and_ends_all(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    job_start(lab, &job, "signal", ARGS(SETTINGS, "train.steps=2000"));
    while (run_count_steps(lab, "signal") < 3 && child_runs(&job.rank[0])) child_sleep();
    kill(job.rank[1].pid, SIGTERM);
    job_wait(lab, &job);
    job_check(&job, -1, 0, "");
    CHECK_SAYS(job.end[0].err, "stopped by signal 15 after step");
    CHECK(run_count_checkpoints(lab, "signal", true) == 1);
}

/* As Kubernetes stops pods. A rank that is late then makes the others wait, and nobody fails. */
static void a_signal_to_all_ranks_saves_although_one_is_slow(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    job_start(lab, &job, "all", ARGS(SETTINGS, "train.steps=2000"));
    while (run_count_steps(lab, "all") < 3 && child_runs(&job.rank[0])) child_sleep();
    kill(job.rank[1].pid, SIGSTOP);
    for (int r = 0; r < 2; r++) kill(job.rank[r].pid, SIGTERM);
    usleep(1000000);
    kill(job.rank[1].pid, SIGCONT);
    job_wait(lab, &job);
    job_check(&job, -1, 0, "");
    CHECK_INT(run_count_checkpoints(lab, "all", true), 1);
}

static void a_signal_while_ranks_meet_ends_at_once(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    job_start_rank(lab, &job, 1, &(Launch){ .cell = "early", .args = ARGS(SETTINGS) });
    usleep(300000);
    kill(job.rank[1].pid, SIGTERM);
    job.end[1] = lab_wait(lab, &job.rank[1]);
    CHECK(job.end[1].code == 130 || job.end[1].code == 128 + SIGTERM);
}

static void supervise_is_not_for_ranks(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    job_start(lab, &job, "supervise", ARGS("supervise", "../tiny.yaml", "--", "--ranks", "2"));
    job_wait(lab, &job);
    job_check(&job, -1, 2, "supervise: it starts ranks itself");
    job_check(&job, -1, 2, "train --resume=auto");
}

static void doctor_says_how_ranks_met(void **state)
{
    Lab *lab = *state;
    TcpJob job = { .ranks = 2 };
    job_start(lab, &job, "doctor", ARGS("doctor", ".", "--shrink", "100"));
    job_wait(lab, &job);
    CHECK_SAYS(job.end[0].out, "TCP");
}

static int open_all(void **state)
{
    if (lab_open(state) != 0) return 1;
    hide_programs();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(processes_have_the_bits_of_threads),
        LAB_TEST(a_rank_with_other_settings_ends_all),
        LAB_TEST(a_rank_with_other_questions_ends_all),
        LAB_TEST(a_rank_of_another_build_ends_all),
        LAB_TEST(a_rank_twice_ends_all),
        LAB_TEST(an_address_that_does_not_resolve_is_each_ranks_sentence),
        LAB_TEST(a_port_of_another_program_is_each_ranks_sentence),
        LAB_TEST(threads_under_a_launcher),
        LAB_TEST(half_of_the_variables_are_refused),
        LAB_TEST(two_pods_on_one_host_are_refused),
        LAB_TEST(a_local_rank_twice_is_refused),
        LAB_TEST(a_signal_to_one_rank_saves_and_ends_all),
        LAB_TEST(a_signal_to_all_ranks_saves_although_one_is_slow),
        LAB_TEST(a_signal_while_ranks_meet_ends_at_once),
        LAB_TEST(supervise_is_not_for_ranks),
        LAB_TEST(doctor_says_how_ranks_met),
        LAB_TEST(doctor_names_a_rank_of_another_build),
    };
    return cmocka_run_group_tests(tests, open_all, lab_close);
}
