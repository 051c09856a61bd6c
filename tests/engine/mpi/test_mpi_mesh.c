/* The meshes of tests/engine/mesh over processes: what one rank has, and to the bit what threads have.
 * tools/run_mpi starts it on 2, 4 and 8 ranks, each for the meshes of so many. */
#include "harness/mesh_cases.h"

#include <string.h>

enum { STEPS = 4 };

/* Of this rank; over threads, of the rank that MPI's rank 0 stands for. */
typedef struct Losses {
    const ManyCase *what;
    double of_step[STEPS], norm[STEPS];
} Losses;

static Status steps(ManyRank *r, bool tells, Losses *out)
{
    for (int i = 0; i < STEPS; i++) {
        StepResult got;
        TRY(many_step(r, i, &got));
        if (tells) out->of_step[i] = got.loss, out->norm[i] = got.grad_norm;
    }
    return OK;
}

static Status train(void *losses, Comm *world)
{
    Losses *l = losses;
    ManyRank r = { 0 };
    Status s = many_open(&r, l->what, world);
    if (s == OK) s = steps(&r, world->rank == 0, l);
    many_close(&r);
    return s;
}

/* Rank 0 does it again over threads, the others wait. */
static Status same_as_threads(const ManyCase *what, Comm *world)
{
    Losses processes = { .what = what }, threads = { .what = what };
    int failed = -1;
    TRY(train(&processes, world));
    if (world->rank > 0) return OK;
    TRY(comm_threads(what->ranks, 60, train, &threads, &failed));
    if (memcmp(&processes, &threads, sizeof threads) == 0) return OK;
    return FAIL(ERR_NUMERIC, "over processes the first loss is %.17g, over threads %.17g",
                processes.of_step[0], threads.of_step[0]);
}

static Status run(Comm *world)
{
    int done = 0;
    for (int i = 0; i < MESH_CASES; i++) {
        const ManyCase *what = &mesh_cases[i];
        /* Processes do not reach each other's memory, and say so (test_mpi_input). */
        if (what->ranks != world->size || case_sets(what, DIRECT)) continue;
        done++;
        Many m = { .what = what, .steps = case_steps(what, STEPS), .limit = 1e-5 };
        Status s = many_run(&m, world);
        if (s == OK) s = same_as_threads(what, world);
        if (s != OK)
            fprintf(stderr, "rank %d, %s: %s\n", world->rank, what->name, status_message());
        TRY(s);
        if (world->rank == 0) printf("ok: %s\n", what->name);
    }
    return done > 0 ? OK : FAIL(ERR_ARG, "there is no mesh of %d ranks", world->size);
}

int main(void)
{
    char why[512];
    Arena a = { 0 };
    Comm *world = NULL;
    Status s = arena_init(&a, "mpi", MEM_HOST, (size_t)64 << 20);
    if (s == OK) s = comm_mpi(&a, 120, &world);
    if (s == OK) s = run(world);
    if (s != OK) {
        status_sentence(why, sizeof why);
        if (world != NULL) comm_abort(world, why);
    }
    comm_free(world);
    return status_exit_code(s);
}
