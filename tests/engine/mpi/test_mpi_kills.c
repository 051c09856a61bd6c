/* SIGKILL at random moments: of one rank, of threads, of ranks of mpirun, of all processes of a host; a tenth of them
 * inside the write of a checkpoint. Runs are supervised, and end with the bits of a run that nobody disturbed.
 *
 * `test_mpi_kills [KILLS [SEED [gpu]]]` (make kills N=1000). A run takes up to ROUND kills. Its line has what repeats it.
 * With gpu: on two GPUs, where ranks are stopped (SIGSTOP), too. */
#include "harness/supervised.h"

#include "engine/base/clock.h"

enum { STEPS = 40, EVERY = 4, ROUND = 8, WRITING_EACH = 10, SLICE = 20, THOUSAND = 1000 };

typedef enum Target { KILL_PROCESS, KILL_RANK, KILL_HOST, STOP_PROCESS, STOP_RANK } Target;

#define SETTINGS                                                                                   \
    "../tiny.yaml", "train.steps=40", "train.batch=8", "train.micro_batch=1",                      \
        "checkpoint.every=4", "comm.timeout_s=20", "moe.buffers=worst"
#define TWO_HOSTS ON_HOSTS("ha:2,hb:2")
#define SPARES    "--spare", "hc,hd,he,hf,hg,hh,hi,hj"

/* A way to run, and how many of 1000 kills it gets, rounded down; the first one gets the rest. */
typedef struct Case {
    const char *name;
    Target target;
    int share, ranks;
    bool async;
    const char *mesh[6];      /* settings */
    const char *options[4];   /* of supervise */
    const char *launcher[24]; /* behind -- */
} Case;

static const Case cases[] = {
    { "one rank",
      KILL_PROCESS,
      280,
      1,
      false,
      { "model.hidden=96" },
      { NULL },
      { "--ranks", "1" } },
    { "one rank, async",
      KILL_PROCESS,
      250,
      1,
      true,
      { "model.hidden=96" },
      { NULL },
      { "--ranks", "1" } },
    { "2 threads, async",
      KILL_PROCESS,
      200,
      2,
      true,
      { "mesh.ep=2", "mesh.zero=2", "model.hidden=96" },
      { NULL },
      { "--ranks", "2" } },
    { "mpirun of 4",
      KILL_RANK,
      80,
      4,
      false,
      { "mesh.pp=2", "mesh.ep=2", "mesh.zero=2" },
      { NULL },
      { "mpirun", "--oversubscribe", "-n", "4" } },
    { "mpirun of 4, async",
      KILL_RANK,
      60,
      4,
      true,
      { "mesh.ep=2", "mesh.zero=3" },
      { NULL },
      { "mpirun", "--oversubscribe", "-n", "4" } },
    { "mpirun of 8, async",
      KILL_RANK,
      40,
      8,
      true,
      { "mesh.pp=2", "mesh.ep=4", "mesh.zero=1" },
      { NULL },
      { "mpirun", "--oversubscribe", "-n", "8" } },
    { "a host of 2",
      KILL_HOST,
      90,
      4,
      true,
      { "mesh.ep=2", "mesh.zero=2" },
      { SPARES },
      { TWO_HOSTS } },
};

/* 25 of them: 20 SIGKILL, 5 SIGSTOP. */
#define ON_TWO_GPUS "mesh.ep=2", "mesh.zero=2", "run.device=gpu", "run.compute=bf16"
#define HANGS       "--hang-after", "20"
static const Case gpu_cases[] = {
    { "2 GPUs as threads, async",
      KILL_PROCESS,
      400,
      2,
      true,
      { ON_TWO_GPUS },
      { NULL },
      { "--ranks", "2" } },
    { "mpirun of 2 GPUs",
      KILL_RANK,
      200,
      2,
      false,
      { ON_TWO_GPUS },
      { NULL },
      { "mpirun", "--oversubscribe", "-n", "2" } },
    { "mpirun of 2 GPUs, async",
      KILL_RANK,
      200,
      2,
      true,
      { ON_TWO_GPUS },
      { NULL },
      { "mpirun", "--oversubscribe", "-n", "2" } },
    { "a process of 2 GPUs stands still",
      STOP_PROCESS,
      80,
      2,
      true,
      { ON_TWO_GPUS },
      { HANGS },
      { "--ranks", "2" } },
    { "a rank of mpirun stands still",
      STOP_RANK,
      120,
      2,
      false,
      { ON_TWO_GPUS },
      { HANGS },
      { "mpirun", "--oversubscribe", "-n", "2" } },
};

