/* pages: which of a process's pages the system has given to it. */
#ifndef TESTS_HARNESS_PAGES_H
#define TESTS_HARNESS_PAGES_H

#include "harness/test.h"

#include <sys/mman.h>
#include <unistd.h>

/* Does this kernel take pages on demand? Linux 5.14 and later. */
static inline bool pages_can_be_taken(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    const bool can = madvise(at, page, MADV_POPULATE_WRITE) == 0;
    munmap(at, page);
    return can;
}

/* How many of the pages that [at, at + bytes) touches are in memory; *all: how many there are. */
static inline int64_t pages_resident(const void *at, size_t bytes, int64_t *all)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)at / page, end = ((uintptr_t)at + bytes + page - 1) / page;
    int64_t n = 0;
    *all = (int64_t)(end - first);
    for (uintptr_t i = first; i < end; i++) {
        unsigned char in = 0;
        const char *start = (const char *)at - ((uintptr_t)at - i * page);
        CHECK(mincore((void *)(uintptr_t)start, page, &in) == 0);
        n += in & 1;
    }
    return n;
}

#endif
