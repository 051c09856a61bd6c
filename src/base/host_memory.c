/* host_memory: reads /proc/meminfo and the folders of the cgroups that this process is in. */
#include "base/host_memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_BYTES = 16384, FOLDER_BYTES = 1024, PATH_BYTES = 2048, RECLAIMED = 3 };

/* The names of the files in a group's folder, which differ by version, and the lines of memory.stat
 * that count the memory which the kernel gives up first. */
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

/* Reads a file of the kernel's; stat does not know its size. */
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

/* The number behind a key at the beginning of a line. False for "max", which is no number. */
static bool number_of(const char *text, const char *key, uint64_t *out)
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
    return name != NULL && read_small(folder, name, text) && number_of(text, "", out);
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static uint64_t reclaimed(const char *folder, const GroupFiles *f)
{
    char text[SMALL_BYTES];
    uint64_t sum = 0, n = 0;
    if (!read_small(folder, "memory.stat", text)) return 0;
    for (int i = 0; i < RECLAIMED && f->reclaimed[i] != NULL; i++) {
        if (number_of(text, f->reclaimed[i], &n)) sum += n;
    }
    return sum;
}

static void look_at_group(const char *folder, const GroupFiles *f, uint64_t swap, HostMemory *out)
{
    uint64_t limit, used, swap_limit, swap_used;
    if (!read_number(folder, f->limit, &limit) || !read_number(folder, f->used, &used)) return;
    if (read_number(folder, f->swap_limit, &swap_limit) &&
        read_number(folder, f->swap_used, &swap_used) && less(swap_limit, swap_used) < swap) {
        swap = less(swap_limit, swap_used);
    }
    uint64_t available = less(limit, less(used, reclaimed(folder, f)));
    if (limit > UINT64_MAX / 2 || available + swap >= out->available_bytes) return;
    out->available_bytes = available + swap;
    (void)snprintf(out->limit, sizeof out->limit, "%s of cgroup %.200s", f->limit, folder);
}

/* Looks at the group at root/path and at all groups above it. A container may see only its own
 * group, at the root. */
static void look_at_groups(const char *root, const char *path, const GroupFiles *f, uint64_t swap,
                           HostMemory *out)
{
    char folder[FOLDER_BYTES];
    size_t least = strlen(root);
    int n = snprintf(folder, sizeof folder, "%s%.*s", root, (int)strcspn(path, "\n"), path);
    if (n < 0 || (size_t)n >= sizeof folder) return;
    for (;;) {
        look_at_group(folder, f, swap, out);
        char *cut = strrchr(folder, '/');
        if (cut == NULL || (size_t)(cut - folder) < least) return;
        *cut = '\0';
    }
}

/* Lines "0::/path" (version 2) and "4:memory:/path" (version 1, mounted in a folder of that name).
 */
static void look_at_line(const char *line, const char *cgroups, uint64_t swap, HostMemory *out)
{
    char memory[FOLDER_BYTES];
    const char *kinds = strchr(line, ':');
    const char *path = kinds == NULL ? NULL : strchr(kinds + 1, ':');
    if (path == NULL) return;
    size_t n = (size_t)(path - kinds - 1);
    if (n == 0) look_at_groups(cgroups, path + 1, &version_2, swap, out);
    if (n != 6 || strncmp(kinds + 1, "memory", n) != 0) return;
    (void)snprintf(memory, sizeof memory, "%s/memory", cgroups);
    look_at_groups(memory, path + 1, &version_1, swap, out);
}

void host_memory(const char *proc, const char *cgroups, HostMemory *out)
{
    char text[SMALL_BYTES];
    uint64_t kib = 0, swap = 0;
    *out = (HostMemory){ UINT64_MAX, "" };
    if (read_small(proc, "meminfo", text) && number_of(text, "MemAvailable:", &kib)) {
        if (number_of(text, "SwapFree:", &swap)) swap *= 1024;
        out->available_bytes = kib * 1024 + swap;
        (void)snprintf(out->limit, sizeof out->limit, "MemAvailable%s of %.128s/meminfo",
                       swap > 0 ? " and SwapFree" : "", proc);
    }
    if (!read_small(proc, "self/cgroup", text)) return;
    for (const char *line = text; *line != '\0';) {
        look_at_line(line, cgroups, swap, out);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
}

static size_t status_bytes(const char *key)
{
    char text[SMALL_BYTES];
    uint64_t kib = 0;
    return read_small("/proc/self", "status", text) && number_of(text, key, &kib) ? kib * 1024 : 0;
}

size_t process_peak_bytes(void) { return status_bytes("VmHWM:"); }
size_t process_now_bytes(void) { return status_bytes("VmRSS:"); }
