/* ranks: runs a command's body on every rank, as threads or under a launcher. Meshes and groups are
 * made by the body (engine/comm/mesh.h). */
#include "app/options/cli.h"

static Status run_on_process(double timeout_s, Arena *a, CommBody *body, void *state)
{
    Comm *world = NULL;
    TRY(comm_processes(a, timeout_s, version_number, &world));
    Status s = body(state, world);
    comm_free(world);
    return s;
}

Status cli_ranks(int64_t ranks, double timeout_s, Arena *a, CommBody *body, void *state)
{
    int launched = comm_launched(), failed = -1;
    TRY(comm_launch_check());
    /* Every process would fail in the same way below, so under mpirun only rank 0 goes on and reports it. */
    if (comm_launched_by_mpi() && comm_launched_rank() > 0 && (ranks > 0 || !comm_mpi_built()))
        return OK;
    if (ranks > 0 && launched > 1) {
        return FAIL(
            ERR_ARG,
            "--ranks %d starts ranks on one host, and %s started %d already: leave out --ranks",
            (int)ranks, comm_launched_by_mpi() ? "mpirun or srun" : "a launcher", launched);
    }
    if (launched > 1) return run_on_process(timeout_s, a, body, state);
    if (ranks < 2) return body(state, NULL);
    return comm_threads((int)ranks, timeout_s, body, state, &failed);
}
