/*
 * exchange_peers: the flag area in every rank's window, with which ranks wait for each other
 * (exchange_direct.c describes the protocol). All ranks write into it; only its own rank
 * reads it. The layout is the same on all ranks: they run the same program.
 */
#ifndef KERNELS_EXCHANGE_EXCHANGE_PEERS_H
#define KERNELS_EXCHANGE_EXCHANGE_PEERS_H

#include "kernels/exchange/exchange.h"

enum { DIRECT_RANKS = 64 }; /* at most */

/* What a rank posts to another at the start of an exchange. */
typedef struct DirectPost {
    uint64_t at[PEER_BUFFERS];   /* offsets in its window */
    int32_t count[DIRECT_RANKS]; /* tokens that it sends to each rank; only with routing */
} DirectPost;

/* A flag holds the number of the last exchange that set it. Numbers only grow, so flags are never
 * cleared. The flags are for GPUs; on the CPU comm_barrier is used, and only `post` is written. */
typedef struct DirectHeader {
    uint32_t entered[DIRECT_RANKS]; /* by rank: its post is here, and its memory may be accessed */
    uint32_t left[DIRECT_RANKS];    /* by rank: it no longer accesses this rank's memory */
    uint32_t epoch;                 /* number of the last exchange that ended here */
    uint32_t blocks;                /* blocks of the kernel that have ended; 0 between kernels */
    DirectPost post[DIRECT_RANKS];
} DirectHeader;

#endif
