/*
 * launch: torchrun and Kubernetes' PyTorchJob set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. srun sets
 * its own variables for each task; from them every rank derives the same address and port.
 *
 * SLURM_PROCID and SLURM_NTASKS alone do not count, because a batch script has them, too. Only tasks of
 * srun have SLURM_STEP_ID.
 *
 * torchrun itself listens on MASTER_PORT: its agent keeps a store there, and says so by
 * TORCHELASTIC_USE_AGENT_STORE. Then ranks meet on the next port.
 */
#include "engine/comm/launch.h"

#include "engine/base/log.h"
#include "engine/base/rng.h"
#include "engine/base/text.h"
#include "engine/comm/comm_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ports of srun's ranks: below those that Linux gives to connections by itself (32768). */
enum { SLURM_PORT = 20000, SLURM_PORTS = 12000, PORT_MAX = 65535 };

/* NULL: not set, or empty. */
static const char *env_text(const char *name)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in the program changes the environment */
    const char *text = getenv(name);
    return text == NULL || *text == '\0' ? NULL : text;
}

/* An environment variable as a number >= 0; 0 if it is not a number, -1 if it is not set. */
static int env_count(const char *name)
{
    const char *text = env_text(name);
    long n = text == NULL ? -1 : strtol(text, NULL, 10);
    return n < INT32_MAX ? (int)n : 0;
}

/* A number from least to most; unset: *out stays. */
static Status env_number(const char *name, int least, int most, int *out)
{
    const char *text = env_text(name);
    char *end = NULL;
    if (text == NULL) return OK;
    long n = strtol(text, &end, 10);
    if (*end != '\0' || n < least || n > most)
        return FAIL(ERR_ARG, "%s is \"%.40s\": it must be a number from %d to %d", name, text,
                    least, most);
    *out = (int)n;
    return OK;
}

/* In the order of the sentence about missing ones. The first three say that there are ranks. */
static const char *const torch_names[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR",
                                           "MASTER_PORT" };
enum { TORCH_LOCAL = 2, TORCH_RANKS = 3, TORCH_NAMES = 5 };

static Status check_all_set(bool one_a_host)
{
    char list[2][128] = { "", "" }; /* those that are missing, those that are set */
    size_t n[2] = { 0 };
    for (int i = 0; i < TORCH_NAMES; i++) {
        const int set = env_text(torch_names[i]) != NULL;
        if (!set && one_a_host && i == TORCH_LOCAL) continue;
        n[set] = text_add(list[set], sizeof list[set], n[set], "%s%s", n[set] > 0 ? ", " : "",
                          torch_names[i]);
    }
    if (n[0] == 0) return OK;
    return FAIL(ERR_ARG,
                "the environment has %s, but not %s: ranks that are processes need all of them; a "
                "process without other ranks needs none of them",
                list[1], list[0]);
}

/* PyTorchJob sets neither LOCAL_RANK nor LOCAL_WORLD_SIZE: it starts one process a pod. With nprocPerNode above 1
 * torchrun is to start in each: WORLD_SIZE counts processes and RANK counts pods. "auto" is 1. */
static Status read_place(CommLaunch *out)
{
    const int each = env_count("PET_NPROC_PER_NODE");
    const bool told = out->local_rank >= 0 || out->local_ranks >= 0;
    if (!told && each > 1)
        return FAIL(
            ERR_ARG,
            "PET_NPROC_PER_NODE is %d without LOCAL_RANK, so RANK counts pods: start torchrun "
            "--no-python switchyard ... in each, or set nprocPerNode to 1",
            each);
    if (!told) out->local_rank = 0, out->local_ranks = 1;
    return check_all_set(!told);
}

static Status read_meeting_place(CommLaunch *out)
{
    const char *address = env_text("MASTER_ADDR");
    if (address != NULL && strlen(address) >= sizeof out->address)
        return FAIL(ERR_ARG, "MASTER_ADDR has %zu characters, it may have %zu", strlen(address),
                    sizeof out->address - 1);
    if (address != NULL) (void)snprintf(out->address, sizeof out->address, "%s", address);
    return env_number("MASTER_PORT", 1, PORT_MAX, &out->port);
}

