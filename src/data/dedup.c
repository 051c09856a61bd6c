/* dedup: a hash table of hashes. */
#include "data/dedup.h"

#include <stdio.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { SLOTS_LEAST = 1 << 10, PATH_BYTES = FILE_PATH_MAX + 16 };

DocumentHash dedup_hash(const char *text, size_t bytes)
{
    XXH128_hash_t h = XXH3_128bits(text, bytes);
    if (h.high64 == 0 && h.low64 == 0) h.low64 = 1;
    return (DocumentHash){ h.high64, h.low64 };
}

static bool is_empty(DocumentHash h) { return h.high == 0 && h.low == 0; }

/* The slot of a hash, or the empty one where it belongs. */
static DocumentHash *find_slot(const Dedup *d, DocumentHash h)
{
    uint64_t at = h.low & (d->slots - 1);
    while (!is_empty(d->slot[at]) && (d->slot[at].high != h.high || d->slot[at].low != h.low))
        at = (at + 1) & (d->slots - 1);
    return &d->slot[at];
}

static Status make_table(Dedup *d, uint64_t slots)
{
    d->slots = slots;
    TRY(arena_init(&d->arena, "hashes of documents", MEM_HOST, slots * sizeof *d->slot));
    return ARENA_ZEROED(&d->arena, slots, &d->slot);
}

static Status double_table(Dedup *d)
{
    Dedup old = *d;
    d->arena = (Arena){ 0 };
    Status s = make_table(d, 2 * old.slots);
    for (uint64_t i = 0; s == OK && i < old.slots; i++) {
        if (!is_empty(old.slot[i])) *find_slot(d, old.slot[i]) = old.slot[i];
    }
    arena_free(&old.arena);
    return s;
}

static Status insert_hash(Dedup *d, DocumentHash h, bool *is_new)
{
    DocumentHash *slot = find_slot(d, h);
    *is_new = is_empty(*slot);
    if (!*is_new) return OK;
    *slot = h;
    return (uint64_t)++d->n > d->slots / 4 * 3 ? double_table(d) : OK;
}

/* The hashes are read through a map of the temporary file. */
static Status read_hashes(Dedup *d, const char *prefix, int64_t n)
{
    char temp[PATH_BYTES];
    FileMap map = { 0 };
    (void)snprintf(temp, sizeof temp, "%s.seen.tmp", prefix);
    TRY(file_map(temp, &map));
    const DocumentHash *h = (const void *)map.data;
    bool is_new = true;
    Status s = OK;
    for (int64_t i = 0; i < n && s == OK; i++) s = insert_hash(d, h[i], &is_new);
    file_unmap(&map);
    return s;
}

Status dedup_open(Dedup *d, const char *prefix, int64_t n, Arena *a)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s.seen", prefix);
    *d = (Dedup){ 0 };
    TRY(make_table(d, SLOTS_LEAST));
    if (n == 0) return file_create_temp(&d->file, path, a);
    TRY(file_resume_temp(&d->file, path, (uint64_t)n * sizeof *d->slot, a));
    return read_hashes(d, prefix, n);
}

Status dedup_add(Dedup *d, DocumentHash h, bool *is_new)
{
    TRY(insert_hash(d, h, is_new));
    return *is_new ? file_write(&d->file, &h, sizeof h) : OK;
}

void dedup_close(Dedup *d, bool keep)
{
    if (keep) file_keep_temp(&d->file);
    file_close(&d->file);
    arena_free(&d->arena);
    *d = (Dedup){ 0 };
}
