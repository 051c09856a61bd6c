/* bind: chooses a rank's cores with hwloc and binds its threads and memory to them. hwloc's logical
 * order numbers cores NUMA node by NUMA node. So neighbours on a mesh, which exchange most, are
 * neighbours on the machine. */
#include "engine/comm/bind.h"

#include <hwloc.h>
#include <stdio.h>

typedef struct Host {
    hwloc_topology_t topology;
    hwloc_bitmap_t may, mine, nodes; /* cores of the process, of the rank; its memory nodes */
} Host;

static bool open_host(Host *h)
{
    *h = (Host){ .may = hwloc_bitmap_alloc(),
                 .mine = hwloc_bitmap_alloc(),
                 .nodes = hwloc_bitmap_alloc() };
    if (hwloc_topology_init(&h->topology) != 0) return false;
    return hwloc_topology_load(h->topology) == 0 &&
           hwloc_get_cpubind(h->topology, h->may, HWLOC_CPUBIND_THREAD) == 0;
}

static void close_host(Host *h)
{
    if (h->topology != NULL) hwloc_topology_destroy(h->topology);
    hwloc_bitmap_free(h->may);
    hwloc_bitmap_free(h->mine);
    hwloc_bitmap_free(h->nodes);
}

/* Has the launcher already bound this process to fewer cores than the host has? An allowed core
 * that the process may not use: somebody has restricted it. */
static bool was_bound(const Host *h)
{
    return hwloc_bitmap_isincluded(hwloc_topology_get_allowed_cpuset(h->topology), h->may) == 0;
}

/* Fills h->mine with the rank's contiguous share of the cores. False if there are fewer cores than
 * ranks. */
static bool choose_cores(Host *h, int rank, int ranks)
{
    int cores = hwloc_get_nbobjs_inside_cpuset_by_type(h->topology, h->may, HWLOC_OBJ_CORE);
    if (cores < ranks) return false;
    for (int i = rank * cores / ranks; i < (rank + 1) * cores / ranks; i++) {
        hwloc_obj_t core =
            hwloc_get_obj_inside_cpuset_by_type(h->topology, h->may, HWLOC_OBJ_CORE, (unsigned)i);
        hwloc_bitmap_or(h->mine, h->mine, core->cpuset);
    }
    hwloc_bitmap_and(h->mine, h->mine, h->may);
    hwloc_cpuset_to_nodeset(h->topology, h->mine, h->nodes);
    return true;
}

/* Binding memory may fail without harm: the kernel then places a page where a thread first touches
 * it. */
static void bind_to_share(Host *h, char where[BIND_TEXT_BYTES])
{
    char cores[64], nodes[32];
    if (hwloc_set_cpubind(h->topology, h->mine, HWLOC_CPUBIND_THREAD) != 0) return;
    (void)hwloc_set_membind(h->topology, h->nodes, HWLOC_MEMBIND_BIND,
                            HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET);
    hwloc_bitmap_list_snprintf(cores, sizeof cores, h->mine);
    hwloc_bitmap_list_snprintf(nodes, sizeof nodes, h->nodes);
    (void)snprintf(where, BIND_TEXT_BYTES, "on cores %s, NUMA node %s", cores, nodes);
}

/* If something fails here, the rank runs unbound, with at least one thread. */
void bind_share(int rank, int ranks, bool launched, bool bind, BindShare *out)
{
    Host h;
    *out = (BindShare){ .threads = 1 };
    if (open_host(&h)) {
        int all = hwloc_bitmap_weight(h.may), share = all / ranks;
        if (launched && was_bound(&h)) {
            share = all;
        } else if (bind && choose_cores(&h, rank, ranks)) {
            share = hwloc_bitmap_weight(h.mine);
            bind_to_share(&h, out->where);
        }
        if (share > 1) out->threads = share;
    }
    close_host(&h);
}

bool bind_cores(BindCores *out)
{
    Host h;
    *out = (BindCores){ 0 };
    bool known = open_host(&h);
    int cores = known ? hwloc_get_nbobjs_by_type(h.topology, HWLOC_OBJ_CORE) : 0;
    for (int i = 0; i < cores && i < BIND_CORES_MAX; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(h.topology, HWLOC_OBJ_CORE, (unsigned)i);
        if (hwloc_bitmap_intersects(core->cpuset, h.may)) out->bit[i / 32] |= 1u << i % 32;
    }
    close_host(&h);
    return known && cores > 0;
}
