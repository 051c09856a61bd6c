/* bind: which of its host's cores and memory nodes a rank uses. It does not choose GPUs. */
#ifndef ENGINE_COMM_BIND_H
#define ENGINE_COMM_BIND_H

#include <stdbool.h>
#include <stdint.h>

enum { BIND_TEXT_BYTES = 160, BIND_CORES_MAX = 1024 };

typedef struct BindShare {
    int threads;                 /* hardware threads of this rank, 1 at least */
    char where[BIND_TEXT_BYTES]; /* "on cores 8-15, NUMA node 1"; "": bound to none */
} BindShare;

/* The share of rank `rank` among the `ranks` ranks on this host. With `bind` the calling thread, and
 * the threads that it starts later, stay on the share's cores and use memory of its NUMA nodes.
 * Nothing is bound if there are fewer cores than ranks. Nor if a launcher has already bound this
 * process (`launched`): its share is then everything that it may use. */
void bind_share(int rank, int ranks, bool launched, bool bind, BindShare *out);

/* The cores that the calling thread may use, by the host's numbers: a core counts if the thread may use
 * one of its hardware threads. Cores from BIND_CORES_MAX on are left out. */
typedef struct BindCores {
    uint32_t bit[BIND_CORES_MAX / 32];
} BindCores;

/* False if the system does not tell. */
bool bind_cores(BindCores *out);

#endif
