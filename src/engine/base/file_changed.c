/* file_changed: a table of guarded maps for the handler of SIGBUS, and stamps. */
#include "engine/base/file_changed.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GUARDS = 256, SHOWN_BYTES = 256 };

static const uintptr_t TAKEN = 1; /* a slot that is being filled: no address, and not free */

/* A signal handler has no arguments of ours, so the table is global. `at` is written last: a handler
 * that sees an address sees the rest, too. */
typedef struct Guard {
    _Atomic uintptr_t at; /* 0: free */
    size_t bytes;
    _Atomic bool stamped;
    char path[SHOWN_BYTES];
} Guard;

static Guard guard[GUARDS];
static const Guard *_Atomic first_lost;
static char lost_path[SHOWN_BYTES];
static struct sigaction before;
static size_t page_bytes;

/* Replaces the rest of the map, from the missing page on, by zeros. Of another address it restores the
 * action that was there before: the access then faults again. mmap is a plain system call on Linux. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    int kept = errno;
    (void)context;
    uintptr_t address = (uintptr_t)info->si_addr;
    for (int i = 0; i < GUARDS; i++) {
        Guard *g = &guard[i];
        uintptr_t at = atomic_load(&g->at), page = address / page_bytes * page_bytes;
        if (at <= TAKEN || address < at || address - at >= g->bytes) continue;
        const Guard *none = NULL;
        char *map = (char *)info->si_addr - (address - page);
        if (mmap(map, at + g->bytes - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                 0) == MAP_FAILED)
            break;
        if (!atomic_load(&g->stamped) && atomic_compare_exchange_strong(&first_lost, &none, g))
            memcpy(lost_path, g->path, sizeof lost_path);
        errno = kept;
        return;
    }
    (void)sigaction(number, &before, NULL);
    errno = kept;
}

void file_changed_catch(void)
{
    struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };
    page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    (void)sigaction(SIGBUS, &action, &before);
}

void file_changed_guard(const void *at, size_t bytes, const char *path)
{
    for (int i = 0; i < GUARDS; i++) {
        uintptr_t unused = 0;
        if (!atomic_compare_exchange_strong(&guard[i].at, &unused, TAKEN)) continue;
        guard[i].bytes = bytes;
        atomic_store(&guard[i].stamped, false);
        (void)snprintf(guard[i].path, sizeof guard[i].path, "%s", path);
        atomic_store(&guard[i].at, (uintptr_t)at);
        return;
    }
}

void file_changed_stamped(const void *at)
{
    for (int i = 0; i < GUARDS && at != NULL; i++)
        if (atomic_load(&guard[i].at) == (uintptr_t)at) atomic_store(&guard[i].stamped, true);
}

void file_changed_unguard(const void *at)
{
    for (int i = 0; i < GUARDS; i++) {
        uintptr_t mine = (uintptr_t)at;
        if (atomic_compare_exchange_strong(&guard[i].at, &mine, 0)) return;
    }
}

Status file_changed_check(void)
{
    if (atomic_load(&first_lost) == NULL) return OK;
    return FAIL(ERR_CHANGED,
                "%s became shorter while it was read, so the result is not right: run again when "
                "nothing writes to it",
                lost_path);
}

void file_stamp(const char *path, FileStamp *out)
{
    struct stat info = { 0 };
    *out = (FileStamp){ 0 };
    if (stat(path, &info) != 0) return;
    *out = (FileStamp){ (uint64_t)info.st_dev, (uint64_t)info.st_ino, (uint64_t)info.st_size,
                        (int64_t)info.st_mtim.tv_sec, (int64_t)info.st_mtim.tv_nsec };
}

Status file_stamp_check(const char *path, const FileStamp *then)
{
    FileStamp now;
    file_stamp(path, &now);
    bool same_file = now.device == then->device && now.inode == then->inode;
    if (!same_file || memcmp(&now, then, sizeof now) == 0) return OK;
    return FAIL(
        ERR_CHANGED,
        "%s was changed while it was read: it has %" PRIu64 " bytes, it had %" PRIu64
        " when it was opened%s; files of a run must stay as they are",
        path, now.bytes, then->bytes,
        now.bytes == then->bytes ? ", and the time of its last change moved, as `touch` does" : "");
}
