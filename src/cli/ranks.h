/* ranks: a subcommand on many ranks: threads of this process (--ranks), or the processes of mpirun
 * or srun. */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include "comm/comm.h"

/* Runs `body` on every rank; with fewer than two here, once without a world. A failure that is the
 * same on all processes is told by the first alone. ERR_ARG: --ranks under a launcher. */
Status cli_ranks(int64_t ranks, double timeout_s, Arena *a, CommBody *body, void *state);

#endif
