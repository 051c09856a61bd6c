/* mpi_off: a build without MPI. Linked instead of mpi.c; opening a world fails and says how to build. */
#include "engine/comm/comm.h"
#include "engine/comm/mpi_version.h"

Status comm_mpi(Arena *a, double timeout_s, Comm **out)
{
    (void)a;
    (void)timeout_s;
    (void)out;
    return FAIL(ERR_UNSUPPORTED,
                "this build has no MPI: build with MPI=1, or use threads (--ranks)");
}

bool comm_mpi_built(void) { return false; }

void comm_mpi_version(char out[COMM_MPI_VERSION_BYTES]) { out[0] = '\0'; }
