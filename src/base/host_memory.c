/* host_memory: reads /proc/meminfo and the folders of the cgroups that this process is in. */
#include "base/host_memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_BYTES = 16384, FOLDER_BYTES = 1024, PATH_BYTES = 2048, RECLAIMED = 3 };

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

/* Reads a small file of /proc or /sys, whose size stat does not know. False if it cannot be read. */
static bool read_small(const char *folder, const char *name, char out[SMALL_BYTES])
{
    char path[PATH_BYTES];
    size_t used = 0;
    ssize_t n = 1;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    while (n > 0 && used < SMALL_BYTES - 1) {
        n = read(fd, out + used, SMALL_BYTES - 1 - used);
        if (n > 0) used += (size_t)n;
    }
    close(fd);
    out[used] = '\0';
    return n >= 0;
}

/* Finds the line that begins with `key` and reads the number after it. False for "max", which means
 * no limit. With an empty key it reads the number at the start of the text. */
static bool number_after_key(const char *text, const char *key, uint64_t *out)
{
    size_t n = strlen(key);
    while (text != NULL && strncmp(text, key, n) != 0) {
        text = strchr(text, '\n');
        text = text == NULL ? NULL : text + 1;
    }
    if (text == NULL) return false;
    char *end = NULL;
    const char *at = text + n + strspn(text + n, " \t");
    *out = strtoull(at, &end, 10);
    return end != at && *at != '-';
}

static bool read_number(const char *folder, const char *name, uint64_t *out)
{
    char text[SMALL_BYTES];
    return name != NULL && read_small(folder, name, text) && number_after_key(text, "", out);
}

/* The files are read one after the other, so use may exceed a limit that was read earlier. */
static uint64_t subtract_to_zero(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static uint64_t reclaimable_bytes(const char *folder, const GroupFiles *f)
{
    char text[SMALL_BYTES];
    uint64_t sum = 0, n = 0;
    if (!read_small(folder, "memory.stat", text)) return 0;
    for (int i = 0; i < RECLAIMED && f->reclaimed[i] != NULL; i++) {
        if (number_after_key(text, f->reclaimed[i], &n)) sum += n;
    }
    return sum;
}

/* available = limit - (used - page cache) + swap that the cgroup may still use. Lowers *out if this
 * cgroup allows less. A limit above 2^63 is version 1's way to say "none". */
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
    if (limit > UINT64_MAX / 2 || available + swap >= out->available_bytes) return;
    out->available_bytes = available + swap;
    (void)snprintf(out->limit, sizeof out->limit, "%s of cgroup %.200s", f->limit, folder);
}

/* Applies the limits of the cgroup at root/path and of all its ancestors. Inside a container the path
 * may not exist, and the container's own cgroup is at the root. */
static void apply_groups(const char *root, const char *path, const GroupFiles *f, uint64_t swap,
                         HostMemory *out)
{
    char folder[FOLDER_BYTES];
    size_t least = strlen(root);
    int n = snprintf(folder, sizeof folder, "%s%.*s", root, (int)strcspn(path, "\n"), path);
    if (n < 0 || (size_t)n >= sizeof folder) return;
    for (;;) {
        apply_group(folder, f, swap, out);
        char *cut = strrchr(folder, '/');
        if (cut == NULL || (size_t)(cut - folder) < least) return;
        *cut = '\0';
    }
}

/* Parses a line of /proc/self/cgroup: "0::/path" (version 2) or "4:memory:/path" (version 1, mounted
 * in a folder named after the controller). */
static void apply_cgroup_line(const char *line, const char *cgroups, uint64_t swap, HostMemory *out)
{
    char memory[FOLDER_BYTES];
    const char *kinds = strchr(line, ':');
    const char *path = kinds == NULL ? NULL : strchr(kinds + 1, ':');
    if (path == NULL) return;
    size_t n = (size_t)(path - kinds - 1);
    if (n == 0) apply_groups(cgroups, path + 1, &version_2, swap, out);
    if (n != 6 || strncmp(kinds + 1, "memory", n) != 0) return;
    (void)snprintf(memory, sizeof memory, "%s/memory", cgroups);
    apply_groups(memory, path + 1, &version_1, swap, out);
}

void host_memory(const char *proc, const char *cgroups, HostMemory *out)
{
    char text[SMALL_BYTES];
    uint64_t kib = 0, swap = 0;
    *out = (HostMemory){ UINT64_MAX, "" };
    if (read_small(proc, "meminfo", text) && number_after_key(text, "MemAvailable:", &kib)) {
        if (number_after_key(text, "SwapFree:", &swap)) swap *= 1024;
        out->available_bytes = kib * 1024 + swap;
        (void)snprintf(out->limit, sizeof out->limit, "MemAvailable%s of %.128s/meminfo",
                       swap > 0 ? " and SwapFree" : "", proc);
    }
    if (!read_small(proc, "self/cgroup", text)) return;
    for (const char *line = text; *line != '\0';) {
        apply_cgroup_line(line, cgroups, swap, out);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
}

/* Values of /proc/self/status are in KiB, although the file writes "kB". */
static size_t status_bytes(const char *key)
{
    char text[SMALL_BYTES];
    uint64_t kib = 0;
    return read_small("/proc/self", "status", text) && number_after_key(text, key, &kib)
               ? kib * 1024
               : 0;
}

size_t process_peak_bytes(void) { return status_bytes("VmHWM:"); }
size_t process_now_bytes(void) { return status_bytes("VmRSS:"); }
