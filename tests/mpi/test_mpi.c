/* The cases of tests/unit/comm over processes. mpirun starts it on 1 to 4 ranks (make test-mpi); it
 * is no cmocka binary, for a test ends well only if all ranks say so.
 *
 *     test_mpi CASE          collectives, transfers, split: exit code 0
 *     test_mpi lost | abort  rank 1 stops answering | fails: all others must end with exit code 3,
 *                            and with a sentence on stderr that names it */
#include "base/clock.h"
#include "harness/comm_cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { CASES = 3 };
static const double DEADLINE_S = 1;

typedef Status Case(Comm *c, Arena *a);

static Status is_lost(Comm *c, Arena *a)
{
    (void)a;
    if (c->rank != 1) return comm_barrier(c);
    nanosleep(&(struct timespec){ .tv_sec = 3 }, NULL);
    return FAIL(ERR_COMM, "slept long enough");
}

static Status fails(Comm *c, Arena *a)
{
    (void)a;
    return c->rank == 1 ? FAIL(ERR_DISK, "no room for the checkpoint") : comm_barrier(c);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        Case *run;
    } cases[] = { { "collectives", case_collectives },
                  { "transfers", case_transfers },
                  { "split", case_split },
                  { "lost", is_lost },
                  { "abort", fails } };
    char why[512];
    Arena a = { 0 };
    Comm *c = NULL;
    Status s = arena_init(&a, "mpi", MEM_HOST, (size_t)64 << 20);
    if (s == OK) s = comm_mpi(&a, strcmp(argv[argc - 1], "lost") == 0 ? DEADLINE_S : 30, &c);
    if (s == OK && c->size != comm_launched()) s = FAIL(ERR_NUMERIC, "%d launched", c->size);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && s == OK; i++) {
        if (strcmp(argv[argc - 1], cases[i].name) == 0) s = cases[i].run(c, &a);
    }
    if (s != OK) {
        status_sentence(why, sizeof why);
        fprintf(stderr, "rank %d: %s\n", c == NULL ? -1 : c->rank, why);
        if (c != NULL) comm_abort(c, why);
    }
    comm_free(c);
    return status_exit_code(s);
}
