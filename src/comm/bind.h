/* bind: which of its host's cores and memory nodes a rank uses. It does not choose GPUs. */
#ifndef COMM_BIND_H
#define COMM_BIND_H

#include <stdbool.h>

enum { BIND_TEXT_BYTES = 160 };

typedef struct BindShare {
    int threads;                 /* hardware threads of this rank, 1 at least */
    char where[BIND_TEXT_BYTES]; /* "on cores 8-15, NUMA node 1"; "": bound to none */
} BindShare;

/* The share of rank `rank` among the `ranks` ranks on this host. With `bind` the calling thread, and
 * the threads that it starts later, stay on the share's cores and use memory of its NUMA nodes.
 * Nothing is bound if there are fewer cores than ranks. Nor if a launcher has already bound this
 * process (`launched`): its share is then everything that it may use. */
void bind_share(int rank, int ranks, bool launched, bool bind, BindShare *out);

#endif
