/* bind: which cores and which memory a rank takes of its host. */
#ifndef COMM_BIND_H
#define COMM_BIND_H

#include <stdbool.h>

enum { BIND_TEXT_BYTES = 160 };

typedef struct BindShare {
    int threads;                 /* hardware threads of this rank, 1 at least */
    char where[BIND_TEXT_BYTES]; /* "on cores 8-15, NUMA node 1"; "": bound to none */
} BindShare;

/* The share of the rank-th of `ranks` ranks on this host. With `bind` the calling thread, and those
 * that it starts from here on, stay on the share's cores and take memory of its NUMA nodes. Nothing
 * is bound if there are fewer cores than ranks, or if a launcher has bound this process already
 * (`launched`): then its share is all that it may use. */
void bind_share(int rank, int ranks, bool launched, bool bind, BindShare *out);

#endif
