/* host: groups for host memory. host.c implements all collectives once, over a Transport that only
 * carries messages between two ranks of the world (thread.c, mpi.c). For files of comm/ only. */
#ifndef ENGINE_COMM_HOST_H
#define ENGINE_COMM_HOST_H

#include "engine/comm/comm_private.h"

/* One half of a transfer: what a rank sends or receives. Both halves have the same key and length.
 * Messages with one key between two ranks arrive in the order in which they were posted. */
typedef struct Message {
    void *data;
    size_t bytes; /* more than 0 */
    int peer;     /* rank in the world */
    int key;
    bool sends;
} Message;

struct Transport {
    bool one_memory; /* all ranks share one address space; only then `part` is set */
    /* Begins a transfer, which `slot` (0 .. COMM_REQUESTS - 1) identifies until it is done. */
    Status (*post)(void *self, int slot, const Message *m);
    /* Is the transfer done? Waits up to patience_s, and returns early if the world is aborted. When it
     * is done, the slot is free. */
    Status (*test)(void *self, int slot, double patience_s, bool *done);
    /* The rank that `rank` waits for, as far as this rank knows; -1: none. */
    int (*waits_for)(void *self, int rank);
    /* The rank that aborted the world, and why; -1: none. */
    int (*aborted)(void *self, char why[COMM_WHY_BYTES]);
    void (*abort)(void *self, const char *why);
    /* A barrier of these ranks that a failed rank cannot block: it waits until each has called `part` as
     * often as this one, or has closed its world, or patience_s have passed. NULL: ranks cannot access
     * each other's memory. */
    void (*part)(void *self, const int *rank, int n, double patience_s);
    /* Drops all transfers. When it returns, no other rank accesses their memory. */
    void (*withdraw)(void *self);
    void (*close)(void *self, bool failed);
};

/* Bytes of the staging buffer of a world of this size. */
size_t host_staging_bytes(int size);

/* Opens a world over a transport. It lives in `a`; `self` must live as long. */
Status host_open(const Transport *transport, void *self, int rank, int size, double timeout_s,
                 Arena *a, Comm **out);

/* What a transport whose ranks are processes has told the others about its wait; zeroed: nothing. */
typedef struct WaitNews {
    int slot; /* 1 + the slot that is waited for; 0: none */
    double since_s;
    bool told;
} WaitNews;

/* For the end of each test that waits. True: tell all others that this rank waits for rank *peer (-1: no
 * longer). That is so from half of the deadline on, or when this rank was asked to stop. */
bool host_wait_news(const CommWorld *w, WaitNews *n, int slot, int peer, bool done, int *tell);

/* ", at step 12: ..." or "": where in the step this rank is, for the end of a message. */
enum { HOST_PLACE_BYTES = 256 };
const char *host_place(const CommWorld *w, char out[HOST_PLACE_BYTES]);

#endif
