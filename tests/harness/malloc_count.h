/*
 * malloc_count: how often memory was asked for, by whom, libraries included.
 *
 * The test binary that includes this file defines malloc and its like itself, and the linker gives
 * them to every library too. So the count is of all calls in the process, but for those that libc
 * makes of itself, sorted by the file that the caller stands in. Sanitizers bring their own malloc:
 * under them nothing is counted.
 */
#ifndef TESTS_HARNESS_MALLOC_COUNT_H
#define TESTS_HARNESS_MALLOC_COUNT_H

#ifdef __SANITIZE_ADDRESS__
#define MALLOC_COUNTED 0
#else
#define MALLOC_COUNTED 1

#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { COUNT_FILES = 32 };

static struct {
    struct {
        const char *name;
        uintptr_t first, end;
        atomic_long calls;
    } file[COUNT_FILES];
    int files;
    atomic_long others;
} malloc_counts;

/* The loaded files; to be called before there is a second thread. */
static int malloc_count_file(struct dl_phdr_info *info, size_t bytes, void *none)
{
    (void)bytes, (void)none;
    uintptr_t first = UINTPTR_MAX, end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD || (p->p_flags & PF_X) == 0) continue;
        uintptr_t at = info->dlpi_addr + p->p_vaddr;
        if (at < first) first = at;
        if (at + p->p_memsz > end) end = at + p->p_memsz;
    }
    if (end == 0 || malloc_counts.files == COUNT_FILES) return 0;
    const char *slash = strrchr(info->dlpi_name, '/');
    int i = malloc_counts.files++;
    malloc_counts.file[i].name = slash != NULL ? slash + 1 : info->dlpi_name;
    malloc_counts.file[i].first = first;
    malloc_counts.file[i].end = end;
    return 0;
}

static void malloc_count_start(void) { dl_iterate_phdr(malloc_count_file, NULL); }

static void malloc_count_call(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    for (int i = 0; i < malloc_counts.files; i++) {
        if (at < malloc_counts.file[i].first || at >= malloc_counts.file[i].end) continue;
        atomic_fetch_add(&malloc_counts.file[i].calls, 1);
        return;
    }
    atomic_fetch_add(&malloc_counts.others, 1);
}

/* "program 12, libgomp.so.1 3, " of those that called at all. */
static void malloc_count_print(FILE *to)
{
    for (int i = 0; i < malloc_counts.files; i++) {
        long calls = malloc_counts.file[i].calls;
        const char *name = malloc_counts.file[i].name;
        if (calls > 0) fprintf(to, "%s %ld, ", name[0] == '\0' ? "program" : name, calls);
    }
    fprintf(to, "others %ld\n", (long)malloc_counts.others);
}

/* glibc's own, under the names that it keeps for those who replace them. */
// NOLINTBEGIN(bugprone-reserved-identifier): these names are glibc's
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
// NOLINTEND(bugprone-reserved-identifier)

#define COUNTED(call) (malloc_count_call(__builtin_return_address(0)), (call))

void *malloc(size_t bytes) { return COUNTED(__libc_malloc(bytes)); }
void *calloc(size_t n, size_t bytes) { return COUNTED(__libc_calloc(n, bytes)); }
void *realloc(void *old, size_t bytes) { return COUNTED(__libc_realloc(old, bytes)); }
void *memalign(size_t align, size_t bytes) { return COUNTED(__libc_memalign(align, bytes)); }
void *aligned_alloc(size_t align, size_t bytes) { return COUNTED(__libc_memalign(align, bytes)); }

int posix_memalign(void **out, size_t align, size_t bytes)
{
    *out = COUNTED(__libc_memalign(align, bytes));
    return *out == NULL ? ENOMEM : 0;
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    malloc_count_call(__builtin_return_address(0));
    long got = syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
    return (void *)(uintptr_t)got;
}
#endif

#endif
