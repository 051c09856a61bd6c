/* arena: makes blocks by kind (counted, host, owned by a backend) and moves the cursor. Debug builds
 * also find misuse: they poison new memory, guard released memory for ASan, and let the hostile build
 * fail an allocation on purpose. Device and pinned memory is allocated in backend/, not here. */
#include "engine/base/arena.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Under ASan, memory past the cursor is off limits, so use after release is a report and not a
 * guess. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

#ifndef ARENA_POISON
#define ARENA_POISON 1
#endif

/* The hostile build moves every block by this much, so that code which relies on more than
 * 64-byte alignment shows. */
#ifndef ARENA_SKEW
#define ARENA_SKEW 0
#endif

enum {
    POISON = 0xFF, /* 0xFF.. is a NaN in f32, bf16 and f64: unwritten data shows */
};

/* ASan's shadow of a reservation of many GiB would itself be GiB: only this much ahead of all that was ever taken is
 * guarded. */
static const size_t GUARD_BYTES = (size_t)64 << 10;

#ifdef ARENA_FAIL_NTH
/* Hostile build: the n-th allocation of the process fails, to walk every error path. */
extern long arena_fail_countdown;
long arena_fail_countdown = -1;
#endif

/* Where the guard ends. */
static size_t guard_end(const Arena *a)
{
    return a->cap_bytes - a->peak_bytes < GUARD_BYTES ? a->cap_bytes : a->peak_bytes + GUARD_BYTES;
}

size_t arena_rounded(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }
/* One unit more than the block, so that ARENA_SKEW can move it without leaving the mapping. */
static size_t mapped_bytes(const Arena *a) { return a->cap_bytes + ARENA_ALIGN; }

/* ---- limits of the address space ---- */

enum { LIMIT_TEXT = 128, RESERVE_SHARE = 8 };

/* The limit of this process in bytes; 0: there is none. */
static size_t space_limit(void)
{
    struct rlimit limit = { 0 };
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
    return (size_t)limit.rlim_cur;
}

/* Address space that this process uses now; 0 if the system does not say. */
static size_t space_used(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL) return 0;
    if (fscanf(f, "%lu", &pages) != 1) pages = 0; /* NOLINT(cert-err34-c): the kernel's number */
    (void)fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The end of a sentence: what the limit is and how to raise it; empty without a limit. */
static const char *limit_text(char out[LIMIT_TEXT])
{
    size_t limit = space_limit();
    out[0] = '\0';
    if (limit > 0)
        (void)snprintf(out, LIMIT_TEXT,
                       "; this process may use %zu KiB of address space: raise ulimit -v",
                       limit >> 10);
    return out;
}

/* MAP_NORESERVE: a reservation of many GiB needs neither memory nor swap until it is touched. */
Status arena_init(Arena *a, const char *name, MemKind kind, size_t cap_bytes)
{
    *a = (Arena){ .name = name, .kind = kind, .cap_bytes = arena_rounded(cap_bytes) };
    if (kind == MEM_COUNT) {
        a->base = (char *)(size_t)ARENA_ALIGN; /* NOLINT(performance-no-int-to-ptr): must fault */
        return OK;
    }
    if (kind != MEM_HOST)
        return FAIL(ERR_UNSUPPORTED, "arena %s: device and pinned memory need a GPU backend", name);
    void *at = mmap(NULL, mapped_bytes(a), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        char limit[LIMIT_TEXT];
        *a = (Arena){ 0 };
        return FAIL(ERR_MEMORY, "arena %s: the system refused to reserve %zu bytes%s", name,
                    cap_bytes, limit_text(limit));
    }
    a->base = (char *)at + ARENA_SKEW;
    ASAN_POISON_MEMORY_REGION(a->base, guard_end(a));
    return OK;
}

Status arena_reserve(Arena *a, const char *name, size_t cap_bytes)
{
    size_t limit = space_limit(), used = limit > 0 ? space_used() : 0;
    size_t most = limit > used ? (limit - used) / RESERVE_SHARE / ARENA_ALIGN * ARENA_ALIGN : 0;
    bool limited = limit > 0 && most < cap_bytes;
    TRY(arena_init(a, name, MEM_HOST, limited ? most : cap_bytes));
    a->limited = limited;
    return OK;
}

void arena_over(Arena *a, const char *name, MemKind kind, void *block, size_t cap_bytes)
{
    *a = (Arena){ .name = name, .kind = kind, .base = block, .cap_bytes = cap_bytes };
}

void arena_free(Arena *a)
{
    if (a->kind == MEM_HOST && a->base != NULL) {
        /* ASan keeps its marks after munmap; a later mapping at these addresses must not meet them. */
        ASAN_UNPOISON_MEMORY_REGION(a->base, guard_end(a));
        munmap(a->base - ARENA_SKEW, mapped_bytes(a));
    }
    *a = (Arena){ 0 };
}

