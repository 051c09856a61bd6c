/* fuzz_maps: keeps the maps of arenas from input to input. A parser that makes ten arenas took most of its time in the
 * kernel, for maps, and for pages that were touched for the first time again. The linker puts these functions in the
 * place of mmap and munmap (--wrap). What a map holds is undefined, as an arena's memory is. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/types.h>

enum { MAPS_MAX = 256, TRIM_EVERY = 64 };

static const size_t LEAST_BYTES = (size_t)1 << 16, KEPT_BYTES = (size_t)1 << 20;

static struct {
    void *at;
    size_t bytes;
    bool used;
    unsigned times; /* that it was given back */
} maps[MAPS_MAX];
static int n_maps;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes);
/* NOLINTEND(bugprone-reserved-identifier) */

/* A free map of this size, or a new one; NULL: the table is full. */
static void *take_map(size_t bytes, int prot, int flags)
{
    for (int i = 0; i < n_maps; i++) {
        if (maps[i].used || maps[i].bytes != bytes) continue;
        maps[i].used = true;
        return maps[i].at;
    }
    if (n_maps == MAPS_MAX) return NULL;
    void *at = __real_mmap(NULL, bytes, prot, flags, -1, 0);
    if (at == MAP_FAILED) return at;
    maps[n_maps].at = at;
    maps[n_maps].bytes = bytes;
    maps[n_maps++].used = true;
    return at;
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    void *kept = NULL;
    size_t rounded = LEAST_BYTES;
    while (rounded < bytes) rounded *= 2; /* inputs of many lengths share few sizes */
    if (fd >= 0 || (flags & MAP_NORESERVE) == 0)
        return __real_mmap(at, bytes, prot, flags, fd, offset);
    pthread_mutex_lock(&lock);
    kept = take_map(rounded, prot, flags);
    pthread_mutex_unlock(&lock);
    return kept != NULL ? kept : __real_mmap(at, bytes, prot, flags, fd, offset);
}

int __wrap_munmap(void *at, size_t bytes)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_maps && !found; i++) {
        found = maps[i].at == at;
        if (!found) continue;
        maps[i].used = false;
        if (maps[i].bytes > KEPT_BYTES && ++maps[i].times % TRIM_EVERY == 0)
            (void)madvise((char *)at + KEPT_BYTES, maps[i].bytes - KEPT_BYTES, MADV_DONTNEED);
    }
    pthread_mutex_unlock(&lock);
    return found ? 0 : __real_munmap(at, bytes);
}
