/* comm_private: the table that an implementation of comm.h fills, one entry per call, and the state that
 * all groups of a world share. comm.c has checked the arguments: tensors fit each other and the group;
 * peers, roots and tags are in range. For files of comm/ only. */
#ifndef ENGINE_COMM_COMM_PRIVATE_H
#define ENGINE_COMM_COMM_PRIVATE_H

#include "engine/comm/comm.h"

struct CommTable {
    Status (*all_reduce)(Comm *c, const Tensor *t, ReduceOp op);
    Status (*reduce_scatter)(Comm *c, const Tensor *in, const Tensor *out);
    Status (*all_gather)(Comm *c, const Tensor *in, const Tensor *out);
    Status (*all_to_all)(Comm *c, const Tensor *in, const Tensor *out);
    Status (*broadcast)(Comm *c, const Tensor *t, int root);
    Status (*barrier)(Comm *c);
    Status (*send)(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
    Status (*recv)(Comm *c, const Tensor *t, int peer, int tag, CommRequest *out);
    Status (*test)(Comm *c, CommRequest *r, bool *done);
    Status (*wait)(Comm *c, CommRequest *r);
    /* Begin and end a batch of transfers. */
    Status (*batch_begin)(Comm *c);
    Status (*batch_end)(Comm *c);
    /* Copies within this rank's memory, in order with the group's calls. */
    Status (*copy)(Comm *c, void *dst, const void *src, size_t bytes);
    /* Fills w->peer, which lies in `a`. */
    Status (*window)(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *w);
    void (*window_close)(Comm *c, CommWindow *w);
    Status (*connect)(Comm *c);
    Status (*watch)(Comm *c, double waited_s);
    void (*set_stream)(Comm *c, void *stream);
    Status (*split)(Comm *c, int color, int key, const char *name, Arena *a, Comm **out);
    Status (*duplicate)(Comm *c, void *stream, const char *name, Arena *a, Comm **out);
    void (*free)(Comm *c);
    void (*abort)(Comm *c, const char *why);
};

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

/* `test` and `wait` for implementations in which a transfer is done as soon as it has begun. */
Status comm_done_at_once(Comm *c, CommRequest *r, bool *done);
Status comm_done(Comm *c, CommRequest *r);

#endif