void arena_huge_pages(const Arena *a)
{
    /* Only whole, aligned ranges of 2 MiB can be huge pages. */
    const uintptr_t page = (uintptr_t)2 << 20;
    if (a->kind != MEM_HOST || a->base == NULL) return;
    uintptr_t first = ((uintptr_t)a->base + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)a->base + a->cap_bytes) / page * page;
    if (first < end) madvise(a->base + (first - (uintptr_t)a->base), end - first, MADV_HUGEPAGE);
}

void arena_take_pages(const Arena *a, size_t first, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)a->base + first) / page * page;
    if (a->kind != MEM_HOST || a->base == NULL) return;
    madvise(a->base - ((uintptr_t)a->base - begin), (uintptr_t)a->base + first + bytes - begin,
            MADV_POPULATE_WRITE);
}

Status arena_alloc(Arena *a, size_t bytes, void **out)
{
    size_t need = arena_rounded(bytes);
#ifdef ARENA_FAIL_NTH
    if (arena_fail_countdown >= 0 && arena_fail_countdown-- == 0)
        return FAIL(ERR_MEMORY, "arena %s: %zu bytes refused on purpose", a->name, bytes);
#endif
    /* need < bytes: rounding up overflowed size_t */
    if (need < bytes || need > a->cap_bytes - a->used_bytes) {
        char limit[LIMIT_TEXT] = "";
        return FAIL(ERR_MEMORY, "arena %s: %zu bytes wanted, %zu of %zu left%s", a->name, bytes,
                    a->cap_bytes - a->used_bytes, a->cap_bytes,
                    a->limited ? limit_text(limit) : "");
    }
    *out = a->base + a->used_bytes;
    a->used_bytes += need;
    const size_t guarded = guard_end(a);
    if (a->used_bytes > a->peak_bytes) a->peak_bytes = a->used_bytes;
    if (a->kind == MEM_HOST) {
        ASAN_POISON_MEMORY_REGION(a->base + guarded, guard_end(a) - guarded);
        ASAN_UNPOISON_MEMORY_REGION(*out, bytes);
    }
    if (ARENA_POISON && a->kind == MEM_HOST) memset(*out, POISON, bytes);
    return OK;
}

/* `pointer` is really a T **. memcpy, because C does not let a T * be written through a void **. */
Status arena_array(Arena *a, size_t n, size_t element_bytes, void *pointer)
{
    void *at = NULL;
    if (n > SIZE_MAX / element_bytes)
        return FAIL(ERR_MEMORY, "arena %s: %zu elements of %zu bytes wanted", a->name, n,
                    element_bytes);
    TRY(arena_alloc(a, n * element_bytes, &at));
    memcpy(pointer, &at, sizeof at);
    return OK;
}

Status arena_array_zero(Arena *a, size_t n, size_t element_bytes, void *pointer)
{
    void *at = NULL;
    TRY(arena_array(a, n, element_bytes, &at));
    if (a->kind == MEM_HOST) memset(at, 0, n * element_bytes);
    memcpy(pointer, &at, sizeof at);
    return OK;
}

/* The old array stays in the arena until its release. Doubling bounds that waste to the size of the
 * new one. */
Status arena_grow(Arena *a, int64_t n, int64_t *room, size_t element_bytes, void *pointer)
{
#ifdef HOSTILE
    enum { FIRST = 1 << 3 };
#else
    enum { FIRST = 1 << 14 };
#endif
    void *now = NULL, *before = NULL;
    int64_t more = *room == 0 ? FIRST : *room;
    if (n <= *room) return OK;
    while (more < n) more *= 2;
    TRY(arena_array(a, (size_t)more, element_bytes, &now));
    memcpy(&before, pointer, sizeof before);
    if (*room > 0) memcpy(now, before, (size_t)*room * element_bytes);
    memcpy(pointer, &now, sizeof now);
    *room = more;
    return OK;
}

void arena_unpoison(const Arena *a)
{
    if (a->kind == MEM_HOST) ASAN_UNPOISON_MEMORY_REGION(a->base, a->cap_bytes);
}

ArenaMark arena_mark(const Arena *a) { return (ArenaMark){ a->used_bytes }; }

void arena_release(Arena *a, ArenaMark mark)
{
    assert(mark.used_bytes <= a->used_bytes); /* released out of order: a bug here, not an input */
    if (a->kind == MEM_HOST)
        ASAN_POISON_MEMORY_REGION(a->base + mark.used_bytes, a->used_bytes - mark.used_bytes);
    a->used_bytes = mark.used_bytes;
}

/* n may be 0; s is then not read, but must not be NULL. */
Status arena_text(Arena *a, const char *s, size_t n, const char **out)
{
    void *at = NULL;
    TRY(arena_alloc(a, n + 1, &at));
    memcpy(at, s, n);
    ((char *)at)[n] = '\0';
    *out = at;
    return OK;
}