static const Case *of_machine = cases;
static int n_cases = sizeof cases / sizeof *cases;

static int wanted = SLICE;
static uint64_t seed;
static int passed, skipped, runs;
static double useful_s, all_s;

static double draw(const char *what, int kill)
{
    return rng_uniform(seed, rng_stream(what), (uint64_t)runs * 1000 + (uint64_t)kill);
}

static int add_words(const char **args, int n, const char *const *words, int most)
{
    for (int i = 0; i < most && words[i] != NULL; i++) args[n++] = words[i];
    return n;
}

/* The arguments of a case: supervised, or the run that nobody disturbs, as threads. */
static const char *const *args_of(const Case *c, bool supervised)
{
    static const char *args[64];
    static char ranks[16];
    int n = 0;
    snprintf(ranks, sizeof ranks, "%d", c->ranks);
    args[n++] = supervised ? "supervise" : "train";
    n = add_words(args, n, ARGS(SETTINGS), 16);
    n = add_words(args, n, c->mesh, 6);
    args[n++] = c->async ? "checkpoint.async=true" : "checkpoint.async=false";
    if (supervised) {
        n = add_words(args, n, c->options, 4);
        args[n++] = "--";
        n = add_words(args, n, c->launcher, 24);
    } else if (c->ranks > 1) {
        n = add_words(args, n, ARGS("--ranks", ranks), 2);
    }
    args[n] = NULL;
    return args;
}

/* ---- a kill ---- */

/* Waits for the k-th start, every other time for a newer checkpoint too, or pauses would double. Then for a random
 * moment, or for a random moment of a checkpoint's write. */
static void wait_for_moment(Lab *lab, Child *c, int k, double took_s)
{
    while (text_count(run_journal(lab, "cut"), "\"kind\":\"start\"") <= k && child_runs(c))
        child_sleep();
    if ((runs + k) % WRITING_EACH == 0) {
        while (run_count_checkpoints(lab, "cut", false) == 0 && child_runs(c)) child_sleep();
        usleep((useconds_t)(3e3 * draw("writing", k)));
        return;
    }
    const int before = run_count_steps(lab, "cut");
    while (k % 2 == 0 && run_count_steps(lab, "cut") < before + 2 * EVERY && child_runs(c))
        child_sleep();
    const double until_s = clock_s() + 0.3 * took_s * draw("moments", k);
    while (clock_s() < until_s && child_runs(c)) child_sleep();
}

static void hit(Lab *lab, const Case *c, Child *child, int k)
{
    char mine[FILE_PATH_MAX + 32], which[FILE_PATH_MAX + 32];
    snprintf(mine, sizeof mine, "LAB=%s", lab->folder);
    const int sent = c->target >= STOP_PROCESS ? SIGSTOP : SIGKILL;
    const bool rank = c->target == KILL_RANK || c->target == STOP_RANK;
    if (c->target == KILL_PROCESS || c->target == STOP_PROCESS) {
        const pid_t pid = supervised_pid(child);
        if (pid > 0) kill(pid, sent);
        return;
    }
    if (rank)
        snprintf(which, sizeof which, "OMPI_COMM_WORLD_RANK=%d",
                 (int)(c->ranks * draw("ranks", k)));
    else
        snprintf(which, sizeof which, "LAB_HOST=%s:%s", draw("hosts", k) < 0.5 ? "ha" : "hb",
                 lab->folder);
    while (signal_processes(mine, which, sent) == 0 && child_runs(child) && rank) child_sleep();
}

/* ---- a run ---- */

static double figure(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at == NULL ? -1 : strtod(at + strlen(name), NULL);
}

