/* host: groups over the host's memory. All collectives are written here once, over a transport that
 * only carries messages between ranks of the world. Inside comm/ only. */
#ifndef COMM_HOST_H
#define COMM_HOST_H

#include "comm/comm_private.h"

/* Messages of one key between two ranks come in the order in which they were posted. */
typedef struct Message {
    void *data;
    size_t bytes; /* more than 0 */
    int peer;     /* of the world */
    int key;
    bool sends;
} Message;

struct Transport {
    bool one_memory; /* an address means the same to all ranks; then there is `part` */
    /* Begin a transfer, known as `slot` from here on: 0 .. COMM_REQUESTS - 1. */
    Status (*post)(void *self, int slot, const Message *m);
    /* Is the transfer done? Waits no longer than patience_s, and ends early when the world is
     * aborted. The transport forgets a transfer that is done. */
    Status (*test)(void *self, int slot, double patience_s, bool *done);
    /* The rank for which a rank of the world waits, as far as this one knows; -1: none. */
    int (*waits_for)(void *self, int rank);
    /* Which rank has aborted the world, and why; -1: none. */
    int (*aborted)(void *self, char why[COMM_WHY_BYTES]);
    void (*abort)(void *self, const char *why);
    /* Waits until each of these ranks of the world has parted as often as this one, or has gone, or
     * patience_s have passed. NULL: ranks reach no memory of others. */
    void (*part)(void *self, const int *rank, int n, double patience_s);
    /* Drop all transfers; from here on nobody touches their memory. */
    void (*withdraw)(void *self);
    void (*close)(void *self, bool failed);
};

/* Bytes of staging that a world of this size takes. */
size_t host_staging_bytes(int size);

/* A world over a transport. Lives in `a`, as must `self`. */
Status host_open(const Transport *transport, void *self, int rank, int size, double timeout_s,
                 Arena *a, Comm **out);

/* ", at step 12: ..." or "": where this rank stands, for the end of a message. */
enum { HOST_PLACE_BYTES = 256 };
const char *host_place(const CommWorld *w, char out[HOST_PLACE_BYTES]);

#endif
