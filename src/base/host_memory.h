/* host_memory: how much memory this process may still take before the kernel ends one for it. The
 * least of two kinds of limit, each without what the kernel would give up for it:
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
    uint64_t available_bytes;     /* UINT64_MAX: no limit is known */
    char limit[HOST_MEMORY_TEXT]; /* which it is: "MemAvailable and SwapFree of /proc/meminfo" */
} HostMemory;

/* `proc` is "/proc", `cgroups` is "/sys/fs/cgroup". What cannot be read limits nothing. */
void host_memory(const char *proc, const char *cgroups, HostMemory *out);

/* What the kernel says that this process has taken; 0 if it does not say. */
size_t process_peak_bytes(void); /* VmHWM */
size_t process_now_bytes(void);  /* VmRSS */

#endif
