/* host_memory: how much more memory this process may use before the kernel kills a process for it. The
 * answer is the smallest of these limits. Memory that the kernel can reclaim counts as free.
 *
 *   the host      MemAvailable, which counts the page cache as free, plus free swap
 *   each cgroup   from the process's own up to the root: limit minus use, plus its page cache and the
 *                 swap that it may use; version 2 (memory.max) or 1 (memory.limit_in_bytes)
 *
 * GPU memory is the backend's business. */
#ifndef ENGINE_HOST_HOST_MEMORY_H
#define ENGINE_HOST_HOST_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { HOST_MEMORY_TEXT = 256 };

typedef struct HostMemory {
    uint64_t available_bytes; /* UINT64_MAX: no limit is known */
    /* the limit that is smallest, in words: "MemAvailable and SwapFree of /proc/meminfo" */
    char limit[HOST_MEMORY_TEXT];
} HostMemory;

/* `proc` is "/proc", `cgroups` is "/sys/fs/cgroup". A file that cannot be read sets no limit. */
void host_memory(const char *proc, const char *cgroups, HostMemory *out);

/* Resident memory of this process as /proc/self/status reports it; 0 if that cannot be read. */
size_t process_peak_bytes(void); /* VmHWM */
size_t process_now_bytes(void);  /* VmRSS */

#endif
