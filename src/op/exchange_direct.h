/* exchange_direct: the memory at the front of every rank's window through which ranks meet
 * (exchange_direct.c has the story). Written by all ranks, read by its own. */
#ifndef OP_EXCHANGE_DIRECT_H
#define OP_EXCHANGE_DIRECT_H

#include <stdint.h>

enum { DIRECT_RANKS = 64 }; /* at most */

/* What one rank tells another at the start of an exchange. */
typedef struct DirectPost {
    uint64_t at[3]; /* bytes from its window's front to the rows, their experts, their weights */
    int32_t count[DIRECT_RANKS]; /* tokens that it sends to each rank; with routing alone */
} DirectPost;

/* Flags hold the number of the last exchange to which they belong: they only grow, so nobody clears
 * them. On the CPU comm_barrier stands for them. */
typedef struct DirectBoard {
    uint32_t come[DIRECT_RANKS]; /* by rank: its post is here, and its memory may be reached */
    uint32_t done[DIRECT_RANKS]; /* it reaches into this rank's memory no more */
    uint32_t epoch;              /* exchanges that have ended here */
    uint32_t blocks;             /* of the kernel, that have ended; 0 between kernels */
    DirectPost post[DIRECT_RANKS];
} DirectBoard;

#endif
