/* host_memory: how much memory this process may still take before the kernel kills a process. It is
 * the least of these limits; memory that the kernel would give up first counts as free:
 *
 *   the host      MemAvailable, which counts the page cache as free, and free swap
 *   each cgroup   from the process' own up to the root: limit less use, with its page cache and
 *                 the swap that it may take; of version 2 (memory.max) or 1 (limit_in_bytes)
 */
#ifndef BASE_HOST_MEMORY_H
#define BASE_HOST_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { HOST_MEMORY_TEXT = 256 };

typedef struct HostMemory {
    uint64_t available_bytes; /* UINT64_MAX: no limit is known */
    /* the least limit, in words: "MemAvailable and SwapFree of /proc/meminfo" */
    char limit[HOST_MEMORY_TEXT];
} HostMemory;

/* `proc` is "/proc", `cgroups` is "/sys/fs/cgroup". A file that cannot be read sets no limit. */
void host_memory(const char *proc, const char *cgroups, HostMemory *out);

/* How much memory this process has taken, as the kernel says; 0 if it does not say. */
size_t process_peak_bytes(void); /* VmHWM */
size_t process_now_bytes(void);  /* VmRSS */

#endif
