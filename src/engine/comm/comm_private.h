/* comm_private: the state that all groups of a world share. For files of comm/ only. */
#ifndef ENGINE_COMM_COMM_PRIVATE_H
#define ENGINE_COMM_COMM_PRIVATE_H

#include "engine/comm/comm.h"

/* The hostile build has the smallest possible limits, so that tests reach them. Eight chunks on each of two
 * stages need more than 32 transfers. */
#ifdef HOSTILE
enum { COMM_REQUESTS = 64, COMM_STAGING_BYTES = 1 << 10 };
#else
enum { COMM_REQUESTS = 256, COMM_STAGING_BYTES = 1 << 20 };
#endif
enum { COMM_WHY_BYTES = 1024 };

typedef struct Transport Transport; /* host.h */

/* What the message of a failed wait says about a transfer. */
typedef struct Pending {
    const char *call; /* NULL: the slot is free */
    const Comm *group;
    int peer; /* rank in the world */
} Pending;

/* Shared by all groups of a world on one rank. Lives in the arena of the world's opening. */
struct CommWorld {
    const Transport *transport;
    void *self; /* the transport's data */
    Comm *root;
    double timeout_s;
    CommPlace place;
    const volatile sig_atomic_t *stop;
    double stop_patience_s;
    int groups;    /* the next free number for a group */
    char *staging; /* other ranks' parts until they are summed; also small messages of split */
    size_t staging_bytes;
    double waited_s;
    Status failed; /* after the first failure all calls return it */
    char why[COMM_WHY_BYTES];
    Pending pending[COMM_REQUESTS];
};

/* Was this rank asked to stop because another one may be gone? SIGUSR2 asks all ranks while all are there. */
static inline bool comm_world_stops(const CommWorld *w)
{
    return w->stop != NULL && *w->stop != 0 && *w->stop != SIGUSR2;
}

#endif
