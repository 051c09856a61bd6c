/* dedup: a set of hashes with a lock, and their file. */
#include "corpus/prepare/dedup.h"

#include <stdio.h>
#include <string.h>
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
static DocumentHash *find_slot(const HashSet *s, DocumentHash h)
{
    uint64_t at = h.low & (s->slots - 1);
    while (!is_empty(s->slot[at]) && (s->slot[at].high != h.high || s->slot[at].low != h.low))
        at = (at + 1) & (s->slots - 1);
    return &s->slot[at];
}

static Status make_table(HashSet *s, uint64_t slots)
{
    s->slots = slots;
    TRY(arena_init(&s->arena, "hashes of documents", MEM_HOST, slots * sizeof *s->slot));
    return ARENA_ZEROED(&s->arena, slots, &s->slot);
}

static Status double_table(HashSet *s)
{
    HashSet old = *s;
    s->arena = (Arena){ 0 };
    Status status = make_table(s, 2 * old.slots);
    for (uint64_t i = 0; status == OK && i < old.slots; i++) {
        if (!is_empty(old.slot[i])) *find_slot(s, old.slot[i]) = old.slot[i];
    }
    arena_free(&old.arena);
    return status;
}

Status hashes_open(HashSet *s) { return make_table(s, SLOTS_LEAST); }

bool hashes_have(const HashSet *s, DocumentHash h) { return !is_empty(*find_slot(s, h)); }

Status hashes_add(HashSet *s, DocumentHash h, bool *is_new)
{
    DocumentHash *slot = find_slot(s, h);
    *is_new = is_empty(*slot);
    if (!*is_new) return OK;
    *slot = h;
    return (uint64_t)++s->n > s->slots / 4 * 3 ? double_table(s) : OK;
}

void hashes_clear(HashSet *s)
{
    if (s->n > 0) memset(s->slot, 0, s->slots * sizeof *s->slot);
    s->n = 0;
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
    for (int64_t i = 0; i < n && s == OK; i++) s = hashes_add(&d->seen, h[i], &is_new);
    file_unmap(&map);
    return s;
}

Status dedup_open(Dedup *d, const char *prefix, int64_t n, Arena *a)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s.seen", prefix);
    *d = (Dedup){ 0 };
    pthread_mutex_init(&d->lock, NULL);
    TRY(hashes_open(&d->seen));
    if (n == 0) return file_create_temp(&d->file, path, a);
    TRY(file_resume_temp(&d->file, path, (uint64_t)n * sizeof *d->seen.slot, a));
    return read_hashes(d, prefix, n);
}

bool dedup_has(Dedup *d, DocumentHash h)
{
    pthread_mutex_lock(&d->lock);
    bool has = hashes_have(&d->seen, h);
    pthread_mutex_unlock(&d->lock);
    return has;
}

Status dedup_add(Dedup *d, DocumentHash h, bool *is_new)
{
    pthread_mutex_lock(&d->lock);
    Status s = hashes_add(&d->seen, h, is_new);
    pthread_mutex_unlock(&d->lock);
    TRY(s);
    return *is_new ? file_write(&d->file, &h, sizeof h) : OK;
}

void dedup_close(Dedup *d, bool keep)
{
    if (keep) file_keep_temp(&d->file);
    file_close(&d->file);
    arena_free(&d->seen.arena);
    pthread_mutex_destroy(&d->lock);
    *d = (Dedup){ 0 };
}