/* A checkpoint that is written beside training counts when the next one begins, at the latest. */
static void check_lost(const Case *c, const char *journal)
{
    const int most = c->async ? 2 * EVERY : EVERY;
    for (const char *at = journal; (at = strstr(at, "\"lost\":")) != NULL; at++)
        if (figure(at, "\"lost\":") > most)
            fail_msg("more than %d steps are lost: %s", most, journal);
}

/* How many kills ended a process. */
static int one_run(Lab *lab, const Case *c, int most, double took_s)
{
    CHECK_OK(file_remove_tree(lab_path(lab, "cut")));
    Child child = lab_start(lab, &(Launch){ .cell = "cut", .args = args_of(c, true) });
    for (int k = 0; k < most && child_runs(&child); k++) {
        wait_for_moment(lab, &child, k, took_s);
        if (child_runs(&child)) hit(lab, c, &child, k);
        const double until_s = clock_s() + 60; /* until this start has ended */
        while (text_count(run_journal(lab, "cut"), "\"kind\":\"end\"") <= k && child_runs(&child) &&
               clock_s() < until_s)
            child_sleep();
        lab_forget((void **)&lab);
    }
    Outcome o = lab_wait(lab, &child);
    const char *journal = run_journal(lab, "cut");
    if (o.code != 0) fail_msg("exit code %d: %s\n%s", o.code, o.err, journal);
    check_lost(c, journal);
    check_same_steps(lab, "whole", "cut", 1, STEPS);
    check_same_checkpoint(lab, "whole", "cut", STEPS);
    CHECK_INT(run_count_checkpoints(lab, "cut", false), 0);
    const double all = strtod(strstr(o.out, " in ") + 4, NULL);
    all_s += all;
    useful_s += figure(o.out, "goodput               ") * all;
    return text_count(journal, "\"then\":\"restart\"");
}

static int share_of(const Case *c)
{
    int others = 0;
    for (int i = 1; i < n_cases; i++) others += wanted * of_machine[i].share / THOUSAND;
    return c == of_machine ? wanted - others : wanted * c->share / THOUSAND;
}

static void run_case(Lab *lab, const Case *c)
{
    const int share = share_of(c);
    const double begin_s = clock_s();
    int done = 0;
    if (share == 0) return;
    if (c->target == KILL_HOST && !make_hosts(lab)) {
        printf("skip: %s: namespaces cannot be made here\n", c->name);
        skipped += share;
        return;
    }
    CHECK_OK(file_remove_tree(lab_path(lab, "whole")));
    const double start_s = clock_s();
    Outcome o = lab_run(lab, &(Launch){ .cell = "whole", .args = args_of(c, false) });
    CHECK_EXIT(o, 0);
    const double took_s = clock_s() - start_s;
    while (done < share) {
        const int most = share - done < ROUND ? share - done : ROUND;
        printf("%s: run %d, seed %llu, up to %d kills\n", c->name, runs, (unsigned long long)seed,
               most);
        fflush(stdout);
        const int kills = one_run(lab, c, most, took_s);
        printf("%s: run %d: %d kills\n", c->name, runs, kills);
        done += kills;
        passed += kills;
        runs++;
        lab_forget((void **)&lab);
    }
    printf("%s: %d kills in %.0f s\n", c->name, done, clock_s() - begin_s);
}

static void killed_at_random_moments_runs_end_with_the_same_bits(void **state)
{
    Lab *lab = *state;
    CHECK(setenv("LAB", lab->folder, 1) == 0);
    for (int i = 0; i < n_cases; i++) run_case(lab, &of_machine[i]);
}

int main(int argc, char **argv)
{
    wanted = argc > 1 ? atoi(argv[1]) : SLICE;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    if (argc > 3 && strcmp(argv[3], "gpu") == 0) {
        of_machine = gpu_cases;
        n_cases = sizeof gpu_cases / sizeof *gpu_cases;
    }
    const struct CMUnitTest tests[] = {
        LAB_TEST(killed_at_random_moments_runs_end_with_the_same_bits),
    };
    const int failed = LAB_RUN_ALL(tests);
    printf("%d runs, seed %llu, goodput %.3f: %.0f s of steps in %.0f s\n", runs,
           (unsigned long long)seed, all_s > 0 ? useful_s / all_s : 0, useful_s, all_s);
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return failed;
}
