/* exchange_direct: the flag area at the front of every rank's window, by which ranks wait for each
 * other (exchange_direct.c has the story). All ranks write it, its own rank reads it. */
#ifndef OP_EXCHANGE_DIRECT_H
#define OP_EXCHANGE_DIRECT_H

#include <stdint.h>

enum { DIRECT_RANKS = 64 }; /* at most */

/* What one rank tells another at the start of an exchange. */
typedef struct DirectPost {
    uint64_t at[3]; /* bytes from its window's front to the rows, their experts, their weights */
    int32_t count[DIRECT_RANKS]; /* tokens that it sends to each rank; with routing alone */
} DirectPost;

/* A flag holds the number of the last exchange that set it. Flags only grow, so nobody clears them.
 * On the CPU comm_barrier does their work. */
typedef struct DirectHeader {
    uint32_t entered[DIRECT_RANKS]; /* by rank: its post is here, and its memory may be used */
    uint32_t left[DIRECT_RANKS];    /* by rank: it uses this rank's memory no more */
    uint32_t epoch;                 /* number of the last exchange that ended here */
    uint32_t blocks;                /* of the kernel that have ended; 0 between kernels */
    DirectPost post[DIRECT_RANKS];
} DirectHeader;

#endif