static Status read_torch(CommLaunch *out)
{
    const char *store = env_text("TORCHELASTIC_USE_AGENT_STORE");
    out->by = LAUNCHED_TORCH;
    TRY(env_number("WORLD_SIZE", 1, LAUNCH_RANKS_MAX, &out->ranks));
    TRY(env_number("RANK", 0, out->ranks - 1, &out->rank));
    TRY(env_number("LOCAL_WORLD_SIZE", 1, out->ranks, &out->local_ranks));
    TRY(env_number("LOCAL_RANK", 0, out->ranks - 1, &out->local_rank));
    bool alone = env_text("WORLD_SIZE") != NULL && out->ranks == 1;
    if (!alone) TRY(read_place(out));
    TRY(read_meeting_place(out));
    if (store != NULL && strcmp(store, "True") == 0 && out->port < PORT_MAX) out->port++;
    return OK;
}

/* The first host of a list as Slurm shortens it: "node[03-05,9]-ib,x" gives "node03-ib". */
static void first_host(const char *list, char *out, size_t room)
{
    size_t n = 0;
    bool inside = false;
    for (const char *c = list; c != NULL && *c != '\0' && (inside || *c != ',') && n + 1 < room;
         c++) {
        if (inside && (*c == ',' || *c == '-')) c = strchr(c, ']');
        if (c == NULL) break;
        if (*c == '[' || *c == ']')
            inside = *c == '[';
        else
            out[n++] = *c;
    }
    out[n] = '\0';
}

/* The tasks of a step are the ranks, on the hosts of that step in their order. */
static Status read_slurm(CommLaunch *out)
{
    const char *hosts = env_text("SLURM_STEP_NODELIST"),
               *near = env_text("SLURM_LAUNCH_NODE_IPADDR");
    int job = env_count("SLURM_JOB_ID"), step = env_count("SLURM_STEP_ID");
    out->by = LAUNCHED_SLURM;
    TRY(env_number("SLURM_NTASKS", 1, LAUNCH_RANKS_MAX, &out->ranks));
    TRY(env_number("SLURM_STEP_NUM_TASKS", 1, LAUNCH_RANKS_MAX, &out->ranks));
    TRY(env_number("SLURM_PROCID", 0, out->ranks - 1, &out->rank));
    TRY(env_number("SLURM_LOCALID", 0, out->ranks - 1, &out->local_rank));
    out->local_ranks = env_count("SLURM_STEP_TASKS_PER_NODE");
    if (hosts != NULL)
        first_host(hosts, out->address, sizeof out->address);
    else
        (void)snprintf(out->address, sizeof out->address, "%s", near == NULL ? "" : near);
    out->port = SLURM_PORT + (int)(((int64_t)job * 31 + step) % SLURM_PORTS);
    TRY(read_meeting_place(out));
    if (out->ranks > 1 && out->address[0] == '\0')
        return FAIL(ERR_ARG,
                    "srun started %d ranks and set neither SLURM_STEP_NODELIST nor "
                    "SLURM_LAUNCH_NODE_IPADDR: set MASTER_ADDR to the host of rank 0",
                    out->ranks);
    return OK;
}

/* A program that still runs from the start before must not take a seat in this one. */
static uint64_t job_number(void)
{
    static const char *const names[] = { "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                         "SLURM_JOB_ID", "SLURM_STEP_ID" };
    const uint64_t PRIME = 0x9E3779B97F4A7C15;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = env_text(names[i]);
        if (text != NULL) sum = (sum + i + 1) * PRIME + rng_stream(text);
    }
    return sum;
}

