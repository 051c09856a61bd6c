/* What variables of launchers say about ranks. */
#include "engine/comm/comm.h"
#include "engine/comm/launch.h"
#include "harness/test.h"

static const char *const names[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "PET_NPROC_PER_NODE",
    "SWITCHYARD_TOKEN",
    "PMIX_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_LOCALID",
    "SLURM_STEP_ID",
    "SLURM_JOB_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_LAUNCH_NODE_IPADDR",
};

/* The environment has these words, NAME=VALUE, and no other of a launcher. */
static Status read_with(const char *words, CommLaunch *out)
{
    char text[512], *at = text;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&at, " ")) != NULL;) {
        char *value = strchr(word, '=');
        if (value == NULL) continue;
        *value = '\0';
        setenv(word, value + 1, 1);
    }
    return comm_launch_read(out);
}

#define TORCH4 "RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=29500 "
#define POD    "RANK=2 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500 " /* as PyTorchJob sets them */
#define STEP   "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_LOCALID=1 SLURM_STEP_ID=2 SLURM_JOB_ID=10 "

static void launchers_are_asked_in_one_order(void **state)
{
    static const struct {
        const char *words;
        LaunchBy by;
        int ranks, rank, local_rank, local_ranks;
    } cases[] = {
        { "", LAUNCHED_ALONE, 1, 0, -1, -1 },
        { TORCH4, LAUNCHED_TORCH, 4, 2, 0, -1 },
        { TORCH4 "LOCAL_WORLD_SIZE=2", LAUNCHED_TORCH, 4, 2, 0, 2 },
        { "RANK=0 WORLD_SIZE=1", LAUNCHED_TORCH, 1, 0, -1, -1 },
        { POD, LAUNCHED_TORCH, 4, 2, 0, 1 },
        { POD "PET_NPROC_PER_NODE=auto", LAUNCHED_TORCH, 4, 2, 0, 1 },
        { POD "PET_NPROC_PER_NODE=1", LAUNCHED_TORCH, 4, 2, 0, 1 },
        { POD "PET_NPROC_PER_NODE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", LAUNCHED_TORCH, 4, 2, 1, 4 },
        { "MASTER_ADDR=a MASTER_PORT=29500", LAUNCHED_ALONE, 1, 0, -1, -1 },
        { TORCH4 "OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_LOCAL_RANK=1 "
                 "OMPI_COMM_WORLD_LOCAL_SIZE=4",
          LAUNCHED_MPI, 8, 5, 1, 4 },
        { TORCH4 "TORCHELASTIC_RUN_ID=x OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_RANK=5",
          LAUNCHED_TORCH, 4, 2, 0, -1 },
        { TORCH4 STEP, LAUNCHED_TORCH, 4, 2, 0, -1 },
        { STEP "SLURM_STEP_NODELIST=n[3-4] SLURM_STEP_TASKS_PER_NODE=2(x2)", LAUNCHED_SLURM, 4, 3,
          1, 2 },
        /* a batch script, and a step of one task in a job of many */
        { "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=10", LAUNCHED_ALONE, 1, 0, -1, -1 },
        { "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_ID=0 SLURM_LOCALID=0",
          LAUNCHED_SLURM, 1, 0, 0, -1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CommLaunch l;
        CHECK_OK(read_with(cases[i].words, &l));
        bool same = l.by == cases[i].by && l.ranks == cases[i].ranks && l.rank == cases[i].rank &&
                    l.local_rank == cases[i].local_rank && l.local_ranks == cases[i].local_ranks;
        if (!same)
            fail_msg("%s: by %d, rank %d of %d, %d of %d", cases[i].words, l.by, l.rank, l.ranks,
                     l.local_rank, l.local_ranks);
        CHECK_INT(comm_launched(), l.ranks);
        CHECK_INT(comm_launched_rank(), l.rank);
    }
}

/* A build without MPI lets tasks of srun meet over TCP, whatever PMIx says. */
static void pmix_is_for_builds_with_mpi(void **state)
{
    CommLaunch l;
    (void)state;
    CHECK_OK(read_with(STEP "PMIX_RANK=3 SLURM_STEP_NODELIST=n1", &l));
    CHECK_INT(l.by, comm_mpi_built() ? LAUNCHED_MPI : LAUNCHED_SLURM);
    CHECK_INT(l.rank, 3);
}

static void where_ranks_meet(void **state)
{
    static const struct {
        const char *words, *address;
        int port;
    } cases[] = {
        { TORCH4, "a", 29500 },
        { TORCH4 "TORCHELASTIC_USE_AGENT_STORE=False", "a", 29500 },
        { TORCH4 "TORCHELASTIC_USE_AGENT_STORE=True", "a",
          29501 }, /* torchrun's own store has the port */
        { STEP "SLURM_STEP_NODELIST=node[03-05,9]-ib,x", "node03-ib", 20000 + 10 * 31 + 2 },
        { STEP "SLURM_STEP_NODELIST=node[7]", "node7", 20312 },
        { STEP "SLURM_STEP_NODELIST=gpu-a,gpu-b", "gpu-a", 20312 },
        { STEP "SLURM_STEP_NODELIST=r[1-2]n[3-4]", "r1n3", 20312 },
        { STEP "SLURM_LAUNCH_NODE_IPADDR=10.0.0.7", "10.0.0.7", 20312 },
        { STEP "SLURM_STEP_NODELIST=n1 MASTER_ADDR=b MASTER_PORT=1", "b", 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CommLaunch l;
        CHECK_OK(read_with(cases[i].words, &l));
        CHECK_TEXT(l.address, cases[i].address);
        CHECK_INT(l.port, cases[i].port);
    }
}

static void what_makes_no_sense_is_one_sentence(void **state)
{
    static const struct {
        const char *words, *part;
    } cases[] = {
        { "RANK=0", "the environment has RANK, but not WORLD_SIZE, MASTER_ADDR, MASTER_PORT: " },
        { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a", "but not MASTER_PORT: " },
        { "WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=1", "but not RANK: " },
        { POD "LOCAL_WORLD_SIZE=2", "but not LOCAL_RANK: " },
        { POD "PET_NPROC_PER_NODE=2", "PET_NPROC_PER_NODE is 2 without LOCAL_RANK" },
        { "LOCAL_RANK=0 MASTER_ADDR=a", "but not RANK, WORLD_SIZE, MASTER_PORT" },
        { "RANK=4 WORLD_SIZE=4", "RANK is \"4\": it must be a number from 0 to 3" },
        { "RANK=x WORLD_SIZE=4", "RANK is \"x\"" },
        { "RANK=1x WORLD_SIZE=4", "RANK is \"1x\"" },
        { "RANK=0 WORLD_SIZE=0", "WORLD_SIZE is \"0\": it must be a number from 1 to 65536" },
        { "RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE is \"99999" },
        { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=http",
          "MASTER_PORT is \"http\"" },
        { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=a MASTER_PORT=65536",
          "MASTER_PORT is \"65536\"" },
        { "RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 MASTER_ADDR=a MASTER_PORT=1", "LOCAL_RANK is \"2\"" },
        { STEP, "set MASTER_ADDR to the host of rank 0" },
        { "SWITCHYARD_TOKEN=", "SWITCHYARD_TOKEN has 0 characters" },
        { "SWITCHYARD_TOKEN=01234567890123456789012345678901234567890123456789012345678901234",
          "SWITCHYARD_TOKEN has 65 characters: it must have 1 to 64" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CommLaunch l;
        CHECK_FAILS(read_with(cases[i].words, &l), ERR_ARG, cases[i].part);
        CHECK_FAILS(comm_launch_check(), ERR_ARG, cases[i].part);
        CHECK_INT(comm_launched(), 1);
        if (strstr(status_message(), cases[i].part) == NULL) fail_msg("asking lost the failure");
    }
}

/* A start again is another start; all ranks of one have the same number. */
static void each_start_has_a_number_of_its_own(void **state)
{
    CommLaunch a, b, c;
    (void)state;
    CHECK_OK(read_with(TORCH4 "TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=0", &a));
    CHECK_OK(read_with(TORCH4 "TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=1", &b));
    CHECK_OK(read_with(
        "RANK=0 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=b MASTER_PORT=1 TORCHELASTIC_RUN_ID=x "
        "TORCHELASTIC_RESTART_COUNT=1",
        &c));
    CHECK(a.job != b.job && b.job == c.job);
    CHECK_OK(read_with(STEP "SLURM_STEP_NODELIST=n", &a));
    CHECK_OK(read_with(
        "SLURM_STEP_NODELIST=n SLURM_NTASKS=4 SLURM_PROCID=0 SLURM_STEP_ID=3 SLURM_JOB_ID=10", &b));
    CHECK(a.job != b.job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(launchers_are_asked_in_one_order),
        TEST(pmix_is_for_builds_with_mpi),
        TEST(where_ranks_meet),
        TEST(what_makes_no_sense_is_one_sentence),
        TEST(each_start_has_a_number_of_its_own),
    };
    return TEST_RUN(tests);
}
