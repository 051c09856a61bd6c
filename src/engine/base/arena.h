/* arena: memory with an explicit lifetime: one block and a cursor. Nothing is freed one by one. The
 * caller takes a mark, and releasing it gives back everything allocated since. An arena owns its
 * pointers: each is valid until the arena is released past it. An arena has no lock: one thread uses
 * it at a time.
 *
 * MEM_COUNT   has no block. It hands out addresses that must never be read and remembers the peak. A
 *             real step run over counting arenas is the memory projection: the peak is the size that
 *             the real arena needs.
 * MEM_HOST    reserves addresses; the kernel adds pages on first touch. A tool that cannot know its
 *             needs reserves many GiB (arena_reserve) and pays only for what it writes.
 * MEM_DEVICE, MEM_PINNED   a backend makes and frees the block (arena_over). */
#ifndef ENGINE_BASE_ARENA_H
#define ENGINE_BASE_ARENA_H

#include "engine/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum MemKind { MEM_HOST, MEM_COUNT, MEM_DEVICE, MEM_PINNED } MemKind;

enum { ARENA_ALIGN = 256 };

typedef struct Arena {
    const char *name; /* for messages: "slot[3]" */
    MemKind kind;
    char *base;
    size_t cap_bytes, used_bytes, peak_bytes;
    bool limited; /* a limit of the address space made it smaller than was asked for */
} Arena;

typedef struct ArenaMark {
    size_t used_bytes;
} ArenaMark;

/* cap_bytes is rounded up to ARENA_ALIGN; 0 is legal. ERR_MEMORY if the reservation fails. */
Status arena_init(Arena *a, const char *name, MemKind kind, size_t cap_bytes);
/* MEM_HOST for needs that nobody knows beforehand. Where the address space of a process is limited
 * (ulimit -v), it takes at most an eighth of what is left. If that is too little, arena_alloc's
 * ERR_MEMORY names the limit. */
Status arena_reserve(Arena *a, const char *name, size_t cap_bytes);
/* An arena over a block that a backend made and will free: device or pinned memory. */
void arena_over(Arena *a, const char *name, MemKind kind, void *block, size_t cap_bytes);
void arena_free(Arena *a); /* safe on a zeroed arena; a backend's block stays */

/* Asks for pages of 2 MiB where they fit whole into the block, so that memory walked in every step
 * needs fewer address translations. For arenas that will be used to their end; the system may
 * decline. */
void arena_huge_pages(const Arena *a);

/* Takes the pages of [first, first + bytes) from the system now, so that later writes do not wait for them. Contents
 * stay. Another thread may use the memory meanwhile. Linux before 5.14 does nothing here. */
void arena_take_pages(const Arena *a, size_t first, size_t bytes);

/* 256-byte aligned, contents undefined (poisoned in debug builds). */
Status arena_alloc(Arena *a, size_t bytes, void **out);
/* p is the address of a pointer, which then points to n elements.
 *   ARENA_NEW     new, contents undefined
 *   ARENA_ZEROED  new and zero, in host memory (other kinds stay undefined)
 *   ARENA_GROW    a no-op while n <= *room, the capacity in elements. Otherwise the array moves, the
 *                 old elements are copied, and *room doubles until n fits. */
#define ARENA_NEW(a, n, p)        arena_array((a), (size_t)(n), sizeof **(p), (p))
#define ARENA_ZEROED(a, n, p)     arena_array_zero((a), (size_t)(n), sizeof **(p), (p))
#define ARENA_GROW(a, n, room, p) arena_grow((a), (n), (room), sizeof **(p), (p))
Status arena_array(Arena *a, size_t n, size_t element_bytes, void *pointer);
Status arena_array_zero(Arena *a, size_t n, size_t element_bytes, void *pointer);
Status arena_grow(Arena *a, int64_t n, int64_t *room, size_t element_bytes, void *pointer);

/* Unpoisons the whole block, so that two layouts can alternate in it. */
void arena_unpoison(const Arena *a);

ArenaMark arena_mark(const Arena *a);
void arena_release(Arena *a, ArenaMark mark);

/* Bytes that arena_alloc uses for a request: the next multiple of ARENA_ALIGN. */
size_t arena_rounded(size_t bytes);

/* A NUL-terminated copy of the first n bytes of s. */
Status arena_text(Arena *a, const char *s, size_t n, const char **out);

#endif
