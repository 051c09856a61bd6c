/* launch: which ranks are processes, and where they meet: the variables that launchers set. For files of
 * comm/ and its tests; comm.h has what others ask. */
#ifndef ENGINE_COMM_LAUNCH_H
#define ENGINE_COMM_LAUNCH_H

#include "engine/base/status.h"

#include <stdint.h>

enum { LAUNCH_RANKS_MAX = 1 << 16, LAUNCH_ADDRESS_BYTES = 256, LAUNCH_TOKEN_BYTES = 64 };

typedef enum LaunchBy { LAUNCHED_ALONE, LAUNCHED_MPI, LAUNCHED_TORCH, LAUNCHED_SLURM } LaunchBy;

/* The variables of one launcher. `address`, `port`, `job` and `token` are for ranks that meet over TCP. */
typedef struct CommLaunch {
    LaunchBy by;
    int ranks, rank;
    int local_rank, local_ranks;        /* -1: not told */
    char address[LAUNCH_ADDRESS_BYTES]; /* a name or an address of rank 0's host */
    int port;
    uint64_t job; /* equal on all ranks of a start; other starts have other numbers */
    char token[LAUNCH_TOKEN_BYTES]; /* SWITCHYARD_TOKEN, then zeros; all zeros: not set */
} CommLaunch;

/* Asks in this order: mpirun, srun with PMIx, torchrun (also Kubernetes), srun without PMIx. Children of
 * torchrun inherit what started torchrun, so with TORCHELASTIC_RUN_ID torchrun comes first. ERR_ARG: a
 * variable is missing, or its value makes no sense. */
Status comm_launch_read(CommLaunch *out);

#endif