static Status read_token(CommLaunch *out)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in the program changes the environment */
    const char *token = getenv("SWITCHYARD_TOKEN");
    size_t n = token == NULL ? 0 : strlen(token);
    if (token != NULL && (n == 0 || n > sizeof out->token))
        return FAIL(ERR_ARG,
                    "SWITCHYARD_TOKEN has %zu characters: it must have 1 to %zu, or be unset", n,
                    sizeof out->token);
    memcpy(out->token, n > 0 ? token : "", n);
    return OK;
}

/* Open MPI's mpirun has variables of its own. srun --mpi=pmix sets PMIX_RANK. A build without MPI lets
 * such ranks meet over TCP. */
static bool read_mpi(CommLaunch *out, bool step)
{
    out->by = LAUNCHED_MPI;
    out->ranks = env_count("OMPI_COMM_WORLD_SIZE");
    out->rank = env_count("OMPI_COMM_WORLD_RANK");
    out->local_rank = env_count("OMPI_COMM_WORLD_LOCAL_RANK");
    out->local_ranks = env_count("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (out->ranks > 0) return true;
    out->ranks = env_count("SLURM_NTASKS");
    out->rank = env_count("PMIX_RANK");
    out->local_rank = env_count("SLURM_LOCALID");
    /* a list over hosts, as in "4(x2),3": strtol reads its first number, the largest */
    out->local_ranks = env_count("SLURM_STEP_TASKS_PER_NODE");
    return out->rank >= 0 && out->ranks > 0 && (comm_mpi_built() || !step);
}

static const CommLaunch no_launcher = { .ranks = 1, .local_rank = -1, .local_ranks = -1 };

Status comm_launch_read(CommLaunch *out)
{
    bool torch = false, step = env_count("SLURM_STEP_ID") >= 0 && env_count("SLURM_PROCID") >= 0;
    for (int i = 0; i < TORCH_RANKS; i++) torch |= env_text(torch_names[i]) != NULL;
    *out = no_launcher;
    if (env_text("TORCHELASTIC_RUN_ID") == NULL && read_mpi(out, step)) return OK;
    *out = no_launcher;
    TRY(read_token(out));
    out->job = job_number();
    if (torch) return read_torch(out);
    return step ? read_slurm(out) : OK;
}

/* What cannot be read counts as one process; comm_launch_check says why. */
static CommLaunch launch_here(void)
{
    CommLaunch l;
    status_mute(true); /* the caller may be about to print another failure */
    Status s = comm_launch_read(&l);
    status_mute(false);
    return s == OK ? l : no_launcher;
}

/* A batch script may set MASTER_ADDR for the ranks that it starts later. */
Status comm_launch_check(void)
{
    CommLaunch l;
    TRY(comm_launch_read(&l));
    if (l.by == LAUNCHED_ALONE &&
        (env_text("MASTER_ADDR") != NULL || env_text("MASTER_PORT") != NULL))
        log_warn(
            "MASTER_ADDR or MASTER_PORT is set, RANK and WORLD_SIZE are not: this process meets no "
            "other ones");
    return OK;
}

int comm_launched(void) { return launch_here().ranks; }

/* Known before ranks meet, so that the log can name the rank from its first line on. */
int comm_launched_rank(void)
{
    const CommLaunch l = launch_here();
    return l.ranks > 1 && l.rank > 0 ? l.rank : 0;
}

const char *comm_launched_how(void)
{
    static const char *const how[] = { "", ", over MPI", ", over TCP (torchrun's variables)",
                                       ", over TCP (srun's variables)" };
    const CommLaunch l = launch_here();
    return how[l.ranks > 1 ? l.by : LAUNCHED_ALONE];
}

bool comm_launched_by_mpi(void) { return launch_here().by == LAUNCHED_MPI; }

/* Ranks that are threads are all on one host. */
int comm_local_rank(const Comm *world)
{
    const CommLaunch l = launch_here();
    return l.ranks == 1 ? world->rank : l.local_rank > 0 ? l.local_rank : 0;
}

int comm_local_ranks(const Comm *world)
{
    const CommLaunch l = launch_here();
    return l.ranks == 1 || l.local_ranks < 1 || l.local_ranks > world->size ? world->size
                                                                            : l.local_ranks;
}
