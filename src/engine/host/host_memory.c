/* host_memory: reads /proc/meminfo and the folders of the cgroups that this process is in. */
#include "engine/host/host_memory.h"

#include "engine/host/cgroup.h"

#include <stdio.h>

enum { RECLAIMED = 3 };

/* File names in a cgroup's folder, which differ by cgroup version. `reclaimed` lists the lines of
 * memory.stat that count memory which the kernel can reclaim: the page cache. */
typedef struct GroupFiles {
    const char *limit, *used, *swap_limit, *swap_used, *reclaimed[RECLAIMED];
} GroupFiles;

static const GroupFiles version_1 = { "memory.limit_in_bytes",
                                      "memory.usage_in_bytes",
                                      NULL,
                                      NULL,
                                      { "total_inactive_file ", "total_active_file " } };
static const GroupFiles version_2 = { "memory.max",
                                      "memory.current",
                                      "memory.swap.max",
                                      "memory.swap.current",
                                      { "inactive_file ", "active_file ", "slab_reclaimable " } };

static bool read_number(const char *folder, const char *name, uint64_t *out)
{
    char text[CGROUP_FILE_BYTES];
    return name != NULL && cgroup_read(folder, name, text) && cgroup_number(text, "", out);
}

/* The files are read one after the other, so use may exceed a limit that was read earlier. */
static uint64_t subtract_to_zero(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static uint64_t reclaimable_bytes(const char *folder, const GroupFiles *f)
{
    char text[CGROUP_FILE_BYTES];
    uint64_t sum = 0, n = 0;
    if (!cgroup_read(folder, "memory.stat", text)) return 0;
    for (int i = 0; i < RECLAIMED && f->reclaimed[i] != NULL; i++) {
        if (cgroup_number(text, f->reclaimed[i], &n)) sum += n;
    }
    return sum;
}

/* available = limit - (used - page cache) + swap that the cgroup may still use. Lowers *out if this
 * cgroup allows less. A limit of 2^63 less a page is version 1's way to say "none". */
static void apply_group(const char *folder, const GroupFiles *f, uint64_t swap, HostMemory *out)
{
    uint64_t limit, used, swap_limit, swap_used;
    if (!read_number(folder, f->limit, &limit) || !read_number(folder, f->used, &used)) return;
    if (read_number(folder, f->swap_limit, &swap_limit) &&
        read_number(folder, f->swap_used, &swap_used) &&
        subtract_to_zero(swap_limit, swap_used) < swap) {
        swap = subtract_to_zero(swap_limit, swap_used);
    }
    uint64_t available =
        subtract_to_zero(limit, subtract_to_zero(used, reclaimable_bytes(folder, f)));
    if (limit > UINT64_MAX / 4 || available + swap >= out->available_bytes) return;
    out->available_bytes = available + swap;
    (void)snprintf(out->limit, sizeof out->limit, "%s of cgroup %.200s", f->limit, folder);
}

/* What apply_group needs of the host, and the answer. */
typedef struct Groups {
    uint64_t swap;
    HostMemory *out;
} Groups;

static void visit_group(void *state, const char *folder, int version)
{
    const Groups *g = state;
    apply_group(folder, version == 2 ? &version_2 : &version_1, g->swap, g->out);
}

void host_memory(const char *proc, const char *cgroups, HostMemory *out)
{
    char text[CGROUP_FILE_BYTES];
    uint64_t kib = 0, swap = 0;
    *out = (HostMemory){ UINT64_MAX, "" };
    if (cgroup_read(proc, "meminfo", text) && cgroup_number(text, "MemAvailable:", &kib)) {
        if (cgroup_number(text, "SwapFree:", &swap)) swap *= 1024;
        out->available_bytes = kib * 1024 + swap;
        (void)snprintf(out->limit, sizeof out->limit, "MemAvailable%s of %.128s/meminfo",
                       swap > 0 ? " and SwapFree" : "", proc);
    }
    cgroup_visit(proc, cgroups, "memory", visit_group, &(Groups){ swap, out });
}

/* Values of /proc/self/status are in KiB, although the file writes "kB". */
static size_t status_bytes(const char *key)
{
    char text[CGROUP_FILE_BYTES];
    uint64_t kib = 0;
    return cgroup_read("/proc/self", "status", text) && cgroup_number(text, key, &kib) ? kib * 1024
                                                                                       : 0;
}

size_t process_peak_bytes(void) { return status_bytes("VmHWM:"); }
size_t process_now_bytes(void) { return status_bytes("VmRSS:"); }
