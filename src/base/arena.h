/*
 * arena: memory with an explicit lifetime.
 *
 * An arena is one block and a cursor. Allocation moves the cursor; nothing is freed one by one: a
 * mark is taken, and releasing it gives back everything since. Who owns a pointer is therefore
 * never a question about the pointer, only about the arena: it lives until that arena is reset past
 * it.
 *
 * MEM_COUNT has no block behind it. It hands out addresses that must never be read and remembers
 * the peak, so running the real step over counting arenas *is* the memory projection (plan), and
 * its peak is the size that the real arena is created with (train). One code path, one number.
 *
 * MEM_HOST reserves addresses and lets the kernel add pages on first touch. So a tool that cannot
 * know its needs beforehand (a tokenizer, a JSON file) takes an arena of many GiB and pays for what
 * it writes; only what was written shows in VmHWM.
 *
 * MEM_DEVICE and MEM_PINNED blocks belong to a backend, which makes them with its own `alloc`.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/status.h"

#include <stddef.h>

typedef enum MemKind { MEM_HOST, MEM_COUNT, MEM_DEVICE, MEM_PINNED } MemKind;

enum { ARENA_ALIGN = 256 };

typedef struct Arena {
    const char *name; /* for messages: "slot[3]" */
    MemKind kind;
    char *base;
    size_t cap_bytes, used_bytes, peak_bytes;
} Arena;

typedef struct ArenaMark {
    size_t used_bytes;
} ArenaMark;

#ifdef __cplusplus
extern "C" {
#endif

/* cap_bytes is rounded up to ARENA_ALIGN; 0 is legal. ERR_MEMORY if the reservation fails. */
Status arena_init(Arena *a, const char *name, MemKind kind, size_t cap_bytes);
/* An arena over a block that a backend made and will free: device or pinned memory. */
void arena_over(Arena *a, const char *name, MemKind kind, void *block, size_t cap_bytes);
void arena_free(Arena *a); /* safe on a zeroed arena; a backend's block stays */

/* Ask for pages of 2 MiB where they fit whole into the block: fewer address translations for what
 * is walked every step. For arenas that will be used to their end; the system may decline. */
void arena_huge_pages(const Arena *a);

/* 256-byte aligned, contents undefined (poisoned in debug builds). */
Status arena_alloc(Arena *a, size_t bytes, void **out);
Status arena_alloc_zero(Arena *a, size_t bytes, void **out);
ArenaMark arena_mark(const Arena *a);
void arena_release(Arena *a, ArenaMark mark);

/* Bytes that arena_alloc takes for a request. */
size_t arena_rounded(size_t bytes);

/* A NUL-terminated copy of the first n bytes of s. */
Status arena_text(Arena *a, const char *s, size_t n, const char **out);

#ifdef __cplusplus
}
#endif

#endif
