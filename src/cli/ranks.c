#include "cli/cli.h"

static Status on_process(double timeout_s, Arena *a, CommBody *body, void *state)
{
    Comm *world = NULL;
    TRY(comm_mpi(a, timeout_s, &world));
    Status s = body(state, world);
    comm_free(world);
    return s;
}

Status cli_ranks(int64_t ranks, double timeout_s, Arena *a, CommBody *body, void *state)
{
    int launched = comm_launched(), failed = -1;
    /* a failure that is the same on all ranks is told by rank 0 alone */
    if (comm_launched_rank() > 0 && (ranks > 0 || !comm_mpi_built())) return OK;
    if (ranks > 0 && launched > 1) {
        return FAIL(ERR_ARG,
                    "--ranks %d starts ranks on one host, and mpirun or srun started %d already: "
                    "leave --ranks away",
                    (int)ranks, launched);
    }
    if (launched > 1) return on_process(timeout_s, a, body, state);
    if (ranks < 2) return body(state, NULL);
    return comm_threads((int)ranks, timeout_s, body, state, &failed);
}
